//! `--report FILE.html` from outside. The lab tests the pages in a browser.

use std::fs;
use std::path::{Path, PathBuf};

use nofrag_host::{recording, trace};

use crate::support::{check, nofrag};

fn data(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(path).display().to_string()
}

/// The recording that comes with nofrag.
const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag"
);

/// Runs the command with a report; the report must have all of `expected`, and the command must print the same as
/// without it.
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
    let recording = RECORDING;
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
    let recording = RECORDING;
    let (start, end) = (format!("{recording}@start"), format!("{recording}@end"));
    check_report(&["compare", &start, &end], &["What changed, new over old", "figures got better"]);
    check_report(
        &["replay", "--policy", "nofrag", "--samples", "8", "--repeats", "1"],
        &[
            "Contiguity over time",
            "nofrag replay --policy nofrag --samples 8 --repeats 1 --report &#39;",
        ],
    );
}

/// Text that ends an attribute, an element and a script, and begins others.
const EVIL: &str = "\"'><img/src=x/onerror=alert(1)></td></script><script>alert(1)</script><!--";

/// Makes a copy of this folder in which `word` is [`EVIL`] everywhere.
fn poisoned(folder: &Path, word: &str, into: &Path) {
    fs::create_dir_all(into).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), into.join(entry.unwrap().file_name()));
        if from.is_dir() {
            poisoned(&from, word, &to);
        } else {
            fs::write(to, fs::read_to_string(from).unwrap().replace(word, EVIL)).unwrap();
        }
    }
}

/// Checks a report of `arguments`, in which the evil words must be, as text.
fn check_harmless(arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let output = nofrag(&[arguments, &["--report", file.to_str().unwrap()]].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let html = fs::read_to_string(&file).unwrap();
    let words = ["img/src=x/onerror", "b onclick=x"];
    assert!(words.iter().any(|it| html.contains(it)), "{arguments:?}: the words are not there");
    // Inside a chart's data `<` is written as an escape of JSON, elsewhere as a reference of HTML.
    for element in ["<img", "<b onclick"] {
        assert!(!html.contains(element), "{arguments:?}: an element of others");
    }
    assert!(!html.contains("<script>alert"), "{arguments:?}: a script of others");
    assert!(!html.contains("<!--"), "{arguments:?}: a comment of others");
}

/// Checks that names stay text in reports: a user who runs a program on a host chooses its name, those of its files and
/// its command line.
#[test]
fn names_of_a_host_do_not_become_markup() {
    let folder = tempfile::tempdir().unwrap();
    let host = |captured: &str, word: &str| {
        let to = folder.path().join(captured);
        poisoned(Path::new(&data(&format!("hosts/{captured}"))), word, &to);
        to.display().to_string()
    };
    // Its name, and all its files.
    check_harmless(&["host", "maps", "--root", &host("rustc-6.18-x86_64", "rustc")]);
    check_harmless(&["host", "vmalloc", "--root", &host("vm-6.18-x86_64", "6.18")]);
    let whole = data("hosts/whole-6.18-x86_64/proc/30576/status");
    let status = fs::read_to_string(whole).unwrap();
    let name = status.lines().find_map(|line| line.strip_prefix("Name:\t")).unwrap();
    check_harmless(&["host", "maps", "--all", "--root", &host("whole-6.18-x86_64", name)]);

    let mut trace = trace::open(Path::new(RECORDING)).unwrap();
    let meta = &mut trace.meta;
    meta.command = Some(EVIL.to_owned());
    meta.names.iter_mut().for_each(|(_, name)| EVIL.clone_into(name));
    meta.missing.push(EVIL.to_owned());
    meta.release = Some(EVIL.to_owned());
    for taken in &mut meta.snapshots {
        taken.files.insert("version", format!("Linux version {EVIL} (x)").into_bytes());
    }
    let file = folder.path().join("\"'><b onclick=x>.nofrag");
    recording::convert(trace, &file, recording::Existing::Keep, &mut |_| ()).unwrap();
    let file = file.to_str().unwrap();
    let (start, end) = (format!("{file}@start"), format!("{file}@end"));
    check_harmless(&["host", "--root", &end]);
    check_harmless(&["host", "pages", "--root", &end]);
    check_harmless(&["compare", &start, &end]);
    check_harmless(&["replay", file, "--policy", "nofrag", "--repeats", "1"]);
}

#[test]
fn a_run_has_a_report_with_a_command_for_each_scenario() {
    check_report(
        &[
            "run",
            "recording",
            "--mask",
            "as-recorded",
            "--design",
            "nofrag",
            "--repeat",
            "1",
            "--json",
        ],
        &[
            "Claims: ",
            "<code class=\"command\">nofrag run recording --mask as-recorded --design nofrag --repeat 1</code>",
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
