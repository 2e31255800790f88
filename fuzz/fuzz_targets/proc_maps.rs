//! Arbitrary bytes as `/proc/PID/maps`.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::proc_maps::run);
