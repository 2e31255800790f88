//! One pass over the events for all runs: read once, paired once, carried out by each.
//!
//! The reading thread pairs events and hands out the steps in shared batches; each other thread has some of the runs
//! and carries every batch out in all of them, so there is one pass for any number of runs and threads. Channels hold
//! few batches: memory is bounded by the frames of the runs. A run depends on its steps alone, so the results do not
//! depend on the number of threads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use nofrag::units::Order;
use nofrag_host::trace::{
    BATCH, Event, EventSource, Loss, NO_FRAME, TraceError, Unseen, UnseenTracker, View,
};

use super::addresses::AddressReplay;
use super::engine::{Batch, Engine};
use super::outcome::{Followed, Recorded};
use super::pairing::Pairing;
use super::timeline::Timeline;

/// Free blocks below this order count as serious when types mix (the stall patch of 2018).
const SERIOUS: Order = Order::new(4).expect("an order");
/// The most batches of steps that wait in the channel to a worker thread.
const WAITING: usize = 4;

/// A run and the time that it has worked.
#[derive(Debug)]
pub(super) struct Timed {
    pub(super) engine: Engine,
    pub(super) wall_nanos: u64,
}

/// A snapshot in the middle of the recording, to which beliefs are set right.
pub(super) struct Resync<'a> {
    /// The time at which its last file had been read.
    pub(super) at: u64,
    /// Returns true if the snapshot shows the frame as free.
    pub(super) is_free: Box<dyn Fn(u64) -> bool + 'a>,
}

/// The parts of a replay that see each event before the runs do.
pub(super) struct Followers<'a> {
    pub(super) pairing: &'a mut Pairing,
    /// `None` if an earlier pass has replayed the addresses.
    pub(super) addresses: Option<&'a mut AddressReplay>,
    pub(super) unseen: UnseenTracker,
    /// Free memory by the events alone, over time.
    pub(super) timeline: Timeline<Followed>,
}

/// The worker threads and the channels to them.
struct Workers<'scope> {
    senders: Vec<SyncSender<Arc<Batch>>>,
    threads: Vec<thread::ScopedJoinHandle<'scope, Vec<(usize, Timed)>>>,
}

/// Reads all events, and carries them out in every run. Returns the kernel's own counts, the requests that the
/// recording lacks, and the runs in the order in which they came.
///
/// # Errors
/// [`TraceError`] when the events cannot be read.
pub(super) fn pass(
    mut events: Box<dyn EventSource>,
    followers: Followers<'_>,
    resyncs: &[Resync<'_>],
    engines: Vec<Engine>,
    threads: usize,
    progress: &dyn Fn(u64),
) -> Result<(Recorded, Unseen, Vec<Timed>), TraceError> {
    thread::scope(|scope| {
        let workers = Workers::start(scope, engines, threads);
        let Followers { pairing, addresses, mut unseen, timeline } = followers;
        let mut reading =
            Reading { recorded: Recorded::default(), first: None, last: None, timeline };
        let follow = (&mut *pairing, addresses, &mut unseen);
        let read = reading.read_all(&mut *events, follow, resyncs, |batch, done| {
            workers.send(batch);
            progress(done);
        });
        let loss = events.loss();
        reading.recorded.slower = pairing.pace().host().slower;
        let Loss { events: lost, gaps, unreadable } = loss;
        reading.recorded = Recorded { lost, gaps, unreadable, ..reading.recorded };
        let mut runs = workers.join();
        read?;
        let end = reading.last.unwrap_or(0);
        reading.timeline.finish(end, |at| Followed { at, idle: pairing.free_by_zone() });
        reading.recorded.followed = reading.timeline.samples();
        runs.iter_mut().for_each(|run| run.engine.finish(end));
        Ok((reading.recorded, unseen.finish(loss.events.max(loss.gaps)), runs))
    })
}

/// Returns the counts of the recorded kernel, without a replay.
///
/// # Errors
/// [`TraceError`] when the events cannot be read.
pub(super) fn recorded(mut events: Box<dyn EventSource>) -> Result<Recorded, TraceError> {
    let mut reading = Reading::new(Timeline::new(0));
    let mut batch = Vec::with_capacity(BATCH);
    let mut more = true;
    while more {
        batch.clear();
        more = events.read(&mut batch)?;
        batch.iter().for_each(|event| reading.note(event));
    }
    Ok(reading.recorded)
}

impl<'scope> Workers<'scope> {
    fn start<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        engines: Vec<Engine>,
        threads: usize,
    ) -> Workers<'scope> {
        let count = threads.clamp(1, engines.len().max(1));
        let mut shares: Vec<Vec<(usize, Timed)>> = (0..count).map(|_| Vec::new()).collect();
        for (number, engine) in engines.into_iter().enumerate() {
            shares[number % count].push((number, Timed { engine, wall_nanos: 0 }));
        }
        let mut workers = Workers { senders: Vec::new(), threads: Vec::new() };
        for share in shares {
            let (sender, receiver) = sync_channel(WAITING);
            workers.senders.push(sender);
            workers.threads.push(scope.spawn(move || work(share, &receiver)));
        }
        workers
    }

    fn send(&self, batch: Batch) {
        let batch = Arc::new(batch);
        for sender in &self.senders {
            // A thread that is gone has panicked, which joining it tells.
            let _ = sender.send(Arc::clone(&batch));
        }
    }

    /// Waits for all threads; returns the runs in their order.
    fn join(self) -> Vec<Timed> {
        drop(self.senders);
        let shares = self
            .threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let mut runs: Vec<_> = shares.flatten().collect();
        runs.sort_by_key(|(number, _)| *number);
        runs.into_iter().map(|(_, run)| run).collect()
    }
}

fn work(mut share: Vec<(usize, Timed)>, batches: &Receiver<Arc<Batch>>) -> Vec<(usize, Timed)> {
    while let Ok(batch) = batches.recv() {
        for (_, run) in &mut share {
            let began = Instant::now();
            run.engine.run(&batch);
            run.wall_nanos += began.elapsed().as_nanos() as u64;
        }
    }
    share
}

/// Facts gathered while events are read: counts, times of the first and the last event, samples.
#[derive(Debug)]
struct Reading {
    recorded: Recorded,
    first: Option<u64>,
    last: Option<u64>,
    timeline: Timeline<Followed>,
}

impl Reading {
    fn new(timeline: Timeline<Followed>) -> Reading {
        Reading { recorded: Recorded::default(), first: None, last: None, timeline }
    }

    fn read_all(
        &mut self,
        events: &mut dyn EventSource,
        (pairing, mut addresses, unseen): (
            &mut Pairing,
            Option<&mut AddressReplay>,
            &mut UnseenTracker,
        ),
        mut resyncs: &[Resync<'_>],
        mut steps: impl FnMut(Batch, u64),
    ) -> Result<(), TraceError> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            let more = events.read(&mut batch)?;
            for event in &batch {
                while let Some((resync, later)) =
                    resyncs.split_first().filter(|(r, _)| r.at < event.at)
                {
                    pairing.resynchronise(resync.at, &resync.is_free);
                    resyncs = later;
                }
                if self.timeline.is_due(event.at) {
                    let sample = |at| Followed { at, idle: pairing.free_by_zone() };
                    self.timeline.take(event.at, sample);
                }
                // A page of the bulk interface is a request as any other, and asks for one page of the CPU's lists.
                let plain = unseen.plain(event);
                self.note(plain.as_ref().unwrap_or(event));
                plain.iter().for_each(|event| pairing.event(event));
                addresses.iter_mut().for_each(|addresses| addresses.event(event));
            }
            let pace = Arc::new(pairing.pace().host());
            steps(Batch { steps: pairing.take_steps(), pace }, self.recorded.events);
            if !more {
                return Ok(());
            }
        }
    }

    fn note(&mut self, event: &Event) {
        let recorded = &mut self.recorded;
        let first = *self.first.get_or_insert(event.at);
        self.last = Some(event.at);
        recorded.nanos = event.at.saturating_sub(first);
        let view = event.view();
        recorded.events += u64::from(!matches!(view, View::Lost(_)));
        match view {
            View::PageAlloc { pfn, order, .. } if (order as usize) < Order::COUNT => {
                recorded.requests[order as usize] += 1;
                assert_ne!(pfn, Some(NO_FRAME));
                recorded.failures[order as usize] += u64::from(pfn.is_none());
            }
            View::ExtFrag { fallback_order, alloc_migratetype, change_ownership, .. } => {
                let is_below = |order: Order| fallback_order < i32::from(order.get());
                recorded.claims += u64::from(is_below(Order::PAGEBLOCK) && change_ownership);
                let of = usize::try_from(alloc_migratetype).ok();
                if let Some(of) = of.filter(|&of| of < recorded.extfrag.len()) {
                    recorded.extfrag[of] += u64::from(is_below(Order::PAGEBLOCK));
                    recorded.serious[of] += u64::from(is_below(SERIOUS));
                }
            }
            View::MigratePages { succeeded, reason: 0, .. } => {
                recorded.moved = recorded.moved.saturating_add(succeeded);
            }
            View::CompactionEnd { .. } => recorded.compactions += 1,
            View::DirectReclaimBegin { .. } => recorded.direct_reclaims += 1,
            View::DirectReclaimEnd { reclaimed } => {
                recorded.reclaimed_direct = recorded.reclaimed_direct.saturating_add(reclaimed);
            }
            _ => {}
        }
    }
}
