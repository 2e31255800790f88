//! A driver without a GPU, which does what CUDA's documentation says and refuses what it forbids.
//!
//! What a real driver would not notice, but work on the GPU would suffer from, is noted as a [`Misuse`]: an access
//! without mapping or without access, and a mapping that is taken away while work still uses it. Every call is in the
//! trace with what became of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use nofrag::ranges::{AllocError, Config, RangeAllocator, Request, Span};

use super::super::refusals::Refusals;
use super::{Access, Call, Driver, DriverError, Event, Granularity, Handle, Rule, Va};

/// What every address and size of a reservation is a multiple of.
const HOST_PAGE: u64 = 4096;

/// Where the fake's addresses are: where nothing of a process is on x86-64.
const ADDRESSES: (u64, u64) = (1 << 50, 1 << 51);

/// The shape of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The minimum granularity, a power of two.
    pub minimum: u64,
    /// The recommended one, a multiple of it.
    pub recommended: u64,
    /// Bytes of memory that the device has.
    pub memory: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { minimum: 2 << 20, recommended: 2 << 20, memory: 16 << 30 }
    }
}

/// A call of the driver, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which.
    pub call: Call,
    /// The address that it was for, if any.
    pub va: Option<Va>,
    /// The bytes that it was for, if any.
    pub bytes: u64,
    /// Whether it was done.
    pub result: Result<(), DriverError>,
}

/// What is wrong although no call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A mapping was taken away that work still used.
    UnmappedInUse {
        /// Where.
        va: Va,
        /// By the work before this event.
        event: Event,
    },
    /// The device used an address in vain.
    Faulted {
        /// Where.
        va: Va,
        /// Why.
        fault: Fault,
    },
}

/// Why the device cannot use an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing is mapped there.
    #[error("nothing is mapped there")]
    Unmapped,
    /// It is mapped, and access was not granted.
    #[error("no access was granted")]
    NoAccess,
}

/// A driver without a GPU.
///
/// 1. Memory in use is that of handles that are not released, or mapped.
/// 2. Every mapping lies in one reservation, and mappings are disjoint.
#[derive(Debug)]
pub struct FakeDriver {
    geometry: Shape,
    device: Mutex<Device>,
}

#[derive(Debug)]
struct Device {
    addresses: RangeAllocator,
    reserved: BTreeMap<u64, u64>,
    handles: BTreeMap<u64, Memory>,
    mapped: BTreeMap<u64, Mapping>,
    /// By handle and offset.
    contents: BTreeMap<(u64, u64), u64>,
    /// Work that has not ended, and what it uses.
    work: BTreeMap<u64, (Va, u64)>,
    /// Handles and events so far.
    named: u64,
    trace: Vec<Entry>,
    misuses: Vec<Misuse>,
    refusals: Refusals<Call, DriverError>,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    bytes: u64,
    is_released: bool,
    mappings: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    handle: Handle,
    offset: u64,
    access: Access,
}

impl Mapping {
    fn allows(&self, wanted: Access) -> bool {
        self.access == wanted || self.access == Access::ReadWrite
    }
}

impl FakeDriver {
    /// A device of this shape, with nothing in it.
    #[must_use]
    pub fn new(geometry: Shape) -> FakeDriver {
        let mut addresses = RangeAllocator::new(Config::default());
        let span = Span::new(ADDRESSES.0, ADDRESSES.1).expect("it is not empty");
        addresses.add_span(span).expect("the first span needs no memory that could be refused");
        let device = Device {
            addresses,
            reserved: BTreeMap::new(),
            handles: BTreeMap::new(),
            mapped: BTreeMap::new(),
            contents: BTreeMap::new(),
            work: BTreeMap::new(),
            named: 0,
            trace: Vec::new(),
            misuses: Vec::new(),
            refusals: Refusals::default(),
        };
        FakeDriver { geometry, device: Mutex::new(device) }
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `after` calls of a kind through, then refuses `times` of them.
    pub fn refuse(&self, call: Call, after: u32, times: u32, error: DriverError) {
        self.device().refusals.plan(call, after, times, error);
    }

    /// Refuses no more by plan.
    pub fn allow_all(&self) {
        self.device().refusals.clear();
    }

    /// Every call so far, the first one first.
    #[must_use]
    pub fn trace(&self) -> Vec<Entry> {
        self.device().trace.clone()
    }

    /// Everything that went wrong without a refusal.
    #[must_use]
    pub fn misuses(&self) -> Vec<Misuse> {
        self.device().misuses.clone()
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory_in_use(&self) -> u64 {
        self.device().handles.values().map(|memory| memory.bytes).sum()
    }

    /// Bytes of addresses that are reserved.
    #[must_use]
    pub fn addresses_in_use(&self) -> u64 {
        self.device().reserved.values().sum()
    }

    /// Starts work that uses a range until [`complete`](Self::complete): the event after it.
    ///
    /// # Errors
    /// The device faults.
    pub fn launch(&self, va: Va, bytes: u64) -> Result<Event, Fault> {
        let mut device = self.device();
        device.access(va, bytes, Access::ReadWrite)?;
        device.named += 1;
        let event = device.named;
        device.work.insert(event, (va, bytes));
        Ok(Event(event))
    }

    /// Ends the work before an event.
    pub fn complete(&self, event: Event) {
        self.device().work.remove(&event.0);
    }

    /// Writes to the device's memory, as work would.
    ///
    /// # Errors
    /// The device faults.
    pub fn store(&self, va: Va, value: u64) -> Result<(), Fault> {
        let mut device = self.device();
        let place = device.access(va, 8, Access::ReadWrite)?;
        device.contents.insert(place, value);
        Ok(())
    }

    /// Reads from the device's memory, as work would. What was never written is whatever was there before.
    ///
    /// # Errors
    /// The device faults.
    pub fn load(&self, va: Va) -> Result<u64, Fault> {
        let mut device = self.device();
        let place = device.access(va, 8, Access::Read)?;
        Ok(device.contents.get(&place).copied().unwrap_or(0xbad0_bad0_bad0_bad0 ^ place.0))
    }

    /// Does a call by the rules, unless a plan refuses it, and notes it.
    fn call<T>(
        &self,
        call: Call,
        va: Option<Va>,
        bytes: u64,
        carry_out: impl FnOnce(&mut Device) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let mut device = self.device();
        let result = device.refusals.before(call).and_then(|()| carry_out(&mut device));
        let noted = result.as_ref().map(drop).map_err(|&error| error);
        device.trace.push(Entry { call, va, bytes, result: noted });
        result
    }

    fn multiple(&self, sizes: &[u64]) -> Result<(), DriverError> {
        let whole = sizes.iter().all(|size| size.is_multiple_of(self.geometry.minimum));
        if whole { Ok(()) } else { Err(Rule::Multiple.into()) }
    }
}

impl Device {
    fn mapping_at(&self, at: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mapped.range(..=at).next_back()?;
        (at - start < mapping.bytes).then_some((start, mapping))
    }

    /// Whether any address of the range is mapped.
    fn has_mapping(&self, va: Va, bytes: u64) -> bool {
        let last = self.mapped.range(..va.0 + bytes).next_back();
        last.is_some_and(|(start, mapping)| start + mapping.bytes > va.0)
    }

    /// Uses a range as work would; where its first byte is in the memory of which handle.
    fn access(&mut self, va: Va, bytes: u64, wanted: Access) -> Result<(u64, u64), Fault> {
        let mut at = va.0;
        while at < va.0.saturating_add(bytes) {
            let fault = match self.mapping_at(at) {
                None => Fault::Unmapped,
                Some((start, mapping)) if mapping.allows(wanted) => {
                    at = start + mapping.bytes;
                    continue;
                }
                Some(_) => Fault::NoAccess,
            };
            self.misuses.push(Misuse::Faulted { va: Va(at), fault });
            return Err(fault);
        }
        let (start, mapping) = self.mapping_at(va.0).ok_or(Fault::Unmapped)?;
        Ok((mapping.handle.0, mapping.offset + (va.0 - start)))
    }

    /// Forgets memory that has neither a handle nor a mapping.
    fn reap(&mut self, handle: Handle) {
        if self.handles.get(&handle.0).is_some_and(|had| had.is_released && had.mappings == 0) {
            self.handles.remove(&handle.0);
            self.contents.retain(|place, _| place.0 != handle.0);
        }
    }

    fn map(&mut self, va: Va, mapping: Mapping) -> Result<(), DriverError> {
        let bytes = mapping.bytes;
        let end = va.0.checked_add(bytes).ok_or(Rule::NotReserved)?;
        let reservation = self.reserved.range(..=va.0).next_back();
        let inside = reservation.is_some_and(|(start, size)| end <= start + size);
        if !inside {
            return Err(Rule::NotReserved.into());
        }
        if self.has_mapping(va, bytes) {
            return Err(Rule::OverMap.into());
        }
        let memory = self.handles.get_mut(&mapping.handle.0).filter(|had| !had.is_released);
        let memory = memory.ok_or(Rule::NoHandle)?;
        if mapping.offset.checked_add(bytes).is_none_or(|end| end > memory.bytes) {
            return Err(Rule::PastTheEnd.into());
        }
        memory.mappings += 1;
        self.mapped.insert(va.0, mapping);
        Ok(())
    }

    fn unmap(&mut self, va: Va, bytes: u64) -> Result<(), DriverError> {
        if self.mapped.get(&va.0).is_none_or(|mapping| mapping.bytes != bytes) {
            return Err(Rule::NotAMapping.into());
        }
        let uses = |range: &(Va, u64)| range.0.0 < va.0 + bytes && va.0 < range.0.0 + range.1;
        let users: Vec<u64> =
            self.work.iter().filter(|(_, range)| uses(range)).map(|(&event, _)| event).collect();
        let misuse = |event| Misuse::UnmappedInUse { va, event: Event(event) };
        self.misuses.extend(users.into_iter().map(misuse));
        let mapping = self.mapped.remove(&va.0).expect("it was found");
        let memory = self.handles.get_mut(&mapping.handle.0).expect("it lives while it is mapped");
        memory.mappings -= 1;
        self.reap(mapping.handle);
        Ok(())
    }

    fn set_access(&mut self, va: Va, bytes: u64, access: Access) -> Result<(), DriverError> {
        let end = va.0.checked_add(bytes).ok_or(Rule::NotMapped)?;
        let mut at = va.0;
        while at < end {
            match self.mapped.get(&at) {
                Some(mapping) if mapping.bytes <= end - at => at += mapping.bytes,
                _ => return Err(Rule::NotMapped.into()),
            }
        }
        self.mapped.range_mut(va.0..end).for_each(|(_, mapping)| mapping.access = access);
        Ok(())
    }
}

impl Driver for FakeDriver {
    fn granularity(&self, which: Granularity) -> Result<u64, DriverError> {
        self.call(Call::Granularity, None, 0, |_| {
            Ok(match which {
                Granularity::Minimum => self.geometry.minimum,
                Granularity::Recommended => self.geometry.recommended,
            })
        })
    }

    fn address_reserve(&self, bytes: u64, align: u64, hint: Option<Va>) -> Result<Va, DriverError> {
        self.call(Call::AddressReserve, hint, bytes, |device| {
            let hint = hint.unwrap_or_default().0;
            if bytes == 0 || !bytes.is_multiple_of(HOST_PAGE) || !hint.is_multiple_of(HOST_PAGE) {
                return Err(Rule::Multiple.into());
            }
            if align != 0 && !align.is_power_of_two() {
                return Err(Rule::Alignment.into());
            }
            let request = Request::new(bytes).align(align.max(self.geometry.minimum));
            let span = device.addresses.alloc(&request).map_err(|error| match error {
                AllocError::Exhausted { .. } => DriverError::OutOfMemory,
                _ => DriverError::Invalid(Rule::Multiple),
            })?;
            device.reserved.insert(span.start(), bytes);
            Ok(Va(span.start()))
        })
    }

    fn address_free(&self, va: Va, bytes: u64) -> Result<(), DriverError> {
        self.call(Call::AddressFree, Some(va), bytes, |device| {
            if device.reserved.get(&va.0) != Some(&bytes) {
                return Err(Rule::NotAReservation.into());
            }
            if device.has_mapping(va, bytes) {
                return Err(Rule::StillMapped.into());
            }
            let span = Span::sized(va.0, bytes).expect("it was one when it was reserved");
            device.addresses.free(span).map_err(|_| DriverError::OutOfMemory)?;
            device.reserved.remove(&va.0);
            Ok(())
        })
    }

    fn create(&self, bytes: u64) -> Result<Handle, DriverError> {
        self.call(Call::Create, None, bytes, |device| {
            self.multiple(&[bytes])?;
            if bytes == 0 {
                return Err(Rule::Multiple.into());
            }
            let used: u64 = device.handles.values().map(|memory| memory.bytes).sum();
            if bytes > self.geometry.memory - used {
                return Err(DriverError::OutOfMemory);
            }
            device.named += 1;
            let memory = Memory { bytes, is_released: false, mappings: 0 };
            device.handles.insert(device.named, memory);
            Ok(Handle(device.named))
        })
    }

    fn release(&self, handle: Handle) -> Result<(), DriverError> {
        self.call(Call::Release, None, 0, |device| {
            let memory = device.handles.get_mut(&handle.0).filter(|had| !had.is_released);
            memory.ok_or(Rule::NoHandle)?.is_released = true;
            device.reap(handle);
            Ok(())
        })
    }

    fn map(&self, va: Va, bytes: u64, offset: u64, handle: Handle) -> Result<(), DriverError> {
        self.call(Call::Map, Some(va), bytes, |device| {
            self.multiple(&[va.0, bytes, offset])?;
            if bytes == 0 {
                return Err(Rule::Multiple.into());
            }
            device.map(va, Mapping { bytes, handle, offset, access: Access::None })
        })
    }

    fn unmap(&self, va: Va, bytes: u64) -> Result<(), DriverError> {
        self.call(Call::Unmap, Some(va), bytes, |device| device.unmap(va, bytes))
    }

    fn set_access(&self, va: Va, bytes: u64, access: Access) -> Result<(), DriverError> {
        self.call(Call::SetAccess, Some(va), bytes, |device| {
            self.multiple(&[va.0, bytes])?;
            if bytes == 0 {
                return Err(Rule::Multiple.into());
            }
            device.set_access(va, bytes, access)
        })
    }

    fn event_query(&self, event: Event) -> Result<Poll<()>, DriverError> {
        self.call(Call::EventQuery, None, 0, |device| {
            if event.0 == 0 || event.0 > device.named {
                return Err(Rule::NoEvent.into());
            }
            let is_over = !device.work.contains_key(&event.0);
            Ok(if is_over { Poll::Ready(()) } else { Poll::Pending })
        })
    }
}
