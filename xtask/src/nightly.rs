//! What finds faults slowly, one after the other: the checks that a change cannot wait for. `CONTRIBUTING.md` says what
//! each is; a night has room for all of them.

use std::path::Path;
use std::time::Duration;

use crate::ci::{self, Lane, MINUTE, Need, Stage};

const fn stage(
    name: &'static str,
    arguments: &'static [&'static str],
    needs: &'static [Need],
    limit: Duration,
) -> Stage {
    Stage { name, lane: Lane::Host, program: "cargo", arguments, environment: &[], needs, limit }
}

const HOUR: Duration = MINUTE.saturating_mul(60);

const fn ignored(name: &'static str, filter: &'static [&'static str]) -> Stage {
    stage(name, filter, &[], HOUR)
}

/// Those that have found most first.
const STAGES: &[Stage] = &[
    stage("campaign", &["xtask", "campaign", "--for", "120"], &[], HOUR.saturating_mul(3)),
    stage("fuzz targets", &["xtask", "fuzz", "--seconds", "120"], &[Need::Fuzzer], HOUR),
    stage("address sanitizer", &["xtask", "deep", "address"], &[], HOUR),
    stage("thread sanitizer", &["xtask", "deep", "thread"], &[], HOUR),
    stage("miri", &["xtask", "deep", "miri"], &[], HOUR),
    ignored("ten million operations", &IGNORED_RANGES),
    ignored("long model runs", &IGNORED_LONG),
    ignored("a million operations", &IGNORED_BLOCKS),
    ignored("many schedules", &IGNORED_SCHEDULES),
    stage("the running kernel", &LIVE, &[], HOUR),
    stage("real kernels", &["run", "--release", "--", "run", "frames", "--check"], &[], HOUR),
    stage("real memory", &SOAK, &[], HOUR),
];

const IGNORED_RANGES: [&str; 9] =
    ["test", "--release", "-p", "nofrag", "--test", "it", "ten_million", "--", "--ignored"];
const IGNORED_LONG: [&str; 9] =
    ["test", "--release", "-p", "nofrag", "--test", "it", "long_model_run", "--", "--ignored"];
const IGNORED_BLOCKS: [&str; 9] = [
    "test",
    "--release",
    "-p",
    "nofrag",
    "--test",
    "it",
    "a_million_operations",
    "--",
    "--ignored",
];
const IGNORED_SCHEDULES: [&str; 9] =
    ["test", "--release", "-p", "nofrag", "--test", "it", "many_schedules", "--", "--ignored"];
const LIVE: [&str; 7] = ["run", "--release", "--", "run", "mmap-live", "--full", "--check"];
const SOAK: [&str; 9] =
    ["run", "--release", "--", "run", "real-memory", "--mode", "soak", "--minutes", "30"];

/// Runs every stage, also after one failed; true if none did.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    ci::run_all(root, STAGES)
}
