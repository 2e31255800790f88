//! The slow path: what a request may still try, decided step by step. The caller acts.
//!
//! [`Attempt::advance`] makes every pass itself and comes back with what only the owner of the pages can do: reclaim,
//! move, wait. It returns in a bounded number of steps, whatever it is told; `slow_path` decides, and says why.
//!
//! Patch 5 (docs/sources/pages.md#patch-5). A movable request that may wait first looks only where it need not break
//! into small blocks of other types. If there is nothing, for whatever reason, the zone that it prefers is boosted,
//! kswapd is woken if the request allows it, and the request waits until kswapd has got somewhere
//! ([`Attempt::may_resume`]) or the bound has passed. Waits are counted only if time has passed: a nanosecond here, a
//! tick of the clock in the patch.
//!
//! Under every policy an event reports a request that takes long, though only 7.2 logs it: it changes nothing.

use core::ops::ControlFlow;

use super::allocator::PageAllocator;
use super::compaction::{Compacted, DirectCompaction, DirectStep};
use super::event::PageEvent;
use super::failure::{FailureReason, FailureReport};
use super::frames::FrameIndex;
use super::kswapd::{KswapdGoal, Waker};
use super::map::NodeId;
use super::owner::{Migrate, MoveResults, Moves, Reclaim, ReclaimRequest, ReclaimScope, Reclaimed};
use super::policy::Spread;
use super::reclaim::Sweep;
use super::request::{PageRequest, RequestFlags};
use super::reserve::Least;
use super::slow_path::{Ended, FIRST_PRIORITY, Seen, SlowPath, Try};
use super::walk::{AllocFlags, Path, Walk};
use super::zone::ZoneId;
use crate::cpu::CpuId;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order, Pfn};

/// An event reports a request that has taken longer than this, and two such reports are at least this far apart.
const LONG: Nanos = Nanos(10_000_000_000);

/// A request that the fast path could not serve. Ask it with [`advance`](Self::advance) what to do next, do it, and
/// report; between calls it holds no pages but those that are being moved. A caller that no longer wants the block
/// calls [`abandon`](Self::abandon): when an attempt is dropped in the middle of moves, their pages and places stay set
/// aside. An attempt belongs to the allocator that made it and must not be advanced with another.
#[derive(Debug)]
#[must_use = "the request has neither failed nor been served yet"]
pub struct Attempt {
    cpu: CpuId,
    request: PageRequest,
    began: Nanos,
    plan: SlowPath,
    awaits: Awaits,
}

/// Action that the caller was asked for and has not reported yet.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "without an allocation there is no box for a run")]
enum Awaits {
    Nothing,
    /// Reclaim on the node that the sweep over the zonelist has come to.
    Reclaim(Sweep),
    /// Moves that make a free block of `order`; a pass over the zones with `flags` follows.
    Moves {
        compaction: DirectCompaction,
        order: Order,
        flags: AllocFlags,
    },
    /// The end of a wait for the kswapd of `node` that began at `since`, when that kswapd had released waiters
    /// `releases` times.
    Wait {
        node: NodeId,
        since: Nanos,
        releases: u64,
    },
}

/// Report of the caller's action since the last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No action yet: the first call.
    Begin,
    /// The caller reclaimed, with this result.
    Reclaimed(Reclaimed),
    /// The caller carried out the moves; the results say which succeeded.
    Migrated(MoveResults),
    /// The caller waited until the end of its [`Next::Stall`], or was woken before.
    Waited,
}

/// Action that the caller of an [`Attempt`] shall take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "without an allocation there is no box for moves")]
pub enum Next {
    /// No action: this block serves the request.
    Done(Pfn),
    /// Free pages, then report [`Outcome::Reclaimed`].
    Reclaim(ReclaimRequest),
    /// Move pages, then report [`Outcome::Migrated`].
    Migrate(Moves),
    /// Wait for kswapd, then report [`Outcome::Waited`].
    Stall {
        /// Latest end of the wait.
        until: Nanos,
    },
    /// No action: the request cannot be served.
    Fail(FailureReport),
}

/// End of a part of the slow path: `Continue` with an observation, or `Break` with an action for the caller.
type Acted = ControlFlow<Next, Seen>;

impl Attempt {
    /// Begins the slow path of a request that a fast pass could not serve.
    pub(super) fn new<E: EventSink>(
        pages: &PageAllocator<E>,
        now: Nanos,
        cpu: CpuId,
        request: PageRequest,
    ) -> Attempt {
        let managed = pages.zones.iter().map(|zone| zone.managed.0).sum();
        let keeps = pages.policy.spread == Spread::EveryRequest
            && pages.fragment_flags(cpu, &request, Path::Slow) & AllocFlags::NO_FRAGMENT != 0;
        let plan = SlowPath::new(request, &pages.policy, managed, keeps);
        Attempt { cpu, request, began: now, plan, awaits: Awaits::Nothing }
    }

    /// Returns the request that the attempt serves.
    #[must_use]
    pub fn request(&self) -> &PageRequest {
        &self.request
    }

    /// Returns true if a wait may end before its time: kswapd has come as far as waiters need it to. Also true if the
    /// attempt does not wait.
    #[must_use]
    pub fn may_resume<E: EventSink>(&self, pages: &PageAllocator<E>) -> bool {
        match self.awaits {
            Awaits::Wait { node, releases, .. } => {
                pages.nodes[node.index()].kswapd.releases != releases
            }
            _ => true,
        }
    }

    /// Continues after the caller's action, and returns the next one.
    ///
    /// An outcome that does not fit the action asked for counts as failure to carry it out. After [`Next::Done`] and
    /// [`Next::Fail`] the attempt is over: it fails whenever it is asked again. O(zones) for each pass, besides the
    /// frames that compaction looks at.
    pub fn advance<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        now: Nanos,
        outcome: Outcome,
    ) -> Next {
        if self.plan.is_over() {
            let over = FailureReason::Over;
            return Next::Fail(FailureReport::new(pages, self.cpu, &self.request, over));
        }
        let mut acted = self.report(pages, now, outcome);
        loop {
            let seen = match acted {
                Acted::Continue(seen) => seen,
                Acted::Break(next) => return next,
            };
            let next = self.plan.next(seen);
            acted = self.act(pages, now, next);
        }
    }

    /// Ends the attempt before it is served, as when its caller is killed. Moves that the caller was asked for count as
    /// not done.
    pub fn abandon<E: EventSink>(self, pages: &mut PageAllocator<E>) {
        if let Awaits::Moves { compaction, .. } = self.awaits {
            compaction.abandon(pages);
        }
    }

    fn report<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        now: Nanos,
        outcome: Outcome,
    ) -> Acted {
        match core::mem::replace(&mut self.awaits, Awaits::Nothing) {
            Awaits::Nothing => Acted::Continue(Seen::Begin),
            Awaits::Reclaim(mut sweep) => {
                let came = match outcome {
                    Outcome::Reclaimed(came) => came,
                    _ => Reclaimed::default(),
                };
                pages.note_direct_reclaim(sweep.node, came.pages);
                sweep.freed = sweep.freed.saturating_add(came.pages);
                let Sweep { node, priority, passes, .. } = sweep;
                if pages.repeats((node, self.wanted()), priority, passes, came) {
                    return self.reclaim_from(pages, sweep);
                }
                self.sweep(pages, sweep)
            }
            Awaits::Moves { mut compaction, order, flags } => {
                let results = match outcome {
                    Outcome::Migrated(results) => results,
                    _ => MoveResults::default(),
                };
                compaction.migrated(pages, results);
                self.compact(pages, compaction, order, flags)
            }
            Awaits::Wait { node, since, .. } => {
                pages.note_stall(node, Nanos(now.0.saturating_sub(since.0)));
                Acted::Continue(Seen::Waited)
            }
        }
    }

    fn act<E: EventSink>(&mut self, pages: &mut PageAllocator<E>, now: Nanos, next: Try) -> Acted {
        match next {
            Try::Pass(flags) => self.pass(pages, flags),
            Try::WakeAndPass(flags) => {
                pages.warn_of_long(now, self.began, &self.request);
                pages.wake_all_kswapds(self.cpu, &self.request);
                self.pass(pages, flags)
            }
            Try::Stall => self.stall(pages, now),
            Try::Compact(order, priority, flags) => {
                self.compact(pages, DirectCompaction::new(priority, flags, self.cpu), order, flags)
            }
            Try::Reclaim(priority) => {
                if priority == FIRST_PRIORITY {
                    pages.counters.direct_reclaims += 1;
                }
                self.sweep(pages, Sweep::new(priority))
            }
            Try::Drain => {
                pages.release_high_atomic(self.cpu, &self.request, Least::One);
                pages.drain_all();
                Acted::Continue(Seen::Drained)
            }
            Try::ReleaseReserve => {
                let released = pages.release_high_atomic(self.cpu, &self.request, Least::None);
                Acted::Continue(Seen::Released(released))
            }
            Try::Fail(why) => self.fail(pages, reason(why)),
        }
    }

    fn pass<E: EventSink>(&mut self, pages: &mut PageAllocator<E>, flags: AllocFlags) -> Acted {
        match pages.walk(self.cpu, &self.request, flags) {
            Walk::Block(frame) => self.done(pages, frame),
            Walk::Exhausted => Acted::Continue(Seen::Nothing),
            Walk::Spared(_) => Acted::Continue(Seen::Spared),
            Walk::NoZone => self.fail(pages, FailureReason::NoZone),
        }
    }

    fn done<E: EventSink>(&mut self, pages: &mut PageAllocator<E>, frame: FrameIndex) -> Acted {
        self.plan.finish();
        Acted::Break(Next::Done(pages.handed_out(frame, &self.request)))
    }

    fn fail<E: EventSink>(&mut self, pages: &mut PageAllocator<E>, reason: FailureReason) -> Acted {
        self.plan.finish();
        pages.counters.failures[self.request.order.index()] += 1;
        Acted::Break(Next::Fail(FailureReport::new(pages, self.cpu, &self.request, reason)))
    }

    /// Asks the caller to wait for kswapd, after a fast rise of the boost of the zone that the request prefers (patch
    /// 5).
    fn stall<E: EventSink>(&mut self, pages: &mut PageAllocator<E>, now: Nanos) -> Acted {
        let bound = pages.policy.stall.map(|stall| stall.bound);
        let zone = pages.preferred_zone(self.cpu, &self.request);
        let (Some(bound), Some(zone)) = (bound, zone) else { return Acted::Continue(Seen::Waited) };
        pages.boost_fast(zone);
        if self.request.flags.has(RequestFlags::KSWAPD_RECLAIM) {
            pages.wake_kswapd(zone, Order::ZERO);
        }
        let node = pages.zones[zone.index()].node;
        let releases = pages.nodes[node.index()].kswapd.releases;
        self.awaits = Awaits::Wait { node, since: now, releases };
        Acted::Break(Next::Stall { until: Nanos(now.0.saturating_add(bound.0)) })
    }

    fn compact<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        mut compaction: DirectCompaction,
        order: Order,
        flags: AllocFlags,
    ) -> Acted {
        let request = PageRequest { order, ..self.request };
        let home = pages.home(self.cpu, &request);
        let compacted = match compaction.step(pages, &request, home) {
            DirectStep::Migrate(moves) => {
                self.awaits = Awaits::Moves { compaction, order, flags };
                return Acted::Break(Next::Migrate(moves));
            }
            DirectStep::Done(compacted) => compacted,
        };
        let served = match compacted {
            Compacted::Captured(frame) if order == self.request.order => Some(frame),
            Compacted::Captured(frame) => {
                // The block was made so that nothing need be mixed: what the request leaves of it stays together.
                let migratetype = pages.frames.block(frame).migratetype;
                pages.give(self.cpu, frame, order, migratetype);
                self.served_by_pass(pages, flags)
            }
            Compacted::Skipped | Compacted::Deferred => None,
            Compacted::Partial | Compacted::Complete | Compacted::Success => {
                self.served_by_pass(pages, flags)
            }
        };
        compaction.settle(pages, &request, served);
        match served {
            Some(frame) => self.done(pages, frame),
            None => Acted::Continue(Seen::Compacted(compacted)),
        }
    }

    fn served_by_pass<E: EventSink>(
        &self,
        pages: &mut PageAllocator<E>,
        flags: AllocFlags,
    ) -> Option<FrameIndex> {
        match pages.walk(self.cpu, &self.request, flags) {
            Walk::Block(frame) => Some(frame),
            Walk::Exhausted | Walk::Spared(_) | Walk::NoZone => None,
        }
    }

    /// Returns the goal of reclaim: a block of the request's order, or in defrag mode a whole pageblock for requests
    /// whose pages could not be moved away again.
    fn wanted(&self) -> KswapdGoal {
        let order = self.plan.block().unwrap_or(Order::ZERO);
        KswapdGoal { order, highest: self.request.zone }
    }

    /// Goes on with reclaim over the zonelist: asks the caller for pages of each node, unless all its zones are ready
    /// for compaction.
    fn sweep<E: EventSink>(&mut self, pages: &PageAllocator<E>, mut sweep: Sweep) -> Acted {
        while let Some(id) = pages.zones_for(self.cpu, &self.request).nth(sweep.next) {
            sweep.next += 1;
            let node = pages.zones[id.index()].node;
            if pages.is_ready(id, self.wanted()) {
                sweep.ready = true;
            } else if !sweep.has_met(node) {
                return self.reclaim_from(pages, Sweep { node, passes: 0, ..sweep });
            }
        }
        Acted::Continue(Seen::Reclaimed { pages: sweep.freed, ready: sweep.ready })
    }

    /// Asks the caller for pages of the node that the sweep has come to.
    fn reclaim_from<E: EventSink>(&mut self, pages: &PageAllocator<E>, mut sweep: Sweep) -> Acted {
        sweep.passes += 1;
        let Sweep { node, priority, .. } = sweep;
        let of_node = |id: &ZoneId| pages.zones[id.index()].node == node;
        let highest = pages.zones_for(self.cpu, &self.request).find(of_node);
        let highest = highest.expect("the sweep came to the node by one of its zones");
        let wanted = pages.pages_of_pass(node, self.wanted(), priority);
        self.awaits = Awaits::Reclaim(sweep);
        let may = ReclaimScope::ALL;
        Acted::Break(Next::Reclaim(ReclaimRequest { node, highest, pages: wanted, priority, may }))
    }
}

const fn reason(why: Ended) -> FailureReason {
    match why {
        Ended::MayNotReclaim => FailureReason::MayNotReclaim,
        Ended::GaveUp => FailureReason::GaveUp,
        Ended::OutOfMemory => FailureReason::OutOfMemory,
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Takes a block, and lets `owner` reclaim and move pages as far as that is needed. A wait is taken to last until
    /// its bound; a caller that can do other work meanwhile drives an [`Attempt`] instead.
    ///
    /// ```
    /// use nofrag::cpu::CpuId;
    /// use nofrag::page::{
    ///     FragmentationPolicy, MemoryMap, Migrate, PageAllocator, PageConfig, PageRequest, Reclaim, ReclaimRequest,
    ///     Reclaimed,
    /// };
    /// use nofrag::units::{Nanos, Order, PageCount, Pfn};
    ///
    /// /// A cache that can give back every page, and moves none.
    /// struct Cache {
    ///     cpu: CpuId,
    ///     pages: Vec<Pfn>,
    /// }
    ///
    /// impl Reclaim for Cache {
    ///     fn reclaim(&mut self, pages: &mut PageAllocator, wanted: ReclaimRequest) -> Reclaimed {
    ///         let count = self.pages.len().min(wanted.pages as usize);
    ///         for pfn in self.pages.drain(..count) {
    ///             pages.free(self.cpu, pfn).expect("the cache owns it");
    ///         }
    ///         let (pages, left) = (count as u64, self.pages.len() as u64);
    ///         Reclaimed { pages, scanned: pages, left }
    ///     }
    /// }
    ///
    /// impl Migrate for Cache {
    ///     fn migrate(&mut self, _from: Pfn, _to: Pfn, _order: Order) -> bool {
    ///         false
    ///     }
    /// }
    ///
    /// let map = MemoryMap::uma(PageCount(16_384), 0, 1)?;
    /// let cpu = map.cpus().by_rank(0).expect("it has one");
    /// let mut pages = PageAllocator::new(&PageConfig::new(map, FragmentationPolicy::LINUX_7_2))?;
    /// let mut cache = Cache { cpu, pages: Vec::new() };
    /// for _ in 0..100_000 {
    ///     let pfn = pages.serve(Nanos(0), cpu, PageRequest::user(Order::ZERO), &mut cache)?;
    ///     cache.pages.push(pfn);
    /// }
    /// assert!(pages.counters().reclaimed_direct > 80_000);
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`FailureReport`] if the request cannot be served.
    #[expect(
        clippy::result_large_err,
        reason = "failures are rare, and without an allocation no box"
    )]
    pub fn serve<O: Reclaim<E> + Migrate>(
        &mut self,
        now: Nanos,
        cpu: CpuId,
        request: PageRequest,
        owner: &mut O,
    ) -> Result<Pfn, FailureReport> {
        let mut attempt = match self.alloc(now, cpu, request) {
            Ok(pfn) => return Ok(pfn),
            Err(attempt) => attempt,
        };
        let (mut now, mut outcome) = (now, Outcome::Begin);
        loop {
            outcome = match attempt.advance(self, now, outcome) {
                Next::Done(pfn) => return Ok(pfn),
                Next::Fail(report) => return Err(report),
                Next::Reclaim(wanted) => Outcome::Reclaimed(owner.reclaim(self, wanted)),
                Next::Migrate(moves) => Outcome::Migrated(moves.carry_out(owner)),
                Next::Stall { until } => {
                    now = until;
                    Outcome::Waited
                }
            };
        }
    }

    /// Returns the zones that a request may use, best first.
    pub(super) fn zones_for(
        &self,
        cpu: CpuId,
        request: &PageRequest,
    ) -> impl Iterator<Item = ZoneId> + '_ {
        let request = *request;
        let node = self.nodes.get(self.home(cpu, &request).index());
        let list = node.map_or(&[][..], |node| node.zonelist.of(&request));
        let allowed = move |id: &ZoneId| self.zones[id.index()].is_allowed(&request);
        list.iter().copied().filter(allowed)
    }

    /// Returns `place` with the highest usable zone of the node at that place of the zonelist; `None` behind the last
    /// node.
    fn next_node(
        &self,
        cpu: CpuId,
        request: &PageRequest,
        place: usize,
    ) -> Option<(usize, ZoneId)> {
        let mut before = None;
        let mut firsts = self.zones_for(cpu, request).filter(|id| {
            let node = self.zones[id.index()].node;
            before.replace(node) != Some(node)
        });
        firsts.nth(place).map(|zone| (place, zone))
    }

    /// Wakes the kswapd of every node that may serve the request, if the request allows it. Defrag mode asks for whole
    /// pageblocks at least.
    pub(super) fn wake_all_kswapds(&mut self, cpu: CpuId, request: &PageRequest) {
        if !request.flags.has(RequestFlags::KSWAPD_RECLAIM) {
            return;
        }
        let least = match self.policy.spread {
            Spread::EveryRequest => Order::PAGEBLOCK,
            _ => Order::ZERO,
        };
        let order = request.order.max(least);
        let reclaims = request.flags.has(RequestFlags::DIRECT_RECLAIM);
        let waker = if reclaims { Waker::Reclaims } else { Waker::CannotReclaim };
        let mut place = 0;
        while let Some((at, zone)) = self.next_node(cpu, request, place) {
            let wanted = KswapdGoal { order, highest: request.zone };
            self.wake_kswapd_for(zone, wanted, waker);
            place = at + 1;
        }
    }

    fn note_direct_reclaim(&mut self, node: NodeId, came: u64) {
        self.counters.reclaimed_direct = self.counters.reclaimed_direct.saturating_add(came);
        if came > 0 {
            self.nodes[node.index()].kswapd.failures = 0;
        }
    }

    fn note_stall(&mut self, node: NodeId, waited: Nanos) {
        if waited == Nanos(0) {
            return;
        }
        self.counters.stalls += 1;
        self.counters.stalled = Nanos(self.counters.stalled.0.saturating_add(waited.0));
        self.events.record(Event::Page(PageEvent::FragmentationStall { node, waited }));
    }

    /// Reports, at most once in ten seconds, that a request takes longer than that (7.2).
    fn warn_of_long(&mut self, now: Nanos, began: Nanos, request: &PageRequest) {
        let since = |then: Nanos| now.0.saturating_sub(then.0);
        let lately = self.warned.is_some_and(|then| since(then) < LONG.0);
        if since(began) < LONG.0 || lately {
            return;
        }
        self.warned = Some(now);
        let PageRequest { order, migratetype, .. } = *request;
        let waited = Nanos(since(began));
        self.events.record(Event::Page(PageEvent::AllocationStall { order, migratetype, waited }));
    }
}
