//! The search in bytes, as docs/sources/vmap.md#lowest-match states it, beside the tree's own in pages.
//!
//! The model is given areas and the shape of their tree, nothing else: it recomputes every maximum, knows no
//! [`AlignRule`] but the releases of Linux, and converts from pages to bytes once, at the door.

use super::*;
use crate::ranges::AlignOne;
use alloc::vec::Vec;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const PAGE_SIZE: u64 = 4096;

/// The three versions of the search, each named by the first release that has it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Release {
    /// Releases from 5.2 to 5.15.
    V5_2,
    /// Releases from 5.16 to 5.17.
    V5_16,
    V5_18,
}

const RELEASES: [(Release, AlignRule); 3] = [
    (Release::V5_2, AlignRule::Padded),
    (Release::V5_16, AlignRule::Unpadded),
    (Release::V5_18, AlignRule::PaddedUnlessExact),
];

/// A free area in bytes and the places of its neighbours in the tree.
struct Node {
    start: u64,
    end: u64,
    parent: Option<usize>,
    left: Option<usize>,
    right: Option<usize>,
}

/// A request to `alloc_vmap_area`, in bytes.
#[derive(Clone, Copy)]
struct Asked {
    size: u64,
    align: u64,
    vstart: u64,
    vend: u64,
}

#[derive(Default)]
struct Model {
    nodes: Vec<Node>,
}

impl Model {
    /// Returns the model of a tree: its areas in bytes, linked as they are in the tree.
    fn of(tree: &AugmentedTree) -> Model {
        let mut model = Model::default();
        if let Some(root) = tree.areas.root() {
            model.copy(tree, root, None);
        }
        model
    }

    fn copy(&mut self, tree: &AugmentedTree, id: NodeId, parent: Option<usize>) -> usize {
        let (at, area) = (self.nodes.len(), tree.areas.span(id));
        let (start, end) = (area.start() * PAGE_SIZE, area.end() * PAGE_SIZE);
        self.nodes.push(Node { start, end, parent, left: None, right: None });
        let mut child =
            |side| tree.areas.child(id, side).map(|child| self.copy(tree, child, Some(at)));
        let (left, right) = (child(Side::Left), child(Side::Right));
        (self.nodes[at].left, self.nodes[at].right) = (left, right);
        at
    }

    fn subtree_max(&self, at: Option<usize>) -> u64 {
        at.map_or(0, |at| {
            let Node { start, end, left, right, .. } = self.nodes[at];
            (end - start).max(self.subtree_max(left)).max(self.subtree_max(right))
        })
    }

    fn block_fits(&self, at: usize, asked: Asked) -> Option<u64> {
        let Asked { size, align, vstart, .. } = asked;
        let start = self.nodes[at].start.max(vstart).next_multiple_of(align);
        (start + size <= self.nodes[at].end).then_some(start)
    }

    fn lowest_match(&self, release: Release, mut asked: Asked) -> Option<u64> {
        let Asked { size, align, vstart, vend } = asked;
        let adjust = match release {
            Release::V5_2 => true,
            Release::V5_16 => false,
            Release::V5_18 => !(align <= PAGE_SIZE || vend - vstart == size),
        };
        let length = if adjust { size + align - 1 } else { size };
        let mut at = 0;
        'descend: while at < self.nodes.len() {
            let Node { start, left, right, .. } = self.nodes[at];
            if self.subtree_max(left) >= length && asked.vstart < start {
                at = left.unwrap();
                continue;
            }
            if let Some(found) = self.block_fits(at, asked) {
                return Some(found);
            }
            if self.subtree_max(right) >= length {
                at = right.unwrap();
                continue;
            }
            while let Some(above) = self.nodes[at].parent {
                at = above;
                if let Some(found) = self.block_fits(at, asked) {
                    return Some(found);
                }
                let Node { start, right, .. } = self.nodes[at];
                if self.subtree_max(right) >= length && asked.vstart <= start {
                    if release != Release::V5_2 {
                        asked.vstart = start + 1;
                    }
                    at = right.unwrap();
                    continue 'descend;
                }
            }
            return None;
        }
        None
    }

    /// Returns the first page of the place that the search finds. The upper bound is looked at only after the search: a
    /// place beyond it is a miss.
    fn place(&self, release: Release, asked: Asked) -> Option<u64> {
        let found = self.lowest_match(release, asked)?;
        (found + asked.size <= asked.vend).then_some(found / PAGE_SIZE)
    }
}

/// Returns a tree of up to 200 areas of 1 to 60 pages with gaps of 1 to 40, balanced or grown in random order, and the
/// end of its highest area.
fn random_tree(rng: &mut Pcg64, rule: AlignRule) -> (AugmentedTree, u64) {
    let (count, mut at) = (rng.random_range(1..=200), 0);
    let mut areas: Vec<Span> = Vec::new();
    for _ in 0..count {
        at += rng.random_range(1..=40);
        let len = rng.random_range(1..=60);
        areas.push(Span::sized(at, len).unwrap());
        at += len;
    }
    if rng.random_bool(0.5) {
        return (super::tests::balanced(rule, &areas), at);
    }
    let mut tree = AugmentedTree::new(rule);
    while !areas.is_empty() {
        let area = areas.swap_remove(rng.random_range(0..areas.len()));
        tree.give(area, &mut Counters::default()).unwrap();
    }
    (tree, at)
}

/// Returns a request in bytes, and the same in pages.
fn random_request(rng: &mut Pcg64, top: u64) -> (Asked, Request) {
    let longest = if rng.random_bool(0.2) { 62 } else { 20 };
    let size = rng.random_range(1..=longest);
    // One byte, one page, or 2 to 64 pages.
    let align = match rng.random_range(0..9) {
        0 => 1,
        shift => PAGE_SIZE << (shift - 1).min(6),
    };
    let low: u64 = rng.random_range(0..top);
    let (low, high) = match rng.random_range(0..4) {
        0 => {
            let aligned = low.next_multiple_of((align / PAGE_SIZE).max(1));
            (aligned, aligned + size)
        }
        1 => (low, low + rng.random_range(size..=size + 200)),
        2 => (low, top + size),
        _ => (low, u64::MAX / PAGE_SIZE),
    };
    let align_one = if align == 1 { AlignOne::Byte } else { AlignOne::Number };
    let request = Request::new(size)
        .align((align / PAGE_SIZE).max(1))
        .align_one(align_one)
        .within(Span::new(low, high).unwrap());
    let [size, vstart, vend] = [size, low, high].map(|pages| pages * PAGE_SIZE);
    (Asked { size, align, vstart, vend }, request)
}

/// Sends 20 random requests to each of `trees` random trees per release, and compares the answers with those of the
/// model in bytes. Returns the number of requests, and of those that found a place.
fn check_against_bytes(seed: u64, trees: usize) -> (u64, u64) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let (mut asked_in_all, mut found_in_all) = (0, 0);
    for round in 0..3 * trees {
        let (release, rule) = RELEASES[round % 3];
        let (mut tree, top) = random_tree(&mut rng, rule);
        for _ in 0..20 {
            let (asked, request) = random_request(&mut rng, top);
            let expected = Model::of(&tree).place(release, asked);
            let found = tree.alloc(&request, 0, &mut Counters::default()).ok();
            let found_at = found.map(Span::start);
            assert_eq!(found_at, expected, "seed {seed}, tree {round}, {release:?}: {request:?}");
            asked_in_all += 1;
            found_in_all += u64::from(found.is_some());
            if let Some(found) = found {
                tree.give(found, &mut Counters::default()).unwrap();
            }
        }
    }
    (asked_in_all, found_in_all)
}

#[test]
fn half_a_million_queries_equal_the_rule_in_bytes() {
    let (asked, found) = check_against_bytes(2019, 8_400);
    assert_eq!(asked, 504_000);
    assert!((asked / 4..asked * 3 / 4).contains(&found), "{found} answers test too little");
}
