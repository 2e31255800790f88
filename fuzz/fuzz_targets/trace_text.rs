//! Arbitrary bytes as the text of a trace.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::trace_text::run);
