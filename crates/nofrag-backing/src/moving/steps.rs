//! The steps that let a range of addresses show other pages without losing a write, for each way of keeping writers
//! away. Each ends in one of two states: everything as before, or everything moved, and no thread waits.
//!
//! Under userfaultfd: the range is registered, at each move, since the mapping that a move makes is a new one; it is
//! protected, and writers wait in the kernel; the pages are copied through the window; the new mapping goes over the
//! old one in one step, for a range that is unmapped even for a moment lets others fault, or map there; waiting threads
//! are woken, and write to the new pages. A range that a request could not release is owed, and tried again. Closing
//! the descriptor does not help: a child of a fork may have it too, and then it stays open, with all that wait.
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

/// Number of times that a call is made again which the kernel could not carry out just now.
const ATTEMPTS: u32 = 64;

/// A range of addresses that shall show other pages of a file.
pub(super) struct Swap<'a> {
    /// First address of the range.
    pub(super) at: *mut c_void,
    pub(super) bytes: usize,
    pub(super) file: BorrowedFd<'a>,
    /// Offset in the file, in bytes, from which on the range shall show it.
    pub(super) offset: u64,
}

impl Swap<'_> {
    fn va(&self) -> Va {
        Va(self.at.addr() as u64)
    }

    /// Maps the new pages over the old contents of the range.
    ///
    /// # Safety
    /// The range belongs to the caller and is mapped; its users tolerate the exchange of its pages.
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

    /// Changes the access that the range allows.
    ///
    /// # Safety
    /// The range belongs to the caller, and a thread that writes to it tolerates a signal.
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

/// A protector by userfaultfd. The descriptor is made when it is needed.
///
/// 1. Between two moves no range is registered, and no thread waits, except in ranges that are owed.
/// 2. The descriptor is used only in the process that made it: it works on the addresses of that process, whichever
///    process asks.
#[derive(Debug, Default)]
pub(super) struct Protector {
    open: Option<Open>,
    /// Ranges that may still be registered, or have threads waiting, because that could not be undone.
    owed: Vec<(Va, u64)>,
}

#[derive(Debug)]
struct Open {
    descriptor: Userfaultfd,
    process: Forks,
}

impl Protector {
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

    /// Gives up, in a child, the things of the parent: its descriptor, and the ranges that it owes.
    fn leave_to_parent(&mut self) {
        if self.open.as_ref().is_some_and(|open| !open.process.is_same()) {
            self.open = None;
            self.owed.clear();
        }
    }

    /// Releases ranges that could not be released before.
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

    /// Lets the range show the new pages, with `copy` called when it cannot be written.
    ///
    /// # Safety
    /// Those of [`Swap::map_over`].
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
        // No thread waits for a message to be read.
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
        // A registration that cannot be undone even now ends with the descriptor, if no child has it too.
        let _ = self.settle();
    }
}

/// Returns true if a refused registration has left all areas of its range as they were: these errors come before the
/// first is registered. A registration of another userfaultfd must not be undone then.
fn is_untouched(error: Errno) -> bool {
    matches!(error, Errno::BUSY | Errno::INVAL | Errno::PERM)
}

/// Ends a registration, which removes the protection, and wakes waiting threads, also where the range shows other pages
/// by now or none.
fn release(descriptor: &Userfaultfd, at: Va, bytes: u64) -> Result<(), RequestError> {
    match descriptor.unregister(at, bytes) {
        // Nothing there can be registered: the range was unmapped.
        Err(RequestError { error: Errno::INVAL, .. }) | Ok(()) => descriptor.wake(at, bytes),
        Err(why) => Err(why),
    }
}

/// Access to the range after a move under `mprotect`.
pub(super) enum Allowed {
    /// The range can be written.
    Yes,
    /// The range may still be read-only; a thread that writes tries again and again.
    Owed,
}

/// Lets the range show the new pages, with `copy` called when it cannot be written; writers wait in a signal handler.
/// Returns the outcome, and the access that the range allows then.
///
/// # Safety
/// Those of [`Swap::map_over`]; the handler knows the range by `seat`.
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
