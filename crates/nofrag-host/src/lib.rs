//! Reads a Linux host, live or captured: pure parsers, snapshots, findings. It prints nothing.
//!
//! Layers, bottom to top, each with the reason why it stands there:
//!
//! * [`vmallocinfo`], [`proc_maps`], [`failure`] and [`fields`] turn bytes into values and touch no file, so that a
//!   fuzzer can drive them.
//! * [`budget`] says what a file that somebody else wrote may cost.
//! * [`gfp`] says what the flags of a request for pages stand for.
//! * [`source`] is the only module that reads files, so that a captured folder serves as well as a live host;
//!   [`unhash`] is the only one that changes a host, and puts it back.
//! * [`addresses`] decides whether the addresses may be believed before anything is computed from them.
//! * [`region`] says which space the areas lie in and how well its bounds are known; [`layout`] loads them into
//!   the engine and asks it what would still succeed; [`picture`] draws them.
//! * [`vmalloc`] puts it together as a [`vmalloc::Report`], with [`finding`]s.
//! * [`record`] lets the running kernel trace into buffers of our own, and takes them away again.
//! * [`trace`] reads what a kernel traced, [`snapshot`] what stood in its files at one moment.
//! * [`recording`] is nofrag's own file of what was traced.
//! * [`process`] does the same for the address space of a process, with the engine of [`nofrag::mmap`].
//! * [`machine`] puts all of them on one screen for the whole machine.
//! * [`watch`] looks at a host again and again, each source at a pace that its cost allows; [`metrics`] says what was
//!   seen in the terms of Prometheus.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod addresses;
pub mod budget;
pub mod failure;
pub mod fields;
pub mod finding;
pub mod gfp;
pub mod layout;
mod lists;
pub mod machine;
pub mod metrics;
pub mod picture;
pub mod proc_maps;
pub mod process;
pub mod record;
pub mod recording;
pub mod region;
pub mod snapshot;
pub mod source;
pub mod trace;
pub mod unhash;
pub mod vmalloc;
pub mod vmallocinfo;
pub mod watch;

/// What the crate's page shows holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
