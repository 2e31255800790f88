//! A range of addresses that belongs to a space, and the calls that map inside it.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;

use nofrag::ranges::Span;
use nofrag::units::Vpn;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::sys;

/// Addresses of which each page is either inaccessible or shows a page of a file.
///
/// 1. Every page of `base..base + bytes` was mapped by `new`, and is unmapped by `drop` alone: a mapping inside
///    replaces the one before in one step, so that there is never a hole.
#[derive(Debug)]
pub(super) struct Reserved {
    base: *mut c_void,
    bytes: usize,
}

// SAFETY: the pointer is an address; each use of it has its own argument.
unsafe impl Send for Reserved {}
// SAFETY: as above.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Reserves `bytes` inaccessible bytes, a multiple of the page size, that begin at a multiple of `align`.
    pub(super) fn new(bytes: usize, align: usize) -> Result<Reserved, Errno> {
        let total = bytes.checked_add(align).ok_or(Errno::NOMEM)?;
        let (anywhere, nothing) = (ptr::null_mut(), ProtFlags::empty());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let start = unsafe { sys::mmap_anonymous(anywhere, total, nothing, flags) }?;
        let before = start.align_offset(align);
        let base = start.wrapping_byte_add(before);
        let end = base.wrapping_byte_add(bytes);
        for (at, bytes) in [(start, before), (end, total - before - bytes)] {
            if bytes > 0 {
                // SAFETY: it was mapped above, and no other thread knows of it. A range that cannot be given back stays
                // reserved: addresses without memory.
                let _ = unsafe { sys::munmap(at, bytes) };
            }
        }
        Ok(Reserved { base, bytes })
    }

    pub(super) fn pages(&self) -> Span {
        let start = self.base.addr() as u64 >> sys::PAGE;
        Span::sized(start, (self.bytes >> sys::PAGE) as u64).expect("a mapping is not empty")
    }

    /// Returns the address of a page inside.
    pub(super) fn address(&self, vpn: Vpn) -> Option<*mut c_void> {
        let page = vpn.0.checked_sub(self.pages().start())?;
        (page < self.pages().len())
            .then(|| self.base.wrapping_byte_add((page as usize) << sys::PAGE))
    }

    /// Returns the first address of a part, and its bytes.
    fn part(&self, pages: Range<u64>) -> (*mut c_void, usize) {
        let inside = self.pages().start() <= pages.start
            && pages.start < pages.end
            && pages.end <= self.pages().end();
        assert!(inside, "a space hands out its own pages");
        let at = self.address(Vpn(pages.start)).expect("it is inside");
        (at, ((pages.end - pages.start) as usize) << sys::PAGE)
    }

    /// Lets pages show the contents of `file` from `offset` on.
    ///
    /// # Safety
    /// The old contents of the pages are no longer used.
    pub(super) unsafe fn show(
        &self,
        pages: Range<u64>,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), Errno> {
        let (at, bytes) = self.part(pages);
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the pages are ours (law 1, `part` has checked); that they are not used is the caller's promise.
        unsafe { sys::mmap(at, bytes, both, flags, file, offset) }.map(drop)
    }

    /// Makes pages inaccessible, in one call and without a hole. Where the kernel allows no more mappings, the pages
    /// keep their contents out of reach; returns which of the two was done.
    ///
    /// # Safety
    /// The contents of the pages are no longer used.
    pub(super) unsafe fn hide(&self, pages: Range<u64>) -> Result<Hidden, Errno> {
        let (at, bytes) = self.part(pages);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the pages are ours (law 1, `part` has checked); that they are not used is the caller's promise.
        let hidden = unsafe { sys::mmap_anonymous(at, bytes, ProtFlags::empty(), flags) };
        if hidden.is_ok() {
            return Ok(Hidden::Gone);
        }
        // SAFETY: as above.
        unsafe { sys::mprotect(at, bytes, MprotectFlags::empty()) }.map(|()| Hidden::OutOfReach)
    }

    /// Gives advice about pages that keeps their contents.
    pub(super) fn advise(&self, pages: Range<u64>, advice: Advice) -> Result<(), Errno> {
        let (at, bytes) = self.part(pages);
        // SAFETY: the pages are ours (law 1, `part` has checked), and the advice loses no contents.
        unsafe { sys::madvise(at, bytes, advice as i32) }
    }
}

/// The two ways in which pages become inaccessible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// The pages show nothing, and take no mappings.
    Gone,
    /// The pages keep their contents, and the mappings of these, out of reach.
    OutOfReach,
}

/// Advice that loses no contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Advice {
    /// Fills the page tables, with new memory where there is none.
    PopulateWrite = libc::MADV_POPULATE_WRITE,
    /// Puts huge pages behind a range now.
    Collapse = sys::MADV_COLLAPSE,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the range is ours (law 1). Addresses in it are documented to end with the space.
        let _ = unsafe { sys::munmap(self.base, self.bytes) };
    }
}
