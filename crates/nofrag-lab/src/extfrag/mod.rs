//! `extfrag-2018`: Gorman's "Fragmentation avoidance improvements", what it came from, and what came after.
#![allow(dead_code, reason = "the scenario is being built; removed with its registration")]

mod actor;
mod cache;
mod costs;
mod lru;
mod machine;
mod mixes;
mod owner;
mod schedule;
mod simulate;
mod slab;
mod spec;
#[cfg(test)]
mod tests;
mod world;
