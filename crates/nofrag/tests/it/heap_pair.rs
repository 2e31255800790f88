//! Random operations on a heap of ranges, beside runs of the numbers that are free and a list of the ranges in use.

use super::choices::Choices;
use super::runs::Runs;
use super::starving::Heap;
use nofrag::check::Check;
use nofrag::ranges::{AddSpanError, HandleError, HeapError, HeapRange, RangeHeap, Span, TakeError};

/// Holes of its own bin at which a request looks at least, and at most before it is refused.
const LOOKS: [usize; 2] = [4, 64];

/// The numbers in which a run takes place, and its sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// The space begins with the numbers behind each of these.
    pub(crate) bases: &'static [u64],
    /// Count of numbers behind each base.
    pub(crate) length: u64,
    /// Sizes are mostly 1 to this.
    pub(crate) largest_size: u64,
}

/// Stretches that touch each other, and both ends of the numbers.
pub(crate) const TOUCHING: Field = Field {
    bases: &[0, 300, 600, 1200, 1 << 40, (1 << 40) + 300, u64::MAX - 300],
    length: 300,
    largest_size: 40,
};

/// Sizes in bins of many lengths.
pub(crate) const WIDE: Field =
    Field { bases: &[1 << 20, 1 << 50], length: 1 << 24, largest_size: 1 << 16 };

/// A heap, what it must hold, and the choices that drive both.
pub(crate) struct Pair<'a> {
    pub(crate) choices: Choices<'a>,
    heap: RangeHeap,
    field: Field,
    memory: Heap,
    space: Runs,
    free: Runs,
    own: Vec<(HeapRange, Span)>,
    /// Handles of ranges that were freed.
    stale: Vec<HeapRange>,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(field: Field, choices: Choices<'a>) -> Pair<'a> {
        let (heap, memory) = (RangeHeap::new(), Heap::AMPLE);
        let (space, free) = (Runs::default(), Runs::default());
        let (own, stale) = (Vec::new(), Vec::new());
        let mut pair = Pair { choices, heap, field, memory, space, free, own, stale };
        for &base in field.bases {
            pair.add_span(Span::sized(base, field.length).expect("the bases leave room"));
        }
        pair
    }

    /// Returns the same pair with memory that is refused.
    pub(crate) fn on(self, memory: Heap) -> Pair<'a> {
        Pair { memory, ..self }
    }

    pub(crate) fn step(&mut self) {
        match self.choices.below(32) {
            0..12 => {
                let size = self.size();
                self.alloc(size, 1);
            }
            12..16 => {
                let align = match self.choices.below(8) {
                    7 => self.choices.below(7),
                    6 => 1 << self.choices.below(64),
                    _ => 1 << self.choices.below(10),
                };
                let size = self.size();
                self.alloc(size, align);
            }
            16..28 => self.free_own(),
            28 => self.free_stale(),
            29 => self.with_span(Pair::add_span),
            _ => self.with_span(Pair::remove_span),
        }
        self.compare();
    }

    /// Frees every range; the holes are then the stretches of the space.
    pub(crate) fn end(mut self) {
        while !self.own.is_empty() {
            self.free_own();
        }
        assert_eq!(self.free, self.space);
        self.compare();
    }

    fn size(&mut self) -> u64 {
        let kind = self.choices.below(64);
        if kind > 3 {
            return 1 + self.choices.below(self.field.largest_size);
        }
        let power = 1_u64 << self.choices.below(64);
        [0, power - 1, power, power.saturating_add(1)][kind as usize]
    }

    fn alloc(&mut self, size: u64, align: u64) {
        let said = self.attempt(|heap| match align {
            1 => heap.alloc(size),
            _ => heap.alloc_aligned(size, align),
        });
        if size == 0 || !align.is_power_of_two() {
            let why = if size == 0 { HeapError::ZeroSize } else { HeapError::AlignNotPowerOfTwo };
            return assert_eq!(said, Err(why));
        }
        match said {
            Ok(range) => {
                let span = self.heap.span(range).expect("it is in use");
                assert_eq!((range.start(), span.len()), (span.start(), size));
                assert!(range.start().is_multiple_of(align), "{span} by {align}");
                let hole = self.free.around(span).expect("a range is handed out of a hole");
                if align == 1 {
                    self.must_be_best(size, hole);
                }
                self.free.remove(span);
                self.own.push((range, span));
            }
            Err(HeapError::NoPlace) => self.must_be_full(size, align),
            Err(why) => panic!("{size} by {align}: {why}"),
        }
    }

    /// Panics if the hole is not of the first bin that has one for this size.
    fn must_be_best(&self, size: u64, hole: Span) {
        let fitting = self.free.iter().map(Span::len).filter(|&length| length >= size);
        let (taken, best) = (bin(hole.len()), fitting.map(bin).min());
        if Some(taken) == best {
            return;
        }
        // Those that fit may stand behind others that do not.
        let bins = || self.free.iter().map(|hole| bin(hole.len()));
        let own = bins().filter(|&own| own == bin(size)).count();
        let next = bins().filter(|&other| other > bin(size)).min();
        assert!(best == Some(bin(size)) && own > LOOKS[0], "{size} out of {hole}");
        assert_eq!(Some(taken), next, "{size} out of {hole}");
    }

    /// Panics if a request for which there is a place must not be refused.
    fn must_be_full(&self, size: u64, align: u64) {
        let lengths = || self.free.iter().map(Span::len);
        if self.free.iter().all(|hole| hole.lowest_fit(size, align).is_none()) {
            return;
        }
        let padded = size.saturating_add(align - 1);
        assert!(lengths().all(|length| length < padded || bin(length) == bin(padded)));
        assert!(padded >= 64 || lengths().all(|length| length < padded));
        let looked = lengths().filter(|&length| bin(length) >= bin(size)).count();
        assert!(looked > LOOKS[1], "{size} by {align} is refused");
    }

    fn free_own(&mut self) {
        let at = self.choices.below(self.own.len() as u64) as usize;
        if at < self.own.len() {
            let (range, span) = self.own.swap_remove(at);
            assert_eq!(self.memory.run(|| self.heap.free(range)), Ok(span));
            self.free.add(span);
            self.stale.push(range);
        }
    }

    fn free_stale(&mut self) {
        let at = self.choices.below(self.stale.len() as u64) as usize;
        if let Some(&range) = self.stale.get(at) {
            assert_eq!(self.heap.span(range), None);
            assert_eq!(self.heap.free(range), Err(HandleError::Stale));
        }
    }

    fn with_span(&mut self, operation: fn(&mut Pair<'a>, Span)) {
        let base = self.choices.any(self.field.bases).expect("there is one");
        let length = self.field.length;
        let start = base + if self.choices.one_in(2) { 0 } else { self.choices.below(length) };
        let size = if self.choices.one_in(2) { length } else { 1 + self.choices.below(length) };
        if let Ok(span) = Span::sized(start, size) {
            operation(self, span);
        }
    }

    fn add_span(&mut self, span: Span) {
        let said = self.attempt(|heap| heap.add_span(span));
        if self.space.meets(span) {
            return assert_eq!(said, Err(AddSpanError::Overlaps));
        }
        said.unwrap();
        self.space.add(span);
        self.free.add(span);
    }

    fn remove_span(&mut self, span: Span) {
        let said = self.attempt(|heap| heap.remove_span(span));
        if !self.space.covers(span) {
            return assert_eq!(said, Err(TakeError::Foreign));
        }
        if !self.free.covers(span) {
            return assert_eq!(said, Err(TakeError::Taken));
        }
        said.unwrap();
        self.space.remove(span);
        self.free.remove(span);
    }

    fn attempt<T, E: super::starving::Refusal>(
        &mut self,
        operation: impl FnMut(&mut RangeHeap) -> Result<T, E>,
    ) -> Result<T, E> {
        let free = &self.free;
        let unchanged = |heap: &RangeHeap| assert!(heap.iter_free().eq(free.iter()));
        self.memory.attempt(&mut self.heap, operation, unchanged)
    }

    fn compare(&self) {
        self.heap.check().unwrap();
        assert!(self.heap.iter_free().eq(self.free.iter()), "the holes");
        let stats = self.heap.stats();
        assert_eq!((stats.free, stats.total), (self.free.total(), self.space.total()));
        assert_eq!((stats.holes, stats.largest), (self.free.iter().len(), self.free.longest()));
        for &(range, span) in &self.own {
            assert_eq!(self.heap.span(range), Some(span));
        }
    }
}

/// Returns the least length of the bin of `length`.
fn bin(length: u64) -> u64 {
    let width = 1 << length.max(32).ilog2().saturating_sub(5);
    length / width * width
}
