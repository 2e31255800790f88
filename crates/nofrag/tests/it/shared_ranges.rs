//! Ranges as handles: each is good for one free, by whatever thread, and none is lent twice.

use std::sync::Arc;
use std::thread;

use nofrag::check::Check;
use nofrag::ranges::{
    AllocError, HandleError, OwnedRange, RangeHandle, Request, SharedRanges, Span,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::starving::Heap;

fn space(size: u64) -> SharedRanges {
    SharedRanges::over(Span::sized(0, size).unwrap()).unwrap()
}

#[test]
fn a_handle_is_good_for_one_free() {
    let space = space(100);
    let first = space.alloc(&Request::new(10)).unwrap();
    assert_eq!(space.free(first), Ok(Span::new(0, 10).unwrap()));
    let second = space.alloc(&Request::new(10)).unwrap();
    assert_eq!(space.span(second), Span::new(0, 10).ok(), "the same numbers");
    assert_eq!(space.free(first), Err(HandleError::Stale), "and another owner");
    assert_eq!((space.span(first), space.stats().free), (None, 90));
    assert_eq!(space.free(second), Ok(Span::new(0, 10).unwrap()));
    assert_eq!(space.alloc(&Request::new(101)), Err(AllocError::Exhausted { largest: 100 }));
    space.check().unwrap();
}

#[test]
fn a_dropped_range_is_free() {
    let space = Arc::new(space(100));
    let kept = {
        let _dropped = OwnedRange::new(&*space, &Request::new(10)).unwrap();
        OwnedRange::new(Arc::clone(&space), &Request::new(10)).unwrap()
    };
    assert_eq!((kept.span().start(), space.stats().free), (10, 90));
    // Freed by its handle, the value frees nothing more; not even the range that is there then.
    space.free(kept.handle()).unwrap();
    let next = space.alloc(&Request::new(100)).unwrap();
    drop(kept);
    assert_eq!(space.span(next), Span::new(0, 100).ok());
    space.check().unwrap();
}

/// Threads allocate and free, by hand and by dropping, and try stale handles of each other.
#[test]
fn threads_share_a_space() {
    let space = Arc::new(space(1 << 16));
    thread::scope(|scope| {
        for seed in 0..4 {
            let space = &space;
            scope.spawn(move || {
                let mut random = Pcg64Mcg::seed_from_u64(seed);
                let (mut own, mut stale) = (Vec::new(), Vec::new());
                for _ in 0..5_000 {
                    let request = Request::new(random.random_range(1..64)).align(8);
                    let Ok(range) = OwnedRange::new(Arc::clone(space), &request) else { continue };
                    stale.push(range.handle());
                    own.push(range);
                    if own.len() > 100 {
                        drop(own.swap_remove(random.random_range(0..own.len())));
                    }
                    let handle = stale[random.random_range(0..stale.len())];
                    let is_own = own.iter().any(|range| range.handle() == handle);
                    assert_eq!(space.span(handle).is_some(), is_own);
                }
            });
        }
    });
    assert_eq!(space.stats().free, 1 << 16);
    space.check().unwrap();
}

/// Where memory is refused now and then, a free is made all the same, at once or by a later call.
#[test]
fn a_free_never_fails_for_memory() {
    // Each hole is in a stretch of 2^31 numbers of its own, for which no room can be made beforehand; and odd sizes
    // have no grain that would bring them closer.
    const LONG: u64 = (1 << 31) + 1;
    let mut delayed = 0;
    for draw in 0..40 {
        let mut heap = Heap::new(128, draw);
        let mut random = Pcg64Mcg::seed_from_u64(draw);
        let space = space(80 * LONG);
        let mut own: Vec<RangeHandle> = Vec::new();
        while let Ok(handle) = space.alloc(&Request::new(LONG)) {
            own.push(handle);
        }
        for _ in 0..60 {
            let handle = own.swap_remove(random.random_range(0..own.len()));
            heap.run(|| space.free(handle)).unwrap();
            assert_eq!(space.free(handle), Err(HandleError::Stale));
            delayed += u64::from(space.stats().free < (80 - own.len() as u64) * LONG);
            space.check().unwrap();
        }
        for handle in own {
            space.free(handle).unwrap();
        }
        assert_eq!(space.stats().free, 80 * LONG);
        space.check().unwrap();
    }
    assert!(delayed > 0, "no free had to wait");
}
