//! nofrag's own engine: pools per CPU, books in shards by address, a purge in bounded slices.
//!
//! * **Allocate**: pop the CPU's pool of the exact size and publish the area's new word; one lock, that of the CPU, or
//!   none through a handle. On a miss take over what purges have put into the CPU's inbox; then go to the free ranges.
//! * **Free**, from any CPU: look the first page up in its shard, turn its word from busy to lazy, append it to the
//!   shard's list; one lock, that of the shard. A handle frees what it has allocated without any (see [`own`]).
//! * **Purge**, in steps: detach up to [`DETACH_MAX`] areas; flush them as up to [`FLUSH_RANGES`] disjoint ranges;
//!   return them in slices of at most [`AREAS_PER_HOLD`] per hold of a lock. They go to the pools of the CPU that
//!   allocated them, or to its inbox while another thread holds these. Areas that find no room there go to the free
//!   ranges: struck off the books, sorted and joined *before* the lock is taken, at most [`RUNS_PER_HOLD`] ranges per
//!   hold.
//!
//! A freeing caller above the limit does one such slice, so no free is long; only at twice the limit does it wait for a
//! purge that is running. An area stays on the books from leaving the free ranges to returning there, so the common
//! path touches them only to look up. Locks nest purge > CPU > inbox, shard, free ranges; the last three never in each
//! other.
//!
//! What it must reach: docs/sources/vmap.md#bounded-purge, vmap.md#pools-by-demand and vmap.md#no-reentrance.

mod books;
mod own;
mod pools;
mod table;
mod word;

use self::books::{AreaBooks, Freed, ShardBooks};
use self::own::Hull;
pub(super) use self::own::Next;
pub(super) use self::pools::CpuPools;
use self::pools::{AREAS_PER_HOLD, Batch, Flushed, POOL_MAX_PAGES, Pushed};
use self::word::{AreaWord, Ender, LAST_OF_MAIL, UNCLAIMED};
use super::counters::{PurgeCounters, VmapCounters, VmapStats};
use super::engine::{
    AreaRecord, Claim, LazyCount, Miss, Purged, Retired, Scope, Surroundings, ValidRequest, Within,
    not_a_start,
};
use super::flush::{FLUSH_RANGES, FlushPlan};
use super::free_space::{FreeSpace, Pieces};
use super::mapper::wait_for;
use super::{
    Area, AreaKind, AreaRequest, AreaState, BlockGeometry, Drain, Epoch, FreeAreaError, Guard,
    LoadError, Mapper, Pools, VmapConfig,
};
use crate::check::Violation;
use crate::cpu::{CpuId, CpuSet};
use crate::event::{Event, EventSink};
use crate::lists::{put, put_all};
use crate::ranges::{AlignClasses, Config, OutOfMetadata, Span, TakeError};
use crate::sync::{AtomicBool, AtomicU64, Guard as LockGuard, Mutex, Ordering, Padded, Rank};
use crate::units::{PageCount, Vpn};
use alloc::vec::Vec;

/// The most areas that one flush serves.
const DETACH_MAX: usize = 1024;

/// The most ranges that are given back under one hold of the lock of the free ranges. Their number, not that of the
/// areas, decides how long the hold lasts.
const RUNS_PER_HOLD: usize = 16;

/// Flushes between two decays of the pools. A size that is asked for a few times per flush must not lose its areas for
/// having been lucky once.
const FLUSHES_PER_DECAY: u64 = 8;

/// nofrag's own engine of areas.
///
/// 1. A page is in the free ranges or in exactly one area on the books.
/// 2. Every area on the books is handed out, on one list of lazy areas, detached, in one inbox, or in one pool.
/// 3. An area is in an inbox or a pool only after a flush has covered it.
#[derive(Debug)]
pub(super) struct Sharded {
    /// The first page of the space; the engine counts all pages from it.
    base: u64,
    cpus: CpuSet,
    pooling: bool,
    /// True if handles own what they allocate: not where the policy leaves every flush to the steps of a purge.
    owning: bool,
    /// Largest number of pages that a CPU's pools may hold, and its inbox as many.
    pool_bound: u64,
    per_cpu: Vec<Padded<Cpu>>,
    books: AreaBooks,
    /// Around all that was loaded: it goes to pools, too.
    loaded: Hull,
    free: Padded<Mutex<FreeSpace>>,
    purge: Padded<Mutex<Purge>>,
    /// Counts flushes: the clock by which pools decay.
    flushes: AtomicU64,
}

#[derive(Debug)]
struct Cpu {
    /// The CPU's pools; `None` while a handle has them.
    pools: Mutex<Option<CpuPools>>,
    inbox: Mutex<Inbox>,
    /// Set under the inbox's lock when areas come in, cleared under it by who finds it empty.
    has_mail: AtomicBool,
    /// Set by a full purge while a handle has the pools: the handle gives them back at its next slow path.
    give_back: AtomicBool,
    /// The last of the areas that others have freed and the owner of the pools has not seen.
    mail: AtomicU64,
    /// Number of areas of the CPU that others are freeing, or have freed and the owner has not seen.
    claims: AtomicU64,
    /// Around all that was ever allocated for the CPU, by who has its pools.
    hull: Hull,
}

#[derive(Debug, Default)]
struct Inbox {
    areas: Vec<Flushed>,
    pages: u64,
}

#[derive(Debug)]
struct Purge {
    /// Detached and flushed areas that are not returned yet. Has room for [`DETACH_MAX`].
    flushed: Vec<Freed>,
    /// The flush of these areas, which may take a while to complete.
    awaited: Epoch,
    /// Room for the areas of one slice.
    batch: Batch,
    /// The ranges that the next flush covers.
    plan: FlushPlan,
    /// The shard at which the next detachment begins.
    cursor: usize,
    counters: PurgeCounters,
}

/// The pools of a CPU under their lock; `None` while a handle has them.
pub(super) type LockedPools<'a> = LockGuard<'a, Option<CpuPools>>;

type ShardGuard<'a> = LockGuard<'a, ShardBooks>;

/// The destination of flushed areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// To the pools of the CPUs that allocated them, as far as those have room.
    Pools,
    FreeRanges,
}

/// Alignments that the free ranges serve in O(log n), besides that of blocks: 64 pages, and 512 pages, a huge page of 2
/// MiB.
const ALIGN_CLASSES: [u32; 2] = [6, 9];

/// Returns the alignment classes of the free ranges: [`ALIGN_CLASSES`] and the size of a block.
fn align_classes(blocks: BlockGeometry) -> AlignClasses {
    let mut exponents = [0; ALIGN_CLASSES.len() + 1];
    let block = blocks.slots().ilog2();
    let count = ALIGN_CLASSES.len() + usize::from(!ALIGN_CLASSES.contains(&block));
    for (place, exponent) in exponents.iter_mut().zip(ALIGN_CLASSES.into_iter().chain([block])) {
        *place = exponent as u8;
    }
    let exponents = &mut exponents[..count];
    exponents.sort_unstable();
    AlignClasses::new(exponents).expect("ascending exponents below 31")
}

impl Sharded {
    pub(super) fn new(config: &VmapConfig, lazy_limit: u64) -> Result<Sharded, OutOfMetadata> {
        let align_classes = align_classes(config.policy.blocks.geometry);
        let index = Config { index: config.policy.index, align_classes, size_index: false };
        let count = config.cpus.len();
        let mut per_cpu = Vec::new();
        per_cpu.try_reserve_exact(count)?;
        for _ in 0..count {
            put(
                &mut per_cpu,
                Padded(Cpu {
                    pools: Mutex::new(Rank::Cpu, Some(CpuPools::new(config.span)?)),
                    inbox: Mutex::new(Rank::Inbox, Inbox::default()),
                    has_mail: AtomicBool::new(false),
                    give_back: AtomicBool::new(false),
                    mail: AtomicU64::new(LAST_OF_MAIL),
                    claims: AtomicU64::new(0),
                    hull: Hull::empty(),
                }),
            );
        }
        let mut flushed = Vec::new();
        flushed.try_reserve_exact(DETACH_MAX)?;
        let purge = Purge {
            flushed,
            awaited: Epoch::default(),
            batch: Batch::new(),
            plan: FlushPlan::new(config.span),
            cursor: 0,
            counters: PurgeCounters::default(),
        };
        Ok(Sharded {
            base: config.span.start(),
            cpus: config.cpus.copied()?,
            pooling: config.policy.pools == Pools::ByDemand,
            owning: config.policy.drain == Drain::ByFreer,
            // Four times what a purge returns keeps misses rare when sizes vary; no CPU may keep much of a small space.
            pool_bound: lazy_limit
                .saturating_mul(4)
                .min(config.span.len() / (8 * count as u64))
                .max(POOL_MAX_PAGES),
            per_cpu,
            loaded: Hull::empty(),
            books: AreaBooks::new(count)?,
            free: Padded(Mutex::new(Rank::Free, FreeSpace::new(index, config.span)?)),
            purge: Padded(Mutex::new(Rank::Purge, purge)),
            flushes: AtomicU64::new(0),
        })
    }

    #[inline(always)]
    fn area(&self, offset: u64, word: AreaWord) -> Area {
        let cpu = self.cpus.by_rank(word.cpu() as usize).expect("a word names one of the CPUs");
        let pages = PageCount(word.total() - word.guard().pages());
        Area { start: Vpn(self.base + offset), pages, guard: word.guard(), cpu }
    }

    /// Takes the lock of the CPU's pools, which a handle may have.
    #[inline(always)]
    pub(super) fn lock_pools(&self, cpu: CpuId) -> Option<LockedPools<'_>> {
        Some(self.per_cpu.get(cpu.rank())?.pools.lock())
    }

    /// Takes an area at hand from pools that the caller holds, if the request is valid and asks for the whole space:
    /// the fast path.
    ///
    /// For any obstacle the answer is `None`, and the slow path finds out the reason. So nothing here needs an address,
    /// and everything stays in registers.
    #[inline(always)]
    pub(super) fn pop(
        &self,
        pools: &mut CpuPools,
        cpu: CpuId,
        request: &AreaRequest,
    ) -> Option<Area> {
        self.pop_until(Ender::Anyone, pools, cpu, request)
    }

    /// Does the same for a handle, which owns the area where the policy lets it.
    #[inline(always)]
    pub(super) fn pop_own(
        &self,
        pools: &mut CpuPools,
        cpu: CpuId,
        request: &AreaRequest,
    ) -> Option<Area> {
        self.pop_until(pools.own.ender, pools, cpu, request)
    }

    #[inline(always)]
    fn pop_until(
        &self,
        ender: Ender,
        pools: &mut CpuPools,
        cpu: CpuId,
        request: &AreaRequest,
    ) -> Option<Area> {
        let AreaRequest { pages, align, guard, .. } = *request;
        if request.within.is_some() || pages == 0 || !align.is_power_of_two() {
            return None;
        }
        let total = pages.checked_add(guard.pages())?;
        let word = AreaWord::busy_until(ender, total, guard, cpu.rank() as u32);
        let start = self.pop_pooled(pools, total, align, word)?;
        Some(Area { start, pages: PageCount(pages), guard, cpu })
    }

    #[inline(always)]
    fn pop_pooled(
        &self,
        pools: &mut CpuPools,
        total: u64,
        align: u64,
        word: AreaWord,
    ) -> Option<Vpn> {
        let pooled = pools.pop(self.base, total, align)?;
        // Pairs with the load in `retire`: a thread that learnt of the area reads its new word.
        self.books.cell(pooled.slot).word.store(word.0, Ordering::Release);
        if word.has_owner() {
            pools.own.note(pooled.offset, pooled.slot);
        }
        Some(Vpn(self.base + pooled.offset))
    }

    pub(super) fn alloc(&self, cpu: CpuId, wanted: &ValidRequest) -> Result<Area, Miss> {
        let mut pools = self.per_cpu[cpu.rank()].pools.lock();
        match pools.as_mut() {
            Some(pools) => self.alloc_slow(pools, cpu, wanted),
            None => Err(Miss::CpuHeld),
        }
    }

    /// Allocates for a caller that holds the CPU's pools, after these had nothing at hand.
    pub(super) fn alloc_slow(
        &self,
        pools: &mut CpuPools,
        cpu: CpuId,
        wanted: &ValidRequest,
    ) -> Result<Area, Miss> {
        let settled = self.settle(pools, cpu);
        let ValidRequest { total, guard, align, within, kind, .. } = *wanted;
        let ender = match kind {
            AreaKind::Plain if total <= u64::from(u32::MAX) => pools.own.ender,
            _ => Ender::Anyone,
        };
        let word = AreaWord::busy_until(ender, total, guard, cpu.rank() as u32).for_kind(kind);
        if settled
            && let Within::Whole(_) = within
            && let Some(start) = self.pop_pooled(pools, total, align, word)
        {
            return Ok(self.area(start.get() - self.base, word));
        }
        pools.counters.misses += u64::from(total <= POOL_MAX_PAGES);
        let (area, slot) = self.cut(word, wanted)?;
        let offset = area.start.get() - self.base;
        self.per_cpu[cpu.rank()].hull.widen(offset, offset + total);
        pools.own.note(offset, slot);
        pools.slow_allocs += 1;
        Ok(area)
    }

    /// Takes an area out of the free ranges and enters it into the books.
    fn cut(&self, word: AreaWord, wanted: &ValidRequest) -> Result<(Area, u32), Miss> {
        let span = self.free.lock().take(&wanted.request())?;
        let offset = span.start() - self.base;
        match self.books.register(offset, word) {
            Ok(slot) => Ok((self.area(offset, word), slot)),
            Err(why) => {
                self.free.lock().give(span, 1);
                Err(why.into())
            }
        }
    }

    /// Takes an area for a block. Blocks are too large for pools, so the holder of these need not be asked.
    pub(super) fn take_block(&self, cpu: CpuId, wanted: &ValidRequest) -> Result<u64, Miss> {
        let ValidRequest { total, guard, kind, .. } = *wanted;
        let word = AreaWord::busy(total, guard, cpu.rank() as u32).for_kind(kind);
        self.cut(word, wanted).map(|(area, _)| area.start.get())
    }

    /// Gives the area of a block back at once: it has no live slot, and everything in it was flushed.
    pub(super) fn release_block(&self, start: u64, pages: u64) {
        let mut batch = Batch::new();
        batch.push(start - self.base, pages);
        self.give_back(&mut batch);
    }

    /// Moves the CPU's inbox into its pools and gives surplus areas back, or all of them if a full purge asked for
    /// that. Returns false if there was nothing to do.
    #[inline]
    pub(super) fn settle(&self, pools: &mut CpuPools, cpu: CpuId) -> bool {
        let cpu = &self.per_cpu[cpu.rank()];
        let epoch = self.epoch();
        let asked = cpu.give_back.load(Ordering::Relaxed);
        // The inbox's lock orders what comes; mail that is missed here is found the next time.
        let any = asked || pools.must_decay(epoch) || cpu.has_mail.load(Ordering::Relaxed);
        if any {
            self.settle_now(pools, cpu, epoch);
        }
        any
    }

    #[cold]
    #[inline(never)]
    fn settle_now(&self, pools: &mut CpuPools, cpu: &Cpu, epoch: u64) {
        let mut batch = Batch::new();
        self.empty_inbox(pools, cpu, &mut batch);
        if cpu.give_back.load(Ordering::Relaxed) {
            cpu.give_back.store(false, Ordering::Relaxed);
            self.give_all_back(pools, &mut batch);
        }
        pools.decay(epoch, &mut batch);
        self.give_back(&mut batch);
    }

    fn epoch(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed) / FLUSHES_PER_DECAY
    }

    /// Moves areas from the inbox to the pools, and those for which the pools have no room to `batch`.
    fn empty_inbox(&self, pools: &mut CpuPools, cpu: &Cpu, batch: &mut Batch) {
        for _ in 0..DETACH_MAX / AREAS_PER_HOLD {
            let mut inbox = cpu.inbox.lock();
            for _ in 0..batch.room() {
                let Some(area) = inbox.areas.pop() else {
                    cpu.has_mail.store(false, Ordering::Relaxed);
                    return;
                };
                let Flushed { offset, total, slot } = area;
                let total = u64::from(total);
                inbox.pages -= total;
                if pools.push(offset, total, slot, self.pool_bound) == Pushed::Refused {
                    batch.push(offset, total);
                }
            }
        }
    }

    /// Empties the pools into the free ranges.
    fn give_all_back(&self, pools: &mut CpuPools, batch: &mut Batch) {
        loop {
            pools.drain(batch);
            if batch.is_empty() {
                return;
            }
            self.give_back(batch);
        }
    }

    /// Strikes the areas of `batch` off the books, joins neighbours, and returns them to the free ranges.
    fn give_back(&self, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        for &(offset, total) in batch.areas() {
            self.books.deregister(offset, total);
        }
        batch.sort();
        let mut runs = [(Span::known(0, 1), 0); AREAS_PER_HOLD];
        let mut count = 0;
        for &(offset, total) in batch.areas() {
            let start = self.base + offset;
            let span = Span::known(start, start + total);
            match runs[..count].last_mut() {
                Some((run, areas)) if run.end() == start => {
                    *run = Span::known(run.start(), span.end());
                    *areas += 1;
                }
                _ => {
                    runs[count] = (span, 1);
                    count += 1;
                }
            }
        }
        for hold in runs[..count].chunks(RUNS_PER_HOLD) {
            let mut free = self.free.lock();
            for &(run, areas) in hold {
                free.give(run, areas);
            }
            let areas = hold.iter().map(|&(_, areas)| areas as u64).sum();
            free.note_hold(areas, hold.len() as u64);
        }
        batch.clear();
    }

    /// Gives a busy area back at once, if the claim about it is right: nothing was ever mapped there.
    pub(super) fn cancel<M: Mapper, E: EventSink>(
        &self,
        start: u64,
        claim: Claim,
        around: Surroundings<'_, M, E>,
    ) -> Result<Area, FreeAreaError> {
        let offset = start - self.base;
        let mut shard = self.books.lock(offset);
        let Some(slot) = shard.slot_at(offset) else {
            drop(shard);
            return Err(self.why_not_freed(offset));
        };
        let word = self.word(slot);
        if word.has_owner() {
            let retired = self.retire_owned(shard, slot, word, claim, around);
            return retired.map(|retired| retired.area);
        }
        self.end_busy(slot, word, claim)?;
        shard.frees += 1;
        drop(shard);
        let mut batch = Batch::new();
        batch.push(offset, word.total());
        self.give_back(&mut batch);
        Ok(self.area(offset, word))
    }

    /// Marks the area of a slot as idle, if its word says that it is busy and the claim about it is right. The shard is
    /// locked: two frees of one area meet there, and the second one finds it idle. Nobody owns the area, so a word that
    /// is read as busy stays.
    #[inline(always)]
    fn end_busy(&self, slot: u32, word: AreaWord, claim: Claim) -> Result<(), FreeAreaError> {
        self.must_be_busy(word, claim)?;
        self.books.cell(slot).word.store(word.as_idle().0, Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn must_be_busy(&self, word: AreaWord, claim: Claim) -> Result<(), FreeAreaError> {
        if !word.is_busy() {
            return Err(FreeAreaError::DoubleFree);
        }
        match claim.refuted_by(word.kind(), word.total() - word.guard().pages()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn word(&self, slot: u32) -> AreaWord {
        AreaWord(self.books.cell(slot).word.load(Ordering::Acquire))
    }

    /// Frees the busy area that starts at `start`, if the claim about it is right: it becomes lazy.
    #[inline(always)]
    pub(super) fn retire<M: Mapper, E: EventSink>(
        &self,
        start: u64,
        claim: Claim,
        around: Surroundings<'_, M, E>,
    ) -> Result<Retired, FreeAreaError> {
        let offset = start - self.base;
        let mut shard = self.books.lock(offset);
        let Some(slot) = shard.slot_at(offset) else {
            drop(shard);
            return Err(self.why_not_freed(offset));
        };
        let word = self.word(slot);
        if word.has_owner() {
            return self.retire_owned(shard, slot, word, claim, around);
        }
        self.end_busy(slot, word, claim)?;
        shard.frees += 1;
        if M::CLEARS && claim.clears() {
            drop(shard);
            around.mapper.clear(self.area(offset, word).span());
            shard = self.books.lock(offset);
        }
        let freed = Freed { offset, total: word.total(), slot, pool: word.pool() };
        let lazy_pages = around.lazy.add(freed.total);
        put(&mut shard.lazy, freed);
        drop(shard);
        Ok(Retired { area: self.area(offset, word), lazy_pages })
    }

    #[cold]
    #[inline(never)]
    fn why_not_freed(&self, offset: u64) -> FreeAreaError {
        let covering = self.books.covering(offset);
        not_a_start(covering.map(|(start, _)| Vpn(self.base + start)))
    }

    /// Returns the busy area that covers `at`, and its purpose.
    pub(super) fn find(&self, at: u64) -> Option<(Area, AreaKind)> {
        let (offset, word) = self.books.covering(at - self.base)?;
        Some((self.area(offset, word), word.kind()))
    }

    /// Flushes lazy areas and makes them allocatable.
    pub(super) fn purge<M: Mapper, E: EventSink>(
        &self,
        scope: Scope,
        around: Surroundings<'_, M, E>,
    ) -> Purged {
        let mut purge = self.purge.lock();
        let mut done = Purged::default();
        // First, as owners leave what they have freed to the lists that are purged next.
        if !matches!(scope, Scope::Areas(_)) {
            self.flush_owned(&mut purge, around);
        }
        loop {
            let budget = scope.limit() - done.areas as usize;
            if budget == 0 || (purge.flushed.is_empty() && !self.detach(&mut purge, budget, around))
            {
                break;
            }
            match scope {
                Scope::Areas(_) if around.mapper.completed() < purge.awaited => break,
                Scope::Areas(_) => {}
                Scope::AllAreas | Scope::Everything => wait_for(around.mapper, purge.awaited),
            }
            let destination = match scope {
                Scope::Areas(_) | Scope::AllAreas => Destination::Pools,
                Scope::Everything => Destination::FreeRanges,
            };
            let (areas, pages) = self.return_slice(&mut purge, budget, destination, around);
            done.areas += areas;
            done.pages += pages;
        }
        if scope == Scope::Everything {
            self.drain_pools();
        }
        done.more = !purge.flushed.is_empty() || around.lazy.shared() > 0;
        done
    }

    /// Purges for a freeing caller above the lazy limit: one slice, unless a purge is running. Above twice the limit it
    /// waits for that purge, since frees would outrun it.
    pub(super) fn drain_slice<M: Mapper, E: EventSink>(&self, around: Surroundings<'_, M, E>) {
        let must_wait = around.lazy.shared() >= around.lazy.limit.saturating_mul(2);
        let purge = if must_wait { Some(self.purge.lock()) } else { self.purge.try_lock() };
        let Some(mut purge) = purge else { return };
        let any = !purge.flushed.is_empty() || self.detach(&mut purge, DETACH_MAX, around);
        if any && around.mapper.completed() >= purge.awaited {
            self.return_slice(&mut purge, AREAS_PER_HOLD, Destination::Pools, around);
        }
    }

    /// Moves up to `budget` lazy areas from the shards to the purge and flushes them. Returns true if there were any.
    fn detach<M: Mapper, E: EventSink>(
        &self,
        purge: &mut Purge,
        budget: usize,
        around: Surroundings<'_, M, E>,
    ) -> bool {
        debug_assert!(purge.flushed.is_empty(), "what was flushed is returned first");
        (0..self.per_cpu.len()).for_each(|rank| self.publish_of(rank, around.lazy));
        let wanted = budget.min(DETACH_MAX);
        let shards = self.books.shard_count();
        for _ in 0..shards {
            while purge.flushed.len() < wanted {
                let mut shard = self.books.lock_at(purge.cursor);
                let lazy = &mut shard.lazy;
                let going = lazy.len().min(AREAS_PER_HOLD).min(wanted - purge.flushed.len());
                let kept = lazy.len() - going;
                put_all(&mut purge.flushed, lazy[kept..].iter().copied());
                lazy.truncate(kept);
                if kept == 0 {
                    break;
                }
            }
            if purge.flushed.len() == wanted {
                break;
            }
            purge.cursor = (purge.cursor + 1) % shards;
        }
        if purge.flushed.is_empty() {
            return false;
        }
        self.flush(purge, around);
        true
    }

    /// Drops stale translations of everything detached, as a few disjoint ranges rather than one hull.
    fn flush<M: Mapper, E: EventSink>(&self, purge: &mut Purge, around: Surroundings<'_, M, E>) {
        for area in &purge.flushed {
            let start = self.base + area.offset;
            purge.plan.add(start, start + area.total);
        }
        let Purge { flushed, plan, counters, .. } = purge;
        purge.awaited = self.flush_planned(plan, flushed.len() as u64, counters, around);
    }

    /// Begins the flush of a plan that covers `areas` areas.
    fn flush_planned<M: Mapper, E: EventSink>(
        &self,
        plan: &mut FlushPlan,
        areas: u64,
        counters: &mut PurgeCounters,
        around: Surroundings<'_, M, E>,
    ) -> Epoch {
        let mut ranges = [Span::known(0, 1); FLUSH_RANGES];
        let count = plan.take(&mut ranges);
        let ranges = &ranges[..count];
        let flush = around.mapper.flush(ranges);
        self.flushes.fetch_add(1, Ordering::Relaxed);
        counters.flushes += 1;
        counters.flushed_ranges += count as u64;
        counters.areas += areas;
        let hull = Span::known(ranges[0].start(), ranges[count - 1].end());
        around.events.record(Event::Purged { hull, areas });
        flush
    }

    /// Returns up to `budget` flushed areas to their places, at most one hold's worth. The answer is the numbers of
    /// areas and pages.
    fn return_slice<M: Mapper, E: EventSink>(
        &self,
        purge: &mut Purge,
        budget: usize,
        destination: Destination,
        around: Surroundings<'_, M, E>,
    ) -> (u64, u64) {
        let Purge { flushed, batch, counters, .. } = purge;
        let kept = flushed.len() - budget.min(AREAS_PER_HOLD).min(flushed.len());
        let slice = &flushed[kept..];
        let (areas, pages) = (slice.len() as u64, slice.iter().map(|area| area.total).sum());
        if self.pooling && destination == Destination::Pools {
            let mut rest = slice;
            while let [first, others @ ..] = rest {
                rest = match first.pool {
                    Some(cpu) => self.deposit(cpu, rest, batch),
                    None => {
                        batch.push(first.offset, first.total);
                        others
                    }
                };
            }
        } else {
            slice.iter().for_each(|area| batch.push(area.offset, area.total));
        }
        flushed.truncate(kept);
        counters.steps += 1;
        self.give_back(batch);
        around.lazy.subtract(pages);
        (areas, pages)
    }

    /// Deposits the areas at the front of `areas` that `cpu` allocated: in its pools, or in its inbox while another
    /// thread holds these; areas that find no room go to `batch`. Returns the areas from the first one of another CPU
    /// on.
    fn deposit<'a>(&self, cpu: u32, areas: &'a [Freed], batch: &mut Batch) -> &'a [Freed] {
        let owner = &self.per_cpu[cpu as usize];
        let mut pools = owner.pools.try_lock();
        let Some(Some(pools)) = pools.as_deref_mut() else {
            drop(pools);
            return self.post(cpu, areas, batch);
        };
        let mut rest = areas;
        while let [area, others @ ..] = rest
            && area.pool == Some(cpu)
        {
            let Freed { offset, total, slot, .. } = *area;
            if pools.push(offset, total, slot, self.pool_bound) == Pushed::Refused {
                batch.push(offset, total);
            }
            rest = others;
        }
        if rest.is_empty() {
            pools.decay(self.epoch(), batch);
        }
        rest
    }

    /// Deposits areas as [`deposit`](Self::deposit) does, but into the inbox.
    fn post<'a>(&self, cpu: u32, areas: &'a [Freed], batch: &mut Batch) -> &'a [Freed] {
        let cpu_state = &self.per_cpu[cpu as usize];
        let mut inbox = cpu_state.inbox.lock();
        cpu_state.has_mail.store(true, Ordering::Relaxed);
        let mut rest = areas;
        while let [area, others @ ..] = rest
            && area.pool == Some(cpu)
        {
            let Freed { offset, total, slot, .. } = *area;
            let fits = total <= POOL_MAX_PAGES && inbox.pages + total <= self.pool_bound;
            if fits && inbox.areas.try_reserve(1).is_ok() {
                inbox.pages += total;
                put(&mut inbox.areas, Flushed { offset, total: total as u32, slot });
            } else {
                batch.push(offset, total);
            }
            rest = others;
        }
        rest
    }

    /// Returns every pooled area to the free ranges; where a handle has the pools, asks it to do so.
    fn drain_pools(&self) {
        for cpu in &self.per_cpu {
            let mut batch = Batch::new();
            let mut pools = cpu.pools.lock();
            match pools.as_mut() {
                Some(pools) => self.give_all_back(pools, &mut batch),
                None => cpu.give_back.store(true, Ordering::Relaxed),
            }
            drop(pools);
            loop {
                let mut inbox = cpu.inbox.lock();
                while batch.room() > 0
                    && let Some(area) = inbox.areas.pop()
                {
                    inbox.pages -= u64::from(area.total);
                    batch.push(area.offset, u64::from(area.total));
                }
                drop(inbox);
                if batch.is_empty() {
                    break;
                }
                self.give_back(&mut batch);
            }
        }
    }

    /// Flushes what owners have freed and keep, so that no stale translation of it is left.
    fn flush_owned<M: Mapper, E: EventSink>(
        &self,
        purge: &mut Purge,
        around: Surroundings<'_, M, E>,
    ) {
        self.plan_owned(&mut purge.plan, around.lazy);
        if !purge.plan.is_empty() {
            // Who frees the areas counts them.
            let flush = self.flush_planned(&mut purge.plan, 0, &mut purge.counters, around);
            wait_for(around.mapper, flush);
        }
    }

    /// Takes the pools of `cpu` out, for a handle; `None` if they are out already.
    pub(super) fn take_pools(&self, cpu: CpuId) -> Option<CpuPools> {
        let mut pools = self.per_cpu[cpu.rank()].pools.lock().take();
        if self.owning {
            pools.iter_mut().for_each(|pools| pools.own.begin());
        }
        pools
    }

    pub(super) fn put_pools(&self, cpu: CpuId, mut pools: CpuPools, lazy: &LazyCount) {
        pools.own.ender = Ender::Anyone;
        self.publish(&mut pools, cpu.rank(), lazy);
        *self.per_cpu[cpu.rank()].pools.lock() = Some(pools);
    }

    /// Takes exactly `span` for an area that was captured elsewhere.
    pub(super) fn load(
        &self,
        cpu: CpuId,
        span: Span,
        guard: Guard,
        state: AreaState,
    ) -> Result<(), LoadError> {
        self.free.lock().take_at(span).map_err(|why| match why {
            TakeError::Foreign => LoadError::Foreign,
            TakeError::Taken => LoadError::Taken,
            TakeError::OutOfMetadata => LoadError::OutOfMetadata,
        })?;
        let offset = span.start() - self.base;
        let cpu = cpu.rank() as u32;
        let busy = AreaWord::busy(span.len(), guard, cpu);
        let word = if state == AreaState::Busy { busy } else { busy.as_idle() };
        self.loaded.widen_by_any(offset, offset + span.len());
        match self.books.register(offset, word) {
            Ok(slot) if state != AreaState::Busy => {
                let freed = Freed { offset, total: span.len(), slot, pool: Some(cpu) };
                put(&mut self.books.lock(offset).lazy, freed);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(why) => {
                self.free.lock().give(span, 1);
                Err(why.into())
            }
        }
    }

    /// Takes all pieces at the highest base that serves them, or nothing.
    pub(super) fn alloc_group(
        &self,
        cpu: CpuId,
        bounds: Span,
        pieces: Pieces<'_>,
        align: u64,
    ) -> Result<u64, Miss> {
        let base = {
            let mut free = self.free.lock();
            let no_fit = Miss::NoFit { largest: free.ranges.largest() };
            let base = free.find_group(bounds, &pieces, align).ok_or(no_fit)?;
            free.take_group(base, pieces)?;
            base
        };
        for (done, (offset, size)) in pieces.iter().enumerate() {
            let word = AreaWord::busy_piece(size, cpu.rank() as u32);
            if let Err(why) = self.books.register(base + offset - self.base, word) {
                for (offset, size) in pieces.iter().take(done) {
                    self.books.deregister(base + offset - self.base, size);
                }
                self.free.lock().give_group(base, pieces);
                return Err(why.into());
            }
        }
        Ok(base)
    }

    pub(super) fn add_counters(&self, counters: &mut VmapCounters) {
        let mut own_frees = 0;
        {
            let purge = self.purge.lock();
            counters.purge = purge.counters;
            // One update of the count of lazy pages for each step of the purge.
            counters.atomic_updates = purge.counters.steps;
            counters.locks.purge = purge.cost();
        }
        for cpu in &self.per_cpu {
            let pools = cpu.pools.lock();
            counters.locks.cpu = counters.locks.cpu.plus(pools.cost());
            if let Some(pools) = pools.as_ref() {
                counters.allocs += pools.counters.hits + pools.slow_allocs;
                own_frees += pools.own.frees;
                counters.purge.add(&pools.own.counters);
                counters.atomic_updates += 2 * pools.own.letters;
                counters.pools.add(pools.counters);
            }
            drop(pools);
            counters.locks.inbox = counters.locks.inbox.plus(cpu.inbox.lock().cost());
        }
        for position in 0..self.books.shard_count() {
            let shard = self.books.lock_at(position);
            counters.frees += shard.frees;
            counters.locks.busy = counters.locks.busy.plus(shard.cost());
        }
        // One update for each free, unless its owner made it.
        counters.atomic_updates += counters.frees;
        counters.frees += own_frees;
        let free = self.free.lock();
        counters.ranges = *free.ranges.counters();
        counters.purge.add_holds(free.holds());
        counters.locks.free = free.cost();
    }

    pub(super) fn add_stats(&self, stats: &mut VmapStats) {
        let free = self.free.lock().ranges.stats();
        stats.total_pages = free.total;
        stats.free_pages = free.free;
        stats.holes = free.holes;
        stats.largest_hole = free.largest;
        let (mut idle, mut owned) = ((0, 0), VmapStats::default());
        for position in 0..self.books.shard_count() {
            let shard = self.books.lock_at(position);
            for (_, word) in self.books.areas_in(&shard) {
                match (word.is_busy(), word.has_owner()) {
                    (true, _) => stats.note(AreaState::Busy, word.total(), 1),
                    (false, true) => owned.note(AreaState::Lazy, word.total(), 1),
                    (false, false) => idle = (idle.0 + 1, idle.1 + word.total()),
                }
            }
        }
        self.for_each_lazy(&mut |freed| stats.note(AreaState::Lazy, freed.total, 1));
        // An area that is neither busy nor lazy is pooled, wherever the pools are at present.
        stats.pooled_areas = u64::saturating_sub(idle.0, stats.lazy_areas);
        stats.pooled_pages = u64::saturating_sub(idle.1, stats.lazy_pages);
        stats.lazy_areas += owned.lazy_areas;
        stats.lazy_pages += owned.lazy_pages;
    }

    /// Calls `visit` with every lazy area that any thread can flush: freed, and not yet returned by a purge.
    fn for_each_lazy(&self, visit: &mut dyn FnMut(&Freed)) {
        let purge = self.purge.lock();
        purge.flushed.iter().for_each(&mut *visit);
        for position in 0..self.books.shard_count() {
            self.books.lock_at(position).lazy.iter().for_each(&mut *visit);
        }
    }

    /// Calls `visit` with every busy area of [`AreaKind::Ram`], in no order.
    pub(super) fn for_each_ram(&self, visit: &mut dyn FnMut(Span)) {
        for position in 0..self.books.shard_count() {
            let shard = self.books.lock_at(position);
            let ram = |word: &AreaWord| word.is_busy() && word.kind() == AreaKind::Ram;
            for (offset, word) in self.books.areas_in(&shard).filter(|(_, word)| ram(word)) {
                visit(self.area(offset, word).span());
            }
        }
    }

    /// Appends every area on the books, busy, lazy or pooled, to `out`.
    pub(super) fn collect(&self, out: &mut Vec<AreaRecord>) -> Result<(), OutOfMetadata> {
        let mut lazy = Vec::new();
        let mut room = Ok(());
        self.for_each_lazy(&mut |freed| match lazy.try_reserve(1) {
            Ok(()) => put(&mut lazy, freed.offset),
            Err(_) => room = Err(OutOfMetadata),
        });
        room?;
        lazy.sort_unstable();
        for position in 0..self.books.shard_count() {
            let shard = self.books.lock_at(position);
            out.try_reserve(shard.area_count())?;
            put_all(
                out,
                self.books.areas_in(&shard).map(|(offset, word)| {
                    let is_lazy = || word.has_owner() || lazy.binary_search(&offset).is_ok();
                    let state = match word.is_busy() {
                        true => AreaState::Busy,
                        false if is_lazy() => AreaState::Lazy,
                        false => AreaState::Pooled,
                    };
                    AreaRecord { area: self.area(offset, word), state, kind: word.kind() }
                }),
            );
        }
        Ok(())
    }

    /// Calls `visit` with the free ranges by ascending address.
    pub(super) fn for_each_hole(&self, visit: &mut dyn FnMut(Span)) {
        self.free.lock().ranges.iter_free().for_each(visit);
    }

    pub(super) fn largest_hole(&self) -> u64 {
        self.free.lock().ranges.largest()
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.free.lock().check()?;
        let (mut idle, mut listed, mut handle_out) = (0, 0, false);
        self.for_each_lazy(&mut |_| listed += 1);
        for position in 0..self.books.shard_count() {
            let shard = self.books.lock_at(position);
            let law = "the list of lazy areas has room for all areas of the shard";
            let room = shard.has_room_for(shard.area_count());
            Violation::unless(law, position as u64, room)?;
            for (offset, cell) in self.books.cells_in(&shard) {
                let (word, seen) = (AreaWord(cell.word.load(Ordering::Acquire)), cell.seen());
                let law = "an area on the books has a word";
                Violation::unless(law, self.base + offset, !word.is_vacant())?;
                let law = "an area on the books is where its slot says";
                Violation::unless_equal(law, self.base + offset, cell.offset(), offset)?;
                let claimed = cell.claim.load(Ordering::Relaxed) != UNCLAIMED;
                let law =
                    "an area with an owner lies in the hull of its CPU, or of what was loaded";
                let hulls = [&self.per_cpu[word.cpu() as usize].hull, &self.loaded].map(Hull::get);
                let holds = |(low, high)| low <= offset && offset + word.total() <= high;
                let is_inside = !word.has_owner() || hulls.into_iter().any(holds);
                Violation::unless(law, self.base + offset, is_inside)?;
                let law = "only an area with an owner is claimed";
                Violation::unless(law, self.base + offset, !claimed || word.has_owner())?;
                idle += usize::from(!seen.is_busy());
                // Claimed, and in its owner's mail.
                listed += usize::from(word.is_busy() && !seen.is_busy());
            }
        }
        for cpu in &self.per_cpu {
            let pools = cpu.pools.lock();
            handle_out |= pools.is_none();
            if let Some(pools) = pools.as_ref() {
                let pages = pools.iter().map(|(_, total)| total).sum();
                Violation::unless_equal("pooled pages are summed", 0, pages, pools.pages)?;
                listed += pools.iter().count() + pools.own.freed().count();
                for freed in pools.own.freed() {
                    let word = AreaWord(self.books.cell(freed.slot).word.load(Ordering::Acquire));
                    let law = "what an owner has freed says so";
                    let says_so = word.has_owner() && !word.is_busy();
                    Violation::unless(law, self.base + freed.offset, says_so)?;
                }
            }
            drop(pools);
            listed += cpu.inbox.lock().areas.len();
        }
        let law = "every area that is not busy is on one list, in one inbox or in one pool";
        Violation::unless(law, 0, handle_out || idle == listed)
    }
}
