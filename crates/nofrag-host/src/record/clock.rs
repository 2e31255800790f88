//! The clocks of a recording.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Name of the clock in tracefs: it agrees between CPUs, and a snapshot can be dated by it.
pub(super) const CLOCK: &str = "mono";

/// Returns the time of the clock that dates events, in nanoseconds.
pub(super) fn clock_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time of this process in seconds.
pub(super) fn own_cpu_seconds() -> f64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime)) as f64 / 1e9
}

/// Returns the CPU time of this thread in seconds.
pub(super) fn thread_cpu_seconds() -> f64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime)) as f64 / 1e9
}

fn nanoseconds(time: Timespec) -> u64 {
    let value = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(value).unwrap_or(0)
}
