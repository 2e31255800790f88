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

use std::sync::LazyLock;

use nofrag::vmap::Preset;

use self::catalogue::Program;
use crate::figures;
use crate::plan::{Plan, Usual, bounded};
use crate::report::Report;
use crate::scenario::{
    Declaration, Options, Progress, RunError, Scenario, Special, choose_presets, vmap_preset,
};
use crate::spaces::Failure;

/// The designs before and after the document.
const BEFORE: &str = "linux-3.19";
const AFTER: &str = "linux-4.1";
const OURS: &str = "nofrag";

/// Number of loops of Pen's workloads for which the published counts hold.
const PEN_LOOPS: u64 = 1000;

/// Extent of a run of the programs.
type RamPlan = Plan<Preset, Program>;

impl RamPlan {
    /// Returns the key of the random workload, which is also the seed of all other random numbers.
    fn key(&self) -> u32 {
        self.seed as u32
    }

    /// Returns the designs of the plan that are among `names`.
    fn designs_among<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Preset> {
        self.designs.iter().filter(move |design| names.contains(&design.name))
    }
}

/// The scenario on blocks of small mappings and their exhaustion.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: present::sections,
    special: Special { design_of: Some(vmap_preset), ..Special::NONE },
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = plan.settings(options.mode, |design| design.name);
    let document = figures::pen_2015().document;
    let mut report = Report { document, ..SCENARIO.report(settings) };
    progress.begin(pairs::steps(&plan) + plan.programs.len() as u64);
    pairs::run(&plan, &mut report, progress)?;
    pairs::judge(&plan, &mut report);
    pairs::compare_published(&mut report);
    for program in &plan.programs {
        progress.step(program.into_str());
        run_program(*program, &plan, &mut report)
            .map_err(|(design, failure)| RunError::engine(&design, program.into_str(), failure))?;
    }
    progress.end();
    present::take_notes(&plan, &mut report);
    Ok(report)
}

/// The name of a design, and the reason why it failed.
type Trouble = (String, Failure);

/// Runs a program besides the three workloads.
fn run_program(program: Program, plan: &RamPlan, report: &mut Report) -> Result<(), Trouble> {
    type Run = fn(&RamPlan, &Preset, &mut Report) -> Result<(), Failure>;
    let (designs, run): (&[&str], Run) = match program {
        Program::W1 | Program::W2 | Program::W3 => return Ok(()),
        Program::Keys => return counts::keys(plan, report),
        Program::Exhaustion => return exhaustion::run(plan, report),
        Program::Creators => return exhaustion::creators(plan, report),
        Program::Lifetimes => return lifetimes::run(plan, report),
        Program::OtherBits => (&[BEFORE, AFTER, OURS], counts::other_bits),
        Program::Rounding => (&[AFTER, OURS], rounding::run),
        Program::Aliases => (&["linux-6.11", OURS], aliases::run),
    };
    for design in plan.designs_among(designs) {
        run(plan, design, report).map_err(|why| (design.name.to_owned(), why))?;
    }
    Ok(())
}

fn plan(options: &Options) -> Result<RamPlan, RunError> {
    bounded("seed", options.seed, (0, 0..=u32::MAX.into(), ": it is the generator's key"))?;
    let usual = Usual {
        seed: 0,
        repeats: 5,
        loops: Some((PEN_LOOPS, 1..=100 * PEN_LOOPS, "")),
        ..Usual::ONCE
    };
    let designs = choose_presets(&SCENARIO.designs, &options.designs)?;
    Plan::of(options, designs, SCENARIO.choose(options)?, usual)
}

#[cfg(test)]
mod tests;
