//! Looks for a reading of a recording under which the model places every area where the kernel did.
//!
//! Events leave some things open. *Order*: an event comes after its change, so where CPUs, or a purge and a request,
//! work at a time, the order of events need not be that of changes. *Splits*: a purge takes the lazy areas node by node
//! while others are freed; it reports how many it took, not which. *Owners*: which CPU allocated an area before the
//! recording, and so whose pool it returns to. *Shape*: see [`Reading::given`]. A first reading is made of what events
//! suggest. At a difference a few others are tried, and the one that gets furthest replaces it. Nothing is tried that
//! events exclude: threads keep their own order, and each purge takes as many areas as it reports.

use std::collections::BTreeSet;
use std::time::Duration;

use foldhash::HashMap;
use nofrag::ranges::Span;
use nofrag::vmap::{AreaState, VmapPolicy, VmapSpace};

use super::case::{Case, Change, Listed};
use super::order::{Begun, Move, Order, Reading, Taken, order};
use super::replay::{Counts, Difference, Kind, Replayed, replay};
use crate::spaces::PAGE;

/// Steps on each side of a difference between which the order is doubted.
const DOUBTED: usize = 64;

/// The most readings of a recording that are tried.
pub(super) const PATIENCE: usize = 2000;

/// A recording that was compared.
#[derive(Debug)]
pub(super) struct Explained {
    pub(super) counts: Counts,
    pub(super) causes: Causes,
    /// The first difference that no reading explains.
    pub(super) first: Option<Difference>,
    /// Areas of the kernel's list at the end, and areas that only one of its list and the model's has; `None` without a
    /// list.
    pub(super) end: Option<(u64, u64)>,
    /// The model as it was at the end or at the first difference.
    pub(super) space: VmapSpace,
    /// Time of the last replay.
    pub(super) took: Duration,
}

/// Counts of inferences, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Causes {
    /// Changes that were made in another order than reported.
    pub(super) moved: u64,
    /// Areas of the start whose owner was learned from where they came up again.
    pub(super) learned: u64,
    /// Places taken from the recording, since they depend on the shape of the tree at the start.
    pub(super) given: u64,
}

/// Compares a recording with the model; tries at most `patience` readings beyond the first.
pub(super) fn explain(case: &Case, policy: VmapPolicy, patience: usize) -> Explained {
    let (mut reading, mut learned) = first_reading(case);
    let mut order = order(case, &reading);
    let mut replayed = replay(case, policy, &reading, &order.steps);
    let mut tries = patience;
    let mut excluded = BTreeSet::new();
    while let Some(first) = &replayed.first {
        if let Some(index) = excluded_owner(case, &reading, first)
            && excluded.insert(index)
        {
            reading.owners[index] = (reading.owners[index] + 1) % case.cpus as u16;
            order = super::order::order(case, &reading);
            replayed = replay(case, policy, &reading, &order.steps);
            learned += 1;
            continue;
        }
        let space = &replayed.space;
        let doubt = Doubt { case, reading: &reading, order: &order, first, space };
        let reached = reach(&replayed);
        let attempt = |other: Reading| {
            let order = super::order::order(case, &other);
            let replayed = replay(case, policy, &other, &order.steps);
            // A request that is only put off differs again.
            let differs_again = replayed.first.as_ref().is_some_and(|now| now.step == first.step);
            let better = !differs_again && reach(&replayed) > reached;
            better.then_some((other, order, replayed))
        };
        let told = doubt.told();
        tries = tries.saturating_sub(told.len());
        let next = match told.into_iter().find_map(attempt) {
            Some(next) => Some(next),
            None => {
                let others = doubt.others();
                if others.len() > tries {
                    break;
                }
                tries -= others.len();
                // A wrong reading fails soon after.
                let rank = |(other, _, replayed): &(Reading, Order, Replayed)| {
                    let by_itself = other.given.len() == reading.given.len();
                    (replayed.first.is_none(), reach(replayed), by_itself)
                };
                others.into_iter().filter_map(attempt).max_by_key(rank)
            }
        };
        let Some((other, other_order, next)) = next else { break };
        learned += u64::from(other.owners != reading.owners);
        (reading, order, replayed) = (other, other_order, next);
    }
    let given = replayed.counts.given;
    let causes = Causes { moved: displaced(&order.steps), learned, given };
    let end = compare_ends(case, &replayed);
    let Replayed { counts, first, space, took } = replayed;
    Explained { counts, causes, first, end, space, took }
}

/// Returns how far a replay came: changes that were made.
fn reach(replayed: &Replayed) -> u64 {
    let Counts { equal, given, frees, purges, .. } = replayed.counts;
    equal + given + frees + purges
}

/// Returns the reading to begin with, and the number of owners that it has learned: an area that comes up again with
/// its size was in the pool of the CPU that it comes to.
fn first_reading(case: &Case) -> (Reading, u64) {
    let mut reading = Reading { owners: vec![0; case.start.len()], ..Reading::default() };
    let starts = case.start.iter().enumerate();
    let mut unknown: HashMap<u64, usize> =
        starts.map(|(index, area)| (area.span.start(), index)).collect();
    let mut learned = 0;
    for step in &case.steps {
        let Change::Alloc { at, pages, .. } = step.change else { continue };
        if let Some(index) = unknown.remove(&at)
            && case.start[index].span.len() == pages
        {
            reading.owners[index] = step.cpu;
            learned += 1;
        }
    }
    (reading, learned)
}

/// Returns the area of the start that the model finds first in a pool, where the kernel finds another one: it is not in
/// the pool of that CPU.
fn excluded_owner(case: &Case, reading: &Reading, first: &Difference) -> Option<usize> {
    let Kind::Place { model: Some(model), pooled: true, .. } = first.kind else { return None };
    let index = case.start.iter().position(|area| area.span == model)?;
    let cpu = case.steps[first.step].cpu;
    (reading.owners[index] == cpu).then_some(index)
}

/// A difference, with the reading under which it came up.
struct Doubt<'a> {
    case: &'a Case,
    reading: &'a Reading,
    order: &'a Order,
    first: &'a Difference,
    space: &'a VmapSpace,
}

impl Doubt<'_> {
    /// Returns other readings that may explain the difference.
    fn others(&self) -> Vec<Reading> {
        let mut others = self.other_splits();
        if let Kind::Place { kernel, model, pooled } = self.first.kind {
            let overlaps = |span: Span| {
                let meets = |other: Span| span.intersection(other).is_some();
                meets(kernel) || model.is_some_and(meets)
            };
            others.extend(self.other_purges(&overlaps));
            others.extend(self.earlier_threads(&overlaps));
            let pool = pooled.then_some(kernel.len());
            others.extend(self.other_owners(&overlaps, pool));
            if !pooled && self.is_aligned() {
                others.push(self.but(|other| {
                    other.given.insert(self.first.step);
                }));
            }
        }
        others
    }

    /// Returns readings under which the place is in the pool that is asked: the area there is lazy, and the purge that
    /// takes it had given it back already; or it lies deeper in the pool, and the purge that is reported before had
    /// come to it just then.
    fn told(&self) -> Vec<Reading> {
        let Kind::Place { kernel, .. } = self.first.kind else { return Vec::new() };
        let Difference { position: at, step, .. } = *self.first;
        let records = self.space.areas().expect("memory for a list").into_iter();
        let found = records.into_iter().find(|record| record.area.span() == kernel);
        let begun = |mut other: Reading| {
            other.begun.insert(step, Begun::Through(kernel.start()));
            other
        };
        let told = match found.map(|record| record.state) {
            Some(AreaState::Lazy) => Some(begun(self.reading.clone())),
            Some(AreaState::Pooled) => {
                let purge = (0..at).rev().find(|&position| self.is_purge(position));
                purge.map(|purge| begun(self.moved(step, self.order.steps[purge])))
            }
            Some(AreaState::Busy) | None => None,
        };
        told.into_iter().collect()
    }

    /// Returns the reading with a change.
    fn but(&self, change: impl FnOnce(&mut Reading)) -> Reading {
        let mut other = self.reading.clone();
        change(&mut other);
        other
    }

    fn moved(&self, step: usize, before: usize) -> Reading {
        self.but(|other| other.moves.push(Move { step, before }))
    }

    fn change_at(&self, position: usize) -> Change {
        self.case.steps[self.order.steps[position]].change
    }

    fn is_purge(&self, position: usize) -> bool {
        matches!(self.change_at(position), Change::Purge { .. })
    }

    fn is_aligned(&self) -> bool {
        let change = self.case.steps[self.first.step].change;
        matches!(change, Change::Alloc { align_bytes, .. } if align_bytes >> PAGE > 1)
    }

    /// Returns the positions after the difference whose order is doubted.
    fn after(&self) -> std::ops::Range<usize> {
        let at = self.first.position;
        at + 1..self.order.steps.len().min(at + 1 + DOUBTED)
    }

    /// A purge up to here took others of the lazy areas: where many were left, that of the kernel's place and not that
    /// of the model's.
    fn other_splits(&self) -> Vec<Reading> {
        let last = self.first.step + DOUBTED;
        let doubted = |taken: &&Taken| taken.purge <= last && taken.left > 0;
        let purges = self.order.taken.iter().rev().filter(doubted).take(2);
        let places = match self.first.kind {
            Kind::Place { kernel, model, .. } => {
                let model = model.map(|model| (model.start(), true));
                [Some((kernel.start(), false)), model]
            }
            _ => [None, None],
        };
        let splits = purges.flat_map(|taken| {
            let split = |of_first| {
                self.but(|other| {
                    other.splits.insert(taken.purge, of_first);
                })
            };
            let told = places.iter().flatten();
            let told = told.filter_map(|&(start, stays)| taken.split_at(start, stays));
            let all = (taken.left <= DOUBTED).then_some(0..=taken.left);
            told.chain(all.into_iter().flatten()).map(split)
        });
        splits.collect()
    }

    /// A purge that is reported later had given areas back already, or some: up to one that is in the way, or a node.
    /// Or one that is reported earlier had not come that far.
    fn other_purges(&self, overlaps: &impl Fn(Span) -> bool) -> Vec<Reading> {
        let Difference { position: at, step, .. } = *self.first;
        let mut others = Vec::new();
        let is_purge = |&position: &usize| self.is_purge(position);
        if let Some(purge) = (at + 1..self.order.steps.len()).find(is_purge) {
            if purge <= at + DOUBTED {
                others.extend(self.order.steps.get(purge + 1).map(|&next| self.moved(step, next)));
            }
            let purge = self.order.steps[purge];
            let taken = self.order.taken.iter().find(|taken| taken.purge == purge);
            let parts = taken.into_iter().flat_map(|taken| [1, taken.of_first]).map(Begun::Areas);
            let parts = parts.chain(self.met(overlaps).map(Begun::Through));
            others.extend(parts.map(|begun| {
                self.but(|other| {
                    other.begun.insert(step, begun);
                })
            }));
        }
        let before = at.saturating_sub(DOUBTED)..at;
        let purge = before.rev().find(is_purge);
        others.extend(purge.map(|purge| self.moved(step, self.order.steps[purge])));
        others
    }

    /// Returns the first pages of the lazy areas of the model that are in the way.
    fn met(&self, overlaps: &impl Fn(Span) -> bool) -> impl Iterator<Item = u64> {
        let records = self.space.areas().expect("memory for a list").into_iter();
        let met = records.filter(|it| it.state == AreaState::Lazy && overlaps(it.area.span()));
        let starts: Vec<u64> = met.map(|it| it.area.start.get()).collect();
        starts.into_iter()
    }

    /// Another thread took the place first.
    fn earlier_threads(&self, overlaps: &impl Fn(Span) -> bool) -> Vec<Reading> {
        let thread = self.case.steps[self.first.step].thread;
        let rivals = self.after().filter(|&position| {
            let Change::Alloc { at, pages, .. } = self.change_at(position) else { return false };
            let other = self.case.steps[self.order.steps[position]].thread != thread;
            other && Span::sized(at, pages).is_ok_and(overlaps)
        });
        rivals.map(|rival| self.moved(self.order.steps[rival], self.first.step)).collect()
    }

    /// An area of the start returned to the pool of another CPU: one that is in the way, or one that made a pool
    /// longer, so that more of it decayed: of a size that is pooled on one side where the other has it free, or of
    /// `pool`.
    fn other_owners(&self, overlaps: &impl Fn(Span) -> bool, pool: Option<u64>) -> Vec<Reading> {
        let records = self.space.areas().expect("memory for a list").into_iter();
        let pooled = records.filter(|it| it.state == AreaState::Pooled).map(|it| it.area.span());
        let starts = self.case.start.iter().map(|area| area.span);
        let spans = pooled.chain(starts).filter(|&span| overlaps(span));
        let sizes: BTreeSet<u64> = spans.map(Span::len).chain(pool).collect();
        let before = &self.order.steps[..self.first.position];
        let freed = before.iter().filter_map(|&step| match self.case.steps[step].change {
            Change::Free { at, .. } => Some(at),
            _ => None,
        });
        let freed: BTreeSet<u64> = freed.collect();
        let starts = self.case.start.iter().enumerate();
        let doubted = starts.filter(|(_, area)| {
            let alike = sizes.contains(&area.span.len()) && freed.contains(&area.span.start());
            overlaps(area.span) || alike
        });
        let others = doubted.flat_map(|(index, _)| {
            let cpus =
                (0..self.case.cpus as u16).filter(move |&cpu| cpu != self.reading.owners[index]);
            cpus.map(move |cpu| self.but(|other| other.owners[index] = cpu))
        });
        others.collect()
    }
}

/// Returns the number of changes that do not stand where they were reported: the fewest that must be moved.
fn displaced(order: &[usize]) -> u64 {
    // All but the longest ascending part, by the last element of the best part of each length.
    let mut last: Vec<usize> = Vec::new();
    for &step in order {
        let at = last.partition_point(|&other| other < step);
        match last.get_mut(at) {
            Some(other) => *other = step,
            None => last.push(step),
        }
    }
    (order.len() - last.len()) as u64
}

/// Compares the lists at the end.
fn compare_ends(case: &Case, replayed: &Replayed) -> Option<(u64, u64)> {
    let kernel = case.end.as_ref()?;
    let records = replayed.space.areas().expect("memory for a list").into_iter();
    let shown = records.filter(|record| record.state != AreaState::Pooled);
    let mut model: Vec<Listed> = shown
        .map(|record| Listed { span: record.area.span(), lazy: record.state == AreaState::Lazy })
        .collect();
    model.sort_unstable();
    let only = |one: &[Listed], other: &[Listed]| {
        one.iter().filter(|area| other.binary_search(area).is_err()).count() as u64
    };
    Some((kernel.len() as u64, only(kernel, &model) + only(&model, kernel)))
}
