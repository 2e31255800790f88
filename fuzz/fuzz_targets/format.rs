//! Arbitrary bytes as a format file and a record.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::format::run);
