//! `mmap-holes-2005`: Wander's and Chen's "Avoiding mmap fragmentation", with its predecessors, its successors, and
//! ours.
//!
//! The place of a mapping decides whether a process can still map tomorrow. Until 2002 Linux took the first hole that
//! fits, and walked over all areas to find it; with 20,000 thread stacks that took half a minute. A word that remembers
//! where the last search ended (`free_area_cache`) made it quick, and left holes behind that it never looked at again:
//! leakme, with 92 % of its window live, died after 52,624 iterations. The document adds a second word, the size of the
//! largest hole below the first (`cached_hole_size`), and pulls the first word back when space is freed.
//!
//! The comparison is arithmetic: areas, holes and visits follow from the rules, and are held to the published ones
//! exactly. Times are those of our index of areas, not of a kernel's, and are compared as ratios.
//!
//! The successors are here, too: the trees of 3.8 and 6.1, which are first fit again, and the alignment of multiples of
//! 2 MiB since 6.7, which costs more address space than the two words ever did. Ours keeps those multiples apart from
//! the rest.
//!
//! Rules, programs and outcomes, with their origins: docs/sources/mmap.md.
//!
//! - [`catalogue`]: designs, programs, ends. [`process`]: a space and a tally. [`workloads`]: the programs.
//! - [`survival`]: the smallest window. [`turns`]: runs them. [`claims`]: claims that a run must confirm.
//!   [`present`]: tables and pictures.

mod catalogue;
mod claims;
mod names;
mod present;
mod process;
mod survival;
mod turns;
mod workloads;

use std::time::Instant;

use nofrag::mmap::{Placement, PlacementPreset};

use self::catalogue::{DESIGNS, SPECS};
use self::turns::{HolesPlan, PUBLISHED_LOOPS};
use crate::figures;
use crate::report::{Report, Settings};
use crate::scenario::{
    Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_designs, choose_programs,
};
use crate::shortfall::Expected;
use nofrag_show::Section;

/// The scenario on the placement of mappings and the holes that it leaves.
#[derive(Clone, Copy, Debug)]
pub struct MmapHoles2005;

impl Scenario for MmapHoles2005 {
    fn name(&self) -> &'static str {
        "mmap-holes-2005"
    }

    fn about(&self) -> &'static str {
        "where mappings are placed, and which holes that leaves"
    }

    fn document(&self) -> &'static str {
        "Wolfgang Wander, Ken Chen, \"Avoiding mmap fragmentation\", 2005 (Linux 2.6.13)"
    }

    fn designs(&self) -> &'static [&'static str] {
        &DESIGNS
    }

    fn design_of(&self, name: &str) -> Option<&'static str> {
        Placement::preset(name).ok().map(|preset| preset.name)
    }

    fn programs(&self) -> Vec<ProgramInfo> {
        SPECS.iter().map(|(_, info)| *info).collect()
    }

    fn expected(&self) -> Expected {
        Expected::declared(include_str!("expected.toml"))
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
        let begin = Instant::now();
        let plan = plan(options)?;
        let mut report = Report::new(self.name(), figures::wander_2005().document, settings(&plan));
        report.measurements = turns::take_turns(&plan, progress)?;
        claims::judge(&plan, &mut report);
        present::compare_published(&mut report);
        present::take_notes(&plan, &mut report);
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        present::sections(report)
    }
}

fn plan(options: &Options) -> Result<HolesPlan, RunError> {
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    if options.mode != Mode::Compare {
        return refuse("mode", "must be compare: this scenario has no other");
    }
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|(_, info)| *info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let programs = SPECS.iter().filter(|(_, info)| chosen.contains(info)).map(|(p, _)| *p);
    let plan = HolesPlan {
        designs: choose(&options.designs)?,
        programs: programs.collect(),
        extent: options.extent,
        seed: options.seed.unwrap_or(0),
        repeats: options.repeat.unwrap_or(5),
        loops: options.loops.unwrap_or(PUBLISHED_LOOPS),
        threads: options.threads.unwrap_or_else(nofrag_show::cpus),
    };
    match plan {
        HolesPlan { repeats: 0, .. } => refuse("repeat", "must be at least 1"),
        HolesPlan { loops, .. } if !(1..=100 * PUBLISHED_LOOPS).contains(&loops) => {
            refuse("loops", "must be between 1 and 100000000")
        }
        HolesPlan { threads, .. } if !(1..=1024).contains(&threads) => {
            refuse("threads", "must be between 1 and 1024: so many programs run at a time")
        }
        plan => Ok(plan),
    }
}

/// Resolves the wanted designs; a version of Linux stands for the newest rule set not newer than it.
fn choose(wanted: &[String]) -> Result<Vec<PlacementPreset>, RunError> {
    let resolve = |name: &String| MmapHoles2005.design_of(name).map_or(name.clone(), str::to_owned);
    let wanted: Vec<String> = wanted.iter().map(resolve).collect();
    let named = |name| Placement::preset(name).expect("the scenario compares presets");
    Ok(choose_designs(&DESIGNS, &wanted)?.into_iter().map(named).collect())
}

fn settings(plan: &HolesPlan) -> Settings {
    Settings {
        mode: Mode::Compare.name().to_owned(),
        seed: plan.seed,
        repeats: plan.repeats,
        loops: plan.loops,
        pages: 1,
        threads: plan.threads,
        designs: plan.rows(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests;
