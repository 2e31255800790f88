//! Who owns the pages of a replay: which block of the policy's memory stands for which traced one, and what may be
//! moved or taken back when the policy asks.
//!
//! The recorded kernel took decisions by itself, which stand among the events like those of the workload: it reclaimed
//! pages and moved others. [`Housekeeping`] says what becomes of them. If every policy followed them, all would be
//! compared with another kernel's reclaim and compaction on top of their own. So they follow none: a page that the
//! recorded kernel reclaimed stays where it is and as old as it is, without a traced name, until the policy's own
//! reclaim comes to it; a page that was moved stays where it is. That the workload went on as if it were gone changes
//! nothing for others: what it reads again is a new request. Only for [`Fidelity`](super::Fidelity) the recorded
//! decisions are carried out.
//!
//! What reclaim may take: page cache, from the page on that came in first, and slabs in proportion
//! ([`world::reclaim`](crate::world::reclaim)). What the recorded kernel freed while it reclaimed and is neither
//! (buffers, page tables; memory of processes, as no swap device is modelled) is freed when it was.

use nofrag::cpu::CpuId;
use nofrag::page::{Migrate, PageAllocator, PageRequest, Reclaim, ReclaimRequest, Reclaimed};
use nofrag::units::{Order, Pfn};

use super::request::Use;
use super::scanner::FreeScanner;
use super::spans::{FrameIndex, Spans};
use super::step::By;
use crate::world::Owns;
use crate::world::costs::Costs;
use crate::world::links::Links;
use crate::world::lru::{Class, Lru};
use crate::world::reclaim::{TakesBack, reclaim};

/// What becomes of the recorded kernel's own decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Housekeeping {
    /// The policy takes its own: pages that the recorded kernel reclaimed or moved stay until the policy does so.
    Own,
    /// They are carried out: pages are reclaimed when they were, and moved to where the policy's free scanner finds
    /// room. The policy's kswapd and kcompactd rest.
    AsRecorded,
    /// The same, but what was moved is lost: the baseline that shows what following migrations is worth.
    WithoutTargets,
}

/// No block.
const NOTHING: u32 = u32::MAX;
/// Of a traced block: the policy did not serve it; it was reclaimed by the policy. Of a frame: its block was moved by
/// the recorded kernel, nobody knows where to; its block has no traced name any more, and waits to be reclaimed.
const NOT_SERVED: u32 = u32::MAX - 1;
const RECLAIMED: u32 = u32::MAX - 2;
const MOVED: u32 = u32::MAX - 3;
const NAMELESS: u32 = u32::MAX - 4;

/// What can be taken back.
const CACHE: Class = 0;
const SLABS: Class = 1;
const CLASSES: usize = 2;

/// What happened that the policy's own counters do not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) not_served: u64,
    pub(super) reclaimed_before: u64,
}

/// Who asks for reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    Kswapd,
    Caller,
}

/// Where each traced block is, and what each of the policy's blocks holds.
///
/// Always true:
/// 1. `places[t]` is a block in use that begins at frame f exactly if `holders[f]` is t.
/// 2. A frame is on a list of `moved` exactly if its holder is [`MOVED`]; if that is [`NAMELESS`] it can be taken back.
#[derive(Debug)]
pub(super) struct Owner {
    traced: Spans,
    own: Spans,
    /// By traced frame: the own frame of the block that begins there.
    places: Vec<u32>,
    /// By own frame: the traced frame of the block that begins there.
    holders: Vec<u32>,
    lru: Lru,
    /// By traced zone and order.
    moved: Links,
    /// How many blocks were moved and are not on those lists, as the policy did not have them.
    moved_missing: Vec<[u64; Order::COUNT]>,
    housekeeping: Housekeeping,
    scanner: FreeScanner,
    /// Pages that the recorded kernel reclaimed and this kswapd has not been told of.
    credit: u64,
    /// Thousandths of slabs that reclaim owes.
    owed: u64,
    pub(super) asks: Asks,
    pub(super) cpu: CpuId,
    pub(super) noted: Noted,
    /// What things cost on the recorded host.
    pub(super) costs: Costs,
    spent: u64,
}

impl Owner {
    /// Nothing is in use yet.
    pub(super) fn new(
        traced: Spans,
        own: Spans,
        pages: &PageAllocator,
        cpu: CpuId,
        housekeeping: Housekeeping,
        costs: Costs,
    ) -> Owner {
        let (frames, traced_zones) = (own.frames(), traced.zones());
        Owner {
            places: vec![NOTHING; traced.frames()],
            holders: vec![NOTHING; frames],
            lru: Lru::new(frames, pages.zones().map(|zone| zone.node).collect(), CLASSES),
            moved: Links::new(frames, traced_zones * Order::COUNT),
            moved_missing: vec![[0; Order::COUNT]; traced_zones],
            housekeeping,
            scanner: FreeScanner::default(),
            credit: 0,
            owed: 0,
            asks: Asks::Caller,
            cpu,
            noted: Noted::default(),
            costs,
            spent: 0,
            traced,
            own,
        }
    }

    /// The traced block at `frame` is the own one at `pfn`.
    pub(super) fn adopt(
        &mut self,
        pages: &mut PageAllocator,
        frame: FrameIndex,
        pfn: Pfn,
        used: Use,
    ) {
        let own = self.own.index(pfn.0).expect("the policy hands out frames of its zones");
        self.places[frame as usize] = own;
        self.holders[own as usize] = frame;
        if matches!(used, Use::Movable | Use::Cache) {
            pages.set_movable(pfn, true).expect("it was just handed out");
        }
        match used {
            Use::Cache => self.lru.add(CACHE, self.own.zone(own), own),
            Use::Slab => self.lru.add(SLABS, self.own.zone(own), own),
            Use::Fixed | Use::Movable => {}
        }
    }

    /// The policy has no block for the traced one.
    pub(super) fn not_served(&mut self, frame: FrameIndex) {
        self.noted.not_served += 1;
        self.places[frame as usize] = NOT_SERVED;
    }

    /// The policy had reclaimed it before the recording began: it has less memory.
    pub(super) fn not_there(&mut self, frame: FrameIndex) {
        self.places[frame as usize] = RECLAIMED;
    }

    /// The traced block is given back.
    pub(super) fn free(&mut self, pages: &mut PageAllocator, frame: FrameIndex, by: By) {
        match std::mem::replace(&mut self.places[frame as usize], NOTHING) {
            NOTHING | NOT_SERVED => {}
            RECLAIMED => self.noted.reclaimed_before += 1,
            own => self.let_go(pages, own, by),
        }
    }

    /// Nothing traced stands for the own block any more.
    fn let_go(&mut self, pages: &mut PageAllocator, own: FrameIndex, by: By) {
        let stays = by == By::Reclaim && self.housekeeping == Housekeeping::Own;
        if stays && self.lru.class(own).is_some() {
            self.holders[own as usize] = NAMELESS;
            return;
        }
        let pages_freed = self.give_back(pages, own);
        if by == By::Reclaim {
            self.credit += pages_freed;
        }
    }

    fn is_movable(&self, pages: &PageAllocator, own: FrameIndex) -> bool {
        let state = pages.frame(self.pfn(own)).map(|(state, ..)| state);
        state == Some(nofrag::page::FrameState::Movable)
    }

    /// Gives the own block back to the policy; how many pages it was.
    fn give_back(&mut self, pages: &mut PageAllocator, own: FrameIndex) -> u64 {
        let pfn = self.pfn(own);
        let (_, _, order) = pages.frame(pfn).expect("a block begins there");
        self.lru.remove(own);
        self.moved.remove(own);
        self.holders[own as usize] = NOTHING;
        pages.free(self.cpu, pfn).expect("the block is in use");
        order.pages()
    }

    /// The traced block goes on as smaller ones.
    pub(super) fn split(
        &mut self,
        pages: &mut PageAllocator,
        frame: FrameIndex,
        from: Order,
        to: Order,
    ) {
        let place = self.places[frame as usize];
        let parts = (0..from.pages() as FrameIndex).step_by(to.pages() as usize);
        if matches!(place, NOTHING | NOT_SERVED | RECLAIMED) {
            return parts.for_each(|part| self.places[(frame + part) as usize] = place);
        }
        pages.split(self.pfn(place), to).expect("the block is in use");
        let class = self.lru.class(place);
        self.lru.remove(place);
        for part in parts {
            let own = place + part;
            self.places[(frame + part) as usize] = own;
            self.holders[own as usize] = frame + part;
            if let Some(class) = class {
                self.lru.add(class, self.own.zone(own), own);
            }
        }
    }

    /// The recorded kernel moved what the traced block holds.
    pub(super) fn moved(&mut self, pages: &mut PageAllocator, frame: FrameIndex, order: Order) {
        let place = std::mem::replace(&mut self.places[frame as usize], NOTHING);
        let zone = self.traced.zone(frame);
        if matches!(place, NOTHING | NOT_SERVED | RECLAIMED) {
            self.moved_missing[zone][usize::from(order.get())] += 1;
            return;
        }
        match self.housekeeping {
            Housekeeping::WithoutTargets => {
                self.give_back(pages, place);
            }
            Housekeeping::Own => self.lose_sight(zone, order, place),
            Housekeeping::AsRecorded => {
                self.holders[place as usize] = MOVED;
                let target = self.carry_out(pages, place, order);
                self.lose_sight(zone, order, target);
            }
        }
    }

    /// The own block holds what was moved to a place that is not known.
    fn lose_sight(&mut self, zone: usize, order: Order, own: FrameIndex) {
        self.holders[own as usize] = MOVED;
        self.moved.push(moved_list(zone, order), own);
    }

    /// Moves the own block to where the free scanner finds room; where it is then.
    fn carry_out(
        &mut self,
        pages: &mut PageAllocator,
        from: FrameIndex,
        order: Order,
    ) -> FrameIndex {
        let Some(to) = self.scanner.target(pages, &self.own, order) else { return from };
        let (source, target) = (self.pfn(from), self.pfn(to));
        if self.is_movable(pages, from) {
            pages.set_movable(target, true).expect("it was just taken");
        }
        let moved = self.migrate(source, target, order);
        debug_assert!(moved, "the owner moves everything");
        pages.free(self.cpu, source).expect("the block is in use");
        to
    }

    /// Something that had been moved to the traced frame was moved on.
    pub(super) fn moved_again(
        &mut self,
        pages: &mut PageAllocator,
        frame: FrameIndex,
        order: Order,
    ) {
        if self.housekeeping == Housekeeping::AsRecorded
            && let Some(own) = self.find_moved(frame, order)
        {
            self.carry_out(pages, own, order);
        }
    }

    /// The block among those that were moved which is most likely the one that is now at the traced frame. Where the
    /// recorded moves are carried out that may be the block at the same place; else it is the one that was moved first,
    /// as a kernel reclaims what is oldest.
    fn find_moved(&self, frame: FrameIndex, order: Order) -> Option<FrameIndex> {
        let list = moved_list(self.traced.zone(frame), order);
        if self.housekeeping == Housekeeping::AsRecorded
            && let Some(same) = self.own.index(self.traced.pfn(frame))
            && self.moved.list_of(same) == Some(list)
        {
            return Some(same);
        }
        self.moved.oldest(list)
    }

    /// A block was given back that had been moved to the traced frame.
    pub(super) fn free_moved(
        &mut self,
        pages: &mut PageAllocator,
        frame: FrameIndex,
        order: Order,
        by: By,
    ) {
        if let Some(own) = self.find_moved(frame, order) {
            self.moved.remove(own);
            return self.let_go(pages, own, by);
        }
        let missing = &mut self.moved_missing[self.traced.zone(frame)][usize::from(order.get())];
        if *missing > 0 {
            *missing -= 1;
            self.noted.reclaimed_before += 1;
        }
    }

    /// Where the block of a traced one begins.
    #[cfg(test)]
    pub(super) fn place(&self, frame: FrameIndex) -> Option<Pfn> {
        let own = self.places[frame as usize];
        (own < NAMELESS).then(|| self.pfn(own))
    }

    /// Pages were moved from nobody knows where to a zone: so many are in use from now on.
    pub(super) fn appeared(&mut self, pages: &mut PageAllocator, zone: usize, count: u32) {
        for _ in 0..count {
            if self.housekeeping == Housekeeping::WithoutTargets {
                continue;
            }
            let request = PageRequest::user(Order::ZERO);
            match pages.alloc(nofrag::units::Nanos(0), self.cpu, request) {
                Ok(pfn) => {
                    pages.set_movable(pfn, true).expect("it was just handed out");
                    let own = self.own.index(pfn.0).expect("it is of one of its zones");
                    self.lose_sight(zone, Order::ZERO, own);
                }
                Err(attempt) => {
                    attempt.abandon(pages);
                    self.moved_missing[zone][0] += 1;
                }
            }
        }
    }

    /// A frame is in use, as a snapshot shows: by what was moved there, or by something unknown.
    pub(super) fn found(&mut self, pages: &mut PageAllocator, frame: FrameIndex) {
        if let Some(own) = self.find_moved(frame, Order::ZERO) {
            self.moved.remove(own);
            self.places[frame as usize] = own;
            self.holders[own as usize] = frame;
            return;
        }
        let own = Pfn(self.traced.pfn(frame));
        let here = pages.alloc_at(own, Order::ZERO).ok().map(|()| own);
        let request = PageRequest::user(Order::ZERO);
        let pfn = here.or_else(|| {
            let got = pages.alloc(nofrag::units::Nanos(0), self.cpu, request);
            got.map_err(|attempt| attempt.abandon(pages)).ok()
        });
        match pfn {
            Some(pfn) => self.adopt(pages, frame, pfn, Use::Movable),
            None => self.not_served(frame),
        }
    }

    /// The recorded kernel looks for free pages from this traced frame downwards.
    pub(super) fn scan_from(&mut self, free: FrameIndex) {
        let own = self.own.index(self.traced.pfn(free));
        self.scanner = own.map_or_else(FreeScanner::default, |own| {
            FreeScanner::new(self.own.of_zone(self.own.zone(own)).start, own)
        });
    }

    /// Whether the recorded kernel has reclaimed what this kswapd has not been told of.
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    fn pfn(&self, own: FrameIndex) -> Pfn {
        Pfn(self.own.pfn(own))
    }

    /// Takes the block back, whatever traced name it has.
    fn forget(&mut self, pages: &mut PageAllocator, own: FrameIndex) -> u64 {
        match self.holders[own as usize] {
            MOVED => {
                let list = self.moved.list_of(own).expect("law 2");
                let (zone, order) = (list / Order::COUNT, list % Order::COUNT);
                self.moved_missing[zone][order] += 1;
            }
            NAMELESS => {}
            traced => self.places[traced as usize] = RECLAIMED,
        }
        self.give_back(pages, own)
    }
}

fn moved_list(zone: usize, order: Order) -> usize {
    zone * Order::COUNT + usize::from(order.get())
}

impl Reclaim for Owner {
    fn reclaim(&mut self, pages: &mut PageAllocator, wanted: ReclaimRequest) -> Reclaimed {
        if self.asks == Asks::Kswapd && self.housekeeping != Housekeeping::Own {
            // The recorded kernel's reclaim is carried out; what it did stands for what this one would.
            let done = self.credit.min(wanted.pages);
            self.credit -= done;
            return Reclaimed { pages: done, scanned: done, left: 0 };
        }
        reclaim(self, pages, &wanted)
    }
}

impl TakesBack<()> for Owner {
    fn reclaimable(&self, wanted: &ReclaimRequest) -> u64 {
        self.lru.len(CACHE, wanted)
    }

    fn oldest(&self, wanted: &ReclaimRequest) -> Option<FrameIndex> {
        self.lru.oldest(CACHE, wanted)
    }

    fn take_back(&mut self, pages: &mut PageAllocator, own: FrameIndex, _: &ReclaimRequest) -> u64 {
        self.spent += self.costs.reclaim_scan + self.costs.reclaim_page;
        self.forget(pages, own)
    }

    /// The share of all slabs that was looked at of page cache.
    fn shrink(
        &mut self,
        pages: &mut PageAllocator,
        wanted: &ReclaimRequest,
        done: Reclaimed,
    ) -> u64 {
        if self.housekeeping != Housekeeping::Own {
            return 0; // the recorded kernel's are carried out
        }
        let cached = self.lru.len(CACHE, wanted) + done.pages;
        self.owed += 1000 * done.scanned * self.lru.len(SLABS, wanted) / cached.max(1);
        let mut freed = 0;
        while self.owed >= 1000 {
            self.owed -= 1000;
            let Some(own) = self.lru.oldest(SLABS, wanted) else { break };
            self.spent += self.costs.shrink_object;
            freed += self.forget(pages, own);
        }
        freed
    }
}

impl Owns<()> for Owner {
    fn turn(&mut self, cpu: CpuId, _: u64) {
        self.cpu = cpu;
    }

    fn take_spent(&mut self) -> u64 {
        std::mem::take(&mut self.spent)
    }
}

impl Migrate for Owner {
    fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool {
        let index = |pfn: Pfn| self.own.index(pfn.0).expect("it is of one of the zones");
        let (from, to) = (index(from), index(to));
        let holder = std::mem::replace(&mut self.holders[from as usize], NOTHING);
        self.holders[to as usize] = holder;
        if holder < NAMELESS {
            self.places[holder as usize] = to;
        }
        if let Some(class) = self.lru.class(from) {
            // Pages that were moved come back to their lists as the youngest.
            self.lru.remove(from);
            self.lru.add(class, self.own.zone(to), to);
        }
        self.moved.replace(from, to);
        self.spent += self.costs.migrate_page << order.get();
        true
    }
}

#[cfg(test)]
impl Owner {
    /// Verifies every law; panics with the number of the broken one.
    pub(super) fn check(&self, pages: &PageAllocator) {
        for (frame, &own) in self.places.iter().enumerate() {
            if own < NAMELESS {
                assert_eq!(self.holders[own as usize], frame as u32, "law 1");
            }
        }
        for (own, &holder) in self.holders.iter().enumerate() {
            let own = own as FrameIndex;
            use nofrag::page::FrameState::{Movable, Moving, Used};
            let frame = pages.frame(self.pfn(own));
            let begins = frame.is_some_and(|(state, head, _)| {
                head == self.pfn(own) && matches!(state, Movable | Moving | Used)
            });
            let is_set_aside = frame.is_some_and(|(state, ..)| state == Moving);
            // A kcompactd in the middle of its work has places set aside.
            if !is_set_aside || holder != NOTHING {
                assert_eq!(begins, holder != NOTHING, "law 1: {own}");
            }
            if holder < NAMELESS {
                assert_eq!(self.places[holder as usize], own, "law 1");
            }
            assert_eq!(holder == MOVED, self.moved.list_of(own).is_some(), "law 2");
            assert!(holder != NAMELESS || self.lru.class(own).is_some(), "law 2");
        }
    }
}
