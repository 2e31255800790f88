//! Contents of frames, the calls behind them, and the state after failures of these.

use nofrag::check::Check;
use nofrag::page::{FragmentationPolicy, FreeError, Landed, Migratetype};
use nofrag::units::{PageCount, Pfn, Vpn};
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::frames::{
    Fill, FrameError, FrameRequest, Frames, FramesConfig, FramesError, Sharing, Use, UseError,
};
use rustix::io::Errno;

use super::{BOTH, MIB, check_stamp, check_zero, frames, order, owner, plain, stamp};

#[test]
fn every_preset_hands_out_all_frames() {
    for sharing in BOTH {
        for preset in FragmentationPolicy::PRESETS {
            let config = FramesConfig {
                policy: preset.policy,
                owners: 2,
                sharing,
                ..FramesConfig::new(8 * MIB - 5)
            };
            let frames = Frames::new(&config).unwrap();
            let here = owner(&frames, 0);
            let mut taken: Vec<_> =
                std::iter::from_fn(|| frames.alloc(here, plain(0)).ok()).collect();
            taken.sort_unstable_by_key(|block| block.pfn);
            assert!(taken.iter().map(|block| block.pfn.0).eq(0..2048), "{}", preset.name);
            let request = plain(0);
            let free = PageCount(0);
            let none = FrameError::Exhausted { order: request.order, free, largest: None };
            assert_eq!(frames.alloc(owner(&frames, 1), request), Err(none));
            frames.free_bulk(owner(&frames, 1), &taken).unwrap();
            frames.drain();
            assert_eq!(frames.check(), Ok(()), "{} {sharing:?}", preset.name);
            assert_eq!(frames.stats().obtainable(order(9)), 4, "{} {sharing:?}", preset.name);
        }
    }
}

#[test]
fn dirty_frames_are_zeroed_on_demand_and_untouched_ones_not_at_all() {
    let frames = frames(8, 1, Sharing::Lock);
    let here = owner(&frames, 0);
    let zeroed = |of| FrameRequest::new(order(of), Migratetype::Unmovable);
    let untouched = frames.alloc(here, zeroed(9)).unwrap();
    assert_eq!(frames.resident_bytes(), Ok(0), "what is known to be zero is not touched");
    frames.free(here, untouched.pfn).unwrap();
    let first = frames.alloc(here, zeroed(3)).unwrap();
    stamp(&frames, first, 7);
    frames.free(here, first.pfn).unwrap();
    let again = frames.alloc(here, zeroed(3).fill(Fill::Anything)).unwrap();
    assert_eq!(again, first, "what was freed last is taken first");
    check_stamp(&frames, again, 7);
    frames.free(here, again.pfn).unwrap();
    let again = frames.alloc(here, zeroed(3)).unwrap();
    assert_eq!(again, first);
    check_zero(&frames, again);
}

#[test]
fn whole_blocks_are_purged_in_one_call_for_each_run() {
    for sharing in BOTH {
        let frames = frames(16, 2, sharing);
        let here = owner(&frames, 0);
        let blocks: Vec<_> = (0..8).map(|_| frames.alloc(here, plain(9)).unwrap()).collect();
        blocks.iter().for_each(|&block| stamp(&frames, block, 3));
        assert_eq!(frames.resident_bytes(), Ok(16 * MIB));
        {
            let _armed = faults::inject([Fault::once(Call::Stat, Errno::NOMEM)]);
            assert_eq!(frames.resident_bytes(), Err(Errno::NOMEM));
        }
        assert_eq!(frames.purge(PageCount(u64::MAX)).calls, 0, "all of them are in use");
        let kept = blocks.iter().find(|block| block.pfn == Pfn(5 * 512)).unwrap();
        let given = blocks.iter().filter(|&block| block != kept);
        given.for_each(|block| frames.free(here, block.pfn).unwrap());
        let before = faults::made();
        let purged = frames.purge(PageCount(u64::MAX));
        assert_eq!((purged.pages, purged.calls), (PageCount(7 * 512), 2));
        assert_eq!(faults::made().since(&before).of(Call::Fallocate), 2);
        assert_eq!(frames.resident_bytes(), Ok(2 * MIB));
        check_stamp(&frames, *kept, 3);
        assert_eq!(frames.check(), Ok(()));
        let block = frames.alloc(here, plain(9).fill(Fill::Zeroed)).unwrap();
        assert_eq!(frames.resident_bytes(), Ok(2 * MIB), "it is known to be zero");
        check_zero(&frames, block);
        assert_eq!(frames.purge(PageCount(u64::MAX)).calls, 0, "nothing is dirty any more");
    }
}

#[test]
fn a_budget_bounds_a_purge() {
    let frames = frames(16, 1, Sharing::Lock);
    let here = owner(&frames, 0);
    let blocks: Vec<_> = (0..8).map(|_| frames.alloc(here, plain(9)).unwrap()).collect();
    frames.free_bulk(here, &blocks).unwrap();
    assert_eq!(frames.purge(PageCount(1)).pages, PageCount(512));
    assert_eq!(frames.purge(PageCount(1025)).pages, PageCount(3 * 512));
    assert_eq!(frames.purge(PageCount(u64::MAX)).pages, PageCount(4 * 512));
}

/// wasmtime PR 13070, for frames: after a purge that failed, the contents of the last owner do not reach the next.
/// Source: docs/sources/backing.md#wasmtime-13070-leak.
#[test]
fn wasmtime_13070_leak_in_frames() {
    let frames = frames(4, 1, Sharing::Lock);
    let here = owner(&frames, 0);
    let block = frames.alloc(here, plain(9)).unwrap();
    stamp(&frames, block, 1);
    frames.free(here, block.pfn).unwrap();
    let armed = faults::inject([Fault::once(Call::Fallocate, Errno::NOMEM)]);
    let purged = frames.purge(PageCount(u64::MAX));
    drop(armed);
    assert_eq!((purged.refused, purged.error), (PageCount(512), Some(Errno::NOMEM)));
    assert_eq!(frames.check(), Ok(()));
    let again = frames.alloc(here, plain(9).fill(Fill::Zeroed)).unwrap();
    assert_eq!(again, block);
    check_zero(&frames, again);
    frames.free(here, again.pfn).unwrap();
    assert_eq!(frames.purge(PageCount(u64::MAX)).pages, PageCount(512), "it is tried again");
}

#[test]
fn a_call_that_fails_is_said() {
    let config = FramesConfig::new(2 * MIB);
    drop(Frames::new(&config).unwrap()); // whatever the process maps at the first use
    let faults = [
        (Call::MemfdCreate, 0),
        (Call::Ftruncate, 0),
        (Call::Seal, 0),
        (Call::Mmap, 0),
        (Call::Mmap, 1),
    ];
    for (call, after) in faults {
        let armed = faults::inject([Fault { after, ..Fault::once(call, Errno::NOMEM) }]);
        let refused = Frames::new(&config).map(drop);
        drop(armed);
        assert_eq!(refused, Err(FramesError::System(Errno::NOMEM)), "{call:?}");
    }
    let nothing = Frames::new(&FramesConfig::new(0)).map(drop);
    assert_eq!(nothing, Err(FramesError::Empty));
    let owners = Frames::new(&FramesConfig { owners: 0, ..config }).map(drop);
    assert_eq!(owners, Err(FramesError::Owners(0)));
    let huge = Frames::new(&FramesConfig::new(u64::MAX)).map(drop);
    assert!(matches!(huge, Err(FramesError::TooMany(_))));
}

#[test]
fn what_cannot_be_freed_is_said() {
    for sharing in BOTH {
        let frames = frames(4, 2, sharing);
        let here = owner(&frames, 0);
        let block = frames.alloc(here, plain(2)).unwrap();
        let (head, inside) = (block.pfn, Pfn(block.pfn.0 + 1));
        assert_eq!(frames.free(here, inside), Err(FreeError::NotAHead { head }));
        for unknown in [Pfn(1024), Pfn(u64::MAX), Pfn(u64::MAX >> 12)] {
            assert_eq!(frames.free(here, unknown), Err(FreeError::Unknown(unknown)));
            assert_eq!(frames.hold(unknown), Err(UseError::Free(FreeError::Unknown(unknown))));
            assert!(frames.address(unknown).is_none());
        }
        assert_eq!(frames.free(here, head), Ok(()));
        assert_eq!(frames.free(here, head), Err(FreeError::DoubleFree(head)));
        assert_eq!(frames.release(here, head), Err(FreeError::DoubleFree(head)));
        let gone = Err(UseError::Free(FreeError::DoubleFree(head)));
        assert_eq!(frames.set_use(head, Use::Pinned), gone);
        let isolated = FrameRequest::new(order(0), Migratetype::Isolate);
        assert_eq!(frames.alloc(here, isolated), Err(FrameError::Type(Migratetype::Isolate)));
        assert_eq!(frames.check(), Ok(()));
    }
}

#[test]
fn a_mapped_block_is_free_when_its_last_mapping_has_ended() {
    let frames = frames(4, 1, Sharing::Lock);
    let here = owner(&frames, 0);
    let block = frames.alloc(here, plain(0)).unwrap();
    let pfn = block.pfn;
    frames.hold(pfn).unwrap();
    frames.hold(pfn).unwrap();
    frames.release(here, pfn).unwrap();
    assert_eq!(frames.free(here, pfn), Ok(()));
    assert_eq!(frames.free(here, pfn), Err(FreeError::DoubleFree(pfn)));
    assert!(frames.hold(pfn).is_err(), "it is about to go");
    assert!(frames.block(pfn).is_some());
    assert_eq!(frames.check(), Ok(()));
    frames.release(here, pfn).unwrap();
    assert_eq!(frames.block(pfn), None);
    assert!(frames.release(here, pfn).is_err());
    assert_eq!((frames.stats().free, frames.check()), (frames.len(), Ok(())));
}

#[test]
fn a_use_is_kept_with_the_block() {
    let frames = frames(4, 1, Sharing::Lock);
    let here = owner(&frames, 0);
    let pfn = frames.alloc(here, plain(1)).unwrap().pfn;
    assert_eq!(frames.use_of(pfn), Some(Use::Pinned));
    let uses = [Use::Mapped { vpn: Vpn(0x7fff_ffff) }, Use::Handle { id: 9 }, Use::Pinned];
    for used_for in uses {
        frames.set_use(pfn, used_for).unwrap();
        assert_eq!(frames.use_of(pfn), Some(used_for));
    }
    let nowhere = Use::Mapped { vpn: Vpn(u64::MAX) };
    assert_eq!(frames.set_use(pfn, nowhere), Err(UseError::NoSuchPage(u64::MAX)));
    frames.free(here, pfn).unwrap();
    assert_eq!(frames.use_of(pfn), None);
}

#[test]
fn a_child_shares_the_memory_and_not_the_books() {
    let frames = frames(4, 1, Sharing::Lock);
    let here = owner(&frames, 0);
    let block = frames.alloc(here, plain(0)).unwrap();
    let freed = frames.alloc(here, plain(9)).unwrap();
    let at = frames.address(block.pfn).unwrap().cast::<u64>();
    // SAFETY: the block is the test's. It is dirty from now on, and its pageblock would be purged.
    unsafe { frames.address(freed.pfn).unwrap().write_volatile(1) };
    frames.free(here, freed.pfn).unwrap();
    let mut some = [freed; 2];
    // SAFETY: the child writes to the block, which is the test's, makes calls that must be refused before any lock is
    // taken, and ends at once.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: as above.
            unsafe { at.write_volatile(0xc0ffee) };
            let refused = frames.alloc(here, plain(0)) == Err(FrameError::Forked)
                && frames.alloc_bulk(here, plain(0), &mut some) == Err(FrameError::Forked)
                && frames.purge(PageCount(u64::MAX)).pages == PageCount(0)
                && frames.compact() == Landed::default();
            // SAFETY: ends the child without running code of the parent.
            unsafe { libc::_exit(i32::from(!refused)) }
        }
        child => {
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: waits for the child alone.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((waited, status), (child, 0), "the child was handed something");
            // SAFETY: the block is the test's, and the child has ended.
            assert_eq!(unsafe { at.read_volatile() }, 0xc0ffee);
            assert!(frames.alloc(here, plain(0)).is_ok());
        }
    }
}
