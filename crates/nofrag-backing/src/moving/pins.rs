//! Pins: a user of memory holds one, and a mover waits until there are none.
//!
//! A user adds a pin and then looks whether a move is under way; if so it takes the pin back, waits, and tries again. A
//! mover sets a flag and then waits until there are no pins. The second of the two sees the first: with the count and
//! the flag apart that would need both sides sequentially consistent; here they are one word, all operations on one
//! word have one order, and so acquire and release are enough (`tests/loom_pins.rs` tries all interleavings).
//!
//! A mover gives up after a stated [`Patience`]. So no thread waits for ever: not for a user that keeps its pin, and
//! not with one pin held in asking for a second while a move waits for the first.
//!
//! Cost: two atomic operations for pin and unpin; one for a mover that finds no pin.
//!
//! Source: docs/sources/backing.md#pins.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// A move is under way, or waits for the last pin.
const MOVING: u32 = 1 << 31;

/// The most pins, more than any program needs. The threads that may pass this bound at once, each by one, are too few
/// to reach the flag.
const MOST: u32 = 1 << 30;

/// Number of looks before a waiting thread lets others run.
const SPINS: u32 = 64;

/// Returns true if a mover lets others run after a look: after the 64th and each time that it has looked twice as
/// often. Where threads wait for a processor each time may take milliseconds, so the times are few.
const fn is_long(looks: u32) -> bool {
    looks >= SPINS && looks.is_power_of_two()
}

/// The pins of an object that can be moved.
///
/// 1. The low bits count the pins that are held and the attempts that are about to be taken back.
/// 2. Between the end of the wait of a [`Moving`] and its drop, no pin is held.
/// 3. There is at most one [`Moving`].
#[derive(Debug, Default)]
pub struct Pins {
    word: AtomicU32,
}

/// A pin: as long as it lives, the pinned object stays at its place.
#[derive(Debug)]
#[must_use = "what is not pinned may be moved"]
pub struct Pin<'a>(&'a Pins);

/// A move: as long as it lives, no pin is held, and a thread that wants one waits.
#[derive(Debug)]
#[must_use = "dropping it lets users go on"]
pub struct Moving<'a>(&'a Pins);

/// Number of looks of a mover for the end of the last pin before it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Looks, at least one. After the 64th, the 128th, the 256th and so on the mover lets others run once, so that the
    /// holder of a pin can go on where it waits for the processor.
    pub looks: u32,
}

impl Patience {
    pub const NONE: Patience = Patience { looks: 1 };
    /// Enough for pins that are held for microseconds by threads that run.
    pub const SHORT: Patience = Patience { looks: 1 << 12 };
}

/// Why a pin was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The object is being moved right now.
    #[error("it is being moved: try again")]
    Moving,
    /// More than 2^30 pins are held: some were forgotten.
    #[error("more than 2^30 pins are held: give pins back by dropping them")]
    TooMany,
}

/// Why an object cannot be moved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Pinned {
    #[error("pinned: {pins} pins were held when the mover gave up")]
    Held {
        /// Number of pins, including those that were about to be taken back.
        pins: u32,
    },
    /// Another mover is at work.
    #[error("another move of it is under way")]
    Moving,
}

impl Pins {
    /// Returns pins of which none is held.
    #[must_use]
    pub fn new() -> Pins {
        Pins::default()
    }

    /// Takes a pin, unless a move is under way.
    ///
    /// # Errors
    /// See [`PinError`].
    #[inline]
    pub fn try_pin(&self) -> Result<Pin<'_>, PinError> {
        // Acquire: pairs with the release that clears the flag in `Moving::drop`, so that the holder of a pin sees the
        // mover's writes. Release: see `unpin`.
        let before = self.word.fetch_add(1, Ordering::AcqRel);
        if before < MOST {
            return Ok(Pin(self));
        }
        Err(self.refused(before))
    }

    /// Takes a pin, after the end of a move that is under way.
    ///
    /// # Errors
    /// [`PinError::TooMany`].
    #[inline]
    pub fn pin(&self) -> Result<Pin<'_>, PinError> {
        match self.try_pin() {
            Err(PinError::Moving) => self.wait_and_pin(),
            result => result,
        }
    }

    #[cold]
    fn refused(&self, before: u32) -> PinError {
        self.unpin();
        if before & MOVING != 0 { PinError::Moving } else { PinError::TooMany }
    }

    #[cold]
    fn wait_and_pin(&self) -> Result<Pin<'_>, PinError> {
        let mut looks = 0;
        loop {
            // Only looks: an attempt would disturb the mover, which waits for a count of zero.
            // Relaxed: the pin itself acquires.
            while self.word.load(Ordering::Relaxed) & MOVING != 0 {
                relax(looks >= SPINS);
                looks = looks.saturating_add(1);
            }
            match self.try_pin() {
                Err(PinError::Moving) => {}
                result => return result,
            }
        }
    }

    #[inline]
    fn unpin(&self) {
        // Release: pairs with the acquire of a mover that sees zero, so that all accesses under the pin come before the
        // move. An operation that adds continues the release of another, so all users count.
        self.word.fetch_sub(1, Ordering::Release);
    }

    /// Keeps users out and waits until no pin is held.
    ///
    /// # Errors
    /// See [`Pinned`]; users go on.
    #[inline]
    pub fn begin_move(&self, patience: Patience) -> Result<Moving<'_>, Pinned> {
        // Acquire: pairs with the release of `unpin` if no pin is left, and with that of the last `Moving`.
        let before = self.word.fetch_or(MOVING, Ordering::Acquire);
        if before & MOVING != 0 {
            return Err(Pinned::Moving);
        }
        let moving = Moving(self);
        if before == 0 { Ok(moving) } else { moving.wait(patience) }
    }

    /// Returns the number of pins that are held, including attempts that are about to be taken back.
    #[must_use]
    pub fn held(&self) -> u32 {
        // Relaxed: the number may change the moment after.
        self.word.load(Ordering::Relaxed) & !MOVING
    }
}

impl<'a> Moving<'a> {
    #[cold]
    fn wait(self, patience: Patience) -> Result<Moving<'a>, Pinned> {
        let mut pins = 0;
        for looks in 0..patience.looks.max(1) {
            // Acquire: pairs with the release of `unpin`.
            pins = self.0.word.load(Ordering::Acquire) & !MOVING;
            if pins == 0 {
                return Ok(self);
            }
            relax(is_long(looks));
        }
        Err(Pinned::Held { pins })
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl Drop for Moving<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire of `try_pin`, so that users see the moved contents.
        self.0.word.fetch_and(!MOVING, Ordering::Release);
    }
}

/// Waits a moment; lets others run if it has been long.
#[inline]
fn relax(is_long: bool) {
    #[cfg(loom)]
    {
        let _ = is_long;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if is_long {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Compaction beside four busy threads stood for minutes: the mover let them run 4,032 times for each pinned block.
    #[test]
    fn a_mover_lets_others_run_a_few_times() {
        let times =
            |patience: Patience| (0..patience.looks).filter(|&looks| is_long(looks)).count();
        assert_eq!((times(Patience::NONE), times(Patience::SHORT)), (0, 6));
    }
}
