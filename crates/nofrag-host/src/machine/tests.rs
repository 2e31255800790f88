//! The report on drawn machines.

use super::huge::Basis;
use super::requests::{Cause, Outcome, RequestKind};
use super::*;
use crate::finding::Severity;
use crate::snapshot::Files;

/// A machine with one zone.
struct Drawn {
    /// Number of free blocks by order.
    blocks: &'static [u64],
    /// Watermarks in force, in pages: min, low and high, with the boost that each contains.
    marks: [u64; 3],
    boost: u64,
}

const PAGE_KIB: u64 = 4;

impl Drawn {
    const fn new(blocks: &'static [u64]) -> Drawn {
        Drawn { blocks, marks: [0, 0, 0], boost: 0 }
    }

    fn free(&self) -> u64 {
        self.blocks.iter().zip(0_u32..).map(|(blocks, order)| blocks << order).sum()
    }

    fn files(&self) -> Files {
        let (free, [min, low, high], boost) = (self.free(), self.marks, self.boost);
        let mut files = Files::default();
        let mut add = |name: &str, text: String| files.insert(name, text.into_bytes());
        let row: Vec<String> = self.blocks.iter().map(u64::to_string).collect();
        add("buddyinfo", format!("Node 0, zone   Normal {}\n", row.join(" ")));
        add(
            "zoneinfo",
            format!(
                "Node 0, zone   Normal\n  pages free     {free}\n        boost    {boost}\n        \
                 min      {min}\n        low      {low}\n        high     {high}\n        \
                 spanned  1048576\n        present  1048576\n        managed  1048576\n        \
                 protection: (0)\n  start_pfn:           0\n"
            ),
        );
        add("meminfo", format!("MemTotal: 4194304 kB\nMemFree: {} kB\n", free * PAGE_KIB));
        add("vmstat", format!("nr_free_pages {free}\n"));
        files
    }
}

fn of(files: Files) -> Machine {
    survey(&Sources::of_files(files)).expect("a drawn machine is small")
}

fn request(machine: &Machine, kind: RequestKind) -> &Request {
    machine.requests.iter().find(|request| request.kind == kind).expect("every kind is asked")
}

fn has_finding(machine: &Machine, id: &str) -> Option<Severity> {
    machine.findings.iter().find(|finding| finding.id == id).map(|finding| finding.severity)
}

/// Checks the outcome for one order, and the sentence for it.
fn check_answer(drawn: &Drawn, kind: RequestKind, order: usize, outcome: Outcome, why: &str) {
    let machine = of(drawn.files());
    let answer = &request(&machine, kind).orders[order];
    assert_eq!((answer.outcome, answer.why.as_str()), (outcome, why));
}

const SINGLES: &[u64] = &[1024, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// For order 9, a zone of 1024 single pages has the indices 998 and 1000 (docs/sources/trace.md#oracle-1).
#[test]
fn indices_of_a_machine_of_single_pages() {
    let machine = of(Drawn::new(SINGLES).files());
    let row = machine.zones[0].orders[9];
    assert_eq!((row.fragmentation, row.unusable, row.available), (Some(998), 1000, 0));
}

#[test]
fn requests_say_what_they_wait_for() {
    use Outcome::{AfterCompaction, AfterReclaim, Fails, Served};
    use RequestKind::{Atomic, Kernel, User};
    let pieces = Drawn::new(SINGLES);
    check_answer(&pieces, Kernel, 0, Served, "order 0 unmovable: served");
    let why = "order 4 unmovable: would need compaction: index 0.94";
    check_answer(&pieces, Kernel, 4, AfterCompaction, why);
    let why = "order 4 unmovable without waiting: would fail: index 0.94";
    check_answer(&pieces, Atomic, 4, Fails, why);
    let whole = Drawn::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    check_answer(&whole, User, 10, Served, "order 10 movable: served");
    // Free, and kept: the test is that of the watermarks, not a look at the lists.
    let kept = Drawn { marks: [4000, 5000, 6000], ..whole };
    let why = "order 10 movable: would need reclaim: Normal has 16 MiB to count on, and 15.6 MiB must stay";
    check_answer(&kept, User, 10, AfterReclaim, why);
    let boosted = Drawn { marks: [5000, 6000, 7000], boost: 4500, ..Drawn::new(whole.blocks) };
    let why = "order 0 unmovable without waiting: served";
    check_answer(&boosted, Atomic, 0, Served, why);
    let why = "order 9 movable: would need reclaim: only the boost of the watermarks is against it";
    check_answer(&boosted, User, 9, AfterReclaim, why);
}

/// Asks for order 9 where two blocks of order 8 are free: an index of 0 means lack of memory, so the kernel reclaims
/// and does not compact.
#[test]
fn a_small_index_is_lack_of_memory() {
    let drawn = Drawn::new(&[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
    let machine = of(drawn.files());
    let answer = &request(&machine, RequestKind::User).orders[9];
    assert_eq!((answer.outcome, answer.cause), (Outcome::AfterReclaim, Some(Cause::Fragmented)));
    assert_eq!(answer.index, Some(0));
}

#[test]
fn types_tell_a_request_that_has_to_mix() {
    let mut files = Drawn::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]).files();
    let types = "Page block order: 9\nPages per block:  512\n\n\
                 Free pages count per migrate type at order 0 1 2 3 4 5 6 7 8 9 10\n\
                 Node 0, zone Normal, type Unmovable 0 0 0 0 0 0 0 0 0 0 0\n\
                 Node 0, zone Normal, type Movable 0 0 0 0 0 0 0 0 0 2 0\n\
                 Node 0, zone Normal, type Reclaimable 0 0 0 0 0 0 0 0 0 0 0\n\n\
                 Number of blocks type Unmovable Movable Reclaimable\nNode 0, zone Normal 4 2040 4\n";
    files.insert("pagetypeinfo", types.as_bytes().to_vec());
    let machine = of(files);
    let kernel = request(&machine, RequestKind::Kernel);
    assert_eq!((kernel.largest_order, kernel.largest_unmixed_order), (Some(9), None));
    assert_eq!(kernel.orders[2].why, "order 2 unmovable: served, from a pageblock of another type");
    let user = request(&machine, RequestKind::User);
    assert_eq!((user.largest_order, user.largest_unmixed_order), (Some(9), Some(9)));
    let huge = machine.huge_pages.expect("there is a zone");
    assert_eq!((huge.blocks.now, huge.blocks.total, huge.basis), (2, 2048, Basis::PageblockTypes));
}

/// Checks that a report warns where `MemFree` is far above the sum of the blocks in buddyinfo
/// (docs/sources/trace.md#t1).
#[test]
fn free_memory_that_no_list_shows_is_a_finding() {
    let mut files = Drawn::new(SINGLES).files();
    assert_eq!(has_finding(&of(files.clone()), "free-lists-are-not-all"), None);
    files.insert("meminfo", b"MemTotal: 4194304 kB\nMemFree: 2000000 kB\n".to_vec());
    files.insert("vmstat", b"nr_free_pages 500000\n".to_vec());
    let machine = of(files);
    assert_eq!(has_finding(&machine, "free-lists-are-not-all"), Some(Severity::Warning));
    let evidence = "the blocks in buddyinfo sum up to 4 MiB, MemFree says 1.91 GiB";
    assert!(machine.findings.iter().any(|finding| finding.evidence == evidence));
}

/// Checks that a report notes counts of `>100000` as lower bounds (docs/sources/trace.md#t2).
#[test]
fn lists_that_were_not_counted_to_their_end_are_lower_bounds() {
    let mut files = Drawn::new(SINGLES).files();
    let types = "Page block order: 9\nNode 0, zone Normal, type Unmovable >100000 0\n\
                 Node 0, zone Normal, type Movable 24 0\n";
    files.insert("pagetypeinfo", types.as_bytes().to_vec());
    assert_eq!(has_finding(&of(files), "types-not-counted-to-end"), Some(Severity::Note));
}

/// Checks that a zone's boost is shown apart from the marks that contain it, and noted (docs/sources/trace.md#t3).
#[test]
fn boost_is_shown_and_told_from_the_marks() {
    let drawn = Drawn { marks: [110, 120, 130], boost: 100, ..Drawn::new(SINGLES) };
    let machine = of(drawn.files());
    assert_eq!(
        machine.zones[0].marks,
        Some(zones::Marks { min: 110, low: 120, high: 130, boost: Some(100) })
    );
    assert_eq!(has_finding(&machine, "watermarks-boosted"), Some(Severity::Note));
    assert_eq!(has_finding(&of(Drawn::new(SINGLES).files()), "watermarks-boosted"), None);
}

/// Checks that lazy areas are counted apart from live ones, and noted where most bytes are lazy
/// (docs/sources/trace.md#t5).
#[test]
fn unpurged_areas_stand_apart() {
    let mut files = Drawn::new(SINGLES).files();
    let area = |end: u64, rest: &str| format!("0xffffc90000000000-{end:#018x} {rest}\n");
    let text = area(0xffff_c900_0000_2000, "   8192 f+0x1/0x2 pages=1 vmalloc")
        + "0xffffc90000010000-0xffffc90000020000   65536 unpurged vm_area\n";
    files.insert("vmallocinfo", text.into_bytes());
    let machine = of(files);
    let (totals, lazy) = (machine.vmalloc.totals.unwrap(), machine.vmalloc.lazy.unwrap());
    assert_eq!((totals.live_bytes, lazy.bytes, totals.bytes), (8192, 65_536, 73_728));
    assert_eq!(has_finding(&machine, "lazy-dominates"), Some(Severity::Note));
}

/// Adds `types` as pagetypeinfo, each with its free blocks.
fn with_types(mut files: Files, order: u32, types: &[(&str, &str)]) -> Files {
    let mut text = format!("Page block order: {order}\n");
    for (name, blocks) in types {
        text += &format!("Node 0, zone Normal, type {name} {blocks}\n");
    }
    text += "Number of blocks type Unmovable Movable Reclaimable\nNode 0, zone Normal 4 2040 4\n";
    files.insert("pagetypeinfo", text.into_bytes());
    files
}

/// Surveys a kernel with pages of 64 KiB, which has orders up to 13 and pageblocks of that order: every order has an
/// answer.
#[test]
fn orders_above_the_cores_are_asked_for_too() {
    const WHOLE: &[u64] = &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
    const PIECES: &[u64] = &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0];
    let of_64k = |drawn: Drawn| {
        let mut files = drawn.files();
        let free = drawn.free();
        files.insert(
            "meminfo",
            format!("MemTotal: 67108864 kB\nMemFree: {} kB\n", free * 64).into(),
        );
        of(files)
    };
    let machine = of_64k(Drawn::new(WHOLE));
    assert_eq!((machine.host.page_bytes, machine.host.pageblock_order), (65_536, 13));
    let user = request(&machine, RequestKind::User);
    assert_eq!((user.largest_order, user.orders.len()), (Some(13), 14));
    assert_eq!(user.zones[0].largest_order, Some(13));
    assert_eq!((user.orders[13].bytes, has_finding(&machine, "no-huge-page")), (512 << 20, None));
    assert_eq!(has_finding(&machine, "scattered"), None);
    let machine = of_64k(Drawn::new(PIECES));
    let user = request(&machine, RequestKind::User);
    assert_eq!(user.largest_order, Some(12));
    assert_eq!(user.orders[13].why, "order 13 movable: would need compaction: index 0.73");
    assert_eq!(has_finding(&machine, "no-huge-page"), Some(Severity::Warning));
    // Free, and kept: three blocks of 512 MiB are free, and the watermark wants all but one.
    let machine = of_64k(Drawn { marks: [16_400, 16_400, 16_400], ..Drawn::new(WHOLE) });
    assert_eq!(machine.huge_pages.as_ref().map(|huge| huge.blocks.now), Some(0));
    let why = &request(&machine, RequestKind::User).orders[13].why;
    let expected = "order 13 movable: would need reclaim: Normal has 1.50 GiB to count on, and 1.00 GiB must stay";
    assert_eq!(why, expected);
}

/// Surveys buddyinfo alone: it gives the free blocks, but not the pages that a zone keeps, so the report has no
/// requests.
#[test]
fn buddyinfo_alone_shows_orders_and_indices() {
    let mut files = Files::default();
    files.insert("buddyinfo", b"Node 0, zone DMA 1 0\nNode 0, zone Normal 1024 0\n".to_vec());
    let machine = of(files);
    let labels: Vec<&str> = machine.zones.iter().map(|zone| zone.label.as_str()).collect();
    assert_eq!(labels, ["Normal", "DMA"]);
    let normal = &machine.zones[0];
    assert_eq!((normal.free_pages, normal.managed_pages, normal.marks), (1024, None, None));
    assert_eq!(normal.orders[1].unusable, 1000);
    assert!(machine.requests.is_empty() && machine.huge_pages.is_none());
}

/// Takes buddyinfo away: the free blocks are then unknown, which differs from having none, so nothing is said of
/// requests.
#[test]
fn without_buddyinfo_nothing_is_said_to_fail() {
    let whole = Drawn::new(SINGLES).files();
    let mut files = Files::default();
    let kept = whole.iter().filter(|(name, _)| *name != "buddyinfo");
    kept.for_each(|(name, bytes)| files.insert(name, bytes.to_vec()));
    let machine = of(files);
    assert_eq!(machine.zones[0].managed_pages, Some(1 << 20));
    assert!(machine.requests.is_empty() && machine.huge_pages.is_none(), "{machine:?}");
    assert!(machine.missing.iter().any(|missing| missing.path == "buddyinfo"));
}

/// Surveys a pagetypeinfo without the types of a zone, and one with only a part of them: the blocks can be had all the
/// same.
#[test]
fn a_cut_pagetypeinfo_takes_no_blocks_away() {
    let drawn = Drawn::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    for types in [&[][..], &[("Unmovable", "0 0 0 0 0 0 0 0 0 0 0")]] {
        let machine = of(with_types(drawn.files(), 9, types));
        assert_eq!(request(&machine, RequestKind::Kernel).largest_order, Some(9), "{types:?}");
        assert_eq!(has_finding(&machine, "small-blocks-wait"), None);
    }
}

/// Surveys a pagetypeinfo that was read when the blocks of buddyinfo were gone: no index gives a reason, so words do.
#[test]
fn files_of_two_moments_leave_no_reason_empty() {
    let none = "0 0 0 0 0 0 0 0 0 0 0";
    let types = [("Unmovable", none), ("Movable", "4 0 0 0 0 0 0 0 0 0 0"), ("Reclaimable", none)];
    let drawn = Drawn::new(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    let machine = of(with_types(drawn.files(), 9, &types));
    let answer = &request(&machine, RequestKind::User).orders[9];
    assert_eq!(answer.why, "order 9 movable: would need compaction: no block of 2 MiB is free");
}

/// Checks that buddyinfo bounds the length of a list that the kernel did not count to its end.
/// Source: docs/sources/trace.md#t2.
#[test]
fn a_bound_is_above_what_was_not_counted() {
    let drawn = Drawn::new(&[512_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let none = "0 0 0 0 0 0 0 0 0 0 0";
    let singles = ">100000 0 0 0 0 0 0 0 0 0 0";
    let types = [("Unmovable", none), ("Movable", singles), ("Reclaimable", none)];
    let huge = of(with_types(drawn.files(), 9, &types)).huge_pages.expect("it has a zone");
    assert_eq!((huge.blocks.now, huge.blocks.after_compaction), (0, 1000));
}

/// Surveys nodes 64 and 300: the core names 64 nodes, machines have more, and a request that names no node may use all.
#[test]
fn nodes_that_the_core_has_no_name_for_serve_requests() {
    for node in [64, 300] {
        let drawn = Drawn::new(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]).files();
        let mut files = Files::default();
        for (name, bytes) in drawn.iter() {
            let text = String::from_utf8_lossy(bytes).replace("Node 0", &format!("Node {node}"));
            files.insert(name, text.into_bytes());
        }
        let machine = of(files);
        assert_eq!(request(&machine, RequestKind::User).largest_order, Some(9), "node {node}");
        assert_eq!(machine.huge_pages.map(|huge| huge.blocks.now), Some(2), "node {node}");
    }
}

/// Surveys names with control characters: files captured elsewhere are printed here, and a terminal obeys such
/// characters.
#[test]
fn names_of_zones_and_types_have_no_control_characters() {
    let mut files = Drawn::new(SINGLES).files();
    files.insert("buddyinfo", b"Node 0, zone No\x1b[31mrmal 1 0\nNode 0, zone DMA 1 0\n".to_vec());
    files.insert("version", b"Linux version 6.1\x1b[2J\n".to_vec());
    let machine = of(with_types(files, 9, &[("Mov\x1b[31mable", "1 0")]));
    let json = serde_json::to_string(&machine).unwrap();
    assert!(!json.contains("\\u001b"), "{json}");
    assert_eq!(has_finding(&machine, "file-damaged"), Some(Severity::Warning));
}

/// Checks that both reports call a list of frames damaged that ends inside a frame.
#[test]
fn a_cut_list_of_frames_is_a_warning() {
    let mut files = Drawn::new(SINGLES).files();
    files.insert("kpageflags", vec![0; 8 * 1024 + 3]);
    let sources = Sources::of_files(files);
    let pages = pages::survey(&sources);
    let warns = |findings: &[Finding]| findings.iter().any(|each| each.id == "file-damaged");
    assert!(warns(&pages.findings) && warns(&survey(&sources).unwrap().findings));
    assert_eq!(pages.frames, Some(1024));
    let missing = |all: &[Missing]| all.iter().filter(|each| each.path == "kpageflags").count();
    assert_eq!(missing(&pages.missing), 1);
}

/// Surveys a machine whose kernel holds a page in every pageblock: none can be whole, whatever the kernel moves.
#[test]
fn no_pageblock_that_can_be_whole_is_a_warning() {
    let mut files = Drawn::new(SINGLES).files();
    let frame = |pfn: u64| if pfn % 512 == 7 { 1_u64 << 7 } else { 1 << 10 };
    let flags =
        |frame: &dyn Fn(u64) -> u64| (0..4096).flat_map(|pfn| frame(pfn).to_le_bytes()).collect();
    files.insert("kpageflags", flags(&frame));
    let findings = pages::survey(&Sources::of_files(files.clone())).findings;
    assert_eq!(
        (findings[0].id, findings[0].severity),
        ("no-pageblock-can-be-whole", Severity::Warning)
    );
    files.insert("kpageflags", flags(&|_| 1 << 10));
    let findings = pages::survey(&Sources::of_files(files)).findings;
    assert_eq!(findings.iter().map(|each| each.id).collect::<Vec<_>>(), ["scattered"]);
}

/// Checks that the caches with most memory are named where slabinfo was read, and nothing is missing where it was not.
#[test]
fn who_holds_slabs_is_a_hint() {
    let mut files = Drawn::new(SINGLES).files();
    let before = pages::survey(&Sources::of_files(files.clone()));
    assert!(before.slabs.is_empty());
    assert!(before.missing.iter().all(|missing| !missing.path.contains("slabinfo")));
    let cache = |number: u64| {
        format!("cache-{number} 1 1 192 21 2 : tunables 0 0 0 : slabdata {number} {number} 0\n")
    };
    files.insert("slabinfo", (1..9).map(cache).collect::<String>().into_bytes());
    let slabs = pages::survey(&Sources::of_files(files)).slabs;
    assert_eq!((slabs.len(), slabs[0].name.as_str(), slabs[0].pages), (5, "cache-8", 16));
}

/// Checks that `allocstall_*` is the sum of the counters that begin so, and that rates are for an hour.
#[test]
fn counters_by_name_and_by_stem() {
    let mut files = Drawn::new(SINGLES).files();
    let text = "nr_free_pages 1024\nallocstall_dma 1\nallocstall_normal 5\ncompact_fail 300\ncompact_success 4\n";
    files.insert("vmstat", text.as_bytes().to_vec());
    let mut sources = Sources::of_files(files);
    sources.uptime_seconds = Some(1800.0);
    let machine = survey(&sources).unwrap();
    let stalls = machine.counter(counters::Name::Allocstall).unwrap();
    assert_eq!((stalls.value, stalls.per_hour), (6, Some(12.0)));
    assert_eq!(has_finding(&machine, "compaction-fails"), Some(Severity::Note));
}

/// Surveys absurd numbers: they make absurd reports, but no panic.
#[test]
fn absurd_numbers_do_not_panic() {
    let most = u64::MAX;
    let mut files = Files::default();
    files.insert("buddyinfo", format!("Node 0, zone Normal {most} {most} {most}\n").into_bytes());
    let zone = format!(
        "Node 0, zone Normal\n  pages free {most}\n boost {most}\n min {most}\n low {most}\n \
         high {most}\n spanned {most}\n present {most}\n managed {most}\n \
         protection: ({most}, {most})\n nr_zone_active_file {most}\n \
         nr_zone_inactive_file {most}\n start_pfn: {most}\n"
    );
    files.insert("zoneinfo", zone.into_bytes());
    let types = format!(
        "Page block order: 9\nNode 0, zone Normal, type Unmovable {most} >{most}\n\
         Node 0, zone Normal, type Movable {most} {most}\n\
         Number of blocks type Unmovable Movable\nNode 0, zone Normal {most} {most}\n"
    );
    files.insert("pagetypeinfo", types.into_bytes());
    files.insert(
        "vmstat",
        format!("allocstall_a {most}\nallocstall_b {most}\ncompact_fail {most}\n").into_bytes(),
    );
    files.insert("meminfo", format!("MemTotal: {most} kB\nMemFree: 1 kB\n").into_bytes());
    files.insert("kpageflags", vec![0xff; 4096]);
    let sources = Sources::of_files(files);
    let machine = survey(&sources).unwrap();
    assert_eq!(machine.zones.len(), 1);
    assert_eq!(pages::survey(&sources).zones.len(), 1);
}
