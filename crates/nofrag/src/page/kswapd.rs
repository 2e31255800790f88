//! kswapd: reclaims in the background until a node's watermarks are met.
//!
//! A *run* is made of passes. Each pass asks the owner for pages at one priority; the lower the number, the larger the
//! part of memory that may be looked at. A run ends when some zone that its waker can use stands above its high mark
//! with a block of the wanted size, or when the lowest priority has been used up. For a large block a pass goes over
//! the node until compaction can begin (`reclaim`). What was asked for is forgotten once a compaction's worth of pages
//! has been reclaimed in the run: then single pages do, and kcompactd makes blocks of them.
//!
//! Before it sleeps it *dozes* for a tenth of a second. Then it looks whether the node still is balanced, as nobody
//! would wake it before free memory is down at the low marks; if it is not, it makes another run.
//!
//! A *boosted* run (patch 4) starts when zones stand at raised marks. It notes the boosts, reclaims as many pages, and
//! takes the noted boosts away when it ends, so that those added meanwhile stay for the next run. As long as the node
//! is balanced otherwise, it must not hurt: it neither writes nor swaps, looks at 1/1024 of memory at most a pass, and
//! ends when a pass brings nothing. If the node is not balanced, the run goes on as an ordinary one.
//!
//! While a run lasts, CPUs keep few pages on their lists of the node's zones, so that what is reclaimed gets to the
//! free lists, where the marks are looked at (`ZONE_RECLAIM_ACTIVE`).
//!
//! A node whose runs brought nothing sixteen times in a row is *hopeless*: it is left to callers until one of them
//! reclaims something.
//!
//! Where this differs from its rules (docs/sources/pages.md#boosted-run, pages.md#kswapd-pass, pages.md#patch-5,
//! pages.md#defrag-mode), or says more than they do:
//!
//! * A pass is cut into as many calls of the owner as the budget of the steps makes of it. It asks for no more than the
//!   share of memory that its priority may look at, so that an owner that ignores the priority does not reclaim the
//!   whole distance to the marks at once. It ends early when the owner gives less than it was asked for.
//! * The marks are compared as for a request: free pages less what is kept from the highest zone must be above the
//!   mark, not equal to it.
//! * Waiters of patch 5 also go on when it falls asleep, as there is nothing left to wait for.
//! * What makes a hopeless node hopeful again is a page reclaimed by anybody.

use super::allocator::PageAllocator;
use super::compaction::{gap, whole_block_pages};
use super::event::PageEvent;
use super::map::{NodeId, ZoneKind};
use super::owner::{Reclaim, ReclaimRequest, ReclaimScope, Reclaimed};
use super::policy::{Fixes, Spread};
use super::slow_path::{BATCH, FIRST_PRIORITY};
use super::walk::{AllocFlags, Mark};
use super::zone::{Zone, ZoneId};
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order};

/// Most work that a step of a background machine may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBudget {
    /// Pages that the step may ask the owner to reclaim, or frames that it may scan.
    pub pages: u64,
}

/// Work that a step of a background machine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageProgress {
    /// Pages that were reclaimed or moved.
    pub pages: u64,
    /// True if there is more to do at once.
    pub more: bool,
    /// Time of the next look, if nothing wakes the machine before.
    pub wake_at: Option<Nanos>,
}

/// Length of a doze (`HZ / 10`).
const DOZE: Nanos = Nanos(100_000_000);

/// Runs in a row without a page after which a node is hopeless (`MAX_RECLAIM_RETRIES`).
const HOPELESS: u8 = 16;

/// A boosted run looks no harder than this: at 1/1024 of memory.
const BOOST_PRIORITY: u8 = FIRST_PRIORITY - 2;

/// The lowest priority of kswapd. At 0 it would look at all of memory; that is left to callers.
const LAST_PRIORITY: u8 = 1;

/// Mailbox of a node's kswapd, and its state for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KswapdBox {
    /// All that kswapd was woken for since it last looked.
    pub(super) wanted: Option<KswapdGoal>,
    /// True if kswapd is at work, or about to be.
    pub(super) awake: bool,
    /// Runs in a row that brought nothing (`kswapd_failures`).
    pub(super) failures: u8,
    /// Number of times that kswapd has let waiters go on (patch 5).
    pub(super) releases: u64,
}

/// Goal that kswapd was woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KswapdGoal {
    /// The largest block that was asked for (`kswapd_order`).
    pub(super) order: Order,
    /// The highest zone whose pages somebody can use (`kswapd_highest_zoneidx`).
    pub(super) highest: ZoneKind,
}

impl KswapdGoal {
    pub(super) fn and(self, other: Option<KswapdGoal>) -> KswapdGoal {
        let other = other.unwrap_or(self);
        KswapdGoal { order: self.order.max(other.order), highest: self.highest.max(other.highest) }
    }

    /// Returns the same goal for blocks of this size.
    fn of(self, order: Order) -> KswapdGoal {
        KswapdGoal { order, ..self }
    }
}

/// Work that the waker of kswapd may do itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waker {
    /// The waker reclaims and compacts itself.
    Reclaims,
    /// The waker can do neither.
    CannotReclaim,
}

/// State of a node's kswapd, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KswapdInfo {
    /// The largest block that kswapd was asked for since it last looked, and the highest zone that can be used; `None`
    /// if nobody asked.
    pub asked: Option<(Order, ZoneKind)>,
    /// True if kswapd is at work, or about to be: [`Kswapd::step`] has something to do.
    pub awake: bool,
    /// Runs in a row that brought nothing; from 16 on kswapd is no longer woken.
    pub failures: u8,
}

impl<E: EventSink> PageAllocator<E> {
    /// Returns the state of a node's kswapd; `None` if there is no such node.
    #[must_use]
    pub fn kswapd(&self, node: NodeId) -> Option<KswapdInfo> {
        let mail = &self.nodes.get(node.index())?.kswapd;
        let asked = mail.wanted.map(|wanted| (wanted.order, wanted.highest));
        Some(KswapdInfo { asked, awake: mail.awake, failures: mail.failures })
    }

    /// Asks the kswapd of a zone's node for a block of this size in this zone or below it.
    pub(super) fn wake_kswapd(&mut self, zone: ZoneId, order: Order) {
        let highest = self.zones[zone.index()].kind;
        self.wake_kswapd_for(zone, KswapdGoal { order, highest }, Waker::CannotReclaim);
    }

    /// Asks the kswapd of a zone's node (`wakeup_kswapd`). If the node is balanced without boosts, or hopeless, and the
    /// waker cannot reclaim itself, memory is free but fragmented, and kcompactd is asked instead.
    pub(super) fn wake_kswapd_for(&mut self, zone: ZoneId, wanted: KswapdGoal, waker: Waker) {
        let node = self.zones[zone.index()].node;
        let mail = &self.nodes[node.index()].kswapd;
        let idle = self.is_balanced(node, wanted) && self.boosts(node, wanted.highest).is_empty();
        if mail.failures >= HOPELESS || idle {
            if waker == Waker::CannotReclaim {
                self.wake_kcompactd(node, wanted.order, wanted.highest);
            }
            return;
        }
        let mail = &mut self.nodes[node.index()].kswapd;
        mail.wanted = Some(wanted.and(mail.wanted));
        if mail.awake {
            return;
        }
        mail.awake = true;
        self.counters.kswapd_wakes += 1;
        let order = wanted.order;
        self.events.record(Event::Page(PageEvent::KswapdWoken { node, order }));
    }

    /// Returns the zones of a node with memory, up to a kind.
    pub(super) fn zones_of(&self, node: NodeId, highest: ZoneKind) -> impl Iterator<Item = &Zone> {
        let usable =
            move |zone: &&Zone| zone.node == node && zone.kind <= highest && zone.managed.0 > 0;
        self.zones.iter().filter(usable)
    }

    /// Returns true if some zone of the node stands above its high mark, boost included, with a block of the wanted
    /// size (`pgdat_balanced`), or if the node has no such zones.
    pub(super) fn is_balanced(&self, node: NodeId, wanted: KswapdGoal) -> bool {
        let mut none = true;
        let defrag = self.policy.spread == Spread::EveryRequest;
        let meets = |zone: &Zone| {
            let mark = zone.mark(Mark::High);
            let KswapdGoal { order, highest } = wanted;
            if defrag && order >= Order::PAGEBLOCK {
                return whole_block_pages(zone) >= mark.max(1) + zone.reserve[highest.index()];
            }
            zone.keeps(mark, order, highest, AllocFlags::at(Mark::High))
        };
        self.zones_of(node, wanted.highest).inspect(|_| none = false).any(meets) || none
    }

    /// Returns the boosts of a node's zones up to `highest`.
    fn boosts(&self, node: NodeId, highest: ZoneKind) -> Boosts {
        let mut boosts = Boosts::default();
        for zone in self.zones_of(node, highest) {
            boosts.0[zone.kind.index()] = zone.boost;
        }
        boosts
    }

    /// Records that a run begins or ends: while it lasts, CPUs keep little on their lists.
    pub(super) fn set_reclaims(&mut self, node: NodeId, highest: ZoneKind, reclaims: Reclaims) {
        let zones = self.zones.iter_mut();
        for zone in zones.filter(|zone| zone.node == node && zone.kind <= highest) {
            zone.shortage.reclaims = reclaims == Reclaims::Now;
        }
    }

    /// Takes away the boosts that a run has noted; boosts added since stay.
    fn settle_boosts(&mut self, node: NodeId, noted: &Boosts) {
        for zone in self.zones.iter_mut().filter(|zone| zone.node == node) {
            zone.boost -= zone.boost.min(noted.0[zone.kind.index()]);
        }
    }

    /// Returns true if callers may reclaim themselves without taking the last pages from those that free some
    /// (`allow_direct_reclaim`): more than half of the node's min watermarks is free, or kswapd has given the node up.
    fn allows_direct_reclaim(&self, node: NodeId) -> bool {
        let sum = |of: fn(&Zone) -> u64| self.zones_of(node, ZoneKind::Normal).map(of).sum::<u64>();
        let reserve = sum(|zone| zone.mark(Mark::Min));
        let hopeless = self.nodes[node.index()].kswapd.failures >= HOPELESS;
        hopeless || reserve == 0 || sum(|zone| zone.lists.total()) > reserve / 2
    }

    /// Returns the most pages that a step asks for: twice what it takes to find a node hopeless. An owner may say that
    /// it reclaims and never balance the node, and a step has to end.
    fn most_of_step(&self, node: NodeId) -> u64 {
        let managed: u64 = self.zones_of(node, ZoneKind::Movable).map(|zone| zone.managed.0).sum();
        let least = BATCH * u64::from(FIRST_PRIORITY);
        2 * u64::from(HOPELESS) * (managed + least)
    }

    /// Returns the pages that a pass is to bring: all of the high watermarks, at least a batch for each zone.
    fn pass_target(&self, node: NodeId, highest: ZoneKind) -> u64 {
        self.zones_of(node, highest).map(|zone| zone.mark(Mark::High).max(BATCH)).sum()
    }
}

/// Begin or end of a run of kswapd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reclaims {
    Now,
    NoLonger,
}

/// Boosts of a node's zones, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Boosts([u64; ZoneKind::COUNT]);

impl Boosts {
    fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    fn is_empty(&self) -> bool {
        self.sum() == 0
    }
}

/// The reclaim thread of a node, as a background machine.
#[derive(Debug)]
pub struct Kswapd {
    node: NodeId,
    run: Option<Run>,
    doze: Option<Doze>,
}

/// State of a kswapd that is about to sleep.
#[derive(Clone, Copy, Debug)]
struct Doze {
    until: Nanos,
    /// Goal of the run before the doze.
    wanted: KswapdGoal,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    wanted: KswapdGoal,
    /// Size of the blocks that the run still reclaims for.
    order: Order,
    /// Boosts that stood when the run began.
    noted: Boosts,
    /// Pages that the run is still to reclaim for the boosts.
    boost: u64,
    priority: u8,
    reclaimed: u64,
    pass: Option<Pass>,
}

/// One pass of a run. For a large block it goes over the node again and again.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// Number of pages looked at after which looking harder would not bring more.
    target: u64,
    /// Pages still to be asked for this time over the node.
    left: u64,
    /// Result of all times over the node.
    came: Reclaimed,
    /// Pages that came this time over the node.
    came_now: u64,
    /// Number of times that the pass has gone over the node, this time included.
    times: u64,
}

/// Next part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Pass,
    /// Start over from the first priority, as an ordinary run.
    StartOrdinary,
    End,
}

/// Reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The node is balanced, and boosts are worked off.
    Balanced,
    /// A boosted pass brought nothing, or the last priority is used up.
    Exhausted,
}

impl Run {
    fn new(wanted: KswapdGoal, noted: Boosts) -> Run {
        let (boost, order) = (noted.sum(), wanted.order);
        let (priority, reclaimed, pass) = (FIRST_PRIORITY, 0, None);
        Run { wanted, order, noted, boost, priority, reclaimed, pass }
    }

    /// Decides what to do before a pass, on a node that is balanced or not.
    fn turn(&self, balanced: bool) -> Turn {
        match (balanced, self.boost > 0) {
            (false, true) => Turn::StartOrdinary,
            (true, false) => Turn::End,
            (true, true) | (false, false) => Turn::Pass,
        }
    }

    /// Returns the scope of reclaim for a pass.
    fn scope(&self, fixes: Fixes) -> ReclaimScope {
        let ordinary = self.boost == 0;
        let slab = ordinary || fixes.has(Fixes::SLAB_SHRINKS);
        ReclaimScope { write: ordinary, swap: ordinary, slab }
    }

    /// Records a whole pass; returns the reason if the run ends with it. Once `gap` pages are reclaimed, the run goes
    /// on for single pages.
    fn after(&mut self, pass: &Pass, gap: u64) -> Option<Ended> {
        let came = pass.came.pages;
        let boosted = self.boost > 0;
        // A boosted run looks no harder; others do not where that would not bring more.
        let limited = boosted && self.priority == BOOST_PRIORITY;
        let enough = pass.came.scanned.max(came) >= pass.target;
        self.boost -= self.boost.min(came);
        self.reclaimed = self.reclaimed.saturating_add(came);
        if boosted && came == 0 {
            return Some(Ended::Exhausted);
        }
        if self.order > Order::ZERO && self.reclaimed >= gap {
            self.order = Order::ZERO;
        }
        if came == 0 || !limited && !enough {
            self.priority -= 1;
        }
        (self.priority < LAST_PRIORITY).then_some(Ended::Exhausted)
    }
}

impl Pass {
    fn note(&mut self, came: Reclaimed) {
        self.came_now = self.came_now.saturating_add(came.pages);
        self.came.pages = self.came.pages.saturating_add(came.pages);
        self.came.scanned = self.came.scanned.saturating_add(came.scanned);
        self.came.left = came.left;
    }
}

impl Kswapd {
    /// Makes the kswapd of a node.
    #[must_use]
    pub const fn new(node: NodeId) -> Kswapd {
        Kswapd { node, run: None, doze: None }
    }

    /// Does some work, if there is any: asks the owner for at most `budget` pages in all, and however large that is,
    /// for no more than the node's memory some dozens of times over. There is something to do while
    /// [`KswapdInfo::awake`] is true, and at the time `wake_at` of the progress. Nothing happens on a node that does
    /// not exist.
    pub fn step<E: EventSink>(
        &mut self,
        now: Nanos,
        pages: &mut PageAllocator<E>,
        owner: &mut impl Reclaim<E>,
        budget: PageBudget,
    ) -> PageProgress {
        let mut progress = PageProgress::default();
        let mut left = budget.pages.min(pages.most_of_step(self.node));
        while let Some(run) = self.current(now, pages) {
            let Some(mut pass) = run.pass.or_else(|| self.next_pass(now, pages)) else { continue };
            let run = self.run.as_mut().expect("a pass belongs to a run");
            let share = pass.left.min(left);
            if share == 0 {
                run.pass = Some(pass);
                return PageProgress { more: true, ..progress };
            }
            let came = reclaim(self.node, run, pages, owner, share);
            left -= share;
            pass.left -= share;
            pass.note(came);
            progress.pages = progress.pages.saturating_add(came.pages);
            run.pass = Some(pass);
            // An owner that gave less than it was asked for has looked as hard as the priority allows.
            if pass.left == 0 || came.pages < share {
                self.end_time(now, pages);
            }
        }
        PageProgress { wake_at: self.doze.map(|doze| doze.until), ..progress }
    }

    /// Gives up the work, and leaves it to another `Kswapd` of the node. A `Kswapd` that is dropped in the middle of a
    /// run leaves the lists of CPUs short until the next run on the node ends.
    pub fn abandon<E: EventSink>(self, pages: &mut PageAllocator<E>) {
        let Some(run) = self.run else { return };
        pages.set_reclaims(self.node, run.wanted.highest, Reclaims::NoLonger);
        let mail = &mut pages.nodes[self.node.index()].kswapd;
        mail.wanted = Some(run.wanted.and(mail.wanted));
    }

    /// Returns the run that is under way, or one for the goal that was asked for, or for the pages missing after a
    /// doze.
    fn current<E: EventSink>(&mut self, now: Nanos, pages: &mut PageAllocator<E>) -> Option<Run> {
        if self.run.is_none() {
            let asked = pages.nodes.get_mut(self.node.index())?.kswapd.wanted.take();
            let wanted = asked.or_else(|| self.wakes_up(now, pages))?;
            self.doze = None;
            pages.counters.kswapd_runs += 1;
            let noted = pages.boosts(self.node, wanted.highest);
            pages.set_reclaims(self.node, wanted.highest, Reclaims::Now);
            self.run = Some(Run::new(wanted, noted));
        }
        self.run
    }

    /// Ends a doze: returns the goal of another run, or goes to sleep.
    fn wakes_up<E: EventSink>(
        &mut self,
        now: Nanos,
        pages: &mut PageAllocator<E>,
    ) -> Option<KswapdGoal> {
        let Doze { wanted, .. } = self.doze.take_if(|doze| doze.until <= now)?;
        let unbalanced = !pages.is_balanced(self.node, wanted);
        let mail = &mut pages.nodes[self.node.index()].kswapd;
        mail.awake = unbalanced && mail.failures < HOPELESS;
        if mail.awake {
            return Some(wanted);
        }
        pages.events.record(Event::Page(PageEvent::KswapdSleeps { node: self.node }));
        None
    }

    /// Begins a pass, or ends the run if there is nothing left to do.
    fn next_pass<E: EventSink>(
        &mut self,
        now: Nanos,
        pages: &mut PageAllocator<E>,
    ) -> Option<Pass> {
        let run = self.run.as_mut().expect("passes belong to a run");
        let highest = run.wanted.highest;
        match run.turn(pages.is_balanced(self.node, run.wanted.of(run.order))) {
            Turn::StartOrdinary => {
                (run.boost, run.priority) = (0, FIRST_PRIORITY);
                None
            }
            Turn::End => {
                self.end_run(now, pages, Ended::Balanced);
                None
            }
            Turn::Pass => {
                let target = pages.pass_target(self.node, highest);
                let share = pages.share(self.node, run.wanted, run.priority);
                Some(Pass { target, left: target.min(share), times: 1, ..Pass::default() })
            }
        }
    }

    /// Ends one time over the node: goes over it once more, or ends the pass.
    fn end_time<E: EventSink>(&mut self, now: Nanos, pages: &mut PageAllocator<E>) {
        let run = self.run.as_mut().expect("passes belong to a run");
        let pass = run.pass.as_mut().expect("the owner was asked for a pass");
        let wanted = run.wanted.of(run.order);
        let came = Reclaimed { pages: pass.came_now, ..pass.came };
        if pages.repeats((self.node, wanted), run.priority, pass.times, came) {
            let share = pages.share(self.node, wanted, run.priority);
            (pass.left, pass.came_now, pass.times) =
                (pass.target.min(share), 0, pass.times.saturating_add(1));
            return;
        }
        self.end_pass(now, pages);
    }

    fn end_pass<E: EventSink>(&mut self, now: Nanos, pages: &mut PageAllocator<E>) {
        let run = self.run.as_mut().expect("passes belong to a run");
        let pass = run.pass.take().expect("a pass has ended");
        let limited = run.boost > 0 && run.priority == BOOST_PRIORITY;
        let gap = gap(&pages.policy.compaction, run.order);
        let ended = run.after(&pass, gap);
        if limited || pages.allows_direct_reclaim(self.node) {
            pages.nodes[self.node.index()].kswapd.releases += 1;
        }
        if let Some(ended) = ended {
            self.end_run(now, pages, ended);
        }
    }

    /// Settles what the run leaves behind, and sleeps or goes on.
    fn end_run<E: EventSink>(&mut self, now: Nanos, pages: &mut PageAllocator<E>, ended: Ended) {
        let run = self.run.take().expect("a run has ended");
        pages.set_reclaims(self.node, run.wanted.highest, Reclaims::NoLonger);
        let boosted = !run.noted.is_empty();
        if boosted {
            pages.settle_boosts(self.node, &run.noted);
            pages.wake_kcompactd(self.node, Order::PAGEBLOCK, run.wanted.highest);
        }
        let counts = !boosted || !pages.policy.fixes.has(Fixes::BOOST_NOT_COUNTED);
        let mail = &mut pages.nodes[self.node.index()].kswapd;
        if ended == Ended::Exhausted && run.reclaimed == 0 && counts {
            mail.failures = mail.failures.saturating_add(1);
        }
        let hopeless = mail.failures >= HOPELESS;
        if hopeless || pages.is_balanced(self.node, run.wanted.of(run.order)) {
            self.doze(pages, run.wanted);
            let until = Nanos(now.0.saturating_add(DOZE.0));
            self.doze = Some(Doze { until, wanted: run.wanted.of(run.order) });
        } else {
            let mail = &mut pages.nodes[self.node.index()].kswapd;
            mail.wanted = Some(run.wanted.and(mail.wanted));
        }
    }

    /// Asks kcompactd for a block of the wanted size, which reclaim cannot make. Waiters go on.
    fn doze<E: EventSink>(&self, pages: &mut PageAllocator<E>, wanted: KswapdGoal) {
        pages.forget_scans(self.node);
        pages.wake_kcompactd(self.node, wanted.order, wanted.highest);
        let mail = &mut pages.nodes[self.node.index()].kswapd;
        mail.releases += 1;
        mail.awake = mail.wanted.is_some();
    }
}

/// Asks the owner for `share` pages of a pass.
fn reclaim<E: EventSink>(
    node: NodeId,
    run: &Run,
    pages: &mut PageAllocator<E>,
    owner: &mut impl Reclaim<E>,
    share: u64,
) -> Reclaimed {
    let zones = pages.zones_of(node, run.wanted.highest);
    let highest = zones.map(|zone| (zone.kind, zone.id)).max();
    let Some((_, highest)) = highest else { return Reclaimed::default() };
    let may = run.scope(pages.policy.fixes);
    let priority = run.priority;
    let wanted = ReclaimRequest { node, highest, pages: share, priority, may };
    let came = owner.reclaim(pages, wanted);
    pages.counters.reclaimed_kswapd = pages.counters.reclaimed_kswapd.saturating_add(came.pages);
    if came.pages > 0 {
        pages.nodes[node.index()].kswapd.failures = 0;
    }
    came
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: KswapdGoal = KswapdGoal { order: Order::PAGEBLOCK, highest: ZoneKind::Normal };

    fn run(boost: u64) -> Run {
        let mut noted = Boosts::default();
        noted.0[ZoneKind::Normal.index()] = boost;
        Run::new(WANTED, noted)
    }

    /// Returns the state of a run after passes that brought these numbers of pages: the rest of the boost, the
    /// priority, the order, and true if the run has ended.
    fn after(mut run: Run, passes: &[u64]) -> (u64, u8, u8, bool) {
        let mut ended = None;
        for &pages in passes {
            assert_eq!(ended, None, "a run that has ended makes no passes");
            let came = Reclaimed { pages, scanned: pages, left: 0 };
            ended = run.after(&Pass { target: 1_000, came, ..Pass::default() }, 1_024);
        }
        (run.boost, run.priority, run.order.get(), ended.is_some())
    }

    #[test]
    fn a_run_ends_when_the_node_is_balanced_and_nothing_is_left_of_the_boost() {
        assert_eq!(run(0).turn(true), Turn::End);
        assert_eq!(run(0).turn(false), Turn::Pass);
        assert_eq!(run(512).turn(true), Turn::Pass);
        assert_eq!(run(512).turn(false), Turn::StartOrdinary);
    }

    #[test]
    fn each_pass_works_off_a_part_of_the_boost() {
        assert_eq!(after(run(1_024), &[500]), (524, 11, 9, false));
        assert_eq!(after(run(1_024), &[500, 500]), (24, 10, 9, false));
        assert_eq!(after(run(1_024), &[500, 600]), (0, 10, 0, false));
    }

    #[test]
    fn a_boosted_run_looks_no_harder_than_priority_10() {
        assert_eq!(after(run(1_024), &[1, 1, 1, 1, 1]), (1_019, 10, 9, false));
        assert_eq!(after(run(0), &[1, 1, 1, 1, 1]), (0, 7, 9, false));
    }

    #[test]
    fn a_boosted_pass_that_brings_nothing_ends_the_run() {
        assert_eq!(after(run(1_024), &[0]), (1_024, 12, 9, true));
        assert_eq!(after(run(1_024), &[100, 0]), (924, 11, 9, true));
    }

    #[test]
    fn an_ordinary_run_ends_below_priority_1() {
        assert_eq!(after(run(0), &[0; 11]), (0, 1, 9, false));
        assert_eq!(after(run(0), &[0; 12]), (0, 0, 9, true));
    }

    #[test]
    fn who_has_looked_at_enough_need_not_look_harder() {
        assert_eq!(after(run(0), &[1_000]), (0, 12, 9, false));
    }

    #[test]
    fn single_pages_do_once_a_compaction_can_begin() {
        assert_eq!(after(run(0), &[1_000, 23]), (0, 11, 9, false));
        assert_eq!(after(run(0), &[1_000, 24]), (0, 11, 0, false));
    }

    #[test]
    fn a_boosted_run_must_not_write_or_swap() {
        let scope = |run: Run, fixes| run.scope(fixes);
        assert_eq!(scope(run(0), Fixes::NONE), ReclaimScope::ALL);
        let careful = ReclaimScope { write: false, swap: false, slab: false };
        assert_eq!(scope(run(1), Fixes::NONE), careful);
        assert_eq!(scope(run(1), Fixes::SLAB_SHRINKS), ReclaimScope { slab: true, ..careful });
    }
}
