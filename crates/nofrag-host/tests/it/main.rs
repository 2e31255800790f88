//! Integration tests of the host reader.

mod findings;
mod live;
mod parser;
mod regressions;
mod survey;
