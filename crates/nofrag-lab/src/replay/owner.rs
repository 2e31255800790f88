//! Owner of the pages of a replay: the link between traced blocks and those of the policy's memory, and the blocks that
//! may be moved or taken back when the policy asks.
//!
//! The recorded kernel took decisions by itself, which stand among the events like those of the workload: it reclaimed
//! pages and moved others. If policies followed them, all would be compared with another kernel's reclaim and
//! compaction on top of their own. So they follow none: a page that the recorded kernel reclaimed stays where it is and
//! as old as it is, without a traced name, until the policy's own reclaim comes to it or files are deleted; a page that
//! was moved stays where it is. That the workload went on as if it were gone changes nothing for others: a page that it
//! reads again is a new request.
//!
//! Reclaim may take page cache, in the order of the policy's LRU ([`world::lru`](crate::world::lru)). No event tells
//! which of it was used again, so that none counts as used. Other pages that the recorded kernel freed while it
//! reclaimed (slabs, buffers, page tables; memory of processes, as no swap device is modelled) are freed when it freed
//! them. So are the pages of slabs that it shrank: they come back later, by others, and no event tells them from pages
//! that the workload freed.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use nofrag::cpu::CpuId;
use nofrag::page::{
    Lru as Walked, Migrate, PageAllocator, PageRequest, Reclaim, ReclaimRequest, Reclaimed,
};
use nofrag::units::{Order, Pfn};

use super::pace::{HostPace, Mover};
use super::request::Use;
use super::spans::{FrameIndex, Spans};
use super::standin::{StandIns, Ticket};
use super::step::By;
use crate::random::Random;
use crate::world::Owns;
use crate::world::links::Links;
use crate::world::lru::Lru;
use crate::world::reclaim::{TakesBack, reclaim};

/// The mark of a frame without a block.
const NOTHING: u32 = u32::MAX;
/// Marks in `places`: the policy did not serve the traced block, or has reclaimed it. Marks in `holders`: the recorded
/// kernel moved the frame's block to an unknown place, or the block has no traced name any more and waits to be
/// reclaimed.
const NOT_SERVED: u32 = u32::MAX - 1;
const RECLAIMED: u32 = u32::MAX - 2;
const MOVED: u32 = u32::MAX - 3;
const NAMELESS: u32 = u32::MAX - 4;
/// Mark in `places`: the traced block lies in a block that the recorded kernel refused. Mark in `holders`: the frame's
/// block is such a one.
const STANDS_IN: u32 = u32::MAX - 5;

/// The stream of random numbers that draws the time background work takes.
const STANDS_STILL: u64 = 5;

/// Counts that the policy's own counters lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) not_served: u64,
    pub(super) reclaimed_before: u64,
    pub(super) stood_in: u64,
    pub(super) in_pieces: u64,
}

/// The place of each traced block, and the content of each of the policy's blocks.
///
/// Always true:
/// 1. `places[t]` is a block in use that begins at frame f exactly if `holders[f]` is t.
/// 2. A frame is on a list of `lost` exactly if its holder is [`MOVED`] or [`NAMELESS`]; in the second case it can be
///    taken back.
#[derive(Debug)]
pub(super) struct Owner {
    traced: Spans,
    own: Spans,
    /// By traced frame: the own frame of the block that begins there.
    places: Vec<u32>,
    /// By own frame: the traced frame of the block that begins there.
    holders: Vec<u32>,
    lru: Lru,
    /// Lists by traced zone and order, of blocks that were moved to an unknown place; then lists by own zone, of blocks
    /// without a traced name.
    lost: Links,
    /// Number of moved blocks that are not on those lists, as the policy did not have them.
    moved_missing: Vec<[u64; Order::COUNT]>,
    /// Number of traced blocks that are marked [`RECLAIMED`].
    reclaimed: u64,
    /// Pages without a traced name that deleted files have had: a page is owed when it is as many as are named.
    owed: u64,
    stand_ins: StandIns,
    /// Huge pages that only the recorded kernel had, by their first traced frame: each of their pages is a block.
    pieces: HashMap<FrameIndex, Order>,
    stands_still: Random,
    pub(super) cpu: CpuId,
    pub(super) noted: Noted,
    /// The pace of the recorded host.
    pub(super) pace: Arc<HostPace>,
    spent: u64,
    /// Work of moving pages, since the last bill and in it.
    moving: u64,
    moved: u64,
}

impl Owner {
    /// Creates the owner before anything is in use.
    pub(super) fn new(
        traced: Spans,
        own: Spans,
        pages: &PageAllocator,
        cpu: CpuId,
        walked: Walked,
        seed: u64,
    ) -> Owner {
        let (frames, traced_zones) = (own.frames(), traced.zones());
        Owner {
            places: vec![NOTHING; traced.frames()],
            holders: vec![NOTHING; frames],
            lru: Lru::new(frames, pages.zones().map(|zone| zone.node).collect(), walked),
            lost: Links::new(frames, traced_zones * Order::COUNT + own.zones()),
            moved_missing: vec![[0; Order::COUNT]; traced_zones],
            reclaimed: 0,
            owed: 0,
            stand_ins: StandIns::default(),
            pieces: HashMap::new(),
            stands_still: Random::new(seed, STANDS_STILL),
            cpu,
            noted: Noted::default(),
            pace: Arc::new(HostPace::table()),
            spent: 0,
            moving: 0,
            moved: 0,
            traced,
            own,
        }
    }

    /// Links the traced block at `frame` to the own one at `pfn`.
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
            Use::Cache => self.lru.add(self.own.zone(own), own),
            Use::Movable => self.lru.process_comes(),
            Use::Fixed => {}
        }
    }

    /// Notes that the policy has no block for the traced one.
    pub(super) fn not_served(&mut self, frame: FrameIndex) {
        self.noted.not_served += 1;
        self.places[frame as usize] = NOT_SERVED;
    }

    /// Notes that the policy serves a request that the recorded kernel refused, with the block at `pfn`: single pages
    /// come in its place.
    pub(super) fn stand_in(&mut self, pages: &mut PageAllocator, ticket: Ticket, pfn: Pfn) {
        let own = self.own.index(pfn.0).expect("the policy hands out frames of its zones");
        self.holders[own as usize] = STANDS_IN;
        pages.set_movable(pfn, true).expect("it was just handed out");
        self.stand_ins.served(ticket, own);
    }

    /// Returns the huge page that the policy has served in place of a refusal, and in which no single page lies yet.
    pub(super) fn stands_in(&self, ticket: Ticket) -> Option<Pfn> {
        self.stand_ins.block(ticket).map(|own| self.pfn(own))
    }

    /// Notes that the recorded kernel has the huge page now, too; it is adopted next.
    pub(super) fn no_longer_stands_in(&mut self, ticket: Ticket) {
        self.stand_ins.forget(ticket);
    }

    /// Puts the single page at `frame` into a huge page that the policy has served; returns false if the policy did not
    /// serve the huge page.
    pub(super) fn takes_part(&mut self, ticket: Ticket, frame: FrameIndex) -> bool {
        let takes = self.stand_ins.takes(ticket, frame);
        if takes {
            self.noted.stood_in += 1;
            self.places[frame as usize] = STANDS_IN;
        }
        takes
    }

    /// Notes that no more single pages come in the place of a refused huge page; its block is freed if none lies in it.
    pub(super) fn end_stand_in(&mut self, pages: &mut PageAllocator, ticket: Ticket) {
        if let Some(own) = self.stand_ins.end(ticket) {
            self.give_back(pages, own);
        }
    }

    /// Notes that the huge page at `frame`, which the policy did not serve, goes on as single pages.
    pub(super) fn goes_on_in_pieces(&mut self, frame: FrameIndex, order: Order) {
        self.noted.in_pieces += 1;
        self.pieces.insert(frame, order);
    }

    /// Notes that the policy reclaimed the block before the recording began, as it has less memory.
    pub(super) fn not_there(&mut self, frame: FrameIndex) {
        self.places[frame as usize] = RECLAIMED;
        self.reclaimed += 1;
    }

    pub(super) fn free(&mut self, pages: &mut PageAllocator, frame: FrameIndex, by: By) {
        let order = match self.pieces.is_empty() {
            true => Order::ZERO,
            false => self.pieces.remove(&frame).unwrap_or(Order::ZERO),
        };
        for frame in (frame..).take(order.pages() as usize) {
            self.free_block(pages, frame, by);
        }
    }

    fn free_block(&mut self, pages: &mut PageAllocator, frame: FrameIndex, by: By) {
        match std::mem::replace(&mut self.places[frame as usize], NOTHING) {
            NOTHING | NOT_SERVED => {}
            RECLAIMED => self.is_reclaimed_before(pages, self.traced.zone(frame), by),
            STANDS_IN => {
                if let Some(own) = self.stand_ins.free(frame) {
                    self.give_back(pages, own);
                }
            }
            own => self.let_go(pages, own, by),
        }
    }

    /// Lets the own block go, for which no traced block stands any more: page cache that was reclaimed stays, other
    /// blocks are freed.
    fn let_go(&mut self, pages: &mut PageAllocator, own: FrameIndex, by: By) {
        if by == By::Reclaim && self.lru.has(own) {
            self.holders[own as usize] = NAMELESS;
            self.lost.push(self.nameless_list(self.own.zone(own)), own);
        } else {
            if self.lru.has(own) {
                self.deleted(pages, self.own.zone(own));
            }
            self.give_back(pages, own);
        }
    }

    /// Notes that a block of a traced zone is freed that the policy has reclaimed before.
    fn is_reclaimed_before(&mut self, pages: &mut PageAllocator, zone: usize, by: By) {
        self.noted.reclaimed_before += 1;
        if by == By::User {
            self.deleted(pages, zone);
        }
        self.reclaimed -= 1;
    }

    /// Notes that the workload frees a block of cache that the recorded kernel has, one of a zone. Whoever deletes a
    /// file has its pages freed whether or not a kernel has reclaimed some of them, and no event tells of which files
    /// those were that the recorded kernel had reclaimed: as large a part of them goes as goes of what it has.
    fn deleted(&mut self, pages: &mut PageAllocator, zone: usize) {
        let lists = (0..self.own.zones()).map(|zone| self.nameless_list(zone));
        let nameless: u64 = lists.map(|list| self.lost.len(list)).sum();
        let named = (self.lru.count() + self.reclaimed - nameless).max(1);
        self.owed += nameless;
        while self.owed >= named {
            self.owed -= named;
            let others = (0..self.own.zones()).rev().filter(|other| *other != zone);
            let zones = (zone < self.own.zones()).then_some(zone).into_iter().chain(others);
            let oldest = zones.filter_map(|zone| self.lost.oldest(self.nameless_list(zone))).next();
            if let Some(own) = oldest {
                self.give_back(pages, own);
            }
        }
    }

    /// Gives the own block back to the policy; returns the number of its pages.
    fn give_back(&mut self, pages: &mut PageAllocator, own: FrameIndex) -> u64 {
        let (pfn, order) = (self.pfn(own), self.order(pages, own));
        self.lru.remove(own);
        self.lost.remove(own);
        self.holders[own as usize] = NOTHING;
        pages.free(self.cpu, pfn).expect("the block is in use");
        order.pages()
    }

    /// Splits the traced block into smaller ones.
    pub(super) fn split(
        &mut self,
        pages: &mut PageAllocator,
        frame: FrameIndex,
        from: Order,
        to: Order,
    ) {
        if self.pieces.remove(&frame).is_some() {
            if to > Order::ZERO {
                let heads = (frame..).step_by(to.pages() as usize);
                let parts = heads.take((from.pages() / to.pages()) as usize);
                self.pieces.extend(parts.map(|part| (part, to)));
            }
            return;
        }
        let place = self.places[frame as usize];
        let parts = (0..from.pages() as FrameIndex).step_by(to.pages() as usize);
        if place == RECLAIMED {
            self.reclaimed += parts.len() as u64 - 1;
        }
        if matches!(place, NOTHING | NOT_SERVED | RECLAIMED) {
            return parts.for_each(|part| self.places[(frame + part) as usize] = place);
        }
        if pages.split(self.pfn(place), to).is_err() {
            return self.stays_whole(frame, place, parts);
        }
        let is_cache = self.lru.remove(place);
        for part in parts {
            let own = place + part;
            self.places[(frame + part) as usize] = own;
            self.holders[own as usize] = frame + part;
            if is_cache {
                self.lru.add(self.own.zone(own), own);
            }
        }
    }

    /// Notes that the parts of a traced block lie in one own block, which is being moved and cannot be split now: it
    /// goes with the last of them.
    pub(super) fn stays_whole(
        &mut self,
        frame: FrameIndex,
        own: FrameIndex,
        parts: impl Iterator<Item = FrameIndex>,
    ) {
        self.lru.remove(own);
        self.holders[own as usize] = STANDS_IN;
        let ticket = self.stand_ins.served_whole(own);
        for part in parts {
            self.places[(frame + part) as usize] = STANDS_IN;
            self.stand_ins.takes(ticket, frame + part);
        }
    }

    /// Notes that the recorded kernel moved the content of the traced block.
    pub(super) fn moved(&mut self, frame: FrameIndex, order: Order) {
        if self.pieces.remove(&frame).is_some() {
            // No kernel is known to move huge pages here: they are lost sight of one by one.
            (frame..).take(order.pages() as usize).for_each(|page| self.moved(page, Order::ZERO));
            return;
        }
        let place = std::mem::replace(&mut self.places[frame as usize], NOTHING);
        let zone = self.traced.zone(frame);
        self.reclaimed -= u64::from(place == RECLAIMED);
        if place == STANDS_IN {
            self.stand_ins.moved(frame);
        } else if matches!(place, NOTHING | NOT_SERVED | RECLAIMED) {
            self.moved_missing[zone][usize::from(order.get())] += 1;
        } else {
            self.lose_sight(zone, order, place);
        }
    }

    /// Puts the own block on the list of those whose content was moved to an unknown place.
    fn lose_sight(&mut self, zone: usize, order: Order, own: FrameIndex) {
        self.holders[own as usize] = MOVED;
        self.lost.push(moved_list(zone, order), own);
    }

    /// Returns the moved block that is most likely at the traced frame now: the one that was moved first, as a kernel
    /// reclaims the oldest pages.
    fn find_moved(&self, frame: FrameIndex, order: Order) -> Option<FrameIndex> {
        self.lost.oldest(moved_list(self.traced.zone(frame), order))
    }

    /// Frees a block that had been moved to the traced frame.
    pub(super) fn free_moved(
        &mut self,
        pages: &mut PageAllocator,
        frame: FrameIndex,
        order: Order,
        by: By,
    ) {
        if let Some(own) = self.find_moved(frame, order) {
            self.lost.remove(own);
            return self.let_go(pages, own, by);
        }
        if order == Order::ZERO
            && let Some(unused) = self.stand_ins.free_moved()
        {
            if let Some(own) = unused {
                self.give_back(pages, own);
            }
            return;
        }
        let missing = &mut self.moved_missing[self.traced.zone(frame)][usize::from(order.get())];
        if *missing > 0 {
            *missing -= 1;
            self.reclaimed += 1;
            self.is_reclaimed_before(pages, self.traced.zone(frame), by);
        }
    }

    /// Returns the place of a traced block.
    #[cfg(test)]
    pub(super) fn place(&self, frame: FrameIndex) -> Option<Pfn> {
        let own = self.places[frame as usize];
        (own < STANDS_IN).then(|| self.pfn(own))
    }

    /// Takes `count` pages of a zone into use, to which pages were moved from an unknown place.
    pub(super) fn appeared(&mut self, pages: &mut PageAllocator, zone: usize, count: u32) {
        for _ in 0..count {
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

    /// Takes a traced frame into use that a snapshot shows in use: links it to a block that was moved to an unknown
    /// place, or else to a new page.
    pub(super) fn found(&mut self, pages: &mut PageAllocator, frame: FrameIndex) {
        if let Some(own) = self.find_moved(frame, Order::ZERO) {
            self.lost.remove(own);
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

    /// Returns the number of pages of cache that reclaim could take. O(blocks of cache).
    pub(super) fn cache(&self, pages: &PageAllocator) -> u64 {
        self.lru.frames().map(|own| self.order(pages, own).pages()).sum()
    }

    /// Returns the time that a caller takes for the last bill's `work`.
    pub(super) fn elapses_for_caller(&mut self, work: u64, place: &mut Option<usize>) -> u64 {
        self.elapses_for(Mover::Caller, work, place)
    }

    fn elapses_for(&mut self, who: Mover, work: u64, place: &mut Option<usize>) -> u64 {
        let moved = std::mem::take(&mut self.moved).min(work);
        self.pace.elapses_for(who, [moved, work - moved], place, &mut self.stands_still)
    }

    /// Returns a place among the pauses of the host, for a process that is at work.
    pub(super) fn somewhere(&mut self) -> usize {
        self.stands_still.index(1 << 16)
    }

    /// Returns the list of blocks in an own zone without a traced name.
    fn nameless_list(&self, zone: usize) -> usize {
        self.traced.zones() * Order::COUNT + zone
    }

    fn order(&self, pages: &PageAllocator, own: FrameIndex) -> Order {
        let (_, _, order) = pages.frame(self.pfn(own)).expect("a block begins there");
        order
    }

    fn pfn(&self, own: FrameIndex) -> Pfn {
        Pfn(self.own.pfn(own))
    }

    /// Reclaims the own block, whatever traced block it stands for; returns the number of its pages.
    fn forget(&mut self, pages: &mut PageAllocator, own: FrameIndex) -> u64 {
        match self.holders[own as usize] {
            MOVED => {
                let list = self.lost.list_of(own).expect("law 2");
                let (zone, order) = (list / Order::COUNT, list % Order::COUNT);
                self.moved_missing[zone][order] += 1;
            }
            NAMELESS => {}
            traced => {
                self.places[traced as usize] = RECLAIMED;
                self.reclaimed += 1;
            }
        }
        self.give_back(pages, own)
    }
}

fn moved_list(zone: usize, order: Order) -> usize {
    zone * Order::COUNT + usize::from(order.get())
}

impl Reclaim for Owner {
    fn reclaim(&mut self, pages: &mut PageAllocator, wanted: ReclaimRequest) -> Reclaimed {
        reclaim(self, pages, &wanted)
    }
}

impl TakesBack<()> for Owner {
    fn reclaimable(&self, wanted: &ReclaimRequest) -> u64 {
        self.lru.len(wanted)
    }

    fn oldest(&self, wanted: &ReclaimRequest) -> Option<FrameIndex> {
        self.lru.oldest(wanted)
    }

    fn take_back(&mut self, pages: &mut PageAllocator, own: FrameIndex, _: &ReclaimRequest) -> u64 {
        self.spent += self.pace.costs.reclaim_scan;
        self.spent += self.pace.costs.reclaim_page;
        self.forget(pages, own)
    }

    /// Frees nothing: slabs are freed when the recorded kernel freed them.
    fn shrink(&mut self, _: &mut PageAllocator, _: &ReclaimRequest, _: Reclaimed) -> u64 {
        0
    }
}

impl Owns<()> for Owner {
    fn turn(&mut self, cpu: CpuId, _: u64) {
        self.cpu = cpu;
    }

    fn take_spent(&mut self) -> u64 {
        self.moved = std::mem::take(&mut self.moving);
        std::mem::take(&mut self.spent) + self.moved
    }

    fn elapses(&mut self, work: u64, place: &mut Option<usize>) -> u64 {
        self.elapses_for(Mover::Background, work, place)
    }
}

impl Migrate for Owner {
    fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool {
        let index = |pfn: Pfn| self.own.index(pfn.0).expect("it is of one of the zones");
        let (from, to) = (index(from), index(to));
        let holder = std::mem::replace(&mut self.holders[from as usize], NOTHING);
        self.holders[to as usize] = holder;
        match holder {
            STANDS_IN => self.stand_ins.migrate(from, to),
            NAMELESS.. => {}
            traced => self.places[traced as usize] = to,
        }
        if self.lru.remove(from) {
            // Pages that were moved come back to their lists as the youngest.
            self.lru.add(self.own.zone(to), to);
        }
        self.lost.replace(from, to);
        self.moving += self.pace.costs.migrate_page << order.get();
        true
    }
}

#[cfg(test)]
impl Owner {
    /// Verifies every law; panics with the number of the broken one.
    pub(super) fn check(&self, pages: &PageAllocator) {
        self.stand_ins.check();
        for (frame, &own) in self.places.iter().enumerate() {
            if own < STANDS_IN {
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
            if holder < STANDS_IN {
                assert_eq!(self.places[holder as usize], own, "law 1");
            }
            let is_lost = matches!(holder, MOVED | NAMELESS);
            assert_eq!(is_lost, self.lost.list_of(own).is_some(), "law 2");
            assert!(holder != NAMELESS || self.lru.has(own), "law 2");
        }
    }
}
