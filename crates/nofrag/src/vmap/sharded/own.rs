//! Areas that a CPU's handle owns: it frees them by plain stores, and flushes them itself.
//!
//! What a handle allocates it *owns*, and so does whoever holds the CPU's pools after it. The owner alone writes the
//! area's word, so a free needs no locked operation: look the slot up among the recent ones, turn the word from busy to
//! lazy, note the area on a list that came with the pools. From 1024 areas or a quarter of the space's limit on, the
//! owner flushes its list, and the areas go to its pools again. Nobody else has seen any of it.
//!
//! A thread that is not the owner *claims* the area, under the lock of its shard; of two such threads one does. Then it
//! clears the mapping and posts the area to the owner by a push onto the CPU's *mail*, a stack linked through the
//! claims, which needs no memory. The owner reads its mail when its pools have nothing at hand, and when it ends.
//!
//! Owner and stranger that free one area at once are not ordered: that would take the owner a barrier for each free.
//! Either is told that it is done, which is one free in excess; but the area is freed once. The stranger claims first
//! and looks at the word second, the owner stores the word first and looks at the claim second, before it flushes, with
//! a barrier on both sides. So one sees the other: the stranger gives its claim up, or the owner keeps the area until
//! it has read of the claim in its mail. A free that comes after another one is always refused.
//!
//! The end of a handle publishes what it has freed, on the lists of its shards. What it has not freed stays owned: mail
//! waits at the CPU until somebody has its pools, at the latest the next purge.
//!
//! Others flush what an owner has freed and keeps without seeing its lists: a hull around all that was ever allocated
//! for the CPU tells them where it lies. They look where freed areas come from before they look where these go: at
//! claims, at the pages that the owner has to flush, and last at the lists of the shards.

use super::books::Freed;
use super::pools::{AREAS_PER_HOLD, Batch, CpuPools, Flushed, Pushed};
use super::word::{AreaWord, CLAIMED, Cell, Ender, LAST_OF_MAIL, UNCLAIMED};
use super::{DETACH_MAX, ShardGuard, Sharded};
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::lists::{grow, put};
use crate::ranges::Span;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::units::{PageCount, Vpn};
use crate::vmap::counters::PurgeCounters;
use crate::vmap::engine::{Claim, LazyCount, Retired, Scope, Surroundings};
use crate::vmap::flush::FlushPlan;
use crate::vmap::mapper::wait_for;
use crate::vmap::{Area, Epoch, FreeAreaError, Mapper, Wait};
use alloc::vec::Vec;

/// Number of areas, as a base-2 logarithm, of which the owner knows the slot without its shard's lock.
const RECENT_BITS: u32 = if cfg!(loom) { 3 } else { 10 };

/// The areas that the holder of a CPU's pools has freed, and where to find those that it has not.
#[derive(Debug)]
pub(super) struct OwnAreas {
    /// The one that ends the areas that these pools hand out: the owner, while a handle has them.
    pub(super) ender: Ender,
    /// First page and slot of areas that were handed out lately, by a hash of the page. Empty before the first handle.
    recent: Vec<(u64, u32)>,
    /// Areas that the owner has freed, and no flush covers yet.
    freed: Vec<Flushed>,
    /// Areas that a flush covers, and are not in the owner's pools yet: they go there when these have nothing at hand.
    flushed: Vec<Flushed>,
    /// The flush of those areas, which may take a while to complete.
    awaited: Epoch,
    plan: FlushPlan,
    pub(super) frees: u64,
    /// Areas that came by mail.
    pub(super) letters: u64,
    pub(super) counters: PurgeCounters,
}

impl OwnAreas {
    pub(super) fn new(bounds: Span) -> OwnAreas {
        OwnAreas {
            ender: Ender::Anyone,
            recent: Vec::new(),
            freed: Vec::new(),
            flushed: Vec::new(),
            awaited: Epoch::default(),
            plan: FlushPlan::new(bounds),
            frees: 0,
            letters: 0,
            counters: PurgeCounters::default(),
        }
    }

    /// Makes the holder of the pools the owner of what they hand out from now on.
    pub(super) fn begin(&mut self) {
        self.ender = Ender::Owner;
        // Without them each free looks its slot up under a lock.
        let _ = grow(&mut self.recent, 1 << RECENT_BITS, (u64::MAX, 0));
    }

    #[inline(always)]
    fn place(offset: u64) -> usize {
        (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT_BITS)) as usize
    }

    /// Notes the slot of an area that is handed out.
    #[inline(always)]
    pub(super) fn note(&mut self, offset: u64, slot: u32) {
        if let Some(recent) = self.recent.get_mut(OwnAreas::place(offset)) {
            *recent = (offset, slot);
        }
    }

    #[inline(always)]
    fn slot_of(&self, offset: u64) -> Option<u32> {
        let &(noted, slot) = self.recent.get(OwnAreas::place(offset))?;
        (noted == offset).then_some(slot)
    }

    /// Returns true if one more area can be noted as freed.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        self.freed.len() < self.freed.capacity() || self.freed.try_reserve(1).is_ok()
    }

    /// Returns all areas that the owner has freed and that are not in its pools.
    pub(super) fn freed(&self) -> impl Iterator<Item = &Flushed> {
        self.freed.iter().chain(&self.flushed)
    }
}

/// First page and end of a stretch around areas.
#[derive(Debug)]
pub(super) struct Hull {
    low: AtomicU64,
    high: AtomicU64,
}

impl Hull {
    pub(super) fn empty() -> Hull {
        Hull { low: AtomicU64::new(u64::MAX), high: AtomicU64::new(0) }
    }

    /// Widens a hull that no other thread widens at the same time.
    #[inline]
    pub(super) fn widen(&self, start: u64, end: u64) {
        if start < self.low.load(Ordering::Relaxed) {
            self.low.store(start, Ordering::Relaxed);
        }
        if end > self.high.load(Ordering::Relaxed) {
            self.high.store(end, Ordering::Relaxed);
        }
    }

    pub(super) fn widen_by_any(&self, start: u64, end: u64) {
        self.low.fetch_min(start, Ordering::Relaxed);
        self.high.fetch_max(end, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> (u64, u64) {
        (self.low.load(Ordering::Relaxed), self.high.load(Ordering::Relaxed))
    }
}

/// The duty of an owner after a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vmap) enum Next {
    GoOn,
    LookAfterOwn,
}

impl Sharded {
    /// Frees a busy area that the holder of `pools` owns. For any obstacle the answer is `None`, and the shared path
    /// finds out the reason.
    #[inline(always)]
    pub(in crate::vmap) fn retire_own<M: Mapper, E: EventSink>(
        &self,
        pools: &mut CpuPools,
        cpu: CpuId,
        start: u64,
        around: Surroundings<'_, M, E>,
    ) -> Option<(Retired, Next)> {
        let offset = start.wrapping_sub(self.base);
        let slot = match pools.own.slot_of(offset) {
            Some(slot) => slot,
            None => self.books.lock(offset).slot_at(offset)?,
        };
        let rank = cpu.rank() as u32;
        let cell = self.books.cell(slot);
        // What the owner reads of its own it has written; a slot that is another area's by now has another word or
        // page.
        let word = AreaWord(cell.word.load(Ordering::Relaxed));
        let is_own = word.is_busy_of(rank) && cell.offset() == offset;
        // Pairs with the store of a claim: a free by a stranger that came before is seen.
        if !is_own || cell.claim.load(Ordering::Acquire) != UNCLAIMED || !pools.own.has_room() {
            return None;
        }
        cell.word.store(word.as_own_lazy().0, Ordering::Release);
        let (total, guard) = (word.total(), word.guard());
        let area = Area { start: Vpn(start), pages: PageCount(total - guard.pages()), guard, cpu };
        if M::CLEARS {
            around.mapper.clear(area.span());
        }
        put(&mut pools.own.freed, Flushed { offset, total: total as u32, slot });
        pools.own.frees += 1;
        let lazy_pages = around.lazy.add_own(cpu.rank(), total);
        let is_due = pools.own.freed.len() >= DETACH_MAX || lazy_pages > around.lazy.own_limit;
        let next = match is_due {
            true => Next::LookAfterOwn,
            false => Next::GoOn,
        };
        Some((Retired { area, lazy_pages }, next))
    }

    /// Frees an area that has an owner, on behalf of a thread that may be another one: claims it, and posts it.
    #[cold]
    #[inline(never)]
    pub(super) fn retire_owned<M: Mapper, E: EventSink>(
        &self,
        mut shard: ShardGuard<'_>,
        slot: u32,
        word: AreaWord,
        claim: Claim,
        around: Surroundings<'_, M, E>,
    ) -> Result<Retired, FreeAreaError> {
        let cell = self.books.cell(slot);
        self.must_be_busy(word, claim)?;
        if cell.claim.load(Ordering::Acquire) != UNCLAIMED {
            return Err(FreeAreaError::DoubleFree);
        }
        let rank = word.cpu() as usize;
        let claims = &self.per_cpu[rank].claims;
        claims.fetch_add(1, Ordering::SeqCst);
        cell.claim.store(CLAIMED, Ordering::SeqCst);
        // Pairs with the one in `flush_own`: either the owner sees the claim, or this thread that the area is freed.
        fence(Ordering::SeqCst);
        if cell.word.load(Ordering::SeqCst) != word.0 {
            cell.claim.store(UNCLAIMED, Ordering::Release);
            claims.fetch_sub(1, Ordering::Release);
            return Err(FreeAreaError::DoubleFree);
        }
        shard.frees += 1;
        drop(shard);
        let area = self.area(cell.offset(), word);
        if M::CLEARS && claim.clears() {
            around.mapper.clear(area.span());
        }
        let waiting = around.lazy.add_posted(rank, word.total());
        self.post_to_owner(cell, rank, u64::from(slot));
        if waiting > around.lazy.own_limit {
            self.publish_of(rank, around.lazy);
        }
        Ok(Retired { area, lazy_pages: around.lazy.shared() })
    }

    fn post_to_owner(&self, cell: &Cell, rank: usize, slot: u64) {
        let mail = &self.per_cpu[rank].mail;
        let mut last = mail.load(Ordering::Relaxed);
        loop {
            cell.claim.store(last, Ordering::Relaxed);
            let own = LAST_OF_MAIL + 1 + slot;
            // Pairs with the swap in `read_mail`.
            match mail.compare_exchange(last, own, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }

    /// Frees, for the owner, what others have freed for it.
    fn read_mail(&self, pools: &mut CpuPools, rank: usize, lazy: &LazyCount) {
        let mail = &self.per_cpu[rank].mail;
        if mail.load(Ordering::Relaxed) == LAST_OF_MAIL {
            return;
        }
        let mut next = mail.swap(LAST_OF_MAIL, Ordering::Acquire);
        while next > LAST_OF_MAIL {
            let slot = (next - LAST_OF_MAIL - 1) as u32;
            let cell = self.books.cell(slot);
            next = cell.claim.load(Ordering::Relaxed);
            let word = AreaWord(cell.word.load(Ordering::Relaxed));
            let (offset, total) = (cell.offset(), word.total());
            pools.own.letters += 1;
            // If not, the owner has freed the area as well, and has it on its list.
            if word.is_busy() {
                cell.word.store(word.as_own_lazy().0, Ordering::Release);
                lazy.add_own(rank, total);
                let freed = Flushed { offset, total: total as u32, slot };
                cell.claim.store(UNCLAIMED, Ordering::Release);
                if pools.own.has_room() {
                    put(&mut pools.own.freed, freed);
                } else {
                    self.publish_area(freed, rank, lazy);
                }
            } else {
                // After the word: who sees this sees that the area is freed.
                cell.claim.store(UNCLAIMED, Ordering::Release);
            }
            lazy.subtract_posted(rank, total);
            self.per_cpu[rank].claims.fetch_sub(1, Ordering::Release);
        }
    }

    /// Does what the owner has to do now and then: reads its mail, flushes what it has freed if that is too much, or
    /// all of it if a full purge has asked for that, and moves areas into its pools. Returns true if any came there. An
    /// owner that must not wait flushes nothing.
    pub(in crate::vmap) fn look_after_own<M: Mapper, E: EventSink>(
        &self,
        pools: &mut CpuPools,
        cpu: CpuId,
        wait: Wait,
        around: Surroundings<'_, M, E>,
    ) -> bool {
        self.read_mail(pools, cpu.rank(), around.lazy);
        if wait == Wait::Never && pools.own.flushed.is_empty() {
            return false;
        }
        let asked =
            wait == Wait::MayReclaim && self.per_cpu[cpu.rank()].give_back.load(Ordering::Relaxed);
        let own = &pools.own;
        let is_due = own.freed.len() >= DETACH_MAX || !own.flushed.is_empty();
        if asked {
            self.drain_own(pools, cpu, Scope::AllAreas, around)
        } else if is_due || around.lazy.own(cpu.rank()) > around.lazy.own_limit {
            self.drain_own(pools, cpu, Scope::Areas(AREAS_PER_HOLD), around)
        } else {
            false
        }
    }

    /// Flushes what the owner has freed, unless that has happened, and moves up to [`AREAS_PER_HOLD`] areas into its
    /// pools. Returns false if there is nothing to move, or its flush has not completed.
    #[cold]
    #[inline(never)]
    pub(in crate::vmap) fn drain_own<M: Mapper, E: EventSink>(
        &self,
        pools: &mut CpuPools,
        cpu: CpuId,
        scope: Scope,
        around: Surroundings<'_, M, E>,
    ) -> bool {
        if pools.own.flushed.is_empty() && !self.flush_own(pools, cpu.rank(), around) {
            return false;
        }
        match scope {
            Scope::Areas(_) if around.mapper.completed() < pools.own.awaited => return false,
            Scope::Areas(_) => {}
            Scope::AllAreas | Scope::Everything => wait_for(around.mapper, pools.own.awaited),
        }
        let mut batch = Batch::new();
        let mut pages = 0;
        for _ in 0..AREAS_PER_HOLD {
            let Some(Flushed { offset, total, slot }) = pools.own.flushed.pop() else { break };
            let total = u64::from(total);
            pages += total;
            let word = &self.books.cell(slot).word;
            let idle = AreaWord(word.load(Ordering::Relaxed)).own_lazy_as_idle();
            word.store(idle.0, Ordering::Release);
            if pools.push(offset, total, slot, self.pool_bound) == Pushed::Refused {
                batch.push(offset, total);
            }
        }
        pools.own.counters.steps += 1;
        pools.decay(self.epoch(), &mut batch);
        self.give_back(&mut batch);
        around.lazy.subtract_own(cpu.rank(), pages);
        true
    }

    /// Begins a flush of what the owner has freed and no other thread has claimed. Returns true if there is any.
    fn flush_own<M: Mapper, E: EventSink>(
        &self,
        pools: &mut CpuPools,
        rank: usize,
        around: Surroundings<'_, M, E>,
    ) -> bool {
        let OwnAreas { freed, flushed, plan, counters, .. } = &mut pools.own;
        // Pairs with the one in `retire_owned`.
        fence(Ordering::SeqCst);
        core::mem::swap(freed, flushed);
        if self.per_cpu[rank].claims.load(Ordering::SeqCst) > 0 {
            self.keep_claimed(freed, flushed);
        }
        // An owner frees neighbours one after the other: they are one range.
        let (mut start, mut end) = (0, 0);
        for &Flushed { offset, total, .. } in &*flushed {
            let above = offset + u64::from(total);
            if offset == end {
                end = above;
            } else if above == start {
                start = offset;
            } else {
                self.add_run(plan, start, end);
                (start, end) = (offset, above);
            }
        }
        if flushed.is_empty() {
            return false;
        }
        self.add_run(plan, start, end);
        pools.own.awaited = self.flush_planned(plan, flushed.len() as u64, counters, around);
        true
    }

    fn add_run(&self, plan: &mut FlushPlan, start: u64, end: u64) {
        if start < end {
            plan.add(self.base + start, self.base + end);
        }
    }

    /// Moves the areas that are claimed back among those that no flush covers. Where there is no memory for that, all
    /// go back.
    #[cold]
    fn keep_claimed(&self, freed: &mut Vec<Flushed>, flushed: &mut Vec<Flushed>) {
        if freed.try_reserve(flushed.len()).is_err() {
            core::mem::swap(freed, flushed);
            return;
        }
        flushed.retain(|area| {
            let claimed = self.books.cell(area.slot).claim.load(Ordering::SeqCst) != UNCLAIMED;
            if claimed {
                put(freed, *area);
            }
            !claimed
        });
    }

    /// Leaves what the owner has freed to every thread. Areas that are claimed stay until their mail has come.
    pub(super) fn publish(&self, pools: &mut CpuPools, rank: usize, lazy: &LazyCount) {
        self.read_mail(pools, rank, lazy);
        let freed = &mut pools.own.freed;
        freed.retain(|area| !self.publish_area(*area, rank, lazy));
        while let Some(area) = pools.own.flushed.pop() {
            let published = self.publish_area(area, rank, lazy);
            debug_assert!(published, "what a flush covers is not claimed");
        }
    }

    /// Puts an area that its owner has freed on the list of its shard, unless it is claimed.
    fn publish_area(&self, freed: Flushed, rank: usize, lazy: &LazyCount) -> bool {
        let Flushed { offset, total, slot } = freed;
        let total = u64::from(total);
        let mut shard = self.books.lock(offset);
        let cell = self.books.cell(slot);
        if cell.claim.load(Ordering::Relaxed) != UNCLAIMED {
            return false;
        }
        let idle = AreaWord(cell.word.load(Ordering::Relaxed)).own_lazy_as_idle();
        cell.word.store(idle.0, Ordering::Release);
        lazy.add(total);
        lazy.subtract_own(rank, total);
        put(&mut shard.lazy, Freed { offset, total, slot, pool: Some(rank as u32) });
        true
    }

    /// Leaves to every thread what has been freed of the areas of a CPU, if its pools are in their place.
    pub(super) fn publish_of(&self, rank: usize, lazy: &LazyCount) {
        let cpu = &self.per_cpu[rank];
        if cpu.mail.load(Ordering::Relaxed) != LAST_OF_MAIL
            && let Some(pools) = cpu.pools.lock().as_mut()
        {
            self.publish(pools, rank, lazy);
        }
    }

    /// Returns the number of pages that are counted as lazy twice: their owner and another thread have freed them at
    /// once, and that mail was not read.
    pub(in crate::vmap) fn counted_twice(&self) -> u64 {
        let mut pages = 0;
        for position in 0..self.books.shard_count() {
            let shard = self.books.lock_at(position);
            for (_, cell) in self.books.cells_in(&shard) {
                let word = AreaWord(cell.word.load(Ordering::Acquire));
                if cell.claim.load(Ordering::Acquire) >= LAST_OF_MAIL && !word.is_busy() {
                    pages += word.total();
                }
            }
        }
        pages
    }

    /// Adds to `plan` where the areas lie that an owner has, and it or another thread has freed.
    pub(super) fn plan_owned(&self, plan: &mut FlushPlan, lazy: &LazyCount) {
        for (rank, cpu) in self.per_cpu.iter().enumerate() {
            // A claim is counted until the owner has counted the area's pages, and these until the area is on the list
            // of its shard or flushed.
            if cpu.claims.load(Ordering::Acquire) > 0 || lazy.own(rank) > 0 {
                for (low, high) in [cpu.hull.get(), self.loaded.get()] {
                    self.add_run(plan, low, high);
                }
            }
        }
    }
}
