//! Helpers of the vmap tests: spaces of every preset, a book of stale translations, and small random numbers.

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::vmap::{Epoch, LazyLimit, Mapper, Preset, RamArea, VmapConfig, VmapPolicy, VmapSpace};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A mapper that knows for each page whether stale translations of it may be cached: set when a freed area is cleared,
/// reset by a flush.
pub(crate) struct StaleBook {
    base: u64,
    stale: Vec<AtomicBool>,
    pub(crate) flushes: AtomicU64,
    pub(crate) ranges: AtomicU64,
    /// Set where an owner and another thread may both clear what both free.
    pub(crate) forgives: AtomicBool,
}

impl StaleBook {
    pub(crate) fn new(span: Span) -> StaleBook {
        StaleBook {
            base: span.start(),
            stale: (0..span.len()).map(|_| AtomicBool::new(false)).collect(),
            flushes: AtomicU64::new(0),
            ranges: AtomicU64::new(0),
            forgives: AtomicBool::new(false),
        }
    }

    fn of(&self, span: Span) -> &[AtomicBool] {
        let start = (span.start() - self.base) as usize;
        &self.stale[start..start + span.len() as usize]
    }

    /// Returns true if a page of `span` was cleared and not flushed since.
    pub(crate) fn is_stale(&self, span: Span) -> bool {
        self.of(span).iter().any(|page| page.load(Ordering::SeqCst))
    }
}

impl Mapper for StaleBook {
    type Context = ();
    type Error = Infallible;

    fn install(&self, area: RamArea, _context: &()) -> Result<(), Infallible> {
        assert!(!self.is_stale(area.span()), "{area:?} is mapped where translations are stale");
        Ok(())
    }

    fn clear(&self, area: Span) {
        for page in self.of(area) {
            let twice = page.swap(true, Ordering::SeqCst);
            let forgiven = self.forgives.load(Ordering::SeqCst);
            assert!(!twice || forgiven, "{area:?} was cleared twice");
        }
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        let epoch = Epoch(self.flushes.fetch_add(1, Ordering::SeqCst) + 1);
        self.ranges.fetch_add(ranges.len() as u64, Ordering::SeqCst);
        for pair in ranges.windows(2) {
            assert!(pair[0].end() <= pair[1].start(), "flushed ranges ascend and are disjoint");
        }
        for range in ranges {
            self.of(*range).iter().for_each(|page| page.store(false, Ordering::SeqCst));
        }
        epoch
    }

    /// Every flush returns when it is done; the one whose number is largest may still be running elsewhere, but a
    /// thread that asks has its own flush behind it.
    fn completed(&self) -> Epoch {
        Epoch(self.flushes.load(Ordering::SeqCst))
    }
}

/// True where Linux's newer presets have several nodes with pools; on 32-bit machines Linux has one node, and so no
/// pools.
pub(crate) const HAS_NODES: bool = usize::BITS == 64;

pub(crate) type TestSpace = VmapSpace<StaleBook>;

pub(crate) fn span(start: u64, len: u64) -> Span {
    Span::sized(start, len).unwrap()
}

pub(crate) fn space_of(policy: VmapPolicy, span: Span, cpus: u32) -> TestSpace {
    let cpus = CpuSet::first(cpus).unwrap();
    VmapSpace::new(VmapConfig { span, cpus, policy }, StaleBook::new(span), ()).unwrap()
}

pub(crate) fn cpu(space: &TestSpace, rank: usize) -> CpuId {
    space.cpus().by_rank(rank).unwrap()
}

/// Returns every preset, with a lazy limit that a small test reaches.
pub(crate) fn presets_with_limit(pages: u64) -> impl Iterator<Item = Preset> {
    VmapPolicy::presets().map(move |preset| Preset {
        policy: VmapPolicy { lazy_limit: LazyLimit::Pages(pages), ..preset.policy },
        ..preset
    })
}
