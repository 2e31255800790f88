//! `nofrag trace convert`: any trace as a recording of nofrag's own.

use std::path::PathBuf;

use anyhow::Result;
use nofrag_host::recording::{self, Existing, Written};
use nofrag_host::trace::{self, Loss};
use nofrag_show::{Schema, host::trace::not_whole};
use serde::Serialize;

use crate::Status;
use crate::output::print_result;
use crate::progress::Events;

const AFTER_HELP: &str = "\
Examples:
  nofrag trace convert FOLDER a.nofrag          raw pages, format files and snapshots in one file
  nofrag trace convert trace.dat a.nofrag       what trace-cmd recorded
  nofrag trace convert perf.txt a.nofrag        the text of perf script

Exit status:
  0  converted
  1  converted, but the trace is not whole: cut, damaged, or with events lost
  2  bad use, or something could not be read or written";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// A recording, a folder of raw pages, a trace.dat, or the text of ftrace, trace-cmd or perf script
    #[arg(value_name = "FILE")]
    from: PathBuf,

    /// The recording to write, such as a.nofrag
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// Write over a file that is there already
    #[arg(long)]
    replace: bool,

    /// Print JSON for machines: one object with bytes and events, schema nofrag.trace.convert
    #[arg(long)]
    json: bool,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.trace.convert", version: 1 };

/// The recording that was written.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    bytes: u64,
    /// Number of its events.
    events: u64,
    /// The losses of the trace, which the recording tells again.
    loss: Loss,
}

/// Converts the trace that `args` names.
pub(super) fn execute(args: &Args) -> Result<Status> {
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    super::refuse_same(&args.from, &args.to)?;
    let trace = trace::open(&args.from)?;
    let bar = Events::of(trace.events.stated());
    let written = recording::convert(trace, &args.to, existing, &mut |done| bar.done(done));
    bar.end();
    let Written { bytes, events, .. } = written?;
    let loss = trace::open(&args.to)?.events.loss();
    print_result(args.json.then_some(SCHEMA), &Document { bytes, events, loss }, || {
        let each = if events == 0 { 0.0 } else { bytes as f64 / events as f64 };
        let written = format!(
            "{}: {} events in {} bytes, {} bytes an event\n",
            args.to.display(),
            nofrag_show::count(events as f64),
            nofrag_show::count(bytes as f64),
            nofrag_show::number(each)
        );
        not_whole(loss).map_or_else(String::new, |what| what + "\n") + &written
    })?;
    Ok(Status::of(loss))
}
