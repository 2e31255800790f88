//! Tests of the backing crate, by subject.

mod probe;
mod reservation;
mod threads;
