//! All of a recording that needs root's rights, in one place.
//!
//! [`Rights`] makes the instance and the probes, opens the few files that only root may open, and removes instance and
//! probes again. It does not read the files that it opens: the process that parses and writes needs no rights. It
//! parses only texts that come from the kernel alone: formats of events, and for `--bulk` symbols and types.
//!
//! [`Holder`] is the process with the rights: this one, or another one that keeps them ([`keeper`](super::keeper)).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::bulk::{Bulk, BulkProbes};
use super::clock::CLOCK;
use super::error::RecordError;
use super::instance::{Instance, remove_stale};
use super::selection::Selection;
use super::sensitive::Sensitive;
use super::session::{header_page, size_buffers};
use super::tracefs::{Tracefs, Which};
use super::{Buffer, Options};
use crate::snapshot::path_of;
use crate::source::Root;
use crate::trace::Format;

/// The settings of the instance and the probes. The process that keeps the rights receives them once, before any other
/// message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setup {
    tracefs: Which,
    instance: Option<String>,
    events: Selection,
    bulk: Bulk,
    buffer: Buffer,
    with: Vec<Sensitive>,
}

impl Setup {
    /// Returns the settings for counting the events alone.
    pub(super) fn for_counting(tracefs: &Which, events: &Selection, buffer: Buffer) -> Setup {
        let (tracefs, events, bulk) = (tracefs.clone(), events.clone(), Bulk::LeftOut);
        Setup { tracefs, instance: None, events, bulk, buffer, with: Vec::new() }
    }

    pub(super) fn of(options: &Options) -> Setup {
        Setup {
            tracefs: options.tracefs.clone(),
            instance: options.instance.clone(),
            events: options.events.clone(),
            bulk: options.bulk,
            buffer: options.buffer,
            with: options.with.clone(),
        }
    }
}

/// Facts that are known when everything is set up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Prepared {
    pub(super) instance: String,
    /// The `format` files of the enabled events.
    formats: Vec<String>,
    /// Contents of `events/header_page`.
    pub(super) header_page: Option<String>,
    pub(super) buffer_kib_per_cpu: u64,
    pub(super) missing: Vec<String>,
    pub(super) removed_stale: Vec<String>,
}

impl Prepared {
    /// Returns the formats of the enabled events, as text and parsed.
    pub(super) fn formats(&self) -> Result<Vec<(String, Format)>, RecordError> {
        let parsed = |text: &String| {
            let what = "the format of an event cannot be read";
            let format = Format::parse(text).map_err(io::Error::other);
            let format = format.map_err(RecordError::instance(Path::new(&self.instance), what))?;
            Ok((text.clone(), format))
        };
        self.formats.iter().map(parsed).collect()
    }
}

/// A file that only root may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Opened {
    /// The ring buffer of a CPU.
    Buffer(u16),
    /// The kernel's counters of that buffer.
    Stats(u16),
    /// A file of a snapshot, by its name in [`Files`](crate::snapshot::Files).
    Snapshot(String),
    /// The mappings of a process.
    Maps(u32),
    /// The remembered names of processes.
    Names,
    /// The profile with the misses of probes.
    Missed,
}

/// State of the kernel's tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Tracing {
    Off,
    On,
}

/// The process that holds root's rights: this one, or another one that keeps them.
pub(super) trait Holder: Sync {
    /// Returns the CPUs that have a trace buffer.
    fn cpus(&self) -> Result<Vec<u16>, RecordError>;

    /// Opens a file for reading. A file that may be private and was not asked for is refused.
    fn open(&self, file: &Opened) -> io::Result<File>;

    fn switch(&self, tracing: Tracing) -> Result<(), RecordError>;

    /// Removes the instance and the probes; returns a sentence for each failure. Files of the instance must be closed.
    fn end(self: Box<Self>) -> Vec<String>;

    /// Returns the ID of the process that keeps the rights, if it is another one.
    fn process(&self) -> Option<u32>;
}

/// The instance and the probes, until [`end`](Holder::end) or a drop removes them.
#[derive(Debug)]
pub(super) struct Rights {
    /// Dropped before the probes, which it has enabled.
    instance: Instance,
    bulk: Option<BulkProbes>,
    tracefs: Tracefs,
    with: Vec<Sensitive>,
}

impl Rights {
    /// Makes the instance and the probes; nothing is traced yet. An error leaves nothing behind.
    pub(super) fn take(setup: &Setup) -> Result<(Rights, Prepared), RecordError> {
        let tracefs = Tracefs::find(&setup.tracefs)?;
        let removed_stale = remove_stale(&tracefs);
        let bulk = BulkProbes::wanted(setup.bulk, &tracefs)?;
        let instance = Instance::make(&tracefs, setup.instance.as_deref())?;
        // From here on an error removes the instance and the probes, in this order.
        let rights = Rights { instance, bulk, tracefs, with: setup.with.clone() };
        let instance = &rights.instance;
        let mut missing = Vec::new();
        instance.set("trace_clock", CLOCK, "the clock cannot be set")?;
        let buffer_kib_per_cpu = size_buffers(instance, setup.buffer, &mut missing)?;
        let mut enabled = setup.events.enable(instance)?;
        if let Some(bulk) = &rights.bulk {
            enabled.formats.extend(bulk.enable(instance)?);
        }
        missing.extend(enabled.missing);
        let prepared = Prepared {
            instance: instance.name(),
            formats: enabled.formats.into_iter().map(|(text, _)| text).collect(),
            header_page: header_page(instance.path(), &rights.tracefs),
            buffer_kib_per_cpu,
            missing,
            removed_stale,
        };
        Ok((rights, prepared))
    }

    /// Returns the path of the instance.
    pub(super) fn path(&self) -> &Path {
        self.instance.path()
    }
}

impl Holder for Rights {
    fn cpus(&self) -> Result<Vec<u16>, RecordError> {
        let what = "the buffers cannot be listed";
        self.instance.cpus().map_err(RecordError::instance(self.instance.path(), what))
    }

    fn open(&self, file: &Opened) -> io::Result<File> {
        let asked = |what| match self.with.contains(&what) {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        };
        let path = match file {
            Opened::Buffer(cpu) => {
                let path = self.instance.path().join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
                let flags = OFlags::NONBLOCK.bits() as i32;
                return OpenOptions::new().read(true).custom_flags(flags).open(path);
            }
            Opened::Stats(cpu) => self.instance.path().join(format!("per_cpu/cpu{cpu}/stats")),
            Opened::Snapshot(name) => {
                Root::Live.path(path_of(name).ok_or(io::ErrorKind::InvalidInput)?)
            }
            Opened::Maps(pid) => {
                asked(Sensitive::Maps)?;
                Root::Live.path(&format!("proc/{pid}/maps"))
            }
            Opened::Names => {
                asked(Sensitive::Names)?;
                self.tracefs.file("saved_cmdlines")
            }
            Opened::Missed => self.tracefs.file("kprobe_profile"),
        };
        File::open(path)
    }

    fn switch(&self, tracing: Tracing) -> Result<(), RecordError> {
        match tracing {
            Tracing::On => self.instance.set("tracing_on", "1", "tracing cannot be switched on"),
            Tracing::Off => self.instance.set("tracing_on", "0", "tracing cannot be switched off"),
        }
    }

    fn end(self: Box<Self>) -> Vec<String> {
        let removed = [self.instance.remove(), self.bulk.map_or(Ok(()), BulkProbes::remove)];
        removed.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect()
    }

    fn process(&self) -> Option<u32> {
        None
    }
}
