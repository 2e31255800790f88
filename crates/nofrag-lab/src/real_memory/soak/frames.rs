//! Blocks of page frames by handles: allocated in all sizes, written, verified and given back by one thread, used by
//! another, and moved together by a thread in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use nofrag::cpu::CpuId;
use nofrag::units::Order;
use nofrag_backing::frames::FramesConfig;
use nofrag_backing::moving::{Background, Handle, HandleError, Handles, NoHandle, Pace};

use super::{Load, Tally, beside, is_over};
use crate::random::Random;

pub(super) const NAME: &str = "frames";

const BYTES: u64 = 128 << 20;
const PAGES: u64 = BYTES >> 12;
/// Frames that the load keeps in use, in percent: free frames lie in pieces unless blocks are moved together.
const LIVE_PERCENT: u64 = 80;
/// Number of turns between two compactions of all memory, as a user with a large request would ask for.
const COMPACT_EVERY: u64 = 20_000;

/// The frames, their handles, and the records that both threads share.
pub(super) struct FramesLoad {
    handles: Arc<Handles>,
    _background: Background,
    shown: Mutex<Vec<Known>>,
    tally: Tally,
    seed: u64,
}

/// A block and the stamp of its words.
#[derive(Clone, Copy, Debug)]
struct Known {
    handle: Handle,
    order: Order,
    stamp: u64,
}

impl FramesLoad {
    pub(super) fn new(seed: u64) -> Result<FramesLoad, String> {
        let handles = Handles::new(&FramesConfig::new(BYTES), PAGES as u32);
        let handles = handles.map_err(|error| error.to_string())?;
        let background = Background::of_handles(&handles, Pace::default());
        let background = background.map_err(|error| error.to_string())?;
        let shown = Mutex::new(Vec::new());
        Ok(FramesLoad { handles, _background: background, shown, tally: Tally::default(), seed })
    }

    /// Returns true if a block holds the words that were written; `None` if it was given back meanwhile.
    fn is_as_written(&self, known: &Known) -> Result<Option<bool>, HandleError> {
        let words = match self.handles.pin(known.handle) {
            Ok(words) => words,
            Err(HandleError::Stale) => return Ok(None),
            Err(other) => return Err(other),
        };
        let mut numbered = (0..).zip(words.iter());
        // Relaxed: the pin orders this with moves, and the passing of the handle with the writing.
        Ok(Some(
            numbered.all(|(number, word)| word.load(Ordering::Relaxed) == known.stamp ^ number),
        ))
    }

    /// Uses random blocks until `over` is set.
    fn read(&self, over: &AtomicBool) -> Result<(), String> {
        let mut random = Random::new(self.seed, 3001);
        while !is_over(over) {
            let known = {
                let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
                (!shown.is_empty()).then(|| shown[random.index(shown.len())])
            };
            let Some(known) = known else {
                thread::yield_now();
                continue;
            };
            if let Some(sound) = self.is_as_written(&known).map_err(|error| error.to_string())? {
                self.tally.found(sound);
            }
        }
        Ok(())
    }
}

impl Load for FramesLoad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn threads(&self) -> usize {
        2
    }

    fn work(&self, over: &AtomicBool) -> Result<(), String> {
        let own = || OwnerOf::new(self).and_then(|mut owner| owner.work(over));
        beside(|over| self.read(over), own)
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        let stats = self.handles.stats();
        let possible = stats.free.0 / Order::PAGEBLOCK.pages();
        let whole = stats.obtainable(Order::PAGEBLOCK);
        let in_pieces = possible.saturating_sub(whole) as f64;
        vec![
            ("% in use", 100.0 * (PAGES - stats.free.0.min(PAGES)) as f64 / PAGES as f64),
            ("% of free 2 MiB in pieces", 100.0 * in_pieces / possible.max(1) as f64),
        ]
    }
}

/// The thread that allocates and frees.
struct OwnerOf<'a> {
    load: &'a FramesLoad,
    owner: CpuId,
    random: Random,
    known: Vec<Known>,
    pages: u64,
    turns: u64,
}

impl<'a> OwnerOf<'a> {
    fn new(load: &'a FramesLoad) -> Result<OwnerOf<'a>, String> {
        let owner = load.handles.owners().by_rank(0).ok_or("the frames have no owner")?;
        let random = Random::new(load.seed, 3000);
        Ok(OwnerOf { load, owner, random, known: Vec::new(), pages: 0, turns: 0 })
    }

    fn work(&mut self, over: &AtomicBool) -> Result<(), String> {
        while !is_over(over) {
            self.turn()?;
        }
        self.show();
        while let Some(known) = self.known.pop() {
            self.give_back(known)?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), String> {
        self.turns += 1;
        if self.turns.is_multiple_of(COMPACT_EVERY) {
            self.load.handles.compact();
            self.load.tally.done();
        }
        if self.turns.is_multiple_of(256) {
            self.show();
        }
        let order = self.order();
        while self.pages + order.pages() > PAGES * LIVE_PERCENT / 100 {
            let index = self.random.index(self.known.len());
            let known = self.known.swap_remove(index);
            self.give_back(known)?;
        }
        match self.load.handles.alloc(self.owner, order) {
            Ok(handle) => self.write(handle, order),
            Err(NoHandle::Frames(_)) => {
                self.load.tally.refused();
                Ok(())
            }
            Err(full) => Err(full.to_string()),
        }
    }

    fn write(&mut self, handle: Handle, order: Order) -> Result<(), String> {
        let stamp = self.turns.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let words = self.load.handles.pin(handle).map_err(|error| error.to_string())?;
        for (number, word) in (0..).zip(words.iter()) {
            // Relaxed: no other thread has the handle yet.
            word.store(stamp ^ number, Ordering::Relaxed);
        }
        drop(words);
        self.pages += order.pages();
        self.known.push(Known { handle, order, stamp });
        self.load.tally.done();
        Ok(())
    }

    /// Draws an order: mostly single pages; now and then a block of 2 MiB, which must be made first.
    fn order(&mut self) -> Order {
        let order = match self.random.between(1, 2000) {
            1 => 9,
            2..=100 => self.random.between(3, 6) as u8,
            101..=400 => self.random.between(1, 2) as u8,
            _ => 0,
        };
        Order::new(order).expect("it is at most that of a pageblock")
    }

    fn show(&self) {
        self.load.shown.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.known);
    }

    /// Reads all words of a block, then gives it back.
    fn give_back(&mut self, known: Known) -> Result<(), String> {
        let sound = self.load.is_as_written(&known).map_err(|error| error.to_string())?;
        self.load.tally.found(sound == Some(true));
        loop {
            match self.load.handles.free(self.owner, known.handle) {
                Ok(()) => break,
                // The reader has pinned it.
                Err(HandleError::Pinned(_)) => thread::yield_now(),
                Err(other) => return Err(other.to_string()),
            }
        }
        self.pages -= known.order.pages();
        self.load.tally.done();
        Ok(())
    }
}
