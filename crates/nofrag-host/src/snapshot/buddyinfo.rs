//! `/proc/buddyinfo`: free blocks of each order in each zone, whatever their type.
//!
//! ```text
//! Node 0, zone    DMA32    252    214    145    102     66     49     42     24      9     17     17
//! ```
//!
//! Also the indices that debugfs computes from the same lists, `extfrag_index` and `unusable_index`:
//!
//! ```text
//! Node 0, zone    DMA32 -1.000 -1.000 -1.000 0.727
//! ```
//!
//! The number of orders depends on the kernel: 11 on x86-64, up to 14 where pages or sections are larger.
//!
//! Source: docs/sources/trace.md#indices.

use nofrag::page::FragmentationIndices;
use serde::Serialize;

use super::lines::{Malformed, ZoneName, numbered, numbers, zone};

/// Most orders of a line, more than any kernel has; a longer line is malformed.
pub const MOST_ORDERS: usize = 32;

/// The free blocks of one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneBlocks {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Free blocks of each order.
    pub blocks: Vec<u64>,
}

impl ZoneBlocks {
    /// Returns the free pages in all blocks; saturates.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let each = self.blocks.iter().zip(0..);
        each.fold(0, |sum: u64, (&blocks, order)| sum.saturating_add(pages_in(blocks, order)))
    }

    /// Returns the number of blocks of `order` into which the free blocks could be cut; saturates.
    /// Source: docs/sources/trace.md#s-o.
    #[must_use]
    pub fn blocks_of(&self, order: u32) -> u64 {
        let larger = self.blocks.iter().zip(0..).skip(order as usize);
        larger
            .fold(0, |sum: u64, (&blocks, each)| sum.saturating_add(pages_in(blocks, each - order)))
    }

    /// Returns the largest order with a free block; `None` if no block is free.
    #[must_use]
    pub fn largest(&self) -> Option<u32> {
        self.blocks.iter().rposition(|&blocks| blocks > 0).map(|order| order as u32)
    }

    /// Returns the fragmentation index and the unusable index of the free memory for blocks of `order`.
    /// Source: docs/sources/trace.md#fragmentation-index, #unusable-index.
    #[must_use]
    pub fn indices(&self, order: u32) -> FragmentationIndices {
        FragmentationIndices::of_blocks(&self.blocks, order)
    }
}

fn pages_in(blocks: u64, order: u32) -> u64 {
    blocks.saturating_mul(1 << order)
}

/// Parses the text of `/proc/buddyinfo`; returns its zones, and the lines that could not be read.
#[must_use]
pub fn buddyinfo(text: &str) -> (Vec<ZoneBlocks>, Vec<Malformed>) {
    by_zone(text, "`Node N, zone NAME` and a count per order", |zone, rest| {
        let blocks = numbers(rest, MOST_ORDERS).filter(|blocks| !blocks.is_empty())?;
        Some(ZoneBlocks { zone, blocks })
    })
}

/// Parses a text with a line for each zone; `read` makes the zone's name and the rest of the line what it says.
fn by_zone<T>(
    text: &str,
    expected: &'static str,
    read: impl Fn(ZoneName, &str) -> Option<T>,
) -> (Vec<T>, Vec<Malformed>) {
    let (mut zones, mut malformed) = (Vec::new(), Vec::new());
    for (line, text) in numbered(text) {
        match zone(text).and_then(|(zone, rest)| read(zone, rest)) {
            Some(zone) => zones.push(zone),
            None => malformed.push(Malformed { line, expected }),
        }
    }
    (zones, malformed)
}

/// One of the kernel's indices for each order of a zone, in thousandths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneIndices {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// The index for each order; -1000 in `extfrag_index` where a request would succeed.
    pub thousandths: Vec<i64>,
}

/// Parses `extfrag_index` or `unusable_index` of debugfs; returns the zones with their index, and the lines that could
/// not be read.
#[must_use]
pub fn indices(text: &str) -> (Vec<ZoneIndices>, Vec<Malformed>) {
    by_zone(text, "`Node N, zone NAME` and an index per order", |zone, rest| {
        let values: Option<Vec<i64>> = rest.split_ascii_whitespace().map(thousandths).collect();
        let thousandths = values.filter(|v| !v.is_empty() && v.len() <= MOST_ORDERS)?;
        Some(ZoneIndices { zone, thousandths })
    })
}

/// Parses an index such as `0.727` or `-1.000` into thousandths. The kernel prints quotient and remainder of a signed
/// division, so that -1 is `0.-01`.
fn thousandths(word: &str) -> Option<i64> {
    let (whole, rest) = word.split_once('.')?;
    let (whole, rest): (i64, i64) = (whole.parse().ok()?, rest.parse().ok()?);
    whole.checked_mul(1000)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_with_their_blocks() {
        let text = "Node 0, zone      DMA      1      0      2 \n\
                    Node 10, zone  HighMem 0 0 0 0 0 0 0 0 0 0 0 0 0 1\n";
        let (zones, malformed) = buddyinfo(text);
        assert_eq!(malformed, []);
        assert_eq!((zones[0].zone.to_string(), zones[0].pages()), ("node 0 DMA".to_owned(), 9));
        assert_eq!((zones[0].blocks_of(1), zones[0].largest()), (4, Some(2)));
        assert_eq!(
            (zones[1].zone.node, zones[1].largest(), zones[1].blocks_of(9)),
            (10, Some(13), 16)
        );
    }

    #[test]
    fn a_damaged_line_costs_only_itself() {
        let (zones, malformed) =
            buddyinfo("Node 0, zone DMA 1 x\n\nNode 0, zone\nNode 0, zone DMA 1\n");
        assert_eq!(zones.len(), 1);
        assert_eq!(malformed.iter().map(|bad| bad.line).collect::<Vec<_>>(), [1, 3]);
        let absurd = format!("Node 0, zone DMA {} {}\n", u64::MAX, u64::MAX);
        let (zones, _) = buddyinfo(&absurd);
        assert_eq!((zones[0].pages(), zones[0].blocks_of(0)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn indices_as_the_kernel_prints_them() {
        let (zones, malformed) =
            indices("Node 0, zone DMA -1.000 0.727 0.-01 -1.-234\nNode 0, zone X 1\n");
        assert_eq!(zones[0].thousandths, [-1000, 727, -1, -1234]);
        assert_eq!(malformed.len(), 1);
    }

    /// For order 9, 1024 single pages have the fragmentation index 998 and the unusable index 1000
    /// (docs/sources/trace.md#oracle-1).
    #[test]
    fn indices_of_a_zone_of_single_pages() {
        let mut blocks = vec![0; 11];
        blocks[0] = 1024;
        let zone = ZoneName { node: 0, name: "Normal".to_owned() };
        let indices = ZoneBlocks { zone, blocks }.indices(9);
        assert_eq!((indices.fragmentation, indices.unusable), (Some(998), 1000));
    }
}
