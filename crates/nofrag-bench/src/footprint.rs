//! Heap bytes that the records take, per hole.
//!
//! The figure is the bytes that the contestant holds on the heap in a given state, spare room included, divided by the
//! holes of that state. Allocators that keep a record per allocation, or a table of fixed size, pay for it here.
//! nofrag's own account stands beside it and must not be smaller than the truth.

use crate::contest::{Contestant, Effort, Outcome, RangeTurn, Run, Stop, TimeBox};
use crate::low_holes::comb;
use crate::packing::holes_between;
use crate::patterns::SPARSE_SHIFT;
use crate::peers::{Peer, Space};
use crate::record::{Group, Measure};
use crate::speed::{PAGES, build};
use crate::trace::{Churn, HoleState};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

/// Brings a contestant into a state and counts its bytes.
pub fn measure<P: Peer>(make: &impl Fn(Space) -> P, state: &HoleState, effort: &Effort) -> Outcome {
    let live = match state {
        HoleState::Churned(churn) => churn.live,
        HoleState::Comb(holes) | HoleState::Sparse(holes) => *holes,
    };
    let shift = if matches!(state, HoleState::Sparse(_)) { SPARSE_SHIFT } else { 0 };
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let mut peer = make(Space { pages: PAGES, live, shift });
    let mut busy: Vec<(u64, u32)> = match state {
        HoleState::Churned(churn) => churned(&mut peer, churn, effort)?,
        HoleState::Comb(holes) | HoleState::Sparse(holes) => {
            let handles = comb(&mut peer, *holes, effort)?;
            handles.iter().map(|handle| (peer.start(handle) >> shift, 1)).collect()
        }
    };
    busy.shrink_to_fit();
    let of_list = busy.capacity() * size_of::<(u64, u32)>();
    let held = || {
        let change = heap.change();
        (change.bytes_allocated - change.bytes_deallocated).saturating_sub(of_list) as f64
    };
    let of_records = held();
    let holes = holes_between(&mut busy, PAGES).count() as f64;
    let mut samples = vec![(Measure::BytesPerHole, of_records / holes)];
    let own = peer.own_metadata_bytes();
    samples.extend(own.map(|own| (Measure::OwnBytesPerHole, own as f64 / holes)));
    if peer.shrink() {
        samples.push((Measure::ShrunkBytesPerHole, held() / holes));
    }
    samples.push((Measure::Holes, holes));
    Ok(samples.into())
}

/// Returns start and size of the live allocations after a churn.
fn churned<P: Peer>(
    peer: &mut P,
    churn: &Churn,
    effort: &Effort,
) -> Result<Vec<(u64, u32)>, String> {
    let handles = build(peer, churn, effort).map_err(Stop::while_building)?;
    let (_, kept) = churn.order.split_at(churn.order.len() / 2);
    let sizes = kept.iter().map(|&slot| churn.build[slot as usize]);
    let mut live: Vec<(P::Handle, u32)> = handles.into_iter().zip(sizes).collect();
    let clock = TimeBox::open(effort.untimed);
    for (done, replacement) in churn.replacements.iter().enumerate() {
        if done % 64 == 0 && clock.is_over() {
            let asked = churn.replacements.len();
            return Err(format!("too slow: {done} of {asked} replacements in {:?}", clock.limit()));
        }
        let (handle, size) = &mut live[replacement.slot as usize];
        if !peer.free(*handle) {
            return Err(Stop::FreeRefused.into());
        }
        *handle = peer.alloc(replacement.size).ok_or("fails: refuses a request")?;
        *size = replacement.size;
    }
    Ok(live.iter().map(|(handle, size)| (peer.start(handle), *size)).collect())
}

/// Runs one turn of all contestants in each state: bytes repeat exactly.
pub fn run(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let effort = run.effort;
    let churn = Churn::new(run.seed, 100_000, effort.replacements.min(200_000));
    for state in [HoleState::Churned(churn), HoleState::Comb(100_000), HoleState::Sparse(10_000)] {
        let of = (Group::Metadata, state.workload());
        run.contest((of.0, &of.1), contestants, (1, effort.workload), |who, _| {
            who.turn(RangeTurn::Footprint(&state, &effort))
        });
    }
}
