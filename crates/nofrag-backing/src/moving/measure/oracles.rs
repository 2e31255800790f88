//! Properties of the kernel that moves rely on, or must not rely on.

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::pipe::{IoSliceRaw, SpliceFlags};

use super::{MeasureError, Times, nanos};
use crate::backend::Va;
use crate::moving::live::{Access, LiveFile, Reach};
use crate::moving::mover::{Method, Mover};
use crate::moving::userfaultfd::{Features, RequestError, Userfaultfd, Watch};
use crate::sys::{self, PAGE};

const BYTES: usize = 1 << PAGE;

/// Times to fill the page tables of a run whose pages are in their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    pub pages: u64,
    /// With one request to a userfaultfd.
    pub by_request: Times,
    pub by_populate: Times,
}

/// Fills the page tables of `pages` pages by a request to a userfaultfd and by `MADV_POPULATE_WRITE`, in turns.
/// Source: docs/sources/backing.md#oracle-10, #r7.
///
/// # Errors
/// See [`MeasureError`].
pub fn filling(pages: u64, rounds: u64) -> Result<Filling, MeasureError> {
    let file = LiveFile::new(pages)?;
    let watched = file.map(0, pages, Access::Direct, Reach::Processors)?;
    let plain = file.map(0, pages, Access::Direct, Reach::Processors)?;
    let bytes = pages << PAGE;
    let descriptor = Userfaultfd::open(Features::MINOR_SHARED)?;
    let advise = |at: *mut c_void, advice| {
        // SAFETY: the range is one of the two areas; neither advice changes the contents of a file in memory.
        unsafe { sys::madvise(at, bytes as usize, advice) }
    };
    advise(plain.page(0), libc::MADV_POPULATE_WRITE)?;
    descriptor.register(watched.start(), bytes, Watch::MINOR)?;
    let (mut by_request, mut by_populate) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        advise(watched.page(0), libc::MADV_DONTNEED)?;
        let start = Instant::now();
        descriptor.map_resident(watched.start(), bytes)?;
        by_request.push(nanos(start));
        advise(plain.page(0), libc::MADV_DONTNEED)?;
        let start = Instant::now();
        advise(plain.page(0), libc::MADV_POPULATE_WRITE)?;
        by_populate.push(nanos(start));
    }
    let times = |mut samples: Vec<u32>| Times::of(&mut samples);
    Ok(Filling { pages, by_request: times(by_request), by_populate: times(by_populate) })
}

/// Outcome of moves, without copy, of a private page to which another reference exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPage {
    /// Outcome for a page that a child shares since a fork.
    pub with_child: Result<(), Errno>,
    /// Outcome for a page to which a pipe holds a reference.
    pub with_pipe: Result<(), Errno>,
}

/// Tries to move, without a copy, a private page that a child shares and one to which a pipe refers. Forks this process
/// once.
/// Source: docs/sources/backing.md#oracle-4, #unseen-references.
///
/// # Errors
/// See [`MeasureError`].
pub fn shared_page() -> Result<SharedPage, MeasureError> {
    let descriptor = Userfaultfd::open(Features::MOVE)?;
    let pages = Private::new(3)?;
    let (first, second, target) = (pages.page(0), pages.page(1), pages.page(2));
    pages.write(0, 1);
    pages.write(1, 2);
    descriptor.register(va(target), BYTES as u64, Watch::MISSING)?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let refer = || descriptor_moves(&descriptor, target, second);
    let with_pipe = match splice(&writer, second) {
        Ok(()) => refer(),
        Err(error) => return Err(error.into()),
    };
    drop((reader, writer));
    descriptor.unregister(va(target), BYTES as u64)?;
    // SAFETY: the page is ours and its contents are no longer wanted.
    unsafe { sys::madvise(target, BYTES, libc::MADV_DONTNEED) }?;
    descriptor.register(va(target), BYTES as u64, Watch::MISSING)?;
    let with_child = while_a_child_lives(|| descriptor_moves(&descriptor, target, first))?;
    Ok(SharedPage { with_child, with_pipe })
}

fn descriptor_moves(
    descriptor: &Userfaultfd,
    to: *mut c_void,
    from: *mut c_void,
) -> Result<(), Errno> {
    // SAFETY: both pages are the caller's own, and their contents are relied on by no one.
    let moved = unsafe { descriptor.move_pages(va(to), va(from), BYTES as u64) };
    moved.map_err(|RequestError { error, .. }| error)
}

/// Calls `act` while a child of this process, which does nothing, shares all private memory.
fn while_a_child_lives<T>(act: impl FnOnce() -> T) -> Result<T, Errno> {
    // SAFETY: the child calls only what may be called after a fork of a process with threads: `pause` and `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(sys::last_error()),
        0 => loop {
            // SAFETY: `pause` may be called after a fork.
            unsafe { libc::pause() };
        },
        child => {
            let result = act();
            // SAFETY: the child was made above and is waited for below, so its number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: it waits for our own child and writes nothing.
            unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
            Ok(result)
        }
    }
}

/// The values that references to a page of a file read after it moved and was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct References {
    /// Value written before the move.
    pub old: u64,
    pub new: u64,
    /// Value read in the area that moved.
    pub area: u64,
    /// Value read from a pipe that got the page by reference before the move.
    pub pipe: u64,
    /// Value read in another area that showed the same page.
    pub other_area: u64,
}

/// Moves a page to which other references exist.
/// Source: docs/sources/backing.md#oracle-5.
///
/// # Errors
/// See [`MeasureError`].
pub fn references_after_a_move(method: Method) -> Result<References, MeasureError> {
    let (old, new) = (0x01d, 0x2e3);
    let access = if let Method::Pins(_) = method { Access::Pinned } else { Access::Direct };
    let file = LiveFile::new(2)?;
    let area = file.map(0, 1, access, Reach::Processors)?;
    let other = file.map(0, 1, Access::Direct, Reach::Processors)?;
    let other = &other.words().expect("it may be used without pins")[0];
    other.store(old, Ordering::Relaxed);
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    splice(&writer, area.page(0))?;
    Mover::new().move_run(&area, 0..1, 1, method)?;
    let words = area.pin().expect("no pin is held");
    words[0].store(new, Ordering::Relaxed);
    let mut held = [0; 8];
    rustix::io::read(&reader, &mut held)?;
    Ok(References {
        old,
        new,
        area: words[0].load(Ordering::Relaxed),
        pipe: u64::from_ne_bytes(held),
        other_area: other.load(Ordering::Relaxed),
    })
}

/// Puts a page into a pipe by reference.
fn splice(writer: &OwnedFd, page: *mut c_void) -> Result<(), Errno> {
    // SAFETY: the page is mapped by the caller as long as it uses the pipe, and may be read.
    let slice = unsafe { IoSliceRaw::from_slice(std::slice::from_raw_parts(page.cast(), BYTES)) };
    // SAFETY: the descriptor is the end of a pipe that is written, so the memory is only read.
    let put = unsafe { rustix::pipe::vmsplice(writer.as_fd(), &[slice], SpliceFlags::empty()) }?;
    if put == BYTES { Ok(()) } else { Err(Errno::AGAIN) }
}

fn va(at: *mut c_void) -> Va {
    Va(at.addr() as u64)
}

struct Private {
    at: *mut c_void,
    pages: usize,
}

impl Private {
    fn new(pages: usize) -> Result<Private, Errno> {
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let at = unsafe {
            sys::mmap_anonymous(ptr::null_mut(), pages * BYTES, allowed, MapFlags::PRIVATE)
        }?;
        let private = Private { at, pages };
        // A huge page would be split, and is no matter here. A kernel without them refuses the advice.
        // SAFETY: the range is ours, and the advice changes no content.
        let _ = unsafe { sys::madvise(at, pages * BYTES, libc::MADV_NOHUGEPAGE) };
        Ok(private)
    }

    fn page(&self, page: usize) -> *mut c_void {
        assert!(page < self.pages, "a page of ours");
        self.at.wrapping_byte_add(page * BYTES)
    }

    fn write(&self, page: usize, value: u64) {
        // SAFETY: the page is ours, can be written, and no reference to it exists.
        unsafe { self.page(page).cast::<u64>().write_volatile(value) };
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and is no longer used.
        let _ = unsafe { sys::munmap(self.at, self.pages * BYTES) };
    }
}
