//! Tables of a run's results, in the document's terms.

use super::counters::COUNTERS;
use super::outcome::{Latency, ThpFioOutcome};
use super::plan::WorkloadPlan;
use nofrag_show::{Cell, Section, cells, count, fixed, number, table_of};

/// Returns the plan and its cautions, as people read them.
#[must_use]
pub fn sentences(plan: &WorkloadPlan) -> Vec<Section> {
    let about =
        Section::Lines { title: "thpfioscale: this run will".to_owned(), lines: plan.statement() };
    [Some(about), notes(&plan.cautions)].into_iter().flatten().collect()
}

/// Returns the results, as people read them.
#[must_use]
pub fn sections(outcome: &ThpFioOutcome) -> Vec<Section> {
    // The plan's cautions have been shown before.
    let known = &outcome.plan.cautions;
    let new: Vec<String> =
        outcome.cautions.iter().filter(|line| !known.contains(line)).cloned().collect();
    let sections =
        [latencies(outcome), shares(outcome), folios(outcome), counters(outcome), notes(&new)];
    sections.into_iter().flatten().collect()
}

fn notes(lines: &[String]) -> Option<Section> {
    let (title, lines) = ("Notes".to_owned(), lines.to_vec());
    (!lines.is_empty()).then_some(Section::Lines { title, lines })
}

/// Shows `no sample` where the document's program prints 0.00 (docs/sources/pages.md#b-26).
fn cells(latency: Option<&Latency>) -> Vec<Cell> {
    let Some(latency) = latency else {
        return [cells![count(0.0), "no sample"], vec![Cell::Missing; 5]].concat();
    };
    let Latency { samples, mean, min, p50, p90, p99, max, .. } = *latency;
    let times = [mean, min as f64, p50 as f64, p90 as f64, p99 as f64, max as f64];
    let times = times.map(|nanos| number(nanos / 1e3).into());
    [cells![count(samples as f64)], times.to_vec()].concat()
}

fn latencies(outcome: &ThpFioOutcome) -> Option<Section> {
    let threads = outcome.plan.thp_threads;
    let rows = [
        (format!("fault-base-{threads}"), outcome.fault_base),
        (format!("fault-huge-{threads}"), outcome.fault_huge),
        ("first fault of a base unit".to_owned(), outcome.first_base),
        ("first fault of a huge unit".to_owned(), outcome.first_huge),
        ("read of 4 KiB meanwhile".to_owned(), outcome.reads.latency),
    ];
    let rows = rows.map(|(name, latency)| [cells![name], cells(latency.as_ref())].concat());
    table_of(
        "Latency in microseconds",
        &format!(
            "fault-base and fault-huge: from the first touch of a unit of {} KiB until all of it is written, for units \
             of small pages and of one huge page. Compare runs on one machine, never with published times.",
            outcome.plan.unit_bytes >> 10
        ),
        1,
        &["", "samples", "mean", "min", "p50", "p90", "p99", "max"],
        rows.to_vec(),
    )
}

fn shares(outcome: &ThpFioOutcome) -> Option<Section> {
    let units = &outcome.units;
    let percent = units.percent_huge().map(|share| Cell::from(fixed(share, 2)));
    let kernels = units.anon_huge_kib.map(|kib| kib / (outcome.plan.unit_bytes >> 10));
    table_of(
        "Huge pages",
        "By what one fault brought in; the last column is what smaps called huge when all had been touched.",
        1,
        &["", "percentage huge", "huge", "base", "AnonHugePages"],
        vec![cells![
            format!("units-{}", outcome.plan.thp_threads),
            percent.unwrap_or_else(|| "no sample".into()),
            count(units.huge as f64),
            count(units.base as f64),
            kernels.map(|units| count(units as f64)),
        ]],
    )
}

/// Shows folios, if a fault brought in more than one page and less than a unit.
fn folios(outcome: &ThpFioOutcome) -> Option<Section> {
    let pages = outcome.plan.unit_bytes as usize / rustix::param::page_size();
    let sizes = &outcome.units.by_pages_at_once;
    let rows = sizes.iter().map(|(pages, units)| vec![count(*pages as f64), count(*units as f64)]);
    let between = sizes.keys().any(|at_once| (2..pages).contains(at_once));
    let caption = "Folios between a page and a huge page; they count as base.";
    between.then(|| {
        table_of("Pages at the first fault", caption, 0, &["pages", "units"], rows.collect())
    })?
}

fn counters(outcome: &ThpFioOutcome) -> Option<Section> {
    let header: Vec<&str> = outcome.phases.iter().map(|phase| phase.phase.into_str()).collect();
    let header = [&["/proc/vmstat"][..], &header[..]].concat();
    let took = outcome.phases.iter().map(|phase| number(phase.seconds));
    let took = took.map(|seconds| Cell::about(seconds, format!("{seconds} s")));
    let mut rows = vec![[cells!["(took)"], took.collect()].concat()];
    for (name, _) in COUNTERS {
        let values = outcome.phases.iter().map(|phase| phase.counters.get(name));
        let values: Vec<Option<u64>> = values.collect();
        if values.iter().any(|value| value.is_some_and(|value| value > 0)) {
            let cells = values.iter().map(|value| value.map(|value| count(value as f64)).into());
            rows.push([cells![*name], cells.collect()].concat());
        }
    }
    table_of(
        "What the kernel counted, on the whole machine",
        "Counters that stayed at zero are left out. Events of external fragmentation are not among them: `nofrag \
         record -- nofrag workload thpfioscale ..` records those, by migratetype.",
        1,
        &header,
        rows,
    )
}
