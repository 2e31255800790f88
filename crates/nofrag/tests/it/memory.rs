//! A heap that counts, and that a test can make refuse: the only way to see what a structure does without memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct WatchedHeap;

#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that were served, less those that came back.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// Number of requests, of 256, that are refused.
    static ODDS: Cell<u32> = const { Cell::new(0) };
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// Notes a request for memory; returns true if it is to be served.
fn admit() -> bool {
    CALLS.set(CALLS.get() + 1);
    let odds = ODDS.get();
    if odds == 0 {
        return true;
    }
    // SplitMix64, for it needs no memory.
    let state = CHANCE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    CHANCE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 56) as u32 >= odds
}

fn note_bytes(bytes: i64) {
    BYTES.set(BYTES.get() + bytes);
}

// SAFETY: each method either returns null, which the contract allows, or passes its arguments on to the system's heap
// unchanged; the thread-locals need no memory and no destructor.
unsafe impl GlobalAlloc for WatchedHeap {
    /// # Safety
    /// As for [`GlobalAlloc::alloc`].
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !admit() {
            return std::ptr::null_mut();
        }
        note_bytes(layout.size() as i64);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As for [`GlobalAlloc::dealloc`].
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note_bytes(-(layout.size() as i64));
        // SAFETY: `at` came from the system's heap with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    /// # Safety
    /// As for [`GlobalAlloc::realloc`].
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !admit() {
            return std::ptr::null_mut();
        }
        note_bytes(size as i64 - layout.size() as i64);
        // SAFETY: `at` came from the system's heap with this layout; the promise about `size` is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `action` on a heap that refuses every request of this thread.
#[allow(dead_code)] // The fuzz bodies have this heap, too, and use half of it.
pub(crate) fn without_memory<T>(action: impl FnOnce() -> T) -> T {
    refusing(256, action)
}

/// Runs `action` on a heap that refuses `odds` of 256 requests of this thread, drawn from `seed`.
#[allow(dead_code)]
pub(crate) fn refusing_at_random<T>(seed: u64, odds: u8, action: impl FnOnce() -> T) -> T {
    CHANCE.set(seed);
    refusing(odds.into(), action)
}

/// Runs `action`, which belongs to the test, on a heap that serves, whatever it did before.
#[allow(dead_code)]
pub(crate) fn served<T>(action: impl FnOnce() -> T) -> T {
    refusing(0, action)
}

fn refusing<T>(odds: u32, action: impl FnOnce() -> T) -> T {
    /// Restores the odds of refusal when dropped; to none in a panic, which needs memory for its message.
    struct Restore(u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            ODDS.set(if std::thread::panicking() { 0 } else { self.0 });
        }
    }
    let _restore = Restore(ODDS.replace(odds));
    action()
}

/// Returns the number of times that `action` asks the heap for memory.
#[allow(dead_code)]
pub(crate) fn heap_calls(action: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    action();
    CALLS.get() - before
}

/// Returns the bytes that this thread's requests hold of the heap; only differences mean something.
#[allow(dead_code)]
pub(crate) fn heap_bytes() -> i64 {
    BYTES.get()
}
