//! Side by side: nofrag's range allocator against published crates and the standard library, its small mappings against
//! Linux's rules for them, its address spaces against Linux's design and what others write, and its page frames against
//! published crates, in one run.
//!
//! What makes the comparison fair, and where it is read:
//!
//! * [`peers`]: every contestant stands behind one trait with the least adapter that its documentation asks for.
//! * [`trace`]: operations are drawn from a seed before any clock starts; every contestant performs the same ones.
//! * [`contest`]: rounds are interleaved, so that a noisy minute of the host hits all; each round starts from a fresh
//!   state.
//! * [`verify`]: before anything is timed a bitmap checks that ranges are inside the space and disjoint. A contestant
//!   that is wrong is shown as wrong, one that cannot do a thing as unable, one that is too slow with how far it came.
//! * [`speed`], [`low_holes`], [`patterns`], [`worst`], [`latency`], [`footprint`], [`packing`]: one file per table.
//! * [`blocks`]: the same for small mappings, with contestants of their own.
//! * [`areas`]: the same for address spaces, with contestants of their own.
//! * [`pages`]: the same for page frames, with contestants of their own.
//! * `heaps`: the same for runs of memory; with the feature of that name.
//! * `gpu`: the same for blocks in memory of a GPU; with the feature of that name.
//! * [`targets`]: the goals that nofrag set itself, and whether each was met or missed.
//!
//! One operation is one allocation or one free. Times are of the measuring thread on its CPU, except those of single
//! allocations, for which that clock is too slow, of two threads, which wait for each other, and of a GPU, which is
//! waited for.

pub mod areas;
pub mod blocks;
pub mod contest;
pub mod footprint;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(feature = "heaps")]
pub mod heaps;
pub mod latency;
pub mod low_holes;
pub mod origin;
pub mod packing;
pub mod pages;
pub mod patterns;
pub mod peers;
pub mod record;
pub mod report;
pub mod roster;
pub mod speed;
pub mod targets;
pub mod trace;
pub mod verify;
pub mod worst;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

/// Counts the bytes that a contestant holds. Counting costs a few atomic additions per heap call, for every contestant
/// alike; the speed table shows how many heap calls each makes.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
