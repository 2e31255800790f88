//! Whether this process is the one that made the arena: one load.
//!
//! A child of `fork` has a copy of the arena's books, but not its memory, or memory that the parent goes on using; a
//! purge in the child could take contents from under the parent. The kernel is asked to empty one page in children
//! (`MADV_WIPEONFORK`), so whoever finds it empty is a child.

use std::ffi::c_void;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::atomic::{AtomicU32, Ordering};
use crate::sys;

/// `MADV_WIPEONFORK` of Linux 4.14.
const WIPE_ON_FORK: i32 = 18;

const PARENT: u32 = 1;

/// A page that says whether this is the parent.
///
/// 1. The page was mapped by `new`, may be read and written, and is unmapped by `drop` alone.
#[derive(Debug)]
pub(super) struct Parent(*mut c_void);

// SAFETY: the page is an atomic word to whoever looks at it, from whatever thread.
unsafe impl Send for Parent {}
// SAFETY: as above.
unsafe impl Sync for Parent {}

impl Parent {
    pub(super) fn new() -> Result<Parent, Errno> {
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without `MAP_FIXED` nothing that exists is replaced.
        let page = unsafe {
            sys::mmap_anonymous(ptr::null_mut(), 1 << sys::PAGE, allowed, MapFlags::PRIVATE)
        }?;
        let parent = Parent(page);
        // SAFETY: the page is ours (law 1), and keeps its contents in this process.
        unsafe { sys::madvise(page, 1 << sys::PAGE, WIPE_ON_FORK) }?;
        parent.word().store(PARENT, Ordering::Relaxed);
        Ok(parent)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped as long as `self` lives (law 1), begins at a page's address, and any four bytes
        // are an atomic word.
        unsafe { &*self.0.cast::<AtomicU32>() }
    }

    /// Whether this process made the page.
    #[inline(always)]
    pub(super) fn is_here(&self) -> bool {
        // Relaxed: only a fork changes it, and that orders everything before it.
        self.word().load(Ordering::Relaxed) == PARENT
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // SAFETY: the page is ours (law 1), and no reference to it outlives `self`. If it cannot be unmapped it stays:
        // one page.
        let _ = unsafe { sys::munmap(self.0, 1 << sys::PAGE) };
    }
}
