//! A child of a fork touches nothing of its parent's, though it has copies of all guards and books. It may have other
//! memory at the addresses that are hidden from it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use nofrag::mmap::Protection;
use nofrag_backing::arena::{Arena, Budget as Work, Config, Fork, OwnerId, Owners, Purger};
use nofrag_backing::backend::{Anonymous, Backend, BackendError, Budget, HostMemory, Memfd, Op};
use nofrag_backing::reservation::Reservation;
use nofrag_backing::shapes::{GrowableBuffer, ShapeError};

use crate::children::{ends, fork};

const PAGE: u64 = 4096;

/// Memory of a child's own where its parent has other memory, with a word in it that must stay.
struct Own(Reservation);

impl Own {
    fn at(start: u64) -> Own {
        let own = Own(Reservation::at(start, PAGE as usize, Protection::READ_WRITE).unwrap());
        // SAFETY: the page was mapped a moment ago, and no reference to it exists.
        unsafe { own.word().write_volatile(7) };
        own
    }

    fn word(&self) -> *mut u64 {
        std::ptr::with_exposed_provenance_mut(self.0.start() as usize)
    }

    fn stays(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.word().read_volatile() == 7 }
    }
}

#[test]
fn a_buffer_of_the_parent_is_not_purged() {
    let mut buffer = GrowableBuffer::with_capacity(PAGE as usize).unwrap();
    buffer.extend_from_slice(b"hello").unwrap();
    buffer.truncate(0);
    let start = buffer.as_ptr().addr() as u64;
    let child = fork(|| {
        let own = Own::at(start);
        buffer.purge() == Err(ShapeError::Forked) && own.stays()
    });
    assert_eq!(ends(child), 0);
    assert_eq!(buffer.purge(), Ok(PAGE as usize));
}

fn check_hidden<B: Backend>(backend: B) {
    let va = backend.reserve(PAGE, PAGE, None).unwrap();
    let phys = backend.create(PAGE).unwrap();
    let mut done = [Ok(())];
    let map = Op::Map { va, phys, offset: 0, bytes: PAGE };
    backend.submit(&[map], &mut done);
    assert_eq!(done, [Ok(())]);
    backend.hide_from_children(va, PAGE).unwrap();
    let mut backend = Some(backend);
    let child = fork(|| {
        let own = Own::at(va.0);
        let backend = backend.take().unwrap();
        let refused = [Op::Purge { va, bytes: PAGE }, Op::Unmap { va, bytes: PAGE }, map];
        let refused = refused.into_iter().all(|op| {
            let mut done = [Ok(())];
            backend.submit(&[op], &mut done);
            done == [Err(BackendError::WrongState)]
        });
        let released = backend.release(va, PAGE);
        let reserved = backend.reserve(PAGE, PAGE, None);
        drop(backend);
        let refused = refused && released.is_err() && reserved.is_err();
        refused && own.stays()
    });
    assert_eq!(ends(child), 0);
    backend.unwrap().release(va, PAGE).unwrap();
}

#[test]
fn what_a_backend_has_hidden_is_not_unmapped() {
    check_hidden(Anonymous::new());
    check_hidden(Memfd::new(Budget::Half).unwrap());
}

fn check_lease<B: HostMemory>(backing: B, fork_sees: Fork) {
    let config = Config { owners: Owners::Count(1), fork: fork_sees, ..Config::over(backing) };
    let arena = Arena::reserve(8 << 20, config).unwrap();
    let mut lease = arena.lease(OwnerId(0), 1, 1).unwrap();
    lease[0] = 1;
    let child = fork(|| {
        let seen = catch_unwind(AssertUnwindSafe(|| lease[0]));
        let changed = catch_unwind(AssertUnwindSafe(|| lease[0] = 2));
        seen.is_err() && changed.is_err()
    });
    assert_eq!(ends(child), 0, "{fork_sees:?}");
    assert_eq!(lease[0], 1);
}

/// Reads and writes a lease in a child: both panic. Hidden memory is not there, and shared memory was lent twice: the
/// child changed bytes behind its parent's slice.
#[test]
fn a_lease_of_the_parent_lends_nothing() {
    for fork_sees in [Fork::Hidden, Fork::Inherited] {
        check_lease(Anonymous::new(), fork_sees);
        check_lease(Memfd::new(Budget::Half).unwrap(), fork_sees);
    }
}

/// Drops a purger in a child, which waits for nothing: its copy of the handle names a thread that it does not have, for
/// which it once waited for ever.
#[test]
fn a_purger_of_the_parent_is_not_waited_for() {
    let config = Config { owners: Owners::Count(1), ..Config::default() };
    let arena = Arc::new(Arena::reserve(8 << 20, config).unwrap());
    let mut purger = Some(Purger::spawn(arena, Duration::from_secs(3600), Work::ALL).unwrap());
    let child = fork(|| {
        drop(purger.take());
        true
    });
    assert_eq!(ends(child), 0);
    drop(purger);
}
