//! `--report FILE.html` from outside. What a browser makes of the pages is tested in the lab.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{check, nofrag};

fn data(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(path).display().to_string()
}

/// Runs the command with a report; the report must have all of `expected`, and the command printed what it always does.
fn check_report(arguments: &[&str], expected: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("it's a report.html");
    let name = file.display().to_string();
    let output = nofrag(&[arguments, &["--report", &name]].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    assert!(!output.stdout.is_empty(), "the report comes on top of the text");
    assert!(String::from_utf8_lossy(&output.stderr).contains("report: "), "{output:?}");
    let html = fs::read_to_string(&file).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.len() < 1_000_000, "{} bytes", html.len());
    for part in expected {
        assert!(html.contains(part), "no {part:?} in the report of {arguments:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn every_kind_of_host_has_a_report() {
    let captured = data("hosts/vm-6.18-x86_64");
    check_report(&["host", "vmalloc", "--root", &captured], &["Hole map of vmalloc", "TiB free"]);
    let process = data("hosts/rustc-6.18-x86_64");
    check_report(
        &["host", "maps", "--root", &process],
        &["Hole map", "What keeps neighbours apart"],
    );
    let recording = data("recordings/linux-6.1-guest-768m.nofrag");
    let snapshot = format!("{recording}@end");
    check_report(
        &["host", "--root", &snapshot],
        &["What would succeed now", "GFP_ATOMIC", "blocks by order", "order 9"],
    );
    check_report(
        &["host", "pages", "--root", &snapshot],
        &["DMA32: where something stays", "what frames are used for", "all, as found"],
    );
    let whole = data("hosts/whole-6.18-x86_64");
    check_report(
        &["host", "maps", "--all", "--root", &whole],
        &["No process is near the limit", "of the limit", "30576"],
    );
}

#[test]
fn comparisons_and_replays_have_a_report() {
    let recording = data("recordings/linux-6.1-guest-768m.nofrag");
    let (start, end) = (format!("{recording}@start"), format!("{recording}@end"));
    check_report(&["compare", &start, &end], &["What changed, new over old", "figures got better"]);
    check_report(
        &["replay", "--policy", "nofrag", "--samples", "8"],
        &["Contiguity over time", "nofrag replay --policy nofrag --samples 8 --report &#39;"],
    );
}

#[test]
fn a_run_has_a_report_with_a_command_for_each_scenario() {
    check_report(
        &["run", "recording", "--mask", "as-recorded", "--design", "nofrag", "--json"],
        &[
            "Claims: ",
            "<code class=\"command\">nofrag run recording --mask as-recorded --design nofrag</code>",
        ],
    );
}

#[test]
fn a_place_where_no_report_can_be_is_refused_before_any_work() {
    let output = nofrag(&["run", "all", "--report", "no/such/folder/all.html"]);
    check(&output, 2, &["there is no folder no/such/folder", "create it first"]);
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().display().to_string();
    check(&nofrag(&["replay", "--report", &name]), 2, &["is a folder", "name a file in it"]);
}
