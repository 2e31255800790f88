//! Tests of the backing crate, by subject.

mod frames;
mod huge_units;
mod probe;
mod reservation;
mod threads;
