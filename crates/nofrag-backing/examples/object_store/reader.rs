//! The other process: it has the descriptors of the store, and reads.

use std::env;
use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use nofrag_backing::shared::{Handle, Invitation, Peer};
use nofrag_backing::store::ObjectStore;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::contents;

/// The other process, as this one sees it.
pub(crate) struct Reader {
    child: Child,
    socket: UnixStream,
}

impl Reader {
    /// Starts it and gives it the store's descriptors.
    pub(crate) fn start(store: &ObjectStore) -> Result<Reader, Box<dyn Error>> {
        let (socket, other) = UnixStream::pair()?;
        let child = Command::new(env::current_exe()?)
            .arg("--reader")
            .stdin(Stdio::from(OwnedFd::from(other)))
            .spawn()?;
        let reader = Reader { child, socket };
        store.invite()?.send(&reader.socket)?;
        Ok(reader)
    }

    /// Lets it read these objects again and again.
    pub(crate) fn begin(&mut self, handles: &[Handle]) -> io::Result<()> {
        let count = handles.len() as u64;
        let words = [count].into_iter().chain(handles.iter().map(|handle| handle.to_bits()));
        self.socket.write_all(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
    }

    /// Lets it stop once it has read all at least once; says how many objects it has read.
    pub(crate) fn end(&mut self) -> Result<u64, Box<dyn Error>> {
        self.socket.write_all(&0_u64.to_le_bytes())?;
        hear(&self.socket).map_err(|_| "the other process has found a damaged object".into())
    }

    /// Ends it.
    pub(crate) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        self.begin(&[])?;
        if self.child.wait()?.success() { Ok(()) } else { Err("the other process failed".into()) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It ends with its socket; if something went wrong here, it need not wait for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hear(mut socket: &UnixStream) -> io::Result<u64> {
    let mut word = [0; 8];
    socket.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}

/// Whether there is something to hear.
fn is_told(socket: &UnixStream) -> io::Result<bool> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&at_once))? > 0)
}

/// What the other process does.
pub(crate) fn run() -> Result<ExitCode, Box<dyn Error>> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let peer = Peer::attach(&Invitation::receive(&socket)?)?;
    loop {
        let count = hear(&socket)?;
        if count == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let handles = (0..count).map(|_| hear(&socket).map(Handle::from_bits));
        let handles: Vec<Handle> = handles.collect::<io::Result<_>>()?;
        let mut read = 0_u64;
        let mut bytes = Vec::new();
        loop {
            for &handle in &handles {
                let pinned = peer.pin(handle, Duration::from_secs(5))?;
                bytes.resize(pinned.len() as usize, 0);
                pinned.read(0, &mut bytes)?;
                drop(pinned);
                if !contents::is_whole(&bytes) {
                    return Ok(ExitCode::FAILURE);
                }
                read += 1;
            }
            if is_told(&socket)? {
                break;
            }
        }
        hear(&socket)?;
        socket.write_all(&read.to_le_bytes())?;
    }
}
