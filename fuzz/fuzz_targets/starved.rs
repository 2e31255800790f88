//! Random small mappings under each preset, against a model.
#![cfg_attr(fuzzing, no_main)]

nofrag_fuzz::target!(nofrag_fuzz::starved::run);
