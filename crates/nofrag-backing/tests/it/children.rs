//! Child processes: this test binary, run with one of its ignored tests, with a socket for its standard input; and
//! children of a fork.

use std::env;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A child that ends with the test.
pub(crate) struct Process {
    child: Child,
    pub(crate) socket: UnixStream,
}

impl Process {
    /// Runs the ignored test with this path.
    pub(crate) fn run(test: &str) -> Process {
        let (socket, other) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--test-threads=1", "--nocapture"])
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Process { child, socket }
    }

    pub(crate) fn succeeds(self) {
        assert!(self.ends().success());
    }

    pub(crate) fn ends(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the socket to the test; for a child.
pub(crate) fn parent() -> UnixStream {
    let socket = io::stdin().as_fd().try_clone_to_owned().unwrap();
    UnixStream::from(socket)
}

pub(crate) fn say(mut socket: &UnixStream, word: u64) {
    socket.write_all(&word.to_ne_bytes()).unwrap();
}

pub(crate) fn hear(mut socket: &UnixStream) -> u64 {
    let mut word = [0; 8];
    socket.read_exact(&mut word).unwrap();
    u64::from_ne_bytes(word)
}

/// Forks, and runs `work` in the child, which ends after ten seconds at the latest.
pub(crate) fn fork(work: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child does `work`, which takes no lock that other tests' threads may hold, and ends without running
    // code of the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child by a signal, should it wait for ever.
        unsafe { libc::alarm(10) };
        let right = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: ends the child, with all locks that it holds.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    child
}

/// Returns the status with which a child of [`fork`] ended: zero if all was right.
pub(crate) fn ends(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the child is ours, and `status` is where the answer goes.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    status
}
