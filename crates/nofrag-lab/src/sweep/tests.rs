//! Plans, ids, shards and what is left after a fault.

use super::*;
use crate::replay::{self, Input, ReplayOptions};
use crate::scenario::Silent;

/// Tasks that end soon: three designs under two seeds each.
const SOON: &str = "[[scenario]]\nname = 'mmap-holes-2005'\nloops = 300\nrepeats = 2\n\
                    designs = ['linux-2.4', 'linux-2.6.17', 'nofrag']\n";

fn plan(text: &str, folder: &Path) -> Plan {
    Plan::parse(text, folder).unwrap()
}

fn ids(plan: &Plan) -> Vec<String> {
    plan.tasks.iter().map(|task| task.keyed(plan).unwrap().0).collect()
}

#[test]
fn a_plan_is_every_combination() {
    let text = "[[replay]]\nrecordings = ['shipped']\npolicies = ['linux-6.1', 'nofrag']\n\
                settings = ['boost=0', 'linux-6.1:scale=10/100']\nmemory = [75, 100]\nrepeats = 3\n";
    let here = Path::new("");
    // A judge, and (2 policies + 2 with boost + 2 scales) x 2 sizes x 3 seeds.
    assert_eq!(plan(text, here).len(), 1 + 6 * 2 * 3);
    let twice = text.replace("'linux-6.1', 'nofrag'", "'linux-6.1', 'linux-6.1'");
    assert_eq!(plan(&twice, here).len(), 1 + 4 * 2 * 3);
    assert_eq!(plan(SOON, here).len(), 6);
}

#[test]
fn what_is_wrong_in_a_plan_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let one = "[[replay]]\nrecordings = ['shipped']\n";
    for (text, why) in [
        ("", "nothing to do"),
        ("[[replays]]\n", "unknown field"),
        ("[[replay]]\nrecordings = ['*.nofrag']\n", "no file in"),
        ("[[replay]]\nrecordings = ['*/*.nofrag']\n", "one * is allowed"),
        ("[[replay]]\nrecordings = ['.']\n", "is a folder"),
        (&format!("{one}policies = ['linux-9']\n"), "linux-9"),
        (&format!("{one}settings = ['linux-4.20:boost=0']\n"), "linux-4.20 has no boost"),
        (&format!("{one}memory = [0]\n"), "from 1 to 1000"),
        (&format!("{one}repeats = 0\n"), "from 1 to"),
        ("[[scenario]]\nname = 'real-memory'\n", "depend on the seed alone"),
        ("[[scenario]]\nname = 'mmap-holes-2005'\ndesigns = ['x']\n", "has no design"),
    ] {
        let said = Plan::parse(text, folder.path()).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
}

#[test]
fn an_id_is_of_what_decides_and_of_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    bytes("a.nofrag", b"one");
    bytes("b.nofrag", b"one");
    bytes("c.nofrag", b"two");
    let of = |rest: &str| {
        let text = format!("[[replay]]\nrecordings = ['*.nofrag']\nrepeats = 1\n{rest}");
        ids(&plan(&text, folder.path()))
    };
    let plain = of("policies = ['linux-6.1']\n");
    assert_eq!(plain, of("policies = ['linux-6.1']\nseed = 1\nmemory = [100]\n"));
    assert_eq!(plain[..2], plain[2..4], "a copy is the same recording");
    assert!(plain[4..].iter().all(|id| !plain[..4].contains(id)), "other bytes");
    for other in [
        "policies = ['nofrag']\n",
        "policies = ['linux-6.1']\nseed = 2\n",
        "policies = ['linux-6.1']\nmemory = [90]\n",
        "policies = ['linux-6.1']\nsamples = 9\n",
        "policies = []\nsettings = ['linux-6.1:boost=0']\n",
    ] {
        assert_ne!(plain[1], of(other)[1], "{other}");
    }
}

#[test]
fn shards_are_the_whole_and_nearly_equal() {
    let tasks: Vec<usize> = (0..103).collect();
    for of in [1, 2, 7, 8, 103, 200] {
        let parts: Vec<&[usize]> =
            (1..=of).map(|number| Shard { number, of }.part(&tasks)).collect();
        assert_eq!(parts.concat(), tasks);
        let lengths = parts.iter().map(|part| part.len());
        let (least, most) = (lengths.clone().min(), lengths.max());
        assert!(most <= least.map(|least| least + 1), "{of}: {least:?} {most:?}");
    }
    for text in ["0/3", "4/3", "3", "a/b", "1/0"] {
        assert!(text.parse::<Shard>().is_err(), "{text}");
    }
}

#[test]
fn shards_of_any_number_give_the_same_bytes_and_do_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(SOON, folder.path());
    let at = |name: &str| folder.path().join(name);
    let merged = |folders: &[PathBuf], name: &str| {
        merge(&plan, folders, &at(name)).map(|merged| (merged, fs::read(at(name)).unwrap()))
    };
    let swept =
        |number, of, out: &str| sweep(&plan, Shard { number, of }, &at(out), 2, &Silent).unwrap();
    assert_eq!(swept(1, 1, "one").made, 6);
    let (one, bytes) = merged(&[at("one")], "one.jsonl").unwrap();
    assert_eq!((one.lines, one.failed, one.bytes), (6, 0, bytes.len() as u64));
    assert_eq!(swept(2, 4, "two").made, 2);
    let missing = merged(&[at("two")], "two.jsonl").unwrap_err().to_string();
    assert!(missing.starts_with("4 of 6 results are missing"), "{missing}");
    assert!(!at("two.jsonl").exists(), "nothing is written");
    for number in 1..=4 {
        swept(number, 4, if number == 3 { "three" } else { "two" });
    }
    let again = swept(1, 1, "two");
    assert_eq!((again.tasks, again.kept + again.made, again.lacking()), (6, 6, 0));
    let (_, parts) = merged(&[at("two"), at("three")], "two.jsonl").unwrap();
    assert!(parts == bytes, "the bytes of one process");
}

#[test]
fn a_result_of_another_task_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(SOON, folder.path());
    let out = folder.path().join("out");
    sweep(&plan, Shard::WHOLE, &out, 2, &Silent).unwrap();
    let ids = ids(&plan);
    fs::copy(place(&out, &ids[0]), place(&out, &ids[1])).unwrap();
    let said = merge(&plan, &[out], &folder.path().join("all")).unwrap_err().to_string();
    assert!(said.contains(&ids[1]) && said.contains("remove it"), "{said}");
}

#[test]
fn what_a_recording_lacks_is_a_result_and_what_this_host_lacks_is_none() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("strange.nofrag"), "no recording").unwrap();
    let text = "[[replay]]\nrecordings = ['strange.nofrag', 'gone.nofrag']\nrepeats = 1\n\
                policies = ['nofrag']\n";
    let plan = plan(text, folder.path());
    let swept = sweep(&plan, Shard::WHOLE, &folder.path().join("out"), 1, &Silent).unwrap();
    assert_eq!((swept.made, swept.lacking(), swept.not_done.len()), (2, 2, 1), "{swept:?}");
    let line = plan.tasks[0].line(&plan).unwrap();
    assert!(line.contains(r#""failed":"strange.nofrag: this is no trace"#), "{line}");
}

/// A task's figures are those that a replay of all policies together has from the same first seed, whether it reads the
/// recording or has it held. (What frames are believed in use is drawn once for all seeds of a replay, so that its
/// second seed is not the first one of another.)
#[test]
fn a_task_finds_what_a_replay_finds() {
    let text = "[[replay]]\nrecordings = ['shipped']\nseed = 2\nrepeats = 1\npolicies = ['nofrag']\n\
                settings = ['linux-6.1:boost=0']\n";
    let plan = plan(text, Path::new(""));
    let options = ReplayOptions {
        trace: Input::Shipped,
        policies: vec!["nofrag".to_owned()],
        questions: vec![replay::Question::parse("linux-6.1:boost=0").unwrap()],
        memory: vec![100],
        seed: 2,
        repeats: 1,
        repeats_of: Vec::new(),
        against: Vec::new(),
        samples: 2,
        threads: 2,
    };
    let report = replay::replay(&options, &|_| {}).unwrap();
    let found = |task: usize| -> serde_json::Value {
        let line: serde_json::Value = serde_json::from_str(&plan.line(task).unwrap()).unwrap();
        line["outcome"].clone()
    };
    let check_run = |task: usize, name: &str| {
        let run = report.runs.iter().find(|run| run.policy == name).unwrap();
        let (together, alone) = (serde_json::to_value(run.first()).unwrap(), found(task));
        for part in ["counts", "assumptions", "timeline"] {
            assert_eq!(alone[part], together[part], "{name}: {part}");
        }
    };
    check_run(1, "nofrag");
    let before = plan.tasks[0].keyed(&plan).unwrap().0;
    plan.hold(0).unwrap();
    assert_eq!(plan.tasks[0].keyed(&plan).unwrap().0, before);
    check_run(2, "linux-6.1:boost=0");
    assert_eq!(found(0)["fidelity"], serde_json::to_value(&report.fidelity).unwrap());
}
