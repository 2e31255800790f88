//! Page frames: blocks of `2^order` pages, at multiples of their size.
//!
//! nofrag's `PageAllocator` under its own policy and as Linux of several versions, against published crates that hand
//! out aligned blocks of frames, and against what one writes ([`sources`]). Everyone performs the same operations on 4
//! GiB ([`plan`], [`turns`]) in interleaved rounds, each from a fresh allocator, after a check against a map of frames
//! ([`verify`]):
//!
//! * one page allocated and freed, again and again; many allocated, then all freed; blocks replaced at random;
//! * the frag test of LLFree's benchmark, which asks how many whole pageblocks remain;
//! * bytes of records per GiB.
//!
//! nofrag counts events, keeps types apart and has watermarks to look at; the others do not. Figures that LLFree's
//! authors published have rows of their own ([`PUBLISHED`]); the crate itself is not in the registry.

pub mod plan;
pub mod sources;
pub mod turns;
pub mod verify;

use self::plan::{Blocks, PagesPlan};
use self::sources::{PageSource, Pages};
use crate::contest::{Effort, Entry, Named, Outcome, Run, shielded};
use crate::record::{Group, Measure};

pub const OURS: &str = "nofrag";
/// nofrag by the rules of Linux before the series of 2018.
pub const VANILLA: &str = "nofrag as linux-4.20";
/// nofrag by the rules of the newest Linux.
pub const NEWEST: &str = "nofrag as linux-7.2";
/// nofrag by the rules of the newest Linux with `vm.defrag_mode`.
pub const DEFRAG: &str = "nofrag as linux-7.2-defrag";

/// Frames of memory: 4 GiB.
pub const FRAMES: u32 = 1 << 20;

/// Whole pageblocks of a hundred at steps 50 and 99 of the frag test, as published: 128 GiB, 8 CPUs, another machine.
pub const PUBLISHED: [(&str, Option<f64>, f64); 2] = [
    ("(published: Linux's buddy, 128 GiB)", None, 0.14),
    ("(published: LLFree, 128 GiB)", Some(15.2), 46.6),
];

/// A turn of a contestant.
#[derive(Clone, Copy, Debug)]
pub enum PageTurn<'a> {
    /// Is checked against a map of frames.
    Verify { seed: u64 },
    /// One page allocated and freed, again and again, is timed.
    Repeat(&'a PagesPlan, &'a Effort),
    /// Many blocks taken, then all freed, are timed.
    Bulk(&'a PagesPlan, &'a Effort),
    /// Blocks replaced at random are timed.
    Random(&'a PagesPlan, &'a Effort),
    /// The whole pageblocks that remain are counted.
    Frag { seed: u64 },
    /// The bytes of records are counted.
    Footprint(&'a PagesPlan),
}

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait PageContestant: Named {
    /// Takes a turn.
    fn turn(&self, turn: PageTurn<'_>) -> Outcome;
}

impl<S: PageSource, M: Fn(u32) -> S> PageContestant for Entry<M> {
    fn turn(&self, turn: PageTurn<'_>) -> Outcome {
        let make = &self.make;
        shielded(|| match turn {
            PageTurn::Verify { seed } => verify::run(make, seed),
            PageTurn::Repeat(plan, effort) => turns::repeat(make, plan, effort),
            PageTurn::Bulk(plan, effort) => turns::bulk(make, plan, effort),
            PageTurn::Random(plan, effort) => turns::random(make, plan, effort),
            PageTurn::Frag { seed } => turns::frag(make, seed),
            PageTurn::Footprint(plan) => turns::footprint(make, plan),
        })
    }
}

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn PageContestant>> {
    let under = |preset: &'static str| move |frames| Pages::new(preset, frames);
    vec![
        Box::new(Entry::new(OURS, under("nofrag"))),
        Box::new(Entry::new(VANILLA, under("linux-4.20"))),
        Box::new(Entry::new(NEWEST, under("linux-7.2"))),
        Box::new(Entry::new(DEFRAG, under("linux-7.2-defrag"))),
        Box::new(Entry::new("buddy_system_allocator 0.13.0", sources::buddy)),
        Box::new(Entry::new("bitmap-allocator 0.4.6", sources::bitmap)),
        Box::new(Entry::new("free-list 0.3.4", sources::free_list)),
        Box::new(Entry::new("nofrag's ranges, Lowest", sources::lowest)),
        Box::new(Entry::new("BTreeMap first fit", sources::first_fit)),
    ]
}

/// The name of the workload of [`PageTurn::Repeat`].
pub const REPEAT: &str = "repeat: one page taken and freed, three quarters of 4 GiB in use";

/// The name of the workload of [`PageTurn::Frag`].
pub const FRAG: &str = "frag test, 4 GiB: filled, half freed, a tenth replaced 99 times";

/// The name of the workload of [`PageTurn::Footprint`].
pub const FOOTPRINT: &str = "bytes of records for each GiB: all free; pages in use at random";

/// Returns the name of the workload of [`PageTurn::Bulk`].
#[must_use]
pub fn bulk_workload(blocks: Blocks) -> String {
    format!("bulk: three quarters of 4 GiB taken, then freed, {}", blocks.name())
}

/// Returns the name of the workload of [`PageTurn::Random`].
#[must_use]
pub fn random_workload(blocks: Blocks) -> String {
    format!("random: blocks replaced in 4 GiB, {}", blocks.name())
}

/// Runs all workloads on page frames.
pub fn run(run: &mut Run<'_>) {
    let (seed, effort) = (run.seed, run.effort);
    let mut all = contestants();
    run.contest((Group::Pages, verify::WORKLOAD), &all, (1, effort.workload), |who, _| {
        who.turn(PageTurn::Verify { seed })
    });
    all.retain(|who| run.records.is_right(verify::WORKLOAD, who.name()));
    // Filling memory is not timed, and takes its time in every round.
    let timed = (effort.rounds, effort.workload + effort.setup * effort.rounds as u32);
    let plan = PagesPlan::new(seed, Blocks::Pages, FRAMES, &effort);
    run.contest((Group::Pages, REPEAT), &all, timed, |who, _| {
        who.turn(PageTurn::Repeat(&plan, &effort))
    });
    run.records.add_ratios(REPEAT, Measure::NsPerOp, OURS, Measure::OverPages);
    for blocks in Blocks::ALL {
        let plan = PagesPlan::new(seed, blocks, FRAMES, &effort);
        let name = bulk_workload(blocks);
        run.contest((Group::Pages, &name), &all, timed, |who, _| {
            who.turn(PageTurn::Bulk(&plan, &effort))
        });
        run.records.add_ratios(&name, Measure::AllocNs, OURS, Measure::AllocOverPages);
        run.records.add_ratios(&name, Measure::FreeNs, OURS, Measure::FreeOverPages);
        let name = random_workload(blocks);
        run.contest((Group::Pages, &name), &all, timed, |who, _| {
            who.turn(PageTurn::Random(&plan, &effort))
        });
        run.records.add_ratios(&name, Measure::NsPerOp, OURS, Measure::OverPages);
    }
    let untimed = turns::UNTIMED * effort.seeds as u32;
    run.contest((Group::Pages, FRAG), &all, (effort.seeds, untimed), |who, round| {
        who.turn(PageTurn::Frag { seed: seed.wrapping_add(round as u64) })
    });
    note_published(run);
    run.contest((Group::Pages, FOOTPRINT), &all, (1, untimed), |who, _| {
        who.turn(PageTurn::Footprint(&plan))
    });
}

/// Adds the published shares of whole pageblocks.
fn note_published(run: &mut Run<'_>) {
    for (name, middle, end) in PUBLISHED {
        for (measure, share) in [(Measure::WholeMiddle, middle), (Measure::WholeEnd, Some(end))] {
            if let Some(share) = share {
                let samples = (measure, vec![share]);
                run.add((Group::Pages, FRAG), name, samples, Some("not measured here"));
            }
        }
    }
}
