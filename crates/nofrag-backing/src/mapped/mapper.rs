//! The memory behind the numbers of a space: mappings of frames, made at once and removed late.
//!
//! An area that is freed becomes *stale*: it still shows its frames, which are held meanwhile, so that a user that
//! holds on to it too long sees its own writes and nothing of other areas. A flush makes all stale areas in its ranges
//! inaccessible, those between which nothing is shown in one call, and only then lets their frames go. If the system
//! refuses that, the area stays stale: its frames are not handed out, and its addresses not before the flush has been
//! made up for. An area stays on the books until it is inaccessible, so that nothing is mapped there while that is
//! still to be done.
//!
//! Source: docs/sources/backing.md#munmap-enomem.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nofrag::check::{Check, Violation};
use nofrag::page::Move;
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{Epoch, Mapper, RamArea};
use rustix::io::Errno;

use super::reserved::{Hidden, Reserved};
use crate::frames::{FrameBlock, Frames, Use, UseError};
use crate::zeroed::{NoMemory, collected};

/// Why frames were not mapped. Nothing is left of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapFramesError {
    /// One more area would pass the budget of mappings, though freed areas have been flushed. Larger blocks, whose
    /// frames lie in a row, need fewer.
    #[error("{needed} mappings are needed and {left} of {budget} left")]
    MappingBudget {
        /// Mappings that the area needs: one for each run of frames, and one for the addresses behind it.
        needed: u64,
        /// Mappings that may still be made.
        left: u64,
        /// Mappings that are allowed in all.
        budget: u64,
    },
    /// The number of frames is not that of the pages.
    #[error("{frames} frames for {pages} pages")]
    WrongSize { pages: u64, frames: u64 },
    /// A block is not in use, or is mapped in too many places.
    #[error(transparent)]
    Block(#[from] UseError),
    /// There is no memory for a list of the frames.
    #[error("no memory for a list of {frames} frames")]
    OutOfMetadata { frames: u64 },
    #[error("the system refused: {0}")]
    System(#[from] Errno),
}

/// The party that gives the frames of an area back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The area gives the frames back when it ends.
    Area,
    /// The caller that mapped the frames gives them back.
    Caller,
}

/// An area on the books that shows frames.
#[derive(Debug)]
pub(super) struct Shown {
    /// Locked to exchange a block, from its copy to its new mapping, and to end the area.
    content: Mutex<Content>,
    owner: Owner,
    pages: u64,
}

#[derive(Debug, Default)]
pub(super) struct Content {
    /// Blocks in the order of addresses; empty once the area has ended.
    pub(super) blocks: Vec<FrameBlock>,
    /// The most mappings that the area takes: one for each run of frames, and one for the addresses behind it.
    pub(super) mappings: u64,
}

impl Shown {
    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }
}

/// An area that was freed and not flushed.
#[derive(Debug)]
struct Stale {
    /// The page behind the area, its guard page included.
    end: u64,
    /// Empty once the area is out of reach, though its mappings are still there.
    blocks: Vec<FrameBlock>,
    mappings: u64,
}

/// The areas of a mapper, apart by their state, each by its first page.
#[derive(Debug, Default)]
struct MapperBooks {
    shown: BTreeMap<u64, Arc<Shown>>,
    /// Areas that are being mapped right now, with their ends.
    begun: BTreeMap<u64, u64>,
    /// Pages that are being made inaccessible right now, whether in areas or not.
    hiding: Option<Range<u64>>,
    stale: BTreeMap<u64, Stale>,
    /// Stale areas whose flush is under way, or was refused.
    owed: BTreeMap<u64, Stale>,
    /// The most mappings that all these areas take.
    mappings: u64,
}

impl MapperBooks {
    /// Returns true if nothing is shown, or will be, between two areas.
    fn is_bare(&self, between: Range<u64>) -> bool {
        fn none<T>(areas: &BTreeMap<u64, T>, between: &Range<u64>) -> bool {
            areas.range(between.clone()).next().is_none()
        }
        between.is_empty()
            || none(&self.shown, &between)
                && none(&self.begun, &between)
                && none(&self.stale, &between)
                && none(&self.owed, &between)
    }
}

/// A block of frames that shall replace another one.
#[derive(Debug)]
pub struct Relocation<'a> {
    /// The address at which users see the block.
    pub at: *mut u8,
    pub bytes: usize,
    /// The address at which the old frames are seen in the frames' own window.
    pub from: *mut u8,
    /// The address at which the new frames are seen there.
    pub to: *mut u8,
    pub file: BorrowedFd<'a>,
    /// Offset of the new frames in the file.
    pub offset: u64,
}

/// Counts of the mapper's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounters {
    pub areas: u64,
    /// Calls that map, one for each run of adjacent frames.
    pub map_calls: u64,
    pub cleared: u64,
    pub flushes: u64,
    /// Areas that were made inaccessible.
    pub flushed: u64,
    /// Calls that made areas inaccessible.
    pub flush_calls: u64,
    /// Calls to make areas inaccessible that were refused; the areas stay stale until a later flush.
    pub refused: u64,
}

impl MapCounters {
    /// Returns the number of calls that were saved: a call for each area that ended, less those that were needed.
    #[must_use]
    pub fn calls_saved(&self) -> u64 {
        self.flushed.saturating_sub(self.flush_calls)
    }
}

/// Maps frames at the pages of a space.
///
/// Always true:
/// 1. An area shows exactly its blocks, in their order, and each of them is held for it.
/// 2. A page that belongs to no area, or only to one that was flushed, is inaccessible.
/// 3. Areas on the books do not overlap.
/// 4. The kernel's mappings inside are at most one more than are counted.
#[derive(Debug)]
pub(super) struct PageMapper {
    frames: Arc<Frames>,
    pub(super) reserved: Reserved,
    books: Mutex<MapperBooks>,
    budget: u64,
    /// Held from the taking of stale areas off the books until they are inaccessible. Two flushes of the same area
    /// would end at different times, and the first to end would let it be mapped again under the second.
    flushing: Mutex<()>,
    /// Signalled to threads that would map where pages are being made inaccessible, when this is over.
    hidden: Condvar,
    completed: AtomicU64,
    counters: Mutex<MapCounters>,
}

/// Mappings that count against the budget until this is dropped, also by a panic of the function that exchanges.
struct Booked<'a> {
    mapper: &'a PageMapper,
    mappings: u64,
}

impl<'a> Booked<'a> {
    fn new(mapper: &'a PageMapper, mappings: u64) -> Result<Booked<'a>, MapFramesError> {
        mapper.book(&mut lock(&mapper.books), mappings)?;
        Ok(Booked { mapper, mappings })
    }
}

impl Drop for Booked<'_> {
    fn drop(&mut self) {
        lock(&self.mapper.books).mappings -= self.mappings;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The books are changed in single calls, so that no panic leaves them half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Iterates over the runs of frames that lie in a row: the first page of each, its offset in the file, its pages.
fn runs(start: u64, blocks: &[FrameBlock]) -> impl Iterator<Item = (u64, u64, u64)> {
    let mut at = start;
    blocks.chunk_by(|one, next| one.end() == next.pfn).map(move |run| {
        let pages = run.iter().map(|block| block.order.pages()).sum();
        let first = at;
        at += pages;
        (first, run[0].offset(), pages)
    })
}

impl PageMapper {
    pub(super) fn new(frames: Arc<Frames>, reserved: Reserved, budget: u64) -> PageMapper {
        PageMapper {
            frames,
            reserved,
            books: Mutex::default(),
            budget,
            flushing: Mutex::new(()),
            hidden: Condvar::new(),
            completed: AtomicU64::new(0),
            counters: Mutex::default(),
        }
    }

    /// Returns the frames that the mapper maps.
    pub(super) fn frames(&self) -> &Arc<Frames> {
        &self.frames
    }

    /// Returns the counts of the mapper's work so far.
    pub(super) fn counters(&self) -> MapCounters {
        *lock(&self.counters)
    }

    /// Returns the most mappings that areas take at present, and the most that they may take.
    pub(super) fn mappings(&self) -> (u64, u64) {
        (lock(&self.books).mappings, self.budget)
    }

    /// Returns the area that begins at `start`.
    pub(super) fn shown(&self, start: Vpn) -> Option<Arc<Shown>> {
        lock(&self.books).shown.get(&start.0).cloned()
    }

    /// Books an area that is to be mapped, if the budget allows, and keeps flushes away from it.
    fn begin(&self, area: Range<u64>, needed: u64) -> Result<(), MapFramesError> {
        let meets = |books: &mut MapperBooks| {
            let hiding = books.hiding.as_ref();
            hiding.is_some_and(|hiding| area.start < hiding.end && hiding.start < area.end)
        };
        let books = self.hidden.wait_while(lock(&self.books), meets);
        let mut books = books.unwrap_or_else(PoisonError::into_inner);
        self.book(&mut books, needed)?;
        books.begun.insert(area.start, area.end);
        Ok(())
    }

    /// Books `needed` mappings, if the budget allows.
    fn book(&self, books: &mut MapperBooks, needed: u64) -> Result<(), MapFramesError> {
        let left = self.budget.saturating_sub(books.mappings);
        if needed > left {
            return Err(MapFramesError::MappingBudget { needed, left, budget: self.budget });
        }
        books.mappings += needed;
        Ok(())
    }

    /// Lets an area show blocks.
    pub(super) fn map(
        &self,
        start: u64,
        pages: u64,
        blocks: &[FrameBlock],
        owner: Owner,
    ) -> Result<(), MapFramesError> {
        let frames = blocks.iter().map(|block| block.order.pages()).sum();
        if frames != pages {
            return Err(MapFramesError::WrongSize { pages, frames });
        }
        let listed = collected(blocks.len(), blocks.iter().copied());
        let listed = listed.map_err(|NoMemory| MapFramesError::OutOfMetadata { frames })?;
        self.make_up(start, start + pages)?;
        // From here on the blocks are of the listed sizes, and stay so.
        self.hold(blocks)?;
        let mappings = runs(start, blocks).count() as u64 + 1;
        self.begin(start..start + pages, mappings).inspect_err(|_| self.release(blocks))?;
        let shown = self.show(start, pages, listed);
        let mut books = lock(&self.books);
        books.begun.remove(&start);
        let blocks = shown.inspect_err(|_| books.mappings -= mappings)?;
        let content = Mutex::new(Content { blocks, mappings });
        books.shown.insert(start, Arc::new(Shown { content, owner, pages }));
        drop(books);
        let mut counters = lock(&self.counters);
        counters.areas += 1;
        counters.map_calls += mappings - 1;
        Ok(())
    }

    /// Ends an area; returns its contents, whose blocks are still held.
    fn end(&self, shown: &Shown) -> Content {
        let content = std::mem::take(&mut *shown.content());
        if shown.owner == Owner::Area {
            for block in &content.blocks {
                // A user that gave the frames of the area back by their numbers has done this already.
                let _ = self.frames.free(self.frames.stranger(), block.pfn);
            }
        }
        content
    }

    /// Exchanges one block of an area for another, if `exchange` does: it copies, and maps the new block over the old
    /// one. Returns true if that was done.
    pub(super) fn exchange(
        &self,
        start: Vpn,
        pair: Move,
        exchange: impl FnOnce(&Relocation<'_>) -> bool,
    ) -> bool {
        let Some(shown) = self.shown(start) else { return false };
        let Some(_carry) = self.frames.carry(pair) else { return false };
        let mut content = shown.content();
        let mut at = start.0;
        let place = content.blocks.iter().position(|block| {
            let found = block.pfn == pair.from && block.order == pair.order;
            at += if found { 0 } else { block.order.pages() };
            found
        });
        // A block in the midst of a run leaves three.
        let Some(place) = place else { return false };
        // Asked under the lock of the content: a user to which a block was promised to stay has held the lock since.
        let Some(claim) = self.frames.claim_move(pair.from, Use::Mapped { vpn: Vpn(at) }) else {
            return false;
        };
        let Ok(mut booked) = Booked::new(self, 2) else { return false };
        let to = FrameBlock { pfn: pair.to, order: pair.order };
        let relocation = Relocation {
            at: self.reserved.address(Vpn(at)).expect("it is inside").cast(),
            bytes: to.bytes(),
            from: self.frames.address(pair.from).expect("it is a frame"),
            to: self.frames.address(pair.to).expect("it is a frame"),
            file: self.frames.file(),
            offset: to.offset(),
        };
        let done = exchange(&relocation);
        if done {
            let moved = claim.moved(pair.to);
            moved.expect("one is claimed for this move, the other set aside for it");
            content.blocks[place] = to;
        }
        drop(claim);
        let mappings = runs(start.0, &content.blocks).count() as u64 + 1;
        booked.mappings = content.mappings + 2 - mappings;
        content.mappings = mappings;
        done
    }

    /// Holds all blocks, or none.
    fn hold(&self, blocks: &[FrameBlock]) -> Result<(), MapFramesError> {
        for (held, block) in blocks.iter().enumerate() {
            let result = match self.frames.hold(block.pfn) {
                // A block that is held is not split.
                Ok(()) if self.frames.block(block.pfn) == Some(*block) => continue,
                Ok(()) => {
                    self.release(&[*block]);
                    Err(MapFramesError::WrongSize { pages: block.order.pages(), frames: 0 })
                }
                Err(why) => Err(why.into()),
            };
            self.release(&blocks[..held]);
            return result;
        }
        Ok(())
    }

    fn release(&self, blocks: &[FrameBlock]) {
        for block in blocks {
            let released = self.frames.release(self.frames.stranger(), block.pfn);
            released.expect("it was held for this area");
        }
    }

    /// Maps the runs of held blocks, which are returned. After a failure nothing is shown, and nothing held.
    fn show(
        &self,
        start: u64,
        pages: u64,
        blocks: Vec<FrameBlock>,
    ) -> Result<Vec<FrameBlock>, MapFramesError> {
        let refused = runs(start, &blocks).find_map(|(first, offset, count)| {
            let to = first..first + count;
            // SAFETY: the space has just handed the area out: it is not used yet.
            let shown = unsafe { self.reserved.show(to, self.frames.file(), offset) };
            shown.err().map(|error| (first + count, error))
        });
        let Some((tried, error)) = refused else { return Ok(blocks) };
        let mappings = runs(start, &blocks).count() as u64 + 1;
        let end = start + pages;
        // SAFETY: as above.
        match unsafe { self.reserved.hide(start..tried) } {
            Ok(Hidden::Gone) => self.release(&blocks),
            Ok(Hidden::OutOfReach) => {
                self.keep(start, Stale { end, blocks: Vec::new(), mappings });
                self.release(&blocks);
            }
            Err(_) => self.keep(start, Stale { end, blocks, mappings }),
        }
        Err(error.into())
    }

    /// Notes an area that should be gone and is not, with the blocks that can still be reached there.
    fn keep(&self, start: u64, stale: Stale) {
        let mut books = lock(&self.books);
        // Counted on its own: the caller that failed gives back the mappings that it had booked.
        books.mappings += stale.mappings;
        books.owed.insert(start, stale);
    }

    /// Makes up for flushes that were refused, where they concern pages that are to be mapped.
    fn make_up(&self, start: u64, end: u64) -> Result<(), MapFramesError> {
        let concerns = |books: &MapperBooks| {
            let before = books.owed.range(..end).next_back();
            before.is_some_and(|(_, stale)| stale.end > start)
        };
        if !concerns(&lock(&self.books)) {
            return Ok(());
        }
        // If it is under way elsewhere, this waits until it is over.
        let _flushing = lock(&self.flushing);
        let result = self.hide();
        if concerns(&lock(&self.books)) {
            // Without an error the pages are out of reach, for lack of mappings.
            return Err(result.err().unwrap_or(Errno::NOMEM).into());
        }
        Ok(())
    }

    /// Tries all refused flushes again. Areas that are refused again stay on the books.
    pub(super) fn retry(&self) {
        let _flushing = lock(&self.flushing);
        let _ = self.hide();
    }

    /// Makes all owed areas inaccessible, and lets their frames go: areas between which nothing is shown in one call.
    /// Areas for which the system refuses it stay on the books; returns the last error. `flushing` is held.
    fn hide(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        let mut counters = MapCounters::default();
        let mut from = 0;
        while let Some(pages) = self.begin_hiding(from) {
            from = pages.end;
            // SAFETY: the areas were freed: their users have said that they no longer use them. They are on the books
            // as owed, so that `make_up` keeps new mappings away; between them nothing is shown, and `begin` waits
            // until this is over.
            let hidden = unsafe { self.reserved.hide(pages.clone()) };
            counters.flush_calls += 1;
            match hidden {
                Ok(hidden) => {
                    let freed = self.strike(pages, hidden);
                    let flushed = freed.iter().filter(|blocks| !blocks.is_empty());
                    counters.flushed += flushed.count() as u64;
                    freed.iter().for_each(|blocks| self.release(blocks));
                }
                Err(error) => {
                    lock(&self.books).hiding = None;
                    counters.refused += 1;
                    result = Err(error);
                }
            }
            self.hidden.notify_all();
        }
        let mut total = lock(&self.counters);
        total.flushed += counters.flushed;
        total.flush_calls += counters.flush_calls;
        total.refused += counters.refused;
        result
    }

    /// Returns the pages of the first owed areas from `from` on that one call can make inaccessible. Nothing is mapped
    /// there until it has.
    fn begin_hiding(&self, from: u64) -> Option<Range<u64>> {
        let mut books = lock(&self.books);
        let mut owed = books.owed.range(from..).map(|(&start, stale)| start..stale.end);
        let first = owed.next()?;
        let mut end = first.end;
        for next in owed {
            if !books.is_bare(end..next.start) {
                break;
            }
            end = next.end;
        }
        // No thread counts them as gone before the books say so.
        books.hiding = Some(first.start..end);
        books.hiding.clone()
    }

    /// Strikes the areas in `pages` off the books, or only their blocks where mappings remain. Returns the blocks of
    /// each.
    fn strike(&self, pages: Range<u64>, hidden: Hidden) -> Vec<Vec<FrameBlock>> {
        let mut books = lock(&self.books);
        books.hiding = None;
        let owed = books.owed.range_mut(pages.clone());
        let blocks = owed.map(|(_, stale)| std::mem::take(&mut stale.blocks)).collect();
        if hidden == Hidden::Gone {
            let mut gone = books.owed.split_off(&pages.start);
            books.owed.append(&mut gone.split_off(&pages.end));
            books.mappings -= gone.values().map(|stale| stale.mappings).sum::<u64>();
        }
        blocks
    }
}

impl Mapper for PageMapper {
    type Context = [FrameBlock];
    type Error = MapFramesError;

    fn install(&self, area: RamArea, context: &[FrameBlock]) -> Result<(), MapFramesError> {
        self.map(area.start.0, area.pages.0, context, Owner::Caller)
    }

    fn clear(&self, area: Span) {
        // Before an area is stale no thread may find it by its number, and move its frames.
        let Some(shown) = lock(&self.books).shown.remove(&area.start()) else { return };
        let Content { blocks, mappings } = self.end(&shown);
        let stale = Stale { end: area.end(), blocks, mappings };
        lock(&self.books).stale.insert(area.start(), stale);
        lock(&self.counters).cleared += 1;
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        let _flushing = lock(&self.flushing);
        {
            let books = &mut *lock(&self.books);
            for range in ranges {
                let starts: Vec<u64> = books
                    .stale
                    .range(range.start()..range.end())
                    .map(|(&start, _)| start)
                    .collect();
                books
                    .owed
                    .extend(starts.iter().filter_map(|start| books.stale.remove_entry(start)));
            }
        }
        // Areas that are refused stay on the books, and are tried again by the next flush and before they are mapped
        // anew.
        let _ = self.hide();
        lock(&self.counters).flushes += 1;
        // Pairs with the acquire in `completed`: a thread that sees the number sees the effects of the flush.
        Epoch(self.completed.fetch_add(1, Ordering::Release) + 1)
    }

    fn completed(&self) -> Epoch {
        Epoch(self.completed.load(Ordering::Acquire))
    }
}

impl Check for PageMapper {
    fn check(&self) -> Result<(), Violation> {
        // An exchange of a block takes the books while it has the content: so not the other way round here.
        let shown: Vec<_> = {
            let books = lock(&self.books);
            books.shown.iter().map(|(&start, shown)| (start, Arc::clone(shown))).collect()
        };
        let mut mappings = 0;
        let mut spans = Vec::new();
        for (start, shown) in shown {
            let Content { blocks, mappings: taken } = &*shown.content();
            let pages = blocks.iter().map(|block| block.order.pages()).sum();
            Violation::unless_equal("1. an area shows its blocks", start, shown.pages, pages)?;
            let held = blocks.iter().all(|block| self.frames.is_held(block.pfn));
            Violation::unless("1. each block is held for its area", start, held)?;
            mappings += taken;
            spans.push((start, start + shown.pages));
        }
        let books = lock(&self.books);
        for (&start, stale) in books.stale.iter().chain(&books.owed) {
            let held = stale.blocks.iter().all(|block| self.frames.is_held(block.pfn));
            Violation::unless("1. each block is held for its area", start, held)?;
            mappings += stale.mappings;
            spans.push((start, stale.end));
        }
        spans.sort_unstable();
        let overlap = spans.windows(2).find(|two| two[0].1 > two[1].0);
        let at = overlap.map_or(0, |two| two[1].0);
        Violation::unless("3. areas do not overlap", at, overlap.is_none())?;
        Violation::unless_equal("4. mappings are counted", 0, mappings, books.mappings)
    }
}

impl Drop for PageMapper {
    fn drop(&mut self) {
        let books = std::mem::take(&mut *lock(&self.books));
        let shown = books.shown.into_iter();
        let shown =
            shown.map(|(start, shown)| (start, start + shown.pages, self.end(&shown).blocks));
        let stale = books.stale.into_iter().chain(books.owed);
        let stale = stale.map(|(start, stale)| (start, stale.end, stale.blocks));
        let all: Vec<_> = shown.chain(stale).collect();
        let pages = self.reserved.pages();
        // SAFETY: addresses are documented to end with the space.
        let whole = unsafe { self.reserved.hide(pages.start()..pages.end()) };
        for (start, end, blocks) in all {
            // SAFETY: as above.
            let hidden = whole.or_else(|_| unsafe { self.reserved.hide(start..end) });
            // Blocks that can still be reached are not handed out again.
            if hidden.is_ok() {
                self.release(&blocks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nofrag::cpu::CpuId;
    use nofrag::page::Migratetype;
    use nofrag::units::Order;

    use super::*;
    use crate::faults::{self, Call, Fault};
    use crate::frames::{FrameRequest, FramesConfig};

    /// One thread tries a refused flush again while another maps there: the new mapping stays.
    #[test]
    fn a_late_flush_takes_nothing_away_that_was_mapped_since() {
        let frames = Arc::new(Frames::new(&FramesConfig::new(4 << 20)).unwrap());
        let mapper =
            PageMapper::new(Arc::clone(&frames), Reserved::new(4 << 20, 4 << 20).unwrap(), 100);
        let here: CpuId = frames.owners().by_rank(0).unwrap();
        let take = || frames.alloc(here, FrameRequest::new(Order::ZERO, Migratetype::Unmovable));
        let [one, other] = [(), ()].map(|()| take().unwrap());
        let start = mapper.reserved.pages().start();
        let span = Span::sized(start, 1).unwrap();
        mapper.map(start, 1, &[one], Owner::Caller).unwrap();
        mapper.clear(span);
        let both = [Call::Mmap, Call::Mprotect].map(|call| Fault::always(call, Errno::NOMEM));
        let armed = faults::inject(both);
        mapper.flush(&[span]);
        drop(armed);
        // Here the one thread has chosen the pages, and not yet made the call.
        let flushing = lock(&mapper.flushing);
        let pages = mapper.begin_hiding(0).expect("it is owed");
        std::thread::scope(|scope| {
            let mapping = scope.spawn(|| mapper.map(start, 1, &[other], Owner::Caller));
            std::thread::sleep(Duration::from_millis(50));
            assert!(lock(&mapper.books).shown.is_empty(), "the other one waits");
            // SAFETY: no mapping there is in use.
            let hidden = unsafe { mapper.reserved.hide(pages.clone()) }.unwrap();
            mapper.strike(pages, hidden).iter().for_each(|blocks| mapper.release(blocks));
            mapper.hidden.notify_all();
            drop(flushing);
            assert_eq!(mapping.join().unwrap(), Ok(()));
        });
        assert!(lock(&mapper.books).owed.is_empty());
        assert_eq!(mapper.check(), Ok(()));
    }
}
