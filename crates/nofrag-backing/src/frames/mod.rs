//! Page frames that are memory: a file in memory, handed out by the core's page allocator.
//!
//! Frame *n* is the *n*-th page of the file. All frames can be seen through the *window*, one mapping of the whole file
//! that stays, and any of them can be mapped elsewhere besides. [`PageAllocator`] decides, under any of its policies,
//! which frame a request gets, so that large blocks can still be had tomorrow.
//!
//! **Sharing.** Every method takes `&self` and may be called from any thread. [`Sharing`] says whether all owners share
//! one allocator behind one lock, or each has an allocator for some pageblocks of its own (docs/decisions/0020 has the
//! figures). Whole free pageblocks move between those; a request that finds no room at home and no pageblock to take
//! over is served by a neighbour. A block goes back to the allocator of its pageblock.
//!
//! **Contents.** New memory is zero, and so is purged memory. A frame that was handed out once is *dirty*, until a
//! purge has given it back: a request says whether it minds ([`Fill`]). [`Frames::purge`] gives free pageblocks back,
//! whole and with one call for each run of them, with no lock held meanwhile.
//!
//! **Other users of a frame.** A block that is mapped is *held*: giving it back takes effect when the last mapping has
//! ended, for until then its user could see the next one's writes. And a block has a [`Use`], which names the party to
//! ask before the block is moved. Parties that move blocks implement [`Residents`], which is called with no lock held.
//! From the moment in which a move is done the block's owner knows the block by its new name only, and may give it back
//! by that name though the allocator has not heard of it yet: this module translates.
//!
//! **Fork.** The memory is shared: a child sees the frames and later writes to them. The books are not: a child is
//! handed no block, and purges and moves nothing, or it would write to memory that its parent has handed out. It should
//! not ask for anything else of the `Frames` either, whose locks another thread may have held; but it may exec, exit,
//! read and write.
//!
//! Bottom up: `word` (the state of a block), `window` (the memory), `shard` (a lock that counts), `serve` (how a
//! request is driven), `purge` (zeros), `stats` (counts, and the laws).

mod purge;
mod serve;
mod shard;
mod stats;
mod window;
mod word;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, RwLock, Weak};

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::page::{
    FragmentationPolicy, FreeError, MapError, MemoryMap, Migratetype, MinFree, PageAllocator,
    PageConfig, PageConfigError,
};
use nofrag::units::{Order, PageCount, Pfn};
use rustix::io::Errno;

use crate::forks::Forks;
use crate::sys;
use crate::zeroed::{NoMemory, collected};
use purge::Dirty;
use shard::Shard;
use window::{BLOCK_BYTES, Window};
use word::{Word, Words};

pub use purge::Purged;
pub use serve::Residents;
pub use stats::FrameStats;
pub use word::Use;

/// The most owners with an allocator of their own: each costs metadata for all frames.
pub const MAX_SHARDS: u32 = 16;

/// Configuration of page frames: their memory, policy and owners.
#[derive(Clone, Debug)]
pub struct FramesConfig {
    /// Bytes of memory, rounded up to pageblocks of 2 MiB. None of it is touched before it is used.
    pub bytes: u64,
    /// The policy against fragmentation. Watermarks are not boosted: no background reclaim would lower them again.
    pub policy: FragmentationPolicy,
    /// Number of owners: processors, or threads.
    pub owners: u32,
    pub sharing: Sharing,
}

impl FramesConfig {
    /// Returns a configuration with one owner and our own policy.
    #[must_use]
    pub const fn new(bytes: u64) -> FramesConfig {
        let policy = FragmentationPolicy::NOFRAG;
        FramesConfig { bytes, policy, owners: 1, sharing: Sharing::Lock }
    }
}

/// The ways in which owners share the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// One allocator behind one lock.
    Lock,
    /// An allocator for each owner (up to [`MAX_SHARDS`]), over pageblocks that move between them.
    Shards,
}

/// Why frames were not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramesError {
    #[error("no frames were asked for; ask for at least a byte")]
    Empty,
    /// No owners, or more than [`nofrag::page::MAX_CPUS`].
    #[error("{0} owners; there must be 1 to {max}", max = nofrag::page::MAX_CPUS)]
    Owners(u32),
    /// More frames than can be numbered.
    #[error("too many frames: {0}")]
    TooMany(#[from] MapError),
    #[error("the page allocator: {0}")]
    Allocator(#[from] PageConfigError),
    #[error("no memory for the books of the frames")]
    OutOfMetadata,
    #[error("the system refused: {0}")]
    System(#[from] Errno),
}

/// A block of frames that was handed out: `2^order` frames from `pfn` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameBlock {
    pub pfn: Pfn,
    pub order: Order,
}

impl FrameBlock {
    /// Returns the frame behind the block's last one, at most `u64::MAX`, which no block that was handed out reaches.
    #[must_use]
    pub const fn end(self) -> Pfn {
        Pfn(self.pfn.0.saturating_add(self.order.pages()))
    }

    /// Returns the offset of the block's first byte in the file, at most `u64::MAX`, which no file reaches.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.pfn.0.saturating_mul(1 << sys::PAGE)
    }

    /// Returns its length in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        (self.order.pages() as usize) << sys::PAGE
    }
}

/// The contents that a block shall have when it is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fill {
    #[default]
    Zeroed,
    /// Any contents, perhaps those of another owner: for users that overwrite all of the block.
    Anything,
}

/// The effort for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Effort {
    /// Only free blocks are handed out.
    AtHand,
    /// If no block is free, [`Residents`] are asked to give back and to move.
    #[default]
    Reclaim,
}

/// A request for a block of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRequest {
    pub order: Order,
    /// The migratetype of the block; one of [`Migratetype::MOBILITY`]. It decides on the block's neighbours; only a
    /// block with a [`Use`] that names its owner is moved.
    pub migratetype: Migratetype,
    pub fill: Fill,
    pub effort: Effort,
}

impl FrameRequest {
    /// Returns a request for a block of zeros, for which everything is tried.
    #[must_use]
    pub const fn new(order: Order, migratetype: Migratetype) -> FrameRequest {
        FrameRequest { order, migratetype, fill: Fill::Zeroed, effort: Effort::Reclaim }
    }

    /// Returns the same request for other contents.
    #[must_use]
    pub const fn fill(self, fill: Fill) -> FrameRequest {
        FrameRequest { fill, ..self }
    }

    /// Returns the same request with other effort.
    #[must_use]
    pub const fn effort(self, effort: Effort) -> FrameRequest {
        FrameRequest { effort, ..self }
    }
}

/// Why no block was handed out. Nothing changed, except that blocks may have been given back or moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No free block is large enough, and none could be made. A block up to the order `largest` may be had, or several.
    #[error("no block of order {order}: {free} frames are free, the largest block has order {}",
        largest.map_or(-1, |order| i32::from(order.get())))]
    Exhausted {
        order: Order,
        /// Number of free frames, in blocks or pieces that are too small or of other owners.
        free: PageCount,
        largest: Option<Order>,
    },
    /// The request is for a type that only pageblocks can have.
    #[error(
        "blocks of type {0} cannot be asked for; ask for unmovable, movable or reclaimable ones"
    )]
    Type(Migratetype),
    /// There is no memory for the list of the blocks of one area.
    #[error("no memory for a list of frames; ask for fewer")]
    OutOfMetadata,
    /// This process is a child of the one that made the frames, and knows nothing of those that its parent hands out.
    #[error("this process was forked from the one that made the frames: make others here")]
    Forked,
}

/// Why a use was not noted. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UseError {
    #[error(transparent)]
    Free(#[from] FreeError),
    #[error("the block is mapped 1023 times already")]
    TooManyHolds,
    /// The block is being moved; it will have another name soon.
    #[error("the block is being moved")]
    Moving,
    #[error("no address lies on page {0}")]
    NoSuchPage(u64),
}

/// Page frames in a file in memory, for any number of threads.
///
/// Always true:
/// 1. Each pool's allocator keeps its own laws.
/// 2. A pageblock is at home in one pool; all others have it as a block in use, for good.
/// 3. A word stands at the first frame of each block in use, with its order, and nowhere else.
/// 4. Every frame is free in one pool, in use, set aside for a move, or being purged.
/// 5. A block that waits to be given back is held.
///
/// [`check`](nofrag::check::Check::check) verifies them in O(frames), while no other thread works.
///
/// ```
/// use nofrag::page::Migratetype;
/// use nofrag::units::Order;
/// use nofrag_backing::frames::{FrameRequest, Frames, FramesConfig};
///
/// let frames = Frames::new(&FramesConfig::new(64 << 20))?;
/// let owner = frames.owners().by_rank(0).expect("there is one");
/// let block = frames.alloc(owner, FrameRequest::new(Order::ZERO, Migratetype::Movable))?;
/// let at = frames.address(block.pfn).expect("it is one of them");
/// // SAFETY: the block is ours, and the frames live on.
/// assert_eq!(unsafe { at.read() }, 0);
/// frames.free(owner, block.pfn)?;
/// assert!(frames.free(owner, block.pfn).is_err());
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Frames {
    window: Window,
    words: Words,
    dirty: Dirty,
    shards: Box<[Shard]>,
    /// The number of the pool in which each pageblock is at home.
    homes: Box<[AtomicU8]>,
    owners: CpuSet,
    /// The CPU under which a pool serves an owner that has no lists in it.
    stranger: CpuId,
    /// Held while pageblocks are in no pool: a request that has failed waits for them once.
    transit: Mutex<()>,
    residents: RwLock<Option<Weak<dyn Residents>>>,
    forks: Forks,
}

impl Frames {
    /// Makes frames that are all free and zero.
    ///
    /// # Errors
    /// [`FramesError`]; nothing is left behind.
    pub fn new(config: &FramesConfig) -> Result<Frames, FramesError> {
        let block = BLOCK_BYTES as u64;
        let bytes = config.bytes.checked_next_multiple_of(block).ok_or(MapError::TooLarge)?;
        if bytes == 0 {
            return Err(FramesError::Empty);
        }
        if config.owners == 0 || config.owners as usize > nofrag::page::MAX_CPUS {
            return Err(FramesError::Owners(config.owners));
        }
        let frames = PageCount(bytes >> sys::PAGE);
        let bytes = usize::try_from(bytes).map_err(|_| MapError::TooLarge)?;
        let (pools, lists) = match config.sharing {
            Sharing::Lock => (1, config.owners),
            Sharing::Shards => (config.owners.min(MAX_SHARDS), 1),
        };
        let blocks = bytes / BLOCK_BYTES;
        let home = |block: usize| block * pools as usize / blocks;
        let make = |pool: u32| {
            let mut pages = allocator(config.policy, frames, lists)?;
            leave_to_others(&mut pages, (0..blocks).filter(|&block| home(block) != pool as usize));
            Ok(Shard::new(pages))
        };
        let shards = (0..pools).map(make).collect::<Result<_, FramesError>>()?;
        let count = frames.0 as usize;
        let none = || FramesError::OutOfMetadata;
        let owners = CpuSet::first(config.owners + 1).map_err(|_| none())?;
        let homes = collected(blocks, (0..blocks).map(|block| AtomicU8::new(home(block) as u8)));
        let stranger = owners.by_rank(config.owners as usize).expect("the set has one more");
        Ok(Frames {
            words: Words::new(count).ok_or_else(none)?,
            dirty: Dirty::new(count).ok_or_else(none)?,
            shards,
            homes: homes.map_err(|NoMemory| none())?.into(),
            owners: CpuSet::first(config.owners).map_err(|_| none())?,
            stranger,
            transit: Mutex::new(()),
            residents: RwLock::new(None),
            forks: Forks::now()?,
            window: Window::new(bytes)?,
        })
    }

    /// Returns the owners that may allocate. An owner of another set is served too, but by no lists of its own.
    #[must_use]
    pub fn owners(&self) -> &CpuSet {
        &self.owners
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn len(&self) -> PageCount {
        PageCount((self.window.bytes() >> sys::PAGE) as u64)
    }

    /// Returns true if there are no frames: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == PageCount(0)
    }

    /// Returns the file: frame *n* begins at byte *n* times 4096. It neither grows nor shrinks; a holder of it can read
    /// and write all frames.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.window.file()
    }

    /// Returns the address at which a frame is seen, as long as the `Frames` live; `None` if there is no such frame.
    ///
    /// To read or write there is sound as long as the block belongs to the caller, and as far as no other thread writes
    /// to it at the same time.
    #[must_use]
    pub fn address(&self, pfn: Pfn) -> Option<*mut u8> {
        self.window.address(pfn)
    }

    /// Gives a block back: at once, or when its last mapping has ended.
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    pub fn free(&self, owner: CpuId, pfn: Pfn) -> Result<(), FreeError> {
        let freed = self.words.change(pfn.0, |word| match word {
            _ if word.is_none() || word.is_zombie() => None,
            _ if word.holds() > 0 => Some(word.as_zombie()),
            _ => Some(Word::NONE),
        });
        match freed {
            Ok(word) if word.holds() > 0 => Ok(()),
            Ok(_) => {
                self.give(owner, pfn);
                Ok(())
            }
            Err(_) => Err(self.why_not_in_use(pfn)),
        }
    }

    /// Gives blocks back, in order, up to the first that is refused.
    ///
    /// # Errors
    /// Those of [`free`](Self::free), with the number of blocks that were given back before.
    pub fn free_bulk(&self, owner: CpuId, blocks: &[FrameBlock]) -> Result<(), (usize, FreeError)> {
        let free = |(freed, block): (usize, &FrameBlock)| {
            self.free(owner, block.pfn).map_err(|error| (freed, error))
        };
        blocks.iter().enumerate().try_for_each(free)
    }

    /// Splits a block in use into several of `order`, each to be given back on its own. They stay where they are until
    /// their owner sets their use. A block that is not larger stays as it is.
    ///
    /// # Errors
    /// [`FreeError`] when no block in use begins at `pfn`, or it is mapped or being moved; nothing has changed then.
    pub fn split(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let mut pool = self.shards[self.home(pfn)?].lock();
        let known = pool.known_as(pfn);
        let part = |word: Word| match word.is_none() || word.is_zombie() || word.holds() > 0 {
            true => None,
            false => Some(if word.order() > order { Word::fresh(order) } else { word }),
        };
        let whole = self.words.change(pfn.0, part).map_err(|_| self.why_not(&pool.pages, pfn))?;
        if whole.order() > order {
            let split = pool.pages.set_movable(known, false);
            if let Err(why) = split.and_then(|()| pool.pages.split(known, order)) {
                // The block is being moved right now. A thread that gave it back meanwhile has struck the word.
                let undo = |word| (word == Word::fresh(order)).then_some(whole);
                let _ = self.words.change(pfn.0, undo);
                return Err(why);
            }
            let parts = (pfn.0..pfn.0 + whole.order().pages()).step_by(order.pages() as usize);
            parts.skip(1).for_each(|part| self.words.set(part, Word::fresh(order)));
        }
        Ok(())
    }

    /// Returns the use of the block in use that begins at `pfn`; `None` if none does.
    #[must_use]
    pub fn use_of(&self, pfn: Pfn) -> Option<Use> {
        self.words.get(pfn.0).used_for()
    }

    /// Returns the block in use that begins at `pfn`, if one does.
    #[must_use]
    pub fn block(&self, pfn: Pfn) -> Option<FrameBlock> {
        let word = self.words.get(pfn.0);
        (!word.is_none()).then(|| FrameBlock { pfn, order: word.order() })
    }

    /// Sets the use of a block. Unless it is [`Use::Pinned`], the block may be moved from then on, by the
    /// [`Residents`]: its owner must have published it before, and must know how to find it.
    ///
    /// # Errors
    /// [`UseError`]; nothing has changed then.
    pub fn set_use(&self, pfn: Pfn, used_for: Use) -> Result<(), UseError> {
        if let Use::Mapped { vpn } = used_for
            && Word::fresh(Order::ZERO).with_use(used_for).is_none()
        {
            return Err(UseError::NoSuchPage(vpn.0));
        }
        let mut pool = self.shards[self.home(pfn)?].lock();
        let changed = self.words.change(pfn.0, |word| match word.is_none() || word.is_zombie() {
            true => None,
            false => word.with_use(used_for),
        });
        changed.map_err(|_| self.why_not(&pool.pages, pfn))?;
        let known = pool.known_as(pfn);
        Ok(pool.pages.set_movable(known, used_for != Use::Pinned)?)
    }

    /// Counts a mapping of a block: it is not handed out again before [`release`](Self::release).
    ///
    /// # Errors
    /// [`UseError`]; nothing has changed then.
    pub fn hold(&self, pfn: Pfn) -> Result<(), UseError> {
        let held = self.words.change(pfn.0, |word| match word.is_none() || word.is_zombie() {
            true => None,
            false => word.held(),
        });
        match held {
            Ok(_) => Ok(()),
            Err(word) if word.is_none() || word.is_zombie() => Err(self.why_not_in_use(pfn).into()),
            Err(word) if word.is_claimed() => Err(UseError::Moving),
            Err(_) => Err(UseError::TooManyHolds),
        }
    }

    /// Ends a mapping of a block. If it was the last one of a block that was given back meanwhile, the block is free
    /// now.
    ///
    /// # Errors
    /// [`FreeError`] when no block in use begins at `pfn`, or it is not held; nothing has changed then.
    pub fn release(&self, owner: CpuId, pfn: Pfn) -> Result<(), FreeError> {
        let released = self.words.change(pfn.0, |word| {
            let word = word.released()?;
            Some(if word.is_zombie() && word.holds() == 0 { Word::NONE } else { word })
        });
        match released {
            Ok(word) => {
                if word.is_zombie() && word.holds() == 1 {
                    self.give(owner, pfn);
                }
                Ok(())
            }
            Err(word) if word.is_none() => Err(self.why_not_in_use(pfn)),
            Err(_) => Err(FreeError::DoubleFree(pfn)),
        }
    }

    /// Returns the number of a CPU that is not an owner: for frames that are not given back on behalf of an owner.
    pub(crate) fn stranger(&self) -> CpuId {
        self.stranger
    }

    /// Returns true if the block is in use and mapped.
    pub(crate) fn is_held(&self, pfn: Pfn) -> bool {
        self.words.get(pfn.0).holds() > 0
    }

    /// Gives a block, whose word is struck already, back to the pool where it is at home.
    fn give(&self, owner: CpuId, pfn: Pfn) {
        let home = self.home(pfn).expect("a word stands at frames alone");
        let mut pool = self.shards[home].lock();
        let known = pool.known_as(pfn);
        let freed = pool.pages.free(self.lists_of(owner, home), known);
        freed.expect("a word stands where a block in use begins");
    }

    /// Returns the pool in which a frame's pageblock is at home. It stays there as long as a block of it is in use.
    fn home(&self, pfn: Pfn) -> Result<usize, FreeError> {
        let block = usize::try_from(pfn.0 >> Order::PAGEBLOCK.get()).ok();
        let home = block.and_then(|block| self.homes.get(block)).ok_or(FreeError::Unknown(pfn))?;
        // Pairs with the release in `adopt`: the pool of that name has the pageblock already.
        Ok(usize::from(home.load(Ordering::Acquire)))
    }

    /// Returns the pool that serves an owner first.
    fn pool_of(&self, owner: CpuId) -> usize {
        owner.rank() % self.shards.len()
    }

    /// Returns the CPU whose lists in a pool serve an owner.
    fn lists_of(&self, owner: CpuId, pool: usize) -> CpuId {
        match self.shards.len() {
            1 => owner,
            _ if owner.rank() == pool => self.owners.by_rank(0).expect("there is an owner"),
            _ => self.stranger,
        }
    }

    fn why_not_in_use(&self, pfn: Pfn) -> FreeError {
        match self.home(pfn) {
            Ok(home) => self.why_not(&self.shards[home].lock().pages, pfn),
            Err(error) => error,
        }
    }

    /// Says why no block in use begins at `pfn`.
    fn why_not(&self, pages: &PageAllocator, pfn: Pfn) -> FreeError {
        match pages.frame(pfn) {
            None => FreeError::Unknown(pfn),
            Some((_, head, _)) if head != pfn && !self.words.get(head.0).is_none() => {
                FreeError::NotAHead { head }
            }
            Some(_) => FreeError::DoubleFree(pfn),
        }
    }
}

/// Makes an allocator over all frames that holds no minimum of them back.
fn allocator(
    policy: FragmentationPolicy,
    frames: PageCount,
    lists: u32,
) -> Result<PageAllocator, FramesError> {
    let map = MemoryMap::uma(frames, 0, lists)?;
    let config = PageConfig {
        min_free: MinFree::Pages(0),
        watermark_scale_factor: 1,
        ..PageConfig::new(map, policy)
    };
    let mut pages = PageAllocator::new(&config)?;
    // A boost asks kswapd for more free memory, and hides some until it has run. Here it never runs.
    let _ = pages.set_boost_factor(0);
    Ok(pages)
}

/// Takes the pageblocks that other pools have out of an allocator.
fn leave_to_others(pages: &mut PageAllocator, blocks: impl Iterator<Item = usize>) {
    for block in blocks {
        let pfn = Pfn((block as u64) << Order::PAGEBLOCK.get());
        pages.alloc_at(pfn, Order::PAGEBLOCK).expect("all frames are free");
    }
}
