//! A run that is a slice of bytes and ends when it is dropped.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::table::Use;
use super::{Arena, Run};
use crate::backend::{Anonymous, HostMemory, Va};

/// The bytes of a run, for one user at a time.
///
/// 1. Its run is recorded as a lease, which `drop` alone frees, and no other call can free or resize; so the pages are
///    handed out to no one else while it lives, and no purge takes them.
/// 2. In a child of a fork, which has no memory there or shares it with its parent's lease, it lends nothing: it
///    panics.
pub struct Lease<'a, B: HostMemory = Anonymous> {
    arena: &'a Arena<B>,
    run: Run,
    /// At most the bytes of the run.
    bytes: usize,
}

impl<'a, B: HostMemory> Lease<'a, B> {
    /// Makes a lease of a run that has just been recorded as leased ([`Use::Leased`]).
    pub(super) fn new(arena: &'a Arena<B>, run: Run) -> Lease<'a, B> {
        let bytes = (u64::from(run.pages()) << arena.ground.page_shift) as usize;
        Lease { arena, run, bytes }
    }

    /// Returns the same lease of its first `bytes` bytes, at most as many as it has.
    pub(super) fn first(mut self, bytes: usize) -> Lease<'a, B> {
        self.bytes = self.bytes.min(bytes);
        self
    }

    /// Returns the first address of the leased run.
    #[must_use]
    pub fn va(&self) -> Va {
        self.run.va()
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        assert!(self.arena.parent.is_same(), "a child of a fork does not have its parent's leases");
        self.arena.pointer(self.run)
    }
}

impl<B: HostMemory> Deref for Lease<'_, B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let first = self.start();
        // SAFETY: the run is the lease's alone (laws 1 and 2), its memory was mapped before it was handed out and stays
        // so (the promise of `HostMemory`), and the kernel has given every byte a value.
        unsafe { std::slice::from_raw_parts(first, self.bytes) }
    }
}

impl<B: HostMemory> DerefMut for Lease<'_, B> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let first = self.start();
        // SAFETY: as above; and the lease is borrowed mutably for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(first, self.bytes) }
    }
}

impl<B: HostMemory> Drop for Lease<'_, B> {
    fn drop(&mut self) {
        if self.arena.free_as(self.run, Use::Leased).is_err() {
            // No memory to note the hole, or a child of `fork`, which has nothing to free. The owner notes it later.
            let _ = self.arena.free_lease_later(self.run);
        }
    }
}

impl<B: HostMemory> fmt::Debug for Lease<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease of {:?}", self.run)
    }
}
