//! Moves of ranges: the new place is taken first, and the old one given up when the caller has moved what it names.

use super::{FreeError, RangeAllocator, RelocateError, Request, Span, TakeError};

/// A move that has taken its new place. While it is pending both places are allocated.
///
/// The move ends by [`commit`](Relocation::commit); one that is dropped is rolled back: its new place is free again. It
/// keeps the allocator borrowed; who has other requests meanwhile takes it out with [`hold`](Relocation::hold).
///
/// ```
/// use nofrag::ranges::{RangeAllocator, Request, Span};
///
/// let mut slots = RangeAllocator::over(Span::new(0, 100)?)?;
/// let mut table = slots.alloc(&Request::new(10))?;
/// let moved = slots.relocate(table, &Request::new(10).align(64))?;
/// // Here the caller copies what is there; without `commit` the table would stay where it is.
/// table = moved.commit().map_err(|(_, why)| why)?;
/// assert_eq!(table.start(), 64);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[must_use = "a move that is dropped is rolled back"]
#[derive(Debug)]
pub struct Relocation<'a> {
    allocator: &'a mut RangeAllocator,
    pending: PendingMove,
}

/// A move apart from its allocator, which holds both places until [`RangeAllocator::commit`] or
/// [`RangeAllocator::rollback`]; one that is dropped leaves both allocated.
#[must_use = "a pending move holds both places until it is committed or rolled back"]
#[derive(Debug, PartialEq, Eq)]
pub struct PendingMove {
    from: Span,
    to: Span,
}

impl PendingMove {
    /// Returns the old place of the range.
    #[must_use]
    pub fn from(&self) -> Span {
        self.from
    }

    /// Returns the new place of the range.
    #[must_use]
    pub fn to(&self) -> Span {
        self.to
    }
}

impl<'a> Relocation<'a> {
    /// Returns the old place of the range.
    #[must_use]
    pub fn from(&self) -> Span {
        self.pending.from
    }

    /// Returns the new place of the range.
    #[must_use]
    pub fn to(&self) -> Span {
        self.pending.to
    }

    /// Ends the move: the old place becomes free. Returns the new place. O(log n).
    ///
    /// # Errors
    /// The move, which stays pending, and the reason. After [`FreeError::OutOfMetadata`] it can be tried again.
    pub fn commit(self) -> Result<Span, (Relocation<'a>, FreeError)> {
        let PendingMove { from, to } = self.pending;
        match self.allocator.free_outside(from, to) {
            Ok(()) => {
                core::mem::forget(self);
                Ok(to)
            }
            Err(why) => Err((self, why)),
        }
    }

    /// Takes the move out, so that the allocator is free for other requests until it is committed or rolled back there.
    pub fn hold(self) -> PendingMove {
        let PendingMove { from, to } = self.pending;
        core::mem::forget(self);
        PendingMove { from, to }
    }
}

/// Rolls the move back. What was taken is given back to the hole that it was cut from; should that need memory, and
/// there is none, the new place stays allocated.
impl Drop for Relocation<'_> {
    fn drop(&mut self) {
        let PendingMove { from, to } = self.pending;
        // Nobody could be told, and nothing else has changed.
        let _ = self.allocator.free_outside(to, from);
    }
}

impl RangeAllocator {
    /// Begins to move the allocated range `from` to wherever `request` finds room, apart from its present place. Costs
    /// what an allocation costs.
    ///
    /// # Errors
    /// See [`RelocateError`]; nothing changed.
    pub fn relocate(
        &mut self,
        from: Span,
        request: &Request,
    ) -> Result<Relocation<'_>, RelocateError> {
        self.must_be_allocated(from)?;
        let to = self.alloc(request).map_err(RelocateError::NoPlace)?;
        Ok(Relocation { allocator: self, pending: PendingMove { from, to } })
    }

    /// Begins to move the allocated range `from` to exactly `to`, which may overlap `from`. O(log n).
    ///
    /// # Errors
    /// See [`RelocateError`]; nothing changed.
    pub fn relocate_to(&mut self, from: Span, to: Span) -> Result<Relocation<'_>, RelocateError> {
        self.must_be_allocated(from)?;
        let [below, above] = to.outside(from);
        for part in [below, above].into_iter().flatten() {
            if !self.owns(part) {
                return Err(RelocateError::Foreign);
            }
            if !self.is_free(part) {
                return Err(RelocateError::Taken);
            }
        }
        let mut taken: Option<Span> = None;
        for part in [below, above].into_iter().flatten() {
            match self.alloc_at(part) {
                Ok(()) => taken = Some(part),
                Err(why) => {
                    if let Some(part) = taken {
                        self.free(part).expect("what was taken a moment ago can be given back");
                    }
                    return Err(match why {
                        TakeError::Foreign => RelocateError::Foreign,
                        TakeError::Taken => RelocateError::Taken,
                        TakeError::OutOfMetadata => RelocateError::OutOfMetadata,
                    });
                }
            }
        }
        Ok(Relocation { allocator: self, pending: PendingMove { from, to } })
    }

    /// Ends a move: the old place becomes free. O(log n).
    ///
    /// # Errors
    /// The move, which stays pending, and the reason. After [`FreeError::OutOfMetadata`] it can be tried again.
    pub fn commit(&mut self, moved: PendingMove) -> Result<(), (PendingMove, FreeError)> {
        let PendingMove { from, to } = moved;
        self.free_outside(from, to).map_err(|why| (moved, why))
    }

    /// Abandons a move: the new place becomes free. O(log n).
    ///
    /// # Errors
    /// The same as those of [`commit`](Self::commit).
    pub fn rollback(&mut self, moved: PendingMove) -> Result<(), (PendingMove, FreeError)> {
        let PendingMove { from, to } = moved;
        self.free_outside(to, from).map_err(|why| (moved, why))
    }
}
