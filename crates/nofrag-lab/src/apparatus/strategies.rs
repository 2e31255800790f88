//! Ways to hand out runs of pages and to take them back.
//!
//! A [`Bench`] serves requests in one of these ways ([`Strategy`]), from nothing but a bump pointer in blocks of
//! 4 MiB: this measures the cost of the *memory*, and next to nothing of that of an allocator of addresses. A
//! block whose pages have all been handed out and all come back is empty: it is purged, if the strategy is to do so
//! block by block, and used again.
//!
//! A request names a slot; the run in that slot is given back first. So as many runs are live as there are slots. The
//! library's own way, an [`ArenaBench`], serves the same requests.
//!
//! Source: docs/sources/backing.md#strategies, #r9.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nofrag::mmap::Protection;
use nofrag_backing::arena::{Arena, Config, OwnerId, Owners, Purge, Run};
use nofrag_backing::backend::{Anonymous, Backend, BackendError, Op, OpResult, Va};
use nofrag_backing::faults::{self, Calls};
use nofrag_backing::reservation::Reservation;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::sys::{self, PAGE};
use crate::usage::thread_time;

/// The ways in which runs come and go, by their names in the published figures; the most costly kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(crate) enum Strategy {
    /// Each run is mapped at an address that the kernel chooses, and unmapped.
    MapEach,
    /// Each run is mapped at an address of ours, and replaced by addresses without memory.
    MapOwn,
    /// Each run is mapped at an address of ours; a block is replaced at once when it is empty.
    MapOwnBlock,
    /// A file in memory, mapped once; each run is punched out of it.
    FilePunchEach,
    /// A file in memory, mapped once; an empty block is punched out at once.
    FilePunchBlock,
    /// A file in memory, mapped once; an empty block's pages are only unmapped (`MADV_DONTNEED`), and stay in the file.
    FileDropBlock,
    /// Private memory, mapped once; each run is purged (`MADV_DONTNEED`).
    PurgeEach,
    /// Private memory, mapped once; an empty block is purged at once.
    PurgeBlock,
    /// Private memory, mapped once; runs are purged 64 at a time, wherever they lie (`process_madvise`, where the
    /// kernel allows it).
    PurgeScattered,
    /// Private memory, mapped once, and never given back.
    Parked,
}

impl Strategy {
    pub(crate) const ALL: &[Strategy] = <Strategy as strum::VariantArray>::VARIANTS;

    /// Returns true if the memory is a file's.
    fn has_file(self) -> bool {
        matches!(self, Strategy::FilePunchEach | Strategy::FilePunchBlock | Strategy::FileDropBlock)
    }
}

/// The pages of a run to which its user writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Touched {
    First,
    All,
}

/// A request for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The slot of the run; the run that is in it is given back.
    pub(crate) slot: u16,
    /// Pages of the run, at least 1 and at most [`MOST_PAGES`].
    pub(crate) pages: u16,
}

/// Pages of the largest run.
pub(crate) const MOST_PAGES: u16 = 64;

/// The costs of some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Took {
    /// Processor time of this thread.
    pub(crate) processor: Duration,
    pub(crate) wall: Duration,
    /// System calls on memory that were made.
    pub(crate) calls: Calls,
}

/// Pages of a block: 4 MiB.
const BLOCK_PAGES: usize = 1024;
/// Blocks of a bench: sixteen times as many pages as 64 live runs of the largest size have.
const BLOCKS: usize = 64;
/// Runs that are purged together wherever they lie.
const SCATTERED: usize = 64;

/// A server of requests, on the thread that holds it.
pub(crate) trait Serve: Send {
    /// Returns the number of slots.
    fn slots(&self) -> usize;

    /// Gives back the run in the slot of a request, and puts another there; returns its first byte. As many pages as
    /// were asked for are mapped from there on, writable, and no other run's as long as this one is in its slot.
    ///
    /// # Errors
    /// `NOMEM` when live runs keep every block; else errors of the system calls.
    fn replace(&mut self, request: Request) -> io::Result<*mut u8>;

    /// Returns the pages that the server has given back to the system so far; 0 if it does not count them.
    fn purged(&self) -> u64 {
        0
    }

    /// Serves `requests` one after the other and returns their costs.
    ///
    /// # Errors
    /// Those of [`replace`](Serve::replace).
    ///
    /// # Panics
    /// If a request names no slot, or a size that is not allowed.
    fn serve(&mut self, requests: &[Request], touched: Touched) -> io::Result<Took> {
        let slots = self.slots();
        let fits = |request: &Request| {
            usize::from(request.slot) < slots && (1..=MOST_PAGES).contains(&request.pages)
        };
        assert!(requests.iter().all(fits), "requests are for slots and sizes that there are");
        let calls = faults::made();
        let (processor, wall) = (thread_time(), Instant::now());
        for request in requests {
            let start = self.replace(*request)?;
            let pages = match touched {
                Touched::First => 1,
                Touched::All => usize::from(request.pages),
            };
            for page in 0..pages {
                // SAFETY: the page belongs to a run that was handed out a moment ago, so it is mapped, writable and
                // this server's alone (`replace`); no reference to it exists.
                unsafe { start.add(page * PAGE).write_volatile(1) };
            }
        }
        let wall = wall.elapsed();
        let processor = thread_time().saturating_sub(processor);
        Ok(Took { processor, wall, calls: faults::made().since(&calls) })
    }
}

/// A run that is live.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: usize,
    pages: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Pages handed out, from the first on.
    used: usize,
    /// Pages that have not come back.
    live: usize,
}

/// A bench that serves requests in one way.
///
/// 1. A run of `slots` lies in mapped memory of this bench that may be read and written: for `MapEach` in a mapping of
///    its own, else in `memory`.
/// 2. No two runs overlap: pages of a block are handed out from the first on, and again when all have come back.
#[derive(Debug)]
pub(crate) struct Bench {
    strategy: Strategy,
    memory: Memory,
    file: Option<OwnedFd>,
    slots: Vec<Option<Part>>,
    blocks: Vec<Block>,
    /// The block that hands out pages; `empty` has the blocks that are empty.
    current: usize,
    empty: Vec<usize>,
    /// Runs that wait to be purged together.
    waiting: Vec<Part>,
}

/// Source of a bench's addresses.
#[derive(Debug)]
enum Memory {
    /// The kernel chooses an address for each run.
    Kernel,
    Own(Reservation),
    /// A backend's range, for purges of many ranges at a time.
    Backend(Box<Anonymous>, Va),
}

impl Bench {
    /// Returns a bench with `slots` slots, all empty.
    ///
    /// # Errors
    /// Errors of `mmap`, `memfd_create` and `ftruncate`.
    ///
    /// # Panics
    /// If there are more slots than half of all pages make runs of the largest size.
    pub(crate) fn new(strategy: Strategy, slots: u16) -> io::Result<Bench> {
        assert!(usize::from(slots) * usize::from(MOST_PAGES) <= BLOCKS * BLOCK_PAGES / 2);
        let bytes = BLOCKS * BLOCK_PAGES * PAGE;
        let memory = match strategy {
            Strategy::MapEach => Memory::Kernel,
            Strategy::MapOwn | Strategy::MapOwnBlock => Memory::Own(own(bytes, Protection(0))?),
            Strategy::PurgeScattered => {
                let backend = Box::new(Anonymous::new());
                let at = backend.reserve(bytes as u64, PAGE as u64, None).map_err(explain)?;
                let phys = backend.create(bytes as u64);
                let phys = phys.map_err(explain)?;
                let map = Op::Map { va: at, phys, offset: 0, bytes: bytes as u64 };
                let mut done = [Ok(())];
                backend.submit(&[map], &mut done);
                done[0].map_err(explain)?;
                small_pages_only(at.0 as usize, bytes);
                Memory::Backend(backend, at)
            }
            _ => Memory::Own(own(bytes, Protection::READ_WRITE)?),
        };
        let file = match &memory {
            Memory::Own(own) if strategy.has_file() => Some(file_over(own, bytes)?),
            _ => None,
        };
        Ok(Bench {
            strategy,
            memory,
            file,
            slots: vec![None; usize::from(slots)],
            blocks: vec![Block::default(); BLOCKS],
            current: 0,
            empty: (1..BLOCKS).rev().collect(),
            waiting: Vec::new(),
        })
    }

    fn base(&self) -> usize {
        match &self.memory {
            Memory::Kernel => 0,
            Memory::Own(memory) => memory.start() as usize,
            Memory::Backend(_, at) => at.0 as usize,
        }
    }

    fn take(&mut self, pages: usize) -> io::Result<Part> {
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        if matches!(self.memory, Memory::Kernel) {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
            let at = unsafe { sys::mmap_anonymous(ptr::null_mut(), pages * PAGE, allowed, flags) }?;
            return Ok(Part { at: at.expose_provenance(), pages });
        }
        if self.blocks[self.current].used + pages > BLOCK_PAGES {
            self.turn_to_next_block()?;
        }
        let block = &mut self.blocks[self.current];
        let first = self.current * BLOCK_PAGES + block.used;
        block.used += pages;
        block.live += pages;
        let run = Part { at: self.base() + first * PAGE, pages };
        if matches!(self.strategy, Strategy::MapOwn | Strategy::MapOwnBlock) {
            over(run.at, pages * PAGE, allowed)?;
        }
        Ok(run)
    }

    /// Hands out from another block from now on. The old one may be empty already.
    fn turn_to_next_block(&mut self) -> io::Result<()> {
        let full = self.current;
        if self.empty.is_empty() {
            // The waiting runs may be all that keeps a block from being empty.
            self.purge_waiting()?;
        }
        self.current = self.empty.pop().ok_or(Errno::NOMEM)?;
        // The rest of the block is never handed out.
        self.blocks[full].used = BLOCK_PAGES;
        if self.blocks[full].live == 0 { self.emptied(full) } else { Ok(()) }
    }

    fn give_back(&mut self, run: Part) -> io::Result<()> {
        let Part { at, pages } = run;
        let bytes = pages * PAGE;
        match self.strategy {
            Strategy::MapEach => {
                // SAFETY: it was mapped for this run alone (law 1), which has just left its slot.
                return Ok(unsafe { sys::munmap(pointer(at), bytes) }?);
            }
            Strategy::MapOwn => over(at, bytes, ProtFlags::empty())?,
            Strategy::FilePunchEach => self.punch(at, bytes)?,
            Strategy::PurgeEach => drop_pages(at, bytes)?,
            Strategy::PurgeScattered => {
                self.waiting.push(run);
                return if self.waiting.len() < SCATTERED { Ok(()) } else { self.purge_waiting() };
            }
            Strategy::MapOwnBlock
            | Strategy::FilePunchBlock
            | Strategy::FileDropBlock
            | Strategy::PurgeBlock
            | Strategy::Parked => {}
        }
        self.came_back(run)
    }

    /// Notes that the run's pages are not in use any more, and clean if its strategy wants them so.
    fn came_back(&mut self, run: Part) -> io::Result<()> {
        let at = (run.at - self.base()) / PAGE / BLOCK_PAGES;
        let block = &mut self.blocks[at];
        block.live -= run.pages;
        if block.live == 0 && at != self.current { self.emptied(at) } else { Ok(()) }
    }

    /// Purges a block of which all pages have come back, as its strategy says.
    fn emptied(&mut self, block: usize) -> io::Result<()> {
        let (at, bytes) = (self.base() + block * BLOCK_PAGES * PAGE, BLOCK_PAGES * PAGE);
        match self.strategy {
            Strategy::MapOwnBlock => over(at, bytes, ProtFlags::empty())?,
            Strategy::FilePunchBlock => self.punch(at, bytes)?,
            Strategy::FileDropBlock | Strategy::PurgeBlock => drop_pages(at, bytes)?,
            _ => {}
        }
        self.blocks[block] = Block::default();
        self.empty.push(block);
        Ok(())
    }

    fn punch(&self, at: usize, bytes: usize) -> io::Result<()> {
        let file = self.file.as_ref().expect("what is punched is a file's");
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let offset = (at - self.base()) as u64;
        Ok(sys::fallocate(file.as_fd(), flags, offset, bytes as u64)?)
    }

    fn purge_waiting(&mut self) -> io::Result<()> {
        let Memory::Backend(backend, _) = &self.memory else { return Ok(()) };
        let purge =
            |run: &Part| Op::Purge { va: Va(run.at as u64), bytes: (run.pages * PAGE) as u64 };
        let ops: Vec<_> = self.waiting.iter().map(purge).collect();
        let mut done: Vec<OpResult> = vec![Ok(()); ops.len()];
        backend.submit(&ops, &mut done);
        done.into_iter().collect::<OpResult>().map_err(explain)?;
        for run in std::mem::take(&mut self.waiting) {
            self.came_back(run)?;
        }
        Ok(())
    }
}

impl Serve for Bench {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn replace(&mut self, request: Request) -> io::Result<*mut u8> {
        let slot = usize::from(request.slot);
        if let Some(run) = self.slots[slot].take() {
            self.give_back(run)?;
        }
        let run = self.take(usize::from(request.pages))?;
        self.slots[slot] = Some(run);
        Ok(ptr::with_exposed_provenance_mut(run.at))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Memory::Kernel = self.memory {
            for run in self.slots.drain(..).flatten() {
                // SAFETY: it was mapped for this run alone (law 1), which has just left its slot. A run that cannot be
                // unmapped stays: addresses of a process that measures.
                let _ = unsafe { sys::munmap(pointer(run.at), run.pages * PAGE) };
            }
        }
        if let Memory::Backend(backend, at) = &self.memory {
            let _ = backend.release(*at, (BLOCKS * BLOCK_PAGES * PAGE) as u64);
        }
    }
}

fn explain(error: BackendError) -> io::Error {
    match error {
        BackendError::System(error) => error.into(),
        other => io::Error::other(other),
    }
}

fn pointer(at: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(at)
}

/// Reserves a range of our own in which pages stay small: a huge page would be touched as one.
fn own(bytes: usize, protection: Protection) -> io::Result<Reservation> {
    let memory = Reservation::new(bytes, protection)?;
    small_pages_only(memory.start() as usize, bytes);
    Ok(memory)
}

fn small_pages_only(at: usize, bytes: usize) {
    // SAFETY: both callers have just reserved the range, and the advice changes no contents. A kernel without huge
    // pages refuses it, and then it is not needed.
    let _ = unsafe { sys::madvise(pointer(at), bytes, libc::MADV_NOHUGEPAGE) };
}

/// Makes a file in memory, mapped over all of `memory`.
fn file_over(memory: &Reservation, bytes: usize) -> io::Result<OwnedFd> {
    let file = sys::memory_file(c"nofrag-bench", bytes as u64)?;
    // SAFETY: the range is the reservation's, which is ours alone and unused so far; it unmaps its whole range when it
    // goes.
    unsafe { sys::show(sys::base(memory), bytes, file.as_fd(), 0) }?;
    Ok(file)
}

/// Maps empty private memory over a range of a bench.
fn over(at: usize, bytes: usize, allowed: ProtFlags) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: callers name a run or a block of their own reservation, and it is not in use: it has just left its slot,
    // or is not in one yet.
    unsafe { sys::mmap_anonymous(pointer(at), bytes, allowed, flags) }?;
    Ok(())
}

fn drop_pages(at: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: as for `over`; the contents are no longer wanted.
    unsafe { sys::madvise(pointer(at), bytes, libc::MADV_DONTNEED) }
}

/// Bytes of an arena, as many as a bench has.
const ARENA_BYTES: u64 = (BLOCKS * BLOCK_PAGES * PAGE) as u64;

/// Serves requests from one owner of an arena, which the benches of the other owners share.
///
/// 1. A run of `slots` is live in `arena` and was handed out to this bench alone.
#[derive(Debug)]
pub(crate) struct ArenaBench {
    arena: Arc<Arena>,
    owner: OwnerId,
    slots: Vec<Option<Run>>,
}

impl ArenaBench {
    /// Returns `count` benches over one arena, each with an owner of its own and places for `slots` live runs.
    ///
    /// # Errors
    /// Errors of the arena.
    pub(crate) fn over_one(count: u32, slots: u16, purge: Purge) -> io::Result<Vec<ArenaBench>> {
        let config = Config { purge, owners: Owners::Count(count), ..Config::default() };
        let arena = Arc::new(Arena::reserve(ARENA_BYTES, config).map_err(io::Error::other)?);
        let bench = |owner| ArenaBench {
            arena: Arc::clone(&arena),
            owner: OwnerId(owner),
            slots: vec![None; usize::from(slots)],
        };
        Ok((0..count).map(bench).collect())
    }
}

#[cfg(test)]
impl ArenaBench {
    pub(crate) fn stats(&self) -> nofrag_backing::arena::ArenaStats {
        self.arena.stats()
    }
}

impl Serve for ArenaBench {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn replace(&mut self, request: Request) -> io::Result<*mut u8> {
        let slot = &mut self.slots[usize::from(request.slot)];
        if let Some(run) = slot.take() {
            self.arena.free(run).map_err(io::Error::other)?;
        }
        let run =
            self.arena.alloc(self.owner, request.pages.into(), 1).map_err(io::Error::other)?;
        *slot = Some(run);
        Ok(self.arena.pointer(run))
    }

    fn purged(&self) -> u64 {
        self.arena.stats().purged
    }
}
