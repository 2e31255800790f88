//! The command `nofrag compare`: its text, its exit status and its refusals.

use std::fs;
use std::path::Path;

use crate::json::check_documented;
use crate::support::{check, nofrag};

fn shipped() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag").display().to_string()
}

/// Makes a folder with one file, the free blocks of a zone.
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
    for part in ["Two snapshots", "DMA32", "pages by use", "pgsteal_file", "3 worse and 9 better"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    assert!(!text.contains("different machines"), "{text}");
    // One side against itself has no differences.
    check(&nofrag(&["compare", &start, &start]), 0, &["0 worse and 0 better, "]);
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

#[test]
fn repeats_of_one_setting_are_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let side = |name: &str, whole: u32| {
        snapshot(folder.path(), name, &format!("{} 0 0 0 0 0 0 0 0 {whole} 0", 512 * (10 - whole)))
    };
    let [a, b, c, d] =
        [("a", 9), ("b", 7), ("c", 8), ("d", 6)].map(|(name, whole)| side(name, whole));
    let output = nofrag(&["compare", &format!("{a},{b}"), "--", &format!("{c},{d}")]);
    check(&output, 0, &["2 snapshots against 2", "2 without a difference", "0 worse and 0 better"]);
    let output = nofrag(&["compare", &format!("{a},{c}"), &format!("{b},{d}"), "--json"]);
    let value = check_documented(&output);
    assert_eq!((output.status.code(), &value["runs"]), (Some(1), &serde_json::json!([2, 2])));
    let lists = format!("{a},,{b}");
    check(&nofrag(&["compare", &lists, &c]), 2, &["a name before and behind each comma"]);
}

/// Makes a recording as text, of which `failed` requests are not served.
fn recording(folder: &Path, name: &str, failed: usize) -> String {
    let line = |number: usize| {
        let place = if number < failed { "page=(null) pfn=0x0" } else { "page=0x1000 pfn=0x1000" };
        format!(
            " worker-1 [000] 10.{number:06}: mm_page_alloc: {place} order=3 migratetype=0 gfp_flags=GFP_KERNEL\n"
        )
    };
    let path = folder.join(name);
    fs::write(&path, (0..100).map(line).collect::<String>()).unwrap();
    path.display().to_string()
}

/// Checks that two runs of one setting get no verdict (`two_runs_of_one_setting`): 14 figures were called better and 4
/// worse.
#[test]
fn one_recording_beside_another_has_no_verdict_without_a_tolerance() {
    let folder = tempfile::tempdir().unwrap();
    let runs = [("few", 1), ("more", 5), ("most", 30)];
    let [few, more, most] = runs.map(|(name, failed)| recording(folder.path(), name, failed));
    let one = nofrag(&["compare", &few, &more]);
    check(&one, 0, &["one run each", "0 worse and 0 better", "give repeats"]);
    check(&nofrag(&["compare", &few, &more, "--tolerance", "0"]), 1, &["WORSE"]);
    let repeated = nofrag(&["compare", &format!("{few},{more}"), &most]);
    check(&repeated, 1, &["2 recordings against 1", "chance alone calls 1 figure in 1.50"]);
}
