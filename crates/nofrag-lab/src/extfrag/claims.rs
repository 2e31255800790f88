//! Claims that a run must confirm: that it is a pure function of its seeds, that the patches keep their bounds, and how
//! far they reduce events on each mix.
//!
//! The first two hold exactly, whatever the options. The gate, 70 % on every mix that the count model
//! (docs/sources/pages.md#count-model) has, holds exactly with the memory and the share of touched units for which it
//! was stated; everything else about sizes is a ratio. Bounds on unpublished ratios are our own, and each claim names
//! their ground.

use nofrag::page::FragmentationPolicy;

use super::catalogue::{
    ALL_FIVE, Case, DEFRAG_MODE, MERGED, OURS, PATCH_1, Program, SHIPPED, STALL_BOUNDS_MS,
    STALL_ORDERS, STRICT_ONLY, VANILLA, is_strict, silent_beside, stall_name,
};
use super::machine;
use super::names;
use super::spec::{HugeMode, Touch};
use super::turns::ExtfragPlan;
use super::view::{Beside, View, differing};
use crate::figures::{self, Column, Gorman2018};
use crate::oracle::{ClaimKind, Oracle, Relation};
use crate::report::{Measurement, Report};
use crate::stats::Spread;

/// Judges all measurements. `repeats` is true if a run gave the same counts when it was made again.
pub(super) fn judge(plan: &ExtfragPlan, repeats: bool, report: &mut Report) {
    let figures = figures::gorman_2018();
    let mut judge = Judge { plan, view: View { report }, oracles: Vec::new() };
    judge.exact("determinism", "runs that differ when made again", f64::from(!repeats), 0.0);
    judge.published(&figures);
    judge.silent_patches();
    judge.units();
    judge.stalls_and_boosts();
    judge.strict_agreement();
    judge.gate();
    judge.over_all_mixes(&figures);
    judge.model_bands();
    judge.strict_lists();
    judge.huge_pages();
    judge.ours();
    let oracles = judge.oracles;
    report.oracles.extend(oracles);
}

struct Judge<'a> {
    plan: &'a ExtfragPlan,
    view: View<'a>,
    oracles: Vec<Oracle>,
}

/// The reductions that the document states, in percent: patch 1, 1 to 4, 1 to 5 (pages.md#published-figures).
const STATED: [(&str, [f64; 3]); 4] = [
    ("s-default", [49.0, 97.7, 97.9]),
    ("s-madv", [34.0, 95.4, 94.8]),
    ("h-default", [7.0, 93.4, 94.6]),
    ("h-madv", [11.0, 93.3, 93.6]),
];

/// The sizes of memory for which the gate (70 % fewer events) was stated, in GiB.
const GATED_GIB: [u64; 2] = [4, 8];

impl Judge<'_> {
    fn exact(&mut self, id: &str, claim: &str, measured: f64, must_be: f64) {
        let relation = Relation::Equals(must_be);
        self.oracles.push(Oracle::judge(id, ClaimKind::Exact, claim, measured, relation));
    }

    fn bound(&mut self, id: String, claim: &str, measured: f64, most: f64) {
        let relation = Relation::AtMost(most);
        self.oracles.push(Oracle::judge(id, ClaimKind::Exact, claim, measured, relation));
    }

    fn ratio(&mut self, id: impl Into<String>, claim: &str, measured: f64, relation: Relation) {
        self.oracles.push(Oracle::judge(id, ClaimKind::Ratio, claim, measured, relation));
    }

    /// Checks that the reductions that the document states follow from its counts, but for one (pages.md#trap-3), and
    /// so do the threads and units that its workload makes of CPUs and memory. Source: pages.md#o-20 and pages.md#o-19.
    fn published(&mut self, figures: &Gorman2018) {
        let differ = STATED.iter().flat_map(|(configuration, stated)| {
            Column::ALL[1..].iter().zip(stated).filter(move |(column, stated)| {
                let computed = figures.reduction(configuration, **column).unwrap_or(f64::NAN);
                // The commit rounds to whole percent, the mails do not.
                let unit = if **column == Column::Patch1 { 1.0 } else { 10.0 };
                (computed * unit).round() / unit != **stated
            })
        });
        let claim = "reductions that do not follow from the document's counts, of 12";
        let differ = differ.count() as f64;
        self.exact("published-reductions", claim, differ, 0.0);
        let threads = |cpus| machine::thp_threads(cpus, 1);
        let expected = [(7, None), (8, Some(1)), (11, Some(1)), (24, Some(5)), (27, Some(5))];
        let wrong = expected.iter().filter(|(cpus, there)| threads(*cpus) != *there);
        let claim =
            "CPUs per node (7, 8, 11, 24, 27) that do not give 0, 1, 1, 5, 5 huge-page threads";
        let wrong = wrong.count() as f64;
        self.exact("workload-threads", claim, wrong, 0.0);
        let units = machine::units_per_thread(16 << 18, 1);
        self.exact(
            "workload-units",
            "units touched with 16 GiB and 1 thread",
            units as f64,
            3072.0,
        );
        for wrong in &figures.misstatements {
            let Some(computed) = figures.reduction(&wrong.configuration, wrong.column) else {
                continue;
            };
            let claim = format!(
                "percent that mail 5/5 states ({}) beyond what its counts give",
                wrong.stated
            );
            let id = format!("published-misstated/{}", wrong.configuration);
            let relation = Relation::AtLeast(4.0);
            let off = wrong.stated - computed;
            self.oracles.push(Oracle::judge(id, ClaimKind::Exact, claim, off, relation));
        }
    }

    /// Checks that designs which change nothing give the same run, count by count.
    fn silent_patches(&mut self) {
        let view = self.view;
        for (_, case) in view.all_cases() {
            for design in view.designs() {
                let Some(beside) = silent_beside(design) else { continue };
                let rows = [beside, design].map(|design| view.row(&case, design));
                let [Some(plain), Some(silent)] = rows else { continue };
                let differ = differing(plain, silent) as f64;
                let claim = format!("counts that differ from those of {beside}, first seed");
                self.exact(&format!("silent/{design}"), &claim, differ, 0.0);
            }
        }
    }

    /// Checks that every design is asked for the same number of units.
    fn units(&mut self) {
        for (_, case) in self.view.all_cases() {
            let rows = self.view.designs().iter().filter_map(|design| self.view.row(&case, design));
            let units: Vec<f64> = rows
                .flat_map(|row| {
                    let [huge, base] = [names::HUGE, names::BASE].map(|name| row.spreads.get(name));
                    let samples = |spread: Option<&Spread>| {
                        spread.map_or_else(Vec::new, |spread| spread.samples.clone())
                    };
                    let pairs = samples(huge).into_iter().zip(samples(base));
                    pairs.map(|(huge, base)| huge + base).collect::<Vec<_>>()
                })
                .collect();
            let Some(first) = units.first() else { continue };
            let differ = units.iter().filter(|units| *units != first).count() as f64;
            let claim = "runs in which another number of units was touched than in the first";
            self.exact(&format!("units/{case}"), claim, differ, 0.0);
        }
    }

    /// Checks that waits end at their bound and boosts at their cap, and that designs without them show none.
    fn stalls_and_boosts(&mut self) {
        let designs = self.view.designs();
        for (_, case) in self.view.all_cases() {
            for design in designs {
                let Ok(preset) = FragmentationPolicy::preset(design) else { continue };
                let Some(row) = self.view.row(&case, design) else { continue };
                let most = |name| row.spreads.get(name).map_or(0.0, |spread: &Spread| spread.max);
                let bound_ms = preset.policy.stall.map_or(0.0, |stall| stall.bound.0 as f64 / 1e6);
                let longest = most(names::LONGEST_STALL_MS);
                if preset.policy.stall.is_some() {
                    let claim = "virtual ms of the longest wait";
                    self.bound(format!("stall-bound/{design}/{case}"), claim, longest, bound_ms);
                } else if longest + most(names::STALLS) > 0.0 {
                    self.exact(
                        &format!("no-stall/{design}/{case}"),
                        "waits",
                        most(names::STALLS),
                        0.0,
                    );
                }
                let cap = boost_cap(&case, preset.policy);
                let peak = most(names::PEAK_BOOST);
                if peak > cap || preset.policy.boost.is_some() && design == MERGED {
                    let claim = "most pages of boost at once, of all zones";
                    self.bound(format!("boost-cap/{design}/{case}"), claim, peak, cap);
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
            let most = |row: &Measurement| row.spreads.get(names::LIST_MISMATCHES).map(|it| it.max);
            let Some(most) = rows.filter_map(most).reduce(f64::max) else { continue };
            let claim =
                "free pages on another type's list, strict rules: most at the end of a phase";
            self.exact(&format!("list-mismatches/{case}"), claim, most, 0.0);
        }
    }

    fn curve_stalls(&mut self) {
        let program = Program::StallCurve;
        for case in self.view.cases(program) {
            for bound_ms in STALL_BOUNDS_MS {
                let points = STALL_ORDERS.filter_map(|order| {
                    let row = self.view.point(program, &case, &stall_name(order, bound_ms))?;
                    Some(row.spreads.get(names::LONGEST_STALL_MS)?.max)
                });
                let Some(longest) = points.reduce(f64::max) else { continue };
                let id = format!("stall-bound/{bound_ms} ms/{}", case.configuration());
                self.bound(
                    id,
                    "virtual ms of the longest wait, any order",
                    longest,
                    bound_ms as f64,
                );
            }
        }
    }

    /// Checks that patches 1 to 4 reduce events on every mix: by 70 % at least, a bound of our own (the count model has
    /// 76 to 96 %: pages.md#count-model-results).
    fn gate(&mut self) {
        for (_, case) in self.view.all_cases() {
            let fewer = self.view.fewer_events(&case, MERGED, Beside::Nothing);
            let Ok(Some(fewer)) = fewer else { continue };
            let claim =
                "events fewer than linux-4.20's with patches 1 to 4, percent, median over seeds";
            let kind = if self.is_gated(&case) { ClaimKind::Exact } else { ClaimKind::Ratio };
            let relation = Relation::AtLeast(70.0);
            let id = format!("gate/{case}");
            self.oracles.push(Oracle::judge(id, kind, claim, fewer.median, relation));
        }
    }

    /// Returns true if the gate was stated for a case: the count model's mixes, as it runs them.
    fn is_gated(&self, case: &Case) -> bool {
        GATED_MIXES.contains(&case.mix.name)
            && case.configuration() == "s-default"
            && GATED_GIB.contains(&case.memory_gib)
            && self.plan.touch == Touch::HalfOfUnits
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
        if let Some(fewer) = self.all_reductions(MERGED, |_| true) {
            let claim = "patches 1 to 4: events fewer, percent, median over seeds and mixes";
            self.ratio("patches-1-4-median", claim, fewer.median, Relation::AtLeast(94.0));
            let claim = "patches 1 to 4: the same, worst of all runs";
            self.ratio("patches-1-4-worst", claim, fewer.min, Relation::AtLeast(75.0));
            if let Some([low, _]) = figures.reductions(Column::Patches14) {
                let claim = "patches 1 to 4: median, beside the least of the document's configurations, less 5";
                let near = Relation::AtLeast((low - 5.0).round());
                self.ratio("patches-1-4-published", claim, fewer.median, near);
            }
        }
        // A DMA32 zone below a tenth of memory is hardly populated (pages.md#count-model-second-zone).
        if let Some(fewer) = self.all_reductions(PATCH_1, |case| case.mix.dma32 > 100) {
            let claim = "patch 1: events fewer, percent, median where DMA32 is populated; the document's range";
            self.ratio("patch-1-median", claim, fewer.median, Relation::Between(7.0, 49.0));
            let claim = "patch 1: the same, least of all runs";
            self.ratio("patch-1-least", claim, fewer.min, Relation::AtLeast(0.0));
        }
    }

    /// Judges the calibrated mix by the bands of the count model (pages.md#count-model-results). They bind a rebuild of
    /// it, which this is not, so that a value outside them is a difference between two models.
    fn model_bands(&mut self) {
        for (_, case) in self.view.all_cases() {
            let mode = case.configuration();
            if !case.is_calibrated() || !["s-default", "s-madv"].contains(&mode) {
                continue;
            }
            let gib = case.memory_gib;
            let fewer = |design| self.view.fewer_events(&case, design, Beside::Nothing).ok()?;
            let [merged, first] = [MERGED, PATCH_1].map(|design| fewer(design).map(|it| it.median));
            let least = match (mode, gib) {
                ("s-default", 8) => 93.0,
                _ => 90.0,
            };
            let events = |design| self.view.count(&case, design, names::EVENTS);
            let [with_four, with_five, shipped] = [MERGED, ALL_FIVE, SHIPPED].map(events);
            if let Some(merged) = merged {
                let claim = "calibrated mix: events fewer with patches 1 to 4, percent (published 93 to 98)";
                self.ratio(
                    format!("model-patches-1-4/{case}"),
                    claim,
                    merged,
                    Relation::AtLeast(least),
                );
            }
            if let Some(first) = first {
                let claim = "calibrated mix: events fewer with patch 1, percent; the sign alone is asked for";
                self.ratio(format!("model-patch-1/{case}"), claim, first, Relation::AtLeast(0.0));
            }
            if let Some((four, five)) = with_four.zip(with_five).filter(|(four, _)| *four > 0.0)
                && mode == "s-default"
            {
                let claim =
                    "events with all five patches over those with 1 to 4 (count model: equal)";
                self.ratio(
                    format!("model-patch-5/{case}"),
                    claim,
                    five / four,
                    Relation::Between(0.95, 1.05),
                );
            }
            if let Some((four, shipped)) = with_four.zip(shipped).filter(|(four, _)| *four > 0.0) {
                let claim = "events of linux-5.0 as shipped over those of patches 1 to 4 (count model: 3.3)";
                self.ratio(
                    format!("model-5.0/{case}"),
                    claim,
                    shipped / four,
                    Relation::AtLeast(1.0),
                );
            }
            self.defrag_mode(&case);
        }
    }

    fn defrag_mode(&mut self, case: &Case) {
        let count = |design, name| self.view.count(case, design, name);
        let [events, mistyped, moved] =
            [names::EVENTS, names::MISTYPED, names::MOVED].map(|name| count(DEFRAG_MODE, name));
        let moved_by_four = count(MERGED, names::MOVED);
        if let Some(events) = events {
            self.ratio(
                format!("model-defrag-events/{case}"),
                "defrag_mode: events (count model: 0 to 2)",
                events,
                Relation::AtMost(2.0),
            );
        }
        if let Some(mistyped) = mistyped {
            let claim = "defrag_mode: mistyped allocations (count model: none)";
            self.ratio(
                format!("model-defrag-mistyped/{case}"),
                claim,
                mistyped,
                Relation::AtMost(0.0),
            );
        }
        if let Some((moved, four)) = moved.zip(moved_by_four).filter(|(_, four)| *four > 0.0)
            && case.huge == HugeMode::Default
        {
            let claim = "defrag_mode: pages moved over those of patches 1 to 4 (count model: 3.2)";
            self.ratio(
                format!("model-defrag-moves/{case}"),
                claim,
                moved / four,
                Relation::AtLeast(1.0),
            );
        }
    }

    /// Checks that the lists of 6.10 alone make more events of the same mixing, as each stolen page is one
    /// (pages.md#trap-6).
    fn strict_lists(&mut self) {
        let program = Program::StrictLists;
        for case in self.view.cases(program) {
            let strict = |name| self.view.point(program, &case, STRICT_ONLY)?.count(name);
            let vanilla = |name| self.view.count(&case, VANILLA, name);
            let over = |name| {
                let pair: Option<(f64, f64)> = strict(name).zip(vanilla(name));
                pair.filter(|(_, vanilla)| *vanilla > 0.0).map(|(strict, vanilla)| strict / vanilla)
            };
            let [events, mistyped] = [names::EVENTS, names::MISTYPED].map(over);
            if let Some(events) = events {
                let claim = "strict lists only: events over linux-4.20's (count model: 20)";
                self.ratio(
                    format!("model-strict-events/{case}"),
                    claim,
                    events,
                    Relation::AtLeast(5.0),
                );
            }
            if let Some(mistyped) = mistyped {
                let claim =
                    "strict lists only: mistyped allocations over linux-4.20's (count model: 1.15)";
                let near = Relation::Between(0.75, 1.25);
                self.ratio(format!("model-strict-mistyped/{case}"), claim, mistyped, near);
            }
        }
    }

    /// Checks that huge pages appear where there were none, and stay where there were some.
    fn huge_pages(&mut self) {
        for (_, case) in self.view.all_cases() {
            let percent = |design| self.view.count(&case, design, names::HUGE_PERCENT);
            let Some((vanilla, merged)) = percent(VANILLA).zip(percent(MERGED)) else { continue };
            if vanilla == 0.0 {
                let claim = "patches 1 to 4: percent huge where linux-4.20 has none";
                self.ratio(format!("thp-rises/{case}"), claim, merged, Relation::AtLeast(0.1));
            } else if case.huge == HugeMode::Madvise {
                let claim = "patches 1 to 4: percent huge, less that of linux-4.20";
                let id = format!("thp-madv/{case}");
                self.ratio(id, claim, merged - vanilla, Relation::AtLeast(0.0));
            }
        }
    }

    /// Checks our own design against requirements of our own.
    fn ours(&mut self) {
        let view = self.view;
        for (_, case) in view.all_cases() {
            let count = |name| view.count(&case, OURS, name);
            let Some(events) = count(names::EVENTS) else { continue };
            self.ratio(
                format!("ours-events/{case}"),
                "nofrag: events",
                events,
                Relation::AtMost(0.0),
            );
            if let Some(mistyped) = count(names::MISTYPED) {
                let claim = "nofrag: mistyped allocations";
                self.ratio(format!("ours-mistyped/{case}"), claim, mistyped, Relation::AtMost(0.0));
            }
            let serious = count(names::SERIOUS).zip(view.count(&case, VANILLA, names::SERIOUS));
            if let Some((ours, vanilla)) = serious.filter(|(_, vanilla)| *vanilla > 0.0) {
                let claim = "nofrag: events below order 4 over linux-4.20's";
                self.ratio(
                    format!("ours-serious/{case}"),
                    claim,
                    ours / vanilla,
                    Relation::AtMost(0.01),
                );
            }
            let Some(huge) = count(names::HUGE_PERCENT) else { continue };
            let (least, exempt) = match case.huge {
                HugeMode::Default => (30.0, case.mix.name == "S3"),
                HugeMode::DefragAlways | HugeMode::Madvise => (90.0, false),
            };
            if !exempt {
                let claim = "nofrag: percent huge";
                self.ratio(format!("ours-huge/{case}"), claim, huge, Relation::AtLeast(least));
            }
            if let Some(vanilla) = view.count(&case, VANILLA, names::HUGE_PERCENT) {
                let claim = "nofrag: percent huge, less that of linux-4.20";
                let id = format!("ours-huge-vanilla/{case}");
                self.ratio(id, claim, huge - vanilla, Relation::AtLeast(0.0));
            }
        }
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
