//! `nofrag explain`: its answers to every report in `data/reports`, and its ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{check, nofrag};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_report_says_its_cause() {
    let expected: &[(&str, &[&str])] = &[
        (
            "order-4-kernel.txt",
            &[
                "memory was there, but in pieces: 370 MiB were free",
                "order 3 (32 KiB) or less would have been served, by Normal",
                "50.9 MiB are kept from requests that could use a higher zone",
                "(from their rules; nothing was run)",
            ],
        ),
        ("order-7-noretry.txt", &["in pieces", "gives up after one round"]),
        (
            "order-5-linux-3.18.txt",
            &["in pieces", "not for this request: it can use Normal and below"],
        ),
        ("order-0-atomic-burst.txt", &["memory was short, not fragmented", "3 times, on lines 1,"]),
        ("boosted-atomic.txt", &["the watermarks were raised by 70 MiB"]),
        ("highatomic-reserve.txt", &["only in HighAtomic pageblocks"]),
        ("cma.txt", &["only in CMA pageblocks", "a smaller CMA area"]),
        ("defrag-mode-atomic.txt", &["all of type Movable", "defrag mode before 7.2: fails"]),
        ("out-of-memory.txt", &["memory was short, not fragmented", "there was no free swap"]),
        ("cgroup-limit.txt", &["had reached its limit: 20 MiB of 20 MiB in use"]),
        ("vmap-arm32.txt", &["no hole of 36 KiB was left", "memory was not short: 2.94 GiB"]),
    ];
    for (name, phrases) in expected {
        let path = root().join("data/reports").join(name);
        check(&nofrag(&["explain", "--all", path.to_str().unwrap()]), 0, phrases);
    }
    let reports = fs::read_dir(root().join("data/reports")).unwrap();
    let texts = reports
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "txt"));
    assert_eq!(texts.count(), expected.len(), "each report is looked at");
}

#[test]
fn standard_input_and_json() {
    let file = fs::File::open(root().join("data/reports/order-4-kernel.txt")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_nofrag"))
        .args(["explain", "-", "--json"])
        .stdin(Stdio::from(file))
        .output()
        .unwrap();
    check(&output, 0, &["\"schema\": \"nofrag.explain\"", "\"cause\": \"fragmented\""]);
}

#[test]
fn nothing_to_explain_is_an_error_that_says_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.txt");
    fs::write(&file, "all is well\n").unwrap();
    let output = nofrag(&["explain", file.to_str().unwrap()]);
    check(&output, 2, &["nothing here that nofrag explains", "page allocation failure"]);
    check(&nofrag(&["explain", "no-such-file"]), 2, &["no-such-file"]);
    check(&nofrag(&["explain"]), 2, &["<FILE>"]);
}

#[test]
fn a_snapshot_in_a_recording() {
    let file = root().join("crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag@end");
    let output = nofrag(&["explain", file.to_str().unwrap()]);
    check(&output, 0, &["would order 9 (2 MiB)", "after compaction", "yes, by"]);
}
