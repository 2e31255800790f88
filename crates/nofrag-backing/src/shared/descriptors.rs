//! Files in memory that are shared: how they are made, and how their descriptors reach another process.

use std::ffi::CStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::error::{SharedError, to};
use crate::sys;

/// What a process needs to take part: the file with the table, and the one with the data.
///
/// It is passed over a unix socket ([`send`](Self::send), [`receive`](Self::receive)), or inherited.
#[derive(Debug)]
pub struct Invitation {
    pub(crate) table: OwnedFd,
    pub(crate) data: OwnedFd,
}

/// What a process needs to become the owner once the owner has died.
///
/// It gives the right to write to the data, so the descriptors cannot be taken out of it.
#[derive(Debug)]
pub struct Succession(pub(crate) Invitation);

/// Come with the descriptors, so that nobody takes another program's for ours, or the one kind for the other.
const INVITATION: &[u8; 8] = b"nofragI1";
const SUCCESSION: &[u8; 8] = b"nofragS1";

impl Succession {
    /// Passes it over a unix socket to whoever calls [`receive`](Self::receive) there.
    ///
    /// # Errors
    /// [`SharedError::System`].
    pub fn send(&self, socket: impl AsFd) -> Result<(), SharedError> {
        send(&self.0, socket.as_fd(), SUCCESSION)
    }

    /// Takes one from a unix socket; waits for it if the socket does.
    ///
    /// # Errors
    /// [`SharedError::System`]; [`SharedError::NotATable`] if something else came.
    pub fn receive(socket: impl AsFd) -> Result<Succession, SharedError> {
        receive(socket.as_fd(), SUCCESSION).map(Succession)
    }
}

impl Invitation {
    /// From descriptors that came some other way.
    #[must_use]
    pub fn from_descriptors(table: OwnedFd, data: OwnedFd) -> Invitation {
        Invitation { table, data }
    }

    /// The descriptors of the table and of the data.
    #[must_use]
    pub fn into_descriptors(self) -> (OwnedFd, OwnedFd) {
        (self.table, self.data)
    }

    /// Passes it over a unix socket to whoever calls [`receive`](Self::receive) there.
    ///
    /// # Errors
    /// [`SharedError::System`].
    pub fn send(&self, socket: impl AsFd) -> Result<(), SharedError> {
        send(self, socket.as_fd(), INVITATION)
    }

    /// Takes one from a unix socket; waits for it if the socket does.
    ///
    /// # Errors
    /// [`SharedError::System`]; [`SharedError::NotATable`] if something else came.
    pub fn receive(socket: impl AsFd) -> Result<Invitation, SharedError> {
        receive(socket.as_fd(), INVITATION)
    }
}

fn send(files: &Invitation, socket: BorrowedFd<'_>, greeting: &[u8]) -> Result<(), SharedError> {
    let descriptors = [files.table.as_fd(), files.data.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let fits = message.push(SendAncillaryMessage::ScmRights(&descriptors));
    assert!(fits, "the space was made for two descriptors");
    loop {
        // Eight bytes go as a whole or not at all.
        match sys::sendmsg(socket, &[IoSlice::new(greeting)], &mut message, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(to("pass descriptors over the socket")),
        }
    }
}

fn receive(socket: BorrowedFd<'_>, greeting: &[u8; 8]) -> Result<Invitation, SharedError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut came = [0; 8];
    let received = loop {
        let mut into = [IoSliceMut::new(&mut came)];
        match sys::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received.map_err(to("take descriptors from the socket"))?,
        }
    };
    let whole = received.bytes == came.len() && !received.flags.contains(ReturnFlags::CTRUNC);
    let mut descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    match (descriptors.next(), descriptors.next()) {
        (Some(table), Some(data)) if whole && &came == greeting => Ok(Invitation { table, data }),
        _ => Err(SharedError::NotATable),
    }
}

/// A file of so many bytes in memory that will never have fewer or more. Only this user may open it again.
pub(crate) fn sealed_file(name: &CStr, bytes: u64) -> Result<OwnedFd, SharedError> {
    let file = sys::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(to("make a file in memory"))?;
    sys::ftruncate(file.as_fd(), bytes).map_err(to("give a file in memory its size"))?;
    sys::chmod(file.as_fd(), Mode::RUSR | Mode::WUSR).map_err(to("restrict a file in memory"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    sys::seal(file.as_fd(), seals).map_err(to("seal a file in memory"))?;
    Ok(file)
}

/// How a file is opened once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopen {
    /// So that it can only be read.
    Read,
    /// As it was.
    Write,
}

/// The same file behind a descriptor of its own: what is locked through one is not locked through the other, and one
/// that can only be read gives no right to write.
pub(crate) fn reopened(file: BorrowedFd<'_>, how: Reopen) -> Result<OwnedFd, SharedError> {
    let access = match how {
        Reopen::Read => OFlags::RDONLY,
        Reopen::Write => OFlags::RDWR,
    };
    sys::reopen(file, access | OFlags::CLOEXEC).map_err(to("open a file in memory once more"))
}

/// What it means that the lock of the data cannot be had.
pub(crate) fn locked(error: Errno) -> SharedError {
    match error {
        Errno::WOULDBLOCK => SharedError::OwnerLives,
        error => to("lock a file in memory")(error),
    }
}
