//! `nofrag run real-memory` and `nofrag run extfrag-2018 --real`, small.

use std::fs;
use std::process::Output;

use crate::json::check_documented;
use crate::support::{check, nofrag};

fn small(mask: &str, more: &[&str]) -> Output {
    let few = ["run", "real-memory", "--mask", mask, "--loops", "200", "--repeat", "2"];
    nofrag(&[&few[..], more].concat())
}

#[test]
fn tables_show_each_way_beside_what_was_first_measured() {
    let output = small("touch-first,touch-first-2,touch-all", &["--check", "--all"]);
    let parts = [
        "What each way to hand out runs costs",
        "map-each",
        "nofrag-decay",
        "calls/touch-first/nofrag",
        "target/parked-first",
        "few runs: 2 per row",
    ];
    check(&output, 0, &parts);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains("BROKEN"), "{text}");
}

#[test]
fn json_has_every_round_and_the_targets() {
    let output = small("touch-first,areas", &["--json", "--design", "map-each,nofrag"]);
    let document = check_documented(&output);
    let report = &document["reports"][0];
    let rows = report["measurements"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["time"]["samples"].as_array().unwrap().len() == 2));
    let oracles = report["oracles"].as_array().unwrap();
    let ids: Vec<_> = oracles.iter().map(|oracle| oracle["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"target/areas-per-block") && ids.contains(&"target/parked-first"));
}

#[test]
fn bad_use_names_what_there_is() {
    for (args, expected) in [
        (&["real-memory", "--design", "malloc"][..], "map-each, map-own"),
        (&["real-memory", "--mask", "touch"], "touch-first (1)"),
        (&["real-memory", "--mode", "smoke"], "--mode must be compare or soak"),
        (&["real-memory", "--mode", "soak", "--minutes", "0"], "--minutes must be between 1"),
        (&["mmap-live", "--real"], "only extfrag-2018"),
        (&["extfrag-2018", "--real", "--mask", "h-default"], "s-default (1)"),
        (&["extfrag-2018", "--real", "--memory", "4,8"], "--memory must be one size"),
    ] {
        let output = nofrag(&[&["run"], args].concat());
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(expected), "no {expected:?} in:\n{err}");
    }
}

#[test]
#[ignore = "a GiB is written and read"]
fn all_leaves_out_what_has_no_real_memory() {
    let few = ["run", "all", "--real", "--mask", "s-madv", "--design", "nofrag", "--repeat", "1"];
    let root = tempfile::tempdir().unwrap();
    let output = nofrag(&[&few[..], &["--all", "--save", root.path().to_str().unwrap()]].concat());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("left out: real-memory has no --real"), "{err}");
    let parts =
        ["Fault latency on real memory: s-madv, calibrated, 1 GiB", "huge/base", "verified"];
    check(&output, 0, &parts);
    let folder =
        fs::read_dir(root.path().join("extfrag-2018")).unwrap().next().unwrap().unwrap().path();
    let raw = fs::read_to_string(folder.join("raw.jsonl")).unwrap();
    assert!(raw.contains("real/contents") && raw.contains("huge p99.9 us"), "{raw}");
}

#[test]
fn help_says_how_to_soak_and_what_real_means() {
    let text = String::from_utf8(nofrag(&["run", "--help"]).stdout).unwrap();
    for part in ["--real", "--minutes <N>", "--mode soak --minutes 60", "extfrag-2018 --real"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}
