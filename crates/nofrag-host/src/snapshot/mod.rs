//! The state of a host at one moment: which memory is free, in which blocks, and what is in use.
//!
//! A snapshot is kept as the files that the kernel gave ([`Files`]); what they say is parsed when it is needed.

mod files;

pub use files::Files;
