//! The concurrent face: validates, finds a way when space runs out, drains, and forwards to the engine.

use super::blocks::{Blocks, Stock};
use super::counters::{VmapCounters, VmapStats};
use super::engine::{
    AreaRecord, Claim, LazyCount, Miss, Purged, Retired, Scope, Surroundings, ValidRequest, Within,
};
use super::free_space::Pieces;
use super::linux::Linux;
use super::ram::Held;
use super::sharded::{CpuPools, LockedPools, Next, Sharded};
use super::{
    Area, AreaError, AreaKind, AreaRequest, AreaState, BlockIndex, BlockPolicy, Busy, ConfigError,
    Drain, DrainYield, FreeAreaError, Freed, GroupError, Guard, HandOverError, Layout, LazyStore,
    LoadError, MapRamError, Mapper, Notifier, Pools, RamArea, Reuse, UnmapRamError, VmapConfig,
    VmapPolicy, Wait,
};
use crate::check::{Check, Violation};
use crate::cpu::{CpuId, CpuSet};
use crate::event::{Event, EventSink};
use crate::lists::{made, put, put_all};
use crate::ranges::{OutOfMetadata, Span};
use crate::sync::{AtomicBool, Mutex, Ordering, Rank};
use crate::units::{PageCount, Vpn};
use alloc::vec::Vec;

/// The most pages that the records can count.
const MAX_SPAN_PAGES: u64 = 1 << 45;

/// The most CPUs that the records can name.
const MAX_CPUS: usize = 1 << 14;

/// Hands out areas of virtual pages to many CPUs.
///
/// 1. No page belongs to two areas.
/// 2. A page that was freed is handed out again only after a flush that covers it has completed ([`Mapper::flush`]).
/// 3. Every busy area is found by each of its pages.
///
/// `Send + Sync`: every method takes `&self` and may be called from any thread. `cpu` names the CPU whose pools and
/// counters are used; two threads that name the same CPU are correct and wait for each other.
///
/// `M` is the memory behind the page numbers, `E` receives the events; by default both do nothing.
///
/// ```
/// use nofrag::cpu::CpuSet;
/// use nofrag::ranges::Span;
/// use nofrag::vmap::{AreaRequest, VmapConfig, VmapSpace};
///
/// let cpus = CpuSet::first(2)?;
/// let cpu = cpus.by_rank(0).expect("the set has two CPUs");
/// let span = Span::new(0x1000, 0x9000)?;
/// let space = VmapSpace::new(VmapConfig::new(span, cpus), (), ())?;
/// let area = space.alloc(cpu, &AreaRequest::new(4))?;
/// assert_eq!(area.total_pages().get(), 5); // a guard page follows
/// assert_eq!(space.free(cpu, area.start)?, area);
/// assert_eq!(space.lazy_pages().get(), 5); // unusable until a purge
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct VmapSpace<M = (), E = ()> {
    pub(super) span: Span,
    cpus: CpuSet,
    pub(super) policy: VmapPolicy,
    /// Pages of the largest mapping that is cut from a block; 0 where no block has room.
    pub(super) max_small: u64,
    pub(super) lazy: LazyCount,
    pub(super) engine: Engine,
    pub(super) blocks: Blocks,
    held: Vec<AtomicBool>,
    notifiers: Mutex<Notifiers>,
    pub(super) mapper: M,
    pub(super) events: E,
}

/// The engine, chosen once by [`Layout`]. There is one per space, and an indirection would cost every operation.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(super) enum Engine {
    Linux(Linux),
    Nofrag(Sharded),
}

/// Calls the same method on whichever engine is in use.
macro_rules! on_engine {
    ($engine:expr, $it:ident => $call:expr) => {
        match $engine {
            Engine::Linux($it) => $call,
            Engine::Nofrag($it) => $call,
        }
    };
}

#[derive(Default)]
struct Notifiers(Vec<&'static dyn Notifier>);

impl core::fmt::Debug for Notifiers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} notifiers", self.0.len())
    }
}

/// The limit of one step of the purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Largest number of areas to purge.
    pub areas: usize,
}

/// The outcome of a step of the purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Areas that were flushed and made allocatable.
    pub areas: u64,
    /// Number of pages of these areas.
    pub pages: u64,
    /// True if lazy areas remain.
    pub more: bool,
}

impl Progress {
    fn add(&mut self, purged: Purged) {
        self.areas += purged.areas;
        self.pages += purged.pages;
        self.more = purged.more;
    }
}

impl<M: Mapper, E: EventSink> VmapSpace<M, E> {
    /// Returns a space whose pages are all free.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: VmapConfig, mapper: M, events: E) -> Result<VmapSpace<M, E>, ConfigError> {
        if config.cpus.is_empty() {
            return Err(ConfigError::NoCpus);
        }
        if config.cpus.len() > MAX_CPUS {
            return Err(ConfigError::TooManyCpus);
        }
        if config.span.len() > MAX_SPAN_PAGES {
            return Err(ConfigError::SpanTooLarge);
        }
        must_agree(&config.policy)?;
        let lazy_limit = config.policy.lazy_limit.pages(config.cpus.len());
        let engine = match config.policy.layout {
            Layout::Shards => Engine::Nofrag(Sharded::new(&config, lazy_limit)?),
            Layout::OneLock | Layout::SplitLocks | Layout::Nodes => {
                Engine::Linux(Linux::new(&config)?)
            }
        };
        let blocks = Blocks::new(&config)?;
        let geometry = config.policy.blocks.geometry;
        let slots = u64::from(geometry.slots());
        let block_fits = config.span.lowest_fit(slots, slots).is_some();
        let max_small = if block_fits { u64::from(geometry.max_pages()) } else { 0 };
        let held = made(config.cpus.len(), || AtomicBool::new(false));
        let held = held.map_err(|_| ConfigError::OutOfMetadata)?;
        Ok(VmapSpace {
            span: config.span,
            lazy: LazyCount::new(lazy_limit, config.cpus.len())?,
            cpus: config.cpus,
            policy: config.policy,
            max_small,
            engine,
            blocks,
            held,
            notifiers: Mutex::new(Rank::Notifiers, Notifiers::default()),
            mapper,
            events,
        })
    }

    /// Takes an area that serves `request`.
    ///
    /// When there is no place and the request may reclaim: everything is purged, pools included, and the search
    /// repeated; then the notifiers are asked, as long as one reports progress (docs/sources/vmap.md#overflow).
    ///
    /// # Errors
    /// See [`AreaError`].
    #[inline]
    pub fn alloc(&self, cpu: CpuId, request: &AreaRequest) -> Result<Area, AreaError> {
        let Engine::Nofrag(engine) = &self.engine else { return self.alloc_anyhow(cpu, request) };
        let Some(mut locked) = engine.lock_pools(cpu) else {
            return self.alloc_anyhow(cpu, request);
        };
        match locked.as_mut().and_then(|pools| engine.pop(pools, cpu, request)) {
            Some(area) => {
                drop(locked);
                self.note_alloc(&area, request.align);
                Ok(area)
            }
            None => self.alloc_missed(engine, locked, cpu, request),
        }
    }

    /// Allocates after the CPU's pools, still locked, had nothing at hand.
    #[inline(never)]
    fn alloc_missed(
        &self,
        engine: &Sharded,
        mut locked: LockedPools<'_>,
        cpu: CpuId,
        request: &AreaRequest,
    ) -> Result<Area, AreaError> {
        let wanted = self.validate(cpu, request)?;
        let found = match locked.as_mut() {
            Some(pools) => engine.alloc_slow(pools, cpu, &wanted),
            None => Err(Miss::CpuHeld),
        };
        drop(locked);
        self.answer(cpu, request, &wanted, found)
    }

    #[inline(never)]
    fn alloc_anyhow(&self, cpu: CpuId, request: &AreaRequest) -> Result<Area, AreaError> {
        let wanted = self.validate(cpu, request)?;
        let found = on_engine!(&self.engine, engine => engine.alloc(cpu, &wanted));
        self.answer(cpu, request, &wanted, found)
    }

    /// Returns the area that was found; after a miss it reclaims and tries again.
    #[inline]
    fn answer(
        &self,
        cpu: CpuId,
        request: &AreaRequest,
        wanted: &ValidRequest,
        found: Result<Area, Miss>,
    ) -> Result<Area, AreaError> {
        match found {
            Ok(area) => {
                self.note_alloc(&area, request.align);
                Ok(area)
            }
            Err(miss) => {
                let again = || on_engine!(&self.engine, engine => engine.alloc(cpu, wanted));
                self.overflow(request, wanted, miss, again)
            }
        }
    }

    /// Takes an area for `map_ram`, which reclaims by itself.
    pub(super) fn take_ram(
        &self,
        cpu: CpuId,
        pools: Option<&mut CpuPools>,
        wanted: &ValidRequest,
    ) -> Result<u64, Miss> {
        let area = match (&self.engine, pools) {
            (Engine::Nofrag(engine), Some(pools)) => engine.alloc_slow(pools, cpu, wanted)?,
            (engine, _) => on_engine!(engine, engine => engine.alloc(cpu, wanted))?,
        };
        self.note_alloc(&area, wanted.align);
        Ok(area.start.get())
    }

    fn validate(&self, cpu: CpuId, request: &AreaRequest) -> Result<ValidRequest, AreaError> {
        if request.pages == 0 {
            return Err(AreaError::ZeroSize);
        }
        if !request.align.is_power_of_two() {
            return Err(AreaError::AlignNotPowerOfTwo);
        }
        if !self.knows(cpu) {
            return Err(AreaError::UnknownCpu);
        }
        let within = match request.within {
            None => Within::Whole(self.span),
            Some(part) => match part.intersection(self.span) {
                None => return Err(AreaError::OutsideSpace),
                Some(whole) if whole == self.span => Within::Whole(whole),
                Some(part) => Within::Part(part),
            },
        };
        let (Within::Whole(bounds) | Within::Part(bounds)) = within;
        match request.pages.checked_add(request.guard.pages()) {
            Some(total) if total <= bounds.len() => {
                let AreaRequest { guard, align, align_one, .. } = *request;
                Ok(ValidRequest { total, guard, align, align_one, within, kind: AreaKind::Plain })
            }
            _ => Err(self.exhausted()),
        }
    }

    /// Returns true if the space has a CPU at this position. The id is not compared, which would cost a load on every
    /// call: a CPU only selects the pools that are used.
    #[inline(always)]
    pub(super) fn knows(&self, cpu: CpuId) -> bool {
        cpu.rank() < self.cpus.len()
    }

    #[inline]
    pub(super) fn note_alloc(&self, area: &Area, align: u64) {
        let (start, pages) = (area.start, area.total_pages());
        self.events.record(Event::AreaAllocated { start, pages, align });
    }

    #[cold]
    pub(super) fn exhausted(&self) -> AreaError {
        let largest = on_engine!(&self.engine, engine => engine.largest_hole());
        AreaError::Exhausted { largest }
    }

    /// Reclaims after a miss, as the request allows, and tries `again`; returns the area, or the reason for the
    /// failure.
    #[cold]
    #[inline(never)]
    fn overflow(
        &self,
        request: &AreaRequest,
        wanted: &ValidRequest,
        miss: Miss,
        again: impl FnMut() -> Result<Area, Miss>,
    ) -> Result<Area, AreaError> {
        let ValidRequest { total, align, .. } = *wanted;
        let area = self.reclaim(total, align, request.wait, miss, again)?;
        self.note_alloc(&area, align);
        Ok(area)
    }

    /// Makes space, as `wait` allows, and tries `again` until there is a place or no notifier has anything to give.
    #[cold]
    #[inline(never)]
    pub(super) fn reclaim<T>(
        &self,
        pages: u64,
        align: u64,
        wait: Wait,
        miss: Miss,
        mut again: impl FnMut() -> Result<T, Miss>,
    ) -> Result<T, AreaError> {
        let pages = PageCount(pages);
        let mut miss = miss;
        if wait == Wait::MayReclaim && matches!(miss, Miss::NoFit { .. }) {
            loop {
                self.purge_all();
                match again() {
                    Ok(found) => return Ok(found),
                    Err(why) => miss = why,
                }
                let no_place = matches!(miss, Miss::NoFit { .. });
                if !no_place || self.ask_notifiers(pages) == Freed::Nothing {
                    break;
                }
            }
        }
        self.events.record(Event::AreaRefused { pages, align });
        Err(match miss {
            Miss::CpuHeld => AreaError::CpuHeld,
            Miss::OutOfMetadata => AreaError::OutOfMetadata,
            Miss::NoFit { .. } if wait == Wait::Never && self.has_reclaimable() => {
                AreaError::WouldBlock
            }
            Miss::NoFit { largest } => AreaError::Exhausted { largest },
        })
    }

    /// Returns true if a request that may reclaim could find more space than there is now.
    fn has_reclaimable(&self) -> bool {
        let stats = self.stats();
        stats.lazy_areas + stats.pooled_areas > 0
            || self.blocks.has_reclaimable()
            || !self.notifiers.lock().0.is_empty()
    }

    /// Asks every notifier, with no lock held; returns [`Freed::Something`] if any gave areas back.
    fn ask_notifiers(&self, pages: PageCount) -> Freed {
        let mut answer = Freed::Nothing;
        for index in 0.. {
            let Some(notifier) = self.notifiers.lock().0.get(index).copied() else { break };
            if notifier.out_of_space(pages) == Freed::Something {
                answer = Freed::Something;
            }
        }
        answer
    }

    /// Adds a notifier to the end of the chain that is asked when space runs out.
    ///
    /// # Errors
    /// [`OutOfMetadata`]; nothing changed.
    pub fn register_notifier(&self, notifier: &'static dyn Notifier) -> Result<(), OutOfMetadata> {
        let mut chain = self.notifiers.lock();
        chain.0.try_reserve(1)?;
        put(&mut chain.0, notifier);
        Ok(())
    }

    /// Frees the area that starts at `start`, whichever CPU allocated it. Its pages stay unusable until a purge; if too
    /// many wait for one, this call purges some, as the policy's [`Drain`] says.
    ///
    /// # Errors
    /// See [`FreeAreaError`]; nothing changed.
    #[inline]
    pub fn free(&self, cpu: CpuId, start: Vpn) -> Result<Area, FreeAreaError> {
        let retired = self.retire(cpu, start, Claim::Plain)?;
        self.drain_if_due(&retired);
        Ok(retired.area)
    }

    /// Frees as [`free`](Self::free) does, but never purges: for callers that must not wait (Linux: `vfree_atomic`).
    ///
    /// # Errors
    /// See [`FreeAreaError`]; nothing changed.
    #[inline]
    pub fn free_deferred(&self, cpu: CpuId, start: Vpn) -> Result<Area, FreeAreaError> {
        self.retire(cpu, start, Claim::Plain).map(|retired| retired.area)
    }

    /// Takes back an allocation that was never used: nothing was mapped in the area that starts at `start`, so no
    /// translation can be stale, and its pages are allocatable at once, without a flush.
    ///
    /// # Errors
    /// See [`FreeAreaError`]; nothing changed.
    pub fn cancel(&self, start: Vpn) -> Result<Area, FreeAreaError> {
        if !self.span.contains(start.get()) {
            return Err(FreeAreaError::Foreign);
        }
        let (start, claim) = (start.get(), Claim::Unused);
        match &self.engine {
            Engine::Linux(engine) => engine.cancel(start, claim),
            Engine::Nofrag(engine) => engine.cancel(start, claim, self.surroundings()),
        }
    }

    #[inline(always)]
    pub(super) fn drain_if_due(&self, retired: &Retired) {
        if retired.lazy_pages > self.lazy.limit && self.policy.drain == Drain::ByFreer {
            self.drain();
        }
    }

    #[inline(always)]
    pub(super) fn retire(
        &self,
        cpu: CpuId,
        start: Vpn,
        claim: Claim,
    ) -> Result<Retired, FreeAreaError> {
        if !self.knows(cpu) {
            return Err(FreeAreaError::UnknownCpu);
        }
        if start.get().wrapping_sub(self.span.start()) >= self.span.len() {
            return Err(FreeAreaError::Foreign);
        }
        let around = self.surroundings();
        let retired =
            on_engine!(&self.engine, engine => engine.retire(start.get(), claim, around))?;
        self.events.record(Event::AreaFreed {
            start,
            lazy: PageCount(retired.lazy_pages),
            limit: self.lazy_limit(),
        });
        Ok(retired)
    }

    #[inline(always)]
    pub(super) fn surroundings(&self) -> Surroundings<'_, M, E> {
        Surroundings { mapper: &self.mapper, events: &self.events, lazy: &self.lazy }
    }

    /// Purges for a freeing caller above the lazy limit, unless a purge runs already.
    #[cold]
    #[inline(never)]
    fn drain(&self) {
        let around = self.surroundings();
        match &self.engine {
            Engine::Linux(engine) => drop(engine.try_purge(Scope::Areas(usize::MAX), around)),
            Engine::Nofrag(engine) => engine.drain_slice(around),
        }
    }

    /// Returns true if more pages await their flush than the limit allows, or slots of blocks have awaited theirs for
    /// too long.
    #[inline]
    #[must_use]
    pub fn drain_wanted(&self) -> bool {
        self.lazy.shared() > self.lazy.limit || self.blocks.is_overdue()
    }

    /// Purges at most `budget.areas` areas. Goes on beyond the budget while twice the lazy limit waits, if the policy's
    /// [`DrainYield`] says so: otherwise frees outrun the purge.
    pub fn step(&self, budget: Budget) -> Progress {
        self.blocks.drain_overdue(self);
        let mut progress = Progress::default();
        loop {
            let scope = Scope::Areas(budget.areas.max(1));
            let purged = on_engine!(&self.engine, it => it.purge(scope, self.surroundings()));
            progress.add(purged);
            if !purged.more || !self.must_catch_up() {
                return progress;
            }
        }
    }

    fn must_catch_up(&self) -> bool {
        self.policy.drain_yield == DrainYield::BelowTwiceLimit
            && self.lazy.shared() >= self.lazy.limit.saturating_mul(2)
    }

    /// Purges everything: gives back every block without a live slot, then flushes all areas and empties the pools
    /// (Linux: the full reclaim).
    pub fn purge_all(&self) -> Progress {
        let mut progress = Progress::default();
        self.blocks.purge_idle(self);
        let around = self.surroundings();
        progress.add(on_engine!(&self.engine, it => it.purge(Scope::Everything, around)));
        progress
    }

    /// Returns the busy area that covers `at`, by its first page or any other, the guard page included. Inside a block:
    /// the mapping that covers it, as an area of the CPU that owns the block.
    #[must_use]
    pub fn find(&self, at: Vpn) -> Option<Area> {
        let (area, kind) = self.find_any(at)?;
        if kind != AreaKind::Block {
            return Some(area);
        }
        let RamArea { start, pages } = self.blocks.find(at.get())?;
        Some(Area { start, pages, ..area })
    }

    /// Returns the area that covers `at`, blocks included.
    pub(super) fn find_any(&self, at: Vpn) -> Option<(Area, AreaKind)> {
        if !self.span.contains(at.get()) {
            return None;
        }
        on_engine!(&self.engine, engine => engine.find(at.get()))
    }

    /// Allocates one area for each piece `base + offsets[i]`, of `sizes[i]` pages and without guard pages, at the
    /// highest `base` in the space where all fit; all or nothing. The base is a multiple of `align`. For per-CPU data,
    /// whose copies must lie at the same distances everywhere (Linux: `pcpu_get_vm_areas`).
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn alloc_group(
        &self,
        cpu: CpuId,
        offsets: &[u64],
        sizes: &[u64],
        align: u64,
    ) -> Result<Vpn, GroupError> {
        validate_group(offsets, sizes, align)?;
        if !self.knows(cpu) {
            return Err(GroupError::UnknownCpu);
        }
        let pieces = Pieces { offsets, sizes };
        let attempt =
            || on_engine!(&self.engine, it => it.alloc_group(cpu, self.span, pieces, align));
        let base = match attempt() {
            Err(Miss::NoFit { .. }) => {
                self.purge_all();
                attempt()
            }
            other => other,
        };
        match base {
            Ok(base) => Ok(Vpn(base)),
            Err(Miss::OutOfMetadata) => Err(GroupError::OutOfMetadata),
            Err(Miss::NoFit { .. } | Miss::CpuHeld) => Err(GroupError::Exhausted),
        }
    }

    /// Frees the areas of a group.
    ///
    /// # Errors
    /// The reason for the first piece that is not a busy area; then nothing changed, unless another thread frees the
    /// same pieces meanwhile.
    pub fn free_group(&self, cpu: CpuId, base: Vpn, offsets: &[u64]) -> Result<(), FreeAreaError> {
        if !self.knows(cpu) {
            return Err(FreeAreaError::UnknownCpu);
        }
        let start_of = |offset: &u64| base.get().checked_add(*offset).map(Vpn);
        for (index, offset) in offsets.iter().enumerate() {
            if offsets[..index].contains(offset) {
                return Err(FreeAreaError::DoubleFree);
            }
            let start = start_of(offset).ok_or(FreeAreaError::Foreign)?;
            match self.find_any(start) {
                Some((_, AreaKind::Ram | AreaKind::Block)) => return Err(FreeAreaError::IsRam),
                Some((area, AreaKind::Plain)) if area.start == start => {}
                Some((area, AreaKind::Plain)) => {
                    return Err(FreeAreaError::NotAStart { start: area.start });
                }
                None if !self.span.contains(start.get()) => return Err(FreeAreaError::Foreign),
                None => return Err(FreeAreaError::NotAllocated),
            }
        }
        for start in offsets.iter().filter_map(start_of) {
            self.free(cpu, start)?;
        }
        Ok(())
    }

    /// Puts an area that was captured elsewhere, busy or lazy, exactly at `span`, as if `cpu` had allocated it; the
    /// last page is the guard page, if it has one. Pooled areas are loaded as lazy ones.
    ///
    /// # Errors
    /// See [`LoadError`]; nothing changed.
    pub fn load_area(
        &self,
        cpu: CpuId,
        span: Span,
        guard: Guard,
        state: AreaState,
    ) -> Result<(), LoadError> {
        if !self.knows(cpu) {
            return Err(LoadError::UnknownCpu);
        }
        if !self.span.covers(span) {
            return Err(LoadError::Foreign);
        }
        if span.len() <= guard.pages() {
            return Err(LoadError::Taken);
        }
        let lazy = state != AreaState::Busy;
        if lazy {
            self.lazy.add(span.len());
        }
        let loaded = on_engine!(&self.engine, engine => engine.load(cpu, span, guard, state));
        if lazy && loaded.is_err() {
            self.lazy.subtract(span.len());
        }
        loaded
    }

    /// Takes the fast path of one CPU: the handle allocates and frees with `&mut self` and, under [`Layout::Shards`],
    /// without a locked operation as long as the CPU's pools serve it. Under the other layouts it forwards.
    ///
    /// # Errors
    /// [`Busy`] if another handle for the same CPU is out, or the CPU is not one of the space's.
    pub fn cpu(&self, cpu: CpuId) -> Result<CpuHandle<'_, M, E>, Busy> {
        let claim = self.claim(cpu)?;
        let pools = match &self.engine {
            Engine::Linux(_) => None,
            Engine::Nofrag(engine) => engine.take_pools(cpu),
        };
        let stock = self.blocks.take_stock(cpu);
        Ok(CpuHandle { space: self, cpu, pools, stock, _claim: claim })
    }

    /// Keeps others from taking the CPU while the claim lives.
    fn claim(&self, cpu: CpuId) -> Result<CpuClaim<'_>, Busy> {
        let held = self.held.get(cpu.rank()).ok_or(Busy::UnknownCpu)?;
        match held.swap(true, Ordering::Acquire) {
            true => Err(Busy::Held),
            false => Ok(CpuClaim(held)),
        }
    }

    /// Hands the blocks of a CPU that goes away over to another CPU: with their free slots, and with those that become
    /// free once they are unmapped, which any thread may do meanwhile. Idle blocks are given back instead. Returns the
    /// number of blocks that were handed over.
    ///
    /// [`find`](Self::find) still names the CPU that took the block. Waits for flushes. While it works, `from` maps
    /// nothing ([`MapRamError::CpuHeld`]); `to` does. Linux has nothing of the kind: in its presets free slots stay
    /// with their CPU until the block is idle and purged, and the answer is 0.
    ///
    /// ```
    /// # use nofrag::cpu::CpuSet;
    /// # use nofrag::ranges::Span;
    /// # use nofrag::vmap::{VmapConfig, VmapSpace};
    /// # let cpus = CpuSet::first(2)?;
    /// # let (leaving, staying) = (cpus.by_rank(0).unwrap(), cpus.by_rank(1).unwrap());
    /// # let span = Span::new(0x1000, 0x9000)?;
    /// # let space = VmapSpace::new(VmapConfig::new(span, cpus), (), ())?;
    /// let left_behind = space.map_ram(leaving, 1, &())?;
    /// assert_eq!(space.hand_over(leaving, staying)?, 1);
    /// let beside = space.map_ram(staying, 1, &())?;
    /// assert_eq!(beside.start.get() / 1024, left_behind.start.get() / 1024); // the same block
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`HandOverError`]; a CPU may not hand over to itself ([`HandOverError::Held`]).
    pub fn hand_over(&self, from: CpuId, to: CpuId) -> Result<u64, HandOverError> {
        let mut source = self.cpu(from)?;
        let _target = self.claim(to)?;
        let stock = source.stock.as_mut();
        Ok(stock.map_or(Ok(0), |stock| self.blocks.hand_over(from, stock, to, self))?)
    }

    /// Returns the counts since construction. Takes every lock in turn.
    #[must_use]
    pub fn counters(&self) -> VmapCounters {
        let mut counters = self.area_counters();
        self.blocks.add_counters(&mut counters);
        counters
    }

    /// Returns the counts of areas alone. O(CPUs); those of blocks take a walk over a table as large as the space.
    #[must_use]
    pub fn area_counters(&self) -> VmapCounters {
        let mut counters = VmapCounters::default();
        on_engine!(&self.engine, engine => engine.add_counters(&mut counters));
        counters
    }

    /// Returns the numbers of pages and areas in each state. O(areas); takes every lock in turn.
    #[must_use]
    pub fn stats(&self) -> VmapStats {
        let mut stats = VmapStats::default();
        on_engine!(&self.engine, engine => engine.add_stats(&mut stats));
        stats
    }

    /// Returns the number of pages that await their flush.
    #[must_use]
    pub fn lazy_pages(&self) -> PageCount {
        PageCount(self.lazy.pages())
    }

    /// Returns the number of pages that may await their flush before a purge begins.
    #[must_use]
    pub fn lazy_limit(&self) -> PageCount {
        PageCount(self.lazy.limit)
    }

    /// Returns the pages that the space hands out.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the CPUs that may use the space.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Returns the policy of the space.
    #[must_use]
    pub fn policy(&self) -> &VmapPolicy {
        &self.policy
    }

    /// Returns the mapper, the memory behind the page numbers.
    #[must_use]
    pub fn mapper(&self) -> &M {
        &self.mapper
    }

    /// Returns every area on the books, busy, lazy or pooled, by ascending address. While other threads work, the list
    /// mixes states of different moments.
    ///
    /// # Errors
    /// [`OutOfMetadata`] when there is no memory for the list.
    pub fn areas(&self) -> Result<Vec<AreaRecord>, OutOfMetadata> {
        let mut areas = Vec::new();
        on_engine!(&self.engine, engine => engine.collect(&mut areas))?;
        areas.sort_unstable_by_key(|record| record.area.start);
        Ok(areas)
    }

    /// Returns the free ranges by ascending address: the pages that the index can hand out, without lazy and pooled
    /// areas.
    ///
    /// # Errors
    /// [`OutOfMetadata`] when there is no memory for the list.
    pub fn holes(&self) -> Result<Vec<Span>, OutOfMetadata> {
        let mut holes = Vec::new();
        let mut full = false;
        on_engine!(&self.engine, engine => engine.for_each_hole(&mut |hole| {
            match holes.try_reserve(1) {
                Ok(()) => put(&mut holes, hole),
                Err(_) => full = true,
            }
        }));
        if full { Err(OutOfMetadata) } else { Ok(holes) }
    }
}

impl<M: Mapper, E: EventSink> Check for VmapSpace<M, E> {
    /// Verifies the engine's laws, and that areas and free ranges tile the space. Only meaningful while no other thread
    /// works. Reports no violation when there is no memory for the lists.
    fn check(&self) -> Result<(), Violation> {
        on_engine!(&self.engine, engine => engine.check())?;
        self.blocks.check()?;
        let (Ok(areas), Ok(holes)) = (self.areas(), self.holes()) else { return Ok(()) };
        let mut tiles: Vec<Span> = Vec::new();
        if tiles.try_reserve(areas.len() + holes.len()).is_err() {
            return Ok(());
        }
        put_all(&mut tiles, areas.iter().map(|record| record.area.span()));
        put_all(&mut tiles, holes);
        tiles.sort_unstable();
        let mut end = self.span.start();
        for tile in tiles {
            let law = "areas and free ranges tile the space";
            Violation::unless_equal(law, tile.start(), end, tile.start())?;
            end = tile.end();
        }
        Violation::unless_equal("areas and free ranges fill the space", 0, self.span.end(), end)?;
        let lazy = areas.iter().filter(|record| record.state == AreaState::Lazy);
        let mut pages = lazy.map(|record| record.area.total_pages().get()).sum::<u64>();
        if let Engine::Nofrag(engine) = &self.engine {
            pages += engine.counted_twice();
        }
        Violation::unless_equal("lazy pages are counted", 0, pages, self.lazy.pages())?;
        for record in areas.iter().filter(|record| record.state == AreaState::Busy) {
            let last = Vpn(record.area.span().end() - 1);
            let law = "every busy area is found by each of its pages";
            let found = self.find_any(last).map(|(area, _)| area) == Some(record.area);
            Violation::unless(law, last.get(), found)?;
        }
        Ok(())
    }
}

/// The fast path of one CPU; see [`VmapSpace::cpu`]. Dropping it gives the CPU back.
#[derive(Debug)]
pub struct CpuHandle<'a, M: Mapper = (), E: EventSink = ()> {
    space: &'a VmapSpace<M, E>,
    cpu: CpuId,
    /// Under [`Layout::Shards`]: the CPU's pools, which the handle has taken out of the space.
    pools: Option<CpuPools>,
    /// Under [`BlockIndex::Direct`](super::BlockIndex::Direct): the CPU's blocks, taken out too.
    stock: Option<Stock>,
    /// The claim on the CPU; it ends after everything was put back.
    _claim: CpuClaim<'a>,
}

/// The right to a CPU, for as long as the claim lives.
#[derive(Debug)]
struct CpuClaim<'a>(&'a AtomicBool);

impl Drop for CpuClaim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<M: Mapper, E: EventSink> CpuHandle<'_, M, E> {
    /// Allocates as [`VmapSpace::alloc`] does.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn alloc(&mut self, request: &AreaRequest) -> Result<Area, AreaError> {
        if let (Engine::Nofrag(engine), Some(pools)) = (&self.space.engine, &mut self.pools)
            && let Some(area) = engine.pop_own(pools, self.cpu, request)
        {
            self.space.note_alloc(&area, request.align);
            return Ok(area);
        }
        self.alloc_anyhow(request)
    }

    #[inline(never)]
    fn alloc_anyhow(&mut self, request: &AreaRequest) -> Result<Area, AreaError> {
        let CpuHandle { space, cpu, pools, stock, .. } = self;
        let (Engine::Nofrag(engine), Some(pools)) = (&space.engine, pools) else {
            return space.alloc(*cpu, request);
        };
        let wanted = space.validate(*cpu, request)?;
        while engine.look_after_own(pools, *cpu, request.wait, space.surroundings()) {
            if let Some(area) = engine.pop_own(pools, *cpu, request) {
                space.note_alloc(&area, request.align);
                return Ok(area);
            }
        }
        match engine.alloc_slow(pools, *cpu, &wanted) {
            Ok(area) => {
                space.note_alloc(&area, request.align);
                Ok(area)
            }
            Err(miss) => {
                let again = || {
                    let mut held = Held { pools: Some(&mut *pools), stock: stock.as_mut() };
                    space.purge_held(*cpu, &mut held);
                    engine.alloc_slow(pools, *cpu, &wanted)
                };
                space.overflow(request, &wanted, miss, again)
            }
        }
    }

    /// Maps as [`VmapSpace::map_ram`] does.
    ///
    /// # Errors
    /// See [`MapRamError`].
    #[inline]
    pub fn map_ram(
        &mut self,
        pages: u64,
        context: &M::Context,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        self.map_ram_waiting(pages, context, Wait::MayReclaim)
    }

    /// Maps as [`VmapSpace::try_map_ram`] does.
    ///
    /// # Errors
    /// See [`MapRamError`].
    #[inline]
    pub fn try_map_ram(
        &mut self,
        pages: u64,
        context: &M::Context,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        self.map_ram_waiting(pages, context, Wait::Never)
    }

    #[inline(always)]
    fn map_ram_waiting(
        &mut self,
        pages: u64,
        context: &M::Context,
        wait: Wait,
    ) -> Result<RamArea, MapRamError<M::Error>> {
        let CpuHandle { space, cpu, pools: own_pools, stock, .. } = self;
        space.map_ram_from(*cpu, own_pools, stock, pages, context, wait)
    }

    /// Unmaps as [`VmapSpace::unmap_ram`] does; without a locked operation if this handle, or an earlier one of its
    /// CPU, has made the mapping in a block, and the mapper clears nothing.
    ///
    /// The handle keeps the pages until it next takes room from outside the block at hand: they count as dirty, are
    /// flushed by [`unmap_aliases`](VmapSpace::unmap_aliases), and others who unmap them again may be told
    /// [`NotMapped`](UnmapRamError::NotMapped). It keeps 64 runs at most, of 256 pages or a little more.
    ///
    /// # Errors
    /// See [`UnmapRamError`]; nothing changed. An unmapping that comes after another one is refused. Of two at the same
    /// time, one of them by the handle, both may be told that it is done: the pages are freed once.
    #[inline]
    pub fn unmap_ram(&mut self, area: RamArea) -> Result<(), UnmapRamError> {
        let CpuHandle { space, cpu, stock, .. } = self;
        if space.blocks.unmap_own(stock.as_mut(), *cpu, area, *space) {
            return Ok(());
        }
        self.unmap_anyhow(area)
    }

    #[cold]
    #[inline(never)]
    fn unmap_anyhow(&mut self, area: RamArea) -> Result<(), UnmapRamError> {
        let CpuHandle { space, cpu, stock, .. } = self;
        let keeps = |stock: &Stock| space.blocks.keeps(stock, *cpu, area.start.get());
        match space.unmap_ram(*cpu, area) {
            Err(UnmapRamError::NotMapped) if stock.as_ref().is_some_and(keeps) => {
                Err(UnmapRamError::DoubleUnmap)
            }
            answer => answer,
        }
    }

    /// Frees as [`VmapSpace::free`] does; without a locked operation if this handle, or an earlier one of its CPU, has
    /// allocated the area, and the policy lets frees purge ([`Drain::ByFreer`]).
    ///
    /// Such areas are this CPU's until they are free: others may free them, which posts them to it, and this handle
    /// flushes what comes back. It keeps at most a quarter of [`lazy_limit`](VmapSpace::lazy_limit) from its own frees,
    /// besides what others have freed since it last allocated from outside its pools. Pages that it keeps count as
    /// lazy, are flushed by [`unmap_aliases`](VmapSpace::unmap_aliases), and are anybody's once it is dropped.
    ///
    /// # Errors
    /// See [`FreeAreaError`]; nothing changed. A free that comes after another one is refused. Of two at the same time,
    /// one of them by the handle, both may be told that it is done: the area is freed once.
    pub fn free(&mut self, start: Vpn) -> Result<Area, FreeAreaError> {
        let CpuHandle { space, cpu, pools, .. } = self;
        if let (Engine::Nofrag(engine), Some(pools)) = (&space.engine, pools)
            && let Some((retired, next)) =
                engine.retire_own(pools, *cpu, start.get(), space.surroundings())
        {
            let lazy = PageCount(retired.lazy_pages);
            space.events.record(Event::AreaFreed { start, lazy, limit: space.lazy_limit() });
            if next == Next::LookAfterOwn {
                self.look_after_own();
            }
            return Ok(retired.area);
        }
        self.space.free(self.cpu, start)
    }

    #[cold]
    #[inline(never)]
    fn look_after_own(&mut self) {
        if let (Engine::Nofrag(engine), Some(pools)) = (&self.space.engine, &mut self.pools) {
            let wait = Wait::MayReclaim;
            engine.look_after_own(pools, self.cpu, wait, self.space.surroundings());
        }
    }

    /// Returns the CPU of the handle.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }
}

impl<M: Mapper, E: EventSink> Drop for CpuHandle<'_, M, E> {
    fn drop(&mut self) {
        if let (Engine::Nofrag(engine), Some(pools)) = (&self.space.engine, self.pools.take()) {
            engine.put_pools(self.cpu, pools, &self.space.lazy);
        }
        if let Some(stock) = self.stock.take() {
            self.space.blocks.put_stock(self.cpu, stock, self.space);
        }
    }
}

/// Refuses values of a policy that do not go together.
fn must_agree(policy: &VmapPolicy) -> Result<(), ConfigError> {
    let in_busy_index = policy.lazy == LazyStore::InBusyIndex;
    if in_busy_index != (policy.layout == Layout::OneLock) {
        let why = "lazy areas stay in the busy index under one lock, and only there";
        return Err(ConfigError::Contradiction(why));
    }
    if (policy.layout == Layout::Shards) != (policy.pools == Pools::ByDemand)
        && policy.pools != Pools::Off
    {
        return Err(ConfigError::Contradiction("pools by demand belong to shards"));
    }
    if policy.lazy == LazyStore::Merged && policy.pools != Pools::Off {
        return Err(ConfigError::Contradiction("merged lazy areas have no identity to pool"));
    }
    if matches!(policy.pools, Pools::ExactSize(_)) && policy.layout != Layout::Nodes {
        return Err(ConfigError::Contradiction("exact-size pools belong to nodes"));
    }
    let BlockPolicy { index, reuse, .. } = policy.blocks;
    if index == BlockIndex::Direct && policy.layout != Layout::Shards {
        return Err(ConfigError::Contradiction("directly indexed blocks belong to shards"));
    }
    if reuse == Reuse::FlushEpoch && index != BlockIndex::Direct {
        let why = "slots are recycled one by one only in directly indexed blocks";
        return Err(ConfigError::Contradiction(why));
    }
    if policy.layout == Layout::Shards && policy.lazy != LazyStore::Separate {
        return Err(ConfigError::Contradiction("shards keep lazy areas separate"));
    }
    Ok(())
}

fn validate_group(offsets: &[u64], sizes: &[u64], align: u64) -> Result<(), GroupError> {
    if offsets.is_empty() || offsets.len() != sizes.len() {
        return Err(GroupError::Mismatched);
    }
    if sizes.contains(&0) {
        return Err(GroupError::ZeroSize);
    }
    if !align.is_power_of_two() || offsets.iter().any(|offset| offset & (align - 1) != 0) {
        return Err(GroupError::Misaligned);
    }
    let span_of = |index: usize| Span::sized(offsets[index], sizes[index]);
    for index in 0..offsets.len() {
        let Ok(piece) = span_of(index) else { return Err(GroupError::Exhausted) };
        for earlier in 0..index {
            let other = span_of(earlier).expect("its end was computed in an earlier round");
            if piece.intersection(other).is_some() {
                return Err(GroupError::Overlapping);
            }
        }
    }
    Ok(())
}
