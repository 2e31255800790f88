//! The contestants of [`heaps`](super): each by the least that its documentation asks for.

use super::Heap;
use nofrag_backing::arena::{Arena, Config, Purge, Run};
use std::ptr::NonNull;

/// Bytes of addresses of the arena: four times as many as 64 runs of the largest size have.
const BYTES: u64 = 16 << 30;

/// Bytes of a page of the arena.
const PAGE: usize = 4096;

/// nofrag's arena, each call by itself.
pub struct Parked(Arena);

/// Makes an arena that gives memory back as `purge` says, when it is called.
///
/// # Panics
/// If there are no addresses for it.
#[must_use]
pub fn arena(purge: Purge) -> Parked {
    let config = Config { purge, ..Config::default() };
    Parked(Arena::reserve(BYTES, config).expect("there are addresses"))
}

impl Heap for Parked {
    type Run = Run;

    #[inline]
    fn alloc(&mut self, bytes: usize) -> Option<Run> {
        self.0.alloc_here(bytes.div_ceil(PAGE) as u64, 1).ok()
    }

    #[inline]
    fn free(&mut self, run: Run) -> bool {
        self.0.free(run).is_ok()
    }

    fn start(&self, run: Run) -> NonNull<u8> {
        NonNull::new(self.0.pointer(run)).expect("no run begins at zero")
    }
}

/// Makes a contestant of two functions of C.
macro_rules! of_c {
    ($name:ident, $alloc:path, $free:path, $about:literal) => {
        #[doc = $about]
        pub struct $name;

        impl Heap for $name {
            type Run = NonNull<u8>;

            #[inline]
            fn alloc(&mut self, bytes: usize) -> Option<NonNull<u8>> {
                // SAFETY: it may be called with any size.
                NonNull::new(unsafe { $alloc(bytes) }.cast())
            }

            #[inline]
            fn free(&mut self, run: NonNull<u8>) -> bool {
                // SAFETY: `alloc` returned it, and it was not given back since (`Heap::free`).
                unsafe { $free(run.as_ptr().cast()) };
                true
            }

            fn start(&self, run: NonNull<u8>) -> NonNull<u8> {
                run
            }
        }
    };
}

of_c!(Glibc, libc::malloc, libc::free, "The C library's allocator.");
of_c!(
    Jemalloc,
    tikv_jemalloc_sys::malloc,
    tikv_jemalloc_sys::free,
    "jemalloc, beside the heap of this program."
);
of_c!(
    Mimalloc,
    libmimalloc_sys::mi_malloc,
    libmimalloc_sys::mi_free,
    "mimalloc, beside the heap of this program."
);
