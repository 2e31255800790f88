//! Every preset against a model too simple to be wrong: a map of the areas that are out.

use super::choices::Choices;
use super::starving::Heap;
use super::vmap_pair::Pair;
use super::vmap_support::{presets_with_limit, space_of, span};
use nofrag::ranges::Span;
use proptest::prelude::*;

/// Runs `steps` random steps on each preset.
fn check_presets(bounds: Span, seed: u64, steps: u64, check_every: u64, heap: Heap) {
    for preset in presets_with_limit(100) {
        println!("{}, seed {seed}, {bounds:?}, {heap:?}", preset.name);
        let space = space_of(preset.policy, bounds, 3);
        let mut pair = Pair::new(&space, Choices::seed(seed), check_every).on(heap);
        (0..steps).for_each(|_| pair.step());
        pair.end();
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..4 {
        check_presets(span(0x4000, 1500), seed, 1500, 1, Heap::AMPLE);
    }
}

#[test]
fn random_operations_at_the_ends_of_the_numbers_agree_with_the_model() {
    check_presets(span(0, 700), 11, 1000, 1, Heap::AMPLE);
    check_presets(span(u64::MAX - 700, 700), 12, 1000, 1, Heap::AMPLE);
}

#[test]
fn random_operations_on_a_heap_that_refuses_agree_with_the_model() {
    for odds in [20, 128, 255] {
        check_presets(span(0x4000, 1500), 13, 500, 1, Heap::new(odds, 13));
    }
}

/// Two million operations for each preset. Run it with
/// `cargo test -p nofrag --release --test it -- --ignored vmap_model`.
#[test]
#[ignore = "takes minutes; for an opt-in long run"]
fn ten_million_operations_agree_with_the_model() {
    check_presets(span(0x7_0000, 6000), 2019, 2_000_000, 1000, Heap::AMPLE);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Operations by choices that proptest makes, and shrinks to the fewest when a space and the model differ.
    #[test]
    fn chosen_operations_agree_with_the_model(
        preset in 0..presets_with_limit(100).count(),
        choices in proptest::collection::vec(any::<u8>(), 0..500),
    ) {
        let preset = presets_with_limit(100).nth(preset).expect("it is below the count");
        let space = space_of(preset.policy, span(0x100, 700), 2);
        let mut pair = Pair::new(&space, Choices::Bytes(&choices), 1);
        while pair.choices.has_more() {
            pair.step();
        }
        pair.end();
    }
}
