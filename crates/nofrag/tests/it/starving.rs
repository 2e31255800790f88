//! A heap that refuses at random the memory that an operation asks for, though not the memory that its driver needs to
//! look at the outcome.
//!
//! Memory that a structure takes without being able to fail ends the process, which is how it is found.

use crate::memory::refusing_at_random;
use nofrag::mmap::{FixedError, MapError, MoveError, ProtectError, UnmapError};
use nofrag::ranges::{
    AddSpanError, AllocError, FreeError, HeapError, OutOfMetadata, RelocateError, TakeError,
};
use nofrag::vmap::{AreaError, GroupError, MapRamError};
use std::fmt::Debug;

/// The odds of a refusal, of 256, and the state of the random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    odds: u8,
    draw: u64,
}

impl Heap {
    /// A heap that serves every request.
    pub(crate) const AMPLE: Heap = Heap::new(0, 0);

    pub(crate) const fn new(odds: u8, draw: u64) -> Heap {
        Heap { odds, draw }
    }

    pub(crate) fn is_ample(self) -> bool {
        self.odds == 0
    }

    /// Does `operation` on this heap.
    pub(crate) fn run<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        self.draw = self.draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        refusing_at_random(self.draw, self.odds, operation)
    }

    /// Does `operation`, and once more with memory if the heap refuses it; `unchanged` looks at it in between.
    pub(crate) fn attempt<S, T, E: Refusal>(
        &mut self,
        subject: &mut S,
        mut operation: impl FnMut(&mut S) -> Result<T, E>,
        unchanged: impl FnOnce(&S),
    ) -> Result<T, E> {
        let said = self.run(|| operation(subject));
        if !said.as_ref().is_err_and(Refusal::is_refusal) {
            return said;
        }
        assert!(!self.is_ample(), "it was refused although there is memory");
        unchanged(subject);
        let again = operation(subject);
        let refused = again.as_ref().is_err_and(Refusal::is_refusal);
        assert!(!refused, "it was refused although there is memory");
        again
    }
}

/// An error that tells if memory was refused.
pub(crate) trait Refusal: Debug {
    fn is_refusal(&self) -> bool;
}

macro_rules! refusal {
    ($($error:ty: $refused:pat,)+) => {
        $(impl Refusal for $error {
            fn is_refusal(&self) -> bool {
                matches!(self, $refused)
            }
        })+
    };
}

refusal! {
    AllocError: AllocError::OutOfMetadata,
    TakeError: TakeError::OutOfMetadata,
    FreeError: FreeError::OutOfMetadata,
    AddSpanError: AddSpanError::OutOfMetadata,
    HeapError: HeapError::OutOfMetadata,
    OutOfMetadata: OutOfMetadata,
    RelocateError: RelocateError::OutOfMetadata | RelocateError::NoPlace(AllocError::OutOfMetadata),
    AreaError: AreaError::OutOfMetadata,
    GroupError: GroupError::OutOfMetadata,
    MapError: MapError::OutOfMetadata,
    FixedError: FixedError::OutOfMetadata,
    UnmapError: UnmapError::OutOfMetadata,
    ProtectError: ProtectError::OutOfMetadata,
    MoveError: MoveError::OutOfMetadata | MoveError::NoPlace(MapError::OutOfMetadata),
}

impl<E: Debug> Refusal for MapRamError<E> {
    fn is_refusal(&self) -> bool {
        matches!(self, MapRamError::OutOfMetadata)
    }
}
