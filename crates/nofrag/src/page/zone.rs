//! A zone: consecutive frames of one node that serve the same requests.

use alloc::vec::Vec;

use super::frames::{FrameIndex, Frames, Kind, NONE, Tag, buddy};
use super::free_lists::FreeLists;
use super::map::{NodeId, ZoneKind};
use super::migratetype::Migratetype;
use super::policy::Relist;
use crate::units::{Order, PageCount};

/// A zone among all zones of the machine: by node, then lowest kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub(super) u16);

impl ZoneId {
    /// As an index into a table with a row per zone.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A zone's watermarks, in pages, without boost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it callers reclaim themselves.
    pub min: u64,
    /// Below it kswapd is woken.
    pub low: u64,
    /// Above it kswapd sleeps.
    pub high: u64,
    /// Above it pages are promoted from slower nodes.
    pub promo: u64,
}

/// A zone.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) id: ZoneId,
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    /// The first frame, and the one behind the last; holes lie between them.
    pub(super) start: FrameIndex,
    pub(super) end: FrameIndex,
    pub(super) present: PageCount,
    pub(super) managed: PageCount,
    pub(super) lists: FreeLists,
    /// Without boost.
    pub(super) marks: Watermarks,
    /// By how much all marks stand higher (`watermark_boost`).
    pub(super) boost: u64,
    /// `ZONE_BOOSTED_WATERMARK`: kswapd is to be woken once the zone's lock is free.
    pub(super) wake_for_boost: bool,
    /// `lowmem_reserve`: what is kept from requests whose highest zone is of the kind.
    pub(super) reserve: [u64; ZoneKind::COUNT],
    /// Pages in HIGHATOMIC blocks.
    pub(super) reserved_high_atomic: u64,
    /// Whether pages are grouped by type at all.
    pub(super) grouping: bool,
    /// By CPU rank.
    pub(super) per_cpu: Vec<super::per_cpu::PerCpuPages>,
    pub(super) compaction: super::compaction::ZoneCompaction,
}

impl Zone {
    /// Whether the frame lies in the zone's span.
    pub(super) fn has(&self, frame: FrameIndex) -> bool {
        self.start <= frame && frame < self.end
    }

    /// Frees a block into the lists, merging it with its buddies.
    pub(super) fn free_block(&mut self, frames: &mut Frames, frame: FrameIndex, order: Order) {
        let migratetype = frames.block(frame).migratetype;
        let (mut frame, mut order) = (frame, order);
        while let Some(larger) = order.larger() {
            let other = buddy(frame, order);
            let tag = if self.has(other) { frames.tag(other) } else { Tag::ABSENT };
            if tag.kind() != Kind::Free || tag.order() != order {
                break;
            }
            self.lists.remove(frames, other);
            frames.set_tag(frame.max(other), Tag::INSIDE);
            frame = frame.min(other);
            order = larger;
        }
        self.lists.insert(frames, frame, order, migratetype, Relist::Head);
    }

    /// Takes the block of the type that the policy chooses, and splits it.
    pub(super) fn take_smallest(
        &mut self,
        frames: &mut Frames,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<FrameIndex> {
        let frame = self.lists.choose(frames, order, migratetype)?;
        let (found, _) = self.lists.remove(frames, frame);
        self.split(frames, frame, found, order, migratetype);
        frames.set_tag(frame, Tag::new(Kind::Used, order));
        Some(frame)
    }

    /// Cuts the block at `frame`, which is on no list, down to `order`; upper halves go to the head of the type's
    /// lists.
    pub(super) fn split(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
        from: Order,
        to: Order,
        migratetype: Migratetype,
    ) {
        let mut order = from;
        while order > to {
            order = order.smaller().expect("it is larger than another");
            let upper = buddy(frame, order);
            self.lists.insert(frames, upper, order, migratetype, Relist::Head);
        }
        debug_assert!(frame != NONE, "a block begins at a frame");
    }
}
