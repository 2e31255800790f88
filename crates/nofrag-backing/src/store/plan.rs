//! Which objects move so that free space joins.
//!
//! A *window* is a run of neighbouring objects with the gaps between and around them. If its objects can leave it, or
//! its gaps alone are enough and the objects need only slide together, there is one hole where the window was.
//!
//! # How near this is to the least
//!
//! Whatever a plan does, all objects that lie where the hole will be must move, and they fill a window as long as the
//! hole. So no plan moves fewer units than the cheapest window of that length holds: [`least`]. The plan takes the
//! cheapest of
//!
//! 1. the windows whose gaps are enough: the cheapest is found exactly, in one pass;
//! 2. windows of the needed length, cheapest first, of which enough objects fit into holes elsewhere: the first
//!    [`TRIES`] are tried. If the very first succeeds, nothing cheaper exists.
//!
//! So a plan exists whenever free space between two fixed objects is enough, and it costs at most what the cheapest
//! slide costs. Time is O(n log n) in the number of objects.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// Windows of the second kind that are tried.
pub(super) const TRIES: usize = 16;

/// An object, in units of the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) len: u64,
    /// Pinned, or being written.
    pub(super) is_fixed: bool,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// Moves in the order in which they must be made; each goes to a place that is free by then, or overlaps its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Which piece, and where its start will be.
    pub(super) moves: Vec<(usize, u64)>,
    /// Units that are moved.
    pub(super) cost: u64,
}

/// The pieces of a space, by ascending start, and the gaps between them: gap `i` is before piece `i`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space<'a> {
    pub(super) pieces: &'a [Piece],
    pub(super) end: u64,
}

/// The pieces of a window; it begins with the gap before the first and ends with the gap after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    pieces: Range<usize>,
    cost: u64,
}

/// What a window must have as much of as is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// Gaps alone: the objects stay in it.
    Gaps,
    /// Gaps and objects: the objects leave it.
    Length,
}

impl Space<'_> {
    fn gap_start(&self, gap: usize) -> u64 {
        gap.checked_sub(1).map_or(0, |before| self.pieces[before].end())
    }

    fn gap_end(&self, gap: usize) -> u64 {
        self.pieces.get(gap).map_or(self.end, |after| after.start)
    }

    fn gap(&self, gap: usize) -> u64 {
        self.gap_end(gap) - self.gap_start(gap)
    }

    /// For each gap that a window can end with, the cheapest window without fixed objects that has enough.
    fn windows(&self, measure: Measure, need: u64) -> Vec<Window> {
        let mut found = Vec::new();
        let (mut first, mut cost, mut gaps) = (0, 0, 0);
        let has = |gaps: u64, cost: u64| match measure {
            Measure::Gaps => gaps,
            Measure::Length => gaps + cost,
        };
        for last in 0..=self.pieces.len() {
            match last.checked_sub(1).map(|before| self.pieces[before]) {
                Some(piece) if piece.is_fixed => (first, cost, gaps) = (last, 0, 0),
                Some(piece) => cost += piece.len,
                None => {}
            }
            gaps += self.gap(last);
            // Both measures only shrink with the window, so the shortest that has enough is the cheapest.
            while first < last && has(gaps - self.gap(first), cost - self.pieces[first].len) >= need
            {
                gaps -= self.gap(first);
                cost -= self.pieces[first].len;
                first += 1;
            }
            if has(gaps, cost) >= need {
                found.push(Window { pieces: first..last, cost });
            }
        }
        found
    }

    /// Slides `pieces` down, without gaps, to where the gap before the first begins.
    fn slide_down(&self, pieces: impl Iterator<Item = usize>, mut to: u64, plan: &mut Plan) {
        for piece in pieces {
            plan.push(self, piece, to);
            to += self.pieces[piece].len;
        }
    }
}

impl Plan {
    fn empty() -> Plan {
        Plan { moves: Vec::new(), cost: 0 }
    }

    fn push(&mut self, space: &Space<'_>, piece: usize, to: u64) {
        if space.pieces[piece].start != to {
            self.moves.push((piece, to));
            self.cost += space.pieces[piece].len;
        }
    }
}

/// Fewer units than this no plan can move that makes a hole of `need`; `None` if fixed objects leave no such place.
pub(super) fn least(space: Space<'_>, need: u64) -> Option<u64> {
    space.windows(Measure::Length, need).iter().map(|window| window.cost).min()
}

/// How to make a hole of `need`.
pub(super) fn plan(space: Space<'_>, need: u64) -> Option<Plan> {
    let slide = space.windows(Measure::Gaps, need).into_iter().min_by_key(|window| window.cost);
    let limit = slide.as_ref().map_or(u64::MAX, |window| window.cost);
    let mut windows = space.windows(Measure::Length, need);
    windows.retain(|window| window.cost < limit);
    windows.sort_by_key(|window| window.cost);
    let mut holes: BTreeSet<(u64, u64)> = (0..=space.pieces.len())
        .map(|gap| (space.gap(gap), space.gap_start(gap)))
        .filter(|&(len, _)| len > 0)
        .collect();
    let mut tried = windows.iter().take(TRIES);
    if let Some(plan) = tried.find_map(|window| evacuate(space, window, need, &mut holes)) {
        return Some(plan);
    }
    let window = slide?;
    let mut plan = Plan::empty();
    let to = space.gap_start(window.pieces.start);
    space.slide_down(window.pieces, to, &mut plan);
    Some(plan)
}

/// Lets as many objects leave the window as are too many in it, largest first, each for the smallest hole elsewhere
/// that takes it; the others slide together.
fn evacuate(
    space: Space<'_>,
    window: &Window,
    need: u64,
    holes: &mut BTreeSet<(u64, u64)>,
) -> Option<Plan> {
    let Range { start: first, end: last } = window.pieces.clone();
    let own = || (first..=last).map(|gap| (space.gap(gap), space.gap_start(gap)));
    let mut room: u64 = own().map(|(len, _)| len).sum();
    own().for_each(|hole| _ = holes.remove(&hole));
    // What was taken, and what was left of it.
    let mut changes: Vec<((u64, u64), (u64, u64))> = Vec::new();
    let mut plan = Plan::empty();
    let mut leaving: Vec<usize> = window.pieces.clone().collect();
    leaving.sort_by_key(|&piece| Reverse(space.pieces[piece].len));
    let mut staying: BTreeSet<usize> = window.pieces.clone().collect();
    for piece in leaving {
        if room >= need {
            break;
        }
        let len = space.pieces[piece].len;
        let Some(&hole) = holes.range((len, 0)..).next() else { continue };
        let rest = (hole.0 - len, hole.1 + len);
        holes.remove(&hole);
        if rest.0 > 0 {
            holes.insert(rest);
        }
        changes.push((hole, rest));
        plan.push(&space, piece, hole.1);
        staying.remove(&piece);
        room += len;
    }
    for (hole, rest) in changes.into_iter().rev() {
        holes.remove(&rest);
        holes.insert(hole);
    }
    own().filter(|&(len, _)| len > 0).for_each(|hole| _ = holes.insert(hole));
    if room < need {
        return None;
    }
    space.slide_down(staying.into_iter(), space.gap_start(first), &mut plan);
    Some(plan)
}

/// How to widen the gap behind a piece to `need`: what is before slides down, what is behind slides up. Exact: of all
/// ways to do it by sliding, the one that moves least.
pub(super) fn plan_gap_behind(space: Space<'_>, piece: usize, need: u64) -> Option<Plan> {
    let middle = piece + 1;
    // To the right: for each gap that the window can end with, what it adds.
    let mut right = vec![(space.gap(middle), 0)];
    for behind in middle..space.pieces.len() {
        let Piece { len, is_fixed, .. } = space.pieces[behind];
        if is_fixed {
            break;
        }
        let (gaps, cost) = right[right.len() - 1];
        right.push((gaps + space.gap(behind + 1), cost + len));
    }
    let (mut gaps, mut cost) = (0, 0);
    let mut best: Option<(u64, usize, usize)> = None;
    for first in (0..=middle).rev() {
        if first < middle {
            let Piece { len, is_fixed, .. } = space.pieces[first];
            if is_fixed {
                break;
            }
            (gaps, cost) = (gaps + space.gap(first), cost + len);
        }
        let enough = right.partition_point(|&(more, _)| gaps + more < need);
        if let Some(&(_, more)) = right.get(enough)
            && best.is_none_or(|(least, ..)| cost + more < least)
        {
            best = Some((cost + more, first, middle + enough));
        }
    }
    let (_, first, last) = best?;
    let mut plan = Plan::empty();
    space.slide_down(first..middle, space.gap_start(first), &mut plan);
    let mut end = space.gap_end(last);
    for behind in (middle..last).rev() {
        end -= space.pieces[behind].len;
        plan.push(&space, behind, end);
    }
    Some(plan)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `##` an object of two, `@@` a fixed one, `.` free; objects that touch are told apart by `|`.
    fn picture(text: &str) -> (Vec<Piece>, u64) {
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut at, mut begins) = (0, true);
        for sign in text.chars() {
            match sign {
                '|' => begins = true,
                '.' => (at, begins) = (at + 1, true),
                _ if begins => {
                    pieces.push(Piece { start: at, len: 1, is_fixed: sign == '@' });
                    (at, begins) = (at + 1, false);
                }
                _ => {
                    pieces.last_mut().unwrap().len += 1;
                    at += 1;
                }
            }
        }
        (pieces, at)
    }

    /// Carries a plan out on a map of units; every move must go to free ones.
    fn carry_out(pieces: &[Piece], end: u64, plan: &Plan) -> Vec<Option<usize>> {
        let mut map = vec![None; end as usize];
        for (at, piece) in pieces.iter().enumerate() {
            (piece.start..piece.end()).for_each(|unit| map[unit as usize] = Some(at));
        }
        let mut cost = 0;
        for &(piece, to) in &plan.moves {
            assert!(!pieces[piece].is_fixed, "piece {piece} is fixed");
            map.iter_mut().filter(|unit| **unit == Some(piece)).for_each(|unit| *unit = None);
            for unit in &mut map[to as usize..][..pieces[piece].len as usize] {
                assert_eq!(unit.replace(piece), None, "piece {piece} goes where another one is");
            }
            cost += pieces[piece].len;
        }
        assert_eq!(cost, plan.cost);
        map
    }

    fn largest_hole(map: &[Option<usize>]) -> u64 {
        map.split(Option::is_some).map(<[_]>::len).max().unwrap_or(0) as u64
    }

    fn check_plan(text: &str, need: u64, expected: Option<u64>) {
        let (pieces, end) = picture(text);
        let plan = plan(Space { pieces: &pieces, end }, need);
        assert_eq!(plan.as_ref().map(|plan| plan.cost), expected, "{text}: {plan:?}");
        if let Some(plan) = plan {
            assert!(largest_hole(&carry_out(&pieces, end, &plan)) >= need, "{text}: {plan:?}");
        }
    }

    #[test]
    fn the_cheapest_way_is_taken() {
        check_plan("##...##", 3, Some(0));
        check_plan("#..####..###..#..#", 4, Some(1));
        // One of one unit leaves its place for the hole at the end.
        check_plan("##..#..####.", 5, Some(1));
        // All gaps are needed: the last one goes into the first gap, and the one before it slides.
        check_plan(".##.###.#", 3, Some(4));
        check_plan(".##.###.##", 3, Some(5));
        check_plan(".##.###.#", 4, None);
    }

    #[test]
    fn what_is_fixed_is_gone_around() {
        check_plan("..@..#.", 3, Some(1));
        check_plan("..@@..", 3, None);
        check_plan(".#.@.##.", 2, Some(1));
    }

    #[test]
    fn a_gap_is_widened_where_it_is() {
        for (text, piece, need, expected) in [
            ("##.##..", 0, 3, Some(2)),
            ("..##|##..", 0, 2, Some(2)),
            ("..##|##..", 0, 4, Some(4)),
            ("..@@|##..", 0, 2, Some(2)),
            ("..@@|@@..", 0, 1, None),
            (".#|#|#", 2, 1, Some(3)),
        ] {
            let (pieces, end) = picture(text);
            let plan = plan_gap_behind(Space { pieces: &pieces, end }, piece, need);
            assert_eq!(plan.as_ref().map(|plan| plan.cost), expected, "{text}: {plan:?}");
            let Some(plan) = plan else { continue };
            let map = carry_out(&pieces, end, &plan);
            let last = map.iter().rposition(|unit| *unit == Some(piece)).unwrap();
            let gap = map[last + 1..].iter().take_while(|unit| unit.is_none()).count();
            assert!(gap as u64 >= need, "{text}: {plan:?}");
        }
    }

    fn spaces() -> impl Strategy<Value = (Vec<Piece>, u64)> {
        let piece = (0..4_u64, 1..6_u64, prop::bool::weighted(0.1));
        (prop::collection::vec(piece, 0..20), 0..4_u64).prop_map(|(parts, rest)| {
            let mut at = 0;
            let pieces = parts.into_iter().map(|(gap, len, is_fixed)| {
                let start = at + gap;
                at = start + len;
                Piece { start, len, is_fixed }
            });
            let pieces: Vec<Piece> = pieces.collect();
            (pieces, at + rest)
        })
    }

    /// The cheapest window by trying all.
    fn cheapest(space: Space<'_>, need: u64, measure: Measure) -> Option<u64> {
        let all = (0..=space.pieces.len())
            .flat_map(|first| (first..=space.pieces.len()).map(move |last| (first, last)));
        let movable = all
            .filter(|&(first, last)| space.pieces[first..last].iter().all(|piece| !piece.is_fixed));
        movable
            .filter_map(|(first, last)| {
                let cost: u64 = space.pieces[first..last].iter().map(|piece| piece.len).sum();
                let gaps: u64 = (first..=last).map(|gap| space.gap(gap)).sum();
                let has = if measure == Measure::Gaps { gaps } else { gaps + cost };
                (has >= need).then_some(cost)
            })
            .min()
    }

    proptest! {
        #[test]
        fn plans_make_the_hole_and_cost_between_the_bounds((pieces, end) in spaces(), need in 1..20_u64) {
            let space = Space { pieces: &pieces, end };
            let slide = cheapest(space, need, Measure::Gaps);
            let bound = cheapest(space, need, Measure::Length);
            prop_assert_eq!(least(space, need), bound);
            match plan(space, need) {
                Some(plan) => {
                    prop_assert!(largest_hole(&carry_out(&pieces, end, &plan)) >= need);
                    prop_assert!(bound.is_some_and(|bound| bound <= plan.cost));
                    prop_assert!(slide.is_none_or(|slide| plan.cost <= slide));
                }
                None => prop_assert_eq!(slide, None),
            }
        }

        #[test]
        fn a_widened_gap_is_behind_its_piece((pieces, end) in spaces(), need in 1..20_u64, which in 0..20_usize) {
            prop_assume!(which < pieces.len());
            let space = Space { pieces: &pieces, end };
            let Some(plan) = plan_gap_behind(space, which, need) else { return Ok(()) };
            let map = carry_out(&pieces, end, &plan);
            let last = map.iter().rposition(|unit| *unit == Some(which)).unwrap();
            let gap = map[last + 1..].iter().take_while(|unit| unit.is_none()).count();
            prop_assert!(gap as u64 >= need);
        }
    }
}
