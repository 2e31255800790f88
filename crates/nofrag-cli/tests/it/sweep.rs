//! `nofrag sweep`: processes that are killed, shards of several numbers, and what is said where something is missing.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nofrag_lab::random::Random;

use crate::json::check_documented;
use crate::support::{call, check, nofrag};

/// 39 tasks that end soon: designs of a scenario under several seeds, and a short trace.
fn plan(folder: &Path) -> String {
    let line = |number: u32| {
        format!(
            " worker-1 [000] 10.{number:06}: mm_page_alloc: page=1 pfn={:#x} order=0 migratetype=0 \
             gfp_flags=GFP_KERNEL\n",
            number + 1
        )
    };
    fs::write(folder.join("a.txt"), (0..2000).map(line).collect::<String>()).unwrap();
    let text = "[[replay]]\nrecordings = ['*.txt']\npolicies = ['linux-6.1', 'nofrag']\nrepeats = 1\n\
                [[scenario]]\nname = 'mmap-holes-2005'\nloops = 4000\nrepeats = 12\n\
                designs = ['linux-2.4', 'linux-2.6.17', 'nofrag']\n";
    let path = folder.join("plan.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn shard(plan: &str, shard: &str, out: &str) -> Command {
    let mut command = call(&["sweep", plan, "--shard", shard, "--threads", "1", "-o", out]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn merged(plan: &str, out: &str, to: &str) -> Vec<u8> {
    check(&nofrag(&["sweep", "merge", plan, "-o", to, out]), 0, &["39 lines", "SHA-256"]);
    fs::read(to).unwrap()
}

/// Runs all shards side by side, kills some of them at random moments and begins these again, until all have ended.
fn with_kills(plan: &str, of: usize, out: &str, kills: usize, seed: u64) -> usize {
    let mut chance = Random::new(seed, 0);
    let begin = |number: usize| shard(plan, &format!("{number}/{of}"), out).spawn().unwrap();
    let mut running: Vec<(usize, Child)> = (1..=of).map(|number| (number, begin(number))).collect();
    let mut killed = 0;
    while !running.is_empty() {
        thread::sleep(Duration::from_millis(chance.between(5, 60)));
        running.retain_mut(|(_, child)| match child.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "{status}");
                false
            }
            None => true,
        });
        if killed < kills && !running.is_empty() {
            let at = chance.index(running.len());
            let (number, child) = &mut running[at];
            // SIGKILL: nobody puts anything in order.
            child.kill().unwrap();
            child.wait().unwrap();
            *child = begin(*number);
            killed += 1;
        }
    }
    killed
}

#[test]
fn killed_shards_of_any_number_give_the_bytes_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let plan = plan(folder.path());
    let one = nofrag(&["sweep", &plan, "-o", &at("one"), "--json"]);
    check(&one, 0, &["\"made\": 39"]);
    assert_eq!(check_documented(&one)["kept"], 0);
    let whole = merged(&plan, &at("one"), &at("one.jsonl"));
    for (of, seed) in [(2, 1), (3, 2), (8, 3)] {
        let out = at(&format!("out-{of}"));
        let killed = with_kills(&plan, of, &out, 2 * of, seed);
        assert!(killed > 0, "nobody was killed");
        assert!(merged(&plan, &out, &at("many.jsonl")) == whole, "{of} shards, {killed} killed");
    }
    let again = nofrag(&["sweep", &plan, "-o", &at("out-8")]);
    check(&again, 0, &["39 tasks, 0 done now, 39 done before, 0 not done"]);
}

#[test]
fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let plan = plan(folder.path());
    assert!(shard(&plan, "2/2", &at("out")).status().unwrap().success());
    let merge = nofrag(&["sweep", "merge", &plan, "-o", &at("all.jsonl"), &at("out")]);
    check(&merge, 2, &["19 of 39 results are missing, the first of a.txt", "run the sweep again"]);
    fs::remove_file(folder.path().join("a.txt")).unwrap();
    fs::write(folder.path().join("plan.toml"), "[[replay]]\nrecordings = ['a.txt']\n").unwrap();
    let swept = nofrag(&["sweep", &plan, "-o", &at("out")]);
    check(&swept, 1, &["26 tasks, 0 done now, 0 done before, 26 not done"]);
    assert!(String::from_utf8_lossy(&swept.stderr).contains("a.txt: No such file"), "{swept:?}");
    for (args, why) in [
        (&["sweep", "/no/plan.toml", "-o", "/tmp/out"][..], "/no/plan.toml: No such file"),
        (&["sweep", &plan], "--out <DIR>"),
        (&["sweep", &plan, "-o", "/tmp/out", "--shard", "9/8"], "such as 1/8 to 8/8"),
        (&["sweep", &plan, "-o", "/proc/no"], "/proc/no"),
        (&["sweep", "merge", &plan, "-o", "x"], "<DIR>"),
    ] {
        check(&nofrag(args), 2, &[why]);
    }
}

#[test]
fn a_merge_says_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let plan = plan(folder.path());
    assert!(shard(&plan, "1/1", &at("out")).status().unwrap().success());
    let merge = ["sweep", "merge", &plan, "-o", &at("all.jsonl"), "--json", &at("out")];
    let said = check_documented(&nofrag(&merge));
    assert_eq!((&said["lines"], &said["failed"]), (&39.into(), &0.into()));
    let text = fs::read_to_string(at("all.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&first["name"], &first["task"]["kind"]), (&"a.txt".into(), &"recording".into()));
    assert!(first["outcome"]["recorded"]["events"] == 2000, "{first}");
}
