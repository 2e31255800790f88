//! A ring buffer without a seam.
//!
//! The same memory is mapped twice, one mapping behind the other. Every part of the ring is contiguous for reads and
//! writes: a part that would wrap around goes on in the second mapping, which shows the beginning. So messages are
//! never split, never copied to be put together, and can be handed to a system call as they are.
//!
//! One thread writes ([`Producer`]), one reads ([`Consumer`]). The progress of each is a number that only goes up; each
//! side reads the other's with acquire and writes its own with release, and remembers the last value that it saw, so
//! that the cache line of the other is looked at only when the ring seems full or empty.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd as _;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::{ShapeError, to};
use crate::forks::Forks;
use crate::sys;

/// A file mapped twice, back to back.
///
/// 1. `base..base + 2 * bytes` was mapped by `new`, to be read and written, and is unmapped by `drop` alone; byte `at`
///    and byte `at + bytes` are the same memory.
#[derive(Debug)]
struct Twice {
    base: *mut u8,
    bytes: usize,
    forks: Forks,
}

/// The progress of one side in bytes, on a cache line of its own and the one that processors fetch along with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Position(AtomicU64);

/// The state that both sides share.
///
/// 1. `read <= written <= read + bytes`.
/// 2. Bytes from `read` to `written` are the consumer's, all others the producer's.
#[derive(Debug)]
struct Shared {
    memory: Twice,
    written: Position,
    read: Position,
    is_closed: AtomicBool,
}

// SAFETY: law 2 says at any moment which side has each byte; both sides go by it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The side of a ring that writes.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    written: u64,
    /// The consumer's position when it was last looked at.
    read: u64,
}

/// The side of a ring that reads.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    read: u64,
    /// The producer's position when it was last looked at.
    written: u64,
}

/// Room in a ring, contiguous, to be written; its contents before that are unspecified.
#[derive(Debug)]
pub struct Grant<'a> {
    producer: &'a mut Producer,
    bytes: usize,
}

/// Makes a ring of at least `bytes` bytes: the next power of two, and whole pages.
///
/// ```
/// let (mut producer, mut consumer) = nofrag_backing::shapes::ring(4096)?;
/// let mut room = producer.room(5).expect("the ring is empty");
/// room.copy_from_slice(b"hello");
/// room.publish(5);
/// assert_eq!(consumer.readable(), b"hello");
/// consumer.release(5);
/// # Ok::<(), nofrag_backing::shapes::ShapeError>(())
/// ```
///
/// # Errors
/// [`ShapeError::Sizes`], [`ShapeError::System`].
pub fn ring(bytes: usize) -> Result<(Producer, Consumer), ShapeError> {
    let bytes = bytes.max(1 << sys::PAGE).checked_next_power_of_two();
    let bytes = bytes.filter(|&bytes| bytes <= isize::MAX as usize / 2).ok_or(ShapeError::Sizes)?;
    let shared = Arc::new(Shared {
        memory: Twice::new(bytes)?,
        written: Position::default(),
        read: Position::default(),
        is_closed: AtomicBool::new(false),
    });
    let producer = Producer { shared: Arc::clone(&shared), written: 0, read: 0 };
    Ok((producer, Consumer { shared, read: 0, written: 0 }))
}

impl Twice {
    fn new(bytes: usize) -> Result<Twice, ShapeError> {
        let forks = Forks::now().map_err(to("watch for forks"))?;
        let file = sys::memfd_create(c"nofrag-ring", MemfdFlags::CLOEXEC);
        let file = file.map_err(to("make a file in memory"))?;
        sys::ftruncate(file.as_fd(), bytes as u64).map_err(to("give a file in memory its size"))?;
        let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let base = unsafe { sys::mmap_anonymous(ptr::null_mut(), bytes * 2, none, flags) };
        let base = base.map_err(to("reserve addresses"))?;
        // From here on `drop` unmaps all of it.
        let twice = Twice { base: base.cast(), bytes, forks };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        for half in [twice.base, twice.base.wrapping_add(bytes)] {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            // SAFETY: the half is in the reservation made above, which no other thread knows of.
            let mapped = unsafe { sys::mmap(half.cast(), bytes, both, flags, file.as_fd(), 0) };
            mapped.map_err(to("map a file in memory"))?;
        }
        // SAFETY: mapped a moment ago, and the advice changes no content.
        let kept = unsafe { sys::madvise(base, bytes * 2, libc::MADV_DONTFORK) };
        kept.map_err(to("keep the ring from children"))?;
        Ok(twice)
    }

    /// Returns the address of a position, with `bytes` bytes from there on.
    ///
    /// # Panics
    /// If the ring has fewer bytes, or in a child of the process that made it.
    fn at(&self, position: u64, bytes: usize) -> *mut u8 {
        assert!(self.forks.is_same(), "a child of a fork does not have its parent's ring");
        assert!(bytes <= self.bytes, "{bytes} bytes of a ring of {}", self.bytes);
        self.base.wrapping_add((position % self.bytes as u64) as usize)
    }
}

impl Drop for Twice {
    fn drop(&mut self) {
        // A child does not have the mapping, and may have another one there.
        if self.forks.is_same() {
            // SAFETY: ours alone (law 1), and nothing borrows it any more. If it cannot be unmapped, it stays.
            let _ = unsafe { sys::munmap(self.base.cast::<c_void>(), self.bytes * 2) };
        }
    }
}

impl Producer {
    /// Returns the bytes of the ring: no message can be longer.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.memory.bytes
    }

    fn free(&self) -> usize {
        self.capacity() - (self.written - self.read) as usize
    }

    /// Returns room for `bytes` bytes, if there is any now.
    pub fn room(&mut self, bytes: usize) -> Option<Grant<'_>> {
        if self.free() < bytes {
            // Acquire pairs with the release in `Consumer::release`: released bytes are not read any more.
            self.read = self.shared.read.0.load(Ordering::Acquire);
        }
        (bytes <= self.free()).then_some(Grant { producer: self, bytes })
    }

    /// Copies a message into the ring, whole or not at all; returns true if it was copied.
    pub fn push(&mut self, message: &[u8]) -> bool {
        let Some(mut room) = self.room(message.len()) else { return false };
        room.copy_from_slice(message);
        room.publish(message.len());
        true
    }

    /// Returns true if the consumer is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire)
    }
}

impl Grant<'_> {
    /// Hands the first `bytes` bytes to the consumer, all of them if there are fewer.
    pub fn publish(self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.producer.written += bytes as u64;
        // Release pairs with the acquire in `Consumer::readable`: the bytes are seen with the number.
        self.producer.shared.written.0.store(self.producer.written, Ordering::Release);
    }
}

impl Deref for Grant<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.producer.shared.memory.at(self.producer.written, self.bytes);
        // SAFETY: inside the two mappings (`at` has checked), and at most one round, so that no byte is in it twice;
        // initialised, since new pages are zero; the producer's own (law 2: `room` has checked), which is borrowed.
        unsafe { std::slice::from_raw_parts(start, self.bytes) }
    }
}

impl DerefMut for Grant<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.producer.shared.memory.at(self.producer.written, self.bytes);
        // SAFETY: as in `deref`; the producer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes) }
    }
}

impl Consumer {
    /// Returns the bytes of the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.memory.bytes
    }

    /// Returns all bytes that were published and not released yet, contiguous.
    pub fn readable(&mut self) -> &[u8] {
        // Acquire pairs with the release in `Grant::publish`.
        self.written = self.shared.written.0.load(Ordering::Acquire);
        self.seen()
    }

    /// Returns the bytes that [`readable`](Self::readable) saw last, without those that have been released since. Looks
    /// at nothing that the other thread writes.
    #[must_use]
    pub fn seen(&self) -> &[u8] {
        let bytes = (self.written - self.read) as usize;
        let start = self.shared.memory.at(self.read, bytes);
        // SAFETY: inside the two mappings (`at` has checked), initialised, and the consumer's own until it releases it
        // (law 2), which takes it exclusively.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }

    /// Gives the first `bytes` bytes back to the producer, at most those that were seen.
    pub fn release(&mut self, bytes: usize) {
        self.read += (bytes as u64).min(self.written - self.read);
        // Release pairs with the acquire in `Producer::room`: the bytes are not read after this.
        self.shared.read.0.store(self.read, Ordering::Release);
    }

    /// Returns true if the producer is gone. Bytes that it published before can still be read.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Acquire pairs with the release in `Producer::drop`: bytes that it published before are seen by a later look.
        self.shared.is_closed.load(Ordering::Acquire)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
    }
}
