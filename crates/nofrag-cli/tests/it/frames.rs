//! `nofrag run frames`: its tables, files and refusals.

use std::fs;
use std::process::Command;

use crate::json::check_documented;
use crate::support::{check, nofrag};

const MASK: [&str; 4] = ["run", "frames", "--mask", "linux-6.1-kswapd"];

#[test]
fn a_stretch_shows_tables_and_claims() {
    let output = nofrag(&[&MASK[..], &["--check", "--all"]].concat());
    let parts = ["request by request", "6.1-kswapd", "4,977", "linux-6.1-kswapd/frames", "= 0"];
    check(&output, 0, &parts);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn other_rules_are_named_and_shown_to_differ() {
    let output = nofrag(&[&MASK[..], &["--all", "--design", "linux-6.12"]].concat());
    let parts = ["6.1-kswapd, linux-6.12", "linux-6.1 follows linux-6.12", "the first difference"];
    check(&output, 0, &parts);
}

#[test]
fn json_has_every_score() {
    let output = nofrag(&[&MASK[..], &["--json", "--design", "linux-6.12"]].concat());
    let document = check_documented(&output);
    let stretch = &document["reports"][0]["frames"]["stretches"][0];
    assert_eq!((&stretch["stretch"], &stretch["requests"]), (&MASK[3].into(), &4977.into()));
    assert_eq!(stretch["differences"][0]["events"].as_array().unwrap().len(), 8);
    assert!(!stretch["end_differences"].as_array().unwrap().is_empty());
}

#[test]
fn the_page_and_the_folder_hold_the_stretches() {
    let root = tempfile::tempdir().unwrap();
    let page = root.path().join("frames.html");
    let to = ["--report", page.to_str().unwrap(), "--save", root.path().to_str().unwrap()];
    check(&nofrag(&[&MASK[..], &to].concat()), 0, &[]);
    assert!(fs::read_to_string(&page).unwrap().contains("request by request"));
    let folder = fs::read_dir(root.path().join("frames")).unwrap().next().unwrap().unwrap().path();
    let raw = fs::read_to_string(folder.join("raw.jsonl")).unwrap();
    let is_stretch = |line: &&str| line.starts_with("{\"kind\":\"frames\"");
    assert_eq!(raw.lines().filter(is_stretch).count(), 1, "{raw}");
}

#[test]
fn what_cannot_be_followed_is_refused_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let states = root.path().to_str().unwrap();
    check(&nofrag(&["run", "frames", "--states", states]), 2, &["holds no stretch", "linux-X.Y-"]);
    fs::create_dir(root.path().join("six")).unwrap();
    fs::write(root.path().join("six/events.txt"), "").unwrap();
    check(&nofrag(&["run", "frames", "--states", states]), 2, &["linux-X.Y-", "--design"]);
    check(&nofrag(&["run", "frames", "--mask", "none"]), 2, &["linux-6.1-kswapd (4)"]);
    check(&nofrag(&["run", "frames", "--mode", "soak"]), 2, &["--mode must be compare"]);
}

#[test]
fn away_from_the_repository_it_says_what_it_looked_for() {
    let root = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
        command.args(args).current_dir(root.path()).output().unwrap()
    };
    check(&run(&["run", "frames"]), 2, &["no folder data/kernel-states", "--states"]);
    // The list of programs does without the folder, and so does `all`, as `run::all_runs_every_scenario` sees.
    check(&run(&["run"]), 0, &["frames:"]);
}
