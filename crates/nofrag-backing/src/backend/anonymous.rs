//! Private memory of this process: cheap to make, gone with the process, copied on write by a fork.
//!
//! A reservation is one mapping that may be read and written, without memory behind it (`MAP_NORESERVE`); memory comes
//! with the first touch of each page. So making and mapping need no system call, and a reservation stays one area of
//! the kernel whatever is done inside it. Taking a mapping away drops the contents (`MADV_DONTNEED`) and never leaves
//! a hole.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::books::Books;
use super::{
    Access, Backend, BackendError, Caps, CostModel, Export, Geometry, HostMemory, Op, OpResult,
    Placement, Va,
};
use crate::sys;

/// Private memory of this process.
///
/// 1. Every range of `books` was mapped by `reserve`, and is unmapped by `release` or `drop` alone.
#[derive(Debug)]
pub struct Anonymous {
    geometry: Geometry,
    books: Books,
    made: AtomicU64,
}

/// Some private memory: a promise, since pages come with their first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise(u64);

impl Anonymous {
    /// A backend of its own, with nothing reserved.
    #[must_use]
    pub fn new() -> Anonymous {
        let geometry = Geometry {
            granule: 1 << sys::PAGE,
            recommended: 2 << 20,
            va_align: 1 << sys::PAGE,
            max_va: 1 << 46,
            caps: Caps::PARTIAL_UNMAP
                | Caps::OVER_MAP
                | Caps::SUBRANGE_MAP
                | Caps::PURGE_IN_PLACE
                | Caps::ZEROED,
            max_mappings: None,
            vector_max: 64,
            cost: CostModel::default(),
        };
        Anonymous { geometry, books: Books::default(), made: AtomicU64::new(0) }
    }

    fn fits(&self, bytes: u64) -> Result<usize, BackendError> {
        let whole = bytes > 0 && bytes.is_multiple_of(self.geometry.granule);
        let bytes = usize::try_from(bytes).ok().filter(|_| whole);
        bytes.ok_or(BackendError::Misfit)
    }

    fn drop_contents(&self, va: Va, bytes: u64) -> OpResult {
        let bytes = self.own(va, bytes)?;
        // SAFETY: the range lies in one of our reservations (`own` has checked); whoever reserved it says that its
        // contents are no longer wanted.
        Ok(unsafe { sys::madvise(pointer(va), bytes, libc::MADV_DONTNEED) }?)
    }

    /// The bytes of a range of ours.
    fn own(&self, va: Va, bytes: u64) -> Result<usize, BackendError> {
        let fitting = self.fits(bytes)?;
        if !va.0.is_multiple_of(self.geometry.va_align) {
            return Err(BackendError::Misfit);
        }
        self.books.check(va, bytes)?;
        Ok(fitting)
    }

    fn grant(&self, va: Va, bytes: u64, access: Access) -> OpResult {
        let bytes = self.own(va, bytes)?;
        let allowed = match access {
            Access::None => MprotectFlags::empty(),
            Access::Read => MprotectFlags::READ,
            Access::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        // SAFETY: the range lies in one of our reservations (`own` has checked); whoever reserved it decides what its
        // users may do.
        Ok(unsafe { sys::mprotect(pointer(va), bytes, allowed) }?)
    }

    fn carry_out(&self, op: &Op<Promise>) -> OpResult {
        match *op {
            Op::Map { va, bytes, .. } => self.own(va, bytes).map(drop),
            Op::Unmap { va, bytes } | Op::Purge { va, bytes } => self.drop_contents(va, bytes),
            Op::Grant { va, bytes, access } => self.grant(va, bytes, access),
            Op::Move { .. } | Op::Copy { .. } => Err(BackendError::Unsupported),
        }
    }
}

impl Default for Anonymous {
    fn default() -> Anonymous {
        Anonymous::new()
    }
}

/// An address of this process, for a system call.
fn pointer(va: Va) -> *mut c_void {
    ptr::with_exposed_provenance_mut(va.0 as usize)
}

impl Backend for Anonymous {
    type Phys = Promise;
    type Fence = ();

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, BackendError> {
        let wanted = self.fits(bytes)?;
        if !align.is_power_of_two() {
            return Err(BackendError::Misfit);
        }
        // What is needed to find an aligned place in it; the rest is given back at once.
        let slack = (align as usize).saturating_sub(1 << sys::PAGE);
        let total = wanted.checked_add(slack).ok_or(Errno::NOMEM)?;
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without `MAP_FIXED` nothing that exists is replaced.
        let base = unsafe {
            sys::mmap_anonymous(pointer(hint.unwrap_or_default()), total, allowed, flags)
        }?;
        let base = base.expose_provenance();
        let start = base.next_multiple_of(align as usize);
        let (before, after) = (start - base, base + total - (start + wanted));
        for (at, bytes) in [(base, before), (start + wanted, after)] {
            if bytes > 0 {
                // SAFETY: it was mapped above, and nobody knows of it yet. If it cannot be given back it stays
                // reserved: addresses without memory.
                let _ = unsafe { sys::munmap(pointer(Va(at as u64)), bytes) };
            }
        }
        self.books.enter(Va(start as u64), bytes);
        Ok(Va(start as u64))
    }

    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        self.books.strike(va, bytes)?;
        // SAFETY: it was one of our reservations (law 1), and is struck off the books; who gives it back uses it no
        // more.
        let released = unsafe { sys::munmap(pointer(va), bytes as usize) };
        if released.is_err() {
            self.books.enter(va, bytes);
        }
        Ok(released?)
    }

    fn create(&self, bytes: u64, _: Placement, export: Export) -> Result<Promise, BackendError> {
        self.fits(bytes)?;
        match export {
            Export::Private => Ok(Promise(self.made.fetch_add(1, Ordering::Relaxed))),
            Export::Shareable => Err(BackendError::Unsupported),
        }
    }

    fn destroy(&self, _: Promise) -> Result<(), BackendError> {
        Ok(())
    }

    fn submit(&self, ops: &[Op<Promise>], done: &mut [OpResult]) {
        assert_eq!(ops.len(), done.len(), "a result for each operation");
        for (at, op) in ops.iter().enumerate() {
            done[at] = if super::meets_failure(&ops[..at], &done[..at], op) {
                Err(BackendError::Skipped)
            } else {
                self.carry_out(op)
            };
        }
    }

    fn quiesce(&self, (): &()) -> Poll<()> {
        Poll::Ready(())
    }
}

// SAFETY: reservations are mapped to be read and written from the beginning, are unmapped by `release` alone (law 1),
// and no operation takes access away but a grant that was asked for.
unsafe impl HostMemory for Anonymous {}
