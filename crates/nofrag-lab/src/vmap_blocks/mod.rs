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

use std::time::Instant;

use self::catalogue::{Design, NAMES, SPECS, Spec};
use self::turns::BlocksPlan;
use crate::figures;
use crate::report::{Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_designs,
    choose_programs,
};
use crate::shortfall::Expected;
use nofrag_show::Section;

/// The scenario on the locks of the index of blocks.
#[derive(Clone, Copy, Debug)]
pub struct VmapBlocks2023;

impl Scenario for VmapBlocks2023 {
    fn name(&self) -> &'static str {
        "vmap-blocks-2023"
    }

    fn about(&self) -> &'static str {
        "which locks the blocks of vm_map_ram share"
    }

    fn document(&self) -> &'static str {
        "Uladzislau Rezki, \"remove a global vmap_blocks xarray\", 2023 (Linux 6.4)"
    }

    fn designs(&self) -> &'static [&'static str] {
        &NAMES
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
        let mut report =
            Report::new(self.name(), figures::rezki_2023().document, settings(&plan, options.mode));
        report.measurements = turns::take_turns(&plan, progress)?;
        claims::judge(&plan, &mut report)?;
        present::compare_published(&mut report);
        present::take_notes(&plan, &mut report);
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        present::sections(report)
    }
}

/// Number of threads, and of CPUs, in the document's runs.
const THREADS: usize = 64;

/// Pages of a mapping in the document's second run.
const PAGES: u64 = 5;

fn plan(options: &Options) -> Result<BlocksPlan, RunError> {
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    if options.mode != Mode::Compare {
        return refuse("mode", "must be compare: this scenario has no other");
    }
    let loops = if options.extent == Extent::Full { 2_000_000 } else { 200_000 };
    let plan = BlocksPlan {
        designs: choose(options)?,
        specs: specs(options)?,
        seed: options.seed.unwrap_or(1),
        repeats: options.repeat.unwrap_or(5),
        loops: options.loops.unwrap_or(loops),
        pages: options.pages.unwrap_or(PAGES),
        threads: options.threads.unwrap_or(THREADS),
    };
    match plan {
        BlocksPlan { repeats: 0, .. } => refuse("repeat", "must be at least 1"),
        BlocksPlan { loops: 0, .. } => refuse("loops", "must be at least 1"),
        BlocksPlan { pages, .. } if !(1..=64).contains(&pages) => {
            refuse("pages", "must be between 1 and 64: what is larger is no block's")
        }
        BlocksPlan { threads, .. } if !(1..=1024).contains(&threads) => {
            refuse("threads", "must be between 1 and 1024")
        }
        plan => Ok(plan),
    }
}

fn choose(options: &Options) -> Result<Vec<Design>, RunError> {
    let names = choose_designs(&NAMES, &options.designs)?;
    Ok(catalogue::designs().into_iter().filter(|design| names.contains(&design.name)).collect())
}

fn specs(options: &Options) -> Result<Vec<Spec>, RunError> {
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|spec| spec.info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    Ok(SPECS.into_iter().filter(|spec| chosen.contains(&spec.info)).collect())
}

fn settings(plan: &BlocksPlan, mode: Mode) -> Settings {
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
