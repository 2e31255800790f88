//! Side-by-side benchmarks against published crates, in one run.

fn main() {}
