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

use std::sync::LazyLock;

use self::catalogue::{SPECS, Spec};
use self::turns::AreasPlan;
use crate::figures;
use crate::plan::{POSITIVE, Plan, Usual};
use crate::report::Report;
use crate::scenario::{
    Declaration, Extent, Mode, Options, Progress, RunError, Scenario, Special, choose_presets,
    choose_programs, vmap_preset,
};

/// The designs before and after the document.
const BEFORE: &str = "linux-4.19";
const AFTER: &str = "linux-5.2";
const OURS: &str = "nofrag";
/// The newest rules of areas that a kernel of Linux 6.1 has.
const LIKE_6_1: &str = "linux-5.18";

/// The scenario on the search for free areas.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: present::sections,
    special: Special {
        programs: Some(|| SPECS.iter().map(|spec| spec.info).collect()),
        design_of: Some(vmap_preset),
        modes: &[
            Mode::Compare,
            Mode::Performance,
            Mode::Shuffle,
            Mode::Smoke,
            Mode::Stress,
            Mode::Soak,
        ],
        ..Special::NONE
    },
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = plan.settings(options.mode, |design| design.name);
    let document = figures::rezki_2019().document;
    let mut report = Report { document, ..SCENARIO.report(settings) };
    if options.mode == Mode::Compare {
        let compared = turns::take_turns(&plan, progress)?;
        report.measurements = compared.measurements;
        claims::judge_stability(&compared.unstable, &mut report);
    } else {
        driver::run(&plan, options.mode, &mut report, progress)?;
    }
    claims::judge_measurements(&mut report);
    present::compare_published(&mut report);
    present::take_notes(&plan, &mut report);
    Ok(report)
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
        _ => nofrag_show::cpus() as u64,
    };
    let loops = if options.extent == Extent::Full { full } else { subset };
    let usual = Usual {
        repeats,
        loops: Some((loops, POSITIVE, "")),
        pages: Some((1, 1..=1 << 20, "")),
        threads: Some((threads, 1..=1024, "")),
        ..Usual::ONCE
    };
    let designs = choose_presets(&SCENARIO.designs, &options.designs)?;
    Plan::of(options, designs, choose_specs(options)?, usual)
}

/// Returns the programs that a mask names, whatever they cost; without one, those of the mode and the extent.
fn choose_specs(options: &Options) -> Result<Vec<&'static Spec>, RunError> {
    let all: Vec<&'static Spec> = SPECS.iter().collect();
    let mut specs = choose_programs(&all, |spec| spec.info, options.mask.as_deref())?;
    specs.retain(|spec| {
        let in_mode = options.mode == Mode::Compare || spec.is_of_kernel();
        let in_extent = options.extent == Extent::Full
            || SCENARIO.expected.designs_of(spec.info.name).next().is_some();
        options.mask.is_some() || (in_mode && in_extent)
    });
    if options.mode != Mode::Compare
        && let Some(spec) = specs.iter().find(|spec| !driver::can_run(spec))
    {
        let why = format!("names {}, which only mode compare can run", spec.info.name);
        return Err(RunError::option("mask", why));
    }
    Ok(specs)
}

#[cfg(test)]
mod tests;
