//! `nofrag sweep`: many recordings under many policies.

use std::path::PathBuf;

use anyhow::Result;
use nofrag_lab::sweep::{self, Merged, Plan, Shard, Swept};
use nofrag_show::{Schema, bytes_text, count};

use crate::output::{print, print_document, tell};
use crate::{Status, run};

const AFTER_HELP: &str = "\
A plan is a file in TOML: recordings, each under every policy, setting, size of
memory and seed, and scenarios likewise. Each combination is a task, and its
result a file in the folder, named after everything that decides on it: the
recording's bytes, policy, settings, seed, version of nofrag. A result is written
whole or not at all, and what is there is not made again: a sweep that was killed
is run again. Shards may share the folder.

  [[replay]]
  recordings = [\"fleet/*.nofrag\"]
  policies = [\"linux-6.1\", \"nofrag\"]
  settings = [\"linux-6.1:boost=0/15000\"]
  memory = [75, 100]
  repeats = 5

  [[scenario]]
  name = \"mmap-holes-2005\"

Examples:
  nofrag sweep plan.toml -o out              what is missing in out, on all CPUs
  nofrag sweep plan.toml --shard 3/8 -o out  the third of eight parts of it
  nofrag sweep merge plan.toml -o all.jsonl out  all results in one file, a line each

Exit status:
  0  all tasks of the shard have their results
  1  some have none: a recording could not be read, or needs more memory
  2  bad use, or something could not be read or written";

const AFTER_MERGE: &str = "\
Lines stand in the order of the plan. Each has the name of its recording, the
task, and either its outcome or why it failed. Shards of any number give the same
bytes as one process. Nothing is written while a result is missing.

Examples:
  nofrag sweep merge plan.toml -o all.jsonl out
  nofrag sweep merge plan.toml -o all.jsonl out-1 out-2 out-3
  duckdb -c \"from 'all.jsonl' select name, task.policy, outcome.counts.moved\"

Exit status:
  0  merged
  2  bad use, results are missing, or something could not be read or written";

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
    after_help = AFTER_HELP
)]
pub(crate) struct Args {
    #[command(subcommand)]
    then: Option<Then>,

    #[command(flatten)]
    shard: Option<ShardArgs>,
}

#[derive(clap::Subcommand)]
enum Then {
    /// Write the results of all shards into one file, in the order of the plan
    #[command(after_help = AFTER_MERGE)]
    Merge(MergeArgs),
}

#[derive(clap::Args)]
struct ShardArgs {
    /// The plan; names of recordings in it are relative to its folder
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// The folder of results
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    out: PathBuf,

    /// The part of the plan to do, such as 3/8; without it all of it
    #[arg(long, value_name = "N/OF")]
    shard: Option<Shard>,

    /// Tasks at a time; one per CPU without it
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print JSON for machines: one object, schema nofrag.sweep
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct MergeArgs {
    /// The plan of the sweep
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// The folders of results
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,

    /// The file to write, JSON lines
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    out: PathBuf,

    /// Print JSON for machines: one object, schema nofrag.sweep.merge
    #[arg(long)]
    json: bool,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.sweep", version: 1 };
pub(crate) const MERGE_SCHEMA: Schema = Schema { name: "nofrag.sweep.merge", version: 1 };

/// Does a shard, or merges what shards have done.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    match (&args.then, &args.shard) {
        (Some(Then::Merge(args)), _) => merge(args),
        (None, Some(args)) => shard(args),
        (None, None) => unreachable!("clap asks for a plan"),
    }
}

fn shard(args: &ShardArgs) -> Result<Status> {
    let plan = Plan::read(&args.plan)?;
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let bar = run::Bar::default();
    let swept = sweep::sweep(&plan, shard, &args.out, args.threads.unwrap_or(0), &bar)?;
    for why in &swept.not_done {
        tell(&format!("nofrag: {why}\n"));
    }
    let lacking = swept.lacking();
    if args.json {
        print_document(SCHEMA, &swept)?;
    } else {
        let Swept { tasks, kept, made, .. } = swept;
        let [tasks, kept, made, lacking] = [tasks, kept, made, lacking].map(|n| count(n as f64));
        print(&format!(
            "{}: {tasks} tasks, {made} done now, {kept} done before, {lacking} not done\n",
            args.out.display()
        ))?;
    }
    Ok(if lacking == 0 { Status::Done } else { Status::NotWhole })
}

fn merge(args: &MergeArgs) -> Result<Status> {
    let plan = Plan::read(&args.plan)?;
    let merged = sweep::merge(&plan, &args.folders, &args.out)?;
    if args.json {
        print_document(MERGE_SCHEMA, &merged)?;
    } else {
        let Merged { lines, bytes, failed, sha256 } = merged;
        print(&format!(
            "{}: {} lines, {}, {} of failed tasks\nSHA-256 {sha256}\n",
            args.out.display(),
            count(lines as f64),
            bytes_text(bytes),
            count(failed as f64),
        ))?;
    }
    Ok(Status::Done)
}
