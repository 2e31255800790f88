//! Shapes of memory that only mappings make possible, each a small type with a safe face.
//!
//! - [`GrowableBuffer`]: grows to any size without ever being copied.
//! - [`ring()`]: a ring buffer whose messages are contiguous, wherever they begin.
//! - [`SlotPool`]: tens of thousands of guarded memories in one area of the process, whose contents never pass from one
//!   user to the next.
//!
//! None of these shapes is passed on to the child of a fork: there the addresses are not mapped.

mod growable;
mod ring;
mod slots;

use rustix::io::Errno;

pub use growable::GrowableBuffer;
pub use ring::{Consumer, Grant, Producer, ring};
pub use slots::{Guards, PoolCounts, PoolSizes, Slot, SlotPool};

/// Why a shape was not made, or could not be used. Nothing was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The size is zero, or larger than addresses can name.
    #[error("sizes must be at least one byte, and fit into the address space together")]
    Sizes,
    #[error("the system refused to {what}: {error}")]
    System { what: &'static str, error: Errno },
    /// The buffer has as many bytes as addresses were reserved for.
    #[error("{wanted} bytes are wanted, and the buffer was made for {capacity}")]
    Full { wanted: usize, capacity: usize },
    #[error("all {slots} slots are in use")]
    NoSlot { slots: u32 },
    /// Guards would need more areas than the process should have; kernels from Linux 6.13 on need none.
    #[error(
        "guards of {slots} slots would take {areas} areas of at most {budget}: \
             Linux 6.13 keeps guards in page tables"
    )]
    TooManyAreas {
        /// Slots that were asked for.
        slots: u32,
        areas: u64,
        /// Half of the number that Linux allows the process.
        budget: u64,
    },
    /// The process is a child of the one that made the memory.
    #[error("this process was forked from the one that has the memory")]
    Forked,
}

/// Returns a function that makes a system call's error into a [`ShapeError::System`], with the call's purpose `what`.
fn to<E: Into<Errno>>(what: &'static str) -> impl FnOnce(E) -> ShapeError {
    move |error| ShapeError::System { what, error: error.into() }
}

/// Rounds bytes up to whole pages; `None` for no bytes, or more than can be rounded.
fn pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(1 << crate::sys::PAGE).filter(|&bytes| bytes > 0)
}
