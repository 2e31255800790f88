//! Memory that moves while it is used.
//!
//! Pages of a file in memory are shown to users in areas ([`LiveArea`]); a [`Mover`] lets a run of an area show other
//! pages of the file, with the same contents. So pages that lie scattered in the file can be brought together, and
//! whole 2 MiB blocks of it become free or become real huge pages. Users keep their addresses, and no write is lost.
//!
//! # How writers are kept away
//!
//! Between the copy and the new mapping no write may happen. There are three ways ([`Method`]):
//!
//! - [`pins`], the default: a user pins what it uses, for as short as it can. That needs users that take part, and two
//!   atomic operations for each use; a move pays nothing.
//! - Write protection by [`userfaultfd`]: a user writes as it likes, and waits in the kernel for the end of a move.
//!   That needs permission, and memory that only programs use. A move pays for registering and protecting the run.
//! - Write protection by `mprotect`: the same, but the user waits in a handler of `SIGSEGV`, which is one for the whole
//!   process; once other code has installed its own, such moves are refused. A move pays less where the run is an area
//!   of the kernel already, and more where that must be split.
//!
//! # What cannot be moved
//!
//! Only the user's page tables learn of a move. So:
//!
//! * References of the kernel itself stay on the old pages: data in a pipe (`vmsplice`), direct and registered buffers
//!   of I/O, memory registered with a device. Hold a pin as long as that lasts, or map the area with
//!   [`Reach::Devices`]: then every move is refused. The kernel does not refuse for us: it moves pages that it refers
//!   to itself.
//! * Other mappings of the same pages, in this or another process, stay on the old pages. A child after a fork is such
//!   a process.
//! * A system call that writes into a run that is being moved waits, by userfaultfd with
//!   [`Scope::Everywhere`](userfaultfd::Scope); it fails with `EFAULT` by `mprotect`, and by userfaultfd where
//!   only faults of programs wait.
//! * Each run that is moved on its own becomes a mapping of its own. The kernel allows some 65,000; a mover stops at
//!   half of that ([`MoveError::MappingBudget`]).
//!
//! Source: docs/sources/backing.md#moves, #move-limits, #r8.

mod background;
mod budget;
mod handles;
mod live;
mod mover;
pub mod pins;
mod residents;
mod signals;
mod steps;
pub mod userfaultfd;

pub use background::{Background, Pace, Worked};
pub use budget::Mappings;
pub use handles::{Handle, HandleError, Handles, NoHandle, PinnedBlock};
pub use live::{Access, LiveArea, LiveError, LiveFile, PinnedWords, Reach};
pub use mover::{Fill, Method, MoveError, Mover, Step};
pub use residents::MappedMover;
