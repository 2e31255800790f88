//! Random requests for page frames with faults injected, on small machines under each preset.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::pages::run);
