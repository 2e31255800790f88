//! The bounds of a process's address space, and the direction in which placement fills it.
//!
//! No file states them. The end follows from the architecture and from the stack, which lies near the end; the
//! direction follows from the rules of `mmap_base`: upwards with an unlimited stack, `ADDR_COMPAT_LAYOUT` or
//! `vm.legacy_va_layout`, else downwards. The start of a downward search is randomised: the highest placed area of the
//! file stands in for it.

use nofrag::mmap::{Direction, Layout};
use nofrag::ranges::Span;
use nofrag::units::{PageSize, Vpn};
use serde::Serialize;

use crate::fields::Limit;
use crate::proc_maps::{Area, MapKind};
use crate::source::process::Sources;

/// The bounds of a process's address space, and the direction in which placement fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// From the lowest address that may be mapped to the end, in bytes.
    pub span: Span,
    pub width: Width,
    pub certainty: Certainty,
    /// The reason for the end of the span.
    pub why: String,
    /// The direction in which placement searches.
    pub direction: Direction,
    /// The reason for the direction.
    pub direction_why: &'static str,
    pub page: PageSize,
}

/// Width of the addresses of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Width {
    #[serde(rename = "32")]
    Bits32,
    #[serde(rename = "64")]
    Bits64,
}

/// Certainty of the end of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Certainty {
    /// The architecture states the end.
    Known,
    /// The end is the nearest likely one.
    Assumed,
}

/// The lowest address of the kernel, on every 64-bit architecture.
const KERNEL: u64 = 1 << 63;
/// Default of `vm.mmap_min_addr` in Linux.
const MIN_ADDRESS: u64 = 64 << 10;
const GIB_4: u64 = 1 << 32;
const X86_64_END: u64 = 0x7fff_ffff_f000;
const X86_64_LARGE_END: u64 = 0xff_ffff_ffff_f000;
const X86_COMPAT_END: u64 = 0xffff_e000;
const I386_END: u64 = 0xc000_0000;
/// The flag `ADDR_COMPAT_LAYOUT` of `personality(2)`.
const COMPAT_LAYOUT: u64 = 0x20_0000;

/// Returns true if the area lies in the process's part of the addresses, not in the kernel's.
#[must_use]
pub fn is_inside(area: &Area) -> bool {
    area.end <= KERNEL
}

impl Window {
    /// Returns the window of the process with these files; `None` if no area lies in it.
    #[must_use]
    pub fn of(sources: &Sources) -> Option<Window> {
        let areas = &sources.parsed.areas;
        let inside: Vec<&Area> = areas.iter().filter(|area| is_inside(area)).collect();
        let highest = inside.last()?.end;
        let page = page_size(sources);
        let (end, certainty, why) = end(sources.arch.as_deref(), highest);
        let lowest = inside.first()?.start;
        let floor = sources.mmap_min_addr.unwrap_or(MIN_ADDRESS).max(page.bytes()).min(lowest);
        let floor = floor - floor % page.bytes();
        let (direction, direction_why) = direction(sources);
        let width = if end <= GIB_4 { Width::Bits32 } else { Width::Bits64 };
        let span = Span::new(floor, end).ok()?;
        Some(Window { span, width, certainty, why, direction, direction_why, page })
    }

    /// Returns the window in the core's terms: searches upwards begin at a third of the space, searches downwards at
    /// `top`.
    #[must_use]
    pub fn layout(&self, top: u64) -> Layout {
        let page = self.page;
        Layout {
            direction: self.direction,
            floor: page.page_of(self.span.start()),
            base: page.page_of(self.span.end() / 3).max(page.page_of(self.span.start())),
            top: page.page_of(top),
            end: Vpn(self.span.end() / page.bytes()),
            low: None,
            extended_end: None,
            page,
        }
    }
}

fn end(arch: Option<&str>, highest: u64) -> (u64, Certainty, String) {
    let known = |end, why: &str| (end, Certainty::Known, why.to_owned());
    let assumed = |end, why: &str| (end, Certainty::Assumed, why.to_owned());
    match arch {
        Some("x86_64") if highest <= X86_COMPAT_END => known(
            X86_COMPAT_END,
            "nothing lies above 4 GiB, where a 64-bit process has its stack, so this is a 32-bit one",
        ),
        Some("x86_64") if highest <= X86_64_END => {
            known(X86_64_END, "x86-64 gives a process 47 bits")
        }
        Some("x86_64") if highest <= X86_64_LARGE_END => assumed(
            X86_64_LARGE_END,
            "something lies above 47 bits, so the process has asked for the 56 bits of 5-level tables",
        ),
        Some("i386" | "i686" | "x86") if highest <= I386_END => {
            assumed(I386_END, "the usual 3 GiB of a 32-bit kernel")
        }
        _ => assumed(
            highest.checked_next_power_of_two().unwrap_or(KERNEL),
            "the power of two above the highest area, since the stack lies near the end",
        ),
    }
}

fn direction(sources: &Sources) -> (Direction, &'static str) {
    if sources.legacy_layout.is_some_and(|legacy| legacy != 0) {
        (Direction::Up, "vm.legacy_va_layout is set")
    } else if sources.personality.is_some_and(|flags| flags & COMPAT_LAYOUT != 0) {
        (Direction::Up, "its personality has ADDR_COMPAT_LAYOUT")
    } else if sources.stack_limit == Some(Limit::Unlimited) {
        (Direction::Up, "its stack is unlimited")
    } else if sources.stack_limit.is_some() {
        (Direction::Down, "its stack is limited")
    } else {
        (Direction::Down, "assumed, the limit of its stack is not known")
    }
}

/// Returns the base page: from the architecture where it has only one, else from `smaps`, else the largest that divides
/// all addresses.
fn page_size(sources: &Sources) -> PageSize {
    if matches!(sources.arch.as_deref(), Some("x86_64" | "i386" | "i686" | "x86")) {
        return PageSize::KIB_4;
    }
    let areas = &sources.parsed.areas;
    let of_area = |area: &Area| area.details.as_ref().and_then(|details| details.kernel_page_bytes);
    let told =
        areas.iter().filter(|area| area.kind() != MapKind::Special).filter_map(of_area).min();
    let divides =
        |bytes: u64| areas.iter().all(|area| (area.start | area.end).is_multiple_of(bytes));
    let told = told.filter(|&bytes| bytes >= 4096 && divides(bytes)).and_then(PageSize::new);
    told.unwrap_or_else(|| {
        let largest = [64 << 10, 16 << 10].into_iter().find(|&bytes| divides(bytes));
        largest.and_then(PageSize::new).unwrap_or(PageSize::KIB_4)
    })
}
