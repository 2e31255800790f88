//! The stock of one CPU: its blocks, as far as handing out goes; owned, not shared.
//!
//! Slots are cut from the *window*, a run of free slots in the *current* block. A request that is longer than the
//! window is served by the first of these that can: a later run of the current block; another block, of those whose
//! longest run fits most tightly, which *bins* by the longest run find in O(1); an earlier run of the current block,
//! whose slots have come back; an empty block. Of the other block the first run that fits serves. It becomes the window
//! and its block the current one, unless it would leave less than the window now has: then it serves this request
//! alone.
//!
//! The current block is in no bin: runs are measured when a block is left, or serves a request without being entered,
//! and not at every request.

use super::bits::{self, LONGEST};
use super::recycler::Side;
use crate::lists::{filled, grow, put};
use crate::ranges::OutOfMetadata;
use crate::vmap::Reuse;
use crate::vmap::blocks::table::Position;
use crate::vmap::counters::BlockCounters;
use alloc::vec::Vec;

/// Marks the absence of a block in lists.
const NONE: u32 = u32::MAX;

/// The bin number of blocks without a free slot, which stand in no bin.
const FULL: u32 = 0;

/// Number of runs after which a hold takes no further block back.
const RUNS_PER_HOLD: u32 = 256;

/// Number of runs of slots that a handle frees before it hands them in, if it does not look before; and the length from
/// which a run does not grow. With 4 KiB pages these are the 64 MiB that Linux leaves lazy on two CPUs, at most.
const KEPT_MOST: usize = 64;
const RUN_MOST: u16 = 256;

/// Number of empty blocks that a CPU keeps for later requests.
const KEPT_EMPTY: usize = 1;

/// One CPU's blocks, as far as handing out slots goes.
///
/// 1. A slot of a block is in its mask of free slots, in the window, mapped, or with the recycler.
/// 2. A block other than the current one is in the bin of its longest free run, among the empty ones, or full.
#[derive(Debug)]
pub(in crate::vmap) struct Stock {
    pub(super) window: Window,
    /// The place of the block in which the window lies.
    current: Option<u32>,
    /// Number of pages that may still be handed out before the recycler is asked.
    pub(super) allowance: u32,
    slots: u32,
    words: usize,
    reuse: Reuse,
    blocks: Vec<Own>,
    /// Free slots, `words` words for each block.
    free: Vec<u64>,
    /// Places in `blocks` without a block.
    vacant: Vec<u32>,
    /// The first block of each bin; the last bin holds runs of [`LONGEST`] and more.
    bins: [u32; LONGEST as usize + 1],
    /// One bit for each bin that has a block: bit `length - 1`.
    occupied: u64,
    empty: Vec<u32>,
    /// Slots that the CPU's handle has freed and that are not handed in to the recycler; none without a handle.
    freed: Vec<FreedRun>,
    pub(super) counters: BlockCounters,
}

/// A run of free slots that is being handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) block: BlockId,
    pub(super) next: u32,
    pub(super) end: u32,
}

/// Adjacent slots of a block that the CPU's handle has freed one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreedRun {
    /// The place of the block.
    local: u32,
    pub(super) first: u16,
    pub(super) end: u16,
}

/// The first page of a block, and the position of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockId {
    pub(super) start: u64,
    pub(super) position: Position,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    id: BlockId,
    /// Number of bits set in the block's mask.
    free: u32,
    /// Under [`Reuse::WholeBlock`]: slots that have come back and wait for the rest.
    back: u32,
    bin: u32,
    previous: u32,
    next: u32,
    exists: bool,
}

impl Own {
    const NOTHING: Own = Own {
        id: BlockId { start: 0, position: Position::NOWHERE },
        free: 0,
        back: 0,
        bin: FULL,
        previous: NONE,
        next: NONE,
        exists: false,
    };
}

/// The state that a block takes along to another CPU.
#[derive(Debug)]
pub(super) struct Parcel {
    /// Mask of the free slots.
    mask: Vec<u64>,
    free: u32,
    back: u32,
    /// Mask of the slots that the recycler has ready for their owner.
    pub(super) ready_mask: Vec<u64>,
    pub(super) ready: u32,
}

impl Parcel {
    pub(super) fn new(slots: u32) -> Result<Parcel, OutOfMetadata> {
        let words = || filled(slots.div_ceil(64) as usize, 0);
        Ok(Parcel { mask: words()?, free: 0, back: 0, ready_mask: words()?, ready: 0 })
    }
}

/// The place of a small mapping: the first of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotPlace {
    pub(super) block: BlockId,
    pub(super) slot: u32,
}

impl Stock {
    pub(super) fn new(slots: u32, reuse: Reuse) -> Stock {
        Stock {
            window: Window { block: BlockId::default(), next: 0, end: 0 },
            current: None,
            allowance: slots,
            slots,
            words: slots.div_ceil(64) as usize,
            reuse,
            blocks: Vec::new(),
            free: Vec::new(),
            vacant: Vec::new(),
            bins: [NONE; LONGEST as usize + 1],
            occupied: 0,
            empty: Vec::new(),
            freed: Vec::new(),
            counters: BlockCounters::default(),
        }
    }

    fn mask(&self, local: u32) -> &[u64] {
        &self.free[local as usize * self.words..][..self.words]
    }

    fn mask_mut(&mut self, local: u32) -> &mut [u64] {
        &mut self.free[local as usize * self.words..][..self.words]
    }

    fn own(&mut self, local: u32) -> &mut Own {
        &mut self.blocks[local as usize]
    }

    /// Takes `size` slots from the window.
    #[inline(always)]
    pub(super) fn take(&mut self, size: u32) -> Option<SlotPlace> {
        let Window { block, next, end } = self.window;
        if end - next < size {
            return None;
        }
        self.window.next = next + size;
        Some(SlotPlace { block, slot: next })
    }

    /// Takes `size` slots from outside the window, and counts the other blocks that it looks at: one at most.
    pub(super) fn take_elsewhere(&mut self, size: u32) -> Option<SlotPlace> {
        if let Some(current) = self.current
            && let Some((start, len)) = bits::run_of(self.mask(current), self.window.end, size)
        {
            self.put_window_back(current);
            self.open(current, start, len);
            return self.take(size);
        }
        let fitting = self.occupied >> (size - 1);
        if fitting != 0 {
            self.counters.search_steps += 1;
            let local = self.bins[(size + fitting.trailing_zeros()) as usize];
            let (start, len) =
                bits::run_of(self.mask(local), 0, size).expect("the bin tells the longest run");
            let window_rest = self.window.end - self.window.next;
            if len - size < window_rest {
                return Some(self.take_single(local, start, size));
            }
            self.unbin(local);
            self.enter(local, start, len);
            return self.take(size);
        }
        if let Some(place) = self.take_again(size) {
            return Some(place);
        }
        let Some(local) = self.empty.pop() else {
            self.counters.failed_searches += 1;
            return None;
        };
        self.counters.search_steps += 1;
        self.enter(local, 0, self.slots);
        self.take(size)
    }

    /// Takes `size` slots that have come back to the current block in front of its window: this is better than an empty
    /// block.
    fn take_again(&mut self, size: u32) -> Option<SlotPlace> {
        let current = self.current?;
        self.put_window_back(current);
        let (start, len) = bits::run_of(self.mask(current), 0, size)?;
        self.open(current, start, len);
        self.take(size)
    }

    /// Takes `size` slots from a block without making it the current one.
    fn take_single(&mut self, local: u32, start: u32, size: u32) -> SlotPlace {
        self.unbin(local);
        bits::clear(self.mask_mut(local), start, size);
        self.own(local).free -= size;
        self.allowance = self.allowance.saturating_sub(size);
        self.bin(local);
        SlotPlace { block: self.blocks[local as usize].id, slot: start }
    }

    /// Makes a block that is in no list the current one, with a run of it as the window.
    fn enter(&mut self, local: u32, start: u32, len: u32) {
        self.leave();
        self.current = Some(local);
        self.open(local, start, len);
    }

    /// Makes a run of the current block the window, as far as the allowance goes.
    fn open(&mut self, local: u32, start: u32, len: u32) {
        let len = len.min(self.allowance.max(LONGEST));
        self.allowance = self.allowance.saturating_sub(len);
        bits::clear(self.mask_mut(local), start, len);
        let own = self.own(local);
        own.free -= len;
        self.window = Window { block: own.id, next: start, end: start + len };
    }

    fn put_window_back(&mut self, current: u32) {
        let Window { next, end, .. } = self.window;
        if next == end {
            return;
        }
        bits::set(self.mask_mut(current), next, end - next);
        self.own(current).free += end - next;
        self.allowance += end - next;
        self.window.next = end;
    }

    /// Leaves the current block: its window goes back into its mask, and it goes into its bin.
    fn leave(&mut self) {
        let Some(current) = self.current.take() else { return };
        self.put_window_back(current);
        self.shelve(current);
    }

    /// Puts a block into its bin, or among the empty or full ones. Returns the number of runs looked at for that.
    fn shelve(&mut self, local: u32) -> u32 {
        let slots = self.slots;
        let own = self.own(local);
        if own.free + own.back < slots {
            return self.bin(local);
        }
        own.bin = FULL;
        if own.back > 0 {
            own.free = slots;
            own.back = 0;
            bits::set(self.mask_mut(local), 0, slots);
        }
        put(&mut self.empty, local);
        0
    }

    fn bin(&mut self, local: u32) -> u32 {
        let (bin, runs) = bits::longest_run(self.mask(local));
        let first = self.bins[bin as usize];
        *self.own(local) = Own { bin, previous: NONE, next: first, ..self.blocks[local as usize] };
        if bin == FULL {
            return runs;
        }
        if first != NONE {
            self.own(first).previous = local;
        }
        self.bins[bin as usize] = local;
        self.occupied |= 1 << (bin - 1);
        runs
    }

    fn unbin(&mut self, local: u32) {
        let Own { bin, previous, next, .. } = self.blocks[local as usize];
        if bin == FULL {
            return;
        }
        self.own(local).bin = FULL;
        if next != NONE {
            self.own(next).previous = previous;
        }
        if previous != NONE {
            self.own(previous).next = next;
            return;
        }
        self.bins[bin as usize] = next;
        if next == NONE {
            self.occupied &= !(1 << (bin - 1));
        }
    }

    /// Keeps slots that the CPU's handle has freed. Returns true if it has as many runs of them as it may keep.
    #[inline(always)]
    pub(super) fn keep(&mut self, local: u32, slot: u32, size: u32) -> bool {
        let (first, end) = (slot as u16, (slot + size) as u16);
        if let Some(last) = self.freed.last_mut()
            && (last.local, last.end) == (local, first)
            && last.end - last.first < RUN_MOST
        {
            last.end = end;
            return false;
        }
        put(&mut self.freed, FreedRun { local, first, end });
        self.freed.len() == KEPT_MOST
    }

    /// Returns true if the CPU's handle has freed the slot and it is not handed in.
    pub(super) fn keeps(&self, local: u32, slot: u32) -> bool {
        let holds = |run: &FreedRun| (u32::from(run.first)..u32::from(run.end)).contains(&slot);
        self.freed.iter().any(|run| run.local == local && holds(run))
    }

    pub(super) fn keeps_nothing(&self) -> bool {
        self.freed.is_empty()
    }

    /// Hands to `take` what the CPU's handle has freed: a block, its place, and runs of it.
    pub(super) fn hand_in(&mut self, mut take: impl FnMut(BlockId, u32, &[FreedRun])) {
        for runs in self.freed.chunk_by(|one, next| one.local == next.local) {
            let local = runs[0].local;
            take(self.blocks[local as usize].id, local, runs);
        }
        self.freed.clear();
    }

    /// Returns true if no slot of the block is in use; the window of the current block counts as free.
    fn is_idle(&self, local: u32) -> bool {
        let own = &self.blocks[local as usize];
        let window = match self.current == Some(local) {
            true => self.window.end - self.window.next,
            false => 0,
        };
        own.free + own.back + window == self.slots
    }

    /// Takes slots back that may be handed out again, from at most `limit` blocks, and fewer if their free slots lie
    /// scattered: this runs under two locks. `let_go` is told the first pages of empty blocks that go, at most `limit`
    /// of them.
    pub(super) fn take_back(&mut self, ready: &mut Side, limit: usize, let_go: impl FnMut(u64)) {
        let mut runs = 0;
        for _ in 0..limit {
            if runs >= RUNS_PER_HOLD {
                break;
            }
            let Some((local, mask, count)) = ready.pop() else { break };
            let is_current = self.current == Some(local);
            if !is_current {
                self.unbin(local);
            }
            self.regain(local, mask, count);
            mask.fill(0);
            if !is_current {
                runs += self.shelve(local);
            }
        }
        self.trim(KEPT_EMPTY, limit, let_go);
    }

    /// Adds the `count` slots in `mask` to the free slots of a block; under [`Reuse::WholeBlock`] they wait for the
    /// rest.
    #[inline]
    fn regain(&mut self, local: u32, mask: &[u64], count: u32) {
        if self.reuse == Reuse::WholeBlock {
            self.own(local).back += count;
            return;
        }
        bits::join(self.mask_mut(local), mask);
        self.own(local).free += count;
        self.counters.recycled_pages += u64::from(count);
    }

    /// Lets go of empty blocks beyond `kept`, of `limit` at most.
    fn trim(&mut self, kept: usize, limit: usize, mut let_go: impl FnMut(u64)) {
        for _ in kept..self.empty.len().min(kept + limit) {
            let local = self.empty.swap_remove(0);
            self.counters.returned += 1;
            self.own(local).exists = false;
            let_go(self.blocks[local as usize].id.start);
            put(&mut self.vacant, local);
        }
    }

    /// Lets go of blocks that are not in use, the current one and the kept one included; of `limit` at most.
    pub(super) fn let_idle_go(&mut self, limit: usize, let_go: impl FnMut(u64)) {
        if let Some(current) = self.current
            && self.is_idle(current)
        {
            self.close();
        }
        self.counters.purged += self.empty.len().min(limit) as u64;
        self.trim(0, limit, let_go);
    }

    /// Returns a place for the record of a new block, with room for everything that can happen to the block.
    pub(super) fn provide(&mut self) -> Result<u32, OutOfMetadata> {
        if let Some(local) = self.vacant.pop() {
            return Ok(local);
        }
        let local = self.blocks.len();
        let none = |_| OutOfMetadata;
        self.blocks.try_reserve(1).map_err(none)?;
        self.free.try_reserve(self.words).map_err(none)?;
        self.vacant.try_reserve(local + 1).map_err(none)?;
        self.freed.try_reserve_exact(KEPT_MOST - self.freed.len()).map_err(none)?;
        let room = local + 1 - self.empty.len();
        self.empty.try_reserve(room).map_err(none)?;
        grow(&mut self.free, (local + 1) * self.words, 0)?;
        put(&mut self.blocks, Own::NOTHING);
        Ok(local as u32)
    }

    /// Gives a place back that was provided and not used.
    pub(super) fn withdraw(&mut self, local: u32) {
        put(&mut self.vacant, local);
    }

    /// Adds an empty block at a provided place.
    pub(super) fn add(&mut self, local: u32, id: BlockId) {
        let slots = self.slots;
        *self.own(local) = Own { id, free: slots, exists: true, ..Own::NOTHING };
        bits::set(self.mask_mut(local), 0, slots);
        put(&mut self.empty, local);
        self.counters.created += 1;
        self.counters.longest_list = self.counters.longest_list.max(self.block_count());
    }

    /// Puts the window back, so that every free slot is in its block's mask.
    pub(super) fn close(&mut self) {
        self.leave();
        self.window.end = self.window.next;
    }

    /// Takes a block, which is not the current one, out of the stock, and its state into `parcel`.
    pub(super) fn surrender(&mut self, local: u32, parcel: &mut Parcel) {
        debug_assert_ne!(self.current, Some(local), "the window was closed");
        debug_assert!(self.empty.is_empty(), "idle blocks have been let go");
        self.unbin(local);
        parcel.mask.copy_from_slice(self.mask(local));
        self.mask_mut(local).fill(0);
        let own = self.own(local);
        own.exists = false;
        (parcel.free, parcel.back) = (own.free, own.back);
        put(&mut self.vacant, local);
    }

    /// Adds a block that was another CPU's at a provided place.
    pub(super) fn adopt(&mut self, local: u32, id: BlockId, parcel: &Parcel) {
        let Parcel { free, back, .. } = *parcel;
        self.mask_mut(local).copy_from_slice(&parcel.mask);
        *self.own(local) = Own { id, free, back, exists: true, ..Own::NOTHING };
        self.regain(local, &parcel.ready_mask, parcel.ready);
        self.shelve(local);
        self.counters.longest_list = self.counters.longest_list.max(self.block_count());
    }

    pub(super) fn block_count(&self) -> u64 {
        (self.blocks.len() - self.vacant.len()) as u64
    }

    /// Returns the place and the identity of each block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, BlockId)> + '_ {
        let exist = (0..).zip(&self.blocks).filter(|(_, own)| own.exists);
        exist.map(|(local, own)| (local, own.id))
    }

    /// Writes every free slot of a block, the window included, to `out`.
    pub(super) fn free_slots(&self, local: u32, out: &mut [u64]) {
        out.copy_from_slice(self.mask(local));
        let Window { next, end, .. } = self.window;
        if self.current == Some(local) && next < end {
            bits::set(out, next, end - next);
        }
    }

    /// Returns the number of slots of a block that have come back and wait for the rest of it.
    pub(super) fn back(&self, local: u32) -> u32 {
        self.blocks[local as usize].back
    }

    /// Verifies that bins and counts are right. Returns the first page of a block that is wrongly listed or counted, or
    /// the number of a bin whose bit in `occupied` is wrong; `None` if all is right.
    pub(super) fn misplaced(&self) -> Option<u64> {
        let mut listed = filled(self.blocks.len(), FULL).ok()?;
        for (bin, &first) in (1..).zip(&self.bins[1..]) {
            let mut local = first;
            while local != NONE {
                listed[local as usize] = bin;
                local = self.blocks[local as usize].next;
            }
            if (first != NONE) != (self.occupied >> (bin - 1) & 1 == 1) {
                return Some(u64::from(bin));
            }
        }
        let wrong = (0..).zip(&self.blocks).find(|(local, own)| {
            let expected = match own.exists && self.current != Some(*local) {
                true if self.empty.contains(local) => FULL,
                true => bits::longest_run(self.mask(*local)).0,
                false => FULL,
            };
            let counted = !own.exists || bits::count(self.mask(*local)) == own.free;
            own.bin != expected || listed[*local as usize] != expected || !counted
        });
        wrong.map(|(_, own)| own.id.start)
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<Own>();
        let lists = (self.vacant.capacity() + self.empty.capacity()) * size_of::<u32>();
        let masks = self.free.capacity() * size_of::<u64>();
        let freed = self.freed.capacity() * size_of::<FreedRun>();
        (blocks + lists + masks + freed + size_of::<Stock>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a stock with two empty blocks of 128 slots, which begin at pages 0 and 128.
    fn stock() -> Stock {
        let mut stock = Stock::new(128, Reuse::FlushEpoch);
        for block in 0..2 {
            let local = stock.provide().expect("there is memory");
            stock.add(local, BlockId { start: 128 * block, position: Position::NOWHERE });
        }
        stock
    }

    fn page(place: Option<SlotPlace>) -> Option<u64> {
        place.map(|place| place.block.start + u64::from(place.slot))
    }

    /// Takes slots as a request does.
    fn take(stock: &mut Stock, size: u32) -> Option<u64> {
        let place = stock.take(size);
        page(place.or_else(|| stock.take_elsewhere(size)))
    }

    /// Uses the second block up, but for the first `hole` slots, and the first one but for the window, its last 8.
    fn all_but(hole: u32) -> Stock {
        let mut stock = stock();
        assert_eq!(take(&mut stock, 64), Some(128));
        assert_eq!(take(&mut stock, 64), Some(192));
        assert_eq!(take(&mut stock, 64), Some(0));
        assert_eq!(take(&mut stock, 56), Some(64));
        stock.regain(1, &[(1 << hole) - 1, 0], hole);
        stock.bin(1);
        stock
    }

    /// The window is left for a run that leaves as much as it has, and stays where one leaves less.
    #[test]
    fn the_window_is_left_only_for_as_large_a_rest() {
        for (hole, next) in [(16 + 7, 120), (16 + 8, 128 + 16), (16 + 9, 128 + 16)] {
            let mut stock = all_but(hole);
            let steps = stock.counters.search_steps;
            assert_eq!(take(&mut stock, 16), Some(128));
            assert_eq!(stock.counters.search_steps - steps, 1, "one other block is looked at");
            assert_eq!(take(&mut stock, 1), Some(next), "a hole of {hole} slots");
            assert_eq!(stock.misplaced(), None);
        }
    }

    #[test]
    fn what_was_allowed_and_not_used_is_allowed_again() {
        let mut stock = stock();
        assert_eq!(take(&mut stock, 16), Some(128));
        stock.close();
        assert_eq!(stock.allowance, 128 - 16);
    }

    #[test]
    fn a_block_in_use_keeps_its_window_when_idle_ones_go() {
        let mut stock = stock();
        assert_eq!(take(&mut stock, 16), Some(128));
        let mut gone = Vec::new();
        stock.let_idle_go(2, |start| gone.push(start));
        assert_eq!((gone, page(stock.take(16))), (vec![0], Some(144)));
    }

    #[test]
    fn a_place_that_was_not_needed_serves_again() {
        let mut stock = stock();
        let local = stock.provide().expect("there is memory");
        stock.withdraw(local);
        assert_eq!((stock.block_count(), stock.provide()), (2, Ok(local)));
    }

    #[test]
    fn a_block_serves_as_a_whole_once_all_of_it_is_back() {
        let mut stock = Stock { reuse: Reuse::WholeBlock, ..all_but(0) };
        for mask in [[u64::MAX, 0], [0, u64::MAX]] {
            assert_eq!(take(&mut stock, 64), None);
            stock.unbin(1);
            stock.regain(1, &mask, 64);
            stock.shelve(1);
        }
        assert_eq!((stock.is_idle(1), take(&mut stock, 64)), (true, Some(128)));
        assert_eq!((take(&mut stock, 64), take(&mut stock, 64)), (Some(192), None));
    }

    #[test]
    fn wrong_places_are_noticed() {
        let spoil: [fn(&mut Stock); 4] = [
            |stock| stock.own(1).free += 1,
            |stock| stock.own(1).bin += 1,
            |stock| stock.bins[23] = NONE,
            |stock| stock.occupied = 0,
        ];
        for spoil in spoil {
            let mut stock = all_but(23);
            assert_eq!(stock.misplaced(), None);
            spoil(&mut stock);
            assert!(stock.misplaced().is_some());
        }
    }
}
