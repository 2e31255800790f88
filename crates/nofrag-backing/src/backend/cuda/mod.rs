//! Memory of a GPU, by the virtual memory management of CUDA.
//!
//! Addresses are reserved, memory is made in handles, a handle is mapped as a whole onto reserved addresses where
//! nothing is mapped, and access is granted apart from that. A mapping goes as it came: whole. Nothing of this waits
//! for the GPU, so who unmaps has asked first whether the last user is done ([`Fence`]).
//!
//! [`Cuda`] keeps to that: one handle for each granule, so that the extents of mappings are granules for ever; many
//! mappings, then one grant over all of them; and books that tell what the driver was made to do where it failed half
//! way. It speaks to a [`Driver`], the few functions of CUDA's driver that this takes. [`FakeDriver`] is one without a
//! GPU, which refuses whatever the documentation forbids. There is no real one yet: none was at hand to be tested.

mod backend;
mod fake;

use std::fmt::Debug;
use std::sync::Arc;
use std::task::Poll;

pub use backend::{Cuda, Fence, Memory};
pub use fake::{Entry, FakeDriver, Fault, Misuse, Shape};

use super::{Access, BackendError, Va};

/// Memory that a driver has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// A point in the work of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Which of its units a driver is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// What sizes must be multiples of.
    Minimum,
    /// What serves best.
    Recommended,
}

/// A function of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `cuMemGetAllocationGranularity`.
    Granularity,
    /// `cuMemAddressReserve`.
    AddressReserve,
    /// `cuMemAddressFree`.
    AddressFree,
    /// `cuMemCreate`.
    Create,
    /// `cuMemRelease`.
    Release,
    /// `cuMemMap`.
    Map,
    /// `cuMemUnmap`.
    Unmap,
    /// `cuMemSetAccess`.
    SetAccess,
    /// `cuEventQuery`.
    EventQuery,
}

/// What CUDA's documentation forbids. The driver itself says no more than "invalid value".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rule {
    /// A size, an address or an offset is no multiple of what it must be, or nothing.
    #[error("a size, an address or an offset is no multiple of what it must be")]
    Multiple,
    /// An alignment is neither nothing nor a power of two.
    #[error("the alignment is neither zero nor a power of two")]
    Alignment,
    /// What is freed is not exactly what was reserved.
    #[error("not exactly what was reserved")]
    NotAReservation,
    /// What is freed has mappings.
    #[error("something is mapped there still")]
    StillMapped,
    /// It is mapped onto addresses that are not reserved.
    #[error("not reserved, or not all of it in one reservation")]
    NotReserved,
    /// It is mapped onto what is mapped.
    #[error("something is mapped there already")]
    OverMap,
    /// The handle was released, or never was.
    #[error("no such handle, or released before")]
    NoHandle,
    /// What is mapped passes the end of the handle's memory.
    #[error("past the end of the handle's memory")]
    PastTheEnd,
    /// What is unmapped is not a whole mapping.
    #[error("not exactly one mapping")]
    NotAMapping,
    /// Access is set where not all is mapped, or for a part of a mapping.
    #[error("not mapped throughout, or a part of a mapping")]
    NotMapped,
    /// The event was never recorded.
    #[error("no such event")]
    NoEvent,
}

/// Why a driver did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The GPU has no memory left.
    #[error("out of memory")]
    OutOfMemory,
    /// A rule of the documentation was broken.
    #[error("invalid value: {0}")]
    Invalid(#[from] Rule),
    /// Something else, by the driver's own number.
    #[error("the driver says {0}")]
    Other(i32),
}

impl DriverError {
    /// CUDA's number for it.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            DriverError::Invalid(_) => 1,
            DriverError::OutOfMemory => 2,
            DriverError::Other(code) => code,
        }
    }
}

impl From<DriverError> for BackendError {
    fn from(error: DriverError) -> BackendError {
        BackendError::Driver { code: error.code() }
    }
}

/// The functions of CUDA's driver that a backend needs, for one device.
///
/// No function waits for the device.
pub trait Driver: Debug + Send + Sync {
    /// What sizes must, or should, be multiples of.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn granularity(&self, which: Granularity) -> Result<u64, DriverError>;

    /// Takes addresses: a multiple of `align`, a power of two or zero, and near `hint` if that is possible.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn address_reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, DriverError>;

    /// Gives back exactly what was reserved.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn address_free(&self, va: Va, bytes: u64) -> Result<(), DriverError>;

    /// Makes memory. Whether it can be handed to other processes is decided here.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn create(&self, bytes: u64) -> Result<Handle, DriverError>;

    /// Gives a handle back. Its memory goes when its last mapping has gone too.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn release(&self, handle: Handle) -> Result<(), DriverError>;

    /// Maps memory onto reserved addresses where nothing is mapped. It allows no access.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn map(&self, va: Va, bytes: u64, offset: u64, handle: Handle) -> Result<(), DriverError>;

    /// Takes exactly one mapping away.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn unmap(&self, va: Va, bytes: u64) -> Result<(), DriverError>;

    /// Says what the device may do with one or more whole mappings.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn set_access(&self, va: Va, bytes: u64, access: Access) -> Result<(), DriverError>;

    /// Whether the work before an event has ended.
    ///
    /// # Errors
    /// See [`DriverError`].
    fn event_query(&self, event: Event) -> Result<Poll<()>, DriverError>;
}

/// A driver may be shared, so that who starts work keeps it too.
impl<D: Driver + ?Sized> Driver for Arc<D> {
    fn granularity(&self, which: Granularity) -> Result<u64, DriverError> {
        (**self).granularity(which)
    }

    fn address_reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, DriverError> {
        (**self).address_reserve(bytes, align, hint)
    }

    fn address_free(&self, va: Va, bytes: u64) -> Result<(), DriverError> {
        (**self).address_free(va, bytes)
    }

    fn create(&self, bytes: u64) -> Result<Handle, DriverError> {
        (**self).create(bytes)
    }

    fn release(&self, handle: Handle) -> Result<(), DriverError> {
        (**self).release(handle)
    }

    fn map(&self, va: Va, bytes: u64, offset: u64, handle: Handle) -> Result<(), DriverError> {
        (**self).map(va, bytes, offset, handle)
    }

    fn unmap(&self, va: Va, bytes: u64) -> Result<(), DriverError> {
        (**self).unmap(va, bytes)
    }

    fn set_access(&self, va: Va, bytes: u64, access: Access) -> Result<(), DriverError> {
        (**self).set_access(va, bytes, access)
    }

    fn event_query(&self, event: Event) -> Result<Poll<()>, DriverError> {
        (**self).event_query(event)
    }
}
