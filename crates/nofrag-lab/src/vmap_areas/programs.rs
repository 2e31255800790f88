//! The programs of the kernel's `test_vmalloc` that concern areas, without their pages.
//!
//! Sizes and orders are those of the kernel's test (docs/sources/vmap.md#test-bodies: 7.3); the work on memory is left
//! out: it is neither allocated, zeroed, written nor mapped. `pcpu_alloc` keeps only its requests to the area
//! allocator: the per-CPU chunks, one group of areas each, on two emulated NUMA nodes.

use nofrag::ranges::{AlignOne, RangeAllocator, Request, Span};
use nofrag::units::Vpn;
use nofrag::vmap::{AreaError, AreaRequest};

use super::worker::{Body, Watch, Worker};
use crate::key::Key;
use crate::spaces::Failure;

/// Returns the lazy limit of the space in one-page slots: the J of `full_fit`.
fn slots_of_limit<W: Watch>(worker: &Worker<'_, W>) -> u64 {
    worker.space.lazy_limit().get()
}

/// Loops of one page (or `--pages`): the best case, always at the left edge of a free area.
pub(super) struct FixSize;

impl Body for FixSize {
    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let start = worker.take_pages(worker.size.pages)?;
        worker.give(start)?;
        Ok(1)
    }
}

/// As many one-page holes as the lazy limit has pages; every loop fills one exactly.
pub(super) struct FullFit;

impl Body for FullFit {
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        let mut junk = Vec::new();
        for _ in 0..slots_of_limit(worker) {
            worker.keep(1)?;
            junk.push(worker.take_pages(1)?);
        }
        worker.give_all(junk)
    }

    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let start = worker.take_pages(1)?;
        worker.give(start)?;
        Ok(1)
    }
}

/// Number of areas that `long_busy` keeps.
pub(super) const LONG_BUSY_AREAS: usize = 15_000;

/// Pages of the holes below them in `long_busy_hole`: enough for the small request, too few for the large one.
const TOO_SMALL_PAGES: u64 = 50;

/// The space below the 15,000 areas.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Below {
    /// No holes: the space was fresh, as the kernel's test hopes.
    Nothing,
    /// Eight holes that are too small for the large request, as in any kernel that has run for a while.
    SmallHoles,
}

/// 15,000 areas stay; each loop takes 100 pages and one page and gives both back.
pub(super) struct LongBusy(pub(super) Below);

impl Body for LongBusy {
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        let mut holes = Vec::new();
        if self.0 == Below::SmallHoles {
            for _ in 0..8 {
                holes.push(worker.take_pages(TOO_SMALL_PAGES)?);
                worker.keep(1)?;
            }
        }
        for _ in 0..LONG_BUSY_AREAS {
            worker.keep(1)?;
        }
        if self.0 == Below::SmallHoles {
            worker.give_all(holes)?;
            worker.space.purge_all();
        }
        Ok(())
    }

    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let large = worker.take_pages(100)?;
        let small = worker.take_pages(1)?;
        worker.give(large)?;
        worker.give(small)?;
        Ok(1)
    }
}

/// Loops of 1 to 100 pages, each size as likely.
pub(super) struct RandomSize;

impl Body for RandomSize {
    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let pages = worker.random.between(1, 100);
        let start = worker.take_pages(pages)?;
        worker.give(start)?;
        Ok(1)
    }
}

/// Loops of five pages aligned to 32 KiB, twice the stack alignment of x86-64.
pub(super) struct FixAlign;

impl Body for FixAlign {
    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let start = worker.take(&AreaRequest::new(5).align((32 << 10) / PAGE_BYTES))?;
        worker.give(start)?;
        Ok(1)
    }
}

const PAGE_BYTES: u64 = 4096;

/// Aligns a request to a number of bytes: an alignment up to a page costs nothing, but older kernels pad for a whole
/// one.
fn aligned_to_bytes(request: AreaRequest, bytes: u64) -> AreaRequest {
    let align_one = if bytes < PAGE_BYTES { AlignOne::Byte } else { AlignOne::Number };
    request.align((bytes / PAGE_BYTES).max(1)).align_one(align_one)
}

/// Loops of 1 to 10 pages aligned to up to 4 MiB, size and alignment from one random byte.
pub(super) struct RandomSizeAlign;

impl Body for RandomSizeAlign {
    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let byte = worker.random.byte();
        let request = AreaRequest::new(u64::from(byte % 10) + 1);
        let start = worker.take(&aligned_to_bytes(request, 1 << (byte % 23)))?;
        worker.give(start)?;
        Ok(1)
    }
}

/// The name of `align_shift`'s count of the first alignment that was refused.
pub(super) const FIRST_REFUSED_SHIFT: Key = Key::count("first refused shift");

/// One page at every alignment from one byte up to 2^63, until the first is refused. The refusal is expected.
pub(super) struct AlignShift;

impl Body for AlignShift {
    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        for shift in 0..64_u32 {
            match worker.take(&aligned_to_bytes(AreaRequest::new(1), 1 << shift)) {
                Ok(start) => worker.give(start)?,
                Err(AreaError::Exhausted { .. }) => {
                    worker.sample.extra.insert(FIRST_REFUSED_SHIFT, u64::from(shift).into());
                    return Ok(u64::from(shift) + 1);
                }
                Err(other) => return Err(other.into()),
            }
        }
        Ok(64)
    }
}

/// Number of objects of `pcpu_alloc` (`nr_pcpu_objects`).
const PCPU_OBJECTS: u64 = 35_000;
/// Pages of one node's part of a per-CPU chunk: two emulated CPUs, each with a part of its own.
const GROUP_PAGES: u64 = 2 * UNIT_PAGES;
/// Pages of one CPU's part of a per-CPU chunk.
const UNIT_PAGES: u64 = 16;
/// Offsets, in pages, of the two nodes' parts of a per-CPU chunk: one gibibyte apart, as the memory of two nodes might
/// be.
const NODE_OFFSETS: [u64; 2] = [0, (1 << 30) / PAGE_BYTES];

/// 35,000 per-CPU objects of 1 to 1024 bytes with alignments of 2 to 2048: the chunks that they fill, then all freed.
#[derive(Default)]
pub(super) struct PerCpu {
    chunks: usize,
    live: Vec<Vpn>,
}

impl Body for PerCpu {
    /// Packs the objects, which needs no areas: a new chunk is opened when the present one has no room.
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Records(error.to_string());
        let unit = Span::sized(0, UNIT_PAGES * PAGE_BYTES).map_err(|error| failed(&error))?;
        let mut chunk = RangeAllocator::new(nofrag::ranges::Config::default());
        self.chunks = 0;
        for _ in 0..PCPU_OBJECTS {
            let size = worker.random.between(1, PAGE_BYTES / 4);
            let align = 1 << worker.random.between(1, 11);
            let request = Request::new(size).align(align);
            if self.chunks > 0 && chunk.alloc(&request).is_ok() {
                continue;
            }
            chunk = RangeAllocator::new(nofrag::ranges::Config::default());
            chunk.add_span(unit).map_err(|error| Failure::Records(format!("{error:?}")))?;
            chunk.alloc(&request).map_err(|error| failed(&error))?;
            self.chunks += 1;
        }
        Ok(())
    }

    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let sizes = [GROUP_PAGES; NODE_OFFSETS.len()];
        for _ in 0..self.chunks {
            self.live.push(worker.take_group(&NODE_OFFSETS, &sizes, UNIT_PAGES)?);
        }
        for base in self.live.drain(..) {
            worker.give_group(base, &NODE_OFFSETS)?;
        }
        Ok(self.chunks as u64)
    }
}
