//! Threads that map, hand their mappings to each other, unmap mappings of others, flush and purge, while the book
//! watches each page: nothing is mapped where something is mapped, or where a translation is stale.
//!
//! Twice: at full speed, and one at a time, where a seed decides who goes on. In a schedule a thread may lose its turn
//! between two operations, and wherever the space calls the mapper without a lock held; a failure prints the seed, and
//! the same seed fails again.

use super::block_support::{
    Call, Frames, GEOMETRIES, PageBook, block_space, cpu_of, gappy_cpus, geometry, must_map,
    presets_with,
};
use super::block_town::{Citizen, Town};
use super::choices::Random;
use super::vmap_support::span;
use nofrag::check::Check;
use nofrag::vmap::{BlockIndex, LiveMap, MapRamError, Preset, RamArea, UnmapRamError};
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

/// The threads' CPUs, by rank: two of the four share one.
const RANKS: [usize; 4] = [0, 1, 2, 0];

fn choices(me: usize, seed: u64) -> Random {
    Random::new(seed * 64 + me as u64)
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
    let town = Town::new(preset.policy, span(0x4021, 700), |book| {
        book.pausing(move |call| {
            if call == Call::Install || free_clear {
                passer.pass();
            }
        })
    });
    std::thread::scope(|scope| {
        for (me, &rank) in RANKS.iter().enumerate() {
            let (town, baton) = (&town, &baton);
            scope.spawn(move || {
                let _turn = baton.enter(me);
                let mut citizen = Citizen::new(town, rank, choices(me, seed));
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
    let town = Town::new(preset.policy, span(0x4021, 1500), |book| {
        // Now and then a thread that maps or clears loses the processor.
        book.pausing(move |_| {
            if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(11) {
                std::thread::yield_now();
            }
        })
    });
    std::thread::scope(|scope| {
        for (me, &rank) in RANKS.iter().enumerate() {
            let town = &town;
            scope.spawn(move || town.live(rank, choices(me, 7), rounds));
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
