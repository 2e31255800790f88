//! Pages by how long ago they were used: the order in which reclaim takes them.
//!
//! Each class of pages (page cache, slabs) has a list for each zone, and each page on one has a serial number. So the
//! oldest of a node is the oldest of its zones' lists, and a demand for low zones alone does not wade through the pages
//! of high ones. All is O(1) for each page, and O(zones) to find the oldest.

use nofrag::page::{NodeId, ReclaimRequest};

use super::contents::FrameNumber;
use super::links::Links;

/// A class of pages: those of one are taken back in the order of their ages.
pub(crate) type Class = usize;

/// The pages that can be taken back, by age.
#[derive(Debug)]
pub(crate) struct Lru {
    links: Links,
    /// When a frame was put on its list.
    serials: Vec<u32>,
    next_serial: u32,
    /// The node of each zone.
    nodes: Vec<NodeId>,
    classes: usize,
}

impl Lru {
    /// For so many frames of zones, of which each lies in one of `nodes`; all lists are empty.
    pub(crate) fn new(frames: usize, nodes: Vec<NodeId>, classes: usize) -> Lru {
        let links = Links::new(frames, nodes.len() * classes);
        Lru { links, serials: vec![0; frames], next_serial: 0, nodes, classes }
    }

    /// Puts a frame of a zone (by its place among all) that is on no list on one as the youngest.
    pub(crate) fn add(&mut self, class: Class, zone: usize, frame: FrameNumber) {
        self.push(zone * self.classes + class, frame);
    }

    /// Takes a frame off its list; whether it was on one.
    pub(crate) fn remove(&mut self, frame: FrameNumber) -> bool {
        self.links.remove(frame).is_some()
    }

    /// The frame becomes the youngest of its list, if it is on one.
    pub(crate) fn rotate(&mut self, frame: FrameNumber) {
        if let Some(list) = self.links.remove(frame) {
            self.push(list, frame);
        }
    }

    /// What class a frame is of, if it is on a list.
    pub(crate) fn class(&self, frame: FrameNumber) -> Option<Class> {
        self.links.list_of(frame).map(|list| list % self.classes)
    }

    /// Pages of a class that could serve, in blocks.
    pub(crate) fn len(&self, class: Class, wanted: &ReclaimRequest) -> u64 {
        self.lists(class, wanted).map(|list| self.links.len(list)).sum()
    }

    /// The page of a class that was used longest ago, among those that could serve.
    pub(crate) fn oldest(&self, class: Class, wanted: &ReclaimRequest) -> Option<FrameNumber> {
        let now = self.next_serial;
        let oldest = self.lists(class, wanted).filter_map(|list| self.links.oldest(list));
        // Serial numbers wrap; ages do not, as every page is seen long before.
        oldest.max_by_key(|&frame| now.wrapping_sub(self.serials[frame as usize]))
    }

    /// The page of a class that was used longest ago in the highest zone that has one, among those that could serve.
    pub(crate) fn oldest_of_highest(
        &self,
        class: Class,
        wanted: &ReclaimRequest,
    ) -> Option<FrameNumber> {
        self.lists(class, wanted).filter_map(|list| self.links.oldest(list)).last()
    }

    fn lists<'a>(
        &'a self,
        class: Class,
        wanted: &ReclaimRequest,
    ) -> impl Iterator<Item = usize> + use<'a> {
        let (node, below) = (wanted.node, wanted.highest.index() + 1);
        let zones = self.nodes.iter().take(below).enumerate();
        zones.filter(move |(_, of)| **of == node).map(move |(zone, _)| zone * self.classes + class)
    }

    fn push(&mut self, list: usize, frame: FrameNumber) {
        self.links.push(list, frame);
        self.serials[frame as usize] = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
    }

    /// Every frame on a list, from each list's oldest on.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> Vec<FrameNumber> {
        (0..self.nodes.len() * self.classes).flat_map(|list| self.links.frames(list)).collect()
    }
}
