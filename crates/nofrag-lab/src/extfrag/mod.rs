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

use std::time::Instant;

use nofrag::page::{FragmentationPolicy, PolicyPreset};

use self::catalogue::{DESIGNS, SPECS};
use self::spec::{RunSpec, Touch};
use self::turns::{ExtfragPlan, Simulate};
use crate::figures;
use crate::report::{Report, Settings};
use crate::scenario::{
    Extent, Memory, Mode, Options, ProgramInfo, Progress, RunError, Scenario, ThpTouch,
    choose_designs, choose_programs,
};
use crate::shortfall::Expected;
use crate::world::setup::RunResult;
use crate::world::thpfioscale;
use nofrag_show::Section;
use nofrag_show::cpus;

/// The scenario `extfrag-2018`: how types mix in pageblocks under the load of Gorman 2018.
#[derive(Clone, Copy, Debug)]
pub struct ExtFrag2018;

impl Scenario for ExtFrag2018 {
    fn name(&self) -> &'static str {
        "extfrag-2018"
    }

    fn about(&self) -> &'static str {
        "how types of pages mix in pageblocks, and what the patches of 2018 avoid"
    }

    fn document(&self) -> &'static str {
        "Mel Gorman, \"Fragmentation avoidance improvements\", v5, 2018 (Linux 5.0)"
    }

    fn designs(&self) -> &'static [&'static str] {
        &DESIGNS
    }

    fn shown(&self, design: &'static str) -> String {
        let preset = FragmentationPolicy::preset(design);
        preset.map_or_else(|_| design.to_owned(), |preset| preset.to_string())
    }

    fn programs(&self) -> Vec<ProgramInfo> {
        SPECS.iter().map(|(_, info)| *info).collect()
    }

    fn expected(&self) -> Expected {
        Expected::declared(include_str!("expected.toml"))
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
        match options.memory_is {
            Memory::Numbers => run(options, simulate, progress),
            Memory::Real => real::run(options, progress),
        }
    }

    fn has_real_memory(&self) -> bool {
        true
    }

    fn distributions(&self) -> &'static [&'static str] {
        &[names::MISTYPED, names::HUGE_PERCENT, names::STALLED_MS, names::MOVED]
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        match report.measurements.first() {
            Some(row) if row.unit == names::UNIT_US => real::sections(report),
            _ => present::sections(report),
        }
    }
}

fn simulate(spec: &RunSpec) -> Result<RunResult, RunError> {
    thpfioscale::simulate(&spec.setup())
}

fn run(options: &Options, simulate: Simulate, progress: &dyn Progress) -> Result<Report, RunError> {
    let begin = Instant::now();
    let plan = plan(options)?;
    let document = figures::gorman_2018().document;
    let mut report = Report::new(ExtFrag2018.name(), document, settings(&plan));
    let compared = turns::simulate_all(&plan, simulate, progress)?;
    report.measurements = compared.measurements;
    claims::judge(&plan, compared.repeats, &mut report);
    withdrawn::withdraw(&mut report.oracles);
    present::take_notes(&plan, options.extent, &mut report);
    report.elapsed_s = begin.elapsed().as_secs_f64();
    Ok(report)
}

/// Number of seeds of a default run, and of a full one.
const FEW_SEEDS: usize = 2;
const SEEDS: usize = 5;

/// The memory of a default run, and the sizes of a full one.
const MEMORY_GIB: u64 = 4;
const SIZES_GIB: [u64; 2] = [4, 8];

fn plan(options: &Options) -> Result<ExtfragPlan, RunError> {
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    if options.mode != Mode::Compare {
        return refuse("mode", "must be compare: this scenario has no other");
    }
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|(_, info)| *info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let programs = SPECS.iter().filter(|(_, info)| chosen.contains(info)).map(|(p, _)| *p);
    let full = options.extent == Extent::Full;
    let sizes = if full { SIZES_GIB.to_vec() } else { vec![MEMORY_GIB] };
    let plan = ExtfragPlan {
        designs: choose(&options.designs)?,
        programs: programs.collect(),
        // Programs that are named run in full.
        crossing: if options.mask.is_some() { Extent::Full } else { options.extent },
        seed: options.seed.unwrap_or(1),
        seeds: options.repeat.unwrap_or(if full { SEEDS } else { FEW_SEEDS }),
        memory: if options.memory.is_empty() { sizes } else { options.memory.clone() },
        touch: match options.thp_touch.unwrap_or_default() {
            ThpTouch::HalfOfUnits => Touch::HalfOfUnits,
            ThpTouch::AllUnits => Touch::AllUnits,
        },
        threads: options.threads.unwrap_or_else(cpus),
    };
    let is_sensible = |gib: &u64| (1..=MOST_GIB).contains(gib);
    match plan {
        ExtfragPlan { seeds: 0, .. } => refuse("repeat", "must be at least 1"),
        ExtfragPlan { threads, .. } if !(1..=1024).contains(&threads) => {
            refuse("threads", "must be between 1 and 1024: so many runs go at a time")
        }
        ExtfragPlan { memory, .. } if !memory.iter().all(is_sensible) => refuse(
            "memory",
            "must be between 1 and 64 GiB; the document's machines are scaled to 4 and 8",
        ),
        plan if plan.rows().is_empty() => {
            refuse("design", "leaves nothing to run: a default run knows fewer of them than --full")
        }
        plan => Ok(plan),
    }
}

/// The largest memory of a run in GiB: the workload's own documentation calls it unsuitable for large memory.
const MOST_GIB: u64 = 64;

/// Resolves the wanted designs; a version of Linux stands for the newest rule set not newer than it.
fn choose(wanted: &[String]) -> Result<Vec<PolicyPreset>, RunError> {
    let named = |name: &str| FragmentationPolicy::preset(name);
    let resolve =
        |name: &String| named(name).map_or_else(|_| name.clone(), |preset| preset.name.to_owned());
    let wanted: Vec<String> = wanted.iter().map(resolve).collect();
    let chosen = choose_designs(&DESIGNS, &wanted)?.into_iter();
    Ok(chosen.map(|name| named(name).expect("the scenario compares presets")).collect())
}

fn seeds(plan: &ExtfragPlan) -> String {
    match plan.seeds {
        1 => format!("seed {}", plan.seed),
        seeds => format!("seeds {} to {}", plan.seed, plan.seed + seeds as u64 - 1),
    }
}

fn settings(plan: &ExtfragPlan) -> Settings {
    let sizes: Vec<String> = plan.memory.iter().map(u64::to_string).collect();
    let touch = match plan.touch {
        Touch::HalfOfUnits => ThpTouch::HalfOfUnits,
        Touch::AllUnits => ThpTouch::AllUnits,
    };
    Settings {
        mode: Mode::Compare.name().to_owned(),
        seed: plan.seed,
        repeats: plan.seeds,
        loops: 1,
        pages: 1,
        threads: plan.threads,
        designs: plan.designs.iter().map(|preset| preset.name.to_owned()).collect(),
        conditions: vec![
            seeds(plan),
            format!("memory {} GiB", sizes.join(" and ")),
            format!("{} % of a node touched", touch.name()),
        ],
        memory_gib: plan.memory.clone(),
    }
}

#[cfg(test)]
mod report_tests;
#[cfg(test)]
mod tests;
