//! The contents of each frame, and the order in which page cache was used.
//!
//! A page comes in as the youngest, and reclaim takes the oldest ([`Lru`]). With two lists the second read in memory
//! makes a page the youngest again; with generations reads change nothing.

use nofrag::page::{Lru as Walked, NodeId, ReclaimRequest};

use super::lru::Lru;

/// A frame's number, from 0.
pub(crate) type FrameNumber = u32;

const KIND_SHIFT: u32 = 29;
const REFERENCED: u32 = 1 << 28;
const DIRTY: u32 = 1 << 27;
const VALUE: u32 = DIRTY - 1;

/// The content that begins at a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Nothing of this owner's.
    Nothing,
    /// A page of a file, by its number among all pages of files.
    Cache(u32),
    /// A slab, by its number among all slabs.
    Slab(u32),
    /// A short-lived unmovable block.
    Transient,
    /// A page of a process, by its place in the process.
    Process(u32),
}

/// A zone as the page cache's lists need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LruZone {
    pub(crate) node: NodeId,
    /// The frame behind the zone's last one; zones follow each other from frame 0 on.
    pub(crate) end: FrameNumber,
}

/// The contents of each frame, and page cache by age.
#[derive(Debug)]
pub(crate) struct Contents {
    /// By frame: kind and number of its [`Holds`], and two bits of page cache (referenced, dirty).
    words: Vec<u32>,
    /// By zone: the frame behind its last one.
    ends: Vec<FrameNumber>,
    lru: Lru,
}

impl Contents {
    /// Creates the contents of zones in which nothing is held.
    pub(crate) fn new(zones: &[LruZone], walked: Walked) -> Contents {
        let frames = zones.last().map_or(0, |zone| zone.end as usize);
        let nodes = zones.iter().map(|zone| zone.node).collect();
        Contents {
            words: vec![0; frames],
            ends: zones.iter().map(|zone| zone.end).collect(),
            lru: Lru::new(frames, nodes, walked),
        }
    }

    #[cfg(test)]
    pub(crate) fn frame_count(&self) -> usize {
        self.words.len()
    }

    pub(crate) fn holds(&self, frame: FrameNumber) -> Holds {
        let word = self.words[frame as usize];
        let value = word & VALUE;
        match word >> KIND_SHIFT {
            0 => Holds::Nothing,
            1 => Holds::Cache(value),
            2 => Holds::Slab(value),
            3 => Holds::Transient,
            _ => Holds::Process(value),
        }
    }

    /// Notes what a frame holds; pages of files come by [`add`](Self::add).
    pub(crate) fn set(&mut self, frame: FrameNumber, holds: Holds) {
        let (kind, value) = match holds {
            Holds::Nothing => (0, 0),
            Holds::Cache(page) => (1, page),
            Holds::Slab(slab) => (2, slab),
            Holds::Transient => (3, 0),
            Holds::Process(place) => (4, place),
        };
        assert!(value <= VALUE, "numbers of pages, slabs and places stay below 2^27");
        self.words[frame as usize] = kind << KIND_SHIFT | value;
    }

    fn zone_of(&self, frame: FrameNumber) -> usize {
        let zone = self.ends.iter().position(|end| frame < *end);
        zone.expect("the allocator hands out frames of its zones")
    }

    /// Puts a page of a file into a frame, as the youngest.
    pub(crate) fn add(&mut self, frame: FrameNumber, page: u32) {
        self.set(frame, Holds::Cache(page));
        self.lru.add(self.zone_of(frame), frame);
    }

    /// Takes a page of a file out of its frame.
    pub(crate) fn remove(&mut self, frame: FrameNumber) {
        self.lru.remove(frame);
        self.set(frame, Holds::Nothing);
    }

    /// Moves a page of a file to another frame, with its bits, as the youngest there.
    pub(crate) fn relocate(&mut self, from: FrameNumber, to: FrameNumber) {
        let word = self.words[from as usize];
        self.remove(from);
        self.words[to as usize] = word;
        self.lru.add(self.zone_of(to), to);
    }

    /// Makes a page the youngest and clears its reference bit.
    pub(crate) fn rotate(&mut self, frame: FrameNumber) {
        self.lru.rotate(frame);
        self.words[frame as usize] &= !REFERENCED;
    }

    /// Notes a read of a page: the second one makes it the youngest.
    pub(crate) fn touch(&mut self, frame: FrameNumber) {
        if self.words[frame as usize] & REFERENCED != 0 {
            self.rotate(frame);
        } else {
            self.words[frame as usize] |= REFERENCED;
        }
    }

    pub(crate) fn is_dirty(&self, frame: FrameNumber) -> bool {
        self.words[frame as usize] & DIRTY != 0
    }

    pub(crate) fn set_dirty(&mut self, frame: FrameNumber) {
        self.words[frame as usize] |= DIRTY;
    }

    pub(crate) fn set_clean(&mut self, frame: FrameNumber) {
        self.words[frame as usize] &= !DIRTY;
    }

    /// Notes that a process takes memory: where generations age, pages of files come into a younger one from now on.
    pub(crate) fn process_comes(&mut self) {
        self.lru.process_comes();
    }

    /// Returns the number of pages of files that could serve a reclaim request.
    pub(crate) fn cached(&self, wanted: &ReclaimRequest) -> u64 {
        self.lru.len(wanted)
    }

    /// Returns the page of a file that goes first, among those that could serve a reclaim request.
    pub(crate) fn oldest(&self, wanted: &ReclaimRequest) -> Option<FrameNumber> {
        self.lru.oldest(wanted)
    }

    /// Returns every frame on a list, from each list's oldest on.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> Vec<FrameNumber> {
        self.lru.listed()
    }
}
