//! Shapes of memory that only mappings make possible, each a small type with a safe face.
//!
//! - [`GrowableBuffer`]: grows to any size without ever being copied.
//! - [`ring()`]: a ring buffer whose messages are contiguous, wherever they begin.
//! - [`SlotPool`]: tens of thousands of guarded memories in one area of the process, whose contents never pass from one
//!   user to the next.
//!
//! None of them is passed on to the child of a fork: there the addresses are not mapped.

mod growable;
mod ring;
mod slots;

use rustix::io::Errno;

pub use growable::GrowableBuffer;
pub use ring::{Consumer, Grant, Producer, ring};
pub use slots::{Guards, PoolCounts, PoolSizes, Slot, SlotPool};

/// Why there is no such memory. Nothing was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// Nothing at all was asked for, or more than addresses can name.
    #[error("sizes must be at least one byte, and fit into the address space together")]
    Sizes,
    /// The system refused.
    #[error("the system refused to {what}: {error}")]
    System {
        /// What was asked.
        what: &'static str,
        /// What it said.
        error: Errno,
    },
    /// The buffer has as many bytes as addresses were reserved for.
    #[error("{wanted} bytes are wanted, and the buffer was made for {capacity}")]
    Full {
        /// So many.
        wanted: usize,
        /// What it was made for.
        capacity: usize,
    },
    /// Every slot is in use.
    #[error("all {slots} slots are in use")]
    NoSlot {
        /// So many.
        slots: u32,
    },
    /// Guards would need more areas than the process should have; newer kernels need none.
    #[error(
        "guards of {slots} slots would take {areas} areas of at most {budget}: \
             Linux 6.13 keeps guards in page tables"
    )]
    TooManyAreas {
        /// Slots that were wanted.
        slots: u32,
        /// Areas that they would take.
        areas: u64,
        /// Half of what Linux allows the process.
        budget: u64,
    },
    /// The process is a child of the one that made it.
    #[error("this process was forked from the one that has the memory")]
    Forked,
}

/// Says of a system call what it was for.
fn to<E: Into<Errno>>(what: &'static str) -> impl FnOnce(E) -> ShapeError {
    move |error| ShapeError::System { what, error: error.into() }
}

/// Whole pages.
fn pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(1 << crate::sys::PAGE).filter(|&bytes| bytes > 0)
}
