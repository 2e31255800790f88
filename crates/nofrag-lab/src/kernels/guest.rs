//! A cell of the dataset simulated: its guest's machine, its kernel's policy, the world around the pages.

use super::phase::Phase;
use crate::scenario::RunError;

/// What a guest was set to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    /// `5.10`, `6.1`, `6.12` or `7.2`.
    pub(super) kernel: String,
    /// The factor's name: `centre`, `default`, ..
    pub(super) factor: String,
    pub(super) memory_mib: u64,
    pub(super) nodes: u64,
    /// Whether the program advises huge pages.
    pub(super) madvise: bool,
    /// transparent_hugepage/defrag
    pub(super) thp_defrag: String,
    /// vm.watermark_boost_factor
    pub(super) boost: u32,
    pub(super) defrag_mode: bool,
    /// lru_gen/enabled; false where there is no such thing.
    pub(super) lru_gen: bool,
}

/// The cell's run with this seed: its phases in order.
pub(super) fn simulate(_cell: &Cell, _seed: u64) -> Result<Vec<Phase>, RunError> {
    todo!()
}
