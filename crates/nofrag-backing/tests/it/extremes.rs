//! Every public constructor at the ends of its numbers: an answer or an error, never a panic, an overflow or an abort.

use nofrag::cpu::CpuSet;
use nofrag::mmap::Protection;
use nofrag::page::Migratetype;
use nofrag::units::Order;
use nofrag_backing::arena::{Arena, Config, OwnerId, Owners, ReserveError};
use nofrag_backing::backend::{
    Anonymous, Backend, BackendError, Budget, Geometry, Memfd, Simulated, Va,
};
use nofrag_backing::frames::{FrameRequest, Frames, FramesConfig, Sharing};
use nofrag_backing::huge_units::{HugeAdvice, HugeUnits};
use nofrag_backing::mapped::{Mapped, MappedConfig, VmallocRequest};
use nofrag_backing::moving::{Handles, LiveFile, Mappings};
use nofrag_backing::reservation::Reservation;
use nofrag_backing::shapes::{GrowableBuffer, PoolSizes, SlotPool, ring};
use nofrag_backing::threads::{Crowd, Stacks};
use std::sync::Arc;

const PAGE: u64 = 4096;
/// No machine has room for these, and rounding the last ones up passes the end.
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
fn huge_units() {
    let ends = [0, 1, 2, 1 << 12, 1 << 63, usize::MAX - 1, usize::MAX];
    for units in ends {
        for unit_bytes in ends {
            let made = HugeUnits::map(units, unit_bytes, HugeAdvice::Host);
            let is_small = (1..3).contains(&units) && unit_bytes == 1 << 12;
            assert!(made.is_ok() == is_small || unit_bytes == 1 << 12, "{units} of {unit_bytes}");
        }
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
    assert!(SlotPool::new(PoolSizes { slots: 0, ..sizes }).is_err());
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
    let usual = Anonymous::new().geometry().clone();
    for end in [0, 1, 2, 1 << 63, u64::MAX - 1, u64::MAX] {
        for geometry in [
            Geometry { granule: end, ..usual.clone() },
            Geometry { va_align: end, ..usual.clone() },
            Geometry { max_va: end, ..usual.clone() },
            Geometry { recommended: end, ..usual.clone() },
            Geometry { max_mappings: Some(end), ..usual.clone() },
        ] {
            if let Ok(backend) = Simulated::new(geometry) {
                check_reserve(&backend);
            }
        }
    }
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
fn crowds() {
    let system = || Stacks::System { bytes: 1 << 16, guard: 1 << 12 };
    assert!(Crowd::start(0, system()).is_ok());
    for count in [usize::MAX / 2, usize::MAX - 1, usize::MAX] {
        assert!(Crowd::start(count, system()).is_err());
    }
    for end in [0, 1, usize::MAX - 1, usize::MAX] {
        assert!(Crowd::start(1, Stacks::System { bytes: end, guard: 0 }).is_err(), "{end:#x}");
        let _ = Crowd::start(1, Stacks::System { bytes: 1 << 16, guard: end });
    }
}
