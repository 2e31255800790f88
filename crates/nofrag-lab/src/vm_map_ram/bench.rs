//! A space with one CPU under test, the mapper behind its pages, and the ways of running a sequence of sizes through
//! it.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Instant;

use nofrag::cpu::CpuId;
use nofrag::event::{Event, EventSink, Function};
use nofrag::ranges::Span;
use nofrag::vmap::{BlockCounters, Epoch, Mapper, RamArea, VmapPolicy, VmapSpace};

use crate::spaces::{self, Failure};
use crate::stats::{CallTimer, Calls};

/// A mapper that counts: pages stand for page tables. A flush has completed when it returns.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pub(super) installed: Cell<u64>,
    pub(super) cleared: Cell<u64>,
    pub(super) flushes: Cell<u64>,
}

fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

impl Mapper for Counting {
    type Context = ();
    type Error = Infallible;

    #[inline]
    fn install(&self, area: RamArea, _context: &()) -> Result<(), Infallible> {
        add(&self.installed, area.pages.get());
        Ok(())
    }

    #[inline]
    fn clear(&self, area: Span) {
        add(&self.cleared, area.len());
    }

    fn flush(&self, _ranges: &[Span]) -> Epoch {
        add(&self.flushes, 1);
        Epoch(self.flushes.get())
    }

    #[inline]
    fn completed(&self) -> Epoch {
        Epoch(self.flushes.get())
    }
}

/// A profiler of functions: reads the clock when one is entered and left.
#[derive(Debug, Default)]
pub(super) struct Profiler {
    entered: Cell<Option<Instant>>,
    areas: Cell<CallTimer>,
    blocks: Cell<CallTimer>,
}

impl Profiler {
    /// Returns the numbers of blocks made and given back so far.
    fn blocks(&self) -> [u64; 2] {
        [&self.areas, &self.blocks].map(|timer| timer.get().calls().hits)
    }
}

impl EventSink for Profiler {
    fn record(&self, event: Event) {
        match event {
            Event::Entered(_) => self.entered.set(Some(Instant::now())),
            Event::Left(function) => {
                let begin = self.entered.take().expect("what is left was entered");
                let timer = match function {
                    Function::AllocBlockArea => &self.areas,
                    Function::FreeBlock => &self.blocks,
                    _ => return,
                };
                let mut calls = timer.get();
                calls.record(begin.elapsed());
                timer.set(calls);
            }
            _ => {}
        }
    }
}

/// A space and its CPU.
pub(super) struct Bench<'a, E = ()> {
    pub(super) space: VmapSpace<&'a Counting, E>,
    pub(super) cpu: CpuId,
    mapper: &'a Counting,
}

impl<'a, E: EventSink> Bench<'a, E> {
    /// Builds a space of `pages` pages.
    pub(super) fn new(
        policy: VmapPolicy,
        pages: u64,
        mapper: &'a Counting,
        events: E,
    ) -> Result<Bench<'a, E>, Failure> {
        let config = spaces::config(policy, pages, 1)?;
        let cpu = config.cpus.by_rank(0).expect("the set has one CPU");
        Ok(Bench { space: VmapSpace::new(config, mapper, events)?, cpu, mapper })
    }

    #[inline]
    pub(super) fn map(&self, pages: u64) -> Result<RamArea, Failure> {
        Ok(self.space.map_ram(self.cpu, pages, &())?)
    }

    #[inline]
    pub(super) fn unmap(&self, area: RamArea) -> Result<(), Failure> {
        Ok(self.space.unmap_ram(self.cpu, area)?)
    }

    /// Maps and unmaps each size at once; returns the nanoseconds of one pair.
    pub(super) fn pairs(&self, sizes: &[u16]) -> Result<f64, Failure> {
        let begin = Instant::now();
        for pages in sizes {
            let area = self.map(u64::from(*pages))?;
            self.unmap(area)?;
        }
        Ok(per_pair(begin, sizes))
    }

    /// Maps and unmaps each size through a handle, which holds the CPU's lock throughout.
    pub(super) fn pairs_by_handle(&self, sizes: &[u16]) -> Result<f64, Failure> {
        let mut handle = self.space.cpu(self.cpu)?;
        let begin = Instant::now();
        for pages in sizes {
            let area = handle.map_ram(u64::from(*pages), &())?;
            handle.unmap_ram(area)?;
        }
        Ok(per_pair(begin, sizes))
    }

    pub(super) fn flushes(&self) -> u64 {
        self.mapper.flushes.get()
    }

    pub(super) fn blocks(&self) -> BlockCounters {
        self.space.counters().blocks
    }
}

fn per_pair(begin: Instant, sizes: &[u16]) -> f64 {
    begin.elapsed().as_nanos() as f64 / sizes.len().max(1) as f64
}

/// Number of points of a course over a run.
const POINTS: usize = 72;

/// Observations of a pass that looks at every call.
pub(super) struct Observed {
    /// The kernel's functions, in the order of `names::FUNCTIONS`.
    pub(super) functions: [Calls; 4],
    /// The largest number of blocks held in each part of the run.
    pub(super) held: Vec<f64>,
    /// Number of blocks that each size made, by size.
    pub(super) creators: Vec<u64>,
}

/// Runs `sizes` under `policy` and times every call; also those of the inner functions, which the space announces.
pub(super) fn observe(policy: VmapPolicy, pages: u64, sizes: &[u16]) -> Result<Observed, Failure> {
    let (mapper, profiler) = (Counting::default(), Profiler::default());
    let bench = Bench::new(policy, pages, &mapper, &profiler)?;
    let [mut map, mut unmap] = [CallTimer::default(); 2];
    let points = POINTS.min(sizes.len());
    let mut held = vec![0.0_f64; points];
    let mut creators = vec![0; 1 + usize::from(sizes.iter().copied().max().unwrap_or(0))];
    let mut made = 0;
    for (at, pages) in sizes.iter().enumerate() {
        let begin = Instant::now();
        let area = bench.map(u64::from(*pages))?;
        let between = Instant::now();
        let [made_now, given_back] = profiler.blocks();
        let point = &mut held[at * points / sizes.len()];
        *point = point.max((made_now - given_back) as f64);
        let resumed = Instant::now();
        bench.unmap(area)?;
        let end = Instant::now();

        map.record(between - begin);
        unmap.record(end - resumed);
        creators[usize::from(*pages)] += made_now - made;
        made = made_now;
    }
    let functions = [map, unmap, profiler.areas.get(), profiler.blocks.get()];
    Ok(Observed { functions: functions.map(|timer| timer.calls()), held, creators })
}

/// Returns the time between two readings of the clock in a row: it is in every time of [`observe`].
pub(super) fn clock_ns() -> f64 {
    let mut times: Vec<u128> = (0..1001)
        .map(|_| {
            let begin = Instant::now();
            (Instant::now() - begin).as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2] as f64
}
