//! Integration tests of the host reader.

mod live;
mod parser;
mod regressions;
mod survey;
