//! A heap that counts, and that a test can make refuse: the only way to see what a structure does without memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct WatchedHeap;

#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static REFUSING: Cell<bool> = const { Cell::new(false) };
}

/// Notes a request for memory; whether it is to be served.
fn admit() -> bool {
    CALLS.set(CALLS.get() + 1);
    !REFUSING.get()
}

// SAFETY: each method either returns null, which the contract allows, or passes its arguments on to the system's heap
// unchanged; the thread-locals need no memory and no destructor.
unsafe impl GlobalAlloc for WatchedHeap {
    /// # Safety
    /// As for [`GlobalAlloc::alloc`].
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        if admit() { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }

    /// # Safety
    /// As for [`GlobalAlloc::dealloc`].
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from the system's heap with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `at` came from the system's heap with this layout; the promise about `size` is passed on.
        if admit() { unsafe { System.realloc(at, layout, size) } } else { std::ptr::null_mut() }
    }
}

/// Runs `action` on a heap that refuses every request of this thread.
pub(crate) fn without_memory<T>(action: impl FnOnce() -> T) -> T {
    REFUSING.set(true);
    let result = action();
    REFUSING.set(false);
    result
}

/// How many times `action` asks the heap for memory.
pub(crate) fn heap_calls(action: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    action();
    CALLS.get() - before
}
