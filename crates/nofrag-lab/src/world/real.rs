//! Real memory behind the frames of a run, for `--real`.
//!
//! The allocator hands out frames by number, and does so here too: neither requests nor answers change. The owners of
//! frames now use their memory. Writers and readers write and read whole pages of files, a moved page is copied, blocks
//! of slabs and short-lived blocks are written by the owner that gets them; and all is read again before it is given
//! up, so that a frame with two owners, or a page that was moved without its contents, is found. A unit that the
//! huge-page program touches is mapped in a window, zeroed and written for real, and its clock runs while the allocator
//! works for it: also while reclaim and compaction do, with the pages that they copy.
//!
//! One unit is in the window at a time; when it is done, and its time is taken, the window is cleared. Its frames stay
//! taken. If all stayed mapped, each scattered frame would cost an area of the kernel, which allows a process 65,530.

use std::io;
use std::time::{Duration, Instant};

use crate::apparatus::machine::{MachineMemory, UNIT_PAGES};
use foldhash::{HashMap, HashMapExt};

use super::contents::FrameNumber;
use crate::stats::{Latencies, Tail};

/// The kind of owner that wrote a page, from which its stamp (the pattern that it is filled with) is made.
#[derive(Clone, Copy)]
enum Owned {
    /// A page of a file, by its number.
    File,
    /// A block that does not move, by its first frame.
    Block,
    /// A page of a process, by its place and its number there.
    Process,
}

impl Owned {
    fn stamp(self, number: u64) -> u64 {
        // Neighbours differ in many bits, so that no shift of contents goes unseen.
        ((self as u64) << 56 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn process_stamp(place: u32, page: usize) -> u64 {
    Owned::Process.stamp(u64::from(place) * UNIT_PAGES as u64 + page as u64)
}

/// The times of units that were served in one way, with a huge page or with single ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitTimes {
    latencies: Latencies,
    sum: Duration,
    units: u32,
}

impl UnitTimes {
    fn record(&mut self, took: Duration) {
        self.latencies.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.sum += took;
        self.units += 1;
    }

    /// Adds the times of another run.
    pub(crate) fn merge(&mut self, other: &UnitTimes) {
        self.latencies.merge(&other.latencies);
        self.sum += other.sum;
        self.units += other.units;
    }

    /// Returns the mean of all units in microseconds; `None` without any.
    pub(crate) fn mean_us(&self) -> Option<f64> {
        (self.units > 0).then(|| self.sum.as_secs_f64() * 1e6 / f64::from(self.units))
    }

    pub(crate) fn tail(&self) -> Option<Tail> {
        self.latencies.tail()
    }
}

/// The use of real memory in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RealResult {
    /// Units that got a huge page.
    pub(crate) huge: UnitTimes,
    pub(crate) base: UnitTimes,
    /// Pages written into the page cache.
    pub(crate) written: u64,
    /// Pages and blocks that were read and found as they were written.
    pub(crate) verified: u64,
    /// Pages and blocks that were read and found otherwise.
    pub(crate) lost: u64,
    pub(crate) moved: u64,
}

/// The memory of a run, and the measurements under way.
#[derive(Debug)]
pub(crate) struct RealMemory {
    frames: MachineMemory,
    /// Number of pages of each block that does not move, by its first frame.
    blocks: HashMap<FrameNumber, u64>,
    /// Number of pages of each place in the process.
    places: Vec<usize>,
    unit: Unit,
    result: RealResult,
    trouble: Option<io::Error>,
}

/// The unit in the window.
#[derive(Debug, Default)]
struct Unit {
    took: Duration,
    mapped: usize,
    /// The place in the process of the pages that are mapped first; the others follow it.
    place: u32,
}

impl RealMemory {
    pub(crate) fn new(frames: MachineMemory) -> RealMemory {
        RealMemory {
            frames,
            blocks: HashMap::new(),
            places: Vec::new(),
            unit: Unit::default(),
            result: RealResult::default(),
            trouble: None,
        }
    }

    /// Returns the memory and the measurements.
    ///
    /// # Errors
    /// The first system call that failed.
    pub(crate) fn end(self) -> io::Result<(MachineMemory, RealResult)> {
        self.trouble.map_or(Ok((self.frames, self.result)), Err)
    }

    /// Writes a page of a file that comes into memory.
    pub(crate) fn write_page(&mut self, frame: FrameNumber, page: u32) {
        self.frames.fill(u64::from(frame), Owned::File.stamp(u64::from(page)));
        self.result.written += 1;
    }

    /// Verifies a page of a file, as a thread reads it or as it leaves memory.
    pub(crate) fn read_page(&mut self, frame: FrameNumber, page: u32) {
        self.verify(u64::from(frame), Owned::File.stamp(u64::from(page)));
    }

    /// Writes a block that does not move and is handed out.
    pub(crate) fn take_block(&mut self, frame: FrameNumber, pages: u64) {
        for page in u64::from(frame)..u64::from(frame) + pages {
            self.frames.fill(page, Owned::Block.stamp(page));
        }
        if self.blocks.insert(frame, pages).is_some() {
            self.result.lost += 1;
        }
    }

    /// Verifies a block that does not move before it is given back; other frames are left unread.
    pub(crate) fn give_back(&mut self, frame: FrameNumber) {
        let pages = self.blocks.remove(&frame).unwrap_or(0);
        for page in u64::from(frame)..u64::from(frame) + pages {
            self.verify(page, Owned::Block.stamp(page));
        }
    }

    /// Copies a page to another frame; moves it in the window too, if the unit that is being touched has it already.
    pub(crate) fn relocate(&mut self, from: FrameNumber, to: FrameNumber) {
        if let Err(error) = self.frames.relocate(u64::from(from), u64::from(to)) {
            self.trouble.get_or_insert(error);
        }
        self.result.moved += 1;
    }

    /// Maps `pages` frames for `place` of the process behind the present content of the window, and zeroes them.
    pub(crate) fn fault(&mut self, frame: FrameNumber, pages: usize, place: u32) {
        assert_eq!(place as usize, self.places.len(), "places are taken in order");
        self.places.push(pages);
        if self.unit.mapped == 0 {
            self.unit.place = place;
        }
        if let Err(error) = self.frames.fault(self.unit.mapped, u64::from(frame), pages) {
            self.trouble.get_or_insert(error);
        }
        self.unit.mapped += pages;
    }

    /// Verifies all pages of a process that ends.
    pub(crate) fn end_of_process(&mut self, pages: &[FrameNumber]) {
        for (place, frame) in pages.iter().enumerate() {
            let count = self.places.get(place).copied().unwrap_or(0);
            for page in 0..count {
                let stamp = process_stamp(place as u32, page);
                self.verify(u64::from(*frame) + page as u64, stamp);
            }
        }
        self.places.clear();
    }

    /// Adds `took` to the time of the present unit. If the unit is whole, the program writes to it, and it is done.
    pub(crate) fn toucher_moved(&mut self, took: Duration) {
        self.unit.took += took;
        if self.unit.mapped < UNIT_PAGES {
            return;
        }
        let first = self.unit.place;
        let is_huge = self.places.len() == first as usize + 1;
        let began = Instant::now();
        self.frames.write_unit(|page| match is_huge {
            true => process_stamp(first, page),
            false => process_stamp(first + page as u32, 0),
        });
        let took = self.unit.took + began.elapsed();
        if is_huge { &mut self.result.huge } else { &mut self.result.base }.record(took);
        if let Err(error) = self.frames.clear_window() {
            self.trouble.get_or_insert(error);
        }
        self.unit = Unit::default();
    }

    fn verify(&mut self, frame: u64, stamp: u64) {
        match self.frames.holds(frame, stamp) {
            true => self.result.verified += 1,
            false => self.result.lost += 1,
        }
    }
}
