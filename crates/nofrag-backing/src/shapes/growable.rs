//! A buffer that grows without being copied.
//!
//! All addresses that the buffer may ever need are reserved at once, which costs nothing: memory comes with the first
//! touch of each page. So growing is arithmetic, no system call is made, and its address never changes: pointers into
//! it, system calls that write to it, and other threads that know its address are not disturbed.

use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

use super::{ShapeError, pages, to};
use crate::forks::Forks;
use crate::sys;

/// Bytes like those of a `Vec`, which never move.
///
/// ```
/// use nofrag_backing::shapes::GrowableBuffer;
///
/// let mut buffer = GrowableBuffer::with_capacity(1 << 40)?; // addresses, not memory
/// buffer.extend_from_slice(b"hello")?;
/// let before = buffer.as_ptr();
/// buffer.resize(1 << 30)?; // zeros, untouched
/// assert_eq!(buffer.as_ptr(), before);
/// # Ok::<(), nofrag_backing::shapes::ShapeError>(())
/// ```
///
/// 1. `base..base + capacity` was mapped, to be read and written, by `with_capacity` and is unmapped by `drop` alone.
/// 2. The contents are the first `len` bytes. From `touched` on, which is not below `len`, everything is zero.
#[derive(Debug)]
pub struct GrowableBuffer {
    base: *mut u8,
    capacity: usize,
    len: usize,
    touched: usize,
    forks: Forks,
}

// SAFETY: the mapping belongs to the buffer as a `Vec`'s memory does to it.
unsafe impl Send for GrowableBuffer {}
// SAFETY: as above; changes take `&mut self`.
unsafe impl Sync for GrowableBuffer {}

impl GrowableBuffer {
    /// Returns an empty buffer that can grow to `capacity` bytes, rounded up to pages.
    ///
    /// # Errors
    /// [`ShapeError::Sizes`], [`ShapeError::System`]: there is no room for that many addresses, and half may do; or the
    /// system promises no more memory than it has (`vm.overcommit_memory` is 2).
    pub fn with_capacity(capacity: usize) -> Result<GrowableBuffer, ShapeError> {
        let capacity = pages(capacity).filter(|&bytes| isize::try_from(bytes).is_ok());
        let capacity = capacity.ok_or(ShapeError::Sizes)?;
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let forks = Forks::now().map_err(to("watch for forks"))?;
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let base = unsafe { sys::mmap_anonymous(ptr::null_mut(), capacity, allowed, flags) };
        let base = base.map_err(to("reserve addresses"))?;
        let buffer = GrowableBuffer { base: base.cast(), capacity, len: 0, touched: 0, forks };
        // SAFETY: mapped a moment ago, and the advice changes no content.
        let kept = unsafe { sys::madvise(base, capacity, libc::MADV_DONTFORK) };
        kept.map_err(to("keep the buffer from children"))?;
        Ok(buffer)
    }

    /// Returns the number of bytes to which the buffer can grow.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the buffer's length to `len` bytes. New bytes are zero; memory is not touched for those that were never
    /// there before.
    ///
    /// # Errors
    /// [`ShapeError::Full`].
    pub fn resize(&mut self, len: usize) -> Result<(), ShapeError> {
        if len > self.capacity {
            return Err(ShapeError::Full { wanted: len, capacity: self.capacity });
        }
        let (old, stale) = (self.len, self.touched.min(len));
        self.len = len;
        self.touched = self.touched.max(len);
        if old < stale {
            self[old..stale].fill(0);
        }
        Ok(())
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// [`ShapeError::Full`].
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> Result<(), ShapeError> {
        let old = self.len;
        let len = old.checked_add(bytes.len()).filter(|&len| len <= self.capacity);
        let wanted = old.saturating_add(bytes.len());
        let len = len.ok_or(ShapeError::Full { wanted, capacity: self.capacity })?;
        self.len = len;
        self.touched = self.touched.max(len);
        self[old..].copy_from_slice(bytes);
        Ok(())
    }

    /// Keeps the first `len` bytes. Their memory stays.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Gives the memory of whole pages behind the contents back to the system, in one call; returns the number of bytes
    /// that may have gone.
    ///
    /// # Errors
    /// [`ShapeError::System`]: nothing went, and the old bytes will be zeroed before they are seen again.
    /// [`ShapeError::Forked`].
    pub fn purge(&mut self) -> Result<usize, ShapeError> {
        if !self.forks.is_same() {
            // Another mapping may stand there by now.
            return Err(ShapeError::Forked);
        }
        let page = 1 << sys::PAGE;
        let (start, end) = (self.len.next_multiple_of(page), self.touched.next_multiple_of(page));
        if start >= end {
            return Ok(0);
        }
        let at = self.base.wrapping_add(start).cast::<c_void>();
        // SAFETY: inside the mapping (law 2: `touched` is not above the capacity, which is whole pages) and behind the
        // contents, so no reference to it exists.
        let purged = unsafe { sys::madvise(at, end - start, libc::MADV_DONTNEED) };
        purged.map_err(to("give memory back"))?;
        self.touched = start.min(self.touched);
        Ok(end - start)
    }
}

impl Deref for GrowableBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        assert!(self.forks.is_same(), "a child of a fork does not have its parent's buffer");
        // SAFETY: mapped, readable, and all of it initialised, since new pages are zero (law 1); `len` is not above
        // the capacity (law 2); a change borrows it exclusively.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl DerefMut for GrowableBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.forks.is_same(), "a child of a fork does not have its parent's buffer");
        // SAFETY: as in `deref`, and it is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl io::Write for GrowableBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.capacity - self.len);
        self.extend_from_slice(&bytes[..fits]).map_err(io::Error::other)?;
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for GrowableBuffer {
    fn drop(&mut self) {
        // A child does not have the mapping, and may have another one there.
        if self.forks.is_same() {
            // SAFETY: ours alone (law 1), and nothing borrows it any more. If it cannot be unmapped, it stays.
            let _ = unsafe { sys::munmap(self.base.cast(), self.capacity) };
        }
    }
}
