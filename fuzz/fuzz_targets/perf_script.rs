//! Arbitrary bytes as the text of perf script.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::perf_script::run);
