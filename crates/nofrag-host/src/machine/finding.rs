//! Findings: what needs attention on a machine, each with its evidence, its consequence and a remedy.
//!
//! A finding is a pure function of the [`Machine`] and of the snapshot from which it was made. The order within a
//! severity is that of the list in `findings`: failures first, then their causes, then facts that a reader would get
//! wrong.

use super::counters::Name;
use super::huge::Basis;
use super::requests::{Answer, Cause, Outcome, Request, RequestKind};
use super::verdict::{REQUESTS_WAIT, State, Verdict};
use super::zones::Zone;
use super::{MOST_NEAREST, Machine, vmalloc};
use crate::fields;
use crate::finding::{Finding, bytes_text};
use crate::process::ranking::NEAR;
use crate::snapshot::{BlockCount, FreeGap, Snapshot};
use crate::source::Missing;

/// Returns all findings, most urgent first.
pub(super) fn findings(
    machine: &Machine,
    snapshot: &Snapshot<'_>,
    missing: &[Missing],
    areas: Option<&vmalloc::VmallocReport>,
) -> Vec<Finding> {
    let look = Look { machine, snapshot };
    let mut findings: Vec<Finding> = [
        look.atomic_fails(),
        look.small_blocks_fail(),
        machine.verdict.as_ref().and_then(fragmented),
        look.no_huge_page(),
        look.maps_near_limit(),
        lists_are_not_all(machine.free_gap, machine.host.page_bytes),
        damaged(missing),
        look.boosted(),
        look.compaction_fails(),
        look.huge_pages_fall_back(),
        machine.verdict.as_ref().and_then(requests_wait),
        look.killed(),
        look.boost_is_off(),
        look.defrag_mode(),
        look.types_spread(),
        look.idle_pool(),
        look.lower_bounds(),
    ]
    .into_iter()
    .flatten()
    .collect();
    /// Findings of the report on vmalloc that the overview repeats; they do not need addresses.
    const OF_VMALLOC: [&str; 4] =
        ["lazy-over-limit", "space-tight", "file-damaged", "lazy-dominates"];
    let of_vmalloc = areas.into_iter().flat_map(|areas| &areas.findings);
    findings.extend(
        of_vmalloc.filter(|each| OF_VMALLOC.contains(&each.id)).map(|each| Finding {
            evidence: format!("vmalloc: {}", each.evidence),
            ..each.clone()
        }),
    );
    findings.sort_by_key(|finding| finding.severity);
    findings
}

struct Look<'a> {
    machine: &'a Machine,
    snapshot: &'a Snapshot<'a>,
}

impl Look<'_> {
    fn size(&self, pages: u64) -> String {
        bytes_text(pages.saturating_mul(self.machine.host.page_bytes))
    }

    fn request(&self, kind: RequestKind) -> Option<&Request> {
        self.machine.requests.iter().find(|request| request.kind == kind)
    }

    /// Returns true if the kernel is of this version or newer, or of unknown version.
    fn since(&self, version: (u32, u32)) -> bool {
        let release = self.machine.host.release.as_deref();
        let this = release.and_then(|text| fields::release_version(text).ok());
        this.is_none_or(|this| this >= version)
    }

    fn counter(&self, name: Name) -> u64 {
        self.machine.counter(name).map_or(0, |counter| counter.value)
    }

    /// Returns text such as `, 12.0 an hour` for a counter; empty text where the time since boot is not known.
    fn rate(&self, name: Name) -> String {
        let rate = self.machine.counter(name).and_then(|counter| counter.per_hour);
        rate.map_or(String::new(), |rate| format!(", {rate:.1} an hour"))
    }

    fn atomic_fails(&self) -> Option<Finding> {
        let page = self.request(RequestKind::Atomic)?.orders.first()?;
        (page.outcome == Outcome::Fails).then(|| Finding::warning("atomic-pages-fail", page.why.clone(), "interrupts \
                                                                   and network drivers get no page: packets are \
                                                                   dropped, and the log has \
                          `page allocation failure: order:0`", match page.cause {
                Some(Cause::Boosted) => "a smaller vm.watermark_boost_factor, or 0 at the price of rarer large blocks",
                _ => "a larger vm.min_free_kbytes, or vm.watermark_scale_factor so that kswapd begins earlier",
            }
            .to_owned()))
    }

    /// Finds an order for which requests wait although the kernel itself cannot do without it.
    fn small_blocks_fail(&self) -> Option<Finding> {
        const ESSENTIAL: usize = 3;
        let orders = &self.request(RequestKind::Kernel)?.orders;
        let first = orders.iter().take(ESSENTIAL + 1).find(|each| !each.outcome.is_served())?;
        Some(Finding::warning(
            "small-blocks-wait",
            format!("{} ({})", first.why, bytes_text(first.bytes)),
            "stacks of threads (order 2), sockets and slabs (up to order 3) wait: fork, connections \
                          and drivers stall",
            help_for(first, self.since((5, 9))),
        ))
    }

    fn no_huge_page(&self) -> Option<Finding> {
        let huge = self.machine.huge_pages.as_ref()?;
        let answer = self.request(RequestKind::User)?.orders.get(huge.order as usize)?;
        // One that is fragmented is said to be that.
        let in_use = self.machine.verdict.as_ref().is_some_and(|it| it.state == State::InUse);
        (in_use && huge.blocks.now == 0 && huge.blocks.total > 0).then(|| Finding::warning("no-huge-page", format!(
                "{}; no page of {} can be had now, at most {} after page cache is dropped",
                answer.why,
                bytes_text(huge.bytes),
                huge.blocks.after_reclaim
            ), "processes get small pages, or wait for compaction; hugetlbfs pools cannot grow; devices \
                          that need blocks of this size fail", help_for(answer, self.since((5, 9)))))
    }

    fn maps_near_limit(&self) -> Option<Finding> {
        let maps = &self.machine.maps;
        let limit = maps.limit?;
        let near: Vec<_> = maps
            .nearest
            .iter()
            .filter(|each| each.share.is_some_and(|share| share >= NEAR))
            .collect();
        let first = near.first()?;
        let name = first.name.as_deref().unwrap_or("a process");
        let others = match near.len() {
            1 => String::new(),
            // Only the nearest are listed: more processes may be as near.
            MOST_NEAREST => format!(", and at least {} more", MOST_NEAREST - 1),
            more => format!(", and {} more", more - 1),
        };
        Some(Finding::warning(
            "maps-near-limit",
            format!(
                "{name} (process {}) has {} of the {limit} areas that vm.max_map_count allows{others}",
                first.pid, first.areas
            ),
            "at the limit mmap, mprotect and even munmap fail with ENOMEM, and threads with EAGAIN",
            format!(
                "`nofrag host maps {}` says what keeps its areas apart; `sysctl vm.max_map_count={}` makes room",
                first.pid,
                limit.saturating_mul(4).max(1 << 20)
            ),
        ))
    }

    /// Finds boosted watermarks: no other live view shows them.
    /// Source: docs/sources/trace.md#t3.
    fn boosted(&self) -> Option<Finding> {
        let boost = |zone: &Zone| zone.marks.and_then(|marks| marks.boost).unwrap_or(0);
        let zones: Vec<&Zone> = self.machine.zones.iter().filter(|zone| boost(zone) > 0).collect();
        let first = zones.first()?;
        let sum = zones.iter().fold(0, |sum: u64, zone| sum.saturating_add(boost(zone)));
        Some(Finding::note(
            "watermarks-boosted",
            format!(
                "the watermarks of {} are raised by {} in all",
                zones.iter().map(|zone| zone.label.as_str()).collect::<Vec<_>>().join(", "),
                self.size(sum)
            ),
            "requests have just been served from pageblocks of another type; kswapd now frees as much \
                          so that whole blocks can be had again",
            format!(
                "nothing, if it is gone at the next look; if it stays, record who mixes types in {} \
                 (`nofrag record`), and compare vm.watermark_boost_factor settings with `nofrag replay`",
                first.label
            ),
        ))
    }

    fn compaction_fails(&self) -> Option<Finding> {
        /// Number of failed compactions below which their share proves nothing.
        const MANY: u64 = 100;
        let (success, fail) = (self.counter(Name::CompactSuccess), self.counter(Name::CompactFail));
        (fail >= MANY && fail > success).then(|| Finding::note("compaction-fails", format!(
                "since boot {fail} compactions made no block and {success} did; {} requests waited for them{}",
                self.counter(Name::CompactStall),
                self.rate(Name::CompactStall)
            ), "callers pay for compaction and get nothing: what is in the way cannot be moved, or too \
                          little is free", "`nofrag host pages` (as root) says what pins pageblocks; `nofrag record` \
                                         who put it there"))
    }

    fn huge_pages_fall_back(&self) -> Option<Finding> {
        /// Number of page faults below which the share of those with small pages proves nothing.
        const MANY: u64 = 1000;
        let (given, fallen) =
            (self.counter(Name::ThpFaultAlloc), self.counter(Name::ThpFaultFallback));
        let all = given.saturating_add(fallen);
        (all >= MANY && fallen >= all / 10).then(|| Finding::note("huge-pages-fall-back", format!(
                "since boot {given} huge pages were given on first touch and {fallen} times small ones instead \
                 ({:.0} %{})",
                fallen as f64 * 100.0 / all as f64,
                self.rate(Name::ThpFaultFallback)
            ), "memory that was meant for huge pages has more page-table work and more misses", "see \
                `transparent_hugepage/defrag`: with `defer` or `madvise` a request does not wait for \
                   compaction; raise vm.compaction_proactiveness so that blocks are there before"))
    }

    fn killed(&self) -> Option<Finding> {
        let kills = self.counter(Name::OomKill);
        (kills > 0).then(|| Finding::note("processes-killed", format!(
                "the kernel has killed {kills} for want of memory since boot, in control groups or of all"
            ), "it may have been the limit of a group, lack of memory, or fragmentation", "`dmesg | nofrag explain -` \
                says which"))
    }

    fn boost_is_off(&self) -> Option<Finding> {
        let is_off = self.snapshot.sysctl.get("watermark_boost_factor") == Some(0);
        is_off.then(|| Finding::note("boost-is-off", "vm.watermark_boost_factor is 0", "after types were mixed no \
                                      room is made: pageblocks stay mixed, and large blocks become rarer \
                          with time", "published settings switch it off against reclaim storms of before 5.15; try \
                                    the default of 15000 \
                   and look at pgsteal_kswapd; `nofrag replay` compares both on your own requests"))
    }

    fn defrag_mode(&self) -> Option<Finding> {
        let is_on = self.snapshot.sysctl.get("defrag_mode").is_some_and(|mode| mode > 0);
        (is_on && !self.since((7, 2))).then(|| {
            Finding::note(
                "defrag-mode-before-7.2",
                "vm.defrag_mode is on, on a kernel before 7.2",
                "callers that may not wait fail although memory of other types is free",
                "switch it off, or move to 7.2, where such callers are let through",
            )
        })
    }

    /// Reports that a third of the largest zone's pageblocks are of types that compaction does not look into.
    fn types_spread(&self) -> Option<Finding> {
        let zone = self.machine.zones.iter().max_by_key(|zone| zone.managed_pages)?;
        let blocks = |names: &[&str]| -> u64 {
            let rows = zone.types.iter().filter(|row| names.contains(&row.migratetype.as_str()));
            rows.filter_map(|row| row.pageblocks).fold(0, u64::saturating_add)
        };
        let stay = blocks(&["Unmovable", "Reclaimable"]);
        let all = stay.saturating_add(blocks(&["Movable"]));
        (all > 0 && stay >= all / 3).then(|| Finding::note("unmovable-spread", format!(
                "{stay} of {all} pageblocks of {} are of type Unmovable or Reclaimable",
                zone.label
            ), "compaction makes no whole blocks of these: huge pages come from the rest alone", "`nofrag host pages` \
                (as root) says what is in them; `nofrag record` which processes put it there; \
                   dropping caches (`vm.drop_caches=2`) frees reclaimable slab at the price of reading again"))
    }

    fn idle_pool(&self) -> Option<Finding> {
        let pools = &self.machine.huge_pages.as_ref()?.pools;
        let idle = |free: u64, reserved: u64| free.saturating_sub(reserved);
        let pool = pools
            .iter()
            .max_by_key(|pool| idle(pool.free, pool.reserved).saturating_mul(pool.bytes))?;
        let pages = idle(pool.free, pool.reserved);
        let bytes = pages.saturating_mul(pool.bytes);
        let memory = self.machine.host.memory_bytes?;
        (pages > 0 && bytes >= memory / 50).then(|| Finding::note("huge-page-pool-idle", format!(
                "{pages} of {} pages of {} in the hugetlbfs pool are neither used nor promised ({})",
                pool.pages,
                bytes_text(pool.bytes),
                bytes_text(bytes)
            ), "they are lost for everything else: no other request can have them", "make the pool smaller \
                (nr_hugepages), or reserve in CMA (hugetlb_cma=), where movable pages may \
                   live meanwhile"))
    }

    /// Returns the finding that a zone has lists which pagetypeinfo did not count to their end
    /// (docs/sources/trace.md#t2).
    fn lower_bounds(&self) -> Option<Finding> {
        let is_bound = |count: &BlockCount| count.exact().is_none();
        let zone = self
            .machine
            .zones
            .iter()
            .find(|zone| zone.types.iter().any(|row| row.blocks.iter().any(is_bound)))?;
        Some(Finding::note(
            "types-not-counted-to-end",
            format!("pagetypeinfo says `>100000` for lists of {}", zone.label),
            "free blocks by type are lower bounds there; those of buddyinfo are exact",
            "nothing: the kernel stops counting so that it holds its lock no longer; do not poll this file",
        ))
    }
}

/// Returns advice for a request that has to wait; `has_proactive` tells that the kernel has
/// `vm.compaction_proactiveness`.
fn help_for(answer: &Answer, has_proactive: bool) -> String {
    let text = match answer.outcome {
        Outcome::AfterCompaction if has_proactive => {
            "`echo 1 > /proc/sys/vm/compact_memory` compacts now (seconds of CPU time); a higher \
             vm.compaction_proactiveness does it before it is needed"
        }
        Outcome::AfterCompaction => {
            "`echo 1 > /proc/sys/vm/compact_memory` compacts now (seconds of CPU time)"
        }
        _ => {
            "memory is short before it is fragmented: see who holds it (`nofrag host pages` as root), or let kswapd \
             begin earlier with a larger vm.watermark_scale_factor"
        }
    };
    text.to_owned()
}

/// Returns the finding that what is free cannot be had in large blocks, if the verdict says so.
pub(super) fn fragmented(verdict: &Verdict) -> Option<Finding> {
    let (severity, id) = (verdict.severity()?, verdict.state.finding()?);
    let waits = match verdict.blocks.now {
        0 => "a request for a huge page waits for compaction, and one that may not wait gets none",
        _ => {
            "once these are gone, a request for a huge page waits for compaction, and one that may not wait gets none"
        }
    };
    let (consequence, help) = match (verdict.state, verdict.basis) {
        (State::Whole | State::InUse, _) => return None,
        (State::Scattered, Basis::Frames) => (
            waits,
            "`echo 1 > /proc/sys/vm/compact_memory` compacts now (seconds of CPU time); a higher \
             vm.compaction_proactiveness (since 5.9) does it before it is needed",
        ),
        (State::Scattered, _) => (
            waits,
            "`echo 1 > /proc/sys/vm/compact_memory` compacts now (seconds of CPU time); whether pages that stay are in \
             the way, `nofrag host --frames` says as root",
        ),
        (State::Fragmented, _) => (
            "most of what is free cannot become huge pages: pages that stay where they are stand in between, so \
             compaction works in vain",
            "`nofrag host pages` (as root) says what stays, `nofrag record` which processes ask for it; \
             `vm.drop_caches=2` frees reclaimable slab; the rest goes when its holder lets go of it, or ends",
        ),
    };
    Some(Finding {
        severity,
        id,
        evidence: verdict.evidence(),
        consequence: consequence.to_owned(),
        help: help.to_owned(),
    })
}

/// Returns the finding that requests are held up.
fn requests_wait(verdict: &Verdict) -> Option<Finding> {
    let waits: Vec<String> = verdict.waits.iter().map(ToString::to_string).collect();
    (!waits.is_empty()).then(|| Finding::note(REQUESTS_WAIT, waits.join("; "), "each of them is latency of the \
                                                                         process that asked: kswapd and kcompactd do \
                                                                         not free fast \
                      enough, or not in large enough blocks", "a larger vm.watermark_scale_factor lets kswapd begin \
                                                            earlier, at the price of so much free memory; a \
               higher vm.compaction_proactiveness lets kcompactd work before it is asked"))
}

/// Returns the finding that buddyinfo does not show the free memory, where the gap matters (docs/sources/trace.md#t1).
pub(super) fn lists_are_not_all(gap: Option<FreeGap>, page_bytes: u64) -> Option<Finding> {
    let gap = gap.filter(|gap| gap.matters())?;
    let size = |pages: u64| bytes_text(pages.saturating_mul(page_bytes));
    Some(Finding::warning(
        "free-lists-are-not-all",
        format!(
            "the blocks in buddyinfo sum up to {}, MemFree says {}",
            size(gap.listed),
            size(gap.said)
        ),
        "what is free is not all on the lists, so every figure made of blocks (orders, indices, huge \
                      pages) is of the smaller part",
        "on a guest that initialises its memory late (`deferred_init=`) this passes as memory is first used; \
               else read again, and report the kernel's release to nofrag",
    ))
}

/// Reports the first file of `missing`, whose contents no kernel writes.
pub(super) fn damaged(missing: &[Missing]) -> Option<Finding> {
    let first = missing.first()?;
    Some(Finding::warning(
        "file-damaged",
        format!("{}: {}", first.path, first.why),
        format!("it costs {}, in part", first.costs),
        "capture the file again with one `cat`; if a live kernel prints this, report it to nofrag",
    ))
}
