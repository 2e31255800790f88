//! The index of blocks: the numbers of all that exist.
//!
//! Changes take the lock of a bucket, of which there is one (up to 6.3) or one per CPU (Rezki 2023: on 64 CPUs one lock
//! was waited for almost as often as that of the areas). Buckets are chosen by *address*, since any CPU may end a
//! mapping; they have nothing to do with the CPU that hands out a block's slots. A lookup takes no lock: it goes to the
//! block's record directly. Source: docs/sources/vmap.md#block-hash.

use super::BlockTable;
use super::block::Block;
use super::queue::record;
use crate::cpu::{CpuId, CpuSet};
use crate::lists::{made, put};
use crate::ranges::OutOfMetadata;
use crate::sync::{LockCounters, Mutex, Ordering, Padded, Rank};
use crate::vmap::{BlockIndex, BlockPolicy, HashIds};
use alloc::vec::Vec;

/// Number of blocks that a walk reads in one hold of a bucket's lock.
pub(super) const WALK_CHUNK: usize = 64;

/// The numbers of all blocks, in buckets by address.
///
/// 1. A block is in the bucket of its number from its creation until it is given back, and nowhere else.
#[derive(Debug)]
pub(super) struct Index {
    kind: BlockIndex,
    hash: HashIds,
    cpus: CpuSet,
    buckets: Vec<Padded<Mutex<Bucket>>>,
}

#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Numbers of blocks, in no order; each block's record knows its place.
    pub(super) numbers: Vec<u64>,
    pub(super) inserts: u64,
    pub(super) erases: u64,
}

impl Bucket {
    pub(super) fn metadata_bytes(&self) -> u64 {
        (self.numbers.capacity() * size_of::<u64>()) as u64
    }
}

impl Index {
    pub(super) fn new(policy: &BlockPolicy, cpus: &CpuSet) -> Result<Index, OutOfMetadata> {
        let count = if policy.index == BlockIndex::Global { 1 } else { cpus.len() };
        let buckets = made(count, || Padded(Mutex::new(Rank::BlockIndex, Bucket::default())))?;
        Ok(Index { kind: policy.index, hash: policy.hash, cpus: cpus.copied()?, buckets })
    }

    /// Returns the position of the bucket of a block; `None` if the policy's hash names a CPU that does not exist.
    pub(super) fn bucket_of(&self, number: u64) -> Option<usize> {
        match self.kind {
            BlockIndex::Global => Some(0),
            _ => bucket_cpu(&self.cpus, self.hash, number).map(CpuId::rank),
        }
    }

    /// Returns true if the index leads to the block with this number. Only with a broken hash does it not.
    #[inline(always)]
    pub(super) fn reaches(&self, number: u64) -> bool {
        self.hash == HashIds::NextPossible || self.bucket_of(number).is_some()
    }

    /// Adds a block. Where a broken hash names no bucket the entry is lost (in Linux the machine crashed).
    pub(super) fn insert(&self, number: u64, block: &Block) -> Result<(), OutOfMetadata> {
        let Some(bucket) = self.bucket_of(number) else { return Ok(()) };
        let mut bucket = self.buckets[bucket].lock();
        bucket.numbers.try_reserve(1)?;
        block.place.store(bucket.numbers.len() as u64, Ordering::Relaxed);
        put(&mut bucket.numbers, number);
        bucket.inserts += 1;
        Ok(())
    }

    pub(super) fn erase(&self, table: &BlockTable, number: u64, block: &Block) {
        let Some(bucket) = self.bucket_of(number) else { return };
        let mut bucket = self.buckets[bucket].lock();
        let place = block.place.load(Ordering::Relaxed);
        let erased = bucket.numbers.swap_remove(place as usize);
        debug_assert_eq!(erased, number, "a block's record knows its place in the index");
        if let Some(&moved) = bucket.numbers.get(place as usize) {
            record(table, moved).place.store(place, Ordering::Relaxed);
        }
        bucket.erases += 1;
    }

    /// Calls `visit` with the number of every block, while no lock is held. A block that comes or goes meanwhile may be
    /// missed or met; one that stays is met.
    pub(super) fn for_each(&self, mut visit: impl FnMut(u64)) {
        let mut chunk = [0; WALK_CHUNK];
        for bucket in &self.buckets {
            // Backwards: an entry that moves into the place of an erased one comes from the end, which was read first.
            let mut end = usize::MAX;
            loop {
                let bucket = bucket.lock();
                end = end.min(bucket.numbers.len());
                let part = &bucket.numbers[end.saturating_sub(WALK_CHUNK)..end];
                let count = part.len();
                chunk[..count].copy_from_slice(part);
                drop(bucket);
                if count == 0 {
                    break;
                }
                chunk[..count].iter().copied().for_each(&mut visit);
                end -= count;
            }
        }
    }

    /// Calls `visit` with each bucket, its position, and the costs of its lock.
    pub(super) fn for_each_bucket(&self, mut visit: impl FnMut(usize, &Bucket, LockCounters)) {
        for (at, bucket) in self.buckets.iter().enumerate() {
            let bucket = bucket.lock();
            visit(at, &bucket, bucket.cost());
        }
    }
}

/// Returns the CPU whose bucket holds the block with this number.
fn bucket_cpu(cpus: &CpuSet, hash: HashIds, number: u64) -> Option<CpuId> {
    match hash {
        HashIds::CountModulo => cpus.get((number % cpus.len() as u64) as u32),
        HashIds::NextPossible => {
            let bound = u64::from(cpus.last()?.id()) + 1;
            cpus.at_or_after((number % bound) as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_buckets(cpus: &CpuSet, hash: HashIds, expected: &[(u64, Option<u32>)]) {
        for &(address, cpu) in expected {
            let found = bucket_cpu(cpus, hash, address / 10);
            assert_eq!(found.map(CpuId::id), cpu, "address {address}");
        }
    }

    /// Compares the buckets of four addresses, with blocks of 10 pages and three CPUs, with
    /// docs/sources/vmap.md#oracle-7.
    #[test]
    fn address_hash() {
        let cpus = CpuSet::first(3).unwrap();
        let expected = [(6, Some(0)), (11, Some(1)), (20, Some(2)), (30, Some(0))];
        check_buckets(&cpus, HashIds::NextPossible, &expected);
        check_buckets(&cpus, HashIds::CountModulo, &expected);
    }

    /// Shows that with CPUs 0 and 2 the hash of 6.4 names CPU 1, which does not exist, where the repaired one takes CPU
    /// 2 (docs/sources/vmap.md#sparse-ids, CVE-2024-41032).
    #[test]
    fn sparse_ids() {
        let cpus = CpuSet::new([0, 2]).unwrap();
        let next = [(6, Some(0)), (11, Some(2)), (20, Some(2)), (30, Some(0))];
        check_buckets(&cpus, HashIds::NextPossible, &next);
        let modulo = [(6, Some(0)), (11, None), (20, Some(0)), (30, None)];
        check_buckets(&cpus, HashIds::CountModulo, &modulo);
    }
}
