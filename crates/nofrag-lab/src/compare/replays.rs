//! Two replays: run by run, matched by policy and size of memory.

use nofrag::page::Migratetype;

use super::{Better, CompareError, Found, Group, Machines, Row, Scale, percent};
use crate::replay::{ByOrder, ByType, Counts, PolicyRun, ReplayReport, Verdict};

use Better::{Less, More, Neither};
use Scale::{Count, Share};

pub(super) fn compare(
    old: &ReplayReport,
    new: &ReplayReport,
) -> Result<(Found, Vec<String>), CompareError> {
    refuse_other_requests(old, new)?;
    let pairs = pairs(old, new)?;
    let mut groups: Vec<Group> = pairs.iter().map(|(old, new)| group(old, new)).collect();
    groups.push(fidelity(old, new));
    let found = Found { machines: Machines::Same, groups };
    Ok((found, cautions(old, new, &pairs)))
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

type Pair<'a> = (&'a PolicyRun, &'a PolicyRun);

/// The runs of both sides with one policy and size of memory. Where each side has one run only, these two.
fn pairs<'a>(old: &'a ReplayReport, new: &'a ReplayReport) -> Result<Vec<Pair<'a>>, CompareError> {
    let matched = old.runs.iter().filter_map(|run| Some((run, partner(run, &new.runs)?)));
    let matched: Vec<Pair<'a>> = matched.collect();
    match (matched.is_empty(), old.runs.as_slice(), new.runs.as_slice()) {
        (false, ..) => Ok(matched),
        (true, [old], [new]) => Ok(vec![(old, new)]),
        _ => Err(CompareError::NothingInCommon(format!(
            "no policy was replayed with the same size of memory on both sides: {} there, {} here",
            names(&old.runs),
            names(&new.runs)
        ))),
    }
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

fn cautions(old: &ReplayReport, new: &ReplayReport, pairs: &[Pair<'_>]) -> Vec<String> {
    let mut cautions = Vec::new();
    if old.seed != new.seed {
        cautions.push(format!(
            "the sides began at different seeds ({} and {}): part of each difference is chance",
            old.seed, new.seed
        ));
    }
    if old.trace != new.trace {
        cautions.push(format!(
            "the recordings have different names ({} and {}); their requests agree in number and time, and are taken \
             for the same",
            old.trace, new.trace
        ));
    }
    for (side, runs) in [("old", &old.runs), ("new", &new.runs)] {
        let paired = |run: &PolicyRun| pairs.iter().any(|(a, b)| *a == run || *b == run);
        let alone: Vec<PolicyRun> = runs.iter().filter(|run| !paired(run)).cloned().collect();
        if !alone.is_empty() {
            cautions.push(format!("only the {side} side has {}", names(&alone)));
        }
    }
    cautions.extend(old.cautions.iter().chain(&new.cautions).cloned());
    cautions.dedup();
    cautions
}

fn group(old: &PolicyRun, new: &PolicyRun) -> Group {
    let title = match name(old) == name(new) {
        true => name(old),
        false => format!("{}, then {}", name(old), name(new)),
    };
    let mut rows = served(&old.counts, &new.counts);
    rows.extend(mixing(&old.counts, &new.counts));
    rows.extend(price(&old.counts, &new.counts));
    rows.extend(end(old, new));
    Group { title, rows }
}

/// The share of requests that were served, over all orders and for each.
fn served(old: &Counts, new: &Counts) -> Vec<Row> {
    let sum =
        |by_order: &ByOrder| by_order.iter().fold(0_u64, |sum, &each| sum.saturating_add(each));
    let sides = [old, new];
    let mut rows = vec![
        Row::new("requests", Count, Neither, sides.map(|side| Some(sum(&side.requests) as f64))),
        Row::new(
            "requests served, %",
            Share,
            More,
            sides.map(|side| percent(sum(&side.served), sum(&side.requests))),
        ),
    ];
    for order in 0..old.requests.len() {
        let share = |side: &Counts| percent(side.served[order], side.requests[order]);
        if sides.iter().any(|side| side.requests[order] > 0) {
            rows.push(Row::new(
                format!("served at order {order}, %"),
                Share,
                More,
                sides.map(share),
            ));
        }
    }
    let slow = sides.map(|side| Some(sum(&side.slow) as f64));
    rows.push(Row::new("requests past the fast path", Count, Less, slow));
    rows
}

/// What was placed among pages of other types.
fn mixing(old: &Counts, new: &Counts) -> Vec<Row> {
    let mut rows = Vec::new();
    type Kind = (&'static str, fn(&Counts) -> &ByType);
    let kinds: [Kind; 3] = [
        ("external fragmentation events", |counts| &counts.extfrag),
        ("of these below order 4", |counts| &counts.serious),
        ("blocks from pageblocks of other types", |counts| &counts.mistyped),
    ];
    for (what, by_type) in kinds {
        let sides = [old, new].map(by_type);
        let sum = |side: &ByType| {
            Some(side.iter().fold(0_u64, |sum, &each| sum.saturating_add(each)) as f64)
        };
        rows.push(Row::new(what, Count, Less, sides.map(sum)));
        for migratetype in Migratetype::ALL {
            let of_type = sides.map(|side| side[migratetype.index()]);
            if of_type != [0, 0] {
                let name = format!("{what}, {}", migratetype.name());
                rows.push(Row::new(name, Count, Less, of_type.map(|count| Some(count as f64))));
            }
        }
    }
    rows
}

/// What it cost.
fn price(old: &Counts, new: &Counts) -> Vec<Row> {
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
        Row::new(name, Count, better, [old, new].map(|side| Some(figure(side) as f64)))
    };
    figures.into_iter().map(row).collect()
}

/// The state at the end, and over time.
fn end(old: &PolicyRun, new: &PolicyRun) -> Vec<Row> {
    let sides = [old, new];
    let last = sides.map(|run| run.timeline.last());
    let whole = |run: &PolicyRun| {
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
            last.map(|sample| sample.map(|sample| sample.largest.map_or(-1.0, f64::from))),
        ),
        Row::new(
            "wholly free pageblocks at the end",
            Count,
            More,
            last.map(|sample| sample.map(|sample| sample.pageblocks.free as f64)),
        ),
        Row::new(
            "pageblocks that hold something unmovable at the end",
            Count,
            Less,
            last.map(|sample| sample.map(|sample| sample.pageblocks.pinned as f64)),
        ),
        Row::new("free pages in whole pageblocks, mean over time", Count, More, sides.map(whole)),
        Row::new(
            "requests that the kernel served and the policy did not",
            Count,
            Less,
            sides.map(|run| Some(run.assumptions.not_served as f64)),
        ),
    ]
}

/// How near each side's replay under the recorded kernel's rules comes to what that kernel did.
fn fidelity(old: &ReplayReport, new: &ReplayReport) -> Group {
    let mut rows = Vec::new();
    let figures =
        |report: &ReplayReport| report.fidelity.clone().map_or(Vec::new(), |found| found.figures);
    let (old, new) = (figures(old), figures(new));
    let off = |figure: &crate::replay::FidelityFigure| match figure.recorded {
        0.0 => (figure.replayed - figure.recorded).abs(),
        recorded => (figure.replayed - recorded).abs() / recorded.abs() * 100.0,
    };
    for figure in &old {
        let partner = new.iter().find(|other| other.name == figure.name);
        let mut judged = [Some(figure), partner].into_iter().flatten();
        let too_few = judged.any(|side| side.verdict == Verdict::TooFew);
        let better = if too_few { Neither } else { Less };
        let unit = if figure.recorded == 0.0 { "off by" } else { "off by %" };
        let sides = [Some(off(figure)), partner.map(off)];
        rows.push(Row::new(format!("{}, {unit}", figure.name), Share, better, sides));
    }
    Group { title: "Fidelity: the replay beside the kernel that was recorded".to_owned(), rows }
}
