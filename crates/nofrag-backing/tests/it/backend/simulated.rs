//! The simulated backend: its counts, their costs, and the plans that gain nothing.

use nofrag_backing::backend::{
    Access, Backend, BackendError, Caps, CostModel, Counts, Geometry, Op, OpResult, SimCall,
    Simulated, Touched, Va,
};

use super::support::{Random, one, submit};

const PAGE: u64 = 4096;

fn with(caps: Caps, max_mappings: Option<u64>) -> Simulated {
    let geometry = Geometry {
        granule: PAGE,
        recommended: 2 << 20,
        va_align: PAGE,
        max_va: 1 << 40,
        caps,
        max_mappings,
        vector_max: 64,
        cost: CostModel::BUSY,
    };
    Simulated::new(geometry).unwrap()
}

/// Capabilities without a purge in place; [`PURGES`] has that, and memory at several addresses.
const PRIVATE: Caps = Caps::PARTIAL_UNMAP.with(Caps::OVER_MAP).with(Caps::SUBRANGE_MAP);
const PURGES: Caps = PRIVATE.with(Caps::PURGE_IN_PLACE).with(Caps::ALIAS);

fn mapped(backend: &Simulated, pages: u64) -> Va {
    let bytes = pages * PAGE;
    let va = backend.reserve(bytes, PAGE, None).unwrap();
    let phys = backend.create(bytes).unwrap();
    one(backend, Op::Map { va, phys, offset: 0, bytes }).unwrap();
    backend.touch(va, bytes).unwrap();
    va
}

/// Prices chosen counts, and random operations: the cost is each count times its price in the model.
/// Source: docs/sources/backing.md#oracle-12.
#[test]
fn the_cost_is_the_counts_by_the_model() {
    let ones = CostModel {
        reserve_ns: 1.0,
        create_ns: 1e1,
        map_ns: 1e2,
        unmap_ns: 1e3,
        grant_ns: 1e4,
        purge_ns: 1e5,
        move_ns: 1e6,
        page_ns: 1e7,
        moved_page_ns: 1e8,
        copied_page_ns: 1e9,
        flush_ns: 1e10,
        first_touch_ns: 1e11,
    };
    let counts = Counts {
        reserves: 1,
        creates: 2,
        maps: 3,
        unmaps: 4,
        grants: 5,
        purges: 6,
        moves: 7,
        pages: 8,
        moved_pages: 9,
        copied_pages: 1,
        flushes: 2,
        first_touches: 3,
    };
    assert_eq!(ones.price(&counts), 321_987_654_321.0);
    let backend = with(PURGES.with(Caps::SCATTERED_PURGE), None);
    let mut random = Random(1);
    let va = mapped(&backend, 64);
    let cost = CostModel::BUSY;
    // By hand: a reservation, memory, a mapping, and the first touches.
    let mut expected = cost.reserve_ns + cost.create_ns + cost.map_ns + 64.0 * cost.first_touch_ns;
    for _ in 0..200 {
        let at = va.plus(random.below(64) * PAGE);
        if random.one_in(2) {
            let is_new = backend.holds(at) == Some(false);
            backend.touch(at, PAGE).unwrap();
            expected += if is_new { cost.first_touch_ns } else { 0.0 };
        } else {
            let holds = backend.holds(at) == Some(true);
            one(&backend, Op::Purge { va: at, bytes: PAGE }).unwrap();
            expected += cost.purge_ns + if holds { cost.page_ns + cost.flush_ns } else { 0.0 };
        }
    }
    assert!((backend.cost_ns() - expected).abs() < 1e-3, "{} {expected}", backend.cost_ns());
}

/// Compares the flushes and purging calls of a submission that empties every `step`th page.
fn check_purge(caps: Caps, step: usize, expected: (u64, u64)) {
    let backend = with(caps, None);
    let va = mapped(&backend, 128);
    let at = (0..128).step_by(step).map(|page| va.plus(page * PAGE));
    let ops: Vec<_> = at.map(|va| Op::Purge { va, bytes: PAGE }).collect();
    assert!(submit(&backend, &ops).iter().all(OpResult::is_ok));
    let counts = backend.counts();
    assert_eq!((counts.flushes, counts.purges), expected);
}

/// A scattered vector over shared memory gains nothing, so no plan may count on it; ranges that touch are one flush.
/// Source: docs/sources/backing.md#memfd-vector-no-batch.
#[test]
fn memfd_vector_no_batch() {
    check_purge(PURGES, 2, (64, 64));
    check_purge(PURGES, 1, (1, 1));
    check_purge(PURGES.with(Caps::SCATTERED_PURGE), 2, (1, 1));
}

/// One call that unmaps a block of many areas flushes for each of them; in one area it flushes once.
/// Source: docs/sources/backing.md#munmap-block-no-batch.
#[test]
fn munmap_block_no_batch() {
    let backend = with(PURGES, None);
    let va = backend.reserve(128 * PAGE, PAGE, None).unwrap();
    let phys = backend.create(256 * PAGE).unwrap();
    for (step, flushes) in [(2, 64), (1, 1)] {
        for page in 0..64 {
            let map =
                Op::Map { va: va.plus(page * PAGE), phys, offset: page * step * PAGE, bytes: PAGE };
            one(&backend, map).unwrap();
        }
        backend.touch(va, 64 * PAGE).unwrap();
        let before = backend.counts();
        one(&backend, Op::Unmap { va, bytes: 64 * PAGE }).unwrap();
        let after = backend.counts();
        assert_eq!((after.unmaps - before.unmaps, after.flushes - before.flushes), (1, flushes));
    }
}

#[test]
fn what_was_never_touched_needs_no_flush() {
    let backend = with(PURGES, None);
    let va = backend.reserve(4 * PAGE, PAGE, None).unwrap();
    let phys = backend.create(4 * PAGE).unwrap();
    one(&backend, Op::Map { va, phys, offset: 0, bytes: 4 * PAGE }).unwrap();
    one(&backend, Op::Purge { va, bytes: PAGE }).unwrap();
    one(&backend, Op::Unmap { va, bytes: 4 * PAGE }).unwrap();
    assert_eq!((backend.counts().flushes, backend.counts().pages), (0, 0));
}

#[test]
fn forbidden_uses_are_found() {
    let backend = with(Caps::NONE, None);
    let va = backend.reserve(4 * PAGE, PAGE, None).unwrap();
    assert_eq!(backend.touch(va, PAGE), Err(Touched::Unmapped));
    let phys = backend.create(4 * PAGE).unwrap();
    one(&backend, Op::Map { va, phys, offset: 0, bytes: 4 * PAGE }).unwrap();
    backend.touch(va, 4 * PAGE).unwrap();
    assert_eq!(backend.touch(va, 5 * PAGE), Err(Touched::Unmapped));
    assert_eq!(backend.touch(Va(u64::MAX), 5), Err(Touched::Unmapped));
    one(&backend, Op::Grant { va, bytes: 4 * PAGE, access: Access::Read }).unwrap();
    assert_eq!(backend.touch(va, PAGE), Err(Touched::NoAccess));
    let wrong = Err(BackendError::WrongState);
    assert_eq!(one(&backend, Op::Unmap { va, bytes: PAGE }), wrong, "a part");
    assert_eq!(one(&backend, Op::Map { va, phys, offset: 0, bytes: 4 * PAGE }), wrong, "over");
    assert_eq!(one(&backend, Op::Purge { va, bytes: PAGE }), Err(BackendError::Unsupported));
    one(&backend, Op::Unmap { va, bytes: 4 * PAGE }).unwrap();
}

#[test]
fn the_budget_holds_and_refusals_come_as_planned() {
    let backend = with(PURGES, Some(5));
    let va = backend.reserve(64 * PAGE, PAGE, None).unwrap();
    let phys = backend.create(64 * PAGE).unwrap();
    let map = |page: u64| Op::Map { va: va.plus(page * PAGE), phys, offset: 0, bytes: PAGE };
    let done = submit(&backend, &[map(1), map(3), map(5)]);
    assert_eq!(done, [Ok(()), Ok(()), Err(BackendError::MappingBudget { budget: 5 })]);
    backend.refuse(SimCall::Purge, 1, 1, BackendError::Unsupported);
    let purge = |page: u64| Op::Purge { va: va.plus(page * PAGE), bytes: PAGE };
    assert_eq!(submit(&backend, &[purge(1), purge(3)]), [Ok(()), Err(BackendError::Unsupported)]);
    assert_eq!(one(&backend, purge(3)), Ok(()));
}

#[test]
fn contents_move_and_are_copied() {
    let backend = with(PURGES.with(Caps::MOVE_PAGES), None);
    let va = mapped(&backend, 4);
    let to = mapped(&backend, 4);
    one(&backend, Op::Purge { va: to, bytes: 4 * PAGE }).unwrap();
    one(&backend, Op::Copy { to, from: va, bytes: 2 * PAGE }).unwrap();
    let held = |va: Va| {
        (0..4).map(|page| backend.holds(va.plus(page * PAGE)).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((held(va), held(to)), (vec![true; 4], vec![true, true, false, false]));
    let later = 2 * PAGE;
    one(&backend, Op::Move { to: to.plus(later), from: va, bytes: 2 * PAGE }).unwrap();
    assert_eq!((held(va), held(to)), (vec![false, false, true, true], vec![true; 4]));
    let counts = backend.counts();
    assert_eq!((counts.moves, counts.copied_pages, counts.moved_pages), (2, 2, 2));
    let itself = Op::Move { to: va, from: va.plus(PAGE), bytes: 2 * PAGE };
    assert_eq!(one(&backend, itself), Err(BackendError::Misfit));
    let without = with(PURGES, None);
    let va = mapped(&without, 4);
    let refused = one(&without, Op::Move { to: va, from: va.plus(PAGE), bytes: PAGE });
    assert_eq!(refused, Err(BackendError::Unsupported));
}
