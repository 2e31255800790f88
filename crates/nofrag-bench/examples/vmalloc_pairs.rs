//! Areas over scattered frames, taken and given back: against `mmap` and `munmap` of ranges of a file in memory, in
//! turn. The time of a pair, the number of its calls, and the number of the kernel's mappings that areas take.
//!
//! ```text
//! cargo run --release -p nofrag-bench --example vmalloc_pairs -- [ROUNDS] [PAIRS]
//! ```
//!
//! 64 areas of 1 to 64 pages are live, and one chosen at random is replaced; of each either no page, the first or all
//! are touched. `file` maps a range of a file that is in memory already at an address that the kernel chooses, and
//! unmaps it at once; `nofrag` is `vmalloc` and `vfree`, with any contents, as the file has them. `pieces`: the same
//! when every second frame is in use. A line of JSON for each row; times are medians over rounds, of processor time.

use std::env;
use std::error::Error;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::Arc;

use nofrag::page::Migratetype;
use nofrag::units::Order;
use nofrag_backing::faults;
use nofrag_backing::frames::{Effort, Fill, FrameBlock, FrameRequest, Frames, FramesConfig};
use nofrag_backing::mapped::{Mapped, MappedConfig, VmallocArea, VmallocRequest};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

const BYTES: u64 = 128 << 20;
const LIVE: usize = 64;
const PAGE: usize = 4096;

/// The pages of an area that are written to.
#[derive(Clone, Copy)]
enum Touch {
    None,
    First,
    All,
}

/// Writes a byte to pages of an area.
///
/// # Safety
/// `pages` pages from `at` on are mapped, and no other thread uses them.
unsafe fn touch(at: *mut u8, pages: usize, touch: Touch) {
    let count = match touch {
        Touch::None => 0,
        Touch::First => 1,
        Touch::All => pages,
    };
    for page in 0..count {
        // SAFETY: the caller's promise.
        unsafe { at.add(page * PAGE).write_volatile(1) };
    }
}

/// A way to take areas and to give them back: ranges of a file, or nofrag's `vmalloc`.
trait Areas {
    type Area;
    fn take(&mut self, pages: usize, touched: Touch) -> Result<Self::Area, Box<dyn Error>>;
    fn give(&mut self, area: Self::Area) -> Result<(), Box<dyn Error>>;
}

/// Ranges of a file, one behind the other.
struct File {
    file: rustix::fd::OwnedFd,
    next: u64,
}

impl File {
    fn new() -> Result<File, Box<dyn Error>> {
        let file = rustix::fs::memfd_create("vmalloc-pairs", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, BYTES)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BYTES)?;
        Ok(File { file, next: 0 })
    }
}

impl Areas for File {
    type Area = (*mut u8, usize);

    fn take(&mut self, pages: usize, touched: Touch) -> Result<Self::Area, Box<dyn Error>> {
        let bytes = pages * PAGE;
        if self.next + bytes as u64 > BYTES {
            self.next = 0;
        }
        let offset = self.next;
        self.next += bytes as u64;
        let (both, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let at = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, both, shared, self.file.as_fd(), offset)
        }?;
        // SAFETY: it was just mapped.
        unsafe { touch(at.cast(), pages, touched) };
        Ok((at.cast(), bytes))
    }

    fn give(&mut self, (at, bytes): Self::Area) -> Result<(), Box<dyn Error>> {
        // SAFETY: it was mapped by `take`, and is no longer used.
        Ok(unsafe { rustix::mm::munmap(at.cast(), bytes) }?)
    }
}

impl Areas for Mapped {
    type Area = VmallocArea;

    fn take(&mut self, pages: usize, touched: Touch) -> Result<VmallocArea, Box<dyn Error>> {
        let owner = self.frames().owners().by_rank(0).ok_or("no owner")?;
        let request = VmallocRequest::new((pages * PAGE) as u64).fill(Fill::Anything);
        let area = self.vmalloc(owner, &request)?;
        let at = self.address(area.start()).ok_or("no address")?;
        // SAFETY: the area was just handed out.
        unsafe { touch(at, pages, touched) };
        Ok(area)
    }

    fn give(&mut self, area: VmallocArea) -> Result<(), Box<dyn Error>> {
        let owner = self.frames().owners().by_rank(0).ok_or("no owner")?;
        Ok(self.vfree(owner, area)?)
    }
}

/// Makes a space over frames of which all are free and in memory, or every second one if `in_pieces`.
fn mapped(in_pieces: bool) -> Result<Mapped, Box<dyn Error>> {
    let frames = Frames::new(&FramesConfig::new(BYTES))?;
    let owner = frames.owners().by_rank(0).ok_or("no owner")?;
    let page = FrameRequest::new(Order::ZERO, Migratetype::Unmovable).effort(Effort::AtHand);
    rustix::fs::fallocate(frames.file(), rustix::fs::FallocateFlags::empty(), 0, BYTES)?;
    let taken: Vec<FrameBlock> = std::iter::from_fn(|| frames.alloc(owner, page).ok()).collect();
    for block in taken.iter().filter(|block| !in_pieces || block.pfn.0 % 2 == 0) {
        frames.free(owner, block.pfn)?;
    }
    Ok(Mapped::new(Arc::new(frames), &MappedConfig::new(8 * BYTES))?)
}

/// Returns the nanoseconds of a pair: an area given back, and another one taken.
fn run<A: Areas>(areas: &mut A, touched: Touch, pairs: usize) -> Result<f64, Box<dyn Error>> {
    let mut random = Pcg64::seed_from_u64(5);
    let mut draw = |bound: usize| random.random_range(0..bound);
    let mut live = Vec::new();
    for _ in 0..LIVE {
        live.push(Some(areas.take(draw(64) + 1, touched)?));
    }
    let begin = processor_time();
    for _ in 0..pairs {
        let slot = draw(LIVE);
        let old = live[slot].take().ok_or("an empty slot")?;
        areas.give(old)?;
        live[slot] = Some(areas.take(draw(64) + 1, touched)?);
    }
    let ns = (processor_time() - begin) * 1e9 / pairs as f64;
    live.into_iter().flatten().try_for_each(|area| areas.give(area))?;
    Ok(ns)
}

/// Returns the seconds of processor time of this thread.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (rounds, pairs) = (number(7)?, number(20_000)?);
    let mut file = File::new()?;
    let (mut whole, mut scattered) = (mapped(false)?, mapped(true)?);
    for (name, touched) in [("none", Touch::None), ("first", Touch::First), ("all", Touch::All)] {
        let (mut times, mut calls) = ([Vec::new(), Vec::new(), Vec::new()], [0; 2]);
        for _ in 0..rounds {
            times[0].push(run(&mut file, touched, pairs)?);
            for (index, space) in [&mut whole, &mut scattered].into_iter().enumerate() {
                let before = faults::made();
                times[index + 1].push(run(space, touched, pairs)?);
                calls[index] += faults::made().since(&before).total();
            }
        }
        let [file, whole, scattered] = times.map(median);
        let per_pair = calls.map(|calls| calls as f64 / (rounds * pairs) as f64);
        println!(
            "{{\"row\": \"{name}\", \"file_ns\": {file:.0}, \"nofrag_ns\": {whole:.0}, \
             \"pieces_ns\": {scattered:.0}, \"calls\": {:.3}, \"pieces_calls\": {:.3}, \
             \"ratio\": {:.2}, \"pieces_ratio\": {:.2}}}",
            per_pair[0],
            per_pair[1],
            file / whole,
            file / scattered
        );
    }
    for (name, space) in [("whole", &whole), ("pieces", &scattered)] {
        let counters = space.counters();
        println!(
            r#"{{"row": "calls-{name}", "areas": {}, "map_calls": {}, "flushed": {}, "flush_calls": {}, "saved": {}}}"#,
            counters.areas,
            counters.map_calls,
            counters.flushed,
            counters.flush_calls,
            counters.calls_saved()
        );
    }
    Ok(())
}
