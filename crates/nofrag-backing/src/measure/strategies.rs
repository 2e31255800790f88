//! Ways to hand out runs of pages and to take them back.
//!
//! A [`Bench`] serves requests in one of these ways ([`Strategy`]), from nothing but a bump pointer in blocks of
//! 4 MiB: this measures the cost of the *memory*, and next to nothing of that of an allocator of addresses. A
//! block whose pages have all been handed out and all come back is empty: it is purged, if the strategy is to do so
//! block by block, and used again.
//!
//! A request names a slot; the run in that slot is given back first. So as many runs are live as there are slots.
//!
//! Source: docs/sources/backing.md#strategies, #r9.

use std::ffi::c_void;
use std::io;
use std::iter::repeat_n;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use nofrag::mmap::Protection;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::backend::{Anonymous, Backend, BackendError, Op, OpResult, Va};
use crate::faults::{self, Calls};
use crate::forks::Forks;
use crate::reservation::Reservation;
use crate::sys;

/// The ways in which runs come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
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
    /// All strategies, the most costly kind first.
    pub const ALL: [Strategy; 10] = [
        Strategy::MapEach,
        Strategy::MapOwn,
        Strategy::MapOwnBlock,
        Strategy::FilePunchEach,
        Strategy::FilePunchBlock,
        Strategy::FileDropBlock,
        Strategy::PurgeEach,
        Strategy::PurgeBlock,
        Strategy::PurgeScattered,
        Strategy::Parked,
    ];

    /// Returns true if the memory is a file's.
    fn has_file(self) -> bool {
        matches!(self, Strategy::FilePunchEach | Strategy::FilePunchBlock | Strategy::FileDropBlock)
    }
}

/// The pages of a run to which its user writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Touched {
    First,
    All,
}

/// A request for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The slot of the run; the run that is in it is given back.
    pub slot: u16,
    /// Pages of the run, at least 1 and at most [`MOST_PAGES`].
    pub pages: u16,
}

/// Pages of the largest run.
pub const MOST_PAGES: u16 = 64;

/// The costs of some requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// Processor time of this thread.
    pub processor: Duration,
    pub wall: Duration,
    /// System calls on memory that were made.
    pub calls: Calls,
}

const PAGE: usize = 1 << sys::PAGE;
/// Pages of a block: 4 MiB.
const BLOCK_PAGES: usize = 1024;
/// Blocks of a bench: sixteen times as many pages as 64 live runs of the largest size have.
const BLOCKS: usize = 64;
/// Runs that are purged together wherever they lie.
const SCATTERED: usize = 64;

/// A run that is live.
#[derive(Clone, Copy, Debug)]
struct Run {
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
pub struct Bench {
    strategy: Strategy,
    memory: Memory,
    file: Option<OwnedFd>,
    slots: Vec<Option<Run>>,
    blocks: Vec<Block>,
    /// The block that hands out pages; `empty` has the blocks that are empty.
    current: usize,
    empty: Vec<usize>,
    /// Runs that wait to be purged together.
    waiting: Vec<Run>,
    forks: Forks,
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
    /// Returns a bench with `slots` slots, all empty. At most 512.
    ///
    /// # Errors
    /// `InvalidInput` for no slots or too many; else errors of `mmap`, `memfd_create` and `ftruncate`.
    pub fn new(strategy: Strategy, slots: u16) -> io::Result<Bench> {
        // At most half of all pages are ever live.
        let most = BLOCKS * BLOCK_PAGES / 2 / usize::from(MOST_PAGES);
        if slots == 0 || usize::from(slots) > most {
            let why = format!("a bench has 1 to {most} slots, not {slots}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let forks = Forks::now()?;
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
            slots: repeat_n(None, usize::from(slots)).collect(),
            blocks: repeat_n(Block::default(), BLOCKS).collect(),
            current: 0,
            empty: (1..BLOCKS).rev().collect(),
            waiting: Vec::new(),
            forks,
        })
    }

    /// Serves `requests` one after the other and returns their costs.
    ///
    /// # Errors
    /// `InvalidInput` for a slot that does not exist, or a size that is not allowed, before anything is done; `NOMEM`
    /// when live runs keep every block; else errors of the system calls. In a child of a fork, which may share the
    /// memory, every call fails.
    pub fn serve(&mut self, requests: &[Request], touched: Touched) -> io::Result<Took> {
        here(self.forks)?;
        check(requests, self.slots.len())?;
        let calls = faults::made();
        let (processor, wall) = (thread_time(), Instant::now());
        for request in requests {
            let slot = usize::from(request.slot);
            if let Some(run) = self.slots[slot].take() {
                self.give_back(run)?;
            }
            let run = self.take(usize::from(request.pages))?;
            self.slots[slot] = Some(run);
            let pages = match touched {
                Touched::First => 1,
                Touched::All => run.pages,
            };
            for page in 0..pages {
                let byte: *mut u8 = ptr::with_exposed_provenance_mut(run.at + page * PAGE);
                // SAFETY: the page belongs to a run of a slot, so it is ours, mapped and writable (law 1), and no
                // reference to it exists.
                unsafe { byte.write_volatile(1) };
            }
        }
        let wall = wall.elapsed();
        let processor = thread_time().saturating_sub(processor);
        Ok(Took { processor, wall, calls: faults::made().since(&calls) })
    }

    fn base(&self) -> usize {
        match &self.memory {
            Memory::Kernel => 0,
            Memory::Own(memory) => memory.base().expose_provenance(),
            Memory::Backend(_, at) => at.0 as usize,
        }
    }

    fn take(&mut self, pages: usize) -> io::Result<Run> {
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        if matches!(self.memory, Memory::Kernel) {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
            let at = unsafe { sys::mmap_anonymous(ptr::null_mut(), pages * PAGE, allowed, flags) }?;
            return Ok(Run { at: at.expose_provenance(), pages });
        }
        if self.blocks[self.current].used + pages > BLOCK_PAGES {
            self.turn_to_next_block()?;
        }
        let block = &mut self.blocks[self.current];
        let first = self.current * BLOCK_PAGES + block.used;
        block.used += pages;
        block.live += pages;
        let run = Run { at: self.base() + first * PAGE, pages };
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

    fn give_back(&mut self, run: Run) -> io::Result<()> {
        let Run { at, pages } = run;
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
    fn came_back(&mut self, run: Run) -> io::Result<()> {
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
            |run: &Run| Op::Purge { va: Va(run.at as u64), bytes: (run.pages * PAGE) as u64 };
        let ops: Vec<_> = self.waiting.iter().map(purge).collect();
        let mut done: Vec<OpResult> = repeat_n(Ok(()), ops.len()).collect();
        backend.submit(&ops, &mut done);
        done.into_iter().collect::<OpResult>().map_err(explain)?;
        for run in std::mem::take(&mut self.waiting) {
            self.came_back(run)?;
        }
        Ok(())
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
    small_pages_only(memory.base().expose_provenance(), bytes);
    Ok(memory)
}

fn small_pages_only(at: usize, bytes: usize) {
    // SAFETY: both callers have just reserved the range, and the advice changes no contents. A kernel without huge
    // pages refuses it, and then it is not needed.
    let _ = unsafe { sys::madvise(pointer(at), bytes, libc::MADV_NOHUGEPAGE) };
}

/// Makes a file in memory, mapped over all of `memory`.
fn file_over(memory: &Reservation, bytes: usize) -> io::Result<OwnedFd> {
    let file = sys::memfd_create(c"nofrag-bench", MemfdFlags::CLOEXEC)?;
    sys::ftruncate(file.as_fd(), bytes as u64)?;
    let allowed = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the range is the reservation's, which is ours alone and unused so far; it unmaps its whole range when it
    // goes.
    unsafe { sys::mmap(memory.base(), bytes, allowed, flags, file.as_fd(), 0) }?;
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
    Ok(unsafe { sys::madvise(pointer(at), bytes, libc::MADV_DONTNEED) }?)
}

/// Refuses a child of the process that has the memory.
pub(super) fn here(forks: Forks) -> io::Result<()> {
    let forked = "this process was forked from the one that has the memory";
    if forks.is_same() { Ok(()) } else { Err(io::Error::other(forked)) }
}

/// Refuses requests for slots beyond `slots`, or of a size that is not allowed.
pub(super) fn check(requests: &[Request], slots: usize) -> io::Result<()> {
    let fits = |request: &Request| {
        usize::from(request.slot) < slots && (1..=MOST_PAGES).contains(&request.pages)
    };
    match requests.iter().find(|request| !fits(request)) {
        Some(wrong) => {
            let why = format!("{wrong:?}: no such slot, or no such size");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        None => Ok(()),
    }
}

/// Returns the processor time that this thread has used.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
