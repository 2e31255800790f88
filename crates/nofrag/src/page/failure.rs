//! The report of a request that was not served: the request, the free memory, and why no zone fitted.

use core::fmt;

use super::allocator::PageAllocator;
use super::map::{NodeId, ZoneKind};
use super::migratetype::Migratetype;
use super::request::PageRequest;
use super::slow_path::{rights, with_reserves};
use super::state::FreeMemory;
use super::walk::{AllocFlags, Mark};
use super::watermark::{threshold, usable};
use super::zone::{Zone, ZoneId};
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::units::Order;

/// Report of a request that was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureReport {
    pub request: PageRequest,
    pub reason: FailureReason,
    zones: [Option<ZoneReport>; FailureReport::ZONES],
    /// Number of zones that the report has no room for.
    pub left_out: usize,
}

/// Reason why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureReason {
    /// No zone may serve it, or the request names a type that only pageblocks have.
    NoZone,
    /// The request must not reclaim, and nothing was at hand.
    MayNotReclaim,
    /// The limits on retries were reached, or the request asked for few.
    GaveUp,
    /// The attempt was asked again after it was over: served or failed.
    Over,
    /// Nothing can be reclaimed or moved any more: time to kill something.
    OutOfMemory,
}

/// A zone that did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    pub zone: ZoneId,
    pub node: NodeId,
    pub kind: ZoneKind,
    /// Free blocks of each order, of all types.
    pub free: [u32; Order::COUNT],
    pub refusal: Refusal,
}

/// Reason why a zone did not serve a request, as it was when the request ended: the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The zone lies above the highest zone that the request can use, or on a node that it must not use.
    NotAllowed,
    /// Too few pages would stay free.
    Watermark {
        /// Free pages, without those of HIGHATOMIC and CMA pageblocks unless the request has a right to them.
        usable: u64,
        /// Pages that must stay free: the min watermark, boost included, less what the request's rights allow.
        mark: u64,
    },
    /// Enough would stay free, but for the pages kept from requests that could have used a higher zone.
    Reserve {
        /// Free pages, without those of HIGHATOMIC and CMA pageblocks unless the request has a right to them.
        usable: u64,
        /// Pages that must stay free: the min watermark, boost included, less what the request's rights allow.
        mark: u64,
        /// Pages that must stay free besides (`lowmem_reserve`).
        reserve: u64,
    },
    /// No free block is large enough.
    Order {
        /// The largest order of a free block; `None` if nothing is free.
        largest: Option<Order>,
    },
    /// Free blocks are large enough, but of types that the request may not take.
    Type,
    /// Nothing is against it now: the request reached its limits before the zone recovered.
    Limit,
}

impl FailureReport {
    /// Number of zones that a report has room for.
    pub const ZONES: usize = 6;

    pub(super) fn new<E: EventSink>(
        pages: &PageAllocator<E>,
        cpu: CpuId,
        request: &PageRequest,
        reason: FailureReason,
    ) -> FailureReport {
        let home = pages.nodes.get(pages.home(cpu, request).index());
        let list = home.map_or(&[][..], |node| node.zonelist.of(request));
        let flags = with_reserves(request, rights(request));
        let mut zones = [None; FailureReport::ZONES];
        for (row, id) in zones.iter_mut().zip(list) {
            let zone = &pages.zones[id.index()];
            *row = Some(zone.report(request, flags));
        }
        let left_out = list.len().saturating_sub(zones.len());
        FailureReport { request: *request, reason, zones, left_out }
    }

    /// Returns the zones of the request's zonelist, best first; at most [`ZONES`](Self::ZONES).
    pub fn zones(&self) -> impl Iterator<Item = &ZoneReport> {
        self.zones.iter().flatten()
    }
}

impl Zone {
    fn report(&self, request: &PageRequest, flags: AllocFlags) -> ZoneReport {
        let free = core::array::from_fn(|index| {
            let order = Order::new(index as u8).expect("the array has a place per order");
            u32::try_from(self.lists.blocks(order)).unwrap_or(u32::MAX)
        });
        let refusal = self.refusal(request, flags);
        ZoneReport { zone: self.id, node: self.node, kind: self.kind, free, refusal }
    }

    fn refusal(&self, request: &PageRequest, flags: AllocFlags) -> Refusal {
        if !self.is_allowed(request) {
            return Refusal::NotAllowed;
        }
        let reserve = self.reserve[request.zone.index()];
        refusal(&self.lists, request, flags, self.mark(Mark::Min), reserve)
    }

    /// Returns the reason why the zone does not serve the request with all the rights that the request has.
    #[cfg(test)]
    pub(super) fn refused(&self, request: &PageRequest) -> Refusal {
        self.refusal(request, with_reserves(request, rights(request)))
    }
}

/// Returns the reason why free memory does not serve a request that may use it at all. `min` is the zone's min
/// watermark, boost included, and `reserve` what the zone withholds from such requests, in pages. O(1).
pub(super) fn refusal(
    free: &impl FreeMemory,
    request: &PageRequest,
    flags: AllocFlags,
    min: u64,
    reserve: u64,
) -> Refusal {
    let PageRequest { order, migratetype, .. } = *request;
    let usable = usable(free, flags);
    let mark = threshold(flags.mark.map_or(0, |_| min), flags);
    let reserve = flags.mark.map_or(0, |_| reserve);
    let needed = mark.saturating_add(order.pages());
    if usable < needed {
        return Refusal::Watermark { usable, mark };
    }
    if usable < needed.saturating_add(reserve) {
        return Refusal::Reserve { usable, mark, reserve };
    }
    let all = Migratetype::ALL.iter().fold(0, |set, &each| set | free.orders(each, Order::ZERO));
    let largest = Order::all().rev().find(|order| all >> order.get() & 1 == 1);
    if largest.is_none_or(|largest| largest < order) {
        return Refusal::Order { largest };
    }
    let takes = |from: Migratetype| free.orders(from, order) != 0;
    let extra = [
        (Migratetype::HighAtomic, flags.has(AllocFlags::HIGH_ATOMIC)),
        (Migratetype::Cma, flags.has(AllocFlags::CMA)),
    ];
    let takes = takes(migratetype)
        || migratetype.fallbacks().iter().any(|&from| takes(from))
        || extra.iter().any(|&(from, may)| may && takes(from));
    if takes { Refusal::Limit } else { Refusal::Type }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureReason::NoZone => "no zone may serve it",
            FailureReason::MayNotReclaim => "nothing at hand, and it must not reclaim",
            FailureReason::GaveUp => "it reached the limits on retries",
            FailureReason::Over => "it is over",
            FailureReason::OutOfMemory => "out of memory",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refusal::NotAllowed => f.write_str("not allowed"),
            Refusal::Watermark { usable, mark } => {
                write!(f, "{usable} pages to count on, {mark} must stay")
            }
            Refusal::Reserve { usable, mark, reserve } => {
                write!(f, "{usable} pages to count on, {mark} must stay and {reserve} are kept")
            }
            Refusal::Order { largest: Some(order) } => {
                write!(f, "no free block above order {order}")
            }
            Refusal::Order { largest: None } => f.write_str("nothing is free"),
            Refusal::Type => f.write_str("large blocks are of other types only"),
            Refusal::Limit => f.write_str("could serve it now"),
        }
    }
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PageRequest { order, migratetype, .. } = self.request;
        write!(f, "order {order} {migratetype}: {}", self.reason)?;
        for zone in self.zones() {
            write!(f, "; node {} {}: {}, free", zone.node.0, zone.kind, zone.refusal)?;
            zone.free.iter().try_for_each(|blocks| write!(f, " {blocks}"))?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "; and {more} more zones"),
        }
    }
}

impl core::error::Error for FailureReport {}
