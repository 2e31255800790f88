//! Operations of `mmap`, each on its worst input.

use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Direction, Layout, MapFlags, Placement, Protection,
    RemapTarget, SpaceConfig,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};

use super::Cost::{Constant, Linear, Linearithmic, Logarithmic};
use super::steps::instructions;
use super::{Chapter, operation};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "mmap",
    counted: "the number of areas, under the placements `TwoEnded` (nofrag's own) and `ExactAligned`",
    operations: &[
        operation("map", "only the highest gap is long enough", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            instructions(|| space.map(PageCount(4), MEMORY, None, MapFlags::default()).unwrap())
        }),
        operation("map", "`ExactAligned`, the same", Logarithmic, |n| {
            let mut space = areas(n, Placement::ExactAligned);
            instructions(|| space.map(PageCount(4), MEMORY, None, MapFlags::default()).unwrap())
        }),
        operation("map", "an alignment that no gap has, long enough as they are", Linear, |n| {
            let mut space = areas(4 * n, Placement::TwoEnded);
            space.map_fixed(Vpn(BASE + 4 * n * PITCH), PageCount(64), MEMORY).unwrap();
            let flags = MapFlags { align: PITCH, ..MapFlags::default() };
            instructions(|| space.map(PageCount(2), MEMORY, None, flags).unwrap_err())
        }),
        operation("map_fixed", "over one area", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            instructions(|| space.map_fixed(middle(n), PageCount(2), MEMORY).unwrap())
        }),
        operation("map_fixed_noreplace", "in a gap", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            let gap = Vpn(middle(n).0 + 2);
            instructions(|| space.map_fixed_noreplace(gap, PageCount(1), MEMORY).unwrap())
        }),
        operation("unmap", "one area", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            instructions(|| space.unmap(middle(n), PageCount(2)).unwrap())
        }),
        operation("protect", "a part of one area", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            instructions(|| space.protect(middle(n), PageCount(1), Protection::NONE).unwrap())
        }),
        operation("touch", "one area", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            instructions(|| space.touch(middle(n), PageCount(2)).unwrap())
        }),
        operation("remap", "in place", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            let (old, new) = (PageCount(2), PageCount(3));
            instructions(|| space.remap(middle(n), old, new, RemapTarget::InPlace).unwrap())
        }),
        operation("begin_move_to", "with the commit", Logarithmic, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            let to = Vpn(BASE + n * PITCH + 10);
            instructions(|| {
                let moved = space.begin_move_to(middle(n), PageCount(2), to).unwrap();
                space.commit_move(moved).unwrap();
            })
        }),
        operation("lookup", "an area", Logarithmic, |n| {
            let space = areas(n, Placement::TwoEnded);
            instructions(|| space.lookup(middle(n)))
        }),
        operation("find", "a gap", Logarithmic, |n| {
            let space = areas(n, Placement::TwoEnded);
            instructions(|| space.find(Vpn(middle(n).0 + 2)))
        }),
        operation("area_count", "any", Constant, |n| {
            let space = areas(n, Placement::TwoEnded);
            instructions(|| space.area_count())
        }),
        operation("fork", "any", Linearithmic, |n| {
            let mut space = areas(n / 4, Placement::TwoEnded);
            instructions(|| space.fork().unwrap())
        }),
        operation("exec", "areas of a few kinds", Constant, |n| {
            let mut space = areas(n, Placement::TwoEnded);
            instructions(|| space.exec())
        }),
        operation("hole_stats", "any", Linear, |n| {
            let space = areas(n, Placement::TwoEnded);
            instructions(|| space.hole_stats())
        }),
        operation("hole_histogram", "any", Linear, |n| {
            let space = areas(n, Placement::TwoEnded);
            instructions(|| space.hole_histogram())
        }),
        operation("largest_aligned", "any", Linear, |n| {
            let space = areas(n, Placement::TwoEnded);
            instructions(|| space.largest_aligned(PITCH))
        }),
        operation("guard_share", "any", Linear, |n| {
            let space = areas(n, Placement::TwoEnded);
            instructions(|| space.guard_share())
        }),
    ],
};

/// Memory that merges with nothing.
const MEMORY: Attributes = Attributes::anonymous(Protection::READ_WRITE).with(AreaFlags::OPAQUE);
const BASE: u64 = 1 << 20;
const PITCH: u64 = 4;

/// Returns the first page of an area in the middle of `count`.
fn middle(count: u64) -> Vpn {
    Vpn(BASE + count / 2 * PITCH)
}

/// Returns a space with `count` areas of two pages, two pages apart, and a longer gap above them.
fn areas(count: u64, placement: Placement) -> AddressSpace {
    let window = Span::sized(BASE, count * PITCH + 64).unwrap();
    let layout = Layout::window(window, Direction::Up);
    let config = SpaceConfig { map_limit: usize::MAX, ..SpaceConfig::new(layout, placement) };
    let mut space = AddressSpace::new(config);
    for number in 0..count {
        let start = Vpn(BASE + number * PITCH);
        space.map_fixed_noreplace(start, PageCount(2), MEMORY).unwrap();
    }
    space
}
