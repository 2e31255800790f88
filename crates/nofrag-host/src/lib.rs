//! Reads a Linux host, live or captured: pure parsers, snapshots, findings. It prints nothing.
//!
//! | you want | take |
//! |---|---|
//! | the reasons of failed requests, from a log | [`failure::parse`] |
//! | the vmalloc space: its holders, its holes, what would still fit | [`vmalloc::survey`] |
//! | the areas of a process, and the room below its limit | [`process::survey`] |
//! | the whole machine at once | [`machine::survey`] |
//! | the same for a captured folder | [`source::Root`] |
//! | a host over time, for a screen or for Prometheus | [`watch::Watch`], [`metrics`] |
//! | a recording of the page allocator's events | [`record`], [`recording`] |
//! | the events in a trace that another tool made | [`trace`] |
//!
//! ```
#![doc = include_str!("../examples/first_report.rs")]
//! ```
//!
//! Layers, bottom to top, each with the reason why it stands there:
//!
//! * [`vmallocinfo`], [`proc_maps`], [`failure`] and [`fields`] turn bytes into values and touch no file, so that a
//!   fuzzer can drive them.
//! * [`budget`] bounds the memory and time that a file of unknown origin may cost.
//! * [`gfp`] translates the flags of a request for pages.
//! * [`source`] is the only module that reads files, so that a captured folder serves as well as a live host;
//!   [`unhash`] is the only module that changes a setting of the host, and puts the setting back.
//! * [`addresses`] decides whether the addresses may be believed before anything is computed from them.
//! * [`region`] finds the space in which the areas lie and how well its bounds are known; [`layout`] loads them into
//!   the engine and asks it what would still succeed; [`picture`] draws them.
//! * [`vmalloc`] combines the modules above in a [`vmalloc::VmallocReport`], with [`finding`]s.
//! * [`record`] lets the running kernel trace into buffers of our own, and removes the buffers again.
//! * [`trace`] reads the events that a kernel traced, [`snapshot`] the state that the kernel's files gave at one
//!   moment.
//! * [`recording`] is nofrag's own file format for traced events.
//! * [`process`] computes such a report for the address space of a process, with the engine of [`nofrag::mmap`].
//! * [`machine`] combines the reports in one for the whole machine.
//! * [`watch`] looks at a host again and again, each source at a pace that its cost allows; [`metrics`] writes the
//!   observations in the formats of Prometheus.
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
