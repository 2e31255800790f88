//! The records that the turns of contestants leave.

use nofrag_bench::contest::{Effort, Named, Run};
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
    let (effort, progress) = (Effort::quick(), |_, _: &str| {});
    let records = Records::default();
    let mut run = Run { records, effort, seed: 1, cpus: &[], progress: &progress };
    let (of, rounds) = ((Group::Speed, WORKLOAD), (4, effort.workload));
    run.contest(of, &[Box::new(Somebody)], rounds, |_, round| match round {
        2 => Err(REASON.to_owned()),
        _ => Ok(vec![(Measure::NsPerOp, 5.0)].into()),
    });
    let records = run.records;
    assert!(records.samples(WORKLOAD, Somebody.name(), Measure::NsPerOp).is_empty());
    assert_eq!(records.note(WORKLOAD, Somebody.name()), Some(REASON));
}
