//! The requests that would succeed now, and the work for which the others would have to wait.
//!
//! Each kind of request is put to the core's watermark test in every zone that it may use
//! ([`nofrag::page::ZoneState`]), order by order. A caller that may wait does not fail at once: it compacts when free
//! memory is in pieces, and reclaims when there is too little. Above order 3 the kernel compacts only where the
//! fragmentation index is above `vm.extfrag_threshold` (admin-guide/sysctl/vm); below, it reclaims first.
//!
//! Kernels with larger pages have orders above the core's largest; [`Snapshot::state_for`] makes them fit for the
//! core's test.
//!
//! Source: docs/sources/trace.md#largest-order.

use nofrag::page::{Migratetype, NodeId, PageRequest, Refusal, RequestFlags, ZoneState};
use nofrag::units::Order;
use serde::Serialize;
use strum::VariantArray as _;

use super::zones::{Zone, pages};
use crate::finding::bytes_text;
use crate::snapshot::{Snapshot, ZoneInfo, ZoneName};

/// The caller and purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::VariantArray)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RequestKind {
    /// The kernel for itself; it may wait.
    Kernel,
    /// The kernel for caches that it can drop; it may wait.
    Reclaimable,
    /// A process, or the page cache; it may wait.
    User,
    /// The kernel where it may not wait, such as in an interrupt.
    Atomic,
}

impl RequestKind {
    /// Returns the flags of such a request, as the kernel names them.
    #[must_use]
    pub const fn gfp(self) -> &'static str {
        match self {
            RequestKind::Kernel => "GFP_KERNEL",
            RequestKind::Reclaimable => "GFP_KERNEL|__GFP_RECLAIMABLE",
            RequestKind::User => "GFP_HIGHUSER_MOVABLE",
            RequestKind::Atomic => "GFP_ATOMIC",
        }
    }

    /// Returns a request of this kind for `order`, in the core's terms.
    #[must_use]
    pub const fn request(self, order: Order) -> PageRequest {
        match self {
            RequestKind::Kernel => PageRequest::new(order, Migratetype::Unmovable),
            RequestKind::Reclaimable => PageRequest::new(order, Migratetype::Reclaimable),
            RequestKind::User => {
                let user = PageRequest::user(order);
                user.flags(RequestFlags::RECLAIM.with(RequestFlags::CMA))
            }
            RequestKind::Atomic => PageRequest::atomic(order),
        }
    }

    const fn may_wait(self) -> bool {
        !matches!(self, RequestKind::Atomic)
    }
}

/// The present answer to one kind of request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Request {
    pub kind: RequestKind,
    /// The flags, as the kernel names them.
    pub gfp: &'static str,
    /// The migratetype of the pages.
    pub migratetype: &'static str,
    /// The largest order that is served now; `null` if not even a page is.
    pub largest_order: Option<u32>,
    /// The largest order that is served without taking from pageblocks of another type; `null` if none is, or if types
    /// are not known.
    pub largest_unmixed_order: Option<u32>,
    /// The largest order that each zone serves now.
    pub zones: Vec<ZoneLargest>,
    /// The answer for each order.
    pub orders: Vec<Answer>,
}

/// The largest order that one zone would serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneLargest {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// The largest order that the zone serves to the request now; `null` if none.
    pub largest_order: Option<u32>,
}

/// The answer to a request of one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Answer {
    pub order: u32,
    pub bytes: u64,
    pub outcome: Outcome,
    /// The reason why the request is not served at once; `null` if it is.
    pub cause: Option<Cause>,
    /// The fragmentation index, in thousandths, of the nearest zone, where free memory in pieces is the reason.
    pub index: Option<i64>,
    /// The answer in words: `order 4 unmovable: would need compaction: index 0.71`.
    pub why: String,
}

/// Outcome of a request for one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Served,
    /// Served at once, but from a pageblock of another type.
    Mixes,
    AfterCompaction,
    AfterReclaim,
    /// Not served at all: the caller may not wait, or no zone can serve it.
    Fails,
}

impl Outcome {
    /// Returns true if the caller has the block at once.
    #[must_use]
    pub const fn is_served(self) -> bool {
        matches!(self, Outcome::Served | Outcome::Mixes)
    }
}

/// The reason why a request is not served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// Enough is free, but no block is large enough.
    Fragmented,
    /// Too few pages are free.
    Short,
    /// Too little is free above watermarks that are raised after types were mixed.
    Boosted,
    /// Large blocks are free only where they are kept for other requests.
    Kept,
    /// No zone can serve such a request.
    NoZone,
}

/// A zone with its state in the core's terms.
pub(super) struct Asked<'a> {
    pub(super) zone: &'a Zone,
    pub(super) info: &'a ZoneInfo,
    states: States,
}

/// Returns the zones that the page allocator serves and whose blocks are known, in the order of `zones`.
pub(super) fn asked<'a>(snapshot: &'a Snapshot<'_>, zones: &'a [Zone]) -> Vec<Asked<'a>> {
    let of = |zone: &'a Zone| {
        let info = snapshot.populated().find(|info| info.zone == zone.zone)?;
        Some(Asked { zone, info, states: States::of(snapshot, info)? })
    };
    zones.iter().filter_map(of).collect()
}

/// The state of a zone in the core's terms, for each order that the zone has.
struct States {
    /// The state for the orders of the core.
    usual: ZoneState,
    /// One state for each order above, which [`Snapshot::state_for`] has made fit for the core's test.
    larger: Vec<ZoneState>,
    orders: u32,
}

impl States {
    /// Returns the states; `None` where the blocks are not known, and for a zone that the page allocator does not
    /// serve.
    fn of(snapshot: &Snapshot<'_>, info: &ZoneInfo) -> Option<States> {
        let orders = u32::try_from(snapshot.blocks(&info.zone)?.blocks.len()).ok()?;
        // The requests of this module name no node, and the core has no name for some nodes of the largest machines.
        let anywhere = |state| ZoneState { node: NodeId(0), ..state };
        let usual = anywhere(snapshot.state(info)?);
        let larger =
            (Order::COUNT as u32..orders).filter_map(|order| snapshot.state_for(info, order));
        Some(States { usual, larger: larger.map(anywhere).collect(), orders })
    }

    /// Returns the zone as a request of the order sees it, and the request to test there.
    fn ask(&self, request: &PageRequest, order: u32) -> (&ZoneState, PageRequest) {
        let above = (order as usize).checked_sub(Order::COUNT);
        let state = above.and_then(|above| self.larger.get(above)).unwrap_or(&self.usual);
        (state, PageRequest { order: core_order(order), ..*request })
    }

    fn refusal(&self, request: &PageRequest, order: u32) -> Refusal {
        let (state, request) = self.ask(request, order);
        state.refusal(&request)
    }

    fn largest(&self, request: &PageRequest) -> Option<u32> {
        (0..self.orders).rev().find(|&order| self.refusal(request, order) == Refusal::Limit)
    }
}

/// Converts an order to the core's type; an order above the core's largest becomes the largest.
fn core_order(order: u32) -> Order {
    u8::try_from(order).ok().and_then(Order::new).unwrap_or(Order::MAX)
}

/// Returns the largest order that a zone serves to such a request now; `None` if none, or where its blocks are not
/// known.
#[must_use]
pub fn largest_order(snapshot: &Snapshot<'_>, zone: &ZoneInfo, kind: RequestKind) -> Option<u32> {
    States::of(snapshot, zone)?.largest(&kind.request(Order::ZERO))
}

/// Fragmentation index, in thousandths, above which the kernel compacts for large blocks: the default of
/// `vm.extfrag_threshold`.
const USUAL_THRESHOLD: u64 = 500;

/// Largest order for which the kernel tries harder (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: u32 = 3;

/// Returns the answers to each kind of request.
pub(super) fn survey(snapshot: &Snapshot<'_>, zones: &[Asked<'_>]) -> Vec<Request> {
    if zones.is_empty() {
        return Vec::new();
    }
    let survey = Survey {
        zones,
        page_bytes: snapshot.page_bytes(),
        types_known: snapshot.types.is_some(),
        threshold: snapshot.sysctl.get("extfrag_threshold").unwrap_or(USUAL_THRESHOLD),
    };
    RequestKind::VARIANTS.iter().map(|&kind| survey.request(kind)).collect()
}

struct Survey<'a> {
    zones: &'a [Asked<'a>],
    page_bytes: u64,
    types_known: bool,
    threshold: u64,
}

impl Survey<'_> {
    fn request(&self, kind: RequestKind) -> Request {
        let single = kind.request(Order::ZERO);
        let count = self.zones.iter().map(|each| each.states.orders).max().unwrap_or(0);
        let orders: Vec<Answer> = (0..count).map(|order| self.answer(kind, order)).collect();
        let largest =
            |is: fn(&Answer) -> bool| orders.iter().rfind(|each| is(each)).map(|each| each.order);
        Request {
            kind,
            gfp: kind.gfp(),
            migratetype: single.migratetype.name(),
            largest_order: largest(|each| each.outcome.is_served()),
            largest_unmixed_order: largest(|each| each.outcome == Outcome::Served)
                .filter(|_| self.types_known),
            zones: self.zones.iter().map(|each| each.largest(&single)).collect(),
            orders,
        }
    }

    fn answer(&self, kind: RequestKind, order: u32) -> Answer {
        let request = kind.request(core_order(order));
        let ask = |each: &'_ Asked<'_>| each.states.refusal(&request, order);
        let refusals: Vec<(&Asked<'_>, Refusal)> =
            self.zones.iter().map(|each| (each, ask(each))).collect();
        let nearest = nearest(&refusals);
        let index = nearest.and_then(|each| each.zone.orders.get(order as usize)?.fragmentation);
        let (outcome, cause) = self.judge(kind, order, &request, &refusals, index);
        let answer = Answer {
            order,
            bytes: pages(1, order).saturating_mul(self.page_bytes),
            outcome,
            cause,
            index: index.filter(|_| cause == Some(Cause::Fragmented)),
            why: String::new(),
        };
        Answer { why: self.words(&answer, &request, &refusals), ..answer }
    }

    fn judge(
        &self,
        kind: RequestKind,
        order: u32,
        request: &PageRequest,
        refusals: &[(&Asked<'_>, Refusal)],
        index: Option<i64>,
    ) -> (Outcome, Option<Cause>) {
        let any = |is: fn(&Refusal) -> bool| refusals.iter().any(|(_, refusal)| is(refusal));
        if any(|refusal| *refusal == Refusal::Limit) {
            let mut serving = refusals.iter().filter(|(_, refusal)| *refusal == Refusal::Limit);
            let own = serving.any(|(each, _)| each.has_own_type(request, order));
            let outcome = if own || !self.types_known { Outcome::Served } else { Outcome::Mixes };
            return (outcome, None);
        }
        let cause = if refusals.iter().all(|(_, refusal)| *refusal == Refusal::NotAllowed) {
            Cause::NoZone
        } else if any(|refusal| *refusal == Refusal::Type) {
            Cause::Kept
        } else if any(|refusal| matches!(refusal, Refusal::Order { .. })) {
            Cause::Fragmented
        } else if refusals.iter().any(|(each, _)| each.serves_without_boost(request, order)) {
            Cause::Boosted
        } else {
            Cause::Short
        };
        let outcome = match cause {
            Cause::NoZone => Outcome::Fails,
            _ if !kind.may_wait() => Outcome::Fails,
            Cause::Fragmented | Cause::Kept if self.would_compact(order, index) => {
                Outcome::AfterCompaction
            }
            _ => Outcome::AfterReclaim,
        };
        (outcome, Some(cause))
    }

    /// Returns true if the kernel would try compaction before reclaim.
    fn would_compact(&self, order: u32, index: Option<i64>) -> bool {
        let is_costly = order > COSTLY_ORDER;
        let is_in_pieces =
            |index: i64| u64::try_from(index).is_ok_and(|index| index > self.threshold);
        !is_costly || index.is_none_or(is_in_pieces)
    }

    /// Returns the answer in words, without a full stop.
    fn words(
        &self,
        answer: &Answer,
        request: &PageRequest,
        refusals: &[(&Asked<'_>, Refusal)],
    ) -> String {
        let kind = request.migratetype.name().to_lowercase();
        let asked = match request.flags.has(RequestFlags::DIRECT_RECLAIM) {
            true => format!("order {} {kind}", answer.order),
            false => format!("order {} {kind} without waiting", answer.order),
        };
        // Files of different moments may disagree on whether a block is free; then there is no index.
        let index = answer.index.map_or_else(
            || format!("no block of {} is free", bytes_text(answer.bytes)),
            |index| format!("index {:.2}", index as f64 / 1000.0),
        );
        let why = match answer.cause {
            None if answer.outcome == Outcome::Mixes => {
                return format!("{asked}: served, from a pageblock of another type");
            }
            None => return format!("{asked}: served"),
            Some(Cause::NoZone) => "no zone is for it".to_owned(),
            Some(Cause::Kept) => format!(
                "blocks of {} are free only where they are kept for others",
                bytes_text(answer.bytes)
            ),
            Some(Cause::Fragmented) => index,
            Some(Cause::Boosted) => "only the boost of the watermarks is against it".to_owned(),
            Some(Cause::Short) => self.shortest(answer.order, refusals),
        };
        let needs = match answer.outcome {
            Outcome::Served | Outcome::Mixes | Outcome::Fails => "would fail",
            Outcome::AfterCompaction => "would need compaction",
            Outcome::AfterReclaim => "would need reclaim",
        };
        format!("{asked}: {needs}: {why}")
    }

    /// Returns the shortage of the zone with most usable pages, in words.
    fn shortest(&self, order: u32, refusals: &[(&Asked<'_>, Refusal)]) -> String {
        let size = |pages: u64| bytes_text(pages.saturating_mul(self.page_bytes));
        // The core was asked for its largest order: this many pages fewer.
        let more = pages(1, order).saturating_sub(core_order(order).pages());
        let counted = refusals.iter().filter_map(|(each, refusal)| match *refusal {
            Refusal::Watermark { usable, mark } => Some((usable.saturating_add(more), mark, each)),
            Refusal::Reserve { usable, mark, reserve } => {
                Some((usable.saturating_add(more), mark.saturating_add(reserve), each))
            }
            _ => None,
        });
        match counted.max_by_key(|(usable, ..)| *usable) {
            Some((usable, kept, each)) => format!(
                "{} has {} to count on, and {} must stay",
                each.zone.label,
                size(usable),
                size(kept)
            ),
            None => "too little is free".to_owned(),
        }
    }
}

impl Asked<'_> {
    fn largest(&self, request: &PageRequest) -> ZoneLargest {
        ZoneLargest { zone: self.zone.zone.clone(), largest_order: self.states.largest(request) }
    }

    /// Returns true if a block is free that the request may take without mixing types.
    fn has_own_type(&self, request: &PageRequest, order: u32) -> bool {
        let (state, request) = self.states.ask(request, order);
        let has = |migratetype| state.free.has(migratetype, request.order);
        let flags = request.flags;
        let is_atomic = flags.has(RequestFlags::HIGH) && !flags.has(RequestFlags::DIRECT_RECLAIM);
        has(request.migratetype)
            || flags.has(RequestFlags::CMA) && has(Migratetype::Cma)
            || is_atomic && has(Migratetype::HighAtomic)
    }

    fn serves_without_boost(&self, request: &PageRequest, order: u32) -> bool {
        let (state, request) = self.states.ask(request, order);
        ZoneState { boost: 0, ..*state }.refusal(&request) == Refusal::Limit
    }
}

/// Returns the zone with most free memory among those that fell short by order or type alone.
fn nearest<'a>(refusals: &[(&'a Asked<'a>, Refusal)]) -> Option<&'a Asked<'a>> {
    let by_block = |refusal: &Refusal| matches!(refusal, Refusal::Order { .. } | Refusal::Type);
    let near = refusals.iter().filter(|(_, refusal)| by_block(refusal));
    near.map(|(each, _)| *each).max_by_key(|each| each.states.usual.free.pages)
}
