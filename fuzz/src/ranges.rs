//! Random operations on each index design, against sorted runs of numbers.

use nofrag::ranges::{AlignClasses, AlignRule, Config, Index};

use crate::it::choices::Choices;
use crate::it::range_pair::{DELICATE, Pair};
use crate::steps;

/// Steps of one input that are run at most.
const MOST_STEPS: usize = 400;

/// Runs the operations in `data` on the design that its first byte chooses; panics when a promise is broken.
pub fn run(data: &[u8]) {
    if let Some((&choice, rest)) = data.split_first() {
        drive(Pair::new(config(choice), DELICATE, Choices::Bytes(rest)));
    }
}

/// Returns the configuration of one of the index designs, with or without alignment classes and a size index.
pub(crate) fn config(choice: u8) -> Config {
    let index = match choice % 8 {
        0..4 => Index::WideBlocks,
        4 => Index::CachedScan,
        5 => Index::AugmentedTree(AlignRule::Padded),
        6 => Index::AugmentedTree(AlignRule::Unpadded),
        _ => Index::AugmentedTree(AlignRule::PaddedUnlessExact),
    };
    let classes: &[u8] = match choice / 8 % 4 {
        0 => &[],
        1 => &[1, 4, 9],
        2 => &[3],
        _ => &[2, 5, 12, 30],
    };
    let align_classes = AlignClasses::new(classes).expect("the exponents rise");
    Config { index, align_classes, size_index: choice % 8 < 3 }
}

/// Runs steps, at most [`MOST_STEPS`], until the input is used up.
pub(crate) fn drive(mut pair: Pair<'_>) {
    steps::carry_out(MOST_STEPS, &mut pair, |pair| pair.choices.has_more(), Pair::step);
    pair.end();
}
