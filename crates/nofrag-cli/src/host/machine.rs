//! `nofrag host` without a subject: the whole machine on one screen.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nofrag_host::machine::verdict::State;
use nofrag_host::machine::{self, Frames, Machine, Sources};
use nofrag_host::snapshot::Files;
use nofrag_host::source::Root;
use nofrag_host::trace::SnapshotName;

use crate::{Status, output, report};
use nofrag_show::host::machine as show;
use nofrag_show::{Look, Schema};

pub(crate) const AFTER_HELP: &str = "\
Works without rights: what may not be read is listed, with --all also what that costs. As root it also
knows the types of free blocks and the vmalloc space. Nothing is changed, and no file is read twice.

Examples:
  nofrag host                               this machine on one screen: verdict, findings, zones
  nofrag host --all                         everything: each zone, order, request, counter and file
  sudo nofrag host --frames                 the same; reads what each page frame is used for, so that
                                            the outlook for huge pages knows what cannot be moved
                                            (unasked up to 64 GiB where memory is in pieces)
  nofrag host --root DIR                    a captured host (nofrag host capture DIR makes one)
  nofrag host --root FILE.nofrag@start      the state at the start of a recording; @end at its end
  nofrag host --report host.html            the same with charts, for a browser
  nofrag host --json                        for machines (schema nofrag.host)

Exit status:
  0  shown, and nothing needs attention (there may be notes)
  1  shown, and at least one finding is a warning
  2  bad use, or neither zoneinfo nor buddyinfo could be read";

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Look at the host captured in DIR, or at the snapshot FILE@start or FILE@end of a recording
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Read what each page frame is used for: a second for 25 GiB of memory
    #[arg(long)]
    frames: bool,

    /// Show everything that is known, on as many lines as it takes
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object, schema nofrag.host
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    report: report::ReportFile,
}

/// A host whose frames are read.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Place {
    /// Look at the host captured in DIR, or at the snapshot FILE@start or FILE@end of a recording
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Do not read kpageflags, even where it is allowed
    #[arg(long)]
    no_frames: bool,
}

impl Place {
    /// Reads the host.
    pub(crate) fn read(&self) -> Result<Sources> {
        let frames = if self.no_frames { Frames::LeftOut } else { Frames::Read };
        read(self.root.as_deref(), frames)
    }
}

pub(crate) const SCHEMA: Schema = Schema::HOST;

/// Reads the machine, computes the report and prints it.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let wanted = args.report.begin()?;
    let machine = survey(args)?;
    let text = if args.all { show::text } else { show::brief };
    let asked = args.json.then_some(SCHEMA);
    output::print_result(asked, &machine, || text(&machine, Look::of_stdout()))?;
    wanted.write(|origin| show::page(&machine, origin))?;
    Ok(super::status_of(&machine.findings))
}

/// Reads and surveys the machine. The state of every frame is read where it was asked for, and where only it can say
/// whether compaction would help, unless that would take long.
fn survey(args: &Args) -> Result<Machine> {
    /// Most memory whose frames are read unasked.
    const MOST_BYTES: u64 = 64 << 30;
    let root = args.root.as_deref();
    if args.frames {
        return Ok(machine::survey(&read(root, Frames::Read)?)?);
    }
    let mut sources = read(root, Frames::LeftOut)?;
    let machine = machine::survey(&sources)?;
    let is_open = machine.verdict.as_ref().is_some_and(|it| it.state == State::Scattered);
    if !is_open || machine.host.memory_bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
        return Ok(machine);
    }
    match root {
        None => sources.read_frames(&Root::Live),
        Some(path) if path.is_dir() && !machine::is_snapshot(path) => {
            sources.read_frames(&Root::Captured(path.to_owned()))
        }
        Some(_) => sources = read(root, Frames::Read)?,
    }
    Ok(machine::survey(&sources)?)
}

/// Reads the source that `root` names: this host, a captured one, the folder of a snapshot, or a snapshot in a
/// recording.
fn read(root: Option<&Path>, frames: Frames) -> Result<Sources> {
    let Some(path) = root else {
        let sources = machine::read(&Root::Live, frames);
        ensure!(
            has_lists(&sources.files),
            "neither /proc/zoneinfo nor /proc/buddyinfo can be read: is /proc mounted?"
        );
        return Ok(sources);
    };
    if let Some(snapshot) = SnapshotName::of(path) {
        return Ok(Sources::of_files(without_frames(snapshot.read()?, frames)));
    }
    ensure!(
        !path.is_file(),
        "{0}: neither a folder nor a snapshot: of a recording name one, as {0}@start or {0}@end",
        path.display()
    );
    ensure!(
        path.is_dir(),
        "{}: no such folder: make one with `nofrag host capture DIR`",
        path.display()
    );
    fs::read_dir(path).with_context(|| path.display().to_string())?;
    let sources = if machine::is_snapshot(path) {
        let files = Files::read_folder(path).with_context(|| path.display().to_string())?;
        Sources::of_files(without_frames(files, frames))
    } else {
        machine::read(&Root::Captured(path.to_owned()), frames)
    };
    ensure!(
        has_lists(&sources.files),
        "{}: no captured host: it has neither proc/zoneinfo nor proc/buddyinfo; `nofrag host capture DIR` makes one",
        path.display()
    );
    Ok(sources)
}

fn has_lists(files: &Files) -> bool {
    ["zoneinfo", "buddyinfo"].iter().any(|name| files.bytes(name).is_some())
}

/// Removes the state of frames unless it was asked for, so that a look costs as much as its help says.
fn without_frames(mut files: Files, frames: Frames) -> Files {
    match frames {
        Frames::Read => files,
        Frames::LeftOut => {
            files.retain(|name| name != "kpageflags");
            files
        }
    }
}
