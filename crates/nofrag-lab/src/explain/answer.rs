//! What an explanation consists of: the schema of `nofrag explain --json`.

use serde::{Deserialize, Serialize};

use crate::replay::ReplayReport;

/// Name of the schema.
pub const SCHEMA: &str = "nofrag.explain";
/// Its version: a field that is removed or changes its meaning raises it.
pub const VERSION: u32 = 1;

/// Why memory could not be had, and what would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// [`SCHEMA`]
    pub schema: String,
    /// [`VERSION`]
    pub version: u32,
    /// What was explained, as it was named.
    pub source: String,
    /// What kind of source it is.
    pub kind: SourceKind,
    /// The kernel's release.
    pub release: Option<String>,
    /// Each thing that failed or would fail, in the order of the source.
    pub cases: Vec<Case>,
    /// What can be had in each zone, from a snapshot.
    pub obtainable: Vec<Obtainable>,
    /// Mixing of types, from a recording.
    pub mixing: Option<Mixing>,
    /// The same requests under other policies, where they were recorded and replayed.
    pub replay: Option<ReplayReport>,
    /// What is not known, and what that means for the answers; sentences.
    pub cautions: Vec<String>,
}

/// What was explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Reports of the kernel log.
    Reports,
    /// The state of a host at one moment.
    Snapshot,
    /// A recording of requests.
    Recording,
}

/// Something that failed, or would.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// What it is about, such as `order 4 (64 KiB), GFP_KERNEL|__GFP_COMP, for pipewire`.
    pub title: String,
    /// On which lines of a text it is reported; empty for other sources. The figures are those of the first.
    pub lines: Vec<u32>,
    /// How often it happened.
    pub times: u64,
    /// What was asked.
    pub asked: Option<Asked>,
    /// Why it failed.
    pub cause: Cause,
    /// The cause in one sentence with its figures.
    pub summary: String,
    /// Zone by zone what was free and why it did not fit, those first that the request looked at first.
    pub zones: Vec<ZoneCase>,
    /// What would have succeeded; sentences.
    pub would: Vec<String>,
    /// Which policies avoid it.
    pub policies: Vec<PolicyCase>,
    /// What to do, most promising first.
    pub advice: Vec<Advice>,
    /// What the source lacks; sentences.
    pub missing: Vec<String>,
}

/// A request for a block of pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The order of the block.
    pub order: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The request's flags, as the kernel prints them.
    pub mode: String,
    /// The type of the pages.
    pub migratetype: String,
    /// The highest zone that it could use.
    pub highest_zone: String,
    /// What the caller allows: a sentence.
    pub context: String,
}

/// Why memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Nothing failed, and nothing would.
    Nothing,
    /// The source does not say enough.
    Unknown,
}

/// A zone, and why it did not serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneCase {
    /// Which.
    pub zone: String,
    /// Bytes free.
    pub free_bytes: u64,
    /// The watermarks in force, boost included: min, low and high, in bytes.
    pub marks_bytes: [u64; 3],
    /// By how many bytes they were raised.
    pub boost_bytes: u64,
    /// Bytes kept from this request because it could have used a higher zone.
    pub reserve_bytes: u64,
    /// Free blocks by order.
    pub blocks: Vec<u64>,
    /// The largest order of a free block.
    pub largest_free: Option<u32>,
    /// The largest order that the zone would serve to such a request.
    pub largest_served: Option<u32>,
    /// Why a block of the order is not there: 0 for lack of memory, 1000 because memory is in pieces; none if there is
    /// one.
    pub fragmentation: Option<i64>,
    /// The share of free memory that cannot serve the order, in 1/1000.
    pub unusable: u64,
    /// Why it did not serve: a sentence.
    pub why: String,
}

/// Whether a policy avoids a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyCase {
    /// The policy's name.
    pub policy: String,
    /// Whether it does.
    pub verdict: PolicyVerdict,
    /// Why.
    pub why: String,
    /// At which cost.
    pub cost: String,
    /// How that is known.
    pub basis: Basis,
}

/// Whether a policy avoids a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyVerdict {
    /// It would have served this request.
    Avoids,
    /// It works against the cause; whether it would have been enough depends on what happened before.
    WorksAgainst,
    /// It would have failed as well.
    Fails,
}

/// How an answer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// From the policy's rules; nothing was run.
    Rules,
    /// The recorded requests were replayed.
    Replayed,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What to do.
    pub what: String,
    /// What speaks for it.
    pub evidence: String,
    /// What it costs.
    pub cost: String,
}

/// What can be had in a zone, in pageblocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Obtainable {
    /// The zone.
    pub zone: String,
    /// Bytes of a pageblock.
    pub block_bytes: u64,
    /// Pageblocks whose frames the allocator manages, whole or in part.
    pub pageblocks: u64,
    /// Those that are free.
    pub now: u64,
    /// At most so many if everything that can be moved is moved: what is movable and free, as far as free pages
    /// suffice.
    pub after_compaction: u64,
    /// At most so many if page cache is dropped as well.
    pub after_reclaim: u64,
    /// Those in which something stays where it is.
    pub pinned: u64,
    /// What pins them: uses with the pageblocks that hold at least one such page, most first.
    pub pinned_by: Vec<(String, u64)>,
    /// Pinned pageblocks in which at most one page of sixteen stays where it is.
    pub pinned_by_little: u64,
}

/// How types of pages were mixed during a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mixing {
    /// Requests that were served from pageblocks of another type.
    pub events: u64,
    /// Those with a free block below a pageblock: external fragmentation.
    pub fragmenting: u64,
    /// Those with a free block below order 4.
    pub serious: u64,
    /// Pageblocks that changed their type.
    pub claims: u64,
    /// By the type asked for and the type taken from, most first.
    pub pairs: Vec<(String, u64)>,
    /// By process, most first; the first ten.
    pub processes: Vec<(String, u64)>,
}
