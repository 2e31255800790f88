//! The table of attributes: each set of attributes that areas have is stored once, and areas name it by a number.
//!
//! A process has many areas and few kinds of them, so an area carries four bytes instead of the whole set, and asking
//! whether two areas are of one kind is a comparison of two numbers. Entries are found by hashing (open addressing,
//! linear probing, at most three quarters full). An entry that no area uses any more stays findable, since the
//! attributes that were unmapped a moment ago are often those that are mapped next; once such *idle* entries are half
//! of all, they are swept out together, so that nothing is ever deleted from the middle of a probe sequence and the
//! cost stays O(1), amortised.

use super::attributes::{AnonChain, Attributes, Backing};
use crate::check::Violation;
use crate::lists::{filled, grow, put};
use crate::ranges::OutOfMetadata;
use alloc::vec::Vec;

/// 1. Each entry counts the areas that use it.
/// 2. Entries are used, idle, or free; the counts of them are right.
/// 3. A used or idle entry is found by its attributes, unless an equal one is found instead.
/// 4. At most three quarters of the slots are taken.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<Entry>,
    /// The slots; their number is a power of two, or zero.
    slots: Vec<Slot>,
    /// The first of the free entries, which are linked.
    free: Option<u32>,
    free_entries: usize,
    /// Number of entries that no area uses and that are still found.
    idle_entries: usize,
    /// The entry that [`intern`](Self::intern) returned last, which is compared first.
    last: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    attributes: Attributes,
    use_of: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The entry can be found; `areas` areas have its attributes.
    Found { areas: u32 },
    /// No area has the entry, which may take other attributes; `next` is the next such entry.
    Free { next: Option<u32> },
}

/// An entry's number plus one; zero in an empty slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    fn of(tag: u32) -> Slot {
        Slot(tag + 1)
    }

    fn tag(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

impl Table {
    /// Returns the attributes with this number.
    #[inline]
    pub(super) fn get(&self, tag: u32) -> &Attributes {
        &self.entries[tag as usize].attributes
    }

    /// Reserves memory for the next `count` sets of attributes. O(1) amortised.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        let spare = self.free_entries + (self.entries.capacity() - self.entries.len());
        let found = self.entries.len() - self.free_entries;
        if count <= spare && fits(found + count, self.slots.len()) {
            return Ok(());
        }
        self.grow(count)
    }

    #[cold]
    fn grow(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        let found = self.entries.len() - self.free_entries;
        if self.idle_entries * 2 > found {
            self.sweep();
        }
        let found = self.entries.len() - self.free_entries;
        let more = count.saturating_sub(self.free_entries);
        if u32::try_from(self.entries.len() + more).is_err() {
            return Err(OutOfMetadata);
        }
        self.entries.try_reserve(more)?;
        let mut slots = self.slots.len().max(8);
        while !fits(found + count, slots) {
            slots = slots.checked_mul(2).ok_or(OutOfMetadata)?;
        }
        if slots > self.slots.len() {
            grow(&mut self.slots, slots, Slot::default())?;
            self.rehash();
        }
        Ok(())
    }

    /// Returns the number of these attributes, which one more area uses now; room for them was reserved. O(1) expected.
    pub(super) fn intern(&mut self, attributes: &Attributes) -> u32 {
        let tag = match self.last.filter(|&last| self.get(last) == attributes) {
            Some(last) => last,
            None => self.find(attributes).unwrap_or_else(|| self.add(attributes)),
        };
        self.last = Some(tag);
        self.retain(tag);
        tag
    }

    /// Notes that one more area uses an entry, which another area uses or which has just been found.
    pub(super) fn retain(&mut self, tag: u32) {
        let Use::Found { areas } = &mut self.entries[tag as usize].use_of else {
            unreachable!("a free entry has no number that anyone could know")
        };
        *areas += 1;
        self.idle_entries -= usize::from(*areas == 1);
    }

    /// Notes that one area fewer uses an entry.
    pub(super) fn release(&mut self, tag: u32) {
        let Use::Found { areas } = &mut self.entries[tag as usize].use_of else {
            unreachable!("a free entry has no number that anyone could know")
        };
        *areas -= 1;
        self.idle_entries += usize::from(*areas == 0);
    }

    /// Removes all entries, because no area is left; no memory is given back. O(entries).
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.slots.fill(Slot::default());
        (self.free, self.free_entries, self.idle_entries, self.last) = (None, 0, 0, None);
    }

    /// Turns every chain of this process alone ([`AnonChain::Own`]) into a shared one, as a fork does. O(entries).
    pub(super) fn share_chains(&mut self) {
        for entry in &mut self.entries {
            entry.attributes.chain = entry.attributes.chain.shared();
        }
        self.rehash();
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.slots.capacity() * size_of::<Slot>()
    }

    fn find(&self, attributes: &Attributes) -> Option<u32> {
        let mut at = self.home(attributes)?;
        while let Some(tag) = self.slots[at].tag() {
            if self.get(tag) == attributes {
                return Some(tag);
            }
            at = self.after(at);
        }
        None
    }

    /// Adds an entry, which is idle, and returns its number.
    fn add(&mut self, attributes: &Attributes) -> u32 {
        let entry = Entry { attributes: *attributes, use_of: Use::Found { areas: 0 } };
        let tag = match self.free {
            Some(tag) => {
                let Use::Free { next } = self.entries[tag as usize].use_of else {
                    unreachable!("the entries that are linked are free")
                };
                (self.free, self.free_entries) = (next, self.free_entries - 1);
                self.entries[tag as usize] = entry;
                tag
            }
            None => {
                put(&mut self.entries, entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.idle_entries += 1;
        self.put(tag);
        tag
    }

    /// Enters an entry's number into the first empty slot from the entry's home slot on.
    fn put(&mut self, tag: u32) {
        let mut at = self.home(self.get(tag)).expect("slots were reserved");
        while self.slots[at].tag().is_some() {
            at = self.after(at);
        }
        self.slots[at] = Slot::of(tag);
    }

    fn sweep(&mut self) {
        for tag in 0..self.entries.len() {
            let entry = &mut self.entries[tag];
            if entry.use_of == (Use::Found { areas: 0 }) {
                entry.use_of = Use::Free { next: self.free };
                self.free = Some(tag as u32);
                self.free_entries += 1;
            }
        }
        (self.idle_entries, self.last) = (0, None);
        self.rehash();
    }

    fn rehash(&mut self) {
        self.slots.fill(Slot::default());
        for tag in 0..self.entries.len() {
            if matches!(self.entries[tag].use_of, Use::Found { .. }) {
                self.put(tag as u32);
            }
        }
    }

    /// Returns the slot at which the search for these attributes begins; none while there is no slot.
    fn home(&self, attributes: &Attributes) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        Some(hash(attributes) as usize & mask)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// Verifies the laws, of which the first needs the tags of all areas.
    pub(super) fn check(&self, tags: impl Iterator<Item = u32>) -> Result<(), Violation> {
        let Ok(mut used) = filled(self.entries.len(), 0_u32) else { return Ok(()) };
        for tag in tags {
            used[tag as usize] += 1;
        }
        let (mut free, mut idle) = (0, 0);
        for (tag, entry) in self.entries.iter().enumerate() {
            let counted = match entry.use_of {
                Use::Found { areas } => areas,
                Use::Free { .. } => 0,
            };
            let law = "each entry counts the areas that use it";
            Violation::unless_equal(law, tag as u64, u64::from(used[tag]), u64::from(counted))?;
            match entry.use_of {
                Use::Found { areas } => {
                    idle += u64::from(areas == 0);
                    let found = self.find(&entry.attributes);
                    let equal = found.is_some_and(|found| *self.get(found) == entry.attributes);
                    let law = "a used or idle entry is found by its attributes";
                    Violation::unless(law, tag as u64, equal)?;
                }
                Use::Free { .. } => free += 1,
            }
        }
        let law = "the counts of idle and free entries are right";
        Violation::unless_equal(law, 0, idle, self.idle_entries as u64)?;
        Violation::unless_equal(law, 1, free, self.free_entries as u64)?;
        let found = self.entries.len() - self.free_entries;
        let law = "at most three quarters of the slots are taken";
        Violation::unless(law, found as u64, fits(found, self.slots.len()))
    }
}

/// Returns true if `entries` entries leave a quarter of the slots empty.
fn fits(entries: usize, slots: usize) -> bool {
    entries.checked_mul(4).is_some_and(|entries| entries <= slots.saturating_mul(3))
}

/// Returns a hash of all attributes; its low bits are the best mixed.
fn hash(attributes: &Attributes) -> u64 {
    let &Attributes { protection, flags, backing, offset, chain, memory_policy, userfault, name } =
        attributes;
    let (backing_kind, file) = match backing {
        Backing::Anonymous => (0, 0),
        Backing::File(file) => (1, file),
    };
    let (chain_kind, chain) = match chain {
        AnonChain::Untouched => (0, 0),
        AnonChain::Own(chain) => (1, chain),
        AnonChain::Shared(chain) => (2, chain),
    };
    let kinds: u64 = backing_kind | chain_kind << 1 | u64::from(protection.0) << 3;
    let words = [
        kinds | u64::from(flags.0) << 32,
        file,
        offset,
        chain,
        u64::from(memory_policy) | u64::from(userfault) << 32,
        u64::from(name),
    ];
    // Multiplying by an odd number and folding the high half down spreads every bit over the low ones.
    words.iter().fold(0, |hash: u64, word| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    })
}
