//! The report of a process: blockers of merging, holes, growth, findings, and replays under other placements.

use std::time::Duration;

use nofrag_host::fields::Limit;
use nofrag_host::proc_maps::parse;
use nofrag_host::process::growth::Earlier;
use nofrag_host::process::replay::Which;
use nofrag_host::process::room::StoppedBy;
use nofrag_host::process::{ProcessReport, survey};
use nofrag_host::source::process::{MapsFile, Sources};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const TOP: u64 = 0x7fff_f7ff_f000;

fn sources(text: &str) -> Sources {
    Sources {
        parsed: parse(text.as_bytes()).unwrap(),
        max_map_count: Some(65_530),
        stack_limit: Some(Limit::Bytes(8 << 20)),
        address_space_limit: Some(Limit::Unlimited),
        arch: Some("x86_64".to_owned()),
        ..Sources::default()
    }
}

fn report(text: &str) -> ProcessReport {
    survey(&sources(text), None, Which::All).unwrap()
}

/// Returns areas one behind the other from an address on: pages, then the rest of the line.
fn areas(from: u64, list: &[(u64, &str)]) -> String {
    let mut at = from;
    let mut text = String::new();
    for (pages, rest) in list {
        let start = at;
        at += pages * PAGE;
        text += &format!("{start:x}-{at:x} {rest}\n");
    }
    text
}

fn check_blockers(text: &str, expected: &[(&str, &str, u64)]) {
    let neighbours = report(text).neighbours;
    let found: Vec<_> = neighbours
        .groups
        .iter()
        .map(|group| (group.blocker.name(), group.detail.as_str(), group.pairs))
        .collect();
    assert_eq!(found, expected, "{text}");
    assert_eq!(neighbours.pairs, expected.iter().map(|group| group.2).sum::<u64>());
}

const ANON: &str = "rw-p 00000000 00:00 0 ";
const NONE: &str = "---p 00000000 00:00 0 ";

/// x86-64 has one size of base page. Where `smaps` tells of larger ones alone, as for a process of huge pages, they
/// were taken for it, and the last 4 KiB of the space were lost.
#[test]
fn an_architecture_with_one_page_size_has_that() {
    for kib in [8, 2048] {
        let report = report(&format!(
            "7fd32f800000-7fd32fa00000 rw-p 00000000 00:0f 6 /anon_hugepage\nKernelPageSize: {kib} kB\n"
        ));
        assert_eq!(report.process.page_bytes, PAGE, "{kib}");
        let size = report.space.end - report.space.start;
        assert_eq!(report.space.room.free_bytes + report.mapped_bytes, size, "{kib}");
    }
}

/// Checks each blocker that `maps` alone shows, one pair each.
#[test]
fn blockers_from_maps() {
    let below = 0x7f00_0000_0000;
    let pair = |lower: &str, upper: &str| areas(below, &[(4, lower), (4, upper)]);
    check_blockers(&pair(ANON, NONE), &[("access", "--- and rw-", 1)]);
    check_blockers(
        &pair(ANON, "rw-s 00000000 00:01 7 /dev/zero (deleted)"),
        &[("flags", "shared", 1)],
    );
    let file = |offset: &str, inode: u32| format!("rw-p {offset} fe:00 {inode} /usr/lib/x");
    check_blockers(&pair(&file("0", 7), ANON), &[("file", "a file and memory", 1)]);
    check_blockers(&pair(&file("0", 7), &file("4000", 8)), &[("file", "two files", 1)]);
    check_blockers(
        &pair(&file("0", 7), &file("9000", 7)),
        &[("offset", "the same file, other pages", 1)],
    );
    check_blockers(&pair(&file("0", 7), &file("4000", 7)), &[("not-shown", "no smaps", 1)]);
    let named = |name: &str| format!("rw-p 0 00:00 0 [anon:{name}]");
    check_blockers(&pair(&named("b"), &named("a")), &[("name", "[anon:a] and [anon:b]", 1)]);
    check_blockers(&pair(&named("a"), ANON), &[("name", "(anonymous) and [anon:a]", 1)]);
    check_blockers(
        &pair("r--p 0 00:00 0 [vvar]", "r-xp 0 00:00 0 [vdso]"),
        &[("special", "memory of the kernel or of a device", 1)],
    );
    check_blockers(&areas(below, &[(4, ANON)]), &[]);
}

/// Counts the pairs of 2,000 areas without holes, and of every second one of them: areas with a hole between them are
/// no pair.
#[test]
fn only_neighbours_are_pairs() {
    let mut list = Vec::new();
    for index in 0..2000_u64 {
        list.push((1, if index % 2 == 0 { ANON } else { NONE }));
    }
    let text = areas(0x7f00_0000_0000, &list);
    check_blockers(&text, &[("access", "--- and rw-", 1999)]);
    let apart: String = text.lines().step_by(2).map(|line| format!("{line}\n")).collect();
    check_blockers(&apart, &[]);
}

/// Checks each blocker that needs `smaps`.
#[test]
fn blockers_from_smaps() {
    let area = |at: u64, anonymous: u64, flags: &str, more: &str| {
        let (start, end) = (0x7f00_0000_0000 + at * PAGE, 0x7f00_0000_0000 + (at + 1) * PAGE);
        format!(
            "{start:x}-{end:x} {ANON}\nAnonymous: {anonymous} kB\n{more}VmFlags: rd wr {flags}\n"
        )
    };
    let pair = |lower: (u64, &str, &str), upper: (u64, &str, &str)| {
        area(0, lower.0, lower.1, lower.2) + &area(1, upper.0, upper.1, upper.2)
    };
    let plain = (0, "mr mw me ac", "");
    check_blockers(&pair(plain, (0, "mr mw me ac hg", "")), &[("flags", "hg", 1)]);
    check_blockers(&pair(plain, (0, "mr mw me lo", "")), &[("flags", "ac lo", 1)]);
    check_blockers(&pair(plain, (0, "mr mw me ac sd", "")), &[("not-shown", "", 1)]);
    check_blockers(
        &pair(plain, (0, "mr mw me ac", "ProtectionKey: 2\n")),
        &[("flags", "protection key", 1)],
    );
    check_blockers(
        &pair(plain, (0, "mr mw me ac io", "")),
        &[("special", "memory of the kernel or of a device", 1)],
    );
    let touched = (4, "mr mw me ac", "");
    check_blockers(&pair(touched, touched), &[("reverse-map", "both touched before they met", 1)]);
    check_blockers(&pair(plain, touched), &[("not-shown", "", 1)]);
    let swapped = (0, "mr mw me ac", "Swap: 4 kB\n");
    check_blockers(&pair(swapped, touched), &[("reverse-map", "both touched before they met", 1)]);
}

/// Returns a process drawn from the top downwards, one character per page: `.` free, `#` memory, `|` no access.
fn drawn(picture: &str) -> String {
    let base = TOP - picture.len() as u64 * PAGE;
    let mut text = String::new();
    let cells = picture.as_bytes();
    let mut start = 0;
    for run in cells.chunk_by(|a, b| a == b) {
        let end = start + run.len();
        let address = |cell: usize| base + cell as u64 * PAGE;
        match run[0] {
            b'#' => text += &format!("{:x}-{:x} {ANON}\n", address(start), address(end)),
            b'|' => text += &format!("{:x}-{:x} {NONE}\n", address(start), address(end)),
            _ => {}
        }
        start = end;
    }
    text
}

#[test]
fn guards_and_reservations() {
    let sums = report(&drawn("|###|.||..#|")).no_access;
    assert_eq!((sums.areas, sums.bytes), (4, 5 * PAGE));
    assert_eq!((sums.guard_areas, sums.guard_bytes), (3, 3 * PAGE), "one is beside nothing");
    let far = format!("7f0000000000-7f0000200000 {NONE}\n7f0000200000-7f0000201000 {ANON}\n");
    let sums = report(&far).no_access;
    assert_eq!((sums.areas, sums.guard_areas), (1, 0), "2 MiB are a reservation");
}

#[test]
fn holes_and_the_largest_mapping() {
    let found = report(&drawn("##..#....##"));
    let room = &found.space.room;
    let largest = TOP - 11 * PAGE - 0x1_0000;
    let above = 0x7fff_ffff_f000 - TOP;
    assert_eq!((room.holes, room.largest_bytes), (4, largest));
    assert_eq!(room.free_bytes, largest + above + 6 * PAGE);
    assert_eq!(room.classes[0].bytes + room.classes[1].bytes, 6 * PAGE);
    assert_eq!(room.largest_by_align[2].align_bytes, 2 << 20);
    assert_eq!(room.largest_by_align[2].largest_area_bytes, largest - 0x1f_0000);
    assert_eq!(found.space.headroom.largest_mapping_bytes, largest);
}

/// Checks the largest mapping of a 32-bit process: a hole less the guard gap below its stack, unless a limit of bytes
/// or of areas stops it earlier.
#[test]
fn the_guard_gap_and_the_limits() {
    let text = format!(
        "10000-8048000 {ANON}\n8049000-f0000000 {ANON}\nf0200000-ffffe000 rw-p 00000000 00:00 0 [stack]\n"
    );
    let mut of = sources(&text);
    let headroom = |of: &Sources| survey(of, None, Which::None).unwrap().space.headroom;
    let mib = 1 << 20;
    assert_eq!(headroom(&of).largest_mapping_bytes, mib);
    assert_eq!(headroom(&of).stopped_by, StoppedBy::Holes);
    let mapped = 0xffff_e000 - 0x1_0000 - 0x1000 - 2 * mib;
    of.address_space_limit = Some(Limit::Bytes(mapped + 4096));
    assert_eq!(headroom(&of).largest_mapping_bytes, 4096);
    assert_eq!(headroom(&of).stopped_by, StoppedBy::AddressSpaceLimit);
    of.max_map_count = Some(2);
    assert_eq!(headroom(&of).stopped_by, StoppedBy::AreaLimit);
    assert_eq!(headroom(&of).bytes_at_area_limit, Some(mapped / 3 * 2));
}

#[test]
fn windows() {
    let end = |arch: Option<&str>, at: u64| {
        let text = areas(at, &[(1, ANON)]);
        let of = Sources { arch: arch.map(str::to_owned), ..sources(&text) };
        let space = survey(&of, None, Which::None).unwrap().space;
        (space.end, space.certainty.into_str())
    };
    assert_eq!(end(Some("x86_64"), TOP), (0x7fff_ffff_f000, "known"));
    assert_eq!(end(Some("x86_64"), 0xf7ff_0000), (0xffff_e000, "known"));
    assert_eq!(end(Some("x86_64"), 1 << 50), (0xff_ffff_ffff_f000, "assumed"));
    assert_eq!(end(Some("i686"), 0xbfff_0000), (0xc000_0000, "assumed"));
    assert_eq!(end(Some("aarch64"), 0xffff_ffff_0000), (1 << 48, "assumed"));
    assert_eq!(end(None, (1 << 63) - PAGE), (1 << 63, "assumed"));
}

#[test]
fn directions() {
    let direction = |of: Sources| survey(&of, None, Which::None).unwrap().space.direction;
    let text = areas(TOP - PAGE, &[(1, ANON)]);
    let plain = || sources(&text);
    assert_eq!(direction(plain()), "down");
    assert_eq!(direction(Sources { stack_limit: Some(Limit::Unlimited), ..plain() }), "up");
    assert_eq!(direction(Sources { personality: Some(0x20_0000), ..plain() }), "up");
    assert_eq!(direction(Sources { legacy_layout: Some(1), ..plain() }), "up");
    assert_eq!(direction(Sources { stack_limit: None, ..plain() }), "down");
}

fn many(count: u64, rest: impl Fn(u64) -> &'static str) -> String {
    let list: Vec<(u64, &str)> = (0..count).map(|index| (3, rest(index))).collect();
    areas(0x7f00_0000_0000, &list)
}

fn check_findings(of: &Sources, earlier: Option<&Earlier>, expected: &[&str]) {
    let report = survey(of, earlier, Which::None).unwrap();
    let found: Vec<_> = report.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(found, expected, "{:#?}", report.findings);
}

#[test]
fn an_ordinary_process_has_no_findings() {
    check_findings(&sources(&drawn("|###..##")), None, &[]);
}

#[test]
fn near_the_limit() {
    let text = many(900, |index| if index % 2 == 0 { ANON } else { NONE });
    let limited = |limit| Sources { max_map_count: Some(limit), ..sources(&text) };
    check_findings(&limited(1126), None, &[]);
    check_findings(&limited(1125), None, &["areas-near-limit"]);
    let at_limit = survey(&limited(900), None, Which::None).unwrap();
    assert_eq!((at_limit.count.left, at_limit.count.can_be_split), (Some(0), 900));
    let finding = &at_limit.findings[0];
    assert!(finding.consequence.contains("munmap of the middle"), "{}", finding.consequence);
    assert!(finding.help.contains("sysctl vm.max_map_count=1048576"), "{}", finding.help);
    assert!(finding.help.contains("MADV_GUARD_INSTALL"), "{}", finding.help);
    // A move asks for three more areas than may be added.
    for (left, begin) in [(1, "mremap"), (3, "mremap"), (4, "after 4 more areas")] {
        let report = survey(&limited(900 + left), None, Which::None).unwrap();
        let consequence = &report.findings[0].consequence;
        assert!(consequence.starts_with(begin), "{left} left: {consequence}");
    }
}

#[test]
fn guards_and_neighbours_of_many_areas_are_noted() {
    let text = many(2000, |index| if index % 2 == 0 { ANON } else { NONE });
    check_findings(&sources(&text), None, &["guards-dominate", "neighbours-apart"]);
}

#[test]
fn growth_and_its_forecast() {
    let before = parse(drawn("#.#.......").as_bytes()).unwrap();
    let earlier = Earlier { parsed: before, before: Duration::from_secs(2) };
    let now = Sources { max_map_count: Some(10), ..sources(&drawn("#...#.#.#.")) };
    let report = survey(&now, Some(&earlier), Which::None).unwrap();
    let growth = report.growth.unwrap();
    assert_eq!((growth.areas_before, growth.areas_after), (2, 4));
    assert_eq!((growth.appeared, growth.vanished), (3, 1));
    assert_eq!((growth.bytes_before, growth.bytes_after), (2 * PAGE, 4 * PAGE));
    assert_eq!((growth.areas_per_second, growth.seconds_to_limit), (1.0, Some(6.0)));
    check_findings(&now, Some(&earlier), &["limit-soon"]);
    let shrinking = Earlier { parsed: now.parsed.clone(), before: Duration::from_secs(2) };
    let report = survey(&sources(&drawn("#.........")), Some(&shrinking), Which::None).unwrap();
    assert_eq!(report.growth.unwrap().seconds_to_limit, None);
}

#[test]
fn damage_and_tight_space() {
    check_findings(&sources(&(drawn("#") + "garbage\n")), None, &["file-damaged"]);
    check_findings(&sources(drawn("#").trim_end()), None, &["file-damaged"]);
    let full = format!("10000-f0000000 {ANON}\nf0001000-ffffe000 {ANON}\n");
    check_findings(&sources(&full), None, &["space-tight"]);
    let limited =
        Sources { address_space_limit: Some(Limit::Bytes(5 * PAGE)), ..sources(&drawn("####")) };
    check_findings(&limited, None, &[]);
    let limited =
        Sources { address_space_limit: Some(Limit::Bytes(5 * PAGE)), ..sources(&drawn("#####")) };
    check_findings(&limited, None, &["address-space-limit"]);
}

/// Checks that the advice for a 32-bit process is not given to a 64-bit one.
#[test]
fn advice_fits_the_width_and_what_was_read() {
    let help = |text: &str| {
        let findings = survey(&sources(text), None, Which::None).unwrap().findings;
        findings.into_iter().map(|finding| finding.help).collect::<Vec<_>>().join("\n")
    };
    let full = help(&format!("10000-f0000000 {ANON}\nf0001000-ffffe000 {ANON}\n"));
    assert!(full.contains("64-bit build"), "{full}");
    let full = help(&format!("10000-7ffff0000000 {ANON}\n7ffff0001000-7ffffffff000 {ANON}\n"));
    assert!(full.contains("reserve less") && !full.contains("64-bit build"), "{full}");
    let unknown = help(&many(2000, |_| ANON));
    assert!(unknown.contains("without --maps-only") && !unknown.contains("touched"), "{unknown}");
}

#[test]
fn a_file_without_areas_is_an_error() {
    let error = survey(&sources("garbage\n"), None, Which::None).unwrap_err().to_string();
    assert!(error.contains("no area; line 1: neither an address range"), "{error}");
    assert_eq!(
        survey(&sources(""), None, Which::None).unwrap_err().to_string(),
        "the file lists no area"
    );
}

/// Checks that the areas of one mapping are placed as one piece: parts of a library, a guard with its stack, a
/// reservation with its heap.
#[test]
fn mappings_are_told_from_their_parts() {
    let library = [
        (2, "r--p 00000000 fe:00 7 /usr/lib/x.so"),
        (4, "r-xp 00002000 fe:00 7 /usr/lib/x.so"),
        (1, "rw-p 00006000 fe:00 7 /usr/lib/x.so"),
        (1, ANON),
    ];
    let program = "555555554000-555555556000 r-xp 00000000 fe:00 1 /usr/bin/y\n\
                   555555556000-555555557000 rw-p 00002000 fe:00 1 /usr/bin/y\n\
                   555555557000-555555559000 rw-p 00000000 00:00 0 \n\
                   555555600000-555555700000 rw-p 00000000 00:00 0 [heap]\n";
    let text = program.to_owned()
        + &areas(0x7f00_0000_0000, &library)
        + &areas(0x7f00_1000_0000, &[(1, NONE), (8, ANON), (1, NONE), (8, ANON)])
        + &areas(0x7f00_2000_0000, &[(8, ANON), (4000, NONE)])
        + &areas(0x7ffe_0000_0000, &[(32, "rw-p 00000000 00:00 0 [stack]")])
        + "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
    let replay = report(&text).replay;
    assert_eq!((replay.pieces, replay.fixed_areas), (4, 6));
    assert_eq!(replay.now.areas, 15);
    for placed in &replay.placements {
        assert_eq!((placed.outcome.areas, placed.failures), (15, 0), "{}", placed.name);
    }
}

/// Replays equal anonymous mappings with holes between them: they become one area.
#[test]
fn replaying_closes_holes() {
    let replay = report(&drawn("##.###..#....##")).replay;
    assert_eq!((replay.now.areas, replay.now.holes, replay.now.hole_bytes), (4, 3, 7 * PAGE));
    let closed = replay.placements.iter().find(|placed| placed.name == "linux-3.8").unwrap();
    assert_eq!((closed.outcome.areas, closed.outcome.holes), (1, 0));
    assert_eq!(replay.placements.len(), nofrag::mmap::Placement::presets().count());
    let none = survey(&sources(&drawn("#")), None, Which::None).unwrap().replay;
    assert!(none.placements.is_empty());
}

/// Replays many mappings: the placements that walk are left out unless they are asked for.
#[test]
fn walks_are_left_out_of_large_processes() {
    let list: Vec<(u64, &str)> = (0..4200)
        .map(|i| (1, ["rw-p 0 00:00 0", "r--p 0 00:00 0", "r-xp 0 00:00 0"][i % 3]))
        .collect();
    let of = sources(&areas(0x7f00_0000_0000, &list));
    let quick = survey(&of, None, Which::Quick).unwrap().replay;
    assert!(quick.left_out.contains(&"linux-2.4"), "{:?}", quick.left_out);
    let names: Vec<_> = quick.placements.iter().map(|placed| placed.name).collect();
    assert!(names.contains(&"linux-6.12") && !names.contains(&"linux-2.4"), "{names:?}");
}

fn check_sums(report: &ProcessReport) {
    let kinds: u64 = report.kinds.iter().map(|group| group.areas).sum();
    assert_eq!(kinds, report.names.iter().map(|group| group.areas).sum::<u64>());
    let room = &report.space.room;
    assert_eq!(room.classes.iter().map(|class| class.bytes).sum::<u64>(), room.free_bytes);
    assert_eq!(room.classes.iter().map(|class| class.holes).sum::<usize>(), room.holes);
    assert_eq!(room.free_bytes + report.mapped_bytes, report.space.end - report.space.start);
    assert!(
        room.largest_by_align.is_sorted_by(|a, b| a.largest_area_bytes >= b.largest_area_bytes)
    );
    assert!(report.space.headroom.largest_mapping_bytes <= room.largest_bytes);
}

proptest! {
    /// Checks that every byte of the space is mapped or free, and that holes equal those of a walk.
    #[test]
    fn holes_equal_a_linear_walk(
        steps in proptest::collection::vec((0_u64..6, 1_u64..40, 0_usize..3), 1..60),
    ) {
        let mut at = 0x7f00_0000_0000;
        let mut text = String::new();
        let mut holes = 2; // below all of it and above
        for (index, &(gap, pages, rest)) in steps.iter().enumerate() {
            let start = at + gap * PAGE;
            at = start + pages * PAGE;
            text += &format!("{start:x}-{at:x} {}\n", [ANON, NONE, "r-xp 0 fe:00 9 /x"][rest]);
            holes += usize::from(gap > 0 && index > 0);
        }
        let report = survey(&sources(&text), None, Which::Quick).unwrap();
        check_sums(&report);
        prop_assert_eq!(report.space.room.holes, holes);
        for placed in &report.replay.placements {
            prop_assert_eq!(placed.failures, 0, "{}", placed.name);
            prop_assert!(placed.outcome.areas <= steps.len(), "{}", placed.name);
        }
    }

    /// Checks that the report is made and adds up, whatever the lines claim.
    #[test]
    fn any_layout_makes_a_report(
        starts in proptest::collection::btree_set(0_u64..(1 << 52), 1..30),
        arch in 0_usize..4,
        with_fields in any::<bool>(),
    ) {
        let starts: Vec<u64> = starts.into_iter().collect();
        let mut text = String::new();
        for (index, &page) in starts.iter().enumerate() {
            let next = starts.get(index + 1).copied().unwrap_or(page + 1).min(page + 9);
            let rest = [ANON, NONE, "r-xp 1000 fe:00 9 /x", "rw-p 0 00:00 0 [stack]"][index % 4];
            let end = (next << 12).max((page << 12) + 0xfff) & !0xfff;
            if end > page << 12 {
                text += &format!("{:x}-{end:x} {rest}\n", page << 12);
            }
            if with_fields {
                text += "Anonymous: 4 kB\nVmFlags: rd gd\n";
            }
        }
        let arch = ["x86_64", "aarch64", "i686", "s390x"][arch];
        let of = Sources { arch: Some(arch.to_owned()), file: MapsFile::Smaps, ..sources(&text) };
        if let Ok(report) = survey(&of, None, Which::Quick) {
            check_sums(&report);
            prop_assert!(!report.space.draw(60).is_empty());
        }
    }
}
