//! `vmap-blocks-2023`: Rezki's "remove a global vmap_blocks xarray", its predecessor, its successors and ours.
//!
//! `vm_map_ram` cuts small mappings from blocks, which belong to CPUs. So that an unmapping finds its block, an index
//! holds all of them. Until 2023 the index was one table, changed under one lock whenever a block came or went: on 64
//! CPUs the second most contended lock of the allocator. The document divides the table by *address* (unmappings come
//! from any CPU), which takes the contention away, and leaves all other locks as they were. Ours writes each place of
//! its index once and needs no lock for it.
//!
//! Contention needs many CPUs, and the machine at hand may have two. So the same loops run in three ways: by real
//! threads on the CPUs that there are, by the 64 threads of the kernel's own test on the same CPUs, and by 64 simulated
//! CPUs, whose contention is counted in virtual time. Real times prove little here; counts do.
//!
//! The rules and their origins: docs/sources/vmap.md#block-hash, vmap.md#block-free, vmap.md#global-lookup-lock.
//!
//! - [`catalogue`]: designs and programs. [`caller`]: a space, and the ways of calling it. [`locks`]: their kinds.
//! - [`threads`]: real threads. [`simulator`]: virtual time. [`model`]: the space in virtual time.
//! - [`turns`]: runs them. [`claims`]: claims that a run must confirm. [`present`]: tables.

mod caller;
mod catalogue;
mod claims;
mod locks;
mod model;
mod names;
mod present;
mod simulator;
mod threads;
mod turns;

use std::sync::LazyLock;

use self::catalogue::SPECS;
use self::turns::BlocksPlan;
use crate::figures;
use crate::plan::{POSITIVE, Plan, Usual};
use crate::report::Report;
use crate::scenario::{
    Declaration, Extent, Options, Progress, RunError, Scenario, Special, choose_programs,
};

/// The scenario on the locks of the index of blocks.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: present::sections,
    special: Special::NONE,
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = plan.settings(options.mode, |design| design.name);
    let document = figures::rezki_2023().document;
    let mut report = Report { document, ..SCENARIO.report(settings) };
    report.measurements = turns::take_turns(&plan, progress)?;
    claims::judge(&mut report);
    present::compare_published(&mut report);
    present::take_notes(&plan, &mut report);
    Ok(report)
}

/// Number of threads, and of CPUs, in the document's runs.
const THREADS: u64 = 64;

/// Pages of a mapping in the document's second run.
const PAGES: u64 = 5;

fn plan(options: &Options) -> Result<BlocksPlan, RunError> {
    let names = SCENARIO.choose_designs(options)?;
    let designs = catalogue::designs().into_iter().filter(|it| names.contains(&it.name)).collect();
    let programs = choose_programs(&SPECS, |spec| spec.info, options.mask.as_deref())?;
    let loops = if options.extent == Extent::Full { 2_000_000 } else { 200_000 };
    let usual = Usual {
        repeats: 5,
        loops: Some((loops, POSITIVE, "")),
        pages: Some((PAGES, 1..=64, ": what is larger is no block's")),
        threads: Some((THREADS, 1..=1024, "")),
        ..Usual::ONCE
    };
    Plan::of(options, designs, programs, usual)
}

#[cfg(test)]
mod tests;
