//! A file in memory, mapped: what is read and written in it is checked against its size every time.
//!
//! Other processes may write to it at any moment, so no reference to its bytes leaves this file: words are atomics, and
//! bytes are copied out by atomic loads. A pointer to bytes can be had by those who know why nobody else writes there.

use std::ffi::c_void;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::error::{SharedError, to};
use super::sync::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::forks::Forks;
use crate::sys;

/// What this process does with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Only looks.
    Read,
    /// Changes it too.
    Write,
}

/// A mapping of a file that cannot shrink, or of pieces of it. Children of a fork do not have it.
///
/// 1. `base..base + bytes` was mapped by `new` or `of_pieces`, is unmapped by `drop` alone, and the file behind it
///    never becomes shorter: every byte can be read, and written if it is `Use::Write`, in the process that made it.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    bytes: usize,
    allowed: Use,
    forks: Forks,
}

// SAFETY: the pointer is an address; what is done through it here is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// All of `file`.
    pub(crate) fn new(file: BorrowedFd<'_>, allowed: Use) -> Result<Mapping, SharedError> {
        let forks = Forks::now().map_err(to("watch for forks"))?;
        // Seals stay, so the size that is read afterwards stays too.
        let seals = sys::seals(file).map_err(|_| SharedError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(SharedError::Unsealed);
        }
        let stat = sys::stat(file).map_err(to("look at a file in memory"))?;
        let bytes = usize::try_from(stat.st_size).ok().filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or(SharedError::NotATable)?;
        let protection = match allowed {
            Use::Read => ProtFlags::READ,
            Use::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        let (anywhere, flags) = (ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: without `MAP_FIXED` nothing that exists is replaced.
        let mapped = unsafe { sys::mmap(anywhere, bytes, protection, flags, file, 0) };
        let base = mapped.map_err(to("map a file in memory"))?;
        let mapping = Mapping { base: base.cast(), bytes, allowed, forks };
        // SAFETY: the range was mapped a moment ago, and the advice changes no content.
        let kept = unsafe { sys::madvise(base, bytes, libc::MADV_DONTFORK) };
        kept.map_err(to("keep a mapping from children"))?;
        Ok(mapping)
    }

    /// Pieces of `file` at adjacent addresses, to be read: where each begins, and its bytes, both multiples of the page
    /// size. What lies outside of the file is refused.
    pub(crate) fn of_pieces(
        file: BorrowedFd<'_>,
        pieces: &[(u64, u64)],
    ) -> Result<Mapping, SharedError> {
        let forks = Forks::now().map_err(to("watch for forks"))?;
        let seals = sys::seals(file).map_err(|_| SharedError::Unsealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(SharedError::Unsealed);
        }
        // Seals stay, so the size that is read afterwards stays too.
        let stat = sys::stat(file).map_err(to("look at a file in memory"))?;
        let size = stat.st_size.cast_unsigned();
        let mut bytes = 0_usize;
        for &(at, piece) in pieces {
            let end = at.saturating_add(piece);
            let whole = (at | piece).is_multiple_of(1 << sys::PAGE) && piece > 0;
            if !whole || end > size {
                return Err(SharedError::Outside { at, end, bytes: size });
            }
            let more = bytes.checked_add(piece as usize).ok_or(Errno::NOMEM);
            bytes = more.map_err(to("reserve addresses"))?;
        }
        let (anywhere, nothing) = (ptr::null_mut(), ProtFlags::empty());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without `MAP_FIXED` nothing that exists is replaced.
        let reserved = unsafe { sys::mmap_anonymous(anywhere, bytes, nothing, flags) };
        let base = reserved.map_err(to("reserve addresses"))?;
        // From here on its drop unmaps it, however far it gets; nobody else has it before all is done.
        let mapping = Mapping { base: base.cast(), bytes, allowed: Use::Read, forks };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let mut to_here = base;
        for &(at, piece) in pieces {
            let length = piece as usize;
            // SAFETY: the pieces make up what was reserved above, which nobody else uses.
            let shown = unsafe { sys::mmap(to_here, length, ProtFlags::READ, flags, file, at) };
            shown.map_err(to("map a piece of a file in memory"))?;
            to_here = to_here.wrapping_byte_add(piece as usize);
        }
        // SAFETY: the range was mapped a moment ago, and the advice changes no content.
        let kept = unsafe { sys::madvise(base, bytes, libc::MADV_DONTFORK) };
        kept.map_err(to("keep a mapping from children"))?;
        Ok(mapping)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this process is the one that mapped it.
    pub(crate) fn is_here(&self) -> bool {
        self.forks.is_same()
    }

    /// The word with this number.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        let pointer = self.writable::<u64>(at);
        // SAFETY: mapped, writable and aligned (`writable` has checked), as long as `self` lives; everybody who keeps
        // to Rust uses it as an atomic, and other processes are beyond that.
        unsafe { AtomicU64::from_ptr(pointer) }
    }

    /// The half word with this number.
    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        let pointer = self.writable::<u32>(at);
        // SAFETY: as for `word`.
        unsafe { AtomicU32::from_ptr(pointer) }
    }

    /// Where the value number `at` of a kind stands that may be changed.
    ///
    /// # Panics
    /// If it lies outside, if the mapping is for reading, or in a child of the process that made it.
    fn writable<T>(&self, at: usize) -> *mut T {
        assert!(self.allowed == Use::Write, "the mapping is for reading");
        assert!(self.is_here(), "this process was forked from the one that mapped it");
        assert!(
            at < self.bytes / size_of::<T>(),
            "value {at} lies outside of {} bytes",
            self.bytes
        );
        self.base.wrapping_add(at * size_of::<T>()).cast()
    }

    /// Where `bytes` bytes from `at` on are, if they are inside.
    pub(crate) fn range(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        let end = at.checked_add(bytes)?;
        (end <= self.bytes as u64).then(|| self.base.wrapping_add(at as usize))
    }

    /// Copies bytes from `at` on, which others may be writing at the same time.
    ///
    /// # Panics
    /// If they lie outside, or in a child of the process that made the mapping.
    pub(crate) fn copy_out(&self, at: u64, into: &mut [u8]) {
        const WORD: usize = size_of::<usize>();
        assert!(self.is_here(), "this process was forked from the one that mapped it");
        let from = self.range(at, into.len() as u64).expect("who copies has checked the range");
        let odd = from.align_offset(WORD).min(into.len());
        let (head, rest) = into.split_at_mut(odd);
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        let at_tail = odd + words.len() * WORD;
        copy_bytes(from, head);
        let mut at = from.wrapping_add(odd).cast::<usize>();
        for word in words {
            // SAFETY: inside the mapping (checked above) and aligned (`odd`); a relaxed load of a word is allowed of
            // memory that may only be read.
            let value = unsafe { AtomicUsize::from_ptr(at) };
            // Relaxed: who pins has acquired what was written before the object was sealed.
            *word = value.load(Ordering::Relaxed).to_ne_bytes();
            at = at.wrapping_add(1);
        }
        copy_bytes(from.wrapping_add(at_tail), tail);
    }
}

/// Copies the few bytes that make no word. `from` is inside a mapping for as many bytes as `into` has.
fn copy_bytes(from: *mut u8, into: &mut [u8]) {
    for (at, byte) in into.iter_mut().enumerate() {
        // SAFETY: inside the mapping, as `copy_out` has checked.
        let value = unsafe { AtomicU8::from_ptr(from.wrapping_add(at)) };
        *byte = value.load(Ordering::Relaxed);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A child does not have the mapping, and may have another one there.
        if self.is_here() {
            // SAFETY: the range is ours (law 1), and what borrows it has ended. If it cannot be unmapped, it stays.
            let _ = unsafe { sys::munmap(self.base.cast::<c_void>(), self.bytes) };
        }
    }
}
