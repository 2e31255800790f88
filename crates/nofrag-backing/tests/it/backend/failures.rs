//! Every system call of a backend made to fail, in every operation: the state after it is legal, and nothing is lost.
//!
//! Source: docs/sources/backing.md#oracle-14, #legal-states.

use nofrag::check::Check;
use nofrag_backing::backend::{Access, Anonymous, Backend, BackendError, Budget, Memfd, Op};
use nofrag_backing::faults::{self, Call, Fault};
use rustix::io::Errno;

use super::conformance::check_with_faults;
use super::support::{load, one, store, submit};

const PAGE: u64 = 4096;

#[test]
fn private_memory_stays_as_the_model_whatever_fails() {
    let calls = [Call::Mmap, Call::Munmap, Call::Mprotect, Call::Madvise, Call::ProcessMadvise];
    for seed in 0..4 {
        let backend = Anonymous::new();
        check_with_faults(&backend, seed, 1_000, &calls);
    }
}

#[test]
fn shared_memory_stays_as_the_model_whatever_fails() {
    let calls =
        [Call::Mmap, Call::Munmap, Call::Mprotect, Call::Madvise, Call::Ftruncate, Call::Fallocate];
    for seed in 0..4 {
        let backend = Memfd::new(Budget::Unlimited).unwrap();
        check_with_faults(&backend, seed, 1_000, &calls);
    }
}

#[test]
fn a_file_that_cannot_be_made_is_an_error() {
    let _armed = faults::inject([Fault::once(Call::MemfdCreate, Errno::MFILE)]);
    let refused = Memfd::new(Budget::Half).unwrap_err();
    assert_eq!(refused, BackendError::System(Errno::MFILE));
}

#[test]
fn a_file_that_cannot_be_sealed_is_an_error() {
    let _armed = faults::inject([Fault::once(Call::Seal, Errno::PERM)]);
    let refused = Memfd::new(Budget::Half).unwrap_err();
    assert_eq!(refused, BackendError::System(Errno::PERM));
}

/// Releases a range whose unmapping is refused, since it would split an area: the range is emptied, stays booked, and
/// is unmapped later. OCaml lost such ranges until the system was out of memory.
/// Source: docs/sources/backing.md#ocaml-14865-munmap-enomem.
#[test]
fn ocaml_14865_munmap_enomem() {
    let backend = Anonymous::new();
    let va = backend.reserve(4 * PAGE, PAGE, None).unwrap();
    let memory = backend.create(4 * PAGE).unwrap();
    one(&backend, Op::Map { va, phys: memory, offset: 0, bytes: 4 * PAGE }).unwrap();
    store(&backend, va, 7);
    let armed = faults::inject([Fault::once(Call::Munmap, Errno::NOMEM)]);
    let before = faults::made();
    backend.release(va, 4 * PAGE).unwrap();
    drop(armed);
    assert_eq!(faults::made().since(&before).of(Call::Madvise), 1, "it is emptied at once");
    assert_eq!(backend.held_back(), 4 * PAGE, "it is booked");
    assert_eq!(backend.areas(), 1, "and so is its area");
    backend.check().unwrap();
    // The next call that reserves addresses tries again.
    let other = backend.reserve(PAGE, PAGE, None).unwrap();
    assert_eq!((backend.held_back(), backend.areas()), (0, 1));
    backend.release(other, PAGE).unwrap();
    assert_eq!(backend.areas(), 0);
}

/// Releases a range that can be neither unmapped nor emptied: nothing panics, and it is unmapped later. In Matrixone
/// the process ended there.
/// Source: docs/sources/backing.md#ocaml-14865-munmap-enomem.
#[test]
fn matrixone_28736_panic() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let va = backend.reserve(2 * PAGE, PAGE, None).unwrap();
    let memory = backend.create(2 * PAGE).unwrap();
    one(&backend, Op::Map { va, phys: memory, offset: 0, bytes: 2 * PAGE }).unwrap();
    let armed = faults::inject([
        Fault::always(Call::Munmap, Errno::NOMEM),
        Fault::always(Call::Madvise, Errno::NOMEM),
    ]);
    backend.release(va, 2 * PAGE).unwrap();
    assert_eq!(backend.release(va, 2 * PAGE), Err(BackendError::WrongState), "it is gone for us");
    backend.check().unwrap();
    drop(armed);
    backend.destroy(memory).unwrap();
    let again = backend.reserve(PAGE, PAGE, None).unwrap();
    assert_eq!(backend.held_back(), 0);
    backend.release(again, PAGE).unwrap();
    backend.check().unwrap();
}

#[test]
fn memory_that_cannot_be_taken_is_taken_later_and_never_handed_out_full() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let va = backend.reserve(PAGE, PAGE, None).unwrap();
    let map = |phys| one(&backend, Op::Map { va, phys, offset: 0, bytes: PAGE }).unwrap();
    let first = backend.create(PAGE).unwrap();
    map(first);
    store(&backend, va, 7);
    one(&backend, Op::Unmap { va, bytes: PAGE }).unwrap();
    let armed = faults::inject([Fault::always(Call::Fallocate, Errno::INTR)]);
    backend.destroy(first).unwrap();
    assert_eq!(backend.unpunched(), PAGE);
    // Other memory can be had meanwhile, and it does not overlap.
    let second = backend.create(PAGE).unwrap();
    map(second);
    assert_eq!((load(&backend, va), backend.unpunched()), (0, PAGE));
    drop(armed);
    backend.create(PAGE).unwrap();
    assert_eq!(backend.unpunched(), 0);
    backend.check().unwrap();
}

#[test]
fn a_failed_purge_says_so_and_the_range_keeps_its_bytes() {
    let backend = Anonymous::new();
    let va = backend.reserve(3 * PAGE, PAGE, None).unwrap();
    let phys = backend.create(3 * PAGE).unwrap();
    one(&backend, Op::Map { va, phys, offset: 0, bytes: 3 * PAGE }).unwrap();
    (0..3).for_each(|page| store(&backend, va.plus(page * PAGE), 7));
    // The three touch, so they are one call; it fails, and so does the one for the first alone.
    let fault = Fault { call: Call::Madvise, after: 0, times: 2, error: Errno::AGAIN };
    let armed = faults::inject([fault]);
    let purge = |page| Op::Purge { va: va.plus(page * PAGE), bytes: PAGE };
    let done = submit(&backend, &[purge(0), purge(1), purge(2), purge(0)]);
    drop(armed);
    let refused = Err(BackendError::System(Errno::AGAIN));
    assert_eq!(done, [refused, Ok(()), Ok(()), Err(BackendError::Skipped)]);
    let held: Vec<u64> = (0..3).map(|page| load(&backend, va.plus(page * PAGE))).collect();
    assert_eq!(held, [7, 0, 0]);
}

#[test]
fn a_mapping_that_is_refused_leaves_the_old_one() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let va = backend.reserve(PAGE, PAGE, None).unwrap();
    let memory = || backend.create(PAGE).unwrap();
    let (first, second) = (memory(), memory());
    one(&backend, Op::Map { va, phys: first, offset: 0, bytes: PAGE }).unwrap();
    store(&backend, va, 7);
    let armed = faults::inject([Fault::always(Call::Mmap, Errno::NOMEM)]);
    let map = Op::Map { va, phys: second, offset: 0, bytes: PAGE };
    assert_eq!(one(&backend, map), Err(BackendError::System(Errno::NOMEM)));
    let unmap = Op::Unmap { va, bytes: PAGE };
    assert_eq!(one(&backend, unmap), Err(BackendError::System(Errno::NOMEM)));
    drop(armed);
    assert_eq!(load(&backend, va), 7);
    let armed = faults::inject([Fault::always(Call::Mprotect, Errno::NOMEM)]);
    let grant = Op::Grant { va, bytes: PAGE, access: Access::None };
    assert_eq!(one(&backend, grant), Err(BackendError::System(Errno::NOMEM)));
    drop(armed);
    store(&backend, va, 8);
    backend.check().unwrap();
}
