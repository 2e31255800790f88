//! Types of pageblocks, inferred. pagetypeinfo tells the number of pageblocks of each type, and of free blocks on the
//! lists of each type; the map of frames tells the content of each pageblock. Types are given so that as few pages as
//! possible contradict either: pages in use in a pageblock that is meant for others, and free pages on lists of another
//! type than the kernel counted.
//!
//! First each type gets the pageblocks whose content speaks most for it. Then pairs of pageblocks exchange their types
//! wherever that leaves fewer contradictions, in random order until a long row of trials brings nothing.

use nofrag::page::Migratetype;
use nofrag::units::Order;
use nofrag_host::snapshot::FrameUse;

use crate::random::Random;

/// A value for each migratetype.
pub(super) type ByType<T> = [T; Migratetype::COUNT];
/// Number of free blocks by type and order.
pub(super) type FreeByType = ByType<[u64; Order::COUNT]>;

/// A pageblock, or two that are one free block: the unit that gets a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// First frame, aligned.
    pub(super) start: u64,
    /// The first frame with memory in its zone.
    pub(super) first: u64,
    pub(super) blocks: u64,
    /// True if all of it lies in its zone: only then can it be set aside.
    pub(super) whole: bool,
    pub(super) content: Content,
    pub(super) free: [u64; Order::COUNT],
}

/// Pages in use, by the types that suit them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    movable: u64,
    /// Kernel objects, of which some can be reclaimed; the map does not tell which.
    slab: u64,
    /// Memory of the kernel outside slabs.
    kernel: u64,
}

impl Content {
    /// Counts a page in use.
    pub(super) fn add(&mut self, usage: FrameUse) {
        match usage {
            FrameUse::Free => {}
            FrameUse::Slab => self.slab += 1,
            usage if usage.is_movable() => self.movable += 1,
            usage if usage.is_managed() => self.kernel += 1,
            _ => {}
        }
    }

    /// Returns the number of pages that do not belong in a pageblock of the type.
    fn strangers(self, migratetype: Migratetype) -> u64 {
        let Content { movable, slab, kernel } = self;
        match migratetype {
            Migratetype::Unmovable | Migratetype::HighAtomic => movable,
            Migratetype::Movable | Migratetype::Cma => slab + kernel,
            Migratetype::Reclaimable => movable + kernel,
            Migratetype::Isolate => 0,
        }
    }
}

impl Unit {
    fn strangers(&self, migratetype: Migratetype) -> i64 {
        if !self.whole && !migratetype.is_mobility() {
            // Forbidden: a part of a pageblock cannot be set aside.
            return i64::from(u32::MAX);
        }
        self.content.strangers(migratetype) as i64
    }
}

/// The kernel's counts for a zone's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeCounts {
    pub(super) pageblocks: ByType<u64>,
    pub(super) free: FreeByType,
}

/// The types of a zone's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    /// One type for each unit, in their order.
    pub(super) types: Vec<Migratetype>,
    /// Free blocks in the pageblocks of each type.
    pub(super) free: FreeByType,
    /// Pages in use in pageblocks that are meant for others.
    pub(super) strangers: u64,
}

/// Gives types by content alone, for kernels without pagetypeinfo.
pub(super) fn by_content(units: &[Unit]) -> Assigned {
    let likely = |unit: &Unit| {
        // A pageblock with nothing in use, or with a tie, is movable, as pageblocks are at first.
        let order = [Migratetype::Movable, Migratetype::Unmovable, Migratetype::Reclaimable];
        order
            .into_iter()
            .min_by_key(|&migratetype| unit.strangers(migratetype))
            .expect("three types")
    };
    Assigned::new(units, units.iter().map(likely).collect())
}

/// Gives types that fit both the content and the kernel's counts.
pub(super) fn assign(units: &[Unit], wanted: &TypeCounts, random: &mut Random) -> Assigned {
    let types = by_regret(units, wanted);
    let assigned = Assigned::new(units, types);
    Search { units, wanted, assigned }.run(random)
}

/// Gives each type the pageblocks whose content speaks most for it, rarest type first; the rest is movable.
fn by_regret(units: &[Unit], wanted: &TypeCounts) -> Vec<Migratetype> {
    use Migratetype::{Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
    let mut types = vec![Movable; units.len()];
    let mut left: Vec<usize> = (0..units.len()).collect();
    for migratetype in [Isolate, Cma, HighAtomic, Reclaimable, Unmovable] {
        let mut count = wanted.pageblocks[migratetype.index()];
        // Units of two pageblocks: the kernel counts those of each type.
        let mut pairs = wanted.free[migratetype.index()][Order::MAX.index()];
        let regret = |&unit: &usize| {
            let unit: &Unit = &units[unit];
            let others = Migratetype::MOBILITY.into_iter().filter(|&other| other != migratetype);
            let other = others.map(|other| unit.strangers(other)).min().unwrap_or(0);
            (unit.strangers(migratetype) - other, u64::MAX - unit.content.slab, unit.start)
        };
        left.sort_by_key(regret);
        left.retain(|&unit| {
            let is_pair = units[unit].blocks > 1;
            if units[unit].blocks > count || is_pair && pairs == 0 {
                return true;
            }
            count -= units[unit].blocks;
            pairs -= u64::from(is_pair);
            types[unit] = migratetype;
            false
        });
    }
    types
}

impl Assigned {
    fn new(units: &[Unit], types: Vec<Migratetype>) -> Assigned {
        let mut free = FreeByType::default();
        let mut strangers = 0;
        for (unit, &migratetype) in units.iter().zip(&types) {
            let row = &mut free[migratetype.index()];
            row.iter_mut().zip(unit.free).for_each(|(sum, free)| *sum += free);
            strangers += unit.content.strangers(migratetype);
        }
        Assigned { types, free, strangers }
    }

    /// Returns the number of pages on lists of another type than wanted.
    pub(super) fn misplaced(&self, wanted: &FreeByType) -> u64 {
        let rows = self.free.iter().flatten().zip(wanted.iter().flatten());
        let pages = rows.zip((0..Order::COUNT).cycle());
        // Each such page is missing from one list and too many on another.
        pages.map(|((is, wanted), order)| is.abs_diff(*wanted) << order).sum::<u64>() / 2
    }
}

struct Search<'a> {
    units: &'a [Unit],
    wanted: &'a TypeCounts,
    assigned: Assigned,
}

/// The search ends after this number of vain trials for each unit, or after [`MOST_TRIALS`] in all.
const VAIN_TRIALS: u64 = 64;
const MOST_TRIALS: u64 = 1 << 24;

impl Search<'_> {
    fn run(mut self, random: &mut Random) -> Assigned {
        let vain = self.units.len() as u64 * VAIN_TRIALS;
        let (mut since, mut trials) = (0, 0);
        while self.units.len() > 1 && since < vain && trials < MOST_TRIALS {
            let pair = [random.index(self.units.len()), random.index(self.units.len())];
            (since, trials) = (since + 1, trials + 1);
            if self.exchange(pair) {
                since = 0;
            }
        }
        Assigned::new(self.units, self.assigned.types)
    }

    /// Exchanges the types of two units if that leaves fewer contradictions; returns true if it did.
    fn exchange(&mut self, [one, two]: [usize; 2]) -> bool {
        let types = [self.assigned.types[one], self.assigned.types[two]];
        let (a, b) = (&self.units[one], &self.units[two]);
        if types[0] == types[1] || a.blocks != b.blocks {
            return false;
        }
        let before = a.strangers(types[0]) + b.strangers(types[1]);
        let mut gain = before - a.strangers(types[1]) - b.strangers(types[0]);
        for order in 0..Order::COUNT {
            let more = a.free[order] as i64 - b.free[order] as i64;
            if more != 0 {
                let off = |migratetype: Migratetype, change: i64| {
                    let free = self.assigned.free[migratetype.index()][order] as i64;
                    let wanted = self.wanted.free[migratetype.index()][order] as i64;
                    (free - wanted).abs() - (free + change - wanted).abs()
                };
                gain += (off(types[0], -more) + off(types[1], more)) << order;
            }
        }
        if gain <= 0 {
            return false;
        }
        for order in 0..Order::COUNT {
            let [from, to] = types.map(Migratetype::index);
            let free = &mut self.assigned.free;
            free[from][order] = free[from][order] + b.free[order] - a.free[order];
            free[to][order] = free[to][order] + a.free[order] - b.free[order];
        }
        self.assigned.types.swap(one, two);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Migratetype::{HighAtomic, Movable, Reclaimable, Unmovable};

    /// Returns a pageblock with these pages in use, and one free block of an order.
    fn unit(nth: u64, [movable, slab, kernel]: [u64; 3], order: Option<usize>) -> Unit {
        let content = Content { movable, slab, kernel };
        let start = nth * 512;
        let mut unit = Unit { start, first: start, blocks: 1, whole: true, content, free: [0; 11] };
        order.into_iter().for_each(|order| unit.free[order] = 1);
        unit
    }

    fn wanted(pageblocks: &[(Migratetype, u64)], free: &[(Migratetype, usize, u64)]) -> TypeCounts {
        let mut wanted = TypeCounts { pageblocks: [0; 6], free: FreeByType::default() };
        pageblocks.iter().for_each(|&(kind, count)| wanted.pageblocks[kind.index()] = count);
        free.iter().for_each(|&(kind, order, count)| wanted.free[kind.index()][order] = count);
        wanted
    }

    fn check(units: &[Unit], wanted: &TypeCounts, types: &[Migratetype]) -> Assigned {
        for seed in 0..8 {
            let assigned = assign(units, wanted, &mut Random::new(seed, 0));
            assert_eq!(assigned.types, types, "seed {seed}");
        }
        assign(units, wanted, &mut Random::new(0, 0))
    }

    #[test]
    fn content_decides() {
        let units = [
            unit(0, [500, 0, 0], None),
            unit(1, [0, 100, 300], None),
            unit(2, [10, 480, 0], None),
            unit(3, [300, 0, 200], None),
        ];
        let counts = wanted(&[(Unmovable, 1), (Reclaimable, 1), (Movable, 2)], &[]);
        let assigned = check(&units, &counts, &[Movable, Unmovable, Reclaimable, Movable]);
        assert_eq!(assigned.strangers, 10 + 200);
        assert_eq!(by_content(&units).types, [Movable, Unmovable, Unmovable, Movable]);
    }

    #[test]
    fn where_content_says_nothing_free_blocks_do() {
        let units =
            [unit(0, [0; 3], Some(9)), unit(1, [0, 500, 0], Some(3)), unit(2, [0, 500, 0], None)];
        let counts = wanted(
            &[(Unmovable, 1), (Reclaimable, 1), (Movable, 1)],
            &[(Movable, 9, 1), (Reclaimable, 3, 1)],
        );
        let assigned = check(&units, &counts, &[Movable, Reclaimable, Unmovable]);
        assert_eq!(assigned.misplaced(&counts.free), 0);
        let other = wanted(&[(Unmovable, 1), (Reclaimable, 1), (Movable, 1)], &[(Unmovable, 3, 1)]);
        let assigned = assign(&units, &other, &mut Random::new(0, 0));
        assert_eq!(
            assigned.misplaced(&other.free),
            512 / 2,
            "the whole one is on no list of the kernel's"
        );
    }

    #[test]
    fn a_part_of_a_pageblock_is_no_reserve() {
        let part = Unit { whole: false, ..unit(0, [0, 0, 200], None) };
        let units = [part, unit(1, [400, 0, 0], None)];
        check(&units, &wanted(&[(HighAtomic, 1), (Movable, 1)], &[]), &[Movable, HighAtomic]);
    }
}
