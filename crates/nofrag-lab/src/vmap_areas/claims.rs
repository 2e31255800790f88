//! Claims that a run must confirm.
//!
//! They read the run's measurements. A claim that counts something is exact; one that compares two times of the same
//! run is a ratio. What the designs do to made-up spaces (docs/sources/vmap.md#oracles) the core's own tests hold.

use super::catalogue::{SPECS, Spec};
use super::programs::LONG_BUSY_AREAS;
use super::{AFTER, BEFORE, OURS, SCENARIO, names};
use crate::oracle::{Claims, Relation};
use crate::report::Report;

/// Judges that one seed gives one set of counts.
pub(super) fn judge_stability(unstable: &[String], report: &mut Report) {
    let claim = "repetitions with the same seed count the same; single-threaded rows that differ";
    report.oracles.exact("same-seed", claim, unstable.len() as f64, Relation::NONE);
    if !unstable.is_empty() {
        report.notes.push(format!("counts differ between repetitions: {}", unstable.join(", ")));
    }
}

/// Judges the claims of the document, and ours, by the measurements; those whose programs or designs were not run are
/// left out.
pub(super) fn judge_measurements(report: &mut Report) {
    judge_walks(report);
    judge_fits(report);
    SCENARIO.judge(report);
}

fn judge_walks(report: &mut Report) {
    let hole = "long_busy_hole";
    let steps = |design| report.count(hole, design, names::STEPS_PER_LOOP);
    let [before, after, ours] = [BEFORE, AFTER, OURS].map(steps);
    let clean = report.count("fix_size_alloc", BEFORE, names::STEPS_PER_SEARCH);
    let claims = &mut report.oracles;
    let claim = "4.19 walks over all 15,000 areas in each loop of long_busy_hole; steps per loop";
    claims.exact("hole-walk-before", claim, before, Relation::AtLeast(LONG_BUSY_AREAS as f64));
    for (id, design, steps) in [("hole-walk-after", AFTER, after), ("hole-walk-ours", OURS, ours)] {
        let claim = format!("{design} needs no walk: steps per loop, two searches each");
        claims.exact(id, claim, steps, Relation::AtMost(64.0));
    }
    let claim = "4.19 is not slow on a clean space: steps per search of fix_size";
    claims.exact("clean-before", claim, clean, Relation::AtMost(4.0));
}

fn judge_fits(report: &mut Report) {
    let full = report.count("full_fit_alloc", AFTER, &names::FITS[0]);
    let split = report.count("fix_align_alloc", AFTER, &names::FITS[3]);
    let kept = |spec: &Spec| {
        let free = report.count(spec.info.name, AFTER, names::FREE_OBJECTS)?;
        let busy = report.count(spec.info.name, BEFORE, names::BUSY_OBJECTS)?;
        // One free area is the rest of the space; an empty space has no busy area.
        Some(f64::from(u8::from(free > busy + 1.0)))
    };
    let of_kernel = SPECS.iter().filter(|spec| spec.is_of_kernel());
    let more = of_kernel.filter_map(kept).reduce(|one, other| one + other);
    let claims = &mut report.oracles;
    let claim = "full_fit is served by full fits; their share";
    claims.exact("full-fit", claim, full, Relation::AtLeast(0.99));
    let claim = "fix_align splits free areas (no edge); their share";
    claims.exact("align-splits", claim, split, Relation::AtLeast(0.5));
    let claim = "5.2 keeps no more free areas than 4.19 keeps busy ones, but for the rest of the space; programs of \
                 the kernel's test with more";
    claims.exact("fewer-objects", claim, more, Relation::NONE);
}
