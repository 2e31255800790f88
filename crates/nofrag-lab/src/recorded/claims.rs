//! Claims about the replay of the shipped recording.

use crate::oracle::{ClaimKind, Claims, Oracle, Relation, Withdrawn};
use crate::replay::{Range, Repeat, ReplayReport, Verdict};

/// Number of events in the recording; `data/recordings/README.md` says the same.
const EVENTS: f64 = 701_106.0;
/// Pages that the recorded kernel moved.
const MOVED: f64 = 38_339.0;

/// Adds the judged claims to `oracles`.
pub(super) fn judge(replay: &ReplayReport, oracles: &mut Vec<Oracle>) {
    let recorded = &replay.recorded;
    let none = Relation::NONE;
    oracles.exact("events", "events read", recorded.events as f64, Relation::Equals(EVENTS));
    oracles.exact("lost", "events lost", recorded.lost as f64, none);
    let claim = "pages that the kernel moved, as its migration events say";
    oracles.exact("moved", claim, recorded.moved as f64, Relation::Equals(MOVED));
    for run in &replay.runs {
        let name = format!("{}, {} %", run.policy, run.memory_percent);
        // A request for a huge page that was refused went on with single ones.
        let unaccounted = run.over(|Repeat { counts, assumptions, .. }| {
            let asked: u64 = counts.requests.iter().sum();
            let served: u64 = counts.served.iter().sum();
            asked as f64 - served as f64 - (assumptions.not_served + assumptions.in_pieces) as f64
        });
        let Range { least, most, .. } = unaccounted;
        let farthest = if least < 0.0 { least } else { most };
        let failures = recorded.failures.iter().sum::<u64>() as f64;
        let claim = "requests not served that the recorded kernel did not serve either";
        let relation = Relation::Between(0.0, failures);
        oracles.exact(format!("accounted/{name}"), claim, farthest, relation);
        let splits = run.over(|repeat| repeat.assumptions.splits as f64).most;
        let claim = "frees of another order than the request's";
        oracles.exact(format!("orders/{name}"), claim, splits, none);
    }
    for figure in replay.fidelity.iter().flat_map(|fidelity| &fidelity.figures) {
        if figure.carries.is_empty() {
            continue;
        }
        let (Range { least, most, .. }, recorded) = (figure.replayed, figure.recorded);
        let [low, high] = figure.tolerance.bound(recorded);
        // On the side on which the runs are farthest off.
        let (measured, bound) = match recorded - least > most - recorded {
            true => (recorded - least, recorded - low),
            false => (most - recorded, high - recorded),
        };
        let mut oracle = Oracle::judge(
            format!("fidelity/{}", figure.name),
            ClaimKind::Ratio,
            "how far the replay under the recorded kernel's rules is off, at most",
            measured,
            Relation::AtMost(bound),
        );
        // A figure that is not near enough is not claimed.
        oracle.withdrawn = (figure.verdict != Verdict::Holds).then_some(Withdrawn::AgainstKernels);
        oracles.push(oracle);
    }
}
