//! A map from numbers to numbers, open-addressed, whose memory is reserved before a change.
//!
//! Linear probing at a load of at most three quarters. Removal shifts the followers back, so there are no tombstones
//! and a lookup never walks over the past.

use crate::lists::filled;
use crate::ranges::OutOfMetadata;
use alloc::vec::Vec;

/// Not a key: keys are offsets below 2^46 with a tag in the top byte.
const VACANT: u64 = u64::MAX;

const FEWEST_PLACES: usize = 16;

#[derive(Clone, Copy, Debug)]
struct TablePlace {
    key: u64,
    value: u64,
}

/// A hash table from numbers to numbers.
///
/// 1. A key is reached from its home place without passing a vacant one.
/// 2. At most three quarters of the places are taken.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The places; their number is a power of two, or zero.
    places: Vec<TablePlace>,
    len: usize,
    shift: u32,
}

impl Table {
    /// Returns the home place of `key`: the top digits of its product with 2^64 over the golden ratio, so that
    /// neighbouring keys go far apart.
    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Returns the place of `key`, or the vacant one where it belongs. There must be places.
    #[inline]
    fn seek(&self, key: u64) -> usize {
        let mask = self.places.len() - 1;
        let mut at = self.home(key);
        loop {
            let found = self.places[at & mask].key;
            if found == key || found == VACANT {
                return at & mask;
            }
            at += 1;
        }
    }

    #[inline]
    pub(super) fn get(&self, key: u64) -> Option<u64> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.places[self.seek(key)];
        (place.key == key).then_some(place.value)
    }

    /// Makes room for `more` keys.
    #[inline]
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), OutOfMetadata> {
        if (self.len + more) * 4 <= self.places.len() * 3 {
            return Ok(());
        }
        self.grow(more)
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), OutOfMetadata> {
        let wanted = ((self.len + more) * 4 / 3 + 1).next_power_of_two().max(FEWEST_PLACES);
        let places = filled(wanted, TablePlace { key: VACANT, value: 0 })?;
        let old = core::mem::replace(&mut self.places, places);
        self.shift = 64 - wanted.trailing_zeros();
        for place in old.into_iter().filter(|place| place.key != VACANT) {
            let at = self.seek(place.key);
            self.places[at] = place;
        }
        Ok(())
    }

    /// Sets the value of `key`. Room was reserved.
    #[inline]
    pub(super) fn set(&mut self, key: u64, value: u64) {
        let at = self.seek(key);
        self.len += usize::from(self.places[at].key == VACANT);
        self.places[at] = TablePlace { key, value };
        debug_assert!(self.len < self.places.len(), "room for the key was reserved");
    }

    /// Sets bits in the value of `key`, which is 0 at first. Room was reserved.
    #[inline]
    pub(super) fn set_bits(&mut self, key: u64, bits: u64) {
        let at = self.seek(key);
        let place = self.places[at];
        let old = if place.key == VACANT { 0 } else { place.value };
        self.len += usize::from(place.key == VACANT);
        self.places[at] = TablePlace { key, value: old | bits };
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<u64> {
        if self.places.is_empty() {
            return None;
        }
        let mut hole = self.seek(key);
        let removed = self.places[hole];
        if removed.key == VACANT {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let follower = self.places[at];
            if follower.key == VACANT {
                break;
            }
            // A follower may move into the hole unless its home lies behind the hole.
            let from_home = at.wrapping_sub(self.home(follower.key)) & mask;
            if from_home >= (at.wrapping_sub(hole) & mask) {
                self.places[hole] = follower;
                hole = at;
            }
        }
        self.places[hole].key = VACANT;
        self.len -= 1;
        Some(removed.value)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let taken = self.places.iter().filter(|place| place.key != VACANT);
        taken.map(|place| (place.key, place.value))
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_table_agrees_with_a_list() {
        let mut table = Table::default();
        let mut list: Vec<(u64, u64)> = Vec::new();
        let mut random = 7_u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let key = (random >> 33) % 300;
            match random >> 62 {
                0 | 1 => {
                    table.reserve(1).unwrap();
                    table.set(key, step);
                    list.retain(|&(other, _)| other != key);
                    list.push((key, step));
                }
                _ => {
                    let expected = list.iter().find(|&&(other, _)| other == key).copied();
                    assert_eq!(table.remove(key), expected.map(|(_, value)| value));
                    list.retain(|&(other, _)| other != key);
                }
            }
            assert_eq!(table.len(), list.len());
            for &(key, value) in &list {
                assert_eq!(table.get(key), Some(value));
            }
        }
    }
}
