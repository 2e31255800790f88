//! The lock of a file that one process has, and none of its children.
//!
//! A lock (`flock`) belongs to an open file, and a child of a fork has descriptors of its parent's open files: an owner
//! that died would live on in its children, as far as a successor can tell. So in a child, before anything else runs
//! there, the descriptor is made one of something else. No fork happens between the opening of a file and its lock.
//!
//! A child that was made by a raw `clone` passes the hooks of the C library by: should its parent die, it keeps the
//! lock until it ends or executes another program. An owner that gives its lock up takes it from such children too.

use std::cell::RefCell;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::descriptors::{self, Reopen};
use super::error::{SharedError, to};
use crate::forks::Forks;
use crate::sys;

#[derive(Debug)]
struct Locks {
    /// Whether forks are watched.
    are_hooked: bool,
    /// Each descriptor with a lock, and what a child gets in its place.
    held: Vec<(RawFd, RawFd)>,
}

static LOCKS: Mutex<Locks> = Mutex::new(Locks { are_hooked: false, held: Vec::new() });

/// Time enough for a new child to begin.
const GRACE: Duration = Duration::from_millis(250);

thread_local! {
    /// Held by a thread that forks, from before until after, there and in the child.
    static FORKING: RefCell<Option<MutexGuard<'static, Locks>>> = const { RefCell::new(None) };
}

/// The lock of a file.
///
/// 1. `file` is in `LOCKS` from before it is locked until it is closed, but in a child of a fork.
#[derive(Debug)]
pub(crate) struct Lock {
    file: Option<OwnedFd>,
    parent: Forks,
}

impl Lock {
    /// Takes the lock of `file`, unless somebody has it. As long as it lives, `file` stays open.
    pub(crate) fn take(file: BorrowedFd<'_>) -> Result<Lock, SharedError> {
        let mut locks = locks();
        if !locks.are_hooked {
            // SAFETY: the hooks take a lock, make descriptors others, and give the lock back; none forks.
            let error = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
            if error != 0 {
                let error = rustix::io::Errno::from_raw_os_error(error);
                return Err(to("watch for forks")(error));
            }
            locks.are_hooked = true;
        }
        let parent = Forks::now().map_err(to("watch for forks"))?;
        // An open file of our own: what is locked through one is not locked through the other.
        let own = descriptors::reopened(file, Reopen::Write)?;
        locks.held.push((own.as_raw_fd(), file.as_raw_fd()));
        let locked = sys::try_lock(own.as_fd());
        drop(locks);
        // From here on `drop` takes it out again.
        let lock = Lock { file: Some(own), parent };
        locked.map_err(descriptors::locked)?;
        Ok(lock)
    }

    /// As [`take`](Self::take), from an owner that may have died a moment ago: a child that it had just forked gives
    /// its copy up when it first runs, and one that it had just spawned when it executes its program.
    pub(crate) fn take_over(file: BorrowedFd<'_>) -> Result<Lock, SharedError> {
        let began = Instant::now();
        loop {
            match Lock::take(file) {
                Err(SharedError::OwnerLives) if began.elapsed() < GRACE => {
                    thread::sleep(GRACE / 100)
                }
                taken => return taken,
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut locks = locks();
        if let Some(file) = self.file.take() {
            locks.held.retain(|&(held, _)| held != file.as_raw_fd());
            // For all that have the open file; but a child gives up its own descriptor alone.
            if self.parent.is_same() {
                sys::unlock(file.as_fd());
            }
            // Closed before a fork can copy it.
            drop(file);
        }
    }
}

fn locks() -> MutexGuard<'static, Locks> {
    // No change can be left half done by a panic: each is one call.
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn before() {
    // A thread that is ending has no place for the guard, and forks without it.
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(locks()));
}

extern "C" fn after() {
    let _ = FORKING.try_with(RefCell::take);
}

extern "C" fn in_child() {
    let guard = FORKING.try_with(RefCell::take).ok().flatten();
    let Some(mut locks) = guard.or_else(|| LOCKS.try_lock().ok()) else { return };
    for (held, instead) in mem::take(&mut locks.held) {
        // The number stays taken, so that its owner's copy closes nothing that is not its own. If the system refuses,
        // the child keeps the lock until it ends.
        let _ = sys::replace(held, instead);
    }
}
