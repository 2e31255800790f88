//! The pages of a zone that stay free: the reserve of the machine, the marks that a zone makes of its share, and the
//! test that every request has to pass.
//!
//! The reserve (`min_free_kbytes`) is shared out by size. A zone's share is its `min` mark: below it only callers with
//! rights take pages, the others free some themselves. `low` and `high` stand one and two gaps above; there kswapd is
//! woken and sleeps again. A zone also keeps `lowmem_reserve` pages from requests that could have used a higher zone,
//! and its *boost* lifts all marks for a while after blocks were mixed.
//!
//! The test looks at counts alone: free pages against mark and reserve, and for more than one page at a set of bits
//! that says of which orders there is a free block. It never walks a list.
//!
//! Rules: docs/sources/pages.md#reserves, pages.md#watermark-check; `min_free_kbytes`, `watermark_scale_factor` and
//! `lowmem_reserve_ratio` in Documentation/admin-guide/sysctl/vm.rst.

use super::map::ZoneKind;
use super::migratetype::Migratetype;
use super::policy::Fixes;
use super::state::FreeMemory;
use super::walk::{AllocFlags, Mark};
use super::zone::{Watermarks, Zone};
use crate::units::Order;

const PAGE_KIB: u64 = 4;

/// Returns `min_free_kbytes` by the kernel's formula, in KiB, for `lowmem_kib` KiB of low memory.
pub(super) fn formula_kib(lowmem_kib: u64, limit_kib: u64) -> u64 {
    lowmem_kib.saturating_mul(16).isqrt().max(128).min(limit_kib)
}

/// Returns the kernel's `min_free_kbytes` in pages, for `lowmem` pages of low memory.
pub(super) fn formula_pages(lowmem: u64, limit_kib: u64) -> u64 {
    formula_kib(lowmem.saturating_mul(PAGE_KIB), limit_kib) / PAGE_KIB
}

/// Returns the pages that khugepaged wants free for `zones` populated zones: two pageblocks in each, so that one can
/// always be had without mixing, and one for each pair of types, so that each may fall back to each other once. At most
/// a twentieth of low memory.
pub(super) fn huge_page_reserve(zones: u64, lowmem: u64) -> u64 {
    let pairs = (Migratetype::MOBILITY.len() * Migratetype::MOBILITY.len()) as u64;
    (Order::PAGEBLOCK.pages() * zones * (2 + pairs)).min(lowmem * 5 / 100)
}

/// Computes the watermarks of a zone of `managed` pages. `reserve` is the machine's reserve, shared out among `lowmem`
/// pages, and `scale` is `watermark_scale_factor`. Zones above Normal keep little, as nothing but processes lives
/// there.
pub(super) fn marks(
    kind: ZoneKind,
    managed: u64,
    reserve: u64,
    lowmem: u64,
    scale: u32,
) -> Watermarks {
    let part = |of: u64, by: u64, total: u64| {
        let share = u128::from(of) * u128::from(by) / u128::from(total.max(1));
        u64::try_from(share).expect("the reserve is no larger than memory")
    };
    let share = part(reserve, managed, lowmem);
    let min = if is_low(kind) { share } else { (managed / 1024).clamp(32, 128) };
    let gap = (share / 4).max(part(managed, u64::from(scale), 10_000));
    Watermarks { min, low: min + gap, high: min + 2 * gap, promo: min + 3 * gap }
}

/// Returns true if the kernel itself can use zones of the kind.
pub(super) const fn is_low(kind: ZoneKind) -> bool {
    matches!(kind, ZoneKind::Dma | ZoneKind::Dma32 | ZoneKind::Normal)
}

/// Returns the pages that each zone of a node keeps from requests that could have used a higher one, as
/// `[zone][highest zone]`. `managed` is the node's, by kind.
pub(super) fn lowmem_reserve(
    managed: [u64; ZoneKind::COUNT],
    ratio: [u32; ZoneKind::COUNT],
) -> [[u64; ZoneKind::COUNT]; ZoneKind::COUNT] {
    let mut reserve = [[0; ZoneKind::COUNT]; ZoneKind::COUNT];
    for low in 0..ZoneKind::COUNT {
        if managed[low] == 0 || ratio[low] == 0 {
            continue;
        }
        let mut above = 0;
        for high in low + 1..ZoneKind::COUNT {
            above += managed[high];
            reserve[low][high] = above / u64::from(ratio[low]);
        }
    }
    reserve
}

/// A question to a zone's free lists: may a block of `order` go, so that `mark` and `reserve` still hold?
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    pub(super) order: Order,
    /// The watermark (min, low or high) that the request is tested against, boost included.
    pub(super) mark: u64,
    /// `lowmem_reserve` for the request's highest zone.
    pub(super) reserve: u64,
    pub(super) flags: AllocFlags,
}

impl Test {
    /// Returns true if enough pages would stay free, and a block of the order is there (`__zone_watermark_ok`). O(1).
    pub(super) fn holds(self, lists: &impl FreeMemory) -> bool {
        let free = usable(lists, self.flags) + 1;
        let needed = threshold(self.mark, self.flags) + self.reserve;
        if free <= needed + self.order.pages() {
            return false;
        }
        self.order == Order::ZERO || has_block(lists, self.order, self.flags)
    }
}

/// Returns the free pages that a pass with these flags may count on: those of HIGHATOMIC and CMA pageblocks only by
/// right.
pub(super) fn usable(lists: &impl FreeMemory, flags: AllocFlags) -> u64 {
    let rights = [AllocFlags::MIN_RESERVE, AllocFlags::NON_BLOCK, AllocFlags::OOM];
    let may_dig = flags.has(AllocFlags::HIGH_ATOMIC) || rights.iter().any(|&bit| flags.has(bit));
    let kept = if may_dig { 0 } else { lists.pages(Migratetype::HighAtomic) };
    let lent = if flags.has(AllocFlags::CMA) { 0 } else { lists.pages(Migratetype::Cma) };
    lists.total().saturating_sub(kept).saturating_sub(lent)
}

/// Returns the number of free pages down to which a pass with these flags may go: the watermark less what its rights
/// allow.
pub(super) fn threshold(mark: u64, flags: AllocFlags) -> u64 {
    let mut least = mark;
    if flags.has(AllocFlags::MIN_RESERVE) {
        least -= least / 2;
        if flags.has(AllocFlags::NON_BLOCK) {
            least -= least / 4;
        }
    }
    if flags.has(AllocFlags::OOM) {
        least -= least / 2;
    }
    least
}

/// Returns true if there is a free block of `order` or more that a pass with these flags may take.
fn has_block(lists: &impl FreeMemory, order: Order, flags: AllocFlags) -> bool {
    let of = |migratetype| lists.orders(migratetype, order);
    let mut orders = Migratetype::MOBILITY.iter().fold(0, |set, &each| set | of(each));
    if flags.has(AllocFlags::CMA) {
        orders |= of(Migratetype::Cma);
    }
    if flags.has(AllocFlags::HIGH_ATOMIC) || flags.has(AllocFlags::OOM) {
        orders |= of(Migratetype::HighAtomic);
    }
    orders != 0
}

impl Zone {
    /// Returns a watermark without the boost.
    pub(super) fn raw_mark(&self, mark: Mark) -> u64 {
        match mark {
            Mark::Min => self.marks.min,
            Mark::Low => self.marks.low,
            Mark::High => self.marks.high,
        }
    }

    /// Returns a watermark as it stands now (`wmark_pages`).
    pub(super) fn mark(&self, mark: Mark) -> u64 {
        self.raw_mark(mark) + self.boost
    }

    /// Returns true if the zone can give a block of `order` and stay above `mark` pages, for a request whose highest
    /// zone is `highest`. O(1).
    pub(super) fn keeps(
        &self,
        mark: u64,
        order: Order,
        highest: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        Test { order, mark, reserve: self.reserve[highest.index()], flags }.holds(&self.lists)
    }

    /// Returns true if the zone may serve a request at the watermark of its flags
    /// (docs/sources/pages.md#watermark-check). O(1).
    ///
    /// A boost is meant for callers that can free memory. Others would fail for the sake of large blocks, so an order-0
    /// request with `__GFP_HIGH` is tested against the min watermark without boost once more (pages.md#b-10).
    pub(super) fn admits(
        &self,
        order: Order,
        highest: ZoneKind,
        flags: AllocFlags,
        fixes: Fixes,
    ) -> bool {
        let Some(mark) = flags.mark else { return true };
        if self.keeps(self.mark(mark), order, highest, flags) {
            return true;
        }
        let relaxed = fixes.has(Fixes::HIGH_RETEST)
            || fixes.has(Fixes::ATOMIC_RETEST) && flags.has(AllocFlags::NON_BLOCK);
        relaxed
            && mark == Mark::Min
            && self.boost > 0
            && order == Order::ZERO
            && flags.has(AllocFlags::MIN_RESERVE)
            && self.keeps(self.marks.min, order, highest, flags)
    }

    /// Returns the pages of the zone that no process can count on (`totalreserve_pages`): its high watermark and the
    /// most that it withholds.
    pub(super) fn total_reserve(&self) -> u64 {
        let kept = self.reserve.iter().copied().max().unwrap_or(0);
        (kept + self.marks.high).min(self.managed.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::frames::Frames;
    use crate::page::free_lists::FreeLists;
    use crate::page::map::MemoryMap;
    use crate::page::policy::Relist;
    use crate::units::PageCount;

    const GIB: u64 = 1 << 18;

    /// `min_free_kbytes` is the square root of 16 times the low memory in KiB, within its bounds. Source: pages.md#o-1.
    #[test]
    fn reserve_by_the_formula() {
        let kib = |lowmem| formula_kib(lowmem, 262_144);
        assert_eq!(kib(512), 128);
        assert_eq!(kib(1 << 20), 4096);
        assert_eq!(kib(8 << 20), 11585);
        assert_eq!(kib(16 << 20), 16384);
        assert_eq!(kib(8 << 30), 262_144);
        assert_eq!(formula_kib(8 << 30, 65_536), 65_536, "before the limit was raised");
        assert_eq!([0, 127].map(|limit| formula_kib(8 << 30, limit)), [0, 127], "the limit wins");
        assert_eq!(formula_pages(GIB, 262_144), 1024);
    }

    /// Huge pages reserve 5632 pages for each zone, and at most a twentieth of low memory. Source: pages.md#o-2.
    #[test]
    fn reserve_for_huge_pages() {
        assert_eq!([1, 2, 3].map(|zones| huge_page_reserve(zones, 8 * GIB)), [5632, 11264, 16896]);
        assert_eq!(huge_page_reserve(3, GIB), 13107);
    }

    #[test]
    fn marks_follow_from_a_zones_share_of_the_reserve() {
        let of = |managed| marks(ZoneKind::Normal, managed, 16896, 8 * GIB, 10);
        let normal = Watermarks { min: 10560, low: 13200, high: 15840, promo: 18480 };
        assert_eq!(of(5 * GIB), normal);
        let dma32 = Watermarks { min: 6336, low: 7920, high: 9504, promo: 11088 };
        assert_eq!(of(3 * GIB), dma32);
    }

    #[test]
    fn high_zones_keep_little_and_the_scale_factor_widens_gaps() {
        let movable = |managed| marks(ZoneKind::Movable, managed, 16896, 8 * GIB, 10).min;
        assert_eq!([1, 100 << 10, GIB].map(movable), [32, 100, 128]);
        let wide = marks(ZoneKind::Normal, 5 * GIB, 16896, 8 * GIB, 3000);
        assert_eq!((wide.min, wide.low), (10560, 10560 + 5 * GIB * 3 / 10));
        assert_eq!(marks(ZoneKind::Normal, 0, 0, 0, 10), Watermarks::default());
    }

    #[test]
    fn lowmem_reserve_by_the_ratios() {
        let reserve = lowmem_reserve([4096, 3 * GIB, 5 * GIB, 0, 0], [256, 256, 32, 0, 0]);
        assert_eq!(reserve[1], [0, 0, 5120, 5120, 5120]);
        assert_eq!(reserve[0], [0, 3072, 8192, 8192, 8192]);
        assert_eq!(reserve[2..], [[0; 5]; 3]);
        let empty = lowmem_reserve([0, 3 * GIB, 5 * GIB, 0, GIB], [256, 0, 32, 0, 0]);
        assert_eq!(empty, [[0; 5], [0; 5], [0, 0, 0, 0, 8192], [0; 5], [0; 5]]);
    }

    /// Makes free lists with blocks of these orders and types, and nothing else.
    fn lists(blocks: &[(u8, Migratetype)]) -> FreeLists {
        let map = MemoryMap::uma(PageCount(1 << 16), 0, 1).expect("a small map");
        let (mut frames, mut lists) = (Frames::new(&map).expect("small"), FreeLists::new());
        for (slot, &(order, migratetype)) in blocks.iter().enumerate() {
            let order = Order::new(order).expect("an order of the test");
            lists.insert(&mut frames, slot as u32 * 32, order, migratetype, Relist::Head);
        }
        lists
    }

    fn check_admits(free: &[(u8, Migratetype)], order: u8, bits: u16, reserve: u64) -> bool {
        let order = Order::new(order).expect("an order of the test");
        let flags = AllocFlags::at(Mark::Min).with(bits);
        Test { order, mark: 100, reserve, flags }.holds(&lists(free))
    }

    /// A request passes if more than the mark stays free, as its rights lower it, and it may use a block of the order.
    /// Source: pages.md#o-5.
    #[test]
    fn the_watermark_check_knows_rights_types_and_orders() {
        use Migratetype::{Cma, HighAtomic, Movable, Reclaimable};
        let singles = |count: usize| alloc::vec![(0, Movable); count];
        let with = |block, count: usize| [singles(count), alloc::vec![block]].concat();
        let check = |free: &[_], bits| check_admits(free, 0, bits, 0);
        assert!(!check(&singles(100), 0) && check(&singles(101), 0));
        let order_3 = |free: &[_], bits| check_admits(free, 3, bits, 0);
        assert!(!order_3(&with((3, Reclaimable), 99), 0), "107 free");
        assert!(order_3(&with((3, Reclaimable), 100), 0), "108 free");
        assert!(!order_3(&singles(108), 0), "no block of the order");
        for (bits, threshold) in [
            (AllocFlags::MIN_RESERVE, 50),
            (AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK, 38),
            (AllocFlags::OOM, 50),
        ] {
            assert!(!check(&singles(threshold), bits) && check(&singles(threshold + 1), bits));
        }
        assert!(!check_admits(&singles(120), 0, 0, 20) && check_admits(&singles(121), 0, 0, 20));
        assert!(
            !order_3(&with((3, Cma), 108), 0) && order_3(&with((3, Cma), 108), AllocFlags::CMA)
        );
        assert!(!check(&with((3, Cma), 100), 0) && check(&with((3, Cma), 100), AllocFlags::CMA));
        let reserved = with((3, HighAtomic), 100);
        assert!(!check(&reserved, 0) && check(&reserved, AllocFlags::HIGH_ATOMIC));
        assert!(check(&reserved, AllocFlags::OOM) && check(&reserved, AllocFlags::MIN_RESERVE));
        let scarce = with((3, HighAtomic), 45);
        for right in [AllocFlags::MIN_RESERVE, AllocFlags::OOM] {
            assert!(!check(&singles(45), right) && check(&scarce, right), "the reserve counts");
        }
        let reserved = with((3, HighAtomic), 108);
        assert!(!order_3(&reserved, AllocFlags::MIN_RESERVE), "the block is not for it");
        assert!(order_3(&reserved, AllocFlags::OOM) && order_3(&reserved, AllocFlags::HIGH_ATOMIC));
    }
}
