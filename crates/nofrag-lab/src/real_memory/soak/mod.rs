//! `--mode soak`: everything under random load for as long as wanted, with an eye on growth.
//!
//! Each part of the library that hands out real memory has a load of its own, which allocates, writes, verifies and
//! gives back without a break, all in one process and on several threads. Every content is read again before it is
//! freed; a difference is a lost write or memory with two owners, and there must be none in an hour as in a second.
//! Meanwhile the process is looked at once a second from outside: its memory, its areas and its descriptors. A user
//! must not find growth after a week: so the end is compared with the time after the beginning.
//!
//! - [`arena`]: runs of pages with owners. [`frames`]: blocks of frames that are moved together meanwhile.
//! - [`sampler`]: the process from outside. [`present`]: pictures.

mod arena;
mod frames;
mod present;
mod sampler;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::sampler::{Course, ProcessSample};
use crate::figures;
use crate::key::{self, Key};
use crate::oracle::{Claims, Relation};
use crate::plan::bounded;
use crate::report::{Measurement, Report, Settings};
use crate::scenario::{Mode, Options, Progress, RunError};
use crate::stats::Spread;

pub(super) use present::sections;

/// Duration in minutes, unless the command line says otherwise.
const MINUTES: u64 = 1;
/// A week: no counter overflows before.
const MOST_MINUTES: u64 = 7 * 24 * 60;

pub(super) const PROGRAM: &str = "soak";
pub(super) const NS_PER_OPERATION: &str = "ns per operation with its contents";

/// Returns true once the flag that two threads share is set.
fn is_over(over: &AtomicBool) -> bool {
    // Relaxed: no other memory is read because of the flag.
    over.load(Ordering::Relaxed)
}

/// Counts of a load; the watcher reads them while the load goes on.
#[derive(Debug, Default)]
struct Tally {
    /// Number of allocations, frees and moves.
    operations: AtomicU64,
    /// Contents that were read and found as written.
    verified: AtomicU64,
    /// Contents that were read and found altered.
    lost: AtomicU64,
    /// Requests that found no memory, which is not a failure.
    refused: AtomicU64,
}

impl Tally {
    // All relaxed: each is a count of its own.
    fn done(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn found(&self, as_written: bool) {
        let count = if as_written { &self.verified } else { &self.lost };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn counted(&self) -> Counted {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            operations: of(&self.operations),
            verified: of(&self.verified),
            lost: of(&self.lost),
            refused: of(&self.refused),
        }
    }
}

/// The values of a [`Tally`] at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    operations: u64,
    verified: u64,
    lost: u64,
    refused: u64,
}

/// Runs `own` on this thread and `read` beside it on another; `read` gets a flag that is set when `own` has ended.
fn beside(
    read: impl Fn(&AtomicBool) -> Result<(), String> + Sync,
    own: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&over));
        let owned = own();
        // Relaxed: the flag orders nothing but the end.
        over.store(true, Ordering::Relaxed);
        let read = reader.join().unwrap_or_else(|_| Err("the reader panicked".to_owned()));
        owned.and(read)
    })
}

/// A part of the library under load.
trait Load: Sync {
    fn name(&self) -> &'static str;

    /// Returns the number of threads that the load keeps busy.
    fn threads(&self) -> usize;

    /// Works until `over` is set, on threads of its own besides the caller's if it wants several.
    fn work(&self, over: &AtomicBool) -> Result<(), String>;

    /// Returns the load's counts so far.
    fn tally(&self) -> &Tally;

    /// Returns values of the load's own state by name, for their course over time.
    fn state(&self) -> Vec<(&'static str, f64)>;
}

/// Writes words that follow from `stamp`; the first word has the number `first`.
fn fill(bytes: &mut [u8], stamp: u64, first: u64) {
    for (number, word) in (first..).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(&(stamp ^ number).to_le_bytes());
    }
}

/// Returns true if all words are as [`fill`] wrote them, from the first one on.
fn is_as_written(bytes: &[u8], stamp: u64) -> bool {
    let mut words = (0..).zip(bytes.chunks_exact(8));
    words.all(|(number, word)| word == (stamp ^ number).to_le_bytes())
}

/// Duration and seed of a soak.
#[derive(Clone, Copy, Debug)]
struct SoakPlan {
    length: Duration,
    /// Time between two looks at the process.
    every: Duration,
    seed: u64,
}

pub(super) fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let minutes = bounded("minutes", options.minutes, (MINUTES, 1..=MOST_MINUTES, ""))?;
    let plan = SoakPlan {
        length: Duration::from_secs(60 * minutes),
        every: Duration::from_secs(1),
        seed: options.seed.unwrap_or(1),
    };
    run_plan(&plan, progress)
}

fn failed(load: &str, why: String) -> RunError {
    RunError::engine(load, PROGRAM, why)
}

fn run_plan(plan: &SoakPlan, progress: &dyn Progress) -> Result<Report, RunError> {
    let begin = Instant::now();
    let document = figures::backing().document;
    let mut report = Report { document, ..super::SCENARIO.report(settings(plan)) };
    let before =
        ProcessSample::take(begin.elapsed()).map_err(|error| failed("/proc", error.to_string()))?;
    let course = {
        let loads = loads(plan)?;
        let course = drive(plan, &loads, progress)?;
        report.measurements =
            loads.iter().filter_map(|load| measured(load.as_ref(), &course)).collect();
        course
    };
    let after =
        ProcessSample::take(begin.elapsed()).map_err(|error| failed("/proc", error.to_string()))?;
    judge(&course, (&before, &after), &mut report);
    report.measurements.extend(course.measurement());
    Ok(report)
}

fn settings(plan: &SoakPlan) -> Settings {
    Settings {
        threads: 0,
        conditions: vec![
            format!("seed {}", plan.seed),
            format!("{} s of load", plan.length.as_secs()),
            format!("looked at every {} ms", plan.every.as_millis()),
        ],
        ..Settings::once(Mode::Soak, plan.seed)
    }
}

/// Sets up the loads of the arena and of frames, from the plan's seed.
fn loads(plan: &SoakPlan) -> Result<Vec<Box<dyn Load>>, RunError> {
    let arena = arena::ArenaLoad::new(plan.seed).map_err(|why| failed(arena::NAME, why))?;
    let frames = frames::FramesLoad::new(plan.seed).map_err(|why| failed(frames::NAME, why))?;
    Ok(vec![Box::new(arena), Box::new(frames)])
}

/// Lets all loads work while the process is looked at, until time is up or one fails.
fn drive(
    plan: &SoakPlan,
    loads: &[Box<dyn Load>],
    progress: &dyn Progress,
) -> Result<Course, RunError> {
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    let looks = (plan.length.as_nanos() / plan.every.as_nanos()).max(1) as u64;
    progress.begin(looks);
    let mut course = Course::default();
    let outcome = thread::scope(|scope| {
        let mut workers = Vec::new();
        for load in loads {
            let over = &over;
            workers.push((load.name(), scope.spawn(move || load.work(over))));
        }
        let looked = loop {
            thread::sleep(plan.every);
            let looked = course.look(begin.elapsed(), loads);
            // A worker ends early only if it has failed. The length is by the clock: on a busy machine looks come late.
            let failed = looked.is_err() || workers.iter().any(|(_, worker)| worker.is_finished());
            if failed || begin.elapsed() >= plan.length {
                break looked;
            }
            progress.step(&course.summary());
        };
        let looked = looked.map_err(|error| failed("/proc", error));
        over.store(true, Ordering::Relaxed);
        let ended: Vec<Result<(), RunError>> = workers
            .into_iter()
            .map(|(name, worker)| {
                let ended = worker.join().unwrap_or_else(|_| Err("a worker panicked".to_owned()));
                ended.map_err(|why| failed(name, why))
            })
            .collect();
        ended.into_iter().collect::<Result<(), RunError>>().and(looked)
    });
    progress.end();
    outcome.map(|()| course)
}

/// Keys of a load's counts, in the order of [`Counted`].
const COUNTS: [Key; 4] =
    [Key::count("operations"), Key::count("verified"), Key::count("lost"), Key::count("refused")];

/// Returns a load's row: its operations, second by second.
fn measured(load: &dyn Load, course: &Course) -> Option<Measurement> {
    let Counted { operations, verified, lost, refused } = load.tally().counted();
    let ns = course.ns_per_operation(load.name(), load.threads() as f64);
    let mut series = BTreeMap::new();
    for (name, _) in load.state() {
        series.extend(course.state(load.name(), name).map(|values| (Key::number(name), values)));
    }
    let counts = COUNTS.into_iter().zip([operations, verified, lost, refused]);
    Some(Measurement {
        counts: key::counts(counts),
        series,
        ..Measurement::new(PROGRAM, load.name(), operations, NS_PER_OPERATION, Spread::of(ns)?)
    })
}

/// Allowed ratio of the memory at the end to that after the beginning: random load of a bounded size has its waves.
const MEMORY_SLACK: f64 = 1.10;
const MEMORY_SLACK_MIB: f64 = 16.0;
/// Allowed growth of areas, which come and go with the mappings of a moment.
const AREAS_SLACK: f64 = 64.0;

fn judge(course: &Course, (before, after): (&ProcessSample, &ProcessSample), report: &mut Report) {
    let [_, verified, lost, _] =
        COUNTS.map(|key| report.measurements.iter().filter_map(|row| row.count(&key)).sum::<f64>());
    let claims = &mut report.oracles;
    let text =
        format!("of {verified} contents that were read again: those that were not as written");
    claims.exact("soak/contents", text, lost, Relation::NONE);
    let text = "contents that were read again";
    claims.exact("soak/verified", text, verified, Relation::AtLeast(1.0));
    if let Some((early, late)) = course.early_and_late() {
        let bound = early.resident_mib * MEMORY_SLACK + MEMORY_SLACK_MIB;
        let text = "MiB resident at most in the last quarter, with what the second quarter had";
        claims.ratio("soak/memory", text, late.resident_mib, Relation::AtMost(bound));
        let text = "areas of the process at most in the last quarter, with the second quarter's";
        claims.exact("soak/areas", text, late.areas, Relation::AtMost(early.areas + AREAS_SLACK));
        let text = "descriptors at most in the last quarter, with the second quarter's";
        let most = Relation::AtMost(early.descriptors);
        claims.exact("soak/descriptors", text, late.descriptors, most);
    }
    let text = "descriptors that are left when all is over";
    let left = after.descriptors - before.descriptors;
    claims.exact("soak/descriptors-left", text, left, Relation::NONE);
    let text = "areas that are left when all is over (stacks and heaps of threads that have ended)";
    let left = after.areas - before.areas;
    claims.exact("soak/areas-left", text, left, Relation::AtMost(AREAS_SLACK));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Silent;

    #[test]
    fn a_short_soak_verifies_all_and_leaves_nothing() {
        let (length, every) = (Duration::from_millis(800), Duration::from_millis(50));
        let report = run_plan(&SoakPlan { length, every, seed: 3 }, &Silent).unwrap();
        // Other tests of this process open and close descriptors and map areas meanwhile.
        for id in ["soak/contents", "soak/verified"] {
            let oracle = report.oracles.iter().find(|oracle| oracle.id == id).unwrap();
            assert!(oracle.holds, "{oracle:?}");
        }
        let text = nofrag_show::text(&sections(&report));
        assert!(text.contains("arena") && text.contains("MiB"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_soak_that_never_ends_is_refused() {
        for minutes in [0, u64::MAX] {
            let options = Options { minutes: Some(minutes), ..Options::default() };
            let refused = run(&options, &Silent);
            assert!(matches!(refused, Err(RunError::BadOption { option: "minutes", .. })));
        }
    }
}
