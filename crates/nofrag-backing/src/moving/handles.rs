//! Handles: blocks of frames that users pin for as long as they use them, and that move in between.
//!
//! A handle names a block, never its place. A user of the block pins it and gets its words; while it is not pinned,
//! compaction may copy it to another place and note that there. No page table changes, so a move needs no system call
//! and no budget of mappings.
//!
//! A handle that was given back stays refused for good: a slot has a generation besides its block, of 64 bits, which no
//! slot ever exhausts. It begins at random, so that handles of another table are refused too.
//!
//! Cost: pinning is two atomic operations and two loads; a move is one atomic operation and the copy.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nofrag::check::{Check, Violation};
use nofrag::cpu::CpuId;
use nofrag::page::{Migrate, Migratetype, Move, MoveResults, Moves};
use nofrag::units::{Order, Pfn};
use rustix::io::Errno;

use super::pins::{Patience, Pin, PinError, Pinned, Pins};
use crate::forks::Forks;
use crate::frames::{
    Effort, FrameBlock, FrameError, FrameRequest, Frames, FramesConfig, FramesError, Residents, Use,
};
use crate::sys::{self, PAGE};
use crate::zeroed::{NoMemory, collected};

const WORDS: usize = (1 << PAGE) / size_of::<u64>();

/// The patience of a move with the last pin of a block.
const PATIENCE: Patience = Patience::SHORT;

const POISONED: &str = "no thread panicked while it held this lock";

/// Name of a block. It is valid until the block is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    id: u32,
    generation: u64,
}

/// Why a handle could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// This process is a child of the one that made the handles, which goes on moving and reusing the blocks.
    #[error("this process was forked from the one that made the handles: make others here")]
    Forked,
    /// The block was given back.
    #[error("the block of this handle was given back")]
    Stale,
    /// The block could not be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    #[error(transparent)]
    Pinned(#[from] Pinned),
    /// The block is smaller than a huge page.
    #[error("a block of order {0} is smaller than a huge page of 2 MiB")]
    Small(Order),
    #[error("the system refused: {0}")]
    System(#[from] Errno),
}

/// Why no block was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHandle {
    /// This process is a child of the one that made the handles, which goes on handing out the same memory.
    #[error("this process was forked from the one that made the handles: make others here")]
    Forked,
    /// All handles are in use.
    #[error("all {0} handles are in use")]
    Full(u32),
    #[error(transparent)]
    Frames(#[from] FrameError),
}

/// A handle's block.
///
/// 1. `place` is the first frame of the block, in use for this handle alone, with its order; without a block `NOWHERE`.
///    Only the holder of the slot's [`Moving`](super::pins::Moving) changes it.
#[derive(Debug)]
struct Slot {
    pins: Pins,
    generation: AtomicU64,
    /// `pfn << 8 | order`.
    place: AtomicU64,
}

const NOWHERE: u64 = u64::MAX;

impl Slot {
    fn block(&self) -> Option<FrameBlock> {
        // Acquire: pairs with the release of `put`. Under a pin or a move it does not change.
        let place = self.place.load(Ordering::Acquire);
        let order = Order::new(place as u8)?;
        Some(FrameBlock { pfn: Pfn(place >> 8), order })
    }

    fn put(&self, block: FrameBlock) {
        // Release: pairs with the acquire of `block`.
        self.place.store(block.pfn.0 << 8 | u64::from(block.order.get()), Ordering::Release);
    }
}

/// Blocks of frames by handles, for any number of threads.
///
/// 1. A handle's block is in use, and its use is the handle. It is given back through the handle alone.
/// 2. A slot is on the list of free ones, or has a block, or is about to.
///
/// A child of a fork has the memory, but not the books, which the parent goes on changing: there everything is refused,
/// and nothing is given back.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use nofrag::units::Order;
/// use nofrag_backing::frames::FramesConfig;
/// use nofrag_backing::moving::Handles;
///
/// let handles = Handles::new(&FramesConfig::new(16 << 20), 1000)?;
/// let owner = handles.owners().by_rank(0).expect("there is one");
/// let handle = handles.alloc(owner, Order::ZERO)?;
/// handles.pin(handle)?[0].store(7, Ordering::Relaxed);
/// handles.compact();
/// assert_eq!(handles.pin(handle)?[0].load(Ordering::Relaxed), 7);
/// handles.free(owner, handle)?;
/// assert!(handles.pin(handle).is_err());
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handles {
    frames: Arc<Frames>,
    slots: Box<[Slot]>,
    free: Mutex<Vec<u32>>,
    process: Forks,
}

/// The words of a block, which stays at its place as long as this lives.
#[derive(Debug)]
pub struct PinnedBlock<'a> {
    words: &'a [AtomicU64],
    block: FrameBlock,
    _pin: Pin<'a>,
}

impl PinnedBlock<'_> {
    /// Returns the block with its present place.
    #[must_use]
    pub fn block(&self) -> FrameBlock {
        self.block
    }
}

impl Deref for PinnedBlock<'_> {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        self.words
    }
}

impl Handles {
    /// Makes a table for up to `capacity` handles over frames of its own; no more handles than there are frames.
    ///
    /// # Errors
    /// [`FramesError`].
    pub fn new(config: &FramesConfig, capacity: u32) -> Result<Arc<Handles>, FramesError> {
        let frames = Arc::new(Frames::new(config)?);
        let handles = Arc::new(Handles::of(Arc::clone(&frames), capacity)?);
        let residents: Arc<dyn Residents> = Arc::clone(&handles) as _;
        frames.register(Arc::downgrade(&residents));
        Ok(handles)
    }

    /// Makes a table for up to `capacity` handles over frames that others use too. The residents that are registered
    /// with the frames must pass moves of blocks whose use is a handle on to the result.
    ///
    /// # Errors
    /// [`FramesError::OutOfMetadata`].
    ///
    /// # Safety
    /// Other users of the frames act only on blocks that they took themselves: a block with a handle is not theirs,
    /// though its number is known. That is: they do not read or write it, and call none of [`Frames::free`],
    /// [`Frames::moved`], [`Frames::split`], [`Frames::set_use`], [`Frames::hold`] and [`Frames::release`] for it or
    /// for the target of its move, nor give it a handle's use.
    pub unsafe fn over(frames: Arc<Frames>, capacity: u32) -> Result<Handles, FramesError> {
        Handles::of(frames, capacity)
    }

    fn of(frames: Arc<Frames>, capacity: u32) -> Result<Handles, FramesError> {
        let process = Forks::now()?;
        // Each block takes a frame at least.
        let capacity = u64::from(capacity).min(frames.len().get()) as u32;
        let first = RandomState::new().build_hasher().finish();
        let slot = |_| Slot {
            pins: Pins::new(),
            generation: AtomicU64::new(first),
            place: AtomicU64::new(NOWHERE),
        };
        let count = capacity as usize;
        let slots = collected(count, (0..capacity).map(slot));
        let slots = slots.map_err(|NoMemory| FramesError::OutOfMetadata)?;
        let free = collected(count, (0..capacity).rev());
        let free = Mutex::new(free.map_err(|NoMemory| FramesError::OutOfMetadata)?);
        Ok(Handles { frames, slots: slots.into_boxed_slice(), free, process })
    }

    /// Returns the owners that may allocate.
    #[must_use]
    pub fn owners(&self) -> &nofrag::cpu::CpuSet {
        self.frames.owners()
    }

    pub(super) fn frames(&self) -> &Arc<Frames> {
        &self.frames
    }

    /// Returns the counts of the frames.
    #[must_use]
    pub fn stats(&self) -> crate::frames::FrameStats {
        self.frames.stats()
    }

    /// Puts the blocks that owners keep on their lists back, so that they can merge.
    pub fn drain(&self) {
        if self.process.is_same() {
            self.frames.drain();
        }
    }

    /// Allocates a block of zeros. If none is at hand, other blocks are moved for it.
    ///
    /// # Errors
    /// [`NoHandle`].
    pub fn alloc(&self, owner: CpuId, order: Order) -> Result<Handle, NoHandle> {
        self.take(owner, order, Effort::Reclaim)
    }

    /// Allocates a block if one is at hand: nothing is moved for it.
    ///
    /// # Errors
    /// [`NoHandle`].
    pub fn alloc_at_hand(&self, owner: CpuId, order: Order) -> Result<Handle, NoHandle> {
        self.take(owner, order, Effort::AtHand)
    }

    fn take(&self, owner: CpuId, order: Order, effort: Effort) -> Result<Handle, NoHandle> {
        if !self.process.is_same() {
            return Err(NoHandle::Forked);
        }
        let id = self.free.lock().expect(POISONED).pop();
        let id = id.ok_or(NoHandle::Full(self.slots.len() as u32))?;
        let request = FrameRequest::new(order, Migratetype::Movable).effort(effort);
        let block = match self.frames.alloc(owner, request) {
            Ok(block) => block,
            Err(why) => {
                self.free.lock().expect(POISONED).push(id);
                return Err(why.into());
            }
        };
        let slot = &self.slots[id as usize];
        slot.put(block);
        // Relaxed: only the thread that frees the slot changes it, and the list's lock stands between.
        let generation = slot.generation.load(Ordering::Relaxed);
        let noted = self.frames.set_use(block.pfn, Use::Handle { id });
        noted.expect("the block was just taken, and nobody else gives it back");
        Ok(Handle { id, generation })
    }

    /// Pins a block and returns its words. The block does not move as long as the result lives.
    ///
    /// # Errors
    /// [`HandleError::Stale`]; [`HandleError::Pin`], but never because of a move.
    #[inline]
    pub fn pin(&self, handle: Handle) -> Result<PinnedBlock<'_>, HandleError> {
        if !self.process.is_same() {
            return Err(HandleError::Forked);
        }
        let slot = self.slots.get(handle.id as usize).ok_or(HandleError::Stale)?;
        let pin = slot.pins.pin()?;
        let block = self.current(slot, handle).ok_or(HandleError::Stale)?;
        let at = self.frames.address(block.pfn).expect("a block is among the frames");
        let count = WORDS << block.order.get();
        // SAFETY: the block is in use for this handle (law 1 of the slot), is not given back or moved as long as the
        // pin is held, and lies in the window, which lives as long as the frames, and those as long as `self`. All
        // access is atomic, except that of a move, which finds no pin.
        let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), count) };
        Ok(PinnedBlock { words, block, _pin: pin })
    }

    /// Returns the block of `handle`, if the handle is the slot's present one. To be called under a pin or a move.
    fn current(&self, slot: &Slot, handle: Handle) -> Option<FrameBlock> {
        // Relaxed: the generation changes under a move alone, and that ends before a pin begins.
        let current = slot.generation.load(Ordering::Relaxed) == handle.generation;
        slot.block().filter(|_| current)
    }

    /// Gives a block back.
    ///
    /// # Errors
    /// [`HandleError::Stale`], and [`HandleError::Pinned`] while it is pinned; nothing has changed then.
    pub fn free(&self, owner: CpuId, handle: Handle) -> Result<(), HandleError> {
        if !self.process.is_same() {
            return Err(HandleError::Forked);
        }
        let slot = self.slots.get(handle.id as usize).ok_or(HandleError::Stale)?;
        let moving = loop {
            match slot.pins.begin_move(PATIENCE) {
                Ok(moving) => break moving,
                // The block is being copied to another place, or given back: either ends soon.
                Err(Pinned::Moving) => std::thread::yield_now(),
                // The slot's next block may be in use.
                Err(_) if self.is_stale(handle) => return Err(HandleError::Stale),
                Err(why) => return Err(why.into()),
            }
        };
        let block = self.current(slot, handle).ok_or(HandleError::Stale)?;
        slot.generation.store(handle.generation.wrapping_add(1), Ordering::Relaxed);
        slot.place.store(NOWHERE, Ordering::Release);
        drop(moving);
        let freed = self.frames.free(owner, block.pfn);
        freed.expect("the block was this handle's, and nobody else gives it back");
        self.free.lock().expect(POISONED).push(handle.id);
        Ok(())
    }

    fn is_stale(&self, handle: Handle) -> bool {
        self.slots[handle.id as usize].generation.load(Ordering::Relaxed) != handle.generation
    }

    /// Makes a real huge page of each 2 MiB of a block, under any settings of the system for huge pages
    /// (`MADV_COLLAPSE`). Pages that were never touched have memory after that.
    ///
    /// # Errors
    /// [`HandleError::Small`] for a block of less than 2 MiB; `INVAL` from kernels before 6.1, and other errors of
    /// `madvise`. The contents stay in any case.
    pub fn collapse(&self, handle: Handle) -> Result<(), HandleError> {
        let pinned = self.pin(handle)?;
        if pinned.block.order < Order::PAGEBLOCK {
            return Err(HandleError::Small(pinned.block.order));
        }
        let at = self.frames.address(pinned.block.pfn).expect("a block is among the frames");
        // SAFETY: the range is the pinned block's, in the window; the advice changes no contents.
        Ok(unsafe { sys::madvise(at.cast(), pinned.block.bytes(), sys::MADV_COLLAPSE) }?)
    }

    /// Moves blocks that are not pinned together, so that large blocks become free. Returns the outcome in pages.
    pub fn compact(&self) -> nofrag::page::Landed {
        if !self.process.is_same() {
            return nofrag::page::Landed::default();
        }
        self.frames.compact()
    }

    /// Moves one block, if it is a handle's and the frames ask for the move.
    pub(super) fn migrate_pair(&self, pair: Move) -> bool {
        if !self.process.is_same() {
            return false;
        }
        let Move { from, to, order } = pair;
        // A thread that gave the block back meanwhile has struck its use.
        let Some(Use::Handle { id }) = self.frames.use_of(from) else { return false };
        let Some(slot) = self.slots.get(id as usize) else { return false };
        let Ok(_moving) = slot.pins.begin_move(PATIENCE) else { return false };
        let Some(_carry) = self.frames.carry(pair) else { return false };
        let block = FrameBlock { pfn: from, order };
        let (Some(source), Some(target)) = (self.frames.address(from), self.frames.address(to))
        else {
            return false;
        };
        if slot.block() != Some(block) {
            return false;
        }
        // SAFETY: the source is a block in use of ours that is not pinned and cannot be pinned now; the target was set
        // aside by the frames for this very move, so it is of the same size, and no other block's as long as `_carry`
        // lives, whichever thread calls this.
        unsafe { ptr::copy_nonoverlapping(source, target, block.bytes()) };
        let moved = self.frames.moved(from, to).is_ok();
        if moved {
            slot.put(FrameBlock { pfn: to, order });
        }
        moved
    }
}

impl Migrate for &Handles {
    fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool {
        self.migrate_pair(Move { from, to, order })
    }
}

impl Residents for Handles {
    fn move_frames(&self, moves: &Moves) -> MoveResults {
        moves.carry_out(&mut &*self)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        if !self.process.is_same() {
            return;
        }
        // Other users may go on with the frames. No pin is held: pins borrow the table.
        let owner = self.frames.owners().by_rank(0).expect("there is an owner");
        for block in self.slots.iter().filter_map(Slot::block) {
            let freed = self.frames.free(owner, block.pfn);
            debug_assert!(freed.is_ok(), "nobody else gives it back");
        }
    }
}

impl Check for Handles {
    /// Checks in O(handles + frames), while no other thread works.
    fn check(&self) -> Result<(), Violation> {
        self.frames.check()?;
        let free = self.free.lock().expect(POISONED);
        let mut used = 0;
        for (id, slot) in self.slots.iter().enumerate() {
            let Some(block) = slot.block() else { continue };
            used += 1;
            let law = "1. a handle's block is in use, and says so";
            let said = self.frames.use_of(block.pfn) == Some(Use::Handle { id: id as u32 });
            let whole = self.frames.block(block.pfn) == Some(block);
            Violation::unless(law, block.pfn.0, said && whole)?;
        }
        let law = "2. a slot is free, or has a block";
        let all = self.slots.len() as u64;
        Violation::unless_equal(law, 0, all, used + free.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses one slot for more than 2^32 blocks, one after the other: no earlier handle is valid again. While
    /// generations had 32 bits, the slot was given up at that point.
    #[test]
    fn a_slot_outlives_four_billion_handles() {
        let handles = Handles::new(&FramesConfig::new(4 << 20), 1).unwrap();
        let owner = handles.owners().by_rank(0).unwrap();
        let mut old = vec![handles.alloc(owner, Order::ZERO).unwrap()];
        handles.free(owner, old[0]).unwrap();
        handles.slots[0].generation.store(u64::from(u32::MAX) - 1, Ordering::Relaxed);
        for _ in 0..4 {
            let handle = handles.alloc(owner, Order::ZERO).unwrap();
            for &old in &old {
                assert_eq!(handles.pin(old).err(), Some(HandleError::Stale));
                assert_eq!(handles.free(owner, old), Err(HandleError::Stale));
            }
            handles.free(owner, handle).unwrap();
            handles.check().unwrap();
            old.push(handle);
        }
        assert_eq!(handles.slots[0].generation.load(Ordering::Relaxed), (1 << 32) + 2);
    }
}
