//! `nofrag host` without a subject, `host pages` and `host capture`: on captured hosts, without rights, and their ends.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use nofrag_host::recording::{RecordingWriter, WriterOptions};
use nofrag_host::trace;
use serde_json::Value;

use crate::support::{call_there, check, copied_into, nofrag, repository};

const WHOLE: &str = "data/hosts/whole-6.18-x86_64";
const RECORDED: &str = "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag@end";

fn there(args: &[&str]) -> Output {
    call_there(args).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Compares a page with its kept file. After a wanted change write it anew: the output of `args`, in the repository's
/// folder.
fn check_page(args: &[&str], kept: &str) {
    let output = there(args);
    let kept_text = fs::read_to_string(repository().join(kept)).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), kept_text, "{kept}");
    assert!(output.stdout.is_ascii(), "a pipe gets plain ASCII");
}

#[test]
fn the_pages_are_as_kept() {
    check_page(&["host", "--root", WHOLE], "data/hosts/whole-6.18-x86_64/output.txt");
    check_page(&["host", "--all", "--root", WHOLE], "data/hosts/whole-6.18-x86_64/all.txt");
    check_page(&["host", "--root", RECORDED, "--frames"], "data/hosts/guest-6.1-host.txt");
    check_page(&["host", "pages", "--root", RECORDED], "data/hosts/guest-6.1-pages.txt");
}

/// Checks that the brief report fits on one screen of a terminal, and `--all` has the rest.
#[test]
fn the_machine_fits_on_one_screen() {
    const LINES: usize = 40;
    const COLUMNS: usize = 80;
    for args in [&["host", "--root", WHOLE][..], &["host", "--root", RECORDED, "--frames"]] {
        let text = String::from_utf8(there(args).stdout).unwrap();
        assert!(text.lines().count() <= LINES, "{} lines:\n{text}", text.lines().count());
        let widest = text.lines().map(str::len).max();
        assert!(widest <= Some(COLUMNS), "{widest:?} columns:\n{text}");
    }
    let nodes = |text: &str| -> String {
        (0..16).map(|node| text.replace("Node 0", &format!("Node {node}"))).collect()
    };
    let folder =
        folder_with(&[("proc/zoneinfo", &nodes(ZONE)), ("proc/buddyinfo", &nodes(SINGLES))]);
    let text = String::from_utf8(on(&folder, &[]).stdout).unwrap();
    assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
}

#[test]
fn for_machines() {
    let machine = json(&there(&["host", "--root", WHOLE, "--json"]));
    assert_eq!((&machine["schema"], &machine["version"]), (&"nofrag.host".into(), &1.into()));
    let zones = machine["zones"].as_array().unwrap();
    assert_eq!(zones.len(), 3);
    for zone in zones {
        let orders = zone["orders"].as_array().unwrap();
        let number = |row: &Value, field: &str| row[field].as_u64().unwrap();
        let pages: u64 =
            orders.iter().map(|row| number(row, "blocks") << number(row, "order")).sum();
        assert_eq!(number(&orders[0], "available"), pages);
        assert_eq!(orders.len(), 11);
    }
    let check = &machine["index_check"];
    assert_eq!(check["compared"], 66);
    assert_eq!(check["equal"], 66, "the indices are those of this kernel's debugfs");
    assert_eq!(machine["requests"].as_array().unwrap().len(), 4);
    assert_eq!(machine["huge_pages"]["basis"], "pageblock-types");
    let pages = json(&there(&["host", "pages", "--root", RECORDED, "--json"]));
    assert_eq!(
        (&pages["schema"], &pages["frames"]),
        (&"nofrag.host.pages".into(), &196_608.into())
    );
}

/// Checks that the report, the live view and the metrics count the obtainable blocks by one formula.
#[test]
fn one_answer_to_how_many_huge_pages_can_be_had() {
    let host = json(&there(&["host", "--root", WHOLE, "--json"]));
    let top = json(&there(&["top", "--once", "--root", WHOLE, "--json"]));
    let export = json(&there(&["export", "--once", "--root", WHOLE, "--json"]));
    let families = export["families"].as_array().unwrap();
    let family = families.iter().find(|each| each["name"] == "nofrag_obtainable_blocks").unwrap();
    let samples = family["samples"].as_array().unwrap().iter();
    let of_order = samples.filter(|sample| sample["labels"]["order"] == "9");
    let sum: f64 = of_order.map(|sample| sample["value"].as_f64().unwrap()).sum();
    assert_eq!(host["huge_pages"]["now"], 1229);
    assert_eq!((&top["obtainable"], sum), (&host["huge_pages"]["now"], 1229.0));
}

/// Checks that a snapshot in a recording shows the guest: its zones, and the huge pages that its frames show.
#[test]
fn a_snapshot_of_a_recording_is_a_host() {
    let machine = json(&there(&["host", "--root", RECORDED, "--frames", "--json"]));
    assert_eq!(machine["host"]["release"], "6.1.0-53-cloud-amd64");
    assert_eq!(machine["huge_pages"]["basis"], "frames");
    let without = json(&there(&["host", "--root", RECORDED, "--json"]));
    assert_eq!(without["huge_pages"]["basis"], "pageblock-types");
    check(&there(&["host", "--root", "no-such-file@start"]), 2, &["no-such-file"]);
}

/// Checks that every command that takes a place says of a recording that was cut off which snapshot it has. Some said
/// no more than that the other one is not there.
#[test]
fn of_a_cut_recording_the_snapshot_that_is_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.nofrag");
    let whole = repository().join(RECORDED.strip_suffix("@end").unwrap());
    let mut meta = trace::open(&whole).unwrap().meta;
    meta.snapshots.truncate(1);
    // A recorder that is killed does not finish.
    drop(RecordingWriter::create(&cut, &meta, WriterOptions::default()).unwrap());
    let cut = cut.to_str().unwrap();
    let [start, end] = ["start", "end"].map(|end| format!("{cut}@{end}"));
    let said = format!(
        "{cut} has no snapshot at its end, as it was cut off, or its recorder killed, before that was taken: use \
         {start}"
    );
    for command in [
        "host --root PLACE",
        "host pages --root PLACE",
        "preflight --need hugepages=1 --root PLACE",
        "explain PLACE",
        "compare PLACE PLACE",
    ] {
        let of = |place: &str| -> Output {
            nofrag(&command.replace("PLACE", place).split(' ').collect::<Vec<_>>())
        };
        check(&of(&end), 2, &[&said]);
        assert!(of(&start).status.code() < Some(2), "{command} of the start");
    }
}

/// Makes a folder with the files of a small host.
fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn on(folder: &tempfile::TempDir, more: &[&str]) -> Output {
    nofrag(&[&["host", "--root", folder.path().to_str().unwrap()], more].concat())
}

const ZONE: &str = "Node 0, zone   Normal\n  pages free     1024\n        boost    0\n        min      8\n        \
                    low      10\n        high     12\n        spanned  262144\n        present  262144\n        \
                    managed  262144\n        protection: (0)\n  start_pfn:           0\n";
const SINGLES: &str = "Node 0, zone   Normal 1024 0 0 0 0 0 0 0 0 0 0\n";

#[test]
fn what_fails_is_a_warning_with_its_reason() {
    let folder = folder_with(&[("proc/zoneinfo", ZONE), ("proc/buddyinfo", SINGLES)]);
    let expected = [
        "order 1 unmovable: would need compaction: index 0.50",
        "without waiting: would fail",
        "warning small-blocks-wait",
        "warning no-huge-page",
        "Little memory is free: 0 of 512 huge pages of 2 MiB can be had now, at most 1 after",
        "So: most memory is held: what is freed gives more huge pages, compaction hardly any.",
        "The bounds are weak",
        "/proc/pagetypeinfo, ",
    ];
    check(&on(&folder, &[]), 1, &expected);
    let expected = [
        "order 10 movable: would need reclaim: Normal has 4 MiB to count on, and 32 KiB must stay",
        "0 of 512 obtainable now, at most 1 after compaction (a weak bound)",
        "proc/pagetypeinfo: no such file; it costs types of free blocks",
        "proc/uptime: no such file; it costs rates",
    ];
    check(&on(&folder, &["--all"]), 1, &expected);
}

/// "Memory is in use" alone sounded healthy, and did not say who holds it.
#[test]
fn where_little_is_free_it_is_said_who_holds_it_and_what_to_do() {
    for (state, follows, help) in [
        ("5.10-cache-full", "521 MiB are page cache, 52.0 MiB the kernel's slabs: ", "drop_caches"),
        ("5.10-low-memory", "338 MiB are memory of processes: ", "`ps -eo rss,pid,comm"),
    ] {
        let root = format!("data/states/{state}");
        let output = call_there(&["host", "--root", &root]).output().unwrap();
        check(&output, 0, &["Little memory is free: ", follows, help]);
    }
}

/// Checks that buddyinfo alone is a host that can be shown: a user often pastes no more.
#[test]
fn buddyinfo_alone_is_a_host() {
    let folder = folder_with(&[("proc/buddyinfo", SINGLES)]);
    for more in [&[][..], &["--all"]] {
        check(&on(&folder, more), 0, &["Normal", "1024", "unusable", "/proc/zoneinfo"]);
    }
    let machine = json(&on(&folder, &["--json"]));
    assert_eq!(machine["zones"][0]["marks"], Value::Null);
    assert_eq!(machine["zones"][0]["orders"][9]["fragmentation"], 998);
    let pages = nofrag(&["host", "pages", "--root", folder.path().to_str().unwrap(), "--json"]);
    assert_eq!(json(&pages)["zones"][0]["managed_pages"], Value::Null);
}

/// A folder with packed files of a snapshot was taken for a captured host, and refused as none; `explain` read it.
#[test]
fn a_snapshot_may_be_packed() {
    let folder = folder_with(&[]);
    let packed = zstd::encode_all(SINGLES.as_bytes(), 0).unwrap();
    fs::write(folder.path().join("buddyinfo.zst"), packed).unwrap();
    check(&on(&folder, &[]), 0, &["Normal", "1024", "unusable"]);
    let path = folder.path().to_str().unwrap();
    check(&nofrag(&["explain", path]), 0, &["requests would be served"]);
}

/// Checks that `host pages` ends with 1 where something needs attention, as its help says.
#[test]
fn pages_with_a_warning_end_with_1() {
    let folder =
        folder_with(&[("proc/zoneinfo", ZONE), ("proc/buddyinfo", "Node 0, zone Normal x\n")]);
    let pages = |more: &[&str]| {
        nofrag(&[&["host", "pages", "--root", folder.path().to_str().unwrap()], more].concat())
    };
    check(&pages(&[]), 1, &["warning file-damaged"]);
    fs::write(folder.path().join("proc/buddyinfo"), SINGLES).unwrap();
    // Every frame is the kernel's.
    fs::write(folder.path().join("proc/kpageflags"), vec![0; 8 << 18]).unwrap();
    check(&pages(&[]), 1, &["warning no-pageblock-can-be-whole"]);
    check(&pages(&["--no-frames"]), 0, &["is not known"]);
}

/// Checks that a damaged file is reported as damaged, and costs nothing else.
#[test]
fn damage_is_a_warning() {
    let folder =
        folder_with(&[("proc/zoneinfo", ZONE), ("proc/buddyinfo", "Node 0, zone Normal x\n")]);
    check(&on(&folder, &[]), 1, &["warning file-damaged", "buddyinfo: 1 line could not be read"]);
}

#[test]
fn what_is_no_host_is_an_error_that_says_what_is() {
    let folder = folder_with(&[("proc/meminfo", "MemTotal: 4 kB\n")]);
    check(&on(&folder, &[]), 2, &["no captured host", "nofrag host capture DIR"]);
    check(&nofrag(&["host", "--root", "no/such/folder"]), 2, &["no/such/folder: no such folder"]);
    check(&nofrag(&["host", "pages", "--root", "no/such/folder"]), 2, &["no such folder"]);
    check(&nofrag(&["host", "--frames", "maps"]), 2, &["cannot be used with"]);
    let recording = RECORDED.strip_suffix("@end").unwrap();
    check(&there(&["host", "--root", recording]), 2, &["name one, as", "nofrag@end"]);
    check(&nofrag(&["host", "nonsense"]), 2, &["nonsense"]);
}

/// Checks that a captured host gives the same report as the host; a folder that is not empty is left alone.
#[test]
fn a_capture_is_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("captured");
    let target = target.to_str().unwrap();
    let expected = [
        "Taken",
        "Left out",
        "who built the kernel",
        "zeros stand for",
        "Look at it: nofrag host --root",
    ];
    let output = nofrag(&["host", "capture", target]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("proc/vmallocinfo: ") && text.contains("Permission denied") {
        check(&output, 0, &expected[..3]);
    } else {
        check(&output, 0, &expected);
    }
    let machine = json(&nofrag(&["host", "--root", target, "--json"]));
    assert_eq!(machine["schema"], "nofrag.host");
    assert!(!machine["zones"].as_array().unwrap().is_empty());
    let readme = fs::read_to_string(Path::new(target).join("README.txt")).unwrap();
    assert!(readme.contains("Left out:"), "{readme}");
    check(&nofrag(&["host", "capture", target]), 2, &["it is not empty"]);
    let again = folder.path().join("again");
    let captured = json(&nofrag(&["host", "capture", again.to_str().unwrap(), "--json"]));
    assert_eq!(captured["schema"], "nofrag.host.capture");
    assert!(captured["left_out"].as_array().unwrap().len() >= 5);
}

/// Checks that root's rights are for reading alone: files are written as the user who called sudo, and only where that
/// user may write.
#[test]
fn under_sudo_a_capture_is_written_as_who_called_it() {
    const CALLER: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&shared, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    if fs::metadata(&shared).unwrap().uid() != 0 {
        return eprintln!("skipped: only root is called by sudo");
    }
    let capture = |target: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
        command.args(["host", "capture"]).arg(target);
        command.env("SUDO_UID", CALLER.to_string()).env("SUDO_GID", CALLER.to_string());
        command.output().unwrap()
    };
    let target = shared.join("hosts/web1");
    check(&capture(&target), 0, &["Taken"]);
    for path in [&target, &shared.join("hosts"), &target.join("proc/buddyinfo")] {
        let owner = fs::metadata(path).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (CALLER, CALLER), "{}", path.display());
    }
    // Straight, and past a link of the caller's own: root's folder.
    std::os::unix::fs::symlink(folder.path(), shared.join("link")).unwrap();
    for target in [folder.path().join("host"), shared.join("link/host")] {
        check(&capture(&target), 2, &["nothing was captured"]);
        assert!(!target.exists());
    }
}

/// Checks that a capture that fails leaves nothing that another try would stumble over.
#[test]
fn a_capture_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("host");
    // Files of more than four blocks cannot be written.
    let script = format!(
        "trap '' XFSZ; ulimit -f 4; exec '{}' host capture '{}'",
        env!("CARGO_BIN_EXE_nofrag"),
        target.display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    check(&output, 2, &["nothing was captured", "name a folder that can be made"]);
    assert!(!target.exists());
}

/// Checks that without rights the command ends well and names each source that it may not read
/// (docs/sources/trace.md#oracle-13).
#[test]
fn without_rights_it_names_what_is_missing() {
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = copied_into(folder.path());
    let run = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.env_remove("COLUMNS").args(args).uid(NOBODY).gid(NOBODY).output()
    };
    let Ok(output) = run(&["host", "--json"]) else {
        return eprintln!("skipped: only root can give up its identity");
    };
    let status = output.status.code();
    assert!(status == Some(0) || status == Some(1), "{output:?}");
    let machine = json(&output);
    assert!(!machine["zones"].as_array().unwrap().is_empty());
    let missing = machine["missing"].as_array().unwrap();
    let names = |path: &str| missing.iter().any(|each| each["path"] == path && each["costs"] != "");
    for path in ["/proc/pagetypeinfo", "/proc/vmallocinfo"] {
        assert!(names(path) || !Path::new(path).exists(), "{path}: {missing:?}");
    }
    assert_eq!(machine["huge_pages"]["basis"], "free-pages");
    let screen = run(&["host"]).unwrap();
    let text = String::from_utf8_lossy(&screen.stdout).into_owned();
    for path in ["/proc/pagetypeinfo", "/proc/vmallocinfo"] {
        assert!(text.contains(path) || !names(path), "{path}:\n{text}");
    }
    let pages = run(&["host", "pages"]).unwrap();
    let text = String::from_utf8_lossy(&pages.stdout).into_owned();
    assert!(pages.status.code().is_some_and(|status| status <= 1), "{text}");
    assert!(text.contains("what each frame is used for is not known"), "{text}");
    assert!(text.contains("/proc/kpageflags (permission denied"), "{text}");
}

#[test]
fn help_has_examples_and_the_exit_status() {
    for subject in
        [&["host", "--help"][..], &["host", "pages", "--help"], &["host", "capture", "--help"]]
    {
        check(&nofrag(subject), 0, &["Examples:", "Exit status:", "--json"]);
    }
}
