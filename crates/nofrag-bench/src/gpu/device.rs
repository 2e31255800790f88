//! The first GPU of this machine, by its driver, which is opened when the program runs.

use super::UNIT;
use cudarc::driver::result::{self, DriverError, device, primary_ctx, stream};
use cudarc::driver::sys;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Why a call of the driver failed, as contestants' notes say it.
pub(super) fn refused(call: &str) -> impl Fn(DriverError) -> String {
    move |error| format!("{call}: {error}")
}

/// A GPU, on one stream of which everything happens, and the bytes of it that a contestant may use.
pub struct Gpu {
    name: String,
    /// The version of CUDA that the driver offers.
    version: i32,
    device: sys::CUdevice,
    stream: sys::CUstream,
    pool_bytes: u64,
    /// The words that were read last.
    read: RefCell<Vec<u32>>,
}

impl Gpu {
    /// Opens the first GPU for the calling thread.
    ///
    /// # Errors
    /// When there is no driver or no GPU, or the driver refuses it.
    pub fn open() -> Result<Gpu, String> {
        // SAFETY: the driver's initialisers are all that runs.
        let is_there = unsafe { sys::is_culib_present() };
        if !is_there {
            return Err("no driver of CUDA on this machine (libcuda.so)".to_owned());
        }
        result::init().map_err(refused("cuInit"))?;
        let device = device::get(0).map_err(refused("cuDeviceGet"))?;
        let name = device::get_name(device).map_err(refused("cuDeviceGetName"))?;
        // SAFETY: the device was found above; its context is retained until the process ends, and the thread keeps it.
        let context = unsafe { primary_ctx::retain(device) };
        let context = context.map_err(refused("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: as above.
        unsafe { result::ctx::set_current(context) }.map_err(refused("cuCtxSetCurrent"))?;
        let stream =
            stream::create(stream::StreamKind::NonBlocking).map_err(refused("cuStreamCreate"))?;
        let mut version = 0;
        // SAFETY: it writes one number.
        unsafe { sys::cuDriverGetVersion(&raw mut version) }
            .result()
            .map_err(refused("cuDriverGetVersion"))?;
        let (free, _) = result::mem_get_info().map_err(refused("cuMemGetInfo"))?;
        let pool_bytes = 1 << (free as u64 / 10 * 9).ilog2();
        Ok(Gpu { name, version, device, stream, pool_bytes, read: RefCell::default() })
    }

    /// Returns the name of the GPU, the version of its driver, and the size of the pool.
    #[must_use]
    pub fn title(&self) -> String {
        let (major, minor) = (self.version / 1000, self.version % 1000 / 10);
        format!("{}, driver of CUDA {major}.{minor}, {} GiB", self.name, self.pool_bytes >> 30)
    }

    /// Returns the units of the pool.
    #[must_use]
    pub fn pool_units(&self) -> u64 {
        self.pool_bytes / UNIT
    }

    pub(super) fn pool_bytes(&self) -> u64 {
        self.pool_bytes
    }

    pub(super) fn device(&self) -> sys::CUdevice {
        self.device
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// Writes `tag` to every word of a block, on the stream.
    ///
    /// # Errors
    /// When the driver refuses it.
    pub fn write(&self, unit: u64, units: u32, tag: u32) -> Result<(), String> {
        let words = units as usize * (UNIT as usize / 4);
        // SAFETY: a contestant has just handed the block out; the driver refuses what is no memory of the device.
        unsafe { sys::cuMemsetD32Async(unit * UNIT, tag, words, self.stream) }
            .result()
            .map_err(refused("cuMemsetD32Async"))
    }

    /// Returns the number of words of a block that are not `tag`, after what is under way has ended.
    ///
    /// # Errors
    /// When the driver refuses to read it.
    pub fn differing(&self, unit: u64, units: u32, tag: u32) -> Result<u64, String> {
        self.wait()?;
        let mut read = self.read.borrow_mut();
        read.resize(units as usize * (UNIT as usize / 4), 0);
        // SAFETY: the block is as long as the buffer, and is live until the contestant gets it back.
        unsafe { result::memcpy_dtoh_sync(&mut read, unit * UNIT) }
            .map_err(refused("cuMemcpyDtoH"))?;
        Ok(read.iter().filter(|&&word| word != tag).count() as u64)
    }

    /// Waits until everything on the stream is done.
    ///
    /// # Errors
    /// When something on it has failed.
    pub fn wait(&self) -> Result<(), String> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { stream::synchronize(self.stream) }.map_err(refused("cuStreamSynchronize"))
    }

    /// Gives the stream work of at least `time`: writes to `bytes` bytes at `address`, which nobody else uses.
    pub(super) fn keep_busy(&self, address: u64, bytes: u64, time: Duration) -> Result<(), String> {
        // Bytes a second at which it certainly writes less than it is asked for here.
        let (fastest, mut left) = (8e12, time.as_secs_f64());
        while left > 0.0 {
            self.write(address / UNIT, u32::try_from(bytes / UNIT).expect("a pool's"), 1)?;
            left -= bytes as f64 / fastest;
        }
        Ok(())
    }
}

/// Memory of the device by `cuMemAlloc`, given back at the end.
pub(super) struct DeviceBlock(pub(super) u64);

impl DeviceBlock {
    pub(super) fn new(bytes: u64) -> Result<DeviceBlock, String> {
        // SAFETY: nothing reads it before it is written.
        let address = unsafe { result::malloc_sync(bytes as usize) };
        address.map(DeviceBlock).map_err(refused("cuMemAlloc"))
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        // SAFETY: it came from `cuMemAlloc` and nobody holds an address in it any more.
        let _ = unsafe { result::free_sync(self.0) };
    }
}

/// Runs a call and returns the time it took.
pub(super) fn timed<T>(call: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let result = call();
    (result, began.elapsed().as_nanos() as f64)
}
