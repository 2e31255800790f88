//! `vm-map-ram-2015`: Pen's "fix possible exhaustion of vmalloc space", with its predecessors, its successors, and
//! ours.
//!
//! Small mappings are cut from *blocks*, and the slots of a block are handed out once: space comes back when the whole
//! block has been used and unmapped. Before 2015 a new block joined the *head* of its CPU's list. So if the newest
//! block has room for the common sizes, an older one with a smaller hole is never looked at again, and its space is
//! lost although nothing in it is mapped. Pen put it at the *tail*, let the request that made a block take its slots at
//! once instead of searching again, and replaced the bitmap of dirty slots by a range.
//!
//! Nearly everything can be counted, and the counts must be his: blocks made and given back, blocks on the longest
//! list, listed blocks that a call inspects. Times are those of an allocator of addresses over a mapper that counts;
//! his include page tables and the profiler, and are compared as ratios.
//!
//! Gaps that he left are here, too: blocks that one long-lived mapping pins, and the cost of rounding to powers of two.
//! Rules, counts and their origins: docs/sources/vmap.md#blocks, vmap.md#pen-workloads, vmap.md#pen-counts.
//!
//! - [`catalogue`]: the programs. [`workloads`]: his three, as sizes. [`bench`]: a space, a clock, a profiler.
//! - [`pairs`]: the three under every design. [`counts`]: claims around them. [`exhaustion`], [`lifetimes`],
//!   [`rounding`], [`aliases`]: one program each. [`present`]: tables and pictures.

mod aliases;
mod bench;
mod catalogue;
mod counts;
mod exhaustion;
mod lifetimes;
mod names;
mod pairs;
mod present;
mod rounding;
mod workloads;

use std::time::Instant;

use nofrag::vmap::{Preset, VmapPolicy};

use self::bench::Failure;
use self::catalogue::{Program, SPECS};
use crate::figures;
use crate::oracle::{ClaimKind, Oracle, Relation};
use crate::report::{Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_presets,
    choose_programs,
};
use crate::shortfall::Expected;
use nofrag_show::Section;

/// The scenario on blocks of small mappings and their exhaustion.
#[derive(Clone, Copy, Debug)]
pub struct VmMapRam2015;

/// The designs before and after the document.
const BEFORE: &str = "linux-3.19";
const AFTER: &str = "linux-4.1";
const OURS: &str = "nofrag";

const DESIGNS: [&str; 8] = [
    BEFORE,
    "linux-3.19+patch1",
    "linux-3.19+patch2",
    "linux-3.19+patch3",
    AFTER,
    "linux-6.4",
    "linux-6.11",
    OURS,
];

/// Number of loops of Pen's workloads for which the published counts hold.
const PEN_LOOPS: u64 = 1000;

/// Extent of a run of the programs.
#[derive(Clone, Debug)]
struct RamPlan {
    designs: Vec<Preset>,
    programs: Vec<Program>,
    extent: Extent,
    /// The key of the random workload, and the seed of all other random numbers.
    key: u32,
    repeats: usize,
    loops: u64,
}

impl RamPlan {
    /// Returns the designs of the plan that are among `names`.
    fn designs_among<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Preset> {
        self.designs.iter().filter(move |design| names.contains(&design.name))
    }
}

impl Scenario for VmMapRam2015 {
    fn name(&self) -> &'static str {
        "vm-map-ram-2015"
    }

    fn about(&self) -> &'static str {
        "how vm_map_ram loses address space"
    }

    fn document(&self) -> &'static str {
        "Roman Pen, \"mm/vmalloc: fix possible exhaustion of vmalloc space\", 2015 (Linux 4.1)"
    }

    fn designs(&self) -> &'static [&'static str] {
        &DESIGNS
    }

    fn design_of(&self, name: &str) -> Option<&'static str> {
        VmapPolicy::preset(name).ok().map(|preset| preset.name)
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
        let mut report = Report::new(self.name(), figures::pen_2015().document, settings(&plan));
        progress.begin(pairs::steps(&plan) + plan.programs.len() as u64);
        pairs::run(&plan, &mut report, progress)?;
        pairs::judge(&plan, &mut report);
        pairs::compare_published(&mut report);
        for program in &plan.programs {
            progress.step(program.name());
            run_program(*program, &plan, &mut report)
                .map_err(|(design, failure)| engine_error(&design, program.name(), &failure))?;
        }
        progress.end();
        present::take_notes(&plan, &mut report);
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        present::sections(report)
    }
}

/// The name of a design, and the reason why it failed.
type Trouble = (String, Failure);

/// Runs a program besides the three workloads.
fn run_program(program: Program, plan: &RamPlan, report: &mut Report) -> Result<(), Trouble> {
    match program {
        Program::W1 | Program::W2 | Program::W3 => Ok(()),
        Program::Keys => counts::keys(plan, report),
        Program::OtherBits => counts::other_bits(plan, report),
        Program::LeftOver => counts::left_over(plan, report),
        Program::Objection => counts::objection(plan, report),
        Program::ListBound => counts::list_bound(plan, report),
        Program::Exhaustion => exhaustion::run(plan, report),
        Program::Creators => exhaustion::creators(plan, report),
        Program::Lifetimes => lifetimes::run(plan, report),
        Program::Rounding => rounding::run(plan, report),
        Program::Aliases => aliases::run(plan, report),
    }
}

fn engine_error(design: &str, program: &str, failure: &Failure) -> RunError {
    let (design, program) = (design.to_owned(), program.to_owned());
    RunError::Engine { design, program, why: failure.to_string() }
}

/// Adds the verdict on an exact claim.
fn exact(
    report: &mut Report,
    id: &str,
    claim: impl Into<String>,
    measured: f64,
    relation: Relation,
) {
    report.oracles.push(Oracle::judge(id, ClaimKind::Exact, claim, measured, relation));
}

fn plan(options: &Options) -> Result<RamPlan, RunError> {
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    if options.mode != Mode::Compare {
        return refuse("mode", "must be compare in vm-map-ram-2015, which has no other");
    }
    let infos: Vec<ProgramInfo> = SPECS.iter().map(|(_, info)| *info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let programs = SPECS.iter().filter(|(_, info)| chosen.contains(info)).map(|(p, _)| *p);
    let Ok(key) = u32::try_from(options.seed.unwrap_or(0)) else {
        return refuse("seed", "must fit into 32 bits here: it is the generator's key");
    };
    let plan = RamPlan {
        designs: choose_presets(&DESIGNS, &options.designs)?,
        programs: programs.collect(),
        extent: options.extent,
        key,
        repeats: options.repeat.unwrap_or(5),
        loops: options.loops.unwrap_or(PEN_LOOPS),
    };
    match plan {
        RamPlan { repeats: 0, .. } => refuse("repeat", "must be at least 1"),
        RamPlan { loops: 0, .. } => refuse("loops", "must be at least 1"),
        RamPlan { loops, .. } if loops > 100 * PEN_LOOPS => {
            refuse("loops", "must be at most 100000")
        }
        plan => Ok(plan),
    }
}

fn settings(plan: &RamPlan) -> Settings {
    Settings {
        mode: Mode::Compare.name().to_owned(),
        seed: u64::from(plan.key),
        repeats: plan.repeats,
        loops: plan.loops,
        pages: 1,
        threads: 1,
        designs: plan.designs.iter().map(|design| design.name.to_owned()).collect(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests;
