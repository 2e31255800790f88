//! The mover of runs, its methods and its errors.

use std::ops::Range;
use std::ptr;
use std::sync::MutexGuard;

use rustix::io::Errno;
use rustix::mm::MprotectFlags;

use super::budget::Mappings;
use super::live::{Access, LiveArea, Reach, Table, breaks};
use super::pins::{Patience, Pinned};
use super::signals::NoEntry;
use super::steps::{self, Allowed, Protector, Swap};
use super::userfaultfd::{OpenError, Userfaultfd};
use crate::sys::PAGE;

/// The ways to keep writers away while a run moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Users pin the pages that they use; a move waits for the last pin with this patience. For areas with
    /// [`Access::Pinned`].
    Pins(Patience),
    /// userfaultfd: writers wait in the kernel.
    WriteProtect(Fill),
    /// `mprotect`: writers wait in a handler of `SIGSEGV`, which belongs to the whole process.
    Mprotect,
}

impl Default for Method {
    fn default() -> Method {
        Method::Pins(Patience::SHORT)
    }
}

/// When the page tables of a run that has moved are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Page by page, when users touch them.
    #[default]
    OnFault,
    /// By the move: it costs more, and no user faults after it.
    Populate,
}

/// A step of a move, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Watch the run with userfaultfd.
    Register,
    /// Protect the run against writing.
    Protect,
    /// Map the new pages over the old ones.
    Map,
    /// Make pages writable that an earlier move left protected.
    Settle,
}

/// Why a run was not moved. It shows the same pages as before, and no thread waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The run is empty or not in the area, or the pages are not in the file.
    #[error("the run is not in the area, or the pages are not in the file")]
    Outside,
    /// This process is a child of the one that made the file, which may have moved the pages since.
    #[error("this process was forked from the one that moves these pages: make a file here")]
    Forked,
    /// An area shows one of the target pages already.
    #[error("page {page} of the file is in use")]
    InUse { page: u64 },
    #[error("devices use the area, and no page table tells them of a move")]
    NotProcessorsOnly,
    /// Users may write without a pin, so pins do not keep them away.
    #[error("the area may be used without a pin: move it under write protection")]
    UsedWithoutPins,
    /// A pin is held, or another move is under way.
    #[error(transparent)]
    Pinned(#[from] Pinned),
    /// The move might make more mappings than are allowed.
    #[error(
        "the budget of {budget} mappings is used up: move larger runs, back to where they join their neighbours, or \
         raise vm.max_map_count"
    )]
    MappingBudget { budget: u64 },
    #[error(transparent)]
    Userfaultfd(#[from] OpenError),
    /// There are more areas than the signal handler can know.
    #[error("the signal handler knows 64 areas already: move fewer under mprotect")]
    HandlerFull,
    /// Another handler of `SIGSEGV` has replaced ours: writers would not wait, but die.
    #[error("another handler of SIGSEGV was installed since: move by pins or userfaultfd")]
    HandlerReplaced,
    #[error("no handler of SIGSEGV: {0}")]
    Handler(Errno),
    #[error("{step:?}: the system refused: {error}")]
    System { step: Step, error: Errno },
}

/// A mover of runs of areas.
///
/// One mover can serve one area after the other; each thread that moves has its own.
#[derive(Debug, Default)]
pub struct Mover {
    protector: Protector,
}

impl Mover {
    /// Returns a mover that has asked the system for nothing yet.
    #[must_use]
    pub fn new() -> Mover {
        Mover::default()
    }

    /// Returns the mover's userfaultfd, which is made if there is none: to see beforehand whether one may be had.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn userfaultfd(&mut self) -> Result<&Userfaultfd, OpenError> {
        self.protector.descriptor()
    }

    /// Lets the pages `run` of the area show the pages of the file from `to` on, which no area shows yet, and which get
    /// the contents of the old ones. The old pages belong to the caller after that, as far as no other area shows them.
    ///
    /// Cost: the copy, and the calls that the method needs. Users that write meanwhile wait for all of it.
    ///
    /// # Errors
    /// See [`MoveError`]: nothing has moved.
    pub fn move_run(
        &mut self,
        area: &LiveArea<'_>,
        run: Range<u64>,
        to: u64,
        method: Method,
    ) -> Result<(), MoveError> {
        self.move_by(area, run, to, Some(method))
    }

    /// Moves like [`move_run`](Self::move_run), with nothing that keeps writers away: for a run to which nobody writes.
    /// What is written meanwhile is lost.
    ///
    /// # Errors
    /// See [`MoveError`]: nothing has moved.
    pub fn move_idle(
        &mut self,
        area: &LiveArea<'_>,
        run: Range<u64>,
        to: u64,
    ) -> Result<(), MoveError> {
        self.move_by(area, run, to, None)
    }

    fn move_by(
        &mut self,
        area: &LiveArea<'_>,
        run: Range<u64>,
        to: u64,
        method: Option<Method>,
    ) -> Result<(), MoveError> {
        if !area.file().is_here() {
            return Err(MoveError::Forked);
        }
        self.protector.settle()?;
        if area.reach() == Reach::Devices {
            return Err(MoveError::NotProcessorsOnly);
        }
        let mut patience = Patience::NONE;
        if let Some(Method::Pins(users)) = method {
            if area.access() == Access::Direct {
                return Err(MoveError::UsedWithoutPins);
            }
            patience = users;
        }
        let mut claim = Claim::new(area, run, to)?;
        // Pins are waited for under every method: pages to which the kernel refers are pinned, and stay.
        let _moving = area.pins().begin_move(patience)?;
        match method {
            None | Some(Method::Pins(_)) => {
                claim.copy();
                // SAFETY: the claim says that the run is the area's and the pages are free; all users of the area use
                // atomics, and tolerate other values.
                unsafe { claim.swap().map_over(Fill::OnFault) }
            }
            Some(Method::WriteProtect(fill)) => {
                // SAFETY: as above.
                unsafe { self.protector.swap(&claim.swap(), fill, || claim.copy()) }
            }
            Some(Method::Mprotect) => claim.swap_under_signals(),
        }?;
        claim.moved();
        Ok(())
    }

    /// Makes runs writable that a move had to leave protected: under `mprotect` those of the area, under userfaultfd
    /// all of this mover. Moves do that first too.
    ///
    /// # Errors
    /// [`MoveError::System`] with [`Step::Settle`]: a thread that writes to them still waits, or tries again and again.
    /// [`MoveError::Forked`] in a child of the process that made the file.
    pub fn settle(&mut self, area: &LiveArea<'_>) -> Result<(), MoveError> {
        if !area.file().is_here() {
            return Err(MoveError::Forked);
        }
        self.protector.settle()?;
        settle(area, &mut area.table())
    }
}

fn settle(area: &LiveArea<'_>, table: &mut Table) -> Result<(), MoveError> {
    while let Some(run) = table.owed.last() {
        let at = area.page(run.start);
        let bytes = ((run.end - run.start) << PAGE) as usize;
        let swap = Swap { at, bytes, file: area.file().descriptor(), offset: 0 };
        // SAFETY: the run is the area's, whose users may write.
        let allowed = unsafe { swap.allow(MprotectFlags::READ | MprotectFlags::WRITE) };
        allowed.map_err(|error| MoveError::System { step: Step::Settle, error })?;
        table.owed.pop();
    }
    Ok(())
}

/// A run that may move: it and its target exist, the target is reserved for it, and the mappings are booked. Dropping
/// it gives it up.
struct Claim<'a> {
    area: &'a LiveArea<'a>,
    table: MutexGuard<'a, Table>,
    run: Range<u64>,
    to: u64,
    booking: Booking<'a>,
    ends: Ends,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    AsBefore,
    Moved,
}

/// Mappings that a run takes before its move, at most during it, and after it. Those beyond `before` are booked.
struct Booking<'a> {
    mappings: &'a Mappings,
    before: u64,
    peak: u64,
    after: u64,
}

impl<'a> Claim<'a> {
    fn new(area: &'a LiveArea<'a>, run: Range<u64>, to: u64) -> Result<Claim<'a>, MoveError> {
        let count =
            run.end.checked_sub(run.start).filter(|&count| count > 0 && run.end <= area.pages());
        let count = count.ok_or(MoveError::Outside)?;
        let file = area.file();
        let end = to.checked_add(count).filter(|&end| end <= file.pages());
        let end = end.ok_or(MoveError::Outside)?;
        let mut table = area.table();
        settle(area, &mut table)?;
        let booking = Booking::new(file.mappings(), &table.shows, &run, to)?;
        let mut shown = file.shown_pages();
        let target = &mut shown[to as usize..end as usize];
        if let Some(used) = target.iter().position(|&n| n > 0) {
            booking.mappings.give_back(booking.peak - booking.before);
            return Err(MoveError::InUse { page: to + used as u64 });
        }
        target.fill(1);
        drop(shown);
        Ok(Claim { area, table, run, to, booking, ends: Ends::AsBefore })
    }

    fn pages(&self) -> u64 {
        self.run.end - self.run.start
    }

    fn swap(&self) -> Swap<'a> {
        Swap {
            at: self.area.page(self.run.start),
            bytes: (self.pages() << PAGE) as usize,
            file: self.area.file().descriptor(),
            offset: self.to << PAGE,
        }
    }

    /// Copies the run to its target, through the window.
    fn copy(&self) {
        let file = self.area.file();
        let mut to = self.to;
        let shows = &self.table.shows[self.run.start as usize..self.run.end as usize];
        for piece in shows.chunk_by(|page, next| page + 1 == *next) {
            let bytes = piece.len() << PAGE;
            let (source, target) = (file.window(piece[0]), file.window(to));
            // SAFETY: both lie in the window, which shows the file as long as that lives; no area shows the target, so
            // that they do not overlap. No reference to the window exists, and a thread that writes through an area
            // meanwhile, though it should not, does so at other addresses.
            unsafe { ptr::copy_nonoverlapping(source.cast::<u8>(), target.cast(), bytes) };
            to += piece.len() as u64;
        }
    }

    fn swap_under_signals(&mut self) -> Result<(), MoveError> {
        let seat = self.area.waiting().map_err(|why| match why {
            NoEntry::Full => MoveError::HandlerFull,
            NoEntry::Replaced => MoveError::HandlerReplaced,
            NoEntry::System(error) => MoveError::Handler(error),
        })?;
        // SAFETY: the run is the area's and its target free; the seat is the area's.
        let swapped = unsafe { steps::swap_under_signals(&self.swap(), seat, || self.copy()) };
        let (moved, allowed) = swapped;
        if let Allowed::Owed = allowed {
            self.table.owed.push(self.run.clone());
        }
        moved
    }

    /// Takes note that the run shows its target.
    fn moved(&mut self) {
        self.ends = Ends::Moved;
        let mut shown = self.area.file().shown_pages();
        let shows = &mut self.table.shows[self.run.start as usize..self.run.end as usize];
        for (page, to) in shows.iter_mut().zip(self.to..) {
            shown[*page as usize] -= 1;
            *page = to;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Booking { mappings, before, peak, after } = self.booking;
        match self.ends {
            Ends::Moved => mappings.give_back(peak - after),
            Ends::AsBefore => {
                mappings.give_back(peak - before);
                let target = self.to as usize..(self.to + self.pages()) as usize;
                self.area.file().shown_pages()[target].fill(0);
            }
        }
    }
}

impl<'a> Booking<'a> {
    /// Books the most mappings that a move of `run` to `to` needs, of which the run has `before` now.
    fn new(
        mappings: &'a Mappings,
        shows: &[u64],
        run: &Range<u64>,
        to: u64,
    ) -> Result<Booking<'a>, MoveError> {
        let (start, end) = (run.start as usize, run.end as usize);
        let is_break = |last: u64, next: u64| u64::from(last + 1 != next);
        let last = start.checked_sub(1).map(|at| shows[at]);
        let next = shows.get(end).copied();
        let inside = breaks(&shows[start..end]);
        let edges = |first: u64, until: u64| {
            last.map_or(0, |last| is_break(last, first))
                + next.map_or(0, |next| is_break(until, next))
        };
        let before = inside + edges(shows[start], shows[end - 1]);
        let after = edges(to, to + (end - start) as u64 - 1);
        // While it is protected, the run's areas are apart from their neighbours.
        let apart = inside + u64::from(last.is_some()) + u64::from(next.is_some());
        let peak = apart.max(after);
        let booked = mappings.book(peak - before);
        booked.map_err(|budget| MoveError::MappingBudget { budget })?;
        Ok(Booking { mappings, before, peak, after })
    }
}
