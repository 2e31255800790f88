//! The engines of Linux 4.19 to 6.9.
//!
//! An area is free (in the index of ranges), busy (in the busy map of the node of its address), lazy (freed, not
//! flushed) or pooled (flushed, kept for a request of its exact size). Up to 5.4 one lock covers busy areas and free
//! ranges, and a lazy area stays among the busy ones until it is purged. Since 6.9 there is a node per CPU:
//!
//! * `node(page) = (page / 16) mod nodes` is the node in which an area is busy;
//! * the node of the *allocating* CPU owns its lazy state and its pool.
//!
//! Locks are taken in turn and never nested, except under the purge lock. The order of a purge is the safety rule:
//! detach, flush, only then make allocatable.
//!
//! Source: docs/sources/vmap.md#area-entities, vmap.md#lazy, vmap.md#nodes and vmap.md#locks.

use super::area_map::{AreaMap, Record};
use super::counters::{PoolCounters, PurgeCounters, VmapCounters, VmapStats};
use super::engine::{
    AreaRecord, Claim, Miss, Purged, Retired, Scope, Surroundings, ValidRequest, Within,
    not_a_start,
};
use super::free_space::{FreeSpace, Pieces};
use super::mapper::flush_and_wait;
use super::{
    Area, AreaKind, AreaState, Decay, FreeAreaError, Guard, Layout, LazyStore, LoadError, Lookup,
    Mapper, Pools, VmapConfig, VmapPolicy,
};
use crate::check::Violation;
use crate::cpu::{CpuId, CpuSet};
use crate::event::{Event, EventSink};
use crate::lists::{made, put, put_all};
use crate::ranges::red_black::NodeId;
use crate::ranges::{Config, OutOfMetadata, Span, TakeError};
use crate::sync::{Mutex, Rank};
use crate::units::{PageCount, Vpn};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Pools serve sizes from 1 to this many pages (docs/sources/vmap.md#nodes).
const POOL_MAX_PAGES: u64 = 256;

/// Consecutive pages that belong to one node: 64 KiB (docs/sources/vmap.md#node-of-address).
const NODE_GRAIN_PAGES: u64 = 16;

/// The engine of areas of Linux 4.19 to 6.9, as the policy says.
///
/// 1. Busy, lazy, pooled and free areas are disjoint and together cover the space.
/// 2. A busy area is in the busy map of the node of its address.
/// 3. A pooled area is in the pool of its exact size.
#[derive(Debug)]
pub(super) struct Linux {
    policy: VmapPolicy,
    cpus: CpuSet,
    core: Mutex<Core>,
    nodes: Vec<Node>,
    purge: Mutex<Purge>,
}

/// Fields under the lock of the free ranges; the busy areas too under [`Layout::OneLock`].
#[derive(Debug)]
struct Core {
    free: FreeSpace,
    busy: Busy,
}

#[derive(Debug, Default)]
struct Busy {
    map: AreaMap,
    allocs: u64,
    frees: u64,
}

#[derive(Debug)]
struct Node {
    busy: Mutex<Busy>,
    lazy: Mutex<Lazy>,
    pools: Mutex<NodePools>,
}

#[derive(Debug, Default)]
struct Lazy {
    /// Under [`LazyStore::InBusyIndex`]: the nodes of the lazy areas there, in no order, so that a purge need not
    /// search, as in Linux.
    list: Vec<NodeId>,
    /// Under the other stores: the lazy areas.
    map: AreaMap,
}

#[derive(Debug, Default)]
struct NodePools {
    /// One pool for each size of 1 to [`POOL_MAX_PAGES`] pages. The area that was flushed last is served first, and is
    /// the first to decay.
    by_size: Vec<VecDeque<Pooled>>,
    counters: PoolCounters,
}

#[derive(Clone, Copy, Debug)]
struct Pooled {
    start: u64,
    cpu: u32,
}

#[derive(Debug, Default)]
struct Purge {
    /// Areas between their detachment and their return.
    detached: Vec<Record>,
    /// True if the pools have decayed since the lazy stores were last empty.
    decayed: bool,
    counters: PurgeCounters,
    /// Flushes of stale slots in blocks, while no area was lazy.
    slot_flushes: u64,
}

impl Linux {
    pub(super) fn new(config: &VmapConfig) -> Result<Linux, OutOfMetadata> {
        let policy = config.policy;
        let index = Config { index: policy.index, ..Config::default() };
        let free = FreeSpace::new(index, config.span)?;
        let count = match policy.layout {
            Layout::Nodes if usize::BITS == 64 => config.cpus.len().clamp(1, 128),
            _ => 1,
        };
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(count)?;
        for _ in 0..count {
            put(&mut nodes, Node::new(policy.pools)?);
        }
        let mut purge = Purge::default();
        purge.detached.try_reserve(64)?;
        Ok(Linux {
            policy,
            cpus: config.cpus.copied()?,
            core: Mutex::new(Rank::Free, Core { free, busy: Busy::default() }),
            nodes,
            purge: Mutex::new(Rank::Purge, purge),
        })
    }

    #[inline]
    fn node_of(&self, page: u64) -> &Node {
        &self.nodes[(page / NODE_GRAIN_PAGES % self.nodes.len() as u64) as usize]
    }

    fn is_one_lock(&self) -> bool {
        self.policy.layout == Layout::OneLock
    }

    /// Returns the node whose pool serves `cpu`, if pools are in use for this request.
    fn pool_node(&self, cpu: CpuId, wanted: &ValidRequest) -> Option<u16> {
        let whole = matches!(wanted.within, Within::Whole(_));
        if whole { self.own_node(cpu) } else { None }
    }

    /// Returns the node whose pool receives what `cpu` allocates anywhere in the space, if pools are in use.
    fn own_node(&self, cpu: CpuId) -> Option<u16> {
        let pooling = self.policy.pools != Pools::Off && self.nodes.len() > 1;
        pooling.then(|| (cpu.id() as usize % self.nodes.len()) as u16)
    }

    pub(super) fn alloc(&self, cpu: CpuId, wanted: &ValidRequest) -> Result<Area, Miss> {
        let pool_node = self.pool_node(cpu, wanted);
        let mut record = Record {
            start: 0,
            total: wanted.total,
            guard: wanted.guard,
            kind: wanted.kind,
            lazy: false,
            cpu: cpu.rank() as u32,
            pool_node,
            areas: 1,
            node: None,
        };
        let pooled = pool_node.and_then(|node| self.nodes[usize::from(node)].pop(wanted));
        if let Some(start) = pooled {
            record.start = start;
        } else {
            let mut core = self.core.lock();
            if self.is_one_lock() {
                core.busy.map.reserve_one()?;
            }
            record.start = core.free.take(&wanted.request())?.start();
            if self.is_one_lock() {
                core.busy.insert(record).expect("room for the record was reserved");
                return Ok(record.area(&self.cpus));
            }
        }
        match self.node_of(record.start).busy.lock().insert(record) {
            Ok(_) => Ok(record.area(&self.cpus)),
            Err(why) => {
                self.core.lock().free.give(record.span(), 1);
                Err(why.into())
            }
        }
    }

    /// Frees the busy area that starts at `start`, if the claim about it is right: it becomes lazy.
    pub(super) fn retire<M: Mapper, E: EventSink>(
        &self,
        start: u64,
        claim: Claim,
        around: Surroundings<'_, M, E>,
    ) -> Result<Retired, FreeAreaError> {
        let record = if self.policy.lazy == LazyStore::InBusyIndex {
            let mut core = self.core.lock();
            let Some(record) = core.busy.map.starting_at(start) else {
                return Err(not_a_start(core.busy.start_covering(start)));
            };
            core.busy.retire(record, claim)?;
            record
        } else {
            self.take_busy(start, claim)?
        };
        if M::CLEARS && claim.clears() {
            around.mapper.clear(record.span());
        }
        let lazy_pages = around.lazy.add(record.total);
        let record = Record { lazy: true, ..record };
        while self.put_lazy(record).is_err() {
            // No memory for one more lazy area: purging the others makes room, since their store never gives memory
            // back.
            self.purge(Scope::Areas(usize::MAX), around);
        }
        Ok(Retired { area: record.area(&self.cpus), lazy_pages })
    }

    /// Takes the area that starts at `start` out of the busy map of its node, if the claim about it is right.
    fn take_busy(&self, start: u64, claim: Claim) -> Result<Record, FreeAreaError> {
        let mut busy = self.node_of(start).busy.lock();
        let Some(record) = busy.map.starting_at(start) else {
            drop(busy);
            return Err(self.why_not_freed(start));
        };
        busy.remove(record, claim)?;
        Ok(record)
    }

    /// Gives a busy area back at once, if the claim about it is right: nothing was ever mapped there.
    pub(super) fn cancel(&self, start: u64, claim: Claim) -> Result<Area, FreeAreaError> {
        let of_node = match self.is_one_lock() {
            true => None,
            false => Some(self.take_busy(start, claim)?),
        };
        let mut core = self.core.lock();
        let record = match of_node {
            Some(record) => record,
            None => {
                let Some(record) = core.busy.map.starting_at(start) else {
                    return Err(not_a_start(core.busy.start_covering(start)));
                };
                core.busy.remove(record, claim)?;
                record
            }
        };
        core.free.give(record.span(), 1);
        Ok(record.area(&self.cpus))
    }

    fn put_lazy(&self, record: Record) -> Result<(), OutOfMetadata> {
        let owner = match record.pool_node {
            Some(node) => &self.nodes[usize::from(node)],
            None => self.node_of(record.start),
        };
        let mut lazy = owner.lazy.lock();
        match self.policy.lazy {
            LazyStore::InBusyIndex => {
                lazy.list.try_reserve(1)?;
                put(&mut lazy.list, record.node.expect("a lazy area is in the busy index"));
                Ok(())
            }
            LazyStore::Merged => lazy.map.insert_merged(record),
            LazyStore::Separate => lazy.map.insert(record).map(|_| ()),
        }
    }

    /// Names the reason why no busy area starts at `start`.
    fn why_not_freed(&self, start: u64) -> FreeAreaError {
        let is_lazy = |node: &Node| node.lazy.lock().map.covering(start).is_some();
        let is_pooled = |node: &Node| node.pools.lock().holds(start);
        if self.nodes.iter().any(|node| is_lazy(node) || is_pooled(node)) {
            return FreeAreaError::DoubleFree;
        }
        not_a_start(self.find(start).map(|(area, _)| area.start))
    }

    /// Returns the busy area that covers `at`. The search starts at the address's own node; an area that starts in
    /// another one is found by scanning the others downward, as 7.3 does (docs/sources/vmap.md#interior).
    pub(super) fn find(&self, at: u64) -> Option<(Area, AreaKind)> {
        if self.is_one_lock() {
            let core = self.core.lock();
            let record = core.busy.map.covering(at).filter(|record| !record.lazy)?;
            return Some((record.area(&self.cpus), record.kind));
        }
        let count = self.nodes.len();
        let home = (at / NODE_GRAIN_PAGES % count as u64) as usize;
        let visited = match self.policy.lookup {
            Lookup::HomeNode => 1,
            Lookup::AllNodes => count,
        };
        (0..visited).map(|back| (home + count - back) % count).find_map(|node| {
            let busy = self.nodes[node].busy.lock();
            busy.map.covering(at).map(|record| (record.area(&self.cpus), record.kind))
        })
    }

    /// Flushes lazy areas and makes them allocatable (docs/sources/vmap.md#purge-order).
    pub(super) fn purge<M: Mapper, E: EventSink>(
        &self,
        scope: Scope,
        around: Surroundings<'_, M, E>,
    ) -> Purged {
        let mut purge = self.purge.lock();
        self.purge_locked(&mut purge, scope, None, around)
    }

    /// Purges all lazy areas as [`purge`](Self::purge) does; the first flush covers `stale` too, whose slots are in
    /// blocks.
    pub(super) fn purge_with<M: Mapper, E: EventSink>(
        &self,
        stale: Option<Span>,
        around: Surroundings<'_, M, E>,
    ) -> Purged {
        let mut purge = self.purge.lock();
        self.purge_locked(&mut purge, Scope::AllAreas, stale, around)
    }

    /// Purges as [`purge`](Self::purge) does, unless another purge is running.
    pub(super) fn try_purge<M: Mapper, E: EventSink>(
        &self,
        scope: Scope,
        around: Surroundings<'_, M, E>,
    ) -> Option<Purged> {
        let mut purge = self.purge.try_lock()?;
        Some(self.purge_locked(&mut purge, scope, None, around))
    }

    fn purge_locked<M: Mapper, E: EventSink>(
        &self,
        purge: &mut Purge,
        scope: Scope,
        mut stale: Option<Span>,
        around: Surroundings<'_, M, E>,
    ) -> Purged {
        if scope == Scope::Everything || !purge.decayed {
            self.decay_pools(scope);
            purge.decayed = true;
        }
        let mut done = Purged::default();
        loop {
            let budget = scope.limit().saturating_sub(done.areas as usize);
            self.detach(&mut purge.detached, budget);
            let Some(hull) = hull_of(&purge.detached) else { break };
            let hull = stale.take().map_or(hull, |stale| stale.hull(hull));
            flush_and_wait(around.mapper, &[hull]);
            let areas = purge.detached.iter().map(|record| u64::from(record.areas)).sum::<u64>();
            purge.counters.steps += 1;
            purge.counters.flushes += 1;
            purge.counters.flushed_ranges += 1;
            purge.counters.areas += areas;
            done.areas += areas;
            let pages = purge.detached.iter().map(|record| record.total).sum();
            done.pages += pages;
            around.events.record(Event::Purged { hull, areas });
            self.give_back(purge, scope);
            around.lazy.subtract(pages);
            if done.areas as usize >= scope.limit() {
                break;
            }
        }
        if let Some(stale) = stale {
            purge.slot_flushes += 1;
            purge.counters.flushes += 1;
            purge.counters.flushed_ranges += 1;
            flush_and_wait(around.mapper, &[stale]);
        }
        done.more = self.nodes.iter().any(|node| !node.lazy.lock().is_empty());
        purge.decayed = done.more;
        done
    }

    /// Moves lazy areas into `detached`, as many as `budget` and memory allow.
    fn detach(&self, detached: &mut Vec<Record>, budget: usize) {
        for node in &self.nodes {
            let mut lazy = node.lazy.lock();
            let wanted = lazy.len().min(budget - detached.len());
            // Without memory the buffer's present room still lets the purge make progress.
            let _ = detached.try_reserve(wanted);
            let room = wanted.min(detached.capacity() - detached.len());
            if self.policy.lazy != LazyStore::InBusyIndex {
                for _ in 0..room {
                    let record = lazy.map.pop_first().expect("the map holds that many areas");
                    put(detached, record);
                }
                continue;
            }
            let kept = lazy.list.len() - room;
            let core = self.core.lock();
            let records = lazy.list[kept..].iter().map(|&node| core.busy.map.record(node));
            put_all(detached, records);
            drop(core);
            lazy.list.truncate(kept);
        }
    }

    /// Returns flushed areas: to their nodes' pools, the rest to the free ranges under one hold of the lock
    /// (docs/sources/vmap.md#pool-purge).
    fn give_back(&self, purge: &mut Purge, scope: Scope) {
        let detached = &mut purge.detached;
        if scope != Scope::Everything && self.policy.pools != Pools::Off {
            detached.retain(|record| !self.put_pooled(record));
        }
        if detached.is_empty() {
            return;
        }
        let mut core = self.core.lock();
        for record in detached.iter() {
            if self.is_one_lock() {
                let node = record.node.expect("the record was read from the busy index");
                core.busy.map.remove_node(node);
            }
            core.free.give(record.span(), record.areas as usize);
        }
        let areas = detached.iter().map(|record| u64::from(record.areas)).sum();
        core.free.note_hold(areas, detached.len() as u64);
        detached.clear();
    }

    /// Puts a flushed area into its pool, if it has one and there is memory. Returns true if it did.
    fn put_pooled(&self, record: &Record) -> bool {
        let Some(node) = record.pool_node.filter(|_| record.total <= POOL_MAX_PAGES) else {
            return false;
        };
        let mut pools = self.nodes[usize::from(node)].pools.lock();
        let pool = &mut pools.by_size[record.total as usize - 1];
        if pool.try_reserve(1).is_err() {
            return false;
        }
        pool.push_front(Pooled { start: record.start, cpu: record.cpu });
        true
    }

    /// Lets pooled areas go: a part of each pool, or everything.
    fn decay_pools(&self, scope: Scope) {
        let Pools::ExactSize(decay) = self.policy.pools else { return };
        for node in &self.nodes {
            for pages in 1..=POOL_MAX_PAGES {
                let mut pools = node.pools.lock();
                let pool = &mut pools.by_size[pages as usize - 1];
                let going = match scope {
                    Scope::Everything => pool.len(),
                    Scope::Areas(_) | Scope::AllAreas => decaying(pool.len(), decay),
                };
                if going == 0 {
                    continue;
                }
                // The lock of the pool stays held: the areas are in no list between the two.
                let mut core = self.core.lock();
                for pooled in pool.drain(..going) {
                    core.free.give(Span::known(pooled.start, pooled.start + pages), 1);
                }
                core.free.note_hold(going as u64, going as u64);
                drop(core);
                pools.counters.decayed += going as u64;
            }
        }
    }

    /// Takes exactly `span` for an area that was captured elsewhere.
    pub(super) fn load(
        &self,
        cpu: CpuId,
        span: Span,
        guard: Guard,
        state: AreaState,
    ) -> Result<(), LoadError> {
        let mut record = Record {
            start: span.start(),
            total: span.len(),
            guard,
            kind: AreaKind::Plain,
            lazy: state != AreaState::Busy,
            cpu: cpu.rank() as u32,
            pool_node: self.own_node(cpu),
            areas: 1,
            node: None,
        };
        let mut core = self.core.lock();
        if self.is_one_lock() {
            core.busy.map.reserve_one()?;
        }
        core.free.take_at(span).map_err(|why| match why {
            TakeError::Foreign => LoadError::Foreign,
            TakeError::Taken => LoadError::Taken,
            TakeError::OutOfMetadata => LoadError::OutOfMetadata,
        })?;
        if self.is_one_lock() {
            let node = core.busy.insert(record).expect("room for the record was reserved");
            record.node = Some(node);
        }
        drop(core);
        let placed = match (record.lazy, self.is_one_lock()) {
            (true, _) => self.put_lazy(record),
            (false, true) => Ok(()),
            (false, false) => self.insert_busy(record),
        };
        placed.map_err(|OutOfMetadata| {
            let mut core = self.core.lock();
            core.busy.map.remove(span.start());
            core.free.give(span, 1);
            LoadError::OutOfMetadata
        })
    }

    /// Takes all pieces at the highest base that serves them, or nothing (docs/sources/vmap.md#area-groups).
    pub(super) fn alloc_group(
        &self,
        cpu: CpuId,
        bounds: Span,
        pieces: Pieces<'_>,
        align: u64,
    ) -> Result<u64, Miss> {
        let base = {
            let mut core = self.core.lock();
            let no_fit = Miss::NoFit { largest: core.free.ranges.largest() };
            let base = core.free.find_group(bounds, &pieces, align).ok_or(no_fit)?;
            if self.is_one_lock() {
                core.busy.map.reserve(pieces.sizes.len())?;
            }
            core.free.take_group(base, pieces)?;
            base
        };
        for (done, (offset, size)) in pieces.iter().enumerate() {
            let record = Record {
                start: base + offset,
                total: size,
                guard: Guard::None,
                kind: AreaKind::Plain,
                lazy: false,
                cpu: cpu.rank() as u32,
                pool_node: None,
                areas: 1,
                node: None,
            };
            if let Err(why) = self.insert_busy(record) {
                self.withdraw_group(base, pieces, done);
                return Err(why.into());
            }
        }
        Ok(base)
    }

    fn insert_busy(&self, record: Record) -> Result<(), OutOfMetadata> {
        if self.is_one_lock() {
            self.core.lock().busy.insert(record)?;
        } else {
            self.node_of(record.start).busy.lock().insert(record)?;
        }
        Ok(())
    }

    /// Undoes a group of which the first `done` pieces are busy.
    fn withdraw_group(&self, base: u64, pieces: Pieces<'_>, done: usize) {
        for (offset, _) in pieces.iter().take(done) {
            let start = base + offset;
            if self.is_one_lock() {
                self.core.lock().busy.map.remove(start);
            } else {
                self.node_of(start).busy.lock().map.remove(start);
            }
        }
        self.core.lock().free.give_group(base, pieces);
    }

    pub(super) fn add_counters(&self, counters: &mut VmapCounters) {
        {
            let purge = self.purge.lock();
            counters.purge = purge.counters;
            counters.blocks.flushes += purge.slot_flushes;
            counters.locks.purge = purge.cost();
        }
        for node in &self.nodes {
            let busy = node.busy.lock();
            counters.allocs += busy.allocs;
            counters.frees += busy.frees;
            counters.locks.busy = counters.locks.busy.plus(busy.cost());
            drop(busy);
            counters.locks.lazy = counters.locks.lazy.plus(node.lazy.lock().cost());
            let pools = node.pools.lock();
            counters.pools.add(pools.counters);
            counters.locks.pools = counters.locks.pools.plus(pools.cost());
        }
        let core = self.core.lock();
        counters.allocs += core.busy.allocs;
        counters.frees += core.busy.frees;
        counters.ranges = *core.free.ranges.counters();
        counters.purge.add_holds(core.free.holds());
        counters.locks.free = core.cost();
        // One update of the count of lazy pages for each free, one for each step of the purge.
        counters.atomic_updates = counters.frees + counters.purge.steps;
    }

    pub(super) fn add_stats(&self, stats: &mut VmapStats) {
        for node in &self.nodes {
            let pools = node.pools.lock();
            for (pages, pool) in (1..).zip(&pools.by_size) {
                stats.pooled_areas += pool.len() as u64;
                stats.pooled_pages += pool.len() as u64 * pages;
            }
        }
        let free = self.core.lock().free.ranges.stats();
        stats.total_pages = free.total;
        stats.free_pages = free.free;
        stats.holes = free.holes;
        stats.largest_hole = free.largest;
        self.for_each_record(&mut |record| {
            stats.note(record.state(), record.total, record.areas);
        });
    }

    /// Calls `visit` with every busy and lazy area, in no order.
    fn for_each_record(&self, visit: &mut dyn FnMut(Record)) {
        self.core.lock().busy.map.iter().for_each(&mut *visit);
        for node in &self.nodes {
            node.busy.lock().map.iter().for_each(&mut *visit);
            node.lazy.lock().map.iter().for_each(&mut *visit);
        }
    }

    /// Calls `visit` with every busy area of [`AreaKind::Ram`], in no order.
    pub(super) fn for_each_ram(&self, visit: &mut dyn FnMut(Span)) {
        self.for_each_record(&mut |record| {
            if record.kind == AreaKind::Ram && !record.lazy {
                visit(record.span());
            }
        });
    }

    /// Appends every area on the books, busy, lazy or pooled, to `out`.
    pub(super) fn collect(&self, out: &mut Vec<AreaRecord>) -> Result<(), OutOfMetadata> {
        let mut full = Ok(());
        self.for_each_record(&mut |record| {
            let state = record.state();
            match out.try_reserve(1) {
                Ok(()) => {
                    put(
                        out,
                        AreaRecord { area: record.area(&self.cpus), state, kind: record.kind },
                    );
                }
                Err(_) => full = Err(OutOfMetadata),
            }
        });
        full?;
        for node in &self.nodes {
            let pools = node.pools.lock();
            for (pages, pool) in (1..).zip(&pools.by_size) {
                out.try_reserve(pool.len())?;
                put_all(
                    out,
                    pool.iter().map(|pooled| AreaRecord {
                        area: pooled.area(pages, &self.cpus),
                        state: AreaState::Pooled,
                        kind: AreaKind::Plain,
                    }),
                );
            }
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        let core = self.core.lock();
        core.free.check()?;
        core.busy.map.check()?;
        drop(core);
        for (index, node) in self.nodes.iter().enumerate() {
            let busy = node.busy.lock();
            busy.map.check()?;
            for record in busy.map.iter() {
                let home = (record.start / NODE_GRAIN_PAGES % self.nodes.len() as u64) as usize;
                let law = "a busy area is in the busy map of the node of its address";
                Violation::unless(law, record.start, home == index)?;
            }
            drop(busy);
            node.lazy.lock().map.check()?;
        }
        Ok(())
    }

    pub(super) fn largest_hole(&self) -> u64 {
        self.core.lock().free.ranges.largest()
    }

    /// Calls `visit` with the free ranges by ascending address.
    pub(super) fn for_each_hole(&self, visit: &mut dyn FnMut(Span)) {
        self.core.lock().free.ranges.iter_free().for_each(visit);
    }
}

impl Busy {
    fn insert(&mut self, record: Record) -> Result<NodeId, OutOfMetadata> {
        let node = self.map.insert(record)?;
        self.allocs += 1;
        Ok(node)
    }

    /// Takes a busy area out, if the claim about it is right.
    fn remove(&mut self, record: Record, claim: Claim) -> Result<(), FreeAreaError> {
        let node = self.verify(record, claim)?;
        self.map.remove_node(node);
        Ok(())
    }

    /// Turns a busy area lazy in place, if it is not so already and the claim about it is right.
    fn retire(&mut self, record: Record, claim: Claim) -> Result<(), FreeAreaError> {
        let node = self.verify(record, claim)?;
        self.map.mark_lazy(node);
        Ok(())
    }

    fn verify(&mut self, record: Record, claim: Claim) -> Result<NodeId, FreeAreaError> {
        if record.lazy {
            return Err(FreeAreaError::DoubleFree);
        }
        if let Some(why) = claim.refuted_by(record.kind, record.total - record.guard.pages()) {
            return Err(why);
        }
        self.frees += 1;
        Ok(record.node.expect("the record was read from this map"))
    }

    fn start_covering(&self, at: u64) -> Option<Vpn> {
        self.map.covering(at).filter(|record| !record.lazy).map(|record| Vpn(record.start))
    }
}

impl Lazy {
    fn len(&self) -> usize {
        self.list.len() + self.map.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Node {
    fn new(pools: Pools) -> Result<Node, OutOfMetadata> {
        let mut by_size = Vec::new();
        if pools != Pools::Off {
            by_size = made(POOL_MAX_PAGES as usize, VecDeque::new)?;
        }
        let mut lazy = Lazy::default();
        lazy.list.try_reserve(1)?;
        lazy.map.reserve(1)?;
        let pools = NodePools { by_size, counters: PoolCounters::default() };
        Ok(Node {
            busy: Mutex::new(Rank::Busy, Busy::default()),
            lazy: Mutex::new(Rank::Lazy, lazy),
            pools: Mutex::new(Rank::Pools, pools),
        })
    }

    /// Takes the area of the exact size that was pooled last and returns its first page. If it is misaligned it goes to
    /// the end, and nothing else is tried (docs/sources/vmap.md#pool-alloc).
    fn pop(&self, wanted: &ValidRequest) -> Option<u64> {
        let mut pools = self.pools.lock();
        let NodePools { by_size, counters } = &mut *pools;
        let pool = by_size.get_mut(wanted.total as usize - 1)?;
        counters.misses += 1;
        let first = pool.pop_front()?;
        if first.start & (wanted.align - 1) != 0 {
            pool.push_back(first);
            return None;
        }
        counters.misses -= 1;
        counters.hits += 1;
        Some(first.start)
    }
}

impl NodePools {
    fn holds(&self, start: u64) -> bool {
        self.by_size.iter().flatten().any(|pooled| pooled.start == start)
    }
}

impl Pooled {
    fn area(&self, pages: u64, cpus: &CpuSet) -> Area {
        let cpu = cpus.by_rank(self.cpu as usize).expect("the CPU belonged to the space");
        Area { start: Vpn(self.start), pages: PageCount(pages), guard: Guard::None, cpu }
    }
}

/// Returns the number of a pool's `len` areas that a partial decay lets go (docs/sources/vmap.md#pool-decay).
pub(super) fn decaying(len: usize, decay: Decay) -> usize {
    match decay {
        Decay::Quarter => len / 4,
        // The count is decremented before it is compared with zero: from zero it wraps, and the loop runs to the end.
        Decay::QuarterUnderflow if len < 4 => len,
        Decay::QuarterUnderflow => len / 4,
    }
}

/// Returns the smallest range that covers all `records`.
fn hull_of(records: &[Record]) -> Option<Span> {
    let start = records.iter().map(|record| record.start).min()?;
    let end = records.iter().map(|record| record.span().end()).max()?;
    Some(Span::known(start, end))
}
