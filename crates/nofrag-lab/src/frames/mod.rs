//! `frames`: the engine beside real kernels, frame by frame.
//!
//! A *stretch* is a part of a run of an unmodified kernel: its exact state before, every event between, its exact state
//! after (`data/kernel-states/README.md`). The engine is [restored](nofrag::page::PageAllocator::restore) from the
//! state before, under the preset of that kernel, and is given the same requests and frees in the same order. Its
//! answers are compared with the kernel's: the frame of every answer, its zone, each block that went between a per-CPU
//! list and the zone, each event of external fragmentation with all its fields, and at the end every list, position by
//! position. Where the engine differs it is set right, so that the next comparison begins at the kernel's state again;
//! every difference is counted, by cause. The lessons of such stretches stand in docs/sources/pages.md#frames.
//!
//! - `stretch`: folders and files. `state`, `events`: their contents. `follow`: engine and kernel side by side.
//! - `end_state`: the states at the end. `run`: a stretch from beginning to end. `outcome`: its result.
//! - `claims`: claims that must hold. `present`: tables.

mod claims;
mod compaction;
mod end_state;
mod events;
mod follow;
mod lru;
mod names;
mod outcome;
mod present;
mod run;
mod state;
mod stretch;

pub use outcome::{AtEnd, Cause, Followed, FramesReport, Led, Part, Score};

use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use nofrag::page::{FragmentationPolicy, PolicyPreset};

use self::stretch::{Collection, Stretch, StretchError};
use crate::key::Key;
use crate::report::{Measurement, Report, Settings};
use crate::scenario::{
    Declaration, Options, ProgramInfo, Progress, RunError, Scenario, Special, choose_programs,
};
use crate::stats::Spread;

/// The scenario that follows real kernels frame by frame. Each preset can follow any stretch, although only one is
/// right.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: |report| report.frames.as_deref().map(present::sections).unwrap_or_default(),
    special: Special {
        programs: Some(|| {
            stretch::find(None).map(|found| programs(&found.stretches)).unwrap_or_default()
        }),
        missing: |options| {
            stretch::find(options.states.as_deref()).err().map(|error| error.to_string())
        },
        ..Special::NONE
    },
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = settings(options, &plan);
    let mut report = SCENARIO.report(settings);
    let mut frames =
        FramesReport { folder: plan.folder.display().to_string(), stretches: Vec::new() };
    progress.begin(plan.runs.len() as u64);
    for Run { stretch, kernel, preset } in &plan.runs {
        progress.step(&stretch.name);
        let start = Instant::now();
        let followed = run::follow(stretch, kernel, *preset)
            .map_err(|error| RunError::input(&stretch.name, error))?;
        report.measurements.push(measurement(&followed, start));
        if kernel != preset.name {
            report.notes.push(format!("{}: {kernel} follows {}", stretch.name, preset.name));
        }
        frames.stretches.push(followed);
    }
    progress.end();
    claims::judge(&frames, &mut report.oracles);
    report.notes.push(
        "the bulk interface has no trace event: its pages are compared in the order in which the calls returned, \
         and counted apart; no event tells which entries of free lists a quick search of compaction moved, and \
         when a run of kswapd ended that did not go to sleep before the end of the stretch; no event tells for \
         which zone kswapd was woken, why a pageblock was left out, or a boost: those are compared at the end \
         alone; an answer about compaction for no order (-1) tests nothing"
            .to_owned(),
    );
    report.frames = Some(Box::new(frames));
    Ok(report)
}

/// A stretch under a set of rules.
struct Run {
    stretch: Stretch,
    kernel: String,
    preset: PolicyPreset,
}

/// The runs of a report.
struct FramesPlan {
    folder: std::path::PathBuf,
    runs: Vec<Run>,
}

/// Describes the stretches for lists. Their names are leaked, to live as long as the command.
fn programs(stretches: &[Stretch]) -> Vec<ProgramInfo> {
    let info = |(nth, stretch): (usize, &Stretch)| ProgramInfo {
        name: stretch.name.clone().leak(),
        bit: 1 << nth,
        body: claims::about(&stretch.name),
    };
    stretches.iter().enumerate().map(info).collect()
}

fn plan(options: &Options) -> Result<FramesPlan, RunError> {
    let found = stretch::find(options.states.as_deref().map(Path::new));
    let Collection { folder, stretches } = match (found, &options.states) {
        (Ok(found), _) => found,
        (Err(error), Some(_)) => {
            return Err(RunError::option("states", format!("leads nowhere: {error}")));
        }
        (Err(error), None) => return Err(RunError::input(SCENARIO.name, error)),
    };
    let chosen =
        choose_programs(&programs(&stretches), |program| *program, options.mask.as_deref())?;
    let designs = SCENARIO.choose_designs(options)?;
    let mut runs = Vec::new();
    for stretch in stretches {
        if !chosen.iter().any(|info| info.name == stretch.name) {
            continue;
        }
        let bad = |error: StretchError| RunError::input(&stretch.name, error);
        if options.designs.is_empty() {
            let (kernel, preset) = (stretch.kernel().map_err(bad)?, stretch.preset().map_err(bad)?);
            runs.push(Run { stretch, kernel, preset });
            continue;
        }
        for design in &designs {
            let preset = FragmentationPolicy::preset(design).expect("it is a preset's name");
            let kernel = stretch.kernel().unwrap_or_else(|_| "an unknown kernel".to_owned());
            runs.push(Run { stretch: stretch.clone(), kernel, preset });
        }
    }
    // The position of the repository is this machine's business.
    let folder = options.states.as_ref().map_or_else(|| stretch::SHIPPED.into(), |_| folder);
    Ok(FramesPlan { folder, runs })
}

fn settings(options: &Options, plan: &FramesPlan) -> Settings {
    let mut designs: Vec<String> = Vec::new();
    for run in &plan.runs {
        if !designs.iter().any(|name| name == run.preset.name) {
            designs.push(run.preset.name.to_owned());
        }
    }
    Settings {
        conditions: vec![
            format!("states from {}", plan.folder.display()),
            format!("rules of {}", designs.join(", ")),
        ],
        designs,
        ..Settings::once(options.mode, 0)
    }
}

/// Returns the counts of a stretch by name, and the time that one event took here.
fn measurement(followed: &Followed, start: Instant) -> Measurement {
    let nanos = start.elapsed().as_nanos() as f64 / followed.events.max(1) as f64;
    let answers = followed.answers();
    Measurement {
        counts: [
            (Key::count("requests"), followed.requests),
            (Key::count("answers"), answers.of),
            (Key::count("answers with the kernel's frame"), answers.same),
            (Key::count("differences"), followed.causes.values().sum()),
        ]
        .map(|(key, value)| (key, value.into()))
        .into(),
        ..Measurement::new(
            &followed.stretch,
            &followed.preset,
            followed.events,
            "ns per event",
            Spread::of(vec![nanos]).expect("there is one sample"),
        )
    }
}

#[cfg(all(test, not(packed)))]
mod tests;
