//! userfaultfd: page faults of a range as messages on a descriptor.
//!
//! A range that is *registered* can be treated by requests: its pages can be protected against writing without
//! splitting its area ([`write_protect`](Userfaultfd::write_protect)), filled from the contents of a file
//! ([`map_resident`](Userfaultfd::map_resident), about ten times cheaper than faults), filled with a copy, or taken
//! from elsewhere without one. A thread that faults meanwhile waits in the kernel until it is woken, and is announced
//! by a message. Messages need not be read for that: a mover that ends with [`wake`](Userfaultfd::wake) needs no
//! thread.
//!
//! Closing the last descriptor ends all registrations, removes protections and wakes all threads. A child of a fork
//! has a descriptor too, until it runs another program or ends; it works on the parent's addresses.
//!
//! Three ways lead to a descriptor, tried in this order: the system call, which `vm.unprivileged_userfaultfd` or
//! `CAP_SYS_PTRACE` allows; the device `/dev/userfaultfd`, for processes that may open it; and the call with
//! `UFFD_USER_MODE_ONLY`, for all processes, where a fault inside a system call does not wait but fails with `EFAULT`.
//!
//! Source: ioctl_userfaultfd(2), userfaultfd(2); what each costs: docs/sources/backing.md#userfaultfd, #r7.

use std::fmt;
use std::ops::BitOr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linux_raw_sys::general::{self as raw, uffdio_range};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};
use rustix::mm::UserfaultfdFlags;

use crate::backend::Va;
use crate::sys;

// The bindings have numbers of requests too, but not of all, and in another type than some C libraries ask for.

/// Returns the number of a request that the kernel answers in its argument, of type `T`.
const fn answered<T>(number: u32) -> Opcode {
    opcode::read_write::<T>(raw::UFFDIO as u8, number as u8)
}

const UFFDIO_API: Opcode = answered::<raw::uffdio_api>(raw::_UFFDIO_API);
const UFFDIO_REGISTER: Opcode = answered::<raw::uffdio_register>(raw::_UFFDIO_REGISTER);
const UFFDIO_COPY: Opcode = answered::<raw::uffdio_copy>(raw::_UFFDIO_COPY);
const UFFDIO_MOVE: Opcode = answered::<raw::uffdio_move>(raw::_UFFDIO_MOVE);
const UFFDIO_CONTINUE: Opcode = answered::<raw::uffdio_continue>(raw::_UFFDIO_CONTINUE);
const UFFDIO_WRITEPROTECT: Opcode = answered::<raw::uffdio_writeprotect>(raw::_UFFDIO_WRITEPROTECT);

/// Returns the number of a request that has only a range, and gets no answer; it is encoded as if answered.
const fn told(number: u32) -> Opcode {
    opcode::read::<uffdio_range>(raw::UFFDIO as u8, number as u8)
}

const UFFDIO_UNREGISTER: Opcode = told(raw::_UFFDIO_UNREGISTER);
const UFFDIO_WAKE: Opcode = told(raw::_UFFDIO_WAKE);

/// `UFFDIO_WRITEPROTECT_MODE_WP`, the mode that protects.
const PROTECT: u64 = 1;

/// Number of times that a request is made again which the kernel could not finish just now.
const ATTEMPTS: u32 = 64;

/// Features of a userfaultfd beyond its first version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u64);

impl Features {
    /// Write protection of private memory.
    pub const WRITE_PROTECT: Features = Features(raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64);
    /// Write protection of files in memory, huge pages included (Linux 5.19).
    pub const WRITE_PROTECT_SHARED: Features =
        Features(raw::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64);
    /// Filling page tables with pages that a file in memory holds (Linux 5.14).
    pub const MINOR_SHARED: Features = Features(raw::UFFD_FEATURE_MINOR_SHMEM as u64);
    /// Moving private pages without a copy (Linux 6.8).
    pub const MOVE: Features = Features(raw::UFFD_FEATURE_MOVE as u64);

    /// Returns the empty set of features.
    #[must_use]
    pub const fn none() -> Features {
        Features(0)
    }

    /// Returns true if all of `others` are among these.
    #[must_use]
    pub const fn has(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns these features without `others`.
    #[must_use]
    pub const fn without(self, others: Features) -> Features {
        Features(self.0 & !others.0)
    }
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, others: Features) -> Features {
        Features(self.0 | others.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Features::WRITE_PROTECT, "write protection"),
            (Features::WRITE_PROTECT_SHARED, "write protection of files in memory"),
            (Features::MINOR_SHARED, "minor faults of files in memory"),
            (Features::MOVE, "move"),
        ];
        let mut first = true;
        for (feature, name) in names {
            if self.has(feature) {
                f.write_str(if first { "" } else { ", " })?;
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("none that is known here") } else { Ok(()) }
    }
}

/// Faults that a registered range reports. At least one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch(u64);

impl Watch {
    /// Touching a page that does not exist.
    pub const MISSING: Watch = Watch(raw::UFFDIO_REGISTER_MODE_MISSING as u64);
    /// Writing to a page that is protected.
    pub const WRITES: Watch = Watch(raw::UFFDIO_REGISTER_MODE_WP as u64);
    /// Touching a page that its file holds but no page table names.
    pub const MINOR: Watch = Watch(raw::UFFDIO_REGISTER_MODE_MINOR as u64);
}

impl BitOr for Watch {
    type Output = Watch;

    fn bitor(self, others: Watch) -> Watch {
        Watch(self.0 | others.0)
    }
}

/// The faults that wait for a userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All faults, including those inside system calls.
    Everywhere,
    /// Faults of programs alone: a system call that writes into a protected range fails with `EFAULT`.
    UserModeOnly,
}

/// Why a userfaultfd was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This process may not have a userfaultfd.
    #[error(
        "userfaultfd is not allowed here ({0}): set vm.unprivileged_userfaultfd to 1, give access to \
         /dev/userfaultfd, or use pins, which need none"
    )]
    NotAllowed(Errno),
    /// The kernel was built without userfaultfd.
    #[error("this kernel has no userfaultfd: use pins, which need none")]
    NotBuilt,
    /// The kernel's userfaultfd lacks some of the features that were asked for.
    #[error("this kernel's userfaultfd lacks: {missing}; use pins, or a newer kernel")]
    Missing { missing: Features },
    /// Another error, such as no room for one more descriptor.
    #[error("userfaultfd: the system refused: {0}")]
    System(Errno),
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> OpenError {
        match error {
            Errno::PERM | Errno::ACCESS => OpenError::NotAllowed(error),
            Errno::NOSYS => OpenError::NotBuilt,
            _ => OpenError::System(error),
        }
    }
}

/// The kinds of requests to a userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Register,
    /// Watch a range no more.
    Unregister,
    /// Protect a range against writing.
    Protect,
    /// Let a range be written.
    Unprotect,
    /// Let the threads go on that wait for a range.
    Wake,
    /// Map the pages of the file behind a range.
    MapResident,
    /// Fill a range with a copy.
    Copy,
    /// Fill a range with pages from elsewhere.
    Move,
    Read,
}

/// A request was not carried out, or only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("userfaultfd: {request:?} failed after {done} bytes: {error}")]
pub struct RequestError {
    pub request: Request,
    /// Bytes from the start of the range that are done.
    pub done: u64,
    pub error: Errno,
}

/// A fault that waits to be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The start of the page that was touched.
    pub at: Va,
    pub kind: FaultKind,
}

/// The reason for which a fault waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A read of a page that does not exist.
    MissingRead,
    /// A write to a page that does not exist.
    MissingWrite,
    Protected,
    /// The page is in its file, but in no page table.
    Minor,
}

/// A descriptor of userfaultfd. It never blocks.
#[derive(Debug)]
pub struct Userfaultfd {
    descriptor: OwnedFd,
    scope: Scope,
}

impl Userfaultfd {
    /// Opens a userfaultfd with all features of `wanted`, with the widest scope that this process may have.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(wanted: Features) -> Result<Userfaultfd, OpenError> {
        let (descriptor, scope) = descriptor()?;
        match agree(descriptor.as_fd(), wanted) {
            Ok(_) => Ok(Userfaultfd { descriptor, scope }),
            // The kernel does not name the missing features, and a descriptor can be asked once.
            Err(Errno::INVAL) => {
                let has = agree(self::descriptor()?.0.as_fd(), Features::none())?;
                Err(match wanted.without(has) {
                    Features(0) => OpenError::System(Errno::INVAL),
                    missing => OpenError::Missing { missing },
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the features of this kernel's userfaultfd.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn features() -> Result<Features, OpenError> {
        Ok(agree(descriptor()?.0.as_fd(), Features::none())?)
    }

    /// Returns the faults that wait for this userfaultfd: all, or those of programs alone.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Watches a range, which is mapped. Only its present areas are watched: later mappings over them are not.
    ///
    /// # Errors
    /// See [`RequestError`]: `BUSY` if another userfaultfd watches it, `INVAL` if nothing is mapped there or the kind
    /// of memory cannot be watched so, `NOMEM` if its area cannot be split.
    pub fn register(&self, at: Va, bytes: u64, watch: Watch) -> Result<(), RequestError> {
        let mut argument =
            raw::uffdio_register { range: range(at, bytes), mode: watch.0, ioctls: 0 };
        self.ask::<UFFDIO_REGISTER, _>(Request::Register, &mut argument)
    }

    /// Ends the watch, removes protections and wakes waiting threads.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn unregister(&self, at: Va, bytes: u64) -> Result<(), RequestError> {
        self.ask::<UFFDIO_UNREGISTER, _>(Request::Unregister, &mut range(at, bytes))
    }

    /// Protects pages against writing: a thread that writes waits. The range is registered for [`Watch::WRITES`].
    ///
    /// # Errors
    /// See [`RequestError`]. Some pages may be protected.
    pub fn write_protect(&self, at: Va, bytes: u64) -> Result<(), RequestError> {
        let mut argument = raw::uffdio_writeprotect { range: range(at, bytes), mode: PROTECT };
        self.ask::<UFFDIO_WRITEPROTECT, _>(Request::Protect, &mut argument)
    }

    /// Lets pages be written again, and wakes threads that wait for that.
    ///
    /// # Errors
    /// See [`RequestError`]. Some pages may still be protected.
    pub fn write_unprotect(&self, at: Va, bytes: u64) -> Result<(), RequestError> {
        let mut argument = raw::uffdio_writeprotect { range: range(at, bytes), mode: 0 };
        self.ask::<UFFDIO_WRITEPROTECT, _>(Request::Unprotect, &mut argument)
    }

    /// Wakes the threads that wait for a range: each tries its access again.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn wake(&self, at: Va, bytes: u64) -> Result<(), RequestError> {
        self.ask::<UFFDIO_WAKE, _>(Request::Wake, &mut range(at, bytes))
    }

    /// Lets page tables name pages that the file behind a range holds already, and wakes threads that wait for that
    /// (`UFFDIO_CONTINUE`). The range is registered for [`Watch::MINOR`].
    ///
    /// # Errors
    /// See [`RequestError`]: `FAULT` if the file holds no such page, `EXIST` if a page table names it already.
    pub fn map_resident(&self, at: Va, bytes: u64) -> Result<(), RequestError> {
        self.piecewise(Request::MapResident, bytes, |done| {
            let rest = range(Va(at.0 + done), bytes - done);
            let mut argument = raw::uffdio_continue { range: rest, mode: 0, mapped: 0 };
            let result = self.request::<UFFDIO_CONTINUE, _>(&mut argument);
            (result, argument.mapped)
        })
    }

    /// Fills missing pages with a copy of the bytes at `from`, and wakes threads that wait for them.
    ///
    /// # Errors
    /// See [`RequestError`].
    ///
    /// # Safety
    /// The range at `to` belongs to the caller, and its missing pages are not relied on to read as zero.
    pub unsafe fn copy(&self, to: Va, from: Va, bytes: u64) -> Result<(), RequestError> {
        self.piecewise(Request::Copy, bytes, |done| {
            let (dst, src) = (to.0 + done, from.0 + done);
            let mut argument = raw::uffdio_copy { dst, src, len: bytes - done, mode: 0, copy: 0 };
            let result = self.request::<UFFDIO_COPY, _>(&mut argument);
            (result, argument.copy)
        })
    }

    /// Moves the private pages at `from` to the missing ones at `to`, without a copy. `from` is empty then.
    ///
    /// # Errors
    /// See [`RequestError`]: `BUSY` for a page that another process shares since a fork. A page to which the kernel
    /// holds a reference, through a pipe for example, moves all the same: only pins tell of such users.
    ///
    /// # Safety
    /// Both ranges belong to the caller, and no one relies on the contents of `from` staying there, or on the missing
    /// pages of `to` reading as zero.
    pub unsafe fn move_pages(&self, to: Va, from: Va, bytes: u64) -> Result<(), RequestError> {
        self.piecewise(Request::Move, bytes, |done| {
            let (dst, src) = (to.0 + done, from.0 + done);
            let mut argument = raw::uffdio_move { dst, src, len: bytes - done, mode: 0, move_: 0 };
            let result = self.request::<UFFDIO_MOVE, _>(&mut argument);
            (result, argument.move_)
        })
    }

    /// Reads all messages, and returns their number. Messages of other kinds than faults are passed over.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn read(&self, mut each: impl FnMut(Fault)) -> Result<u64, RequestError> {
        const MESSAGE: usize = size_of::<raw::uffd_msg>();
        let mut messages = 0;
        loop {
            let mut buffer = [0; 16 * MESSAGE];
            let read = match sys::userfaultfd_read(self.descriptor.as_fd(), &mut buffer) {
                Ok(read) => read,
                Err(Errno::AGAIN) => return Ok(messages),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(RequestError { request: Request::Read, done: 0, error }),
            };
            let (whole, _) = buffer[..read].as_chunks::<MESSAGE>();
            whole.iter().filter_map(fault).for_each(&mut each);
            messages += whole.len() as u64;
            if whole.len() < 16 {
                return Ok(messages);
            }
        }
    }

    /// Throws all messages away, and returns their number.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn drain(&self) -> Result<u64, RequestError> {
        self.read(drop)
    }

    fn request<const REQUEST: Opcode, T>(&self, argument: &mut T) -> Result<(), Errno> {
        // SAFETY: each caller names a request with its own argument; those that change contents are unsafe
        // themselves, and so pass the promise on. All others at most let a thread wait.
        unsafe { sys::userfaultfd_request::<REQUEST, T>(self.descriptor.as_fd(), argument) }
    }

    /// Makes a request that is carried out as a whole. It is made again after an interruption, and when the kernel
    /// could not carry it out just now because a mapping of the process changed meanwhile.
    fn ask<const REQUEST: Opcode, T>(
        &self,
        request: Request,
        argument: &mut T,
    ) -> Result<(), RequestError> {
        let mut attempts = 0;
        loop {
            match self.request::<REQUEST, T>(argument) {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS => attempts += 1,
                Err(error) => return Err(RequestError { request, done: 0, error }),
            }
        }
    }

    /// Makes a request that may stop part-way, and then again for the rest. `each` makes it once: it gets the number of
    /// bytes that are done, and returns the kernel's result and the bytes that were done now.
    fn piecewise(
        &self,
        request: Request,
        bytes: u64,
        mut each: impl FnMut(u64) -> (Result<(), Errno>, i64),
    ) -> Result<(), RequestError> {
        let (mut done, mut attempts) = (0, 0);
        loop {
            let (result, now) = each(done);
            // The answer is valid only together with success, or with `AGAIN`; if negative, it is an error again.
            match result {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) if now > 0 && done + (now as u64) < bytes => done += now as u64,
                Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS => attempts += 1,
                Err(error) => return Err(RequestError { request, done, error }),
            }
        }
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn range(at: Va, bytes: u64) -> uffdio_range {
    uffdio_range { start: at.0, len: bytes }
}

/// Makes a descriptor with the widest scope that may be had.
fn descriptor() -> Result<(OwnedFd, Scope), OpenError> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    let why = match sys::userfaultfd(flags) {
        Ok(descriptor) => return Ok((descriptor, Scope::Everywhere)),
        Err(Errno::PERM) => Errno::PERM,
        Err(error) => return Err(error.into()),
    };
    if let Ok(descriptor) = sys::userfaultfd_of_device(flags) {
        return Ok((descriptor, Scope::Everywhere));
    }
    let user = UserfaultfdFlags::from_bits_retain(raw::UFFD_USER_MODE_ONLY);
    match sys::userfaultfd(flags | user) {
        Ok(descriptor) => Ok((descriptor, Scope::UserModeOnly)),
        Err(_) => Err(why.into()),
    }
}

/// Agrees on features with the kernel, and returns all that the kernel has.
fn agree(descriptor: BorrowedFd<'_>, wanted: Features) -> Result<Features, Errno> {
    let mut api = raw::uffdio_api { api: raw::UFFD_API.into(), features: wanted.0, ioctls: 0 };
    // SAFETY: the argument of `UFFDIO_API` is a `uffdio_api`, and the request changes no memory.
    unsafe { sys::userfaultfd_request::<UFFDIO_API, _>(descriptor, &mut api) }?;
    Ok(Features(api.features))
}

/// Returns the fault that a message announces; `None` for a message of another kind.
fn fault(message: &[u8; size_of::<raw::uffd_msg>()]) -> Option<Fault> {
    // Event, then after seven unused bytes the flags and the address.
    let word = |at: usize| {
        let bytes = message[at..at + 8].try_into().expect("a word has eight bytes");
        u64::from_ne_bytes(bytes)
    };
    if u32::from(message[0]) != raw::UFFD_EVENT_PAGEFAULT {
        return None;
    }
    let (flags, at) = (word(8), Va(word(16)));
    let is = |flag: u32| flags & u64::from(flag) != 0;
    let kind = if is(raw::UFFD_PAGEFAULT_FLAG_WP) {
        FaultKind::Protected
    } else if is(raw::UFFD_PAGEFAULT_FLAG_MINOR) {
        FaultKind::Minor
    } else if is(raw::UFFD_PAGEFAULT_FLAG_WRITE) {
        FaultKind::MissingWrite
    } else {
        FaultKind::MissingRead
    };
    Some(Fault { at, kind })
}
