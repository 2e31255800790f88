//! The permanent record of every block, found by the block's number without a lock
//! (docs/sources/vmap.md#lock-free-lookup).
//!
//! A block's *number* is its first page over its size: blocks are aligned to their size, so every page of one has the
//! same number, and two blocks that ever stood at one place have it too. Records are kept by number and are never taken
//! away. So a reader needs neither a lock nor a grace period (Linux frees its descriptors through RCU): at worst it
//! finds the record of a block that has gone, and learns so under that record's lock.
//!
//! Two levels, each written once: the table of leaves is as long as the square root of the number of possible blocks or
//! a few times that, and a leaf is made when the first block in it is.

use crate::lists::made;
use crate::ranges::{OutOfMetadata, Span};
use crate::sync::Published;
use alloc::vec::Vec;

type Leaf<T> = Vec<Published<T>>;

#[derive(Debug)]
pub(super) struct Table<T> {
    /// The number of the first block that could have a page in the space.
    first: u64,
    /// Number of blocks that could have a page in the space.
    count: u64,
    leaf_digits: u32,
    /// A mask of `leaf_digits` ones.
    leaf_mask: u64,
    leaves: Vec<Published<Leaf<T>>>,
}

/// The place of a block's record: the leaf, and the place in it. It never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    leaf: u32,
    place: u32,
}

impl Position {
    /// A position before the true one is known.
    pub(super) const NOWHERE: Position = Position { leaf: 0, place: 0 };
}

impl<T> Table<T> {
    /// Returns a table for blocks of `slots` pages, a power of two, in `span`.
    pub(super) fn new(span: Span, slots: u32) -> Result<Table<T>, OutOfMetadata> {
        let shift = slots.ilog2();
        let first = span.start() >> shift;
        let count = ((span.end() - 1) >> shift) - first + 1;
        // A leaf has half as many places as the square root: it is paid for as a whole by its first block.
        let leaf_digits = (count.ilog2() / 2).saturating_sub(1);
        let leaf_mask = (1 << leaf_digits) - 1;
        let leaves = vacant(count.div_ceil(1 << leaf_digits) as usize)?;
        Ok(Table { first, count, leaf_digits, leaf_mask, leaves })
    }

    /// Returns the leaf of a block and its place there. A number outside the space leads nowhere.
    #[inline(always)]
    fn locate(&self, number: u64) -> (usize, usize) {
        let index = number.wrapping_sub(self.first);
        // On a 32-bit machine a foreign number may be too large for an index.
        let leaf = usize::try_from(index >> self.leaf_digits).unwrap_or(usize::MAX);
        (leaf, (index & self.leaf_mask) as usize)
    }

    /// Returns the position of a block in the space.
    pub(super) fn position(&self, number: u64) -> Position {
        let (leaf, place) = self.locate(number);
        Position { leaf: leaf as u32, place: place as u32 }
    }

    /// Returns the record at a position, once there is one.
    #[inline(always)]
    pub(super) fn at(&self, position: Position) -> Option<&T> {
        self.leaves.get(position.leaf as usize)?.get()?.get(position.place as usize)?.get()
    }

    /// Returns the number of blocks for which the space has places, at most.
    pub(super) fn places(&self) -> u64 {
        self.count
    }

    /// Returns the record of the block with this number, once there is one.
    #[inline(always)]
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let (leaf, place) = self.locate(number);
        self.leaves.get(leaf)?.get()?.get(place)?.get()
    }

    /// Returns the record of a block in the space; if there is none yet, the value of `make` becomes it.
    pub(super) fn provide(
        &self,
        number: u64,
        make: impl FnOnce() -> Result<T, OutOfMetadata>,
    ) -> Result<&T, OutOfMetadata> {
        debug_assert!(number.wrapping_sub(self.first) < self.count, "the block is in the space");
        let (leaf, place) = self.locate(number);
        let published = &self.leaves[leaf];
        if published.get().is_none() {
            published.publish(vacant(1 << self.leaf_digits)?);
        }
        let record = &published.get().expect("the leaf was just published")[place];
        if record.get().is_none() {
            record.publish(make()?);
        }
        Ok(record.get().expect("the record was just published"))
    }

    /// Returns the lowest block number, from this one on, that has a record. Leaves that were never made are passed by
    /// at once.
    pub(super) fn next_from(&self, number: u64) -> Option<u64> {
        let (from, mut place) = self.locate(number.max(self.first));
        for (leaf, published) in self.leaves.iter().enumerate().skip(from) {
            let places = published.get().and_then(|places| places.get(place..));
            let found = places.and_then(|places| places.iter().position(|it| it.get().is_some()));
            if let Some(found) = found {
                let index = ((leaf as u64) << self.leaf_digits) + (place + found) as u64;
                return Some(self.first + index);
            }
            place = 0;
        }
        None
    }

    /// Returns all records by ascending number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.first..).step_by(1 << self.leaf_digits).zip(&self.leaves).flat_map(|(base, leaf)| {
            let places = leaf.get().into_iter().flatten();
            (base..).zip(places).filter_map(|(number, place)| Some((number, place.get()?)))
        })
    }

    /// Returns the bytes of both levels, without those that records own besides.
    pub(super) fn metadata_bytes(&self) -> u64 {
        let places: usize = self.leaves.iter().filter_map(Published::get).map(Vec::len).sum();
        let bytes = size_of_val(&*self.leaves) + places * size_of::<Published<T>>();
        bytes as u64
    }
}

fn vacant<T>(places: usize) -> Result<Vec<Published<T>>, OutOfMetadata> {
    Ok(made(places, Published::empty)?)
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::ranges::{OutOfMetadata, Span};

    #[test]
    fn records_stay_where_their_numbers_say() {
        let table = Table::new(Span::sized(1000, 1 << 20).unwrap(), 64).unwrap();
        let (first, last) = (1000 / 64, (1000 + (1 << 20) - 1) / 64);
        let numbers = [first, first + 1, 77, 5000, last];
        for number in numbers {
            assert_eq!(table.get(number), None);
            assert_eq!(table.provide(number, || Ok(number)), Ok(&number));
            assert_eq!(table.provide(number, || Err(OutOfMetadata)), Ok(&number));
        }
        assert!(numbers.iter().all(|number| table.get(*number) == Some(number)));
        assert!(table.iter().eq(numbers.iter().map(|number| (*number, number))));
        for foreign in [0, first - 1, last + 1, u64::MAX] {
            assert_eq!(table.get(foreign), None);
        }
        let next = |from: u64| table.next_from(from);
        assert_eq!(
            (next(0), next(first), next(first + 1)),
            (Some(first), Some(first), Some(first + 1))
        );
        assert_eq!((next(first + 2), next(78), next(5001)), (Some(77), Some(5000), Some(last)));
        assert_eq!((next(last), next(last + 1), next(u64::MAX)), (Some(last), None, None));
    }

    #[test]
    fn what_is_not_made_is_not_there() {
        let table: Table<u32> = Table::new(Span::sized(0, 64).unwrap(), 64).unwrap();
        assert_eq!(table.provide(0, || Err(OutOfMetadata)), Err(OutOfMetadata));
        assert_eq!((table.get(0), table.iter().count()), (None, 0));
        assert_eq!(table.provide(0, || Ok(9)), Ok(&9));
        assert_eq!(table.provide(0, || Ok(7)), Ok(&9), "the first one stays");
        assert!(table.metadata_bytes() >= 4);
    }
}
