//! Random small mappings under each preset, against a list of the mappings.

use crate::it::block_pair::Pair;
use crate::it::block_support::{PageBook, block_space, gappy_cpus, geometry, presets_with};
use crate::it::choices::Choices;
use crate::it::starving::Heap;
use crate::it::vmap_support::span;
use crate::steps;

/// Steps of one input that are run at most.
const MOST_STEPS: usize = 400;

/// Runs the operations in `data` on the preset and the geometry that its first two bytes choose; panics when a promise
/// is broken.
pub fn run(data: &[u8]) {
    if let [choice, shape, rest @ ..] = data {
        drive(*choice, *shape, Heap::AMPLE, rest);
    }
}

/// Runs the operations in `data` on this heap.
pub(crate) fn drive(choice: u8, shape: u8, heap: Heap, data: &[u8]) {
    let (slots, max_pages) = [(64, 32), (128, 64), (16, 8)][usize::from(shape % 3)];
    // A low limit, so that short inputs reach the purge too.
    let presets: Vec<_> = presets_with(geometry(slots, max_pages), choice.into()).collect();
    let preset = presets[usize::from(choice) % presets.len()];
    // Neither begins nor ends where a block does.
    let book =
        PageBook::new(span(0x105, u64::from(slots) * 6), [0, 1, 3, 40][usize::from(shape / 3 % 4)]);
    let space = block_space(preset.policy, gappy_cpus(), book);
    let mut pair = Pair::new(&space, preset, Choices::Bytes(data), 1).on(heap);
    steps::carry_out(MOST_STEPS, &mut pair, |pair| pair.choices.has_more(), Pair::step);
    pair.end();
}
