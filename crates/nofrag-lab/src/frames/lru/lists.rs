//! The four lists, in order.

use std::collections::BTreeMap;
use std::ops::Range;

use foldhash::HashMap;
use nofrag::units::{Order, Pfn};

/// One of the four lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(super) enum List {
    InactiveAnon,
    ActiveAnon,
    InactiveFile,
    ActiveFile,
}

impl List {
    /// All lists, in the order of the kernel's numbers.
    pub(super) const ALL: [List; 4] =
        [List::InactiveAnon, List::ActiveAnon, List::InactiveFile, List::ActiveFile];

    pub(super) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn is_active(self) -> bool {
        matches!(self, List::ActiveAnon | List::ActiveFile)
    }

    pub(super) fn active(self) -> List {
        match self {
            List::InactiveAnon | List::ActiveAnon => List::ActiveAnon,
            List::InactiveFile | List::ActiveFile => List::ActiveFile,
        }
    }

    pub(super) fn inactive(self) -> List {
        match self {
            List::InactiveAnon | List::ActiveAnon => List::InactiveAnon,
            List::InactiveFile | List::ActiveFile => List::InactiveFile,
        }
    }
}

/// The frames on the four lists, and the orders of folios. Always true:
/// 1. A frame stands on one list at most.
/// 2. A larger place is nearer to the head.
#[derive(Debug, Default)]
pub(super) struct Lists {
    rows: [BTreeMap<u64, Pfn>; 4],
    places: BTreeMap<Pfn, (List, u64)>,
    next: u64,
    /// Orders of the folios of more than one page, listed or not.
    orders: HashMap<Pfn, Order>,
}

/// The frames at the end of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    /// In the order of the list, its end first.
    pub(super) taken: Vec<Pfn>,
    /// In the same order, the frames passed over: their zones are above the caller's.
    pub(super) skipped: Vec<Pfn>,
}

impl Lists {
    /// Gives a list its frames, the head first.
    pub(super) fn fill(&mut self, list: List, head_first: &[u64]) {
        for &pfn in head_first.iter().rev() {
            self.put(Pfn(pfn), list);
        }
    }

    /// Puts a frame at the head of a list, from wherever it stands.
    pub(super) fn put(&mut self, pfn: Pfn, list: List) {
        self.remove(pfn);
        self.places.insert(pfn, (list, self.next));
        self.rows[list.index()].insert(self.next, pfn);
        self.next += 1;
    }

    /// Takes a frame off its list; returns the list.
    pub(super) fn remove(&mut self, pfn: Pfn) -> Option<List> {
        let (list, place) = self.places.remove(&pfn)?;
        self.rows[list.index()].remove(&place);
        Some(list)
    }

    pub(super) fn list_of(&self, pfn: Pfn) -> Option<List> {
        self.places.get(&pfn).map(|(list, _)| *list)
    }

    /// Returns the frames of a range that stand on lists, in ascending order.
    pub(super) fn within(&self, range: Range<Pfn>) -> Vec<Pfn> {
        self.places.range(range).map(|(pfn, _)| *pfn).collect()
    }

    /// Returns the frames from the end of a list on, until as many pages are found as asked for: a folio that reaches
    /// beyond counts in full, a frame that the caller cannot use does not count.
    pub(super) fn tail(&self, list: List, asked: u64, usable: impl Fn(Pfn) -> bool) -> Tail {
        let mut tail = Tail::default();
        let mut pages = 0;
        for &pfn in self.rows[list.index()].values() {
            if pages >= asked {
                break;
            }
            if usable(pfn) {
                pages += self.pages(pfn);
                tail.taken.push(pfn);
            } else {
                tail.skipped.push(pfn);
            }
        }
        tail
    }

    /// Returns the frames of the list, its head first.
    pub(super) fn head_first(&self, list: List) -> impl Iterator<Item = Pfn> {
        self.rows[list.index()].values().rev().copied()
    }

    pub(super) fn set_order(&mut self, pfn: Pfn, order: Order) {
        if order == Order::ZERO {
            self.orders.remove(&pfn);
        } else {
            self.orders.insert(pfn, order);
        }
    }

    pub(super) fn order(&self, pfn: Pfn) -> Order {
        self.orders.get(&pfn).copied().unwrap_or(Order::ZERO)
    }

    pub(super) fn pages(&self, pfn: Pfn) -> u64 {
        self.order(pfn).pages()
    }

    pub(super) fn pages_of(&self, frames: &[Pfn]) -> u64 {
        frames.iter().map(|pfn| self.pages(*pfn)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(head_first: &[u64]) -> Lists {
        let mut lists = Lists::default();
        lists.fill(List::InactiveFile, head_first);
        lists
    }

    fn check_tail(lists: &Lists, asked: u64, below: u64, taken: &[u64], skipped: &[u64]) {
        let tail = lists.tail(List::InactiveFile, asked, |pfn| pfn.0 < below);
        let frames = |frames: &[u64]| frames.iter().copied().map(Pfn).collect::<Vec<_>>();
        assert_eq!((tail.taken, tail.skipped), (frames(taken), frames(skipped)));
    }

    #[test]
    fn frames_are_taken_from_the_end() {
        check_tail(&lists(&[1, 2, 3, 4]), 2, 100, &[4, 3], &[]);
        check_tail(&lists(&[1, 2]), 5, 100, &[2, 1], &[]);
    }

    #[test]
    fn frames_of_higher_zones_are_passed_over_and_do_not_count() {
        check_tail(&lists(&[1, 2, 300, 3, 400]), 2, 100, &[3, 2], &[400, 300]);
        // Frames behind the last one taken are not looked at.
        check_tail(&lists(&[300, 1, 400]), 1, 100, &[1], &[400]);
    }

    #[test]
    fn a_folio_counts_all_its_pages_and_may_be_more_than_asked_for() {
        let mut lists = lists(&[1, 2, 3, 8]);
        lists.set_order(Pfn(8), Order::new(2).unwrap());
        check_tail(&lists, 2, 100, &[8], &[]);
        check_tail(&lists, 5, 100, &[8, 3], &[]);
    }

    #[test]
    fn a_frame_put_anew_goes_to_the_head() {
        let mut lists = lists(&[1, 2, 3]);
        lists.put(Pfn(3), List::InactiveFile);
        lists.put(Pfn(1), List::ActiveFile);
        let row = |list| lists.head_first(list).map(|pfn| pfn.0).collect::<Vec<_>>();
        assert_eq!((row(List::InactiveFile), row(List::ActiveFile)), (vec![3, 2], vec![1]));
    }
}
