//! Pins and moves, under every interleaving with at most two preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p nofrag-backing --profile models --test loom_pins \
//!     --target-dir target/loom
//! ```
#![cfg(loom)]

// The file itself: the rest of the crate is not built for the model checker's atomics.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/moving/pins.rs"]
mod pins;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use pins::{Patience, PinError, Pinned, Pins};

/// An object that can be pinned and moved: only a thread with a pin, or a mover, may look.
struct Movable {
    pins: Pins,
    content: UnsafeCell<u32>,
}

impl Movable {
    fn new() -> Arc<Movable> {
        Arc::new(Movable { pins: Pins::new(), content: UnsafeCell::new(0) })
    }

    /// Changes the content under a pin, as a user. The model fails if a move does at the same time.
    fn use_once(&self) {
        let _pin = self.pins.pin().unwrap();
        // SAFETY: the pin keeps movers away, and each test has one user that writes at a time.
        self.content.with_mut(|content| unsafe { *content += 1 });
    }

    fn try_use(&self) -> bool {
        let Ok(_pin) = self.pins.try_pin() else { return false };
        // SAFETY: as above.
        self.content.with_mut(|content| unsafe { *content += 1 });
        true
    }

    /// Changes the content in a move, if that finds no pin in time.
    fn move_once(&self, looks: u32) -> bool {
        let Ok(_moving) = self.pins.begin_move(Patience { looks }) else { return false };
        // SAFETY: no pin is held, and none is given.
        self.content.with_mut(|content| unsafe { *content += 10 });
        true
    }

    fn content(&self) -> u32 {
        let _pin = self.pins.pin().unwrap();
        // SAFETY: all threads have ended.
        self.content.with(|content| unsafe { *content })
    }
}

#[test]
fn a_user_and_a_mover_never_meet() {
    loom::model(|| {
        let shared = Movable::new();
        let mover = Arc::clone(&shared);
        let mover = thread::spawn(move || mover.move_once(3));
        shared.use_once();
        shared.use_once();
        let moved = mover.join().unwrap();
        assert_eq!(shared.content(), 2 + 10 * u32::from(moved));
        assert_eq!(shared.pins.held(), 0);
    });
}

#[test]
fn two_movers_never_meet_and_neither_meets_a_user() {
    loom::model(|| {
        let shared = Movable::new();
        let movers = [1, 2].map(|looks| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.move_once(looks))
        });
        let used = shared.try_use();
        let moved = movers.into_iter().map(|mover| u32::from(mover.join().unwrap())).sum::<u32>();
        assert_eq!(shared.content(), u32::from(used) + 10 * moved);
    });
}

#[test]
fn who_holds_a_pin_and_wants_another_does_not_wait_for_ever() {
    loom::model(|| {
        let shared = Movable::new();
        let mover = Arc::clone(&shared);
        let mover = thread::spawn(move || mover.move_once(2));
        let first = shared.pins.pin().unwrap();
        let second = shared.pins.pin().unwrap();
        drop((first, second));
        mover.join().unwrap();
    });
}

#[test]
fn while_somebody_moves_there_is_no_pin_and_no_second_mover() {
    loom::model(|| {
        let shared = Movable::new();
        let moving = shared.pins.begin_move(Patience::NONE).unwrap();
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            let second = other.pins.begin_move(Patience::NONE).err();
            (other.pins.try_pin().err(), second)
        });
        assert_eq!(other.join().unwrap(), (Some(PinError::Moving), Some(Pinned::Moving)));
        drop(moving);
        shared.use_once();
    });
}
