//! `nofrag run`: its lists, output, files and saved results, and its ends.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::json::check_documented;
use crate::support::nofrag;

const SCENARIO: &str = "vmap-areas-2019";

/// Makes a run that ends at once: one program, few loops.
fn small(more: &[&str]) -> Output {
    let few = ["run", SCENARIO, "--mask", "long_busy_hole", "--loops", "20", "--repeat", "2"];
    nofrag(&[&few[..], more].concat())
}

fn check_refused(args: &[&str], expected: &str) {
    let output = nofrag(args);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains(expected), "no {expected:?} in:\n{err}");
    assert!(output.stdout.is_empty());
}

#[test]
fn without_a_name_scenarios_and_programs_are_listed() {
    let output = nofrag(&["run"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for part in [SCENARIO, "Rezki", "linux-4.19", "nofrag", "long_busy_hole", "65536"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_run_shows_bars_tables_and_figures_in_a_hundred_columns() {
    let output = small(&["--all"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["█", "long_busy_hole", "Steps per search", "3.25..3.96x", "Notes", "Claims"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(output.stderr.is_empty(), "no progress where there is no terminal");
}

/// Checks that for a name between two presets the preset that ran is named beside the name that was given, wherever a
/// name can be given.
#[test]
fn a_name_that_stands_for_another_is_printed_with_it() {
    let says = |output: Output, expected: &str| {
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}");
        let lines: Vec<&str> = text.split_whitespace().collect();
        assert!(lines.join(" ").contains(expected), "no {expected:?} in:\n{text}");
    };
    let ran = |asked, ran| format!("{asked} was asked for: {ran} is what ran");
    let areas = small(&["--design", "linux-5.2,linux-5.14"]);
    says(areas, &ran("linux-5.14", "linux-5.11"));
    says(small(&["--design", "linux-9.9"]), &ran("linux-9.9", "linux-6.11"));
    let holes = ["run", "mmap-holes-2005", "--mask", "five_regions", "--design", "linux-5.14"];
    says(nofrag(&holes), &ran("linux-5.14", "linux-3.8"));
    let pages = ["replay", "--policy", "linux-6.6", "--repeats", "1"];
    says(nofrag(&pages), &ran("linux-6.6", "linux-6.1"));
    let exact = small(&["--design", "linux-5.2"]);
    assert!(!String::from_utf8(exact.stdout).unwrap().contains("was asked for"));
}

#[test]
fn check_lists_the_claims_and_passes() {
    let output = small(&["--check", "--design", "linux-4.19,linux-5.2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["hole-walk-before", ">= 15000", "hole-walk-after", "same-seed"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(!text.contains("BROKEN"), "{text}");
}

#[test]
fn json_has_the_origin_the_measurements_and_the_oracles() {
    let output = small(&["--json", "--seed", "3", "--design", "linux-5.2"]);
    let document = check_documented(&output);
    let report = &document["reports"][0];
    assert_eq!(report["scenario"], SCENARIO);
    assert_eq!(report["settings"]["seed"], 3);
    assert!(document["origin"]["command"].as_str().unwrap().starts_with("nofrag run"));
    let row = &report["measurements"][0];
    assert_eq!((&row["program"], &row["design"]), (&"long_busy_hole".into(), &"linux-5.2".into()));
    assert_eq!(row["time"]["samples"].as_array().unwrap().len(), 2);
    for oracle in report["oracles"].as_array().unwrap() {
        for key in ["id", "claim", "measured", "relation", "holds"] {
            assert!(!oracle[key].is_null(), "{key} of {oracle}");
        }
    }
}

#[test]
fn save_writes_what_was_shown_and_what_is_behind_it() {
    let root = tempfile::tempdir().unwrap();
    let to = ["--all", "--save", root.path().to_str().unwrap()];
    let output = small(&[&["--design", "linux-5.2"], &to[..]].concat());
    assert_eq!(output.status.code(), Some(0));
    let folder = fs::read_dir(root.path().join(SCENARIO)).unwrap().next().unwrap().unwrap().path();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("summary.txt").as_bytes(), output.stdout);
    assert!(read("README.md").contains("nofrag run vmap-areas-2019"));
    for line in read("raw.jsonl").lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

#[test]
fn bad_use_names_what_there_is() {
    check_refused(
        &["run", "vmap"],
        "there are: all, mmap-holes-2005, vm-map-ram-2015, vmap-areas-2019, vmap-blocks-2023",
    );
    check_refused(&["run", SCENARIO, "--mask", "fix_size"], "fix_size_alloc (1)");
    check_refused(&["run", SCENARIO, "--design", "linux-2.4"], "linux-4.19, linux-5.2");
    check_refused(&["run", SCENARIO, "--mode", "fast"], "performance");
    check_refused(&["run", SCENARIO, "--loops", "0"], "--loops must be at least 1");
}

#[test]
fn all_leaves_out_scenarios_that_lack_the_mode() {
    let few = ["run", "all", "--mode", "smoke", "--design", "nofrag", "--loops", "5"];
    let output = nofrag(&[&few[..], &["--repeat", "1", "--mask", "fix_size_alloc"]].concat());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("left out: vm-map-ram-2015 has no mode smoke"), "{err}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(SCENARIO) && !text.contains("vmap-blocks-2023"), "{text}");
}

/// Runs all scenarios but the replays of files that are not there, away from the repository, with the one design that
/// all of them have.
#[test]
fn all_runs_every_scenario() {
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["run", "all", "--design", "nofrag", "--mask", "1", "--loops", "10"]);
    command.args(["--repeat", "1", "--memory", "1"]);
    let output = command.current_dir(root.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{err}");
    assert!(err.contains("left out: frames: no folder data/kernel-states"), "{err}");
    let shown = |name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(shown(SCENARIO) && shown("vm-map-ram-2015") && shown("extfrag-2018"), "{text}");
    let total = text.lines().find(|line| line.contains("that depend on the machine"));
    assert!(total.is_some_and(|line| line.contains("exact claims hold")), "{text}");
    assert!(text.lines().count() <= 40 && text.contains("nofrag run NAME"), "{text}");
}

/// Runs `vm-map-ram-2015`: few loops of Pen's first two workloads.
fn small_blocks(more: &[&str]) -> Output {
    let few = ["run", "vm-map-ram-2015", "--mask", "w1,w2", "--loops", "30", "--repeat", "2"];
    nofrag(&[&few[..], more].concat())
}

#[test]
fn the_scenario_of_blocks_shows_a_picture_and_the_profiler_s_tables() {
    let output = small_blocks(&["--all", "--design", "linux-3.19,linux-4.1,nofrag"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let parts = ["Blocks held while w1 runs", "░", "free_vmap_block", "Pen, before", "30,683"];
    for part in parts.iter().chain(&["nofrag by handle", "Notes", "Claims"]) {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn the_scenario_of_blocks_checks_his_counts_and_writes_json() {
    let output = nofrag(&["run", "vm-map-ram-2015", "--mask", "1", "--repeat", "1", "--check"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in ["w1-new/linux-3.19", "= 1000", "= 993", "= 992"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let output = small_blocks(&["--json", "--design", "linux-3.19,linux-4.4"]);
    let document = check_documented(&output);
    let report = &document["reports"][0];
    assert_eq!(report["settings"]["designs"], serde_json::json!(["linux-3.19", "linux-4.1"]));
    let row = &report["measurements"][0];
    assert_eq!(row["functions"]["vm_map_ram"]["hits"], 30 * 126);
    assert!(row["series"]["blocks held"].as_array().unwrap().len() > 10);
}

#[test]
fn help_documents_the_exit_status() {
    for help in [&["--help"][..], &["run", "--help"]] {
        let text = String::from_utf8(nofrag(help).stdout).unwrap();
        for part in ["Exit status", "0  done", "1  run --check", "2  bad use"] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
    }
}
