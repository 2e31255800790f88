//! Operations on page frames, drawn before any clock starts.

use crate::contest::Effort;
use crate::trace::{generator, shuffle};
use nofrag::units::Order;
use rand::RngExt;
use rand_pcg::Pcg64;

/// Sizes of the blocks of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    Pages,
    Pageblocks,
    /// Of a hundred 70 single pages, 10 of order 1, 8 of order 2, 7 of order 3, 3 of order 4 and 2 of order 9.
    Mixed,
}

impl Blocks {
    pub const ALL: [Blocks; 3] = [Blocks::Pages, Blocks::Pageblocks, Blocks::Mixed];

    /// Returns the name used in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Blocks::Pages => "order 0",
            Blocks::Pageblocks => "order 9",
            Blocks::Mixed => "orders 0..4 and 9, mostly 0",
        }
    }

    fn draw(self, random: &mut Pcg64) -> Order {
        let order = match self {
            Blocks::Pages => 0,
            Blocks::Pageblocks => 9,
            Blocks::Mixed => match random.random_range(0..100) {
                0..70 => 0,
                70..80 => 1,
                80..88 => 2,
                88..95 => 3,
                95..98 => 4,
                _ => 9,
            },
        };
        Order::new(order).expect("no larger than the largest")
    }
}

/// All operations of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesPlan {
    /// Blocks that are allocated one after the other: about three quarters of memory, or as many as there are
    /// replacements.
    pub bulk: Vec<Order>,
    /// The slots of these blocks, in random order.
    pub order: Vec<u32>,
    /// Slots whose block is freed and replaced by one of the given size.
    pub replacements: Vec<(u32, Order)>,
}

impl PagesPlan {
    /// Draws the operations on blocks of some sizes in `frames` frames.
    #[must_use]
    pub fn new(seed: u64, blocks: Blocks, frames: u32, effort: &Effort) -> PagesPlan {
        let mut random = generator(seed, 301 + blocks as u64);
        let (mut bulk, mut pages) = (Vec::new(), 0);
        loop {
            let order = blocks.draw(&mut random);
            pages += order.pages();
            if pages > u64::from(frames) * 3 / 4 {
                break;
            }
            bulk.push(order);
        }
        let live = bulk.len() as u32;
        let mut order: Vec<u32> = (0..live).collect();
        shuffle(&mut order, &mut random);
        let replace = |_| (random.random_range(0..live), blocks.draw(&mut random));
        let replacements = (0..effort.replacements).map(replace).collect();
        PagesPlan { bulk, order, replacements }
    }
}

/// The draws of the frag test. Which pages are given back depends on how many a contestant handed out, so picks are
/// drawn as they are needed, from the same generator for all.
#[derive(Clone, Debug)]
pub struct FragDraws(Pcg64);

impl FragDraws {
    /// Makes the draws of a seed.
    #[must_use]
    pub fn new(seed: u64) -> FragDraws {
        FragDraws(generator(seed, 401))
    }

    /// Moves `count` of `all`, chosen at random, to its end.
    pub fn choose<T>(&mut self, all: &mut [T], count: usize) {
        for done in 0..count.min(all.len()) {
            let last = all.len() - 1 - done;
            all.swap(last, self.0.random_range(0..=last));
        }
    }
}
