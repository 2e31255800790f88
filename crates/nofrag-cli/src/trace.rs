//! `nofrag trace`: the contents of a trace, and the same in another form.

pub(crate) mod convert;
mod export;
pub(crate) mod info;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::Status;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show what a trace holds: rates, orders, types, lifetimes, what could not be paired, what was lost
    Info(info::Args),
    /// Write any trace as a recording of nofrag's own
    Convert(convert::Args),
    /// Write any trace for other programs
    Export(export::Args),
}

/// Refuses to write over the file that is being read.
fn refuse_same(from: &Path, to: &Path) -> Result<()> {
    let place = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    match (place(from), place(to)) {
        (Some(from_place), Some(to_place)) if from_place == to_place => {
            bail!("{} is {} itself: name another file for the result", to.display(), from.display())
        }
        _ => Ok(()),
    }
}

/// Does the action that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    match &args.action {
        Action::Info(args) => info::execute(args),
        Action::Convert(args) => convert::execute(args),
        Action::Export(args) => export::execute(args),
    }
}
