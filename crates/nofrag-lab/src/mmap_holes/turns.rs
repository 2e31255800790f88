//! Runs the chosen programs under the chosen designs: first all of them for their counts, several runs at a time, then
//! some of them again for their times, one run after the other.

use std::collections::BTreeMap;
use std::time::Instant;

use nofrag::mmap::{Direction, Layout, PlacementPreset};
use nofrag::ranges::Span;
use nofrag::units::Vpn;

use super::catalogue::{End, FIRST_FIT, Program, asks_for_huge_pages, ends_of, named, takes_part};
use super::process::{Failure, PAGE, Process, Writes};
use super::survival::{self, Grid, Search, smallest_window};
use super::workloads::{self, Between, Mix};
use super::{SCENARIO, names};
use crate::figures;
use crate::jobs::{About, run_all};
use crate::key::{Counts, Key};
use crate::plan::Plan;
use crate::report::Measurement;
use crate::scenario::{Extent, Progress, RunError, turn};
use crate::stats::Spread;

/// Iterations of leakme for which the published counts hold. Other programs scale with this number.
pub(super) const PUBLISHED_LOOPS: u64 = 1_000_000;

/// Extent of a comparison of placements; so many runs go at a time as it has threads.
pub(super) type HolesPlan = Plan<PlacementPreset, Program>;

/// A program under a design from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    program: Program,
    preset: PlacementPreset,
    end: End,
}

/// Counts and courses of a run.
#[derive(Debug)]
struct Ran {
    counts: Counts,
    series: BTreeMap<Key, Vec<f64>>,
    /// Digest of all addresses that were handed out; `None` where a program runs several processes.
    digest: Option<u64>,
    maps: u64,
    ns: f64,
}

impl Ran {
    fn ns_per_map(&self) -> f64 {
        self.ns / self.maps.max(1) as f64
    }
}

impl HolesPlan {
    fn jobs(&self) -> Vec<Job> {
        let default_run = (self.extent == Extent::Subset).then_some(&SCENARIO.expected);
        let mut jobs = Vec::new();
        for program in &self.programs {
            for preset in &self.designs {
                let ends = ends_of(*program, preset).into_iter();
                let ends = ends.filter(|end| takes_part(*program, preset, *end, default_run));
                jobs.extend(ends.map(|end| Job { program: *program, preset: *preset, end }));
            }
        }
        jobs
    }

    /// Returns the rows of a report, in the order of designs, each with the ends from which it runs.
    pub(super) fn rows(&self) -> Vec<String> {
        let (jobs, mut rows) = (self.jobs(), Vec::new());
        for preset in &self.designs {
            for end in [End::Both, End::Up, End::Down] {
                let used = |job: &Job| job.preset.name == preset.name && job.end == end;
                if jobs.iter().any(used) {
                    rows.push(named(preset.name, end));
                }
            }
        }
        rows
    }

    pub(super) fn is_published_size(&self) -> bool {
        self.loops == PUBLISHED_LOOPS
    }
}

pub(super) fn take_turns(
    plan: &HolesPlan,
    progress: &dyn Progress,
) -> Result<Vec<Measurement>, RunError> {
    let jobs = plan.jobs();
    let timed = jobs.iter().filter(|job| TIMED.contains(&job.program)).count();
    progress.begin((jobs.len() + plan.repeats * timed) as u64);
    let ran = count(plan, &jobs, progress)?;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); jobs.len()];
    let timed = (0..jobs.len()).filter(|at| is_timed(&jobs[*at], &ran[*at]));
    let timed: Vec<usize> = timed.collect();
    for repetition in 0..plan.repeats {
        for at in turn(&timed, repetition) {
            let job = &jobs[at];
            progress.step(&format!("{}, timed", title(job)));
            let loops = plan.loops.min(TIMED_LOOPS);
            times[at].push(run(plan, job, loops).map_err(|why| trouble(job, why))?.ns_per_map());
        }
    }
    progress.end();
    let rows = jobs.iter().zip(ran).zip(times);
    Ok(rows.filter_map(|((job, ran), times)| gather(plan, job, ran, times)).collect())
}

/// Returns true if a run is worth timing: one that ends early shows the cost of mapping, and little of unmapping.
fn is_timed(job: &Job, ran: &Ran) -> bool {
    let failed = ran.counts.get(&names::FAILS_AT).map_or(0.0, |at| at.get());
    TIMED.contains(&job.program) && (failed == 0.0 || failed >= TIMED_LOOPS as f64)
}

/// Programs that are timed in turn: one for each width of addresses.
pub(super) const TIMED: [Program; 2] = [Program::LeakmeLibs, Program::Leakme64];

const TIMED_LOOPS: u64 = 20_000;

fn gather(plan: &HolesPlan, job: &Job, ran: Ran, times: Vec<f64>) -> Option<Measurement> {
    let unit = if job.program == Program::Stacks { "ns per map" } else { "ns per map and unmap" };
    let samples = if times.is_empty() { vec![ran.ns_per_map()] } else { times };
    Some(Measurement {
        counts: ran.counts,
        series: ran.series,
        digest: ran.digest.map(|digest| format!("{digest:016x}")),
        ..Measurement::new(
            job.program.into_str(),
            named(job.preset.name, job.end),
            plan.loops,
            unit,
            Spread::of(samples)?,
        )
    })
}

fn title(job: &Job) -> String {
    format!("{} under {}", job.program.into_str(), named(job.preset.name, job.end))
}

fn trouble(job: &Job, why: Failure) -> RunError {
    RunError::engine(&named(job.preset.name, job.end), job.program.into_str(), why)
}

/// Runs all jobs, `plan.threads` at a time, and returns their results in their order.
fn count(plan: &HolesPlan, jobs: &[Job], progress: &dyn Progress) -> Result<Vec<Ran>, RunError> {
    let about = |job: &Job| About { length: length(job), steps: 1, what: title(job) };
    let run = |job: &Job| run(plan, job, plan.loops).map_err(|why| trouble(job, why));
    run_all(plan.threads, jobs, about, run, progress)
}

/// Returns the expected length of a job, relative to the others.
fn length(job: &Job) -> u64 {
    match job.program {
        Program::Stacks if job.preset.name == FIRST_FIT => 9,
        Program::Mix0 | Program::Mix1 | Program::Mix2 => 8,
        Program::Unmergeable10k => 7,
        Program::Survival => 6,
        Program::Stacks => 5,
        _ => 1,
    }
}

/// The areas of a static program itself in the simulations: first byte, and the byte behind the last.
const STATIC: [[u64; 2]; 3] =
    [[0x0804_8000, 0x0804_9000], [0x0804_9000, 0x0804_a000], [0xfffe_b000, 0xffff_e000]];
const STATIC_4: [[u64; 2]; 3] =
    [[0x0804_8000, 0x080a_3000], [0x080a_3000, 0x080a_5000], [0xfffe_c000, 0xffff_e000]];

/// Page behind the areas of a static program.
const ABOVE_PROGRAM: u64 = 0x0a00_0000 / PAGE;

/// Pages of the libraries: 1.3125 MiB.
const LIBRARIES: u64 = 336;

const COMPAT_TOP: u64 = 0xf7ff_e000;

/// Returns layout and window of a 32-bit task.
fn compat(end: End) -> (Layout, Span) {
    let up = Layout::COMPAT_UP;
    let down = Layout { direction: Direction::Down, top: Vpn(COMPAT_TOP / PAGE), ..up };
    let (layout, window) = match end {
        End::Up | End::Both => (up, Span::new(up.base.0, up.end.0)),
        End::Down => (down, Span::new(down.floor.0, down.top.0)),
    };
    (layout, window.expect("the window is not empty"))
}

/// Returns layout and window of the random mixes: the window ends at the base of searches downwards.
fn mixed(end: End) -> (Layout, Span) {
    let (layout, _) = compat(end);
    let window = Span::new(layout.base.0, COMPAT_TOP / PAGE).expect("the window is not empty");
    let ending = Vpn(window.end());
    match end {
        End::Up | End::Both => (Layout { top: ending, end: ending, ..layout }, window),
        End::Down => (layout, window),
    }
}

/// Returns layout and window of a 64-bit task. Where huge pages decide, its top is that of the published areas.
fn long(job: &Job) -> (Layout, Span) {
    let top =
        if asks_for_huge_pages(job.preset.placement) { 0x7fff_f7ff_7000 } else { 0x7fff_f7ff_d000 };
    let layout = match job.end {
        End::Up => Layout::X86_64_LEGACY,
        End::Down | End::Both => Layout { top: Vpn(top / PAGE), ..Layout::X86_64 },
    };
    (layout, layout.all().expect("the window is not empty"))
}

/// Returns layout and window of a 64-bit task that may use 3 GiB.
fn three_gib(end: End) -> (Layout, Span) {
    let window = survival::window(end, 3 * 1024);
    (Layout::window(window, end.direction()), window)
}

fn run(plan: &HolesPlan, job: &Job, loops: u64) -> Result<Ran, Failure> {
    let begin = Instant::now();
    // No published result of these needs more.
    let fewer = loops.div_ceil(if plan.extent == Extent::Full { 1 } else { 10 });
    match job.program {
        Program::Leakme | Program::LeakmeLibs => run_leakme(job, compat(job.end), loops, begin),
        Program::Leakme64 => run_leakme(job, long(job), loops, begin),
        Program::Touched => run_leakme(job, compat(job.end), fewer, begin),
        Program::Touched64 => run_leakme(job, long(job), fewer, begin),
        Program::Window => run_leakme(job, three_gib(job.end), fewer, begin),
        Program::Leakme4 => run_leakme4(job, begin),
        Program::FiveRegions => run_five_regions(job, begin),
        Program::Stacks => {
            let mut process = process_in(job, long(job));
            workloads::stacks(&mut process, (loops / 50).clamp(10, 20_000))?;
            Ok(finish(&process, begin))
        }
        Program::Unmergeable1k => run_unmergeable(plan, job, (loops / 20).clamp(10, 1_000), begin),
        Program::Unmergeable10k => {
            run_unmergeable(plan, job, (loops / 100).clamp(10, 10_000), begin)
        }
        Program::Mix0 => run_mix(plan, job, Mix::ThreeKinds, loops, begin),
        Program::Mix1 => run_mix(plan, job, Mix::PowersOfTwo, loops, begin),
        Program::Mix2 => run_mix(plan, job, Mix::Uniform, loops, begin),
        Program::Survival => run_survival(plan, job, begin),
    }
}

fn process_in(job: &Job, (layout, window): (Layout, Span)) -> Process {
    Process::new(layout, job.preset.placement, window, job.end)
}

fn finish(process: &Process, begin: Instant) -> Ran {
    let ns = begin.elapsed().as_nanos() as f64;
    let maps = process.space.counters().maps;
    let (counts, digest) = (process.counts(), Some(process.digest()));
    Ran { counts, series: BTreeMap::new(), digest, maps, ns }
}

/// Iterations after which the occupancy of the window is noted.
const LOOKS: [u64; 7] = [600, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000];

pub(super) const PARTS: usize = 76;

fn run_leakme(
    job: &Job,
    place: (Layout, Span),
    loops: u64,
    begin: Instant,
) -> Result<Ran, Failure> {
    let mut process = process_in(job, place);
    if !matches!(job.program, Program::Leakme64 | Program::Touched64 | Program::Window) {
        for area in STATIC {
            process.stand(area)?;
        }
    }
    match job.program {
        Program::LeakmeLibs => process.map_libraries(LIBRARIES)?,
        Program::Touched | Program::Touched64 => process = process.writing(Writes::Everything),
        _ => {}
    }
    let pictured = matches!(job.program, Program::Leakme | Program::Window);
    let (mut at, mut rows) = (Vec::new(), Vec::new());
    let failed = workloads::leakme(&mut process, loops, |iteration, process| {
        if pictured && LOOKS.contains(&(iteration + 1)) {
            at.push((iteration + 1) as f64);
            rows.extend(process.occupancy(PARTS));
        }
    })?;
    let mut ran = finish(&process, begin);
    ran.counts.insert(names::FAILS_AT, failed.unwrap_or(0).into());
    if pictured {
        if let Some(failed) = failed {
            at.push(failed as f64);
            rows.extend(process.occupancy(PARTS));
        }
        ran.series.insert(names::OCCUPANCY_AT, at);
        // A thousandth is finer than any shade.
        let rounded = rows.into_iter().map(|share: f64| (share * 1e3).round() / 1e3);
        ran.series.insert(names::OCCUPANCY, rounded.collect());
    }
    if matches!(job.program, Program::Leakme | Program::Leakme64) {
        add_areas(&process, &mut ran);
    }
    Ok(ran)
}

/// Notes the bounds of all areas of the program, in bytes; a double holds them exactly.
fn add_areas(process: &Process, ran: &mut Ran) {
    let bounds =
        |of: fn(&Span) -> u64| process.areas().map(|area| (of(&area) * PAGE) as f64).collect();
    ran.series.insert(names::STARTS, bounds(|area| area.start()));
    ran.series.insert(names::ENDS, bounds(|area| area.end()));
}

fn run_leakme4(job: &Job, begin: Instant) -> Result<Ran, Failure> {
    let mut process = process_in(job, compat(job.end));
    for area in STATIC_4 {
        process.stand(area)?;
    }
    workloads::leakme4(&mut process)?;
    let mut ran = finish(&process, begin);
    let counted = process.areas().filter(|area| area.start() >= ABOVE_PROGRAM).count();
    ran.counts.insert(names::COUNTED, counted.into());
    add_areas(&process, &mut ran);
    Ok(ran)
}

fn run_five_regions(job: &Job, begin: Instant) -> Result<Ran, Failure> {
    let mut counts = BTreeMap::new();
    let mut maps = 0;
    for (name, between) in
        [(names::AFTER_4_2_3, Between::Frees423), (names::LARGER_BETWEEN, Between::LargerRequest)]
    {
        let mut process = process_in(job, compat(job.end));
        let taken = workloads::five_regions(&mut process, between)?;
        counts.insert(name, taken.into());
        maps += process.maps();
    }
    let ns = begin.elapsed().as_nanos() as f64;
    Ok(Ran { counts, series: BTreeMap::new(), digest: None, maps, ns })
}

fn run_unmergeable(
    plan: &HolesPlan,
    job: &Job,
    areas: u64,
    begin: Instant,
) -> Result<Ran, Failure> {
    let mut process = process_in(job, long(job)).unmergeable();
    workloads::replacements(&mut process, areas, 5_000.min(5 * areas), plan.seed)?;
    Ok(finish(&process, begin))
}

fn run_mix(
    plan: &HolesPlan,
    job: &Job,
    mix: Mix,
    loops: u64,
    begin: Instant,
) -> Result<Ran, Failure> {
    let mut process = process_in(job, mixed(job.end));
    workloads::mix(&mut process, mix, loops * 3 / 10, plan.seed)?;
    Ok(finish(&process, begin))
}

fn run_survival(plan: &HolesPlan, job: &Job, begin: Instant) -> Result<Ran, Failure> {
    let mut counts = BTreeMap::new();
    let published = figures::published(&figures::wander_2005().tables);
    let row = named(job.preset.name, job.end);
    for (name, grid) in [(names::WINDOW_MIB, Grid::USUAL), (names::LONG_WINDOW_MIB, Grid::LONG)] {
        let window = published.count(job.program.into_str(), &row, &name);
        let search = match (plan.extent, window) {
            (Extent::Subset, Some(mib)) => Search::Around(mib as u64),
            (Extent::Subset, None) if grid == Grid::LONG => continue,
            _ => Search::WholeGrid,
        };
        let grid = grid.at_most(plan.loops);
        let found = smallest_window(job.preset.placement, job.end, grid, search)?;
        // None of the grid's windows: nothing to show.
        if let Some(mib) = found {
            counts.insert(name, mib.into());
        }
    }
    let ns = begin.elapsed().as_nanos() as f64;
    Ok(Ran { counts, series: BTreeMap::new(), digest: None, maps: 1, ns })
}
