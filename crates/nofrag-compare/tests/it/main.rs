//! The comparison itself must be right before its figures mean anything.

mod blocks;
mod disjointness;
mod targets;
mod traces;
