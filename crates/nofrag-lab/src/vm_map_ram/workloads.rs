//! Pen's three workloads (docs/sources/vmap.md#pen-workloads), as sequences of sizes: each is mapped and unmapped at
//! once.

use nofrag::vmap::BlockGeometry;

use crate::random::Mersenne;

/// One of the three workloads of Pen 2015.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// 16 pages, then 8 pages as often as a block holds them, less once: each block keeps a hole of 8 pages, which is
    /// too small for the 16.
    W1,
    /// Sizes from one page to the largest, each as likely, from the Mersenne twister of this key.
    W2 {
        /// The word by which the generator is initialised.
        key: u32,
    },
    /// For each power of two, as many mappings as leave a hole of that size; then one of each.
    W3,
}

impl Workload {
    /// Returns the sizes of `loops` loops: Pen ran 1,000. A loop of the random workload is ten calls.
    pub(super) fn sizes(self, geometry: BlockGeometry, loops: u64) -> Vec<u16> {
        let mut sizes = Vec::new();
        let mut random = match self {
            Workload::W2 { key } => Some(Mersenne::new(key)),
            Workload::W1 | Workload::W3 => None,
        };
        for _ in 0..loops {
            match &mut random {
                Some(random) => {
                    let draw = |_| random.below(geometry.max_pages()) as u16 + 1;
                    sizes.extend((0..10).map(draw));
                }
                None if self == Workload::W1 => one_loop_of_w1(geometry, &mut sizes),
                None => one_loop_of_w3(geometry, &mut sizes),
            }
        }
        sizes
    }
}

fn one_loop_of_w1(geometry: BlockGeometry, sizes: &mut Vec<u16>) {
    sizes.push(16);
    let eights = (geometry.slots() as usize - 16) / 8 - 1;
    sizes.extend(std::iter::repeat_n(8, eights));
}

fn one_loop_of_w3(geometry: BlockGeometry, sizes: &mut Vec<u16>) {
    let orders = 0..=geometry.max_pages().ilog2();
    for order in orders.clone() {
        let but_one = (geometry.slots() >> order) as usize - 1;
        sizes.extend(std::iter::repeat_n(1 << order, but_one));
    }
    sizes.extend(orders.map(|order| 1_u16 << order));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(workload: Workload) -> usize {
        workload.sizes(BlockGeometry::LINUX_64, 1000).len()
    }

    #[test]
    fn the_calls_are_as_many_as_the_profiler_counted() {
        assert_eq!(calls(Workload::W1), 126_000);
        assert_eq!(calls(Workload::W2 { key: 0 }), 10_000);
        assert_eq!(calls(Workload::W3), 2_032_000);
    }

    #[test]
    fn the_random_sizes_are_those_of_the_simulation() {
        let sizes = Workload::W2 { key: 0 }.sizes(BlockGeometry::LINUX_64, 1);
        assert_eq!(sizes[..5], [50, 54, 6, 34, 63]);
    }

    #[test]
    fn each_block_keeps_a_hole_of_eight_pages() {
        let sizes = Workload::W1.sizes(BlockGeometry::LINUX_64, 1);
        assert_eq!(sizes.iter().map(|size| u32::from(*size)).sum::<u32>(), 1024 - 8);
    }
}
