//! The file in memory behind the frames, and the one mapping through which all of it can be seen.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use nofrag::units::{Order, PageCount, Pfn};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::sys;

/// Bytes of a pageblock: the window is aligned to it, so that huge pages fit.
pub(super) const BLOCK_BYTES: usize = (Order::PAGEBLOCK.pages() as usize) << sys::PAGE;

/// A file in memory that neither grows nor shrinks, mapped once and for all.
///
/// 1. `base..base + bytes` is a mapping of the whole file, made by `new` and unmapped by `drop` alone.
/// 2. The file cannot be made smaller: it is sealed. So each byte of the mapping can be read and written.
#[derive(Debug)]
pub(super) struct Window {
    file: OwnedFd,
    base: *mut c_void,
    bytes: usize,
}

// SAFETY: the pointer is an address; each use of it has its own argument.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps a window on `bytes` bytes of new memory, a multiple of [`BLOCK_BYTES`], all zero.
    pub(super) fn new(bytes: usize) -> Result<Window, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = sys::memfd_create(c"nofrag-frames", flags)?;
        sys::ftruncate(file.as_fd(), bytes as u64)?;
        sys::seal(file.as_fd(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let reserved = bytes.checked_add(BLOCK_BYTES).ok_or(Errno::NOMEM)?;
        let (anywhere, nothing) = (ptr::null_mut(), ProtFlags::empty());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let start = unsafe { sys::mmap_anonymous(anywhere, reserved, nothing, flags) }?;
        let before = start.align_offset(BLOCK_BYTES);
        let base = start.wrapping_byte_add(before);
        let fixed = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range lies in the reservation above, which no other thread knows of.
        let mapped = unsafe { sys::mmap(base, bytes, both, fixed, file.as_fd(), 0) };
        let (from, end) = (base.wrapping_byte_add(bytes), start.wrapping_byte_add(reserved));
        let rest = [(start, before), (from, end.addr() - from.addr())];
        let whole = [(start, reserved), (start, 0)];
        for (at, bytes) in if mapped.is_ok() { rest } else { whole } {
            if bytes > 0 {
                // SAFETY: it was reserved above, and no other thread knows of it. A range that cannot be given back
                // stays reserved: addresses without memory.
                let _ = unsafe { sys::munmap(at, bytes) };
            }
        }
        mapped.map(|_| Window { file, base, bytes })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.cast()
    }

    /// Returns the address at which a frame of the file is seen.
    pub(super) fn address(&self, pfn: Pfn) -> Option<*mut u8> {
        let offset = pfn.0.checked_mul(1 << sys::PAGE)?;
        (offset < self.bytes as u64).then(|| self.base().wrapping_add(offset as usize))
    }

    /// Fills frames with zeros.
    ///
    /// # Safety
    /// No other thread reads or writes them meanwhile.
    pub(super) unsafe fn zero(&self, pfn: Pfn, pages: PageCount) {
        let at = self.address(pfn).expect("the caller's frames are the window's");
        let bytes = (pages.0 as usize) << sys::PAGE;
        assert!(bytes <= self.bytes - (at.addr() - self.base.addr()), "they are all inside");
        // SAFETY: the range is mapped, readable and writable (laws 1 and 2, and the assertion); that no other thread
        // uses it is the caller's promise.
        unsafe { at.write_bytes(0, bytes) }
    }

    /// Gives the memory behind frames back; they read as zero.
    pub(super) fn punch(&self, pfn: Pfn, pages: PageCount) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        sys::fallocate(self.file(), flags, pfn.0 << sys::PAGE, pages.0 << sys::PAGE)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the range is ours (law 1). Addresses in it are documented to end with the frames.
        let _ = unsafe { sys::munmap(self.base, self.bytes) };
    }
}
