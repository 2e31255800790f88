//! Random operations on address spaces of every placement, against a naive list of areas.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::mmap::run);
