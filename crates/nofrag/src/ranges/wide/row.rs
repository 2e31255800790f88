//! Thirty-two 31-bit numbers that are looked at together.
//!
//! Every question is one pass over all lanes without a branch, in a shape that compilers turn into vector instructions
//! (four lanes each already with SSE2, which is what plain x86-64 has). A search that stopped at its hit would do less
//! work and cost more: where it stops is what a branch predictor cannot know.
//!
//! The questions are calls, never inlined: inside a larger function the compiler gives the vector shape up.

use core::hint::black_box;

/// Number of lanes in a row.
pub(super) const LANES: usize = 32;

/// The largest number that a lane holds; lengths that are larger are stored as this.
pub(super) const LANE_MAX: u32 = i32::MAX as u32;

/// A bit for each lane.
static LANE_BITS: [u32; LANES] = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// Masks: the 32 numbers from index `LANES - n` on keep every lane but lane `n`.
static ALL_BUT_ONE: [u32; 2 * LANES] = {
    let mut masks = [u32::MAX; 2 * LANES];
    masks[LANES] = 0;
    masks
};

/// Returns a mask for each lane, which keeps every lane but lane `at`.
///
/// A table of masks: a choice between two numbers per lane would be compiled to a branch or a move per lane.
#[inline(always)]
fn all_but(at: usize) -> &'static [u32; LANES] {
    let from = LANES - at % LANES;
    ALL_BUT_ONE[from..from + LANES].try_into().expect("a slice of 32 lanes")
}

/// A row of 32 values.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Lanes<T>(pub(super) [T; LANES]);

/// One row of numbers. Lanes are compared as signed numbers, so each is at most [`LANE_MAX`].
pub(super) type Row = Lanes<u32>;

impl Row {
    /// Returns the lanes that hold at least `value`, as a bit mask. `value` is 1 to [`LANE_MAX`].
    #[inline(never)]
    pub(super) fn at_least(&self, value: u32) -> u32 {
        let below = value as i32 - 1;
        mask_of(|lane| self.0[lane] as i32 > below)
    }

    /// Returns the lanes that hold `low` to `high`, as a bit mask. `low` is 1 to [`LANE_MAX`], and so is `high`.
    #[inline(never)]
    pub(super) fn between(&self, low: u32, high: u32) -> u32 {
        let (below, high) = (low as i32 - 1, high as i32);
        mask_of(|lane| (self.0[lane] as i32 > below) & (self.0[lane] as i32 <= high))
    }

    /// Returns the lanes that hold exactly `value`, as a bit mask.
    #[inline(never)]
    pub(super) fn equal_to(&self, value: u32) -> u32 {
        mask_of(|lane| self.0[lane] == value)
    }

    /// Returns the number of lanes that hold at most `value`.
    #[inline(never)]
    pub(super) fn count_up_to(&self, value: u32) -> usize {
        let mut count = 0;
        for lane in 0..LANES {
            count += u32::from(self.0[lane] as i32 <= value as i32);
        }
        count as usize
    }

    /// Returns the largest number in any lane.
    #[inline(never)]
    pub(super) fn max(&self) -> u32 {
        let mut max = 0;
        for lane in 0..LANES {
            max = max.max(self.0[lane] as i32);
        }
        max as u32
    }

    /// Returns the largest number up to `most` in any lane; 0 if no lane holds one.
    #[inline(never)]
    pub(super) fn max_up_to(&self, most: u32) -> u32 {
        let mut max = 0;
        for lane in 0..LANES {
            let number = self.0[lane] as i32;
            max = max.max(if number <= most as i32 { number } else { 0 });
        }
        max as u32
    }

    /// Returns the largest number in any lane, as it will be once lane `at` holds `value`.
    ///
    /// To store first and look afterwards would cost more: a wide load that overlaps a narrow store waits for it.
    #[inline(never)]
    pub(super) fn max_with(&self, at: usize, value: u32) -> u32 {
        let mut max = 0;
        for (number, kept) in self.0.iter().zip(all_but(at)) {
            max = max.max((number & kept) as i32);
        }
        max.max(value as i32) as u32
    }
}

impl<T: Copy> Lanes<T> {
    /// Returns a row with the same value in each lane.
    pub(super) const fn filled(value: T) -> Lanes<T> {
        Lanes([value; LANES])
    }

    /// Puts `value` into lane `at`; the lanes from there on move up by one and the last is lost.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, value: T) {
        self.0.copy_within(at..LANES - 1, at + 1);
        self.0[at] = value;
    }

    /// Drops lane `at`; the lanes behind it move down by one and the last becomes `filler`.
    #[inline]
    pub(super) fn remove(&mut self, at: usize, filler: T) {
        self.0.copy_within(at + 1.., at);
        self.0[LANES - 1] = filler;
    }

    /// Moves the lanes from `at` on into a new row and leaves `filler` in their place.
    pub(super) fn split_off(&mut self, at: usize, filler: T) -> Lanes<T> {
        let mut upper = Lanes::filled(filler);
        upper.0[..LANES - at].copy_from_slice(&self.0[at..]);
        self.0[at..].fill(filler);
        upper
    }

    /// Puts the first `count` lanes of `other` before this row's own, the last of which are lost.
    pub(super) fn prepend(&mut self, other: &Lanes<T>, count: usize) {
        self.0.copy_within(..LANES - count, count);
        self.0[..count].copy_from_slice(&other.0[..count]);
    }

    /// Copies the first `count` lanes of `other` behind this row's first `at` lanes.
    pub(super) fn append(&mut self, at: usize, other: &Lanes<T>, count: usize) {
        self.0[at..at + count].copy_from_slice(&other.0[..count]);
    }
}

/// Returns the lanes for which `holds` is true, as a bit mask.
///
/// The table lies behind a pointer that the compiler does not see through. Where it knows the bits, it shifts some
/// lanes into place one by one, and loads the others from odd addresses.
#[inline(always)]
fn mask_of(holds: impl Fn(usize) -> bool) -> u32 {
    let bits = black_box(&LANE_BITS);
    let mut mask = 0;
    for (lane, bit) in bits.iter().enumerate() {
        mask |= bit & u32::from(holds(lane)).wrapping_neg();
    }
    mask
}

/// Returns the lanes below `lane`, as a bit mask; `lane` is at most 32.
#[inline]
pub(super) fn lanes_below(lane: usize) -> u32 {
    ((1_u64 << lane) - 1) as u32
}

impl Row {
    /// Returns the lanes whose number still is at least `size` after the padding that makes the lane's offset congruent
    /// to `remainder` modulo the power of two `align`, as a bit mask. `size` is 1 to [`LANE_MAX`], `align` at most
    /// 2^30.
    #[inline(never)]
    pub(super) fn at_least_congruent(
        &self,
        offsets: &Row,
        size: u32,
        align: u32,
        remainder: u32,
    ) -> u32 {
        let below = size as i32 - 1;
        mask_of(|lane| {
            let padding = remainder.wrapping_sub(offsets.0[lane]) & (align - 1);
            self.0[lane] as i32 - padding as i32 > below
        })
    }

    /// Returns the largest number that remains in any lane after the padding that aligns the lane's offset, as it will
    /// be once in lane `at` remains `value`.
    #[inline(never)]
    pub(super) fn max_aligned_with(&self, offsets: &Row, align: u32, at: usize, value: u32) -> u32 {
        let mut max = 0;
        for ((number, offset), kept) in self.0.iter().zip(&offsets.0).zip(all_but(at)) {
            let padding = offset.wrapping_neg() & (align - 1);
            max = max.max((number & kept) as i32 - padding as i32);
        }
        max.max(value as i32) as u32
    }

    /// Returns the largest number that remains in any lane after the padding that aligns the lane's offset.
    #[inline(never)]
    pub(super) fn max_aligned(&self, offsets: &Row, align: u32) -> u32 {
        let mut max = 0;
        for lane in 0..LANES {
            let padding = offsets.0[lane].wrapping_neg() & (align - 1);
            max = max.max(self.0[lane] as i32 - padding as i32);
        }
        max as u32
    }
}
