//! Runs cases under designs, seed by seed, several runs at a time, and gathers the results.
//!
//! Each run is simulated alone and depends on its spec only, so results do not depend on how many go at a time.

use std::collections::BTreeMap;

use nofrag::page::{
    FragmentationPolicy, Migratetype, NoRun, PageCounters, PolicyPreset, RunEnd, Wiper,
};
use nofrag::units::Nanos;

use super::catalogue::{Case, Program, curve, seeds_of, title};
use super::spec::{HugeMode, RunSpec};
use super::{SCENARIO, names};
use crate::jobs::{About, run_and_repeat};
use crate::key::{Amount, Counts, Key};
use crate::plan::Plan;
use crate::report::Measurement;
use crate::scenario::{Extent, Progress, RunError};
use crate::stats::{Spread, thinned};
use crate::world::heard::Compactions;
use crate::world::setup::{Moment, PhaseEnd, RunResult};

/// Extent of one comparison of designs: the first seed, from which repetitions count up, and the number of seeds.
pub(super) type ExtfragPlan = Plan<PolicyPreset, Program>;

/// The function that simulates one run.
pub(super) type Simulate = fn(&RunSpec) -> Result<RunResult, RunError>;

/// A case under a design: a row of the report.
#[derive(Clone, Debug)]
pub(super) struct CaseRow {
    pub(super) program: Program,
    pub(super) case: Case,
    pub(super) design: String,
    policy: FragmentationPolicy,
    seeds: usize,
}

impl ExtfragPlan {
    /// Returns the rows of all runs.
    pub(super) fn rows(&self) -> Vec<CaseRow> {
        let default_run = (self.extent == Extent::Subset).then_some(&SCENARIO.expected);
        let mut rows = Vec::new();
        for program in &self.programs {
            for (size, memory) in self.memory.iter().enumerate() {
                for case in program.cases(*memory) {
                    for (design, policy) in self.designs_of(*program) {
                        let at = (*program, &case);
                        let wanted = (default_run, self.repeats);
                        let seeds = seeds_of(at, &design, size, wanted);
                        let row = CaseRow { program: *program, case, design, policy, seeds };
                        rows.extend((row.seeds > 0).then_some(row));
                    }
                }
            }
        }
        rows
    }

    /// Returns the designs of a program by name; of a curve, its points.
    fn designs_of(&self, program: Program) -> Vec<(String, FragmentationPolicy)> {
        let chosen = self.designs.iter().map(|preset| (preset.name.to_owned(), preset.policy));
        if program.is_curve() { curve(program) } else { chosen.collect() }
    }

    fn spec(&self, row: &CaseRow, repetition: usize) -> RunSpec {
        RunSpec {
            design: row.design.clone(),
            policy: row.policy,
            case: row.case,
            touch: self.touch,
            seed: self.seed + repetition as u64,
        }
    }
}

#[derive(Debug)]
pub(super) struct Compared {
    pub(super) measurements: Vec<Measurement>,
    /// True if a run gave the same counts when it was made again, after the others and beside them.
    pub(super) repeats: bool,
}

/// A run of a row.
#[derive(Clone, Copy, Debug)]
struct Job {
    row: usize,
    repetition: usize,
}

pub(super) fn simulate_all(
    plan: &ExtfragPlan,
    simulate: Simulate,
    progress: &dyn Progress,
) -> Result<Compared, RunError> {
    let rows = plan.rows();
    let jobs = jobs(&rows);
    let run = |job: &Job| simulate(&plan.spec(&rows[job.row], job.repetition));
    let about = |job: &Job| about(&rows[job.row]);
    let (results, repeats) = run_and_repeat(plan.threads, &jobs, about, run, progress)?;
    let mut by_row: Vec<Vec<RunResult>> = rows.iter().map(|_| Vec::new()).collect();
    for (job, result) in jobs.iter().zip(results) {
        by_row[job.row].push(result);
    }
    let gathered = rows.iter().zip(by_row).filter_map(|(row, runs)| gather(row, &runs));
    Ok(Compared { measurements: gathered.collect(), repeats })
}

/// Returns a job for every run of every row.
fn jobs(rows: &[CaseRow]) -> Vec<Job> {
    let of_row = |(row, of): (usize, &CaseRow)| {
        (0..of.seeds).map(move |repetition| Job { row, repetition }).collect::<Vec<_>>()
    };
    rows.iter().enumerate().flat_map(of_row).collect()
}

/// Estimates a run before it is made.
fn about(row: &CaseRow) -> About {
    let Case { memory_gib, huge, .. } = row.case;
    About {
        // Callers that reclaim and compact work more for each huge page.
        length: memory_gib * if huge == HugeMode::Default { 2 } else { 3 },
        steps: memory_gib,
        what: format!("{} under {}", title(row.program, &row.case), row.design),
    }
}

fn gather(row: &CaseRow, runs: &[RunResult]) -> Option<Measurement> {
    let counted: Vec<Counts> = runs.iter().map(counts).collect();
    let all_keys = counted.iter().flat_map(Counts::keys);
    let spreads: BTreeMap<Key, Spread> = all_keys
        .filter_map(|key| {
            let samples = counted.iter().filter_map(|counts| counts.get(key)).map(|it| it.get());
            Some((key.clone(), Spread::of(samples.collect())?))
        })
        .collect();
    let medians = spreads.iter().map(|(key, spread)| (key.clone(), spread.median.into()));
    let events = spreads.get(&names::EVENTS)?.clone();
    Some(Measurement {
        counts: medians.collect(),
        series: runs.first().map(courses).unwrap_or_default(),
        spreads,
        ..Measurement::new(
            title(row.program, &row.case),
            &row.design,
            1,
            names::EVENTS.name(),
            events,
        )
    })
}

fn mean_us(work: &[Nanos]) -> Option<f64> {
    let sum: u64 = work.iter().map(|ns| ns.0).sum();
    (!work.is_empty()).then(|| sum as f64 / work.len() as f64 / 1e3)
}

fn milliseconds(ns: u64) -> Amount {
    Amount::Real(ns as f64 / 1e6)
}

/// Returns the counts of one run by name; counts without a sample have no entry.
fn counts(run: &RunResult) -> Counts {
    let mut counts = Counts::new();
    let nothing = PageCounters::default();
    let all = run.phases.last().map_or(&nothing, |end| &end.counters);
    counts.extend(allocator_counts(all));
    compaction_counts(&run.compactions, &mut counts);
    counts.extend(huge_page_counts(run).into_iter().flatten());
    let mut set = |key: Key, value: Amount| {
        counts.insert(key, value);
    };
    let mut before = 0;
    for PhaseEnd { at, counters, .. } in &run.phases {
        set(Key::count(names::EVENTS_IN).with(at.into_str()), (counters.events() - before).into());
        before = counters.events();
    }
    set(names::STALLS, run.stalls.len().into());
    set(names::STALLED_MS, milliseconds(run.stalls.iter().map(|ns| ns.0).sum()));
    let longest = run.stalls.iter().map(|ns| ns.0).max();
    set(names::LONGEST_STALL_MS, milliseconds(longest.unwrap_or(0)));
    set(names::HUGE, run.huge.into());
    set(names::BASE, run.base.into());
    if run.huge + run.base > 0 {
        let share = 100.0 * run.huge as f64 / (run.huge + run.base) as f64;
        set(names::HUGE_PERCENT, share.into());
    }
    let [huge_us, base_us] = [mean_us(&run.huge_work), mean_us(&run.base_work)];
    if let Some(us) = huge_us {
        set(names::HUGE_WORK_US, us.into());
    }
    if let Some(us) = base_us {
        set(names::BASE_WORK_US, us.into());
    }
    if let Some((huge, base)) = huge_us.zip(base_us) {
        set(names::WORK_RATIO, (huge / base).into());
    }
    let work = run.huge_work.iter().chain(&run.base_work);
    set(names::ALL_WORK_MS, milliseconds(work.map(|ns| ns.0).sum()));
    set(names::PEAK_BOOST, run.boost.iter().copied().fold(0.0, f64::max).into());
    set(names::ELAPSED_S, (run.elapsed.0 as f64 / 1e9).into());
    set(Key::count("allocations and frees"), run.operations.into());
    set(names::BLOCKS, run.blocks.into());
    set(names::FREE_BLOCKS, run.free_blocks.into());
    set(names::LIST_MISMATCHES, run.list_mismatches.into());
    counts
}

fn allocator_counts(all: &PageCounters) -> [(Key, Amount); 20] {
    let sum = |by_type: &[u64]| by_type.iter().sum::<u64>();
    let events_of = |migratetype| all.events_of(migratetype);
    [
        (names::EVENTS, all.events()),
        (names::UNMOVABLE, events_of(Migratetype::Unmovable)),
        (names::MOVABLE, events_of(Migratetype::Movable)),
        (names::RECLAIMABLE, events_of(Migratetype::Reclaimable)),
        (names::SERIOUS, sum(&all.serious)),
        (names::CONVERSIONS, all.conversions),
        (names::MISTYPED, sum(&all.mistyped)),
        (names::CLAIMS, all.claims),
        (Key::count("passes repeated without spreading"), all.spread_given_up),
        (names::MOVED, all.moved),
        (names::RECLAIMED, all.reclaimed_direct + all.reclaimed_kswapd),
        (Key::count("pages reclaimed by kswapd"), all.reclaimed_kswapd),
        (names::DIRECT_RECLAIMS, all.direct_reclaims),
        (names::KSWAPD_WAKES, all.kswapd_wakes),
        (names::COMPACT_STALLS, all.compact_stalls),
        (names::COMPACT_FAILURES, all.compact_failures),
        (names::MIGRATE_SCANNED, all.migrate_scanned),
        (names::FREE_SCANNED, all.free_scanned),
        (names::BOOSTS, all.boosts),
        (names::SPARED, all.stall_refusals),
    ]
    .map(|(key, count)| (key, count.into()))
}

/// Returns the counts that stand beside kernels' figures: those of the phase in which huge pages are asked for.
fn huge_page_counts(run: &RunResult) -> Option<[(Key, Amount); 4]> {
    let at = |moment| run.phases.iter().find(|end| end.at == moment).map(|end| &end.counters);
    let (before, after) = (at(Moment::WarmUp)?, at(Moment::HugePages)?);
    let of_phase = |count: fn(&PageCounters) -> u64| (count(after) - count(before)).into();
    Some([
        (names::DIRECT_WHILE_HUGE, of_phase(|it| it.reclaimed_direct)),
        (names::KSWAPD_WHILE_HUGE, of_phase(|it| it.reclaimed_kswapd)),
        (names::WAKES_WHILE_HUGE, of_phase(|it| it.kswapd_wakes)),
        (names::MARKED_AT_FIRST, run.compactions.marked_percent.into()),
    ])
}

fn compaction_counts(all: &Compactions, counts: &mut Counts) {
    for (quarter, (runs, gave)) in all.runs.iter().zip(all.gave).enumerate() {
        counts.extend(names::marked_runs(quarter).into_iter().zip([(*runs).into(), gave.into()]));
    }
    let ended = |end| all.ends.get(&end).copied();
    let spared = |why| all.spared.get(&why).copied();
    let wiped = |by| all.wipes.get(&by).copied();
    let counted = [
        (names::NOTHING_EXAMINED, ended(RunEnd::NothingExamined)),
        (names::NOTHING_MOVED, ended(RunEnd::NothingMoved)),
        (names::NO_WHOLE_BLOCK, ended(RunEnd::NoWholeBlock)),
        (names::NO_TARGET, ended(RunEnd::NoTarget)),
        (names::DEFERRED, spared(NoRun::Deferred)),
        (names::UNSUITABLE, spared(NoRun::Unsuitable)),
        (names::SATISFIED, spared(NoRun::Satisfied)),
        (names::WIPED_BY_KSWAPD, wiped(Wiper::Kswapd)),
        (names::WIPED_AFTER_PAUSE, wiped(Wiper::LongestPause)),
    ];
    counts.extend(counted.map(|(key, count)| (key, count.unwrap_or(0).into())));
}

/// Columns of the picture of contiguity.
pub(super) const PARTS: usize = 72;

/// Returns the courses that pictures show: boost over time, and contiguity at each moment that was looked at.
fn courses(run: &RunResult) -> BTreeMap<Key, Vec<f64>> {
    let mut courses = BTreeMap::new();
    if run.boost.iter().any(|pages| *pages > 0.0) {
        courses.insert(names::BOOST, thinned(&run.boost));
    }
    for (moment, blocks) in &run.contiguity {
        courses.insert(names::contiguity(*moment), parts(blocks));
    }
    courses
}

/// Returns the largest free order in each of [`PARTS`] stretches of equally many pageblocks, give or take one: 0 for
/// none to 1 for a whole pageblock.
fn parts(blocks: &[f64]) -> Vec<f64> {
    let bound = |part: usize| part * blocks.len() / PARTS;
    let largest = |part: usize| {
        let stretch = &blocks[bound(part)..bound(part + 1)];
        // A thousandth is finer than any bar.
        (stretch.iter().copied().fold(0.0, f64::max) * 1e3).round() / 1e3
    };
    (0..PARTS).map(largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_without_faults_has_no_mean() {
        let run = RunResult {
            base: 2,
            base_work: vec![Nanos(1_000), Nanos(3_000)],
            ..Default::default()
        };
        let counts = counts(&run);
        assert_eq!(counts.get(&names::BASE_WORK_US), Some(&2.0.into()));
        assert_eq!(counts.get(&names::HUGE_WORK_US), None);
        assert_eq!(counts.get(&names::WORK_RATIO), None);
        assert_eq!(counts.get(&names::HUGE_PERCENT), Some(&0.0.into()));
    }

    #[test]
    fn events_fall_into_the_phase_in_which_they_were_counted() {
        let counters = |events| {
            let mut counters = PageCounters::default();
            counters.extfrag[1][0] = events;
            counters
        };
        let end = |at, events| PhaseEnd { at, counters: counters(events), ..PhaseEnd::default() };
        let phases = vec![end(Moment::Write, 3), end(Moment::HugePages, 10)];
        let counts = counts(&RunResult { phases, ..Default::default() });
        assert_eq!(counts.get(&names::EVENTS), Some(&Amount::Whole(10)));
        assert_eq!(counts.get(&names::EVENTS_WHILE_HUGE), Some(&Amount::Whole(7)));
        assert_eq!(counts.get(&names::MOVABLE), Some(&Amount::Whole(10)));
    }

    #[test]
    fn thinning_keeps_peaks_and_parts_keep_the_largest() {
        let mut values = vec![0.0; 1000];
        values[501] = 9.0;
        let thinned = thinned(&values);
        assert!(thinned.len() <= crate::stats::POINTS && thinned.contains(&9.0));
        let parts = parts(&values);
        assert_eq!((parts.len(), parts.iter().filter(|part| **part > 0.0).count()), (PARTS, 1));
        assert_eq!(super::parts(&[]), vec![0.0; PARTS]);
    }
}
