//! Reads a Linux host, live or captured: pure parsers, snapshots, findings.
