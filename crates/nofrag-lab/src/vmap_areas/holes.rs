//! Programs of ours that tell the designs apart: they run in spaces that have been used.
//!
//! On a clean space next fit is as good as a tree; only holes make the designs differ. Each program here begins with a
//! fragmented space, made the same way under every design: areas are allocated, a chosen part of them is freed, and
//! everything freed is purged before the clock runs.

use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{AreaError, AreaRequest, Guard};
use serde::Deserialize;

use super::programs::LONG_BUSY_AREAS;
use super::worker::{Body, Watch, Worker};
use crate::key::Key;
use crate::spaces::Failure;

/// 15,000 holes of two pages lie below; each loop takes 100 pages and, without its guard page, one page, and gives both
/// back.
///
/// A hole must be larger than the small request, or it does not void the cache of the old design.
pub(super) struct SmallHolesBelow;

impl Body for SmallHolesBelow {
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        let mut holes = Vec::new();
        for _ in 0..LONG_BUSY_AREAS {
            holes.push(worker.take_pages(1)?);
            worker.keep(1)?;
        }
        worker.give_all(holes)?;
        worker.space.purge_all();
        Ok(())
    }

    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let large = worker.take_pages(100)?;
        let small = worker.take(&AreaRequest::new(1).guard(Guard::None))?;
        worker.give(large)?;
        worker.give(small)?;
        Ok(1)
    }
}

/// Every second of 30,000 areas is freed, everything is purged, and all are allocated again.
pub(super) struct EverySecond;

impl Body for EverySecond {
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        for _ in 0..2 * LONG_BUSY_AREAS {
            worker.keep(4)?;
        }
        Ok(())
    }

    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        for i in (0..worker.kept.len()).step_by(2) {
            worker.give(worker.kept[i])?;
        }
        worker.space.purge_all();
        for i in (0..worker.kept.len()).step_by(2) {
            worker.kept[i] = worker.take_pages(4)?;
        }
        Ok(worker.kept.len() as u64 / 2)
    }
}

/// Room in the space of a churn, and the way in which its live set comes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Room {
    /// Twice the live set is allocated in a space with much room, and a random half is freed.
    #[default]
    Roomy,
    /// The space is filled to its end, and random areas are freed until only the live set remains.
    Tight,
}

/// Random areas of 1 to `max_pages` pages; each loop frees a random one and allocates another.
pub(super) struct Churn {
    live: usize,
    max_pages: u64,
    room: Room,
    /// `None` where the last attempt to fill the place was refused.
    places: Vec<Option<Vpn>>,
    refused: u64,
}

/// The name of a churn's count of refused allocations.
pub(super) const REFUSED: Key = Key::count("refused allocations");

/// The name of a churn's ratio of its highest page to its live pages.
pub(super) const SPAN_OVER_LIVE: Key = Key::number("span over live");

impl Churn {
    pub(super) fn new(live: usize, max_pages: u64, room: Room) -> Churn {
        Churn { live, max_pages, room, places: Vec::new(), refused: 0 }
    }

    /// Returns the pages of a space that the live set, with its guard pages, fills to `percent`.
    pub(super) fn space_for(live: usize, max_pages: u64, percent: u64) -> u64 {
        // The mean size is (1 + max) / 2, and a guard page comes on top.
        live as u64 * (max_pages + 3) / 2 * 100 / percent
    }

    fn draw<W: Watch>(&self, worker: &mut Worker<'_, W>) -> AreaRequest {
        AreaRequest::new(worker.random.between(1, self.max_pages))
    }

    fn fill<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        let wanted = match self.room {
            Room::Roomy => 2 * self.live,
            Room::Tight => usize::MAX,
        };
        while self.places.len() < wanted {
            let request = self.draw(worker);
            match worker.take(&request) {
                Ok(start) => self.places.push(Some(start)),
                Err(AreaError::Exhausted { .. }) if self.room == Room::Tight => break,
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    /// Frees random areas until `live` remain, and purges.
    fn thin_out<W: Watch>(
        &mut self,
        worker: &mut Worker<'_, W>,
        live: usize,
    ) -> Result<(), Failure> {
        worker.random.shuffle(&mut self.places);
        let surplus = live.min(self.places.len());
        worker.give_all(self.places.drain(surplus..).flatten())?;
        worker.space.purge_all();
        Ok(())
    }

    /// Returns the highest page in use, counted from the start of the space, over pages in use.
    fn span_over_live<W: Watch>(&self, worker: &Worker<'_, W>) -> f64 {
        let areas = self.places.iter().flatten().filter_map(|start| worker.space.find(*start));
        let (mut end, mut live) = (worker.space.span().start(), 0);
        for area in areas {
            end = end.max(area.span().end());
            live += area.span().len();
        }
        (end - worker.space.span().start()) as f64 / live.max(1) as f64
    }
}

impl Body for Churn {
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        self.fill(worker)?;
        self.thin_out(worker, self.live)
    }

    #[inline]
    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let place = worker.random.index(self.places.len());
        if let Some(start) = self.places[place].take() {
            worker.give(start)?;
        }
        let request = self.draw(worker);
        match worker.take(&request) {
            Ok(start) => self.places[place] = Some(start),
            Err(AreaError::Exhausted { .. }) => self.refused += 1,
            Err(other) => return Err(other.into()),
        }
        Ok(1)
    }

    fn finish<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        worker.sample.extra.insert(REFUSED, self.refused.into());
        worker.sample.extra.insert(SPAN_OVER_LIVE, self.span_over_live(worker).into());
        worker.give_all(self.places.drain(..).flatten())
    }
}

/// A churn of 10,000 areas whose live set has shrunk to a tenth.
pub(super) struct ShrinkAndChurn(Churn);

impl ShrinkAndChurn {
    pub(super) fn new() -> ShrinkAndChurn {
        ShrinkAndChurn(Churn::new(10_000, 64, Room::Roomy))
    }
}

impl Body for ShrinkAndChurn {
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        self.0.prepare(worker)?;
        self.0.thin_out(worker, self.0.live / 10)
    }

    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        self.0.turn(worker)
    }

    fn finish<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        self.0.finish(worker)
    }
}

/// Many one-page areas, then pairs whose alignment and lower bound alternate, which voids the cache of the old design.
pub(super) struct MixedParams {
    pub(super) areas: usize,
    pub(super) turn: u64,
}

impl Body for MixedParams {
    fn prepare<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        for _ in 0..self.areas {
            worker.keep(1)?;
        }
        Ok(())
    }

    fn turn<W: Watch>(&mut self, worker: &mut Worker<'_, W>) -> Result<u64, Failure> {
        let space = worker.space.span();
        let middle = worker.kept[worker.kept.len() / 2].get();
        // Lower bound: the start of the space, then the middle of the areas. Alignment: 64 pages, then none.
        let low = if self.turn.is_multiple_of(2) { space.start() } else { middle };
        let align = if self.turn % 4 < 2 { 64 } else { 1 };
        let within = Span::new(low, space.end()).expect("the middle lies inside the space");
        self.turn += 1;
        let pages = worker.random.between(1, 4);
        let start = worker.take(&AreaRequest::new(pages).align(align).within(within))?;
        worker.give(start)?;
        Ok(1)
    }
}
