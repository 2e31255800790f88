//! Tables and pictures of a replay: the work of each policy on the requests, and its costs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use nofrag::page::Migratetype;
use nofrag::units::Order;

use super::addresses;
use super::cautions::UNCONFIRMED;
use super::outcome::{
    Assumptions, ByOrder, ByType, Counts, Fidelity, Foretold, ORDERS, PolicyRun, Query, Range,
    Recorded, Repeat, ReplayReport, Sample, Tolerance, Verdict, events_of, figures, served,
};
use super::says::{Rests, Says};
use nofrag_show::host::trace::not_whole;
use nofrag_show::{Cell, Section, Tone, cells, count, duration, number, ratio, table_of};

/// Returns all tables, pictures and sentences of a report on a replay.
#[must_use]
pub fn sections(report: &ReplayReport) -> Vec<Section> {
    let mut sections = vec![heading(report)];
    sections.extend(report.fidelity.as_ref().and_then(answers));
    sections.extend(report.against.iter().filter_map(beside));
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

/// Returns the recording, its kernel, its length and its losses in a line.
pub(super) fn of_recording(report: &ReplayReport) -> String {
    let Recorded { events, lost, gaps, nanos, .. } = &report.recorded;
    let release = report.release.as_deref().unwrap_or("an unknown kernel");
    let loss = match (lost, gaps) {
        (0, 0) => "none lost".to_owned(),
        (0, gaps) => format!("an unknown number lost at {} places", count(*gaps as f64)),
        (lost, _) => format!("{} lost", count(*lost as f64)),
    };
    format!(
        "{}: Linux {release}; {} events in {} of its clock, {loss}",
        report.trace,
        count(*events as f64),
        duration(*nanos as f64 / 1e9)
    )
}

/// Returns the lines about the recording and the runs, the loss of events before all others.
fn heading(report: &ReplayReport) -> Section {
    let Recorded { requests, moved, .. } = &report.recorded;
    let mut lines = vec![
        of_recording(report),
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
    if let Some(slowest) = slowest(report) {
        lines.push(format!(
            "{} start values from {} on; {} ns an event in the slowest run",
            report.repeats,
            report.seed,
            number(slowest)
        ));
    }
    let title = not_whole(report.recorded.loss()).unwrap_or_else(|| "Replay".to_owned());
    Section::Lines { title, lines }
}

/// Returns the wall time for each event of the slowest run, in nanoseconds.
fn slowest(report: &ReplayReport) -> Option<f64> {
    let events = report.recorded.events.max(1) as f64;
    let slowest =
        report.runs.iter().flat_map(|run| &run.repeats).map(|repeat| repeat.wall_nanos).max()?;
    (slowest > 0).then(|| slowest as f64 / events)
}

fn total(by_order: &ByOrder) -> u64 {
    by_order.iter().sum()
}

/// Returns the rows of a table with a row for each run: its name and its cells.
pub(super) fn rows_of(
    report: &ReplayReport,
    cells: impl Fn(&PolicyRun) -> Vec<Cell>,
) -> Vec<Vec<Cell>> {
    let several = report.runs.iter().any(|run| run.memory_percent != 100);
    let row = |run: &PolicyRun| [cells![name_of(run, several)], cells(run)].concat();
    report.runs.iter().map(row).collect()
}

fn name_of(run: &PolicyRun, several_sizes: bool) -> String {
    let name = match several_sizes {
        true => format!("{}, {} %", run.policy, run.memory_percent),
        false => run.policy.clone(),
    };
    if run.out_of_memory().is_some() { format!("{name} (too small)") } else { name }
}

/// Returns a verdict as tables show it.
pub(super) fn written(verdict: Verdict) -> Cell {
    match verdict {
        Verdict::Holds => Cell::judged(Tone::Good, "holds"),
        Verdict::Off => Cell::judged(Tone::Bad, "OFF"),
        Verdict::Wide => Cell::from("too wide"),
        Verdict::TooFew => Cell::judged(Tone::Warning, "too few"),
    }
}

/// Returns the table of questions that can be answered: the first thing to know of a replay.
fn answers(fidelity: &Fidelity) -> Option<Section> {
    let rows = fidelity.answers.iter().flat_map(|answer| {
        fidelity.behind(answer).enumerate().map(|(number, figure)| {
            let question = if number == 0 { answer.query.short() } else { "" };
            let can = match (number, answer.verdict) {
                (0, Verdict::Holds) => "yes",
                (0, _) => "no",
                _ => "",
            };
            let (recorded, verdict) = (count(figure.recorded), written(figure.verdict));
            cells![question, can, figure.name.name(), recorded, figure.replayed, verdict]
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
        rows.collect::<Vec<_>>(),
    )
}

/// Returns the table of what the policies do, as far as it can be said.
fn policies(report: &ReplayReport) -> Option<Section> {
    let caption = format!(
        "Only what can be said. Less and more: than under {}, outside the range of all start values; = is no \
         difference. After Linux 6.9 each stolen page is an event, before each stolen block: events of policies of \
         the other side stand without a word.",
        report.fidelity.as_ref()?.preset
    );
    policies_of(report, usize::MAX, &caption, |says, run, query| says.answer(run, query))
}

/// Returns a table of what the first `most` policies do, where it can be said, in the cells of `cell`.
pub(super) fn policies_of(
    report: &ReplayReport,
    most: usize,
    caption: &str,
    cell: impl Fn(&Says<'_>, &PolicyRun, Query) -> Cell,
) -> Option<Section> {
    let fidelity = report.fidelity.as_ref()?;
    let asked = || Query::ALL.into_iter().filter(|query| fidelity.answers(*query));
    asked().next()?;
    let says = Says::of(report);
    let rows = rows_of(report, |run| {
        let cell = |query| says.cell(run, Rests::On(query), || cell(&says, run, query));
        asked().map(cell).collect()
    });
    let header: Vec<&str> =
        ["policy"].into_iter().chain(asked().map(|query| query.short())).collect();
    table_of("What the policies do", caption, 1, &header, rows.into_iter().take(most).collect())
}

/// A column of a table of runs.
struct Column<'a> {
    name: &'a str,
    rests: Rests<'a>,
    /// The kernel's own count, where that is known.
    recorded: Option<u64>,
    of: Box<dyn Fn(&PolicyRun) -> Cell + 'a>,
}

impl<'a> Column<'a> {
    fn new(
        name: &'a str,
        rests: Rests<'a>,
        recorded: Option<u64>,
        of: impl Fn(&Counts) -> u64 + 'a,
    ) -> Column<'a> {
        let of = Box::new(move |run: &PolicyRun| run.range(&of).into());
        Column { name, rests, recorded, of }
    }
}

/// Returns a table with a row for the recorded kernel and one for each run that has a cell.
fn table_of_columns(
    report: &ReplayReport,
    title: &str,
    caption: &str,
    columns: &[Column<'_>],
) -> Option<Section> {
    let says = Says::of(report);
    let recorded = |column: &Column<'_>| column.recorded.map(|value| count(value as f64)).into();
    let recorded = [cells!["recorded"], columns.iter().map(recorded).collect()].concat();
    let rows = rows_of(report, |run| {
        columns.iter().map(|column| says.cell(run, column.rests, || (column.of)(run))).collect()
    });
    let says_something = |row: &Vec<Cell>| row[1..].iter().any(Cell::is_there);
    let rows = [recorded].into_iter().chain(rows.into_iter().filter(says_something));
    let rows: Vec<Vec<Cell>> = rows.collect();
    let header: Vec<&str> =
        ["policy"].into_iter().chain(columns.iter().map(|column| column.name)).collect();
    table_of(title, caption, 1, &header, rows)
}

/// The sentence that ends the captions of tables of runs: the meaning of a dash.
const UNSAID: &str = "A dash: not known of the recorded kernel, or not to be said of this replay.";

pub(super) fn mixing(report: &ReplayReport) -> Option<Section> {
    use Migratetype::{Movable, Reclaimable, Unmovable};
    let recorded = &report.recorded;
    let sum = |by_type: &ByType| by_type.iter().sum::<u64>();
    let names = [Unmovable, Reclaimable, Movable].map(|kind| (kind, events_of(kind)));
    let shown = ["unmov.", "reclaim.", "movable"];
    let of_types = names.iter().zip(shown).map(|((kind, figure), name)| {
        let rests = Rests::OnBoth(Query::Events, figure);
        let of = |counts: &ByType| counts[kind.index()];
        Column::new(name, rests, Some(of(&recorded.extfrag)), move |it| of(&it.extfrag))
    });
    let serious = Rests::OnBoth(Query::Events, &figures::SERIOUS);
    let claims = Rests::OnBoth(Query::Events, &figures::CLAIMS);
    let all = Some(sum(&recorded.extfrag));
    let first = Column::new("events", Rests::On(Query::Events), all, |it| sum(&it.extfrag));
    let others = [
        Column::new("serious", serious, Some(sum(&recorded.serious)), |it| sum(&it.serious)),
        Column::new("mistyped", Rests::On(Query::Mistyped), None, |it| sum(&it.mistyped)),
        Column::new("claimed", claims, Some(recorded.claims), |it| it.claims),
    ];
    let columns: Vec<Column<'_>> = [first].into_iter().chain(of_types).chain(others).collect();
    let caption = format!(
        "A row is one policy with the recorded requests. Serious: the free block was below order 4. Mistyped: blocks \
         handed out from pageblocks of another type, which no kernel counts. Claimed: pageblocks that changed their \
         type. Before and after Linux 6.10 an event means different things; mistyped blocks mean the same. {UNSAID}"
    );
    let title = "Types that mix: external fragmentation events, by the type asked for";
    table_of_columns(report, title, &format!("{caption} {}", confirmed(report)), &columns)
}

pub(super) fn price(report: &ReplayReport) -> Option<Section> {
    let recorded = &report.recorded;
    let compactions = Column {
        name: "compact.",
        rests: Rests::OnFigure(&figures::COMPACTIONS),
        recorded: Some(recorded.compactions),
        of: Box::new(|run| {
            let succeeded = run.range(|it| it.compactions_succeeded);
            let all = run.range(|it| it.compactions);
            Cell::About(succeeded.median, format!("{succeeded} / {all}"))
        }),
    };
    let stalls = Column {
        name: "stalls",
        rests: Rests::On(Query::Events),
        recorded: Some(0),
        of: Box::new(|run| match run.range(|it| it.stalls) {
            stalls if stalls.most == 0.0 => count(0.0).into(),
            stalls => {
                let waited = run.over(|repeat| repeat.counts.stalled_nanos as f64 / 1e9);
                let [least, most] = [waited.least, waited.most].map(duration);
                Cell::About(stalls.median, format!("{stalls} ({least}..{most})"))
            }
        }),
    };
    let direct = Rests::OnBoth(Query::Direct, &figures::DIRECT_PAGES);
    let entries = Some(recorded.direct_reclaims);
    let columns = [
        Column::new("moved", Rests::On(Query::Moves), Some(recorded.moved), |it| it.moved),
        compactions,
        Column::new("direct", direct, Some(recorded.reclaimed_direct), |it| it.reclaimed_direct),
        Column::new("kswapd", Rests::On(Query::Reclaim), recorded.reclaimed_kswapd, |it| {
            it.reclaimed_kswapd
        }),
        Column::new("entries", Rests::On(Query::Direct), entries, |it| it.direct_reclaims),
        Column::new("boosts", Rests::On(Query::Events), None, |it| it.boosts),
        stalls,
    ];
    let caption = format!(
        "Pages moved and reclaimed by the policy itself, in place of what the recorded kernel did; runs of direct \
         compaction that gave a block, of all (the kernel's are all its runs); entries into direct reclaim; watermarks \
         raised; waits of callers, which no released kernel has. {UNSAID}"
    );
    table_of_columns(report, "What it costs", &format!("{caption} {}", confirmed(report)), &columns)
}

/// Returns how far kernels have confirmed a comparison of policies, as a sentence.
pub(crate) fn confirmed(report: &ReplayReport) -> String {
    let scores = report.against.iter().map(Foretold::score);
    match scores.fold((0, 0), |(right, of), (one, more)| (right + one, of + more)) {
        (_, 0) => format!("{UNCONFIRMED}: --against FILE asks one."),
        (right, of) => {
            format!("Of {of} changes that kernels could confirm here, {right} are as foretold.")
        }
    }
}

/// Sets another recording of the workload beside the run under its kernel's rules.
pub(super) fn beside(foretold: &Foretold) -> Option<Section> {
    let rows = foretold.figures.iter().map(|it| {
        let [here, there] = it.recorded.map(count);
        let said = it.foretold.map_or(Cell::Missing, |change| Cell::from(change.word()));
        cells![it.query.short(), here, there, it.replayed, it.kernels.word(), said]
    });
    let (right, of) = foretold.score();
    let title = match of {
        0 => format!("Nothing is foretold of {}", foretold.trace),
        of => {
            format!("{right} of {of} changes are foretold as kernels have them: {}", foretold.trace)
        }
    };
    let caption = format!(
        "Linux {}, run as {}. A change is more than the figure may be off by; a dash: this replay cannot say.",
        foretold.release.as_deref().unwrap_or("of an unknown release"),
        foretold.run
    );
    let header = ["question", "this kernel", "that kernel", "its replay", "change", "foretold"];
    table_of(&title, &caption, 1, &header, rows.collect())
}

pub(super) fn success(report: &ReplayReport) -> Option<Section> {
    let says = Says::of(report);
    let share = |run: &PolicyRun, orders: &RangeInclusive<usize>| {
        let sum = |by_order: &ByOrder| by_order[orders.clone()].iter().sum::<u64>();
        let asked = run.range(|it| sum(&it.requests));
        let failed = run.range(|it| sum(&it.requests).saturating_sub(sum(&it.served)));
        let slow = run.range(|it| sum(&it.slow));
        match (asked.most, failed.most, slow.most) {
            (0.0, ..) => Cell::Missing,
            (_, 0.0, 0.0) => asked.into(),
            _ => Cell::About(asked.median, format!("{asked} -{failed} ~{slow}")),
        }
    };
    let recorded = ORDERS.iter().map(|(_, orders)| {
        let sum = |by_order: &ByOrder| by_order[orders.clone()].iter().sum::<u64>();
        match (sum(&report.recorded.requests), sum(&report.recorded.failures)) {
            (0, _) => Cell::Missing,
            (asked, 0) => count(asked as f64).into(),
            (asked, failed) => {
                let asked = count(asked as f64);
                Cell::about(asked, format!("{asked} -{failed}"))
            }
        }
    });
    let mut rows = vec![cells!["recorded"].into_iter().chain(recorded).collect::<Vec<_>>()];
    rows.extend(rows_of(report, |run| {
        let cell = |(name, orders): &(&str, RangeInclusive<usize>)| {
            says.cell(run, Rests::OnFigure(&served(name)), || share(run, orders))
        };
        ORDERS.iter().map(cell).collect()
    }));
    let header: Vec<&str> =
        ["policy"].into_iter().chain(ORDERS.iter().map(|(name, _)| *name)).collect();
    let caption = format!(
        "How many there were; -n of them were not served, ~n needed the slow path. {UNSAID}"
    );
    table_of("Requests by order", &caption, 1, &header, rows)
}

/// The least number of values for which a curve is drawn; fewer are read in the tables.
const CURVE: usize = 3;

/// Draws the effect of a setting, where it has several values and all else is the same.
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
    let says = Says::of(report);
    let asked: Vec<Query> =
        [Query::Events, Query::Huge].into_iter().filter(|of| says.may(Rests::On(*of))).collect();
    let draw =
        |((preset, _, _, setting), points): (&(&str, u32, _, &str), &BTreeMap<u64, &PolicyRun>)| {
            let (Some((least, _)), Some((most, _))) =
                (points.first_key_value(), points.last_key_value())
            else {
                return Vec::new();
            };
            if points.len() < CURVE || points.values().any(|run| run.out_of_memory().is_some()) {
                return Vec::new();
            }
            let chart = |&query: &Query| {
                let layer = |name: &str, of: fn(Range) -> f64| {
                    (name.to_owned(), points.values().map(|run| of(run.answer(query))).collect())
                };
                Section::Chart {
                    title: format!("{preset} by {setting}: {}", query.what()),
                    caption: format!("One point for each of its {} values.", points.len()),
                    ends: [least, most].map(|value| format!("{setting} {value}")),
                    layers: vec![
                        layer("most", |range| range.most),
                        layer("middle", |range| range.median),
                        layer("least", |range| range.least),
                    ],
                }
            };
            asked.iter().map(chart).collect::<Vec<_>>()
        };
    curves.iter().flat_map(draw).collect()
}

/// Returns the runs of a picture: three at most, since more cannot be told apart.
fn pictured(report: &ReplayReport) -> Vec<&PolicyRun> {
    let size = report.runs.first().map(|run| run.memory_percent);
    let is_shown =
        |run: &&PolicyRun| Some(run.memory_percent) == size && run.out_of_memory().is_none();
    let whole: Vec<&PolicyRun> = report.runs.iter().filter(is_shown).collect();
    match whole.as_slice() {
        [first, .., before, last] => vec![first, before, last],
        few => few.to_vec(),
    }
}

/// Pages in a MiB, as x86-64 has them.
const PER_MIB: f64 = 256.0;

fn course(report: &ReplayReport) -> Option<Section> {
    let runs = pictured(report);
    let is_short = |run: &&PolicyRun| run.first().timeline.len() < 2;
    if !Says::of(report).may(Rests::On(Query::Largest)) || runs.iter().any(is_short) {
        return None;
    }
    let series = |run: &&PolicyRun| {
        let samples = run.first().timeline.iter();
        let values = samples.map(|sample| sample.free_in_pageblocks as f64 / PER_MIB);
        (run.policy.clone(), values.collect())
    };
    (!runs.is_empty()).then(|| Section::Chart {
        title: "Free memory in whole pageblocks over time, MiB".to_owned(),
        caption: "What huge pages could still be made of without moving anything, under the first start value."
            .to_owned(),
        ends: ["first event".to_owned(), "last event".to_owned()],
        layers: runs.iter().map(series).collect(),
    })
}

fn whole_blocks(report: &ReplayReport) -> Option<Section> {
    let huge = f64::from(Order::PAGEBLOCK.get());
    // No block at all is less than one of order 0.
    let order = |sample: &Sample| sample.largest.map_or(-1.0, f64::from);
    let large = Rests::On(Query::Largest);
    let least = move |run: &PolicyRun| {
        let least = run.over(|repeat| repeat.timeline.iter().map(order).fold(f64::MAX, f64::min));
        least.into()
    };
    let with_huge = move |run: &PolicyRun| {
        let share = run.over(|Repeat { timeline, .. }| {
            let with = timeline.iter().filter(|sample| order(sample) >= huge).count();
            100.0 * with as f64 / timeline.len().max(1) as f64
        });
        Cell::About(share.median, format!("{share} %"))
    };
    let column = |name, rests, of: Box<dyn Fn(&PolicyRun) -> Cell>| Column {
        name,
        rests,
        recorded: None,
        of,
    };
    let at_end = |name, rests, of: fn(&Sample) -> f64| {
        let at_end =
            move |run: &PolicyRun| run.over(|repeat| repeat.timeline.last().map_or(0.0, of)).into();
        column(name, rests, Box::new(at_end))
    };
    let columns = [
        column("least", large, Box::new(least)),
        at_end("last", large, order),
        column("order 9", large, Box::new(with_huge)),
        at_end("free", Rests::OnFigure(&figures::FREE), |sample| sample.free as f64),
        at_end("whole", large, |sample| sample.pageblocks.free as f64),
        at_end("movable", large, |sample| sample.pageblocks.movable as f64),
        at_end("pinned", large, |sample| sample.pageblocks.pinned as f64),
    ];
    let caption = format!(
        "The least and the last order of the largest free block (-1: none), and the share of samples in which a whole \
         pageblock was free; then free pages, and pageblocks that are free, could be freed by moving pages, or hold \
         what cannot be moved. {UNSAID}"
    );
    let title = "The largest free block over time, and pageblocks at the end";
    table_of_columns(report, title, &caption, &columns)
}

fn fidelity(fidelity: &Fidelity) -> Option<Section> {
    let percent_or = |percent: f64, or: Option<f64>| {
        let or = or.map_or_else(String::new, |or| format!(" or {}", number(or)));
        Cell::About(percent, format!("{} %{or}", number(percent)))
    };
    let rows = fidelity.figures.iter().map(|figure| {
        let within = match figure.tolerance {
            Tolerance::Percent(bound) => percent_or(bound, None),
            Tolerance::PercentOr(bound, or) => percent_or(bound, Some(or)),
            Tolerance::Repeats(least, most) => {
                Cell::About(least, format!("{} to {}", number(least), number(most)))
            }
            Tolerance::FactorOr(factor, or) => {
                Cell::About(factor, format!("{} or {}", ratio(factor), number(or)))
            }
        };
        let (verdict, recorded) = (written(figure.verdict), count(figure.recorded));
        cells![figure.name.name(), verdict, recorded, figure.replayed, within]
    });
    table_of(
        &format!("How far to trust it: {} beside the kernel itself", fidelity.preset),
        "A row is one figure, over the recording or at its end: what the kernel recorded, and what the replay under \
         its rules has. It holds if the middle is within the bound and the start values lie no farther apart than it \
         is wide. Free pages are bound by two percent, or by what the events alone miss of them.",
        2,
        &["figure", "verdict", "kernel", "replay", "within"],
        rows.collect::<Vec<_>>(),
    )
}

/// Returns the lines about assumptions on the trace, which do not depend on the policy.
fn of_the_trace(report: &ReplayReport) -> Option<Section> {
    let first = &report.runs.first()?.first().assumptions;
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
    const OF: [fn(&Assumptions) -> u64; 7] = [
        |it| it.not_served,
        |it| it.stood_in,
        |it| it.in_pieces,
        |it| it.reclaimed_before,
        |it| it.dropped_at_start,
        |it| it.swapped_at_start,
        |it| it.displaced_at_start,
    ];
    let rows = rows_of(report, |run| {
        OF.map(|of| run.over(|repeat| of(&repeat.assumptions) as f64).into()).to_vec()
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
