//! `real-memory`: the costs of real memory, and the library's gain.
//!
//! The other scenarios are about numbers. Here numbers become memory, and an allocator's savings and waste show in
//! system calls, faults and areas of the kernel. The scenario repeats the measurements of data/figures/backing.toml, on
//! this host and in one run, turn by turn: each way to hand out runs and to take them back, and the library's own
//! beside them. Times depend on the host; only their ratios within a round are set beside those of the file.
//!
//! - [`strategies`]: random runs in every way. [`areas`]: the number of mappings that a process may have.
//! - [`runs`]: the number of areas that an arena takes for very many runs. [`pressure`]: allocation beside a purge.
//! - [`soak`]: everything under random load, for as long as wanted.
//! - [`huge_runs`]: runs of 2 MiB after random churn, with compaction and without.
//! - [`moves`]: runs that move under a writer. [`oracles`]: single statements about the kernel.
//! - [`catalogue`]: programs. [`claims`]: claims that a run must confirm. [`present`]: tables.
//!
//! Source: docs/sources/backing.md#strategies, #moves, #oracles.

mod areas;
mod catalogue;
mod claims;
mod huge_runs;
mod moves;
mod names;
mod oracles;
mod present;
mod pressure;
mod runs;
mod soak;
mod strategies;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use self::catalogue::{LOADS, Program};
use crate::figures;
use crate::plan::{Plan, Usual};
use crate::report::{Report, Settings};
use crate::scenario::{Declaration, Extent, Mode, Options, Progress, RunError, Scenario, Special};

/// Number of rounds, and of pairs of allocation and free in each, of a default run and of a full one.
const SUBSET: (usize, u64) = (5, 2_000);
const FULL: (usize, u64) = (15, 8_000);

/// Number of moves of a run of up to 64 pages, in each round.
const MOVES: u64 = 200;
const MOVES_OF_FULL_RUN: u64 = 6_000;

/// Extent of a run on real memory: its repetitions are rounds, its loops pairs of allocation and free.
type MemoryPlan = Plan<&'static str, Program>;

impl MemoryPlan {
    fn has(&self, design: &str) -> bool {
        self.designs.contains(&design)
    }

    fn pairs(&self) -> usize {
        self.loops as usize
    }

    fn moves(&self) -> u64 {
        self.loops.min(if self.extent == Extent::Full { MOVES_OF_FULL_RUN } else { MOVES })
    }

    /// Returns the largest number of steps that a program takes.
    fn steps(&self) -> u64 {
        let of = |program: &Program| match program {
            program if LOADS.contains(program) => self.repeats * self.designs.len(),
            Program::Pressure => self.repeats,
            Program::Moves => self.repeats * moves::SIZES.len(),
            _ => 1,
        };
        self.programs.iter().map(of).sum::<usize>() as u64
    }
}

/// The scenario on the costs of real memory.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: |report| match report.settings.mode == Mode::Soak.into_str() {
        true => soak::sections(report),
        false => present::sections(report),
    },
    special: Special { modes: &[Mode::Compare, Mode::Soak], ..Special::NONE },
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    if options.mode == Mode::Soak {
        return soak::run(options, progress);
    }
    let plan = plan(options)?;
    // The runs have up to 64 pages, and a thread moves them or purges beside another.
    let settings =
        Settings { pages: 64, threads: 2, ..plan.settings(options.mode, |design| design) };
    let document = figures::backing().document;
    let mut report = Report { document, ..SCENARIO.report(settings) };
    progress.begin(plan.steps());
    for program in &plan.programs {
        run_program(&plan, *program, &mut report, &|what| progress.step(what))?;
    }
    progress.end();
    claims::judge(&mut report);
    report.notes.extend(report.weaknesses());
    Ok(report)
}

fn run_program(
    plan: &MemoryPlan,
    program: Program,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Result<(), RunError> {
    let name = program.into_str();
    if let Some(load) = program.load() {
        report.measurements.extend(strategies::compare(plan, load, name, step)?);
        return Ok(());
    }
    match program {
        Program::MapLimit => {
            step(name);
            match areas::one_mapping_per_run() {
                Ok(limit) => claims::map_limit(&limit, report),
                Err(why) => report.skip(name, why),
            }
        }
        Program::Areas => {
            step(name);
            let areas = runs::of_an_arena(plan.seed).map_err(|why| failed(name, why))?;
            claims::areas(&areas, report);
        }
        Program::HugeRuns => {
            step(name);
            let churned = huge_runs::run(plan.seed, plan.extent, report);
            churned.map_err(|why| failed(name, why))?;
        }
        Program::Pressure => {
            let tails = pressure::measure(plan, &|| step(name)).map_err(|why| failed(name, why))?;
            claims::pressure(&tails, report);
            report.measurements.extend(tails.measurements(name));
        }
        Program::Moves => moves::run(plan, report, step)?,
        _ => {
            step(name);
            oracles::run(report);
        }
    }
    Ok(())
}

fn failed(program: &str, why: String) -> RunError {
    RunError::engine(names::ARENA, program, why)
}

fn plan(options: &Options) -> Result<MemoryPlan, RunError> {
    let (rounds, pairs) = if options.extent == Extent::Full { FULL } else { SUBSET };
    let usual = Usual { repeats: rounds, loops: Some((pairs, 8..=10_000_000, "")), ..Usual::ONCE };
    Plan::of(options, SCENARIO.choose_designs(options)?, SCENARIO.choose(options)?, usual)
}
