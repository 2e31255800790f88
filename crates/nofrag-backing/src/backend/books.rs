//! The reservations and mappings of a backend, and how many areas the system keeps for it: no system call is made for
//! any other range, and none that would pass the budget of areas.
//!
//! A change is written into the books first, which tells the resulting number of areas, and is taken back if the system
//! refuses. The state between is seen by no other thread, since a change holds the books alone.
//!
//! Mappings are kept as they were asked for: two that touch stay two. Linux merges some by itself, which is counted
//! here and not imitated.
//!
//! Source: docs/sources/backing.md#extents, #vma-limit.

use std::collections::BTreeMap;

use nofrag::check::{Check, Violation};

use super::{Access, BackendError, Va};
use crate::forks::Forks;

/// The contents that a mapping shows.
pub(super) trait Shown: Copy + PartialEq {
    /// Returns the contents that the mapping shows `bytes` bytes further on.
    fn further(self, bytes: u64) -> Self;

    /// Returns true if the system keeps both sides of an address in one area. A side that is only reserved is `None`;
    /// for the left side, the contents that a longer mapping would show at the address are given.
    fn is_one_area(left: Option<(Self, Access)>, right: Option<(Self, Access)>) -> bool;
}

/// A mapping; its first address is its key in the books.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mapping<M> {
    pub(super) bytes: u64,
    pub(super) shows: M,
    pub(super) access: Access,
}

impl<M: Shown> Mapping<M> {
    /// Returns the part of a mapping at `start` that lies in `from..to`, with its first address; `None` without one.
    fn clipped(self, start: u64, from: u64, to: u64) -> Option<(u64, Mapping<M>)> {
        let (low, high) = (start.max(from), (start + self.bytes).min(to));
        let part = || Mapping { bytes: high - low, shows: self.shows.further(low - start), ..self };
        (low < high).then(|| (low, part()))
    }
}

/// A change to a range: of its contents, or of the access to it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<M> {
    Map(M, Access),
    /// Nothing is mapped in the range any more; it stays reserved.
    Unmap,
    /// The range allows this access.
    Grant(Access),
}

/// The reservations and mappings of a backend.
///
/// 1. Reservations are disjoint.
/// 2. Every mapping lies in one reservation.
/// 3. Mappings are disjoint.
/// 4. `areas` is one for each reservation, and one more for each address inside where areas meet.
/// 5. `kept` is the number of areas that the system keeps of reservations that were struck off while it could not unmap
///    them.
/// 6. In a child that a reservation is hidden from, no range is in the books: another mapping may stand there.
#[derive(Debug)]
pub(super) struct BackendBooks<M> {
    reserved: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, Mapping<M>>,
    areas: u64,
    kept: u64,
    budget: Option<u64>,
    /// The process of the reservations, once one was hidden from children.
    hidden: Option<Forks>,
}

impl<M: Shown> BackendBooks<M> {
    pub(super) fn new(budget: Option<u64>) -> BackendBooks<M> {
        BackendBooks {
            reserved: BTreeMap::new(),
            mapped: BTreeMap::new(),
            areas: 0,
            kept: 0,
            budget,
            hidden: None,
        }
    }

    /// Returns the number of areas that the system keeps, or more than that where reservations touch.
    pub(super) fn areas(&self) -> u64 {
        self.areas + self.kept
    }

    /// Notes areas that stay though they are in no reservation any more.
    pub(super) fn keep(&mut self, areas: u64) {
        self.kept += areas;
    }

    /// Notes that areas which had stayed are gone.
    pub(super) fn let_go(&mut self, areas: u64) {
        self.kept -= areas;
    }

    /// Hides everything in the books from children from now on.
    pub(super) fn hide(&mut self) -> Result<(), BackendError> {
        if self.hidden.is_none() {
            self.hidden = Some(Forks::now()?);
        }
        Ok(())
    }

    /// Returns true if the ranges in the books are this process's: it is not a child that something was hidden from.
    pub(super) fn are_ours(&self) -> bool {
        self.hidden.is_none_or(Forks::is_same)
    }

    pub(super) fn reservations(&self) -> impl Iterator<Item = (Va, u64)> {
        self.reserved.iter().map(|(&start, &bytes)| (Va(start), bytes))
    }

    /// Refuses one more reservation if that would pass the budget.
    pub(super) fn may_reserve(&self) -> Result<(), BackendError> {
        self.within_budget(self.areas + 1)
    }

    fn within_budget(&self, areas: u64) -> Result<(), BackendError> {
        match self.budget {
            Some(budget) if areas + self.kept > budget => {
                Err(BackendError::MappingBudget { budget })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn enter(&mut self, va: Va, bytes: u64) {
        self.reserved.insert(va.0, bytes);
        self.areas += 1;
    }

    /// Returns true if the range is exactly one reservation.
    pub(super) fn is_reservation(&self, va: Va, bytes: u64) -> bool {
        self.are_ours() && self.reserved.get(&va.0) == Some(&bytes)
    }

    /// Returns the number of areas of a reservation.
    pub(super) fn areas_of(&self, va: Va, bytes: u64) -> u64 {
        1 + self.boundaries(va, bytes)
    }

    /// Strikes a reservation off with all mappings in it, which are returned.
    pub(super) fn strike(&mut self, va: Va, bytes: u64) -> Vec<(Va, Mapping<M>)> {
        debug_assert!(self.is_reservation(va, bytes), "checked by the caller");
        self.areas -= self.areas_of(va, bytes);
        self.reserved.remove(&va.0);
        let inside = self.mapped.extract_if(va.0..va.0 + bytes, |_, _| true);
        inside.map(|(start, mapping)| (Va(start), mapping)).collect()
    }

    /// Returns the first address and the bytes of the reservation that the range lies in.
    fn reservation_of(&self, va: Va, bytes: u64) -> Option<(u64, u64)> {
        let (&start, &reserved) = self.reserved.range(..=va.0).next_back()?;
        let inside = bytes > 0 && bytes <= reserved && va.0 - start <= reserved - bytes;
        inside.then_some((start, reserved))
    }

    /// Refuses a range that does not lie in one reservation.
    pub(super) fn check_reserved(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let found = self.reservation_of(va, bytes).filter(|_| self.are_ours());
        found.map(drop).ok_or(BackendError::WrongState)
    }

    /// Refuses a range that is not mapped from its first byte to its last.
    pub(super) fn check_mapped(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        self.check_reserved(va, bytes)?;
        let covered: u64 = self.parts(va, bytes).map(|(_, part)| part.bytes).sum();
        if covered == bytes { Ok(()) } else { Err(BackendError::WrongState) }
    }

    /// Returns true if no part of the range is mapped.
    pub(super) fn is_unmapped(&self, va: Va, bytes: u64) -> bool {
        self.parts(va, bytes).next().is_none()
    }

    /// Returns true if all mappings in the range have `access`.
    pub(super) fn allows_all(&self, va: Va, bytes: u64, access: Access) -> bool {
        self.parts(va, bytes).all(|(_, part)| part.access == access)
    }

    /// Iterates over the mappings in the range, cut to it, from the lowest address on.
    pub(super) fn parts(&self, va: Va, bytes: u64) -> impl Iterator<Item = (Va, Mapping<M>)> {
        let (from, to) = (va.0, va.0.saturating_add(bytes));
        let first = self.at(from).map_or(from, |(start, _)| start);
        let parts = self.mapped.range(first..to);
        parts.filter_map(move |(&start, mapping)| {
            mapping.clipped(start, from, to).map(|(start, part)| (Va(start), part))
        })
    }

    /// Returns the mapping that holds the address `at`, with its first address.
    fn at(&self, at: u64) -> Option<(u64, &Mapping<M>)> {
        let (&start, mapping) = self.mapped.range(..=at).next_back()?;
        (at - start < mapping.bytes).then_some((start, mapping))
    }

    /// Counts the addresses of the range, its ends included, at which areas meet.
    fn boundaries(&self, va: Va, bytes: u64) -> u64 {
        let Some((start, reserved)) = self.reservation_of(va, bytes) else { return 0 };
        let (from, to) = (va.0.max(start + 1), (va.0 + bytes).min(start + reserved - 1));
        if from > to {
            return 0;
        }
        let below = self.mapped.range(..from).next_back();
        let edges = below.into_iter().chain(self.mapped.range(from..=to));
        let mut edges: Vec<u64> = edges
            .flat_map(|(&start, mapping)| [start, start + mapping.bytes])
            .filter(|edge| (from..=to).contains(edge))
            .collect();
        edges.dedup();
        edges.into_iter().filter(|&edge| !self.is_one_area(edge)).count() as u64
    }

    fn is_one_area(&self, edge: u64) -> bool {
        let left = self
            .at(edge - 1)
            .map(|(start, mapping)| (mapping.shows.further(edge - start), mapping.access));
        let right = self
            .at(edge)
            .map(|(start, mapping)| (mapping.shows.further(edge - start), mapping.access));
        M::is_one_area(left, right)
    }

    /// Changes a range of one reservation, if `carry_out` succeeds. Returns the mappings that were there, cut to the
    /// range.
    ///
    /// A change to more areas than the budget allows is refused before anything is tried.
    pub(super) fn change(
        &mut self,
        (va, bytes): (Va, u64),
        change: Change<M>,
        carry_out: impl FnOnce() -> Result<(), BackendError>,
    ) -> Result<Vec<(Va, Mapping<M>)>, BackendError> {
        let before = self.boundaries(va, bytes);
        let replaced: Vec<_> = self.parts(va, bytes).collect();
        let originals = self.cut_out(va, bytes);
        match change {
            Change::Unmap => {}
            Change::Map(shows, access) => {
                self.mapped.insert(va.0, Mapping { bytes, shows, access });
            }
            Change::Grant(access) => {
                let granted = replaced.iter().map(|&(at, part)| (at.0, Mapping { access, ..part }));
                self.mapped.extend(granted);
            }
        }
        let areas = self.areas - before + self.boundaries(va, bytes);
        let allowed = if areas > self.areas { self.within_budget(areas) } else { Ok(()) };
        match allowed.and_then(|()| carry_out()) {
            Ok(()) => {
                self.areas = areas;
                Ok(replaced)
            }
            Err(error) => {
                self.restore((va, bytes), originals);
                Err(error)
            }
        }
    }

    /// Takes the range out of every mapping that has a part of it; returns the original mappings by first address.
    fn cut_out(&mut self, va: Va, bytes: u64) -> Vec<(u64, Mapping<M>)> {
        let (from, to) = (va.0, va.0 + bytes);
        let first = self.at(from).map_or(from, |(start, _)| start);
        let originals: Vec<_> = self.mapped.extract_if(first..to, |_, _| true).collect();
        for &(start, mapping) in &originals {
            let end = start + mapping.bytes;
            self.mapped.extend(mapping.clipped(start, start, from));
            self.mapped.extend(mapping.clipped(start, to, end));
        }
        originals
    }

    fn restore(&mut self, (va, bytes): (Va, u64), originals: Vec<(u64, Mapping<M>)>) {
        let ends = originals.iter().map(|(start, mapping)| start + mapping.bytes);
        let end = ends.fold(va.0 + bytes, u64::max);
        let start = originals.iter().map(|&(start, _)| start).fold(va.0, u64::min);
        self.mapped.extract_if(start..end, |_, _| true).for_each(drop);
        self.mapped.extend(originals);
    }
}

impl<M: Shown> Check for BackendBooks<M> {
    fn check(&self) -> Result<(), Violation> {
        let mut last_end = 0;
        for (&start, &bytes) in &self.reserved {
            Violation::unless("Reservations are disjoint.", start, last_end <= start)?;
            last_end = start + bytes;
        }
        let mut last_end = 0;
        for (&start, mapping) in &self.mapped {
            let inside = self.reservation_of(Va(start), mapping.bytes).is_some();
            Violation::unless("Every mapping lies in one reservation.", start, inside)?;
            Violation::unless("Mappings are disjoint.", start, last_end <= start)?;
            last_end = start + mapping.bytes;
        }
        let meet = |(&start, &bytes): (&u64, &u64)| self.areas_of(Va(start), bytes);
        let areas = self.reserved.iter().map(meet).sum();
        let law = "`areas` is one for each reservation, and one more for each address inside where areas meet.";
        Violation::unless_equal(law, 0, areas, self.areas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct At(u64);

    impl Shown for At {
        fn further(self, bytes: u64) -> At {
            At(self.0 + bytes)
        }

        fn is_one_area(left: Option<(At, Access)>, right: Option<(At, Access)>) -> bool {
            left == right
        }
    }

    fn books() -> BackendBooks<At> {
        let mut books = BackendBooks::new(Some(5));
        books.enter(Va(100), 100);
        books
    }

    fn map(books: &mut BackendBooks<At>, va: u64, bytes: u64, at: u64) -> Result<(), BackendError> {
        let change = Change::Map(At(at), Access::ReadWrite);
        books.change((Va(va), bytes), change, || Ok(())).map(drop)
    }

    #[test]
    fn neighbours_that_continue_each_other_are_one_area() {
        let mut books = books();
        map(&mut books, 120, 10, 0).unwrap();
        assert_eq!(books.areas(), 3);
        map(&mut books, 130, 10, 10).unwrap();
        assert_eq!(books.areas(), 3);
        map(&mut books, 140, 10, 99).unwrap();
        assert_eq!(books.areas(), 4);
        books.check().unwrap();
    }

    #[test]
    fn what_passes_the_budget_is_refused_and_changes_nothing() {
        let mut books = books();
        map(&mut books, 110, 1, 0).unwrap();
        map(&mut books, 120, 1, 50).unwrap();
        let refused = map(&mut books, 130, 1, 70);
        assert_eq!(refused, Err(BackendError::MappingBudget { budget: 5 }));
        books.check().unwrap();
        assert!(books.is_unmapped(Va(130), 1));
        // A mapping that joins two areas into one is always allowed.
        map(&mut books, 111, 9, 1).unwrap();
        assert_eq!(books.areas(), 4);
        books.check().unwrap();
    }

    #[test]
    fn what_could_not_be_unmapped_counts_as_long_as_it_is_there() {
        let mut books = books();
        books.keep(4);
        let refused = Err(BackendError::MappingBudget { budget: 5 });
        assert_eq!((books.areas(), books.may_reserve()), (5, refused));
        assert_eq!(map(&mut books, 110, 1, 0), refused);
        books.let_go(4);
        assert_eq!((books.may_reserve(), map(&mut books, 110, 1, 0)), (Ok(()), Ok(())));
        books.check().unwrap();
    }

    #[test]
    fn a_refused_change_leaves_every_mapping_as_it_was() {
        let mut books = books();
        map(&mut books, 110, 10, 0).unwrap();
        map(&mut books, 120, 10, 10).unwrap();
        let refusal = BackendError::Unsupported;
        for change in [Change::Unmap, Change::Map(At(7), Access::Read), Change::Grant(Access::None)]
        {
            let before: Vec<_> = books.parts(Va(100), 100).collect();
            let refused = books.change((Va(115), 10), change, || Err(refusal));
            assert_eq!(refused, Err(refusal));
            books.check().unwrap();
            assert_eq!(books.parts(Va(100), 100).collect::<Vec<_>>(), before);
        }
    }

    #[test]
    fn a_mapping_is_cut_where_a_part_goes() {
        let mut books = books();
        map(&mut books, 110, 30, 0).unwrap();
        let gone = books.change((Va(120), 10), Change::Unmap, || Ok(())).unwrap();
        let gone: Vec<_> = gone.iter().map(|(at, part)| (at.0, part.bytes, part.shows.0)).collect();
        assert_eq!(gone, [(120, 10, 10)]);
        assert!(books.check_mapped(Va(110), 30).is_err());
        assert!(books.check_mapped(Va(130), 10).is_ok());
        books.check().unwrap();
    }
}
