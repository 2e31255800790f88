//! Tables of the comparison of areas.

use super::catalogue::{SPECS, Spec, Width};
use super::holes::{REFUSED, SPAN_OVER_LIVE};
use super::turns::{AreasPlan, search_of};
use super::{AFTER, BEFORE, LIKE_6_1, OURS, names};
use crate::figures::{self, Completeness, Figure, FigureUnit, PublishedTable};
use crate::report::{Comparison, Measurement, Report};
use crate::tables::{ByDesign, Show, bars, comparisons};
use nofrag_show::{Cell, Section, cells, count, number, ratio, table_of};

/// Programs whose bars show the document's point: no difference, all the difference, and a space in use.
const PICTURED: [&str; 4] = ["fix_size_alloc", "long_busy_hole", "churn_15k", "mixed_params_10k"];

/// The id of comparisons with the kernels' own code.
const KERNEL_CODE: &str = "kernel-code";

/// Sets the published figures beside the measured ones.
pub(super) fn compare_published(report: &mut Report) {
    let document = figures::rezki_2019();
    let comparisons = document.figures.iter().flat_map(|figure| {
        // The mode's second total runs the same tests in a space with holes.
        let also = format!("{}_hole", figure.program);
        let programs = [figure.program.clone(), also];
        let report = &*report;
        programs.into_iter().filter_map(move |program| beside(report, figure, &program, AFTER))
    });
    let references =
        document.tables.iter().filter_map(|PublishedTable { program, place, .. }| {
            let ns =
                |design| figures::figure(&document.tables, program, design, &names::NS_PER_PAIR);
            let figure = Figure {
                id: KERNEL_CODE.to_owned(),
                program: program.clone(),
                what: format!("{program}: the kernels' own code in user space, 4.19 over 6.1"),
                place: place.clone(),
                unit: FigureUnit::Nanoseconds,
                before: [ns("linux-4.19")?; 2],
                before_is: Completeness::Exactly,
                after: [ns("linux-6.1")?; 2],
            };
            beside(report, &figure, program, LIKE_6_1)
        });
    report.comparisons = comparisons.chain(references).collect();
}

fn beside(report: &Report, figure: &Figure, program: &str, new: &str) -> Option<Comparison> {
    let old = report.measurement(program, BEFORE)?;
    let new = report.measurement(program, new)?;
    // A test's time in the driver's modes has its preparation in it; only the totals of the modes were published.
    if old.unit == names::US_PER_RUN {
        return None;
    }
    Some(Comparison::of(figure, old, new))
}

/// Notes facts that weaken or explain the result.
pub(super) fn take_notes(plan: &AreasPlan, report: &mut Report) {
    report.notes.push(
        "addresses only: no page is allocated, zeroed, mapped or written, so published times, which include \
         that, are compared as ratios and ours are larger where the search dominates"
            .to_owned(),
    );
    if report.settings.mode == "performance" {
        report
            .notes
            .push("the published sums are cycles, ours are seconds of the wall clock".to_owned());
    }
    let bounded = bounded_programs(plan, report);
    if !bounded.is_empty() {
        report.notes.push(format!(
            "fewer loops than the others for a design that is too slow: {}",
            bounded.join(", ")
        ));
    }
    report.notes.extend(report.losses(OURS));
    report.notes.extend(report.weaknesses());
}

/// Names rows that ran fewer loops than the same program did under another design.
fn bounded_programs(plan: &AreasPlan, report: &Report) -> Vec<String> {
    let mut bounded = Vec::new();
    for spec in &plan.programs {
        for design in &plan.designs {
            let Some(row) = report.measurement(spec.info.name, design.name) else { continue };
            let most = report
                .measurements
                .iter()
                .filter(|other| other.program == spec.info.name)
                .map(|other| other.loops)
                .max();
            if most.is_some_and(|most| row.loops < most) {
                assert_eq!(search_of(design), super::catalogue::Search::Scans);
                bounded.push(format!("{} ({})", spec.info.name, row.loops));
            }
        }
    }
    bounded
}

/// Returns all sections of a report.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let mut sections = Vec::new();
    let tables = if report.settings.mode == "compare" {
        sections.extend(pictures(report));
        sections.extend(times(report));
        &COMPARED[..]
    } else {
        &DRIVEN
    };
    sections.extend(tables.iter().filter_map(|(which, table)| {
        let of = report.programs().into_iter().filter(|program| which(report, program));
        table.of(report, &of.collect::<Vec<_>>())
    }));
    sections.extend(published(report));
    sections
}

fn pictures(report: &Report) -> Option<Section> {
    let group = |program: &str| {
        let bar = |row: &Measurement| (row.design.clone(), row.time.median.max(0.1));
        (titled(program), report.of_program(program).map(bar).collect())
    };
    bars("Nanoseconds per loop, logarithmic", PICTURED.map(group))
}

/// Returns a program's name with its body.
fn titled(program: &str) -> String {
    match SPECS.iter().find(|spec| spec.info.name == program) {
        Some(Spec { info, .. }) => format!("{program}: {}", info.body),
        None => program.to_owned(),
    }
}

/// Formats a count for a narrow column: thousands from ten thousand on.
fn short(value: f64) -> String {
    match value {
        _ if value < 10_000.0 => count(value).to_string(),
        _ => format!("{}k", number(value / 1000.0)),
    }
}

fn times(report: &Report) -> Option<Section> {
    let designs = &report.settings.designs;
    let ends = designs.first().zip(designs.last()).filter(|(first, last)| first != last);
    let row = |program: &&str| {
        let time = |design: &String| Some(&report.measurement(program, design)?.time);
        let mut row = cells![*program];
        row.extend(designs.iter().map(|design| time(design).map(Cell::median).into()));
        row.extend(ends.map(|(first, last)| {
            let gain = time(first).zip(time(last));
            gain.map(|(first, last)| ratio(first.median / last.median)).into()
        }));
        row
    };
    let names = designs.iter().map(String::as_str).chain(ends.map(|_| "gain"));
    table_of(
        "Time of one loop in nanoseconds",
        "A row is one program. Median of the repetitions, ± half their range; the lazy free, its share of the purge \
         and the guard page are included. `nofrag run` lists what a loop of each program does. Gain: the first \
         design's time over the last one's.",
        1,
        ["program"].into_iter().chain(names),
        report.programs().iter().map(row).collect(),
    )
}

fn tail(row: &Measurement) -> Option<Cell> {
    let tail = row.tail?;
    let [p999, max] = [tail.p999_ns, tail.max_ns].map(|ns| number(ns as f64 / 1000.0));
    Some(Cell::about(p999, format!("{p999} / {max}")))
}

fn steps(row: &Measurement) -> Option<Cell> {
    // The search for a group of areas is not counted in steps.
    let mean = row.count(names::STEPS_PER_SEARCH).filter(|steps| *steps > 0.0);
    // A dash in words: the program has a row without this count.
    let shown = mean.map_or_else(|| "-".into(), |steps| Cell::from(number(steps)));
    let pooled = row.count(names::POOL_SHARE).filter(|share| *share >= 0.005);
    Some(match pooled {
        Some(share) => Cell::About(mean.unwrap_or(0.0), format!("{shown} ({:.0}%)", 100.0 * share)),
        None => shown,
    })
}

fn fits(row: &Measurement) -> Option<Cell> {
    let shares = names::FITS.map(|name| row.count(name).map(|share| (100.0 * share).round()));
    let [Some(full), Some(left), Some(right), Some(none)] = shares else { return None };
    Some(Cell::About(full, format!("{full}/{left}/{right}/{none}")))
}

fn objects(row: &Measurement) -> Option<Cell> {
    let (free, busy) = (row.count(names::FREE_OBJECTS)?, row.count(names::BUSY_OBJECTS)?);
    Some(Cell::About(free, format!("{}/{}", short(free), short(busy))))
}

fn layout(row: &Measurement) -> Option<Cell> {
    let span = row.count(SPAN_OVER_LIVE)?;
    let refused = row.count(REFUSED).filter(|refused| *refused > 0.0);
    let refused = refused.map_or_else(String::new, |refusals| format!(" ({})", count(refusals)));
    Some(Cell::About(span, format!("{span:.2}{refused}")))
}

fn test(row: &Measurement) -> Option<Cell> {
    let failed = row.count(names::FAILED).filter(|failed| *failed > 0.0);
    let failed = failed.map_or_else(String::new, |failed| format!(" ({failed} FAILED)"));
    let median = number(row.time.median);
    Some(Cell::about(median, format!("{median}{failed}")))
}

/// Tables of the usual mode.
static COMPARED: [(Which, ByDesign); 6] = [
    (
        |_, _| true,
        ByDesign {
            title: "Slowest loops: p99.9 / maximum in microseconds",
            caption: "A row is one program whose loops were timed one by one, in a repetition of its own. Maxima \
                      contain the host's interruptions.",
            show: Show::By(tail),
        },
    ),
    (
        |_, _| true,
        ByDesign {
            title: "Steps per search (share served by a pool without a search)",
            caption: "A row is one program; a step is one inspected area, tree node or block. Depends on the seed \
                      alone where one thread runs.",
            show: Show::By(steps),
        },
    ),
    (
        |_, _| true,
        ByDesign {
            title: "Fit types FL/LE/RE/NE, in percent",
            caption: "A row is one program; where the found place lies in its free area. FL: all of it; LE, RE: its \
                      left or right edge; NE: no edge, which splits it.",
            show: Show::By(fits),
        },
    ),
    (
        |_, _| true,
        ByDesign {
            title: "Free areas/busy areas when the loops end",
            caption: "A row is one program. The search of 4.19 knows only the busy ones, lazily freed ones included \
                      up to 5.2; all others search the free ones.",
            show: Show::By(objects),
        },
    ),
    (
        |_, program| is_parallel(program) || program == "fix_size_alloc",
        ByDesign {
            title: "Locked operations / lock conflicts per loop",
            caption: "A row is one program; those named _threads run on all threads at once and share the space. Two \
                      locked operations for each lock taken, and the atomic updates.",
            show: Show::Pair(names::LOCKED_PER_LOOP, " / ", names::CONFLICTS_PER_LOOP),
        },
    ),
    (
        |_, _| true,
        ByDesign {
            title: "Layout: span over live pages (refused allocations)",
            caption: "A row is one program that ends with a live set. 1.00 would be without any hole; the space of \
                      the _tight ones is full to 85 %.",
            show: Show::By(layout),
        },
    ),
];

/// Tables of the modes of the kernel's driver.
static DRIVEN: [(Which, ByDesign); 3] = [
    (
        is_total,
        ByDesign {
            title: "All tests: elapsed seconds",
            caption: "A row is one run of the kernel driver's mode: every thread runs every test in one space. Median \
                      of the rounds, ± half their range. With _hole, long_busy_hole takes the place of \
                      long_busy_list.",
            show: Show::Time,
        },
    ),
    (
        is_total,
        ByDesign {
            title: "All tests: processor seconds, user + system",
            caption: "A row is the same run; the median of the rounds.",
            show: Show::Pair(names::USER, " + ", names::SYSTEM),
        },
    ),
    (
        |report, program| !is_total(report, program),
        ByDesign {
            title: "Microseconds per run of a test",
            caption: "A row is one test with all its loops, its preparation and its end; the median over threads and \
                      repetitions. align_shift ends with the refusal that is expected.",
            show: Show::By(test),
        },
    ),
];

/// Tells whether a table has a row for a program.
type Which = fn(&Report, &str) -> bool;

fn is_parallel(program: &str) -> bool {
    let spec = SPECS.iter().find(|spec| spec.info.name == program);
    spec.is_some_and(|spec| spec.width == Width::Parallel)
}

fn is_total(report: &Report, program: &str) -> bool {
    report.measurements.iter().any(|m| m.program == program && m.unit == names::SECONDS)
}

fn published(report: &Report) -> Vec<Section> {
    let figures = ratios(
        report,
        "Published beside measured",
        "A row is one published figure. Published times include page work.",
        &["figure", "run here"],
        |it| (it.figure != KERNEL_CODE).then(|| cells![&it.what, &it.program]),
    );
    let codes = ratios(
        report,
        "The kernels' own code beside ours",
        "A row is one program; there, Linux 4.19 over 6.1, whose code was compiled for user space.",
        &["program"],
        |it| (it.figure == KERNEL_CODE).then(|| cells![&it.program]),
    );
    figures.into_iter().chain(codes).collect()
}

/// Builds a table of the comparisons that have a lead.
fn ratios(
    report: &Report,
    title: &str,
    caption: &str,
    texts: &[&str],
    lead: impl Fn(&Comparison) -> Option<Vec<Cell>>,
) -> Option<Section> {
    let [old, new] = &report.comparisons.iter().find(|it| lead(it).is_some())?.designs;
    let title = format!("{title}: how many times faster the new design is");
    let caption = format!("{caption} Here: {old} over {new}. Below 1x the new design is slower.");
    comparisons(report, (&title, &caption), texts, lead)
}
