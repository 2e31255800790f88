//! Decides what a request may take when the lists of its own type are empty, and what becomes of the rest; `steal` acts
//! on the decisions.
//!
//! Types mix in a pageblock when a request takes a free block smaller than that from it. Linux limits the damage in two
//! ways: it takes the *largest* block of another type, so that the next requests find the rest, and if most of the
//! pageblock is free or suits, the pageblock changes its type. A request that may take nothing but the block itself
//! takes the *smallest*: a movable one until 6.9, each one from 6.10. Until 6.9 ([`FallbackRules::Loose`]) all free
//! blocks of the pageblock change lists even if its type stays, so lists and types disagree from then on. From 6.10
//! lists are strict: a pageblock is claimed whole or not at all, and otherwise one block is taken where it is.
//!
//! Rules: docs/sources/pages.md#migratetypes, pages.md#fallback-loose, pages.md#fallback-strict.

use super::migratetype::Migratetype;
use super::policy::FallbackRules;
use crate::units::Order;

/// Grouping of pages by type. With little memory it is not worth it: then a request may claim any pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    ByType,
    /// Pages are not grouped (`page_group_by_mobility_disabled`).
    Off,
}

/// Free blocks of a zone: for each type a bit per order whose list is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Supply(pub(super) [u16; Migratetype::COUNT]);

/// A free block of another type that a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) order: Order,
    /// Type of the list that the block is on.
    pub(super) from: Migratetype,
    /// Part of its pageblock that the request may take.
    pub(super) share: Share,
}

/// Part of a pageblock that a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All free pages of the pageblock.
    Whole,
    /// Only the free block that was found.
    Single,
}

/// The pageblock of a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Surroundings {
    pub(super) migratetype: Migratetype,
    pub(super) free: u64,
    /// Pages in use that may be moved.
    pub(super) movable: u64,
    pub(super) extent: Extent,
}

/// Extent of a pageblock over zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The pageblock lies in one zone.
    Whole,
    /// A part of it belongs to another zone or to nobody.
    Straddles,
}

/// Action on a free block of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The block is a whole pageblock or two: they change their type. Nothing mixes.
    Convert,
    /// All that is free in its pageblock changes lists, and the pageblock changes its type.
    Claim,
    /// All that is free in its pageblock changes lists; the pageblock stays what it is.
    MoveAll,
    /// The block alone changes lists.
    MoveOne,
    /// The request takes what it needs; the rest stays on its list.
    TakeOne,
    /// The block is left alone: a smaller one may do.
    Pass,
}

/// Half of a pageblock, in pages: if so many of its pages suit a request, a pageblock is claimed.
const MOST: u64 = Order::PAGEBLOCK.pages() / 2;

/// Returns true if a request of type `start` may take all that is free in the pageblock of a free block of order
/// `found`. Movable requests are content with single blocks: pages of theirs in a block of others can be moved out
/// again (pages.md#can-steal).
pub(super) fn can_steal(found: Order, start: Migratetype, grouping: Grouping) -> bool {
    found.get() >= Order::PAGEBLOCK.get() / 2
        || matches!(start, Migratetype::Unmovable | Migratetype::Reclaimable)
        || grouping == Grouping::Off
}

/// Returns true if most of a pageblock is free or of a mobility like that of `start`. What is in use and not movable is
/// unmovable or reclaimable; which of the two, only the block's type can tell (pages.md#claim-test).
pub(super) fn suits(start: Migratetype, block: &Surroundings, grouping: Grouping) -> bool {
    let alike = match (start, block.migratetype) {
        (Migratetype::Movable, _) => block.movable,
        (_, Migratetype::Movable) => {
            Order::PAGEBLOCK.pages().saturating_sub(block.free + block.movable)
        }
        _ => 0,
    };
    block.free + alike >= MOST || grouping == Grouping::Off
}

impl Supply {
    /// Returns the first type, of those that `start` falls back to, that has a free block of `order`.
    fn fallback(&self, start: Migratetype, order: Order) -> Option<Migratetype> {
        let has = |from: &&Migratetype| self.0[from.index()] >> order.get() & 1 == 1;
        start.fallbacks().iter().find(has).copied()
    }

    /// Returns the orders, as bits, from `least` to before `below`, at which there is a free block of a type that
    /// `start` falls back to.
    fn orders(&self, start: Migratetype, least: Order, below: u8) -> u16 {
        let all = start.fallbacks().iter().fold(0, |all, from| all | self.0[from.index()]);
        all & u16::MAX << least.get() & ((1 << below) - 1)
    }

    fn found(&self, start: Migratetype, order: Option<Order>, grouping: Grouping) -> Option<Found> {
        let order = order?;
        let from = self.fallback(start, order)?;
        let whole = can_steal(order, start, grouping);
        Some(Found { order, from, share: if whole { Share::Whole } else { Share::Single } })
    }

    fn largest(
        &self,
        start: Migratetype,
        least: Order,
        below: u8,
        grouping: Grouping,
    ) -> Option<Found> {
        let orders = self.orders(start, least, below);
        let order = u16::BITS.checked_sub(1 + orders.leading_zeros());
        self.found(start, order.and_then(|order| Order::new(order as u8)), grouping)
    }

    /// Returns the smallest free block of another type that fits (`STEAL` of strict lists).
    pub(super) fn smallest_first(
        &self,
        start: Migratetype,
        order: Order,
        grouping: Grouping,
    ) -> Option<Found> {
        let orders = self.orders(start, order, Order::COUNT as u8);
        self.found(start, Order::new(orders.trailing_zeros() as u8), grouping)
    }

    /// Returns the candidate of 4.20 to 6.10: the largest free block of another type, not below `least`; the smallest
    /// if a movable request may take only one block anyway.
    pub(super) fn largest_first(
        &self,
        start: Migratetype,
        order: Order,
        least: Order,
        grouping: Grouping,
    ) -> Option<Found> {
        let largest = self.largest(start, least, Order::COUNT as u8, grouping)?;
        let single = largest.share == Share::Single;
        if single && start == Migratetype::Movable && largest.order > order {
            return self.smallest_first(start, order, grouping);
        }
        Some(largest)
    }

    /// Returns the next candidate of the claim pass of strict lists: the largest free block of another type below order
    /// `below` and not below `least` whose pageblock may be taken whole.
    pub(super) fn next_claim(
        &self,
        start: Migratetype,
        least: Order,
        below: u8,
        grouping: Grouping,
    ) -> Option<Found> {
        self.largest(start, least, below, grouping).filter(|found| found.share == Share::Whole)
    }
}

/// Decides what to do with a free block that was found. Under strict lists this is the rule of the pass that claims
/// pageblocks.
pub(super) fn action(
    rules: FallbackRules,
    found: Found,
    start: Migratetype,
    block: &Surroundings,
    grouping: Grouping,
) -> Action {
    let mixed = block.migratetype == Migratetype::HighAtomic;
    if rules == FallbackRules::Loose && mixed {
        return Action::MoveOne;
    }
    if found.order >= Order::PAGEBLOCK {
        return Action::Convert;
    }
    let whole = found.share == Share::Whole && block.extent == Extent::Whole;
    let claim = whole && suits(start, block, grouping);
    match rules {
        _ if claim => Action::Claim,
        FallbackRules::Loose if whole => Action::MoveAll,
        FallbackRules::Loose => Action::MoveOne,
        FallbackRules::StrictFirst => Action::TakeOne,
        FallbackRules::Strict => Action::Pass,
    }
}

/// Returns true if types may come to mix because the block breaks into a pageblock. Such an attempt boosts the zone's
/// watermarks.
pub(super) fn may_mix(found: Found, block: &Surroundings) -> bool {
    found.order < Order::PAGEBLOCK && block.migratetype != Migratetype::HighAtomic
}

#[cfg(test)]
mod tests {
    use super::super::testing::order;
    use super::*;
    use Migratetype::{Movable, Reclaimable, Unmovable};

    const WHOLE: Order = Order::PAGEBLOCK;

    /// `"R3 U10"`: a free Reclaimable block of order 3, an Unmovable one of order 10.
    fn supply(picture: &str) -> Supply {
        let mut supply = Supply::default();
        for entry in picture.split_whitespace() {
            let (letter, number) = entry.split_at(1);
            let names = |kind: &&Migratetype| kind.name().starts_with(letter);
            let kind = Migratetype::ALL.iter().find(names).expect("a type's letter");
            supply.0[kind.index()] |= 1 << number.parse::<u8>().expect("an order");
        }
        supply
    }

    fn picture(found: Option<Found>) -> String {
        found.map_or("-".into(), |Found { order, from, share }| {
            format!("{}{order} {share:?}", &from.name()[..1])
        })
    }

    #[track_caller]
    fn check_loose(start: Migratetype, free: &str, wanted: u8, least: u8, found: &str) {
        let by_type = Grouping::ByType;
        let is = supply(free).largest_first(start, order(wanted), order(least), by_type);
        assert_eq!(picture(is), found, "{start} of order {wanted} from {free}");
    }

    #[test]
    fn the_largest_block_of_another_type_is_taken() {
        check_loose(Unmovable, "M10 M3 R3", 0, 0, "M10 Whole");
        check_loose(Unmovable, "M9 R9 R3", 0, 0, "R9 Whole");
        check_loose(Reclaimable, "M3 M0", 0, 0, "M3 Whole");
        check_loose(Reclaimable, "M9 U9", 0, 0, "U9 Whole");
        check_loose(Movable, "U9 R9", 0, 0, "R9 Whole");
        check_loose(Unmovable, "U10 H10 C10", 0, 0, "-");
        check_loose(Unmovable, "M2", 3, 3, "-");
    }

    #[test]
    fn a_movable_request_is_content_with_the_smallest_below_order_4() {
        check_loose(Movable, "U4 R2 U1", 0, 0, "U4 Whole");
        check_loose(Movable, "R3 U2 U1", 0, 0, "U1 Single");
        check_loose(Movable, "R3 U2 U1", 2, 2, "U2 Single");
        check_loose(Movable, "R3", 3, 3, "R3 Single");
    }

    #[test]
    fn under_the_flag_only_pageblocks_are_candidates() {
        check_loose(Unmovable, "M8 R3", 0, 9, "-");
        check_loose(Unmovable, "M9 R3", 0, 9, "M9 Whole");
    }

    /// Movable requests may take a whole block from order 4 on, others, and all with grouping off, at every order.
    /// Source: pages.md#o-8.
    #[test]
    fn whole_blocks_may_be_taken_from_order_4_on_by_movable_requests() {
        let first = |start| Order::all().find(|&o| can_steal(o, start, Grouping::ByType));
        assert_eq!(first(Movable), Some(order(4)));
        assert_eq!(first(Unmovable), Some(Order::ZERO));
        assert_eq!(first(Reclaimable), Some(Order::ZERO));
        assert!(can_steal(Order::ZERO, Movable, Grouping::Off));
    }

    fn block(migratetype: Migratetype, free: u64, movable: u64) -> Surroundings {
        Surroundings { migratetype, free, movable, extent: Extent::Whole }
    }

    /// A pageblock suits if 256 of its pages are free or of the request's kind, and always with grouping off.
    /// Source: pages.md#o-9.
    #[test]
    fn half_a_block_must_suit() {
        let check = |start, kind, free, movable, yes| {
            let found = suits(start, &block(kind, free, movable), Grouping::ByType);
            assert_eq!(found, yes, "{start} into {kind}: {free} free, {movable} movable");
        };
        check(Movable, Unmovable, 100, 156, true);
        check(Movable, Unmovable, 100, 155, false);
        check(Unmovable, Movable, 0, 256, true);
        check(Unmovable, Movable, 100, 256, true);
        check(Unmovable, Movable, 100, 257, false);
        check(Unmovable, Reclaimable, 256, 0, true);
        check(Unmovable, Reclaimable, 255, 257, false);
        assert!(suits(Movable, &block(Unmovable, 0, 0), Grouping::Off));
    }

    #[track_caller]
    fn check_action(rules: FallbackRules, found: (u8, Share), around: Surroundings, does: Action) {
        let found = Found { order: order(found.0), from: Movable, share: found.1 };
        assert_eq!(action(rules, found, Unmovable, &around, Grouping::ByType), does, "{rules:?}");
    }

    #[test]
    fn what_each_rule_set_does_with_the_block() {
        use FallbackRules::{Loose, Strict, StrictFirst};
        let (suitable, not) = (block(Movable, 100, 156), block(Movable, 100, 400));
        let straddling = Surroundings { extent: Extent::Straddles, ..suitable };
        for rules in [Loose, StrictFirst, Strict] {
            check_action(rules, (9, Share::Whole), not, Action::Convert);
            check_action(rules, (3, Share::Whole), suitable, Action::Claim);
        }
        for around in [not, straddling] {
            check_action(StrictFirst, (3, Share::Whole), around, Action::TakeOne);
            check_action(Strict, (3, Share::Whole), around, Action::Pass);
        }
        check_action(Loose, (3, Share::Whole), not, Action::MoveAll);
        check_action(Loose, (3, Share::Whole), straddling, Action::MoveOne);
        check_action(Loose, (3, Share::Single), suitable, Action::MoveOne);
        check_action(StrictFirst, (3, Share::Single), suitable, Action::TakeOne);
        check_action(
            Loose,
            (9, Share::Whole),
            block(Migratetype::HighAtomic, 512, 0),
            Action::MoveOne,
        );
    }

    #[test]
    fn the_claim_pass_ends_where_whole_blocks_may_not_be_taken() {
        let free = supply("R10 U5 R3");
        let next = |below| picture(free.next_claim(Movable, Order::ZERO, below, Grouping::ByType));
        assert_eq!([next(11), next(10), next(5)], ["R10 Whole", "U5 Whole", "-"]);
        assert_eq!(picture(free.next_claim(Movable, WHOLE, 10, Grouping::ByType)), "-");
        assert_eq!(picture(free.smallest_first(Movable, order(4), Grouping::ByType)), "U5 Whole");
    }
}
