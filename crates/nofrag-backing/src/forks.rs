//! A test for forks: whether this process is still the one that made an object.
//!
//! A child of a fork has a copy of its parent's books, but not its memory, or memory that the parent goes on using; and
//! copies of guards, which must not give back memory that the child does not hold. So all code with books asks here
//! first: one load.
//!
//! A word that the kernel empties in every child (`MADV_WIPEONFORK`) says which process this is, so that a child is
//! known also if it was made without the C library, whose hooks a raw `clone` bypasses.
//!
//! Source: docs/sources/backing.md#fork.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::sys;

/// The word that the kernel empties in every child of a fork; null until it is first needed. No lock guards it, since a
/// child could find that locked for ever.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The highest number given so far to this process or one of those that it descends from.
static LAST: AtomicU64 = AtomicU64::new(0);

/// One process, told from its ancestors and children by a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forks {
    word: &'static AtomicU64,
    number: u64,
}

impl Forks {
    /// Returns this process, for an object that is made now to remember.
    ///
    /// # Errors
    /// There is no memory for one page; or the kernel is older than 4.14.
    pub(crate) fn now() -> Result<Forks, Errno> {
        let word = word()?;
        // Relaxed, here and below: a fork orders everything before it.
        let number = match word.load(Ordering::Relaxed) {
            0 => name(word),
            number => number,
        };
        Ok(Forks { word, number })
    }

    /// Returns true if this process is the one that called [`now`](Self::now).
    #[inline(always)]
    pub(crate) fn is_same(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }
}

/// Gives a process that has none its number. Objects of a parent have a lower one: it was given before the fork.
fn name(word: &AtomicU64) -> u64 {
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let given = word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    given.err().unwrap_or(number)
}

fn word() -> Result<&'static AtomicU64, Errno> {
    let mut known = WORD.load(Ordering::Acquire);
    if known.is_null() {
        let page = page()?;
        // Release pairs with the acquires of others, so that they find the page mapped.
        let first =
            WORD.compare_exchange(ptr::null_mut(), page, Ordering::AcqRel, Ordering::Acquire);
        known = first.err().unwrap_or(page);
        if known != page {
            // SAFETY: mapped a moment ago, and no other thread has learnt of it. If it cannot be unmapped, it stays.
            let _ = unsafe { sys::munmap(page.cast(), 1 << sys::PAGE) };
        }
    }
    // SAFETY: `WORD` holds the beginning of a page that was mapped, and is never unmapped, neither here nor in
    // children; any eight bytes are an atomic word.
    Ok(unsafe { &*known })
}

/// Returns a page that children find empty.
fn page() -> Result<*mut AtomicU64, Errno> {
    let allowed = ProtFlags::READ | ProtFlags::WRITE;
    let (bytes, flags) = (1 << sys::PAGE, MapFlags::PRIVATE);
    // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
    let page = unsafe { sys::mmap_anonymous(ptr::null_mut(), bytes, allowed, flags) }?;
    let wiped = match cfg!(miri) {
        // Miri knows neither this advice nor forks.
        true => Ok(()),
        // SAFETY: mapped a moment ago, and it keeps its contents in this process.
        false => unsafe { sys::madvise(page, bytes, libc::MADV_WIPEONFORK) },
    };
    if let Err(error) = wiped {
        // SAFETY: mapped a moment ago, and no other thread has learnt of it. If it cannot be unmapped, it stays.
        let _ = unsafe { sys::munmap(page, bytes) };
        return Err(error);
    }
    Ok(page.cast())
}
