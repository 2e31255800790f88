//! Real memory: areas, sharing, and the end of a backend.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::maps;
use nofrag::check::Check;
use nofrag_backing::backend::{
    Access, Anonymous, Backend, BackendError, Budget, Memfd, Op, OpResult, Piece, Va,
};
use nofrag_backing::faults::{self, Call};

use super::support::{load, one, store, submit};

const PAGE: u64 = 4096;

/// Counts the areas of this process that lie in a range.
fn areas_in(va: Va, bytes: u64) -> usize {
    let areas = maps::own();
    areas.iter().filter(|area| area.start < va.0 + bytes && va.0 < area.end).count()
}

fn piece(backend: &Memfd, pages: u64) -> Piece {
    backend.create(pages * PAGE).unwrap()
}

fn map(va: Va, phys: Piece, page: u64, pages: u64) -> Op<Piece> {
    Op::Map { va, phys, offset: page * PAGE, bytes: pages * PAGE }
}

/// Pages mapped one by one, neighbours in memory and in the memfd, are one area (docs/sources/backing.md#oracle-2).
#[test]
fn neighbours_with_consecutive_offsets_are_one_area() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let bytes = 1_024 * PAGE;
    // With a page on each side that is never mapped, so that the area is not joined to others of the process.
    let va = backend.reserve(bytes + 2 * PAGE, PAGE, None).unwrap();
    let phys = piece(&backend, 1_024);
    for page in 0..1_024 {
        one(&backend, map(va.plus((page + 1) * PAGE), phys, page, 1)).unwrap();
    }
    assert_eq!(backend.areas(), 3);
    assert_eq!(areas_in(va.plus(PAGE), bytes), 1);
    backend.check().unwrap();
}

#[test]
fn areas_are_counted_as_the_system_counts_them() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let va = backend.reserve(64 * PAGE, PAGE, None).unwrap();
    let phys = piece(&backend, 64);
    let at = |page: u64| va.plus(page * PAGE);
    let check = |ops: &[Op<Piece>], expected: u64| {
        assert!(submit(&backend, ops).iter().all(OpResult::is_ok));
        // The edges of the reservation may be joined to other areas that allow nothing, which makes no area more or
        // less inside.
        assert_eq!((backend.areas(), areas_in(va, 64 * PAGE) as u64), (expected, expected));
    };
    check(&[map(at(10), phys, 0, 10)], 3);
    check(&[Op::Grant { va: at(12), bytes: PAGE, access: Access::Read }], 5);
    check(&[Op::Grant { va: at(13), bytes: 7 * PAGE, access: Access::Read }], 4);
    check(&[map(at(30), phys, 30, 1), map(at(32), phys, 32, 1), map(at(31), phys, 31, 1)], 6);
    check(&[map(at(31), phys, 50, 1)], 8);
    check(&[Op::Unmap { va: at(31), bytes: PAGE }], 8);
    check(&[Op::Unmap { va: at(11), bytes: 9 * PAGE }], 7);
    check(&[Op::Unmap { va: at(30), bytes: PAGE }, Op::Unmap { va: at(32), bytes: PAGE }], 3);
}

#[test]
fn no_more_areas_than_the_budget_are_made() {
    let backend = Memfd::new(Budget::Areas(9)).unwrap();
    assert_eq!(backend.geometry().max_mappings, Some(9));
    let va = backend.reserve(64 * PAGE, PAGE, None).unwrap();
    let phys = piece(&backend, 64);
    let isolated: Vec<_> =
        (0..8).map(|run| map(va.plus((2 * run + 1) * PAGE), phys, run * 3, 1)).collect();
    let before = faults::made();
    let done = submit(&backend, &isolated);
    let refused = Err(BackendError::MappingBudget { budget: 9 });
    assert_eq!(done[..5], [Ok(()), Ok(()), Ok(()), Ok(()), refused]);
    assert_eq!(faults::made().since(&before).of(Call::Mmap), 4, "nothing is tried past it");
    // A hole in a mapping would need areas too; to empty it does not.
    one(&backend, map(va.plus(40 * PAGE), phys, 40, 4)).unwrap_err();
    let purge = Op::Purge { va: va.plus(PAGE), bytes: PAGE };
    assert_eq!(one(&backend, purge), Ok(()));
    assert!(backend.reserve(PAGE, PAGE, None).is_err());
    assert!(areas_in(va, 64 * PAGE) <= 9);
    backend.check().unwrap();
}

/// Maps over a mapping while another thread reads there: no moment is without a mapping. Gfxreconstruct unmapped first,
/// and another thread used the addresses in between.
/// Source: docs/sources/backing.md#gfxr-1161-window.
#[test]
fn gfxr_1161_window() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let va = backend.reserve(PAGE, PAGE, None).unwrap();
    let memory = [piece(&backend, 1), piece(&backend, 1)];
    one(&backend, map(va, memory[0], 0, 1)).unwrap();
    let (reads, is_over) = (std::sync::atomic::AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A moment without a mapping would end the process here.
            while !is_over.load(Ordering::Relaxed) {
                assert!([0, 8].contains(&load(&backend, va)));
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let before = faults::made();
        for turn in 0..2_000 {
            one(&backend, map(va, memory[turn % 2], 0, 1)).unwrap();
        }
        while reads.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        let calls = faults::made().since(&before);
        assert_eq!((calls.of(Call::Mmap), calls.total()), (2_000, 2_000));
    });
}

#[test]
fn memory_is_the_same_wherever_it_is_mapped() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let va = backend.reserve(8 * PAGE, PAGE, None).unwrap();
    let phys = piece(&backend, 2);
    let other = va.plus(4 * PAGE);
    assert!(
        submit(&backend, &[map(va, phys, 0, 2), map(other, phys, 0, 2)]).iter().all(Result::is_ok)
    );
    store(&backend, va.plus(PAGE), 7);
    assert_eq!(load(&backend, other.plus(PAGE)), 7);
    one(&backend, Op::Purge { va: other.plus(PAGE), bytes: PAGE }).unwrap();
    assert_eq!(load(&backend, va.plus(PAGE)), 0);
}

/// The name of a destroyed piece names nothing, even when the piece's place in the file is used again.
#[test]
fn a_stale_name_destroys_nothing() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let first = piece(&backend, 1);
    backend.destroy(first).unwrap();
    let second = piece(&backend, 1);
    assert_eq!(backend.destroy(first), Err(BackendError::WrongState));
    let va = backend.reserve(PAGE, PAGE, None).unwrap();
    assert_eq!(one(&backend, map(va, first, 0, 1)), Err(BackendError::WrongState));
    assert_eq!(one(&backend, map(va, second, 0, 1)), Ok(()));
}

/// Drops a backend, and checks that none of its mappings stays, at addresses that no other test uses.
fn stays_not<B: Backend>(backend: B, hint: u64) {
    let va = backend.reserve(8 * PAGE, PAGE, Some(Va(hint))).unwrap();
    let phys = backend.create(8 * PAGE).unwrap();
    one(&backend, Op::Map { va: va.plus(PAGE), phys, offset: 0, bytes: 8 * PAGE }).unwrap_err();
    one(&backend, Op::Map { va, phys, offset: 0, bytes: 8 * PAGE }).unwrap();
    if va != Va(hint) {
        eprintln!("skipped: the system does not follow the hint");
        return;
    }
    assert!(areas_in(va, 8 * PAGE) > 0);
    drop(backend);
    assert_eq!(areas_in(va, 8 * PAGE), 0);
}

#[test]
fn nothing_of_a_backend_stays() {
    stays_not(Anonymous::new(), 0x1357_0000_0000);
    stays_not(Memfd::new(Budget::Half).unwrap(), 0x1358_0000_0000);
}

#[test]
fn foreign_addresses_are_refused() {
    let backend = Anonymous::new();
    let va = backend.reserve(4 * PAGE, PAGE, None).unwrap();
    let here = Va(ptr::from_ref(&backend).addr() as u64 / PAGE * PAGE);
    let ends =
        [here, Va(0), va.plus(4 * PAGE), Va(u64::MAX - PAGE + 1), Va(u64::MAX - 2 * PAGE + 1)];
    for va in ends {
        for bytes in [PAGE, 4 * PAGE] {
            let before = faults::made();
            for op in [
                Op::Purge { va, bytes },
                Op::Unmap { va, bytes },
                Op::Grant { va, bytes, access: Access::None },
            ] {
                one(&backend, op).unwrap_err();
            }
            backend.release(va, bytes).unwrap_err();
            assert_eq!(faults::made().since(&before).total(), 0, "no call is made for {va:x?}");
        }
    }
}
