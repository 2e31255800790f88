//! Arbitrary bytes as a log with the kernel's reports.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::failure::run);
