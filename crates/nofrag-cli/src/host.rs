//! `nofrag host`: the fragmentation of this host.

pub(crate) mod capture;
pub(crate) mod machine;
pub(crate) mod maps;
pub(crate) mod pages;
pub(crate) mod vmalloc;

use anyhow::Result;
use nofrag_host::finding::{Finding, Severity};

pub(crate) use machine::Place;

use crate::Status;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = machine::AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Option<Subject>,

    #[command(flatten)]
    machine: machine::Args,
}

#[derive(clap::Subcommand)]
enum Subject {
    /// Pages in detail: free blocks by type, what each frame is used for, what pins pageblocks and where
    Pages(pages::Args),
    /// The kernel's vmalloc space: who holds it, what is lazily freed, which holes are left
    Vmalloc(vmalloc::Args),
    /// The address space of a process: areas against their limit, holes, what keeps neighbours apart
    Maps(maps::Args),
    /// Write this host into a folder, names and addresses taken out, to look at it elsewhere
    Capture(capture::Args),
}

/// Shows the subject that `args` names, or the whole machine.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    match &args.subject {
        None => machine::execute(&args.machine),
        Some(Subject::Pages(args)) => pages::execute(args),
        Some(Subject::Vmalloc(args)) => vmalloc::execute(args),
        Some(Subject::Maps(args)) => maps::execute(args),
        Some(Subject::Capture(args)) => capture::execute(args),
    }
}

/// Returns the status of findings: `Warned` if one is a warning.
fn status_of(findings: &[Finding]) -> Status {
    let warns = findings.iter().any(|finding| finding.severity == Severity::Warning);
    if warns { Status::Warned } else { Status::Done }
}
