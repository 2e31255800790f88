//! The turns of contestants: what they are asked, how long they may take, and what they may answer.

use crate::patterns;
use crate::record::{Group, Measure, Record, Records};
use crate::trace::{Churn, Draws, HoleState, PackingPlan, Sizes};
use crate::worst::Worst;
use nofrag_lab::usage::thread_time;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::time::{Duration, Instant};

/// Amount of work, and time that a contestant may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Interleaved rounds of each timed workload.
    pub rounds: usize,
    /// Seeds of each untimed workload.
    pub seeds: usize,
    /// Replacements of each timed round.
    pub replacements: usize,
    /// Replacements before packing is measured.
    pub packing_replacements: usize,
    /// Small mappings of each timed round of [`blocks`](crate::blocks), made and ended, by each thread.
    pub block_pairs: usize,
    /// Replacements per hundred areas before a round of [`areas`](crate::areas) is timed.
    pub area_ageing_percent: usize,
    /// Time to reach the state from which a round is timed.
    pub setup: Duration,
    /// Time of one round.
    pub round: Duration,
    /// Time of one seed of an untimed workload.
    pub untimed: Duration,
    /// Time of all turns of one contestant in one workload, after which it gets no more.
    pub workload: Duration,
}

impl Effort {
    /// Returns the effort that a saved result needs.
    #[must_use]
    pub fn full() -> Effort {
        Effort {
            rounds: 9,
            seeds: 5,
            replacements: 200_000,
            packing_replacements: 300_000,
            block_pairs: 1_000_000,
            area_ageing_percent: 200,
            setup: Duration::from_secs(1),
            round: Duration::from_secs(1),
            untimed: Duration::from_secs(3),
            workload: Duration::from_millis(2500),
        }
    }

    /// Returns true if nothing is left out for want of time.
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self == Effort::full()
    }

    /// Returns the effort of a first look, in less than a minute.
    #[must_use]
    pub fn quick() -> Effort {
        Effort {
            rounds: 3,
            seeds: 1,
            replacements: 50_000,
            packing_replacements: 100_000,
            block_pairs: 100_000,
            area_ageing_percent: 20,
            setup: Duration::from_millis(200),
            round: Duration::from_millis(25),
            untimed: Duration::from_millis(200),
            workload: Duration::from_millis(150),
        }
    }
}

/// Time that this thread has spent on a CPU: the load of others on the host counts less than on the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock {
    began: Duration,
}

impl CpuClock {
    /// Starts to count the calling thread's time.
    #[must_use]
    pub fn start() -> CpuClock {
        CpuClock { began: thread_time() }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        thread_time().saturating_sub(self.began)
    }

    /// Returns the nanoseconds since the start for each of `operations`.
    #[must_use]
    pub fn ns_per(&self, operations: usize) -> f64 {
        self.elapsed().as_nanos() as f64 / operations as f64
    }
}

/// A span of time on a CPU within which a contestant must be done.
#[derive(Clone, Copy, Debug)]
pub struct TimeBox {
    wall: Instant,
    cpu: CpuClock,
    limit: Duration,
}

impl TimeBox {
    /// Opens a box that is over after `limit`.
    #[must_use]
    pub fn open(limit: Duration) -> TimeBox {
        TimeBox { wall: Instant::now(), cpu: CpuClock::start(), limit }
    }

    /// Returns true if the time is up. The wall clock, which is cheaper to read and never behind, is asked first.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.has_passed(self.limit)
    }

    /// Returns true if more time than `limit` has passed.
    #[must_use]
    pub fn has_passed(&self, limit: Duration) -> bool {
        self.wall.elapsed() >= limit && self.cpu.elapsed() >= limit
    }

    /// Returns the time that the box allows.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

/// One value for each measure.
pub type Samples = Vec<(Measure, f64)>;

/// The result of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub samples: Samples,
    /// Why it is less than was asked for, though enough to be measured; nothing if it is all.
    pub note: Option<String>,
}

impl From<Samples> for Measured {
    fn from(samples: Samples) -> Measured {
        Measured { samples, note: None }
    }
}

/// Outcome of a contestant's turn: what was measured, or why nothing was.
pub type Outcome = Result<Measured, String>;

/// Reason why a contestant stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The contestant found no place although there was plenty.
    Refused {
        after: usize,
    },
    /// The contestant did not take back what it had handed out.
    FreeRefused,
    TooSlow {
        done: usize,
        asked: usize,
        limit: Duration,
    },
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stop::Refused { after } => write!(f, "fails: refuses a request after {after} others"),
            Stop::FreeRefused => f.write_str("fails: refuses to free what it handed out"),
            Stop::TooSlow { done, asked, limit } => {
                write!(f, "too slow: {done} of {asked} operations in {limit:?}")
            }
        }
    }
}

impl From<Stop> for String {
    fn from(stop: Stop) -> String {
        stop.to_string()
    }
}

impl Stop {
    /// Returns the reason of a contestant that did not reach the state from which something is measured.
    pub(crate) fn while_building(self) -> String {
        format!("{self} (building)")
    }
}

/// A contestant that has a row in tables.
pub trait Named {
    /// Returns the name used in tables.
    fn name(&self) -> &'static str;
}

/// A contestant made by `make` for each turn anew.
pub struct Entry<M> {
    name: &'static str,
    pub(crate) make: M,
}

impl<M> Entry<M> {
    /// Makes the contestant of this name.
    pub fn new(name: &'static str, make: M) -> Entry<M> {
        Entry { name, make }
    }
}

impl<M> Named for Entry<M> {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// A turn of a contestant of ranges.
#[derive(Clone, Copy, Debug)]
pub enum RangeTurn<'a> {
    /// Is checked against a bitmap.
    Verify { seed: u64 },
    /// One round of `speed`.
    Churn(&'a Churn, &'a Effort),
    /// One round of `low_holes`, with so many holes.
    LowHoles(u32, &'a Effort),
    /// One round of `patterns`.
    Pattern(&'a patterns::Plan, &'a Effort),
    /// One round of `worst`.
    Worst(Worst, &'a Effort),
    /// One round of `latency`.
    Latency(&'a Churn, &'a Effort),
    /// The bytes in a state are counted.
    Footprint(&'a HoleState, &'a Effort),
    /// One seed of `packing` at 90 %.
    Pack(&'a PackingPlan),
    /// One seed of `packing` after shrinking.
    Shrink(&'a Draws, &'a Effort),
}

/// A contestant, whatever its type. The time of every turn is measured inside, where the type is known.
pub trait Contestant: Named {
    /// Takes a turn.
    fn turn(&self, turn: RangeTurn<'_>) -> Outcome;
}

/// Runs a turn; a panic of the contestant is its result, not the end of the comparison.
pub(crate) fn shielded(turn: impl FnOnce() -> Outcome) -> Outcome {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(turn));
    set_hook(hook);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panics: {}", text.unwrap_or("no message")))
    })
}

/// A run of the comparison: what it is to do, and what it has found so far.
pub struct Run<'a> {
    pub records: Records,
    pub effort: Effort,
    /// The seed of all operations.
    pub seed: u64,
    /// CPUs that the process may use.
    pub cpus: &'a [usize],
    /// Is told whose turn begins.
    pub progress: &'a dyn Fn(Group, &str),
}

/// The turns of one contestant so far.
#[derive(Default)]
struct BoardRow {
    samples: Vec<(Measure, Vec<f64>)>,
    note: Option<String>,
    is_out: bool,
    turns: usize,
    spent: Duration,
}

impl BoardRow {
    /// Returns true if the contestant gets one more of `rounds` turns: it has not failed and has time left.
    fn is_in(&mut self, rounds: usize, limit: Duration) -> bool {
        if !self.is_out && self.spent > limit {
            self.is_out = true;
            let turns = format!("slow: {} of {rounds} rounds", self.turns);
            let note = self.note.take().map_or(turns.clone(), |note| format!("{note}; {turns}"));
            self.note = Some(note);
        }
        !self.is_out
    }

    /// Notes one turn and the time that it took in all.
    fn add(&mut self, outcome: Outcome, spent: Duration) {
        self.turns += 1;
        self.spent += spent;
        match outcome {
            Ok(Measured { samples, note }) => {
                self.note = self.note.take().or(note);
                for (measure, value) in samples {
                    match self.samples.iter_mut().find(|(known, _)| *known == measure) {
                        Some((_, samples)) => samples.push(value),
                        None => self.samples.push((measure, vec![value])),
                    }
                }
            }
            Err(reason) => {
                self.note = Some(reason);
                self.is_out = true;
                self.samples.clear();
            }
        }
    }
}

impl Run<'_> {
    /// Lets every contestant take its turns in a workload, round by round, each as long as it has spent no more than
    /// `limit`, and records them.
    pub fn contest<C: Named + ?Sized>(
        &mut self,
        (group, workload): (Group, &str),
        contestants: &[Box<C>],
        (rounds, limit): (usize, Duration),
        turn: impl Fn(&C, usize) -> Outcome,
    ) {
        let mut rows: Vec<BoardRow> = contestants.iter().map(|_| BoardRow::default()).collect();
        for round in 0..rounds {
            for (contestant, row) in contestants.iter().zip(&mut rows) {
                (self.progress)(group, contestant.name());
                if row.is_in(rounds, limit) {
                    let began = CpuClock::start();
                    let outcome = turn(contestant.as_ref(), round);
                    row.add(outcome, began.elapsed());
                }
            }
        }
        for (contestant, row) in contestants.iter().zip(rows) {
            let rest = row.samples.is_empty().then(|| (None, Vec::new()));
            let taken = row.samples.into_iter().map(|(measure, samples)| (Some(measure), samples));
            self.records.0.extend(taken.chain(rest).map(|(measure, samples)| Record {
                group,
                workload: workload.to_owned(),
                contestant: contestant.name().to_owned(),
                measure,
                samples,
                note: row.note.clone(),
            }));
        }
    }

    /// Adds values that were not measured by turns.
    pub fn add(
        &mut self,
        (group, workload): (Group, &str),
        contestant: &str,
        (measure, samples): (Measure, Vec<f64>),
        note: Option<&str>,
    ) {
        self.records.0.push(Record {
            group,
            workload: workload.to_owned(),
            contestant: contestant.to_owned(),
            measure: Some(measure),
            samples,
            note: note.map(str::to_owned),
        });
    }
}

/// The sizes that the untimed workloads are run with.
pub const BOTH_SIZES: [Sizes; 2] = [Sizes::Uniform, Sizes::Bimodal];
