//! Random runs that come and go, in every way of handing them out: the cost of each way.
//!
//! Every way serves the same requests in the same order. Ways take turns, and ratios are compared within one round: so
//! a slow minute of the host falls on all of them.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use nofrag_backing::arena::Purge;

use super::{MemoryPlan, names};
use crate::apparatus::strategies::{
    ArenaBench, Bench, MOST_PAGES, Request, Serve, Strategy, Took, Touched,
};
use crate::key::{self, Key};
use crate::random::Random;
use crate::report::Measurement;
use crate::scenario::{RunError, turn};
use crate::stats::Spread;

/// Use of the runs by a program: how many threads touch them, and which of their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// One thread touches the first page of each.
    First,
    /// Two threads touch the first page of each.
    FirstByTwo,
    /// One thread touches all pages.
    All,
}

impl Load {
    fn threads(self) -> usize {
        if self == Load::FirstByTwo { 2 } else { 1 }
    }

    fn touched(self) -> Touched {
        if self == Load::All { Touched::All } else { Touched::First }
    }

    /// Returns the pairs of allocation and free in a round: fewer if all pages are touched, which takes tens of
    /// microseconds where no pages are parked.
    fn pairs(self, plan: &MemoryPlan) -> usize {
        if self == Load::All { plan.pairs() / 8 } else { plan.pairs() }
    }
}

/// Number of times that all requests are served before a way that keeps its pages is measured: the first touch of a
/// page is no reuse.
const WARM_UPS: usize = 4;

/// Least time for which a way is measured in a round, if serving the requests again reaches it: a measurement of half a
/// millisecond would show the start of its thread and nothing else.
const LEAST: Duration = Duration::from_millis(5);
const MOST_PASSES: u32 = 64;

/// Number of live runs of each thread.
const SLOTS: u16 = 64;

/// Blocks that have been idle for this long are purged: about as long as a thousand pairs take, so that purges are part
/// of the measurement.
const DECAY: Duration = Duration::from_millis(1);

/// One way of handing out runs, with a server for each thread.
struct Way {
    design: &'static str,
    servers: Vec<Box<dyn Serve>>,
    /// Number of times that the requests are served in a round.
    passes: u32,
    ns: Vec<f64>,
    calls: u64,
    pairs: u64,
}

impl Way {
    fn of(strategy: Strategy, threads: usize) -> Result<Way, RunError> {
        let design = strategy.into_str();
        let server = || Bench::new(strategy, SLOTS).map(|bench| Box::new(bench) as Box<dyn Serve>);
        let servers = (0..threads).map(|_| server()).collect::<Result<_, _>>();
        let servers = servers.map_err(|error| failed(design, &error.to_string()))?;
        Ok(Way { design, servers, passes: 1, ns: Vec::new(), calls: 0, pairs: 0 })
    }

    /// Builds the library's own way: an arena with an owner for each thread.
    fn of_arena(design: &'static str, purge: Purge, threads: usize) -> Result<Way, RunError> {
        let benches = ArenaBench::over_one(threads as u32, SLOTS, purge)
            .map_err(|error| failed(design, &error.to_string()))?;
        let boxed = |bench| Box::new(bench) as Box<dyn Serve>;
        let servers = benches.into_iter().map(boxed).collect();
        Ok(Way { design, servers, passes: 1, ns: Vec::new(), calls: 0, pairs: 0 })
    }

    /// Serves the requests of each thread, all threads at once. With several passes there is one more, before them,
    /// that is not counted: it warms up the thread's processor.
    fn serve(&mut self, requests: &[Vec<Request>], load: Load) -> Result<Vec<Took>, RunError> {
        let touched = load.touched();
        let (together, passes) = (Barrier::new(self.servers.len()), self.passes);
        let all: io::Result<Vec<Took>> = thread::scope(|scope| {
            let workers: Vec<_> = self
                .servers
                .iter_mut()
                .zip(requests)
                .map(|(server, requests)| {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        served(server.as_mut(), requests, touched, passes)
                    })
                })
                .collect();
            let ended = workers.into_iter().map(|worker| worker.join());
            ended
                .map(|ended| ended.unwrap_or_else(|_| Err(io::Error::other("it panicked"))))
                .collect()
        });
        all.map_err(|why| failed(self.design, &why.to_string()))
    }

    /// Serves requests until the way is in its lasting state: blocks are in use, and a way that keeps its pages has
    /// them.
    fn warm_up(&mut self, requests: &[Vec<Request>], load: Load) -> Result<(), RunError> {
        let keeps_pages = [names::PARKED, names::ARENA, names::ARENA_DECAY].contains(&self.design);
        for _ in 0..if keeps_pages { WARM_UPS } else { 0 } {
            self.serve(requests, Load::All)?;
        }
        let took = self.serve(requests, load)?.iter().map(|took| took.wall).min();
        let took = took.unwrap_or(LEAST).max(Duration::from_nanos(1));
        self.passes = (LEAST.as_nanos().div_ceil(took.as_nanos()) as u32).min(MOST_PASSES);
        Ok(())
    }

    fn round(&mut self, requests: &[Vec<Request>], load: Load) -> Result<(), RunError> {
        let took = self.serve(requests, load)?;
        let pairs = requests.iter().map(Vec::len).sum::<usize>() * self.passes as usize;
        // Wall time where threads disturb each other, as they do while they wait; otherwise processor time of the
        // thread, which no other thread disturbs.
        let each = |took: &Took| match load {
            Load::FirstByTwo => took.wall,
            Load::First | Load::All => took.processor,
        };
        let ns: f64 = took.iter().map(|took| each(took).as_nanos() as f64).sum();
        self.ns.push(ns / pairs as f64);
        self.calls += took.iter().map(|took| took.calls.total()).sum::<u64>();
        self.pairs += pairs as u64;
        Ok(())
    }
}

/// Returns the time of all passes together, on this thread.
fn served(
    server: &mut dyn Serve,
    requests: &[Request],
    touched: Touched,
    passes: u32,
) -> io::Result<Took> {
    if passes > 1 {
        server.serve(requests, touched)?;
    }
    let mut all = server.serve(requests, touched)?;
    for _ in 1..passes {
        let took = server.serve(requests, touched)?;
        all.processor += took.processor;
        all.wall += took.wall;
        all.calls += took.calls;
    }
    Ok(all)
}

fn failed(design: &str, why: &str) -> RunError {
    RunError::engine(design, "a load of random runs", why)
}

/// Returns the requests of a thread.
fn requests(seed: u64, thread: usize, pairs: usize) -> Vec<Request> {
    let mut random = Random::new(seed, thread as u64);
    let mut request = || Request {
        slot: random.index(usize::from(SLOTS)) as u16,
        pages: random.between(1, u64::from(MOST_PAGES)) as u16,
    };
    (0..pairs).map(|_| request()).collect()
}

/// Runs the load in every way, round by round.
pub(super) fn compare(
    plan: &MemoryPlan,
    load: Load,
    program: &str,
    step: &dyn Fn(&str),
) -> Result<Vec<Measurement>, RunError> {
    let mut ways = Vec::new();
    for &strategy in Strategy::ALL.iter().filter(|it| plan.has(it.into_str())) {
        ways.push(Way::of(strategy, load.threads())?);
    }
    let arenas =
        [(names::ARENA_DECAY, Purge::Decay { after: DECAY }), (names::ARENA, Purge::Manual)];
    for (design, purge) in arenas.into_iter().filter(|(design, _)| plan.has(design)) {
        ways.push(Way::of_arena(design, purge, load.threads())?);
    }
    let pairs = load.pairs(plan);
    let requests: Vec<Vec<Request>> =
        (0..load.threads()).map(|thread| requests(plan.seed, thread, pairs)).collect();
    for way in &mut ways {
        way.warm_up(&requests, load)?;
    }
    let order: Vec<usize> = (0..ways.len()).collect();
    for round in 0..plan.repeats {
        for at in turn(&order, round) {
            step(&format!("{program}: {}", ways[at].design));
            ways[at].round(&requests, load)?;
        }
    }
    Ok(ways.into_iter().filter_map(|way| measurement(program, way)).collect())
}

fn measurement(program: &str, way: Way) -> Option<Measurement> {
    let calls = 1000.0 * way.calls as f64 / way.pairs.max(1) as f64;
    // Benches over one arena all count the pages that the whole arena has given back. The first pass is among them, but
    // not in pairs.
    let purged = way.servers.first().map_or(0, |server| server.purged()) as f64;
    let purged = purged / way.pairs.max(1) as f64;
    Some(Measurement {
        counts: key::counts([
            (names::CALLS, calls),
            (Key::number("pages purged per pair"), purged),
        ]),
        ..Measurement::new(
            program,
            way.design,
            way.pairs,
            "ns per allocation and free",
            Spread::of(way.ns)?,
        )
    })
}
