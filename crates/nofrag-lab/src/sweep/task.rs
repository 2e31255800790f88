//! One task: the key that its result is found by, and what it does.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::{Plan, scenario_of};
use crate::key;
use crate::replay::{
    self, Assumptions, Counts, Fidelity, MmapOutcome, PolicyRun, Question, Recorded, Repeat,
    ReplayError, ReplayOptions, ReplayReport, Sample, Shortage, VmapOutcome,
};
use crate::scenario::{Extent, Options, Silent};
use crate::sha256::sha256;
use nofrag_host::trace::{TraceError, Unseen};

/// A task of a plan.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Replay(ReplayTask),
    Scenario(ScenarioTask),
}

/// Work on one recording.
#[derive(Clone, Debug)]
pub(super) struct ReplayTask {
    /// Index of the recording in its plan.
    pub(super) subject: usize,
    pub(super) seed: u64,
    pub(super) work: Work,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// The contents of the recording, and its kernel's own rules under as many seeds: what may be said of it.
    Judge { repeats: u64 },
    /// One policy, such as `linux-6.1:boost=0`, with one size of memory under one seed.
    Run { policy: String, memory_percent: u32, samples: u16 },
}

/// One design of a scenario under one seed.
#[derive(Clone, Debug)]
pub(super) struct ScenarioTask {
    pub(super) scenario: String,
    pub(super) options: Options,
}

/// Everything that decides on a result. Names of files are no part of it.
#[derive(Serialize)]
pub(super) struct Key<'a> {
    version: &'static str,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum What<'a> {
    Recording {
        recording: &'a str,
        seed: u64,
        repeats: u64,
    },
    Run {
        recording: &'a str,
        policy: &'a str,
        memory_percent: u32,
        seed: u64,
        samples: u16,
    },
    Scenario {
        scenario: &'a str,
        design: &'a str,
        mask: Option<&'a str>,
        memory_gib: Option<u64>,
        loops: Option<u64>,
        full: bool,
        seed: u64,
    },
}

/// The findings of a task. Wall times are no part of it: the same task has the same bytes everywhere.
#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Recording(Box<OfRecording>),
    Run(Box<OfRun>),
    Scenario(Vec<OfProgram>),
}

/// The contents of a recording, and the questions that its replay can answer.
#[derive(Serialize)]
struct OfRecording {
    release: Option<String>,
    recorded: Recorded,
    unseen: Unseen,
    fidelity: Option<Fidelity>,
    vmap: Option<VmapOutcome>,
    mmap: Option<MmapOutcome>,
    cautions: Vec<String>,
}

/// A policy under one seed.
#[derive(Serialize)]
struct OfRun {
    managed: u64,
    counts: Counts,
    large_at_end: u64,
    out_of_memory: Option<u64>,
    shortage: Option<Shortage>,
    assumptions: Assumptions,
    timeline: Vec<Sample>,
}

/// The counts of a program of a scenario.
#[derive(Serialize)]
struct OfProgram {
    program: String,
    loops: u64,
    counts: key::Counts,
    series: BTreeMap<key::Key, Vec<f64>>,
    digest: Option<String>,
}

/// A result, as its file has it.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    task: &'a Key<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    /// A fault of the recording or the design, which comes again at each try.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// The reason why a task has no result on this machine; another try may have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotNow(pub(super) String);

impl Task {
    /// Returns the task's name in results and messages: that of its recording or scenario.
    pub(super) fn name<'a>(&'a self, plan: &'a Plan) -> &'a str {
        match self {
            Task::Replay(task) => &plan.subjects[task.subject].name,
            Task::Scenario(task) => &task.scenario,
        }
    }

    /// Returns the task as results have it, and the hash of that: its id.
    pub(super) fn keyed<'a>(&'a self, plan: &'a Plan) -> Result<(String, Key<'a>), NotNow> {
        let what = match self {
            Task::Scenario(ScenarioTask { scenario, options }) => What::Scenario {
                scenario,
                design: &options.designs[0],
                mask: options.mask.as_deref(),
                memory_gib: options.memory.first().copied(),
                loops: options.loops,
                full: options.extent == Extent::Full,
                seed: options.seed.expect("a task has its seed"),
            },
            Task::Replay(ReplayTask { subject, seed, work }) => {
                let digest = plan.subjects[*subject].digest();
                let failed = |why| NotNow(format!("{}: {why}", self.name(plan)));
                let (recording, seed) = (digest.map_err(failed)?, *seed);
                match work {
                    Work::Judge { repeats } => {
                        What::Recording { recording, seed, repeats: *repeats }
                    }
                    Work::Run { policy, memory_percent, samples } => What::Run {
                        recording,
                        policy,
                        memory_percent: *memory_percent,
                        seed,
                        samples: *samples,
                    },
                }
            }
        };
        let key = Key { version: env!("CARGO_PKG_VERSION"), what };
        let text = serde_json::to_vec(&key).expect("a key is plain data");
        Ok((sha256(&text), key))
    }

    /// Carries the task out, and returns the line of its result.
    pub(super) fn line(&self, plan: &Plan) -> Result<String, NotNow> {
        let (id, task) = self.keyed(plan)?;
        let done = match self {
            Task::Scenario(task) => task.run(),
            Task::Replay(task) => match task.run(plan) {
                Err(ReplayError::Trace(
                    why @ (TraceError::File { .. } | TraceError::Budget { .. }),
                )) => return Err(NotNow(why.to_string())),
                done => done.map_err(|why| {
                    let subject = &plan.subjects[task.subject];
                    why.to_string().replace(&subject.input.name(), &subject.name)
                }),
            },
        };
        let (outcome, failed) = match done {
            Ok(outcome) => (Some(outcome), None),
            Err(why) => (None, Some(why)),
        };
        let line = Line { id: &id, task: &task, outcome, failed };
        Ok(serde_json::to_string(&line).expect("a result is plain data") + "\n")
    }
}

impl ReplayTask {
    fn run(&self, plan: &Plan) -> Result<Outcome, ReplayError> {
        let mut options = ReplayOptions {
            trace: plan.subjects[self.subject].source().clone(),
            policies: Vec::new(),
            questions: Vec::new(),
            memory: Vec::new(),
            seed: self.seed,
            repeats: 1,
            repeats_of: Vec::new(),
            against: Vec::new(),
            samples: 2,
            threads: 1,
        };
        match &self.work {
            Work::Judge { repeats } => {
                options.repeats = *repeats;
                let report = replay::replay(&options, &|_| {})?;
                Ok(Outcome::Recording(Box::new(report.into())))
            }
            Work::Run { policy, memory_percent, samples } => {
                options.memory.push(*memory_percent);
                options.samples = usize::from(*samples);
                match policy.contains(':') {
                    true => options.questions.push(Question::parse(policy).expect("it was once")),
                    false => options.policies.push(policy.clone()),
                }
                let run = replay::replay_one(&options)?;
                Ok(Outcome::Run(Box::new(run.into())))
            }
        }
    }
}

impl From<ReplayReport> for OfRecording {
    fn from(report: ReplayReport) -> OfRecording {
        let ReplayReport { release, recorded, unseen, fidelity, vmap, mmap, cautions, .. } = report;
        OfRecording { release, recorded, unseen, fidelity, vmap, mmap, cautions }
    }
}

impl From<PolicyRun> for OfRun {
    fn from(mut run: PolicyRun) -> OfRun {
        let Repeat { counts, large_at_end, out_of_memory, shortage, assumptions, timeline, .. } =
            run.repeats.swap_remove(0);
        let managed = run.managed;
        OfRun { managed, counts, large_at_end, out_of_memory, shortage, assumptions, timeline }
    }
}

impl ScenarioTask {
    fn run(&self) -> Result<Outcome, String> {
        let scenario = scenario_of(&self.scenario)?;
        let report = scenario.run(&self.options, &Silent).map_err(|why| why.to_string())?;
        let rows = report.measurements.into_iter().map(|of| OfProgram {
            program: of.program,
            loops: of.loops,
            counts: of.counts,
            series: of.series,
            digest: of.digest,
        });
        Ok(Outcome::Scenario(rows.collect()))
    }
}
