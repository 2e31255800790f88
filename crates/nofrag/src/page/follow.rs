//! Following a kernel that runs: decisions that a recording shows are carried out here in the kernel's way.
//!
//! A replay of a kernel's own events beside an allocator that was [restored](PageAllocator::restore) from that kernel's
//! state asks the allocator what it would do, compares, and sets it right where it differs, so that the next comparison
//! begins at the same state again.

use super::allocator::{FreeError, PageAllocator, listed_as};
use super::compaction::{Decision, Mode, Suitability, Wish, suitability};
use super::event::Wiper;
use super::exact::AllocAtError;
use super::frames::{FrameIndex, Kind, Tag, buddy};
use super::image::CompactionImage;
use super::kswapd::{KswapdGoal, Reclaims};
use super::map::{NodeId, ZoneKind};
use super::migratetype::Migratetype;
use super::per_cpu::Slot;
use super::policy::{FallbackRules, Relist};
use super::request::PageRequest;
use super::slow_path::{rights, with_reserves};
use super::steal::{Taken, ZoneRequest};
use super::walk::{AllocFlags, Mark, Path, Walk};
use super::zone::ZoneId;
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::units::{Order, PageCount, Pfn};

/// A run of kswapd that the followed kernel makes.
#[derive(Clone, Debug)]
pub struct KswapdRun {
    node: NodeId,
    wanted: KswapdGoal,
    /// Boosts that the run takes away. A node has a zone of each kind at most.
    noted: [Option<(ZoneId, PageCount)>; ZoneKind::COUNT],
}

impl KswapdRun {
    /// Returns the largest block that the run was asked for, and the highest zone.
    #[must_use]
    pub const fn wanted(&self) -> (Order, ZoneKind) {
        (self.wanted.order, self.wanted.highest)
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Returns the zone of a frame; `None` where there is no memory.
    #[must_use]
    pub fn zone_of_frame(&self, pfn: Pfn) -> Option<ZoneId> {
        self.zone_at(self.frames.index(pfn)?)
    }

    /// Gives a block back whose type was read earlier: pages freed as a batch have all their types read first, and are
    /// then put on lists one by one. O(1), and the blocks that are drained.
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    pub fn free_as(
        &mut self,
        cpu: CpuId,
        pfn: Pfn,
        migratetype: Migratetype,
    ) -> Result<(), FreeError> {
        let (frame, tag) = self.in_use(pfn)?;
        self.free_found(cpu, frame, tag, migratetype);
        Ok(())
    }

    /// Makes one block of `order` of the smaller blocks in use at `pfn`; the opposite of [`split`](Self::split).
    /// O(pages).
    ///
    /// # Errors
    /// [`AllocAtError`] unless all of it is in use, in one zone, and none of it is being moved.
    pub fn join(&mut self, pfn: Pfn, order: Order) -> Result<(), AllocAtError> {
        let frame = self.frames.index(pfn).ok_or(AllocAtError::Unknown(pfn))?;
        let pages = order.pages() as FrameIndex;
        if !frame.is_multiple_of(pages) {
            return Err(AllocAtError::Misaligned(pfn));
        }
        let zone = self.zone_at(frame).ok_or(AllocAtError::Unknown(pfn))?;
        let end = self.zones[zone.index()].end;
        let (mut at, mut all) = (frame, true);
        while at < frame + pages {
            let tag = self.frames.tag(at);
            if tag.kind() != Kind::Used || tag.order() > order || at >= end {
                return Err(AllocAtError::InUse(self.frames.pfn(at)));
            }
            all &= tag.is_movable();
            at += tag.order().pages() as FrameIndex;
        }
        at = frame;
        while at < frame + pages {
            let tag = self.frames.tag(at);
            if tag.is_movable() && !all {
                self.frames.each_block(at, tag.order(), |block, pages| block.movable -= pages);
            }
            at += tag.order().pages() as FrameIndex;
        }
        self.frames.set_inside(frame, frame + pages);
        self.frames.set_tag(frame, Tag::new(Kind::Used, order).with_movable(all));
        Ok(())
    }

    /// Takes the free block of `order` at `pfn` wherever it is: on a per-CPU list, on a free list, or in a larger free
    /// block, whose rest goes to the heads of the lists of its type. O(orders).
    ///
    /// # Errors
    /// [`AllocAtError`]; nothing is taken then.
    pub fn take_exactly(&mut self, pfn: Pfn, order: Order) -> Result<(), AllocAtError> {
        let frame = self.frames.index(pfn).ok_or(AllocAtError::Unknown(pfn))?;
        if !pfn.0.is_multiple_of(order.pages()) {
            return Err(AllocAtError::Misaligned(pfn));
        }
        if self.frames.tag(frame) == Tag::new(Kind::PerCpu, order) {
            let (id, rank, slot) = self.cached_at(frame).ok_or(AllocAtError::InUse(pfn))?;
            self.zones[id.index()].per_cpu[rank].remove(&mut self.frames, slot, frame);
            self.frames.set_tag(frame, Tag::new(Kind::Used, order));
            return Ok(());
        }
        let (head, found) = self.free_block_over(frame, order).ok_or(AllocAtError::InUse(pfn))?;
        self.cut_at(head, found, frame, order);
        Ok(())
    }

    /// Puts the block in use at `ours` in the place where the free block of the same order at `theirs` is, which
    /// becomes the block in use, as the kernel gave it instead. Where `theirs` is part of a larger free block, and
    /// where `ours` may not stand (in another zone, beside its free buddy, on a strict list of another type), `ours` is
    /// freed as usual.
    ///
    /// # Errors
    /// [`AllocAtError`]; nothing has changed then.
    pub fn exchange(&mut self, ours: Pfn, theirs: Pfn) -> Result<(), AllocAtError> {
        let (from, tag) = self.in_use(ours).map_err(|_| AllocAtError::Unknown(ours))?;
        let to = self.frames.index(theirs).ok_or(AllocAtError::Unknown(theirs))?;
        let order = tag.order();
        let alike = self.zone_at(to) == self.zone_at(from);
        let cached = self.frames.tag(to) == Tag::new(Kind::PerCpu, order);
        let free = self.frames.tag(to) == Tag::new(Kind::Free, order) && self.fits(from, to);
        let place = if alike && cached { self.cached_at(to) } else { None };
        let (is_placed, id) = (place.is_some() || alike && free, self.zone_of(from));
        if !is_placed {
            self.take_exactly(theirs, order)?;
        }
        if tag.is_movable() {
            self.frames.each_block(from, order, |block, pages| block.movable -= pages);
        }
        if let Some((id, rank, slot)) = place {
            let listed = self.frames.listed(to);
            self.zones[id.index()].per_cpu[rank].replace(&mut self.frames, slot, to, from);
            self.frames.set_listed(from, listed);
        } else if is_placed {
            self.zones[id.index()].lists.replace(&mut self.frames, to, from);
        } else {
            self.zones[id.index()].free_block(&mut self.frames, from, order);
        }
        self.frames.set_tag(to, Tag::new(Kind::Used, order));
        Ok(())
    }

    /// Returns true if the block at `from` may stand on the free list on which the one of its order at `to` is.
    fn fits(&self, from: FrameIndex, to: FrameIndex) -> bool {
        let (order, listed) = (self.frames.tag(to).order(), self.frames.listed(to));
        let kind = self.frames.block(from).migratetype;
        let strict = self.policy.fallback != FallbackRules::Loose;
        let buddy = self.frames.tag(buddy(from, order));
        let merges = order < Order::MAX && buddy == Tag::new(Kind::Free, order);
        !merges && (!strict || kind == listed)
    }

    /// Returns the zone, the rank of the CPU, and the list of the block at `frame` on a per-CPU list. O(zones, CPUs and
    /// the length of the list).
    fn cached_at(&self, frame: FrameIndex) -> Option<(ZoneId, usize, Slot)> {
        let (tag, zone) = (self.frames.tag(frame), &self.zones[self.zone_of(frame).index()]);
        let mut first = frame;
        loop {
            let [before, _] = self.frames.links(first);
            if before == super::frames::NONE {
                break;
            }
            first = before;
        }
        let slots = || Slot::all(self.policy.per_cpu).filter(|slot| slot.order() == tag.order());
        zone.per_cpu.iter().enumerate().find_map(|(rank, lists)| {
            let slot = slots().find(|&slot| lists.list(slot).first() == Some(first))?;
            Some((zone.id, rank, slot))
        })
    }

    /// Puts the entries of a free list up to the block at `pfn` (if `inclusive`), or those before it, behind all
    /// others, as a quick search of compaction does. Nothing happens if no free block begins there. O(1).
    pub fn turn_list(&mut self, pfn: Pfn, inclusive: bool) {
        let Some(frame) = self.frames.index(pfn) else { return };
        let tag = self.frames.tag(frame);
        if tag.kind() == Kind::Free {
            let (id, kind) = (self.zone_of(frame), self.frames.listed(frame));
            let list = self.zones[id.index()].lists.list_mut(tag.order(), kind);
            list.turn(&mut self.frames, frame, inclusive);
        }
    }

    /// Wakes kswapd, and makes the pass that follows on the slow path of a request: down to its min watermark, and
    /// mixing types where it must. `None` if no zone has such a block.
    pub fn alloc_again(&mut self, cpu: CpuId, request: &PageRequest) -> Option<Pfn> {
        self.wake_all_kswapds(cpu, request);
        let flags = with_reserves(request, rights(request));
        let flags = flags.with(self.fragment_flags(cpu, request, Path::Slow));
        match self.walk(cpu, request, flags) {
            Walk::Block(frame) => Some(self.handed_out(frame, request)),
            Walk::Exhausted | Walk::Spared(_) | Walk::NoZone => None,
        }
    }

    /// Takes a page from a CPU's list of a zone as the bulk interface of Linux does (5.13 on): without a first pass
    /// that avoids mixing types, and without counting as a request to the lists. Mixing types boosts the zone, but the
    /// call has no right to wake kswapd. `None` if the CPU has no such list, or the zone no page for it.
    pub fn alloc_cached(
        &mut self,
        cpu: CpuId,
        zone: ZoneId,
        migratetype: Migratetype,
    ) -> Option<Pfn> {
        let slot = Slot::of(Order::ZERO, migratetype, self.policy.per_cpu)?;
        if !self.has_lists(cpu) || zone.index() >= self.zones.len() {
            return None;
        }
        let flags = AllocFlags::at(Mark::Low);
        let wanted = ZoneRequest { zone, order: Order::ZERO, migratetype, flags };
        let taken = self.take_listed(cpu, wanted, slot);
        let Taken::Block(frame) = taken else { return None };
        Some(self.frames.pfn(frame))
    }

    /// Returns the type of the per-CPU list that a free block is on; `None` if it is on none.
    #[must_use]
    pub fn cached_as(&self, pfn: Pfn) -> Option<Migratetype> {
        let frame = self.frames.index(pfn)?;
        if self.frames.tag(frame).kind() != Kind::PerCpu {
            return None;
        }
        self.cached_at(frame).map(|(_, _, slot)| slot.migratetype())
    }

    /// Begins a run of kswapd for what it was woken for, or for single pages in all zones if the engine has not woken
    /// it: notes the boosts that it will take away, and per-CPU lists keep less in the zones that its wakers can use.
    #[must_use]
    pub fn kswapd_begins(&mut self, node: NodeId) -> KswapdRun {
        let wanted = self.nodes.get_mut(node.index()).and_then(|node| node.kswapd.wanted.take());
        let wanted =
            wanted.unwrap_or(KswapdGoal { order: Order::ZERO, highest: ZoneKind::Movable });
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.kswapd.awake = true;
        }
        let highest = wanted.highest;
        self.set_reclaims(node, highest, Reclaims::Now);
        let zones = self.zones.iter().filter(|zone| zone.node == node && zone.kind <= highest);
        let zones = zones.map(|zone| (zone.id, PageCount(zone.boost)));
        let mut noted = [None; ZoneKind::COUNT];
        noted.iter_mut().zip(zones).for_each(|(noted, zone)| *noted = Some(zone));
        KswapdRun { node, wanted, noted }
    }

    /// Ends the run: the boosts that it noted are taken away. A request that needs kswapd wakes it anew then, unless
    /// the node is still short of pages.
    pub fn kswapd_rests(&mut self, run: &KswapdRun) {
        for &(id, boost) in run.noted.iter().flatten() {
            let zone = &mut self.zones[id.index()];
            zone.boost -= zone.boost.min(boost.0);
        }
        self.set_reclaims(run.node, run.wanted.highest, Reclaims::NoLonger);
        let dozes = self.is_balanced(run.node, run.wanted);
        if let Some(node) = self.nodes.get_mut(run.node.index()) {
            let mail = &mut node.kswapd;
            mail.awake = !dozes;
            if !dozes {
                mail.wanted = Some(run.wanted.and(mail.wanted));
            }
        }
    }

    /// Begins a run that nobody woke kswapd for: it has the goal of the `last` one if the node has fallen short again
    /// since that one rested.
    pub fn kswapd_goes_on(&mut self, last: &KswapdRun) {
        let short = !self.is_balanced(last.node, last.wanted);
        if let Some(node) = self.nodes.get_mut(last.node.index()).filter(|_| short) {
            node.kswapd.wanted.get_or_insert(last.wanted);
        }
    }

    /// Judges whether compaction can begin in a zone for a block of this order at the min watermark, for a request that
    /// can use zones up to `highest`; `None` if there is no such zone. All callers ask this, except kcompactd when it
    /// is to make whole pageblocks.
    #[must_use]
    pub fn suits_compaction(
        &self,
        zone: ZoneId,
        order: Order,
        highest: ZoneKind,
    ) -> Option<Suitability> {
        let flags = AllocFlags::at(Mark::Min);
        let wish = Wish { order, highest, flags, mode: Mode::SyncLight };
        Some(suitability(self.zones.get(zone.index())?, &self.policy.compaction, &wish))
    }

    /// Puts the node's kswapd to sleep.
    pub fn kswapd_sleeps(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.kswapd.awake = false;
            node.kswapd.wanted = None;
        }
    }

    /// Sets or clears the mark by which compaction passes the pageblock of a frame by.
    pub fn set_skip(&mut self, pfn: Pfn, skip: bool) {
        if let Some(frame) = self.frames.index(pfn) {
            self.frames.block_mut(frame).skip = skip;
        }
    }

    /// Returns true if compaction passes the pageblock of a frame by; `None` outside the map.
    #[must_use]
    pub fn is_marked(&self, pfn: Pfn) -> Option<bool> {
        Some(self.frames.block(self.frames.index(pfn)?).skip)
    }

    /// Wipes the marks on a zone's pageblocks, as kswapd does when it goes to sleep.
    pub fn forget_marks(&mut self, zone: ZoneId) {
        if zone.index() < self.zones.len() {
            self.wipe_marks(zone, Wiper::Kswapd);
        }
    }

    /// Takes a free block off its list and splits it into single pages in use, as compaction isolates places to move
    /// to. From order 8 on its pageblocks become movable, as in compaction.
    ///
    /// # Errors
    /// [`AllocAtError`]; nothing is taken then.
    pub fn isolate(&mut self, pfn: Pfn, order: Order) -> Result<(), AllocAtError> {
        self.take_exactly(pfn, order)?;
        self.split(pfn, Order::ZERO).map_err(|_| AllocAtError::InUse(pfn))?;
        if order.get() + 1 >= Order::PAGEBLOCK.get() {
            let frame = self.frames.index(pfn).ok_or(AllocAtError::Unknown(pfn))?;
            self.frames.each_block(frame, order, |block, _| {
                if block.migratetype.is_mobility() {
                    block.migratetype = Migratetype::Movable;
                }
            });
        }
        Ok(())
    }

    /// Returns the state that compaction keeps for a zone between runs; `None` if there is no such zone.
    #[must_use]
    pub fn compaction_memory(&self, zone: ZoneId) -> Option<CompactionImage> {
        self.zones.get(zone.index()).map(PageAllocator::<E>::compaction_image)
    }

    /// Sets the state that compaction keeps for a zone between runs.
    pub fn set_compaction_memory(&mut self, zone: ZoneId, memory: CompactionImage) {
        if let Some(zone) = self.zones.get_mut(zone.index()) {
            zone.compaction.set_memory(memory);
        }
    }

    /// Sets the bound of a CPU's lists in a zone, where the policy moves bounds; it is held within what they may be.
    pub fn set_per_cpu_bound(&mut self, cpu: CpuId, zone: ZoneId, pages: PageCount) {
        if self.has_lists(cpu)
            && let Some(zone) = self.zones.get_mut(zone.index())
        {
            let (high, bounds) = (u32::try_from(pages.get()), zone.per_cpu_bounds);
            zone.per_cpu[cpu.rank()].pace.high =
                high.unwrap_or(u32::MAX).clamp(bounds.least, bounds.most);
        }
    }

    /// Puts a block in use at the head of a list of the CPU, as it may have been found there: however many the lists
    /// hold, none is drained. Where CPUs keep no such blocks it is freed. O(1).
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    pub fn put_on_cpu(&mut self, cpu: CpuId, pfn: Pfn) -> Result<(), FreeError> {
        let (frame, tag) = self.in_use(pfn)?;
        let migratetype = self.frames.block(frame).migratetype;
        let slot = Slot::of(tag.order(), listed_as(migratetype), self.policy.per_cpu);
        let Some(slot) = slot.filter(|_| self.has_lists(cpu) && tag.kind() == Kind::Used) else {
            return self.free(cpu, pfn);
        };
        if tag.is_movable() {
            self.frames.each_block(frame, tag.order(), |block, pages| block.movable -= pages);
        }
        let zone = self.zone_of(frame);
        let lists = &mut self.zones[zone.index()].per_cpu[cpu.rank()];
        lists.put(&mut self.frames, slot, frame, migratetype, Relist::Head);
        Ok(())
    }

    /// Counts an attempt of a caller to compact a zone for this order; returns true if it is to be made, and false if
    /// it is put off or there is no such zone.
    pub fn consider_compaction(&mut self, zone: ZoneId, order: Order) -> bool {
        let zone = self.zones.get_mut(zone.index());
        zone.is_some_and(|zone| zone.compaction.deferral.consider(order) != Decision::Skip)
    }

    /// Records the end of a caller's attempt at this order: with a block (`success`), or without one after a run that
    /// waits.
    pub fn note_compaction(&mut self, zone: ZoneId, order: Order, success: bool) {
        if let Some(zone) = self.zones.get_mut(zone.index()) {
            match success {
                true => zone.compaction.deferral.succeeded(),
                false => zone.compaction.deferral.failed(order),
            }
        }
    }

    /// Records that the request itself was served after compaction at this order.
    pub fn note_served(&mut self, zone: ZoneId, order: Order) {
        if let Some(zone) = self.zones.get_mut(zone.index()) {
            zone.compaction.deferral.served(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::FragmentationPolicy;
    use super::super::testing::{cpu, full_zone, zone};
    use super::*;
    use crate::check::Check;
    use crate::page::RequestFlags;

    const NODE: NodeId = NodeId(0);
    const HUGE: (Order, ZoneKind) = (Order::PAGEBLOCK, ZoneKind::Normal);
    const ANYTHING: (Order, ZoneKind) = (Order::ZERO, ZoneKind::Movable);

    /// Makes a node on which kswapd was woken for a huge page, and none is free.
    fn short() -> PageAllocator {
        let mut pages = full_zone(2, FragmentationPolicy::LINUX_6_1);
        wake(&mut pages, HUGE);
        pages
    }

    fn wake(pages: &mut PageAllocator, (order, zone): (Order, ZoneKind)) {
        let request = PageRequest::user(order).flags(RequestFlags::KSWAPD_RECLAIM);
        pages.wake_all_kswapds(cpu(), &PageRequest { zone, ..request });
    }

    /// Frees the first huge page and 32 pages beside it, enough to balance the node.
    fn relieve(pages: &mut PageAllocator) {
        for frame in 0..Order::PAGEBLOCK.pages() + 32 {
            pages.free(cpu(), Pfn(frame)).expect("it is in use");
        }
        pages.drain_all();
    }

    /// Returns true if kswapd is awake, and the goal that it was woken for.
    fn mail(pages: &PageAllocator) -> (bool, Option<(Order, ZoneKind)>) {
        let info = pages.kswapd(NODE).expect("there is such a node");
        (info.awake, info.asked)
    }

    #[test]
    fn a_run_of_kswapd_is_for_what_it_was_woken_for_or_for_single_pages() {
        let mut pages = short();
        assert_eq!(mail(&pages), (true, Some(HUGE)));
        assert_eq!(pages.kswapd_begins(NODE).wanted(), HUGE);
        assert_eq!(mail(&pages), (true, None));
        assert_eq!(pages.kswapd_begins(NODE).wanted(), ANYTHING, "nobody has woken it");
    }

    #[test]
    fn a_run_of_kswapd_takes_away_the_boosts_that_it_has_found() {
        let mut pages = zone(2, FragmentationPolicy::LINUX_6_1);
        pages.zones[0].boost = 100;
        let run = pages.kswapd_begins(NODE);
        assert!(pages.zones[0].shortage.reclaims, "lists keep less meanwhile");
        pages.zones[0].boost += 30;
        pages.kswapd_rests(&run);
        assert_eq!((pages.zones[0].boost, pages.zones[0].shortage.reclaims), (30, false));
    }

    #[test]
    fn kswapd_rests_once_its_node_is_balanced_and_stays_at_work_before() {
        let mut pages = short();
        let run = pages.kswapd_begins(NODE);
        wake(&mut pages, (Order::COSTLY, ZoneKind::Movable));
        pages.kswapd_rests(&run);
        let both = (HUGE.0, ZoneKind::Movable);
        assert_eq!(mail(&pages), (true, Some(both)), "with what was asked for meanwhile");
        let run = pages.kswapd_begins(NODE);
        relieve(&mut pages);
        pages.kswapd_rests(&run);
        assert_eq!(mail(&pages), (false, None));
    }

    #[test]
    fn a_run_that_nobody_asked_for_goes_on_with_the_last_if_the_node_has_fallen_short_again() {
        let mut pages = short();
        let last = pages.kswapd_begins(NODE);
        relieve(&mut pages);
        pages.kswapd_rests(&last);
        pages.kswapd_goes_on(&last);
        assert_eq!(pages.kswapd_begins(NODE).wanted(), ANYTHING, "it is balanced");
        pages.alloc_at(Pfn(0), Order::ZERO).expect("it is free");
        pages.kswapd_goes_on(&last);
        assert_eq!(pages.kswapd_begins(NODE).wanted(), HUGE);
        wake(&mut pages, (Order::MAX, ZoneKind::Normal));
        pages.kswapd_goes_on(&last);
        let woken = (Order::MAX, ZoneKind::Normal);
        assert_eq!(pages.kswapd_begins(NODE).wanted(), woken, "somebody has asked");
    }

    /// Puts all memory on the lists in blocks of order 2. Freed in a row they would be drained (rules since 6.7).
    #[test]
    fn blocks_are_put_on_lists_of_a_cpu_without_a_drain_and_up_to_any_bound() {
        let order = Order::new(2).expect("an order");
        let mut pages = full_zone(8, FragmentationPolicy::LINUX_7_2);
        let (id, whole) = (pages.zones[0].id, 8 * Order::PAGEBLOCK.pages());
        let bounds = pages.zones[0].per_cpu_bounds;
        for frame in (0..whole).step_by(4) {
            pages.join(Pfn(frame), order).expect("it is in use");
            pages.set_movable(Pfn(frame), frame % 8 == 0).expect("it is in use");
            assert_eq!(pages.put_on_cpu(cpu(), Pfn(frame)), Ok(()));
        }
        assert_eq!(pages.per_cpu_pages(id).get(), whole);
        assert_eq!(pages.check(), Ok(()));
        assert!(pages.put_on_cpu(cpu(), Pfn(0)).is_err(), "it is free now");
        pages.set_per_cpu_bound(cpu(), id, PageCount(u64::MAX));
        assert_eq!(pages.zones[0].per_cpu[0].pace.high, bounds.most);
        pages.set_per_cpu_bound(cpu(), id, PageCount(0));
        assert_eq!(pages.zones[0].per_cpu[0].pace.high, bounds.least);
        pages.set_per_cpu_bound(cpu(), ZoneId(7), PageCount(0));
        pages.drain_all();
        assert_eq!((pages.per_cpu_pages(id).get(), pages.check()), (0, Ok(())));
    }

    #[test]
    fn a_block_that_no_list_of_a_cpu_takes_is_freed() {
        let mut pages = full_zone(2, FragmentationPolicy::LINUX_5_3);
        let order = Order::new(2).expect("an order");
        pages.join(Pfn(0), order).expect("it is in use");
        assert_eq!(pages.put_on_cpu(cpu(), Pfn(0)), Ok(()));
        let info = pages.zones().next().expect("a zone");
        assert_eq!((pages.per_cpu_pages(info.id).get(), info.free.get()), (0, 4));
    }
}
