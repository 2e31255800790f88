//! `extfrag-2018`: Gorman's "Fragmentation avoidance improvements", with its predecessors and successors.
//!
//! Memory is grouped into pageblocks by the treatment that their pages allow. When the lists of one type are empty, a
//! request takes from another type's, and each time that is less than a whole block, types mix: an *external
//! fragmentation event*. Later no huge page can be had there. The five patches of 2018 look in another zone first,
//! reclaim more after an event, and (the fifth, never merged) wait rather than mix.
//!
//! The workload is the document's: four threads write small files over 150 % of memory, read them at random, and while
//! they do, other threads ask for huge pages. It runs in virtual time over `nofrag::page`, with the machines of the
//! document scaled down. So the *signs and sizes of reductions* can be set beside the published ones; counts cannot,
//! because memory and disks of those machines were never published and the count follows from them.
//!
//! - [`spec`]: a run, and the setup of the [`world`](crate::world) that it stands for; [`machine`]: its node layout.
//! - [`real`]: runs with real memory behind their frames, timed.
//! - [`catalogue`]: programs, cases, and which designs meet them. [`mixes`]: the load beside the page cache.
//! - [`turns`]: runs them. [`view`]: access to reports. [`claims`]: claims that a run must confirm. [`present`]:
//!   tables and pictures. [`withdrawn`]: results that kernels have refuted.

mod catalogue;
mod claims;
mod machine;
mod mixes;
mod names;
mod present;
mod real;
mod spec;
mod turns;
mod view;
mod withdrawn;

use std::sync::LazyLock;

use nofrag::page::{FragmentationPolicy, PolicyPreset};

use self::catalogue::MEMORY_GIB;
use self::spec::RunSpec;
use self::turns::{ExtfragPlan, Simulate};
use crate::figures;
use crate::plan::{Plan, Usual, runs_at_a_time};
use crate::report::{Report, Settings};
use crate::scenario::{
    Declaration, Extent, Memory, Options, Progress, RunError, Scenario, Special, choose_designs,
    page_policy,
};
use crate::world::setup::RunResult;
use crate::world::thpfioscale;

/// The scenario `extfrag-2018`: how types mix in pageblocks under the load of Gorman 2018.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run: |options, progress| match options.memory_is {
        Memory::Numbers => run(options, simulate, progress),
        Memory::Real => real::run(options, progress),
    },
    present: |report| match report.measurements.first() {
        Some(row) if row.unit == names::UNIT_US.name() => real::sections(report),
        _ => present::sections(report),
    },
    special: Special {
        shown: page_policy,
        memory: &[Memory::Numbers, Memory::Real],
        distributions: &[names::MISTYPED, names::HUGE_PERCENT, names::STALLED_MS, names::MOVED],
        ..Special::NONE
    },
};

fn simulate(spec: &RunSpec) -> Result<RunResult, RunError> {
    thpfioscale::simulate(&spec.setup())
}

fn run(options: &Options, simulate: Simulate, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let document = figures::gorman_2018().document;
    let mut report = Report { document, ..SCENARIO.report(settings(&plan, options)) };
    let compared = turns::simulate_all(&plan, simulate, progress)?;
    report.measurements = compared.measurements;
    claims::judge(&plan, compared.repeats, &mut report);
    present::take_notes(&plan, options.extent, &mut report);
    Ok(report)
}

/// Number of seeds of a default run, and of a full one.
const FEW_SEEDS: usize = 2;
const SEEDS: usize = 5;

/// The sizes of memory of a full run.
const SIZES_GIB: [u64; 2] = [4, 8];

fn plan(options: &Options) -> Result<ExtfragPlan, RunError> {
    let full = options.extent == Extent::Full;
    let usual = Usual {
        repeats: if full { SEEDS } else { FEW_SEEDS },
        threads: Some(runs_at_a_time()),
        ..Usual::ONCE
    };
    let mut plan = Plan::of(options, choose(&options.designs)?, SCENARIO.choose(options)?, usual)?;
    if plan.memory.is_empty() {
        plan.memory = if full { SIZES_GIB.to_vec() } else { vec![MEMORY_GIB] };
    }
    if options.mask.is_some() {
        // Programs that are named run in full.
        plan.extent = Extent::Full;
    }
    if !plan.memory.iter().all(|gib| (1..=MOST_GIB).contains(gib)) {
        let why = "must be between 1 and 64 GiB; the document's machines are scaled to 4 and 8";
        return Err(RunError::option("memory", why));
    }
    if plan.rows().is_empty() {
        let why = "leaves nothing to run: a default run knows fewer of them than --full";
        return Err(RunError::option("design", why));
    }
    Ok(plan)
}

/// The largest memory of a run in GiB: the workload's own documentation calls it unsuitable for large memory.
const MOST_GIB: u64 = 64;

/// Returns the wanted designs; all of them when none is named.
fn choose(wanted: &[String]) -> Result<Vec<PolicyPreset>, RunError> {
    let named = |name| FragmentationPolicy::preset(name).expect("the scenario compares presets");
    Ok(choose_designs(&SCENARIO.designs, wanted)?.into_iter().map(named).collect())
}

fn settings(plan: &ExtfragPlan, options: &Options) -> Settings {
    let seeds = match plan.repeats {
        1 => format!("seed {}", plan.seed),
        seeds => format!("seeds {} to {}", plan.seed, plan.seed + seeds as u64 - 1),
    };
    let sizes: Vec<String> = plan.memory.iter().map(u64::to_string).collect();
    let memory = format!("memory {} GiB", sizes.join(" and "));
    Settings {
        conditions: vec![seeds, memory, plan.touch.condition()],
        memory_gib: plan.memory.clone(),
        ..plan.settings(options.mode, |preset| preset.name)
    }
}

#[cfg(test)]
mod report_tests;
#[cfg(test)]
mod tests;
