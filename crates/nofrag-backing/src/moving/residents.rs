//! Moves of the pages that areas show, under their users: write protection, for areas that ask for it.
//!
//! The frames of an area stay where they are unless it was made [`Movable`](crate::mapped::Mobility::Movable). Then
//! compaction may put other frames in their place, through [`Mapped::relocate`], with writers kept away by userfaultfd
//! as the [module](super) says. Frames that cannot be moved, for lack of mappings or because the system refuses, stay.

use std::sync::{Arc, Mutex, Weak};

use nofrag::page::{Move, MoveResults, Moves, ReclaimRequest, Reclaimed};

use super::handles::Handles;
use super::mover::Fill;
use super::steps::{Protector, Swap};
use super::userfaultfd::OpenError;
use crate::frames::{Residents, Use};
use crate::mapped::{Mapped, Relocation};

const POISONED: &str = "no thread panicked while it held this lock";

/// A mover of the frames of movable areas, and of handles over the same frames.
#[derive(Debug)]
pub struct MappedMover {
    mapped: Arc<Mapped>,
    handles: Option<Arc<Handles>>,
    protector: Mutex<Protector>,
}

impl MappedMover {
    /// Makes a mover for a space, registered with the space's frames as long as the result lives.
    ///
    /// # Errors
    /// [`OpenError`] where there is no userfaultfd: areas cannot be moved under their users then.
    pub fn new(mapped: Arc<Mapped>) -> Result<Arc<MappedMover>, OpenError> {
        MappedMover::register(mapped, None)
    }

    /// Makes a mover for a space and handles, both over the same frames.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    ///
    /// # Panics
    /// If the frames are not the same.
    pub fn with_handles(
        mapped: Arc<Mapped>,
        handles: Arc<Handles>,
    ) -> Result<Arc<MappedMover>, OpenError> {
        assert!(Arc::ptr_eq(mapped.frames(), handles.frames()), "both are over the same frames");
        MappedMover::register(mapped, Some(handles))
    }

    fn register(
        mapped: Arc<Mapped>,
        handles: Option<Arc<Handles>>,
    ) -> Result<Arc<MappedMover>, OpenError> {
        let mut protector = Protector::default();
        protector.descriptor()?;
        let mover = Arc::new(MappedMover { mapped, handles, protector: Mutex::new(protector) });
        let residents = Arc::downgrade(&mover);
        mover.mapped.frames().register(residents as Weak<dyn Residents>);
        Ok(mover)
    }

    fn exchange(&self, relocation: &Relocation<'_>) -> bool {
        let Relocation { at, bytes, from, to, file, offset } = *relocation;
        let swap = Swap { at: at.cast(), bytes, file, offset };
        let copy = || {
            // SAFETY: both lie in the window; the area shows the source, which cannot be written now, and the target
            // was set aside for it, so that it is of its size, and no other block's until `relocate` has ended.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
        };
        let mut protector = self.protector.lock().expect(POISONED);
        // SAFETY: the range belongs to an area that is kept from ending, and shows the same contents as before.
        unsafe { protector.swap(&swap, Fill::OnFault, copy) }.is_ok()
    }

    fn migrate(&self, pair: Move) -> bool {
        match self.mapped.frames().use_of(pair.from) {
            Some(Use::Mapped { .. }) => self.mapped.relocate(pair, |place| self.exchange(place)),
            Some(Use::Handle { .. }) => {
                self.handles.as_ref().is_some_and(|handles| handles.migrate_pair(pair))
            }
            Some(Use::Pinned) | None => false,
        }
    }
}

impl Residents for MappedMover {
    fn move_frames(&self, moves: &Moves) -> MoveResults {
        let mut results = MoveResults::default();
        for (index, &pair) in moves.pairs().iter().enumerate() {
            results.0 |= u32::from(self.migrate(pair)) << index;
        }
        results
    }

    /// Flushes: frames of areas that were freed come back with that.
    fn reclaim(&self, _: ReclaimRequest) -> Reclaimed {
        let free = || self.mapped.frames().stats().free.0;
        let before = free();
        self.mapped.settle();
        let pages = free().saturating_sub(before);
        Reclaimed { pages, scanned: pages, left: 0 }
    }
}
