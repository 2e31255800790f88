//! Our placement and the goals that it must reach (docs/sources/mmap.md#g3), beside first fit and best fit on the same
//! programs.

use crate::mmap_support::{
    HUGE, LEAKME4_STATIC, Leakme, MEMORY, MIB, Mix, Process, RandomMix, XorShift, opaque,
};
use nofrag::mmap::{
    AddressSpace, AreaFlags, Direction, Layout, MapFlags, Placement, Protection, SpaceConfig,
    WindowChoice,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};

/// Pages that `leakme` has mapped on average.
const LEAKME_LIVE: f64 = 2501.7 * MIB as f64;

fn window(start: u64, pages: u64) -> Layout {
    Layout::window(Span::sized(start, pages).unwrap(), Direction::Up)
}

/// The window of docs/sources/mmap.md#leakme-64: 128 GiB below the libraries of a 64-bit process.
fn wide_window() -> Layout {
    let pages = 128 << 30 >> 12;
    window((0x7fff_f7ff_d000 >> 12) - pages, pages)
}

/// Returns the pages between areas, without the largest gap.
fn pages_in_holes(process: &Process) -> u64 {
    let list = process.list();
    let holes = list.windows(2).map(|pair| (pair[1].0 - pair[0].1) >> 12);
    holes.clone().sum::<u64>() - holes.max().unwrap_or(0)
}

/// The mappings of `leakme` that are multiples of a huge page.
#[derive(Debug, Default, PartialEq, Eq)]
struct Multiples {
    all: u64,
    aligned: u64,
}

/// Runs `leakme`, and counts its multiples of a huge page; `None` if a mapping fails.
fn leakme(process: &mut Process, iterations: u64) -> Option<(Leakme, Multiples)> {
    let mut leakme = Leakme::new();
    let mut multiples = Multiples::default();
    for i in 0..iterations {
        let start = leakme.step(process).ok()?;
        if Leakme::pages((i % 600) as usize).is_multiple_of(HUGE) {
            multiples.all += 1;
            multiples.aligned += u64::from(start.is_multiple_of(HUGE));
        }
    }
    Some((leakme, multiples))
}

/// docs/sources/mmap.md#leakme-64: Linux 6.18 ends with 135 areas and 193 MiB of holes; the goal is 8 areas and 20 MiB
/// (mmap.md#g3).
#[test]
fn leakme_in_64_bits_ends_with_four_areas() {
    let mut process = Process::new(wide_window(), Placement::TwoEnded);
    let (leakme, multiples) = leakme(&mut process, 1_000_000).unwrap();
    assert_eq!((process.areas(), leakme.peak), (4, 5));
    assert_eq!(multiples, Multiples { all: 375_000, aligned: 375_000 });
    assert_eq!(pages_in_holes(&process), 12 * MIB + 16);
}

/// docs/sources/mmap.md#survival: the smallest window over what lives in it. Every larger window of the grid suffices
/// as well, which is not so without a remembered boundary.
#[test]
fn leakme_survives_in_a_window_hardly_larger_than_itself() {
    const SMALLEST: u64 = 2528;
    assert!((SMALLEST * MIB) as f64 / LEAKME_LIVE < 1.0106);
    for mib in (SMALLEST..SMALLEST + 40).step_by(4) {
        let mut process = Process::new(window(0x4_0000, mib * MIB), Placement::TwoEnded);
        let (_, multiples) = leakme(&mut process, 200_000).unwrap_or_else(|| panic!("{mib} MiB"));
        assert_eq!(multiples.aligned, multiples.all, "{mib} MiB");
    }
}

/// docs/sources/mmap.md#g3: no more areas than best fit and no smaller a largest hole than first fit, in one policy. Of
/// these bounds, which are those of mmap.md#mix-outcomes, `doc_2005` holds that the two policies reach them.
#[test]
fn random_mixes_have_the_areas_of_best_fit_and_the_hole_of_first_fit() {
    for (mix, best_fit_areas, first_fit_hole) in
        [(Mix::Skewed, 470, 602 * MIB), (Mix::Powers, 99, 619 * MIB), (Mix::Even, 692, 577 * MIB)]
    {
        let ours = RandomMix::new(mix, Placement::TwoEnded, Direction::Up).run(300_000);
        assert_eq!(ours.failures, 0, "{mix:?}");
        assert!(ours.areas <= best_fit_areas, "{mix:?}: {ours:?}");
        assert!(ours.largest_hole >= first_fit_hole, "{mix:?}: {ours:?}");
    }
}

/// The means of [`random_mixes_have_the_areas_of_best_fit_and_the_hole_of_first_fit`] for twenty seeds, on average: one
/// run is one throw of the dice. Prints a row for each run.
///
/// `cargo test --release -p nofrag --test it twenty_seeds -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn random_mixes_with_twenty_seeds() {
    for mix in Mix::ALL {
        let mut random = XorShift::default();
        let (mut areas, mut hole) = ([0, 0], [0, 0]);
        for seed in 0..20 {
            let run = |placement| {
                let mix = RandomMix::new(mix, placement, Direction::Up).seeded(random.clone());
                mix.run(100_000)
            };
            let [ours, best, first] =
                [Placement::TwoEnded, Placement::BestFit, Placement::FirstFit].map(run);
            println!(
                "{{\"mix\":\"{mix:?}\",\"seed\":{seed},\"areas\":{{\"ours\":{},\"best_fit\":{},\"first_fit\":{}}},\
                 \"largest_hole_pages\":{{\"ours\":{},\"best_fit\":{},\"first_fit\":{}}},\"failures\":{}}}",
                ours.areas,
                best.areas,
                first.areas,
                ours.largest_hole,
                best.largest_hole,
                first.largest_hole,
                ours.failures,
            );
            areas = [areas[0] + ours.areas, areas[1] + best.areas];
            hole = [hole[0] + ours.largest_hole, hole[1] + first.largest_hole];
            for _ in 0..1000 {
                random.next();
            }
        }
        assert!(areas[0] <= areas[1], "{mix:?}: areas {areas:?}");
        assert!(hole[0] >= hole[1], "{mix:?}: largest hole {hole:?}");
    }
}

/// docs/sources/mmap.md#visits, where the kernels of 2005 visit thousands of areas for each mapping: the goal is 20
/// (mmap.md#g3). Blocks of the index are counted here.
#[test]
fn an_unmergeable_mix_costs_few_visits() {
    const COUNT: u64 = 10_000;
    const MEASURED: u64 = 5_000;
    let mut process = Process::new(wide_window(), Placement::TwoEnded);
    let mut random = XorShift::default();
    let mut live = Vec::new();
    for _ in 0..COUNT {
        let pages = 1 + random.below(4);
        live.push((process.map_as(pages, opaque()).unwrap(), pages));
    }
    let cost = |process: &Process| process.visits() + process.space.counters().steps;
    let (mut before, mut most) = (0, 0);
    for replacement in 0..3 * COUNT + MEASURED {
        if replacement == 3 * COUNT {
            (before, most) = (cost(&process), 0);
        }
        let at = random.below(COUNT) as usize;
        let (start, pages) = live[at];
        process.unmap(start, pages);
        let pages = 1 + random.below(4);
        let earlier = cost(&process);
        live[at] = (process.map_as(pages, opaque()).unwrap(), pages);
        most = most.max(cost(&process) - earlier);
    }
    let mean = (cost(&process) - before) as f64 / MEASURED as f64;
    println!("{mean} blocks on average, {most} at most");
    assert!(mean <= 10.0 && most <= 40, "{mean} {most}");
}

/// Returns the results of first fit and of ours on the same program.
fn both<T>(run: impl Fn(Placement) -> T) -> (T, T) {
    (run(Placement::FirstFit), run(Placement::TwoEnded))
}

/// Verifies that the largest hole is at least 99 % of that under first fit (docs/sources/mmap.md#guard-rule).
fn check_hole(trace: &str, run: impl Fn(Placement) -> u64) {
    let (first_fit, ours) = both(run);
    assert!(ours * 100 >= first_fit * 99, "{trace}: {ours} pages, first fit {first_fit}");
}

/// Verifies that the smallest window in which a program survives is at most 101 % of that under first fit; windows are
/// tried from the first number of pages on, in steps of the second.
fn check_window(
    trace: &str,
    (from, step): (u64, u64),
    survives: impl Fn(Layout, Placement) -> bool,
) {
    // Not on a boundary of huge pages, for that is what aligned placement suffers from.
    let fits = |pages, placement| survives(window(0x4_0005, pages), placement);
    let smallest =
        |placement| (from..).step_by(step as usize).find(|&pages| fits(pages, placement));
    let (first_fit, ours) = both(|placement| smallest(placement).unwrap());
    assert!(ours * 100 <= first_fit * 101, "{trace}: {ours} pages, first fit {first_fit}");
}

fn try_leakme4(process: &mut Process) -> Option<()> {
    let mut starts = [0; 128];
    for (i, start) in starts.iter_mut().enumerate() {
        *start = process.try_map(MIB).ok()?;
        if i == 0 {
            process.try_map(1).ok()?;
        }
    }
    starts.iter().step_by(2).for_each(|&start| process.unmap(start, MIB));
    for i in (0..128).step_by(2) {
        process.try_map(if i & 4 == 0 { 1 } else { MIB }).ok()?;
    }
    (0..64).try_for_each(|_| process.try_map(MIB).map(drop).ok())
}

/// Maps `count` stacks of `pages`, each of which merges with nothing; `None` if a mapping fails.
fn try_stacks(process: &mut Process, count: u64, pages: u64) -> Option<()> {
    (0..count).try_for_each(|_| process.map_as(pages, opaque()).map(drop).ok())
}

fn try_regions(process: &mut Process, pages: u64) -> Option<()> {
    let starts = [0; 5].map(|_| process.map_as(pages, opaque()).ok());
    for freed in [3, 1, 2] {
        process.unmap(starts[freed]?, pages);
    }
    process.map_as(pages, opaque()).map(drop).ok()
}

fn try_unmergeable_mix(process: &mut Process, count: u64) -> Option<()> {
    let mut random = XorShift::default();
    let mut live = Vec::new();
    for _ in 0..count {
        let pages = 1 + random.below(4);
        live.push((process.map_as(pages, opaque()).ok()?, pages));
    }
    for _ in 0..10 * count {
        let at = random.below(count) as usize;
        let (start, pages) = live[at];
        process.unmap(start, pages);
        let pages = 1 + random.below(4);
        live[at] = (process.map_as(pages, opaque()).ok()?, pages);
    }
    Some(())
}

#[test]
fn the_guard_rule_holds_for_largest_holes() {
    let largest =
        |process: &Process| process.largest_hole(Layout::COMPAT_UP.base, Layout::COMPAT_UP.end);
    let compat = |placement, areas: &[(u64, u64)]| {
        Process::new(Layout::COMPAT_UP, placement).with_areas(areas)
    };
    check_hole("leakme static", |placement| {
        let mut process = compat(placement, &Leakme::STATIC);
        leakme(&mut process, 200_000).unwrap();
        largest(&process)
    });
    check_hole("leakme with libraries", |placement| {
        let mut process = compat(placement, &Leakme::STATIC);
        process.map_uncounted(336);
        leakme(&mut process, 200_000).unwrap();
        largest(&process)
    });
    check_hole("leakme4", |placement| {
        let mut process = compat(placement, &LEAKME4_STATIC);
        try_leakme4(&mut process).unwrap();
        largest(&process)
    });
    check_hole("five regions", |placement| {
        let mut process = compat(placement, &[]);
        try_regions(&mut process, MIB).unwrap();
        largest(&process)
    });
    check_hole("test_str02", |placement| {
        let mut process = compat(placement, &[]);
        try_stacks(&mut process, 300, 8 * MIB).unwrap();
        largest(&process)
    });
    check_hole("unmergeable mix", |placement| {
        let mut process = compat(placement, &[]);
        try_unmergeable_mix(&mut process, 1000).unwrap();
        largest(&process)
    });
    check_hole("leakme in 64 bits", |placement| {
        let layout = wide_window();
        let mut process = Process::new(layout, placement);
        leakme(&mut process, 200_000).unwrap();
        process.largest_hole(layout.base, layout.end)
    });
}

#[test]
fn the_guard_rule_holds_for_survival() {
    check_window("leakme", (2500 * MIB, 4 * MIB), |layout, placement| {
        leakme(&mut Process::new(layout, placement), 50_000).is_some()
    });
    check_window("leakme4", (128 * MIB, 16), |layout, placement| {
        try_leakme4(&mut Process::new(layout, placement)).is_some()
    });
    check_window("five regions", (5 * MIB, 16), |layout, placement| {
        try_regions(&mut Process::new(layout, placement), MIB).is_some()
    });
    check_window("test_str02", (300 * 8 * MIB, 16), |layout, placement| {
        try_stacks(&mut Process::new(layout, placement), 300, 8 * MIB).is_some()
    });
    check_window("unmergeable mix", (2400, 8), |layout, placement| {
        try_unmergeable_mix(&mut Process::new(layout, placement), 1000).is_some()
    });
}

/// Maps `sizes` one after the other, and verifies where each begins.
fn check_starts(layout: Layout, sizes: &[u64], starts: &[u64]) {
    let mut process = Process::new(layout, Placement::TwoEnded);
    let found: Vec<_> = sizes.iter().map(|&pages| process.map(pages)).collect();
    assert_eq!(found, starts);
}

#[test]
fn classes_grow_towards_each_other() {
    let layout = window(0x1001, 0x10fe);
    check_starts(layout, &[1, HUGE, 3, 2 * HUGE], &[0x1001, 0x1e00, 0x1002, 0x1a00]);
}

/// The spill: what has no place on its side goes to the other one, and a multiple without an aligned place is mapped
/// all the same.
#[test]
fn a_full_window_is_used_to_the_last_page() {
    check_starts(window(1, 3 * HUGE), &[HUGE, HUGE, 511, 1], &[2 * HUGE, HUGE, 1, 3 * HUGE]);
    check_starts(window(1, HUGE), &[HUGE], &[1]);
}

/// Leaves holes, given as start and pages, in a mapping of 1001 pages at 0x1000; maps `pages`, and verifies that they
/// begin at `start`.
fn check_choice(holes: &[(u64, u64)], pages: u64, start: u64) {
    let mut process = Process::new(window(0x1000, 1 << 20), Placement::TwoEnded);
    assert_eq!(process.map(1001), 0x1000);
    for &(start, pages) in holes {
        process.unmap(start, pages);
    }
    assert_eq!(process.map(pages), start);
}

#[test]
fn a_gap_of_just_the_size_comes_first() {
    check_choice(&[(0x1010, 9), (0x1020, 8), (0x1030, 8)], 8, 0x1020);
}

#[test]
fn the_nearest_gap_comes_next_unless_it_holds_the_mapping_twice() {
    check_choice(&[(0x1010, 15), (0x1020, 9)], 8, 0x1010);
    check_choice(&[(0x1010, 16), (0x1020, 10), (0x1030, 9)], 8, 0x1030);
    check_choice(&[(0x1010, 16)], 8, 0x1010);
}

#[test]
fn the_frontier_comes_last() {
    check_choice(&[(0x1010, 200), (0x1100, 300)], 150, 0x1010);
    check_choice(&[(0x1010, 7)], 8, 0x1000 + 1001);
}

/// Of equal gaps a huge mapping takes the highest, from the top.
#[test]
fn a_huge_mapping_takes_the_tightest_gap_and_of_equals_the_highest() {
    let mut process = Process::new(window(0, 64 * HUGE), Placement::TwoEnded);
    for _ in 0..32 {
        process.map(HUGE);
    }
    for (start, count) in [(63, 1), (58, 3), (50, 2), (40, 2)] {
        process.unmap((start + 1 - count) * HUGE, count * HUGE);
    }
    assert_eq!(process.map(2 * HUGE), 49 * HUGE);
    assert_eq!(process.map(2 * HUGE), 39 * HUGE);
    assert_eq!(process.map(2 * HUGE), 57 * HUGE);
    assert_eq!(process.map(2 * HUGE), 30 * HUGE);
}

/// A class that has spilled over the boundary comes home once its own side has room.
#[test]
fn the_boundary_stays_when_a_class_spills() {
    let mut process = Process::new(window(HUGE, 8 * HUGE), Placement::TwoEnded);
    let huge: Vec<_> = (0..4).map(|_| process.map(HUGE)).collect();
    let mut others: Vec<_> = (0..8).map(|_| process.map(HUGE / 2)).collect();
    process.unmap(huge[1], HUGE);
    others.push(process.map(HUGE / 2));
    assert_eq!(others[8], huge[1]);
    process.unmap(others[2], HUGE / 2);
    assert_eq!(process.map(HUGE / 2), others[2]);
}

/// A small mapping that needs more than its own side moves the boundary to its end: later mappings go on there, and not
/// into a hole of the huge ones, which still serves one of them.
#[test]
fn a_mapping_that_reaches_over_the_boundary_moves_it() {
    let mut process = Process::new(window(HUGE, 16 * HUGE), Placement::TwoEnded);
    let huge: Vec<_> = (0..5).map(|_| process.map(HUGE)).collect();
    for lost in [1, 3, 4] {
        process.unmap(huge[lost], HUGE);
    }
    let large = 11 * HUGE + 1;
    assert_eq!(process.map(large), HUGE);
    assert!(HUGE + large > huge[4], "it reaches over where the huge ones began");
    assert_eq!(process.map(1), HUGE + large);
    assert_eq!(process.map(HUGE), huge[1]);
}

/// The guard gap below a stack stays free, and what is below it is used to its last page.
#[test]
fn a_guard_gap_is_not_used() {
    let mut process = Process::new(window(0x1000, 0x10000), Placement::TwoEnded);
    let stack = opaque().with(AreaFlags::GROWS_DOWN);
    process.space.load(Vpn(0x1200), PageCount(1), stack).unwrap();
    assert_eq!(process.map(256), 0x1000);
    assert_eq!(process.map(1), 0x1201);
    process.unmap(0x1000, 4);
    assert_eq!(process.map(4), 0x1000);
    process.unmap(0x10f0, 4);
    assert_eq!(process.map(5), 0x1202);
}

/// A window that is not the usual one is filled from both ends, too, and moves no boundary.
#[test]
fn a_wish_for_another_window_is_kept() {
    let mut process = Process::new(Layout::X86_64, Placement::TwoEnded);
    let low = MapFlags { window: WindowChoice::Low, ..MapFlags::default() };
    let start = process.space.map(PageCount(3), MEMORY, None, low).unwrap();
    assert_eq!(start, Vpn(0x4000_0000 >> 12));
    let aligned = MapFlags { align: 4 * HUGE, offset: 1, ..MapFlags::default() };
    let start = process.space.map(PageCount(3), MEMORY, None, aligned).unwrap();
    assert!(
        start.0 % (4 * HUGE) == 1 && start.0 > (0x7fff_f7ff_f000 >> 12) - 8 * HUGE,
        "{start:?}"
    );
}

/// Maps a hundred stacks, with guards by `mprotect` or by page tables, and checks the number of areas and of guards.
fn check_stacks(guard: impl Fn(&mut AddressSpace, Vpn), areas: usize, guards: usize) {
    let layout = window(1 << 24, 100 * 8 * MIB);
    let mut space = AddressSpace::new(SpaceConfig::new(layout, Placement::ExactAligned));
    for _ in 0..100 {
        let start = space.map(PageCount(8 * MIB), MEMORY, None, MapFlags::default()).unwrap();
        guard(&mut space, start);
        // A thread writes to its stack before the next one starts.
        space.touch(Vpn(start.0 + 8 * MIB - 1), PageCount(1)).unwrap();
    }
    assert_eq!((space.area_count(), space.guard_share().areas), (areas, guards));
}

/// A guard by `mprotect` costs an area, and keeps its stack from merging; one in page tables costs nothing.
#[test]
fn guards_in_page_tables_cost_no_area() {
    let protect = |space: &mut AddressSpace, guard| {
        space.protect(guard, PageCount(1), Protection::NONE).unwrap();
    };
    check_stacks(protect, 200, 100);
    check_stacks(|_, _| (), 1, 0);
}
