//! From a snapshot to an explanation: the memory to be had now, after compaction, after reclaim, and never.

use nofrag::page::{PageRequest, RequestFlags};
use nofrag::units::Order;
use nofrag_host::finding::bytes_text;
use nofrag_host::machine::pageblocks;
use nofrag_host::snapshot::{Files, PageMap, Snapshot, ZoneInfo};

use super::answer::{Case, Cause, Explanation, Obtainable};
use super::reports;
use super::scene::{Scene, SceneRequest};

/// Returns the requests that a snapshot is judged by: flags in words, order, request. `huge_order` is that of a huge
/// page, which is a pageblock.
fn questions(huge_order: u32) -> [(&'static str, u32, PageRequest); 3] {
    let order = |order| Order::new(order).expect("an order of the core");
    let kernel = PageRequest::new(order(4), nofrag::page::Migratetype::Unmovable);
    let atomic = PageRequest::atomic(order(0));
    let huge = PageRequest::user(Order::PAGEBLOCK);
    let huge = huge.flags(RequestFlags::RECLAIM.with(RequestFlags::CMA));
    [
        ("GFP_HIGHUSER_MOVABLE|__GFP_COMP", huge_order, huge),
        ("GFP_KERNEL|__GFP_COMP", 4, kernel),
        ("GFP_ATOMIC", 0, atomic),
    ]
}

/// Adds the cases and the obtainable memory of a snapshot, parsed from `files`, to an explanation.
pub(super) fn add(explanation: &mut Explanation, snapshot: &Snapshot<'_>, files: &Files) {
    let scene = Scene::of_snapshot(snapshot, files);
    for (mode, order, request) in questions(snapshot.pageblock_order()) {
        explanation.cases.push(case(&scene, mode, order, request));
    }
    if let Some(pages) = snapshot.pages {
        let zones = snapshot.populated();
        explanation.obtainable =
            zones.filter_map(|zone| obtainable(&pages, zone, snapshot)).collect();
    }
    if let Some(gap) = snapshot.free_gap().filter(|gap| gap.matters()) {
        let size = |pages: u64| bytes_text(pages.saturating_mul(snapshot.page_bytes()));
        explanation.cautions.push(format!(
            "The blocks in buddyinfo sum up to {}, MemFree says {}: not all free memory is on the lists, and what \
             is said of blocks is not all of it.",
            size(gap.listed),
            size(gap.said)
        ));
    }
    for missing in &snapshot.missing {
        let text = format!("{}: {}; it costs {}.", missing.path, missing.why, missing.costs);
        explanation.cautions.push(text);
    }
}

fn case(scene: &Scene, mode: &str, order: u32, request: PageRequest) -> Case {
    let request = SceneRequest::new(order, request);
    let mut case = reports::explain(scene, &request, mode.to_owned());
    let bytes = bytes_text(scene.bytes(1 << order));
    case.title = format!("would order {order} ({bytes}), {mode}, be served now?");
    case.times = 0;
    if case.cause == Cause::Recovered {
        let served = scene
            .allowed(&request)
            .find(|zone| zone.refusal(&request) == nofrag::page::Refusal::Limit);
        case.cause = Cause::Nothing;
        case.summary = format!("yes, by {}", served.map_or("a zone", |zone| zone.name.as_str()));
        case.policies.clear();
        case.advice.clear();
    } else if case.cause == Cause::LackOfMemory
        && request.request.flags.has(RequestFlags::DIRECT_RECLAIM)
    {
        // A caller that may wait reclaims first: that is not yet a failure.
        case.summary = format!("not at once: it would reclaim first; {}", case.summary);
    }
    case
}

/// Counts the obtainable pageblocks of a zone; `None` where the zone's position is not known. O(frames).
fn obtainable(pages: &PageMap<'_>, zone: &ZoneInfo, snapshot: &Snapshot<'_>) -> Option<Obtainable> {
    let found = pageblocks::survey(snapshot, pages, zone)?;
    let by = found.pinned_by.iter().map(|by| (by.usage.into_str().to_owned(), by.pageblocks));
    Some(Obtainable {
        zone: zone.zone.name.clone(),
        block_bytes: found.bytes,
        pageblocks: found.pageblocks,
        now: found.free,
        after_compaction: found.after_compaction,
        after_reclaim: found.after_reclaim,
        pinned: found.pinned,
        pinned_by: by.collect(),
        pinned_by_little: found.pinned_by_little,
    })
}
