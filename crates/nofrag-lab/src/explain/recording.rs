//! From a recording to an explanation: the requests that failed, the mixing of types, the state at the end, and the
//! results of other policies with the same requests.

use std::collections::BTreeMap;
use std::path::Path;

use nofrag::page::Migratetype;
use nofrag::units::Order;
use nofrag_host::failure::Mode;
use nofrag_host::finding::bytes_text;
use nofrag_host::snapshot::Snapshot;
use nofrag_host::trace::{
    Event, EventSource, Moment, Progressed, TakenSnapshot, Trace, TraceMeta, View,
};
use nofrag_show::host::trace::not_whole;

use super::answer::{Case, Cause, Explanation, Mixing, SourceKind};
use super::scene::Scene;
use super::{ExplainError, Replays, empty, obtain, policies, reports};
use crate::replay::{self, DEFAULT_POLICIES, Input, ReplayOptions};

/// A kind of failed request: order, `gfp` flags, process ID.
type Failure = (u32, u64, i32);

/// Sums over the events of a recording.
#[derive(Default)]
struct Tally {
    events: u64,
    failures: BTreeMap<Failure, u64>,
    mixing: Mixing,
    pairs: BTreeMap<(i32, i32), u64>,
    processes: BTreeMap<i32, u64>,
    /// Failures of kinds beyond [`MOST_FAILURES`].
    more_failures: u64,
    /// Events of mixing by processes beyond [`MOST_FAILURES`].
    more_mixing: u64,
}

/// The state of the host that is shown, and its moment.
struct Shown<'a> {
    snapshot: Snapshot<'a>,
    taken: &'a TakenSnapshot,
}

impl<'a> Shown<'a> {
    /// Returns the latest snapshot. A recording that was cut has none at its end.
    fn of(meta: &'a TraceMeta) -> Option<Shown<'a>> {
        let taken = meta.snapshots.last()?;
        Some(Shown { snapshot: Snapshot::parse(&taken.files), taken })
    }

    /// Returns the moment in words.
    fn moment(&self) -> &'static str {
        match self.taken.moment {
            Moment::Before => "at the start of the recording",
            Moment::During { .. } => "during the recording",
            Moment::After => "at the end of the recording",
        }
    }
}

/// More different failures, or processes, than this are counted, not shown.
const MOST_FAILURES: usize = 4096;

/// Free blocks below this order count as serious when types are mixed (the stall patch of 2018).
const SERIOUS: i32 = 4;

impl Tally {
    fn count(&mut self, event: &Event, pageblock: i32) {
        self.events += 1;
        match event.view() {
            View::PageAlloc { pfn: None, order, gfp, .. } => {
                let key = (order, gfp, event.pid);
                if self.failures.len() < MOST_FAILURES || self.failures.contains_key(&key) {
                    *self.failures.entry(key).or_default() += 1;
                } else {
                    self.more_failures += 1;
                }
            }
            View::ExtFrag {
                fallback_order,
                alloc_migratetype,
                fallback_migratetype,
                change_ownership,
                ..
            } => {
                self.mixing.events += 1;
                self.mixing.fragmenting += u64::from(fallback_order < pageblock);
                self.mixing.serious += u64::from(fallback_order < SERIOUS);
                self.mixing.claims += u64::from(change_ownership);
                *self.pairs.entry((alloc_migratetype, fallback_migratetype)).or_default() += 1;
                if self.processes.len() < MOST_FAILURES || self.processes.contains_key(&event.pid) {
                    *self.processes.entry(event.pid).or_default() += 1;
                } else {
                    self.more_mixing += 1;
                }
            }
            _ => {}
        }
    }

    /// Returns sentences on the events that were counted without their kind.
    fn cautions(&self) -> Vec<String> {
        let mut cautions = Vec::new();
        if self.more_failures > 0 {
            cautions.push(format!(
                "{} more requests failed, of other orders, flags or processes than the first {MOST_FAILURES} kinds: \
                 they are not shown.",
                self.more_failures
            ));
        }
        if self.more_mixing > 0 {
            cautions.push(format!(
                "{} events of mixed types belong to processes beyond the first {MOST_FAILURES}: those are not \
                 listed.",
                self.more_mixing
            ));
        }
        cautions
    }
}

/// Reads the events, and replays them where that is wanted.
pub(super) fn explain(
    path: &Path,
    trace: Trace,
    replays: Replays,
    progress: &dyn Fn(Progressed),
) -> Result<Explanation, ExplainError> {
    let mut explanation = of_events(path, trace, progress)?;
    // Only now: the events read so far are not kept beside the memory of a replay.
    if replays == Replays::Run {
        add_replay(&mut explanation, path, progress);
    }
    Ok(explanation)
}

fn of_events(
    path: &Path,
    trace: Trace,
    progress: &dyn Fn(Progressed),
) -> Result<Explanation, ExplainError> {
    let Trace { meta, mut events, .. } = trace;
    let mut explanation = empty(&path.display().to_string(), SourceKind::Recording);
    explanation.release.clone_from(&meta.release);
    let shown = Shown::of(&meta);
    let snapshot = shown.as_ref().map(|shown| &shown.snapshot);
    let pageblock = snapshot.map_or(u32::from(Order::PAGEBLOCK.get()), Snapshot::pageblock_order);
    let mut tally = Tally::default();
    let of = events.stated();
    let mut batch = Vec::new();
    while events.read(&mut batch)? {
        batch.iter().for_each(|event| tally.count(event, pageblock as i32));
        progress(Progressed { events: tally.events, of });
        batch.clear();
    }
    let loss = events.loss();
    explanation.damage = not_whole(loss);
    if loss.gaps > 0 || loss.unreadable > 0 {
        explanation.cautions.push(format!(
            "{} events are known to be lost in {} places, {} could not be read: counts are lower bounds.",
            loss.events, loss.gaps, loss.unreadable
        ));
    }
    explanation.cautions.extend(tally.cautions());
    // Callers with the same request were refused for the same reasons.
    let mut kinds: BTreeMap<(u32, u64), Vec<(i32, u64)>> = BTreeMap::new();
    for (&(order, gfp, pid), &times) in &tally.failures {
        kinds.entry((order, gfp)).or_default().push((pid, times));
    }
    for ((order, gfp), callers) in kinds {
        explanation.cases.push(failed(&meta, shown.as_ref(), (order, gfp), callers));
    }
    explanation.cases.sort_by_key(|case| std::cmp::Reverse(case.times));
    explanation.mixing = Some(mixing(&tally, &meta, snapshot));
    match &shown {
        Some(shown) => add_state(&mut explanation, shown),
        None => explanation.cautions.push(
            "The recording has no snapshot: nothing can be said of what was free.".to_owned(),
        ),
    }
    explanation.cautions.extend(meta.missing.iter().cloned());
    Ok(explanation)
}

/// Adds the cases of the snapshot, with its moment where that is not the end.
fn add_state(explanation: &mut Explanation, shown: &Shown<'_>) {
    let failed = explanation.cases.len();
    obtain::add(explanation, &shown.snapshot, &shown.taken.files);
    if shown.taken.moment == Moment::After {
        return;
    }
    let moment = shown.moment();
    for case in &mut explanation.cases[failed..] {
        case.title = case.title.replace("be served now?", &format!("have been served {moment}?"));
    }
    explanation.cautions.push(format!(
        "The recording has no snapshot at its end: what could be had is said of the host as it was {moment}."
    ));
}

/// Returns the name of a process.
fn process(meta: &TraceMeta, pid: i32) -> String {
    let named = meta.names.iter().find(|(each, _)| *each == pid);
    named.map_or_else(|| format!("process {pid}"), |(_, name)| format!("{name} ({pid})"))
}

/// Number of callers that a title names.
const NAMED: usize = 3;

/// Names the callers, with their counts if there are several.
fn named(meta: &TraceMeta, mut callers: Vec<(i32, u64)>) -> String {
    callers.sort_by_key(|&(_, times)| std::cmp::Reverse(times));
    if let [(pid, _)] = callers[..] {
        return process(meta, pid);
    }
    let more = callers.len().saturating_sub(NAMED);
    let names = callers.iter().take(NAMED);
    let mut names: Vec<String> =
        names.map(|&(pid, times)| format!("{times} of {}", process(meta, pid))).collect();
    names.extend((more > 0).then(|| format!("{more} more")));
    names.join(", ")
}

/// Explains the failed requests of one order and `gfp` flags; `callers` are the process IDs, with the failures of each.
fn failed(
    meta: &TraceMeta,
    shown: Option<&Shown<'_>>,
    (order, gfp): (u32, u64),
    callers: Vec<(i32, u64)>,
) -> Case {
    let times = callers.iter().map(|(_, times)| times).sum();
    let names = meta.gfp.render(gfp);
    let mode = Mode::parse(&names).unwrap_or_default();
    let scene = shown
        .map(|shown| Scene::of_snapshot(&shown.snapshot, &shown.taken.files))
        .unwrap_or_default();
    let mut case = reports::explain(&scene, &reports::request(order, &mode), names.clone());
    let bytes = bytes_text(scene.page_bytes.max(4096) << order.min(20));
    case.title = format!("order {order} ({bytes}), {names}, for {}: failed", named(meta, callers));
    case.times = times;
    let Some(moment) = shown.map(Shown::moment) else {
        case.missing.push("What was free at that moment.".to_owned());
        return case;
    };
    case.missing
        .push(format!("What was free at that moment: zones are shown as they were {moment}."));
    if case.cause == Cause::Recovered {
        case.summary = format!("not recorded; {moment} {}", case.summary);
    }
    case
}

fn mixing(tally: &Tally, meta: &TraceMeta, last: Option<&Snapshot<'_>>) -> Mixing {
    let types = last.and_then(|snapshot| snapshot.types.as_ref());
    let name = |number: i32| {
        let number = usize::try_from(number).ok();
        let named = number.and_then(|number| types.and_then(|types| types.migratetype(number)));
        // Without pagetypeinfo: the first four have had these numbers since 4.4.
        let usual = number.filter(|&number| number < 4).and_then(Migratetype::from_index);
        named.or(usual).map_or_else(|| "another type".to_owned(), |each| each.name().to_owned())
    };
    let mut pairs: BTreeMap<String, u64> = BTreeMap::new();
    for (&(wanted, from), count) in &tally.pairs {
        *pairs.entry(format!("{} from {}", name(wanted), name(from))).or_default() += count;
    }
    let sorted = |mut list: Vec<(String, u64)>| {
        list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        list.truncate(10);
        list
    };
    let processes = tally.processes.iter().map(|(&pid, &count)| (process(meta, pid), count));
    Mixing {
        pairs: sorted(pairs.into_iter().collect()),
        processes: sorted(processes.collect()),
        ..tally.mixing.clone()
    }
}

/// Replays the recording under [`DEFAULT_POLICIES`], and adds their outcome to each failure.
fn add_replay(explanation: &mut Explanation, path: &Path, progress: &dyn Fn(Progressed)) {
    let options = ReplayOptions {
        trace: Input::File(path.to_owned()),
        policies: DEFAULT_POLICIES.map(str::to_owned).to_vec(),
        questions: Vec::new(),
        memory: vec![100],
        seed: 1,
        repeats: replay::REPEATS,
        repeats_of: Vec::new(),
        against: Vec::new(),
        samples: 64,
        threads: 0,
    };
    match replay::replay(&options, progress) {
        Ok(report) => {
            for case in explanation.cases.iter_mut().filter(|case| case.times > 0) {
                let order = case.asked.as_ref().map_or(0, |asked| asked.order);
                let replayed = policies::by_replay(&report, order);
                // Figures that the replay lacks follow from the rules.
                if !replayed.is_empty() {
                    case.policies = replayed;
                }
            }
            explanation.cautions.extend(report.cautions.iter().cloned());
            explanation.replay = Some(report);
        }
        // First, as the only one that the reader can do something about.
        Err(error) => explanation.cautions.insert(
            0,
            format!(
                "The requests could not be replayed ({error}): what is said of policies follows from their rules."
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use nofrag_host::snapshot::Files;

    use super::*;

    #[test]
    fn the_moment_is_that_of_the_snapshot() {
        let mut meta = TraceMeta::default();
        let failed =
            |meta: &TraceMeta| failed(meta, Shown::of(meta).as_ref(), (3, 0), vec![(1, 1)]);
        assert_eq!(failed(&meta).missing, ["What was free at that moment."]);
        for (moment, words) in [
            (Moment::Before, "at the start of the recording."),
            (Moment::After, "at the end of the recording."),
        ] {
            meta.snapshots.push(TakenSnapshot { moment, files: Files::default() });
            let missing = failed(&meta).missing;
            assert!(missing[0].ends_with(words), "{missing:?}");
        }
    }

    #[test]
    fn one_case_is_told_for_all_who_asked_for_the_same() {
        let meta = TraceMeta { names: vec![(7, "make".to_owned())], ..TraceMeta::default() };
        let callers = vec![(5, 2), (7, 9), (8, 1), (9, 1), (10, 1)];
        let case = failed(&meta, None, (3, 0), callers);
        assert_eq!(case.times, 14);
        let who = "for 9 of make (7), 2 of process 5, 1 of process 8, 2 more: failed";
        assert!(case.title.ends_with(who), "{}", case.title);
        assert!(failed(&meta, None, (3, 0), vec![(7, 3)]).title.ends_with("for make (7): failed"));
    }

    #[test]
    fn what_is_counted_without_its_kind_is_said() {
        assert!(Tally::default().cautions().is_empty());
        let tally = Tally { more_failures: 7, more_mixing: 8, ..Tally::default() };
        let cautions = tally.cautions();
        assert!(
            cautions[0].starts_with("7 more") && cautions[1].starts_with("8 events"),
            "{cautions:?}"
        );
    }
}
