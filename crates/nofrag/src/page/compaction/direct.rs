//! Compaction by a caller that needs a block: over the zones that its request may use, one after the other.

use super::suitable::{Suitability, Wish, suitability};
use super::{Cma, Compaction, CompactionResult, CompactionStep, Decision, Goal, Job, Mode};
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::page::allocator::PageAllocator;
use crate::page::event::{CompactionAim, NoRun, Wiper};
use crate::page::frames::FrameIndex;
use crate::page::kswapd::PageBudget;
use crate::page::map::NodeId;
use crate::page::owner::{MoveResults, Moves};
use crate::page::request::PageRequest;
use crate::page::walk::AllocFlags;
use crate::page::zone::ZoneId;

/// Effort of a caller, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::page) enum Priority {
    /// The caller does not wait (`COMPACT_PRIO_ASYNC`).
    Async,
    /// The default: the caller waits.
    SyncLight,
    /// The caller waits, and neither deferral nor the marks and positions of earlier runs count.
    SyncFull,
}

impl Priority {
    /// Returns the next harder priority; `None` if there is none.
    pub(in crate::page) const fn harder(self) -> Option<Priority> {
        match self {
            Priority::Async => Some(Priority::SyncLight),
            Priority::SyncLight => Some(Priority::SyncFull),
            Priority::SyncFull => None,
        }
    }

    const fn mode(self) -> Mode {
        match self {
            Priority::Async => Mode::Async,
            Priority::SyncLight => Mode::SyncLight,
            Priority::SyncFull => Mode::SyncFull,
        }
    }
}

/// Outcome of direct compaction, in the order in which one zone's outcome outranks another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::page) enum Compacted {
    /// No zone was suitable: too little is free.
    Skipped,
    /// A suitable zone failed lately.
    Deferred,
    /// A part of a zone was looked at, in vain.
    Partial,
    /// All of a zone was looked at, in vain.
    Complete,
    /// A block should be free now; a pass will tell.
    Success,
    /// This block was kept as it became free, and is in use now.
    Captured(FrameIndex),
}

/// Next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "without an allocation there is no box for moves")]
pub(in crate::page) enum DirectStep {
    /// Move these, then report with [`DirectCompaction::migrated`].
    Migrate(Moves),
    /// Compaction has ended. A pass follows, and [`DirectCompaction::settle`].
    Done(Compacted),
}

/// Compaction by a caller that needs a block.
#[derive(Debug)]
pub(in crate::page) struct DirectCompaction {
    priority: Priority,
    flags: AllocFlags,
    cpu: CpuId,
    /// Index of the next zone in the request's zonelist.
    next: usize,
    run: Option<Compaction>,
    best: Compacted,
}

impl DirectCompaction {
    /// Makes a compaction at this priority for a caller whose passes have these flags.
    pub(in crate::page) const fn new(
        priority: Priority,
        flags: AllocFlags,
        cpu: CpuId,
    ) -> DirectCompaction {
        DirectCompaction { priority, flags, cpu, next: 0, run: None, best: Compacted::Skipped }
    }

    /// Advances to the next pages to be moved, or to the end. `node` is the one whose zonelist the request uses, and
    /// the request is the same each time.
    pub(in crate::page) fn step<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        request: &PageRequest,
        node: NodeId,
    ) -> DirectStep {
        loop {
            if let Some(run) = &mut self.run {
                match run.step(pages, PageBudget { pages: u64::MAX }) {
                    CompactionStep::Migrate(moves) => return DirectStep::Migrate(moves),
                    CompactionStep::Continue => {}
                    CompactionStep::Done(result) => {
                        let zone = run.zone;
                        self.run = None;
                        self.best = self.best.max(self.note(pages, zone, request, result));
                    }
                }
            } else if self.best >= Compacted::Success {
                return DirectStep::Done(self.best);
            } else {
                let zones = pages.nodes[node.index()].zonelist.of(request);
                let Some(&zone) = zones.get(self.next) else {
                    return DirectStep::Done(self.best);
                };
                self.next += 1;
                self.enter(pages, request, zone);
            }
        }
    }

    /// Begins with a zone, if compaction can help there.
    fn enter<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        request: &PageRequest,
        id: ZoneId,
    ) {
        let (order, mode) = (request.order, self.priority.mode());
        let zone = &mut pages.zones[id.index()];
        if !zone.is_allowed(request) {
            return;
        }
        let aim = CompactionAim { zone: id, order, migratetype: request.migratetype, mode };
        let deferral = &mut zone.compaction.deferral;
        let decision = match self.priority {
            Priority::SyncFull => deferral.passed(order),
            Priority::Async | Priority::SyncLight => deferral.consider(order),
        };
        if decision == Decision::Skip {
            self.best = self.best.max(Compacted::Deferred);
            return pages.spare(aim, NoRun::Deferred);
        }
        let wish = Wish { order, highest: request.zone, flags: self.flags, mode };
        match suitability(zone, &pages.policy.compaction, &wish) {
            Suitability::Satisfied => {
                self.best = self.best.max(Compacted::Success);
                pages.spare(aim, NoRun::Satisfied);
            }
            Suitability::Hopeless => pages.spare(aim, NoRun::Unsuitable),
            Suitability::Suitable => {
                if decision == Decision::Restart {
                    pages.wipe_marks(id, Wiper::LongestPause);
                }
                let cma = if self.flags.has(AllocFlags::CMA) { Cma::Usable } else { Cma::Useless };
                let goal = Goal::Block(order, request.migratetype);
                let run = Compaction::new(pages, id, Job { goal, mode, cma });
                self.run = Some(run.on(self.cpu));
            }
        }
    }

    /// Records the outcome of a zone. Runs that do not wait leave too much out to count as failures.
    fn note<E: EventSink>(
        &self,
        pages: &mut PageAllocator<E>,
        zone: ZoneId,
        request: &PageRequest,
        result: CompactionResult,
    ) -> Compacted {
        let deferral = &mut pages.zones[zone.index()].compaction.deferral;
        let compacted = match result {
            CompactionResult::Partial => Compacted::Partial,
            CompactionResult::Complete => Compacted::Complete,
            CompactionResult::Success => Compacted::Success,
            CompactionResult::Captured(pfn) => {
                Compacted::Captured(pages.frames.index(pfn).expect("it was just captured"))
            }
        };
        if compacted >= Compacted::Success {
            deferral.succeeded();
        } else if self.priority != Priority::Async {
            deferral.failed(request.order);
        }
        compacted
    }

    /// Records the results of the moves.
    pub(in crate::page) fn migrated<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        results: MoveResults,
    ) {
        if let Some(run) = &mut self.run {
            run.migrated(pages, results);
        }
    }

    /// Counts the whole compaction after [`DirectStep::Done`], and lets the zone from which the request was `served` be
    /// compacted for this order again at once. A caller whose zones were all left alone does not count as one that
    /// compacted.
    pub(in crate::page) fn settle<E: EventSink>(
        self,
        pages: &mut PageAllocator<E>,
        request: &PageRequest,
        served: Option<FrameIndex>,
    ) {
        if self.best == Compacted::Deferred {
            pages.counters.compact_put_off += 1;
        } else if self.best > Compacted::Deferred {
            pages.counters.compact_stalls += 1;
            match served {
                Some(_) => pages.counters.compact_successes += 1,
                None => pages.counters.compact_failures += 1,
            }
        }
        if let Some(frame) = served {
            let zone = pages.zones.iter_mut().find(|zone| zone.has(frame));
            let zone = zone.expect("a block lies in a zone");
            zone.compaction.deferral.served(request.order);
        }
    }

    /// Gives up in the middle; nothing stays set aside.
    pub(in crate::page) fn abandon<E: EventSink>(self, pages: &mut PageAllocator<E>) {
        if let Some(run) = self.run {
            run.abandon(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Check;
    use crate::page::FragmentationPolicy;
    use crate::page::compaction::tests::{Willing, ZONE, cpu, draw};
    use crate::page::frames::Kind;
    use crate::page::walk::Mark;
    use crate::units::Order;

    const NODE: NodeId = NodeId(0);
    const HUGE: PageRequest = PageRequest::user(Order::PAGEBLOCK);

    fn run(pages: &mut PageAllocator, request: &PageRequest, priority: Priority) -> Compacted {
        let mut compaction = DirectCompaction::new(priority, AllocFlags::at(Mark::Min), cpu());
        loop {
            match compaction.step(pages, request, NODE) {
                DirectStep::Migrate(moves) => {
                    compaction.migrated(pages, moves.carry_out(&mut Willing));
                    pages.check().expect("sound after moves");
                }
                DirectStep::Done(result) => {
                    let served = match result {
                        Compacted::Captured(frame) => Some(frame),
                        _ => None,
                    };
                    compaction.settle(pages, request, served);
                    return result;
                }
            }
        }
    }

    #[test]
    fn each_failure_doubles_how_many_calls_are_put_off() {
        let mut pages = draw("huhuhuhu huhuhuhu uuuuuuuu hhhhhhhh", FragmentationPolicy::LINUX_7_2);
        let light = Priority::SyncLight;
        assert_eq!(run(&mut pages, &HUGE, light), Compacted::Complete);
        assert_eq!(pages.counters.compact_put_off, 0);
        for expected in [1, 3, 7, 15, 31, 63, 63] {
            let mut put_off = 0;
            while run(&mut pages, &HUGE, light) == Compacted::Deferred {
                put_off += 1;
            }
            assert_eq!(put_off, expected);
        }
        let smaller = PageRequest::user(Order::new(8).expect("an order"));
        assert!(run(&mut pages, &smaller, light) > Compacted::Deferred, "it has not failed");
        assert!(run(&mut pages, &HUGE, Priority::SyncFull) > Compacted::Deferred, "never put off");
        assert_eq!(pages.counters.compact_failures, pages.counters.compact_stalls);
        assert_eq!(pages.counters.compact_put_off, 1 + 3 + 7 + 15 + 31 + 63 + 63);
    }

    #[test]
    fn runs_that_do_not_wait_do_not_count_as_failures() {
        let mut pages = draw("huhuhuhu huhuhuhu uuuuuuuu hhhhhhhh", FragmentationPolicy::LINUX_7_2);
        for _ in 0..3 {
            assert_eq!(run(&mut pages, &HUGE, Priority::Async), Compacted::Complete);
        }
    }

    #[test]
    fn the_block_is_kept_for_who_made_it() {
        let mut pages = draw("m.m.m.m. m.m.m.m. m.m.m.m. m.m.m.m.", FragmentationPolicy::LINUX_7_2);
        let Compacted::Captured(frame) = run(&mut pages, &HUGE, Priority::Async) else {
            panic!("all of it can be moved");
        };
        assert_eq!(pages.counters.compact_stalls, 1);
        assert_eq!(pages.counters.compact_successes, 1);
        let tag = pages.frames.tag(frame);
        assert_eq!((tag.kind(), tag.order()), (Kind::Used, Order::PAGEBLOCK));
    }

    #[test]
    fn zones_that_cannot_be_helped_are_left_alone() {
        let check = |picture: &str, policy: FragmentationPolicy, min, result| {
            let mut pages = draw(picture, policy);
            pages.zones[0].marks.min = min;
            pages.zones[0].marks.low = min + 10;
            assert_eq!(run(&mut pages, &HUGE, Priority::SyncLight), result, "{picture} min {min}");
            pages
        };
        let (old, new) = (FragmentationPolicy::LINUX_6_12, FragmentationPolicy::LINUX_7_2);
        let little = "uuuuuuuu uuuuuuhh uuuuuuuu hhhhhhhh";
        let some = "uhuhuhuh uhuhuhuh uhuhuhuh uhuhuhuh";
        let none = check(little, old, 0, Compacted::Skipped);
        assert_eq!(none.counters.compact_stalls, 0, "nothing was done");
        check(little, new, 0, Compacted::Complete);
        // 512 free pages: the capped gap of 32 and the distance of the marks, 10, must fit under them.
        check(some, new, 512 - 32 - 10 - 1, Compacted::Partial);
        check(some, new, 512 - 32 - 10, Compacted::Skipped);
        check("........ hhhhhhhh", new, 0, Compacted::Success);
        // Until 6.12 the low mark and twice the request must fit under what is free.
        let half = "hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh hhhhhhhh";
        check(half, old, 1280 - 1024 - 10, Compacted::Skipped);
        let mut pages = draw(half, old);
        pages.zones[0].marks.min = 1280 - 1024 - 10 - 1;
        pages.zones[0].marks.low = pages.zones[0].marks.min + 10;
        let found = run(&mut pages, &HUGE, Priority::SyncLight);
        assert!(matches!(found, Compacted::Captured(_)));
        check("uuuuuuuu uuuu.... uuuu....", new, 0, Compacted::Skipped);
    }

    #[test]
    fn giving_up_in_the_middle_leaves_nothing_set_aside() {
        let mut pages = draw("hhhhhhhh hhhhhhhh", FragmentationPolicy::LINUX_7_2);
        let flags = AllocFlags::at(Mark::Min);
        let mut compaction = DirectCompaction::new(Priority::SyncLight, flags, cpu());
        let step = compaction.step(&mut pages, &HUGE, NODE);
        assert!(matches!(step, DirectStep::Migrate(_)));
        compaction.abandon(&mut pages);
        pages.check().expect("sound");
        assert_eq!(pages.zones[ZONE.index()].compaction.in_flight, 0);
    }
}
