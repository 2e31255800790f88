//! The kernel's effects on a process that maps memory, as samples to be judged elsewhere.
//!
//! Counts are exact; times are of this machine at this moment, and only their ratios within one run mean anything.
//! Things that are compared are measured in turns.

use std::hint::{black_box, spin_loop};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Pid, WaitOptions, getpid};

use super::{Anonymous, Backend, BackendError, Budget, HUGE, HostMemory, Memfd, Op, OpResult, Va};
use crate::maps::max_map_count;
use crate::reservation::Reservation;
use crate::{maps, sys};

const PAGE: u64 = 1 << sys::PAGE;

/// The most areas to make: with more of them the kernel's own memory would be measured.
const MOST_AREAS: u64 = 1 << 18;

/// Number of runs that are purged at a time.
const RUNS: u64 = 64;

/// Counts of areas, and of the one-page mappings, none of which touch, that a process could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolated {
    /// Areas that Linux allows a process.
    pub limit: u64,
    /// Areas that the process had before.
    pub areas_before: u64,
    /// Mappings that were made before one was refused.
    pub maps: u64,
}

impl Isolated {
    /// Returns the number of mappings that the remaining areas allow, two areas to a mapping: the page, and the gap
    /// behind it.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.limit.saturating_sub(self.areas_before) / 2
    }
}

/// Makes one-page mappings, none of which touch, until Linux refuses one for want of areas; in a child of this process,
/// which ends with that.
/// Source: docs/sources/backing.md#oracle-1, #map-limit.
///
/// # Errors
/// Errors of the system; `Unsupported` where the limit is set so high that the kernel's memory would suffer.
pub fn isolated_maps() -> io::Result<Isolated> {
    let limit = max_map_count();
    if limit > MOST_AREAS {
        let why = format!("a process may have {limit} areas here: too many to be made for a count");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let bytes = 2 * (limit + 2) * PAGE;
    let reservation = Reservation::new(bytes as usize, nofrag::mmap::Protection::NONE)?;
    let file = sys::memfd_create(c"nofrag isolated", MemfdFlags::CLOEXEC)?;
    sys::ftruncate(file.as_fd(), PAGE)?;
    let (reader, writer) = rustix::pipe::pipe()?;
    // SAFETY: the child makes system calls and nothing else until it ends: no other thread is there to release a lock.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let counts = count_in_child(reservation.start(), limit, file.as_fd());
            let status = report(counts, &writer);
            // SAFETY: ends the child at once, without the work that the parent does at its own end.
            unsafe { libc::_exit(status) }
        }
        child => {
            drop(writer);
            let mut counts = [0; 16];
            let read = rustix::io::read(&reader, &mut counts);
            let child = Pid::from_raw(child).expect("a fork has a number");
            rustix::process::waitpid(Some(child), WaitOptions::empty())?;
            if read? != counts.len() {
                return Err(io::Error::other("the child ended before it had counted"));
            }
            let (before, made) = counts.split_at(8);
            let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            Ok(Isolated { limit, areas_before: number(before), maps: number(made) })
        }
    }
}

/// Maps every second page from `start` on until Linux refuses one; returns the areas that the child had before, and the
/// number of mappings that it made.
fn count_in_child(start: u64, limit: u64, file: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let areas = own_areas()?;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    for made in 0..=limit {
        let at = ptr::with_exposed_provenance_mut((start + (2 * made + 1) * PAGE) as usize);
        // SAFETY: the page lies in the reservation, which is the caller's and has twice as many pages and two more; it
        // is not used.
        match unsafe { sys::mmap(at, PAGE as usize, ProtFlags::READ, flags, file, 0) } {
            Ok(_) => {}
            Err(Errno::NOMEM) => return Ok((areas, made)),
            Err(other) => return Err(other),
        }
    }
    Ok((areas, limit))
}

/// Counts the lines of `/proc/self/maps` without the line `[vsyscall]`, which is no area of the process, and without
/// any memory of its own.
fn own_areas() -> Result<u64, Errno> {
    let file = rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY, Mode::empty())?;
    let (mut lines, mut buffer) = (0, [0_u8; 4096]);
    let (mut tail, name) = ([0_u8; 11], b"[vsyscall]\n");
    loop {
        let read = rustix::io::read(&file, &mut buffer)?;
        if read == 0 {
            return Ok(lines - u64::from(&tail == name));
        }
        lines += buffer[..read].iter().filter(|&&byte| byte == b'\n').count() as u64;
        for &byte in &buffer[read.saturating_sub(tail.len())..read] {
            tail.rotate_left(1);
            tail[tail.len() - 1] = byte;
        }
    }
}

/// Sends the counts to the parent; returns the exit status of the child.
fn report(counts: Result<(u64, u64), Errno>, to: &OwnedFd) -> i32 {
    let Ok((areas, made)) = counts else { return 1 };
    let mut bytes = [0; 16];
    let (before, after) = bytes.split_at_mut(8);
    before.copy_from_slice(&areas.to_ne_bytes());
    after.copy_from_slice(&made.to_ne_bytes());
    i32::from(rustix::io::write(to, &bytes).is_err())
}

/// Makes one-page mappings of shared memory, one after the other at adjacent addresses and offsets; returns the number
/// of areas that they are in the end.
/// Source: docs/sources/backing.md#oracle-2.
///
/// # Errors
/// Errors of the backend or the system.
pub fn adjacent_maps(count: u64) -> Result<usize, BackendError> {
    let backend = Memfd::new(Budget::Half)?;
    // A page on each side is not mapped, so that no mapping of others is joined.
    let va = backend.reserve(times(count.saturating_add(2), PAGE)?, PAGE, None)?.plus(PAGE);
    let phys = backend.create(times(count, PAGE)?)?;
    for page in 0..count {
        let offset = page * PAGE;
        one(&backend, Op::Map { va: va.plus(offset), phys, offset, bytes: PAGE })?;
    }
    let areas = maps::of_process(getpid()).map_err(|_| Errno::IO)?;
    let end = va.0 + count * PAGE;
    Ok(areas.iter().filter(|area| area.start < end && va.0 < area.end).count())
}

/// Fills `count` huge pages of shared memory with small ones and collapses them one by one: returns the nanoseconds of
/// each, or the reason for which it stayed as it was.
/// Source: docs/sources/backing.md#oracle-6.
///
/// # Errors
/// Errors of the backend before the first is collapsed.
pub fn collapses(count: u64) -> Result<Vec<Result<u64, BackendError>>, BackendError> {
    let backend = Memfd::huge(Budget::Half)?;
    let va = mapped(&backend, times(count, HUGE)?)?;
    fill(&backend, va, count * HUGE);
    let collapse = |page| {
        let begin = Instant::now();
        backend.collapse(va.plus(page * HUGE), HUGE).map(|()| nanoseconds(begin))
    };
    Ok((0..count).map(collapse).collect())
}

/// The other work of the process during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Idle,
    /// A thread on another processor, whose translation cache has to be flushed too.
    Busy,
}

/// Nanoseconds to purge a run: one call for each, and one vector for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScatteredPurges {
    /// With a call for each run.
    pub singly: Vec<u64>,
    pub in_vectors: Vec<u64>,
}

/// Purges scattered runs of `pages` touched pages of private memory, both ways in turns, `rounds` times. On a
/// host that does other work, a busy peer does not always run at the same moment, and the two ways differ less.
/// Source: docs/sources/backing.md#oracle-9.
///
/// # Errors
/// Errors of the backend.
pub fn scattered_purges(
    pages: u64,
    rounds: u32,
    peer: Peer,
) -> Result<ScatteredPurges, BackendError> {
    let backend = Anonymous::new();
    let step = times(pages.saturating_add(1), PAGE)?;
    let va = mapped(&backend, times(RUNS, step)?)?;
    let at = |run| va.plus(run * step);
    let ops: Vec<_> = (0..RUNS).map(|run| Op::Purge { va: at(run), bytes: pages * PAGE }).collect();
    beside(peer, || {
        let mut samples = ScatteredPurges::default();
        for _ in 0..rounds {
            for in_vectors in [false, true] {
                (0..RUNS).for_each(|run| fill(&backend, at(run), pages * PAGE));
                let batch = if in_vectors { ops.len() } else { 1 };
                let mut done = [Ok(()); RUNS as usize];
                let begin = Instant::now();
                for (ops, done) in ops.chunks(batch).zip(done.chunks_mut(batch)) {
                    backend.submit(ops, done);
                }
                let took = nanoseconds(begin) / RUNS;
                done.into_iter().collect::<OpResult>()?;
                let list = if in_vectors { &mut samples.in_vectors } else { &mut samples.singly };
                list.push(took);
            }
        }
        Ok(samples)
    })
}

/// Runs `body` while the peer works.
fn beside<T>(peer: Peer, body: impl FnOnce() -> T) -> T {
    let (runs, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        if peer == Peer::Busy {
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
        }
        let result = body();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Nanoseconds to punch a hole into a huge page of shared memory: the whole of it, or a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Punches {
    pub whole: Vec<u64>,
    /// For a hole of sixteen small pages in the middle, which splits the huge page.
    pub part: Vec<u64>,
}

/// Makes huge pages and punches into them, a part and the whole in turns, `rounds` times.
/// Source: docs/sources/backing.md#oracle-11.
///
/// # Errors
/// Errors of the backend; that of a collapse where the host has no huge page.
pub fn punches(rounds: u32) -> Result<Punches, BackendError> {
    let backend = Memfd::huge(Budget::Half)?;
    let va = mapped(&backend, HUGE)?;
    let mut samples = Punches::default();
    let purge = || one(&backend, Op::Purge { va, bytes: HUGE });
    for _ in 0..rounds {
        fill(&backend, va, HUGE);
        backend.collapse(va, HUGE)?;
        // Collapsing takes the small mappings away; this brings the huge one.
        fill(&backend, va, PAGE);
        let begin = Instant::now();
        // The backend itself refuses to: its granule is the huge page. Its first memory is at the file's begin.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        sys::fallocate(backend.file(), flags, HUGE / 2, 16 * PAGE)?;
        samples.part.push(nanoseconds(begin));
        purge()?;
        fill(&backend, va, HUGE);
        backend.collapse(va, HUGE)?;
        // Collapsing takes the small mappings away; this brings the huge one.
        fill(&backend, va, PAGE);
        let begin = Instant::now();
        purge()?;
        samples.whole.push(nanoseconds(begin));
    }
    Ok(samples)
}

/// Multiplies; a product that overflows is refused, since later counts would wrap.
fn times(count: u64, each: u64) -> Result<u64, BackendError> {
    count.checked_mul(each).ok_or(BackendError::Misfit)
}

/// Returns a mapping of `bytes` bytes of new memory.
fn mapped<B: HostMemory>(backend: &B, bytes: u64) -> Result<Va, BackendError> {
    let va = backend.reserve(bytes, 1, None)?;
    let phys = backend.create(bytes)?;
    one(backend, Op::Map { va, phys, offset: 0, bytes })?;
    Ok(va)
}

/// Writes to each page of a mapping.
fn fill(_: &impl HostMemory, va: Va, bytes: u64) {
    for at in (va.0..va.0 + bytes).step_by(PAGE as usize) {
        // SAFETY: all callers have it mapped by `mapped`, so it can be written (`HostMemory`), and no other thread
        // knows of it.
        unsafe {
            ptr::with_exposed_provenance_mut::<u64>(at as usize).write_volatile(black_box(1))
        };
    }
}

fn one<B: Backend>(backend: &B, op: Op<B::Phys>) -> OpResult {
    let mut done = [Ok(())];
    backend.submit(&[op], &mut done);
    done[0]
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
