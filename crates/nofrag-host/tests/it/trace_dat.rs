//! trace.dat: the reader's events beside those that `trace-cmd report` prints of the same file, and files that lie.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nofrag_host::budget::Budget;
use nofrag_host::trace::{Event, EventKind, Loss, TraceError, TraceMeta, open, open_trace_dat};

/// The files that `trace-cmd record` wrote, each with its report beside it.
const FILES: [&str; 3] = ["v6", "v7-plain", "v7-zstd"];

fn data(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/trace_dat");
    match std::fs::read(folder.join(name)) {
        Ok(bytes) => bytes,
        Err(_) => {
            let packed = std::fs::File::open(folder.join(format!("{name}.zst"))).unwrap();
            let mut bytes = Vec::new();
            zstd::Decoder::new(packed).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        }
    }
}

fn read(bytes: Vec<u8>) -> Result<(TraceMeta, Vec<Event>, Loss), TraceError> {
    let budget = Budget::of_length(bytes.len() as u64);
    let mut trace = open_trace_dat(Arc::new(bytes), Path::new("trace.dat"), budget)?;
    let mut events = Vec::new();
    while trace.events.read(&mut events)? {}
    Ok((trace.meta, events, trace.events.loss()))
}

/// Parses a line of `trace-cmd report -t -R`: `INSTANCE: NAME-PID [CPU] SECONDS.NANOS: EVENT: KEY=VALUE..`.
fn reported(line: &str) -> Option<Event> {
    let (head, rest) = line.split_once(" [")?;
    let pid = head.trim_end().rsplit_once('-')?.1.parse().ok()?;
    let (cpu, rest) = rest.split_once(']')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (seconds, nanos) = time.split_once('.')?;
    assert_eq!(nanos.len(), 9, "{line}");
    let (name, fields) = rest.trim_start().split_once(':')?;
    let kind = EventKind::from_name(name)?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse::<i128>().ok().map(|number| number as u64),
    };
    let mut values = [0; nofrag_host::trace::MAX_FIELDS];
    for (value, field) in values.iter_mut().zip(kind.fields()) {
        let found = fields.split_ascii_whitespace().find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == field.name).then_some(value)
        });
        *value = found.map_or(0, |text| number(text).expect(line));
    }
    let at = seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos.parse::<u64>().ok()?;
    Some(Event { at, pid, cpu: cpu.parse().ok()?, kind, values })
}

#[test]
fn events_are_those_that_trace_cmd_reports() {
    for name in FILES {
        let (meta, events, loss) = read(data(&format!("{name}.dat"))).unwrap();
        let report = String::from_utf8(data(&format!("{name}.txt"))).unwrap();
        let lines = report.lines().filter(|line| line.contains('[') && !line.contains("sched_"));
        let expected: Vec<Event> = lines.map(|line| reported(line).expect(line)).collect();
        assert!(expected.len() > 400, "{name}: the report is empty");
        assert_eq!(events.len(), expected.len(), "{name}");
        for (number, pair) in events.iter().zip(&expected).enumerate() {
            assert_eq!(pair.0, pair.1, "{name}: event {number}");
        }
        assert_eq!(loss, Loss::default(), "{name}");
        assert_eq!(meta.missing, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_file_says_what_is_known_beside_its_events() {
    for name in FILES {
        let (meta, _, _) = read(data(&format!("{name}.dat"))).unwrap();
        assert!(meta.release.as_ref().unwrap().starts_with("6.18."), "{name}");
        assert_eq!(meta.clock.as_deref(), Some(if name == "v7-plain" { "mono" } else { "local" }));
        assert_eq!(meta.cpus, [0, 1]);
        assert!(meta.names.iter().any(|(_, name)| name == "bash"), "{name}: {:?}", meta.names);
        assert!(meta.formats.iter().any(|(name, _)| name == "mm_page_alloc"));
        assert!(meta.formats.iter().all(|(name, _)| EventKind::from_name(name).is_some()));
        assert_eq!(meta.gfp.bits("__GFP_ZERO"), Some(0x100));
    }
}

#[test]
fn a_trace_dat_is_known_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    std::fs::write(&path, data("v7-zstd.dat")).unwrap();
    let mut trace = open(&path).unwrap();
    let mut events = Vec::new();
    assert!(trace.events.read(&mut events).unwrap());
    assert!(!events.is_empty());
}

/// Cuts files: each gives the events before its end and a notice of the cut, or an error; it gives no other events.
#[test]
fn a_cut_file_gives_what_is_there() {
    for name in FILES {
        let bytes = data(&format!("{name}.dat"));
        let (_, whole, _) = read(bytes.clone()).unwrap();
        let (mut opened, mut shorter) = (0, 0);
        for length in (0..bytes.len()).step_by(997) {
            match read(bytes[..length].to_vec()) {
                Ok((meta, events, loss)) => {
                    opened += 1;
                    assert!(events.len() <= whole.len());
                    if events.len() < whole.len() {
                        shorter += 1;
                        assert!(loss.gaps > 0, "{name} cut at {length}: the loss is not said");
                        assert!(!meta.missing.is_empty(), "{name} cut at {length}");
                    }
                    let mut rest = whole.iter();
                    let known = events.iter().all(|event| rest.any(|other| other == event));
                    assert!(known, "{name} cut at {length}: events that the whole does not have");
                }
                Err(TraceError::Corrupt { what, .. }) => assert!(!what.is_empty()),
                Err(TraceError::Unknown(_)) => assert!(length < 10),
                Err(other) => panic!("{name} cut at {length}: {other}"),
            }
        }
        // The options of version 7 are at the end, so a cut file of that version rarely opens.
        assert!(name != "v6" || (opened > 0 && shorter > 0), "{name}: {opened} {shorter}");
    }
}

#[test]
fn a_file_that_lies_about_lengths_takes_no_memory() {
    let good = data("v6.dat");
    // The size of the page header is wrong: all later parts are out of place.
    let mut bytes = good.clone();
    bytes[30..38].copy_from_slice(&u64::MAX.to_le_bytes());
    check_corrupt(bytes, "header_page");
    let mut bytes = good.clone();
    let cpus = place(&good, b"options  \0") - 4;
    bytes[cpus..cpus + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    check_corrupt(bytes, "CPUs");
    // An instance whose table is behind the end.
    let mut bytes = good.clone();
    let name = place(&good, b"nofrag-texts\0") - 8;
    let name = place(&good[name..], b"nofrag-texts\0") + name - 8;
    bytes[name..name + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(read(bytes).is_err());
}

#[test]
fn options_that_lead_in_a_circle_end() {
    let mut bytes = data("v7-plain.dat");
    let at = place(&bytes, b"none\0") + 5;
    let at = at + place(&bytes[at..], b"\0") + 1;
    let first = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // The last option of the section is DONE, whose data is the place of the next section.
    let size = &bytes[first as usize + 8..first as usize + 16];
    let end = first as usize + 16 + u64::from_le_bytes(size.try_into().unwrap()) as usize;
    bytes[end - 8..end].copy_from_slice(&first.to_le_bytes());
    check_corrupt(bytes, "lead back");
}

#[test]
fn what_is_not_read_says_what_to_do() {
    let good = data("v7-zstd.dat");
    let mut bytes = good.clone();
    let at = place(&good, b"zstd\0");
    bytes[at..at + 4].copy_from_slice(b"zlib");
    check_unsupported(bytes, "trace-cmd convert");
    let mut bytes = good.clone();
    bytes[10] = b'8';
    check_unsupported(bytes, "version 8");
    let mut bytes = good.clone();
    bytes[12] = 1;
    check_unsupported(bytes, "big-endian");
    let mut bytes = data("v6.dat");
    let at = place(&bytes, b"size:8;\tsigned:1;");
    bytes[at + 5] = b'4';
    check_unsupported(bytes, "32-bit");
}

fn place(bytes: &[u8], of: &[u8]) -> usize {
    bytes.windows(of.len()).position(|window| window == of).expect("it is there")
}

fn check_corrupt(bytes: Vec<u8>, word: &str) {
    match read(bytes) {
        Err(error @ TraceError::Corrupt { .. }) => {
            assert!(error.to_string().contains(word), "{error}");
        }
        other => panic!("{word}: {:?}", other.map(|read| read.1.len())),
    }
}

fn check_unsupported(bytes: Vec<u8>, word: &str) {
    match read(bytes) {
        Err(error @ TraceError::Unsupported { .. }) => {
            assert!(error.to_string().contains(word), "{error}");
        }
        other => panic!("{word}: {:?}", other.map(|read| read.1.len())),
    }
}

/// Compares every event of a larger file of trace-cmd, which `NOFRAG_TRACE_DAT` names, with the report beside it.
#[test]
#[ignore = "needs a file of trace-cmd named by NOFRAG_TRACE_DAT, and its report -t -R as the same name with .txt"]
fn a_named_file_reads_as_trace_cmd_reports_it() {
    let path = PathBuf::from(std::env::var_os("NOFRAG_TRACE_DAT").expect("NOFRAG_TRACE_DAT"));
    let mut trace = open(&path).unwrap();
    let mut events = Vec::new();
    while trace.events.read(&mut events).unwrap() {}
    let report = std::fs::read_to_string(path.with_extension("txt")).unwrap();
    let expected: Vec<Event> = report.lines().filter_map(reported).collect();
    println!("{} events, {:?}", events.len(), trace.events.loss());
    assert_eq!(events.len(), expected.len());
    assert!(events.iter().zip(&expected).all(|(read, reported)| read == reported));
}
