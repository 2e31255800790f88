//! Numbers that become memory.
//!
//! | you want | take |
//! |---|---|
//! | runs of pages for a runtime, a database or a pool, by thread | [`arena::Arena`] |
//! | page frames that you place yourself: guest memory, a page cache | [`frames::Frames`] |
//! | contiguous addresses over scattered frames | [`mapped::Mapped`] |
//! | memory that becomes contiguous while it is used | [`moving::LiveArea`], [`moving::Mover`] |
//! | a buffer that grows and is never copied | [`shapes::GrowableBuffer`] |
//! | a ring whose messages are never split | [`shapes::ring`](shapes::ring()) |
//! | many equal memories with guards, in one mapping | [`shapes::SlotPool`] |
//! | a range of addresses of your own, with protections inside it | [`reservation::Reservation`] |
//!
//! ```
#![doc = include_str!("../examples/first_arena.rs")]
//! ```
//!
//! Column buffers of a database, by bytes:
//!
//! ```
//! use nofrag_backing::arena::{Arena, Config, Purger};
//! use std::sync::Arc;
//!
//! let arena = Arc::new(Arena::reserve(1 << 30, Config::default())?);
//! let _purger = Purger::start(&arena)?; // gives memory back while the program is idle
//! let mut prices = arena.lease_bytes(arena.here(), 8 * 100_000)?; // a slice of bytes
//! prices[..8].copy_from_slice(&42_u64.to_le_bytes());
//! drop(prices); // the next buffer of this size is this one, without a system call
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The core hands out numbers and never touches the memory that they name. This crate does: it is the only one of the
//! workspace that maps, protects and unmaps, and so the only one with `unsafe`. Each block is one operation, and its
//! comment names the check that makes it sound.
//!
//! - [`arena`]: memory for runtimes, databases and pools: one reservation, blocks of owners, late purges in batches.
//! - [`backend`]: one face for all memory: private, shared and huge.
//! - [`faults`]: system calls that fail on purpose, and how many were made.
//! - [`frames`]: page frames in a file, handed out by the core's page allocator.
//! - [`moving`]: moving memory that is in use, and the costs of that.
//! - [`mapped`]: scattered page frames at adjacent addresses.
//! - [`reservation`]: a range of addresses that belongs to the caller, with protections and guards inside it.
//! - [`shapes`]: a buffer that grows without being copied, a ring without a seam, a pool of guarded memories.
//!
//! Linux only.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![cfg(target_os = "linux")]

pub mod arena;
pub mod backend;
pub mod faults;
mod forks;
pub mod frames;
mod limits;
pub mod mapped;
pub mod moving;
pub mod reservation;
pub mod shapes;
mod sys;
mod worker;
mod zeroed;
