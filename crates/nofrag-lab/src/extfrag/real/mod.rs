//! `--real`: the workload on real memory that our own allocator hands out.
//!
//! The phases and decisions are those of the simulation: each request and its time follow from the seed and from
//! virtual time. Behind the frames stands memory ([`world::real`](crate::world::real)), and two clocks run: the virtual
//! one, which orders the actors, and the host's, which runs while the huge-page program moves. So the counts must be
//! those of the simulation, which is a claim of the run; and the times are real.
//!
//! The time of a unit of 2 MiB is the one that the document's program takes: until all of it is mapped and zeroed, and
//! all of it has been written once. A unit that is a huge page is one request of order 9, one mapping and one fault;
//! any other one is the request of order 9 that failed, with all that it did to succeed, and 512 times a request of
//! order 0, a mapping and a fault. The published 0.27 is the mean of the first over the mean of the second kind, as is
//! the ratio here.
//!
//! Designs take turns, and all runs of a program have the same seed, so that rounds differ only by the host.

mod present;

use std::collections::BTreeMap;
use std::str::FromStr as _;

use crate::apparatus::machine::{MachineMemory, UNIT_PAGES};
use crate::key::{Amount, Counts, Key};
use nofrag::page::PolicyPreset;

use super::catalogue::{Case, OURS, Program, SUBSET_DESIGNS, VANILLA};
use super::spec::{RunSpec, TestMachine};
use super::{MOST_GIB, SCENARIO, choose, names, withdrawn};
use crate::figures;
use crate::oracle::{Claims, Relation};
use crate::plan::{Plan, Usual};
use crate::report::{Measurement, Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, choose_programs, turn,
};
use crate::stats::Spread;
use crate::world::real::{RealResult, UnitTimes};
use crate::world::setup::RunResult;
use crate::world::thpfioscale;

pub(super) use present::sections;

/// Number of rounds of a default run, and of a full one.
const FEW_ROUNDS: usize = 3;
const ROUNDS: usize = 5;

/// Number of pages in a GiB.
const GIB_PAGES: u64 = 1 << 18;

/// The largest mean of huge faults over the mean of units of base faults that we ask of memory that is mapped and
/// touched: the published 0.27 (178.93 over 652.71: docs/sources/pages.md#published-figures), rounded up.
const MOST_RATIO: f64 = 0.3;

/// Extent of a run on real memory, whose repetitions are rounds.
#[derive(Clone, Debug)]
struct RealPlan {
    of: Plan<PolicyPreset, Program>,
    /// Frames of the machine: all of its memory, except in tests.
    frames: u64,
}

/// Returns true if a program can run on real memory: one thread touches units, so that a clock can run for it alone.
fn has_one_toucher(program: Program) -> bool {
    let cases = program.cases(1);
    !program.is_curve() && cases.len() == 1 && cases[0].machine == TestMachine::OneNode
}

fn plan(options: &Options) -> Result<RealPlan, RunError> {
    let program =
        |info: ProgramInfo| Program::from_str(info.name).expect("a test reads the same names");
    let mut on_one = SCENARIO.programs();
    on_one.retain(|info| has_one_toucher(program(*info)));
    let chosen = choose_programs(&on_one, |info| *info, options.mask.as_deref())?;
    let full = options.extent == Extent::Full;
    let in_default =
        |program: &Program| full || options.mask.is_some() || *program != Program::SDefrag;
    let programs = chosen.into_iter().map(program).filter(in_default).collect();
    let designs = match (options.designs.is_empty(), full) {
        (true, false) => choose(&SUBSET_DESIGNS.map(str::to_owned))?,
        _ => choose(&options.designs)?,
    };
    let usual = Usual { repeats: if full { ROUNDS } else { FEW_ROUNDS }, ..Usual::ONCE };
    let mut of = Plan::of(options, designs, programs, usual)?;
    let gib = match of.memory[..] {
        [] => 1,
        [gib] if (1..=MOST_GIB).contains(&gib) => gib,
        _ => {
            let why = "must be one size between 1 and 64 GiB with --real";
            return Err(RunError::option("memory", why));
        }
    };
    of.memory = vec![gib];
    Ok(RealPlan { of, frames: gib * GIB_PAGES })
}

pub(super) fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    run_plan(&plan(options)?, progress)
}

fn run_plan(plan: &RealPlan, progress: &dyn Progress) -> Result<Report, RunError> {
    let document = figures::gorman_2018().document;
    let mut report = Report { document, ..SCENARIO.report(settings(plan)) };
    let memory =
        MachineMemory::new(plan.frames).map_err(|error| no_memory(plan, &error.to_string()))?;
    let huge_units = memory.huge_units();
    let compared = compare(plan, memory, progress)?;
    claims(plan, &compared, &mut report);
    report.measurements = compared.rows.iter().filter_map(|row| row.measurement()).collect();
    take_notes(plan, huge_units, &mut report);
    Ok(report)
}

fn no_memory(plan: &RealPlan, why: &str) -> RunError {
    let why = format!("{} GiB of memory in a file: {why}", plan.of.memory[0]);
    RunError::engine("every design", "--real", why)
}

fn settings(plan: &RealPlan) -> Settings {
    let Plan { seed, repeats, memory, touch, .. } = &plan.of;
    Settings {
        conditions: vec![
            "on real memory".to_owned(),
            format!("seed {seed}, {repeats} rounds"),
            format!("memory {} GiB", memory[0]),
            touch.condition(),
        ],
        ..plan.of.settings(Mode::Compare, |preset| preset.name)
    }
}

/// A program under a design, round by round.
#[derive(Debug)]
struct RealRow {
    case: Case,
    preset: PolicyPreset,
    /// Counts of the first round.
    counted: Option<RunResult>,
    /// True if each other round counted the same.
    repeats: bool,
    rounds: Vec<RealResult>,
}

#[derive(Debug)]
struct Compared {
    rows: Vec<RealRow>,
    /// Runs that were made again without memory, and the number of them with other counts.
    without_memory: usize,
    differ: usize,
}

impl RealRow {
    fn spec(&self, plan: &RealPlan) -> RunSpec {
        RunSpec {
            design: self.preset.name.to_owned(),
            policy: self.preset.policy,
            case: self.case,
            touch: plan.of.touch,
            seed: plan.of.seed,
        }
    }

    fn add(&mut self, counted: RunResult, real: RealResult) {
        match &self.counted {
            Some(first) => self.repeats &= *first == counted,
            None => self.counted = Some(counted),
        }
        self.rounds.push(real);
    }

    fn all(&self, of: fn(&RealResult) -> &UnitTimes) -> UnitTimes {
        let mut all = UnitTimes::default();
        self.rounds.iter().for_each(|round| all.merge(of(round)));
        all
    }

    fn measurement(&self) -> Option<Measurement> {
        let mut spreads = BTreeMap::new();
        let mut by_round = |key: Key, of: &dyn Fn(&RealResult) -> Option<f64>| {
            let samples = self.rounds.iter().filter_map(of).collect();
            spreads.extend(Spread::of(samples).map(|spread| (key, spread)));
        };
        by_round(names::HUGE_FAULT_US, &|round| round.huge.mean_us());
        by_round(names::BASE_FAULTS_US, &|round| round.base.mean_us());
        by_round(names::FAULT_RATIO, &ratio);
        by_round(names::UNIT_US, &|round| mean_of_all(round).mean_us());
        let medians = spreads.iter().map(|(key, spread)| (key.clone(), spread.median.into()));
        let mut counts: Counts = medians.collect();
        let counted = self.counted.as_ref()?;
        counts.extend(self.counts(counted));
        let unit = spreads.remove(&names::UNIT_US)?;
        Some(Measurement {
            tail: mean_of_all_rounds(&self.rounds).tail(),
            counts,
            spreads,
            ..Measurement::new(
                self.case.to_string(),
                self.preset.name,
                counted.huge + counted.base,
                names::UNIT_US.name(),
                unit,
            )
        })
    }

    fn counts(&self, counted: &RunResult) -> Counts {
        let sum = |of: fn(&RealResult) -> u64| self.rounds.iter().map(of).sum::<u64>().into();
        let units = counted.huge + counted.base;
        let mut counts = Counts::new();
        let mut set = |key: Key, value: Amount| counts.insert(key, value);
        set(names::HUGE, counted.huge.into());
        set(names::BASE, counted.base.into());
        if units > 0 {
            let share = 100.0 * counted.huge as f64 / units as f64;
            set(names::HUGE_PERCENT, share.into());
        }
        set(names::WRITTEN, sum(|round| round.written));
        set(names::VERIFIED, sum(|round| round.verified));
        set(names::LOST, sum(|round| round.lost));
        set(names::COPIED, sum(|round| round.moved));
        let kinds =
            [("huge", self.all(|round| &round.huge)), ("base", self.all(|round| &round.base))];
        for (kind, times) in kinds {
            let Some(tail) = times.tail() else { continue };
            let parts = [
                ("p50", tail.p50_ns),
                ("p99", tail.p99_ns),
                ("p99.9", tail.p999_ns),
                ("max", tail.max_ns),
            ];
            for (part, ns) in parts {
                set(names::latency(kind, part), (ns as f64 / 1e3).into());
            }
        }
        counts
    }
}

/// Merges the times of both kinds of units.
fn mean_of_all(round: &RealResult) -> UnitTimes {
    let mut all = round.huge.clone();
    all.merge(&round.base);
    all
}

fn mean_of_all_rounds(rounds: &[RealResult]) -> UnitTimes {
    let mut all = UnitTimes::default();
    rounds.iter().for_each(|round| all.merge(&mean_of_all(round)));
    all
}

/// Returns the mean of huge faults over that of units of base faults; `None` without either.
fn ratio(round: &RealResult) -> Option<f64> {
    Some(round.huge.mean_us()? / round.base.mean_us()?)
}

/// Runs every program under every design, round by round, in the same memory.
fn compare(
    plan: &RealPlan,
    memory: MachineMemory,
    progress: &dyn Progress,
) -> Result<Compared, RunError> {
    let mut rows: Vec<RealRow> = Vec::new();
    for program in &plan.of.programs {
        for case in program.cases(plan.of.memory[0]) {
            for preset in &plan.of.designs {
                let (preset, rounds) = (*preset, Vec::new());
                rows.push(RealRow { case, preset, counted: None, repeats: true, rounds });
            }
        }
    }
    let again: Vec<usize> = made_again(&rows);
    progress.begin((rows.len() * plan.of.repeats + again.len()) as u64);
    let mut memory = memory;
    let order: Vec<usize> = (0..rows.len()).collect();
    for round in 0..plan.of.repeats {
        for at in turn(&order, round) {
            let row = &mut rows[at];
            progress.step(&format!("{} under {}", row.case, row.preset.name));
            let (counted, real, back) =
                thpfioscale::run_on(row.spec(plan).setup_of(memory.frames()), memory)?;
            memory = back;
            row.add(counted, real);
        }
    }
    let mut differ = 0;
    for at in &again {
        let row = &rows[*at];
        progress.step(&format!("{} under {}, without memory", row.case, row.preset.name));
        let counted = thpfioscale::Run::new(row.spec(plan).setup_of(plan.frames))?.run()?;
        differ += usize::from(row.counted.as_ref() != Some(&counted));
    }
    progress.end();
    Ok(Compared { without_memory: again.len(), rows, differ })
}

/// Returns the runs that are made again without memory: the oldest design of each program, and ours.
fn made_again(rows: &[RealRow]) -> Vec<usize> {
    let is_one = |row: &RealRow| [VANILLA, OURS].contains(&row.preset.name);
    let chosen: Vec<usize> = (0..rows.len()).filter(|at| is_one(&rows[*at])).collect();
    if chosen.is_empty() { vec![0] } else { chosen }
}

fn claims(plan: &RealPlan, compared: &Compared, report: &mut Report) {
    let sum = |of: fn(&RealResult) -> u64| {
        let rounds = compared.rows.iter().flat_map(|row| &row.rounds);
        rounds.map(of).sum::<u64>() as f64
    };
    let claims = &mut report.oracles;
    let verified = sum(|round| round.verified);
    let claim = format!(
        "of {verified} pages that were read before they were given up, moved or read by a process: those that did not \
         hold what was written"
    );
    claims.exact("real/contents", claim, sum(|round| round.lost), Relation::NONE);
    let claim = "pages that were read again";
    claims.exact("real/verified", claim, verified, Relation::AtLeast(plan.frames as f64));
    let claim = format!(
        "of {} runs that were made again without memory: those that counted something else",
        compared.without_memory
    );
    claims.exact("real/decisions", claim, compared.differ as f64, Relation::NONE);
    let unlike = compared.rows.iter().filter(|row| !row.repeats).count();
    let claim = "designs whose rounds counted different things";
    claims.exact("real/rounds", claim, unlike as f64, Relation::NONE);
    let timed = |row: &RealRow| {
        let of = |times: UnitTimes| times.tail().map_or(0, |tail| tail.count);
        of(row.all(|round| &round.huge)) + of(row.all(|round| &round.base))
    };
    let counted = |row: &RealRow| {
        let counted = row.counted.as_ref().map_or(0, |counted| counted.huge + counted.base);
        counted * row.rounds.len() as u64
    };
    let untimed: u64 = compared.rows.iter().map(|row| counted(row).abs_diff(timed(row))).sum();
    let claim = "units that were touched and not timed";
    claims.exact("real/units", claim, untimed as f64, Relation::NONE);
    // Of kernels that the document does not judge, nothing is claimed.
    let published = |row: &&RealRow| {
        row.case.configuration() == "s-default" && !withdrawn::is_withdrawn(row.preset.name)
    };
    for row in compared.rows.iter().filter(published) {
        let samples = row.rounds.iter().filter_map(ratio).collect();
        let median = Spread::of(samples).map(|spread| spread.median);
        let design = row.preset.name;
        let id = format!("real/ratio/{design}");
        let claim = format!(
            "{design}: mean of huge faults over mean of units of base faults (0.27 published)"
        );
        claims.ratio(id, claim, median, Relation::AtMost(MOST_RATIO));
    }
}

fn take_notes(plan: &RealPlan, huge_units: u64, report: &mut Report) {
    let units = plan.frames / UNIT_PAGES as u64;
    report.notes.push(match huge_units {
        0 => "the kernel made no huge pages for the memory (MADV_COLLAPSE): a huge fault is one mapping and 512 small \
              faults in it"
            .to_owned(),
        some => format!(
            "the memory is a file of which the kernel made {some} of {units} blocks of 2 MiB huge pages \
             (MADV_COLLAPSE): there a huge fault is one entry of the page table"
        ),
    });
    report.notes.push(
        "the order of requests is that of virtual time, as in the simulation; the clock of a unit runs on one thread: \
         other actors do not compete for it, and what they do meanwhile is not in it"
            .to_owned(),
    );
    report.notes.push(
        "measured besides allocation, mapping, zeroing and writing: two reads of the clock for each page, some \
         hundredths of a base fault"
            .to_owned(),
    );
    if plan.of.designs.len() < SCENARIO.designs.len() {
        report.notes.push(format!(
            "{} of {} designs; --full has all, and defrag = always",
            plan.of.designs.len(),
            SCENARIO.designs.len()
        ));
    }
    report.notes.extend(report.weaknesses());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::ClaimKind;
    use crate::scenario::Silent;

    fn small(designs: &[&str]) -> RealPlan {
        let designs: Vec<String> = designs.iter().map(|name| (*name).to_owned()).collect();
        let options = Options {
            designs,
            repeat: Some(2),
            mask: Some("s-default".to_owned()),
            ..Options::default()
        };
        let plan = plan(&options).expect("the options are sensible");
        RealPlan { frames: 64 << 8, ..plan }
    }

    #[test]
    fn real_memory_changes_no_decision_and_loses_nothing() {
        let plan = small(&["linux-4.20", "nofrag"]);
        let report = run_plan(&plan, &Silent).expect("64 MiB can be had");
        for oracle in report.oracles.iter().filter(|oracle| oracle.kind == ClaimKind::Exact) {
            assert!(oracle.holds, "{oracle:?}");
        }
        assert_eq!(report.measurements.len(), 2);
        let text = nofrag_show::text(&sections(&report));
        assert!(text.contains("huge/base") && text.contains("0.27"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_page_that_is_moved_without_its_contents_is_found() {
        let mut memory = crate::world::real::RealMemory::new(MachineMemory::new(512).unwrap());
        memory.write_page(3, 7);
        memory.read_page(3, 7);
        memory.relocate(3, 4);
        memory.read_page(4, 7);
        memory.read_page(5, 7);
        let (_, found) = memory.end().unwrap();
        assert_eq!((found.verified, found.lost, found.moved), (2, 1, 1));
    }

    #[test]
    fn programs_with_several_touchers_are_refused_by_name() {
        let options = Options { mask: Some("h-default".to_owned()), ..Options::default() };
        assert!(matches!(plan(&options), Err(RunError::UnknownProgram { .. })));
        let options = Options { memory: vec![4, 8], ..Options::default() };
        assert!(matches!(plan(&options), Err(RunError::BadOption { option: "memory", .. })));
    }
}
