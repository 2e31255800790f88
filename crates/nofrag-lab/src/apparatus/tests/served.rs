//! Loops that measure: their service, their counts, and their refusals.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nofrag_backing::arena::Purge;
use nofrag_backing::faults::{self, Call, Fault};
use rustix::io::Errno;

use crate::apparatus::machine::{MachineMemory, UNIT_PAGES};
use crate::apparatus::strategies::{
    ArenaBench, Bench, MOST_PAGES, Request, Serve, Strategy, Touched,
};

/// Returns requests that fill every slot again and again, with sizes that repeat in another rhythm.
fn requests(count: u16) -> Vec<Request> {
    (0..count).map(|at| Request { slot: at * 7 % 64, pages: 1 + at * 13 % MOST_PAGES }).collect()
}

#[test]
fn every_strategy_serves_and_makes_the_calls_that_it_is_named_after() {
    for &strategy in Strategy::ALL {
        let mut bench = Bench::new(strategy, 64).unwrap();
        let filling = bench.serve(&requests(64), Touched::First).unwrap();
        let took = bench.serve(&requests(640), Touched::All).unwrap();
        let calls = |call| took.calls.of(call);
        // The first requests give nothing back.
        match strategy {
            Strategy::MapEach => {
                assert_eq!((calls(Call::Mmap), calls(Call::Munmap)), (640, 640));
                assert_eq!(filling.calls.of(Call::Munmap), 0);
            }
            Strategy::MapOwn => assert_eq!(calls(Call::Mmap), 2 * 640),
            Strategy::MapOwnBlock => assert!((641..700).contains(&calls(Call::Mmap)), "{took:?}"),
            Strategy::FilePunchEach => assert_eq!(calls(Call::Fallocate), 640),
            Strategy::FilePunchBlock => assert!((1..40).contains(&calls(Call::Fallocate))),
            Strategy::FileDropBlock | Strategy::PurgeBlock => {
                assert!((1..40).contains(&took.calls.total()), "{strategy:?}: {took:?}");
            }
            Strategy::PurgeEach => assert_eq!(calls(Call::Madvise), 640),
            Strategy::PurgeScattered => assert!(took.calls.total() <= 640, "{took:?}"),
            Strategy::Parked => assert_eq!(took.calls.total(), 0),
        }
    }
}

#[test]
fn a_request_that_makes_no_sense_is_refused_before_anything_is_done() {
    let sizes = [(2, 1), (0, 0), (0, MOST_PAGES + 1)];
    for wrong in sizes.map(|(slot, pages)| Request { slot, pages }) {
        let mut bench = Bench::new(Strategy::Parked, 2).unwrap();
        let served = || bench.serve(&[Request { slot: 0, pages: 1 }, wrong], Touched::First);
        assert!(catch_unwind(AssertUnwindSafe(served)).is_err(), "{wrong:?}");
    }
    assert!(catch_unwind(|| Bench::new(Strategy::Parked, 600)).is_err());
}

#[test]
fn a_call_that_fails_is_said_and_the_bench_serves_on() {
    for (strategy, call) in [
        (Strategy::MapEach, Call::Munmap),
        (Strategy::MapOwn, Call::Mmap),
        (Strategy::FilePunchEach, Call::Fallocate),
        (Strategy::PurgeEach, Call::Madvise),
    ] {
        let mut bench = Bench::new(strategy, 64).unwrap();
        bench.serve(&requests(64), Touched::First).unwrap();
        let armed = faults::inject([Fault::once(call, Errno::NOMEM)]);
        assert!(bench.serve(&requests(1), Touched::First).is_err(), "{strategy:?}");
        drop(armed);
        bench.serve(&requests(128), Touched::All).unwrap();
    }
}

#[test]
fn frames_keep_what_is_written_through_either_mapping() {
    let mut memory = MachineMemory::new(4 * UNIT_PAGES as u64).unwrap();
    memory.fill(5, 77);
    memory.relocate(5, 6).unwrap();
    assert!(memory.holds(5, 77) && memory.holds(6, 77) && !memory.holds(6, 78));
    memory.fault(3, 6, 1).unwrap();
    assert!(!memory.holds(6, 77) && !memory.holds(6, 0), "it is zero, which no stamp gives");
    memory.write_unit(|page| 1000 + page as u64);
    assert!(memory.holds(6, 1003) && memory.holds(5, 77));
    memory.clear_window().unwrap();
    memory.write_unit(|_| 1);
    assert!(memory.holds(6, 1003), "a window that shows nothing is not written through");
    // A whole unit at once.
    memory.fault(0, 512, UNIT_PAGES).unwrap();
    memory.write_unit(|page| page as u64);
    assert!((0..512).all(|page| memory.holds(512 + page, page)));
}

#[test]
fn a_frame_that_moves_while_the_window_shows_it_is_shown_where_it_is() {
    let mut memory = MachineMemory::new(UNIT_PAGES as u64).unwrap();
    memory.fault(9, 20, 1).unwrap();
    memory.relocate(20, 30).unwrap();
    // The old frame has another user now.
    memory.fill(20, 5);
    memory.write_unit(|_| 8);
    assert!(memory.holds(20, 5) && memory.holds(30, 8));
    let armed = faults::inject([Fault::once(Call::Mmap, Errno::NOMEM)]);
    assert!(memory.relocate(30, 40).is_err());
    drop(armed);
    memory.write_unit(|_| 9);
    assert!(memory.holds(30, 8) && memory.holds(40, 8), "a page that is not shown is not written");
    // A mapping over another that fails may have removed the other.
    memory.fault(9, 50, 1).unwrap();
    let armed = faults::inject([Fault::once(Call::Mmap, Errno::NOMEM)]);
    assert!(memory.fault(9, 60, 1).is_err());
    drop(armed);
    memory.write_unit(|_| 4);
    assert!(!memory.holds(50, 4) && !memory.holds(60, 4));
}

#[test]
fn frames_that_there_are_not_are_refused() {
    assert!(MachineMemory::new(0).is_err() && MachineMemory::new(100).is_err());
    let mut memory = MachineMemory::new(UNIT_PAGES as u64).unwrap();
    for (at, frame, pages) in [(0, 511, 2), (511, 0, 2), (0, 0, 0), (usize::MAX, 0, 1)] {
        let error = memory.fault(at, frame, pages).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{at} {frame} {pages}");
    }
    let armed = faults::inject([Fault::once(Call::MemfdCreate, Errno::MFILE)]);
    assert!(MachineMemory::new(UNIT_PAGES as u64).is_err());
    drop(armed);
    let armed = faults::inject([Fault::always(Call::Madvise, Errno::INVAL)]);
    let small = MachineMemory::new(UNIT_PAGES as u64).unwrap();
    assert_eq!((small.huge_units(), small.frames()), (0, UNIT_PAGES as u64));
    drop(armed);
}

#[test]
fn benches_over_one_arena_serve_and_park_without_a_call() {
    let mut benches = ArenaBench::over_one(2, 64, Purge::Manual).unwrap();
    for bench in &mut benches {
        bench.serve(&requests(640), Touched::All).unwrap();
    }
    let took = benches[0].serve(&requests(640), Touched::First).unwrap();
    assert_eq!(took.calls.total(), 0);
    let stats = benches[1].stats();
    assert_eq!((stats.allocs - stats.frees, stats.purged), (128, 0));
    let after = Duration::ZERO;
    let mut decaying = ArenaBench::over_one(1, 64, Purge::Decay { after }).unwrap();
    decaying[0].serve(&requests(640), Touched::First).unwrap();
    assert_eq!(decaying[0].stats().allocs, 640);
}
