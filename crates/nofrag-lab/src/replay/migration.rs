//! The occupation of a process while it frees pages: compacting, reclaiming, or working.
//!
//! A kernel traces the number of pages that `mm_migrate_pages` moved, and never from where to where. The rules here
//! rest on the following, as the recording of Linux 6.1 shows it (docs/decisions/0018):
//!
//! * Between `mm_compaction_begin` and `_end` of a process, the last `succeeded` frees of that process before each
//!   `mm_migrate_pages` are the *sources*: their content lives on elsewhere.
//! * All its other frees there are of frames that are believed free: the free scanner had set them aside, which no
//!   event tells, and gives back those that were not needed. They are no frees at all.
//! * *Targets* have no event. A free of a frame that is believed free, outside such a run, is of one of them.

use foldhash::{HashMap, HashMapExt};
use nofrag::units::Order;
use nofrag_host::trace::EventKind;

use super::spans::FrameIndex;

/// A free inside a run of compaction, until its meaning is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) frame: FrameIndex,
    pub(super) order: Order,
    pub(super) cpu: u16,
    pub(super) held: Held,
}

/// The content that a freed frame was believed to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// A block that begins there.
    Block,
    /// No content: the frame was believed free.
    Nothing,
}

/// The occupation of a process that compacts or reclaims.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// Compaction: the frees since the last `mm_migrate_pages`, and the number of pages of sources that
    /// [`Processes::settle`] has already taken out of them.
    Compacting { pending: Vec<Pending>, settled: u64 },
    /// Direct reclaim.
    Reclaiming,
}

/// The most kswapds that are noted, one for each node: a damaged file may name any number.
const MOST_NODES: usize = 1024;
/// The most processes whose compaction or reclaim is followed at a time.
const MOST_AT_A_TIME: usize = 1 << 16;

/// Occupations of all processes; one that is not listed works.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    doing: HashMap<i32, Doing>,
    /// Processes that are kswapd of some node.
    kswapds: Vec<i32>,
    /// Processes that are kcompactd of some node.
    kcompactds: Vec<i32>,
}

impl Processes {
    /// Creates the occupations, with the processes that are known to be kswapd by their names.
    pub(super) fn new(names: &[(i32, String)]) -> Processes {
        let named = |start: &str| {
            let named = names.iter().filter(|(_, name)| name.starts_with(start));
            named.map(|(pid, _)| *pid).collect()
        };
        Processes {
            doing: HashMap::new(),
            kswapds: named("kswapd"),
            kcompactds: named("kcompactd"),
        }
    }

    /// Notes that a process is kswapd: it woke or fell asleep as such.
    pub(super) fn is_kswapd(&mut self, pid: i32) {
        if !self.kswapds.contains(&pid) && self.kswapds.len() < MOST_NODES {
            self.kswapds.push(pid);
        }
    }

    /// Notes that a process is kcompactd, if it worked or fell asleep as such.
    pub(super) fn look(&mut self, kind: EventKind, pid: i32) {
        if matches!(kind, EventKind::KcompactdWake | EventKind::KcompactdSleep)
            && !self.kcompactds.contains(&pid)
            && self.kcompactds.len() < MOST_NODES
        {
            self.kcompactds.push(pid);
        }
    }

    /// Returns true if a process is known to be kcompactd.
    pub(super) fn compacts_for_others(&self, pid: i32) -> bool {
        self.kcompactds.contains(&pid)
    }

    /// Begins an occupation; returns the one before. Beyond [`MOST_AT_A_TIME`] processes a new one is not followed.
    pub(super) fn begin(&mut self, pid: i32, doing: Doing) -> Option<Doing> {
        if self.doing.len() >= MOST_AT_A_TIME && !self.doing.contains_key(&pid) {
            return None;
        }
        self.doing.insert(pid, doing)
    }

    pub(super) fn end(&mut self, pid: i32) -> Option<Doing> {
        self.doing.remove(&pid)
    }

    /// Returns the pending frees of a process and the number of its settled pages; `None` if it does not compact.
    pub(super) fn compacting(&mut self, pid: i32) -> Option<(&mut Vec<Pending>, &mut u64)> {
        // Mostly no process compacts, and most events ask.
        if self.doing.is_empty() {
            return None;
        }
        match self.doing.get_mut(&pid) {
            Some(Doing::Compacting { pending, settled }) => Some((pending, settled)),
            _ => None,
        }
    }

    /// Returns true if pages that the process frees now are freed by reclaim.
    pub(super) fn reclaims(&self, pid: i32) -> bool {
        self.kswapds.contains(&pid)
            || !self.doing.is_empty() && matches!(self.doing.get(&pid), Some(Doing::Reclaiming))
    }

    /// Takes the pending free of a frame out of the run of compaction that holds it, as the frame is wanted again and
    /// so was a source; `None` if no run holds it.
    pub(super) fn settle(&mut self, frame: FrameIndex) -> Option<Pending> {
        self.doing.values_mut().find_map(|doing| {
            let Doing::Compacting { pending, settled } = doing else { return None };
            let at = pending.iter().position(|free| free.frame == frame)?;
            *settled += pending[at].order.pages();
            Some(pending.remove(at))
        })
    }

    /// Ends all occupations, as events are missing. Returns the pending frees, by process, so that the order does not
    /// depend on chance.
    pub(super) fn forget(&mut self) -> Vec<Pending> {
        let mut all: Vec<_> = self.doing.drain().collect();
        all.sort_unstable_by_key(|(pid, _)| *pid);
        let pending = all.into_iter().filter_map(|(_, doing)| match doing {
            Doing::Compacting { pending, .. } => Some(pending),
            Doing::Reclaiming => None,
        });
        pending.flatten().collect()
    }
}
