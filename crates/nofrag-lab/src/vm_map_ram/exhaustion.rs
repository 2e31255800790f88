//! The first workload until no place is left, and the sizes that make blocks.
//!
//! Pen: on a small 32-bit system a purge comes soon, with the first allocation that fails, and takes the lost blocks;
//! in 45 bits of address space it comes so late that the run-away is a disaster. And: it is the largest size that makes
//! blocks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Instant;

use nofrag::event::{Event, EventSink, Function};
use nofrag::units::PageSize;
use nofrag::vmap::{BlockGeometry, BlockIndex, MapRamError, Preset, VmapPolicy, Wait};

use super::bench::{Bench, Counting, observe};
use super::catalogue::Program;
use super::counts::{measurement, with_geometry};
use super::workloads::Workload;
use super::{AFTER, BEFORE, OURS, PEN_LOOPS, RamPlan, Trouble, names};
use crate::key::{self, Counts, Key};
use crate::oracle::{Claims, Relation};
use crate::report::Report;
use crate::spaces::{Failure, VMALLOC_PAGES};
use crate::stats::Spread;

/// A space that is to be filled.
struct FilledSpace {
    name: &'static str,
    /// The space's name in the ids of claims.
    short: &'static str,
    word_bits: u32,
    pages: u64,
}

const PAGE: u64 = PageSize::KIB_4.bytes();

const FILLED_SPACES: [FilledSpace; 4] = [
    FilledSpace { name: "32-bit 128 MiB", short: "128M", word_bits: 32, pages: (128 << 20) / PAGE },
    FilledSpace { name: "64-bit 1 GiB", short: "1G", word_bits: 64, pages: (1 << 30) / PAGE },
    FilledSpace { name: "64-bit 4 GiB", short: "4G", word_bits: 64, pages: (4 << 30) / PAGE },
    FilledSpace { name: LARGEST, short: "16G", word_bits: 64, pages: (16 << 30) / PAGE },
];

/// The space from which the whole range of x86-64 is extrapolated.
pub(super) const LARGEST: &str = "64-bit 16 GiB";

/// Size of the whole range of x86-64, 45 bits, over that of [`LARGEST`].
pub(super) const TO_45_BITS: f64 = (1_u64 << 45) as f64 / (16_u64 << 30) as f64;

/// Number of times that the workload may fill a space before it counts as never full.
const FILLS: u64 = 3;

/// Number of times that one search is timed.
const SEARCHES: usize = 21;

pub(super) fn program_in(filled: &str) -> String {
    format!("{} {filled}", Program::Exhaustion.into_str())
}

/// Returns the names of the spaces that are filled.
pub(super) fn arenas() -> impl Iterator<Item = &'static str> {
    FILLED_SPACES.iter().map(|filled| filled.name)
}

/// Results of filling a space.
struct Found {
    loops: u64,
    first_failed: Option<u64>,
    purges: u64,
    ns_per_pair: f64,
    counts: Counts,
}

pub(super) fn run(plan: &RamPlan, report: &mut Report) -> Result<(), Trouble> {
    for filled in &FILLED_SPACES {
        for design in plan.designs_among(&[BEFORE, AFTER, OURS]) {
            let geometry = BlockGeometry::linux(filled.word_bits, PageSize::KIB_4, 1)
                .expect("the formulas hold for 32 and 64 bits");
            let policy = with_geometry(design.policy, geometry);
            for patience in patiences(design) {
                let patience = *patience;
                let name = named(design.name, patience);
                let found = use_up(policy, filled, patience).map_err(|why| (name.clone(), why))?;
                if patience == Wait::MayReclaim {
                    judge(design, filled, geometry, &found, report);
                }
                let program = program_in(filled.name);
                let Found { loops, ns_per_pair, counts, .. } = found;
                let times = vec![ns_per_pair];
                report.measurements.extend(measurement(&program, &name, loops, times, counts));
            }
        }
    }
    Ok(())
}

/// Returns the kinds of waiting under which a design's callers differ. Under Linux's rules there is only one: the
/// thread that unmaps drains.
fn patiences(design: &Preset) -> &'static [Wait] {
    match design.policy.blocks.index {
        BlockIndex::Direct => &[Wait::MayReclaim, Wait::Never],
        _ => &[Wait::MayReclaim],
    }
}

/// Returns the name of a row: callers that must not wait have rows of their own.
pub(super) fn named(design: &str, patience: Wait) -> String {
    match patience {
        Wait::MayReclaim => design.to_owned(),
        Wait::Never => format!("{design}, try"),
    }
}

/// Counts the requests for a block. A second one within one call means that the first found no place, and that all
/// stale space was purged in between.
#[derive(Debug, Default)]
struct Attempts(Cell<u64>);

impl EventSink for Attempts {
    fn record(&self, event: Event) {
        if event == Event::Entered(Function::AllocBlockArea) {
            self.0.set(self.0.get() + 1);
        }
    }
}

/// Tells whether a mapping was had at once, or after a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Had {
    AtOnce,
    AfterPurge,
}

/// Makes one mapping and its unmapping. A caller that must not wait asks again with leave to purge when it gets
/// nothing; otherwise its run would end.
fn pair<E: EventSink>(bench: &Bench<'_, E>, pages: u64, patience: Wait) -> Result<Had, Failure> {
    let (area, had) = match patience {
        Wait::MayReclaim => (bench.map(pages)?, Had::AtOnce),
        Wait::Never => match bench.space.try_map_ram(bench.cpu, pages, &()) {
            Ok(area) => (area, Had::AtOnce),
            Err(MapRamError::WouldBlock) => (bench.map(pages)?, Had::AfterPurge),
            Err(why) => return Err(why.into()),
        },
    };
    bench.unmap(area)?;
    Ok(had)
}

/// Runs the first workload as often as would fill the space [`FILLS`] times if every loop lost a block; then again in a
/// fresh space up to the first call that failed, to see the state of the blocks at that moment.
fn use_up(policy: VmapPolicy, filled: &FilledSpace, patience: Wait) -> Result<Found, Failure> {
    let geometry = policy.blocks.geometry;
    let sizes = Workload::W1.sizes(geometry, 1);
    let loops = FILLS * filled.pages / u64::from(geometry.slots());
    let (mapper, attempts) = (Counting::default(), Attempts::default());
    let bench = Bench::new(policy, filled.pages, &mapper, &attempts)?;
    let (mut calls, mut first_failed, mut purges) = (0_u64, None, 0_u64);
    let begin = Instant::now();
    for _ in 0..loops {
        for pages in &sizes {
            calls += 1;
            let before = attempts.0.get();
            let had = pair(&bench, u64::from(*pages), patience)?;
            if had == Had::AfterPurge || attempts.0.get() > before + 1 {
                purges += 1;
                first_failed.get_or_insert(calls);
            }
        }
    }
    let ns_per_pair = begin.elapsed().as_nanos() as f64 / calls as f64;

    let mapper = Counting::default();
    let bench = Bench::new(policy, filled.pages, &mapper, ())?;
    let until = first_failed.map_or(calls, |call| call - 1);
    let mut counts = state(&bench, &sizes, until, patience)?;
    let counted = [
        (names::FIRST_FAILED, first_failed.unwrap_or(0)),
        (names::FORCED_PURGES, purges),
        (names::CALLS, calls),
    ];
    counts.extend(key::counts(counted));
    Ok(Found { loops, first_failed, purges, ns_per_pair, counts })
}

/// Returns counts by name: the state of the blocks after `calls` calls, and the time of the next call if it may not
/// purge.
fn state(bench: &Bench<'_>, sizes: &[u16], calls: u64, patience: Wait) -> Result<Counts, Failure> {
    let mut next = sizes.iter().cycle().map(|pages| u64::from(*pages));
    for pages in next.by_ref().take(calls as usize) {
        pair(bench, pages, patience)?;
    }
    let stats = bench.space.block_stats();
    let held = stats.blocks * u64::from(bench.space.policy().blocks.geometry.slots()) * PAGE;
    let pages = next.next().expect("a cycle has no end");
    let mut searches = Vec::new();
    for _ in 0..SEARCHES {
        let begin = Instant::now();
        let mapped = bench.space.try_map_ram(bench.cpu, pages, &());
        searches.push(begin.elapsed().as_nanos() as f64);
        if let Ok(area) = mapped {
            bench.unmap(area)?;
        }
    }
    let search = Spread::of(searches).map_or(0.0, |spread| spread.median);
    let counts = [
        (names::HELD_BYTES, held.into()),
        (names::RECORD_BYTES, stats.metadata_bytes.into()),
        (names::LISTED, stats.listed_longest.into()),
        (names::SEARCH_NS, search.into()),
    ];
    Ok(counts.into())
}

fn judge(
    design: &Preset,
    filled: &FilledSpace,
    geometry: BlockGeometry,
    found: &Found,
    report: &mut Report,
) {
    let blocks = filled.pages / u64::from(geometry.slots());
    let (id, claim, measured, wanted) = if design.name == BEFORE {
        // Each loop loses a block, and the first call of a loop makes it.
        let first = found.first_failed.unwrap_or(0) as f64;
        ("first", "head insertion: the first call that fails", first, 126 * blocks + 1)
    } else {
        ("never", "no call fails, though three times the space is mapped", found.purges as f64, 0)
    };
    let id = format!("used-up-{id}-{}/{}", filled.short, design.name);
    let claim = format!("w1 in {}: {claim}", filled.name);
    report.oracles.exact(id, claim, measured, Relation::Equals(wanted as f64));
}

/// The bounds of sizes, in pages, with which the random workload is run.
pub(super) const LARGEST_SIZES: [u32; 2] = [64, 32];

pub(super) fn creators_program(largest: u32) -> String {
    format!("{} {largest}", Program::Creators.into_str())
}

/// Returns the name of the count of blocks that sizes up to `class` pages, and above the next smaller class, have made.
pub(super) fn made_by(class: u32) -> Key {
    Key::count("blocks made by sizes up to ").with(class)
}

/// Counts the blocks that each size makes in the random workload.
pub(super) fn creators(plan: &RamPlan, report: &mut Report) -> Result<(), Trouble> {
    for largest in LARGEST_SIZES {
        let geometry = BlockGeometry::new(1024, largest).expect("powers of two");
        let sizes = Workload::W2 { key: plan.key() }.sizes(geometry, PEN_LOOPS);
        for design in plan.designs_among(&[BEFORE, AFTER, OURS]) {
            let trouble = |why| (design.name.to_owned(), why);
            let policy = with_geometry(design.policy, geometry);
            let mapper = Counting::default();
            let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ()).map_err(trouble)?;
            let ns_per_pair = bench.pairs(&sizes).map_err(trouble)?;
            let mut counts = super::pairs::counted(&bench, sizes.len());
            let mut made_by_class = BTreeMap::<Key, u64>::new();
            let observed = observe(policy, VMALLOC_PAGES, &sizes).map_err(trouble)?;
            for (size, made) in observed.creators.iter().enumerate().skip(1) {
                let class = (size as u32).next_power_of_two();
                *made_by_class.entry(made_by(class)).or_default() += *made;
            }
            if design.policy.blocks.index != BlockIndex::Direct {
                let share = made_by_class[&made_by(largest)] as f64 / counts[&names::CREATED].get();
                let claim = format!(
                    "w2 up to {largest} pages: share of the blocks that sizes above {} make",
                    largest / 2
                );
                let id = format!("creators-{largest}/{}", design.name);
                report.oracles.exact(id, claim, share, Relation::AtLeast(0.5));
            }
            counts.extend(key::counts(made_by_class));
            report.measurements.extend(measurement(
                &creators_program(largest),
                design.name,
                PEN_LOOPS,
                vec![ns_per_pair],
                counts,
            ));
        }
    }
    Ok(())
}
