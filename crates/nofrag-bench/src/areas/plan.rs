//! Sizes and replacements, drawn before any clock starts.

use crate::contest::Effort;
use crate::trace::{Replacement, generator, shuffle};
use rand::RngExt;
use rand_pcg::Pcg64;

/// Sizes of areas, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaSizes {
    /// 1 to 16 pages.
    Small,
    Equal,
    /// Ninety in a hundred 1 to 16, nine 1 to 8 MiB, one 64 MiB.
    Mixed,
}

const MIB: u32 = 256;

impl AreaSizes {
    /// All sizes, the one that has targets first.
    pub const ALL: [AreaSizes; 3] = [AreaSizes::Small, AreaSizes::Equal, AreaSizes::Mixed];

    /// Returns the name used in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AreaSizes::Small => "1..16 pages",
            AreaSizes::Equal => "8 MiB",
            AreaSizes::Mixed => "90 % 1..16 pages, 9 % 1..8 MiB, 1 % 64 MiB",
        }
    }

    fn draw(self, random: &mut Pcg64) -> u32 {
        match self {
            AreaSizes::Small => random.random_range(1..=16),
            AreaSizes::Equal => 8 * MIB,
            AreaSizes::Mixed => match random.random_range(0..100) {
                0..90 => random.random_range(1..=16),
                90..99 => random.random_range(MIB..=8 * MIB),
                _ => 64 * MIB,
            },
        }
    }
}

/// All operations of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreasPlan {
    /// Sizes of the areas that are mapped first.
    pub build: Vec<u32>,
    /// Replacements that bring the space into the state in which it stays.
    pub ageing: Vec<Replacement>,
    /// Replacements that are timed together.
    pub cycles: Vec<Replacement>,
    /// Replacements that are timed one by one.
    pub singles: Vec<Replacement>,
    /// Areas that are looked up.
    pub lookups: Vec<u32>,
    /// Every area once, in random order.
    pub order: Vec<u32>,
}

impl AreasPlan {
    /// Draws the operations on `live` areas.
    #[must_use]
    pub fn new(seed: u64, sizes: AreaSizes, live: u32, effort: &Effort) -> AreasPlan {
        let mut random = generator(seed, 201 + (u64::from(live) << 8));
        let build = (0..live).map(|_| sizes.draw(&mut random)).collect();
        let mut replacements = |count: usize| -> Vec<Replacement> {
            let draw = |_| Replacement {
                slot: random.random_range(0..live),
                size: sizes.draw(&mut random),
            };
            (0..count).map(draw).collect()
        };
        let ageing = replacements(live as usize * effort.area_ageing_percent / 100);
        let cycles = replacements(effort.replacements);
        let singles = replacements(effort.replacements);
        let lookups = (0..effort.replacements).map(|_| random.random_range(0..live)).collect();
        let mut order: Vec<u32> = (0..live).collect();
        shuffle(&mut order, &mut random);
        AreasPlan { build, ageing, cycles, singles, lookups, order }
    }

    /// Returns the number of areas that are mapped.
    #[must_use]
    pub fn live(&self) -> usize {
        self.build.len()
    }
}
