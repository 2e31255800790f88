//! The parts of an explanation: the schema of `nofrag explain --json`.

use serde::{Deserialize, Serialize};

use crate::replay::ReplayReport;

/// Why memory could not be had, and remedies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The source, as it was named.
    pub source: String,
    pub kind: SourceKind,
    pub release: Option<String>,
    /// Each thing that failed or would fail, in the order of the source.
    pub cases: Vec<Case>,
    /// Memory to be had in each zone, from a snapshot.
    pub obtainable: Vec<Obtainable>,
    /// Mixing of types, from a recording.
    pub mixing: Option<Mixing>,
    /// The same requests under other policies, where they were recorded and replayed.
    pub replay: Option<ReplayReport>,
    /// Gaps in the source, and their effect on the answers; sentences.
    pub cautions: Vec<String>,
    /// Parts of the source that are cut, damaged or lost, in a sentence; `None` if it is whole.
    #[serde(default)]
    pub damage: Option<String>,
}

/// The kind of source that was explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Reports of the kernel log.
    #[default]
    Reports,
    /// The state of a host at one moment.
    Snapshot,
    Recording,
}

/// A request that failed or would fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Case {
    /// A title such as `order 4 (64 KiB), GFP_KERNEL|__GFP_COMP, for pipewire`.
    pub title: String,
    /// Lines of the text that report it; empty for other sources. The figures are those of the first.
    pub lines: Vec<u32>,
    /// Number of reports or events of this failure.
    pub times: u64,
    /// The request, where the source shows it.
    pub asked: Option<Asked>,
    pub cause: Cause,
    /// The cause in one sentence with its figures.
    pub summary: String,
    /// Zone by zone, the free memory and the reason why it did not serve; in the order in which the request tried them.
    pub zones: Vec<ZoneCase>,
    /// Requests that would have succeeded; sentences.
    pub would: Vec<String>,
    /// Verdicts on other policies for this failure.
    pub policies: Vec<PolicyCase>,
    /// Remedies, most promising first.
    pub advice: Vec<Advice>,
    /// Gaps in the source; sentences.
    pub missing: Vec<String>,
}

impl Case {
    /// Returns true if a request failed, not only would.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.times > 0
    }
}

/// A request for a block of pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Asked {
    /// The order of the block.
    pub order: u32,
    pub bytes: u64,
    /// The request's flags, as the kernel prints them.
    pub mode: String,
    /// The type of the pages.
    pub migratetype: String,
    /// The highest zone that it could use.
    pub highest_zone: String,
    /// The means that the caller allows: a sentence.
    pub context: String,
}

/// Causes why a request for memory fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// Enough pages were free, but no block was large enough.
    Fragmented,
    /// Too few pages were free in every zone that the request could use.
    LackOfMemory,
    /// A raised watermark refused a caller that cannot free memory.
    Boosted,
    /// Large blocks were there, kept for requests that may not wait, or for devices.
    KeptBlocks,
    /// Enough was free, of types that the kernel's rules do not let this caller take.
    TypeForbidden,
    /// No zone of the report could serve such a request.
    NoZone,
    /// Nothing was against it when the report was written.
    Recovered,
    /// The limit of a control group was reached, not the end of memory.
    GroupLimit,
    /// No room for addresses in the kernel's vmalloc space.
    AddressSpace,
    /// Nothing failed, and nothing would fail.
    Nothing,
    /// The source does not say enough to tell.
    #[default]
    Unknown,
}

/// A zone, and the reason why it did not serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneCase {
    /// The zone's name, with its node where there are several.
    pub zone: String,
    pub free_bytes: u64,
    /// The watermarks in force, boost included: min, low and high, in bytes.
    pub marks_bytes: [u64; 3],
    /// Boost of the watermarks, in bytes.
    pub boost_bytes: u64,
    /// Bytes kept from this request because it could have used a higher zone.
    pub reserve_bytes: u64,
    pub blocks: Vec<u64>,
    /// The largest order of a free block.
    pub largest_free: Option<u32>,
    /// The largest order that the zone would serve to such a request.
    pub largest_served: Option<u32>,
    /// The fragmentation index of the order: 0 for lack of memory, 1000 because memory is in pieces; none if a block is
    /// free.
    pub fragmentation: Option<i64>,
    /// The share of free memory that cannot serve the order, in 1/1000.
    pub unusable: u64,
    /// The reason why it did not serve: a sentence.
    pub why: String,
}

/// A policy's verdict on a failure, and its grounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyCase {
    pub policy: String,
    pub verdict: PolicyVerdict,
    pub why: String,
    pub cost: String,
    pub basis: Basis,
}

/// Verdict on a policy for one failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyVerdict {
    /// The policy would have served this request.
    Avoids,
    /// The policy works against the cause; the outcome depends on earlier requests.
    WorksAgainst,
    /// The policy would have failed as well.
    Fails,
}

/// Grounds on which a verdict rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// From the policy's rules; nothing was run.
    Rules,
    /// The recorded requests were replayed.
    Replayed,
}

/// One remedy, with evidence and cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    pub what: String,
    pub evidence: String,
    pub cost: String,
}

/// Memory to be had in a zone, in pageblocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Obtainable {
    pub zone: String,
    pub block_bytes: u64,
    /// Pageblocks whose frames the allocator manages, whole or in part.
    pub pageblocks: u64,
    /// Pageblocks that are free now.
    pub now: u64,
    /// Upper bound of free pageblocks if everything movable is moved: movable and free ones, as far as free pages
    /// suffice.
    pub after_compaction: u64,
    /// Upper bound if page cache is dropped as well.
    pub after_reclaim: u64,
    /// Pageblocks with at least one immovable page.
    pub pinned: u64,
    /// Uses that pin pageblocks, with the number of pageblocks that hold at least one such page, most first.
    pub pinned_by: Vec<(String, u64)>,
    /// Pinned pageblocks in which at most one page of sixteen is immovable.
    pub pinned_by_little: u64,
}

/// The mixing of page types during a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mixing {
    /// Requests that were served from pageblocks of another type.
    pub events: u64,
    /// Events with a free block below a pageblock: external fragmentation.
    pub fragmenting: u64,
    /// Events with a free block below order 4.
    pub serious: u64,
    /// Pageblocks that changed their type.
    pub claims: u64,
    /// Events by the type asked for and the type taken from, most first.
    pub pairs: Vec<(String, u64)>,
    /// Events by process, most first; the first ten.
    pub processes: Vec<(String, u64)>,
}
