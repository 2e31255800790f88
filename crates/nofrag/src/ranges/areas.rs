//! Areas, gaps, and requests for places in gaps.
//!
//! An *area* is a range that is in use, with a number, its *tag*, that the owner gives a meaning. Areas never overlap;
//! two that touch have a gap of zero numbers between them. The last gap reaches from the highest area to the end of
//! all numbers. The index itself is the area form of `wide`.

use super::{Fit, Span};

/// A range in use, and its owner's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) span: Span,
    pub(crate) tag: u32,
}

/// A request for a place in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapRequest {
    pub(crate) size: u64,
    /// A power of two; see `offset`.
    pub(crate) align: u64,
    /// The remainder of the start when divided by `align`.
    pub(crate) offset: u64,
    /// Bounds of the place; gaps count as cut to them.
    pub(crate) within: Span,
    /// [`Fit::Best`] takes the smallest gap, of equal ones the first from `edge` on, and in it the place at `edge`.
    pub(crate) fit: Fit,
    pub(crate) edge: Edge,
}

/// The end of a gap that a best fit is cut from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    Low,
    High,
}

impl Edge {
    /// Returns the key by which a best fit orders gaps; the gap with the least key is the best.
    pub(crate) fn rank(self, gap: Span) -> (u64, u64) {
        match self {
            Edge::Low => (gap.len(), gap.start()),
            Edge::High => (gap.len(), u64::MAX - gap.start()),
        }
    }
}

/// A gap, cut to the bounds of the request, and the place in it that serves the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundGap {
    pub(crate) gap: Span,
    pub(crate) place: Span,
}

impl GapRequest {
    /// Returns the place in `gap`, which lies within the bounds, that serves the request.
    #[inline]
    pub(crate) fn place_in(&self, gap: Span) -> Option<Span> {
        let GapRequest { size, align, offset, .. } = *self;
        let start = match (self.fit, self.edge) {
            (Fit::Lowest, _) | (Fit::Best | Fit::Dynamic, Edge::Low) => {
                gap.lowest_congruent(size, align, offset)
            }
            (Fit::Highest, _) | (Fit::Best | Fit::Dynamic, Edge::High) => {
                gap.highest_congruent(size, align, offset)
            }
        };
        start.map(|start| Span::known(start, start + size))
    }
}
