//! Looks at a host again and again, at a cost that stays small.
//!
//! The sources differ in cost by more than a thousand times. `buddyinfo`, `zoneinfo`, `vmstat` and `meminfo` take some
//! hundredths of a millisecond each and are read at every [`look`](Watch::look). Reading the others takes milliseconds,
//! and some hold a lock of the kernel meanwhile. Each [`Source`] has a [`Pace`], and is read again only when its own
//! CPU time, as measured at the last reading, stays below its share of a core. So a host with a hundred times the areas
//! is looked at a hundred times less often, without any setting.
//!
//! `pagetypeinfo` is read only where it is asked for: it walks every free list while it holds the zone's lock.
//!
//! Source: docs/sources/trace.md#sources, #t2.

mod history;
mod pace;
pub mod page;

use std::io::{self, Read};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

pub use history::{Forecast, History, Rate};
pub use pace::Pace;

use crate::lists::grow;
use crate::machine::verdict::{Judge, Verdict};
use crate::process::ranking::{self, Ranking};
use crate::snapshot::{Files, Snapshot};
use crate::source::{self, Missing, Root};
use crate::vmalloc;

/// Files that are read as a whole.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(const_into_str)]
pub enum Source {
    /// `buddyinfo`, `zoneinfo`, `vmstat`, `meminfo`: a quarter of a millisecond.
    #[strum(serialize = "memory")]
    Memory,
    /// `vmallocinfo`: a few microseconds for each area.
    #[strum(serialize = "vmallocinfo")]
    Vmalloc,
    /// `maps` of every process: a few microseconds for each area.
    #[strum(serialize = "maps")]
    Maps,
    /// `pagetypeinfo`: some hundred times the cost of `buddyinfo`.
    #[strum(serialize = "pagetypeinfo")]
    Types,
}

impl Source {
    /// Returns the pace of the source: all together take at most three quarters of a hundredth of a core.
    #[must_use]
    pub const fn pace(self) -> Pace {
        let (least_ms, share) = match self {
            Source::Memory => (0, 0.0025),
            Source::Vmalloc => (5_000, 0.002),
            Source::Maps => (10_000, 0.002),
            Source::Types => (60_000, 0.001),
        };
        Pace { least: Duration::from_millis(least_ms), share }
    }
}

/// The files of [`Source::Memory`]: name, path, and the facts that are missing without it.
const MEMORY: [(&str, &str, &str); 5] = [
    ("version", "proc/version", "the kernel's release"),
    ("buddyinfo", "proc/buddyinfo", "free blocks by order, and the indices"),
    ("zoneinfo", "proc/zoneinfo", "zones, watermarks and boost"),
    ("vmstat", "proc/vmstat", "what reclaim, compaction and huge pages did"),
    ("meminfo", "proc/meminfo", "how much of the free memory the free lists show"),
];

/// Time limit for counting areas: a scraper waits some ten seconds in all.
const MAPS_PATIENCE: Duration = Duration::from_secs(4);

/// Initial bytes of the buffer: room for the largest of the files on most hosts, so that few calls read it.
const ROOM: usize = 256 << 10;

/// Looks at a host again and again.
#[derive(Debug)]
pub struct Watch {
    root: Root,
    began: Instant,
    slots: Vec<Slot>,
    look: Look,
    judge: Judge,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Slot {
    source: Source,
    pace: Pace,
    /// Time from which on the source may be read again.
    due: Duration,
}

/// The last reading of each source.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Time at which the memory was read, from the beginning of the watch.
    pub at: Duration,
    /// The files of [`Source::Memory`], and `pagetypeinfo` where it was asked for.
    pub files: Files,
    /// The verdict on these files and those of the looks before; `None` without zones.
    pub verdict: Option<Verdict>,
    pub vmalloc: Option<vmalloc::VmallocReport>,
    /// The processes by the number of their areas.
    pub maps: Option<Ranking>,
    /// The last reading of each source, with its cost.
    pub readings: Vec<Reading>,
    /// CPU time that this process had taken until the look.
    pub own_cpu: Duration,
}

/// The last reading of a source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    pub source: Source,
    /// CPU seconds of the reading, and of the computation on its result.
    pub cpu_seconds: f64,
    /// Time of the reading, from the beginning of the watch.
    #[serde(skip)]
    pub at: Duration,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
}

impl Look {
    /// Parses the files of the look.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::parse(&self.files)
    }

    /// Returns the files that could not be had, with the facts that are missing for want of them.
    pub fn missing(&self) -> impl Iterator<Item = &Missing> {
        self.readings.iter().flat_map(|reading| &reading.missing)
    }
}

impl Watch {
    /// Makes a watch of the host with these sources, each at its own pace.
    #[must_use]
    pub fn new(root: Root, sources: &[Source]) -> Watch {
        let slot = |&source: &Source| Slot { source, pace: source.pace(), due: Duration::ZERO };
        Watch {
            root,
            began: Instant::now(),
            slots: sources.iter().map(slot).collect(),
            look: Look::default(),
            judge: Judge::default(),
            buffer: Vec::new(),
        }
    }

    /// Reads the sources that are due, and returns the last reading of each.
    pub fn look(&mut self) -> &Look {
        for index in 0..self.slots.len() {
            if self.slots[index].due <= self.began.elapsed() {
                self.read(index);
            }
        }
        let verdict = self.judge.look(self.look.at, &self.look.snapshot()).cloned();
        self.look.verdict = verdict;
        self.look.own_cpu = cpu_time(ClockId::ProcessCPUTime);
        &self.look
    }

    /// Returns the last reading of each source.
    #[must_use]
    pub fn last(&self) -> &Look {
        &self.look
    }

    /// Reads a source at the next look whatever its pace; after that at its pace again.
    pub fn ask_for(&mut self, source: Source) {
        match self.slots.iter_mut().find(|slot| slot.source == source) {
            Some(slot) => slot.due = Duration::ZERO,
            None => {
                // The source is read once, and not again unless it is asked for again.
                let pace = Pace { least: Duration::MAX, share: 1.0 };
                self.slots.push(Slot { source, pace, due: Duration::ZERO });
            }
        }
    }

    fn read(&mut self, index: usize) {
        let source = self.slots[index].source;
        let at = self.began.elapsed();
        // CPU time of all threads: another thread than this one reads files.
        let before = cpu_time(ClockId::ProcessCPUTime);
        let missing = match source {
            Source::Memory => self.read_memory(at),
            Source::Vmalloc => self.read_vmalloc(),
            Source::Maps => self.read_maps(),
            Source::Types => self.read_types(),
        };
        let cost = cpu_time(ClockId::ProcessCPUTime).saturating_sub(before);
        let slot = &mut self.slots[index];
        slot.due = at.saturating_add(slot.pace.wait(cost));
        let reading = Reading { source, cpu_seconds: cost.as_secs_f64(), at, missing };
        match self.look.readings.iter_mut().find(|each| each.source == source) {
            Some(each) => *each = reading,
            None => self.look.readings.push(reading),
        }
    }

    fn read_memory(&mut self, at: Duration) -> Vec<Missing> {
        self.look.at = at;
        let files = MEMORY.iter().filter_map(|file| self.read_file(*file).err());
        files.collect()
    }

    fn read_types(&mut self) -> Vec<Missing> {
        const COSTS: &str = "which types the free blocks and the pageblocks have";
        let file = ("pagetypeinfo", "proc/pagetypeinfo", COSTS);
        self.read_file(file).err().into_iter().collect()
    }

    /// Reads one file into the look; a file that cannot be read is removed from it.
    fn read_file(
        &mut self,
        (name, path, costs): (&str, &str, &'static str),
    ) -> Result<(), Missing> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.root.with(path, move |file| {
            let filled = read_into(file, &mut buffer)?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(filled).map_err(io::Error::other)?;
            bytes.extend_from_slice(&buffer[..filled]);
            Ok((bytes, buffer))
        });
        match read {
            Ok((bytes, buffer)) => {
                self.look.files.insert(name, bytes);
                self.buffer = buffer;
                Ok(())
            }
            Err(why) => {
                self.look.files.insert(name, Vec::new());
                Err(self.root.missing(path, why.to_string(), costs))
            }
        }
    }

    fn read_vmalloc(&mut self) -> Vec<Missing> {
        let report = source::read_vmallocinfo(&self.root).map_err(|why| why.to_string()).and_then(
            |vmallocinfo| {
                let sources = source::read_rest(&self.root, vmallocinfo);
                vmalloc::survey(&sources).map_err(|why| why.to_string())
            },
        );
        match report {
            Ok(report) => self.look.vmalloc.insert(report).missing.clone(),
            Err(why) => {
                self.look.vmalloc = None;
                vec![self.missing(source::VMALLOCINFO, &why, "the vmalloc space")]
            }
        }
    }

    fn read_maps(&mut self) -> Vec<Missing> {
        match ranking::rank(&self.root, MAPS_PATIENCE) {
            Ok(ranking) => {
                let ranking = self.look.maps.insert(ranking);
                let mut missing = ranking.missing.clone();
                if ranking.denied > 0 {
                    let why = match ranking.denied {
                        1 => "one process belongs to somebody else".to_owned(),
                        many => format!("{many} processes belong to others"),
                    };
                    let costs = "how near those are to the limit of areas";
                    missing.push(self.root.missing("proc/PID/maps", why, costs));
                }
                missing
            }
            Err(why) => {
                self.look.maps = None;
                let costs = "how near processes are to the limit of areas";
                vec![self.missing("proc", &why.to_string(), costs)]
            }
        }
    }

    /// Returns a missing file, with the reason, which may begin with the path.
    fn missing(&self, relative: &str, why: &str, costs: &'static str) -> Missing {
        let path = self.root.path(relative).display().to_string();
        let reason = why.strip_prefix(&path).and_then(|rest| rest.strip_prefix(": "));
        self.root.missing(relative, reason.unwrap_or(why), costs)
    }
}

/// Reads the whole file to the beginning of `buffer`, in few calls; returns the number of bytes.
fn read_into(mut file: impl Read, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        if buffer.len() == filled {
            grow(buffer, filled.saturating_add(filled.max(ROOM)), 0).map_err(io::Error::other)?;
        }
        match file.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(filled),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn cpu_time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// Makes a host with one zone.
    fn host() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path().join("proc");
        fs::create_dir(&proc).unwrap();
        fs::write(proc.join("buddyinfo"), "Node 0, zone Normal 1 0 2\n").unwrap();
        fs::write(proc.join("vmstat"), "nr_free_pages 9\n").unwrap();
        folder
    }

    fn watch(host: &tempfile::TempDir, sources: &[Source]) -> Watch {
        Watch::new(Root::Captured(host.path().to_owned()), sources)
    }

    #[test]
    fn what_is_missing_is_said_with_its_cost() {
        let host = host();
        let mut watch = watch(&host, &[Source::Memory, Source::Vmalloc]);
        let look = watch.look();
        assert_eq!(look.snapshot().buddy[0].blocks, [1, 0, 2]);
        let costs: Vec<&str> = look.missing().map(|missing| missing.costs).collect();
        let expected = [
            "the kernel's release",
            "zones, watermarks and boost",
            "how much of the free memory the free lists show",
            "the vmalloc space",
        ];
        assert_eq!(costs, expected);
    }

    #[test]
    fn a_file_that_is_gone_is_no_longer_shown() {
        let host = host();
        let mut watch = watch(&host, &[Source::Memory]);
        watch.slots[0].pace = Pace::ALWAYS;
        assert_eq!(watch.look().snapshot().buddy.len(), 1);
        fs::remove_file(host.path().join("proc/buddyinfo")).unwrap();
        let look = watch.look();
        assert_eq!(look.snapshot().buddy.len(), 0);
        assert!(look.missing().any(|missing| missing.path.ends_with("buddyinfo")));
    }

    /// The file pagetypeinfo is read once each time it is asked for, and by no other look (docs/sources/trace.md#t2).
    #[test]
    fn pagetypeinfo_is_read_when_asked_for_and_not_again() {
        let host = host();
        let types = host.path().join("proc/pagetypeinfo");
        fs::write(&types, "Page block order: 9\n").unwrap();
        let mut watch = watch(&host, &[Source::Memory]);
        watch.slots[0].pace = Pace::ALWAYS;
        assert_eq!(watch.look().files.bytes("pagetypeinfo"), None);
        watch.ask_for(Source::Types);
        assert!(watch.look().files.bytes("pagetypeinfo").is_some());
        fs::write(&types, "Page block order: 5\n").unwrap();
        assert_eq!(watch.look().snapshot().pageblock_order(), 9, "not read again");
        watch.ask_for(Source::Types);
        assert_eq!(watch.look().snapshot().pageblock_order(), 5);
    }

    #[test]
    fn a_dear_source_is_not_read_at_every_look() {
        let host = host();
        fs::write(host.path().join("proc/vmallocinfo"), "").unwrap();
        let mut watch = watch(&host, &[Source::Memory, Source::Vmalloc]);
        watch.look();
        let first = watch.last().readings[1].at;
        watch.look();
        assert_eq!(watch.last().readings[1].at, first);
    }

    /// The paces together leave room for drawing below a hundredth of a core.
    #[test]
    fn all_sources_together_take_less_than_a_hundredth_of_a_core() {
        let all = [Source::Memory, Source::Vmalloc, Source::Maps, Source::Types];
        let share: f64 = all.iter().map(|source| source.pace().share).sum();
        assert!(share < 0.008, "{share}");
    }

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let host = host();
        let path = host.path().join("long");
        fs::write(&path, vec![b'7'; 2 * ROOM + 3]).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(read_into(File::open(&path).unwrap(), &mut buffer).unwrap(), 2 * ROOM + 3);
        assert_eq!(buffer[2 * ROOM + 2], b'7');
    }
}
