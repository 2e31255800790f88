//! Pins and moves: how a user and a mover agree, on two words and without a lock.
//!
//! A user adds its pin, then reads the state; only if that is *live*, of the generation that the user knows, does it
//! hold a pin, else it takes the pin back. A mover sets the state to *moving*, then reads the pins; only if there are
//! none may it move. At least one of the two sees the other:
//!
//! The mover reads the pins by an addition of zero, so that every pin comes before or after that in the one order which
//! all changes of a word have. A pin before is counted. A pin after reads what the mover's addition wrote, so the
//! mover's change of the state happened before, and the user sees it. This needs no sequentially consistent operation,
//! and the price is the mover's, who is rare.
//!
//! This file names no home of its atomics (`sync` is its parent's), so that a model checker can put others there:
//! `tests/loom_shared.rs`.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// What may be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It names nothing.
    Free,
    /// Its bytes are being written for the first time; nobody else may see them.
    Writing,
    /// It may be pinned.
    Live,
    /// It is about to be somewhere else; nobody may pin it.
    Moving,
    /// It was given up; who has pinned it may go on, and nobody else may begin.
    Dying,
}

/// The word of an entry: which life it is in, and what may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Goes up with each life, so that a handle of an earlier one is recognised.
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
}

impl State {
    pub(crate) const fn new(generation: u32, phase: Phase) -> State {
        State { generation, phase }
    }

    pub(crate) const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.phase as u64
    }

    /// `None` for a word that nobody who keeps the protocol has written.
    pub(crate) const fn from_word(word: u64) -> Option<State> {
        let phase = match word as u32 {
            0 => Phase::Free,
            1 => Phase::Writing,
            2 => Phase::Live,
            3 => Phase::Moving,
            4 => Phase::Dying,
            _ => return None,
        };
        Some(State { generation: (word >> 32) as u32, phase })
    }
}

/// Why there is no pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The entry is in another life, or in none that may be pinned.
    Stale,
    /// It is moving: to be tried again.
    Moving,
    /// So many pins that one more could be lost.
    TooMany,
    /// The word is none of ours.
    Damaged,
}

/// Half of what the counter holds: no number of threads that are between adding and taking back makes it wrap.
const MOST_PINS: u32 = 1 << 31;

/// Pins the entry for a user who knows it by `generation`.
pub(crate) fn pin(pins: &AtomicU32, state: &AtomicU64, generation: u32) -> Result<(), Refusal> {
    // Acquire pairs with the release of `is_unpinned`: after it, the mover's `enter` is seen.
    let before = pins.fetch_add(1, Ordering::AcqRel);
    // Acquire pairs with the release of `enter`: place and bytes of a live entry are seen with it.
    let refusal = match State::from_word(state.load(Ordering::Acquire)) {
        _ if before >= MOST_PINS => Refusal::TooMany,
        None => Refusal::Damaged,
        Some(now) if now.generation != generation => Refusal::Stale,
        Some(State { phase: Phase::Live, .. }) => return Ok(()),
        Some(State { phase: Phase::Moving, .. }) => Refusal::Moving,
        Some(_) => Refusal::Stale,
    };
    unpin(pins);
    Err(refusal)
}

/// Gives one pin back.
pub(crate) fn unpin(pins: &AtomicU32) {
    // Release pairs with the acquire of `is_unpinned`: what was read under the pin was read before any move.
    pins.fetch_sub(1, Ordering::Release);
}

/// Says what may be done with the entry from now on. For its owner alone: nobody else changes the word.
pub(crate) fn enter(state: &AtomicU64, now: State) {
    // Release pairs with the acquire of `pin`: what the owner wrote before is seen by who finds the entry live.
    state.store(now.to_word(), Ordering::Release);
}

/// Whether nobody holds a pin, for an owner who has entered a phase that allows no new one.
pub(crate) fn is_unpinned(pins: &AtomicU32) -> bool {
    // An addition of zero takes its place among the pins; see above. Acquire pairs with the release of `unpin`.
    pins.fetch_add(0, Ordering::AcqRel) == 0
}
