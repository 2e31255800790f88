//! Raw pages of the ring buffer: by hand, at random, and a raw recording.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use nofrag_host::trace::{
    Decoder, Event, EventKind, EventSource, FlagTable, Format, KINDS, Loss, Merged, PageError,
    RawPages, RecordError, SUB_BUFFER, SubBuffer, TraceError, open,
};
use proptest::prelude::*;

/// Returns the folder in `NOFRAG_RAW_RECORDING`: the raw recording of a 6.1 guest, of which `data/recordings` has the
/// short form.
pub(crate) fn raw_recording() -> Option<PathBuf> {
    let folder = std::env::var_os("NOFRAG_RAW_RECORDING").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: NOFRAG_RAW_RECORDING names no folder of a raw recording");
    }
    folder
}

/// Returns all events of a source, with its losses.
pub(crate) fn all(source: &mut dyn EventSource) -> (Vec<Event>, Loss) {
    let mut events = Vec::new();
    while source.read(&mut events).unwrap() {}
    (events, source.loss())
}

/// A piece of a page.
#[derive(Clone, Debug)]
enum Piece {
    /// A record of 1 to 28 words.
    Short { delta: u32, words: Vec<u32> },
    /// A record with its length in a word.
    Long { delta: u32, body: Vec<u8> },
    /// A record that was taken back.
    Discarded { delta: u32, words: Vec<u32> },
    /// More time than a record's word can hold.
    Extend { delta: u64 },
    /// An absolute time in place of a difference.
    Stamp { time: u64 },
    /// The end of the page.
    End,
}

/// Returns a page as the kernel writes it: the time stamp, the commit word, and the pieces.
fn page(time: u64, flags: u64, pieces: &[Piece], count: Option<u64>, size: usize) -> Vec<u8> {
    let mut data = Vec::new();
    let mut put = |word: u32| data.extend_from_slice(&word.to_le_bytes());
    for piece in pieces {
        match piece {
            Piece::Short { delta, words } => {
                put(delta << 5 | words.len() as u32);
                words.iter().for_each(|&word| put(word));
            }
            Piece::Long { delta, body } => {
                put(delta << 5);
                put(body.len() as u32 + 4);
                for word in body.chunks(4) {
                    let mut bytes = [0; 4];
                    bytes[..word.len()].copy_from_slice(word);
                    put(u32::from_le_bytes(bytes));
                }
            }
            Piece::Discarded { delta, words } => {
                put(delta << 5 | 29);
                put(4 * words.len() as u32 + 4);
                words.iter().for_each(|&word| put(word));
            }
            Piece::Extend { delta } => {
                put((*delta as u32 & 0x7ff_ffff) << 5 | 30);
                put((delta >> 27) as u32);
            }
            Piece::Stamp { time } => {
                put((*time as u32 & 0x7ff_ffff) << 5 | 31);
                put((time >> 27) as u32);
            }
            Piece::End => put(29),
        }
    }
    let mut page = time.to_le_bytes().to_vec();
    page.extend_from_slice(&(data.len() as u64 | flags).to_le_bytes());
    page.append(&mut data);
    page.extend(count.into_iter().flat_map(u64::to_le_bytes));
    assert!(page.len() <= size, "the pieces do not fit on a page");
    page.resize(size, 0xee);
    page
}

fn records(page: &[u8]) -> Vec<Result<(u64, Vec<u8>), PageError>> {
    let records = SubBuffer::new(page).unwrap();
    records.map(|record| record.map(|(at, body)| (at, body.to_vec()))).collect()
}

/// Reads a page made by hand: records of every length, a discarded one, and both kinds of time records.
/// Source: docs/sources/trace.md#oracle-4.
#[test]
fn oracle_4_pages_by_hand() {
    let words = |len: u32| (1..=len).collect::<Vec<_>>();
    let bytes = |len: u32| words(len).into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    let mut pieces: Vec<_> =
        (1..=28).map(|len| Piece::Short { delta: len, words: words(len) }).collect();
    pieces.push(Piece::Long { delta: 7, body: vec![9; 150] });
    pieces.push(Piece::Discarded { delta: 3, words: words(2) });
    pieces.push(Piece::Extend { delta: 1 << 40 | 5 });
    pieces.push(Piece::Short { delta: 1, words: words(1) });
    pieces.push(Piece::Stamp { time: 0x1234_5678_9abc });
    pieces.push(Piece::Long { delta: 0, body: Vec::new() });
    pieces.push(Piece::End);
    pieces.push(Piece::Short { delta: 1, words: words(1) });
    let time = 1000;
    let mut expected = Vec::new();
    let mut at = time;
    for len in 1..=28 {
        at += u64::from(len);
        expected.push(Ok((at, bytes(len))));
    }
    at += 7;
    expected.push(Ok((at, vec![9; 150])));
    at += 3 + (1 << 40 | 5) + 1;
    expected.push(Ok((at, bytes(1))));
    expected.push(Ok((0x1234_5678_9abc, Vec::new())));
    assert_eq!(records(&page(time, 0, &pieces, None, SUB_BUFFER)), expected);
}

/// Checks that the upper bits of a time stamp are those of the page.
#[test]
fn a_stamp_keeps_the_upper_bits_of_the_page() {
    let pieces = [Piece::Stamp { time: 5 }, Piece::Short { delta: 1, words: vec![0] }];
    let high = 0b10101 << 59;
    assert_eq!(records(&page(high | 77, 0, &pieces, None, 4096)), [Ok((high | 6, vec![0; 4]))]);
}

/// Reads bits 31 and 30 of the commit word: events were lost, and their number follows.
#[test]
fn lost_events_are_told() {
    let pieces = [Piece::Short { delta: 0, words: vec![1] }];
    let lost = |flags, count| SubBuffer::new(&page(0, flags, &pieces, count, 4096)).unwrap().lost();
    assert_eq!(lost(0, None), None);
    assert_eq!(lost(1 << 31, None), Some(None));
    assert_eq!(lost(1 << 31 | 1 << 30, Some(12_345)), Some(Some(12_345)));
    // The count has no room on a full page: the bytes behind the page are not taken for it.
    let full = [Piece::Short { delta: 0, words: vec![1; 3] }];
    let full = page(0, 1 << 31 | 1 << 30, &full, None, 32);
    assert_eq!(SubBuffer::new(&full).unwrap().lost(), Some(None));
}

/// Reads pages whose lengths are wrong: they give the records before the error, and its place.
#[test]
fn broken_lengths_are_told() {
    let short = Piece::Short { delta: 1, words: vec![7] };
    let mut one = page(0, 0, &[short.clone(), short.clone()], None, 4096);
    one[8] = 12; // cuts the second record
    assert_eq!(records(&one), [Ok((1, vec![7, 0, 0, 0])), Err(PageError::Record(8))]);
    for length in [0_u32, 3, 4096, u32::MAX, u32::MAX - 3] {
        let mut long = page(0, 0, &[Piece::Long { delta: 1, body: vec![1; 8] }], None, 4096);
        long[20..24].copy_from_slice(&length.to_le_bytes());
        assert_eq!(records(&long), [Err(PageError::Record(0))], "{length}");
    }
    let mut said = page(0, 0, &[short], None, 4096);
    said[8..12].copy_from_slice(&4081_u32.to_le_bytes());
    let error = SubBuffer::new(&said).err();
    assert_eq!(error, Some(PageError::Short { said: 4081, has: 4080 }));
    assert_eq!(SubBuffer::new(&said[..15]).err(), Some(PageError::Short { said: 0, has: 0 }));
}

fn piece() -> impl Strategy<Value = Piece> {
    let delta = 1_u32..1 << 27;
    let words = |most| prop::collection::vec(any::<u32>(), 1..=most);
    prop_oneof![
        4 => (delta.clone(), words(28)).prop_map(|(delta, words)| Piece::Short { delta, words }),
        1 => (delta.clone(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(delta, body)| Piece::Long { delta, body }),
        1 => (delta, words(30)).prop_map(|(delta, words)| Piece::Discarded { delta, words }),
        1 => (0_u64..1 << 59).prop_map(|delta| Piece::Extend { delta }),
        1 => (0_u64..1 << 59).prop_map(|time| Piece::Stamp { time }),
    ]
}

/// Returns the time and the body of each record among the pieces.
fn told(time: u64, pieces: &[Piece]) -> Vec<(u64, Vec<u8>)> {
    let mut at = time;
    let mut told = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Short { delta, words } => {
                at = at.wrapping_add(u64::from(*delta));
                told.push((at, words.iter().copied().flat_map(u32::to_le_bytes).collect()));
            }
            Piece::Long { delta, body } => {
                at = at.wrapping_add(u64::from(*delta));
                told.push((at, body.clone()));
            }
            Piece::Discarded { delta, .. } => at = at.wrapping_add(u64::from(*delta)),
            Piece::Extend { delta } => at = at.wrapping_add(*delta),
            Piece::Stamp { time } => at = at & !((1 << 59) - 1) | time,
            Piece::End => break,
        }
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Checks that pages of any size that a writer makes are read back.
    #[test]
    fn pages_round_trip(
        time in any::<u64>(),
        pieces in prop::collection::vec(piece(), 0..30),
        kib in 12_usize..=64,
    ) {
        let page = page(time, 0, &pieces, None, 1024 * kib);
        let expected: Vec<_> = told(time, &pieces).into_iter().map(Ok).collect();
        prop_assert_eq!(records(&page), expected);
    }

    /// Checks that reading any bytes as a page ends, and takes no byte twice.
    #[test]
    fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..600), said in 0_u16..600) {
        let mut page = bytes;
        if page.len() >= 16 {
            page[8..16].copy_from_slice(&u64::from(said).to_le_bytes());
        }
        if let Ok(records) = SubBuffer::new(&page) {
            let taken: usize = records.flatten().map(|(_, body)| body.len() + 4).sum();
            prop_assert!(taken <= usize::from(said));
        }
    }

    /// Checks that a field is read by its offset, size and sign.
    #[test]
    fn fields_are_where_the_format_says(
        record in prop::collection::vec(any::<u8>(), 2..80),
        offset in 0_usize..70,
        log_size in 0_u32..4,
        signed in any::<bool>(),
    ) {
        let mut record = record;
        record[..2].copy_from_slice(&[42, 0]);
        let size = 1 << log_size;
        let text = format!(
            "name: mm_page_free\nID: 42\nformat:\n\tfield:u{} pfn;\toffset:{offset};\tsize:{size};\t\
             signed:{};\n\nprint fmt: \"\"\n", 8 * size, u8::from(signed),
        );
        let decoder = Decoder::new(&[Format::parse(&text).unwrap()]);
        let naive = record.get(offset..offset + size).map(|bytes| {
            let negative = signed && bytes[size - 1] >= 0x80;
            let mut word = [if negative { 0xff } else { 0 }; 8];
            word[..size].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
        let read = decoder.decode(&record, 1, 2).map(|event| event.unwrap().values[0]);
        // All records of a kernel begin with the same eight bytes of common fields.
        let naive = naive.filter(|_| record.len() >= 8).ok_or(RecordError::Short(record.len()));
        prop_assert_eq!(read, naive);
    }
}

/// Returns a format file with fields of eight bytes each.
fn format_of(name: &str, id: u16, fields: &[&str]) -> Format {
    let mut text = format!("name: {name}\nID: {id}\nformat:\n");
    text += "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
    for (field, at) in fields.iter().zip((8..).step_by(8)) {
        text += &format!("\tfield:unsigned long {field};\toffset:{at};\tsize:8;\tsigned:0;\n");
    }
    Format::parse(&(text + "\nprint fmt: \"\"\n")).unwrap()
}

fn free_of(delta: u32, id: u32, pfn: u32) -> Piece {
    Piece::Short { delta, words: vec![id, 33, pfn, 0, 0, 0] }
}

/// Reads pages of a CPU with lost events, tracepoints that are not kept, unknown numbers, and a last page that is cut.
#[test]
fn pages_of_a_cpu() {
    let formats =
        [format_of("mm_page_free", 7, &["pfn", "order"]), format_of("sched_switch", 8, &["prev"])];
    let decoder = Arc::new(Decoder::new(&formats));
    let mut bytes =
        page(100, 0, &[free_of(1, 7, 50), free_of(1, 8, 0), free_of(1, 7, 51)], None, 256);
    bytes.extend(page(
        200,
        1 << 31 | 1 << 30,
        &[free_of(5, 7, 52), free_of(1, 9, 0)],
        Some(4),
        256,
    ));
    bytes.extend(page(300, 1 << 31, &[free_of(0, 7, 53), free_of(0, 7, 54)], None, 256));
    let whole = bytes.len();
    let read = |end: usize| {
        let input = bytes[..end].to_vec();
        // The reader's buffer is not a multiple of a page.
        let input = std::io::BufReader::with_capacity(100, std::io::Cursor::new(input));
        all(&mut RawPages::new(input, PathBuf::new(), 3, Arc::clone(&decoder), 256))
    };
    let free = |at, pfn| {
        let mut values = [0; 8];
        values[0] = pfn;
        Event { at, pid: 33, cpu: 3, kind: EventKind::PageFree, values }
    };
    let lost = |at, count| Event::lost(at, 3, count);
    let mut expected = vec![
        free(101, 50),
        free(103, 51),
        lost(200, Some(4)),
        free(205, 52),
        lost(300, None),
        free(300, 53),
        free(300, 54),
    ];
    let loss = Loss { events: 4, gaps: 2, unreadable: 1 };
    assert_eq!(read(whole), (expected.clone(), loss));
    // Cut in the middle of the last record: the one before it stands.
    expected.pop();
    let cut = Loss { unreadable: 2, ..loss };
    assert_eq!(read(whole - 256 + 16 + 28 + 9), (expected.clone(), cut));
    // Cut in the middle of the last page's header.
    expected.truncate(4);
    assert_eq!(read(whole - 256 + 9), (expected, Loss { events: 4, gaps: 1, unreadable: 2 }));
}

/// Checks that sources are merged by time, then CPU, whatever the batches, and that events already in the list stay.
#[test]
fn sources_are_merged() {
    struct Some_(Vec<Event>);
    impl EventSource for Some_ {
        fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
            let batch = self.0.len().min(3);
            into.extend(self.0.drain(..batch));
            Ok(batch > 0)
        }
        fn loss(&self) -> Loss {
            Loss { events: 1, gaps: 1, unreadable: 0 }
        }
    }
    let of = |cpu: u16, times: &[u64]| {
        Some_(times.iter().map(|&at| Event::lost(at, cpu, None)).collect())
    };
    let sources =
        [of(2, &[1, 4, 4, 9, 9, 9, 9]), of(0, &[4, 5, 20]), of(1, &[]), of(1, &[0, 4, 30])];
    let mut expected: Vec<Event> = sources.iter().flat_map(|source| source.0.clone()).collect();
    expected.sort_by_key(|event| (event.at, event.cpu));
    let mut merged = Merged::new(sources);
    let mut read = vec![Event::lost(99, 9, None)];
    while merged.read(&mut read).unwrap() {}
    assert_eq!(read[1..], expected);
    assert!(!merged.read(&mut read).unwrap(), "the end stays the end");
    assert_eq!(merged.loss(), Loss { events: 4, gaps: 4, unreadable: 0 });
}

/// Checks every count that the README of the raw recording states.
#[test]
fn the_raw_recording() {
    let Some(folder) = raw_recording() else { return };
    let mut trace = open(&folder).unwrap();
    let (events, loss) = all(&mut *trace.events);
    assert_eq!((events.len(), loss), (701_106, Loss::default()));
    assert!(events.is_sorted_by_key(|event| (event.at, event.cpu)), "events are in order");
    let mut counts = BTreeMap::new();
    let mut cpus = [0; 2];
    for event in &events {
        *counts.entry(event.kind.name()).or_insert(0) += 1;
        cpus[usize::from(event.cpu)] += 1;
    }
    assert_eq!(cpus, [235_890, 465_216], "the file `stats` counts by CPU");
    let expected = [
        ("mm_page_alloc", 202_686),
        ("mm_page_free", 271_506),
        ("mm_page_free_batched", 226_444),
        ("mm_page_alloc_extfrag", 5),
        ("mm_migrate_pages", 247),
        ("mm_compaction_begin", 46),
        ("mm_compaction_end", 46),
        ("mm_vmscan_direct_reclaim_begin", 6),
        ("mm_vmscan_direct_reclaim_end", 6),
    ];
    for (name, count) in expected {
        assert_eq!(counts.remove(name), Some(count), "{name}");
    }
    println!("the README does not count {counts:?}");
    let migrated = events.iter().filter(|event| event.kind == EventKind::MigratePages);
    let migrated: u64 = migrated.map(|event| event.values[0]).sum();
    assert_eq!(migrated, 38_339, "what vmstat counts as migrated");
    assert_eq!(trace.meta.release.as_deref(), Some("6.1.0-53-cloud-amd64"));
    assert_eq!(trace.meta.cpus, [0, 1]);
    assert_eq!(trace.meta.gfp.render(0xa20), "GFP_ATOMIC", "as 6.1 has it");
}

/// Opens folders of raw pages: a folder may state the size of its pages, and two files may not hold one CPU.
#[test]
fn folders() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("format")).unwrap();
    let mut text = "name: mm_page_free\nID: 7\nformat:\n".to_owned();
    text += "\tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";
    fs::write(at("format/mm_page_free"), text).unwrap();
    fs::write(at("trace_clock"), "local [mono] boot\n").unwrap();
    let header = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                  \tfield: char data;\toffset:16;\tsize:16368;\tsigned:1;\n";
    fs::write(at("header_page"), header).unwrap();
    let mut bytes = page(1, 0, &vec![free_of(1, 7, 5); 500], None, 16_384);
    bytes.extend(page(900, 0, &[free_of(1, 7, 6)], None, 16_384));
    fs::write(at("cpu12.trace_pipe_raw"), &bytes).unwrap();
    let mut trace = open(folder.path()).unwrap();
    assert_eq!((trace.meta.clock.as_deref(), &trace.meta.cpus[..]), (Some("mono"), &[12][..]));
    let (events, loss) = all(&mut *trace.events);
    assert_eq!((events.len(), loss), (501, Loss::default()));
    assert_eq!((events[500].at, events[500].values[0], events[500].cpu), (901, 6, 12));
    fs::write(at("cpu12.trace_pipe_raw.zst"), zstd::encode_all(&bytes[..], 1).unwrap()).unwrap();
    let error = open(folder.path()).err().expect("two files for a CPU").to_string();
    assert!(error.contains("cpu12.trace_pipe_raw") && error.contains("same CPU"), "{error}");
    fs::remove_file(at("cpu12.trace_pipe_raw")).unwrap();
    assert_eq!(all(&mut *open(folder.path()).unwrap().events).0.len(), 501);
    fs::write(at("header_page"), "nothing").unwrap();
    assert!(open(folder.path()).err().unwrap().to_string().contains("header_page"));
}

/// Renders flags by the table of a kernel's own `print fmt`, and by the built-in one, which is that of 6.18.
#[test]
fn flags_are_named_as_the_kernel_does() {
    let text = include_str!("../data/mm_page_alloc-6.18.format");
    let table = FlagTable::from_print_fmt(&Format::parse(text).unwrap().print).unwrap();
    let built_in = FlagTable::default();
    for bit in (0..64).filter(|&bit| bit != 9) {
        assert_eq!(table.render(1 << bit), built_in.render(1 << bit), "bit {bit}");
    }
    // The text of a 6.18 kernel for such values.
    let printed = [
        (0x14_0dca, "GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP"),
        (0x5_2cd0, "GFP_KERNEL|__GFP_RECLAIMABLE|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP"),
        (0x1c_24ca, "GFP_TRANSHUGE"),
        (0x2800, "GFP_NOWAIT"),
        (0x400, "__GFP_DIRECT_RECLAIM"),
        (0x1_0000_0cc0, "GFP_KERNEL|0x100000000"),
        (0, "none"),
    ];
    for (flags, name) in printed {
        assert_eq!((&*table.render(flags), &*built_in.render(flags)), (name, name));
        assert_eq!((table.value(name), built_in.value(name)), (Some(flags), Some(flags)));
    }
    let Some(folder) = raw_recording() else { return };
    let text = fs::read_to_string(folder.join("format/mm_page_alloc")).unwrap();
    let table = FlagTable::from_print_fmt(&Format::parse(&text).unwrap().print).unwrap();
    assert_eq!(table.render(0xa20), "GFP_ATOMIC");
    assert_eq!(table.render(0x800), "GFP_NOWAIT");
    assert_eq!(table.render(0x1_4200), "__GFP_ATOMIC|__GFP_RETRY_MAYFAIL|__GFP_NORETRY");
    assert_eq!(table.render(1 << 24), "0x1000000", "6.1 has no such flag");
    for bit in 0..24 {
        assert_eq!(table.value(&table.render(1 << bit)), Some(1 << bit), "bit {bit}");
    }
}

/// Checks that the rows of the table name their tracepoints, and that `lost` is not one.
#[test]
fn kinds_have_names() {
    for row in KINDS.iter().filter(|row| row.kind != EventKind::Lost) {
        assert_eq!(EventKind::from_name(row.name), Some(row.kind));
    }
    assert_eq!(EventKind::from_name("lost"), None);
}

/// Measures the reading of raw pages: `cargo test --release -p nofrag-host --test it raw_pages_speed -- --ignored
/// --nocapture`
#[test]
#[ignore = "measures"]
fn raw_pages_speed() {
    let Some(folder) = raw_recording() else { return };
    let formats = fs::read_dir(folder.join("format"))
        .unwrap()
        .map(|entry| Format::parse(&fs::read_to_string(entry.unwrap().path()).unwrap()).unwrap());
    let decoder = Arc::new(Decoder::new(&formats.collect::<Vec<_>>()));
    let names = ["cpu0", "cpu1"].map(|name| format!("{name}.trace_pipe_raw"));
    let packed = names.each_ref().map(|name| fs::read(folder.join(format!("{name}.zst"))).unwrap());
    let pages =
        packed.each_ref().map(|packed| Arc::<[u8]>::from(zstd::decode_all(&packed[..]).unwrap()));
    let on_disk = tempfile::tempdir().unwrap();
    for (name, pages) in names.iter().zip(&pages) {
        fs::write(on_disk.path().join(name), pages).unwrap();
    }
    for _ in 0..5 {
        let from = |input: Box<dyn std::io::BufRead + Send>, cpu| {
            RawPages::new(input, PathBuf::new(), cpu, Arc::clone(&decoder), SUB_BUFFER)
        };
        let memory = (0..)
            .zip(&pages)
            .map(|(cpu, pages)| from(Box::new(std::io::Cursor::new(Arc::clone(pages))), cpu));
        print_speed("pages in memory", &mut Merged::new(memory));
        let files = (0..).zip(&names).map(|(cpu, name)| {
            let file = fs::File::open(on_disk.path().join(name)).unwrap();
            from(Box::new(std::io::BufReader::with_capacity(64 * SUB_BUFFER, file)), cpu)
        });
        print_speed("pages in files, cached", &mut Merged::new(files));
        print_speed("zstd", &mut *open(&folder).unwrap().events);
    }
    // Some of these pages are not full; the next ones are.
    let full: Vec<u8> = (0..20_000_u64).flat_map(full_page).collect();
    let full = Arc::<[u8]>::from(full);
    for _ in 0..3 {
        let input = Box::new(std::io::Cursor::new(Arc::clone(&full)));
        let full = RawPages::new(input, PathBuf::new(), 0, Arc::clone(&decoder), SUB_BUFFER);
        print_speed("full pages in memory", &mut Merged::new([full]));
    }
}

/// Returns a page of Linux 6.1 as a busy machine fills it: an allocation and a free in turn.
fn full_page(number: u64) -> Vec<u8> {
    let pair = |pfn: u32| {
        let alloc = vec![542, 1, pfn, 0, 0, 0, 0xcc0, 0, 1, 0];
        let free = vec![544, 1, pfn, 0, 0, 0];
        [Piece::Short { delta: 300, words: alloc }, Piece::Short { delta: 300, words: free }]
    };
    let pieces: Vec<_> = (0..56).flat_map(pair).collect();
    page(number << 20, 0, &pieces, None, SUB_BUFFER)
}

/// Returns the CPU time of this thread in nanoseconds, which a busy machine disturbs least.
fn cpu_ns() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

fn print_speed(what: &str, source: &mut dyn EventSource) {
    let (mut events, mut count) = (Vec::new(), 0);
    let (begin, cpu_before) = (Instant::now(), cpu_ns());
    while source.read(&mut events).unwrap() {
        count += events.len();
        events.clear();
    }
    let wall_ns = begin.elapsed().as_nanos() as f64;
    let cpu = cpu_before.zip(cpu_ns()).map_or(f64::NAN, |(before, after)| (after - before) as f64);
    let rate = |ns: f64| count as f64 * 1e3 / ns;
    println!("{what}: {count} events, {:.1} M/s, {:.1} M/s of CPU time", rate(wall_ns), rate(cpu));
}
