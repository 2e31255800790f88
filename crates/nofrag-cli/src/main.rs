//! The `nofrag` command.

fn main() {}
