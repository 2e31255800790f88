//! Tests of the public interface, one module per document or method.
// Tests may abort when memory runs out.
#![allow(clippy::disallowed_types)]

mod designs;
mod doc_2019;
mod linux_rules;
mod memory;
mod mersenne;
mod model;
mod regressions;
mod vmap_model;
mod vmap_support;
