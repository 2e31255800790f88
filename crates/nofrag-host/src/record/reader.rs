//! Reads the ring buffer of one CPU while it fills.
//!
//! Whole pages are spliced into a pipe and read from there: up to 256 for two system calls. A plain `read` would also
//! take the page that is being filled, and so leave most pages nearly empty; the reader uses one only once a second and
//! at the end. A wait for the buffer to fill by a share would make the traced side wake the reader; a pause does not.
//!
//! Source: docs/sources/trace.md#splice.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::clock::clock_ns;
use super::output::CpuSink;
use crate::recording::RecordingError;
use crate::trace::{Decode, Event, EventKind, ExtFragCounts, Loss};

/// Bytes that one splice may move, if the system allows so large a pipe.
const PIPE: usize = 1 << 20;

/// Sleep of a reader when less than a page is there. At 300,000 events/s a CPU writes about 60 KiB meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// Time after which the output gets the events on the page that is being filled: on a CPU that fills whole pages more
/// often, the last events would otherwise wait until a chunk is full.
const COMPLETE: Duration = Duration::from_secs(1);

/// Bound of the time from an event's timestamp until the event can be read; the real time is far shorter.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// The kernel's error for a CPU that has been offline since the instance was made: it has no buffer yet. When the CPU
/// comes online it gets a buffer, and the open file reads it.
const OFFLINE: Errno = Errno::NODEV;

/// State that all readers and the session share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Number of events that were read, by kind.
    pub(super) events: [AtomicU64; EventKind::COUNT],
    /// External fragmentation by types, from the readers that have ended.
    pub(super) extfrag: Mutex<ExtFragCounts>,
    /// Bytes of raw pages that were read.
    pub(super) raw_bytes: AtomicU64,
    /// Places where events are missing.
    pub(super) gaps: AtomicU64,
    /// Records that could not be understood.
    pub(super) unreadable: AtomicU64,
    /// Tracing is off: the readers read the remaining events and end.
    pub(super) stopped: AtomicBool,
    /// A signal came while a snapshot was taken: its slow parts are left out.
    pub(super) hurry: AtomicBool,
    pub(super) failure: Mutex<Option<Failure>>,
}

/// The error that ended a reader.
#[derive(Debug)]
pub(super) enum Failure {
    Reading { cpu: u16, cause: io::Error },
    Writing(RecordingError),
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            events: [const { AtomicU64::new(0) }; EventKind::COUNT],
            extfrag: Mutex::default(),
            raw_bytes: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }
}

impl Shared {
    /// Returns the number of all events so far.
    pub(super) fn total(&self) -> u64 {
        self.events.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns external fragmentation by types, from the readers that have ended.
    pub(super) fn extfrag(&self) -> MutexGuard<'_, ExtFragCounts> {
        self.extfrag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a reader has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn fail(&self, failure: Failure) {
        let mut first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(failure);
    }
}

pub(super) struct Reader<'a> {
    decode: Decode<'a>,
    raw: File,
    pipe: (OwnedFd, File),
    pages: Vec<u8>,
    page_bytes: usize,
    events: Vec<Event>,
    extfrag: ExtFragCounts,
    sink: Box<dyn CpuSink>,
    shared: &'a Shared,
}

impl<'a> Reader<'a> {
    /// Makes a reader of the buffer `raw` (`per_cpu/cpuN/trace_pipe_raw`, opened so that no read waits).
    pub(super) fn new(raw: File, of: Of<'a>, sink: Box<dyn CpuSink>) -> io::Result<Reader<'a>> {
        let (from, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Refused above /proc/sys/fs/pipe-max-size without privilege; a small pipe costs more calls.
        let _ = fcntl_setpipe_size(&into, PIPE);
        #[expect(
            clippy::disallowed_methods,
            reason = "`PIPE` and a page, which is at most `LARGEST_SUB_BUFFER`"
        )]
        let pages = vec![0; PIPE.next_multiple_of(of.page_bytes)];
        Ok(Reader {
            decode: of.decode,
            raw,
            pipe: (into, from.into()),
            pages,
            page_bytes: of.page_bytes,
            events: Vec::new(),
            extfrag: ExtFragCounts::default(),
            sink,
            shared: of.shared,
        })
    }

    /// Reads until tracing is off and the buffer is empty, or an error occurs.
    pub(super) fn run(mut self) {
        if let Err(failure) = self.read_all() {
            self.shared.fail(failure);
        }
        self.shared.extfrag().add(&self.extfrag);
    }

    fn read_all(&mut self) -> Result<(), Failure> {
        let mut completed = Instant::now();
        loop {
            // Asked before the look: events traced before the end are then seen.
            let stopped = self.shared.stopped.load(Ordering::Acquire);
            while self.splice_pages()? {}
            if stopped {
                break;
            }
            if self.shared.has_failed() {
                return Ok(());
            }
            if completed.elapsed() >= COMPLETE {
                completed = Instant::now();
                self.complete()?;
            }
            thread::sleep(PAUSE);
        }
        while self.read_page()? {}
        self.sink.finish().map_err(Failure::Writing)
    }

    /// Takes the events on the page that is being filled, so that a CPU with few events does not lag behind.
    fn complete(&mut self) -> Result<(), Failure> {
        let until = clock_ns().saturating_sub(UNDER_WAY.as_nanos() as u64);
        while self.read_page()? {}
        self.sink.complete_until(until).map_err(Failure::Writing)
    }

    /// Takes whole pages; returns `false` if there is none.
    fn splice_pages(&mut self) -> Result<bool, Failure> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let moved = match splice(&self.raw, None, &self.pipe.0, None, PIPE, flags) {
            Ok(0) | Err(Errno::AGAIN | OFFLINE) => return Ok(false),
            Ok(moved) => moved,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(self.cannot_read(error.into())),
        };
        let into = &mut self.pages[..moved];
        self.pipe.1.read_exact(into).map_err(|cause| self.cannot_read(cause))?;
        self.take(moved)?;
        Ok(true)
    }

    /// Takes a page that may be filled in part; returns `false` if the buffer is empty.
    fn read_page(&mut self) -> Result<bool, Failure> {
        let read = read_page(&mut self.raw, &mut self.pages[..self.page_bytes]);
        let Some(read) = read.map_err(|cause| self.cannot_read(cause))? else { return Ok(false) };
        self.pages[read..self.page_bytes].fill(0);
        self.take(self.page_bytes)?;
        Ok(true)
    }

    /// Decodes the first `bytes` bytes of the pages, counts their events, and hands them to the sink.
    fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        let mut loss = Loss::default();
        self.events.clear();
        for page in self.pages[..bytes].chunks(self.page_bytes) {
            self.decode.page(page, &mut self.events, &mut loss);
        }
        let mut counts = [0; EventKind::COUNT];
        for event in &self.events {
            counts[event.kind as usize] += 1;
            if event.kind == EventKind::ExtFrag {
                self.extfrag.count(event);
            }
        }
        for (total, count) in self.shared.events.iter().zip(counts) {
            total.fetch_add(count, Ordering::Relaxed);
        }
        self.shared.raw_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.shared.gaps.fetch_add(loss.gaps, Ordering::Relaxed);
        self.shared.unreadable.fetch_add(loss.unreadable, Ordering::Relaxed);
        self.sink.take(&self.pages[..bytes], &self.events).map_err(Failure::Writing)
    }

    fn cannot_read(&self, cause: io::Error) -> Failure {
        Failure::Reading { cpu: self.decode.cpu, cause }
    }
}

/// The decoder of a CPU's pages, the size of a page, and the state that all readers share.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) decode: Decode<'a>,
    pub(super) page_bytes: usize,
    pub(super) shared: &'a Shared,
}

/// Reads a page, which may be filled in part; `None` if the buffer is empty, or its CPU offline.
pub(super) fn read_page(raw: &mut File, page: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        return match raw.read(page) {
            Ok(0) => Ok(None),
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if Errno::from_io_error(&error) == Some(OFFLINE) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

    use super::*;
    use crate::trace::{Decoder, SUB_BUFFER};

    /// Counts the calls of `complete_until`.
    #[derive(Default)]
    struct Counting(std::sync::Arc<AtomicU64>);

    impl CpuSink for Counting {
        fn take(&mut self, _pages: &[u8], _events: &[Event]) -> Result<(), RecordingError> {
            Ok(())
        }

        fn complete_until(&mut self, _time: u64) -> Result<(), RecordingError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn finish(&mut self) -> Result<(), RecordingError> {
            Ok(())
        }
    }

    /// Fills a named pipe, which stands for the buffer of a CPU, with a page now and then: every second the output is
    /// told that it is complete.
    #[test]
    fn a_cpu_that_fills_a_page_now_and_then_is_not_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace_pipe_raw");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut buffer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (shared, decoder) = (Shared::default(), Decoder::new([]));
        let decode = Decode { decoder: &decoder, cpu: 0 };
        let of = Of { decode, page_bytes: SUB_BUFFER, shared: &shared };
        let sink = Counting::default();
        let count = sink.0.clone();
        let flags = OFlags::NONBLOCK.bits() as i32;
        let raw = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
        let reader = Reader::new(raw, of, Box::new(sink)).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || reader.run());
            for _ in 0..7 {
                buffer.write_all(&[0; SUB_BUFFER]).unwrap();
                thread::sleep(Duration::from_millis(400));
            }
            shared.stopped.store(true, Ordering::Release);
        });
        assert!(!shared.has_failed());
        assert_eq!(shared.raw_bytes.load(Ordering::Relaxed), 7 * SUB_BUFFER as u64);
        assert!(count.load(Ordering::Relaxed) >= 2, "in almost three seconds");
    }
}
