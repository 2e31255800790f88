//! The ranges of a flush: a few disjoint ones rather than one hull (docs/sources/vmap.md#bounded-purge).

use crate::ranges::Span;

/// The most ranges that one flush names.
pub(super) const FLUSH_RANGES: usize = 16;

// One bit each in `used`.
const _: () = assert!(FLUSH_RANGES <= u16::BITS as usize);

/// Gathers pieces into at most [`FLUSH_RANGES`] disjoint ranges, in one pass and without sorting.
///
/// The plan cuts the numbers into parts and takes the hull of the pieces that start in each; hulls that meet become
/// one. The parts are those of the numbers covered last, the outer ones extended: an allocator frees where it freed
/// before.
#[derive(Debug)]
pub(super) struct FlushPlan {
    /// Lowest and highest number that the last flush covered.
    last: (u64, u64),
    low: u64,
    shift: u32,
    /// Start and end of each hull; a start above the end means none.
    parts: [(u64, u64); FLUSH_RANGES],
    /// One bit for each part that has a hull.
    used: u16,
}

const NOTHING: (u64, u64) = (u64::MAX, 0);

impl FlushPlan {
    /// Returns a plan whose parts are at first those of `bounds`.
    pub(super) fn new(bounds: Span) -> FlushPlan {
        let mut plan = FlushPlan {
            last: (bounds.start(), bounds.end() - 1),
            low: 0,
            shift: 0,
            parts: [NOTHING; FLUSH_RANGES],
            used: 0,
        };
        plan.cut();
        plan
    }

    fn cut(&mut self) {
        let (low, high) = self.last;
        let digits = u64::BITS - (high - low).leading_zeros();
        self.low = low;
        self.shift = digits.saturating_sub(FLUSH_RANGES.ilog2());
    }

    #[inline]
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let part = (start.saturating_sub(self.low) >> self.shift).min(FLUSH_RANGES as u64 - 1);
        let (lowest, highest) = &mut self.parts[part as usize];
        *lowest = (*lowest).min(start);
        *highest = (*highest).max(end);
        self.used |= 1 << part;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Moves the ranges into `ranges`, ascending, and begins anew. Returns their number.
    pub(super) fn take(&mut self, ranges: &mut [Span; FLUSH_RANGES]) -> usize {
        let mut count = 0;
        let mut used = core::mem::take(&mut self.used);
        while used != 0 {
            let part = &mut self.parts[used.trailing_zeros() as usize];
            used &= used - 1;
            let (start, end) = core::mem::replace(part, NOTHING);
            match ranges[..count].last_mut() {
                Some(last) if start <= last.end() => {
                    *last = Span::known(last.start(), end.max(last.end()));
                }
                _ => {
                    ranges[count] = Span::known(start, end);
                    count += 1;
                }
            }
        }
        if count > 0 {
            self.last = (ranges[0].start(), ranges[count - 1].end() - 1);
            self.cut();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::{FLUSH_RANGES, FlushPlan};
    use crate::ranges::Span;

    fn taken(plan: &mut FlushPlan) -> Vec<(u64, u64)> {
        let mut ranges = [Span::known(0, 1); FLUSH_RANGES];
        let count = plan.take(&mut ranges);
        ranges[..count].iter().map(|range| (range.start(), range.end())).collect()
    }

    #[test]
    fn pieces_far_apart_stay_apart() {
        let mut plan = FlushPlan::new(Span::known(0, 1600));
        for start in [1500, 10, 20, 700] {
            plan.add(start, start + 5);
        }
        assert_eq!(taken(&mut plan), [(10, 25), (700, 705), (1500, 1505)]);
        assert_eq!(taken(&mut plan), []);
    }

    #[test]
    fn pieces_outside_the_guess_belong_to_its_ends() {
        let mut plan = FlushPlan::new(Span::known(100, 200));
        for start in [0, 50, 150, 500, 900] {
            plan.add(start, start + 1);
        }
        let ranges = taken(&mut plan);
        assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (0, 901));
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
}
