//! The results of nofrag, as people read them: text for a terminal, a page for a browser.
//!
//! | you want | take |
//! |---|---|
//! | a table, bars, a map of memory | [`Section`], [`table_of`] |
//! | text for a terminal | [`text_for`] with a [`Look`], or [`text`] |
//! | one HTML file that needs no other | [`page::Page`] |
//! | a number with its unit | [`Quantity`], [`bytes_text`], [`duration_text`] |
//! | a report of `nofrag-host` as text or page | [`host`] |
//!
//! ```
#![doc = include_str!("../examples/first_table.rs")]
//! ```
//!
//! A [`Section`] is a part of a result: lines, a table, bars, a course over time, a map of memory. [`text_for`] makes
//! text of sections, at most [`COLUMNS`] wide, for a place with a [`Look`]; [`page`] makes of them, and of drawings
//! that only a browser can show, one file that needs no other. [`host`] has both for the reports of `nofrag-host`.
//!
//! Numbers stay numbers until they are read: a [`Quantity`] knows its unit, and a [`Cell`] of a table holds one. A
//! measured time is a [`duration`]; [`duration_text`] writes the time since an event.

mod cell;
mod document;
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
pub use document::{Document, Schema};
pub use lines::{sentence, wrapped};
pub use look::{Colour, Glyphs, Look};
pub use number::{
    Quantity, Unit, bytes, bytes_text, count, duration, duration_text, fixed, number, percent,
    plain, plural, ratio,
};
pub use origin::{Build, Origin, cpus};
pub use picture::{divided, divided_by};
pub(crate) use picture::{hole_map, inked, inks};
pub use section::{
    BarGroup, OccupancyMap, Paint, SCREEN, Section, first_screen, screen, screen_for, table_of,
    text, text_for,
};
pub use spread::{Spread, Tail};
pub use table::{Table, facts, numbers};
pub use tone::Tone;

/// The widest line of a text.
pub const COLUMNS: u16 = 100;
