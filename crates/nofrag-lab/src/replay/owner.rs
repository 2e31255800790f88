//! Who owns the pages of a replay: which block of the policy's memory stands for which traced one, and what may be
//! moved or taken back when the policy asks.
//!
//! The recorded kernel took decisions by itself, which stand among the events like those of the workload: it reclaimed
//! pages and moved others. [`Housekeeping`] says what becomes of them. If every policy followed them, all would be
//! compared with another kernel's reclaim and compaction on top of their own. So they follow none: a page that the
//! recorded kernel reclaimed stays, as one that the policy takes first when *it* wants to reclaim, and a page that was
//! moved stays where it is. That the workload went on as if it were gone changes nothing for others: what it reads
//! again is a new request. Only for [`Fidelity`](super::Fidelity) the recorded decisions are carried out.

use nofrag::cpu::CpuId;
use nofrag::page::{
    Migrate, NodeId, PageAllocator, PageRequest, Reclaim, ReclaimRequest, Reclaimed,
};
use nofrag::units::{Order, Pfn};

use super::links::Links;
use super::request::Use;
use super::scanner::FreeScanner;
use super::spans::{FrameIndex, Spans};
use super::step::By;

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
/// the recorded kernel, nobody knows where to; its block was reclaimed by the recorded kernel.
const NOT_SERVED: u32 = u32::MAX - 1;
const RECLAIMED: u32 = u32::MAX - 2;
const MOVED: u32 = u32::MAX - 3;
const DROPPED: u32 = u32::MAX - 4;

/// What can be taken back, by how soon; a list for each in each zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// The recorded kernel took it back: first.
    Dropped,
    /// The same, of what the kernel holds for itself: only together with slabs.
    DroppedFixed,
    /// Page cache, from the one that came first on.
    Cache,
}

impl Age {
    const ALL: [Age; 3] = [Age::Dropped, Age::DroppedFixed, Age::Cache];

    fn list(self, zone: usize) -> usize {
        zone * Age::ALL.len() + self as usize
    }
}

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
/// 2. A frame is on a list of `moved` exactly if its holder is [`MOVED`], and on a list of [`Age::Dropped`] or
///    [`Age::DroppedFixed`] exactly if it is [`DROPPED`].
#[derive(Debug)]
pub(super) struct Owner {
    traced: Spans,
    own: Spans,
    /// By traced frame: the own frame of the block that begins there.
    places: Vec<u32>,
    /// By own frame: the traced frame of the block that begins there.
    holders: Vec<u32>,
    ages: Links,
    /// When a frame was put on a list of `ages`.
    serials: Vec<u32>,
    next_serial: u32,
    /// By traced zone and order.
    moved: Links,
    /// How many blocks were moved and are not on those lists, as the policy did not have them.
    moved_missing: Vec<[u64; Order::COUNT]>,
    /// The node of each own zone.
    nodes: Vec<NodeId>,
    housekeeping: Housekeeping,
    scanner: FreeScanner,
    /// Pages that the recorded kernel reclaimed and this kswapd has not been told of.
    credit: u64,
    pub(super) asks: Asks,
    pub(super) cpu: CpuId,
    pub(super) noted: Noted,
}

impl Owner {
    /// Nothing is in use yet.
    pub(super) fn new(
        traced: Spans,
        own: Spans,
        pages: &PageAllocator,
        cpu: CpuId,
        housekeeping: Housekeeping,
    ) -> Owner {
        let zones = pages.zones().count();
        let (frames, traced_zones) = (own.frames(), traced.zones());
        Owner {
            places: vec![NOTHING; traced.frames()],
            holders: vec![NOTHING; frames],
            ages: Links::new(frames, zones * Age::ALL.len()),
            serials: vec![0; frames],
            next_serial: 0,
            moved: Links::new(frames, traced_zones * Order::COUNT),
            moved_missing: vec![[0; Order::COUNT]; traced_zones],
            nodes: pages.zones().map(|zone| zone.node).collect(),
            housekeeping,
            scanner: FreeScanner::default(),
            credit: 0,
            asks: Asks::Caller,
            cpu,
            noted: Noted::default(),
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
        if used != Use::Fixed {
            pages.set_movable(pfn, true).expect("it was just handed out");
        }
        if used == Use::Cache {
            self.push_age(Age::Cache, own);
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
        if by == By::Reclaim && self.housekeeping == Housekeeping::Own {
            let movable = self.ages.remove(own).is_some() || self.is_movable(pages, own);
            self.holders[own as usize] = DROPPED;
            self.push_age(if movable { Age::Dropped } else { Age::DroppedFixed }, own);
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
        self.ages.remove(own);
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
        let list = self.ages.remove(place);
        for part in parts {
            let own = place + part;
            self.places[(frame + part) as usize] = own;
            self.holders[own as usize] = frame + part;
            if let Some(list) = list {
                self.push_list(list, own);
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
        (own < DROPPED).then(|| self.pfn(own))
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

    fn push_age(&mut self, age: Age, own: FrameIndex) {
        self.push_list(age.list(self.own.zone(own)), own);
    }

    fn push_list(&mut self, list: usize, own: FrameIndex) {
        self.ages.push(list, own);
        self.serials[own as usize] = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
    }

    /// The zones whose pages help.
    fn eligible(&self, wanted: ReclaimRequest) -> impl Iterator<Item = usize> + use<'_> {
        let below = wanted.highest.index() + 1;
        (0..below.min(self.nodes.len())).filter(move |&zone| self.nodes[zone] == wanted.node)
    }

    /// The block of an age that was put on its list first, among zones that help.
    /// What could be taken back, in blocks.
    fn reclaimable(&self, wanted: ReclaimRequest) -> u64 {
        let lists = self.eligible(wanted).flat_map(|zone| Age::ALL.map(|age| age.list(zone)));
        lists.map(|list| self.ages.len(list)).sum()
    }

    fn oldest(&self, age: Age, wanted: ReclaimRequest) -> Option<FrameIndex> {
        let now = self.next_serial;
        let oldest = self.eligible(wanted).filter_map(|zone| self.ages.oldest(age.list(zone)));
        // Serial numbers wrap; ages do not, as every page is seen long before.
        oldest.max_by_key(|&own| now.wrapping_sub(self.serials[own as usize]))
    }

    fn take_back(&mut self, pages: &mut PageAllocator, own: FrameIndex) -> u64 {
        match self.holders[own as usize] {
            MOVED => {
                let list = self.moved.list_of(own).expect("law 2");
                let (zone, order) = (list / Order::COUNT, list % Order::COUNT);
                self.moved_missing[zone][order] += 1;
            }
            DROPPED => {}
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
        let most = self.reclaimable(wanted) >> wanted.priority.min(12);
        let mut done = Reclaimed::default();
        while done.scanned < most && done.pages < wanted.pages {
            let fixed = wanted.may.slab.then_some(Age::DroppedFixed);
            let ages = [Some(Age::Dropped), fixed, Some(Age::Cache)].into_iter().flatten();
            let Some(own) = { ages }.find_map(|age| self.oldest(age, wanted)) else { break };
            done.scanned += 1;
            done.pages += self.take_back(pages, own);
        }
        done.left = self.reclaimable(wanted);
        done
    }
}

impl Migrate for Owner {
    fn migrate(&mut self, from: Pfn, to: Pfn, _order: Order) -> bool {
        let index = |pfn: Pfn| self.own.index(pfn.0).expect("it is of one of the zones");
        let (from, to) = (index(from), index(to));
        let holder = std::mem::replace(&mut self.holders[from as usize], NOTHING);
        self.holders[to as usize] = holder;
        if holder < DROPPED {
            self.places[holder as usize] = to;
        }
        self.ages.replace(from, to);
        self.serials[to as usize] = self.serials[from as usize];
        self.moved.replace(from, to);
        true
    }
}

#[cfg(test)]
impl Owner {
    /// Verifies every law; panics with the number of the broken one.
    pub(super) fn check(&self, pages: &PageAllocator) {
        for (frame, &own) in self.places.iter().enumerate() {
            if own < DROPPED {
                assert_eq!(self.holders[own as usize], frame as u32, "law 1");
            }
        }
        for (own, &holder) in self.holders.iter().enumerate() {
            let own = own as FrameIndex;
            let begins = pages.frame(self.pfn(own)).is_some_and(|(state, head, _)| {
                use nofrag::page::FrameState::{Movable, Moving, Used};
                head == self.pfn(own) && matches!(state, Movable | Moving | Used)
            });
            assert_eq!(begins, holder != NOTHING, "law 1: {own}");
            if holder < DROPPED {
                assert_eq!(self.places[holder as usize], own, "law 1");
            }
            assert_eq!(holder == MOVED, self.moved.list_of(own).is_some(), "law 2");
            let dropped =
                self.ages.list_of(own).is_some_and(|list| list % 3 != Age::Cache as usize);
            assert_eq!(holder == DROPPED, dropped, "law 2");
        }
    }
}
