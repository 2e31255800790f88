//! What nofrag finds, as people read it: text for a terminal, a page for a browser.
//!
//! A [`Section`] is a part of what is read: lines, a table, bars, a course over time, a map of memory. [`text_for`]
//! makes text of sections, at most [`COLUMNS`] wide, for what a place can show ([`Look`]); [`page`] makes of them, and
//! of drawings that only a browser has, one file that needs no other. [`host`] has both of what `nofrag-host` reports.
//!
//! Numbers stay numbers until they are read: a [`Quantity`] knows what it counts, and a [`Cell`] of a table holds one.
//! What was measured to take time is a [`duration`]; how long ago something was says [`duration_text`].

mod cell;
pub mod host;
mod lines;
mod look;
mod number;
mod origin;
pub mod page;
mod picture;
mod section;
mod spread;
mod table;
mod tone;

pub use cell::Cell;
pub use lines::{sentence, wrapped};
pub use look::{Colour, Glyphs, Look};
pub use number::{
    Quantity, Unit, bytes, bytes_text, count, duration, duration_text, fixed, number, percent,
    plain, plural, ratio,
};
pub use origin::{Build, Origin, cpus};
pub use picture::{divided, divided_by, hole_map, inked, inks};
pub use section::{BarGroup, OccupancyMap, Paint, Section, table_of, text, text_for};
pub use spread::{Spread, Tail};
pub use table::{Numbers, facts};
pub use tone::Tone;

/// The widest line of a text.
pub const COLUMNS: u16 = 100;

/// What the crate's page shows holds.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
