//! The locks of a space by their kinds, and the counts of each.

use nofrag::vmap::{LockCosts, LockCounters};

use crate::key::Key;

/// Declares the kinds of locks, by their names in tables and JSON, and the engine's counters of each.
macro_rules! lock_kinds {
    ($($kind:ident $name:literal $counters:ident;)*) => {
        /// The kind of a lock.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
        #[strum(const_into_str)]
        pub(super) enum LockKind { $(#[strum(serialize = $name)] $kind),* }

        impl LockKind {
            pub(super) const ALL: [LockKind; [$($name),*].len()] = [$(LockKind::$kind),*];
        }

        impl LockCounts {
            pub(super) fn of(costs: &LockCosts) -> LockCounts {
                LockCounts([$(costs.$counters),*])
            }
        }
    };
}

lock_kinds! {
    AreaBusy "area busy" busy;
    BlockIndex "block index" block_index;
    AreaFree "area free" free;
    AreaLazy "area lazy" lazy;
    Purge "purge" purge;
    Pools "area pools" pools;
    Inbox "inbox" inbox;
    BlockQueue "block queue" block_queue;
    Block "block" block;
    Cpu "cpu" cpu;
    Stock "arena" stock; // as saved results have it
    Recycler "recycler" recycler;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lock {
    pub(super) kind: LockKind,
    /// Number of the lock among those of its kind: a bucket, a node, a CPU; 0 where there is only one.
    pub(super) instance: u64,
}

/// The operation in which a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(super) enum Site {
    /// Operation `map_ram` (in Linux: `vm_map_ram`, `alloc_vmap_area`).
    Map,
    /// Operation `unmap_ram` (in Linux: `xa_erase`, `free_vmap_block`).
    Unmap,
    /// A purge of lazily freed areas.
    Purge,
}

impl LockKind {
    /// Returns the key that the keys of its figures begin with.
    pub(super) fn key(self) -> Key {
        Key::count(self.into_str())
    }

    /// Returns true if a CPU that unmaps only its own mappings shares no lock of this kind with another CPU: the locks
    /// of its blocks, and those that belong to the CPU.
    pub(super) fn is_private(self) -> bool {
        use LockKind::{Block, BlockQueue, Cpu, Recycler, Stock};
        matches!(self, BlockQueue | Block | Cpu | Stock | Recycler)
    }
}

impl Site {
    pub(super) const ALL: [Site; 3] = [Site::Map, Site::Unmap, Site::Purge];
}

/// Acquisitions and conflicts by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LockCounts([LockCounters; LockKind::ALL.len()]);

impl LockCounts {
    pub(super) fn get(&self, kind: LockKind) -> LockCounters {
        self.0[kind as usize]
    }

    /// Returns the counts since `earlier`.
    pub(super) fn since(&self, earlier: &LockCounts) -> LockCounts {
        LockCounts(LockKind::ALL.map(|kind| {
            let (now, then) = (self.get(kind), earlier.get(kind));
            LockCounters {
                acquisitions: now.acquisitions - then.acquisitions,
                conflicts: now.conflicts - then.conflicts,
            }
        }))
    }

    pub(super) fn add(&mut self, other: &LockCounts) {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine = mine.plus(others);
        }
    }

    /// Returns the acquisitions of all kinds.
    pub(super) fn acquisitions(&self) -> u64 {
        self.0.iter().map(|counters| counters.acquisitions).sum()
    }

    /// Returns the conflicts of all kinds.
    pub(super) fn conflicts(&self) -> u64 {
        self.0.iter().map(|counters| counters.conflicts).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LockKind, LockCounters)> + '_ {
        LockKind::ALL.into_iter().map(|kind| (kind, self.get(kind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_at_its_own_place() {
        for (place, kind) in LockKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
    }

    #[test]
    fn every_lock_of_the_engine_has_a_kind() {
        // Each field is another power of two: the sum over the kinds misses none and doubles none.
        let mut costs = LockCosts::default();
        let fields = [
            &mut costs.purge,
            &mut costs.cpu,
            &mut costs.inbox,
            &mut costs.busy,
            &mut costs.lazy,
            &mut costs.pools,
            &mut costs.free,
            &mut costs.block,
            &mut costs.block_queue,
            &mut costs.block_index,
            &mut costs.stock,
            &mut costs.recycler,
        ];
        for (bit, field) in fields.into_iter().enumerate() {
            field.acquisitions = 1 << bit;
        }
        assert_eq!(costs.total().acquisitions, LockCounts::of(&costs).acquisitions());
        assert_eq!(LockCounts::of(&costs).since(&LockCounts::of(&costs)), LockCounts::default());
    }
}
