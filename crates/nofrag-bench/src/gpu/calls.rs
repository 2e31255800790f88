//! The cost of one call of the driver, by size, when the device is idle and while its stream has work: what somebody
//! must know who wants to map memory of a GPU page by page.

use super::device::{DeviceBlock, Gpu, refused, timed};
use crate::contest::Run;
use crate::record::{Group, Measure};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::time::Duration;

/// Sizes of the memory that calls are about.
const SIZES: [u64; 3] = [2 << 20, 64 << 20, 1 << 30];

const IDLE_CYCLES: usize = 32;

const BUSY_CYCLES: usize = 3;

/// Work that the stream has before each call beside work. A call that takes about as long has waited for it.
const WORK: Duration = Duration::from_millis(30);

/// Bytes that the work writes again and again.
const WORK_BYTES: u64 = 8 << 30;

/// The calls of a cycle, with the nanoseconds of each.
type Calls = Vec<(&'static str, f64)>;

/// Makes a call, after what `before` does, and notes its time.
fn call<T>(
    calls: &mut Calls,
    before: &dyn Fn() -> Result<(), String>,
    name: &'static str,
    make: impl FnOnce() -> Result<T, DriverError>,
) -> Result<T, String> {
    before()?;
    let (result, ns) = timed(make);
    calls.push((name, ns));
    result.map_err(refused(name))
}

/// Reserves addresses, makes memory, maps it, grants access, and takes all back; then the same by one call.
fn cycle(
    gpu: &Gpu,
    bytes: usize,
    before: &dyn Fn() -> Result<(), String>,
) -> Result<Calls, String> {
    let mut calls = Calls::new();
    let location = sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: gpu.device(),
    };
    // SAFETY: the driver asks for zeros in all that is not set.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location;
    let access = sys::CUmemAccessDesc {
        location,
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let (mut address, mut handle) = (0, 0);
    let calls_of = &mut calls;
    // SAFETY: each call gets what the ones before it made, of the same size, and nothing uses the memory.
    call(calls_of, before, "cuMemAddressReserve", || unsafe {
        sys::cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0).result()
    })?;
    // SAFETY: as above.
    call(calls_of, before, "cuMemCreate", || unsafe {
        sys::cuMemCreate(&raw mut handle, bytes, &raw const properties, 0).result()
    })?;
    // SAFETY: as above.
    call(calls_of, before, "cuMemMap", || unsafe {
        sys::cuMemMap(address, bytes, 0, handle, 0).result()
    })?;
    // SAFETY: as above.
    call(calls_of, before, "cuMemSetAccess", || unsafe {
        sys::cuMemSetAccess(address, bytes, &raw const access, 1).result()
    })?;
    // SAFETY: as above.
    call(calls_of, before, "cuMemUnmap", || unsafe { sys::cuMemUnmap(address, bytes).result() })?;
    // SAFETY: as above.
    call(calls_of, before, "cuMemRelease", || unsafe { sys::cuMemRelease(handle).result() })?;
    // SAFETY: as above.
    call(calls_of, before, "cuMemAddressFree", || unsafe {
        sys::cuMemAddressFree(address, bytes).result()
    })?;
    // SAFETY: nothing reads it before it is written.
    let block = call(calls_of, before, "cuMemAlloc", || unsafe { result::malloc_sync(bytes) })?;
    // SAFETY: it came from `cuMemAlloc`, and nobody else knows it.
    call(calls_of, before, "cuMemFree", || unsafe { result::free_sync(block) })?;
    Ok(calls)
}

/// Measures all calls for all sizes.
pub(super) fn run(run: &mut Run<'_>, gpu: &Gpu) {
    for bytes in SIZES {
        let workload = format!("{}: one call, {} MiB", gpu.title(), bytes >> 20);
        for (measure, cycles) in
            [(Measure::NsPerOp, IDLE_CYCLES), (Measure::NsBesideWork, BUSY_CYCLES)]
        {
            (run.progress)(Group::Gpu, "calls of the driver");
            let is_busy = measure == Measure::NsBesideWork;
            match repeated(gpu, bytes as usize, cycles, is_busy) {
                Ok(calls) => {
                    for (name, samples) in calls {
                        run.add((Group::Gpu, &workload), name, (measure, samples), None);
                    }
                }
                Err(why) => {
                    run.add((Group::Gpu, &workload), "all", (measure, Vec::new()), Some(&why));
                }
            }
        }
    }
}

/// Returns the times of each call in `cycles` cycles.
fn repeated(
    gpu: &Gpu,
    bytes: usize,
    cycles: usize,
    is_busy: bool,
) -> Result<Vec<(&'static str, Vec<f64>)>, String> {
    let work = DeviceBlock::new(WORK_BYTES)?;
    let before = || {
        gpu.wait()?;
        if is_busy { gpu.keep_busy(work.0, WORK_BYTES, WORK) } else { Ok(()) }
    };
    // The first cycle opens what the driver opens only once.
    cycle(gpu, bytes, &before)?;
    let mut all: Vec<(&'static str, Vec<f64>)> = Vec::new();
    for _ in 0..cycles {
        for (at, (name, ns)) in cycle(gpu, bytes, &before)?.into_iter().enumerate() {
            if all.len() == at {
                all.push((name, Vec::new()));
            }
            all[at].1.push(ns);
        }
    }
    gpu.wait()?;
    Ok(all)
}
