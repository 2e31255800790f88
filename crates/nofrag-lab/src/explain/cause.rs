//! The cause of a refusal, decided from the figures of each zone, and put into sentences.

use nofrag::page::{Migratetype, PageRequest, Refusal, RequestFlags, ZoneState};
use nofrag::units::Order;
use nofrag_host::finding::bytes_text;

use super::answer::{Asked, Cause, ZoneCase};
use super::scene::{Scene, SceneRequest, SceneZone};

/// Puts the request into words.
pub(super) fn asked(scene: &Scene, asked: &SceneRequest, mode: String) -> Asked {
    let PageRequest { flags, zone, migratetype, .. } = asked.request;
    let has = |flag| flags.has(flag);
    let context = if has(RequestFlags::MEMALLOC) {
        "the caller frees memory itself, and no watermark holds for it"
    } else if has(RequestFlags::DIRECT_RECLAIM) && has(RequestFlags::NO_RETRY) {
        "the caller may wait and reclaim, but gives up after one round: it has something else to do"
    } else if has(RequestFlags::DIRECT_RECLAIM) {
        "the caller may wait while memory is reclaimed and compacted"
    } else if has(RequestFlags::HIGH) {
        "the caller may not wait, and may use part of the reserve below the min watermark"
    } else if has(RequestFlags::KSWAPD_RECLAIM) {
        "the caller may not wait; kswapd is woken for it"
    } else {
        "the caller neither waits nor wakes kswapd: it takes what is at hand"
    };
    Asked {
        order: asked.order,
        bytes: scene.bytes(1_u64.checked_shl(asked.order).unwrap_or(u64::MAX)),
        mode,
        migratetype: migratetype.name().to_owned(),
        highest_zone: zone.name().to_owned(),
        context: context.to_owned(),
    }
}

/// Returns the cause: the refusal of the zone that came nearest to serving.
pub(super) fn cause(scene: &Scene, asked: &SceneRequest) -> Cause {
    if scene.zones.is_empty() {
        return Cause::Unknown;
    }
    let of: Vec<(&SceneZone, Refusal)> =
        scene.allowed(asked).map(|zone| (zone, zone.refusal(asked))).collect();
    let any = |is: fn(&Refusal) -> bool| of.iter().any(|(_, refusal)| is(refusal));
    if of.is_empty() {
        Cause::NoZone
    } else if any(|refusal| *refusal == Refusal::Limit) {
        let serves = of.iter().filter(|(_, refusal)| *refusal == Refusal::Limit);
        let own = serves.into_iter().any(|(zone, _)| has_own_type(&zone.state, &asked.request));
        let waits = asked.request.flags.has(RequestFlags::DIRECT_RECLAIM);
        if own || waits { Cause::Recovered } else { Cause::TypeForbidden }
    } else if any(|refusal| *refusal == Refusal::Type) {
        Cause::KeptBlocks
    } else if any(|refusal| matches!(refusal, Refusal::Order { .. })) {
        Cause::Fragmented
    } else if of.iter().any(|(zone, _)| without_boost(zone, asked) == Refusal::Limit) {
        Cause::Boosted
    } else {
        Cause::LackOfMemory
    }
}

/// Returns true if a block is free that the request may take without mixing types.
fn has_own_type(state: &ZoneState, request: &PageRequest) -> bool {
    let reserve = !request.flags.has(RequestFlags::DIRECT_RECLAIM)
        && request.flags.has(RequestFlags::HIGH)
        && state.free.has(Migratetype::HighAtomic, request.order);
    state.free.has(request.migratetype, request.order) || reserve
}

/// Returns the zone's refusal if its watermarks were not raised.
pub(super) fn without_boost(zone: &SceneZone, asked: &SceneRequest) -> Refusal {
    let state = ZoneState { boost: 0, ..zone.state };
    SceneZone { state, ..zone.clone() }.refusal(asked)
}

/// Returns each zone with its figures and the reason why it did not serve.
pub(super) fn zones(scene: &Scene, asked: &SceneRequest) -> Vec<ZoneCase> {
    scene.zones.iter().map(|zone| zone_case(scene, zone, asked)).collect()
}

fn zone_case(scene: &Scene, zone: &SceneZone, asked: &SceneRequest) -> ZoneCase {
    let SceneZone { state, .. } = zone;
    let bytes = |pages| scene.bytes(pages);
    let marks =
        [state.marks.min, state.marks.low, state.marks.high].map(|mark| bytes(mark + state.boost));
    let indices = zone.indices(asked.order);
    let has_blocks = !zone.blocks.is_empty();
    ZoneCase {
        zone: zone.name.clone(),
        free_bytes: bytes(state.free.pages),
        marks_bytes: marks,
        boost_bytes: bytes(state.boost),
        reserve_bytes: bytes(state.reserve[asked.request.zone.index()]),
        blocks: zone.blocks.clone(),
        largest_free: zone.largest_free(),
        largest_served: match state.largest(&asked.request) {
            // The core has no larger ones, which kernels with larger pages have.
            Some(Order::MAX) => zone.largest_free(),
            largest => largest.map(|order| u32::from(order.get())),
        },
        fragmentation: indices.fragmentation.filter(|_| has_blocks),
        unusable: indices.unusable,
        why: why(scene, zone, asked),
    }
}

/// Returns the reason why a zone did not serve, as a sentence without its full stop.
fn why(scene: &Scene, zone: &SceneZone, asked: &SceneRequest) -> String {
    let size = |pages| bytes_text(scene.bytes(pages));
    let block = size(1 << asked.order.min(63));
    match zone.refusal(asked) {
        Refusal::NotAllowed => {
            format!("not for this request: it can use {} and below", asked.request.zone.name())
        }
        Refusal::Watermark { usable, mark } => below_mark(scene, zone, usable, mark),
        Refusal::Reserve { usable, mark, reserve } => format!(
            "{} to count on; {} must stay, and {} are kept from requests that could use a higher zone",
            size(usable),
            size(mark),
            size(reserve)
        ),
        Refusal::Order { .. } if zone.blocks.is_empty() => {
            "enough is free; the report does not say in which blocks".to_owned()
        }
        Refusal::Order { .. } => match zone.largest_free() {
            Some(largest) => format!(
                "{} are free, but no block is larger than order {largest} ({}): {block} in one piece are not there",
                size(zone.state.free.pages),
                size(1 << largest.min(63))
            ),
            None => "nothing is free".to_owned(),
        },
        Refusal::Type => {
            let kept: Vec<&str> = [
                (Migratetype::HighAtomic, "HighAtomic"),
                (Migratetype::Cma, "CMA"),
                (Migratetype::Isolate, "isolated"),
            ]
            .into_iter()
            .filter(|&(each, _)| zone.state.free.has(each, asked.request.order))
            .map(|(_, name)| name)
            .collect();
            format!(
                "blocks of {block} are free only in {} pageblocks, which this request may not take from",
                kept.join(" and ")
            )
        }
        Refusal::Limit if !has_own_type(&zone.state, &asked.request) => {
            let types: Vec<&str> = Migratetype::MOBILITY
                .into_iter()
                .filter(|&each| zone.state.free.has(each, asked.request.order))
                .map(Migratetype::name)
                .collect();
            format!(
                "{} are free, all of type {}: the request would have to mix types",
                size(zone.state.free.pages),
                types.join(" and ")
            )
        }
        Refusal::Limit => format!(
            "{} are free, and nothing was against it when this was written",
            size(zone.state.free.pages)
        ),
        other => format!("refused by a rule that has no words here: {other:?}"),
    }
}

/// Returns the reason why a zone did not serve in which fewer pages count (`usable`) than must stay free (the watermark
/// `mark`).
fn below_mark(scene: &Scene, zone: &SceneZone, usable: u64, mark: u64) -> String {
    let size = |pages| bytes_text(scene.bytes(pages));
    let mut text = format!("{} to count on, and {} must stay", size(usable), size(mark));
    if zone.state.boost > 0 {
        let boost = size(zone.state.boost);
        text += &format!("; the mark is raised by {boost} after types were mixed");
    }
    let kept = zone.state.free.pages - usable.min(zone.state.free.pages);
    if kept > 0 {
        text += &format!("; {} of what is free is kept for others", size(kept));
    }
    text
}

/// Puts the cause with its figures into one sentence, without its full stop.
pub(super) fn summary(scene: &Scene, asked: &SceneRequest, cause: Cause) -> String {
    let size = |pages| bytes_text(scene.bytes(pages));
    let free: u64 = scene.allowed(asked).map(|zone| zone.state.free.pages).sum();
    let block = size(1 << asked.order.min(63));
    let names: Vec<&str> = scene.allowed(asked).map(|zone| zone.name.as_str()).collect();
    let names = names.join(", ");
    match cause {
        Cause::Fragmented => {
            let best = nearest(scene, asked);
            let piece =
                best.and_then(SceneZone::largest_free).map_or(0, |order| 1 << order.min(63));
            format!(
                "memory was there, but in pieces: {} were free in {names}, and the largest block of {} was {}, \
                 where {block} were asked for",
                size(free),
                best.map_or("", |zone| zone.name.as_str()),
                size(piece)
            )
        }
        Cause::LackOfMemory => format!(
            "memory was short, not fragmented: {} were free in {names}, less than what must stay free for this \
             caller",
            size(free)
        ),
        Cause::Boosted => {
            let boost: u64 = scene.allowed(asked).map(|zone| zone.state.boost).sum();
            format!(
                "the watermarks were raised by {} because types had been mixed, and the caller cannot free \
                 memory; without that, {} free would have been enough",
                size(boost),
                size(free)
            )
        }
        Cause::KeptBlocks => format!(
            "{} were free in {names}, but blocks of {block} only where they are kept for others",
            size(free)
        ),
        Cause::TypeForbidden => format!(
            "{} were free in {names}, above every watermark, but none of it of type {}: a kernel that does not \
             mix types for callers that may not wait (vm.defrag_mode before its repair) fails such a request",
            size(free),
            asked.request.migratetype
        ),
        Cause::NoZone => {
            format!("no zone that was shown lies at or below {}", asked.request.zone.name())
        }
        Cause::Recovered => {
            let why = match asked.request.flags.has(RequestFlags::DIRECT_RECLAIM) {
                true => {
                    "the request had reached its limits before memory was freed, or other CPUs had taken it"
                }
                false => {
                    "a caller that may not wait takes what is at hand, and then there was none"
                }
            };
            format!("{} were free in {names}, and nothing stood against it: {why}", size(free))
        }
        Cause::GroupLimit | Cause::AddressSpace | Cause::Nothing | Cause::Unknown => {
            "there is no list of zones, so that nothing can be said of what was free".to_owned()
        }
    }
}

/// Returns the zone with most free memory among those that refuse only for want of a large block.
pub(super) fn nearest<'a>(scene: &'a Scene, asked: &SceneRequest) -> Option<&'a SceneZone> {
    let of = scene.zones.iter().filter(|zone| matches!(zone.refusal(asked), Refusal::Order { .. }));
    of.max_by_key(|zone| zone.state.free.pages)
}

/// Returns sentences on the requests that would have succeeded.
pub(super) fn would(scene: &Scene, asked: &SceneRequest, cause: Cause) -> Vec<String> {
    let mut text = Vec::new();
    if scene.zones.is_empty() {
        return text;
    }
    let size = |pages| bytes_text(scene.bytes(pages));
    let served =
        scene.allowed(asked).filter_map(|zone| Some((zone, zone.state.largest(&asked.request)?)));
    match served.max_by_key(|(_, order)| *order) {
        Some((zone, order)) if u32::from(order.get()) < asked.order => text.push(format!(
            "At that moment order {order} ({}) or less would have been served, by {}.",
            size(order.pages()),
            zone.name
        )),
        Some((zone, order)) => text.push(format!(
            "At that moment up to order {order} ({}) could have been served, by {}.",
            size(order.pages()),
            zone.name
        )),
        None => text.push(
            "At that moment not even a single page would have been served to this caller."
                .to_owned(),
        ),
    }
    if asked.order > 0 && asked.of_order(Order::ZERO).request.order == Order::ZERO {
        text.extend(after_compaction(scene, asked));
    }
    if let Some(totals) = scene.totals
        && cause != Cause::TypeForbidden
    {
        let swap = match totals.free_swap {
            None => String::new(),
            Some(0) => ", and there was no free swap".to_owned(),
            Some(pages) => format!(", and {} of swap were free", size(pages)),
        };
        text.push(format!(
            "Reclaim had {} of page cache to drop; {} belonged to processes{swap}; {} were slab that cannot \
             be freed.",
            size(totals.file),
            size(totals.anon),
            size(totals.slab)
        ));
    }
    text
}

/// Returns a sentence on what compaction could have made of the free memory; `None` if no zone refused only for want of
/// a large block.
fn after_compaction(scene: &Scene, asked: &SceneRequest) -> Option<String> {
    let zone = nearest(scene, asked)?;
    let indices = zone.indices(asked.order);
    let value = indices.fragmentation?;
    let spare = zone.state.free.pages.saturating_sub(zone.state.marks.min + zone.state.boost);
    let blocks = spare >> asked.order.min(63);
    let verdict = match value {
        v if v >= 500 => "nearer to 1, where pieces are the matter and compaction helps",
        _ => "nearer to 0, where memory is short and reclaim has to come first",
    };
    Some(format!(
        "After compaction {} could have given up to {blocks} such blocks, if all in use there could move: its \
         fragmentation index at order {} was {:.3}, {verdict}; {} % of its free pages were in blocks too small.",
        zone.name,
        asked.order,
        value as f64 / 1000.0,
        indices.unusable as f64 / 10.0
    ))
}
