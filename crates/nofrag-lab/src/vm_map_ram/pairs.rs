//! The three workloads under every design: counts and time per pair, and a pass that looks at every call.

use std::collections::BTreeMap;

use nofrag::vmap::{
    BlockGeometry, BlockIndex, BlockPolicy, DirtyTracking, FirstSlots, Preset, VmapPolicy,
};

use super::bench::{Bench, Counting, Observed, observe};
use super::catalogue::Program;
use super::counts::{ends_of, side};
use super::workloads::Workload;
use super::{AFTER, BEFORE, OURS, PEN_LOOPS, RamPlan, names};
use crate::figures::{self, Profile, RatioRange};
use crate::key::{Counts, Key};
use crate::oracle::{ClaimKind, Claims, Relation};
use crate::report::{Comparison, Measurement, Report};
use crate::scenario::{Progress, RunError, turn};
use crate::spaces::{Failure, VMALLOC_PAGES};
use crate::stats::Spread;

/// The designs whose calls are also timed one by one.
pub(super) const PROFILED: [&str; 4] = [BEFORE, AFTER, "linux-6.11", OURS];

/// The interface through which a workload calls a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Each call by itself.
    Calls,
    /// Through a handle, which only ours has.
    Handle,
}

/// Times, counts and observations of one workload under one design, until they become a measurement.
#[derive(Default)]
struct PairRow {
    times: Vec<f64>,
    counts: Counts,
    observed: Option<Observed>,
}

/// Returns the workloads that the plan has, with their programs.
fn workloads(plan: &RamPlan) -> impl Iterator<Item = (Program, Workload)> {
    let all = [
        (Program::W1, Workload::W1),
        (Program::W2, Workload::W2 { key: plan.key() }),
        (Program::W3, Workload::W3),
    ];
    all.into_iter().filter(|(program, _)| plan.programs.contains(program))
}

/// Returns the number of steps of [`run`], for progress.
pub(super) fn steps(plan: &RamPlan) -> u64 {
    (workloads(plan).count() * (plan.repeats + 1) * plan.designs.len()) as u64
}

/// Runs the workloads, designs turn by turn.
pub(super) fn run(
    plan: &RamPlan,
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<(), RunError> {
    for (program, workload) in workloads(plan) {
        let name = program.into_str();
        let sizes = workload.sizes(BlockGeometry::LINUX_64, plan.loops);
        let mut rows: BTreeMap<(Way, &str), PairRow> = BTreeMap::new();
        for repetition in 0..plan.repeats {
            for design in turn(&plan.designs, repetition) {
                progress.step(&format!("{name} under {}", design.name));
                for way in ways(&design.policy) {
                    let row = rows.entry((*way, design.name)).or_default();
                    pass(design.policy, &sizes, *way, row)
                        .map_err(|failure| RunError::engine(design.name, name, failure))?;
                }
            }
        }
        for design in &plan.designs {
            progress.step(&format!("{name} under {}, call by call", design.name));
            if PROFILED.contains(&design.name) {
                let observed = observe(design.policy, VMALLOC_PAGES, &sizes)
                    .map_err(|failure| RunError::engine(design.name, name, failure))?;
                rows.entry((Way::Calls, design.name)).or_default().observed = Some(observed);
            }
        }
        for way in [Way::Calls, Way::Handle] {
            for design in &plan.designs {
                let Some(row) = rows.remove(&(way, design.name)) else { continue };
                report.measurements.extend(row.measurement(plan, program, way, design));
            }
        }
    }
    Ok(())
}

fn ways(policy: &VmapPolicy) -> &'static [Way] {
    match policy.blocks.index {
        BlockIndex::Direct => &[Way::Calls, Way::Handle],
        _ => &[Way::Calls],
    }
}

/// Least number of calls in a repetition: with fewer, the clock would say little.
const CALLS: usize = 150_000;

/// Runs one repetition: a short workload goes through several fresh spaces.
fn pass(policy: VmapPolicy, sizes: &[u16], way: Way, row: &mut PairRow) -> Result<(), Failure> {
    let rounds = (CALLS / sizes.len()).max(1);
    let mut ns_per_pair = 0.0;
    for _ in 0..rounds {
        let mapper = Counting::default();
        let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ())?;
        ns_per_pair += match way {
            Way::Calls => bench.pairs(sizes)?,
            Way::Handle => bench.pairs_by_handle(sizes)?,
        };
        row.counts = counted(&bench, sizes.len());
    }
    row.times.push(ns_per_pair / rounds as f64);
    Ok(())
}

/// Returns the counts of a space in which `pairs` pairs have run.
pub(super) fn counted(bench: &Bench<'_>, pairs: usize) -> Counts {
    let counters = bench.space.counters();
    let (blocks, stats) = (counters.blocks, bench.space.block_stats());
    let per_pair = |count: u64| count as f64 / pairs.max(1) as f64;
    [
        (names::CALLS, pairs.into()),
        (names::CREATED, blocks.created.into()),
        (names::RETURNED, blocks.returned.into()),
        (names::LONGEST_LIST, blocks.longest_list.into()),
        (names::STEPS, per_pair(blocks.search_steps).into()),
        (names::SECOND_STEPS, per_pair(blocks.second_search_steps).into()),
        (names::DIRTY_WORDS, per_pair(blocks.dirty_words).into()),
        (names::LOCKED, per_pair(counters.locked_operations()).into()),
        (names::FLUSHES_PER_MILLION, (1e6 * per_pair(bench.flushes())).into()),
        (Key::count("blocks at end"), stats.blocks.into()),
        (Key::count("free pages at end"), stats.free_pages.into()),
        (Key::count("dirty pages at end"), stats.dirty_pages.into()),
        (names::RECORD_BYTES, stats.metadata_bytes.into()),
    ]
    .into()
}

impl PairRow {
    fn measurement(
        self,
        plan: &RamPlan,
        program: Program,
        way: Way,
        design: &Preset,
    ) -> Option<Measurement> {
        let (mut functions, mut series) = (BTreeMap::new(), BTreeMap::new());
        if let Some(observed) = self.observed {
            let named = names::FUNCTIONS.into_iter().zip(observed.functions);
            functions = named.filter(|(_, calls)| calls.hits > 0).collect();
            series.insert(names::HELD, observed.held);
        }
        let by_handle = if way == Way::Handle { names::BY_HANDLE } else { "" };
        Some(Measurement {
            counts: self.counts,
            functions,
            series,
            ..Measurement::new(
                format!("{}{by_handle}", program.into_str()),
                design.name,
                plan.loops,
                names::NS_PER_PAIR,
                Spread::of(self.times)?,
            )
        })
    }
}

/// Sets the profiler's rows beside ours, as ratios of the averages.
pub(super) fn compare_published(report: &mut Report) {
    let figures = figures::pen_2015();
    let compared = figures.profiles.iter().flat_map(|profile| {
        names::FUNCTIONS.into_iter().filter_map(|function| beside(report, profile, &function))
    });
    report.comparisons = compared.collect();
}

fn beside(report: &Report, profile: &Profile, function: &Key) -> Option<Comparison> {
    let workload = &profile.workload;
    let average = |design| {
        let functions = &report.measurement(workload, design)?.functions;
        functions.get(function).map(|calls| calls.average_us)
    };
    let published = profile.before.get(function)?.average_us / profile.after[function].average_us;
    Some(Comparison {
        figure: format!("{workload}-{function}"),
        what: format!("{function} under {workload}: average of a call"),
        place: profile.place.clone(),
        program: workload.clone(),
        designs: [BEFORE, AFTER].map(str::to_owned),
        published: RatioRange { low: published, high: Some(published) },
        measured: average(BEFORE)? / average(AFTER)?,
    })
}

/// Judges the counts: equal to the published and simulated ones under the rules of Linux, bounded by them under ours.
pub(super) fn judge(plan: &RamPlan, report: &mut Report) {
    let there = figures::pen_2015().simulated();
    for (program, _) in workloads(plan) {
        for design in &plan.designs {
            let Some(row) = report.measurement(program.into_str(), design.name) else { continue };
            let row = row.clone();
            if design.policy.blocks.index == BlockIndex::Direct {
                judge_ours(plan, program, &row, &there, report);
                continue;
            }
            judge_patches(program, design, &row, report);
            if plan.loops == PEN_LOOPS {
                judge_linux(plan, program, design, &row, &there, report);
            }
        }
    }
    judge_speed(report);
}

/// Returns the expected number of blocks: exactly, or in the range over keys where the key of the random workload was
/// not simulated.
fn expected(plan: &RamPlan, there: &Measurement, count: &Key) -> Option<Relation> {
    if let Some(blocks) = there.count(names::with_key(count, plan.key())) {
        return Some(Relation::Equals(blocks));
    }
    let [least, most] = ends_of(there, count)?;
    let is_one = least == most;
    Some(if is_one { Relation::Equals(least) } else { Relation::Between(least, most) })
}

fn judge_linux(
    plan: &RamPlan,
    program: Program,
    design: &Preset,
    row: &Measurement,
    there: &Report,
    report: &mut Report,
) {
    let (name, side) = (program.into_str(), side(design));
    let Some(there) = there.measurement(name, side) else { return };
    // Other keys than the simulated ones may leave the ranges.
    let kind = if program == Program::W2 && plan.key() >= 20 {
        ClaimKind::Ratio
    } else {
        ClaimKind::Exact
    };
    // The mean of the random workload is over 20 keys; program w2_keys judges it.
    let steps = there.count(names::STEPS).filter(|_| program != Program::W2);
    let steps = steps.map(|steps| Relation::Between(steps - 0.000_5, steps + 0.000_5));
    let of = |count| expected(plan, there, &count);
    let claims = [
        ("new", names::CREATED, of(names::CREATED)),
        ("freed", names::RETURNED, of(names::RETURNED)),
        ("list", names::LONGEST_LIST, of(names::LONGEST_LIST)),
        ("steps", names::STEPS, steps),
    ];
    for (id, count, relation) in claims {
        let Some(relation) = relation else { continue };
        let id = format!("{name}-{id}/{}", design.name);
        let claim = format!("{name}: {count} (simulated, {side})");
        report.oracles.claim(kind, id, claim, row.count(count), relation);
    }
}

/// Judges the effect of Pen's second and third change: no second search, and no bitmap.
fn judge_patches(program: Program, design: &Preset, row: &Measurement, report: &mut Report) {
    let BlockPolicy { first_slots, dirty, .. } = design.policy.blocks;
    let (name, design) = (program.into_str(), design.name);
    let value = |key: Key| row.count(&key).unwrap_or(f64::NAN);
    let second = match first_slots {
        // Each new block is looked at again; behind the tail, all others come before it.
        FirstSlots::SecondSearch => Relation::AtLeast(value(names::CREATED) / value(names::CALLS)),
        _ => Relation::NONE,
    };
    let words = match dirty {
        DirtyTracking::Bitmap => Relation::AtLeast(1.0),
        _ => Relation::NONE,
    };
    let claims = [("second", names::SECOND_STEPS, second), ("bitmap", names::DIRTY_WORDS, words)];
    for (id, count, relation) in claims {
        let claim = format!("{name}: {count}");
        report.oracles.exact(format!("{name}-{id}/{design}"), claim, value(count), relation);
    }
}

fn judge_ours(
    plan: &RamPlan,
    program: Program,
    row: &Measurement,
    there: &Report,
    report: &mut Report,
) {
    let name = program.into_str();
    let count = |key: Key| row.count(&key).unwrap_or(f64::NAN);
    let claim = format!("{name}: {OURS} inspects at most one block per call");
    report.oracles.exact(
        format!("{name}-steps/{OURS}"),
        claim,
        count(names::STEPS),
        Relation::AtMost(1.0),
    );
    let most = there.count(name, "after", names::CREATED.with(names::MOST));
    let Some(most) = most.filter(|_| plan.loops == PEN_LOOPS) else { return };
    let claim = format!("{name}: {OURS} makes at most as many blocks as tail insertion");
    report.oracles.exact(
        format!("{name}-new/{OURS}"),
        claim,
        count(names::CREATED),
        Relation::AtMost(most),
    );
}

/// Judges our targets for speed, which a busy machine misses.
fn judge_speed(report: &mut Report) {
    let bounds = [("w1", 15.0), ("w2", 25.0), ("w3", 15.0)];
    for (program, bound) in bounds {
        let ways = [(names::BY_HANDLE, bound, "by handle"), ("", 25.0, "by call")];
        for (way, bound, how) in ways {
            let row = report.measurement(&format!("{program}{way}"), OURS);
            let measured = row.map(|row| row.time.median);
            let id = format!("{program}-ns{way}/{OURS}");
            let claim = format!("{program}: nanoseconds per pair {how}");
            report.oracles.host(id, claim, measured, Relation::AtMost(bound));
        }
    }
}
