//! Requests in bytes, and in the layouts of Rust, instead of pages.

use std::alloc::Layout;

use super::{Arena, ArenaError, Lease, OwnerId, Run};
use crate::backend::{Backend, HostMemory};

impl<B: Backend> Arena<B> {
    /// Returns the pages and the alignment in pages that hold a layout. No pages hold no bytes, which is refused where
    /// they are asked for.
    #[must_use]
    pub fn pages_for(&self, layout: Layout) -> (u64, u64) {
        let shift = self.ground.page_shift;
        let pages = (layout.size() as u64).div_ceil(1 << shift);
        (pages, (layout.align() as u64 >> shift).max(1))
    }

    /// Allocates a run that holds a layout as [`alloc`](Arena::alloc) does: whole pages.
    ///
    /// # Errors
    /// See [`ArenaError`]; [`NoPages`](ArenaError::NoPages) for a layout without bytes.
    pub fn alloc_layout(&self, owner: OwnerId, layout: Layout) -> Result<Run, ArenaError> {
        let (pages, align) = self.pages_for(layout);
        self.alloc(owner, pages, align)
    }
}

impl<B: HostMemory> Arena<B> {
    /// Leases `bytes` bytes as [`lease`](Arena::lease) does: the slice is as long as that, and takes whole pages.
    ///
    /// # Errors
    /// See [`ArenaError`]; [`NoPages`](ArenaError::NoPages) for no bytes.
    pub fn lease_bytes(&self, owner: OwnerId, bytes: usize) -> Result<Lease<'_, B>, ArenaError> {
        let pages = (bytes as u64).div_ceil(self.page_bytes());
        Ok(self.lease(owner, pages, 1)?.first(bytes))
    }

    /// Leases the bytes of a layout, aligned as it says.
    ///
    /// # Errors
    /// See [`ArenaError`]; [`NoPages`](ArenaError::NoPages) for a layout without bytes.
    pub fn lease_layout(&self, owner: OwnerId, layout: Layout) -> Result<Lease<'_, B>, ArenaError> {
        let (pages, align) = self.pages_for(layout);
        Ok(self.lease(owner, pages, align)?.first(layout.size()))
    }
}

#[cfg(feature = "allocator-api2")]
mod api2 {
    use std::alloc::Layout;
    use std::ptr::{self, NonNull};

    use allocator_api2::alloc::{AllocError, Allocator};

    use crate::arena::Arena;
    use crate::arena::table::Use;
    use crate::backend::{HostMemory, Va};

    /// Collections in an arena: each allocation takes whole pages of the owner of this processor, so it fits what is
    /// large. A child of a fork must not touch what its parent has allocated.
    ///
    /// ```
    /// use allocator_api2::vec::Vec;
    /// use nofrag_backing::arena::{Arena, Config};
    ///
    /// let arena = Arena::reserve(64 << 20, Config::default())?;
    /// let mut column = Vec::with_capacity_in(100_000, &arena);
    /// column.extend(0..100_000_u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // SAFETY: memory that was handed out is recorded as leased, so that `deallocate` alone frees it; it is mapped until
    // then (the promise of `HostMemory`), and the arena, which no copy of the reference outlives, does not move it.
    unsafe impl<B: HostMemory> Allocator for &Arena<B> {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            if layout.size() == 0 {
                let nothing = ptr::without_provenance_mut(layout.align());
                let nothing = NonNull::new(nothing).expect("an alignment is not zero");
                return Ok(NonNull::slice_from_raw_parts(nothing, 0));
            }
            let (pages, align) = self.pages_for(layout);
            let run = self.alloc_here_as(pages, align, Use::Leased).map_err(|_| AllocError)?;
            let start = NonNull::new(self.pointer(run)).ok_or(AllocError)?;
            let bytes = u64::from(run.pages()) << self.ground.page_shift;
            Ok(NonNull::slice_from_raw_parts(start, bytes as usize))
        }

        /// # Safety
        /// Memory of [`allocate`](Allocator::allocate), with its layout; of anything else the arena's records say that
        /// no lease begins there.
        unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
            if layout.size() == 0 {
                return;
            }
            let Ok(page) = self.ground.page_at(Va(start.addr().get() as u64)) else { return };
            let run = self.ground.run_at(page);
            if self.free_as(run, Use::Leased).is_err() {
                // As where a lease is dropped: the owner notes it later.
                let _ = self.free_lease_later(run);
            }
        }
    }
}
