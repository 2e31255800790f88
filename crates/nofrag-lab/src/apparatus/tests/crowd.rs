//! Threads on stacks of the system and on our own.

use std::collections::BTreeSet;
use std::env;
use std::hint::black_box;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nofrag::mmap::Protection;
use nofrag::ranges::Span;
use nofrag_backing::reservation::Reservation;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::apparatus::crowd::{Crowd, CrowdError, Stacks};

/// Pages of a stack, with its guard.
const STACK: u64 = 64;

/// Places `count` stacks in one reservation, the lowest page of each a guard; `None` where the kernel has no such
/// guards.
fn placed(count: u64) -> Option<Stacks> {
    let bytes = (count * STACK) as usize * 4096;
    let mut reservation = Reservation::new(bytes, Protection::READ_WRITE).unwrap();
    let first = reservation.pages().start();
    let mut stacks = Vec::new();
    for start in (first..).step_by(STACK as usize).take(count as usize) {
        if let Err(why) = reservation.guard(Span::sized(start, 1).unwrap()) {
            eprintln!("skipped: guards in page tables need Linux 6.13: {why}");
            return None;
        }
        stacks.push(Span::sized(start + 1, STACK - 1).unwrap());
    }
    Some(Stacks::Placed { reservation, stacks })
}

/// Starts `count` threads that wait; `None` where the system allows a user or a container fewer.
fn started(count: usize, stacks: Stacks) -> Option<Crowd> {
    match Crowd::start(count, stacks) {
        Ok(crowd) => Some(crowd),
        Err(CrowdError::Refused { number, why }) if why.kind() == ErrorKind::WouldBlock => {
            eprintln!("skipped: thread {number} of {count} is refused: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Waits until all threads of the crowd run; returns the addresses of their stacks.
fn running(crowd: &Crowd) -> BTreeSet<u64> {
    let begin = Instant::now();
    loop {
        let stacks: BTreeSet<u64> = crowd.stack_addresses().collect();
        if stacks.len() == crowd.len() {
            return stacks;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{} threads run", stacks.len());
        thread::yield_now();
    }
}

#[test]
fn threads_run_on_the_stacks_that_they_were_given() {
    let Some(stacks) = placed(50) else { return };
    let Stacks::Placed { stacks: spans, .. } = &stacks else { unreachable!() };
    let spans = spans.clone();
    let Some(crowd) = started(50, stacks) else { return };
    for (address, span) in running(&crowd).into_iter().zip(&spans) {
        assert!(span.contains(address >> 12), "{address:#x} is not on {span:?}");
    }
}

#[test]
fn threads_run_on_stacks_of_the_system() {
    let stacks = Stacks::System { bytes: 1 << 20, guard: 4096 };
    let Some(crowd) = started(50, stacks) else { return };
    assert_eq!(running(&crowd).len(), 50);
}

#[test]
fn stacks_that_overlap_or_are_missing_are_refused() {
    for spans in [vec![(0, 10), (9, 10)], vec![(0, 10)]] {
        let reservation = Reservation::new(64 * 4096, Protection::READ_WRITE).unwrap();
        let first = reservation.pages().start();
        let span = |(start, pages)| Span::sized(first + start, pages).unwrap();
        let stacks = spans.into_iter().map(span).collect();
        let refused = Crowd::start(2, Stacks::Placed { reservation, stacks });
        assert!(matches!(refused, Err(CrowdError::Stacks { threads: 2 })), "{refused:?}");
    }
}

#[test]
fn a_stack_outside_the_reservation_is_refused() {
    let reservation = Reservation::new(4096, Protection::READ_WRITE).unwrap();
    let stacks = vec![Span::sized(reservation.pages().end(), 64).unwrap()];
    let refused = Crowd::start(1, Stacks::Placed { reservation, stacks });
    assert!(matches!(refused, Err(CrowdError::Refused { number: 1, .. })), "{refused:?}");
}

/// Starts threads on stacks that cannot be written or have a guard inside, which is refused. Threads on such stacks
/// ended the process at their first instruction.
#[test]
fn a_stack_that_cannot_be_written_is_refused() {
    let start = |close: fn(&mut Reservation, Span) -> std::io::Result<()>| {
        let mut reservation = Reservation::new(64 * 4096, Protection::READ_WRITE).unwrap();
        let stack = reservation.pages();
        close(&mut reservation, stack)?;
        match Crowd::start(1, Stacks::Placed { reservation, stacks: vec![stack] }) {
            Ok(crowd) => Ok(running(&crowd).len()),
            Err(CrowdError::Refused { number: 1, why }) => Err(why),
            Err(other) => panic!("{other}"),
        }
    };
    let refused = Err(ErrorKind::PermissionDenied);
    for (closed, expected) in [
        (start(|on, stack| on.protect(stack, Protection::NONE)), refused),
        (start(|on, stack| on.protect(stack, Protection::READ)), refused),
        (
            start(|on, stack| {
                on.protect(Span::sized(stack.end() - 1, 1).unwrap(), Protection::READ)
            }),
            refused,
        ),
        (
            start(|on, stack| {
                on.protect(stack, Protection::READ)?;
                on.protect(stack, Protection::READ_WRITE)
            }),
            Ok(1),
        ),
    ] {
        assert_eq!(closed.map_err(|why| why.kind()), expected);
    }
    if placed(1).is_none() {
        return;
    }
    let guarded = start(|on, stack| on.guard(Span::sized(stack.end() - 1, 1).unwrap()));
    assert_eq!(guarded.map_err(|why| why.kind()), refused);
    let both = start(|on, stack| {
        on.guard(stack)?;
        on.protect(stack, Protection::READ_WRITE)
    });
    assert_eq!(both.map_err(|why| why.kind()), refused, "a protection takes no guard away");
    let unguarded = start(|on, stack| {
        on.guard(stack)?;
        on.unguard(stack)
    });
    assert_eq!(unguarded.map_err(|why| why.kind()), Ok(1));
}

#[test]
fn more_threads_than_linux_has_are_refused_at_once() {
    for count in [(1 << 22) + 1, 1 << 30] {
        let refused = Crowd::start(count, Stacks::System { bytes: 1 << 16, guard: 4096 });
        let Err(CrowdError::Refused { number, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(number, (1 << 22) + 1);
    }
}

#[test]
fn a_used_up_stack_ends_the_process() {
    if placed(1).is_none() {
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "apparatus::tests::crowd::use_a_stack_up",
            "--ignored",
            "--test-threads=1",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the child does not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
    assert!(!status.core_dumped(), "it leaves a file behind");
}

/// Uses a stack up: as the child of `a_used_up_stack_ends_the_process`.
#[test]
#[ignore = "ends the process, as it should"]
fn use_a_stack_up() {
    fn deeper(depth: u64) -> u64 {
        let here = black_box([depth; 64]);
        if depth == u64::MAX { 0 } else { deeper(depth + 1) + here[0] }
    }
    // The process is meant to end: no image of it is left behind.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    // A second stack below the first: without a guard its memory would be written over.
    let body = || {
        black_box(deeper(black_box(0)));
    };
    // SAFETY: `placed` puts a guard below every stack.
    let crowd = unsafe { Crowd::start_running(2, placed(2).unwrap(), body) };
    running(&crowd.unwrap());
}
