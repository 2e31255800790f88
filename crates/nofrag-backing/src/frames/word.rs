//! The state of each block in use beside that in the allocator: one word at its first frame.
//!
//! A word is written by the user of the block, and read by threads that would like to move it. Changes that must not
//! happen twice (giving a block back, ending its last mapping) are decided by one compare-and-swap on it.

use std::sync::atomic::{AtomicU64, Ordering};

use nofrag::units::{Order, Vpn};

use crate::zeroed::collected;

/// The use of a block, which names the party that must be told when it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// No use has been set: the block stays where it is.
    Pinned,
    /// Mapped from this page on, there alone; the area that maps the block can move it.
    Mapped {
        /// The first page of the mapping.
        vpn: Vpn,
    },
    /// A handle names it; the code that resolves handles can move it.
    Handle { id: u32 },
}

/// A word: `kind | zombie << 2 | order << 3 | holds << 7 | claimed << 17 | value << 18`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

const KIND: u64 = 0b11;
const ZOMBIE: u64 = 1 << 2;
const ORDER_SHIFT: u32 = 3;
const HOLD_SHIFT: u32 = 7;
const VALUE_SHIFT: u32 = 18;
const CLAIMED: u64 = 1 << 17;
const HOLDS: u64 = (1 << (17 - HOLD_SHIFT)) - 1;
const VALUE_BITS: u32 = u64::BITS - VALUE_SHIFT;

impl Word {
    /// No block in use begins here.
    pub(super) const NONE: Word = Word(0);

    /// Returns the word of a block that was just handed out.
    pub(super) fn fresh(order: Order) -> Word {
        Word(1 | u64::from(order.get()) << ORDER_SHIFT)
    }

    pub(super) fn is_none(self) -> bool {
        self.0 & KIND == 0
    }

    /// Returns true if the block was given back by its user, but is still mapped.
    pub(super) fn is_zombie(self) -> bool {
        self.0 & ZOMBIE != 0
    }

    pub(super) fn order(self) -> Order {
        let order = (self.0 >> ORDER_SHIFT & 15) as u8;
        Order::new(order).expect("a word is made from an order")
    }

    /// Returns the number of mappings that keep the block from being handed out again.
    pub(super) fn holds(self) -> u64 {
        self.0 >> HOLD_SHIFT & HOLDS
    }

    pub(super) fn used_for(self) -> Option<Use> {
        let value = self.0 >> VALUE_SHIFT;
        match self.0 & KIND {
            1 => Some(Use::Pinned),
            2 => Some(Use::Mapped { vpn: Vpn(value) }),
            3 => Some(Use::Handle { id: value as u32 }),
            _ => None,
        }
    }

    /// Returns the word of the same block for another use; `None` if no address can have the page number.
    pub(super) fn with_use(self, used_for: Use) -> Option<Word> {
        let (kind, value) = match used_for {
            Use::Pinned => (1, 0),
            Use::Mapped { vpn } => (2, vpn.0),
            Use::Handle { id } => (3, u64::from(id)),
        };
        let rest = self.0 & !KIND & ((1 << VALUE_SHIFT) - 1);
        (value >> VALUE_BITS == 0).then_some(Word(rest | kind | value << VALUE_SHIFT))
    }

    pub(super) fn as_zombie(self) -> Word {
        Word(self.0 | ZOMBIE)
    }

    /// Returns the order of a block in use.
    pub(super) fn order_in_use(self) -> Option<Order> {
        (!self.is_none()).then(|| self.order())
    }

    /// Returns true if no mapping shows the block but that of its mover.
    pub(super) fn can_move(self) -> bool {
        let own = u64::from(matches!(self.used_for(), Some(Use::Mapped { .. })));
        !self.is_none() && self.holds() <= own
    }

    /// Returns true if the block is being moved by the area that maps it: no mapping begins or ends meanwhile.
    pub(super) fn is_claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }

    pub(super) fn claimed(self) -> Word {
        Word(self.0 | CLAIMED)
    }

    pub(super) fn unclaimed(self) -> Word {
        Word(self.0 & !CLAIMED)
    }

    /// Returns the word with one mapping more; `None` if there are as many as can be counted, or it is claimed.
    pub(super) fn held(self) -> Option<Word> {
        (!self.is_claimed() && self.holds() < HOLDS).then(|| Word(self.0 + (1 << HOLD_SHIFT)))
    }

    /// Returns the word with one mapping less; `None` if there is none, or it is claimed.
    pub(super) fn released(self) -> Option<Word> {
        (!self.is_claimed() && self.holds() > 0).then(|| Word(self.0 - (1 << HOLD_SHIFT)))
    }
}

/// One word for each frame.
#[derive(Debug)]
pub(super) struct Words(Box<[AtomicU64]>);

impl Words {
    /// Returns words that are all [`Word::NONE`]; `None` without memory for them.
    pub(super) fn new(frames: usize) -> Option<Words> {
        let words = collected(frames, (0..frames).map(|_| AtomicU64::new(Word::NONE.0)));
        words.ok().map(|words| Words(words.into()))
    }

    pub(super) fn get(&self, frame: u64) -> Word {
        let word = usize::try_from(frame).ok().and_then(|frame| self.0.get(frame));
        // Pairs with the releases below: a thread that sees a use sees all that was done before it was published.
        word.map_or(Word::NONE, |word| Word(word.load(Ordering::Acquire)))
    }

    /// Writes the word of a frame that no other thread knows yet, or no longer.
    pub(super) fn set(&self, frame: u64, word: Word) {
        // Pairs with the acquire of `get` and `change`.
        self.0[frame as usize].store(word.0, Ordering::Release);
    }

    /// Replaces a word by the result of `change`, if there is one. Returns the old word: `Ok` if it was replaced.
    pub(super) fn change(
        &self,
        frame: u64,
        mut change: impl FnMut(Word) -> Option<Word>,
    ) -> Result<Word, Word> {
        let word = usize::try_from(frame).ok().and_then(|frame| self.0.get(frame));
        let Some(word) = word else { return Err(Word::NONE) };
        let changed = |old| change(Word(old)).map(|new| new.0);
        // Pairs with the releases of `set` and of itself, and with the acquire of `get`.
        let done = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
        done.map(Word).map_err(Word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_its_parts_apart() {
        let order = Order::new(10).unwrap();
        let vpn = Vpn((1 << VALUE_BITS) - 1);
        let word = Word::fresh(order).with_use(Use::Mapped { vpn }).unwrap();
        let word = word.held().unwrap().held().unwrap().as_zombie();
        assert_eq!((word.order(), word.holds(), word.is_zombie()), (order, 2, true));
        assert_eq!(word.used_for(), Some(Use::Mapped { vpn }));
        let word = word.with_use(Use::Handle { id: u32::MAX }).unwrap();
        assert_eq!((word.order(), word.holds(), word.is_zombie()), (order, 2, true));
        assert_eq!(word.used_for(), Some(Use::Handle { id: u32::MAX }));
        let word = word.released().and_then(Word::released).unwrap();
        assert_eq!(word.released(), None);
        assert!(!word.is_none() && Word::NONE.is_none());
        assert_eq!(word.with_use(Use::Mapped { vpn: Vpn(1 << VALUE_BITS) }), None);
    }

    #[test]
    fn a_claimed_word_gains_and_loses_no_mapping() {
        let held = Word::fresh(Order::ZERO).held().unwrap();
        let claimed = held.claimed();
        assert_eq!((claimed.held(), claimed.released(), claimed.holds()), (None, None, 1));
        assert_eq!(claimed.unclaimed(), held);
    }

    #[test]
    fn holds_are_not_lost_count_of() {
        let mut word = Word::fresh(Order::ZERO);
        let mut holds = 0;
        while let Some(held) = word.held() {
            (word, holds) = (held, holds + 1);
        }
        assert_eq!((word.holds(), holds), (HOLDS, HOLDS));
        assert_eq!((word.order(), word.used_for()), (Order::ZERO, Some(Use::Pinned)));
    }
}
