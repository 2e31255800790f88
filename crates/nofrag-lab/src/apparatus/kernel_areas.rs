//! Areas of the kernel's own address space, made and freed on demand.
//!
//! A process cannot call the kernel's `vmalloc`, but a map of bpf(2) is memory from it: an array that may be mapped
//! into processes (`BPF_F_MMAPABLE`) is one area of whole pages, which lives as long as the map's descriptor. Needs
//! `CAP_BPF`, where `kernel.unprivileged_bpf_disabled` is set, as it is on most hosts.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const ARRAY: u32 = 2;
const MMAPABLE: u32 = 1 << 10;
const PAGE: u32 = 4096;

/// The fewest pages of an area: the head of the map, one page of values and the guard page.
pub(crate) const FEWEST_PAGES: u32 = 3;

/// The most pages of an area: 1 GiB.
const MOST_PAGES: u32 = 1 << 18;

/// An area of the kernel's; a drop frees it, some time later.
#[derive(Debug)]
pub(crate) struct KernelArea {
    pages: u32,
    _map: OwnedFd,
}

impl KernelArea {
    /// Makes an area of `pages` pages of the kernel's address space, guard page included.
    ///
    /// # Errors
    /// The kernel's refusal, and an invalid input for pages outside [`FEWEST_PAGES`] to [`MOST_PAGES`].
    pub(crate) fn new(pages: u32) -> io::Result<KernelArea> {
        if !(FEWEST_PAGES..=MOST_PAGES).contains(&pages) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The head of `union bpf_attr`: kind, bytes of a key and of a value, entries, flags. What follows counts as
        // zeros.
        let map = [ARRAY, 4, PAGE, pages - 2, MMAPABLE];
        let bytes = size_of_val(&map);
        // SAFETY: the kernel reads as many bytes at the pointer as are there, and none of them is a pointer.
        let made = unsafe { libc::syscall(libc::SYS_bpf, MAP_CREATE, &raw const map, bytes) };
        match i32::try_from(made) {
            // SAFETY: the kernel made this descriptor for this call, so no one else closes it.
            Ok(map @ 0..) => Ok(KernelArea { pages, _map: unsafe { OwnedFd::from_raw_fd(map) } }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the number of pages, guard page included.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_or_many_pages_are_refused() {
        for pages in (0..FEWEST_PAGES).chain([MOST_PAGES + 1, u32::MAX - 1, u32::MAX]) {
            assert_eq!(KernelArea::new(pages).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn an_area_is_made_where_the_kernel_allows_it() {
        match KernelArea::new(7) {
            Ok(area) => assert_eq!(area.pages(), 7),
            Err(refused) => eprintln!("skipped: {refused}"),
        }
    }
}
