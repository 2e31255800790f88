//! Arbitrary bytes as names of flags.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::flags::run);
