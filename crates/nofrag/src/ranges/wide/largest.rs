//! The largest hole inside bounds.
//!
//! Holes that lie across a bound count as cut to it, so there are at most two of them, and they are looked at by
//! themselves. All others are whole: where a block's children lie inside the bounds as a whole, their maxima tell.

use super::entry::{Hole, Note};
use super::leaf::saturated;
use super::row::{LANE_MAX, lanes_below};
use super::sizes::lanes;
use super::tree::{At, Node, Tree};
use crate::ranges::Span;

/// The largest hole so far, of equal ones the lowest; holes are offered in ascending order.
#[derive(Clone, Copy, Debug, Default)]
struct Largest(Option<Span>);

impl Largest {
    fn len(self) -> u64 {
        self.0.map_or(0, Span::len)
    }

    fn offer(&mut self, hole: Option<Span>) {
        if hole.is_some_and(|hole| hole.len() > self.len()) {
            self.0 = hole;
        }
    }
}

impl<N: Note> Tree<N> {
    /// Returns the largest hole in `within`, cut to it, of equal ones the lowest; there is a root. O(log n).
    pub(super) fn largest_within(&self, within: Span) -> Option<Span> {
        let mut largest = Largest::default();
        let hole = |at: At| self.hole(at);
        let first = self.entry_at(within.start()).map(hole);
        let last = self.entry_at(within.end() - 1).map(hole);
        largest.offer(first.and_then(|hole| hole.intersection(within)));
        let from = first.map_or(0, |hole| hole.start + 1).max(within.start());
        if let Some(last) = last.filter(|last| last.start >= from) {
            if from < last.start {
                let root = Node { level: self.height, number: self.root };
                self.largest_from(root, from, last.start, &mut largest);
            }
            largest.offer(last.intersection(within));
        }
        largest.0
    }

    /// Offers the largest hole below `node` that starts in `from..to`.
    fn largest_from(&self, node: Node, from: u64, to: u64, largest: &mut Largest) {
        if node.level == 0 {
            let below =
                from.checked_sub(1).map_or(0, |at| self.leaves.count_up_to(node.number, at));
            let inside = lanes_below(self.leaves.count_up_to(node.number, to - 1));
            for lane in lanes(inside & !lanes_below(below)) {
                largest.offer(self.leaves.hole(node.number, lane).whole());
            }
            return;
        }
        let inner = self.inners.get(node.number);
        let (first, last) = (inner.slot_of(from), inner.slot_of(to - 1));
        let child = |slot: usize| Node { level: node.level - 1, number: inner.child.0[slot] };
        self.largest_from(child(first), from, to, largest);
        if first == last {
            return;
        }
        let between = first + 1..last;
        let longest = |slot: usize| match inner.largest.0[slot] {
            LANE_MAX => self.long_below(node.level - 1, inner.child.0[slot]),
            length => u64::from(length),
        };
        // Of equal ones the first: the order of the search is that of the addresses.
        let best = between.rev().max_by_key(|&slot| longest(slot));
        if let Some(slot) = best.filter(|&slot| longest(slot) > largest.len()) {
            largest.offer(self.first_of_length(child(slot), longest(slot)).whole());
        }
        self.largest_from(child(last), from, to, largest);
    }

    /// Returns the first hole of exactly this length, which is the largest, below `node`.
    fn first_of_length(&self, mut node: Node, length: u64) -> Hole {
        let lane = saturated(length);
        while node.level > 0 {
            let inner = self.inners.get(node.number);
            let level = node.level - 1;
            let has = |&slot: &usize| {
                lane < LANE_MAX || self.long_below(level, inner.child.0[slot]) == length
            };
            let slot = lanes(inner.largest.equal_to(lane)).find(has);
            let slot = slot.expect("a maximum is that of some child");
            node = Node { level, number: inner.child.0[slot] };
        }
        let lane = self.leaves.lengths(node.number).equal_to(lane).trailing_zeros() as usize;
        self.leaves.hole(node.number, lane)
    }
}
