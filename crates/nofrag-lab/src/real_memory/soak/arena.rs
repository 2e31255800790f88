//! Runs of pages with owners: allocated, written, verified, handed to another thread, given back; with purge in the
//! background.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use nofrag_backing::arena::{
    Arena, ArenaError, Budget, Config, Lease, OwnerId, Owners, Purge, Purger,
};
use nofrag_backing::backend::Anonymous;

use super::{Load, Tally, fill, is_as_written, is_over};
use crate::random::Random;

pub(super) const NAME: &str = "arena";

const BYTES: u64 = 512 << 20;
const WORKERS: usize = 2;
/// Number of live runs of a worker.
const SLOTS: usize = 64;
/// Blocks that have been idle for this long are purged.
const DECAY: Duration = Duration::from_millis(200);

/// The arena and its workers.
pub(super) struct ArenaLoad {
    arena: Arc<Arena>,
    tally: Tally,
    seed: u64,
    _purger: Purger,
}

/// A run with the words that were written into it.
struct Written<'a> {
    lease: Lease<'a, Anonymous>,
    stamp: u64,
}

impl ArenaLoad {
    pub(super) fn new(seed: u64) -> Result<ArenaLoad, String> {
        let config = Config {
            purge: Purge::Decay { after: DECAY },
            owners: Owners::Count(WORKERS as u32),
            ..Config::default()
        };
        let arena = Arena::reserve(BYTES, config).map_err(|error| error.to_string())?;
        let arena = Arc::new(arena);
        let purger = Purger::spawn(Arc::clone(&arena), DECAY / 10, Budget::ALL);
        let purger = purger.map_err(|error| error.to_string())?;
        Ok(ArenaLoad { arena, tally: Tally::default(), seed, _purger: purger })
    }
}

impl Load for ArenaLoad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn threads(&self) -> usize {
        WORKERS
    }

    fn work(&self, over: &AtomicBool) -> Result<(), String> {
        // Each worker gets the runs that the other one has written, so that half of all runs are given back by a worker
        // that does not own them.
        let (to_second, from_first) = mpsc::sync_channel(SLOTS);
        let (to_first, from_second) = mpsc::sync_channel(SLOTS);
        thread::scope(|scope| {
            let second = scope.spawn(|| Worker::new(self, 1, to_first, from_first).work(over));
            let first = Worker::new(self, 0, to_second, from_second).work(over);
            let second = second.join().unwrap_or_else(|_| Err("a worker panicked".to_owned()));
            first.and(second)
        })
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        let stats = self.arena.stats();
        vec![
            ("pages dirty", stats.dirty as f64),
            ("mappings", stats.mappings as f64),
            ("blocks in use", stats.blocks.used as f64),
        ]
    }
}

/// One owner, on a thread of its own.
struct Worker<'a> {
    load: &'a ArenaLoad,
    owner: OwnerId,
    random: Random,
    slots: Vec<Option<Written<'a>>>,
    sends: SyncSender<Written<'a>>,
    gets: Receiver<Written<'a>>,
    stamps: u64,
}

impl<'a> Worker<'a> {
    fn new(
        load: &'a ArenaLoad,
        number: u32,
        sends: SyncSender<Written<'a>>,
        gets: Receiver<Written<'a>>,
    ) -> Worker<'a> {
        Worker {
            load,
            owner: OwnerId(number),
            random: Random::new(load.seed, 1000 + u64::from(number)),
            slots: (0..SLOTS).map(|_| None).collect(),
            sends,
            gets,
            stamps: u64::from(number) << 56,
        }
    }

    fn work(mut self, over: &AtomicBool) -> Result<(), String> {
        while !is_over(over) {
            self.turn()?;
        }
        for written in self.slots.drain(..).flatten() {
            self.load.give_back(written);
        }
        // Runs that the other worker still sends are dropped with the channel, unverified.
        while let Ok(written) = self.gets.try_recv() {
            self.load.give_back(written);
        }
        Ok(())
    }

    /// Takes a turn on one slot: its run is given back or sent to the other thread, and a new one is made.
    fn turn(&mut self) -> Result<(), String> {
        while let Ok(written) = self.gets.try_recv() {
            self.load.give_back(written);
        }
        let slot = self.random.index(SLOTS);
        if let Some(written) = self.slots[slot].take() {
            self.part_with(written);
        }
        let pages = self.pages();
        let align = 1 << self.random.between(0, 4);
        self.slots[slot] = match self.load.arena.lease(self.owner, pages, align) {
            Ok(lease) => {
                self.stamps += 1;
                let stamp = self.stamps.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut written = Written { lease, stamp };
                fill(&mut written.lease, stamp, 0);
                self.load.tally.done();
                Some(written)
            }
            Err(ArenaError::Exhausted(_)) => {
                self.load.tally.refused();
                None
            }
            Err(other) => return Err(other.to_string()),
        };
        Ok(())
    }

    fn part_with(&mut self, written: Written<'a>) {
        if self.random.between(0, 1) == 0 {
            return self.load.give_back(written);
        }
        match self.sends.try_send(written) {
            Ok(()) => {}
            Err(TrySendError::Full(written) | TrySendError::Disconnected(written)) => {
                self.load.give_back(written);
            }
        }
    }

    /// Draws a size: mostly up to 64 pages; now and then more than a block, so that runs span blocks.
    fn pages(&mut self) -> u64 {
        match self.random.between(1, 200) {
            1 => self.random.between(1025, 3000),
            2..=10 => self.random.between(65, 1024),
            _ => self.random.between(1, 64),
        }
    }
}

impl ArenaLoad {
    fn give_back(&self, written: Written<'_>) {
        self.tally.found(is_as_written(&written.lease, written.stamp));
        drop(written);
        self.tally.done();
    }
}
