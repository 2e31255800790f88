//! Side by side: nofrag's range allocator against published crates and the standard library, its small mappings against
//! Linux's rules for them, its address spaces against Linux's design and what others write, and its page frames against
//! published crates, in one run.

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use nofrag_bench::contest::{Contestant, Effort, Run};
use nofrag_bench::origin::Origin;
use nofrag_bench::record::{Group, Records};
use nofrag_bench::report::Report;
use nofrag_bench::{
    areas, blocks, footprint, latency, low_holes, packing, pages, patterns, peers, roster, speed,
    targets, verify, worst,
};
use std::path::PathBuf;
use std::thread;

/// Compares nofrag's range allocator with published crates and the standard library, its small mappings with Linux's
/// rules for them (--only blocks), and its address spaces with Linux's design of 3.8 to 6.0 in this language, with the
/// same job done by two structures, and with published crates (--only areas), and its page frames with its own image of
/// Linux's rules and with published crates (--only pages), and, built with the feature heaps, its arena with the
/// allocators of programs (--only heaps), and, built with the feature gpu, its ranges in memory of a GPU with what the
/// driver, PyTorch and CuPy do (--only gpu).
///
/// Everyone performs the same operations in interleaved rounds, pinned to one CPU where that is allowed. Exit status: 0
/// when the run is complete, whatever the figures; 1 when it could not be carried out.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// A first look in about two minutes: fewer rounds and seeds, shorter time boxes.
    #[arg(long)]
    quick: bool,
    /// Only these tables (can be given several times).
    #[arg(long, value_name = "GROUP", value_enum)]
    only: Vec<Group>,
    /// Only contestants whose name contains this text (can be given several times); offset-allocator always takes part,
    /// and so does everyone in blocks, areas and pages.
    #[arg(long, value_name = "TEXT")]
    contestant: Vec<String>,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    json: bool,
    /// Save README.md, raw.jsonl and summary.txt in a new folder, DIR/compare/DATE-TABLES.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// The seed of all operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Stack of the thread that compares: the largest bitmap peer is built on it before it is boxed.
const STACK_BYTES: usize = 64 << 20;

fn main() -> Result<()> {
    let options = Options::parse();
    let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(&options));
    let worker = worker.context("no thread for the comparison")?;
    match worker.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn run(options: &Options) -> Result<()> {
    let effort = if options.quick { Effort::quick() } else { Effort::full() };
    let mut origin = Origin::here(options.seed, if options.quick { "quick" } else { "full" });
    let records = measure(options, effort, &origin.allowed);
    origin.finish();
    let targets = targets::all(&records);
    let report = Report { origin, targets, records };
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{}", report.summary());
    }
    if let Some(root) = &options.save {
        let folder = report
            .save(root, &tables(options))
            .with_context(|| format!("cannot save in {root:?}"))?;
        eprintln!("saved in {}", folder.display());
    }
    Ok(())
}

/// Returns the name of a saved result: the tables that were made.
fn tables(options: &Options) -> String {
    let mut words: Vec<String> = options
        .only
        .iter()
        .filter_map(|group| Some(group.to_possible_value()?.get_name().to_owned()))
        .collect();
    if words.is_empty() {
        words.push("all".to_owned());
    }
    words.extend(options.quick.then(|| "quick".to_owned()));
    words.join("-")
}

/// Returns the contestants that take part: all that were asked for, and offset-allocator, to which ratios refer.
fn chosen(options: &Options) -> Vec<Box<dyn Contestant>> {
    let mut all = roster::contestants();
    all.retain(|contestant| {
        let name = contestant.name();
        options.contestant.is_empty()
            || name == peers::OFFSET
            || options.contestant.iter().any(|text| name.contains(text.as_str()))
    });
    all
}

fn measure(options: &Options, effort: Effort, cpus: &[usize]) -> Records {
    let mut contestants = chosen(options);
    let bar = progress_bar();
    let progress = |group: Group, contestant: &str| {
        bar.set_message(format!("{}: {contestant}", format!("{group:?}").to_lowercase()));
    };
    let is_wanted = |group| options.only.is_empty() || options.only.contains(&group);
    let has_own = |group: Group| group.has_own_contestants();
    let (records, seed) = (Records::default(), options.seed);
    let mut run = Run { records, effort, seed, cpus, progress: &progress };
    let wanted = || Group::value_variants().iter().copied().filter(|&group| is_wanted(group));
    if wanted().any(|group| !has_own(group)) {
        verify::run_all(&mut run, &contestants);
        contestants.retain(|who| run.records.is_right(verify::WORKLOAD, who.name()));
    }
    for group in wanted() {
        let run = &mut run;
        match group {
            Group::Verify => {}
            Group::Speed => speed::run(run, &contestants),
            Group::LowHoles => low_holes::run(run, &contestants),
            Group::Patterns => patterns::run(run, &contestants),
            Group::Worst => worst::run(run, &contestants),
            Group::Latency => latency::run(run, &contestants),
            Group::Metadata => footprint::run(run, &contestants),
            Group::Packing => packing::run_packing(run, &contestants),
            Group::Shrink => packing::run_shrink(run, &contestants),
            Group::Blocks => blocks::run(run),
            Group::Areas => areas::run(run),
            Group::Pages => pages::run(run),
            #[cfg(feature = "heaps")]
            Group::Heaps => nofrag_bench::heaps::run(run),
            #[cfg(feature = "gpu")]
            Group::Gpu => nofrag_bench::gpu::run(run),
        }
    }
    bar.finish_and_clear();
    run.records
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}")
        .expect("the template is well-formed");
    bar.set_style(style);
    // A ticking thread would disturb what is timed; the spinner moves when a contestant's turn begins.
    bar.disable_steady_tick();
    bar.set_draw_target(indicatif::ProgressDrawTarget::stderr_with_hz(4));
    bar.tick();
    bar
}
