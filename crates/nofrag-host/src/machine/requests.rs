//! Which requests would succeed now, and what the others would have to wait for.
//!
//! Each kind of request is put to the core's watermark test in every zone that it may use
//! ([`nofrag::page::ZoneState`]), order by order. A caller that may wait does not fail at once: it compacts when what
//! is free is in pieces, and reclaims when it is too little. Above order 3 the kernel compacts only where the
//! fragmentation index is above `vm.extfrag_threshold` (admin-guide/sysctl/vm); below, it reclaims first.

use nofrag::page::{Migratetype, PageRequest, Refusal, RequestFlags, ZoneState};
use nofrag::units::Order;
use serde::Serialize;

use super::zones::Zone;
use crate::finding::bytes_text;
use crate::snapshot::{Snapshot, ZoneName};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
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
    /// Every kind.
    pub const ALL: [RequestKind; 4] =
        [RequestKind::Kernel, RequestKind::Reclaimable, RequestKind::User, RequestKind::Atomic];

    /// The flags, as the kernel names them.
    #[must_use]
    pub const fn gfp(self) -> &'static str {
        match self {
            RequestKind::Kernel => "GFP_KERNEL",
            RequestKind::Reclaimable => "GFP_KERNEL|__GFP_RECLAIMABLE",
            RequestKind::User => "GFP_HIGHUSER_MOVABLE",
            RequestKind::Atomic => "GFP_ATOMIC",
        }
    }

    /// The request in the core's terms.
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

/// What would become of one kind of request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    /// Who asks.
    pub kind: RequestKind,
    /// The flags, as the kernel names them.
    pub gfp: &'static str,
    /// The type of the pages.
    pub migratetype: &'static str,
    /// The largest order that is served now; `null` if not even a page is.
    pub largest_order: Option<u32>,
    /// The largest order that is served without taking from pageblocks of another type; `null` if none, or if types
    /// are not known.
    pub largest_unmixed_order: Option<u32>,
    /// The largest order that each zone serves now.
    pub zones: Vec<ZoneLargest>,
    /// What becomes of each order.
    pub orders: Vec<Answer>,
}

/// What one zone would serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneLargest {
    /// Which.
    #[serde(flatten)]
    pub zone: ZoneName,
    /// The largest order that it serves to the request now; `null` if none.
    pub largest_order: Option<u32>,
}

/// What becomes of a request of one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The order.
    pub order: u32,
    /// Bytes of the block.
    pub bytes: u64,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Why it is not served at once; `null` if it is.
    pub cause: Option<Cause>,
    /// The fragmentation index of the zone that came nearest, where pieces are the matter.
    pub index: Option<i64>,
    /// The same in words: `order 4 unmovable: would need compaction: index 0.71`.
    pub why: String,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Served at once.
    Served,
    /// Served at once, from a pageblock of another type.
    Mixes,
    /// Not before memory was compacted.
    AfterCompaction,
    /// Not before memory was reclaimed.
    AfterReclaim,
    /// Not at all: the caller may not wait, or no zone is for it.
    Fails,
}

impl Outcome {
    /// Whether the caller has it at once.
    #[must_use]
    pub const fn is_served(self) -> bool {
        matches!(self, Outcome::Served | Outcome::Mixes)
    }
}

/// Why a request is not served at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Enough is free, but no block is large enough.
    Fragmented,
    /// Too little is free.
    Short,
    /// Too little is free above watermarks that are raised after types were mixed.
    Boosted,
    /// Large blocks are free only where they are kept for others.
    Kept,
    /// No zone is for such a request.
    NoZone,
}

/// A zone and what the core knows of it.
pub(super) struct Asked<'a> {
    pub(super) zone: &'a Zone,
    pub(super) state: ZoneState,
}

/// The zones that the page allocator serves, in the order of `zones`.
pub(super) fn asked<'a>(snapshot: &Snapshot<'_>, zones: &'a [Zone]) -> Vec<Asked<'a>> {
    let of = |zone: &'a Zone| {
        let info = snapshot.populated().find(|info| info.zone == zone.zone)?;
        Some(Asked { zone, state: snapshot.state(info)? })
    };
    zones.iter().filter_map(of).collect()
}

/// What a fragmentation index has to exceed before the kernel compacts for large blocks: the default of
/// `vm.extfrag_threshold`.
const USUAL_THRESHOLD: u64 = 500;

/// Blocks up to this order the kernel tries harder for (`PAGE_ALLOC_COSTLY_ORDER`).
const COSTLY_ORDER: u32 = 3;

/// What would become of each kind of request.
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
    RequestKind::ALL.into_iter().map(|kind| survey.request(kind)).collect()
}

struct Survey<'a> {
    zones: &'a [Asked<'a>],
    page_bytes: u64,
    types_known: bool,
    threshold: u64,
}

impl Survey<'_> {
    /// The orders that the machine has blocks of and the core has a name for.
    fn orders(&self) -> impl Iterator<Item = Order> + use<> {
        let count = self.zones.iter().map(|each| each.zone.orders.len()).max().unwrap_or(0);
        Order::all().take(count)
    }

    fn request(&self, kind: RequestKind) -> Request {
        let single = kind.request(Order::ZERO);
        let orders: Vec<Answer> = self.orders().map(|order| self.answer(kind, order)).collect();
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

    fn answer(&self, kind: RequestKind, order: Order) -> Answer {
        let request = kind.request(order);
        let refusals: Vec<(&Asked<'_>, Refusal)> =
            self.zones.iter().map(|each| (each, each.state.refusal(&request))).collect();
        let number = u32::from(order.get());
        let nearest = nearest(&refusals);
        let index = nearest.and_then(|each| each.zone.orders.get(number as usize)?.fragmentation);
        let (outcome, cause) = self.judge(kind, &request, &refusals, index);
        let answer = Answer {
            order: number,
            bytes: order.pages().saturating_mul(self.page_bytes),
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
        request: &PageRequest,
        refusals: &[(&Asked<'_>, Refusal)],
        index: Option<i64>,
    ) -> (Outcome, Option<Cause>) {
        let any = |is: fn(&Refusal) -> bool| refusals.iter().any(|(_, refusal)| is(refusal));
        if any(|refusal| *refusal == Refusal::Limit) {
            let mut serving = refusals.iter().filter(|(_, refusal)| *refusal == Refusal::Limit);
            let own = serving.any(|(each, _)| each.has_own_type(request));
            let outcome = if own || !self.types_known { Outcome::Served } else { Outcome::Mixes };
            return (outcome, None);
        }
        let cause = if refusals.iter().all(|(_, refusal)| *refusal == Refusal::NotAllowed) {
            Cause::NoZone
        } else if any(|refusal| *refusal == Refusal::Type) {
            Cause::Kept
        } else if any(|refusal| matches!(refusal, Refusal::Order { .. })) {
            Cause::Fragmented
        } else if refusals.iter().any(|(each, _)| each.serves_without_boost(request)) {
            Cause::Boosted
        } else {
            Cause::Short
        };
        let outcome = match cause {
            Cause::NoZone => Outcome::Fails,
            _ if !kind.may_wait() => Outcome::Fails,
            Cause::Fragmented | Cause::Kept if self.would_compact(request, index) => {
                Outcome::AfterCompaction
            }
            _ => Outcome::AfterReclaim,
        };
        (outcome, Some(cause))
    }

    /// Whether the kernel would try compaction before reclaim.
    fn would_compact(&self, request: &PageRequest, index: Option<i64>) -> bool {
        let is_costly = u32::from(request.order.get()) > COSTLY_ORDER;
        let is_in_pieces =
            |index: i64| u64::try_from(index).is_ok_and(|index| index > self.threshold);
        !is_costly || index.is_none_or(is_in_pieces)
    }

    /// The answer in words, without a full stop.
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
        let index = answer
            .index
            .map_or(String::new(), |index| format!("index {:.2}", index as f64 / 1000.0));
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
            Some(Cause::Short) => self.shortest(refusals),
        };
        let needs = match answer.outcome {
            Outcome::Served | Outcome::Mixes | Outcome::Fails => "would fail",
            Outcome::AfterCompaction => "would need compaction",
            Outcome::AfterReclaim => "would need reclaim",
        };
        format!("{asked}: {needs}: {why}")
    }

    /// How much the zone with most to count on lacks.
    fn shortest(&self, refusals: &[(&Asked<'_>, Refusal)]) -> String {
        let size = |pages: u64| bytes_text(pages.saturating_mul(self.page_bytes));
        let counted = refusals.iter().filter_map(|(each, refusal)| match *refusal {
            Refusal::Watermark { usable, mark } => Some((usable, mark, each)),
            Refusal::Reserve { usable, mark, reserve } => {
                Some((usable, mark.saturating_add(reserve), each))
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
        let largest = self.state.largest(request).map(|order| u32::from(order.get()));
        ZoneLargest { zone: self.zone.zone.clone(), largest_order: largest }
    }

    /// Whether a block is free that the request may take without mixing types.
    fn has_own_type(&self, request: &PageRequest) -> bool {
        let has = |migratetype| self.state.free.has(migratetype, request.order);
        let flags = request.flags;
        let is_atomic = flags.has(RequestFlags::HIGH) && !flags.has(RequestFlags::DIRECT_RECLAIM);
        has(request.migratetype)
            || flags.has(RequestFlags::CMA) && has(Migratetype::Cma)
            || is_atomic && has(Migratetype::HighAtomic)
    }

    fn serves_without_boost(&self, request: &PageRequest) -> bool {
        ZoneState { boost: 0, ..self.state }.refusal(request) == Refusal::Limit
    }
}

/// The zone that fell short by order or type alone and has most free memory.
fn nearest<'a>(refusals: &[(&'a Asked<'a>, Refusal)]) -> Option<&'a Asked<'a>> {
    let by_block = |refusal: &Refusal| matches!(refusal, Refusal::Order { .. } | Refusal::Type);
    let near = refusals.iter().filter(|(_, refusal)| by_block(refusal));
    near.map(|(each, _)| *each).max_by_key(|each| each.state.free.pages)
}
