//! The records that the turns of contestants leave.

use nofrag_bench::contest::{Board, Effort, Named, Outcome, interleave};
use nofrag_bench::record::{Group, Measure, Records};

struct Somebody;

impl Named for Somebody {
    fn name(&self) -> &'static str {
        "somebody"
    }
}

/// A contestant that fails in its third round loses the figures of the first two, which would stand in the tables
/// beside those of sound contestants.
#[test]
fn who_fails_in_a_later_round_has_a_reason_and_no_figures() {
    const WORKLOAD: &str = "any";
    const REASON: &str = "fails: refuses a request";
    let contestants = [Box::new(Somebody)];
    let mut records = Records::default();
    let board = Board::new(&mut records, Group::Speed, WORKLOAD, &contestants);
    interleave(board, &contestants, 4, &Effort::quick(), &|_| {}, |_, round| match round {
        2 => Outcome::Nothing(REASON.to_owned()),
        _ => Outcome::Whole(vec![(Measure::NsPerOp, 5.0)]),
    });
    assert!(records.samples(WORKLOAD, Somebody.name(), Measure::NsPerOp).is_empty());
    assert_eq!(records.note(WORKLOAD, Somebody.name()), Some(REASON));
}
