//! The command `nofrag run mmap-holes-2005`, with few loops.

use std::process::Output;

use crate::json::check_documented;
use crate::support::nofrag;

fn small(more: &[&str]) -> Output {
    let few = ["run", "mmap-holes-2005", "--loops", "3000", "--repeat", "2"];
    nofrag(&[&few[..], more].concat())
}

#[test]
fn pictures_tables_and_claims_fit_and_hold() {
    let output = small(&["--mask", "leakme,leakme4,five_regions,test_str02", "--check", "--all"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let parts = ["The address space while leakme runs", "0x55555000", "old 3", "after 50,000+"];
    for part in [&parts[..], &["over 30.0 s", "leakme4-map/linux-2.5.44", "exact: ok"]].concat() {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(!text.contains("BROKEN"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn json_has_the_areas_and_the_counts() {
    let output = small(&["--mask", "leakme4", "--design", "linux-2.6.11,nofrag", "--json"]);
    let document = check_documented(&output);
    let rows = document["reports"][0]["measurements"].as_array().unwrap();
    let designs: Vec<_> = rows.iter().map(|row| row["design"].as_str().unwrap()).collect();
    assert_eq!(designs, ["linux-2.5.44", "linux-2.5.44, down", "nofrag"]);
    assert_eq!(rows[0]["series"]["area starts"].as_array().unwrap().len(), 17);
    assert_eq!(rows[0]["counts"]["areas counted"], 17.0);
}

#[test]
fn bad_use_names_what_there_is() {
    for (args, expected) in [
        (["--design", "linux-2.2"], "linux-2.4, linux-2.5.44"),
        (["--mask", "32768"], "survival (16384)"),
        (["--mode", "soak"], "--mode must be compare"),
    ] {
        let output = small(&args);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(expected), "no {expected:?} in:\n{err}");
    }
}
