//! One face for all memory that can stand behind numbers: this process's own, and files in memory.
//!
//! A [`Backend`] reserves addresses, makes memory, and brings the two together; its abilities and limits are values
//! ([`Geometry`], [`Caps`]), so that a manager of memory over it (an arena) needs no case for each kind. Operations are
//! submitted many at a time, because that is where the gain lies: each has its own result, and the state after a
//! failure is stated ([`Op`]).
//!
//! Bottom up:
//!
//! - `books`: reservations and mappings, and the number of areas that they make.
//! - `submission`: the order of operations, and the ranges that are left alone after a failure.
//! - `host`: addresses of this process. `discard`: many ranges emptied by few calls.
//! - The backends: `anonymous`, `memfd`, both with `huge` pages too.
//!
//! Source: docs/sources/backing.md#backends.

mod anonymous;
mod books;
mod discard;
mod host;
mod huge;
mod memfd;
mod submission;

use std::fmt::Debug;
use std::ops::BitOr;
use std::sync::Arc;

use rustix::io::Errno;

pub use anonymous::{Anonymous, Promise};
pub use huge::HUGE;
pub use memfd::{Budget, Memfd, Piece};

/// An address in a backend's space; for memory of this process, an address of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Va(pub u64);

impl Va {
    /// Returns the address `bytes` bytes further; behind the last address comes zero, as with a pointer.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Va {
        Va(self.0.wrapping_add(bytes))
    }
}

/// Abilities of a backend, or its demands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caps(u32);

impl Caps {
    pub const NONE: Caps = Caps(0);
    /// A part of a mapping may be unmapped.
    pub const PARTIAL_UNMAP: Caps = Caps(1);
    /// A mapping may replace another in one step.
    pub const OVER_MAP: Caps = Caps(1 << 1);
    /// Memory may be mapped at several addresses.
    pub const ALIAS: Caps = Caps(1 << 2);
    /// A part of a piece of memory may be mapped, not only the whole.
    pub const SUBRANGE_MAP: Caps = Caps(1 << 3);
    /// Contents can be given back while the mapping stays ([`Op::Purge`]).
    pub const PURGE_IN_PLACE: Caps = Caps(1 << 4);
    /// New memory, and purged memory, reads as zero.
    pub const ZEROED: Caps = Caps(1 << 7);

    /// Returns true if all of `others` are among these.
    #[must_use]
    pub const fn has(self, others: Caps) -> bool {
        self.0 & others.0 == others.0
    }

    /// Adds `others`, where `|` cannot stand: in constants.
    #[must_use]
    pub const fn with(self, others: Caps) -> Caps {
        Caps(self.0 | others.0)
    }

    /// Returns these capabilities without `others`.
    #[must_use]
    pub const fn without(self, others: Caps) -> Caps {
        Caps(self.0 & !others.0)
    }
}

impl BitOr for Caps {
    type Output = Caps;

    fn bitor(self, others: Caps) -> Caps {
        Caps(self.0 | others.0)
    }
}

/// The shape of a backend. Sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// The smallest unit of memory; every size and offset is a multiple of it. A power of two.
    pub granule: u64,
    /// The unit with the best performance, a multiple of `granule`.
    pub recommended: u64,
    /// The unit of addresses, which are multiples of it. A power of two.
    pub va_align: u64,
    /// The largest reservation that makes sense to ask for.
    pub max_va: u64,
    pub caps: Caps,
    /// The most mappings that may exist at once, where that is known: half of the number that the kernel allows a
    /// process.
    pub max_mappings: Option<u64>,
    /// The most operations of a kind that are taken at once.
    pub vector_max: usize,
}

impl Geometry {
    /// Refuses a range that is empty, does not begin or end at a multiple of its unit, or passes the end of all
    /// addresses.
    pub(crate) fn fits(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let fits = bytes > 0
            && bytes.is_multiple_of(self.granule)
            && va.0.is_multiple_of(self.va_align)
            && va.0.checked_add(bytes).is_some();
        if fits { Ok(()) } else { Err(BackendError::Misfit) }
    }

    /// Refuses the part of `bytes` bytes from `offset` on of a memory of `of` bytes unless it lies inside and may be
    /// mapped.
    pub(crate) fn fits_inside(&self, offset: u64, bytes: u64, of: u64) -> Result<(), BackendError> {
        let is_inside = offset.is_multiple_of(self.granule)
            && offset.checked_add(bytes).is_some_and(|end| end <= of);
        let is_allowed = bytes == of || self.caps.has(Caps::SUBRANGE_MAP);
        if is_inside && is_allowed { Ok(()) } else { Err(BackendError::Misfit) }
    }

    /// Returns the bytes of a reservation and its alignment, at least `va_align`, as sizes of this process; refuses
    /// those that do not fit.
    pub(crate) fn reservation(
        &self,
        bytes: u64,
        align: u64,
    ) -> Result<(usize, usize), BackendError> {
        self.fits(Va(0), bytes)?;
        let align = Some(align).filter(|align| align.is_power_of_two());
        let align = align.ok_or(BackendError::Misfit)?.max(self.va_align);
        let narrow = |size| usize::try_from(size).map_err(|_| BackendError::Misfit);
        Ok((narrow(bytes)?, narrow(align)?))
    }
}

/// Access that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    None,
    Read,
    ReadWrite,
}

/// One operation. After a failure the range is as it was before, unless the backend's own text says otherwise.
/// Source: docs/sources/backing.md#legal-states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<P> {
    /// Maps `bytes` of `phys`, from `offset` on, at `va`.
    Map {
        /// Where to map: reserved, and unmapped unless the backend can [`OVER_MAP`](Caps::OVER_MAP).
        va: Va,
        phys: P,
        /// First byte of the memory to show.
        offset: u64,
        bytes: u64,
    },
    /// Removes a mapping, or several that touch; the addresses stay reserved.
    Unmap {
        /// Start of the range; mapped from its first byte to its last.
        va: Va,
        /// Length of the range: all of the mapping unless the backend can [`PARTIAL_UNMAP`](Caps::PARTIAL_UNMAP).
        bytes: u64,
    },
    /// Changes the access of a range, until it is mapped anew.
    Grant {
        /// Start of the range; mapped from its first byte to its last.
        va: Va,
        bytes: u64,
        access: Access,
    },
    /// Gives the contents back; the mapping stays, and reads as zero where the backend has [`Caps::ZEROED`]. If the
    /// purge fails the range may still hold its contents.
    Purge {
        /// Start of the range; mapped from its first byte to its last.
        va: Va,
        bytes: u64,
    },
}

impl<P> Op<P> {
    /// Returns the range of addresses that the operation concerns: its first address and its bytes.
    pub fn range(&self) -> (Va, u64) {
        match *self {
            Op::Map { va, bytes, .. }
            | Op::Unmap { va, bytes }
            | Op::Grant { va, bytes, .. }
            | Op::Purge { va, bytes } => (va, bytes),
        }
    }
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The backend cannot do it at all: a capability is missing.
    #[error("this backend cannot do that")]
    Unsupported,
    /// A size, offset or address is not a multiple of its unit, or passes the end of the memory or of all addresses.
    #[error("a size, offset or address that the backend does not take")]
    Misfit,
    /// The state of the range forbids the operation: for example, it is mapped already.
    #[error("not in a state in which that may be done")]
    WrongState,
    /// One more mapping would pass the budget of mappings; nothing was tried.
    #[error("the budget of {budget} mappings is used up")]
    MappingBudget { budget: u64 },
    /// The administrator has set no huge pages aside, or none of them are free.
    #[error(
        "{free} of {pages} huge pages are free: write how many are wanted to \
         /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or use transparent huge pages"
    )]
    NoHugePages {
        /// Huge pages that are set aside.
        pages: u64,
        /// Huge pages that are free.
        free: u64,
    },
    /// An earlier operation of the submission failed on the same range, so this one was not tried.
    #[error("not tried, since an operation before it on the same range failed")]
    Skipped,
    /// The system refused with this error.
    #[error("the system refused: {0}")]
    System(Errno),
}

impl From<Errno> for BackendError {
    fn from(error: Errno) -> BackendError {
        BackendError::System(error)
    }
}

/// Outcome of one operation: an error says why it was not done.
pub type OpResult = Result<(), BackendError>;

/// Memory that can be reserved, made, mapped and given back.
///
/// All methods may be called from any thread. The caller answers for changes to a range that is in use: a backend keeps
/// its own books in order, no more. No method hands out a reference to memory.
pub trait Backend: Send + Sync {
    /// Name of a piece of memory.
    type Phys: Copy + Debug + PartialEq + Send + Sync;

    /// Returns the backend's abilities and limits.
    fn geometry(&self) -> &Geometry;

    /// Reserves addresses from a multiple of `align` on, which is a power of two. Nothing is mapped there, and nothing
    /// but [`Op::Map`] may be done with them.
    ///
    /// # Errors
    /// See [`BackendError`]. `System(NOMEM)`: there is no room of that size; asking for half is sensible.
    fn reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, BackendError>;

    /// Gives exactly one reservation back. Memory mapped there is unmapped where the backend allows that.
    ///
    /// A range that a backend cannot give to the system at once (Linux may refuse `munmap` where it would have to split
    /// an area) is emptied, kept, and given back later; to the caller it is gone.
    ///
    /// # Errors
    /// See [`BackendError`]; the range stays reserved.
    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError>;

    /// Makes `bytes` bytes of memory.
    ///
    /// # Errors
    /// See [`BackendError`]; nothing was made.
    fn create(&self, bytes: u64) -> Result<Self::Phys, BackendError>;

    /// Gives memory back. It goes when its last mapping goes.
    ///
    /// # Errors
    /// See [`BackendError`]; the memory is still there, and may be destroyed later.
    fn destroy(&self, phys: Self::Phys) -> Result<(), BackendError>;

    /// Does the operations in order and writes the outcome of each to `done`, which is as long as `ops`.
    ///
    /// After a failure, later operations on the same range are [`Skipped`](BackendError::Skipped), and those on other
    /// ranges go on. Nothing is undone silently.
    ///
    /// # Panics
    /// If the lengths of `done` and `ops` differ.
    fn submit(&self, ops: &[Op<Self::Phys>], done: &mut [OpResult]);

    /// Hides the mappings in this range from children of `fork` from now on: an access in a child faults. Later
    /// mappings there may be seen. To a child nothing of this backend is reserved any more: it may have other memory at
    /// these addresses, which is not this backend's to change.
    ///
    /// # Errors
    /// See [`BackendError`]; `Unsupported` where children cannot see the memory anyway, or cannot be kept from it.
    fn hide_from_children(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let _ = (va, bytes);
        Err(BackendError::Unsupported)
    }
}

/// A backend that several users share. It is not [`HostMemory`]: one user could purge memory to which another has
/// references.
impl<B: Backend> Backend for Arc<B> {
    type Phys = B::Phys;

    fn geometry(&self) -> &Geometry {
        B::geometry(self)
    }

    fn reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, BackendError> {
        B::reserve(self, bytes, align, hint)
    }

    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        B::release(self, va, bytes)
    }

    fn create(&self, bytes: u64) -> Result<Self::Phys, BackendError> {
        B::create(self, bytes)
    }

    fn destroy(&self, phys: Self::Phys) -> Result<(), BackendError> {
        B::destroy(self, phys)
    }

    fn submit(&self, ops: &[Op<Self::Phys>], done: &mut [OpResult]) {
        B::submit(self, ops, done);
    }

    fn hide_from_children(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        B::hide_from_children(self, va, bytes)
    }
}

/// A backend whose addresses this process can use.
///
/// # Safety
/// An implementation promises: a reservation belongs to its caller alone until it is released, and between a successful
/// [`Op::Map`] (and [`Op::Grant`], where needed) and the end of that mapping, every byte there can be read and written.
pub unsafe trait HostMemory: Backend {}
