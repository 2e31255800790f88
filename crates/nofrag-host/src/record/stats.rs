//! The kernel's counters of a buffer, with lost events: `per_cpu/cpuN/stats`.

use crate::recording::CpuStats;

/// Parses the text of `per_cpu/cpuN/stats`; a counter that is missing there is 0.
pub(super) fn parse(cpu: u16, text: &str) -> CpuStats {
    let value = |key: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        rest.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    CpuStats {
        cpu,
        entries: value("entries"),
        overrun: value("overrun"),
        commit_overrun: value("commit overrun"),
        dropped: value("dropped events"),
        read: value("read events"),
    }
}

/// Writes the counters as the kernel writes them.
pub(super) fn text(stats: &CpuStats) -> String {
    let CpuStats { entries, overrun, commit_overrun, dropped, read, .. } = stats;
    format!(
        "entries: {entries}\noverrun: {overrun}\ncommit overrun: {commit_overrun}\n\
         dropped events: {dropped}\nread events: {read}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_silently() {
        let kernels = "entries: 7\noverrun: 100\ncommit overrun: 20\nbytes: 5\noldest event ts:    61.17\n\
                       now ts:    63.59\ndropped events: 3\nread events: 235890\n";
        let stats = parse(1, kernels);
        assert_eq!((stats.entries, stats.read, stats.lost()), (7, 235_890, 123));
        assert_eq!(parse(1, &text(&stats)), stats);
        assert_eq!(parse(0, "garbage").lost(), 0);
    }
}
