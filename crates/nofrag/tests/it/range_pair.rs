//! A range allocator and sets of sorted runs under the same random steps: they agree in everything that a design
//! promises, in every error, and in the answer to every question.

use super::choices::Choices;
use super::runs::{Runs, outside};
use super::starving::Heap;
use nofrag::check::Check;
use nofrag::ranges::{
    AddSpanError, AllocError, Config, Counters, Fit, FreeError, Index, PendingMove, RangeAllocator,
    RelocateError, Relocation, Request, Span, TakeError,
};

/// The promise of an index design about the places that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Every fit is exact, and none is missed.
    Exact,
    /// `Lowest` is exact without alignment; with it, a found place is free but need not be the lowest.
    LowestUnaligned,
    /// A found place is free; an existing one may be missed.
    Sound,
}

/// The numbers in which a run takes place, and its sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Numbers lie near these; the space begins behind the first three of them.
    pub(crate) bases: &'static [u64],
    /// Count of numbers behind each base, in multiples of `unit`.
    pub(crate) length: u64,
    pub(crate) unit: u64,
    /// Count of these numbers that belong to the space from the beginning.
    pub(crate) first: u64,
    /// Sizes are mostly 1 to this, in multiples of `unit`.
    pub(crate) largest_size: u64,
    /// Number of steps from one comparison of laws and lists to the next.
    pub(crate) check_every: u64,
}

/// A shape in which arithmetic is delicate: at both ends of the numbers, around the boundaries of 2^31 and 2^32, and
/// touching each other.
pub(crate) const DELICATE: Shape = Shape {
    bases: &[
        0,
        256,
        (1 << 31) - 100,
        1 << 31,
        (1 << 32) - 100,
        (5 << 31) - 7,
        (1 << 33) + 1,
        (1 << 63) - 50,
        u64::MAX - 512,
        u64::MAX - 64,
    ],
    length: 256,
    unit: 1,
    first: 100,
    largest_size: 48,
    check_every: 1,
};

/// An action on an allocator after it was given a range back: a bug, planted to see that it is found.
pub(crate) type Bug = fn(&mut RangeAllocator, Span);

/// An allocator, its sets of runs, and the choices that drive both.
pub(crate) struct Pair<'a> {
    pub(crate) choices: Choices<'a>,
    allocator: RangeAllocator,
    config: Config,
    rule: Rule,
    shape: Shape,
    heap: Heap,
    bug: Option<Bug>,
    /// The numbers that belong to the space.
    space: Runs,
    /// The numbers that are free.
    free: Runs,
    /// Ranges that were allocated; parts of them may have been freed since.
    own: Vec<Span>,
    steps: u64,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(config: Config, shape: Shape, choices: Choices<'a>) -> Pair<'a> {
        let rule = match config.index {
            Index::WideBlocks => Rule::Exact,
            Index::CachedScan => Rule::Sound,
            Index::AugmentedTree(_) => Rule::LowestUnaligned,
            other => panic!("{other:?} has no rule here"),
        };
        let mut pair = Pair {
            choices,
            allocator: RangeAllocator::new(config),
            config,
            rule,
            shape,
            heap: Heap::AMPLE,
            bug: None,
            space: Runs::default(),
            free: Runs::default(),
            own: Vec::new(),
            steps: 0,
        };
        for &base in shape.bases.iter().take(3) {
            pair.add_span(Span::sized(base, shape.first).expect("the bases leave room"));
        }
        pair
    }

    /// Returns the same pair with a heap that refuses.
    pub(crate) fn on(self, heap: Heap) -> Pair<'a> {
        Pair { heap, ..self }
    }

    /// Returns the same pair with a bug.
    pub(crate) fn with_bug(self, bug: Bug) -> Pair<'a> {
        Pair { bug: Some(bug), ..self }
    }

    /// Returns the number of holes.
    pub(crate) fn holes(&self) -> usize {
        self.free.iter().len()
    }

    /// Does one step; panics when the two differ by more than the design's rule allows.
    pub(crate) fn step(&mut self) {
        match self.choices.below(32) {
            0..12 => self.alloc(),
            12..18 => self.with_named(Pair::free),
            18..20 => self.free_part(),
            20..25 => {
                if let Some(at) = self.pick() {
                    let own = self.own.swap_remove(at);
                    self.free(own);
                }
            }
            25 | 26 => self.with_named(Pair::alloc_at),
            27 => self.relocate(),
            28 => self.relocate_to(),
            29 => self.with_named(Pair::add_span),
            30 => self.with_named(Pair::remove_span),
            _ if self.choices.below(32) == 0 => self.shrink(),
            _ => self.ask(),
        }
        if self.steps.is_multiple_of(self.shape.check_every) {
            self.compare();
        }
        self.steps += 1;
    }

    fn attempt<T, E: super::starving::Refusal>(
        &mut self,
        operation: impl FnMut(&mut RangeAllocator) -> Result<T, E>,
    ) -> Result<T, E> {
        let (free, space) = (&self.free, &self.space);
        let unchanged = |allocator: &RangeAllocator| compare(allocator, free, space);
        self.heap.attempt(&mut self.allocator, operation, unchanged)
    }

    fn shrink(&mut self) {
        self.attempt(RangeAllocator::shrink).expect("memory was given at last");
        self.compare();
    }

    fn place(&mut self) -> u64 {
        let Shape { bases, length, unit, .. } = self.shape;
        let base = self.choices.any(bases).expect("there is one");
        base.saturating_add(self.choices.below(length / unit) * unit)
    }

    /// Returns a size: mostly small, sometimes nothing or near a power of two.
    fn size(&mut self) -> u64 {
        let kind = self.choices.below(64);
        if kind > 4 {
            return (1 + self.choices.below(self.shape.largest_size))
                .saturating_mul(self.shape.unit);
        }
        let power = 1_u64 << self.choices.below(64);
        [0, power - 1, power, power.saturating_add(1), 1][kind as usize]
    }

    fn with_named(&mut self, operation: fn(&mut Pair<'a>, Span)) {
        if let Ok(span) = Span::sized(self.place(), self.size()) {
            operation(self, span);
        }
    }

    /// Returns the number of an allocated range.
    fn pick(&mut self) -> Option<usize> {
        let at = self.choices.below(self.own.len() as u64) as usize;
        (at < self.own.len()).then_some(at)
    }

    fn request(&mut self) -> Request {
        let align = match self.choices.below(24) {
            0..8 => 1 << self.choices.below(12),
            8 | 9 => 1 << self.choices.below(64),
            10 => self.choices.below(7),
            _ => 1,
        };
        let size = self.size();
        let mut request = Request::new(size).align(align);
        if self.choices.below(3) == 1 {
            let (one, other) = (self.place(), self.place());
            if let Ok(within) = Span::new(one.min(other), one.max(other)) {
                request = request.within(within);
            }
        }
        let indexed = self.config.size_index || self.choices.one_in(16);
        let fits = [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic];
        request.fit(fits[self.choices.below(if indexed { 4 } else { 2 }) as usize])
    }

    fn alloc(&mut self) {
        let request = self.request();
        let mut counts = edges(self.allocator.counters());
        let result = self.attempt(|it| it.alloc(&request));
        self.judge(&request, result);
        if let Ok(span) = result {
            let hole = self.free.around(span).expect("it was free");
            counts[match (hole.start() == span.start(), hole.end() == span.end()) {
                (true, true) => 0,
                (true, false) => 1,
                (false, true) => 2,
                (false, false) => 3,
            }] += 1;
            assert_eq!(edges(self.allocator.counters()), counts, "{request:?} got {span:?}");
            self.free.remove(span);
            self.own.push(span);
        }
    }

    /// Panics unless `result` is an answer to `request` that the rule allows.
    fn judge(&self, request: &Request, result: Result<Span, AllocError>) {
        match result {
            Ok(span) => {
                assert!(is_valid(request), "{request:?} was served");
                assert_eq!(span.len(), request.size, "{request:?}");
                assert_eq!(span.start() % request.align, 0, "{request:?}");
                assert!(request.within.covers(span), "{request:?} got {span:?}");
                assert!(self.free.covers(span), "{request:?} got {span:?}, which is not free");
                self.judge_place(request, span);
            }
            Err(AllocError::ZeroSize) => assert_eq!(request.size, 0),
            Err(AllocError::AlignNotPowerOfTwo) => assert!(!request.align.is_power_of_two()),
            Err(AllocError::FitNotIndexed) => {
                let always = if self.rule == Rule::Exact { Fit::Highest } else { Fit::Lowest };
                assert!(request.fit != Fit::Lowest && request.fit != always, "{request:?}");
                assert!(self.rule != Rule::Exact, "{request:?}");
            }
            Err(why @ (AllocError::Exhausted { largest } | AllocError::Misfit { largest, .. })) => {
                assert!(is_valid(request), "{request:?}");
                let Request { size, align, within, .. } = *request;
                let is_plain = align == 1 && within == Span::ALL;
                let says = match size > largest || is_plain {
                    true => AllocError::Exhausted { largest },
                    false => AllocError::Misfit { largest, align, within },
                };
                assert_eq!(why, says, "{request:?}");
                assert_eq!(largest, self.free.longest(), "{request:?}");
                let may_miss = match self.rule {
                    Rule::Exact => false,
                    Rule::LowestUnaligned => request.align > 1,
                    Rule::Sound => true,
                };
                let missed = self.rooms(request).next().filter(|_| !may_miss);
                assert!(missed.is_none(), "{request:?} missed {missed:?}");
            }
            Err(why) => panic!("{request:?}: {why:?}, and there is memory enough"),
        }
    }

    /// Panics unless `span` is where the request's fit puts it.
    fn judge_place(&self, request: &Request, span: Span) {
        let exact =
            self.rule == Rule::Exact || (self.rule == Rule::LowestUnaligned && request.align == 1);
        if !exact {
            return;
        }
        match request.fit {
            Fit::Lowest => {
                let lowest = self.rooms(request).next().map(|room| room.lowest);
                assert_eq!(Some(span.start()), lowest, "{request:?}");
            }
            Fit::Highest => {
                let highest = self.rooms(request).next_back().map(|room| room.highest);
                assert_eq!(Some(span.start()), highest, "{request:?}");
            }
            Fit::Best if request.align == 1 && request.within == Span::ALL => {
                let taken = self.free.around(span).expect("it is free").len();
                let smallest = self.rooms(request).map(|room| room.hole.len()).min();
                let smallest = smallest.expect("one was found");
                // The search is bounded: exact for short holes, and without a promise from 2^30 on.
                let slack = if smallest < 512 { 0 } else { smallest / 16 };
                let long = smallest >= 1 << 30;
                assert!(long || taken <= smallest + slack, "{request:?}: {taken} for {smallest}");
            }
            Fit::Best | Fit::Dynamic => {}
        }
    }

    /// Returns every hole that holds the request, with its lowest and its highest place there.
    fn rooms(&self, request: &Request) -> impl DoubleEndedIterator<Item = Room> {
        let Request { size, align, within, .. } = *request;
        let valid = is_valid(request);
        self.free.iter().filter(move |_| valid).filter_map(move |hole| {
            let (start, end) = (hole.start().max(within.start()), hole.end().min(within.end()));
            // In 128 bits nothing overflows.
            let [start, end, size, align] = [start, end, size, align].map(u128::from);
            let lowest = start.next_multiple_of(align);
            let highest = end.checked_sub(size)? / align * align;
            (lowest + size <= end && highest >= start).then_some(Room {
                hole,
                lowest: lowest as u64,
                highest: highest as u64,
            })
        })
    }

    /// Returns the expected answer of `alloc_at` and `remove_span` for a span.
    fn takes(&self, span: Span) -> Result<(), TakeError> {
        if !self.space.covers(span) {
            Err(TakeError::Foreign)
        } else if !self.free.covers(span) {
            Err(TakeError::Taken)
        } else {
            Ok(())
        }
    }

    fn alloc_at(&mut self, span: Span) {
        let expected = self.takes(span);
        assert_eq!(self.attempt(|it| it.alloc_at(span)), expected, "alloc_at {span:?}");
        if expected.is_ok() {
            self.free.remove(span);
            self.own.push(span);
        }
    }

    fn remove_span(&mut self, span: Span) {
        let expected = self.takes(span);
        assert_eq!(self.attempt(|it| it.remove_span(span)), expected, "remove_span {span:?}");
        if expected.is_ok() {
            self.space.remove(span);
            self.free.remove(span);
        }
    }

    fn add_span(&mut self, span: Span) {
        let overlaps = self.space.meets(span);
        let expected = if overlaps { Err(AddSpanError::Overlaps) } else { Ok(()) };
        assert_eq!(self.attempt(|it| it.add_span(span)), expected, "add_span {span:?}");
        if expected.is_ok() {
            self.space.add(span);
            self.free.add(span);
        }
    }

    fn free(&mut self, span: Span) {
        let expected = if !self.space.covers(span) {
            Err(FreeError::Foreign)
        } else if self.free.meets(span) {
            Err(FreeError::NotAllocated)
        } else {
            Ok(())
        };
        let mut counts = merges(self.allocator.counters());
        assert_eq!(self.attempt(|it| it.free(span)), expected, "free {span:?}");
        if expected.is_ok() {
            let beside = [span.start().checked_sub(1), Some(span.end())];
            let beside = beside.into_iter().flatten().filter_map(|at| Span::sized(at, 1).ok());
            counts[beside.filter(|&at| self.free.covers(at)).count()] += 1;
            assert_eq!(merges(self.allocator.counters()), counts, "free {span:?}");
            self.free.add(span);
            if let Some(bug) = self.bug {
                bug(&mut self.allocator, span);
            }
        }
    }

    /// Frees a part of an allocated range; the remainder is freed later.
    fn free_part(&mut self) {
        let Some(at) = self.pick() else { return };
        let own = self.own.swap_remove(at);
        let start = own.start() + self.choices.below(own.len());
        let part = Span::sized(start, 1 + self.choices.below(own.end() - start));
        let part = part.expect("it ends where the whole does, or before");
        self.free(part);
        self.own.extend(outside(own, part));
    }

    /// Returns the error for the old place of a move, if it is refused.
    fn refusal_of(&self, from: Span) -> Option<RelocateError> {
        if !self.space.covers(from) {
            Some(RelocateError::Foreign)
        } else {
            self.free.meets(from).then_some(RelocateError::NotAllocated)
        }
    }

    fn relocate(&mut self) {
        let Some(at) = self.pick() else { return };
        let from = self.own[at];
        let request = self.request();
        let refusal = self.refusal_of(from);
        match self.attempt(|it| it.relocate(from, &request).map(Relocation::hold)) {
            Ok(moved) => {
                assert_eq!((refusal, moved.from()), (None, from), "relocate {from:?}");
                self.judge(&request, Ok(moved.to()));
                self.free.remove(moved.to());
                self.finish(at, moved);
            }
            Err(RelocateError::NoPlace(why)) => {
                assert_eq!(refusal, None, "relocate {from:?}");
                self.judge(&request, Err(why));
            }
            Err(why) => assert_eq!(Some(why), refusal, "relocate {from:?}"),
        }
    }

    fn relocate_to(&mut self) {
        let Some(at) = self.pick() else { return };
        let from = self.own[at];
        // Often near the old place, so that the two overlap.
        let to = match self.choices.below(2) {
            0 => from.start().saturating_sub(8).saturating_add(self.choices.below(16)),
            _ => self.place(),
        };
        let Ok(to) = Span::sized(to, from.len()) else { return };
        let refusal = self.refusal_of(from).or_else(|| {
            outside(to, from).find_map(|part| match self.takes(part).err()? {
                TakeError::Foreign => Some(RelocateError::Foreign),
                _ => Some(RelocateError::Taken),
            })
        });
        match self.attempt(|it| it.relocate_to(from, to).map(Relocation::hold)) {
            Ok(moved) => {
                assert_eq!(refusal, None, "relocate {from:?} to {to:?}");
                assert_eq!((moved.from(), moved.to()), (from, to));
                outside(to, from).for_each(|part| self.free.remove(part));
                self.finish(at, moved);
            }
            Err(why) => assert_eq!(Some(why), refusal, "relocate {from:?} to {to:?}"),
        }
    }

    /// Commits or rolls back a pending move; refused, it stays pending.
    fn finish(&mut self, at: usize, moved: PendingMove) {
        if self.shape.check_every == 1 {
            self.compare();
        }
        let (from, to) = (moved.from(), moved.to());
        let keep = self.choices.below(2) == 0;
        let end = |allocator: &mut RangeAllocator, moved| {
            if keep { allocator.commit(moved) } else { allocator.rollback(moved) }
        };
        let mut ended = self.heap.run(|| end(&mut self.allocator, moved));
        if let Err((moved, FreeError::OutOfMetadata)) = ended {
            assert!(!self.heap.is_ample(), "there is memory");
            self.compare();
            ended = end(&mut self.allocator, moved);
        }
        assert_eq!(ended.map_err(|(_, why)| why), Ok(()), "{from:?} to {to:?}");
        let (given_up, other) = if keep { (from, to) } else { (to, from) };
        outside(given_up, other).for_each(|part| self.free.add(part));
        if keep {
            self.own[at] = to;
        }
    }

    /// Asks all questions about a place, and about an alignment.
    fn ask(&mut self) {
        let at = self.place();
        let below = self.free.iter().rfind(|hole| hole.start() < at);
        assert_eq!(self.allocator.hole_below(at), below, "below {at}");
        let align = 1 << self.choices.below(64);
        let largest = self.free.iter().map(|hole| largest_aligned(hole, align)).max();
        assert_eq!(self.allocator.largest_aligned(align), largest.unwrap_or(0), "align {align}");
        if let Ok(span) = Span::sized(at, self.size()) {
            assert_eq!(self.allocator.is_free(span), self.free.covers(span), "{span:?}");
        }
    }

    fn compare(&self) {
        compare(&self.allocator, &self.free, &self.space);
    }

    /// Gives everything back: all numbers are free.
    pub(crate) fn end(mut self) {
        let mut live = self.space.clone();
        self.free.iter().for_each(|hole| live.remove(hole));
        live.iter().for_each(|span| self.free(span));
        assert_eq!(self.free, self.space);
        self.compare();
    }
}

/// Panics when the allocator breaks a law, or its holes and sums are not these.
fn compare(allocator: &RangeAllocator, free: &Runs, space: &Runs) {
    if let Err(violation) = allocator.check() {
        panic!("{violation}");
    }
    assert!(allocator.iter_free().eq(free.iter()), "the holes differ");
    let stats = allocator.stats();
    assert_eq!((stats.free, stats.total), (free.total(), space.total()), "free and total");
    assert_eq!((stats.largest, stats.holes), (free.longest(), free.iter().len()));
    for align in [2, 16, 512, 1 << 30] {
        let largest = free.iter().map(|hole| largest_aligned(hole, align)).max();
        assert_eq!(allocator.largest_aligned(align), largest.unwrap_or(0), "align {align}");
    }
}

/// A hole that holds a request, and the ends of where it may lie in there.
#[derive(Debug)]
struct Room {
    hole: Span,
    lowest: u64,
    highest: u64,
}

fn is_valid(request: &Request) -> bool {
    request.size > 0 && request.align.is_power_of_two()
}

fn largest_aligned(hole: Span, align: u64) -> u64 {
    let start = u128::from(hole.start()).next_multiple_of(align.into());
    u128::from(hole.end()).saturating_sub(start) as u64
}

/// Returns the counts of allocations by the edges of their hole: both, the left one, the right one, none.
fn edges(counters: &Counters) -> [u64; 4] {
    let Counters { fit_full, fit_left_edge, fit_right_edge, fit_no_edge, .. } = *counters;
    [fit_full, fit_left_edge, fit_right_edge, fit_no_edge]
}

/// Returns the counts of frees by the holes with which they merged: none, one, both.
fn merges(counters: &Counters) -> [u64; 3] {
    [counters.merges_none, counters.merges_one, counters.merges_both]
}
