//! The command `nofrag run vmap-blocks-2023`, with few loops.

use std::process::Output;

use crate::json::check_documented;
use crate::support::nofrag;

fn small(more: &[&str]) -> Output {
    let few = ["run", "vmap-blocks-2023", "--loops", "400", "--repeat", "2", "--threads", "32"];
    nofrag(&[&few[..], more].concat())
}

#[test]
fn the_ranked_tables_stand_beside_the_published_one() {
    let output = small(&["--mask", "model_1p,threads_64p,1024", "--check", "--all"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let parts = ["vmap_blocks.xa_lock", "862,698", "con-bounces", "waits at map", "nofrag-handle"];
    for part in [&parts[..], &["ours-index", "exact: ok", "Piggin", "25,420"]].concat() {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(!text.contains("BROKEN"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn json_has_each_lock_with_its_callers() {
    let output = small(&["--mask", "model_1p", "--design", "global,linux-6.4", "--json"]);
    let document = check_documented(&output);
    let rows = document["reports"][0]["measurements"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["unit"], "simulated ns per pair");
        for count in ["block index: acquisitions", "area busy: wait max us", "pairs"] {
            assert!(row["counts"][count].as_f64().unwrap() > 0.0, "{count} of {row}");
        }
    }
}

#[test]
fn bad_use_names_what_there_is() {
    for (args, expected) in [
        (["--design", "linux-5.2"], "global, linux-6.4"),
        (["--mask", "2048"], "vm_map_ram (1024)"),
        (["--mode", "soak"], "--mode must be compare"),
    ] {
        let output = small(&args);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(expected), "no {expected:?} in:\n{err}");
    }
}
