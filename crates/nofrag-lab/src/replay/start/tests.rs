//! The start of a replay beside the kernel's own counts.

use std::path::{Path, PathBuf};

use nofrag::check::Check;
use nofrag::page::{FragmentationPolicy, PageCounters, ZoneId};
use nofrag_host::budget::Budget;
use nofrag_host::snapshot::{Files, Snapshot, ZoneIndices, ZoneInfo};
use nofrag_host::trace::{Event, Loss, Trace, TraceError};

use super::super::Input;
use super::*;

const LINUX_6_1: FragmentationPolicy = FragmentationPolicy::LINUX_6_1;
const STRICT: FragmentationPolicy = FragmentationPolicy::LINUX_6_12;

/// Returns the files of one moment of the raw recording; `None`, and a printed reason, where it is missing.
fn files(moment: &str) -> Option<Files> {
    let Some(folder) = std::env::var_os("NOFRAG_RAW_RECORDING").map(PathBuf::from) else {
        println!("skipped: NOFRAG_RAW_RECORDING names no folder of a raw recording");
        return None;
    };
    Some(Files::read_folder(&folder.join(moment)).expect("it can be read"))
}

/// Returns the blocks by zone and order, as buddyinfo would show them for an allocator.
fn buddyinfo<E: EventSink>(pages: &PageAllocator<E>) -> Vec<Vec<u64>> {
    let blocks = |zone, order| {
        Migratetype::ALL.map(|kind| pages.free_blocks(zone, order, kind)).iter().sum()
    };
    pages.zones().map(|zone| Order::all().map(|order| blocks(zone.id, order)).collect()).collect()
}

struct Nothing;

impl EventSource for Nothing {
    fn read(&mut self, _into: &mut Vec<Event>) -> Result<bool, TraceError> {
        Ok(false)
    }

    fn loss(&self) -> Loss {
        Loss::default()
    }
}

fn host_of(snapshot: &Snapshot<'_>, seed: u64) -> Result<Host, ReplayError> {
    let room = &mut Room::new(Path::new("test"), Budget::of_length(0));
    Host::of(snapshot, seed, None, &mut Nothing, room)
}

/// Returns a host as the raw recording shows it at a moment.
fn recorded(moment: &str, change: impl FnOnce(&mut Snapshot<'_>)) -> Option<Host> {
    let files = files(moment)?;
    let mut snapshot = Snapshot::parse(&files);
    change(&mut snapshot);
    Some(host_of(&snapshot, 1).expect("its files say enough"))
}

fn load(host: &Host, policy: FragmentationPolicy, percent: u32) -> Start<()> {
    let start = host.start(policy, &Settings::default(), percent, ()).expect("it fits");
    start.pages.check().expect("the laws hold");
    start
}

/// Checks a zone's indices against those of buddyinfo, and against those that the kernel gave a moment before or after.
fn check_indices(pages: &PageAllocator, id: ZoneId, snapshot: &Snapshot<'_>, zone: &ZoneInfo) {
    let blocks = snapshot.blocks(&zone.zone).expect("buddyinfo has it");
    for order in Order::all() {
        let ours = pages.indices(id, order).expect("it is a zone");
        assert_eq!(ours, blocks.indices(order.get().into()), "order {order}");
        let of = |rows: &[ZoneIndices]| {
            let row = rows.iter().find(|row| row.zone == zone.zone);
            row.expect("the kernel shows it").thousandths[order.index()]
        };
        // buddyinfo and this file were not read at one moment: small blocks came and went in DMA32 between them.
        let off = (ours.unusable as i64).abs_diff(of(&snapshot.unusable));
        let most = if zone.zone.name == "DMA" { 0 } else { 25 };
        assert!(off <= most, "order {order} of zone {}: {off}/1000", zone.zone.name);
        let fragmentation = ours.fragmentation.unwrap_or(-1000);
        assert_eq!(fragmentation, of(&snapshot.extfrag), "order {order}");
    }
}

/// Checks blocks, pages and indices against the kernel's counts at the same moment.
fn check_like_the_kernel(moment: &str) {
    let Some(files) = files(moment) else { return };
    let snapshot = Snapshot::parse(&files);
    let host = host_of(&snapshot, 1).expect("its files say enough");
    for policy in [LINUX_6_1, STRICT, FragmentationPolicy::NOFRAG] {
        let Start { pages, .. } = load(&host, policy, 100);
        let said: Vec<Vec<u64>> = snapshot.buddy.iter().map(|zone| zone.blocks.clone()).collect();
        assert_eq!(buddyinfo(&pages), said, "{moment}");
        for (ours, said) in pages.zones().zip(snapshot.populated()) {
            assert_eq!(
                (ours.free.get(), ours.managed.get()),
                (said.free, said.managed),
                "{moment}"
            );
            assert_eq!(ours.present.get(), said.present, "{moment}");
            check_indices(&pages, ours.id, &snapshot, said);
        }
        assert_eq!(pages.counters(), &PageCounters::default(), "nothing was asked for");
    }
}

#[test]
fn free_memory_is_what_the_kernel_showed() {
    check_like_the_kernel("start");
    check_like_the_kernel("end");
}

#[test]
fn types_of_pageblocks_and_lists_are_those_that_the_kernel_counted() {
    for moment in ["start", "end"] {
        let Some(files) = files(moment) else { return };
        let snapshot = Snapshot::parse(&files);
        let host = host_of(&snapshot, 1).expect("its files say enough");
        let Start { pages, .. } = load(&host, LINUX_6_1, 100);
        for zone in pages.zones() {
            let said =
                wanted(&snapshot, &host.memory.zones[zone.id.index()].name).expect("it says");
            let mut counts = ByType::<u64>::default();
            for block in pages.pageblocks().filter(|block| block.zone == zone.id) {
                counts[block.migratetype.index()] += 1;
            }
            assert_eq!(counts, said.pageblocks, "{moment}");
        }
        let quality = host.quality();
        assert_eq!((quality.types_off, quality.managed_off, quality.blocks_off), (0, 0, 0));
        assert!(quality.freed + quality.taken < quality.managed / 500, "{quality:?}");
        assert!(quality.strangers < quality.in_use / 100, "{quality:?}");
        assert!(quality.misplaced < quality.managed / 500, "{quality:?}");
        assert_eq!(pages.list_mismatches().get(), quality.relisted);
        assert_eq!(load(&host, STRICT, 100).pages.list_mismatches().get(), 0);
    }
}

#[test]
fn watermarks_are_near_those_of_the_host() {
    let Some(host) = recorded("start", |_| ()) else { return };
    // The host's were made while it came up, when its zones had less memory.
    assert!(host.quality().marks_off <= 18, "{:?}", host.quality());
}

#[test]
fn every_seed_gives_the_same_start_each_time() {
    let Some(files) = files("start") else { return };
    let snapshot = Snapshot::parse(&files);
    let types = |seed| host_of(&snapshot, seed).expect("a host").types;
    assert_eq!(types(7), types(7));
}

/// Checks the memory in use with `percent` of the host's memory.
fn check_size(host: &Host, percent: u32) -> Resized {
    let Start { pages, places, resized } = load(host, LINUX_6_1, percent);
    let kept = host.in_use.iter().zip(&places).filter(|(_, place)| place.is_some());
    let kept: u64 = kept.map(|(held, _)| held.order.pages()).sum();
    assert_eq!(kept + resized.dropped + resized.swapped, host.quality().in_use);
    for (held, place) in host.in_use.iter().zip(&places) {
        let gone = matches!(held.usage, FrameUse::File | FrameUse::Anon | FrameUse::Shmem);
        assert!(place.is_some() || gone, "{held:?} cannot be given up");
    }
    let managed: u64 = pages.zones().map(|zone| zone.managed.get()).sum();
    let wanted = host.quality().managed * u64::from(percent) / 100;
    assert!(managed.abs_diff(wanted) < wanted / 20, "{percent} %: {managed}, not {wanted}");
    let free: u64 = pages.zones().map(|zone| zone.free.get()).sum();
    assert_eq!(free, managed - kept);
    let high: u64 = pages.zones().map(|zone| zone.watermarks.high).sum();
    assert!(free >= high || percent >= 100, "{percent} %: {free} pages are free, not {high}");
    resized
}

#[test]
fn less_memory_holds_what_cannot_be_given_up() {
    let Some(host) = recorded("start", |_| ()) else { return };
    let three_quarters = check_size(&host, 75);
    assert!(three_quarters.dropped > 0 && three_quarters.swapped == 0, "{three_quarters:?}");
    let half = check_size(&host, 50);
    assert!(half.dropped > three_quarters.dropped && half.displaced > 0, "{half:?}");
    let error = host
        .start(LINUX_6_1, &Settings::default(), 5, ())
        .expect_err("it holds not even the kernel's own");
    assert!(error.to_string().contains("name a larger size"), "{error}");
    assert!(host.start(LINUX_6_1, &Settings::default(), 0, ()).is_err());
}

#[test]
fn more_memory_is_free() {
    let Some(host) = recorded("start", |_| ()) else { return };
    assert_eq!(check_size(&host, 150), Resized::default());
    let zones: Vec<ZoneKind> =
        load(&host, STRICT, 800).pages.zones().map(|zone| zone.kind).collect();
    assert_eq!(zones, [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal], "beyond 4 GiB");
    check_size(&host, 800);
}

#[test]
fn without_a_map_of_frames_the_counts_hold() {
    let Some(host) = recorded("start", |snapshot| snapshot.pages = None) else { return };
    let Some(files) = files("start") else { return };
    let said: Vec<_> = Snapshot::parse(&files).buddy.into_iter().map(|zone| zone.blocks).collect();
    assert_eq!(buddyinfo(&load(&host, STRICT, 100).pages), said);
    assert!(host.quality().cautions.iter().any(|caution| caution.contains("kpageflags")));
    assert_eq!(host.quality().types_off, 0);
}

#[test]
fn without_counts_by_type_content_decides() {
    let Some(host) = recorded("start", |snapshot| snapshot.types = None) else { return };
    assert!(host.quality().cautions.iter().any(|caution| caution.contains("pagetypeinfo")));
    load(&host, STRICT, 100);
}

#[test]
fn what_is_not_known_is_said() {
    let Some(files) = files("start") else { return };
    let mut snapshot = Snapshot::parse(&files);
    (snapshot.pages, snapshot.buddy) = (None, Vec::new());
    let error = host_of(&snapshot, 1).expect_err("nothing says what was free");
    assert!(error.to_string().contains("nofrag record"), "{error}");
    let error = host_of(&Snapshot::default(), 1).expect_err("it is empty");
    assert!(error.to_string().contains("nofrag record"), "{error}");
    snapshot = Snapshot::parse(&files);
    snapshot.zones.clear();
    let error = host_of(&snapshot, 1).expect_err("there is no zone");
    assert!(error.to_string().contains("zoneinfo"), "{error}");
}

#[test]
fn a_zone_ends_with_the_frames_that_are_known() {
    let Some(said) = recorded("start", |_| ()) else { return };
    let absurd = recorded("start", |snapshot| {
        let zones = snapshot.zones.iter_mut().filter(|zone| zone.managed > 0);
        zones.last().expect("it has memory").spanned = u64::MAX / 2;
    });
    let absurd = absurd.expect("the files are there");
    // kpageflags goes on to the end of its last section.
    let zone = absurd.memory.zones.last().expect("there are zones");
    assert_eq!(zone.span.end % (1 << 15), 0, "{:?}", zone.span);
    assert_eq!(absurd.memory.managed(), said.memory.managed());
    assert_eq!(absurd.in_use(), said.in_use());
}

/// Checks frames without memory that Linux 7.2 shows without any flag, as it does memory of its own. They once were
/// taken for that, and a guest of 768 MiB, whose zone DMA32 ends below 4 GiB, for one with 3 GiB of kernel memory.
#[test]
fn frames_beside_the_memory_are_holes_whatever_their_flags() {
    const NONE: u64 = 0;
    const RESERVED: u64 = 1 << 32;
    let flags = [RESERVED, NONE, NONE, 1 << 10, NONE, RESERVED, NONE, 1 << 12];
    let mut files = Files::default();
    files.insert("kpageflags", flags.iter().flat_map(|word: &u64| word.to_le_bytes()).collect());
    let iomem = b"00000800-00003fff : System RAM\n00005000-000063ff : System RAM\n".to_vec();
    let check = |files: &Files, expected: [FrameUse; 8]| {
        let snapshot = Snapshot::parse(files);
        let pages = snapshot.pages.expect("it is there");
        assert_eq!(with_memory(&snapshot, &pages), expected);
    };
    use FrameUse::{Anon, Free, Kernel, NoPage, Reserved};
    check(&files, [Reserved, Kernel, Kernel, Free, Kernel, Reserved, Kernel, Anon]);
    files.insert("iomem", iomem);
    check(&files, [NoPage, Kernel, Kernel, Free, NoPage, Reserved, NoPage, Anon]);
}

/// Compares the lists of CPUs at the start of the shipped recording with zoneinfo, which counts 35 and 501 pages on
/// those of its zones. They began empty, and their pages were in use until they were asked for.
#[test]
fn lists_of_cpus_begin_as_the_kernel_left_them() {
    let Trace { meta, mut events, mut room } = Input::Shipped.open().expect("it opens");
    let snapshot = Snapshot::parse(&meta.start().expect("it has a snapshot").files);
    let host = Host::of(&snapshot, 1, None, &mut *events, &mut room).expect("its files say enough");
    let Start { pages, .. } = load(&host, LINUX_6_1, 100);
    let listed: Vec<u64> = pages.zones().map(|zone| pages.per_cpu_pages(zone.id).get()).collect();
    assert_eq!(listed, [28, 465]);
    assert_eq!((host.quality().per_cpu, host.quality().per_cpu_unknown), (536, 43));
    let smaller = load(&host, LINUX_6_1, 90).pages;
    assert!(smaller.zones().all(|zone| smaller.per_cpu_pages(zone.id).get() == 0));
}

#[test]
fn a_host_of_which_nothing_is_known_is_empty() {
    let host = Host::empty(Pfn(0x12_3456), 4).expect("it is a machine");
    let Start { pages, places, .. } = load(&host, FragmentationPolicy::LINUX_7_2, 100);
    assert!(places.is_empty());
    let zones: Vec<u64> = pages.zones().map(|zone| zone.free.get()).collect();
    assert_eq!(zones, [1 << 20, 0x2_3800]);
    assert_eq!(host.map().cpus().len(), 4);
}

/// Shares three CPUs among two nodes. All CPUs once were node 0's, each of which then kept half as much of that node on
/// its lists as the kernel's did.
#[test]
fn each_node_has_its_share_of_the_cpus() {
    let zone = |node, span| Zone {
        name: ZoneName { node, name: "DMA32".to_owned() },
        kind: ZoneKind::Dma32,
        span,
        holes: Vec::new(),
        reserved: Vec::new(),
    };
    let zones = vec![zone(0, 4096..8192), zone(1, 8192..12_288)];
    let map = Memory { zones, cpus: vec![0, 1, 2] }.map().expect("a map");
    let cpus: Vec<&[u32]> = map.nodes().iter().map(|node| &node.cpus[..]).collect();
    assert_eq!(cpus, [&[0, 1][..], &[2]]);
}
