//! The steps that let a range of addresses show other pages without losing a write, for each way of keeping writers
//! away. Each ends in one of two states: everything as before, or everything moved, and nobody waits.
//!
//! Under userfaultfd: the range is registered, at each move, since the mapping that a move makes is a new one; it is
//! protected, and writers wait in the kernel; the pages are copied through the window; the new mapping goes over the
//! old one in one step, for a range that is unmapped even for a moment lets others fault, or map there; those who wait
//! are woken, and write to the new pages. What a request could not undo is owed, and asked for again. Closing the
//! descriptor is no way out: a child of a fork may have it too, and then it stays open, with whoever waits.
//!
//! Source: docs/sources/backing.md#move-steps.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::mover::{Fill, MoveError, Step};
use super::signals::Seat;
use super::userfaultfd::{Features, OpenError, RequestError, Userfaultfd, Watch};
use crate::backend::Va;
use crate::forks::Forks;
use crate::sys;

/// So often a call is made again that the kernel could not carry out just now.
const ATTEMPTS: u32 = 64;

/// A range of addresses that shall show other pages of a file.
pub(super) struct Swap<'a> {
    /// Where it begins.
    pub(super) at: *mut c_void,
    /// Its size.
    pub(super) bytes: usize,
    /// The file.
    pub(super) file: BorrowedFd<'a>,
    /// From where in the file on it shall show it, in bytes.
    pub(super) offset: u64,
}

impl Swap<'_> {
    fn va(&self) -> Va {
        Va(self.at.addr() as u64)
    }

    /// Maps the new pages over what stands there.
    ///
    /// # Safety
    /// The range belongs to the caller and is mapped; whoever uses it bears that the new pages stand there.
    pub(super) unsafe fn map_over(&self, fill: Fill) -> Result<(), MoveError> {
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        let populate = match fill {
            Fill::OnFault => MapFlags::empty(),
            Fill::Populate => MapFlags::POPULATE,
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED | populate;
        let map = || {
            // SAFETY: the caller's promise.
            unsafe { sys::mmap(self.at, self.bytes, allowed, flags, self.file, self.offset) }
        };
        insist(map).map(drop).map_err(|error| MoveError::System { step: Step::Map, error })
    }

    /// Changes what may be done to the range.
    ///
    /// # Safety
    /// The range belongs to the caller, and whoever writes to it bears to get a signal.
    pub(super) unsafe fn allow(&self, allowed: MprotectFlags) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        insist(|| unsafe { sys::mprotect(self.at, self.bytes, allowed) })
    }
}

/// Makes a call again that was interrupted, or that the kernel could not carry out just now.
fn insist<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut attempts = 0;
    loop {
        match call() {
            Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS => attempts += 1,
            result => return result,
        }
    }
}

/// Protects by userfaultfd. The descriptor is made when it is needed.
///
/// 1. Between two moves no range is registered, and nobody waits, but in ranges that are owed.
/// 2. The descriptor is used in the process alone that made it: it works on the addresses of that one, whoever asks.
#[derive(Debug, Default)]
pub(super) struct Protector {
    open: Option<Open>,
    /// Ranges that may be registered still, or have somebody waiting, because that could not be undone.
    owed: Vec<(Va, u64)>,
}

#[derive(Debug)]
struct Open {
    descriptor: Userfaultfd,
    process: Forks,
}

impl Protector {
    /// The descriptor.
    pub(super) fn descriptor(&mut self) -> Result<&Userfaultfd, OpenError> {
        self.leave_to_parent();
        let wanted = Features::WRITE_PROTECT | Features::WRITE_PROTECT_SHARED;
        let open = match &mut self.open {
            Some(open) => open,
            empty => {
                let process = Forks::now().map_err(OpenError::System)?;
                empty.insert(Open { descriptor: Userfaultfd::open(wanted)?, process })
            }
        };
        Ok(&open.descriptor)
    }

    /// In a child, gives up what is the parent's: its descriptor, and what it owes.
    fn leave_to_parent(&mut self) {
        if self.open.as_ref().is_some_and(|open| !open.process.is_same()) {
            self.open = None;
            self.owed.clear();
        }
    }

    /// Undoes what could not be undone before.
    pub(super) fn settle(&mut self) -> Result<(), MoveError> {
        self.leave_to_parent();
        let Some(Open { descriptor, .. }) = &self.open else { return Ok(()) };
        while let Some(&(at, bytes)) = self.owed.last() {
            let settled = release(descriptor, at, bytes);
            settled.map_err(|why| MoveError::System { step: Step::Settle, error: why.error })?;
            self.owed.pop();
        }
        Ok(())
    }

    /// Lets the range show the new pages, with `copy` called when nobody can write.
    ///
    /// # Safety
    /// As [`Swap::map_over`].
    pub(super) unsafe fn swap(
        &mut self,
        swap: &Swap<'_>,
        fill: Fill,
        copy: impl FnOnce(),
    ) -> Result<(), MoveError> {
        let (at, bytes) = (swap.va(), swap.bytes as u64);
        self.settle()?;
        let descriptor = self.descriptor()?;
        let failed = |step| move |why: RequestError| MoveError::System { step, error: why.error };
        let register = descriptor.register(at, bytes, Watch::WRITES);
        let protected = register
            .map_err(failed(Step::Register))
            .and_then(|()| descriptor.write_protect(at, bytes).map_err(failed(Step::Protect)));
        let moved = protected.and_then(|()| {
            copy();
            // SAFETY: the caller's promise.
            unsafe { swap.map_over(fill) }
        });
        let undone = match &moved {
            // The new mapping is not registered.
            Ok(()) => descriptor.wake(at, bytes),
            Err(MoveError::System { step: Step::Register, error }) if is_untouched(*error) => {
                Ok(())
            }
            Err(_) => release(descriptor, at, bytes),
        };
        // A message that is not read keeps nobody waiting.
        let drained = descriptor.drain();
        if undone.is_err() {
            self.owed.push((at, bytes));
        } else if drained.is_err() {
            self.open = None;
        }
        moved
    }
}

impl Drop for Protector {
    fn drop(&mut self) {
        // What cannot be undone even now ends with the descriptor, if no child has it too.
        let _ = self.settle();
    }
}

/// Whether a refused registration has left all areas of its range as they were: these are said before the first is
/// registered. Another's registration must not be taken away then.
fn is_untouched(error: Errno) -> bool {
    matches!(error, Errno::BUSY | Errno::INVAL | Errno::PERM)
}

/// Ends a registration, which takes the protection away, and wakes who waits, also where the range shows something
/// else by now or nothing.
fn release(descriptor: &Userfaultfd, at: Va, bytes: u64) -> Result<(), RequestError> {
    match descriptor.unregister(at, bytes) {
        // Nothing there can be registered: it was unmapped.
        Err(RequestError { error: Errno::INVAL, .. }) | Ok(()) => descriptor.wake(at, bytes),
        Err(why) => Err(why),
    }
}

/// What became of a move under `mprotect`.
pub(super) enum Allowed {
    /// The range can be written.
    Yes,
    /// It may be read-only still; whoever writes tries again and again.
    Owed,
}

/// Lets the range show the new pages, with `copy` called when nobody can write; writers wait in a signal handler.
///
/// # Safety
/// As [`Swap::map_over`]; the handler knows the range by `seat`.
pub(super) unsafe fn swap_under_signals(
    swap: &Swap<'_>,
    seat: Seat,
    copy: impl FnOnce(),
) -> (Result<(), MoveError>, Allowed) {
    let underway = seat.begin();
    // SAFETY: the caller's promise; writers wait in the handler.
    let protected = unsafe { swap.allow(MprotectFlags::READ) };
    let protected = protected.map_err(|error| MoveError::System { step: Step::Protect, error });
    let moved = protected.and_then(|()| {
        copy();
        // SAFETY: the caller's promise.
        unsafe { swap.map_over(Fill::OnFault) }
    });
    let allowed = match &moved {
        // The new mapping can be written.
        Ok(()) => Allowed::Yes,
        // SAFETY: the caller's promise; more is allowed than before.
        Err(_) => match unsafe { swap.allow(MprotectFlags::READ | MprotectFlags::WRITE) } {
            Ok(()) => Allowed::Yes,
            Err(_) => Allowed::Owed,
        },
    };
    drop(underway);
    (moved, allowed)
}
