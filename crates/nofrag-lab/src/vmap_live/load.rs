//! Makes the kernel place areas: maps of bpf(2), and stacks of threads in the kernel.
//!
//! Most programs pause around every purge, so that nothing else is placed or freed meanwhile: they free as many areas
//! as the limit of lazy pages allows, wait until the kernel has freed them, and then free large areas one by one until
//! it purges. [`Racing`](Load::Racing) does not pause.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nofrag::vmap::VmapPolicy;
use nofrag_host::vmallocinfo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::lists::Entry;
use super::reads::Compressed;
use crate::apparatus::crowd::{Crowd, Stacks};
use crate::apparatus::kernel_areas::{FEWEST_PAGES, KernelArea};
use crate::random::Random;
use crate::usage::field_bytes;

/// The way in which areas are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Areas of 3 to 300 pages, made on one CPU after another; each replaces a random one.
    Maps,
    /// Crowds of threads, on one CPU after another.
    Threads,
    /// Areas as those of `Maps`, on all CPUs at a time, without a pause.
    Racing,
    /// Areas as those of `Maps`, and between them those of a compressed file that is read.
    Reads,
}

/// Length of a program that makes areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Length {
    /// Number of areas to make.
    pub(super) areas: u64,
    /// Threads of a crowd.
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// Pages of an area that only serves to reach the limit of lazy pages: too many for a pool, and the array of its pages
/// fits into one page, so that no second area comes with it.
const FILLER: u32 = 502;

/// Areas of `Maps` that are live at a time.
const SLOTS: usize = 400;

/// Operations on one CPU before the next one's turn.
const TURN: usize = 300;

/// Longest time that the kernel may take to free what was given back, or to purge.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pages of a thread's stack in the kernel, at least; and bytes of its stack in the process.
const STACK_PAGES: u64 = 5;
const STACK_BYTES: usize = 64 << 10;

/// A run of a program that makes areas.
pub(super) struct Loaded {
    /// The CPUs that this process may use. The thread itself moves from one to the other, and starts none for it: the
    /// stack of a thread in the kernel is an area, too.
    allowed: CpuSet,
    cpus: Vec<usize>,
    /// Lazy pages above which the kernel purges.
    limit: u64,
    /// Areas that fill the holes of the start.
    fill: Vec<KernelArea>,
    made: u64,
}

impl Loaded {
    /// Empties the pools of flushed areas and fills most holes, so that little is unknown of the space at the start.
    pub(super) fn prepare() -> io::Result<Loaded> {
        raise_limits();
        let allowed = sched_getaffinity(None)?;
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
        let limit = VmapPolicy::default().lazy_limit.pages(thread::available_parallelism()?.get());
        let mut loaded = Loaded { allowed, cpus, limit, fill: Vec::new(), made: 0 };
        for _ in 0..2 {
            loaded.purge()?;
        }
        // The kernel gives pooled areas back when it is asked for slab memory (docs/sources/vmap.md#pool-drain).
        fs::write("/proc/sys/vm/drop_caches", "2")?;
        loaded.fill()?;
        Ok(loaded)
    }

    /// Makes areas; returns their number.
    pub(super) fn run(&mut self, load: Load, length: Length) -> io::Result<u64> {
        self.made = 0;
        let done = match load {
            Load::Maps => self.maps(length),
            Load::Threads => self.threads(length),
            Load::Racing => self.race(length),
            Load::Reads => self.reads(length),
        };
        sched_setaffinity(None, &self.allowed)?;
        done?;
        self.settle()?;
        Ok(self.made)
    }

    fn maps(&mut self, length: Length) -> io::Result<()> {
        let mut random = Random::new(length.seed, 0);
        let mut slots = Slots::new(Sizes::NoStacks);
        let mut turns = 0;
        while self.made < length.areas {
            let mut room = (self.limit * 5 / 8).saturating_sub(self.settle()?);
            while room > 0 && self.made < length.areas {
                go_to(self.cpus[turns % self.cpus.len()])?;
                let turn = slots.replace(&mut random, TURN, room)?;
                self.made += turn.made;
                room = room.saturating_sub(turn.freed_pages);
                turns += 1;
            }
            self.purge()?;
        }
        Ok(())
    }

    fn reads(&mut self, length: Length) -> io::Result<()> {
        /// Areas between two reads.
        const BETWEEN: usize = 20;
        let mut compressed = Compressed::mount()?;
        let mut random = Random::new(length.seed, 0);
        let mut slots = Slots::new(Sizes::NoStacks);
        let mut turns = 0;
        while self.made < length.areas {
            let mut room = (self.limit * 5 / 8).saturating_sub(self.settle()?);
            while room > Compressed::PAGES && self.made < length.areas {
                go_to(self.cpus[turns % self.cpus.len()])?;
                let turn = slots.replace(&mut random, BETWEEN, room)?;
                compressed.read()?;
                self.made += turn.made;
                room = room.saturating_sub(turn.freed_pages + Compressed::PAGES);
                turns += 1;
            }
            self.purge()?;
        }
        Ok(())
    }

    /// Makes areas by turns, each of requests alone, and notes them with the list before and after each turn.
    pub(super) fn turns(&mut self, length: Length) -> io::Result<Vec<Entry>> {
        /// Picks of slots that a turn fills again; some are picked twice.
        const PICKS: usize = 200;
        let list = || fs::read_to_string("/proc/vmallocinfo").map(Entry::List);
        let mut random = Random::new(length.seed, 0);
        let mut slots = Slots::new(Sizes::Any);
        let mut entries = Vec::new();
        while self.made < length.areas {
            if self.settle()? > self.limit * 5 / 8 {
                self.purge()?;
            }
            (0..PICKS).for_each(|_| slots.areas[random.index(SLOTS)] = None);
            self.settle()?;
            entries.push(list()?);
            let taken = slots.fill(&mut random)?;
            self.made += taken.len() as u64;
            entries.extend([Entry::Take(taken), list()?]);
        }
        Ok(entries)
    }

    fn threads(&mut self, length: Length) -> io::Result<()> {
        while self.made < length.areas {
            let room = (self.limit * 5 / 8).saturating_sub(self.settle()?) / STACK_PAGES;
            let count = (room as usize).min(length.threads) / self.cpus.len();
            let crowds = self.cpus.iter().map(|&cpu| {
                // Threads stay where the one that starts them may run.
                go_to(cpu)?;
                crowd(count)
            });
            let crowds = crowds.collect::<io::Result<Vec<_>>>()?;
            self.made += (count * crowds.len()) as u64;
            drop(crowds);
            self.purge()?;
        }
        Ok(())
    }

    fn race(&mut self, length: Length) -> io::Result<()> {
        let share = length.areas as usize / self.cpus.len();
        thread::scope(|scope| {
            let racers = self.cpus.iter().map(|&cpu| {
                scope.spawn(move || {
                    go_to(cpu)?;
                    let mut random = Random::new(length.seed, 1 + cpu as u64);
                    Slots::new(Sizes::Any).replace(&mut random, share, u64::MAX)
                })
            });
            let racers: Vec<_> = racers.collect();
            for racer in racers {
                self.made += racer.join().expect("a racer does not panic")?.made;
            }
            Ok(())
        })
    }

    /// Frees large areas until the kernel purges.
    fn purge(&mut self) -> io::Result<()> {
        /// On a busy host the kernel may purge between the look at the lazy pages and the fillers.
        const TRIES: usize = 5;
        for _ in 0..TRIES {
            let lazy = self.settle()?;
            let near = self.limit.saturating_sub(lazy) / u64::from(FILLER);
            let fillers = (0..near + 3).map(|_| KernelArea::new(FILLER));
            let mut fillers = fillers.collect::<io::Result<Vec<_>>>()?;
            self.made += fillers.len() as u64;
            fillers.truncate(4);
            let mut before = self.settle()?;
            for filler in fillers {
                drop(filler);
                let now = self.settle()?;
                if now < before {
                    return Ok(());
                }
                before = now;
            }
        }
        Err(io::Error::other("the kernel does not purge when its limit of lazy pages is reached"))
    }

    /// Waits until the number of lazy pages stays the same for a while, and returns it.
    fn settle(&self) -> io::Result<u64> {
        const PAUSE: Duration = Duration::from_millis(5);
        let begin = Instant::now();
        let mut lazy = lazy_pages()?;
        let mut calm = 0;
        while calm < 3 && begin.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
            let now = lazy_pages()?;
            calm = if now == lazy { calm + 1 } else { 0 };
            lazy = now;
        }
        Ok(lazy)
    }

    /// Fills holes below the open end of the space, lowest first, each exactly: the search takes the lowest.
    fn fill(&mut self) -> io::Result<()> {
        let holes = holes(&fs::read("/proc/vmallocinfo")?);
        let pages: u64 = holes.iter().sum();
        if pages > available_pages() / 4 {
            return Ok(());
        }
        for mut hole in holes {
            while hole >= u64::from(FEWEST_PAGES) {
                let piece = match hole {
                    ..=500 => hole,
                    // The rest must not be too small.
                    _ => 500 - u64::from(FEWEST_PAGES),
                };
                self.fill.push(KernelArea::new(piece as u32)?);
                hole -= piece;
            }
        }
        Ok(())
    }
}

/// Slots of areas.
struct Slots {
    areas: Vec<Option<KernelArea>>,
    sizes: Sizes,
}

/// The sizes of areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    /// Never that of a stack: stacks of processes that were there before come to the pool of their size, and nobody
    /// knows by whom.
    NoStacks,
    Any,
}

/// The outcome of a turn.
struct Turn {
    made: u64,
    freed_pages: u64,
}

impl Slots {
    fn new(sizes: Sizes) -> Slots {
        Slots { areas: (0..SLOTS).map(|_| None).collect(), sizes }
    }

    /// Replaces random areas, at most `most`, until `room` pages were freed.
    fn replace(&mut self, random: &mut Random, most: usize, room: u64) -> io::Result<Turn> {
        let mut turn = Turn { made: 0, freed_pages: 0 };
        while turn.made < most as u64 && turn.freed_pages < room {
            let slot = random.index(SLOTS);
            if let Some(old) = self.areas[slot].take() {
                turn.freed_pages += u64::from(old.pages());
            }
            self.areas[slot] = Some(KernelArea::new(self.pages(random))?);
            turn.made += 1;
        }
        Ok(turn)
    }

    /// Makes an area in each empty slot; returns their sizes, in the order in which they were made.
    fn fill(&mut self, random: &mut Random) -> io::Result<Vec<u64>> {
        let mut taken = Vec::new();
        for slot in 0..SLOTS {
            if self.areas[slot].is_none() {
                let pages = self.pages(random);
                self.areas[slot] = Some(KernelArea::new(pages)?);
                taken.push(u64::from(pages));
            }
        }
        Ok(taken)
    }

    /// Chooses a size. Sizes repeat, so that pools serve many; some are too large for a pool.
    fn pages(&self, random: &mut Random) -> u32 {
        let pages = match random.index(8) {
            0 => random.between(3, 300),
            _ => random.between(3, 10),
        };
        match self.sizes {
            Sizes::NoStacks if pages == STACK_PAGES => pages as u32 + 1,
            _ => pages as u32,
        }
    }
}

/// Moves the calling thread to a CPU.
fn go_to(cpu: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}

/// Starts threads and waits until all run.
fn crowd(count: usize) -> io::Result<Crowd> {
    let stacks = Stacks::System { bytes: STACK_BYTES, guard: 0 };
    let crowd = Crowd::start(count, stacks).map_err(io::Error::other)?;
    let begin = Instant::now();
    while crowd.stack_addresses().count() < count && begin.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(crowd)
}

/// Returns the number of pages that are freed and not purged.
fn lazy_pages() -> io::Result<u64> {
    let text = fs::read("/proc/vmallocinfo")?;
    let parsed = vmallocinfo::parse(&text);
    let lazy = parsed.areas.iter().filter(|area| area.is_lazy());
    Ok(lazy.map(|area| area.size >> 12).sum())
}

/// Returns the lengths of the holes between areas, lowest first, up to the one that is as good as endless.
fn holes(vmallocinfo: &[u8]) -> Vec<u64> {
    const ENDLESS: u64 = 1 << 20;
    let parsed = vmallocinfo::parse(vmallocinfo);
    let mut spans: Vec<(u64, u64)> = parsed
        .areas
        .iter()
        .filter_map(|area| area.printed.map(|printed| (printed.start >> 12, printed.end >> 12)))
        .collect();
    spans.sort_unstable();
    let gaps = spans.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1));
    gaps.take_while(|&gap| gap < ENDLESS).filter(|&gap| gap > 0).collect()
}

fn available_pages() -> u64 {
    field_bytes("/proc/meminfo", "MemAvailable").unwrap_or(0) / 4096
}

/// Lets this process have as many open files as it may, as each area is one, and as much memory of maps: until Linux
/// 5.11 they count as locked.
fn raise_limits() {
    let limit = getrlimit(Resource::Nofile);
    let files = Rlimit { current: limit.maximum, ..limit };
    let memory = Rlimit { current: None, maximum: None };
    for (resource, raised) in [(Resource::Nofile, files), (Resource::Memlock, memory)] {
        // A refusal shows when areas are made.
        let _ = setrlimit(resource, raised);
    }
}
