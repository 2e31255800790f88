//! Many live threads at once, for the areas that their stacks make.
//!
//! The threads of the standard library bring a stack for signals each, with a guard of its own, which would be counted
//! too. These bring nothing: each runs `body`, reports that it runs, and waits until the crowd ends.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use nofrag::ranges::Span;
use nofrag_backing::reservation::Reservation;
use rustix::pipe::{PipeFlags, pipe_with};
use thiserror::Error;

use super::sys::{PAGE, base};

/// Source of the stacks of a crowd.
#[derive(Debug)]
pub(crate) enum Stacks {
    System {
        /// Bytes of each stack, guard included.
        bytes: usize,
        guard: usize,
    },
    /// The caller has placed the stacks in a reservation that allows reading and writing there and has no guard inside
    /// one: a stack of other pages is refused.
    Placed {
        /// The reservation of the stacks; the crowd keeps it until its threads have ended.
        reservation: Reservation,
        /// Pages of the stacks, without guards: ascending or descending, and no two overlap.
        stacks: Vec<Span>,
    },
}

/// Why not all threads could be started; those that were started have ended again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum CrowdError {
    /// The system refused one more thread.
    #[error("thread {number} cannot be started: {why}")]
    Refused {
        /// Number of the thread, from 1.
        number: usize,
        why: io::Error,
    },
    /// There are fewer stacks than threads, or some overlap or are out of order.
    #[error("{threads} threads need as many stacks, in order and none over another")]
    Stacks { threads: usize },
    /// There is no pipe to wait on.
    #[error("no pipe: {0}")]
    Pipe(io::Error),
}

/// The most threads that a Linux has at once, for any `pid_max` (proc_sys_kernel(5): 2^22).
const MOST_THREADS: usize = 1 << 22;

/// The start and the state of a thread.
#[derive(Debug)]
struct Seat {
    /// Descriptor of the pipe on which the thread waits: a read of it returns when the crowd ends.
    gate: i32,
    body: fn(),
    /// An address on the thread's stack, once it runs; zero before.
    stack: AtomicU64,
}

/// Threads that live until this is dropped, which waits for their end.
///
/// 1. Every seat, and every stack, stays at its place until its thread has ended, even if the crowd is forgotten.
#[derive(Debug)]
pub(crate) struct Crowd {
    threads: Vec<libc::pthread_t>,
    seats: Vec<Seat>,
    /// The writing end of the pipe that keeps the gate shut; dropped to open it.
    shut: Option<OwnedFd>,
    gate: OwnedFd,
    stacks: Stacks,
}

impl Crowd {
    /// Starts `count` threads that only wait.
    ///
    /// # Errors
    /// See [`CrowdError`].
    pub(crate) fn start(count: usize, stacks: Stacks) -> Result<Crowd, CrowdError> {
        // SAFETY: the body uses no stack, and waiting takes less than the smallest stack that the C library accepts.
        unsafe { Crowd::start_running(count, stacks, || ()) }
    }

    /// Starts `count` threads that each run `body` and then wait.
    ///
    /// # Safety
    /// `body` fits on its stack, or there is a guard right below every stack: nothing else keeps it from writing over
    /// the memory there, such as the next stack.
    ///
    /// # Errors
    /// See [`CrowdError`].
    pub(crate) unsafe fn start_running(
        count: usize,
        stacks: Stacks,
        body: fn(),
    ) -> Result<Crowd, CrowdError> {
        if let Stacks::Placed { stacks, .. } = &stacks
            && (stacks.len() < count || !are_apart(stacks))
        {
            return Err(CrowdError::Stacks { threads: count });
        }
        if count > MOST_THREADS {
            // Seats for all of them could take the machine's memory before the first is refused.
            let (number, why) = (MOST_THREADS + 1, io::ErrorKind::WouldBlock.into());
            return Err(CrowdError::Refused { number, why });
        }
        let pipe = pipe_with(PipeFlags::CLOEXEC);
        let (gate, shut) = pipe.map_err(|errno| CrowdError::Pipe(errno.into()))?;
        let seat = |_| Seat { gate: gate.as_raw_fd(), body, stack: AtomicU64::new(0) };
        let (threads, seats) = (Vec::with_capacity(count), (0..count).map(seat).collect());
        // From here on a refusal ends, by drop, the threads that were started.
        let mut crowd = Crowd { threads, seats, shut: Some(shut), gate, stacks };
        for number in 0..count {
            let started = crowd.add(number);
            started.map_err(|why| CrowdError::Refused { number: number + 1, why })?;
        }
        Ok(crowd)
    }

    fn add(&mut self, number: usize) -> io::Result<()> {
        let mut attributes = ThreadAttributes::new()?;
        match &self.stacks {
            Stacks::System { bytes, guard } => attributes.system_stack(*bytes, *guard)?,
            Stacks::Placed { reservation, stacks } => {
                attributes.placed_stack(reservation, stacks[number])?;
            }
        }
        let seat: *const Seat = &self.seats[number];
        self.threads.push(attributes.spawn(seat)?);
        Ok(())
    }

    /// Returns the number of threads.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Iterates over an address on the stack of each thread that runs by now.
    pub(crate) fn stack_addresses(&self) -> impl Iterator<Item = u64> + '_ {
        // Pairs with the release in `sit`: the thread of an address that is seen runs.
        self.seats.iter().map(|seat| seat.stack.load(Ordering::Acquire)).filter(|at| *at != 0)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // The last writing end closes: every read of the gate returns.
        self.shut = None;
        let gate = self.gate.as_raw_fd();
        debug_assert!(self.seats.iter().all(|seat| seat.gate == gate), "all wait at the same gate");
        for thread in self.threads.drain(..) {
            // SAFETY: the thread was started by `add`, is joinable, and is joined here only.
            let joined = unsafe { libc::pthread_join(thread, ptr::null_mut()) };
            assert_eq!(joined, 0, "a thread that we started can be joined");
        }
    }
}

/// Returns true if spans ascend or descend, and none overlaps the next.
fn are_apart(spans: &[Span]) -> bool {
    let up = |pair: &[Span]| pair[0].end() <= pair[1].start();
    let down = |pair: &[Span]| pair[1].end() <= pair[0].start();
    spans.windows(2).all(up) || spans.windows(2).all(down)
}

/// A `pthread_attr_t` that is destroyed when dropped.
struct ThreadAttributes(libc::pthread_attr_t);

impl ThreadAttributes {
    fn new() -> io::Result<ThreadAttributes> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the call fills the memory of the pointer, which is as large as its type says.
        check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: `pthread_attr_init` has succeeded, checked above.
        Ok(ThreadAttributes(unsafe { attributes.assume_init() }))
    }

    fn system_stack(&mut self, bytes: usize, guard: usize) -> io::Result<()> {
        // SAFETY: the attributes were initialized by `new`; bad sizes are refused by the call.
        check(unsafe { libc::pthread_attr_setstacksize(&raw mut self.0, bytes) })?;
        // SAFETY: as above.
        check(unsafe { libc::pthread_attr_setguardsize(&raw mut self.0, guard) })
    }

    fn placed_stack(&mut self, reservation: &Reservation, pages: Span) -> io::Result<()> {
        if !reservation.pages().covers(pages) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if !reservation.is_open(pages) {
            let why = "a stack whose pages may not be read and written, or with a guard inside";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let offset = (pages.start() - reservation.pages().start()) as usize * PAGE;
        let (start, bytes) =
            (base(reservation).wrapping_byte_add(offset), pages.len() as usize * PAGE);
        // SAFETY: the pages lie in the reservation (checked above), which the crowd owns until the
        // thread has ended (law 1), so that they stay as open as `is_open` has found them, and no other thread runs on
        // them (`are_apart`, checked at the start).
        check(unsafe { libc::pthread_attr_setstack(&raw mut self.0, start, bytes) })
    }

    fn spawn(&self, seat: *const Seat) -> io::Result<libc::pthread_t> {
        let mut thread = MaybeUninit::uninit();
        let (attributes, to) = (&raw const self.0, thread.as_mut_ptr());
        let seat = seat.cast_mut().cast::<c_void>();
        // SAFETY: the attributes are initialized, `sit` has the right signature, and the seat stays at its place until
        // the thread has been joined (law 1 of `Crowd`).
        let refused = unsafe { libc::pthread_create(to, attributes, sit, seat) };
        check(refused)?;
        // SAFETY: `pthread_create` has succeeded, checked above.
        Ok(unsafe { thread.assume_init() })
    }
}

impl Drop for ThreadAttributes {
    fn drop(&mut self) {
        // SAFETY: they were initialized by `new`, and are not used again.
        unsafe { libc::pthread_attr_destroy(&raw mut self.0) };
    }
}

/// Turns the result of a call of the C library's threads, zero or an error, into a `Result`.
fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Runs as a thread of the crowd.
extern "C" fn sit(seat: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` was given a pointer to a seat that outlives the thread (law 1 of `Crowd`), shared and changed
    // only through its atomic.
    let seat = unsafe { &*seat.cast_const().cast::<Seat>() };
    let here = &raw const seat;
    // Pairs with the acquire in `stack_addresses`.
    seat.stack.store(here.addr() as u64, Ordering::Release);
    (seat.body)();
    let mut byte = 0u8;
    // SAFETY: the buffer is one byte long, as the call is told. The gate stays open until this thread is joined.
    while unsafe { libc::read(seat.gate, (&raw mut byte).cast(), 1) } > 0 {}
    ptr::null_mut()
}
