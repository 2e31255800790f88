//! Operations, drawn from a seed before any clock starts.

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::time::Duration;

/// Distribution of the sizes of requests, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// 1 to 64, all equally likely.
    Uniform,
    /// Nine of ten requests 1 to 4, one of ten 64 to 256.
    Bimodal,
    /// 20 to 100, all equally likely: blocks of a request in a cache of keys and values.
    Cache,
    /// 64 to 65,536, each doubling equally likely: bytes.
    Bytes,
    /// 8 to 131,072, each doubling equally likely: 4 KiB to 64 MiB in units of 512 bytes.
    Doublings,
}

impl Sizes {
    /// Returns the name used in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sizes::Uniform => "uniform 1..64",
            Sizes::Bimodal => "bimodal 90 % 1..4, 10 % 64..256",
            Sizes::Cache => "cache of keys and values 20..100",
            Sizes::Bytes => "bytes 64..65536",
            Sizes::Doublings => "doublings 8..131072",
        }
    }

    fn draw(self, random: &mut Pcg64) -> u32 {
        match self {
            Sizes::Uniform => random.random_range(1..=64),
            Sizes::Bimodal if random.random_range(0..10) < 9 => random.random_range(1..=4),
            Sizes::Bimodal => random.random_range(64..=256),
            Sizes::Cache => random.random_range(20..=100),
            Sizes::Bytes => within_a_doubling(64 << random.random_range(0..10), random),
            Sizes::Doublings => within_a_doubling(8 << random.random_range(0..14), random),
        }
    }
}

fn within_a_doubling(least: u32, random: &mut Pcg64) -> u32 {
    random.random_range(least..=2 * least)
}

/// Makes the generator of one purpose; different purposes never share numbers.
pub(crate) fn generator(seed: u64, purpose: u64) -> Pcg64 {
    Pcg64::seed_from_u64(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Puts `all` in random order.
pub(crate) fn shuffle<T>(all: &mut [T], random: &mut Pcg64) {
    for last in (1..all.len()).rev() {
        all.swap(last, random.random_range(0..=last));
    }
}

/// Frees the allocation in `slot` and puts one of `size` pages there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Index among the live allocations.
    pub slot: u32,
    /// Pages of the new allocation.
    pub size: u32,
}

/// Twice the live set is built, half of it freed at random, then replaced one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Churn {
    /// Allocations that are live after the building.
    pub live: u32,
    /// Sizes of the first `2 * live` allocations.
    pub build: Vec<u32>,
    /// All these allocations in random order: the first half is freed, the second is the live set.
    pub order: Vec<u32>,
    pub replacements: Vec<Replacement>,
}

impl Churn {
    /// Draws a churn of `live` allocations of 1 to 64 pages with `replacements` replacements.
    #[must_use]
    pub fn new(seed: u64, live: u32, replacements: usize) -> Churn {
        Churn::of(Sizes::Uniform, seed, live, replacements)
    }

    /// Draws a churn of these sizes.
    #[must_use]
    pub fn of(sizes: Sizes, seed: u64, live: u32, replacements: usize) -> Churn {
        let mut random = generator(seed, u64::from(live));
        let build: Vec<u32> = (0..2 * live).map(|_| sizes.draw(&mut random)).collect();
        let mut order: Vec<u32> = (0..2 * live).collect();
        shuffle(&mut order, &mut random);
        let replacements = (0..replacements)
            .map(|_| Replacement {
                slot: random.random_range(0..live),
                size: sizes.draw(&mut random),
            })
            .collect();
        Churn { live, build, order, replacements }
    }
}

/// An endless supply of sizes and of picks among the live allocations, however many: their number depends on which
/// requests a contestant can serve, so the picks are drawn as fractions.
#[derive(Clone, Debug)]
pub struct Draws {
    sizes: Sizes,
    for_sizes: Pcg64,
    for_picks: Pcg64,
}

impl Draws {
    /// Makes the draws of `seed`.
    #[must_use]
    pub fn new(seed: u64, sizes: Sizes) -> Draws {
        Draws { sizes, for_sizes: generator(seed, 101), for_picks: generator(seed, 102) }
    }

    /// Draws the size of the next request.
    pub fn size(&mut self) -> u32 {
        self.sizes.draw(&mut self.for_sizes)
    }

    /// Draws the next index below `live`.
    pub fn pick(&mut self, live: usize) -> usize {
        ((u64::from(self.fraction()) * live as u64) >> 32) as usize
    }

    /// Draws the next pick as a fraction of 2^32.
    pub fn fraction(&mut self) -> u32 {
        self.for_picks.random()
    }
}

/// A state in which the bytes are counted.
#[derive(Clone, Debug)]
pub enum HoleState {
    /// State after the building and the replacements.
    Churned(Churn),
    /// This many one-page holes, one page apart.
    Comb(u32),
    /// The same, where a page has 2^32 numbers.
    Sparse(u32),
}

impl HoleState {
    /// Returns the name of the workload.
    #[must_use]
    pub fn workload(&self) -> String {
        match self {
            HoleState::Churned(churn) => format!("bytes after churn, live {}", churn.live),
            HoleState::Comb(holes) => format!("bytes with {holes} one-page holes"),
            HoleState::Sparse(holes) => format!("bytes with {holes} holes of 2^32 numbers"),
        }
    }
}

/// Allocations that follow a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    OneForOne,
    ToNinetyPercent,
}

impl Refill {
    /// Both kinds of refill, in the order of the report.
    pub const BOTH: [Refill; 2] = [Refill::OneForOne, Refill::ToNinetyPercent];

    /// Returns the name used in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refill::OneForOne => "one for one",
            Refill::ToNinetyPercent => "refilled to 90 %",
        }
    }
}

/// One seed of the packing workload.
#[derive(Clone, Debug)]
pub struct PackingPlan {
    pub draws: Draws,
    pub refill: Refill,
    /// Number of frees, each with its refill.
    pub replacements: usize,
    /// Longest time for the whole plan.
    pub limit: Duration,
}
