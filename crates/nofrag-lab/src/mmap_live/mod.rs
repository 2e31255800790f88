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

use std::sync::LazyLock;

use self::catalogue::{Program, SPECS, Spec};
use crate::plan::{POSITIVE, Plan, Usual};
use crate::report::Report;
use crate::scenario::{
    Declaration, Extent, Options, Progress, RunError, Scenario, Special, choose_programs,
};

/// The kernel, and our model of its rules.
const DESIGNS: [&str; 2] = ["linux", "nofrag"];

/// Number of operations of a program, and of threads, unless the command line says otherwise.
const SUBSET: [u64; 2] = [20_000, 2_000];
const FULL: [u64; 2] = [1_500_000, 20_000];

/// Extent of a run against the running kernel.
type LivePlan = Plan<&'static str, Spec>;

impl LivePlan {
    /// Returns the seed of a repetition: each begins at another one, the first at the given one.
    fn seed_of(&self, repetition: usize) -> u64 {
        self.seed.wrapping_add((repetition as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The scenario that compares our rules of placement with the running kernel.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: present::sections,
    special: Special::NONE,
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = plan.settings(options.mode, |design| design);
    let mut report = SCENARIO.report(settings);
    progress.begin(plan.programs.len() as u64);
    run::run(&plan, &mut report, &|program| progress.step(program))?;
    progress.end();
    Ok(report)
}

fn plan(options: &Options) -> Result<LivePlan, RunError> {
    // Both sides of the comparison run whatever is asked for; any other name is still a mistake.
    SCENARIO.choose_designs(options)?;
    let mut programs = choose_programs(&SPECS, |spec| spec.info, options.mask.as_deref())?;
    let seconds = options.extent == Extent::Subset && options.mask.is_none();
    programs.retain(|spec| !(seconds && matches!(spec.program, Program::Limit(_))));
    let [loops, threads] = if options.extent == Extent::Full { FULL } else { SUBSET };
    let usual = Usual {
        seed: trace::PUBLISHED_SEED,
        repeats: 1,
        loops: Some((loops, POSITIVE, "")),
        threads: Some((threads, 1..=30_000, "")),
        ..Usual::ONCE
    };
    Plan::of(options, DESIGNS.to_vec(), programs, usual)
}

#[cfg(test)]
mod tests;
