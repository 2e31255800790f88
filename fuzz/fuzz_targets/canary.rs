//! The `ranges` target on an allocator with a planted bug, which must be found.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::canary::run);
