//! Reservations: where they are, and what they refuse.

use std::io::ErrorKind;

use nofrag::mmap::Protection;
use nofrag::ranges::Span;
use nofrag_backing::maps::{self, MapsLine};
use nofrag_backing::reservation::Reservation;

/// The areas of this process inside the reservation.
fn areas(reservation: &Reservation) -> Vec<MapsLine> {
    let pages = reservation.pages();
    let own = maps::of_process(rustix::process::getpid()).unwrap();
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
    // Another test may take the place first; not time after time.
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
