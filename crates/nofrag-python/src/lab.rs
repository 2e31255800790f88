//! Replays as tables; scenarios and hosts as JSON text, which Python takes apart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, UInt64Builder};
use arrow_array::{ArrayRef, StringArray, UInt32Array, UInt64Array};
use nofrag::page::FragmentationPolicy;
use nofrag_host::machine::{self, Frames};
use nofrag_host::source::Root;
use nofrag_lab::replay::{self as lab, Input, Question, ReplayOptions, ReplayReport};
use nofrag_lab::scenario::{Extent, Options, Silent};
use nofrag_show::Schema;
use pyo3::prelude::*;
use serde_json::Value;

use crate::error;
use crate::table::Table;

/// Replays a recording; returns a row for each run and seed, and the whole report as JSON.
#[pyfunction]
#[pyo3(signature = (recording, policies, settings, memory, seed, repeats, samples, threads, progress))]
#[expect(clippy::too_many_arguments, reason = "Python names and defaults them")]
pub(crate) fn replay(
    py: Python<'_>,
    recording: Option<PathBuf>,
    policies: Vec<String>,
    settings: Vec<String>,
    memory: Vec<u32>,
    seed: u64,
    repeats: u64,
    samples: usize,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Table, String)> {
    let questions: Result<Vec<Question>, String> =
        settings.iter().map(|text| Question::parse(text)).collect();
    let options = ReplayOptions {
        trace: recording.map_or(Input::Shipped, Input::File),
        policies,
        questions: questions.map_err(error)?,
        memory,
        seed,
        repeats,
        repeats_of: Vec::new(),
        against: Vec::new(),
        samples: samples.max(2),
        threads,
    };
    py.detach(|| {
        let tell = |passed: nofrag_host::trace::Progressed| {
            if let Some(told) = &progress {
                // A progress bar that fails must not end a replay.
                Python::attach(|py| drop(told.call1(py, (passed.events, passed.of))));
            }
        };
        let report = lab::replay(&options, &tell).map_err(error)?;
        let json = serde_json::to_string(&Schema::REPLAY.of(&report)).map_err(error)?;
        Ok((table(&report)?, json))
    })
}

/// A column of a replay's table.
#[derive(Default)]
struct Column {
    numbers: Vec<Option<u64>>,
    lists: ListBuilder<UInt64Builder>,
}

/// Returns a row for each run and seed: policy, memory, seed, and every figure of it by its name in the report.
fn table(report: &ReplayReport) -> PyResult<Table> {
    let (mut policies, mut memory, mut seeds) = (Vec::new(), Vec::new(), Vec::new());
    let mut columns: BTreeMap<String, Column> = BTreeMap::new();
    for run in &report.runs {
        for (number, repeat) in run.repeats.iter().enumerate() {
            policies.push(run.policy.as_str());
            memory.push(run.memory_percent);
            seeds.push(report.seed.wrapping_add(number as u64));
            let counts = serde_json::to_value(&repeat.counts).map_err(error)?;
            let rest = [
                ("managed", Some(run.managed)),
                ("large_at_end", Some(repeat.large_at_end)),
                ("out_of_memory", repeat.out_of_memory),
            ];
            for (name, value) in rest {
                columns.entry(name.to_owned()).or_default().numbers.push(value);
            }
            let Value::Object(counts) = counts else { continue };
            for (name, value) in counts {
                let column = columns.entry(name).or_default();
                match value {
                    Value::Array(values) => {
                        column.lists.append_value(values.iter().map(Value::as_u64));
                    }
                    value => column.numbers.push(value.as_u64()),
                }
            }
        }
    }
    let mut all: Vec<(String, ArrayRef)> = vec![
        ("policy".to_owned(), Arc::new(StringArray::from(policies))),
        ("memory_percent".to_owned(), Arc::new(UInt32Array::from(memory))),
        ("seed".to_owned(), Arc::new(UInt64Array::from(seeds))),
    ];
    all.extend(columns.into_iter().map(|(name, mut column)| {
        let values: ArrayRef = match column.numbers.is_empty() {
            true => Arc::new(column.lists.finish()),
            false => Arc::new(UInt64Array::from(column.numbers)),
        };
        (name, values)
    }));
    Table::of(all).map_err(error)
}

/// Runs a scenario; returns its report as JSON.
#[pyfunction]
#[pyo3(signature = (scenario, designs, mask, memory, loops, repeat, seed, threads, full))]
#[expect(clippy::too_many_arguments, reason = "Python names and defaults them")]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &str,
    designs: Vec<String>,
    mask: Option<String>,
    memory: Vec<u64>,
    loops: Option<u64>,
    repeat: Option<usize>,
    seed: Option<u64>,
    threads: Option<usize>,
    full: bool,
) -> PyResult<String> {
    let found = nofrag_lab::scenarios().iter().find(|each| each.name == scenario);
    let found = found.ok_or_else(|| {
        error(format!("there is no scenario {scenario:?}; there are {}", scenarios().join(", ")))
    })?;
    let extent = if full { Extent::Full } else { Extent::Subset };
    let options = Options {
        designs,
        mask,
        memory,
        loops,
        repeat,
        seed,
        threads,
        extent,
        ..Options::default()
    };
    let report = py.detach(|| found.run(&options, &Silent)).map_err(error)?;
    serde_json::to_string(&report).map_err(error)
}

/// The names of the scenarios.
#[pyfunction]
pub(crate) fn scenarios() -> Vec<&'static str> {
    nofrag_lab::scenarios().iter().map(|each| each.name).collect()
}

/// The names of the policies of pages, oldest first.
#[pyfunction]
pub(crate) fn policies() -> Vec<&'static str> {
    FragmentationPolicy::PRESETS.iter().map(|preset| preset.name).collect()
}

/// The policies that are compared when none is named.
#[pyfunction]
pub(crate) fn default_policies() -> Vec<&'static str> {
    lab::DEFAULT_POLICIES.to_vec()
}

/// Looks at this host, or at a captured one; returns what `nofrag host --json` prints.
#[pyfunction]
#[pyo3(signature = (root, frames))]
pub(crate) fn host(py: Python<'_>, root: Option<PathBuf>, frames: bool) -> PyResult<String> {
    if let Some(path) = root.as_ref().filter(|path| !path.join("proc").is_dir()) {
        return Err(error(format!(
            "{}: no captured host: `nofrag host capture DIR` makes one",
            path.display()
        )));
    }
    let root = root.map_or(Root::Live, Root::Captured);
    let frames = if frames { Frames::Read } else { Frames::LeftOut };
    let machine = py.detach(|| machine::survey(&machine::read(&root, frames))).map_err(error)?;
    serde_json::to_string(&Schema::HOST.of(&machine)).map_err(error)
}
