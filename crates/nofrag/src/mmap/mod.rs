//! The address space of a process: the place of a mapping decides whether the next ones still find room.
//!
//! An [`AddressSpace`] holds *areas* (what Linux calls VMAs): maximal runs of pages with equal attributes. Mapping
//! without a wish for an address is *placement*, and the whole line of Linux's rules for it stands here as values of
//! [`Placement`], from the first fit of 2.4 to the huge-page rule of 6.12, with our own beside them.
//!
//! Linux's rules, with the origin of each, and what ours must reach: docs/sources/mmap.md.
//!
//! Everything is counted in pages. Addresses are page numbers ([`Vpn`](crate::units::Vpn)).
//!
//! Files, bottom up: `attributes` (equal ones make two areas one), `layout` (the windows of a process), `request`
//! (requests and errors), `table` (each set of attributes once), `areas` (areas with attributes, on the index of
//! ranges), `placement` (the rules for the place of a mapping), `space` (the face: mapping, lookup, fork and exec),
//! `change` (operations that split and join areas), `moves` (resizing, and moves that can be undone), `holes` (the free
//! ranges between areas).

mod areas;
mod attributes;
mod change;
mod holes;
mod layout;
mod moves;
mod placement;
mod request;
mod space;
mod table;

pub use attributes::{AnonChain, AreaFlags, Attributes, Backing, MergeBlocker, Protection};
pub use holes::{GuardShare, Headroom, HoleBucket, HoleHistogram, HoleStats};
pub use layout::{Direction, Layout, StackRule};
pub use moves::PendingMove;
pub use placement::{HugePages, Placement, PlacementPreset, UnknownPlacement};
pub use request::{
    FixedError, GrowError, MapError, MapFlags, MoveError, ProtectError, RemapTarget, UnmapError,
    WindowChoice,
};
pub use space::{AddressSpace, AreaRecord, MmapCounters, SpaceConfig};
