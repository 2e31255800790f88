//! Tests of the backing crate, by subject.

mod huge_units;
mod probe;
mod reservation;
mod threads;
