//! One traced event, from any kind of file.
//!
//! Every kind is a row of [`KINDS`](super::kinds): its name, its fields and their best encoding. Readers, writers and
//! exports walk that table, so that a new kind costs one row; code that works with events takes their typed [`View`].

use super::kinds::{EventKind, MAX_FIELDS};

/// The frame number for "none": `mm_page_alloc` has it when a request failed.
pub const NO_FRAME: u64 = u64::MAX;

/// One event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in nanoseconds of the trace's clock.
    pub at: u64,
    /// ID of the thread that ran; 0 for the idle task, and where it is not known.
    pub pid: i32,
    /// The CPU on which the event happened.
    pub cpu: u16,
    pub kind: EventKind,
    /// The fields in the order of [`EventKind::fields`]; signed ones sign-extended, those after the last 0.
    pub values: [u64; MAX_FIELDS],
}

/// The fields of `mm_compaction_begin` and `mm_compaction_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRun {
    pub zone_start: u64,
    /// Position of the scanner for movable pages.
    pub migrate_pfn: u64,
    /// Position of the scanner for free pages.
    pub free_pfn: u64,
    /// The frame behind the zone's last.
    pub zone_end: u64,
    /// True if the run may wait.
    pub sync: bool,
}

/// The time at which a page stood in the array of a call of the bulk interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkMoment {
    /// Before the call: the page was in use already.
    Before,
    /// At the return of the call: the page is new, unless an event since then shows it in use.
    After,
}

/// An event with its fields by name, for the kinds that a replay acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// The fields have the kernel's names; see its `format` files.
#[non_exhaustive]
pub enum View {
    PageAlloc {
        pfn: Option<u64>,
        order: u32,
        gfp: u64,
        migratetype: i32,
    },
    PageFree {
        pfn: u64,
        order: u32,
    },
    ExtFrag {
        pfn: u64,
        alloc_order: i32,
        fallback_order: i32,
        alloc_migratetype: i32,
        fallback_migratetype: i32,
        change_ownership: bool,
    },
    CompactionBegin(CompactionRun),
    CompactionEnd {
        run: CompactionRun,
        status: i32,
    },
    /// Free frames of this range were set aside as targets of moves.
    IsolatedTargets {
        start: u64,
        end: u64,
        taken: u64,
    },
    MigratePages {
        succeeded: u64,
        failed: u64,
        thp_succeeded: u64,
        mode: i32,
        reason: i32,
    },
    DirectReclaimBegin {
        order: i32,
        gfp: u64,
    },
    DirectReclaimEnd {
        reclaimed: u64,
    },
    KswapdWake {
        node: i32,
        zone: i32,
        order: i32,
    },
    KswapdSleep {
        node: i32,
    },
    VmapAlloc {
        addr: u64,
        size: u64,
        align: u64,
        start: u64,
        end: u64,
        failed: bool,
    },
    VmapFree {
        start: u64,
        lazy: u64,
        lazy_max: u64,
    },
    VmapPurge {
        start: u64,
        end: u64,
        purged: u32,
    },
    UnmappedArea {
        /// The address, or the error as a negative number.
        addr: i64,
        flags: u64,
        length: u64,
        low: u64,
        high: u64,
        align_mask: u64,
        align_offset: u64,
    },
    Munmap {
        addr: u64,
        length: u64,
    },
    Mmap {
        addr: u64,
        length: u64,
        protection: u64,
        flags: u64,
        offset: u64,
    },
    /// A page was in the array of a call of the bulk interface.
    BulkPage {
        pfn: u64,
        gfp: u64,
        when: BulkMoment,
    },
    /// A call of the bulk interface returned: the first `filled` entries of its array are pages.
    BulkCall {
        filled: u64,
    },
    /// Events of this CPU are lost here; `None` when the kernel does not give their number.
    Lost(Option<u64>),
    /// An event of a kind that no replay acts on.
    Other,
}

impl Event {
    /// Makes the event that marks lost events at this time on this CPU; `count` is their number, where the kernel gives
    /// it.
    #[must_use]
    pub fn lost(at: u64, cpu: u16, count: Option<u64>) -> Event {
        let mut values = [0; MAX_FIELDS];
        values[0] = count.unwrap_or(0);
        Event { at, pid: 0, cpu, kind: EventKind::Lost, values }
    }

    /// Returns the fields by name.
    #[must_use]
    pub fn view(&self) -> View {
        let v = &self.values;
        let run = || CompactionRun {
            zone_start: v[0],
            migrate_pfn: v[1],
            free_pfn: v[2],
            zone_end: v[3],
            sync: v[4] != 0,
        };
        match self.kind {
            EventKind::PageAlloc => View::PageAlloc {
                pfn: (v[0] != NO_FRAME).then_some(v[0]),
                order: v[1] as u32,
                gfp: v[2],
                migratetype: v[3] as i32,
            },
            EventKind::PageFree => View::PageFree { pfn: v[0], order: v[1] as u32 },
            EventKind::ExtFrag => View::ExtFrag {
                pfn: v[0],
                alloc_order: v[1] as i32,
                fallback_order: v[2] as i32,
                alloc_migratetype: v[3] as i32,
                fallback_migratetype: v[4] as i32,
                change_ownership: v[5] != 0,
            },
            EventKind::CompactionBegin => View::CompactionBegin(run()),
            EventKind::CompactionEnd => View::CompactionEnd { run: run(), status: v[5] as i32 },
            EventKind::CompactionIsolateFreepages | EventKind::CompactionFastIsolateFreepages => {
                View::IsolatedTargets { start: v[0], end: v[1], taken: v[3] }
            }
            EventKind::MigratePages => View::MigratePages {
                succeeded: v[0],
                failed: v[1],
                thp_succeeded: v[2],
                mode: v[6] as i32,
                reason: v[7] as i32,
            },
            EventKind::DirectReclaimBegin => {
                View::DirectReclaimBegin { order: v[0] as i32, gfp: v[1] }
            }
            EventKind::DirectReclaimEnd => View::DirectReclaimEnd { reclaimed: v[0] },
            EventKind::KswapdWake => {
                View::KswapdWake { node: v[0] as i32, zone: v[1] as i32, order: v[2] as i32 }
            }
            EventKind::KswapdSleep => View::KswapdSleep { node: v[0] as i32 },
            EventKind::BulkPage => View::BulkPage {
                pfn: v[0],
                gfp: v[1],
                when: if v[2] == 0 { BulkMoment::After } else { BulkMoment::Before },
            },
            EventKind::BulkCall => View::BulkCall { filled: v[0] },
            _ => self.view_of_addresses(),
        }
    }

    /// Returns the fields of an event on addresses, for [`view`](Self::view).
    fn view_of_addresses(&self) -> View {
        let v = &self.values;
        match self.kind {
            EventKind::VmapAlloc => View::VmapAlloc {
                addr: v[0],
                size: v[1],
                align: v[2],
                start: v[3],
                end: v[4],
                failed: v[5] != 0,
            },
            EventKind::VmapFree => View::VmapFree { start: v[0], lazy: v[1], lazy_max: v[2] },
            EventKind::VmapPurge => View::VmapPurge { start: v[0], end: v[1], purged: v[2] as u32 },
            EventKind::UnmappedArea => View::UnmappedArea {
                addr: v[0] as i64,
                flags: v[2],
                length: v[3],
                low: v[4],
                high: v[5],
                align_mask: v[6],
                align_offset: v[7],
            },
            EventKind::Munmap => View::Munmap { addr: v[0], length: v[1] },
            EventKind::Mmap => {
                View::Mmap { addr: v[0], length: v[1], protection: v[2], flags: v[3], offset: v[5] }
            }
            EventKind::Lost => View::Lost((v[0] != 0).then_some(v[0])),
            _ => View::Other,
        }
    }
}
