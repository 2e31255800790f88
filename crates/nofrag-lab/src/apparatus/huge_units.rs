//! Memory that is touched for the first time, unit by unit, and timed.
//!
//! A *unit* is as large and as aligned as a huge page. Its first byte is written, which faults in either all of it or a
//! small page; the pages that are resident afterwards say which of the two. Then the rest is written. The question
//! after residence is not part of the times.

use std::io;
use std::time::{Duration, Instant};

use nofrag::mmap::Protection;
use nofrag_backing::reservation::Reservation;

use super::sys;

/// Advice to the kernel about huge pages in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeAdvice {
    /// No advice: the host's setting decides.
    Host,
    /// Ask for huge pages (`MADV_HUGEPAGE`).
    Huge,
    /// Ask for small pages alone (`MADV_NOHUGEPAGE`).
    Small,
}

/// The first touch of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    /// Time until the first byte was written: one fault.
    pub(crate) first: Duration,
    /// Time until the rest was written: the other faults, if there were any, and the writing.
    pub(crate) rest: Duration,
    /// Pages that the first fault brought in.
    pub(crate) pages_at_once: usize,
    pub(crate) pages: usize,
}

impl Touch {
    /// Returns the time until all of the unit was written.
    pub(crate) fn whole(&self) -> Duration {
        self.first + self.rest
    }

    /// Returns true if one fault brought in all of the unit. A probe of one page in the middle would take every folio
    /// that reaches this page for a huge one.
    pub(crate) fn is_huge(&self) -> bool {
        self.pages_at_once == self.pages
    }
}

/// A private anonymous region whose units are touched once each, from the lowest on.
///
/// 1. `next` units from `first` on have been written; no other page of the region has.
/// 2. `first` is a multiple of a unit, and all `units` lie inside the reservation.
#[derive(Debug)]
pub(crate) struct HugeUnits {
    memory: Reservation,
    /// Offset of the first unit's first byte from the reservation's start.
    first: usize,
    unit_bytes: usize,
    units: usize,
    next: usize,
    /// The result of `mincore`: a byte a page.
    resident: Box<[u8]>,
}

impl HugeUnits {
    /// Maps `units` units of `unit_bytes`, which is a power of two and at least a page, and gives the advice.
    ///
    /// # Errors
    /// `InvalidInput` for no units or units that are not a power of two; else errors of `mmap` and `madvise` (`EINVAL`
    /// from a kernel without huge pages).
    pub(crate) fn map(
        units: usize,
        unit_bytes: usize,
        advice: HugeAdvice,
    ) -> io::Result<HugeUnits> {
        let page = rustix::param::page_size();
        let bytes = units.checked_add(1).and_then(|units| units.checked_mul(unit_bytes));
        let (true, true, Some(bytes)) =
            (units > 0, unit_bytes.is_power_of_two() && unit_bytes >= page, bytes)
        else {
            let why = format!("{units} units of {unit_bytes} bytes cannot be mapped");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        // One unit more than wanted, so that one can be aligned.
        let memory = Reservation::new(bytes, Protection::READ_WRITE)?;
        let advice = match advice {
            HugeAdvice::Host => None,
            HugeAdvice::Huge => Some(libc::MADV_HUGEPAGE),
            HugeAdvice::Small => Some(libc::MADV_NOHUGEPAGE),
        };
        if let Some(advice) = advice {
            // SAFETY: the pages are the reservation's, and the advice changes no content.
            unsafe { sys::madvise(sys::base(&memory), bytes, advice) }?;
        }
        let start = memory.start() as usize;
        let first = start.next_multiple_of(unit_bytes) - start;
        let resident = vec![0; unit_bytes / page].into();
        Ok(HugeUnits { memory, first, unit_bytes, units, next: 0, resident })
    }

    /// Touches the next unit; `None` when all have been touched.
    ///
    /// # Errors
    /// Errors of `mincore`.
    pub(crate) fn touch_next(&mut self) -> Option<io::Result<Touch>> {
        if self.next == self.units {
            return None;
        }
        let offset = self.first + self.next * self.unit_bytes;
        self.next += 1;
        let unit = sys::base(&self.memory).wrapping_byte_add(offset).cast::<u8>();
        let began = Instant::now();
        // SAFETY: the byte is inside the reservation (law 2), which may be written and is ours alone: no reference to
        // it exists, and `self` is borrowed exclusively.
        unsafe { unit.write_volatile(1) };
        let first = began.elapsed();
        if let Err(error) = self.look(offset) {
            return Some(Err(error));
        }
        let began = Instant::now();
        // SAFETY: as above, for all bytes of the unit.
        unsafe { unit.write_bytes(1, self.unit_bytes) };
        let rest = began.elapsed();
        let pages_at_once = self.resident.iter().filter(|page| *page & 1 != 0).count();
        Some(Ok(Touch { first, rest, pages_at_once, pages: self.resident.len() }))
    }

    /// Asks which pages of the unit at `offset` are resident.
    fn look(&mut self, offset: usize) -> io::Result<()> {
        let start = sys::base(&self.memory).wrapping_byte_add(offset);
        // SAFETY: the unit is mapped (law 2), and `resident` has a byte for each of its pages (`map`).
        match unsafe { libc::mincore(start, self.unit_bytes, self.resident.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
