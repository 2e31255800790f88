//! Files made to hurt their reader. Each is read by a child process with little address space, which reports its cost:
//! in bytes, since times depend on the machine.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use nofrag_host::budget::{Budget, FLOOR, LEAST_EVENTS};
use nofrag_host::machine::capture::{Choices, gather};
use nofrag_host::record::Frames;
use nofrag_host::recording::{Ending, Existing, Pace, Recording, RecordingWriter, WriterOptions};
use nofrag_host::snapshot::Files;
use nofrag_host::source::{Root, machine};
use nofrag_host::trace::{
    self, Event, EventKind, Moment, TakenSnapshot, Trace, TraceError, TraceMeta, summarise,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Variables that tell the child the kind of the file, and its path.
const WHAT: &str = "NOFRAG_TEST_READ";
const WHERE: &str = "NOFRAG_TEST_FILE";

/// The report of a child.
#[derive(Debug)]
struct Read {
    said: String,
    /// Most bytes that the child held at a time, and bytes that it read.
    peak: u64,
    read: u64,
}

/// Lets a child read a file with [`SPACE`] bytes of addresses beyond those of a test program.
fn read_by_child(what: &str, file: &Path) -> Read {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "strangers::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(WHAT, what)
        .env(WHERE, file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    let line = |key: &str| {
        let found = text.lines().find_map(|line| line.split_once(key).map(|(_, rest)| rest));
        found.unwrap_or_else(|| panic!("no {key}: {text}")).to_owned()
    };
    let number = |key| line(key).parse().unwrap();
    Read { said: line("SAID "), peak: number("PEAK "), read: number("READ ") }
}

/// Returns the field of a file in `/proc/self`, in bytes.
fn own(file: &str, field: &str, unit: u64) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let rest = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    rest.split_ascii_whitespace().next().unwrap().parse::<u64>().unwrap() * unit
}

#[test]
#[ignore = "is the child of the tests here"]
fn child() {
    let (Ok(what), Ok(file)) = (std::env::var(WHAT), std::env::var(WHERE)) else { return };
    let most = own("status", "VmSize:", 1024) + SPACE;
    setrlimit(Resource::As, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
    let before = own("io", "rchar:", 1);
    let file = Path::new(&file);
    let said = match what.as_str() {
        "trace" => {
            let read = trace::open(file).and_then(|Trace { meta, mut events, mut room }| {
                let summary = summarise(&meta, &mut *events, &mut room, &mut |_| {})?;
                Ok((meta.missing.join("; "), summary.loss.events))
            });
            match read {
                Ok((missing, lost)) => format!("{lost} lost; {missing}"),
                Err(error) => error.to_string(),
            }
        }
        "host" => {
            let root = Root::Captured(file.to_owned());
            let sources = machine::read(&root, Frames::Read);
            drop(gather(&root, Choices::default()));
            let missing = sources.missing.iter().map(|each| format!("{}: {}", each.path, each.why));
            missing.collect::<Vec<_>>().join("; ")
        }
        other => panic!("{other}"),
    };
    let read = own("io", "rchar:", 1) - before;
    println!("\nSAID {said}\nPEAK {}\nREAD {read}", own("status", "VmHWM:", 1024));
}

/// Address space of a child, beyond that of the test program: far below what each of these files asked for.
const SPACE: u64 = 192 << 20;

/// A recording in which all checksums are right, but not its contents.
struct Forged(Vec<u8>);

impl Forged {
    fn new() -> Forged {
        let mut head = b"\x89NOFRAG\n\x01\x00\x00\x00".to_vec();
        head.extend(crc32fast::hash(&head).to_le_bytes());
        let mut file = Forged(head);
        let meta = br#"{"kinds":[],"trace":{"cpus":[0]}}"#;
        file.chunk(1, 0, 0, meta);
        file
    }

    fn head(&mut self, kind: u16, cpu: u16, count: u32, length: u64, crc: u32) {
        let mut head = b"NFck".to_vec();
        head.extend(kind.to_le_bytes());
        head.extend(cpu.to_le_bytes());
        head.extend(count.to_le_bytes());
        head.extend([0; 4]);
        for word in [length, 0, u64::from(count)] {
            head.extend(word.to_le_bytes());
        }
        head.extend(crc.to_le_bytes());
        head.extend(crc32fast::hash(&head).to_le_bytes());
        self.0.extend(head);
    }

    fn chunk(&mut self, kind: u16, cpu: u16, count: u32, body: &[u8]) {
        self.head(kind, cpu, count, body.len() as u64, crc32fast::hash(body));
        self.0.extend(body);
    }

    /// Adds `count` allocations, each of another frame, in 120 bytes.
    fn events(&mut self, cpu: u16, count: u32, first_frame: u64) {
        let constant = |owner: u8, field: u8, value: u64| {
            [&[owner, field, 0, 0, 8, 0, 0, 0][..], &value.to_le_bytes()].concat()
        };
        let steps = |owner: u8, field: u8, first: u64| {
            let ones = (2_u32 << 30 | 1).to_le_bytes();
            [&[owner, field, 3, 1, 12, 0, 0, 0][..], &first.to_le_bytes(), &ones].concat()
        };
        let owner = EventKind::PageAlloc as u8 + 1;
        let columns = [
            constant(0, 0, EventKind::PageAlloc as u64),
            steps(0, 1, 0),
            constant(0, 2, 42),
            steps(owner, 0, first_frame),
        ];
        self.chunk(3, cpu, count, &columns.concat());
    }

    /// Saves the recording, with a hole of `hole` bytes at its end.
    fn save(&self, folder: &Path, hole: u64) -> std::path::PathBuf {
        let path = folder.join("forged.nofrag");
        let mut file = File::create(&path).unwrap();
        file.write_all(&self.0).unwrap();
        file.set_len(self.0.len() as u64 + hole).unwrap();
        path
    }
}

#[test]
fn a_recording_of_73_kb_with_400_million_events_is_refused_by_its_heads() {
    let folder = tempfile::tempdir().unwrap();
    for cpus in [1, 400] {
        let mut file = Forged::new();
        for number in 0..400_u16 {
            file.events(number % cpus, 1 << 20, u64::from(number) << 20);
        }
        assert!(file.0.len() < 73 << 10);
        let read = read_by_child("trace", &file.save(folder.path(), 0));
        assert!(read.said.contains("419430400 events"), "{}", read.said);
        assert!(read.said.contains("--budget GIB"), "{}", read.said);
        assert!(read.peak < 100 << 20, "{read:?}");
    }
}

#[test]
fn chunks_of_many_cpus_side_by_side_are_refused_by_their_heads() {
    let mut file = Forged::new();
    (0..100).for_each(|cpu| file.events(cpu, 1 << 16, 0));
    let budget = Budget { bytes: 64 << 20, events: LEAST_EVENTS, deadline: None };
    let folder = tempfile::tempdir().unwrap();
    let recording = Recording::open_within(&file.save(folder.path(), 0), budget).unwrap();
    let refused = recording.events().err().expect("they take a gigabyte");
    assert!(matches!(refused, TraceError::Budget { .. }), "{refused}");
}

#[test]
fn kinds_by_turns_do_not_hold_the_memory_of_all_kinds() {
    let mut file = Forged::new();
    // As many events as such a file may claim to have.
    for kind in 0..32 {
        let columns = |field: u8| [&[kind + 1, field, 0, 0, 8, 0, 0, 0][..], &[7; 8]].concat();
        let all = [(0, u64::from(kind)), (1, 0), (2, 0)].map(|(field, value)| {
            [&[0, field, 0, 0, 8, 0, 0, 0][..], &value.to_le_bytes()].concat()
        });
        let body = [all.concat(), (0..8).flat_map(columns).collect()].concat();
        file.chunk(3, 0, 1 << 18, &body);
    }
    let folder = tempfile::tempdir().unwrap();
    let read = read_by_child("trace", &file.save(folder.path(), 0));
    // A chunk is 24 MiB; all kinds would be 300 and more.
    assert!(read.said.contains(" lost; "), "{}", read.said);
    assert!(read.peak < 150 << 20, "{read:?}");
}

#[test]
fn a_sparse_chunk_of_64_gib_is_no_chunk() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [1, 2, 3, 4] {
        let mut file = Forged::new();
        file.head(kind, 0, u32::from(kind == 3) * 1000, 64 << 30, 0);
        let read = read_by_child("trace", &file.save(folder.path(), 64 << 30));
        let expected = match kind {
            2 => "a snapshot of 64 GiB",
            3 => "1000 lost",
            _ => "are damaged and left out",
        };
        assert!(read.said.contains(expected), "{kind}: {}", read.said);
        assert!(read.peak < 100 << 20 && read.read < 1 << 20, "{kind}: {read:?}");
    }
}

#[test]
fn a_sparse_snapshot_of_8_gib_is_left_out_and_the_budget_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = Forged::new();
    file.head(2, 0, 0, 8 << 30, 0);
    let read = read_by_child("trace", &file.save(folder.path(), 8 << 30));
    assert!(read.said.contains("a snapshot of 8 GiB"), "{}", read.said);
    assert!(read.said.contains("--budget GIB"), "{}", read.said);
    assert!(read.peak < 100 << 20 && read.read < 1 << 20, "{read:?}");
}

#[test]
fn a_snapshot_that_unpacks_to_more_than_it_says_or_than_there_is_room_is_not_unpacked() {
    let frame = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for says in [1 << 20, 64 << 20, 8_u64 << 30] {
        let head = format!(
            r#"{{"moment":"Before","files":[{{"name":"kpageflags","bytes":{says},"packed":{}}}]}}"#,
            frame.len()
        );
        let body = [&(head.len() as u32).to_le_bytes()[..], head.as_bytes(), &frame].concat();
        let mut file = Forged::new();
        file.chunk(2, 0, 0, &body);
        let path = file.save(folder.path(), 0);
        let budget = Budget { bytes: 96 << 20, events: 0, deadline: None };
        let recording = Recording::open_within(&path, budget).unwrap();
        let files = recording.meta().snapshots.first().map(|taken| &taken.files);
        let bytes = files.and_then(|files| files.bytes("kpageflags")).map(<[u8]>::len);
        assert_eq!(bytes, (says == 64 << 20).then_some(64 << 20), "{says}");
        let missing = recording.meta().missing.join("\n");
        assert_eq!(missing.contains("are left out (kpageflags)"), says > 96 << 20, "{missing}");
    }
}

#[test]
fn a_sparse_file_of_4_gib_is_passed_over_without_being_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = Forged::new().save(folder.path(), 4 << 30);
    // A sound chunk behind the hole is found.
    let mut behind = Forged(Vec::new());
    behind.events(0, 7, 0);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&behind.0, (3 << 30) + 1).unwrap();
    let read = read_by_child("trace", &path);
    assert!(read.said.contains("of the file are damaged and left out"), "{}", read.said);
    assert!(read.read < 8 << 20, "{read:?}");
    assert_eq!(Recording::open(&path).unwrap().sizes().count, 7);
}

#[test]
fn other_traces_with_a_hole_of_4_gib_are_refused_soon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let dat = [
        b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0\0\0\0\0\0\0\0\0header_event\0"
            .as_slice(),
        &(4_u64 << 30).to_le_bytes(),
    ]
    .concat();
    let text = b"# tracer: nop\n a-3 [000] d..1. 1.5: mm_page_free: page=0 pfn=0x1 order=0\n";
    for (bytes, said) in [(&dat[..], "longer than those of any"), (text, "no text")] {
        fs::write(&path, bytes).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(4 << 30).unwrap();
        let read = read_by_child("trace", &path);
        assert!(read.said.contains(said), "{}", read.said);
        assert!(read.read < 32 << 20, "{read:?}");
    }
}

#[test]
fn a_packed_text_that_does_not_end_is_read_up_to_the_budget() {
    let line = "a-3 [000] d..1. 1.5: mm_page_free: page=0 pfn=0x1 order=0\n";
    let packed = zstd::bulk::compress(line.repeat(1 << 16).as_bytes(), 19).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed.zst");
    fs::write(&path, packed.repeat(4)).unwrap();
    let check = |budget: Budget, said: &str| {
        let Trace { meta, mut events, mut room } = trace::open_within(&path, budget).unwrap();
        let ended = summarise(&meta, &mut *events, &mut room, &mut |_| {});
        let ended = ended.map(|summary| summary.events.to_string());
        let ended = ended.unwrap_or_else(|error| error.to_string());
        assert!(ended.contains(said), "{ended}");
    };
    let whole = Budget { bytes: FLOOR, events: LEAST_EVENTS, deadline: None };
    check(whole, "262144");
    check(Budget { bytes: 1 << 20, ..whole }, "it unpacks to more than");
    check(Budget { events: 1000, ..whole }, "1000 events");
    check(Budget { deadline: Some(std::time::Instant::now()), ..whole }, "in time");
}

/// Makes a folder of raw pages without any event.
fn raw_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("format")).unwrap();
    fs::write(folder.path().join("format/mm_page_free"), FORMAT).unwrap();
    fs::write(folder.path().join("cpu0.trace_pipe_raw"), "").unwrap();
    folder
}

const FORMAT: &str = "name: mm_page_free\nID: 7\nformat:\n\nprint fmt: \"\"\n";

#[test]
fn a_link_out_of_a_trace_folder_is_named_and_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("version"), "Linux version 6.1.0-private").unwrap();
    let (mode, kind) = (rustix::fs::Mode::RUSR, rustix::fs::FileType::Fifo);
    let pipe = outside.path().join("meminfo");
    rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, mode, 0).unwrap();
    for name in ["start", "end"] {
        let folder = raw_folder();
        assert!(trace::open(folder.path()).is_ok());
        symlink(outside.path(), folder.path().join(name)).unwrap();
        let read = read_by_child("trace", folder.path());
        let named = format!("{name}: it is no regular file");
        assert!(read.said.contains(&named), "{}", read.said);
    }
}

#[test]
fn thousands_of_padded_formats_are_read_up_to_the_budget() {
    let folder = raw_folder();
    let padded = FORMAT.to_owned() + &" ".repeat((1 << 20) - FORMAT.len());
    let packed = zstd::bulk::compress(padded.as_bytes(), 3).unwrap();
    for number in 0..3000 {
        fs::write(folder.path().join(format!("format/f{number}.zst")), &packed).unwrap();
    }
    let read = read_by_child("trace", folder.path());
    assert!(read.said.contains("--budget GIB"), "{}", read.said);
    assert!(read.peak < 100 << 20, "{read:?}");
}

#[test]
fn both_snapshots_of_a_trace_folder_share_its_budget() {
    let folder = raw_folder();
    for name in ["start", "end"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("meminfo"), vec![b' '; 600]).unwrap();
    }
    let open = |bytes| {
        let budget = Budget { bytes, events: LEAST_EVENTS, deadline: None };
        trace::open_within(folder.path(), budget).map(|trace| trace.meta.snapshots.len())
    };
    assert_eq!(open(1 << 20).unwrap(), 2);
    let refused = open(FORMAT.len() as u64 * 8 + 1000).unwrap_err().to_string();
    assert!(refused.contains("end: its files unpack to more than"), "{refused}");
}

#[test]
fn pages_of_many_cpus_side_by_side_are_refused_before_they_are_read() {
    let folder = raw_folder();
    let header = "\tfield: char data;\toffset:16;\tsize:1048560;\tsigned:1;\n";
    fs::write(folder.path().join("header_page"), header).unwrap();
    for cpu in 1..1000 {
        fs::write(folder.path().join(format!("cpu{cpu}.trace_pipe_raw")), "").unwrap();
    }
    let read = read_by_child("trace", folder.path());
    assert!(read.said.contains("--budget GIB"), "{}", read.said);
    assert!(read.peak < 100 << 20, "{read:?}");
}

/// Summarises a few kilobytes that state half a million blocks allocated and never freed.
#[test]
fn blocks_in_use_are_followed_as_far_as_the_budget_has_room() {
    let mut file = Forged::new();
    (0..32).for_each(|number| file.events(0, 1 << 14, number << 14));
    let folder = tempfile::tempdir().unwrap();
    let path = file.save(folder.path(), 0);
    let summary = |bytes| {
        let budget = Budget { bytes, events: LEAST_EVENTS, deadline: None };
        let Trace { meta, mut events, mut room } = trace::open_within(&path, budget).unwrap();
        summarise(&meta, &mut *events, &mut room, &mut |_| {}).map(|summary| summary.pairing.live)
    };
    assert_eq!(summary(128 << 20).unwrap(), 1 << 19);
    let refused = summary(16 << 20).unwrap_err().to_string();
    assert!(refused.contains("to read it takes") && refused.contains("--budget GIB"), "{refused}");
}

#[test]
fn a_captured_folder_with_links_to_dev_zero_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("proc/sys/vm")).unwrap();
    fs::create_dir_all(at("proc/17")).unwrap();
    let files =
        ["vmallocinfo", "buddyinfo", "meminfo", "kpageflags", "17/maps", "sys/vm/swappiness"];
    for name in files {
        symlink("/dev/zero", at(&format!("proc/{name}"))).unwrap();
    }
    symlink("/proc/self", at("proc/18")).unwrap();
    fs::write(at("proc/zoneinfo"), "Node 0, zone Normal\n").unwrap();
    let read = read_by_child("host", folder.path());
    for name in ["vmallocinfo", "buddyinfo", "meminfo", "kpageflags", "17/maps"] {
        let found = read.said.split("; ").any(|each| {
            each.contains(&format!("proc/{name}: ")) && each.contains("no regular file")
        });
        assert!(found, "{name}: {}", read.said);
    }
    assert!(read.peak < 100 << 20, "{read:?}");
}

#[test]
fn a_captured_folder_with_a_pipe_in_it_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("proc")).unwrap();
    for name in ["zoneinfo", "buddyinfo", "meminfo"] {
        let (mode, kind) = (rustix::fs::Mode::RUSR, rustix::fs::FileType::Fifo);
        let path = folder.path().join("proc").join(name);
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    }
    let read = read_by_child("host", folder.path());
    assert!(read.said.contains("meminfo: it is no regular file"), "{}", read.said);
}

/// Opens a recording with the frames of a host of 64 GiB and 5 million events within the floor of any budget.
#[test]
fn five_million_events_and_the_frames_of_64_gib_open_within_the_floor() {
    const FRAMES: usize = 64 << 30 >> 12;
    const EVENTS: u64 = 5_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.nofrag");
    let mut files = Files::default();
    files.insert("version", b"Linux version 6.1.0-test".to_vec());
    for name in ["kpageflags", "kpagecount"] {
        files.insert(name, vec![0; 8 * FRAMES]);
    }
    let options = WriterOptions { existing: Existing::Keep, pace: Pace::Copy };
    let writer = RecordingWriter::create(&path, &TraceMeta::default(), options).unwrap();
    let mut taken = TakenSnapshot { moment: Moment::Before, files };
    writer.snapshot(&taken).unwrap();
    taken.moment = Moment::After;
    writer.snapshot(&taken).unwrap();
    drop(taken);
    let mut stream = writer.stream(0);
    for number in 0..EVENTS {
        let values = [number * 0x9e37 % FRAMES as u64, 0, 0, 0, 0, 0, 0, 0];
        let (at, kind) = (number * 100, EventKind::PageFree);
        stream.push(&Event { at, pid: 7, cpu: 0, kind, values }).unwrap();
    }
    stream.end().unwrap();
    writer.finish(&Ending::default()).unwrap();
    let budget = Budget { bytes: FLOOR, events: LEAST_EVENTS, deadline: None };
    let recording = Recording::open_within(&path, budget).unwrap();
    assert_eq!(recording.meta().missing, [""; 0]);
    assert_eq!(recording.meta().snapshots.len(), 2);
    let end = recording.meta().end().unwrap();
    assert_eq!(end.files.bytes("kpageflags").map(<[u8]>::len), Some(8 * FRAMES));
    let (mut events, mut batch, mut count) = (recording.events().unwrap(), Vec::new(), 0);
    while events.read(&mut batch).unwrap() {
        count += batch.len() as u64;
        batch.clear();
    }
    assert_eq!(count, EVENTS);
}

#[test]
fn the_kernel_of_a_killed_recording_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.nofrag");
    let mut files = Files::default();
    files.insert("version", b"Linux version 6.1.0-test (builder)".to_vec());
    let snapshots = vec![TakenSnapshot { moment: Moment::During { begin: 1, end: 2 }, files }];
    let meta = TraceMeta { snapshots, ..TraceMeta::default() };
    // Never finished, as an older recorder left it: only the snapshot has the release.
    drop(RecordingWriter::create(&path, &meta, WriterOptions::default()).unwrap());
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.meta().release.as_deref(), Some("6.1.0-test"));
}
