//! Scenarios, workloads, statistics, comparison and records.
