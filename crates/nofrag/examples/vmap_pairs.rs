//! Pairs of allocate and free under one preset, to be counted by an instruction profiler.
//!
//! Run twice with different loop counts and divide the difference of the totals by the difference of the loops: the
//! cost of setting up cancels out.
//!
//! ```text
//! cargo build -p nofrag --release --example vmap_pairs
//! for loops in 20000 120000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/vmap_pairs nofrag fix_size $loops 2>&1 | grep Collected
//! done
//! ```

#![allow(clippy::disallowed_types)] // an example has the standard library

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{AreaRequest, CpuHandle, VmapConfig, VmapPolicy, VmapSpace};
use std::hint::black_box;
use std::process::ExitCode;

/// 32 TiB, the vmalloc range of x86-64 with four levels of page tables.
const SPACE_PAGES: u64 = 1 << 33;

/// Number of areas that the test module makes on two CPUs: `fls(2) * 32 MiB`, in pages.
const FULL_FIT_AREAS: usize = 16_384;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
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

    /// Every second of `loops` areas freed, then purged: no two of them touch, so each is given back by itself.
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

/// One thread per CPU, each replacing areas of its own: `sizes` 1 with one area live, or up to 100 with 7,500 live.
fn by_threads(space: &VmapSpace, loops: u64, live: usize, sizes: u64) {
    std::thread::scope(|scope| {
        for cpu in space.cpus().iter() {
            scope.spawn(move || {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 + u64::from(cpu.id()));
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

fn run(preset: &str, workload: &str, loops: u64) -> Result<(), Box<dyn std::error::Error>> {
    let asked = preset;
    let preset = VmapPolicy::preset(asked)?;
    if preset.name != asked {
        println!("{asked} was asked for: {} is what runs", preset.name);
    }
    let cpus = CpuSet::first(2)?;
    let cpu = cpus.by_rank(0).ok_or("the set has two CPUs")?;
    let span = Span::sized(0x1000, SPACE_PAGES)?;
    let space = VmapSpace::new(VmapConfig { span, cpus, policy: preset.policy }, (), ())?;
    let mut bench = Bench { space, cpu, random: Random(0x9e37_79b9_7f4a_7c15) };
    match workload {
        "fix_size" => (0..loops).for_each(|_| bench.pair(1, 1)),
        "random_size" => bench.random_size(loops),
        "fix_align" => (0..loops).for_each(|_| bench.pair(5, 8)),
        "full_fit" => bench.full_fit(loops),
        "long_busy_hole" => bench.long_busy_hole(loops),
        "churn" => bench.churn(loops),
        "purge" => bench.purge(loops),
        "two_threads" => by_threads(&bench.space, loops, 1, 1),
        "two_churns" => by_threads(&bench.space, loops, 7_500, 100),
        "handle" => by_handle(&mut bench.space.cpu(cpu)?, loops),
        other => return Err(format!("no workload {other}").into()),
    }
    let counters = bench.space.counters();
    println!(
        "{} {workload}: {} pairs, {:.2} locked operations per pair, {} conflicts, {} pool hits, \
         {} holds of at most {} areas, {} search steps",
        preset.name,
        counters.frees,
        counters.locked_operations() as f64 / counters.frees.max(1) as f64,
        counters.locks.total().conflicts,
        counters.pools.hits,
        counters.purge.holds,
        counters.purge.max_areas_per_hold,
        counters.ranges.steps,
    );
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, preset, workload, loops] = &arguments[..] else {
        eprintln!(
            "usage: vmap_pairs PRESET WORKLOAD LOOPS, where WORKLOAD is fix_size, random_size, fix_align, full_fit, \
             long_busy_hole, churn, purge, handle, two_threads or two_churns"
        );
        return ExitCode::from(2);
    };
    let outcome = loops.parse().map_err(Into::into).and_then(|n| run(preset, workload, n));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("vmap_pairs: {why}");
            ExitCode::FAILURE
        }
    }
}
