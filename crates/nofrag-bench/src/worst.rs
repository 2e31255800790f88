//! Inputs that are made to hurt: many holes, none of which serves.
//!
//! Holes of 1,024 for requests of 1,080, which most allocators by size put into the same bin, and holes of which none
//! has a multiple of the alignment that is asked for. What serves lies behind all of them.

use crate::contest::{Contestant, CpuClock, Effort, Outcome, RangeTurn, Run, Stop, TimeBox};
use crate::peers::{Aligned, OFFSET, Peer, Space};
use crate::record::{Group, Measure};
use crate::speed::timing;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

/// Pages of the space.
const PAGES: u32 = 1 << 30;

/// Requests of one round, each of them given back.
const TURNS: usize = 25_000;

/// Requests between two looks at the clock.
const BETWEEN_LOOKS: usize = 8;

/// An input that is made to hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worst {
    TooShort,
    Misaligned,
}

impl Worst {
    /// All inputs, in the order of the tables.
    pub const ALL: [Worst; 2] = [Worst::TooShort, Worst::Misaligned];

    /// Returns the name of the workload with this many holes.
    #[must_use]
    pub fn workload(self, holes: u32) -> String {
        match self {
            Worst::TooShort => format!("{holes} holes of 1024, requests of 1080"),
            Worst::Misaligned => format!("{holes} holes without a multiple of 64, requests at one"),
        }
    }

    /// Returns sizes that are taken in turn; the second of each turn is given back, and leaves a hole.
    fn turn(self) -> &'static [u32] {
        match self {
            Worst::TooShort => &[3072, 1024],
            Worst::Misaligned => &[1, 40, 23],
        }
    }

    fn request<P: Peer>(self, peer: &mut P) -> Result<P::Handle, String> {
        let refused = || "fails: refuses a request".to_owned();
        match self {
            Worst::TooShort => peer.alloc(1080).ok_or_else(refused),
            Worst::Misaligned => match peer.alloc_aligned(16, 64) {
                Aligned::At(range) => Ok(range),
                Aligned::NoFit => Err(refused()),
                Aligned::Unsupported => Err("has no aligned requests".to_owned()),
            },
        }
    }
}

/// Returns the number of holes.
#[must_use]
pub fn holes(effort: &Effort) -> u32 {
    if effort.is_full() { 100_000 } else { 10_000 }
}

fn dig<P: Peer>(peer: &mut P, worst: Worst, holes: u32, effort: &Effort) -> Result<(), Stop> {
    let clock = TimeBox::open(effort.setup);
    let mut short = Vec::with_capacity(holes as usize);
    let asked = holes as usize * (worst.turn().len() + 1);
    for turn in 0..holes as usize {
        let done = turn * worst.turn().len();
        if turn % 512 == 0 && clock.is_over() {
            return Err(Stop::TooSlow { done, asked, limit: clock.limit() });
        }
        for (at, &size) in worst.turn().iter().enumerate() {
            let range = peer.alloc(size).ok_or(Stop::Refused { after: done + at })?;
            if at == 1 {
                short.push(range);
            }
        }
    }
    for (done, range) in short.into_iter().enumerate() {
        if done % 512 == 0 && clock.is_over() {
            let done = asked - holes as usize + done;
            return Err(Stop::TooSlow { done, asked, limit: clock.limit() });
        }
        if !peer.free(range) {
            return Err(Stop::FreeRefused);
        }
    }
    Ok(())
}

/// Runs one round of one contestant.
pub fn round<P: Peer>(make: &impl Fn(Space) -> P, worst: Worst, effort: &Effort) -> Outcome {
    let holes = holes(effort);
    let mut peer = make(Space { pages: PAGES, live: 2 * holes, shift: 0 });
    dig(&mut peer, worst, holes, effort).map_err(Stop::while_building)?;
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let clock = TimeBox::open(effort.round);
    let (mut done, began) = (0, CpuClock::start());
    while done < TURNS && !clock.is_over() {
        for _ in 0..BETWEEN_LOOKS {
            let range = worst.request(&mut peer)?;
            if !peer.free(range) {
                return Err(Stop::FreeRefused.into());
            }
        }
        done += BETWEEN_LOOKS;
    }
    Ok(timing(began, &heap, 2 * done, 2 * TURNS, effort))
}

/// Runs the rounds of all contestants.
pub fn run(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let effort = run.effort;
    for worst in Worst::ALL {
        let (workload, rounds) = (worst.workload(holes(&effort)), (effort.rounds, effort.workload));
        run.contest((Group::Worst, &workload), contestants, rounds, |who, _| {
            who.turn(RangeTurn::Worst(worst, &effort))
        });
        run.records.add_ratios(&workload, Measure::NsPerOp, OFFSET, Measure::OverOffset);
    }
}
