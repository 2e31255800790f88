//! Random requests for page frames on small machines, under each preset: in a world with an owner that fails in every
//! way that it may, or beside the naive model, which knows the fast path alone.

use nofrag::page::FragmentationPolicy;

use crate::it::choices::Choices;
use crate::it::page_pair::{Pair, Step, machines, modelled};
use crate::it::page_world::World;
use crate::steps;

/// Steps of one input that are run at most.
const MOST_STEPS: usize = 300;

/// Runs the requests in `data` on the preset and the machine that its first bytes choose; panics when a promise is
/// broken.
pub fn run(data: &[u8]) {
    let [preset, shape, min_free, rest @ ..] = data else { return };
    let presets = FragmentationPolicy::PRESETS;
    let policy = presets[usize::from(*preset) % presets.len()].policy;
    let machines = machines();
    let map = &machines[usize::from(*shape / 4) % machines.len()].1;
    if shape % 4 == 0 {
        let mut pair = Pair::new(map, modelled(policy), u64::from(*min_free));
        let steps = rest.chunks_exact(Step::BYTES).map(|bytes| bytes.try_into());
        for bytes in steps.take(MOST_STEPS).flatten() {
            steps::count();
            pair.step(Step::from_bytes(bytes));
        }
        return;
    }
    let mut world = World::new(map, policy, u64::from(*min_free), Choices::Bytes(rest), 8);
    steps::carry_out(MOST_STEPS, &mut world, World::has_more, World::step);
    world.end();
}
