//! Random operations on a space of virtual areas, under each preset, against a map of busy and stale pages.

use nofrag::vmap::VmapPolicy;

use crate::it::choices::Choices;
use crate::it::starving::Heap;
use crate::it::vmap_pair::Pair;
use crate::it::vmap_support::{presets_with_limit, space_of, span};
use crate::steps;

/// Steps of one input that are run at most.
const MOST_STEPS: usize = 400;

/// Runs the operations in `data` on the preset that its first byte chooses; panics when a promise is broken.
pub fn run(data: &[u8]) {
    if let Some((&choice, rest)) = data.split_first() {
        drive(choice, Heap::AMPLE, rest);
    }
}

/// Runs the operations in `data` on this heap.
pub(crate) fn drive(choice: u8, heap: Heap, data: &[u8]) {
    let presets = VmapPolicy::presets().count();
    // A low limit, so that short inputs reach the purge too.
    let preset = presets_with_limit(choice.into()).nth(usize::from(choice) % presets);
    let policy = preset.expect("it is below the count").policy;
    let space = space_of(policy, span(0x100, 700), 1 + u32::from(choice) % 3);
    let mut pair = Pair::new(&space, Choices::Bytes(data), 1).on(heap);
    steps::carry_out(MOST_STEPS, &mut pair, |pair| pair.choices.has_more(), Pair::step);
    pair.end();
}
