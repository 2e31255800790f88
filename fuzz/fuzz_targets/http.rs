//! Arbitrary bytes as requests of scrapers.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::http::run);
