//! The designs side by side under the same random operations.

use crate::doc_2019::RULES;
use crate::linux_rules::empty;
use nofrag::check::Check;
use nofrag::ranges::{AllocError, FreeError, Index, RangeAllocator, Request, Span, TakeError};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

/// The size of the space; each number is a cell of the model.
const TOP: u64 = 256;

#[derive(Clone, Debug)]
enum Operation {
    Alloc {
        size: u64,
        shift: u32,
        lower: u64,
        upper: u64,
    },
    Take {
        start: u64,
        size: u64,
    },
    /// Frees the run of busy numbers around a live one, cut to at most this many.
    Free {
        at: u64,
        size: u64,
    },
    /// Frees whatever lies there.
    FreeAnything {
        start: u64,
        size: u64,
    },
}

fn operation(largest_shift: u32) -> impl Strategy<Value = Operation> {
    let bounds = prop_oneof![
        3 => Just((0, u64::MAX)),
        1 => (0..TOP, 1..TOP).prop_map(|(lower, len)| (lower, lower + len)),
    ];
    prop_oneof![
        6 => (1..24_u64, 0..=largest_shift, bounds).prop_map(|(size, shift, (lower, upper))| {
            Operation::Alloc { size, shift, lower, upper }
        }),
        1 => (0..TOP, 1..24_u64).prop_map(|(start, size)| Operation::Take { start, size }),
        5 => (0..TOP, 1..32_u64).prop_map(|(at, size)| Operation::Free { at, size }),
        1 => (0..TOP, 1..24_u64).prop_map(|(start, size)| Operation::FreeAnything { start, size }),
    ]
}

/// An allocator and which numbers it says are free.
struct Side {
    index: Index,
    allocator: RangeAllocator,
    free: Vec<bool>,
}

impl Side {
    fn new(index: Index) -> Side {
        let mut allocator = empty(index);
        // Two spans that touch, and one number at each end that does not belong.
        allocator.add_span(Span::new(1, 100).unwrap()).unwrap();
        allocator.add_span(Span::new(100, TOP - 1).unwrap()).unwrap();
        let free = (0..TOP).map(|at| at > 0 && at < TOP - 1).collect();
        Side { index, allocator, free }
    }

    fn is(&self, span: Span, state: bool) -> bool {
        (span.start()..span.end())
            .all(|at| self.free.get(at as usize).is_some_and(|&free| free == state))
    }

    fn set(&mut self, span: Span, state: bool) {
        self.free[span.start() as usize..span.end() as usize].fill(state);
    }

    fn belongs(span: Span) -> bool {
        span.start() > 0 && span.end() < TOP
    }

    /// Performs the operation, and checks what must hold of any design.
    fn perform(&mut self, operation: &Operation) -> Option<Span> {
        match *operation {
            Operation::Alloc { size, shift, lower, upper } => {
                let within = Span::new(lower, upper).unwrap();
                let request = Request::new(size).align(1 << shift).within(within);
                return self.alloc(&request);
            }
            Operation::Take { start, size } => {
                let span = Span::sized(start, size).unwrap();
                let expected = match (Side::belongs(span), self.is(span, true)) {
                    (true, true) => Ok(()),
                    (true, false) => Err(TakeError::Taken),
                    (false, _) => Err(TakeError::Foreign),
                };
                assert_eq!(self.allocator.alloc_at(span), expected, "{:?} {span:?}", self.index);
                if expected.is_ok() {
                    self.set(span, false);
                }
            }
            Operation::Free { at, size } => {
                let busy = |at: u64| at > 0 && at < TOP - 1 && !self.free[at as usize];
                let start = (at..TOP).find(|&at| busy(at))?;
                let end = (start..TOP).find(|&at| !busy(at)).unwrap_or(TOP);
                self.give(Span::new(start, end.min(start + size)).unwrap());
            }
            Operation::FreeAnything { start, size } => {
                self.give(Span::sized(start, size).unwrap());
            }
        }
        None
    }

    fn alloc(&mut self, request: &Request) -> Option<Span> {
        match self.allocator.alloc(request) {
            Ok(span) => {
                assert_eq!(span.len(), request.size);
                assert!(span.start() % request.align == 0 && request.within.covers(span));
                assert!(self.is(span, true), "{:?} handed out {span:?} twice", self.index);
                self.set(span, false);
                Some(span)
            }
            Err(AllocError::Exhausted { .. }) => None,
            Err(other) => panic!("{:?}: {other}", self.index),
        }
    }

    fn give(&mut self, span: Span) {
        let expected = match (Side::belongs(span), self.is(span, false)) {
            (true, true) => Ok(()),
            (true, false) => Err(FreeError::NotAllocated),
            (false, _) => Err(FreeError::Foreign),
        };
        assert_eq!(self.allocator.free(span), expected, "{:?} {span:?}", self.index);
        if expected.is_ok() {
            self.set(span, true);
        }
    }

    /// What the allocator says of itself agrees with the model.
    fn check(&self) {
        self.allocator.check().unwrap_or_else(|broken| panic!("{:?}: {broken}", self.index));
        let mut free = vec![false; TOP as usize];
        for hole in self.allocator.iter_free() {
            free[hole.start() as usize..hole.end() as usize].fill(true);
        }
        assert_eq!(free, self.free, "{:?}", self.index);
        let runs = || free.split(|&free| !free).filter(|run| !run.is_empty());
        let stats = self.allocator.stats();
        assert_eq!(stats.holes, runs().count());
        assert_eq!(stats.largest, runs().map(<[bool]>::len).max().unwrap_or(0) as u64);
        assert_eq!(stats.free, free.iter().filter(|&&free| free).count() as u64);
    }
}

fn sides() -> Vec<Side> {
    let trees = RULES.into_iter().map(Index::AugmentedTree);
    trees.chain([Index::WideBlocks, Index::CachedScan]).map(Side::new).collect()
}

fn config() -> Config {
    Config { rng_seed: RngSeed::Fixed(2019), failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    /// No design hands a number out twice, whatever is asked of it.
    #[test]
    fn disjoint(operations in prop::collection::vec(operation(6), 1..150)) {
        for side in &mut sides() {
            for operation in &operations {
                side.perform(operation);
                side.check();
            }
        }
    }

    /// For alignment 1 the kernel's tree, under each rule, places what the exact index places.
    #[test]
    fn same_placement_at_page_alignment(operations in prop::collection::vec(operation(0), 1..150)) {
        let mut sides = sides();
        sides.retain(|side| side.index != Index::CachedScan);
        for operation in &operations {
            let placed: Vec<Option<Span>> =
                sides.iter_mut().map(|side| side.perform(operation)).collect();
            for (side, place) in sides.iter().zip(&placed) {
                prop_assert_eq!(*place, placed[0], "{:?} after {:?}", side.index, operation);
                side.check();
            }
        }
    }
}
