//! `nofrag trace info`: the contents of a trace.

use std::path::Path;

use nofrag_host::recording::Sizes;
use nofrag_host::trace::{
    ExtFragCount, Lifetimes, Loss, Moment, Pairing, Summary, TraceMeta, type_name,
};

use crate::{Cell, Look, Quantity, Section, cells, duration, number, table_of};

/// The most kinds of events in an answer.
const KINDS: usize = 6;

/// The most sets of flags that are shown.
const FLAGS: usize = 12;

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn count(value: u64) -> Quantity {
    crate::count(value as f64)
}

/// Returns a part of a whole, with its share.
fn share(part: u64, whole: u64) -> Cell {
    let text = format!("{} ({})", count(part), Cell::share(part, whole.max(1)));
    Cell::about(count(part), text)
}

/// Returns what is lost of a trace in a sentence, the first thing to know of it; `None` of one that is whole.
#[must_use]
pub fn not_whole(loss: Loss) -> Option<String> {
    let Loss { events, gaps, unreadable } = loss;
    let places = |gaps: u64| {
        if gaps == 1 { "1 place".to_owned() } else { format!("{} places", count(gaps)) }
    };
    let lost = match (events, gaps) {
        (0, 0) => None,
        (0, gaps) => Some(format!("an unknown number of events is lost at {}", places(gaps))),
        (events, 0) => Some(format!("{} events are lost, it is not known where", count(events))),
        (events, gaps) => Some(format!("{} events are lost at {}", count(events), places(gaps))),
    };
    let unread = (unreadable > 0).then(|| format!("{} parts cannot be read", count(unreadable)));
    let what: Vec<String> = lost.into_iter().chain(unread).collect();
    (!what.is_empty()).then(|| {
        format!("NOT WHOLE: {} (cut, damaged, or recorded with too small buffers)", what.join(", "))
    })
}

/// Returns the lines about a trace as a whole: its events, kernel, command and bytes.
fn facts(meta: &TraceMeta, sizes: Option<&Sizes>, summary: &Summary) -> Vec<String> {
    let unknown = || "not known".to_owned();
    let mut lines = vec![format!(
        "kernel {}; clock {}",
        meta.release.clone().unwrap_or_else(unknown),
        meta.clock.clone().unwrap_or_else(unknown)
    )];
    lines.extend(meta.command.iter().map(|command| format!("command {command}")));
    let rate = match summary.nanos {
        0 => String::new(),
        nanos => {
            format!(", {} a second", number(summary.events as f64 / seconds(nanos)))
        }
    };
    let cpus = summary.cpus.iter().map(|(cpu, events)| format!("CPU {cpu}: {}", count(*events)));
    lines.push(format!(
        "{} events in {}{rate}; {}",
        count(summary.events),
        duration(seconds(summary.nanos)),
        cpus.collect::<Vec<_>>().join(", ")
    ));
    if let Some(sizes) = sizes {
        lines.push(format!(
            "{} bytes: events {} in {} chunks, snapshots {}; {} bytes an event",
            count(sizes.file),
            count(sizes.events),
            count(sizes.chunks),
            count(sizes.snapshots),
            number(sizes.events as f64 / sizes.count.max(1) as f64)
        ));
    }
    lines
}

/// Returns the lines above the tables.
#[must_use]
pub fn head(
    path: &Path,
    meta: &TraceMeta,
    sizes: Option<&Sizes>,
    summary: &Summary,
    look: Look,
) -> String {
    let loss = not_whole(summary.loss).map_or_else(String::new, |loss| look.hanging("", 2, &loss));
    let lines = facts(meta, sizes, summary);
    let lines: String = lines.iter().map(|line| look.hanging("  ", 4, line)).collect();
    format!("{loss}{}\n{lines}\n", path.display())
}

/// Returns the sections of an answer on one screen: what is lost, what the events are, and what can be done with them.
#[must_use]
pub fn answer(
    path: &Path,
    meta: &TraceMeta,
    sizes: Option<&Sizes>,
    summary: &Summary,
) -> Vec<Section> {
    let title = match not_whole(summary.loss) {
        Some(loss) => format!("{loss}: {}", path.display()),
        None => format!(
            "{}: {} events in {}, none known to be lost",
            path.display(),
            count(summary.events),
            duration(seconds(summary.nanos))
        ),
    };
    // The title says what is lost.
    let mut lines: Vec<String> = missing(meta, summary).into_iter().skip(1).collect();
    lines.extend(facts(meta, sizes, summary));
    lines.extend(pairing(&summary.pairing).into_iter().take(1));
    let heading = Section::Lines { title, lines };
    [Some(heading), orders(summary), kinds(summary, KINDS), extfrag(&summary.extfrag)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the tables about a trace.
#[must_use]
pub fn sections(meta: &TraceMeta, summary: &Summary) -> Vec<Section> {
    let mut sections = Vec::new();
    if summary.rate.events.len() > 1 {
        sections.push(rate(summary));
    }
    sections.extend(kinds(summary, usize::MAX));
    sections.extend(orders(summary));
    sections
        .extend(lives("migratetype", &summary.lifetimes_by_type, |of| type_name(of).to_owned()));
    sections.extend(lives("order", &summary.lifetimes_by_order, |of| of.to_string()));
    sections.extend(flags(summary));
    sections.extend(extfrag(&summary.extfrag));
    sections.push(Section::Lines {
        title: "Blocks from allocation to free".to_owned(),
        lines: pairing(&summary.pairing),
    });
    sections.push(Section::Lines {
        title: "What tracepoints cannot tell".to_owned(),
        lines: summary.unseen.sentences.clone(),
    });
    sections.push(Section::Lines {
        title: "What is missing".to_owned(),
        lines: missing(meta, summary),
    });
    sections.push(Section::Lines { title: "Snapshots".to_owned(), lines: snapshot_lines(meta) });
    sections
}

fn rate(summary: &Summary) -> Section {
    let slot = seconds(summary.rate.slot_nanos);
    let per_second = summary.rate.events.iter().map(|&events| events as f64 / slot).collect();
    Section::Chart {
        title: "Events a second".to_owned(),
        caption: format!("Each part of the picture counts {}.", duration(slot)),
        ends: ["the first event".to_owned(), "the last".to_owned()],
        layers: vec![("events a second".to_owned(), per_second)],
    }
}

/// Returns the table of at most `most` kinds of events; of more, the commonest.
fn kinds(summary: &Summary, most: usize) -> Option<Section> {
    let mut kinds: Vec<_> = summary.kinds.iter().collect();
    let left = kinds.len().saturating_sub(most);
    let caption = match left {
        0 => String::new(),
        left => {
            kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
            format!("The commonest; {left} more kinds: --all shows them.")
        }
    };
    let rows = kinds.into_iter().take(most).map(|kind| {
        let rate = kind.per_second.map(number);
        cells![kind.group, kind.name, count(kind.count), rate]
    });
    let rows = rows.collect::<Vec<_>>();
    table_of("Events", &caption, 2, &["group", "event", "count", "a second"], rows)
}

fn orders(summary: &Summary) -> Option<Section> {
    let all: u64 = summary.allocs.iter().sum();
    let by_order = summary.allocs.iter().zip(&summary.frees).enumerate();
    let rows = by_order.filter(|(_, (allocs, frees))| **allocs + **frees > 0).map(
        |(order, (&allocs, &frees))| cells![order.to_string(), share(allocs, all), count(frees)],
    );
    let types = summary.types.iter().enumerate().filter(|(_, count)| **count > 0);
    let types = types.map(|(of, &count)| format!("{} {}", type_name(of), share(count, all)));
    let types = types.collect::<Vec<_>>().join(", ");
    let failed = match summary.failed {
        0 => String::new(),
        failed => format!(" {} more requests failed.", count(failed)),
    };
    let caption = format!("Blocks allocated by type: {types}.{failed}");
    table_of("Orders", &caption, 1, &["order", "allocated", "freed"], rows.collect::<Vec<_>>())
}

fn lives(by: &str, lives: &[Lifetimes], name: impl Fn(usize) -> String) -> Option<Section> {
    let time = |nanos| duration(seconds(nanos));
    let rows = lives.iter().map(|life| {
        let times = [life.median, life.p90, life.p99, life.longest].map(time);
        let [median, p90, p99, longest] = times;
        cells![name(life.of), count(life.count), median, p90, p99, longest]
    });
    let header = [by, "blocks", "half", "90 %", "99 %", "longest"];
    let title = format!("Lifetimes by {by}");
    let caption = "How long blocks lived that were allocated and freed in the trace: so many of them no longer than \
                   this.";
    table_of(&title, caption, 1, &header, rows.collect::<Vec<_>>())
}

fn flags(summary: &Summary) -> Option<Section> {
    let all: u64 = summary.flags.iter().map(|flags| flags.count).sum();
    let rows = summary.flags.iter().take(FLAGS);
    let rows = rows
        .map(|flags| cells![flags.names.replace('|', " | "), share(flags.count, all)])
        .collect::<Vec<_>>();
    let caption = match summary.flags.len().saturating_sub(FLAGS) {
        0 => String::new(),
        left => format!("The commonest; {left} more sets are not shown."),
    };
    table_of("Flags of requests", &caption, 1, &["gfp_flags", "requests"], rows)
}

/// Returns the pairs of types that were mixed, with counts; `None` without any.
pub(super) fn extfrag(pairs: &[ExtFragCount]) -> Option<Section> {
    let rows = pairs.iter().map(|pair| {
        let [wanted, taken] = [pair.wanted, pair.taken].map(type_name);
        let counts = [pair.events, pair.fragmenting, pair.serious, pair.mistyped_pages];
        let [events, fragmenting, serious, mistyped] = counts.map(count);
        cells![wanted, taken, events, fragmenting, serious, mistyped]
    });
    let header =
        ["wanted", "taken from", "events", "below a pageblock", "below order 4", "mistyped pages"];
    table_of("External fragmentation", "", 2, &header, rows.collect::<Vec<_>>())
}

fn pairing(pairing: &Pairing) -> Vec<String> {
    let Pairing { matched, older, in_use_at_start, inside, order_mismatches, double_allocs, live } =
        *pairing;
    let frees = matched + older;
    let mut lines = vec![
        format!(
            "frees matched with their allocation: {} of {}",
            share(matched, frees),
            count(frees)
        ),
        format!(
            "frees without one: {}; of these {} of frames in use at the start, {} of a page inside a block in use",
            share(older, frees),
            count(in_use_at_start),
            count(inside)
        ),
        format!("frees of another order than the allocation: {}", count(order_mismatches)),
        format!("allocations of a block in use, whose free was not seen: {}", count(double_allocs)),
    ];
    lines.push(format!("blocks in use at the end: {}", count(live)));
    lines
}

fn missing(meta: &TraceMeta, summary: &Summary) -> Vec<String> {
    let mut lines = vec![match not_whole(summary.loss) {
        None => "no event is known to be lost".to_owned(),
        Some(loss) => format!("{loss}: blocks are paired wrongly from the first place on"),
    }];
    lines.extend(meta.missing.iter().cloned());
    if meta.start().is_none() {
        lines.push("no snapshot at the start: a replay cannot know what was in use".to_owned());
    }
    if meta.end().is_none() {
        lines
            .push("no snapshot at the end: a replay cannot be compared with the kernel".to_owned());
    }
    lines
}

fn snapshot_lines(meta: &TraceMeta) -> Vec<String> {
    let lines = meta.snapshots.iter().map(|taken| {
        let when = match taken.moment {
            Moment::Before => "before the first event".to_owned(),
            Moment::During { begin, end } => format!(
                "from {} s to {} s of the clock",
                number(seconds(begin)),
                number(seconds(end))
            ),
            Moment::After => "after the last event".to_owned(),
        };
        let names: Vec<&str> = taken.files.names().collect();
        format!("{when}: {}", names.join(", "))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { vec!["none".to_owned()] } else { lines }
}
