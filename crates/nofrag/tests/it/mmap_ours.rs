//! Our placement and what it must reach (spec/mmap.md §10, G3).

use nofrag::mmap::{
    AddressSpace, Attributes, Direction, Layout, MapFlags, Placement, Protection, SpaceConfig,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};

const MEMORY: Attributes = Attributes::anonymous(Protection::READ_WRITE);
const MIB: u64 = 256;
const HUGE: u64 = 512;

fn ours(window: Span) -> AddressSpace {
    let layout = Layout::window(window, Direction::Down);
    AddressSpace::new(SpaceConfig::new(layout, Placement::TwoEnded))
}

/// Pages of slot `slot` of leakme (spec §4.1).
fn leakme_pages(slot: u64) -> u64 {
    if slot.is_multiple_of(8) { 2320 } else { slot % 8 * MIB }
}

/// What leakme saw.
#[derive(Default)]
struct Leakme {
    most_areas: usize,
    multiples: u64,
    aligned: u64,
}

fn leakme(space: &mut AddressSpace, iterations: u64) -> Leakme {
    let mut seen = Leakme::default();
    let mut slots = vec![None; 600];
    for i in 0..iterations {
        let old = (i + 60) % 600;
        if let Some(start) = slots[old as usize].take() {
            space.unmap(start, PageCount(leakme_pages(old))).unwrap();
        }
        let pages = leakme_pages(i % 600);
        let start = space.map(PageCount(pages), MEMORY, None, MapFlags::default()).unwrap();
        slots[(i % 600) as usize] = Some(start);
        seen.most_areas = seen.most_areas.max(space.area_count());
        if pages.is_multiple_of(HUGE) {
            seen.multiples += 1;
            seen.aligned += u64::from(start.0.is_multiple_of(HUGE));
        }
    }
    seen
}

/// Pages between areas, without what lies below the first and above the last, and without the largest gap.
fn pages_in_holes(space: &AddressSpace) -> u64 {
    let areas: Vec<_> = space.areas().collect();
    let holes = areas.windows(2).map(|pair| pair[1].start.0 - pair[0].end().0);
    holes.clone().sum::<u64>() - holes.max().unwrap_or(0)
}

/// Spec §5.3: Linux 6.18 ends with 135 areas and 193 MiB of holes.
#[test]
fn leakme_in_64_bits_ends_with_four_areas() {
    let top = 0x7fff_f7ff_d000 >> 12;
    let mut space = ours(Span::new(top - (128 << 30 >> 12), top).unwrap());
    let seen = leakme(&mut space, 1_000_000);
    assert_eq!((space.area_count(), seen.most_areas), (4, 5));
    assert_eq!((seen.aligned, seen.multiples), (375_000, 375_000));
    assert!(pages_in_holes(&space) * 10 <= 122 * MIB, "{} pages", pages_in_holes(&space));
}

fn check_starts(window: Span, sizes: &[u64], starts: &[u64]) {
    let mut space = ours(window);
    let map = |&pages| space.map(PageCount(pages), MEMORY, None, MapFlags::default());
    let found: Vec<_> = sizes.iter().map(map).collect();
    let wanted: Vec<_> = starts.iter().map(|&start| Ok(Vpn(start))).collect();
    assert_eq!(found, wanted);
}

#[test]
fn classes_grow_towards_each_other() {
    let window = Span::new(0x1001, 0x20ff).unwrap();
    check_starts(window, &[1, HUGE, 3, 2 * HUGE], &[0x1001, 0x1e00, 0x1002, 0x1a00]);
}

/// The spill rule: what has no place on its side goes to the other one, and a multiple without an aligned place is
/// mapped all the same.
#[test]
fn a_full_window_is_used_to_the_last_page() {
    let window = Span::new(1, 1 + 3 * HUGE).unwrap();
    check_starts(window, &[HUGE, HUGE, 511, 1], &[2 * HUGE, HUGE, 1, 3 * HUGE]);
    check_starts(Span::new(1, 1 + HUGE).unwrap(), &[HUGE], &[1]);
}
