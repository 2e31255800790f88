//! Claims that a run must confirm: that it is a pure function of its seeds, that the patches keep their bounds, and how
//! far they reduce events on each mix.
//!
//! The first two hold exactly, whatever the options. The gate, 70 % on every mix that the count model
//! (docs/sources/pages.md#count-model) has, holds exactly with the memory and the share of touched units for which it
//! was stated; everything else about sizes is a ratio. Bounds on unpublished ratios are our own, and each claim names
//! their ground. Of what nobody published, later kernels and our own design above all, nothing is claimed
//! ([`withdrawn`](super::withdrawn)).

use nofrag::page::FragmentationPolicy;

use super::catalogue::{
    Case, MERGED, PATCH_1, Program, STALL_BOUNDS_MS, STALL_ORDERS, is_strict, stall_name,
};
use super::machine;
use super::names;
use super::turns::ExtfragPlan;
use super::view::{Beside, View};
use crate::figures::{self, Gorman2018};
use crate::key::Key;
use crate::oracle::{ClaimKind, Claims, Oracle, Relation};
use crate::report::{Measurement, Report};
use crate::scenario::ThpTouch;
use crate::stats::Spread;

/// Judges all measurements. `repeats` is true if a run gave the same counts when it was made again.
pub(super) fn judge(plan: &ExtfragPlan, repeats: bool, report: &mut Report) {
    let figures = figures::gorman_2018();
    let mut judge = Judge { plan, view: View { report }, oracles: Vec::new() };
    let claim = "runs that differ when made again";
    judge.oracles.exact("determinism", claim, f64::from(!repeats), Relation::NONE);
    judge.stalls_and_boosts();
    judge.strict_agreement();
    judge.gate();
    judge.over_all_mixes(&figures);
    let oracles = judge.oracles;
    report.oracles.extend(oracles);
}

struct Judge<'a> {
    plan: &'a ExtfragPlan,
    view: View<'a>,
    oracles: Vec<Oracle>,
}

/// The sizes of memory for which the gate (70 % fewer events) was stated, in GiB.
const GATED_GIB: [u64; 2] = [4, 8];

impl Judge<'_> {
    /// Checks that waits end at their bound and boosts at their cap, and that designs without them show none.
    fn stalls_and_boosts(&mut self) {
        let designs = self.view.designs();
        for (_, case) in self.view.all_cases() {
            for design in designs {
                let Ok(preset) = FragmentationPolicy::preset(design) else { continue };
                let Some(row) = self.view.row(&case, design) else { continue };
                let most =
                    |key: Key| row.spreads.get(&key).map_or(0.0, |spread: &Spread| spread.max);
                let bound_ms = preset.policy.stall.map_or(0.0, |stall| stall.bound.0 as f64 / 1e6);
                let longest = most(names::LONGEST_STALL_MS);
                if preset.policy.stall.is_some() {
                    let id = format!("stall-bound/{design}/{case}");
                    let claim = "virtual ms of the longest wait";
                    self.oracles.exact(id, claim, longest, Relation::AtMost(bound_ms));
                } else if longest + most(names::STALLS) > 0.0 {
                    let id = format!("no-stall/{design}/{case}");
                    self.oracles.exact(id, "waits", most(names::STALLS), Relation::NONE);
                }
                let cap = boost_cap(&case, preset.policy);
                let peak = most(names::PEAK_BOOST);
                if peak > cap || preset.policy.boost.is_some() && design == MERGED {
                    let claim = "most pages of boost at once, of all zones";
                    let id = format!("boost-cap/{design}/{case}");
                    self.oracles.exact(id, claim, peak, Relation::AtMost(cap));
                }
            }
        }
        self.curve_stalls();
    }

    /// Checks that from 6.10 on a free page is on the list of its pageblock's type.
    fn strict_agreement(&mut self) {
        let designs = self.view.designs();
        for (_, case) in self.view.all_cases() {
            let strict = designs.iter().filter(|design| is_strict(design));
            let rows = strict.filter_map(|design| self.view.row(&case, design));
            let most =
                |row: &Measurement| row.spreads.get(&names::LIST_MISMATCHES).map(|it| it.max);
            let most = rows.filter_map(most).reduce(f64::max);
            let claim =
                "free pages on another type's list, strict rules: most at the end of a phase";
            self.oracles.exact(format!("list-mismatches/{case}"), claim, most, Relation::NONE);
        }
    }

    fn curve_stalls(&mut self) {
        let program = Program::StallCurve;
        for case in self.view.cases(program) {
            for bound_ms in STALL_BOUNDS_MS {
                let points = STALL_ORDERS.filter_map(|order| {
                    let row = self.view.point(program, &case, &stall_name(order, bound_ms))?;
                    Some(row.spreads.get(&names::LONGEST_STALL_MS)?.max)
                });
                let id = format!("stall-bound/{bound_ms} ms/{}", case.configuration());
                let claim = "virtual ms of the longest wait, any order";
                let most = Relation::AtMost(bound_ms as f64);
                self.oracles.exact(id, claim, points.reduce(f64::max), most);
            }
        }
    }

    /// Checks that patches 1 to 4 reduce events on every mix: by 70 % at least, a bound of our own (the count model has
    /// 76 to 96 %: pages.md#count-model-results).
    fn gate(&mut self) {
        for (_, case) in self.view.all_cases() {
            let fewer = self.fewer(&case, MERGED);
            let claim =
                "events fewer than linux-4.20's with patches 1 to 4, percent, median over seeds";
            let kind = if self.is_gated(&case) { ClaimKind::Exact } else { ClaimKind::Ratio };
            self.oracles.claim(kind, format!("gate/{case}"), claim, fewer, Relation::AtLeast(70.0));
        }
    }

    /// Returns by how many percent a design has fewer events than vanilla: the median over seeds.
    fn fewer(&self, case: &Case, design: &str) -> Option<f64> {
        Some(self.view.fewer_events(case, design, Beside::Nothing).ok()??.median)
    }

    /// Returns true if the gate was stated for a case: the count model's mixes, as it runs them.
    fn is_gated(&self, case: &Case) -> bool {
        GATED_MIXES.contains(&case.mix.name)
            && case.configuration() == "s-default"
            && GATED_GIB.contains(&case.memory_gib)
            && self.plan.touch == ThpTouch::HalfOfUnits
    }

    /// Returns the reductions of a design seed by seed, over all mixes on one node in the default mode.
    fn all_reductions(&self, design: &str, wanted: impl Fn(&Case) -> bool) -> Option<Spread> {
        let cases = self.view.all_cases().into_iter().map(|(_, case)| case);
        let cases = cases.filter(|case| case.configuration() == "s-default" && wanted(case));
        let of_case = |case: Case| {
            let fewer = self.view.fewer_events(&case, design, Beside::Nothing).ok().flatten();
            fewer.map_or_else(Vec::new, |spread| spread.samples)
        };
        Spread::of(cases.flat_map(of_case).collect())
    }

    /// Judges patches 1 to 4 over all mixes by bounds of our own beside the document's "over 94%" (pages.md#trap-5),
    /// and patch 1 by the document's range.
    fn over_all_mixes(&mut self, figures: &Gorman2018) {
        let fewer = self.all_reductions(MERGED, |_| true);
        let [median, worst] = [fewer.as_ref().map(|it| it.median), fewer.map(|it| it.min)];
        let claim = "patches 1 to 4: events fewer, percent, median over seeds and mixes";
        self.oracles.ratio("patches-1-4-median", claim, median, Relation::AtLeast(94.0));
        let claim = "patches 1 to 4: the same, worst of all runs";
        self.oracles.ratio("patches-1-4-worst", claim, worst, Relation::AtLeast(75.0));
        if let Some([low, _]) = figures.reductions(MERGED, names::EVENTS) {
            let claim =
                "patches 1 to 4: median, beside the least of the document's configurations, less 5";
            let near = Relation::AtLeast((low - 5.0).round());
            self.oracles.ratio("patches-1-4-published", claim, median, near);
        }
        // A DMA32 zone below a tenth of memory is hardly populated (pages.md#count-model-second-zone).
        let fewer = self.all_reductions(PATCH_1, |case| case.mix.dma32 > 100);
        let [median, least] = [fewer.as_ref().map(|it| it.median), fewer.map(|it| it.min)];
        let claim =
            "patch 1: events fewer, percent, median where DMA32 is populated; the document's range";
        self.oracles.ratio("patch-1-median", claim, median, Relation::Between(7.0, 49.0));
        let claim = "patch 1: the same, least of all runs";
        self.oracles.ratio("patch-1-least", claim, least, Relation::AtLeast(0.0));
    }
}

/// The mixes that the count model has (pages.md#count-model-settings).
const GATED_MIXES: [&str; 5] = ["calibrated", "S1", "S2", "S3", "S4"];

/// Returns the most pages by which all zones together can be boosted: each by its high watermark times the factor. High
/// watermarks are one and a half times the reserve, or more where a thousandth of the zone is more than a quarter of
/// its share.
fn boost_cap(case: &Case, policy: FragmentationPolicy) -> f64 {
    let Some(boost) = policy.boost.filter(|boost| boost.factor > 0) else { return 0.0 };
    let pages = case.memory_gib << 18;
    let reserve = machine::huge_page_reserve(case.machine, pages) as f64;
    let gap = (reserve / 4.0).max(pages as f64 / 1000.0);
    // A zone below one pageblock of cap may still be boosted by one, and each rounds down.
    let zones = 6.0;
    let factor = f64::from(boost.factor) / 10_000.0;
    (reserve + 2.0 * gap) * factor + 512.0 * zones
}
