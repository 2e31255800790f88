//! `nofrag run`: scenarios by name.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::builder::TypedValueParser as _;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use nofrag_lab::pages::{self, ScenarioResult};
use nofrag_lab::saved::{self, Saved};
use nofrag_lab::scenario::{Extent, Memory, ProgramInfo, ThpTouch};
use nofrag_lab::shortfall;
use nofrag_lab::summary::{self, Claims};
use nofrag_lab::{Mode, Options, Progress, Report, Scenario, scenarios};
use nofrag_show::page::Page;
use nofrag_show::{Look, Origin, Schema, Section, screen_for, text_for};
use serde::Serialize;

use crate::offer::Offer;
use crate::output::{print, print_document};
use crate::{Status, report};

#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Args {
    /// A scenario's name, or `all`; without it, the scenarios and their programs are listed
    #[arg(value_parser = Offer::scenarios(), hide_possible_values = true)]
    scenario: Option<String>,

    /// compare, performance, shuffle, smoke, stress or soak
    #[arg(
        long, default_value = "compare", hide_possible_values = true,
        value_parser = Offer::modes().try_map(|name| name.parse::<Mode>())
    )]
    mode: Mode,

    /// Compare only these designs (comma-separated, or given several times)
    #[arg(long = "design", value_name = "NAME", value_delimiter = ',')]
    designs: Vec<String>,

    /// Run only these programs: names, comma-separated, or the sum of their bits
    #[arg(long, value_name = "PROGRAMS")]
    mask: Option<String>,

    /// Repetitions of each program
    #[arg(long, value_name = "N")]
    repeat: Option<usize>,

    /// Loops of one repetition
    #[arg(long, value_name = "N")]
    loops: Option<u64>,

    /// Pages of a fixed-size area
    #[arg(long, value_name = "N")]
    pages: Option<u64>,

    /// Threads of the parallel programs
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Seed of all random choices; the same seed gives the same counts
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Memory of the simulated machine in GiB; several sizes, comma-separated, are compared
    #[arg(long, value_name = "GIB", value_delimiter = ',')]
    memory: Vec<u64>,

    /// Share of a node that the threads for huge pages touch, in percent: 37.5 (as the document's program does) or 75
    /// (as its words say)
    #[arg(long, value_name = "PERCENT")]
    thp_touch: Option<ThpTouch>,

    /// Put real memory behind the frames: mapped, written, moved and timed (extfrag-2018)
    #[arg(long)]
    real: bool,

    /// Recorded kernels: a folder of stretches, or one alone (frames; without it, data/kernel-states in this folder or
    /// one above); a folder of recordings, or one alone (vmap-live)
    #[arg(long, value_name = "PATH")]
    states: Option<PathBuf>,

    /// Keep the recordings of the running kernel in DIR, for --states, here or on another machine (vmap-live)
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Minutes that --mode soak goes on (real-memory)
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,

    /// Run everything, not only the parts that end in seconds
    #[arg(long)]
    full: bool,

    /// Exit with 1 if an exact claim does not hold, or if a default run lacks a row or a claim; lists every claim of a
    /// scenario, and with --all of all
    #[arg(long)]
    check: bool,

    /// Show the whole result: every table, picture and note, in place of the answer on one screen
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object, schema nofrag.run
    #[arg(long)]
    json: bool,

    /// Save each scenario's result to a new folder, DIR/SCENARIO/DATE-WHAT
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,

    #[command(flatten)]
    report: report::ReportFile,
}

impl Args {
    /// Returns the end of a saved result's name, which follows its scenario and day.
    fn what(&self) -> String {
        let mode = (self.mode != Mode::Compare).then(|| self.mode.into_str());
        let real = self.real.then_some("real");
        let full = self.full.then_some("full");
        let part = self.mask.is_some().then_some("part");
        let words: Vec<&str> = [mode, real, full, part].into_iter().flatten().collect();
        if words.is_empty() { "default".to_owned() } else { words.join("-") }
    }

    fn claims(&self) -> Claims {
        if self.check { Claims::Listed } else { Claims::Counted }
    }

    fn options(&self) -> Options {
        Options {
            mode: self.mode,
            extent: if self.full { Extent::Full } else { Extent::Subset },
            designs: self.designs.clone(),
            mask: self.mask.clone(),
            repeat: self.repeat,
            loops: self.loops,
            pages: self.pages,
            threads: self.threads,
            seed: self.seed,
            memory: self.memory.clone(),
            thp_touch: self.thp_touch,
            memory_is: if self.real { Memory::Real } else { Memory::Numbers },
            minutes: self.minutes,
            states: self.states.clone(),
            keep: self.keep.clone(),
        }
    }
}

/// Returns the text that follows the options.
fn help() -> String {
    let examples = [
        ("run all --check", "every scenario, in what ends soon, and its claims"),
        ("run all --report all.html", "the same with charts, for a browser"),
        ("run extfrag-2018", "pages: 4 GiB, two seeds, the designs that tell most; half a minute"),
        (
            "run extfrag-2018 --full --save results",
            "4 and 8 GiB, five seeds, all that stands below",
        ),
        ("run extfrag-2018 --mask s-madv --memory 8 --thp-touch 75", "one program, whole"),
        ("run extfrag-2018 --mask stall-curve --repeat 1", "settings of patch 5, one seed"),
        ("run extfrag-2018 --real", "the same phases on 1 GiB of real memory: fault latencies"),
        ("run frames --check", "real kernels, from their exact states: the same frames?"),
        ("run frames --states DIR --mask linux-6.1-kswapd", "one stretch of a folder of your own"),
        (
            "run vmap-live --full --keep DIR",
            "as root: vmalloc areas of this kernel, recordings kept",
        ),
        ("run vmap-live --states DIR", "the model beside recordings of another machine"),
        ("run real-memory --check", "what real memory costs, and what the arena makes of it"),
        (
            "run real-memory --mode soak --minutes 60 --save results",
            "an hour of random load, all contents verified, growth watched",
        ),
    ];
    let lines = examples.map(|(command, what)| format!("  nofrag {command}\n      {what}\n"));
    format!("Examples:\n{}\n{EXTFRAG_HELP}\n\n{}", lines.concat(), crate::EXIT_STATUS_HELP)
}

/// The part of the help about the combinations in a full run of the widest scenario.
const EXTFRAG_HELP: &str = "\
extfrag-2018: --memory lists sizes, --repeat is the number of seeds from --seed on, --threads how
many runs go at a time. With --full, or named by --mask: every design with the calibrated mix on one
node; ten designs on two nodes, and with every other mix on one; curves with at most three seeds;
two nodes, defrag = always, curves and mixes-madv with the first size only.";

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.run", version: 1 };

/// A scenario's programs under its designs, with claims beside measurements.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    origin: &'a Origin,
    reports: Vec<&'a Report>,
}

/// The way to what the verdict on all scenarios leaves out.
const ONE: &str =
    "nofrag run NAME shows one scenario, --all the whole result, --report FILE.html draws it.";

/// Runs the scenarios that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let Some(name) = &args.scenario else {
        print(&listing())?;
        return Ok(Status::Done);
    };
    let wanted = args.report.begin()?;
    let origin = report::origin();
    let options = args.options();
    let chosen = chosen(name, args, &options)?;
    let (mut results, mut status) = (Vec::new(), Status::Done);
    for (number, scenario) in chosen.iter().enumerate() {
        let bar = Bar::default();
        if name == "all" {
            bar.0.set_prefix(format!("{} of {} scenarios, ", number + 1, chosen.len()));
        }
        let report = scenario.run(&options, &bar)?;
        if args.check && checked(scenario, &options, &report) == Status::CheckFailed {
            status = Status::CheckFailed;
        }
        if !args.json {
            print(&shown(args, scenario, &report, &origin))?;
        }
        let summary = summary::summary(scenario, &report, &origin, args.claims());
        results.push(Saved { report, summary });
    }
    let reports = results.iter().map(|result| &result.report).collect();
    if args.json {
        print_document(SCHEMA, &Document { origin: &origin, reports })?;
    } else if name == "all" {
        print(&format!("\n{}", screen_for(&[summary::total(&reports)], ONE, Look::of_report())))?;
    }
    if let Some(root) = &args.save {
        for result in &results {
            let folder = saved::save(root, &origin, &args.what(), result)
                .with_context(|| format!("cannot save the result below {}", root.display()))?;
            eprintln!("saved to {}", folder.display());
        }
    }
    wanted.write(|_| page(&results, &origin))?;
    Ok(status)
}

/// Returns the text of one report: a line among several, the answer of one alone, or the whole.
fn shown(args: &Args, scenario: &Scenario, report: &Report, origin: &Origin) -> String {
    let look = Look::of_report();
    if args.all {
        return summary::summary_for(scenario, report, origin, args.claims(), look);
    }
    if args.scenario.as_deref() == Some("all") {
        return look.hanging("", 2, &summary::verdict(report));
    }
    let answer = summary::answer_for(scenario, report, origin, &args.designs, look);
    match args.claims() {
        Claims::Counted => answer,
        Claims::Listed => {
            let claims = Section::Table(summary::oracles(&report.oracles));
            format!("{answer}\n{}", text_for(&[claims], look))
        }
    }
}

/// Prints on standard error why a run fails its check, if it does.
fn checked(scenario: &Scenario, options: &Options, report: &Report) -> Status {
    let shortfalls = shortfall::shortfalls(scenario, options, report);
    for shortfall in &shortfalls {
        eprintln!("check failed: {}: {shortfall}", scenario.name);
    }
    if shortfalls.is_empty() { Status::Done } else { Status::CheckFailed }
}

/// Returns the scenarios that `name` means; of `all`, what cannot be run here is left out and named on standard error.
fn chosen(name: &str, args: &Args, options: &Options) -> Result<Vec<&'static Scenario>> {
    if name == "all" {
        let can = |scenario: &&Scenario| match lacking(scenario, args, options) {
            Some(why) => {
                eprintln!("left out: {}{why}", scenario.name);
                false
            }
            None => true,
        };
        return Ok(scenarios().iter().copied().filter(can).collect());
    }
    let found = scenarios().iter().find(|scenario| scenario.name == name);
    let found = found.ok_or_else(|| {
        let names: Vec<&str> = scenarios().iter().map(|scenario| scenario.name).collect();
        anyhow!("there is no scenario {name:?}; there are: all, {}", names.join(", "))
    })?;
    ensure!(
        !args.real || found.special.memory.contains(&Memory::Real),
        "{name} has no --real: only extfrag-2018 has"
    );
    Ok(vec![*found])
}

/// Returns the reason why a scenario cannot be run here with these options, as the end of a sentence.
fn lacking(scenario: &Scenario, args: &Args, options: &Options) -> Option<String> {
    if !scenario.special.modes.contains(&args.mode) {
        return Some(format!(" has no mode {}", args.mode.into_str()));
    }
    if args.real && !scenario.special.memory.contains(&Memory::Real) {
        return Some(" has no --real".to_owned());
    }
    (scenario.special.missing)(options).map(|why| format!(": {why}"))
}

/// Lists all scenarios with their designs and programs.
fn listing() -> String {
    let mut text = String::from("nofrag run SCENARIO, or nofrag run all\n");
    for scenario in scenarios() {
        text.push_str(&format!("\n{}: {}\n", scenario.name, scenario.about));
        text.push_str(&format!("  document: {}\n", scenario.document));
        for (i, line) in designs(scenario).iter().enumerate() {
            text.push_str(&format!("  {:10}{line}\n", if i == 0 { "designs:" } else { "" }));
        }
        text.push_str("  programs (bit for --mask, name, one loop):\n");
        let programs = scenario.programs();
        let width = programs.iter().map(|program| program.name.len()).max().unwrap_or(0).max(19);
        for program in programs {
            let ProgramInfo { bit, name, body } = program;
            text.push_str(&format!("  {bit:>9}  {name:width$} {body}\n"));
        }
    }
    text
}

/// Lists the designs of a scenario, in lines.
fn designs(scenario: &Scenario) -> Vec<String> {
    const INDENT: usize = 12;
    let names: Vec<String> =
        scenario.designs.iter().map(|name| (scenario.special.shown)(name)).collect();
    nofrag_show::wrapped(&names.join(", "), nofrag_show::COLUMNS as usize - INDENT)
}

/// Returns the results as a page: a part for each, with the command for it alone.
fn page(results: &[Saved], origin: &Origin) -> Page {
    let scenario = |name: &str| scenarios().iter().find(|scenario| scenario.name == name);
    let commands: Vec<String> =
        results.iter().map(|result| report::command_for(&result.report.scenario)).collect();
    let parts: Vec<ScenarioResult<'_>> = results
        .iter()
        .zip(&commands)
        .filter_map(|(Saved { report, .. }, command)| {
            Some(ScenarioResult { scenario: *scenario(&report.scenario)?, report, command })
        })
        .collect();
    pages::run(&parts, origin)
}

/// A bar on standard error, if that is a terminal.
pub(crate) struct Bar(ProgressBar);

impl Default for Bar {
    fn default() -> Bar {
        Bar(ProgressBar::hidden())
    }
}

impl Progress for Bar {
    fn begin(&self, steps: u64) {
        let template = "{prefix}{bar:30} {pos}/{len} {elapsed}{left} {wide_msg}";
        let style = ProgressStyle::with_template(template).expect("the template is well-formed");
        let left = |state: &ProgressState, out: &mut dyn Write| {
            let left = left(state.pos(), state.len().unwrap_or(0), state.elapsed());
            // A bar that cannot be written is not shown.
            let _ = left.map(|left| write!(out, ", {} left", HumanDuration(left)));
        };
        self.0.set_style(style.with_key("left", left));
        self.0.reset_elapsed();
        self.0.set_length(steps);
        self.0.set_position(0);
        self.0.set_draw_target(indicatif::ProgressDrawTarget::stderr());
    }

    fn step(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }

    fn steps(&self, steps: u64, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(steps);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// Returns an estimate of the time that is left of a run, at the pace of the steps so far; `None` while they are too
/// few, as the first steps are often the longest.
fn left(done: u64, all: u64, elapsed: Duration) -> Option<Duration> {
    let share = done as f64 / all.max(1) as f64;
    (0.25..=1.0).contains(&share).then(|| elapsed.mul_f64((1.0 - share) / share))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use nofrag_lab::scenario::{Declaration, Special};
    use serde_json::{Value, json};

    use super::*;

    const DECLARED: &str = r#"
        name = "made-up"
        about = "a scenario for this test"
        document = "none"
        designs = ["new"]
        expected = { claims = 1, pairs = 1, rows = [{ programs = ["walk"], designs = ["new"] }] }
    "#;

    static MADE_UP: Scenario = Scenario {
        declared: LazyLock::new(|| Declaration::of(DECLARED)),
        run: |_, _| Ok(report(&json!({}))),
        present: |_| Vec::new(),
        special: Special::NONE,
    };

    /// Returns a good report with these of its parts replaced.
    fn report(spoiled: &Value) -> Report {
        let mut report = json!({
            "scenario": "made-up", "document": "none", "comparisons": [], "notes": [], "elapsed_s": 0.0,
            "settings": {
                "mode": "compare", "seed": 1, "repeats": 1, "loops": 1, "pages": 1, "threads": 1, "designs": []
            },
            "measurements": [{
                "program": "walk", "design": "new", "loops": 1, "unit": "ns", "tail": null, "counts": {},
                "time": { "median": 1.0, "min": 1.0, "max": 1.0, "samples": [1.0] }
            }],
            "oracles": [claim("exact", 1.0)]
        });
        for (part, value) in spoiled.as_object().unwrap() {
            report[part] = value.clone();
        }
        serde_json::from_value(report).unwrap()
    }

    /// Returns the claim that `measured` is 1.
    fn claim(kind: &str, measured: f64) -> Value {
        json!({
            "id": "one", "kind": kind, "claim": "is one", "measured": measured,
            "relation": { "equals": 1.0 }, "holds": measured == 1.0
        })
    }

    fn status_with(spoiled: Value) -> Status {
        checked(&MADE_UP, &Options::default(), &report(&spoiled))
    }

    /// A bar once began with 23 minutes for what took 33 seconds: its first step was a long one.
    #[test]
    fn no_estimate_is_shown_before_a_quarter_is_done() {
        let seconds = Duration::from_secs;
        assert_eq!(left(1, 40, seconds(35)), None);
        assert_eq!(left(0, 0, seconds(0)), None);
        assert_eq!(left(10, 40, seconds(11)), Some(seconds(33)));
        assert_eq!(left(40, 40, seconds(33)), Some(seconds(0)));
    }

    #[test]
    fn a_check_fails_for_a_missing_row_another_number_of_claims_and_a_broken_one() {
        assert_eq!(status_with(json!({})), Status::Done);
        assert_eq!(status_with(json!({ "measurements": [] })), Status::CheckFailed);
        assert_eq!(status_with(json!({ "oracles": [] })), Status::CheckFailed);
        let twice = json!([claim("exact", 1.0), claim("exact", 1.0)]);
        assert_eq!(status_with(json!({ "oracles": twice })), Status::CheckFailed);
        assert_eq!(status_with(json!({ "oracles": [claim("exact", 2.0)] })), Status::CheckFailed);
        assert_eq!(status_with(json!({ "oracles": [claim("ratio", 2.0)] })), Status::Done);
    }
}
