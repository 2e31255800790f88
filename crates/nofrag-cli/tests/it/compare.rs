//! `nofrag compare` from outside.

use std::fs;
use std::path::Path;

use crate::json::check_documented;
use crate::support::{check, nofrag};

fn shipped() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag").display().to_string()
}

/// A folder with one file, the free blocks of a zone.
fn snapshot(folder: &Path, name: &str, blocks: &str) -> String {
    let folder = folder.join(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("buddyinfo"), format!("Node 0, zone   Normal {blocks}\n")).unwrap();
    folder.display().to_string()
}

#[test]
fn a_recording_s_own_snapshots_are_compared() {
    let (start, end) = (format!("{}@start", shipped()), format!("{}@end", shipped()));
    let output = nofrag(&["compare", &start, &end]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["Two snapshots", "DMA32", "pages by use", "pgmigrate_success"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(!text.contains("different machines"), "{text}");
    // One side against itself has nothing to tell.
    check(
        &nofrag(&["compare", &start, &start]),
        0,
        &["0 better and 0 worse", "equal and not shown"],
    );
}

#[test]
fn the_exit_status_is_for_ci() {
    let folder = tempfile::tempdir().unwrap();
    let whole = snapshot(folder.path(), "whole", "0 0 0 0 0 0 0 0 0 10 0");
    let pieces = snapshot(folder.path(), "pieces", "512 0 0 0 0 0 0 0 0 9 0");
    check(&nofrag(&["compare", &whole, &pieces]), 1, &["unusable index at order 9", "WORSE"]);
    check(&nofrag(&["compare", &pieces, &whole]), 0, &["0 worse"]);
    let json = nofrag(&["compare", &whole, &pieces, "--json"]);
    let value = check_documented(&json);
    assert_eq!((json.status.code(), &value["kind"]), (Some(1), &serde_json::json!("snapshot")));
    assert_eq!(value["machines"], "different", "nothing shows that they come from one machine");
}

#[test]
fn unlike_sides_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let side = snapshot(folder.path(), "side", "1 0 0 0 0 0 0 0 0 10 0");
    check(
        &nofrag(&["compare", &side, &shipped()]),
        2,
        &["is a snapshot, and", "is a recording", "FILE@start"],
    );
    let json = folder.path().join("other.json");
    fs::write(&json, "{\"runs\": 3}").unwrap();
    let json = json.display().to_string();
    check(&nofrag(&["compare", &json, &json]), 2, &["this is JSON, but no replay"]);
    check(&nofrag(&["compare", &side, "no-such-file"]), 2, &["no-such-file"]);
    check(
        &nofrag(&["compare", &side, &side, "--tolerance", "-1"]),
        2,
        &["a tolerance is a percentage"],
    );
}
