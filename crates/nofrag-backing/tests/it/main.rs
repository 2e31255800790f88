//! Tests of the backing crate, by subject.

mod arena;
mod backend;
mod children;
#[cfg(target_arch = "x86_64")]
mod complexity;
mod extremes;
mod forks;
mod frames;
mod mapped;
mod maps;
mod moving;
mod reservation;
mod shapes;
