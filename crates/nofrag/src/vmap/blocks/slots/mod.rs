//! Our own blocks: slots are recycled one by one, an unmapping takes no lock, and at most one other block is looked at.
//!
//! * **Map**: cut slots from the CPU's window (see [`stock`]) and write the first slot's byte. Under the CPU's lock, or
//!   through a handle without any.
//! * **Unmap**, from any CPU: find the block's record by its number, turn the first slot's byte by one compare-exchange
//!   (see [`record`]). The first dirty slot of a word since it was last collected also raises the word's flag and may
//!   put the block on the stack of its owner. The handle that has the owner's stock keeps what it unmaps in a list, and
//!   hands that in to the recycler when it next looks.
//! * **Recycle** (see [`recycler`]): collect the dirty slots of the blocks on the stack, flush, hand them back. The
//!   owner does so when it has handed out as many pages as a block has since it last looked: then that many can be
//!   dirty at most, and a flush is worth its price. An alias flush or a forced purge does so for every CPU.
//!
//! * **Hand over**: a CPU that goes away leaves its blocks to another one, with everything that is free in them. Only
//!   their records' owners change; mappings stay, and an unmapping that is late is forwarded.
//!
//! So of a block with one long-lived mapping the other slots serve again, where Linux pins them all (one live page in
//! 1024 holds 653 pages: docs/sources/vmap.md#lifetimes; what is to be reached: vmap.md#recycled-slots). While a CPU
//! maps, about a block's worth of its slots is dirty at most. If it does not, the CPUs that unmap do so: once
//! [`OVERDUE_GROUPS`] groups have been noted, they collect and flush in its stead, or ask for a step of the purge, as
//! the policy's [`Drain`] says.
//!
//! Locks nest stock > recycler; the areas' locks come below the stock's. An owner that holds its stock in a handle is
//! never waited for: slots that others free for it wait in the recycler, and a forced purge leaves it a request.

mod bits;
mod record;
mod recycler;
mod stock;

use self::record::{GROUP, Noted, Record, Sizes, Slot, SlotState, WORD};
use self::recycler::Recycler;
pub(in crate::vmap) use self::stock::Stock;
use self::stock::{BlockId, Parcel, SlotPlace};
use super::table::Table;
use super::{Aliases, AreaSource};
use crate::check::Violation;
use crate::cpu::{CpuId, CpuSet};
use crate::lists::{filled, made, put};
use crate::ranges::{OutOfMetadata, Span};
use crate::sync::{AtomicBool, AtomicU64, Guard, Mutex, Ordering, Padded, Rank, relax};
use crate::units::{PageCount, Vpn};
use crate::vmap::engine::Miss;
use crate::vmap::mapper::{Mapper, wait_for};
use crate::vmap::{
    BlockPolicy, BlockRecord, BlockStats, Drain, RamArea, UnmapRamError, VmapConfig, VmapCounters,
    Wait,
};
use alloc::vec::Vec;

/// No owner: the block does not exist.
const EMPTY: u32 = u32::MAX;

/// Marks the end of a stack of blocks with dirty slots.
const END: u64 = u64::MAX;

/// The limits of one hold of a recycler's lock: blocks, and work, in instructions as counted on x86-64. Each group
/// costs its share, and so does each mapping in it; the last group may go beyond the limit, up to 20,000.
const BLOCKS_PER_HOLD: u64 = 64;
const WORK_PER_HOLD: u32 = 12_000;
const WORK_PER_GROUP: u32 = 1_200;
const WORK_PER_MAPPING: u32 = 23;

/// Number of holds of its recycler's lock that an owner spends on collecting before it goes on.
const HOLDS_PER_LOOK: usize = 8;

/// Number of groups, of 256 slots each, of a CPU's blocks that may be noted as dirty before the CPUs that unmap collect
/// in its stead: with 4 KiB pages at most the 64 MiB that Linux leaves lazy on two CPUs.
const OVERDUE_GROUPS: u64 = 64;

/// Blocks whose slots go back to their owner in one hold.
const BLOCKS_TAKEN_BACK: usize = 16;

/// The reason why a CPU's stock is in its place.
const NOT_HELD: &str = "nobody can take a handle of the CPU";

/// Number of times that a request without a place asks the recycler before it takes a new block.
const LOOKS_BEFORE_GROWTH: usize = 4;

/// Our engine of blocks: their records, and for each CPU its stock and its recycler.
///
/// 1. A block's record has an owner exactly while the block exists.
/// 2. Each slot of a block is free with its owner, mapped, or on one side of the owner's recycler.
#[derive(Debug)]
pub(in crate::vmap) struct SlotBlocks {
    policy: BlockPolicy,
    slots: u32,
    shift: u32,
    slot_mask: u32,
    sizes: Sizes,
    cpus: CpuSet,
    table: Table<Record>,
    drain: Drain,
    /// Blocks that were on the wrong stack and have been put on another one.
    forwarded: AtomicU64,
    per_cpu: Vec<PerCpu>,
}

#[derive(Debug)]
struct PerCpu {
    /// The number of the first block on the stack of those that may have dirty slots, or [`END`].
    stack: Padded<AtomicU64>,
    /// Number of unmappings that have raised a group's flag, or are about to, and may still have to put the block on
    /// the stack.
    noting: AtomicU64,
    /// Number of groups that were noted as dirty since the stack was last taken.
    noted: AtomicU64,
    /// True if a flush is due that the owner must not or does not make.
    overdue: AtomicBool,
    /// The CPU's stock; `None` while a handle has it.
    stock: Padded<Mutex<Option<Stock>>>,
    recycler: Padded<Mutex<Recycler>>,
    kept: Padded<Kept>,
    /// Set by a forced purge while a handle has the stock: the handle gives idle blocks back when it next looks.
    give_back: AtomicBool,
}

/// Where the slots lie that a CPU's handle has freed and not handed in: an alias flush by others flushes all between.
/// Only the holder of the stock writes this.
#[derive(Debug)]
struct Kept {
    lowest: AtomicU64,
    end: AtomicU64,
}

impl Kept {
    fn nothing() -> Kept {
        Kept { lowest: AtomicU64::new(u64::MAX), end: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn widen(&self, start: u64, end: u64) {
        if start < self.lowest.load(Ordering::Relaxed) {
            self.lowest.store(start, Ordering::Release);
        }
        if end > self.end.load(Ordering::Relaxed) {
            self.end.store(end, Ordering::Release);
        }
    }

    fn reset(&self) {
        self.lowest.store(u64::MAX, Ordering::Release);
        self.end.store(0, Ordering::Release);
    }

    /// Returns a hull of the slots that were freed before the call, unless they have been handed in.
    fn hull(&self) -> Option<Span> {
        let (lowest, end) = (self.lowest.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        Span::new(lowest, end).ok()
    }
}

/// Blocks to be given back when no lock is held, at most as many as one hold finds.
#[derive(Default)]
struct LetGo {
    starts: [u64; BLOCKS_TAKEN_BACK],
    len: usize,
}

impl SlotBlocks {
    pub(super) fn new(config: &VmapConfig) -> Result<SlotBlocks, OutOfMetadata> {
        let policy = config.policy.blocks;
        let slots = policy.geometry.slots();
        let words = slots.div_ceil(WORD) as usize;
        let per_cpu = made(config.cpus.len(), || PerCpu {
            stack: Padded(AtomicU64::new(END)),
            noting: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            overdue: AtomicBool::new(false),
            stock: Padded(Mutex::new(Rank::Stock, Some(Stock::new(slots, policy.reuse)))),
            recycler: Padded(Mutex::new(Rank::Recycler, Recycler::new(words, config.span))),
            kept: Padded(Kept::nothing()),
            give_back: AtomicBool::new(false),
        })?;
        Ok(SlotBlocks {
            policy,
            slots,
            shift: slots.ilog2(),
            slot_mask: slots - 1,
            sizes: Sizes::new(policy.classes, policy.geometry.max_pages()),
            cpus: config.cpus.copied()?,
            table: Table::new(config.span, slots)?,
            drain: config.policy.drain,
            forwarded: AtomicU64::new(0),
            per_cpu,
        })
    }

    /// Returns the number of a page's block, and its slot there.
    #[inline(always)]
    fn split(&self, page: u64) -> (u64, u32) {
        (page >> self.shift, page as u32 & self.slot_mask)
    }

    /// Starts a mapping at a place and returns its first page.
    #[inline(always)]
    fn start(&self, stock: &mut Stock, place: SlotPlace, pages: u32) -> u64 {
        let record = self.table.at(place.block.position).expect("a block has a record");
        record.start(place.slot, pages);
        stock.counters.maps += 1;
        place.block.start + u64::from(place.slot)
    }

    fn record(&self, number: u64) -> &Record {
        self.table.get(number).expect("a block has a record")
    }

    /// Takes slots for a mapping from the window of a stock, if it has enough, and returns the first page.
    #[inline(always)]
    pub(super) fn map_at_hand(&self, stock: &mut Stock, pages: u64) -> Option<u64> {
        if pages.wrapping_sub(1) >= u64::from(WORD) {
            return None;
        }
        let pages = pages as u32;
        let place = stock.take(self.sizes.of_pages(pages))?;
        Some(self.start(stock, place, pages))
    }

    /// Does what [`map_at_hand`](Self::map_at_hand) does, under the CPU's lock.
    #[inline(always)]
    pub(super) fn map_at_hand_locked(&self, cpu: CpuId, pages: u64) -> Option<u64> {
        let mut stock = self.per_cpu.get(cpu.rank())?.stock.lock();
        self.map_at_hand(stock.as_mut()?, pages)
    }

    /// Ends a mapping of exactly this size; false if there is none, and then nothing changed.
    #[inline(always)]
    pub(super) fn unmap_at_hand<A: AreaSource>(&self, area: RamArea, areas: &A) -> bool {
        match self.end(area, areas.mapper()) {
            Some(Ended::Known) => true,
            Some(Ended::Noted) => {
                self.drain_if_due(area, areas);
                true
            }
            None => false,
        }
    }

    #[inline(always)]
    fn end<M: Mapper>(&self, area: RamArea, mapper: &M) -> Option<Ended> {
        let (number, slot) = self.split(area.start.get());
        let pages = area.pages.get();
        let record = self.table.get(number)?;
        if pages.wrapping_sub(1) >= u64::from(WORD) {
            return None;
        }
        let ending = record.end(slot, pages as u32, M::CLEARS)?;
        let is_noted = record.is_noted(slot);
        if !is_noted {
            self.note(number, record, slot);
        }
        if M::CLEARS {
            mapper.clear(area.span());
            ending.finish();
        }
        Some(if is_noted { Ended::Known } else { Ended::Noted })
    }

    /// Ends a mapping of exactly this size in a block of the caller, who has the CPU's stock; false if there is none,
    /// and then nothing changed. The stock keeps the slots until it is handed in.
    #[inline(always)]
    pub(super) fn unmap_own<A: AreaSource>(
        &self,
        stock: &mut Stock,
        cpu: CpuId,
        area: RamArea,
        areas: &A,
    ) -> bool {
        let (number, slot) = self.split(area.start.get());
        let pages = area.pages.get();
        let Some(record) = self.table.get(number) else { return false };
        if pages.wrapping_sub(1) >= u64::from(WORD)
            || record.owner.load(Ordering::Relaxed) != cpu.rank() as u32
        {
            return false;
        }
        let pages = pages as u32;
        let (start, end) = (area.start.get(), area.start.get() + u64::from(pages));
        let clears = <A::Mapper as Mapper>::CLEARS;
        let Some(ending) = record.end_own(slot, pages, clears) else { return false };
        if clears {
            areas.mapper().clear(Span::known(start, end));
        }
        let size = self.sizes.of_pages(pages);
        let kept = record.kept.load(Ordering::Relaxed);
        record.kept.store(kept + size, Ordering::Relaxed);
        self.per_cpu[cpu.rank()].kept.widen(start, end);
        let is_full = stock.keep(record.local.load(Ordering::Relaxed), slot, size);
        ending.finish();
        if is_full {
            self.look_after_own(stock, cpu, areas);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn look_after_own<A: AreaSource>(&self, stock: &mut Stock, cpu: CpuId, areas: &A) {
        match self.drain {
            Drain::ByFreer => {
                self.look(stock, cpu, Wait::MayReclaim, areas);
            }
            Drain::Posted => {
                let shared = &self.per_cpu[cpu.rank()];
                let mut recycler = shared.recycler.lock();
                self.hand_in(cpu.rank(), stock, &mut recycler);
                if recycler.dirty.pages >= u64::from(self.slots) {
                    shared.overdue.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Hands what the holder of a CPU's stock has freed in to the CPU's recycler.
    fn hand_in(&self, me: usize, stock: &mut Stock, recycler: &mut Recycler) {
        if stock.keeps_nothing() {
            return;
        }
        stock.hand_in(|block, local, runs| {
            let record = self.table.at(block.position).expect("a block has a record");
            record.kept.store(0, Ordering::Relaxed);
            recycler.take_in(block.start, local, runs);
        });
        self.per_cpu[me].kept.reset();
    }

    /// Returns true if the holder of a CPU's stock keeps a slot at `page` that it has freed.
    pub(super) fn keeps(&self, stock: &Stock, cpu: CpuId, page: u64) -> bool {
        let (number, slot) = self.split(page);
        let record = self.table.get(number);
        let own = record.filter(|it| it.owner.load(Ordering::Relaxed) == cpu.rank() as u32);
        own.is_some_and(|own| stock.keeps(own.local.load(Ordering::Relaxed), slot))
    }

    /// Maps on behalf of the CPU, under its lock.
    pub(super) fn map<A: AreaSource>(
        &self,
        cpu: CpuId,
        pages: u32,
        wait: Wait,
        areas: &A,
    ) -> Result<u64, Miss> {
        match self.per_cpu[cpu.rank()].stock.lock().as_mut() {
            Some(stock) => self.map_from(stock, cpu, pages, wait, areas),
            None => Err(Miss::CpuHeld),
        }
    }

    /// Maps for a caller that has the CPU's stock.
    pub(super) fn map_from<A: AreaSource>(
        &self,
        stock: &mut Stock,
        cpu: CpuId,
        pages: u32,
        wait: Wait,
        areas: &A,
    ) -> Result<u64, Miss> {
        let size = self.sizes.of_pages(pages);
        let place = match stock.take(size) {
            Some(place) => place,
            None => self.refill(stock, cpu, size, wait, areas)?,
        };
        Ok(self.start(stock, place, pages))
    }

    /// Takes `size` slots from outside the window.
    #[inline(never)]
    fn refill<A: AreaSource>(
        &self,
        stock: &mut Stock,
        cpu: CpuId,
        size: u32,
        wait: Wait,
        areas: &A,
    ) -> Result<SlotPlace, Miss> {
        let asked = &self.per_cpu[cpu.rank()].give_back;
        if wait == Wait::MayReclaim && asked.load(Ordering::Relaxed) {
            self.purge_stock(cpu, stock, areas);
        }
        if stock.allowance < size {
            self.look(stock, cpu, wait, areas);
        }
        let mut found = stock.take_elsewhere(size);
        for _ in 0..LOOKS_BEFORE_GROWTH {
            if found.is_some() || !self.look(stock, cpu, wait, areas) {
                break;
            }
            found = stock.take_elsewhere(size);
        }
        if let Some(place) = found {
            return Ok(place);
        }
        self.grow(stock, cpu, areas)?;
        Ok(stock.take_elsewhere(size).expect("a new block has room for any request"))
    }

    /// Asks the recycler: collects dirty slots, flushes them if they are as many as a block has, and takes back those
    /// that are ready. Returns true if any came back.
    fn look<A: AreaSource>(&self, stock: &mut Stock, cpu: CpuId, wait: Wait, areas: &A) -> bool {
        let shared = &self.per_cpu[cpu.rank()];
        // Another thread may be flushing under the lock.
        let Some(mut recycler) = shared.recycler_for(wait) else { return false };
        self.hand_in(cpu.rank(), stock, &mut recycler);
        let mut more = self.collect_some(cpu.rank(), &mut recycler, Snapshot::Renew);
        for _ in 1..HOLDS_PER_LOOK {
            if !more {
                break;
            }
            drop(recycler);
            let Some(again) = shared.recycler_for(wait) else { return false };
            recycler = again;
            more = self.collect_some(cpu.rank(), &mut recycler, Snapshot::Keep);
        }
        recycler.land(areas.mapper().completed(), BLOCKS_TAKEN_BACK);
        if recycler.dirty.pages >= u64::from(self.slots) {
            match wait {
                Wait::MayReclaim => {
                    recycler.take_off(areas.mapper());
                    recycler.land(areas.mapper().completed(), BLOCKS_TAKEN_BACK);
                }
                Wait::Never => shared.overdue.store(true, Ordering::Relaxed),
            }
        }
        let any = !recycler.ready.is_empty();
        let due = u64::from(self.slots).saturating_sub(recycler.dirty.pages);
        stock.allowance = (due as u32).max(WORD);
        self.take_back(stock, recycler, areas);
        any
    }

    /// Takes back some of the ready slots, and lets superfluous blocks go. Returns the number of these blocks.
    fn take_back<A: AreaSource>(
        &self,
        stock: &mut Stock,
        mut recycler: Guard<'_, Recycler>,
        areas: &A,
    ) -> u64 {
        let mut let_go = LetGo::default();
        stock.take_back(&mut recycler.ready, BLOCKS_TAKEN_BACK, |start| {
            let_go.add(self, start);
        });
        drop(recycler);
        let_go.release(areas);
        let_go.len as u64
    }

    /// Takes a new block into the stock.
    #[cold]
    #[inline(never)]
    fn grow<A: AreaSource>(&self, stock: &mut Stock, cpu: CpuId, areas: &A) -> Result<(), Miss> {
        let local = stock.provide()?;
        let start = match areas.take_block(cpu) {
            Ok(start) => start,
            Err(why) => {
                stock.withdraw(local);
                return Err(why);
            }
        };
        let number = start >> self.shift;
        let mut recycler = self.per_cpu[cpu.rank()].recycler.lock();
        let provided = recycler.reserve(local);
        let record = self.table.provide(number, || Record::new(self.slots));
        match (provided, record) {
            (Ok(()), Ok(record)) => {
                // Flags that a slow unmapping of an earlier block here has left.
                record.lower();
                record.local.store(local, Ordering::Relaxed);
                // Under the recycler's lock, so that a thread that collects sees an owner and a place that belong
                // together.
                record.owner.store(cpu.rank() as u32, Ordering::Release);
                stock.add(local, BlockId { start, position: self.table.position(number) });
                Ok(())
            }
            _ => {
                drop(recycler);
                stock.withdraw(local);
                areas.release_block(start);
                Err(Miss::OutOfMetadata)
            }
        }
    }

    /// Ends the mapping without a flush, or names the error.
    pub(super) fn unmap<A: AreaSource>(
        &self,
        area: RamArea,
        areas: &A,
    ) -> Result<(), UnmapRamError> {
        let (number, _) = self.split(area.start.get());
        match self.table.get(number) {
            _ if self.end(area, areas.mapper()).is_some() => Ok(()),
            Some(record) => Err(self.why_not_unmapped(record, area)),
            None => Err(UnmapRamError::NotMapped),
        }
    }

    #[cold]
    #[inline(never)]
    fn why_not_unmapped(&self, record: &Record, area: RamArea) -> UnmapRamError {
        if !record.exists() {
            return UnmapRamError::NotMapped;
        }
        let found = record.slot(self.split(area.start.get()).1);
        match found.state() {
            SlotState::Live => {
                UnmapRamError::WrongSize { pages: PageCount(u64::from(found.pages())) }
            }
            SlotState::Ending | SlotState::Dirty => UnmapRamError::DoubleUnmap,
            SlotState::Free => match self.find(area.start.get()) {
                Some(covering) => UnmapRamError::NotAStart { start: covering.start },
                None if self.is_on_its_way(record, area.start.get()) => UnmapRamError::DoubleUnmap,
                // A mapping that was there once has been recycled since.
                None => UnmapRamError::NotMapped,
            },
        }
    }

    /// Returns true if a slot was collected and its owner does not have it back yet.
    fn is_on_its_way(&self, record: &Record, page: u64) -> bool {
        let Some((_, recycler, local)) = self.recycler_of(record) else { return false };
        recycler.has(local, self.split(page).1)
    }

    /// Returns the position of a block's owner, its recycler and the block's place there, if the block exists. While
    /// the recycler is locked the block stays.
    fn recycler_of(&self, record: &Record) -> Option<(usize, Guard<'_, Recycler>, u32)> {
        loop {
            let owner = record.owner.load(Ordering::Acquire);
            let recycler = self.per_cpu.get(owner as usize)?.recycler.lock();
            if record.owner.load(Ordering::Acquire) == owner {
                return Some((owner as usize, recycler, record.local.load(Ordering::Relaxed)));
            }
        }
    }

    /// Returns the CPU on whose stack a block goes: its owner. A block that has no owner any more goes to the first
    /// CPU: there it is found.
    fn keeper(&self, record: &Record) -> &PerCpu {
        match record.owner.load(Ordering::Acquire) {
            EMPTY => &self.per_cpu[0],
            owner => &self.per_cpu[owner as usize],
        }
    }

    /// Notes that the slot's group has a slot to collect, and makes sure that the block is on a stack.
    #[cold]
    #[inline(never)]
    fn note(&self, number: u64, record: &Record, slot: u32) {
        let noting = &self.keeper(record).noting;
        // Before the flag: a thread that sees the flag, and flushes aliases next, sees this too.
        noting.fetch_add(1, Ordering::Relaxed);
        if record.note(slot) == Noted::ToQueue {
            self.enqueue(number, record);
        }
        noting.fetch_sub(1, Ordering::Release);
        self.keeper(record).noted.fetch_add(1, Ordering::Relaxed);
    }

    /// Collects and flushes, after an unmapping that had to note its group, for an owner that does not do so.
    #[cold]
    #[inline(never)]
    fn drain_if_due<A: AreaSource>(&self, area: RamArea, areas: &A) {
        let (number, _) = self.split(area.start.get());
        let owner = self.record(number).owner.load(Ordering::Acquire) as usize;
        let Some(shared) = self.per_cpu.get(owner) else { return };
        if shared.noted.load(Ordering::Relaxed) >= OVERDUE_GROUPS {
            shared.overdue.store(true, Ordering::Relaxed);
        }
        if self.drain == Drain::ByFreer && shared.overdue.load(Ordering::Relaxed) {
            self.drain(owner, areas);
        }
    }

    /// Collects dirty slots of one CPU's blocks, flushes them if they are as many as a block has, and takes back those
    /// that are ready, unless another thread is at it.
    fn drain<A: AreaSource>(&self, me: usize, areas: &A) {
        let shared = &self.per_cpu[me];
        let Some(mut recycler) = shared.recycler.try_lock() else { return };
        shared.overdue.store(false, Ordering::Relaxed);
        if self.collect_some(me, &mut recycler, Snapshot::Renew) {
            shared.overdue.store(true, Ordering::Relaxed);
        }
        recycler.land(areas.mapper().completed(), BLOCKS_TAKEN_BACK);
        if recycler.dirty.pages >= u64::from(self.slots) {
            recycler.take_off(areas.mapper());
            recycler.land(areas.mapper().completed(), BLOCKS_TAKEN_BACK);
        }
        drop(recycler);
        if let Some(mut stock) = shared.stock.try_lock()
            && let Some(stock) = stock.as_mut()
        {
            self.take_back(stock, shared.recycler.lock(), areas);
        }
    }

    /// Returns true if slots await a flush that their owners do not make.
    pub(super) fn is_overdue(&self) -> bool {
        self.per_cpu.iter().any(|shared| shared.overdue.load(Ordering::Relaxed))
    }

    /// Collects and flushes, for each CPU, the slots that are overdue there.
    pub(super) fn drain_overdue<A: AreaSource>(&self, areas: &A) {
        for (me, shared) in self.per_cpu.iter().enumerate() {
            if shared.overdue.load(Ordering::Relaxed) {
                self.drain(me, areas);
            }
        }
    }

    /// Puts a block on the stack of its [`keeper`](Self::keeper).
    fn enqueue(&self, number: u64, record: &Record) {
        let stack = &self.keeper(record).stack;
        let mut first = stack.load(Ordering::Relaxed);
        loop {
            record.next.store(first, Ordering::Relaxed);
            // Pairs with the swap that takes the stack.
            match stack.compare_exchange(first, number, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// Collects dirty slots of one CPU's blocks, as much as one hold allows. Returns true if there are more.
    fn collect_some(&self, me: usize, recycler: &mut Recycler, snapshot: Snapshot) -> bool {
        if recycler.todo.is_none() && snapshot == Snapshot::Renew {
            let first = self.per_cpu[me].stack.swap(END, Ordering::Acquire);
            recycler.todo = (first != END).then_some(first);
            self.per_cpu[me].noted.store(0, Ordering::Relaxed);
        }
        let (mut blocks, mut work) = (0, 0);
        while blocks < BLOCKS_PER_HOLD && work < WORK_PER_HOLD {
            let Some((number, raised)) = self.next_dirty(me, recycler) else { break };
            blocks += 1;
            let rest = self.collect_block(number, raised, recycler, &mut work);
            recycler.partly = (rest != 0).then_some((number, rest));
        }
        recycler.counters.visited += blocks;
        recycler.counters.max_visited = recycler.counters.max_visited.max(blocks);
        recycler.todo.is_some() || recycler.partly.is_some()
    }

    /// Returns the number of the next block to collect from, and a bit for each of its raised groups.
    fn next_dirty(&self, me: usize, recycler: &mut Recycler) -> Option<(u64, u128)> {
        // Nothing in the block was live or dirty if it has changed hands since.
        if let Some((number, rest)) = recycler.partly.take()
            && self.record(number).owner.load(Ordering::Acquire) == me as u32
        {
            return Some((number, rest));
        }
        while let Some(number) = recycler.todo {
            let record = self.record(number);
            let next = record.next.load(Ordering::Relaxed);
            recycler.todo = (next != END).then_some(next);
            let owner = record.owner.load(Ordering::Acquire);
            if owner == me as u32 {
                record.unqueue();
                return Some((number, record.lower()));
            }
            self.forward(number, record, owner);
        }
        None
    }

    /// Deals with a block on the wrong stack: an unmapping noted it, and was slow to put it there, while others gave
    /// the block back, and perhaps took it again; or the block was handed over when it was there already.
    ///
    /// Nothing is lost on the way: `queued` stays set, so no thread puts the block on another stack, and its dirty
    /// slots wait in the record. Only its owner's recycler collects them, one at a time: an owner is read under the
    /// lock of the recycler that wants to collect, and changes only under that of the owner before. If it changes again
    /// before the block is on its stack, the block is forwarded once more.
    #[cold]
    fn forward(&self, number: u64, record: &Record, owner: u32) {
        if owner == EMPTY {
            record.unqueue();
            // It has got an owner meanwhile, and an unmapping may have relied on the block being on a stack.
            if !record.exists() || record.queue() == Noted::Known {
                return;
            }
        }
        self.enqueue(number, record);
        // Pairs with the loads in `flush_aliases`: a thread that flushes all CPUs in turn sees either the block on the
        // right stack or, having had the lock of this one, the count at the end.
        self.forwarded.fetch_add(1, Ordering::Release);
    }

    /// Collects the dirty slots of a block's raised groups, as far as the hold allows. Returns the groups that are
    /// left.
    fn collect_block(
        &self,
        number: u64,
        mut raised: u128,
        recycler: &mut Recycler,
        work: &mut u32,
    ) -> u128 {
        let record = self.record(number);
        let local = record.local.load(Ordering::Relaxed);
        let first_page = number << self.shift;
        let (mut first, mut last) = (u32::MAX, 0);
        let (mut next, mut reached) = (0, 0);
        while raised != 0 && *work < WORK_PER_HOLD {
            let group = raised.trailing_zeros();
            raised &= raised - 1;
            let from = if group == next { reached } else { 0 };
            let found = record.collect(group, from, &self.sizes);
            (next, reached) = (group + 1, found.reached);
            let hull = recycler.add(local, group, &found);
            if let Some((low, high)) = hull {
                first = first.min(low);
                last = high;
            }
            // The slot is dirty soon: the thread that ends the mapping has noted its group, and will not do so again.
            if found.any_ending {
                self.note(number, record, group * GROUP);
            }
            *work += WORK_PER_GROUP + WORK_PER_MAPPING * found.mappings;
        }
        if first <= last {
            recycler.cover(first_page + u64::from(first), first_page + u64::from(last) + 1);
        }
        raised
    }

    /// Collects all slots of one CPU that are dirty now, flushes them, and waits. Returns the number of blocks looked
    /// at, and a hull of what the CPU's handle has freed and keeps, which is not flushed.
    fn recycle<A: AreaSource>(&self, me: usize, areas: &A) -> (u64, Option<Span>) {
        let lock = || self.per_cpu[me].recycler.lock();
        let before = lock().counters.visited;
        // First the blocks that an earlier look left, then those on the stack now.
        while self.collect_some(me, &mut lock(), Snapshot::Keep) {}
        let mut more = self.collect_some(me, &mut lock(), Snapshot::Renew);
        while more {
            more = self.collect_some(me, &mut lock(), Snapshot::Keep);
        }
        let kept = loop {
            self.land_all(me, areas);
            let mut recycler = lock();
            if recycler.flight.is_none() {
                // What the owner hands in later lies in this hull: it does so under the lock.
                let kept = self.per_cpu[me].kept.hull();
                recycler.take_off(areas.mapper());
                break kept;
            }
        };
        self.land_all(me, areas);
        (lock().counters.visited - before, kept)
    }

    /// Waits until no slot of one CPU's blocks is flying, which means that its flush has not completed.
    fn land_all<A: AreaSource>(&self, me: usize, areas: &A) {
        loop {
            let flight = {
                let mut recycler = self.per_cpu[me].recycler.lock();
                recycler.land(areas.mapper().completed(), BLOCKS_PER_HOLD as usize);
                recycler.flight
            };
            match flight {
                Some(epoch) => wait_for(areas.mapper(), epoch),
                None => return,
            }
        }
    }

    /// Flushes every dirty slot of every CPU, and gives superfluous empty blocks back.
    pub(super) fn flush_aliases<A: AreaSource>(&self, areas: &A) -> Aliases {
        let mut aliases = Aliases::default();
        self.per_cpu[0].recycler.lock().counters.alias_flushes += 1;
        // An unmapping that found a flag set is over, although the block may not be on a stack yet.
        for shared in &self.per_cpu {
            shared.wait_for_notes();
        }
        loop {
            let forwarded = self.forwarded.load(Ordering::Acquire);
            self.flush_aliases_once(&mut aliases, areas);
            // A block that was forwarded may have got to a CPU whose turn was over.
            if self.forwarded.load(Ordering::Acquire) == forwarded {
                return aliases;
            }
        }
    }

    fn flush_aliases_once<A: AreaSource>(&self, aliases: &mut Aliases, areas: &A) {
        for (me, shared) in self.per_cpu.iter().enumerate() {
            let (visited, kept) = self.recycle(me, areas);
            aliases.visited += visited;
            kept.into_iter().for_each(|kept| aliases.add(kept));
            while let Some(stock) = shared.stock.lock().as_mut() {
                let recycler = shared.recycler.lock();
                if recycler.ready.is_empty() {
                    break;
                }
                aliases.returned += self.take_back(stock, recycler, areas);
            }
        }
    }

    /// Hands every block of a CPU, whose stock the caller has, over to another CPU, of which no handle can be taken
    /// meanwhile. Returns the number of blocks that went over; idle ones are given back instead.
    ///
    /// Nothing is mapped in these blocks meanwhile, so the number of slots that can become dirty in them is finite.
    pub(super) fn hand_over<A: AreaSource>(
        &self,
        from: CpuId,
        stock: &mut Stock,
        to: CpuId,
        areas: &A,
    ) -> Result<u64, OutOfMetadata> {
        self.purge_stock(from, stock, areas);
        stock.close();
        let mut parcel = Parcel::new(self.slots)?;
        let mut moves = Vec::new();
        moves.try_reserve_exact(stock.block_count() as usize)?;
        for (local, id) in stock.blocks() {
            match self.provide(to) {
                Ok(place) => put(&mut moves, (local, place, id)),
                Err(why) => {
                    let mut target = self.per_cpu[to.rank()].stock.lock();
                    let target = target.as_mut().expect(NOT_HELD);
                    moves.iter().for_each(|&(_, place, _)| target.withdraw(place));
                    return Err(why);
                }
            }
        }
        for &(local, place, id) in &moves {
            while !self.try_move(from, stock, to, (local, place, id), &mut parcel) {
                self.recycle(from.rank(), areas);
            }
        }
        // Blocks that are on the wrong stack by now go to the right one; later ones wait for an alias flush or a purge.
        self.per_cpu[from.rank()].wait_for_notes();
        self.recycle(from.rank(), areas);
        Ok(moves.len() as u64)
    }

    /// Returns a place for a block in the stock of a CPU, and in its recycler.
    fn provide(&self, cpu: CpuId) -> Result<u32, OutOfMetadata> {
        let shared = &self.per_cpu[cpu.rank()];
        let mut stock = shared.stock.lock();
        let stock = stock.as_mut().expect(NOT_HELD);
        let place = stock.provide()?;
        let reserved = shared.recycler.lock().reserve(place);
        if reserved.is_err() {
            stock.withdraw(place);
        }
        reserved.map(|()| place)
    }

    /// Hands a block over to another CPU, unless slots of its owner wait for a flush: an alias flush must find these
    /// there. Returns true if the block went over.
    fn try_move(
        &self,
        from: CpuId,
        stock: &mut Stock,
        to: CpuId,
        (local, place, id): (u32, u32, BlockId),
        parcel: &mut Parcel,
    ) -> bool {
        // Held until the block is there: a thread that collects for the new owner may be quick, but cannot hand
        // anything back.
        let mut target = self.per_cpu[to.rank()].stock.lock();
        let mut recycler = self.per_cpu[from.rank()].recycler.lock();
        if !recycler.is_flushed() {
            return false;
        }
        let record = self.record(id.start >> self.shift);
        parcel.ready = recycler.ready.withdraw(local, &mut parcel.ready_mask);
        record.local.store(place, Ordering::Relaxed);
        // From here on the recycler of the new owner, which has a place for the block, collects it.
        record.owner.store(to.rank() as u32, Ordering::Release);
        drop(recycler);
        stock.surrender(local, parcel);
        target.as_mut().expect(NOT_HELD).adopt(place, id, parcel);
        true
    }

    /// Gives back every block of every CPU in which nothing is live. A handle that has its CPU's blocks is asked to do
    /// so.
    pub(super) fn purge_idle<A: AreaSource>(&self, areas: &A) {
        loop {
            let forwarded = self.forwarded.load(Ordering::Acquire);
            self.purge_idle_once(areas);
            if self.forwarded.load(Ordering::Acquire) == forwarded {
                return;
            }
        }
    }

    fn purge_idle_once<A: AreaSource>(&self, areas: &A) {
        for (me, shared) in self.per_cpu.iter().enumerate() {
            self.recycle(me, areas);
            loop {
                let mut stock = shared.stock.lock();
                let Some(stock) = stock.as_mut() else {
                    shared.give_back.store(true, Ordering::Relaxed);
                    break;
                };
                if !self.let_some_go(me, stock, areas) {
                    break;
                }
            }
        }
    }

    /// Gives back every block without a live slot of one CPU, whose stock the caller has.
    pub(super) fn purge_stock<A: AreaSource>(&self, cpu: CpuId, stock: &mut Stock, areas: &A) {
        let shared = &self.per_cpu[cpu.rank()];
        shared.give_back.store(false, Ordering::Relaxed);
        self.hand_in(cpu.rank(), stock, &mut shared.recycler.lock());
        self.recycle(cpu.rank(), areas);
        while self.let_some_go(cpu.rank(), stock, areas) {}
    }

    /// Takes back some of the ready slots; once there are none, lets some idle blocks go. Returns true if there may be
    /// more.
    fn let_some_go<A: AreaSource>(&self, me: usize, stock: &mut Stock, areas: &A) -> bool {
        let recycler = self.per_cpu[me].recycler.lock();
        if !recycler.ready.is_empty() {
            self.take_back(stock, recycler, areas);
            return true;
        }
        let mut let_go = LetGo::default();
        stock.let_idle_go(BLOCKS_TAKEN_BACK, |start| let_go.add(self, start));
        drop(recycler);
        let_go.release(areas);
        let_go.len > 0
    }

    /// Returns the mapping that covers page `at`: sizes are at most 64, so it starts in this word or the one before.
    pub(super) fn find(&self, at: u64) -> Option<RamArea> {
        let (number, slot) = self.split(at);
        let record = self.table.get(number)?;
        let lowest = slot.saturating_sub(self.policy.geometry.max_pages() - 1);
        let start = (lowest..=slot).rev().find(|&start| record.slot(start) != Slot::FREE)?;
        let found = record.slot(start);
        let covers = found.state() == SlotState::Live && slot - start < found.pages();
        let pages = PageCount(u64::from(found.pages()));
        covers.then(|| RamArea { start: Vpn(at - u64::from(slot - start)), pages })
    }

    /// Returns the lowest block number (first page over block size), from `number` on, at which a block stands or
    /// stood.
    pub(super) fn next_record(&self, number: u64) -> Option<u64> {
        self.table.next_from(number)
    }

    pub(super) fn for_each_live(&self, number: u64, visit: &mut dyn FnMut(Span)) {
        let Some(record) = self.table.get(number) else { return };
        for (slot, found) in record.mappings().filter(|(_, slot)| slot.state() == SlotState::Live) {
            let start = (number << self.shift) + u64::from(slot);
            visit(Span::known(start, start + u64::from(found.pages())));
        }
    }

    /// Returns true if a flush or a forced purge could make room.
    pub(super) fn has_reclaimable(&self) -> bool {
        let waits = |shared: &PerCpu| !shared.recycler.lock().is_empty();
        self.per_cpu.iter().any(waits)
            || self.existing().any(|(_, record)| {
                let mut states = record.mappings().map(|(_, slot)| slot.state());
                let first = states.next();
                first.is_none_or(|first| first == SlotState::Dirty)
                    || states.any(|state| state == SlotState::Dirty)
            })
    }

    fn existing(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.table.iter().filter(|(_, record)| record.exists())
    }

    pub(super) fn take_stock(&self, cpu: CpuId) -> Option<Stock> {
        self.per_cpu[cpu.rank()].stock.lock().take()
    }

    /// Puts a CPU's stock back, after it has given idle blocks back if a forced purge asked for that meanwhile.
    pub(super) fn put_stock<A: AreaSource>(&self, cpu: CpuId, mut stock: Stock, areas: &A) {
        let shared = &self.per_cpu[cpu.rank()];
        if shared.give_back.load(Ordering::Relaxed) {
            self.purge_stock(cpu, &mut stock, areas);
        }
        self.hand_in(cpu.rank(), &mut stock, &mut shared.recycler.lock());
        *shared.stock.lock() = Some(stock);
    }

    pub(super) fn add_counters(&self, counters: &mut VmapCounters) {
        for shared in &self.per_cpu {
            let stock = shared.stock.lock();
            counters.locks.stock = counters.locks.stock.plus(stock.cost());
            if let Some(stock) = stock.as_ref() {
                let own = &stock.counters;
                let all = &mut counters.blocks;
                all.maps += own.maps;
                all.created += own.created;
                all.returned += own.returned;
                all.search_steps += own.search_steps;
                all.failed_searches += own.failed_searches;
                all.longest_list = all.longest_list.max(own.longest_list);
                all.purged += own.purged;
                all.recycled_pages += own.recycled_pages;
            }
            drop(stock);
            let recycler = shared.recycler.lock();
            counters.locks.recycler = counters.locks.recycler.plus(recycler.cost());
            counters.blocks.flushes += recycler.counters.flushes;
            counters.blocks.alias_flushes += recycler.counters.alias_flushes;
            counters.blocks.visited += recycler.counters.visited;
            let most = &mut counters.blocks.max_visited_per_hold;
            *most = (*most).max(recycler.counters.max_visited);
        }
        // Each existing place of the index was written once.
        counters.blocks.index_inserts = self.table.iter().count() as u64;
    }

    pub(super) fn stats(&self) -> BlockStats {
        let mut stats = BlockStats::default();
        for (number, record) in self.existing() {
            let BlockRecord { free, dirty, live, .. } = self.describe(number, record);
            stats.blocks += 1;
            stats.free_pages += u64::from(free);
            stats.dirty_pages += u64::from(dirty);
            stats.live_pages += u64::from(live);
        }
        for shared in &self.per_cpu {
            if let Some(stock) = shared.stock.lock().as_ref() {
                stats.listed_longest = stats.listed_longest.max(stock.block_count());
                stats.metadata_bytes += stock.metadata_bytes();
            }
            stats.metadata_bytes += shared.recycler.lock().metadata_bytes();
        }
        let records = self.table.iter().map(|(_, record)| record.metadata_bytes()).sum::<u64>();
        stats.metadata_bytes += self.table.metadata_bytes() + records;
        stats
    }

    /// Returns the use of a block's slots. A slot that is neither mapped nor on its way back is free.
    fn describe(&self, number: u64, record: &Record) -> BlockRecord {
        let (mut live, mut dirty) = (0, 0);
        for (_, slot) in record.mappings() {
            let size = self.sizes.of_pages(slot.pages());
            match slot.state() {
                SlotState::Live | SlotState::Ending => live += size,
                SlotState::Dirty | SlotState::Free => dirty += size,
            }
        }
        dirty += record.kept.load(Ordering::Relaxed);
        let mut owner = 0;
        if let Some((rank, recycler, local)) = self.recycler_of(record) {
            let waiting = [&recycler.dirty, &recycler.flying].map(|side| side.mask(local));
            dirty += waiting.map(bits::count).iter().sum::<u32>();
            owner = rank;
        }
        let owner = self.cpus.by_rank(owner).expect("the owner is one of the CPUs");
        let free = self.slots.saturating_sub(live + dirty);
        BlockRecord { start: Vpn(number << self.shift), owner, free, dirty, live }
    }

    pub(super) fn collect(&self, out: &mut Vec<BlockRecord>) -> Result<(), OutOfMetadata> {
        for (number, record) in self.existing() {
            out.try_reserve(1)?;
            put(out, self.describe(number, record));
        }
        Ok(())
    }

    /// Verifies the laws, except for blocks and slots that handles have taken out.
    pub(super) fn check(&self) -> Result<(), Violation> {
        for (me, shared) in self.per_cpu.iter().enumerate() {
            let stock = shared.stock.lock();
            let recycler = shared.recycler.lock();
            let law = "a side of a recycler counts its pages";
            Violation::unless(law, me as u64, !recycler.miscounted())?;
            let Some(stock) = stock.as_ref() else { continue };
            let law = "a stock in its place keeps nothing that was freed";
            Violation::unless(law, me as u64, stock.keeps_nothing())?;
            let law = "a block is in the bin of its longest free run";
            let misplaced = stock.misplaced();
            Violation::unless(law, misplaced.unwrap_or(0), misplaced.is_none())?;
            self.check_slots(me, stock, &recycler)?;
        }
        Ok(())
    }

    /// Verifies that each slot is free, mapped or on one side of the recycler, and only one of these.
    fn check_slots(&self, me: usize, stock: &Stock, recycler: &Recycler) -> Result<(), Violation> {
        let words = self.slots.div_ceil(WORD) as usize;
        let (Ok(mut seen), Ok(mut more)) = (filled(words, 0_u64), filled(words, 0_u64)) else {
            return Ok(());
        };
        let blocks = stock.blocks();
        for (local, id) in blocks {
            let number = id.start >> self.shift;
            let record = self.record(number);
            let law = "a block's record names its owner and its place there";
            let owner = record.owner.load(Ordering::Relaxed);
            let place = record.local.load(Ordering::Relaxed);
            Violation::unless(law, number, owner == me as u32 && place == local)?;
            seen.fill(0);
            more.fill(0);
            stock.free_slots(local, &mut seen);
            let mut count = bits::count(&seen) + stock.back(local);
            for side in [&recycler.dirty, &recycler.flying, &recycler.ready] {
                count += bits::count(side.mask(local));
                seen.iter_mut().zip(side.mask(local)).for_each(|(word, bits)| *word |= bits);
            }
            for (slot, found) in record.mappings() {
                let size = self.sizes.of_pages(found.pages());
                bits::set(&mut more, slot, size);
                count += size;
            }
            seen.iter_mut().zip(&more).for_each(|(word, bits)| *word |= bits);
            let law = "each slot is free, mapped or on one side of the recycler";
            Violation::unless_equal(law, number, u64::from(self.slots), u64::from(count))?;
            let together = u64::from(bits::count(&seen) + stock.back(local));
            Violation::unless_equal(law, number, u64::from(self.slots), together)?;
        }
        Ok(())
    }
}

impl PerCpu {
    /// Returns the recycler; for a caller that must not wait, only if no thread has it: the mapper may be flushing.
    fn recycler_for(&self, wait: Wait) -> Option<Guard<'_, Recycler>> {
        match wait {
            Wait::MayReclaim => Some(self.recycler.lock()),
            Wait::Never => self.recycler.try_lock(),
        }
    }

    /// Waits until every thread that has raised a flag so far has put the block on its stack.
    fn wait_for_notes(&self) {
        while self.noting.load(Ordering::Acquire) > 0 {
            relax();
        }
    }
}

/// The way in which a mapping ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// In a group that was known to have slots to collect.
    Known,
    /// As the first one of its group, which had to be noted.
    Noted,
}

/// A collection's right to take the CPU's stack of blocks when all blocks taken before are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    Renew,
    Keep,
}

impl LetGo {
    /// Marks the block as gone and notes it for [`release`](Self::release). Under the recycler's lock.
    fn add(&mut self, blocks: &SlotBlocks, start: u64) {
        blocks.record(start >> blocks.shift).owner.store(EMPTY, Ordering::Release);
        self.starts[self.len] = start;
        self.len += 1;
    }

    fn release<A: AreaSource>(&self, areas: &A) {
        self.starts[..self.len].iter().for_each(|&start| areas.release_block(start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmap::VmapPolicy;

    fn engine() -> SlotBlocks {
        let (span, cpus) = (Span::known(0, 1 << 16), CpuSet::first(2).expect("there is memory"));
        let config = VmapConfig { span, cpus, policy: VmapPolicy::NOFRAG };
        SlotBlocks::new(&config).expect("there is memory")
    }

    /// An unmapping notes its block and is slow to queue it: the block is given back meanwhile, and is nobody's or
    /// another CPU's when it comes onto the stack of the first CPU.
    #[test]
    fn a_block_on_a_wrong_stack_leaves_it_or_goes_to_its_owners() {
        let blocks = engine();
        let number = 3;
        let record = blocks.table.provide(number, || Record::new(blocks.slots));
        let record = record.expect("there is memory");
        let stack = |rank: usize| blocks.per_cpu[rank].stack.load(Ordering::Relaxed);
        let collect =
            || blocks.collect_some(0, &mut blocks.per_cpu[0].recycler.lock(), Snapshot::Renew);
        assert_eq!(record.queue(), Noted::ToQueue);
        blocks.enqueue(number, record);
        assert_eq!(stack(0), number);
        assert!(!collect());
        assert_eq!((stack(0), stack(1)), (END, END), "nobody's block is on no stack");
        assert_eq!(record.queue(), Noted::ToQueue, "and may be put on one again");
        // It gets an owner between the look at the owner and the look at the record.
        record.owner.store(1, Ordering::Release);
        blocks.forward(number, record, EMPTY);
        assert_eq!((stack(0), stack(1)), (END, number));
        assert_eq!(record.queue(), Noted::Known);
    }

    #[test]
    fn a_record_with_a_wrong_place_is_noticed() {
        let blocks = engine();
        let number = 3;
        let record = blocks.table.provide(number, || Record::new(blocks.slots));
        let record = record.expect("there is memory");
        let place = blocks.per_cpu[0].stock.lock().as_mut().map(|stock| {
            let local = stock.provide().expect("there is memory");
            let position = blocks.table.position(number);
            stock.add(local, BlockId { start: number << blocks.shift, position });
            local
        });
        let place = place.expect("nobody holds the CPU");
        blocks.per_cpu[0].recycler.lock().reserve(place).expect("there is memory");
        record.owner.store(0, Ordering::Relaxed);
        record.local.store(place, Ordering::Relaxed);
        blocks.check().expect("nothing is wrong yet");
        record.local.store(place + 1, Ordering::Relaxed);
        let law = "a block's record names its owner and its place there";
        assert_eq!(blocks.check().map_err(|broken| broken.law), Err(law));
    }
}
