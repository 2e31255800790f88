//! Operations depend on the seed alone.

use nofrag_bench::trace::{Churn, Draws, Sizes};

#[test]
fn equal_seeds_give_equal_operations() {
    assert_eq!(Churn::new(1, 50, 100), Churn::new(1, 50, 100));
    assert_ne!(Churn::new(1, 50, 100), Churn::new(2, 50, 100));
}

#[test]
fn a_churn_frees_half_of_what_it_builds() {
    let churn = Churn::new(9, 40, 100);
    assert_eq!((churn.build.len(), churn.order.len()), (80, 80));
    let mut slots = churn.order.clone();
    slots.sort_unstable();
    assert!(slots.into_iter().eq(0..80), "each allocation is freed or kept once");
    assert!(churn.replacements.iter().all(|r| r.slot < 40 && (1..=64).contains(&r.size)));
}

#[test]
fn sizes_do_not_depend_on_how_many_are_live() {
    let mut few = Draws::new(4, Sizes::Bimodal);
    let mut many = Draws::new(4, Sizes::Bimodal);
    let few: Vec<u32> = (0..50).map(|_| (few.pick(3), few.size()).1).collect();
    let many: Vec<u32> = (0..50).map(|_| (many.pick(1000), many.size()).1).collect();
    assert_eq!(few, many);
}

#[test]
fn picks_stay_below_the_number_of_live_allocations() {
    let mut draws = Draws::new(4, Sizes::Uniform);
    assert!((1..500).all(|live| draws.pick(live) < live));
}

#[test]
fn bimodal_sizes_are_small_or_large() {
    let mut draws = Draws::new(11, Sizes::Bimodal);
    let sizes: Vec<u32> = (0..10_000).map(|_| draws.size()).collect();
    assert!(sizes.iter().all(|size| (1..=4).contains(size) || (64..=256).contains(size)));
    let large = sizes.iter().filter(|size| **size > 4).count();
    assert!((800..1200).contains(&large), "{large} of 10000 are large");
}
