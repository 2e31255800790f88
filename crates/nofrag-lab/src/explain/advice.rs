//! Remedies, with evidence and cost, most promising first.

use nofrag::page::RequestFlags;
use nofrag_host::finding::bytes_text;

use super::answer::{Advice, Cause};
use super::cause::nearest;
use super::scene::{Scene, SceneRequest, SceneZone};

/// Returns a remedy.
pub(super) fn advice(
    what: impl Into<String>,
    evidence: impl Into<String>,
    cost: impl Into<String>,
) -> Advice {
    Advice { what: what.into(), evidence: evidence.into(), cost: cost.into() }
}

/// Returns the remedies for the cause, most promising first; none where no advice is known.
pub(super) fn advise(scene: &Scene, asked: &SceneRequest, cause: Cause) -> Vec<Advice> {
    match cause {
        Cause::Fragmented => fragmented(scene, asked),
        Cause::LackOfMemory if asked.request.flags.has(RequestFlags::DIRECT_RECLAIM) => {
            short(scene)
        }
        Cause::LackOfMemory => short_for_atomic(scene, asked),
        Cause::Boosted => boosted(scene),
        Cause::KeptBlocks => kept(scene, asked),
        Cause::TypeForbidden => forbidden(scene),
        Cause::Recovered => vec![advice(
            match asked.request.flags.has(RequestFlags::DIRECT_RECLAIM) {
                true => "let the caller try again, or ask with __GFP_RETRY_MAYFAIL",
                false => {
                    "nothing, if the caller can do without; otherwise let it try again, or let it wait"
                }
            },
            "what is shown would have been enough",
            "longer waits of that caller",
        )],
        _ => Vec::new(),
    }
}

/// Returns true if the kernel has a setting since `version`; a kernel of unknown version counts as having it.
fn since(scene: &Scene, version: (u32, u32)) -> bool {
    scene.version.is_none_or(|this| this >= version)
}

fn more_room(scene: &Scene) -> Advice {
    let free: u64 = scene.zones.iter().map(|zone| zone.state.free.pages).sum();
    let mins: u64 = scene.zones.iter().map(|zone| zone.state.marks.min).sum();
    advice(
        "a larger vm.min_free_kbytes: compaction needs free pages to move to, and fewer types are mixed",
        format!(
            "{} were free in all, {} are kept by the min watermarks",
            bytes_text(scene.bytes(free)),
            bytes_text(scene.bytes(mins))
        ),
        "as much memory less for everything else",
    )
}

fn fragmented(scene: &Scene, asked: &SceneRequest) -> Vec<Advice> {
    let mut list = Vec::new();
    let zone = nearest(scene, asked);
    let index =
        zone.and_then(|zone| zone.indices(asked.order).fragmentation).unwrap_or(0) as f64 / 1000.0;
    let name = zone.map_or("", |zone| zone.name.as_str());
    let singles = zone.map_or(0, |zone| zone.state.free.pages);
    let pages = 1_u64.checked_shl(asked.order).unwrap_or(u64::MAX);
    list.push(advice(
        "in the caller: kvmalloc or vmalloc instead of kmalloc, or smaller blocks, where no device needs them in \
         one piece",
        format!("{pages} single pages would have done, and {name} had {singles} free"),
        "entries in page tables, and vmalloc space",
    ));
    if asked.request.flags.has(RequestFlags::NO_RETRY) {
        list.push(advice(
            "see whether anything is wrong at all: with __GFP_NORETRY the caller has a way on, and __GFP_NOWARN \
             would say so",
            "the flags of the request",
            "none",
        ));
    }
    list.push(advice(
        "now: echo 1 > /proc/sys/vm/compact_memory, then look at /proc/buddyinfo",
        format!("the fragmentation index of {name} was {index:.3} at order {}", asked.order),
        "seconds of CPU time; latency while it runs",
    ));
    if since(scene, (5, 9)) {
        list.push(advice(
            "vm.compaction_proactiveness above its default of 20",
            format!(
                "compaction before requests come; the unusable index at order {} was {}/1000",
                asked.order,
                zone.map_or(0, |zone| zone.indices(asked.order).unusable)
            ),
            "kcompactd works in the background, pages are moved",
        ));
    }
    list.push(more_room(scene));
    if since(scene, (5, 0)) {
        list.push(advice(
            "see that vm.watermark_boost_factor is not 0",
            "many published settings switch it off; with it the kernel makes room after each mixing of types",
            "reclaim by kswapd after such events",
        ));
    }
    if since(scene, (6, 15)) {
        list.push(advice(
            "vm.defrag_mode=1 (from 7.2 on, where callers that cannot wait are let through)",
            "it keeps whole pageblocks together at the price of reclaim",
            "reclaim and compaction on behalf of callers",
        ));
    }
    if asked.order >= 9 {
        list.push(advice(
            "reserve at boot: hugepages=N, or hugetlb_cma=",
            "blocks of this size are sure only while nothing else has been in them",
            "the memory is gone for other uses, or lent to movable ones",
        ));
    }
    list
}

fn short(scene: &Scene) -> Vec<Advice> {
    let Some(totals) = scene.totals else { return Vec::new() };
    let size = |pages| bytes_text(scene.bytes(pages));
    let managed: u64 = scene.zones.iter().map(|zone| zone.managed).sum();
    let holders = [("processes", totals.anon), ("page cache", totals.file), ("slab", totals.slab)];
    let (holder, pages) =
        holders.into_iter().max_by_key(|(_, pages)| *pages).expect("there are three");
    let mut list = vec![advice(
        format!("find who holds the memory: most of it belongs to {holder}"),
        format!("{} of {}; compaction cannot help, whatever the order", size(pages), size(managed)),
        "none",
    )];
    if totals.free_swap == Some(0) && totals.anon > totals.file {
        list.push(advice(
            "add swap, or zram",
            format!("{} of processes, no free swap", size(totals.anon)),
            "latency of what is swapped",
        ));
    }
    list.push(advice(
        "limit the largest users (memory.max of their control group), or add memory",
        format!("page cache left to drop: {}", size(totals.file)),
        "the limited group is throttled or killed instead of the host",
    ));
    list
}

fn short_for_atomic(scene: &Scene, asked: &SceneRequest) -> Vec<Advice> {
    let size = |pages| bytes_text(scene.bytes(pages));
    let mins: u64 = scene.zones.iter().map(|zone| zone.state.marks.min).sum();
    let largest = scene.allowed(asked).max_by_key(|zone| zone.managed);
    let gap =
        |zone: &SceneZone| zone.state.marks.low - zone.state.marks.min.min(zone.state.marks.low);
    let cache = scene.totals.map_or(0, |totals| totals.file);
    vec![
        advice(
            "a larger vm.min_free_kbytes",
            format!(
                "the min watermarks sum up to {}; callers that may not wait lived on that reserve and used it up, \
                 while {} of page cache could have been dropped in time",
                size(mins),
                size(cache)
            ),
            "as much memory less for everything else",
        ),
        advice(
            "a larger vm.watermark_scale_factor: kswapd starts earlier",
            format!(
                "between the low and the min watermark {} had only {} for a burst",
                largest.map_or("the largest zone", |zone| zone.name.as_str()),
                size(largest.map_or(0, gap))
            ),
            "that much more memory stays free",
        ),
        advice(
            "in the driver: smaller rings or refills, and a way on without the page",
            "requests that may not wait can always fail",
            "throughput under load",
        ),
    ]
}

fn boosted(scene: &Scene) -> Vec<Advice> {
    let boost: u64 = scene.zones.iter().map(|zone| zone.state.boost).sum();
    let boost = bytes_text(scene.bytes(boost));
    vec![
        advice(
            "a kernel that tests such callers again without the boost (6.1 and later do for single pages)",
            format!("{boost} of boost were all that stood against the request"),
            "none",
        ),
        advice(
            "vm.watermark_boost_factor=0, or a smaller factor",
            format!("the boost was {boost}"),
            "no room is made after types were mixed: large blocks become rarer",
        ),
    ]
}

fn kept(scene: &Scene, asked: &SceneRequest) -> Vec<Advice> {
    let size = |pages| bytes_text(scene.bytes(pages));
    let cma: u64 = scene.allowed(asked).map(|zone| zone.state.free.cma).sum();
    let high: u64 = scene.allowed(asked).map(|zone| zone.state.free.high_atomic).sum();
    let mut list = Vec::new();
    if cma > 0 {
        list.push(advice(
            "a smaller CMA area (cma= at boot, or the node in the device tree)",
            format!(
                "{} of CMA were free, which only movable pages and its devices may use",
                size(cma)
            ),
            "devices find less memory in one piece",
        ));
    }
    if high > 0 {
        list.push(advice(
            "nothing at once: the kernel gives HighAtomic pageblocks back when reclaim makes no progress",
            format!("{} were kept for requests that may not wait", size(high)),
            "the next such request may fail",
        ));
    }
    list.extend(fragmented(scene, asked));
    list
}

fn forbidden(scene: &Scene) -> Vec<Advice> {
    let mut list = vec![advice(
        "vm.defrag_mode=0, or a kernel of 7.2 or later, where callers that cannot wait may mix types",
        "free memory of other types, above every watermark, and a caller that cannot wait",
        "pageblocks are mixed by such callers",
    )];
    if !since(scene, (6, 15)) {
        list[0].evidence += "; but this kernel has no such mode: look for a policy of its own";
    }
    list
}
