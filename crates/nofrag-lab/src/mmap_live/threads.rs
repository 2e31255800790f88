//! Live threads: the number of areas that their stacks make.
//!
//! The test of 2002 that made first fit quadratic (docs/sources/mmap.md#test-str02) keeps every thread alive. Each
//! stack is a mapping, and its guard splits it: two areas for each thread. The kernel has no trouble with that any
//! more, but `vm.max_map_count` ends it. Stacks that lie in one reservation, with guards that stand in the page tables,
//! are one area, however many.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nofrag::mmap::{
    AddressSpace, Attributes, Direction, Layout, MapFlags, Placement, Protection, SpaceConfig,
};
use nofrag::ranges::Span;
use nofrag::units::PageCount;
use nofrag_backing::reservation::Reservation;

use super::twin::Trouble;
use crate::apparatus::crowd::{Crowd, Stacks};
use crate::usage::{CpuTime, field_bytes};

/// Areas and time of a crowd of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Crowded {
    pub(super) areas_before: usize,
    pub(super) areas: usize,
    /// Processor time in the kernel until all threads ran, in seconds.
    pub(super) system_s: f64,
}

/// Bytes of a stack that the C library maps, as usual.
const SYSTEM_STACK: usize = 8 << 20;

/// Pages of a placed stack, its guard included.
const PLACED_STACK: u64 = 256;

/// Longest time that threads may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts `count` threads on stacks that the C library maps.
pub(super) fn on_system_stacks(count: usize, guard: usize) -> Result<Crowded, Trouble> {
    let areas = if guard == 0 { count / 100 } else { 2 * count };
    room_for(count, areas).map_err(Trouble::Skipped)?;
    let areas_before = own_areas()?;
    crowded(count, Stacks::System { bytes: SYSTEM_STACK, guard }, areas_before)
}

/// Starts `count` threads on stacks that an address space of ours has placed in one reservation.
pub(super) fn on_placed_stacks(count: usize) -> Result<Crowded, Trouble> {
    room_for(count, 1).map_err(Trouble::Skipped)?;
    let areas_before = own_areas()?;
    crowded(count, place(count)?, areas_before)
}

fn own_areas() -> Result<usize, Trouble> {
    let listed = fs::read_to_string("/proc/self/maps");
    let listed = listed.map_err(|why| Trouble::Skipped(format!("/proc/self/maps: {why}")))?;
    Ok(listed.lines().count())
}

/// Places stacks with guards in one reservation (docs/sources/mmap.md#g4).
fn place(count: usize) -> Result<Stacks, Trouble> {
    let refused =
        |what: &'static str| move |why: std::io::Error| Trouble::Skipped(format!("{what}: {why}"));
    let bytes = count * ((PLACED_STACK as usize) << 12);
    let reservation = Reservation::new(bytes, Protection::READ_WRITE);
    let mut reservation = reservation.map_err(refused("one reservation for all stacks"))?;
    // A kernel without huge pages needs no setting.
    let _ = reservation.without_huge_pages();
    let layout = Layout::window(reservation.pages(), Direction::Down);
    let mut space = AddressSpace::new(SpaceConfig::new(layout, Placement::TwoEnded));
    let memory = Attributes::anonymous(Protection::READ_WRITE);
    let mut stacks = Vec::with_capacity(count);
    for _ in 0..count {
        let start = space.map(PageCount(PLACED_STACK), memory, None, MapFlags::default());
        let start = start.map_err(|why| Trouble::Broken(why.to_string()))?.0;
        let guard = Span::sized(start, 1).expect("a page");
        let guarded = reservation.guard(guard);
        guarded.map_err(refused("guards in page tables, of Linux 6.13"))?;
        stacks.push(Span::sized(start + 1, PLACED_STACK - 1).expect("the rest of a stack"));
    }
    Ok(Stacks::Placed { reservation, stacks })
}

fn crowded(count: usize, stacks: Stacks, areas_before: usize) -> Result<Crowded, Trouble> {
    let before = CpuTime::now();
    let crowd = Crowd::start(count, stacks);
    let crowd = crowd.map_err(|why| Trouble::Skipped(why.to_string()))?;
    let begin = Instant::now();
    while crowd.stack_addresses().count() < count {
        if begin.elapsed() > PATIENCE {
            return Err(Trouble::Skipped("threads do not come to run in a minute".to_owned()));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let used = CpuTime::now().zip(before).map(|(now, before)| now.since(before).system_s);
    Ok(Crowded { areas_before, areas: own_areas()?, system_s: used.unwrap_or(f64::NAN) })
}

/// Upper bound of a live thread's memory: its kernel stack and records, the pages that it touches, page tables.
const THREAD_BYTES: u64 = 64 << 10;

/// Checks that `threads` threads with `areas` areas may be tried without taking the host down.
fn room_for(threads: usize, areas: usize) -> Result<(), String> {
    let limits = [
        ("/proc/sys/kernel/threads-max", 2 * threads),
        ("/proc/sys/kernel/pid_max", threads + threads / 4),
        ("/proc/sys/vm/max_map_count", areas + areas / 4),
    ];
    for (path, needed) in limits {
        let limit = number(&fs::read_to_string(path).unwrap_or_default()).unwrap_or(0);
        if limit < needed as u64 {
            return Err(format!("{threads} threads need {needed} in {path}, which has {limit}"));
        }
    }
    let free = field_bytes("/proc/meminfo", "MemAvailable").unwrap_or(0);
    let needed = 2 * THREAD_BYTES * threads as u64;
    if free < needed {
        return Err(format!("{threads} threads need {} MiB of memory", needed >> 20));
    }
    Ok(())
}

/// Returns the first number of a text.
fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}
