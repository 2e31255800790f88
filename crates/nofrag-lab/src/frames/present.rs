//! Tables of the comparisons, and the first differences.

use std::collections::BTreeMap;

use super::outcome::{AtEnd, Cause, Followed, FramesReport, Score};
use super::{SCENARIO, names};
use crate::report::first_few;
use nofrag_show::{Cell, Section, cells, count, fixed, table_of};

pub(super) fn sections(report: &FramesReport) -> Vec<Section> {
    let mut sections = Vec::new();
    sections.extend(way(report));
    sections.extend(SCENARIO.tables.iter().filter_map(|table| {
        table.of("stretch", report.stretches.iter(), lead, |followed, column| {
            of(followed.score(column.figure.as_ref()?)).into()
        })
    }));
    sections.extend(ends(report));
    sections.extend(orders(report));
    sections.extend(causes(report));
    sections.extend(report.stretches.iter().filter_map(first_difference));
    sections.extend(report.stretches.iter().filter_map(at_end));
    sections
}

/// Shows the share of equal values, never rounded up to all of them; a dash where nothing was compared.
fn share(score: Score) -> Cell {
    match score {
        Score { of: 0, .. } => Cell::Missing,
        score if score.is_equal() => count(100.0).into(),
        Score { same, of } => fixed((1e4 * same as f64 / of as f64).floor() / 100.0, 2).into(),
    }
}

/// Shows the number of equal values, and of all.
fn of(score: Score) -> Cell {
    let [same, of] = [score.same, score.of].map(|number| count(number as f64));
    match score.of {
        0 => Cell::Missing,
        _ => Cell::about(same, format!("{same}/{of}")),
    }
}

/// Shows the stretch, without the prefix that all have; and the rules, if they are not the kernel's own.
fn lead(followed: &Followed) -> String {
    let name = followed.stretch.strip_prefix("linux-").unwrap_or(&followed.stretch);
    match followed.kernel == followed.preset {
        true => name.to_owned(),
        false => format!("{name}, {}", followed.preset),
    }
}

fn rows(report: &FramesReport, cells: impl Fn(&Followed) -> Vec<Cell>) -> Vec<Vec<Cell>> {
    let row = |followed| [cells![lead(followed)], cells(followed)].concat();
    report.stretches.iter().map(row).collect()
}

fn way(report: &FramesReport) -> Option<Section> {
    let cells = |followed: &Followed| {
        let score = |what| followed.score(what);
        cells![
            count(followed.requests as f64),
            share(followed.answers()),
            share(score(names::ZONES)),
            share(score(names::REFILLS)),
            share(score(names::DRAINS)),
            of(score(names::EXTFRAG)),
            of(score(names::FREE_LISTS) + score(names::CPU_LISTS)),
        ]
    };
    table_of(
        "The kernel's answers and the engine's, request by request",
        "A row is one stretch of a kernel, named by its version, followed from its exact state. Frames, zones: \
         percent of answers with the kernel's frame, and from its zone. Refill, drain: percent of blocks that went \
         between per-CPU lists and zones in the kernel's order. Extfrag: events equal in every field. Lists: free and \
         per-CPU lists equal at the end, position by position.",
        1,
        &["stretch", "requests", "frames", "zones", "refill", "drain", "extfrag", "lists"],
        rows(report, cells),
    )
}

fn ends(report: &FramesReport) -> Option<Section> {
    let cells = |followed: &Followed| {
        let entries = followed.score(names::FREE_ENTRIES) + followed.score(names::CPU_ENTRIES);
        let parts = [names::CPU_COUNTS, names::TYPES, names::MARKS, names::BOOSTS];
        let more = [names::FLAGS, names::POSITIONS, names::DEFERRAL];
        let scores = parts.into_iter().chain(more).map(|what| of(followed.score(what)));
        [share(entries)].into_iter().chain(scores).collect()
    };
    table_of(
        "The states at the end: how much is as in the kernel, of how much",
        "Entries: percent of positions in free and per-CPU lists. Counts: pages and factors of per-CPU lists. Types, \
         marks: pageblocks with memory (the kernel's list has others too). Boosts: zones. Flags: reclaim active, \
         below its high mark, high-atomic pages. Scans, defer: what compaction remembers.",
        1,
        &["stretch", "entries", "counts", "types", "marks", "boosts", "flags", "scans", "defer"],
        rows(report, cells),
    )
}

/// Shows answers by order, for each order that was asked for.
fn orders(report: &FramesReport) -> Option<Section> {
    let asked = |order: usize| {
        report.stretches.iter().any(|it| it.frames.get(order).is_some_and(|score| score.of > 0))
    };
    let most = report.stretches.iter().map(|followed| followed.frames.len()).max()?;
    let orders: Vec<usize> = (0..most).filter(|&order| asked(order)).collect();
    let cells = |followed: &Followed| {
        let score = |&order: &usize| followed.frames.get(order).copied().unwrap_or_default();
        let cell = |score: Score| match score.is_equal() {
            true if score.of > 0 => count(score.of as f64).into(),
            _ => of(score),
        };
        orders
            .iter()
            .map(|order| cell(score(order)))
            .chain([of(followed.score(names::BULK))])
            .collect()
    };
    let names = orders.iter().map(usize::to_string);
    let header = ["stretch".to_owned()].into_iter().chain(names).chain(["bulk".to_owned()]);
    table_of(
        "Answers by order",
        "A number: so many answers, all with the kernel's frame; two: so many with it, of how many. Bulk: pages of \
         the bulk interface, whose moments no event tells.",
        1,
        header,
        rows(report, cells),
    )
}

fn causes(report: &FramesReport) -> Option<Section> {
    let total = |causes: &BTreeMap<Cause, u64>| causes.values().sum::<u64>();
    let differing = report
        .stretches
        .iter()
        .filter(|followed| total(&followed.causes) > 0 || followed.unfollowed > 0);
    let row = |followed: &Followed| {
        let by_cause = Cause::ALL.map(|cause| followed.causes.get(&cause).copied().unwrap_or(0));
        let counts = by_cause.into_iter().chain([followed.unfollowed]);
        [cells![lead(followed)], counts.map(|number| count(number as f64).into()).collect()]
            .concat()
    };
    let causes = Cause::ALL.map(|cause| cause.into_str());
    table_of(
        "Differences on the way, by cause",
        "The engine was set right after each. Interrupted: something acted within the operation, at a moment that no \
         event tells. Bulk: pages of the bulk interface. Quick-search: since the first run of compaction, whose quick \
         searches move list entries silently; a missing rule would hide among them. Other: a rule is wrong. Not \
         followed: events that the engine could not carry out.",
        1,
        ["stretch"].into_iter().chain(causes).chain(["not followed"]),
        differing.map(row).collect(),
    )
}

/// Shows the first difference of a stretch and the events before it.
fn first_difference(followed: &Followed) -> Option<Section> {
    let first = followed.differences.first()?;
    let mut lines = vec![format!("kernel: {}", first.kernel), format!("engine: {}", first.engine)];
    lines.extend(first.events.iter().cloned());
    Some(Section::Lines {
        title: format!(
            "{}, event {}: the first difference, {} ({})",
            followed.stretch,
            count(first.line as f64),
            first.what,
            first.cause.into_str()
        ),
        lines,
    })
}

/// Shows the first differences at the end, lists before all else.
fn at_end(followed: &Followed) -> Option<Section> {
    const SHOWN: usize = 3;
    let (shown, more) = first_few(&followed.end_differences, SHOWN);
    let line = |at: &AtEnd| {
        format!("{}, {}: kernel {}; engine {}", at.zone, at.what, at.kernel, at.engine)
    };
    let lines: Vec<String> = shown.iter().map(line).chain(more).collect();
    (!lines.is_empty()).then(|| Section::Lines {
        title: format!("{}: what differs at the end", followed.stretch),
        lines,
    })
}
