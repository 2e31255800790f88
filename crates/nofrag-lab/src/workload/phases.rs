//! The run: writers, then readers, then threads that touch memory while the readers go on.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::apparatus::huge_units::{HugeAdvice, HugeUnits};
use hdrhistogram::Histogram;
use thiserror::Error;

use super::counters::Counters;
use super::files::Job;
use super::folder::{FolderError, WorkFolder};
use super::outcome::{
    self, Ended, Latency, Phase, PhaseResult, Reads, ThpFioOutcome, Units, Written,
};
use super::plan::{FILE_BYTES, WorkloadPlan};
use super::toucher::{Touched, touch};
use crate::scenario::Progress;
use crate::usage::field_bytes;

/// Time between two looks of the run at its stop flag, with a report of its progress.
const TICK: Duration = Duration::from_millis(20);
/// End of a phase as a share of all the time allowed. The remainder is for removing the files.
const WRITTEN_BY: f64 = 0.4;
const WARM_BY: f64 = 0.6;
const TOUCHED_BY: f64 = 0.9;

/// The run failed. The files are removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A file or folder could not be used.
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    /// Memory could not be mapped or queried.
    #[error("cannot map memory: {0}")]
    Memory(#[source] io::Error),
    /// A thread could not be made.
    #[error("cannot make a thread: {0}")]
    Thread(#[source] io::Error),
    /// The folder of the files.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

impl WorkloadError {
    pub(super) fn at(path: &Path, cause: io::Error) -> WorkloadError {
        WorkloadError::File { path: path.to_owned(), cause }
    }
}

/// State that the threads of a phase share with the one that waits for them.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stop: AtomicBool,
    ended: OnceLock<Ended>,
    done: AtomicU64,
}

impl Shared {
    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the phase. The first reason is kept.
    pub(super) fn stop(&self, why: Ended) {
        let _ = self.ended.set(why);
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn count(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    fn why(&self) -> Ended {
        self.ended.get().copied().unwrap_or(Ended::Complete)
    }
}

/// Runs the plan, and removes its files again. Ends early, with the results so far, once `stop` is set.
///
/// # Errors
/// [`WorkloadError`]; the files are removed all the same, or the error names the remaining ones.
pub fn run(
    plan: &WorkloadPlan,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> Result<ThpFioOutcome, WorkloadError> {
    let mut cautions = plan.cautions.clone();
    let folder = WorkFolder::make(&plan.dir)?;
    let mut run = Run { plan, stop, progress, began: Instant::now(), phases: Vec::new() };
    let written = run.write(folder.path())?;
    let mut ended = written.ended;
    let mut found = Found::new();
    if ended != Ended::Interrupted {
        run.sync(folder.path())?;
        if let Some(why) = run.over() {
            ended = why;
        } else {
            found = run.read_and_touch(&written)?;
            if found.ended != Ended::Complete {
                ended = found.ended;
            }
        }
    }
    progress.end();
    let phases = run.phases;
    folder.remove()?;
    cautions.extend(said_of(ended, plan, &written, &found));
    let Found { reads, touched, anon_huge_kib, .. } = found;
    Ok(ThpFioOutcome {
        ended,
        phases,
        written: Written { files: written.files, bytes: written.files * FILE_BYTES },
        reads: Reads { latency: Latency::of(&reads) },
        units: Units {
            huge: touched.huge.len(),
            base: touched.base.len(),
            by_pages_at_once: touched.by_pages.clone(),
            anon_huge_kib,
        },
        fault_base: Latency::of(&touched.base),
        fault_huge: Latency::of(&touched.huge),
        first_base: Latency::of(&touched.base_first),
        first_huge: Latency::of(&touched.huge_first),
        plan: plan.clone(),
        cautions,
    })
}

/// Returns a caution on a run that did not do everything.
fn said_of(ended: Ended, plan: &WorkloadPlan, written: &Files, found: &Found) -> Option<String> {
    let why = match ended {
        Ended::Complete => return None,
        Ended::TimeUp => "The time was over",
        Ended::Interrupted => "It was interrupted",
        Ended::MemoryLow => "Too little memory was available",
    };
    let units = found.touched.huge.len() + found.touched.base.len();
    Some(format!(
        "{why} with {} of {} files written and {units} of {} units touched.",
        written.files,
        plan.files(),
        plan.units()
    ))
}

#[derive(Debug)]
struct Files {
    jobs: Vec<Job>,
    files: u64,
    took: Duration,
    ended: Ended,
}

/// Times of readers and touchers.
#[derive(Debug)]
struct Found {
    reads: Histogram<u64>,
    touched: Touched,
    anon_huge_kib: Option<u64>,
    ended: Ended,
}

impl Found {
    fn new() -> Found {
        Found {
            reads: outcome::histogram(),
            touched: Touched::new(),
            anon_huge_kib: None,
            ended: Ended::Complete,
        }
    }
}

struct Run<'a> {
    plan: &'a WorkloadPlan,
    stop: &'a AtomicBool,
    progress: &'a dyn Progress,
    began: Instant,
    phases: Vec<PhaseResult>,
}

impl Run<'_> {
    /// Returns the moment at which this share of the whole run's time is over; `None` if the run has no limit.
    fn deadline(&self, share: f64) -> Option<Instant> {
        let seconds = Duration::from_secs(self.plan.seconds?);
        // A time that no clock reaches sets no limit.
        self.began.checked_add(seconds.mul_f64(share))
    }

    /// Returns the reason why no further phase shall begin; `None` if there is none. While the disk is waited for, no
    /// thread looks for such reasons.
    fn over(&self) -> Option<Ended> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(Ended::Interrupted);
        }
        let is_late = self.deadline(TOUCHED_BY).is_some_and(|deadline| Instant::now() >= deadline);
        is_late.then_some(Ended::TimeUp)
    }

    /// Runs a phase and notes the kernel's counts meanwhile.
    fn phase<T>(&mut self, phase: Phase, body: impl FnOnce(&Self) -> T) -> T {
        let (before, began) = (Counters::now(), Instant::now());
        let result = body(self);
        let seconds = began.elapsed().as_secs_f64();
        self.phases.push(PhaseResult { phase, seconds, counters: &Counters::now() - &before });
        result
    }

    /// Waits until `finished`, and stops the phase when it shall end earlier.
    fn watch(
        &self,
        shared: &Shared,
        deadline: Option<Instant>,
        what: &str,
        finished: impl Fn() -> bool,
    ) {
        let mut told = 0;
        while !finished() {
            thread::sleep(TICK);
            if self.stop.load(Ordering::Relaxed) {
                shared.stop(Ended::Interrupted);
            } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                shared.stop(Ended::TimeUp);
            }
            let done = shared.done.load(Ordering::Relaxed);
            if done > told {
                self.progress.steps(done - told, what);
                told = done;
            }
        }
    }

    fn write(&mut self, folder: &Path) -> Result<Files, WorkloadError> {
        self.progress.begin(self.plan.files());
        let deadline = self.deadline(WRITTEN_BY);
        let shared = Shared::default();
        let WorkloadPlan { threads, files_per_thread, seed, .. } = *self.plan;
        let jobs = (0..threads).map(|number| Job::new(folder, number, files_per_thread, seed));
        let mut jobs: Vec<Job> = jobs.collect();
        let began = Instant::now();
        let written = self.phase(Phase::Write, |run| {
            thread::scope(|scope| {
                let shared = &shared;
                let start = |job| spawned(scope, shared, move || Job::write(job, shared));
                let threads = jobs.iter().map(start).collect::<Result<Vec<_>, _>>()?;
                run.watch(shared, deadline, "writing files", || all_done(&threads));
                joined(threads)
            })
        })?;
        for (job, files) in jobs.iter_mut().zip(&written) {
            job.files = *files;
        }
        let took = began.elapsed();
        Ok(Files { jobs, files: written.iter().sum(), took, ended: shared.why() })
    }

    fn sync(&mut self, folder: &Path) -> Result<(), WorkloadError> {
        let synced = |_: &Self| rustix::fs::syncfs(File::open(folder)?).map_err(io::Error::from);
        self.phase(Phase::Sync, synced).map_err(|cause| WorkloadError::at(folder, cause))
    }

    /// Lets readers read for as long as the writers wrote; then memory is touched while they go on.
    fn read_and_touch(&mut self, files: &Files) -> Result<Found, WorkloadError> {
        self.progress.begin(self.plan.units());
        let mut regions = self.regions()?;
        let reading = Shared::default();
        let mut found = Found::new();
        let reads = thread::scope(|scope| {
            let reading = &reading;
            let start = |job| spawned(scope, reading, move || Job::read(job, reading));
            let readers = files.jobs.iter().map(start).collect::<Result<Vec<_>, _>>()?;
            // The scope waits for the readers, also while a panic is on its way.
            let until_told = StopAtLast(reading);
            let warm = Instant::now() + files.took;
            let warm = self.deadline(WARM_BY).map_or(warm, |deadline| deadline.min(warm));
            let warming = Shared::default();
            self.phase(Phase::WarmUp, |run| {
                let is_over = || Instant::now() >= warm || warming.stopping() || reading.stopping();
                run.watch(&warming, None, "reading files", is_over);
            });
            let touched = if warming.stopping() || reading.stopping() {
                found.ended = warming.why();
                Ok(())
            } else {
                self.phase(Phase::Touch, |run| run.touch(&mut regions, &mut found))
            };
            drop(until_told);
            let reads = joined(readers);
            touched.and(reads)
        })?;
        for times in &reads {
            found.reads.add(times).expect("all have the same bounds");
        }
        found.anon_huge_kib = anon_huge_kib();
        Ok(found)
    }

    fn regions(&self) -> Result<Vec<HugeUnits>, WorkloadError> {
        let units = usize::try_from(self.plan.mapped_units_per_thread).unwrap_or(usize::MAX);
        let bytes = self.plan.unit_bytes as usize;
        // A kernel without huge pages refuses advice about them.
        let advice = self.plan.host.huge_page.map_or(HugeAdvice::Host, |_| self.plan.advice.into());
        let map = |_| HugeUnits::map(units, bytes, advice);
        let regions = (0..self.plan.thp_threads).map(map);
        regions.collect::<io::Result<_>>().map_err(WorkloadError::Memory)
    }

    fn touch(&self, regions: &mut [HugeUnits], found: &mut Found) -> Result<(), WorkloadError> {
        let shared = Shared::default();
        let WorkloadPlan { units_per_thread, floor, .. } = *self.plan;
        let start = AtomicBool::new(false);
        let touched = thread::scope(|scope| {
            let begin = |region| {
                let (start, shared) = (&start, &shared);
                let work = move || touch(region, units_per_thread, floor, start, shared);
                spawned(scope, shared, work)
            };
            let threads = regions.iter_mut().map(begin).collect::<Result<Vec<_>, _>>()?;
            start.store(true, Ordering::Release);
            self.watch(&shared, self.deadline(TOUCHED_BY), "touching memory", || {
                all_done(&threads)
            });
            joined(threads)
        })?;
        touched.iter().for_each(|touched| found.touched.add(touched));
        found.ended = shared.why();
        Ok(())
    }
}

/// Ends a phase when it is dropped.
struct StopAtLast<'a>(&'a Shared);

impl Drop for StopAtLast<'_> {
    fn drop(&mut self) {
        self.0.stop(Ended::Complete);
    }
}

/// Spawns a thread of a phase. If that fails the phase ends: its scope waits for the threads that are there.
fn spawned<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    work: impl FnOnce() -> Result<T, WorkloadError> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T, WorkloadError>>, WorkloadError> {
    let thread = thread::Builder::new().spawn_scoped(scope, move || guarded(shared, work));
    thread.map_err(|cause| {
        shared.stop(Ended::Interrupted);
        WorkloadError::Thread(cause)
    })
}

/// Lets the other threads of a phase end when one fails.
fn guarded<T>(
    shared: &Shared,
    work: impl FnOnce() -> Result<T, WorkloadError>,
) -> Result<T, WorkloadError> {
    let result = work();
    if result.is_err() {
        shared.stop(Ended::Interrupted);
    }
    result
}

fn all_done<T>(threads: &[ScopedJoinHandle<'_, T>]) -> bool {
    threads.iter().all(ScopedJoinHandle::is_finished)
}

/// Returns the results of all threads, or the first error. A panic goes on here.
fn joined<T>(
    threads: Vec<ScopedJoinHandle<'_, Result<T, WorkloadError>>>,
) -> Result<Vec<T>, WorkloadError> {
    let results: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect()
}

fn anon_huge_kib() -> Option<u64> {
    Some(field_bytes("/proc/self/smaps_rollup", "AnonHugePages")? >> 10)
}
