//! The command `nofrag run extfrag-2018`, on a machine of 1 GiB.

use std::process::Output;

use crate::json::check_documented;
use crate::support::{check, nofrag};

fn small(more: &[&str]) -> Output {
    let few = ["run", "extfrag-2018", "--memory", "1", "--threads", "2"];
    nofrag(&[&few[..], more].concat())
}

#[test]
fn tables_pictures_and_claims_fit_and_hold() {
    let designs = "linux-4.20,+patch4,+patch5,linux-6.12";
    let few = ["--mask", "s-default", "--design", designs, "--repeat", "1"];
    let output = small(&[&few[..], &["--check", "--all"]].concat());
    let parts = [
        "External fragmentation events: s-default, calibrated, 1 GiB",
        "97.7",
        "determinism: runs that differ when made again",
        "stall-bound/linux-4.20+patch5",
        "largest free block: █ a whole pageblock",
        "events before and after Linux 6.10 count different things",
        "few seeds: 1 a row at most",
    ];
    check(&output, 0, &parts);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains("BROKEN"), "{text}");
    // Published counts are not figures to compare with.
    assert!(!text.contains("804,694") && !text.contains("408,912"), "{text}");
}

#[test]
fn json_has_medians_and_every_seed() {
    let designs = ["--design", "linux-4.20", "--repeat", "2", "--seed", "7", "--json"];
    let output = small(&[&["--mask", "1"], &designs[..]].concat());
    let document = check_documented(&output);
    let report = &document["reports"][0];
    assert_eq!(report["settings"]["conditions"][0], "seeds 7 to 8");
    let rows = report["measurements"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["design"].as_str().unwrap()).collect();
    assert_eq!(names, ["linux-4.20"]);
    for row in rows {
        assert_eq!(row["program"], "s-default, calibrated, 1 GiB");
        assert_eq!(row["unit"], "events below order 9");
        assert_eq!(row["time"]["samples"].as_array().unwrap().len(), 2);
        let mistyped = &row["spreads"]["mistyped allocations"]["samples"];
        assert_eq!(mistyped.as_array().unwrap().len(), 2);
    }
}

#[test]
fn bad_use_names_what_there_is() {
    for (args, expected) in [
        (["--design", "linux-2.6"], "linux-4.20+patch1"),
        (["--mask", "4096"], "stall-curve (512)"),
        (["--mode", "soak"], "--mode must be compare"),
        (["--memory", "0"], "--memory must be between 1 and 64 GiB"),
        (["--thp-touch", "50"], "neither 37.5 nor 75"),
    ] {
        let output = nofrag(&[&["run", "extfrag-2018"], &args[..]].concat());
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(expected), "no {expected:?} in:\n{err}");
    }
}

#[test]
fn help_says_what_a_full_run_crosses() {
    let text = String::from_utf8(nofrag(&["run", "--help"]).stdout).unwrap();
    for part in ["--memory <GIB>", "--thp-touch <PERCENT>", "extfrag-2018 --full", "every design"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}
