//! Every system call on memory that this crate makes, in one place: so each is counted, and any can be made to fail
//! ([`faults`](crate::faults)).
//!
//! Nothing is checked here: each caller states why the range is its own.

use std::ffi::{CStr, c_void};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, Stat};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, opcode};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, UserfaultfdFlags};

use crate::faults::{Call, before};

/// Bytes of a page, as a shift. Checked once, where the first mapping is made.
pub(crate) const PAGE: u32 = 12;

/// The advice to put huge pages behind a range now. `libc` does not name it for musl, which static programs are linked
/// with.
pub(crate) const MADV_COLLAPSE: i32 = linux_raw_sys::general::MADV_COLLAPSE as i32;

/// Makes a mapping without a file.
///
/// # Safety
/// With `MAP_FIXED`, the old contents of the range are replaced: it must belong to the caller, and must not be in use.
pub(crate) unsafe fn mmap_anonymous(
    at: *mut c_void,
    bytes: usize,
    allowed: ProtFlags,
    flags: MapFlags,
) -> Result<*mut c_void, Errno> {
    before(Call::Mmap)?;
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::mmap_anonymous(at, bytes, allowed, flags) }
}

/// Makes a mapping of a file.
///
/// # Safety
/// Those of [`mmap_anonymous`].
pub(crate) unsafe fn mmap(
    at: *mut c_void,
    bytes: usize,
    allowed: ProtFlags,
    flags: MapFlags,
    file: BorrowedFd<'_>,
    offset: u64,
) -> Result<*mut c_void, Errno> {
    before(Call::Mmap)?;
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::mmap(at, bytes, allowed, flags, file, offset) }
}

/// Removes a mapping.
///
/// # Safety
/// The range belongs to the caller, and is not in use.
pub(crate) unsafe fn munmap(at: *mut c_void, bytes: usize) -> Result<(), Errno> {
    before(Call::Munmap)?;
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::munmap(at, bytes) }
}

/// Changes the access that a range allows.
///
/// # Safety
/// The range belongs to the caller, and access that is lost is not relied on.
pub(crate) unsafe fn mprotect(
    at: *mut c_void,
    bytes: usize,
    allowed: MprotectFlags,
) -> Result<(), Errno> {
    before(Call::Mprotect)?;
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::mprotect(at, bytes, allowed) }
}

/// Gives advice, by number: `rustix` does not know all.
///
/// # Safety
/// The range belongs to the caller; where the advice loses contents, these are not relied on.
pub(crate) unsafe fn madvise(at: *mut c_void, bytes: usize, advice: i32) -> Result<(), Errno> {
    before(Call::Madvise)?;
    // SAFETY: the caller's promise.
    match unsafe { libc::madvise(at, bytes, advice) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// `PIDFD_SELF_THREAD_GROUP` of Linux 6.14: this process, and in a child of it the child.
const OURSELVES: i32 = -10_001;

/// Gives this process the same advice for many ranges; returns for how many bytes, from the first on, it was taken.
///
/// # Safety
/// Those of [`madvise`], for each range.
pub(crate) unsafe fn process_madvise(ranges: &[libc::iovec], advice: i32) -> Result<usize, Errno> {
    before(Call::ProcessMadvise)?;
    let (call, count) = (libc::SYS_process_madvise, ranges.len());
    // SAFETY: the caller's promise; the vector is only read, and lives until the call returns.
    let taken = unsafe { libc::syscall(call, OURSELVES, ranges.as_ptr(), count, advice, 0) };
    usize::try_from(taken).map_err(|_| last_error())
}

/// Makes a file in memory.
pub(crate) fn memfd_create(name: &CStr, flags: MemfdFlags) -> Result<OwnedFd, Errno> {
    before(Call::MemfdCreate)?;
    rustix::fs::memfd_create(name, flags)
}

/// Sets the size of a file.
pub(crate) fn ftruncate(file: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    before(Call::Ftruncate)?;
    rustix::fs::ftruncate(file, bytes)
}

/// Gives memory to, or takes it from, a range of a file.
pub(crate) fn fallocate(
    file: BorrowedFd<'_>,
    flags: FallocateFlags,
    offset: u64,
    bytes: u64,
) -> Result<(), Errno> {
    before(Call::Fallocate)?;
    rustix::fs::fallocate(file, flags, offset, bytes)
}

/// Forbids operations on a file for good.
pub(crate) fn seal(file: BorrowedFd<'_>, seals: SealFlags) -> Result<(), Errno> {
    before(Call::Seal)?;
    rustix::fs::fcntl_add_seals(file, seals)
}

/// Makes a userfaultfd by system call.
pub(crate) fn userfaultfd(flags: UserfaultfdFlags) -> Result<OwnedFd, Errno> {
    before(Call::Userfaultfd)?;
    // SAFETY: by itself it watches nothing; each request to it has its own argument.
    unsafe { rustix::mm::userfaultfd(flags) }
}

/// The request `USERFAULTFD_IOC_NEW`, which takes flags and returns a descriptor.
struct NewUserfaultfd(UserfaultfdFlags);

// SAFETY: the request takes an integer where others take a pointer, writes nothing, and returns a descriptor of the
// caller's own.
unsafe impl Ioctl for NewUserfaultfd {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::none(0xaa, 0)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0.bits() as usize)
    }

    /// # Safety
    /// The number is what this request returned.
    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<OwnedFd, Errno> {
        // SAFETY: the kernel made this descriptor for this request, so no one else closes it.
        Ok(unsafe { OwnedFd::from_raw_fd(output) })
    }
}

/// Makes a userfaultfd from its device, which needs no privilege but access to the device.
pub(crate) fn userfaultfd_of_device(flags: UserfaultfdFlags) -> Result<OwnedFd, Errno> {
    before(Call::Userfaultfd)?;
    let mode = rustix::fs::Mode::empty();
    let open = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let device = rustix::fs::open(c"/dev/userfaultfd", open, mode)?;
    // SAFETY: the request takes flags and returns a descriptor, as `NewUserfaultfd` says.
    unsafe { rustix::ioctl::ioctl(device, NewUserfaultfd(flags)) }
}

/// Makes a request to a userfaultfd.
///
/// # Safety
/// The argument of `REQUEST` is a `T`. Where the request changes memory, as COPY and MOVE do, the range belongs to the
/// caller.
pub(crate) unsafe fn userfaultfd_request<const REQUEST: Opcode, T>(
    descriptor: BorrowedFd<'_>,
    argument: &mut T,
) -> Result<(), Errno> {
    before(Call::UserfaultfdRequest)?;
    // SAFETY: the caller's promise.
    let request = unsafe { Updater::<REQUEST, T>::new(argument) };
    // SAFETY: the caller's promise.
    unsafe { rustix::ioctl::ioctl(descriptor, request) }
}

/// Reads messages of a userfaultfd.
pub(crate) fn userfaultfd_read(
    descriptor: BorrowedFd<'_>,
    messages: &mut [u8],
) -> Result<usize, Errno> {
    before(Call::UserfaultfdRequest)?;
    rustix::io::read(descriptor, messages)
}

/// Returns the state of a file.
pub(crate) fn stat(file: BorrowedFd<'_>) -> Result<Stat, Errno> {
    before(Call::Stat)?;
    rustix::fs::fstat(file)
}

/// Returns the last error of the C library.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
