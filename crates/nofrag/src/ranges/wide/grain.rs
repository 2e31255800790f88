//! Spaces whose numbers are all multiples of a power of two.
//!
//! The holes of a leaf start in one window of 2^31 numbers, and a lane holds lengths below 2^31. Who counts bytes and
//! hands out pages, or spreads windows of devices over 64-bit addresses, soon has few holes in a window, and leaves
//! nearly empty; his long holes are longer than a lane. But all his numbers are multiples of a page. So the tree counts
//! in *grains*: powers of two of which all numbers so far are multiples, and no larger than it takes to bring the
//! space into one window. In a space that fits into a window a grain is one number.
//!
//! The first finer number makes the tree anew, and so does a span that widens the space: O(n), at most 33 times each,
//! as the grain is at least halved or doubled. A request tells how fine its numbers are, and nearly always one of the
//! first does.

use super::GrainBlocks;
use super::leaf::WINDOW_BITS;
use crate::check::Violation;
use crate::ranges::index::{FreeIndex, Refusal, Rejection};
use crate::ranges::{AlignClasses, Config, Counters, OutOfMetadata, Request, Span};

/// The index of holes. See the module's documentation.
///
/// 1. Every hole starts and ends at a multiple of the grain.
/// 2. All holes lie inside `reach`, if that is known.
#[derive(Debug)]
pub(crate) struct WideBlocks {
    blocks: GrainBlocks,
    /// Numbers of a grain, as a base-2 logarithm.
    grain: u32,
    /// All bits of sizes and ends so far.
    seen: u64,
    /// All numbers of the space: bounds that enclose these need not be looked at.
    reach: Option<Span>,
    /// Alignment classes of the configuration.
    classes: AlignClasses,
    /// Holes for which there is room, whatever the grain.
    reserved: usize,
}

impl Default for WideBlocks {
    fn default() -> WideBlocks {
        WideBlocks::new(&Config::default())
    }
}

impl WideBlocks {
    pub(crate) fn new(config: &Config) -> WideBlocks {
        let classes = config.align_classes;
        let blocks = GrainBlocks::new(classes, config.size_index);
        WideBlocks { blocks, grain: 0, seen: 0, reach: None, classes, reserved: 0 }
    }

    /// Makes numbers whose bits are those of `numbers` multiples of the grain. O(1), but O(n) where they are not.
    #[inline]
    fn admit(&mut self, numbers: u64) -> Result<(), OutOfMetadata> {
        self.seen |= numbers;
        if numbers.trailing_zeros() < self.grain { self.regrain() } else { Ok(()) }
    }

    /// Makes the tree anew, if another grain is right.
    #[cold]
    fn regrain(&mut self) -> Result<(), OutOfMetadata> {
        let bits = self.reach.map_or(0, |reach| u64::BITS - (reach.len() - 1).leading_zeros());
        let grain = bits.saturating_sub(WINDOW_BITS).min(self.seen.trailing_zeros());
        if grain == self.grain { Ok(()) } else { self.remake(grain) }
    }

    /// Makes the tree anew, with this grain.
    fn remake(&mut self, grain: u32) -> Result<(), OutOfMetadata> {
        let has_sizes = self.blocks.tree.sizes.is_some();
        let mut blocks = GrainBlocks::new(in_grains(self.classes, grain), has_sizes);
        blocks.reserve(self.reserved)?;
        let mut from = 0;
        while let Some(hole) = self.blocks.hole_from(from) {
            from = hole.end();
            let hole = scaled(hole, self.grain);
            let hole = Span::known(hole.start() >> grain, hole.end() >> grain);
            match blocks.give(hole, &mut Counters::default()) {
                Ok(()) => {}
                Err(Rejection::OutOfMetadata) => return Err(OutOfMetadata),
                Err(Rejection::Overlap) => unreachable!("two holes never overlap"),
            }
        }
        (self.blocks, self.grain) = (blocks, grain);
        Ok(())
    }

    /// Returns true if every range in grains serves a request of this alignment and these bounds.
    #[inline]
    fn is_unbound(&self, request: &Request) -> bool {
        request.align >> self.grain <= 1 && self.is_everywhere(request.within)
    }

    /// Returns a span of numbers in grains, of which its ends are multiples.
    #[inline]
    fn to_grains(&self, span: Span) -> Span {
        Span::known(span.start() >> self.grain, span.end() >> self.grain)
    }

    #[inline]
    fn is_everywhere(&self, within: Span) -> bool {
        within == Span::ALL || self.reach.is_some_and(|reach| within.covers(reach))
    }

    /// Takes a range in the general way.
    #[inline(never)]
    fn alloc_otherwise(
        &mut self,
        request: &Request,
        limit: u64,
        counters: &mut Counters,
    ) -> Result<Span, Refusal> {
        let request = self.request(request)?;
        let span = self.blocks.alloc(&request, limit >> self.grain, counters)?;
        Ok(scaled(span, self.grain))
    }

    /// Returns the request in grains.
    fn request(&mut self, request: &Request) -> Result<Request, Refusal> {
        let within = if self.is_everywhere(request.within) {
            self.admit(request.size)?;
            Span::ALL
        } else {
            self.bounds(request)?
        };
        let (size, align) = (request.size >> self.grain, self.align(request.align));
        Ok(Request { size, align, within, ..*request })
    }

    /// Returns an alignment in grains.
    #[inline]
    fn align(&self, align: u64) -> u64 {
        (align >> self.grain).max(1)
    }

    /// Returns the bounds of a request in grains, whose size is noted.
    fn bounds(&mut self, request: &Request) -> Result<Span, Refusal> {
        let within = self.reach.and_then(|reach| reach.intersection(request.within));
        let mut within = within.ok_or(Refusal::NoFit)?;
        if request.align >> self.grain > 0 {
            // The range starts and ends at multiples of the grain, whatever the bounds.
            let start = within.start().checked_next_multiple_of(1 << self.grain);
            let end = within.end() >> self.grain << self.grain;
            within = start.and_then(|start| Span::new(start, end).ok()).ok_or(Refusal::NoFit)?;
        }
        self.admit(request.size | within.start() | within.end())?;
        Ok(self.to_grains(within))
    }
}

/// Returns the classes that alignments have in grains; none for those that every grain has.
fn in_grains(classes: AlignClasses, grain: u32) -> AlignClasses {
    let mut coarse = [0; 4];
    let exponents = classes.exponents().iter();
    let above = exponents.filter_map(|&exponent| u32::from(exponent).checked_sub(grain));
    let mut count = 0;
    for exponent in above.filter(|&exponent| exponent > 0) {
        coarse[count] = exponent as u8;
        count += 1;
    }
    AlignClasses::new(&coarse[..count]).expect("the exponents still rise")
}

#[inline]
fn scaled(span: Span, by: u32) -> Span {
    Span::known(span.start() << by, span.end() << by)
}

impl FreeIndex for WideBlocks {
    fn extend_space(&mut self, span: Span) {
        self.reach = Some(self.reach.map_or(span, |reach| reach.hull(span)));
        self.seen |= span.start() | span.end();
        // Without memory it stays as it is: a finer grain than need be is right, too.
        if self.seen.trailing_zeros() >= self.grain {
            let _ = self.regrain();
        }
    }

    #[inline]
    fn alloc(
        &mut self,
        request: &Request,
        limit: u64,
        counters: &mut Counters,
    ) -> Result<Span, Refusal> {
        let Request { size, fit, .. } = *request;
        if self.is_unbound(request) && size.trailing_zeros() >= self.grain {
            self.seen |= size;
            let (size, limit) = (size >> self.grain, limit >> self.grain);
            if let Some(span) = self.blocks.cut_anywhere(size, fit, limit, counters) {
                return Ok(scaled(span, self.grain));
            }
        }
        self.alloc_otherwise(request, limit, counters)
    }

    fn take(&mut self, span: Span, counters: &mut Counters) -> Result<(), Refusal> {
        self.admit(span.start() | span.end())?;
        self.blocks.take(self.to_grains(span), counters)
    }

    #[inline]
    fn give(&mut self, span: Span, counters: &mut Counters) -> Result<(), Rejection> {
        self.admit(span.start() | span.end())?;
        self.blocks.give(self.to_grains(span), counters)
    }

    fn hole_from(&self, at: u64) -> Option<Span> {
        Some(scaled(self.blocks.hole_from(at >> self.grain)?, self.grain))
    }

    fn hole_below(&self, end: u64) -> Option<Span> {
        Some(scaled(self.blocks.hole_below(end.div_ceil(1 << self.grain))?, self.grain))
    }

    fn largest(&self) -> u64 {
        self.blocks.largest() << self.grain
    }

    fn largest_aligned(&self, align: u64) -> u64 {
        self.blocks.largest_aligned((align >> self.grain).max(1)) << self.grain
    }

    fn holes(&self) -> usize {
        self.blocks.holes()
    }

    fn reserve(&mut self, holes: usize) -> Result<(), OutOfMetadata> {
        self.blocks.reserve(holes)?;
        self.reserved = self.reserved.max(holes);
        Ok(())
    }

    fn shrink(&mut self) -> Result<(), OutOfMetadata> {
        let reserved = core::mem::take(&mut self.reserved);
        self.remake(self.grain).inspect_err(|_| self.reserved = reserved)
    }

    fn metadata_bytes(&self) -> usize {
        self.blocks.metadata_bytes()
    }

    fn check(&self) -> Result<(), Violation> {
        self.blocks.check()?;
        let holes = [self.hole_from(0), self.hole_below(u64::MAX)];
        for hole in holes.into_iter().flatten() {
            let inside = self.reach.is_none_or(|reach| reach.covers(hole));
            Violation::unless("all holes lie inside the space", hole.start(), inside)?;
        }
        Ok(())
    }
}
