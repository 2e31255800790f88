//! Mistakes of placements (docs/sources/mmap.md#bugs), each named after what it broke: under the rule that had it, and
//! under the one that has not.

use crate::doc_2005::{TOP, freed_2_and_3, leakme_64, leakme4_list, static_leakme, tenths};
use crate::mmap_support::*;
use nofrag::mmap::{
    AreaFlags, Direction, HugePages, Layout, MapError, MapFlags, Placement, WindowChoice,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};

use Placement::*;

const UP: Layout = Layout::COMPAT_UP;
const GAPS_ONLY: Placement = MapleTree(HugePages::Ignored);
const GUARDED: Placement = MapleTreeGuarded(HugePages::Ignored);

/// Maps `pages` pages, and returns the visits that this took.
fn visits_of(process: &mut Process, pages: u64) -> u64 {
    let before = process.visits();
    process.map_as(pages, opaque()).unwrap();
    process.visits() - before
}

/// Maps `count` areas of four pages that merge with nothing; returns them in the order of mapping.
fn row(layout: Layout, placement: Placement, count: usize) -> (Process, Vec<u64>) {
    let mut process = Process::new(layout, placement);
    let starts = (0..count).map(|_| process.map_as(4, opaque()).unwrap()).collect();
    (process, starts)
}

/// van de Ven, 18 May 2005: one hole that nobody fits into keeps the bound of P1a where it is (mmap.md#tiny-gap-pin).
#[test]
fn tiny_gap_pin() {
    for (placement, visits) in
        [(FirstHole, 1002), (FreeAreaCache, 1), (CachedHoleSizePosted, 1), (CachedHoleSize, 1)]
    {
        let mut process = Process::new(UP, placement);
        let first = process.map_as(1, opaque()).unwrap();
        (0..1000).for_each(|_| assert!(process.map_as(1, opaque()).is_ok()));
        process.unmap(first, 1);
        visits_of(&mut process, 2);
        assert_eq!(visits_of(&mut process, 2), visits, "{placement:?}");
    }
}

/// A larger request moves the cache past a hole, and a later unmapping pulls it back only as far as itself
/// (mmap.md#fac-mid-gap).
#[test]
fn fac_mid_gap() {
    for layout in [UP, COMPAT_DOWN] {
        assert_eq!(freed_2_and_3(layout, FreeAreaCache), Some(3));
        assert_eq!(freed_2_and_3(layout, CachedHoleSize), Some(2));
    }
}

/// Small requests go into large holes, which large ones then miss (mmap.md#small-in-big-holes).
#[test]
fn small_in_big_holes() {
    for (layout, placement) in
        [(UP, FreeAreaCache), (UP, CoalescingUnmap), (COMPAT_DOWN, CachedHoleSizeRepaired)]
    {
        assert_eq!(leakme4_list(layout, placement).len(), 17, "{placement:?}");
        assert_eq!(leakme4_list(layout, CachedHoleSize).len(), 2);
    }
}

/// Chen, 20 May 2005: an unmapping right below the cache does not give the space back to it (mmap.md#hook-keeps-fac).
#[test]
fn hook_keeps_fac() {
    for (placement, comes_back) in [(CachedHoleSizePosted, false), (CachedHoleSize, true)] {
        let (mut process, starts) = row(UP, placement, 2);
        process.unmap(starts[1], 4);
        // Larger than what is known to be free, though the space behind that is free as well.
        assert_eq!(process.map(8) == starts[1], comes_back, "{placement:?}");
    }
}

/// Chen, 20 May 2005: a second hole, no larger than the one known, makes everything unknown
/// (mmap.md#needless-full-scan).
#[test]
fn needless_full_scan() {
    for (placement, one_hole, two_holes) in
        [(CachedHoleSizePosted, 1, 100), (CachedHoleSizeRepaired, 51, 51)]
    {
        let visits = [false, true].map(|second| {
            let (mut process, starts) = row(UP, placement, 100);
            process.unmap(starts[49], 4);
            if second {
                process.unmap(starts[59], 2);
            }
            visits_of(&mut process, 8)
        });
        assert_eq!(visits, [one_hole, two_holes], "{placement:?}");
    }
}

/// The patch as posted counts 4 GiB and a page as a page (mmap.md#area-size-truncated).
#[test]
fn area_size_truncated() {
    for (placement, is_reused) in [(CachedHoleSizePosted, false), (CachedHoleSize, true)] {
        let mut process = Process::new(Layout::X86_64_LEGACY, placement);
        let large = process.map((1 << 20) + 1);
        process.map_as(1, opaque()).unwrap();
        process.unmap(large, (1 << 20) + 1);
        assert_eq!(process.map(2) == large, is_reused, "{placement:?}");
    }
}

/// Chen's hook was given a neighbour that is not there (26 May 2005) (mmap.md#null-prev-private-data).
#[test]
fn null_prev_private_data() {
    for placement in [CoalescingUnmap, CachedHoleSize, CachedHoleSizeRepaired] {
        for layout in [UP, COMPAT_DOWN] {
            let (mut process, starts) = row(layout, placement, 1);
            process.unmap(starts[0], 4);
            assert_eq!(process.map(4), starts[0], "{placement:?}");
        }
    }
}

/// The unmapping hook compares the end of the program, which lies below the base, with the base and does nothing, which
/// makes the cache a next fit; leakme is better off for it (mmap.md#hook-below-base).
#[test]
fn hook_below_base() {
    for (placement, areas) in [
        (CoalescingUnmap, 2),
        (CachedHoleSize, 2),
        (CoalescingUnmapClamped, 32),
        (CachedHoleSizeClamped, 6),
    ] {
        let (outcome, _) = static_leakme(UP, placement);
        assert_eq!((outcome.failed_at, outcome.areas), (None, areas), "{placement:?}");
    }
}

/// Every unmapping below the cache makes the holes unknown, so that the next request scans from the base
/// (mmap.md#munmap-voids-chs).
#[test]
fn munmap_voids_chs() {
    for (placement, visits) in [(CachedHoleSize, 100), (CachedHoleSizeRepaired, 51)] {
        let (mut process, starts) = row(UP, placement, 100);
        process.unmap(starts[49], 4);
        assert_eq!(visits_of(&mut process, 8), visits, "{placement:?}");
    }
}

/// Downwards, a miss right below the cache starts over at the top (mmap.md#restart-at-base).
#[test]
fn restart_at_base() {
    for (placement, visits) in
        [(FreeAreaCache, 102), (CachedHoleSize, 102), (CachedHoleSizeRepaired, 51)]
    {
        let (mut process, starts) = row(COMPAT_DOWN, placement, 100);
        // The hole is used in part, and the cache is in the middle of it.
        process.unmap(starts[49], 4);
        visits_of(&mut process, 3);
        assert_eq!(visits_of(&mut process, 3), visits, "{placement:?}");
    }
}

/// Page 0 can be reached downwards; it is never an answer, whatever the layout says (mmap.md#address-zero).
#[test]
fn address_zero() {
    let layout = Layout { floor: Vpn(0), base: Vpn(8), top: Vpn(8), end: Vpn(8), ..COMPAT_DOWN };
    for placement in everyone() {
        let mut process = Process::new(layout, placement);
        assert!(process.try_map(8).is_err(), "{placement:?}");
        assert_eq!(process.map(7), 1, "{placement:?}");
    }
}

/// A request that is longer than the top is high must not wrap around; the space above the top serves it
/// (mmap.md#short-base-underflow).
#[test]
fn short_base_underflow() {
    let layout = Layout { floor: Vpn(1), base: Vpn(4), top: Vpn(8), end: Vpn(64), ..COMPAT_DOWN };
    for placement in everyone() {
        let mut process = Process::new(layout, placement);
        let start = process.map(32);
        assert!(start >= 1 && start + 32 <= 64, "{placement:?}");
        assert!(process.try_map(64).is_err(), "{placement:?}");
        assert!(process.try_map(u64::MAX).is_err(), "{placement:?}");
    }
}

fn everyone() -> impl Iterator<Item = Placement> {
    Placement::presets().map(|preset| preset.placement)
}

/// A gap of exactly the right size in exactly the right place is missed by those that ask for padding
/// (mmap.md#padded-alignment).
#[test]
fn padded_alignment() {
    let flags = MapFlags { align: 512, ..MapFlags::default() };
    for direction in [Direction::Up, Direction::Down] {
        let window = Layout::window(Span::new(1000, 2000).unwrap(), direction);
        for (placement, is_found) in [
            (FirstFit, true),
            (BestFit, true),
            (TwoEnded, true),
            (GapTree, false),
            (GAPS_ONLY, false),
            (GUARDED, false),
        ] {
            let mut process = Process::new(window, placement);
            process.space.load(Vpn(1000), PageCount(24), opaque()).unwrap();
            process.space.load(Vpn(1536), PageCount(464), opaque()).unwrap();
            let found = process.space.map(PageCount(512), MEMORY, None, flags);
            assert_eq!(found.ok(), is_found.then_some(Vpn(1024)), "{placement:?} {direction:?}");
        }
    }
}

/// Alignment and offset are met by everyone, and cost no more than they must where nothing is padded.
#[test]
fn alignment_with_an_offset() {
    let flags = MapFlags { align: 64, offset: 5, ..MapFlags::default() };
    for direction in [Direction::Up, Direction::Down] {
        let window = Layout::window(Span::new(1000, 5000).unwrap(), direction);
        for placement in everyone() {
            let mut process = Process::new(window, placement);
            let mut places = Vec::new();
            for pages in [3, 64, 1, 100, 7, 60] {
                let start = process.space.map(PageCount(pages), opaque(), None, flags).unwrap();
                assert_eq!(start.0 % 64, 5, "{placement:?} {direction:?}");
                places.push((start.0, pages));
            }
            for (start, pages) in places.into_iter().step_by(2) {
                process.unmap(start, pages);
                let again = process.space.map(PageCount(pages), opaque(), None, flags).unwrap();
                assert_eq!(again.0 % 64, 5, "{placement:?} {direction:?}");
            }
        }
    }
}

/// A stack at the end of a gap: 6.1 maps right below it, into its guard gap (mmap.md#guard-gap-ignored).
#[test]
fn guard_gap_ignored() {
    let stack = MEMORY.with(AreaFlags::GROWS_DOWN);
    for (direction, ignored, kept) in [
        // Upwards the place reaches into the guard, and the next gap is taken; downwards what is left of the first.
        (Direction::Up, 1001, 1610),
        (Direction::Down, 1301, 1045),
    ] {
        let layout = Layout::window(Span::new(1000, 2000).unwrap(), direction);
        for (placement, expected) in [(GAPS_ONLY, ignored), (GUARDED, kept)] {
            let mut process = Process::new(layout, placement);
            process.space.load(Vpn(1000), PageCount(1), opaque()).unwrap();
            process.space.load(Vpn(1600), PageCount(10), stack).unwrap();
            if direction == Direction::Down {
                process.space.load(Vpn(1610), PageCount(390), opaque()).unwrap();
            }
            let pages = if direction == Direction::Up { 350 } else { 299 };
            assert_eq!(
                process.map_as(pages, opaque()),
                Ok(expected),
                "{placement:?} {direction:?}"
            );
        }
    }
}

/// Searches leave one page free below a shadow stack, and the guard gap free above an area that grows up.
#[test]
fn guards_of_other_kinds() {
    let layout = |direction| Layout::window(Span::new(1000, 3000).unwrap(), direction);
    let shadow = MEMORY.with(AreaFlags::SHADOW_STACK);
    let growing = MEMORY.with(AreaFlags::GROWS_UP);
    let mut process = Process::new(layout(Direction::Down), GUARDED);
    process.space.load(Vpn(2990), PageCount(10), shadow).unwrap();
    assert_eq!(process.map_as(4, opaque()), Ok(2985));
    let mut process = Process::new(layout(Direction::Up), GUARDED);
    process.space.load(Vpn(1000), PageCount(10), growing).unwrap();
    assert_eq!(process.map_as(4, opaque()), Ok(1010 + 256));
    let mut process = Process::new(layout(Direction::Down), GUARDED);
    process.space.load(Vpn(2000), PageCount(10), growing).unwrap();
    // 990 pages above it, of which 256 are its guard.
    assert_eq!(process.map_as(735, opaque()), Ok(2000 - 735));
    assert_eq!(process.map_as(734, opaque()), Ok(2010 + 256));
}

/// 6.2.13 gave up in the window of `MAP_32BIT` once a guard gap had been in the way (mmap.md#map32-enomem).
#[test]
fn map32_enomem() {
    let low = MapFlags { window: WindowChoice::Low, ..MapFlags::default() };
    let stack = MEMORY.with(AreaFlags::GROWS_DOWN);
    let window = Layout::X86_64.low.unwrap();
    for pages in [1, 32] {
        let mut process = Process::new(Layout::X86_64, GUARDED);
        // One gap after the other is no larger than the guard gap in it.
        for i in 0..100 {
            let start = window.start() + 100 * (i + 1);
            process.space.load(Vpn(start), PageCount(4), stack).unwrap();
        }
        let start = process.space.map(PageCount(pages), opaque(), None, low).unwrap();
        assert_eq!(start.0, window.start() + 100 * 100 + 4);
        // What fits nowhere in the window is not found elsewhere.
        assert!(process.space.map(PageCount(1 << 18), opaque(), None, low).is_err());
    }
}

/// By the rule of 6.7 mappings of 4632 KiB (cactusBSSN) begin at huge-page boundaries and never merge; by that of 6.12
/// they are one area (mmap.md#thp-all-sizes).
#[test]
fn thp_all_sizes() {
    for (huge_pages, areas) in [(HugePages::AllSizes, 100), (HugePages::Multiples, 1)] {
        let mut process = Process::new(Layout::X86_64, MapleTreeGuarded(huge_pages));
        (0..100).for_each(|_| assert!(process.try_map(1158).is_ok()));
        assert_eq!(process.areas(), areas);
    }
}

/// The huge-page rule is for memory of a 64-bit task, mapped without hint or alignment.
#[test]
fn thp_asks_for_nothing_else() {
    let aligned = |layout, hint, flags| {
        let mut process = Process::new(layout, MapleTreeGuarded(HugePages::Multiples));
        let taken = process.map_as(1, opaque()).unwrap();
        let hint = if hint { Some(Vpn(taken)) } else { None };
        let start = process.space.map(PageCount(HUGE), opaque(), hint, flags).unwrap();
        start.0.is_multiple_of(HUGE)
    };
    let plain = MapFlags::default();
    assert!(aligned(Layout::X86_64, false, plain));
    assert!(!aligned(Layout::X86_64, true, plain));
    assert!(!aligned(Layout::X86_64, false, MapFlags { align: 2, ..plain }));
    assert!(!aligned(COMPAT_DOWN, false, plain));
}

/// The room for one huge page more is never found in the hole that a mapping of the same size has left
/// (mmap.md#thp-pad-waste).
#[test]
fn thp_pad_waste() {
    for (placement, areas, holes) in [
        (MapleTreeGuarded(HugePages::Multiples), (135, 181), "192.9"),
        (TwoEndedFirst, (4, 5), "15.1"),
    ] {
        let outcome = leakme_64(placement);
        assert_eq!((outcome.areas, outcome.peak), areas, "{placement:?}");
        assert_eq!((&*outcome.holes, outcome.aligned), (holes, 375_000), "{placement:?}");
    }
}

/// Runs leakme under best fit for two classes of sizes, each with a window of its own: multiples of a huge page
/// downwards and aligned, the rest upwards, with inner gaps cut at one of their edges. Returns the areas at the end,
/// the most areas, and the MiB of holes between areas.
fn two_classes(inner_edge: Direction) -> (usize, usize, String) {
    let window = Span::new(TOP.0 - (64 << 18), TOP.0).unwrap();
    let mut sides = [Direction::Up, Direction::Down]
        .map(|direction| Process::new(Layout::window(window, direction), ExactAlignedBest));
    let mut starts = [None; 600];
    let mut peak = 0;
    for iteration in 0..1_000_000 {
        let (new, old) = (iteration % 600, (iteration + 60) % 600);
        let side_of = |slot| usize::from(Leakme::pages(slot).is_multiple_of(HUGE));
        if let Some(start) = starts[old].take() {
            sides[side_of(old)].unmap(start, Leakme::pages(old));
        }
        let (side, pages) = (&mut sides[side_of(new)], Leakme::pages(new));
        starts[new] = Some(match (side_of(new), inner_edge) {
            (0, Direction::Down) => {
                let gap =
                    side.space.holes().filter(|gap| gap.len() >= pages).min_by_key(|gap| gap.len());
                let gap = gap.expect("the window is large");
                let is_inner = gap.end() < window.end();
                side.map_at(if is_inner { gap.end() - pages } else { gap.start() }, pages)
            }
            _ => side.map(pages),
        });
        peak = peak.max(sides.iter().map(Process::areas).sum());
    }
    let holes = |side: &Process| -> u64 {
        side.list().windows(2).map(|pair| (pair[1].0 - pair[0].1) >> 12).sum()
    };
    let holes: u64 = sides.iter().map(holes).sum();
    (sides.iter().map(Process::areas).sum(), peak, tenths(holes as f64 / MIB as f64))
}

/// Of two edges of a gap, the one nearer to the end of the own class leaves fewer holes (mmap.md#bestfit-wrong-edge).
#[test]
fn bestfit_wrong_edge() {
    assert_eq!(two_classes(Direction::Down), (5, 6, "15.1".into()));
    assert_eq!(two_classes(Direction::Up), (4, 5, "12.1".into()));
}

/// Beside a guard gap, an alignment may put the end of the padded place beyond all numbers.
#[test]
fn padding_beyond_all_numbers() {
    let half = 1 << 63;
    let layout = Layout::window(Span::new(1, u64::MAX).unwrap(), Direction::Up);
    let mut process = Process::new(layout, GUARDED);
    let stack = opaque().with(AreaFlags::GROWS_DOWN);
    process.space.load(Vpn(u64::MAX - 1), PageCount(1), stack).unwrap();
    let flags = MapFlags { align: half, ..MapFlags::default() };
    // The padded place reaches into the guard gap, and nothing lies above it.
    let start = process.space.map(PageCount(2), opaque(), None, flags);
    assert!(matches!(start, Err(MapError::NoPlace { .. })), "{start:?}");
}
