//! `map_ram` and `unmap_ram`: small mappings cut from blocks, large ones from the areas.

use super::blocks::{AreaSource, Arena};
use super::engine::{Claim, Miss, Scope, Wanted, Within};
use super::mapper::Mapper;
use super::nofrag::CpuPools;
use super::space::{Engine, VmapSpace};
use super::{
    AreaKind, BlockRecord, BlockStats, FreeAreaError, Guard, MapRamError, RamArea, UnmapRamError,
    Wait,
};
use crate::cpu::CpuId;
use crate::event::{Event, EventSink, Function};
use crate::ranges::{OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};
use alloc::vec::Vec;

/// What the caller has taken of its CPU, if it has a handle.
#[derive(Default)]
pub(super) struct Held<'a> {
    pub(super) pools: Option<&'a mut CpuPools>,
    pub(super) arena: Option<&'a mut Arena>,
}

/// A part of what was [`read`](VmapSpace::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Mapped pages: copy them.
    Live(Span),
    /// Pages without a mapping: zeros.
    Hole(Span),
}

/// What [`unmap_aliases`](VmapSpace::unmap_aliases) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AliasProgress {
    /// Blocks that were looked at.
    pub blocks: u64,
    /// Blocks that were given back.
    pub returned: u64,
    /// Areas that were flushed.
    pub areas: u64,
}

impl<M: Mapper, E: EventSink> VmapSpace<M, E> {
    /// Maps `context` at `pages` consecutive pages: a small mapping at a small price (Linux: `vm_map_ram`). Without a
    /// guard page. Up to the block geometry's `max_pages` the place is cut from a block of this CPU; above, it is an
    /// area of its own.
    ///
    /// When there is no place, everything is purged, and the search repeated; then the notifiers are asked.
    ///
    /// ```
    /// use nofrag::cpu::CpuSet;
    /// use nofrag::ranges::Span;
    /// use nofrag::vmap::{VmapConfig, VmapPolicy, VmapSpace};
    ///
    /// let cpus = CpuSet::first(2)?;
    /// let (here, there) = (cpus.by_rank(0).unwrap(), cpus.by_rank(1).unwrap());
    /// let span = Span::new(0x1000, 0x9000)?;
    /// let space = VmapSpace::new(VmapConfig { span, cpus, policy: VmapPolicy::NOFRAG }, (), ())?;
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

    /// As [`map_ram`](Self::map_ram), but never reclaims, flushes or asks: for callers that must not wait.
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

    /// On behalf of whoever holds the CPU.
    #[inline(always)]
    pub(super) fn map_ram_from(
        &self,
        cpu: CpuId,
        pools: &mut Option<CpuPools>,
        arena: &mut Option<Arena>,
        pages: u64,
        context: &M::Context,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        let start = match self.blocks.map_at_hand(arena.as_mut(), pages) {
            Some(start) => start,
            None => self.place_held(cpu, pools, arena, pages)?,
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

    /// As [`place_anywhere`](Self::place_anywhere): what that needs is not put together for a mapping at hand.
    #[cold]
    #[inline(never)]
    fn place_held(
        &self,
        cpu: CpuId,
        pools: &mut Option<CpuPools>,
        arena: &mut Option<Arena>,
        pages: u64,
    ) -> Result<u64, MapRamError<M::Error>> {
        let held = Held { pools: pools.as_mut(), arena: arena.as_mut() };
        self.place_anywhere(cpu, held, pages, Wait::MayReclaim)
    }

    /// The first page of a place for a mapping that is not at hand.
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
        let small = pages.wrapping_sub(1) < u64::from(self.policy.blocks.geometry.max_pages());
        if small && self.knows(cpu) {
            self.blocks.map(cpu, held.arena.as_deref_mut(), pages as u32, wait, self)
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

    fn wanted(&self, total: u64, align: u64, kind: AreaKind) -> Wanted {
        Wanted { total, guard: Guard::None, align, within: Within::Whole(self.span), kind }
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

    /// Gives back what a full purge had to leave with the caller.
    pub(super) fn purge_held(&self, cpu: CpuId, held: &mut Held<'_>) {
        if let Some(arena) = held.arena.as_deref_mut() {
            self.blocks.purge_arena(cpu, arena, self);
        }
        if let (Engine::Nofrag(engine), Some(pools)) = (&self.engine, held.pools.as_deref_mut()) {
            engine.settle(pools, cpu);
        }
    }

    /// Undoes a mapping that could not be installed, without a drain: the caller may be one who must not wait.
    #[cold]
    fn withdraw(&self, cpu: CpuId, area: RamArea) {
        const TAKEN: &str = "the place was just taken";
        if area.pages.get() <= u64::from(self.policy.blocks.geometry.max_pages()) {
            self.blocks.unmap(area, &Undrained(self)).expect(TAKEN);
        } else {
            self.retire(cpu, area.start, Claim::Ram(area.pages.get())).expect(TAKEN);
        }
    }

    /// Ends a mapping, whichever CPU made it. Its pages stay unusable until a flush.
    ///
    /// The size is verified, and a second unmapping refused.
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

    /// Ends a mapping that is not in one of our blocks, or says what is wrong.
    #[inline(never)]
    fn unmap_anyhow(&self, cpu: CpuId, area: RamArea) -> Result<(), UnmapRamError> {
        if !self.knows(cpu) {
            return Err(UnmapRamError::UnknownCpu);
        }
        let small = area.pages.get() <= u64::from(self.policy.blocks.geometry.max_pages());
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

    /// Names the reason why no mapping of that size starts there.
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
            Engine::Nofrag(engine) => engine.purge(Scope::AllAreas, around),
        };
        AliasProgress { blocks: aliases.visited, returned: aliases.returned, areas: purged.areas }
    }

    /// Walks `range` block by block and tells `sink` which pages are mapped, by ascending address, without gaps. What
    /// lies in no block is a hole. What is unmapped meanwhile may be told as live: a reader must survive that.
    pub fn read(&self, range: Span, mut sink: impl FnMut(Piece)) {
        let slots = u64::from(self.policy.blocks.geometry.slots());
        let mut told = range.start();
        let mut tell = |live: Span| {
            if told < live.start() {
                sink(Piece::Hole(Span::known(told, live.start())));
            }
            sink(Piece::Live(live));
            told = live.end();
        };
        let bounds = range.intersection(self.span);
        let (first, last) =
            bounds.map_or((1, 0), |part| (part.start() / slots, (part.end() - 1) / slots));
        for block in first..=last {
            self.blocks.for_each_live(block, &mut |live| {
                if let Some(live) = live.intersection(range) {
                    tell(live);
                }
            });
        }
        if told < range.end() {
            sink(Piece::Hole(Span::known(told, range.end())));
        }
    }

    /// How full the blocks are. O(blocks); takes their locks in turn.
    #[must_use]
    pub fn block_stats(&self) -> BlockStats {
        self.blocks.stats()
    }

    /// All blocks by ascending address. While other threads work it is a mixture of moments.
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
            Engine::Linux(engine) => engine.release_block(start),
            Engine::Nofrag(engine) => engine.release_block(start, slots),
        }
        self.events.record(Event::Left(Function::FreeBlock));
    }
}

/// The space, but a block that is freed makes no caller drain.
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
