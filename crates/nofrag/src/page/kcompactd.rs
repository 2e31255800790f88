//! kcompactd: compacts in the background.
//!
//! It has two kinds of work. Asked for a block of some size, by kswapd when it ends or sleeps, by a boost that ends, or
//! by a request that found enough memory in pieces, it goes once over the zones of its node, up to the highest that may
//! serve. It is woken for that only if some zone has room for compaction and no such block; else the wish is noted, and
//! taken up when it wakes anyway. And with `compaction_proactiveness` above 0 it wakes half a second after it went to
//! sleep: for a noted wish if there is one, or else to look whether too much of what is free lies outside whole
//! pageblocks. If so it works ahead of anybody's asking, unless kswapd is at work. If that does not help, it sleeps for
//! 32 s, or until it is woken.
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
use super::map::{NodeId, ZoneKind};
use super::migratetype::Migratetype;
use super::owner::{Migrate, MoveResults, Moves};
use super::policy::{SourceRules, Spread};
use super::walk::{AllocFlags, Mark};
use super::zone::{Zone, ZoneId};
use crate::cpu::CpuId;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order};

/// Mailbox of a node's kcompactd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KcompactdBox {
    wanted: Option<Wanted>,
    /// True if it was woken for what is wanted, and need not wait for its time.
    woken: bool,
}

/// Blocks that kcompactd was asked for and has not begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    /// Order of the largest (`kcompactd_max_order`).
    order: Order,
    /// The highest zone that serves all who asked (`kcompactd_highest_zoneidx`).
    highest: ZoneKind,
}

impl<E: EventSink> PageAllocator<E> {
    /// Asks a node's kcompactd for a block of this size in this zone or below it (`wakeup_kcompactd`). Single pages
    /// need no compaction.
    pub(super) fn wake_kcompactd(&mut self, node: NodeId, order: Order, highest: ZoneKind) {
        if order == Order::ZERO {
            return;
        }
        let mail = &mut self.nodes[node.index()].kcompactd;
        let before = mail.wanted.unwrap_or(Wanted { order, highest });
        let wanted =
            Wanted { order: order.max(before.order), highest: highest.min(before.highest) };
        mail.wanted = Some(wanted);
        let goal = self.goal_of(wanted.order);
        let helps = |zone: &Zone| self.background_helps(zone.id, wanted.order, goal);
        let woken = self.zones_of(node, wanted.highest).any(helps);
        if woken {
            self.nodes[node.index()].kcompactd.woken = true;
            self.counters.kcompactd_signals += 1;
        }
        self.events.record(Event::Page(PageEvent::KcompactdAsked { node, order, woken }));
    }
}

/// Time that it sleeps before a look at the node's fragmentation score (`HPAGE_FRAG_CHECK_INTERVAL_MSEC`).
const INTERVAL: Nanos = Nanos(500_000_000);

/// Time that it sleeps when working ahead was in vain: 64 times `INTERVAL`, 32 s.
const LONG_INTERVAL: Nanos = Nanos(INTERVAL.0 << compaction::MAX_SHIFT);

/// The compaction thread of a node, as a background machine.
///
/// A step looks at about as many frames as its budget says and may end in the middle of a zone; the next one goes on.
#[derive(Debug)]
pub struct Kcompactd {
    node: NodeId,
    cpu: Option<CpuId>,
    work: Option<Work>,
    /// Time at which it wakes unasked; `None` before it has slept, and always if it does not work ahead.
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
    /// A block was asked for.
    Wanted(Wanted),
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
        let ahead = pages.policy.compaction.proactiveness.filter(|&p| p > 0);
        let look_at = ahead.map(|_| *self.look_at.get_or_insert(later(now, INTERVAL)));
        // At the end of time no later look can be set, and there would be no end to the looks.
        let due = look_at.is_some_and(|at| at <= now) && now < Nanos(u64::MAX);
        let mail = &mut node.kcompactd;
        let why = match mail.wanted.take_if(|_| mail.woken || due) {
            Some(wanted) => {
                mail.woken = false;
                pages.counters.kcompactd_wakes += 1;
                Some(Why::Wanted(wanted))
            }
            None if due => {
                self.look_at = Some(later(now, INTERVAL));
                ahead.and_then(|proactiveness| self.proactive(pages, proactiveness))
            }
            None => None,
        };
        self.work = why.map(|why| Work { why, next: 0, run: None });
        self.work.is_some()
    }

    /// Decides whether to compact ahead of requests; `None` if the score does not call for it.
    fn proactive<E: EventSink>(&self, pages: &PageAllocator<E>, proactiveness: u8) -> Option<Why> {
        let bounds = compaction::proactive_bounds(pages.policy.compaction.marks, proactiveness);
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
        let highest = match work.why {
            Why::Wanted(wanted) => wanted.highest,
            Why::Proactive { .. } => ZoneKind::Movable,
        };
        let next = work.next;
        let zone = pages.zones_of(node, highest).map(|zone| zone.id).find(|id| id.index() >= next);
        match zone {
            Some(id) => {
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

    /// Ends the work and goes to sleep: for long if it was proactive and did not help. What was asked for meanwhile,
    /// and is no larger than what it was asked for before, is done with; else it is taken up at once.
    fn stop<E: EventSink>(&mut self, now: Nanos, pages: &mut PageAllocator<E>) {
        let Some(work) = self.work.take() else { return };
        if let Some(run) = work.run {
            run.abandon(pages);
        }
        let sleeps = match work.why {
            Why::Proactive { score, .. } if pages.node_score(self.node) >= score => LONG_INTERVAL,
            Why::Wanted(_) | Why::Proactive { .. } => INTERVAL,
        };
        let mail = &mut pages.nodes[self.node.index()].kcompactd;
        if let Why::Wanted(done) = work.why {
            mail.wanted = mail.wanted.filter(|wanted| wanted.order > done.order);
        }
        mail.woken = mail.wanted.is_some();
        self.look_at = self.look_at.map(|_| later(now, sleeps));
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
            Why::Wanted(wanted) => self.goal_of(wanted.order),
        };
        if let Why::Wanted(Wanted { order, .. }) = why {
            let decision = match self.empties_whole(goal) {
                // Whether there is a pageblock to empty is quickly seen; there is nothing to wait for.
                true => Decision::Go,
                false => self.zones[id.index()].compaction.deferral.consider(order),
            };
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

    /// Returns the goal of runs for a block that was asked for.
    fn goal_of(&self, order: Order) -> Goal {
        match self.policy.spread {
            Spread::EveryRequest => Goal::WholeBlocks,
            // An unmovable request can use every block that compaction makes, whatever its type.
            _ => Goal::Block(order, Migratetype::Unmovable),
        }
    }

    /// Returns true if runs with this goal empty the emptiest pageblocks, until there are enough whole ones.
    fn empties_whole(&self, goal: Goal) -> bool {
        goal == Goal::WholeBlocks && self.policy.compaction.sources == SourceRules::EmptiestBlock
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
        if self.empties_whole(goal) {
            return true;
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
        let Why::Wanted(Wanted { order, .. }) = why else { return };
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
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
        let done = daemon.step(ms(0), &mut pages, &mut Willing, ALL);
        assert_eq!(done, PageProgress { pages: 256, more: false, wake_at: None });
        assert_eq!(whole_blocks(&pages), 1, "one is enough: {}", picture(&pages));
        assert_eq!(pages.counters.kcompactd_wakes, 1);
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
        let done = daemon.step(ms(0), &mut pages, &mut Willing, ALL);
        assert_eq!(done.pages, 0, "there is one");
    }

    #[test]
    fn a_small_budget_takes_longer_and_comes_to_the_same() {
        let run = |budget| {
            let mut pages = draw(HOLES, FragmentationPolicy::PATCHES_1_4);
            let mut daemon = Kcompactd::new(NODE);
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
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
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
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
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
        let done = daemon.step(ms(600), &mut pages, &mut Willing, ALL);
        assert!(done.pages > 0, "who asks is served meanwhile");
    }

    /// In twelve recordings of 6.1, 6.12 and 7.2 kcompactd took up 229 of 266 wishes when its half second was over, and
    /// then compacted nothing (docs/sources/pages.md#kcompactd-wakes).
    #[test]
    fn what_it_cannot_help_with_waits_for_its_time_and_takes_the_place_of_a_look() {
        let mut pages = draw(HOLES, FragmentationPolicy::LINUX_7_2);
        let mut daemon = Kcompactd::new(NODE);
        daemon.step(ms(0), &mut pages, &mut Willing, ALL);
        pages.free(cpu(), Pfn(0)).expect("it is in use");
        pages.drain_all();
        pages.wake_kcompactd(NODE, Order::ZERO, ZoneKind::Movable);
        pages.wake_kcompactd(NODE, Order::new(1).expect("an order"), ZoneKind::Movable);
        assert_eq!(pages.counters.kcompactd_signals, 0, "there is such a block");
        let mut step = |pages: &mut PageAllocator, now| {
            let done = daemon.step(ms(now), pages, &mut Willing, ALL);
            (done.pages, done.wake_at, pages.counters.kcompactd_wakes)
        };
        assert_eq!(step(&mut pages, 100), (0, Some(ms(500)), 0), "it sleeps on");
        assert_eq!(step(&mut pages, 500), (0, Some(ms(1000)), 1), "there is no look");
        let (moved, next, wakes) = step(&mut pages, 1000);
        assert!(moved > 0, "too much is in pieces");
        assert_eq!((next, wakes), (Some(ms(1500)), 1));
        pages.wake_kcompactd(NODE, Order::MAX, ZoneKind::Movable);
        assert_eq!(pages.counters.kcompactd_signals, 1, "there is room for that");
        assert_eq!(step(&mut pages, 1100).1, Some(ms(1600)), "it sleeps anew");
        assert_eq!(pages.counters.kcompactd_wakes, 2);
    }

    #[test]
    fn what_is_wanted_meanwhile_is_done_with_unless_it_is_larger() {
        for (order, wakes) in [(8, 1), (9, 1), (10, 2)] {
            let mut pages = draw(HOLES, FragmentationPolicy::PATCHES_1_4);
            let mut daemon = Kcompactd::new(NODE);
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
            let begun = daemon.step(ms(0), &mut pages, &mut Willing, PageBudget { pages: 300 });
            assert!(begun.more);
            let order = Order::new(order).expect("an order");
            pages.wake_kcompactd(NODE, order, ZoneKind::Movable);
            daemon.step(ms(1), &mut pages, &mut Willing, ALL);
            assert_eq!(pages.counters.kcompactd_wakes, wakes, "{order:?}");
        }
    }

    #[test]
    fn it_leaves_zones_alone_that_cannot_serve() {
        let mut pages = draw(HOLES, FragmentationPolicy::LINUX_7_2);
        let mut daemon = Kcompactd::new(NODE);
        daemon.step(ms(0), &mut pages, &mut Willing, ALL);
        assert!(pages.zones[0].kind > ZoneKind::Dma);
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Dma);
        // The lowest of all wishes counts, as the block is to serve every one of them.
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
        assert_eq!(pages.counters.kcompactd_signals, 0);
        assert_eq!(daemon.step(ms(500), &mut pages, &mut Willing, ALL).pages, 0);
        assert_eq!(pages.counters.kcompactd_wakes, 1, "it has taken them up");
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
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
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
            pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
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
        pages.wake_kcompactd(NODE, Order::PAGEBLOCK, ZoneKind::Movable);
        assert!(daemon.step(ms(0), &mut pages, &mut Willing, PageBudget { pages: 300 }).more);
        daemon.abandon(&mut pages);
        pages.check().expect("sound");
        assert_eq!(pages.zones[0].compaction.in_flight, 0);
        let mut nobody = Kcompactd::new(NodeId(7));
        let done = nobody.step(ms(0), &mut pages, &mut Willing, ALL);
        assert_eq!(done, PageProgress::default(), "there is no such node");
    }
}
