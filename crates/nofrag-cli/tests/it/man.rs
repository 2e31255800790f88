//! `nofrag man`: a page for each command that `man` itself can set.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{check, nofrag};

fn pages() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let output = nofrag(&["man", folder.path().to_str().unwrap()]);
    check(&output, 0, &["pages in"]);
    folder
}

/// Returns a page as it is shown; `None`, with the reason printed, where it cannot be set. Warnings fail the test.
fn set(page: &Path) -> Option<String> {
    let mut groff = Command::new("groff");
    groff.args(["-man", "-Tascii", "-ww", "-P-cbou", "-rLL=100n"]).arg(page).stdin(Stdio::null());
    let Ok(output) = groff.output() else {
        eprintln!("skipped: there is no groff");
        return None;
    };
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "{}: {err}", page.display());
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn pages_have_the_sections_of_a_manual() {
    let folder = pages();
    let page = fs::read_to_string(folder.path().join("nofrag-host-vmalloc.1")).unwrap();
    let sections: Vec<&str> = page.lines().filter(|line| line.starts_with(".SH")).collect();
    let expected = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "\"EXIT STATUS\"",
        "EXAMPLES",
        "\"SEE ALSO\"",
    ];
    assert_eq!(sections, expected.map(|name| format!(".SH {name}")));
    let names = |name: &str| folder.path().join(name).is_file();
    assert!(["nofrag.1", "nofrag-run.1", "nofrag-workload-thpfioscale.1"].into_iter().all(names));
}

/// Checks that examples and exit statuses, which a reader copies, stand in a page as in the help text.
#[test]
fn examples_and_statuses_stand_as_they_are_in_the_help() {
    let folder = pages();
    for command in [&["replay"][..], &["host", "maps"], &["compare"], &["man"]] {
        let page = folder.path().join(format!("nofrag-{}.1", command.join("-")));
        let Some(shown) = set(&page) else { return };
        let help = nofrag(&[command, &["--help"]].concat());
        let help = String::from_utf8(help.stdout).unwrap();
        let (_, sections) = help.split_once("\nExamples:\n").unwrap();
        // The help text breaks lines above a hundred columns, the page does not.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for section in sections.split("\n\nExit status:\n") {
            assert!(words(&shown).contains(&words(section)), "{section}\nis not in\n{shown}");
        }
    }
}

#[test]
fn every_page_can_be_set_without_a_warning() {
    let folder = pages();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let Some(shown) = set(&entry.unwrap().path()) else { return };
        assert!(shown.contains("SYNOPSIS"), "{shown}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    check(&nofrag(&["man", "/proc/no/such"]), 2, &["cannot make /proc/no/such"]);
    check(&nofrag(&["man"]), 2, &["<DIR>"]);
}
