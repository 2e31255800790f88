//! Requests to an allocator, and its configuration.

use super::Span;

/// Rule that chooses among the free ranges that could serve a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Fit {
    #[default]
    Lowest,
    Highest,
    /// A place in a smallest free range, exactly so for an unaligned, unbounded request below 512 numbers. It needs an
    /// [index by size](Config::size_index), which the first such request makes.
    ///
    /// The search is bounded: it looks at O(log n) blocks, whatever lengths the free ranges have. So a range of 512
    /// numbers or more may be a sixteenth larger than the smallest one. A request with alignment or bounds, or one that
    /// only ranges of 2^30 numbers or more can hold, may get any range that serves it: the search looks at 64 or more
    /// of the smallest ranges, then at the lowest place and at a range that is long enough wherever it starts. An
    /// existing place is never missed. Only if the alignment is not yet a [class](AlignClasses), and no range is long
    /// enough wherever it starts, does the search look at all ranges, once.
    Best,
    /// Packs like `Best` while the space is dense and keeps the footprint low while it is sparse. It needs the same
    /// index by size.
    ///
    /// The search is bounded as that of `Best`: it looks at a few of the smallest free ranges, then takes the lowest
    /// place. With an alignment that is not a [class](Config::align_classes), it takes the lowest place if that is
    /// found soon, else the lowest range that is long enough wherever it starts.
    Dynamic,
}

/// A request for `size` consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// Size in numbers; zero is refused.
    pub size: u64,
    /// A power of two of which the first number must be a multiple.
    pub align: u64,
    /// Meaning of an `align` of one: one byte, so no alignment, or one whole number, such as a page.
    pub align_one: AlignOne,
    /// Bounds in which all numbers must lie.
    pub within: Span,
    pub fit: Fit,
}

/// Meaning of an alignment of one, which every number has.
///
/// Linux's callers give alignments in bytes. For vmap a number is a page, and some callers ask for one byte
/// (`vmalloc`), some for one page (`vm_map_ram`, modules). Only Linux's older designs tell them apart
/// (docs/sources/vmap.md#length-rule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AlignOne {
    /// One byte: no alignment is asked for.
    #[default]
    Byte,
    /// One whole number, such as a page.
    Number,
}

impl Request {
    /// Returns a request for `size` numbers anywhere, unaligned, at the lowest address.
    #[must_use]
    pub const fn new(size: u64) -> Request {
        let (align_one, within) = (AlignOne::Byte, Span::ALL);
        Request { size, align: 1, align_one, within, fit: Fit::Lowest }
    }

    /// Returns the same request with this alignment, a power of two.
    #[must_use]
    pub const fn align(self, align: u64) -> Request {
        Request { align, ..self }
    }

    /// Returns the same request with this meaning of an alignment of one.
    #[must_use]
    pub const fn align_one(self, align_one: AlignOne) -> Request {
        Request { align_one, ..self }
    }

    /// Returns the same request, confined to `within`.
    #[must_use]
    pub const fn within(self, within: Span) -> Request {
        Request { within, ..self }
    }

    /// Returns the same request with this fit.
    #[must_use]
    pub const fn fit(self, fit: Fit) -> Request {
        Request { fit, ..self }
    }

    /// Returns how many numbers Linux adds to the size so that any range as long as the sum holds the request aligned.
    /// In bytes this is the alignment minus one. Free ranges hold whole numbers, so it takes one number more than the
    /// size to hold a page aligned to a page in that way, and nothing more for an alignment of one byte.
    #[inline]
    pub(super) const fn padding(&self) -> u64 {
        match (self.align, self.align_one) {
            (1, AlignOne::Byte) => 0,
            (align, _) => align,
        }
    }
}

/// Length of an area that Linux's tree demands before it looks into a subtree (docs/sources/vmap.md#length-rule).
///
/// Linux counts in bytes and demands `size + align - 1` of them. Areas hold whole pages, so in numbers that are pages
/// this is `size + align`, and `size` when the alignment is one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AlignRule {
    /// `size + align`, always (5.2 to 5.15): refuses a request whose bounds are an aligned range of exactly its size,
    /// and one aligned to [one page](AlignOne::Number) in a hole of exactly its size.
    Padded,
    /// `size` (5.16 and 5.17): finds every fit, and visits every misaligned hole on the way.
    Unpadded,
    /// `size + align`, but `size` for an alignment of one or for bounds as long as the request (5.18 and later): misses
    /// fits near the top.
    #[default]
    PaddedUnlessExact,
}

/// The structure that finds free ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Index {
    /// Linux up to 5.1: busy areas in a tree, next fit from the last allocation, O(n). It answers `Fit::Lowest` by its
    /// own rule and refuses other fits.
    ///
    /// Its records are of allocated ranges: `reserve(n)` makes room for n allocated ranges instead of n holes,
    /// `largest` and `stats` are O(n), and looking for a hole also passes the ranges that touch each other on the way.
    CachedScan,
    /// Linux since 5.2: free areas in a red-black tree with the largest size of each subtree. It answers `Fit::Lowest`
    /// by its own rule and refuses other fits.
    AugmentedTree(AlignRule),
    /// nofrag's own: free ranges in a tree of wide blocks that know the largest range below each child. Misses no
    /// existing fit.
    #[default]
    WideBlocks,
}

/// Settings with which a [`RangeAllocator`](super::RangeAllocator) is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    pub index: Index,
    /// Alignments (base-2 logarithms) that [`Index::WideBlocks`] serves in O(log n) from the first request on; others
    /// it learns.
    pub align_classes: AlignClasses,
    /// True if free ranges are indexed by size, too, from the start. Else the first request with [`Fit::Best`] or
    /// [`Fit::Dynamic`] makes that index: it looks at each free range once, and asks for memory, whatever was
    /// [reserved](super::RangeAllocator::reserve).
    ///
    /// The index takes 25 KB, and where free ranges are many, about as much as their own records; each change of a free
    /// range notes its length. An allocator that is never asked for these fits does without it.
    pub size_index: bool,
}

/// Up to four alignments, as base-2 logarithms, for which each block of the index keeps the largest size that fits.
///
/// A request with one of these alignments costs O(log n). One with another alignment costs O(log n + misaligned holes
/// visited) with [`Fit::Lowest`] and [`Fit::Highest`]; [`Fit::Best`] and [`Fit::Dynamic`] say what it costs with them.
///
/// An allocator *learns* the alignments of requests that have passed many misaligned holes, as classes beside the given
/// ones, four in all; with more alignments than that, those of long ago are given up. A learned class is O(log n), too:
/// a misaligned hole is visited once for it. Which places are handed out does not depend on what was learned. So a
/// class need be given only where even the first requests among many holes must be quick. Each class makes changes of
/// the index slower and takes a row of 128 bytes for 600 holes or so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlignClasses {
    exponents: [u8; 4],
    count: u8,
}

impl AlignClasses {
    /// No class: only unaligned requests are O(log n).
    pub const NONE: AlignClasses = AlignClasses { exponents: [0; 4], count: 0 };

    /// Returns the classes of the given exponents, each 1 to 30, ascending and distinct; `None` for other exponents or
    /// more than four.
    #[must_use]
    pub const fn new(exponents: &[u8]) -> Option<AlignClasses> {
        if exponents.len() > 4 {
            return None;
        }
        let mut classes = AlignClasses { exponents: [0; 4], count: exponents.len() as u8 };
        let mut i = 0;
        while i < exponents.len() {
            let rises = i == 0 || exponents[i] > exponents[i - 1];
            if exponents[i] == 0 || exponents[i] > 30 || !rises {
                return None;
            }
            classes.exponents[i] = exponents[i];
            i += 1;
        }
        Some(classes)
    }

    /// Returns these classes and one more, which is not among them, with its number; `None` if they are four.
    pub(super) fn with(mut self, exponent: u8) -> Option<(AlignClasses, usize)> {
        let number = self.exponents().iter().filter(|&&own| own < exponent).count();
        let count = usize::from(self.count);
        let used = self.exponents.get_mut(number..=count)?;
        used.rotate_right(1);
        used[0] = exponent;
        self.count += 1;
        Some((self, number))
    }

    /// Returns these classes without the one of this number.
    pub(super) fn without(mut self, number: usize) -> AlignClasses {
        self.exponents[number..].rotate_left(1);
        self.count -= 1;
        self.exponents[usize::from(self.count)] = 0;
        self
    }

    /// Returns the exponents in ascending order.
    #[must_use]
    pub fn exponents(&self) -> &[u8] {
        &self.exponents[..self.count as usize]
    }
}
