//! The placements that remember the end of the last search: one search, and the values in which 2002 to 2012 differ.
//!
//! Upwards it is first fit from `free_area_cache`, and at the end of the window once more from the base. Downwards
//! each step is a lookup of its own: the place right below an area, and whatever area lies there.
//!
//! Source: docs/sources/mmap.md#p1a, mmap.md#p1b, mmap.md#p2k, mmap.md#p2a, mmap.md#p2b and mmap.md#p3.

use super::words::{BelowBase, Hook, UNKNOWN, Words};
use super::{View, Window, Wish, walk};
use crate::mmap::layout::Direction;
use crate::mmap::space::MmapCounters;
use crate::ranges::Span;

/// The values in which the cached placements differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheRule {
    memory: Memory,
    pub(super) hook: Hook,
    miss: Miss,
}

/// The facts about earlier searches that the words keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The first hole of any size: placement equals first fit.
    FirstHole,
    /// The end of the last search; holes that it left behind are forgotten.
    Address,
    /// The end of the last search, and the size of the largest hole that was left behind.
    AddressAndHole,
}

/// The next step of a downward search when there is no room right below the cached address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Miss {
    FromTop,
    /// Further down; at the top only when the bottom has been reached.
    Onward,
}

impl CacheRule {
    /// First fit, with a bound on where the first hole lies (mmap.md#p1a).
    pub(super) const FIRST_HOLE: CacheRule =
        CacheRule { memory: Memory::FirstHole, ..CacheRule::FREE_AREA_CACHE };

    /// Next fit, pulled back to the start of what is unmapped below: 2.5.44 to 2.6.12 (mmap.md#p1b).
    pub(super) const FREE_AREA_CACHE: CacheRule =
        CacheRule { memory: Memory::Address, hook: Hook::PullBack, miss: Miss::FromTop };

    /// No kernel's: next fit without a hook at unmapping.
    pub(super) const NEXT_FIT: CacheRule =
        CacheRule { hook: Hook::Idle, ..CacheRule::FREE_AREA_CACHE };

    /// Next fit from the start of the area unmapped last, as the document words it (mmap.md#five-regions).
    pub(super) const LAST_UNMAPPED: CacheRule =
        CacheRule { hook: Hook::Follow, ..CacheRule::FREE_AREA_CACHE };

    /// Returns next fit, pulled back to the neighbour that survives an unmapping (mmap.md#p2k).
    pub(super) const fn coalescing(below_base: BelowBase) -> CacheRule {
        CacheRule { hook: Hook::ToNeighbour(below_base), ..CacheRule::FREE_AREA_CACHE }
    }

    /// Next fit that also remembers the largest hole left behind: 2.6.12-rc4-mm1 and -mm2 (mmap.md#p2a).
    pub(super) const POSTED: CacheRule = CacheRule {
        memory: Memory::AddressAndHole,
        hook: Hook::GrowHole,
        ..CacheRule::FREE_AREA_CACHE
    };

    /// Returns the rule as merged into 2.6.13 to 3.3: the search of [`POSTED`](Self::POSTED), which remembers a hole,
    /// with the hook of [`coalescing`](Self::coalescing), which upwards makes it forget that hole (mmap.md#p2b).
    pub(super) const fn merged(below_base: BelowBase) -> CacheRule {
        CacheRule { hook: Hook::ToNeighbourAndForget(below_base), ..CacheRule::POSTED }
    }

    /// The merged form, but after a miss the search goes on, and an unmapping keeps the hole: 3.4 to 3.7 (mmap.md#p3).
    pub(super) const REPAIRED: CacheRule = CacheRule {
        hook: Hook::ToNeighbour(BelowBase::Ignored),
        miss: Miss::Onward,
        ..CacheRule::merged(BelowBase::Ignored)
    };

    /// Returns the first page of a place for `wish`. The words belong to the layout's own window; in another one the
    /// search is first fit.
    pub(super) fn place(
        self,
        words: &mut Words,
        view: View<'_>,
        wish: &Wish,
        counters: &mut MmapCounters,
    ) -> Option<u64> {
        if wish.window != Window::Usual {
            return walk::first_fit(view, wish, counters);
        }
        let search = Search { rule: self, words, view, wish, counters };
        match (self.memory, wish.direction) {
            (Memory::FirstHole, Direction::Up) => search.first_hole_up(),
            (Memory::FirstHole, Direction::Down) => search.first_hole_down(),
            (_, Direction::Up) => search.up(),
            (_, Direction::Down) => search.down(),
        }
    }
}

/// One search by a cached placement.
struct Search<'a> {
    rule: CacheRule,
    words: &'a mut Words,
    view: View<'a>,
    wish: &'a Wish,
    counters: &'a mut MmapCounters,
}

impl Search<'_> {
    /// Searches upwards by first fit from the remembered first hole of any size, and remembers the first hole seen on
    /// the way.
    fn first_hole_up(self) -> Option<u64> {
        let Search { words, view, wish, counters, .. } = self;
        let bounds = Span::new(words.free_area_cache, view.layout.end.0).ok()?;
        let mut first_hole = None;
        let found = walk::up(view, wish, bounds, counters, |hole| {
            first_hole.get_or_insert(hole.start());
        });
        if let Some(at) = first_hole.or(found) {
            // Alignment may have passed over free pages in front of the answer.
            let below = view.areas.find_below(at).map_or(0, |place| view.areas.span(place).end());
            words.free_area_cache = below.max(bounds.start());
        }
        found
    }

    /// Does the mirror image of [`first_hole_up`](Self::first_hole_up), which no kernel had.
    fn first_hole_down(self) -> Option<u64> {
        let Search { words, view, wish, counters, .. } = self;
        let fallback = wish.fallback(view.layout);
        let Ok(bounds) = Span::new(view.layout.floor.0, words.free_area_cache) else {
            return walk::up(view, wish, fallback?, counters, |_| {});
        };
        let mut first_hole = None;
        let found = walk::down(view, wish, bounds, counters, |hole| {
            first_hole.get_or_insert(hole.end());
        });
        if let Some(end) = first_hole.or(found.map(|at| at + wish.pages)) {
            let above = view.areas.find(end - 1).map(|place| view.areas.span(place).start());
            words.free_area_cache = above.unwrap_or(u64::MAX).min(bounds.end());
        }
        found.or_else(|| walk::up(view, wish, fallback?, counters, |_| {}))
    }

    fn up(mut self) -> Option<u64> {
        let base = self.view.layout.base.0;
        let start = if self.a_known_hole_may_fit() {
            self.words.cached_hole_size = 0;
            base
        } else {
            self.words.free_area_cache
        };
        self.up_from(start).or_else(|| {
            if start == base {
                return None;
            }
            self.words.cached_hole_size = 0;
            self.up_from(base)
        })
    }

    fn up_from(&mut self, start: u64) -> Option<u64> {
        let bounds = Span::new(start, self.view.layout.end.0).ok()?;
        let words = &mut *self.words;
        let at = walk::up(self.view, self.wish, bounds, self.counters, |hole| {
            let pages = hole.end().saturating_sub(self.wish.aligned_from(hole.start()));
            words.cached_hole_size = words.cached_hole_size.max(pages);
        })?;
        words.free_area_cache = at + self.wish.pages;
        Some(at)
    }

    fn down(mut self) -> Option<u64> {
        let top = self.view.layout.top.0;
        if self.a_known_hole_may_fit() {
            *self.words = Words { free_area_cache: top, cached_hole_size: 0 };
        }
        let start = self.words.free_area_cache;
        let found = match self.rule.miss {
            Miss::FromTop => match self.probe(start) {
                Probe::Free(at) => Some(at),
                Probe::Taken { .. } | Probe::Bottom => self.down_from(top),
            },
            Miss::Onward if start == top => self.down_from(top),
            Miss::Onward => self.down_from(start).or_else(|| {
                self.words.cached_hole_size = 0;
                self.down_from(top)
            }),
        };
        if let Some(at) = found {
            self.words.free_area_cache = at;
            return found;
        }
        let fallback = self.wish.fallback(self.view.layout)?;
        *self.words = Words { free_area_cache: top, cached_hole_size: UNKNOWN };
        walk::up(self.view, self.wish, fallback, self.counters, |_| {})
    }

    /// Goes from area to area downwards; each step looks up what lies right below the last one.
    fn down_from(&mut self, start: u64) -> Option<u64> {
        let mut end = start;
        loop {
            match self.probe(end) {
                Probe::Free(at) => return Some(at),
                Probe::Bottom => return None,
                Probe::Taken { area, seen } => {
                    self.words.cached_hole_size = self.words.cached_hole_size.max(seen);
                    end = area;
                }
            }
        }
    }

    /// Looks whether the place right below `end` is free.
    fn probe(&mut self, end: u64) -> Probe {
        // The first versions could return page 0 (`len <= vma->vm_start`); here no mapping gets page 0, and no layout
        // has a floor of 0, so that the strict test of the merged version serves for all.
        let floor = self.view.layout.floor.0;
        let Some(at) = self.wish.aligned_below(end, floor) else { return Probe::Bottom };
        self.counters.visits += 1;
        let Some(place) = self.view.areas.find(at) else { return Probe::Free(at) };
        let area = self.view.areas.span(place).start();
        if at + self.wish.pages <= area {
            Probe::Free(at)
        } else {
            Probe::Taken { area, seen: area.saturating_sub(at) }
        }
    }

    fn a_known_hole_may_fit(&self) -> bool {
        self.rule.memory == Memory::AddressAndHole && self.wish.pages <= self.words.cached_hole_size
    }
}

/// The state of the place right below an address.
enum Probe {
    /// The place is free and begins here.
    Free(u64),
    /// An area that begins at `area` is in the way. The `seen` pages in front of it were seen to be free: the hole may
    /// be larger, as it may begin below the place, and smaller holes on the way are not seen at all.
    Taken { area: u64, seen: u64 },
    /// The place would lie below the window.
    Bottom,
}
