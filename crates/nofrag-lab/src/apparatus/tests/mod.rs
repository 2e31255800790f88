//! Tests of what measures: that it does what its rows say, and that the kernel does what is relied on.

mod crowd;
mod huge_units;
mod moves;
#[cfg(target_arch = "x86_64")]
mod probe;
mod properties;
mod served;
