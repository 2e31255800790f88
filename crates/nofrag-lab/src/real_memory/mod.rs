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

use std::time::Instant;

use crate::apparatus::strategies::Strategy;

use self::catalogue::{Program, SPECS, Spec};
use crate::figures;
use crate::report::{Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_designs,
    choose_programs,
};
use crate::shortfall::Expected;
use nofrag_show::Section;

/// The scenario on the costs of real memory.
#[derive(Clone, Copy, Debug)]
pub struct RealMemory;

/// The ways to hand out runs; the library's own are the last ones.
const DESIGNS: [&str; Strategy::ALL.len() + 2] = {
    let mut designs = [""; Strategy::ALL.len() + 2];
    let mut at = 0;
    while at < Strategy::ALL.len() {
        designs[at] = names::strategy(Strategy::ALL[at]);
        at += 1;
    }
    designs[at] = names::ARENA_DECAY;
    designs[at + 1] = names::ARENA;
    designs
};

/// Number of rounds, and of pairs of allocation and free in each, of a default run and of a full one.
const SUBSET: (usize, usize) = (5, 2_000);
const FULL: (usize, usize) = (15, 8_000);

/// Number of moves of a run of up to 64 pages, in each round.
const MOVES: u64 = 200;
const MOVES_OF_FULL_RUN: u64 = 6_000;

/// Extent of a run on real memory.
#[derive(Clone, Debug)]
struct MemoryPlan {
    specs: Vec<Spec>,
    designs: Vec<&'static str>,
    seed: u64,
    rounds: usize,
    pairs: usize,
    moves: u64,
    churned: huge_runs::ChurnSize,
}

impl MemoryPlan {
    fn has(&self, design: &str) -> bool {
        self.designs.contains(&design)
    }

    /// Returns the largest number of steps that a program takes.
    fn steps(&self) -> u64 {
        let of = |spec: &Spec| match spec.program {
            Program::Strategies(_) => self.rounds * self.designs.len(),
            Program::MapLimit | Program::Oracles | Program::Areas | Program::HugeRuns => 1,
            Program::Pressure => self.rounds,
            Program::Moves => self.rounds * moves::SIZES.len(),
        };
        self.specs.iter().map(of).sum::<usize>() as u64
    }
}

impl Scenario for RealMemory {
    fn name(&self) -> &'static str {
        "real-memory"
    }

    fn about(&self) -> &'static str {
        "what real memory costs, and what the arena makes of it"
    }

    fn document(&self) -> &'static str {
        "real memory in user space: mmap(2), madvise(2), memfd_create(2), userfaultfd(2)"
    }

    fn designs(&self) -> &'static [&'static str] {
        &DESIGNS
    }

    fn programs(&self) -> Vec<ProgramInfo> {
        SPECS.iter().map(|spec| spec.info).collect()
    }

    fn has_mode(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Compare | Mode::Soak)
    }

    fn expected(&self) -> Expected {
        Expected::declared(include_str!("expected.toml"))
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
        if options.mode == Mode::Soak {
            return soak::run(options, progress);
        }
        let begin = Instant::now();
        let plan = plan(options)?;
        let document = figures::backing().document;
        let mut report = Report::new(self.name(), document, settings(&plan));
        progress.begin(plan.steps());
        for spec in &plan.specs {
            run_program(&plan, spec, &mut report, &|what| progress.step(what))?;
        }
        progress.end();
        claims::judge(&mut report);
        report.notes.extend(report.weaknesses());
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        match report.settings.mode == Mode::Soak.name() {
            true => soak::sections(report),
            false => present::sections(report),
        }
    }
}

fn run_program(
    plan: &MemoryPlan,
    spec: &Spec,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Result<(), RunError> {
    let name = spec.info.name;
    match spec.program {
        Program::Strategies(load) => {
            report.measurements.extend(strategies::compare(plan, load, name, step)?);
        }
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
            let churned = huge_runs::run(plan.seed, plan.churned, report);
            churned.map_err(|why| failed(name, why))?;
        }
        Program::Pressure => {
            let tails = pressure::measure(plan, &|| step(name)).map_err(|why| failed(name, why))?;
            claims::pressure(&tails, report);
            report.measurements.extend(tails.measurements(name));
        }
        Program::Moves => moves::run(plan, report, step)?,
        Program::Oracles => {
            step(name);
            oracles::run(report);
        }
    }
    Ok(())
}

fn failed(program: &str, why: String) -> RunError {
    let (design, program) = (names::ARENA.to_owned(), program.to_owned());
    RunError::Engine { design, program, why }
}

fn plan(options: &Options) -> Result<MemoryPlan, RunError> {
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    if options.mode != Mode::Compare {
        return refuse("mode", "must be compare or soak in real-memory");
    }
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|spec| spec.info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let (rounds, pairs) = if options.extent == Extent::Full { FULL } else { SUBSET };
    let (moves, churned) = match options.extent {
        Extent::Full => (MOVES_OF_FULL_RUN, huge_runs::ChurnSize::Full),
        Extent::Subset => (MOVES, huge_runs::ChurnSize::Default),
    };
    let plan = MemoryPlan {
        specs: SPECS.into_iter().filter(|spec| chosen.contains(&spec.info)).collect(),
        designs: choose_designs(&DESIGNS, &options.designs)?,
        seed: options.seed.unwrap_or(1),
        rounds: options.repeat.unwrap_or(rounds),
        pairs: options.loops.map_or(pairs, |loops| usize::try_from(loops).unwrap_or(usize::MAX)),
        moves: options.loops.map_or(moves, |loops| loops.min(moves)),
        churned,
    };
    match plan {
        MemoryPlan { rounds: 0, .. } => refuse("repeat", "must be at least 1"),
        MemoryPlan { pairs, .. } if !(8..=MOST_PAIRS).contains(&pairs) => {
            refuse("loops", "must be between 8 and 10,000,000")
        }
        plan => Ok(plan),
    }
}

const MOST_PAIRS: usize = 10_000_000;

fn settings(plan: &MemoryPlan) -> Settings {
    Settings {
        mode: Mode::Compare.name().to_owned(),
        seed: plan.seed,
        repeats: plan.rounds,
        loops: plan.pairs as u64,
        pages: 64,
        threads: 2,
        designs: plan.designs.iter().map(|design| (*design).to_owned()).collect(),
        ..Settings::default()
    }
}
