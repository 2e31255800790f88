//! The time of single allocations, whose tail a mean hides.
//!
//! Each allocation of the replacements is timed by itself, so each figure includes the cost of reading the clock twice,
//! which the table shows as a row of its own and nothing subtracts.

use crate::contest::{
    Contestant, Effort, Measured, Outcome, RangeTurn, Run, Samples, Stop, TimeBox,
};
use crate::peers::{Peer, Space};
use crate::record::{Group, Measure};
use crate::speed::{PAGES, build};
use crate::trace::Churn;
use nofrag_lab::stats::{Latencies, Tail};
use std::hint::black_box;
use std::time::Instant;

/// Live allocations throughout the table of latencies.
pub const LIVE: u32 = 100_000;

pub const WORKLOAD: &str = "one allocation of 1..64 pages, live 100000";

/// The row of the clock's own cost.
pub const CLOCK: &str = "(reading the clock)";

fn samples(times: &Latencies) -> Samples {
    let Some(Tail { p50_ns, p99_ns, p999_ns, max_ns, .. }) = times.tail() else { return vec![] };
    vec![
        (Measure::P50Ns, p50_ns as f64),
        (Measure::P99Ns, p99_ns as f64),
        (Measure::P999Ns, p999_ns as f64),
        (Measure::MaxNs, max_ns as f64),
    ]
}

/// Runs one round of one contestant.
pub fn round<P: Peer>(make: &impl Fn(Space) -> P, churn: &Churn, effort: &Effort) -> Outcome {
    let mut peer = make(Space { pages: PAGES, live: churn.live, shift: 0 });
    let mut live = build(&mut peer, churn, effort).map_err(Stop::while_building)?;
    let mut times = Latencies::default();
    let clock = TimeBox::open(effort.round);
    let mut note = None;
    for (done, replacement) in churn.replacements.iter().enumerate() {
        if done % 64 == 0 && clock.is_over() {
            let asked = churn.replacements.len();
            note = Some(format!("{done} of {asked} allocations in {:?}", effort.round));
            break;
        }
        let handle = &mut live[replacement.slot as usize];
        if !peer.free(*handle) {
            return Err(Stop::FreeRefused.into());
        }
        let began = Instant::now();
        let found = black_box(peer.alloc(replacement.size));
        times.record(began.elapsed().as_nanos() as u64);
        *handle = found.ok_or("fails: refuses a request")?;
    }
    Ok(Measured { samples: samples(&times), note })
}

/// Measures the cost of reading the clock twice with nothing in between.
fn clock_cost() -> Samples {
    let mut times = Latencies::default();
    for _ in 0..1_000_000 {
        let began = Instant::now();
        let elapsed = black_box(began).elapsed();
        times.record(elapsed.as_nanos() as u64);
    }
    samples(&times)
}

/// Runs the rounds of all contestants.
pub fn run(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let (of, effort) = ((Group::Latency, WORKLOAD), run.effort);
    for (measure, cost) in clock_cost() {
        run.add(of, CLOCK, (measure, vec![cost]), Some("included in each row below"));
    }
    let churn = Churn::new(run.seed, LIVE, effort.replacements);
    let rounds = (effort.rounds.min(5), effort.workload);
    run.contest(of, contestants, rounds, |who, _| who.turn(RangeTurn::Latency(&churn, &effort)));
}
