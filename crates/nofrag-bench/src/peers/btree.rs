//! Code that one writes without a library: the holes in std's B-tree maps, first fit and best fit.

use super::{Aligned, Peer, Space};
use std::collections::{BTreeMap, BTreeSet};

/// First fit: holes by address, scanned from the lowest.
#[derive(Debug)]
pub struct BTreeFirstFit {
    /// Length of each hole, by start.
    holes: BTreeMap<u32, u32>,
}

impl BTreeFirstFit {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> BTreeFirstFit {
        BTreeFirstFit { holes: BTreeMap::from([(0, space.in_32_bits())]) }
    }

    fn take(&mut self, size: u32, align: u32) -> Option<(u32, u32)> {
        let (hole, len, start) = self.holes.iter().find_map(|(&hole, &len)| {
            let start = hole.checked_next_multiple_of(align)?;
            (start.checked_add(size)? <= hole + len).then_some((hole, len, start))
        })?;
        self.holes.remove(&hole);
        if start > hole {
            self.holes.insert(hole, start - hole);
        }
        if start + size < hole + len {
            self.holes.insert(start + size, hole + len - (start + size));
        }
        Some((start, size))
    }
}

impl Peer for BTreeFirstFit {
    type Handle = (u32, u32);

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<(u32, u32)> {
        self.take(size, 1)
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<(u32, u32)> {
        self.take(size, align).into()
    }

    #[inline]
    fn free(&mut self, (start, size): (u32, u32)) -> bool {
        let (mut from, mut to) = (start, start + size);
        if let Some(len) = self.holes.remove(&to) {
            to += len;
        }
        if let Some((&below, len)) = self.holes.range_mut(..start).next_back()
            && below + *len == start
        {
            *len = to - below;
            return true;
        }
        from = from.min(start);
        self.holes.insert(from, to - from).is_none()
    }

    fn start(&self, handle: &(u32, u32)) -> u64 {
        u64::from(handle.0)
    }
}

/// Best fit: holes by address, and by size with the lowest address first among equals.
#[derive(Debug)]
pub struct BTreeBestFit {
    /// Length of each hole, by start.
    by_start: BTreeMap<u32, u32>,
    /// Length, then start, of each hole.
    by_size: BTreeSet<(u32, u32)>,
}

impl BTreeBestFit {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> BTreeBestFit {
        let mut peer = BTreeBestFit { by_start: BTreeMap::new(), by_size: BTreeSet::new() };
        peer.insert(0, space.in_32_bits());
        peer
    }

    fn insert(&mut self, start: u32, len: u32) {
        self.by_start.insert(start, len);
        self.by_size.insert((len, start));
    }

    fn remove(&mut self, start: u32, len: u32) {
        self.by_start.remove(&start);
        self.by_size.remove(&(len, start));
    }

    fn take(&mut self, size: u32, align: u32) -> Option<(u32, u32)> {
        let (len, hole, start) = self.by_size.range((size, 0)..).find_map(|&(len, hole)| {
            let start = hole.checked_next_multiple_of(align)?;
            (start.checked_add(size)? <= hole + len).then_some((len, hole, start))
        })?;
        self.remove(hole, len);
        if start > hole {
            self.insert(hole, start - hole);
        }
        if start + size < hole + len {
            self.insert(start + size, hole + len - (start + size));
        }
        Some((start, size))
    }
}

impl Peer for BTreeBestFit {
    type Handle = (u32, u32);

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<(u32, u32)> {
        self.take(size, 1)
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<(u32, u32)> {
        self.take(size, align).into()
    }

    #[inline]
    fn free(&mut self, (start, size): (u32, u32)) -> bool {
        let (mut from, mut to) = (start, start + size);
        if let Some((&below, &len)) = self.by_start.range(..start).next_back()
            && below + len == start
        {
            self.remove(below, len);
            from = below;
        }
        if let Some(&len) = self.by_start.get(&to) {
            self.remove(to, len);
            to += len;
        }
        self.insert(from, to - from);
        true
    }

    fn start(&self, handle: &(u32, u32)) -> u64 {
        u64::from(handle.0)
    }
}
