//! `map_ram` and `unmap_ram`: small mappings cut from blocks, large ones from the areas.

use super::blocks::{AreaSource, Stock};
use super::engine::{Claim, Miss, Scope, ValidRequest, Within};
use super::mapper::{Mapper, flush_and_wait};
use super::sharded::CpuPools;
use super::space::{Engine, VmapSpace};
use super::{
    AreaKind, BlockRecord, BlockStats, FreeAreaError, Guard, MapRamError, RamArea, UnmapRamError,
    Wait,
};
use crate::cpu::CpuId;
use crate::event::{Event, EventSink, Function};
use crate::ranges::{AlignOne, OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};
use alloc::vec::Vec;
use core::ops::Range;

/// The pools and the stock of a CPU that a caller with a handle for it has taken.
#[derive(Default)]
pub(super) struct Held<'a> {
    pub(super) pools: Option<&'a mut CpuPools>,
    pub(super) stock: Option<&'a mut Stock>,
}

/// A part of a range that is [`read`](VmapSpace::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Mapped pages: a reader copies them.
    Live(Span),
    /// Pages without a mapping: a reader takes zeros for them.
    Hole(Span),
}

/// The outcome of a call of [`unmap_aliases`](VmapSpace::unmap_aliases).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AliasProgress {
    /// Blocks that were looked at.
    pub blocks: u64,
    /// Blocks that were given back.
    pub returned: u64,
    /// Areas that the call flushed.
    pub areas: u64,
}

impl<M: Mapper, E: EventSink> VmapSpace<M, E> {
    /// Maps `context` at `pages` consecutive pages: a small mapping at a small price (Linux: `vm_map_ram`). Without a
    /// guard page (docs/sources/vmap.md#v8). Up to the block geometry's `max_pages` the place is cut from a block of
    /// this CPU; above, and in a space without room for a single block, it is an area of its own.
    ///
    /// When there is no place, everything is purged, and the search repeated; then the notifiers are asked.
    ///
    /// ```
    /// use nofrag::cpu::CpuSet;
    /// use nofrag::ranges::Span;
    /// use nofrag::vmap::{VmapConfig, VmapSpace};
    ///
    /// let cpus = CpuSet::first(2)?;
    /// let (here, there) = (cpus.by_rank(0).unwrap(), cpus.by_rank(1).unwrap());
    /// let span = Span::new(0x1000, 0x9000)?;
    /// let space = VmapSpace::new(VmapConfig::new(span, cpus), (), ())?;
    /// let area = space.map_ram(here, 16, &())?;
    /// assert_eq!(area.pages.get(), 16);
    /// space.unmap_ram(there, area)?; // any CPU may
    /// assert!(space.unmap_ram(here, area).is_err()); // but once
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`MapRamError`].
    #[inline]
    pub fn map_ram(
        &self,
        cpu: CpuId,
        pages: u64,
        context: &M::Context,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        self.map_ram_waiting(cpu, pages, context, Wait::MayReclaim)
    }

    /// Maps as [`map_ram`](Self::map_ram) does, but never reclaims, flushes or asks: for callers that must not wait.
    ///
    /// # Errors
    /// See [`MapRamError`].
    #[inline]
    pub fn try_map_ram(
        &self,
        cpu: CpuId,
        pages: u64,
        context: &M::Context,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        self.map_ram_waiting(cpu, pages, context, Wait::Never)
    }

    /// Maps on behalf of a handle, which holds the CPU.
    #[inline(always)]
    pub(super) fn map_ram_from(
        &self,
        cpu: CpuId,
        pools: &mut Option<CpuPools>,
        stock: &mut Option<Stock>,
        pages: u64,
        context: &M::Context,
        wait: Wait,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        let start = match self.blocks.map_at_hand(stock.as_mut(), pages) {
            Some(start) => start,
            None => self.place_held(cpu, pools, stock, pages, wait)?,
        };
        self.install(cpu, start, pages, context)
    }

    #[inline(always)]
    fn map_ram_waiting(
        &self,
        cpu: CpuId,
        pages: u64,
        context: &M::Context,
        wait: Wait,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        let start = match self.blocks.map_at_hand_locked(cpu, pages) {
            Some(start) => start,
            None => self.place_anywhere(cpu, Held::default(), pages, wait)?,
        };
        self.install(cpu, start, pages, context)
    }

    #[inline(always)]
    fn install(
        &self,
        cpu: CpuId,
        start: u64,
        pages: u64,
        context: &M::Context,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        let area = RamArea { start: Vpn(start), pages: PageCount(pages) };
        match self.mapper.install(area, context) {
            Ok(()) => Ok(area),
            Err(why) => {
                self.withdraw(cpu, area);
                Err(MapRamError::Install(why))
            }
        }
    }

    /// Finds a place as [`place_anywhere`](Self::place_anywhere) does. Its [`Held`] is put together here, so that a
    /// mapping at hand does not pay for it.
    #[cold]
    #[inline(never)]
    fn place_held(
        &self,
        cpu: CpuId,
        pools: &mut Option<CpuPools>,
        stock: &mut Option<Stock>,
        pages: u64,
        wait: Wait,
    ) -> Result<u64, MapRamError<M::Error>> {
        let held = Held { pools: pools.as_mut(), stock: stock.as_mut() };
        self.place_anywhere(cpu, held, pages, wait)
    }

    /// Returns the first page of a place for a mapping that the fast path could not serve.
    #[inline(never)]
    fn place_anywhere(
        &self,
        cpu: CpuId,
        mut held: Held<'_>,
        pages: u64,
        wait: Wait,
    ) -> Result<u64, MapRamError<M::Error>> {
        match self.place(cpu, &mut held, pages, wait) {
            Ok(start) => Ok(start),
            Err(miss) => self.place_anyhow(cpu, held, pages, wait, miss),
        }
    }

    fn place(&self, cpu: CpuId, held: &mut Held<'_>, pages: u64, wait: Wait) -> Result<u64, Miss> {
        let small = pages.wrapping_sub(1) < self.max_small;
        if small && self.knows(cpu) {
            self.blocks.map(cpu, held.stock.as_deref_mut(), pages as u32, wait, self)
        } else {
            self.place_large(cpu, held.pools.as_deref_mut(), pages)
        }
    }

    fn place_large(
        &self,
        cpu: CpuId,
        pools: Option<&mut CpuPools>,
        pages: u64,
    ) -> Result<u64, Miss> {
        let nothing = Miss::NoFit { largest: 0 };
        if pages == 0 || pages > self.span.len() || !self.knows(cpu) {
            return Err(nothing); // `place_anyhow` says which
        }
        self.take_ram(cpu, pools, &self.wanted(pages, 1, AreaKind::Ram))
    }

    fn wanted(&self, total: u64, align: u64, kind: AreaKind) -> ValidRequest {
        // Linux asks for whole pages here, where `vmalloc` asks for bytes.
        let (align_one, within) = (AlignOne::Number, Within::Whole(self.span));
        ValidRequest { total, guard: Guard::None, align, align_one, within, kind }
    }

    #[cold]
    #[inline(never)]
    fn place_anyhow(
        &self,
        cpu: CpuId,
        mut held: Held<'_>,
        pages: u64,
        wait: Wait,
        miss: Miss,
    ) -> Result<u64, MapRamError<M::Error>> {
        if pages == 0 {
            return Err(MapRamError::ZeroSize);
        }
        if !self.knows(cpu) {
            return Err(MapRamError::UnknownCpu);
        }
        if pages > self.span.len() {
            return Err(self.exhausted().into());
        }
        let again = || {
            self.purge_held(cpu, &mut held);
            self.place(cpu, &mut held, pages, wait)
        };
        Ok(self.reclaim(pages, 1, wait, miss, again)?)
    }

    /// Gives back the idle blocks and pooled areas that a full purge had to leave with the caller.
    pub(super) fn purge_held(&self, cpu: CpuId, held: &mut Held<'_>) {
        if let Some(stock) = held.stock.as_deref_mut() {
            self.blocks.purge_stock(cpu, stock, self);
        }
        if let (Engine::Nofrag(engine), Some(pools)) = (&self.engine, held.pools.as_deref_mut()) {
            while engine.look_after_own(pools, cpu, Wait::MayReclaim, self.surroundings()) {}
            engine.settle(pools, cpu);
        }
    }

    /// Undoes a mapping that could not be installed, without a purge: the caller may be one that must not wait.
    #[cold]
    fn withdraw(&self, cpu: CpuId, area: RamArea) {
        // Any outcome will do: a thread that guessed, or kept, the number of this place may have unmapped it while it
        // was being installed. That is its mistake, and this thread's place is gone all the same.
        if area.pages.get() <= self.max_small {
            let _ = self.blocks.unmap(area, &Undrained(self));
        } else {
            let _ = self.retire(cpu, area.start, Claim::Ram(area.pages.get()));
        }
    }

    /// Ends a mapping, whichever CPU made it. Its pages stay unusable until a flush.
    ///
    /// The size is verified, and a second unmapping refused.
    ///
    /// The call may have to purge or flush, as [`free`](Self::free) may: after a mapping that is an area of its own; in
    /// Linux's presets after the last one in a block; in our engine when many slots wait whose owner does not look
    /// after them, unless the policy leaves that to [`step`](Self::step). Then a flush begins in this call.
    ///
    /// # Errors
    /// See [`UnmapRamError`]; nothing changed.
    #[inline]
    pub fn unmap_ram(&self, cpu: CpuId, area: RamArea) -> Result<(), UnmapRamError> {
        if self.knows(cpu) && self.blocks.unmap_at_hand(area, self) {
            return Ok(());
        }
        self.unmap_anyhow(cpu, area)
    }

    /// Ends a mapping that is not in one of our blocks (docs/sources/vmap.md#large-unmap), or names the error.
    #[inline(never)]
    fn unmap_anyhow(&self, cpu: CpuId, area: RamArea) -> Result<(), UnmapRamError> {
        if !self.knows(cpu) {
            return Err(UnmapRamError::UnknownCpu);
        }
        let small = area.pages.get() <= self.max_small;
        if small && self.span.contains(area.start.get()) {
            match self.blocks.unmap(area, self) {
                Err(UnmapRamError::NotMapped) => {}
                answer => return answer,
            }
        }
        let inside =
            area.start.get().checked_add(area.pages.get()).map(|end| end <= self.span.end());
        if !self.span.contains(area.start.get()) || inside != Some(true) {
            return Err(UnmapRamError::Foreign);
        }
        match self.retire(cpu, area.start, Claim::Ram(area.pages.get())) {
            Ok(retired) => {
                self.drain_if_due(&retired);
                Ok(())
            }
            Err(why) => Err(self.why_not_unmapped(area, why)),
        }
    }

    /// Names the reason why no mapping of this size starts at this place.
    fn why_not_unmapped(&self, area: RamArea, why: FreeAreaError) -> UnmapRamError {
        match self.find_any(area.start) {
            Some((found, AreaKind::Ram)) if found.start == area.start => {
                UnmapRamError::WrongSize { pages: found.pages }
            }
            Some((found, AreaKind::Ram)) => UnmapRamError::NotAStart { start: found.start },
            // A small mapping that is claimed to be large.
            Some((_, AreaKind::Block)) => match self.blocks.find(area.start.get()) {
                Some(found) if found.start == area.start => {
                    UnmapRamError::WrongSize { pages: found.pages }
                }
                Some(found) => UnmapRamError::NotAStart { start: found.start },
                None => UnmapRamError::NotMapped,
            },
            Some((_, AreaKind::Plain)) => UnmapRamError::NotMapped,
            None if why == FreeAreaError::DoubleFree => UnmapRamError::DoubleUnmap,
            None => UnmapRamError::NotMapped,
        }
    }

    /// Drops every stale translation: after it no cleared page of an area or a block that was freed before can be
    /// reached any more (Linux: `vm_unmap_aliases`). Gives idle blocks back, as the policy says.
    pub fn unmap_aliases(&self) -> AliasProgress {
        let _turn = self.blocks.alias_turn();
        let aliases = self.blocks.flush_aliases(self);
        let around = self.surroundings();
        let purged = match &self.engine {
            Engine::Linux(engine) => engine.purge_with(aliases.stale, around),
            Engine::Nofrag(engine) => {
                // Of Linux's blocks on our areas; ours have flushed theirs.
                if let Some(stale) = aliases.stale {
                    flush_and_wait(&self.mapper, &[stale]);
                }
                engine.purge(Scope::AllAreas, around)
            }
        };
        AliasProgress { blocks: aliases.visited, returned: aliases.returned, areas: purged.areas }
    }

    /// Walks `range` and tells `sink` which pages `map_ram` has mapped, by ascending address, without gaps. All else is
    /// a hole. Pages mapped or unmapped meanwhile may be told either way: a reader must survive that. No lock is held
    /// while `sink` runs.
    ///
    /// O(blocks and mappings in `range`). Where it meets no block, it also goes through the books of areas: once,
    /// unless more mappings lie there as areas of their own than it can note, which is 32 at a time.
    pub fn read(&self, range: Span, sink: impl FnMut(Piece)) {
        let slots = u64::from(self.policy.blocks.geometry.slots());
        let told = range.start();
        let mut reader = Reader { space: self, range, told, sink, large: Large::none_below(told) };
        let mut next = self.blocks.next_record(range.start() / slots);
        while let Some(block) = next.filter(|block| *block <= (range.end() - 1) / slots) {
            self.blocks.for_each_live(block, &mut |live| {
                reader.tell_large_below(live.start().min(range.end()));
                reader.tell(live);
            });
            next = self.blocks.next_record(block + 1);
        }
        reader.tell_large_below(range.end());
        reader.tell_hole_below(range.end());
    }

    /// Calls `visit` with every mapping that is an area of its own, in no order. A lock may be held.
    fn for_each_large(&self, visit: &mut dyn FnMut(Span)) {
        match &self.engine {
            Engine::Linux(engine) => engine.for_each_ram(visit),
            Engine::Nofrag(engine) => engine.for_each_ram(visit),
        }
    }

    /// Returns the use of the blocks. O(blocks); takes their locks in turn.
    #[must_use]
    pub fn block_stats(&self) -> BlockStats {
        self.blocks.stats()
    }

    /// Returns all blocks by ascending address. While other threads work, the list mixes states of different moments.
    ///
    /// # Errors
    /// [`OutOfMetadata`] when there is no memory for the list.
    pub fn blocks(&self) -> Result<Vec<BlockRecord>, OutOfMetadata> {
        let mut blocks = Vec::new();
        self.blocks.collect(&mut blocks)?;
        blocks.sort_unstable_by_key(|record| record.start);
        Ok(blocks)
    }
}

/// Number of large mappings that a reader notes in one pass over the books.
const LARGE_AT_A_TIME: usize = 32;

/// The lowest large mappings of which a reader has not told yet.
struct Large {
    noted: [(u64, u64); LARGE_AT_A_TIME],
    /// The part of `noted` of which the reader has not told yet.
    left: Range<usize>,
    /// Every page below this one was looked at: no other large mapping is there.
    known_to: u64,
}

impl Large {
    fn none_below(known_to: u64) -> Large {
        Large { noted: [(0, 0); LARGE_AT_A_TIME], left: 0..0, known_to }
    }

    /// Notes a mapping in the order of addresses; the highest one falls out if there is no room.
    fn note(&mut self, area: Span) {
        let at = self.noted[..self.left.end].partition_point(|&(start, _)| start < area.start());
        if at < LARGE_AT_A_TIME {
            self.left.end = LARGE_AT_A_TIME.min(self.left.end + 1);
            self.noted[at..self.left.end].rotate_right(1);
            self.noted[at] = (area.start(), area.end());
        }
    }
}

/// The state of one [`read`](VmapSpace::read).
struct Reader<'a, M, E, F> {
    space: &'a VmapSpace<M, E>,
    range: Span,
    /// The first page of which the sink was not told.
    told: u64,
    sink: F,
    large: Large,
}

impl<M: Mapper, E: EventSink, F: FnMut(Piece)> Reader<'_, M, E, F> {
    /// Tells the part of `live` that lies ahead: a place that changes hands meanwhile may be met twice.
    fn tell(&mut self, live: Span) {
        let (start, end) = (live.start().max(self.told), live.end().min(self.range.end()));
        if start < end {
            self.tell_hole_below(start);
            (self.sink)(Piece::Live(Span::known(start, end)));
            self.told = end;
        }
    }

    fn tell_hole_below(&mut self, end: u64) {
        if self.told < end {
            (self.sink)(Piece::Hole(Span::known(self.told, end)));
            self.told = end;
        }
    }

    /// Tells the large mappings that start between the pages told so far and `end`.
    fn tell_large_below(&mut self, end: u64) {
        while self.told < end {
            if let Some(at) = self.large.left.next() {
                let (start, area_end) = self.large.noted[at];
                if start >= end {
                    self.large.left.start = at;
                    return;
                }
                self.tell(Span::known(start, area_end));
            } else if self.large.known_to >= end {
                return;
            } else {
                self.look_ahead();
            }
        }
    }

    /// Finds out for at least one more page which large mapping covers it, if any. No noted mapping is left.
    fn look_ahead(&mut self) {
        let at = self.told.max(self.large.known_to);
        if let Some((area, kind)) = self.space.find_any(Vpn(at)) {
            let area = area.span();
            self.large = Large::none_below(area.end());
            if kind == AreaKind::Ram {
                self.large.note(area);
            }
            return;
        }
        self.large = Large::none_below(self.range.end());
        let large = &mut self.large;
        let mut passed_over = false;
        self.space.for_each_large(&mut |area| {
            if at < area.end() && area.start() < large.known_to {
                passed_over |= large.left.end == LARGE_AT_A_TIME;
                large.note(area);
            }
        });
        if passed_over {
            large.known_to = large.noted[LARGE_AT_A_TIME - 1].1;
        }
    }
}

const ON_THE_BOOKS: &str = "the block is on the books";

impl<M: Mapper, E: EventSink> AreaSource for VmapSpace<M, E> {
    type Mapper = M;

    fn mapper(&self) -> &M {
        &self.mapper
    }

    fn take_block(&self, cpu: CpuId) -> Result<u64, Miss> {
        let slots = u64::from(self.policy.blocks.geometry.slots());
        let wanted = self.wanted(slots, slots, AreaKind::Block);
        self.events.record(Event::Entered(Function::AllocBlockArea));
        let block = match &self.engine {
            Engine::Linux(_) => self.take_ram(cpu, None, &wanted),
            Engine::Nofrag(engine) => engine.take_block(cpu, &wanted),
        };
        self.events.record(Event::Left(Function::AllocBlockArea));
        block
    }

    fn retire_block(&self, cpu: CpuId, start: u64) {
        self.events.record(Event::Entered(Function::FreeBlock));
        let retired = self.retire(cpu, Vpn(start), Claim::Block).expect(ON_THE_BOOKS);
        self.drain_if_due(&retired);
        self.events.record(Event::Left(Function::FreeBlock));
    }

    fn release_block(&self, start: u64) {
        let slots = u64::from(self.policy.blocks.geometry.slots());
        self.events.record(Event::Entered(Function::FreeBlock));
        match &self.engine {
            Engine::Linux(engine) => {
                engine.cancel(start, Claim::Block).expect(ON_THE_BOOKS);
            }
            Engine::Nofrag(engine) => engine.release_block(start, slots),
        }
        self.events.record(Event::Left(Function::FreeBlock));
    }
}

/// The space as a source of areas, except that a freed block never makes the caller purge.
struct Undrained<'a, M, E>(&'a VmapSpace<M, E>);

impl<M: Mapper, E: EventSink> AreaSource for Undrained<'_, M, E> {
    type Mapper = M;

    fn mapper(&self) -> &M {
        self.0.mapper()
    }

    fn take_block(&self, cpu: CpuId) -> Result<u64, Miss> {
        self.0.take_block(cpu)
    }

    fn retire_block(&self, cpu: CpuId, start: u64) {
        self.0.events.record(Event::Entered(Function::FreeBlock));
        self.0.retire(cpu, Vpn(start), Claim::Block).expect(ON_THE_BOOKS);
        self.0.events.record(Event::Left(Function::FreeBlock));
    }

    fn release_block(&self, start: u64) {
        self.0.release_block(start);
    }
}
