//! Mappings of mixed lifetimes: the address space that one long-lived mapping pins.
//!
//! Each mapping is one page; every n-th one lives to the end, the others are unmapped at once. Without recycling a
//! block with one live slot is kept whole. The cost of that was never published; docs/sources/vmap.md#lifetimes has a
//! model.

use std::time::Instant;

use nofrag::vmap::{BlockIndex, Preset};

use super::bench::{Bench, Counting};
use super::catalogue::Program;
use super::counts::measurement;
use super::{AFTER, OURS, RamPlan, Trouble, names};
use crate::figures;
use crate::key::Key;
use crate::oracle::{Claims, Relation};
use crate::random::Random;
use crate::report::{Measurement, Report};
use crate::scenario::Extent;
use crate::spaces::{Failure, VMALLOC_PAGES};

/// Number of mappings that live to the end.
const LIVE: u64 = 5_000;

/// Shares of the mappings that live to the end, as one in this number.
pub(super) const ONE_IN: [u64; 7] = [1, 2, 10, 100, 256, 1024, 4096];

/// The rarest long-lived mapping of a default run, as one in this number: above it a run maps twenty million times.
const RAREST_IN_SUBSET: u64 = 1024;

/// Ours must pin no more pages than this for one live page (docs/sources/vmap.md#recycled-slots), and flush no more
/// often than once for this many freed ones.
const MOST_PINNED: f64 = 2.0;
const PAGES_PER_FLUSH: u64 = 1024;

pub(super) fn program_of(one_in: u64) -> String {
    format!("{} 1/{one_in}", Program::Lifetimes.into_str())
}

/// Returns the simulated row of a share.
pub(super) fn simulated(simulated: &Report, one_in: u64) -> Option<&Measurement> {
    simulated.measurement(Program::Lifetimes.into_str(), &one_in.to_string())
}

pub(super) fn run(plan: &RamPlan, report: &mut Report) -> Result<(), Trouble> {
    let due = |one_in: &u64| plan.extent == Extent::Full || *one_in <= RAREST_IN_SUBSET;
    for one_in in ONE_IN.into_iter().filter(due) {
        for design in plan.designs_among(&[AFTER, OURS]) {
            run_one(plan, design, one_in, report).map_err(|why| (design.name.to_owned(), why))?;
        }
    }
    Ok(())
}

fn run_one(
    plan: &RamPlan,
    design: &Preset,
    one_in: u64,
    report: &mut Report,
) -> Result<(), Failure> {
    let mapper = Counting::default();
    let bench = Bench::new(design.policy, VMALLOC_PAGES, &mapper, ())?;
    let mut random = Random::new(u64::from(plan.key()), one_in);
    let (mut live, mut maps) = (0, 0_u64);
    let begin = Instant::now();
    while live < LIVE {
        let area = bench.map(1)?;
        maps += 1;
        if random.between(1, one_in) == 1 {
            live += 1;
        } else {
            bench.unmap(area)?;
        }
    }
    let ns_per_pair = begin.elapsed().as_nanos() as f64 / maps as f64;

    let stats = bench.space.block_stats();
    let held = stats.blocks * u64::from(design.policy.blocks.geometry.slots());
    let pinned = held as f64 / live as f64;
    let (freed, flushes) = (maps - live, bench.flushes());
    let counts = [
        (names::PINNED, pinned.into()),
        (Key::count("mappings"), maps.into()),
        (Key::count("flushes"), flushes.into()),
        (names::FLUSHES_PER_MILLION, (1e6 * flushes as f64 / maps as f64).into()),
    ];
    judge(design, one_in, pinned, (freed, flushes), report);
    let program = program_of(one_in);
    let times = vec![ns_per_pair];
    report.measurements.extend(measurement(&program, design.name, maps, times, counts.into()));
    Ok(())
}

fn judge(
    design: &Preset,
    one_in: u64,
    pinned: f64,
    (freed, flushes): (u64, u64),
    report: &mut Report,
) {
    let name = design.name;
    if design.policy.blocks.index == BlockIndex::Direct {
        let claim =
            format!("1 of {one_in} mappings lives long: pages that ours pins per live page");
        let id = format!("pinned-{one_in}/{name}");
        report.oracles.exact(id, claim, pinned, Relation::AtMost(MOST_PINNED));
        let claim =
            format!("1 of {one_in}: flushes beyond one for each {PAGES_PER_FLUSH} pages freed");
        let beyond = flushes.saturating_sub(freed / PAGES_PER_FLUSH) as f64;
        report.oracles.exact(format!("flushes-{one_in}/{name}"), claim, beyond, Relation::NONE);
    } else {
        let there = figures::pen_2015().simulated();
        let row = simulated(&there, one_in).expect("the figures have every share");
        let formula = row.count(names::PINNED_BY_FORMULA).expect("each row has it");
        let claim = format!(
            "1 of {one_in} mappings lives long: pages pinned per live page over the closed form, {formula}"
        );
        let (id, near) = (format!("pinned-{one_in}/{name}"), Relation::Between(0.97, 1.03));
        report.oracles.ratio(id, claim, pinned / formula, near);
    }
}
