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
use super::spec::HugeMode;
use super::turns::ExtfragPlan;
use super::view::{Beside, View, differing};
use crate::figures::{self, Gorman2018};
use crate::key::Key;
use crate::oracle::{ClaimKind, Claims, Oracle, Relation, over};
use crate::report::{Measurement, Report};
use crate::scenario::ThpTouch;
use crate::stats::Spread;

/// Judges all measurements. `repeats` is true if a run gave the same counts when it was made again.
pub(super) fn judge(plan: &ExtfragPlan, repeats: bool, report: &mut Report) {
    let figures = figures::gorman_2018();
    let mut judge = Judge { plan, view: View { report }, oracles: Vec::new() };
    let claim = "runs that differ when made again";
    judge.oracles.exact("determinism", claim, f64::from(!repeats), Relation::NONE);
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
    /// Checks that the reductions that the document states follow from its counts, but for one (pages.md#trap-3), and
    /// so do the threads and units that its workload makes of CPUs and memory. Source: pages.md#o-20 and pages.md#o-19.
    fn published(&mut self, figures: &Gorman2018) {
        let differ = STATED.iter().flat_map(|(configuration, stated)| {
            Gorman2018::DESIGNS[1..].iter().zip(stated).filter(move |(design, stated)| {
                let computed = figures.reduction(configuration, design, names::EVENTS);
                let computed = computed.unwrap_or(f64::NAN);
                // The commit rounds to whole percent, the mails do not.
                let unit = if **design == PATCH_1 { 1.0 } else { 10.0 };
                (computed * unit).round() / unit != **stated
            })
        });
        let claim = "reductions that do not follow from the document's counts, of 12";
        let differ = differ.count() as f64;
        self.oracles.exact("published-reductions", claim, differ, Relation::NONE);
        let threads = |cpus| machine::thp_threads(cpus, 1);
        let expected = [(7, None), (8, Some(1)), (11, Some(1)), (24, Some(5)), (27, Some(5))];
        let wrong = expected.iter().filter(|(cpus, there)| threads(*cpus) != *there);
        let claim =
            "CPUs per node (7, 8, 11, 24, 27) that do not give 0, 1, 1, 5, 5 huge-page threads";
        let wrong = wrong.count() as f64;
        self.oracles.exact("workload-threads", claim, wrong, Relation::NONE);
        let units = machine::units_per_thread(16 << 18, 1);
        let claim = "units touched with 16 GiB and 1 thread";
        self.oracles.exact("workload-units", claim, units as f64, Relation::Equals(3072.0));
        for configuration in Gorman2018::CONFIGURATIONS {
            let stated = figures.figure(configuration, ALL_FIVE, names::FEWER_AS_STATED);
            let Some(stated) = stated else { continue };
            let computed = figures.reduction(configuration, ALL_FIVE, names::EVENTS);
            let off = computed.map(|computed| stated - computed);
            let claim =
                format!("percent that mail 5/5 states ({stated}) beyond what its counts give");
            let id = format!("published-misstated/{configuration}");
            self.oracles.exact(id, claim, off, Relation::AtLeast(4.0));
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
                self.oracles.exact(format!("silent/{design}"), claim, differ, Relation::NONE);
            }
        }
    }

    /// Checks that every design is asked for the same number of units.
    fn units(&mut self) {
        for (_, case) in self.view.all_cases() {
            let rows = self.view.designs().iter().filter_map(|design| self.view.row(&case, design));
            let units: Vec<f64> = rows
                .flat_map(|row| {
                    let [huge, base] =
                        [names::HUGE, names::BASE].map(|key: Key| row.spreads.get(&key));
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
            self.oracles.exact(format!("units/{case}"), claim, differ, Relation::NONE);
        }
    }

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

    /// Judges the calibrated mix by the bands of the count model (pages.md#count-model-results). They bind a rebuild of
    /// it, which this is not, so that a value outside them is a difference between two models.
    fn model_bands(&mut self) {
        for (_, case) in self.view.all_cases() {
            let mode = case.configuration();
            if !case.is_calibrated() || !["s-default", "s-madv"].contains(&mode) {
                continue;
            }
            let least = match (mode, case.memory_gib) {
                ("s-default", 8) => 93.0,
                _ => 90.0,
            };
            let [merged, first] = [MERGED, PATCH_1].map(|design| self.fewer(&case, design));
            let id = |what| format!("model-{what}/{case}");
            let claim =
                "calibrated mix: events fewer with patches 1 to 4, percent (published 93 to 98)";
            self.oracles.ratio(id("patches-1-4"), claim, merged, Relation::AtLeast(least));
            let claim =
                "calibrated mix: events fewer with patch 1, percent; the sign alone is asked for";
            self.oracles.ratio(id("patch-1"), claim, first, Relation::AtLeast(0.0));
            let events = |design| self.view.count(&case, design, &names::EVENTS);
            let four = events(MERGED);
            if mode == "s-default" {
                let claim =
                    "events with all five patches over those with 1 to 4 (count model: equal)";
                let times = over_some(events(ALL_FIVE), four);
                self.oracles.ratio(id("patch-5"), claim, times, Relation::Between(0.95, 1.05));
            }
            let claim =
                "events of linux-5.0 as shipped over those of patches 1 to 4 (count model: 3.3)";
            let times = over_some(events(SHIPPED), four);
            self.oracles.ratio(id("5.0"), claim, times, Relation::AtLeast(1.0));
            self.defrag_mode(&case);
        }
    }

    fn defrag_mode(&mut self, case: &Case) {
        let count = |key| self.view.count(case, DEFRAG_MODE, &key);
        let id = |what| format!("model-defrag-{what}/{case}");
        let claim = "defrag_mode: events (count model: 0 to 2)";
        self.oracles.ratio(id("events"), claim, count(names::EVENTS), Relation::AtMost(2.0));
        let claim = "defrag_mode: mistyped allocations (count model: none)";
        self.oracles.ratio(id("mistyped"), claim, count(names::MISTYPED), Relation::AtMost(0.0));
        if case.huge == HugeMode::Default {
            let claim = "defrag_mode: pages moved over those of patches 1 to 4 (count model: 3.2)";
            let four = self.view.count(case, MERGED, &names::MOVED);
            let times = over_some(count(names::MOVED), four);
            self.oracles.ratio(id("moves"), claim, times, Relation::AtLeast(1.0));
        }
    }

    /// Checks that the lists of 6.10 alone make more events of the same mixing, as each stolen page is one
    /// (pages.md#trap-6).
    fn strict_lists(&mut self) {
        let program = Program::StrictLists;
        for case in self.view.cases(program) {
            let strict = |key: &Key| self.view.point(program, &case, STRICT_ONLY)?.count(key);
            let vanilla = |key: &Key| self.view.count(&case, VANILLA, key);
            let over = |key: Key| over_some(strict(&key), vanilla(&key));
            let id = |what| format!("model-strict-{what}/{case}");
            let claim = "strict lists only: events over linux-4.20's (count model: 20)";
            self.oracles.ratio(id("events"), claim, over(names::EVENTS), Relation::AtLeast(5.0));
            let claim =
                "strict lists only: mistyped allocations over linux-4.20's (count model: 1.15)";
            let near = Relation::Between(0.75, 1.25);
            self.oracles.ratio(id("mistyped"), claim, over(names::MISTYPED), near);
        }
    }

    /// Checks that huge pages appear where there were none, and stay where there were some.
    fn huge_pages(&mut self) {
        for (_, case) in self.view.all_cases() {
            let percent = |design| self.view.count(&case, design, &names::HUGE_PERCENT);
            let Some((vanilla, merged)) = percent(VANILLA).zip(percent(MERGED)) else { continue };
            if vanilla == 0.0 {
                let claim = "patches 1 to 4: percent huge where linux-4.20 has none";
                self.oracles.ratio(
                    format!("thp-rises/{case}"),
                    claim,
                    merged,
                    Relation::AtLeast(0.1),
                );
            } else if case.huge == HugeMode::Madvise {
                let claim = "patches 1 to 4: percent huge, less that of linux-4.20";
                let id = format!("thp-madv/{case}");
                self.oracles.ratio(id, claim, merged - vanilla, Relation::AtLeast(0.0));
            }
        }
    }

    /// Checks our own design against requirements of our own.
    fn ours(&mut self) {
        let view = self.view;
        for (_, case) in view.all_cases() {
            let count = |key: Key| view.count(&case, OURS, &key);
            let vanilla = |key: Key| view.count(&case, VANILLA, &key);
            let id = |what| format!("ours-{what}/{case}");
            let none = Relation::AtMost(0.0);
            self.oracles.ratio(id("events"), "nofrag: events", count(names::EVENTS), none);
            let claim = "nofrag: mistyped allocations";
            self.oracles.ratio(id("mistyped"), claim, count(names::MISTYPED), none);
            let serious = over_some(count(names::SERIOUS), vanilla(names::SERIOUS));
            let claim = "nofrag: events below order 4 over linux-4.20's";
            self.oracles.ratio(id("serious"), claim, serious, Relation::AtMost(0.01));
            let huge = count(names::HUGE_PERCENT);
            let (least, exempt) = match case.huge {
                HugeMode::Default => (30.0, case.mix.name == "S3"),
                HugeMode::DefragAlways | HugeMode::Madvise => (90.0, false),
            };
            let judged = huge.filter(|_| !exempt);
            self.oracles.ratio(
                id("huge"),
                "nofrag: percent huge",
                judged,
                Relation::AtLeast(least),
            );
            let more = huge.zip(vanilla(names::HUGE_PERCENT)).map(|(ours, vanilla)| ours - vanilla);
            let claim = "nofrag: percent huge, less that of linux-4.20";
            self.oracles.ratio(id("huge-vanilla"), claim, more, Relation::AtLeast(0.0));
        }
    }
}

/// Returns `one` over `other`, if the other is not zero.
fn over_some(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    over(one, other.filter(|other| *other > 0.0))
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
