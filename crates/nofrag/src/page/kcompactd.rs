//! kcompactd: compacts in the background.
//!
//! It has two kinds of work. Asked for a block of some size, by kswapd when it ends or sleeps, by a boost that ends, or
//! by a request that found enough memory in pieces, it goes once over the zones of its node. And with
//! `compaction_proactiveness` above 0 it looks twice a second whether too much of what is free lies outside whole
//! pageblocks, and then works ahead of anybody's asking, unless kswapd is at work. If that does not help, the next look
//! follows after 32 s.
//!
//! Under `vm.defrag_mode` it does not stop at the first block: it works until the free pages in whole pageblocks alone
//! meet the high watermark.
//!
//! Rules: docs/sources/pages.md#kcompactd, pages.md#proactive, pages.md#defrag-mode, pages.md#guest-wakes;
//! `compaction_proactiveness` and `defrag_mode` in Documentation/admin-guide/sysctl/vm.rst.

use super::allocator::PageAllocator;
use super::compaction::{
    self, Advance, Cma, Compaction, CompactionResult, Decision, Goal, Job, Landed, Mode,
    Suitability, Wish,
};
use super::event::{PageEvent, Wiper};
use super::kswapd::{PageBudget, PageProgress};
use super::map::NodeId;
use super::migratetype::Migratetype;
use super::owner::{Migrate, MoveResults, Moves};
use super::policy::{SourceRules, Spread};
use super::walk::{AllocFlags, Mark};
use super::zone::ZoneId;
use crate::cpu::CpuId;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order};

/// Mailbox of a node's kcompactd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KcompactdBox {
    /// The largest block that was asked for since kcompactd last looked (`kcompactd_max_order`).
    pub(super) wanted: Option<Order>,
}

impl<E: EventSink> PageAllocator<E> {
    /// Asks a node's kcompactd for a block of this size (`wakeup_kcompactd`). Single pages need no compaction.
    pub(super) fn wake_kcompactd(&mut self, node: NodeId, order: Order) {
        if order == Order::ZERO {
            return;
        }
        let wanted = &mut self.nodes[node.index()].kcompactd.wanted;
        *wanted = (*wanted).max(Some(order));
        self.counters.kcompactd_wakes += 1;
        self.events.record(Event::Page(PageEvent::KcompactdWoken { node, order }));
    }
}

/// Time between two looks at a node's fragmentation score (`HPAGE_FRAG_CHECK_INTERVAL_MSEC`).
const INTERVAL: Nanos = Nanos(500_000_000);

/// Time to the next look when working ahead was in vain: 64 times `INTERVAL`, 32 s.
const LONG_INTERVAL: Nanos = Nanos(INTERVAL.0 << compaction::MAX_SHIFT);

/// The compaction thread of a node, as a background machine.
///
/// A step looks at about as many frames as its budget says and may end in the middle of a zone; the next one goes on.
#[derive(Debug)]
pub struct Kcompactd {
    node: NodeId,
    cpu: Option<CpuId>,
    work: Option<Work>,
    /// Time of the next look at the score.
    look_at: Option<Nanos>,
}

/// Next action of the caller of a [`Kcompactd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "without an allocation there is no box for moves")]
pub enum KcompactdStep {
    /// Move these, then report with [`Kcompactd::migrated`].
    Migrate(Moves),
    /// Nothing just now: the budget is spent, or there is no work. `pages` of the progress is 0:
    /// [`Kcompactd::migrated`] returns the pages moved.
    Paused(PageProgress),
}

#[derive(Debug)]
struct Work {
    why: Why,
    /// Index of the next zone, among those of the whole machine.
    next: usize,
    run: Option<Compaction>,
}

#[derive(Clone, Copy, Debug)]
enum Why {
    /// A block of this order was asked for.
    Wanted(Order),
    /// The fragmentation score of the node was `score` percent, which is too much; that of each zone shall come down to
    /// `low`.
    Proactive { score: u64, low: u64 },
}

impl Kcompactd {
    /// Makes the kcompactd of a node. One of a node that the allocator does not know has no work.
    #[must_use]
    pub const fn new(node: NodeId) -> Kcompactd {
        Kcompactd { node, cpu: None, work: None, look_at: None }
    }

    /// Lets kcompactd work on this CPU, whose lists get the blocks whose content has moved away.
    #[must_use]
    pub const fn on(mut self, cpu: CpuId) -> Kcompactd {
        self.cpu = Some(cpu);
        self
    }

    /// Does some work, if there is any. The pages of the budget are frames to look at, those of the progress are pages
    /// moved.
    pub fn step<E: EventSink>(
        &mut self,
        now: Nanos,
        pages: &mut PageAllocator<E>,
        owner: &mut impl Migrate,
        budget: PageBudget,
    ) -> PageProgress {
        let mut left = budget;
        let mut moved = 0;
        loop {
            match self.advance(now, pages, &mut left) {
                KcompactdStep::Migrate(moves) => {
                    moved += self.migrated(pages, moves.carry_out(owner)).moved;
                }
                KcompactdStep::Paused(progress) => {
                    return PageProgress { pages: moved, ..progress };
                }
            }
        }
    }

    /// Does some work, for a caller that moves pages while others use the allocator: stops where pages are to be moved,
    /// subtracts the frames that it looked at from `left`, and ends when nothing of that remains. Called again before a
    /// report, it names the same moves.
    pub fn advance<E: EventSink>(
        &mut self,
        now: Nanos,
        pages: &mut PageAllocator<E>,
        left: &mut PageBudget,
    ) -> KcompactdStep {
        let mut more = self.begin(now, pages);
        while more && left.pages > 0 {
            if let Some(moves) = self.go_on(now, pages, &mut left.pages) {
                return KcompactdStep::Migrate(moves);
            }
            more = self.begin(now, pages);
        }
        KcompactdStep::Paused(PageProgress { pages: 0, more, wake_at: self.look_at })
    }

    /// Records the results of the moves that [`advance`](Self::advance) named, and returns the numbers of pages moved
    /// and not moved. Without such moves nothing happens.
    pub fn migrated<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        results: MoveResults,
    ) -> Landed {
        let run = self.work.as_mut().and_then(|work| work.run.as_mut());
        run.map_or(Landed::default(), |run| run.migrated(pages, results))
    }

    /// Takes up work, asked for or ahead of requests, unless some is under way; returns true if there is any.
    fn begin<E: EventSink>(&mut self, now: Nanos, pages: &mut PageAllocator<E>) -> bool {
        if self.work.is_some() {
            return true;
        }
        let Some(node) = pages.nodes.get_mut(self.node.index()) else { return false };
        let why = match node.kcompactd.wanted.take() {
            Some(order) => Some(Why::Wanted(order)),
            None => self.proactive(now, pages),
        };
        self.work = why.map(|why| Work { why, next: 0, run: None });
        self.work.is_some()
    }

    /// Decides whether to compact ahead of requests; `None` if the score does not call for it, or it is not time to
    /// look.
    fn proactive<E: EventSink>(&mut self, now: Nanos, pages: &PageAllocator<E>) -> Option<Why> {
        let policy = &pages.policy.compaction;
        let proactiveness = policy.proactiveness.filter(|&p| p > 0)?;
        let look_at = *self.look_at.get_or_insert(later(now, INTERVAL));
        // At the end of time no later look can be set, and there would be no end to the looks.
        if now < look_at || now == Nanos(u64::MAX) {
            return None;
        }
        self.look_at = Some(later(now, INTERVAL));
        let bounds = compaction::proactive_bounds(policy.marks, proactiveness);
        let score = pages.node_score(self.node);
        let idle = !pages.nodes[self.node.index()].kswapd.awake;
        (idle && score > bounds.high).then_some(Why::Proactive { score, low: bounds.low })
    }

    /// Does a part of the work: goes on in a zone, or goes to the next one. Returns the moves that are to be made, if
    /// any.
    fn go_on<E: EventSink>(
        &mut self,
        now: Nanos,
        pages: &mut PageAllocator<E>,
        left: &mut u64,
    ) -> Option<Moves> {
        let node = self.node;
        let work = self.work.as_mut().expect("there is something to do");
        if matches!(work.why, Why::Proactive { .. }) && pages.nodes[node.index()].kswapd.awake {
            self.stop(now, pages);
            return None;
        }
        if let Some(run) = &mut work.run {
            match run.advance(pages, left) {
                Advance::Migrate(moves) => return Some(moves),
                Advance::Paused => *left = 0,
                Advance::Done(result) => {
                    let zone = run.zone();
                    work.run = None;
                    pages.background_ended(zone, work.why, result);
                }
            }
            return None;
        }
        *left -= 1;
        let zones = pages.zones.iter().skip(work.next);
        match { zones }.find(|zone| zone.node == node && zone.managed.get() > 0) {
            Some(zone) => {
                let id = zone.id;
                work.next = id.index() + 1;
                let run = pages.background_run(id, work.why);
                work.run = match self.cpu {
                    Some(cpu) => run.map(|run| run.on(cpu)),
                    None => run,
                };
            }
            None => self.stop(now, pages),
        }
        None
    }

    /// Ends the work. If it was proactive and did not help, the next look follows after `LONG_INTERVAL`.
    fn stop<E: EventSink>(&mut self, now: Nanos, pages: &mut PageAllocator<E>) {
        let Some(work) = self.work.take() else { return };
        if let Some(run) = work.run {
            run.abandon(pages);
        }
        if let Why::Proactive { score, .. } = work.why {
            let helped = pages.node_score(self.node) < score;
            self.look_at = Some(later(now, if helped { INTERVAL } else { LONG_INTERVAL }));
        }
    }

    /// Gives up its work, with nothing set aside any more.
    pub fn abandon<E: EventSink>(self, pages: &mut PageAllocator<E>) {
        if let Some(run) = self.work.and_then(|work| work.run) {
            run.abandon(pages);
        }
    }
}

fn later(now: Nanos, by: Nanos) -> Nanos {
    Nanos(now.0.saturating_add(by.0))
}

impl<E: EventSink> PageAllocator<E> {
    /// Makes a run over a zone in the background; `None` if compaction is deferred or cannot help there.
    fn background_run(&mut self, id: ZoneId, why: Why) -> Option<Compaction> {
        let goal = match why {
            Why::Proactive { low, .. } => Goal::Score(low),
            Why::Wanted(_) if self.policy.spread == Spread::EveryRequest => Goal::WholeBlocks,
            // An unmovable request can use every block that compaction makes, whatever its type.
            Why::Wanted(order) => Goal::Block(order, Migratetype::Unmovable),
        };
        let emptiest = self.policy.compaction.sources == SourceRules::EmptiestBlock;
        if goal == Goal::WholeBlocks && emptiest {
            // Whether there is a pageblock to empty is quickly seen; there is nothing to wait for.
            let zone = &self.zones[id.index()];
            if compaction::is_reached(zone, goal, Cma::Useless) {
                return None;
            }
        } else if let Why::Wanted(order) = why {
            let decision = self.zones[id.index()].compaction.deferral.consider(order);
            if decision == Decision::Skip || !self.background_helps(id, order, goal) {
                return None;
            }
            if decision == Decision::Restart {
                self.wipe_marks(id, Wiper::LongestPause);
            }
        }
        let cma = if matches!(goal, Goal::Score(_)) { Cma::Usable } else { Cma::Useless };
        Some(Compaction::new(self, id, Job { goal, mode: Mode::Background, cma }))
    }

    /// Returns true if a run in the background is worth beginning: in defrag mode if there is room above the high
    /// watermark, which whole pageblocks alone are to meet; elsewhere if a block can be made above the min watermark.
    fn background_helps(&self, id: ZoneId, order: Order, goal: Goal) -> bool {
        let zone = &self.zones[id.index()];
        let of_node = self.zones.iter().filter(|other| other.node == zone.node);
        let populated = of_node.filter(|other| other.managed.get() > 0);
        let highest = populated.map(|zone| zone.kind).max().unwrap_or(zone.kind);
        let whole = goal == Goal::WholeBlocks;
        if whole && compaction::is_reached(zone, goal, Cma::Useless) {
            return false;
        }
        let mark = if whole { Mark::High } else { Mark::Min };
        let policy = &self.policy.compaction;
        let wish = Wish { order, highest, flags: AllocFlags::at(mark), mode: Mode::Background };
        match compaction::suitability(zone, policy, &wish) {
            Suitability::Suitable => true,
            // One block is not enough where the mark is to be met by whole blocks; there has to be room to begin.
            Suitability::Satisfied if whole => {
                let room = zone.marks.low - zone.marks.min + compaction::gap(policy, order);
                let flags = AllocFlags::at(mark).with(AllocFlags::CMA);
                zone.keeps(zone.mark(mark) + room, Order::ZERO, highest, flags)
            }
            Suitability::Satisfied | Suitability::Hopeless => false,
        }
    }

    /// Records the outcome of a zone's run for a block that was asked for. After a failure the zone's per-CPU lists are
    /// drained: they may hold the missing pages.
    fn background_ended(&mut self, id: ZoneId, why: Why, result: CompactionResult) {
        let Why::Wanted(order) = why else { return };
        match result {
            CompactionResult::Success | CompactionResult::Captured(_) => {
                self.zones[id.index()].compaction.deferral.succeeded();
            }
            CompactionResult::Partial | CompactionResult::Complete => {
                self.drain_zone(id);
                self.zones[id.index()].compaction.deferral.failed(order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Check;
    use crate::page::FragmentationPolicy;
    use crate::page::allocator::MinFree;
    use crate::page::compaction::tests::{Willing, ZONE, cpu, draw, picture};
    use crate::units::Pfn;

    const NODE: NodeId = NodeId(0);
    const ALL: PageBudget = PageBudget { pages: u64::MAX };
    const HOLES: &str = "hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh";

    struct Refusing;

    impl Migrate for Refusing {
        fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
            false
        }
    }

    fn ms(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    fn whole_blocks(pages: &PageAllocator) -> u64 {
        compaction::whole_block_pages(&pages.zones[0]) / Order::PAGEBLOCK.pages()
    }

    #[test]
    fn it_makes_the_block_that_was_asked_for_and_sleeps() {
        let mut pages = draw(HOLES, FragmentationPolicy::PATCHES_1_4);
        let mut daemon = Kcompactd::new(NODE);
        let idle = daemon.step(ms(0), &mut pages, &mut Willing, ALL);
        assert_eq!(idle, PageProgress::default());
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
        let done = daemon.step(ms(0), &mut pages, &mut Willing, ALL);
        assert_eq!(done, PageProgress { pages: 256, more: false, wake_at: None });
        assert_eq!(whole_blocks(&pages), 1, "one is enough: {}", picture(&pages));
        assert_eq!(pages.counters.kcompactd_wakes, 1);
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
        let done = daemon.step(ms(0), &mut pages, &mut Willing, ALL);
        assert_eq!(done.pages, 0, "there is one");
    }

    #[test]
    fn a_small_budget_takes_longer_and_comes_to_the_same() {
        let run = |budget| {
            let mut pages = draw(HOLES, FragmentationPolicy::PATCHES_1_4);
            let mut daemon = Kcompactd::new(NODE);
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
            let mut steps = 0;
            loop {
                let scanned = |pages: &PageAllocator| {
                    pages.counters.migrate_scanned + pages.counters.free_scanned
                };
                let before = scanned(&pages);
                let done =
                    daemon.step(ms(0), &mut pages, &mut Willing, PageBudget { pages: budget });
                pages.check().expect("sound between steps");
                // No step ends within a piece: up to a pageblock for sources and one for targets, and a search of
                // lists.
                let most = budget.saturating_add(3 * Order::PAGEBLOCK.pages());
                assert!(scanned(&pages) - before <= most);
                steps += 1;
                if !done.more {
                    return (picture(&pages), pages.counters.moved, steps);
                }
            }
        };
        let (cells, moved, steps) = run(u64::MAX);
        assert_eq!(steps, 1);
        for budget in [1, 10, 100] {
            let (small, same, steps) = run(budget);
            assert_eq!((&small, same), (&cells, moved));
            assert!(steps > 1, "{steps} steps of {budget}");
        }
    }

    #[test]
    fn in_vain_it_drains_the_lists_of_cpus_and_waits_for_twice_as_many_calls() {
        let mut pages = draw(HOLES, FragmentationPolicy::PATCHES_1_4);
        let mut daemon = Kcompactd::new(NODE);
        pages.free(cpu(), Pfn(0)).expect("it is in use");
        assert_eq!(pages.per_cpu_pages(ZONE).0, 1);
        let mut runs = 0;
        for _ in 0..1 + 2 + 4 + 8 {
            let before = pages.counters.not_moved;
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
            daemon.step(ms(0), &mut pages, &mut Refusing, ALL);
            runs += u64::from(pages.counters.not_moved > before);
            pages.forget_scans(NODE);
            pages.wipe_marks(ZONE, Wiper::Kswapd);
        }
        assert_eq!(runs, 4);
        assert_eq!(pages.per_cpu_pages(ZONE).0, 0, "the first failure has drained them");
        assert_eq!(pages.counters.moved, 0);
    }

    #[test]
    fn it_works_ahead_every_half_second_while_too_much_is_in_pieces() {
        let mut pages = draw(HOLES, FragmentationPolicy::LINUX_7_2);
        let mut daemon = Kcompactd::new(NODE);
        let mut step = |pages: &mut PageAllocator, now| {
            let done = daemon.step(ms(now), pages, &mut Willing, ALL);
            (done.pages, done.wake_at)
        };
        assert_eq!(step(&mut pages, 0), (0, Some(ms(500))));
        assert_eq!(step(&mut pages, 499), (0, Some(ms(500))));
        pages.nodes[0].kswapd.awake = true;
        assert_eq!(step(&mut pages, 500), (0, Some(ms(1000))), "kswapd is at work");
        pages.nodes[0].kswapd.awake = false;
        let (moved, next) = step(&mut pages, 1000);
        assert!(moved > 0);
        assert_eq!(next, Some(ms(1500)));
        let score = pages.node_score(NODE);
        assert!((25..=80).contains(&score), "down to the low mark, not to 0: {score}");
        assert_eq!(step(&mut pages, 1500), (0, Some(ms(2000))), "below the high mark");
    }

    #[test]
    fn where_working_ahead_does_not_help_it_looks_again_after_32_seconds() {
        let mut pages = draw(HOLES, FragmentationPolicy::LINUX_7_2);
        let mut daemon = Kcompactd::new(NODE);
        daemon.step(ms(0), &mut pages, &mut Refusing, ALL);
        let done = daemon.step(ms(500), &mut pages, &mut Refusing, ALL);
        assert_eq!((done.pages, done.wake_at), (0, Some(ms(32_500))));
        let refused = pages.counters.not_moved;
        assert!(refused > 0);
        daemon.step(ms(32_499), &mut pages, &mut Refusing, ALL);
        assert_eq!(pages.counters.not_moved, refused);
        pages.wipe_marks(ZONE, Wiper::Kswapd);
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
        let done = daemon.step(ms(600), &mut pages, &mut Willing, ALL);
        assert!(done.pages > 0, "who asks is served meanwhile");
    }

    #[test]
    fn before_5_9_it_never_works_ahead() {
        let mut pages = draw(HOLES, FragmentationPolicy::LINUX_5_3);
        let mut daemon = Kcompactd::new(NODE);
        for now in [0, 500, 100_000] {
            let done = daemon.step(ms(now), &mut pages, &mut Willing, ALL);
            assert_eq!(done, PageProgress::default());
        }
    }

    #[test]
    fn in_defrag_mode_whole_blocks_alone_meet_the_high_mark() {
        for (policy, blocks) in
            [(FragmentationPolicy::LINUX_7_2_DEFRAG, 2), (FragmentationPolicy::LINUX_7_2, 1)]
        {
            let mut pages = draw("hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh", policy);
            pages.set_min_free(MinFree::Pages(500));
            assert!((513..=1024).contains(&pages.zones[0].marks.high));
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
            Kcompactd::new(NODE).step(ms(0), &mut pages, &mut Willing, ALL);
            assert_eq!(whole_blocks(&pages), blocks, "{}", picture(&pages));
        }
    }

    #[test]
    fn in_defrag_mode_it_begins_above_the_high_mark_alone() {
        let moved = |min_free| {
            let policy = FragmentationPolicy::LINUX_7_2_DEFRAG;
            let mut pages = draw("hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh", policy);
            pages.set_min_free(MinFree::Pages(min_free));
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
            let done = Kcompactd::new(NODE).step(ms(0), &mut pages, &mut Willing, ALL);
            let marks = pages.zones[0].marks;
            (marks.high + marks.low - marks.min + 32, done.pages)
        };
        // 1280 pages are free. To begin takes the high mark, what is between the others, and 32 pages.
        assert_eq!(moved(712), (1_278, 512));
        assert_eq!(moved(716), (1_285, 0));
    }

    #[test]
    fn a_machine_that_is_given_up_keeps_nothing() {
        let mut pages = draw(HOLES, FragmentationPolicy::PATCHES_1_4);
        let mut daemon = Kcompactd::new(NODE);
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK);
        assert!(daemon.step(ms(0), &mut pages, &mut Willing, PageBudget { pages: 300 }).more);
        daemon.abandon(&mut pages);
        pages.check().expect("sound");
        assert_eq!(pages.zones[0].compaction.in_flight, 0);
        let mut nobody = Kcompactd::new(NodeId(7));
        let done = nobody.step(ms(0), &mut pages, &mut Willing, ALL);
        assert_eq!(done, PageProgress::default(), "there is no such node");
    }
}
