//! Steps that every policy has to carry out: the trace after pairing, the same for all of them.

use std::ops::Range;

use nofrag::units::Order;

use super::request::Request;
use super::spans::FrameIndex;
use super::standin::Ticket;

/// A step, with its time and its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Time on the trace's clock.
    pub(super) at: u64,
    pub(super) cpu: u16,
    /// The process at work; 0 where it does not matter.
    pub(super) pid: i32,
    pub(super) what: What,
}

/// The kind of step. Frames are traced ones: the names by which the recorded kernel knew blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A request that the recorded kernel served with the block at `frame`, by which name it is freed later. `place` is
    /// the refusal of a huge page in whose place a single page comes.
    Alloc { frame: FrameIndex, request: Request, place: Option<Ticket> },
    /// A request that the recorded kernel did not serve; single pages may follow in its place.
    Failed { request: Request, place: Option<Ticket> },
    /// The second try of a fault whose first one, `of`, the recorded kernel refused: it served this one with the block
    /// at `frame`, or refused it too.
    Again { of: Ticket, request: Request, frame: Option<FrameIndex> },
    /// No more pages come in the place of this refused huge page.
    PlaceEnds { of: Ticket },
    /// The block at `frame` goes on as blocks of a smaller order.
    Split { frame: FrameIndex, from: Order, to: Order },
    /// The block at `frame` was freed.
    Free { frame: FrameIndex, by: By },
    /// The content of the block at `frame` was moved by the recorded kernel, which does not say where to.
    Moved { frame: FrameIndex, order: Order },
    /// A block was freed that had been moved to `frame`; its place before is not known.
    FreeMoved { frame: FrameIndex, order: Order, by: By },
    /// `pages` pages were moved within a zone; neither their old nor their new frames are known.
    Appeared { zone: u16, pages: u32 },
    /// A frame was found free in a snapshot, which no event tells.
    FoundFree { frame: FrameIndex },
    /// A frame was found in use in a snapshot, which no event tells.
    FoundUsed { frame: FrameIndex },
}

impl What {
    /// Returns true for what a process asks for, and cannot while it waits for an answer.
    pub(super) fn is_request(&self) -> bool {
        matches!(
            self,
            What::Alloc { .. } | What::Failed { .. } | What::Again { .. } | What::PlaceEnds { .. }
        )
    }

    /// Returns the frames that the step names.
    pub(super) fn names(&self) -> Range<FrameIndex> {
        let (frame, order) = match *self {
            What::Alloc { frame, request, .. }
            | What::Again { frame: Some(frame), request, .. } => (frame, request.order),
            What::Split { frame, from: order, .. } | What::Moved { frame, order } => (frame, order),
            What::Free { frame, .. } | What::FoundFree { frame } | What::FoundUsed { frame } => {
                (frame, Order::ZERO)
            }
            What::Failed { .. }
            | What::Again { frame: None, .. }
            | What::PlaceEnds { .. }
            | What::FreeMoved { .. }
            | What::Appeared { .. } => return 0..0,
        };
        frame..frame + order.pages() as FrameIndex
    }
}

/// The party that freed a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// The process that had asked for the block.
    User,
    /// Reclaim of the recorded kernel: a decision of that kernel's, not of the workload.
    Reclaim,
}
