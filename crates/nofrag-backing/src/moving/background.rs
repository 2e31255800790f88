//! kcompactd on a thread: the core's background machine, a stated amount of work at a time, until it is stopped.
//!
//! It works when a caller was refused a block for which there was memory in pieces, and, as the policy's
//! `compaction_proactiveness` says, ahead of that. Between two steps it holds no lock, and while pages are moved
//! neither; so an allocation waits for a step at most.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nofrag::page::{Kcompactd, Kswapd, NodeId, PageBudget, PageProgress};
use nofrag::units::Nanos;

use crate::frames::Frames;
use crate::worker::Worker;

const POISONED: &str = "no thread panicked while it held this lock";

/// The pace of the background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Frames that kcompactd looks at in one step, under one hold of a lock at most.
    pub step: PageBudget,
    /// Time from one look for work to the next.
    pub look_every: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { step: PageBudget { pages: 4096 }, look_every: Duration::from_millis(100) }
    }
}

/// Counts of the background work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    pub moved: u64,
    /// Rounds of one step for each pool, also those in which nothing was moved.
    pub steps: u64,
    pub looks: u64,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    nudged: bool,
    worked: Worked,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(POISONED)
    }
}

/// The thread on which kcompactd works. It ends, with nothing set aside any more, when this is stopped or dropped; if
/// the thread itself does that, which happens where a resident of the frames owns this, it ends soon after.
///
/// A child of a fork has no such thread: there this does nothing.
#[derive(Debug)]
pub struct Background {
    shared: Arc<Shared>,
    worker: Worker,
}

impl Background {
    /// Starts a thread on which kcompactd works for the pools of `frames`.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(frames: Arc<Frames>, pace: Pace) -> std::io::Result<Background> {
        let shared = Arc::new(Shared::default());
        let work = Arc::clone(&shared);
        let worker = Worker::spawn("nofrag-kcompactd", move || run(&frames, &work, pace))?;
        Ok(Background { shared, worker })
    }

    /// Starts such a thread as [`start`](Self::start) does, for the frames of handles.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn of_handles(handles: &super::Handles, pace: Pace) -> std::io::Result<Background> {
        Background::start(Arc::clone(handles.frames()), pace)
    }

    /// Makes the thread look for work at once.
    pub fn nudge(&self) {
        if !self.worker.is_here() {
            return;
        }
        self.shared.lock().nudged = true;
        self.shared.changed.notify_all();
    }

    /// Returns the counts of the thread's work so far; in a child of a fork, zeros.
    #[must_use]
    pub fn worked(&self) -> Worked {
        if !self.worker.is_here() {
            return Worked::default();
        }
        self.shared.lock().worked
    }

    /// Ends the thread, at the latest after the step that it is in, and returns the counts of its work.
    #[must_use = "dropping it ends it too"]
    pub fn stop(mut self) -> Worked {
        if let Err(panic) = self.end() {
            std::panic::resume_unwind(panic);
        }
        self.worked()
    }

    /// Waits for the thread, unless it is this one; the result is an error if it has panicked, as a resident may.
    fn end(&mut self) -> std::thread::Result<()> {
        let shared = &self.shared;
        self.worker.end(|| {
            shared.lock().stopped = true;
            shared.changed.notify_all();
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A caller that wants to know of a panic calls `stop` instead.
        let _ = self.end();
    }
}

fn run(frames: &Frames, shared: &Shared, pace: Pace) {
    let began = Instant::now();
    let machines = |_| (Kswapd::new(NodeId(0)), Kcompactd::new(NodeId(0)));
    let mut machines = (0..frames.pools()).map(machines).collect::<Vec<_>>();
    loop {
        let now = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let step = |(pool, (kswapd, kcompactd)): (usize, &mut (Kswapd, Kcompactd))| {
            frames.rest_kswapd(pool, kswapd, now);
            frames.step_kcompactd(pool, kcompactd, now, pace.step)
        };
        let steps = machines.iter_mut().enumerate().map(step).collect::<Vec<PageProgress>>();
        let more = steps.iter().any(|step| step.more);
        let mut state = shared.lock();
        state.worked.steps += 1;
        state.worked.moved += steps.iter().map(|step| step.pages).sum::<u64>();
        if !more && !state.stopped {
            state.worked.looks += 1;
            let wait = |state: &mut State| !state.stopped && !state.nudged;
            let waited = shared.changed.wait_timeout_while(state, pace.look_every, wait);
            (state, _) = waited.expect(POISONED);
        }
        state.nudged = false;
        if state.stopped {
            break;
        }
    }
    for (pool, (kswapd, kcompactd)) in machines.into_iter().enumerate() {
        frames.with_pool(pool, |pages| {
            kswapd.abandon(pages);
            kcompactd.abandon(pages);
        });
    }
}
