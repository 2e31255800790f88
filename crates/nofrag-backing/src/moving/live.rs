//! A file in memory, and the areas that show its pages.
//!
//! The file has one permanent *window*, a mapping of all of it, through which a mover copies. An area shows a page of
//! the file at each of its own pages; its table has the numbers of these, which change when a run moves.
//!
//! Memory is handed out as atomic words. Users and a move may meet there in any order, and areas may show the same
//! pages; at worst a word has an older or a newer value, as with any writer.

use std::ffi::c_void;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::budget::Mappings;
use super::pins::{Pin, PinError, Pins};
use super::signals;
use crate::backend::Va;
use crate::forks::Forks;
use crate::sys::{self, PAGE};
use crate::zeroed::{NoMemory, collected, zeroed};

const WORDS: usize = (1 << PAGE) / size_of::<u64>();

const POISONED: &str = "no thread panicked while it held this lock";

/// Why a file or an area was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There are no pages, or not all of them are in the file.
    #[error("pages {first} and {count} more are not in a file of {pages}")]
    Outside {
        /// The first page that was asked for.
        first: u64,
        count: u64,
        /// Number of the file's pages.
        pages: u64,
    },
    /// This process is a child of the one that made the file, and does not know the later mappings of that one.
    #[error("this process was forked from the one that made the file: make another here")]
    Forked,
    /// An area shows the page.
    #[error("page {page} of the file is in use")]
    InUse { page: u64 },
    /// One more mapping would pass the budget.
    #[error(
        "the budget of {budget} mappings is used up: give areas back, or raise vm.max_map_count"
    )]
    MappingBudget { budget: u64 },
    #[error("the system refused: {0}")]
    System(Errno),
}

impl From<Errno> for LiveError {
    fn from(error: Errno) -> LiveError {
        LiveError::System(error)
    }
}

/// The way in which users of an area use its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Only under a pin.
    #[default]
    Pinned,
    /// At any time. Such an area is moved under write protection only.
    Direct,
}

/// The users of the memory of an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Programs on this machine's processors.
    #[default]
    Processors,
    /// Devices too. Such an area never moves.
    Devices,
}

/// A file in memory with its window.
///
/// 1. `shown` counts for each page the area pages that show it, and one for a move that is about to show it.
/// 2. `mappings` counts for each area one, and one more where its next page is not the file's next: the kernel makes no
///    more mappings than that.
///
/// The pages are shared with children of a fork, the books are not: a child maps nothing new, discards nothing and
/// moves nothing. Areas that it has from its parent show the same pages as at the fork.
#[derive(Debug)]
pub struct LiveFile {
    file: OwnedFd,
    window: Mapping,
    pages: u64,
    shown: Mutex<Box<[u32]>>,
    mappings: Mappings,
    /// Areas that could not be unmapped yet, with the pages of the file that they show.
    left: Mutex<Vec<(Mapping, Vec<u64>)>>,
    process: Forks,
}

/// A range of addresses that was mapped here. Its owner unmaps it; dropping it does nothing.
#[derive(Debug)]
struct Mapping {
    at: *mut c_void,
    bytes: usize,
}

// SAFETY: the pointer is an address; each use of it has its own argument.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Shows the file from page `first` on, at an address that the kernel chooses.
    fn new(file: BorrowedFd<'_>, first: u64, pages: u64) -> Result<Mapping, Errno> {
        let bytes = usize::try_from(pages << PAGE).map_err(|_| Errno::NOMEM)?;
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let at = unsafe {
            sys::mmap(ptr::null_mut(), bytes, allowed, MapFlags::SHARED, file, first << PAGE)
        }?;
        Ok(Mapping { at, bytes })
    }

    /// # Safety
    /// The range is no longer used.
    unsafe fn unmap(&self) -> Result<(), Errno> {
        // SAFETY: it was mapped by `new`, and the caller promises that it is no longer used.
        unsafe { sys::munmap(self.at, self.bytes) }
    }
}

impl LiveFile {
    /// Makes a file of `pages` pages, with a budget of mappings of half of the number that the kernel allows.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn new(pages: u64) -> Result<LiveFile, LiveError> {
        LiveFile::with_budget(pages, Mappings::half())
    }

    /// Makes a file of `pages` pages.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn with_budget(pages: u64, mappings: Mappings) -> Result<LiveFile, LiveError> {
        if pages == 0 || pages > u64::from(u32::MAX) {
            return Err(LiveError::Outside { first: 0, count: pages, pages: u32::MAX.into() });
        }
        let process = Forks::now()?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = sys::memfd_create(c"nofrag live", flags)?;
        sys::ftruncate(file.as_fd(), pages << PAGE)?;
        // Pages that a mapping shows must never go away behind it.
        sys::seal(file.as_fd(), SealFlags::SHRINK)?;
        mappings.book(1).map_err(|budget| LiveError::MappingBudget { budget })?;
        let window = Mapping::new(file.as_fd(), 0, pages)?;
        // SAFETY: numbers may be zero.
        let shown = unsafe { zeroed(pages as usize) };
        let shown = Mutex::new(shown.map_err(|NoMemory| Errno::NOMEM)?);
        Ok(LiveFile { file, window, pages, shown, mappings, left: Mutex::default(), process })
    }

    /// Returns true if this process made the file.
    pub(super) fn is_here(&self) -> bool {
        self.process.is_same()
    }

    /// Returns the number of the file's pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the budget of mappings of the file and its areas.
    #[must_use]
    pub fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// Returns how many pages of areas show page `page`; zero behind the end of the file.
    #[must_use]
    pub fn shown(&self, page: u64) -> u32 {
        self.shown_pages().get(page as usize).copied().unwrap_or_default()
    }

    /// Maps an area that shows `count` pages from `first` on.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn map(
        &self,
        first: u64,
        count: u64,
        access: Access,
        reach: Reach,
    ) -> Result<LiveArea<'_>, LiveError> {
        if !self.is_here() {
            return Err(LiveError::Forked);
        }
        let end = first.checked_add(count).filter(|&end| count > 0 && end <= self.pages);
        let end = end.ok_or(LiveError::Outside { first, count, pages: self.pages })?;
        self.retry_left();
        let shows = collected(count as usize, first..end).map_err(|NoMemory| Errno::NOMEM)?;
        self.mappings.book(1).map_err(|budget| LiveError::MappingBudget { budget })?;
        // In use from now on, before an area shows them.
        self.shown_pages()[first as usize..end as usize].iter_mut().for_each(|shown| *shown += 1);
        let mapping = match Mapping::new(self.file.as_fd(), first, count) {
            Ok(mapping) => mapping,
            Err(error) => {
                self.forget(&shows);
                return Err(error.into());
            }
        };
        let table = Mutex::new(Table { shows, owed: Vec::new() });
        let waiting = Mutex::default();
        Ok(LiveArea { file: self, mapping, access, reach, pins: Pins::new(), table, waiting })
    }

    /// Gives the memory of pages back that no area shows; they are zero after that.
    ///
    /// # Errors
    /// See [`LiveError`]; all pages are as before.
    pub fn discard(&self, pages: Range<u64>) -> Result<(), LiveError> {
        if !self.is_here() {
            return Err(LiveError::Forked);
        }
        let (first, count) = (pages.start, pages.end.saturating_sub(pages.start));
        if count == 0 || pages.end > self.pages {
            return Err(LiveError::Outside { first, count, pages: self.pages });
        }
        let shown = self.shown_pages();
        if let Some(page) = pages.clone().find(|&page| shown[page as usize] > 0) {
            return Err(LiveError::InUse { page });
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The lock is kept: no area begins to show the pages meanwhile.
        Ok(sys::fallocate(self.file.as_fd(), punch, first << PAGE, count << PAGE)?)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the address at which the window shows a page of the file.
    pub(super) fn window(&self, page: u64) -> *mut c_void {
        debug_assert!(page < self.pages, "the window shows the file");
        self.window.at.wrapping_byte_add((page << PAGE) as usize)
    }

    pub(super) fn shown_pages(&self) -> MutexGuard<'_, Box<[u32]>> {
        self.shown.lock().expect(POISONED)
    }

    /// Unmaps an area, or keeps it booked until that works: the kernel cannot always split the areas that it has
    /// merged.
    fn unmap(&self, mapping: Mapping, shows: Vec<u64>) {
        // SAFETY: the area is being dropped, so there is no reference to it.
        match unsafe { mapping.unmap() } {
            Ok(()) => self.forget(&shows),
            Err(_) => self.left.lock().expect(POISONED).push((mapping, shows)),
        }
    }

    /// Strikes an area off the books.
    fn forget(&self, shows: &[u64]) {
        let mut shown = self.shown_pages();
        shows.iter().for_each(|&page| shown[page as usize] -= 1);
        self.mappings.give_back(1 + breaks(shows));
    }

    /// Tries again to unmap areas that could not be unmapped.
    fn retry_left(&self) {
        let left = std::mem::take(&mut *self.left.lock().expect(POISONED));
        left.into_iter().for_each(|(mapping, shows)| self.unmap(mapping, shows));
    }

    /// Returns the number of areas that are no longer used but could not be unmapped yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.lock().expect(POISONED).len()
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        self.retry_left();
        // SAFETY: areas borrow the file, so there are none, and no other use of the window outlives a move.
        // If it cannot be unmapped it stays: addresses, and the memory of the file.
        let _ = unsafe { self.window.unmap() };
    }
}

/// Counts the places where the next page of a table is not the next page of the file: there one mapping ends and
/// another begins.
pub(super) fn breaks(shows: &[u64]) -> u64 {
    shows.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count() as u64
}

/// The pages of an area.
#[derive(Debug)]
pub(super) struct Table {
    /// The page of the file at each page of the area.
    pub(super) shows: Vec<u64>,
    /// Runs of the area that may still be protected, because that could not be undone.
    pub(super) owed: Vec<Range<u64>>,
}

/// Some pages of a file, one after the other, for programs to use.
///
/// 1. Every page of the mapping shows the page of the file that the table names, and can be read; it can be written
///    unless a move is under way or its protection could not be undone.
/// 2. Only one move at a time: the lock of the table is held all through it.
#[derive(Debug)]
pub struct LiveArea<'f> {
    file: &'f LiveFile,
    mapping: Mapping,
    access: Access,
    reach: Reach,
    pins: Pins,
    table: Mutex<Table>,
    /// The area's entry in the signal handler's table, once a run was moved under `mprotect`.
    waiting: Mutex<Option<signals::Entry>>,
}

/// The words of an area, which does not move as long as this lives.
#[derive(Debug)]
pub struct PinnedWords<'a> {
    words: &'a [AtomicU64],
    _pin: Pin<'a>,
}

impl Deref for PinnedWords<'_> {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        self.words
    }
}

impl<'f> LiveArea<'f> {
    /// Returns the number of the area's pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        (self.mapping.bytes >> PAGE) as u64
    }

    /// Returns the first address of the area.
    #[must_use]
    pub fn start(&self) -> Va {
        Va(self.mapping.at.addr() as u64)
    }

    /// Returns the way in which users use the area's memory.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the users of the area's memory.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Pins the area's memory, and returns it for as long as it stays at its place.
    ///
    /// # Errors
    /// See [`PinError`]; never [`PinError::Moving`].
    #[inline]
    pub fn pin(&self) -> Result<PinnedWords<'_>, PinError> {
        let pin = self.pins.pin()?;
        Ok(PinnedWords { words: self.all_words(), _pin: pin })
    }

    /// Returns the area's memory, if that may be used without a pin.
    #[must_use]
    #[inline]
    pub fn words(&self) -> Option<&[AtomicU64]> {
        (self.access == Access::Direct).then(|| self.all_words())
    }

    #[inline]
    fn all_words(&self) -> &[AtomicU64] {
        let count = (self.mapping.bytes >> PAGE) * WORDS;
        // SAFETY: the pages are mapped to be read and written as long as the area lives, moves included: one mapping
        // replaces another at once (law 1). All access is atomic, so any thread may change them.
        unsafe { std::slice::from_raw_parts(self.mapping.at.cast::<AtomicU64>(), count) }
    }

    /// Returns the page of the file that page `page` of the area shows.
    #[must_use]
    pub fn shows(&self, page: u64) -> Option<u64> {
        self.table().shows.get(usize::try_from(page).ok()?).copied()
    }

    /// Returns the file whose pages the area shows.
    #[must_use]
    pub fn file(&self) -> &'f LiveFile {
        self.file
    }

    /// Returns the pins of the area.
    #[must_use]
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect(POISONED)
    }

    /// Returns the address of a page of the area.
    pub(super) fn page(&self, page: u64) -> *mut c_void {
        self.mapping.at.wrapping_byte_add((page << PAGE) as usize)
    }

    /// Returns the area's entry in the table of the signal handler, made on first use.
    pub(super) fn waiting(&self) -> Result<signals::Seat, signals::NoEntry> {
        signals::install()?;
        let mut waiting = self.waiting.lock().expect(POISONED);
        if let Some(entry) = &*waiting {
            return Ok(entry.seat());
        }
        let start = self.mapping.at.addr();
        let entry = signals::Entry::new(start..start + self.mapping.bytes)?;
        Ok(waiting.insert(entry).seat())
    }
}

impl Drop for LiveArea<'_> {
    fn drop(&mut self) {
        let bytes = self.mapping.bytes;
        let mapping = Mapping { at: self.mapping.at, bytes };
        let table = self.table.get_mut().expect(POISONED);
        self.file.unmap(mapping, std::mem::take(&mut table.shows));
    }
}
