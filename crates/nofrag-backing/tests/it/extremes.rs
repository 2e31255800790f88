//! Every public constructor at the ends of its numbers: an answer or an error, never a panic, an overflow or an abort.

use nofrag::cpu::CpuSet;
use nofrag::mmap::Protection;
use nofrag::page::Migratetype;
use nofrag::units::{Order, PageCount, Pfn, Vpn};
use nofrag_backing::arena::{Arena, Config, OwnerId, Owners, ReserveError, Run};
use nofrag_backing::backend::{Anonymous, Backend, BackendError, Budget, Memfd, Va};
use nofrag_backing::frames::{FrameBlock, FrameRequest, Frames, FramesConfig, Sharing, Use};
use nofrag_backing::mapped::{Mapped, MappedConfig, VmallocRequest};
use nofrag_backing::moving::userfaultfd::{Features, Userfaultfd, Watch};
use nofrag_backing::moving::{Access, Handles, LiveFile, Mappings, Method, Mover, Reach};
use nofrag_backing::reservation::Reservation;
use nofrag_backing::shapes::{GrowableBuffer, PoolSizes, SlotPool, ring};
use std::sync::Arc;

const PAGE: u64 = 4096;
/// Sizes for which no machine has room; rounding the last ones up overflows.
const TOO_LARGE: [u64; 4] = [1 << 63, u64::MAX - PAGE, u64::MAX - 1, u64::MAX];
const TOO_LARGE_USIZE: [usize; 4] = [1 << 63, usize::MAX - 4096, usize::MAX - 1, usize::MAX];

#[test]
fn reservations() {
    let new = |bytes| Reservation::new(bytes, Protection::READ_WRITE);
    assert!(new(0).is_err());
    assert_eq!(new(1).unwrap().pages().len(), 1);
    for bytes in TOO_LARGE_USIZE {
        assert!(new(bytes).is_err(), "{bytes:#x}");
        for start in [0, 1, PAGE, u64::MAX - 1, u64::MAX] {
            assert!(Reservation::at(start, bytes, Protection::READ_WRITE).is_err());
        }
    }
    for start in [1, 1 << 63, u64::MAX - PAGE + 1, u64::MAX] {
        assert!(Reservation::at(start, 1, Protection::READ_WRITE).is_err(), "{start:#x}");
    }
}

#[test]
fn shapes() {
    assert!(ring(0).is_ok() && ring(1).is_ok());
    assert!(GrowableBuffer::with_capacity(1).is_ok());
    let _ = GrowableBuffer::with_capacity(0);
    for bytes in TOO_LARGE_USIZE {
        assert!(ring(bytes).is_err(), "{bytes:#x}");
        assert!(GrowableBuffer::with_capacity(bytes).is_err(), "{bytes:#x}");
        let mut buffer = GrowableBuffer::with_capacity(1).unwrap();
        assert!(buffer.resize(bytes).is_err());
    }
    let sizes = PoolSizes { slots: 1, memory: 1, guard: 1, batch: 1 };
    assert!(SlotPool::new(sizes).is_ok());
    for batch in [0, u32::MAX] {
        SlotPool::new(PoolSizes { batch, ..sizes }).unwrap();
    }
    for (slots, bytes) in [(0, 1), (1, 0), (0, 0), (u32::MAX, usize::MAX)] {
        assert!(SlotPool::new(PoolSizes::new(slots, bytes)).is_err());
    }
    for bytes in TOO_LARGE_USIZE {
        assert!(SlotPool::new(PoolSizes { memory: bytes, ..sizes }).is_err());
        assert!(SlotPool::new(PoolSizes { guard: bytes, ..sizes }).is_err());
        for slots in [u32::MAX - 1, u32::MAX] {
            assert!(SlotPool::new(PoolSizes { slots, memory: bytes, ..sizes }).is_err());
        }
    }
}

#[test]
fn frames_handles_and_spaces() {
    assert!(Frames::new(&FramesConfig::new(0)).is_err());
    for sharing in [Sharing::Lock, Sharing::Shards] {
        for bytes in TOO_LARGE {
            assert!(Frames::new(&FramesConfig { sharing, ..FramesConfig::new(bytes) }).is_err());
        }
        for owners in [0, u32::MAX - 1, u32::MAX] {
            let config = FramesConfig { sharing, owners, ..FramesConfig::new(1) };
            assert!(Frames::new(&config).is_err());
        }
    }
    let frames = Arc::new(Frames::new(&FramesConfig::new(1)).unwrap());
    let owner = frames.owners().by_rank(0).unwrap();
    let block = frames.alloc(owner, FrameRequest::new(Order::ZERO, Migratetype::Movable)).unwrap();
    frames.free(owner, block.pfn).unwrap();
    let stranger = CpuSet::new([u32::MAX]).unwrap().by_rank(0).unwrap();
    let block = frames.alloc(stranger, FrameRequest::new(Order::ZERO, Migratetype::Movable));
    frames.free(stranger, block.unwrap().pfn).unwrap();
    for capacity in [0, 1, u32::MAX - 1, u32::MAX] {
        let handles = Handles::new(&FramesConfig::new(1), capacity).unwrap();
        let owner = handles.owners().by_rank(0).unwrap();
        assert_eq!(handles.alloc(owner, Order::ZERO).is_ok(), capacity > 0);
    }
    assert!(Mapped::new(Arc::clone(&frames), &MappedConfig::new(0)).is_err());
    for bytes in TOO_LARGE {
        assert!(Mapped::new(Arc::clone(&frames), &MappedConfig::new(bytes)).is_err());
    }
    for mappings in [Some(0), Some(u64::MAX)] {
        let config = MappedConfig { mappings, ..MappedConfig::new(1) };
        let space = Mapped::new(Arc::clone(&frames), &config).unwrap();
        assert!(space.vmalloc(owner, &VmallocRequest::new(0)).is_err());
        for bytes in TOO_LARGE {
            assert!(space.vmalloc(owner, &VmallocRequest::new(bytes)).is_err(), "{bytes:#x}");
        }
    }
}

#[test]
fn files_that_move() {
    assert!(LiveFile::new(0).is_err() && LiveFile::new(1).is_ok());
    for pages in [1 << 32, 1 << 63, u64::MAX - 1, u64::MAX] {
        assert!(LiveFile::new(pages).is_err(), "{pages:#x}");
    }
    for budget in [0, 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(LiveFile::with_budget(1, Mappings::new(budget)).is_ok(), budget > 0);
    }
}

#[test]
fn backends() {
    for budget in [Budget::Areas(0), Budget::Areas(1), Budget::Areas(u64::MAX), Budget::Unlimited] {
        check_reserve(&Memfd::new(budget).unwrap());
    }
    check_reserve(&Anonymous::new());
}

fn check_reserve<B: Backend>(backend: &B) {
    for bytes in [0, 1].into_iter().chain(TOO_LARGE) {
        for align in [0, 1, 1 << 63, u64::MAX - 1, u64::MAX] {
            let reserved: Result<Va, BackendError> = backend.reserve(bytes, align, None);
            if let Ok(va) = reserved {
                assert!(bytes > 0 && va.0.checked_add(bytes).is_some());
                backend.release(va, bytes).unwrap();
            }
        }
    }
}

#[test]
fn arenas() {
    let base = || Config { owners: Owners::Count(1), ..Config::default() };
    let bad = |bytes, config| match Arena::reserve(bytes, config) {
        Ok(_) => panic!("an arena of {bytes:#x} bytes"),
        Err(why) => matches!(why, ReserveError::BadConfig { .. }),
    };
    assert!(bad(0, base()));
    for bytes in TOO_LARGE {
        assert!(bad(bytes, base()), "{bytes:#x}");
    }
    for end in [0, 1, 1 << 63, u64::MAX - 1, u64::MAX] {
        assert!(bad(1, Config { block: end, ..base() }), "a block of {end:#x}");
        assert!(bad(1, Config { page: end, ..base() }), "a page of {end:#x}");
        if end != 1 << 63 {
            assert!(bad(1, Config { align: end, ..base() }), "an alignment of {end:#x}");
        }
        assert!(Arena::reserve(1, Config { align: end, ..base() }).is_err());
        let ends =
            Config { parked_pages: end, max_mappings: Some(end), least: Some(end), ..base() };
        let Ok(arena) = Arena::reserve(1, ends) else {
            assert_eq!(end, 0, "an arena needs a mapping");
            continue;
        };
        for (pages, align) in [(0, 1), (u64::MAX, 1), (1, 0), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert!(arena.alloc(OwnerId(0), pages, align).is_err(), "{pages} by {align}");
        }
        assert!(arena.alloc(OwnerId(u32::MAX), 1, 1).is_err());
        let _ = arena.alloc(OwnerId(0), 1, 1);
    }
    for owners in [0, u32::MAX - 1, u32::MAX] {
        assert!(bad(1, Config { owners: Owners::Count(owners), ..base() }));
    }
}

#[test]
fn numbers_of_frames_and_addresses() {
    let frames = Arc::new(Frames::new(&FramesConfig::new(1)).unwrap());
    let owner = frames.owners().by_rank(0).unwrap();
    let space = Mapped::new(Arc::clone(&frames), &MappedConfig::new(1)).unwrap();
    for end in [1 << 51, 1 << 52, 1 << 63, u64::MAX - 1, u64::MAX] {
        let (pfn, order) = (Pfn(end), Order::MAX);
        let block = FrameBlock { pfn, order };
        assert!(block.end() >= pfn && block.offset() >= end);
        assert!(frames.address(pfn).is_none() && frames.block(pfn).is_none());
        assert!(frames.use_of(pfn).is_none() && frames.set_use(pfn, Use::Pinned).is_err());
        assert!(frames.free(owner, pfn).is_err() && frames.hold(pfn).is_err());
        assert!(frames.release(owner, pfn).is_err() && frames.split(pfn, Order::ZERO).is_err());
        assert!(frames.moved(pfn, Pfn(0)).is_err() && frames.moved(Pfn(0), pfn).is_err());
        assert!(space.map_ram(owner, &[block]).is_err());
        assert!(space.map_ram(owner, &[block, FrameBlock { pfn: block.end(), order }]).is_err());
        assert!(space.address(Vpn(end)).is_none() && space.blocks(Vpn(end)).is_empty());
        assert_eq!(frames.purge(PageCount(end)).pages, PageCount(0));
        assert_eq!(Va(end).plus(0), Va(end));
        let _ = Va(end).plus(u64::MAX);
    }
}

#[test]
fn runs_and_leases_of_any_size() {
    let config = Config { owners: Owners::Count(1), ..Config::default() };
    let arena = Arena::reserve(1, config).unwrap();
    let ends = [0, 1, 1 << 63, u64::MAX - 1, u64::MAX];
    for (pages, align) in ends.into_iter().flat_map(|pages| ends.map(|align| (pages, align))) {
        let fits = (pages, align) == (1, 1);
        assert_eq!(arena.lease(OwnerId(0), pages, align).is_ok(), fits);
        let bytes = usize::try_from(pages).unwrap();
        assert_eq!(arena.lease_bytes(OwnerId(0), bytes).is_ok(), bytes == 1);
        assert_eq!(arena.owner(OwnerId(0)).unwrap().lease(pages, align).is_ok(), fits);
        assert!(arena.owner(OwnerId(0)).unwrap().alloc_parked(pages, align).is_none() || fits);
        if let Ok(run) = arena.alloc_here(pages, align) {
            assert!(fits && arena.resize(run, u64::MAX).is_err());
            arena.free(run).unwrap();
        }
    }
    for (va, generation) in ends.into_iter().flat_map(|va| ends.map(|other| (Va(va), other))) {
        for pages in [0, 1, u32::MAX - 1, u32::MAX] {
            let Some(run) = Run::from_parts(va, pages, generation) else { continue };
            assert!(arena.free(run).is_err() && arena.resize(run, 1).is_err());
        }
    }
}

#[test]
fn memory_of_huge_pages() {
    let (private, shared) = (Anonymous::huge(), Memfd::huge(Budget::Half).unwrap());
    for (va, bytes) in TOO_LARGE.into_iter().flat_map(|va| [0, 1, u64::MAX].map(|b| (Va(va), b))) {
        assert!(private.collapse(va, bytes).is_err() && shared.collapse(va, bytes).is_err());
    }
}

#[test]
fn pages_that_move() {
    let file = LiveFile::new(4).unwrap();
    let area = file.map(0, 2, Access::Pinned, Reach::Processors).unwrap();
    let mut mover = Mover::new();
    for end in [1 << 32, 1 << 52, u64::MAX - 1, u64::MAX] {
        assert_eq!((file.shown(end), area.shows(end)), (0, None));
        assert!(file.map(end, 1, Access::Pinned, Reach::Processors).is_err());
        assert!(file.map(0, end, Access::Pinned, Reach::Processors).is_err());
        assert!(file.map(end, end, Access::Pinned, Reach::Processors).is_err());
        assert!(file.discard(0..end).is_err() && file.discard(end..u64::MAX).is_err());
        assert!(mover.move_run(&area, 0..end, 2, Method::default()).is_err());
        assert!(mover.move_run(&area, end..u64::MAX, 2, Method::default()).is_err());
        assert!(mover.move_run(&area, 0..1, end, Method::default()).is_err());
        assert!(mover.move_idle(&area, 0..end, 2).is_err());
        assert!(mover.move_idle(&area, 0..1, end).is_err());
    }
    let Ok(descriptor) = Userfaultfd::open(Features::none()) else { return };
    for (at, bytes) in TOO_LARGE.into_iter().flat_map(|at| [0, 1, u64::MAX].map(|b| (Va(at), b))) {
        assert!(descriptor.register(at, bytes, Watch::MISSING).is_err());
        assert!(descriptor.unregister(at, bytes).is_err());
        assert!(descriptor.write_protect(at, bytes).is_err());
        assert!(descriptor.write_unprotect(at, bytes).is_err());
        assert!(descriptor.map_resident(at, bytes).is_err());
        let _ = descriptor.wake(at, bytes);
    }
}

#[test]
fn parts_of_buffers() {
    let mut buffer = GrowableBuffer::with_capacity(1).unwrap();
    let (mut producer, mut consumer) = ring(1).unwrap();
    for bytes in TOO_LARGE_USIZE {
        buffer.truncate(bytes);
        assert!(producer.room(bytes).is_none());
        producer.room(1).unwrap().publish(bytes);
        assert_eq!(consumer.readable().len(), 1);
        consumer.release(bytes);
    }
    buffer.truncate(0);
    let (full, most) = (vec![1; buffer.capacity()], vec![1; producer.capacity()]);
    assert!(buffer.extend_from_slice(&[]).is_ok() && buffer.extend_from_slice(&full).is_ok());
    assert!(buffer.extend_from_slice(&[1]).is_err() && buffer.len() == full.len());
    assert!(producer.push(&[]) && producer.push(&most) && !producer.push(&[1]));
    assert_eq!(consumer.readable(), most);
}
