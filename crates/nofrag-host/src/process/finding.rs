//! Findings: what needs attention in an address space, each with its evidence, its consequence and a remedy.
//!
//! As in [`crate::finding`], each finding is a pure function of the [`ProcessReport`].

use nofrag::mmap::MergeBlocker;

use super::ProcessReport;
use super::blockers::{Blocker, BlockerGroup, NO_SMAPS};
use super::ranking::NEAR;
use super::room::StoppedBy;
use super::window::{Certainty, Width};
use crate::finding::{Finding, bytes_text, duration_text};

/// Returns all findings about `report`, most urgent first.
#[must_use]
pub fn findings(report: &ProcessReport) -> Vec<Finding> {
    let mut findings: Vec<Finding> = [
        damaged(report),
        areas_near_limit(report),
        limit_soon(report),
        space_tight(report),
        limit_of_bytes(report),
        guards_dominate(report),
        neighbours_apart(report),
    ]
    .into_iter()
    .flatten()
    .collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn damaged(report: &ProcessReport) -> Option<Finding> {
    let process = &report.process;
    let evidence = match (report.malformed.first(), process.cut_off) {
        (Some(first), _) => format!(
            "{} of {} lines cannot be read, the first is line {}: {}",
            process.malformed_lines, process.lines, first.line, first.problem
        ),
        (None, true) => format!("line {}, the last one, has no end", process.lines),
        (None, false) => return None,
    };
    Some(Finding::warning(
        "file-damaged",
        evidence,
        "areas may be missing from every figure",
        "read again; of a captured host, copy the file again with one `cat`",
    ))
}

/// Returns advice for a process with too many areas, besides a higher limit.
fn how_to_need_fewer(report: &ProcessReport) -> String {
    let mut advice = Vec::new();
    let areas = report.count.areas;
    if report.no_access.guard_areas > areas / 4 {
        advice.push(
            "guards cost two areas for each piece they protect: install them with \
             MADV_GUARD_INSTALL (Linux 6.13), which costs none, or make stacks without a guard area",
        );
    }
    if let Some(group) = report.neighbours.groups.first().filter(|group| group.pairs > areas / 4) {
        advice.push(help_for(group));
    }
    if advice.is_empty() {
        advice.push("map fewer and larger pieces: see which names hold most areas");
    }
    advice.join("; ")
}

/// Returns advice on the neighbours in a group.
fn help_for(group: &BlockerGroup) -> &'static str {
    match group.blocker {
        Blocker::NotShown if group.detail == NO_SMAPS => {
            "maps alone does not show why: look again without --maps-only, as the owner or as root"
        }
        Blocker::Rule(MergeBlocker::Protection) => {
            "pieces with different access alternate: of jemalloc this is seen where memory may not \
             be overcommitted (set `vm.overcommit_memory` to 0 or 1, or `retain:true`); elsewhere \
             change the access of larger pieces at a time, and give memory back with MADV_DONTNEED \
             in place of mprotect"
        }
        Blocker::Rule(MergeBlocker::Flags) => {
            "pieces with different flags alternate: call madvise and mlock for whole arenas, not \
             for pieces of them"
        }
        Blocker::Rule(MergeBlocker::Backing) => {
            "each mapped file needs areas of its own: map fewer or larger files, or raise the limit, \
             as databases and search engines that map many files ask for"
        }
        Blocker::Rule(MergeBlocker::Offset) => {
            "the same file is mapped in pieces that do not follow each other: map it once, as a whole"
        }
        Blocker::Rule(MergeBlocker::Name) => {
            "names differ: name whole arenas, or turn the naming off (glibc: tunable \
             glibc.mem.decorate_maps)"
        }
        Blocker::Rule(MergeBlocker::Chain) | Blocker::NotShown => {
            "pieces that were touched before they met never join: reserve one large piece first and \
             hand out parts of it"
        }
        Blocker::Rule(MergeBlocker::Special | MergeBlocker::CloseHook) => {
            "mappings of devices never merge: map larger pieces of them"
        }
        Blocker::Rule(MergeBlocker::MemoryPolicy) => "set memory policies for whole arenas",
        Blocker::Rule(MergeBlocker::Userfault) => "register whole arenas with userfaultfd",
        Blocker::Rule(_) => "give neighbours the same attributes",
    }
}

fn raise_to(limit: u64) -> String {
    const COMMON: u64 = 1 << 20; // what Fedora, Ubuntu and Arch have (docs/sources/trace.md#map-count)
    format!("`sysctl vm.max_map_count={}`", COMMON.max(limit.saturating_mul(4)))
}

fn areas_near_limit(report: &ProcessReport) -> Option<Finding> {
    let (limit, left) = (report.count.limit?, report.count.left?);
    let areas = report.count.areas;
    (report.count.share()? >= NEAR).then(|| Finding::warning("areas-near-limit", format!(
            "{areas} areas of the {limit} that vm.max_map_count allows, {left} left, {} mapped ({} an area)",
            bytes_text(report.mapped_bytes),
            bytes_text(report.mapped_bytes / areas.max(1))
        ), match left {
            0 => format!(
                "what splits an area fails with ENOMEM: mprotect, madvise, and munmap of the middle of any of \
                 {} areas, although it would free memory; {}",
                report.count.can_be_split,
                if areas > limit { "so do new mappings" } else { "one more mapping succeeds" }
            ),
            1..=3 => "mremap that moves fails with ENOMEM, the next splits make munmap and mprotect fail".to_owned(),
            _ => format!(
                "after {left} more areas mmap, mprotect and even munmap (when it cuts a hole into an area) \
                 fail with ENOMEM; thread creation says EAGAIN"
            ),
        }, format!("{}; {}", raise_to(limit), how_to_need_fewer(report))))
}

/// Seconds within which a limit must be reached for a warning.
const SOON_SECONDS: f64 = 24.0 * 3600.0;

fn limit_soon(report: &ProcessReport) -> Option<Finding> {
    let growth = report.growth?;
    let limit = report.count.limit?;
    let seconds = growth.seconds_to_limit.filter(|&seconds| seconds < SOON_SECONDS)?;
    Some(Finding::warning(
        "limit-soon",
        format!(
            "{} areas became {} in {:.1} s: {:.1} a second ({} appeared, {} vanished)",
            growth.areas_before,
            growth.areas_after,
            growth.seconds,
            growth.areas_per_second,
            growth.appeared,
            growth.vanished
        ),
        format!(
            "if it goes on like this, the limit of {limit} is reached in {}; two looks are little: \
             a burst looks like a trend",
            duration_text(seconds)
        ),
        format!("look again with a longer --every; then {}", how_to_need_fewer(report)),
    ))
}

fn space_tight(report: &ProcessReport) -> Option<Finding> {
    let space = &report.space;
    let size = space.end - space.start;
    let largest = space.room.largest_bytes;
    let is_known = space.certainty == Certainty::Known || space.width == Width::Bits32;
    (is_known && largest < size / 16).then(|| Finding::warning("space-tight", format!(
            "the largest hole is {}, of {} free in {} holes, in a space of {}",
            bytes_text(largest),
            bytes_text(space.room.free_bytes),
            space.room.holes,
            bytes_text(size)
        ), format!("a mapping above {} fails with ENOMEM", bytes_text(largest)),
if space.room.free_bytes / 4 > largest {
            "the space is fragmented rather than full: areas do not move, so only unmapping what \
             lies between the holes joins them; map long-lived pieces first and together"
        } else if space.width == Width::Bits32 {
            "the space is full rather than fragmented: map less at a time, or use a 64-bit build"
        } else {
            "the space is full rather than fragmented: reserve less (sanitizers take most of a space \
             on purpose)"
        }
        .to_owned()))
}

fn limit_of_bytes(report: &ProcessReport) -> Option<Finding> {
    let headroom = &report.space.headroom;
    let limited = headroom.stopped_by == StoppedBy::AddressSpaceLimit;
    let left = headroom.largest_mapping_bytes;
    (limited && left < report.mapped_bytes / 4).then(|| {
        Finding::warning(
            "address-space-limit",
            format!(
                "{} are mapped and RLIMIT_AS leaves {}",
                bytes_text(report.mapped_bytes),
                bytes_text(left)
            ),
            "a larger mapping fails with ENOMEM, however many holes there are",
            "raise it (`ulimit -v`, or `prlimit --as=`), or map less: reservations count in full",
        )
    })
}

/// Number of areas below which their kinds are not worth a note.
const MANY_AREAS: u64 = 1000;

fn guards_dominate(report: &ProcessReport) -> Option<Finding> {
    let (guards, areas) = (report.no_access, report.count.areas);
    (areas >= MANY_AREAS && guards.guard_areas >= areas / 4).then(|| {
        Finding::note(
            "guards-dominate",
            format!(
                "{} of {areas} areas are guards, with {} of {} mapped bytes",
                guards.guard_areas,
                bytes_text(guards.guard_bytes),
                bytes_text(report.mapped_bytes)
            ),
            "each guard is an area, and keeps what it guards from merging: together they use \
                      the limit twice as fast",
            "MADV_GUARD_INSTALL (Linux 6.13) guards pages without an area; for thread stacks \
               pthread_attr_setguardsize(0) where overruns are caught otherwise",
        )
    })
}

fn neighbours_apart(report: &ProcessReport) -> Option<Finding> {
    let group = report.neighbours.groups.first()?;
    let areas = report.count.areas;
    (areas >= MANY_AREAS && group.pairs >= areas / 2).then(|| {
        Finding::note(
            "neighbours-apart",
            format!(
                "{} of {} pairs of neighbours stay apart for one reason: {}",
                group.pairs,
                report.neighbours.pairs,
                reason(group)
            ),
            format!("each of these pairs costs an area: {} of {areas}", group.pairs),
            help_for(group).to_owned(),
        )
    })
}

/// Returns the blocker of a group with its detail.
#[must_use]
pub fn reason(group: &BlockerGroup) -> String {
    match group.detail.as_str() {
        "" => group.blocker.name().to_owned(),
        detail => format!("{} ({detail})", group.blocker.name()),
    }
}
