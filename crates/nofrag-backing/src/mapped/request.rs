//! What is asked of a space, what it hands out, and why it does not.

use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{Area, AreaError, ConfigError, FreeAreaError, RamArea, VmapPolicy};
use rustix::io::Errno;

use super::MapFramesError;
use crate::frames::{Fill, FrameError};
use crate::sys;

/// What a space is made for.
#[derive(Clone, Copy, Debug)]
pub struct MappedConfig {
    /// So many bytes of addresses, rounded up to 4 MiB. They cost no memory; more than there are frames lets frames lie
    /// in several places, and freed areas wait.
    pub bytes: u64,
    /// How addresses are handed out.
    pub policy: VmapPolicy,
    /// So many mappings may be made; without a number half of what the kernel allows a process.
    pub mappings: Option<u64>,
}

impl MappedConfig {
    /// Our own policy.
    #[must_use]
    pub const fn new(bytes: u64) -> MappedConfig {
        MappedConfig { bytes, policy: VmapPolicy::NOFRAG, mappings: None }
    }
}

/// Why there is no such space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappedError {
    /// No bytes were asked for.
    #[error("no addresses were asked for; ask for at least a byte")]
    Empty,
    /// The space could not be made.
    #[error("the space: {0}")]
    Space(#[from] ConfigError),
    /// The area is of another space.
    #[error("the area is of another space; ask the one that handed it out")]
    Foreign,
    /// What the system said. `NOMEM`: no such room; asking for half is sensible.
    #[error("the system refused: {0}")]
    System(#[from] Errno),
}

/// From which blocks an area is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grain {
    /// Single frames, from wherever the allocator gives them: large blocks stay whole for others.
    #[default]
    Page,
    /// Blocks as large as there are: few mappings.
    Largest,
    /// Blocks of 2 MiB, at addresses that huge pages can have, as far as there are such blocks; then single frames.
    Huge,
}

/// Whether the frames of an area may be exchanged for others under its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mobility {
    /// They stay.
    #[default]
    Pinned,
    /// Whoever is registered for it may move them ([`Frames::register`](crate::frames::Frames::register)).
    Movable,
}

/// A wish for memory at adjacent addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VmallocRequest {
    /// How much, rounded up to pages.
    pub bytes: u64,
    /// From which blocks.
    pub grain: Grain,
    /// What it shall hold.
    pub fill: Fill,
    /// Whether its frames may be moved.
    pub mobility: Mobility,
}

impl VmallocRequest {
    /// Zeros, in single frames that stay, and an inaccessible page behind them.
    #[must_use]
    pub const fn new(bytes: u64) -> VmallocRequest {
        let (grain, fill, mobility) = (Grain::Page, Fill::Zeroed, Mobility::Pinned);
        VmallocRequest { bytes, grain, fill, mobility }
    }

    /// The same request with other blocks.
    #[must_use]
    pub const fn grain(self, grain: Grain) -> VmallocRequest {
        VmallocRequest { grain, ..self }
    }

    /// The same request for other contents.
    #[must_use]
    pub const fn fill(self, fill: Fill) -> VmallocRequest {
        VmallocRequest { fill, ..self }
    }

    /// The same request for frames that may be moved, or not.
    #[must_use]
    pub const fn mobility(self, mobility: Mobility) -> VmallocRequest {
        VmallocRequest { mobility, ..self }
    }
}

/// Memory that [`vmalloc`](super::Mapped::vmalloc) handed out. There is one of it, and it is given up to be freed: so
/// nothing is freed twice. If it is lost, its memory stays in use as long as the space lives.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the memory stays in use until this is given to `vfree`"]
pub struct VmallocArea {
    pub(super) area: Area,
    /// Of which space: another may have the same addresses later.
    pub(super) space: u64,
}

impl VmallocArea {
    /// Its first page.
    #[must_use]
    pub fn start(&self) -> Vpn {
        self.area.start
    }

    /// How many pages, without the guard page.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        self.area.pages
    }

    /// How many bytes: whole pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.area.pages.0 as usize) << sys::PAGE
    }
}

/// Frames that [`map_ram`](super::Mapped::map_ram) shows. There is one of it, and it is given up to end the mapping. If
/// it is lost, the frames are shown, and held, as long as the space lives.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the frames are held until this is given to `unmap_ram`"]
pub struct ShownFrames {
    pub(super) area: RamArea,
    /// Of which space: another may have the same addresses later.
    pub(super) space: u64,
}

impl ShownFrames {
    /// Its first page.
    #[must_use]
    pub fn start(&self) -> Vpn {
        self.area.start
    }

    /// How many pages.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        self.area.pages
    }
}

/// Why there is no memory. Nothing is left of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmallocError {
    /// No addresses.
    #[error("no addresses: {0}")]
    Area(#[from] AreaError),
    /// No frames, though what was freed has been flushed.
    #[error("no frames: {0}")]
    Frames(#[from] FrameError),
    /// They could not be mapped.
    #[error("not mapped: {0}")]
    Map(#[from] MapFramesError),
}

/// Why nothing was freed: the area is of another space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an area of this space: {0}")]
pub struct VfreeError(#[from] pub FreeAreaError);
