//! Loops, probes and crowds that measure memory, for scenarios to judge.
//!
//! It is the one folder of this crate with `unsafe`. Each block is one operation, and its comment names the check that
//! makes it sound; nothing here is public, so the callers that the comments speak of are this crate's.
//!
//! Files, bottom up: `sys` (system calls, counted as those of the library are), `strategies` (ways to hand out runs),
//! `moves` and `churn` (memory that moves under writers and users), `properties` (statements about the kernel, tried),
//! `machine` (frames of a simulated machine that are memory), `huge_units` (first touches, timed), `kernel_areas`
//! (areas of the kernel's own address space), `crowd` (many live threads), `image` and `probe` (a process that maps
//! only on command, and its program).

pub(crate) mod churn;
pub(crate) mod crowd;
pub(crate) mod huge_units;
mod image;
pub(crate) mod kernel_areas;
pub(crate) mod machine;
pub(crate) mod moves;
pub(crate) mod probe;
pub(crate) mod properties;
pub(crate) mod strategies;
mod sys;
#[cfg(test)]
mod tests;

/// Why something could not be measured here.
pub(crate) type Trouble = Box<dyn std::error::Error + Send + Sync>;
