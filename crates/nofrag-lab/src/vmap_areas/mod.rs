//! `vmap-areas-2019`: Rezki's "improve vmap allocation", its predecessor, its successors and ours.
//!
//! The document replaces the search for free addresses: instead of walking over busy areas from a cached place (4.19),
//! the kernel keeps the free areas in a tree with the largest size of each subtree (5.2), so that a fit is found in
//! O(log n), as one of four types: the whole free area (FL), its left or right edge (LE, RE), or its middle (NE). The
//! author measured with the module `test_vmalloc`, whose programs are run here on addresses alone: no page is
//! allocated, zeroed, mapped or written. So times here are those of the allocator, published ones include the pages,
//! and only ratios are compared.
//!
//! Two things decide whether the programs show anything. On a clean space the old design is not slow: its cache is
//! right every time. It is slow when a hole below the cache is too small for the request: a small request drops the
//! cache, and the next large one walks over all areas. And only holes make the newer designs differ from each other.
//! Hence [`holes`].
//!
//! Rules and their origins: docs/sources/vmap.md#free-areas, vmap.md#lazy, vmap.md#nodes; the module:
//! vmap.md#test-vmalloc.
//!
//! - [`catalogue`]: the programs and their bounds. [`programs`], [`holes`]: their work. [`worker`]: one thread, clock,
//!   counters.
//! - [`turns`] and [`driver`]: the ways of running them. [`claims`]: claims that a run must confirm. [`present`]:
//!   tables.

mod catalogue;
mod claims;
mod driver;
mod holes;
mod names;
mod present;
mod programs;
mod turns;
mod worker;

use std::time::Instant;

use nofrag::vmap::VmapPolicy;

use self::catalogue::{SPECS, Spec};
use self::turns::AreasPlan;
use crate::figures;
use crate::report::{Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_presets,
    choose_programs,
};
use crate::shortfall::Expected;
use nofrag_show::Section;

/// The scenario on the search for free areas.
#[derive(Clone, Copy, Debug)]
pub struct VmapAreas2019;

/// The designs before and after the document.
const BEFORE: &str = "linux-4.19";
const AFTER: &str = "linux-5.2";
const OURS: &str = "nofrag";
/// The newest rules of areas that a kernel of Linux 6.1 has.
const LIKE_6_1: &str = "linux-5.18";

const DESIGNS: [&str; 5] = [BEFORE, AFTER, LIKE_6_1, "linux-6.9", OURS];

impl Scenario for VmapAreas2019 {
    fn name(&self) -> &'static str {
        "vmap-areas-2019"
    }

    fn about(&self) -> &'static str {
        "how vmalloc finds free addresses"
    }

    fn document(&self) -> &'static str {
        "Uladzislau Rezki, \"improve vmap allocation\", 2019 (Linux 5.2)"
    }

    fn designs(&self) -> &'static [&'static str] {
        &DESIGNS
    }

    fn design_of(&self, name: &str) -> Option<&'static str> {
        VmapPolicy::preset(name).ok().map(|preset| preset.name)
    }

    fn programs(&self) -> Vec<ProgramInfo> {
        SPECS.iter().map(|spec| spec.info).collect()
    }

    fn has_mode(&self, _mode: Mode) -> bool {
        true
    }

    fn expected(&self) -> Expected {
        Expected::declared(include_str!("expected.toml"))
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
        let begin = Instant::now();
        let plan = plan(options)?;
        let mut report =
            Report::new(self.name(), figures::rezki_2019().document, settings(&plan, options.mode));
        if options.mode == Mode::Compare {
            let compared = turns::take_turns(&plan, progress)?;
            report.measurements = compared.measurements;
            claims::judge_engines(&plan, &mut report)?;
            claims::judge_stability(&compared.unstable, &mut report);
        } else {
            driver::run(&plan, options.mode, &mut report, progress)?;
        }
        claims::judge_measurements(&mut report);
        present::compare_published(&mut report);
        present::take_notes(&plan, &mut report);
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        present::sections(report)
    }
}

/// Returns the defaults of each mode: repetitions; loops in the subset and in a full run.
fn defaults(mode: Mode) -> (usize, [u64; 2]) {
    match mode {
        Mode::Compare => (5, [20_000, 100_000]),
        Mode::Performance => (3, [20_000, 100_000]),
        Mode::Shuffle => (1, [20_000, 100_000]),
        Mode::Smoke => (10, [10_000, 10_000]),
        Mode::Stress => (20, [1_000, 10_000]),
        Mode::Soak => (10, [1_000, 10_000]),
    }
}

fn plan(options: &Options) -> Result<AreasPlan, RunError> {
    let (repeats, [subset, full]) = defaults(options.mode);
    let threads = match options.mode {
        Mode::Performance | Mode::Smoke => 1,
        _ => nofrag_show::cpus(),
    };
    let plan = AreasPlan {
        designs: choose_presets(&DESIGNS, &options.designs)?,
        specs: choose_specs(options)?,
        extent: options.extent,
        seed: options.seed.unwrap_or(1),
        repeats: options.repeat.unwrap_or(repeats),
        loops: options.loops.unwrap_or(if options.extent == Extent::Full { full } else { subset }),
        pages: options.pages.unwrap_or(1),
        threads: options.threads.unwrap_or(threads),
    };
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    match plan {
        AreasPlan { repeats: 0, .. } => refuse("repeat", "must be at least 1"),
        AreasPlan { loops: 0, .. } => refuse("loops", "must be at least 1"),
        AreasPlan { pages: 0, .. } => refuse("pages", "must be at least 1"),
        AreasPlan { pages, .. } if pages > 1 << 20 => refuse("pages", "must be at most 1048576"),
        AreasPlan { threads, .. } if !(1..=1024).contains(&threads) => {
            refuse("threads", "must be between 1 and 1024")
        }
        plan => Ok(plan),
    }
}

/// Returns the programs that a mask names, whatever they cost; without one, those of the mode and the extent.
fn choose_specs(options: &Options) -> Result<Vec<&'static Spec>, RunError> {
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|spec| spec.info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let named = |spec: &&Spec| chosen.contains(&spec.info);
    let due = |spec: &&Spec| {
        let in_mode = options.mode == Mode::Compare || driver::runs_by_default(spec);
        let in_extent = options.extent == Extent::Full || spec.since == Extent::Subset;
        options.mask.is_some() || (in_mode && in_extent)
    };
    let specs: Vec<&Spec> = SPECS.iter().filter(named).filter(due).collect();
    if options.mode != Mode::Compare
        && let Some(spec) = specs.iter().find(|spec| !driver::can_run(spec))
    {
        let why = format!("names {}, which only mode compare can run", spec.info.name);
        return Err(RunError::BadOption { option: "mask", why });
    }
    Ok(specs)
}

fn settings(plan: &AreasPlan, mode: Mode) -> Settings {
    Settings {
        mode: mode.name().to_owned(),
        seed: plan.seed,
        repeats: plan.repeats,
        loops: plan.loops,
        pages: plan.pages,
        threads: plan.threads,
        designs: plan.designs.iter().map(|design| design.name.to_owned()).collect(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests;
