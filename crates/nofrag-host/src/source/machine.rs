//! The files of a whole machine, each read once.
//!
//! Files that change together are read together: buddyinfo and the indices of debugfs stand between two reads of
//! buddyinfo that must be equal, or they are read again. All small files take some ten milliseconds, most of it
//! pagetypeinfo, for which the kernel walks every free list; so a look reads it once and no code here reads it in a
//! loop. The state of every frame is eight bytes each, and a second for some 25 GiB of memory, so it is read on
//! request, and summed up while it is read.
//!
//! In a captured folder a file may be packed, with `.zst` behind its name.
//!
//! Source: docs/sources/trace.md#sources, #t2.

use std::io;
use std::path::Path;

use super::{Entry, Missing, Root, Sources as Vmalloc, VMALLOCINFO, read_rest, read_small, why};
use crate::fields::{self, FieldError};
use crate::machine::frames::{self, FrameReport};
use crate::proc_maps;
use crate::process::ranking::{self, PATIENCE, Ranked, Ranking};
use crate::record::Frames;
use crate::snapshot::{Files, Snapshot, place_of};

/// The files of a machine that were read.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Free lists, watermarks, counters and settings.
    pub files: Files,
    /// The vmalloc space and the files beside it; its list of areas is empty where it could not be read.
    pub vmalloc: Vmalloc,
    /// The processes by the number of their areas; `None` where they could not be listed.
    pub ranking: Option<Ranking>,
    pub uptime_seconds: Option<f64>,
    /// The pools of hugetlbfs, by size.
    pub pools: Vec<Pool>,
    /// The uses of frames, where they were asked for and could be read.
    pub frames: Option<FrameReport>,
    /// Files that could not be had, with the parts of the report that are missing for want of them.
    pub missing: Vec<Missing>,
}

/// Reads the snapshot in a folder: files of it there, or below `proc` as in a captured host, of which the use of each
/// frame is left out. `None` if there are none.
///
/// # Errors
/// Those of [`Files::read_folder`].
pub fn snapshot_in(folder: &Path) -> io::Result<Option<Files>> {
    if is_snapshot(folder) {
        return Files::read_folder(folder).map(Some);
    }
    let captured = || read(&Root::Captured(folder.to_owned()), Frames::LeftOut).files;
    Ok(is_snapshot(&folder.join("proc")).then(captured))
}

/// Returns true for a folder in which files of a snapshot lie, and not below `proc` as in that of a captured host.
#[must_use]
pub fn is_snapshot(folder: &Path) -> bool {
    const FILES: [&str; 4] = ["buddyinfo", "zoneinfo", "pagetypeinfo", KPAGEFLAGS];
    let is_there =
        |name: &&str| folder.join(name).is_file() || folder.join(format!("{name}.zst")).is_file();
    FILES.iter().any(is_there)
}

/// A pool of hugetlbfs, in pages of its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pool {
    /// Size of a page of the pool in bytes.
    pub bytes: u64,
    pub pages: u64,
    pub free: u64,
    /// Free pages that are promised.
    pub reserved: u64,
}

/// The files of one moment that change together, with the part of the report that needs each.
const LISTS: [(&str, &str); 3] = [
    ("buddyinfo", "free blocks by order, and every figure made of them"),
    ("extfrag_index", "the comparison of the indices with the kernel's own"),
    ("unusable_index", "the comparison of the indices with the kernel's own"),
];

/// The other small files, with the part of the report that needs each.
const SMALL: [(&str, &str); 7] = [
    ("zoneinfo", "zones, watermarks and boost, and which requests succeed"),
    (
        "pagetypeinfo",
        "types of free blocks and pageblocks: which requests mix types, a better outlook for huge pages",
    ),
    ("meminfo", "how much memory there is, and how much of it is free"),
    ("vmstat", "what the kernel has counted since boot"),
    ("version", "the kernel's release"),
    ("transparent_hugepage_enabled", "whether processes are given huge pages"),
    ("transparent_hugepage_defrag", "how hard huge pages are tried for"),
];

/// Name of the file with the state of every frame; [`IOMEM`] is read with it.
const KPAGEFLAGS: &str = "kpageflags";
/// Name of the file with the memory of each cache of kernel objects, which is read with the state of frames.
pub(crate) const SLABINFO: &str = "slabinfo";
const FRAMES_COST: &str = "what each page frame is used for";
const IOMEM: (&str, &str) = ("iomem", "telling frames without memory from those of the kernel");

/// The part of the report that needs the list of vmalloc areas.
const AREAS: &str = "who holds the vmalloc space, and what of it waits for a purge";

/// The part of the report that needs the maps of processes.
const MAP_COUNTS: &str = "the processes nearest to vm.max_map_count";

/// Settings that act when they are read, or have no value.
pub(crate) const NOT_SETTINGS: [&str; 3] = ["stat_refresh", "compact_memory", "drop_caches"];

/// Folder of the pools of hugetlbfs.
pub(crate) const POOLS: &str = "sys/kernel/mm/hugepages";

/// Reads a machine. Never fails: files that could not be had are in [`Sources::missing`].
#[must_use]
pub fn read(root: &Root, frames: Frames) -> Sources {
    let mut sources = Sources::default();
    sources.read_lists(root);
    SMALL.iter().for_each(|&(name, costs)| sources.add(root, name, costs));
    match root.in_time(VM, vm_settings) {
        Ok(settings) => sources.files.insert("sysctl", settings),
        Err(cause) => {
            let costs = "the settings of vm, and advice on them";
            sources.miss([root.missing("proc/sys/vm", why(&cause), costs)]);
        }
    }
    if frames == Frames::Read {
        sources.read_frames(root);
    }
    let areas = root.read(VMALLOCINFO);
    let areas =
        areas.map_err(|cause| sources.miss([root.missing(VMALLOCINFO, why(&cause), AREAS)]));
    let mut vmalloc = read_rest(root, areas.unwrap_or_default());
    sources.miss(std::mem::take(&mut vmalloc.missing));
    sources.vmalloc = vmalloc;
    match ranking::rank(root, PATIENCE) {
        Ok(mut ranking) => {
            sources.miss(std::mem::take(&mut ranking.missing));
            sources.miss(denied(root, ranking.denied));
            sources.ranking = Some(ranking);
        }
        Err(why) => sources.miss([root.missing("proc", why.to_string(), MAP_COUNTS)]),
    }
    let uptime = read_small(root, "proc/uptime", "rates of what was counted since boot", uptime);
    sources.uptime_seconds = uptime.map_err(|missing| sources.miss([missing])).ok();
    sources.pools = pools(root);
    sources
}

impl Sources {
    /// Makes a machine from the files of a snapshot alone, such as one in a recording. O(frames) where it has their
    /// state.
    #[must_use]
    pub fn of_files(files: Files) -> Sources {
        const NOT_TAKEN: &str = "a snapshot of a recording has no such file";
        let absent =
            |path: &str, costs| Missing { path: path.to_owned(), why: NOT_TAKEN.to_owned(), costs };
        let meminfo = files.text("meminfo").unwrap_or_default();
        let vmalloc = Vmalloc {
            vmallocinfo: files.bytes("vmallocinfo").unwrap_or_default().to_vec(),
            vmalloc_total: fields::meminfo_bytes(&meminfo, "VmallocTotal").ok(),
            vmalloc_used: fields::meminfo_bytes(&meminfo, "VmallocUsed").ok(),
            release: files.release(),
            ..Vmalloc::default()
        };
        let names = LISTS.iter().chain(&SMALL);
        let absent_files = names.filter(|(name, _)| files.bytes(name).is_none());
        let mut missing: Vec<Missing> =
            absent_files.map(|&(name, costs)| absent(name, costs)).collect();
        missing.push(absent("uptime", "rates of what was counted since boot"));
        if vmalloc.vmallocinfo.is_empty() {
            missing.push(absent("vmallocinfo", AREAS));
        }
        drop(meminfo);
        let ranking = ranking_of(&files);
        if ranking.is_none() {
            missing.push(absent("maps", MAP_COUNTS));
        }
        let flags = files.bytes(KPAGEFLAGS);
        let frames = flags.and_then(|flags| frames::read(&Snapshot::parse(&files), flags).ok());
        Sources { ranking, vmalloc, missing, frames, files, ..Sources::default() }
    }

    /// Reads free lists and indices of one moment, as far as they can be had.
    fn read_lists(&mut self, root: &Root) {
        /// Most tries: on a busy host the lists may change during every one, and the last is kept.
        const TRIES: usize = 8;
        for _ in 0..TRIES {
            self.missing.clear();
            LISTS.iter().for_each(|&(name, costs)| self.add(root, name, costs));
            let again = || root.read("proc/buddyinfo").ok();
            if *root != Root::Live || self.files.bytes("buddyinfo") == again().as_deref() {
                break;
            }
        }
    }

    /// Reads the state of every frame as well, which [`read`] may have left out. O(frames) time.
    pub fn read_frames(&mut self, root: &Root) {
        let (name, costs) = IOMEM;
        self.add(root, name, costs);
        // A hint on frames of slabs: no file is missing where it is not to be had.
        if let Ok(bytes) = root.read(place_of(SLABINFO)) {
            self.files.insert(SLABINFO, bytes);
        }
        let path = place_of(KPAGEFLAGS);
        let report = root.stream(path);
        let report = report.and_then(|source| frames::read(&Snapshot::parse(&self.files), source));
        let report =
            report.map_err(|cause| self.miss([root.missing(path, why(&cause), FRAMES_COST)]));
        self.frames = report.ok();
    }

    /// Reads a file into the snapshot.
    fn add(&mut self, root: &Root, name: &str, costs: &'static str) {
        let path = place_of(name);
        match root.read(path) {
            Ok(bytes) => self.files.insert(name, bytes),
            Err(cause) => self.miss([root.missing(path, why(&cause), costs)]),
        }
    }

    /// Notes missing files; of each file only the first entry is kept.
    fn miss(&mut self, more: impl IntoIterator<Item = Missing>) {
        for each in more {
            if !self.missing.iter().any(|known| known.path == each.path) {
                self.missing.push(each);
            }
        }
    }
}

/// Returns the ranking of the processes whose maps are in a snapshot; `None` if it has no maps.
fn ranking_of(files: &Files) -> Option<Ranking> {
    let settings = files.text("sysctl").map(|text| crate::snapshot::settings(&text).0);
    let limit = settings.and_then(|settings| settings.get("max_map_count"));
    let maps = files.names().filter_map(|name| {
        let pid = name.strip_prefix("maps/")?.parse().ok()?;
        let areas = proc_maps::count(files.bytes(name)?).ok()?;
        Some(Ranked::new(pid, None, areas, limit))
    });
    let ranking = Ranking::of(maps.collect(), limit);
    (!ranking.processes.is_empty()).then_some(ranking)
}

fn denied(root: &Root, count: u64) -> Option<Missing> {
    let why = format!(
        "permission denied for {count} of the processes: the kernel shows each to its owner and to root"
    );
    let costs = "whether one of them is near vm.max_map_count";
    (count > 0).then(|| root.missing("proc/PID/maps", why, costs))
}

/// Returns a line `NAME VALUE..` for each setting of `vm`, read on this thread.
pub(crate) fn vm_settings(root: &Root) -> io::Result<Vec<u8>> {
    /// Bytes of the longest setting.
    const MOST: u64 = 1 << 16;
    let mut lines = Vec::new();
    for Entry { name, .. } in root.entries_here(VM)? {
        if NOT_SETTINGS.contains(&name.as_str()) {
            continue;
        }
        // Some settings can only be written.
        if let Ok(value) = root.read_here(&format!("{VM}/{name}"), MOST) {
            lines.push(format!("{name} {}\n", String::from_utf8_lossy(&value).trim()));
        }
    }
    Ok(lines.concat().into_bytes())
}

/// Folder of the settings of `vm`.
pub(crate) const VM: &str = "proc/sys/vm";

fn uptime(text: &str) -> Result<f64, FieldError> {
    let word = text.split_ascii_whitespace().next().ok_or(FieldError::Missing)?;
    let seconds: f64 = word.parse().map_err(|_| FieldError::NotANumber)?;
    if seconds.is_finite() && seconds >= 0.0 { Ok(seconds) } else { Err(FieldError::NotANumber) }
}

/// Returns the pools of hugetlbfs by size; none on a kernel without it.
fn pools(root: &Root) -> Vec<Pool> {
    let names = root.names(POOLS).unwrap_or_default();
    let mut pools: Vec<Pool> = names.iter().filter_map(|name| pool(root, name)).collect();
    pools.sort_unstable();
    pools
}

fn pool(root: &Root, name: &str) -> Option<Pool> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let number =
        |file: &str| fields::number(&root.text(&format!("{POOLS}/{name}/{file}")).ok()?).ok();
    Some(Pool {
        bytes: kib.checked_mul(1024)?,
        pages: number("nr_hugepages")?,
        free: number("free_hugepages")?,
        reserved: number("resv_hugepages").unwrap_or(0),
    })
}
