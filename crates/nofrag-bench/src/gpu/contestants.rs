//! The contestants of [`gpu`](super): each by the least that its documentation asks for.

use super::device::{DeviceBlock, Gpu, refused};
use super::python::Python;
use super::{GpuContestant, UNIT};
use crate::contest::Entry;
use crate::peers::{BEST, DYNAMIC, HEAP, Heap, LOWEST, Nofrag, OFFSET, Offset, Peer, Space};
use cudarc::driver::result::{self, mem_pool};
use cudarc::driver::sys;
use nofrag::ranges::{Fit, Index};

/// One block of the driver's, in which a peer hands out places.
struct Carved<P> {
    peer: P,
    block: DeviceBlock,
}

impl<P: Peer> Carved<P> {
    fn new(gpu: &Gpu, make: impl Fn(Space) -> P) -> Result<Carved<P>, String> {
        let pages = u32::try_from(gpu.pool_units()).map_err(|_| "a pool beyond 2 TiB")?;
        let peer = make(Space { pages, live: 1 << 18, shift: 0 });
        Ok(Carved { peer, block: DeviceBlock::new(gpu.pool_bytes())? })
    }
}

impl<P: Peer> Peer for Carved<P> {
    type Handle = P::Handle;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<P::Handle> {
        self.peer.alloc(size)
    }

    #[inline]
    fn free(&mut self, handle: P::Handle) -> bool {
        self.peer.free(handle)
    }

    fn start(&self, handle: &P::Handle) -> u64 {
        self.block.0 / UNIT + self.peer.start(handle)
    }
}

/// Takes what the device has free beyond the pool.
fn beyond(gpu: &Gpu) -> Result<DeviceBlock, String> {
    let (free, _) = result::mem_get_info().map_err(refused("cuMemGetInfo"))?;
    let bytes = (free as u64).checked_sub(gpu.pool_bytes()).ok_or("less is free than the pool")?;
    DeviceBlock::new(bytes)
}

/// Each block by a call of `cuMemAlloc`.
struct Driver {
    _beyond: DeviceBlock,
}

impl Driver {
    fn new(gpu: &Gpu) -> Result<Driver, String> {
        Ok(Driver { _beyond: beyond(gpu)? })
    }
}

impl Peer for Driver {
    type Handle = u64;

    fn alloc(&mut self, size: u32) -> Option<u64> {
        // SAFETY: nothing reads it before it is written.
        unsafe { result::malloc_sync(size as usize * UNIT as usize) }.ok()
    }

    fn free(&mut self, address: u64) -> bool {
        // SAFETY: `alloc` returned it, and it is freed once (`Peer::free`).
        unsafe { result::free_sync(address) }.is_ok()
    }

    fn start(&self, address: &u64) -> u64 {
        address / UNIT
    }
}

/// A pool of the driver, in the order of the stream; it keeps what is freed.
struct StreamOrdered {
    _beyond: DeviceBlock,
    pool: sys::CUmemoryPool,
    stream: sys::CUstream,
}

impl StreamOrdered {
    fn new(gpu: &Gpu) -> Result<StreamOrdered, String> {
        // SAFETY: the driver asks for zeros in all that is not set.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = gpu.device();
        // SAFETY: the properties are whole.
        let pool = unsafe { mem_pool::create(&raw const properties) }
            .map_err(refused("cuMemPoolCreate"))?;
        let ordered = StreamOrdered { _beyond: beyond(gpu)?, pool, stream: gpu.stream() };
        let (kept, mut all) =
            (sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
        // SAFETY: the value of this attribute is a number of 64 bits.
        unsafe { mem_pool::set_attribute(pool, kept, (&raw mut all).cast()) }
            .map_err(refused("cuMemPoolSetAttribute"))?;
        Ok(ordered)
    }
}

impl Peer for StreamOrdered {
    type Handle = u64;

    fn alloc(&mut self, size: u32) -> Option<u64> {
        // SAFETY: pool and stream live as long as `self`; nothing reads the block before it is written.
        unsafe { mem_pool::alloc_async(self.pool, size as usize * UNIT as usize, self.stream) }.ok()
    }

    fn free(&mut self, address: u64) -> bool {
        // SAFETY: `alloc` returned it, and it is freed once (`Peer::free`), after what the stream does with it.
        unsafe { result::free_async(address, self.stream) }.is_ok()
    }

    fn start(&self, address: &u64) -> u64 {
        address / UNIT
    }
}

impl Drop for StreamOrdered {
    fn drop(&mut self) {
        // SAFETY: everything on the stream has ended, and the pool is destroyed once.
        let _ = unsafe {
            result::stream::synchronize(self.stream).and_then(|()| mem_pool::destroy(self.pool))
        };
    }
}

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn GpuContestant>> {
    let ours =
        |fit| move |gpu: &Gpu| Carved::new(gpu, |space| Nofrag::new(space, Index::WideBlocks, fit));
    vec![
        Box::new(Entry::new(LOWEST, ours(Fit::Lowest))),
        Box::new(Entry::new(BEST, ours(Fit::Best))),
        Box::new(Entry::new(HEAP, |gpu: &Gpu| Carved::new(gpu, Heap::new))),
        Box::new(Entry::new(DYNAMIC, ours(Fit::Dynamic))),
        Box::new(Entry::new(OFFSET, |gpu: &Gpu| Carved::new(gpu, Offset::new))),
        Box::new(Entry::new("cuMemAlloc", Driver::new)),
        Box::new(Entry::new("cuMemAllocFromPoolAsync", StreamOrdered::new)),
    ]
}

/// Makes the contestants that are asked in a process of their own.
#[must_use]
pub fn in_python() -> Vec<Box<dyn GpuContestant>> {
    vec![
        Box::new(Python("PyTorch, native", "native")),
        Box::new(Python("PyTorch, expandable segments", "expandable_segments")),
        Box::new(Python("PyTorch, cudaMallocAsync", "cudaMallocAsync")),
        Box::new(Python("CuPy, memory pool", "cupy")),
    ]
}
