//! Placements: the rules for the place of a mapping.
//!
//! A placement is a search, and for the cached ones two words of memory with a life cycle: see `words`. Walks look at
//! areas one by one, as the kernels up to 3.7 did, and count their *visits*: one pass of first fit's loop, or one
//! lookup of a cached policy that goes downwards. Searches of gaps descend the index and count blocks.
//!
//! Files: `walk` (first fit), `words` (the words that some remember, and the changes of them by unmapping), `cached`
//! (the placements that remember), `gaps` (those that descend an index of gaps), `reference` (those that no kernel
//! has), `two_ended` (ours).
//!
//! A search that goes downwards and fails tries the space from the base upwards, as Linux does: it reaches the space
//! above `mmap_base` in no other way.
//!
//! The names P0 to P5T are those of docs/sources/mmap.md, where each rule stands with its origin, under mmap.md#p0 and
//! so on.

mod cached;
mod gaps;
mod reference;
mod two_ended;
mod walk;
mod words;

use self::cached::CacheRule;
use self::gaps::Guards;
use self::two_ended::Boundary;
use self::words::{BelowBase, Hook, Words};
use super::areas::Areas;
use super::layout::{Direction, Layout};
use super::space::MmapCounters;
use crate::errors::errors;
use crate::ranges::{AlignClasses, Config, GapPlace, Span};
use crate::units::PageCount;

/// The rule by which a mapping without an address gets one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// P0: the first hole from the start of the window that fits (Linux 2.4).
    FirstFit,
    /// P1a: first fit from the first hole of any size (Molnar, October 2002).
    FirstHole,
    /// P1b: next fit from the last mapping, pulled back by each unmapping (2.5.44 to 2.6.12).
    FreeAreaCache,
    /// P2k: next fit, pulled back by each unmapping to the end of the area below the unmapped range (Chen, May 2005).
    CoalescingUnmap,
    /// P2k if it minded the base: an area that ends below the base pulls back to the base. P2k itself takes the lowest
    /// unmapping of a static program for one outside the window, and does nothing.
    CoalescingUnmapClamped,
    /// P2a: next fit that also remembers the largest hole below the cached address (Wander, as in 2.6.12-rc4-mm2).
    CachedHoleSizePosted,
    /// P2b: P2a's search with P2k's hook, as merged (Wander and Chen, 2.6.13 to 3.3).
    CachedHoleSize,
    /// P2b if it minded the base, as [`CoalescingUnmapClamped`](Self::CoalescingUnmapClamped).
    CachedHoleSizeClamped,
    /// P3: P2b repaired (3.4 to 3.7): a downward search goes on from the cached address, and an unmapping keeps the
    /// remembered hole.
    CachedHoleSizeRepaired,
    /// Next fit from the start of the area unmapped last, as the document of 2005 words it
    /// (docs/sources/mmap.md#five-regions).
    LastUnmapped,
    /// P4: exact first fit in a tree of gaps, with padded alignment (3.8 to 6.0).
    GapTree,
    /// P5: exact first fit in a maple tree, with padded alignment; huge pages treated as told, guard gaps not looked at
    /// (6.1 and 6.2).
    MapleTree(HugePages),
    /// P5 with a second try where a guard gap is in the way (6.3 and later: docs/sources/mmap.md#guard-retry).
    /// Downwards there is no place, wherever else one may be, once the search comes to a stack whose guard gap reaches
    /// address 0 (mmap.md#guard-down-to-zero).
    MapleTreeGuarded(HugePages),
    /// The smallest gap that fits.
    BestFit,
    /// The largest gap that fits.
    WorstFit,
    /// Next fit without a hook at unmapping.
    NextFit,
    /// First fit from the end where the direction begins, all sizes mixed; multiples of a huge page are aligned to one.
    ExactAligned,
    /// As [`ExactAligned`](Self::ExactAligned), in the gap of least leftover.
    ExactAlignedBest,
    /// As [`ExactAligned`](Self::ExactAligned), with small requests where they destroy the fewest whole huge pages.
    FewestLostUnits,
    /// Multiples of a huge page from the top, aligned, the rest from the bottom, each first fit.
    TwoEndedFirst,
    /// nofrag's own: two classes of sizes grow towards each other from the ends of the window.
    #[default]
    TwoEnded,
}

/// The mappings that Linux aligns to huge pages of its own accord (docs/sources/mmap.md#p5t): of those below, the ones
/// of a 64-bit task (a space that ends above 4 GiB) that come without hint or alignment, in whatever window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePages {
    /// No mapping (Linux up to 6.6).
    Ignored,
    /// Anonymous ones of at least a huge page (6.7 to 6.11).
    AllSizes,
    /// Anonymous ones whose length is a multiple of a huge page (6.12 and later).
    Multiples,
}

/// A placement and the name of its rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementPreset {
    /// The name of the rule set that the request resolved to.
    pub name: &'static str,
    pub placement: Placement,
}

/// No rule set has this name, or the version is older than all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPlacement;

/// Placements that were never in a release (docs/sources/mmap.md#p1a, mmap.md#p2k, mmap.md#p2a), or are no kernel's
/// (mmap.md#references, mmap.md#two-ended), by name.
static NAMED: [PlacementPreset; 12] = [
    PlacementPreset { name: "molnar-2002", placement: Placement::FirstHole },
    PlacementPreset { name: "chen-2005", placement: Placement::CoalescingUnmap },
    PlacementPreset { name: "wander-2005", placement: Placement::CachedHoleSizePosted },
    PlacementPreset { name: "last-unmapped", placement: Placement::LastUnmapped },
    PlacementPreset { name: "best-fit", placement: Placement::BestFit },
    PlacementPreset { name: "worst-fit", placement: Placement::WorstFit },
    PlacementPreset { name: "next-fit", placement: Placement::NextFit },
    PlacementPreset { name: "exact-aligned", placement: Placement::ExactAligned },
    PlacementPreset { name: "exact-aligned-best", placement: Placement::ExactAlignedBest },
    PlacementPreset { name: "fewest-lost-units", placement: Placement::FewestLostUnits },
    PlacementPreset { name: "two-ended-first", placement: Placement::TwoEndedFirst },
    PlacementPreset { name: "nofrag", placement: Placement::TwoEnded },
];

/// Linux's rule sets, each with the version in which it began, ascending; before 3.0 the third number counts, after it
/// there is none. The versions are those of the headings in docs/sources/mmap.md#placements, and of
/// mmap.md#guard-retry.
static RULE_SETS: [((u32, u32, u32), PlacementPreset); 9] = [
    ((2, 4, 0), PlacementPreset { name: "linux-2.4", placement: Placement::FirstFit }),
    ((2, 5, 44), PlacementPreset { name: "linux-2.5.44", placement: Placement::FreeAreaCache }),
    ((2, 6, 13), PlacementPreset { name: "linux-2.6.13", placement: Placement::CachedHoleSize }),
    (
        (3, 4, 0),
        PlacementPreset { name: "linux-3.4", placement: Placement::CachedHoleSizeRepaired },
    ),
    ((3, 8, 0), PlacementPreset { name: "linux-3.8", placement: Placement::GapTree }),
    (
        (6, 1, 0),
        PlacementPreset { name: "linux-6.1", placement: Placement::MapleTree(HugePages::Ignored) },
    ),
    (
        (6, 3, 0),
        PlacementPreset {
            name: "linux-6.3",
            placement: Placement::MapleTreeGuarded(HugePages::Ignored),
        },
    ),
    (
        (6, 7, 0),
        PlacementPreset {
            name: "linux-6.7",
            placement: Placement::MapleTreeGuarded(HugePages::AllSizes),
        },
    ),
    (
        (6, 12, 0),
        PlacementPreset {
            name: "linux-6.12",
            placement: Placement::MapleTreeGuarded(HugePages::Multiples),
        },
    ),
];

impl Placement {
    /// Returns the rule set for `name`: one of the named ones, or `linux-X.Y`, which resolves to the newest rule set
    /// not newer than that version.
    ///
    /// # Errors
    /// [`UnknownPlacement`] for other names and for versions older than the oldest rule set.
    pub fn preset(name: &str) -> Result<PlacementPreset, UnknownPlacement> {
        if let Some(named) = NAMED.iter().find(|preset| preset.name == name) {
            return Ok(*named);
        }
        let version =
            name.strip_prefix("linux-").and_then(parse_version).ok_or(UnknownPlacement)?;
        let newest = RULE_SETS.iter().rev().find(|(since, _)| *since <= version);
        newest.map(|(_, preset)| *preset).ok_or(UnknownPlacement)
    }

    /// Returns all presets: Linux's, oldest first, then the others, ours last.
    pub fn presets() -> impl Iterator<Item = PlacementPreset> {
        RULE_SETS.iter().map(|(_, preset)| *preset).chain(NAMED)
    }
}

impl Placement {
    /// Returns the values by which a cached placement searches and remembers; `None` for all other placements.
    fn cache_rule(self) -> Option<CacheRule> {
        match self {
            Placement::FirstHole => Some(CacheRule::FIRST_HOLE),
            Placement::FreeAreaCache => Some(CacheRule::FREE_AREA_CACHE),
            Placement::CoalescingUnmap => Some(CacheRule::coalescing(BelowBase::Ignored)),
            Placement::CoalescingUnmapClamped => Some(CacheRule::coalescing(BelowBase::Clamped)),
            Placement::CachedHoleSizePosted => Some(CacheRule::POSTED),
            Placement::CachedHoleSize => Some(CacheRule::merged(BelowBase::Ignored)),
            Placement::CachedHoleSizeClamped => Some(CacheRule::merged(BelowBase::Clamped)),
            Placement::CachedHoleSizeRepaired => Some(CacheRule::REPAIRED),
            Placement::LastUnmapped => Some(CacheRule::LAST_UNMAPPED),
            Placement::NextFit => Some(CacheRule::NEXT_FIT),
            _ => None,
        }
    }
}

impl Placement {
    /// Returns the configuration of the index of areas for this placement: an order by size, or the largest gaps for
    /// huge-page alignment.
    pub(super) fn index(self, layout: &Layout) -> Config {
        let huge = layout.pages(gaps::HUGE_PAGE_BYTES).0.trailing_zeros() as u8;
        match self {
            Placement::TwoEnded => Config { size_index: true, ..Config::default() },
            Placement::ExactAligned | Placement::TwoEndedFirst => Config {
                align_classes: AlignClasses::new(&[huge]).unwrap_or_default(),
                ..Config::default()
            },
            _ => Config::default(),
        }
    }
}

fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    let mut part = || parts.next().unwrap_or(Ok(0)).ok();
    Some((part()?, part()?, part()?))
}

errors!(UnknownPlacement =>
    "no such placement: use `nofrag`, `linux-X.Y` from 2.4 on, or a named one");

/// The facts that a placement may look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) areas: &'a Areas,
    pub(super) layout: &'a Layout,
    pub(super) guard_gap: PageCount,
}

/// A mapping that wants an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) pages: u64,
    /// A power of two modulo which the start is congruent to `offset`.
    pub(super) align: u64,
    pub(super) offset: u64,
    /// The direction of the search, and the window that it may use.
    pub(super) direction: Direction,
    pub(super) window: Window,
    /// Anonymous memory of this process alone, with no alignment of its own: the rules for huge pages apply.
    pub(super) huge_pages_apply: bool,
    /// There was a hint, and its place was not free.
    pub(super) hinted: bool,
}

impl Wish {
    /// Returns the bounds of the search in its own direction.
    fn bounds(&self, layout: &Layout) -> Option<Span> {
        match (self.window, self.direction) {
            (Window::Usual, Direction::Up) => Span::new(layout.base.0, layout.end.0).ok(),
            (Window::Usual, Direction::Down) => Span::new(layout.floor.0, layout.top.0).ok(),
            (Window::Other(span), _) => Some(span),
        }
    }

    /// Returns the range in which a downward search looks upwards after it has failed.
    fn fallback(&self, layout: &Layout) -> Option<Span> {
        let low = match (self.direction, self.window) {
            (Direction::Up, _) => return None,
            (Direction::Down, Window::Usual) => layout.base.0,
            (Direction::Down, Window::Other(span)) => layout.base.0.max(span.start()),
        };
        Span::new(low, layout.end.0).ok()
    }

    /// Returns the result of `search` in the wish's own bounds and direction, or else upwards in the range of
    /// [`fallback`](Self::fallback).
    fn near_then_far<P>(
        &self,
        layout: &Layout,
        mut search: impl FnMut(Span, Direction) -> Option<P>,
    ) -> Option<P> {
        let near = self.bounds(layout).and_then(|bounds| search(bounds, self.direction));
        near.or_else(|| search(self.fallback(layout)?, Direction::Up))
    }

    /// Returns the lowest start from `at` on that has the alignment; if there is none, the highest number, which fits
    /// nowhere.
    fn aligned_from(&self, at: u64) -> u64 {
        at.saturating_add(self.offset.wrapping_sub(at) & (self.align - 1))
    }

    /// Returns the highest start with the alignment, not below `low`, of a mapping that ends at `end` or below.
    fn aligned_below(&self, end: u64, low: u64) -> Option<u64> {
        let at = end.checked_sub(self.pages)?;
        let at = at.checked_sub(at.wrapping_sub(self.offset) & (self.align - 1))?;
        (at >= low).then_some(at)
    }

    /// Returns true if the huge-page rule of 6.7 looks at this mapping: memory of a 64-bit task, without hint or
    /// alignment; in every window, `MAP_32BIT` included (measured on 6.18: docs/sources/mmap.md#habits).
    fn linux_aligns_huge_pages(&self, layout: &Layout) -> bool {
        self.huge_pages_apply && !self.hinted && layout.end.0 > layout.pages(4 << 30).0
    }
}

/// The part of the space that a search may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// The layout's own window: the cached words belong to it.
    Usual,
    /// Another window: no word is read or written.
    Other(Span),
}

/// A place for a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) start: u64,
    /// The gap in which the place lies, if the placement has seen it.
    pub(super) gap: Option<GapPlace>,
}

impl From<u64> for Spot {
    fn from(start: u64) -> Spot {
        Spot { start, gap: None }
    }
}

/// A step of an unmapping, of which the placement is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Removal {
    /// A whole area, or a part that was split off, has gone from this range; called for each, ascending.
    Area(Span),
    /// All areas of one call have gone. The surviving neighbours: the end of the area below, the start of the area
    /// above.
    Done { below: Option<u64>, above: Option<u64> },
}

/// A placement with its memory of earlier calls.
#[derive(Clone, Debug)]
pub(super) struct Placer {
    pub(super) placement: Placement,
    words: Words,
    /// The effect of an unmapping on the words.
    hook: Hook,
    boundary: Boundary,
}

impl Placer {
    pub(super) fn new(placement: Placement, layout: &Layout) -> Placer {
        let hook = placement.cache_rule().map_or(Hook::Idle, |rule| rule.hook);
        Placer { placement, words: Words::new(layout), hook, boundary: Boundary::default() }
    }

    /// Returns a place for `wish` among areas for which room was reserved.
    pub(super) fn place(
        &mut self,
        view: View<'_>,
        wish: &Wish,
        counters: &mut MmapCounters,
    ) -> Option<Spot> {
        match self.placement {
            Placement::GapTree => gaps::nearest(view, wish, Guards::Ignored, counters),
            Placement::MapleTree(huge_pages) => {
                gaps::on_huge_page(view, wish, huge_pages, Guards::Ignored, counters)
            }
            Placement::MapleTreeGuarded(huge_pages) => {
                gaps::on_huge_page(view, wish, huge_pages, Guards::Kept, counters)
            }
            Placement::TwoEnded => self.boundary.place(view, wish, counters),
            _ => self.place_by_page(view, wish, counters).map(Spot::from),
        }
    }

    /// Returns the first page of a place, by the placements that do not know its gap.
    fn place_by_page(
        &mut self,
        view: View<'_>,
        wish: &Wish,
        counters: &mut MmapCounters,
    ) -> Option<u64> {
        if let Some(rule) = self.placement.cache_rule() {
            return rule.place(&mut self.words, view, wish, counters);
        }
        match self.placement {
            Placement::BestFit => reference::best_fit(view, wish, counters),
            Placement::WorstFit => reference::worst_fit(view, wish, counters),
            Placement::ExactAligned => reference::exact_aligned(view, wish, counters),
            Placement::ExactAlignedBest => reference::exact_aligned_best(view, wish, counters),
            Placement::FewestLostUnits => reference::fewest_lost_units(view, wish, counters),
            Placement::TwoEndedFirst => reference::two_ended_first(view, wish, counters),
            _ => walk::first_fit(view, wish, counters),
        }
    }

    /// Tells the placement of an unmapping.
    pub(super) fn note_removal(&mut self, layout: &Layout, removal: Removal) {
        if self.hook != Hook::Idle {
            self.words.note_removal(self.hook, layout, removal);
        }
    }

    /// Returns the placer of a child process, which inherits the boundary but no words.
    pub(super) fn forked(&self, layout: &Layout) -> Placer {
        Placer { words: Words::new(layout), ..self.clone() }
    }

    /// Forgets the boundary and resets the words, because a new program begins in the same process.
    pub(super) fn exec(&mut self, layout: &Layout) {
        self.words = Words::after_exec(layout);
        self.boundary = Boundary::default();
    }
}
