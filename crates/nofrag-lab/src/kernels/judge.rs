//! Rules of agreement between simulation and kernel.
//!
//! A count agrees if the range of our seeds, at least [`SEEDS`], overlaps that from half the least to twice the most of
//! the kernel's repeats and is no wider: a few repeats do not show the whole range of a kernel, and a simulation with
//! an arbitrarily wide range would prove nothing. Where all values of both sides are below [`FEW`], chance decides. A
//! sign is judged only where the kernels' own ranges do not overlap, so never from a single run.

use std::collections::BTreeSet;

use nofrag::page::{Migratetype, ZoneKind};
use strum::VariantArray;

use super::dataset::Guests;
use super::fitted::{FITTED_ON, SPOILT};
use super::guest::Cell;
use super::outcome::{Agreement, Between, Compared, Measure, Outcome, Role, Sign};
use super::phase::{Count, Phase, PhaseName, Piece};
use crate::key::Key;
use crate::oracle::Relation;
use crate::stats::Spread;

/// Least number of seeds for a range of ours.
pub(super) const SEEDS: usize = 5;

/// A count with all values of both sides below this is not judged: chance decides it.
pub(super) const FEW: u64 = 50;

/// Largest factor by which the ratios of the summary may be off.
const FACTOR: f64 = 2.0;

/// Runs of a cell: the phases of each.
pub(super) type Runs = [Vec<Phase>];

/// A cell as the kernel ran it and as the simulation did.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    pub(super) guests: Guests,
    /// The phases of each seed.
    pub(super) ours: Vec<Vec<Phase>>,
}

impl Beside {
    fn cell(&self) -> &Cell {
        &self.guests.cell
    }

    fn sides(&self) -> [&Runs; 2] {
        [&self.guests.runs, &self.ours]
    }
}

/// Returns the cell's name, as file names begin with it.
pub(super) fn name(cell: &Cell) -> String {
    format!("{}-{}", cell.kernel, cell.factor)
}

/// Returns the use of a cell: fitting, judging, or neither as it was looked at.
pub(super) fn role(cell: &Cell) -> Role {
    if FITTED_ON.contains(&&*cell.kernel) {
        Role::Fitted
    } else if SPOILT.contains(&&*name(cell)) {
        Role::Spoilt
    } else {
        Role::Judge
    }
}

/// Two counts that are shown as one ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub(super) enum Ratio {
    #[strum(serialize = "huge pages, % of units")]
    HugePercent,
    #[strum(serialize = "compactions that gave, %")]
    GavePercent,
    #[strum(serialize = "pages moved a huge page")]
    MovedPerHuge,
    #[strum(serialize = "pages a direct reclaim")]
    PagesPerDirect,
    #[strum(serialize = "pages a wake of kswapd")]
    PagesPerWake,
}

impl Ratio {
    pub(super) const fn key(self) -> Key {
        Key::number(self.into_str())
    }

    /// Returns the count above the line and the one below it, if the phase has both.
    fn parts(self, phase: &Phase) -> Option<[u64; 2]> {
        let of = |count| phase.counts.get(&count).copied();
        Some(match self {
            Ratio::HugePercent => [of(Count::Huge)?, of(Count::Units)?],
            Ratio::GavePercent => {
                let gave = of(Count::CompactionsGave)?;
                [gave, gave + of(Count::CompactionsFailed)?]
            }
            Ratio::MovedPerHuge => [of(Count::Moved)?, of(Count::Huge)?],
            Ratio::PagesPerDirect => [of(Count::DirectPages)?, of(Count::DirectCalls)?],
            Ratio::PagesPerWake => [of(Count::KswapdPages)?, of(Count::KswapdWakes)?],
        })
    }

    fn value(self, [over, per]: [f64; 2]) -> Option<f64> {
        let scale = match self {
            Ratio::HugePercent | Ratio::GavePercent => 100.0,
            Ratio::MovedPerHuge | Ratio::PagesPerDirect | Ratio::PagesPerWake => 1.0,
        };
        (per > 0.0).then(|| scale * over / per)
    }

    /// Returns the ratio of a run.
    fn of_phase(self, phase: &Phase) -> Option<f64> {
        self.value(self.parts(phase)?.map(|count| count as f64))
    }

    /// Returns both counts of each run, if all have them.
    fn all(self, runs: &Runs, phase: PhaseName) -> Option<Vec<[u64; 2]>> {
        runs.iter().map(|run| self.parts(at(run, phase)?)).collect()
    }

    /// Returns the ratio of each run, if all have one.
    pub(super) fn spread(self, runs: &Runs, phase: PhaseName) -> Option<Spread> {
        let values = runs.iter().map(|run| self.of_phase(at(run, phase)?));
        Spread::of(values.collect::<Option<_>>()?)
    }

    /// Returns the ratio of all cells together in the last phase. A cell weighs as much whether it has few runs or
    /// many.
    fn pooled<'a>(self, cells: impl Iterator<Item = &'a Runs>) -> Option<f64> {
        let mean_of = |runs: &Runs| {
            let parts = self.all(runs, PhaseName::Thp)?;
            let of = |which: usize| mean(parts.iter().map(|parts| parts[which] as f64));
            Some([of(0)?, of(1)?])
        };
        let parts = cells.filter_map(mean_of);
        self.value(parts.fold([0.0; 2], |[over, per], it| [over + it[0], per + it[1]]))
    }
}

fn at(run: &[Phase], name: PhaseName) -> Option<&Phase> {
    run.iter().find(|phase| phase.name == name)
}

/// Decides whether a count of ours agrees with the kernel's.
fn agreement(kernel: &Spread, ours: &Spread, is_few: bool) -> Agreement {
    let (least, most) = (kernel.min / 2.0, 2.0 * kernel.max);
    let overlaps = ours.min <= most && least <= ours.max;
    let is_narrow = ours.max - ours.min <= most - least;
    match () {
        () if is_few => Agreement::TooFew,
        () if ours.samples.len() < SEEDS => Agreement::FewSeeds,
        () if overlaps && is_narrow => Agreement::Agrees,
        () => Agreement::Differs,
    }
}

fn compared(
    phase: PhaseName,
    what: Key,
    [kernel, ours]: [Option<Spread>; 2],
    is_few: bool,
) -> Compared {
    let agreement = match (&kernel, &ours) {
        (Some(kernel), Some(ours)) => agreement(kernel, ours, is_few),
        _ => Agreement::NotCounted,
    };
    Compared { phase: phase.into_str().to_owned(), what, kernel, ours, agreement }
}

/// Compares the counts of two sides; `None` if all of them are zero.
fn counted(phase: PhaseName, what: Key, sides: [Option<Vec<u64>>; 2]) -> Option<Compared> {
    let is_few = sides.iter().flatten().flatten().all(|value| *value < FEW);
    let is_nothing = sides.iter().flatten().flatten().all(|value| *value == 0);
    let spread = |values: Vec<u64>| Spread::of(values.iter().map(|it| *it as f64).collect());
    let spreads = sides.map(|values| values.and_then(spread));
    (!is_nothing).then(|| compared(phase, what, spreads, is_few))
}

/// Compares all counts of a cell, phase by phase; counts that are zero on both sides are left out.
pub(super) fn counts(cell: &Beside) -> Vec<Compared> {
    let sides = cell.sides();
    let mut all = Vec::new();
    for phase in PhaseName::ALL {
        let phases = sides.iter().flat_map(|runs| runs.iter()).filter_map(|run| at(run, phase));
        let counts: BTreeSet<Count> = phases.flat_map(|it| it.counts.keys().copied()).collect();
        for count in counts {
            let values =
                |runs: &Runs| runs.iter().map(|run| value(at(run, phase)?, count)).collect();
            let row = counted(phase, Key::from(count.name()), sides.map(values));
            all.extend(row.map(|row| match is_given(phase, count) {
                true => Compared { agreement: Agreement::Given, ..row },
                false => row,
            }));
        }
        for ratio in Ratio::VARIANTS {
            let parts = sides.map(|runs| ratio.all(runs, phase));
            let is_few = parts.iter().flatten().flatten().flatten().all(|count| *count < FEW);
            let spreads = sides.map(|runs| ratio.spread(runs, phase));
            let row = || compared(phase, ratio.key(), spreads.clone(), is_few);
            all.extend(spreads.iter().any(Option::is_some).then(row));
        }
    }
    all
}

/// Returns true if the simulation gets the count as its input, so that it cannot but agree.
fn is_given(phase: PhaseName, count: Count) -> bool {
    count == Count::Units || (phase, count) == (PhaseName::Warm, Count::Read)
}

/// Compares the free blocks at the end of each phase, by kind of zone and order; those that are zero on both sides are
/// left out.
pub(super) fn free(cell: &Beside) -> Vec<Compared> {
    let sides = cell.sides();
    let mut all = Vec::new();
    for phase in PhaseName::ALL {
        let phases = sides.iter().flat_map(|runs| runs.iter()).filter_map(|run| at(run, phase));
        let zones: BTreeSet<ZoneKind> = phases.flat_map(|it| it.free.keys().copied()).collect();
        for (zone, order) in zones.into_iter().flat_map(|zone| (0..=10).map(move |it| (zone, it))) {
            let blocks = |run: &Vec<Phase>| Some(at(run, phase)?.free.get(&zone)?[order]);
            let values = |runs: &Runs| runs.iter().map(blocks).collect();
            all.extend(counted(phase, free_in(zone, order), sides.map(values)));
        }
    }
    all
}

/// Names the free blocks at the end of a phase.
pub(super) fn free_in(zone: ZoneKind, order: usize) -> Key {
    Key::count("free in ").with(format_args!("{zone}, order {order}"))
}

/// Returns a count of a phase. Fallbacks are counted wherever they happen, so a missing one is zero.
fn value(phase: &Phase, count: Count) -> Option<u64> {
    let counted = phase.counts.get(&count).copied();
    if matches!(count, Count::Fallbacks(..)) { Some(counted.unwrap_or(0)) } else { counted }
}

/// Returns the number of events of a run that mix types in a pageblock, if `is_meant`.
fn events(run: &[Phase], is_meant: impl Fn(ZoneKind, Migratetype) -> bool) -> u64 {
    let event = |(count, times): (&Count, &u64)| match count {
        Count::Fallbacks(_, _, Piece::Whole) => None,
        Count::Fallbacks(zone, migratetype, _) => is_meant(*zone, *migratetype).then_some(*times),
        _ => None,
    };
    run.iter().flat_map(|phase| &phase.counts).filter_map(event).sum()
}

/// Finds pairs of cells that differ in one thing and of which one has more huge pages, where the kernels' ranges tell.
pub(super) fn signs(cells: &[Beside]) -> Vec<Sign> {
    let share = |runs: &Runs| Ratio::HugePercent.spread(runs, PhaseName::Thp);
    let mut signs = Vec::new();
    for (nth, a) in cells.iter().enumerate() {
        for b in &cells[nth + 1..] {
            let between = match (a.cell(), b.cell()) {
                (a, b) if a.factor == b.factor => Between::Kernels,
                (a, b) if a.kernel == b.kernel => Between::Factors,
                _ => continue,
            };
            // A single run has no range that could overlap.
            let [of_a, of_b] =
                [a, b].map(|it| share(&it.guests.runs).filter(|shares| shares.samples.len() > 1));
            let (Some(of_a), Some(of_b)) = (of_a, of_b) else { continue };
            if of_a.overlaps(&of_b) {
                continue;
            }
            let [more, fewer] = if of_a.min > of_b.max { [a, b] } else { [b, a] };
            let ours = [more, fewer].map(|it| share(&it.ours).map(|shares| shares.median));
            signs.push(Sign {
                between,
                more: name(more.cell()),
                fewer: name(fewer.cell()),
                right: matches!(ours, [Some(more), Some(fewer)] if more > fewer),
            });
        }
    }
    signs
}

/// Returns the figures that the simulation is to reproduce, of these kernels.
pub(super) fn measures(cells: &[Beside], signs: &[Sign], kernels: &[&str]) -> Vec<Measure> {
    let mut all = Vec::new();
    let ratios = [
        ("gave", "compactions that gave a block, %", Ratio::GavePercent),
        ("moved-per-huge", "pages moved per huge page", Ratio::MovedPerHuge),
        ("pages-per-call", "pages per direct reclaim", Ratio::PagesPerDirect),
    ];
    for (id, what, ratio) in ratios {
        all.extend(kernels.iter().map(|kernel| of_kernel((id, what), ratio, cells, kernel)));
    }
    for (id, what, between) in [
        (
            "order-of-kernels",
            "kernels in the right order by huge pages, % of pairs",
            Between::Kernels,
        ),
        (
            "order-of-factors",
            "factors in the right order by huge pages, % of pairs",
            Between::Factors,
        ),
    ] {
        let right: Vec<bool> =
            signs.iter().filter(|sign| sign.between == between).map(|sign| sign.right).collect();
        all.push(all_of(id, what, &right));
    }
    all.push(log_odds_error(cells));
    all.push(event_types(cells));
    all.push(event_counts(cells));
    all
}

fn measure(
    (id, what): (&str, &str),
    (ours, kernels): (Option<f64>, Option<[f64; 2]>),
    must: Option<Relation>,
    of: Option<usize>,
) -> Measure {
    let outcome = match (must, ours) {
        (None, _) => Outcome::NotJudged,
        (Some(must), Some(ours)) if must.holds(ours) => Outcome::Reproduced,
        (Some(_), _) => Outcome::NotReproduced,
    };
    Measure { id: id.to_owned(), what: what.to_owned(), ours, kernels, must, of, outcome }
}

/// Measures how many of the cases come out, in percent: all must.
fn all_of(id: &str, what: &str, right: &[bool]) -> Measure {
    let held = right.iter().filter(|right| **right).count();
    let percent = (!right.is_empty()).then(|| 100.0 * held as f64 / right.len() as f64);
    let must = percent.map(|_| Relation::AtLeast(100.0));
    measure((id, what), (percent, None), must, Some(right.len()))
}

/// Measures a ratio of the cells of a kernel in which huge pages are advised: it must be within the range of the
/// kernel's runs, which is asked of compaction alone, or within a factor of 2 of all its runs together.
fn of_kernel((id, what): (&str, &str), ratio: Ratio, cells: &[Beside], kernel: &str) -> Measure {
    let meant = || cells.iter().filter(|it| it.cell().kernel == kernel && it.cell().madvise);
    let ours = ratio.pooled(meant().map(|it| &it.ours[..]));
    let theirs = ratio.pooled(meant().map(|it| &it.guests.runs[..]));
    let of_run = |run: &Vec<Phase>| ratio.of_phase(at(run, PhaseName::Thp)?);
    let runs = meant().flat_map(|it| &it.guests.runs).filter_map(of_run);
    let runs = Spread::of(runs.collect());
    let must = theirs.zip(runs.as_ref()).map(|(all, runs)| {
        let (least, most) = (all / FACTOR, all * FACTOR);
        match ratio {
            Ratio::GavePercent => Relation::Between(least.min(runs.min), most.max(runs.max)),
            _ => Relation::Between(least, most),
        }
    });
    let (id, what) = (format!("{id}/{kernel}"), format!("{kernel}: {what}"));
    measure((&id, &what), (ours, runs.map(|it| [it.min, it.max])), must, None)
}

/// Returns the logarithm of the odds that a unit is huge.
fn log_odds(huge: u64, units: u64) -> f64 {
    ((huge as f64 + 0.5) / (units.saturating_sub(huge) as f64 + 0.5)).ln()
}

fn mean_log_odds(runs: &Runs) -> Option<f64> {
    let parts = Ratio::HugePercent.all(runs, PhaseName::Thp)?;
    mean(parts.iter().map(|[huge, units]| log_odds(*huge, *units)))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Measures the simulation's root-mean-square error in the log-odds of huge pages, in cells that were not fitted, over
/// the error of guessing the fitted cells' mean.
fn log_odds_error(cells: &[Beside]) -> Measure {
    let of_role = |meant: Role| cells.iter().filter(move |it| role(it.cell()) == meant);
    let theirs = |it: &Beside| mean_log_odds(&it.guests.runs);
    let guess = mean(of_role(Role::Fitted).filter_map(theirs));
    let judged: Vec<(f64, f64)> = of_role(Role::Judge)
        .filter_map(|it| Some((theirs(it)?, mean_log_odds(&it.ours)?)))
        .collect();
    let squares = |off: &dyn Fn(&(f64, f64)) -> f64| mean(judged.iter().map(|it| off(it).powi(2)));
    let of_guess = guess.and_then(|guess| squares(&|(theirs, _)| guess - theirs));
    let of_ours = squares(&|(theirs, ours)| ours - theirs);
    let error =
        of_ours.zip(of_guess.filter(|it| *it > 0.0)).map(|(ours, guess)| (ours / guess).sqrt());
    measure(
        (
            "log-odds",
            "huge pages in cells not fitted: RMS error in log-odds over that of the fitted cells' mean",
        ),
        (error, None),
        error.map(|_| Relation::AtMost(0.5)),
        Some(judged.len()),
    )
}

/// Measures the share of events that movable requests cause in zone Normal: 95 percent or more of ours must be such.
fn event_types(cells: &[Beside]) -> Measure {
    let sum = |runs: &Runs, is_meant: fn(ZoneKind, Migratetype) -> bool| {
        runs.iter().map(|run| events(run, is_meant)).sum::<u64>()
    };
    let side = |runs: fn(&Beside) -> &Runs| {
        let all: u64 = cells.iter().map(|it| sum(runs(it), |_, _| true)).sum();
        let usual = |zone, of| (zone, of) == (ZoneKind::Normal, Migratetype::Movable);
        let usual: u64 = cells.iter().map(|it| sum(runs(it), usual)).sum();
        (all, (all > 0).then(|| 100.0 * usual as f64 / all as f64))
    };
    let (all, theirs) = side(|it| &it.guests.runs);
    let (_, ours) = side(|it| &it.ours);
    measure(
        ("events-type", "events in Normal by movable requests, % of all"),
        (ours, theirs.map(|percent| [percent; 2])),
        (all >= FEW).then_some(Relation::AtLeast(95.0)),
        None,
    )
}

/// Measures whether ranges of events overlap where the kernel's repeats agree within a factor of 2.
fn event_counts(cells: &[Beside]) -> Measure {
    let spread =
        |runs: &Runs| Spread::of(runs.iter().map(|run| events(run, |_, _| true) as f64).collect());
    let judged = cells.iter().filter_map(|it| {
        let (theirs, ours) = (spread(&it.guests.runs)?, spread(&it.ours)?);
        let is_few = theirs.max.max(ours.max) < FEW as f64;
        let is_steady = theirs.samples.len() > 1 && theirs.max <= FACTOR * theirs.min;
        (is_steady && !is_few).then(|| theirs.overlaps(&ours))
    });
    let judged: Vec<bool> = judged.collect();
    all_of(
        "events-count",
        "cells whose events are as many, % of those with steady repeats",
        &judged,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns six samples: each of the two ends three times.
    fn spread(ends: [f64; 2]) -> Spread {
        Spread::of([ends, ends, ends].concat()).unwrap()
    }

    fn check_agreement(kernel: [f64; 2], ours: [f64; 2], expected: Agreement) {
        let shown = agreement(&spread(kernel), &spread(ours), false);
        assert_eq!(shown, expected, "{kernel:?} {ours:?}");
    }

    #[test]
    fn a_count_agrees_within_a_factor_of_2_and_if_it_is_no_wider() {
        use Agreement::{Agrees, Differs};
        // Values from 50 to 400 are allowed.
        for ours in [[50.0, 50.0], [10.0, 50.0], [400.0, 500.0], [100.0, 450.0], [10.0, 360.0]] {
            check_agreement([100.0, 200.0], ours, Agrees);
        }
        for ours in [[10.0, 49.0], [401.0, 500.0], [100.0, 451.0], [9.0, 360.0]] {
            check_agreement([100.0, 200.0], ours, Differs);
        }
        check_agreement([0.0, 0.0], [60.0, 60.0], Differs);
    }

    #[test]
    fn fewer_than_5_seeds_judge_nothing() {
        let ours = |seeds: usize| Spread::of(vec![100.0; seeds]).unwrap();
        let kernel = spread([100.0, 200.0]);
        assert_eq!(agreement(&kernel, &ours(4), false), Agreement::FewSeeds);
        assert_eq!(agreement(&kernel, &ours(5), false), Agreement::Agrees);
    }

    fn check_counted(kernel: [u64; 2], ours: [u64; 2], expected: Agreement) {
        let sides = [kernel, ours].map(|ends| Some([ends, ends, ends].concat()));
        let row = counted(PhaseName::Thp, Key::count("x"), sides).unwrap();
        assert_eq!(row.agreement, expected, "{kernel:?} {ours:?}");
    }

    #[test]
    fn below_50_on_both_sides_is_too_few() {
        check_counted([0, 49], [3, 49], Agreement::TooFew);
        check_counted([0, 50], [3, 49], Agreement::Agrees);
        check_counted([0, 1], [3, 50], Agreement::Differs);
        let nothing = Some(vec![0; 6]);
        assert_eq!(
            counted(PhaseName::Thp, Key::count("x"), [nothing.clone(), nothing.clone()]),
            None
        );
        let row = counted(PhaseName::Thp, Key::count("x"), [Some(vec![7]), None]).unwrap();
        assert_eq!(row.agreement, Agreement::NotCounted);
    }

    fn cell(kernel: &str, factor: &str) -> Cell {
        Cell {
            kernel: kernel.to_owned(),
            factor: factor.to_owned(),
            memory_mib: 1024,
            nodes: 1,
            madvise: true,
            thp_defrag: nofrag::page::HugeDefrag::Madvise,
            boost: 15_000,
            defrag_mode: false,
            lru_gen: false,
            min_free_kib: 45_620,
            zones: Vec::new(),
        }
    }

    fn run(counts: &[(Count, u64)]) -> Vec<Phase> {
        let counts = counts.iter().copied().collect();
        vec![Phase { name: PhaseName::Thp, counts, free: Default::default() }]
    }

    /// Returns a cell with these numbers of huge pages among 100 units, run by run.
    fn huge(kernel: &str, factor: &str, theirs: &[u64], ours: &[u64]) -> Beside {
        let side = |shares: &[u64]| {
            let of_share = |huge: &u64| run(&[(Count::Units, 100), (Count::Huge, *huge)]);
            shares.iter().map(of_share).collect()
        };
        let guests = Guests { cell: cell(kernel, factor), runs: side(theirs) };
        Beside { guests, ours: side(ours) }
    }

    #[test]
    fn a_sign_is_judged_only_where_ranges_of_repeats_do_not_overlap() {
        let cells = [
            huge("6.1", "centre", &[10, 20], &[30, 31]),
            // Overlaps 6.1-centre.
            huge("6.1", "boost-0", &[20, 30], &[1, 1]),
            // Below both.
            huge("6.1", "default", &[1, 2], &[5, 6]),
            // A single run has no range.
            huge("7.2", "centre", &[90], &[1, 1]),
            // Above 6.1-default, which has another kernel.
            huge("7.2", "default", &[40, 50], &[2, 2]),
        ];
        let signs = signs(&cells);
        let shown: Vec<(Between, &str, &str, bool)> =
            signs.iter().map(|it| (it.between, &*it.more, &*it.fewer, it.right)).collect();
        let expected = [
            (Between::Factors, "6.1-centre", "6.1-default", true),
            (Between::Factors, "6.1-boost-0", "6.1-default", false),
            (Between::Kernels, "7.2-default", "6.1-default", false),
        ];
        assert_eq!(shown, expected);
        let measures = measures(&cells, &signs, &[]);
        let percent = |id: &str| {
            let it = measures.iter().find(|it| it.id == id).unwrap();
            (it.ours, it.of, it.outcome)
        };
        assert_eq!(percent("order-of-factors"), (Some(50.0), Some(2), Outcome::NotReproduced));
        assert_eq!(percent("order-of-kernels"), (Some(0.0), Some(1), Outcome::NotReproduced));
    }

    #[test]
    fn the_error_in_log_odds_is_that_of_hand() {
        // (0.5, 100.5): -5.303; (20.5, 80.5): -1.368; (50.5, 50.5): 0.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
        assert!(near(log_odds(0, 100), -5.303) && near(log_odds(20, 100), -1.368));
        assert_eq!(log_odds(50, 100), 0.0);
        let mut cells = vec![
            huge("6.1", "centre", &[20, 20], &[99]),
            huge("7.2", "centre", &[20], &[99]),
            // The mean of the fitted ones is off by 1.368, ours is exact.
            huge("5.10", "centre", &[50], &[50, 50]),
        ];
        let error = |cells: &[Beside]| log_odds_error(cells).ours;
        assert_eq!(error(&cells), Some(0.0));
        cells[2] = huge("5.10", "centre", &[50], &[20]);
        assert_eq!(error(&cells), Some(1.0));
        // Off by 0 and 5.303 - 1.368 beside 1.368 and 5.303 - 1.368.
        cells[2] = huge("5.10", "centre", &[50], &[50]);
        cells.push(huge("6.12", "centre", &[0], &[20]));
        let (far, off) = (log_odds(20, 100) - log_odds(0, 100), log_odds(20, 100));
        let expected = (far.powi(2) / (far.powi(2) + off.powi(2))).sqrt();
        assert!(near(error(&cells).unwrap(), expected) && near(expected, 0.945));
        assert_eq!(error(&cells[..2]), None, "nobody judges");
        assert_eq!(error(&cells[2..]), None, "nothing was fitted");
    }

    /// Returns a cell of 6.1 with compactions that gave a block and that failed, run by run.
    fn compacting(theirs: &[[u64; 2]], ours: &[[u64; 2]]) -> Beside {
        let side = |runs: &[[u64; 2]]| {
            let of = |[gave, failed]: &[u64; 2]| {
                run(&[(Count::CompactionsGave, *gave), (Count::CompactionsFailed, *failed)])
            };
            runs.iter().map(of).collect()
        };
        let guests = Guests { cell: cell("6.1", "centre"), runs: side(theirs) };
        Beside { guests, ours: side(ours) }
    }

    #[test]
    fn compactions_may_stay_within_the_range_or_within_a_factor_of_2() {
        let outcome = |theirs: &[[u64; 2]], ours: [u64; 2]| {
            let cells = [compacting(theirs, &[ours])];
            of_kernel(("gave", ""), Ratio::GavePercent, &cells, "6.1").outcome
        };
        // 1 and 9 %, together 5: 2.5 to 10 by the factor, 1 to 9 by the range.
        let theirs = [[1, 99], [9, 91]];
        assert_eq!(outcome(&theirs, [1, 99]), Outcome::Reproduced);
        assert_eq!(outcome(&theirs, [10, 90]), Outcome::Reproduced);
        assert_eq!(outcome(&theirs, [11, 89]), Outcome::NotReproduced);
        assert_eq!(outcome(&theirs, [0, 100]), Outcome::NotReproduced);
        assert_eq!(outcome(&theirs, [0, 0]), Outcome::NotReproduced, "nothing at all");
        assert_eq!(outcome(&[[0, 0]], [1, 99]), Outcome::NotJudged);
    }

    #[test]
    fn what_is_not_advised_does_not_count_for_a_kernel() {
        let mut cells = [compacting(&[[1, 1]], &[[1, 1]]), compacting(&[[1, 99]], &[[1, 99]])];
        cells[1].guests.cell.madvise = false;
        let measure = of_kernel(("gave", ""), Ratio::GavePercent, &cells, "6.1");
        assert_eq!((measure.ours, measure.kernels), (Some(50.0), Some([50.0, 50.0])));
    }

    #[test]
    fn a_cell_with_many_repeats_weighs_no_more() {
        let often = compacting(&[[1, 0], [1, 0], [1, 0]], &[[1, 0]]);
        let cells = [often, compacting(&[[0, 1]], &[[0, 1]])];
        let pooled = Ratio::GavePercent.pooled(cells.iter().map(|it| &it.guests.runs[..]));
        assert_eq!(pooled, Some(50.0));
    }

    /// Returns a cell with these numbers of events, run by run; ours happen in zone `in_zone`.
    fn eventful(theirs: &[u64], ours: &[u64], in_zone: ZoneKind) -> Beside {
        let event = |zone, piece| Count::Fallbacks(zone, Migratetype::Movable, piece);
        let side = |all: &[u64], zone| {
            let of =
                |n: &u64| run(&[(event(zone, Piece::Part), *n), (event(zone, Piece::Whole), 7)]);
            all.iter().map(of).collect()
        };
        let guests = Guests { cell: cell("6.1", "centre"), runs: side(theirs, ZoneKind::Normal) };
        Beside { guests, ours: side(ours, in_zone) }
    }

    #[test]
    fn events_are_judged_where_repeats_are_steady_and_many() {
        let normal = ZoneKind::Normal;
        let cells = [
            eventful(&[100, 200], &[200, 300], normal),
            eventful(&[100, 200], &[201, 300], normal),
            // Not steady, a single run, too few.
            eventful(&[100, 201], &[1], normal),
            eventful(&[100], &[1], normal),
            eventful(&[20, 30], &[49], normal),
        ];
        let measure = event_counts(&cells);
        assert_eq!((measure.ours, measure.of), (Some(50.0), Some(2)));
        let check = |cells: &[Beside], expected| assert_eq!(event_types(cells).outcome, expected);
        check(&cells, Outcome::Reproduced);
        check(&[eventful(&[100], &[1], ZoneKind::Dma32)], Outcome::NotReproduced);
        check(&[eventful(&[49], &[1], normal)], Outcome::NotJudged);
    }
}
