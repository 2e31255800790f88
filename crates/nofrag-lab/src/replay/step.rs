//! What every policy has to do: the trace after pairing, the same for all of them.

use nofrag::units::Order;

use super::request::Request;
use super::spans::FrameIndex;
use super::standin::Ticket;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// When, on the trace's clock.
    pub(super) at: u64,
    /// On which CPU.
    pub(super) cpu: u16,
    pub(super) what: What,
}

/// What to do. Frames are traced ones: the names by which the recorded kernel knew blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A request. The recorded kernel served it with the block at `frame`, by which name it is freed later. A single
    /// page may come in the place of a huge one that was refused.
    Alloc { frame: FrameIndex, request: Request, place: Option<Ticket> },
    /// A request that the recorded kernel did not serve; single pages may follow in its place.
    Failed { request: Request, place: Option<Ticket> },
    /// No more of them follow.
    PlaceEnds { of: Ticket },
    /// The block at `frame` goes on as blocks of a smaller order.
    Split { frame: FrameIndex, from: Order, to: Order },
    /// The block at `frame` was given back.
    Free { frame: FrameIndex, by: By },
    /// What the block at `frame` holds was moved by the recorded kernel, which does not say where to.
    Moved { frame: FrameIndex, order: Order },
    /// A block was given back that had been moved to `frame`; which one it was before is not known.
    FreeMoved { frame: FrameIndex, order: Order, by: By },
    /// So many pages were moved within a zone; from where is not known either.
    Appeared { zone: u16, pages: u32 },
    /// A frame was found free in a snapshot, which no event tells.
    FoundFree { frame: FrameIndex },
    /// A frame was found in use in a snapshot, which no event tells.
    FoundUsed { frame: FrameIndex },
}

/// Who gave a block back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Who had asked for it.
    User,
    /// Reclaim of the recorded kernel: a decision of that kernel's, not of the workload.
    Reclaim,
}
