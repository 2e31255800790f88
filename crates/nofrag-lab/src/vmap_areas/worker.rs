//! One thread's view of a space under test, and the clock and counters around a program's loops.

use std::sync::Barrier;
use std::time::Instant;

use nofrag::cpu::CpuId;
use nofrag::units::Vpn;
use nofrag::vmap::{
    Area, AreaError, AreaRequest, FreeAreaError, Guard, VmapCounters, VmapSpace, VmapStats,
};

use crate::key;
use crate::random::Random;
use crate::spaces::Failure;
use crate::stats::Latencies;

/// Watches every area that a program gets and gives back.
pub(crate) trait Watch {
    fn taken(&mut self, area: &Area, request: &AreaRequest);
    fn given(&mut self, start: Vpn);
}

/// A watch that ignores the areas and costs nothing.
impl Watch for () {
    #[inline]
    fn taken(&mut self, _area: &Area, _request: &AreaRequest) {}

    #[inline]
    fn given(&mut self, _start: Vpn) {}
}

/// Size of a program's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunSize {
    /// Loops of the timed part.
    pub(crate) loops: u64,
    /// Pages of a fixed-size area.
    pub(crate) pages: u64,
    /// Emulated CPUs of the space.
    pub(crate) cpus: usize,
    /// Threads that run the same program in the same space.
    pub(crate) threads: usize,
}

/// Detail in which a program's loops are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Elapsed time and counters.
    Totals,
    /// The time of each loop too, which slows all of them by two readings of the clock.
    EachLoop,
    Elapsed,
}

#[derive(Debug, Default)]
pub(crate) struct ProgramSample {
    pub(crate) elapsed_ns: f64,
    /// Number of operations: the divisor of times and counts.
    pub(crate) operations: u64,
    /// Counters of the space during the loops.
    pub(crate) counts: Counts,
    /// The space when the loops ended, before the program gave everything back.
    pub(crate) at_end: VmapStats,
    /// Single operations, if they were asked for.
    pub(crate) latencies: Latencies,
    /// Counts that the program itself makes.
    pub(crate) extra: key::Counts,
}

/// The counters that the lab shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) allocs: u64,
    pub(crate) searches: u64,
    pub(crate) steps: u64,
    pub(crate) fits: [u64; 4],
    pub(crate) pool_hits: u64,
    pub(crate) locked: u64,
    pub(crate) conflicts: u64,
    pub(crate) purged_areas: u64,
}

impl Counts {
    pub(crate) fn of(counters: &VmapCounters) -> Counts {
        let ranges = &counters.ranges;
        Counts {
            allocs: counters.allocs,
            searches: ranges.allocs + ranges.misses,
            steps: ranges.steps,
            fits: [
                ranges.fit_full,
                ranges.fit_left_edge,
                ranges.fit_right_edge,
                ranges.fit_no_edge,
            ],
            pool_hits: counters.pools.hits,
            locked: counters.locked_operations(),
            conflicts: counters.locks.total().conflicts,
            purged_areas: counters.purge.areas,
        }
    }

    pub(crate) fn since(self, earlier: Counts) -> Counts {
        let mut fits = self.fits;
        for (now, before) in fits.iter_mut().zip(earlier.fits) {
            *now -= before;
        }
        Counts {
            allocs: self.allocs - earlier.allocs,
            searches: self.searches - earlier.searches,
            steps: self.steps - earlier.steps,
            fits,
            pool_hits: self.pool_hits - earlier.pool_hits,
            locked: self.locked - earlier.locked,
            conflicts: self.conflicts - earlier.conflicts,
            purged_areas: self.purged_areas - earlier.purged_areas,
        }
    }
}

/// One thread in a space.
pub(crate) struct Worker<'a, W: Watch = ()> {
    pub(super) space: &'a VmapSpace,
    pub(super) cpu: CpuId,
    pub(super) random: Random,
    pub(super) size: RunSize,
    pub(super) watch: W,
    pub(super) sample: ProgramSample,
    /// Areas that stay to the end, when they are given back.
    pub(super) kept: Vec<Vpn>,
    detail: Detail,
    together: Option<&'a Barrier>,
}

impl<'a, W: Watch> Worker<'a, W> {
    pub(super) fn new(
        space: &'a VmapSpace,
        thread: usize,
        size: RunSize,
        random: Random,
        watch: W,
    ) -> Worker<'a, W> {
        let cpus = space.cpus();
        let cpu = cpus.by_rank(thread % cpus.len()).expect("a rank below the set's length");
        let (sample, detail, together) = (ProgramSample::default(), Detail::Totals, None);
        Worker { space, cpu, random, size, watch, sample, kept: Vec::new(), detail, together }
    }

    pub(super) fn detail(self, detail: Detail) -> Worker<'a, W> {
        Worker { detail, ..self }
    }

    /// Lets the timed part begin and end when all threads of `barrier` are there.
    pub(super) fn together(self, barrier: &'a Barrier) -> Worker<'a, W> {
        Worker { together: Some(barrier), ..self }
    }

    #[inline]
    pub(super) fn take(&mut self, request: &AreaRequest) -> Result<Vpn, AreaError> {
        let area = self.space.alloc(self.cpu, request)?;
        self.watch.taken(&area, request);
        Ok(area.start)
    }

    /// Takes `pages` pages and a guard page anywhere: the kernel's `vmalloc` without its memory.
    #[inline]
    pub(super) fn take_pages(&mut self, pages: u64) -> Result<Vpn, AreaError> {
        self.take(&AreaRequest::new(pages))
    }

    /// Takes `pages` pages that stay to the end.
    pub(super) fn keep(&mut self, pages: u64) -> Result<(), AreaError> {
        let start = self.take_pages(pages)?;
        self.kept.push(start);
        Ok(())
    }

    #[inline]
    pub(super) fn give(&mut self, start: Vpn) -> Result<(), FreeAreaError> {
        self.watch.given(start);
        self.space.free(self.cpu, start)?;
        Ok(())
    }

    pub(super) fn give_all(
        &mut self,
        starts: impl IntoIterator<Item = Vpn>,
    ) -> Result<(), Failure> {
        for start in starts {
            self.give(start)?;
        }
        Ok(())
    }

    /// Takes one group of areas without guard pages; returns its base.
    pub(super) fn take_group(
        &mut self,
        offsets: &[u64],
        sizes: &[u64],
        align: u64,
    ) -> Result<Vpn, Failure> {
        let base = self.space.alloc_group(self.cpu, offsets, sizes, align)?;
        for (offset, pages) in offsets.iter().zip(sizes) {
            let start = Vpn(base.get() + offset);
            let request = AreaRequest::new(*pages).align(align).guard(Guard::None);
            let area = self.space.find(start);
            let area = area.ok_or_else(|| Failure::Records("a piece is not found".to_owned()))?;
            self.watch.taken(&area, &request);
        }
        Ok(base)
    }

    pub(super) fn give_group(&mut self, base: Vpn, offsets: &[u64]) -> Result<(), Failure> {
        for offset in offsets {
            self.watch.given(Vpn(base.get() + offset));
        }
        self.space.free_group(self.cpu, base, offsets)?;
        Ok(())
    }

    /// Meets the other threads twice: between the meetings no thread works, so that the counters can be read.
    fn meet(&self) {
        if let Some(barrier) = self.together {
            barrier.wait();
            barrier.wait();
        }
    }
}

/// The steps of a program: once before the clock runs, once per loop, once behind the clock.
pub(super) trait Body {
    fn prepare<W: Watch>(&mut self, _worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs one loop; returns its number of operations.
    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure>;

    /// Gives back the areas that `prepare` and the loops left.
    fn finish<W: Watch>(&mut self, _worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        Ok(())
    }
}

/// Runs a program from its preparation to its end; the sample stays in the worker.
///
/// Threads that run together meet before and behind the loops in any case, so that a failure of one does not leave the
/// others waiting.
pub(super) fn drive<W: Watch>(
    mut body: impl Body,
    worker: &mut Worker<'_, W>,
) -> Result<(), Failure> {
    let mut outcome = body.prepare(worker);
    worker.meet();
    if outcome.is_ok() {
        outcome = timed(&mut body, worker);
    }
    worker.meet();
    outcome?;
    body.finish(worker)?;
    let kept = std::mem::take(&mut worker.kept);
    worker.give_all(kept)
}

fn timed<W: Watch>(body: &mut impl Body, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
    let counters = (worker.detail != Detail::Elapsed).then(|| Counts::of(&worker.space.counters()));
    let begin = Instant::now();
    let mut operations = 0;
    if worker.detail == Detail::EachLoop {
        let mut last = begin;
        for _ in 0..worker.size.loops {
            operations += body.turn(worker)?;
            let now = Instant::now();
            worker.sample.latencies.record((now - last).as_nanos() as u64);
            last = now;
        }
    } else {
        for _ in 0..worker.size.loops {
            operations += body.turn(worker)?;
        }
    }
    worker.sample.elapsed_ns = begin.elapsed().as_nanos() as f64;
    worker.sample.operations = operations;
    if let Some(before) = counters {
        worker.sample.counts = Counts::of(&worker.space.counters()).since(before);
        if worker.together.is_none() {
            worker.sample.at_end = worker.space.stats();
        }
    }
    Ok(())
}
