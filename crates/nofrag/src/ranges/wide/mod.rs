//! Wide blocks: nofrag's own index of holes, and of the areas between them. What it must reach:
//! docs/sources/vmap.md#exact-index.
//!
//! A tree with many children per block. Leaves hold up to 32 holes in address order, each as a 31-bit offset and a
//! 31-bit length; blocks above hold up to 32 children, each with the length of the largest hole below it and the lowest
//! address that belongs to it. A search looks at all entries of a block in one pass of vector comparisons (`row`) and
//! goes down one path; a change goes up along parent links and stops where a maximum stays the same.
//!
//! Why not a binary tree: with 50,000 holes it takes 15 dependent, unpredictable steps where this takes 4. Why offsets
//! of 31 bits: they make a hole cost 8 bytes in a leaf. All holes of a leaf start in one *window*, an aligned stretch
//! of 2^31 numbers, so alignment can be computed on offsets alone; and a hole whose length a lane cannot hold must be
//! its leaf's last one, so one field per leaf keeps the true length.
//!
//! One tree serves two owners. `WideBlocks` knows holes only. An `AreaIndex` knows what lies between them, too: each
//! hole, which may be empty there, carries the tag of the area behind it (`entry`), and as the area reaches to the next
//! hole, nothing else is stored of it. The form is decided when the code is compiled, so that holes without tags cost
//! nothing more for it.
//!
//! Files, bottom up: `entry` (a hole and its note), `row` (32 lanes), `leaf` and `inner` (the blocks and their slabs),
//! `near` (guesses instead of descents), `sizes` (for each length the leaves with a hole of it, for best fit), `tree`
//! (its parts), `maxima` (how blocks know the largest hole below), `balance` (how blocks split and join), `change` (how
//! holes come and go), `search` (the choice of a hole for a request), `lessons` (alignment classes that requests
//! teach), `largest` (the largest hole inside bounds), `brackets` (the lengths that occur below each child, for best
//! fit inside bounds), `laws` (checks of the whole tree), `areas` (the area form), `crest` (the highest hole, which the
//! form without areas keeps beside the tree), `usual` (what most operations of that form are), `grain` (numbers counted
//! in multiples of a power of two).
//!
//! Costs, with n holes: every operation visits O(log32 n) blocks. A hole takes 8 bytes of its leaf, with a tag 12,
//! whose lanes are a third to all in use; blocks are kept for reuse once they were needed, so metadata follows the
//! largest number of holes so far, until the tree is made anew to shrink. Nothing is allocated but by a block split,
//! and room for that is reserved before anything changes.

mod areas;
mod balance;
mod brackets;
mod change;
mod crest;
mod entry;
mod grain;
mod inner;
mod largest;
mod laws;
mod leaf;
mod lessons;
mod maxima;
mod near;
mod row;
mod search;
mod sizes;
mod tree;
mod usual;

pub(crate) use self::areas::{AreaIndex, AreaPlace, Finger, Fingers, GapPlace, Removed};

pub(crate) use self::grain::WideBlocks;

use self::entry::Hole;
use self::leaf::{NIL, window_of};
use self::lessons::Lessons;
use self::row::LANE_MAX;
use self::search::{DENSE_PATIENCE, Found, Wish};
use self::tree::{At, BySize, Tree};
use self::usual::Merged;
use super::index::{FreeIndex, Refusal, Rejection, aligned_len, largest_by_scan};
use super::{AlignClasses, Counters, Fit, OutOfMetadata, Request, Span};
use crate::check::Violation;

/// The index of holes in grains: a tree of blocks with up to 32 entries each. See the module's documentation.
///
/// 1. The crest lies above all holes of the tree and touches none.
#[derive(Debug)]
struct GrainBlocks {
    tree: Tree<()>,
    lessons: Lessons,
    /// The highest hole, beside the tree; a tree with an index by size has all its holes itself.
    crest: Option<Span>,
}

impl GrainBlocks {
    fn new(classes: AlignClasses, has_sizes: bool) -> GrainBlocks {
        let by_size = if has_sizes { BySize::Bins } else { BySize::No };
        let tree = Tree::new(classes, by_size);
        GrainBlocks { tree, lessons: Lessons::default(), crest: None }
    }

    /// Cuts `found.span` out of its hole.
    #[inline]
    fn cut(&mut self, found: Found, counters: &mut Counters) -> Result<(), OutOfMetadata> {
        let Found { at, hole, span } = found;
        let at_left = hole.start == span.start();
        let at_right = hole.end == span.end();
        match (at_left, at_right) {
            (true, true) => self.tree.remove(at),
            (true, false) => self.tree.cut_left_edge(at, Hole::known(span.end(), hole.end))?,
            (false, true) => self.tree.replace(at, Hole::known(hole.start, span.start())),
            (false, false) => {
                if !self.tree.has_room(at.leaf, span.end()) {
                    self.tree.reserve_insertion()?;
                }
                let left = Hole::known(hole.start, span.start());
                let right = Hole::known(span.end(), hole.end);
                self.tree.replace(at, left);
                self.tree.insert_at(At { lane: at.lane + 1, ..at }, right.into());
            }
        }
        counters.note_cut(at_left, at_right);
        Ok(())
    }

    /// Cuts out what a search has found, after it has learned from the dead ends that the search met.
    fn cut_found(
        &mut self,
        request: &Request,
        found: Option<Found>,
        dead_ends: u64,
        counters: &mut Counters,
    ) -> Result<Span, Refusal> {
        if dead_ends > 0 {
            self.learn(request, found.map(|found| found.span), dead_ends);
        }
        let found = found.ok_or(Refusal::NoFit)?;
        self.cut(found, counters).map_err(|OutOfMetadata| Refusal::OutOfMetadata)?;
        Ok(found.span)
    }

    /// Takes `size` grains by the rule of the fit, without alignment or bounds; of [`Fit::Dynamic`], preferably below
    /// `limit`. `None`, with nothing changed, unless that concerns one leaf only, and what is noted of it, or the
    /// crest.
    #[inline]
    fn cut_anywhere(
        &mut self,
        size: u64,
        fit: Fit,
        limit: u64,
        counters: &mut Counters,
    ) -> Option<Span> {
        if size.wrapping_sub(1) >= u64::from(LANE_MAX) - 1 {
            return None;
        }
        let lane = size as u32;
        if self.tree.top.lane < lane {
            return if fit == Fit::Lowest { self.cut_crest_edge(size, counters) } else { None };
        }
        match fit {
            Fit::Lowest => self.tree.cut_first(lane, counters),
            Fit::Best => self.tree.cut_smallest(lane, counters),
            Fit::Dynamic => self.tree.cut_dense(lane, limit, counters),
            Fit::Highest => None,
        }
    }

    #[inline]
    fn wish(&mut self, request: &Request) -> Wish {
        let wish = Wish::new(request, &self.tree);
        self.lessons.note_use(&self.tree, wish.class);
        wish
    }

    /// Learns from the dead ends of a search, which lie before the place that it found.
    #[cold]
    fn learn(&mut self, request: &Request, found: Option<Span>, dead_ends: u64) {
        let Request { within, fit, .. } = *request;
        let searched = match (fit, found) {
            (_, None) => Some(within),
            (Fit::Highest, Some(found)) => Span::new(found.end(), within.end()).ok(),
            (_, Some(found)) => Span::new(within.start(), found.start()).ok(),
        };
        self.lessons.after(&mut self.tree, request, dead_ends, searched);
    }

    /// Cuts the place out of the crest that `choose` finds there.
    fn cut_from_crest(
        &mut self,
        choose: impl FnOnce(Hole) -> Option<Span>,
        counters: &mut Counters,
    ) -> Result<Span, Refusal> {
        counters.steps += 1;
        let span = self.crest.and_then(|crest| choose(crest.into()));
        let span = span.ok_or(Refusal::NoFit)?;
        self.cut_crest(span, counters).map_err(|OutOfMetadata| Refusal::OutOfMetadata)?;
        Ok(span)
    }

    /// Adds `span`, which touches no hole, where it belongs.
    fn insert(&mut self, at: At, span: Span) -> Result<(), OutOfMetadata> {
        if !self.tree.has_room(at.leaf, span.start()) {
            self.tree.reserve_insertion()?;
        }
        self.tree.insert_at(at, Hole::from(span).into());
        Ok(())
    }

    /// Frees a range, whose own place is `at`, by growing the hole at `next`, which begins where the range ends, to
    /// `merged`.
    fn grow_next(&mut self, at: At, next: At, merged: Hole) -> Result<(), OutOfMetadata> {
        let same_window = window_of(merged.start) == self.tree.leaves.head(next.leaf).window;
        if at == next && same_window {
            self.tree.replace(next, merged);
        } else {
            self.tree.reserve_insertion()?;
            self.tree.remove(next);
            self.tree.insert(merged.into());
        }
        Ok(())
    }

    /// Frees `span` before the first or behind the last hole of its leaf, where neighbours may be in other leaves.
    fn give_at_edge(&mut self, at: At, span: Span) -> Result<Merged, Rejection> {
        let memory = |OutOfMetadata| Rejection::OutOfMetadata;
        let At { leaf, lane } = at;
        let previous = match lane {
            0 => self.tree.last_before(leaf),
            _ => Some(At { leaf, lane: lane - 1 }),
        };
        let next = if lane < self.tree.leaves.count(leaf) {
            Some(at)
        } else {
            self.tree.first_after(leaf)
        };
        let below = previous.map(|at| self.tree.hole(at));
        let above = next.map(|at| self.tree.hole(at));
        if below.is_some_and(|hole| hole.end > span.start())
            || above.is_some_and(|hole| hole.start < span.end())
        {
            return Err(Rejection::Overlap);
        }
        let below = previous.zip(below).filter(|(_, hole)| hole.end == span.start());
        let above = next.zip(above).filter(|(_, hole)| hole.start == span.end());
        let grown = match (below, above) {
            (None, None) => {
                self.insert(at, span).map_err(memory)?;
                None
            }
            (Some((previous, hole)), None) => {
                self.tree.replace(previous, Hole::known(hole.start, span.end()));
                Some(previous.leaf)
            }
            (None, Some((next, hole))) => {
                let merged = Hole::known(span.start(), hole.end);
                self.grow_next(at, next, merged).map_err(memory)?;
                None
            }
            (Some((previous, left)), Some((next, right))) => {
                self.tree.replace(previous, Hole::known(left.start, right.end));
                self.tree.remove(next);
                None
            }
        };
        let place = || self.tree.locate(span.start()).expect("the span has just become free").leaf;
        let leaf = grown.unwrap_or_else(place);
        self.tree.fence_in(leaf);
        Ok(Merged { before: below.is_some(), after: above.is_some() })
    }

    fn give_first(&mut self, span: Span) -> Result<(), OutOfMetadata> {
        self.tree.reserve_insertion()?;
        self.tree.insert(Hole::from(span).into());
        Ok(())
    }

    /// Frees `span` in the tree, where the guess of its leaf was wrong.
    #[inline(never)]
    fn give_far(&mut self, span: Span) -> Result<Merged, Rejection> {
        if self.tree.root == NIL {
            self.give_first(span)?;
            return Ok(Merged { before: false, after: false });
        }
        let at = self.tree.place_of(span.start());
        if at.lane > 0 && at.lane < self.tree.leaves.count(at.leaf) {
            return self.tree.free_inside(at, span);
        }
        self.give_at_edge(at, span)
    }
}

impl FreeIndex for GrainBlocks {
    fn alloc(
        &mut self,
        request: &Request,
        limit: u64,
        counters: &mut Counters,
    ) -> Result<Span, Refusal> {
        if let Fit::Best | Fit::Dynamic = request.fit {
            self.index_sizes()?;
        }
        let wish = self.wish(request);
        let before = counters.dead_ends;
        if request.fit == Fit::Highest {
            match self.cut_from_crest(|hole| wish.highest_in(hole), counters) {
                Err(Refusal::NoFit) => {}
                cut => return cut,
            }
        }
        let found = match request.fit {
            Fit::Lowest => self.tree.lowest(&wish, counters),
            Fit::Highest => self.tree.highest(&wish, counters),
            Fit::Best => self.tree.best(&wish, counters),
            Fit::Dynamic => self.tree.dense(&wish, limit, counters),
        };
        // What a dense search meets at each request, whatever is learned.
        let patience = if request.fit == Fit::Dynamic { u64::from(DENSE_PATIENCE) + 2 } else { 0 };
        let dead_ends = (counters.dead_ends - before).saturating_sub(patience);
        match self.cut_found(request, found, dead_ends, counters) {
            Err(Refusal::NoFit) if request.fit == Fit::Lowest => {
                self.cut_from_crest(|hole| wish.lowest_in(hole), counters)
            }
            cut => cut,
        }
    }

    fn take(&mut self, span: Span, counters: &mut Counters) -> Result<(), Refusal> {
        if self.crest.is_some_and(|crest| crest.covers(span)) {
            return Ok(self.cut_crest(span, counters)?);
        }
        let at = self.tree.locate(span.start()).ok_or(Refusal::NoFit)?;
        let hole = self.tree.hole(at);
        if !Span::from(hole).covers(span) {
            return Err(Refusal::NoFit);
        }
        self.cut(Found { at, hole, span }, counters).map_err(|OutOfMetadata| Refusal::OutOfMetadata)
    }

    #[inline(always)]
    fn give(&mut self, span: Span, counters: &mut Counters) -> Result<(), Rejection> {
        let merged = if let Some(merged) = self.give_crest(span) {
            merged?
        } else if let Some(at) = self.tree.place_near(span) {
            self.tree.free_inside(at, span)?
        } else {
            self.give_far(span)?
        };
        counters.note_merge(merged.before, merged.after);
        Ok(())
    }

    fn hole_from(&self, at: u64) -> Option<Span> {
        let crest = || self.crest.filter(|crest| crest.end() > at);
        self.tree.locate(at).map(|at| self.tree.hole(at).into()).or_else(crest)
    }

    fn hole_below(&self, end: u64) -> Option<Span> {
        let below = || self.tree.last_below(end).map(|at| self.tree.hole(at).into());
        self.crest.filter(|crest| crest.start() < end).or_else(below)
    }

    fn largest(&self) -> u64 {
        self.tree.largest().max(self.crest.map_or(0, Span::len))
    }

    fn largest_aligned(&self, align: u64) -> u64 {
        let Some(largest) = self.tree.known_largest(align) else {
            return largest_by_scan(self, align);
        };
        let aligned = |hole: Span| aligned_len(hole, align);
        largest.max(self.crest.map_or(0, aligned))
    }

    fn holes(&self) -> usize {
        self.tree.holes + usize::from(self.crest.is_some())
    }

    fn reserve(&mut self, holes: usize) -> Result<(), OutOfMetadata> {
        self.tree.reserve_holes(holes)
    }

    fn metadata_bytes(&self) -> usize {
        self.tree.bytes()
    }

    fn check(&self) -> Result<(), Violation> {
        laws::check(&self.tree)?;
        self.check_crest()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, RangeAllocator};
    use super::entry::{Entry, Note};
    use super::*;
    use crate::check::Check;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Numbers from one hole of a [`tree`] to the next; a hole has half as many.
    pub(super) const PITCH: u64 = 8;

    /// Returns a tree of `count` holes that came from below, so that all leaves but the last are full, with a class of
    /// alignment.
    pub(super) fn tree<N: Note>(count: u64, by_size: BySize) -> Tree<N> {
        let mut tree = Tree::new(AlignClasses::new(&[1]).unwrap(), by_size);
        for start in (0..count).map(|number| number * PITCH) {
            tree.reserve_insertion().unwrap();
            tree.insert(Entry { hole: Hole::known(start, start + PITCH / 2), note: N::default() });
        }
        tree
    }

    const CELLS: u64 = 2_048;

    /// Holes as a plain list, ascending.
    struct List(Vec<(u64, u64)>);

    impl List {
        /// Returns the hole around each place for a request, with the lowest and the highest place there.
        fn places(&self, request: &Request) -> impl DoubleEndedIterator<Item = [u64; 3]> {
            let Request { size, align, within, .. } = *request;
            self.0.iter().filter_map(move |&(start, end)| {
                let (low, high) = (start.max(within.start()), end.min(within.end()));
                let lowest = low.next_multiple_of(align);
                let highest = high.checked_sub(size)? / align * align;
                (lowest <= highest).then_some([end - start, lowest, highest])
            })
        }

        fn take(&mut self, span: Span) {
            let at = self.0.partition_point(|hole| hole.1 <= span.start());
            let (start, end) = self.0.remove(at);
            let rest = [(start, span.start()), (span.end(), end)];
            self.0.splice(at..at, rest.into_iter().filter(|(start, end)| start < end));
        }

        fn give(&mut self, span: Span) {
            let at = self.0.partition_point(|hole| hole.0 < span.start());
            self.0.insert(at, (span.start(), span.end()));
            for left in [at, at.saturating_sub(1)] {
                if left + 1 < self.0.len() && self.0[left].1 == self.0[left + 1].0 {
                    self.0[left].1 = self.0.remove(left + 1).1;
                }
            }
        }
    }

    /// Compares random operations on a space of cells of `unit` numbers with those on a list.
    fn check_run(unit: u64, config: Config, (seed, live, most): (u64, usize, u64)) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let all = Span::new(0, CELLS * unit).unwrap();
        let mut space = RangeAllocator::new(config);
        space.add_span(all).unwrap();
        let (mut list, mut own) = (List(vec![(0, CELLS * unit)]), Vec::<Span>::new());
        let fits = [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic];
        for step in 0..4 * live {
            if own.len() > random.random_range(0..live) {
                let span = own.swap_remove(random.random_range(0..own.len()));
                space.free(span).unwrap();
                list.give(span);
            } else {
                let size = random.random_range(1..=most) * unit;
                let align =
                    if random.random_ratio(1, 3) { 1 << random.random_range(0..6) } else { 1 };
                let fit = fits[random.random_range(0..if config.size_index { 4 } else { 2 })];
                let mut request = Request::new(size).align(align).fit(fit);
                if random.random_ratio(1, 4) {
                    let bounds = [(); 2].map(|()| random.random_range(0..CELLS * unit));
                    let [low, high] = [bounds[0].min(bounds[1]), bounds[0].max(bounds[1]) + 1];
                    request = request.within(Span::new(low, high).unwrap());
                }
                let place = match fit {
                    Fit::Highest => list.places(&request).next_back().map(|it| it[2]),
                    _ => list.places(&request).next().map(|it| it[1]),
                };
                let got = space.alloc(&request).ok();
                assert_eq!(got.is_some(), place.is_some(), "step {step}: {request:?}");
                let Some(got) = got else { continue };
                let is_among = |it: [u64; 3]| (it[1]..=it[2]).contains(&got.start());
                let hole = list.places(&request).find(|it| is_among(*it)).expect("it is free");
                match fit {
                    Fit::Lowest | Fit::Highest => {
                        assert_eq!(Some(got.start()), place, "{request:?}")
                    }
                    Fit::Best if align == 1 && request.within == Span::ALL && hole[0] < 512 => {
                        let smallest = list.places(&request).map(|it| it[0]).min();
                        assert_eq!(Some(hole[0]), smallest, "step {step}: {request:?}");
                    }
                    _ => assert_eq!(got.start() % align, 0),
                }
                list.take(got);
                own.push(got);
            }
            let longest = list.0.iter().map(|hole| hole.1 - hole.0).max();
            assert_eq!(space.largest(), longest.unwrap_or(0), "step {step}");
            let at = random.random_range(0..CELLS * unit);
            let above = list.0.iter().find(|hole| hole.1 > at).copied();
            let below = list.0.iter().rfind(|hole| hole.0 < at).copied();
            let plain = |hole: Option<Span>| hole.map(|hole| (hole.start(), hole.end()));
            assert_eq!((plain(space.hole_from(at)), plain(space.hole_below(at))), (above, below));
            if step % 32 == 0 {
                space.check().unwrap();
                let holes = space.iter_free().map(|hole| (hole.start(), hole.end()));
                assert!(holes.eq(list.0.iter().copied()), "step {step}");
            }
        }
        space.check().unwrap();
    }

    #[test]
    fn random_operations_agree_with_a_list() {
        let classes = AlignClasses::new(&[1, 4]).unwrap();
        for (seed, size_index) in [(1, false), (2, true)] {
            for align_classes in [AlignClasses::NONE, classes] {
                let config = Config { size_index, align_classes, ..Config::default() };
                check_run(1, config, (seed, 400, 3));
                check_run(1, config, (seed, 150, 20));
                // Over 64 windows, in numbers that are no multiples of a power of two.
                check_run((1 << 26) + 1, config, (seed, 300, 3));
            }
        }
    }
}
