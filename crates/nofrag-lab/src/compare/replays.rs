//! Replays: run by run, matched by policy and size of memory.

use nofrag::page::Migratetype;
use nofrag::units::Order;

use super::{Better, CompareError, Each, Found, Group, Machines, Row, Scale, percent};
use crate::replay::{ByOrder, ByType, Counts, FidelityFigure, PolicyRun, ReplayReport, Verdict};

use Better::{Less, More, Neither};
use Scale::{Count, Share};

pub(super) fn compare(sides: &[ReplayReport]) -> Result<(Found, Vec<String>), CompareError> {
    for other in &sides[1..] {
        refuse_other_requests(&sides[0], other)?;
    }
    let matched = matched(sides)?;
    let mut groups: Vec<Group> = matched.iter().map(|runs| group(runs)).collect();
    groups.push(fidelity(sides));
    let found = Found { machines: Machines::Same, groups };
    Ok((found, cautions(sides, &matched)))
}

/// Whoever replays other requests compares workloads, not policies.
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

/// One run of each side.
type Matched<'a> = Vec<&'a PolicyRun>;

/// The runs that all sides have with one policy and size of memory. Where each side has one run only, these.
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
            "the sides began at different seeds ({} and {}): part of each difference is chance",
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

fn group(runs: &[&PolicyRun]) -> Group {
    let mut titles = runs.each(|run| name(run));
    titles.dedup();
    let counts = &runs.each(|run| &run.counts)[..];
    let mut rows = served(counts);
    rows.extend(mixing(counts));
    rows.extend(price(counts));
    rows.extend(end(runs));
    Group { title: titles.join(", then "), rows }
}

/// The share of requests that were served, over all orders and for each.
fn served(sides: &[&Counts]) -> Vec<Row> {
    let sum =
        |by_order: &ByOrder| by_order.iter().fold(0_u64, |sum, &each| sum.saturating_add(each));
    let mut rows = vec![
        Row::new("requests", Count, Neither, sides.each(|side| Some(sum(&side.requests) as f64))),
        Row::new(
            "requests served, %",
            Share,
            More,
            sides.each(|side| percent(sum(&side.served), sum(&side.requests))),
        ),
    ];
    for order in 0..Order::COUNT {
        let share = |side: &&Counts| percent(side.served[order], side.requests[order]);
        if sides.iter().any(|side| side.requests[order] > 0) {
            rows.push(Row::new(
                format!("served at order {order}, %"),
                Share,
                More,
                sides.each(share),
            ));
        }
    }
    let slow = sides.each(|side| Some(sum(&side.slow) as f64));
    rows.push(Row::new("requests past the fast path", Count, Less, slow));
    rows
}

/// What was placed among pages of other types.
fn mixing(sides: &[&Counts]) -> Vec<Row> {
    let mut rows = Vec::new();
    type Kind = (&'static str, fn(&Counts) -> &ByType);
    let kinds: [Kind; 3] = [
        ("external fragmentation events", |counts| &counts.extfrag),
        ("of these below order 4", |counts| &counts.serious),
        ("blocks from pageblocks of other types", |counts| &counts.mistyped),
    ];
    for (what, by_type) in kinds {
        let sides = sides.each(|side| by_type(side));
        let sum = |side: &&ByType| {
            Some(side.iter().fold(0_u64, |sum, &each| sum.saturating_add(each)) as f64)
        };
        rows.push(Row::new(what, Count, Less, sides.each(sum)));
        for migratetype in Migratetype::ALL {
            let of_type = sides.each(|side| side[migratetype.index()]);
            if of_type.iter().any(|count| *count > 0) {
                let name = format!("{what}, {}", migratetype.name());
                rows.push(Row::new(name, Count, Less, of_type.each(|count| Some(*count as f64))));
            }
        }
    }
    rows
}

/// What it cost.
fn price(sides: &[&Counts]) -> Vec<Row> {
    type Figure = (&'static str, Better, fn(&Counts) -> u64);
    let figures: [Figure; 10] = [
        ("pageblocks that changed their type", Neither, |counts| counts.claims),
        ("pages moved", Less, |counts| counts.moved),
        ("direct compactions", Less, |counts| counts.compactions),
        ("pages reclaimed by callers", Less, |counts| counts.reclaimed_direct),
        ("pages reclaimed by kswapd", Less, |counts| counts.reclaimed_kswapd),
        ("entries into direct reclaim", Less, |counts| counts.direct_reclaims),
        ("wakes of kswapd", Less, |counts| counts.kswapd_wakes),
        ("boosts of watermarks", Neither, |counts| counts.boosts),
        ("stalls of callers", Less, |counts| counts.stalls),
        ("time stalled, ns of the recording", Less, |counts| counts.stalled_nanos),
    ];
    let row = |(name, better, figure): Figure| {
        Row::new(name, Count, better, sides.each(|side| Some(figure(side) as f64)))
    };
    figures.into_iter().map(row).collect()
}

/// The state at the end, and over time.
fn end(sides: &[&PolicyRun]) -> Vec<Row> {
    let last = sides.each(|run| run.timeline.last());
    let whole = |run: &&PolicyRun| {
        let each = run.timeline.iter().map(|sample| sample.free_in_pageblocks as f64);
        let samples = run.timeline.len() as f64;
        (samples > 0.0).then(|| each.sum::<f64>() / samples)
    };
    vec![
        Row::new(
            "largest free order at the end",
            Share,
            More,
            // No block at all is less than one of order 0.
            last.each(|sample| sample.map(|sample| sample.largest.map_or(-1.0, f64::from))),
        ),
        Row::new(
            "wholly free pageblocks at the end",
            Count,
            More,
            last.each(|sample| sample.map(|sample| sample.pageblocks.free as f64)),
        ),
        Row::new(
            "pageblocks that hold something unmovable at the end",
            Count,
            Less,
            last.each(|sample| sample.map(|sample| sample.pageblocks.pinned as f64)),
        ),
        Row::new("free pages in whole pageblocks, mean over time", Count, More, sides.each(whole)),
        Row::new(
            "requests that the kernel served and the policy did not",
            Count,
            Less,
            sides.each(|run| Some(run.assumptions.not_served as f64)),
        ),
    ]
}

/// How near each side's replay under the recorded kernel's rules comes to what that kernel did.
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
        Row::new(name, Share, better, same.each(|figure| figure.map(off)))
    };
    let rows = figures[0].iter().map(row).collect();
    Group { title: "Fidelity: the replay beside the kernel that was recorded".to_owned(), rows }
}
