//! Scenarios that replay a published comparison, and their tools.
//!
//! | you want | take |
//! |---|---|
//! | a published comparison, replayed here | [`scenarios`], [`Scenario::run`] |
//! | its report as text, as a page, as a folder | [`summary`], [`pages`], [`saved`] |
//! | saved results side by side | [`compare`] |
//! | a recording of a host under other policies | [`replay`] |
//! | the reason why a request failed, and the remedies | [`explain`] |
//! | many recordings under many policies, by many processes | [`sweep`] |
//! | the load of Gorman 2018 on the running kernel | [`workload`] |
//!
//! ```
#![doc = include_str!("../examples/first_run.rs")]
//! ```
//!
//! A *scenario* belongs to one document. It runs the document's programs under several *designs* (presets of the same
//! engine), in one process, turn by turn, and returns a [`Report`]: measurements, the published figures beside them as
//! ratios, and *oracles*, which are claims that the run itself confirms or refutes. Nothing here prints; a report
//! becomes text in [`summary`], JSON by serde, and a folder in [`saved`].
//!
//! Three rules keep the figures honest.
//!
//! 1. **Counts before times.** Counts (steps, fits, objects) depend on the seed alone and are compared exactly. Times
//!    depend on the machine: they are shown as median and range, and published times are compared as ratios only.
//! 2. **Designs take turns.** Each repetition runs every design once, in an order that rotates, so that a slow minute
//!    of the host falls on all of them.
//! 3. **The lab distrusts itself.** Few repetitions, a wide range and overlapping ranges become notes of the report,
//!    and rows that a design of ours loses are shown like the others.

mod apparatus;
pub mod compare;
mod declared;
pub mod explain;
mod extfrag;
pub mod figures;
pub mod frames;
mod jobs;
pub mod kernels;
pub mod key;
mod mmap_holes;
mod mmap_live;
pub mod oracle;
pub mod pages;
mod plan;
pub mod random;
mod real_memory;
mod recorded;
pub mod replay;
pub mod report;
pub mod saved;
pub mod scenario;
mod sha256;
pub mod shortfall;
mod spaces;
pub mod stats;
pub mod summary;
pub mod sweep;
mod tables;
pub mod usage;
mod vm_map_ram;
mod vmap_areas;
mod vmap_blocks;
mod vmap_live;
pub mod workload;
mod world;

pub use report::Report;
pub use scenario::{Mode, Options, Progress, RunError, Scenario, scenarios};
