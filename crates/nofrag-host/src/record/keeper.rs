//! A small process that keeps root's rights, so that the recorder, which parses and writes, can give them up.
//!
//! 1. The recorder starts the keeper, sends it the setup while it still has rights itself, and gives them up. From then
//!    on the recorder asks for files by the names of a closed list ([`Opened`]) and gets them open; its only other
//!    requests are to switch tracing of this instance, and the end.
//! 2. The keeper removes the instance and the probes when asked to, and when the recorder has ended in any way: no
//!    other process has the other end of the socket.
//! 3. The keeper ignores signals that ask a process to end: they reach the recorder, too, and the keeper ends after it.
//! 4. If the keeper is killed, the kernel stops tracing ([`instance`](super::instance)), the recording is cut short and
//!    keeps the events so far, and the next start as root removes the empty instance.
//!
//! The keeper is the same program under another first argument, not a fork: there is no state to inherit.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Options;
use super::error::RecordError;
use super::rights::{Holder, Opened, Prepared, Rights, Setup, Tracing};
use super::signals;

/// A message of the recorder.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Cpus,
    Open(Opened),
    Switch(Tracing),
    End,
}

/// The keeper's reason not to do what it was asked for, with the system's number if it has one.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    errno: Option<i32>,
    why: String,
}

impl From<&io::Error> for Refusal {
    fn from(cause: &io::Error) -> Refusal {
        Refusal { errno: cause.raw_os_error(), why: cause.to_string() }
    }
}

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Refusal {
        Refusal { errno: None, why: error.to_string() }
    }
}

impl From<Refusal> for io::Error {
    fn from(Refusal { errno, why }: Refusal) -> io::Error {
        errno.map_or_else(|| io::Error::other(why), io::Error::from_raw_os_error)
    }
}

/// An answer of the keeper.
type Answer<T> = Result<T, Refusal>;

/// A socket for messages: four bytes of length, with at most one open file, then JSON.
struct Channel(UnixStream);

/// Bytes of the longest request.
const LONGEST_REQUEST: u32 = 64 << 10;
/// Bytes of the longest answer: the formats of all events are some hundred KiB.
const LONGEST_ANSWER: u32 = 16 << 20;

impl Channel {
    fn send(&self, message: &impl Serialize, file: Option<&File>) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file.as_fd()]);
        if let Some(files) = &files {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let head = [IoSlice::new(&length)];
        let sent = retry_on_intr(|| sendmsg(&self.0, &head, &mut control, SendFlags::NOSIGNAL))?;
        if sent < length.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        (&self.0).write_all(&body)
    }

    /// Receives the next message; `None` when the other end is closed.
    fn receive<T: DeserializeOwned>(
        &self,
        longest: u32,
    ) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut length = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        let received = retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut length)], &mut control, flags)
        });
        let received = match received {
            Ok(message) => message.bytes,
            // The other end was closed with unread bytes.
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        if received == 0 {
            return Ok(None);
        }
        let length = u32::from_le_bytes(length);
        if received < 4 || length > longest {
            return Err(io::ErrorKind::InvalidData.into());
        }
        #[expect(clippy::disallowed_methods, reason = "at most `longest`")]
        let mut body = vec![0; length as usize];
        (&self.0).read_exact(&mut body)?;
        Ok(Some((serde_json::from_slice(&body)?, file)))
    }
}

/// The recorder's handle on the process that keeps root's rights.
#[derive(Debug)]
pub struct Keeper {
    /// Locked for one request with its answer.
    channel: Mutex<Channel>,
    child: Child,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Keeper {
    /// Starts the keeper, and sends it the setup. The command must call [`keep`] on its standard input.
    ///
    /// # Errors
    /// [`RecordError::Keeper`] if the process cannot be started, or the setup cannot be sent.
    pub fn start(mut command: Command, options: &Options) -> Result<Keeper, RecordError> {
        let started = || {
            let (ours, theirs) = UnixStream::pair()?;
            // The keeper gets a group of its own, so that no key of the terminal reaches it.
            command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
            let child = command.process_group(0).spawn()?;
            // The command has a copy of the other end, and would hold it open.
            drop(command);
            let channel = Channel(ours);
            channel.send(&Setup::of(options), None)?;
            Ok(Keeper { channel: Mutex::new(channel), child })
        };
        started().map_err(RecordError::Keeper)
    }

    /// Waits until the keeper has set everything up.
    pub(super) fn prepared(&self) -> Result<Prepared, RecordError> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, _) = received(&channel).map_err(RecordError::Keeper)?;
        answer.map_err(|refusal| RecordError::Kept(refusal.why))
    }

    /// Sends a request; returns the answer with the file that came beside it.
    fn ask<T: DeserializeOwned>(
        &self,
        request: &Request,
    ) -> io::Result<(Answer<T>, Option<OwnedFd>)> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        match channel.send(request, None) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(gone()),
            sent => sent.and_then(|()| received(&channel)),
        }
    }
}

impl Holder for Keeper {
    fn cpus(&self) -> Result<Vec<u16>, RecordError> {
        let (cpus, _) = self.ask(&Request::Cpus).map_err(RecordError::Keeper)?;
        cpus.map_err(|refusal| RecordError::Kept(refusal.why))
    }

    fn open(&self, file: &Opened) -> io::Result<File> {
        let (opened, file) = self.ask(&Request::Open(file.clone()))?;
        let () = opened?;
        let odd = || io::Error::other("the process that keeps root's rights gave an odd answer");
        file.map(File::from).ok_or_else(odd)
    }

    fn switch(&self, tracing: Tracing) -> Result<(), RecordError> {
        let (switched, _) = self.ask(&Request::Switch(tracing)).map_err(RecordError::Keeper)?;
        switched.map_err(|refusal| RecordError::Kept(refusal.why))
    }

    fn end(self: Box<Self>) -> Vec<String> {
        match self.ask(&Request::End) {
            Ok((Ok(left), _)) => left,
            Ok((Err(refusal), _)) => vec![refusal.why],
            Err(error) => {
                vec![format!("{error}; the next start of `nofrag record` removes the instance")]
            }
        }
    }

    fn process(&self) -> Option<u32> {
        Some(self.child.id())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let channel = self.channel.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The keeper takes the shutdown for the end, unless it was told before.
        let _ = channel.0.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

fn received<T: DeserializeOwned>(channel: &Channel) -> io::Result<(Answer<T>, Option<OwnedFd>)> {
    channel.receive(LONGEST_ANSWER)?.ok_or_else(gone)
}

fn gone() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "the process that keeps root's rights has ended, and the kernel stopped tracing with it",
    )
}

/// Keeps root's rights for the recorder at the other end of `socket`, until the recorder ends or is gone.
///
/// # Errors
/// [`RecordError::Keeper`] if a message does not come from a recorder. The instance and the probes are removed then.
pub fn keep(socket: impl Into<OwnedFd>) -> Result<(), RecordError> {
    signals::ignore().map_err(RecordError::Signals)?;
    serve(&Channel(UnixStream::from(socket.into()))).map_err(RecordError::Keeper)
}

fn serve(channel: &Channel) -> io::Result<()> {
    let Some((setup, _)) = channel.receive::<Setup>(LONGEST_REQUEST)? else { return Ok(()) };
    let rights = match Rights::take(&setup) {
        Ok((rights, prepared)) => {
            channel.send(&Answer::Ok(prepared), None)?;
            Box::new(rights)
        }
        Err(error) => return channel.send(&Answer::<Prepared>::Err(error.into()), None),
    };
    while let Some((request, _)) = channel.receive(LONGEST_REQUEST)? {
        match request {
            Request::Cpus => channel.send(&rights.cpus().map_err(Refusal::from), None)?,
            Request::Open(which) => {
                let opened = rights.open(&which);
                let answer = opened.as_ref().map(drop).map_err(Refusal::from);
                channel.send(&answer, opened.as_ref().ok())?;
            }
            Request::Switch(tracing) => {
                channel.send(&rights.switch(tracing).map_err(Refusal::from), None)?;
            }
            Request::End => return channel.send(&Answer::Ok(rights.end()), None),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel(one), Channel(other))
    }

    #[test]
    fn an_open_file_comes_with_its_message() {
        let (recorder, keeper) = pair();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "only root may read it").unwrap();
        keeper.send(&Answer::Ok(()), Some(&File::open(&path).unwrap())).unwrap();
        keeper.send(&Answer::Ok(7), None).unwrap();
        let (answer, file) = received::<()>(&recorder).unwrap();
        assert!(answer.is_ok(), "{answer:?}");
        let text = io::read_to_string(File::from(file.unwrap())).unwrap();
        assert_eq!(text, "only root may read it");
        let (answer, file) = received::<u32>(&recorder).unwrap();
        assert!(matches!((answer, file), (Ok(7), None)));
        drop(keeper);
        assert!(recorder.receive::<Answer<()>>(LONGEST_ANSWER).unwrap().is_none());
    }

    /// A message that a recorder would not send gets no answer, and its stated length is not believed.
    #[test]
    fn odd_requests_end_it() {
        for bytes in [&b"\x05\0\0\0hello"[..], b"\xff\xff\xff\xff", b"\x02\0\0\0{}", b"\x01\0"] {
            let (recorder, keeper) = pair();
            (&recorder.0).write_all(bytes).unwrap();
            drop(recorder);
            assert!(serve(&keeper).is_err(), "{bytes:?}");
        }
        let (recorder, keeper) = pair();
        drop(recorder);
        assert!(serve(&keeper).is_ok(), "nobody asks for anything");
    }
}
