//! Findings: what needs attention on a host, each with its evidence, its consequence and a remedy.
//!
//! A finding is a pure function of the [`VmallocReport`]. [`Severity::Warning`] means that a request would fail, or
//! that the figures cannot be trusted; a [`Severity::Note`] explains what a reader would otherwise get wrong.

use serde::Serialize;

use crate::addresses::Addresses;
use crate::region::Bounds;
use crate::vmalloc::{RegionReport, VmallocReport};

/// A fact about a host that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    pub severity: Severity,
    /// Stable name of the kind of finding.
    pub id: &'static str,
    pub evidence: String,
    pub consequence: String,
    pub help: String,
}

impl Finding {
    /// Returns a finding that asks for attention: its kind, evidence, consequence and help.
    pub(crate) fn warning(
        id: &'static str,
        evidence: impl Into<String>,
        consequence: impl Into<String>,
        help: impl Into<String>,
    ) -> Finding {
        let severity = Severity::Warning;
        Finding { severity, ..Finding::note(id, evidence, consequence, help) }
    }

    /// Returns a finding that explains, made of the same parts.
    pub(crate) fn note(
        id: &'static str,
        evidence: impl Into<String>,
        consequence: impl Into<String>,
        help: impl Into<String>,
    ) -> Finding {
        Finding {
            severity: Severity::Note,
            id,
            evidence: evidence.into(),
            consequence: consequence.into(),
            help: help.into(),
        }
    }
}

/// Urgency of a finding; the more urgent sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A request would fail, or the figures cannot be trusted.
    Warning,
    /// The finding explains what a reader would otherwise get wrong.
    Note,
}

/// Returns bytes as text for people: three figures, binary units.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = bytes.checked_ilog2().map_or(0, |log| log as usize / 10);
    let value = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    let decimals = match value {
        _ if unit == 0 || value.fract() == 0.0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Returns a count as text for people: with a comma between thousands.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Returns a duration as text for people: in the largest unit of which it has at least two, with one decimal for hours,
/// and for minutes and days below ten.
#[must_use]
pub fn duration_text(seconds: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(86_400.0, "days"), (3600.0, "h"), (60.0, "min")];
    match UNITS.into_iter().find(|(length, _)| seconds >= 2.0 * length) {
        None => format!("{seconds:.0} s"),
        Some((length, unit)) => {
            let value = seconds / length;
            let decimals = usize::from(value < 10.0 || unit == "h");
            format!("{value:.decimals$} {unit}")
        }
    }
}

/// Returns the reason why no region can be shown with such addresses; `None` if regions can be shown.
#[must_use]
pub fn why_no_regions(addresses: Addresses) -> Option<String> {
    let why = match addresses {
        Addresses::Real => return None,
        Addresses::Hashed => {
            "the addresses are hashed, so the order of the areas, and every hole between them, is unknown"
        }
        Addresses::Zeroed => "the addresses are printed as zeros, so no hole can be computed",
        Addresses::Withheld => "the kernel had no random numbers yet and withholds all addresses",
        Addresses::Inconsistent { line } => {
            return Some(format!(
                "some ranges are as long as their size says and others are not, first on line \
                 {line}: no kernel prints that, so none of the addresses is believed"
            ));
        }
        Addresses::NoAreas => "no area is listed",
    };
    Some(why.to_owned())
}

/// Returns all findings about `report`, most urgent first.
#[must_use]
pub fn findings(report: &VmallocReport) -> Vec<Finding> {
    let of_regions = report.regions.iter().flat_map(|region| {
        [space_tight(region), purge_matters(region), torn(region)].into_iter().flatten()
    });
    let mut findings: Vec<Finding> = [
        damaged(report),
        over_limit(report),
        addresses_unusable(report),
        lazy_dominates(report),
        caller_dominates(report),
    ]
    .into_iter()
    .flatten()
    .chain(of_regions)
    .collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn damaged(report: &VmallocReport) -> Option<Finding> {
    let host = &report.host;
    let evidence = match (report.malformed.first(), host.cut_off, report.addresses) {
        (Some(first), ..) => format!(
            "{} of {} lines describe no area, the first is line {}: {}",
            host.malformed_lines, host.lines, first.line, first.problem
        ),
        (None, true, _) => format!("line {}, the last one, has no end", host.lines),
        (None, false, Addresses::Inconsistent { line }) => {
            format!("line {line}: the range is not as long as the size beside it")
        }
        _ => return None,
    };
    Some(Finding::warning(
        "file-damaged",
        evidence,
        "areas may be missing from every figure below",
        "capture the file again with one `cat`; if a live kernel prints this, report the \
               line to nofrag",
    ))
}

fn over_limit(report: &VmallocReport) -> Option<Finding> {
    let limit = report.lazy.limit_bytes?;
    report.lazy.is_over_limit(report.host.cpus_online?).then(|| {
        Finding::warning(
            "lazy-over-limit",
            format!(
                "{} are freed but not purged; the limit is {}",
                bytes_text(report.lazy.bytes),
                bytes_text(limit)
            ),
            "areas are freed faster than the purge runs: address space, and time under its \
             locks, grow with it",
            "read again in a second; if it stays, look for `drain_vmap_area_work` in the \
               kernel log and for the caller that maps and unmaps most",
        )
    })
}

fn addresses_unusable(report: &VmallocReport) -> Option<Finding> {
    let areas = report.totals.areas;
    let seen = match report.addresses {
        Addresses::Real | Addresses::NoAreas | Addresses::Inconsistent { .. } => return None,
        Addresses::Hashed => format!("none of the {areas} ranges is as long as its size"),
        Addresses::Zeroed => format!("each of the {areas} ranges is printed as zeros"),
        Addresses::Withheld => format!("the {areas} ranges are printed without numbers"),
    };
    let setting = match report.host.kptr_restrict {
        Some(value) => format!("kernel.kptr_restrict is {value}"),
        None => "kernel.kptr_restrict is not known".to_owned(),
    };
    Some(Finding::note(
        "addresses-hidden",
        format!("{seen}; {setting}"),
        "no holes, no hole map and no largest request are shown; sizes, kinds and \
                      callers are true",
        how_to_see_addresses(report.addresses, report.host.kptr_restrict),
    ))
}

fn how_to_see_addresses(addresses: Addresses, kptr_restrict: Option<u8>) -> String {
    match (addresses, kptr_restrict) {
        (Addresses::Withheld, _) => "read again once the kernel has booted".to_owned(),
        (_, Some(1)) => {
            "the setting allows it, so the reader lacked CAP_SYSLOG: read again as root of the \
             host, not of a container"
                .to_owned()
        }
        (_, before) => format!(
            "as root: `sysctl kernel.kptr_restrict=1`, read again, and set it back: `sysctl \
             kernel.kptr_restrict={}`; on a live host `nofrag host vmalloc --unhash` does all \
             three",
            before.unwrap_or(0)
        ),
    }
}

fn lazy_dominates(report: &VmallocReport) -> Option<Finding> {
    let (lazy, total) = (report.lazy.bytes, report.totals.bytes);
    let live = report.totals.live_bytes;
    (total > 0 && lazy >= total - lazy).then(|| {
        let times = match live {
            0 => "nothing listed is in use".to_owned(),
            live => format!("who ignores this is wrong by {:.1} times", total as f64 / live as f64),
        };
        Finding::note("lazy-dominates", format!(
                "{} of {} listed bytes ({} of {} areas) are freed and wait for a purge; {} are in use",
                bytes_text(lazy),
                bytes_text(total),
                report.lazy.areas,
                report.totals.areas,
                bytes_text(live)
            ), format!("the sum of the list is not what is used: {times}"), "nothing to do: the kernel purges at its \
                        limit, or when a request finds no \
                   room; count these areas apart")
    })
}

/// Number of areas from which on a caller is reported that holds half of the bytes in use.
const MANY_AREAS: u64 = 1000;

fn caller_dominates(report: &VmallocReport) -> Option<Finding> {
    let live = report.totals.live_bytes;
    let top = report.callers.iter().find(|group| group.areas >= MANY_AREAS)?;
    (top.bytes >= live / 2).then(|| {
        Finding::note(
            "caller-dominates",
            format!(
                "{} holds {} of {} bytes in use in {} areas",
                top.name,
                bytes_text(top.bytes),
                bytes_text(live),
                top.areas
            ),
            "usual for thread stacks (kernel_clone) on a host with many threads; a leak if it \
             only grows",
            "read again later with --json and compare this caller's areas",
        )
    })
}

fn space_tight(region: &RegionReport) -> Option<Finding> {
    if matches!(region.bounds, Bounds::Observed { .. }) {
        return None; // what is free outside of the hull is unknown, so nothing is known to be short
    }
    let size = region.end - region.start;
    let after = &region.after_purge;
    let tight = after.largest_area_bytes < size / 16;
    tight.then(|| Finding::warning("space-tight", format!(
            "{}: the largest hole after a full purge is {}, of {} free in {} holes, in a space of {} ({} bounds)",
            region.name.into_str(),
            bytes_text(after.largest_area_bytes),
            bytes_text(after.free_bytes),
            after.holes,
            bytes_text(size),
            region.bounds.into_str()
        ), format!(
            "a request above {} fails (`vmap allocation for size N failed`)",
            bytes_text(after.largest_request_bytes)
        ), if after.free_bytes / 4 > after.largest_area_bytes {
            "the space is fragmented rather than full: find the callers whose areas lie between \
             the holes; areas do not move, so only their release or a reboot joins the holes"
        } else {
            "the space is full rather than fragmented: look at the callers with most bytes; on a \
             32-bit kernel a larger `vmalloc=` on its command line helps"
        }
        .to_owned()))
}

fn purge_matters(region: &RegionReport) -> Option<Finding> {
    let (now, after) = (region.now.largest_request_bytes, region.after_purge.largest_request_bytes);
    (now < after / 2).then(|| {
        Finding::note(
            "purge-matters",
            format!(
                "{}: the largest request that succeeds is {} now and {} after a full purge",
                region.name.into_str(),
                bytes_text(now),
                bytes_text(after)
            ),
            "a request between the two succeeds, but pays for a full purge first: a flush on \
             every CPU",
            "nothing to do, unless such requests are frequent; then reserve their space early",
        )
    })
}

fn torn(region: &RegionReport) -> Option<Finding> {
    (region.overlapping_areas > 0).then(|| {
        Finding::note(
            "read-while-changing",
            format!(
                "{}: {} areas claim a range that an earlier line holds",
                region.name.into_str(),
                region.overlapping_areas
            ),
            "the kernel lists areas while they come and go; these were left out of the holes",
            "read again on a quieter host if it matters",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_people() {
        let expected = [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (20_480, "20 KiB"),
            (67_010_560, "63.9 MiB"),
            (87_433_216, "83.4 MiB"),
            ((32 << 40) - (72 << 20), "32.0 TiB"),
            (12_800 << 40, "12.5 PiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, text) in expected {
            assert_eq!(bytes_text(bytes), text);
        }
    }

    /// Checks the texts of durations. The bug `half_a_minute_less`: a forecast of 150 s was said to be 2 min, where
    /// `nofrag top` said 2.5 min.
    #[test]
    fn durations_for_people() {
        let expected = [
            (0.4, "0 s"),
            (59.6, "60 s"),
            (119.0, "119 s"),
            (150.0, "2.5 min"),
            (600.0, "10 min"),
            (7300.0, "2.0 h"),
            (36_000.0, "10.0 h"),
            (864_000.0, "10 days"),
        ];
        for (seconds, text) in expected {
            assert_eq!(duration_text(seconds), text);
        }
    }
}
