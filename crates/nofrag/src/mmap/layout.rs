//! The windows of a process: the bounds of searches. Numbers and rules are from docs/sources/mmap.md#state,
//! mmap.md#windows and mmap.md#habits.

use crate::ranges::Span;
use crate::units::{PageCount, PageSize, Vpn};

/// The end from which a search without a hint begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Upwards, starting from [`Layout::base`]: Linux up to 2.6.6, its legacy layout since.
    Up,
    /// Downwards, starting from [`Layout::top`].
    Down,
}

/// The windows of a process, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub direction: Direction,
    /// The lowest page that a search may return; page 0 never is. In Linux since 2.6.23 the higher of
    /// `vm.mmap_min_addr` and a minimum of the security modules that no file shows: a hint at page 1 ends up there
    /// (docs/sources/mmap.md#floor).
    pub floor: Vpn,
    /// The start of upward searches (`TASK_UNMAPPED_BASE`).
    pub base: Vpn,
    /// The start of downward searches (`mmap_base`).
    pub top: Vpn,
    /// One above the highest page (`TASK_SIZE`).
    pub end: Vpn,
    /// The window of `MAP_32BIT`, always upwards; none where there is no such flag.
    pub low: Option<Span>,
    /// The end of the larger window, which a hint above `end` opens (56 bits).
    pub extended_end: Option<Vpn>,
    pub page: PageSize,
}

/// The values that determine `mmap_base` (docs/sources/mmap.md#mmap-base: x86 as of 6.12). All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackRule {
    /// The limit of the stack's size (`RLIMIT_STACK`).
    pub stack_limit: u64,
    /// The most by which the stack's top is moved at random.
    pub stack_random: u64,
    /// The guard gap below the stack.
    pub guard: u64,
    /// The number by which this process's base is moved at random.
    pub random: u64,
}

impl Layout {
    /// A 32-bit task on x86-64, upwards (docs/sources/mmap.md#state).
    pub const COMPAT_UP: Layout =
        Layout::bytes(Direction::Up, 0x5555_5000, 0xffff_e000, 0xffff_e000);

    /// i386 with 3 GiB, upwards (docs/sources/mmap.md#state).
    pub const I386_UP: Layout = Layout::bytes(Direction::Up, 0x4000_0000, 0xc000_0000, 0xc000_0000);

    /// A 64-bit task on x86-64 without randomisation and with 8 MiB of stack, downwards
    /// (docs/sources/mmap.md#mmap-base).
    pub const X86_64: Layout = Layout {
        low: Some(LOW_31),
        extended_end: Some(Vpn(0xff_ffff_ffff_f000 >> 12)),
        ..Layout::bytes(Direction::Down, 0x2aaa_aaaa_b000, 0x7fff_f7ff_f000, 0x7fff_ffff_f000)
    };

    /// X86_64 in the legacy layout: upwards.
    pub const X86_64_LEGACY: Layout = Layout { direction: Direction::Up, ..Layout::X86_64 };

    const fn bytes(direction: Direction, base: u64, top: u64, end: u64) -> Layout {
        Layout {
            direction,
            floor: Vpn(0x10), // as seen on 6.18: docs/sources/mmap.md#live
            base: Vpn(base >> 12),
            top: Vpn(top >> 12),
            end: Vpn(end >> 12),
            low: None,
            extended_end: None,
            page: PageSize::KIB_4,
        }
    }

    /// Returns a window that belongs to the caller alone: all of `span` and nothing else.
    #[must_use]
    pub const fn window(span: Span, direction: Direction) -> Layout {
        Layout {
            direction,
            floor: Vpn(span.start()),
            base: Vpn(span.start()),
            top: Vpn(span.end()),
            end: Vpn(span.end()),
            low: None,
            extended_end: None,
            page: PageSize::KIB_4,
        }
    }

    /// Returns the same layout with the `mmap_base` of `rule`.
    ///
    /// The gap between `mmap_base` and the end of the space is stack limit, random part and guard together (if that
    /// overflows, the stack limit alone), at least 128 MiB and at most five sixths of the space. A task so small that
    /// no page is left above page 0 has its base there, and every search falls back to going upwards.
    #[must_use]
    pub fn with_stack(self, rule: &StackRule) -> Layout {
        let size = self.page.address_of(self.end).unwrap_or(u64::MAX);
        let pads = rule.stack_random.saturating_add(rule.guard);
        let gap = rule.stack_limit.checked_add(pads).unwrap_or(rule.stack_limit);
        let gap = gap.max(128 << 20).min(size / 6 * 5);
        let top = (size - gap).saturating_sub(rule.random);
        let top = self.page.pages_for(top);
        Layout { top: Vpn(top.get()), ..self }
    }

    /// Returns the legacy form of the same layout: upwards, from a base that is moved up by `random` bytes, rounded
    /// down to pages. Linux takes this form where the stack is unlimited, and where it is asked for
    /// (docs/sources/mmap.md#legacy).
    #[must_use]
    pub fn legacy(self, random: u64) -> Layout {
        let moved = self.base.0.saturating_add(self.page.page_of(random).0);
        Layout { direction: Direction::Up, base: Vpn(moved), ..self }
    }

    /// Returns the same layout with a floor of page 1 at least, and with no window that begins below the floor or ends
    /// above the end.
    pub(super) fn bounded(self) -> Layout {
        let floor = Vpn(self.floor.0.max(1));
        let all = Span::new(floor.0, self.end.0).ok();
        Layout {
            floor,
            base: self.base.max(floor),
            top: self.top.min(self.end),
            low: self.low.and_then(|low| low.intersection(all?)),
            ..self
        }
    }

    /// Returns the pages between `floor` and `end`: all that this process may use.
    #[must_use]
    pub fn all(&self) -> Option<Span> {
        Span::new(self.floor.0, self.end.0).ok()
    }

    /// Returns the number of pages in `bytes`, for constants that are given in bytes.
    #[must_use]
    pub fn pages(&self, bytes: u64) -> PageCount {
        self.page.pages_for(bytes)
    }
}

/// Window of `MAP_32BIT`: the second GiB, without randomisation (docs/sources/mmap.md#map-32bit).
const LOW_31: Span = match Span::new(0x4000_0000 >> 12, 0x8000_0000 >> 12) {
    Ok(span) => span,
    Err(_) => unreachable!(),
};
