//! Before anything is timed: is a contestant right, and what can it do?
//!
//! A bitmap of the space knows which pages are taken. Every range handed out must lie inside the space and touch no taken
//! page; the lowest possible address is found by scanning, which tells how often a contestant chooses it.

use crate::contest::{Board, Contestant, Outcome, interleave};
use crate::peers::{Aligned, Peer, Space};
use crate::record::{Group, Measure, Records};
use crate::trace::{Draws, Sizes};

/// Pages of the space.
const PAGES: u32 = 1 << 16;

/// Live allocations: about half of the space.
const LIVE: usize = 1000;

/// Replacements under the bitmap's eyes.
const REPLACEMENTS: usize = 4000;

/// The name of the workload.
pub const WORKLOAD: &str = "1000 live of 1..64 pages in 2^16, then full, then empty";

/// What a contestant was seen to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    lowest_percent: f64,
    aligns: bool,
    whole_again: bool,
}

impl Verdict {
    fn as_samples(self) -> Vec<(Measure, f64)> {
        vec![
            (Measure::Disjoint, 1.0),
            (Measure::LowestPercent, self.lowest_percent),
            (Measure::Aligns, f64::from(u8::from(self.aligns))),
            (Measure::WholeAgain, f64::from(u8::from(self.whole_again))),
        ]
    }
}

/// Which pages are taken.
struct Pages {
    taken: Vec<bool>,
}

impl Pages {
    fn new() -> Pages {
        Pages { taken: vec![false; PAGES as usize] }
    }

    /// Marks a new range, unless it is wrong.
    fn take(&mut self, start: u64, size: u32) -> Result<(), String> {
        let range = start as usize..start as usize + size as usize;
        match self.taken.get_mut(range) {
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

    fn free(&mut self, start: u64, size: u32) {
        self.taken[start as usize..start as usize + size as usize].fill(false);
    }

    /// The lowest address with `size` free pages.
    fn lowest(&self, size: u32) -> Option<u64> {
        let mut run = 0;
        for (page, &taken) in self.taken.iter().enumerate() {
            run = if taken { 0 } else { run + 1 };
            if run == size {
                return Some(page as u64 + 1 - u64::from(size));
            }
        }
        None
    }
}

/// A peer under observation.
struct Observed<P: Peer> {
    peer: P,
    pages: Pages,
    live: Vec<(P::Handle, u32)>,
    placed: u64,
    lowest: u64,
}

impl<P: Peer> Observed<P> {
    /// Whether the peer found a place for `size` pages.
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

    /// Whether aligned requests are served, and all of them aligned.
    fn aligns(&mut self) -> Result<bool, String> {
        for (size, align) in [(3, 16), (1, 64), (40, 64), (64, 16), (7, 256)] {
            match self.peer.alloc_aligned(size, align) {
                Aligned::Unsupported => return Ok(false),
                Aligned::NoFit => return Err(format!("wrong: finds no {size} pages by {align}")),
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
        Ok(true)
    }
}

/// Observes one contestant.
pub fn run<P: Peer>(make: &impl Fn(Space) -> P, seed: u64) -> Outcome<Verdict> {
    let space = Space { pages: PAGES, live: PAGES };
    let peer = make(space);
    let mut observed = Observed { peer, pages: Pages::new(), live: vec![], placed: 0, lowest: 0 };
    match observe(&mut observed, Draws::new(seed, Sizes::Uniform)) {
        Ok(verdict) => Outcome::Whole(verdict),
        Err(fault) => Outcome::Nothing(fault),
    }
}

fn observe<P: Peer>(observed: &mut Observed<P>, mut draws: Draws) -> Result<Verdict, String> {
    for _ in 0..LIVE {
        if !observed.alloc(draws.size())? {
            return Err("wrong: refuses a request in a roomy space".to_owned());
        }
    }
    for _ in 0..REPLACEMENTS {
        observed.free(draws.pick(observed.live.len()))?;
        observed.alloc(draws.size())?;
    }
    let lowest_percent = observed.lowest as f64 / observed.placed as f64 * 100.0;
    let aligns = observed.aligns()?;
    while observed.alloc(draws.size())? {}
    while !observed.live.is_empty() {
        observed.free(draws.pick(observed.live.len()))?;
    }
    let whole_again = observed.alloc(PAGES)?;
    Ok(Verdict { lowest_percent, aligns, whole_again })
}

/// Observes all; those that are wrong take no further part, and their row says why.
pub fn run_all(
    records: &mut Records,
    contestants: &[Box<dyn Contestant>],
    seed: u64,
    progress: &dyn Fn(&str),
) {
    let board = Board::new(records, Group::Verify, WORKLOAD, contestants);
    interleave(board, contestants, 1, progress, |contestant, _| {
        contestant.verify(seed).map(Verdict::as_samples)
    });
}
