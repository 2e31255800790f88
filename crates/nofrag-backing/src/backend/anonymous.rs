//! Private memory of this process: cheap to make, gone with the process, copied on write by a fork.
//!
//! A reservation is one mapping that may be read and written, without memory behind it (`MAP_NORESERVE`); memory comes
//! with the first touch of each page. So making and mapping need no system call, and a reservation stays one area of
//! the kernel in all operations inside it, as long as all of it may be read and written. Removing a mapping drops
//! the contents and never leaves a hole. Ranges that are purged or unmapped in one submission are joined where they
//! touch, and go to the kernel in vectors where they do not.
//!
//! If giving contents back fails, the range still holds them, and the operation fails: its next user must be its
//! last, or it must be zeroed by hand.
//!
//! Source: docs/sources/backing.md#r3, #purge-fails.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::iter::repeat_n;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nofrag::check::{Check, Violation};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::books::{BackendBooks, Change, Shown};
use super::discard::{Discard, VECTOR};
use super::host::{HostSpace, pointer, protect};
use super::{
    Access, Backend, BackendError, Caps, Geometry, HostMemory, Op, OpResult, Va, submission,
};
use crate::sys;
use crate::zeroed::collected;

/// Private memory of this process. See [`Anonymous::huge`] for memory in huge pages.
///
/// Its reservations go when it is dropped.
#[derive(Debug)]
pub struct Anonymous {
    pub(super) geometry: Geometry,
    pub(super) space: HostSpace<Private>,
    promises: Mutex<Promises>,
    discard: Discard,
    /// Advice for every reservation, if any.
    advice: Option<i32>,
}

/// Private memory that was made but is not mapped: a promise, since pages come with their first touch. Each mapping of
/// it is memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promise(u64);

/// Promises that were made and not destroyed, with their bytes.
#[derive(Debug, Default)]
struct Promises {
    made: u64,
    live: BTreeMap<u64, u64>,
}

/// The contents of a private mapping: memory that no other mapping shows, so that there is nothing to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Private;

impl Shown for Private {
    fn further(self, _: u64) -> Private {
        self
    }

    /// Compares access alone, since a range that is only reserved may be read and written as well.
    fn is_one_area(left: Option<(Private, Access)>, right: Option<(Private, Access)>) -> bool {
        let access =
            |side: Option<(Private, Access)>| side.map_or(Access::ReadWrite, |side| side.1);
        access(left) == access(right)
    }
}

impl Anonymous {
    /// Returns a backend of its own, with nothing reserved.
    #[must_use]
    pub fn new() -> Anonymous {
        Anonymous::with_pages(1 << sys::PAGE, None)
    }

    /// Returns a backend for memory in units of `granule`; each reservation is given `advice`.
    pub(super) fn with_pages(granule: u64, advice: Option<i32>) -> Anonymous {
        let geometry = Geometry {
            granule,
            recommended: 2 << 20,
            va_align: granule,
            max_va: 1 << 46,
            caps: Caps::PARTIAL_UNMAP
                | Caps::OVER_MAP
                | Caps::SUBRANGE_MAP
                | Caps::PURGE_IN_PLACE
                | Caps::ZEROED,
            max_mappings: None,
            vector_max: VECTOR,
        };
        Anonymous {
            geometry,
            space: HostSpace::new(ProtFlags::READ | ProtFlags::WRITE, None),
            promises: Mutex::default(),
            discard: Discard::default(),
            advice,
        }
    }

    /// Returns the number of bytes that were released while the system could not unmap them. They are empty, and are
    /// unmapped later.
    #[must_use]
    pub fn held_back(&self) -> u64 {
        self.space.held_back()
    }

    /// Returns an upper bound on the number of areas that the system keeps for this backend.
    #[must_use]
    pub fn areas(&self) -> u64 {
        self.space.read().areas()
    }

    fn promises(&self) -> MutexGuard<'_, Promises> {
        // No change can be left half done by a panic: each is one call.
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advise(&self, va: Va, bytes: usize) {
        if let Some(advice) = self.advice {
            // SAFETY: the range is ours: it was mapped just now, or lies in a reservation whose books are held. The
            // advice is one of those that change no contents. Without it memory serves as well, only slower.
            let _ = unsafe { sys::madvise(pointer(va), bytes, advice) };
        }
    }

    /// Makes a range of a reservation as new: empty, readable and writable.
    fn renew(&self, va: Va, bytes: u64) -> OpResult {
        let at: *mut c_void = pointer(va);
        // SAFETY: the range lies in one of our reservations, as the books say that the caller holds; a caller that
        // unmaps it or maps over it gives up its contents.
        unsafe { self.space.map_empty(at, bytes as usize, MapFlags::FIXED) }?;
        self.advise(va, bytes as usize);
        Ok(())
    }

    fn map(&self, op: &Op<Promise>) -> OpResult {
        let &Op::Map { va, phys, offset, bytes } = op else {
            return Err(BackendError::Unsupported);
        };
        self.geometry.fits(va, bytes)?;
        let promised =
            self.promises().live.get(&phys.0).copied().ok_or(BackendError::WrongState)?;
        self.geometry.fits_inside(offset, bytes, promised)?;
        let mut books = self.space.write();
        books.check_reserved(va, bytes)?;
        let is_new = books.is_unmapped(va, bytes);
        let change = Change::Map(Private, Access::ReadWrite);
        let carry_out = || if is_new { Ok(()) } else { self.renew(va, bytes) };
        books.change((va, bytes), change, carry_out).map(drop)
    }

    fn grant(&self, va: Va, bytes: u64, access: Access) -> OpResult {
        self.geometry.fits(va, bytes)?;
        let mut books = self.space.write();
        books.check_mapped(va, bytes)?;
        // SAFETY: the range lies in one of our reservations (the books, which are held); whoever reserved it decides
        // what its users may do.
        let carry_out = || unsafe { protect(va, bytes, access) };
        books.change((va, bytes), Change::Grant(access), carry_out).map(drop)
    }

    fn purge(&self, ops: &[Op<Promise>], done: &mut [OpResult]) {
        let books = self.space.read();
        let mut wanted = Vec::new();
        for (place, (va, bytes)) in ops.iter().map(Op::range).enumerate() {
            done[place] = self.check_mapped(&books, va, bytes);
            if done[place].is_ok() {
                wanted.push((place, (va, bytes)));
            }
        }
        self.drop_contents(&wanted, done);
    }

    fn unmap(&self, ops: &[Op<Promise>], done: &mut [OpResult]) {
        let mut books = self.space.write();
        let mut plain = Vec::new();
        for (place, (va, bytes)) in ops.iter().map(Op::range).enumerate() {
            done[place] = self.check_mapped(&books, va, bytes);
            if done[place].is_err() {
                continue;
            }
            if books.allows_all(va, bytes, Access::ReadWrite) {
                plain.push((place, (va, bytes)));
            } else {
                // The next mapping there may be read and written again.
                let renew = || self.renew(va, bytes);
                done[place] = books.change((va, bytes), Change::Unmap, renew).map(drop);
            }
        }
        self.drop_contents(&plain, done);
        for (place, range) in plain {
            let forget = |()| books.change(range, Change::Unmap, || Ok(())).map(drop);
            done[place] = done[place].and_then(forget);
        }
    }

    fn check_mapped(&self, books: &BackendBooks<Private>, va: Va, bytes: u64) -> OpResult {
        self.geometry.fits(va, bytes)?;
        books.check_mapped(va, bytes)
    }

    /// Gives the contents of ranges back that the caller has found mapped in the books that it holds; each comes with
    /// the index of its result in `done`.
    fn drop_contents(&self, wanted: &[(usize, (Va, u64))], done: &mut [OpResult]) {
        let count = wanted.len();
        let ranges = collected(count, wanted.iter().map(|&(_, range)| range));
        let dropped = collected(count, repeat_n(Ok(()), count));
        let (Ok(ranges), Ok(mut dropped)) = (ranges, dropped) else {
            let refused = Err(BackendError::System(Errno::NOMEM));
            return wanted.iter().for_each(|&(place, _)| done[place] = refused);
        };
        // SAFETY: each lies in one of our reservations, as the books say that both callers hold; a caller that purges
        // or unmaps a range gives up its contents.
        unsafe { self.discard.all(&ranges, &mut dropped) };
        wanted.iter().zip(dropped).for_each(|(&(place, _), result)| done[place] = result);
    }
}

impl Default for Anonymous {
    fn default() -> Anonymous {
        Anonymous::new()
    }
}

/// Checks a backend that is not in use meanwhile.
impl Check for Anonymous {
    fn check(&self) -> Result<(), Violation> {
        self.space.read().check()
    }
}

impl Backend for Anonymous {
    type Phys = Promise;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, BackendError> {
        let (bytes, align) = self.geometry.reservation(bytes, align)?;
        let va = self.space.reserve(bytes, align, hint)?;
        self.advise(va, bytes);
        Ok(va)
    }

    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        self.space.release(va, bytes).map(drop)
    }

    fn create(&self, bytes: u64) -> Result<Promise, BackendError> {
        self.geometry.fits(Va(0), bytes)?;
        let mut promises = self.promises();
        promises.made += 1;
        let promise = promises.made;
        promises.live.insert(promise, bytes);
        Ok(Promise(promise))
    }

    fn destroy(&self, phys: Promise) -> Result<(), BackendError> {
        self.promises().live.remove(&phys.0).map(drop).ok_or(BackendError::WrongState)
    }

    fn submit(&self, ops: &[Op<Promise>], done: &mut [OpResult]) {
        submission::in_batches(ops, done, |ops, done| match ops[0] {
            Op::Purge { .. } => self.purge(ops, done),
            Op::Unmap { .. } => self.unmap(ops, done),
            _ => submission::each(ops, done, |op| match *op {
                Op::Grant { va, bytes, access } => self.grant(va, bytes, access),
                _ => self.map(op),
            }),
        });
    }

    fn hide_from_children(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        self.geometry.fits(va, bytes)?;
        self.space.hide_from_children(va, bytes)
    }
}

// SAFETY: reservations are mapped to be read and written from the beginning and are unmapped by `release` or `drop`
// alone (law 1 of `HostSpace`); access that a grant took away comes back when the range is unmapped or mapped over.
unsafe impl HostMemory for Anonymous {}
