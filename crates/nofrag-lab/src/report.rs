//! The result of a scenario: data only, the same for people and machines.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::{Figure, RatioRange};
use crate::frames::FramesReport;
use crate::kernels::KernelsReport;
use crate::key::{Counts, Key};
use crate::oracle::Oracle;
use crate::replay::ReplayReport;
use crate::scenario::Mode;
use crate::stats::{Calls, Spread, Tail};
use nofrag_show::{Quantity, ratio};

/// The result of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    pub scenario: String,
    /// The document that it replays.
    pub document: String,
    /// Settings of the run, with the options applied.
    pub settings: Settings,
    /// One entry per program and design.
    pub measurements: Vec<Measurement>,
    pub comparisons: Vec<Comparison>,
    pub oracles: Vec<Oracle>,
    /// Facts that weaken or explain the result.
    pub notes: Vec<String>,
    /// Rows and claims that are missing because this host does not allow them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// For the scenario that replays a recording: the whole result of the replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Box<ReplayReport>>,
    /// For the scenario that follows kernels from their exact states: the whole comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Box<FramesReport>>,
    /// For the scenario that sets the simulation beside kernels: the whole comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Box<KernelsReport>>,
    /// Wall time of the whole scenario in seconds.
    pub elapsed_s: f64,
}

/// A program or design that a host does not allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// A program, a design, or another name that the scenario declares.
    pub what: String,
    pub why: String,
}

impl Report {
    /// Notes that the host does not allow a program or design.
    pub(crate) fn skip(&mut self, what: &str, why: impl std::fmt::Display) {
        let (what, why) = (what.to_owned(), why.to_string());
        self.notes.push(format!("skipped: {what}: {why}"));
        self.skipped.push(Skipped { what, why });
    }
}

/// Settings of a run, with its options applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    pub mode: String,
    /// The seed of all random numbers.
    pub seed: u64,
    pub repeats: usize,
    /// Loops of one repetition, before a program's own bound.
    pub loops: u64,
    /// Pages of a fixed-size area.
    pub pages: u64,
    /// Threads of the parallel programs.
    pub threads: usize,
    /// The designs compared, oldest first.
    pub designs: Vec<String>,
    /// Other choices, in words, for scenarios whose runs have no loops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// The sizes of simulated memory in GiB, in the order in which they were run, for scenarios that compare them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_gib: Vec<u64>,
}

impl Settings {
    /// Returns the settings of a run that makes everything once, on one thread.
    pub(crate) fn once(mode: Mode, seed: u64) -> Settings {
        let mode = mode.into_str().to_owned();
        Settings { mode, seed, repeats: 1, loops: 1, pages: 1, threads: 1, ..Settings::default() }
    }
}

/// One program under one design.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measurement {
    pub program: String,
    pub design: String,
    /// Loops of one repetition; bounded where a design is too slow for more.
    pub loops: u64,
    /// The unit of `time`, such as "ns per pair".
    pub unit: String,
    pub time: Spread,
    /// Single operations, for programs that time each.
    pub tail: Option<Tail>,
    /// Counts by name; those of single-threaded programs depend on the seed alone.
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, f64>"))]
    pub counts: Counts,
    /// Functions by name, for programs whose calls a pass of its own has timed one by one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, Calls>"))]
    pub functions: BTreeMap<Key, Calls>,
    /// Counts by name over the course of the run, at even distances, for programs that have a picture.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, Vec<f64>>"))]
    pub series: BTreeMap<Key, Vec<f64>>,
    /// Counts by name over the repetitions, for programs whose repetitions draw other chances; `counts` holds their
    /// medians.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, Spread>"))]
    pub spreads: BTreeMap<Key, Spread>,
    /// Digest of all addresses in the order in which they were handed out, in hexadecimal, for programs that compare
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl Measurement {
    /// Returns a measurement with times alone: without tail, counts, functions and courses.
    #[must_use]
    pub fn new(
        program: impl Into<String>,
        design: impl Into<String>,
        loops: u64,
        unit: &str,
        time: Spread,
    ) -> Measurement {
        Measurement {
            program: program.into(),
            design: design.into(),
            loops,
            unit: unit.to_owned(),
            time,
            ..Measurement::default()
        }
    }

    /// Returns a measurement of times and counts; `None` without a time.
    pub(crate) fn of(
        program: impl Into<String>,
        design: impl Into<String>,
        loops: u64,
        (unit, times): (&str, Vec<f64>),
        counts: Counts,
    ) -> Option<Measurement> {
        let time = Spread::of(times)?;
        Some(Measurement { counts, ..Measurement::new(program, design, loops, unit, time) })
    }

    /// Returns the figure of this key, if the program and the design have it.
    #[must_use]
    pub fn count(&self, key: impl Borrow<Key>) -> Option<f64> {
        self.counts.get(key.borrow()).map(|amount| amount.get())
    }

    /// Returns the figure of this key as it is shown, in the key's unit.
    pub(crate) fn shown(&self, key: impl Borrow<Key>) -> Option<Quantity> {
        Some(key.borrow().shown(self.count(key.borrow())?))
    }
}

/// A published figure and the result of the same program here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The figure's id in its file.
    pub figure: String,
    /// The measured quantity and its machine.
    pub what: String,
    /// Place of the figure in the document.
    pub place: String,
    /// The program that was run here.
    pub program: String,
    /// The designs whose ratio is compared: old, new.
    pub designs: [String; 2],
    /// Speedup of the new design in the document.
    pub published: RatioRange,
    /// Speedup of the new design here, from medians.
    pub measured: f64,
}

impl Comparison {
    /// Sets `figure` beside the medians of the old and the new design.
    #[must_use]
    pub fn of(figure: &Figure, old: &Measurement, new: &Measurement) -> Comparison {
        Comparison {
            figure: figure.id.clone(),
            what: figure.what.clone(),
            place: figure.place.clone(),
            program: old.program.clone(),
            designs: [old.design.clone(), new.design.clone()],
            published: figure.ratio(),
            measured: old.time.median / new.time.median,
        }
    }
}

impl Report {
    /// Returns the measurement of this program and design.
    #[must_use]
    pub fn measurement(&self, program: &str, design: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|m| m.program == program && m.design == design)
    }

    /// Returns the figure of this key of a program under a design, if it was taken.
    #[must_use]
    pub fn count(&self, program: &str, design: &str, key: impl Borrow<Key>) -> Option<f64> {
        self.measurement(program, design)?.count(key)
    }

    /// Returns the measurements of a program, by design.
    pub(crate) fn of_program(&self, program: &str) -> impl Iterator<Item = &Measurement> {
        self.measurements.iter().filter(move |row| row.program == program)
    }

    /// Returns the programs in the order in which they were measured, each once.
    #[must_use]
    pub fn programs(&self) -> Vec<&str> {
        let mut programs: Vec<&str> = Vec::new();
        for measurement in &self.measurements {
            if !programs.contains(&measurement.program.as_str()) {
                programs.push(&measurement.program);
            }
        }
        programs
    }

    /// Returns the exact claims that did not hold.
    pub fn broken(&self) -> impl Iterator<Item = &Oracle> {
        self.oracles.iter().filter(|oracle| oracle.is_broken())
    }

    /// Returns the reasons why the times of this report are weak evidence, in words; none if they are strong.
    pub(crate) fn weaknesses(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.settings.repeats < 5 {
            let repeats = self.settings.repeats;
            notes
                .push(format!("few runs: {repeats} per row; a median of fewer than 5 says little"));
        }
        let wide: Vec<String> = self
            .measurements
            .iter()
            .filter(|m| m.time.relative_width() > 0.5)
            .map(|m| format!("{}/{}", m.program, m.design))
            .collect();
        if !wide.is_empty() {
            notes.push(format!(
                "noisy host: the range is wider than half the median in {} of {} rows ({})",
                wide.len(),
                self.measurements.len(),
                shortened(&wide, 4)
            ));
        }
        notes.extend(self.undecided());
        notes
    }

    /// Returns a sentence that names the programs in which another design is faster than `ours` beyond the ranges of
    /// both; `None` if there is no such program.
    #[must_use]
    pub fn losses(&self, ours: &str) -> Option<String> {
        // A single run has no range.
        let several = |m: &&Measurement| m.time.samples.len() > 1;
        let mut losses = Vec::new();
        for program in self.programs() {
            let mine = self.measurement(program, ours).filter(several);
            let Some(mine) = mine else { continue };
            let faster = self
                .measurements
                .iter()
                .filter(several)
                .filter(|other| other.program == program && other.time.max < mine.time.min)
                .min_by(|a, b| a.time.median.total_cmp(&b.time.median));
            if let Some(other) = faster {
                let times = ratio(mine.time.median / other.time.median);
                losses.push(format!("{program} ({times} the time of {})", other.design));
            }
        }
        (!losses.is_empty()).then(|| format!("{ours} loses: {}", losses.join(", ")))
    }

    /// Returns a sentence with the number of programs in which the newest design cannot be told apart from each of the
    /// others; `None` if there is no such program.
    fn undecided(&self) -> Option<String> {
        let (newest, others) = self.settings.designs.split_last()?;
        let alike = |program: &&str, design: &str| {
            let times = [design, newest].map(|d| self.measurement(program, d).map(|m| &m.time));
            // A single run has no range that could overlap.
            matches!(times, [Some(a), Some(b)] if a.samples.len() > 1 && a.overlaps(b))
        };
        let counts: Vec<String> = others
            .iter()
            .map(|design| (design, self.programs().iter().filter(|p| alike(p, design)).count()))
            .filter(|(_, count)| *count > 0)
            .map(|(design, count)| format!("{design} in {count}"))
            .collect();
        let programs = self.programs().len();
        (!counts.is_empty()).then(|| {
            let list = counts.join(", ");
            format!("no winner where ranges overlap; of {programs} programs, {newest} and {list}")
        })
    }
}

/// Returns the first `most` names, and the number of the others in words, if there are some.
pub(crate) fn first_few<T>(names: &[T], most: usize) -> (&[T], Option<String>) {
    let (shown, others) = names.split_at(names.len().min(most));
    (shown, (!others.is_empty()).then(|| format!("and {} more", others.len())))
}

/// Returns the first `most` names, joined by commas, and the number of the others.
pub(crate) fn shortened(names: &[impl AsRef<str>], most: usize) -> String {
    let (shown, more) = first_few(names, most);
    let shown: Vec<&str> = shown.iter().map(AsRef::as_ref).collect();
    [Some(shown.join(", ")), more].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::oracle::{ClaimKind, Relation};

    pub(crate) fn measurement(program: &str, design: &str, samples: &[f64]) -> Measurement {
        Measurement {
            counts: Counts::from([(Key::number("steps per search"), 1.5.into())]),
            ..Measurement::new(
                program,
                design,
                10,
                "ns per pair",
                Spread::of(samples.to_vec()).unwrap(),
            )
        }
    }

    pub(crate) fn report() -> Report {
        let designs = ["old", "new"].map(str::to_owned).to_vec();
        let (mode, seed, repeats) = ("compare".to_owned(), 1, 5);
        let settings = Settings {
            mode,
            seed,
            repeats,
            loops: 10,
            pages: 1,
            threads: 2,
            designs,
            ..Settings::default()
        };
        Report {
            scenario: "sample".to_owned(),
            document: "Somebody, 2019".to_owned(),
            settings,
            measurements: vec![
                measurement("walk", "old", &[9.0, 10.0, 11.0]),
                measurement("walk", "new", &[1.0, 1.1, 1.2]),
                measurement("rest", "old", &[2.0, 2.1, 2.2]),
                measurement("rest", "new", &[2.1, 2.2, 9.0]),
            ],
            comparisons: Vec::new(),
            oracles: vec![Oracle::judge(
                "o1",
                ClaimKind::Exact,
                "is one",
                1.0,
                Relation::Equals(1.0),
            )],
            notes: Vec::new(),
            skipped: Vec::new(),
            replay: None,
            frames: None,
            kernels: None,
            elapsed_s: 0.5,
        }
    }

    /// Returns the sample report of these tests under the name of a scenario that exists, for the tests of pages.
    #[cfg(not(packed))]
    pub(crate) fn report_of(scenario: &str) -> Report {
        Report { scenario: scenario.to_owned(), ..report() }
    }

    #[test]
    fn json_gives_the_same_report_back() {
        let report = report();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn overlapping_and_wide_ranges_are_owned_up_to() {
        let notes = report().weaknesses().join("\n");
        assert!(notes.contains("of 2 programs, new and old in 1"), "{notes}");
        assert!(notes.contains("noisy host") && notes.contains("rest/new"), "{notes}");
    }

    #[test]
    fn few_runs_are_owned_up_to() {
        let mut report = report();
        report.settings.repeats = 2;
        assert!(report.weaknesses()[0].starts_with("few runs: 2"));
    }

    #[test]
    fn only_broken_exact_claims_are_counted() {
        let mut report = report();
        assert_eq!(report.broken().count(), 0);
        report.oracles.push(Oracle::judge("o2", ClaimKind::Exact, "", 2.0, Relation::Equals(1.0)));
        report.oracles.push(Oracle::judge("o3", ClaimKind::Ratio, "", 2.0, Relation::Equals(1.0)));
        assert_eq!(report.broken().map(|o| o.id.as_str()).collect::<Vec<_>>(), ["o2"]);
    }
}
