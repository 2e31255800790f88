//! The code that virtual machine monitors write: a map of the ranges in use, walked from the top until a gap is large
//! enough.

use super::{AreaSpace, Found, WINDOW};
use std::collections::BTreeMap;

/// A standard map of areas and nothing else.
#[derive(Debug, Default)]
pub struct Walk {
    areas: AreaMap,
    steps: u64,
}

impl AreaSpace for Walk {
    #[inline]
    fn map(&mut self, pages: u64) -> Option<u64> {
        let mut top = WINDOW.end();
        for (&start, area) in self.areas.0.iter().rev() {
            self.steps += 1;
            if top - area.end >= pages {
                break;
            }
            top = start;
        }
        let start = top.checked_sub(pages).filter(|&start| start >= WINDOW.start())?;
        self.areas.insert(start, pages);
        Some(start)
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        self.areas.insert(start, pages);
        true
    }

    #[inline]
    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        self.areas.remove(start, pages)
    }

    #[inline]
    fn find(&self, at: u64) -> Found {
        self.areas.find(at)
    }

    fn steps(&self) -> Option<u64> {
        Some(self.steps)
    }
}

/// Areas by their first page, in the standard library's map.
#[derive(Debug, Default)]
pub(super) struct AreaMap(BTreeMap<u64, Area>);

#[derive(Clone, Copy, Debug)]
struct Area {
    end: u64,
    kind: u32,
}

impl AreaMap {
    /// Stores an area, of one of two kinds in turn.
    #[inline]
    pub(super) fn insert(&mut self, start: u64, pages: u64) {
        let kind = (self.0.len() % 2) as u32;
        self.0.insert(start, Area { end: start + pages, kind });
    }

    /// Removes an area; returns true if it was there.
    #[inline]
    pub(super) fn remove(&mut self, start: u64, pages: u64) -> bool {
        let area = self.0.remove(&start);
        debug_assert!(area.is_none_or(|area| area.kind < 2), "there are two kinds");
        area.is_some_and(|area| area.end == start + pages)
    }

    /// Looks up the area that holds page `at`.
    #[inline]
    pub(super) fn find(&self, at: u64) -> Found {
        let below = self.0.range(..=at).next_back();
        below.filter(|(_, area)| at < area.end).map(|(&start, _)| start).into()
    }
}
