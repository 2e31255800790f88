//! The map of frames, made to agree with buddyinfo. The two are not read at one moment, and pages that a CPU's list
//! takes or gives back between them differ: single pages and small blocks that merge with free memory beside them.
//!
//! The files do not say which frames those are. buddyinfo counts, so the map is made to agree with it: missing blocks
//! are made of frames of which the map says nothing, as it does of those on per-CPU lists; surplus blocks are taken.
//! The largest go first, because a larger block uses up smaller ones. The changed frames are counted.

use std::ops::Range;

use nofrag::units::Order;
use nofrag_host::snapshot::FrameUse;

use super::memory::aligned;

/// Spreads numbers that are near to each other (the golden ratio's bits).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Number of free blocks of each order.
pub(super) type Blocks = [u64; Order::COUNT];

/// Changes to the map, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reconciled {
    /// Frames taken to be free, though the map does not say so.
    pub(super) freed: u64,
    /// Frames taken to be in use, though the map says that they are free.
    pub(super) taken: u64,
}

/// The frames of a zone, while they are made to agree with buddyinfo.
pub(super) struct Reconciler<'a> {
    /// The use of each frame from frame 0 on.
    pub(super) uses: &'a mut [FrameUse],
    /// Returns true if the map says nothing of a frame.
    pub(super) is_blank: &'a dyn Fn(u64) -> bool,
    pub(super) span: Range<u64>,
    /// Seed of the order in which places of equal cost are tried.
    pub(super) seed: u64,
}

/// The most times that an order's blocks are counted anew. More than a few are needed only where the two files are of
/// quite different moments; the remaining difference is shown.
const ROUNDS: usize = 256;

/// Returns the free blocks of a zone as the map shows them.
pub(super) fn free_blocks(
    uses: &[FrameUse],
    span: Range<u64>,
) -> impl Iterator<Item = (u64, Order)> {
    let end = span.end.min(uses.len() as u64);
    let is_free = |pfn: u64| uses[pfn as usize] == FrameUse::Free;
    let mut at = span.start;
    std::iter::from_fn(move || {
        let start = (at..end).find(|&pfn| is_free(pfn))?;
        at = (start..end).find(|&pfn| !is_free(pfn)).unwrap_or(end);
        Some(aligned(start..at))
    })
    .flatten()
}

pub(super) fn count(blocks: impl Iterator<Item = (u64, Order)>) -> Blocks {
    blocks.fold([0; Order::COUNT], |mut counts, (_, order)| {
        counts[order.index()] += 1;
        counts
    })
}

impl Reconciler<'_> {
    /// Makes the zone's free blocks those of `wanted`, as far as that can be.
    pub(super) fn reconcile(&mut self, wanted: &Blocks) -> Reconciled {
        let mut done = Reconciled::default();
        for order in Order::all().rev() {
            for _ in 0..ROUNDS {
                let shown = count(free_blocks(self.uses, self.span.clone()));
                let (shown_here, wanted_here) = (shown[order.index()], wanted[order.index()]);
                let changed = if shown_here < wanted_here {
                    let freed = self.make(order, wanted_here - shown_here, &shown, wanted);
                    done.freed += freed;
                    freed
                } else if shown_here > wanted_here {
                    let taken = self.take(order, &shown, wanted);
                    done.taken += taken;
                    taken
                } else {
                    break;
                };
                if changed == 0 {
                    break;
                }
            }
        }
        done
    }

    fn is_free(&self, pfn: u64) -> bool {
        self.span.contains(&pfn) && self.uses.get(pfn as usize) == Some(&FrameUse::Free)
    }

    fn may_be_free(&self, pfn: u64) -> bool {
        let usage = self.uses.get(pfn as usize).copied();
        usage == Some(FrameUse::Free) || usage == Some(FrameUse::Kernel) && (self.is_blank)(pfn)
    }

    /// Makes up to `count` blocks of an order. Surplus smaller free blocks are used up, others left alone: the places
    /// with the fewest pages to be freed that way come first. Returns the number of frames that it took to be free.
    fn make(&mut self, order: Order, count: u64, shown: &Blocks, wanted: &Blocks) -> u64 {
        let size = order.pages();
        let mut places = Vec::new();
        let mut start = self.span.start.next_multiple_of(size);
        while start + size <= self.span.end {
            if let Some(cost) = self.cost_at(start, order, shown, wanted) {
                places.push((cost, (start ^ self.seed).wrapping_mul(SPREAD), start));
            }
            start += size;
        }
        places.sort_unstable();
        let mut freed = 0;
        // Places that use up smaller blocks change the counts that are shown: one at a time. Others stand alone.
        let uses_up = places.first().is_some_and(|&(cost, ..)| cost != Cost::Alone);
        let count = if uses_up { 1 } else { count as usize };
        for &(.., start) in places.iter().take(count) {
            if self.would_merge(start, order) {
                continue;
            }
            for pfn in start..start + size {
                freed += u64::from(!self.is_free(pfn));
                self.uses[pfn as usize] = FrameUse::Free;
            }
        }
        freed
    }

    /// Returns true if all of a block is free.
    fn is_whole(&self, start: u64, size: u64) -> bool {
        (start..start + size).all(|pfn| self.is_free(pfn))
    }

    /// Returns true if a free block would merge with its buddy.
    fn would_merge(&self, start: u64, order: Order) -> bool {
        order < Order::MAX && self.is_whole(start ^ order.pages(), order.pages())
    }

    /// Returns the cost of a block at a place; `None` where there can be none.
    fn cost_at(&self, start: u64, order: Order, shown: &Blocks, wanted: &Blocks) -> Option<Cost> {
        let size = order.pages();
        let may_be = (start..start + size).all(|pfn| self.may_be_free(pfn));
        // With a free buddy it would be a block of the next order.
        if !may_be || self.is_whole(start, size) || self.would_merge(start, order) {
            return None;
        }
        let inside = count(free_blocks(self.uses, start..start + size));
        let used: u64 = inside.iter().sum();
        let spare = |order: usize| shown[order].saturating_sub(wanted[order]);
        let harm: u64 = (0..Order::COUNT).map(|at| inside[at].saturating_sub(spare(at))).sum();
        Some(match (used, harm) {
            (0, _) => Cost::Alone,
            (used, 0) => Cost::UsesUp(u64::MAX - used),
            (_, harm) => Cost::Harms(harm),
        })
    }

    /// Takes pages of one surplus block of an order, so that the remainder forms blocks of which there are too few.
    /// Returns the number of pages taken.
    fn take(&mut self, order: Order, shown: &Blocks, wanted: &Blocks) -> u64 {
        let block = free_blocks(self.uses, self.span.clone()).find(|&(_, each)| each == order);
        let Some((start, _)) = block else { return 0 };
        let below = |blocks: &Blocks| -> u64 {
            blocks[..order.index()].iter().zip(0..).map(|(count, order)| count << order).sum()
        };
        let left = below(wanted).saturating_sub(below(shown)).min(order.pages() - 1);
        let taken = order.pages() - left;
        for pfn in start..start + taken {
            self.uses[pfn as usize] = FrameUse::Kernel;
        }
        taken
    }
}

/// The effect of a new free block on the others, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// Uses up surplus blocks; the value is `u64::MAX` minus their number, so that using up more is better.
    UsesUp(u64),
    /// Uses up no other block.
    Alone,
    /// Uses up this number of blocks that are not surplus.
    Harms(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reconciles frames drawn as letters, `f` free, `.` not described, `u` in use, with `wanted` free blocks by order.
    fn check(frames: &str, wanted: &[u64], changed: Reconciled, after: &str) {
        let usage = |letter| match letter {
            'f' => FrameUse::Free,
            '.' => FrameUse::Kernel,
            _ => FrameUse::Slab,
        };
        let mut uses: Vec<FrameUse> = frames.chars().map(usage).collect();
        let mut blocks = Blocks::default();
        blocks[..wanted.len()].copy_from_slice(wanted);
        let span = 0..uses.len() as u64;
        let mut reconciler =
            Reconciler { uses: &mut uses, is_blank: &|_| true, span: span.clone(), seed: 0 };
        assert_eq!(reconciler.reconcile(&blocks), changed, "{frames}");
        assert_eq!(count(free_blocks(&uses, span)), blocks, "{frames}");
        let drawn = uses.iter().map(|usage| match usage {
            FrameUse::Free => 'f',
            FrameUse::Kernel => '.',
            _ => 'u',
        });
        assert_eq!(drawn.collect::<String>(), after, "{frames}");
    }

    #[test]
    fn blocks_that_are_missing_use_up_those_that_are_too_many() {
        let freed = |freed| Reconciled { freed, taken: 0 };
        let taken = |taken| Reconciled { freed: 0, taken };
        check("ffu.ffff", &[0, 1, 1], freed(0), "ffu.ffff");
        check("uuf.u.uu", &[0, 1], freed(1), "uuffu.uu");
        check("u.u...ffuuuuuuuu", &[0, 0, 1], freed(2), "u.u.ffffuuuuuuuu");
        check("u.uuffff", &[1, 0, 1], freed(1), "ufuuffff");
        check("fuffuuuu", &[1], taken(2), "fu..uuuu");
        check("ffffuuuu", &[1, 1], taken(1), ".fffuuuu");
        check("ffffuuuu", &[0, 0, 0], taken(4), "....uuuu");
    }

    #[test]
    fn what_cannot_be_is_left_as_it_is() {
        let mut uses = vec![FrameUse::Slab; 8];
        let mut wanted = Blocks::default();
        wanted[1] = 3;
        let mut reconciler =
            Reconciler { uses: &mut uses, is_blank: &|_| true, span: 0..8, seed: 0 };
        assert_eq!(reconciler.reconcile(&wanted), Reconciled::default());
        assert_eq!(uses, [FrameUse::Slab; 8]);
    }
}
