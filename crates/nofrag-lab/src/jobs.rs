//! Jobs side by side: each is done alone, so that results do not depend on the number of threads.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::scenario::{Progress, RunError};

/// Length, steps and name of a job, known before it is run.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// Expected length, relative to the other jobs.
    pub(crate) length: u64,
    /// Steps that progress counts for the job; below, the name that it shows.
    pub(crate) steps: u64,
    pub(crate) what: String,
}

/// Runs all jobs as [`run_all`] does, and the first one again beside the others; returns the results, and whether it
/// gave the same again.
pub(crate) fn run_and_repeat<J: Sync + Copy, R: Send + PartialEq>(
    threads: usize,
    jobs: &[J],
    about: impl Fn(&J) -> About,
    act: impl Fn(&J) -> Result<R, RunError> + Sync,
    progress: &dyn Progress,
) -> Result<(Vec<R>, bool), RunError> {
    let jobs = [jobs, &jobs[..jobs.len().min(1)]].concat();
    progress.begin(jobs.iter().map(|job| about(job).steps).sum());
    let mut results = run_all(threads, &jobs, about, act, progress)?;
    progress.end();
    let again = results.pop();
    let repeats = results.first() == again.as_ref();
    Ok((results, repeats))
}

/// Runs all jobs on `threads` threads, the longest first, and returns their results in the order of `jobs`. The caller
/// has begun the progress, and ends it.
///
/// # Errors
/// The first error of a job; no further jobs are begun after it.
pub(crate) fn run_all<J: Sync, R: Send, E: Send>(
    threads: usize,
    jobs: &[J],
    about: impl Fn(&J) -> About,
    act: impl Fn(&J) -> Result<R, E> + Sync,
    progress: &dyn Progress,
) -> Result<Vec<R>, E> {
    let about: Vec<About> = jobs.iter().map(about).collect();
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|at| Reverse(about[*at].length));
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, order, act) = (sender.clone(), &next, &order, &act);
            scope.spawn(move || {
                while let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone once a job has failed.
                    if sender.send((*at, act(&jobs[*at]))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (at, result) in receiver {
            progress.steps(about[at].steps, &about[at].what);
            results[at] = Some(result?);
        }
        Ok(())
    })?;
    Ok(results.into_iter().flatten().collect())
}
