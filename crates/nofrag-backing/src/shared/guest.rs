//! What several handles name, side by side in another process.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use super::Handle;
use super::descriptors::Invitation;
use super::error::SharedError;
use super::mapping::Mapping;
use super::peer::{Peer, Pinned};

/// A [`Peer`] that can also show what several handles name at adjacent addresses of its own: what a
/// [`Table`](crate::export::Table) exports.
#[derive(Debug)]
pub struct Guest {
    peer: Peer,
    data: OwnedFd,
}

/// What handles name, side by side, pinned and to be read. It ends its pins when it is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends its pins"]
pub struct GuestArea<'a> {
    /// Ends before the pins do.
    view: Mapping,
    pins: Vec<Pinned<'a>>,
}

impl Guest {
    /// Takes part in what the invitation names.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub fn attach(invitation: Invitation) -> Result<Guest, SharedError> {
        let peer = Peer::attach(&invitation)?;
        let (_, data) = invitation.into_descriptors();
        Ok(Guest { peer, data })
    }

    /// For handles one by one.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Pins what the handles name, and shows it in their order at adjacent addresses. A handle may be given twice.
    ///
    /// # Errors
    /// [`SharedError::Stale`] if one of them was withdrawn; [`SharedError::Damaged`] if one does not name whole pages;
    /// others see [`SharedError`]. Nothing is pinned or mapped then.
    pub fn map(&self, handles: &[Handle]) -> Result<GuestArea<'_>, SharedError> {
        if handles.is_empty() {
            return Err(SharedError::NoHandles);
        }
        let mut pins = Vec::with_capacity(handles.len());
        let mut pieces = Vec::with_capacity(handles.len());
        for &handle in handles {
            let pin = self.peer.try_pin(handle)?;
            let (offset, bytes) = (pin.offset(), pin.len());
            if bytes == 0 || !(offset | bytes).is_multiple_of(1 << crate::sys::PAGE) {
                return Err(SharedError::Damaged { entry: handle.entry });
            }
            pieces.push((offset, bytes));
            pins.push(pin);
        }
        let view = Mapping::of_pieces(self.data.as_fd(), &pieces)?;
        Ok(GuestArea { view, pins })
    }
}

impl GuestArea<'_> {
    /// How many bytes there are: whole pages.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // an area is made of at least one page
    pub fn len(&self) -> u64 {
        self.view.bytes() as u64
    }

    /// Of how many handles it was made.
    #[must_use]
    pub fn handles(&self) -> usize {
        self.pins.len()
    }

    /// Copies bytes from `at` on, which the owner may be writing at the same time: whole words, where they are aligned,
    /// are read as such.
    ///
    /// # Errors
    /// [`SharedError::Outside`], [`SharedError::Forked`].
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), SharedError> {
        let (bytes, end) = (self.len(), at.saturating_add(into.len() as u64));
        if end > bytes {
            return Err(SharedError::Outside { at, end, bytes });
        }
        if !self.view.is_here() {
            return Err(SharedError::Forked);
        }
        self.view.copy_out(at, into);
        Ok(())
    }

    /// The word with this number, read as a whole. What the owner wrote before it stored that word, with release, is
    /// seen afterwards.
    ///
    /// # Errors
    /// [`SharedError::Outside`], [`SharedError::Forked`].
    pub fn word(&self, at: u64) -> Result<u64, SharedError> {
        let mut word = [0; 8];
        self.read(at.saturating_mul(8), &mut word)?;
        // Pairs with the owner's store of the word, whichever that is: the load was atomic, being aligned.
        fence(Ordering::Acquire);
        Ok(u64::from_ne_bytes(word))
    }

    /// Where the first byte is, for as long as the area lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.view.range(0, 0).expect("it begins inside")
    }

    /// The bytes themselves.
    ///
    /// # Safety
    /// As long as the result is used, nobody writes to the frames, and the owner and all processes that are attached
    /// keep the protocol. Nor is it used in a child of a fork.
    #[must_use]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the whole of the mapping, which lives as long as `self`; that nobody writes there is the caller's
        // promise.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.view.bytes()) }
    }
}
