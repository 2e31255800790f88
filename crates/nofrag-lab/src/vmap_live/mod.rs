//! `vmap-live`: the running kernel as the oracle of the rules for vmalloc areas.
//!
//! A model of areas is right if it says where the kernel puts every area. The kernel reports each area that it places,
//! frees and purges; [`nofrag::vmap::VmapSpace`] under the rules of that kernel begins with the same areas and makes
//! the same changes, and must place each area where the kernel did. Method and findings: docs/sources/vmap.md#live.
//!
//! Three recordings of Linux 6.18 come with nofrag, and their claims are exact. On request, and where the host allows
//! it (root, with tracefs), the running kernel is recorded while areas are made; there other work of the host comes
//! between, so those claims depend on the host.
//!
//! - [`load`]: makes areas. [`live`]: records that. [`case`]: a recording. [`order`]: the order of its changes.
//! - [`replay`]: the model beside a recording. [`explain`]: what events leave open. [`run`]: judges. [`present`]:
//!   tables.

mod case;
mod catalogue;
mod explain;
mod live;
mod load;
mod names;
mod order;
mod present;
mod replay;
mod run;

use std::path::PathBuf;
use std::time::Instant;

use self::catalogue::{SPECS, Source, Spec};
use crate::report::{Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_designs,
    choose_programs,
};
use crate::shortfall::Expected;
use nofrag_show::Section;

/// The scenario that compares our rules of vmalloc areas with the kernel's own events.
#[derive(Clone, Copy, Debug)]
pub struct VmapLive;

/// Our model of the kernel's rules.
const DESIGNS: [&str; 1] = ["nofrag"];

const DOCUMENT: &str = "the kernel: events of vmalloc, /proc/vmallocinfo";

/// Areas of a recording and recordings of a program, unless the command line says otherwise. The search for an order
/// replays a recording from its start, so many short recordings are compared rather than a long one.
const SUBSET: (u64, usize) = (4_000, 1);
const FULL: (u64, usize) = (6_000, 6);

/// Threads of a crowd.
const THREADS: usize = 2_000;

/// Extent of a run.
#[derive(Clone, Debug)]
struct LivePlan {
    specs: Vec<Spec>,
    extent: Extent,
    seed: u64,
    repeats: usize,
    areas: u64,
    threads: usize,
    /// Recordings that are compared in place of those that come with nofrag: a folder of them, or one.
    given: Option<PathBuf>,
    /// Folder in which recordings of the running kernel are kept.
    keep: Option<PathBuf>,
}

impl Scenario for VmapLive {
    fn name(&self) -> &'static str {
        "vmap-live"
    }

    fn about(&self) -> &'static str {
        "whether the model places vmalloc areas as the kernel does"
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
        return refuse("mode", "must be compare in vmap-live, which has no other");
    }
    choose_designs(&DESIGNS, &options.designs)?;
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|spec| spec.info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let (areas, repeats) = match options.extent {
        Extent::Subset => SUBSET,
        Extent::Full => FULL,
    };
    // To record the running kernel, settings of the host are changed for a moment: only on request.
    let may_record = options.extent == Extent::Full || options.mask.is_some();
    let is_chosen = |spec: &Spec| match (spec.source, &options.states) {
        (Source::Given, Some(_)) => true,
        (Source::Given, None) | (_, Some(_)) => false,
        (Source::Shipped(_), None) => chosen.contains(&spec.info),
        (Source::Running(_), None) => may_record && chosen.contains(&spec.info),
    };
    let plan = LivePlan {
        specs: SPECS.into_iter().filter(is_chosen).collect(),
        extent: options.extent,
        seed: options.seed.unwrap_or(1),
        repeats: options.repeat.unwrap_or(repeats),
        areas: options.loops.unwrap_or(areas),
        threads: options.threads.unwrap_or(THREADS),
        given: options.states.clone(),
        keep: options.keep.clone(),
    };
    match plan {
        LivePlan { ref specs, .. } if specs.is_empty() => {
            refuse("mask", "given needs --states, which names the recordings")
        }
        LivePlan { repeats: 0, .. } => refuse("repeat", "must be at least 1"),
        LivePlan { areas, .. } if !(1..=20_000).contains(&areas) => {
            refuse("loops", "must be between 1 and 20000: areas of a recording")
        }
        LivePlan { threads, .. } if !(1..=10_000).contains(&threads) => {
            refuse("threads", "must be between 1 and 10000")
        }
        plan => Ok(plan),
    }
}

fn settings(plan: &LivePlan) -> Settings {
    Settings {
        mode: Mode::Compare.name().to_owned(),
        seed: plan.seed,
        repeats: plan.repeats,
        loops: plan.areas,
        pages: 1,
        threads: plan.threads,
        designs: DESIGNS.map(str::to_owned).to_vec(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests;
