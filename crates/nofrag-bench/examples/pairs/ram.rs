//! A `map_ram` and an `unmap_ram` under one preset.

use crate::{Congruence, Outcome, SPACE_PAGES, note_alias, timed};
use clap::ValueEnum;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::vmap::{CpuHandle, Epoch, Mapper, Preset, RamArea, VmapConfig, VmapPolicy, VmapSpace};
use std::convert::Infallible;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Way {
    Handle,
    Call,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Workload {
    /// One page.
    One,
    /// 64 pages.
    Max,
    /// 16 pages, then 8 until the block has 8 left: Pen's first workload.
    W1,
    /// Any size: Pen's second workload.
    W2,
    /// Each power of two until it leaves a hole of its size, then each into its hole: Pen's third workload.
    W3,
}

/// A mapper that counts its calls; one thread uses it, so plain loads and stores suffice.
#[derive(Debug, Default)]
struct Counting {
    installed: AtomicU64,
    cleared: AtomicU64,
    flushes: AtomicU64,
}

fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Mapper for Counting {
    type Context = ();
    type Error = Infallible;

    fn install(&self, area: RamArea, _context: &()) -> Result<(), Infallible> {
        bump(&self.installed, area.pages.get());
        Ok(())
    }

    fn clear(&self, area: Span) {
        bump(&self.cleared, area.len());
    }

    fn flush(&self, _ranges: &[Span]) -> Epoch {
        bump(&self.flushes, 1);
        Epoch(self.flushes.load(Ordering::Relaxed))
    }

    fn completed(&self) -> Epoch {
        Epoch(self.flushes.load(Ordering::Relaxed))
    }
}

/// The maker of a pair: the CPU's handle, or the space with a lock for each call.
trait Maker {
    fn pair(&mut self, pages: u64);
}

impl Maker for CpuHandle<'_, Counting> {
    #[inline(always)]
    fn pair(&mut self, pages: u64) {
        let area = self.map_ram(black_box(pages), &()).expect("it is roomy");
        black_box(area.start);
        self.unmap_ram(area).expect("the area is mapped");
    }
}

impl Maker for (&VmapSpace<Counting>, CpuId) {
    #[inline(always)]
    fn pair(&mut self, pages: u64) {
        let (space, cpu) = *self;
        let area = space.map_ram(cpu, black_box(pages), &()).expect("it is roomy");
        black_box(area.start);
        space.unmap_ram(cpu, area).expect("the area is mapped");
    }
}

fn same(maker: &mut impl Maker, pages: u64, pairs: u64) {
    (0..pairs).for_each(|_| maker.pair(pages));
}

fn w1(maker: &mut impl Maker, pairs: u64) {
    let mut left = pairs;
    while left > 0 {
        let others = left.min(126) - 1;
        maker.pair(16);
        same(maker, 8, others);
        left -= others + 1;
    }
}

fn w2(maker: &mut impl Maker, pairs: u64) {
    let mut random = Congruence(Congruence::SEED);
    for _ in 0..pairs {
        maker.pair(1 + (random.next() >> 58));
    }
}

fn w3(maker: &mut impl Maker, pairs: u64) {
    let mut left = pairs;
    let mut some = |pages, pairs: u64| {
        let pairs = pairs.min(left);
        same(maker, pages, pairs);
        left -= pairs;
        left > 0
    };
    while (0..7).all(|order| some(1 << order, (1024 >> order) - 1))
        && (0..7).all(|order| some(1 << order, 1))
    {}
}

fn drive(maker: &mut impl Maker, workload: Workload, pairs: u64) {
    timed(pairs, || match workload {
        Workload::One => same(maker, 1, pairs),
        Workload::Max => same(maker, 64, pairs),
        Workload::W1 => w1(maker, pairs),
        Workload::W2 => w2(maker, pairs),
        Workload::W3 => w3(maker, pairs),
    });
}

pub(crate) fn run(preset: &str, way: Way, workload: Workload, pairs: u64) -> Outcome {
    let Preset { name, policy } = VmapPolicy::preset(preset)?;
    note_alias(preset, name);
    let span = Span::sized(1 << 20, SPACE_PAGES)?;
    let config = VmapConfig { span, cpus: CpuSet::first(2)?, policy };
    let space = VmapSpace::new(config, Counting::default(), ())?;
    let cpu = space.cpus().by_rank(0).ok_or("no CPU")?;
    match way {
        Way::Handle => drive(&mut space.cpu(cpu)?, workload, pairs),
        Way::Call => drive(&mut (&space, cpu), workload, pairs),
    }
    Ok(())
}
