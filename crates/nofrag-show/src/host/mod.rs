//! The reports of `nofrag-host`, as text and as a page: one module for each subject, with both.

mod grid;
pub mod machine;
pub mod maps;
pub mod pages;
mod parts;
pub mod preflight;
pub mod ranking;
pub mod recorded;
pub mod trace;
pub mod vmalloc;
pub mod watch;

pub use grid::{MARKS, mark_cells};
pub use parts::missing;
