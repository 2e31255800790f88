//! `nofrag host` without a subject, `host pages` and `host capture`: on captured hosts, without rights, and their ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{check, nofrag};

const WHOLE: &str = "data/hosts/whole-6.18-x86_64";
const RECORDED: &str = "data/recordings/linux-6.1-guest-768m.nofrag@end";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command in the repository's folder, so that paths are those of the documents.
fn there(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(args).current_dir(repository()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A page as it is kept. After a wanted change write it anew: what `args` print, in the repository's folder.
fn check_page(args: &[&str], kept: &str) {
    let output = there(args);
    let kept_text = fs::read_to_string(repository().join(kept)).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), kept_text, "{kept}");
    assert!(output.stdout.is_ascii(), "a pipe gets plain ASCII");
}

#[test]
fn the_pages_are_as_kept() {
    check_page(&["host", "--root", WHOLE], "data/hosts/whole-6.18-x86_64/output.txt");
    check_page(&["host", "--root", RECORDED, "--frames"], "data/hosts/guest-6.1-host.txt");
    check_page(&["host", "pages", "--root", RECORDED], "data/hosts/guest-6.1-pages.txt");
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

/// A snapshot in a recording shows the guest: its zones, and what its frames say of huge pages.
#[test]
fn a_snapshot_of_a_recording_is_a_host() {
    let machine = json(&there(&["host", "--root", RECORDED, "--frames", "--json"]));
    assert_eq!(machine["host"]["release"], "6.1.0-53-cloud-amd64");
    assert_eq!(machine["huge_pages"]["basis"], "frames");
    let without = json(&there(&["host", "--root", RECORDED, "--json"]));
    assert_eq!(without["huge_pages"]["basis"], "pageblock-types");
    check(&there(&["host", "--root", "no-such-file@start"]), 2, &["no-such-file"]);
}

/// The files of a small host in a folder.
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
        "order 9 movable: would need compaction: index 1.00",
        "without waiting: would fail",
        "warning small-blocks-wait",
        "warning no-huge-page",
        "0 of 512 obtainable now, at most 1 after compaction (a weak bound)",
        "proc/pagetypeinfo: no such file; it costs types of free blocks",
    ];
    check(&on(&folder, &[]), 1, &expected);
}

/// A damaged file is said to be damaged, and costs nothing else.
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
    check(&nofrag(&["host", "nonsense"]), 2, &["nonsense"]);
}

/// What was captured says what the host said; a folder that is not empty is left alone.
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

/// Oracle 13: without rights it ends well and names each source that it may not read.
#[test]
fn o_13_without_rights_it_names_what_is_missing() {
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("nofrag");
    fs::copy(env!("CARGO_BIN_EXE_nofrag"), &program).unwrap();
    let run = |args: &[&str]| Command::new(&program).args(args).uid(NOBODY).gid(NOBODY).output();
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
    let pages = run(&["host", "pages"]).unwrap();
    let text = String::from_utf8_lossy(&pages.stdout).into_owned();
    assert!(pages.status.code().is_some_and(|status| status <= 1), "{text}");
    assert!(text.contains("what each frame is used for is not known"), "{text}");
    assert!(text.contains("/proc/kpageflags: permission denied"), "{text}");
}

#[test]
fn help_has_examples_and_the_exit_status() {
    for subject in
        [&["host", "--help"][..], &["host", "pages", "--help"], &["host", "capture", "--help"]]
    {
        check(&nofrag(subject), 0, &["Examples:", "Exit status:", "--json"]);
    }
}
