//! CPUs as a set that may have gaps.
//!
//! A count of CPUs is not a bound on their ids: Linux indexed per-CPU data by `addr % num_possible_cpus()` and crashed
//! on machines whose ids have holes (CVE-2024-41032). Here only a [`CpuSet`] makes a [`CpuId`], and per-CPU data is
//! reached by one.

use crate::lists::put;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// A CPU that belongs to a [`CpuSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId {
    id: u32,
    rank: u32,
}

impl CpuId {
    /// Returns the number by which the machine knows the CPU; may be larger than the number of CPUs.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// Returns the CPU's position among the CPUs of its set, counted from 0 and without gaps.
    #[must_use]
    pub const fn rank(self) -> usize {
        self.rank as usize
    }
}

/// The possible CPUs of a machine, in ascending order, gaps allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    ids: Vec<u32>,
}

/// Largest number of ids in a set: more than any machine has, and so few that a mistaken count takes little memory
/// before it is refused.
const MOST_IDS: usize = 1 << 20;

impl CpuSet {
    /// Returns the set of the given ids, up to 2^20 of them; order and repetition do not matter.
    ///
    /// # Errors
    /// [`TryReserveError`] when there is no memory for the list, or when there are more than 2^20 ids.
    pub fn new(ids: impl IntoIterator<Item = u32>) -> Result<CpuSet, TryReserveError> {
        let mut list: Vec<u32> = Vec::new();
        for id in ids {
            // Above the limit this asks for a list that no memory can hold, to get its error.
            list.try_reserve(if list.len() < MOST_IDS { 1 } else { usize::MAX })?;
            put(&mut list, id);
        }
        list.sort_unstable();
        list.dedup();
        Ok(CpuSet { ids: list })
    }

    /// Returns the set of CPUs `0..count`, up to 2^20 of them.
    ///
    /// # Errors
    /// [`TryReserveError`] when there is no memory for the list, or when `count` is above 2^20.
    pub fn first(count: u32) -> Result<CpuSet, TryReserveError> {
        CpuSet::new(0..count)
    }

    /// Returns a copy of the set; for lack of memory an error, where `clone` would end the process.
    #[cfg(any(feature = "std", feature = "spin", loom))]
    pub(crate) fn copied(&self) -> Result<CpuSet, TryReserveError> {
        Ok(CpuSet { ids: crate::lists::gathered(self.ids.iter().copied())? })
    }

    /// Returns the CPU with this id, if it belongs to the set. O(log n).
    #[must_use]
    pub fn get(&self, id: u32) -> Option<CpuId> {
        let rank = self.ids.binary_search(&id).ok()?;
        Some(CpuId { id, rank: rank as u32 })
    }

    /// Returns the CPU with this [`rank`](CpuId::rank); `None` if the set has no more than `rank` CPUs. O(1).
    #[must_use]
    pub fn by_rank(&self, rank: usize) -> Option<CpuId> {
        self.ids.get(rank).map(|&id| CpuId { id, rank: rank as u32 })
    }

    /// Returns the first CPU whose id is at least `id`. O(log n).
    #[cfg(any(feature = "std", feature = "spin", loom))]
    pub(crate) fn at_or_after(&self, id: u32) -> Option<CpuId> {
        self.by_rank(self.ids.partition_point(|&other| other < id))
    }

    #[cfg(any(feature = "std", feature = "spin", loom))]
    pub(crate) fn last(&self) -> Option<CpuId> {
        self.by_rank(self.ids.len().checked_sub(1)?)
    }

    /// Returns the number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if the set has no CPU.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns all CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.ids.iter().enumerate().map(|(rank, &id)| CpuId { id, rank: rank as u32 })
    }
}
