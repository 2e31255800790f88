//! Random operations on an arena, over memory of this process and of a simulated GPU, against a list of live runs.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::arena::run);
