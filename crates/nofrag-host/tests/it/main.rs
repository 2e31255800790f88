//! Integration tests of the host reader.

mod extremes;
mod failure;
mod findings;
mod live;
mod live_trace;
mod machine;
mod parser;
mod perf_script;
mod proc_maps;
mod process;
mod raw_pages;
mod recording;
mod regressions;
mod strangers;
mod survey;
mod trace_dat;
mod trace_text;
