//! How the output looks: what the renderer of all reports knows of it.

#[allow(unused_imports, reason = "not every page draws with characters of its own")]
pub(crate) use nofrag_lab::render::{Glyphs, Look};
