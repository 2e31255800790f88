//! The state of a host at one moment: its free memory, in blocks, and the use of the rest.
//!
//! A snapshot is kept as the files that the kernel gave ([`Files`]); [`Snapshot::parse`] reads their contents. Each
//! parser is a pure function of a text and never fails as a whole: it returns what it could read, and the lines that it
//! could not. If a file is missing, the facts that depend on it are absent, and [`Snapshot::missing`] names them.

mod buddyinfo;
mod counters;
mod files;
mod iomem;
mod lines;
mod obtainable;
mod page_flags;
mod pagetypeinfo;
mod slabinfo;
mod state;
mod zoneinfo;

use std::collections::BTreeMap;
use std::ops::Range;

pub use buddyinfo::{MOST_ORDERS, ZoneBlocks, ZoneIndices, buddyinfo, indices};
pub use counters::{Counters, Settings, settings, vmstat};
pub use files::{Files, path_of};
pub(crate) use files::{Packed, place_of};
pub use iomem::{Ram, system_ram};
pub use lines::{Malformed, ZoneName};
pub use page_flags::{FrameUse, PageFlags, PageMap};
pub use pagetypeinfo::{BlockCount, PageTypes, TypeBlocks, ZonePageblocks, pagetypeinfo};
pub use slabinfo::{SlabCache, slabinfo};
pub use zoneinfo::{PerCpuSet, ZoneInfo, zoneinfo};

use crate::fields;
use crate::source::Missing;

/// The contents of the files of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot<'a> {
    pub release: Option<String>,
    /// The zones, those without memory included, by node and lowest first.
    pub zones: Vec<ZoneInfo>,
    /// The counters of each node.
    pub nodes: BTreeMap<u32, BTreeMap<String, u64>>,
    /// Free blocks of the zones with memory.
    pub buddy: Vec<ZoneBlocks>,
    /// Free blocks and pageblocks by type; `None` without pagetypeinfo.
    pub types: Option<PageTypes>,
    /// The kernel's own fragmentation index; empty where debugfs could not be read.
    pub extfrag: Vec<ZoneIndices>,
    /// The kernel's own unusable index.
    pub unusable: Vec<ZoneIndices>,
    /// The use of each frame; `None` where kpageflags was not read.
    pub pages: Option<PageMap<'a>>,
    pub vmstat: Counters,
    pub sysctl: Settings,
    /// Value of `MemTotal` in bytes.
    pub memory_bytes: Option<u64>,
    /// Value of `MemFree` in bytes.
    pub free_bytes: Option<u64>,
    /// Physical addresses of memory, where `iomem` shows them.
    pub ram: Vec<Range<u64>>,
    /// Files that are missing or damaged, and the facts that are absent for want of them.
    pub missing: Vec<Missing>,
}

/// The sum of the blocks in buddyinfo beside `MemFree`.
/// Source: docs/sources/trace.md#t1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreeGap {
    /// Pages in the blocks of all zones.
    pub listed: u64,
    /// Free pages by `MemFree` of meminfo.
    pub said: u64,
}

impl FreeGap {
    /// Returns true if the two differ by more than a tenth, so that buddyinfo does not show the free memory. Pages on
    /// their way, and the time that a read takes, account for much less.
    #[must_use]
    pub const fn matters(self) -> bool {
        self.listed.abs_diff(self.said) > self.said / 10
    }
}

/// Order of a pageblock on most machines.
const USUAL_ORDER: u32 = nofrag::units::Order::PAGEBLOCK.get() as u32;

impl<'a> Snapshot<'a> {
    /// Parses the files of one moment.
    #[must_use]
    pub fn parse(files: &'a Files) -> Snapshot<'a> {
        let release = files.release();
        let mut read = Snapshot { release, ..Snapshot::default() };
        (read.zones, read.nodes) =
            read.read(files, "zoneinfo", "zones, watermarks and boost", zoneinfo);
        read.buddy = read.read(files, "buddyinfo", "free blocks by order", buddyinfo);
        let types = |text: &str| {
            let (types, malformed) = pagetypeinfo(text);
            (Some(types), malformed)
        };
        let costs = "types of free blocks and pageblocks";
        read.types = read.read(files, "pagetypeinfo", costs, types);
        read.vmstat = read.read(files, "vmstat", "counts of reclaim and compaction", vmstat);
        read.sysctl = read.read(files, "sysctl", "settings", settings);
        read.extfrag = optional(files, "extfrag_index", indices);
        read.unusable = optional(files, "unusable_index", indices);
        read.ram = optional(files, "iomem", system_ram);
        let sizes = |text: &str| {
            (["MemTotal", "MemFree"].map(|field| fields::meminfo_bytes(text, field).ok()), vec![])
        };
        [read.memory_bytes, read.free_bytes] =
            read.read(files, "meminfo", "MemTotal and MemFree", sizes);
        read.pages = read.frames(files);
        if read.release.is_none() {
            read.miss("version", "it is not there", "the kernel's release");
        }
        read
    }

    /// Returns the ranges of memory, to be asked frame by frame: [`pages`](Self::pages) of kernels from 7.2 on does not
    /// tell frames without memory from those of the kernel.
    #[must_use]
    pub fn memory(&self) -> Ram<'_> {
        Ram::new(&self.ram)
    }

    /// Returns the zones with memory.
    pub fn populated(&self) -> impl Iterator<Item = &ZoneInfo> {
        self.zones.iter().filter(|zone| zone.managed > 0)
    }

    /// Returns the zone in which a frame lies; `None` if it lies in none that is known.
    #[must_use]
    pub fn zone_of(&self, pfn: u64) -> Option<&ZoneInfo> {
        self.populated().find(|zone| match (zone.start_pfn, zone.end_pfn()) {
            (Some(start), Some(end)) => (start..end).contains(&pfn),
            _ => false,
        })
    }

    /// Returns the free blocks of a zone; `None` where buddyinfo lacks the zone.
    #[must_use]
    pub fn blocks(&self, zone: &ZoneName) -> Option<&ZoneBlocks> {
        self.buddy.iter().find(|blocks| blocks.zone == *zone)
    }

    /// Returns the order of a pageblock: from pagetypeinfo; else the order of a huge page, which has as many pages as a
    /// page of a page table has entries (9 for 4 KiB, 11 for 16 KiB, 13 for 64 KiB), if there are blocks of it.
    #[must_use]
    pub fn pageblock_order(&self) -> u32 {
        const ENTRY_BYTES: u64 = 8;
        let said = self.types.as_ref().and_then(|types| types.pageblock_order);
        said.unwrap_or_else(|| {
            let huge = (self.page_bytes() / ENTRY_BYTES).ilog2();
            let orders = self.buddy.iter().map(|zone| zone.blocks.len()).max();
            let largest = orders.and_then(|orders| u32::try_from(orders.checked_sub(1)?).ok());
            // Files that were cut by hand do not show the kernel's orders.
            largest
                .filter(|&largest| largest >= USUAL_ORDER)
                .map_or(USUAL_ORDER, |most| huge.min(most))
        })
    }

    /// Returns the bytes of a page: the power of two nearest to `MemFree` over the free pages of `vmstat`, which were
    /// read at almost the same moment; 4096 where either is missing or no page is free.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        const USUAL: u64 = 4096;
        let pages = self.vmstat.get("nr_free_pages").filter(|&pages| pages > 0);
        let per_page = self.free_bytes.zip(pages).map(|(bytes, pages)| bytes / pages);
        // From 3 KiB on a value is nearer to 4 KiB than to 2 KiB.
        let nearest = per_page
            .map(|bytes| (bytes / 3).saturating_mul(4).checked_ilog2().map_or(0, |log| 1 << log));
        nearest.filter(|bytes| (USUAL..=1 << 18).contains(bytes)).unwrap_or(USUAL)
    }

    /// Returns the sum of buddyinfo beside `MemFree`; `None` where either is missing.
    #[must_use]
    pub fn free_gap(&self) -> Option<FreeGap> {
        if self.buddy.is_empty() {
            return None;
        }
        let listed = self.buddy.iter().fold(0, |sum: u64, zone| sum.saturating_add(zone.pages()));
        Some(FreeGap { listed, said: self.free_bytes? / self.page_bytes() })
    }
}

/// Reads files, and notes the missing ones.
impl<'a> Snapshot<'a> {
    fn miss(&mut self, name: &str, why: impl Into<String>, costs: &'static str) {
        self.missing.push(Missing { path: name.to_owned(), why: why.into(), costs });
    }

    /// Reads a file; notes it as missing if it is absent or empty, or if lines of it could not be read.
    fn read<T: Default>(
        &mut self,
        files: &'a Files,
        name: &str,
        costs: &'static str,
        parse: impl FnOnce(&str) -> (T, Vec<Malformed>),
    ) -> T {
        let Some(text) = files.text(name).filter(|text| !text.trim().is_empty()) else {
            let why = if files.bytes(name).is_some() { "it is empty" } else { "it is not there" };
            self.miss(name, why, costs);
            return T::default();
        };
        let (value, malformed) = parse(&text);
        if let Some(first) = malformed.first() {
            let (count, Malformed { line, expected }) = (malformed.len(), first);
            let lines = if count == 1 { "line" } else { "lines" };
            let why = format!(
                "{count} {lines} could not be read, first line {line}: {expected} expected"
            );
            self.miss(name, why, costs);
        }
        value
    }

    fn frames(&mut self, files: &'a Files) -> Option<PageMap<'a>> {
        const COSTS: &str = "what each page frame is used for";
        let Some(flags) = files.bytes("kpageflags").filter(|bytes| bytes.len() >= 8) else {
            self.miss("kpageflags", "it is not there or empty", COSTS);
            return None;
        };
        if flags.len() % 8 != 0 {
            self.miss("kpageflags", "it ends inside of a frame's eight bytes", COSTS);
        }
        Some(PageMap::new(flags))
    }
}

/// Reads a file that few hosts have, and whose facts other files have, too: its absence and its malformed lines are not
/// noted.
fn optional<T: Default>(
    files: &Files,
    name: &str,
    parse: impl FnOnce(&str) -> (T, Vec<Malformed>),
) -> T {
    files.text(name).map(|text| parse(&text).0).unwrap_or_default()
}

#[cfg(test)]
mod tests;
