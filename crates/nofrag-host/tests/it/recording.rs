//! nofrag's own files: events that are written are read back, and damage is seen.

use std::path::{Path, PathBuf};

use nofrag_host::budget::{Budget, Room};
use nofrag_host::recording::{
    self, CpuStats, Ending, Existing, Pace, Recording, RecordingError, RecordingWriter,
    WriterOptions,
};
use nofrag_host::snapshot::Files;
use nofrag_host::trace::{
    Event, EventKind, EventSource, Lifetimes, Loss, MAX_FIELDS, Moment, NO_FRAME, Pairing,
    TakenSnapshot, Trace, TraceError, TraceMeta, export, open, summarise,
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::raw_pages::raw_recording;

fn drain(source: &mut dyn EventSource) -> Vec<Event> {
    let mut events = Vec::new();
    while source.read(&mut events).unwrap() {}
    events
}

/// Returns the path of the recording that comes with nofrag.
fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag")
}

/// Returns the events of a recording in memory, with their known losses.
fn read_bytes(bytes: &[u8]) -> Result<(Recording, Vec<Event>, Loss), TraceError> {
    let recording = Recording::from_bytes(bytes.to_vec(), Path::new("test"))?;
    let mut source = recording.events()?;
    let events = drain(&mut *source);
    let loss = source.loss();
    Ok((recording, events, loss))
}

fn event(at: u64, cpu: u16, kind: EventKind, values: &[u64]) -> Event {
    let mut all = [0; MAX_FIELDS];
    all[..values.len()].copy_from_slice(values);
    Event { at, pid: 7, cpu, kind, values: all }
}

/// Writes a recording of two CPUs in some chunks each, with a snapshot and an end, and checks its writer's figures.
fn small(folder: &TempDir) -> (Vec<u8>, Vec<Event>) {
    let path = folder.path().join("small.nofrag");
    let mut files = Files::default();
    files.insert("version", b"Linux version 6.1.0-test".to_vec());
    let meta = TraceMeta {
        release: Some("6.1.0-test".to_owned()),
        cpus: vec![0, 3],
        snapshots: vec![TakenSnapshot { moment: Moment::During { begin: 5, end: 9 }, files }],
        ..TraceMeta::default()
    };
    let writer = RecordingWriter::create(&path, &meta, WriterOptions::default()).unwrap();
    let mut events = Vec::new();
    let mut streams = [0, 3].map(|cpu| writer.stream(cpu));
    for round in 0..6 {
        for stream in 0..2 {
            let cpu = [0, 3][stream];
            for i in 0..5 {
                let at = 100 * round + 10 * i;
                let pfn = 4096 + 17 * i * round;
                for event in [
                    event(at, cpu, EventKind::PageAlloc, &[pfn, i % 3, 0xcc0, 1]),
                    event(at, cpu, EventKind::PageFree, &[pfn, i % 3]),
                ] {
                    streams[stream].push(&event).unwrap();
                    events.push(event);
                }
            }
        }
        if round % 2 == 1 {
            streams.iter_mut().for_each(|stream| stream.flush().unwrap());
        }
    }
    streams.into_iter().for_each(|stream| stream.end().unwrap());
    let written = writer.finish(&Ending::default()).unwrap();
    let sizes = Recording::open(&path).unwrap().sizes();
    assert_eq!((written.bytes, written.event_bytes), (sizes.file, sizes.events));
    assert_eq!(written.events, sizes.count);
    events.sort_by_key(|event| (event.at, event.cpu));
    (std::fs::read(&path).unwrap(), events)
}

#[test]
fn what_goes_in_comes_out() {
    let (bytes, events) = small(&tempfile::tempdir().unwrap());
    let (recording, read, loss) = read_bytes(&bytes).unwrap();
    assert_eq!((read, loss), (events, Loss::default()));
    let meta = recording.meta();
    assert_eq!((meta.release.as_deref(), &meta.cpus[..]), (Some("6.1.0-test"), &[0, 3][..]));
    assert_eq!(meta.missing, Vec::<String>::new());
    assert_eq!(meta.snapshots.len(), 1);
    assert_eq!(meta.snapshots[0].files.release().as_deref(), Some("6.1.0-test"));
    assert_eq!(recording.ending(), Some(&Ending::default()));
}

#[test]
fn a_recording_cut_at_any_byte_opens_up_to_its_last_whole_chunk() {
    let (bytes, events) = small(&tempfile::tempdir().unwrap());
    let mut before = 0;
    for length in 0..bytes.len() {
        match read_bytes(&bytes[..length]) {
            Err(error) => assert!(length < 16, "{length}: {error}"),
            Ok((recording, read, _)) => {
                let real = read.iter().filter(|event| event.kind != EventKind::Lost);
                let mut rest = events.iter();
                let count = real
                    .inspect(|event| assert!(rest.any(|other| other == *event), "{length}: order"))
                    .count();
                assert!(count >= before, "{length}: what was whole is gone");
                before = count;
                let cut = recording.ending().is_none();
                assert_eq!(cut, !recording.meta().missing.is_empty(), "{length}");
                assert!(cut || count == events.len());
            }
        }
    }
    assert_eq!(before, events.len(), "the index and the footer hold no events");
}

#[test]
fn a_cut_says_up_to_when_all_cpus_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.nofrag");
    let meta = TraceMeta { cpus: vec![0, 1], ..TraceMeta::default() };
    let writer = RecordingWriter::create(&path, &meta, WriterOptions::default()).unwrap();
    let mut streams = [0, 1].map(|cpu| writer.stream(cpu));
    assert_eq!(Recording::open(&path).unwrap().complete_until(), None);
    streams[0].push(&event(50, 0, EventKind::PageFree, &[1, 0])).unwrap();
    streams[0].complete_until(1_000).unwrap();
    streams[1].complete_until(700).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.reaches(), [(0, Some(1_000)), (1, Some(700))]);
    assert!(recording.meta().missing[0].ends_with("up to 0.000000700 s of its clock"));
    let mut source = recording.events().unwrap();
    let lost = event(700, 1, EventKind::Lost, &[]);
    let read = drain(&mut *source);
    assert_eq!(read.len(), 2);
    assert_eq!((read[1].at, read[1].cpu, read[1].kind), (lost.at, lost.cpu, lost.kind));
    assert_eq!(source.loss().gaps, 1);
}

#[test]
fn a_changed_byte_is_seen() {
    let (bytes, events) = small(&tempfile::tempdir().unwrap());
    let (sound, ..) = read_bytes(&bytes).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let Ok((recording, read, loss)) = read_bytes(&damaged) else {
            assert!(at < 16, "{at}: one byte makes all unreadable");
            continue;
        };
        let whole = read == events && recording.meta().snapshots == sound.meta().snapshots;
        let said = loss != Loss::default() || !recording.meta().missing.is_empty();
        // A recording without its index is read in full.
        assert!(whole || said, "{at}: nothing says that something is missing");
        let real = read.iter().filter(|event| event.kind != EventKind::Lost);
        let mut rest = events.iter();
        real.for_each(|event| assert!(rest.any(|other| other == event), "{at}: wrong events"));
    }
}

/// Returns the offset of each chunk, with its type and its CPU.
fn chunks(bytes: &[u8]) -> Vec<(usize, u8, u8)> {
    let begins = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"NFck"));
    begins.map(|at| (at, bytes[at + 4], bytes[at + 6])).collect()
}

#[test]
fn a_lost_head_is_a_gap_where_there_is_no_index() {
    let (bytes, events) = small(&tempfile::tempdir().unwrap());
    let of_events = chunks(&bytes).into_iter().filter(|&(_, kind, _)| kind == 3);
    let of_events: Vec<_> = of_events.collect();
    assert_eq!(of_events.iter().map(|&(.., cpu)| cpu).collect::<Vec<_>>(), [0, 3, 0, 3, 0, 3]);
    let mut damaged = bytes[..bytes.len() - 24].to_vec();
    damaged[of_events[2].0 + 9] ^= 1;
    let (recording, read, loss) = read_bytes(&damaged).unwrap();
    assert_eq!(loss, Loss { events: 0, gaps: 1, unreadable: 1 });
    assert!(recording.meta().missing[0].contains("damaged"), "{:?}", recording.meta().missing);
    // Both CPUs are known up to 140, and the missing events are later.
    let at = read.iter().position(|event| event.kind == EventKind::Lost).unwrap();
    assert_eq!(read[at].at, 140);
    assert_eq!(read.len(), events.len() - 20 + 1);
    assert!(read.is_sorted_by_key(|event| event.at));
}

/// Checks that a recording that would fill the memory of a machine is refused with a reason.
#[test]
fn chunks_of_too_many_events_side_by_side_are_refused() {
    let (bytes, _) = small(&tempfile::tempdir().unwrap());
    let (at, ..) = chunks(&bytes).into_iter().find(|&(_, kind, _)| kind == 3).unwrap();
    let with_chunks = |cpus: u16, count: u32| {
        let mut bytes = bytes[..at].to_vec();
        for cpu in 0..cpus {
            let mut head = [0_u8; 48];
            head[..4].copy_from_slice(b"NFck");
            head[4] = 3;
            head[6..8].copy_from_slice(&cpu.to_le_bytes());
            head[8..12].copy_from_slice(&count.to_le_bytes());
            let crc = crc32fast::hash(&head[..44]);
            head[44..].copy_from_slice(&crc.to_le_bytes());
            bytes.extend_from_slice(&head);
        }
        read_bytes(&bytes).map(|_| ())
    };
    with_chunks(2, 1 << 20).unwrap();
    for (cpus, count, said) in [(65, 1 << 20, "68157440 events"), (8193, 1, "8193 CPUs")] {
        let error = with_chunks(cpus, count).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_later_major_version_is_refused_and_a_later_minor_one_read() {
    let (mut bytes, events) = small(&tempfile::tempdir().unwrap());
    let seal = |bytes: &mut Vec<u8>| {
        let crc = crc32fast::hash(&bytes[..12]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    };
    bytes[10] = 99;
    seal(&mut bytes);
    assert_eq!(read_bytes(&bytes).unwrap().1, events);
    bytes[8] = 2;
    seal(&mut bytes);
    let refused = read_bytes(&bytes).err().unwrap();
    assert!(matches!(refused, TraceError::Version { found: 2, known: 1, .. }), "{refused}");
}

#[test]
fn chunks_of_a_later_version_are_passed_over() {
    let (mut bytes, events) = small(&tempfile::tempdir().unwrap());
    // A chunk of the unknown type 77 behind the file's head, which also makes the index wrong.
    let mut head = [0_u8; 48];
    head[..4].copy_from_slice(b"NFck");
    head[4] = 77;
    head[16] = 3;
    head[40..44].copy_from_slice(&crc32fast::hash(b"new").to_le_bytes());
    let crc = crc32fast::hash(&head[..44]);
    head[44..].copy_from_slice(&crc.to_le_bytes());
    bytes.splice(16..16, head.into_iter().chain(*b"new"));
    let (recording, read, loss) = read_bytes(&bytes).unwrap();
    assert_eq!((read, loss), (events, Loss::default()));
    assert_eq!(recording.meta().missing, Vec::<String>::new());
}

#[test]
fn a_file_that_exists_is_not_written_over_unless_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine");
    std::fs::write(&path, "precious").unwrap();
    let meta = TraceMeta::default();
    let refused = RecordingWriter::create(&path, &meta, WriterOptions::default()).err().unwrap();
    assert!(matches!(refused, RecordingError::Exists(_)), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let options = WriterOptions { existing: Existing::Replace, pace: Pace::Live };
    RecordingWriter::create(&path, &meta, options).unwrap();
    assert!(Recording::open(&path).is_ok());
}

/// Checks the mode of a new recording: `trace convert` once made files that all users could read from recordings that
/// only their owner could read.
#[test]
fn a_new_recording_is_its_owner_s_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.nofrag");
    let meta = TraceMeta::default();
    RecordingWriter::create(&path, &meta, WriterOptions::default()).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_full_disk_leaves_a_recording_that_opens() {
    // Every write to this device fails for want of room.
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skipped: {} is missing", full.display());
        return;
    }
    let options = WriterOptions { existing: Existing::Replace, pace: Pace::Live };
    let error = RecordingWriter::create(full, &TraceMeta::default(), options).err().unwrap();
    assert!(matches!(error, RecordingError::Full { .. }), "{error}");
}

#[test]
fn the_kernels_counters_of_lost_events_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lossy.nofrag");
    let meta = TraceMeta::default();
    let writer = RecordingWriter::create(&path, &meta, WriterOptions::default()).unwrap();
    let mut stream = writer.stream(0);
    stream.push(&event(1, 0, EventKind::Lost, &[40])).unwrap();
    stream.push(&event(2, 0, EventKind::Lost, &[])).unwrap();
    stream.end().unwrap();
    let cpus = vec![CpuStats { cpu: 0, overrun: 50, dropped: 1, ..CpuStats::default() }];
    let ending = Ending { loss: Loss::default(), cpus };
    writer.finish(&ending).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.ending(), Some(&ending));
    let mut source = recording.events().unwrap();
    drain(&mut *source);
    assert_eq!(source.loss(), Loss { events: 51, gaps: 2, unreadable: 0 });
}

/// Returns the bytes of the two examples in `docs/format.md`, read from their hexadecimal digits.
fn documented() -> Vec<Vec<u8>> {
    let text = include_str!("../../../../docs/format.md");
    let examples = text.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let byte = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
    let bytes_of = |line: &str| -> Vec<u8> {
        line.split('|').next().unwrap().split_whitespace().map(byte).collect()
    };
    examples.map(|example| example.lines().flat_map(bytes_of).collect()).collect()
}

#[test]
fn the_bytes_in_the_document_are_those_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.nofrag");
    let meta = TraceMeta::default();
    let writer = RecordingWriter::create(&path, &meta, WriterOptions::default()).unwrap();
    let mut stream = writer.stream(1);
    for (at, kind, values) in [
        (1000, EventKind::PageAlloc, &[4096, 0, 0xcc0, 1][..]),
        (1010, EventKind::PageAlloc, &[4097, 0, 0xcc0, 1]),
        (1030, EventKind::PageFree, &[4096, 0]),
        (1040, EventKind::PageFree, &[4097, 0]),
    ] {
        stream.push(&Event { pid: 42, ..event(at, 1, kind, values) }).unwrap();
    }
    stream.end().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let examples = documented();
    assert_eq!(examples.len(), 2);
    assert_eq!(&bytes[..16], examples[0]);
    assert_eq!(&bytes[bytes.len() - examples[1].len()..], examples[1]);
}

/// Reads a value from an example in `docs/format.md`, and returns it as JSON again, with the defaults of the fields
/// that the example lacks.
fn read_and_written<T: serde::Serialize + serde::de::DeserializeOwned>(example: &str) -> String {
    let value: T = serde_json::from_str(example).unwrap();
    serde_json::to_string_pretty(&serde_json::to_value(value).unwrap()).unwrap()
}

#[test]
fn the_json_in_the_document_is_what_is_written() {
    let text = include_str!("../../../../docs/format.md");
    let examples = text.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let examples: Vec<&str> = examples.collect();
    let [meta, ending] = examples[..] else { panic!("{examples:?}") };
    let same = |example| {
        let value: serde_json::Value = serde_json::from_str(example).unwrap();
        serde_json::to_string_pretty(&value).unwrap()
    };
    assert_eq!(read_and_written::<TraceMeta>(meta), same(meta));
    assert_eq!(read_and_written::<Ending>(ending), same(ending));
    let table = text.split("| in `trace` | what |").nth(1).unwrap();
    let table = table.split("\n\n").next().unwrap();
    let written = serde_json::to_value(TraceMeta::default()).unwrap();
    for name in written.as_object().unwrap().keys() {
        assert!(table.contains(&format!("`{name}`")), "{name} is not in the table");
    }
}

#[test]
fn the_shipped_recordings_blocks_are_paired() {
    let Trace { meta, mut events, mut room } = open(&shipped()).unwrap();
    let summary = summarise(&meta, &mut *events, &mut room, &mut |_| {}).unwrap();
    let pairing = summary.pairing;
    assert_eq!(pairing.matched + pairing.older, 271_506, "every free is one or the other");
    assert_eq!((pairing.older, pairing.order_mismatches), (102_417, 0));
    assert_eq!(summary.allocs.iter().sum::<u64>() + summary.failed, 202_686);
    assert_eq!(pairing.matched + pairing.double_allocs + pairing.live, 202_686 - summary.failed);
    assert_eq!(summary.types[..3].iter().sum::<u64>(), summary.allocs.iter().sum::<u64>());
    assert_eq!(summary.rate.events.iter().sum::<u64>(), 701_106);
    assert_eq!(summary.extfrag.iter().map(|pair| pair.events).sum::<u64>(), 5);
    let lives = |lives: &[Lifetimes]| lives.iter().map(|life| life.count).sum::<u64>();
    assert_eq!(lives(&summary.lifetimes_by_order), pairing.matched);
    assert_eq!(lives(&summary.lifetimes_by_type), pairing.matched);
    assert_eq!(summary.flags.iter().map(|flags| flags.count).sum::<u64>(), 202_686);
}

/// The events of a trace that was never in a file.
struct Made(Vec<Event>);

impl EventSource for Made {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let any = !self.0.is_empty();
        into.append(&mut self.0);
        Ok(any)
    }

    fn loss(&self) -> Loss {
        Loss::default()
    }
}

#[test]
fn blocks_are_followed_from_allocation_to_free() {
    let mut flags = vec![0; 16];
    flags[8..16].copy_from_slice(&(1_u64 << 10).to_le_bytes());
    let mut files = Files::default();
    files.insert("kpageflags", flags);
    let meta = TraceMeta {
        snapshots: vec![TakenSnapshot { moment: Moment::Before, files }],
        ..TraceMeta::default()
    };
    let alloc = |at, pfn, order| event(at, 0, EventKind::PageAlloc, &[pfn, order, 0, 2]);
    let free = |at, pfn, order| event(at, 0, EventKind::PageFree, &[pfn, order]);
    let mut made = Made(vec![
        free(1, 0, 0),          // in use at the start
        free(2, 1, 0),          // free at the start, so its allocation is not known
        free(3, 0, 0),          // not in use at the start any more
        alloc(10, 64, 3),       //
        free(11, 67, 0),        // a page inside
        free(20, 64, 3),        // matched
        alloc(30, 64, 1),       //
        alloc(31, 64, 1),       // twice
        free(40, 64, 0),        // of another order
        alloc(50, NO_FRAME, 9), // failed
        alloc(60, 128, 0),      // lives on
    ]);
    let mut room = Room::new(Path::new("made"), Budget::of_length(0));
    let summary = summarise(&meta, &mut made, &mut room, &mut |_| {}).unwrap();
    let expected = Pairing {
        matched: 2,
        older: 4,
        in_use_at_start: 1,
        inside: 1,
        order_mismatches: 1,
        double_allocs: 1,
        live: 1,
    };
    assert_eq!((summary.pairing, summary.failed), (expected, 1));
    let of = |life: &Lifetimes| (life.of, life.count, life.median, life.longest);
    let lives: Vec<_> = summary.lifetimes_by_order.iter().map(of).collect();
    assert_eq!(lives, [(1, 1, 9, 9), (3, 1, 10, 10)]);
    assert_eq!(summary.nanos, 59);
}

#[test]
fn json_lines_have_the_fields_by_name() {
    let mut made = Made(vec![
        event(5, 1, EventKind::PageAlloc, &[NO_FRAME, 9, 0xcc0, 1]),
        event(6, 1, EventKind::CompactionEnd, &[1, 2, 3, 4, 1, (-3_i64) as u64]),
    ]);
    let mut out = Vec::new();
    assert_eq!(export::json_lines(&mut made, &mut out, &mut |_| {}).unwrap(), 2);
    let lines = [
        r#""at":5,"cpu":1,"event":"mm_page_alloc","gfp_flags":3264,"migratetype":1,"order":9,"pfn":null,"pid":7"#,
        r#""at":6,"cpu":1,"event":"mm_compaction_end","free_pfn":3,"migrate_pfn":2,"pid":7,"status":-3,"sync":1"#,
    ];
    let expected = format!("{{{}}}\n{{{},\"zone_end\":4,\"zone_start\":1}}\n", lines[0], lines[1]);
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn pq_suffix() {
    for (name, fits) in [("a.parquet", true), ("a.pq", false), ("parquet", false), ("-", false)] {
        assert_eq!(export::check_parquet_name(Path::new(name)).is_ok(), fits, "{name}");
    }
}

/// Checks the counts that the README of the raw recording names.
fn check_counts(events: &[Event]) {
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    for (kind, expected) in [
        (EventKind::PageAlloc, 202_686),
        (EventKind::PageFree, 271_506),
        (EventKind::PageFreeBatched, 226_444),
        (EventKind::ExtFrag, 5),
        (EventKind::MigratePages, 247),
        (EventKind::CompactionBegin, 46),
        (EventKind::CompactionEnd, 46),
        (EventKind::DirectReclaimBegin, 6),
        (EventKind::DirectReclaimEnd, 6),
        (EventKind::Lost, 0),
    ] {
        assert_eq!(count(kind), expected, "{}", kind.name());
    }
    assert_eq!(events.len(), 701_106);
}

#[test]
fn the_shipped_recording_has_its_counts_and_snapshots() {
    let mut trace = open(&shipped()).unwrap();
    check_counts(&drain(&mut *trace.events));
    assert_eq!(trace.events.loss(), Loss::default());
    let meta = &trace.meta;
    assert_eq!(meta.release.as_deref(), Some("6.1.0-53-cloud-amd64"));
    for taken in [meta.start().unwrap(), meta.end().unwrap()] {
        assert_eq!(taken.files.bytes("kpageflags").unwrap().len() % 8, 0);
    }
    let sizes = Recording::open(&shipped()).unwrap().sizes();
    assert!(sizes.events <= 3 * sizes.count, "{sizes:?}: more than 3 bytes an event");
}

#[test]
fn the_shipped_recording_is_the_shared_one() {
    let Some(raw) = raw_recording() else { return };
    let mut raw = open(&raw).unwrap();
    let mut own = open(&shipped()).unwrap();
    assert_eq!(own.meta, raw.meta);
    assert!(drain(&mut *own.events) == drain(&mut *raw.events), "the events differ");
}

fn any_event() -> impl Strategy<Value = Event> {
    let value = prop_oneof![
        Just(0),
        Just(u64::MAX),
        0..16_u64,
        0..1_u64 << 20,
        (0..1_u64 << 20).prop_map(|low| 0xffff_8880_0000_0000 + low),
        any::<u64>(),
    ];
    let values = prop::array::uniform8(value);
    let at = prop_oneof![0..300_u64, any::<u64>()];
    (at, any::<i32>(), 0..3_u16, 0..EventKind::COUNT, values).prop_map(
        |(at, pid, cpu, kind, mut values)| {
            let kind = EventKind::from_number(kind).unwrap();
            values[kind.fields().len()..].fill(0);
            Event { at, pid, cpu, kind, values }
        },
    )
}

proptest! {
    /// Checks that the events of a CPU come back in its order, even if its clock went back.
    #[test]
    fn each_cpus_events_come_back_in_their_order(events in prop::collection::vec(any_event(), 0..400)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any.nofrag");
        let meta = TraceMeta::default();
        let writer = RecordingWriter::create(&path, &meta, WriterOptions::default()).unwrap();
        let mut streams = [0, 1, 2].map(|cpu| writer.stream(cpu));
        for event in &events {
            streams[usize::from(event.cpu)].push(event).unwrap();
        }
        streams.into_iter().for_each(|stream| stream.end().unwrap());
        writer.finish(&Ending::default()).unwrap();
        let read = drain(&mut *Recording::open(&path).unwrap().events().unwrap());
        for cpu in 0..3 {
            let of = |events: &[Event]| -> Vec<Event> {
                events.iter().filter(|event| event.cpu == cpu).copied().collect()
            };
            prop_assert_eq!(of(&read), of(&events));
        }
        prop_assert_eq!(read.len(), events.len());
    }
}

#[test]
#[ignore = "measures"]
fn measure() {
    let Some(path) = raw_recording() else { return };
    let start = std::time::Instant::now();
    let mut trace = open(&path).unwrap();
    let events = drain(&mut *trace.events);
    println!("raw read: {:.1} M/s", events.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
    let folder = tempfile::tempdir().unwrap();
    let file = std::env::var("NOFRAG_OUT").map_or(folder.path().join("a.nofrag"), PathBuf::from);
    let start = std::time::Instant::now();
    let written =
        recording::convert(open(&path).unwrap(), &file, Existing::Keep, &mut |_| {}).unwrap();
    println!("convert: {:.1} M/s", events.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
    let recording = Recording::open(&file).unwrap();
    let sizes = recording.sizes();
    println!("{written:?} {sizes:?}: {:.3} B/event", sizes.events as f64 / events.len() as f64);
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let mut source = recording.events().unwrap();
        let mut batch = Vec::new();
        let mut n = 0;
        while source.read(&mut batch).unwrap() {
            n += batch.len();
            batch.clear();
        }
        println!("read back: {:.1} M/s", n as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    assert_eq!(drain(&mut *recording.events().unwrap()), events);
    for kind in [EventKind::PageAlloc, EventKind::PageFree] {
        println!("{} {}", kind.name(), events.iter().filter(|event| event.kind == kind).count());
    }
}

#[cfg(feature = "parquet")]
#[test]
fn the_shipped_recording_is_a_table() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut trace = open(&shipped()).unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let count = export::parquet(&mut *trace.events, file, &mut |_| {}).unwrap();
    assert_eq!(count, 701_106);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes * 10 <= count * 45, "{bytes} bytes are more than 4.5 an event");
    println!("{:.2} bytes an event", bytes as f64 / count as f64);
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), 701_106);
    let mut trace = open(&shipped()).unwrap();
    let events = drain(&mut *trace.events);
    // Rows are slow to read without optimisation.
    let rows = reader.get_row_iter(None).unwrap().zip(&events).take(100_000);
    for (row, event) in rows.step_by(997) {
        let row = row.unwrap();
        assert_eq!(row.get_ulong(0).unwrap(), event.at);
        assert_eq!(row.get_ushort(1).unwrap(), event.cpu);
        assert_eq!(row.get_int(2).unwrap(), event.pid);
        assert_eq!(row.get_string(3).unwrap(), event.kind.name());
        if event.kind == EventKind::PageAlloc && event.values[0] != NO_FRAME {
            assert_eq!(row.get_ulong(4).unwrap(), event.values[0]);
            assert_eq!(row.get_long(5).unwrap(), event.values[1] as i64);
        }
    }
}

/// A dataset has every event once, in the file of its kind, with the least and the most of its times; and an export
/// that fails leaves nothing.
#[cfg(feature = "parquet")]
#[test]
fn the_shipped_recording_is_a_dataset() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::file::statistics::Statistics;

    let folder = tempfile::tempdir().unwrap();
    let place = export::Place::new("web-17", "2026-11-26", "a").unwrap();
    let written = |existing| {
        let mut trace = open(&shipped()).unwrap();
        export::dataset(&mut *trace.events, folder.path(), &place, existing, &mut |_| {})
    };
    let count = written(Existing::Keep).unwrap();
    assert_eq!(count, 701_106);
    let events = drain(&mut *open(&shipped()).unwrap().events);
    let day = folder.path().join("host=web-17/day=2026-11-26");
    let mut rows = 0;
    for kind in std::fs::read_dir(&day).unwrap() {
        let kind = kind.unwrap();
        let name = kind.file_name().into_string().unwrap();
        let files: Vec<_> = std::fs::read_dir(kind.path()).unwrap().map(Result::unwrap).collect();
        assert_eq!(files.len(), 1, "{name}: one file, and no draft");
        let reader = SerializedFileReader::new(std::fs::File::open(files[0].path()).unwrap());
        let reader = reader.unwrap();
        let of = |event: &&Event| format!("kind={}", event.kind.info().name) == name;
        let times: Vec<u64> = events.iter().filter(of).map(|event| event.at).collect();
        let meta = reader.metadata();
        assert_eq!(meta.file_metadata().num_rows() as usize, times.len(), "{name}");
        let versions = meta.file_metadata().key_value_metadata().unwrap();
        assert!(versions.iter().any(|pair| pair.key == "nofrag.schema"), "{versions:?}");
        let mut from = 0;
        for group in meta.row_groups() {
            let to = from + group.num_rows() as usize;
            let Some(Statistics::Int64(at)) = group.column(0).statistics() else {
                panic!("{name}: times without statistics")
            };
            let bounds = [*at.min_opt().unwrap() as u64, *at.max_opt().unwrap() as u64];
            assert_eq!(bounds, [times[from], times[to - 1]], "{name}");
            from = to;
        }
        rows += times.len();
    }
    assert_eq!(rows as u64, count);
    assert!(written(Existing::Keep).unwrap_err().to_string().contains("--replace"));
    assert_eq!(written(Existing::Replace).unwrap(), count);
    for (host, day, name) in
        [("..", "2026-11-26", "a"), ("a/b", "2026-11-26", "a"), ("a", "26.11.", "a")]
    {
        assert!(export::Place::new(host, day, name).is_err(), "{host} {day} {name}");
    }
}
