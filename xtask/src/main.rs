//! Repository tasks: tidy, ci, figures.

fn main() {}
