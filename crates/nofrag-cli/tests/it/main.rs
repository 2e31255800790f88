//! The command from outside: its output and its ends.

mod compare;
mod completions;
mod exit_status;
mod explain;
mod export;
mod extfrag;
mod frames;
mod golden;
mod host_machine;
mod host_maps;
mod host_vmalloc;
mod json;
mod man;
mod mmap_holes;
mod preflight;
mod real_memory;
mod record;
mod report;
mod run;
mod states;
mod strangers;
mod support;
mod top;
mod vmap_blocks;
mod widths;
mod workload;
