//! Random operations on address spaces of every placement, against a naive list of areas.
//!
//! The list and the steps are those of the crate's own tests; the fuzzer only finds other ones.

#[path = "../../crates/nofrag/tests/it/mmap_naive.rs"]
mod mmap_naive;
#[path = "../../crates/nofrag/tests/it/mmap_pair.rs"]
mod mmap_pair;

use mmap_pair::{Pair, SCALES, Step, configs};
use nofrag::mmap::SpaceConfig;

use crate::steps;

/// So many steps of one input are run.
const MOST_STEPS: usize = 400;

/// Runs the operations in `data` on the placement, the windows and the limit of areas
/// that its first two bytes choose;
/// panics when the space and the list differ.
pub fn run(data: &[u8]) {
    let [choice, limit, rest @ ..] = data else { return };
    let scale = SCALES[usize::from(*limit) / 4 % SCALES.len()];
    let configs = configs(scale);
    let config = configs[usize::from(*choice) % configs.len()];
    let map_limit = [14, 5, 40, 2][usize::from(*limit) % 4];
    let mut pair = Pair::new(SpaceConfig { map_limit, ..config }, scale);
    let steps = rest.chunks_exact(Step::BYTES).map(|bytes| bytes.try_into());
    for bytes in steps.take(MOST_STEPS).flatten() {
        steps::count();
        pair.step(Step::from_bytes(bytes));
    }
}
