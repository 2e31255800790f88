//! The contestants of [`areas`](super) behind one interface, with the least adapter that their documentation asks for.
//!
//! Everyone is given what `munmap` is given, an address and a length, and finds the area by itself. Every area carries
//! a number that says what it is: a set of ranges that forgot what was mapped would be no address space.
//!
//! Those that only search upwards are given mirrored addresses: the lowest place in the mirror is the highest here.

mod gap_tree;
mod halves;
mod nofrag;
mod peers;
mod walk;

pub use self::gap_tree::GapTree;
pub use self::halves::Halves;
pub use self::nofrag::Nofrag;
pub use self::peers::{DbsAllocator, RangeMapGaps, VmAllocator};
pub use self::walk::Walk;

use ::nofrag::ranges::Span;

/// The space that is searched: a 64-bit process from its lowest mappable page to where downward searches begin, in
/// pages.
pub const WINDOW: Span = match Span::new(0x10, 0x7_ffff_7fff) {
    Ok(window) => window,
    Err(_) => unreachable!(),
};

/// Answer to a look-up of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The area that begins at this page.
    Area(u64),
    Hole,
    /// The contestant does not look up addresses.
    Unsupported,
}

impl From<Option<u64>> for Found {
    fn from(start: Option<u64>) -> Found {
        start.map_or(Found::Hole, Found::Area)
    }
}

/// Areas in an address space, in pages. Two that touch stay two.
pub trait AreaSpace {
    /// Finds a gap of `pages` pages and stores an area there. Returns its first page, or `None` if no gap was found.
    fn map(&mut self, pages: u64) -> Option<u64>;

    /// Stores an area at `start`, where a gap is; returns false if it is refused.
    fn map_at(&mut self, start: u64, pages: u64) -> bool;

    /// Removes the area that begins at `start` and has `pages` pages; returns false if it is refused.
    fn unmap(&mut self, start: u64, pages: u64) -> bool;

    /// Looks up the area that holds page `at`.
    fn find(&self, _at: u64) -> Found {
        Found::Unsupported
    }

    /// Returns the number of areas, nodes or blocks that searches have looked at, where they are counted.
    fn steps(&self) -> Option<u64> {
        None
    }

    /// Returns the metadata bytes as the contestant itself reports them; `None` if it reports none.
    fn own_metadata_bytes(&self) -> Option<usize> {
        None
    }
}

/// Returns the start of the range that takes the place of `start..start + pages` when addresses are counted from the
/// other end.
fn mirrored(start: u64, pages: u64) -> u64 {
    WINDOW.start() + WINDOW.end() - (start + pages)
}
