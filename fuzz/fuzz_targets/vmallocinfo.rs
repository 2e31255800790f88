//! Arbitrary bytes as `/proc/vmallocinfo`.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::vmallocinfo::run);
