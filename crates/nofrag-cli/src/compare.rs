//! `nofrag compare`: replays, recordings or snapshots, one or several on each side.

use anyhow::Result;
use nofrag_lab::compare::{Subject, answers, compare, sections};
use nofrag_lab::pages;
use nofrag_show::{Look, Schema, first_screen, text_for};

use crate::output::print_result;
use crate::progress::Events;
use crate::{Status, report};

const AFTER_HELP: &str = "\
Each side is one of

  a replay      what `nofrag replay --json` printed, in a file
  a recording   anything that `nofrag replay` reads
  a snapshot    a captured host, a folder with buddyinfo, zoneinfo, kpageflags and so on, or FILE@start and FILE@end for
                those of a recording

or several of them, separated by commas: repeats of one setting. All are of one kind. With repeats a
figure is better or worse only where the ranges of the two sides do not overlap; what two runs of one
setting differ by is chance. One recording on each side tells nothing of that, so without --tolerance
nothing is called better or worse then. A figure gets a verdict where less or more of it is better. Counts of
different machines stand side by side without one: only shares, indices and orders say something there.

Examples:
  nofrag compare before.json after.json                two replays of one recording
  nofrag compare monday.nofrag tuesday.nofrag          two recordings
  nofrag compare off1,off2,off3 -- on1,on2,on3         two settings, each recorded three times
  nofrag compare FILE@start FILE@end                   what a workload did to memory
  nofrag compare FILE@start FILE@end --report c.html   the same with charts, for a browser
  nofrag compare old.json new.json --tolerance 5       for CI: exit status 1 if something got worse by
                                                       more than 5 % of its old value

Exit status:
  0  nothing got worse by more than the tolerance
  1  something did, or a side is not whole: cut, damaged, or with events lost
  2  bad use, something could not be read, or the sides cannot be compared";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The first side: before; several runs of one setting are separated by commas
    #[arg(value_name = "OLD")]
    old: String,

    /// The second side: after
    #[arg(value_name = "NEW")]
    new: String,

    /// A change of at most PERCENT of the old value counts as none
    /// [default: 0, and no verdict on one recording beside another]
    #[arg(
        long, value_name = "PERCENT", value_parser = tolerance, allow_negative_numbers = true,
        verbatim_doc_comment
    )]
    tolerance: Option<f64>,

    /// Show every figure, in place of the largest changes for the worse, for the better and neither
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object with all figures, schema nofrag.compare
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    report: report::ReportFile,
}

/// Parses a tolerance in percent, with or without its sign.
fn tolerance(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent),
        _ => Err("a tolerance is a percentage of the old value, 0 or more".to_owned()),
    }
}

/// The way to what an answer leaves out.
const REST: &str = "--all shows every figure, and --report FILE.html draws the changes.";

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.compare", version: 1 };

/// Compares the subjects that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let wanted = args.report.begin()?;
    let (old, new) = (Subject::open_all(&args.old)?, Subject::open_all(&args.new)?);
    let replays = match (old[0].replay(), new[0].replay()) {
        (Some(old), Some(new)) if wanted.is_wanted() => Some([old.clone(), new.clone()]),
        _ => None,
    };
    let bar = Events::of(None);
    let found = compare([old, new], args.tolerance, &|passed| bar.show(passed));
    bar.end();
    let found = found?;
    let look = Look::of_report();
    print_result(args.json.then_some(SCHEMA), &found, || match args.all {
        true => text_for(&sections(&found), look),
        false => first_screen(answers(&found), REST, look),
    })?;
    let replays = replays.as_ref().map(|[old, new]| [old, new]);
    wanted.write(|origin| pages::compare(&found, replays, origin))?;
    Ok(match (found.is_worse(), found.damage.is_empty()) {
        (true, _) => Status::GotWorse,
        (false, false) => Status::NotWhole,
        (false, true) => Status::Done,
    })
}
