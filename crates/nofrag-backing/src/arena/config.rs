//! How an arena is set up.

use std::time::Duration;

use crate::backend::{Anonymous, Backend};

/// When memory of idle blocks goes back to the system. Under pressure it always does, before a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// When a block has been idle for so long, as told by the time that [`Arena::step`](super::Arena::step) is given.
    Decay {
        /// For so long nothing in a block must have been used.
        after: Duration,
    },
    /// When an owner has more pages than this that are free and may hold contents: then down to half of it, by whoever
    /// frees.
    Watermark {
        /// So many may stay.
        pages: u64,
    },
    /// When [`Arena::purge`](super::Arena::purge) is called.
    Manual,
}

/// What a child of `fork` sees of the arena's memory. It can never allocate from it.
/// Source: docs/sources/backing.md#fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fork {
    /// Nothing: an access in the child faults.
    #[default]
    Hidden,
    /// What the backend's kind of memory does: a copy of private memory, shared memory itself.
    Inherited,
}

/// How many owners there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// One for each processor that the machine may have.
    #[default]
    PerCpu,
    /// So many.
    Count(u32),
}

/// How an arena is set up. Sizes are bytes.
///
/// ```
/// use nofrag_backing::arena::{Config, Owners, Purge};
///
/// let config = Config { purge: Purge::Manual, owners: Owners::Count(4), ..Config::default() };
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
pub struct Config<B = Anonymous> {
    /// What memory comes from.
    pub backing: B,
    /// The unit that belongs to one owner and is purged whole; a power of two.
    pub block: u64,
    /// The unit that is handed out; a power of two, at least 4 KiB. Has nothing to do with the backend's granule, but
    /// not more than a block.
    pub page: u64,
    /// What the arena's first address is a multiple of, so the largest alignment that a run can have; a power of two.
    pub align: u64,
    /// If there is no room for all that is asked for, half of it is tried, and so on, but not below this. `None`: half
    /// may do as long as each owner can have a block.
    pub least: Option<u64>,
    /// When memory goes back.
    pub purge: Purge,
    /// How many owners there are.
    pub owners: Owners,
    /// What children see.
    pub fork: Fork,
    /// So many pages an owner parks by size at most; it also never parks more than its share of an eighth of the
    /// arena.
    pub parked_pages: u64,
    /// So many mappings the arena may have; `None`: as many as the backend allows.
    pub max_mappings: Option<u64>,
}

impl<B: Backend> Config<B> {
    /// The usual, over this backend.
    #[must_use]
    pub fn over(backing: B) -> Config<B> {
        Config {
            backing,
            block: 4 << 20,
            page: 4 << 10,
            align: 4 << 20,
            least: None,
            purge: Purge::Decay { after: Duration::from_secs(1) },
            owners: Owners::PerCpu,
            fork: Fork::Hidden,
            parked_pages: 16 << 10,
            max_mappings: None,
        }
    }
}

impl<B> Config<B> {
    /// The backend, and the rest.
    pub(super) fn split(self) -> (B, Config<()>) {
        let Config { backing, block, page, align, least, purge, owners, .. } = self;
        let Config { fork, parked_pages, max_mappings, .. } = self;
        let rest = Config {
            backing: (),
            block,
            page,
            align,
            least,
            purge,
            owners,
            fork,
            parked_pages,
            max_mappings,
        };
        (backing, rest)
    }
}

impl Default for Config {
    /// The usual, over private memory.
    fn default() -> Config {
        Config::over(Anonymous::new())
    }
}

/// How much a piece of background work may do, counted in blocks, not in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// At most so many blocks are purged.
    pub blocks: usize,
}

impl Budget {
    /// Whatever there is.
    pub const ALL: Budget = Budget { blocks: usize::MAX };
}
