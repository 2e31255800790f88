//! Searches for the lowest, the highest or the smallest hole that serves a request.
//!
//! Lowest and highest are one descent each along the maxima: at every block the first or the last child whose maximum
//! is large enough. Two things make a child's maximum promise more than the child can keep: an alignment that is no
//! class, and a length beyond what a lane holds. Then the search goes on behind the leaf, a dead end, and counts the
//! holes that were large enough but did not fit. From many dead ends the tree learns the class (`lessons`).

use super::entry::{Hole, Note};
use super::leaf::saturated;
use super::row::{LANE_MAX, LANES, Row, lanes_below};
use super::sizes::lanes;
use super::tree::{At, Node, Tree};
use crate::ranges::{Counters, GapRequest, Request, Span};
use core::ops::ControlFlow;

/// Holes that best fit under bounds or alignment looks at, smallest first, before it settles for the lowest fit.
const BEST_CANDIDATES: u32 = 64;
/// Leaves with small holes that the dynamic fit looks at.
pub(super) const DENSE_CANDIDATES: usize = 4;
/// Leaves full of misaligned holes that the dynamic fit visits before it asks for a hole that fits whatever its start.
pub(super) const DENSE_PATIENCE: u32 = 16;

/// A validated request, and the values derived from it that a search compares rows with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    size: u64,
    align: u64,
    /// The remainder of the start when divided by `align`.
    offset: u64,
    pub(super) within: Span,
    pub(super) lane_size: u32,
    /// The alignment class whose maxima guide the search.
    pub(super) class: Option<usize>,
    /// True if below a block whose maximum is large enough there always is a place, the bounds left aside. It decides
    /// which place a best fit takes, so a learned class, of which requests before decide, does not make it true.
    is_guided: bool,
    /// Number of leaves without a place, in spite of their maxima, that a search for the lowest place passes before it
    /// gives up.
    patience: u32,
}

/// Levels that a path may have: leaves have 32-bit numbers, and two neighbouring blocks hold more than 30 children.
const MAX_HEIGHT: usize = 15;

/// A block on the path down to a leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    block: u32,
    /// Children of the block that may serve and have not been looked at, as a bit mask.
    left: u32,
    /// The child in which the upper bound lies, if the bound lies in this block.
    bound: Option<u32>,
}

/// Position of a block relative to the upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The upper bound lies in the block.
    AtBound,
    /// The whole block lies below the bound.
    Below,
}

/// A place for a request: the hole, and the span to be cut out of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) at: At,
    pub(super) hole: Hole,
    pub(super) span: Span,
}

impl Wish {
    pub(super) fn new<N: Note>(request: &Request, tree: &Tree<N>) -> Wish {
        let Request { size, align, within, .. } = *request;
        Wish::guided(size, align, 0, within, tree)
    }

    pub(super) fn congruent<N: Note>(request: &GapRequest, tree: &Tree<N>) -> Wish {
        let GapRequest { size, align, offset, within, .. } = *request;
        Wish::guided(size, align, offset & (align - 1), within, tree)
    }

    /// Returns a wish guided by the largest alignment class of which all possible starts are multiples.
    #[inline]
    fn guided<N: Note>(size: u64, align: u64, offset: u64, within: Span, tree: &Tree<N>) -> Wish {
        let lane_size = saturated(size);
        let exponent = (align | offset).trailing_zeros();
        let exponents = tree.classes.exponents();
        let useful = if lane_size == LANE_MAX { &[] } else { exponents };
        let class = useful.iter().rposition(|&class| u32::from(class) <= exponent);
        let is_given = |class: usize| 1 << exponents[class] == align && !tree.is_learned(class);
        let is_guided = align == 1 || offset == 0 && class.is_some_and(is_given);
        Wish { size, align, offset, within, lane_size, class, is_guided, patience: u32::MAX }
    }

    /// Returns a wish for a hole that is long enough wherever it starts; `None` if that length exceeds 64 bits.
    fn padded(self) -> Option<Wish> {
        let size = self.size.checked_add(self.align - 1)?;
        let lane_size = saturated(size);
        Some(Wish { size, align: 1, offset: 0, lane_size, class: None, is_guided: true, ..self })
    }

    /// Returns true if every hole whose lane is at least `lane_size` fits.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.align == 1 && self.lane_size < LANE_MAX
    }

    pub(super) fn lowest_in(&self, hole: Hole) -> Option<Span> {
        let part = hole.intersection(self.within)?;
        let start = part.lowest_congruent(self.size, self.align, self.offset)?;
        Some(Span::known(start, start + self.size))
    }

    pub(super) fn highest_in(&self, hole: Hole) -> Option<Span> {
        let part = hole.intersection(self.within)?;
        let start = part.highest_congruent(self.size, self.align, self.offset)?;
        Some(Span::known(start, start + self.size))
    }
}

impl<N: Note> Tree<N> {
    /// Returns the lowest place that serves the wish.
    #[inline]
    pub(super) fn lowest(&self, wish: &Wish, counters: &mut Counters) -> Option<Found> {
        if self.cannot_serve(wish) {
            return None;
        }
        if wish.within.start() > 0 {
            return self.lowest_from(self.locate(wish.within.start())?, wish, counters);
        }
        let leaf = self.first_promising(self.height, self.root, wish, counters);
        let at = match self.fits(leaf, wish, counters) {
            0 => {
                counters.dead_ends += 1;
                self.first_fit_after(leaf, wish, counters)?
            }
            lanes => At { leaf, lane: lanes.trailing_zeros() as usize },
        };
        let hole = self.hole(at);
        let span = wish.lowest_in(hole)?;
        Some(Found { at, hole, span })
    }

    /// Returns the same as [`lowest`](Self::lowest), where no hole below the one at `at` reaches into the bounds.
    pub(super) fn lowest_from(
        &self,
        at: At,
        wish: &Wish,
        counters: &mut Counters,
    ) -> Option<Found> {
        if self.cannot_serve(wish) {
            return None;
        }
        let hole = self.hole(at);
        counters.steps += 1;
        if let Some(span) = wish.lowest_in(hole) {
            return Some(Found { at, hole, span });
        }
        if hole.start >= wish.within.end() {
            return None;
        }
        let later = self.fits(at.leaf, wish, counters) & !lanes_below(at.lane + 1);
        let at = match later {
            0 => self.first_fit_after(at.leaf, wish, counters)?,
            lanes => At { leaf: at.leaf, lane: lanes.trailing_zeros() as usize },
        };
        let hole = self.hole(at);
        let span = wish.lowest_in(hole)?;
        Some(Found { at, hole, span })
    }

    /// Returns the highest place that serves the wish.
    pub(super) fn highest(&self, wish: &Wish, counters: &mut Counters) -> Option<Found> {
        if self.cannot_serve(wish) {
            return None;
        }
        let last = wish.within.end() - 1;
        let mut turns = [Turn::default(); MAX_HEIGHT + 1];
        let mut node = Node { level: self.height, number: self.root };
        let mut side = Side::AtBound;
        loop {
            if node.level == 0 {
                match self.highest_in_leaf(node.number, side, wish, counters) {
                    ControlFlow::Break(found) => return found,
                    ControlFlow::Continue(()) => {}
                }
            } else {
                let mut left = self.promising(node.level, node.number, wish, counters);
                let bound = match side {
                    Side::AtBound => Some(self.inners.get(node.number).slot_of_high(last) as u32),
                    Side::Below => None,
                };
                left &= bound.map_or(u32::MAX, |slot| lanes_below(slot as usize + 1));
                turns[node.level as usize] = Turn { block: node.number, left, bound };
            }
            // The highest child that is left, of the lowest block on the path that has one.
            let mut level = node.level.max(1);
            let slot = loop {
                match turns.get(level as usize)?.left.checked_ilog2() {
                    Some(slot) => break slot,
                    None if level >= self.height => return None,
                    None => level += 1,
                }
            };
            let turn = &mut turns[level as usize];
            turn.left &= !(1 << slot);
            side = if turn.bound == Some(slot) { Side::AtBound } else { Side::Below };
            let number = self.inners.get(turn.block).child.0[slot as usize];
            node = Node { level: level - 1, number };
        }
    }

    /// Looks for the highest place in one leaf. Breaks with that place, or with `None` if leaves below cannot serve the
    /// wish either; continues if they may.
    fn highest_in_leaf(
        &self,
        leaf: u32,
        side: Side,
        wish: &Wish,
        counters: &mut Counters,
    ) -> ControlFlow<Option<Found>> {
        let mut fitting = self.fits(leaf, wish, counters);
        counters.dead_ends += u64::from(fitting == 0);
        if side == Side::AtBound {
            fitting &= lanes_below(self.leaves.count_up_to(leaf, wish.within.end() - 1));
        }
        while let Some(lane) = fitting.checked_ilog2() {
            let at = At { leaf, lane: lane as usize };
            let hole = self.hole(at);
            match wish.highest_in(hole) {
                Some(span) => return ControlFlow::Break(Some(Found { at, hole, span })),
                // The hole reaches beyond the upper bound, and serves less than its length.
                None if hole.end > wish.within.end() => fitting &= !(1 << lane),
                None => return ControlFlow::Break(None),
            }
        }
        if self.leaves.start(leaf, 0) <= wish.within.start() {
            return ControlFlow::Break(None);
        }
        ControlFlow::Continue(())
    }

    /// Returns a place in the smallest hole that serves the wish, as exactly as [`SizeBins`](super::sizes::SizeBins)
    /// tell sizes apart; of holes of equal size, any.
    #[inline]
    pub(super) fn best(&self, wish: &Wish, counters: &mut Counters) -> Option<Found> {
        if self.cannot_serve(wish) {
            return None;
        }
        let small = self.among_smallest(wish, wish.lane_size, counters);
        small.or_else(|| self.best_elsewhere(wish, counters))
    }

    /// Returns a place as [`best`](Self::best) does, where none of the smallest holes serves: they are misaligned, or
    /// lie outside the bounds.
    ///
    /// This visits more than O(log n) blocks only if the alignment has no class and no hole is long enough wherever it
    /// starts.
    #[cold]
    fn best_elsewhere(&self, wish: &Wish, counters: &mut Counters) -> Option<Found> {
        let padded = wish.padded();
        let longer = padded
            .filter(|padded| padded.size > wish.size)
            .and_then(|padded| self.among_smallest(wish, padded.lane_size, counters));
        if wish.is_guided {
            let lowest = self.lowest(wish, counters);
            return [longer, lowest].into_iter().flatten().min_by_key(|found| found.hole.len());
        }
        longer
            .or_else(|| self.lowest_padded(wish, counters))
            .or_else(|| self.lowest(wish, counters))
    }

    /// Returns a place in the first of the smallest holes of at least `length` that serves the wish.
    #[inline(always)]
    fn among_smallest(&self, wish: &Wish, length: u32, counters: &mut Counters) -> Option<Found> {
        let sizes = self.sizes.as_ref().filter(|_| length < LANE_MAX)?;
        let mut search = sizes.search(length);
        let mut seen = 0;
        while seen < BEST_CANDIDATES {
            let found = sizes.next(&mut search, &self.leaves, counters)?;
            let mut best: Option<Found> = None;
            for lane in lanes(found.lanes) {
                let at = At { leaf: found.leaf, lane };
                let hole = self.hole(at);
                match wish.lowest_in(hole) {
                    None => counters.misfits += 1,
                    Some(span) if best.is_none_or(|best| hole.len() < best.hole.len()) => {
                        best = Some(Found { at, hole, span });
                    }
                    Some(_) => {}
                }
                if best.is_some() && found.same_length() {
                    break;
                }
            }
            if best.is_some() {
                return best;
            }
            seen += found.lanes.count_ones();
        }
        None
    }

    /// Returns a place in the lowest hole that serves the wish wherever the hole starts.
    fn lowest_padded(&self, wish: &Wish, counters: &mut Counters) -> Option<Found> {
        let Found { at, hole, .. } = self.lowest(&wish.padded()?, counters)?;
        Some(Found { at, hole, span: wish.lowest_in(hole)? })
    }

    /// Returns a place in a small hole that starts at or below `limit`; if there is none among the smallest, the lowest
    /// place.
    ///
    /// Best fit packs a full space best, but fills holes wherever they are, so that the footprint of a live set that
    /// has shrunk never falls. Lowest fit keeps the footprint small, but crumbles a full space. The two agree where the
    /// small hole lies low, and there it is taken.
    pub(super) fn dense(&self, wish: &Wish, limit: u64, counters: &mut Counters) -> Option<Found> {
        if self.cannot_serve(wish) {
            return None;
        }
        let small = self.small_below(wish, limit, counters);
        if small.is_some() || wish.is_guided {
            return small.or_else(|| self.lowest(wish, counters));
        }
        // Where the patience ends is part of which place is taken: it depends on no learned class.
        let class = self.given_class(wish.class);
        self.lowest(&Wish { class, patience: DENSE_PATIENCE, ..*wish }, counters)
            .or_else(|| self.lowest_padded(wish, counters))
            .or_else(|| self.lowest(wish, counters))
    }

    /// Returns a place in one of the smallest holes that starts at or below `limit`.
    fn small_below(&self, wish: &Wish, limit: u64, counters: &mut Counters) -> Option<Found> {
        let sizes = self.sizes.as_ref().filter(|_| wish.lane_size < LANE_MAX)?;
        let mut search = sizes.search(wish.lane_size);
        for _ in 0..DENSE_CANDIDATES {
            let found = sizes.next(&mut search, &self.leaves, counters)?;
            for lane in lanes(found.lanes) {
                let at = At { leaf: found.leaf, lane };
                let hole = self.hole(at);
                if hole.start > limit {
                    break;
                }
                if let Some(span) = wish.lowest_in(hole) {
                    return Some(Found { at, hole, span });
                }
                counters.misfits += 1;
            }
        }
        None
    }

    /// Returns true if the maxima of the whole tree show that no hole serves the wish.
    #[inline]
    fn cannot_serve(&self, wish: &Wish) -> bool {
        self.holes == 0
            || self.top.lane < wish.lane_size
            || wish.class.is_some_and(|class| self.top.aligned[class] < wish.lane_size)
    }

    /// Returns the lanes of `leaf` whose holes can hold the wish, its bounds left aside, as a bit mask.
    #[inline]
    pub(super) fn fits(&self, leaf: u32, wish: &Wish, counters: &mut Counters) -> u32 {
        counters.steps += 1;
        let lengths = self.leaves.lengths(leaf);
        if wish.is_plain() {
            return lengths.at_least(wish.lane_size);
        }
        self.fits_exactly(leaf, wish, lengths, counters)
    }

    fn fits_exactly(&self, leaf: u32, wish: &Wish, lengths: &Row, counters: &mut Counters) -> u32 {
        let large = lengths.at_least(wish.lane_size);
        let in_lanes = wish.align < 1 << 30 && wish.lane_size < LANE_MAX;
        let mut fitting = 0;
        let mut doubtful = large;
        if in_lanes {
            let offsets = self.leaves.offsets(leaf);
            fitting = lengths.at_least_congruent(
                offsets,
                wish.lane_size,
                wish.align as u32,
                wish.offset as u32,
            );
            // A saturated lane does not say whether its hole fits.
            doubtful = large & lengths.at_least(LANE_MAX) & !fitting;
        }
        for lane in lanes(doubtful) {
            let hole = self.leaves.hole(leaf, lane);
            if Span::from(hole).lowest_congruent(wish.size, wish.align, wish.offset).is_some() {
                fitting |= 1 << lane;
            }
        }
        counters.misfits += u64::from((large & !fitting).count_ones());
        fitting
    }

    /// Returns the children of `block` below which the wish may fit, as a bit mask.
    #[inline]
    fn promising(&self, level: u32, block: u32, wish: &Wish, counters: &mut Counters) -> u32 {
        counters.steps += 1;
        let inner = self.inners.get(block);
        let mask = match wish.class {
            None => inner.largest.at_least(wish.lane_size),
            Some(class) => self.inners.aligned(block, class).at_least(wish.lane_size),
        };
        if wish.lane_size < LANE_MAX {
            return mask;
        }
        // All these children are saturated: only their true maxima tell.
        lanes(mask)
            .filter(|&slot| self.long_below(level - 1, inner.child.0[slot]) >= wish.size)
            .fold(0, |mask, slot| mask | 1 << slot)
    }

    /// Returns the first leaf below a block of which some leaf may serve the wish.
    #[inline]
    fn first_promising(
        &self,
        height: u32,
        mut number: u32,
        wish: &Wish,
        counters: &mut Counters,
    ) -> u32 {
        for level in (1..=height).rev() {
            let mask = self.promising(level, number, wish, counters);
            let slot = mask.trailing_zeros() as usize % LANES;
            number = self.inners.get(number).child.0[slot];
        }
        number
    }

    /// Returns the first leaf behind `leaf` that may serve the wish.
    #[inline]
    pub(super) fn next_promising(
        &self,
        leaf: u32,
        wish: &Wish,
        counters: &mut Counters,
    ) -> Option<u32> {
        let (mut level, mut number) = (0, leaf);
        loop {
            let (parent, slot) = self.believed_parent(level, number)?;
            (level, number) = (level + 1, parent);
            let mask = self.promising(level, parent, wish, counters) & !lanes_below(slot + 1);
            if mask != 0 {
                let child = self.inners.get(parent).child.0[mask.trailing_zeros() as usize];
                return Some(self.first_promising(level - 1, child, wish, counters));
            }
        }
    }

    /// Returns the first fitting hole in the leaves behind `leaf`.
    #[inline]
    fn first_fit_after(&self, mut leaf: u32, wish: &Wish, counters: &mut Counters) -> Option<At> {
        let mut patience = wish.patience;
        loop {
            leaf = self.next_promising(leaf, wish, counters)?;
            let fitting = self.fits(leaf, wish, counters);
            if fitting != 0 {
                return Some(At { leaf, lane: fitting.trailing_zeros() as usize });
            }
            if self.leaves.start(leaf, 0) >= wish.within.end() {
                return None;
            }
            counters.dead_ends += 1;
            patience = patience.checked_sub(1)?;
        }
    }
}
