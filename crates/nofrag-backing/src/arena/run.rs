//! The handle of an allocation.

use std::fmt;

use super::table::MOST_PAGES;
use crate::backend::Va;

/// The number, from zero on, of an owner that hands out the runs of its blocks: a thread, or a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// Bits of a generation. They last for sixteen million times as many runs as 32 bits, which a loop over parked runs
/// used up in less than a minute. Each page has its own count.
pub(super) const GENERATION_BITS: u32 = LOW_BITS + LEAST_PAGE_SHIFT + u64::BITS - VA_BITS;
/// The least number of bytes in a page, as a shift.
pub(super) const LEAST_PAGE_SHIFT: u32 = 12;
/// The address below which arenas lie, as a shift.
pub(super) const VA_BITS: u32 = 52;
/// Bits of the generation that stand above the length in a run's `tag`.
const LOW_BITS: u32 = 32;

const BELOW: u64 = (1 << LEAST_PAGE_SHIFT) - 1;
const ADDRESS: u64 = (1 << VA_BITS) - 1 - BELOW;
const LENGTH: u64 = (1 << LOW_BITS) - 1;

const _: () = assert!(GENERATION_BITS == 56 && MOST_PAGES <= LENGTH);

/// A generation as it stands in a run and in the record of a page: in two parts, beside the other contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// The part around an address: 12 bits below it, 12 above.
    pub(super) around: u64,
    /// The part above a length: the lowest 32 bits.
    pub(super) above: u64,
}

impl Generation {
    pub(super) const fn of(number: u64) -> Generation {
        let high = number >> LOW_BITS;
        let around = high >> LEAST_PAGE_SHIFT << VA_BITS | high & BELOW;
        Generation { around, above: number << LOW_BITS }
    }

    pub(super) const fn number(self) -> u64 {
        let high = self.around >> VA_BITS << LEAST_PAGE_SHIFT | self.around & BELOW;
        high << LOW_BITS | self.above >> LOW_BITS
    }

    /// Applies an arena's mark by exclusive or, or removes it again.
    #[inline(always)]
    pub(super) const fn marked(self, mark: Generation) -> Generation {
        Generation { around: self.around ^ mark.around, above: self.above ^ mark.above }
    }
}

/// Adjacent pages that were handed out together: a plain value, which names memory and does not own it.
///
/// Copies name the same run. A free through one of them makes the others stale, and a free through a stale one is
/// refused for ever: the generation says which of the runs that have begun at this address is meant.
///
/// Two words travel in two registers; three fields would go through memory, and a value that is stored in pieces and
/// loaded whole waits for the store (half of the cost of a parked allocation and free). So the generation stands where
/// the length and the address leave room, and is compared there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    place: u64,
    tag: u64,
}

impl Run {
    /// Puts a run together that was taken apart, for example to be stored, from its [`va`](Run::va),
    /// [`pages`](Run::pages) and [`generation`](Run::generation). `None` for parts that no run has: an address that is
    /// not a multiple of 4 KiB or not below 2^52, 2^30 pages or more, or a generation of 2^56 or more. Parts that fit
    /// but name no run are refused where they are used.
    #[must_use]
    #[inline]
    pub const fn from_parts(va: Va, pages: u32, generation: u64) -> Option<Run> {
        let fits = va.0 & !ADDRESS == 0
            && (pages as u64) < MOST_PAGES
            && generation >> GENERATION_BITS == 0;
        if fits { Some(Run::known(va, pages, Generation::of(generation))) } else { None }
    }

    /// Puts a run together from parts that fit.
    #[inline(always)]
    pub(super) const fn known(va: Va, pages: u32, generation: Generation) -> Run {
        Run { place: generation.around | va.0, tag: generation.above | pages as u64 }
    }

    /// Returns the run's generation in two parts.
    #[inline(always)]
    pub(super) const fn parts_of_generation(&self) -> Generation {
        Generation { around: self.place & !ADDRESS, above: self.tag & !LENGTH }
    }

    /// Returns the first address of the run.
    #[must_use]
    #[inline]
    pub const fn va(&self) -> Va {
        Va(self.place & ADDRESS)
    }

    /// Returns the number of pages of the run.
    #[must_use]
    #[inline]
    pub const fn pages(&self) -> u32 {
        self.tag as u32
    }

    /// Returns the number of this run among those that have begun at its address.
    #[must_use]
    #[inline]
    pub const fn generation(&self) -> u64 {
        self.parts_of_generation().number()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, pages, generation) = (self.va().0, self.pages(), self.generation());
        write!(f, "Run at {at:#x}: {pages} pages, generation {generation}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_keeps_its_parts_apart() {
        let last = |bits: u32| (1_u64 << bits) - 1;
        for va in [0, 1 << 12, ADDRESS] {
            for pages in [0, 1, MOST_PAGES as u32 - 1] {
                for bit in 0..GENERATION_BITS {
                    for generation in [1 << bit, last(bit), last(GENERATION_BITS) ^ 1 << bit] {
                        let run = Run::from_parts(Va(va), pages, generation).unwrap();
                        let parts = (run.va().0, run.pages(), run.generation());
                        assert_eq!(parts, (va, pages, generation));
                    }
                }
            }
        }
    }

    #[test]
    fn what_no_run_has_makes_none() {
        for va in [1, 8, 1 << 11, ADDRESS + 1, 1 << VA_BITS, u64::MAX] {
            assert_eq!(Run::from_parts(Va(va), 1, 0), None, "{va:#x}");
        }
        for pages in [MOST_PAGES as u32, u32::MAX] {
            assert_eq!(Run::from_parts(Va(0), pages, 0), None, "{pages}");
        }
        for generation in [1 << GENERATION_BITS, u64::MAX] {
            assert_eq!(Run::from_parts(Va(0), 1, generation), None, "{generation:#x}");
        }
    }
}
