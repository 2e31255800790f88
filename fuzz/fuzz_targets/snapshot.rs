//! Arbitrary bytes as the files of a snapshot.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::snapshot::run);
