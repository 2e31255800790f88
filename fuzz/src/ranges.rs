//! Random operations on a range allocator, against a naive model, with `check()` after every step.
//!
//! The spaces lie where arithmetic is delicate: at both ends of the 64-bit numbers, around the boundaries of 2^31 and
//! 2^32, and touching each other.

use arbitrary::{Arbitrary, Unstructured};
use nofrag::check::Check;
use nofrag::ranges::{
    AddSpanError, AlignClasses, AlignRule, AllocError, Config, Fit, FreeError, Index,
    RangeAllocator, RelocateError, Request, Span, TakeError,
};

use crate::model::{Runs, outside};
use crate::steps;

/// What the driver drives: a range allocator, sound or with a planted bug.
pub trait Subject {
    /// The allocator, to change it.
    fn allocator(&mut self) -> &mut RangeAllocator;

    /// The allocator, to look at it.
    fn observe(&self) -> &RangeAllocator;

    /// Gives a range back.
    ///
    /// # Errors
    /// As [`RangeAllocator::free`].
    fn free(&mut self, span: Span) -> Result<(), FreeError> {
        self.allocator().free(span)
    }
}

impl Subject for RangeAllocator {
    fn allocator(&mut self) -> &mut RangeAllocator {
        self
    }

    fn observe(&self) -> &RangeAllocator {
        self
    }
}

/// What an index design promises about the places that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Every fit is exact, and none is missed.
    Exact,
    /// `Lowest` is exact without alignment; with it, a found place is free but need not be the lowest.
    LowestUnaligned,
    /// A found place is free; an existing one may be missed.
    Sound,
}

/// Runs the operations in `data` on the design that its first byte chooses; panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let (rule, index) = match choice % 8 {
        0..4 => (Rule::Exact, Index::WideBlocks),
        4 => (Rule::Sound, Index::CachedScan),
        5 => (Rule::LowestUnaligned, Index::AugmentedTree(AlignRule::Padded)),
        6 => (Rule::LowestUnaligned, Index::AugmentedTree(AlignRule::Unpadded)),
        _ => (Rule::LowestUnaligned, Index::AugmentedTree(AlignRule::PaddedUnlessExact)),
    };
    let classes: &[u8] = match choice / 8 % 4 {
        0 => &[],
        1 => &[1, 4, 9],
        2 => &[3],
        _ => &[2, 5, 12, 30],
    };
    let align_classes = AlignClasses::new(classes).expect("the exponents rise");
    let config = Config { index, align_classes, size_index: choice % 8 < 3 };
    drive(rest, rule, &mut RangeAllocator::new(config));
}

/// Where the spans of a space begin. Each of them is followed by room for 256 numbers and more.
const BASES: [u64; 10] = [
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
];

/// A number near one of the bases.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Place {
    base: u8,
    offset: u8,
}

impl Place {
    fn number(self) -> u64 {
        BASES[usize::from(self.base) % BASES.len()].saturating_add(self.offset.into())
    }
}

/// A size: mostly small, sometimes near a power of two.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Size {
    shape: u8,
    small: u8,
}

impl Size {
    fn number(self) -> u64 {
        match self.shape {
            0..200 => u64::from(self.small % 48),
            200..240 => (1 << (self.small % 64)) - u64::from(self.shape % 2),
            _ => (1u64 << (self.small % 64)).saturating_add(1),
        }
    }
}

/// An alignment, sometimes one that must be refused.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Align(u8);

impl Align {
    fn number(self) -> u64 {
        match self.0 {
            0..120 => 1,
            120..200 => 1 << (self.0 % 8),
            200..250 => 1 << (self.0 % 64),
            _ => u64::from(self.0 % 2) * 6,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum WhichFit {
    Lowest,
    Highest,
    Best,
    Dynamic,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Wish {
    size: Size,
    align: Align,
    bounds: Option<(Place, Place)>,
    fit: WhichFit,
}

impl Wish {
    fn request(self) -> Request {
        let within = self.bounds.and_then(|(a, b)| {
            let (a, b) = (a.number(), b.number());
            Span::new(a.min(b), a.max(b)).ok()
        });
        let fit = match self.fit {
            WhichFit::Lowest => Fit::Lowest,
            WhichFit::Highest => Fit::Highest,
            WhichFit::Best => Fit::Best,
            WhichFit::Dynamic => Fit::Dynamic,
        };
        let plain = Request::new(self.size.number()).align(self.align.number()).fit(fit);
        within.map_or(plain, |within| plain.within(within))
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Alloc(Wish),
    AllocAt {
        at: Place,
        size: Size,
    },
    /// Frees what an earlier step got, if nothing else freed a part of it since.
    FreeOwn {
        which: u16,
    },
    /// Frees a part of what an earlier step got.
    FreePart {
        which: u16,
        skip: u8,
        size: Size,
    },
    Free {
        at: Place,
        size: Size,
    },
    Relocate {
        which: u16,
        wish: Wish,
        keep: bool,
    },
    RelocateTo {
        which: u16,
        to: Place,
        keep: bool,
    },
    AddSpan {
        at: Place,
        size: Size,
    },
    RemoveSpan {
        at: Place,
        size: Size,
    },
}

/// So many steps of one input are run; the model is slow.
const MOST_STEPS: usize = 400;

/// Runs the steps in `data` on `subject`; panics when it differs from the model by more than `rule` allows.
pub fn drive<S: Subject>(data: &[u8], rule: Rule, subject: &mut S) {
    let mut driver =
        Driver { subject, rule, space: Runs::default(), free: Runs::default(), own: Vec::new() };
    let mut input = Unstructured::new(data);
    for base in BASES.into_iter().take(3) {
        driver.add_span(Span::sized(base, 100).expect("the bases leave room"));
    }
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        steps::count();
        driver.step(step);
        driver.compare();
    }
}

struct Driver<'a, S> {
    subject: &'a mut S,
    rule: Rule,
    /// The numbers that belong to the space.
    space: Runs,
    /// The numbers that are free.
    free: Runs,
    /// What was allocated, in the order of allocation; parts of it may have been freed since.
    own: Vec<Span>,
}

impl<S: Subject> Driver<'_, S> {
    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc(wish) => self.alloc(&wish.request()),
            Step::AllocAt { at, size } => {
                if let Some(span) = span(at, size) {
                    self.alloc_at(span);
                }
            }
            Step::FreeOwn { which } => {
                if let Some(at) = pick(which, self.own.len()) {
                    let own = self.own.swap_remove(at);
                    self.free(own);
                }
            }
            Step::FreePart { which, skip, size } => {
                if let Some(at) = pick(which, self.own.len()) {
                    let start = self.own[at].start().saturating_add(skip.into());
                    if let Ok(part) = Span::sized(start, size.number()) {
                        self.free(part);
                    }
                }
            }
            Step::Free { at, size } => {
                if let Some(span) = span(at, size) {
                    self.free(span);
                }
            }
            Step::Relocate { which, wish, keep } => {
                if let Some(at) = pick(which, self.own.len()) {
                    self.relocate(self.own[at], &wish.request(), keep);
                }
            }
            Step::RelocateTo { which, to, keep } => {
                if let Some(at) = pick(which, self.own.len()) {
                    let from = self.own[at];
                    if let Ok(to) = Span::sized(to.number(), from.len()) {
                        self.relocate_to(from, to, keep);
                    }
                }
            }
            Step::AddSpan { at, size } => {
                if let Some(span) = span(at, size) {
                    self.add_span(span);
                }
            }
            Step::RemoveSpan { at, size } => {
                if let Some(span) = span(at, size) {
                    self.remove_span(span);
                }
            }
        }
    }

    fn alloc(&mut self, request: &Request) {
        let result = self.subject.allocator().alloc(request);
        self.judge(request, result);
        if let Ok(span) = result {
            self.free.remove(span);
            self.own.push(span);
        }
    }

    /// Panics unless `result` is an answer to `request` that the rule allows.
    fn judge(&self, request: &Request, result: Result<Span, AllocError>) {
        let fits = fits(&self.free, request);
        match result {
            Ok(span) => {
                assert!(is_valid(request), "{request:?} was served");
                assert_eq!(span.len(), request.size, "{request:?}");
                assert_eq!(span.start() % request.align, 0, "{request:?}");
                assert!(request.within.covers(span), "{request:?} got {span:?}");
                assert!(self.free.covers(span), "{request:?} got {span:?}, which is not free");
                self.judge_place(request, span, &fits);
            }
            Err(AllocError::ZeroSize) => assert_eq!(request.size, 0),
            Err(AllocError::AlignNotPowerOfTwo) => assert!(!request.align.is_power_of_two()),
            Err(AllocError::FitNotIndexed) => {
                let always = if self.rule == Rule::Exact { Fit::Highest } else { Fit::Lowest };
                assert!(request.fit != Fit::Lowest && request.fit != always, "{request:?}");
            }
            Err(AllocError::Exhausted { largest }) => {
                assert_eq!(largest, self.free.longest(), "{request:?}");
                let may_miss = match self.rule {
                    Rule::Exact => false,
                    Rule::LowestUnaligned => request.align > 1,
                    Rule::Sound => true,
                };
                assert!(fits.is_empty() || may_miss, "{request:?} missed {:?}", fits[0].lowest);
            }
            Err(why) => panic!("{request:?}: {why}"),
        }
    }

    /// Panics unless `span` is where the request's fit puts it.
    fn judge_place(&self, request: &Request, span: Span, fits: &[Room]) {
        let exact =
            self.rule == Rule::Exact || (self.rule == Rule::LowestUnaligned && request.align == 1);
        if !exact {
            return;
        }
        let taken_from = self.free.iter().find(|hole| hole.covers(span)).expect("it is free");
        match request.fit {
            Fit::Lowest => {
                let lowest = fits.iter().map(|fit| fit.lowest).min();
                assert_eq!(Some(span.start()), lowest, "{request:?}");
            }
            Fit::Highest => {
                let highest = fits.iter().map(|fit| fit.highest).max();
                assert_eq!(Some(span.start()), highest, "{request:?}");
            }
            Fit::Best => {
                let smallest = fits.iter().map(|fit| fit.hole.len()).min().expect("one was found");
                let most = most_for_best(request, smallest);
                assert!(taken_from.len() <= most, "{request:?} got {span:?}, not in {smallest}");
            }
            Fit::Dynamic => {}
        }
    }

    fn alloc_at(&mut self, span: Span) {
        let expected = if !self.space.covers(span) {
            Err(TakeError::Foreign)
        } else if !self.free.covers(span) {
            Err(TakeError::Taken)
        } else {
            Ok(())
        };
        assert_eq!(self.subject.allocator().alloc_at(span), expected, "alloc_at {span:?}");
        if expected.is_ok() {
            self.free.remove(span);
            self.own.push(span);
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
        assert_eq!(self.subject.free(span), expected, "free {span:?}");
        if expected.is_ok() {
            self.free.add(span);
        }
    }

    fn add_span(&mut self, span: Span) {
        let overlaps = self.space.meets(span);
        let expected = if overlaps { Err(AddSpanError::Overlaps) } else { Ok(()) };
        assert_eq!(self.subject.allocator().add_span(span), expected, "add_span {span:?}");
        if expected.is_ok() {
            self.space.add(span);
            self.free.add(span);
        }
    }

    fn remove_span(&mut self, span: Span) {
        let expected = if !self.space.covers(span) {
            Err(TakeError::Foreign)
        } else if !self.free.covers(span) {
            Err(TakeError::Taken)
        } else {
            Ok(())
        };
        assert_eq!(self.subject.allocator().remove_span(span), expected, "remove_span {span:?}");
        if expected.is_ok() {
            self.space.remove(span);
            self.free.remove(span);
        }
    }

    /// What the old place of a move is refused for, if it is.
    fn refusal_of(&self, from: Span) -> Option<RelocateError> {
        if !self.space.covers(from) {
            Some(RelocateError::Foreign)
        } else if self.free.meets(from) {
            Some(RelocateError::NotAllocated)
        } else {
            None
        }
    }

    fn relocate(&mut self, from: Span, request: &Request, keep: bool) {
        let refusal = self.refusal_of(from);
        match self.subject.allocator().relocate(from, request) {
            Ok(moved) => {
                assert_eq!(refusal, None, "relocate {from:?}");
                assert_eq!(moved.from(), from);
                let to = moved.to();
                self.judge(request, Ok(to));
                self.free.remove(to);
                self.compare();
                self.finish(moved, keep);
            }
            Err(RelocateError::NoPlace(why)) => {
                assert_eq!(refusal, None, "relocate {from:?}");
                self.judge(request, Err(why));
            }
            Err(why) => assert_eq!(Some(why), refusal, "relocate {from:?}"),
        }
    }

    fn relocate_to(&mut self, from: Span, to: Span, keep: bool) {
        let refusal = self.refusal_of(from).or_else(|| {
            outside(to, from).into_iter().find_map(|part| {
                if !self.space.covers(part) {
                    Some(RelocateError::Foreign)
                } else {
                    (!self.free.covers(part)).then_some(RelocateError::Taken)
                }
            })
        });
        match self.subject.allocator().relocate_to(from, to) {
            Ok(moved) => {
                assert_eq!(refusal, None, "relocate {from:?} to {to:?}");
                for part in outside(to, from) {
                    self.free.remove(part);
                }
                self.compare();
                self.finish(moved, keep);
            }
            Err(why) => assert_eq!(Some(why), refusal, "relocate {from:?} to {to:?}"),
        }
    }

    /// Commits or rolls back a pending move.
    fn finish(&mut self, moved: nofrag::ranges::Relocation, keep: bool) {
        let (from, to) = (moved.from(), moved.to());
        let allocator = self.subject.allocator();
        let (done, freed) = if keep {
            (allocator.commit(moved), outside(from, to))
        } else {
            (allocator.rollback(moved), outside(to, from))
        };
        assert_eq!(done.map_err(|(_, why)| why), Ok(()), "{from:?} to {to:?}");
        for part in freed {
            self.free.add(part);
        }
        if keep {
            self.own.push(to);
        }
    }

    /// Panics when the subject's state differs from the model's.
    fn compare(&self) {
        let allocator = self.subject.observe();
        if let Err(violation) = allocator.check() {
            panic!("{violation}");
        }
        let stats = allocator.stats();
        assert_eq!(stats.free, self.free.total(), "free");
        assert_eq!(stats.total, self.space.total(), "total");
        assert_eq!(stats.largest, self.free.longest(), "largest");
        assert_eq!(stats.holes, self.free.iter().count(), "holes");
        assert!(allocator.iter_free().eq(self.free.iter()), "the holes differ");
        for align in [2, 16, 512, 1 << 30] {
            let largest = self.free.iter().filter_map(|hole| largest_aligned(hole, align)).max();
            assert_eq!(allocator.largest_aligned(align), largest.unwrap_or(0), "align {align}");
        }
    }
}

/// The longest hole that best fit may take when the shortest that fits has `smallest` numbers. The search is bounded:
/// it is exact for short holes, and looks at few candidates where it must check each one's alignment and bounds.
fn most_for_best(request: &Request, smallest: u64) -> u64 {
    let checked_one_by_one = request.align > 1 || request.within != Span::ALL;
    if checked_one_by_one || smallest >= 1 << 30 {
        u64::MAX
    } else if smallest < 512 {
        smallest
    } else {
        smallest + smallest / 16
    }
}

/// A hole that holds a request, and the ends of where it may lie in there.
struct Room {
    hole: Span,
    lowest: u64,
    highest: u64,
}

fn is_valid(request: &Request) -> bool {
    request.size > 0 && request.align.is_power_of_two()
}

/// Every hole that holds the request, with its lowest and its highest place there.
fn fits(free: &Runs, request: &Request) -> Vec<Room> {
    if !is_valid(request) {
        return Vec::new();
    }
    let Request { size, align, within, .. } = *request;
    let fit = |hole: Span| {
        let (start, end) = (hole.start().max(within.start()), hole.end().min(within.end()));
        // In 128 bits nothing overflows.
        let [start, end, size, align] = [start, end, size, align].map(u128::from);
        let lowest = start.div_ceil(align) * align;
        let highest = end.checked_sub(size)? / align * align;
        (lowest + size <= end && highest >= start).then_some(Room {
            hole,
            lowest: lowest as u64,
            highest: highest as u64,
        })
    };
    free.iter().filter_map(fit).collect()
}

fn largest_aligned(hole: Span, align: u64) -> Option<u64> {
    let start = u128::from(hole.start()).div_ceil(align.into()) * u128::from(align);
    u128::from(hole.end()).checked_sub(start).map(|len| len as u64)
}

fn span(at: Place, size: Size) -> Option<Span> {
    Span::sized(at.number(), size.number()).ok()
}

fn pick(which: u16, len: usize) -> Option<usize> {
    (len > 0).then(|| usize::from(which) % len)
}
