//! Random operations on a heap of ranges, beside runs of the numbers that are free.

use crate::it::choices::Choices;
use crate::it::heap_pair::{Pair, TOUCHING, WIDE};
use crate::steps;

/// Steps of one input that are run at most.
const MOST_STEPS: usize = 400;

/// Runs the operations in `data` in the space that its first byte chooses; panics when the heap and the runs differ.
pub fn run(data: &[u8]) {
    if let Some((&choice, rest)) = data.split_first() {
        let field = if choice % 2 == 0 { TOUCHING } else { WIDE };
        let mut pair = Pair::new(field, Choices::Bytes(rest));
        steps::carry_out(MOST_STEPS, &mut pair, |pair| pair.choices.has_more(), Pair::step);
        pair.end();
    }
}
