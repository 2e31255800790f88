//! The whole machine in one report: [`survey`] computes a [`Machine`], which is also the schema of `nofrag host
//! --json`.
//!
//! The report answers three questions from the files. How much is free, in which blocks ([`zones`])? Which requests
//! would succeed now, and what would the others have to wait for ([`requests`])? The answer is the core's own watermark
//! test, not a look at which lists have blocks: a zone keeps pages from requests although they are free. And how many
//! huge pages can be had ([`huge`])? The [`verdict`] sums it up. The report adds the other memory that fragments, the
//! vmalloc space and the areas of processes, and the kernel's counts since boot ([`counters`]).
//!
//! [`read`] reads each file once, in an order that puts files of the same facts close together in time; [`survey`] is
//! pure. For a file that may not be read the parts that depend on it are absent, and [`Machine::missing`] names them.
//! No setting is changed to see more.
//!
//! Pages are counted in pages, sizes in bytes, indices in thousandths; a value that could not be had is `null`.
//!
//! Source: docs/sources/trace.md#degrading.
//!
//! Files, bottom up: `zones`, `requests`, `pass` (of compaction, foreseen), `pageblocks` and `frames` (one look at the
//! state of every frame), `huge`, `uses` (who holds memory), `verdict`, `pages` and `preflight` (reports of their own),
//! `counters`, `finding`; `scrub` and `capture` write a host for others.

pub mod capture;
pub mod counters;
pub mod finding;
pub mod frames;
pub mod huge;
pub mod pageblocks;
pub mod pages;
pub mod pass;
pub mod preflight;
pub mod requests;
pub(crate) mod scrub;
pub mod uses;
pub mod verdict;
pub mod zones;

use serde::Serialize;

pub use crate::record::Frames;
pub use crate::source::machine::{Sources, is_snapshot, read, snapshot_in};

use self::counters::Counter;
use self::huge::HugePages;
use self::requests::Request;
use self::verdict::Verdict;
use self::zones::{IndexCheck, Zone};
use crate::fields;
use crate::finding::Finding;
use crate::layout::LayoutError;
use crate::process::printable;
use crate::process::ranking::{Ranked, Ranking};
use crate::region;
use crate::snapshot::{FreeGap, Snapshot};
use crate::source::Missing;
use crate::vmalloc;

/// The facts about the memory of one machine. Pages are of `host.page_bytes`; indices are in thousandths.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    pub host: Host,
    /// The verdict on the whole; `null` without zones.
    pub verdict: Option<Verdict>,
    /// The blocks of buddyinfo beside `MemFree`: where the two differ much, the figures on blocks do not cover all free
    /// memory.
    pub free_gap: Option<FreeGap>,
    /// The zones with memory, by node, within a node highest first as requests try them.
    pub zones: Vec<Zone>,
    /// The indices beside those of debugfs; `null` where these could not be read.
    pub index_check: Option<IndexCheck>,
    /// The present answer to each kind of request.
    pub requests: Vec<Request>,
    /// The outlook for huge pages; `null` without zones.
    pub huge_pages: Option<HugePages>,
    pub vmalloc: Vmalloc,
    /// The areas of processes, with their limit.
    pub maps: Maps,
    pub counters: Vec<Counter>,
    /// The findings, most urgent first.
    pub findings: Vec<Finding>,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
}

/// The machine that was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// The kernel's release.
    pub release: Option<String>,
    pub arch: Option<String>,
    pub cpus_online: Option<u32>,
    /// Seconds since boot.
    pub uptime_seconds: Option<f64>,
    pub page_bytes: u64,
    /// The order of a pageblock.
    pub pageblock_order: u32,
    /// Value of `MemTotal` in bytes.
    pub memory_bytes: Option<u64>,
    /// Value of `MemFree` in bytes.
    pub free_bytes: Option<u64>,
    /// Value of `MemAvailable` in bytes.
    pub available_bytes: Option<u64>,
    /// True if the types of free blocks are known (pagetypeinfo), so that a request that must mix types is recognised.
    pub types_known: bool,
}

/// The kernel's vmalloc space in short; `nofrag host vmalloc` shows all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Vmalloc {
    /// Sums over the listed areas; `null` where they could not be read.
    pub totals: Option<vmalloc::Totals>,
    /// Areas freed but not yet purged, which use address space but no memory; `null` where they could not be read.
    pub lazy: Option<vmalloc::Lazy>,
    /// The largest request that would succeed in the vmalloc range now; `null` where addresses are hidden.
    pub largest_request_bytes: Option<u64>,
    /// Value of `VmallocUsed`: bytes of memory behind areas, as the kernel counts it.
    pub used_bytes: Option<u64>,
    /// Value of `VmallocTotal`: the length of the range in bytes.
    pub total_bytes: Option<u64>,
}

/// The areas of processes in short; `nofrag host maps --all` lists all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Maps {
    /// Value of `vm.max_map_count`, which holds for each process alone.
    pub limit: Option<u64>,
    /// The processes nearest to the limit.
    pub nearest: Vec<Ranked>,
    /// Number of processes whose areas could be counted.
    pub counted: u64,
    /// Number of processes that the reader may not look into.
    pub denied: u64,
}

impl Machine {
    /// Returns a counter, if the kernel has it.
    #[must_use]
    pub fn counter(&self, name: counters::Name) -> Option<&Counter> {
        self.counters.iter().find(|counter| counter.name == name)
    }
}

/// Most processes in [`Maps::nearest`].
pub const MOST_NEAREST: usize = 5;

/// Computes the report from the files that were read. Pure.
///
/// # Errors
/// [`LayoutError::OutOfMemory`] when the layout of the vmalloc space is too large for this machine.
pub fn survey(sources: &Sources) -> Result<Machine, LayoutError> {
    let snapshot = Snapshot::parse(&sources.files);
    let zones = zones::survey(&snapshot);
    let asked = requests::asked(&snapshot, &zones);
    let frames = sources.frames.as_ref();
    let huge = huge::of_zones(frames, &snapshot, &asked);
    let areas = match sources.vmalloc.vmallocinfo.is_empty() {
        true => None,
        false => Some(vmalloc::survey(&sources.vmalloc)?),
    };
    let mut machine = Machine {
        host: host(sources, &snapshot),
        free_gap: snapshot.free_gap(),
        index_check: zones::check_indices(&snapshot, &zones),
        requests: requests::survey(&snapshot, &asked),
        verdict: verdict::judge(&snapshot, &huge, sources),
        huge_pages: huge::survey(sources, &snapshot, &huge),
        vmalloc: vmalloc_in_short(sources, areas.as_ref()),
        maps: sources.ranking.as_ref().map_or_else(Maps::default, maps_in_short),
        counters: counters::survey(&snapshot.vmstat, sources.uptime_seconds),
        findings: Vec::new(),
        missing: missing(sources, &snapshot),
        zones,
    };
    let damaged = damaged(sources, &snapshot);
    machine.findings = finding::findings(&machine, &snapshot, &damaged, areas.as_ref());
    Ok(machine)
}

fn host(sources: &Sources, snapshot: &Snapshot<'_>) -> Host {
    let meminfo = sources.files.text("meminfo").unwrap_or_default();
    let release = snapshot.release.as_deref().or(sources.vmalloc.release.as_deref());
    Host {
        release: release.map(printable),
        arch: sources.vmalloc.arch.as_deref().map(printable),
        cpus_online: sources.vmalloc.cpus_online,
        uptime_seconds: sources.uptime_seconds,
        page_bytes: snapshot.page_bytes(),
        pageblock_order: snapshot.pageblock_order(),
        memory_bytes: snapshot.memory_bytes,
        free_bytes: snapshot.free_bytes,
        available_bytes: fields::meminfo_bytes(&meminfo, "MemAvailable").ok(),
        types_known: snapshot.types.is_some(),
    }
}

fn vmalloc_in_short(sources: &Sources, areas: Option<&vmalloc::VmallocReport>) -> Vmalloc {
    let range = areas
        .and_then(|areas| areas.regions.iter().find(|region| region.name == region::Name::Vmalloc));
    Vmalloc {
        totals: areas.map(|areas| areas.totals),
        lazy: areas.map(|areas| areas.lazy),
        largest_request_bytes: range.map(|range| range.now.largest_request_bytes),
        used_bytes: sources.vmalloc.vmalloc_used,
        total_bytes: sources.vmalloc.vmalloc_total,
    }
}

fn maps_in_short(ranking: &Ranking) -> Maps {
    Maps {
        limit: ranking.limit,
        nearest: ranking.processes.iter().take(MOST_NEAREST).cloned().collect(),
        counted: ranking.processes.len() as u64,
        denied: ranking.denied,
    }
}

/// Returns the files that could not be read, and those that were read and are damaged.
fn missing(sources: &Sources, snapshot: &Snapshot<'_>) -> Vec<Missing> {
    sources.missing.iter().cloned().chain(damaged(sources, snapshot)).collect()
}

/// Returns the files that were read and are damaged.
fn damaged(sources: &Sources, snapshot: &Snapshot<'_>) -> Vec<Missing> {
    let is_there = |missing: &&Missing| sources.files.bytes(&missing.path).is_some();
    let mut damaged: Vec<Missing> = snapshot.missing.iter().filter(is_there).cloned().collect();
    let is_cut = sources.frames.as_ref().is_some_and(|frames| frames.is_cut);
    if is_cut && !damaged.iter().any(|each| each.path == "kpageflags") {
        damaged.push(Missing {
            path: "kpageflags".to_owned(),
            why: "it ends inside of a frame's eight bytes".to_owned(),
            costs: "what each page frame is used for",
        });
    }
    damaged
}

#[cfg(test)]
mod tests;
