//! A run of thpfioscale (docs/sources/pages.md#thpfioscale): write, warm up, touch huge pages, delete.
//!
//! The allocator is `nofrag::page`; everything around it is modelled here. Four writers fill 150 % of memory with files
//! of 64 KiB as fio does by default (pages.md#guest-workload): each writes page 0 of all its files, then page 1, and so
//! on, and has them open to the end. Four readers then open all files and read them at random, for as long as the
//! writing took or until a number of pages was read, and on while the huge-page program runs. Its threads touch units
//! of 2 MiB and are told for each whether it is one page. At the end the processes go and the files are deleted.
//!
//! Differences from the count model (pages.md#count-model), and their reasons:
//!
//! * Time. kswapd, compaction and the threads run beside each other in virtual time, and the disk bounds writing; there
//!   a request gives kswapd a fixed budget. So here readers make as many accesses as the time allows.
//! * Files are written round robin and stay open, and slabs are those of Linux 6.1 with XFS: so inodes, some of their
//!   objects unmovable, come first and stay while files are open.
//! * Dirty pages, which reclaim passes by unless it may write, and unmovable blocks that pages under writeback hold.
//! * The reserve is khugepaged's, as on the machines of the document and in kernels (pages.md#guest-reserve), and
//!   not a setting of the mix.
//! * Slow path, kswapd and compaction are those of the engine, not a sketch of them.
//!
//! Findings:
//!
//! * The count model's reductions of events come back with their signs, but not with their sizes: vanilla has several
//!   times as many events, and patches 1 to 4 give no huge page by default.
//! * For vanilla it is decisive who wakes kswapd for a huge page that is not there.
//! * Under `vm.defrag_mode` free pages in unmovable pageblocks satisfy the total watermark, and compaction mostly meets
//!   nothing but marked blocks or has no place to move to: no fragmentation, and hardly a huge page. The count model
//!   hid that, as it made whole blocks by a rule of its own
//!   (pages.md#count-model-reclaim).
//!
//! Left out: page tables, swap, readahead, larger folios of the page cache, the journal's writes, slabs kept by single
//! CPUs.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::apparatus::machine::MachineMemory;
use nofrag::cpu::CpuId;
use nofrag::page::{MemoryMap, Migratetype, PageConfig, PageblockInfo};
use nofrag::units::{Nanos, Order};

use super::World;
use super::actor::{Actor, HugeTask, OutOfMemory, Task};
use super::contents::LruZone;
use super::daemons::Daemons;
use super::heard::{Heard, Pages};
use super::load::Load;
use super::owner::{Owner, Want};
use super::real::{RealMemory, RealResult};
use super::schedule::Schedule;
use super::setup::{Boot, FIO_THREADS, Layout, Moment, PhaseEnd, RunResult, Setup, WarmUp};
use crate::random::Random;
use crate::scenario::RunError;

/// Streams of random numbers: one for each kind of user, so that the draws of one do not shift another's.
const SHRINKER: u64 = 1;
const BOOT: u64 = 2;
const WRITERS: u64 = 100;
const READERS: u64 = 200;
const HUGE: u64 = 300;

/// Runs the workload once. Equal setups give equal results.
///
/// # Errors
/// [`RunError::Engine`] when memory ran out for something that must not fail, or when there is no such machine.
pub(crate) fn simulate(setup: &Setup) -> Result<RunResult, RunError> {
    Run::new(setup.clone())?.run()
}

/// Runs the workload with real memory behind its frames. Returns the counts, which equal those of [`simulate`], the use
/// of the memory, and the memory back. The setup has as many pages as the memory has frames.
///
/// # Errors
/// As [`simulate`]; and when a system call failed.
pub(crate) fn run_on(
    setup: Setup,
    memory: MachineMemory,
) -> Result<(RunResult, RealResult, MachineMemory), RunError> {
    let mut run = Run::new(setup)?;
    run.world.owner.memory = Some(RealMemory::new(memory));
    run.whole()?;
    let memory = run.world.owner.memory.take().expect("it was given above");
    let (memory, real) = memory.end().map_err(|error| failed(&run.setup, error.to_string()))?;
    Ok((run.finish(), real, memory))
}

/// The world of this workload.
pub(crate) type FioWorld = World<Owner, Heard>;

/// A run under way, with its machine.
#[derive(Debug)]
pub(crate) struct Run {
    setup: Setup,
    pub(crate) world: FioWorld,
    schedule: Schedule,
    result: RunResult,
    heard: Heard,
}

impl Run {
    /// Creates a machine whose memory is free.
    pub(crate) fn new(setup: Setup) -> Result<Run, RunError> {
        let layout = &setup.layout;
        let config = PageConfig {
            min_free: setup.min_free,
            ..PageConfig::new(layout.map.clone(), setup.policy)
        };
        let heard = Heard::default();
        let allocator = Pages::with_events(&config, heard.clone())
            .map_err(|error| failed(&setup, error.to_string()))?;
        heard.know(allocator.zones().map(|zone| zone.kind));
        let costs = setup.costs;
        let shrinker = Random::new(setup.seed, SHRINKER);
        let first = cpu(layout, layout.fio[0]);
        let files = setup.files * FIO_THREADS;
        let memory: u64 = allocator.zones().map(|zone| zone.managed.0).sum();
        let owner = Owner::new(
            &lru_zones(&layout.map, &allocator),
            files,
            Load::new(setup.mix, memory, &costs),
            setup.policy.lru,
            costs,
            first,
            shrinker,
        );
        let world = World::new(allocator, owner, costs);
        let cpus = layout.daemons.iter().map(|of_node| of_node.map(|id| cpu(layout, id)));
        let schedule = Schedule::new(Daemons::new(cpus, 0));
        Ok(Run { setup, world, schedule, result: RunResult::default(), heard })
    }

    /// Runs all phases and returns the result.
    pub(crate) fn run(mut self) -> Result<RunResult, RunError> {
        self.whole()?;
        Ok(self.finish())
    }

    fn whole(&mut self) -> Result<(), RunError> {
        self.all_phases().map_err(|out| self.out_of_memory(&out))
    }

    /// Runs the phases up to the one in which huge pages are touched; the readers are left as they are.
    pub(crate) fn up_to_huge_pages(&mut self) -> Result<(), RunError> {
        self.phases().map(drop).map_err(|out| self.out_of_memory(&out))
    }

    fn out_of_memory(&self, OutOfMemory { want, report }: &OutOfMemory) -> RunError {
        failed(&self.setup, format!("out of memory for {want:?}: {report:?}"))
    }

    /// Runs the phases of the workload, one after the other.
    pub(crate) fn all_phases(&mut self) -> Result<(), OutOfMemory> {
        let readers = self.phases()?;
        self.world.owner.end_processes(&mut self.world.pages);
        self.world.owner.load.stopping = true;
        self.schedule.run_to_end(&mut self.world, readers)?;
        self.world.owner.end_transients(&mut self.world.pages);
        self.world.owner.delete_files(&mut self.world.pages);
        self.schedule.give_up_daemons(&mut self.world);
        self.schedule.now += self.world.bill();
        self.end_of_phase(Moment::End);
        Ok(())
    }

    fn phases(&mut self) -> Result<Range<usize>, OutOfMemory> {
        self.note_contiguity(Moment::Start);
        self.boot();
        let writing = self.write()?;
        self.end_of_phase(Moment::Write);
        let readers = self.start_readers();
        self.warm_up(writing)?;
        self.end_of_phase(Moment::WarmUp);
        self.touch_huge_pages()?;
        self.end_of_phase(Moment::HugePages);
        Ok(readers)
    }

    /// Writes and syncs; returns the virtual time that this took.
    fn write(&mut self) -> Result<u64, OutOfMemory> {
        let start = self.schedule.now;
        let count = self.setup.files;
        let actors = self.start(self.setup.layout.fio, WRITERS, |thread| {
            let first = thread as u32 * count;
            Task::Writer { files: first..first + count, done: 0 }
        });
        self.schedule.run_to_end(&mut self.world, actors)?;
        let synced = self.world.owner.written_at(0).unwrap_or(self.schedule.now);
        self.schedule.run_until(&mut self.world, synced)?;
        self.world.owner.synced(&mut self.world.pages);
        Ok(self.schedule.now - start)
    }

    /// Reads on until the warm-up is over.
    fn warm_up(&mut self, writing: u64) -> Result<(), OutOfMemory> {
        match self.setup.warm_up {
            WarmUp::AsLongAsWriting => {
                self.schedule.run_until(&mut self.world, self.schedule.now + writing)
            }
            WarmUp::Reads(wanted) => {
                let wanted = self.world.owner.load.read + wanted;
                while self.world.owner.load.read < wanted {
                    let piece = self.schedule.now + self.setup.costs.disk_read;
                    self.schedule.run_until(&mut self.world, piece)?;
                }
                Ok(())
            }
        }
    }

    /// Takes the memory that the kernel holds before the load begins: files, page by page, then blocks of several
    /// orders, the types in turn.
    fn boot(&mut self) {
        let Boot { unmovable, reclaimable, files } = self.setup.boot;
        for _ in 0..files {
            self.boot_block(Order::ZERO, Migratetype::Movable);
        }
        let mut left =
            [(Migratetype::Unmovable, unmovable), (Migratetype::Reclaimable, reclaimable)];
        let mut random = Random::new(self.setup.seed, BOOT);
        while left.iter().any(|(_, pages)| *pages > 0) {
            for (migratetype, pages) in &mut left {
                let order = Order::new([0, 0, 1, 2, 3][random.index(5)]).expect("it is below 10");
                if *pages < order.pages() {
                    *pages = 0;
                    continue;
                }
                *pages -= order.pages();
                self.boot_block(order, *migratetype);
            }
        }
        self.world.bill();
    }

    fn boot_block(&mut self, order: Order, migratetype: Migratetype) {
        let cpu = cpu(&self.setup.layout, self.setup.layout.fio[0]);
        let want = Want::Boot(order, migratetype);
        let world = &mut self.world;
        match world.pages.alloc(Nanos(0), cpu, world.owner.request(want)) {
            Ok(pfn) => world.owner.fulfil(&mut world.pages, want, pfn),
            Err(attempt) => attempt.abandon(&mut world.pages),
        }
    }

    fn start_readers(&mut self) -> Range<usize> {
        let count = self.setup.files;
        self.start(self.setup.layout.fio, READERS, |thread| {
            let first = thread as u32 * count;
            Task::Reader { files: first..first + count, opened: 0, pages: Vec::new() }
        })
    }

    fn touch_huge_pages(&mut self) -> Result<(), OutOfMemory> {
        let (fault, units) = (self.setup.fault, self.setup.units);
        let marks = |pages: &Pages| {
            let marked = pages
                .pageblocks()
                .filter(|block| pages.is_marked(block.frames.start) == Some(true));
            (marked.count() as u64, pages.pageblocks().count() as u64)
        };
        let (marked, blocks) = marks(&self.world.pages);
        self.heard.begin(marked, blocks);
        let cpus = self.setup.layout.huge.clone();
        let actors = self.start(cpus, HUGE, |_| {
            Task::Huge(HugeTask {
                fault,
                tries: fault,
                units,
                small: 0,
                huge_work: Vec::new(),
                base_work: Vec::new(),
            })
        });
        self.schedule.run_to_end(&mut self.world, actors)?;
        self.result.compactions = self.heard.compactions();
        Ok(())
    }

    /// Starts a thread on each of these CPUs; returns the threads' numbers.
    fn start(
        &mut self,
        cpus: impl IntoIterator<Item = u32>,
        stream: u64,
        task: impl Fn(usize) -> Task,
    ) -> Range<usize> {
        let first = self.schedule.actors.len();
        for (thread, id) in cpus.into_iter().enumerate() {
            let random = Random::new(self.setup.seed, stream + thread as u64);
            let cpu = cpu(&self.setup.layout, id);
            self.schedule.actors.push(Actor::new(cpu, self.schedule.now, task(thread), random));
        }
        first..self.schedule.actors.len()
    }

    fn end_of_phase(&mut self, at: Moment) {
        let pages = &self.world.pages;
        let mut free = BTreeMap::new();
        for zone in pages.zones() {
            let by_order: &mut [u64; Order::COUNT] = free.entry(zone.kind).or_default();
            for (order, blocks) in Order::all().zip(by_order) {
                let lists = Migratetype::ALL.map(|of| pages.free_blocks(zone.id, order, of));
                *blocks += lists.iter().sum::<u64>();
            }
        }
        let counters = pages.counters().clone();
        let (fallbacks, read) = (self.heard.fallbacks(), self.world.owner.load.read);
        self.result.phases.push(PhaseEnd { at, counters, fallbacks, read, free });
        let mismatches = self.world.pages.list_mismatches().get();
        self.result.list_mismatches = self.result.list_mismatches.max(mismatches);
        self.note_contiguity(at);
    }

    fn note_contiguity(&mut self, moment: Moment) {
        let blocks = self.world.pages.pageblocks();
        let free = blocks.map(|block| {
            let orders = block.largest_free.map_or(0, |order| order.get() + 1);
            f64::from(orders) / f64::from(Order::PAGEBLOCK.get() + 1)
        });
        self.result.contiguity.push((moment, free.collect()));
    }

    pub(crate) fn finish(mut self) -> RunResult {
        for actor in &mut self.schedule.actors {
            self.result.stalls.append(&mut actor.stalls);
            if let Task::Huge(task) = &mut actor.task {
                self.result.huge_work.append(&mut task.huge_work);
                self.result.base_work.append(&mut task.base_work);
            }
        }
        let result = &mut self.result;
        (result.huge, result.base) = (result.huge_work.len() as u64, result.base_work.len() as u64);
        let counters = self.world.pages.counters();
        result.operations = counters.allocations.iter().sum::<u64>() + counters.frees;
        result.elapsed = Nanos(self.schedule.now);
        result.blocks = self.setup.layout.pages >> Order::PAGEBLOCK.get();
        result.free_blocks = self.world.pages.pageblocks().filter(is_free).count() as u64;
        result.boost = self.schedule.into_samples();
        self.result
    }
}

/// Returns true if a pageblock can serve as a huge page at once.
fn is_free(block: &PageblockInfo) -> bool {
    block.largest_free == Some(Order::PAGEBLOCK)
}

fn cpu(layout: &Layout, id: u32) -> CpuId {
    layout.map.cpus().get(id).expect("the layout names its own CPUs")
}

fn lru_zones(map: &MemoryMap, pages: &Pages) -> Vec<LruZone> {
    let spans =
        map.nodes().iter().flat_map(|node| &node.zones).map(|zone| zone.span.end().0 as u32);
    let zones = pages.zones().zip(spans);
    zones.map(|(zone, end)| LruZone { node: zone.node, end }).collect()
}

fn failed(setup: &Setup, why: String) -> RunError {
    let program = format!("{}, seed {}", setup.program, setup.seed);
    RunError::Engine { design: setup.design.clone(), program, why }
}
