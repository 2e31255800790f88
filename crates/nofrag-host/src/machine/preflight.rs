//! The answer to whether so many blocks of a size can be had, before a program asks for them: [`survey`] computes a
//! [`Preflight`], which is also the schema of `nofrag preflight --json`.
//!
//! *Now* is what the watermarks let go from the free lists, as a process would take it. What compaction, and dropping
//! page cache before it, would give lies in a [`Range`]: its upper end assumes that every page that may be moved is
//! moved, its lower end is what a pass of compaction leaves, foreseen from each pageblock ([`super::pass`]), less what
//! that may be wrong by. A need between the two is [`Answer::Uncertain`].

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::Serialize;

use super::huge::{self, Basis, Blocks, ZoneHuge};
use super::pageblocks::PinnedBy;
use super::pages::of_pages;
use super::pass;
use super::verdict::held_by;
use super::zones::pages;
use super::{Host, Sources};
use crate::snapshot::{Snapshot, ZoneBlocks, ZoneName};
use crate::source::Missing;

/// A number of blocks of one size: `200x32M`, `hugepages=2048`, `order=10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub count: u64,
    pub size: BlockSize,
}

/// The size of a block that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    Bytes(u64),
    Order(u32),
    /// A huge page of the host's usual size.
    HugePage,
}

/// A text that names no need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a number of blocks: write 200x32M for blocks of a size (K, M or G), hugepages=2048, order=10, or 16xorder=4"
)]
pub struct NoNeed;

impl FromStr for Need {
    type Err = NoNeed;

    fn from_str(text: &str) -> Result<Need, NoNeed> {
        let count = |text: &str| text.parse().ok().filter(|&count| count > 0).ok_or(NoNeed);
        if let Some(pages) = text.strip_prefix("hugepages=") {
            return Ok(Need { count: count(pages)?, size: BlockSize::HugePage });
        }
        let (times, size) = match text.split_once('x') {
            Some((times, size)) if !times.is_empty() => (count(times)?, size),
            _ => (1, text),
        };
        let size = match size.strip_prefix("order=").or_else(|| size.strip_prefix("order")) {
            Some(order) => {
                let order = order.parse().ok().filter(|&order| order <= MOST_ORDER);
                BlockSize::Order(order.ok_or(NoNeed)?)
            }
            None => BlockSize::Bytes(bytes(size).ok_or(NoNeed)?),
        };
        Ok(Need { count: times, size })
    }
}

/// The largest order that can be asked for: the bytes of a block have a number.
const MOST_ORDER: u32 = 47;

/// Reads a size such as `32M`, `2MiB` or `4096`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim_end_matches('B').trim_end_matches('i') {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    let number: u64 = text[..digits].parse().ok()?;
    number.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

/// The answer to a need, and the figures that it rests on.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preflight {
    pub host: Host,
    pub answer: Answer,
    /// Number of blocks that are needed.
    pub count: u64,
    /// Bytes of a block; those of the order, where a size is none of a block.
    pub bytes: u64,
    /// The order of a block.
    pub order: u32,
    /// The largest order of which this kernel keeps blocks; `null` where the lists are not known.
    pub most_order: Option<u32>,
    /// The only node that may serve the need; `null` for any.
    pub node: Option<u32>,
    /// The nodes of the host.
    pub nodes: BTreeSet<u32>,
    /// Pages of the size that are free and not promised in a pool of hugetlbfs.
    pub pooled: u64,
    /// Blocks that can be had now.
    pub now: u64,
    /// Blocks that could be had after compaction.
    pub after_compaction: Range,
    /// Blocks that could be had after page cache is dropped, and compaction.
    pub after_reclaim: Range,
    /// Source of the two ranges.
    pub basis: Basis,
    /// The uses that keep pageblocks from becoming whole, most pageblocks first; empty unless each frame was read.
    pub held_by: Vec<PinnedBy>,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
}

/// A number of blocks: its bounds, and a forecast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Range {
    /// The number that can be counted on: the forecast less what it may be wrong by, and no less than now.
    pub least: u64,
    /// Upper bound.
    pub most: u64,
    /// The number that kernels are likely to give, for blocks of a pageblock's order after compaction; `null` where it
    /// is uncertain, and after page cache is dropped, where kernels gave other numbers too often (`data/states`).
    pub forecast: Option<u64>,
}

impl Range {
    fn and(self, more: Range) -> Range {
        Range {
            least: self.least.saturating_add(more.least),
            most: self.most.saturating_add(more.most),
            forecast: None,
        }
    }
}

/// The answer to a need, the better first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Yes,
    AfterCompaction,
    AfterReclaim,
    /// The least that kernels gave is too little, and the upper bound is not.
    Uncertain,
    No,
    /// The kernel's page allocator keeps no blocks so large, whatever is free.
    TooLarge,
}

/// Computes the answer to `need` from the files that were read. Pure.
#[must_use]
pub fn survey(sources: &Sources, need: Need, node: Option<u32>) -> Preflight {
    let snapshot = Snapshot::parse(&sources.files);
    let page_bytes = snapshot.page_bytes();
    let order = match need.size {
        BlockSize::HugePage => snapshot.pageblock_order(),
        BlockSize::Order(order) => order,
        BlockSize::Bytes(bytes) => bytes.div_ceil(page_bytes).next_power_of_two().ilog2(),
    };
    let bytes = pages(1, order).saturating_mul(page_bytes);
    let most_order = snapshot.buddy.iter().map(|zone| zone.blocks.len()).max();
    let most_order = most_order.and_then(|orders| u32::try_from(orders).ok()?.checked_sub(1));
    let nodes: BTreeSet<u32> = snapshot.buddy.iter().map(|zone| zone.zone.node).collect();
    let is_asked = |zone: &ZoneName| node.is_none_or(|node| zone.node == node);
    let mut zones = huge::outlook(sources.frames.as_ref(), &snapshot);
    zones.retain(|(zone, _)| is_asked(&zone.zone));
    let basis = zones.iter().map(|(_, basis)| *basis).max().unwrap_or(Basis::FreePages);
    let asked = snapshot.buddy.iter().filter(|blocks| is_asked(&blocks.zone));
    let [now, mut compacted, mut reclaimed] = asked
        .map(|blocks| outlook(&snapshot, blocks, &zones, order))
        .fold([Range::default(); 3], |sums, more| std::array::from_fn(|at| sums[at].and(more[at])));
    if order == snapshot.pageblock_order() {
        compacted.forecast = Blocks::of(&zones).compacted();
        compacted.least = compacted.least.max(compacted.forecast.map_or(0, certain));
        reclaimed.least = reclaimed.least.max(compacted.least);
    }
    let now = now.least;
    let pool = sources.pools.iter().find(|pool| pool.bytes == bytes);
    let pooled =
        pool.filter(|_| node.is_none()).map_or(0, |it| it.free.saturating_sub(it.reserved));
    let left = need.count.saturating_sub(pooled);
    let answer = match most_order {
        _ if left <= now => Answer::Yes,
        Some(most) if most < order => Answer::TooLarge,
        _ if left <= compacted.least => Answer::AfterCompaction,
        _ if left <= reclaimed.least => Answer::AfterReclaim,
        _ if left <= reclaimed.most => Answer::Uncertain,
        _ => Answer::No,
    };
    let largest = zones.iter().max_by_key(|(zone, _)| zone.blocks.total);
    Preflight {
        host: super::host(sources, &snapshot),
        answer,
        count: need.count,
        bytes,
        order,
        most_order,
        node,
        nodes,
        pooled,
        now,
        after_compaction: compacted,
        after_reclaim: reclaimed,
        basis,
        held_by: largest
            .map_or_else(Vec::new, |(zone, _)| held_by(sources.frames.as_ref(), &zone.zone)),
        missing: of_pages(super::missing(sources, &snapshot)),
    }
}

/// Returns the blocks of an order in a zone: now, after compaction, and after page cache is dropped as well.
fn outlook(
    snapshot: &Snapshot<'_>,
    blocks: &ZoneBlocks,
    zones: &[(ZoneHuge, Basis)],
    order: u32,
) -> [Range; 3] {
    let now = snapshot.obtainable(&blocks.zone).get(order as usize).copied().unwrap_or(0);
    let range = |most| Range { least: now, most, forecast: None };
    let Some((zone, _)) = zones.iter().find(|(zone, _)| zone.zone == blocks.zone) else {
        // Without zoneinfo the size of the page cache is not known.
        let most = blocks.pages().checked_shr(order).unwrap_or(0).max(now);
        return [range(now), range(most), range(most)];
    };
    let above = i64::from(order) - i64::from(snapshot.pageblock_order());
    let of = zone.blocks;
    let outlook = Outlook { now, whole: of.now, above };
    [
        range(now),
        outlook.after(of.compacted(), of.after_compaction, of.room),
        outlook.after(of.reclaimed(), of.after_reclaim, of.room_with_cache),
    ]
}

/// Returns the blocks that can be counted on where so many are forecast.
fn certain(blocks: u64) -> u64 {
    blocks.saturating_sub(pass::tolerance(blocks))
}

/// The blocks of an order in a zone.
struct Outlook {
    now: u64,
    /// Blocks of a pageblock's order that can be had now.
    whole: u64,
    /// The order less that of a pageblock.
    above: i64,
}

impl Outlook {
    /// Returns the number of blocks where at most `most` pageblocks can be whole, and memory is free for `room`. Blocks
    /// below a pageblock also come from pageblocks that never are whole, as many as there is memory for.
    fn after(&self, forecast: Option<u64>, most: u64, room: u64) -> Range {
        let least = forecast.map_or(0, certain).max(self.whole);
        let shift = u32::try_from(self.above.unsigned_abs()).unwrap_or(u32::MAX);
        let (least, most) = match self.above {
            0.. => {
                let cut = |blocks: u64| blocks.checked_shr(shift).unwrap_or(0);
                (cut(least), cut(most))
            }
            _ => {
                let gained = pages(least.saturating_sub(self.whole), shift);
                (self.now.saturating_add(gained), pages(room.saturating_add(1), shift))
            }
        };
        Range { least: least.max(self.now), most: most.max(self.now), forecast: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Files;

    #[test]
    fn needs_as_people_write_them() {
        let of = |count, size| Ok(Need { count, size });
        let cases = [
            ("200x32M", of(200, BlockSize::Bytes(32 << 20))),
            ("1x1GiB", of(1, BlockSize::Bytes(1 << 30))),
            ("2M", of(1, BlockSize::Bytes(2 << 20))),
            ("hugepages=2048", of(2048, BlockSize::HugePage)),
            ("order=10", of(1, BlockSize::Order(10))),
            ("16xorder=4", of(16, BlockSize::Order(4))),
        ];
        for (text, need) in cases {
            assert_eq!(text.parse(), need, "{text}");
        }
        let none =
            ["", "x", "0x2M", "2x", "x2M", "hugepages=", "order=48", "2T", "-1x2M", "99999999999G"];
        for text in none {
            assert_eq!(text.parse::<Need>(), Err(NoNeed), "{text}");
        }
    }

    /// Surveys a host of 2,000 pageblocks; free are 300 blocks of order 10 and 51,200 single pages.
    fn answer(need: &str, more: &[(&str, &str)]) -> Preflight {
        let mut files = Files::default();
        let mut add = |name: &str, text: &str| files.insert(name, text.as_bytes().to_vec());
        add("buddyinfo", "Node 0, zone Normal 51200 0 0 0 0 0 0 0 0 0 300\n");
        add(
            "zoneinfo",
            "Node 0, zone Normal\n  pages free 358400\n  min 0\n  low 0\n  high 0\n  spanned 1024000\n  present \
             1024000\n  managed 1024000\n  protection: (0)\n  nr_zone_active_file 102400\n  nr_zone_inactive_file 0\n  \
             start_pfn: 0\n",
        );
        more.iter().for_each(|(name, text)| add(name, text));
        survey(&Sources::of_files(files), need.parse().unwrap(), None)
    }

    #[test]
    fn the_answer_says_what_has_to_be_done_first() {
        const TYPES: &str = "Page block order: 9\nPages per block:  512\n\n\
            Free pages count per migrate type at order 0 1 2 3 4 5 6 7 8 9 10\n\
            Node 0, zone Normal, type Unmovable 0 0 0 0 0 0 0 0 0 0 0\n\
            Node 0, zone Normal, type Movable 51200 0 0 0 0 0 0 0 0 0 300\n\n\
            Number of blocks type Unmovable Movable\nNode 0, zone Normal 100 1900\n";
        let typed = |need| answer(need, &[("pagetypeinfo", TYPES)]);
        assert_eq!(typed("hugepages=600").answer, Answer::Yes);
        assert_eq!(typed("order=10").answer, Answer::Yes);
        assert_eq!(typed("301xorder=10").answer, Answer::Uncertain);
        assert_eq!(typed("hugepages=601").answer, Answer::Uncertain);
        assert_eq!(typed("hugepages=900").answer, Answer::Uncertain);
        assert_eq!(typed("hugepages=901").answer, Answer::No);
        let most = typed("hugepages=601");
        assert_eq!((most.after_compaction.most, most.after_reclaim.most), (700, 900));
        assert_eq!((most.now, most.basis), (600, Basis::PageblockTypes));
        assert_eq!(typed("1xorder=11").answer, Answer::TooLarge);
        assert_eq!(typed("1x3M").order, 10, "the next larger block");
        assert_eq!(answer("hugepages=601", &[]).answer, Answer::Uncertain, "without types");
        let small = typed("22400x64K");
        assert_eq!((small.answer, small.now), (Answer::Uncertain, 19_200), "singles join, or not");
    }
}
