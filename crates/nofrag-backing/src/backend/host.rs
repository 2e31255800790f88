//! Addresses of this process: reserved, kept in books, given back.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::books::{BackendBooks, Mapping, Shown};
use super::{Access, BackendError, Va};
use crate::sys;

/// The reservations of a backend in this process.
///
/// 1. Every reservation of `books` and every range of `held_back` was mapped by `reserve`, and is unmapped here alone.
/// 2. No range is in both, nor twice in either.
/// 3. The books count the areas of ranges that are held back: they are within the budget too.
///
/// The lock is as the kernel's own: a purge shares it, a mapping or unmapping holds it alone. It is held over the
/// system call, since else a range could be released, and reserved by another user, between the look into the books and
/// the call.
#[derive(Debug)]
pub(super) struct HostSpace<M: Shown> {
    books: RwLock<BackendBooks<M>>,
    /// Ranges that were released and could not be unmapped, emptied; tried again later.
    held_back: Mutex<Vec<HeldBack>>,
    /// The access that a reservation allows where nothing is mapped in it.
    allowed: ProtFlags,
}

/// Addresses that could not be unmapped.
#[derive(Debug)]
struct HeldBack {
    va: Va,
    bytes: usize,
    /// The most areas that the system keeps for these addresses.
    areas: u64,
}

impl<M: Shown> HostSpace<M> {
    /// Returns a space with nothing reserved.
    pub(super) fn new(allowed: ProtFlags, budget: Option<u64>) -> HostSpace<M> {
        let books = RwLock::new(BackendBooks::new(budget));
        HostSpace { books, held_back: Mutex::default(), allowed }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, BackendBooks<M>> {
        // Nothing panics while the lock is held: under it there are only system calls.
        self.books.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, BackendBooks<M>> {
        self.books.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes that were released and are not unmapped yet.
    pub(super) fn held_back(&self) -> u64 {
        let held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        held_back.iter().map(|held| held.bytes as u64).sum()
    }

    /// Makes a mapping that shows nothing and allows no more than a reservation does.
    ///
    /// # Safety
    /// With `MAP_FIXED`, the range lies in a reservation, and its contents are no longer used.
    pub(super) unsafe fn map_empty(
        &self,
        at: *mut c_void,
        bytes: usize,
        flags: MapFlags,
    ) -> Result<*mut c_void, Errno> {
        let flags = flags | MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the caller's promise.
        unsafe { sys::mmap_anonymous(at, bytes, self.allowed, flags) }
    }

    /// Reserves `wanted` bytes at a multiple of `align`, a power of two and of pages.
    pub(super) fn reserve(
        &self,
        wanted: usize,
        align: usize,
        hint: Option<Va>,
    ) -> Result<Va, BackendError> {
        let mut books = self.write();
        if !books.are_ours() {
            return Err(BackendError::WrongState);
        }
        self.try_again(&mut books);
        books.may_reserve()?;
        // Enough to find an aligned place in it; the rest is given back at once.
        let slack = align.saturating_sub(1 << sys::PAGE);
        let total = wanted.checked_add(slack).ok_or(Errno::NOMEM)?;
        let hint = pointer(hint.unwrap_or_default());
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let base = unsafe { self.map_empty(hint, total, MapFlags::empty()) }?;
        let base = base.expose_provenance();
        let start = base.next_multiple_of(align);
        let (before, after) = (start - base, base + total - (start + wanted));
        for (at, bytes) in [(base, before), (start + wanted, after)] {
            if bytes > 0 {
                // SAFETY: it was mapped above, and no other thread knows of it yet.
                unsafe { self.unmap(&mut books, Va(at as u64), bytes, 1) };
            }
        }
        books.enter(Va(start as u64), wanted as u64);
        Ok(Va(start as u64))
    }

    /// Gives back exactly one reservation; returns the mappings that were in it.
    pub(super) fn release(
        &self,
        va: Va,
        bytes: u64,
    ) -> Result<Vec<(Va, Mapping<M>)>, BackendError> {
        let mut books = self.write();
        if !books.is_reservation(va, bytes) {
            return Err(BackendError::WrongState);
        }
        self.try_again(&mut books);
        let areas = books.areas_of(va, bytes);
        let mapped = books.strike(va, bytes);
        // SAFETY: it was one of our reservations (law 1), and is off the books; the caller gives it up.
        unsafe { self.unmap(&mut books, va, bytes as usize, areas) };
        Ok(mapped)
    }

    /// Keeps the mappings in a range from children of `fork`.
    pub(super) fn hide_from_children(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let mut books = self.write();
        books.check_reserved(va, bytes)?;
        books.hide()?;
        // SAFETY: the range lies in one of our reservations (the books, which are held), and the advice changes no
        // contents here.
        Ok(unsafe { sys::madvise(pointer(va), bytes as usize, libc::MADV_DONTFORK) }?)
    }

    /// Removes a range for good: now, or, where the system refuses, later. A part of an area that has merged with its
    /// neighbours goes only if one more area may be made, which at the limit of areas is refused; it is emptied and
    /// held back then, so that neither its memory nor its addresses are lost.
    ///
    /// # Safety
    /// The range was mapped by `reserve`, it is no longer used, and it is not in the books any more.
    unsafe fn unmap(&self, books: &mut BackendBooks<M>, va: Va, bytes: usize, areas: u64) {
        // SAFETY: the caller's promise.
        if unsafe { sys::munmap(pointer(va), bytes) }.is_ok() {
            return;
        }
        // Should this fail too, the memory stays until the range can be unmapped. It is seen by no one.
        // SAFETY: the caller's promise.
        let _ = unsafe { sys::madvise(pointer(va), bytes, libc::MADV_DONTNEED) };
        let mut held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        held_back.push(HeldBack { va, bytes, areas });
        books.keep(areas);
    }

    /// Tries again to unmap the ranges that are held back.
    fn try_again(&self, books: &mut BackendBooks<M>) {
        let mut held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        held_back.retain(|held| {
            // SAFETY: it was mapped by `reserve` and is unmapped here alone (law 1); its user gave it back.
            let stays = unsafe { sys::munmap(pointer(held.va), held.bytes) }.is_err();
            if !stays {
                books.let_go(held.areas);
            }
            stays
        });
    }
}

impl<M: Shown> Drop for HostSpace<M> {
    fn drop(&mut self) {
        if !self.read().are_ours() {
            return;
        }
        self.try_again(&mut self.write());
        let books = self.books.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (va, bytes) in books.reservations() {
            // A range that cannot be unmapped even now is emptied at least, and stays with the process.
            // SAFETY: it is one of our reservations (law 1), and with this their last owner goes. Addresses in it are
            // documented to end with the backend.
            if unsafe { sys::munmap(pointer(va), bytes as usize) }.is_err() {
                // SAFETY: as above.
                let _ = unsafe { sys::madvise(pointer(va), bytes as usize, libc::MADV_DONTNEED) };
            }
        }
    }
}

/// Returns an address of this process as a pointer, for a system call.
pub(super) fn pointer(va: Va) -> *mut c_void {
    ptr::with_exposed_provenance_mut(va.0 as usize)
}

/// Returns an access as `mmap` takes it.
pub(super) fn protection(access: Access) -> ProtFlags {
    match access {
        Access::None => ProtFlags::empty(),
        Access::Read => ProtFlags::READ,
        Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    }
}

/// Changes the access that a range allows.
///
/// # Safety
/// The range lies in a reservation, and the caller is the one that decides on access to it.
pub(super) unsafe fn protect(va: Va, bytes: u64, access: Access) -> Result<(), BackendError> {
    let allowed = MprotectFlags::from_bits_truncate(protection(access).bits());
    // SAFETY: the caller's promise.
    Ok(unsafe { sys::mprotect(pointer(va), bytes as usize, allowed) }?)
}
