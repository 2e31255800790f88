//! Mode `compare`: every program alone in a fresh space, designs turn by turn.

use std::sync::Barrier;
use std::thread;

use nofrag::ranges::Index;
use nofrag::vmap::{LazyStore, Preset, VmapStats};

use super::catalogue::{Search, Spec, Width};
use super::names;
use super::worker::{Counts, Detail, ProgramSample, RunSize, Worker};
use crate::key::{self, Key};
use crate::plan::Plan;
use crate::random::Random;
use crate::report::Measurement;
use crate::scenario::{Progress, RunError};
use crate::spaces::{Failure, new_space};
use crate::stats::{Spread, Tail};
use crate::usage;

/// Extent of a comparison of areas.
pub(super) type AreasPlan = Plan<Preset, &'static Spec>;

/// Emulated CPUs of the space of a single-threaded program; fixed, so that counts are the same on every machine.
pub(super) const EMULATED_CPUS: usize = 2;

pub(super) struct Compared {
    pub(super) measurements: Vec<Measurement>,
    /// Single-threaded rows whose repetitions, which use the same seed, gave different counts.
    pub(super) unstable: Vec<String>,
}

/// The samples of one program under one design.
#[derive(Default)]
struct AreaRow {
    times: Vec<f64>,
    tail: Option<Tail>,
    first: Option<ProgramSample>,
    unstable: bool,
}

pub(super) fn take_turns(plan: &AreasPlan, progress: &dyn Progress) -> Result<Compared, RunError> {
    // The last pass is for tails alone.
    let passes = (plan.repeats + 1, progress);
    let name = |pass, spec: &&'static Spec, design: &Preset| {
        let takes_part = pass < plan.repeats || spec.times_each_loop();
        takes_part.then_some([spec.info.name, design.name])
    };
    let rows = plan.take_turns(passes, name, |pass, spec, design, row: &mut AreaRow| {
        let detail = if pass == plan.repeats { Detail::EachLoop } else { Detail::Totals };
        row.add(run_cell(plan, spec, design, detail)?, detail);
        Ok::<(), Failure>(())
    })?;
    let mut compared = Compared { measurements: Vec::new(), unstable: Vec::new() };
    for (spec, design, row) in rows {
        if row.unstable && spec.width == Width::Single {
            compared.unstable.push(format!("{}/{}", spec.info.name, design.name));
        }
        compared.measurements.extend(row.measurement(plan, spec, design));
    }
    Ok(compared)
}

impl AreaRow {
    fn add(&mut self, sample: ProgramSample, detail: Detail) {
        if detail == Detail::EachLoop {
            self.tail = sample.latencies.tail();
        } else {
            self.times.push(sample.elapsed_ns / sample.operations.max(1) as f64);
        }
        match &self.first {
            Some(first) => self.unstable |= first.counts != sample.counts,
            None => self.first = Some(sample),
        }
    }

    fn measurement(self, plan: &AreasPlan, spec: &Spec, design: &Preset) -> Option<Measurement> {
        let sample = self.first?;
        let mut counts = sample.extra;
        counted(&mut counts, &sample.counts, sample.operations.max(1));
        if spec.width == Width::Single {
            counts.extend(objects(&sample.at_end, design));
        }
        Some(Measurement {
            tail: self.tail,
            counts,
            ..Measurement::new(
                spec.info.name,
                design.name,
                spec.loops(plan.loops, search_of(design), plan.extent),
                "ns per loop",
                Spread::of(self.times)?,
            )
        })
    }
}

/// Notes the engine's counts. A share or mean without a denominator is left out.
fn counted(figures: &mut key::Counts, counts: &Counts, operations: u64) {
    figures.insert(Key::count("operations"), operations.into());
    figures.insert(Key::count("searches"), counts.searches.into());
    let operations = operations as f64;
    let mut note = |key, value: f64| _ = figures.insert(key, value.into());
    note(names::STEPS_PER_LOOP, counts.steps as f64 / operations);
    if counts.searches > 0 {
        note(names::STEPS_PER_SEARCH, counts.steps as f64 / counts.searches as f64);
    }
    let fits: u64 = counts.fits.iter().sum();
    if fits > 0 {
        for (name, fit) in names::FITS.into_iter().zip(counts.fits) {
            note(name, fit as f64 / fits as f64);
        }
    }
    if counts.allocs > 0 {
        note(names::POOL_SHARE, counts.pool_hits as f64 / counts.allocs as f64);
    }
    note(names::LOCKED_PER_LOOP, counts.locked as f64 / operations);
    note(names::CONFLICTS_PER_LOOP, counts.conflicts as f64 / operations);
    note(Key::number("areas purged per loop"), counts.purged_areas as f64 / operations);
}

/// Returns the number of objects that the design keeps when the loops end: free areas, or the objects that its search
/// for holes must know instead.
fn objects(stats: &VmapStats, design: &Preset) -> key::Counts {
    let lazy_too = design.policy.lazy == LazyStore::InBusyIndex;
    let busy = stats.busy_areas + if lazy_too { stats.lazy_areas } else { 0 };
    key::Counts::from([
        (names::FREE_OBJECTS, stats.holes.into()),
        (names::BUSY_OBJECTS, busy.into()),
        (Key::count("lazy areas at end"), stats.lazy_areas.into()),
        (Key::count("pooled areas at end"), stats.pooled_areas.into()),
    ])
}

pub(super) fn search_of(design: &Preset) -> Search {
    match design.policy.index {
        Index::CachedScan => Search::Scans,
        _ => Search::Descends,
    }
}

/// Runs one program under one design in a fresh space.
fn run_cell(
    plan: &AreasPlan,
    spec: &Spec,
    design: &Preset,
    detail: Detail,
) -> Result<ProgramSample, Failure> {
    let threads = if spec.width == Width::Parallel { plan.threads } else { 1 };
    let cpus = threads.max(EMULATED_CPUS);
    let loops = spec.loops(plan.loops, search_of(design), plan.extent);
    let size = RunSize { loops, pages: plan.pages, cpus, threads };
    if spec.width == Width::Parallel {
        return run_together(plan, spec, design, size);
    }
    let space = new_space(design.policy, spec.space_pages(), cpus)?;
    let random = Random::new(plan.seed, spec.info.bit);
    let mut worker = Worker::new(&space, 0, size, random, ()).detail(detail);
    spec.program.run(&mut worker)?;
    Ok(worker.sample)
}

/// Runs a program on all threads at once in one space. The time is that of one thread's loops, as the mean over the
/// threads.
fn run_together(
    plan: &AreasPlan,
    spec: &Spec,
    design: &Preset,
    size: RunSize,
) -> Result<ProgramSample, Failure> {
    let space = new_space(design.policy, spec.space_pages(), size.cpus)?;
    let barrier = Barrier::new(size.threads + 1);
    let (space, barrier) = (&space, &barrier);
    thread::scope(|scope| {
        let run = move |thread: usize| {
            usage::pin_to(thread);
            let stream = spec.info.bit ^ ((thread as u64 + 1) << 56);
            let random = Random::new(plan.seed, stream);
            let worker = Worker::new(space, thread, size, random, ());
            let mut worker = worker.detail(Detail::Elapsed).together(barrier);
            spec.program.run(&mut worker).map(|()| worker.sample)
        };
        let threads: Vec<_> = (0..size.threads).map(|i| scope.spawn(move || run(i))).collect();
        let counted_between_meetings = || {
            barrier.wait();
            let counts = Counts::of(&space.counters());
            barrier.wait();
            counts
        };
        let before = counted_between_meetings();
        let after = counted_between_meetings();
        let mut total = ProgramSample { counts: after.since(before), ..ProgramSample::default() };
        for thread in threads {
            let sample = thread.join().expect("a worker returns its failures")?;
            total.elapsed_ns += sample.elapsed_ns;
            total.operations += sample.operations;
        }
        Ok(total)
    })
}
