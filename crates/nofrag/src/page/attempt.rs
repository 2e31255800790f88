//! The slow path: what a request may still try, decided step by step. The caller acts.

use super::allocator::PageAllocator;
use super::owner::{MoveResults, Moves, ReclaimRequest, Reclaimed};
use super::request::PageRequest;
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::units::{Nanos, Pfn};

/// A request that the fast path could not serve. Ask it with [`advance`](Self::advance) what to do next, do it, and
/// report; it holds no pages between calls but those that are being moved.
#[derive(Debug)]
#[must_use = "the request has neither failed nor been served yet"]
pub struct Attempt {
    pub(super) cpu: CpuId,
    pub(super) request: PageRequest,
}

/// What the caller has done since the last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet: the first call.
    Begin,
    /// It reclaimed; this is what came of it.
    Reclaimed(Reclaimed),
    /// It carried out the moves; these succeeded.
    Migrated(MoveResults),
    /// It waited until `until`, or was woken before.
    Waited,
}

/// What the caller shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: here is the block.
    Done(Pfn),
    /// Free pages, then report [`Outcome::Reclaimed`].
    Reclaim(ReclaimRequest),
    /// Move pages, then report [`Outcome::Migrated`].
    Migrate(Moves),
    /// Wait, then report [`Outcome::Waited`].
    Stall {
        /// No longer than until then.
        until: Nanos,
    },
    /// Nothing: the request cannot be served.
    Fail(FailureReport),
}

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// The request.
    pub request: PageRequest,
    /// What was the matter.
    pub reason: FailureReason,
}

/// What was the matter with a request that was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// No zone may serve it.
    NoZone,
    /// It must not reclaim, and there was nothing at hand.
    MayNotReclaim,
    /// The limits on retries were reached.
    GaveUp,
    /// Nothing can be reclaimed or moved any more: time to kill something.
    OutOfMemory,
}

impl Attempt {
    /// Goes on from what the caller did.
    pub fn advance<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        _now: Nanos,
        _outcome: Outcome,
    ) -> Next {
        let _ = (self.cpu, &pages);
        Next::Fail(FailureReport { request: self.request, reason: FailureReason::GaveUp })
    }
}
