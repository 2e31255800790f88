//! Huge pages: their making, and that none is split.

use std::fs;

use nofrag_backing::backend::{
    Anonymous, Backend, BackendError, Budget, HUGE, Memfd, Op, OpResult, Va,
};
use nofrag_backing::faults::{self, Call, Fault};
use rustix::io::Errno;

use super::support::{Subject, one, store};

fn mapped<B: Backend>(backend: &B, pages: u64) -> Va {
    let bytes = pages * HUGE;
    let va = backend.reserve(bytes, 1, None).unwrap();
    assert!(va.0.is_multiple_of(HUGE));
    let phys = backend.create(bytes).unwrap();
    one(backend, Op::Map { va, phys, offset: 0, bytes }).unwrap();
    va
}

/// Collapses each huge page; returns how many became one.
fn collapsed(pages: u64, collapse: impl Fn(u64) -> OpResult) -> u64 {
    let results = (0..pages).map(collapse);
    results
        .filter(|result| match result {
            Ok(()) => true,
            // No huge page is free, or the kernel does not know the advice.
            Err(BackendError::System(Errno::AGAIN | Errno::NOMEM | Errno::INVAL)) => false,
            Err(other) => panic!("{other}"),
        })
        .count() as u64
}

fn keeps_contents<B: Subject>(backend: &B, va: Va, pages: u64, collapse: impl Fn(Va) -> OpResult) {
    let at = |page: u64| va.plus(page * HUGE + 3 * 4096);
    (0..pages).for_each(|page| backend.store(at(page), page + 1));
    let huge = collapsed(pages, |page| collapse(va.plus(page * HUGE)));
    (0..pages).for_each(|page| assert_eq!(backend.load(at(page)), page + 1));
    if huge < pages {
        eprintln!("not judged: {huge} of {pages} collapsed");
    }
}

#[test]
fn collapsing_keeps_what_private_memory_holds() {
    let backend = Anonymous::huge();
    let va = mapped(&backend, 4);
    keeps_contents(&backend, va, 4, |va| backend.collapse(va, HUGE));
}

/// Collapses shared memory, as far as this host has huge pages and for any value of `shmem_enabled`: its contents stay.
/// Source: docs/sources/backing.md#oracle-6.
#[test]
fn collapsing_keeps_what_shared_memory_holds() {
    let backend = Memfd::huge(Budget::Half).unwrap();
    let va = mapped(&backend, 4);
    keeps_contents(&backend, va, 4, |va| backend.collapse(va, HUGE));
}

#[test]
fn no_part_of_a_huge_page_is_purged() {
    let backend = Memfd::huge(Budget::Half).unwrap();
    let va = mapped(&backend, 2);
    store(&backend, va, 7);
    let before = faults::made();
    for (va, bytes) in [(va, HUGE / 2), (va.plus(HUGE / 2), HUGE), (va, 4096)] {
        assert_eq!(one(&backend, Op::Purge { va, bytes }), Err(BackendError::Misfit));
        assert_eq!(one(&backend, Op::Unmap { va, bytes }), Err(BackendError::Misfit));
    }
    assert_eq!(faults::made().since(&before).total(), 0);
}

/// Memory in small pages is not collapsed, since a purge of one would split the huge page.
#[test]
fn small_pages_are_not_collapsed() {
    let backend = Anonymous::new();
    let va = backend.reserve(HUGE, HUGE, None).unwrap();
    assert_eq!(backend.collapse(va, HUGE), Err(BackendError::Unsupported));
}

#[test]
fn only_what_is_mapped_is_collapsed() {
    let backend = Anonymous::huge();
    let va = backend.reserve(2 * HUGE, HUGE, None).unwrap();
    assert_eq!(backend.collapse(va, HUGE), Err(BackendError::WrongState));
    assert_eq!(backend.collapse(Va(HUGE), HUGE), Err(BackendError::WrongState));
    let va = mapped(&backend, 1);
    let armed = faults::inject([Fault::once(Call::Madvise, Errno::AGAIN)]);
    assert_eq!(backend.collapse(va, HUGE), Err(BackendError::System(Errno::AGAIN)));
    drop(armed);
}

#[test]
fn huge_pages_that_nobody_set_aside_are_named() {
    let count = |name| {
        let text = fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    if count("nr_hugepages") + count("nr_overcommit_hugepages") > 0 {
        eprintln!("skipped: this host has huge pages set aside");
        return;
    }
    let refused = Memfd::hugetlb(Budget::Half).unwrap_err();
    assert_eq!(refused, BackendError::NoHugePages { pages: 0, free: 0 });
    assert!(refused.to_string().contains("nr_hugepages"), "{refused}");
}
