//! Ranges and pages, for those who simulate.

use nofrag::cpu::CpuId;
use nofrag::page::{
    FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig, PageRequest,
};
use nofrag::ranges::{AllocError, Fit, RangeAllocator, Request, Span};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{NoMemory, error};

/// Free ranges of numbers: addresses, slots, blocks of a file.
#[pyclass(module = "nofrag")]
pub(crate) struct Ranges(RangeAllocator);

fn span(start: u64, end: u64) -> PyResult<Span> {
    Span::new(start, end).map_err(error)
}

#[pymethods]
impl Ranges {
    #[new]
    fn new(start: u64, end: u64) -> PyResult<Ranges> {
        RangeAllocator::over(span(start, end)?).map(Ranges).map_err(error)
    }

    /// Takes `size` consecutive numbers, and returns the first.
    #[pyo3(signature = (size, align=1, within=None, fit="lowest"))]
    fn alloc(
        &mut self,
        size: u64,
        align: u64,
        within: Option<(u64, u64)>,
        fit: &str,
    ) -> PyResult<u64> {
        let fit = match fit {
            "lowest" => Fit::Lowest,
            "highest" => Fit::Highest,
            "best" => Fit::Best,
            "dynamic" => Fit::Dynamic,
            other => {
                let known = "lowest, highest, best, dynamic";
                return Err(error(format!("there is no fit {other:?}; there are {known}")));
            }
        };
        let mut request = Request::new(size).align(align).fit(fit);
        if let Some((start, end)) = within {
            request = request.within(span(start, end)?);
        }
        self.0.alloc(&request).map(Span::start).map_err(|why| match why {
            AllocError::Exhausted { .. } => NoMemory::new_err(why.to_string()),
            why => error(why),
        })
    }

    /// Takes this range.
    fn alloc_at(&mut self, start: u64, end: u64) -> PyResult<()> {
        self.0.alloc_at(span(start, end)?).map_err(error)
    }

    /// Gives `size` numbers from `start` on back.
    fn free(&mut self, start: u64, size: u64) -> PyResult<()> {
        let end = start.checked_add(size).ok_or_else(|| error("the range ends beyond 2^64"))?;
        self.0.free(span(start, end)?).map_err(error)
    }

    /// The size of the largest free range.
    #[getter]
    fn largest(&self) -> u64 {
        self.0.largest()
    }

    /// All free ranges, as pairs of first number and end.
    #[getter]
    fn holes(&self) -> Vec<(u64, u64)> {
        self.0.iter_free().map(|hole| (hole.start(), hole.end())).collect()
    }

    /// The share of free numbers that no request of `size` can use, in thousandths.
    fn unusable_index(&self, size: u64) -> u32 {
        self.0.unusable_index(size)
    }
}

/// The page frames of a machine under a policy. Nobody owns the pages: a request for which memory would have to be
/// reclaimed or moved fails.
#[pyclass(module = "nofrag")]
pub(crate) struct Pages {
    pages: PageAllocator,
    cpus: Vec<CpuId>,
    now: u64,
}

impl Pages {
    fn cpu(&self, cpu: usize) -> PyResult<CpuId> {
        let found = self.cpus.get(cpu).copied();
        found.ok_or_else(|| error(format!("there are {} CPUs, and no {cpu}", self.cpus.len())))
    }
}

#[pymethods]
impl Pages {
    #[new]
    #[pyo3(signature = (frames, cpus=1, policy="nofrag"))]
    fn new(frames: u64, cpus: u32, policy: &str) -> PyResult<Pages> {
        let map = MemoryMap::pc(PageCount(frames), cpus).map_err(error)?;
        let ids = (0..cpus).filter_map(|rank| map.cpus().by_rank(rank as usize)).collect();
        let preset = FragmentationPolicy::preset(policy).map_err(error)?;
        let pages = PageAllocator::new(&PageConfig::new(map, preset.policy)).map_err(error)?;
        Ok(Pages { pages, cpus: ids, now: 0 })
    }

    /// Takes a block of 2 to the power of `order` pages, and returns its first frame.
    #[pyo3(signature = (order=0, kind="movable", cpu=0))]
    fn alloc(&mut self, order: u8, kind: &str, cpu: usize) -> PyResult<u64> {
        let mobility = match kind {
            "unmovable" => Migratetype::Unmovable,
            "movable" => Migratetype::Movable,
            "reclaimable" => Migratetype::Reclaimable,
            other => {
                let known = "unmovable, movable, reclaimable";
                return Err(error(format!("there is no type {other:?}; there are {known}")));
            }
        };
        let order = Order::new(order).ok_or_else(|| error("an order is from 0 to 10"))?;
        let cpu = self.cpu(cpu)?;
        self.now += 1;
        let request = PageRequest::new(order, mobility);
        self.pages.alloc(Nanos(self.now), cpu, request).map(|pfn| pfn.0).map_err(|_| {
            NoMemory::new_err(format!(
                "no zone has a free block of order {} above its watermark: free some, or ask for less",
                order.get()
            ))
        })
    }

    /// Gives the block that begins at a frame back.
    #[pyo3(signature = (pfn, cpu=0))]
    fn free(&mut self, pfn: u64, cpu: usize) -> PyResult<()> {
        let cpu = self.cpu(cpu)?;
        self.pages.free(cpu, Pfn(pfn)).map_err(error)
    }

    /// Free pages by zone, those on the lists of CPUs not included.
    #[getter]
    fn free_pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let zones = PyDict::new(py);
        for zone in self.pages.zones() {
            zones.set_item(format!("{:?}", zone.kind), zone.free.get())?;
        }
        Ok(zones)
    }

    /// Events of external fragmentation so far.
    #[getter]
    fn extfrag(&self) -> u64 {
        self.pages.counters().events()
    }

    /// Blocks handed out from pageblocks of another type so far.
    #[getter]
    fn mistyped(&self) -> u64 {
        self.pages.counters().mistyped.iter().sum()
    }
}
