//! The options that `top` and `export` share: the host to watch, the sources to read, the events to count.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use nofrag_host::record::{Buffer, Selection, Tally, Which};
use nofrag_host::source::Root;
use nofrag_host::watch::{Look, Source, Watch};

/// The options of a watch.
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
    /// Needs root. They are counted in a tracefs instance of its own, which is removed again at every end of the
    /// command; sets and names are those of `nofrag record --events`.
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

    /// With --events, if no tracefs is mounted, use a mount of our own that no other process sees
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
    /// Returns the watch of this host, or of the captured one.
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

    /// Starts the counting of events, if it was asked for.
    pub(crate) fn tally(&self) -> Result<Option<Tally>> {
        if self.events.is_empty() {
            return Ok(None);
        }
        let which = Which::asked(self.tracefs.clone(), self.mount_tracefs);
        let selection = Selection::parse(self.events.iter().map(String::as_str))?;
        Ok(Some(Tally::begin(&which, &selection, Buffer::KibPerCpu(self.buffer_kib))?))
    }

    /// Returns true if this host is watched, and not a captured one.
    pub(crate) fn is_live(&self) -> bool {
        self.root.is_none()
    }
}

/// Returns a line for each source that could not be had, with its cost.
pub(crate) fn missing(look: &Look, tally: Option<&Tally>) -> Vec<String> {
    let files = look.missing().map(ToString::to_string);
    let events = tally.map(Tally::missing).unwrap_or_default();
    files.chain(events.iter().cloned()).collect()
}
