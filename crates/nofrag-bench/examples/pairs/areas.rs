//! An allocation and a free of a virtual area under one preset.

use crate::{Outcome, Random, SPACE_PAGES, note_alias, timed};
use clap::ValueEnum;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{AreaRequest, CpuHandle, VmapConfig, VmapPolicy, VmapSpace};
use std::hint::black_box;

/// Number of areas that the test module makes on two CPUs: `fls(2) * 32 MiB`, in pages.
const FULL_FIT_AREAS: usize = 16_384;

/// `fix-size` to `long-busy-hole` are those of the kernel's test module; a loop of the last is two pairs.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Workload {
    FixSize,
    RandomSize,
    FixAlign,
    FullFit,
    LongBusyHole,
    Churn,
    Purge,
    Handle,
    TwoThreads,
    TwoChurns,
}

struct Bench {
    space: VmapSpace,
    cpu: CpuId,
    random: Random,
}

impl Bench {
    fn alloc(&self, pages: u64, align: u64) -> Vpn {
        let request = AreaRequest::new(pages).align(align);
        black_box(self.space.alloc(self.cpu, &request)).expect("the space is roomy").start
    }

    fn free(&self, start: Vpn) {
        black_box(self.space.free(self.cpu, start)).expect("the area is busy");
    }

    fn pair(&self, pages: u64, align: u64) {
        let start = self.alloc(pages, align);
        self.free(start);
    }

    fn random_size(&mut self, loops: u64) {
        for _ in 0..loops {
            let pages = 1 + self.random.below(100);
            self.pair(pages, 1);
        }
    }

    fn full_fit(&self, loops: u64) {
        let mut junk = Vec::new();
        for _ in 0..FULL_FIT_AREAS {
            self.alloc(1, 1);
            junk.push(self.alloc(1, 1));
        }
        junk.into_iter().for_each(|start| self.free(start));
        (0..loops).for_each(|_| self.pair(1, 1));
    }

    fn long_busy_hole(&self, loops: u64) {
        let mut fifties = Vec::new();
        for _ in 0..8 {
            fifties.push(self.alloc(50, 1));
            self.alloc(1, 1);
        }
        (0..15_000).for_each(|_| {
            self.alloc(1, 1);
        });
        fifties.into_iter().for_each(|start| self.free(start));
        self.space.purge_all();
        for _ in 0..loops {
            let hundred = self.alloc(100, 1);
            let one = self.alloc(1, 1);
            self.free(hundred);
            self.free(one);
        }
    }

    /// Frees every second of `loops` areas, then purges: no two of them touch, so each is given back by itself.
    fn purge(&mut self, loops: u64) {
        let mut live = Vec::new();
        for _ in 0..loops {
            let pages = 1 + self.random.below(100);
            live.push(self.alloc(pages, 1));
        }
        while live.len() > loops as usize / 2 {
            let at = self.random.below(live.len() as u64 / 2) as usize * 2;
            self.free(live.swap_remove(at));
        }
        self.space.purge_all();
    }

    fn churn(&mut self, loops: u64) {
        let mut live: Vec<Vpn> = Vec::new();
        for _ in 0..15_000 {
            let pages = 1 + self.random.below(100);
            live.push(self.alloc(pages, 1));
        }
        for _ in 0..loops {
            let at = self.random.below(live.len() as u64) as usize;
            self.free(live[at]);
            let pages = 1 + self.random.below(100);
            live[at] = self.alloc(pages, 1);
        }
    }
}

/// Runs one thread per CPU, each of which replaces one of its own `live` areas `loops` times, by one of 1 to `sizes`
/// pages.
fn by_threads(space: &VmapSpace, loops: u64, live: usize, sizes: u64) {
    std::thread::scope(|scope| {
        for cpu in space.cpus().iter() {
            scope.spawn(move || {
                let mut random = Random(Random::SEED + u64::from(cpu.id()));
                let mut next = || AreaRequest::new(1 + random.below(sizes));
                let alloc = |request| space.alloc(cpu, &request).expect("the space is roomy").start;
                let mut areas: Vec<Vpn> = (0..live).map(|_| alloc(next())).collect();
                for round in 0..loops as usize {
                    let at = round * 7919 % live;
                    space.free(cpu, areas[at]).expect("the area is busy");
                    areas[at] = alloc(next());
                }
            });
        }
    });
}

fn by_handle(handle: &mut CpuHandle<'_>, loops: u64) {
    for _ in 0..loops {
        let area = black_box(handle.alloc(&AreaRequest::new(1))).expect("the space is roomy");
        black_box(handle.free(area.start)).expect("the area is busy");
    }
}

pub(crate) fn run(preset: &str, workload: Workload, loops: u64) -> Outcome {
    let asked = preset;
    let preset = VmapPolicy::preset(asked)?;
    note_alias(asked, preset.name);
    let cpus = CpuSet::first(2)?;
    let cpu = cpus.by_rank(0).ok_or("the set has two CPUs")?;
    let span = Span::sized(0x1000, SPACE_PAGES)?;
    let space = VmapSpace::new(VmapConfig { span, cpus, policy: preset.policy }, (), ())?;
    let mut bench = Bench { space, cpu, random: Random(Random::SEED) };
    timed(loops, || {
        match workload {
            Workload::FixSize => (0..loops).for_each(|_| bench.pair(1, 1)),
            Workload::RandomSize => bench.random_size(loops),
            Workload::FixAlign => (0..loops).for_each(|_| bench.pair(5, 8)),
            Workload::FullFit => bench.full_fit(loops),
            Workload::LongBusyHole => bench.long_busy_hole(loops),
            Workload::Churn => bench.churn(loops),
            Workload::Purge => bench.purge(loops),
            Workload::TwoThreads => by_threads(&bench.space, loops, 1, 1),
            Workload::TwoChurns => by_threads(&bench.space, loops, 7_500, 100),
            Workload::Handle => by_handle(&mut bench.space.cpu(cpu)?, loops),
        }
        Ok(())
    })
}
