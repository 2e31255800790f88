//! Arbitrary bytes as a file of trace-cmd.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::trace_dat::run);
