//! The kinds of events, as one table, by which readers search, writers store and exports show.
//!
//! Source: docs/sources/trace.md#tracepoints, #t9.

/// Most fields of a kind.
pub const MAX_FIELDS: usize = 8;

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

/// Declares the kinds of events: each with its group, its tracepoint, and its fields with their classes.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $group:literal $name:literal [$($class:ident $field:ident),*];)*) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[repr(u8)]
        // Each is a tracepoint; the table names it.
        #[non_exhaustive]
        pub enum EventKind { $($(#[$doc])* $kind,)* }

        /// All kinds, in the order of their numbers.
        pub const KINDS: [KindInfo; EventKind::COUNT] = [$(KindInfo {
            kind: EventKind::$kind,
            group: $group,
            name: $name,
            fields: {
                const FIELDS: &[Field] =
                    &[$(Field { name: stringify!($field), class: FieldClass::$class }),*];
                assert!(FIELDS.len() <= MAX_FIELDS, "an event has room for so many");
                FIELDS
            },
        }),*];

        impl EventKind {
            /// Number of kinds.
            pub const COUNT: usize = [$($name),*].len();
        }
    };
}

// Numbers are part of the recording format: new kinds go to the end. Those of group nofrag are not tracepoints. No
// event of compaction tells which page went where.
kinds! {
    PageAlloc: "kmem" "mm_page_alloc" [Pfn pfn, Few order, Few gfp_flags, Few migratetype];
    PageFree: "kmem" "mm_page_free" [Pfn pfn, Few order];
    PageFreeBatched: "kmem" "mm_page_free_batched" [Pfn pfn];
    ExtFrag: "kmem" "mm_page_alloc_extfrag" [
        Pfn pfn, Few alloc_order, Few fallback_order, Few alloc_migratetype, Few fallback_migratetype,
        Few change_ownership
    ];
    ZoneLocked: "kmem" "mm_page_alloc_zone_locked" [Pfn pfn, Few order, Few migratetype, Few percpu_refill];
    PcpuDrain: "kmem" "mm_page_pcpu_drain" [Pfn pfn, Few order, Few migratetype];
    CompactionBegin: "compaction" "mm_compaction_begin" [
        Pfn zone_start, Pfn migrate_pfn, Pfn free_pfn, Pfn zone_end, Few sync
    ];
    CompactionEnd: "compaction" "mm_compaction_end" [
        Pfn zone_start, Pfn migrate_pfn, Pfn free_pfn, Pfn zone_end, Few sync, Few status
    ];
    TryToCompact: "compaction" "mm_compaction_try_to_compact_pages" [Few order, Few gfp_mask, Few prio];
    CompactionFinished: "compaction" "mm_compaction_finished" [Few nid, Few idx, Few order, Few ret];
    CompactionSuitable: "compaction" "mm_compaction_suitable" [Few nid, Few idx, Few order, Few ret];
    CompactionDeferred: "compaction" "mm_compaction_deferred" [
        Few nid, Few idx, Few order, Number considered, Few defer_shift, Few order_failed
    ];
    KcompactdWake: "compaction" "mm_compaction_kcompactd_wake" [Few nid, Few order, Few highest_zoneidx];
    KcompactdSleep: "compaction" "mm_compaction_kcompactd_sleep" [Few nid];
    MigratePages: "migrate" "mm_migrate_pages" [
        Number succeeded, Number failed, Number thp_succeeded, Number thp_failed, Number thp_split,
        Number large_folio_split, Few mode, Few reason
    ];
    WakeupKswapd: "vmscan" "mm_vmscan_wakeup_kswapd" [Few nid, Few zid, Few order, Few gfp_flags];
    KswapdWake: "vmscan" "mm_vmscan_kswapd_wake" [Few nid, Few zid, Few order];
    KswapdSleep: "vmscan" "mm_vmscan_kswapd_sleep" [Few nid];
    DirectReclaimBegin: "vmscan" "mm_vmscan_direct_reclaim_begin" [Few order, Few gfp_flags];
    DirectReclaimEnd: "vmscan" "mm_vmscan_direct_reclaim_end" [Number nr_reclaimed];
    VmapAlloc: "vmalloc" "alloc_vmap_area" [Address addr, Number size, Few align, Few vstart, Few vend, Few failed];
    VmapFree: "vmalloc" "free_vmap_area_noflush" [Address va_start, Number nr_lazy, Few nr_lazy_max];
    VmapPurge: "vmalloc" "purge_vmap_area_lazy" [Address start, Address end, Number npurged];
    UnmappedArea: "mmap" "vm_unmapped_area" [
        Address addr, Number total_vm, Few flags, Number length, Few low_limit, Few high_limit, Few align_mask,
        Few align_offset
    ];
    ExitMmap: "mmap" "exit_mmap" [Number mm];
    Munmap: "syscalls" "sys_enter_munmap" [Address addr, Number len];
    /// Not a tracepoint: events were lost here.
    Lost: "" "lost" [Number count];
    Mmap: "syscalls" "sys_enter_mmap" [Address addr, Number len, Few prot, Few flags, Few fd, Number off];
    CompactionIsolateMigratepages: "compaction" "mm_compaction_isolate_migratepages" [
        Pfn start_pfn, Pfn end_pfn, Number nr_scanned, Number nr_taken
    ];
    CompactionIsolateFreepages: "compaction" "mm_compaction_isolate_freepages" [
        Pfn start_pfn, Pfn end_pfn, Number nr_scanned, Number nr_taken
    ];
    /// Not a tracepoint: a page in the array of a call of the kernel's bulk interface, by `nofrag record --bulk`.
    BulkPage: "nofrag" "bulk_page" [Pfn pfn, Few gfp_flags, Few before];
    /// Not a tracepoint: a call of the bulk interface returned.
    BulkCall: "nofrag" "bulk_call" [Number filled];
    CompactionFastIsolateFreepages: "compaction" "mm_compaction_fast_isolate_freepages" [
        Pfn start_pfn, Pfn end_pfn, Number nr_scanned, Number nr_taken
    ];
}

impl EventKind {
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
