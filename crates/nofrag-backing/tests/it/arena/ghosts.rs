//! A backend without memory, for tests: which granule of addresses shows which granule of memory, and which granules of
//! memory have contents. Calls are refused by plan, and a touch that would be a fault is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nofrag::ranges::{Config, RangeAllocator, Request, Span};
use nofrag_backing::backend::{Access, Backend, BackendError, Caps, Geometry, Op, OpResult, Va};
use rustix::io::Errno;

/// The calls that can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimCall {
    /// To reserve addresses.
    Reserve,
    Create,
    Map,
    Unmap,
    Purge,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ghost(u64);

/// The memory that a granule of addresses shows.
#[derive(Clone, Copy, Debug)]
struct Shown {
    memory: Ghost,
    offset: u64,
    /// Number of the mapping among all that were made.
    mapping: u64,
    access: Access,
}

/// Lets `after` calls through, and then refuses `times` of them.
#[derive(Debug)]
struct Refusal {
    call: SimCall,
    after: u32,
    times: u32,
    error: BackendError,
}

#[derive(Debug)]
struct World {
    addresses: RangeAllocator,
    /// Bytes by first address.
    reserved: BTreeMap<u64, u64>,
    /// Bytes of the memory that is not destroyed.
    memory: BTreeMap<Ghost, u64>,
    /// Granules of addresses that show something.
    shown: BTreeMap<u64, Shown>,
    /// Granules of memory with contents, by memory and offset.
    touched: BTreeSet<(Ghost, u64)>,
    /// Mappings and pieces of memory that were made.
    made: u64,
    refusals: Vec<Refusal>,
}

/// A backend without memory.
///
/// 1. What is shown lies in a reservation.
/// 2. Contents are of memory that is not destroyed, or shown.
#[derive(Debug)]
pub(crate) struct Simulated {
    geometry: Geometry,
    world: Mutex<World>,
}

impl Simulated {
    /// Returns a backend of this shape, or `Misfit` where it makes no sense.
    pub(crate) fn new(geometry: Geometry) -> Result<Simulated, BackendError> {
        let aligned = geometry.granule.is_power_of_two() && geometry.va_align.is_power_of_two();
        let span = Span::new(geometry.va_align, geometry.max_va).ok().filter(|_| aligned);
        let mut addresses = RangeAllocator::new(Config::default());
        addresses.add_span(span.ok_or(BackendError::Misfit)?).map_err(|_| Errno::NOMEM)?;
        let world = World {
            addresses,
            reserved: BTreeMap::new(),
            memory: BTreeMap::new(),
            shown: BTreeMap::new(),
            touched: BTreeSet::new(),
            made: 0,
            refusals: Vec::new(),
        };
        Ok(Simulated { geometry, world: Mutex::new(world) })
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of areas that a system would keep for the reservations and mappings.
    pub(crate) fn areas(&self) -> usize {
        let world = self.world();
        let kind = |at: u64| {
            let shown = world.shown.get(&at);
            shown.map(|shown| (shown.memory, shown.offset.wrapping_sub(at), shown.access))
        };
        let areas = |(&start, &bytes): (&u64, &u64)| {
            let kinds: Vec<_> = granules(&self.geometry, start, bytes).map(kind).collect();
            kinds.chunk_by(|one, next| one == next).count()
        };
        world.reserved.iter().map(areas).sum()
    }

    /// Returns the number of granules with contents.
    pub(crate) fn pages_held(&self) -> usize {
        self.world().touched.len()
    }

    /// Lets `after` calls of a kind through, then refuses `times` of them.
    pub(crate) fn refuse(&self, call: SimCall, after: u32, times: u32, error: BackendError) {
        self.world().refusals.push(Refusal { call, after, times, error });
    }

    /// Forgets all plans to refuse calls.
    pub(crate) fn allow_all(&self) {
        self.world().refusals.clear();
    }

    /// Touches every granule of a range, as its user would; an error where that is a fault.
    pub(crate) fn touch(&self, va: Va, bytes: u64) -> Result<(), &'static str> {
        let world = &mut *self.world();
        let end = va.0.checked_add(bytes).ok_or("past the end of all addresses")?;
        for at in (self.granule_of(va)..end).step_by(self.geometry.granule as usize) {
            let shown = world.shown.get(&at).ok_or("nothing is mapped there")?;
            if shown.access != Access::ReadWrite {
                return Err("no access was granted");
            }
            world.touched.insert((shown.memory, shown.offset));
        }
        Ok(())
    }

    /// Returns whether a mapped granule has contents; `None` where nothing is mapped.
    pub(crate) fn holds(&self, va: Va) -> Option<bool> {
        let world = self.world();
        let shown = world.shown.get(&self.granule_of(va))?;
        Some(world.touched.contains(&(shown.memory, shown.offset)))
    }

    fn granule_of(&self, va: Va) -> u64 {
        va.0 / self.geometry.granule * self.geometry.granule
    }

    /// Checks the laws.
    pub(crate) fn check(&self) {
        let world = self.world();
        for (&at, shown) in &world.shown {
            assert!(world.is_reserved(at, self.geometry.granule), "law 1: {at:#x} {shown:?}");
        }
        for (memory, offset) in &world.touched {
            assert!(world.is_recorded(*memory), "law 2: {memory:?} at {offset:#x}");
        }
    }
}

impl World {
    /// Refuses a call if a plan says so.
    fn before(&mut self, call: SimCall) -> OpResult {
        let plan = self.refusals.iter_mut().find(|plan| plan.call == call && plan.times > 0);
        match plan {
            Some(plan) if plan.after > 0 => plan.after -= 1,
            Some(plan) => {
                plan.times -= 1;
                return Err(plan.error);
            }
            None => {}
        }
        Ok(())
    }

    fn is_reserved(&self, va: u64, bytes: u64) -> bool {
        let below = self.reserved.range(..=va).next_back();
        below.is_some_and(|(start, size)| va + bytes <= start + size)
    }

    fn is_recorded(&self, memory: Ghost) -> bool {
        self.memory.contains_key(&memory) || self.shown.values().any(|it| it.memory == memory)
    }

    /// Forgets the contents of memory that is destroyed and not shown.
    fn reap(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        self.touched =
            touched.into_iter().filter(|(memory, _)| self.is_recorded(*memory)).collect();
    }

    /// Refuses a range that is not mapped throughout, or at whose ends a mapping goes on, where none may be cut.
    fn may_change(&self, geometry: &Geometry, va: u64, bytes: u64) -> OpResult {
        let mapping = |at: u64| self.shown.get(&at).map(|shown| shown.mapping);
        let cuts = [va, va + bytes].into_iter().any(|edge| {
            let before = mapping(edge.wrapping_sub(geometry.granule));
            before.is_some() && before == mapping(edge)
        });
        let may = self.is_mapped(geometry, va, bytes)
            && (!cuts || geometry.caps.has(Caps::PARTIAL_UNMAP));
        may.then_some(()).ok_or(BackendError::WrongState)
    }

    fn is_mapped(&self, geometry: &Geometry, va: u64, bytes: u64) -> bool {
        self.is_reserved(va, bytes)
            && granules(geometry, va, bytes).all(|at| self.shown.contains_key(&at))
    }

    fn apply(&mut self, geometry: &Geometry, op: &Op<Ghost>) -> OpResult {
        let (va, bytes) = op.range();
        fits(geometry, va, bytes)?;
        let va = va.0;
        match *op {
            Op::Map { phys, offset, .. } => self.map(geometry, va, phys, offset, bytes),
            Op::Unmap { .. } => {
                self.may_change(geometry, va, bytes)?;
                self.before(SimCall::Unmap)?;
                granules(geometry, va, bytes).for_each(|at| _ = self.shown.remove(&at));
                self.reap();
                Ok(())
            }
            Op::Grant { access, .. } => {
                self.may_change(geometry, va, bytes)?;
                for (_, shown) in self.shown.range_mut(va..va + bytes) {
                    shown.access = access;
                }
                Ok(())
            }
            Op::Purge { .. } if !geometry.caps.has(Caps::PURGE_IN_PLACE) => {
                Err(BackendError::Unsupported)
            }
            Op::Purge { .. } => {
                let mapped = self.is_mapped(geometry, va, bytes);
                mapped.then_some(()).ok_or(BackendError::WrongState)?;
                self.before(SimCall::Purge)?;
                for shown in self.shown.range(va..va + bytes).map(|(_, shown)| shown) {
                    self.touched.remove(&(shown.memory, shown.offset));
                }
                Ok(())
            }
        }
    }

    fn map(
        &mut self,
        geometry: &Geometry,
        va: u64,
        memory: Ghost,
        offset: u64,
        bytes: u64,
    ) -> OpResult {
        let whole = *self.memory.get(&memory).ok_or(BackendError::WrongState)?;
        let inside = offset.is_multiple_of(geometry.granule)
            && offset.checked_add(bytes).is_some_and(|end| end <= whole);
        if !inside || (bytes < whole && !geometry.caps.has(Caps::SUBRANGE_MAP)) {
            return Err(BackendError::Misfit);
        }
        let occupied = self.is_reserved(va, bytes)
            && granules(geometry, va, bytes).any(|at| self.shown.contains_key(&at));
        let part = offset..offset + bytes;
        let is_alias = |shown: &Shown| shown.memory == memory && part.contains(&shown.offset);
        if !self.is_reserved(va, bytes)
            || (occupied && !geometry.caps.has(Caps::OVER_MAP))
            || (!geometry.caps.has(Caps::ALIAS) && self.shown.values().any(is_alias))
        {
            return Err(BackendError::WrongState);
        }
        self.before(SimCall::Map)?;
        self.made += 1;
        let (mapping, access) = (self.made, Access::ReadWrite);
        for at in granules(geometry, va, bytes) {
            let offset = offset + at - va;
            self.shown.insert(at, Shown { memory, offset, mapping, access });
        }
        self.reap();
        Ok(())
    }
}

fn fits(geometry: &Geometry, va: Va, bytes: u64) -> OpResult {
    let fits = bytes > 0
        && bytes.is_multiple_of(geometry.granule)
        && va.0.is_multiple_of(geometry.va_align)
        && va.0.checked_add(bytes).is_some();
    fits.then_some(()).ok_or(BackendError::Misfit)
}

/// Iterates over the first address of each granule of a range.
fn granules(geometry: &Geometry, va: u64, bytes: u64) -> impl Iterator<Item = u64> + use<> {
    (va..va + bytes).step_by(geometry.granule as usize)
}

impl Backend for Simulated {
    type Phys = Ghost;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn reserve(&self, bytes: u64, align: u64, _hint: Option<Va>) -> Result<Va, BackendError> {
        fits(&self.geometry, Va(0), bytes)?;
        if !align.is_power_of_two() {
            return Err(BackendError::Misfit);
        }
        let world = &mut *self.world();
        world.before(SimCall::Reserve)?;
        let request = Request::new(bytes).align(align.max(self.geometry.va_align));
        let span = world.addresses.alloc(&request).map_err(|_| Errno::NOMEM)?;
        world.reserved.insert(span.start(), bytes);
        Ok(Va(span.start()))
    }

    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let world = &mut *self.world();
        if world.reserved.get(&va.0) != Some(&bytes) {
            return Err(BackendError::WrongState);
        }
        let mapped: Vec<u64> = world.shown.range(va.0..va.0 + bytes).map(|(&at, _)| at).collect();
        if !mapped.is_empty() && !self.geometry.caps.has(Caps::PARTIAL_UNMAP) {
            return Err(BackendError::WrongState);
        }
        mapped.iter().for_each(|at| _ = world.shown.remove(at));
        world.reap();
        world.reserved.remove(&va.0);
        let span = Span::sized(va.0, bytes).expect("it was reserved");
        world.addresses.free(span).expect("it was reserved");
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<Ghost, BackendError> {
        fits(&self.geometry, Va(0), bytes)?;
        let world = &mut *self.world();
        world.before(SimCall::Create)?;
        world.made += 1;
        world.memory.insert(Ghost(world.made), bytes);
        Ok(Ghost(world.made))
    }

    fn destroy(&self, phys: Ghost) -> Result<(), BackendError> {
        let world = &mut *self.world();
        world.memory.remove(&phys).ok_or(BackendError::WrongState)?;
        world.reap();
        Ok(())
    }

    fn submit(&self, ops: &[Op<Ghost>], done: &mut [OpResult]) {
        assert_eq!(ops.len(), done.len(), "a result for each operation");
        let world = &mut *self.world();
        let mut failed: Vec<(u64, u64)> = Vec::new();
        for (op, done) in ops.iter().zip(done) {
            let (va, bytes) = op.range();
            let range = (va.0, va.0.saturating_add(bytes));
            let meets = failed.iter().any(|other| other.0 < range.1 && range.0 < other.1);
            *done =
                if meets { Err(BackendError::Skipped) } else { world.apply(&self.geometry, op) };
            if done.is_err() {
                failed.push(range);
            }
        }
    }
}
