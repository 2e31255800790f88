//! A pass of compaction through a zone, foreseen from the contents of its pageblocks.
//!
//! `vm.compact_memory` lets two scanners go towards each other. One takes what can be moved, from the lowest pageblock
//! up; the other finds free pages for it, from the highest pageblock down, where that is not wholly free; the pass ends
//! where they meet. Pageblocks below become whole if nothing in them stays. Moving does not begin with the emptiest
//! pageblock, and what stands beside a page that stays is moved in vain: so less becomes whole than free memory would
//! fill.
//!
//! A page that was left does not become free at once. It goes to a list of the CPU that compacts, which keeps the last
//! ones up to a bound, and a pageblock with a page on that list is not whole. The bound grew: 6 batches up to 5.13, and
//! from 5.14 on what lies below the low mark for each CPU. In the guests of `data/states` that is a fourth of what
//! compaction gave. Folios of 2 to 8 pages that become free one after the other empty the list again; larger ones never
//! get there. Up to 6.11 nothing is moved but single pages.
//!
//! What the flags of frames do not show could change the outcome, so there are three (`Hypothesis`), and a forecast
//! that depends on which holds is none ([`Forecast::known`]).
//!
//! Costs: O(pageblocks) time for each outcome, 20 bytes for each pageblock in use.
//!
//! Source: docs/sources/pages.md#scanners, pages.md#whole-zone, pages.md#per-cpu.

use std::ops::Range;

use serde::Serialize;

use super::pageblocks::LITTLE;
use crate::fields;
use crate::snapshot::{FrameUse, ZoneInfo};

/// The whole pageblocks that can be had after a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Forecast {
    /// Number if everything moves that looks as if it could, and what looks like the kernel's stays.
    pub blocks: u64,
    /// Number if the last few pages of a pageblock are held by something, such as a pipe.
    pub if_few_are_held: u64,
    /// Number if pages that look like the kernel's lie in the lists of CPUs, where that may be.
    pub if_lists_are_emptied: u64,
}

impl Forecast {
    pub(super) const fn and(self, more: Forecast) -> Forecast {
        Forecast {
            blocks: self.blocks.saturating_add(more.blocks),
            if_few_are_held: self.if_few_are_held.saturating_add(more.if_few_are_held),
            if_lists_are_emptied: self
                .if_lists_are_emptied
                .saturating_add(more.if_lists_are_emptied),
        }
    }

    /// Returns the forecast with each number within bounds.
    pub(super) fn within(self, least: u64, most: u64) -> Forecast {
        Forecast {
            blocks: self.blocks.clamp(least, most),
            if_few_are_held: self.if_few_are_held.clamp(least, most),
            if_lists_are_emptied: self.if_lists_are_emptied.clamp(least, most),
        }
    }

    /// Returns the forecast if it depends little on what cannot be seen.
    #[must_use]
    pub fn known(self) -> Option<u64> {
        let others = [self.if_few_are_held, self.if_lists_are_emptied];
        let is_near = |other: &u64| self.blocks.abs_diff(*other) <= tolerance(self.blocks);
        others.iter().all(is_near).then_some(self.blocks)
    }
}

/// Returns the number of blocks by which a forecast may be wrong.
#[must_use]
pub fn tolerance(blocks: u64) -> u64 {
    (blocks / 10).max(5)
}

/// Classes of movable folios by what a pass does with them: single pages, 2 to 8 pages, larger ones, and those of a
/// pageblock, which stay.
const CLASSES: usize = 4;

/// The frames of one pageblock that a pass can change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    free: u16,
    /// Number of pages that look like the kernel's if nothing else stays in the pageblock, otherwise 0.
    kernel: u16,
    /// Pages of processes and shared memory, and those of files, by class.
    others: [u16; CLASSES],
    files: [u16; CLASSES],
}

impl Contents {
    /// Adds a movable folio; `block` is the number of pages in a pageblock.
    pub(super) fn add_folio(&mut self, usage: FrameUse, pages: u64, block: u64) {
        let class = match pages {
            0..=1 => 0,
            2..=8 => 1,
            _ if pages < block => 2,
            _ => 3,
        };
        let classes = if usage == FrameUse::File { &mut self.files } else { &mut self.others };
        classes[class] = classes[class].saturating_add(narrow(pages));
    }

    /// Adds the free pages, and those of the kernel where nothing else stays.
    pub(super) fn complete(&mut self, free: u64, kernel_alone: u64) {
        (self.free, self.kernel) = (narrow(free), narrow(kernel_alone));
    }

    /// Returns true if a pass has nothing to do with the pageblock.
    pub(super) fn is_empty(&self) -> bool {
        *self == Contents { kernel: self.kernel, ..Contents::default() }
    }
}

fn narrow(pages: u64) -> u16 {
    u16::try_from(pages).unwrap_or(u16::MAX)
}

/// A kernel's rules in one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// True if folios of several pages are moved.
    moves_folios: bool,
    /// Pages that the compacting CPU's lists keep at most.
    pub(super) bound: u64,
    /// True if folios of 2 to 8 pages empty these lists.
    folios_empty_lists: bool,
}

impl Rules {
    /// Returns the rules of a kernel of this release; `None` for a release that cannot be read.
    pub(super) fn of(release: &str, zone: &ZoneInfo) -> Option<Rules> {
        let version = fields::release_version(release).ok()?;
        let most = |of: fn(&crate::snapshot::PerCpuSet) -> u64| {
            zone.per_cpu.iter().map(of).max().unwrap_or(0)
        };
        let (high, batch) = (most(|set| set.high), most(|set| set.batch));
        let cpus = (zone.per_cpu.len() as u64).max(1);
        // `high` may lag behind marks that were changed.
        let least = (zone.marks().low / cpus).max(batch.saturating_mul(4));
        // Since 7.2 more pages must have been freed in a row than are ever counted where the bound is high.
        let are_counted = batch.saturating_mul(31) >= least / 2;
        Some(Rules {
            moves_folios: version >= (6, 12),
            bound: if version < (5, 14) { high } else { high.max(least) },
            folios_empty_lists: version < (7, 2) || are_counted,
        })
    }
}

/// An assumption on pages whose flags do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hypothesis {
    AllMove,
    /// Movable pages stay where they are at most one page in [`LITTLE`] of their pageblock: something holds the last.
    FewAreHeld,
    /// Pageblocks with at most this many pages of the kernel, and none that stays otherwise, have them in the lists of
    /// CPUs, and the pass pushes them out.
    ListsAreEmptied(u64),
}

/// The pageblocks of a zone before a pass.
pub(super) struct Pass<'a> {
    pub(super) blocks: &'a [Contents],
    /// Pages in a pageblock.
    pub(super) block: u64,
    pub(super) rules: Rules,
    /// True if page cache is dropped before.
    pub(super) drops: bool,
}

/// The state of a zone after a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Whole pageblocks.
    pub(super) whole: u64,
    /// Pages that the pass left in the lists of its CPU.
    pub(super) listed: u64,
}

/// A pageblock as a pass sees it.
struct Seen {
    free: u64,
    single: u64,
    small: u64,
    large: u64,
}

impl Seen {
    const fn movable(&self) -> u64 {
        self.single + self.small + self.large
    }
}

impl Pass<'_> {
    /// Returns the outcome of the pass.
    pub(super) fn outcome(&self, if_so: Hypothesis) -> Outcome {
        let mut targets = Targets { next: self.blocks.len(), room: 0 };
        let mut listed = 0_u64;
        // Pages in the lists from the pageblock in which the scanners meet.
        let mut last = 0;
        // The first pageblock of which pages may be in the lists.
        let mut listed_from = 0;
        let mut meeting = 0;
        while meeting < targets.next {
            let seen = self.see(meeting, if_so);
            let movable = seen.movable();
            if movable == 0 || self.is_held(&seen, if_so) {
                meeting += 1;
                continue;
            }
            let moved = targets.take(movable, meeting, |at| self.room(at, if_so));
            if moved < movable {
                last = moved.min(self.rules.bound);
                listed = (listed + moved).min(self.rules.bound);
                break;
            }
            if self.empties_lists(&seen) {
                (listed, listed_from) = (0, meeting);
            }
            listed = (listed + self.kept(&seen)).min(self.rules.bound);
            meeting += 1;
        }
        Outcome { whole: self.whole(listed_from..meeting, listed - last, if_so), listed }
    }

    /// Counts the whole pageblocks after a pass that ended at the end of `sources`; the lists hold pages of the last of
    /// these, `left` in number.
    fn whole(&self, sources: Range<usize>, mut left: u64, if_so: Hypothesis) -> u64 {
        let mut whole = 0;
        for at in (0..self.blocks.len()).rev() {
            let seen = self.see(at, if_so);
            let is_emptied = at < sources.end && !self.is_held(&seen, if_so);
            let moved = if is_emptied { seen.movable() } else { 0 };
            let is_listed = left > 0 && at >= sources.start && moved > 0 && self.kept(&seen) > 0;
            if is_listed {
                left = left.saturating_sub(self.kept(&seen));
            }
            whole += u64::from(!is_listed && seen.free + moved == self.block);
        }
        whole
    }

    fn see(&self, at: usize, if_so: Hypothesis) -> Seen {
        let Contents { free, kernel, others, files } = self.blocks[at];
        let sum = |class: usize| {
            let files = if self.drops { 0 } else { files[class] };
            u64::from(others[class]) + u64::from(files)
        };
        let dropped = files.iter().map(|&pages| u64::from(pages)).sum::<u64>();
        let kernel = match if_so {
            Hypothesis::ListsAreEmptied(most) if u64::from(kernel) <= most => u64::from(kernel),
            _ => 0,
        };
        let moves = |class| if self.rules.moves_folios { sum(class) } else { 0 };
        Seen {
            free: u64::from(free) + if self.drops { dropped } else { 0 } + kernel,
            single: sum(0),
            small: moves(1),
            large: moves(2),
        }
    }

    fn is_held(&self, seen: &Seen, if_so: Hypothesis) -> bool {
        if_so == Hypothesis::FewAreHeld && seen.movable() <= self.block / LITTLE
    }

    /// Returns the number of pages to which others may be moved.
    fn room(&self, at: usize, if_so: Hypothesis) -> u64 {
        let free = self.see(at, if_so).free;
        if free < self.block { free } else { 0 }
    }

    /// Returns true if at least two folios of the pageblock become free that empty the lists.
    fn empties_lists(&self, seen: &Seen) -> bool {
        /// Pages of two folios, the largest that may be.
        const TWO: u64 = 8;
        self.rules.folios_empty_lists && seen.small >= TWO
    }

    /// Returns the number of pages of the pageblock that go to the lists and are not emptied out with the next folio.
    fn kept(&self, seen: &Seen) -> u64 {
        seen.single + if self.empties_lists(seen) { 0 } else { seen.small }
    }
}

/// The scanner that goes down.
struct Targets {
    /// The pageblock that it has reached, or the number of pageblocks, and the free pages left there.
    next: usize,
    room: u64,
}

impl Targets {
    /// Takes at most `wanted` free pages from pageblocks above `source`; returns how many there were.
    fn take(&mut self, wanted: u64, source: usize, room: impl Fn(usize) -> u64) -> u64 {
        let mut taken = 0;
        while taken < wanted {
            if self.room == 0 {
                if self.next <= source + 1 {
                    self.next = source;
                    break;
                }
                self.next -= 1;
                self.room = room(self.next);
                continue;
            }
            let some = self.room.min(wanted - taken);
            self.room -= some;
            taken += some;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::PerCpuSet;

    /// Pages of a pageblock here; four are one of [`LITTLE`].
    const BLOCK: u64 = 64;

    /// Returns pageblocks drawn as letters: `.` free, `h` half free and half of single pages, `p` the same with a page
    /// that stays, `t` half of page cache, `f` half of folios of four pages, `l` free but for two pages of a process,
    /// `k` but for two that look like the kernel's.
    fn draw(text: &str) -> Vec<Contents> {
        const HALF: u64 = BLOCK / 2;
        let block = |letter| {
            let (free, kernel, folios) = match letter {
                '.' => (BLOCK, 0, None),
                'h' => (HALF, 0, Some((FrameUse::Anon, 1, HALF))),
                'p' => (HALF - 1, 0, Some((FrameUse::Anon, 1, HALF))),
                't' => (HALF, 0, Some((FrameUse::File, 1, HALF))),
                'f' => (HALF, 0, Some((FrameUse::File, 4, HALF / 4))),
                'l' => (BLOCK - 2, 0, Some((FrameUse::Anon, 1, 2))),
                'k' => (BLOCK - 2, 2, None),
                _ => panic!("{letter}"),
            };
            let mut contents = Contents::default();
            if let Some((usage, pages, count)) = folios {
                (0..count).for_each(|_| contents.add_folio(usage, pages, BLOCK));
            }
            contents.complete(free, kernel);
            contents
        };
        text.chars().map(block).collect()
    }

    const RULES: Rules = Rules { moves_folios: true, bound: 0, folios_empty_lists: true };

    fn check(text: &str, rules: Rules, if_so: Hypothesis, whole: u64, listed: u64) {
        let blocks = draw(text);
        let pass = Pass { blocks: &blocks, block: BLOCK, rules, drops: false };
        assert_eq!(pass.outcome(if_so), Outcome { whole, listed }, "{text} {rules:?} {if_so:?}");
    }

    fn check_whole(text: &str, whole: u64) {
        check(text, RULES, Hypothesis::AllMove, whole, 0);
    }

    #[test]
    fn the_scanners_meet_where_what_can_be_moved_has_filled_what_is_free() {
        check_whole("hhhh", 2);
        check_whole("hhh", 1);
        check_whole("h", 0);
        check_whole("", 0);
        // What stands beside a page that stays is moved in vain, and takes the place of another.
        check_whole("phhhhh", 2);
        check_whole("hhhhhp", 2);
        // A free pageblock is left as it is.
        check_whole("h.h", 2);
        check_whole("h.", 1);
        check_whole("l.hl", 3);
    }

    #[test]
    fn a_pageblock_with_a_page_on_a_list_is_not_whole() {
        let of = |bound| Rules { bound, ..RULES };
        check("hhhhhh", of(32), Hypothesis::AllMove, 2, 32);
        check("hhhhhh", of(33), Hypothesis::AllMove, 1, 33);
        check("hhhhhh", of(1000), Hypothesis::AllMove, 0, 96);
        // The pageblock where the scanners meet was left last.
        check("hhlh", of(4), Hypothesis::AllMove, 1, 4);
        check(".hh", of(1000), Hypothesis::AllMove, 1, 32);
    }

    #[test]
    fn folios_empty_the_lists_or_do_not_move() {
        let of = |folios_empty_lists| Rules { bound: 1000, folios_empty_lists, ..RULES };
        check("hhfhhh", of(true), Hypothesis::AllMove, 3, 0);
        check("hfhhhh", of(true), Hypothesis::AllMove, 2, 32);
        check("hhfhhh", of(false), Hypothesis::AllMove, 0, 96);
        let single = Rules { moves_folios: false, ..RULES };
        check("ffhhhh", single, Hypothesis::AllMove, 2, 0);
        check("hffh", single, Hypothesis::AllMove, 1, 0);
    }

    #[test]
    fn what_flags_do_not_show_makes_other_outcomes() {
        check("lllllh", RULES, Hypothesis::AllMove, 5, 0);
        check("lllllh", RULES, Hypothesis::FewAreHeld, 0, 0);
        check("hhhh", RULES, Hypothesis::FewAreHeld, 2, 0);
        check("hkkh", RULES, Hypothesis::AllMove, 1, 0);
        check("hkkh", RULES, Hypothesis::ListsAreEmptied(1), 1, 0);
        check("hkkh", RULES, Hypothesis::ListsAreEmptied(2), 3, 0);
    }

    #[test]
    fn page_cache_that_is_dropped_need_not_move() {
        let blocks = draw("tthp");
        let of = |drops| Pass { blocks: &blocks, block: BLOCK, rules: RULES, drops };
        assert_eq!(of(false).outcome(Hypothesis::AllMove).whole, 1);
        assert_eq!(of(true).outcome(Hypothesis::AllMove).whole, 2);
    }

    #[test]
    fn rules_are_those_of_the_release() {
        let zone = ZoneInfo {
            low: 800,
            per_cpu: (0..2).map(|cpu| PerCpuSet { cpu, count: 0, high: 90, batch: 15 }).collect(),
            ..ZoneInfo::default()
        };
        let of = |release| Rules::of(release, &zone);
        let rules = |moves_folios, bound, folios_empty_lists| {
            Some(Rules { moves_folios, bound, folios_empty_lists })
        };
        assert_eq!(of("5.10.0-32-cloud-amd64"), rules(false, 90, true));
        assert_eq!(of("6.1.0"), rules(false, 400, true));
        assert_eq!(of("6.12.107+deb13"), rules(true, 400, true));
        assert_eq!(of("7.2.13"), rules(true, 400, true));
        assert_eq!(of("7.2"), rules(true, 400, true));
        assert_eq!([of("7"), of("next-20261101"), of("")], [None; 3]);
        let high = ZoneInfo { low: 8000, ..zone.clone() };
        let of = |release| Rules::of(release, &high).unwrap().folios_empty_lists;
        assert_eq!(["6.12.1", "7.2.13"].map(of), [true, false]);
    }

    #[test]
    fn a_forecast_that_depends_on_what_cannot_be_seen_is_none() {
        let of = |blocks, if_few_are_held, if_lists_are_emptied| {
            Forecast { blocks, if_few_are_held, if_lists_are_emptied }.known()
        };
        assert_eq!(of(100, 90, 110), Some(100));
        assert_eq!(of(100, 89, 100), None);
        assert_eq!(of(100, 100, 111), None);
        assert_eq!([of(5, 0, 10), of(6, 0, 6)], [Some(5), None]);
        assert_eq!(of(80, 3, 81), None, "5.10-io-held of data/states");
        assert_eq!(of(7, 7, 69), None, "7.2-aged");
    }
}
