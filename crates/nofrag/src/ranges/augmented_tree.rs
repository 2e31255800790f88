//! Linux since 5.2 (Rezki 2019): free areas in a red-black tree that keeps the largest size of each subtree.
//!
//! A search descends to the lowest area that can hold the request and skips subtrees whose largest area is too small.
//! For alignment 1 (a page in Linux) that finds the lowest address in O(log n), but for one case of the oldest version,
//! [`AlignOne`](super::AlignOne). For larger alignments the kernel has no exact answer, only three versions of how much
//! room to demand, [`AlignRule`]: with padding the search passes over subtrees whose areas would fit and so misses
//! fits, or finds one further up; without, it visits every misaligned area on the way. The upper bound of the request
//! is not searched for, only checked at the end, as in the kernel: a place found beyond it is a miss even where a fit
//! lies below. The whole point is to be that rule, for comparison; `WideBlocks` is exact.
//!
//! One search serves all versions. Linux 5.2 lacked the step that moves the lower bound past a finished subtree;
//! under [`AlignRule::Padded`] a subtree is entered only if it must hold a fit, or none of it is worth a second look,
//! so the step changes nothing there.
//!
//! Descriptors are reserved before a split, so a lack of memory changes nothing; Linux keeps a spare one for each CPU
//! (docs/sources/vmap.md#preload).
//!
//! Source: docs/sources/vmap.md#lowest-match, vmap.md#length-rule, vmap.md#augmentation, vmap.md#fit-types and
//! vmap.md#merge.

use super::index::{FreeIndex, Refusal, Rejection};
use super::red_black::{LargestBelow, NodeId, RedBlackTree, Side};
use super::{AlignRule, Counters, Fit, OutOfMetadata, Request, Span};
use crate::check::Violation;

/// Free areas by address, with the largest size of each subtree.
///
/// 1. The laws of the red-black tree hold; among them, every subtree's maximum equals the recomputed one (Rezki's
///    patch 2).
/// 2. No two free areas touch.
/// 3. The search for alignment 1 finds what a linear scan finds (Rezki's patch 3).
#[derive(Debug)]
pub(crate) struct AugmentedTree {
    areas: RedBlackTree<LargestBelow>,
    rule: AlignRule,
}

/// Position of an allocation in the free area that it is cut from, in Linux's terms (docs/sources/vmap.md#fit-types).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FitType {
    /// FL: the allocation is the whole area.
    Full,
    /// LE: the allocation begins where the area begins.
    LeftEdge,
    /// RE: the allocation ends where the area ends.
    RightEdge,
    /// NE: the allocation splits the area.
    NoEdge,
}

impl FitType {
    #[inline]
    fn of(area: Span, cut: Span) -> FitType {
        match (area.start() == cut.start(), area.end() == cut.end()) {
            (true, true) => FitType::Full,
            (true, false) => FitType::LeftEdge,
            (false, true) => FitType::RightEdge,
            (false, false) => FitType::NoEdge,
        }
    }
}

/// A request, and the length that the release's rule demands of a subtree before the search enters it.
#[derive(Clone, Copy, Debug)]
struct PaddedRequest {
    size: u64,
    align: u64,
    /// The size that a subtree's largest area must have for the search to enter.
    length: u64,
}

impl PaddedRequest {
    /// Pads the request by `rule`; returns `None` if the padded length exceeds 64 bits, so that no area can have it.
    #[inline]
    fn new(request: &Request, rule: AlignRule) -> Option<PaddedRequest> {
        let Request { size, align, within, .. } = *request;
        let padding = match rule {
            AlignRule::Padded => request.padding(),
            AlignRule::Unpadded => 0,
            AlignRule::PaddedUnlessExact if align == 1 || within.len() == size => 0,
            AlignRule::PaddedUnlessExact => align,
        };
        let length = size.checked_add(padding)?;
        Some(PaddedRequest { size, align, length })
    }

    /// Returns the start of the request in `area` at or above `lower`, if it fits there.
    #[inline]
    fn place(&self, area: Span, lower: u64) -> Option<u64> {
        let start = round_up(area.start().max(lower), self.align)?;
        let end = start.checked_add(self.size)?;
        (end <= area.end()).then_some(start)
    }
}

/// Returns the lowest multiple of the power of two `align` at or above `at`, if there is one.
#[inline]
pub(super) fn round_up(at: u64, align: u64) -> Option<u64> {
    Some(at.checked_add(align - 1)? & !(align - 1))
}

impl AugmentedTree {
    pub(crate) fn new(rule: AlignRule) -> AugmentedTree {
        AugmentedTree { areas: RedBlackTree::new(), rule }
    }

    /// Searches as the kernel does (docs/sources/vmap.md#lowest-match); returns an area and the start of the request in
    /// it, at or above `lower`.
    #[inline]
    fn lowest_match(
        &self,
        wanted: PaddedRequest,
        mut lower: u64,
        counters: &mut Counters,
    ) -> Option<(NodeId, u64)> {
        let enough = LargestBelow(wanted.length);
        let mut at = self.areas.root()?;
        loop {
            let area = self.areas.span(at);
            let left = self.areas.summary_below(at, Side::Left) >= enough;
            if left && lower < area.start() {
                counters.steps += 1;
                at = self.areas.child(at, Side::Left)?;
                continue;
            }
            if let Some(start) = self.visit(at, wanted, lower, counters) {
                return Some((at, start));
            }
            if self.areas.summary_below(at, Side::Right) >= enough {
                at = self.areas.child(at, Side::Right)?;
                continue;
            }
            // Climb to the first ancestor that fits or has a right subtree worth entering.
            loop {
                at = self.areas.parent(at)?;
                if let Some(start) = self.visit(at, wanted, lower, counters) {
                    return Some((at, start));
                }
                let start = self.areas.span(at).start();
                if self.areas.summary_below(at, Side::Right) >= enough && lower <= start {
                    // One above the start, so that the finished subtree is not entered again.
                    lower = start + 1;
                    at = self.areas.child(at, Side::Right)?;
                    break;
                }
            }
        }
    }

    /// Counts a visit of an area, and returns the place of the request in it, if it fits.
    #[inline]
    fn visit(
        &self,
        at: NodeId,
        wanted: PaddedRequest,
        lower: u64,
        counters: &mut Counters,
    ) -> Option<u64> {
        let area = self.areas.span(at);
        counters.steps += 1;
        let place = wanted.place(area, lower);
        if place.is_none() && area.len() >= wanted.size {
            counters.misfits += 1;
        }
        place
    }

    /// Takes `cut` out of the area at `id`, which covers it.
    // Every allocation passes here, and the compiler would not inline so much unasked.
    #[inline(always)]
    fn cut(&mut self, id: NodeId, cut: Span, counters: &mut Counters) -> Result<(), OutOfMetadata> {
        let area = self.areas.span(id);
        match FitType::of(area, cut) {
            FitType::Full => {
                self.areas.remove(id);
                counters.note_cut(true, true);
            }
            FitType::LeftEdge => {
                self.areas.set_start(id, cut.end());
                counters.note_cut(true, false);
            }
            FitType::RightEdge => {
                self.areas.set_end(id, cut.start());
                counters.note_cut(false, true);
            }
            FitType::NoEdge => {
                self.areas.reserve_one()?;
                self.areas.set_start(id, cut.end());
                let link = self.areas.link_before(Some(id));
                self.areas.insert(link, Span::known(area.start(), cut.start()));
                counters.note_cut(false, false);
            }
        }
        Ok(())
    }

    /// Returns the lowest place for `size` numbers at or above `lower`, found by looking at every area (Rezki's patch
    /// 3).
    fn linear_scan(&self, size: u64, lower: u64) -> Option<u64> {
        let wanted = PaddedRequest { size, align: 1, length: size };
        self.areas.iter().find_map(|area| wanted.place(area, lower))
    }

    /// Verifies law 3, that the search finds what a linear scan finds, for sizes and lower bounds of areas spread over
    /// the tree.
    fn check_search(&self) -> Result<(), Violation> {
        let stride = self.areas.len() / 8 + 1;
        for area in self.areas.iter().step_by(stride) {
            for size in [area.len(), area.len().saturating_add(1)] {
                for lower in [0, area.start(), area.start() + 1, area.end()] {
                    let wanted = PaddedRequest { size, align: 1, length: size };
                    let found = self.lowest_match(wanted, lower, &mut Counters::default());
                    let (expected, found) =
                        (self.linear_scan(size, lower), found.map(|(_, start)| start));
                    Violation::unless_equal(
                        "the search finds what a linear scan finds",
                        lower,
                        expected.unwrap_or(u64::MAX),
                        found.unwrap_or(u64::MAX),
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl FreeIndex for AugmentedTree {
    #[inline(never)]
    fn alloc(
        &mut self,
        request: &Request,
        _limit: u64,
        counters: &mut Counters,
    ) -> Result<Span, Refusal> {
        if request.fit != Fit::Lowest {
            return Err(Refusal::FitNotIndexed);
        }
        let wanted = PaddedRequest::new(request, self.rule).ok_or(Refusal::NoFit)?;
        let found = self.lowest_match(wanted, request.within.start(), counters);
        let (id, start) = found.ok_or(Refusal::NoFit)?;
        let span = Span::known(start, start + request.size);
        if span.end() > request.within.end() {
            counters.misfits += 1;
            return Err(Refusal::NoFit);
        }
        self.cut(id, span, counters)?;
        Ok(span)
    }

    fn take(&mut self, span: Span, counters: &mut Counters) -> Result<(), Refusal> {
        let (found, _) = self.areas.first_ending_above(span.start());
        let id = found.ok_or(Refusal::NoFit)?;
        if !self.areas.span(id).covers(span) {
            return Err(Refusal::NoFit);
        }
        Ok(self.cut(id, span, counters)?)
    }

    #[inline(never)]
    fn give(&mut self, span: Span, counters: &mut Counters) -> Result<(), Rejection> {
        let link = self.areas.link_for(span).ok_or(Rejection::Overlap)?;
        let (previous, next) = self.areas.neighbours(link);
        let previous = previous.filter(|&id| self.areas.span(id).end() == span.start());
        let next = next.filter(|&id| self.areas.span(id).start() == span.end());
        match (previous, next) {
            (None, None) => {
                self.areas.reserve_one()?;
                self.areas.insert(link, span);
                counters.note_merge(false, false);
            }
            (None, Some(next)) => {
                self.areas.set_start(next, span.start());
                counters.note_merge(false, true);
            }
            (Some(previous), None) => {
                self.areas.set_end(previous, span.end());
                counters.note_merge(true, false);
            }
            (Some(previous), Some(next)) => {
                // The upper area is removed before the lower one grows: a rotation of the removal would note the grown
                // size where it passes, and the refresh would stop there, below ancestors that have not heard of it.
                let end = self.areas.span(next).end();
                self.areas.remove(next);
                self.areas.set_end(previous, end);
                counters.note_merge(true, true);
            }
        }
        Ok(())
    }

    fn hole_from(&self, at: u64) -> Option<Span> {
        self.areas.first_ending_above(at).0.map(|id| self.areas.span(id))
    }

    fn hole_below(&self, end: u64) -> Option<Span> {
        let (above, _) = self.areas.first_ending_above(end.checked_sub(1)?);
        let found = above.filter(|&id| self.areas.span(id).start() < end);
        let below = found.or_else(|| self.areas.previous(above))?;
        Some(self.areas.span(below))
    }

    /// Returns the size of the largest area, which the root keeps. O(1).
    fn largest(&self) -> u64 {
        self.areas.summary().0
    }

    fn holes(&self) -> usize {
        self.areas.len()
    }

    fn reserve(&mut self, holes: usize) -> Result<(), OutOfMetadata> {
        self.areas.reserve(holes)
    }

    fn metadata_bytes(&self) -> usize {
        self.areas.metadata_bytes()
    }

    fn check(&self) -> Result<(), Violation> {
        self.areas.check()?;
        let mut below = None;
        for area in self.areas.iter() {
            Violation::unless(
                "two free areas never touch",
                area.start(),
                below != Some(area.start()),
            )?;
            below = Some(area.end());
        }
        self.check_search()
    }
}

#[cfg(test)]
mod byte_model;

#[cfg(test)]
mod tests {
    use super::super::AlignOne;
    use super::*;
    use alloc::{vec, vec::Vec};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    const RULES: [AlignRule; 3] =
        [AlignRule::Padded, AlignRule::Unpadded, AlignRule::PaddedUnlessExact];

    /// Returns a tree over the given areas, inserted level by level as a heap fills, so that it is as balanced as can
    /// be.
    pub(super) fn balanced(rule: AlignRule, areas: &[Span]) -> AugmentedTree {
        let mut tree = AugmentedTree::new(rule);
        for rank in level_order(areas.len()) {
            tree.give(areas[rank], &mut Counters::default()).unwrap();
        }
        tree
    }

    /// Returns the ranks by address of the nodes of a complete tree, from the root downwards, each level from the left.
    fn level_order(count: usize) -> Vec<usize> {
        let mut ranks = vec![0; count];
        let mut path = Vec::new();
        let (mut heap, mut rank) = (1, 0);
        while heap <= count || !path.is_empty() {
            while heap <= count {
                path.push(heap);
                heap *= 2;
            }
            let top = path.pop().unwrap();
            ranks[top - 1] = rank;
            rank += 1;
            heap = 2 * top + 1;
        }
        ranks
    }

    /// The search as a recursion over the shape of a tree; it recomputes each maximum and counts its visits.
    struct Recursion<'a> {
        tree: &'a RedBlackTree<LargestBelow>,
        size: u64,
        align: u64,
        length: u64,
        lower: u64,
        visits: u64,
    }

    impl Recursion<'_> {
        fn deep_enough(&self, id: Option<NodeId>) -> bool {
            id.is_some_and(|id| {
                self.tree.span(id).len() >= self.length
                    || self.deep_enough(self.tree.child(id, Side::Left))
                    || self.deep_enough(self.tree.child(id, Side::Right))
            })
        }

        fn fits(&mut self, id: NodeId) -> Option<u64> {
            let area = self.tree.span(id);
            (area.start().max(self.lower)..area.end())
                .find(|start| start % self.align == 0)
                .filter(|start| start + self.size <= area.end())
        }

        fn visit(&mut self, id: NodeId) -> Option<u64> {
            self.visits += 1;
            let [left, right] = [Side::Left, Side::Right].map(|side| self.tree.child(id, side));
            let start = self.tree.span(id).start();
            if self.deep_enough(left) && self.lower < start {
                let found = self.visit(left?);
                if found.is_some() {
                    return found;
                }
            } else {
                if let Some(found) = self.fits(id) {
                    return Some(found);
                }
                if !self.deep_enough(right) {
                    return None;
                }
                let found = self.visit(right?);
                if found.is_some() {
                    return found;
                }
            }
            self.visits += 1;
            if let Some(found) = self.fits(id) {
                return Some(found);
            }
            if !self.deep_enough(right) || self.lower > start {
                return None;
            }
            self.lower = start + 1;
            let found = self.visit(right?);
            self.visits += u64::from(found.is_none());
            found
        }
    }

    #[test]
    fn search_equals_recursion() {
        let mut rng = Pcg64::seed_from_u64(2019);
        for round in 0..1500 {
            let mut tree = AugmentedTree::new(RULES[round % 3]);
            let mut at = rng.random_range(0..40);
            let mut areas = Vec::new();
            for _ in 0..rng.random_range(0..40) {
                let len = rng.random_range(1..60);
                areas.push(Span::sized(at, len).unwrap());
                at += len + rng.random_range(1..40);
            }
            while !areas.is_empty() {
                let area = areas.swap_remove(rng.random_range(0..areas.len()));
                tree.give(area, &mut Counters::default()).unwrap();
            }
            for _ in 0..20 {
                let lower = rng.random_range(0..=at);
                let request = Request::new(rng.random_range(1..=20))
                    .align(1 << rng.random_range(0..=6))
                    .align_one([AlignOne::Byte, AlignOne::Number][rng.random_range(0..2)])
                    .within(Span::sized(lower, rng.random_range(1..=64)).unwrap());
                check_search_equals_recursion(&tree, &request);
            }
        }
    }

    fn check_search_equals_recursion(tree: &AugmentedTree, request: &Request) {
        let wanted = PaddedRequest::new(request, tree.rule).unwrap();
        let PaddedRequest { size, align, length } = wanted;
        let lower = request.within.start();
        let mut counters = Counters::default();
        let found = tree.lowest_match(wanted, lower, &mut counters).map(|(_, start)| start);
        let mut model = Recursion { tree: &tree.areas, size, align, length, lower, visits: 0 };
        let expected = tree.areas.root().and_then(|root| model.visit(root));
        assert_eq!((found, counters.steps), (expected, model.visits), "{request:?} in {tree:?}");
        if found.is_none() && lower == 0 && length > size {
            assert!(tree.largest() < length, "a padded miss means that no area has the length");
        }
    }

    /// Shows that a search without padding visits all areas that are large enough but misaligned, once for each
    /// direction of each link: 2n - 1 visits for n areas (docs/sources/vmap.md#oracle-10).
    #[test]
    fn unpadded_visits_every_misaligned_area() {
        for (count, visits) in [(256, 511), (1024, 2047), (4096, 8191), (16_384, 32_767)] {
            let areas: Vec<Span> =
                (0..count).map(|i| Span::sized(64 * i + 1, 32).unwrap()).collect();
            let mut tree = balanced(AlignRule::Unpadded, &areas);
            let mut counters = Counters::default();
            let request = Request::new(32).align(64);
            assert_eq!(tree.alloc(&request, 0, &mut counters), Err(Refusal::NoFit));
            assert_eq!(counters.steps, visits, "{count} areas");
            assert!(counters.misfits >= count);
            let mut padded = balanced(AlignRule::Padded, &areas);
            let mut counters = Counters::default();
            assert_eq!(padded.alloc(&request, 0, &mut counters), Err(Refusal::NoFit));
            assert_eq!(counters.steps, 1, "with padding the root's maximum tells");
        }
    }

    /// Shows that the rule of docs/sources/vmap.md#lowest-match enters a right subtree a second time where its parent
    /// has no better left one: five visits for two areas, not the three that a lone left child costs. The trees of
    /// `unpadded_visits_every_misaligned_area` have lone left children only.
    #[test]
    fn a_lone_right_child_is_visited_twice() {
        let areas = [Span::sized(1, 32).unwrap(), Span::sized(65, 32).unwrap()];
        for (order, visits) in [([0, 1], 5), ([1, 0], 3)] {
            let mut tree = AugmentedTree::new(AlignRule::Unpadded);
            for rank in order {
                tree.give(areas[rank], &mut Counters::default()).unwrap();
            }
            let mut counters = Counters::default();
            let request = Request::new(32).align(64);
            assert_eq!(tree.alloc(&request, 0, &mut counters), Err(Refusal::NoFit));
            assert_eq!(counters.steps, visits);
        }
    }

    #[test]
    fn fit_types() {
        let area = Span::new(2, 6).unwrap();
        let fit = |start, end| FitType::of(area, Span::new(start, end).unwrap());
        assert_eq!(fit(2, 6), FitType::Full);
        assert_eq!(fit(2, 4), FitType::LeftEdge);
        assert_eq!(fit(4, 6), FitType::RightEdge);
        assert_eq!(fit(3, 5), FitType::NoEdge);
    }
}
