//! The kinds of pages by which pageblocks are grouped: whether they may be moved or taken back
//! (docs/sources/pages.md#migratetypes).

use core::fmt;

/// The mobility of a page, and the kind of pages that a pageblock is meant for (Linux's `enum migratetype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Migratetype {
    /// Stays where it is until it is freed: most kernel memory.
    Unmovable = 0,
    /// Its content can be copied elsewhere and its users told: page cache and process memory.
    Movable = 1,
    /// Stays, but can be freed on demand: inode and dentry caches.
    Reclaimable = 2,
    /// Kept back for requests that may not wait (`MIGRATE_HIGHATOMIC`).
    HighAtomic = 3,
    /// Kept for contiguous device memory; movable pages may borrow it.
    Cma = 4,
    /// Being emptied; nothing is handed out from it.
    Isolate = 5,
}

impl Migratetype {
    /// All types, in the kernel's numbering.
    pub const ALL: [Migratetype; 6] = [
        Migratetype::Unmovable,
        Migratetype::Movable,
        Migratetype::Reclaimable,
        Migratetype::HighAtomic,
        Migratetype::Cma,
        Migratetype::Isolate,
    ];
    /// The types that requests name, and that have per-CPU lists.
    pub const MOBILITY: [Migratetype; 3] =
        [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
    pub const COUNT: usize = Migratetype::ALL.len();

    /// Returns the type as an index into a table with a row per type.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the type of this number in the kernel's numbering; `None` if there is none.
    #[must_use]
    pub const fn from_index(index: usize) -> Option<Migratetype> {
        if index < Migratetype::COUNT { Some(Migratetype::ALL[index]) } else { None }
    }

    /// Returns true if requests can name the type: one of [`MOBILITY`](Self::MOBILITY).
    #[must_use]
    pub const fn is_mobility(self) -> bool {
        self.index() < Migratetype::MOBILITY.len()
    }

    /// Returns the types that a request of this type may take from when its own lists are empty, best first.
    #[must_use]
    pub const fn fallbacks(self) -> &'static [Migratetype] {
        match self {
            Migratetype::Unmovable => &[Migratetype::Reclaimable, Migratetype::Movable],
            Migratetype::Movable => &[Migratetype::Reclaimable, Migratetype::Unmovable],
            Migratetype::Reclaimable => &[Migratetype::Unmovable, Migratetype::Movable],
            Migratetype::HighAtomic | Migratetype::Cma | Migratetype::Isolate => &[],
        }
    }

    /// Returns the name of the type in `/proc/pagetypeinfo`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Migratetype::Unmovable => "Unmovable",
            Migratetype::Movable => "Movable",
            Migratetype::Reclaimable => "Reclaimable",
            Migratetype::HighAtomic => "HighAtomic",
            Migratetype::Cma => "CMA",
            Migratetype::Isolate => "Isolate",
        }
    }
}

impl fmt::Display for Migratetype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
