//! Arbitrary bytes as a recording.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::recording::run);
