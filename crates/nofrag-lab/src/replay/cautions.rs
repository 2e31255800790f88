//! Which conclusions do not hold, in sentences.

use nofrag_host::trace::TraceMeta;

use crate::oracle::Withdrawn;

use super::outcome::{Answer, Fidelity, PolicyRun, Recorded, Verdict};
use super::start::Host;

/// Frees that nothing explains, in percent of all: above that the beliefs about frames are not to be trusted.
const UNKNOWN_PERCENT: f64 = 1.0;

/// What is to be kept in mind.
pub(super) fn cautions(
    host: &Host,
    meta: &TraceMeta,
    recorded: &Recorded,
    fidelity: Option<&Fidelity>,
    runs: &[PolicyRun],
) -> Vec<String> {
    let mut all = vec![
        format!("{}.", Withdrawn::AgainstKernels.reason()),
        "The requests stay as they were recorded, whatever a policy makes of them: what a workload would have done \
         otherwise, had it been served otherwise, is not said."
            .to_owned(),
    ];
    all.extend(of_loss(recorded));
    all.extend(of_start(host, meta));
    all.extend(fidelity.map_or_else(|| vec![without_judgement(meta)], of_fidelity));
    all.extend(of_runs(runs));
    all.extend(meta.missing.iter().cloned());
    all
}

pub(super) fn of_loss(recorded: &Recorded) -> Option<String> {
    let lost = match recorded.lost {
        0 => "An unknown number of events are".to_owned(),
        lost => format!("{lost} events are"),
    };
    (recorded.gaps > 0).then(|| {
        format!(
            "{lost} lost at {} places: from the first of them to the next snapshot, or the end, what is free and what \
             is in use is not certain.",
            recorded.gaps
        )
    })
}

fn of_start(host: &Host, meta: &TraceMeta) -> Vec<String> {
    let mut all = host.quality().cautions.clone();
    if meta.start().is_none() {
        all.push(
            "There is no snapshot from before the recording: the replay starts with all memory free, so that it says \
             nothing of fragmentation that was there, nor of pressure. Record with a snapshot (nofrag record does)."
                .to_owned(),
        );
    }
    all
}

fn without_judgement(meta: &TraceMeta) -> String {
    let why = match (meta.start().is_some(), meta.end().is_some(), &meta.release) {
        (_, _, None) => "the trace does not say which kernel it is of",
        (true, true, Some(_)) => "there is no preset for the recorded kernel",
        _ => "there is no snapshot from before and after the recording",
    };
    format!("How far this can be trusted is not known: {why}.")
}

/// A sentence for each question that is not answered.
fn of_fidelity(fidelity: &Fidelity) -> Vec<String> {
    let sentence = |answer: &Answer| {
        let what = answer.query.what();
        let figures = answer.rests_on.join("; ");
        match answer.verdict {
            Verdict::Holds => None,
            Verdict::TooFew => Some(format!(
                "Nothing is said of {what}: the kernel itself had too few of these: {figures}."
            )),
            Verdict::Wide => Some(format!(
                "Nothing is said of {what}: under the recorded kernel's own rules the start values disagree whether \
                 these are as they were: {figures}."
            )),
            Verdict::Off => Some(format!(
                "Nothing is said of {what}: under the recorded kernel's own rules these are not as they were: \
                 {figures}."
            )),
        }
    };
    fidelity.answers.iter().filter_map(sentence).collect()
}

fn of_runs(runs: &[PolicyRun]) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(run) = runs.first() {
        let first = run.first();
        let unknown = first.assumptions.unknown_frees;
        let share = 100.0 * unknown as f64 / (first.counts.frees + unknown).max(1) as f64;
        if share > UNKNOWN_PERCENT {
            all.push(format!(
                "{unknown} frees ({share:.1} %) are of frames that were believed free, and nothing explains them: \
                 what is free at the end is too little by about as much."
            ));
        }
    }
    all
}
