//! Memory in huge pages: 2 MiB at a time, given and taken.
//!
//! Transparent huge pages are those that Linux gives where it can ([`Anonymous::huge`]); a file gets them when its
//! contents are collapsed ([`Memfd::collapse`]). Huge pages that the administrator set aside are certain, and few
//! ([`Memfd::hugetlb`]). In all of them the granule is the huge page: to purge a part of one would split it, which
//! costs more than to purge the whole, and leaves nothing huge behind.
//!
//! Source: docs/sources/backing.md#huge-pages, #r4.

use std::fs;

use rustix::fs::MemfdFlags;

use super::books::Shown;
use super::host::{HostSpace, pointer};
use super::{Anonymous, BackendError, Budget, Caps, Geometry, Memfd, OpResult, Va};
use crate::sys;

/// Bytes of a huge page.
pub const HUGE: u64 = 2 << 20;

const COLLAPSE: i32 = 25;

/// The folder with Linux's counts of huge pages.
const SET_ASIDE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

impl Anonymous {
    /// Returns a backend of private memory in units of huge pages, which Linux is asked to give at the first touch. It
    /// gives small pages where it has no huge one; [`collapse`](Self::collapse) asks again.
    #[must_use]
    pub fn huge() -> Anonymous {
        Anonymous::with_pages(HUGE, Some(libc::MADV_HUGEPAGE))
    }

    /// Makes huge pages of the contents of a mapped range, now, under any settings of the host. The contents stay.
    ///
    /// # Errors
    /// `Unsupported` unless the granule is a huge page, since a smaller purge would split them again; `Misfit` and
    /// `WrongState` as for a purge; errors of the system: `AGAIN` or `NOMEM` where it finds no huge page, `INVAL` from
    /// a kernel before 6.1.
    pub fn collapse(&self, va: Va, bytes: u64) -> OpResult {
        collapse(&self.space, &self.geometry, va, bytes)
    }
}

impl Memfd {
    /// Returns a backend of shared memory in units of huge pages, which come by [`collapse`](Self::collapse), or at the
    /// first touch where the host's `shmem_enabled` says so.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn huge(budget: Budget) -> Result<Memfd, BackendError> {
        Memfd::with_pages(HUGE, MemfdFlags::empty(), budget)
    }

    /// Returns a backend of shared memory in huge pages that were set aside: a mapping has them for certain, or is
    /// refused. So nothing is purged in place: the page would go back to all who want one, and the next touch might
    /// find none.
    ///
    /// # Errors
    /// [`NoHugePages`](BackendError::NoHugePages) if no pages are set aside; else those of [`new`](Self::new).
    pub fn hugetlb(budget: Budget) -> Result<Memfd, BackendError> {
        if pages("nr_hugepages") + pages("nr_overcommit_hugepages") == 0 {
            return Err(no_huge_pages());
        }
        let flags = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        Ok(Memfd::with_pages(HUGE, flags, budget)?.of_pages_set_aside())
    }

    fn of_pages_set_aside(mut self) -> Memfd {
        self.geometry.caps = self.geometry.caps.without(Caps::PURGE_IN_PLACE);
        self.if_out_of_memory = no_huge_pages;
        self
    }

    /// Makes huge pages of the part of the file that a mapped range shows, now, under any settings of the host. The
    /// contents stay.
    ///
    /// # Errors
    /// Those of [`Anonymous::collapse`].
    pub fn collapse(&self, va: Va, bytes: u64) -> OpResult {
        collapse(&self.space, &self.geometry, va, bytes)
    }
}

fn collapse<M: Shown>(space: &HostSpace<M>, geometry: &Geometry, va: Va, bytes: u64) -> OpResult {
    let books = space.read();
    if !geometry.granule.is_multiple_of(HUGE) {
        return Err(BackendError::Unsupported);
    }
    geometry.fits(va, bytes)?;
    books.check_mapped(va, bytes)?;
    // SAFETY: the range lies in one of our reservations (the books, which are held), and the advice keeps contents.
    Ok(unsafe { sys::madvise(pointer(va), bytes as usize, COLLAPSE) }?)
}

/// Reads one of the counts of huge pages; zero where the kernel has no such pages.
fn pages(name: &str) -> u64 {
    let text = fs::read_to_string(format!("{SET_ASIDE}/{name}")).ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn no_huge_pages() -> BackendError {
    BackendError::NoHugePages { pages: pages("nr_hugepages"), free: pages("free_hugepages") }
}

#[cfg(test)]
mod tests {
    use super::super::{Backend as _, Op};
    use super::*;

    #[test]
    fn pages_that_were_set_aside_are_not_purged_in_place() {
        let backend = Memfd::huge(Budget::Half).unwrap().of_pages_set_aside();
        assert!(!backend.geometry().caps.has(Caps::PURGE_IN_PLACE));
        let va = backend.reserve(HUGE, HUGE, None).unwrap();
        let phys = backend.create(HUGE).unwrap();
        let purge = Op::Purge { va, bytes: HUGE };
        let mut done = [Ok(()); 2];
        backend.submit(&[Op::Map { va, phys, offset: 0, bytes: HUGE }, purge], &mut done);
        assert_eq!(done, [Ok(()), Err(BackendError::Unsupported)]);
    }
}
