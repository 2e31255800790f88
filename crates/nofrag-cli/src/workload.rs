//! `nofrag workload`: a document's own workload, for real.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use nofrag_lab::workload::{self, Advice, Ended, Scale, ThpFioOptions, WorkloadPlan};
use nofrag_show::{Look, Schema, text_for};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Status;
use crate::output::{print_result, tell};
use crate::run::Bar;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(clap::Subcommand)]
enum Workload {
    /// Files of 64 KiB are written and read while memory is touched, huge page by huge page, and timed
    #[command(name = "thpfioscale")]
    ThpFioScale(ThpFioArgs),
}

const AFTER_HELP: &str = "\
The workload of \"Fragmentation avoidance improvements\" (Gorman 2018), on the running kernel. Writers
fill files until they outgrow memory (150 %); readers then read random blocks of them; meanwhile
threads touch half of what they map (75 % of node 0), unit by unit, and time each. By default all
this is measured by an eighth of the available memory, at most 1 GiB, so that no machine suffers;
memory fragments only with --scale full, which takes minutes and most of memory.

Needs no privileges. Files are written to a new folder below DIR, which is removed again, also on
Ctrl-C; after kill -9 the next run of the same user below DIR removes it first. The command refuses to
take more of the disk than --disk-percent, and to touch memory that is not available. Nothing else is
changed.

Examples:
  nofrag workload thpfioscale --dir /var/tmp --dry-run      says what it would do
  nofrag workload thpfioscale --dir /var/tmp                half a minute, up to 1.5 GiB of files
  nofrag record -- nofrag workload thpfioscale --dir /var/tmp/x
                                                            with the events of external fragmentation
  nofrag workload thpfioscale --dir /data --scale full      as the document has it
  nofrag workload thpfioscale --dir /data --memory-mib 4096 --huge default --json

Exit status:
  0  done; also when --seconds ended it
  1  ended early: interrupted, or too little memory was available
  2  bad use, refused, or something could not be read or written";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
struct ThpFioArgs {
    /// Write the files below DIR, on a disk; DIR is made, and removed again, if it is missing
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// The memory by which the sizes are measured
    #[arg(long, value_enum, default_value_t = ScaleName::Small)]
    scale: ScaleName,

    /// Measure the sizes by N MiB of memory instead
    #[arg(long, value_name = "N")]
    memory_mib: Option<u64>,

    /// Files, in percent of that memory
    #[arg(long, value_name = "P", default_value_t = 150)]
    files_percent: u32,

    /// Mapped memory, in percent of that of node 0; half of it is touched
    #[arg(long, value_name = "P", default_value_t = 75)]
    mapped_percent: u32,

    /// Threads that write, then read
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_threads)]
    threads: usize,

    /// Threads that touch memory; by the document's rule without it: (CPUs of a node - 4) / 4, at least 1
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    thp_threads: Option<usize>,

    /// Advice to the kernel about the touched memory
    #[arg(long, value_enum, default_value_t = HugeName::Madvise)]
    huge: HugeName,

    /// End the phases after S seconds at the latest (writing out and removing files take as long as the disk does); 50
    /// without it, and no limit with --scale full
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Share of the disk's free space that the files may take, in percent
    #[arg(long, value_name = "P", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=95))]
    disk_percent: u32,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON for machines: one object, schema nofrag.workload.thpfioscale
    #[arg(long)]
    json: bool,
}

/// The memory by which sizes are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ScaleName {
    /// An eighth of the available memory, at most 1 GiB
    Small,
    /// All memory, as the document has it
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum HugeName {
    /// MADV_HUGEPAGE
    Madvise,
    /// Nothing: the host's setting decides
    Default,
    /// MADV_NOHUGEPAGE
    Never,
}

/// The most threads: more than this are a mistake.
const MOST_THREADS: usize = 1024;

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=MOST_THREADS).contains(&threads) => Ok(threads),
        _ => Err(format!("not a number from 1 to {MOST_THREADS}")),
    }
}

/// The limit of the phases if none is given, in seconds.
const DEFAULT_SECONDS: u64 = 50;

impl From<&ThpFioArgs> for ThpFioOptions {
    fn from(args: &ThpFioArgs) -> ThpFioOptions {
        let (scale, seconds) = match args.scale {
            ScaleName::Small => (Scale::Small, args.seconds.or(Some(DEFAULT_SECONDS))),
            ScaleName::Full => (Scale::Full, args.seconds),
        };
        ThpFioOptions {
            dir: args.dir.clone(),
            scale,
            memory_mib: args.memory_mib,
            files_percent: args.files_percent,
            mapped_percent: args.mapped_percent,
            threads: args.threads,
            thp_threads: args.thp_threads,
            advice: match args.huge {
                HugeName::Madvise => Advice::Madvise,
                HugeName::Default => Advice::Default,
                HugeName::Never => Advice::Never,
            },
            seconds,
            seed: args.seed,
            disk_percent: args.disk_percent,
        }
    }
}

pub(crate) const PLAN_SCHEMA: Schema =
    Schema { name: "nofrag.workload.thpfioscale-plan", version: 1 };
pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.workload.thpfioscale", version: 1 };

/// Runs the workload that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let Workload::ThpFioScale(args) = &args.workload;
    if !args.dry_run {
        // Before the disk is looked at: it may have taken the room.
        workload::remove_left_behind(&args.dir).iter().for_each(|line| tell(&format!("{line}\n")));
    }
    let plan = workload::plan(&ThpFioOptions::from(args)).context("refused")?;
    if args.dry_run {
        show_plan(&plan, args.json.then_some(PLAN_SCHEMA))?;
        return Ok(Status::Done);
    }
    if !args.json {
        show_plan(&plan, None)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot catch signals, and so could not clean up after one")?;
    }
    let outcome = workload::run(&plan, &stop, &Bar::default())?;
    let text = || text_for(&workload::sections(&outcome), Look::of_report());
    print_result(args.json.then_some(SCHEMA), &outcome, text)?;
    Ok(match outcome.ended {
        Ended::Complete | Ended::TimeUp => Status::Done,
        Ended::Interrupted | Ended::MemoryLow => Status::EndedEarly,
    })
}

fn show_plan(plan: &WorkloadPlan, asked: Option<Schema>) -> Result<()> {
    print_result(asked, plan, || text_for(&workload::sentences(plan), Look::of_report()))
}
