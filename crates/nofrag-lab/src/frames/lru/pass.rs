//! One pass over the lists: its requests to each list, in turn, and its end.

use super::counts::Sizes;
use super::lists::List;

/// The largest request to a list, in pages.
pub(super) const BATCH: u64 = 32;

/// The priority with which every run begins.
pub(super) const FIRST_PRIORITY: u8 = 12;

/// The decision whether a pass asks active lists, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ages {
    Yes,
    No,
    /// Unknown: the stretch does not tell whether file pages came back before it.
    Untold,
}

/// The maker and the aim of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassPlan {
    pub(super) priority: u8,
    /// The kernel's number of the highest zone.
    pub(super) class: usize,
    /// Reclaimed pages that end the pass.
    pub(super) target: u64,
    pub(super) direct: bool,
    pub(super) ages: Ages,
}

/// A request to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) list: List,
    pub(super) pages: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) plan: PassPlan,
    /// Pages yet to ask of each list.
    left: [u64; 4],
    /// Index of the list whose turn it is.
    turn: usize,
    pub(super) reclaimed: u64,
    pub(super) scanned: u64,
    /// The kernel has told the pass's priority.
    pub(super) told: bool,
    /// The decision on active lists has made a difference to the pass.
    pub(super) aged: bool,
}

impl Pass {
    pub(super) fn new(plan: PassPlan, sizes: &Sizes) -> Pass {
        let mut left = [0; 4];
        // Without swap, anonymous pages are left alone.
        for list in [List::InactiveFile, List::ActiveFile] {
            left[list.index()] = sizes.pages(list, plan.class) >> plan.priority;
        }
        Pass { plan, left, turn: 0, reclaimed: 0, scanned: 0, told: false, aged: false }
    }

    /// Returns true if the pass could not ask for any page.
    pub(super) fn is_empty(&self) -> bool {
        self.left == [0; 4]
    }

    /// Returns the next request; `None` when the pass is over.
    pub(super) fn next(&mut self) -> Option<Asked> {
        loop {
            if self.turn == 0 && self.is_done() {
                return None;
            }
            for index in self.turn..4 {
                let pages = self.left[index].min(BATCH);
                self.left[index] -= pages;
                let list = List::ALL[index];
                if pages > 0 && !(list.is_active() && self.plan.ages == Ages::No) {
                    self.turn = (index + 1) % 4;
                    // A round ends behind the last list, and is judged there.
                    return Some(Asked { list, pages });
                }
            }
            self.turn = 0;
        }
    }

    /// Returns the same pass under another decision on ageing.
    pub(super) fn had_it(&self, ages: Ages) -> Pass {
        Pass { plan: PassPlan { ages, ..self.plan }, ..self.clone() }
    }

    /// Returns true if the pass is over. Only a caller's own first pass goes on when there is enough.
    fn is_done(&self) -> bool {
        let exhausted = self.left == [0; 4];
        let persists = self.plan.direct && self.plan.priority == FIRST_PRIORITY;
        exhausted || self.reclaimed >= self.plan.target && !persists
    }
}
