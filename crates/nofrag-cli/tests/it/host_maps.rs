//! `nofrag host maps` on a captured process, on live ones, and its errors.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::json::check_documented;
use crate::support::{call_there, check, copied_into, nofrag};

fn captured_host() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/hosts/rustc-6.18-x86_64")
}

fn maps(args: &[&str]) -> Output {
    nofrag(&[&["host", "maps"], args].concat())
}

fn on_root(root: &Path, more: &[&str]) -> Output {
    maps(&[&["--root", root.to_str().unwrap()], more].concat())
}

/// Makes a captured host with one process, number 7, with this text as `maps`.
fn folder_with(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("proc/7")).unwrap();
    fs::write(folder.path().join("proc/7/maps"), text).unwrap();
    folder
}

fn json(output: &Output) -> Value {
    check_documented(output)
}

fn sum(rows: &Value, field: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
}

fn address(text: &Value) -> u64 {
    u64::from_str_radix(text.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

/// A process that waits until it is dropped, and maps nothing meanwhile.
struct Waiting(Child);

impl Waiting {
    fn start() -> Waiting {
        let mut command = Command::new("cat");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut waiting = Waiting(child);
        // The echo proves that the process runs; before, the loader may still map its libraries.
        waiting.0.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        waiting.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        waiting
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait().map(drop)).unwrap();
    }
}

/// Checks the screen, which the documentation shows, and everything. After a wanted change, in the repository's folder:
/// `cargo run -- host maps --root data/hosts/rustc-6.18-x86_64 > data/hosts/rustc-6.18-x86_64/output.txt`, and with
/// `20265 --all` to `all.txt`.
#[test]
fn the_page_is_as_documented() {
    for (more, kept) in [(&[][..], "output.txt"), (&["20265", "--all"], "all.txt")] {
        let args = ["host", "maps", "--root", "data/hosts/rustc-6.18-x86_64"];
        let output = call_there(&[&args, more].concat()).output().unwrap();
        let documented = fs::read_to_string(captured_host().join(kept)).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), documented, "{kept}");
        assert!(output.stdout.is_ascii(), "a pipe gets plain ASCII");
        let too_long = documented.lines().find(|line| line.len() > 80);
        assert_eq!(too_long, None);
    }
}

#[test]
fn for_machines() {
    let output = on_root(&captured_host(), &["20265", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report = json(&output);
    assert_eq!((&report["schema"], &report["version"]), (&"nofrag.host.maps".into(), &1.into()));
    assert_eq!(
        (&report["process"]["pid"], &report["process"]["file"]),
        (&20265.into(), &"smaps".into())
    );
    // Of the 331 listed areas one is the page that every process shows and none counts.
    assert_eq!(
        (&report["count"]["areas"], &report["count"]["left"]),
        (&330.into(), &65_200.into())
    );
    assert_eq!((sum(&report["kinds"], "areas"), sum(&report["names"], "areas")), (331, 331));
    let space = &report["space"];
    let size = address(&space["end"]) - address(&space["start"]);
    let free = space["room"]["free_bytes"].as_u64().unwrap();
    assert_eq!(free + report["mapped_bytes"].as_u64().unwrap(), size);
    assert_eq!(sum(&space["room"]["classes"], "bytes"), free);
    let pairs = report["neighbours"]["pairs"].as_u64().unwrap();
    assert_eq!(sum(&report["neighbours"]["groups"], "pairs"), pairs);
    // Areas and neighbours: every area but the first either has a hole before it or is a pair with the one before.
    let holes_between = space["room"]["holes"].as_u64().unwrap() - 2;
    assert_eq!(pairs + holes_between, 330 - 1);
    let names: Vec<&str> = report["replay"]["placements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|placed| placed["name"].as_str().unwrap())
        .collect();
    assert_eq!((names.first(), names.last()), (Some(&"linux-2.4"), Some(&"nofrag")));
    assert_eq!(report["growth"], Value::Null);
}

/// Checks that without smaps the same process is shown, and that the report says what is then unknown.
#[test]
fn without_smaps() {
    let host = captured_host();
    let smaps = fs::read_to_string(host.join("proc/20265/smaps")).unwrap();
    let maps: String = smaps
        .lines()
        .filter(|line| line.split(' ').next().is_some_and(|word| word.contains('-')))
        .map(|line| format!("{line}\n"))
        .collect();
    let folder = folder_with(&maps);
    let output = on_root(folder.path(), &["7", "--all"]);
    let expected = [
        "proc/7/maps: 330 areas",
        "Areas: 330, limit unknown.",
        "not-shown (no smaps)",
        "proc/7/smaps: no such file; it costs the flags of areas",
        "proc/sys/vm/max_map_count: no such file; it costs the limit of areas",
    ];
    check(&output, 0, &expected);
    let (bare, full) =
        (json(&on_root(folder.path(), &["--json"])), json(&on_root(&host, &["--json"])));
    assert_eq!(bare["neighbours"]["pairs"], full["neighbours"]["pairs"]);
    assert_eq!(bare["mapped_bytes"], full["mapped_bytes"]);
}

#[test]
fn this_command_and_its_child() {
    check(&maps(&[]), 0, &["(nofrag)", "that vm.max_map_count allows", "1 stack"]);
    check(&maps(&["self", "--all"]), 0, &["(nofrag)", "[stack]"]);
    check(&maps(&["self", "--maps-only"]), 0, &["/proc/self/maps:", "(nofrag)"]);
    let waiting = Waiting::start();
    let output = maps(&[&waiting.pid(), "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report = json(&output);
    let listed = fs::read_to_string(format!("/proc/{}/maps", waiting.pid())).unwrap();
    let counted = listed.lines().filter(|line| !line.ends_with("[vsyscall]")).count();
    assert_eq!(report["count"]["areas"], counted);
    assert_eq!(report["process"]["name"], "cat");
    assert_eq!(report["malformed"], Value::Array(Vec::new()));
}

#[test]
fn two_looks_show_growth() {
    let waiting = Waiting::start();
    let output = maps(&[&waiting.pid(), "--every", "0.05", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    assert!(report["growth"]["seconds"].as_f64().unwrap() >= 0.05);
    assert_eq!(report["growth"]["areas_after"], report["count"]["areas"]);
    let output = maps(&[&waiting.pid(), "--every", "0.05"]);
    check(&output, 0, &["Growth:", "no growth, so no forecast"]);
}

#[test]
fn all_processes() {
    let waiting = Waiting::start();
    let report = json(&maps(&["--all", "--json"]));
    assert_eq!(report["schema"], "nofrag.host.maps-ranking");
    let processes = report["processes"].as_array().unwrap();
    let pid: u64 = waiting.pid().parse().unwrap();
    assert!(processes.iter().any(|process| process["pid"] == pid && process["name"] == "cat"));
    let areas: Vec<u64> = processes.iter().map(|p| p["areas"].as_u64().unwrap()).collect();
    assert!(areas.is_sorted_by(|a, b| a >= b), "{areas:?}");
    let expected = ["vm.max_map_count allows 65530", "rustc 20265 330 0.5 %"];
    check(&on_root(&captured_host(), &["--all"]), 0, &expected);
}

#[test]
fn a_process_near_the_limit_is_a_warning() {
    let folder = folder_with("1000-2000 rw-p 0 00:00 0\n4000-7000 rw-p 0 00:00 0\n");
    fs::create_dir_all(folder.path().join("proc/sys/vm")).unwrap();
    fs::write(folder.path().join("proc/sys/vm/max_map_count"), "2\n").unwrap();
    let expected = ["warning areas-near-limit", "0 left", "sysctl vm.max_map_count=1048576"];
    check(&on_root(folder.path(), &[]), 1, &expected);
    check(&on_root(folder.path(), &["--all"]), 1, &["100.0 %"]);
}

#[test]
fn damage_is_a_warning() {
    let folder = folder_with("1000-2000 rw-p 0 00:00 0\n3000-2000 rw-p 0 00:00 0\n");
    let expected =
        ["warning file-damaged", "line 2: a range that is empty or runs backwards; copy"];
    check(&on_root(folder.path(), &[]), 1, &expected);
}

/// Checks that the contents of a name do not reach the terminal as a command.
#[test]
fn control_characters_in_names_are_not_printed() {
    let folder = folder_with("1000-2000 rw-p 0 fe:00 7 /tmp/\u{1b}[2Jx\n");
    let output = on_root(folder.path(), &[]);
    check(&output, 1, &["space-tight", "[2Jx"]);
    assert!(!output.stdout.contains(&0x1b));
}

/// Checks that names hide nothing that are not UTF-8: a process may give itself such a name, and a captured file may
/// hold one.
#[test]
fn odd_names_hide_nothing() {
    let folder = folder_with("1000-2000 rw-p 0 00:00 0\n");
    fs::write(folder.path().join("proc/7/status"), b"Name:\tsl\xe9p\nThreads:\t3\n").unwrap();
    fs::create_dir_all(folder.path().join("proc/sys/kernel")).unwrap();
    fs::write(folder.path().join("proc/sys/kernel/osrelease"), "6.1\u{1b}[2J\n").unwrap();
    let output = on_root(folder.path(), &[]);
    check(&output, 1, &["(sl\u{fffd}p), 3 threads; Linux 6.1"]);
    assert!(!output.stdout.contains(&0x1b));
    fs::rename(folder.path().join("proc/7"), folder.path().join("proc/self")).unwrap();
    let report = json(&on_root(folder.path(), &["self", "--json"]));
    assert_eq!(report["process"]["pid"], Value::Null, "a captured process is not this one");
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    check(
        &on_root(folder.path(), &["7"]),
        2,
        &["proc/7/maps: no such file", "captured process needs"],
    );
    fs::create_dir_all(folder.path().join("proc")).unwrap();
    check(&on_root(folder.path(), &[]), 2, &["no process is captured here"]);
    for pid in ["7", "19"] {
        fs::create_dir_all(folder.path().join("proc").join(pid)).unwrap();
    }
    check(
        &on_root(folder.path(), &[]),
        2,
        &["several processes are captured here, name one: 7, 19"],
    );
    check(&on_root(folder_with("").path(), &[]), 2, &["process 7 has no address space"]);
    check(
        &on_root(folder_with("garbage\n").path(), &[]),
        2,
        &["process 7: the file lists no area; line 1:"],
    );
    check(&maps(&["4194305"]), 2, &["process 4194305 does not exist, or has ended"]);
    check(&maps(&["x"]), 2, &["neither a number nor `self`"]);
    check(&maps(&["--every", "0"]), 2, &["not between 0.01 and 86400"]);
    check(&maps(&["--all", "--maps-only"]), 2, &["are about one process: name it"]);
}

/// Checks that a process that has ended and was not yet collected, with a folder and no areas, is called a zombie.
#[test]
fn a_zombie_is_called_one() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    for _ in 0..500 {
        if state().contains(") Z ") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let output = maps(&[&pid.to_string()]);
    child.wait().unwrap();
    check(&output, 2, &["has no address space: it has ended and waits to be collected"]);
}

const NOBODY: u32 = 65_534;

/// Runs as nobody; when the tests themselves run as an ordinary user, there may be no process that they may not see.
#[test]
fn without_permission_it_says_what_and_why() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // A file that this process has made belongs to it.
    if fs::metadata(folder.path()).unwrap().uid() == NOBODY {
        return eprintln!("skipped: the tests run as nobody themselves");
    }
    let program = copied_into(folder.path());
    let mut command = Command::new(&program);
    let own = std::process::id().to_string();
    let Ok(output) = command.args(["host", "maps", &own]).uid(NOBODY).gid(NOBODY).output() else {
        eprintln!("skipped: only root can give up its identity");
        return;
    };
    check(&output, 2, &["permission denied", "to its owner and to root"]);
    let output = Command::new(&program).args(["host", "maps"]).uid(NOBODY).gid(NOBODY).output();
    check(&output.unwrap(), 0, &["(nofrag)", "1 stack"]);
}

#[test]
fn help_has_examples_and_the_exit_status() {
    let expected = ["Examples:", "Exit status:", "--every", "--all", "--maps-only"];
    check(&maps(&["--help"]), 0, &expected);
}
