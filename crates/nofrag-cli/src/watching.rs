//! What `top` and `export` share: which host is watched, which sources are read, which events are counted.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use nofrag_host::record::{Buffer, Selection, Tally, Which};
use nofrag_host::source::Root;
use nofrag_host::watch::{Look, Source, Watch};

/// The options of what is watched.
#[derive(clap::Args)]
pub(crate) struct Watching {
    /// Look at the host captured in DIR instead of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Leave these sources out
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    without: Vec<Dear>,

    /// Read /proc/pagetypeinfo too, at most once a minute: free blocks and pageblocks by type
    ///
    /// Reading it costs some hundred times what buddyinfo costs, and it holds each zone's lock meanwhile, so it is left
    /// out unless it is asked for.
    #[arg(long)]
    types: bool,

    /// Count events of the kernel: sets and single events, comma-separated [default set: rare]
    ///
    /// Needs root. They are counted in a tracefs instance of its own, which is removed again however the command ends;
    /// sets and names are those of `nofrag record --events`.
    #[arg(
        long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1, default_missing_value = "rare",
        require_equals = true, conflicts_with = "root"
    )]
    events: Vec<String>,

    /// Size of the ring buffer of each CPU for --events
    #[arg(
        long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(4..=16 << 20)
    )]
    buffer_kib: u64,

    /// With --events, if no tracefs is mounted, use a mount of our own that nobody else sees
    #[arg(long, requires = "events")]
    mount_tracefs: bool,

    /// With --events, use the tracefs in DIR
    #[arg(long, value_name = "DIR", conflicts_with = "mount_tracefs", requires = "events")]
    tracefs: Option<PathBuf>,
}

/// A source that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Dear {
    /// The vmalloc space
    Vmalloc,
    /// The areas of processes
    Maps,
}

impl Watching {
    /// The watch of this host, or of the captured one.
    pub(crate) fn watch(&self) -> Result<Watch> {
        if let Some(folder) = &self.root {
            ensure!(
                folder.is_dir(),
                "{}: no such folder; a captured host is one",
                folder.display()
            );
        }
        let root = self.root.clone().map_or(Root::Live, Root::Captured);
        let mut sources = vec![Source::Memory];
        if !self.without.contains(&Dear::Vmalloc) {
            sources.push(Source::Vmalloc);
        }
        if !self.without.contains(&Dear::Maps) {
            sources.push(Source::Maps);
        }
        if self.types {
            sources.push(Source::Types);
        }
        Ok(Watch::new(root, &sources))
    }

    /// The counting of events, if it was asked for.
    pub(crate) fn tally(&self) -> Result<Option<Tally>> {
        if self.events.is_empty() {
            return Ok(None);
        }
        let which = match &self.tracefs {
            Some(folder) => Which::At(folder.clone()),
            None if self.mount_tracefs => Which::MountIfMissing,
            None => Which::Mounted,
        };
        let selection = Selection::parse(self.events.iter().map(String::as_str))?;
        Ok(Some(Tally::begin(&which, &selection, Buffer::KibPerCpu(self.buffer_kib))?))
    }

    /// Whether this host is watched, and not a captured one.
    pub(crate) fn is_live(&self) -> bool {
        self.root.is_none()
    }
}

/// A line for each thing that could not be had, and what it costs.
pub(crate) fn missing(look: &Look, tally: Option<&Tally>) -> Vec<String> {
    let files = look.missing().map(ToString::to_string);
    let events = tally.map(Tally::missing).unwrap_or_default();
    files.chain(events.iter().cloned()).collect()
}
