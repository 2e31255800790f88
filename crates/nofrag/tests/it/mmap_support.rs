//! The programs that tell placements apart (docs/sources/mmap.md#programs), for tests of address spaces.

use nofrag::mmap::{
    AddressSpace, AreaFlags, AreaRecord, Attributes, Direction, Layout, MapError, MapFlags,
    Placement, Protection, SpaceConfig,
};
use nofrag::units::{PageCount, Vpn};
use sha2::{Digest as _, Sha256};

pub(crate) const MIB: u64 = 256;

/// Pages of a huge page.
pub(crate) const HUGE: u64 = 2 * MIB;

/// Memory that merges with its like.
pub(crate) const MEMORY: Attributes = Attributes::anonymous(Protection::READ_WRITE);

/// Memory that merges with nothing.
pub(crate) fn opaque() -> Attributes {
    MEMORY.with(AreaFlags::OPAQUE)
}

/// The generator of the workloads: xorshift of 64 bits (docs/sources/mmap.md#rnd).
#[derive(Clone, Debug)]
pub(crate) struct XorShift(u64);

impl Default for XorShift {
    fn default() -> Self {
        XorShift(88_172_645_463_325_252)
    }
}

impl XorShift {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns a page's number from its address.
pub(crate) const fn page(address: u64) -> Vpn {
    Vpn(address >> 12)
}

/// A 32-bit task that places downwards.
pub(crate) const COMPAT_DOWN: Layout =
    Layout { direction: Direction::Down, top: page(0xf7ff_e000), ..Layout::COMPAT_UP };

/// A process that maps and unmaps anonymous memory.
pub(crate) struct Process {
    pub(crate) space: AddressSpace,
    /// Number of areas loaded beside the program's own, which are not counted.
    loaded: usize,
}

impl Process {
    pub(crate) fn new(layout: Layout, placement: Placement) -> Process {
        let config = SpaceConfig::new(layout, placement);
        let config = SpaceConfig { map_limit: usize::MAX, ..config };
        Process { space: AddressSpace::new(config), loaded: 0 }
    }

    /// Returns the same process with these areas, pairs of start and end addresses, which merge with nothing and do not
    /// count.
    pub(crate) fn with_areas(mut self, areas: &[(u64, u64)]) -> Process {
        for &(start, end) in areas {
            let pages = PageCount((end - start) >> 12);
            self.space.load(page(start), pages, opaque()).unwrap();
            self.loaded += 1;
        }
        self
    }

    pub(crate) fn map_as(&mut self, pages: u64, attributes: Attributes) -> Result<u64, MapError> {
        let start = self.space.map(PageCount(pages), attributes, None, MapFlags::default())?;
        Ok(start.0)
    }

    /// Maps something that merges with nothing and does not count.
    pub(crate) fn map_uncounted(&mut self, pages: u64) -> u64 {
        self.loaded += 1;
        self.map_as(pages, opaque()).unwrap()
    }

    pub(crate) fn try_map(&mut self, pages: u64) -> Result<u64, MapError> {
        self.map_as(pages, MEMORY)
    }

    pub(crate) fn map(&mut self, pages: u64) -> u64 {
        self.try_map(pages).unwrap()
    }

    /// Maps where the caller wants it, which is free.
    pub(crate) fn map_at(&mut self, start: u64, pages: u64) -> u64 {
        self.space.map_fixed_noreplace(Vpn(start), PageCount(pages), MEMORY).unwrap();
        start
    }

    pub(crate) fn unmap(&mut self, start: u64, pages: u64) {
        self.space.unmap(Vpn(start), PageCount(pages)).unwrap();
    }

    /// Returns the number of areas that the program has mapped itself.
    pub(crate) fn areas(&self) -> usize {
        self.space.area_count() - self.loaded
    }

    /// Returns all areas, as pairs of addresses.
    pub(crate) fn list(&self) -> Vec<(u64, u64)> {
        let areas = self.space.areas();
        areas.map(|area| (area.start.0 << 12, area.end().0 << 12)).collect()
    }

    /// Returns the areas that the program has mapped itself, as pairs of addresses.
    pub(crate) fn own_list(&self) -> Vec<(u64, u64)> {
        let is_own = |area: &AreaRecord| !area.attributes.flags.any_of(AreaFlags::OPAQUE);
        let own = self.space.areas().filter(is_own);
        own.map(|area| (area.start.0 << 12, area.end().0 << 12)).collect()
    }

    pub(crate) fn visits(&self) -> u64 {
        self.space.counters().visits
    }

    /// Returns the pages of the largest hole in `start..end`.
    pub(crate) fn largest_hole(&self, start: Vpn, end: Vpn) -> u64 {
        let holes = self.space.holes();
        let cut = holes.map(|hole| hole.end().min(end.0).saturating_sub(hole.start().max(start.0)));
        cut.max().unwrap_or(0)
    }
}

/// `leakme` (osdl bug 4520): 600 slots of 1 to 7 MiB and 9,500,000 bytes; each mapping lives 540 iterations.
pub(crate) struct Leakme {
    pub(crate) starts: [Option<u64>; 600],
    pub(crate) next: u64,
    /// The most areas so far.
    pub(crate) peak: usize,
}

impl Leakme {
    /// Text, data and stack of a static program.
    pub(crate) const STATIC: [(u64, u64); 3] =
        [(0x0804_8000, 0x0804_9000), (0x0804_9000, 0x0804_a000), (0xfffe_b000, 0xffff_e000)];

    pub(crate) fn new() -> Leakme {
        Leakme { starts: [None; 600], next: 0, peak: 0 }
    }

    pub(crate) fn pages(slot: usize) -> u64 {
        match slot as u64 % 8 {
            0 => 9_500_000_u64.div_ceil(4096),
            mib => mib * MIB,
        }
    }

    /// Runs one iteration, which replaces one mapping.
    pub(crate) fn step(&mut self, process: &mut Process) -> Result<u64, MapError> {
        let old = ((self.next + 60) % 600) as usize;
        if let Some(start) = self.starts[old].take() {
            process.unmap(start, Leakme::pages(old));
        }
        let new = (self.next % 600) as usize;
        let start = process.try_map(Leakme::pages(new))?;
        self.starts[new] = Some(start);
        self.next += 1;
        self.peak = self.peak.max(process.areas());
        Ok(start)
    }

    /// Runs the iterations up to number `end`; the error is the number of the one that failed.
    pub(crate) fn run(&mut self, process: &mut Process, end: u64) -> Result<(), u64> {
        while self.next < end {
            self.step(process).map_err(|_| self.next)?;
        }
        Ok(())
    }
}

/// `leakme4` (Wander, 18 May 2005): every second of 128 mappings is replaced, half of them by single pages.
pub(crate) fn leakme4(process: &mut Process) {
    let mut starts = [0; 128];
    for (i, start) in starts.iter_mut().enumerate() {
        *start = process.map(MIB);
        if i == 0 {
            process.map(1);
        }
    }
    for start in starts.iter().step_by(2) {
        process.unmap(*start, MIB);
    }
    for i in (0..128).step_by(2) {
        process.map(if i & 4 == 0 { 1 } else { MIB });
    }
    for _ in 0..64 {
        process.map(MIB);
    }
}

/// The fixed areas of `leakme4`.
pub(crate) const LEAKME4_STATIC: [(u64, u64); 3] =
    [(0x0804_8000, 0x080a_3000), (0x080a_3000, 0x080a_5000), (0xfffe_c000, 0xffff_e000)];

/// Sizes of a random mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// 80 % up to 64 pages, 17 % 1 to 4 MiB, 3 % 16 MiB.
    Skewed,
    /// Powers of two from 1 to 2048 pages.
    Powers,
    /// Any size of 1 to 512 pages.
    Even,
}

impl Mix {
    pub(crate) const ALL: [Mix; 3] = [Mix::Skewed, Mix::Powers, Mix::Even];

    fn draw(self, random: &mut XorShift) -> u64 {
        match self {
            Mix::Skewed => match random.below(100) {
                0..80 => 1 + random.below(64),
                80..97 => MIB * (1 + random.below(4)),
                _ => 16 * MIB,
            },
            Mix::Powers => 1 << random.below(12),
            Mix::Even => 1 + random.below(512),
        }
    }
}

/// The areas and holes that a random mix leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MixOutcome {
    pub(crate) largest_hole: u64,
    pub(crate) free: u64,
    pub(crate) areas: usize,
    pub(crate) failures: u64,
}

/// Random lifetimes in a window of 2602.7 MiB that is 70 % full.
pub(crate) struct RandomMix {
    pub(crate) process: Process,
    mix: Mix,
    random: XorShift,
    /// Start and pages of each mapping.
    pub(crate) live: Vec<(u64, u64)>,
    pages: u64,
    failures: u64,
}

impl RandomMix {
    const START: Vpn = page(0x5555_5000);
    const END: Vpn = page(0xf7ff_e000);
    const BYTES: u64 = 0xa2aa_9000;
    const TARGET: u64 = RandomMix::BYTES / 100 * 70;

    pub(crate) fn new(mix: Mix, placement: Placement, direction: Direction) -> RandomMix {
        let layout = Layout {
            direction,
            floor: RandomMix::START,
            base: RandomMix::START,
            top: RandomMix::END,
            end: RandomMix::END,
            ..Layout::COMPAT_UP
        };
        let process = Process::new(layout, placement);
        let random = XorShift::default();
        RandomMix { process, mix, random, live: Vec::new(), pages: 0, failures: 0 }
    }

    /// Returns the same mix with other random numbers.
    pub(crate) fn seeded(self, random: XorShift) -> RandomMix {
        RandomMix { random, ..self }
    }

    pub(crate) fn run(mut self, replacements: u64) -> MixOutcome {
        self.fill();
        (0..replacements).for_each(|_| self.replace());
        MixOutcome {
            largest_hole: self.process.largest_hole(RandomMix::START, RandomMix::END),
            free: RandomMix::BYTES / 4096 - self.pages,
            areas: self.process.areas(),
            failures: self.failures,
        }
    }

    /// Maps until the window is as full as it should be.
    pub(crate) fn fill(&mut self) {
        while self.pages * 4096 < RandomMix::TARGET {
            let mapping = self.map().expect("the window is not full yet");
            self.live.push(mapping);
        }
    }

    /// Replaces one mapping, and unmaps or maps others until the window is as full as before.
    pub(crate) fn replace(&mut self) {
        let at = self.random.below(self.live.len() as u64) as usize;
        self.unmap(at);
        let Some(mapping) = self.map() else {
            self.live.swap_remove(at);
            return;
        };
        self.live[at] = mapping;
        while self.pages * 4096 > RandomMix::TARGET {
            let at = self.random.below(self.live.len() as u64) as usize;
            self.unmap(at);
            self.live.swap_remove(at);
        }
        while self.pages * 4096 < RandomMix::TARGET / 100 * 99 {
            let Some(mapping) = self.map() else { break };
            self.live.push(mapping);
        }
    }

    fn map(&mut self) -> Option<(u64, u64)> {
        let pages = self.mix.draw(&mut self.random);
        let Ok(start) = self.process.try_map(pages) else {
            self.failures += 1;
            return None;
        };
        self.pages += pages;
        Some((start, pages))
    }

    fn unmap(&mut self, at: usize) {
        let (start, pages) = self.live[at];
        self.process.unmap(start, pages);
        self.pages -= pages;
    }
}

/// Returns mean and maximum of the visits for each of 5,000 replacements among `count` unmergeable areas of 1 to 4
/// pages.
pub(crate) fn unmergeable_mix(layout: Layout, placement: Placement, count: u64) -> (f64, u64) {
    let mut process = Process::new(layout, placement);
    let mut random = XorShift::default();
    let map = |process: &mut Process, random: &mut XorShift| {
        let pages = 1 + random.below(4);
        (process.map_as(pages, opaque()).unwrap(), pages)
    };
    let mut live: Vec<_> = (0..count).map(|_| map(&mut process, &mut random)).collect();
    let (mut sum, mut most) = (0, 0);
    for replacement in 0..3 * count + 5000 {
        let at = random.below(count) as usize;
        let (start, pages) = live[at];
        process.unmap(start, pages);
        let before = process.visits();
        live[at] = map(&mut process, &mut random);
        if replacement >= 3 * count {
            let visits = process.visits() - before;
            sum += visits;
            most = most.max(visits);
        }
    }
    (sum as f64 / 5000.0, most)
}

/// Returns the SHA-256 of `text` in hexadecimal digits.
pub(crate) fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
