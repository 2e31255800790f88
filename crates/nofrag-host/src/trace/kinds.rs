//! The kinds of events, as one table, by which readers search, writers store and exports show.
//!
//! Source: docs/sources/trace.md#tracepoints, #t9.

/// Most fields of a kind.
pub const MAX_FIELDS: usize = 8;

/// The kind of an event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[repr(u8)]
// Each is a tracepoint; the table below names it.
#[non_exhaustive]
pub enum EventKind {
    PageAlloc,
    PageFree,
    PageFreeBatched,
    ExtFrag,
    ZoneLocked,
    PcpuDrain,
    CompactionBegin,
    CompactionEnd,
    TryToCompact,
    CompactionFinished,
    CompactionSuitable,
    CompactionDeferred,
    KcompactdWake,
    KcompactdSleep,
    MigratePages,
    WakeupKswapd,
    KswapdWake,
    KswapdSleep,
    DirectReclaimBegin,
    DirectReclaimEnd,
    VmapAlloc,
    VmapFree,
    VmapPurge,
    UnmappedArea,
    ExitMmap,
    Munmap,
    /// Not a tracepoint: events were lost here.
    Lost,
    Mmap,
    CompactionIsolateMigratepages,
    CompactionIsolateFreepages,
    /// Not a tracepoint: a page in the array of a call of the kernel's bulk interface, by `nofrag record --bulk`.
    BulkPage,
    /// Not a tracepoint: a call of the bulk interface returned.
    BulkCall,
    CompactionFastIsolateFreepages,
}

/// The distribution of a field's values, for code that stores or shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldClass {
    /// Frame numbers: each near to the one before.
    Pfn,
    /// Addresses: each near to the one before.
    Address,
    /// Few distinct values: orders, types, flags, zones.
    Few,
    Number,
}

/// One field of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field in the `format` file.
    pub name: &'static str,
    pub class: FieldClass,
}

/// A row of [`KINDS`]: a kind with its tracepoint and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindInfo {
    pub kind: EventKind,
    /// The trace group, such as `kmem`.
    pub group: &'static str,
    /// The tracepoint, such as `mm_page_alloc`.
    pub name: &'static str,
    /// The fields that are kept, in the order of [`Event::values`](super::Event::values). A field that a kernel's
    /// `format` lacks is 0.
    pub fields: &'static [Field],
}

const fn pfn(name: &'static str) -> Field {
    Field { name, class: FieldClass::Pfn }
}

const fn address(name: &'static str) -> Field {
    Field { name, class: FieldClass::Address }
}

const fn few(name: &'static str) -> Field {
    Field { name, class: FieldClass::Few }
}

const fn number(name: &'static str) -> Field {
    Field { name, class: FieldClass::Number }
}

const fn row(
    kind: EventKind,
    group: &'static str,
    name: &'static str,
    fields: &'static [Field],
) -> KindInfo {
    assert!(fields.len() <= MAX_FIELDS, "an event has room for so many");
    KindInfo { kind, group, name, fields }
}

/// All kinds, in the order of their numbers. Numbers are part of the recording format: new ones go to the end.
pub const KINDS: [KindInfo; 33] = {
    use EventKind as K;
    [
        row(
            K::PageAlloc,
            "kmem",
            "mm_page_alloc",
            &[pfn("pfn"), few("order"), few("gfp_flags"), few("migratetype")],
        ),
        row(K::PageFree, "kmem", "mm_page_free", &[pfn("pfn"), few("order")]),
        row(K::PageFreeBatched, "kmem", "mm_page_free_batched", &[pfn("pfn")]),
        row(
            K::ExtFrag,
            "kmem",
            "mm_page_alloc_extfrag",
            &[
                pfn("pfn"),
                few("alloc_order"),
                few("fallback_order"),
                few("alloc_migratetype"),
                few("fallback_migratetype"),
                few("change_ownership"),
            ],
        ),
        row(
            K::ZoneLocked,
            "kmem",
            "mm_page_alloc_zone_locked",
            &[pfn("pfn"), few("order"), few("migratetype"), few("percpu_refill")],
        ),
        row(
            K::PcpuDrain,
            "kmem",
            "mm_page_pcpu_drain",
            &[pfn("pfn"), few("order"), few("migratetype")],
        ),
        row(K::CompactionBegin, "compaction", "mm_compaction_begin", COMPACTION_RUN),
        row(
            K::CompactionEnd,
            "compaction",
            "mm_compaction_end",
            &[
                pfn("zone_start"),
                pfn("migrate_pfn"),
                pfn("free_pfn"),
                pfn("zone_end"),
                few("sync"),
                few("status"),
            ],
        ),
        row(
            K::TryToCompact,
            "compaction",
            "mm_compaction_try_to_compact_pages",
            &[few("order"), few("gfp_mask"), few("prio")],
        ),
        row(K::CompactionFinished, "compaction", "mm_compaction_finished", COMPACTION_VERDICT),
        row(K::CompactionSuitable, "compaction", "mm_compaction_suitable", COMPACTION_VERDICT),
        row(
            K::CompactionDeferred,
            "compaction",
            "mm_compaction_deferred",
            &[
                few("nid"),
                few("idx"),
                few("order"),
                number("considered"),
                few("defer_shift"),
                few("order_failed"),
            ],
        ),
        row(
            K::KcompactdWake,
            "compaction",
            "mm_compaction_kcompactd_wake",
            &[few("nid"), few("order"), few("highest_zoneidx")],
        ),
        row(K::KcompactdSleep, "compaction", "mm_compaction_kcompactd_sleep", &[few("nid")]),
        row(
            K::MigratePages,
            "migrate",
            "mm_migrate_pages",
            &[
                number("succeeded"),
                number("failed"),
                number("thp_succeeded"),
                number("thp_failed"),
                number("thp_split"),
                number("large_folio_split"),
                few("mode"),
                few("reason"),
            ],
        ),
        row(
            K::WakeupKswapd,
            "vmscan",
            "mm_vmscan_wakeup_kswapd",
            &[few("nid"), few("zid"), few("order"), few("gfp_flags")],
        ),
        row(
            K::KswapdWake,
            "vmscan",
            "mm_vmscan_kswapd_wake",
            &[few("nid"), few("zid"), few("order")],
        ),
        row(K::KswapdSleep, "vmscan", "mm_vmscan_kswapd_sleep", &[few("nid")]),
        row(
            K::DirectReclaimBegin,
            "vmscan",
            "mm_vmscan_direct_reclaim_begin",
            &[few("order"), few("gfp_flags")],
        ),
        row(
            K::DirectReclaimEnd,
            "vmscan",
            "mm_vmscan_direct_reclaim_end",
            &[number("nr_reclaimed")],
        ),
        row(
            K::VmapAlloc,
            "vmalloc",
            "alloc_vmap_area",
            &[
                address("addr"),
                number("size"),
                few("align"),
                few("vstart"),
                few("vend"),
                few("failed"),
            ],
        ),
        row(
            K::VmapFree,
            "vmalloc",
            "free_vmap_area_noflush",
            &[address("va_start"), number("nr_lazy"), few("nr_lazy_max")],
        ),
        row(
            K::VmapPurge,
            "vmalloc",
            "purge_vmap_area_lazy",
            &[address("start"), address("end"), number("npurged")],
        ),
        row(
            K::UnmappedArea,
            "mmap",
            "vm_unmapped_area",
            &[
                address("addr"),
                number("total_vm"),
                few("flags"),
                number("length"),
                few("low_limit"),
                few("high_limit"),
                few("align_mask"),
                few("align_offset"),
            ],
        ),
        row(K::ExitMmap, "mmap", "exit_mmap", &[number("mm")]),
        row(K::Munmap, "syscalls", "sys_enter_munmap", &[address("addr"), number("len")]),
        row(K::Lost, "", "lost", &[number("count")]),
        row(
            K::Mmap,
            "syscalls",
            "sys_enter_mmap",
            &[address("addr"), number("len"), few("prot"), few("flags"), few("fd"), number("off")],
        ),
        row(
            K::CompactionIsolateMigratepages,
            "compaction",
            "mm_compaction_isolate_migratepages",
            COMPACTION_ISOLATE,
        ),
        row(
            K::CompactionIsolateFreepages,
            "compaction",
            "mm_compaction_isolate_freepages",
            COMPACTION_ISOLATE,
        ),
        row(K::BulkPage, BULK, "bulk_page", &[pfn("pfn"), few("gfp_flags"), few("before")]),
        row(K::BulkCall, BULK, "bulk_call", &[number("filled")]),
        row(
            K::CompactionFastIsolateFreepages,
            "compaction",
            "mm_compaction_fast_isolate_freepages",
            COMPACTION_ISOLATE,
        ),
    ]
};

/// The group of kinds that are not tracepoints.
const BULK: &str = "nofrag";

const COMPACTION_RUN: &[Field] =
    &[pfn("zone_start"), pfn("migrate_pfn"), pfn("free_pfn"), pfn("zone_end"), few("sync")];

/// Fields of a range that compaction searched for pages to move, or for free pages to move them to; no event tells
/// which page went where.
const COMPACTION_ISOLATE: &[Field] =
    &[pfn("start_pfn"), pfn("end_pfn"), number("nr_scanned"), number("nr_taken")];

const COMPACTION_VERDICT: &[Field] = &[few("nid"), few("idx"), few("order"), few("ret")];

// The table is indexed by number.
const _: () = {
    let mut at = 0;
    while at < KINDS.len() {
        assert!(KINDS[at].kind as usize == at, "the rows are in the order of the numbers");
        at += 1;
    }
};

impl EventKind {
    pub const COUNT: usize = KINDS.len();

    /// Returns the kind with this number.
    #[must_use]
    pub fn from_number(number: usize) -> Option<EventKind> {
        KINDS.get(number).map(|row| row.kind)
    }

    /// Returns the kind of the tracepoint with this name; never [`Lost`](EventKind::Lost).
    #[must_use]
    pub fn from_name(name: &str) -> Option<EventKind> {
        let row = KINDS.iter().find(|row| row.name == name)?;
        (row.kind != EventKind::Lost).then_some(row.kind)
    }

    /// Returns the kind's row of [`KINDS`].
    #[must_use]
    pub const fn info(self) -> &'static KindInfo {
        &KINDS[self as usize]
    }

    /// Returns true if a kernel has a tracepoint for the kind.
    #[must_use]
    pub fn is_tracepoint(self) -> bool {
        !matches!(self, EventKind::Lost | EventKind::BulkPage | EventKind::BulkCall)
    }

    /// Returns the name of the tracepoint.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Returns the fields that are kept.
    #[must_use]
    pub const fn fields(self) -> &'static [Field] {
        self.info().fields
    }
}
