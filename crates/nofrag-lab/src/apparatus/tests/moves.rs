//! Properties of the kernel on which moves rely.
//!
//! Source: docs/sources/backing.md#oracle-4, #oracle-5, #oracle-10.

use std::time::Duration;

use nofrag_backing::moving::pins::Patience;
use nofrag_backing::moving::userfaultfd::{Features, Userfaultfd};
use nofrag_backing::moving::{Fill, Method};
use rustix::io::Errno;

use crate::apparatus::churn::{ChurnPlan, churn};
use crate::apparatus::moves::{MoveCosts, MovePlan, Way, live_moves};
use crate::apparatus::properties::{filling, references_after_a_move, shared_page};

const WRITE_PROTECT: Features = Features::WRITE_PROTECT_SHARED;

/// Returns a userfaultfd with some features; `None` where the system has none.
fn userfaultfd(wanted: Features) -> Option<Userfaultfd> {
    Userfaultfd::open(wanted).inspect_err(|why| eprintln!("skipped: {why}")).ok()
}

/// Returns all ways that this system allows.
fn ways() -> Vec<Way> {
    let allowed = userfaultfd(WRITE_PROTECT).is_some();
    Way::ALL.into_iter().filter(|way| allowed || !way.needs_userfaultfd()).collect()
}

fn measured(ways: Vec<Way>, pages: u64, moves: u64) -> Vec<MoveCosts> {
    let pause = Duration::from_micros(2);
    let plan = MovePlan { ways, pages, moves, writers: 1, turn: 100, pause };
    live_moves(&plan).unwrap()
}

#[test]
fn oracle_3_no_write_is_lost_by_any_way_of_four() {
    let ways: Vec<_> = ways().into_iter().filter(|&way| way != Way::Unprotected).collect();
    for (pages, moves) in [(1, 1000), (16, 500), (64, 200), (512, 20)] {
        for row in measured(ways.clone(), pages, moves) {
            assert_eq!((row.moves, row.lost), (moves, 0), "{row:?}");
            assert!(row.writes > 0, "somebody wrote: {row:?}");
        }
    }
}

#[test]
fn oracle_3_without_protection_writes_are_lost() {
    // Writers and mover must run at once for that, which a busy machine may prevent for a while.
    let lost = |pages| (0..200).any(|_| measured(vec![Way::Unprotected], pages, 200)[0].lost > 0);
    for pages in [1, 16, 64, 512] {
        assert!(lost(pages), "the control loses writes, else the others prove nothing");
    }
}

#[test]
fn oracle_4_a_page_shared_with_a_child_does_not_move_and_one_in_a_pipe_does() {
    let Some(_) = userfaultfd(Features::MOVE) else { return };
    let found = shared_page().unwrap();
    assert_eq!((found.with_child, found.with_pipe), (Err(Errno::BUSY), Ok(())));
}

#[test]
fn oracle_5_who_is_not_told_of_a_move_reads_what_was_there_before() {
    let mut methods = vec![Method::Pins(Patience::NONE), Method::Mprotect];
    if userfaultfd(WRITE_PROTECT).is_some() {
        methods.extend([Fill::OnFault, Fill::Populate].map(Method::WriteProtect));
    }
    for method in methods {
        let seen = references_after_a_move(method).unwrap();
        assert_eq!(
            (seen.area, seen.pipe, seen.other_area),
            (seen.new, seen.old, seen.old),
            "{method:?}"
        );
    }
}

#[test]
fn oracle_10_page_tables_are_filled_by_request() {
    // The ratio is for a quiet machine: the scenario judges it.
    let Some(_) = userfaultfd(Features::MINOR_SHARED) else { return };
    let filling = filling(64, 50).unwrap();
    assert_eq!((filling.by_request.len(), filling.by_populate.len()), (50, 50));
    assert!(filling.by_request.iter().chain(&filling.by_populate).all(|&ns| ns > 0));
}

#[test]
fn after_churn_nearly_all_that_is_possible_can_be_had() {
    let found = churn(&ChurnPlan { bytes: 32 << 20, churn: 1, seed: 1 }).unwrap();
    assert_eq!((found.before, found.corrupted), (0, 0), "{found:?}");
    assert!(found.obtained * 100 >= found.possible * 95, "{found:?}");
}
