//! Instructions of one operation, counted one by one by the parent of a process that does it.

use std::hint::black_box;
use std::io;

/// The most instructions that are counted.
const MOST: u64 = 2_000_000;

/// Returns the instructions that `operation` takes, the few that begin and end it included. It runs in a child, so its
/// effects are gone afterwards; what it returns is not dropped.
pub(crate) fn instructions<T>(operation: impl FnOnce() -> T) -> u64 {
    instructions_after(|| (), |&mut ()| operation())
}

/// Returns the instructions of `operation` as [`instructions`] does, on what the child has made first: for what refuses
/// the children of its maker.
pub(crate) fn instructions_after<S, T>(
    make: impl FnOnce() -> S,
    operation: impl FnOnce(&mut S) -> T,
) -> u64 {
    // SAFETY: the child does `operation`, which takes no lock that other tests' threads may hold, and ends without
    // running code of the test.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        let mut made = std::mem::ManuallyDrop::new(make());
        // SAFETY: the calls concern this process alone; it stops twice for its parent, and then ends.
        unsafe {
            libc::alarm(300);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        black_box(std::mem::ManuallyDrop::new(operation(&mut made)));
        // SAFETY: as above.
        unsafe {
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
    }
    assert_eq!(stopped_by(child), Some(libc::SIGSTOP), "it stops before the operation");
    let mut counted = 0;
    let said = loop {
        // SAFETY: the child is ours, traced, and stopped.
        let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
        assert_eq!(stepped, 0, "ptrace: {}", io::Error::last_os_error());
        match stopped_by(child) {
            Some(libc::SIGTRAP) if counted < MOST => counted += 1,
            said => break said,
        }
    };
    // SAFETY: the child is ours; nothing of it is wanted any more.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let _ = stopped_by(child);
    assert_eq!(said, Some(libc::SIGSTOP), "the operation ends, within {MOST} instructions");
    counted
}

/// Waits for the child; returns the signal that has stopped it, none if it has ended.
fn stopped_by(child: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the child is ours, and `status` is where the answer goes.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "waitpid: {}", io::Error::last_os_error());
    libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
}
