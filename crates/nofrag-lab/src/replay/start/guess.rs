//! A map of frames for a snapshot that has none: the free blocks that buddyinfo counts lie at random places.
//!
//! Free blocks of each order are as many as the kernel counted, and pages in use are of the kinds that it counts; where
//! they lie is chance. Such a start has the recorded host's fragmentation as far as it shows in counts.

use std::ops::Range;

use nofrag::units::Order;
use nofrag_host::budget::Room;
use nofrag_host::snapshot::{FrameUse, Snapshot, ZoneInfo};

use super::super::ReplayError;
use super::memory::BLOCK;
use super::{PER_FRAME, StartQuality};
use crate::random::Random;

/// Places tried at random for a block before all are searched.
const TRIALS: usize = 64;

/// Returns a possible use of each frame, from frame 0 on.
pub(super) fn uses(
    snapshot: &Snapshot<'_>,
    random: &mut Random,
    quality: &mut StartQuality,
    room: &mut Room,
) -> Result<Vec<FrameUse>, ReplayError> {
    let end = snapshot.populated().filter_map(ZoneInfo::end_pfn).max().unwrap_or(0);
    if snapshot.buddy.is_empty() || end == 0 {
        return Err(ReplayError::Host(
            "the snapshot at the start has neither kpageflags nor both buddyinfo and zoneinfo, so what was free is not \
             known; take a recording with `nofrag record` as root"
                .to_owned(),
        ));
    }
    room.take(end.saturating_mul(PER_FRAME))?;
    quality.cautions.push(
        "The snapshot has no map of frames (kpageflags): free blocks and pages in use are as many as the kernel \
         counted, but where they lie is chance, so that recorded frees meet other frames than they did."
            .to_owned(),
    );
    let mut uses = vec![FrameUse::NoPage; end as usize];
    for zone in snapshot.populated().filter(|zone| zone.zone.kind().is_some()) {
        let (Some(start), Some(end)) = (zone.start_pfn, zone.end_pfn()) else { continue };
        let mut guess = Guess { uses: &mut uses, span: start..end, random };
        guess.lay_out(zone);
        let blocks = snapshot.blocks(&zone.zone).map_or(&[][..], |zone| &zone.blocks);
        for order in Order::all().rev() {
            for _ in 0..blocks.get(order.index()).copied().unwrap_or(0) {
                guess.free(order);
            }
        }
        guess.fill(zone);
    }
    Ok(uses)
}

/// Marks a frame in use whose kind of use is not decided yet.
const UNKNOWN: FrameUse = FrameUse::HugeTlb;

struct Guess<'a> {
    uses: &'a mut [FrameUse],
    span: Range<u64>,
    random: &'a mut Random,
}

impl Guess<'_> {
    /// Marks the frames of a zone, in ascending order: holes, then reserved frames, then those that the allocator
    /// manages.
    fn lay_out(&mut self, zone: &ZoneInfo) {
        let managed = zone.managed.min(self.span.end - self.span.start);
        let reserved = zone.present.saturating_sub(managed);
        let from = self.span.end - managed;
        for pfn in self.span.clone() {
            self.uses[pfn as usize] = match pfn {
                pfn if pfn >= from => UNKNOWN,
                pfn if pfn + reserved >= from => FrameUse::Reserved,
                _ => FrameUse::NoPage,
            };
        }
    }

    /// Frees a block of an order at a random place where it does not become a part of a larger one.
    fn free(&mut self, order: Order) {
        let size = order.pages();
        let first = self.span.start.next_multiple_of(size);
        let places = self.span.end.saturating_sub(first) / size;
        if places == 0 {
            return;
        }
        let begin = self.random.between(0, places - 1);
        let trials: Vec<u64> = (0..TRIALS).map(|_| self.random.between(0, places - 1)).collect();
        // The sweep that ends a vain search is not kept in memory: there may be millions of places.
        let mut tries = trials.into_iter().chain(begin..places).chain(0..begin);
        let place = tries.find_map(|nth| {
            let at = first + nth * size;
            self.fits(at, order).then_some(at)
        });
        if let Some(at) = place {
            self.uses[at as usize..(at + size) as usize].fill(FrameUse::Free);
        }
    }

    fn fits(&self, at: u64, order: Order) -> bool {
        let all = |start: u64, usage: FrameUse| {
            let range = start..start + order.pages();
            range.end <= self.span.end
                && range.start >= self.span.start
                && range.clone().all(|pfn| self.uses[pfn as usize] == usage)
        };
        all(at, UNKNOWN) && (order == Order::MAX || !all(at ^ order.pages(), FrameUse::Free))
    }

    /// Decides the use of frames in use: pageblock by pageblock in random order, so that like lies with like.
    fn fill(&mut self, zone: &ZoneInfo) {
        let counter = |names: [&str; 2]| -> u64 {
            names.iter().filter_map(|name| zone.counters.get(*name)).sum()
        };
        let mut file = counter(["nr_zone_inactive_file", "nr_zone_active_file"]);
        let mut anon = counter(["nr_zone_inactive_anon", "nr_zone_active_anon"]);
        let mut blocks: Vec<u64> =
            (self.span.start / BLOCK..self.span.end.div_ceil(BLOCK)).collect();
        self.random.shuffle(&mut blocks);
        for block in blocks {
            let range =
                (block * BLOCK).max(self.span.start)..(block * BLOCK + BLOCK).min(self.span.end);
            for pfn in range {
                if self.uses[pfn as usize] != UNKNOWN {
                    continue;
                }
                self.uses[pfn as usize] = if file > 0 {
                    file -= 1;
                    FrameUse::File
                } else if anon > 0 {
                    anon -= 1;
                    FrameUse::Anon
                } else {
                    FrameUse::Kernel
                };
            }
        }
    }
}
