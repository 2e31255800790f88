//! Child processes: this test binary, run with one of its ignored tests, with a socket for its standard input.

use std::env;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
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

/// In a child: the socket to the test.
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
