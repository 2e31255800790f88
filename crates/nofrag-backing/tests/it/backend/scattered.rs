//! Purging many scattered ranges of private memory by few system calls.

use nofrag_backing::backend::{Anonymous, Backend, BackendError, Op, OpResult, Promise, Va};
use nofrag_backing::faults::{self, Call, Fault};
use rustix::io::Errno;

use super::support::{load, one, store, submit};

const PAGE: u64 = 4096;

/// Maps `pages` pages, and writes 7 to each.
fn mapped(pages: u64) -> (Anonymous, Va) {
    let backend = Anonymous::new();
    let va = backend.reserve(pages * PAGE, PAGE, None).unwrap();
    let phys = backend.create(pages * PAGE).unwrap();
    one(&backend, Op::Map { va, phys, offset: 0, bytes: pages * PAGE }).unwrap();
    (0..pages).for_each(|page| store(&backend, va.plus(page * PAGE), 7));
    (backend, va)
}

fn purges(va: Va, pages: impl IntoIterator<Item = u64>) -> Vec<Op<Promise>> {
    let purge = |page| Op::Purge { va: va.plus(page * PAGE), bytes: PAGE };
    pages.into_iter().map(purge).collect()
}

/// Purges these pages; compares how often `process_madvise` and `madvise` were called for that.
fn check_calls(
    backend: &Anonymous,
    va: Va,
    pages: impl IntoIterator<Item = u64>,
    (vectors, singles): (u64, u64),
) {
    let ops = purges(va, pages);
    let before = faults::made();
    assert!(submit(backend, &ops).iter().all(OpResult::is_ok));
    let calls = faults::made().since(&before);
    assert_eq!((calls.of(Call::ProcessMadvise), calls.of(Call::Madvise)), (vectors, singles));
    assert_eq!(calls.total(), vectors + singles);
    for (va, _) in ops.iter().map(Op::range) {
        assert_eq!(load(backend, va), 0);
    }
}

fn has_vectors() -> bool {
    let (backend, va) = mapped(4);
    let before = faults::made();
    submit(&backend, &purges(va, [0, 2]));
    let has = faults::made().since(&before).of(Call::Madvise) == 0;
    if !has {
        eprintln!("skipped: this kernel takes no vectors for the process itself (Linux 6.14 does)");
    }
    has
}

/// Purges ranges that touch in one call, and scattered ones in one for each 64. Nearcore batched work in which no call
/// was saved, and set the batch back to one.
/// Source: docs/sources/backing.md#nearcore-16414-batch.
#[test]
fn nearcore_16414_batch() {
    if !has_vectors() {
        return;
    }
    let (backend, va) = mapped(200);
    check_calls(&backend, va, [3], (0, 1));
    check_calls(&backend, va, 10..74, (0, 1));
    check_calls(&backend, va, (10..74).rev(), (0, 1));
    check_calls(&backend, va, (0..64).map(|run| run * 2), (1, 0));
    check_calls(&backend, va, (0..65).map(|run| run * 2), (1, 1));
    check_calls(&backend, va, (0..90).map(|run| run * 2), (2, 0));
    check_calls(&backend, va, [], (0, 0));
}

/// Purges scattered pages of which one is locked: only that one is refused. The kernel stops there, and returns only
/// the number of bytes that it did.
/// Source: docs/sources/backing.md#partial-vector.
#[test]
fn partial_vector() {
    if !has_vectors() {
        return;
    }
    let (backend, va) = mapped(10);
    let locked = va.plus(4 * PAGE);
    let address = std::ptr::with_exposed_provenance(locked.0 as usize);
    // SAFETY: the page is mapped, and locking it changes no contents.
    if unsafe { libc::mlock(address, PAGE as usize) } != 0 {
        eprintln!("skipped: no page may be locked: {}", std::io::Error::last_os_error());
        return;
    }
    let before = faults::made();
    let done = submit(&backend, &purges(va, [8, 0, 4, 2, 6]));
    let refused = Err(BackendError::System(Errno::INVAL));
    assert_eq!(done, [Ok(()), Ok(()), refused, Ok(()), Ok(())]);
    let calls = faults::made().since(&before);
    assert_eq!(calls.of(Call::ProcessMadvise), 2, "what follows the refused one is a vector again");
    let held: Vec<u64> = (0..5).map(|run| load(&backend, va.plus(run * 2 * PAGE))).collect();
    assert_eq!(held, [0, 0, 7, 0, 0]);
}

#[test]
fn a_kernel_without_vectors_is_asked_once() {
    for error in [Errno::PERM, Errno::NOSYS, Errno::INVAL, Errno::BADF] {
        let (backend, va) = mapped(8);
        let armed = faults::inject([Fault::always(Call::ProcessMadvise, error)]);
        check_calls(&backend, va, [0, 2, 4], (1, 3));
        check_calls(&backend, va, [1, 3, 5], (0, 3));
        drop(armed);
        check_calls(&backend, va, [1, 3], (0, 2));
    }
}

#[test]
fn another_refusal_of_a_vector_is_not_remembered() {
    if !has_vectors() {
        return;
    }
    let (backend, va) = mapped(8);
    let armed = faults::inject([Fault::once(Call::ProcessMadvise, Errno::INTR)]);
    check_calls(&backend, va, [0, 2, 4], (2, 1));
    drop(armed);
    check_calls(&backend, va, [0, 2, 4], (1, 0));
}
