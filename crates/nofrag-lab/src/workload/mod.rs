//! A document's own workload, for real, on the running kernel.
//!
//! `extfrag` simulates thpfioscale; this is the program itself (docs/sources/pages.md#thpfioscale): writers fill files
//! of 64 KiB, block by block, until the page cache has taken most of memory; readers then read random blocks of them,
//! sixteen of a file; and while they do, threads map memory and touch half of its units of 2 MiB one by one, timing
//! each. A unit that the kernel can back by one huge page costs one fault, any other one a fault for each page. The
//! document's tables show how many units get one, and the times of both kinds; only a recording shows the requests that
//! were served from pageblocks of another type (the events).
//!
//! The program writes down its actions before it acts ([`WorkloadPlan`]): sizes, folders, and omissions. It refuses
//! runs that would hurt the host: files in memory, more of a disk than was allowed, more anonymous memory than is
//! available. All its files stand in a folder that it makes, which is removed in any case (`folder`); a kill that
//! cannot be caught leaves it, and the next run below the same folder removes it first.
//!
//! Bottom up: `host` (the machine), `plan` (the decisions), `folder`, `files` (writers and readers), `toucher`,
//! `counters` (`/proc/vmstat` by phase), `outcome` (the results), `present` (their tables).

mod counters;
mod files;
mod folder;
mod host;
mod outcome;
mod phases;
mod plan;
mod present;
#[cfg(test)]
mod tests;
mod toucher;

pub use counters::{COUNTERS, Counters};
pub use folder::{FolderError, remove_left_behind};
pub use host::{Disk, Host};
pub use outcome::{Ended, Latency, Phase, PhaseResult, Reads, ThpFioOutcome, Units, Written};
pub use phases::{WorkloadError, run};
pub use plan::{Advice, FILE_BYTES, PlanError, Scale, ThpFioOptions, WorkloadPlan, plan};
pub use present::{sections, sentences};
