//! Bugs that kernels and users of address spaces had (docs/sources/mmap.md#bugs), each in the form in which it bit.

use nofrag::check::Check;
use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Direction, FixedError, GrowError, HugePages, Layout,
    MapError, MapFlags, MergeBlocker, MoveError, Placement, ProtectError, Protection, RemapTarget,
    SpaceConfig, UnmapError, WindowChoice,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};

const MEMORY: Attributes = Attributes::anonymous(Protection::READ_WRITE);
const GUARD: Attributes = Attributes::anonymous(Protection::NONE);

fn config(layout: Layout, placement: Placement) -> SpaceConfig {
    SpaceConfig { guard_gap: PageCount(4), ..SpaceConfig::new(layout, placement) }
}

/// Returns a space of pages `1..1000`, filled upwards by first fit.
fn small() -> AddressSpace {
    let window = Span::new(1, 1000).unwrap();
    AddressSpace::new(config(Layout::window(window, Direction::Up), Placement::FirstFit))
}

/// Returns a space as [`small`] does, with at most `map_limit` areas.
fn limited(map_limit: usize) -> AddressSpace {
    let window = Layout::window(Span::new(1, 1000).unwrap(), Direction::Up);
    AddressSpace::new(SpaceConfig { map_limit, ..config(window, Placement::FirstFit) })
}

/// Returns each area as `first..end`, in decimal, and its protection.
fn picture(space: &AddressSpace) -> String {
    let draw = |area: nofrag::mmap::AreaRecord| {
        let kind = match area.attributes.protection {
            Protection::NONE => '-',
            Protection::READ => 'r',
            _ => 'w',
        };
        format!("{}..{}{kind}", area.start, area.end())
    };
    space.areas().map(draw).collect::<Vec<_>>().join(" ")
}

fn check_picture(space: &AddressSpace, expected: &str) {
    space.check().unwrap();
    assert_eq!(picture(space), expected);
}

fn fixed(space: &mut AddressSpace, start: u64, pages: u64, attributes: Attributes) {
    space.map_fixed(Vpn(start), PageCount(pages), attributes).unwrap();
}

fn touch(space: &mut AddressSpace, start: u64) {
    space.touch(Vpn(start), PageCount(1)).unwrap();
}

/// At the limit an unmapping that would leave two parts is refused and changes nothing; every other one succeeds
/// (mmap.md#munmap-enomem).
#[test]
fn munmap_enomem() {
    let mut space = limited(2);
    fixed(&mut space, 10, 10, MEMORY);
    fixed(&mut space, 30, 10, MEMORY);
    let refused = Err(UnmapError::TooManyAreas { limit: 2 });
    assert_eq!(space.unmap(Vpn(13), PageCount(2)), refused);
    check_picture(&space, "10..20w 30..40w");
    // The edges need no area more, and a range over several areas leaves one part of each.
    space.unmap(Vpn(10), PageCount(2)).unwrap();
    space.unmap(Vpn(38), PageCount(2)).unwrap();
    space.unmap(Vpn(18), PageCount(15)).unwrap();
    check_picture(&space, "12..18w 33..38w");
    space.unmap(Vpn(0), PageCount(20)).unwrap();
    space.unmap(Vpn(34), PageCount(2)).unwrap();
    check_picture(&space, "33..34w 36..38w");
}

/// `mmap` is refused above the limit, not at it.
#[test]
fn one_more_than_the_limit_can_be_mapped() {
    let mut space = limited(2);
    for start in [10, 20, 30] {
        fixed(&mut space, start, 1, MEMORY);
    }
    let refused = Err(MapError::TooManyAreas { limit: 2 });
    assert_eq!(space.map(PageCount(1), MEMORY, None, MapFlags::default()), refused);
    let refused = Err(FixedError::TooManyAreas { limit: 2 });
    assert_eq!(space.map_fixed(Vpn(10), PageCount(1), MEMORY), refused);
    assert_eq!(space.map_fixed_noreplace(Vpn(10), PageCount(1), MEMORY), refused);
    check_picture(&space, "10..11w 20..21w 30..31w");
}

/// A fixed mapping inside one area, at the limit, is refused before anything is unmapped.
#[test]
fn a_fixed_mapping_at_the_limit_unmaps_nothing() {
    let mut space = limited(1);
    fixed(&mut space, 10, 10, MEMORY);
    let refused = Err(FixedError::TooManyAreas { limit: 1 });
    assert_eq!(space.map_fixed(Vpn(13), PageCount(2), GUARD), refused);
    check_picture(&space, "10..20w");
    assert_eq!(space.map_fixed(Vpn(10), PageCount(2), GUARD), Ok(()));
    check_picture(&space, "10..12- 12..20w");
}

/// A change that needs two splits and may have one makes none; Linux leaves the first.
#[test]
fn protect_at_the_limit_is_whole_or_nothing() {
    let mut space = limited(2);
    fixed(&mut space, 10, 10, MEMORY);
    let refused = Err(ProtectError::TooManyAreas { limit: 2 });
    assert_eq!(space.protect(Vpn(13), PageCount(2), Protection::NONE), refused);
    check_picture(&space, "10..20w");
    space.protect(Vpn(10), PageCount(2), Protection::NONE).unwrap();
    check_picture(&space, "10..12- 12..20w");
    // Moving the border between two areas splits nothing.
    space.protect(Vpn(12), PageCount(2), Protection::NONE).unwrap();
    check_picture(&space, "10..14- 14..20w");
    // Neither does a range whose pages end in a hole: nothing of it changes.
    let hole = Err(ProtectError::NotMapped { hole: 20 });
    assert_eq!(space.protect(Vpn(14), PageCount(10), Protection::NONE), hole);
    check_picture(&space, "10..14- 14..20w");
    space.protect(Vpn(10), PageCount(4), Protection::READ_WRITE).unwrap();
    check_picture(&space, "10..20w");
}

/// A mapping between two areas that were both touched joins the lower one; the two stay apart
/// (mmap.md#one-sided-bridge).
#[test]
fn one_sided_bridge() {
    let mut space = small();
    fixed(&mut space, 10, 2, MEMORY);
    fixed(&mut space, 14, 2, MEMORY);
    touch(&mut space, 10);
    touch(&mut space, 14);
    fixed(&mut space, 12, 2, MEMORY);
    check_picture(&space, "10..14w 14..16w");
    assert_eq!(space.blocker_above(Vpn(10)), Some(MergeBlocker::Chain));
    // If only one was touched, all become one.
    space.exec();
    fixed(&mut space, 10, 2, MEMORY);
    fixed(&mut space, 14, 2, MEMORY);
    touch(&mut space, 14);
    fixed(&mut space, 12, 2, MEMORY);
    check_picture(&space, "10..16w");
}

/// The same one-sided bridge by a change of protection.
#[test]
fn one_sided_bridge_by_protect() {
    let mut space = small();
    fixed(&mut space, 10, 6, MEMORY);
    space.protect(Vpn(12), PageCount(2), Protection::NONE).unwrap();
    touch(&mut space, 10);
    touch(&mut space, 14);
    space.protect(Vpn(12), PageCount(2), Protection::READ_WRITE).unwrap();
    check_picture(&space, "10..14w 14..16w");
}

/// Memory that a fork shares merges with nothing untouched, but parts of one area still find together.
#[test]
fn shared_chains_do_not_merge() {
    let mut space = small();
    fixed(&mut space, 10, 6, MEMORY);
    touch(&mut space, 10);
    let child = space.fork().unwrap();
    for space in [&mut space, &mut { child }] {
        fixed(space, 16, 2, MEMORY);
        check_picture(space, "10..16w 16..18w");
        assert_eq!(space.blocker_above(Vpn(10)), Some(MergeBlocker::Chain));
        space.protect(Vpn(12), PageCount(2), Protection::NONE).unwrap();
        space.protect(Vpn(12), PageCount(2), Protection::READ_WRITE).unwrap();
        check_picture(space, "10..16w 16..18w");
    }
}

/// An area whose driver wants to hear of its end is not taken in by its neighbour below.
#[test]
fn a_close_hook_keeps_the_part_that_would_vanish() {
    let hooked = MEMORY.with(AreaFlags::CLOSE_HOOK);
    let mut space = small();
    fixed(&mut space, 10, 2, MEMORY);
    fixed(&mut space, 14, 2, hooked);
    fixed(&mut space, 12, 2, MEMORY);
    check_picture(&space, "10..14w 14..16w");
    // The lower neighbour stays, hook or not, so it may take in what is new.
    fixed(&mut space, 16, 2, MEMORY);
    check_picture(&space, "10..14w 14..18w");
}

/// A move is refused, before anything changes, unless more than three areas are left below the limit, one to a given
/// place unless more than five are (mmap.md#mremap-headroom).
#[test]
fn mremap_headroom() {
    let mut space = limited(8);
    for start in [10, 20, 30, 40, 50] {
        fixed(&mut space, start, 5, MEMORY);
    }
    // The way up is barred.
    fixed(&mut space, 15, 1, GUARD);
    let before = picture(&space);
    let refused = Err(MoveError::TooManyAreas { limit: 8 });
    let remap =
        |space: &mut AddressSpace, target| space.remap(Vpn(10), PageCount(5), PageCount(6), target);
    let words = *space.counters();
    assert_eq!(remap(&mut space, RemapTarget::MayMove), refused);
    assert_eq!(remap(&mut space, RemapTarget::To(Vpn(60))), refused);
    check_picture(&space, &before);
    assert_eq!(*space.counters(), words, "nothing was even looked for");
    // One area fewer is room enough for a move to where there is place, but not for one to a given place.
    space.unmap(Vpn(50), PageCount(5)).unwrap();
    space.unmap(Vpn(40), PageCount(5)).unwrap();
    let before = picture(&space);
    assert_eq!(remap(&mut space, RemapTarget::To(Vpn(60))), refused);
    check_picture(&space, &before);
    assert_eq!(remap(&mut space, RemapTarget::MayMove), Ok(Vpn(1)));
    check_picture(&space, "1..7w 15..16- 20..25w 30..35w");
}

/// A mapping grows where it is, and joins what it comes to touch.
#[test]
fn mremap_grows_in_place() {
    let mut space = small();
    fixed(&mut space, 10, 5, MEMORY);
    fixed(&mut space, 20, 5, MEMORY);
    let grown = space.remap(Vpn(12), PageCount(3), PageCount(8), RemapTarget::InPlace);
    assert_eq!(grown, Ok(Vpn(12)));
    check_picture(&space, "10..25w");
    let refused = Err(MoveError::Taken { area: 10 });
    assert_eq!(space.remap(Vpn(10), PageCount(5), PageCount(6), RemapTarget::InPlace), refused);
    let fixed_size = MEMORY.with(AreaFlags::DONT_EXPAND);
    fixed(&mut space, 40, 2, fixed_size);
    let refused = Err(MoveError::NotExpandable);
    assert_eq!(space.remap(Vpn(40), PageCount(2), PageCount(3), RemapTarget::MayMove), refused);
    space.remap(Vpn(10), PageCount(15), PageCount(1), RemapTarget::InPlace).unwrap();
    check_picture(&space, "10..11w 40..42w");
}

/// Touched memory keeps its offset when it moves, and so does not merge with what lies beside its new place.
#[test]
fn a_moved_touched_area_stays_apart() {
    let mut space = small();
    fixed(&mut space, 10, 2, MEMORY);
    fixed(&mut space, 50, 2, MEMORY);
    let to = RemapTarget::To(Vpn(52));
    space.remap(Vpn(10), PageCount(2), PageCount(2), to).unwrap();
    check_picture(&space, "50..54w");
    fixed(&mut space, 10, 2, MEMORY);
    touch(&mut space, 10);
    space.remap(Vpn(10), PageCount(2), PageCount(2), RemapTarget::To(Vpn(54))).unwrap();
    check_picture(&space, "50..54w 54..56w");
    assert_eq!(space.blocker_above(Vpn(50)), Some(MergeBlocker::Offset));
}

/// A window can be moved although nothing else is free: the old place is given up only when the new one is held
/// (mmap.md#free-before-allocate).
#[test]
fn free_before_allocate() {
    let window = Layout::window(Span::new(0x100, 0x200).unwrap(), Direction::Up);
    let mut space = AddressSpace::new(config(window, Placement::BestFit));
    let bar = MEMORY.with(AreaFlags::IO);
    fixed(&mut space, 0x100, 0x40, bar);
    fixed(&mut space, 0x140, 0xa0, GUARD);
    let areas: Vec<_> = space.areas().collect();
    let refused = space.begin_move(Vpn(0x100), PageCount(0x40), MapFlags::default());
    assert!(matches!(refused, Err(MoveError::NoPlace(MapError::NoPlace { largest: 0x20 }))));
    let refused = space.begin_move_to(Vpn(0x100), PageCount(0x40), Vpn(0x1c0));
    assert_eq!(refused, Err(MoveError::Taken { area: 0x140 }));
    assert_eq!(space.areas().collect::<Vec<_>>(), areas, "a failed move loses nothing");
    // With room, nobody else gets the new place while the move is pending, and a rollback leaves no trace.
    space.unmap(Vpn(0x140), PageCount(0xa0)).unwrap();
    let pending = space.begin_move_to(Vpn(0x100), PageCount(0x40), Vpn(0x180)).unwrap();
    let taken = Err(FixedError::Taken { area: 0x180 });
    assert_eq!(space.map_fixed_noreplace(Vpn(0x1a0), PageCount(1), MEMORY), taken);
    space.rollback_move(pending).unwrap();
    check_picture(&space, "256..320w");
    let pending = space.begin_move_to(Vpn(0x100), PageCount(0x40), Vpn(0x180)).unwrap();
    space.commit_move(pending).unwrap();
    check_picture(&space, "384..448w");
}

/// A move may overlap the old place.
#[test]
fn a_move_by_half_its_length() {
    let mut space = small();
    fixed(&mut space, 10, 10, MEMORY);
    fixed(&mut space, 25, 5, GUARD);
    let refused = space.begin_move_to(Vpn(10), PageCount(10), Vpn(16));
    assert_eq!(refused, Err(MoveError::Taken { area: 25 }));
    let pending = space.begin_move_to(Vpn(10), PageCount(10), Vpn(15)).unwrap();
    check_picture(&space, "10..20w 20..25w 25..30-");
    space.commit_move(pending).unwrap();
    check_picture(&space, "15..25w 25..30-");
    let pending = space.begin_move_to(Vpn(15), PageCount(10), Vpn(5)).unwrap();
    space.rollback_move(pending).unwrap();
    check_picture(&space, "15..25w 25..30-");
}

/// A move whose reserved place was unmapped behind its back cannot end, and says so.
#[test]
fn a_move_that_lost_its_place_is_handed_back() {
    let mut space = small();
    fixed(&mut space, 10, 4, MEMORY);
    let pending = space.begin_move(Vpn(10), PageCount(4), MapFlags::default()).unwrap();
    space.unmap(Vpn(pending.to().start()), PageCount(1)).unwrap();
    let (pending, why) = space.commit_move(pending).unwrap_err();
    assert_eq!(why, MoveError::NotOneArea);
    let (_, why) = space.rollback_move(pending).unwrap_err();
    assert_eq!(why, MoveError::NotOneArea);
    check_picture(&space, "2..5w 10..14w");
}

/// `end - size - align` misses the last aligned place; rounding `end - size` down finds it (mmap.md#end-size-align).
#[test]
fn end_size_align() {
    for placement in [Placement::GapTree, Placement::ExactAligned, Placement::TwoEnded] {
        let window = Layout::window(Span::new(0x40, 0x80).unwrap(), Direction::Down);
        let mut space = AddressSpace::new(config(window, placement));
        let flags = MapFlags { align: 0x40, ..MapFlags::default() };
        let found = space.map(PageCount(0x40), MEMORY, None, flags);
        // The padded search of Linux 3.8 has this very fault.
        let padded = placement == Placement::GapTree;
        assert_eq!(found.is_err(), padded, "{placement:?}: {found:?}");
    }
}

/// No search returns page 0, and none claims it: also in a window that would begin there (mmap.md#address-zero).
#[test]
fn address_zero() {
    for preset in Placement::presets() {
        for direction in [Direction::Up, Direction::Down] {
            let window = Layout::window(Span::new(0, 64).unwrap(), direction);
            let mut space = AddressSpace::new(config(window, preset.placement));
            let mut mapped = 0;
            while let Ok(start) = space.map(PageCount(1), MEMORY, None, MapFlags::default()) {
                assert_ne!(start, Vpn(0), "{}", preset.name);
                mapped += 1;
            }
            assert_eq!(mapped, 63, "{} {direction:?}", preset.name);
            assert_eq!(space.map_fixed(Vpn(0), PageCount(1), MEMORY), Err(FixedError::Outside));
        }
    }
}

/// A new program inherits nothing, whatever the caches knew (mmap.md#exec-self-assign).
#[test]
fn exec_self_assign() {
    for preset in Placement::presets() {
        for layout in [Layout::COMPAT_UP, Layout::X86_64] {
            let mut space = AddressSpace::new(config(layout, preset.placement));
            let map = |space: &mut AddressSpace, pages| {
                space.map(PageCount(pages), MEMORY, None, MapFlags::default()).unwrap()
            };
            let first = [map(&mut space, 3), map(&mut space, 1), map(&mut space, 7)];
            space.unmap(first[1], PageCount(1)).unwrap();
            map(&mut space, 2);
            space.exec();
            assert_eq!(space.area_count(), 0);
            let again = [map(&mut space, 3), map(&mut space, 1), map(&mut space, 7)];
            assert_eq!(again, first, "{} remembers", preset.name);
        }
    }
}

/// Numbers near the ends of 64 bits are refused, never wrapped.
#[test]
fn overflow_at_both_ends() {
    let mut space = AddressSpace::new(config(Layout::X86_64, Placement::default()));
    fixed(&mut space, 0x100, 4, MEMORY);
    let most = [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 52) - 1, 1 << 52];
    for (start, pages) in most.into_iter().flat_map(|at| [(at, 1), (at, at), (0x102, at), (0, at)])
    {
        let (start, pages) = (Vpn(start), PageCount(pages));
        let big = pages.0 > 1 || start.0 > 0x1000;
        assert!(big);
        assert_eq!(space.unmap(start, pages), Err(UnmapError::Outside), "{start} {pages}");
        assert_eq!(space.map_fixed(start, pages, MEMORY), Err(FixedError::Outside));
        assert_eq!(space.map_fixed_noreplace(start, pages, MEMORY), Err(FixedError::Outside));
        assert_eq!(space.protect(start, pages, Protection::NONE), Err(ProtectError::Outside));
        assert_eq!(space.touch(start, pages), Err(ProtectError::Outside));
        let refused = Err(MoveError::Outside);
        assert_eq!(space.remap(start, pages, PageCount(1), RemapTarget::MayMove), refused);
        let to = RemapTarget::To(start);
        assert_eq!(space.remap(Vpn(0x100), PageCount(1), pages, to), refused);
        assert!(space.begin_move_to(Vpn(0x100), PageCount(1), Vpn(u64::MAX)).is_err());
    }
    let wanted = |space: &mut AddressSpace, pages, hint| {
        space.map(PageCount(pages), MEMORY, Some(Vpn(hint)), MapFlags::default())
    };
    assert_eq!(wanted(&mut space, u64::MAX, u64::MAX), Err(MapError::TooLong));
    assert_eq!(wanted(&mut space, u64::MAX, 0x200), Err(MapError::TooLong));
    for hint in [u64::MAX, u64::MAX - 1, 1 << 52] {
        let start = wanted(&mut space, 1, hint).unwrap();
        assert!(start.0 < 1 << 44, "a hint that is no page of the space is ignored: {start}");
    }
    assert_eq!(space.grow_stack(Vpn(u64::MAX)), Err(GrowError::NoStack));
    space.check().unwrap();
}

/// A hint above the usual window opens the larger one, and only such a hint does.
#[test]
fn hints_above_47_bits() {
    let end = Layout::X86_64.end;
    for direction in [Direction::Up, Direction::Down] {
        let layout = Layout { direction, ..Layout::X86_64 };
        let mut space = AddressSpace::new(config(layout, Placement::GapTree));
        let mut map = |pages, hint| {
            space.map(PageCount(pages), MEMORY, Some(Vpn(hint)), MapFlags::default()).unwrap()
        };
        assert_eq!(map(1, end.0 + 1), Vpn(end.0 + 1));
        // Taken: the search uses all of the larger window.
        let start = map(1, end.0 + 1);
        assert_eq!(start > end, direction == Direction::Down, "{start}");
        // Up to the end is below it; over the end is nowhere.
        assert_eq!(map(1, end.0 - 1), Vpn(end.0 - 1));
        assert!(map(2, end.0 - 1) < end);
        assert!(map(1, end.0) < end);
        // Without such a machine there is no larger window.
        let layout = Layout { extended_end: None, ..layout };
        let mut space = AddressSpace::new(config(layout, Placement::default()));
        let hint = Some(Vpn(end.0 + 1));
        let start = space.map(PageCount(1), MEMORY, hint, MapFlags::default()).unwrap();
        assert!(start < end);
    }
}

/// A hint below the lowest page means that page; page 0 is no hint.
#[test]
fn hints_below_the_floor() {
    let mut space = AddressSpace::new(config(Layout::X86_64, Placement::default()));
    let floor = Layout::X86_64.floor;
    let mut map =
        |hint| space.map(PageCount(1), MEMORY, Some(Vpn(hint)), MapFlags::default()).unwrap();
    assert_ne!(map(0), floor);
    assert_eq!(map(1), floor);
    assert_ne!(map(1), floor);
}

/// A hint that has not the alignment is none: the mapping must have it.
#[test]
fn hints_without_the_alignment() {
    for preset in Placement::presets() {
        let mut space = AddressSpace::new(config(Layout::X86_64, preset.placement));
        let flags = MapFlags { align: 16, offset: 3, ..MapFlags::default() };
        let mut map = |hint| space.map(PageCount(2), MEMORY, Some(Vpn(hint)), flags).unwrap().0;
        assert_eq!(map(0x1003), 0x1003, "{}", preset.name);
        for hint in [1, 0x2000, 0x2004] {
            assert_eq!(map(hint) % 16, 3, "{} {hint:#x}", preset.name);
        }
    }
}

/// Searches keep to the space also where a layout says of a window that it reaches beyond.
#[test]
fn windows_beyond_the_space() {
    for preset in Placement::presets() {
        for direction in [Direction::Up, Direction::Down] {
            let bounds = Span::new(100, 164).unwrap();
            let wide = Layout {
                base: Vpn(2),
                top: Vpn(500),
                low: Some(Span::new(0, 1000).unwrap()),
                ..Layout::window(bounds, direction)
            };
            for window in [WindowChoice::Usual, WindowChoice::Low] {
                let mut space = AddressSpace::new(config(wide, preset.placement));
                let flags = MapFlags { window, ..MapFlags::default() };
                let mut mapped = 0;
                while let Ok(start) = space.map(PageCount(1), MEMORY, None, flags) {
                    assert!(bounds.contains(start.0), "{} {window:?}: {start}", preset.name);
                    mapped += 1;
                }
                assert_eq!(mapped, 64, "{} {direction:?} {window:?}", preset.name);
            }
        }
    }
}

/// In a space whose floor lies above 4 GiB, `MAP_ABOVE4G` reaches all pages from the floor on, and no other.
#[test]
fn above_4_gib_and_above_the_floor() {
    let (floor, end) = (3 << 20, 4 << 20);
    for preset in Placement::presets() {
        for direction in [Direction::Up, Direction::Down] {
            let window = Layout::window(Span::new(floor, end).unwrap(), direction);
            let mut space = AddressSpace::new(config(window, preset.placement));
            let flags = MapFlags { window: WindowChoice::Above4G, ..MapFlags::default() };
            let mut map = |pages| space.map(PageCount(pages), MEMORY, None, flags);
            assert_eq!(map(end - floor), Ok(Vpn(floor)), "{} {direction:?}", preset.name);
            assert_eq!(map(1), Err(MapError::NoPlace { largest: 0 }), "{}", preset.name);
        }
    }
}

/// `MAP_32BIT` takes hints below the end of its window, and searches in it.
#[test]
fn low_hints() {
    let mut space = AddressSpace::new(config(Layout::X86_64, Placement::default()));
    let flags = MapFlags { window: WindowChoice::Low, ..MapFlags::default() };
    let mut map = |pages, hint| space.map(PageCount(pages), MEMORY, Some(Vpn(hint)), flags);
    assert_eq!(map(1, 0x20000), Ok(Vpn(0x20000)));
    assert_eq!(map(1, 0x50000), Ok(Vpn(0x50000)));
    for (pages, hint) in [(2, 0x7ffff), (1, 0x90000)] {
        let start = map(pages, hint).unwrap().0;
        assert!((0x40000..0x80000).contains(&start), "{start:#x}");
    }
    // Too many pages for the window, but a hint may lie below it.
    space.exec();
    let mut map = |pages, hint| space.map(PageCount(pages), MEMORY, Some(Vpn(hint)), flags);
    assert_eq!(map(0x50000, 1), Ok(Vpn(0x10)));
    assert_eq!(map(0x50000, 1), Err(MapError::NoPlace { largest: 0x80000 - 0x50010 }));
}

/// Hints respect what stays free below a stack, by the rules since 2017 only.
#[test]
fn hints_and_guard_gaps() {
    let guards = [(AreaFlags::GROWS_DOWN, 4), (AreaFlags::SHADOW_STACK, 1), (AreaFlags::NONE, 0)];
    for preset in Placement::presets() {
        for (flag, gap) in guards {
            let mut space = AddressSpace::new(config(Layout::X86_64, preset.placement));
            fixed(&mut space, 0x1000, 4, MEMORY.with(flag));
            let mut is_taken = |hint: u64| {
                let start = space.map(PageCount(2), GUARD, Some(Vpn(hint)), MapFlags::default());
                let taken = start == Ok(Vpn(hint));
                space.unmap(start.unwrap(), PageCount(2)).unwrap();
                taken
            };
            let newer = matches!(preset.name, "nofrag" | "two-ended-first" | "two-ended")
                || ["linux-6.1", "linux-6.3", "linux-6.7", "linux-6.12"].contains(&preset.name);
            let gap = if newer { gap } else { 0 };
            assert!(is_taken(0x1000 - 2 - gap), "{} {flag:?}", preset.name);
            assert!(!is_taken(0x1000 - 1 - gap), "{} {flag:?}", preset.name);
            assert!(is_taken(0x1004), "nothing is kept free above");
        }
    }
}

/// As the running kernel refuses (6.18): downwards, in the gap below a stack whose guard gap reaches address 0, the
/// search ends, though there is room above; a request that is too large for that gap gets it.
#[test]
fn a_guard_gap_down_to_zero_ends_the_search() {
    let layout =
        Layout { top: Vpn(100), ..Layout::window(Span::new(1, 1000).unwrap(), Direction::Down) };
    let rule = Placement::MapleTreeGuarded(HugePages::Ignored);
    let mut space = AddressSpace::new(config(layout, rule));
    fixed(&mut space, 3, 2, MEMORY.with(AreaFlags::GROWS_DOWN));
    fixed(&mut space, 5, 95, GUARD);
    let mut map = |pages| space.map(PageCount(pages), MEMORY, None, MapFlags::default());
    assert_eq!(map(3), Ok(Vpn(100)));
    assert!(matches!(map(2), Err(MapError::NoPlace { .. })));
}

/// A stack grows up to its guard gap, past an inaccessible guard, and to another part of a stack.
#[test]
fn stacks_grow_to_their_gap() {
    let stack = MEMORY.with(AreaFlags::GROWS_DOWN);
    let mut space = small();
    fixed(&mut space, 10, 2, MEMORY);
    fixed(&mut space, 30, 2, stack);
    assert_eq!(space.grow_stack(Vpn(31)), Ok(PageCount(0)));
    assert_eq!(space.grow_stack(Vpn(25)), Ok(PageCount(5)));
    assert_eq!(space.grow_stack(Vpn(16)), Ok(PageCount(9)));
    assert_eq!(space.grow_stack(Vpn(15)), Err(GrowError::GuardGap { neighbour: 10 }));
    assert_eq!(space.grow_stack(Vpn(9)), Err(GrowError::NoStack));
    assert_eq!(space.grow_stack(Vpn(40)), Err(GrowError::NoStack));
    check_picture(&space, "10..12w 16..32w");
    space.protect(Vpn(10), PageCount(2), Protection::NONE).unwrap();
    assert_eq!(space.grow_stack(Vpn(12)), Ok(PageCount(4)));
    check_picture(&space, "10..12- 12..32w");
    fixed(&mut space, 100, 2, stack);
    assert_eq!(space.grow_stack(Vpn(32)), Ok(PageCount(68)));
    assert_eq!(picture(&space), "10..12- 12..32w 32..102w");
}

/// Areas with 2,000 different names that come and go twice take no more memory the second time: entries of the
/// attribute table are reused.
#[test]
fn attributes_are_reused() {
    let mut space = small();
    let run = |space: &mut AddressSpace| {
        for round in 0..2_000_u32 {
            fixed(space, 10, 2, Attributes { name: round, ..MEMORY });
            touch(space, 10);
            space.unmap(Vpn(10), PageCount(1 + u64::from(round % 2))).unwrap();
        }
        space.unmap(Vpn(1), PageCount(900)).unwrap();
        space.check().unwrap();
    };
    run(&mut space);
    let bytes = space.metadata_bytes();
    run(&mut space);
    assert_eq!(space.metadata_bytes(), bytes);
    assert!(bytes < 20_000, "{bytes} bytes for two areas at a time");
}

/// Found by the fuzzing campaign. An area that moves to the pages right above its old place merged with the old place
/// before that was gone, and so lost the soft-dirty flag of the area above, with which alone it merges.
#[test]
fn a_move_next_door_merges_with_what_stays() {
    let mut space = small();
    let marked = MEMORY.with(AreaFlags::SOFT_DIRTY);
    fixed(&mut space, 10, 10, MEMORY);
    fixed(&mut space, 30, 5, marked);
    let pending = space.begin_move_to(Vpn(10), PageCount(10), Vpn(20)).unwrap();
    space.commit_move(pending).unwrap();
    assert_eq!(picture(&space), "20..35w");
    let area = space.lookup(Vpn(20)).unwrap();
    assert_eq!(area.attributes.flags, AreaFlags::SOFT_DIRTY);
}
