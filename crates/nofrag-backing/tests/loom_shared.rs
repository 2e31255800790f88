//! Pins in shared memory and a mover, under every interleaving of two users and one mover.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nofrag-backing --profile quick --test loom_shared --target-dir target/loom
//! ```
#![cfg(loom)]

#[path = "../src/shared/protocol.rs"]
#[allow(dead_code)]
mod protocol;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;
use protocol::{Phase, Refusal, State};

/// An entry, a row of pins for each user, and the bytes, whose accesses the model watches.
struct Shared {
    state: AtomicU64,
    pins: [AtomicU32; 2],
    bytes: UnsafeCell<u32>,
}

impl Shared {
    fn new(state: State) -> Arc<Shared> {
        Arc::new(Shared {
            state: AtomicU64::new(state.to_word()),
            pins: [AtomicU32::new(0), AtomicU32::new(0)],
            bytes: UnsafeCell::new(7),
        })
    }

    /// What a user reads, if it gets a pin.
    fn read(&self, user: usize) -> Result<u32, Refusal> {
        protocol::pin(&self.pins[user], &self.state, 1)?;
        // SAFETY: the model says if somebody writes meanwhile: this is what is tested.
        let read = self.bytes.with(|bytes| unsafe { *bytes });
        protocol::unpin(&self.pins[user]);
        Ok(read)
    }

    /// Writes elsewhere, so to speak, if nobody has a pin.
    fn moves(&self) -> bool {
        protocol::enter(&self.state, State::new(1, Phase::Moving));
        let moves = self.pins.iter().all(protocol::is_unpinned);
        if moves {
            // SAFETY: the model says if somebody reads meanwhile: this is what is tested.
            self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
        }
        protocol::enter(&self.state, State::new(1, Phase::Live));
        moves
    }
}

#[test]
fn nobody_reads_what_moves() {
    loom::model(|| {
        let shared = Shared::new(State::new(1, Phase::Live));
        let users = [0, 1].map(|user| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.read(user))
        });
        let moved = shared.moves();
        for user in users {
            match user.join().unwrap() {
                Ok(read) => assert!(read == 7 || moved && read == 8),
                Err(refusal) => assert_eq!(refusal, Refusal::Moving),
            }
        }
        assert!(shared.pins.iter().all(protocol::is_unpinned));
    });
}

#[test]
fn nobody_reads_what_has_ended_and_begun_again() {
    loom::model(|| {
        let shared = Shared::new(State::new(1, Phase::Live));
        let user = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.read(0))
        };
        protocol::enter(&shared.state, State::new(1, Phase::Dying));
        if shared.pins.iter().all(protocol::is_unpinned) {
            protocol::enter(&shared.state, State::new(2, Phase::Writing));
            // SAFETY: the model says if somebody reads meanwhile: this is what is tested.
            shared.bytes.with_mut(|bytes| unsafe { *bytes = 9 });
            protocol::enter(&shared.state, State::new(2, Phase::Live));
        }
        assert!(matches!(user.join().unwrap(), Ok(7) | Err(Refusal::Stale)));
    });
}

/// What is published is seen whole by who finds it live.
#[test]
fn who_pins_sees_what_was_written_before() {
    loom::model(|| {
        let shared = Shared::new(State::new(1, Phase::Writing));
        let user = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.read(1))
        };
        // SAFETY: the model says if somebody reads meanwhile: this is what is tested.
        shared.bytes.with_mut(|bytes| unsafe { *bytes = 8 });
        protocol::enter(&shared.state, State::new(1, Phase::Live));
        assert!(matches!(user.join().unwrap(), Ok(8) | Err(Refusal::Stale)));
    });
}
