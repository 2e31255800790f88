//! Allocators of number ranges that fight fragmentation.
//!
//! | you want | take |
//! |---|---|
//! | ranges of any numbers for one owner: device memory, slots, guest addresses | [`ranges::RangeAllocator`] |
//! | the same by handle, in O(1), as for heaps of a GPU | [`ranges::RangeHeap`] |
//! | the same for threads, as handles or as values that free themselves | `ranges::SharedRanges` |
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
//! A heap of device memory, for any thread; a buffer that is dropped is free:
//!
//! ```
//! use nofrag::ranges::{OwnedRange, Request, SharedRanges, Span};
//! use std::sync::Arc;
//!
//! let heap = Arc::new(SharedRanges::over(Span::new(0, 8 << 30)?)?); // 8 GiB on the device
//! let mut buffers = Vec::new();
//! for kib in [640, 96, 2048] {
//!     let request = Request::new(kib << 10).align(64 << 10);
//!     buffers.push(OwnedRange::new(Arc::clone(&heap), &request)?);
//! }
//! assert_eq!(buffers[1].span().start(), 640 << 10); // the offset that the driver is told
//! buffers.remove(0);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Guest-physical addresses of a virtual machine, whose windows begin at multiples of their sizes:
//!
//! ```
//! use nofrag::ranges::{Fit, RangeAllocator, Request, Span};
//!
//! let mut guest = RangeAllocator::over((0..1 << 36).try_into()?)?;
//! guest.alloc_at(Span::new(0, 2 << 30)?)?; // the guest's memory
//! let below_4_gib = Span::new(2 << 30, 4 << 30)?;
//! let window = |bytes: u64| Request::new(bytes).align(bytes).within(below_4_gib);
//! let card = guest.alloc(&window(1 << 20))?;
//! let graphics = guest.alloc(&window(256 << 20).fit(Fit::Highest))?;
//! let moved = guest.relocate(card, &window(1 << 20))?; // dropped here, the card would stay where it is
//! let card = moved.commit().map_err(|(_, why)| why)?;
//! # let _ = (card, graphics);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Column buffers of a database, with the memory behind them, begin the page of `nofrag-backing`. The feature `serde`
//! saves and restores a [`RangeAllocator`](ranges::RangeAllocator).
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
