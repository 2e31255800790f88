//! Page frames that other processes see.
//!
//! A [`Table`] stands beside the file of some [`Frames`]: blocks of frames, and areas made of scattered ones, are
//! entered there and get [`Handle`]s, which may be sent anywhere as numbers. A [`Guest`](crate::shared::Guest) in
//! another process pins what they name and sees an area's pieces side by side in addresses of its own: no byte is
//! copied.
//!
//! **While a block is exported** it stays where it is, for compaction too, and is not handed out again though its user
//! gives it back. **Withdrawing** ends that: from then on its handle is stale for ever, so that a late use is refused
//! ([`SharedError::Stale`]) and not led to what lies there next. Who has pinned it may go on; only when the last pin is
//! gone, also the one of a process that has died, are the frames free ([`Table::collect`]).
//!
//! **Who may break what.** As [`shared`](crate::shared) says: others write to the table alone, and the owner reads
//! nothing there but pins, so that whatever they write, this process keeps its books. A guest cannot write to the
//! frames: its descriptor is for reading, and only the owner's user may open the file again. But it can read *all*
//! frames, exported or not: what must stay secret belongs in other [`Frames`]. And who clears the pins of others can
//! make them read frames of other blocks.
//!
//! **When the owner dies** its books of the frames have gone, so nobody can succeed it: guests keep what they have
//! pinned, and find what they know for as long as they keep their descriptors.
//!
//! Source: spec/backing.md, story 5; issue item 3.
//!
//! ```
//! use std::sync::Arc;
//!
//! use nofrag::page::Migratetype;
//! use nofrag::units::Order;
//! use nofrag_backing::export::{Table, TableConfig};
//! use nofrag_backing::frames::{FrameRequest, Frames, FramesConfig};
//! use nofrag_backing::shared::{Guest, SharedError};
//!
//! let frames = Arc::new(Frames::new(&FramesConfig::new(4 << 20))?);
//! let owner = frames.owners().by_rank(0).expect("there is one");
//! let block = frames.alloc(owner, FrameRequest::new(Order::ZERO, Migratetype::Unmovable))?;
//! let at = frames.address(block.pfn).expect("it is one of them");
//! // SAFETY: the block is ours, and nobody else knows of it yet.
//! unsafe { at.write_bytes(7, block.bytes()) };
//!
//! let table = Table::new(frames.clone(), TableConfig::default())?;
//! let handle = table.export_block(block.pfn)?;
//! // In another process, which got the invitation over a socket:
//! let guest = Guest::attach(table.invite()?)?;
//! let area = guest.map(&[handle])?;
//! assert_eq!(area.word(0)?, u64::from_ne_bytes([7; 8]));
//!
//! table.withdraw(handle)?;
//! assert_eq!(guest.map(&[handle]).unwrap_err(), SharedError::Stale);
//! frames.free(owner, block.pfn)?;
//! assert!(frames.block(block.pfn).is_some(), "somebody has it pinned");
//! drop(area);
//! assert_eq!(table.collect(), 1);
//! assert!(frames.block(block.pfn).is_none());
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nofrag::check::{Check, Violation};
use nofrag::units::{PageCount, Pfn};
use rustix::fs::Mode;

use crate::frames::{FrameBlock, Frames, UseError};
use crate::mapped::{Mapped, VmallocArea};
use crate::shared::descriptors::{self, Reopen};
use crate::shared::{Handle, Invitation, Owner, Place, SharedError, Sizes};
use crate::sys;

/// How large a table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// So many runs of adjacent frames can be exported at once.
    pub entries: u32,
    /// So many processes may be attached at once.
    pub processes: u32,
}

impl Default for TableConfig {
    fn default() -> TableConfig {
        TableConfig { entries: 4096, processes: 64 }
    }
}

/// Why nothing was exported. Nothing changed, except that an area's frames stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The block is none in use, is exported already, or may be moved.
    #[error(transparent)]
    Block(#[from] UseError),
    /// The area is of another space, or shows other frames than the table's.
    #[error("the area shows none of the frames that this table is for")]
    ForeignArea,
    /// What the table says.
    #[error(transparent)]
    Shared(#[from] SharedError),
}

/// The books: which blocks each entry names, in the order of their addresses.
#[derive(Debug, Default)]
struct Books {
    live: BTreeMap<u32, Vec<Pfn>>,
    /// Withdrawn, and still pinned when last looked at.
    dying: BTreeMap<u32, Vec<Pfn>>,
}

/// A table of exported frames, for any number of threads of the process that made it. There is one at a time for some
/// frames.
///
/// If it is dropped, all is withdrawn. What is pinned then is never handed out again, as long as the frames live.
///
/// 1. Each entry that lives or is pinned is in the books, and has a run of blocks, each of them lent by the frames
///    through this table alone.
///
/// [`check`](Check::check) verifies it, while no other thread works.
#[derive(Debug)]
pub struct Table {
    owner: Owner,
    frames: Arc<Frames>,
    books: Mutex<Books>,
}

impl Table {
    /// A table beside the file of the frames, which from now on only this user may open again.
    ///
    /// # Errors
    /// See [`SharedError`]; [`SharedError::OwnerLives`] while the frames have another table.
    pub fn new(frames: Arc<Frames>, config: TableConfig) -> Result<Table, SharedError> {
        let system = |what| move |error| SharedError::System { what, error };
        sys::chmod(frames.file(), Mode::RUSR | Mode::WUSR)
            .map_err(system("restrict the file of the frames"))?;
        // A descriptor of our own: its lock ends with the table.
        let data = descriptors::reopened(frames.file(), Reopen::Read)?;
        let TableConfig { entries, processes } = config;
        let data_bytes = frames.len().0 << sys::PAGE;
        let owner = Owner::of_file(data, Sizes { entries, processes, data_bytes })?;
        Ok(Table { owner, frames, books: Mutex::default() })
    }

    /// What another process needs to attach ([`Guest::attach`](crate::shared::Guest::attach)).
    ///
    /// # Errors
    /// [`SharedError::System`], [`SharedError::Forked`].
    pub fn invite(&self) -> Result<Invitation, SharedError> {
        self.owner.is_here()?;
        self.owner.invite()
    }

    /// Exports the block in use that begins at `pfn` and stays where it is.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn export_block(&self, pfn: Pfn) -> Result<Handle, ExportError> {
        self.owner.is_here()?;
        let mut books = self.lock();
        let block = self.frames.lend(pfn)?;
        self.enter(&mut books, &[block]).inspect_err(|_| self.frames.end_lending(pfn))
    }

    /// Exports an area: a handle for each run of adjacent frames, in the order of addresses. Its frames stay where they
    /// are from now on; once all is withdrawn, [`Mapped::set_mobility`] may let them move again.
    ///
    /// # Errors
    /// [`ExportError`]; [`UseError::Movable`] while one of the frames is being moved: try again.
    pub fn export_area(
        &self,
        mapped: &Mapped,
        area: &VmallocArea,
    ) -> Result<Vec<Handle>, ExportError> {
        self.owner.is_here()?;
        if !Arc::ptr_eq(mapped.frames(), &self.frames) {
            return Err(ExportError::ForeignArea);
        }
        let exported = mapped.with_pinned(area, |blocks| self.export_all(blocks));
        exported.unwrap_or(Err(ExportError::ForeignArea))
    }

    fn export_all(&self, blocks: &[FrameBlock]) -> Result<Vec<Handle>, ExportError> {
        let mut books = self.lock();
        let mut lent = Vec::with_capacity(blocks.len());
        for block in blocks {
            match self.frames.lend(block.pfn) {
                Ok(found) => lent.push(found),
                Err(why) => {
                    lent.iter().for_each(|block| self.frames.end_lending(block.pfn));
                    return Err(why.into());
                }
            }
        }
        let mut handles = Vec::new();
        let runs = lent.chunk_by(|one, next| one.end() == next.pfn);
        for run in runs {
            match self.enter(&mut books, run) {
                Ok(handle) => handles.push(handle),
                Err(why) => {
                    // Nobody knows the handles yet; a process that guesses one keeps its frames until it unpins.
                    let entered: usize = handles.len();
                    let rest = lent.chunk_by(|one, next| one.end() == next.pfn).skip(entered);
                    rest.flatten().for_each(|block| self.frames.end_lending(block.pfn));
                    handles.into_iter().for_each(|handle| _ = self.give_up(&mut books, handle));
                    self.end_unpinned(&mut books);
                    return Err(why);
                }
            }
        }
        Ok(handles)
    }

    /// Names a run of lent blocks.
    fn enter(&self, books: &mut Books, run: &[FrameBlock]) -> Result<Handle, ExportError> {
        let entry = self.owner.claim()?;
        let bytes = run.iter().map(|block| block.bytes() as u64).sum();
        self.owner.place(entry, Place { offset: run[0].offset(), bytes });
        books.live.insert(entry, run.iter().map(|block| block.pfn).collect());
        Ok(self.owner.publish(entry))
    }

    /// Ends what `handle` names: nobody can pin it any more, and its frames are let go when the last pin has ended, at
    /// once or at a later [`collect`](Self::collect).
    ///
    /// # Errors
    /// [`SharedError::Stale`] if it names nothing that lives, [`SharedError::Forked`].
    pub fn withdraw(&self, handle: Handle) -> Result<(), SharedError> {
        self.owner.is_here()?;
        let mut books = self.lock();
        self.give_up(&mut books, handle)?;
        self.end_unpinned(&mut books);
        Ok(())
    }

    fn give_up(&self, books: &mut Books, handle: Handle) -> Result<(), SharedError> {
        let entry = self.owner.live(handle)?;
        let blocks = books.live.remove(&entry).expect("an entry that lives is in the books");
        self.owner.give_up(entry);
        books.dying.insert(entry, blocks);
        Ok(())
    }

    /// Lets go what was withdrawn and is no longer pinned, by the living; says how many entries. Pins of processes that
    /// have died are released. Nothing in a child of a fork.
    pub fn collect(&self) -> usize {
        if self.owner.is_here().is_err() {
            return 0;
        }
        let mut books = self.lock();
        let ended = self.end_unpinned(&mut books);
        // The dead do not unpin. Asked last, since it takes system calls.
        match !books.dying.is_empty() && self.owner.reap() > 0 {
            true => ended + self.end_unpinned(&mut books),
            false => ended,
        }
    }

    fn end_unpinned(&self, books: &mut Books) -> usize {
        let before = books.dying.len();
        books.dying.retain(|&entry, blocks| {
            let pinned = self.owner.pinned_by(entry).is_some();
            if !pinned {
                self.owner.end(entry);
                blocks.iter().for_each(|&pfn| self.frames.end_lending(pfn));
            }
            pinned
        });
        before - books.dying.len()
    }

    /// How many processes are attached, dead ones included that were not found yet.
    #[must_use]
    pub fn attached(&self) -> usize {
        if self.owner.is_here().is_ok() { self.owner.attached() } else { 0 }
    }

    /// How many frames are exported, and how many were withdrawn and are still kept for who had pinned them.
    #[must_use]
    pub fn exported(&self) -> (PageCount, PageCount) {
        if self.owner.is_here().is_err() {
            return (PageCount(0), PageCount(0));
        }
        let books = self.lock();
        let pages = |entries: &BTreeMap<u32, Vec<Pfn>>| {
            let bytes = entries.keys().map(|&entry| self.owner.place_of(entry).bytes);
            PageCount(bytes.sum::<u64>() >> sys::PAGE)
        };
        (pages(&books.live), pages(&books.dying))
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check for Table {
    fn check(&self) -> Result<(), Violation> {
        let books = self.lock();
        for (&entry, blocks) in books.live.iter().chain(&books.dying) {
            let place = self.owner.place_of(entry);
            let mut at = place.offset;
            for &pfn in blocks {
                let law = "1. an entry has a run of blocks that are lent";
                let block = self.frames.lent(pfn);
                Violation::unless(law, entry.into(), block.is_some_and(|b| b.offset() == at))?;
                at += block.map_or(0, |block| block.bytes() as u64);
            }
            let law = "1. an entry has a run of blocks";
            Violation::unless_equal(law, entry.into(), at, place.offset + place.bytes)?;
        }
        let lives = |entry: &u32| self.owner.live(self.owner.handle(*entry)).is_ok();
        let law = "1. what lives is in the books, and what is dying can no longer be pinned";
        Violation::unless(law, 0, books.live.keys().all(lives))?;
        Violation::unless(law, 0, !books.dying.keys().any(lives))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // A child of a fork has no part in it.
        if self.owner.is_here().is_err() {
            return;
        }
        let books = self.books.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut books = std::mem::take(books);
        for (entry, blocks) in std::mem::take(&mut books.live) {
            self.owner.give_up(entry);
            books.dying.insert(entry, blocks);
        }
        self.end_unpinned(&mut books);
        if !books.dying.is_empty() && self.owner.reap() > 0 {
            self.end_unpinned(&mut books);
        }
    }
}
