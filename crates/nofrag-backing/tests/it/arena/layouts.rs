//! Bytes and layouts in place of pages.

use std::alloc::Layout;

use nofrag_backing::arena::{ArenaError, Lease};

use super::{A, PAGE, Z, arena_of, check_laws};

/// The type of a lease of ordinary memory needs no parameter.
struct Column<'a> {
    bytes: Lease<'a>,
}

#[test]
fn a_lease_has_the_bytes_that_were_asked_for() {
    let arena = arena_of(8, 2);
    for bytes in [1, PAGE - 1, PAGE, PAGE + 1, 10 * PAGE + 7] {
        let mut column = Column { bytes: arena.lease_bytes(A, bytes).unwrap() };
        column.bytes.fill(3);
        assert_eq!((column.bytes.len(), column.bytes[bytes - 1]), (bytes, 3));
        assert_eq!(arena.stats().live, bytes.div_ceil(PAGE) as u64);
    }
    for align in [1, 64, PAGE, 8 * PAGE] {
        let layout = Layout::from_size_align(PAGE + 5, align).unwrap();
        let lease = arena.lease_layout(Z, layout).unwrap();
        assert_eq!((lease.len(), lease.as_ptr().addr() % align), (PAGE + 5, 0));
        let run = arena.alloc_layout(Z, layout).unwrap();
        assert_eq!((run.pages(), run.va().0 % align as u64), (2, 0));
        arena.free(run).unwrap();
    }
    let nothing = Layout::new::<()>();
    assert_eq!(arena.alloc_layout(A, nothing), Err(ArenaError::NoPages));
    assert!(matches!(arena.lease_bytes(A, 0), Err(ArenaError::NoPages)));
    let wide = Layout::from_size_align(1, 1 << 40).unwrap();
    assert!(matches!(arena.lease_layout(A, wide), Err(ArenaError::AlignTooLarge { .. })));
    assert_eq!(arena.stats().live, 0);
    check_laws(&arena);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn collections_live_in_an_arena() {
    use allocator_api2::alloc::Allocator;
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;

    let arena = arena_of(64, 2);
    let mut column = Vec::new_in(&arena);
    (0..40_000_u32).for_each(|value| column.push(value));
    let row = Box::new_in([7_u8; 3 * PAGE], &arena);
    assert!((0..).zip(&column).all(|(value, &own)| value == own) && row[PAGE] == 7);
    assert!(arena.stats().live >= 40 + 3);
    drop((column, row));
    assert_eq!(arena.stats().live, 0, "moved and freed, whatever it has grown through");
    let empty = Layout::from_size_align(0, 64).unwrap();
    let nothing = (&arena).allocate(empty).unwrap();
    assert_eq!((nothing.len(), nothing.cast::<u8>().addr().get() % 64), (0, 0));
    // SAFETY: it was allocated just now, with this layout.
    unsafe { (&arena).deallocate(nothing.cast(), empty) };
    let too_large = Layout::from_size_align(1 << 40, 1).unwrap();
    assert!((&arena).allocate(too_large).is_err());
    check_laws(&arena);
}
