//! Reservations: their places, and their refusals.

use std::io::ErrorKind;

use crate::maps::{self, MapsLine};
use nofrag::mmap::Protection;
use nofrag::ranges::Span;
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::reservation::Reservation;
use rustix::io::Errno;

/// Returns the areas of this process inside the reservation.
fn areas(reservation: &Reservation) -> Vec<MapsLine> {
    let pages = reservation.pages();
    let own = maps::own();
    own.into_iter().filter(|line| pages.contains(line.start >> 12)).collect()
}

#[test]
fn a_reservation_is_mapped_where_it_says_and_gone_when_dropped() {
    let reservation = Reservation::new(100 << 12, Protection::NONE).unwrap();
    let start = reservation.start();
    assert_eq!(reservation.pages().len(), 100);
    let taken = Reservation::at(start, 4096, Protection::NONE).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    drop(reservation);
    // Another test may take the addresses first; not time after time.
    let again =
        |_| Reservation::at(start, 4096, Protection::NONE).is_ok_and(|r| r.start() == start);
    assert!((0..1000).any(again));
}

#[test]
fn protections_split_and_guards_do_not() {
    let mut reservation = Reservation::new(100 << 12, Protection::READ_WRITE).unwrap();
    let first = reservation.pages().start();
    let middle = Span::sized(first + 50, 1).unwrap();
    let count = areas(&reservation).len();
    match reservation.guard(middle) {
        Ok(()) => assert_eq!(areas(&reservation).len(), count),
        Err(why) => eprintln!("skipped: guards in page tables need Linux 6.13: {why}"),
    }
    reservation.protect(middle, Protection::NONE).unwrap();
    assert!(areas(&reservation).len() > count);
    reservation.discard(middle).unwrap();
}

#[test]
fn pages_outside_are_refused() {
    let mut reservation = Reservation::new(10 << 12, Protection::NONE).unwrap();
    let outside = Span::sized(reservation.pages().end() - 1, 2).unwrap();
    let refusals = [
        reservation.protect(outside, Protection::READ),
        reservation.guard(outside),
        reservation.discard(outside),
    ];
    for refused in refusals {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn whatever_the_system_refuses_is_an_error() {
    let mut reservation = Reservation::new(4 << 12, Protection::NONE).unwrap();
    let pages = reservation.pages();
    let refuse = |call| faults::inject([Fault::once(call, Errno::NOMEM)]);
    let is_refused = |result: std::io::Result<()>| {
        result.unwrap_err().raw_os_error() == Some(Errno::NOMEM.raw_os_error())
    };
    let armed = refuse(Call::Mmap);
    assert!(is_refused(Reservation::new(4096, Protection::NONE).map(drop)));
    drop(armed);
    let armed = refuse(Call::Mprotect);
    assert!(is_refused(reservation.protect(pages, Protection::READ)));
    drop(armed);
    type Advise = fn(&mut Reservation, Span) -> std::io::Result<()>;
    let advise: [Advise; 4] =
        [Reservation::guard, Reservation::unguard, Reservation::discard, |reservation, _| {
            reservation.without_huge_pages()
        }];
    for advise in advise {
        let _armed = refuse(Call::Madvise);
        assert!(is_refused(advise(&mut reservation, pages)));
    }
    let before = faults::made();
    drop(reservation);
    assert_eq!(faults::made().since(&before).of(Call::Munmap), 1);
}
