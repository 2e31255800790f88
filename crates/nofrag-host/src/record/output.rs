//! The output of a recording.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::CLOCK;
use super::stats;
use super::target::{Target, TargetKind};
use crate::machine::capture::private_file;
use crate::recording::{CpuStream, Ending, Existing, Pace, RecordingError, RecordingWriter};
use crate::trace::{
    Event, Format, MISSING, Moment, RELEASE, START_WINDOW, STATS, TakenSnapshot, TraceMeta,
};

/// Destination of a recording: a file, or a folder of raw pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A recording in nofrag's own format.
    Recording(PathBuf),
    /// A folder of raw pages, as [`trace::open`](crate::trace::open) reads it.
    RawFolder(PathBuf),
}

impl Output {
    /// Returns the path of the file or folder that the user named.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Output::Recording(path) | Output::RawFolder(path) => path,
        }
    }
}

/// The part of a sink that belongs to one CPU.
pub(super) trait CpuSink: Send {
    /// Takes whole pages of the ring buffer, and the events that were decoded from them.
    fn take(&mut self, pages: &[u8], events: &[Event]) -> Result<(), RecordingError>;

    /// Completes the output up to `time`: all events before `time` have been taken.
    fn complete_until(&mut self, time: u64) -> Result<(), RecordingError>;

    /// Writes the events that were held back.
    fn finish(&mut self) -> Result<(), RecordingError>;
}

/// Facts that are known when a recording begins.
pub(super) struct Begun<'a> {
    /// Facts about the trace beside its events.
    pub(super) meta: &'a TraceMeta,
    /// The formats of the enabled events, as text and parsed.
    pub(super) formats: &'a [(String, Format)],
    /// Contents of `events/header_page`.
    pub(super) header_page: Option<&'a str>,
}

/// The output of a recording that is under way.
pub(super) struct Sink {
    target: Target,
    /// Path that the user named; the output may stand elsewhere until it replaces an older one.
    path: PathBuf,
    form: Form,
}

/// The two forms of an output.
enum Form {
    Columns(RecordingWriter),
    /// The number of bytes written so far.
    Raw(Arc<AtomicU64>),
}

impl Sink {
    /// Makes the sink of an output.
    pub(super) fn create(
        output: &Output,
        existing: Existing,
        begun: &Begun<'_>,
    ) -> Result<Sink, RecordingError> {
        let path = output.path().to_owned();
        let mut target = match output {
            Output::Recording(_) => {
                Target::create(TargetKind::File, &path, existing, |_| Ok(false))
            }
            Output::RawFolder(_) => {
                Target::create(TargetKind::Folder, &path, existing, holds_only_ours)
            }
        }?;
        let form = match output {
            Output::Recording(_) => {
                let failed = |cause| RecordingError::File { path: path.clone(), cause };
                let file = target.output().try_clone().map_err(failed);
                file.and_then(|file| RecordingWriter::begin(file, &path, begun.meta, Pace::Live))
                    .map(Form::Columns)
            }
            Output::RawFolder(_) => {
                let raw = begin_folder(&target.place(), begun).map(|()| Form::Raw(Arc::default()));
                raw.map_err(raw_error(&path, &AtomicU64::new(0)))
            }
        };
        let form = form.inspect_err(|_| target.discard())?;
        Ok(Sink { target, path, form })
    }

    /// Returns the part of the sink that takes the events of one CPU.
    pub(super) fn cpu(&self, cpu: u16) -> Result<Box<dyn CpuSink>, RecordingError> {
        let written = match &self.form {
            Form::Columns(writer) => return Ok(Box::new(writer.stream(cpu))),
            Form::Raw(written) => Arc::clone(written),
        };
        let name = format!("cpu{cpu}.trace_pipe_raw");
        let path = self.path.join(&name);
        let file = private_file(&self.place().join(name)).map_err(raw_error(&path, &written))?;
        Ok(Box::new(RawCpu { file, path, written }))
    }

    /// Replaces the older output, which was untouched until now.
    pub(super) fn replace(&mut self) -> Result<(), RecordingError> {
        let replaced = self.target.replace();
        replaced.map_err(|cause| RecordingError::File { path: self.path.clone(), cause })
    }

    /// Writes a snapshot to the output.
    pub(super) fn snapshot(&self, snapshot: &TakenSnapshot) -> Result<(), RecordingError> {
        match &self.form {
            Form::Columns(writer) => writer.snapshot(snapshot),
            Form::Raw(written) => add_snapshot(&self.place(), snapshot, written)
                .map_err(raw_error(&self.path, written)),
        }
    }

    /// Writes the end of the output. The sinks of the CPUs have ended.
    pub(super) fn finish(&self, meta: &TraceMeta, ending: &Ending) -> Result<(), RecordingError> {
        match &self.form {
            Form::Columns(writer) => {
                writer.meta(meta)?;
                writer.clone().finish(ending).map(drop)
            }
            Form::Raw(written) => {
                end_folder(&self.place(), meta, ending).map_err(raw_error(&self.path, written))
            }
        }
    }

    /// Removes the output again: nothing was recorded. An older output that was not replaced stays.
    pub(super) fn discard(&mut self) {
        self.target.discard();
    }

    /// Returns the bytes written so far, by this and the sinks of the CPUs.
    pub(super) fn written(&self) -> u64 {
        match &self.form {
            Form::Columns(writer) => writer.written().bytes,
            Form::Raw(written) => written.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of written bytes that are events; `None` where events and other bytes are not told apart.
    pub(super) fn event_bytes(&self) -> Option<u64> {
        match &self.form {
            Form::Columns(writer) => Some(writer.written().event_bytes),
            Form::Raw(_) => None,
        }
    }

    /// Returns a path at which this process can read the output.
    pub(super) fn place(&self) -> PathBuf {
        self.target.place()
    }
}

impl CpuSink for CpuStream {
    fn take(&mut self, _pages: &[u8], events: &[Event]) -> Result<(), RecordingError> {
        events.iter().try_for_each(|event| self.push(event))
    }

    fn complete_until(&mut self, time: u64) -> Result<(), RecordingError> {
        CpuStream::complete_until(self, time)
    }

    fn finish(&mut self) -> Result<(), RecordingError> {
        self.flush()
    }
}

/// Makes an error for `map_err` after a write to a folder of raw pages.
fn raw_error(path: &Path, written: &AtomicU64) -> impl FnOnce(io::Error) -> RecordingError {
    let (path, bytes) = (path.to_owned(), written.load(Ordering::Relaxed));
    move |cause| RecordingError::of_write(&path, bytes, cause)
}

/// Returns true if the folder is a raw recording: each of its entries has a name that a raw recording gives.
fn holds_only_ours(folder: &Path) -> io::Result<bool> {
    const OURS: [&str; 9] = [
        "format",
        "start",
        "end",
        STATS,
        MISSING,
        "header_page",
        "trace_clock",
        START_WINDOW,
        RELEASE,
    ];
    if !folder.join("format").is_dir() {
        return Ok(false);
    }
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !OURS.contains(&&*name) && !name.ends_with(".trace_pipe_raw") {
            return Ok(false);
        }
    }
    Ok(true)
}

fn begin_folder(path: &Path, begun: &Begun<'_>) -> io::Result<()> {
    fs::create_dir(path.join("format"))?;
    for (text, format) in begun.formats {
        put(&path.join("format").join(&format.name), text)?;
    }
    if let Some(text) = begun.header_page {
        put(&path.join("header_page"), text)?;
    }
    if let Some(release) = &begun.meta.release {
        put(&path.join(RELEASE), release)?;
    }
    put(&path.join("trace_clock"), CLOCK)
}

fn add_snapshot(place: &Path, snapshot: &TakenSnapshot, sum: &AtomicU64) -> io::Result<()> {
    let name = if snapshot.moment == Moment::After { "end" } else { "start" };
    if let Moment::During { begin, end } = snapshot.moment {
        put(&place.join(START_WINDOW), format!("{begin} {end}\n"))?;
    }
    let folder = place.join(name);
    fs::create_dir(&folder)?;
    for (name, bytes) in snapshot.files.iter() {
        let written = if name == "kpageflags" {
            let packed = zstd::encode_all(bytes, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            put(&folder.join(format!("{name}.zst")), &packed)?;
            packed.len()
        } else {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&folder))?;
            put(&path, bytes)?;
            bytes.len()
        };
        sum.fetch_add(written as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn end_folder(place: &Path, meta: &TraceMeta, ending: &Ending) -> io::Result<()> {
    let stats: String = ending.cpus.iter().map(stats::text).collect();
    put(&place.join(STATS), stats)?;
    let missing: String = meta.missing.iter().map(|line| format!("{line}\n")).collect();
    put(&place.join(MISSING), missing)
}

/// Writes a new file that only this user may read.
fn put(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    private_file(path)?.write_all(bytes.as_ref())
}

struct RawCpu {
    file: File,
    path: PathBuf,
    written: Arc<AtomicU64>,
}

impl CpuSink for RawCpu {
    fn take(&mut self, pages: &[u8], _events: &[Event]) -> Result<(), RecordingError> {
        self.file.write_all(pages).map_err(raw_error(&self.path, &self.written))?;
        self.written.fetch_add(pages.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn complete_until(&mut self, _time: u64) -> Result<(), RecordingError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), RecordingError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::CpuStats;
    use crate::snapshot::Files;
    use crate::trace::open;

    /// Opens a raw folder without snapshots, as a killed recording may leave it: the release was once known from the
    /// snapshot at the start alone.
    #[test]
    fn the_kernel_of_a_raw_folder_is_known_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw");
        let meta = TraceMeta { release: Some("6.1.0-test".to_owned()), ..TraceMeta::default() };
        let begun = Begun { meta: &meta, formats: &[], header_page: None };
        let sink = Sink::create(&Output::RawFolder(path.clone()), Existing::Keep, &begun).unwrap();
        sink.cpu(0).unwrap();
        assert_eq!(open(&path).unwrap().meta.release, meta.release);
        drop(sink);
        assert!(holds_only_ours(&path).unwrap());
    }

    #[test]
    fn a_raw_folder_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw");
        let meta = TraceMeta { missing: vec!["kpageflags: no".to_owned()], ..TraceMeta::default() };
        let begun = Begun { meta: &meta, formats: &[], header_page: None };
        let mut sink =
            Sink::create(&Output::RawFolder(path.clone()), Existing::Keep, &begun).unwrap();
        sink.cpu(0).unwrap();
        sink.replace().unwrap();
        let mut files = Files::default();
        files.insert("version", b"Linux version 6.1.0".to_vec());
        files.insert("maps/7", b"1000-2000 r--p".to_vec());
        files.insert("kpageflags", vec![0; 64]);
        for moment in [Moment::During { begin: 3, end: 5 }, Moment::After] {
            sink.snapshot(&TakenSnapshot { moment, files: files.clone() }).unwrap();
        }
        let cpus = [(0, 30), (1, 4)].map(|(cpu, overrun)| CpuStats {
            cpu,
            overrun,
            ..CpuStats::default()
        });
        sink.finish(&meta, &Ending { cpus: cpus.to_vec(), ..Ending::default() }).unwrap();
        let mut trace = open(&path).unwrap();
        assert_eq!(trace.meta.missing, meta.missing);
        let taken = trace.meta.snapshots.iter().map(|taken| taken.moment).collect::<Vec<_>>();
        assert_eq!(taken, [Moment::During { begin: 3, end: 5 }, Moment::After]);
        assert!(trace.meta.snapshots.iter().all(|taken| taken.files == files));
        while trace.events.read(&mut Vec::new()).unwrap() {}
        assert_eq!(trace.events.loss().events, 34);
    }
}
