//! The file of a plan, and the tasks that it expands to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nofrag::page::FragmentationPolicy;
use serde::Deserialize;

use super::SweepError;
use super::task::{NotNow, ReplayTask, ScenarioTask, Task, Work};
use crate::replay::{DEFAULT_POLICIES, Input, Question, REPEATS, Settings, name_of};
use crate::scenario::{Extent, Options, Scenario, scenarios};

/// The scenarios whose counts follow from the seed alone. The others time this machine, ask its kernel, or have an
/// order of threads in their counts: no two runs of them have the same bytes.
pub(super) const REPEATABLE: [&str; 4] =
    ["mmap-holes-2005", "vmap-areas-2019", "vmap-blocks-2023", "extfrag-2018"];

/// The name of the recording that comes with nofrag, in a plan.
const SHIPPED: &str = "shipped";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    #[serde(default)]
    replay: Vec<ReplayPart>,
    #[serde(default)]
    scenario: Vec<ScenarioPart>,
}

/// Recordings, each under every policy, setting, size of memory and seed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayPart {
    recordings: Vec<String>,
    #[serde(default = "default_policies")]
    policies: Vec<String>,
    /// As `replay --set` takes them; without a policy and its colon they are meant for each of `policies`.
    #[serde(default)]
    settings: Vec<String>,
    #[serde(default = "whole_memory")]
    memory: Vec<u32>,
    #[serde(default = "first_seed")]
    seed: u64,
    #[serde(default = "repeats")]
    repeats: u64,
    #[serde(default = "samples")]
    samples: u16,
}

/// A scenario, under each of its designs, sizes of memory and seeds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioPart {
    name: String,
    #[serde(default)]
    designs: Vec<String>,
    mask: Option<String>,
    /// In GiB, as `run --memory` has it.
    #[serde(default)]
    memory: Vec<u64>,
    loops: Option<u64>,
    #[serde(default)]
    full: bool,
    #[serde(default = "first_seed")]
    seed: u64,
    #[serde(default = "repeats")]
    repeats: u64,
}

fn default_policies() -> Vec<String> {
    DEFAULT_POLICIES.map(str::to_owned).to_vec()
}

fn whole_memory() -> Vec<u32> {
    vec![100]
}

const fn first_seed() -> u64 {
    1
}

const fn repeats() -> u64 {
    REPEATS
}

/// The state at the start and at the end: a course has a sample for each moment of it, in each of many lines.
const fn samples() -> u16 {
    2
}

/// A recording of a plan.
#[derive(Debug)]
pub(super) struct Subject {
    /// Its name in results: the path as the plan has it, or as it completes the plan's pattern.
    pub(super) name: String,
    pub(super) input: Input,
    /// SHA-256 of its bytes, once somebody has asked.
    digest: OnceLock<String>,
    /// Its events, where somebody holds them.
    held: OnceLock<Input>,
}

impl Subject {
    fn new(name: String, input: Input) -> Subject {
        Subject { name, input, digest: OnceLock::new(), held: OnceLock::new() }
    }

    /// Returns what tasks read.
    pub(super) fn source(&self) -> &Input {
        self.held.get().unwrap_or(&self.input)
    }

    /// Returns the SHA-256 of the recording's bytes.
    pub(super) fn digest(&self) -> io::Result<&str> {
        if let Some(known) = self.digest.get() {
            return Ok(known);
        }
        let found = self.input.digest()?;
        Ok(self.digest.get_or_init(|| found))
    }
}

/// All tasks of a sweep, in the order of its results.
#[derive(Debug)]
pub struct Plan {
    pub(super) subjects: Vec<Subject>,
    pub(super) tasks: Vec<Task>,
}

impl Plan {
    /// Reads a plan; names of recordings are relative to its folder.
    ///
    /// # Errors
    /// [`SweepError::Plan`] with what is wrong in it, [`SweepError::File`] where it cannot be read.
    pub fn read(path: &Path) -> Result<Plan, SweepError> {
        let text = fs::read_to_string(path).map_err(SweepError::file(path))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Plan::parse(&text, folder).map_err(|why| SweepError::Plan(path.to_owned(), why))
    }

    /// Returns the number of tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns true if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns the recording or scenario of a task.
    ///
    /// # Panics
    /// As [`line`](Self::line).
    #[must_use]
    pub fn name(&self, task: usize) -> &str {
        self.tasks[task].name(self)
    }

    /// Holds the events of a task's recording in memory from now on, so that its tasks do not read the file again; a
    /// task of a scenario has none. 80 bytes for each event.
    ///
    /// # Errors
    /// [`SweepError::Unread`] where it cannot be read, or needs more memory than reading it may take.
    ///
    /// # Panics
    /// As [`line`](Self::line).
    pub fn hold(&self, task: usize) -> Result<(), SweepError> {
        let Task::Replay(task) = &self.tasks[task] else { return Ok(()) };
        let subject = &self.subjects[task.subject];
        if subject.held.get().is_none() {
            let held = subject.input.held().map_err(|why| SweepError::Unread(why.to_string()))?;
            // Another thread may have been first, with the same events.
            subject.held.get_or_init(|| held);
        }
        Ok(())
    }

    /// Carries out one task, and returns the line that [`merge`](super::merge) writes of it.
    ///
    /// # Errors
    /// [`SweepError::Unread`] where it cannot be done here: another try may succeed.
    ///
    /// # Panics
    /// If the plan has no such task.
    pub fn line(&self, task: usize) -> Result<String, SweepError> {
        let task = &self.tasks[task];
        let line = task.line(self).map_err(|NotNow(why)| SweepError::Unread(why))?;
        Ok(super::named(task.name(self), &line).expect("a line is an object"))
    }

    pub(super) fn parse(text: &str, folder: &Path) -> Result<Plan, String> {
        let file: PlanFile = toml::from_str(text).map_err(|why| why.to_string())?;
        let mut plan = Plan { subjects: Vec::new(), tasks: Vec::new() };
        for part in &file.replay {
            plan.add_replays(part, folder)?;
        }
        for part in &file.scenario {
            plan.add_scenarios(part)?;
        }
        if plan.tasks.is_empty() {
            return Err("nothing to do: it names no recordings under [[replay]] and no \
                        [[scenario]]"
                .to_owned());
        }
        Ok(plan)
    }

    fn add_replays(&mut self, part: &ReplayPart, folder: &Path) -> Result<(), String> {
        let percent = |memory: &&u32| !(1..=1000).contains(*memory);
        if let Some(wrong) = part.memory.iter().find(percent) {
            return Err(format!("memory = {wrong}: a size is a percentage, from 1 to 1000"));
        }
        if part.samples < 2 || !(1..=100_000).contains(&part.repeats) {
            return Err("samples are 2 or more, and repeats from 1 to 100000".to_owned());
        }
        let asked = asked(part)?;
        for name in &part.recordings {
            for (name, input) in found(name, folder)? {
                let subject = self.subjects.len();
                self.subjects.push(Subject::new(name, input));
                let task = |seed, work| Task::Replay(ReplayTask { subject, seed, work });
                self.tasks.push(task(part.seed, Work::Judge { repeats: part.repeats }));
                for policy in &asked {
                    for &memory_percent in &part.memory {
                        self.tasks.extend((0..part.repeats).map(|n| {
                            let (policy, samples) = (policy.clone(), part.samples);
                            let work = Work::Run { policy, memory_percent, samples };
                            task(part.seed.wrapping_add(n), work)
                        }));
                    }
                }
            }
        }
        Ok(())
    }

    fn add_scenarios(&mut self, part: &ScenarioPart) -> Result<(), String> {
        let scenario = scenario_of(&part.name)?;
        let known = &scenario.designs;
        let meant = |name: &String| {
            let design = scenario.design_of(name);
            design.ok_or_else(|| {
                format!("{} has no design {name:?}; it has {}", part.name, known.join(", "))
            })
        };
        let designs: Vec<&'static str> = match part.designs.as_slice() {
            [] => known.clone(),
            some => some.iter().map(meant).collect::<Result<_, _>>()?,
        };
        let sizes: Vec<Vec<u64>> = match part.memory.as_slice() {
            [] => vec![Vec::new()],
            some => some.iter().map(|&size| vec![size]).collect(),
        };
        for design in designs {
            for memory in &sizes {
                self.tasks.extend((0..part.repeats).map(|n| {
                    let options = Options {
                        designs: vec![design.to_owned()],
                        mask: part.mask.clone(),
                        memory: memory.clone(),
                        loops: part.loops,
                        extent: if part.full { Extent::Full } else { Extent::Subset },
                        seed: Some(part.seed.wrapping_add(n)),
                        repeat: Some(1),
                        threads: Some(1),
                        ..Options::default()
                    };
                    Task::Scenario(ScenarioTask { scenario: part.name.clone(), options })
                }));
            }
        }
        Ok(())
    }
}

/// Returns the scenario of a name, if its results have the same bytes in every run.
pub(super) fn scenario_of(name: &str) -> Result<&'static Scenario, String> {
    let found = scenarios().iter().find(|each| each.name == name);
    let found = found.filter(|_| REPEATABLE.contains(&name));
    found.copied().ok_or_else(|| {
        let known = REPEATABLE.join(", ");
        format!(
            "a sweep takes scenarios whose counts depend on the seed alone: {known}; not {name:?}"
        )
    })
}

/// Returns the names of policies with the recorded host's settings, then of those with others.
fn asked(part: &ReplayPart) -> Result<Vec<String>, String> {
    let mut asked: Vec<String> = Vec::new();
    let mut add = |policy: &str, settings: &Settings| {
        let name = name_of(policy, settings);
        if !asked.contains(&name) {
            asked.push(name);
        }
    };
    for name in &part.policies {
        let preset = FragmentationPolicy::preset(name).map_err(|why| format!("{name}: {why}"))?;
        add(preset.name, &Settings::default());
    }
    for text in &part.settings {
        let texts = match text.contains(':') {
            true => vec![text.clone()],
            false => part.policies.iter().map(|policy| format!("{policy}:{text}")).collect(),
        };
        for text in texts {
            let question = Question::parse(&text).map_err(|why| format!("{text}: {why}"))?;
            question.choices().iter().for_each(|each| add(question.preset().name, each));
        }
    }
    Ok(asked)
}

/// Returns the recordings that a plan's entry names: one, or those in a folder whose names fit its `*`, sorted.
fn found(entry: &str, folder: &Path) -> Result<Vec<(String, Input)>, String> {
    if entry == SHIPPED {
        return Ok(vec![(SHIPPED.to_owned(), Input::Shipped)]);
    }
    let Some((before, after)) = entry.split_once('*') else {
        let path = folder.join(entry);
        return if path.is_dir() {
            Err(format!(
                "{entry} is a folder: name {entry}/*.nofrag for all recordings in it, or \
                         make one of raw pages with `nofrag trace convert`"
            ))
        } else {
            Ok(vec![(entry.to_owned(), Input::File(path))])
        };
    };
    if after.contains(['*', '/']) {
        return Err(format!("{entry}: one * is allowed, in the name behind the last /"));
    }
    let (above, begin) =
        before.rsplit_once('/').map_or(("", before), |(above, name)| (above, name));
    let place: PathBuf = match before.starts_with('/') {
        true => Path::new("/").join(above),
        false => folder.join(above),
    };
    let place = if place.as_os_str().is_empty() { PathBuf::from(".") } else { place };
    let listed = fs::read_dir(&place).map_err(|why| format!("{}: {why}", place.display()))?;
    let fits = |name: &String| {
        name.len() >= begin.len() + after.len() && name.starts_with(begin) && name.ends_with(after)
    };
    let names = listed.filter_map(|each| each.ok()?.file_name().into_string().ok()).filter(fits);
    let mut names: Vec<String> = names.filter(|name| place.join(name).is_file()).collect();
    names.sort_unstable();
    if names.is_empty() {
        return Err(format!("{entry}: no file in {} fits", place.display()));
    }
    let slash = &before[..before.len() - begin.len()];
    let named = |name: String| (format!("{slash}{name}"), Input::File(place.join(name)));
    Ok(names.into_iter().map(named).collect())
}
