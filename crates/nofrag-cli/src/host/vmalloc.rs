//! `nofrag host vmalloc`: the kernel's vmalloc space.

use std::path::PathBuf;

use anyhow::Result;
use nofrag_host::source::{self, KPTR_RESTRICT, Root, Sources};
use nofrag_host::unhash::{KPTR_RESTRICT_MEANWHILE, Unhashed};
use nofrag_host::vmalloc::survey;

use crate::{Status, output, report};
use nofrag_show::host::vmalloc;
use nofrag_show::{Look, Schema};

const AFTER_HELP: &str = "\
The kernel lets only root read /proc/vmallocinfo. It prints hashes in place of addresses unless
kernel.kptr_restrict is 1; sizes, kinds and callers are true all the same, but holes need addresses.

Examples:
  sudo nofrag host vmalloc                  this host, as far as its settings allow
  sudo nofrag host vmalloc --unhash         the same with holes: sets kernel.kptr_restrict to 1 for
                                            the one read and puts it back
  nofrag host vmalloc --all                 holes by size, how bounds are known, findings in full
  nofrag host vmalloc --root DIR            a captured host: DIR/proc/vmallocinfo and its neighbours
  nofrag host vmalloc --report FILE.html    the same with a hole map, for a browser
  nofrag host vmalloc --root DIR --json     the same for machines (schema nofrag.host.vmalloc)

Exit status:
  0  shown, and nothing needs attention (there may be notes)
  1  shown, and at least one finding is a warning
  2  bad use, or /proc/vmallocinfo could not be read";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Look at the host captured in DIR instead of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Show real addresses for the one read: sets kernel.kptr_restrict to 1 and puts it back
    ///
    /// It is put back also on an error, on Ctrl-C and on a panic; nothing can guard against SIGKILL. Meanwhile, some
    /// milliseconds, other processes with CAP_SYSLOG see real addresses too.
    #[arg(long, conflicts_with = "root")]
    unhash: bool,

    /// Show everything that is known, on as many lines as it takes
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object, schema nofrag.host.vmalloc
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    report: report::ReportFile,

    /// Number of callers in the table [default: 5, with --all 10]
    #[arg(long, value_name = "N")]
    callers: Option<usize>,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.host.vmalloc", version: 1 };

/// Reads the space, computes the report and prints it.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let wanted = args.report.begin()?;
    let root = args.root.clone().map_or(Root::Live, Root::Captured);
    let report = survey(&read(&root, args)?)?;
    let text = if args.all { vmalloc::text } else { vmalloc::brief };
    let text = || text(&report, &root, args.callers, Look::of_stdout());
    output::print_result(args.json.then_some(SCHEMA), &report, text)?;
    wanted.write(|origin| vmalloc::page(&report, origin))?;
    Ok(super::status_of(&report.findings))
}

fn read(root: &Root, args: &Args) -> Result<Sources> {
    if !args.unhash {
        return Ok(source::read_rest(root, source::read_vmallocinfo(root)?));
    }
    let unhashed = Unhashed::begin(&root.path(KPTR_RESTRICT))?;
    let vmallocinfo = source::read_vmallocinfo(root);
    unhashed.restore()?;
    let sources = source::read_rest(root, vmallocinfo?);
    Ok(Sources { kptr_restrict: Some(KPTR_RESTRICT_MEANWHILE), ..sources })
}
