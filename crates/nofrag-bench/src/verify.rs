//! Before anything is timed: is a contestant right, and what can it do?
//!
//! A bitmap of the space knows which pages are taken. Every range handed out must lie inside the space and touch no
//! taken page; the lowest possible address is found by scanning, which tells how often a contestant chooses it.

use crate::contest::{Contestant, Measured, Outcome, RangeTurn, Run};
use crate::peers::{Aligned, Peer, Space};
use crate::record::{Group, Measure};
use crate::trace::{Draws, Sizes};

const PAGES: u32 = 1 << 16;

/// Live allocations: about half of the space.
const LIVE: usize = 1000;

/// Replacements that the bitmap checks.
const REPLACEMENTS: usize = 4000;

pub const WORKLOAD: &str = "1000 live of 1..64 pages in 2^16, then full, then empty";

/// Map of the pages that are taken.
pub(crate) struct Taken(Vec<bool>);

impl Taken {
    /// Makes a map of `pages` pages, all free.
    pub(crate) fn none_of(pages: u32) -> Taken {
        Taken(vec![false; pages as usize])
    }

    /// Marks a new range, unless it is wrong.
    pub(crate) fn take(&mut self, start: u64, size: u32) -> Result<(), String> {
        let range = start as usize..start as usize + size as usize;
        match self.0.get_mut(range) {
            None => Err(format!("wrong: {size} pages at {start} lie outside the space")),
            Some(pages) if pages.contains(&true) => {
                Err(format!("wrong: {size} pages at {start} overlap others"))
            }
            Some(pages) => {
                pages.fill(true);
                Ok(())
            }
        }
    }

    /// Marks what was given back.
    pub(crate) fn free(&mut self, start: u64, size: u32) {
        self.0[start as usize..start as usize + size as usize].fill(false);
    }

    /// Returns the lowest address with `size` free pages.
    fn lowest(&self, size: u32) -> Option<u64> {
        let mut run = 0;
        for (page, &taken) in self.0.iter().enumerate() {
            run = if taken { 0 } else { run + 1 };
            if run == size {
                return Some(page as u64 + 1 - u64::from(size));
            }
        }
        None
    }
}

struct Observed<P: Peer> {
    peer: P,
    pages: Taken,
    live: Vec<(P::Handle, u32)>,
    placed: u64,
    lowest: u64,
}

impl<P: Peer> Observed<P> {
    /// Returns true if the peer found a place for `size` pages.
    fn alloc(&mut self, size: u32) -> Result<bool, String> {
        let lowest = self.pages.lowest(size);
        let Some(handle) = self.peer.alloc(size) else { return Ok(false) };
        let start = self.peer.start(&handle);
        self.pages.take(start, size)?;
        self.placed += 1;
        self.lowest += u64::from(lowest == Some(start));
        self.live.push((handle, size));
        Ok(true)
    }

    fn free(&mut self, index: usize) -> Result<(), String> {
        let (handle, size) = self.live.swap_remove(index);
        self.pages.free(self.peer.start(&handle), size);
        if self.peer.free(handle) { Ok(()) } else { Err("wrong: refuses a free".to_owned()) }
    }

    /// Returns whether the peer serves aligned requests, and the first size and alignment for which no place was found
    /// in a roomy space.
    fn aligns(&mut self) -> Result<(bool, Option<(u32, u32)>), String> {
        let mut missed = None;
        for (size, align) in [(3, 16), (1, 64), (40, 64), (64, 16), (7, 256)] {
            match self.peer.alloc_aligned(size, align) {
                Aligned::Unsupported => return Ok((false, None)),
                Aligned::NoFit => missed = missed.or(Some((size, align))),
                Aligned::At(handle) => {
                    let start = self.peer.start(&handle);
                    if !start.is_multiple_of(u64::from(align)) {
                        return Err(format!("wrong: {start} is not a multiple of {align}"));
                    }
                    self.pages.take(start, size)?;
                    self.live.push((handle, size));
                }
            }
        }
        Ok((missed.is_none(), missed))
    }
}

impl<P: Peer> Observed<P> {
    fn new(peer: P) -> Observed<P> {
        Observed { peer, pages: Taken::none_of(PAGES), live: vec![], placed: 0, lowest: 0 }
    }

    /// Fills half of the space and churns.
    fn churn(&mut self, draws: &mut Draws) -> Result<(), String> {
        for _ in 0..LIVE {
            if !self.alloc(draws.size())? {
                return Err("wrong: refuses a request in a roomy space".to_owned());
            }
        }
        for _ in 0..REPLACEMENTS {
            if self.live.is_empty() {
                return Err("wrong: refuses every request although the space is empty".to_owned());
            }
            self.free(draws.pick(self.live.len()))?;
            self.alloc(draws.size())?;
        }
        Ok(())
    }
}

/// Checks one contestant against the bitmap. Only a fault without any alignment excludes it: the other tables ask for
/// none.
pub fn run<P: Peer>(make: &impl Fn(Space) -> P, seed: u64) -> Outcome {
    let space = Space { pages: PAGES, live: PAGES, shift: 0 };
    let mut draws = Draws::new(seed, Sizes::Uniform);
    let (lowest_percent, whole_again) = observe(&mut Observed::new(make(space)), &mut draws)?;
    let mut observed = Observed::new(make(space));
    let (aligns, note) = match observed.churn(&mut draws).and_then(|()| observed.aligns()) {
        Ok((aligns, None)) => (aligns, None),
        Ok((_, Some((size, align)))) => {
            let what = format!("{size} pages at a multiple of {align} in a half-empty space");
            (false, Some(format!("does not find {what}")))
        }
        Err(fault) => (false, Some(format!("{fault} (aligned requests)"))),
    };
    let samples = vec![
        (Measure::Disjoint, 1.0),
        (Measure::LowestPercent, lowest_percent),
        (Measure::Aligns, f64::from(u8::from(aligns))),
        (Measure::WholeAgain, f64::from(u8::from(whole_again))),
    ];
    Ok(Measured { samples, note })
}

/// Checks everything that needs no alignment; returns the share of places that were the lowest, and whether all is one
/// piece again in the end.
fn observe<P: Peer>(observed: &mut Observed<P>, draws: &mut Draws) -> Result<(f64, bool), String> {
    observed.churn(draws)?;
    let lowest_percent = observed.lowest as f64 / observed.placed as f64 * 100.0;
    while observed.alloc(draws.size())? {}
    while !observed.live.is_empty() {
        observed.free(draws.pick(observed.live.len()))?;
    }
    Ok((lowest_percent, observed.alloc(PAGES)?))
}

/// Checks all contestants; those that are wrong take no further part, and their row says why.
pub fn run_all(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let (seed, limit) = (run.seed, run.effort.workload);
    run.contest((Group::Verify, WORKLOAD), contestants, (1, limit), |who, _| {
        who.turn(RangeTurn::Verify { seed })
    });
}
