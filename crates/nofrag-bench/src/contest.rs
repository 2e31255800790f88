//! The turns of contestants: what they are asked, how long they may take, and what they may answer.

use crate::peers::{Peer, Space};
use crate::record::{Group, Measure, Record, Records};
use crate::trace::{Churn, Draws, Sizes};
use crate::verify::Abilities;
use crate::{footprint, latency, low_holes, packing, speed, verify};
use rustix::time::{ClockId, clock_gettime};
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
    /// Replacements compared with the linear scan.
    pub oracle_replacements: usize,
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
            oracle_replacements: 300_000,
            block_pairs: 1_000_000,
            area_ageing_percent: 200,
            setup: Duration::from_secs(1),
            round: Duration::from_secs(1),
            untimed: Duration::from_secs(3),
            workload: Duration::from_millis(2500),
        }
    }

    /// Returns the effort of a first look, in less than a minute.
    #[must_use]
    pub fn quick() -> Effort {
        Effort {
            rounds: 3,
            seeds: 1,
            replacements: 50_000,
            packing_replacements: 100_000,
            oracle_replacements: 30_000,
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
        CpuClock { began: CpuClock::now() }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        CpuClock::now().saturating_sub(self.began)
    }

    fn now() -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).expect("a thread's time on a CPU is not negative")
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

/// Outcome of a contestant's turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<T> {
    Whole(T),
    /// Time ran out, but the work done is enough to measure.
    Partial(T, String),
    /// Nothing was measured, and why.
    Nothing(String),
}

impl<T> Outcome<T> {
    /// Applies `f` to the measured value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Whole(value) => Outcome::Whole(f(value)),
            Outcome::Partial(value, note) => Outcome::Partial(f(value), note),
            Outcome::Nothing(reason) => Outcome::Nothing(reason),
        }
    }
}

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

/// A contestant that has a row in tables.
pub trait Named {
    /// Returns the name used in tables.
    fn name(&self) -> &'static str;
}

/// A contestant, whatever its type. The time of every turn is measured inside, where the type is known.
pub trait Contestant: Named {
    /// Checks the contestant against a bitmap.
    fn verify(&self, seed: u64) -> Outcome<Abilities>;

    /// Runs one round of [`speed`].
    fn churn(&self, churn: &Churn, effort: &Effort) -> Outcome<speed::Timing>;

    /// Runs one round of [`low_holes`].
    fn low_holes(&self, holes: u32, effort: &Effort) -> Outcome<speed::Timing>;

    /// Runs one round of [`latency`].
    fn latency(&self, churn: &Churn, effort: &Effort) -> Outcome<latency::Percentiles>;

    /// Counts the bytes after a churn.
    fn footprint(&self, state: &footprint::State, effort: &Effort) -> Outcome<footprint::Bytes>;

    /// Runs one seed of [`packing`] at 90 %.
    fn packing(&self, plan: &packing::PackingPlan) -> Outcome<packing::Packed>;

    /// Runs one seed of [`packing`] after shrinking.
    fn shrink(&self, draws: Draws, effort: &Effort) -> Outcome<packing::Shrunk>;
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

impl<P: Peer, M: Fn(Space) -> P> Contestant for Entry<M> {
    fn verify(&self, seed: u64) -> Outcome<Abilities> {
        shielded(|| verify::run(&self.make, seed))
    }

    fn churn(&self, churn: &Churn, effort: &Effort) -> Outcome<speed::Timing> {
        shielded(|| speed::round(&self.make, churn, effort))
    }

    fn low_holes(&self, holes: u32, effort: &Effort) -> Outcome<speed::Timing> {
        shielded(|| low_holes::round(&self.make, holes, effort))
    }

    fn latency(&self, churn: &Churn, effort: &Effort) -> Outcome<latency::Percentiles> {
        shielded(|| latency::round(&self.make, churn, effort))
    }

    fn footprint(&self, state: &footprint::State, effort: &Effort) -> Outcome<footprint::Bytes> {
        shielded(|| footprint::measure(&self.make, state, effort))
    }

    fn packing(&self, plan: &packing::PackingPlan) -> Outcome<packing::Packed> {
        shielded(|| packing::pack(&self.make, plan))
    }

    fn shrink(&self, draws: Draws, effort: &Effort) -> Outcome<packing::Shrunk> {
        shielded(|| packing::shrink(&self.make, draws, effort))
    }
}

/// Runs a turn; a panic of the contestant is its result, not the end of the comparison.
pub(crate) fn shielded<T>(turn: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(turn));
    set_hook(hook);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Outcome::Nothing(format!("panics: {}", text.unwrap_or("no message")))
    })
}

/// Collects the samples of one workload, contestant by contestant.
pub struct Board<'a> {
    group: Group,
    workload: String,
    rows: Vec<BoardRow>,
    records: &'a mut Records,
}

/// The turns of one contestant so far.
struct BoardRow {
    contestant: &'static str,
    samples: Vec<(Measure, Vec<f64>)>,
    note: Option<String>,
    is_out: bool,
    turns: usize,
    spent: Duration,
}

impl<'a> Board<'a> {
    /// Makes an empty board of `workload` for the given contestants.
    pub fn new<C: Named + ?Sized>(
        records: &'a mut Records,
        group: Group,
        workload: impl Into<String>,
        contestants: &[Box<C>],
    ) -> Board<'a> {
        let rows = contestants
            .iter()
            .map(|contestant| BoardRow {
                contestant: contestant.name(),
                samples: Vec::new(),
                note: None,
                is_out: false,
                turns: 0,
                spent: Duration::ZERO,
            })
            .collect();
        Board { group, workload: workload.into(), rows, records }
    }

    /// Returns true if the contestant of this index gets one more of `rounds` turns: it has not failed and has time
    /// left.
    pub fn is_in(&mut self, index: usize, rounds: usize, effort: &Effort) -> bool {
        let row = &mut self.rows[index];
        if !row.is_out && row.spent > effort.workload {
            row.is_out = true;
            let turns = format!("slow: {} of {rounds} rounds", row.turns);
            let note = row.note.take().map_or(turns.clone(), |note| format!("{note}; {turns}"));
            row.note = Some(note);
        }
        !row.is_out
    }

    /// Notes one turn and the time that it took in all.
    pub fn note(&mut self, index: usize, outcome: Outcome<Vec<(Measure, f64)>>, spent: Duration) {
        let row = &mut self.rows[index];
        row.turns += 1;
        row.spent += spent;
        let values = match outcome {
            Outcome::Whole(values) => values,
            Outcome::Partial(values, note) => {
                row.note.get_or_insert(note);
                values
            }
            Outcome::Nothing(reason) => {
                row.note = Some(reason);
                row.is_out = true;
                row.samples.clear();
                return;
            }
        };
        for (measure, value) in values {
            match row.samples.iter_mut().find(|(known, _)| *known == measure) {
                Some((_, samples)) => samples.push(value),
                None => row.samples.push((measure, vec![value])),
            }
        }
    }

    /// Writes all rows to the records.
    pub fn close(self) {
        for BoardRow { contestant, samples, note, .. } in self.rows {
            let record = |measure, samples| Record {
                group: self.group,
                workload: self.workload.clone(),
                contestant: contestant.to_owned(),
                measure,
                samples,
                note: note.clone(),
            };
            if samples.is_empty() {
                self.records.0.push(record(None, Vec::new()));
            }
            for (measure, samples) in samples {
                self.records.0.push(record(Some(measure), samples));
            }
        }
    }
}

/// Lets every contestant take its turns, round by round.
pub fn interleave<C: Named + ?Sized>(
    mut board: Board<'_>,
    contestants: &[Box<C>],
    rounds: usize,
    effort: &Effort,
    progress: &dyn Fn(&str),
    turn: impl Fn(&C, usize) -> Outcome<Vec<(Measure, f64)>>,
) {
    for round in 0..rounds {
        for (index, contestant) in contestants.iter().enumerate() {
            progress(contestant.name());
            if board.is_in(index, rounds, effort) {
                let began = CpuClock::start();
                let outcome = turn(contestant.as_ref(), round);
                board.note(index, outcome, began.elapsed());
            }
        }
    }
    board.close();
}

/// The sizes that the untimed workloads are run with.
pub const BOTH_SIZES: [Sizes; 2] = [Sizes::Uniform, Sizes::Bimodal];
