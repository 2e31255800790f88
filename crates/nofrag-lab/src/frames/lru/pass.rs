//! One pass over the lists: what it asks of which list, in turn, and when it is over.

use super::counts::Sizes;
use super::lists::List;

/// The most that is asked of a list at a time.
pub(super) const BATCH: u64 = 32;

/// The priority with which every run begins.
pub(super) const FIRST_PRIORITY: u8 = 12;

/// Whether active lists are asked too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ages {
    Yes,
    No,
    /// Whether file pages came back before the stretch is not in its data.
    Untold,
}

/// Who makes the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) priority: u8,
    /// The kernel's number of the highest zone.
    pub(super) class: usize,
    /// Reclaimed pages with which it is content.
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

/// A pass under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) plan: Plan,
    /// Pages yet to ask of each list.
    left: [u64; 4],
    /// The list whose turn it is.
    turn: usize,
    pub(super) reclaimed: u64,
    pub(super) scanned: u64,
    /// The kernel has told its priority.
    pub(super) told: bool,
    /// The question whether it ages has come up.
    pub(super) aged: bool,
}

impl Pass {
    pub(super) fn new(plan: Plan, sizes: &Sizes) -> Pass {
        let mut left = [0; 4];
        // Without swap, anonymous pages are left alone.
        for list in [List::InactiveFile, List::ActiveFile] {
            left[list.index()] = sizes.pages(list, plan.class) >> plan.priority;
        }
        Pass { plan, left, turn: 0, reclaimed: 0, scanned: 0, told: false, aged: false }
    }

    /// Whether there is nothing that it could ask for.
    pub(super) fn is_empty(&self) -> bool {
        self.left == [0; 4]
    }

    /// The next request; `None` when the pass is over.
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
                    // A round is over behind the last list, and judged there.
                    return Some(Asked { list, pages });
                }
            }
            self.turn = 0;
        }
    }

    /// The same pass, had it been decided otherwise whether it ages.
    pub(super) fn had_it(&self, ages: Ages) -> Pass {
        Pass { plan: Plan { ages, ..self.plan }, ..self.clone() }
    }

    /// Only a caller's own first pass goes on when there is enough.
    fn is_done(&self) -> bool {
        let exhausted = self.left == [0; 4];
        let persists = self.plan.direct && self.plan.priority == FIRST_PRIORITY;
        exhausted || self.reclaimed >= self.plan.target && !persists
    }
}
