//! Patch 4: a zone in which types were mixed gets higher watermarks for a while, so that kswapd reclaims, and kcompactd
//! compacts, before the next request has to mix (docs/sources/pages.md#patch-4).
//!
//! A fallback that breaks into a free block below a pageblock raises the zone's boost by a pageblock, before it is
//! known whether the whole block can be claimed. The bound is a share of the *unboosted* high watermark, at least one
//! pageblock. kswapd takes away what it saw when it started, so boosts that came meanwhile survive ([`Kswapd`],
//! pages.md#b-20).
//!
//! How kswapd learns of it changed thrice. The series wakes it under the zone's lock, if patch 3's flag allows it,
//! which can deadlock with the scheduler (pages.md#b-4). Then a zone flag, set under the lock, was tested after the
//! unlock, by anybody whether allowed to wake or not (pages.md#b-12), and even though nothing had been boosted
//! (pages.md#b-13). Here each of the three is a fix of its own. A zone has one owner here, so the request that finds
//! the flag is always the one that has set it: without [`Fixes::WAKE_PERMISSION`] it wakes kswapd whatever it is
//! allowed.
//!
//! [`Kswapd`]: super::Kswapd

use super::allocator::PageAllocator;
use super::event::PageEvent;
use super::policy::{Fixes, FragmentationPolicy, KswapdFlag};
use super::walk::AllocFlags;
use super::zone::ZoneId;
use crate::event::{Event, EventSink};
use crate::units::{Order, PageCount};

/// Purpose of the machine's kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelRole {
    /// The kernel that normally runs the machine.
    #[default]
    Main,
    /// A kernel that writes the memory of a crashed one to disk, and has little of its own (kdump).
    Capture,
}

/// Pages that one external fragmentation event adds to a zone's boost.
const STEP: u64 = Order::PAGEBLOCK.pages();

/// Pages that a stall adds to a zone's boost (patch 5): `512 + 512 * (3 << 1)`.
const FAST_STEP: u64 = STEP + STEP * (3 << 1);

/// Outcome of raising a boost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boosted {
    /// The zone is never boosted.
    Exempt,
    /// The boost stood at its bound already.
    Full,
    /// The boost is this many pages now.
    To(u64),
}

/// Returns the largest boost, in pages, of a zone of `managed` pages whose high watermark without boost is `high`;
/// `None` if the zone is never boosted.
pub(super) fn max_boost(
    high: u64,
    managed: PageCount,
    policy: &FragmentationPolicy,
    role: KernelRole,
) -> Option<u64> {
    let factor = policy.boost.map_or(0, |boost| boost.factor);
    let fixes = policy.fixes;
    let early = fixes.has(Fixes::EARLY_BOOT) && high == 0;
    let small = fixes.has(Fixes::SMALL_ZONE) && 4 * STEP > managed.0;
    let capture = fixes.has(Fixes::KDUMP_EXEMPT) && role == KernelRole::Capture;
    if factor == 0 || early || small || capture {
        return None;
    }
    let share = u128::from(high) * u128::from(factor) / 10_000;
    Some(u64::try_from(share).unwrap_or(u64::MAX).max(STEP))
}

/// Returns the outcome of raising `boost` by `step` pages, at most to `max`; a zone without `max` is exempt.
fn raised(boost: u64, step: u64, max: Option<u64>) -> Boosted {
    let Some(max) = max else { return Boosted::Exempt };
    match boost.saturating_add(step).min(max) {
        to if to == boost => Boosted::Full,
        to => Boosted::To(to),
    }
}

/// Returns true if kswapd must be woken after a boost that ended as `done`, in a pass with these flags.
fn wakes(done: Boosted, flags: AllocFlags, policy: &FragmentationPolicy) -> bool {
    let boosted = done != Boosted::Exempt;
    // Before patch 3 nobody down here can tell whether waking is allowed.
    let told = policy.kswapd_flag == KswapdFlag::Carried;
    let direct = !policy.fixes.has(Fixes::WAKE_AFTER_UNLOCK);
    let asks = told && (direct || policy.fixes.has(Fixes::WAKE_PERMISSION));
    policy.boost.is_some()
        && (boosted || !policy.fixes.has(Fixes::WAKE_IF_BOOSTED))
        && (!asks || flags.has(AllocFlags::KSWAPD))
}

impl<E: EventSink> PageAllocator<E> {
    /// Raises the watermarks of a zone because a request is about to break into a free block of another type below a
    /// pageblock. To be called before it is decided how much changes lists, and followed by
    /// [`wake_boosted`](Self::wake_boosted) when the zone's lists are no longer being changed. O(1).
    pub(super) fn boost_zone(&mut self, zone: ZoneId, flags: AllocFlags) {
        let done = self.raise(zone, STEP);
        if !wakes(done, flags, &self.policy) {
            return;
        }
        if self.policy.fixes.has(Fixes::WAKE_AFTER_UNLOCK) {
            self.zones[zone.index()].wake_for_boost = true;
        } else {
            self.wake_kswapd(zone, Order::ZERO);
        }
    }

    /// Raises the watermarks of a zone before a caller waits for kswapd (patch 5); the caller wakes it.
    pub(super) fn boost_fast(&mut self, zone: ZoneId) {
        self.raise(zone, FAST_STEP);
    }

    /// Wakes kswapd if the zone was boosted since it was last asked: `ZONE_BOOSTED_WATERMARK`, tested and cleared after
    /// the unlock. One load when there is nothing to do.
    #[inline]
    pub(super) fn wake_boosted(&mut self, zone: ZoneId) {
        if self.zones[zone.index()].wake_for_boost {
            self.zones[zone.index()].wake_for_boost = false;
            self.wake_kswapd(zone, Order::ZERO);
        }
    }

    fn raise(&mut self, id: ZoneId, step: u64) -> Boosted {
        let zone = &mut self.zones[id.index()];
        let bound = max_boost(zone.marks.high, zone.managed, &self.policy, self.role);
        let done = raised(zone.boost, step, bound);
        if let Boosted::To(boost) = done {
            zone.boost = boost;
            self.counters.boosts += 1;
            let boost = PageCount(boost);
            self.events.record(Event::Page(PageEvent::Boosted { zone: id, boost }));
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::policy::Boost;

    /// Returns the boost after `events` events in a row.
    fn after(events: u64, max: Option<u64>) -> u64 {
        (0..events).fold(0, |boost, _| match raised(boost, STEP, max) {
            Boosted::To(boost) => boost,
            Boosted::Full | Boosted::Exempt => boost,
        })
    }

    fn policy(factor: u32, fixes: Fixes) -> FragmentationPolicy {
        let boost = Some(Boost { factor });
        FragmentationPolicy { boost, fixes, ..FragmentationPolicy::PATCHES_1_4 }
    }

    fn check_max(high: u64, managed: u64, policy: &FragmentationPolicy, max: Option<u64>) {
        let found = max_boost(high, PageCount(managed), policy, KernelRole::Main);
        assert_eq!(found, max, "high {high} managed {managed}");
    }

    /// Each event adds a pageblock, and the 47th reaches the bound of 23760 pages. Source: pages.md#o-7.
    #[test]
    fn the_bound_is_reached_by_the_47th_event() {
        let max = Some(23_760);
        assert_eq!([45, 46, 47, 48].map(|n| after(n, max)), [23_040, 23_552, 23_760, 23_760]);
    }

    /// A stall adds 3584 pages to the boost, or less where the bound is nearer. Source: pages.md#o-7.
    #[test]
    fn a_stall_boosts_by_seven_pageblocks_up_to_the_same_bound() {
        assert_eq!(raised(0, FAST_STEP, Some(23_760)), Boosted::To(3_584));
        assert_eq!(raised(23_000, FAST_STEP, Some(23_760)), Boosted::To(23_760));
        assert_eq!(raised(0, FAST_STEP, Some(512)), Boosted::To(512));
    }

    #[test]
    fn a_boost_above_a_bound_that_fell_falls_to_it() {
        assert_eq!(raised(600, STEP, Some(512)), Boosted::To(512));
    }

    /// The bound is 1.5 times the high mark and at least a pageblock; a zone of fewer than 2048 pages, with a high mark
    /// of 0 or under a factor of 0, has none. Source: pages.md#o-7.
    #[test]
    fn bounds_of_zones() {
        let all = policy(15_000, Fixes::ALL);
        check_max(15_840, 5 << 18, &all, Some(23_760));
        check_max(100, 5 << 18, &all, Some(512));
        check_max(0, 5 << 18, &all, None);
        check_max(100, 2_047, &all, None);
        check_max(100, 2_048, &all, Some(512));
        check_max(15_840, 5 << 18, &policy(0, Fixes::ALL), None);
        check_max(u64::MAX, 5 << 18, &policy(u32::MAX, Fixes::ALL), Some(u64::MAX));
    }

    #[test]
    fn what_the_fixes_put_right() {
        check_max(0, 5 << 18, &policy(15_000, Fixes::NONE), Some(512));
        check_max(100, 2_047, &policy(15_000, Fixes::NONE), Some(512));
    }

    #[test]
    fn a_capture_kernel_boosts_unless_it_is_exempt() {
        let check = |fixes, max| {
            let policy = policy(15_000, fixes);
            assert_eq!(max_boost(100, PageCount(5 << 18), &policy, KernelRole::Capture), max);
        };
        check(Fixes::ALL, None);
        check(Fixes::ALL.without(Fixes::KDUMP_EXEMPT), Some(512));
    }

    #[test]
    fn in_6_1_who_may_not_wake_kswapd_boosts_without_waking_it() {
        let none = AllocFlags::at(crate::page::walk::Mark::Low);
        let boosted = Boosted::To(512);
        let policy = FragmentationPolicy {
            boost: Some(Boost { factor: 15_000 }),
            ..FragmentationPolicy::LINUX_6_1
        };
        assert!(!wakes(boosted, none, &policy));
        assert!(wakes(boosted, none.with(AllocFlags::KSWAPD), &policy));
    }

    #[test]
    fn who_is_woken() {
        let none = AllocFlags::at(crate::page::walk::Mark::Low);
        let may = none.with(AllocFlags::KSWAPD);
        let check = |done, flags, fixes, woken| {
            assert_eq!(wakes(done, flags, &policy(15_000, fixes)), woken, "{done:?} {fixes:?}");
        };
        check(Boosted::To(512), may, Fixes::ALL, true);
        check(Boosted::Full, may, Fixes::ALL, true);
        check(Boosted::Exempt, may, Fixes::ALL, false);
        check(Boosted::Exempt, may, Fixes::ALL.without(Fixes::WAKE_IF_BOOSTED), true);
        check(Boosted::To(512), none, Fixes::ALL, false);
        check(Boosted::To(512), none, Fixes::ALL.without(Fixes::WAKE_PERMISSION), true);
        check(Boosted::To(512), none, Fixes::NONE, false);
        check(Boosted::To(512), may, Fixes::NONE, true);
        let absent =
            FragmentationPolicy { kswapd_flag: KswapdFlag::Absent, ..policy(15_000, Fixes::ALL) };
        assert!(wakes(Boosted::To(512), none, &absent), "there is no flag to ask");
        assert!(!wakes(Boosted::Exempt, may, &FragmentationPolicy::LINUX_4_20), "not written yet");
    }
}
