//! The text of perf script: real output of perf, its losses, and damaged text.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use nofrag_host::trace::{
    Event, EventKind, EventSource, Loss, TraceError, TraceMeta, TraceText, View, open,
};

fn data(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/perf_script");
    let packed = std::fs::File::open(folder.join(format!("{name}.txt.zst"))).unwrap();
    let mut text = String::new();
    zstd::Decoder::new(packed).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn read(text: &str) -> (Vec<Event>, Loss) {
    let meta = TraceMeta::default();
    let mut source = TraceText::perf_script(text.as_bytes(), "perf".into(), &meta);
    let mut events = Vec::new();
    while source.read(&mut events).unwrap() {}
    (events, source.loss())
}

/// Returns the value behind a key of a line, by a plain search.
fn value(line: &str, key: &str) -> Option<u64> {
    let from = line.find(key)? + key.len();
    let digits: String = line[from..].chars().take_while(char::is_ascii_alphanumeric).collect();
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[test]
fn every_line_of_a_tracepoint_is_its_event() {
    let text = data("kinds");
    let (events, loss) = read(&text);
    assert_eq!(loss, Loss::default());
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("sched:"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(events.len(), lines.len());
    let mut kinds = BTreeMap::new();
    for (event, line) in events.iter().zip(&lines) {
        *kinds.entry(event.kind.name()).or_insert(0) += 1;
        let group = event.kind.info().group;
        assert!(line.contains(&format!("{group}:{}:", event.kind.name())), "{line}");
        assert_eq!(u64::from(event.cpu), value(line, "[").unwrap(), "{line}");
        match event.view() {
            View::PageAlloc { pfn, order, migratetype, .. } => {
                assert_eq!(pfn, value(line, "pfn="), "{line}");
                assert_eq!(u64::from(order), value(line, "order=").unwrap(), "{line}");
                assert_eq!(migratetype as u64, value(line, "migratetype=").unwrap(), "{line}");
            }
            View::PageFree { pfn, order } => {
                assert_eq!(
                    (pfn, u64::from(order)),
                    (value(line, "pfn=").unwrap(), value(line, "order=").unwrap())
                );
            }
            View::MigratePages { succeeded, failed, .. } => {
                assert_eq!(succeeded, value(line, "nr_succeeded=").unwrap(), "{line}");
                assert_eq!(failed, value(line, "nr_failed=").unwrap(), "{line}");
            }
            View::UnmappedArea { length, low, high, .. } => {
                let said = ["len=", "lo=", "hi="].map(|key| value(line, key).unwrap());
                assert_eq!([length, low, high], said, "{line}");
            }
            View::Munmap { addr, length } => {
                let said = ["addr: ", "len: "].map(|key| value(line, key).unwrap());
                assert_eq!([addr, length], said, "{line}");
            }
            View::CompactionBegin(run) | View::CompactionEnd { run, .. } => {
                let said = ["zone_start=", "free_pfn="].map(|key| value(line, key).unwrap());
                assert_eq!([run.zone_start, run.free_pfn], said, "{line}");
            }
            View::VmapFree { start, lazy, .. } => {
                assert_eq!(
                    [start, lazy],
                    ["va_start=", "nr_lazy="].map(|key| value(line, key).unwrap())
                );
            }
            other => panic!("{line}: {other:?}"),
        }
    }
    assert_eq!(kinds.len(), 8, "{kinds:?}");
}

/// Reads a text with perf's records of losses: every lost event is counted. perf once lost 3.9 % of a recording, and
/// its text alone did not show it.
#[test]
fn perf_lost() {
    let text = data("lost");
    let (events, loss) = read(&text);
    let lost = || text.lines().filter(|line| line.contains("PERF_RECORD_LOST"));
    let said: u64 = lost().map(|line| value(line, "lost ").unwrap()).sum();
    assert!(said > 500, "{said}");
    assert_eq!((loss.events, loss.gaps, loss.unreadable), (said, lost().count() as u64, 0));
    let marks = events.iter().filter(|event| event.kind == EventKind::Lost);
    let marked: u64 = marks.map(|event| event.values[0]).sum();
    assert_eq!(marked, said);
}

#[test]
fn a_text_without_losses_says_that_they_are_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let meta = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, data(name)).unwrap();
        open(&path).unwrap().meta
    };
    let kinds = meta("kinds");
    assert!(kinds.missing.iter().any(|what| what.contains("--show-lost-events")));
    assert!(kinds.release.unwrap().starts_with("6.18."));
    assert_eq!(kinds.cpus, [0, 1]);
    assert_eq!(meta("lost").missing, Vec::<String>::new());
    assert_eq!(meta("chains").missing.len(), 1);
}

#[test]
fn call_chains_are_passed_over() {
    let text = data("chains");
    let (events, loss) = read(&text);
    assert_eq!(events.len(), text.lines().filter(|line| line.contains("kmem:")).count());
    assert_eq!(loss, Loss::default());
    assert!(events.iter().all(|event| event.kind == EventKind::PageAlloc));
}

#[test]
fn a_packed_text_opens_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/perf_script/lost.txt.zst");
    let mut trace = open(&path).unwrap();
    let mut events = Vec::new();
    while trace.events.read(&mut events).unwrap() {}
    assert_eq!(events, read(&data("lost")).0);
}

#[test]
fn damaged_lines_are_counted_and_cost_no_others() {
    let text = data("kinds");
    let (whole, _) = read(&text);
    let damaged = text.replace("order=0", "order=x");
    let (events, loss) = read(&damaged);
    assert!(loss.unreadable > 0);
    assert_eq!(events.len() as u64 + loss.unreadable, whole.len() as u64);
    let (events, loss) = read(&"x".repeat(1 << 20));
    assert_eq!((events.len(), loss.unreadable), (0, 1));
}

#[test]
fn other_text_is_no_perf_script() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, "a letter: to somebody\nabout nothing\n").unwrap();
    assert!(matches!(open(&path), Err(TraceError::Unknown(_))));
}
