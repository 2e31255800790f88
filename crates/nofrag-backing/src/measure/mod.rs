//! Costs of memory, measured: loops that touch raw memory, for comparisons of strategies and reports of figures.
//!
//! Nothing here is needed to use memory. The loops live in this crate because they map, write and unmap; their caller
//! decides how often and in which order they run, and what follows from the results. None of them takes an address from
//! its caller, so none can be given a wrong one.
//!
//! - [`arena`]: the arena under the same requests as the strategies.
//! - [`machine`]: the memory of a machine that is simulated otherwise, with a window in which pieces of it are mapped.
//! - [`strategies`]: ways to hand out runs of pages and to take them back, from a mapping each to never unmapping.

pub mod arena;
pub mod machine;
pub mod strategies;
