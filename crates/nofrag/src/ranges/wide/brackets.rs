//! An index by size that knows addresses: it notes which brackets of lengths occur below each child.
//!
//! Lengths fall into 64 *brackets*: one for each length up to 16, four per doubling up to 2^14, few above. Every block
//! keeps one set of brackets per child, a number of 64 bits. So the lowest hole of a bracket, or the next one behind
//! any address, is one descent, and bounds cost nothing. The areas of an address space need just that: of equal gaps
//! the first, on one side of a frontier. (`sizes` is finer and knows no order; holes keep it.)
//!
//! Eight bytes per leaf are all it takes. A change of a hole concerns two bits, which go up no farther than until a
//! block has the bracket elsewhere, too.

use super::entry::{Hole, Note};
use super::leaf::{NIL, saturated};
use super::row::{LANE_MAX, LANES, Lanes, Row, lanes_below};
use super::search::Wish;
use super::sizes::lanes;
use super::tree::{At, Node, Tree};
use crate::check::Violation;
use crate::ranges::{Counters, Edge, FoundGap};

/// Leaves that a best fit looks into before it settles for the best gap found so far, or for the first fit.
pub(super) const CANDIDATES: usize = 256;

/// Lengths up to this have a bracket each.
const EXACT: u32 = 16;
/// Base-2 logarithm of the length from which on brackets are wider than a fourth of their lowest length.
const COARSE_BITS: u32 = 14;
const BRACKETS: u32 = u64::BITS;

/// The lowest length of each bracket.
static LOWEST: [u32; BRACKETS as usize] = {
    let mut lowest = [0; BRACKETS as usize];
    let mut length = LANE_MAX;
    let mut bracket = BRACKETS;
    // Downwards: each bracket begins at the last length that still belongs to it.
    while bracket > 0 {
        bracket -= 1;
        let (mut low, mut high) = (0, length);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if bracket_of(middle) >= bracket { high = middle } else { low = middle }
        }
        lowest[bracket as usize] = high;
        length = high;
    }
    lowest
};

/// Returns the bracket of a positive length as a lane holds it.
const fn bracket_of(length: u32) -> u32 {
    if length <= EXACT {
        return length.saturating_sub(1);
    }
    let doubling = length.ilog2();
    if doubling < COARSE_BITS {
        return EXACT + (doubling - EXACT.ilog2()) * 4 + ((length >> (doubling - 2)) & 3);
    }
    let above = EXACT + (COARSE_BITS - EXACT.ilog2()) * 4 + (doubling - COARSE_BITS) / 2;
    if above < BRACKETS { above } else { BRACKETS - 1 }
}

/// Returns the lanes whose lengths belong to `bracket`, as a bit mask.
#[inline]
fn lanes_in(bracket: u32, lengths: &Row) -> u32 {
    if bracket < EXACT {
        return lengths.equal_to(bracket + 1);
    }
    let from = lengths.at_least(LOWEST[bracket as usize]);
    match LOWEST.get(bracket as usize + 1) {
        Some(&above) => from & !lengths.at_least(above),
        None => from,
    }
}

/// Returns the brackets that occur in any lane, one bit for each.
fn union(sets: &Lanes<u64>) -> u64 {
    sets.0.iter().fold(0, |union, set| union | set)
}

/// Returns the lanes whose sets have `bracket`, as a bit mask.
fn having(sets: &Lanes<u64>, bracket: u32) -> u32 {
    let bit = |lane: usize| (((sets.0[lane] >> bracket) & 1) as u32) << lane;
    (0..LANES).fold(0, |mask, lane| mask | bit(lane))
}

/// Brackets follow the holes as they come and go.
impl<N: Note> Tree<N> {
    /// Returns true if blocks keep brackets; in the form without areas they never do, and that costs nothing.
    #[inline]
    pub(super) fn has_brackets(&self) -> bool {
        N::EMPTY_HOLES && self.inners.has_brackets()
    }

    /// Notes that `leaf` has got a hole of this length.
    #[inline]
    pub(super) fn bracket_added(&mut self, leaf: u32, length: u64) {
        if !self.has_brackets() || length == 0 {
            return;
        }
        let bit = 1 << bracket_of(saturated(length));
        let head = self.leaves.head(leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        while parent != NIL {
            let set = &mut self.inners.brackets_mut(parent).0[slot];
            if *set & bit != 0 {
                return;
            }
            *set |= bit;
            let inner = self.inners.get(parent);
            (parent, slot) = (inner.parent, usize::from(inner.slot));
        }
        self.brackets |= bit;
    }

    /// Notes that `leaf` has lost a hole of this length.
    #[inline]
    pub(super) fn bracket_removed(&mut self, leaf: u32, length: u64) {
        if !self.has_brackets() || length == 0 {
            return;
        }
        let bracket = bracket_of(saturated(length));
        if lanes_in(bracket, self.leaves.lengths(leaf)) != 0 {
            return;
        }
        let bit = 1 << bracket;
        let head = self.leaves.head(leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        while parent != NIL {
            let sets = self.inners.brackets_mut(parent);
            sets.0[slot] &= !bit;
            if union(sets) & bit != 0 {
                return;
            }
            let inner = self.inners.get(parent);
            (parent, slot) = (inner.parent, usize::from(inner.slot));
        }
        self.brackets &= !bit;
    }

    /// Notes the brackets below `node` anew, and those of the blocks above it as far as that changes them.
    pub(super) fn refresh_brackets(&mut self, mut node: Node) {
        if !self.has_brackets() {
            return;
        }
        loop {
            let set = self.brackets_of(node);
            let Some((parent, slot)) = self.parent_of(node) else {
                self.brackets = set;
                return;
            };
            let noted = &mut self.inners.brackets_mut(parent).0[slot];
            if *noted == set {
                return;
            }
            *noted = set;
            node = Node { level: node.level + 1, number: parent };
        }
    }

    fn brackets_of(&self, node: Node) -> u64 {
        if node.level > 0 {
            return union(self.inners.brackets(node.number));
        }
        let lengths = &self.leaves.lengths(node.number).0[..self.leaves.count(node.number)];
        let some = lengths.iter().filter(|&&length| length > 0);
        some.fold(0, |set, &length| set | 1 << bracket_of(length))
    }
}

/// The holes that start inside the bounds of a request: from the one at `first` up to before the one at `end`.
#[derive(Clone, Copy, Debug)]
struct Inside {
    first: At,
    end: At,
    /// The number below which these holes start.
    to: u64,
}

impl Inside {
    /// Returns the lanes of `leaf` whose holes start inside the bounds, as a bit mask. The leaf lies neither before the
    /// first leaf nor behind the last one.
    #[inline]
    fn lanes_of(&self, leaf: u32) -> u32 {
        let below = if leaf == self.first.leaf { lanes_below(self.first.lane) } else { 0 };
        let up_to = if leaf == self.end.leaf { lanes_below(self.end.lane) } else { u32::MAX };
        up_to & !below
    }
}

/// The state of a search for the best fit: the request, and the best gap so far.
struct Contest<'a> {
    wish: &'a Wish,
    edge: Edge,
    best: Option<(FoundGap, At)>,
}

impl Contest<'_> {
    /// Keeps a gap, cut to the bounds, if it holds the request and is better than the best one so far.
    fn enter(&mut self, at: At, hole: Hole) {
        let Some(gap) = hole.intersection(self.wish.within) else { return };
        if self.best.is_some_and(|(best, _)| self.edge.rank(best.gap) <= self.edge.rank(gap)) {
            return;
        }
        let place = match self.edge {
            Edge::Low => self.wish.lowest_in(hole),
            Edge::High => self.wish.highest_in(hole),
        };
        if let Some(place) = place {
            self.best = Some((FoundGap { gap, place }, at));
        }
    }

    /// Returns true if no gap of `bracket` or above can be smaller than the best one found so far.
    fn is_decided(&self, bracket: u32) -> bool {
        let lowest = u64::from(LOWEST[bracket as usize]);
        self.best.is_some_and(|(best, _)| best.gap.len() < lowest)
    }
}

impl<N: Note> Tree<N> {
    /// Returns a place in the smallest gap, cut to the bounds, that serves the wish, of equal ones the first from the
    /// edge on; exactly so unless more than [`CANDIDATES`] leaves have gaps of the bracket. `first` and `last` are the
    /// entries that [`entry_at`](Self::entry_at) returns for the two bounds.
    pub(super) fn smallest(
        &self,
        wish: &Wish,
        edge: Edge,
        (first, last): (At, At),
        counters: &mut Counters,
    ) -> Option<(FoundGap, At)> {
        let mut contest = Contest { wish, edge, best: None };
        let (mut from, to) = (wish.within.start(), wish.within.end());
        let mut inside = Inside { first, end: last, to };
        let cut = self.hole(first);
        counters.steps += 1;
        if cut.start < from {
            contest.enter(first, cut);
            from = from.max(cut.end);
            inside.first.lane += 1;
        }
        let cut = self.hole(last);
        counters.steps += 1;
        if cut.start < to && cut.end > to {
            contest.enter(last, cut);
            inside.to = cut.start;
        } else if cut.start < to {
            inside.end.lane += 1;
        }
        let mut budget = CANDIDATES;
        let mut left = self.brackets & (u64::MAX << bracket_of(wish.lane_size));
        while left != 0 && from < inside.to {
            let bracket = left.trailing_zeros();
            left &= left - 1;
            if contest.is_decided(bracket) {
                break;
            }
            self.enter_bracket(bracket, inside, &mut contest, &mut budget, counters);
            if budget == 0 {
                break;
            }
        }
        if contest.best.is_some() || budget > 0 {
            return contest.best;
        }
        let found = match edge {
            Edge::Low => self.lowest(wish, counters)?,
            Edge::High => self.highest(wish, counters)?,
        };
        let gap = found.hole.intersection(wish.within)?;
        Some((FoundGap { gap, place: found.span }, found.at))
    }

    /// Enters the gaps of one bracket that start inside the bounds into the contest, from at most `budget` leaves.
    fn enter_bracket(
        &self,
        bracket: u32,
        inside: Inside,
        contest: &mut Contest<'_>,
        budget: &mut usize,
        counters: &mut Counters,
    ) {
        let lowest = LOWEST[bracket as usize];
        let first = inside.first.leaf;
        let mut next = match self.noted_brackets(first) >> bracket & 1 {
            0 => self.next_with(bracket, first, counters),
            _ => Some(first),
        };
        while let Some(leaf) = next.filter(|_| *budget > 0) {
            if self.leaves.start(leaf, 0) >= inside.to {
                return;
            }
            *budget -= 1;
            let all_fit = contest.wish.is_plain() && contest.wish.lane_size <= lowest;
            let fitting = if all_fit { u32::MAX } else { self.fits(leaf, contest.wish, counters) };
            counters.steps += u64::from(all_fit);
            let of_bracket = lanes_in(bracket, self.leaves.lengths(leaf));
            for lane in lanes(of_bracket & fitting & inside.lanes_of(leaf)) {
                contest.enter(At { leaf, lane }, self.leaves.hole(leaf, lane));
                if bracket < EXACT && contest.edge == Edge::Low {
                    // All others of this length lie above.
                    return;
                }
            }
            next = self.next_with(bracket, leaf, counters);
        }
    }

    /// Returns the brackets of the lengths in a leaf, one bit for each, as the block above notes them.
    fn noted_brackets(&self, leaf: u32) -> u64 {
        match self.parent_of(Node { level: 0, number: leaf }) {
            Some((parent, slot)) => self.inners.brackets(parent).0[slot],
            None => self.brackets,
        }
    }

    /// Returns the first leaf behind `leaf` that has a hole of `bracket`.
    fn next_with(&self, bracket: u32, leaf: u32, counters: &mut Counters) -> Option<u32> {
        let mut node = Node { level: 0, number: leaf };
        loop {
            let (parent, slot) = self.parent_of(node)?;
            counters.steps += 1;
            let mask = having(self.inners.brackets(parent), bracket) & !lanes_below(slot + 1);
            if mask == 0 {
                node = Node { level: node.level + 1, number: parent };
                continue;
            }
            let mut number = self.inners.get(parent).child.0[mask.trailing_zeros() as usize];
            for _ in 0..node.level {
                counters.steps += 1;
                let mask = having(self.inners.brackets(number), bracket);
                number = self.inners.get(number).child.0[mask.trailing_zeros() as usize];
            }
            return Some(number);
        }
    }
}

/// Verifies that the brackets noted for a child are those below it.
pub(super) fn check<N: Note>(tree: &Tree<N>, node: Node) -> Result<(), Violation> {
    if !tree.has_brackets() {
        return Ok(());
    }
    let noted = match tree.parent_of(node) {
        Some((parent, slot)) => tree.inners.brackets(parent).0[slot],
        None => tree.brackets,
    };
    let law = "the brackets noted for a block are those below it";
    Violation::unless_equal(law, u64::from(node.number), tree.brackets_of(node), noted)
}

const _: () = assert!(LOWEST[0] == 1 && LOWEST[15] == 16 && LOWEST[16] == 17);
const _: () = assert!(LOWEST[17] == 20 && LOWEST[56] == 1 << 14 && LOWEST[63] == 1 << 28);
