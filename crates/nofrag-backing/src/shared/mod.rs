//! Handles to memory that processes share, and that may move.
//!
//! One process *owns* some data, a file in memory, and a *table* beside it. An entry of the table says where in the
//! data something lies; a [`Handle`] names an entry and the life that it is in. So a handle stays good while what it
//! names moves, and one that has been given up is recognised for ever: no entry begins the same life twice.
//!
//! Other processes ([`Peer`]) receive the descriptors of both files ([`Invitation`]) and *pin* what they use. What is
//! pinned stays where it is: a mover keeps new pins away, waits for the old ones a stated time, and otherwise leaves
//! it.
//!
//! # Who may break what
//!
//! A process may die at any moment, or write anything anywhere it can.
//!
//! - **The data** can be written by the owner alone: others get a descriptor that can only be read, of a file that only
//!   the owner's user may open. (That user may also trace the owner; no more is promised.)
//! - **The table** can be written by all, since pins are in it. So the owner keeps books of its own and reads nothing
//!   in the table but pins; a peer checks on every use that what an entry says lies inside the data.
//! - **Neither file can shrink** (`F_SEAL_SHRINK`), so that no access ends in `SIGBUS` for that reason.
//! - **Pins of the dead** are told from those of the living, since each process has a row of its own for them, under
//!   its process number and start time: [`Owner::reap`] releases a row only when the system says that its process has
//!   ended.
//! - **An owner that dies** leaves the table as it was between two stores of a word; its successor goes on from there.
//!
//! Harm that remains possible: a process can pin for ever, and who clears the pins of others can make them read bytes
//! of other objects. It cannot make anybody read or write outside the data.
//!
//! Bottom up: `protocol` (pins and moves on two words), `words` (numbers that check themselves), `mapping`, `process`
//! (who lives), `lock` (who owns it, and no child of a fork does), `layout` (what is where), `descriptors`, `owner`,
//! `peer`, `guest` (what several handles name, side by side).
//!
//! Source: spec/backing.md §3 and story 5; that each process has its own counts is ours.

pub(crate) mod descriptors;
mod error;
mod guest;
mod layout;
mod lock;
pub(crate) mod mapping;
mod owner;
pub(crate) mod patience;
mod peer;
mod process;
mod protocol;
mod words;

/// Where the atomics of `protocol` come from.
mod sync {
    pub(super) use std::sync::atomic::{
        AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
    };
}

pub use descriptors::{Invitation, Succession};
pub use error::SharedError;
pub use guest::{Guest, GuestArea};
pub(crate) use owner::{Found, Place, Slide, Unfinished};
pub use owner::{Held, Owner, Sizes};
pub use peer::{Peer, Pinned};

/// Names something in shared memory, wherever it is. May be sent anywhere as a number; a number that was made up names
/// nothing, or something else, and does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    entry: u32,
    generation: u32,
}

impl Handle {
    /// As a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.entry as u64
    }

    /// From a number.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Handle {
        Handle { entry: bits as u32, generation: (bits >> 32) as u32 }
    }
}
