//! The passes over all blocks: alias flushes, which may purge idle blocks, and the purge when space runs out
//! (docs/sources/vmap.md#alias-flush and vmap.md#fragmented-blocks).

use super::block::{Block, Body};
use super::index::WALK_CHUNK;
use super::{Queues, queue};
use crate::ranges::Span;
use crate::sync::Guard;
use crate::vmap::blocks::{Aliases, AreaSource};
use crate::vmap::{AliasWalk, KeepBlocks, PurgeQueue};

/// Counts of alias flushes and forced purges.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passes {
    pub(super) alias_flushes: u64,
    pub(super) visited: u64,
    pub(super) most_visited: u64,
}

/// The reason why all blocks are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Stale translations are to be dropped; idle blocks go if the policy says so.
    Aliases,
    /// Space has run out: every idle block goes.
    Forced,
}

impl Queues {
    /// Waits for the caller's turn at flushing aliases; the turn lasts as long as the guard is held.
    pub(in crate::vmap::blocks) fn alias_turn(&self) -> Guard<'_, ()> {
        self.turn.lock()
    }

    /// Looks at the blocks for an alias flush, and leaves the hull of their stale slots to the caller.
    pub(in crate::vmap::blocks) fn flush_aliases<A: AreaSource>(&self, areas: &A) -> Aliases {
        let mut aliases = Aliases::default();
        match self.policy.aliases {
            AliasWalk::Index => {
                self.index.for_each(|number| self.visit(number, Pass::Aliases, &mut aliases, areas))
            }
            AliasWalk::FreeLists => {
                for queue in &self.queues {
                    for (number, _) in queue.walk(&self.table, self.table.places()) {
                        self.visit(number, Pass::Aliases, &mut aliases, areas);
                    }
                }
            }
        }
        // Only now: a block that leaves later was met above; one that has left by now is among the lazy areas, which
        // the caller flushes next.
        let leaving = self.leaving.lock().hull;
        leaving.into_iter().for_each(|hull| aliases.add(hull));
        let mut passes = self.passes.lock();
        passes.alias_flushes += 1;
        passes.note(aliases.visited);
        aliases
    }

    pub(in crate::vmap::blocks) fn purge_idle<A: AreaSource>(&self, areas: &A) {
        let mut aliases = Aliases::default();
        self.index.for_each(|number| self.visit(number, Pass::Forced, &mut aliases, areas));
        self.passes.lock().note(aliases.visited);
    }

    /// Purges one block, or notes the stale slots in it.
    fn visit<A: AreaSource>(&self, number: u64, pass: Pass, aliases: &mut Aliases, areas: &A) {
        let block = queue::record(&self.table, number);
        aliases.visited += 1;
        let mut body = block.body.lock();
        if self.must_go(block, &body, pass) {
            let owner = body.owner;
            self.purge(number, block, &mut body);
            drop(body);
            self.give_back(number, block, owner, areas);
            aliases.returned += 1;
            return;
        }
        let stale = match pass {
            Pass::Forced => None,
            Pass::Aliases if body.stands => body.take_stale(),
            // Another thread is about to give the block back.
            Pass::Aliases => body.stale_bounds(),
        };
        drop(body);
        if let Some((first, end)) = stale {
            let start = self.start_of(number);
            aliases.add(Span::known(start + u64::from(first), start + u64::from(end)));
        }
    }

    /// Returns true if the block is to be purged: it is not used up, and nothing in it is live.
    pub(super) fn must_go(&self, block: &Block, body: &Body, pass: Pass) -> bool {
        let free = block.free();
        if !body.stands || free + body.dirty != self.slots {
            return false;
        }
        match (pass, self.policy.keep) {
            (Pass::Forced, _) | (Pass::Aliases, KeepBlocks::UsedUp) => true,
            (Pass::Aliases, KeepBlocks::QuarterFree) => {
                free < self.policy.geometry.purge_threshold()
            }
        }
    }

    /// Takes an idle block off its list, so that no thread allocates from it or purges it again.
    fn purge(&self, number: u64, block: &Block, body: &mut Body) {
        block.set_free(0);
        body.stands = false;
        body.counts.purged += 1;
        let queue = match self.policy.purge_queue {
            PurgeQueue::OfOwner => body.owner as usize,
            PurgeQueue::OfBucket => self.index.bucket_of(number).unwrap_or(0),
        };
        self.queues[queue].unlink(&self.table, block);
    }
}

impl Passes {
    fn note(&mut self, visited: u64) {
        self.visited += visited;
        self.most_visited = self.most_visited.max(visited.min(WALK_CHUNK as u64));
    }
}
