//! Decides what a request tries next when a pass has found nothing (`__alloc_pages_slowpath`), without an allocator.
//! [`Attempt`](super::Attempt) carries the decisions out and reports the results.
//!
//! ```text
//! pass at MIN ── might have mixed types (patch 5)? wait ── pass
//!   └ may compact first? asynchronous compaction and a pass ── huge page of this node only? fail
//!       └ round: pass with reserves ── reclaim, priority 12 to 0, until a batch came or a zone can be compacted
//!           ── if that was progress: pass ── drain ── pass
//!           └ compaction and a pass ── another round? else the HIGHATOMIC reserve, else mix (defrag mode), else fail
//! ```
//!
//! What bounds the rounds. Sixteen rounds in a row without a page reclaimed end the request; with progress, so does
//! compaction that has failed at its highest priority, or sixteen times at each; one that could not begin, as too
//! little was free, has not failed. Requests above [`Order::COSTLY`] get one round unless they ask for more. A kernel
//! tries for a single page for ever while reclaim reports progress, because others may be taking what it freed. Here
//! the owner may also be wrong, so a request ends when what it was told has been reclaimed for it amounts to all memory
//! twice.
//!
//! Where this differs from its rules (docs/sources/pages.md#slow-path, pages.md#patch-5, pages.md#defrag-mode), or says
//! more than they do:
//!
//! * The kernel guesses, from what could be reclaimed, whether another round can help. The allocator does not know what
//!   could be, so rounds without progress decide alone.
//! * Per-CPU lists are drained, and a HIGHATOMIC block is given back, only after a batch was reclaimed and did not
//!   help; without progress the reserve goes at the end, block by block.
//! * Defrag mode mixes types "before OOM" (pages.md#defrag-mode-mixing): for requests that would have something killed,
//!   or have asked to be spared that by `RETRY_MAYFAIL` or `THIS_NODE`. Requests that end earlier, because they are
//!   costly or are not to be retried, fail without mixing.
//! * Nothing is killed: [`Ended::OutOfMemory`] is an answer. Requests that Linux kills nobody for end as
//!   [`Ended::GaveUp`].
//! * The kernel compacts without waiting for costly requests that are not to be retried; which of them end after their
//!   first compaction differs by version ([`NoRetry`], pages.md#no-retry).

use super::compaction::{Compacted, Priority};
use super::migratetype::Migratetype;
use super::policy::{Fixes, FragmentationPolicy, KswapdFlag, NoRetry, Spread};
use super::request::{PageRequest, RequestFlags};
use super::walk::{AllocFlags, Mark};
use crate::units::Order;

/// Pages that callers reclaim at a time (`SWAP_CLUSTER_MAX`).
pub(super) const BATCH: u64 = 32;

/// Priority at which reclaim begins to look (`DEF_PRIORITY`); it ends at 0, where it looks at everything.
pub(super) const FIRST_PRIORITY: u8 = 12;

/// Rounds of reclaim without progress after which a request gives up (`MAX_RECLAIM_RETRIES`).
const BARREN_ROUNDS: u8 = 16;

/// Runs of compaction at one priority (`MAX_COMPACT_RETRIES`), and above [`Order::COSTLY`].
const COMPACTIONS: u8 = 16;
const COSTLY_COMPACTIONS: u8 = 4;

/// Next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Try {
    /// A pass over the zonelist.
    Pass(AllocFlags),
    /// Wake every kswapd that could help, then a pass.
    WakeAndPass(AllocFlags),
    /// Boost the preferred zone, wake its kswapd, and wait.
    Stall,
    /// Compact for a block of this size, then a pass unless compaction had nothing to do.
    Compact(Order, Priority, AllocFlags),
    /// Reclaim from all nodes at this priority.
    Reclaim(u8),
    /// Give back the pages on per-CPU lists, and one HIGHATOMIC block but not the last.
    Drain,
    /// Give back one HIGHATOMIC block, be it the last.
    ReleaseReserve,
    Fail(Ended),
}

/// Reason why a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The request must not reclaim.
    MayNotReclaim,
    /// The limits on retries were reached, or the request asked not to retry.
    GaveUp,
    /// Something would have to be killed.
    OutOfMemory,
}

/// Result of a step of the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The fast path found nothing.
    Begin,
    /// The pass found nothing.
    Nothing,
    /// The pass found a small block of another type, and spared it.
    Spared,
    Waited,
    /// Compaction ended like this, and the request has no block.
    Compacted(Compacted),
    /// Pages that were reclaimed on all nodes together; `ready` if a zone was left alone, as compaction can begin
    /// there.
    Reclaimed {
        pages: u64,
        ready: bool,
    },
    Drained,
    /// True if a HIGHATOMIC block was given back.
    Released(bool),
}

/// Step that the next [`Seen`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    FirstPass,
    Stall,
    SecondPass,
    EarlyCompaction,
    RoundPass,
    Reclaim,
    ReclaimPass,
    Drain,
    DrainPass,
    Compaction,
    Reserve,
    MixedPass,
    Over,
}

/// Parts of the policy that matter on the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    /// Movable requests may wait for kswapd before they mix types (patch 5).
    stalls: bool,
    /// Passes carry `ALLOC_KSWAPD` if the request may wake kswapd (patch 3).
    tells: bool,
    /// Callers that cannot reclaim may mix at last in defrag mode.
    spares_atomic: bool,
    /// When costly requests that are not to be retried end early.
    no_retry: NoRetry,
}

/// State of a request on the slow path.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowPath {
    request: PageRequest,
    rules: Rules,
    stage: Stage,
    /// True while small blocks of other types are left alone (defrag mode).
    no_fragment: bool,
    /// Reclaim's priority in this round.
    priority: u8,
    /// Pages that this round has reclaimed.
    freed: u64,
    /// Rounds in a row without progress.
    barren: u8,
    /// Effort of compaction, its runs so far, and its last result.
    effort: Priority,
    compactions: u8,
    compacted: Option<Compacted>,
    /// Pages that rounds may still reclaim.
    left: u64,
}

impl SlowPath {
    /// Begins the slow path of a request on a machine of `managed` pages; `no_fragment` is true in defrag mode, if
    /// `ALLOC_NOFRAGMENT` exists on that machine.
    pub(super) fn new(
        request: PageRequest,
        policy: &FragmentationPolicy,
        managed: u64,
        no_fragment: bool,
    ) -> SlowPath {
        SlowPath {
            request,
            rules: Rules {
                stalls: policy.stall.is_some(),
                tells: policy.kswapd_flag == KswapdFlag::Carried,
                spares_atomic: policy.fixes.has(Fixes::DEFRAG_ATOMIC),
                no_retry: policy.no_retry,
            },
            stage: Stage::Begin,
            no_fragment: no_fragment && policy.spread == Spread::EveryRequest,
            priority: FIRST_PRIORITY,
            freed: 0,
            barren: 0,
            effort: Priority::SyncLight,
            compactions: 0,
            compacted: None,
            left: managed.saturating_mul(2).max(BATCH),
        }
    }

    /// Decides the next step. An answer that does not fit counts as one that brought nothing; a request that has ended
    /// stays so.
    pub(super) fn next(&mut self, seen: Seen) -> Try {
        match self.stage {
            Stage::Begin => self.go(Stage::FirstPass, Try::WakeAndPass(self.first_flags())),
            Stage::FirstPass if seen == Seen::Spared && self.may_wait() => {
                self.go(Stage::Stall, Try::Stall)
            }
            Stage::Stall => self.go(Stage::SecondPass, Try::Pass(self.flags())),
            Stage::FirstPass | Stage::SecondPass => self.compact_early(),
            Stage::EarlyCompaction => self.after_early(seen),
            Stage::RoundPass => self.reclaim_or_end(),
            Stage::Reclaim => self.after_reclaim(seen),
            Stage::ReclaimPass => self.go(Stage::Drain, Try::Drain),
            Stage::Drain => self.go(Stage::DrainPass, Try::Pass(self.round_flags())),
            Stage::DrainPass => self.compact(),
            Stage::Compaction => self.after_compaction(seen),
            Stage::Reserve if seen == Seen::Released(true) && self.left > 0 => {
                self.left = self.left.saturating_sub(Order::PAGEBLOCK.pages());
                self.round()
            }
            Stage::Reserve => self.mix_or_end(),
            Stage::MixedPass => self.end(Ended::MayNotReclaim),
            Stage::Over => Try::Fail(Ended::GaveUp),
        }
    }

    /// Ends the slow path: the request was served, or nothing can serve it.
    pub(super) fn finish(&mut self) {
        self.stage = Stage::Over;
    }

    /// Returns true if the slow path has ended.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    fn go(&mut self, stage: Stage, next: Try) -> Try {
        self.stage = stage;
        next
    }

    fn end(&mut self, why: Ended) -> Try {
        self.go(Stage::Over, Try::Fail(why))
    }

    fn has(&self, flags: RequestFlags) -> bool {
        self.request.flags.has(flags)
    }

    fn is_costly(&self) -> bool {
        self.request.order > Order::COSTLY
    }

    /// Returns true if the caller frees memory itself or is to die: it gets reserves, and neither waits nor compacts
    /// first.
    fn is_privileged(&self) -> bool {
        self.has(RequestFlags::MEMALLOC) || self.has(RequestFlags::OOM_VICTIM)
    }

    fn may_wait(&self) -> bool {
        !self.has(RequestFlags::MEMALLOC)
    }

    /// Returns the flags of every pass of the slow path.
    fn flags(&self) -> AllocFlags {
        let wakes = self.has(RequestFlags::KSWAPD_RECLAIM) && self.rules.tells;
        let kswapd = if wakes { AllocFlags::KSWAPD } else { 0 };
        let keeps = if self.no_fragment { AllocFlags::NO_FRAGMENT } else { 0 };
        rights(&self.request).with(kswapd | keeps)
    }

    /// Returns the flags of the first pass, which carries patch 5's.
    fn first_flags(&self) -> AllocFlags {
        let stalls = self.rules.stalls
            && self.request.migratetype == Migratetype::Movable
            && self.has(RequestFlags::DIRECT_RECLAIM);
        self.flags().with(if stalls { AllocFlags::FRAGMENT_STALL } else { 0 })
    }

    /// Returns the flags of passes from the first round on, which let the privileged use the reserves.
    fn round_flags(&self) -> AllocFlags {
        with_reserves(&self.request, self.flags())
    }

    /// Returns the size of the block that reclaim and compaction are to make; `None` if there is nothing to compact
    /// for. In defrag mode requests that could not be moved away again get a whole pageblock.
    pub(super) fn block(&self) -> Option<Order> {
        let whole = self.no_fragment && self.request.migratetype != Migratetype::Movable;
        let order = self.request.order.max(if whole { Order::PAGEBLOCK } else { Order::ZERO });
        (order > Order::ZERO).then_some(order)
    }

    fn compact_early(&mut self) -> Try {
        let unmovable = self.request.migratetype != Migratetype::Movable;
        let early = self.is_costly() || unmovable;
        match self.block() {
            Some(order)
                if early && self.has(RequestFlags::DIRECT_RECLAIM) && !self.is_privileged() =>
            {
                let next = Try::Compact(order, Priority::Async, self.flags());
                self.go(Stage::EarlyCompaction, next)
            }
            _ => self.round(),
        }
    }

    /// Decides what follows the early compaction of a costly request that is not to be retried: [`NoRetry`] says when
    /// it ends, as a huge page of this node is not worth reclaiming for; otherwise it gets a round without waiting.
    fn after_early(&mut self, seen: Seen) -> Try {
        if !self.is_costly() || !self.has(RequestFlags::NO_RETRY) {
            return self.round();
        }
        let is_local = self.has(RequestFlags::THIS_NODE);
        let not_tried = [Compacted::Skipped, Compacted::Deferred].map(Seen::Compacted);
        let ends = match self.rules.no_retry {
            NoRetry::Deferred => seen == Seen::Compacted(Compacted::Deferred),
            NoRetry::NotTried => not_tried.contains(&seen),
            NoRetry::NotTriedOrLocal => is_local || not_tried.contains(&seen),
            NoRetry::Local => is_local,
        };
        if ends {
            return self.end(Ended::GaveUp);
        }
        self.effort = Priority::Async;
        self.round()
    }

    fn round(&mut self) -> Try {
        self.go(Stage::RoundPass, Try::WakeAndPass(self.round_flags()))
    }

    fn reclaim_or_end(&mut self) -> Try {
        if !self.has(RequestFlags::DIRECT_RECLAIM) {
            return self.mix_without_reclaim();
        }
        if self.has(RequestFlags::MEMALLOC) {
            return self.end(Ended::MayNotReclaim);
        }
        self.priority = FIRST_PRIORITY;
        self.freed = 0;
        self.go(Stage::Reclaim, Try::Reclaim(self.priority))
    }

    /// Lets a caller that may not reclaim, and so would starve in defrag mode, mix types once (pages.md#b-17).
    fn mix_without_reclaim(&mut self) -> Try {
        let may =
            self.rules.spares_atomic && self.has(RequestFlags::KSWAPD_RECLAIM) && self.no_fragment;
        if !may {
            return self.end(Ended::MayNotReclaim);
        }
        self.no_fragment = false;
        self.go(Stage::MixedPass, Try::Pass(self.round_flags()))
    }

    fn after_reclaim(&mut self, seen: Seen) -> Try {
        let (pages, ready) = match seen {
            Seen::Reclaimed { pages, ready } => (pages, ready),
            _ => (0, false),
        };
        self.freed = self.freed.saturating_add(pages);
        if ready {
            // Where compaction can begin there is nothing to reclaim, and that is as good as a page.
            self.freed = self.freed.max(1);
        } else if self.freed < BATCH && self.priority > 0 {
            self.priority -= 1;
            return self.go(Stage::Reclaim, Try::Reclaim(self.priority));
        }
        if self.freed == 0 {
            return self.compact();
        }
        self.go(Stage::ReclaimPass, Try::Pass(self.round_flags()))
    }

    fn compact(&mut self) -> Try {
        self.compacted = None;
        match self.block() {
            Some(order) => {
                let next = Try::Compact(order, self.effort, self.round_flags());
                self.go(Stage::Compaction, next)
            }
            None => self.judge(),
        }
    }

    fn after_compaction(&mut self, seen: Seen) -> Try {
        if let Seen::Compacted(result) = seen {
            self.compacted = Some(result);
        }
        self.judge()
    }

    /// Decides whether another round is worth it.
    fn judge(&mut self) -> Try {
        if self.has(RequestFlags::NO_RETRY) {
            return self.end(Ended::GaveUp);
        }
        if self.is_costly() && !self.has(RequestFlags::RETRY_MAYFAIL) {
            return self.end(Ended::GaveUp);
        }
        if self.is_worth_a_round() {
            return self.round();
        }
        self.go(Stage::Reserve, Try::ReleaseReserve)
    }

    /// Returns true if another round is worth it. Without progress a limit on rounds decides. With progress single
    /// pages are found in time; for larger blocks what compaction has reported decides (`should_reclaim_retry`,
    /// `should_compact_retry`).
    fn is_worth_a_round(&mut self) -> bool {
        let progress = self.freed > 0;
        if progress {
            self.left = self.left.saturating_sub(self.freed.max(BATCH));
        }
        // Single pages do not help a costly request, so they are no progress for it.
        let barren = self.barren.saturating_add(1);
        self.barren = if progress && !self.is_costly() { 0 } else { barren };
        if self.barren > BARREN_ROUNDS || self.left == 0 {
            return false;
        }
        !progress || self.request.order == Order::ZERO || self.is_worth_compacting()
    }

    fn is_worth_compacting(&mut self) -> bool {
        // Nothing was tried, as too little was free: what has been reclaimed since may be what was missing. It is not
        // when the marks stand boosted above what is free, but then kswapd is about to lower them.
        if self.compacted == Some(Compacted::Skipped) {
            return true;
        }
        let most = if self.is_costly() { COSTLY_COMPACTIONS } else { COMPACTIONS };
        if self.compacted != Some(Compacted::Complete) && self.compactions < most {
            self.compactions += 1;
            return true;
        }
        let last = if self.is_costly() { Priority::SyncLight } else { Priority::SyncFull };
        match self.effort.harder() {
            Some(harder) if self.effort < last => {
                self.effort = harder;
                self.compactions = 0;
                true
            }
            _ => false,
        }
    }

    /// Mixes types in a last round in defrag mode, before anything is killed, or ends the request: reclaim and
    /// compaction have failed.
    fn mix_or_end(&mut self) -> Try {
        if self.no_fragment {
            self.no_fragment = false;
            return self.round();
        }
        let spared =
            RequestFlags::RETRY_MAYFAIL.0 | RequestFlags::THIS_NODE.0 | RequestFlags::OOM_VICTIM.0;
        let kills = !self.is_costly() && self.request.flags.0 & spared == 0;
        self.end(if kills { Ended::OutOfMemory } else { Ended::GaveUp })
    }
}

/// Returns the flags that say how far down the passes of a request's slow path may go (`gfp_to_alloc_flags`;
/// docs/sources/pages.md#no-memalloc).
pub(super) fn rights(request: &PageRequest) -> AllocFlags {
    let high = request.flags.has(RequestFlags::HIGH);
    let may_not = RequestFlags::DIRECT_RECLAIM.0 | RequestFlags::NO_MEMALLOC.0;
    let atomic = high && request.flags.0 & may_not == 0;
    let bits = [
        (AllocFlags::MIN_RESERVE, high),
        (AllocFlags::NON_BLOCK, atomic),
        (AllocFlags::HIGH_ATOMIC, atomic && request.order > Order::ZERO),
        (AllocFlags::CMA, request.flags.has(RequestFlags::CMA)),
    ];
    let set = bits.iter().filter(|(_, set)| *set);
    set.fold(AllocFlags::at(Mark::Min), |flags, (bit, _)| flags.with(*bit))
}

/// Adds the rights of callers that free memory themselves, or are to die.
pub(super) fn with_reserves(request: &PageRequest, flags: AllocFlags) -> AllocFlags {
    if request.flags.has(RequestFlags::MEMALLOC) && !request.flags.has(RequestFlags::NO_MEMALLOC) {
        return flags.without_mark();
    }
    flags.with(if request.flags.has(RequestFlags::OOM_VICTIM) { AllocFlags::OOM } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::super::testing::order;
    use super::*;
    use crate::page::PolicyPreset;
    use crate::page::policy::Stall;
    use crate::units::Nanos;

    const MANAGED: u64 = 4_096;

    /// Returns the steps of a request if nothing ever helps: `progress` pages are reclaimed at each priority, and
    /// compaction ends like this.
    fn tries(
        request: PageRequest,
        policy: &FragmentationPolicy,
        progress: u64,
        compacted: Compacted,
    ) -> Vec<Try> {
        let mut path =
            SlowPath::new(request, policy, MANAGED, policy.spread == Spread::EveryRequest);
        let (mut tries, mut seen) = (Vec::new(), Seen::Begin);
        loop {
            let next = path.next(seen);
            tries.push(next);
            seen = match next {
                Try::Pass(flags) | Try::WakeAndPass(flags)
                    if flags.has(AllocFlags::FRAGMENT_STALL) =>
                {
                    Seen::Spared
                }
                Try::Pass(_) | Try::WakeAndPass(_) => Seen::Nothing,
                Try::Stall => Seen::Waited,
                Try::Compact(..) => Seen::Compacted(compacted),
                Try::Reclaim(_) => Seen::Reclaimed { pages: progress, ready: false },
                Try::Drain => Seen::Drained,
                Try::ReleaseReserve => Seen::Released(false),
                Try::Fail(_) => return tries,
            };
            assert!(tries.len() < 20_000, "it never ends: {request:?}");
        }
    }

    /// Draws the tries as letters: p and w passes, s stall, c compaction, r a round of reclaim, d drain, h reserve.
    fn picture(tries: &[Try]) -> String {
        let mut picture = String::new();
        for each in tries {
            picture.push(match each {
                Try::Pass(_) => 'p',
                Try::WakeAndPass(_) => 'w',
                Try::Stall => 's',
                Try::Compact(..) => 'c',
                Try::Reclaim(FIRST_PRIORITY) => 'r',
                Try::Reclaim(_) => continue,
                Try::Drain => 'd',
                Try::ReleaseReserve => 'h',
                Try::Fail(Ended::MayNotReclaim) => 'N',
                Try::Fail(Ended::GaveUp) => 'G',
                Try::Fail(Ended::OutOfMemory) => 'O',
            });
        }
        picture
    }

    #[track_caller]
    fn check(request: PageRequest, policy: &FragmentationPolicy, progress: u64, is: &str) {
        let tries = tries(request, policy, progress, Compacted::Partial);
        assert_eq!(picture(&tries), is, "{request:?}");
    }

    fn reclaimed(pages: u64) -> Seen {
        Seen::Reclaimed { pages, ready: false }
    }

    const VANILLA: FragmentationPolicy = FragmentationPolicy::LINUX_4_20;

    fn defrag() -> FragmentationPolicy {
        FragmentationPolicy { spread: Spread::EveryRequest, fixes: Fixes::ALL, ..VANILLA }
    }

    #[test]
    fn who_may_not_reclaim_looks_twice_and_gives_up() {
        check(PageRequest::atomic(Order::ZERO), &VANILLA, 0, "wwN");
        check(PageRequest::atomic(order(9)), &VANILLA, 0, "wwN");
    }

    #[test]
    fn without_progress_sixteen_rounds_are_tried_after_the_first() {
        let rounds = "wr".repeat(17);
        check(PageRequest::user(Order::ZERO), &VANILLA, 0, &format!("w{rounds}hO"));
    }

    #[test]
    fn a_round_of_reclaim_goes_down_to_priority_0() {
        let tries = tries(PageRequest::user(Order::ZERO), &VANILLA, 0, Compacted::Skipped);
        let priorities = tries.iter().filter_map(|each| match each {
            Try::Reclaim(priority) => Some(*priority),
            _ => None,
        });
        let first: Vec<u8> = priorities.take(14).collect();
        assert_eq!(first, [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 12]);
    }

    #[test]
    fn a_batch_ends_a_round_of_reclaim() {
        let mut path = SlowPath::new(PageRequest::user(Order::ZERO), &VANILLA, MANAGED, false);
        let seen = [Seen::Begin, Seen::Nothing, Seen::Nothing, reclaimed(31)];
        let last = seen.map(|seen| path.next(seen))[3];
        assert_eq!(last, Try::Reclaim(11));
        assert_eq!(path.next(reclaimed(1)), Try::Pass(AllocFlags::at(Mark::Min)));
    }

    #[test]
    fn costly_requests_get_one_round() {
        check(PageRequest::user(order(4)), &VANILLA, 0, "wcwrcG");
        check(PageRequest::user(order(4)), &VANILLA, 32, "wcwrpdpcG");
    }

    #[test]
    fn costly_requests_that_may_fail_try_harder() {
        let may_fail = RequestFlags::RECLAIM.with(RequestFlags::RETRY_MAYFAIL);
        let rounds = "wrc".repeat(17);
        check(PageRequest::user(order(4)).flags(may_fail), &VANILLA, 0, &format!("wc{rounds}hG"));
        let rounds = "wrpdpc".repeat(5);
        check(PageRequest::user(order(4)).flags(may_fail), &VANILLA, 32, &format!("wc{rounds}hG"));
    }

    #[test]
    fn with_progress_compaction_is_tried_sixteen_times_at_each_priority() {
        let rounds = "wrpdpc".repeat(17 + 17);
        check(PageRequest::user(order(3)), &VANILLA, 32, &format!("w{rounds}hO"));
    }

    #[test]
    fn with_progress_nothing_is_killed_while_compaction_has_too_little_to_begin_with() {
        let rounds = picture(&tries(PageRequest::user(order(3)), &VANILLA, 32, Compacted::Skipped));
        let all_memory_twice = (2 * MANAGED / BATCH) as usize;
        assert_eq!(rounds.matches('r').count(), all_memory_twice, "{rounds}");
    }

    #[test]
    fn compaction_first_for_costly_orders_and_for_what_cannot_be_moved() {
        let first = |request| tries(request, &VANILLA, 0, Compacted::Partial)[1];
        let early = Try::Compact(order(1), Priority::Async, AllocFlags::at(Mark::Min));
        assert_eq!(first(PageRequest::new(order(1), Migratetype::Unmovable)), early);
        assert!(matches!(first(PageRequest::user(order(3))), Try::WakeAndPass(_)));
        assert!(matches!(first(PageRequest::user(order(4))), Try::Compact(..)));
        assert!(matches!(
            first(PageRequest::new(Order::ZERO, Migratetype::Unmovable)),
            Try::WakeAndPass(_)
        ));
    }

    #[test]
    fn whoever_frees_memory_or_is_to_die_does_not_compact_first() {
        for flag in [RequestFlags::MEMALLOC, RequestFlags::OOM_VICTIM] {
            let flags = RequestFlags::RECLAIM.with(flag);
            let request = PageRequest::new(order(1), Migratetype::Unmovable).flags(flags);
            let tries = tries(request, &VANILLA, 0, Compacted::Partial);
            assert!(matches!(tries[1], Try::WakeAndPass(_)), "{flag:?}: {}", picture(&tries));
        }
    }

    #[test]
    fn nothing_is_killed_for_who_may_fail_or_keeps_to_a_node_or_dies_nor_for_costly_orders() {
        let end = |number, flags| {
            let request = PageRequest::user(order(number)).flags(RequestFlags::RECLAIM.with(flags));
            picture(&tries(request, &VANILLA, 0, Compacted::Complete)).pop()
        };
        assert_eq!(end(0, RequestFlags::RECLAIM), Some('O'));
        for spared in
            [RequestFlags::RETRY_MAYFAIL, RequestFlags::THIS_NODE, RequestFlags::OOM_VICTIM]
        {
            assert_eq!(end(0, spared), Some('G'), "{spared:?}");
        }
        assert_eq!(end(4, RequestFlags::RECLAIM), Some('G'));
    }

    #[test]
    fn when_a_huge_page_that_is_not_to_be_retried_stops_after_compaction_differs_by_version() {
        let huge = RequestFlags::DIRECT_RECLAIM.with(RequestFlags::NO_RETRY);
        let local = huge.with(RequestFlags::THIS_NODE);
        let (ends, one_round) = ("wcG", "wcwrpdpcG");
        let check = |policy: FragmentationPolicy, flags, compacted, is: &str| {
            let request = PageRequest::user(order(9)).flags(flags);
            let tries = tries(request, &policy, 32, compacted);
            assert_eq!(picture(&tries), is, "{:?} {flags:?} {compacted:?}", policy.no_retry);
        };
        let (old, new) = (FragmentationPolicy::LINUX_6_12, FragmentationPolicy::LINUX_7_2);
        for policy in [VANILLA, FragmentationPolicy::LINUX_5_3] {
            for flags in [huge, local] {
                check(policy, flags, Compacted::Deferred, ends);
                check(policy, flags, Compacted::Skipped, one_round);
                check(policy, flags, Compacted::Partial, one_round);
            }
        }
        for flags in [huge, local] {
            check(FragmentationPolicy::LINUX_5_10, flags, Compacted::Deferred, ends);
            check(FragmentationPolicy::LINUX_5_10, flags, Compacted::Skipped, ends);
            check(FragmentationPolicy::LINUX_5_10, flags, Compacted::Partial, one_round);
        }
        for policy in [FragmentationPolicy::LINUX_6_1, old] {
            check(policy, huge, Compacted::Deferred, ends);
            check(policy, huge, Compacted::Skipped, ends);
            check(policy, huge, Compacted::Partial, one_round);
            check(policy, local, Compacted::Partial, ends);
        }
        for compacted in [Compacted::Deferred, Compacted::Skipped, Compacted::Partial] {
            check(new, huge, compacted, one_round);
            check(new, local, compacted, ends);
        }
        // A request that may be retried goes on, local or not.
        let plain = RequestFlags::DIRECT_RECLAIM.with(RequestFlags::THIS_NODE);
        check(old, plain, Compacted::Deferred, one_round);
    }

    #[test]
    fn a_costly_request_that_is_not_to_be_retried_never_waits_for_compaction() {
        let efforts = |flags| {
            let request = PageRequest::user(order(9)).flags(flags);
            let tries = tries(request, &VANILLA, 32, Compacted::Partial);
            let efforts = tries.iter().filter_map(|each| match each {
                Try::Compact(_, effort, _) => Some(*effort),
                _ => None,
            });
            efforts.collect::<Vec<_>>()
        };
        let plain = RequestFlags::DIRECT_RECLAIM;
        assert_eq!(efforts(plain), [Priority::Async, Priority::SyncLight]);
        assert_eq!(efforts(plain.with(RequestFlags::NO_RETRY)), [Priority::Async; 2]);
    }

    #[test]
    fn a_zone_that_can_be_compacted_ends_a_round_of_reclaim_and_is_progress() {
        let ready = |pages| Seen::Reclaimed { pages, ready: true };
        let after = |request, seen: &[Seen]| {
            let mut path = SlowPath::new(request, &VANILLA, MANAGED, false);
            let start = [Seen::Begin, Seen::Nothing, Seen::Nothing, Seen::Nothing];
            let costly = request.order > Order::COSTLY;
            let start = &start[..if costly { 4 } else { 3 }];
            start.iter().chain(seen).map(|seen| path.next(*seen)).last()
        };
        let huge = PageRequest::user(order(9));
        assert_eq!(after(huge, &[reclaimed(0)]), Some(Try::Reclaim(11)));
        assert!(matches!(after(huge, &[ready(0)]), Some(Try::Pass(_))));
        assert!(matches!(after(huge, &[reclaimed(5), ready(0)]), Some(Try::Pass(_))));
        let nothing = [reclaimed(0); 13];
        assert!(matches!(after(huge, &nothing), Some(Try::Compact(..))));
    }

    #[test]
    fn compaction_rises_in_priority_where_all_was_looked_at() {
        let may_fail = RequestFlags::RECLAIM.with(RequestFlags::RETRY_MAYFAIL);
        let last = |request: PageRequest, compacted| {
            let tries = tries(request.flags(may_fail), &VANILLA, 32, compacted);
            let efforts = tries.iter().filter_map(|each| match each {
                Try::Compact(_, effort, _) => Some(*effort),
                _ => None,
            });
            efforts.max()
        };
        let small = PageRequest::user(order(2));
        assert_eq!(last(small, Compacted::Complete), Some(Priority::SyncFull));
        assert_eq!(
            last(PageRequest::user(order(9)), Compacted::Complete),
            Some(Priority::SyncLight)
        );
    }

    #[test]
    fn whoever_frees_memory_uses_all_of_it_and_never_waits() {
        let flags = RequestFlags::RECLAIM.with(RequestFlags::MEMALLOC);
        let stall = Some(Stall { order: 4, bound: Nanos(1) });
        let policy = FragmentationPolicy { stall, ..VANILLA };
        let tries =
            tries(PageRequest::user(Order::ZERO).flags(flags), &policy, 32, Compacted::Skipped);
        assert_eq!(picture(&tries), "wwN");
        let Try::WakeAndPass(first) = tries[0] else { panic!("a pass comes first") };
        let Try::WakeAndPass(second) = tries[1] else { panic!("so does a round") };
        assert_eq!((first.mark, second.mark), (Some(Mark::Min), None));
    }

    #[test]
    fn rights_of_requests() {
        let of = |request: PageRequest| rights(&request);
        let high = AllocFlags::at(Mark::Min).with(AllocFlags::MIN_RESERVE);
        let atomic = high.with(AllocFlags::NON_BLOCK);
        assert_eq!(of(PageRequest::user(Order::ZERO)), AllocFlags::at(Mark::Min));
        assert_eq!(of(PageRequest::atomic(Order::ZERO)), atomic);
        assert_eq!(of(PageRequest::atomic(order(1))), atomic.with(AllocFlags::HIGH_ATOMIC));
        let without = RequestFlags::HIGH.with(RequestFlags::NO_MEMALLOC);
        let spared = PageRequest::atomic(order(1)).flags(without.with(RequestFlags::MEMALLOC));
        let high = AllocFlags::at(Mark::Min).with(AllocFlags::MIN_RESERVE);
        assert_eq!((of(spared), with_reserves(&spared, high)), (high, high));
        let blocks = RequestFlags::RECLAIM.with(RequestFlags::HIGH);
        assert_eq!(of(PageRequest::user(order(1)).flags(blocks)), high);
    }

    #[test]
    fn only_movable_requests_that_may_wait_carry_the_flag_of_patch_5() {
        let policy = FragmentationPolicy::PATCHES_1_5;
        let stalls =
            |request| picture(&tries(request, &policy, 0, Compacted::Skipped)).contains('s');
        assert!(stalls(PageRequest::user(Order::ZERO)));
        assert!(!stalls(PageRequest::new(Order::ZERO, Migratetype::Unmovable)));
        assert!(!stalls(PageRequest::new(Order::ZERO, Migratetype::Reclaimable)));
        assert!(!stalls(PageRequest::user(Order::ZERO).flags(RequestFlags::KSWAPD_RECLAIM)));
        assert_eq!(
            picture(&tries(PageRequest::user(Order::ZERO), &policy, 0, Compacted::Skipped))[..4],
            *"wspw"
        );
    }

    #[test]
    fn defrag_mode_mixes_when_reclaim_and_compaction_have_failed() {
        let tries = tries(PageRequest::user(Order::ZERO), &defrag(), 0, Compacted::Skipped);
        let rounds = "wr".repeat(17);
        assert_eq!(picture(&tries), format!("w{rounds}hwrhO"));
        let keeps = |each: &Try| match each {
            Try::Pass(flags) | Try::WakeAndPass(flags) => Some(flags.has(AllocFlags::NO_FRAGMENT)),
            _ => None,
        };
        let kept: Vec<bool> = tries.iter().filter_map(keeps).collect();
        assert_eq!(kept.iter().filter(|&&kept| !kept).count(), 1, "the last pass alone may mix");
        assert_eq!(kept.last(), Some(&false));
    }

    #[test]
    fn in_defrag_mode_what_cannot_be_moved_compacts_for_whole_pageblocks() {
        let request = PageRequest::new(Order::ZERO, Migratetype::Unmovable);
        let tries = tries(request, &defrag(), 0, Compacted::Partial);
        assert!(matches!(tries[1], Try::Compact(Order::PAGEBLOCK, Priority::Async, _)));
    }

    #[test]
    fn defrag_mode_does_not_starve_who_cannot_reclaim() {
        let atomic = PageRequest::atomic(Order::ZERO);
        check(atomic, &defrag(), 0, "wwpN");
        let mut policy = defrag();
        policy.fixes = Fixes::ALL.without(Fixes::DEFRAG_ATOMIC);
        check(atomic, &policy, 0, "wwN");
        check(atomic.flags(RequestFlags::HIGH), &defrag(), 0, "wwN");
    }

    #[test]
    fn a_large_reserve_is_given_back_block_by_block() {
        let mut path = SlowPath::new(PageRequest::user(Order::ZERO), &VANILLA, 1 << 20, false);
        let mut released = 0;
        loop {
            let seen = match path.next(Seen::Begin) {
                Try::ReleaseReserve => Seen::Released(true),
                Try::Fail(_) => break,
                _ => continue,
            };
            released += 1;
            path.next(seen);
        }
        assert_eq!(
            released,
            (2 << 20) / 512 + 1,
            "the bound on rounds; the last answer is not used"
        );
    }

    #[test]
    fn every_request_ends_whatever_it_is_told() {
        let answers = [
            Seen::Begin,
            Seen::Nothing,
            Seen::Spared,
            Seen::Waited,
            Seen::Compacted(Compacted::Success),
            Seen::Compacted(Compacted::Complete),
            reclaimed(u64::MAX),
            reclaimed(1),
            reclaimed(0),
            Seen::Reclaimed { pages: 0, ready: true },
            Seen::Drained,
            Seen::Released(true),
        ];
        for PolicyPreset { policy, name, .. } in FragmentationPolicy::PRESETS {
            for bits in 0..1 << 9 {
                for number in [0, 3, 9] {
                    let request = PageRequest::user(order(number)).flags(RequestFlags(bits));
                    for answer in answers {
                        let mut path = SlowPath::new(request, policy, MANAGED, true);
                        let ends = (0..20_000).any(|_| matches!(path.next(answer), Try::Fail(_)));
                        assert!(ends, "{name} {request:?} {answer:?}");
                    }
                }
            }
        }
    }
}
