//! Virtual areas: ranges of pages with guard pages, freed lazily and purged in batches (Rezki 2019).
//!
//! A [`VmapSpace`] hands out *areas*, ranges of virtual pages. Taking a mapping away leaves stale translations in the
//! processors' caches, and dropping those everywhere is expensive. So a freed area becomes *lazy*: its pages stay
//! unusable until a *purge* flushes many areas at once. The law of the whole module is the order
//!
//! > detach the lazy areas, flush, only then make their pages allocatable.
//!
//! The engines differ in how they find free ranges, where they keep busy and lazy areas, which locks cover what, and
//! whether flushed areas are pooled; every difference is a value of [`VmapPolicy`], and presets name sets of values.
//!
//! The rules of Linux, with the origin of each, and what ours must reach: docs/sources/vmap.md.
//!
//! Locks nest by rank (`sync`); debug builds with `std` verify it at each lock.
//!
//! Files, bottom up: `policy` (every difference between the engines, and presets), `request` (what may be asked and
//! answered), `counters`, `flush`, `free_space` (one range allocator behind a lock), `engine` (the interface of the
//! two), `linux` (4.19 to 6.9) with `area_map`, `sharded` (ours), `mapper` (the seam to the memory behind pages),
//! `blocks` (small mappings), `ram` (their calls), `space` (the face: validation, and what happens when space runs
//! out).

mod area_map;
mod blocks;
mod counters;
mod engine;
mod flush;
mod free_space;
mod linux;
mod mapper;
mod policy;
mod ram;
mod request;
mod sharded;
mod space;

pub use blocks::policy::{
    AliasWalk, BlockGeometry, BlockIndex, BlockPolicy, DirtyTracking, FirstSlots, HashIds,
    KeepBlocks, LiveMap, NewBlock, PurgeQueue, Reuse, SizeClasses,
};
pub use counters::{
    BlockCounters, BlockRecord, BlockStats, LockCosts, LockCounters, PoolCounters, PurgeCounters,
    VmapCounters, VmapStats,
};
pub use engine::AreaRecord;
pub use mapper::{Epoch, Freed, Mapper, Notifier};
pub use policy::{
    Decay, Drain, DrainYield, Layout, LazyLimit, LazyStore, Lookup, Pools, Preset, UnknownPreset,
    VmapPolicy,
};
pub use ram::{AliasProgress, Piece};
pub use request::{
    Area, AreaError, AreaKind, AreaRequest, AreaState, Busy, ConfigError, FreeAreaError,
    GroupError, Guard, HandOverError, LoadError, MapRamError, RamArea, UnmapRamError, VmapConfig,
    Wait,
};
pub use space::{Budget, CpuHandle, Progress, VmapSpace};
