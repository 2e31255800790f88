//! `recording`: the requests of a real kernel, which come with nofrag, under other policies and with less memory.
//!
//! The recording is of Linux 6.1 in a guest of 768 MiB (`data/recordings/`). Its times say nothing about speed, since
//! the guest was emulated; its counts, orders, flags and frames are the kernel's own.

mod claims;

use std::cell::Cell;
use std::sync::LazyLock;

use nofrag::page::Migratetype;
use nofrag_host::trace::Progressed;
use serde::Deserialize;

use crate::key::{self, Key};
use crate::replay::{self, Input, PolicyRun, Repeat, ReplayOptions, ReplayReport};
use crate::report::{Measurement, Report, Settings};
use crate::scenario::{
    Declaration, Extent, Options, Progress, RunError, Scenario, Spec, Special, choose_programs,
    page_policy,
};
use crate::stats::Spread;

/// A size of memory, as a program of the scenario.
#[derive(Clone, Copy, Deserialize)]
struct MemorySize {
    percent: u32,
}

static SIZES: LazyLock<Vec<Spec<MemorySize>>> = LazyLock::new(|| SCENARIO.specs());

/// Samples over time: the columns of a picture.
const SAMPLES: usize = 72;

/// The designs and sizes of one run of the scenario.
struct RecordedPlan {
    designs: Vec<&'static str>,
    sizes: Vec<Spec<MemorySize>>,
    seed: u64,
    threads: usize,
}

/// The scenario of the recording that comes with nofrag.
pub(crate) static SCENARIO: Scenario = Scenario {
    declared: LazyLock::new(|| Declaration::of(include_str!("scenario.toml"))),
    run,
    present: |report| report.replay.as_deref().map(replay::sections).unwrap_or_default(),
    special: Special { shown: page_policy, ..Special::NONE },
};

fn run(options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
    let plan = plan(options)?;
    let settings = settings(options, &plan);
    let mut report = SCENARIO.report(settings);
    let read = Cell::new(None);
    let replay = replay::replay(&replay_options(&plan), &|Progressed { events, of }| {
        let before = read.replace(Some(events));
        if before.is_none() {
            progress.begin(of.unwrap_or(0));
        }
        progress.steps(events - before.unwrap_or(0), "events replayed");
    });
    let failed = |error| RunError::engine(&plan.designs.join(", "), SCENARIO.name, error);
    let replay = replay.map_err(failed)?;
    progress.end();
    for run in &replay.runs {
        report.measurements.push(measurement(run, &replay));
    }
    claims::judge(&replay, &mut report.oracles);
    report.notes.push(
        "the guest was emulated, so times of the recording say nothing about speed; its \
         counts, orders, flags and frames are the kernel's own"
            .to_owned(),
    );
    report.replay = Some(Box::new(replay));
    Ok(report)
}

fn plan(options: &Options) -> Result<RecordedPlan, RunError> {
    let mut sizes = choose_programs(&SIZES, |size| size.info, options.mask.as_deref())?;
    let seconds = options.extent == Extent::Subset && options.mask.is_none();
    sizes.retain(|size| !seconds || size.percent <= 100);
    Ok(RecordedPlan {
        designs: SCENARIO.choose_designs(options)?,
        sizes,
        seed: options.seed.unwrap_or(1),
        threads: options.threads.unwrap_or(0),
    })
}

fn settings(options: &Options, plan: &RecordedPlan) -> Settings {
    let sizes: Vec<String> = plan.sizes.iter().map(|size| format!("{} %", size.percent)).collect();
    Settings {
        threads: if plan.threads == 0 { num_threads() } else { plan.threads },
        designs: plan.designs.iter().map(|&design| design.to_owned()).collect(),
        conditions: vec![format!("seed {}", plan.seed), format!("memory {}", sizes.join(", "))],
        ..Settings::once(options.mode, plan.seed)
    }
}

fn num_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn replay_options(plan: &RecordedPlan) -> ReplayOptions {
    ReplayOptions {
        trace: Input::Shipped,
        policies: plan.designs.iter().map(|&design| design.to_owned()).collect(),
        questions: Vec::new(),
        memory: plan.sizes.iter().map(|size| size.percent).collect(),
        seed: plan.seed,
        repeats: replay::REPEATS,
        repeats_of: Vec::new(),
        against: Vec::new(),
        samples: SAMPLES,
        threads: plan.threads,
    }
}

/// A count in the record: its key, and its value in a run.
type Kept = (Key, fn(&Repeat) -> f64);

const COUNTS: [Kept; 14] = [
    (Key::count("requests"), |it| sum(&it.counts.requests)),
    (Key::count("served"), |it| sum(&it.counts.served)),
    (Key::count("frees"), |it| it.counts.frees as f64),
    (Key::count("external fragmentation events"), |it| sum(&it.counts.extfrag)),
    (Key::count("of them unmovable"), |it| {
        it.counts.extfrag[Migratetype::Unmovable.index()] as f64
    }),
    (Key::count("of them below order 4"), |it| sum(&it.counts.serious)),
    (Key::count("mistyped allocations"), |it| sum(&it.counts.mistyped)),
    (Key::count("pageblocks claimed"), |it| it.counts.claims as f64),
    (Key::count("pages moved"), |it| it.counts.moved as f64),
    (Key::count("pages reclaimed by callers"), |it| it.counts.reclaimed_direct as f64),
    (Key::count("pages reclaimed by kswapd"), |it| it.counts.reclaimed_kswapd as f64),
    (Key::count("direct reclaims"), |it| it.counts.direct_reclaims as f64),
    (Key::count("stalls"), |it| it.counts.stalls as f64),
    (Key::count("frees that nothing explains"), |it| it.assumptions.unknown_frees as f64),
];

fn sum(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64
}

/// Returns a run as a measurement: its counts by name, their medians and spreads over all seeds, and its course over
/// time with the first seed.
fn measurement(run: &PolicyRun, replay: &ReplayReport) -> Measurement {
    let program = SIZES.iter().find(|size| size.percent == run.memory_percent);
    let events = replay.recorded.events.max(1) as f64;
    let spread = |of: fn(&Repeat) -> f64| {
        Spread::of(run.repeats.iter().map(of).collect()).expect("there is a start value")
    };
    let nanos = run.repeats.iter().map(|repeat| repeat.wall_nanos as f64 / events).collect();
    let course =
        |value: fn(&replay::Sample) -> f64| run.first().timeline.iter().map(value).collect();
    Measurement {
        counts: key::counts(COUNTS.map(|(key, of)| (key, spread(of).median))),
        series: [
            (Key::count("free pages"), course(|sample| sample.free as f64)),
            (
                Key::count("free pages in whole pageblocks"),
                course(|sample| sample.free_in_pageblocks as f64),
            ),
        ]
        .into(),
        spreads: COUNTS.map(|(key, of)| (key, spread(of))).into(),
        ..Measurement::new(
            program.map_or("", |size| size.info.name),
            &run.policy,
            replay.recorded.events,
            "ns per event",
            Spread::of(nanos).expect("there is a start value"),
        )
    }
}

#[cfg(test)]
mod tests {
    use nofrag::page::FragmentationPolicy;

    use super::*;

    #[test]
    fn every_design_is_a_preset() {
        assert_eq!(SCENARIO.designs, replay::DEFAULT_POLICIES);
        for name in replay::DEFAULT_POLICIES {
            assert_eq!(FragmentationPolicy::preset(name).expect("it is one").name, name);
        }
    }
}
