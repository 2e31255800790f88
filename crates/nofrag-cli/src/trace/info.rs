//! `nofrag trace info`: the contents of a trace.

use std::path::{Path, PathBuf};

use anyhow::Result;
use nofrag_host::recording::{Recording, Sizes};
use nofrag_host::trace::{self, Moment, Summary, Trace, TraceMeta, summarise};
use nofrag_show::host::trace::{answer, head, sections};
use nofrag_show::{Look, Schema, screen_for, text_for};
use serde::Serialize;

use crate::Status;
use crate::output::print_result;
use crate::progress::Events;

const AFTER_HELP: &str = "\
Frees are matched with the allocations in the trace. Frees without one are normal: their blocks are older
than the trace, or were moved there by a migration, which has no event of its own.

Examples:
  nofrag trace info a.nofrag
  nofrag trace info trace.dat
  nofrag trace info a.nofrag --json | jq .summary.pairing

Exit status:
  0  done
  1  shown, but the trace is not whole: cut, damaged, or with events lost
  2  bad use, or the trace could not be read";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// A recording, a folder of raw pages, a trace.dat, or the text of ftrace, trace-cmd or perf script
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Show everything: rates, lifetimes, flags, all kinds of events, in place of the answer on one screen
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object, schema nofrag.trace.info
    #[arg(long)]
    json: bool,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.trace.info", version: 1 };

/// The contents of a trace. Times are nanoseconds.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    /// The trace, as it was named.
    file: String,
    /// The kernel that was traced.
    release: Option<&'a str>,
    /// The clock of the times.
    clock: Option<&'a str>,
    /// The command that was recorded.
    command: Option<&'a str>,
    /// The contents of the file's bytes; `None` if it is no recording of nofrag's own.
    sizes: Option<Sizes>,
    /// The states of the host in it.
    snapshots: Vec<SnapshotLine>,
    /// Facts that are not in it, with the consequences, as sentences.
    missing: &'a [String],
    summary: &'a Summary,
}

/// A snapshot in the trace, with the names of its files.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SnapshotLine {
    moment: Moment,
    files: Vec<String>,
}

/// The way to what an answer leaves out, and what comes next.
const REST: &str = "--all shows rates, lifetimes, flags and the rest; `nofrag replay FILE` puts the same requests to \
                    other policies.";

/// Shows the contents of the file that `args` names.
pub(super) fn execute(args: &Args) -> Result<Status> {
    let sizes = sizes(&args.file);
    let Trace { meta, mut events, mut room } = trace::open(&args.file)?;
    let bar = Events::of(events.stated());
    let progress = &mut |done| bar.done(done);
    let summary = summarise(&meta, &mut *events, &mut room, progress);
    bar.end();
    let (summary, meta) = (summary?, &meta);
    let document = Document {
        file: args.file.display().to_string(),
        release: meta.release.as_deref(),
        clock: meta.clock.as_deref(),
        command: meta.command.as_deref(),
        sizes,
        snapshots: snapshots(meta),
        missing: &meta.missing,
        summary: &summary,
    };
    let (sizes, look) = (sizes.as_ref(), Look::of_report());
    print_result(args.json.then_some(SCHEMA), &document, || match args.all {
        true => {
            let sections = sections(meta, &summary);
            head(&args.file, meta, sizes, &summary, look) + &text_for(&sections, look)
        }
        false => screen_for(&answer(&args.file, meta, sizes, &summary), REST, look),
    })?;
    Ok(Status::of(summary.loss))
}

/// Returns the shares of the file's bytes, if it is a recording of nofrag's own.
fn sizes(path: &Path) -> Option<Sizes> {
    if path.is_dir() { None } else { Recording::open(path).ok().map(|recording| recording.sizes()) }
}

fn snapshots(meta: &TraceMeta) -> Vec<SnapshotLine> {
    let lines = meta.snapshots.iter().map(|taken| SnapshotLine {
        moment: taken.moment,
        files: taken.files.names().map(str::to_owned).collect(),
    });
    lines.collect()
}
