//! Mode `compare`: every program alone in a fresh space, designs turn by turn.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

use nofrag::ranges::Index;
use nofrag::vmap::{LazyStore, Preset, VmapStats};

use super::catalogue::{Search, Spec, Tails, Width};
use super::names;
use super::worker::{Counts, Detail, Failure, ProgramSample, RunSize, Worker, new_space};
use crate::random::Random;
use crate::report::Measurement;
use crate::scenario::{Extent, Progress, RunError, turn};
use crate::stats::{Spread, Tail};
use crate::usage;

/// Extent of a comparison of areas.
#[derive(Clone, Debug)]
pub(super) struct AreasPlan {
    pub(super) designs: Vec<Preset>,
    pub(super) specs: Vec<&'static Spec>,
    pub(super) extent: Extent,
    pub(super) seed: u64,
    pub(super) repeats: usize,
    pub(super) loops: u64,
    pub(super) pages: u64,
    pub(super) threads: usize,
}

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
    let mut rows: BTreeMap<(usize, &str), AreaRow> = BTreeMap::new();
    let tails = plan.specs.iter().filter(|spec| spec.tails == Tails::Shown).count();
    progress.begin(((plan.specs.len() * plan.repeats + tails) * plan.designs.len()) as u64);
    for repetition in 0..=plan.repeats {
        let extra = repetition == plan.repeats;
        let wanted = |spec: &Spec| !extra || spec.tails == Tails::Shown;
        for (at, spec) in plan.specs.iter().enumerate().filter(|(_, spec)| wanted(spec)) {
            for design in turn(&plan.designs, repetition) {
                progress.step(&format!("{} under {}", spec.info.name, design.name));
                let detail = if extra { Detail::EachLoop } else { Detail::Totals };
                let sample = run_cell(plan, spec, &design, detail).map_err(|failure| {
                    let (design, program) = (design.name.to_owned(), spec.info.name.to_owned());
                    RunError::Engine { design, program, why: failure.to_string() }
                })?;
                rows.entry((at, design.name)).or_default().add(sample, detail);
            }
        }
    }
    progress.end();
    Ok(gather(plan, rows))
}

/// Turns the rows into measurements, by program and then by design.
fn gather(plan: &AreasPlan, mut rows: BTreeMap<(usize, &str), AreaRow>) -> Compared {
    let mut compared = Compared { measurements: Vec::new(), unstable: Vec::new() };
    for (at, spec) in plan.specs.iter().enumerate() {
        for design in &plan.designs {
            let Some(row) = rows.remove(&(at, design.name)) else { continue };
            if row.unstable && spec.width == Width::Single {
                compared.unstable.push(format!("{}/{}", spec.info.name, design.name));
            }
            compared.measurements.extend(row.measurement(plan, spec, design));
        }
    }
    compared
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
        let operations = sample.operations.max(1) as f64;
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        let mut note = |name: &str, value: f64| {
            counts.insert(name.to_owned(), value);
        };
        counted(&mut note, &sample.counts, operations);
        if spec.width == Width::Single {
            objects(&mut note, &sample.at_end, design);
        }
        for (name, value) in &sample.extra {
            note(name, *value);
        }
        Some(Measurement {
            tail: self.tail,
            counts,
            ..Measurement::new(
                spec.info.name,
                design.name,
                spec.loops(plan.loops, search_of(design), plan.extent),
                names::NS_PER_LOOP,
                Spread::of(self.times)?,
            )
        })
    }
}

/// Notes the engine's counts. A share or mean without a denominator is left out.
fn counted(note: &mut impl FnMut(&str, f64), counts: &Counts, operations: f64) {
    note(names::OPERATIONS, operations);
    note(names::SEARCHES, counts.searches as f64);
    note(names::STEPS_PER_LOOP, counts.steps as f64 / operations);
    if counts.searches > 0 {
        note(names::STEPS_PER_SEARCH, counts.steps as f64 / counts.searches as f64);
    }
    let fits: u64 = counts.fits.iter().sum();
    if fits > 0 {
        for (name, fit) in names::FITS.iter().zip(counts.fits) {
            note(name, fit as f64 / fits as f64);
        }
    }
    if counts.allocs > 0 {
        note(names::POOL_SHARE, counts.pool_hits as f64 / counts.allocs as f64);
    }
    note(names::LOCKED_PER_LOOP, counts.locked as f64 / operations);
    note(names::CONFLICTS_PER_LOOP, counts.conflicts as f64 / operations);
    note(names::PURGED_PER_LOOP, counts.purged_areas as f64 / operations);
}

/// Notes the number of objects that the design keeps when the loops end: free areas, or the objects that its search for
/// holes must know instead.
fn objects(note: &mut impl FnMut(&str, f64), stats: &VmapStats, design: &Preset) {
    let lazy_too = design.policy.lazy == LazyStore::InBusyIndex;
    let busy = stats.busy_areas + if lazy_too { stats.lazy_areas } else { 0 };
    note(names::FREE_OBJECTS, stats.holes as f64);
    note(names::BUSY_OBJECTS, busy as f64);
    note(names::LAZY_AREAS, stats.lazy_areas as f64);
    note(names::POOLED_AREAS, stats.pooled_areas as f64);
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
