//! Processor time and memory of the process.

use std::fs;
use std::time::Duration;

use nofrag_host::fields::meminfo_bytes;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Processor time of this process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// In user mode, in seconds.
    pub user_s: f64,
    /// In the kernel, in seconds.
    pub system_s: f64,
}

impl CpuTime {
    /// Returns the time used so far; `None` where the system does not tell.
    #[must_use]
    pub fn now() -> Option<CpuTime> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The second field is the program's name in parentheses and may hold anything; count from behind it.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let mut seconds = || {
            let ticks: f64 = fields.next()?.parse().ok()?;
            Some(ticks / rustix::param::clock_ticks_per_second() as f64)
        };
        Some(CpuTime { user_s: seconds()?, system_s: seconds()? })
    }

    /// Returns the time used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime { user_s: self.user_s - earlier.user_s, system_s: self.system_s - earlier.system_s }
    }
}

/// Returns the processor time that this thread has used.
#[must_use]
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the number of areas that the kernel allows a process (`vm.max_map_count`); its usual value where the system
/// does not tell.
#[must_use]
pub fn max_map_count() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530)
}

/// Returns a field of `/proc/meminfo`, or of a file of its form, in bytes; `None` where the system does not tell.
pub(crate) fn field_bytes(path: &str, field: &str) -> Option<u64> {
    meminfo_bytes(&fs::read_to_string(path).ok()?, field).ok()
}

/// Returns the memory that the process has in use (resident), in bytes; `None` where the system does not tell.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Confines the calling thread to the `nth` of the CPUs it may use, counted around; returns true if the system agreed.
pub fn pin_to(nth: usize) -> bool {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let Ok(allowed) = sched_getaffinity(None) else { return false };
    let ids: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&id| allowed.is_set(id)).collect();
    if ids.is_empty() {
        return false;
    }
    let mut only = CpuSet::new();
    only.set(ids[nth % ids.len()]);
    sched_setaffinity(None, &only).is_ok()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn processor_time_grows() {
        let Some(before) = CpuTime::now() else { return };
        let used = CpuTime::now().unwrap().since(before);
        assert!(used.user_s >= 0.0 && used.system_s >= 0.0);
    }

    #[test]
    fn a_thread_can_be_pinned_and_stays_usable() {
        thread::spawn(|| assert!(!cfg!(target_os = "linux") || pin_to(0))).join().unwrap();
    }
}
