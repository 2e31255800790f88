//! `recording`: the requests of a real kernel, which come with nofrag, under other policies and with less memory.
//!
//! The recording is of Linux 6.1 in a guest of 768 MiB (`data/recordings/`). Its times say nothing about speed, since
//! the guest was emulated; its counts, orders, flags and frames are the kernel's own.

mod claims;

use std::time::Instant;

use nofrag::page::{FragmentationPolicy, Migratetype};

use crate::render::Section;
use crate::replay::{self, Input, PolicyRun, ReplayOptions, ReplayReport};
use crate::report::{Measurement, Report, Settings};
use crate::scenario::{
    Extent, Mode, Options, ProgramInfo, Progress, RunError, Scenario, choose_designs,
    choose_programs,
};
use crate::shortfall::Expected;
use crate::stats::Spread;

/// The scenario.
#[derive(Clone, Copy, Debug)]
pub struct RecordedGuest;

const DOCUMENT: &str =
    "a recording of Linux 6.1.0-53-cloud-amd64, 768 MiB, 2 CPUs (comes with nofrag)";

/// A size of memory.
struct Size {
    info: ProgramInfo,
    percent: u32,
}

const fn size(bit: u64, name: &'static str, percent: u32, body: &'static str) -> Size {
    Size { info: ProgramInfo { name, bit, body }, percent }
}

const SIZES: [Size; 3] = [
    size(1, "as-recorded", 100, "the requests, with as much memory as the guest had"),
    size(2, "less-memory", 90, "the same with nine tenths of it"),
    size(4, "more-memory", 150, "the same with half as much again"),
];

/// Samples over time: the columns of a picture.
const SAMPLES: usize = 72;

/// What is run.
struct Plan {
    designs: Vec<&'static str>,
    sizes: Vec<&'static Size>,
    seed: u64,
    threads: usize,
}

impl Scenario for RecordedGuest {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn about(&self) -> &'static str {
        "a real kernel's requests under other policies"
    }

    fn document(&self) -> &'static str {
        DOCUMENT
    }

    fn designs(&self) -> &'static [&'static str] {
        &replay::DEFAULT_POLICIES
    }

    fn shown(&self, design: &'static str) -> String {
        let preset = FragmentationPolicy::preset(design);
        preset.map_or_else(|_| design.to_owned(), |preset| preset.to_string())
    }

    fn programs(&self) -> Vec<ProgramInfo> {
        SIZES.iter().map(|size| size.info).collect()
    }

    fn expected(&self) -> Expected {
        Expected::declared(include_str!("expected.toml"))
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Report, RunError> {
        let begin = Instant::now();
        let plan = plan(options)?;
        let settings = settings(options, &plan);
        let mut report = Report::new(self.name(), DOCUMENT.to_owned(), settings);
        progress.begin(1);
        progress.step("replaying");
        let replay =
            replay::replay(&replay_options(&plan), &|_| {}).map_err(|error| RunError::Engine {
                design: plan.designs.join(", "),
                program: "recording".to_owned(),
                why: error.to_string(),
            })?;
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
        report.elapsed_s = begin.elapsed().as_secs_f64();
        Ok(report)
    }

    fn present(&self, report: &Report) -> Vec<Section> {
        report.replay.as_deref().map(replay::sections).unwrap_or_default()
    }
}

fn plan(options: &Options) -> Result<Plan, RunError> {
    let refuse = |option, why: &str| Err(RunError::BadOption { option, why: why.to_owned() });
    if options.mode != Mode::Compare {
        return refuse("mode", "must be compare in recording, which has no other");
    }
    let infos: Vec<ProgramInfo> = SIZES.iter().map(|size| size.info).collect();
    let chosen = choose_programs(&infos, options.mask.as_deref())?;
    let seconds = options.extent == Extent::Subset && options.mask.is_none();
    let sizes = SIZES.iter().filter(|size| chosen.contains(&size.info));
    Ok(Plan {
        designs: choose_designs(&replay::DEFAULT_POLICIES, &options.designs)?,
        sizes: sizes.filter(|size| !seconds || size.percent <= 100).collect(),
        seed: options.seed.unwrap_or(1),
        threads: options.threads.unwrap_or(0),
    })
}

fn settings(options: &Options, plan: &Plan) -> Settings {
    let sizes: Vec<String> = plan.sizes.iter().map(|size| format!("{} %", size.percent)).collect();
    Settings {
        mode: options.mode.name().to_owned(),
        seed: plan.seed,
        repeats: 1,
        loops: 1,
        pages: 1,
        threads: if plan.threads == 0 { num_threads() } else { plan.threads },
        designs: plan.designs.iter().map(|&design| design.to_owned()).collect(),
        conditions: vec![format!("seed {}", plan.seed), format!("memory {}", sizes.join(", "))],
    }
}

fn num_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn replay_options(plan: &Plan) -> ReplayOptions {
    ReplayOptions {
        trace: Input::Shipped,
        policies: plan.designs.iter().map(|&design| design.to_owned()).collect(),
        questions: Vec::new(),
        memory: plan.sizes.iter().map(|size| size.percent).collect(),
        seed: plan.seed,
        repeats: replay::REPEATS,
        samples: SAMPLES,
        threads: plan.threads,
    }
}

/// A run as the record keeps it: its counts by name, its course over time.
fn measurement(run: &PolicyRun, replay: &ReplayReport) -> Measurement {
    let counts = &run.counts;
    let sum = |values: &[u64]| values.iter().sum::<u64>() as f64;
    let program = SIZES.iter().find(|size| size.percent == run.memory_percent);
    let nanos = run.wall_nanos as f64 / replay.recorded.events.max(1) as f64;
    let course = |value: fn(&replay::Sample) -> f64| run.timeline.iter().map(value).collect();
    Measurement {
        program: program.map_or("", |size| size.info.name).to_owned(),
        design: run.policy.clone(),
        loops: replay.recorded.events,
        unit: "ns per event".to_owned(),
        time: Spread::of(vec![nanos]).expect("there is one sample"),
        tail: None,
        counts: [
            ("requests", sum(&counts.requests)),
            ("served", sum(&counts.served)),
            ("frees", counts.frees as f64),
            ("external fragmentation events", sum(&counts.extfrag)),
            ("of them unmovable", counts.extfrag[Migratetype::Unmovable.index()] as f64),
            ("of them below order 4", sum(&counts.serious)),
            ("mistyped allocations", sum(&counts.mistyped)),
            ("pageblocks claimed", counts.claims as f64),
            ("pages moved", counts.moved as f64),
            ("pages reclaimed by callers", counts.reclaimed_direct as f64),
            ("pages reclaimed by kswapd", counts.reclaimed_kswapd as f64),
            ("direct reclaims", counts.direct_reclaims as f64),
            ("stalls", counts.stalls as f64),
            ("frees that nothing explains", run.assumptions.unknown_frees as f64),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect(),
        functions: Default::default(),
        series: [
            ("free pages".to_owned(), course(|sample| sample.free as f64)),
            (
                "free pages in whole pageblocks".to_owned(),
                course(|sample| sample.free_in_pageblocks as f64),
            ),
        ]
        .into(),
        spreads: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use nofrag::page::FragmentationPolicy;

    use super::*;

    #[test]
    fn every_design_is_a_preset() {
        for name in replay::DEFAULT_POLICIES {
            assert_eq!(FragmentationPolicy::preset(name).expect("it is one").name, name);
        }
    }

    #[test]
    fn sizes_have_bits_of_their_own() {
        let bits = SIZES.iter().fold(0, |sum, size| sum + size.info.bit);
        assert_eq!(bits, 7);
    }
}
