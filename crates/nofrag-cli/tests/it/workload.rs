//! The command `nofrag workload thpfioscale`, with small files and little memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::json::check_documented;
use crate::support::{check, nofrag};

/// Runs the workload on 64 MiB below `dir`; `None` where files there are kept in memory.
fn small(dir: &Path, more: &[&str]) -> Option<Output> {
    let dir = dir.to_str().unwrap();
    let few = ["workload", "thpfioscale", "--dir", dir, "--memory-mib", "64", "--seconds", "20"];
    let output = nofrag(&[&few[..], more].concat());
    if String::from_utf8_lossy(&output.stderr).contains("kept in memory") {
        eprintln!("skipped: {dir} is kept in memory");
        return None;
    }
    Some(output)
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().count() == 0
}

#[test]
fn tables_have_the_documents_terms_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = small(dir.path(), &["--thp-threads", "2"]) else { return };
    let parts = [
        "this run will",
        "Write 1536 files of 64 KiB",
        "fault-base-2",
        "fault-huge-2",
        "percentage huge",
        "thp_fault_alloc",
        "warm up",
    ];
    check(&output, 0, &parts);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(is_empty(dir.path()));
}

#[test]
fn json_has_counts_and_percentiles() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("made/by it");
    fs::create_dir(dir.path().join("made")).unwrap();
    let Some(output) = small(&missing, &["--json", "--huge", "never"]) else { return };
    let outcome = check_documented(&output);
    assert_eq!(outcome["schema"], "nofrag.workload.thpfioscale");
    assert_eq!(
        (&outcome["ended"], &outcome["written"]["files"]),
        (&"complete".into(), &1536.into())
    );
    assert_eq!(outcome["units"]["huge"], 0);
    assert_eq!(outcome["fault_huge"], Value::Null);
    assert_eq!(outcome["fault_base"]["samples"], outcome["units"]["base"]);
    assert!(outcome["fault_base"]["p99"].as_u64() >= outcome["fault_base"]["p50"].as_u64());
    assert!(is_empty(&dir.path().join("made")));
}

#[test]
fn a_dry_run_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = small(dir.path(), &["--dry-run"]) else { return };
    check(&output, 0, &["Remove the folder, also on Ctrl-C"]);
    let modified = fs::metadata(dir.path()).unwrap().modified().unwrap();
    let Some(output) = small(dir.path(), &["--dry-run", "--json"]) else { return };
    let plan = check_documented(&output);
    assert_eq!(plan["schema"], "nofrag.workload.thpfioscale-plan");
    assert_eq!(plan["files_per_thread"], 384);
    assert_eq!(fs::metadata(dir.path()).unwrap().modified().unwrap(), modified);
}

#[test]
fn ctrl_c_removes_the_files() {
    let dir = tempfile::tempdir().unwrap();
    if small(dir.path(), &["--dry-run"]).is_none() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["workload", "thpfioscale", "--memory-mib", "1024", "--json", "--dir"]);
    let child = command.arg(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while is_empty(dir.path()) && began.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let outcome = check_documented(&output);
    assert_eq!(outcome["ended"], "interrupted");
    assert!(is_empty(dir.path()));
}

/// Checks that a run removes the files that a killed one left: it once only reported them.
#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    if small(dir.path(), &["--dry-run"]).is_none() {
        return;
    }
    let below = dir.path().join("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["workload", "thpfioscale", "--memory-mib", "1024", "--json", "--dir"]);
    let mut child = command.arg(&below).stdout(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    let has_files = || {
        let folders = fs::read_dir(&below).into_iter().flatten().flatten();
        folders.map(|folder| folder.path()).any(|folder| !is_empty(&folder))
    };
    while !has_files() && began.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(has_files(), "that it left them is what this is about");
    let planned = small(&below, &["--dry-run"]).unwrap();
    check(&planned, 0, &["left behind by a run that was killed: it is removed first"]);
    assert!(has_files(), "a dry run removes nothing");
    let output = small(&below, &["--json", "--huge", "never"]).unwrap();
    check(&output, 0, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Removed ") && said.contains("killed"), "{said}");
    assert!(is_empty(dir.path()), "also the folder that the killed run had made");
}

#[test]
fn refusals_name_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    if small(dir.path(), &["--dry-run"]).is_none() {
        return;
    }
    for (more, expected) in [
        (["--memory-mib", "1000000000"], "--disk-percent"),
        (["--files-percent", "0"], "--memory-mib"),
        (["--threads", "0"], "not a number from 1 to 1024"),
        (["--disk-percent", "100"], "--disk-percent"),
        (["--seconds", "0"], "1..=86400"),
        (["--seconds", "18446744073709551615"], "1..=86400"),
    ] {
        let path = dir.path().to_str().unwrap();
        let output = nofrag(&[&["workload", "thpfioscale", "--dir", path][..], &more].concat());
        check(&output, 2, &[expected]);
    }
    check(&nofrag(&["workload", "thpfioscale", "--dir", "/proc/no/such"]), 2, &["/proc/no/such"]);
    check(&nofrag(&["workload", "thpfioscale"]), 2, &["--dir"]);
    assert!(is_empty(dir.path()));
}

#[test]
fn files_in_memory_are_refused() {
    if !Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: there is no /dev/shm");
        return;
    }
    let output = nofrag(&["workload", "thpfioscale", "--dir", "/dev/shm", "--memory-mib", "64"]);
    check(&output, 2, &["kept in memory"]);
}
