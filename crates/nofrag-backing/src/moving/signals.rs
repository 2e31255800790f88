//! Waits in a signal handler: a thread that writes to a run that `mprotect` made read-only for a move waits for its
//! end.
//!
//! The handler of `SIGSEGV` belongs to the whole process. It is installed with the first move that needs it, and never
//! taken away. It looks the address up in a table of areas; in one of them it waits while a move is under way, and then
//! the write is tried again. For all other addresses it calls the handler that was installed before it; without one,
//! the signal gets its default action.
//!
//! Limits: once another handler has replaced it, moves are refused; it must not be installed during one. A write
//! inside a system call gets no signal but fails with `EFAULT`. A thread that blocks the signal dies. Waiting is by
//! yielding the processor.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::io::Errno;

use crate::sys;

/// The most areas whose writers can wait in the handler at once.
const SLOTS: usize = 64;

/// The code of a `SIGSEGV` that a protection causes; an address without mapping causes another one.
const SEGV_ACCERR: c_int = 2;

const POISONED: &str = "no thread panicked while it held this lock";

/// An entry of the handler's table: the addresses of an area, and its moves.
///
/// The handler may see the ends of two areas mixed while one is entered in place of the other. Then the write is tried
/// again once too often, or the signal comes again, and the handler looks again.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Odd while a move is under way.
    moves: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), moves: AtomicU32::new(0) }
}; SLOTS];

/// The slots in use, a bit each.
static USED: Mutex<u64> = Mutex::new(0);

/// The action for `SIGSEGV` before ours was installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Why an area cannot be entered in the handler's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoEntry {
    Full,
    /// Another handler was installed after ours.
    Replaced,
    /// No handler can be installed.
    System(Errno),
}

/// An area's place in the handler's table, given up when this is dropped.
#[derive(Debug)]
pub(super) struct Entry(usize);

/// The place where moves of an area are announced.
#[derive(Clone, Copy)]
pub(super) struct Seat(&'static Slot);

/// A move that is under way. When it is dropped, waiting threads go on.
pub(super) struct Underway(&'static Slot);

impl Entry {
    /// Enters an area, so that writes to it wait for its moves. The handler was found [installed](install).
    pub(super) fn new(addresses: Range<usize>) -> Result<Entry, NoEntry> {
        let mut used = USED.lock().expect(POISONED);
        let free = (!*used).trailing_zeros() as usize;
        let slot = TABLE.get(free).ok_or(NoEntry::Full)?;
        *used |= 1 << free;
        // Release: pairs with the acquire in `find`. The start comes last: without it nothing is found.
        slot.end.store(addresses.end, Ordering::Release);
        slot.start.store(addresses.start, Ordering::Release);
        Ok(Entry(free))
    }

    pub(super) fn seat(&self) -> Seat {
        Seat(&TABLE[self.0])
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let slot = &TABLE[self.0];
        slot.start.store(0, Ordering::Release);
        slot.end.store(0, Ordering::Release);
        *USED.lock().expect(POISONED) &= !(1 << self.0);
    }
}

impl Seat {
    /// Makes writers wait from now on. One move of an area at a time.
    pub(super) fn begin(self) -> Underway {
        // AcqRel: the protection that follows must not be seen before; pairs with the acquire in `wait`.
        let before = self.0.moves.fetch_add(1, Ordering::AcqRel);
        debug_assert_eq!(before % 2, 0, "one move at a time");
        Underway(self.0)
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `wait`, so that a waiting thread finds the new mapping.
        self.0.moves.fetch_add(1, Ordering::Release);
    }
}

/// Installs the handler, once; later calls fail if it was replaced.
pub(super) fn install() -> Result<(), NoEntry> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().expect(POISONED);
    let ours = handle as *const () as usize;
    // SAFETY: all zero is a valid `sigaction`: the default action.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: it reads the present action into a structure of ours.
    let got = unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &mut before) };
    if got != 0 {
        return Err(NoEntry::System(sys::last_error()));
    }
    if *installed {
        return if before.sa_sigaction == ours { Ok(()) } else { Err(NoEntry::Replaced) };
    }
    // Kept first: the handler may run as soon as it is there.
    let before = *BEFORE.get_or_init(|| before);
    let mut action = before;
    action.sa_sigaction = ours;
    // On the alternative stack, where std looks for overflows of the other; with the signals blocked that were blocked
    // before.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler does only what a handler may: it reads atomics, yields, and calls the one before it.
    match unsafe { libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()) } {
        0 => *installed = true,
        _ => return Err(NoEntry::System(sys::last_error())),
    }
    Ok(())
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel hands a valid structure to a handler that was installed with `SA_SIGINFO`.
    let code = unsafe { (*info).si_code };
    // SAFETY: as above; for this signal it has an address.
    let address = unsafe { (*info).si_addr() }.addr();
    match find(address).filter(|_| code == SEGV_ACCERR) {
        Some(slot) => wait(slot),
        None => pass_on(signal, code, info, context),
    }
}

fn find(address: usize) -> Option<&'static Slot> {
    // Acquire: pairs with the release in `Entry::new`.
    let holds = |slot: &&Slot| {
        slot.start.load(Ordering::Acquire) <= address && address < slot.end.load(Ordering::Acquire)
    };
    TABLE.iter().filter(|slot| slot.start.load(Ordering::Acquire) != 0).find(holds)
}

/// Waits for the end of the move that is under way, not for that of a later one.
fn wait(slot: &Slot) {
    // Acquire: pairs with the release of `Underway`.
    let seen = slot.moves.load(Ordering::Acquire);
    while seen % 2 == 1 && slot.moves.load(Ordering::Acquire) == seen {
        // SAFETY: `sched_yield` may be called in a handler, and cannot fail, so that `errno` stays.
        unsafe { libc::sched_yield() };
    }
}

/// Passes the signal on to the action that was installed before.
fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    // Sent by a process, as by `kill`: nothing is tried again after it.
    let is_sent = code <= 0;
    match before.sa_sigaction {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The write is tried again, and the default action ends the process: a fault cannot be ignored.
            // SAFETY: the structure came from the kernel, and a handler may change actions.
            let _ = unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
            if is_sent {
                // The signal is blocked here, and comes when the handler has returned.
                // SAFETY: a handler may send signals.
                let _ = unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the kernel named it as a handler of this form.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: the kernel named it as a handler of the simple form.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}
