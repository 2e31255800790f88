//! The page frames of a machine of which the rest is simulated.
//!
//! The simulation of a machine hands out frames by number. Here is real memory behind the numbers: a file in memory of
//! as many pages, all of them resident from the beginning, so that later measurements do not include the kernel's
//! search for memory. Contents are written, read and moved through a mapping of all of it, as a kernel does through its
//! own. A process sees frames through a *window*: there they are mapped piece by piece, which costs as much as a page
//! fault here (a mapping, the fault of its first touch, and zeroing).
//!
//! Where the kernel can, each block of 2 MiB is one huge page of the file ([`MADV_COLLAPSE`]), so that a block that is
//! mapped whole takes one entry of the page table, as with real huge pages.
//!
//! [`MADV_COLLAPSE`]: https://man7.org/linux/man-pages/man2/madvise.2.html

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use nofrag::mmap::Protection;
use nofrag_backing::reservation::Reservation;
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::sys::{self, PAGE};

/// Pages of a unit, as many as a huge page has.
pub(crate) const UNIT_PAGES: usize = 512;

const UNIT: usize = UNIT_PAGES * PAGE;
const WORDS: usize = PAGE / size_of::<u64>();

/// The page frames of the machine, and a window of one unit (2 MiB) on them.
///
/// 1. `all` is as long as the file and maps it from its first byte on, readable and writable, while this lives.
/// 2. `window` has a whole unit from `first` on; pages of it for which `shown` has a frame are mapped, readable and
///    writable, and all others are not touched.
#[derive(Debug)]
pub(crate) struct MachineMemory {
    all: Reservation,
    window: Reservation,
    file: OwnedFd,
    frames: u64,
    first: usize,
    shown: Box<[Option<u64>; UNIT_PAGES]>,
    huge_units: u64,
}

impl MachineMemory {
    /// Makes `frames` frames, a multiple of [`UNIT_PAGES`], all resident. Their contents are zero.
    ///
    /// # Errors
    /// `InvalidInput` for a number that is not such a multiple; else errors of the system calls: `ENOMEM` and `ENOSPC`
    /// if there is not enough memory.
    pub(crate) fn new(frames: u64) -> io::Result<MachineMemory> {
        let bytes = usize::try_from(frames).ok().and_then(|frames| frames.checked_mul(PAGE));
        let bytes = bytes.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(UNIT));
        let Some(bytes) = bytes else {
            let why = format!("{frames} frames are no multiple of {UNIT_PAGES}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let file = sys::memory_file(c"nofrag-frames", bytes as u64)?;
        sys::fallocate(file.as_fd(), FallocateFlags::empty(), 0, bytes as u64)?;
        let all = Reservation::new(bytes, Protection(0))?;
        show(&all, 0, &file, 0, bytes)?;
        let window = Reservation::new(2 * UNIT, Protection(0))?;
        let start = window.start() as usize;
        let first = start.next_multiple_of(UNIT) - start;
        let shown = Box::new([None; UNIT_PAGES]);
        let huge_units = 0;
        let mut made = MachineMemory { all, window, file, frames, first, shown, huge_units };
        made.huge_units = made.collapse();
        Ok(made)
    }

    /// Returns the number of frames.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the number of units of which the kernel made huge pages; zero where it cannot.
    pub(crate) fn huge_units(&self) -> u64 {
        self.huge_units
    }

    /// Asks for huge pages, unit by unit, until the kernel has none; returns the number of units that have one.
    fn collapse(&self) -> u64 {
        let units = self.frames / UNIT_PAGES as u64;
        let collapsed = |unit: &u64| {
            let at = sys::base(&self.all).wrapping_byte_add(*unit as usize * UNIT);
            // SAFETY: the unit lies in `all` (law 1), which is ours, and the advice keeps contents.
            unsafe { sys::madvise(at, UNIT, sys::MADV_COLLAPSE) }.is_ok()
        };
        (0..units).take_while(collapsed).count() as u64
    }

    /// Returns the address of a frame in `all`.
    ///
    /// # Panics
    /// If there is no such frame; so do the other methods.
    fn at(&self, frame: u64) -> *mut u64 {
        assert!(frame < self.frames, "frame {frame} of {}", self.frames);
        sys::base(&self.all).wrapping_byte_add(frame as usize * PAGE).cast()
    }

    /// Writes all of a frame: words that follow from `stamp`.
    pub(crate) fn fill(&mut self, frame: u64, stamp: u64) {
        let at = self.at(frame);
        for word in 0..WORDS {
            // SAFETY: inside the frame, which `all` maps writable (law 1, `at` has checked); no reference to it exists.
            unsafe { at.add(word).write(stamp ^ word as u64) };
        }
    }

    /// Reads all of a frame; returns true if the contents are those that `fill` wrote with this stamp.
    pub(crate) fn holds(&self, frame: u64, stamp: u64) -> bool {
        let at = self.at(frame);
        let mut differing = 0;
        for word in 0..WORDS {
            // SAFETY: inside the frame, which `all` maps readable (law 1, `at` has checked); no one writes to it
            // meanwhile, since that takes `&mut self`.
            differing |= unsafe { at.add(word).read() } ^ stamp ^ word as u64;
        }
        differing == 0
    }

    /// Moves a frame's contents to another one. A page of the window that showed them shows them there from now on.
    ///
    /// # Errors
    /// Errors of `mmap`; then the window does not show that page any more.
    ///
    /// # Panics
    /// If both frames are the same.
    pub(crate) fn relocate(&mut self, from: u64, to: u64) -> io::Result<()> {
        assert_ne!(from, to, "a frame's contents move to another one");
        let (old, new) = (self.at(from), self.at(to));
        // SAFETY: two frames, both mapped (law 1, `at` has checked), that differ and so do not overlap.
        unsafe { ptr::copy_nonoverlapping(old, new, WORDS) };
        let Some(page) = self.shown.iter().position(|shown| *shown == Some(from)) else {
            return Ok(());
        };
        // One call: between an unmapping and a mapping an access would fail.
        self.shown[page] = None;
        show(&self.window, self.first + page * PAGE, &self.file, to * PAGE as u64, PAGE)?;
        self.shown[page] = Some(to);
        Ok(())
    }

    /// Acts as a fault: maps `pages` frames from `frame` on at page `at` of the window, and zeroes them there.
    ///
    /// # Errors
    /// `InvalidInput` for pages outside of the window or frames that do not exist; else errors of `mmap`, and then the
    /// window does not show these pages any more.
    pub(crate) fn fault(&mut self, at: usize, frame: u64, pages: usize) -> io::Result<()> {
        let fits = at.checked_add(pages).is_some_and(|end| end <= UNIT_PAGES);
        let exist = frame.checked_add(pages as u64).is_some_and(|end| end <= self.frames);
        if !fits || !exist || pages == 0 {
            let why = format!("{pages} frames from {frame} on at page {at} of the window");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let offset = self.first + at * PAGE;
        // A call that fails may have removed the old mappings.
        self.shown[at..at + pages].fill(None);
        show(&self.window, offset, &self.file, frame * PAGE as u64, pages * PAGE)?;
        for page in 0..pages {
            self.shown[at + page] = Some(frame + page as u64);
        }
        let start = sys::base(&self.window).wrapping_byte_add(offset).cast::<u8>();
        // SAFETY: these pages of the window have just been mapped, writable; no reference to them exists.
        unsafe { start.write_bytes(0, pages * PAGE) };
        Ok(())
    }

    /// Writes all of the window's unit, as a process does: each page as [`fill`](MachineMemory::fill) writes a frame,
    /// with the stamp that `stamp_of` returns for its number. Pages that show nothing are passed by.
    pub(crate) fn write_unit(&mut self, stamp_of: impl Fn(usize) -> u64) {
        for (page, frame) in self.shown.iter().enumerate() {
            if frame.is_none() {
                continue;
            }
            let start =
                sys::base(&self.window).wrapping_byte_add(self.first + page * PAGE).cast::<u64>();
            let stamp = stamp_of(page);
            for word in 0..WORDS {
                // SAFETY: inside a page of the window that shows a frame, and so is mapped writable (law 2).
                unsafe { start.add(word).write(stamp ^ word as u64) };
            }
        }
    }

    /// Empties the window.
    ///
    /// # Errors
    /// Errors of `mmap`.
    pub(crate) fn clear_window(&mut self) -> io::Result<()> {
        let start = sys::base(&self.window).wrapping_byte_add(self.first);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // From here on nothing is touched, also if the call fails half way.
        self.shown.fill(None);
        // SAFETY: the unit lies in `window` (law 2), which is ours, and is not in use.
        unsafe { sys::mmap_anonymous(start, UNIT, ProtFlags::empty(), flags) }?;
        Ok(())
    }
}

/// Maps `bytes` bytes of the file, from byte `from` on, over the part of a reservation that begins at `offset`.
fn show(
    over: &Reservation,
    offset: usize,
    file: &OwnedFd,
    from: u64,
    bytes: usize,
) -> io::Result<()> {
    let start = sys::base(over).wrapping_byte_add(offset);
    // SAFETY: the callers name a part of a reservation of their own, which unmaps its whole range when it goes; no
    // reference to the replaced contents exists.
    Ok(unsafe { sys::show(start, bytes, file.as_fd(), from) }?)
}
