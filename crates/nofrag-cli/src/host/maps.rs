//! `nofrag host maps`: the address space of a process.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use nofrag_host::process::growth::Earlier;
use nofrag_host::process::ranking::{PATIENCE, rank};
use nofrag_host::process::replay::Which;
use nofrag_host::process::survey;
use nofrag_host::source::Root;
use nofrag_host::source::process::{self, Depth, Whose};

use crate::offer::seconds;
use crate::{Status, output, report};
use nofrag_show::host::{maps, ranking};
use nofrag_show::{Look, Schema};

const AFTER_HELP: &str = "\
The kernel shows the areas of a process to its owner and to root. Reading /proc/PID/smaps, which
says why neighbours do not merge, walks the page tables of the process: on one with hundreds of
gigabytes that takes seconds, during which it cannot map; --maps-only reads /proc/PID/maps instead.

Examples:
  nofrag host maps 1234                     the process with this number
  nofrag host maps                          this command itself, to see what there is to see
  nofrag host maps 1234 --every 10          two looks, 10 seconds apart: growth and forecast
  nofrag host maps 1234 --all               everything: holes by size, every placement, examples
  nofrag host maps --all                    all processes, nearest to vm.max_map_count first
  nofrag host maps --root DIR               a captured process: DIR/proc/PID/smaps and its neighbours
  nofrag host maps 1234 --report FILE.html  the same with a hole map, for a browser
  nofrag host maps 1234 --json              for machines (schema nofrag.host.maps)

Exit status:
  0  shown, and nothing needs attention (there may be notes)
  1  shown, and at least one finding is a warning
  2  bad use, or the areas could not be read: no such process, or not yours";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The number of the process, or `self`; without it this command itself, or the only one captured
    #[arg(value_name = "PID", value_parser = parse_pid)]
    pid: Option<Whose>,

    /// Look at the host captured in DIR instead of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Show everything that is known of PID; without PID list all processes, nearest to the limit of areas first
    #[arg(long)]
    all: bool,

    /// Look twice, SECONDS apart, and say how the areas grow and when the limit is reached
    // A longer wait is two looks with --json.
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.01..=86_400.0), conflicts_with = "root")]
    every: Option<Duration>,

    /// Do not read smaps: a microsecond per area, but most merge blockers stay unknown
    #[arg(long)]
    maps_only: bool,

    /// Placements to try on the same mappings [default: quick]
    #[arg(long, value_enum)]
    replay: Option<Replays>,

    /// Print JSON for machines: one object, schema nofrag.host.maps (of all processes nofrag.host.maps-ranking)
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    report: report::ReportFile,

    /// Number of names, reasons or processes in a table [default: 4, with --all 10]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

/// The placements that `--replay` tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Replays {
    /// None
    None,
    /// All, those that walk from area to area only up to 4,096 mappings
    Quick,
    /// All, however long it takes
    All,
}

impl From<Replays> for Which {
    fn from(replays: Replays) -> Which {
        match replays {
            Replays::None => Which::None,
            Replays::Quick => Which::Quick,
            Replays::All => Which::All,
        }
    }
}

fn parse_pid(text: &str) -> Result<Whose, String> {
    match text {
        "self" => Ok(Whose::Own),
        text => text.parse().map(Whose::Pid).map_err(|_| "neither a number nor `self`".to_owned()),
    }
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.host.maps", version: 1 };

pub(crate) const RANKING: Schema = Schema { name: "nofrag.host.maps-ranking", version: 1 };

/// Reads the maps, computes the report and prints it.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let wanted = args.report.begin()?;
    let root = args.root.clone().map_or(Root::Live, Root::Captured);
    if args.all && args.pid.is_none() {
        ensure!(
            args.every.is_none() && !args.maps_only && args.replay.is_none(),
            "--every, --maps-only and --replay are about one process: name it before --all, by its number or as self"
        );
        return execute_all(args, &root, &wanted);
    }
    let whose = match args.pid {
        Some(whose) => whose,
        None => process::default_process(&root)?,
    };
    let earlier = args.every.map(|wait| look_and_wait(&root, whose, wait)).transpose()?;
    let depth = if args.maps_only { Depth::Maps } else { Depth::Smaps };
    let sources = process::read(&root, whose, depth)?;
    let earlier = earlier.map(|(parsed, seen)| Earlier { parsed, before: seen.elapsed() });
    let report = survey(&sources, earlier.as_ref(), args.replay.unwrap_or(Replays::Quick).into())
        .map_err(|why| anyhow!("process {whose}: {why}"))?;
    let path = root.path(&format!("proc/{whose}/{}", sources.file.into_str()));
    let text = if args.all { maps::text } else { maps::brief };
    let text = || text(&report, &path, args.top, Look::of_stdout());
    output::print_result(args.json.then_some(SCHEMA), &report, text)?;
    wanted.write(|origin| maps::page(&report, origin))?;
    Ok(super::status_of(&report.findings))
}

/// Takes the first of two looks, waits, and returns the look with its time.
fn look_and_wait(
    root: &Root,
    whose: Whose,
    wait: Duration,
) -> Result<(nofrag_host::proc_maps::Parsed, Instant)> {
    let parsed = process::read_maps(root, whose)?;
    let seen = Instant::now();
    thread::sleep(wait);
    Ok((parsed, seen))
}

fn execute_all(args: &Args, root: &Root, wanted: &report::Pending) -> Result<Status> {
    let ranking = rank(root, PATIENCE)?;
    let text = || ranking::text(&ranking, args.top, Look::of_stdout());
    output::print_result(args.json.then_some(RANKING), &ranking, text)?;
    wanted.write(|origin| ranking::page(&ranking, origin))?;
    Ok(if ranking.warns() { Status::Warned } else { Status::Done })
}
