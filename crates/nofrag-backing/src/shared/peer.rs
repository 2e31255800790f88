//! A process that uses what another one owns.

use std::os::fd::AsFd as _;
use std::time::Duration;

use super::Handle;
use super::descriptors::Invitation;
use super::error::SharedError;
use super::layout::Layout;
use super::mapping::{Mapping, Use};
use super::patience::Waiting;
use super::process::{self, Identity};
use super::protocol::{self, Phase, Refusal, State};
use super::sync::{AtomicU32, Ordering};
use super::words::{self, About};

/// Attached to a table that another process owns: pins what handles name, and reads it.
///
/// May be shared by threads. Nothing that another process writes can make it read outside the data; what it reads is
/// right as long as the owner and all attached processes keep the protocol.
///
/// 1. The word of `process` in the table is this process's identity from `attach` to `drop`, and meanwhile only guards
///    of this peer change the pins in its row.
#[derive(Debug)]
pub struct Peer {
    table: Mapping,
    data: Mapping,
    layout: Layout,
    process: u32,
    /// One above the highest entry that was ever pinned.
    touched: AtomicU32,
}

/// Something pinned by another process than its owner: it stays where it is, and its bytes can be read.
#[derive(Debug)]
#[must_use = "dropping it lets the bytes be moved"]
pub struct Pinned<'a> {
    peer: &'a Peer,
    entry: u32,
    offset: u64,
    bytes: u64,
}

impl Peer {
    /// Takes part in what the invitation names. The descriptors are not needed afterwards. A process that executes
    /// another program without dropping its peer first stays attached, with its pins, until it ends.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub fn attach(invitation: &Invitation) -> Result<Peer, SharedError> {
        let table = Mapping::new(invitation.table.as_fd(), Use::Write)?;
        let layout = Layout::read(&table, table.bytes())?;
        let data = Mapping::new(invitation.data.as_fd(), Use::Read)?;
        if data.bytes() as u64 != layout.data_bytes {
            let found = data.bytes() as u64;
            return Err(SharedError::OtherData { expected: layout.data_bytes, found });
        }
        if process::namespace()? != layout.namespace {
            return Err(SharedError::OtherNamespace);
        }
        let own = Identity::own()?.to_word();
        let take = |process: &u32| {
            let identity = layout.identity(&table, *process);
            // Acquire pairs with the release of whoever left: the row is all zero.
            identity.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let process = (0..layout.processes).find(take);
        let process =
            process.ok_or(SharedError::TooManyProcesses { processes: layout.processes })?;
        Ok(Peer { table, data, layout, process, touched: AtomicU32::new(0) })
    }

    /// Bytes of the data that handles point into.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.layout.data_bytes
    }

    /// Pins what `handle` names, unless it is being moved at this moment.
    ///
    /// # Errors
    /// See [`SharedError`]; nothing is pinned.
    pub fn try_pin(&self, handle: Handle) -> Result<Pinned<'_>, SharedError> {
        let Handle { entry, generation } = handle;
        if !self.table.is_here() {
            return Err(SharedError::Forked);
        }
        if entry >= self.layout.entries {
            return Err(SharedError::Stale);
        }
        // Relaxed: only `drop` reads it, and that comes after all pins.
        if self.touched.load(Ordering::Relaxed) <= entry {
            self.touched.fetch_max(entry + 1, Ordering::Relaxed);
        }
        let pins = self.layout.pins(&self.table, self.process, entry);
        protocol::pin(pins, self.layout.state(&self.table, entry), generation).map_err(|why| {
            match why {
                Refusal::Stale => SharedError::Stale,
                Refusal::Moving => SharedError::Moving,
                Refusal::TooMany => SharedError::TooManyPins,
                Refusal::Damaged => SharedError::Damaged { entry },
            }
        })?;
        // From here on the guard gives the pin back, also if the place is none.
        let mut pinned = Pinned { peer: self, entry, offset: 0, bytes: 0 };
        (pinned.offset, pinned.bytes) = self.place(handle).ok_or(SharedError::Damaged { entry })?;
        Ok(pinned)
    }

    /// Where the entry says that its bytes are, if that is inside the data.
    fn place(&self, Handle { entry, generation }: Handle) -> Option<(u64, u64)> {
        // Relaxed: the pin has acquired what the owner wrote before it made the entry live.
        let offset = self.layout.offset(&self.table, entry).load(Ordering::Relaxed);
        // Acquire pairs with the release of `Owner::place`: what grew is seen with its new bytes.
        let length = self.layout.length(&self.table, entry).load(Ordering::Acquire);
        let offset = words::unpack(About::Offset, entry, generation, offset)?;
        let bytes = words::unpack(About::Length, entry, generation, length)?;
        self.data.range(offset, bytes).map(|_| (offset, bytes))
    }

    /// Pins what `handle` names; if it is being moved, waits for that at most so long.
    ///
    /// # Errors
    /// See [`SharedError`]; nothing is pinned.
    pub fn pin(&self, handle: Handle, patience: Duration) -> Result<Pinned<'_>, SharedError> {
        let mut waiting = Waiting::new(patience);
        loop {
            match self.try_pin(handle) {
                Err(SharedError::Moving) if waiting.again() => {}
                result => return result,
            }
        }
    }

    /// Whether `handle` names something that could be pinned now. Another process may change that at any moment.
    #[must_use]
    pub fn is_live(&self, handle: Handle) -> bool {
        let Handle { entry, generation } = handle;
        self.table.is_here() && entry < self.layout.entries && {
            let word = self.layout.state(&self.table, entry).load(Ordering::Relaxed);
            let lives = |state: State| matches!(state.phase, Phase::Live | Phase::Moving);
            State::from_word(word).is_some_and(|now| now.generation == generation && lives(now))
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !self.table.is_here() {
            return;
        }
        // Guards that were forgotten: nobody can use them any more.
        for entry in 0..*self.touched.get_mut() {
            self.layout.pins(&self.table, self.process, entry).store(0, Ordering::Relaxed);
        }
        // Release pairs with the acquire of `attach`, so that who comes next finds zeros.
        self.layout.identity(&self.table, self.process).store(0, Ordering::Release);
    }
}

impl Pinned<'_> {
    /// How many bytes there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // nothing empty is stored
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Where in the data they are, for as long as the pin is held.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Copies bytes from `at` on. Whatever others do meanwhile, this reads only what was pinned.
    ///
    /// # Errors
    /// [`SharedError::Outside`], [`SharedError::Forked`].
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), SharedError> {
        let end = at.saturating_add(into.len() as u64);
        if end > self.bytes {
            return Err(SharedError::Outside { at, end, bytes: self.bytes });
        }
        if !self.peer.data.is_here() {
            return Err(SharedError::Forked);
        }
        self.peer.data.copy_out(self.offset + at, into);
        Ok(())
    }

    /// All of it, copied.
    ///
    /// # Errors
    /// [`SharedError::Forked`].
    pub fn to_vec(&self) -> Result<Vec<u8>, SharedError> {
        let mut all = vec![0; self.bytes as usize];
        self.read(0, &mut all)?;
        Ok(all)
    }

    /// Where the first byte is in this process, for as long as the pin is held.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        let start = self.peer.data.range(self.offset, self.bytes);
        start.expect("it was inside when it was pinned, and the data never shrinks")
    }

    /// The bytes themselves.
    ///
    /// # Safety
    /// As long as the result is used, the owner and all processes that are attached keep the protocol: nobody writes to
    /// sealed bytes, moves what is pinned, or writes to another process's pins. Nor is it used in a child of a fork.
    #[must_use]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: inside the mapping (`as_ptr` has checked), which the peer keeps; that nobody writes to it is the
        // caller's promise.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.bytes as usize) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let Peer { table, layout, process, .. } = self.peer;
        // In a child of a fork the pin is the parent's.
        if table.is_here() {
            protocol::unpin(layout.pins(table, *process, self.entry));
        }
    }
}
