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
use self::turns::Samples;
use crate::contest::{Board, Effort, Entry, Named, Outcome, interleave, shielded};
use crate::record::{Group, Measure, Record, Records};

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

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait PageContestant: Named {
    /// Checks the contestant against a map of frames.
    fn verify(&self, seed: u64) -> Outcome<Samples>;

    /// Times one page allocated and freed, again and again.
    fn repeat(&self, plan: &PagesPlan, effort: &Effort) -> Outcome<Samples>;

    /// Times many blocks taken, then all freed.
    fn bulk(&self, plan: &PagesPlan, effort: &Effort) -> Outcome<Samples>;

    /// Times blocks replaced at random.
    fn random(&self, plan: &PagesPlan, effort: &Effort) -> Outcome<Samples>;

    /// Counts the whole pageblocks that remain.
    fn frag(&self, seed: u64) -> Outcome<Samples>;

    /// Counts the bytes of records.
    fn footprint(&self, plan: &PagesPlan) -> Outcome<Samples>;
}

impl<S: PageSource, M: Fn(u32) -> S> PageContestant for Entry<M> {
    fn verify(&self, seed: u64) -> Outcome<Samples> {
        shielded(|| verify::run(&self.make, seed))
    }

    fn repeat(&self, plan: &PagesPlan, effort: &Effort) -> Outcome<Samples> {
        shielded(|| turns::repeat(&self.make, plan, effort))
    }

    fn bulk(&self, plan: &PagesPlan, effort: &Effort) -> Outcome<Samples> {
        shielded(|| turns::bulk(&self.make, plan, effort))
    }

    fn random(&self, plan: &PagesPlan, effort: &Effort) -> Outcome<Samples> {
        shielded(|| turns::random(&self.make, plan, effort))
    }

    fn frag(&self, seed: u64) -> Outcome<Samples> {
        shielded(|| turns::frag(&self.make, seed))
    }

    fn footprint(&self, plan: &PagesPlan) -> Outcome<Samples> {
        shielded(|| turns::footprint(&self.make, plan))
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

/// The name of the workload of [`PageContestant::repeat`].
pub const REPEAT: &str = "repeat: one page taken and freed, three quarters of 4 GiB in use";

/// The name of the workload of [`PageContestant::frag`].
pub const FRAG: &str = "frag test, 4 GiB: filled, half freed, a tenth replaced 99 times";

/// The name of the workload of [`PageContestant::footprint`].
pub const FOOTPRINT: &str = "bytes of records for each GiB: all free; pages in use at random";

/// Returns the name of the workload of [`PageContestant::bulk`].
#[must_use]
pub fn bulk_workload(blocks: Blocks) -> String {
    format!("bulk: three quarters of 4 GiB taken, then freed, {}", blocks.name())
}

/// Returns the name of the workload of [`PageContestant::random`].
#[must_use]
pub fn random_workload(blocks: Blocks) -> String {
    format!("random: blocks replaced in 4 GiB, {}", blocks.name())
}

/// Runs all workloads on page frames.
pub fn run(records: &mut Records, effort: &Effort, seed: u64, progress: &dyn Fn(&str)) {
    let mut all = contestants();
    let board = Board::new(records, Group::Pages, verify::WORKLOAD, &all);
    interleave(board, &all, 1, effort, progress, |who, _| who.verify(seed));
    all.retain(|who| !records.samples(verify::WORKLOAD, who.name(), Measure::Disjoint).is_empty());
    // Filling memory is not timed, and takes its time in every round.
    let workload = effort.workload + effort.setup * effort.rounds as u32;
    let timed = &Effort { workload, ..*effort };
    let plan = PagesPlan::new(seed, Blocks::Pages, FRAMES, effort);
    let board = Board::new(records, Group::Pages, REPEAT, &all);
    interleave(board, &all, effort.rounds, timed, progress, |who, _| who.repeat(&plan, timed));
    records.add_ratios(REPEAT, Measure::NsPerOp, OURS, Measure::OverPages);
    for blocks in Blocks::ALL {
        let plan = PagesPlan::new(seed, blocks, FRAMES, effort);
        let name = bulk_workload(blocks);
        let board = Board::new(records, Group::Pages, name.clone(), &all);
        interleave(board, &all, effort.rounds, timed, progress, |who, _| who.bulk(&plan, timed));
        records.add_ratios(&name, Measure::AllocNs, OURS, Measure::AllocOverPages);
        records.add_ratios(&name, Measure::FreeNs, OURS, Measure::FreeOverPages);
        let name = random_workload(blocks);
        let board = Board::new(records, Group::Pages, name.clone(), &all);
        interleave(board, &all, effort.rounds, timed, progress, |who, _| who.random(&plan, timed));
        records.add_ratios(&name, Measure::NsPerOp, OURS, Measure::OverPages);
    }
    let untimed = &Effort { workload: turns::UNTIMED * effort.seeds as u32, ..*effort };
    let board = Board::new(records, Group::Pages, FRAG, &all);
    let frag =
        |who: &(dyn PageContestant + 'static), round| who.frag(seed.wrapping_add(round as u64));
    interleave(board, &all, effort.seeds, untimed, progress, frag);
    note_published(records);
    let board = Board::new(records, Group::Pages, FOOTPRINT, &all);
    interleave(board, &all, 1, untimed, progress, |who, _| who.footprint(&plan));
}

/// Adds the published shares of whole pageblocks.
fn note_published(records: &mut Records) {
    for (name, middle, end) in PUBLISHED {
        let shares = [(Measure::WholeMiddle, middle), (Measure::WholeEnd, Some(end))];
        let known = shares.into_iter().filter_map(|(measure, share)| Some((measure, share?)));
        records.0.extend(known.map(|(measure, share)| Record {
            group: Group::Pages,
            workload: FRAG.to_owned(),
            contestant: name.to_owned(),
            measure: Some(measure),
            samples: vec![share],
            note: Some("not measured here".to_owned()),
        }));
    }
}
