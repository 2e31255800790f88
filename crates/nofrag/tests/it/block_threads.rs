//! Threads that map, hand their mappings to each other, unmap mappings of others, flush and purge, while the book
//! watches each page: nothing is mapped where something is mapped, or where a translation is stale.
//!
//! Twice: at full speed, and one at a time, where a seed decides who goes on. In a schedule a thread may lose its turn
//! between two operations, and wherever the space calls the mapper without a lock held; a failure prints the seed, and
//! the same seed fails again.

use super::block_support::{
    Behind, BlockSpace, Call, Frames, GEOMETRIES, PageBook, block_space, cpu_of, gappy_cpus,
    geometry, last_clear, must_map, presets_with,
};
use super::choices::Random;
use super::vmap_support::span;
use nofrag::check::Check;
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    Area, AreaError, AreaRequest, BlockIndex, Budget, CpuHandle, Guard, LiveMap, MapRamError,
    Piece, Preset, RamArea, UnmapRamError,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// A turn in a schedule: a thread runs only while it has the turn.
struct Baton {
    turn: Mutex<Turn>,
    passed: Condvar,
}

struct Turn {
    holder: usize,
    /// The threads that have not left.
    running: Vec<usize>,
    random: Random,
}

thread_local! {
    /// The number of this thread in the schedule, if it is in one.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Baton {
    fn new(threads: usize, seed: u64) -> Baton {
        let mut random = Random::new(seed);
        let holder = random.below(threads as u64) as usize;
        let turn = Turn { holder, running: (0..threads).collect(), random };
        Baton { turn: Mutex::new(turn), passed: Condvar::new() }
    }

    fn wait(&self, mut turn: MutexGuard<'_, Turn>, me: usize) {
        while turn.holder != me {
            turn = self.passed.wait(turn).unwrap();
        }
    }

    fn enter(&self, me: usize) -> InSchedule<'_> {
        ME.set(Some(me));
        self.wait(self.turn.lock().unwrap(), me);
        InSchedule(self)
    }

    fn choose(&self, turn: &mut Turn) {
        if !turn.running.is_empty() {
            let next = turn.random.below(turn.running.len() as u64) as usize;
            turn.holder = turn.running[next];
            self.passed.notify_all();
        }
    }

    /// Lets the seed choose the thread that goes on.
    fn pass(&self) {
        let Some(me) = ME.get() else { return };
        let mut turn = self.turn.lock().unwrap();
        self.choose(&mut turn);
        self.wait(turn, me);
    }
}

/// A thread in a schedule; also one that panics leaves it.
struct InSchedule<'a>(&'a Baton);

impl Drop for InSchedule<'_> {
    fn drop(&mut self) {
        let me = ME.take();
        let mut turn = self.0.turn.lock().unwrap();
        turn.running.retain(|&thread| Some(thread) != me);
        self.0.choose(&mut turn);
    }
}

/// A mapping or an area on its way to the thread that ends it.
#[derive(Clone, Copy, Debug)]
enum Parcel {
    Mapping { area: Area, frames: Frames },
    Plain(Area),
}

struct Town {
    space: BlockSpace,
    post: Mutex<Vec<Parcel>>,
    tags: AtomicU64,
}

/// The state of one thread.
struct Citizen<'a> {
    town: &'a Town,
    /// The rank of its CPU.
    rank: usize,
    random: Random,
    handle: Option<CpuHandle<'a, PageBook>>,
    /// The last mappings that it ended, and when they were cleared.
    ended: Vec<(Span, u64)>,
}

impl Town {
    fn new(preset: Preset, bounds: Span, book: impl FnOnce(PageBook) -> PageBook) -> Town {
        let book = book(PageBook::new(bounds, 2));
        let space = block_space(preset.policy, gappy_cpus(), book);
        Town { space, post: Mutex::default(), tags: AtomicU64::new(1) }
    }

    fn take_parcel(&self, random: &mut Random) -> Option<Parcel> {
        let mut post = self.post.lock().unwrap();
        let at = random.below(post.len().max(1) as u64) as usize;
        (at < post.len()).then(|| post.swap_remove(at))
    }

    fn send(&self, parcel: Parcel) {
        self.post.lock().unwrap().push(parcel);
    }

    /// Verifies that a mapping's pages still have its contents.
    fn check_contents(&self, area: Area, frames: Frames) {
        for (index, at) in (area.span().start()..area.span().end()).enumerate() {
            let content = Behind::Content(frames.content(index as u64));
            assert_eq!(self.space.mapper().behind(at), content, "page {at:#x} of {area:?}");
        }
    }

    /// Verifies, when all threads have ended, that everything comes back.
    fn close(self) {
        let Town { space, post, .. } = self;
        space.check().unwrap_or_else(|broken| panic!("{broken}"));
        let by = cpu_of(&space, 1);
        for parcel in post.into_inner().unwrap() {
            match parcel {
                Parcel::Mapping { area, .. } => space.unmap_ram(by, ram(area)).unwrap(),
                Parcel::Plain(area) => drop(space.free(by, area.start).unwrap()),
            }
        }
        space.purge_all();
        space.check().unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(space.block_stats().blocks, 0, "a block leaked");
        assert_eq!(space.stats().largest_hole, space.span().len(), "pages leaked");
        assert!(!space.mapper().has_stale_pages());
    }
}

fn ram(area: Area) -> RamArea {
    RamArea { start: area.start, pages: area.pages }
}

impl Citizen<'_> {
    fn map(&mut self) {
        let by = cpu_of(&self.town.space, self.rank);
        let pages = match self.random.below(12) {
            0 => 33 + self.random.below(60),
            1..=4 => 1,
            _ => 1 + self.random.below(32),
        };
        let tag = self.town.tags.fetch_add(1, Ordering::Relaxed);
        let frames = Frames { tag, refused: self.random.below(40) == 0 };
        let impatient = self.random.below(4) == 0;
        let outcome = match &mut self.handle {
            Some(handle) => handle.map_ram(pages, &frames),
            None if impatient => self.town.space.try_map_ram(by, pages, &frames),
            None => self.town.space.map_ram(by, pages, &frames),
        };
        match outcome {
            Ok(RamArea { start, pages }) => {
                let area = Area { start, pages, guard: Guard::None, cpu: by };
                self.town.send(Parcel::Mapping { area, frames });
            }
            Err(MapRamError::Install(_)) => assert!(frames.refused),
            Err(MapRamError::CpuHeld) => assert!(self.handle.is_none()),
            Err(MapRamError::WouldBlock) => assert!(impatient),
            Err(MapRamError::Exhausted { .. }) => {}
            Err(why) => panic!("{pages} pages: {why}"),
        }
    }

    fn alloc(&mut self) {
        let space = &self.town.space;
        let request = AreaRequest::new(1 + self.random.below(20));
        let outcome = match &mut self.handle {
            Some(handle) => handle.alloc(&request),
            None => space.alloc(cpu_of(space, self.rank), &request),
        };
        match outcome {
            Ok(area) => {
                let tag = self.town.tags.fetch_add(1, Ordering::Relaxed);
                space.mapper().fill(area.span(), Frames::new(tag));
                self.town.send(Parcel::Plain(area));
            }
            Err(AreaError::Exhausted { .. } | AreaError::CpuHeld) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn end_something(&mut self) {
        let Some(parcel) = self.town.take_parcel(&mut self.random) else { return };
        let space = &self.town.space;
        let by = cpu_of(space, self.rank);
        match parcel {
            Parcel::Mapping { area, frames } => {
                self.town.check_contents(area, frames);
                let outcome = match &mut self.handle {
                    Some(handle) => handle.unmap_ram(ram(area)),
                    None => space.unmap_ram(by, ram(area)),
                };
                assert_eq!(outcome, Ok(()), "{area:?}");
                self.ended.push((area.span(), last_clear()));
            }
            Parcel::Plain(area) => {
                assert_eq!(space.free(by, area.start), Ok(area));
                self.ended.push((area.span(), last_clear()));
            }
        }
    }

    /// Looks at a mapping that no other thread can end meanwhile, and claims wrong things about it.
    fn inspect(&mut self) {
        let Some(parcel) = self.town.take_parcel(&mut self.random) else { return };
        let space = &self.town.space;
        let by = cpu_of(space, self.rank);
        if let Parcel::Mapping { area, frames } = parcel {
            let last = Vpn(area.span().end() - 1);
            assert_eq!(space.find(last), Some(area));
            let wrong = RamArea { start: area.start, pages: PageCount(area.pages.get() + 1) };
            let refusal = space.unmap_ram(by, wrong);
            let outside = wrong.span().end() > space.span().end();
            let expected = UnmapRamError::WrongSize { pages: area.pages };
            assert!(refusal == Err(expected) || outside, "{area:?}: {refusal:?}");
            if area.pages.get() > 1 {
                let inside = RamArea { start: last, pages: PageCount(1) };
                let refusal = UnmapRamError::NotAStart { start: area.start };
                assert_eq!(space.unmap_ram(by, inside), Err(refusal));
            }
            let mut live = 0;
            space.read(area.span(), |piece| {
                if let Piece::Live(part) = piece {
                    live += part.len();
                }
            });
            assert_eq!(live, area.pages.get(), "{area:?} is read");
            self.town.check_contents(area, frames);
        }
        self.town.send(parcel);
    }

    /// Flushes aliases; afterwards no translation is left of the mappings that this thread ended before.
    fn flush_aliases(&mut self) {
        self.town.space.unmap_aliases();
        for (span, time) in self.ended.drain(..) {
            for at in span.start()..span.end() {
                let behind = self.town.space.mapper().behind(at);
                assert_ne!(behind, Behind::Stale(time), "page {at:#x} of {span:?}");
            }
        }
    }

    fn toggle_handle(&mut self) {
        let space = &self.town.space;
        match self.handle.take() {
            Some(handle) => drop(handle),
            None => self.handle = space.cpu(cpu_of(space, self.rank)).ok(),
        }
    }

    fn read_all(&self) {
        let bounds = self.town.space.span();
        let mut told = bounds.start();
        self.town.space.read(bounds, |piece| {
            let (Piece::Live(part) | Piece::Hole(part)) = piece;
            assert_eq!(part.start(), told, "pieces ascend without gaps");
            told = part.end();
        });
        assert_eq!(told, bounds.end(), "the pieces tile the space");
    }

    fn act(&mut self) {
        match self.random.below(40) {
            0..=13 => self.map(),
            14..=26 => self.end_something(),
            27..=29 => self.inspect(),
            30..=31 => self.alloc(),
            32..=33 => self.toggle_handle(),
            34..=35 => self.flush_aliases(),
            36 => drop(self.town.space.purge_all()),
            37 => drop(self.town.space.step(Budget { areas: 3 })),
            38 => self.read_all(),
            _ => {
                let stats = self.town.space.block_stats();
                let slots = u64::from(self.town.space.policy().blocks.geometry.slots());
                assert!(stats.live_pages <= stats.blocks * slots);
            }
        }
    }
}

/// The threads' CPUs, by rank: two of the four share one.
const RANKS: [usize; 4] = [0, 1, 2, 0];

fn citizen<'a>(town: &'a Town, me: usize, seed: u64) -> Citizen<'a> {
    let random = Random::new(seed * 64 + me as u64);
    Citizen { town, rank: RANKS[me], random, handle: None, ended: Vec::new() }
}

/// Returns true if the space holds no lock while it has a mapping cleared.
fn clears_without_a_lock(preset: Preset) -> bool {
    let blocks = preset.policy.blocks;
    blocks.index == BlockIndex::Direct || blocks.live_map == LiveMap::UsedMap
}

fn run_schedule(preset: Preset, seed: u64, steps: u32) {
    let baton = Arc::new(Baton::new(RANKS.len(), seed));
    let passer = baton.clone();
    let free_clear = clears_without_a_lock(preset);
    let town = Town::new(preset, span(0x4021, 700), |book| {
        book.pausing(move |call| {
            if call == Call::Install || free_clear {
                passer.pass();
            }
        })
    });
    std::thread::scope(|scope| {
        for me in 0..RANKS.len() {
            let (town, baton) = (&town, &baton);
            scope.spawn(move || {
                let _turn = baton.enter(me);
                let mut citizen = citizen(town, me, seed);
                for _ in 0..steps {
                    citizen.act();
                    baton.pass();
                }
            });
        }
    });
    town.close();
}

fn check_schedules(seeds: std::ops::Range<u64>, steps: u32) {
    for preset in presets_with(GEOMETRIES[0], 150) {
        for seed in seeds.clone() {
            let outcome = std::panic::catch_unwind(|| run_schedule(preset, seed, steps));
            assert!(outcome.is_ok(), "{}, schedule {seed}: see above", preset.name);
        }
    }
}

#[test]
fn schedules_of_four_threads_on_three_cpus_are_safe() {
    check_schedules(0..10, 60);
}

/// A long run of random schedules; its command stands in CONTRIBUTING.
#[test]
#[ignore = "takes minutes; for an opt-in long run"]
fn many_schedules_of_blocks_are_safe() {
    check_schedules(100..1100, 60);
}

fn run_threads(preset: Preset, rounds: u32) {
    let calls = AtomicU64::new(0);
    let town = Town::new(preset, span(0x4021, 1500), |book| {
        // Now and then a thread that maps or clears loses the processor.
        book.pausing(move |_| {
            if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(11) {
                std::thread::yield_now();
            }
        })
    });
    std::thread::scope(|scope| {
        for me in 0..RANKS.len() {
            let town = &town;
            scope.spawn(move || {
                let mut citizen = citizen(town, me, 7);
                (0..rounds).for_each(|_| citizen.act());
            });
        }
    });
    town.close();
}

fn check_threads(rounds: u32) {
    for preset in presets_with(GEOMETRIES[0], 150) {
        let outcome = std::panic::catch_unwind(|| run_threads(preset, rounds));
        assert!(outcome.is_ok(), "{}: see above", preset.name);
    }
}

#[test]
fn threads_map_and_unmap_for_each_other() {
    check_threads(1500);
}

/// A long run at full speed; its command stands in CONTRIBUTING.
#[test]
#[ignore = "takes minutes; for an opt-in long run"]
fn a_million_operations_of_threads_on_blocks_are_safe() {
    check_threads(25_000);
}

#[test]
fn of_two_unmaps_of_one_mapping_one_succeeds() {
    for preset in presets_with(GEOMETRIES[0], 1 << 40) {
        let space = block_space(preset.policy, gappy_cpus(), PageBook::new(span(0, 2000), 0));
        for round in 0..150 {
            let area = must_map(&space, cpu_of(&space, 0), 1 + round % 40);
            let outcomes = std::thread::scope(|scope| {
                let unmap = |rank| {
                    let space = &space;
                    scope.spawn(move || space.unmap_ram(cpu_of(space, rank), area))
                };
                [unmap(0), unmap(1)].map(|thread| thread.join().unwrap())
            });
            let refused: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.err()).collect();
            let known = [UnmapRamError::DoubleUnmap, UnmapRamError::NotMapped];
            assert!(refused.len() == 1 && known.contains(&refused[0]), "{outcomes:?}");
        }
        space.check().unwrap();
    }
}

#[test]
fn a_handle_maps_while_others_unmap_and_purge() {
    for preset in presets_with(geometry(128, 64), 300) {
        let bounds = span(0x77, 2000);
        let space = block_space(preset.policy, gappy_cpus(), PageBook::new(bounds, 1));
        let (send, receive) = std::sync::mpsc::channel::<RamArea>();
        std::thread::scope(|scope| {
            let space = &space;
            scope.spawn(move || {
                for (count, area) in receive.into_iter().enumerate() {
                    space.unmap_ram(cpu_of(space, 1), area).unwrap();
                    match count % 100 {
                        50 => drop(space.purge_all()),
                        99 => drop(space.unmap_aliases()),
                        _ => {}
                    }
                }
            });
            let mut handle = space.cpu(cpu_of(space, 0)).unwrap();
            let mut mapped = 0;
            for tag in 1.. {
                match handle.map_ram(1 + tag % 64, &Frames::new(tag)) {
                    Ok(area) => {
                        send.send(area).unwrap();
                        mapped += 1;
                    }
                    Err(MapRamError::Exhausted { .. }) => std::thread::yield_now(),
                    Err(why) => panic!("{}: {why}", preset.name),
                }
                if mapped == 3000 {
                    break;
                }
            }
            drop(send);
        });
        space.purge_all();
        space.check().unwrap();
        assert_eq!(space.stats().largest_hole, bounds.len(), "{}", preset.name);
    }
}
