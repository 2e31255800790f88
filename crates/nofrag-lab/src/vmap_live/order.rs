//! The order in which changes were made, as a reading has it.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::{HashMap, HashMapExt};
use nofrag::ranges::Span;

use super::case::{Case, Change};

/// A way to read a recording: what its events leave open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The CPU that allocated each area of the start; the pool of its node receives the area.
    pub(super) owners: Vec<u16>,
    /// Of the lazy areas that a purge left behind, by its step: the number of those of node 0.
    pub(super) splits: BTreeMap<usize, usize>,
    /// Changes that were made earlier or later than reported, one after another.
    pub(super) moves: Vec<Move>,
    /// The steps before which the next purge had begun, and how far it had come.
    pub(super) begun: BTreeMap<usize, Begun>,
    /// The steps of requests whose place is taken from the recording: a search for a place aligned to more than a page
    /// depends on the shape of the tree of free areas, which no file shows.
    pub(super) given: BTreeSet<usize>,
}

/// The part of a purge that was over when another CPU placed an area. A purge lets a part of the pools go, then gives
/// areas back node by node, by ascending address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// This number of areas was given back since.
    Areas(usize),
    /// The last area that was given back starts at this page.
    Through(u64),
}

/// A step that goes right before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) step: usize,
    pub(super) before: usize,
}

/// An order of steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    pub(super) steps: Vec<usize>,
    /// The purges in order.
    pub(super) taken: Vec<Taken>,
}

/// The lazy areas of a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// The step of the purge.
    pub(super) purge: usize,
    /// The areas that were lazy when it was reported, in the order of their frees: the first page, and whether node 0
    /// has it.
    lazy: Vec<(u64, bool)>,
    /// Number of areas of node 0 that it took.
    pub(super) of_first: usize,
    /// Number of areas that it left behind.
    pub(super) left: usize,
}

impl Taken {
    /// Returns the number of areas of node 0 that a purge leaves behind if the one at page `start` is the first that it
    /// leaves of its node, or the last that it takes.
    pub(super) fn split_at(&self, start: u64, stays: bool) -> Option<usize> {
        let at = self.lazy.iter().position(|(lazy, _)| *lazy == start)?;
        let (_, first) = self.lazy[at];
        let from = at + usize::from(!stays);
        let left = self.lazy[from..].iter().filter(|(_, other)| *other == first).count();
        if first { (left <= self.left).then_some(left) } else { self.left.checked_sub(left) }
    }
}

/// A free that no purge has taken yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The step, unless the area was lazy at the start.
    step: Option<usize>,
    span: Span,
    owner: u16,
}

/// Steps behind a purge in which a free may be reported that it found.
const LATE: usize = 64;

/// Returns the order of a reading: that of events, with the frees that a purge did not find behind it, and those that
/// it found before they were reported before it.
pub(super) fn order(case: &Case, reading: &Reading) -> Order {
    let mut order = Order::default();
    let mut live: HashMap<u64, (Span, u16)> = HashMap::new();
    let mut waiting: Vec<Waiting> = Vec::new();
    for (area, &owner) in case.start.iter().zip(&reading.owners) {
        match area.lazy {
            true => waiting.push(Waiting { step: None, span: area.span, owner }),
            false => drop(live.insert(area.span.start(), (area.span, owner))),
        }
    }
    let mut early = BTreeSet::new();
    for (index, step) in case.steps.iter().enumerate() {
        match step.change {
            _ if early.remove(&index) => continue,
            Change::Alloc { at, pages, .. } => {
                if let Ok(span) = Span::sized(at, pages) {
                    live.insert(at, (span, step.cpu));
                }
            }
            Change::Free { at, .. } => waiting.extend(free_of(&mut live, at, index)),
            Change::Purge { hull, areas } => {
                let wanted = areas as usize;
                for next in index + 1..case.steps.len().min(index + 1 + LATE) {
                    let Change::Free { at, .. } = case.steps[next].change else { continue };
                    if waiting.len() < wanted && early.insert(next) {
                        waiting.extend(free_of(&mut live, at, next));
                        order.steps.push(next);
                    }
                }
                let lazy =
                    waiting.iter().map(|free| (free.span.start(), free.owner == 0)).collect();
                let of_first = reading.splits.get(&index).copied();
                let left = left_behind(&mut waiting, wanted, hull, of_first);
                let steps: BTreeSet<usize> = left.iter().filter_map(|free| free.step).collect();
                if let Some(first) = steps.first() {
                    let from = order.steps.iter().rposition(|step| step == first).unwrap_or(0);
                    let tail: Vec<usize> = order.steps.split_off(from);
                    order.steps.extend(tail.into_iter().filter(|step| !steps.contains(step)));
                }
                order.steps.push(index);
                order.steps.extend(left.iter().filter_map(|free| free.step));
                let of_first = waiting.iter().filter(|free| free.owner == 0).count();
                order.taken.push(Taken { purge: index, lazy, of_first, left: left.len() });
                waiting = left;
                continue;
            }
        }
        order.steps.push(index);
    }
    for &Move { step, before } in &reading.moves {
        let position = |wanted: usize| order.steps.iter().position(|&step| step == wanted);
        let (Some(from), Some(to)) = (position(step), position(before)) else { continue };
        order.steps.remove(from);
        order.steps.insert(to - usize::from(from < to), step);
    }
    order
}

fn free_of(live: &mut HashMap<u64, (Span, u16)>, at: u64, step: usize) -> Option<Waiting> {
    let (span, owner) = live.remove(&at)?;
    Some(Waiting { step: Some(step), span, owner })
}

/// Takes what a purge did not find out of `waiting`, so that `wanted` areas stay. A purge takes the lazy areas node by
/// node, so what it left is the last of each node: `of_first` of node 0, or as many as leave areas in `hull`.
fn left_behind(
    waiting: &mut Vec<Waiting>,
    wanted: usize,
    hull: Span,
    of_first: Option<usize>,
) -> Vec<Waiting> {
    let surplus = waiting.len().saturating_sub(wanted);
    let split = |of_first: usize| {
        let mut quota = [of_first, surplus - of_first];
        let (mut left, mut taken) = (Vec::new(), Vec::new());
        for &free in waiting.iter().rev() {
            let quota = &mut quota[usize::from(free.owner != 0)];
            let stays = *quota > 0;
            *quota -= usize::from(stays);
            if stays { left.push(free) } else { taken.push(free) }
        }
        left.reverse();
        taken.reverse();
        (taken, left)
    };
    let last = &waiting[waiting.len() - surplus..];
    let last = last.iter().filter(|free| free.owner == 0).count();
    let (taken, left) = match of_first {
        _ if surplus == 0 => return Vec::new(),
        Some(of_first) => split(of_first.min(surplus)),
        None => {
            let fits = |(taken, _): &(Vec<Waiting>, Vec<Waiting>)| {
                let spans = taken.iter().map(|free| free.span);
                taken.len() == wanted && spans.reduce(Span::hull) == Some(hull)
            };
            // The nodes are taken one right after the other, so the cut is near that of one moment.
            let near = (1..=LATE).flat_map(|by| [last.checked_sub(by), last.checked_add(by)]);
            let near = near.flatten().filter(|&of_first| of_first <= surplus);
            let mut tried = [last].into_iter().chain(near).map(split);
            tried.find(fits).unwrap_or_else(|| split(last))
        }
    };
    *waiting = taken;
    left
}
