//! A run of thpfioscale (spec/pages.md §6): write, warm up, touch huge pages, delete.
//!
//! The allocator is `nofrag::page`; what is modelled here is everything around it. Four writers fill 150 % of memory
//! with files of 64 KiB. Four readers then read them at random, for as long as the writing took before the huge-page
//! program starts, and on while it runs. Its threads touch units of 2 MiB and are told for each whether it is one page.
//! At the end the processes go and the files are deleted.
//!
//! What differs from the count model (spec/pages.md §9), and why:
//!
//! * Time. kswapd, compaction and the threads run beside each other in virtual time, and the disk bounds writing; there
//!   a request gives kswapd a fixed budget. So here readers make as many accesses as the time allows.
//! * Dirty pages, which reclaim passes by unless it may write.
//! * The reserve is khugepaged's, as on the machines of the document and in kernels (spec/pages.md §14, item 3), and
//!   not a setting of the mix.
//! * Slow path, kswapd and compaction are those of the engine, not a sketch of them.
//!
//! What that taught:
//!
//! * The signs and sizes of the count model come back: vanilla steals single pages by the batch whenever the free
//!   memory that satisfies the watermark lies in pageblocks of slabs, and every patch does what it did there.
//! * Who wakes kswapd for a huge page that is not there decides about vanilla ([`huge_fault`]).
//! * Under `vm.defrag_mode` free pages in unmovable pageblocks satisfy the total watermark and nothing is free in
//!   movable ones, so that compaction has no place to move to: no fragmentation, and hardly a huge page. The count
//!   model hid that, as it made whole blocks by a rule of its own.
//!
//! What is left out: page tables, swap, readahead, larger folios of the page cache, journals, slabs kept by single
//! CPUs.

use std::num::TryFromIntError;

use nofrag::cpu::CpuId;
use nofrag::page::{
    Advice, HugeDefrag, HugeFault, HugeTries, Kcompactd, Kswapd, MinFree, NodeId, PageConfig,
    PageblockInfo,
};
use nofrag::units::{Nanos, Order};
use nofrag_backing::measure::machine::MachineMemory;

use super::actor::{Actor, HugeTask, OutOfMemory, Task};
use super::cache::FILE_PAGES;
use super::compactions::{Heard, Pages};
use super::costs::Costs;
use super::lru::LruZone;
use super::machine::{FIO_THREADS, Layout, units_per_thread};
use super::memory::{RealMemory, RealResult};
use super::owner::Owner;
use super::schedule::{Daemon, Schedule};
use super::spec::{HugeMode, Machine, RunResult, RunSpec, Touch};
use super::world::World;
use crate::random::Random;
use crate::scenario::RunError;

/// Pages of a GiB.
const GIB_PAGES: u64 = 1 << 18;

/// Streams of chance: one per kind of user, so that one's draws do not shift another's.
const SHRINKER: u64 = 1;
const WRITERS: u64 = 100;
const READERS: u64 = 200;
const HUGE: u64 = 300;

/// Runs the workload once. Equal specs give equal results.
///
/// # Errors
/// [`RunError::Engine`] when memory ran out for something that must not fail, or when there is no such machine.
pub(super) fn simulate(spec: &RunSpec) -> Result<RunResult, RunError> {
    Run::new(spec, spec.memory_gib * GIB_PAGES)?.run()
}

/// The same run with memory behind its frames: what was counted, which is what [`simulate`] counts, what was done with
/// the memory, and the memory back. The machine has as many pages as there are frames, whatever the spec says.
///
/// # Errors
/// As [`simulate`]; and when a system call failed.
pub(super) fn run_on(
    spec: &RunSpec,
    memory: MachineMemory,
) -> Result<(RunResult, RealResult, MachineMemory), RunError> {
    let mut run = Run::new(spec, memory.frames())?;
    run.world.owner.memory = Some(RealMemory::new(memory));
    run.whole()?;
    let memory = run.world.owner.memory.take().expect("it was given above");
    let (memory, real) = memory.end().map_err(|error| failed(spec, error.to_string()))?;
    Ok((run.finish(), real, memory))
}

/// A run under way.
#[derive(Debug)]
pub(super) struct Run<'a> {
    spec: &'a RunSpec,
    layout: Layout,
    pub(super) world: World,
    schedule: Schedule,
    result: RunResult,
    heard: Heard,
    /// Files of each of fio's threads.
    quarter: u32,
}

impl<'a> Run<'a> {
    /// A machine with `pages` pages, all free.
    pub(super) fn new(spec: &'a RunSpec, pages: u64) -> Result<Run<'a>, RunError> {
        let mix = spec.mix.scaled(pages);
        let layout = Layout::new(spec.machine, &mix, pages);
        let config = PageConfig {
            min_free: MinFree::HugePages,
            ..PageConfig::new(layout.map.clone(), spec.policy)
        };
        let heard = Heard::default();
        let allocator = Pages::with_events(&config, heard.clone())
            .map_err(|error| failed(spec, error.to_string()))?;
        let quarter =
            quarter(layout.pages).map_err(|_| failed(spec, "memory is too large".into()))?;
        let costs = Costs::built_in();
        let shrinker = Random::new(spec.seed, SHRINKER);
        let first = cpu(&layout, layout.fio[0]);
        let files = quarter * FIO_THREADS;
        let owner = Owner::new(&lru_zones(&allocator), files, &mix, costs, first, shrinker);
        let world = World::new(allocator, owner, costs, mix);
        let daemons = layout.daemons.iter().enumerate().flat_map(|(node, &[kswapd, kcompactd])| {
            let node = NodeId(node as u8);
            [
                Daemon::kswapd(cpu(&layout, kswapd), Kswapd::new(node)),
                Daemon::kcompactd(cpu(&layout, kcompactd), Kcompactd::new(node)),
            ]
        });
        let schedule = Schedule::new(daemons.collect());
        Ok(Run { spec, layout, world, schedule, result: RunResult::default(), heard, quarter })
    }

    /// All phases.
    pub(super) fn run(mut self) -> Result<RunResult, RunError> {
        self.whole()?;
        Ok(self.finish())
    }

    fn whole(&mut self) -> Result<(), RunError> {
        self.all_phases().map_err(|out| {
            let OutOfMemory { want, report } = out;
            failed(self.spec, format!("out of memory for {want:?}: {report:?}"))
        })
    }

    /// The phases of the workload, one after the other.
    pub(super) fn all_phases(&mut self) -> Result<(), OutOfMemory> {
        self.note_contiguity("start");
        let writing = self.write()?;
        self.end_of_phase("write");
        let readers = self.start_readers();
        self.schedule.run_until(&mut self.world, self.schedule.now + writing)?;
        self.end_of_phase("warm-up");
        self.touch_huge_pages()?;
        self.end_of_phase("huge pages");
        self.world.owner.end_processes(&mut self.world.pages);
        self.world.stopping = true;
        self.schedule.run_to_end(&mut self.world, readers)?;
        self.world.owner.end_transients(&mut self.world.pages);
        self.world.owner.delete_files(&mut self.world.pages);
        self.schedule.give_up_daemons(&mut self.world);
        self.schedule.now += self.world.bill();
        self.end_of_phase("end");
        Ok(())
    }

    /// Writes and syncs; how long that took.
    fn write(&mut self) -> Result<u64, OutOfMemory> {
        let start = self.schedule.now;
        let quarter = self.quarter * FILE_PAGES;
        let actors = self.start(self.layout.fio, WRITERS, |thread| {
            let thread = thread as u32;
            Task::Writer { next: thread * quarter, end: (thread + 1) * quarter }
        });
        self.schedule.run_to_end(&mut self.world, actors)?;
        let synced = self.world.owner.written_at(0).unwrap_or(self.schedule.now);
        self.schedule.run_until(&mut self.world, synced)?;
        Ok(self.schedule.now - start)
    }

    fn start_readers(&mut self) -> std::ops::Range<usize> {
        let quarter = self.quarter;
        self.start(self.layout.fio, READERS, |thread| {
            let first = thread as u32 * quarter;
            Task::Reader { files: first..first + quarter, open: None, left: 0 }
        })
    }

    fn touch_huge_pages(&mut self) -> Result<(), OutOfMemory> {
        let fault = huge_fault(self.spec);
        let threads = self.layout.huge.len() as u32;
        let half = units_per_thread(self.layout.node_0_pages, threads);
        let units = match self.spec.touch {
            Touch::HalfOfUnits => half,
            Touch::AllUnits => 2 * half,
        };
        let marks = |pages: &Pages| {
            let marked = pages
                .pageblocks()
                .filter(|block| pages.is_marked(block.frames.start) == Some(true));
            (marked.count() as u64, pages.pageblocks().count() as u64)
        };
        let (marked, blocks) = marks(&self.world.pages);
        self.heard.begin(marked, blocks);
        let cpus = self.layout.huge.clone();
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
        self.result.compactions = self.heard.told();
        Ok(())
    }

    /// Starts threads on these CPUs. Their numbers.
    fn start(
        &mut self,
        cpus: impl IntoIterator<Item = u32>,
        stream: u64,
        task: impl Fn(usize) -> Task,
    ) -> std::ops::Range<usize> {
        let first = self.schedule.actors.len();
        for (thread, id) in cpus.into_iter().enumerate() {
            let random = Random::new(self.spec.seed, stream + thread as u64);
            let cpu = cpu(&self.layout, id);
            self.schedule.actors.push(Actor::new(cpu, self.schedule.now, task(thread), random));
        }
        first..self.schedule.actors.len()
    }

    fn end_of_phase(&mut self, name: &'static str) {
        self.result.phases.push((name, self.world.pages.counters().clone()));
        let mismatches = self.world.pages.list_mismatches().get();
        self.result.list_mismatches = self.result.list_mismatches.max(mismatches);
        self.note_contiguity(name);
    }

    fn note_contiguity(&mut self, moment: &str) {
        let blocks = self.world.pages.pageblocks();
        let free = blocks.map(|block| {
            let orders = block.largest_free.map_or(0, |order| order.get() + 1);
            f64::from(orders) / f64::from(Order::PAGEBLOCK.get() + 1)
        });
        self.result.contiguity.push((moment.to_owned(), free.collect()));
    }

    pub(super) fn finish(mut self) -> RunResult {
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
        result.blocks = self.layout.pages >> Order::PAGEBLOCK.get();
        result.free_blocks = self.world.pages.pageblocks().filter(is_free).count() as u64;
        result.boost = self.schedule.into_samples();
        self.result
    }
}

/// Whether a pageblock can serve as a huge page at once.
fn is_free(block: &PageblockInfo) -> bool {
    block.largest_free == Some(Order::PAGEBLOCK)
}

/// Files of each of fio's threads, 150 % of memory together.
fn quarter(pages: u64) -> Result<u32, TryFromIntError> {
    let quarter = u32::try_from(pages * 3 / 2 / u64::from(FILE_PAGES) / u64::from(FIO_THREADS))?;
    // Pages have numbers of 27 bits.
    let pages = u64::from(quarter) * u64::from(FIO_THREADS * FILE_PAGES);
    i32::try_from(pages << 4).map(|_| quarter)
}

fn cpu(layout: &Layout, id: u32) -> CpuId {
    layout.map.cpus().get(id).expect("the layout names its own CPUs")
}

fn lru_zones(pages: &Pages) -> Vec<LruZone> {
    let mut end = 0;
    let zones = pages.zones().map(|zone| {
        end += zone.present.0 as u32;
        LruZone { zone: zone.id, node: zone.node.0, end }
    });
    zones.collect()
}

/// What a touched unit asks for. A program that may use any node is one whose memory policy interleaves: it makes one
/// try.
///
/// By default, `transparent_hugepage/defrag` is `madvise` and the program has not asked: nobody reclaims or compacts
/// for the unit, kswapd neither. With a wake for each unit that fails, vanilla got huge pages for one unit in seven on
/// the calibrated mix, where the document and the count model have none, and half of the events: kswapd's end starts
/// kcompactd, which empties blocks.
fn huge_fault(spec: &RunSpec) -> HugeFault {
    let (defrag, advice) = match spec.huge {
        HugeMode::Default => (HugeDefrag::Madvise, Advice::Unadvised),
        HugeMode::DefragAlways => (HugeDefrag::Always, Advice::Unadvised),
        HugeMode::Madvise => (HugeDefrag::Madvise, Advice::HugePage),
    };
    let tries = match spec.machine {
        Machine::TwoNodes { this_node: false, .. } => HugeTries::All,
        Machine::OneNode | Machine::TwoNodes { .. } => spec.policy.huge_tries,
    };
    HugeFault::new(defrag, advice, tries)
}

fn failed(spec: &RunSpec, why: String) -> RunError {
    let program =
        format!("mix {}, {:?}, {:?}, seed {}", spec.mix.name, spec.machine, spec.huge, spec.seed);
    RunError::Engine { design: spec.design.clone(), program, why }
}
