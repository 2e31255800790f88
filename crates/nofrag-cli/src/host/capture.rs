//! `nofrag host capture`: this host in a folder.

use std::path::PathBuf;

use crate::caller::Caller;
use crate::{Status, output};
use anyhow::{Context, Result};
use nofrag_host::machine::Frames;
use nofrag_host::machine::capture::{Captured, Choices, Private, gather, must_be_empty};
use nofrag_host::source::Root;
use nofrag_show::{Look, Schema, bytes_text, plural, sentence};

const AFTER_HELP: &str = "\
DIR then holds the files of this host under their own paths, for `nofrag host --root DIR`, here or
anywhere else. Names, numbers of processes and addresses of the kernel are taken out before anything
is written; what is taken, left out and kept is printed and stands in DIR/README.txt. Nobody else can
read what is in DIR; under sudo it is written as who called it. Nothing on the host is changed.

Examples:
  sudo nofrag host capture DIR              all small files: a few hundred KiB
  nofrag host capture DIR                   what may be read without rights
  sudo nofrag host capture DIR --frames     with what each page frame is used for: a second and some
                                            2 MB for 25 GiB of memory
  sudo nofrag host capture DIR --addresses  with the addresses of vmalloc areas, so that its holes can
                                            be computed; the kernel hides them unless
                                            kernel.kptr_restrict is 1

Exit status:
  0  captured; what could not be read is listed
  2  bad use, or DIR is not empty or cannot be written";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The folder, which is made; if it is there it must be empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Capture what each page frame is used for, too
    #[arg(long)]
    frames: bool,

    /// Keep the names and numbers of processes, and the names of the files that they map
    #[arg(long)]
    names: bool,

    /// Keep the addresses of vmalloc areas, as the kernel shows them
    #[arg(long)]
    addresses: bool,

    /// Print JSON for machines: one object, schema nofrag.host.capture
    #[arg(long)]
    json: bool,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.host.capture", version: 1 };

/// Captures the host and reports the files.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let private = |kept| if kept { Private::Kept } else { Private::TakenOut };
    let choices = Choices {
        frames: if args.frames { Frames::Read } else { Frames::LeftOut },
        names: private(args.names),
        addresses: private(args.addresses),
    };
    must_be_empty(&args.folder)?;
    let gathered = gather(&Root::Live, choices);
    if let Some(caller) = Caller::of_sudo() {
        caller.become_for_good().context("cannot go on as who called sudo")?;
    }
    let captured = gathered.write(&args.folder)?;
    let text = || page(&captured, Look::of_stdout());
    output::print_result(args.json.then_some(SCHEMA), &captured, text)?;
    Ok(Status::Done)
}

fn page(captured: &Captured, look: Look) -> String {
    let files = plural(captured.taken.len() as u64, "file", "files");
    let heading =
        format!("{}: {files}, {}", captured.folder.display(), bytes_text(captured.bytes()));
    let mut page = look.wrapped("", &heading);
    page += "\nTaken\n";
    let plain = captured.taken.iter().filter(|taken| taken.scrubbed.is_none());
    let plain = plain.filter(|taken| !taken.path.starts_with("proc/sys/vm/"));
    let plain: Vec<&str> = plain.map(|taken| taken.path.as_str()).collect();
    page += &look.hanging(
        "  as they are: ",
        4,
        &sentence(&format!("{}, the settings of vm", plain.join(", "))),
    );
    let mut changes: Vec<(&str, Vec<&str>)> = Vec::new();
    for taken in &captured.taken {
        let Some(change) = taken.scrubbed else { continue };
        match changes.iter_mut().find(|(known, _)| *known == change) {
            Some((_, paths)) => paths.push(&taken.path),
            None => changes.push((change, vec![&taken.path])),
        }
    }
    for (change, paths) in changes {
        page += &look.hanging(&format!("  {change}: "), 4, &sentence(&paths.join(", ")));
    }
    page += "\nLeft out\n";
    captured.left_out.iter().for_each(|what| page += &look.hanging("  ", 4, &sentence(what)));
    page += "\nKept\n";
    captured.kept.iter().for_each(|what| page += &look.hanging("  ", 4, &sentence(what)));
    if let Some(missing) = nofrag_show::host::missing(&captured.missing, look) {
        page += "\n";
        page += &missing;
    }
    page += &format!("\nLook at it: nofrag host --root {}\n", captured.folder.display());
    page
}
