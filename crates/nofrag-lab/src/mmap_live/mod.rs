//! `mmap-live`: the running kernel as the oracle of its own rules.
//!
//! A model of placement is right if it says where the kernel puts every mapping, before the kernel does. Here it must:
//! a process that maps only on command ([`probe`](crate::apparatus::probe)) makes random mappings, fixed mappings,
//! partial unmappings and changes of protection, and [`nofrag::mmap::AddressSpace`], which began with the same areas,
//! predicts each outcome. This is done in 64 and in 32 bits, in the usual layout and in the legacy one. Method and
//! findings: docs/sources/mmap.md#live and mmap.md#habits; the goal: mmap.md#g1.
//!
//! Where the kernel is too old, or not Linux on x86-64, or refuses a process without randomisation, programs are left
//! out and the notes say why. The claims are exact for the version with which the rules were compared, and depend on
//! the host for others.
//!
//! - [`kernel`]: rules by version. [`twin`]: kernel and model side by side. [`trace`]: random operations.
//! - [`leakme`]: the program of 2005. [`threads`]: live threads. [`run`]: all of them. [`present`]: tables.

mod catalogue;
mod kernel;
mod leakme;
mod names;
mod present;
mod run;
mod threads;
mod trace;
mod twin;

use std::time::Instant;

use self::catalogue::{LIMIT, SPECS, Spec};
use crate::report::{Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_designs,
    choose_programs,
};
use crate::shortfall::Expected;
use nofrag_show::Section;

/// The scenario that compares our rules of placement with the running kernel.
#[derive(Clone, Copy, Debug)]
pub struct MmapLive;

/// The kernel, and our model of its rules.
const DESIGNS: [&str; 2] = ["linux", "nofrag"];

const DOCUMENT: &str = "the running kernel: mmap(2), munmap(2), mprotect(2)";

/// Number of operations of a program, and of threads, unless the command line says otherwise.
const SUBSET: (u64, usize) = (20_000, 2_000);
const FULL: (u64, usize) = (1_500_000, 20_000);

/// Extent of a run against the running kernel.
#[derive(Clone, Debug)]
struct LivePlan {
    specs: Vec<Spec>,
    extent: Extent,
    seed: u64,
    repeats: usize,
    /// Number of operations of a trace.
    loops: u64,
    threads: usize,
}

impl LivePlan {
    /// Returns the seed of a repetition: each begins at another one, the first at the given one.
    fn seed_of(&self, repetition: usize) -> u64 {
        self.seed.wrapping_add((repetition as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl Scenario for MmapLive {
    fn name(&self) -> &'static str {
        "mmap-live"
    }

    fn about(&self) -> &'static str {
        "whether the model places as the running kernel does"
    }

    fn document(&self) -> &'static str {
        DOCUMENT
    }

    fn designs(&self) -> &'static [&'static str] {
        &DESIGNS
    }

    fn programs(&self) -> Vec<ProgramInfo> {
        SPECS.iter().map(|spec| spec.info).collect()
    }

    fn expected(&self) -> Expected {
        Expected::declared(include_str!("expected.toml"))
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
        let begin = Instant::now();
        let plan = plan(options)?;
        let mut report = Report::new(self.name(), DOCUMENT.to_owned(), settings(&plan));
        progress.begin(plan.specs.len() as u64);
        run::run(&plan, &mut report, &|program| progress.step(program))?;
        progress.end();
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        present::sections(report)
    }
}

fn plan(options: &Options) -> Result<LivePlan, RunError> {
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    if options.mode != Mode::Compare {
        return refuse("mode", "must be compare in mmap-live, which has no other");
    }
    // Both sides of the comparison run whatever is asked for; any other name is still a mistake.
    choose_designs(&DESIGNS, &options.designs)?;
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|spec| spec.info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let seconds = options.extent == Extent::Subset && options.mask.is_none();
    let specs = SPECS.into_iter().filter(|spec| chosen.contains(&spec.info));
    let (loops, threads) = match options.extent {
        Extent::Subset => SUBSET,
        Extent::Full => FULL,
    };
    let plan = LivePlan {
        specs: specs.filter(|spec| !(seconds && spec.info.name == LIMIT)).collect(),
        extent: options.extent,
        seed: options.seed.unwrap_or(trace::PUBLISHED_SEED),
        repeats: options.repeat.unwrap_or(1),
        loops: options.loops.unwrap_or(loops),
        threads: options.threads.unwrap_or(threads),
    };
    match plan {
        LivePlan { repeats: 0, .. } => refuse("repeat", "must be at least 1"),
        LivePlan { loops: 0, .. } => refuse("loops", "must be at least 1"),
        LivePlan { threads, .. } if !(1..=30_000).contains(&threads) => {
            refuse("threads", "must be between 1 and 30000")
        }
        plan => Ok(plan),
    }
}

fn settings(plan: &LivePlan) -> Settings {
    Settings {
        mode: Mode::Compare.name().to_owned(),
        seed: plan.seed,
        repeats: plan.repeats,
        loops: plan.loops,
        pages: 1,
        threads: plan.threads,
        designs: DESIGNS.map(str::to_owned).to_vec(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests;
