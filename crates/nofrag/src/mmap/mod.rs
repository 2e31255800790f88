//! The address space of a process: where a mapping is placed decides whether tomorrow's can still be.
//!
//! An [`AddressSpace`] holds *areas* (what Linux calls VMAs): maximal runs of pages with equal attributes. Mapping
//! without a wish for an address is *placement*, and the whole line of Linux's rules for it stands here as values of
//! [`Placement`], from the first fit of 2.4 to the huge-page rule of 6.12, with our own beside them.
//!
//! Linux's rules, with the origin of each, and what ours must reach: docs/sources/mmap.md.
//!
//! Everything is counted in pages. Addresses are page numbers ([`Vpn`](crate::units::Vpn)).
//!
//! Files, bottom up: `attributes` (what makes two areas one), `layout` (the windows of a process), `request` (what may
//! be asked and answered), `table` (each set of attributes once), `areas` (areas with attributes, on the index of
//! ranges), `placement` (where a mapping goes), `space` (the face: mapping, lookup, fork and exec),
//! `change` (what splits and joins areas), `moves` (resizing, and moves that can be undone), `holes` (what is left
//! between areas).

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
