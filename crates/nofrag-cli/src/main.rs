//! The `nofrag` command: the only crate that prints.
//!
//! Each subcommand is a module with an `Args` that clap fills and an `execute` that returns the exit status. The
//! results come from the library crates as values; the modules turn them into tables for people or JSON for machines.

mod caller;
mod compare;
mod completions;
mod explain;
mod export;
mod help;
mod host;
mod man;
mod offer;
mod output;
mod preflight;
mod progress;
mod record;
mod replay;
mod report;
mod run;
mod schema;
mod stop;
mod sweep;
mod top;
mod trace;
mod watching;
mod workload;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use nofrag_host::budget::Budget;
use nofrag_host::trace::Loss;
use nofrag_show::Look;

/// The end of the command, as the help text lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Everything asked for was done.
    Done,
    /// `run --check`: an exact claim did not hold, or the run was not complete.
    CheckFailed,
    /// `host`: something needs attention; `record`: events were lost, or the command failed.
    Warned,
    /// `workload`: it did not come to its end.
    EndedEarly,
    /// `compare`: a figure got worse.
    GotWorse,
    /// Shown, but what was read is not whole: cut, damaged, or with events lost; `sweep`: tasks have no result.
    NotWhole,
}

impl Status {
    /// Returns the status of what was shown of a trace with these losses.
    fn of(loss: Loss) -> Status {
        if loss == Loss::default() { Status::Done } else { Status::NotWhole }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        match status {
            Status::Done => ExitCode::SUCCESS,
            Status::CheckFailed
            | Status::Warned
            | Status::EndedEarly
            | Status::GotWorse
            | Status::NotWhole => ExitCode::from(1),
        }
    }
}

/// Exit status for bad use, or a file that could not be read or written.
const EXIT_BAD_USE: u8 = 2;

/// Exit status in the help of the command and of `run`.
pub(crate) const EXIT_STATUS_HELP: &str = "\
Exit status:
  0  done
  1  run --check: an exact claim did not hold, or rows or claims are missing; host: something needs
     attention; preflight: not now; record: events were lost, or the command failed; workload: ended
     early; compare: something got worse; sweep: tasks have no result; explain, replay, compare, trace:
     what was read is not whole
  2  bad use, or something could not be read or written";

/// The text for a user who types `nofrag` alone.
const TRY: &str = "\
Why memory is free and still cannot be used. Try:

  nofrag host                what is fragmented on this host, and what would still succeed
  dmesg | nofrag explain -   why a request for memory failed, and what to do
  nofrag top                 watch it live; q ends it
  nofrag replay              a real kernel's requests, under the rules of other kernels

nofrag --help lists all commands.
";

/// The Linux kernel's fragmentation-avoiding allocators outside the kernel.
#[derive(Parser)]
#[command(name = "nofrag", version, max_term_width = 100, after_help = EXIT_STATUS_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Memory that reading a recording or a trace may take; by default 64 times the file, 1 at least, and no more than
    /// a quarter of what is available
    #[arg(long, global = true, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    budget: Option<u64>,
}

#[derive(Subcommand)]
enum Command {
    /// Replay a published comparison: every design, claim beside measurement
    Run(run::Args),
    /// Look at this host: what is fragmented, and what would still succeed
    Host(host::Args),
    /// Ask whether so many huge pages or blocks can be had, before a program needs them
    Preflight(preflight::Args),
    /// Record what the running kernel does with pages, vmalloc areas and mappings
    Record(record::Args),
    /// Say why memory could not be had: a report of the kernel log, a snapshot or a recording
    Explain(explain::Args),
    /// Replay a real kernel's requests under other policies and sizes of memory
    Replay(replay::Args),
    /// Replay many recordings under many policies, by as many processes as there are
    Sweep(sweep::Args),
    /// Set two replays, two recordings or two snapshots beside each other
    Compare(compare::Args),
    /// Watch this host: free blocks, what reclaim and compaction do, vmalloc, areas of processes
    Top(top::Args),
    /// Export what is seen of this host as metrics for Prometheus
    Export(export::Args),
    /// Run a document's own workload on this kernel
    Workload(workload::Args),
    /// Look into a trace, or write it in another form
    Trace(trace::Args),
    /// Print the JSON Schema of what a command prints with --json
    Schema(schema::Args),
    /// Print the script with which a shell completes this command line
    Completions(completions::Args),
    /// Write the manual, a page for each command
    Man(man::Args),
}

fn main() -> ExitCode {
    // Not a command for users: `record` starts it, and it is neither listed nor completed.
    if std::env::args_os().nth(1).is_some_and(|word| word == record::KEEPER) {
        return ended(record::keep());
    }
    if std::env::args_os().len() < 2 {
        output::tell(TRY);
        return ExitCode::from(EXIT_BAD_USE);
    }
    let cli = help::fitted(Cli::command(), Look::of_report()).get_matches();
    let cli = Cli::from_arg_matches(&cli).unwrap_or_else(|error| error.exit());
    cli.budget.into_iter().for_each(|gib| Budget::allow(gib << 30));
    let outcome = match cli.command {
        Command::Run(args) => run::execute(&args),
        Command::Host(args) => host::execute(&args),
        Command::Preflight(args) => preflight::execute(&args),
        Command::Record(args) => record::execute(&args),
        Command::Explain(args) => explain::execute(&args),
        Command::Replay(args) => replay::execute(&args),
        Command::Sweep(args) => sweep::execute(&args),
        Command::Compare(args) => compare::execute(&args),
        Command::Top(args) => top::execute(&args),
        Command::Export(args) => export::execute(&args),
        Command::Workload(args) => workload::execute(&args),
        Command::Trace(args) => trace::execute(&args),
        Command::Schema(args) => schema::execute(&args),
        Command::Completions(args) => completions::execute(&args),
        Command::Man(args) => man::execute(&args),
    };
    ended(outcome)
}

fn ended(outcome: anyhow::Result<Status>) -> ExitCode {
    match outcome {
        Ok(status) => status.into(),
        Err(error) => {
            output::tell(&format!("nofrag: {error:#}\n"));
            ExitCode::from(EXIT_BAD_USE)
        }
    }
}
