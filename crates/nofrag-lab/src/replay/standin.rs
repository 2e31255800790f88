//! Single pages in the place of a huge page that a process was refused: it asks for them one by one.
//!
//! A recording shows the workload's reactions to *its* kernel's answers. Where a policy answers otherwise, the next
//! faults are others too, and these are known: a process that was refused a huge page asks for up to as many single
//! pages in its place ([`Windows`] finds them among the events). A policy that serves the huge page never sees these
//! requests, and the pages are one block until the last of them is freed ([`StandIns`]). The other way round, single
//! pages take the place of a huge page that only the recorded kernel had.
//!
//! A fault asks twice where its kernel does so: first this node alone, without any insistence, then wherever there is
//! one. A policy that serves the first try is not asked again, and one that refuses it where the recorded kernel did
//! not is asked as that kernel's second tries were.

use std::collections::VecDeque;

use foldhash::HashMap;
use nofrag::page::RequestFlags;
use nofrag::units::Order;

use super::request::{Request, Use};
use super::spans::FrameIndex;

/// The number of a refused request for a huge page.
pub(super) type Ticket = u32;

/// Returns true if single pages take a request's place when it is refused.
pub(super) fn is_huge(request: &Request) -> bool {
    request.order >= Order::PAGEBLOCK && request.used == Use::Movable
}

/// Returns true if a second try may follow where this request is refused.
pub(super) fn is_first_try(request: &Request) -> bool {
    let has = |flag| request.flags.has(flag);
    is_huge(request) && has(RequestFlags::THIS_NODE) && has(RequestFlags::NO_RETRY)
}

/// The last refusal of a huge page to a process, when it asks for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The request is the second try of the same fault.
    JustNow(Ticket),
    /// The row of single pages in its place is over.
    Before(Ticket),
}

/// The link from requests for single pages to the refusal that they follow, by process.
#[derive(Debug, Default)]
pub(super) struct Windows {
    open: HashMap<i32, Window>,
    tickets: Ticket,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    ticket: Ticket,
    left: u64,
    /// True as long as a request for the same order would be the second try of the fault.
    is_first_try: bool,
}

impl Windows {
    /// Notes that a process was refused a huge page; returns the number of the refusal, in whose place its next single
    /// pages come.
    pub(super) fn refused(&mut self, pid: i32, request: &Request) -> Ticket {
        let ticket = self.tickets;
        self.tickets += 1;
        let is_first_try = is_first_try(request);
        self.open.insert(pid, Window { ticket, left: request.order.pages(), is_first_try });
        ticket
    }

    /// Notes that the second try of a fault was refused, too.
    pub(super) fn refused_again(&mut self, pid: i32, ticket: Ticket, order: Order) {
        self.open.insert(pid, Window { ticket, left: order.pages(), is_first_try: false });
    }

    /// Ends the row of single pages in the place of a process's refused huge page, as it asks for a huge one; returns
    /// that refusal, if there is one.
    pub(super) fn end(&mut self, pid: i32, request: &Request) -> Option<Refused> {
        // Mostly no process is refused, and all ask.
        if self.open.is_empty() {
            return None;
        }
        let Window { ticket, left, is_first_try } = self.open.remove(&pid)?;
        let is_second = is_first_try
            && left == request.order.pages()
            && !request.flags.has(RequestFlags::THIS_NODE);
        Some(if is_second { Refused::JustNow(ticket) } else { Refused::Before(ticket) })
    }

    /// Returns the refusal in whose place a process asks for a single page, and counts the page; `None` if there is
    /// none.
    pub(super) fn page(&mut self, pid: i32) -> Option<Ticket> {
        if self.open.is_empty() {
            return None;
        }
        let window = self.open.get_mut(&pid)?;
        let Window { ticket, .. } = *window;
        window.left -= 1;
        if window.left == 0 {
            self.open.remove(&pid);
        }
        Some(ticket)
    }
}

/// Huge pages that a policy served and the recorded kernel did not, and the single pages that belong to them.
///
/// Always true:
/// 1. A frame of `parts` belongs to a ticket of `blocks`, whose `used` is the number of its frames and of its entries
///    in `moved`: 0 only before the first.
#[derive(Debug, Default)]
pub(super) struct StandIns {
    blocks: HashMap<Ticket, Block>,
    /// The ticket of each traced frame.
    parts: HashMap<FrameIndex, Ticket>,
    /// Tickets of the parts that the recorded kernel moved to unknown frames, the part moved first in front.
    moved: VecDeque<Ticket>,
    by_own: HashMap<FrameIndex, Ticket>,
    /// Number of tickets, from the last on, that are of no refusal.
    whole: Ticket,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    own: FrameIndex,
    used: u64,
}

impl StandIns {
    /// Notes that the policy serves `ticket` with the block at `own`.
    pub(super) fn served(&mut self, ticket: Ticket, own: FrameIndex) {
        self.blocks.insert(ticket, Block { own, used: 0 });
        self.by_own.insert(own, ticket);
    }

    /// Takes in the block at `own`, which no request was refused for; returns a ticket for it.
    pub(super) fn served_whole(&mut self, own: FrameIndex) -> Ticket {
        let ticket = Ticket::MAX - self.whole;
        self.whole += 1;
        self.served(ticket, own);
        ticket
    }

    /// Puts the single page at `frame` into the block of `ticket`; returns false if the policy did not serve that.
    pub(super) fn takes(&mut self, ticket: Ticket, frame: FrameIndex) -> bool {
        let Some(block) = self.blocks.get_mut(&ticket) else { return false };
        block.used += 1;
        self.parts.insert(frame, ticket);
        true
    }

    /// Frees the single page at `frame`; returns the block if it was the last page in it.
    pub(super) fn free(&mut self, frame: FrameIndex) -> Option<FrameIndex> {
        let ticket = self.parts.remove(&frame)?;
        self.unused(ticket)
    }

    /// Notes that the recorded kernel moved the single page at `frame`.
    pub(super) fn moved(&mut self, frame: FrameIndex) {
        self.moved.extend(self.parts.remove(&frame));
    }

    /// Frees one of the single pages that were moved: the first, as it is not known which. `None` if there is none;
    /// else the block, if it was the last page in it.
    pub(super) fn free_moved(&mut self) -> Option<Option<FrameIndex>> {
        let ticket = self.moved.pop_front()?;
        Some(self.unused(ticket))
    }

    /// Notes that no more single pages come in the place of `ticket`; returns its block if none lies in it.
    pub(super) fn end(&mut self, ticket: Ticket) -> Option<FrameIndex> {
        let is_unused = self.blocks.get(&ticket)?.used == 0;
        is_unused.then(|| self.remove(ticket))
    }

    /// Returns the block with which the policy served `ticket`.
    pub(super) fn block(&self, ticket: Ticket) -> Option<FrameIndex> {
        self.blocks.get(&ticket).map(|block| block.own)
    }

    /// Forgets the block of `ticket`, in which no single page lies: it is a huge page of its own.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.remove(ticket);
    }

    /// Moves the block at `from`, if it is one of these, to `to`.
    pub(super) fn migrate(&mut self, from: FrameIndex, to: FrameIndex) {
        if let Some(ticket) = self.by_own.remove(&from) {
            self.by_own.insert(to, ticket);
            self.blocks.get_mut(&ticket).expect("law 1").own = to;
        }
    }

    fn unused(&mut self, ticket: Ticket) -> Option<FrameIndex> {
        let block = self.blocks.get_mut(&ticket).expect("law 1");
        block.used -= 1;
        let is_unused = block.used == 0;
        is_unused.then(|| self.remove(ticket))
    }

    fn remove(&mut self, ticket: Ticket) -> FrameIndex {
        let block = self.blocks.remove(&ticket).expect("law 1");
        self.by_own.remove(&block.own);
        block.own
    }

    /// Verifies every law; panics with the number of the broken one.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut used: HashMap<Ticket, u64> = HashMap::default();
        for ticket in self.parts.values().chain(&self.moved) {
            assert!(self.blocks.contains_key(ticket), "law 1");
            *used.entry(*ticket).or_default() += 1;
        }
        for (ticket, block) in &self.blocks {
            assert_eq!(block.used, used.get(ticket).copied().unwrap_or(0), "law 1");
            assert_eq!(self.by_own.get(&block.own), Some(ticket), "law 1");
        }
    }
}
