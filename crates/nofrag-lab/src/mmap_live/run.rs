//! Runs the programs and judges their outcomes.

use std::ops::RangeInclusive;
use std::time::Duration;

use nofrag::mmap::{HugePages, Placement};

use super::catalogue::{COMPAT_UP, Program, SPECS, Spec};
use super::kernel::{Kernel, Standing};
use super::leakme::{self, Left};
use super::threads::{self, Crowded};
use super::trace::{Style, Trace};
use super::twin::{Compared, Setting, Trouble, Twin};
use super::{DESIGNS, LivePlan, names};
use crate::key::{self, Key};
use crate::oracle::{ClaimKind, Claims, Relation};
use crate::report::{Measurement, Report};
use crate::scenario::{Extent, RunError};

/// Runs all programs of the plan, in order.
pub(super) fn run(
    plan: &LivePlan,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Result<(), RunError> {
    let kernel = Kernel::here();
    for spec in &plan.programs {
        step(spec.info.name);
        let outcome = match (&kernel, spec.program) {
            (_, Program::Threads { guard }) => {
                threads::on_system_stacks(plan.threads, guard).map(|c| crowd(plan, spec, c, report))
            }
            (_, Program::Placed) => {
                threads::on_placed_stacks(plan.threads).map(|c| crowd(plan, spec, c, report))
            }
            (Err(why), _) => Err(Trouble::Skipped(why.clone())),
            (Ok(kernel), _) => compare(plan, spec, kernel, report),
        };
        match outcome {
            Ok(()) => {}
            Err(Trouble::Skipped(why)) => {
                report.skip(spec.info.name, why);
            }
            Err(trouble) => return Err(broken(spec, &trouble)),
        }
    }
    total(plan, report);
    Ok(())
}

fn broken(spec: &Spec, trouble: &Trouble) -> RunError {
    RunError::engine(DESIGNS[1], spec.info.name, trouble)
}

/// Runs a program in which kernel and model are compared: returns its measurement and its oracles, or the first
/// difference.
fn compare(
    plan: &LivePlan,
    spec: &Spec,
    kernel: &Kernel,
    report: &mut Report,
) -> Result<(), Trouble> {
    let mut ran = Vec::new();
    for repetition in 0..plan.repeats {
        match once(plan, spec, kernel, repetition, report) {
            Ok(one) => ran.push(one),
            Err(Trouble::Mismatch(mismatch)) => {
                let name = spec.info.name;
                let seed = plan.seed_of(repetition);
                let (loops, kind) = (plan.loops, kind(kernel));
                report.notes.push(format!(
                    "{name}: {mismatch}; replay with --mask {name} --seed {seed} --loops {loops}"
                ));
                let claim = format!("{name}: outcomes and lists that differ from the model's");
                report.oracles.claim(kind, format!("same/{name}"), claim, 1.0, Relation::NONE);
                return Ok(());
            }
            Err(other) => return Err(other),
        }
    }
    let sum = |of: fn(&Ran) -> u64| ran.iter().map(of).sum::<u64>();
    let (operations, lists) = (sum(|one| one.compared.operations), sum(|one| one.compared.lists));
    let name = spec.info.name;
    let claim = format!(
        "{name}: of {operations} operations and {lists} lists of areas, those that differ from the model's"
    );
    report.oracles.claim(kind(kernel), format!("same/{name}"), claim, 0.0, Relation::NONE);
    let counts = [
        (names::OPERATIONS, operations),
        (Key::count("placements"), sum(|one| one.compared.placements)),
        (names::LISTS, lists),
        (names::REFUSED, sum(|one| one.compared.refused)),
        (names::HUGE, sum(|one| one.huge)),
        (
            names::MOST_AREAS,
            ran.iter().map(|one| one.compared.most_areas as u64).max().unwrap_or(0),
        ),
        (names::DIFFERENCES, 0),
    ];
    let counts = key::counts(counts);
    let times: [fn(&Ran) -> Option<Duration>; 2] = [|one| one.kernel, |one| Some(one.model)];
    for (design, time) in DESIGNS.into_iter().zip(times) {
        let per_operation =
            |one: &Ran| Some(time(one)?.as_nanos() as f64 / one.compared.operations as f64);
        let samples = ran.iter().filter_map(per_operation).collect();
        let times = ("ns per operation", samples);
        let row = Measurement::of(name, design, operations, times, counts.clone());
        report.measurements.extend(row);
    }
    Ok(())
}

/// Returns the kind of a claim about a kernel of this version (docs/sources/mmap.md#oracle-8).
fn kind(kernel: &Kernel) -> ClaimKind {
    match kernel.standing {
        Standing::Proved => ClaimKind::Exact,
        Standing::Assumed => ClaimKind::Environment,
    }
}

/// Number of slots at the limit of areas, and below, of operations there: whole lists of areas take time to compare.
const LIMIT_SLOTS: usize = 500;
const LIMIT_OPERATIONS: u64 = 50_000;

/// Limits of areas up to which a process is filled: whole lists of that length are read a hundred times, and each area
/// costs the kernel memory.
const CROWDED: RangeInclusive<usize> = 10 * LIMIT_SLOTS..=1 << 17;

/// Checks that a process may be filled with as many areas as it may have.
fn can_crowd(map_limit: usize) -> Result<(), String> {
    let (low, high) = (CROWDED.start(), CROWDED.end());
    match CROWDED.contains(&map_limit) {
        true => Ok(()),
        false => Err(format!(
            "needs a vm.max_map_count from {low} to {high}, so that lists of so many areas can be compared; here it \
             is {map_limit}"
        )),
    }
}

struct Ran {
    compared: Compared,
    huge: u64,
    /// Processor time of the probe, and below, time of the model with the drawing of operations.
    kernel: Option<Duration>,
    model: Duration,
}

fn once(
    plan: &LivePlan,
    spec: &Spec,
    kernel: &Kernel,
    repetition: usize,
    report: &mut Report,
) -> Result<Ran, Trouble> {
    let setting = match spec.program {
        Program::Trace(setting, ..) | Program::Limit(setting) | Program::Leakme(setting) => setting,
        Program::Threads { .. } | Program::Placed => unreachable!("threads are not compared"),
    };
    if let Program::Limit(_) = spec.program {
        can_crowd(kernel.map_limit).map_err(Trouble::Skipped)?;
    }
    let mut twin = Twin::start(setting, kernel)?;
    let mut huge = 0;
    match spec.program {
        Program::Trace(_, style, slots) => {
            let seed = plan.seed_of(repetition);
            let mut trace = Trace::new(&mut twin, style, setting.width, seed, slots);
            trace.run(plan.loops)?;
            huge = trace.huge;
        }
        Program::Limit(_) => {
            let seed = plan.seed_of(repetition);
            let mut trace = Trace::new(&mut twin, Style::Mixed, setting.width, seed, LIMIT_SLOTS);
            trace.crowd(kernel.map_limit - LIMIT_SLOTS / 2)?;
            trace.run(plan.loops.min(LIMIT_OPERATIONS))?;
            huge = trace.huge;
        }
        _ => {
            let turns = if plan.extent == Extent::Full { leakme::TURNS } else { plan.loops };
            let turns = turns.min(leakme::TURNS);
            let edge = leakme::first_edge(&twin, setting);
            let left = leakme::run(&mut twin, turns)?;
            if turns == leakme::TURNS {
                judge_leakme(kernel, setting, edge, &left, report);
            }
        }
    }
    let finished = twin.finish()?;
    Ok(Ran { compared: finished.compared, huge, kernel: finished.kernel, model: finished.model })
}

/// Judges the areas that a million turns of leakme leave, where the process begins as the published one did.
fn judge_leakme(kernel: &Kernel, setting: Setting, edge: u64, left: &Left, report: &mut Report) {
    let mut equals = |id: &str, claim: &str, measured: f64, expected: f64| {
        report.oracles.claim(kind(kernel), id, claim, measured, Relation::Equals(expected));
    };
    let apart = |equal: bool| if equal { 0.0 } else { 1.0 };
    if setting == COMPAT_UP {
        let claim =
            "leakme, 32 bits, legacy layout: lists of areas that differ from first fit's of 2005";
        let equal = left.areas == leakme::shifted_list(edge);
        return equals("leakme-first-fit", claim, apart(equal), 0.0);
    }
    let multiples = Placement::MapleTreeGuarded(HugePages::Multiples);
    if kernel.rules.placement != multiples || edge != leakme::TOP {
        report.notes.push(format!(
            "skipped: the published hash of leakme's areas holds where mappings begin at {:x} and multiples of 2 MiB \
             are aligned; here they begin at {edge:x}, under the rules of {}",
            leakme::TOP,
            kernel.rules.name
        ));
        return;
    }
    let claim = "leakme, 64 bits: hashes of its areas that differ from the published one";
    equals("leakme-hash", claim, apart(leakme::hash(&left.areas) == leakme::HASH), 0.0);
    let claim = "and it ends with as many areas as published";
    equals("leakme-areas", claim, left.areas.len() as f64, 135.0);
    equals("leakme-peak", "and has had as many at its peak", left.most as f64, 181.0);
}

/// Adds the threads' measurement and oracles (docs/sources/mmap.md#oracle-10).
fn crowd(plan: &LivePlan, spec: &Spec, crowded: Crowded, report: &mut Report) {
    let Crowded { areas_before, areas, system_s } = crowded;
    let name = spec.info.name;
    let threads = plan.threads as f64;
    let counts = [
        (names::THREADS, plan.threads),
        (names::AREAS_BEFORE, areas_before),
        (names::AREAS, areas),
    ];
    let times = ("us of a processor in the kernel per thread", vec![1e6 * system_s / threads]);
    let design = DESIGNS[usize::from(spec.program == Program::Placed)];
    let loops = plan.threads as u64;
    report.measurements.extend(Measurement::of(name, design, loops, times, key::counts(counts)));
    // Published: 40,054 lines for 20,000 threads, give or take 20; those of the process itself are among them, and
    // their number depends on its past. So the lines that came with the threads are judged.
    let (claim, expected) = match spec.program {
        Program::Threads { guard: 0 } => ("stacks without guards are one area", 1.0),
        Program::Threads { .. } => ("two areas for each thread", 2.0 * threads),
        _ => ("guarded stacks in one reservation are one area", 1.0),
    };
    let claim = format!("{name}: {claim}; areas that came with them");
    let came = areas as f64 - areas_before as f64;
    let relation = Relation::Between(expected - 20.0, expected + 20.0);
    report.oracles.host(name, claim, came, relation);
}

/// Adds the total number of comparisons.
fn total(plan: &LivePlan, report: &mut Report) {
    let of_kernel = report.measurements.iter().filter(|row| row.design == DESIGNS[1]);
    let operations: f64 = of_kernel.filter_map(|row| row.count(names::OPERATIONS)).sum();
    let complete = plan.programs.len() == SPECS.len() && plan.extent == Extent::Full;
    if complete && operations > 0.0 {
        let claim = "operations compared with the running kernel's";
        report.oracles.host("total", claim, operations, Relation::AtLeast(1e7));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_usual_limits_are_filled_up() {
        assert_eq!(can_crowd(65_530), Ok(()));
        for limit in [0, 100, 1_048_576, 2_147_483_642] {
            assert!(can_crowd(limit).unwrap_err().contains(&limit.to_string()));
        }
    }
}
