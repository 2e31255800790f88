//! The range allocator against a model too simple to be wrong: a plain list of holes, under the same random operations.

use nofrag::check::Check;
use nofrag::ranges::{
    AlignClasses, AllocError, Config, Fit, FreeError, RangeAllocator, Request, Span, TakeError,
};

/// A plain list of holes; every question is a scan.
#[derive(Debug, Default, Clone)]
pub(crate) struct Model {
    holes: Vec<(u64, u64)>,
    space: Vec<(u64, u64)>,
}

fn add(list: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    list.push((start, end));
    list.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for &(start, end) in list.iter() {
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    *list = joined;
}

fn cut(list: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    let at = list.iter().position(|&(s, e)| s <= start && end <= e).expect("covered");
    let (s, e) = list.remove(at);
    list.extend([(s, start), (end, e)].into_iter().filter(|(s, e)| s < e));
    list.sort_unstable();
}

impl Model {
    pub(crate) fn add_span(&mut self, span: Span) {
        add(&mut self.space, span.start(), span.end());
        add(&mut self.holes, span.start(), span.end());
    }

    pub(crate) fn remove_span(&mut self, span: Span) {
        cut(&mut self.space, span.start(), span.end());
        cut(&mut self.holes, span.start(), span.end());
    }

    /// All holes that serve the request, with the lowest and the highest place in each.
    fn places(&self, request: &Request) -> Vec<((u64, u64), u64, u64)> {
        let mut places = Vec::new();
        for &(start, end) in &self.holes {
            let (low, high) = (start.max(request.within.start()), end.min(request.within.end()));
            let (low, high) = (u128::from(low), u128::from(high));
            let (size, align) = (u128::from(request.size), u128::from(request.align));
            let lowest = low.div_ceil(align) * align;
            if lowest + size > high {
                continue;
            }
            let highest = (high - size) / align * align;
            places.push(((start, end), lowest as u64, highest as u64));
        }
        places
    }

    pub(crate) fn lowest(&self, request: &Request) -> Option<u64> {
        self.places(request).first().map(|place| place.1)
    }

    pub(crate) fn highest(&self, request: &Request) -> Option<u64> {
        self.places(request).last().map(|place| place.2)
    }

    /// The size of the smallest hole that serves the request.
    pub(crate) fn best_size(&self, request: &Request) -> Option<u64> {
        self.places(request).iter().map(|((start, end), ..)| end - start).min()
    }

    pub(crate) fn hole_at(&self, at: u64) -> Option<(u64, u64)> {
        self.holes.iter().copied().find(|&(start, end)| start <= at && at < end)
    }

    fn hole_below(&self, end: u64) -> Option<(u64, u64)> {
        self.holes.iter().copied().rfind(|&(start, _)| start < end)
    }

    pub(crate) fn is_free(&self, span: Span) -> bool {
        self.hole_at(span.start()).is_some_and(|(_, end)| span.end() <= end)
    }

    pub(crate) fn is_taken(&self, span: Span) -> bool {
        self.covers(span)
            && self.holes.iter().all(|&(start, end)| end <= span.start() || span.end() <= start)
    }

    pub(crate) fn covers(&self, span: Span) -> bool {
        self.space.iter().any(|&(start, end)| start <= span.start() && span.end() <= end)
    }

    pub(crate) fn take(&mut self, span: Span) {
        cut(&mut self.holes, span.start(), span.end());
    }

    pub(crate) fn give(&mut self, span: Span) {
        add(&mut self.holes, span.start(), span.end());
    }

    pub(crate) fn largest(&self) -> u64 {
        self.holes.iter().map(|&(start, end)| end - start).max().unwrap_or(0)
    }

    fn largest_aligned(&self, align: u64) -> u64 {
        let align = u128::from(align);
        let aligned = |&(start, end): &(u64, u64)| {
            u128::from(end).saturating_sub(u128::from(start).div_ceil(align) * align)
        };
        self.holes.iter().map(aligned).max().unwrap_or(0) as u64
    }

    pub(crate) fn check_equal(&self, allocator: &RangeAllocator) {
        let holes: Vec<_> = allocator.iter_free().map(|hole| (hole.start(), hole.end())).collect();
        assert_eq!(holes, self.holes);
        assert_eq!(allocator.largest(), self.largest());
    }
}

/// A small, well mixed generator; a test prints its seed only.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// How a random run is shaped.
#[derive(Debug, Clone, Copy)]
struct Shape {
    config: Config,
    /// The space is this many numbers from `base` on.
    base: u64,
    length: u64,
    /// Sizes are 1 to this, in multiples of `unit`, as all coordinates are.
    largest_size: u64,
    unit: u64,
    steps: u32,
    /// Checks the laws after every so many steps.
    check_every: u32,
}

impl Shape {
    fn small(config: Config) -> Shape {
        Shape {
            config,
            base: 100,
            length: 600,
            largest_size: 12,
            unit: 1,
            steps: 1500,
            check_every: 1,
        }
    }

    fn number(&self, random: &mut Random) -> u64 {
        self.base + random.below(self.length / self.unit) * self.unit
    }

    fn span(&self, random: &mut Random) -> Span {
        let start = self.number(random);
        let size = (1 + random.below(self.largest_size)).saturating_mul(self.unit);
        Span::sized(start, size.min(u64::MAX - start).max(1)).unwrap()
    }
}

fn random_request(shape: &Shape, random: &mut Random) -> Request {
    let mut request = Request::new((1 + random.below(shape.largest_size)) * shape.unit);
    if random.below(3) == 0 {
        request = request.align(1 << random.below(12));
    }
    if random.below(12) == 0 {
        request = request.align(1 << random.below(64));
    }
    if random.below(3) == 0 {
        let (one, other) = (shape.number(random), shape.number(random));
        if let Ok(within) = Span::new(one.min(other), one.max(other)) {
            request = request.within(within);
        }
    }
    let fits: &[Fit] = if shape.config.size_index {
        &[Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic]
    } else {
        &[Fit::Lowest, Fit::Highest]
    };
    request.fit(fits[random.below(fits.len() as u64) as usize])
}

fn step_alloc(shape: &Shape, random: &mut Random, model: &mut Model, real: &mut RangeAllocator) {
    let request = random_request(shape, random);
    match real.alloc(&request) {
        Ok(span) => {
            assert_eq!(span.len(), request.size);
            assert_eq!(span.start() % request.align, 0);
            assert!(request.within.covers(span), "{span:?} outside {request:?}");
            assert!(model.is_free(span), "{span:?} was not free for {request:?}");
            match request.fit {
                Fit::Lowest => assert_eq!(Some(span.start()), model.lowest(&request)),
                Fit::Highest => assert_eq!(Some(span.start()), model.highest(&request)),
                Fit::Best if request.align == 1 && request.within == Span::ALL => {
                    let (start, end) = model.hole_at(span.start()).unwrap();
                    let best = model.best_size(&request).unwrap();
                    let slack = if best < 512 { 0 } else { best / 16 };
                    let long = best >= i32::MAX as u64;
                    assert!(long || end - start <= best + slack, "{} for {best}", end - start);
                }
                Fit::Best | Fit::Dynamic => {}
            }
            model.take(span);
        }
        Err(AllocError::Exhausted { largest }) => {
            assert_eq!(model.lowest(&request), None, "a fit was missed: {request:?}");
            assert_eq!(largest, model.largest());
        }
        Err(why) => panic!("{why} for {request:?}"),
    }
}

fn step_free(shape: &Shape, random: &mut Random, model: &mut Model, real: &mut RangeAllocator) {
    let span = shape.span(random);
    match real.free(span) {
        Ok(()) => {
            assert!(model.is_taken(span), "{span:?} was freed though it is not all allocated");
            model.give(span);
        }
        Err(FreeError::Foreign) => assert!(!model.covers(span)),
        Err(FreeError::NotAllocated) => {
            let (covered, taken) = (model.covers(span), model.is_taken(span));
            assert!(covered && !taken, "{span:?}: covered {covered}, taken {taken}");
        }
        Err(why) => panic!("{why}"),
    }
}

fn step_other(shape: &Shape, random: &mut Random, model: &mut Model, real: &mut RangeAllocator) {
    let span = shape.span(random);
    match random.below(4) {
        0 | 1 => match real.alloc_at(span) {
            Ok(()) => {
                assert!(model.is_free(span));
                model.take(span);
            }
            Err(TakeError::Taken) => assert!(model.covers(span) && !model.is_free(span)),
            Err(TakeError::Foreign) => assert!(!model.covers(span)),
            Err(why) => panic!("{why}"),
        },
        2 => match real.remove_span(span) {
            Ok(()) => {
                assert!(model.is_free(span));
                model.remove_span(span);
            }
            Err(TakeError::Taken) => assert!(model.covers(span) && !model.is_free(span)),
            Err(TakeError::Foreign) => assert!(!model.covers(span)),
            Err(why) => panic!("{why}"),
        },
        _ => {
            if real.add_span(span).is_ok() {
                model.add_span(span);
            }
            let below = real.hole_below(span.start()).map(|hole| (hole.start(), hole.end()));
            assert_eq!(below, model.hole_below(span.start()));
            let align = 1 << random.below(16);
            assert_eq!(real.largest_aligned(align), model.largest_aligned(align));
        }
    }
}

fn check_run(shape: Shape, seed: u64) {
    println!("seed {seed}, {shape:?}");
    let mut random = Random(seed);
    let mut model = Model::default();
    let mut real = RangeAllocator::new(shape.config);
    let whole = Span::sized(shape.base, shape.length).unwrap();
    model.add_span(whole);
    real.add_span(whole).unwrap();
    for step in 0..shape.steps {
        match random.below(20) {
            0..8 => step_alloc(&shape, &mut random, &mut model, &mut real),
            8..17 => step_free(&shape, &mut random, &mut model, &mut real),
            _ => step_other(&shape, &mut random, &mut model, &mut real),
        }
        if step % shape.check_every == 0 {
            real.check().unwrap_or_else(|broken| panic!("step {step}: {broken}"));
            model.check_equal(&real);
        }
    }
}

fn configs() -> [Config; 4] {
    let classes = AlignClasses::new(&[2, 5, 9]).unwrap();
    let plain = Config::default();
    [
        plain,
        Config { size_index: true, ..plain },
        Config { align_classes: classes, ..plain },
        Config { align_classes: classes, size_index: true, ..plain },
    ]
}

#[test]
fn random_operations_on_a_small_space() {
    for config in configs() {
        for seed in 0..8 {
            check_run(Shape::small(config), seed);
        }
    }
}

#[test]
fn random_operations_with_many_holes() {
    for config in configs() {
        let shape = Shape {
            length: 40_000,
            largest_size: 6,
            steps: 30_000,
            check_every: 3001,
            ..Shape::small(config)
        };
        check_run(shape, 11);
    }
}

/// Holes whose lengths share bins: the longest of each bin is noted by number of leaf, and leaves split and join.
#[test]
fn random_operations_with_long_holes() {
    for config in configs().iter().filter(|config| config.size_index) {
        for (largest_size, length) in [(1200, 1 << 21), (40_000, 1 << 26)] {
            let shape = Shape {
                length,
                largest_size,
                steps: 6000,
                check_every: 97,
                ..Shape::small(*config)
            };
            check_run(shape, length);
        }
    }
}

#[test]
fn random_operations_over_many_windows() {
    for config in configs() {
        for unit in [1 << 29, 1 << 31, (1 << 31) - 1, 1 << 40] {
            let shape = Shape { unit, length: 1000 * unit, steps: 500, ..Shape::small(config) };
            check_run(shape, unit);
        }
    }
}

#[test]
fn random_operations_at_both_ends_of_the_numbers() {
    for config in configs() {
        for base in [0, 1, (1 << 31) - 300, (3 << 31) - 1, u64::MAX - 600, u64::MAX - 601] {
            check_run(Shape { base, ..Shape::small(config) }, base);
        }
        for unit in [1, 1 << 30, 1 << 44] {
            let shape = Shape {
                base: 0,
                length: u64::MAX,
                unit,
                largest_size: 1 << 19,
                steps: 400,
                ..Shape::small(config)
            };
            check_run(shape, unit);
        }
    }
}

/// Holes that come in below the first fence of a block must be found again after the block has split: the fence of a
/// first child was compared though everything below it belongs to that child.
#[test]
fn stale_first_fence() {
    let mut allocator = RangeAllocator::new(Config::default());
    let whole = Span::new(0, 1 << 20).unwrap();
    allocator.add_span(whole).unwrap();
    allocator.alloc_at(whole).unwrap();
    let one = |at: u64| Span::sized(at, 1).unwrap();
    for at in (1000..3000).rev() {
        allocator.free(one(2 * at)).unwrap();
    }
    for at in (0..1000).rev() {
        allocator.free(one(2 * at)).unwrap();
        assert!(allocator.is_free(one(2 * at)));
    }
    allocator.check().unwrap();
    assert_eq!(allocator.iter_free().count(), 3000);
}

/// A hole that grows over the fence behind its leaf and is then cut at its left edge must not leave its leaf's stretch.
#[test]
fn hole_grown_over_a_fence() {
    let mut allocator = RangeAllocator::new(Config::default());
    let whole = Span::new(0, 2000).unwrap();
    allocator.add_span(whole).unwrap();
    allocator.alloc_at(whole).unwrap();
    for at in 0..100 {
        allocator.free(Span::sized(20 * at, 2).unwrap()).unwrap();
    }
    for at in (1..99).step_by(2) {
        // Joins two holes, which at some place belong to two leaves; then all but the last number is taken again.
        allocator.free(Span::new(20 * at + 2, 20 * at + 20).unwrap()).unwrap();
        allocator.check().unwrap();
        allocator.alloc_at(Span::new(20 * at, 20 * at + 21).unwrap()).unwrap();
        allocator.check().unwrap();
    }
}

/// A short hole that lies across a multiple of 2^31 and is cut beyond it belongs to the next window's leaf: its frees
/// were refused.
#[test]
fn hole_cut_across_a_window() {
    let boundary = 1 << 31;
    let mut allocator = RangeAllocator::new(Config::default());
    allocator.add_span(Span::new(boundary - 1000, boundary + 90).unwrap()).unwrap();
    let taken: Vec<Span> = (0..105).map(|_| allocator.alloc(&Request::new(10)).unwrap()).collect();
    allocator.check().unwrap();
    for span in taken {
        allocator.free(span).unwrap();
        allocator.check().unwrap();
    }
    assert_eq!(allocator.stats().holes, 1);
}

/// Holes that come in downwards in one window, behind a leaf of the window before, share leaves: each had one of its
/// own.
#[test]
fn downward_frees_behind_another_window() {
    let boundary: u64 = 1 << 31;
    let mut allocator = RangeAllocator::new(Config::default());
    let whole = Span::new(boundary - 10, boundary + 100_000).unwrap();
    allocator.add_span(whole).unwrap();
    allocator.alloc_at(whole).unwrap();
    allocator.reserve(20_002).unwrap();
    let reserved = allocator.metadata_bytes();
    allocator.free(Span::sized(boundary - 5, 1).unwrap()).unwrap();
    for at in (1..20_000).rev() {
        allocator.free(Span::sized(boundary + 3 * at, 1).unwrap()).unwrap();
    }
    allocator.check().unwrap();
    assert_eq!(allocator.metadata_bytes(), reserved);
}

/// With nearly all 64-bit numbers live, the limit of the dynamic fit was computed beyond them.
#[test]
fn dynamic_limit_at_the_top() {
    let mut allocator = RangeAllocator::new(Config { size_index: true, ..Config::default() });
    allocator.add_span(Span::ALL).unwrap();
    allocator.alloc(&Request::new(u64::MAX - 100)).unwrap();
    let last = allocator.alloc(&Request::new(50).fit(Fit::Dynamic)).unwrap();
    assert_eq!(last.start(), u64::MAX - 100);
}

/// The long run; `cargo test --release -p nofrag --test it long_model_run -- --ignored`.
#[test]
#[ignore = "ten million operations; see CONTRIBUTING.md for the command"]
fn long_model_run() {
    for (round, config) in (0..).zip(configs().iter().cycle().take(40)) {
        let length = [600, 3000, 20_000, 100_000][round as usize / 4 % 4];
        // Every second group of runs lies across the boundary of two windows.
        let base = if round / 4 % 2 == 0 { 100 } else { (1 << 31) - length / 2 };
        let shape = Shape {
            base,
            length,
            largest_size: 16,
            steps: 250_000,
            check_every: length as u32 / 20,
            ..Shape::small(*config)
        };
        check_run(shape, round);
    }
}
