//! Page cache by the time of its last use: the order in which reclaim takes it.
//!
//! Each zone has a list for each generation, and each page on one has a serial number. So the oldest of a node is the
//! oldest of its zones' lists, and a demand for low zones alone does not wade through the pages of high ones. Every
//! operation is O(1) for each page, and O(zones) to find the oldest.
//!
//! With two lists a node has one order of ages. With generations the highest zone of a generation goes first (see
//! [`Walked`]). Guests of 6.12 and 7.2 show it by the pages they hand out by zone (`data/guests-2018`): while files are
//! written and read, memory below 4 GiB is filled once and never taken back. When a process then takes memory, 7.2 uses
//! it up, 6.12 does not.

use nofrag::page::{Lru as Walked, NodeId, ReclaimRequest};

use super::contents::FrameNumber;
use super::links::Links;

/// Generations of page cache: two lists use the first alone.
const OLDEST: usize = 0;
const YOUNGER: usize = 1;
const GENERATIONS: usize = 2;

/// The pages that reclaim can take, by age.
#[derive(Debug)]
pub(crate) struct Lru {
    links: Links,
    /// Serial number of each frame, set when it was put on its list.
    serials: Vec<u32>,
    next_serial: u32,
    nodes: Vec<NodeId>,
    walked: Walked,
    /// The generation of new pages.
    coming: usize,
}

impl Lru {
    /// Creates empty lists for `frames` frames of zones, of which each lies in one of `nodes`.
    pub(crate) fn new(frames: usize, nodes: Vec<NodeId>, walked: Walked) -> Lru {
        let links = Links::new(frames, nodes.len() * GENERATIONS);
        Lru { links, serials: vec![0; frames], next_serial: 0, nodes, walked, coming: OLDEST }
    }

    /// Appends a frame that is on no list to that of a zone (by its place among all), as the youngest.
    pub(crate) fn add(&mut self, zone: usize, frame: FrameNumber) {
        self.push(zone * GENERATIONS + self.coming, frame);
    }

    /// Takes a frame off its list; returns true if it was on one.
    pub(crate) fn remove(&mut self, frame: FrameNumber) -> bool {
        self.links.remove(frame).is_some()
    }

    /// Makes a frame the youngest of its list, if it is on one.
    pub(crate) fn rotate(&mut self, frame: FrameNumber) {
        if let Some(list) = self.links.remove(frame) {
            self.push(list, frame);
        }
    }

    /// Returns true if a frame is on a list.
    pub(crate) fn has(&self, frame: FrameNumber) -> bool {
        self.links.list_of(frame).is_some()
    }

    /// Notes that a process takes memory: where generations age, pages come into a younger one from now on.
    pub(crate) fn process_comes(&mut self) {
        if self.walked == Walked::AgedGenerations {
            self.coming = YOUNGER;
        }
    }

    /// Returns the number of blocks on the lists that could serve a reclaim request.
    pub(crate) fn len(&self, wanted: &ReclaimRequest) -> u64 {
        let of = |generation| self.lists(generation, wanted).map(|list| self.links.len(list));
        of(OLDEST).sum::<u64>() + of(YOUNGER).sum::<u64>()
    }

    /// Returns the number of blocks on all lists.
    pub(crate) fn count(&self) -> u64 {
        (0..self.nodes.len() * GENERATIONS).map(|list| self.links.len(list)).sum()
    }

    /// Returns the first frame of each block on a list.
    pub(crate) fn frames(&self) -> impl Iterator<Item = FrameNumber> {
        (0..self.nodes.len() * GENERATIONS).flat_map(|list| self.links.frames(list))
    }

    /// Returns the page that goes first, among those that could serve a reclaim request.
    pub(crate) fn oldest(&self, wanted: &ReclaimRequest) -> Option<FrameNumber> {
        let oldest_of =
            |generation| self.lists(generation, wanted).filter_map(|list| self.links.oldest(list));
        if self.walked != Walked::TwoLists {
            return oldest_of(OLDEST).last().or_else(|| oldest_of(YOUNGER).last());
        }
        let now = self.next_serial;
        // Serial numbers wrap; ages do not, as every page is seen long before.
        oldest_of(OLDEST).max_by_key(|&frame| now.wrapping_sub(self.serials[frame as usize]))
    }

    fn lists<'a>(
        &'a self,
        generation: usize,
        wanted: &ReclaimRequest,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let (node, below) = (wanted.node, wanted.highest.index() + 1);
        let zones = self.nodes.iter().take(below).enumerate();
        zones
            .filter(move |(_, of)| **of == node)
            .map(move |(zone, _)| zone * GENERATIONS + generation)
    }

    fn push(&mut self, list: usize, frame: FrameNumber) {
        self.links.push(list, frame);
        self.serials[frame as usize] = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
    }

    /// Returns every frame on a list, from each list's oldest on.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> Vec<FrameNumber> {
        (0..self.nodes.len() * GENERATIONS).flat_map(|list| self.links.frames(list)).collect()
    }
}
