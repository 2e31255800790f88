//! The comparison itself must be right before its figures mean anything.

mod areas;
mod blocks;
mod contest;
mod disjointness;
mod packing;
mod pages;
mod targets;
mod traces;
