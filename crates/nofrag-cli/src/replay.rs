//! `nofrag replay`: a recording under other policies.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use nofrag::page::FragmentationPolicy;
use nofrag_lab::pages;
use nofrag_lab::replay::{self, Input, Question, ReplayOptions};
use nofrag_show::{Look, Schema, screen_for, text_for};

use crate::offer::Offer;
use crate::output::print_result;
use crate::progress::Events;
use crate::{Status, report};

const AFTER_HELP: &str = "\
The requests stay as they were recorded, and each policy serves them from the
snapshot in the recording on; only where a huge page is refused, single pages
are asked for in its place. What no event tells is drawn: each policy runs under
several start values, and figures are the middle with the least and the most.
The first table says which questions this recording can answer: there a replay
under the recorded kernel's own rules comes to what that kernel did. What others
would do is confirmed by no kernel, unless --against names one that was recorded
under the same workload.

Examples:
  nofrag replay                                        the recording that comes with nofrag
  nofrag replay FILE                                   five policies, the recorded size of memory
  nofrag replay FILE --policy linux-6.1,nofrag         two of them
  nofrag replay FILE --memory 75,100                   what a smaller machine would have done
  nofrag replay FILE --set linux-6.1:boost=0/15000     a setting, off and on
  nofrag replay FILE --set linux-6.1:scale=10/100/1000  what it does in its course, as a curve
  nofrag replay FILE --repeats-of FILE2,FILE3          off by no more than the kernel
  nofrag replay FILE --against OTHER                   what is foretold of OTHER's kernel
  nofrag replay FILE --report replay.html              charts over time, for a browser
  nofrag replay FILE --json > replay.json              for machines, and for `nofrag compare`

Exit status:
  0  replayed
  1  replayed, but the recording is not whole: cut, damaged, or with events lost
  2  bad use, or the recording could not be read";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// A recording, a folder of raw pages, a trace.dat, or the text of ftrace, trace-cmd or perf script
    /// [default: the recording that comes with nofrag]
    #[arg(value_name = "FILE", verbatim_doc_comment)]
    trace: Option<PathBuf>,

    /// Policies, comma-separated; `all` for every preset
    #[arg(
        long = "policy", value_name = "NAME", value_delimiter = ',',
        value_parser = Offer::policies(), hide_possible_values = true
    )]
    policies: Vec<String>,

    /// A policy with settings in place of the recorded host's; several values of one, separated by `/`, are a run
    /// each. May be given again. Without --policy the same policies run with the host's settings too.
    /// Settings: boost (watermark_boost_factor), scale (watermark_scale_factor), min_free_kbytes, proactiveness
    /// (compaction_proactiveness), extfrag_threshold
    #[arg(long = "set", value_name = "POLICY:NAME=VALUE[/VALUE..],..", value_parser = Question::parse)]
    questions: Vec<Question>,

    /// Sizes of memory in percent of the recorded host's, comma-separated
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percent, default_value = "100")]
    memory: Vec<u32>,

    /// Seed of all random choices; the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Start values, from --seed on: each policy runs under all of them, and figures are ranges
    #[arg(
        long, value_name = "N", default_value_t = replay::REPEATS,
        value_parser = clap::value_parser!(u64).range(1..=100)
    )]
    repeats: u64,

    /// Other recordings of the same kernel under the same workload, comma-separated: a replay may be off by as much as
    /// they differ, in place of 15 percent or a factor of two
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    repeats_of: Vec<PathBuf>,

    /// Other recordings of the same workload on a machine of the same size, under another kernel or other settings,
    /// comma-separated: what their kernels did beside what this replay foretells of them
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    against: Vec<PathBuf>,

    /// Runs at a time; one per CPU without it
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Samples over time
    #[arg(long, value_name = "N", default_value_t = 72, value_parser = clap::value_parser!(u16).range(2..))]
    samples: u16,

    /// Show everything: costs, orders, the course, each figure beside the kernel's, all cautions, in place of the
    /// answer on one screen
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object, schema nofrag.replay
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    report: report::ReportFile,
}

/// Parses a size in percent, with or without its sign.
fn percent(text: &str) -> Result<u32, String> {
    let digits = text.trim().trim_end_matches('%').trim_end();
    match digits.parse() {
        Ok(percent @ 1..=1000) => Ok(percent),
        _ => Err("a size is a percentage of the recorded host's memory, from 1 to 1000".to_owned()),
    }
}

impl Args {
    fn options(&self) -> Result<ReplayOptions> {
        let policies = match self.policies.as_slice() {
            [] if !self.questions.is_empty() => {
                self.questions.iter().map(|asked| asked.preset().name.to_owned()).collect()
            }
            // The recorded kernel's own rules run in any case, and so do those of the others.
            [] if !self.against.is_empty() => Vec::new(),
            [] => replay::DEFAULT_POLICIES.map(str::to_owned).to_vec(),
            [all] if all == "all" => {
                FragmentationPolicy::PRESETS.iter().map(|preset| preset.name.to_owned()).collect()
            }
            named => named.to_vec(),
        };
        for name in &policies {
            FragmentationPolicy::preset(name).map_err(|unknown| anyhow!("{unknown}"))?;
        }
        Ok(ReplayOptions {
            trace: self.trace.clone().map_or(Input::Shipped, Input::File),
            policies,
            questions: self.questions.clone(),
            memory: self.memory.clone(),
            seed: self.seed,
            repeats: self.repeats,
            repeats_of: self.repeats_of.clone(),
            against: self.against.clone(),
            samples: usize::from(self.samples),
            threads: self.threads.unwrap_or(0),
        })
    }
}

/// The schema of the `ReplayReport` that `--json` writes; `nofrag compare` reads it again.
pub(crate) const SCHEMA: Schema = Schema::REPLAY;

/// The way to what an answer leaves out.
const REST: &str = "--all shows costs, orders, each figure beside the kernel's and all cautions; --report FILE.html \
                    draws the course.";

/// Replays the trace that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let options = args.options()?;
    let wanted = args.report.begin()?;
    let bar = Events::of(None);
    let report = replay::replay(&options, &|passed| bar.show(passed));
    bar.end();
    let report = report?;
    let look = Look::of_report();
    print_result(args.json.then_some(SCHEMA), &report, || match args.all {
        true => text_for(&replay::sections(&report), look),
        false => screen_for(&replay::answer(&report), REST, look),
    })?;
    wanted.write(|origin| pages::replay(&report, origin))?;
    Ok(Status::of(report.recorded.loss()))
}
