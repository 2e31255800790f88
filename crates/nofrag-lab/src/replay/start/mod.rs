//! From a snapshot to an allocator that holds what was in use.
//!
//! What is inferred from the files is inferred once ([`Host::of`]) and is the same for every run; [`Host::start`] loads
//! it under a policy and with a size of memory.

use nofrag::event::EventSink;
use nofrag::page::{FragmentationPolicy, MemoryMap, PageAllocator};
use nofrag::units::{Order, Pfn};
use nofrag_host::snapshot::{FrameUse, Snapshot};

use super::ReplayError;

/// The recorded host at the start of the recording.
#[derive(Debug)]
pub(super) struct Host {
    map: MemoryMap,
    in_use: Vec<Held>,
    quality: StartQuality,
}

/// What was inferred, and how well it fits what the kernel said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StartQuality {
    /// What cannot be said of the start; sentences.
    pub(super) cautions: Vec<String>,
}

/// What was changed for the size of a run's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resized {
    /// Pages that had to be dropped.
    pub(super) dropped: u64,
    /// Pages that lie elsewhere.
    pub(super) displaced: u64,
}

impl Host {
    /// What the snapshot says, and what has to be inferred; `seed` settles ties.
    pub(super) fn of(snapshot: &Snapshot<'_>, seed: u64) -> Result<Host, ReplayError> {
        let _ = (snapshot, seed);
        Err(ReplayError::Host("not built yet".to_owned()))
    }

    /// A host of which no snapshot says anything: all memory up to `highest`, the highest frame of the trace, is free.
    pub(super) fn empty(highest: Pfn, cpus: u32) -> Result<Host, ReplayError> {
        let _ = (highest, cpus);
        Err(ReplayError::Host("not built yet".to_owned()))
    }

    /// The recorded host's own memory, whatever the size of a run's.
    pub(super) fn map(&self) -> &MemoryMap {
        &self.map
    }

    /// Blocks in use at the start, in ascending order of their frames.
    pub(super) fn in_use(&self) -> &[Held] {
        &self.in_use
    }

    /// What was inferred, and how well it fits.
    pub(super) fn quality(&self) -> &StartQuality {
        &self.quality
    }

    /// An allocator that holds what was in use. `memory_percent` is the size of its memory.
    pub(super) fn start<E: EventSink>(
        &self,
        policy: FragmentationPolicy,
        memory_percent: u32,
        events: E,
    ) -> Result<Start<E>, ReplayError> {
        let _ = (policy, memory_percent, events);
        Err(ReplayError::Host("not built yet".to_owned()))
    }
}

/// A block that was in use at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    pub(super) usage: FrameUse,
}

/// A run's allocator at its start.
#[derive(Debug)]
pub(super) struct Start<E: EventSink> {
    pub(super) pages: PageAllocator<E>,
    /// For each of [`Host::in_use`], in that order: where it is in this run's memory; `None` if it had to be dropped.
    pub(super) places: Vec<Option<Pfn>>,
    /// What was changed for the size of memory.
    pub(super) resized: Resized,
}
