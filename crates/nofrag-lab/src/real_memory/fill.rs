//! How full an object store is when it first has no room, with compaction and without.
//!
//! The load is one that fragments: small objects fill the store; then, generation by generation, random ones are
//! deleted and larger ones take their place, so that hardly a hole is ever large enough for what comes next. At the end
//! small objects fill what is left. A request that would fit into all free bytes and is refused is a failure by
//! fragmentation.

use nofrag_backing::store::{Compaction, Config, ObjectStore, StoreError};

use crate::random::Random;

/// Bytes of the store.
const BYTES: u64 = 64 << 20;
/// The first objects, and those at the end.
const SMALL: u64 = 4 << 10;
/// Each generation's objects are twice as large as those before, up to this.
const LARGE: u64 = 512 << 10;
/// Live at most while generations come and go, and after each deletion.
const LIVE_PERCENT: u64 = 90;
const LEFT_PERCENT: u64 = 80;

/// What became of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Filled {
    /// How full it was at the first request that found no room, in percent.
    pub(super) first_failure_percent: f64,
    /// Bytes moved in all, and the least that any plan could have moved for the same requests.
    pub(super) moved: u64,
    pub(super) least: u64,
    pub(super) objects: u64,
}

struct Filling {
    store: ObjectStore,
    handles: Vec<nofrag_backing::shared::Handle>,
    random: Random,
    created: u64,
}

/// Whether an object was made.
enum Made {
    Yes,
    NoRoom,
}

/// Fills a store.
///
/// # Errors
/// What the store says, but for a lack of room.
pub(super) fn until_failure(seed: u64, compaction: Compaction) -> Result<Filled, String> {
    let config = Config { compaction, ..Config::new(BYTES) };
    let store = ObjectStore::create(config).map_err(|error| error.to_string())?;
    let random = Random::new(seed, 31);
    let mut filling = Filling { store, handles: Vec::new(), random, created: 0 };
    filling.run().map_err(|error| error.to_string())?;
    let stats = filling.store.stats();
    Ok(Filled {
        first_failure_percent: 100.0 * stats.live as f64 / BYTES as f64,
        moved: stats.moved,
        least: stats.least,
        objects: filling.created,
    })
}

impl Filling {
    /// Until the first failure.
    fn run(&mut self) -> Result<(), StoreError> {
        if let Made::NoRoom = self.fill_to(LIVE_PERCENT, SMALL)? {
            return Ok(());
        }
        let mut most = 2 * SMALL;
        while most <= LARGE {
            self.delete_down_to(LEFT_PERCENT)?;
            if let Made::NoRoom = self.fill_to(LIVE_PERCENT, most)? {
                return Ok(());
            }
            most *= 2;
        }
        // More than all: this ends with a failure.
        self.fill_to(101, SMALL).map(drop)
    }

    fn live_percent(&self) -> f64 {
        100.0 * self.store.stats().live as f64 / BYTES as f64
    }

    fn fill_to(&mut self, percent: u64, most: u64) -> Result<Made, StoreError> {
        while self.live_percent() < percent as f64 {
            let bytes = self.random.between(most / 2, most);
            match self.store.create_object(bytes) {
                Ok(writer) => {
                    self.handles.push(writer.seal());
                    self.created += 1;
                }
                Err(StoreError::Exhausted { .. }) => return Ok(Made::NoRoom),
                Err(other) => return Err(other),
            }
        }
        Ok(Made::Yes)
    }

    fn delete_down_to(&mut self, percent: u64) -> Result<(), StoreError> {
        while self.live_percent() > percent as f64 && !self.handles.is_empty() {
            let index = self.random.index(self.handles.len());
            self.store.delete(self.handles.swap_remove(index))?;
        }
        Ok(())
    }
}
