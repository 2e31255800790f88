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

impl Event {
    /// Makes the event that marks lost events at this time on this CPU; `count` is their number, where the kernel gives
    /// it.
    #[must_use]
    pub fn lost(at: u64, cpu: u16, count: Option<u64>) -> Event {
        let mut values = [0; MAX_FIELDS];
        values[0] = count.unwrap_or(0);
        Event { at, pid: 0, cpu, kind: EventKind::Lost, values }
    }
}

/// The fields of the events of a run's beginning and end.
fn run(v: &[u64; MAX_FIELDS]) -> CompactionRun {
    let [zone_start, migrate_pfn, free_pfn, zone_end, sync, ..] = *v;
    CompactionRun { zone_start, migrate_pfn, free_pfn, zone_end, sync: sync != 0 }
}

/// Declares [`View`]: for kinds, a variant with its fields, each with its type and as it follows from the values.
macro_rules! views {
    ($v:ident; $($(#[$doc:meta])* $($kind:ident)|+ => $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $value:expr),*
    };)*) => {
        /// An event with its fields by name, for the kinds that a replay acts on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        // The fields have the kernel's names; see its `format` files.
        #[non_exhaustive]
        pub enum View {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type),* },)*
            CompactionBegin(CompactionRun),
            /// Events of this CPU are lost here; `None` when the kernel does not give their number.
            Lost(Option<u64>),
            /// An event of a kind that no replay acts on.
            Other,
        }

        impl Event {
            /// Returns the fields by name.
            #[must_use]
            pub fn view(&self) -> View {
                let $v = &self.values;
                match self.kind {
                    $($(EventKind::$kind)|+ => View::$name { $($field: $value),* },)*
                    EventKind::CompactionBegin => View::CompactionBegin(run($v)),
                    EventKind::Lost => View::Lost(($v[0] != 0).then_some($v[0])),
                    _ => View::Other,
                }
            }
        }
    };
}

views! {
    v;
    PageAlloc => PageAlloc {
        pfn: Option<u64> = (v[0] != NO_FRAME).then_some(v[0]), order: u32 = v[1] as u32, gfp: u64 = v[2],
        migratetype: i32 = v[3] as i32
    };
    PageFree => PageFree { pfn: u64 = v[0], order: u32 = v[1] as u32 };
    ExtFrag => ExtFrag {
        pfn: u64 = v[0], alloc_order: i32 = v[1] as i32, fallback_order: i32 = v[2] as i32,
        alloc_migratetype: i32 = v[3] as i32, fallback_migratetype: i32 = v[4] as i32,
        change_ownership: bool = v[5] != 0
    };
    CompactionEnd => CompactionEnd { run: CompactionRun = run(v), status: i32 = v[5] as i32 };
    /// Free frames of this range were set aside as targets of moves.
    CompactionIsolateFreepages | CompactionFastIsolateFreepages => IsolatedTargets {
        start: u64 = v[0], end: u64 = v[1], taken: u64 = v[3]
    };
    MigratePages => MigratePages {
        succeeded: u64 = v[0], failed: u64 = v[1], thp_succeeded: u64 = v[2], mode: i32 = v[6] as i32,
        reason: i32 = v[7] as i32
    };
    DirectReclaimBegin => DirectReclaimBegin { order: i32 = v[0] as i32, gfp: u64 = v[1] };
    DirectReclaimEnd => DirectReclaimEnd { reclaimed: u64 = v[0] };
    KswapdWake => KswapdWake { node: i32 = v[0] as i32, zone: i32 = v[1] as i32, order: i32 = v[2] as i32 };
    KswapdSleep => KswapdSleep { node: i32 = v[0] as i32 };
    VmapAlloc => VmapAlloc {
        addr: u64 = v[0], size: u64 = v[1], align: u64 = v[2], start: u64 = v[3], end: u64 = v[4],
        failed: bool = v[5] != 0
    };
    VmapFree => VmapFree { start: u64 = v[0], lazy: u64 = v[1], lazy_max: u64 = v[2] };
    VmapPurge => VmapPurge { start: u64 = v[0], end: u64 = v[1], purged: u32 = v[2] as u32 };
    UnmappedArea => UnmappedArea {
        /// The address, or the error as a negative number.
        addr: i64 = v[0] as i64, flags: u64 = v[2], length: u64 = v[3], low: u64 = v[4], high: u64 = v[5],
        align_mask: u64 = v[6], align_offset: u64 = v[7]
    };
    Munmap => Munmap { addr: u64 = v[0], length: u64 = v[1] };
    Mmap => Mmap {
        addr: u64 = v[0], length: u64 = v[1], protection: u64 = v[2], flags: u64 = v[3], offset: u64 = v[5]
    };
    /// A page was in the array of a call of the bulk interface.
    BulkPage => BulkPage {
        pfn: u64 = v[0], gfp: u64 = v[1],
        when: BulkMoment = if v[2] == 0 { BulkMoment::After } else { BulkMoment::Before }
    };
    /// A call of the bulk interface returned: the first `filled` entries of its array are pages.
    BulkCall => BulkCall { filled: u64 = v[0] };
}
