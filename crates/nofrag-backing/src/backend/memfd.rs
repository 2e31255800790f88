//! Ranges of one sparse file without a name: memory that can be mapped at several addresses.
//!
//! Making memory is taking a range of the file ([`RangeAllocator`]); pages come with their first touch. A reservation
//! is one mapping that allows nothing; mapping replaces a part of it in one step (`MAP_FIXED`), and unmapping replaces
//! that by an empty mapping, so that no other thread's mapping can slip in between. Each mapping may be an area of its
//! own, and Linux allows a process only so many: mappings that continue each other count as one area, and the budget is
//! half of the number allowed. A mapping that would pass it is refused before it is tried; purging needs no area.
//!
//! Purging punches holes into the file, so every other mapping of the range reads as empty too. Neighbours are joined:
//! scattered holes gain nothing by being punched together, since Linux flushes for each.
//!
//! Source: docs/sources/backing.md#r3, #vma-limit, #scattered-shared.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nofrag::check::{Check, Violation};
use nofrag::ranges::{AllocError, Config, RangeAllocator, Request, Span};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::books::{Change, Mapping, Shown};
use super::host::{HostSpace, pointer, protect, protection};
use super::{
    Access, Backend, BackendError, Caps, Geometry, HostMemory, Op, OpResult, Va, submission,
};
use crate::limits::max_map_count;
use crate::sys;

/// The least number of bytes by which the file grows: they cost nothing until they are touched.
const GROWTH: u64 = 1 << 30;

/// The number of areas that a backend may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// Half of the number that Linux allows the process: the other half is for its other mappings.
    #[default]
    Half,
    Areas(u64),
    /// No bound but that of Linux, which refuses by itself.
    Unlimited,
}

impl Budget {
    fn areas(self) -> Option<u64> {
        match self {
            Budget::Half => Some(max_map_count() / 2),
            Budget::Areas(areas) => Some(areas),
            Budget::Unlimited => None,
        }
    }
}

/// Memory in a file, which children of a fork share. See [`Memfd::hugetlb`] for huge pages that were set aside.
///
/// Its reservations go when it is dropped; the memory goes with the last process that has it.
#[derive(Debug)]
pub struct Memfd {
    pub(super) geometry: Geometry,
    pub(super) space: HostSpace<Window>,
    file: OwnedFd,
    pieces: Mutex<Pieces>,
    /// Returns the error for a mapping that Linux refuses with `NOMEM`; another one where huge pages were set aside.
    pub(super) if_out_of_memory: fn() -> BackendError,
}

/// A piece of memory of a [`Memfd`]. Numbers are never reused: a destroyed piece names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece(u64);

/// The contents that a mapping shows: a piece, from some offset of the file on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    piece: u64,
    at: u64,
}

impl Shown for Window {
    fn further(self, bytes: u64) -> Window {
        Window { at: self.at + bytes, ..self }
    }

    fn is_one_area(left: Option<(Window, Access)>, right: Option<(Window, Access)>) -> bool {
        let place =
            |side: Option<(Window, Access)>| side.map(|(window, access)| (window.at, access));
        place(left) == place(right)
    }
}

/// The pieces of the file.
///
/// 1. A piece is recorded here while it is not destroyed, and longer while any of it is mapped.
/// 2. The file consists of free ranges, those of pieces, and those still to be punched.
/// 3. `mapped` of a piece is the number of its bytes that the books show as mapped.
#[derive(Debug)]
struct Pieces {
    free: RangeAllocator,
    live: BTreeMap<u64, Record>,
    /// Ranges that were given back, with memory that could not be taken from them yet.
    unpunched: Vec<Span>,
    made: u64,
    file_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    span: Span,
    /// Mapped bytes, each as often as it is mapped.
    mapped: u64,
    is_destroyed: bool,
}

impl Memfd {
    /// Returns a backend with a file of its own, with nothing reserved, that makes as many areas as `budget` allows.
    ///
    /// # Errors
    /// Errors of `memfd_create` and of the seal.
    pub fn new(budget: Budget) -> Result<Memfd, BackendError> {
        Memfd::with_pages(1 << sys::PAGE, MemfdFlags::empty(), budget)
    }

    pub(super) fn with_pages(
        granule: u64,
        flags: MemfdFlags,
        budget: Budget,
    ) -> Result<Memfd, BackendError> {
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = sys::memfd_create(c"nofrag", flags)?;
        // No process that gets the file can make it shorter, which would pull memory from under the others.
        sys::seal(file.as_fd(), SealFlags::SHRINK)?;
        let max_mappings = budget.areas();
        let geometry = Geometry {
            granule,
            recommended: 2 << 20,
            va_align: granule,
            max_va: 1 << 46,
            caps: Caps::PARTIAL_UNMAP
                | Caps::OVER_MAP
                | Caps::ALIAS
                | Caps::SUBRANGE_MAP
                | Caps::PURGE_IN_PLACE
                | Caps::ZEROED,
            max_mappings,
            vector_max: 1,
        };
        Ok(Memfd {
            geometry,
            space: HostSpace::new(ProtFlags::empty(), max_mappings),
            file,
            pieces: Mutex::new(Pieces::new()),
            if_out_of_memory: || BackendError::System(Errno::NOMEM),
        })
    }

    /// Returns the bytes of addresses that were released while the system could not unmap them; they are unmapped
    /// later.
    #[must_use]
    pub fn held_back(&self) -> u64 {
        self.space.held_back()
    }

    /// Returns an upper bound on the number of areas that the system keeps for this backend.
    #[must_use]
    pub fn areas(&self) -> u64 {
        self.space.read().areas()
    }

    /// Returns the bytes of the file that were destroyed while the system could not take their memory; it is taken
    /// later.
    #[must_use]
    pub fn unpunched(&self) -> u64 {
        self.pieces().unpunched.iter().map(|span| span.len()).sum()
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        // No change can be left half done by a panic: nothing between its first step and its last can panic.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory from a range of the file; every mapping of it reads as zero.
    fn punch(&self, span: Span) -> OpResult {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(sys::fallocate(self.file.as_fd(), flags, span.start(), span.len())?)
    }

    /// Makes a range of the file free, or notes that its memory is still to be taken.
    fn give_back(&self, span: Span) {
        let punched = self.punch(span);
        let mut pieces = self.pieces();
        if punched.is_err() || pieces.free.free(span).is_err() {
            pieces.unpunched.push(span);
        }
    }

    /// Tries again to take the memory of ranges that were given back.
    fn try_again(&self) {
        let unpunched = std::mem::take(&mut self.pieces().unpunched);
        unpunched.into_iter().for_each(|span| self.give_back(span));
    }

    /// Notes that `bytes` bytes of a piece are no longer mapped; gives the piece back if it is destroyed and these were
    /// the last.
    fn note_unmapped(&self, piece: u64, bytes: u64) {
        let mut pieces = self.pieces();
        let record = pieces.live.get_mut(&piece).expect("what is mapped has a record (law 1)");
        record.mapped -= bytes;
        let Record { span, mapped, is_destroyed, .. } = *record;
        if is_destroyed && mapped == 0 {
            pieces.live.remove(&piece);
            drop(pieces);
            self.give_back(span);
        }
    }

    fn note_all_unmapped(&self, parts: Vec<(Va, Mapping<Window>)>) {
        parts.into_iter().for_each(|(_, part)| self.note_unmapped(part.shows.piece, part.bytes));
    }

    fn map(&self, op: &Op<Piece>) -> OpResult {
        let &Op::Map { va, phys, offset, bytes } = op else {
            return Err(BackendError::Unsupported);
        };
        self.geometry.fits(va, bytes)?;
        // Noted as mapped beforehand, so that the piece stays if it is destroyed meanwhile.
        let at = self.pieces().note_mapped(&self.geometry, phys, offset, bytes)?;
        let mapped = self.map_window(va, bytes, Window { piece: phys.0, at });
        if mapped.is_err() {
            self.note_unmapped(phys.0, bytes);
        }
        mapped.map(|replaced| self.note_all_unmapped(replaced))
    }

    fn map_window(&self, va: Va, bytes: u64, window: Window) -> Replaced {
        let mut books = self.space.write();
        books.check_reserved(va, bytes)?;
        let (file, allowed) = (self.file.as_fd(), protection(Access::ReadWrite));
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let (at, length) = (pointer(va), bytes as usize);
        books.change((va, bytes), Change::Map(window, Access::ReadWrite), || {
            // SAFETY: the range lies in one of our reservations (the books, which are held); a caller that maps over it
            // gives up its contents.
            match unsafe { sys::mmap(at, length, allowed, flags, file, window.at) } {
                Ok(_) => Ok(()),
                Err(Errno::NOMEM) => Err((self.if_out_of_memory)()),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn unmap(&self, ops: &[Op<Piece>], done: &mut [OpResult]) {
        let ranges: Vec<(Va, u64)> = ops.iter().map(Op::range).collect();
        let mut gone = Vec::new();
        let mut unmap = |va, bytes| {
            let parts = self.unmap_range(va, bytes)?;
            gone.extend(parts);
            Ok(())
        };
        for run in submission::join(&ranges) {
            let whole = unmap(run.va, run.bytes);
            for &place in &run.members {
                let (va, bytes) = ranges[place];
                let again = whole.is_err() && run.members.len() > 1;
                done[place] = if again { unmap(va, bytes) } else { whole };
            }
        }
        self.note_all_unmapped(gone);
    }

    fn unmap_range(&self, va: Va, bytes: u64) -> Replaced {
        self.geometry.fits(va, bytes)?;
        let mut books = self.space.write();
        books.check_mapped(va, bytes)?;
        books.change((va, bytes), Change::Unmap, || {
            // SAFETY: the range lies in one of our reservations (the books, which are held); a caller that unmaps it
            // gives it up.
            unsafe { self.space.map_empty(pointer(va), bytes as usize, MapFlags::FIXED) }?;
            Ok(())
        })
    }

    fn grant(&self, va: Va, bytes: u64, access: Access) -> OpResult {
        self.geometry.fits(va, bytes)?;
        let mut books = self.space.write();
        books.check_mapped(va, bytes)?;
        // SAFETY: the range lies in one of our reservations (the books, which are held); whoever reserved it decides on
        // access to it.
        let carry_out = || unsafe { protect(va, bytes, access) };
        books.change((va, bytes), Change::Grant(access), carry_out).map(drop)
    }

    fn purge(&self, ops: &[Op<Piece>], done: &mut [OpResult]) {
        // Held until the holes are punched: mappings stay, so their pieces do, and no other piece has the file's range
        // meanwhile.
        let books = self.space.read();
        let mut spans: Vec<(Span, usize)> = Vec::new();
        for (place, (va, bytes)) in ops.iter().map(Op::range).enumerate() {
            done[place] =
                self.geometry.fits(va, bytes).and_then(|()| books.check_mapped(va, bytes));
            if done[place].is_ok() {
                let parts = books.parts(va, bytes);
                spans.extend(parts.map(|(_, part)| (part.shows.span(part.bytes), place)));
            }
        }
        spans.sort_unstable_by_key(|(span, _)| span.start());
        let touch = |a: &(Span, usize), b: &(Span, usize)| b.0.start() <= a.0.end();
        for run in spans.chunk_by(touch) {
            let whole = self.punch(run.iter().fold(run[0].0, |hull, &(span, _)| hull.hull(span)));
            for &(span, place) in run {
                let again = whole.is_err() && run.len() > 1;
                let punched = if again { self.punch(span) } else { whole };
                done[place] = done[place].and(punched);
            }
        }
    }
}

/// The mappings that were in a range before, or the reason for which nothing changed.
type Replaced = Result<Vec<(Va, Mapping<Window>)>, BackendError>;

impl Window {
    /// Returns the part of the file that `bytes` bytes of the mapping show.
    fn span(self, bytes: u64) -> Span {
        Span::sized(self.at, bytes).expect("a mapping is not empty and lies in the file")
    }
}

impl Pieces {
    fn new() -> Pieces {
        let free = RangeAllocator::new(Config::default());
        Pieces { free, live: BTreeMap::new(), unpunched: Vec::new(), made: 0, file_bytes: 0 }
    }

    fn alive(&self, piece: Piece) -> Result<&Record, BackendError> {
        let record = self.live.get(&piece.0).filter(|record| !record.is_destroyed);
        record.ok_or(BackendError::WrongState)
    }

    /// Notes a mapping of a part of a piece; returns the part's offset in the file.
    fn note_mapped(
        &mut self,
        geometry: &Geometry,
        piece: Piece,
        offset: u64,
        bytes: u64,
    ) -> Result<u64, BackendError> {
        let at = self.alive(piece)?.span;
        geometry.fits_inside(offset, bytes, at.len())?;
        let record = self.live.get_mut(&piece.0).expect("it is alive");
        record.mapped += bytes;
        Ok(at.start() + offset)
    }

    /// Takes a free range of the file, which grows if there is none.
    fn take(&mut self, file: &OwnedFd, bytes: u64, align: u64) -> Result<Span, BackendError> {
        let request = Request::new(bytes).align(align);
        match self.free.alloc(&request) {
            Err(AllocError::Exhausted { .. } | AllocError::Misfit { .. }) => {
                self.grow(file, bytes)?
            }
            other => return other.map_err(|_| Errno::NOMEM.into()),
        }
        self.free.alloc(&request).map_err(|_| Errno::NOMEM.into())
    }

    /// Makes the file longer by enough for `bytes`. Its end is always a multiple of [`GROWTH`], and so of alignments.
    fn grow(&mut self, file: &OwnedFd, bytes: u64) -> Result<(), BackendError> {
        let from = self.file_bytes;
        let more = bytes.checked_next_multiple_of(GROWTH).ok_or(Errno::FBIG)?;
        let to = from.checked_add(more).filter(|&to| to <= i64::MAX as u64).ok_or(Errno::FBIG)?;
        sys::ftruncate(file.as_fd(), to)?;
        let span = Span::new(from, to).expect("it grows");
        self.free.add_span(span).map_err(|_| Errno::NOMEM)?;
        self.file_bytes = to;
        Ok(())
    }
}

/// Checks a backend that is not in use meanwhile.
impl Check for Memfd {
    fn check(&self) -> Result<(), Violation> {
        let books = self.space.read();
        books.check()?;
        let pieces = self.pieces();
        let mut mapped: BTreeMap<u64, u64> = BTreeMap::new();
        for (va, bytes) in books.reservations() {
            for (_, part) in books.parts(va, bytes) {
                *mapped.entry(part.shows.piece).or_default() += part.bytes;
            }
        }
        for (piece, record) in &pieces.live {
            let law =
                "A piece is here while it is not destroyed, and longer while any of it is mapped.";
            Violation::unless(law, *piece, !record.is_destroyed || record.mapped > 0)?;
            let law = "So many bytes of a piece are mapped as the books say.";
            let found = mapped.remove(piece).unwrap_or_default();
            Violation::unless_equal(law, *piece, found, record.mapped)?;
        }
        let law =
            "A piece is here while it is not destroyed, and longer while any of it is mapped.";
        Violation::unless_equal(law, 0, 0, mapped.len() as u64)?;
        let live: u64 = pieces.live.values().map(|record| record.span.len()).sum();
        let unpunched: u64 = pieces.unpunched.iter().map(|span| span.len()).sum();
        let all = pieces.free.stats().free + live + unpunched;
        let law = "The file is what is free, what pieces have, and what is still to be punched.";
        Violation::unless_equal(law, 0, pieces.file_bytes, all)
    }
}

impl Backend for Memfd {
    type Phys = Piece;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, BackendError> {
        let (bytes, align) = self.geometry.reservation(bytes, align)?;
        self.space.reserve(bytes, align, hint)
    }

    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        self.space.release(va, bytes).map(|parts| self.note_all_unmapped(parts))
    }

    fn create(&self, bytes: u64) -> Result<Piece, BackendError> {
        self.geometry.fits(Va(0), bytes)?;
        self.try_again();
        // Memory that huge pages can show is aligned for them in the file.
        let is_large = bytes.is_multiple_of(self.geometry.recommended);
        let align = if is_large { self.geometry.recommended } else { self.geometry.granule };
        let mut pieces = self.pieces();
        let span = pieces.take(&self.file, bytes, align)?;
        pieces.made += 1;
        let piece = pieces.made;
        let record = Record { span, mapped: 0, is_destroyed: false };
        pieces.live.insert(piece, record);
        Ok(Piece(piece))
    }

    fn destroy(&self, phys: Piece) -> Result<(), BackendError> {
        self.try_again();
        let mut pieces = self.pieces();
        pieces.alive(phys)?;
        let record = pieces.live.get_mut(&phys.0).expect("it is alive");
        record.is_destroyed = true;
        let Record { span, mapped, .. } = *record;
        if mapped == 0 {
            pieces.live.remove(&phys.0);
            drop(pieces);
            self.give_back(span);
        }
        Ok(())
    }

    fn submit(&self, ops: &[Op<Piece>], done: &mut [OpResult]) {
        let purges = self.geometry.caps.has(Caps::PURGE_IN_PLACE);
        submission::in_batches(ops, done, |ops, done| match ops[0] {
            Op::Purge { .. } if !purges => done.fill(Err(BackendError::Unsupported)),
            Op::Purge { .. } => self.purge(ops, done),
            Op::Unmap { .. } => self.unmap(ops, done),
            _ => submission::each(ops, done, |op| match *op {
                Op::Grant { va, bytes, access } => self.grant(va, bytes, access),
                _ => self.map(op),
            }),
        });
    }

    fn hide_from_children(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        self.geometry.fits(va, bytes)?;
        self.space.hide_from_children(va, bytes)
    }
}

// SAFETY: reservations are unmapped by `release` or `drop` alone (law 1 of `HostSpace`); every mapping is readable and
// writable, shows a part of the file below its end, which never shrinks (it is sealed), and stays until it is unmapped,
// mapped over, or a grant takes access away.
unsafe impl HostMemory for Memfd {}
