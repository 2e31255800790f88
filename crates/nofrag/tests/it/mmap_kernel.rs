//! The habits of Linux 6.18 that were found by live comparison (docs/sources/mmap.md#habits), in small.
//! `nofrag run mmap-live` compares the whole.

use nofrag::mmap::{
    AddressSpace, Attributes, Layout, MapFlags, Placement, Protection, SpaceConfig, WindowChoice,
};
use nofrag::units::{PageCount, Vpn};

const MEMORY: Attributes = Attributes::anonymous(Protection::NONE);

fn space(layout: Layout) -> AddressSpace {
    let rules = Placement::preset("linux-6.18").unwrap();
    AddressSpace::new(SpaceConfig::new(layout, rules.placement))
}

/// Maps `pages` pages with `MAP_32BIT` and verifies the address.
fn check_low(space: &mut AddressSpace, pages: u64, address: u64) {
    let flags = MapFlags { window: WindowChoice::Low, ..MapFlags::default() };
    let start = space.map(PageCount(pages), MEMORY, None, flags).unwrap();
    assert_eq!(start, Vpn(address >> 12), "{pages} pages at {:#x}", start.0 << 12);
}

#[test]
fn multiples_of_a_huge_page_are_aligned_below_2_gib_too() {
    for layout in [Layout::X86_64, Layout::X86_64_LEGACY] {
        let mut space = space(layout);
        check_low(&mut space, 1, 0x4000_0000);
        check_low(&mut space, 1024, 0x4020_0000);
    }
}

#[test]
fn a_boundary_below_2_gib_is_passed_over_unless_the_layout_goes_upwards() {
    check_low(&mut space(Layout::X86_64), 1024, 0x4020_0000);
    check_low(&mut space(Layout::X86_64_LEGACY), 1024, 0x4000_0000);
}

#[test]
fn above_4_gib_the_legacy_layout_begins_where_it_always_does() {
    let flags = MapFlags { window: WindowChoice::Above4G, ..MapFlags::default() };
    let mut space = space(Layout::X86_64_LEGACY);
    let start = space.map(PageCount(1), MEMORY, None, flags).unwrap();
    assert_eq!(start, Layout::X86_64_LEGACY.base);
}

/// A hint goes down to its page in both layouts, and up to the floor, which is the higher of two minima.
#[test]
fn hints_go_down_to_their_page_and_up_to_the_floor() {
    for layout in [Layout::X86_64, Layout::X86_64_LEGACY] {
        let floor = Vpn(0x20);
        let mut space = space(Layout { floor, ..layout });
        for (hint, start) in [(0x1fff, floor), (0x7000_0fff, Vpn(0x7_0000))] {
            let hint = layout.page.page_of(hint);
            let found = space.map(PageCount(1), MEMORY, Some(hint), MapFlags::default());
            assert_eq!(found, Ok(start), "{:?}, hint {hint:?}", layout.direction);
        }
        assert_eq!(space.counters().hints, 2, "both lie where they were wished for");
    }
}
