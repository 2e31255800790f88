//! Requests to the allocator, and their flags.

use super::map::{NodeId, NodeMask, ZoneKind};
use super::migratetype::Migratetype;
use crate::units::Order;

/// Permissions and demands of a request: the parts of Linux's `gfp_t` that decide where pages come from and what
/// happens when there are none. Sets are joined with [`with`](Self::with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestFlags(pub u16);

impl RequestFlags {
    /// Nothing: no reclaim of any kind.
    pub const NONE: RequestFlags = RequestFlags(0);
    /// `__GFP_DIRECT_RECLAIM`: the caller may reclaim, compact and wait.
    pub const DIRECT_RECLAIM: RequestFlags = RequestFlags(1);
    /// `__GFP_KSWAPD_RECLAIM`: kswapd may be woken.
    pub const KSWAPD_RECLAIM: RequestFlags = RequestFlags(1 << 1);
    /// `__GFP_HIGH`: may use half of the minimum watermark.
    pub const HIGH: RequestFlags = RequestFlags(1 << 2);
    /// `__GFP_NORETRY`: one round of reclaim or compaction, then give up.
    pub const NO_RETRY: RequestFlags = RequestFlags(1 << 3);
    /// `__GFP_RETRY_MAYFAIL`: tries hard, but fails before anything is killed.
    pub const RETRY_MAYFAIL: RequestFlags = RequestFlags(1 << 4);
    /// `__GFP_THISNODE`: no other node may serve.
    pub const THIS_NODE: RequestFlags = RequestFlags(1 << 5);
    /// `PF_MEMALLOC`: the caller is itself freeing memory; no watermark holds, and it never waits.
    pub const MEMALLOC: RequestFlags = RequestFlags(1 << 6);
    /// The caller was chosen by the out-of-memory killer: may use half of the minimum watermark.
    pub const OOM_VICTIM: RequestFlags = RequestFlags(1 << 7);
    /// May borrow from CMA blocks.
    pub const CMA: RequestFlags = RequestFlags(1 << 8);
    /// `__GFP_NOMEMALLOC`: no reserves for who may not wait or frees memory; it outweighs [`MEMALLOC`](Self::MEMALLOC).
    pub const NO_MEMALLOC: RequestFlags = RequestFlags(1 << 9);
    /// `__GFP_RECLAIM`: both ways of reclaim.
    pub const RECLAIM: RequestFlags = RequestFlags(Self::DIRECT_RECLAIM.0 | Self::KSWAPD_RECLAIM.0);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: RequestFlags) -> RequestFlags {
        RequestFlags(self.0 | other.0)
    }

    /// Returns this set without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: RequestFlags) -> RequestFlags {
        RequestFlags(self.0 & !other.0)
    }

    /// Returns true if every flag of `other` is set.
    #[must_use]
    pub const fn has(self, other: RequestFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A request for one block of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRequest {
    /// Number of pages, as a power of two.
    pub order: Order,
    /// Mobility of the pages; one of [`Migratetype::MOBILITY`].
    pub migratetype: Migratetype,
    pub flags: RequestFlags,
    /// The highest zone that the request can use.
    pub zone: ZoneKind,
    /// The node to begin with; without one, that of the CPU.
    pub node: Option<NodeId>,
    /// The nodes that the request may use (`cpuset`, memory policy).
    pub nodes: NodeMask,
}

impl PageRequest {
    /// Makes a request of `order` and `migratetype` that may reclaim, as `GFP_KERNEL` does.
    #[must_use]
    pub const fn new(order: Order, migratetype: Migratetype) -> PageRequest {
        PageRequest {
            order,
            migratetype,
            flags: RequestFlags::RECLAIM,
            zone: ZoneKind::Normal,
            node: None,
            nodes: NodeMask::ALL,
        }
    }

    /// Makes a request for memory of a process or the page cache: `GFP_HIGHUSER_MOVABLE`.
    #[must_use]
    pub const fn user(order: Order) -> PageRequest {
        PageRequest { zone: ZoneKind::Movable, ..PageRequest::new(order, Migratetype::Movable) }
    }

    /// Makes a request that may not wait: `GFP_ATOMIC`.
    #[must_use]
    pub const fn atomic(order: Order) -> PageRequest {
        PageRequest {
            flags: RequestFlags::HIGH.with(RequestFlags::KSWAPD_RECLAIM),
            ..PageRequest::new(order, Migratetype::Unmovable)
        }
    }

    /// Returns the same request with these flags.
    #[must_use]
    pub const fn flags(self, flags: RequestFlags) -> PageRequest {
        PageRequest { flags, ..self }
    }

    /// Returns the same request, beginning with this node.
    #[must_use]
    pub const fn on(self, node: NodeId) -> PageRequest {
        PageRequest { node: Some(node), ..self }
    }
}
