//! Frees by threads that do not hold the owner: a list that any thread appends to and the holder takes whole.
//!
//! The list runs through the records of the first pages of the runs, so nothing is allocated, and appending is two
//! locked operations: one claims the record (a run that is freed twice is refused, and can never make the list run in a
//! circle), one publishes it. Since the list is only ever taken whole, no place of it can be taken and put back under
//! the eyes of another thread. A claim names the generation of the run: should the run have been freed by other means
//! in between, the holder that takes the list sees that the generations differ, and drops the claim.

use super::atomic::{AtomicU32, AtomicU64, Ordering};

/// The link of each page in the remote list, and beside it the high bits of its claim's generation, for which the link
/// has no room.
pub(super) trait Links {
    fn link(&self, page: u32) -> &AtomicU64;

    /// Returns the bits of the claim's generation above the lowest 32, written by the thread that has claimed the link.
    fn high(&self, page: u32) -> &AtomicU32;
}

/// The run that another thread wants to free, told from earlier ones at the same page by its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) generation: u64,
    /// The run is leased: only the drop of its lease may free it.
    pub(super) leased: bool,
}

/// The link of a page that is on no list. On a list a link holds the claim and the next page.
///
/// Bits 0 to 30 are the next page plus one, or [`END`]; so a link on a list is never zero. Bit 31 is set for a lease,
/// and the lowest 32 bits of the generation stand above.
const ON_NO_LIST: u64 = 0;
const NEXT: u64 = (1 << 31) - 1;
const END: u64 = NEXT;
const LEASED: u64 = 1 << 31;

impl Claim {
    fn link(self, head: u64) -> u64 {
        let next = if head == EMPTY { END } else { head };
        self.generation << 32 | if self.leased { LEASED } else { 0 } | next
    }

    fn of(link: u64, high: &AtomicU32) -> Claim {
        // Relaxed: in `drain` the list stands between. Elsewhere the digits may be those of the claim before: then the
        // claim is taken for one of another run, and dropped when the list is taken and the run is over by then.
        let generation = u64::from(high.load(Ordering::Relaxed)) << 32 | link >> 32;
        Claim { generation, leased: link & LEASED != 0 }
    }
}

/// Returns the claim that waits on a list at `page`, if there is one, by a glance at the page's own link.
#[inline(always)]
pub(super) fn waiting(links: &impl Links, page: u32) -> Option<Claim> {
    // Relaxed: it only tells whether there is a claim to refuse; runs on the list are taken in `drain`.
    let link = links.link(page).load(Ordering::Relaxed);
    (link != ON_NO_LIST).then(|| Claim::of(link, links.high(page)))
}

const EMPTY: u64 = 0;

/// 1. A page is on the list once at most: its link was claimed for it, and is given back when it is taken.
#[derive(Debug)]
pub(super) struct RemoteList {
    /// The page that was appended last plus one, or [`EMPTY`].
    head: AtomicU64,
}

impl RemoteList {
    pub(super) fn new() -> RemoteList {
        RemoteList { head: AtomicU64::new(EMPTY) }
    }

    /// Appends the run that begins at `page`, unless its record is claimed already; then returns that claim.
    pub(super) fn push(&self, links: &impl Links, page: u32, claim: Claim) -> Result<(), Claim> {
        let link = links.link(page);
        // Acquire pairs with the release in `drain` that gave the record back: this claim comes after that one.
        link.compare_exchange(ON_NO_LIST, claim.link(EMPTY), Ordering::Acquire, Ordering::Relaxed)
            .map_err(|link| Claim::of(link, links.high(page)))?;
        // Relaxed: the release below publishes it.
        links.high(page).store((claim.generation >> 32) as u32, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.store(claim.link(head), Ordering::Relaxed);
            // Release pairs with the acquire in `drain`: the thread that takes the list sees the links, and all writes
            // to the run from before it was freed.
            match self.head.compare_exchange_weak(
                head,
                u64::from(page) + 1,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(seen) => head = seen,
            }
        }
    }

    /// Returns true if the list looks empty at a glance.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == EMPTY
    }

    /// Takes the whole list, and hands over its runs one by one.
    pub(super) fn drain(&self, links: &impl Links, mut each: impl FnMut(u32, Claim)) {
        // Acquire pairs with the release in `push`. Each later push is an exchange on the same word, so it continues
        // the releases of the earlier ones.
        let mut head = self.head.swap(EMPTY, Ordering::Acquire);
        while head != EMPTY {
            let page = (head - 1) as u32;
            let link = links.link(page);
            let found = link.load(Ordering::Relaxed);
            let claim = Claim::of(found, links.high(page));
            head = if found & NEXT == END { EMPTY } else { found & NEXT };
            // Release pairs with the acquire of the next claim in `push`.
            link.store(ON_NO_LIST, Ordering::Release);
            each(page, claim);
        }
    }
}
