//! A backend without memory: addresses and names, by freely chosen rules, with every call counted and priced.
//!
//! Running a policy here predicts its costs on real memory: calls, pages, flushes and first touches are counted, and a
//! [`CostModel`] says how long they take. Operations are joined as the real backends join them, so that a plan that
//! gains nothing there gains nothing here:
//!
//! * Purges that touch are one call. Scattered ones go in vectors where the backend has
//!   [`Caps::SCATTERED_PURGE`], with one flush for each vector; without it each is a call and a flush of its own.
//! * Unmapping a range flushes once for each area in it: a block of many areas is unmapped by one call, not one flush.
//! * Grants of the same access that touch are one call.
//! * A flush is needed only for touched pages.
//!
//! A touch that a real backend would answer with a fault is refused.
//!
//! Source: docs/sources/backing.md#shootdown, #cost-model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nofrag::check::{Check, Violation};
use nofrag::ranges::{Config, RangeAllocator, Request, Span};
use rustix::io::Errno;

use super::books::{BackendBooks, Change, Mapping, Shown};
use super::refusals::Refusals;
use super::submission::{self, Joined};
use super::{Access, Backend, BackendError, Caps, CostModel, Geometry, Op, OpResult, Va};

/// The calls that a simulated backend can be told to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimCall {
    /// To reserve or release addresses.
    Reserve,
    /// To create or destroy memory.
    Create,
    Map,
    Unmap,
    Grant,
    Purge,
    Move,
    Copy,
}

/// The work done so far. A page is a granule here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that reserve or release.
    pub reserves: u64,
    /// Calls that create or destroy.
    pub creates: u64,
    pub maps: u64,
    pub unmaps: u64,
    pub grants: u64,
    pub purges: u64,
    /// Calls that move or copy.
    pub moves: u64,
    /// Touched pages that were unmapped or purged.
    pub pages: u64,
    pub moved_pages: u64,
    pub copied_pages: u64,
    pub flushes: u64,
    pub first_touches: u64,
}

impl CostModel {
    /// Returns the time that the counted work takes, in nanoseconds.
    #[must_use]
    pub fn price(&self, counts: &Counts) -> f64 {
        let parts = [
            (counts.reserves, self.reserve_ns),
            (counts.creates, self.create_ns),
            (counts.maps, self.map_ns),
            (counts.unmaps, self.unmap_ns),
            (counts.grants, self.grant_ns),
            (counts.purges, self.purge_ns),
            (counts.moves, self.move_ns),
            (counts.pages, self.page_ns),
            (counts.moved_pages, self.moved_page_ns),
            (counts.copied_pages, self.copied_page_ns),
            (counts.flushes, self.flush_ns),
            (counts.first_touches, self.first_touch_ns),
        ];
        parts.into_iter().map(|(count, cost)| count as f64 * cost).sum()
    }
}

/// Why an address cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Touched {
    #[error("nothing is mapped there")]
    Unmapped,
    #[error("no access was granted")]
    NoAccess,
}

/// A backend without memory.
///
/// 1. Memory is recorded while it is not destroyed, and longer while any of it is mapped.
/// 2. Touched pages belong to memory that is recorded.
#[derive(Debug)]
pub struct Simulated {
    geometry: Geometry,
    world: Mutex<World>,
}

/// A piece of memory of a [`Simulated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ghost(u64);

/// The contents that a mapping shows: memory, from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    memory: u64,
    offset: u64,
}

impl Shown for Part {
    fn further(self, bytes: u64) -> Part {
        Part { offset: self.offset + bytes, ..self }
    }

    fn is_one_area(left: Option<(Part, Access)>, right: Option<(Part, Access)>) -> bool {
        left == right
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    bytes: u64,
    mapped: u64,
    is_destroyed: bool,
}

#[derive(Debug)]
struct World {
    addresses: RangeAllocator,
    books: BackendBooks<Part>,
    memory: BTreeMap<u64, Record>,
    named: u64,
    /// Pages with contents, by memory and offset.
    touched: BTreeSet<(u64, u64)>,
    counts: Counts,
    refusals: Refusals<SimCall, BackendError>,
}

impl Simulated {
    /// Returns a backend of this shape. Addresses are below `max_va`.
    ///
    /// # Errors
    /// `Misfit` where the shape makes no sense: a granule or an alignment of addresses that is not a power of two, or
    /// no addresses.
    pub fn new(geometry: Geometry) -> Result<Simulated, BackendError> {
        let aligned = geometry.granule.is_power_of_two() && geometry.va_align.is_power_of_two();
        let span = Span::new(geometry.va_align, geometry.max_va).ok().filter(|_| aligned);
        let mut addresses = RangeAllocator::new(Config::default());
        addresses.add_span(span.ok_or(BackendError::Misfit)?).map_err(|_| Errno::NOMEM)?;
        let world = World {
            addresses,
            books: BackendBooks::new(geometry.max_mappings),
            memory: BTreeMap::new(),
            named: 0,
            touched: BTreeSet::new(),
            counts: Counts::default(),
            refusals: Refusals::default(),
        };
        Ok(Simulated { geometry, world: Mutex::new(world) })
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts of the work done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.world().counts
    }

    /// Returns the time that the work done so far would have taken, by the cost model of the geometry, in nanoseconds.
    #[must_use]
    pub fn cost_ns(&self) -> f64 {
        self.geometry.cost.price(&self.counts())
    }

    /// Returns the number of areas that a system would keep for the reservations and mappings.
    #[must_use]
    pub fn areas(&self) -> u64 {
        self.world().books.areas()
    }

    /// Returns the number of pages with contents.
    #[must_use]
    pub fn pages_held(&self) -> u64 {
        self.world().touched.len() as u64
    }

    /// Lets `after` calls of a kind through, then refuses `times` of them.
    pub fn refuse(&self, call: SimCall, after: u32, times: u32, error: BackendError) {
        self.world().refusals.plan(call, after, times, error);
    }

    /// Forgets all plans to refuse calls.
    pub fn allow_all(&self) {
        self.world().refusals.clear();
    }

    /// Touches every page of a range, as its user would.
    ///
    /// # Errors
    /// See [`Touched`]; pages before the one that cannot be used were touched.
    pub fn touch(&self, va: Va, bytes: u64) -> Result<(), Touched> {
        let mut world = self.world();
        let first = va.0 / self.geometry.granule * self.geometry.granule;
        let end = va.0.checked_add(bytes).ok_or(Touched::Unmapped)?;
        for page in pages(&self.geometry, first, end - first) {
            let part = world.books.parts(Va(page), self.geometry.granule).next();
            let (_, part) = part.ok_or(Touched::Unmapped)?;
            if part.access != Access::ReadWrite {
                return Err(Touched::NoAccess);
            }
            if world.touched.insert((part.shows.memory, part.shows.offset)) {
                world.counts.first_touches += 1;
            }
        }
        Ok(())
    }

    /// Returns true if a mapped page has contents; `None` where nothing is mapped.
    #[must_use]
    pub fn holds(&self, va: Va) -> Option<bool> {
        let world = self.world();
        let page = Va(va.0 / self.geometry.granule * self.geometry.granule);
        let (_, part) = world.books.parts(page, self.geometry.granule).next()?;
        Some(world.touched.contains(&(part.shows.memory, part.shows.offset)))
    }
}

/// Iterates over the first address of each granule of a range.
fn pages(geometry: &Geometry, va: u64, bytes: u64) -> impl Iterator<Item = u64> + use<> {
    (va..va + bytes).step_by(geometry.granule as usize)
}

impl World {
    fn alive(&self, memory: Ghost) -> Result<&Record, BackendError> {
        let record = self.memory.get(&memory.0).filter(|record| !record.is_destroyed);
        record.ok_or(BackendError::WrongState)
    }

    /// Forgets memory that is destroyed and no longer mapped.
    fn reap(&mut self, memory: u64) {
        let record = self.memory.get(&memory);
        if record.is_some_and(|record| record.is_destroyed && record.mapped == 0) {
            self.memory.remove(&memory);
            let of_it: Vec<_> =
                self.touched.range((memory, 0)..=(memory, u64::MAX)).copied().collect();
            for page in of_it {
                self.touched.remove(&page);
            }
        }
    }

    /// Counts the pages of a part that have contents.
    fn held(&self, part: &Mapping<Part>) -> u64 {
        let Part { memory, offset } = part.shows;
        self.touched.range((memory, offset)..(memory, offset + part.bytes)).count() as u64
    }

    /// Counts the touched pages and flushes of mappings that end, area by area, and takes the mappings off their
    /// memory's mapped bytes.
    fn end(&mut self, parts: &[(Va, Mapping<Part>)]) {
        let one_area = |a: &(Va, Mapping<Part>), b: &(Va, Mapping<Part>)| {
            let left = (a.1.shows.further(a.1.bytes), a.1.access);
            a.0.plus(a.1.bytes) == b.0 && left == (b.1.shows, b.1.access)
        };
        for area in parts.chunk_by(one_area) {
            let held: u64 = area.iter().map(|(_, part)| self.held(part)).sum();
            self.counts.pages += held;
            self.counts.flushes += u64::from(held > 0);
        }
        for (_, part) in parts {
            let record = self.memory.get_mut(&part.shows.memory);
            record.expect("what is mapped is here (law 1)").mapped -= part.bytes;
            self.reap(part.shows.memory);
        }
    }

    fn map(&mut self, geometry: &Geometry, op: &Op<Ghost>) -> OpResult {
        let &Op::Map { va, phys, offset, bytes } = op else {
            return Err(BackendError::Unsupported);
        };
        geometry.fits(va, bytes)?;
        let whole = self.alive(phys)?.bytes;
        geometry.fits_inside(offset, bytes, whole)?;
        self.books.check_reserved(va, bytes)?;
        if !geometry.caps.has(Caps::OVER_MAP) && !self.books.is_unmapped(va, bytes) {
            return Err(BackendError::WrongState);
        }
        if !geometry.caps.has(Caps::ALIAS) && self.is_mapped_anywhere(phys, offset, bytes) {
            return Err(BackendError::WrongState);
        }
        let change = Change::Map(Part { memory: phys.0, offset }, Access::ReadWrite);
        let refusals = &mut self.refusals;
        let replaced = self.books.change((va, bytes), change, || refusals.before(SimCall::Map))?;
        self.counts.maps += 1;
        self.memory.get_mut(&phys.0).expect("it is alive").mapped += bytes;
        self.end(&replaced);
        Ok(())
    }

    /// Returns true if a mapping shows any of `bytes` bytes of this memory from `offset` on.
    fn is_mapped_anywhere(&self, memory: Ghost, offset: u64, bytes: u64) -> bool {
        if self.memory.get(&memory.0).is_none_or(|record| record.mapped == 0) {
            return false;
        }
        let mut parts = self.books.reservations().flat_map(|(va, size)| self.books.parts(va, size));
        parts.any(|(_, part)| {
            let shows = part.shows;
            shows.memory == memory.0
                && shows.offset < offset + bytes
                && offset < shows.offset + part.bytes
        })
    }

    /// Refuses to unmap or grant a range that is not mapped throughout, or that cuts a mapping where that is forbidden.
    fn may_change(&self, geometry: &Geometry, va: Va, bytes: u64) -> OpResult {
        geometry.fits(va, bytes)?;
        self.books.check_mapped(va, bytes)?;
        if geometry.caps.has(Caps::PARTIAL_UNMAP) {
            return Ok(());
        }
        self.books.check_whole(va, bytes)
    }

    fn may_purge(&self, geometry: &Geometry, va: Va, bytes: u64) -> OpResult {
        geometry.fits(va, bytes)?;
        if !geometry.caps.has(Caps::PURGE_IN_PLACE) {
            return Err(BackendError::Unsupported);
        }
        self.books.check_mapped(va, bytes)
    }

    fn unmap(&mut self, va: Va, bytes: u64) -> OpResult {
        let refusals = &mut self.refusals;
        let carry_out = || refusals.before(SimCall::Unmap);
        let parts = self.books.change((va, bytes), Change::Unmap, carry_out)?;
        self.counts.unmaps += 1;
        self.end(&parts);
        Ok(())
    }

    fn grant(&mut self, va: Va, bytes: u64, access: Access) -> OpResult {
        let refusals = &mut self.refusals;
        let carry_out = || refusals.before(SimCall::Grant);
        self.books.change((va, bytes), Change::Grant(access), carry_out)?;
        self.counts.grants += 1;
        Ok(())
    }

    /// Makes one call that purges some ranges; one flush if any of them has contents.
    fn purge(&mut self, runs: &[Joined]) -> OpResult {
        self.refusals.before(SimCall::Purge)?;
        self.counts.purges += 1;
        let mut held = 0;
        for run in runs {
            let parts: Vec<_> = self.books.parts(run.va, run.bytes).collect();
            for (_, part) in parts {
                held += self.held(&part);
                let Part { memory, offset } = part.shows;
                let range = (memory, offset)..(memory, offset + part.bytes);
                self.touched.extract_if(range, |_| true).for_each(drop);
            }
        }
        self.counts.pages += held;
        self.counts.flushes += u64::from(held > 0);
        Ok(())
    }

    fn carry(&mut self, geometry: &Geometry, call: SimCall, op: &Op<Ghost>) -> OpResult {
        let (Op::Move { to, from, bytes } | Op::Copy { to, from, bytes }) = *op else {
            return Err(BackendError::Unsupported);
        };
        let is_move = call == SimCall::Move;
        geometry.fits(to, bytes)?;
        geometry.fits(from, bytes)?;
        if is_move && !geometry.caps.has(Caps::MOVE_PAGES) {
            return Err(BackendError::Unsupported);
        }
        self.books.check_mapped(to, bytes)?;
        self.books.check_mapped(from, bytes)?;
        if to.0 < from.0 + bytes && from.0 < to.0 + bytes {
            return Err(BackendError::Misfit);
        }
        self.refusals.before(call)?;
        self.counts.moves += 1;
        let places = |world: &World, va: Va| -> Vec<(u64, u64)> {
            let at = |page| world.books.parts(Va(page), geometry.granule).next();
            let shown = pages(geometry, va.0, bytes).filter_map(at);
            shown.map(|(_, part)| (part.shows.memory, part.shows.offset)).collect()
        };
        for (to, from) in places(self, to).into_iter().zip(places(self, from)) {
            let holds =
                if is_move { self.touched.remove(&from) } else { self.touched.contains(&from) };
            if is_move {
                self.counts.moved_pages += u64::from(holds);
            } else {
                self.counts.copied_pages += u64::from(holds);
            }
            if holds {
                let is_first = self.touched.insert(to);
                self.counts.first_touches += u64::from(is_first && !is_move);
            } else {
                self.touched.remove(&to);
            }
        }
        Ok(())
    }
}

impl Simulated {
    /// Carries out the operations that pass `check`, joined where they touch, at most `vector` joined ranges in a call;
    /// where that is refused, each operation by itself.
    fn joined(
        &self,
        ops: &[Op<Ghost>],
        done: &mut [OpResult],
        check: impl Fn(&World, Va, u64) -> OpResult,
        mut carry_out: impl FnMut(&mut World, &[Joined]) -> OpResult,
        vector: usize,
    ) {
        let world = &mut *self.world();
        let (mut places, mut ranges) = (Vec::new(), Vec::new());
        for (place, (va, bytes)) in ops.iter().flat_map(Op::ranges).enumerate() {
            done[place] = check(world, va, bytes);
            if done[place].is_ok() {
                places.push(place);
                ranges.push((va, bytes));
            }
        }
        let runs = submission::join(&ranges);
        for vector in runs.chunks(vector) {
            let whole = carry_out(world, vector);
            let members: Vec<usize> = vector.iter().flat_map(|run| &run.members).copied().collect();
            for &member in &members {
                let (va, bytes) = ranges[member];
                let alone = || [Joined { va, bytes, members: vec![member] }];
                let again = whole.is_err() && members.len() > 1;
                done[places[member]] = if again { carry_out(world, &alone()) } else { whole };
            }
        }
    }

    fn purge(&self, ops: &[Op<Ghost>], done: &mut [OpResult]) {
        let is_vectored = self.geometry.caps.has(Caps::SCATTERED_PURGE);
        let vector = if is_vectored { self.geometry.vector_max.max(1) } else { 1 };
        let check = |world: &World, va, bytes| world.may_purge(&self.geometry, va, bytes);
        self.joined(ops, done, check, World::purge, vector);
    }

    fn unmap(&self, ops: &[Op<Ghost>], done: &mut [OpResult]) {
        let check = |world: &World, va, bytes| world.may_change(&self.geometry, va, bytes);
        let unmap = |world: &mut World, runs: &[Joined]| {
            runs.iter().try_for_each(|run| {
                // Ranges that touch may still be two reservations.
                world.books.check_mapped(run.va, run.bytes)?;
                world.unmap(run.va, run.bytes)
            })
        };
        self.joined(ops, done, check, unmap, 1);
    }

    fn grant(&self, ops: &[Op<Ghost>], done: &mut [OpResult]) {
        let access_of = |op: &Op<Ghost>| match *op {
            Op::Grant { access, .. } => access,
            _ => Access::None,
        };
        let mut at = 0;
        for same in ops.chunk_by(|a, b| access_of(a) == access_of(b)) {
            let access = access_of(&same[0]);
            let check = |world: &World, va, bytes| world.may_change(&self.geometry, va, bytes);
            let grant = |world: &mut World, runs: &[Joined]| {
                runs.iter().try_for_each(|run| {
                    world.books.check_mapped(run.va, run.bytes)?;
                    world.grant(run.va, run.bytes, access)
                })
            };
            self.joined(same, &mut done[at..at + same.len()], check, grant, 1);
            at += same.len();
        }
    }
}

impl Backend for Simulated {
    type Phys = Ghost;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn reserve(&self, bytes: u64, align: u64, _: Option<Va>) -> Result<Va, BackendError> {
        self.geometry.fits(Va(0), bytes)?;
        if !align.is_power_of_two() {
            return Err(BackendError::Misfit);
        }
        let world = &mut *self.world();
        world.books.may_reserve()?;
        world.refusals.before(SimCall::Reserve)?;
        let request = Request::new(bytes).align(align.max(self.geometry.va_align));
        let span = world.addresses.alloc(&request).map_err(|_| Errno::NOMEM)?;
        world.counts.reserves += 1;
        world.books.enter(Va(span.start()), bytes);
        Ok(Va(span.start()))
    }

    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let world = &mut *self.world();
        let may_unmap = self.geometry.caps.has(Caps::PARTIAL_UNMAP);
        if !world.books.is_reservation(va, bytes)
            || !(may_unmap || world.books.is_unmapped(va, bytes))
        {
            return Err(BackendError::WrongState);
        }
        world.refusals.before(SimCall::Reserve)?;
        let span = Span::sized(va.0, bytes).map_err(|_| BackendError::Misfit)?;
        world.addresses.free(span).map_err(|_| Errno::NOMEM)?;
        world.counts.reserves += 1;
        let parts = world.books.strike(va, bytes);
        world.end(&parts);
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<Ghost, BackendError> {
        self.geometry.fits(Va(0), bytes)?;
        let world = &mut *self.world();
        world.refusals.before(SimCall::Create)?;
        world.counts.creates += 1;
        world.named += 1;
        let record = Record { bytes, mapped: 0, is_destroyed: false };
        world.memory.insert(world.named, record);
        Ok(Ghost(world.named))
    }

    fn destroy(&self, phys: Ghost) -> Result<(), BackendError> {
        let world = &mut *self.world();
        world.alive(phys)?;
        world.refusals.before(SimCall::Create)?;
        world.counts.creates += 1;
        world.memory.get_mut(&phys.0).expect("it is alive").is_destroyed = true;
        world.reap(phys.0);
        Ok(())
    }

    fn submit(&self, ops: &[Op<Ghost>], done: &mut [OpResult]) {
        submission::in_batches(ops, done, |ops, done| match ops[0] {
            Op::Purge { .. } => self.purge(ops, done),
            Op::Unmap { .. } => self.unmap(ops, done),
            Op::Grant { .. } => self.grant(ops, done),
            _ => submission::each(ops, done, |op| match *op {
                Op::Move { .. } => self.world().carry(&self.geometry, SimCall::Move, op),
                Op::Copy { .. } => self.world().carry(&self.geometry, SimCall::Copy, op),
                _ => self.world().map(&self.geometry, op),
            }),
        });
    }
}

impl Check for Simulated {
    fn check(&self) -> Result<(), Violation> {
        let world = self.world();
        world.books.check()?;
        let mut mapped: BTreeMap<u64, u64> = BTreeMap::new();
        for (va, bytes) in world.books.reservations() {
            for (_, part) in world.books.parts(va, bytes) {
                *mapped.entry(part.shows.memory).or_default() += part.bytes;
            }
        }
        let law = "Memory is here while it is not destroyed, and longer while any of it is mapped.";
        for (memory, record) in &world.memory {
            Violation::unless(law, *memory, !record.is_destroyed || record.mapped > 0)?;
            let found = mapped.remove(memory).unwrap_or_default();
            Violation::unless_equal(law, *memory, found, record.mapped)?;
        }
        Violation::unless_equal(law, 0, 0, mapped.len() as u64)?;
        let law = "What was touched belongs to memory that is here.";
        let owner = |(memory, _): &(u64, u64)| world.memory.contains_key(memory);
        let stray = world.touched.iter().find(|page| !owner(page));
        Violation::unless_equal(law, stray.map_or(0, |page| page.1), 0, u64::from(stray.is_some()))
    }
}
