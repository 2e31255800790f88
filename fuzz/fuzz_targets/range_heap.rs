//! Random operations on ranges that are freed by handle, against a naive model.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::range_heap::run);
