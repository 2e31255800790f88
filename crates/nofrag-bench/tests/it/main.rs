//! The comparison itself must be right before its figures mean anything.

mod areas;
mod blocks;
mod contest;
mod disjointness;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "heaps")]
mod heaps;
mod packing;
mod pages;
mod targets;
mod traces;

use nofrag_bench::contest::Outcome;
use nofrag_bench::record::Measure;

/// Returns what a turn measured.
#[track_caller]
fn value(outcome: &Outcome, measure: Measure) -> f64 {
    let samples = &outcome.as_ref().expect("something was measured").samples;
    samples.iter().find(|(known, _)| *known == measure).expect("it is measured").1
}
