//! `nofrag host`: what is fragmented on this host.

pub(crate) mod look;
mod maps;
pub(crate) mod text;
mod vmalloc;

use anyhow::Result;

use crate::Status;

/// What `nofrag host` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(clap::Subcommand)]
enum Subject {
    /// The kernel's vmalloc space: who holds it, what is lazily freed, which holes are left
    Vmalloc(vmalloc::Args),
    /// The address space of a process: areas against their limit, holes, what keeps neighbours apart
    Maps(maps::Args),
}

/// Shows the subject that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    match &args.subject {
        Subject::Vmalloc(args) => vmalloc::execute(args),
        Subject::Maps(args) => maps::execute(args),
    }
}
