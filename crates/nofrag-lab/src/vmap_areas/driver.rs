//! The kernel driver's own modes (docs/sources/vmap.md#test-driver): all tests of a thread in one space that lives as
//! long as the run.
//!
//! Each thread has a list of the tests, in order or shuffled so that no test keeps its place (Sattolo), waits for the
//! others at a start barrier, and runs every test `repeat` times. A test that is refused an area counts as failed and
//! the thread goes on; `align_shift` is expected to be refused.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use nofrag::check::Check;
use nofrag::vmap::{Preset, VmapSpace};

use super::catalogue::{Program, SPECS, Search, Spec, Width};
use super::holes::Room;
use super::names;
use super::turns::{AreasPlan, EMULATED_CPUS};
use super::worker::{Detail, RunSize, Worker};
use crate::key::{self, Key};
use crate::oracle::{Claims, Relation};
use crate::random::Random;
use crate::report::{Measurement, Report};
use crate::scenario::{Mode, Progress, RunError, turn};
use crate::spaces::{Failure, VMALLOC_PAGES, new_space};
use crate::stats::Spread;
use crate::usage::{self, CpuTime};

/// Returns true if the program can run in a space that it shares with others.
pub(super) fn can_run(spec: &Spec) -> bool {
    let own_space = matches!(spec.program, Program::Churn { room: Room::Tight, .. });
    spec.width == Width::Single && !own_space
}

/// Returns the loops of a test: the same under every design, or the sums could not be compared. Two tests ignore the
/// count in the kernel, too.
fn loops_of(plan: &AreasPlan, spec: &Spec) -> u64 {
    match spec.program {
        Program::AlignShift | Program::PerCpu => 1,
        _ => spec.loops(plan.loops, Search::Descends, plan.extent),
    }
}

/// The order in which a thread runs its tests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Sequential,
    Shuffled,
}

/// The CPUs on which the threads run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Each thread on one CPU.
    Pinned,
    /// On any CPU, as the system decides.
    Anywhere,
}

/// Tests of one mode, and the way in which its threads run them.
#[derive(Clone)]
struct Drive {
    /// Name of the row with the total of all tests.
    label: String,
    specs: Vec<&'static Spec>,
    order: Order,
    place: Place,
    /// Number of times that the whole drive is run under each design.
    rounds: usize,
}

/// Results of one drive under one design.
#[derive(Default)]
struct Driven {
    /// From the start barrier to the end of the last thread.
    elapsed_s: f64,
    cpu: Option<CpuTime>,
    /// Results of the tests, by position in the drive's list.
    tests: Vec<Tally>,
}

/// The runs of one test, over all threads.
#[derive(Clone, Default)]
struct Tally {
    runs_us: Vec<f64>,
    passed: u64,
    failed: u64,
    xfailed: u64,
    last_failure: Option<Failure>,
}

fn drives(plan: &AreasPlan, mode: Mode) -> Vec<Drive> {
    let drive = |order, place, rounds| Drive {
        label: mode.into_str().to_owned(),
        specs: plan.programs.clone(),
        order,
        place,
        rounds,
    };
    match mode {
        Mode::Performance => {
            let clean = drive(Order::Sequential, Place::Pinned, 3);
            let holes = with_hole(&clean);
            [Some(clean), holes].into_iter().flatten().collect()
        }
        Mode::Shuffle => vec![drive(Order::Shuffled, Place::Anywhere, 3)],
        Mode::Smoke | Mode::Stress => vec![drive(Order::Shuffled, Place::Anywhere, 1)],
        Mode::Soak => vec![drive(Order::Shuffled, Place::Anywhere, plan.repeats)],
        Mode::Compare => Vec::new(),
    }
}

/// Returns the same drive with `long_busy_hole` in the place of `long_busy_list`; `None` if it has no `long_busy_list`.
fn with_hole(clean: &Drive) -> Option<Drive> {
    let hole = SPECS.iter().find(|spec| spec.program == Program::LongBusyHole)?;
    let at = clean.specs.iter().position(|spec| spec.program == Program::LongBusyList)?;
    let mut drive = clean.clone();
    drive.specs[at] = hole;
    drive.label.push_str("_hole");
    Some(drive)
}

/// Runs `mode` and notes its measurements and claims.
pub(super) fn run(
    plan: &AreasPlan,
    mode: Mode,
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<(), RunError> {
    let drives = drives(plan, mode);
    let rounds: usize = drives.iter().map(|drive| drive.rounds).sum();
    progress.begin((rounds * plan.designs.len()) as u64);
    for drive in &drives {
        if mode == Mode::Soak {
            soak(plan, drive, report, progress)?;
        } else {
            compare_drives(plan, drive, report, progress)?;
        }
    }
    progress.end();
    Ok(())
}

/// Runs a drive in fresh spaces, designs turn by turn.
fn compare_drives(
    plan: &AreasPlan,
    drive: &Drive,
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<(), RunError> {
    let mut all: BTreeMap<&str, Vec<Driven>> = BTreeMap::new();
    for round in 0..drive.rounds {
        for design in turn(&plan.designs, round) {
            progress.step(&format!("{} under {}", drive.label, design.name));
            let driven = space_for(plan, &design)
                .and_then(|space| run_once(plan, drive, &space, round))
                .map_err(|failure| RunError::engine(design.name, &drive.label, failure))?;
            all.entry(design.name).or_default().push(driven);
        }
    }
    for (at, spec) in drive.specs.iter().enumerate() {
        let known = report.programs().contains(&spec.info.name);
        for design in plan.designs.iter().filter(|_| !known) {
            report.measurements.extend(test_row(plan, spec, at, design, &all[design.name]));
        }
    }
    for design in &plan.designs {
        report.measurements.extend(total_row(plan, drive, design, &all[design.name]));
    }
    judge_failures(drive, &all, report);
    Ok(())
}

fn space_for(plan: &AreasPlan, design: &Preset) -> Result<VmapSpace, Failure> {
    new_space(design.policy, VMALLOC_PAGES, plan.threads.max(EMULATED_CPUS))
}

/// Runs the driver once: every thread, every test.
fn run_once(
    plan: &AreasPlan,
    drive: &Drive,
    space: &VmapSpace,
    round: usize,
) -> Result<Driven, Failure> {
    let barrier = &Barrier::new(plan.threads + 1);
    thread::scope(|scope| {
        let run = move |thread: usize| {
            if drive.place == Place::Pinned {
                usage::pin_to(thread);
            }
            let mut random = Random::new(plan.seed, ((round as u64) << 32) | thread as u64);
            let mut order: Vec<usize> = (0..drive.specs.len()).collect();
            if drive.order == Order::Shuffled {
                random.shuffle_cyclic(&mut order);
            }
            barrier.wait();
            let mut tests = vec![Tally::default(); drive.specs.len()];
            for at in order {
                run_test(plan, drive.specs[at], space, thread, &mut random, &mut tests[at]);
            }
            tests
        };
        let threads: Vec<_> = (0..plan.threads).map(|i| scope.spawn(move || run(i))).collect();
        let cpu = CpuTime::now();
        barrier.wait();
        let begin = Instant::now();
        let mut driven =
            Driven { tests: vec![Tally::default(); drive.specs.len()], ..Driven::default() };
        for thread in threads {
            let tests = thread.join().expect("a failing test is counted, not a panic");
            for (total, tally) in driven.tests.iter_mut().zip(tests) {
                total.add(tally);
            }
        }
        driven.elapsed_s = begin.elapsed().as_secs_f64();
        driven.cpu = CpuTime::now().zip(cpu).map(|(now, before)| now.since(before));
        Ok(driven)
    })
}

/// Runs one test `repeat` times on one thread; its preparation is part of the time, as in the kernel.
fn run_test(
    plan: &AreasPlan,
    spec: &Spec,
    space: &VmapSpace,
    thread: usize,
    random: &mut Random,
    tally: &mut Tally,
) {
    let loops = loops_of(plan, spec);
    let cpus = space.cpus().len();
    let size = RunSize { loops, pages: plan.pages, cpus, threads: 1 };
    let repeats = if spec.program == Program::AlignShift { 1 } else { plan.repeats };
    for _ in 0..repeats {
        let random = Random::new(random.between(0, u64::MAX), spec.info.bit);
        let mut worker = Worker::new(space, thread, size, random, ()).detail(Detail::Elapsed);
        let begin = Instant::now();
        let outcome = spec.program.run(&mut worker);
        tally.runs_us.push(begin.elapsed().as_secs_f64() * 1e6);
        match outcome {
            Ok(()) if spec.program == Program::AlignShift => tally.xfailed += 1,
            Ok(()) => tally.passed += 1,
            Err(failure) => {
                tally.failed += 1;
                tally.last_failure = Some(failure);
            }
        }
    }
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.runs_us.extend(other.runs_us);
        self.passed += other.passed;
        self.failed += other.failed;
        self.xfailed += other.xfailed;
        self.last_failure = other.last_failure.or(self.last_failure.take());
    }
}

fn test_row(
    plan: &AreasPlan,
    spec: &Spec,
    at: usize,
    design: &Preset,
    rounds: &[Driven],
) -> Option<Measurement> {
    let mut tally = Tally::default();
    for driven in rounds {
        tally.add(driven.tests[at].clone());
    }
    let outcomes = [
        (Key::count("passed"), tally.passed),
        (names::FAILED, tally.failed),
        (Key::count("xfailed"), tally.xfailed),
    ];
    let times = (names::US_PER_RUN, tally.runs_us);
    let loops = loops_of(plan, spec);
    Measurement::of(spec.info.name, design.name, loops, times, key::counts(outcomes))
}

fn total_row(
    plan: &AreasPlan,
    drive: &Drive,
    design: &Preset,
    rounds: &[Driven],
) -> Option<Measurement> {
    let mut counts = BTreeMap::new();
    for (key, part) in [
        (names::USER, (|cpu| cpu.user_s) as fn(CpuTime) -> f64),
        (names::SYSTEM, (|cpu| cpu.system_s) as fn(CpuTime) -> f64),
    ] {
        let used: Option<Vec<f64>> = rounds.iter().map(|driven| driven.cpu.map(part)).collect();
        if let Some(spread) = used.and_then(Spread::of) {
            counts.insert(key, spread.median.into());
        }
    }
    let times = (names::SECONDS, rounds.iter().map(|driven| driven.elapsed_s).collect());
    Measurement::of(&drive.label, design.name, plan.loops, times, counts)
}

/// Judges that no test fails, whatever runs beside it.
fn judge_failures(drive: &Drive, all: &BTreeMap<&str, Vec<Driven>>, report: &mut Report) {
    for (design, rounds) in all {
        let tests = || rounds.iter().flat_map(|driven| &driven.tests);
        let failed: u64 = tests().map(|tally| tally.failed).sum();
        if let Some(failure) = tests().find_map(|tally| tally.last_failure.as_ref()) {
            report.notes.push(format!("{}/{design}: {failure}", drive.label));
        }
        let claim = "no test fails; align_shift ends with the refusal that is expected";
        let id = format!("{}-failures/{design}", drive.label);
        report.oracles.exact(id, claim, failed as f64, Relation::NONE);
    }
}

/// Remainders in a space after all areas were given back and purged.
#[derive(Default)]
struct Leak {
    pages: u64,
    areas: u64,
    extra_holes: u64,
    broken_laws: u64,
}

impl Leak {
    /// Purges `space` and counts the remainders.
    fn left_in(space: &VmapSpace) -> Leak {
        space.purge_all();
        let stats = space.stats();
        Leak {
            pages: stats.total_pages - stats.free_pages,
            areas: stats.busy_areas + stats.lazy_areas + stats.pooled_areas,
            extra_holes: (stats.holes as u64).abs_diff(1),
            broken_laws: u64::from(space.check().is_err()),
        }
    }

    fn total(&self) -> u64 {
        self.pages + self.areas + self.extra_holes + self.broken_laws
    }
}

/// Runs the drive over and over in one space per design; after each round nothing may remain.
fn soak(
    plan: &AreasPlan,
    drive: &Drive,
    report: &mut Report,
    progress: &dyn Progress,
) -> Result<(), RunError> {
    let mut all: BTreeMap<&str, Vec<Driven>> = BTreeMap::new();
    for design in &plan.designs {
        let failed = |failure: Failure| RunError::engine(design.name, &drive.label, failure);
        let space = space_for(plan, design).map_err(failed)?;
        let once = AreasPlan { repeats: 1, ..plan.clone() };
        let (mut leaked, mut resident) = (0, Vec::new());
        for round in 0..drive.rounds {
            progress.step(&format!("round {round} under {}", design.name));
            let driven = run_once(&once, drive, &space, round).map_err(failed)?;
            all.entry(design.name).or_default().push(driven);
            leaked += Leak::left_in(&space).total();
            resident.extend(usage::resident_bytes());
        }
        report.measurements.extend(total_row(plan, drive, design, &all[design.name]));
        let claim = "after each round and a full purge no area, page or second hole is left, and every law holds";
        let id = format!("soak-leaks/{}", design.name);
        report.oracles.exact(id, claim, leaked as f64, Relation::NONE);
        // Records may grow while a space warms up; from its third round on a process that keeps growing leaks memory.
        let growth = resident.get(2).map(|warm| resident[resident.len() - 1] as f64 / *warm as f64);
        let claim = "resident memory after the last round over that after the third";
        report.oracles.host(
            format!("soak-memory/{}", design.name),
            claim,
            growth,
            Relation::AtMost(1.1),
        );
    }
    judge_failures(drive, &all, report);
    Ok(())
}
