//! Tables and a picture of the measurements on real memory.

use super::super::present::bare;
use super::super::{names, withdrawn};
use super::VANILLA;
use crate::figures::{self, Gorman2018};
use crate::key::Key;
use crate::report::{Measurement, Report};
use crate::tables::designs_table;
use nofrag_show::{BarGroup, Cell, Section, cells, fixed, number, table_of};

/// Returns all sections of a report.
pub(in super::super) fn sections(report: &Report) -> Vec<Section> {
    let figures = figures::gorman_2018();
    let mut sections = Vec::new();
    for program in report.programs() {
        let configuration = program.split(',').next().unwrap_or(program);
        sections.extend(bars(report, program));
        sections.extend(latencies(report, &figures, program, configuration));
        sections.extend(distribution(report, program));
    }
    sections.extend(memory(report));
    sections
}

/// Returns a design's short name, marked if it is withdrawn.
fn short(design: &str) -> String {
    let name = bare(design);
    if withdrawn::is_withdrawn(design) { format!("{name} {}", withdrawn::MARK) } else { name }
}

fn bars(report: &Report, program: &str) -> Option<Section> {
    let kinds = [("huge page", names::HUGE_FAULT_US), ("512 base pages", names::BASE_FAULTS_US)];
    let groups = kinds.each_ref().map(|(name, what)| {
        let bar = |design: &String| {
            let mean = report.measurement(program, design)?.count(what)?;
            Some((short(design), mean))
        };
        let bars = report.settings.designs.iter().filter_map(bar).collect();
        BarGroup { name: (*name).to_owned(), bars }
    });
    let title =
        format!("Microseconds until a unit of 2 MiB is mapped, zeroed and written: {program}");
    let groups: Vec<BarGroup> = groups.into_iter().filter(|group| !group.bars.is_empty()).collect();
    (!groups.is_empty()).then_some(Section::Bars { title, groups })
}

fn latencies(
    report: &Report,
    figures: &Gorman2018,
    program: &str,
    configuration: &str,
) -> Option<Section> {
    let there = |design: &str, key: Key| figures.figure(configuration, design, key);
    let cells = |design: &str| {
        let Some(row) = report.measurement(program, design) else { return Vec::new() };
        let spread = |key: Key| row.spreads.get(&key).map(Cell::median);
        let sampled = |key: Key| spread(key).unwrap_or_else(|| "no sample".into());
        let ratio_there = there(design, names::HUGE_LATENCY)
            .zip(there(design, names::BASE_LATENCY))
            .map(|(huge, base)| fixed(huge / base, 2));
        cells![
            sampled(names::BASE_FAULTS_US),
            sampled(names::HUGE_FAULT_US),
            spread(names::FAULT_RATIO),
            ratio_there,
            row.shown(names::HUGE_PERCENT),
            there(design, names::HUGE_PERCENT).map(number),
        ]
    };
    let caption = format!(
        "A row is one design. Means in us of a unit of 2 MiB: 512 requests, mappings, faults and zeroings of base \
         pages, or one of each for a huge page, and writing all of it; medians over rounds with half their range. \
         huge/base: the first over the second; there: the same quotient of the document's means (0.27 with patches 1 \
         to 4, s-default). Its microseconds belong to another machine. No sample: no such fault. {}",
        withdrawn::mark()
    );
    designs_table(
        &report.settings.designs,
        short,
        (&format!("Fault latency on real memory: {program}"), &caption),
        &["base us", "huge us", "huge/base", "there", "huge %", "there %"],
        cells,
    )
}

fn distribution(report: &Report, program: &str) -> Option<Section> {
    let cells = |design: &str| {
        let Some(row) = report.measurement(program, design) else { return Vec::new() };
        let of = |kind| {
            ["p50", "p99", "p99.9", "max"].map(|part| row.shown(names::latency(kind, part)).into())
        };
        [of("base"), of("huge")].concat()
    };
    let caption = "us a unit, over all rounds. Maxima are reported and never judged: on a shared host they are \
                   interruptions.";
    designs_table(
        &report.settings.designs,
        short,
        (&format!("Distribution of the same: {program}"), caption),
        &["base p50", "p99", "p99.9", "max", "huge p50", "p99", "p99.9", "max"],
        cells,
    )
}

/// Shows the work of the memory behind the frames.
fn memory(report: &Report) -> Option<Section> {
    let row = |measured: &Measurement| {
        cells![
            &measured.program,
            short(&measured.design),
            measured.shown(names::WRITTEN),
            measured.shown(names::COPIED),
            measured.shown(names::VERIFIED),
            measured.shown(names::LOST),
        ]
    };
    let shown = |measured: &&Measurement| measured.design == VANILLA || is_last(report, measured);
    let rows = report.measurements.iter().filter(shown).map(row).collect();
    table_of(
        "Contents",
        "Pages of all rounds: written into the page cache, moved by compaction with their contents, read and found as \
         written, and found otherwise. The oldest design and the last one.",
        2,
        &["program", "design", "written", "moved", "verified", "lost"],
        rows,
    )
}

fn is_last(report: &Report, measured: &Measurement) -> bool {
    report.settings.designs.last() == Some(&measured.design)
}
