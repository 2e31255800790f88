//! Requests to a space, their results and their errors.

use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{Area, AreaError, ConfigError, FreeAreaError, RamArea, VmapPolicy};
use rustix::io::Errno;

use super::MapFramesError;
use crate::frames::{Fill, FrameError};
use crate::sys;

/// Configuration of a space: its addresses, policy and mappings.
#[derive(Clone, Copy, Debug)]
pub struct MappedConfig {
    /// Bytes of addresses, rounded up to 4 MiB. They cost no memory; with more of them than frames, frames can lie in
    /// several places, and freed areas can wait.
    pub bytes: u64,
    /// The policy by which addresses are handed out.
    pub policy: VmapPolicy,
    /// The most mappings that may be made; `None`: half of the number that the kernel allows a process.
    pub mappings: Option<u64>,
}

impl MappedConfig {
    /// Returns a configuration with our own policy.
    #[must_use]
    pub const fn new(bytes: u64) -> MappedConfig {
        MappedConfig { bytes, policy: VmapPolicy::NOFRAG, mappings: None }
    }
}

/// Why a space was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappedError {
    #[error("no addresses were asked for; ask for at least a byte")]
    Empty,
    #[error("the space: {0}")]
    Space(#[from] ConfigError),
    #[error("the area is of another space; ask the one that handed it out")]
    Foreign,
    /// The system refused. `NOMEM`: there is no room of that size; asking for half is sensible.
    #[error("the system refused: {0}")]
    System(#[from] Errno),
}

/// The blocks from which an area is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grain {
    /// Single frames, from wherever the allocator gives them: large blocks stay whole for others.
    #[default]
    Page,
    /// The largest blocks there are: few mappings.
    Largest,
    /// Blocks of 2 MiB, at addresses that huge pages can have, as far as there are such blocks; then single frames.
    Huge,
}

/// Permission to exchange the frames of an area for others under its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mobility {
    #[default]
    Pinned,
    /// The registered residents may move the frames ([`Frames::register`](crate::frames::Frames::register)).
    Movable,
}

/// A request for memory at adjacent addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VmallocRequest {
    /// Bytes, rounded up to pages.
    pub bytes: u64,
    pub grain: Grain,
    pub fill: Fill,
    pub mobility: Mobility,
}

impl VmallocRequest {
    /// Returns a request for zeros, in single frames that stay, with an inaccessible page behind them.
    #[must_use]
    pub const fn new(bytes: u64) -> VmallocRequest {
        let (grain, fill, mobility) = (Grain::Page, Fill::Zeroed, Mobility::Pinned);
        VmallocRequest { bytes, grain, fill, mobility }
    }

    /// Returns the same request with other blocks.
    #[must_use]
    pub const fn grain(self, grain: Grain) -> VmallocRequest {
        VmallocRequest { grain, ..self }
    }

    /// Returns the same request for other contents.
    #[must_use]
    pub const fn fill(self, fill: Fill) -> VmallocRequest {
        VmallocRequest { fill, ..self }
    }

    /// Returns the same request for frames that may be moved, or not.
    #[must_use]
    pub const fn mobility(self, mobility: Mobility) -> VmallocRequest {
        VmallocRequest { mobility, ..self }
    }
}

/// Memory that [`vmalloc`](super::Mapped::vmalloc) handed out. The value cannot be copied, and is given up to free the
/// memory: so nothing is freed twice. If it is lost, the memory stays in use as long as the space lives.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the memory stays in use until this is given to `vfree`"]
pub struct VmallocArea {
    pub(super) area: Area,
    /// Number of the space that it is of: another one may have the same addresses later.
    pub(super) space: u64,
}

impl VmallocArea {
    /// Returns the first page of the area, as a page number.
    #[must_use]
    pub fn start(&self) -> Vpn {
        self.area.start
    }

    /// Returns the number of the area's pages, without the guard page.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        self.area.pages
    }

    /// Returns the number of the area's bytes: whole pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.area.pages.0 as usize) << sys::PAGE
    }
}

/// Frames that [`map_ram`](super::Mapped::map_ram) shows. The value cannot be copied, and is given up to end the
/// mapping. If it is lost, the frames are shown, and held, as long as the space lives.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the frames are held until this is given to `unmap_ram`"]
pub struct ShownFrames {
    pub(super) area: RamArea,
    /// Number of the space that it is of: another one may have the same addresses later.
    pub(super) space: u64,
}

impl ShownFrames {
    /// Returns the first page of the mapping, as a page number.
    #[must_use]
    pub fn start(&self) -> Vpn {
        self.area.start
    }

    /// Returns the number of the mapping's pages.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        self.area.pages
    }
}

/// Why memory was not allocated. Nothing is left of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VmallocError {
    #[error("no addresses: {0}")]
    Area(#[from] AreaError),
    /// There are no frames, though freed areas have been flushed.
    #[error("no frames: {0}")]
    Frames(#[from] FrameError),
    /// The frames could not be mapped.
    #[error("not mapped: {0}")]
    Map(#[from] MapFramesError),
}

/// The area is of another space, and was not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an area of this space: {0}")]
pub struct VfreeError(#[from] pub FreeAreaError);
