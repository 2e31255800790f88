//! Objects of any size: created, grown, read, deleted and moved, while a reader with a mapping of its own pins and
//! reads them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nofrag_backing::shared::{Handle, Peer};
use nofrag_backing::store::{Config, ObjectStore, StoreError};

use super::{Load, Tally, Watch, beside, fill, is_as_written};
use crate::random::Random;

pub(super) const NAME: &str = "store";

const BYTES: u64 = 64 << 20;
const OBJECTS: u32 = 4096;
/// How full the owner tries to keep it: then holes are small, and room is found by moving.
const LIVE_PERCENT: u64 = 90;
/// Bytes that the owner lets move when it has nothing else to do.
const BUDGET: u64 = 1 << 20;

/// The store, and who reads it.
pub(super) struct StoreLoad {
    store: ObjectStore,
    peer: Peer,
    /// What a reader may look for.
    shown: Mutex<Vec<Known>>,
    tally: Tally,
    seed: u64,
}

/// An object and what was written into it.
#[derive(Clone, Copy, Debug)]
struct Known {
    handle: Handle,
    stamp: u64,
    bytes: u64,
}

impl StoreLoad {
    pub(super) fn new(seed: u64) -> Result<StoreLoad, String> {
        let config = Config { objects: OBJECTS, ..Config::new(BYTES) };
        let store = ObjectStore::create(config).map_err(|error| error.to_string())?;
        let invitation = store.invite().map_err(|error| error.to_string())?;
        let peer = Peer::attach(&invitation).map_err(|error| error.to_string())?;
        let shown = Mutex::new(Vec::new());
        Ok(StoreLoad { store, peer, shown, tally: Tally::default(), seed })
    }
}

impl Load for StoreLoad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn threads(&self) -> usize {
        2
    }

    fn work(&self, watch: &Watch) -> Result<(), String> {
        let (random, known) = (Random::new(self.seed, 2000), Vec::new());
        let mut owner = OwnerOf { load: self, random, known, stamps: 0 };
        beside(|over| self.read(over), || owner.work(watch))
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn state(&self) -> Vec<(&'static str, f64)> {
        let stats = self.store.stats();
        let percent = |bytes: u64| 100.0 * bytes as f64 / BYTES as f64;
        vec![
            ("% live", percent(stats.live)),
            ("holes", stats.holes as f64),
            ("% of free space outside the largest hole", 100.0 - share(stats.largest, stats.free)),
        ]
    }
}

/// In percent; all of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl StoreLoad {
    /// Reads objects by a mapping of its own, as another process would, until it is over.
    fn read(&self, over: &AtomicBool) -> Result<(), String> {
        let mut random = Random::new(self.seed, 2001);
        let mut bytes = Vec::new();
        // Relaxed: nothing else is read because of it.
        while !over.load(Ordering::Relaxed) {
            let known = {
                let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
                (!shown.is_empty()).then(|| shown[random.index(shown.len())])
            };
            let Some(known) = known else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            // Deleted or moving meanwhile: an answer.
            let Ok(pinned) = self.peer.pin(known.handle, Duration::from_millis(1)) else {
                continue;
            };
            bytes.resize(known.bytes as usize, 0);
            pinned.read(0, &mut bytes).map_err(|error| error.to_string())?;
            drop(pinned);
            self.tally.found(is_as_written(&bytes, known.stamp));
        }
        Ok(())
    }
}

/// The thread that creates, grows and deletes.
struct OwnerOf<'a> {
    load: &'a StoreLoad,
    random: Random,
    known: Vec<Known>,
    stamps: u64,
}

impl OwnerOf<'_> {
    fn work(&mut self, watch: &Watch) -> Result<(), String> {
        while !watch.is_over() {
            self.turn().map_err(|error| error.to_string())?;
        }
        while let Some(last) = self.known.pop() {
            self.delete(last).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), StoreError> {
        let stats = self.load.store.stats();
        let is_full =
            stats.live * 100 >= BYTES * LIVE_PERCENT || self.known.len() >= OBJECTS as usize / 2;
        match self.random.between(1, 20) {
            1 => {
                self.load.store.compact(BUDGET);
                self.load.tally.done();
            }
            2..=4 if !self.known.is_empty() => self.grow()?,
            _ if is_full => {
                let index = self.random.index(self.known.len());
                let known = self.known.swap_remove(index);
                self.delete(known)?;
            }
            _ => self.create()?,
        }
        if self.random.between(1, 64) == 1 {
            self.load.shown.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.known);
        }
        Ok(())
    }

    /// Mostly small; now and then as large as a huge page.
    fn bytes(&mut self) -> u64 {
        let most = match self.random.between(1, 100) {
            1 => 2 << 20,
            2..=20 => 256 << 10,
            _ => 16 << 10,
        };
        self.random.between(8, most) / 8 * 8
    }

    fn create(&mut self) -> Result<(), StoreError> {
        let bytes = self.bytes();
        match self.load.store.create_object(bytes) {
            Ok(mut writer) => {
                self.stamps += 1;
                let stamp = self.stamps.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                fill(&mut writer, stamp, 0);
                let handle = writer.seal();
                self.known.push(Known { handle, stamp, bytes });
                self.load.tally.done();
                Ok(())
            }
            Err(StoreError::Exhausted { .. }) => {
                self.load.tally.refused();
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    fn grow(&mut self) -> Result<(), StoreError> {
        let (index, more) = (self.random.index(self.known.len()), self.bytes() / 4 / 8 * 8 + 8);
        let known = &mut self.known[index];
        match self.load.store.grow(known.handle, more) {
            Ok(mut writer) => {
                fill(&mut writer, known.stamp, known.bytes / 8);
                known.handle = writer.seal();
                known.bytes += more;
                self.load.tally.done();
                Ok(())
            }
            Err(StoreError::Exhausted { .. }) => {
                self.load.tally.refused();
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// Reads all of it first.
    fn delete(&mut self, known: Known) -> Result<(), StoreError> {
        let store = &self.load.store;
        let object = store.get(known.handle)?;
        let as_written = object.len() as u64 == known.bytes && is_as_written(&object, known.stamp);
        drop(object);
        self.load.tally.found(as_written);
        store.delete(known.handle)?;
        self.load.tally.done();
        Ok(())
    }
}
