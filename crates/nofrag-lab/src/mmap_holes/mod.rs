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

use std::sync::LazyLock;

use nofrag::mmap::Placement;

use self::turns::{HolesPlan, PUBLISHED_LOOPS};
use crate::figures;
use crate::plan::{Plan, Usual};
use crate::report::{Report, Settings};
use crate::scenario::{Declaration, Options, Progress, RunError, Scenario, Special};
use nofrag_show::cpus;

/// The scenario on the placement of mappings and the holes that it leaves.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: present::sections,
    special: Special {
        design_of: Some(|name| Placement::preset(name).ok().map(|preset| preset.name)),
        ..Special::NONE
    },
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = Settings { designs: plan.rows(), ..plan.settings(options.mode, |it| it.name) };
    let document = figures::wander_2005().document;
    let mut report = Report { document, ..SCENARIO.report(settings) };
    report.measurements = turns::take_turns(&plan, progress)?;
    claims::judge(&plan, &mut report);
    present::compare_published(&mut report);
    present::take_notes(&plan, &mut report);
    Ok(report)
}

fn plan(options: &Options) -> Result<HolesPlan, RunError> {
    let named = |name| Placement::preset(name).expect("the scenario compares presets");
    let designs = SCENARIO.choose_designs(options)?.into_iter().map(named).collect();
    let usual = Usual {
        seed: 0,
        repeats: 5,
        loops: Some((PUBLISHED_LOOPS, 1..=100 * PUBLISHED_LOOPS, "")),
        threads: Some((cpus() as u64, 1..=1024, ": so many programs run at a time")),
        ..Usual::ONCE
    };
    Plan::of(options, designs, SCENARIO.choose(options)?, usual)
}

#[cfg(test)]
mod tests;
