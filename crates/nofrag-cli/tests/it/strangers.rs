//! Files that were made to hurt their readers, given to the commands that analyse them: each runs with little address
//! space, and ends with an answer or with a refusal that names the budget.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nofrag_host::recording::{Ending, Existing, Pace, RecordingWriter, WriterOptions};
use nofrag_host::snapshot::Files;
use nofrag_host::trace::{Event, EventKind, MAX_FIELDS, Moment, TakenSnapshot, TraceMeta};

/// Runs a command on a file with `mib` MiB of address space; returns all that it printed.
fn analysed(command: &[&str], file: &Path, mib: u64) -> String {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--as={}", mib << 20)).arg(env!("CARGO_BIN_EXE_nofrag"));
    let output = limited.args(command).arg(file).output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 2)), "{command:?}: {}: {text}", output.status);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks that `replay` and `explain` refuse this file for lack of budget, and that `trace info` prints `info`.
fn check_refused(file: &Path, mib: u64, info: &str) {
    let replayed = analysed(&["replay"], file, mib);
    assert!(replayed.contains("--budget GIB"), "{replayed}");
    let explained = analysed(&["explain"], file, mib);
    assert!(explained.contains("could not be replayed"), "{explained}");
    assert!(explained.contains("--budget GIB"), "{explained}");
    let told = analysed(&["trace", "info"], file, mib);
    assert!(told.contains(info), "{told}");
}

/// Checks that a file of 200 bytes is refused, which took 16 GB: each run has some bytes for each frame up to the
/// highest that is named.
#[test]
fn an_event_of_a_frame_of_1_tib_is_no_reason_to_take_gigabytes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.txt");
    let text =
        "# tracer: nop\n#\n  sh-200 [000] ..... 1.5: mm_page_free: page=0 pfn=0xfffffff order=0\n";
    fs::write(&file, text).unwrap();
    check_refused(&file, 1024, "1 events");
}

/// Makes a recording that begins with this snapshot and has `allocations` allocations, each of another frame.
fn recording(folder: &Path, start: Option<Files>, allocations: u64) -> PathBuf {
    let file = folder.join("forged.nofrag");
    let options = WriterOptions { existing: Existing::Keep, pace: Pace::Copy };
    let moment = Moment::During { begin: 1, end: 2 };
    let snapshots = start.map(|files| TakenSnapshot { moment, files }).into_iter().collect();
    let meta = TraceMeta { cpus: vec![0], snapshots, ..TraceMeta::default() };
    let writer = RecordingWriter::create(&file, &meta, options).unwrap();
    let mut stream = writer.stream(0);
    for pfn in 0..allocations {
        let mut values = [0; MAX_FIELDS];
        values[0] = pfn;
        let event = Event { at: 10 + pfn, pid: 7, cpu: 0, kind: EventKind::PageAlloc, values };
        stream.push(&event).unwrap();
    }
    stream.end().unwrap();
    writer.finish(&Ending::default()).unwrap();
    file
}

#[test]
fn a_forged_zoneinfo_of_1_tib_is_no_reason_to_take_gigabytes() {
    let zoneinfo = "Node 0, zone Normal\n  pages free 1\n  min 1\n  low 1\n  high 1\n  spanned 268435456\n  \
                    present 268435456\n  managed 268435456\n  start_pfn: 0\n";
    let mut files = Files::default();
    files.insert("zoneinfo", zoneinfo.into());
    files.insert("buddyinfo", b"Node 0, zone Normal 1 0 0 0 0 0 0 0 0 0 0\n".to_vec());
    let folder = tempfile::tempdir().unwrap();
    check_refused(&recording(folder.path(), Some(files), 1), 1024, "1 events");
}

#[test]
fn a_million_blocks_in_use_are_kept_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path(), None, 1 << 20);
    assert!(fs::metadata(&file).unwrap().len() < 64 << 10, "{:?}", fs::metadata(&file));
    check_refused(&file, 160, "--budget GIB");
}
