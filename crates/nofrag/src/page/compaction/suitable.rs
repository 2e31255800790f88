//! Judges by counts alone whether compaction can help, whether it has helped, and how badly a zone or node needs it.
//!
//! Rules: docs/sources/pages.md#suitability, pages.md#proactive.

use super::{Cma, Goal, Mode};
use crate::event::EventSink;
use crate::page::allocator::PageAllocator;
use crate::page::fallback::can_steal;
use crate::page::index::FreeShape;
use crate::page::map::{NodeId, ZoneKind};
use crate::page::migratetype::Migratetype;
use crate::page::policy::{CompactionPolicy, Gap, ProactiveMarks};
use crate::page::walk::{AllocFlags, Mark};
use crate::page::zone::Zone;
use crate::units::Order;

/// Purpose for which a caller would like to compact a zone.
#[derive(Clone, Copy, Debug)]
pub(in crate::page) struct Wish {
    pub(in crate::page) order: Order,
    /// The highest zone that the caller can use.
    pub(in crate::page) highest: ZoneKind,
    /// The watermark that the caller's passes keep, and their rights.
    pub(in crate::page) flags: AllocFlags,
    pub(in crate::page) mode: Mode,
}

/// Prospect of compaction in a zone (`mm_compaction_suitable`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suitability {
    /// A block of the wanted order is free already (`success`).
    Satisfied,
    /// Compaction can help: enough is free, in pieces (`continue`).
    Suitable,
    /// Too little is free (`skipped`), or lack of memory is the cause (`not_suitable_zone`).
    Hopeless,
}

/// Returns the free pages that compaction needs beyond the watermark, as it takes targets before it frees sources.
pub(in crate::page) fn gap(policy: &CompactionPolicy, order: Order) -> u64 {
    match policy.gap {
        Gap::TwiceRequest => 2 * order.pages(),
        Gap::Capped => (2 * order.pages()).min(32),
    }
}

/// Returns the prospect of compacting `zone` for `wish`.
pub(in crate::page) fn suitability(
    zone: &Zone,
    policy: &CompactionPolicy,
    wish: &Wish,
) -> Suitability {
    let Wish { order, highest, flags, mode } = *wish;
    let Some(mark) = flags.mark else { return Suitability::Satisfied };
    if zone.keeps(zone.mark(mark), order, highest, flags) {
        return Suitability::Satisfied;
    }
    let costly = order > Order::COSTLY;
    let gap = gap(policy, order);
    let single = |mark, flags| zone.keeps(mark, Order::ZERO, highest, flags);
    let outside = AllocFlags::at(mark);
    if mode == Mode::Async && costly && !flags.has(AllocFlags::CMA) {
        // Room in CMA blocks is no use to a caller that cannot take pages from there, and it will not wait.
        if !single(zone.mark(mark) + gap, outside) {
            return Suitability::Hopeless;
        }
    }
    let base = match policy.gap {
        Gap::TwiceRequest if costly => zone.mark(Mark::Low),
        Gap::Capped if costly => zone.mark(mark) + zone.marks.low - zone.marks.min,
        Gap::TwiceRequest | Gap::Capped => zone.mark(mark),
    };
    if !single(base + gap, outside.with(AllocFlags::CMA)) {
        return Suitability::Hopeless;
    }
    let lacks_memory = |index: i64| (0..=i64::from(policy.extfrag_threshold)).contains(&index);
    if costly && FreeShape::of(&zone.lists, order).fragmentation().is_some_and(lacks_memory) {
        return Suitability::Hopeless;
    }
    Suitability::Suitable
}

/// Returns true if the goal of a run is reached. O(orders times types).
pub(in crate::page) fn is_reached(zone: &Zone, goal: Goal, cma: Cma) -> bool {
    match goal {
        Goal::Block(order, migratetype) => has_usable(zone, order, migratetype, cma),
        Goal::WholeBlocks => whole_block_pages(zone) >= zone.mark(Mark::High),
        Goal::Score(low) => score(zone) <= low,
        Goal::Everything => false,
    }
}

/// Returns true if the zone has a free block that a request of the type can use without mixing: of its own type, or of
/// one whose pageblock could be claimed whole.
fn has_usable(zone: &Zone, order: Order, start: Migratetype, cma: Cma) -> bool {
    let orders = |from| zone.lists.orders(from, order);
    let borrows = start == Migratetype::Movable && cma == Cma::Usable;
    let claims = |&from: &Migratetype| {
        let largest = u16::BITS.checked_sub(1 + orders(from).leading_zeros());
        let largest = largest.and_then(|largest| Order::new(largest as u8));
        largest.is_some_and(|largest| can_steal(largest, start, zone.grouping))
    };
    orders(start) != 0
        || borrows && orders(Migratetype::Cma) != 0
        || start.fallbacks().iter().any(claims)
}

/// Returns the free pages in whole pageblocks that requests can have (`nr_free_pages_blocks`).
pub(in crate::page) fn whole_block_pages(zone: &Zone) -> u64 {
    let had = |order| zone.lists.blocks(order) - zone.lists.len(order, Migratetype::Isolate);
    Order::PAGEBLOCK.and_larger().map(|order| had(order) << order.get()).sum()
}

/// Returns the share of free pages that lie outside whole pageblocks, in percent.
fn score(zone: &Zone) -> u64 {
    FreeShape::of(&zone.lists, Order::PAGEBLOCK).extfrag()
}

/// Returns the score of a node of `present` pages, whose zones have these pages and scores.
fn node_score(present: u64, zones: impl Iterator<Item = (u64, u64)>) -> u64 {
    zones.map(|(pages, score)| pages * score / (present + 1)).sum()
}

/// Scores between which proactive compaction works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) struct ProactiveBounds {
    /// A zone whose score has fallen to this is done.
    pub(in crate::page) low: u64,
    /// A node whose score is above this is compacted.
    pub(in crate::page) high: u64,
}

/// Returns the bounds that follow from `compaction_proactiveness`.
pub(in crate::page) fn proactive_bounds(
    marks: ProactiveMarks,
    proactiveness: u8,
) -> ProactiveBounds {
    let rest = 100 - u64::from(proactiveness.min(100));
    let (low, above) = match marks {
        ProactiveMarks::Until6_12 => (rest.max(5), 10),
        ProactiveMarks::Since7_2 => (rest, (rest / 2).min(10)),
    };
    ProactiveBounds { low, high: (low + above).min(100) }
}

impl<E: EventSink> PageAllocator<E> {
    /// Returns the fragmentation score of a node, in percent: those of its zones, weighed by their pages.
    pub(in crate::page) fn node_score(&self, node: NodeId) -> u64 {
        let zones = self.zones.iter().filter(|zone| zone.node == node);
        let present = zones.clone().map(|zone| zone.present.get()).sum();
        node_score(present, zones.map(|zone| (zone.present.get(), score(zone))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::policy::FragmentationPolicy;

    /// The gap is twice the request, and where it is capped at most 32 pages. Source: pages.md#o-16.
    #[test]
    fn gaps_before_and_since_they_were_capped() {
        let orders = [0, 3, 4, 9].map(|order| Order::new(order).expect("an order"));
        let of = |gap| CompactionPolicy { gap, ..FragmentationPolicy::LINUX_4_20.compaction };
        let gaps = |kind| orders.map(|order| gap(&of(kind), order));
        assert_eq!(gaps(Gap::Capped), [2, 16, 32, 32]);
        assert_eq!(gaps(Gap::TwiceRequest), [2, 16, 32, 1024]);
    }

    /// The bounds of proactive compaction follow from `compaction_proactiveness`, by the formula of 6.12 or of 7.2.
    /// Source: pages.md#o-18.
    #[test]
    fn bounds_of_proactive_compaction() {
        let check = |marks, p, low, high| {
            assert_eq!(proactive_bounds(marks, p), ProactiveBounds { low, high }, "{p}");
        };
        check(ProactiveMarks::Since7_2, 20, 80, 90);
        check(ProactiveMarks::Since7_2, 50, 50, 60);
        check(ProactiveMarks::Since7_2, 90, 10, 15);
        check(ProactiveMarks::Since7_2, 100, 0, 0);
        check(ProactiveMarks::Until6_12, 100, 5, 15);
        check(ProactiveMarks::Until6_12, 20, 80, 90);
        check(ProactiveMarks::Until6_12, 0, 100, 100);
    }

    /// Each zone counts in its node's score by its share of the pages. Source: pages.md#o-18.
    #[test]
    fn a_nodes_score_weighs_its_zones() {
        assert_eq!(node_score(4000, [(1000, 80), (3000, 40)].into_iter()), 48);
    }
}
