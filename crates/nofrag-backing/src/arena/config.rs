//! The configuration of an arena.

use std::time::Duration;

use crate::backend::{Anonymous, Backend};

/// When the memory of idle blocks goes back to the system. Under pressure it always does, before a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// When a block has been idle for a while, by the arena's [`Clock`]: a few blocks at a time, by calls that allocate
    /// and free. Where these may cease, a [`Purger`](super::Purger), or [`Arena::step`](super::Arena::step), does it.
    Decay {
        /// Time for which nothing in the block has been used. Runs that are parked hold it for as long at most, so
        /// memory goes back within twice this time, and the next allocations: one looks at the clock in 128, and each
        /// where they are rare.
        after: Duration,
    },
    /// When an owner has more free pages that may hold contents than `pages`: then down to half of that, by the thread
    /// that frees.
    Watermark {
        /// The most free pages that may hold contents and that an owner keeps without a purge.
        pages: u64,
    },
    /// Only when [`Arena::purge`](super::Arena::purge) is called.
    Manual,
}

/// The arena's memory as a child of `fork` sees it. A child can never allocate from it.
/// Source: docs/sources/backing.md#fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fork {
    /// No memory: an access in the child faults.
    #[default]
    Hidden,
    /// As the backend's kind of memory is inherited: a copy of private memory, shared memory itself.
    Inherited,
}

/// Time by which an arena tells what has been idle for long enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock, at which one allocation in 128 looks, or more where they are rare.
    #[default]
    System,
    /// Time that the caller passes to [`Arena::set_time`](super::Arena::set_time), so that everything repeats.
    Caller,
}

/// Number of owners of an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// One for each processor that the machine may have.
    #[default]
    PerCpu,
    Count(u32),
}

/// Configuration of an arena. Sizes are bytes.
///
/// ```
/// use nofrag_backing::arena::{Config, Owners, Purge};
///
/// let config = Config { purge: Purge::Manual, owners: Owners::Count(4), ..Config::default() };
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
pub struct Config<B = Anonymous> {
    /// The backend that memory comes from.
    pub backing: B,
    /// Size of a block, the unit that belongs to one owner and is purged whole; a power of two.
    pub block: u64,
    /// Size of a page, the unit that is handed out; a power of two, at least 4 KiB and at most a block. Independent of
    /// the backend's granule.
    pub page: u64,
    /// The power of two, in bytes, of which the arena's first address is a multiple: the largest alignment of a run.
    pub align: u64,
    /// The least number of bytes that will do: without room for all bytes asked for, half of them are tried, and so on
    /// down to this. `None`: down to a block for each owner.
    pub least: Option<u64>,
    pub purge: Purge,
    pub clock: Clock,
    pub owners: Owners,
    pub fork: Fork,
    /// The most pages that an owner parks by size; it also never parks more than its share of an eighth of the arena.
    pub parked_pages: u64,
    /// The most mappings that the arena may have; `None`: as many as the backend allows.
    pub max_mappings: Option<u64>,
}

impl<B: Backend> Config<B> {
    /// Returns the default configuration over `backing`.
    #[must_use]
    pub fn over(backing: B) -> Config<B> {
        Config {
            backing,
            block: 4 << 20,
            page: 4 << 10,
            align: 4 << 20,
            least: None,
            purge: Purge::Decay { after: Duration::from_secs(1) },
            clock: Clock::System,
            owners: Owners::PerCpu,
            fork: Fork::Hidden,
            parked_pages: 16 << 10,
            max_mappings: None,
        }
    }
}

impl<B> Config<B> {
    /// Splits the configuration into the backend and the rest.
    pub(super) fn split(self) -> (B, Config<()>) {
        let Config { backing, block, page, align, least, purge, clock, .. } = self;
        let Config { owners, fork, parked_pages, max_mappings, .. } = self;
        let rest = Config {
            backing: (),
            block,
            page,
            align,
            least,
            purge,
            clock,
            owners,
            fork,
            parked_pages,
            max_mappings,
        };
        (backing, rest)
    }
}

impl Default for Config {
    /// Returns the default configuration over private memory.
    fn default() -> Config {
        Config::over(Anonymous::new())
    }
}

/// Bound on a piece of background work, counted in blocks, not in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most blocks to purge.
    pub blocks: usize,
}

impl Budget {
    /// No bound: everything that is idle or due.
    pub const ALL: Budget = Budget { blocks: usize::MAX };
}
