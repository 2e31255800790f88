//! What a snapshot says: what can be had now, after compaction, after reclaim, and never.

use nofrag::page::{PageRequest, RequestFlags};
use nofrag::units::Order;
use nofrag_host::finding::bytes_text;
use nofrag_host::snapshot::{Files, FrameUse, PageMap, Snapshot, ZoneInfo};

use super::answer::{Case, Cause, Explanation, Obtainable};
use super::reports;
use super::scene::{Scene, SceneRequest};

/// The requests that are asked of a snapshot: what they are called, and how.
fn questions() -> [(&'static str, u32, PageRequest); 3] {
    let order = |order| Order::new(order).expect("an order of the core");
    let kernel = PageRequest::new(order(4), nofrag::page::Migratetype::Unmovable);
    let atomic = PageRequest::atomic(order(0));
    let huge = PageRequest::user(Order::PAGEBLOCK);
    let huge = huge.flags(RequestFlags::RECLAIM.with(RequestFlags::CMA));
    [
        ("GFP_HIGHUSER_MOVABLE|__GFP_COMP", 9, huge),
        ("GFP_KERNEL|__GFP_COMP", 4, kernel),
        ("GFP_ATOMIC", 0, atomic),
    ]
}

/// Adds what a snapshot, parsed from `files`, says to an explanation.
pub(super) fn add(explanation: &mut Explanation, snapshot: &Snapshot<'_>, files: &Files) {
    let scene = Scene::of_snapshot(snapshot, files);
    for (mode, order, request) in questions() {
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

/// What can be had in a zone, pageblock by pageblock; `None` where it is not known where the zone lies. O(frames).
fn obtainable(pages: &PageMap<'_>, zone: &ZoneInfo, snapshot: &Snapshot<'_>) -> Option<Obtainable> {
    /// A pageblock is pinned by little if at most one page in so many stays where it is.
    const LITTLE: u64 = 16;
    let order = snapshot.pageblock_order();
    let block = 1_u64 << order;
    let (start, end) = (zone.start_pfn?, zone.end_pfn()?.min(pages.frames()));
    let mut found = Obtainable {
        zone: zone.zone.name.clone(),
        block_bytes: block.saturating_mul(snapshot.page_bytes()),
        pageblocks: 0,
        now: 0,
        after_compaction: 0,
        after_reclaim: 0,
        pinned: 0,
        pinned_by: Vec::new(),
        pinned_by_little: 0,
    };
    let mut pinned_by = [0_u64; FrameUse::COUNT];
    let (mut free, mut file, mut movable_blocks) = (0, 0, 0);
    let first = start.checked_next_multiple_of(block)?;
    for at in (first..end.saturating_sub(block - 1)).step_by(block as usize) {
        let uses = pages.count_uses(at..at + block);
        let of = |is: fn(FrameUse) -> bool| -> u64 {
            FrameUse::ALL.iter().filter(|&&each| is(each)).map(|each| uses[each.index()]).sum()
        };
        let managed = of(FrameUse::is_managed);
        if managed == 0 {
            continue;
        }
        let free_here = uses[FrameUse::Free.index()];
        let stays = block - free_here - of(FrameUse::is_movable);
        found.pageblocks += 1;
        free += free_here;
        file += uses[FrameUse::File.index()];
        if free_here == block {
            found.now += 1;
        } else if stays == 0 {
            movable_blocks += 1;
        } else {
            found.pinned += 1;
            found.pinned_by_little += u64::from(stays * LITTLE <= block);
            for each in FrameUse::ALL
                .into_iter()
                .filter(|each| *each != FrameUse::Free && !each.is_movable())
            {
                pinned_by[each.index()] += u64::from(uses[each.index()] > 0);
            }
        }
    }
    // Moving everything together frees as many blocks as free pages fill, among those where nothing stays.
    found.after_compaction = (free / block).clamp(found.now, found.now + movable_blocks);
    found.after_reclaim =
        ((free + file) / block).clamp(found.after_compaction, found.now + movable_blocks);
    let mut by: Vec<(String, u64)> = FrameUse::ALL
        .into_iter()
        .filter(|each| pinned_by[each.index()] > 0)
        .map(|each| (name(each).to_owned(), pinned_by[each.index()]))
        .collect();
    by.sort_by_key(|(_, blocks)| std::cmp::Reverse(*blocks));
    found.pinned_by = by;
    Some(found)
}

fn name(usage: FrameUse) -> &'static str {
    match usage {
        FrameUse::Free => "free",
        FrameUse::File => "page cache",
        FrameUse::Shmem => "shared memory",
        FrameUse::Anon => "processes",
        FrameUse::Slab => "slab",
        FrameUse::PageTable => "page tables",
        FrameUse::HugeTlb => "hugetlbfs",
        FrameUse::Kernel => "other kernel memory",
        FrameUse::Reserved => "reserved",
        FrameUse::Offline => "offline",
        FrameUse::NoPage => "no memory",
    }
}
