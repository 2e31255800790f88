//! `vmap-live`: the running kernel as the oracle of the rules for vmalloc areas.
//!
//! A model of areas is right if it says where the kernel puts every area. The kernel reports each area that it places,
//! frees and purges; [`nofrag::vmap::VmapSpace`] under the rules of that kernel begins with the same areas and makes
//! the same changes, and must place each area where the kernel did. Method and findings: docs/sources/vmap.md#live.
//!
//! Recordings of Linux 6.12, 6.18 and 7.2 and lists of 5.10 and 6.1 come with nofrag, and their claims are exact. On
//! request, and where the host allows it (root, with tracefs), the running kernel is recorded while areas are made;
//! there other work of the host comes between, so those claims depend on the host.
//!
//! - [`load`]: makes areas, [`reads`] with files. [`live`]: records that. [`case`]: a recording. [`order`]: the order
//!   of its changes.
//! - [`lists`]: kernels without events. [`replay`]: the model beside a recording. [`explain`]: what events leave open.
//!   [`run`]: judges.

mod case;
mod catalogue;
mod explain;
mod lists;
mod live;
mod load;
mod names;
mod order;
mod reads;
mod replay;
mod run;

use std::sync::LazyLock;

use self::catalogue::{SPECS, Source, Spec};
use self::load::Length;
use self::run::Files;
use crate::plan::{Plan, Usual};
use crate::report::Report;
use crate::scenario::{
    Declaration, Extent, Options, Progress, RunError, Scenario, Special, choose_programs,
};

/// Our model of the kernel's rules.
const DESIGNS: [&str; 1] = ["nofrag"];

/// Areas of a recording and recordings of a program, unless the command line says otherwise. The search for an order
/// replays a recording from its start, so many short recordings are compared rather than a long one.
const SUBSET: (u64, usize) = (4_000, 1);
const FULL: (u64, usize) = (6_000, 6);

/// Threads of a crowd.
const THREADS: u64 = 2_000;

/// Extent of a run; its loops are the areas of a recording.
type LivePlan = Plan<&'static str, Spec>;

impl LivePlan {
    /// Returns the length of a repetition.
    fn length(&self, repetition: u64) -> Length {
        let seed = self.seed.wrapping_add(repetition);
        Length { areas: self.loops, threads: self.threads, seed }
    }
}

/// The scenario that compares our rules of vmalloc areas with the kernel's own events.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: |report| SCENARIO.tables(report).collect(),
    special: Special::NONE,
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = plan.settings(options.mode, |design| design);
    let mut report = SCENARIO.report(settings);
    progress.begin(plan.programs.len() as u64);
    let files = Files { given: options.states.as_deref(), keep: options.keep.as_deref() };
    run::run(&plan, files, &mut report, &|program| progress.step(program))?;
    progress.end();
    Ok(report)
}

fn plan(options: &Options) -> Result<LivePlan, RunError> {
    SCENARIO.choose_designs(options)?;
    let mask = match options.states {
        Some(_) => Some("given"),
        None => options.mask.as_deref(),
    };
    let mut programs = choose_programs(&SPECS, |spec| spec.info, mask)?;
    // To record the running kernel, settings of the host are changed for a moment: only on request.
    let may_record = options.extent == Extent::Full || options.mask.is_some();
    programs.retain(|spec| match spec.program {
        Source::Given => options.states.is_some(),
        Source::Shipped(_) | Source::ShippedLists(_) => true,
        Source::Running(_) | Source::RunningLists => may_record,
    });
    if programs.is_empty() {
        return Err(RunError::option("mask", "given needs --states, which names the recordings"));
    }
    let (areas, repeats) = if options.extent == Extent::Full { FULL } else { SUBSET };
    let usual = Usual {
        repeats,
        loops: Some((areas, 1..=20_000, ": areas of a recording")),
        threads: Some((THREADS, 1..=10_000, "")),
        ..Usual::ONCE
    };
    Plan::of(options, DESIGNS.to_vec(), programs, usual)
}

#[cfg(test)]
mod tests;
