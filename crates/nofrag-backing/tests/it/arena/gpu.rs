//! The arena over memory that cannot be purged in place: a GPU's, by a driver that enforces CUDA's rules, and
//! simulated.

use std::sync::Arc;
use std::time::Duration;

use nofrag_backing::arena::{
    Arena, ArenaError, Budget, Config, Contents, OwnerId, Owners, Purge, ReserveError, ResizeError,
    Run,
};
use nofrag_backing::backend::cuda::{Call, Cuda, DriverError, Event, FakeDriver, Fence, Shape};
use nofrag_backing::backend::{
    Backend, BackendError, Caps, CostModel, Geometry, SimCall, Simulated,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{A, Z, check_laws};

type Gpu = Cuda<Arc<FakeDriver>>;

const BLOCK: u64 = 4 << 20;
const PAGE: u64 = 64 << 10;
const OWNERS: u32 = 3;

pub(super) fn config<B: Backend>(backing: B) -> Config<B> {
    let (owners, contents) = (Owners::Count(OWNERS), Contents::Shared);
    let after = Duration::from_millis(100);
    let (page, purge) = (PAGE, Purge::Decay { after });
    Config { page, owners, contents, purge, ..Config::over(backing) }
}

fn gpu(blocks: u64, shape: Shape) -> (Arc<FakeDriver>, Arena<Gpu>) {
    let driver = Arc::new(FakeDriver::new(shape));
    let backing = Cuda::new(Arc::clone(&driver)).unwrap();
    let arena = Arena::reserve(blocks * BLOCK, config(backing)).unwrap();
    (driver, arena)
}

#[test]
fn memory_that_is_not_cleared_must_be_allowed_to_be_seen() {
    let backing = Cuda::new(Arc::new(FakeDriver::new(Shape::default()))).unwrap();
    let refused = Arena::reserve(BLOCK, Config::over(backing)).unwrap_err();
    assert_eq!(refused, ReserveError::NotZeroed);
}

struct Trace {
    driver: Arc<FakeDriver>,
    arena: Arena<Gpu>,
    rng: Pcg64Mcg,
    live: Vec<(Run, u64)>,
    work: Vec<Event>,
    now: Duration,
}

impl Trace {
    fn alloc(&mut self, number: u64) {
        let owner = OwnerId(self.rng.random_range(0..OWNERS));
        let pages = self.rng.random_range(1..100);
        match self.arena.alloc(owner, pages, 1) {
            Ok(run) => {
                // Granted from the first byte to the last.
                self.driver.store(run.va(), number).unwrap();
                self.driver.store(run.va().plus(pages * PAGE - 8), number).unwrap();
                self.live.push((run, number));
            }
            Err(ArenaError::Exhausted(_)) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn free(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.live.len());
        let (run, number) = self.live.swap_remove(at);
        let last = run.va().plus(u64::from(run.pages()) * PAGE - 8);
        assert_eq!(self.driver.load(run.va()), Ok(number));
        assert_eq!(self.driver.load(last), Ok(number));
        if self.rng.random_range(0..2) == 0 {
            let event = self.driver.launch(run.va(), u64::from(run.pages()) * PAGE).unwrap();
            self.work.push(event);
            self.arena.free_after(run, &Fence(Some(event))).unwrap();
        } else {
            self.arena.free(run).unwrap();
        }
        self.arena.free(run).unwrap_err();
    }

    fn complete(&mut self) {
        if !self.work.is_empty() {
            let at = self.rng.random_range(0..self.work.len());
            self.driver.complete(self.work.swap_remove(at));
        }
    }

    fn run(&mut self) {
        for number in 1..600 {
            match self.rng.random_range(0..20) {
                0..8 => self.alloc(number),
                8..15 => self.free(),
                15..18 => self.complete(),
                18 => assert!(self.arena.purge(Budget { blocks: 3 }).blocks <= 3),
                _ => {
                    self.now += Duration::from_millis(30);
                    self.arena.step(self.now, Budget::ALL);
                }
            }
            check_laws(&self.arena);
        }
        while !self.live.is_empty() {
            self.free();
        }
        while !self.work.is_empty() {
            self.complete();
        }
        self.arena.purge(Budget::ALL);
        assert_eq!(self.driver.memory_in_use(), 0);
        assert_eq!(self.arena.stats().mappings, 0);
    }
}

/// Oracle 13: a whole trace issues no call that the driver forbids, and takes nothing away that is in use.
#[test]
fn a_trace_keeps_all_of_cudas_rules() {
    let seed = rand::rng().next_u64();
    println!("seed {seed:#x}");
    let (driver, arena) = gpu(24, Shape::default());
    let rng = Pcg64Mcg::seed_from_u64(seed);
    let (live, work, now) = (Vec::new(), Vec::new(), Duration::ZERO);
    let mut trace = Trace { driver: Arc::clone(&driver), arena, rng, live, work, now };
    trace.run();
    drop(trace);
    let refused: Vec<_> = driver.trace().into_iter().filter(|call| call.result.is_err()).collect();
    assert_eq!((refused, driver.misuses()), (vec![], vec![]));
    assert_eq!((driver.memory_in_use(), driver.addresses_in_use()), (0, 0));
}

/// Memory that one stream holds in its own list is harvested for the other before anybody is told that there is none.
#[test]
fn rmm_2039_two_streams() {
    let shape = Shape { memory: 8 * BLOCK, ..Shape::default() };
    let (driver, arena) = gpu(32, shape);
    let runs: Vec<Run> = (0..8).map(|_| arena.alloc(A, 64, 1).unwrap()).collect();
    assert!(matches!(arena.alloc(Z, 64, 1), Err(ArenaError::Backend(_))));
    let event = driver.launch(runs[0].va(), BLOCK).unwrap();
    arena.free_after(runs[0], &Fence(Some(event))).unwrap();
    // Not before the fence; and the same stream may have it at once.
    assert!(matches!(arena.alloc(Z, 64, 1), Err(ArenaError::Backend(_))));
    let again = arena.alloc(A, 64, 1).unwrap();
    assert_eq!(again.va(), runs[0].va());
    arena.free_after(again, &Fence(Some(event))).unwrap();
    driver.complete(event);
    arena.alloc(Z, 64, 1).unwrap();
    assert!(driver.misuses().is_empty());
    check_laws(&arena);
}

/// Whatever the driver refuses, for a while: books stay in order, nothing is lost, and nothing is released twice.
#[test]
fn refusals_of_the_driver_leave_the_books_in_order() {
    for call in [Call::Create, Call::Release, Call::Map, Call::Unmap, Call::SetAccess] {
        let (driver, arena) = gpu(8, Shape::default());
        for after in 0..3 {
            driver.refuse(call, after, 2, DriverError::OutOfMemory);
            let runs: Vec<_> = (0..4).filter_map(|_| arena.alloc(A, 70, 1).ok()).collect();
            check_laws(&arena);
            runs.iter().for_each(|&run| arena.free(run).unwrap());
            arena.purge(Budget::ALL);
            check_laws(&arena);
            driver.allow_all();
            // What was refused is done the next time: owners take their blocks back and give them up again.
            for _ in 0..3 {
                arena.purge(Budget::ALL);
            }
            assert_eq!((driver.memory_in_use(), arena.stats().live), (0, 0), "{call:?} {after}");
        }
        drop(arena);
        assert!(driver.misuses().is_empty());
        assert_eq!(driver.addresses_in_use(), 0);
    }
}

/// A run that could grow but for the driver is told that, not that there is no room.
#[test]
fn a_run_that_gets_no_memory_to_grow_is_told_why() {
    let (driver, arena) = gpu(8, Shape::default());
    let run = arena.alloc(A, 64, 1).unwrap();
    driver.refuse(Call::Create, 0, 1, DriverError::OutOfMemory);
    assert!(matches!(arena.resize(run, 100), Err(ResizeError::Backend(_))));
    check_laws(&arena);
    assert_eq!(arena.resize(run, 513), Err(ResizeError::NoRoom { most: 512 }));
    assert_eq!(arena.resize(run, 100).unwrap().pages(), 100);
    check_laws(&arena);
}

const COST: CostModel = CostModel {
    reserve_ns: 1000.0,
    create_ns: 29_000.0,
    map_ns: 2000.0,
    unmap_ns: 34_000.0,
    grant_ns: 38_000.0,
    purge_ns: 1000.0,
    move_ns: 1.0,
    page_ns: 10.0,
    moved_page_ns: 1.0,
    copied_page_ns: 1.0,
    flush_ns: 100.0,
    first_touch_ns: 1500.0,
};

pub(super) fn simulated(caps: Caps) -> Arc<Simulated> {
    let geometry = Geometry {
        granule: 1 << 20,
        recommended: 1 << 20,
        va_align: 1 << 20,
        max_va: 1 << 40,
        caps: caps | Caps::ZEROED,
        max_mappings: None,
        vector_max: 64,
        cost: COST,
    };
    Arc::new(Simulated::new(geometry).unwrap())
}

/// Oracle 12: what a trace costs is its calls times the model, for memory that is purged in place and for chunks.
#[test]
fn a_simulated_trace_costs_its_calls() {
    let in_place = Caps::PURGE_IN_PLACE | Caps::SUBRANGE_MAP | Caps::PARTIAL_UNMAP;
    let chunks = Caps::GRANT_SEPARATE | Caps::QUIESCE_BEFORE_UNMAP;
    for caps in [in_place, chunks] {
        let backing = simulated(caps);
        let arena = Arena::reserve(16 * BLOCK, config(Arc::clone(&backing))).unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        for _ in 0..20 {
            let runs: Vec<Run> =
                (0..5).map(|_| arena.alloc(A, rng.random_range(1..150), 1).unwrap()).collect();
            runs.iter().for_each(|run| {
                backing.touch(run.va(), u64::from(run.pages()) * PAGE).unwrap();
            });
            runs.iter().for_each(|&run| arena.free(run).unwrap());
            arena.purge(Budget::ALL);
            assert_eq!(backing.pages_held(), 0);
            check_laws(&arena);
        }
        let counts = backing.counts();
        assert_eq!(backing.cost_ns(), COST.price(&counts));
        let calls = counts.maps + counts.unmaps + counts.grants + counts.purges;
        let made = arena.stats().calls;
        println!("{calls} calls counted, {made} by the arena, {} made", counts.creates);
        assert_eq!(counts.purges > 0, caps.has(Caps::PURGE_IN_PLACE));
        assert_eq!(backing.misuses(), 0);
    }
}

/// One mapping for each chunk and no more of them than allowed; what is parked is given up first.
#[test]
fn the_budget_of_mappings_is_kept() {
    let backing = simulated(Caps::GRANT_SEPARATE);
    let limited = Config { max_mappings: Some(16), ..config(Arc::clone(&backing)) };
    let arena = Arena::reserve(16 * BLOCK, limited).unwrap();
    let runs: Vec<Run> = (0..4).map(|_| arena.alloc(A, 64, 1).unwrap()).collect();
    let refused = arena.alloc(Z, 1, 1).unwrap_err();
    assert_eq!(refused, ArenaError::Backend(BackendError::MappingBudget { budget: 16 }));
    arena.free(runs[3]).unwrap();
    arena.alloc(Z, 1, 1).unwrap();
    // And the rest of the reservation is one area.
    assert_eq!((arena.stats().mappings, backing.areas()), (16, 17));
    check_laws(&arena);
}

/// Fewer calls than runs, whatever the vector: adjacent blocks go in one.
#[test]
fn nearcore_16414_batch() {
    let in_place = Caps::PURGE_IN_PLACE | Caps::SUBRANGE_MAP | Caps::PARTIAL_UNMAP;
    let backing = simulated(in_place);
    let arena = Arena::reserve(16 * BLOCK, config(Arc::clone(&backing))).unwrap();
    let run = arena.alloc(A, 64 * 12, 1).unwrap();
    backing.touch(run.va(), 12 * BLOCK).unwrap();
    arena.free(run).unwrap();
    assert_eq!(arena.purge(Budget::ALL).blocks, 12);
    assert_eq!(backing.counts().purges, 1);
    backing.refuse(SimCall::Purge, 0, 1, BackendError::Skipped);
    let run = arena.alloc(A, 64 * 12, 1).unwrap();
    arena.free(run).unwrap();
    assert_eq!(arena.purge(Budget::ALL).failed, 12);
    assert_eq!(arena.purge(Budget::ALL).blocks, 12);
    check_laws(&arena);
}
