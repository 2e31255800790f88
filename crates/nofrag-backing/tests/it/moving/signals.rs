//! The handler of `SIGSEGV`, each time in a process of its own.

use std::os::unix::process::ExitStatusExt as _;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nofrag_backing::moving::{Access, LiveFile, Method, MoveError, Mover, Reach};

use crate::children::{self, Process};

fn set(action: libc::sighandler_t) {
    // SAFETY: the actions of these tests do nothing, or end the process.
    assert_ne!(unsafe { libc::signal(libc::SIGSEGV, action) }, libc::SIG_ERR);
}

fn send() {
    // SAFETY: it sends a signal to this thread.
    assert_eq!(unsafe { libc::raise(libc::SIGSEGV) }, 0);
}

/// Moves under a writer, so often that it must meet a move.
fn moves_under_a_writer(moves: u64) {
    let file = LiveFile::new(4).unwrap();
    let area = file.map(0, 2, Access::Direct, Reach::Processors).unwrap();
    let stop = AtomicBool::new(false);
    let word = &area.words().unwrap()[0];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                word.fetch_add(1, Ordering::Relaxed);
            }
        });
        for moved in 0..moves {
            let to = (moved + 1) % 2 * 2;
            assert_eq!(Mover::new().move_run(&area, 0..2, to, Method::Mprotect), Ok(()));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
#[ignore = "run by a test, in a process of its own"]
fn ignores_what_is_sent() {
    set(libc::SIG_IGN);
    moves_under_a_writer(10);
    send();
    moves_under_a_writer(1000);
    children::say(&children::parent(), 1);
}

#[test]
fn a_signal_that_was_ignored_and_is_sent_leaves_the_handler() {
    let child = Process::run("moving::signals::ignores_what_is_sent");
    assert_eq!(children::hear(&child.socket), 1);
    child.succeeds();
}

#[test]
#[ignore = "run by a test, in a process of its own"]
fn dies_of_what_is_sent() {
    set(libc::SIG_DFL);
    moves_under_a_writer(10);
    send();
}

#[test]
fn a_signal_that_is_sent_has_its_default_action() {
    let child = Process::run("moving::signals::dies_of_what_is_sent");
    assert_eq!(child.ends().signal(), Some(libc::SIGSEGV));
}

#[test]
#[ignore = "run by a test, in a process of its own"]
fn has_lost_the_handler() {
    let file = LiveFile::new(4).unwrap();
    let area = file.map(0, 2, Access::Direct, Reach::Processors).unwrap();
    assert_eq!(Mover::new().move_run(&area, 0..2, 2, Method::Mprotect), Ok(()));
    // SAFETY: it reads the present action into a structure of ours.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &mut ours) };
    set(libc::SIG_DFL);
    let refused = Mover::new().move_run(&area, 0..2, 0, Method::Mprotect);
    assert_eq!(refused, Err(MoveError::HandlerReplaced));
    // SAFETY: it restores the action from before.
    unsafe { libc::sigaction(libc::SIGSEGV, &ours, ptr::null_mut()) };
    assert_eq!(Mover::new().move_run(&area, 0..2, 0, Method::Mprotect), Ok(()));
    children::say(&children::parent(), 1);
}

#[test]
fn without_its_handler_nothing_moves() {
    let child = Process::run("moving::signals::has_lost_the_handler");
    assert_eq!(children::hear(&child.socket), 1);
    child.succeeds();
}
