//! The page of `nofrag replay`, and the pictures of a replay that other pages show too.

use crate::replay::{self, PolicyRun, ReplayReport, Sample, Verdict as Trust};
use nofrag_show::Origin;
use nofrag_show::Tone;
use nofrag_show::page::curves::{Curve, Curves, Line};
use nofrag_show::page::{Drawing, Figure, Headline, Item, Page, Part, Tile, sections};
use nofrag_show::{Section, count, duration, plain};

/// Returns the page of `report`.
#[must_use]
pub fn replay(report: &ReplayReport, origin: &Origin) -> Page {
    let mut page = Page::new("A recording under other policies", origin);
    page.headline = Some(headline(report));
    page.tiles = tiles(report);
    page.parts = vec![Part {
        id: "replay".to_owned(),
        title: format!("Replay of {}", report.trace),
        lead: Vec::new(),
        command: origin.command.clone(),
        headline: None,
        items: items(report),
    }];
    page
}

/// Returns pictures over time, and the terminal's sections.
pub(super) fn items(report: &ReplayReport) -> Vec<Item> {
    let mut items = pictures(report);
    // The terminal's chart shows three policies; those above show all.
    let others = replay::sections(report).into_iter();
    items.extend(sections::items(
        others.filter(|it| !matches!(it, Section::Chart { .. })).collect(),
    ));
    items
}

/// Tells how far the conclusions may be trusted.
fn headline(report: &ReplayReport) -> Headline {
    let Some(fidelity) = &report.fidelity else {
        return Headline {
            tone: Tone::Warning,
            says: "Nothing shows how far this replay can be trusted.".to_owned(),
            advice: "The recording has no snapshot at its end, or its kernel no preset; `nofrag record` takes both \
                     snapshots."
                .to_owned(),
        };
    };
    let with = |verdict| fidelity.figures.iter().filter(move |figure| figure.verdict == verdict);
    let (off, few) =
        (with(Trust::Off).count() + with(Trust::Wide).count(), with(Trust::TooFew).count());
    let holds = with(Trust::Holds).count();
    let says = format!(
        "Beside the recorded kernel's own figures, {holds} of {} hold under {}, {off} are off or too wide to say, and \
         {few} rest on too few events.",
        fidelity.figures.len(),
        fidelity.preset
    );
    match off {
        0 => Headline {
            tone: Tone::Warning,
            says,
            advice: format!(
                "The replay is near the recorded kernel. {}",
                replay::confirmed(report)
            ),
        },
        _ => {
            let answers = fidelity.answers.iter().filter(|answer| answer.verdict != Trust::Holds);
            let asked: Vec<&str> = answers.map(|answer| answer.query.what()).collect();
            Headline {
                tone: Tone::Warning,
                says,
                advice: format!("Nothing here says how policies differ in {}.", asked.join(", ")),
            }
        }
    }
}

fn tiles(report: &ReplayReport) -> Vec<Tile> {
    let recorded = &report.recorded;
    let tile = |value: String, what: &str| Tile { tone: Tone::Plain, value, what: what.to_owned() };
    let lost = if recorded.lost + recorded.gaps == 0 { Tone::Good } else { Tone::Bad };
    vec![
        tile(count(recorded.events as f64).to_string(), "events replayed"),
        Tile { tone: lost, ..tile(count(recorded.lost as f64).to_string(), "events lost") },
        tile(duration(recorded.nanos as f64 / 1e9).to_string(), "of the recorded clock"),
        tile(report.release.clone().unwrap_or_else(|| "unknown".to_owned()), "recorded kernel"),
        tile(report.runs.len().to_string(), "runs: policies times sizes of memory"),
    ]
}

/// Pages in a MiB, as x86-64 has them.
const PER_MIB: f64 = 256.0;

/// The quantity of a sample that a picture shows.
struct Quantity {
    title: &'static str,
    up: &'static str,
    line: Line,
    value: fn(&Sample) -> f64,
    means: &'static str,
}

const CONTIGUITY: Quantity = Quantity {
    title: "Contiguity over time: free memory in whole pageblocks",
    up: "MiB",
    line: Line::Straight,
    value: |sample| sample.free_in_pageblocks as f64 / PER_MIB,
    means: "What huge pages could still be made of without moving anything.",
};

const OTHERS: [Quantity; 4] = [
    Quantity {
        title: "Largest free block over time",
        up: "order",
        line: Line::Steps,
        // A sample without any free block stands below order 0.
        value: |sample| sample.largest.map_or(-1.0, f64::from),
        means: "Order 9 is a huge page of 2 MiB on x86-64; a request for more than the curve shows needs compaction \
                or reclaim first.",
    },
    Quantity {
        title: "External fragmentation events over time",
        up: "events so far",
        line: Line::Steps,
        value: |sample| sample.extfrag as f64,
        means: "Each is a request served from a block of another type; a steep piece is a phase of the workload that \
                mixes types.",
    },
    Quantity {
        title: "Pageblocks that hold something unmovable, over time",
        up: "pageblocks",
        line: Line::Straight,
        value: |sample| sample.pageblocks.pinned as f64,
        means: "No compaction can empty these: the lower the curve, the more huge pages can be had at all.",
    },
    Quantity {
        title: "Free memory over time",
        up: "MiB",
        line: Line::Straight,
        value: |sample| sample.free as f64 / PER_MIB,
        means: "The requests are the same, so what differs is what each policy reclaimed and could not serve.",
    },
];

/// Returns the course of all runs: contiguity for each size of memory, other quantities for the first.
pub(super) fn pictures(report: &ReplayReport) -> Vec<Item> {
    let mut sizes: Vec<u32> = report.runs.iter().map(|run| run.memory_percent).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let several = sizes.len() > 1;
    let of_size = |quantity: &Quantity, percent: u32| {
        let runs: Vec<&PolicyRun> =
            report.runs.iter().filter(|run| run.memory_percent == percent).collect();
        let suffix = if several { format!(", {percent} % of memory") } else { String::new() };
        picture(quantity, &suffix, &runs)
    };
    let mut items: Vec<Item> =
        sizes.iter().filter_map(|percent| of_size(&CONTIGUITY, *percent)).collect();
    let first = report.runs.first().map(|run| run.memory_percent);
    let others = OTHERS.iter().filter_map(|quantity| of_size(quantity, first?));
    items.extend(others);
    items
}

fn picture(quantity: &Quantity, suffix: &str, runs: &[&PolicyRun]) -> Option<Item> {
    let Quantity { title, up, line, value, means } = quantity;
    let curves: Vec<Curve> = runs
        .iter()
        .filter(|run| run.first().timeline.len() > 1)
        .map(|run| curve(run.policy.clone(), run, *value))
        .collect();
    let title = format!("{title}{suffix}");
    let says =
        format!("A curve is one policy with the recorded requests. {means} {}", ends(&curves)?);
    let drawing = Curves::new(&title, ["seconds since the first event", up], *line, curves);
    Some(Item::Figure(Figure { title, says, drawing: Drawing::Curves(drawing) }))
}

/// Returns one quantity of a run over time.
pub(super) fn curve(name: String, run: &PolicyRun, value: fn(&Sample) -> f64) -> Curve {
    let points = run.first().timeline.iter().map(|sample| (sample.at as f64 / 1e9, value(sample)));
    Curve { name, points: points.collect() }
}

/// Names the curves with the lowest and the highest last point, in words; `None` without curves.
fn ends(curves: &[Curve]) -> Option<String> {
    let last = |curve: &&Curve| curve.points.last().map_or(0.0, |(_, y)| *y);
    let by_end = |a: &&Curve, b: &&Curve| last(a).total_cmp(&last(b));
    let (low, high) = (curves.iter().min_by(by_end)?, curves.iter().max_by(by_end)?);
    let said = |curve: &Curve| format!("{} with {}", curve.name, plain(last(&curve)));
    Some(match last(&low) == last(&high) {
        true => format!("At the end all stand at {}.", plain(last(&low))),
        false => format!("At the end {} is lowest and {} highest.", said(low), said(high)),
    })
}

/// Shows contiguity over time on two sides, policy by policy where both have it.
pub(super) fn side_by_side(old: &ReplayReport, new: &ReplayReport) -> Vec<Item> {
    let mut items = Vec::new();
    for before in &old.runs {
        let same = |run: &&PolicyRun| {
            run.policy == before.policy && run.memory_percent == before.memory_percent
        };
        let Some(after) = new.runs.iter().find(same) else { continue };
        if before.first().timeline.len() < 2 || after.first().timeline.len() < 2 {
            continue;
        }
        let value = CONTIGUITY.value;
        let curves =
            vec![curve("old".to_owned(), before, value), curve("new".to_owned(), after, value)];
        let title = format!(
            "{}: {}, {} % of memory",
            CONTIGUITY.title, before.policy, before.memory_percent
        );
        let says = format!("Both sides under the same policy. {}", CONTIGUITY.means);
        let drawing =
            Curves::new(&title, ["seconds since the first event", "MiB"], Line::Straight, curves);
        items.push(Item::Figure(Figure { title, says, drawing: Drawing::Curves(drawing) }));
    }
    items
}
