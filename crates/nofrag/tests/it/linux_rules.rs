//! The two Linux designs against naive models of their own rules (docs/sources/vmap.md#next-fit, vmap.md#lowest-match).

use nofrag::check::Check;
use nofrag::ranges::{
    AlignOne, AlignRule, AllocError, Config, FreeError, Index, RangeAllocator, Request, Span,
    TakeError,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Returns an empty allocator of the given design.
pub(crate) fn empty(index: Index) -> RangeAllocator {
    RangeAllocator::new(Config { index, ..Config::default() })
}

/// Returns an allocator of the given design that owns `start..end`, all free.
pub(crate) fn space(index: Index, start: u64, end: u64) -> RangeAllocator {
    let mut allocator = empty(index);
    allocator.add_span(Span::new(start, end).unwrap()).unwrap();
    allocator
}

/// Linux up to 5.1 in a few lines: busy areas in a sorted list, next fit from the area allocated last.
struct NextFit {
    busy: Vec<(u64, u64)>,
    cache: Option<(u64, u64)>,
    cached_hole_size: u64,
    cached_lower: u64,
    cached_align: u64,
}

impl NextFit {
    fn new(start: u64, end: u64) -> NextFit {
        let walls = [(0, start), (end, u64::MAX)];
        NextFit {
            busy: walls.into_iter().filter(|wall| wall.0 < wall.1).collect(),
            cache: None,
            cached_hole_size: 0,
            cached_lower: 0,
            cached_align: 0,
        }
    }

    /// Returns where the rule places the request; the upper bound and the end of the space both end the scan.
    fn place(&mut self, request: &Request) -> Option<u64> {
        let lower = request.within.start();
        let align_bytes = match request.align_one {
            AlignOne::Byte if request.align == 1 => 1,
            _ => 4096 * request.align,
        };
        if request.size < self.cached_hole_size
            || lower < self.cached_lower
            || align_bytes < self.cached_align
        {
            self.cache = None;
        }
        (self.cached_lower, self.cached_align) = (lower, align_bytes);
        let from = self.cache.map(|(_, end)| end.next_multiple_of(request.align));
        let mut at = match from.filter(|&from| from >= lower) {
            Some(from) => from,
            None => {
                self.cache = None;
                self.cached_hole_size = 0;
                lower.next_multiple_of(request.align)
            }
        };
        let top = self.busy.last().unwrap().0;
        let upper = request.within.end().min(top);
        let first = self.busy.partition_point(|busy| busy.1 <= at);
        for &(start, end) in &self.busy[first..] {
            if at + request.size > upper {
                return None;
            }
            if at + request.size <= start {
                break;
            }
            self.cached_hole_size = self.cached_hole_size.max(start.saturating_sub(at));
            at = end.next_multiple_of(request.align);
        }
        Some(at)
    }

    fn insert(&mut self, area: (u64, u64)) {
        let at = self.busy.partition_point(|busy| busy.0 < area.0);
        self.busy.insert(at, area);
    }

    fn alloc(&mut self, request: &Request) -> Option<u64> {
        let start = self.place(request)?;
        let area = (start, start + request.size);
        self.insert(area);
        self.cache = Some(area);
        Some(start)
    }

    fn is_busy(&self, at: u64) -> bool {
        self.busy.iter().any(|&(start, end)| start <= at && at < end)
    }

    /// Frees all busy numbers of `start..end`; the caller knows that all of it is busy.
    fn free(&mut self, start: u64, end: u64) {
        let cached = self.cache.map(|area| area.0);
        let mut rest = Vec::new();
        for &(from, to) in &self.busy {
            let parts = [(from, to.min(start)), (from.max(end), to)];
            rest.extend(parts.into_iter().filter(|part| part.0 < part.1));
        }
        self.busy = rest;
        let Some(cached) = cached else { return };
        if end < self.cached_lower {
            self.cache = None;
        } else if start <= cached {
            self.cache = self.busy.iter().copied().rfind(|busy| busy.1 <= start);
        } else {
            self.cache = self.busy.iter().copied().find(|busy| busy.0 == cached);
        }
    }
}

#[test]
fn cached_scan_is_next_fit() {
    for seed in 0..200 {
        check_next_fit(seed, 400);
    }
}

fn check_next_fit(seed: u64, steps: usize) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let (bottom, top) = (rng.random_range(0..50), rng.random_range(300..600));
    let mut allocator = space(Index::CachedScan, bottom, top);
    let mut model = NextFit::new(bottom, top);
    for step in 0..steps {
        let context = format!("seed {seed}, step {step}");
        if rng.random_bool(0.55) {
            let lower = if rng.random_bool(0.7) { 0 } else { rng.random_range(0..top) };
            let upper =
                if rng.random_bool(0.7) { u64::MAX } else { lower + rng.random_range(1..400) };
            let request = Request::new(rng.random_range(1..24))
                .align(1 << rng.random_range(0_u32..6).saturating_sub(2))
                .align_one(if rng.random_bool(0.5) { AlignOne::Byte } else { AlignOne::Number })
                .within(Span::new(lower, upper).unwrap());
            let found = allocator.alloc(&request).map(Span::start).ok();
            assert_eq!(found, model.alloc(&request), "{context}: {request:?}");
        } else {
            let span = random_span(&mut rng, bottom, top);
            if rng.random_bool(0.05) {
                let free = (span.start()..span.end()).all(|at| !model.is_busy(at));
                let expected = if free { Ok(()) } else { Err(TakeError::Taken) };
                assert_eq!(allocator.alloc_at(span), expected, "{context}: take {span:?}");
                if free {
                    model.insert((span.start(), span.end()));
                }
            } else {
                let areas: Vec<_> =
                    model.busy.iter().filter(|area| bottom <= area.0 && area.1 <= top).collect();
                let span = match areas.len() {
                    count if count > 0 && rng.random_bool(0.6) => {
                        let &(start, end) = areas[rng.random_range(0..count)];
                        Span::new(start, end).unwrap()
                    }
                    _ => span,
                };
                let busy = (span.start()..span.end()).all(|at| model.is_busy(at));
                let expected = if busy { Ok(()) } else { Err(FreeError::NotAllocated) };
                assert_eq!(allocator.free(span), expected, "{context}: free {span:?}");
                if busy {
                    model.free(span.start(), span.end());
                }
            }
        }
        allocator.check().unwrap_or_else(|broken| panic!("{context}: {broken}"));
    }
}

/// Returns a short span inside `bottom..top`.
fn random_span(rng: &mut Pcg64, bottom: u64, top: u64) -> Span {
    let start = rng.random_range(bottom..top);
    Span::new(start, rng.random_range(start + 1..=top.min(start + 40))).unwrap()
}

/// A space without fragmentation costs a step or two per request; a hole below that is too small costs the whole
/// walk.
#[test]
fn long_busy_hole() {
    const SMALL: u64 = 1 + 1;
    const MEDIUM: u64 = 50 + 1;
    const LARGE: u64 = 100 + 1;
    for holes in [0, 8] {
        let mut allocator = space(Index::CachedScan, 1, 1 << 35);
        let mut one = |size| allocator.alloc(&Request::new(size)).unwrap();
        let mut fifties = Vec::new();
        for _ in 0..holes {
            fifties.push(one(MEDIUM));
            one(SMALL);
        }
        for _ in 0..15_000 {
            one(SMALL);
        }
        for fifty in fifties {
            allocator.free(fifty).unwrap();
        }
        for round in 0..50 {
            let before = allocator.counters().steps;
            let large = allocator.alloc(&Request::new(LARGE)).unwrap();
            let steps = allocator.counters().steps - before;
            if holes == 0 {
                assert!(steps <= 3, "clean space, round {round}: {steps} steps");
            } else {
                assert!(steps > 15_000, "round {round}: {steps} steps");
            }
            let small = allocator.alloc(&Request::new(SMALL)).unwrap();
            allocator.free(large).unwrap();
            allocator.free(small).unwrap();
        }
    }
}

/// A request that is too large for the gap at the top of the space, which lies above the cache, does not send the next
/// request back to the bottom.
#[test]
fn a_miss_at_the_top_keeps_the_cache() {
    let mut allocator = space(Index::CachedScan, 1, 20_011);
    for _ in 0..10_000 {
        allocator.alloc(&Request::new(2)).unwrap();
    }
    let full = allocator.alloc(&Request::new(11));
    assert_eq!(full, Err(AllocError::Exhausted { largest: 10 }));
    let before = allocator.counters().steps;
    assert_eq!(allocator.alloc(&Request::new(5)).map(Span::start), Ok(20_001));
    assert!(allocator.counters().steps - before <= 3);
}

/// Ten million operations against the models, with every law checked after each.
#[test]
#[ignore = "takes minutes: cargo test --release -p nofrag --test it ten_million -- --ignored"]
fn ten_million_operations() {
    for seed in 1000..13_500 {
        check_next_fit(seed, 400);
        let rules = [AlignRule::Padded, AlignRule::Unpadded, AlignRule::PaddedUnlessExact];
        check_lowest(rules[seed as usize % 3], seed, 400);
    }
}

#[test]
fn augmented_tree_is_lowest_at_page_alignment() {
    for rule in [AlignRule::Padded, AlignRule::Unpadded, AlignRule::PaddedUnlessExact] {
        for seed in 0..100 {
            check_lowest(rule, seed, 400);
        }
    }
}

fn check_lowest(rule: AlignRule, seed: u64, steps: usize) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let (bottom, top) = (rng.random_range(0..50), rng.random_range(300..600));
    let mut allocator = space(Index::AugmentedTree(rule), bottom, top);
    let mut free: Vec<bool> = (0..top).map(|at| at >= bottom).collect();
    for step in 0..steps {
        let context = format!("{rule:?}, seed {seed}, step {step}");
        if rng.random_bool(0.55) {
            let lower = if rng.random_bool(0.7) { 0 } else { rng.random_range(0..top) };
            let upper =
                if rng.random_bool(0.7) { u64::MAX } else { lower + rng.random_range(1..400) };
            let request =
                Request::new(rng.random_range(1..24)).within(Span::new(lower, upper).unwrap());
            let size = request.size as usize;
            let expected = (lower as usize..(top as usize + 1).saturating_sub(size))
                .find(|&at| free[at..at + size].iter().all(|&free| free))
                .filter(|&at| at as u64 + request.size <= upper);
            match (expected, allocator.alloc(&request)) {
                (Some(start), Ok(span)) => {
                    assert_eq!(span, Span::sized(start as u64, request.size).unwrap(), "{context}");
                    free[start..start + size].fill(false);
                }
                (
                    None,
                    Err(AllocError::Exhausted { largest } | AllocError::Misfit { largest, .. }),
                ) => {
                    assert_eq!(largest, longest_run(&free), "{context}");
                }
                (expected, found) => panic!("{context}: expected {expected:?}, found {found:?}"),
            }
        } else {
            let span = random_span(&mut rng, bottom, top);
            let cells = span.start() as usize..span.end() as usize;
            let all = |state: bool| free[cells.clone()].iter().all(|&free| free == state);
            let (is_free, is_busy) = (all(true), all(false));
            assert_eq!(allocator.is_free(span), is_free, "{context}");
            if rng.random_bool(0.2) {
                let expected = if is_free { Ok(()) } else { Err(TakeError::Taken) };
                assert_eq!(allocator.alloc_at(span), expected, "{context}: take {span:?}");
            } else {
                let expected = if is_busy { Ok(()) } else { Err(FreeError::NotAllocated) };
                assert_eq!(allocator.free(span), expected, "{context}: free {span:?}");
                if is_busy {
                    free[cells.clone()].fill(true);
                }
                continue;
            }
            if is_free {
                free[cells].fill(false);
            }
        }
        allocator.check().unwrap_or_else(|broken| panic!("{context}: {broken}"));
    }
}

fn longest_run(free: &[bool]) -> u64 {
    free.split(|&free| !free).map(<[bool]>::len).max().unwrap_or(0) as u64
}
