//! Random operations on each index design, against a naive model.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::ranges::run);
