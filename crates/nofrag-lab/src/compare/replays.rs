//! Replays: run by run, matched by policy and size of memory.

use nofrag::page::Migratetype;
use nofrag::units::Order;

use nofrag_show::host::trace::not_whole;

use super::{Better, CompareError, ComparedRow, Each, Found, Group, Machines, Scale, percent};
use crate::replay::{
    ByType, Counts, FidelityFigure, PolicyRun, Query, Repeat, ReplayReport, Sample, Verdict,
    is_like,
};

use Better::{Less, More, Neither};
use Scale::{Count, Share};

pub(super) fn compare(sides: &[ReplayReport]) -> Result<(Found, Vec<String>), CompareError> {
    for other in &sides[1..] {
        refuse_other_requests(&sides[0], other)?;
    }
    let matched = matched(sides)?;
    let group = |runs: &Matched<'_>| Beside { runs: runs.clone(), sides }.group();
    let mut groups: Vec<Group> = matched.iter().map(group).collect();
    groups.push(fidelity(sides));
    let damage = sides.iter().filter_map(|side| not_whole(side.recorded.loss())).collect();
    let found = Found { machines: Machines::Same, groups, damage };
    Ok((found, cautions(sides, &matched)))
}

/// Refuses replays of other requests: they would compare workloads, not policies.
fn refuse_other_requests(old: &ReplayReport, new: &ReplayReport) -> Result<(), CompareError> {
    let requests = |report: &ReplayReport| {
        (report.recorded.events, report.recorded.nanos, report.recorded.requests)
    };
    if requests(old) == requests(new) {
        return Ok(());
    }
    Err(CompareError::NothingInCommon(format!(
        "these are replays of different requests ({} with {} events, {} with {} events): what differs would be the \
         workload, not the policy; replay one recording twice, or compare the recordings themselves",
        old.trace, old.recorded.events, new.trace, new.recorded.events
    )))
}

/// A run of each of the compared replays, in their order.
type Matched<'a> = Vec<&'a PolicyRun>;

/// Returns the runs that all sides have with one policy and size of memory. Where each side has only one run, these are
/// matched whatever they are.
fn matched(sides: &[ReplayReport]) -> Result<Vec<Matched<'_>>, CompareError> {
    let of_all = |run: &PolicyRun| {
        sides.iter().map(|side| partner(run, &side.runs)).collect::<Option<Matched<'_>>>()
    };
    let found: Vec<Matched<'_>> = sides[0].runs.iter().filter_map(of_all).collect();
    let single = || {
        let only = |side: &'_ ReplayReport| side.runs.len() == 1;
        sides.iter().all(only).then(|| vec![sides.iter().map(|side| &side.runs[0]).collect()])
    };
    if !found.is_empty() {
        return Ok(found);
    }
    single().ok_or_else(|| {
        let names = sides.each(|side| names(&side.runs));
        CompareError::NothingInCommon(format!(
            "no policy was replayed with the same size of memory on all sides: {}",
            names.join("; ")
        ))
    })
}

fn partner<'a>(run: &PolicyRun, others: &'a [PolicyRun]) -> Option<&'a PolicyRun> {
    let key = |run: &PolicyRun| (run.policy.clone(), run.memory_percent);
    others.iter().find(|other| key(other) == key(run))
}

fn name(run: &PolicyRun) -> String {
    format!("{} with {} % of the memory", run.policy, run.memory_percent)
}

fn names(runs: &[PolicyRun]) -> String {
    match runs {
        [] => "none".to_owned(),
        runs => runs.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

fn cautions(sides: &[ReplayReport], matched: &[Matched<'_>]) -> Vec<String> {
    let mut cautions = Vec::new();
    let first = &sides[0];
    if let Some(other) = sides.iter().find(|side| side.seed != first.seed) {
        cautions.push(format!(
            "the sides began at different seeds ({} and {})",
            first.seed, other.seed
        ));
    }
    if let Some(other) = sides.iter().find(|side| side.trace != first.trace) {
        cautions.push(format!(
            "the recordings have different names ({} and {}); their requests agree in number and time, and are taken \
             for the same",
            first.trace, other.trace
        ));
    }
    for (number, side) in sides.iter().enumerate() {
        let is_alone = |run: &&PolicyRun| !matched.iter().any(|runs| runs[number] == *run);
        let alone: Vec<PolicyRun> = side.runs.iter().filter(is_alone).cloned().collect();
        if !alone.is_empty() {
            let which = match (sides.len(), number) {
                (2, 0) => "the old side".to_owned(),
                (2, _) => "the new side".to_owned(),
                _ => format!("run {}", number + 1),
            };
            cautions.push(format!("only {which} has {}", names(&alone)));
        }
    }
    for caution in sides.iter().flat_map(|side| &side.cautions) {
        if !cautions.contains(caution) {
            cautions.push(caution.clone());
        }
    }
    cautions
}

/// The runs of one policy and size of memory in all replays, and the replays, whose fidelity tells which questions they
/// answer.
struct Beside<'a> {
    runs: Matched<'a>,
    sides: &'a [ReplayReport],
}

/// Reads the count that a figure shows.
type Figure = fn(&Counts) -> u64;

impl Beside<'_> {
    fn group(&self) -> Group {
        let mut titles = self.runs.each(|run| name(run));
        titles.dedup();
        let mut rows = self.served();
        rows.extend(self.mixing());
        rows.extend(self.price());
        rows.extend(self.end());
        Group { title: titles.join(", then "), rows }
    }

    /// Builds a row with a value for each seed of each replay.
    fn row(
        &self,
        name: impl Into<String>,
        scale: Scale,
        better: Better,
        of: impl Fn(&Repeat) -> Option<f64>,
    ) -> ComparedRow {
        let of_run = |run: &&PolicyRun| run.repeats.iter().map(&of).collect();
        ComparedRow::of_runs(name, scale, better, self.runs.each(of_run))
    }

    fn count(&self, name: impl Into<String>, better: Better, of: Figure) -> ComparedRow {
        self.row(name, Count, better, |repeat| Some(of(&repeat.counts) as f64))
    }

    /// Returns `better` where all sides can answer the question, in the same meaning; otherwise `Neither`.
    fn if_answered(&self, query: Query, better: Better) -> Better {
        let says = |side: &ReplayReport| {
            side.fidelity.as_ref().is_none_or(|fidelity| fidelity.answers(query))
        };
        let is_like = |run: &&PolicyRun| is_like(&self.runs[0].policy, &run.policy, query);
        let can = self.sides.iter().all(says) && self.runs.iter().all(is_like);
        if can { better } else { Neither }
    }

    /// Shows the share of requests that were served, over all orders and for each.
    fn served(&self) -> Vec<ComparedRow> {
        let share = |counts: &Counts| percent(sum(&counts.served), sum(&counts.requests));
        let mut rows = vec![
            self.count("requests", Neither, |counts| sum(&counts.requests)),
            self.row("requests served, %", Share, More, |repeat| share(&repeat.counts)),
        ];
        for order in Order::all() {
            let at = order.index();
            let asks = |run: &&PolicyRun| run.range(|counts| counts.requests[at]).most > 0.0;
            if !self.runs.iter().any(asks) {
                continue;
            }
            let says = |side: &ReplayReport| {
                side.fidelity.as_ref().is_none_or(|fidelity| fidelity.says_of(order))
            };
            let better = if self.sides.iter().all(says) { More } else { Neither };
            rows.push(self.row(format!("served at order {order}, %"), Share, better, |repeat| {
                percent(repeat.counts.served[at], repeat.counts.requests[at])
            }));
        }
        rows.push(self.count("requests past the fast path", Less, |counts| sum(&counts.slow)));
        rows
    }

    /// Shows external fragmentation events and blocks from pageblocks of other types, in all and by type.
    fn mixing(&self) -> Vec<ComparedRow> {
        type MixingFigure = (&'static str, Query, fn(&Counts) -> &ByType);
        let kinds: [MixingFigure; 3] = [
            ("external fragmentation events", Query::Events, |counts| &counts.extfrag),
            ("of these below order 4", Query::Events, |counts| &counts.serious),
            ("blocks from pageblocks of other types", Query::Mistyped, |counts| &counts.mistyped),
        ];
        let mut rows = Vec::new();
        for (what, query, by_type) in kinds {
            let better = self.if_answered(query, Less);
            let of = |repeat: &Repeat| Some(sum(by_type(&repeat.counts)) as f64);
            rows.push(self.row(what, Count, better, of));
            for migratetype in Migratetype::ALL {
                let at = migratetype.index();
                let has = |run: &&PolicyRun| run.range(|counts| by_type(counts)[at]).most > 0.0;
                if self.runs.iter().any(has) {
                    let name = format!("{what}, {}", migratetype.name());
                    let of = |repeat: &Repeat| Some(by_type(&repeat.counts)[at] as f64);
                    rows.push(self.row(name, Count, better, of));
                }
            }
        }
        rows
    }

    /// Shows the costs of serving the requests: reclaim, compaction, moves.
    fn price(&self) -> Vec<ComparedRow> {
        let on = |query| self.if_answered(query, Less);
        let (direct, moves) = (on(Query::Direct), on(Query::Moves));
        let rows: [(&str, Better, Figure); 10] = [
            ("pageblocks that changed their type", Neither, |counts| counts.claims),
            ("pages moved", moves, |counts| counts.moved),
            ("direct compactions", moves, |counts| counts.compactions),
            ("pages reclaimed by callers", direct, |counts| counts.reclaimed_direct),
            ("pages reclaimed by kswapd", on(Query::Reclaim), |counts| counts.reclaimed_kswapd),
            ("entries into direct reclaim", direct, |counts| counts.direct_reclaims),
            ("wakes of kswapd", on(Query::Reclaim), |counts| counts.kswapd_wakes),
            ("boosts of watermarks", Neither, |counts| counts.boosts),
            ("stalls of callers", on(Query::Events), |counts| counts.stalls),
            ("time stalled, ns of the recording", on(Query::Events), |counts| counts.stalled_nanos),
        ];
        rows.into_iter().map(|(name, better, of)| self.count(name, better, of)).collect()
    }

    /// Shows the state at the end, and over time.
    fn end(&self) -> Vec<ComparedRow> {
        let on = |better| self.if_answered(Query::Largest, better);
        let last = |name: &str, scale, better, of: fn(&Sample) -> f64| {
            self.row(name, scale, better, move |repeat| repeat.timeline.last().map(of))
        };
        let whole = |repeat: &Repeat| {
            let each = repeat.timeline.iter().map(|sample| sample.free_in_pageblocks as f64);
            let samples = repeat.timeline.len() as f64;
            (samples > 0.0).then(|| each.sum::<f64>() / samples)
        };
        vec![
            // A zone without a free block ranks below one with a block of order 0.
            last("largest free order at the end", Share, on(More), |sample| {
                sample.largest.map_or(-1.0, f64::from)
            }),
            last("wholly free pageblocks at the end", Count, on(More), |sample| {
                sample.pageblocks.free as f64
            }),
            last(
                "pageblocks that hold something unmovable at the end",
                Count,
                on(Less),
                |sample| sample.pageblocks.pinned as f64,
            ),
            self.row("free pages in whole pageblocks, mean over time", Count, on(More), whole),
            self.row(
                "requests that the kernel served and the policy did not",
                Count,
                Less,
                |repeat| Some(repeat.assumptions.not_served as f64),
            ),
        ]
    }
}

fn sum(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, &each| sum.saturating_add(each))
}

/// Shows the distance of each side's replay under the recorded kernel's rules from the counts of that kernel.
fn fidelity(sides: &[ReplayReport]) -> Group {
    let of = |report: &ReplayReport| report.fidelity.clone().map_or(Vec::new(), |it| it.figures);
    let figures = sides.each(of);
    let off = |figure: &FidelityFigure| match figure.recorded {
        0.0 => (figure.replayed.median - figure.recorded).abs(),
        recorded => (figure.replayed.median - recorded).abs() / recorded.abs() * 100.0,
    };
    let row = |figure: &FidelityFigure| {
        let same = figures.each(|side| side.iter().find(|other| other.name == figure.name));
        let too_few = same.iter().flatten().any(|it| it.verdict == Verdict::TooFew);
        let better = if too_few { Neither } else { Less };
        let unit = if figure.recorded == 0.0 { "off by" } else { "off by %" };
        let name = format!("{}, {unit}", figure.name);
        ComparedRow::new(name, Share, better, same.each(|figure| figure.map(off)))
    };
    let rows = figures[0].iter().map(row).collect();
    Group { title: "Fidelity: the replay beside the kernel that was recorded".to_owned(), rows }
}
