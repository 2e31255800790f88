//! Linux's blocks, from 3.19 to 6.11.
//!
//! Slots of a block are handed out in ascending order and never again: space comes back only when the whole block has
//! been used and unmapped, or is purged because nothing in it is live. Every CPU has a list (`queue`) of its blocks
//! with free slots, and takes the first one in which a request fits; an index (`index`) knows all blocks.
//!
//! A mapping, in steps:
//!
//! 1. Round the size up to its class, so that, with powers of two, blocks are used up without a rest.
//! 2. Walk the CPU's list without a lock. A block that says it has too few free slots is passed by.
//! 3. Else take its lock and look again. Take the slots; with the last one, take the block off the list.
//! 4. If nothing fits: take an area for a new block, enter it in the index, put it on the list.
//!
//! An unmapping finds the record of the block by its number, verifies start and size, clears the entries without a
//! flush, and widens the range of dirty slots. The thread that makes the last slot dirty gives the block back: out of
//! the index, then freed lazily like any area. So no slot is handed out again before a flush. Between the two steps an
//! alias flush finds the block in neither place, and in Linux misses it; here it is noted among the blocks that are
//! `leaving`.
//!
//! Locks: block, then queue or index; none of them is held while areas are taken or freed.
//!
//! Source: docs/sources/vmap.md#map-ram, vmap.md#block-alloc, vmap.md#new-block, vmap.md#block-free and
//! vmap.md#block-locks.

mod block;
mod index;
mod inspect;
mod laws;
mod purge;
mod queue;

use self::block::{Block, Body};
use self::index::Index;
use self::purge::Passes;
use self::queue::Queue;
use super::AreaSource;
use super::table::Table;
use crate::cpu::{CpuId, CpuSet};
use crate::lists::made;
use crate::ranges::{OutOfMetadata, Span};
use crate::sync::{Guard, Mutex, Padded, Rank};
use crate::vmap::engine::Miss;
use crate::vmap::{BlockPolicy, FirstSlots, LiveMap, Mapper, RamArea, UnmapRamError, VmapConfig};
use alloc::vec::Vec;

type BlockTable = Table<Block>;

/// Number of times that a walk begins again when the list changes under it, before it takes the list's lock.
const WALKS: u32 = 3;

/// The largest mapping that a block geometry allows.
const MAX_PAGES: usize = 64;

#[derive(Debug)]
pub(in crate::vmap) struct Queues {
    policy: BlockPolicy,
    cpus: CpuSet,
    slots: u32,
    /// Slots of a block, as a base-2 logarithm.
    shift: u32,
    /// For each number of pages: the slots that a mapping of that size takes.
    rounded: [u8; MAX_PAGES + 1],
    table: BlockTable,
    /// One list for each CPU, by the CPU's position.
    queues: Vec<Padded<Queue>>,
    index: Index,
    /// One alias flush at a time (Linux: `vmap_purge_lock`): the second one must not return while translations are
    /// stale that the first one found and has not flushed yet.
    turn: Mutex<()>,
    passes: Mutex<Passes>,
    leaving: Mutex<Leaving>,
}

/// The blocks that are out of the index and not yet among the lazy areas. Slots unmapped in them long ago may be stale
/// all the same; in Linux, an alias flush that comes just then misses them.
#[derive(Debug, Default)]
struct Leaving {
    blocks: u64,
    /// Covers the blocks that are leaving, and some that have left; `None` only if none is leaving.
    hull: Option<Span>,
}

impl Leaving {
    fn begin(&mut self, block: Span) {
        self.blocks += 1;
        self.hull = Some(self.hull.map_or(block, |hull| hull.hull(block)));
    }

    fn end(&mut self) {
        self.blocks -= 1;
        if self.blocks == 0 {
            self.hull = None;
        }
    }
}

/// The purpose of a search of a CPU's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    First,
    /// Looks for the block that was just created.
    Second,
}

/// The request for a small mapping.
#[derive(Clone, Copy, Debug)]
struct Need {
    cpu: CpuId,
    pages: u32,
    slots: u32,
    search: Search,
}

/// A search found no block, after this many steps.
struct NotFound {
    steps: u64,
}

impl Queues {
    pub(super) fn new(config: &VmapConfig) -> Result<Queues, OutOfMetadata> {
        let policy = config.policy.blocks;
        let slots = policy.geometry.slots();
        let queues = made(config.cpus.len(), || Padded(Queue::new()))?;
        Ok(Queues {
            policy,
            cpus: config.cpus.copied()?,
            slots,
            shift: slots.ilog2(),
            rounded: core::array::from_fn(|pages| policy.classes.round(pages as u32) as u8),
            table: Table::new(config.span, slots)?,
            queues,
            index: Index::new(&policy, &config.cpus)?,
            turn: Mutex::new(Rank::Aliases, ()),
            passes: Mutex::new(Rank::BlockIndex, Passes::default()),
            leaving: Mutex::new(Rank::BlockIndex, Leaving::default()),
        })
    }

    /// Returns the first page of the block with this number.
    #[inline(always)]
    fn start_of(&self, number: u64) -> u64 {
        number << self.shift
    }

    /// Returns the lowest block number (first page over block size), from `number` on, at which a block stands or
    /// stood.
    pub(super) fn next_record(&self, number: u64) -> Option<u64> {
        self.table.next_from(number)
    }

    /// Returns the number of the block of a page, and the page's slot in it.
    #[inline(always)]
    fn locate(&self, page: u64) -> (u64, u32) {
        (page >> self.shift, page as u32 & (self.slots - 1))
    }

    /// Returns the record of a block that stands, or stood, at this place.
    #[inline(always)]
    fn lookup(&self, number: u64) -> Option<&Block> {
        if self.index.reaches(number) { self.table.get(number) } else { None }
    }

    #[inline(always)]
    pub(super) fn map<A: AreaSource>(
        &self,
        cpu: CpuId,
        pages: u32,
        areas: &A,
    ) -> Result<u64, Miss> {
        let slots = u32::from(self.rounded[pages as usize]);
        let need = Need { cpu, pages, slots, search: Search::First };
        match self.take_first(need) {
            Some(start) => Ok(start),
            None => self.map_further(need, areas),
        }
    }

    /// Takes slots of the first block on the CPU's list: the usual case.
    #[inline(always)]
    fn take_first(&self, need: Need) -> Option<u64> {
        let number = self.queues[need.cpu.rank()].head.get()?;
        let block = self.table.get(number)?;
        if block.free() >= need.slots { self.take(block, number, need, 1) } else { None }
    }

    #[inline(never)]
    fn map_further<A: AreaSource>(&self, need: Need, areas: &A) -> Result<u64, Miss> {
        match self.search(need) {
            Ok(start) => Ok(start),
            Err(NotFound { steps }) => self.map_anew(need, steps, areas),
        }
    }

    /// Takes slots of the first listed block that has enough.
    fn search(&self, need: Need) -> Result<u64, NotFound> {
        let queue = &self.queues[need.cpu.rank()];
        let mut steps = 0;
        for _ in 0..WALKS {
            let version = queue.version();
            let mut link = &queue.head;
            loop {
                let next = link.get();
                if queue.version() != version {
                    break;
                }
                let Some(number) = next.filter(|_| steps < self.table.places()) else {
                    return Err(NotFound { steps });
                };
                steps += 1;
                let block = queue::record(&self.table, number);
                if block.free() >= need.slots
                    && let Some(start) = self.take(block, number, need, steps)
                {
                    return Ok(start);
                }
                link = &block.next;
            }
        }
        self.search_locked(need, queue, steps)
    }

    /// Chooses a block while the list cannot change. The block's lock is taken afterwards, when its slots may be gone.
    #[cold]
    #[inline(never)]
    fn search_locked(&self, need: Need, queue: &Queue, steps: u64) -> Result<u64, NotFound> {
        let ends = queue.ends.lock();
        let mut steps = steps;
        let chosen = queue.walk(&self.table, self.table.places()).find(|(_, block)| {
            steps += 1;
            block.free() >= need.slots
        });
        drop(ends);
        let taken = chosen.and_then(|(number, block)| self.take(block, number, need, steps));
        taken.ok_or(NotFound { steps })
    }

    /// Takes slots of this block if it still has enough, and still belongs to the CPU.
    #[inline(always)]
    fn take(&self, block: &Block, number: u64, need: Need, steps: u64) -> Option<u64> {
        let mut body = block.body.lock();
        let free = block.free();
        let fits = free >= need.slots && body.owner as usize == need.cpu.rank();
        if fits {
            match need.search {
                Search::First => body.counts.search_steps += steps,
                Search::Second => body.counts.second_search_steps += steps,
            }
            self.cut(block, &mut body, need);
            if free == need.slots {
                self.queues[need.cpu.rank()].unlink(&self.table, block);
            }
        }
        drop(body);
        fits.then(|| self.start_of(number) + u64::from(self.slots - free))
    }

    /// Hands out the block's next slots.
    #[inline(always)]
    fn cut(&self, block: &Block, body: &mut Body, need: Need) {
        let free = block.free();
        block.set_free(free - need.slots);
        body.enter(self.slots - free, need.pages, need.slots);
    }

    /// Makes a block for a request that fits nowhere.
    #[cold]
    #[inline(never)]
    fn map_anew<A: AreaSource>(&self, need: Need, steps: u64, areas: &A) -> Result<u64, Miss> {
        let mut steps = steps;
        loop {
            let number = match areas.take_block(need.cpu) {
                Ok(start) => start >> self.shift,
                Err(miss) => {
                    self.queues[need.cpu.rank()].note_failed(steps);
                    return Err(miss);
                }
            };
            if let Err(why) = self.create(number, need, steps) {
                areas.release_block(self.start_of(number));
                return Err(why.into());
            }
            match self.policy.first_slots {
                FirstSlots::AtCreation => return Ok(self.start_of(number)),
                FirstSlots::SecondSearch => {
                    match self.search(Need { search: Search::Second, ..need }) {
                        Ok(start) => return Ok(start),
                        // Another thread that allocates for this CPU has used the new block up.
                        Err(again) => steps = again.steps,
                    }
                }
            }
        }
    }

    /// Sets a block up in its new area, completely before it can be found. The search for a block had looked at
    /// `steps`.
    fn create(&self, number: u64, need: Need, steps: u64) -> Result<(), OutOfMetadata> {
        let block = self.table.provide(number, || Block::new(&self.policy))?;
        let mut body = block.body.lock();
        body.begin(need.cpu.rank() as u32);
        if let Err(why) = self.index.insert(number, block) {
            body.stands = false;
            return Err(why);
        }
        block.set_free(self.slots);
        if self.policy.first_slots == FirstSlots::AtCreation {
            self.cut(block, &mut body, need);
        }
        let queue = &self.queues[need.cpu.rank()];
        queue.link(&self.table, number, self.policy.new_block, steps);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn unmap<A: AreaSource>(
        &self,
        area: RamArea,
        areas: &A,
    ) -> Result<(), UnmapRamError> {
        let (number, at) = self.locate(area.start.get());
        let Some(block) = self.lookup(number) else { return Err(UnmapRamError::NotMapped) };
        let pages = area.pages.get() as u32;
        let slots = u32::from(self.rounded[pages as usize]);
        let mut body = block.body.lock();
        if body.leave(at, pages, slots).is_err() {
            return Err(why_not_left(body, at, self.start_of(number)));
        }
        if self.policy.live_map == LiveMap::UsedMap {
            drop(body);
            clear(area, areas);
            body = block.body.lock();
        } else {
            clear(area, areas);
        }
        body.soil(at, slots);
        if body.dirty == self.slots {
            self.give_back_used_up(number, block, body, areas);
        }
        Ok(())
    }

    /// Gives a block back whose last slot has become dirty.
    #[cold]
    #[inline(never)]
    fn give_back_used_up<A: AreaSource>(
        &self,
        number: u64,
        block: &Block,
        mut body: Guard<'_, Body>,
        areas: &A,
    ) {
        debug_assert_eq!(block.free(), 0, "a block of which every slot is dirty has none free");
        body.stands = false;
        let owner = body.owner;
        drop(body);
        self.give_back(number, block, owner, areas);
    }

    /// Gives a block back. No lock is held, and nothing but the index leads to the block any more.
    fn give_back<A: AreaSource>(&self, number: u64, block: &Block, owner: u32, areas: &A) {
        let start = self.start_of(number);
        self.leaving.lock().begin(Span::known(start, start + u64::from(self.slots)));
        self.index.erase(&self.table, number, block);
        let owner = self.cpus.by_rank(owner as usize).expect("the owner is one of the CPUs");
        areas.retire_block(owner, start);
        self.leaving.lock().end();
    }
}

/// Names the reason why no mapping of the claimed size was ended at slot `at` of the block that starts at `start`.
#[cold]
#[inline(never)]
fn why_not_left(body: Guard<'_, Body>, at: u32, start: u64) -> UnmapRamError {
    body.why_not_left(at, start)
}

/// Takes the mapping away; a flush follows later.
#[inline(always)]
fn clear<A: AreaSource>(area: RamArea, areas: &A) {
    if A::Mapper::CLEARS {
        areas.mapper().clear(area.span());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmap::{BlockGeometry, BlockPolicy, VmapPolicy};

    fn queues() -> Queues {
        let geometry = BlockGeometry::new(64, 32).expect("a geometry");
        let blocks = BlockPolicy { geometry, ..BlockPolicy::LINUX_6_11 };
        let policy = VmapPolicy { blocks, ..VmapPolicy::LINUX_6_11 };
        let (span, cpus) = (Span::known(0, 1 << 12), CpuSet::first(1).expect("there is memory"));
        Queues::new(&VmapConfig { span, cpus, policy }).expect("there is memory")
    }

    fn need(pages: u32) -> Need {
        let cpu = CpuSet::first(1).expect("there is memory").by_rank(0).expect("it has one CPU");
        Need { cpu, pages, slots: pages, search: Search::First }
    }

    type Spoil = fn(&Block, &mut Body);

    #[test]
    fn wrong_counts_of_slots_are_noticed() {
        let spoil: [(&str, Spoil); 6] = [
            (
                "slots are handed out in ascending order, as many as the size's class has",
                |block, body| {
                    body.enter(40, 8, 8);
                    block.set_free(16);
                    body.dirty = 8;
                },
            ),
            ("a listed block has free slots", |block, body| {
                body.enter(32, 32, 32);
                block.set_free(0);
            }),
            ("a block is in the bucket of its number", |block, _| {
                block.place.store(5, crate::sync::Ordering::Relaxed);
            }),
            ("what is neither free nor dirty is live", |_, body| body.dirty += 1),
            ("a block of which every slot is dirty is given back", |block, body| {
                block.set_free(0);
                body.dirty = 64;
            }),
            ("what was unmapped since the last flush has been handed out", |_, body| {
                body.soil(50, 1);
                body.dirty -= 1;
            }),
        ];
        for (law, spoil) in spoil {
            let queues = queues();
            queues.create(3, need(32), 0).expect("there is memory");
            queues.check().expect("nothing is wrong yet");
            let block = queues.lookup(3).expect("it was made");
            spoil(block, &mut block.body.lock());
            assert_eq!(queues.check().map_err(|broken| broken.law), Err(law));
        }
    }

    /// Two blocks of 64 slots, the first with 16 free ones and the second with 56, on a list that has changed under a
    /// walk of five steps too often.
    #[test]
    fn a_search_under_the_lock_takes_the_first_block_that_fits_and_counts_on() {
        let queues = queues();
        for (number, pages) in [(3, 48), (7, 8)] {
            queues.create(number, need(pages), 0).expect("there is memory");
        }
        let search = |pages| queues.search_locked(need(pages), &queues.queues[0], 5);
        assert!(matches!(search(64), Err(NotFound { steps: 7 })));
        assert_eq!(search(32).ok(), Some(7 * 64 + 8));
        assert_eq!(search(16).ok(), Some(3 * 64 + 48));
        let steps = |number| queues.lookup(number).map(|it| it.body.lock().counts.search_steps);
        assert_eq!([3, 7].map(steps), [Some(5 + 1), Some(5 + 2)]);
    }
}
