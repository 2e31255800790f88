//! A backend over a driver that has CUDA's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use nofrag::check::{Check, Violation};

use super::super::books::{Books, Change, Shown};
use super::super::submission;
use super::super::{
    Access, Backend, BackendError, Caps, CostModel, Geometry, Op, OpResult, Placement, Va,
};
use super::{Driver, DriverError, Event, Granularity, Handle};

/// Memory of a GPU, by CUDA's rules.
///
/// Memory of several granules has a handle for each. If an operation on such memory fails half way, the driver has done
/// more or less than the books say; what that is, is kept, and the next operation on the range begins with it:
///
/// * A mapping that was refused half way is taken back. What cannot be taken back is no mapping for anybody, and is
///   unmapped before anything else is mapped there, or the addresses are released.
/// * An unmapping that was refused half way is repeated for the rest. Meanwhile the range counts as mapped, and takes
///   no access.
/// * Memory whose destruction was refused half way can only be destroyed.
///
/// 1. The driver maps, granule by granule, what the books say, without what is `gone` and with what is `left`.
/// 2. What is `gone` is in a mapping of the books; what is `left` is in none.
#[derive(Debug)]
pub struct Cuda<D: Driver> {
    driver: D,
    geometry: Geometry,
    made: Mutex<Made>,
}

/// Some memory of a [`Cuda`]. It is never made twice: what was destroyed names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory(u64);

/// When the last user of some memory is done: ready by itself, or when an event has come to pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence(pub Option<Event>);

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    memory: u64,
    offset: u64,
}

impl Shown for Part {
    fn further(self, bytes: u64) -> Part {
        Part { offset: self.offset + bytes, ..self }
    }

    /// Whatever a driver keeps, it is no area of this process.
    fn is_one_area(_: Option<(Part, Access)>, _: Option<(Part, Access)>) -> bool {
        true
    }
}

#[derive(Debug)]
struct Made {
    books: Books<Part>,
    memory: BTreeMap<u64, Granules>,
    named: u64,
    /// Handles of memory whose making was refused half way.
    unwanted: Granules,
    /// Granules that the driver has unmapped already.
    gone: BTreeSet<u64>,
    /// Granules that the driver has mapped still.
    left: BTreeSet<u64>,
}

/// The handles of some memory, one for each granule.
#[derive(Debug, Default)]
struct Granules {
    handles: Vec<Handle>,
    /// Its destruction has begun.
    is_ending: bool,
}

impl<D: Driver> Cuda<D> {
    /// Memory of the device that `driver` stands for.
    ///
    /// # Errors
    /// What the driver says of its granularity.
    pub fn new(driver: D) -> Result<Cuda<D>, DriverError> {
        let granule = driver.granularity(Granularity::Minimum)?;
        let geometry = Geometry {
            granule,
            recommended: driver.granularity(Granularity::Recommended)?.max(granule),
            va_align: granule,
            max_va: 1 << 46,
            caps: Caps::ALIAS
                | Caps::SUBRANGE_MAP
                | Caps::GRANT_SEPARATE
                | Caps::QUIESCE_BEFORE_UNMAP,
            max_mappings: None,
            vector_max: 1,
            cost: CostModel::default(),
        };
        let made = Made {
            books: Books::new(None),
            memory: BTreeMap::new(),
            named: 0,
            unwanted: Granules::default(),
            gone: BTreeSet::new(),
            left: BTreeSet::new(),
        };
        Ok(Cuda { driver, geometry, made: Mutex::new(made) })
    }

    /// The driver, for who starts work on the device.
    #[must_use]
    pub fn driver(&self) -> &D {
        &self.driver
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        // Only a driver could panic while the lock is held; what it was told to do is in the books.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of the granules of a range.
    fn granules(&self, va: Va, bytes: u64) -> impl Iterator<Item = Va> + use<D> {
        (va.0..va.0 + bytes).step_by(self.geometry.granule as usize).map(Va)
    }

    /// Unmaps what earlier refusals have left in a range.
    fn clear(&self, left: &mut BTreeSet<u64>, va: Va, bytes: u64) -> Result<(), DriverError> {
        let found: Vec<u64> = left.range(va.0..va.0 + bytes).copied().collect();
        for at in found {
            self.driver.unmap(Va(at), self.geometry.granule)?;
            left.remove(&at);
        }
        Ok(())
    }

    fn map(&self, va: Va, phys: Memory, offset: u64, bytes: u64) -> OpResult {
        self.geometry.fits(va, bytes)?;
        let made = &mut *self.made();
        let memory = made.memory.get(&phys.0).filter(|memory| !memory.is_ending);
        let handles = &memory.ok_or(BackendError::WrongState)?.handles;
        let whole = handles.len() as u64 * self.geometry.granule;
        self.geometry.fits_inside(offset, bytes, whole)?;
        made.books.check_reserved(va, bytes)?;
        if !made.books.is_unmapped(va, bytes) {
            return Err(BackendError::WrongState);
        }
        self.clear(&mut made.left, va, bytes)?;
        let first = (offset / self.geometry.granule) as usize;
        let left = &mut made.left;
        let change = Change::Map(Part { memory: phys.0, offset }, Access::None);
        let carry_out = || Ok(self.map_handles(left, va, bytes, &handles[first..])?);
        made.books.change((va, bytes), change, carry_out).map(drop)
    }

    /// Maps a handle at each granule, all or none; what cannot be taken back is left.
    fn map_handles(
        &self,
        left: &mut BTreeSet<u64>,
        va: Va,
        bytes: u64,
        handles: &[Handle],
    ) -> Result<(), DriverError> {
        let granule = self.geometry.granule;
        for (at, &handle) in self.granules(va, bytes).zip(handles) {
            if let Err(error) = self.driver.map(at, granule, 0, handle) {
                left.extend(self.granules(va, at.0 - va.0).map(|at| at.0));
                // Whether or not that succeeds, the mapping was refused.
                let _ = self.clear(left, va, bytes);
                return Err(error);
            }
        }
        Ok(())
    }

    fn unmap(&self, va: Va, bytes: u64) -> OpResult {
        self.geometry.fits(va, bytes)?;
        let made = &mut *self.made();
        made.books.check_mapped(va, bytes)?;
        made.books.check_whole(va, bytes)?;
        let gone = &mut made.gone;
        made.books.change((va, bytes), Change::Unmap, || {
            for at in self.granules(va, bytes) {
                if !gone.contains(&at.0) {
                    self.driver.unmap(at, self.geometry.granule)?;
                    gone.insert(at.0);
                }
            }
            gone.retain(|at| !(va.0..va.0 + bytes).contains(at));
            Ok(())
        })?;
        Ok(())
    }

    /// Grants access to ranges that touch at once: mapped in many calls, granted in one.
    fn grant(&self, ops: &[Op<Memory>], done: &mut [OpResult]) {
        let made = &mut *self.made();
        for access in [Access::None, Access::Read, Access::ReadWrite] {
            let (mut places, mut ranges) = (Vec::new(), Vec::new());
            for (place, op) in ops.iter().enumerate() {
                let &Op::Grant { va, bytes, access: wanted } = op else { continue };
                if wanted != access {
                    continue;
                }
                done[place] = self.may_grant(made, va, bytes);
                if done[place].is_ok() {
                    places.push(place);
                    ranges.push((va, bytes));
                }
            }
            for run in submission::join(&ranges) {
                let whole = self.set_access(made, run.va, run.bytes, access);
                for &member in &run.members {
                    let (va, bytes) = ranges[member];
                    let again = whole.is_err() && run.members.len() > 1;
                    let granted =
                        if again { self.set_access(made, va, bytes, access) } else { whole };
                    done[places[member]] = granted;
                }
            }
        }
    }

    fn may_grant(&self, made: &Made, va: Va, bytes: u64) -> OpResult {
        self.geometry.fits(va, bytes)?;
        made.books.check_mapped(va, bytes)?;
        made.books.check_whole(va, bytes)?;
        let is_whole = made.gone.range(va.0..va.0 + bytes).next().is_none();
        if is_whole { Ok(()) } else { Err(BackendError::WrongState) }
    }

    fn set_access(&self, made: &mut Made, va: Va, bytes: u64, access: Access) -> OpResult {
        let carry_out = || Ok(self.driver.set_access(va, bytes, access)?);
        made.books.change((va, bytes), Change::Grant(access), carry_out).map(drop)
    }

    /// Makes a handle for each granule, all or none. What cannot be given back is given back later.
    fn make_handles(&self, granules: u64) -> Result<Granules, DriverError> {
        let mut made = Granules::default();
        for _ in 0..granules {
            match self.driver.create(self.geometry.granule) {
                Ok(handle) => made.handles.push(handle),
                Err(error) => {
                    let _ = self.release_handles(&mut made);
                    self.made().unwanted.handles.append(&mut made.handles);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    /// Tries again to give back what nobody got.
    fn try_again(&self) {
        let _ = self.release_handles(&mut self.made().unwanted);
    }

    /// Releases handles until one is refused. One that was released is forgotten at once.
    fn release_handles(&self, memory: &mut Granules) -> Result<(), DriverError> {
        while let Some(&handle) = memory.handles.last() {
            self.driver.release(handle)?;
            memory.handles.pop();
        }
        Ok(())
    }
}

impl<D: Driver> Backend for Cuda<D> {
    type Phys = Memory;
    type Fence = Fence;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, BackendError> {
        self.geometry.fits(Va(0), bytes)?;
        if !align.is_power_of_two() {
            return Err(BackendError::Misfit);
        }
        let align = align.max(self.geometry.va_align);
        let mut made = self.made();
        let va = self.driver.address_reserve(bytes, align, hint)?;
        made.books.enter(va, bytes);
        Ok(va)
    }

    fn release(&self, va: Va, bytes: u64) -> Result<(), BackendError> {
        let made = &mut *self.made();
        if !made.books.is_reservation(va, bytes) || !made.books.is_unmapped(va, bytes) {
            return Err(BackendError::WrongState);
        }
        self.clear(&mut made.left, va, bytes)?;
        self.driver.address_free(va, bytes)?;
        made.books.strike(va, bytes);
        Ok(())
    }

    fn create(&self, bytes: u64, placement: Placement) -> Result<Memory, BackendError> {
        self.geometry.fits(Va(0), bytes)?;
        if placement != Placement::Anywhere {
            return Err(BackendError::Unsupported);
        }
        self.try_again();
        let memory = self.make_handles(bytes / self.geometry.granule)?;
        let mut made = self.made();
        made.named += 1;
        let named = made.named;
        made.memory.insert(named, memory);
        Ok(Memory(named))
    }

    fn destroy(&self, phys: Memory) -> Result<(), BackendError> {
        self.try_again();
        let mut made = self.made();
        let memory = made.memory.get_mut(&phys.0).ok_or(BackendError::WrongState)?;
        let had = memory.handles.len();
        let released = self.release_handles(memory);
        memory.is_ending |= memory.handles.len() < had;
        released?;
        made.memory.remove(&phys.0);
        Ok(())
    }

    fn submit(&self, ops: &[Op<Memory>], done: &mut [OpResult]) {
        submission::in_batches(ops, done, |ops, done| match ops[0] {
            Op::Grant { .. } => self.grant(ops, done),
            _ => submission::each(ops, done, |op| match *op {
                Op::Map { va, phys, offset, bytes } => self.map(va, phys, offset, bytes),
                Op::Unmap { va, bytes } => self.unmap(va, bytes),
                _ => op
                    .ranges()
                    .try_for_each(|(va, bytes)| self.geometry.fits(va, bytes))
                    .and(Err(BackendError::Unsupported)),
            }),
        });
    }

    /// What a driver says that is neither yes nor no is no: memory whose user may be at it is not ready.
    fn quiesce(&self, fence: &Fence) -> Poll<()> {
        match fence.0.map(|event| self.driver.event_query(event)) {
            None | Some(Ok(Poll::Ready(()))) => Poll::Ready(()),
            Some(Ok(Poll::Pending) | Err(_)) => Poll::Pending,
        }
    }
}

/// Of a backend that nobody uses meanwhile.
impl<D: Driver> Check for Cuda<D> {
    fn check(&self) -> Result<(), Violation> {
        let made = self.made();
        made.books.check()?;
        let granule = self.geometry.granule;
        let law = "What is `gone` is in a mapping of the books; what is `left` is in none.";
        for &at in &made.gone {
            Violation::unless(law, at, made.books.check_mapped(Va(at), granule).is_ok())?;
        }
        for &at in &made.left {
            Violation::unless(law, at, made.books.is_unmapped(Va(at), granule))?;
        }
        Ok(())
    }
}

impl<D: Driver> Drop for Cuda<D> {
    /// Gives all back. What is refused stays until the process ends, and its memory with it.
    fn drop(&mut self) {
        let made = self.made.get_mut().unwrap_or_else(PoisonError::into_inner);
        let reservations: Vec<(Va, u64)> = made.books.reservations().collect();
        for (va, bytes) in reservations {
            for (at, part) in made.books.strike(va, bytes) {
                let last = at.0 + part.bytes;
                for at in (at.0..last).step_by(self.geometry.granule as usize) {
                    if !made.gone.contains(&at) {
                        let _ = self.driver.unmap(Va(at), self.geometry.granule);
                    }
                }
            }
            for &at in made.left.range(va.0..va.0 + bytes) {
                let _ = self.driver.unmap(Va(at), self.geometry.granule);
            }
            let _ = self.driver.address_free(va, bytes);
        }
        let memory = made.memory.values().chain([&made.unwanted]);
        for &handle in memory.flat_map(|memory| &memory.handles) {
            let _ = self.driver.release(handle);
        }
    }
}
