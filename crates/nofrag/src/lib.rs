//! Allocators of number ranges that fight fragmentation.
//!
//! | you want | take |
//! |---|---|
//! | ranges of any numbers for one owner: device memory, slots, guest addresses | [`ranges::RangeAllocator`] |
//! | an address space: places of mappings, partial unmapping, moves in two steps | [`mmap::AddressSpace`] |
//! | page frames with migratetypes, watermarks, reclaim and compaction | [`page::PageAllocator`] |
//! | virtual areas that CPUs share, and small mappings (needs locks: the feature `std` or `spin`) | `vmap::VmapSpace` |
//! | the rules of a certain kernel, or ours, as a value | [`mmap::Placement`], [`page::FragmentationPolicy`] |
//! | the events that Linux would trace | [`event`] |
//! | a test that a structure is sound | [`check::Check`] |
//! | the memory behind the numbers | the crate `nofrag-backing` |
//!
//! ```
#![doc = include_str!("../examples/first_range.rs")]
//! ```
//!
//! This crate hands out *numbers*: ranges of addresses, pages, slots. It never touches the memory that they name, has
//! no clock, thread, file or random source, and runs without `std`. Time, CPU and seed are arguments, so every run
//! replays.
//!
//! Read in this order: [`units`] and [`cpu`] (units of what is counted, and sets of CPUs), [`check`] (the trait by
//! which a structure verifies its own laws), [`ranges`] (free ranges of numbers, single owner), [`mmap`] (the address
//! space of a process), [`page`] (page frames: zones, buddies, fallback, kswapd, compaction), `vmap` (virtual areas,
//! shared by many CPUs; needs locks, so the feature `std` or, without it, `spin`).
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

extern crate alloc;

pub mod check;
pub mod cpu;
mod errors;
pub mod event;
mod lists;
pub mod mmap;
pub mod page;
pub mod ranges;
#[cfg(any(feature = "std", feature = "spin", loom))]
mod sync;
pub mod units;
#[cfg(any(feature = "std", feature = "spin", loom))]
pub mod vmap;
