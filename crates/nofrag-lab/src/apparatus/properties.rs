//! Properties of the kernel that the library relies on, or must not rely on: each is tried, and judged elsewhere.
//!
//! Counts are exact; times are of this machine at this moment, and only their ratios within one run mean anything.
//! Things that are compared are measured in turns.

use std::ffi::c_void;
use std::hint::{black_box, spin_loop};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use nofrag::mmap::Protection;
use nofrag_backing::backend::{Anonymous, Backend, BackendError, Op, OpResult, Va};
use nofrag_backing::moving::userfaultfd::{Features, RequestError, Userfaultfd, Watch};
use nofrag_backing::moving::{Access, LiveFile, Method, Mover, Reach};
use nofrag_backing::reservation::Reservation;
use nofrag_host::proc_maps;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, SpliceFlags};

use super::Trouble;
use super::moves::nanos;
use super::sys::{self, PAGE};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// A file in memory, and addresses of as many bytes, at a multiple of a huge page.
///
/// 1. `at` is followed by the bytes of the file in `_memory`, which is ours alone.
struct Shared {
    _memory: Reservation,
    file: OwnedFd,
    at: *mut c_void,
}

impl Shared {
    fn new(bytes: usize) -> io::Result<Shared> {
        let memory = Reservation::new(bytes + HUGE, Protection::NONE)?;
        let gap = (memory.start() as usize).next_multiple_of(HUGE) - memory.start() as usize;
        let at = sys::base(&memory).wrapping_byte_add(gap);
        Ok(Shared { _memory: memory, file: sys::memory_file(c"nofrag-shared", bytes as u64)?, at })
    }

    /// Shows a part of the file at its place.
    fn show(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let at = self.at.wrapping_byte_add(offset);
        // SAFETY: the callers name a part of the file, and its place is ours (law 1).
        Ok(unsafe { sys::show(at, bytes, self.file.as_fd(), offset as u64) }?)
    }

    /// Makes a huge page of the small ones at `offset`.
    fn collapse(&self, offset: usize) -> io::Result<()> {
        let at = self.at.wrapping_byte_add(offset);
        // SAFETY: the callers name a huge page of the file, its place is ours (law 1), and its contents stay.
        unsafe { sys::madvise(at, HUGE, sys::MADV_COLLAPSE) }
    }

    fn punch(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(sys::fallocate(self.file.as_fd(), flags, offset as u64, bytes as u64)?)
    }
}

/// Makes one-page mappings of shared memory, one after the other at adjacent addresses and offsets; returns the number
/// of areas that they are in the end.
/// Source: docs/sources/backing.md#oracle-2.
///
/// # Errors
/// The system's.
pub(crate) fn adjacent_maps(count: usize) -> Result<usize, Trouble> {
    let shared = Shared::new(count * PAGE)?;
    (0..count).try_for_each(|page| shared.show(page * PAGE, PAGE))?;
    let listed = proc_maps::parse(io::BufReader::new(std::fs::File::open("/proc/self/maps")?))?;
    let (start, end) = (shared.at.addr() as u64, (shared.at.addr() + count * PAGE) as u64);
    Ok(listed.areas.iter().filter(|area| area.start < end && start < area.end).count())
}

/// Fills `count` huge pages of shared memory with small ones and collapses them one by one: returns the nanoseconds of
/// each, or the reason for which it stayed as it was.
/// Source: docs/sources/backing.md#oracle-6.
///
/// # Errors
/// The system's, before the first is collapsed.
pub(crate) fn collapses(count: usize) -> Result<Vec<io::Result<u64>>, Trouble> {
    let shared = Shared::new(count * HUGE)?;
    shared.show(0, count * HUGE)?;
    fill(shared.at, count * HUGE);
    let collapse = |page| {
        let begin = Instant::now();
        shared.collapse(page * HUGE).map(|()| nanos(begin))
    };
    Ok((0..count).map(collapse).collect())
}

/// Nanoseconds to punch a hole into a huge page of shared memory: the whole of it, or a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Punches {
    pub(crate) whole: Vec<u64>,
    /// For a hole of sixteen small pages in the middle, which splits the huge page.
    pub(crate) part: Vec<u64>,
}

/// Makes huge pages and punches into them, a part and the whole in turns, `rounds` times.
/// Source: docs/sources/backing.md#oracle-11.
///
/// # Errors
/// The system's; that of a collapse where the host has no huge page.
pub(crate) fn punches(rounds: u32) -> Result<Punches, Trouble> {
    let shared = Shared::new(HUGE)?;
    shared.show(0, HUGE)?;
    let mut samples = Punches::default();
    for _ in 0..rounds {
        for (list, offset, bytes) in
            [(&mut samples.part, HUGE / 2, 16 * PAGE), (&mut samples.whole, 0, HUGE)]
        {
            fill(shared.at, HUGE);
            shared.collapse(0)?;
            // Collapsing takes the small mappings away; this brings the huge one.
            fill(shared.at, PAGE);
            let begin = Instant::now();
            shared.punch(offset, bytes)?;
            list.push(nanos(begin));
            shared.punch(0, HUGE)?;
        }
    }
    Ok(samples)
}

/// Number of runs that are purged at a time.
const RUNS: usize = 64;

/// Nanoseconds to purge a run: one call for each, and one vector for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScatteredPurges {
    /// With a call for each run.
    pub(crate) singly: Vec<u64>,
    pub(crate) in_vectors: Vec<u64>,
}

/// Purges scattered runs of `pages` touched pages of private memory, both ways in turns, `rounds` times, while a thread
/// on another processor works, whose translation cache has to be flushed too. On a host that does other work it does
/// not always run at the same moment, and the two ways differ less.
/// Source: docs/sources/backing.md#oracle-9.
///
/// # Errors
/// Errors of the backend.
pub(crate) fn scattered_purges(pages: usize, rounds: u32) -> Result<ScatteredPurges, Trouble> {
    let backend = Anonymous::new();
    let (bytes, step) = (pages * PAGE, (pages + 1) * PAGE);
    let all = (RUNS * step) as u64;
    let va = backend.reserve(all, 1, None)?;
    let phys = backend.create(all)?;
    let mut mapped = [Ok(())];
    backend.submit(&[Op::Map { va, phys, offset: 0, bytes: all }], &mut mapped);
    mapped[0]?;
    let at = |run: usize| va.plus((run * step) as u64);
    let ops: Vec<_> = (0..RUNS).map(|run| Op::Purge { va: at(run), bytes: bytes as u64 }).collect();
    let purged = beside_a_thread(|| {
        let mut samples = ScatteredPurges::default();
        for _ in 0..rounds {
            for (list, batch) in [(&mut samples.singly, 1), (&mut samples.in_vectors, RUNS)] {
                (0..RUNS).for_each(|run| fill(pointer(at(run)), bytes));
                let mut done = [Ok(()); RUNS];
                let begin = Instant::now();
                for (ops, done) in ops.chunks(batch).zip(done.chunks_mut(batch)) {
                    backend.submit(ops, done);
                }
                list.push(nanos(begin) / RUNS as u64);
                done.into_iter().collect::<OpResult>()?;
            }
        }
        Ok::<_, BackendError>(samples)
    });
    Ok(purged?)
}

/// Runs `body` while another thread keeps a processor busy.
fn beside_a_thread<T>(body: impl FnOnce() -> T) -> T {
    let (runs, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // No data depends on either flag: one begins a measurement, the other ends a loop.
            runs.store(true, Ordering::Relaxed);
            while !is_over.load(Ordering::Relaxed) {
                spin_loop();
            }
        });
        while !runs.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let result = body();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Writes to each page of a range.
fn fill(start: *mut c_void, bytes: usize) {
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: all callers have made the range themselves, mapped and writable, and no other thread knows of it.
        unsafe { start.wrapping_byte_add(offset).cast::<u64>().write_volatile(black_box(1)) };
    }
}

fn pointer(at: Va) -> *mut c_void {
    ptr::with_exposed_provenance_mut(at.0 as usize)
}

/// Nanoseconds to fill the page tables of a run whose pages are in their file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filling {
    /// With one request to a userfaultfd.
    pub(crate) by_request: Vec<u64>,
    pub(crate) by_populate: Vec<u64>,
}

/// Fills the page tables of `pages` pages by a request to a userfaultfd and by `MADV_POPULATE_WRITE`, in turns.
/// Source: docs/sources/backing.md#oracle-10, #r7.
///
/// # Errors
/// The system's.
pub(crate) fn filling(pages: u64, rounds: u64) -> Result<Filling, Trouble> {
    let file = LiveFile::new(pages)?;
    let watched = file.map(0, pages, Access::Direct, Reach::Processors)?;
    let plain = file.map(0, pages, Access::Direct, Reach::Processors)?;
    let bytes = pages * PAGE as u64;
    let descriptor = Userfaultfd::open(Features::MINOR_SHARED)?;
    let advise = |at: Va, advice| {
        // SAFETY: the range is one of the two areas; neither advice changes the contents of a file in memory.
        unsafe { sys::madvise(pointer(at), bytes as usize, advice) }
    };
    advise(plain.start(), libc::MADV_POPULATE_WRITE)?;
    descriptor.register(watched.start(), bytes, Watch::MINOR)?;
    let mut samples = Filling::default();
    for _ in 0..rounds {
        advise(watched.start(), libc::MADV_DONTNEED)?;
        let start = Instant::now();
        descriptor.map_resident(watched.start(), bytes)?;
        samples.by_request.push(nanos(start));
        advise(plain.start(), libc::MADV_DONTNEED)?;
        let start = Instant::now();
        advise(plain.start(), libc::MADV_POPULATE_WRITE)?;
        samples.by_populate.push(nanos(start));
    }
    Ok(samples)
}

/// Outcome of moves, without copy, of a private page to which another reference exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedPage {
    /// Outcome for a page that a child shares since a fork.
    pub(crate) with_child: Result<(), Errno>,
    /// Outcome for a page to which a pipe holds a reference.
    pub(crate) with_pipe: Result<(), Errno>,
}

/// Tries to move, without a copy, a private page that a child shares and one to which a pipe refers. Forks this process
/// once.
/// Source: docs/sources/backing.md#oracle-4, #unseen-references.
///
/// # Errors
/// The system's.
pub(crate) fn shared_page() -> Result<SharedPage, Trouble> {
    let descriptor = Userfaultfd::open(Features::MOVE)?;
    let mut pages = Reservation::new(3 * PAGE, Protection::READ_WRITE)?;
    // A huge page would be split, and is no matter here. A kernel without them refuses the advice.
    let _ = pages.without_huge_pages();
    let [first, second, target] = [0, 1, 2].map(|page| Va(pages.start() + page * PAGE as u64));
    fill(pointer(first), 2 * PAGE);
    let move_to_target = |from: Va| {
        descriptor.register(target, PAGE as u64, Watch::MISSING)?;
        // SAFETY: both pages are ours, and their contents are relied on by no one.
        let moved = unsafe { descriptor.move_pages(target, from, PAGE as u64) };
        descriptor.unregister(target, PAGE as u64)?;
        Ok::<_, Trouble>(moved.map_err(|RequestError { error, .. }| error))
    };
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    splice(&writer, pointer(second))?;
    let with_pipe = move_to_target(second)?;
    drop((reader, writer));
    // SAFETY: the page is ours and its contents are no longer wanted.
    unsafe { sys::madvise(pointer(target), PAGE, libc::MADV_DONTNEED) }?;
    let with_child = while_a_child_lives(|| move_to_target(first))??;
    Ok(SharedPage { with_child, with_pipe })
}

/// Calls `act` while a child of this process, which does nothing, shares all private memory.
fn while_a_child_lives<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    // SAFETY: the child calls only what may be called after a fork of a process with threads: `pause`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => loop {
            // SAFETY: `pause` may be called after a fork.
            unsafe { libc::pause() };
        },
        child => {
            let result = act();
            // SAFETY: the child was made above and is waited for below, so its number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: it waits for our own child and writes nothing.
            unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
            Ok(result)
        }
    }
}

/// The values that references to a page of a file read after it moved and was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct References {
    /// Value written before the move.
    pub(crate) old: u64,
    pub(crate) new: u64,
    /// Value read in the area that moved.
    pub(crate) area: u64,
    /// Value read from a pipe that got the page by reference before the move.
    pub(crate) pipe: u64,
    /// Value read in another area that showed the same page.
    pub(crate) other_area: u64,
}

/// Moves a page to which other references exist.
/// Source: docs/sources/backing.md#oracle-5.
///
/// # Errors
/// The system's.
pub(crate) fn references_after_a_move(method: Method) -> Result<References, Trouble> {
    let (old, new) = (0x01d, 0x2e3);
    let access = if let Method::Pins(_) = method { Access::Pinned } else { Access::Direct };
    let file = LiveFile::new(2)?;
    let area = file.map(0, 1, access, Reach::Processors)?;
    let other = file.map(0, 1, Access::Direct, Reach::Processors)?;
    let other = &other.words().expect("it may be used without pins")[0];
    other.store(old, Ordering::Relaxed);
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    splice(&writer, pointer(area.start()))?;
    Mover::new().move_run(&area, 0..1, 1, method)?;
    let words = area.pin().expect("no pin is held");
    words[0].store(new, Ordering::Relaxed);
    let mut held = [0; 8];
    rustix::io::read(&reader, &mut held)?;
    Ok(References {
        old,
        new,
        area: words[0].load(Ordering::Relaxed),
        pipe: u64::from_ne_bytes(held),
        other_area: other.load(Ordering::Relaxed),
    })
}

/// Puts a page into a pipe by reference.
fn splice(writer: &OwnedFd, page: *mut c_void) -> Result<(), Errno> {
    // SAFETY: the page is mapped by the caller as long as it uses the pipe, and may be read.
    let slice = unsafe { IoSliceRaw::from_slice(std::slice::from_raw_parts(page.cast(), PAGE)) };
    // SAFETY: the descriptor is the end of a pipe that is written, so the memory is only read.
    let put = unsafe { rustix::pipe::vmsplice(writer.as_fd(), &[slice], SpliceFlags::empty()) }?;
    if put == PAGE { Ok(()) } else { Err(Errno::AGAIN) }
}
