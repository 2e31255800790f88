//! The text of ftrace and trace-cmd: real lines, odd ones, and events written and read back.

use std::fs;
use std::path::Path;

use nofrag_host::trace::{
    Event, EventKind, KINDS, Loss, MAX_FIELDS, NO_FRAME, TextWriter, TraceMeta, TraceText, View,
    open,
};
use proptest::prelude::*;

use crate::raw_pages::all;

fn read(text: &str) -> (Vec<Event>, Loss) {
    let input = std::io::BufReader::with_capacity(50, text.as_bytes());
    all(&mut TraceText::new(input, "text".into(), &TraceMeta::default()))
}

fn one(line: &str) -> Event {
    let (events, loss) = read(line);
    assert_eq!((events.len(), loss), (1, Loss::default()), "{line}");
    events[0]
}

/// Parses lines of a 6.18 kernel: names with blanks, dashes and colons, with and without flags and thread groups.
#[test]
fn heads_of_lines() {
    let tail = "mm_page_free: page=00000000f439b067 pfn=0x1c89a4 order=2";
    let heads = [
        ("            bash-22363   [000] ..... 37156.497082: ", (22363, 0, 37_156_497_082_000)),
        (" opt 8mf6l4k6w07-22238   [001] d..1. 37156.548991: ", (22238, 1, 37_156_548_991_000)),
        ("     kworker/1:0-19497   [101]  37156.640115: ", (19497, 101, 37_156_640_115_000)),
        ("     a-1 [7] b-c-12 (     12) [003] ...1. 1.5: ", (12, 3, 1_500_000_000)),
        ("          <idle>-0       (-------) [002] dN.2.   0.000001: ", (0, 2, 1000)),
        ("nofrag-rec:   bash-10711 [001] 38123.352842519: ", (10711, 1, 38_123_352_842_519)),
        ("bash-7 [001] 123456789: ", (7, 1, 123_456_789)),
    ];
    for (head, (pid, cpu, at)) in heads {
        let event = one(&format!("{head}{tail}\n"));
        assert_eq!((event.pid, event.cpu, event.at), (pid, cpu, at), "{head}");
        assert_eq!(event.view(), View::PageFree { pfn: 0x1c_89a4, order: 2 });
    }
}

/// Parses the ranges from which compaction took pages and to which it moved them, as the kernel and as tools print
/// them. Source: docs/sources/trace.md#t9.
#[test]
fn ranges_of_compaction() {
    for (rest, kind) in [
        (
            "mm_compaction_isolate_migratepages: range=(0x9f600 ~ 0x9f800) nr_scanned=512 nr_taken=48",
            EventKind::CompactionIsolateMigratepages,
        ),
        (
            "mm_compaction_isolate_freepages: start_pfn=0x9f600 end_pfn=0x9f800 nr_scanned=512 nr_taken=48",
            EventKind::CompactionIsolateFreepages,
        ),
        (
            "mm_compaction_fast_isolate_freepages: range=(0x9f600 ~ 0x9f800) nr_scanned=512 nr_taken=48",
            EventKind::CompactionFastIsolateFreepages,
        ),
    ] {
        let event = one(&format!("kcompactd0-40 [000] ..... 1.000000: {rest}"));
        assert_eq!(event.kind, kind);
        assert_eq!(event.values[..4], [0x9_f600, 0x9_f800, 512, 48], "{rest}");
    }
}

/// Parses lines that a 6.18 kernel and its trace-cmd printed, one of each form.
#[test]
fn lines_of_each_form() {
    let view = |rest: &str| one(&format!("bash-1 [000] ..... 1.000000: {rest}")).view();
    let alloc = |pfn, gfp| View::PageAlloc { pfn, order: 0, gfp, migratetype: 2 };
    assert_eq!(
        view(
            "mm_page_alloc: page=00000000b1ef9a3d pfn=0x6022b7 order=0 migratetype=2 \
              gfp_flags=GFP_KERNEL|__GFP_RECLAIMABLE|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP"
        ),
        alloc(Some(0x60_22b7), 0x5_2cd0),
    );
    assert_eq!(
        view("mm_page_alloc: page=(null) pfn=0x0 order=0 migratetype=2 gfp_flags=none"),
        alloc(None, 0),
    );
    // `trace-cmd report -R` names the fields themselves.
    assert_eq!(
        view("mm_page_alloc:        pfn=0x487938 order=0 gfp_flags=0x440dc0 migratetype=2"),
        alloc(Some(0x48_7938), 0x44_0dc0),
    );
    // Kernels before 5.15 print frames in decimal.
    let free = "mm_page_free: page=00000000f439b067 pfn=4660 order=1";
    assert_eq!(view(free), View::PageFree { pfn: 0x1234, order: 1 });
    assert_eq!(
        view(
            "mm_migrate_pages: nr_succeeded=16 nr_failed=2 nr_thp_succeeded=3 nr_thp_failed=0 \
              nr_thp_split=0 nr_split=0 mode=MIGRATE_SYNC reason=compaction"
        ),
        View::MigratePages { succeeded: 16, failed: 2, thp_succeeded: 3, mode: 2, reason: 0 },
    );
    let munmap = View::Munmap { addr: 0x7f15_cc66_c000, length: 0x9307 };
    assert_eq!(view("sys_munmap(addr: 0x7f15cc66c000, len: 0x9307)"), munmap);
    assert_eq!(view("sys_enter_munmap:     addr: 0x7f15cc66c000, len: 0x00009307"), munmap);
    let begin = view(
        "mm_compaction_begin: zone_start=0x1 migrate_pfn=0x2 free_pfn=0xe00 zone_end=0x1000, mode=sync",
    );
    let View::CompactionBegin(run) = begin else { panic!("{begin:?}") };
    assert_eq!((run.zone_start, run.migrate_pfn, run.free_pfn), (1, 2, 0xe00));
    assert!(run.zone_end == 0x1000 && run.sync);
    let vmap = view(
        "alloc_vmap_area: va_start: 18446683600729210880 size=20480 align=16384 \
         vstart=0xffffc90000000000 vend=0xffffe8ffffffffff failed=0",
    );
    assert!(
        matches!(vmap, View::VmapAlloc { addr: 0xffff_c900_097d_0000, size: 20_480, .. }),
        "{vmap:?}"
    );
    let none = view(
        "vm_unmapped_area: addr=0x0 err=-12 total_vm=0x47 flags=0x1 len=0x35000 lo=0x1000 \
         hi=0x7f15cc6b5000 mask=0x0 ofs=0x0",
    );
    assert!(matches!(none, View::UnmappedArea { addr: -12, length: 0x3_5000, .. }), "{none:?}");
    let values = |rest: &str| one(&format!("bash-1 [000] 1.0: {rest}")).values;
    let finished = values("mm_compaction_finished: node=0 zone=DMA      order=-1 ret=continue");
    assert_eq!(finished[..4], [0, 0, u64::MAX, 4]);
    for mm in ["00000000a0750fd7", "0000000012345678", "0xffff888108c58680", "ffff888108c58680"] {
        let number = u64::from_str_radix(mm.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(values(&format!("exit_mmap: mt_mod {mm}, DESTROY"))[0], number);
    }
}

/// Counts lost events, and lines that are cut, damaged, too long or name an unknown flag; comments and events of other
/// kinds are no loss.
#[test]
fn what_cannot_be_read_is_counted() {
    let free =
        |at: u32| format!("bash-1 [000] ..... {at}.000000: mm_page_free: page=0 pfn=0x5 order=0\n");
    let text = [
        "# tracer: nop\n#\n\ncpus=2\n##### CPU 1 buffer started ####\n".to_owned(),
        free(1),
        "CPU:1 [LOST 312 EVENTS]\n".to_owned(),
        "CPU:0 [LOST EVENTS]\nCPU:1 [7 EVENTS DROPPED]\nCPU:1 [EVENTS DROPPED]\n".to_owned(),
        free(2),
        // Other events are not a loss.
        "bash-1 [000] ..... 2.0: sched_switch: prev_comm=a prev_pid=1\n".to_owned(),
        "bash-1 [000] ..... 2.0: sys_munmap -> 0x0\n".to_owned(),
        // The next lines are losses.
        "bash-1 [000] ..... 2.0: mm_page_fr\n".to_owned(),
        "bash-1 [000] ..... 2.0: mm_page_free: page=0 pfn=0x5\n".to_owned(),
        "bash-1 [000] ..... 2.0: mm_page_free: page=0 pfn=0x5 order=x\n".to_owned(),
        "bash-1 [000\n".to_owned(),
        format!("{}\n", "x-1 (".repeat(9000)),
        // The other flags of the line are read.
        "bash-1 [000] 3.0: mm_page_alloc: page=1 pfn=0x5 order=0 migratetype=0 \
         gfp_flags=GFP_KERNEL|__GFP_NOVEL\n"
            .to_owned(),
        "CPU:3 [LOST 1 EVENTS]".to_owned(),
    ];
    let (events, loss) = read(&text.concat());
    assert_eq!(loss, Loss { events: 320, gaps: 5, unreadable: 6 });
    let lost = |at, cpu, count| Event::lost(at, cpu, count);
    let two = 2_000_000_000;
    let expected = [
        lost(two, 1, Some(312)),
        lost(two, 0, None),
        lost(two, 1, Some(7)),
        lost(two, 1, None),
        one(&free(2)),
    ];
    assert_eq!(events[0], one(&free(1)));
    assert_eq!(events[1..6], expected);
    assert!(matches!(events[6].view(), View::PageAlloc { gfp: 0xcc0, .. }));
    assert_eq!(events[7..], [lost(3_000_000_000, 3, Some(1))]);
}

/// Generates a value that the field of this name can have.
fn value(name: &'static str) -> BoxedStrategy<u64> {
    match name {
        "sync" | "failed" | "change_ownership" | "percpu_refill" => (0_u64..2).boxed(),
        "defer_shift" => (0_u64..64).boxed(),
        // Frame 0 is never allocated, and no kernel prints all bits of a frame.
        "pfn" => prop_oneof![1_u64..1 << 40, Just(NO_FRAME)].boxed(),
        _ => prop_oneof![any::<u64>(), 0_u64..12, any::<i32>().prop_map(|v| i64::from(v) as u64)]
            .boxed(),
    }
}

fn event() -> impl Strategy<Value = Event> {
    let rows: Vec<_> = KINDS.iter().filter(|row| row.kind != EventKind::Lost).collect();
    let row = prop::sample::select(rows);
    let rest = (0_u64..1 << 60, 0_i32.., any::<u16>());
    let values = row.prop_flat_map(|row| {
        let values: Vec<_> = row.fields.iter().map(|field| value(field.name)).collect();
        (Just(row.kind), values)
    });
    (values, rest).prop_map(|((kind, some), (at, pid, cpu))| {
        let mut values = [0; MAX_FIELDS];
        values[..some.len()].copy_from_slice(&some);
        Event { at, pid, cpu, kind, values }
    })
}

fn names() -> impl Strategy<Value = Vec<(i32, String)>> {
    prop::collection::vec((0_i32..50, "[ -~]{1,15}"), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Checks that an event that is written and read is the same, to the microsecond.
    #[test]
    fn events_survive_text(event in event(), names in names(), gap in prop::option::of(1_u64..)) {
        // No reader can separate a name that reads as a whole head of its own.
        prop_assume!(!names.iter().any(|(_, name)| name.contains('[')));
        let writer = TextWriter::new(&TraceMeta { names, ..TraceMeta::default() });
        let at = (event.at + 500) / 1000 * 1000;
        let expected = [Event::lost(at, event.cpu, gap), Event { at, ..event }];
        let mut text = TextWriter::header().to_owned();
        expected.iter().for_each(|event| writer.add_line(event, &mut text));
        let (read, loss) = read(&text);
        let lost = Loss { events: gap.unwrap_or(0), gaps: 1, unreadable: 0 };
        prop_assert_eq!((&read[..], loss), (&expected[..], lost), "{}", text);
    }
}

/// Checks that the kind of a file is known by its content, packed or not.
#[test]
fn text_is_known_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pasted");
    let line = "bash-1 [001] 1.5: mm_page_free: page=0 pfn=0x5 order=0\n";
    let count = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let mut trace = open(&path).ok()?;
        Some((all(&mut *trace.events).0.len(), trace.meta.cpus.len()))
    };
    assert_eq!(count(line.as_bytes()), Some((1, 0)));
    let with_head = format!("cpus=2\n{line}{line}");
    assert_eq!(count(with_head.as_bytes()), Some((2, 2)));
    let with_head =
        format!("# tracer: nop\n#\n# entries-in-buffer/entries-written: 1/1   #P:4\n{line}");
    assert_eq!(count(with_head.as_bytes()), Some((1, 4)));
    assert_eq!(count(&zstd::encode_all(with_head.as_bytes(), 1).unwrap()), Some((1, 4)));
    let of_perf = b"ls 22365 [001] 37156.503029: kmem:mm_page_free: page=0 pfn=0x5 order=0\n";
    assert_eq!(count(of_perf), Some((1, 0)));
    assert_eq!(count(b"anything-else\n"), None);
    assert_eq!(count(b""), None);
}

/// Checks that reports of `trace-cmd report` are read with the same events as its files: with raw fields (`-t -R`), and
/// in the usual form, which has times in microseconds and another pointer of an address space.
#[test]
fn reports_of_trace_cmd_are_read_as_its_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/trace_dat");
    let copy = tempfile::tempdir().unwrap();
    let mut pasted = 0;
    for name in ["v6", "v7-plain", "v7-zstd"] {
        let unpacked = copy.path().join(name);
        match fs::read(folder.join(format!("{name}.dat"))) {
            Ok(bytes) => fs::write(&unpacked, bytes).unwrap(),
            Err(_) => {
                let packed = fs::File::open(folder.join(format!("{name}.dat.zst"))).unwrap();
                fs::write(&unpacked, zstd::decode_all(packed).unwrap()).unwrap();
            }
        }
        let (expected, _) = all(&mut *open(&unpacked).unwrap().events);
        assert!(expected.len() > 100, "{name}");
        let (read, loss) = all(&mut *open(&folder.join(format!("{name}.txt.zst"))).unwrap().events);
        assert_eq!(loss.unreadable, 0, "{name}");
        assert!(read == expected, "{name}: the raw report differs");
        let Ok(mut trace) = open(&folder.join(format!("{name}.report.zst"))) else { continue };
        let (read, loss) = all(&mut *trace.events);
        assert_eq!((read.len(), loss.unreadable), (expected.len(), 0), "{name}");
        for (read, of_file) in read.iter().zip(&expected) {
            let mut expected = Event { at: (of_file.at + 500) / 1000 * 1000, ..*of_file };
            if read.kind == EventKind::ExitMmap {
                expected.values = read.values;
            }
            assert_eq!(*read, expected, "{name}");
        }
        pasted += read.len();
    }
    assert!(pasted > 100, "{pasted} events of reports without raw fields");
}

/// Checks that a text that the kernel wrote is written again unchanged, except for the parts that an event does not
/// keep.
#[test]
fn the_writer_words_as_the_kernel() {
    let lines = [
        "            bash-22363   [000] 37156.497082: mm_page_pcpu_drain: page=ffffea0005a00000 \
         pfn=0x168000 order=3 migratetype=1",
        "            bash-22363   [001] 37156.504578: mm_compaction_end: zone_start=0x1 migrate_pfn=0xe00 \
         free_pfn=0xe00 zone_end=0x1000, mode=sync status=complete",
        "            bash-22363   [001] 37156.504439: mm_compaction_finished: node=0 zone=DMA      order=-1 \
         ret=continue",
        "     kworker/1:0-19497   [001] 37156.640115: free_vmap_area_noflush: va_start=0xffffc90006808000 \
         nr_lazy=2048 nr_lazy_max=16384",
        "          <idle>-0       [001] 37156.640115: mm_vmscan_kswapd_sleep: nid=0",
        "           <...>-7       [001]     1.000001: mm_compaction_deferred: node=0 zone=Normal   order=9 \
         order_failed=9 consider=1 limit=64",
        "           <...>-7       [001]     1.000001: mm_compaction_isolate_freepages: range=(0x9f600 ~ 0x9f800) \
         nr_scanned=512 nr_taken=48",
        "           <...>-7       [001]     1.000001: sys_munmap(addr: 0x7f15cc66c000, len: 0x9307)",
        "CPU:1 [LOST 3 EVENTS]",
        "           <...>-7       [001]     1.000001: mm_page_alloc_extfrag: page=ffffea0000000040 pfn=0x1 \
         alloc_order=0 fallback_order=8 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 \
         fragmenting=1 change_ownership=0",
    ];
    let names = vec![(22363, "bash".to_owned()), (19497, "kworker/1:0".to_owned())];
    let writer = TextWriter::new(&TraceMeta { names, ..TraceMeta::default() });
    let (events, loss) = read(&lines.join("\n"));
    assert_eq!((events.len(), loss.unreadable), (lines.len(), 0));
    for (event, line) in events.iter().zip(lines) {
        let mut text = String::new();
        writer.add_line(event, &mut text);
        assert_eq!(text, format!("{line}\n"));
    }
}
