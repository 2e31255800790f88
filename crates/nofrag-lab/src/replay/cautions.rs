//! Cautions of a replay: sentences about conclusions that do not hold.

use nofrag_host::trace::{EventKind, TraceMeta};

use nofrag_show::{count, duration};

use super::outcome::{Answer, Fidelity, PolicyRun, Recorded, Shortage, Verdict};
use super::pairing::TARGETS;
use super::start::Host;
use crate::key::Key;

/// A sentence's beginning: policies are compared by this model alone.
pub(super) const UNCONFIRMED: &str = "No kernel has confirmed how policies differ here";

/// Returns all sentences to read before the figures are used.
pub(super) fn cautions(
    host: &Host,
    meta: &TraceMeta,
    recorded: &Recorded,
    fidelity: Option<&Fidelity>,
    runs: &[PolicyRun],
) -> Vec<String> {
    let mut all = vec![
        format!(
            "{UNCONFIRMED}: a figure that holds under the recorded kernel's own rules need not hold under others. \
             --against sets a recording of the same workload under another kernel or other settings beside it."
        ),
        "The requests stay as they were recorded, whatever a policy makes of them: what a workload would have done \
         otherwise, had it been served otherwise, is not said."
            .to_owned(),
    ];
    all.extend(of_loss(recorded));
    all.extend(of_start(host, meta));
    all.extend(without_targets(meta, recorded));
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

/// Returns a sentence about figures that are less certain as the recording lacks an event for targets of compaction;
/// `None` if it has both or nothing was moved.
fn without_targets(meta: &TraceMeta, recorded: &Recorded) -> Option<String> {
    let lacking = TARGETS.into_iter().filter(|&kind| !super::records(meta, kind));
    let lacking: Vec<&str> = lacking.map(EventKind::name).collect();
    let lacks = !meta.formats.is_empty() && !lacking.is_empty();
    (lacks && recorded.moved > 0).then(|| {
        format!(
            "The recording lacks {}, which nofrag record takes where the kernel has it: where {} pages that compaction \
             moved can have gone is not bounded, so that free pages over time and by zone are less certain.",
            lacking.join(" and "),
            count(recorded.moved as f64)
        )
    })
}

fn without_judgement(meta: &TraceMeta) -> String {
    let why = match (meta.start().is_some(), meta.end().is_some(), &meta.release) {
        (_, _, None) => "the trace does not say which kernel it is of",
        (true, true, Some(_)) => "there is no preset for the recorded kernel",
        _ => "there is no snapshot from before and after the recording",
    };
    format!("How far this can be trusted is not known: {why}.")
}

/// Returns a sentence for each question whose verdict is not [`Verdict::Holds`].
fn of_fidelity(fidelity: &Fidelity) -> Vec<String> {
    let sentence = |answer: &Answer| {
        let what = answer.query.what();
        let figures: Vec<&str> = answer.rests_on.iter().map(Key::name).collect();
        let figures = figures.join("; ");
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
        if unknown > 0 {
            all.push(format!(
                "{unknown} frees ({share:.1} %) are of frames that were believed free, and nothing explains them: they \
                 are left out, and the blocks were never asked for here, so that between their request and their free \
                 as much more is free than there was."
            ));
        }
    }
    all.extend(runs.iter().filter_map(too_small));
    all
}

/// Returns a sentence about a run that ran out of memory: the time from which its figures mean nothing, and the content
/// of its memory then. `None` if it did not run out.
fn too_small(run: &PolicyRun) -> Option<String> {
    let at = run.out_of_memory()?;
    let Shortage { direct_reclaims, managed, kernel, processes, cache, free, on_lists } =
        run.shortage()?;
    let PolicyRun { policy, memory_percent, .. } = run;
    let pages = |pages: u64| count(pages as f64);
    let all = run.repeats.iter().map(|repeat| repeat.counts.direct_reclaims).max().unwrap_or(0);
    Some(format!(
        "{policy} with {memory_percent} % of the memory: memory is too small from {} of the recording on, where a \
         small block is refused with nothing left to reclaim. Of {} pages, {} are of processes and {} of the kernel \
         (its slabs go as they went), {} are page cache that could go, {} are on the lists of CPUs, and {} are free, \
         which the marks keep. A kernel would kill a process there; nothing is said of this run. Direct reclaim had \
         been entered {} times; callers that come later find the same, and enter it up to 17 times each ({} in all, at \
         most).",
        duration(at as f64 / 1e9),
        pages(managed),
        pages(processes),
        pages(kernel),
        pages(cache),
        pages(on_lists),
        pages(free),
        pages(direct_reclaims),
        pages(all),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Repeat;
    use super::*;

    #[test]
    fn an_old_recording_says_which_figures_are_weaker() {
        let with = |names: &[&str]| TraceMeta {
            formats: names.iter().map(|name| ((*name).to_owned(), String::new())).collect(),
            ..TraceMeta::default()
        };
        let moved = |moved| Recorded { moved, ..Recorded::default() };
        let said = |names: &[&str], pages| without_targets(&with(names), &moved(pages));
        let old = said(&["mm_migrate_pages"], 77).expect("it lacks them");
        assert!(old.contains("where 77 pages"), "{old}");
        assert_eq!(said(&["mm_migrate_pages"], 0), None, "nothing was moved");
        let [scan, search] = TARGETS.map(EventKind::name);
        let half = said(&[scan], 77).expect("it lacks the other");
        assert!(half.contains(search) && !half.contains(scan), "{half}");
        assert_eq!(said(&[scan, search], 77), None);
        assert_eq!(said(&[], 77), None, "a text does not say what was recorded");
    }

    #[test]
    fn what_a_run_leaves_out_and_when_it_means_nothing_is_said() {
        let run = |unknown_frees, out_of_memory: Option<u64>| {
            let shortage = out_of_memory.map(|_| Shortage {
                managed: 100,
                processes: 70,
                kernel: 20,
                free: 10,
                ..Shortage::default()
            });
            let mut repeat = Repeat { out_of_memory, shortage, ..Repeat::default() };
            repeat.assumptions.unknown_frees = unknown_frees;
            repeat.counts.frees = 97;
            PolicyRun {
                policy: "linux-6.1".to_owned(),
                settings: Default::default(),
                memory_percent: 90,
                managed: 1,
                repeats: vec![repeat],
            }
        };
        assert_eq!(of_runs(&[run(0, None)]), [""; 0]);
        let said = of_runs(&[run(3, Some(8_000_000_000))]);
        assert!(said[0].starts_with("3 frees (3.0 %)"), "{said:?}");
        assert!(said[1].contains("too small from 8"), "{said:?}");
        assert!(said[1].contains("Of 100 pages, 70 are of processes and 20"), "{said:?}");
    }
}
