//! `nofrag trace export`: any trace for other programs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nofrag_host::recording::Existing;
use nofrag_host::trace::{self, Loss, export};
use nofrag_show::host::trace::not_whole;

use crate::progress::Events;
use crate::{Status, output};

const AFTER_HELP: &str = "\
Examples:
  nofrag trace export a.nofrag --to json-lines - | head
  nofrag trace export a.nofrag --to ftrace a.txt
  nofrag trace export a.nofrag --to parquet a.parquet
  nofrag trace export a.nofrag --to dataset fleet --host web-17 --day 2026-11-26

Exit status:
  0  exported
  1  exported, but the trace is not whole: cut, damaged, or with events lost
  2  bad use, or something could not be read or written";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// A recording, a folder of raw pages, a trace.dat, or the text of ftrace, trace-cmd or perf script
    #[arg(value_name = "FILE")]
    from: PathBuf,

    /// The form of the output
    #[arg(long = "to", value_name = "FORM")]
    form: Form,

    /// The file to write, `-` for standard output; of a dataset the folder
    #[arg(value_name = "OUT")]
    to: PathBuf,

    /// The machine that was recorded, for a dataset
    #[arg(long, value_name = "NAME", required_if_eq("form", "dataset"))]
    host: Option<String>,

    /// The day on which it was recorded, for a dataset: a recording does not tell
    #[arg(long, value_name = "DATE", required_if_eq("form", "dataset"))]
    day: Option<String>,

    /// Write over a file that is there already
    #[arg(long)]
    replace: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    /// The lines that the kernel's own `trace` file has
    Ftrace,
    /// An object for each event, a line each: at, cpu, pid, event, and its fields by name
    JsonLines,
    /// A table for duckdb, polars, pandas and others; its name ends in .parquet
    Parquet,
    /// A folder of such tables, which many recordings share: host=NAME/day=DATE/kind=EVENT/FILE.parquet
    Dataset,
}

/// Exports the trace that `args` names.
pub(super) fn execute(args: &Args) -> Result<Status> {
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let loss = match args.form {
        Form::Ftrace | Form::JsonLines => lines(args, existing)?,
        Form::Parquet => parquet(args, existing)?,
        Form::Dataset => dataset(args, existing)?,
    };
    if let Some(what) = not_whole(loss) {
        output::tell(&format!("nofrag: {}: {what}\n", args.from.display()));
    }
    Ok(Status::of(loss))
}

/// Writes the forms with a line for each event, and returns the losses of the trace.
fn lines(args: &Args, existing: Existing) -> Result<Loss> {
    super::refuse_same(&args.from, &args.to)?;
    let mut trace = trace::open(&args.from)?;
    let out: Box<dyn Write> = if args.to == Path::new("-") {
        Box::new(io::stdout().lock())
    } else {
        Box::new(create(&args.to, existing)?)
    };
    let bar = Events::of(trace.events.stated());
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let mut progress = |done| bar.done(done);
    let events = &mut *trace.events;
    let written = match args.form {
        Form::Ftrace => export::ftrace(&trace.meta, events, &mut out, &mut progress),
        _ => export::json_lines(events, &mut out, &mut progress),
    };
    let written =
        written.and_then(|events| out.flush().map(|()| events).map_err(export::ExportError::Write));
    bar.end();
    match written {
        // A reader that has gone away is not an error.
        Err(export::ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(Loss::default())
        }
        written => named(written.map(|_| trace.events.loss()), &args.to),
    }
}

/// Adds to an error the name of the output that cannot be written; an error of the input names its file itself.
fn named(exported: Result<Loss, export::ExportError>, to: &Path) -> Result<Loss> {
    match exported {
        Err(error @ export::ExportError::Trace(_)) => Err(error.into()),
        exported => exported.with_context(|| format!("cannot write {}", to.display())),
    }
}

fn parquet(args: &Args, existing: Existing) -> Result<Loss> {
    export::check_parquet_name(&args.to)?;
    super::refuse_same(&args.from, &args.to)?;
    let mut trace = trace::open(&args.from)?;
    let out = create(&args.to, existing)?;
    let bar = Events::of(trace.events.stated());
    let mut progress = |done| bar.done(done);
    let written = export::parquet(&mut *trace.events, out, &mut progress);
    bar.end();
    named(written.map(|_| trace.events.loss()), &args.to)
}

/// Writes the events into the dataset in a folder, in files with the name of the trace.
fn dataset(args: &Args, existing: Existing) -> Result<Loss> {
    let text = |option: &Option<String>| option.clone().unwrap_or_default();
    let name = args.from.file_stem().unwrap_or_default().to_string_lossy();
    let place = export::Place::new(&text(&args.host), &text(&args.day), &name)?;
    let mut trace = trace::open(&args.from)?;
    let bar = Events::of(trace.events.stated());
    let mut progress = |done| bar.done(done);
    let written = export::dataset(&mut *trace.events, &args.to, &place, existing, &mut progress);
    bar.end();
    named(written.map(|_| trace.events.loss()), &args.to)
}

/// Makes a new file, or writes one over.
fn create(path: &Path, existing: Existing) -> Result<File> {
    let file = match existing {
        Existing::Keep => File::create_new(path),
        Existing::Replace => File::create(path),
    };
    match file {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{} exists already: name another file, or give --replace", path.display())
        }
        file => file.with_context(|| format!("cannot write {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_is_wrong_is_named() {
        let said = |error| {
            let error = named(Err(error), Path::new("out")).expect_err("it is an error");
            format!("{error:#}")
        };
        let unread = trace::TraceError::Unknown("in".into());
        let unread = said(export::ExportError::Trace(unread));
        assert!(unread.starts_with("in: ") && !unread.contains("out"), "{unread}");
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let unwritten = said(export::ExportError::Write(full));
        assert!(unwritten.starts_with("cannot write out: "), "{unwritten}");
    }
}
