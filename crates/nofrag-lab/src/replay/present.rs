//! Tables and pictures of a replay: what each policy would have done with the requests, and what that would have cost.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use nofrag::page::Migratetype;
use nofrag::units::Order;

use super::addresses;
use super::outcome::{
    Assumptions, ByOrder, ByType, Counts, Fidelity, ORDERS, PolicyRun, Query, Recorded,
    ReplayReport, Tolerance, Verdict,
};
use crate::oracle::Withdrawn;
use crate::render::{Section, count, duration, number, table_of};

/// Everything that people read of a replay.
#[must_use]
pub fn sections(report: &ReplayReport) -> Vec<Section> {
    let mut sections = vec![heading(report)];
    sections.extend(report.fidelity.as_ref().and_then(answers));
    sections.extend(policies(report));
    sections.extend(mixing(report));
    sections.extend(price(report));
    sections.extend(success(report));
    sections.extend(curves(report));
    sections.extend(course(report));
    sections.extend(whole_blocks(report));
    sections.extend(report.fidelity.as_ref().and_then(fidelity));
    sections.extend(of_the_trace(report));
    if !report.unseen.sentences.is_empty() {
        sections.push(Section::Lines {
            title: "What tracepoints cannot tell".to_owned(),
            lines: report.unseen.sentences.clone(),
        });
    }
    sections.extend(assumptions(report));
    sections.extend(addresses::tables(report.vmap.as_ref(), report.mmap.as_ref()));
    sections.push(Section::Lines {
        title: "What this does not say".to_owned(),
        lines: report.cautions.clone(),
    });
    sections
}

/// What was replayed.
fn heading(report: &ReplayReport) -> Section {
    let Recorded { events, lost, gaps, nanos, requests, moved, .. } = &report.recorded;
    let release = report.release.as_deref().unwrap_or("an unknown kernel");
    let loss = match (lost, gaps) {
        (0, 0) => "none lost".to_owned(),
        (0, gaps) => format!("an unknown number lost at {} places", count(*gaps as f64)),
        (lost, _) => format!("{} lost", count(*lost as f64)),
    };
    let policies: Vec<&str> = report.runs.iter().map(|run| run.policy.as_str()).collect();
    let mut lines = vec![
        format!(
            "{}: Linux {release}; {} events in {} of its clock, {loss}",
            report.trace,
            count(*events as f64),
            duration(*nanos as f64 / 1e9)
        ),
        format!(
            "the kernel: {} requests, {} external fragmentation events, {} pages moved by compaction",
            count(total(requests) as f64),
            count(report.recorded.extfrag.iter().sum::<u64>() as f64),
            count(*moved as f64)
        ),
    ];
    let slower = report.recorded.slower;
    if slower > 0 {
        lines.push(format!(
            "kswapd and kcompactd work at the host's pace: by its page faults it is {slower} times as slow as the \
             table of costs has it"
        ));
    }
    if let (Some(slowest), false) = (slowest(report), policies.is_empty()) {
        lines.push(format!(
            "{} start values from {} on; {} ns an event in the slowest run",
            report.repeats,
            report.seed,
            number(slowest)
        ));
    }
    Section::Lines { title: "Replay".to_owned(), lines }
}

/// Wall time for each event of the slowest run, in nanoseconds.
fn slowest(report: &ReplayReport) -> Option<f64> {
    let events = report.recorded.events.max(1) as f64;
    let slowest = report.runs.iter().map(|run| run.wall_nanos).max()?;
    (slowest > 0).then(|| slowest as f64 / events)
}

fn total(by_order: &ByOrder) -> u64 {
    by_order.iter().sum()
}

/// The rows of a table with a row for each run, which has a name and cells.
fn rows_of(report: &ReplayReport, cells: impl Fn(&PolicyRun) -> Vec<String>) -> Vec<Vec<String>> {
    let several = report.runs.iter().any(|run| run.memory_percent != 100);
    let row = |run: &PolicyRun| [vec![name_of(run, several)], cells(run)].concat();
    report.runs.iter().map(row).collect()
}

fn name_of(run: &PolicyRun, several_sizes: bool) -> String {
    match several_sizes {
        true => format!("{}, {} %", run.policy, run.memory_percent),
        false => run.policy.clone(),
    }
}

/// How a verdict is written.
const fn written(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Off => "OFF",
        Verdict::Wide => "too wide",
        Verdict::TooFew => "too few",
    }
}

/// Which questions can be answered: the first thing to know of a replay.
fn answers(fidelity: &Fidelity) -> Option<Section> {
    let rows = fidelity.answers.iter().flat_map(|answer| {
        let of = fidelity.figures.iter().filter(|figure| figure.carries.contains(&answer.query));
        let main = of.clone().next();
        let others = of.filter(|figure| answer.rests_on.contains(&figure.name));
        let shown = main.into_iter().chain(others.filter(move |other| Some(*other) != main));
        shown.enumerate().map(|(number, figure)| {
            let question =
                if number == 0 { answer.query.short().to_owned() } else { String::new() };
            let can = match (number, answer.verdict) {
                (0, Verdict::Holds) => "yes",
                (0, _) => "no",
                _ => "",
            };
            vec![
                question,
                can.to_owned(),
                figure.name.clone(),
                count(figure.recorded),
                figure.replayed.to_string(),
                written(figure.verdict).to_owned(),
            ]
        })
    });
    let caption = format!(
        "Under {} this replay gives what stands here, and the recorded kernel gave the column before it: the middle of \
         all start values, and the least and most in brackets. A question is answered only where \
         all figures that it rests on hold: the middle is within the bound, and the start values lie no farther apart \
         than it is wide.",
        fidelity.preset
    );
    table_of(
        "What can be said",
        &caption,
        3,
        &["asked", "answered", "rests on", "kernel", "replay", "verdict"],
        rows.collect(),
    )
}

/// What the policies do, as far as it can be said.
fn policies(report: &ReplayReport) -> Option<Section> {
    let fidelity = report.fidelity.as_ref()?;
    let asked: Vec<Query> =
        Query::ALL.into_iter().filter(|query| fidelity.answers(*query)).collect();
    if asked.is_empty() {
        return None;
    }
    let own =
        report.runs.iter().find(|run| run.policy == fidelity.preset && run.memory_percent == 100);
    let rows = rows_of(report, |run| {
        let cell = |&query: &Query| {
            let range = run.answer(query);
            let differs = own.filter(|own| own.policy != run.policy || run.memory_percent != 100);
            match differs.map(|own| own.answer(query)) {
                Some(own) if range.overlaps(&own) => format!("{range} ="),
                Some(own) if range.most < own.least => format!("{range} less"),
                Some(_) => format!("{range} more"),
                None => range.to_string(),
            }
        };
        asked.iter().map(cell).collect()
    });
    let header: Vec<&str> =
        ["policy"].into_iter().chain(asked.iter().map(|query| query.short())).collect();
    let caption = format!(
        "Only what can be said. Less and more: than under {}, outside the range of all start values; = is no \
         difference. After Linux 6.9 each stolen page is an event, before each stolen block: events compare among \
         kernels of one side.",
        fidelity.preset
    );
    table_of("What the policies do", &caption, 1, &header, rows)
}

fn mixing(report: &ReplayReport) -> Option<Section> {
    let recorded = &report.recorded.extfrag;
    let sum = |by_type: &[u64]| count(by_type.iter().sum::<u64>() as f64);
    let of = |by_type: &[u64], migratetype: Migratetype| count(by_type[migratetype.index()] as f64);
    let mut rows = vec![vec![
        "recorded".to_owned(),
        sum(recorded),
        of(recorded, Migratetype::Unmovable),
        of(recorded, Migratetype::Reclaimable),
        of(recorded, Migratetype::Movable),
        "-".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
    ]];
    rows.extend(rows_of(report, |run| {
        let sum = |of: fn(&Counts) -> &ByType| run.range(|it| of(it).iter().sum()).to_string();
        let kind = |kind: Migratetype| run.range(|it| it.extfrag[kind.index()]).to_string();
        vec![
            sum(|it| &it.extfrag),
            kind(Migratetype::Unmovable),
            kind(Migratetype::Reclaimable),
            kind(Migratetype::Movable),
            sum(|it| &it.serious),
            sum(|it| &it.mistyped),
            run.range(|it| it.claims).to_string(),
        ]
    }));
    table_of(
        "Types that mix: external fragmentation events, by the type asked for",
        &withdrawn(
            "A row is one policy with the recorded requests. Serious: the free block was below order 4. Mistyped: \
             blocks handed out from pageblocks of another type. Claimed: pageblocks that changed their type. Before \
             and after Linux 6.10 an event means different things; mistyped blocks mean the same.",
        ),
        1,
        &["policy", "events", "unmov.", "reclaim.", "movable", "serious", "mistyped", "claimed"],
        rows,
    )
}

fn price(report: &ReplayReport) -> Option<Section> {
    let recorded = &report.recorded;
    let none = || "-".to_owned();
    let mut rows = vec![vec![
        "recorded".to_owned(),
        count(recorded.moved as f64),
        count(recorded.compactions as f64),
        count(recorded.reclaimed_direct as f64),
        none(),
        count(recorded.direct_reclaims as f64),
        none(),
        none(),
    ]];
    rows.extend(rows_of(report, |run| {
        let of = |of: fn(&Counts) -> u64| run.range(of).to_string();
        let stalls = match run.range(|it| it.stalls) {
            stalls if stalls.most == 0.0 => "0".to_owned(),
            stalls => {
                let waited = run.range(|it| it.stalled_nanos).median;
                format!("{stalls} ({})", duration(waited / 1e9))
            }
        };
        let succeeded = run.range(|it| it.compactions_succeeded);
        vec![
            of(|it| it.moved),
            format!("{succeeded} / {}", of(|it| it.compactions)),
            of(|it| it.reclaimed_direct),
            of(|it| it.reclaimed_kswapd),
            of(|it| it.direct_reclaims),
            of(|it| it.boosts),
            stalls,
        ]
    }));
    table_of(
        "What it costs",
        &withdrawn(
            "Pages moved and reclaimed by the policy itself, in place of what the recorded kernel did; runs of direct \
             compaction that gave a block, of all; entries into direct reclaim; watermarks raised; waits of callers.",
        ),
        1,
        &["policy", "moved", "compact.", "direct", "kswapd", "entries", "boosts", "stalls"],
        rows,
    )
}

/// A caption of a table in which policies are compared.
fn withdrawn(text: &str) -> String {
    format!("{text} The comparison of policies is {}.", Withdrawn::AgainstKernels.label())
}

fn success(report: &ReplayReport) -> Option<Section> {
    let share = |run: &PolicyRun, orders: &RangeInclusive<usize>| {
        let sum = |by_order: &ByOrder| by_order[orders.clone()].iter().sum::<u64>();
        let asked = run.range(|it| sum(&it.requests)).median;
        let failed = run.range(|it| sum(&it.requests).saturating_sub(sum(&it.served)));
        let slow = run.range(|it| sum(&it.slow));
        match (asked, failed.most, slow.most) {
            (0.0, ..) => "-".to_owned(),
            (_, 0.0, 0.0) => count(asked),
            _ => format!("{} -{failed} ~{slow}", count(asked)),
        }
    };
    let recorded = ORDERS.iter().map(|(_, orders)| {
        let sum = |by_order: &ByOrder| by_order[orders.clone()].iter().sum::<u64>();
        match (sum(&report.recorded.requests), sum(&report.recorded.failures)) {
            (0, _) => "-".to_owned(),
            (asked, 0) => count(asked as f64),
            (asked, failed) => format!("{} -{failed}", count(asked as f64)),
        }
    });
    let mut rows = vec![["recorded".to_owned()].into_iter().chain(recorded).collect()];
    rows.extend(rows_of(report, |run| {
        ORDERS.iter().map(|(_, orders)| share(run, orders)).collect()
    }));
    let header: Vec<&str> =
        ["policy"].into_iter().chain(ORDERS.iter().map(|(name, _)| *name)).collect();
    table_of(
        "Requests by order",
        "How many there were; -n of them were not served, ~n needed the slow path.",
        1,
        &header,
        rows,
    )
}

/// Fewer values of a setting are read in the tables.
const CURVE: usize = 3;

/// What a setting does, where it has several values and all else is the same.
fn curves(report: &ReplayReport) -> Vec<Section> {
    let mut curves: BTreeMap<_, BTreeMap<u64, &PolicyRun>> = BTreeMap::new();
    for run in &report.runs {
        for (setting, &value) in &run.settings {
            let mut rest = run.settings.clone();
            rest.remove(setting);
            let preset = run.policy.split(':').next().unwrap_or_default();
            let of = (preset, run.memory_percent, rest, setting.as_str());
            curves.entry(of).or_default().insert(value, run);
        }
    }
    let of_run = |run: &PolicyRun| {
        [
            ("external fragmentation events", run.answer(Query::Events).median),
            ("requests of order 9 served", run.answer(Query::Huge).median),
        ]
    };
    let draw =
        |((preset, _, _, setting), points): (&(&str, u32, _, &str), &BTreeMap<u64, &PolicyRun>)| {
            let (Some((least, first)), Some((most, _))) =
                (points.first_key_value(), points.last_key_value())
            else {
                return Vec::new();
            };
            if points.len() < CURVE {
                return Vec::new();
            }
            let figures = of_run(first).into_iter().enumerate();
            let chart = |(figure, (what, _)): (usize, (&str, f64))| {
                let values = points.values().map(|run| of_run(run)[figure].1).collect();
                Section::Chart {
                    title: format!("{preset} by {setting}: {what}"),
                    caption: format!("One point for each of its {} values.", points.len()),
                    ends: [least, most].map(|value| format!("{setting} {value}")),
                    layers: vec![((*preset).to_owned(), values)],
                }
            };
            figures.map(chart).collect::<Vec<_>>()
        };
    curves.iter().flat_map(draw).collect()
}

/// The runs of a picture: three at most, since more cannot be told apart.
fn pictured(report: &ReplayReport) -> Vec<&PolicyRun> {
    let whole: Vec<&PolicyRun> = report
        .runs
        .iter()
        .filter(|run| run.memory_percent == report.runs[0].memory_percent)
        .collect();
    match whole.as_slice() {
        [first, .., before, last] => vec![first, before, last],
        few => few.to_vec(),
    }
}

/// Pages in a MiB, as x86-64 has them.
const PER_MIB: f64 = 256.0;

fn course(report: &ReplayReport) -> Option<Section> {
    let runs = pictured(report);
    if runs.iter().any(|run| run.timeline.len() < 2) || runs.is_empty() {
        return None;
    }
    let series = |run: &&PolicyRun| {
        let values = run.timeline.iter().map(|sample| sample.free_in_pageblocks as f64 / PER_MIB);
        (run.policy.clone(), values.collect())
    };
    Some(Section::Chart {
        title: "Free memory in whole pageblocks over time, MiB".to_owned(),
        caption: "What huge pages could still be made of without moving anything.".to_owned(),
        ends: ["first event".to_owned(), "last event".to_owned()],
        layers: runs.iter().map(series).collect(),
    })
}

fn whole_blocks(report: &ReplayReport) -> Option<Section> {
    let rows = rows_of(report, |run| {
        let samples = || run.timeline.iter();
        let order = |order: Option<u32>| order.map_or("-".to_owned(), |order| order.to_string());
        let least = samples().map(|sample| sample.largest).min().flatten();
        let with_huge = samples()
            .filter(|sample| sample.largest.is_some_and(|o| o >= u32::from(Order::PAGEBLOCK.get())))
            .count();
        let share = 100.0 * with_huge as f64 / run.timeline.len().max(1) as f64;
        let Some(end) = run.timeline.last() else { return vec!["-".to_owned(); 7] };
        vec![
            order(least),
            order(end.largest),
            format!("{share:.0} %"),
            count(end.free as f64),
            count(end.pageblocks.free as f64),
            count(end.pageblocks.movable as f64),
            count(end.pageblocks.pinned as f64),
        ]
    });
    table_of(
        "The largest free block over time, and pageblocks at the end",
        "The least and the last order of the largest free block, and the share of samples in which a whole pageblock \
         was free; then free pages, and pageblocks that are free, could be freed by moving pages, or hold what cannot \
         be moved.",
        1,
        &["policy", "least", "last", "order 9", "free", "whole", "movable", "pinned"],
        rows,
    )
}

fn fidelity(fidelity: &Fidelity) -> Option<Section> {
    let rows = fidelity.figures.iter().map(|figure| {
        let within = match figure.tolerance {
            Tolerance::Percent(percent) => format!("{} %", number(percent)),
            Tolerance::PercentOr(percent, or) => format!("{} % or {}", number(percent), number(or)),
            Tolerance::FactorOr(factor, or) => format!("{}x or {}", number(factor), number(or)),
        };
        vec![
            figure.name.clone(),
            written(figure.verdict).to_owned(),
            count(figure.recorded),
            figure.replayed.to_string(),
            within,
        ]
    });
    table_of(
        &format!("How far to trust it: {} beside the kernel itself", fidelity.preset),
        "A row is one figure, over the recording or at its end: what the kernel recorded, and what the replay under \
         its rules has. It holds if the middle is within the bound and the start values lie no farther apart than it \
         is wide. Free pages are bound by two percent, or by what the events alone miss of them.",
        2,
        &["figure", "verdict", "kernel", "replay", "within"],
        rows.collect(),
    )
}

/// What had to be assumed of the trace, whatever the policy.
fn of_the_trace(report: &ReplayReport) -> Option<Section> {
    let first = &report.runs.first()?.assumptions;
    let line =
        |value: u64, what: &str| (value > 0).then(|| format!("{} {what}", count(value as f64)));
    let lines = [
        line(first.older_frees, "frees of what was in use at the start"),
        line(
            first.migration_targets,
            "pages moved by the recorded kernel, to frames that no event names",
        ),
        line(first.resolved_migrations, "frees of frames that these pages can have come to"),
        line(first.targets_returned, "frees of targets that the recorded kernel did not use"),
        line(first.unknown_frees, "frees that nothing explains, ignored"),
        line(first.implicit_frees, "requests for frames believed in use: their free was not seen"),
        line(first.splits, "frees of a part of a block, or of another order than the request's"),
        line(first.foreign, "requests and frees of frames that the snapshot does not have"),
        line(first.resynchronised, "frames set right at snapshots during the recording"),
    ];
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    let title = "What had to be assumed of the recording".to_owned();
    (!lines.is_empty()).then_some(Section::Lines { title, lines })
}

fn assumptions(report: &ReplayReport) -> Option<Section> {
    let rows = rows_of(report, |run| {
        let Assumptions {
            not_served,
            reclaimed_before,
            dropped_at_start,
            swapped_at_start,
            displaced_at_start,
            stood_in,
            in_pieces,
            ..
        } = run.assumptions;
        let lost = [dropped_at_start, swapped_at_start, displaced_at_start];
        [&[not_served, stood_in, in_pieces, reclaimed_before][..], &lost]
            .concat()
            .into_iter()
            .map(|value| count(value as f64))
            .collect()
    });
    table_of(
        "What had to be assumed of each policy",
        "Requests that the recorded kernel served and this policy could not: what their callers would have done \
         is not replayed. Single pages that were not asked for, as this policy had served the huge page in whose \
         place they came; huge pages that it refused, for which single ones were asked instead. Frees of pages that \
         the policy had reclaimed itself. Pages that were dropped, swapped out or put elsewhere at the start, since \
         there is less memory.",
        1,
        &[
            "policy",
            "not served",
            "stood in",
            "in pieces",
            "reclaimed before",
            "dropped",
            "swapped",
            "displaced",
        ],
        rows,
    )
}
