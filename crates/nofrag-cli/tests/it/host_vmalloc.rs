//! `nofrag host vmalloc` on captured hosts, and its errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::json::check_documented;
use crate::support::{call_there, check, copied_into, nofrag};

fn captured_host() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/hosts/vm-6.18-x86_64")
}

fn on_root(root: &Path, more: &[&str]) -> Output {
    let root = root.to_str().unwrap();
    nofrag(&[&["host", "vmalloc", "--root", root], more].concat())
}

fn folder_with(vmallocinfo: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("proc")).unwrap();
    fs::write(folder.path().join("proc/vmallocinfo"), vmallocinfo).unwrap();
    folder
}

#[test]
fn for_people() {
    let output = on_root(&captured_host(), &["--all"]);
    let expected = [
        "1967 areas",
        "unpurged 1694 33.1 MiB 63.8 %",
        "51.7 % of the 64 MiB at which the kernel purges",
        "htab_map_alloc 10",
        "vmalloc: 0xffffc90000000000..0xffffe90000000000, 32 TiB",
        "bounds exact",
        "modules: 0xffffffffc0000000..0xffffffffff000000, 1008 MiB, or up to 512 MiB lower",
        "<32.0 TiB free>",
        "aligned to 2 MiB 1004 MiB 1004 MiB",
        "Largest request that would succeed now: 32.0 TiB (35184241156096 bytes); \
         after a full purge: 32.0 TiB (35184243384320 bytes)",
        "note lazy-dominates",
    ];
    check(&output, 0, &expected);
    assert!(output.stdout.is_ascii(), "a pipe gets plain ASCII");
    let text = String::from_utf8_lossy(&output.stdout);
    let too_long = text.lines().find(|line| line.len() > 80 && !line.contains("proc/vmallocinfo"));
    assert_eq!(too_long, None);
}

/// Checks the whole page, which the documentation shows. After a wanted change, in the repository's folder: `cargo run
/// -- host vmalloc --root data/hosts/vm-6.18-x86_64 > data/hosts/vm-6.18-x86_64/output.txt`
#[test]
fn the_page_is_as_documented() {
    let output =
        call_there(&["host", "vmalloc", "--root", "data/hosts/vm-6.18-x86_64"]).output().unwrap();
    let documented = fs::read_to_string(captured_host().join("output.txt")).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), documented);
}

fn sum(rows: &Value, field: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
}

fn address(text: &Value) -> u64 {
    u64::from_str_radix(text.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

#[test]
fn for_machines() {
    let output = on_root(&captured_host(), &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report = check_documented(&output);
    assert_eq!((&report["schema"], &report["version"]), (&"nofrag.host.vmalloc".into(), &1.into()));
    assert_eq!(report["addresses"]["state"], "real");
    let total = report["totals"]["bytes"].as_u64().unwrap();
    let live = report["totals"]["live_bytes"].as_u64().unwrap();
    assert_eq!(sum(&report["kinds"], "bytes"), total);
    assert_eq!(sum(&report["callers"], "bytes"), live);
    assert_eq!(live + report["lazy"]["bytes"].as_u64().unwrap(), total);
    let regions = report["regions"].as_array().unwrap();
    assert_eq!(sum(&report["regions"], "live_bytes"), live);
    for region in regions {
        let size = address(&region["end"]) - address(&region["start"]);
        let now = &region["now"];
        assert_eq!(sum(&now["classes"], "bytes"), now["free_bytes"].as_u64().unwrap());
        let taken = ["live_bytes", "lazy_bytes"].map(|name| region[name].as_u64().unwrap());
        assert_eq!(now["free_bytes"].as_u64().unwrap() + taken[0] + taken[1], size);
        let after = region["after_purge"]["free_bytes"].as_u64().unwrap();
        assert_eq!(after, size - taken[0]);
    }
}

#[test]
fn hashed_addresses_are_refused_with_a_reason() {
    let text = "0x00000000f80307aa-0x00000000b34c984c   20480 f+0xca/0x100 vmap\n\
                0x00000000c8b758ed-0x0000000028cf3306   20480 unpurged vm_area\n";
    let folder = folder_with(text);
    let expected = [
        "Holes are not shown: the addresses are hashed",
        "sysctl kernel.kptr_restrict=1",
        "set it back",
        "unpurged 1 20 KiB 50.0 %",
    ];
    let output = on_root(folder.path(), &[]);
    check(&output, 0, &expected);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("f80307aa"), "a hash was printed");
    let report = check_documented(&on_root(folder.path(), &["--json"]));
    assert_eq!(report["addresses"]["state"], "hashed");
    assert_eq!(report["regions"], Value::Array(Vec::new()));
}

#[test]
fn damage_is_a_warning() {
    let folder =
        folder_with("0xffffc90000000000-0xffffc90000005000 20480 f+0xca/0x100 vmap\ngarbage\n");
    check(&on_root(folder.path(), &[]), 1, &["warning file-damaged", "line 2: no address range"]);
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    check(
        &on_root(folder.path(), &[]),
        2,
        &["proc/vmallocinfo: no such file", "captured host needs"],
    );
    check(&nofrag(&["host", "vmalloc", "--root"]), 2, &["--root"]);
    check(&nofrag(&["host", "vmalloc", "--root", "x", "--unhash"]), 2, &["cannot be used with"]);
}

/// Checks that a command whose only source cannot be read fails with advice, since it has nothing to show; an overview
/// that contains it does not (`without_rights_it_names_what_is_missing`). Runs as nobody; when the tests themselves run
/// as root, by giving up that identity.
#[test]
fn without_privilege_it_says_what_and_why() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = copied_into(folder.path());
    let run = |command: &mut Command| command.args(["host", "vmalloc"]).output();
    const NOBODY: u32 = 65_534;
    let output = run(Command::new(&program).uid(NOBODY).gid(NOBODY))
        .or_else(|_| run(&mut Command::new(&program)))
        .unwrap();
    if !Path::new("/proc/vmallocinfo").exists() {
        check(&output, 2, &["/proc/vmallocinfo: no such file"]);
        return;
    }
    let expected = ["/proc/vmallocinfo: permission denied", "only root", "--root DIR"];
    check(&output, 2, &expected);
}

/// Checks `--unhash`, which changes a setting of this host for some milliseconds, so this test is run on request only.
#[test]
#[ignore = "needs root, and sets kernel.kptr_restrict for the time of one read"]
fn unhash_shows_the_holes_and_restores() {
    const SETTING: &str = "/proc/sys/kernel/kptr_restrict";
    let before = fs::read_to_string(SETTING).unwrap();
    let output = nofrag(&["host", "vmalloc", "--unhash", "--json"]);
    assert_eq!(fs::read_to_string(SETTING).unwrap(), before);
    let report = check_documented(&output);
    assert_eq!(report["addresses"]["state"], "real");
}

#[test]
fn help_has_examples_and_the_exit_status() {
    check(&nofrag(&["host", "vmalloc", "--help"]), 0, &["Examples:", "Exit status:", "--unhash"]);
}
