//! Integration tests of the host reader.

mod findings;
mod live;
mod parser;
mod proc_maps;
mod process;
mod regressions;
mod survey;
