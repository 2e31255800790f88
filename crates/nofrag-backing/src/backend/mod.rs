//! One face for all memory that can stand behind numbers: this process's own, files in memory, none at all.
//!
//! A [`Backend`] reserves addresses, makes memory, and brings the two together; what it can and cannot do it says
//! itself ([`Geometry`], [`Caps`]), so that whoever manages memory over it (an arena) needs no
//! case for each kind. Operations are submitted many at a time, because that is where the gain lies: each has its own
//! result, and what a failure leaves behind is stated ([`Op`]).
//!
//! Bottom up:
//!
//! - `cost`: what each call is expected to cost. `refusals`: failures by plan.
//! - `books`: what is reserved and mapped, and how many areas that makes.
//! - `submission`: the order of operations, and what a failure leaves alone.
//! - `host`: addresses of this process. `discard`: many ranges emptied by few calls.
//! - The backends: `anonymous`, `memfd`, both with `huge` pages too; and `simulated`.
//! - [`measure`]: what the kernel does to those who map, counted and timed.
//!
//! Source: docs/sources/backing.md#backends.

mod anonymous;
mod books;
mod cost;
mod discard;
mod host;
mod huge;
pub mod measure;
mod memfd;
mod refusals;
mod simulated;
mod submission;

use std::fmt::Debug;
use std::ops::BitOr;
use std::sync::Arc;

use rustix::io::Errno;

pub use anonymous::{Anonymous, Promise};
pub use cost::CostModel;
pub use huge::HUGE;
pub use memfd::{Budget, Memfd, Piece};

pub use simulated::{Counts, SimCall, Simulated, Touched};

/// An address in a backend's space; for memory of this process, an address of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Va(pub u64);

impl Va {
    /// So many bytes further; behind the last address comes zero, as with a pointer.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Va {
        Va(self.0.wrapping_add(bytes))
    }
}

/// What a backend can do, or insists on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caps(u32);

impl Caps {
    /// Nothing.
    pub const NONE: Caps = Caps(0);
    /// A part of a mapping may be unmapped.
    pub const PARTIAL_UNMAP: Caps = Caps(1);
    /// A mapping may replace another in one step.
    pub const OVER_MAP: Caps = Caps(1 << 1);
    /// Memory may be mapped at several addresses.
    pub const ALIAS: Caps = Caps(1 << 2);
    /// A part of some memory may be mapped.
    pub const SUBRANGE_MAP: Caps = Caps(1 << 3);
    /// Contents can be given back while the mapping stays ([`Op::Purge`]).
    pub const PURGE_IN_PLACE: Caps = Caps(1 << 4);
    /// Scattered ranges purged in one submission cost little more than one.
    pub const SCATTERED_PURGE: Caps = Caps(1 << 5);
    /// Contents move without being copied ([`Op::Move`]).
    pub const MOVE_PAGES: Caps = Caps(1 << 6);
    /// New memory, and what was purged, reads as zero.
    pub const ZEROED: Caps = Caps(1 << 7);

    /// Whether all of `others` are among them.
    #[must_use]
    pub const fn has(self, others: Caps) -> bool {
        self.0 & others.0 == others.0
    }

    /// With `others` too, where `|` cannot stand: in constants.
    #[must_use]
    pub const fn with(self, others: Caps) -> Caps {
        Caps(self.0 | others.0)
    }

    /// Without `others`.
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
    /// The unit that serves best, a multiple of `granule`.
    pub recommended: u64,
    /// What addresses are multiples of. A power of two.
    pub va_align: u64,
    /// The largest reservation that makes sense to ask for.
    pub max_va: u64,
    /// What it can do.
    pub caps: Caps,
    /// So many mappings may exist at once, where that is known: half of what the kernel allows a process.
    pub max_mappings: Option<u64>,
    /// So many operations of a kind are taken at once at best.
    pub vector_max: usize,
    /// What calls are expected to cost.
    pub cost: CostModel,
}

impl Geometry {
    /// Refuses a range that is empty, does not begin or end where it must, or passes the end of all addresses.
    pub(crate) fn fits(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let fits = bytes > 0
            && bytes.is_multiple_of(self.granule)
            && va.0.is_multiple_of(self.va_align)
            && va.0.checked_add(bytes).is_some();
        if fits { Ok(()) } else { Err(BackendError::Misfit) }
    }

    /// Refuses a part of some memory that may not be mapped.
    pub(crate) fn fits_inside(&self, offset: u64, bytes: u64, of: u64) -> Result<(), BackendError> {
        let is_inside = offset.is_multiple_of(self.granule)
            && offset.checked_add(bytes).is_some_and(|end| end <= of);
        let is_allowed = bytes == of || self.caps.has(Caps::SUBRANGE_MAP);
        if is_inside && is_allowed { Ok(()) } else { Err(BackendError::Misfit) }
    }

    /// Bytes and alignment of a reservation, as this process counts them.
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

/// What users of a mapping may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Look.
    Read,
    /// Look and change.
    ReadWrite,
}

/// One operation. After a failure the range is as it was before, unless the backend's own text says otherwise.
/// Source: docs/sources/backing.md#legal-states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<P> {
    /// Lets `va` show `bytes` of `phys` from `offset` on.
    Map {
        /// Where; reserved, and unmapped unless the backend can [`OVER_MAP`](Caps::OVER_MAP).
        va: Va,
        /// What.
        phys: P,
        /// From there on.
        offset: u64,
        /// So much of it.
        bytes: u64,
    },
    /// Takes a mapping, or several that touch, away; the addresses stay reserved.
    Unmap {
        /// Where; mapped from its first byte to its last.
        va: Va,
        /// How much: all of the mapping unless the backend can [`PARTIAL_UNMAP`](Caps::PARTIAL_UNMAP).
        bytes: u64,
    },
    /// Says what users may do from now on, until it is mapped anew.
    Grant {
        /// Where; mapped from its first byte to its last.
        va: Va,
        /// How much.
        bytes: u64,
        /// What.
        access: Access,
    },
    /// Gives the contents back; the mapping stays, and reads as zero where the backend has [`Caps::ZEROED`]. If that
    /// fails the range may still hold them.
    Purge {
        /// Where; mapped from its first byte to its last.
        va: Va,
        /// How much.
        bytes: u64,
    },
    /// Makes `to` hold what `from` held, without copying; `from` is empty then.
    Move {
        /// To there.
        to: Va,
        /// From there.
        from: Va,
        /// So much.
        bytes: u64,
    },
    /// Makes `to` hold what `from` holds.
    Copy {
        /// To there.
        to: Va,
        /// From there.
        from: Va,
        /// So much.
        bytes: u64,
    },
}

impl<P> Op<P> {
    /// The ranges of addresses that it concerns: one, or the two of a move or copy.
    pub fn ranges(&self) -> impl Iterator<Item = (Va, u64)> {
        let (first, second) = match *self {
            Op::Map { va, bytes, .. }
            | Op::Unmap { va, bytes }
            | Op::Grant { va, bytes, .. }
            | Op::Purge { va, bytes } => ((va, bytes), None),
            Op::Move { to, from, bytes } | Op::Copy { to, from, bytes } => {
                ((to, bytes), Some((from, bytes)))
            }
        };
        std::iter::once(first).chain(second)
    }
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The backend cannot do it at all: a capability is missing.
    #[error("this backend cannot do that")]
    Unsupported,
    /// A size, offset or address is not a multiple of what it must be, or lies outside.
    #[error("a size, offset or address that the backend does not take")]
    Misfit,
    /// The range is in a state in which this must not be done, for example mapped already.
    #[error("not in a state in which that may be done")]
    WrongState,
    /// One more mapping would pass the budget of mappings; nothing was tried.
    #[error("the budget of {budget} mappings is used up")]
    MappingBudget {
        /// So many are allowed.
        budget: u64,
    },
    /// The administrator has set no huge pages aside, or none that are free.
    #[error(
        "{free} of {pages} huge pages are free: write how many are wanted to \
         /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or use transparent huge pages"
    )]
    NoHugePages {
        /// So many there are.
        pages: u64,
        /// So many of them are free.
        free: u64,
    },
    /// An earlier operation of the submission failed on the same range, so this one was not tried.
    #[error("not tried, since an operation before it on the same range failed")]
    Skipped,
    /// What the system said.
    #[error("the system refused: {0}")]
    System(Errno),
}

impl From<Errno> for BackendError {
    fn from(error: Errno) -> BackendError {
        BackendError::System(error)
    }
}

/// What became of one operation.
pub type OpResult = Result<(), BackendError>;

/// Memory that can be reserved, made, mapped and given back.
///
/// All methods may be called from any thread. What is done to a range while others use it is their affair: a backend
/// keeps its own books in order, no more. No method hands out a reference to memory.
pub trait Backend: Send + Sync {
    /// Names some memory.
    type Phys: Copy + Debug + PartialEq + Send + Sync;

    /// What it can do.
    fn geometry(&self) -> &Geometry;

    /// Reserves addresses: a multiple of `align`, which is a power of two. Nothing is mapped there, and nothing but
    /// [`Op::Map`] may be done with them.
    ///
    /// # Errors
    /// See [`BackendError`]. `System(NOMEM)`: no such room; asking for half is sensible.
    fn reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, BackendError>;

    /// Gives exactly what was reserved back. Memory mapped there is unmapped where the backend allows that.
    ///
    /// What a backend cannot give to the system at once (Linux may refuse `munmap` where it would have to split an
    /// area) it empties, keeps, and gives back later; to the caller it is gone.
    ///
    /// # Errors
    /// See [`BackendError`]; the range stays reserved.
    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError>;

    /// Makes memory.
    ///
    /// # Errors
    /// See [`BackendError`]; nothing was made.
    fn create(&self, bytes: u64) -> Result<Self::Phys, BackendError>;

    /// Gives memory back. It goes when its last mapping goes.
    ///
    /// # Errors
    /// See [`BackendError`]; the memory is still there, and may be destroyed later.
    fn destroy(&self, phys: Self::Phys) -> Result<(), BackendError>;

    /// Does the operations in order and says of each what became of it; `done` is as long as `ops`.
    ///
    /// After a failure, later operations on the same range are [`Skipped`](BackendError::Skipped), and others go on.
    /// Nothing is undone silently.
    ///
    /// # Panics
    /// If `done` is shorter than `ops`.
    fn submit(&self, ops: &[Op<Self::Phys>], done: &mut [OpResult]);

    /// From now on children of `fork` do not see what is mapped in this range: an access in a child faults. What is
    /// mapped there later may be seen. To a child nothing of this backend is reserved any more: it may have other
    /// memory at these addresses, which is not this backend's to change.
    ///
    /// # Errors
    /// See [`BackendError`]; `Unsupported` where children cannot see the memory anyway, or cannot be kept from it.
    fn hide_from_children(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let _ = (va, bytes);
        Err(BackendError::Unsupported)
    }
}

/// A backend that others look at too. It is no [`HostMemory`]: they could purge what somebody has references to.
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
/// Whoever implements it promises: what is reserved belongs to nobody else until it is released, and between a
/// successful [`Op::Map`] (and [`Op::Grant`], where needed) and the end of that mapping, every byte there can be read
/// and written.
pub unsafe trait HostMemory: Backend {}
