//! Arbitrary bytes as ring-buffer pages.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::raw_pages::run);
