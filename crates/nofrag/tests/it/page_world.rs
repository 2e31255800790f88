//! Random requests for page frames on small machines, under each preset, with an owner that fails in every way that it
//! may: it frees nothing, or frees pages that it was not asked for, refuses to move, gives pages back while they are
//! being moved, and reports what nobody asked it about. kswapd and kcompactd run in between.
//!
//! The book of what is held is a map; two blocks never share a frame, only what may be moved is asked to move, and in
//! the end all that is managed is free.

use super::choices::Choices;
use crate::memory::heap_calls;
use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::page::{
    Attempt, FailureReason, FragmentationPolicy, FreeError, Kcompactd, Kswapd, MemoryMap, Migrate,
    Migratetype, MinFree, MoveResults, Moves, Next, NodeId, NodeMask, Outcome, PageAllocator,
    PageBudget, PageConfig, PageRequest, Reclaim, ReclaimRequest, Reclaimed, RequestFlags,
    ZoneKind,
};
use nofrag::units::{Nanos, Order, Pfn};
use std::collections::BTreeMap;

/// An attempt that is asked this often, by an owner that has become honest and has nothing to give, has to end.
const MOST_ADVANCES: usize = 3_000;

/// Runs an operation of the allocator, which must not ask for memory: it took all of it when it was made.
fn frugal<T>(operation: impl FnOnce() -> T) -> T {
    let mut done = None;
    let calls = heap_calls(|| done = Some(operation()));
    assert_eq!(calls, 0, "page frames are handed out without memory");
    done.expect("it was done")
}

/// A block that the owner holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    order: Order,
    movable: bool,
}

struct Owner<'a> {
    held: BTreeMap<u64, Held>,
    /// New first frames of blocks that are being moved, by their old ones.
    leaving: BTreeMap<u64, u64>,
    cpus: Vec<CpuId>,
    choices: Choices<'a>,
    /// From now on it does what it is asked for, as well as it can.
    honest: bool,
}

impl Owner<'_> {
    fn hold(&mut self, pfn: Pfn, held: Held) {
        let end = pfn.0 + held.order.pages();
        let before = self.held.range(..end).next_back();
        let free = before.is_none_or(|(start, held)| start + held.order.pages() <= pfn.0);
        assert!(free, "{pfn:?} was handed out while {before:?} is held");
        assert!(pfn.0.is_multiple_of(held.order.pages()), "{pfn:?} of {held:?} is not aligned");
        self.held.insert(pfn.0, held);
    }

    fn any(&mut self) -> Option<u64> {
        let which = self.choices.below(self.held.len() as u64);
        self.held.keys().copied().nth(which as usize)
    }

    fn cpu(&mut self) -> CpuId {
        self.choices.any(&self.cpus).expect("a machine has a CPU")
    }

    fn free(&mut self, pages: &mut PageAllocator, pfn: u64) {
        let cpu = self.cpu();
        let held = self.held.remove(&pfn).expect("it is held");
        self.leaving.remove(&pfn);
        assert_eq!(frugal(|| pages.free(cpu, Pfn(pfn))), Ok(()), "{held:?}");
    }

    /// Moves the entry of a block to its new place.
    fn relocate(&mut self, from: Pfn, to: Pfn) {
        let held = self.held.remove(&from.0).expect("what moves is held");
        self.hold(to, held);
    }

    fn check_move(&self, from: Pfn, to: Pfn, order: Order) {
        let held = self.held.get(&from.0);
        let held = held.unwrap_or_else(|| panic!("{from:?} shall move and is not held"));
        assert!(held.movable && held.order == order, "{held:?} shall move as {order}");
        let end = to.0 + order.pages();
        let before = self.held.range(..end).next_back();
        let free = before.is_none_or(|(start, held)| start + held.order.pages() <= to.0);
        assert!(free, "{from:?} shall move to {to:?}, where {before:?} is");
    }
}

impl Reclaim for Owner<'_> {
    fn reclaim(&mut self, pages: &mut PageAllocator, wanted: ReclaimRequest) -> Reclaimed {
        assert!(wanted.priority <= 12, "{wanted:?}");
        let mood = if self.honest { 0 } else { self.choices.byte() };
        let most = match mood % 4 {
            _ if self.honest => 0,
            0 => 0,
            1 => wanted.pages.min(40),
            _ => u64::from(mood % 9),
        };
        let mut freed = 0;
        while freed < most {
            let Some(pfn) = self.any() else { break };
            let held = self.held[&pfn];
            freed += held.order.pages();
            self.free(pages, pfn);
        }
        match mood {
            250.. if !self.honest => Reclaimed { pages: u64::MAX, scanned: 0, left: u64::MAX },
            240..250 if !self.honest => Reclaimed { pages: 0, scanned: u64::MAX, left: 0 },
            _ => Reclaimed { pages: freed, scanned: freed * 2, left: u64::from(mood) * 64 },
        }
    }
}

impl Migrate for Owner<'_> {
    fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool {
        self.check_move(from, to, order);
        let moves = self.honest || !self.choices.byte().is_multiple_of(4);
        if moves {
            self.relocate(from, to);
        }
        moves
    }
}

/// An attempt that has not ended, and what it asked for last.
struct Pending {
    attempt: Attempt,
    request: PageRequest,
    next: Option<Next>,
}

/// An allocator, its owner, and its daemons.
pub(crate) struct World<'a> {
    pages: PageAllocator,
    owner: Owner<'a>,
    pending: Vec<Pending>,
    kswapds: Vec<Kswapd>,
    kcompactds: Vec<Kcompactd>,
    now: u64,
    nodes: usize,
    managed: u64,
    steps: u64,
    /// Steps between two looks at everything, which cost as much as dozens of steps.
    check_every: u64,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        map: &MemoryMap,
        policy: FragmentationPolicy,
        min_pages: u64,
        choices: Choices<'a>,
        check_every: u64,
    ) -> World<'a> {
        let min_free = MinFree::Pages(min_pages);
        let config = PageConfig { min_free, ..PageConfig::new(map.clone(), policy) };
        let pages = PageAllocator::new(&config).expect("the map is sound");
        let nodes = map.nodes().len();
        let ids = || (0..nodes).map(|node| NodeId(node as u8));
        let owner = Owner {
            held: BTreeMap::new(),
            leaving: BTreeMap::new(),
            cpus: map.cpus().iter().collect(),
            choices,
            honest: false,
        };
        World {
            managed: pages.zones().map(|zone| zone.managed.0).sum(),
            pages,
            owner,
            pending: Vec::new(),
            kswapds: ids().map(Kswapd::new).collect(),
            kcompactds: ids().map(Kcompactd::new).collect(),
            now: 0,
            nodes,
            steps: 0,
            check_every,
        }
    }

    fn request(&mut self) -> PageRequest {
        const ORDERS: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 4, 5, 7, 9, 9, 10];
        let [size, mobility, bits, place] = [(); 4].map(|()| self.owner.choices.byte());
        let order = Order::new(ORDERS[usize::from(size) % 16]).expect("it is one");
        let migratetype = Migratetype::MOBILITY[usize::from(mobility) % 3];
        // Every combination of flags, sensible or not.
        let flags = RequestFlags(u16::from(bits) | u16::from(mobility & 0x80) << 1);
        let request = PageRequest::new(order, migratetype);
        PageRequest {
            flags: if mobility & 0x40 == 0 { request.flags } else { flags },
            zone: [ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Dma32][usize::from(place) % 3],
            node: (place & 0x10 != 0).then(|| NodeId((usize::from(place) % self.nodes) as u8)),
            nodes: if place & 0xe0 == 0xe0 { NodeMask(u64::from(bits)) } else { NodeMask::ALL },
            ..request
        }
    }

    fn took(&mut self, pfn: Pfn, request: &PageRequest) {
        let PageRequest { order, migratetype, .. } = *request;
        self.owner.hold(pfn, Held { order, movable: false });
        if migratetype == Migratetype::Movable && !self.owner.choices.byte().is_multiple_of(8) {
            self.set_movable(pfn.0, true);
        }
    }

    fn set_movable(&mut self, pfn: u64, movable: bool) {
        if !self.owner.leaving.contains_key(&pfn) {
            self.pages.set_movable(Pfn(pfn), movable).expect("it is held");
            self.owner.held.get_mut(&pfn).expect("it is held").movable = movable;
        }
    }

    /// Returns true if there is something left to choose by.
    pub(crate) fn has_more(&self) -> bool {
        self.owner.choices.has_more()
    }

    /// Does one step; panics when a promise is broken.
    pub(crate) fn step(&mut self) {
        let kind = self.owner.choices.byte();
        self.now += u64::from(kind) * 100_000;
        match kind % 16 {
            0..3 => self.alloc(1),
            3 => {
                let count = usize::from(self.owner.choices.byte());
                self.alloc(count);
            }
            4 | 5 => self.advance(),
            6 => self.free(),
            7 => (0..self.owner.choices.byte()).for_each(|_| self.free()),
            8 => {
                let movable = !self.owner.choices.byte().is_multiple_of(3);
                if let Some(pfn) = self.owner.any() {
                    self.set_movable(pfn, movable);
                }
            }
            9 | 10 => self.background(),
            11 => {
                let cpu = self.owner.cpu();
                frugal(|| self.pages.drain(cpu));
            }
            12 => self.free_wrongly(),
            13 => self.serve(),
            14 => self.take_at(),
            _ => self.change_settings(),
        }
        self.steps += 1;
        if self.steps.is_multiple_of(self.check_every) {
            self.check();
        }
    }

    #[expect(clippy::result_large_err, reason = "a miss is an attempt, which is not boxed")]
    fn alloc(&mut self, count: usize) {
        let request = self.request();
        for _ in 0..count {
            let cpu = self.owner.cpu();
            match frugal(|| self.pages.alloc(Nanos(self.now), cpu, request)) {
                Ok(pfn) => self.took(pfn, &request),
                Err(attempt) => {
                    if self.pending.len() < 3 {
                        self.pending.push(Pending { attempt, request, next: None });
                    } else {
                        self.finish(Pending { attempt, request, next: None });
                    }
                    return;
                }
            }
        }
    }

    fn serve(&mut self) {
        let request = self.request();
        let cpu = self.owner.cpu();
        let honest = std::mem::replace(&mut self.owner.honest, true);
        let served = self.pages.serve(Nanos(self.now), cpu, request, &mut self.owner);
        self.owner.honest = honest;
        if let Ok(pfn) = served {
            self.took(pfn, &request);
        }
    }

    /// Takes a block by its place.
    fn take_at(&mut self) {
        let order = Order::new(self.owner.choices.byte() % 11).expect("it is one");
        let pfn = Pfn(self.owner.choices.below(6144) & !(u64::from(order > Order::COSTLY) * 15));
        if frugal(|| self.pages.alloc_at(pfn, order)).is_ok() {
            let request = PageRequest::new(order, Migratetype::Movable);
            self.took(pfn, &request);
        }
    }

    fn change_settings(&mut self) {
        let [what, low, high] = [(); 3].map(|()| self.owner.choices.byte());
        let value = u32::from(low) | u32::from(high) << 8;
        // What is refused changes nothing.
        match what % 8 {
            0 => {
                let _ = self.pages.set_watermark_scale_factor(value % 4000);
            }
            1 => {
                let _ = self.pages.set_boost_factor(value);
            }
            2 => self.pages.set_lowmem_reserve_ratio([value % 300; ZoneKind::COUNT]),
            3..6 => {
                let to = Migratetype::ALL[usize::from(what / 8) % Migratetype::COUNT];
                let _ = self.pages.set_block_type(Pfn(u64::from(value % 6144)), to);
            }
            6 => {
                let zones: Vec<_> = self.pages.zones().map(|zone| zone.id).collect();
                let zone = zones[value as usize % zones.len()];
                self.pages.compact(zone, &mut self.owner);
            }
            _ => self.pages.age_per_cpu(),
        }
    }

    /// Does what the oldest attempt has asked for, more or less, and asks it again.
    fn advance(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut pending = self.pending.remove(0);
        if self.owner.choices.byte() >= 248 {
            // The owner gives up, whatever it was asked to move.
            if let Some(Next::Migrate(moves)) = pending.next {
                for pair in moves.pairs() {
                    self.owner.leaving.remove(&pair.from.0);
                }
            }
            pending.attempt.abandon(&mut self.pages);
        } else if !self.ask(&mut pending) {
            self.pending.push(pending);
        }
    }

    /// Asks the attempt once more; returns true if it has ended.
    fn ask(&mut self, pending: &mut Pending) -> bool {
        let mood = if self.owner.honest { 0 } else { self.owner.choices.byte() };
        let outcome = match pending.next.take() {
            None => Outcome::Begin,
            // The owner has done nothing, and reports something else.
            Some(Next::Migrate(moves)) if mood >= 240 => {
                for pair in moves.pairs() {
                    self.owner.leaving.remove(&pair.from.0);
                }
                [Outcome::Begin, Outcome::Waited][usize::from(mood & 1)]
            }
            Some(Next::Reclaim(_)) if mood >= 240 => Outcome::Migrated(MoveResults(u32::MAX)),
            Some(Next::Stall { .. }) if mood >= 240 => Outcome::Begin,
            Some(Next::Reclaim(wanted)) => {
                Outcome::Reclaimed(self.owner.reclaim(&mut self.pages, wanted))
            }
            Some(Next::Migrate(moves)) => Outcome::Migrated(self.carry_out(&moves)),
            Some(Next::Stall { until }) => {
                self.now = self.now.max(until.0);
                Outcome::Waited
            }
            Some(Next::Done(_) | Next::Fail(_)) => unreachable!("it has ended"),
        };
        let next = frugal(|| pending.attempt.advance(&mut self.pages, Nanos(self.now), outcome));
        if self.check_every == 1 {
            self.check();
        }
        match next {
            Next::Done(pfn) => self.took(pfn, &pending.request),
            Next::Fail(report) => assert_eq!(report.request, pending.request),
            Next::Migrate(moves) => {
                for pair in moves.pairs() {
                    self.owner.check_move(pair.from, pair.to, pair.order);
                    let before = self.owner.leaving.insert(pair.from.0, pair.to.0);
                    assert_eq!(before, None, "{pair:?} is on its way already");
                }
                pending.next = Some(next);
            }
            Next::Stall { until } => {
                let wait = until.0.checked_sub(self.now).expect("a wait lies ahead");
                assert!(wait <= 20_000_000, "a wait of {wait} ns");
                pending.next = Some(next);
            }
            Next::Reclaim(_) => pending.next = Some(next),
        }
        let ended = matches!(next, Next::Done(_) | Next::Fail(_));
        if ended {
            let again = pending.attempt.advance(&mut self.pages, Nanos(self.now), Outcome::Begin);
            let over = FailureReason::Over;
            assert!(matches!(again, Next::Fail(report) if report.reason == over), "{again:?}");
        }
        ended
    }

    /// Carries out some moves at random. Other blocks are given back meanwhile, and of those the owner reports what it
    /// likes.
    fn carry_out(&mut self, moves: &Moves) -> MoveResults {
        let mut results = MoveResults::default();
        for (index, pair) in moves.pairs().iter().enumerate() {
            let mood = if self.owner.honest { 1 } else { self.owner.choices.byte() };
            let gone = !self.owner.leaving.contains_key(&pair.from.0);
            if !gone && mood % 8 == 0 {
                self.owner.free(&mut self.pages, pair.from.0);
                results.0 |= u32::from(mood & 8) >> 3 << index;
            } else if !gone && mood % 4 != 2 {
                self.owner.leaving.remove(&pair.from.0);
                self.owner.relocate(pair.from, pair.to);
                results.0 |= 1 << index;
            } else if gone {
                results.0 |= u32::from(mood & 1) << index;
            }
            self.owner.leaving.remove(&pair.from.0);
        }
        if moves.pairs().len() < Moves::MAX && !self.owner.honest {
            // Bits that no pair has mean nothing.
            results.0 |= u32::from(self.owner.choices.byte() & 1) << 31;
        }
        results
    }

    fn free(&mut self) {
        if let Some(pfn) = self.owner.any() {
            self.owner.free(&mut self.pages, pfn);
        }
    }

    fn free_wrongly(&mut self) {
        let cpu = self.owner.cpu();
        let pfn = self.owner.choices.below(6144);
        if self.owner.held.contains_key(&pfn) {
            return;
        }
        let before = self.owner.held.range(..pfn).next_back();
        let inside = before.filter(|(start, held)| pfn < *start + held.order.pages());
        let answer = self.pages.free(cpu, Pfn(pfn));
        match inside {
            Some((&head, _)) => {
                assert_eq!(answer, Err(FreeError::NotAHead { head: Pfn(head) }));
            }
            None => {
                let wrong = [FreeError::Unknown(Pfn(pfn)), FreeError::DoubleFree(Pfn(pfn))];
                assert!(answer.is_err_and(|error| wrong.contains(&error)), "{pfn}: {answer:?}");
            }
        }
    }

    fn background(&mut self) {
        let budget = PageBudget { pages: 1 + u64::from(self.owner.choices.byte()) };
        let node = self.owner.choices.below(self.nodes as u64) as usize;
        let now = Nanos(self.now);
        if self.owner.choices.byte() & 1 == 0 {
            self.kswapds[node].step(now, &mut self.pages, &mut self.owner, budget);
        } else {
            self.kcompactds[node].step(now, &mut self.pages, &mut self.owner, budget);
        }
    }

    fn check(&self) {
        self.pages.check().unwrap_or_else(|violation| panic!("{violation}"));
        let free: u64 = self.pages.zones().map(|zone| zone.free.0).sum();
        let held: u64 = self.owner.held.values().map(|held| held.order.pages()).sum();
        assert!(free + held <= self.managed, "{free} free, {held} held, {} managed", self.managed);
    }

    /// Drives an attempt until it ends, with an owner that has nothing to give.
    fn finish(&mut self, mut pending: Pending) {
        let honest = std::mem::replace(&mut self.owner.honest, true);
        let mut left = MOST_ADVANCES;
        while !self.ask(&mut pending) {
            left -= 1;
            assert!(left > 0, "the attempt for {:?} does not end", pending.request);
        }
        self.owner.honest = honest;
    }

    /// Ends all attempts and gives everything back: then all is free.
    pub(crate) fn end(mut self) {
        for pending in std::mem::take(&mut self.pending) {
            self.finish(pending);
        }
        for daemon in std::mem::take(&mut self.kcompactds) {
            daemon.abandon(&mut self.pages);
        }
        let held: Vec<u64> = self.owner.held.keys().copied().collect();
        held.into_iter().for_each(|pfn| self.owner.free(&mut self.pages, pfn));
        for pfn in (0..6144).step_by(512) {
            let _ = self.pages.set_block_type(Pfn(pfn), Migratetype::Movable);
        }
        self.pages.drain_all();
        self.check();
        let free: u64 = self.pages.zones().map(|zone| zone.free.0).sum();
        assert_eq!(free, self.managed, "pages are lost");
    }
}
