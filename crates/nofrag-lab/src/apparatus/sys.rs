//! The system calls on memory that are measured here. They are counted, and can be made to fail, like those of the
//! library ([`faults`](nofrag_backing::faults)).
//!
//! Nothing is checked: each caller states why the range is its own.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;

use nofrag_backing::faults::{Call, before};
use nofrag_backing::reservation::Reservation;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;

/// The advice to put huge pages behind a range now, which `libc` does not name for every C library.
pub(super) const MADV_COLLAPSE: i32 = 25;

/// Returns the first byte of a reservation.
pub(super) fn base(memory: &Reservation) -> *mut c_void {
    ptr::with_exposed_provenance_mut(memory.start() as usize)
}

/// Makes a mapping without a file.
///
/// # Safety
/// With `MAP_FIXED`, the old contents of the range are replaced: it must belong to the caller, and must not be in use.
pub(super) unsafe fn mmap_anonymous(
    at: *mut c_void,
    bytes: usize,
    allowed: ProtFlags,
    flags: MapFlags,
) -> Result<*mut c_void, Errno> {
    before(Call::Mmap)?;
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::mmap_anonymous(at, bytes, allowed, flags) }
}

/// Maps a file from byte `from` on over a range, readable and writable, without memory of its own.
///
/// # Safety
/// The range belongs to the caller, and is not in use.
pub(super) unsafe fn show(
    at: *mut c_void,
    bytes: usize,
    file: BorrowedFd<'_>,
    from: u64,
) -> Result<(), Errno> {
    before(Call::Mmap)?;
    let allowed = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::mmap(at, bytes, allowed, flags, file, from) }.map(|_| ())
}

/// Removes a mapping.
///
/// # Safety
/// The range belongs to the caller, and is not in use.
pub(super) unsafe fn munmap(at: *mut c_void, bytes: usize) -> Result<(), Errno> {
    before(Call::Munmap)?;
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::munmap(at, bytes) }
}

/// Gives advice, by number: `rustix` does not know all.
///
/// # Safety
/// The range belongs to the caller; where the advice loses contents, these are not relied on.
pub(super) unsafe fn madvise(at: *mut c_void, bytes: usize, advice: i32) -> io::Result<()> {
    before(Call::Madvise)?;
    // SAFETY: the caller's promise.
    match unsafe { libc::madvise(at, bytes, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a file in memory of `bytes` bytes.
pub(super) fn memory_file(name: &CStr, bytes: u64) -> Result<OwnedFd, Errno> {
    before(Call::MemfdCreate)?;
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    before(Call::Ftruncate)?;
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file)
}

/// Gives memory to, or takes it from, a range of a file.
pub(super) fn fallocate(
    file: BorrowedFd<'_>,
    flags: FallocateFlags,
    offset: u64,
    bytes: u64,
) -> Result<(), Errno> {
    before(Call::Fallocate)?;
    rustix::fs::fallocate(file, flags, offset, bytes)
}
