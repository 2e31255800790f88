//! What a process is doing while it frees pages: compacting, reclaiming, or working.
//!
//! A kernel traces how many pages `mm_migrate_pages` moved, and never from where to where. What the recording
//! of Linux 6.1 shows, and the rules here rest on (docs/decisions/0018):
//!
//! * Between `mm_compaction_begin` and `_end` of a process, the last `succeeded` frees of that process before each
//!   `mm_migrate_pages` are the *sources*: what they held lives on elsewhere.
//! * All its other frees there are of frames that are believed free: the free scanner had set them aside, which no
//!   event tells, and gives back what was not needed. They are no frees at all.
//! * *Targets* have no event. A free of a frame that is believed free, outside such a run, is of one of them.

use std::collections::HashMap;

use nofrag::units::Order;

use super::spans::FrameIndex;

/// A free inside a run of compaction, until it is known what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) frame: FrameIndex,
    pub(super) order: Order,
    pub(super) cpu: u16,
    pub(super) held: Held,
}

/// What a frame that is freed was believed to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// A block that begins there.
    Block,
    /// Nothing: it was believed free.
    Nothing,
}

/// What a process is doing.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    /// It compacts: its frees since the last migration, and how many pages of sources were settled before their time.
    Compacting { pending: Vec<Pending>, settled: u64 },
    /// It reclaims for itself.
    Reclaiming,
}

/// Nodes of a machine, each with a kswapd: a damaged file may name any number.
const MOST_NODES: usize = 1024;
/// Processes that compact or reclaim at a time, that are followed.
const MOST_AT_A_TIME: usize = 1 << 16;

/// What all processes are doing; who is not listed works.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    doing: HashMap<i32, Doing>,
    /// Those that are kswapd of some node.
    kswapds: Vec<i32>,
}

impl Processes {
    /// With those that are known to be kswapd by their names.
    pub(super) fn new(names: &[(i32, String)]) -> Processes {
        let kswapds = names.iter().filter(|(_, name)| name.starts_with("kswapd"));
        Processes { doing: HashMap::new(), kswapds: kswapds.map(|(pid, _)| *pid).collect() }
    }

    /// The process is kswapd: it woke or fell asleep as such.
    pub(super) fn is_kswapd(&mut self, pid: i32) {
        if !self.kswapds.contains(&pid) && self.kswapds.len() < MOST_NODES {
            self.kswapds.push(pid);
        }
    }

    /// What it did before. Of more processes than Linux runs at a time the one is not followed.
    pub(super) fn begin(&mut self, pid: i32, doing: Doing) -> Option<Doing> {
        if self.doing.len() >= MOST_AT_A_TIME && !self.doing.contains_key(&pid) {
            return None;
        }
        self.doing.insert(pid, doing)
    }

    pub(super) fn end(&mut self, pid: i32) -> Option<Doing> {
        self.doing.remove(&pid)
    }

    /// The frees of a process that compacts.
    pub(super) fn compacting(&mut self, pid: i32) -> Option<(&mut Vec<Pending>, &mut u64)> {
        // Most of the time nobody does, and most events ask.
        if self.doing.is_empty() {
            return None;
        }
        match self.doing.get_mut(&pid) {
            Some(Doing::Compacting { pending, settled }) => Some((pending, settled)),
            _ => None,
        }
    }

    /// Whether pages that the process frees now are freed by reclaim.
    pub(super) fn reclaims(&self, pid: i32) -> bool {
        self.kswapds.contains(&pid)
            || !self.doing.is_empty() && matches!(self.doing.get(&pid), Some(Doing::Reclaiming))
    }

    /// Takes a pending free out of whatever run holds it: its frame is wanted again, so it was a source.
    pub(super) fn settle(&mut self, frame: FrameIndex) -> Option<Pending> {
        self.doing.values_mut().find_map(|doing| {
            let Doing::Compacting { pending, settled } = doing else { return None };
            let at = pending.iter().position(|free| free.frame == frame)?;
            *settled += pending[at].order.pages();
            Some(pending.remove(at))
        })
    }

    /// Ends everything: events are missing. What was pending, by process, so that the order does not depend on chance.
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
