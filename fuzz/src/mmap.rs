//! Random operations on address spaces of every placement, against a naive list of areas.

use crate::it::mmap_pair::{Pair, SCALES, Step, configs};
use crate::it::starving::Heap;
use crate::steps;
use nofrag::mmap::SpaceConfig;

/// Steps of one input that are run at most.
const MOST_STEPS: usize = 400;

/// Runs the operations in `data` on the placement, the windows and the limit of areas that its first two bytes choose;
/// panics when the space and the list differ.
pub fn run(data: &[u8]) {
    if let [choice, limit, rest @ ..] = data {
        drive(*choice, *limit, Heap::AMPLE, rest);
    }
}

/// Runs the operations in `data` on this heap.
pub(crate) fn drive(choice: u8, limit: u8, heap: Heap, data: &[u8]) {
    let scale = SCALES[usize::from(limit) / 4 % SCALES.len()];
    let configs = configs(scale);
    let config = configs[usize::from(choice) % configs.len()];
    let map_limit = [14, 5, 40, 2][usize::from(limit) % 4];
    let mut pair = Pair::new(SpaceConfig { map_limit, ..config }, scale).on(heap);
    let steps = data.chunks_exact(Step::BYTES).map(|bytes| bytes.try_into());
    for bytes in steps.take(MOST_STEPS).flatten() {
        steps::count();
        pair.step(Step::from_bytes(bytes));
    }
}
