//! Areas by address: the Linux engines' busy and lazy trees.

use crate::check::Violation;
use crate::cpu::{CpuId, CpuSet};
use crate::lists::grow;
use crate::ranges::OutOfMetadata;
use crate::ranges::Span;
use crate::ranges::red_black::{Link, NodeId, RedBlackTree};
use crate::units::{PageCount, Vpn};
use alloc::vec::Vec;

use super::{Area, AreaKind, AreaState, Guard};

/// One area of a Linux engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) start: u64,
    /// Number of pages, the guard included.
    pub(super) total: u64,
    pub(super) guard: Guard,
    pub(super) kind: AreaKind,
    pub(super) lazy: bool,
    /// The position of the CPU that allocated the area.
    pub(super) cpu: u32,
    /// The node to whose pool the area goes once it is flushed; `None`: it goes to the free ranges.
    pub(super) pool_node: Option<u16>,
    /// Number of areas that were merged into this one.
    pub(super) areas: u32,
    /// The area's tree node in the [`AreaMap`] from which the record was read.
    pub(super) node: Option<NodeId>,
}

impl Record {
    pub(super) fn span(&self) -> Span {
        Span::known(self.start, self.start + self.total)
    }

    pub(super) fn state(&self) -> AreaState {
        if self.lazy { AreaState::Lazy } else { AreaState::Busy }
    }

    pub(super) fn cpu(&self, cpus: &CpuSet) -> CpuId {
        cpus.by_rank(self.cpu as usize).expect("the CPU belonged to the space when it allocated")
    }

    pub(super) fn area(&self, cpus: &CpuSet) -> Area {
        Area {
            start: Vpn(self.start),
            pages: PageCount(self.total - self.guard.pages()),
            guard: self.guard,
            cpu: self.cpu(cpus),
        }
    }
}

/// The facts of an area that the tree does not keep.
#[derive(Clone, Copy, Debug)]
struct Detail {
    cpu: u32,
    areas: u32,
    pool_node: Option<u16>,
    guard: Guard,
    kind: AreaKind,
    lazy: bool,
}

/// Areas by address, in a red-black tree and a list as in Linux; details stand beside the tree, at the node's slot.
///
/// 1. Areas are disjoint.
/// 2. Every node's slot has a place in `details`.
#[derive(Debug)]
pub(super) struct AreaMap {
    tree: RedBlackTree<()>,
    details: Vec<Detail>,
}

impl AreaMap {
    pub(super) const fn new() -> AreaMap {
        AreaMap { tree: RedBlackTree::new(), details: Vec::new() }
    }

    /// Makes room for `more` areas.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), OutOfMetadata> {
        let total = self.tree.len() + more;
        self.tree.reserve(total)?;
        // Slots of removed nodes are used first, so slots never outnumber the most nodes there ever were, plus one.
        let missing = (total + 1).saturating_sub(self.details.len());
        self.details.try_reserve(missing).map_err(|_| OutOfMetadata)
    }

    #[inline]
    pub(super) fn reserve_one(&mut self) -> Result<(), OutOfMetadata> {
        self.tree.reserve_one()?;
        if self.tree.len() + 2 > self.details.capacity() {
            self.reserve(1)?;
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, record: Record) -> Result<NodeId, OutOfMetadata> {
        self.reserve_one()?;
        let link = self.tree.link_for(record.span()).expect("areas never overlap");
        Ok(self.link(link, record))
    }

    fn link(&mut self, link: Link, record: Record) -> NodeId {
        let Record { guard, kind, lazy, cpu, pool_node, areas, .. } = record;
        let id = self.tree.insert(link, record.span());
        let slot = id.slot() as usize;
        let detail = Detail { cpu, areas, pool_node, guard, kind, lazy };
        if slot < self.details.len() {
            self.details[slot] = detail;
        } else {
            grow(&mut self.details, slot + 1, detail).expect("there is room for a record");
        }
        id
    }

    pub(super) fn record(&self, id: NodeId) -> Record {
        let span = self.tree.span(id);
        let Detail { cpu, areas, pool_node, guard, kind, lazy } = self.details[id.slot() as usize];
        Record {
            start: span.start(),
            total: span.len(),
            guard,
            kind,
            lazy,
            cpu,
            pool_node,
            areas,
            node: Some(id),
        }
    }

    /// Adds `record` and merges it with the neighbours that it touches; they lose their identity.
    pub(super) fn insert_merged(&mut self, record: Record) -> Result<(), OutOfMetadata> {
        self.reserve_one()?;
        let link = self.tree.link_for(record.span()).expect("areas never overlap");
        let (below, above) = self.tree.neighbours(link);
        let below = below.filter(|&id| self.tree.span(id).end() == record.start);
        let above = above.filter(|&id| self.tree.span(id).start() == record.span().end());
        let Some(kept) = below.or(above) else {
            self.link(link, record);
            return Ok(());
        };
        let mut span = record.span();
        let mut areas = record.areas;
        for id in [below, above].into_iter().flatten() {
            let other = self.tree.span(id);
            span = Span::known(span.start().min(other.start()), span.end().max(other.end()));
            areas += self.details[id.slot() as usize].areas;
        }
        if let (Some(_), Some(above)) = (below, above) {
            self.tree.remove(above);
        }
        match below {
            Some(_) => self.tree.set_end(kept, span.end()),
            None => self.tree.set_start(kept, span.start()),
        }
        let detail = &mut self.details[kept.slot() as usize];
        *detail = Detail { areas, guard: Guard::None, ..*detail };
        Ok(())
    }

    /// Returns the area that starts at `start`.
    fn node_at(&self, start: u64) -> Option<NodeId> {
        let (id, _) = self.tree.first_ending_above(start);
        id.filter(|&id| self.tree.span(id).start() == start)
    }

    /// Returns the area that starts at `start`.
    pub(super) fn starting_at(&self, start: u64) -> Option<Record> {
        self.node_at(start).map(|id| self.record(id))
    }

    pub(super) fn mark_lazy(&mut self, id: NodeId) {
        self.details[id.slot() as usize].lazy = true;
    }

    pub(super) fn remove_node(&mut self, id: NodeId) {
        self.tree.remove(id);
    }

    pub(super) fn remove(&mut self, start: u64) -> Option<Record> {
        let id = self.node_at(start)?;
        let record = self.record(id);
        self.tree.remove(id);
        Some(record)
    }

    /// Takes the area with the lowest address out.
    pub(super) fn pop_first(&mut self) -> Option<Record> {
        let id = self.tree.first()?;
        let record = self.record(id);
        self.tree.remove(id);
        Some(record)
    }

    /// Returns the area that covers `at`.
    pub(super) fn covering(&self, at: u64) -> Option<Record> {
        let (id, _) = self.tree.first_ending_above(at);
        id.map(|id| self.record(id)).filter(|record| record.start <= at)
    }

    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Record> + '_ {
        core::iter::successors(self.tree.first(), |&id| self.tree.next(id))
            .map(|id| self.record(id))
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.tree.check()
    }
}

impl Default for AreaMap {
    fn default() -> Self {
        AreaMap::new()
    }
}
