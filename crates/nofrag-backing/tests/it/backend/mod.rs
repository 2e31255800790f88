//! Backends: all against one model, each by its own rules, and with system calls that fail.

mod conformance;
mod failures;
mod huge;
mod memory;
mod scattered;
mod support;
