//! Heap bytes that the records take, per hole.
//!
//! The figure is the bytes that the contestant holds on the heap in a given state, spare room included, divided by the
//! holes of that state. Allocators that keep a record per allocation, or a table of fixed size, pay for it here.
//! nofrag's own account stands beside it and must not be smaller than the truth.

use crate::contest::{Board, Contestant, Effort, Outcome, interleave};
use crate::low_holes::comb;
use crate::packing::holes_between;
use crate::peers::{Peer, Space};
use crate::record::{Group, Measure, Records};
use crate::speed::{PAGES, build};
use crate::trace::Churn;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

/// A state in which the bytes are counted.
#[derive(Clone, Debug)]
pub enum State {
    /// State after the building and the replacements.
    Churned(Churn),
    /// This many one-page holes, one page apart.
    Comb(u32),
}

impl State {
    /// Returns the name of the workload.
    #[must_use]
    pub fn workload(&self) -> String {
        match self {
            State::Churned(churn) => format!("bytes after churn, live {}", churn.live),
            State::Comb(holes) => format!("bytes with {holes} one-page holes"),
        }
    }
}

/// Bytes that a contestant holds on the heap, the bytes that it reports itself, and the holes of the state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bytes {
    heap: f64,
    own: Option<f64>,
    holes: f64,
}

impl Bytes {
    fn as_samples(self) -> Vec<(Measure, f64)> {
        let mut samples = vec![(Measure::BytesPerHole, self.heap / self.holes)];
        samples.extend(self.own.map(|own| (Measure::OwnBytesPerHole, own / self.holes)));
        samples.push((Measure::Holes, self.holes));
        samples
    }
}

/// Brings a contestant into a state and counts its bytes.
pub fn measure<P: Peer>(
    make: &impl Fn(Space) -> P,
    state: &State,
    effort: &Effort,
) -> Outcome<Bytes> {
    let live = match state {
        State::Churned(churn) => churn.live,
        State::Comb(holes) => *holes,
    };
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let mut peer = make(Space { pages: PAGES, live });
    let busy = match state {
        State::Churned(churn) => churned(&mut peer, churn, effort),
        State::Comb(holes) => comb(&mut peer, *holes, effort)
            .map(|handles| handles.iter().map(|handle| (peer.start(handle), 1)).collect())
            .map_err(|stop| stop.to_string()),
    };
    let mut busy: Vec<(u64, u32)> = match busy {
        Ok(busy) => busy,
        Err(reason) => return Outcome::Nothing(reason),
    };
    busy.shrink_to_fit();
    let change = heap.change();
    let held = change.bytes_allocated - change.bytes_deallocated;
    let held = held.saturating_sub(busy.capacity() * size_of::<(u64, u32)>());
    let holes = holes_between(&mut busy, PAGES).count();
    Outcome::Whole(Bytes {
        heap: held as f64,
        own: peer.own_metadata_bytes().map(|bytes| bytes as f64),
        holes: holes as f64,
    })
}

/// Returns start and size of the live allocations after a churn.
fn churned<P: Peer>(
    peer: &mut P,
    churn: &Churn,
    effort: &Effort,
) -> Result<Vec<(u64, u32)>, String> {
    let handles = build(peer, churn, effort).map_err(|stop| format!("{stop} (building)"))?;
    let (_, kept) = churn.order.split_at(churn.order.len() / 2);
    let sizes = kept.iter().map(|&slot| churn.build[slot as usize]);
    let mut live: Vec<(P::Handle, u32)> = handles.into_iter().zip(sizes).collect();
    let clock = crate::contest::TimeBox::open(effort.untimed);
    for (done, replacement) in churn.replacements.iter().enumerate() {
        if done % 64 == 0 && clock.is_over() {
            let asked = churn.replacements.len();
            return Err(format!("too slow: {done} of {asked} replacements in {:?}", clock.limit()));
        }
        let (handle, size) = &mut live[replacement.slot as usize];
        if !peer.free(*handle) {
            return Err("fails: refuses to free what it handed out".to_owned());
        }
        *handle = peer.alloc(replacement.size).ok_or("fails: refuses a request")?;
        *size = replacement.size;
    }
    Ok(live.iter().map(|(handle, size)| (peer.start(handle), *size)).collect())
}

/// Runs one turn of all contestants in each state: bytes repeat exactly.
pub fn run(
    records: &mut Records,
    contestants: &[Box<dyn Contestant>],
    effort: &Effort,
    seed: u64,
    progress: &dyn Fn(&str),
) {
    let churn = Churn::new(seed, 100_000, effort.replacements.min(200_000));
    for state in [State::Churned(churn), State::Comb(100_000)] {
        let board = Board::new(records, Group::Metadata, state.workload(), contestants);
        interleave(board, contestants, 1, effort, progress, |contestant, _| {
            contestant.footprint(&state, effort).map(Bytes::as_samples)
        });
    }
}
