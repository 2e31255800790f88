//! `nofrag host pages`: the pages of this host in detail.

use anyhow::Result;
use nofrag_host::machine::pages::survey;
use nofrag_show::host::pages as show;
use nofrag_show::{Look, Schema};

use super::machine::Place;
use crate::{Status, output, report};

const AFTER_HELP: &str = "\
Three files say three things: buddyinfo how many blocks are free, pagetypeinfo of which types they are,
kpageflags what each page frame is used for and where. The last two only root may read; without them
what is left is shown. Reading kpageflags takes a second for 25 GiB of memory.

Examples:
  sudo nofrag host pages                    what is in the pageblocks, what pins them, and where
  nofrag host pages                         what can be seen without rights
  nofrag host pages --all                   each zone with its map, uses of frames and free blocks
  nofrag host pages --root DIR              a captured host (nofrag host capture DIR --frames)
  nofrag host pages --root FILE.nofrag@end  the state at the end of a recording
  nofrag host pages --report FILE.html      the same with a map and charts, for a browser
  nofrag host pages --json                  for machines (schema nofrag.host.pages)

Exit status:
  0  shown, and nothing needs attention (there may be notes)
  1  shown, and at least one finding is a warning
  2  bad use, or neither zoneinfo nor buddyinfo could be read";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,

    /// Show everything that is known, on as many lines as it takes
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object, schema nofrag.host.pages
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    report: report::ReportFile,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.host.pages", version: 1 };

/// Reads the pages, computes the report and prints it.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let wanted = args.report.begin()?;
    let pages = survey(&args.place.read()?);
    let text = if args.all { show::text } else { show::brief };
    let asked = args.json.then_some(SCHEMA);
    output::print_result(asked, &pages, || text(&pages, Look::of_stdout()))?;
    wanted.write(|origin| show::page(&pages, origin))?;
    Ok(super::status_of(&pages.findings))
}
