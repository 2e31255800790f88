//! The windows of a process (docs/sources/mmap.md#windows: x86 as of 6.12).

use nofrag::mmap::{
    AddressSpace, Attributes, Direction, Layout, MapFlags, Placement, Protection, SpaceConfig,
    StackRule,
};
use nofrag::units::{PageCount, Vpn};

const MIB: u64 = 1 << 20;

/// No randomness, and no guard: only the limit of the stack determines `mmap_base`.
const PLAIN: StackRule = StackRule { stack_limit: 8 * MIB, stack_random: 0, guard: 0, random: 0 };

/// Compares `mmap_base` with the address.
fn check_top(layout: Layout, rule: StackRule, address: u64) {
    let found = layout.page.address_of(layout.with_stack(&rule).top);
    assert_eq!(found, Some(address), "{rule:?}");
}

#[test]
fn a_stack_of_8_mib_leaves_the_least_gap() {
    check_top(Layout::X86_64, PLAIN, 0x7fff_f7ff_f000);
    check_top(Layout::X86_64, StackRule { guard: MIB, ..PLAIN }, 0x7fff_f7ff_f000);
    assert_eq!(Layout::X86_64.with_stack(&PLAIN), Layout::X86_64);
}

#[test]
fn the_gap_grows_with_the_stack_and_ends_at_five_sixths() {
    let end = 0x7fff_ffff_f000;
    let at_least = StackRule { stack_limit: 128 * MIB, ..PLAIN };
    check_top(Layout::X86_64, at_least, end - 128 * MIB);
    check_top(
        Layout::X86_64,
        StackRule { stack_limit: 128 * MIB + 4096, ..PLAIN },
        end - 128 * MIB - 4096,
    );
    check_top(Layout::X86_64, StackRule { stack_limit: 1 << 30, ..PLAIN }, end - (1 << 30));
    let most = StackRule { stack_limit: 1 << 50, ..PLAIN };
    let sixth = (end - end / 6 * 5).next_multiple_of(4096);
    check_top(Layout::X86_64, most, sixth);
}

#[test]
fn pads_count_unless_the_sum_overflows() {
    let end = 0x7fff_ffff_f000;
    let padded = StackRule { stack_limit: 1 << 30, stack_random: 16 * MIB, guard: MIB, random: 0 };
    check_top(Layout::X86_64, padded, end - (1 << 30) - 17 * MIB);
    // All pads together overflow, so none counts; what is left is clamped.
    let sixth = (end - end / 6 * 5).next_multiple_of(4096);
    check_top(Layout::X86_64, StackRule { stack_limit: u64::MAX, ..padded }, sixth);
    let large_pads = StackRule { stack_random: u64::MAX, guard: u64::MAX, ..padded };
    check_top(Layout::X86_64, large_pads, end - (1 << 30));
}

#[test]
fn the_random_part_moves_the_base_down() {
    let random = 0x1234_5000;
    check_top(Layout::X86_64, StackRule { random, ..PLAIN }, 0x7fff_f7ff_f000 - random);
    // A part of a page rounds up, as the alignment of the whole does.
    check_top(Layout::X86_64, StackRule { random: 1, ..PLAIN }, 0x7fff_f7ff_f000);
    check_top(Layout::X86_64, StackRule { random: u64::MAX, ..PLAIN }, 0);
}

#[test]
fn a_32_bit_task_goes_down_from_below_its_stack() {
    let down = Layout { direction: Direction::Down, ..Layout::COMPAT_UP };
    check_top(down, PLAIN, 0xffff_e000 - 128 * MIB);
    check_top(
        down,
        StackRule { random: 0xff << 12, ..PLAIN },
        0xffff_e000 - 128 * MIB - (0xff << 12),
    );
    assert_eq!(Layout::COMPAT_UP.base.0 << 12, 0x5555_5000);
    assert_eq!(
        (Layout::I386_UP.base.0 << 12, Layout::I386_UP.end.0 << 12),
        (0x4000_0000, 0xc000_0000)
    );
}

#[test]
fn the_legacy_layout_goes_up_from_a_third() {
    let legacy = Layout::X86_64.legacy(0);
    assert_eq!(legacy, Layout::X86_64_LEGACY);
    assert_eq!((legacy.direction, legacy.base.0 << 12), (Direction::Up, 0x2aaa_aaaa_b000));
    assert_eq!(Layout::X86_64.legacy(0x7000).base.0 << 12, 0x2aaa_aaab_2000);
    assert_eq!(Layout::X86_64.legacy(u64::MAX).base.0, legacy.base.0 + (u64::MAX >> 12));
}

/// A base below which a request does not fit is no reason to wrap around, under any placement.
#[test]
fn short_base_underflow() {
    for preset in Placement::presets() {
        let check = |layout: Layout, pages| {
            let mut space = AddressSpace::new(SpaceConfig::new(layout, preset.placement));
            let memory = Attributes::anonymous(Protection::READ);
            match space.map(PageCount(pages), memory, None, MapFlags::default()) {
                Ok(start) => assert!(start >= layout.floor, "{}: {start}", preset.name),
                Err(why) => {
                    let has_fallback =
                        !["fewest-lost-units", "two-ended-first"].contains(&preset.name);
                    assert!(!has_fallback, "{}: {why}", preset.name);
                }
            }
        };
        check(Layout { top: Vpn(40), base: Vpn(100), ..Layout::X86_64 }, 50);
        check(Layout::X86_64.with_stack(&StackRule { random: u64::MAX, ..PLAIN }), 1);
    }
}
