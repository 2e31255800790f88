//! A range of addresses that belongs to the caller.
//!
//! A [`Reservation`] is one mapping of the kernel. The caller that places things inside it (an
//! [`AddressSpace`](nofrag::mmap::AddressSpace) over [`Layout::window`](nofrag::mmap::Layout::window)) decides every
//! address in it, and no area is added until protections differ. Guards need not differ: since Linux 6.13 a guard may
//! stand in the page tables alone ([`Reservation::guard`]), so that thousands of guarded stacks remain one area.
//!
//! No reference to the memory is handed out here, and code that runs threads on it owns it meanwhile; so no change of a
//! protection pulls memory from under a user. Pages that may not be touched are noted: guards in page tables show in no
//! list of areas, and a trial access would take memory.
//!
//! Source: docs/sources/backing.md#r6.

use std::ffi::c_void;
use std::io;
use std::ptr;

use nofrag::mmap::Protection;
use nofrag::ranges::{Config, RangeAllocator, Span};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::sys;

/// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE` of Linux 6.13, which no binding has yet.
const GUARD_INSTALL: i32 = 102;
const GUARD_REMOVE: i32 = 103;

/// Bytes of a page, as a shift.
const PAGE: u32 = 12;

/// A private anonymous mapping without reserved memory (`MAP_NORESERVE`), unmapped when dropped.
///
/// 1. Every page of `base..base + bytes` was mapped by `new` and is unmapped by `drop` alone.
/// 2. A page, by its number, that is free in `writable` can be read and written unless it has a guard; a page that is
///    free in `unguarded` has none.
#[derive(Debug)]
pub struct Reservation {
    base: *mut c_void,
    bytes: usize,
    sets: Box<Sets>,
}

/// Two sets of pages: a page is in a set while its number is free in the set's allocator.
#[derive(Debug)]
struct Sets {
    writable: RangeAllocator,
    unguarded: RangeAllocator,
}

// SAFETY: the pointer is an address and nothing here reads or writes through it; the system calls that take it may be
// made by any thread.
unsafe impl Send for Reservation {}

impl Reservation {
    /// Reserves `bytes` bytes, rounded up to pages, at an address that the kernel chooses.
    ///
    /// # Errors
    /// The error of `mmap`: no room, or no more areas; `EINVAL` for no bytes.
    pub fn new(bytes: usize, protection: Protection) -> io::Result<Reservation> {
        Reservation::map(ptr::null_mut(), bytes, protection, MapFlags::empty())
    }

    /// Reserves exactly this range, if it is free.
    ///
    /// # Errors
    /// The error of `mmap`: `EEXIST` if the range is occupied.
    pub fn at(start: u64, bytes: usize, protection: Protection) -> io::Result<Reservation> {
        let hint = ptr::without_provenance_mut(start as usize);
        let made = Reservation::map(hint, bytes, protection, MapFlags::FIXED_NOREPLACE)?;
        // A kernel that does not know the flag takes the address for a hint.
        if made.start() == start { Ok(made) } else { Err(Errno::EXIST.into()) }
    }

    fn map(
        hint: *mut c_void,
        bytes: usize,
        protection: Protection,
        flags: MapFlags,
    ) -> io::Result<Reservation> {
        let flags = flags | MapFlags::PRIVATE | MapFlags::NORESERVE;
        let allowed = ProtFlags::from_bits_truncate(u32::from(protection.0));
        let bytes = bytes.checked_next_multiple_of(1 << PAGE).ok_or(Errno::NOMEM)?;
        // SAFETY: neither caller asks for `MAP_FIXED`, so no existing mapping is replaced.
        let base = unsafe { sys::mmap_anonymous(hint, bytes, allowed, flags) }?;
        let [writable, unguarded] = [(); 2].map(|()| RangeAllocator::new(Config::default()));
        // From here on `drop` unmaps it.
        let mut made = Reservation { base, bytes, sets: Box::new(Sets { writable, unguarded }) };
        let pages = made.pages();
        for set in [&mut made.sets.writable, &mut made.sets.unguarded] {
            set.add_span(pages).map_err(|_| Errno::NOMEM)?;
        }
        if !is_writable(protection) {
            close(&mut made.sets.writable, pages)?;
        }
        Ok(made)
    }

    /// Returns the first address of the reservation.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.base.expose_provenance() as u64
    }

    /// Returns the reservation's pages: the window in which a caller places things.
    #[must_use]
    pub fn pages(&self) -> Span {
        let end = self.start() + self.bytes as u64;
        Span::new(self.start() >> PAGE, end >> PAGE).expect("a mapping is not empty")
    }

    /// Returns the first address and the bytes of `pages`, which lie inside.
    fn part(&self, pages: Span) -> io::Result<(*mut c_void, usize)> {
        if !self.pages().covers(pages) {
            let why = format!("pages {pages:?} are not inside {:?}", self.pages());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let offset = (pages.start() - self.pages().start()) << PAGE;
        Ok((self.base.wrapping_byte_add(offset as usize), (pages.len() << PAGE) as usize))
    }

    /// Changes the access that `pages` allow; splits the area where they differ from the rest.
    ///
    /// # Errors
    /// `InvalidInput` for pages outside; else errors of `mprotect`.
    pub fn protect(&mut self, pages: Span, protection: Protection) -> io::Result<()> {
        let (start, bytes) = self.part(pages)?;
        let allowed = MprotectFlags::from_bits_truncate(u32::from(protection.0));
        // Closed before, opened after: a call that fails may have changed a part.
        close(&mut self.sets.writable, pages)?;
        // SAFETY: the pages are ours (law 1, `part` has checked), and they are not in use: no reference exists,
        // and code that runs threads on them owns the reservation.
        unsafe { sys::mprotect(start, bytes, allowed) }?;
        if is_writable(protection) { open(&mut self.sets.writable, pages) } else { Ok(()) }
    }

    /// Returns true if each of `pages` can be read and written: no protection and no guard of this reservation forbids
    /// it.
    #[must_use]
    pub fn is_open(&self, pages: Span) -> bool {
        self.sets.writable.is_free(pages) && self.sets.unguarded.is_free(pages)
    }

    /// Makes every access to `pages` fail without splitting the area. Their content is lost.
    ///
    /// # Errors
    /// `InvalidInput` for pages outside, and from kernels before 6.13; else errors of `madvise`.
    pub fn guard(&mut self, pages: Span) -> io::Result<()> {
        self.part(pages)?;
        close(&mut self.sets.unguarded, pages)?;
        let installed = self.advise(pages, GUARD_INSTALL);
        if installed.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::InvalidInput) {
            // A kernel that does not know the advice has changed nothing.
            open(&mut self.sets.unguarded, pages)?;
        }
        installed
    }

    /// Removes guards: `pages` are empty and accessible as the area allows.
    ///
    /// # Errors
    /// Those of [`guard`](Self::guard).
    pub fn unguard(&mut self, pages: Span) -> io::Result<()> {
        self.advise(pages, GUARD_REMOVE)?;
        open(&mut self.sets.unguarded, pages)
    }

    fn advise(&self, pages: Span, advice: i32) -> io::Result<()> {
        let (start, bytes) = self.part(pages)?;
        // SAFETY: the pages are ours (law 1, `part` has checked), and they are not in use: no reference exists,
        // and code that runs threads on them owns the reservation.
        Ok(unsafe { sys::madvise(start, bytes, advice) }?)
    }

    /// Gives the memory behind `pages` back; they stay mapped and read as zero. Works where `munmap` would have to
    /// split an area and may not.
    ///
    /// # Errors
    /// `InvalidInput` for pages outside; else errors of `madvise`.
    pub fn discard(&mut self, pages: Span) -> io::Result<()> {
        let (start, bytes) = self.part(pages)?;
        // SAFETY: the pages are ours (law 1, `part` has checked), and they are not in use: no reference exists,
        // and code that runs threads on them owns the reservation.
        Ok(unsafe { sys::madvise(start, bytes, libc::MADV_DONTNEED) }?)
    }

    /// Keeps huge pages out: a stack that touches one page shall not get 512.
    ///
    /// # Errors
    /// Errors of `madvise`: `EINVAL` from a kernel without huge pages.
    pub fn without_huge_pages(&mut self) -> io::Result<()> {
        let (start, bytes) = self.part(self.pages())?;
        // SAFETY: the pages are ours (law 1), and the advice changes no content.
        Ok(unsafe { sys::madvise(start, bytes, libc::MADV_NOHUGEPAGE) }?)
    }
}

fn is_writable(protection: Protection) -> bool {
    let both = Protection::READ_WRITE.0;
    protection.0 & both == both
}

/// Strikes pages out of a set.
fn close(set: &mut RangeAllocator, pages: Span) -> io::Result<()> {
    while let Some(part) = set.hole_from(pages.start()).and_then(|hole| hole.intersection(pages)) {
        set.alloc_at(part).map_err(|_| Errno::NOMEM)?;
    }
    Ok(())
}

/// Puts pages into a set.
fn open(set: &mut RangeAllocator, pages: Span) -> io::Result<()> {
    close(set, pages)?;
    Ok(set.free(pages).map_err(|_| Errno::NOMEM)?)
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours (law 1), and it is not in use: no reference exists, and code that runs threads on
        // it owns the reservation until they have ended. Unmapping one whole mapping can fail only where that would
        // split an area that it merged into; then it stays.
        let _ = unsafe { sys::munmap(self.base, self.bytes) };
    }
}
