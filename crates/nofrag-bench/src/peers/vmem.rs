//! vmem (after Bonwick and Adams): boundary tags on power-of-two free lists.
//!
//! The crate asks its user for the tags' memory. As its documentation recommends, tags come from a cache, so that
//! what is measured is the arena and not the heap.

use super::{Aligned, Peer, Space};
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Mutex;
use vmem::{AllocPolicy, Allocator, Arena, Bt, Layout};

type Tag = Box<MaybeUninit<Bt>>;

/// Boundary tags that are not in use.
#[derive(Default)]
pub(super) struct TagCache {
    idle: RefCell<Vec<Tag>>,
}

#[allow(unsafe_code)] // the crate's trait for its tags' memory is an `unsafe trait`
// SAFETY: each pointer comes from a live `Box` of exactly the size and alignment of a tag, is handed out once until it
// is given back, and stays valid until then.
unsafe impl Allocator for TagCache {
    fn allocate(&self) -> Option<NonNull<Bt>> {
        let tag = self.idle.borrow_mut().pop().unwrap_or_else(Box::new_uninit);
        NonNull::new(Box::into_raw(tag).cast::<Bt>())
    }

    /// # Safety
    /// As the trait demands: the tag came from `allocate` and is not used any more.
    unsafe fn deallocate(&self, tag: NonNull<Bt>) {
        // SAFETY: the caller gives back what `allocate` handed out, which was a box of this very type.
        let tag = unsafe { Box::from_raw(tag.as_ptr().cast::<MaybeUninit<Bt>>()) };
        self.idle.borrow_mut().push(tag);
    }
}

/// `vmem::Arena` with one policy of allocation.
pub struct Vmem {
    /// Empty only while being dropped.
    arena: Option<Arena<'static, 'static, TagCache, Mutex<()>>>,
    policy: fn() -> AllocPolicy,
    shift: u32,
}

impl Vmem {
    /// Makes an arena of all of `space` that allocates by `policy`.
    #[must_use]
    pub fn new(space: Space, policy: fn() -> AllocPolicy) -> Vmem {
        let arena = Arena::create("space", 1, None, TagCache::default())
            .expect("a quantum of one is a power of two");
        arena
            .add_span(0, (space.pages as usize) << space.shift)
            .expect("an empty arena accepts its first span");
        Vmem { arena: Some(arena), policy, shift: space.shift }
    }
}

impl Vmem {
    #[inline]
    fn arena(&self) -> &Arena<'static, 'static, TagCache, Mutex<()>> {
        self.arena.as_ref().expect("only dropping takes the arena away")
    }
}

impl Drop for Vmem {
    /// A panic inside the arena poisons its lock, and its own drop panics on that, which would end the comparison:
    /// where overflow is checked, some aligned requests of version 1.0.0 do panic. So the arena is leaked then.
    fn drop(&mut self) {
        let arena = self.arena.take();
        if std::thread::panicking() {
            std::mem::forget(arena);
        }
    }
}

impl Peer for Vmem {
    type Handle = usize;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<usize> {
        self.arena().alloc((size as usize) << self.shift, (self.policy)()).ok()
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<usize> {
        let Some(layout) = Layout::from_size_align(size as usize, align as usize) else {
            return Aligned::NoFit;
        };
        self.arena().xalloc(layout, (self.policy)()).ok().into()
    }

    #[inline]
    fn free(&mut self, base: usize) -> bool {
        self.arena().free(base).is_ok()
    }

    fn start(&self, base: &usize) -> u64 {
        *base as u64
    }
}
