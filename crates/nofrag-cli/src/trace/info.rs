//! `nofrag trace info`: what a trace holds.

use std::path::{Path, PathBuf};

use anyhow::Result;
use nofrag_host::recording::{Recording, Sizes};
use nofrag_host::trace::{
    self, ExtFragCount, Lifetimes, Loss, Moment, Pairing, Summary, Trace, TraceMeta, summarise,
    type_name,
};
use nofrag_show::{Cell, Quantity, Section, cells, table_of};
use serde::Serialize;

use crate::output::{Schema, print, print_document, print_sections};
use crate::{Status, progress};

/// So many sets of flags are shown.
const FLAGS: usize = 12;

const AFTER_HELP: &str = "\
Frees are matched with the allocations in the trace. Frees without one are normal: their blocks are older
than the trace, or were moved there by a migration, which has no event of its own.

Examples:
  nofrag trace info a.nofrag
  nofrag trace info trace.dat
  nofrag trace info a.nofrag --json | jq .summary.pairing

Exit status:
  0  done
  2  bad use, or the trace could not be read";

/// What `nofrag trace info` takes.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// A recording, a folder of raw pages, a trace.dat, or the text of ftrace, trace-cmd or perf script
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print JSON for machines: one object, schema nofrag.trace.info
    #[arg(long)]
    json: bool,
}

const SCHEMA: Schema = Schema { name: "nofrag.trace.info", version: 1 };

/// What `--json` writes.
#[derive(Serialize)]
struct Document<'a> {
    file: String,
    release: Option<&'a str>,
    clock: Option<&'a str>,
    command: Option<&'a str>,
    sizes: Option<Sizes>,
    snapshots: Vec<SnapshotLine>,
    missing: &'a [String],
    summary: &'a Summary,
}

#[derive(Serialize)]
struct SnapshotLine {
    moment: Moment,
    files: Vec<String>,
}

/// Shows what is in the file that `args` names.
pub(super) fn execute(args: &Args) -> Result<Status> {
    let sizes = sizes(&args.file);
    let Trace { meta, mut events, mut room } = trace::open(&args.file)?;
    let bar = progress::events();
    let progress = &mut |done| bar.set_position(done);
    let summary = summarise(&meta, &mut *events, &mut room, progress);
    bar.finish_and_clear();
    let (summary, meta) = (summary?, &meta);
    if args.json {
        let document = Document {
            file: args.file.display().to_string(),
            release: meta.release.as_deref(),
            clock: meta.clock.as_deref(),
            command: meta.command.as_deref(),
            sizes,
            snapshots: snapshots(meta),
            missing: &meta.missing,
            summary: &summary,
        };
        print_document(SCHEMA, &document)?;
    } else {
        let head = head(&args.file, meta, sizes.as_ref(), &summary);
        print(&head)?;
        print_sections(&sections(meta, &summary))?;
    }
    Ok(Status::Done)
}

/// What the bytes of the file hold, if it is a recording of nofrag's own.
fn sizes(path: &Path) -> Option<Sizes> {
    if path.is_dir() { None } else { Recording::open(path).ok().map(|recording| recording.sizes()) }
}

fn snapshots(meta: &TraceMeta) -> Vec<SnapshotLine> {
    let lines = meta.snapshots.iter().map(|taken| SnapshotLine {
        moment: taken.moment,
        files: taken.files.names().map(str::to_owned).collect(),
    });
    lines.collect()
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn count(value: u64) -> Quantity {
    nofrag_show::count(value as f64)
}

/// A part of a whole, with its share.
fn share(part: u64, whole: u64) -> Cell {
    let percent = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    let part = count(part);
    Cell::about(part, format!("{part} ({percent:.1} %)"))
}

/// The lines above the tables.
fn head(path: &Path, meta: &TraceMeta, sizes: Option<&Sizes>, summary: &Summary) -> String {
    let unknown = || "not known".to_owned();
    let mut lines = vec![
        format!("{}", path.display()),
        format!(
            "  kernel {}; clock {}",
            meta.release.clone().unwrap_or_else(unknown),
            meta.clock.clone().unwrap_or_else(unknown)
        ),
    ];
    lines.extend(meta.command.iter().map(|command| format!("  command {command}")));
    let rate = match summary.nanos {
        0 => String::new(),
        nanos => {
            format!(", {} a second", nofrag_show::number(summary.events as f64 / seconds(nanos)))
        }
    };
    let cpus = summary.cpus.iter().map(|(cpu, events)| format!("CPU {cpu}: {}", count(*events)));
    lines.push(format!(
        "  {} events in {}{rate}; {}",
        count(summary.events),
        nofrag_show::duration(seconds(summary.nanos)),
        cpus.collect::<Vec<_>>().join(", ")
    ));
    if let Some(sizes) = sizes {
        lines.push(format!(
            "  {} bytes: events {} in {} chunks, snapshots {}; {} bytes an event",
            count(sizes.file),
            count(sizes.events),
            count(sizes.chunks),
            count(sizes.snapshots),
            nofrag_show::number(sizes.events as f64 / sizes.count.max(1) as f64)
        ));
    }
    lines.push(String::from("\n"));
    lines.join("\n")
}

fn sections(meta: &TraceMeta, summary: &Summary) -> Vec<Section> {
    let mut sections = Vec::new();
    if summary.rate.events.len() > 1 {
        sections.push(rate(summary));
    }
    sections.extend(kinds(summary));
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
        caption: format!("Each part of the picture counts {}.", nofrag_show::duration(slot)),
        ends: ["the first event".to_owned(), "the last".to_owned()],
        layers: vec![("events a second".to_owned(), per_second)],
    }
}

fn kinds(summary: &Summary) -> Option<Section> {
    let rows = summary.kinds.iter().map(|kind| {
        let rate = kind.per_second.map(nofrag_show::number);
        cells![kind.group, kind.name, count(kind.count), rate]
    });
    let rows = rows.collect::<Vec<_>>();
    table_of("Events", "", 2, &["group", "event", "count", "a second"], rows)
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
    let time = |nanos| nofrag_show::duration(seconds(nanos));
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
    let rows = rows.map(|flags| cells![&flags.names, share(flags.count, all)]).collect::<Vec<_>>();
    let caption = match summary.flags.len().saturating_sub(FLAGS) {
        0 => String::new(),
        left => format!("The commonest; {left} more sets are not shown."),
    };
    table_of("Flags of requests", &caption, 2, &["gfp_flags", "requests"], rows)
}

/// Which types were mixed, how often; `None` if none were.
pub(crate) fn extfrag(pairs: &[ExtFragCount]) -> Option<Section> {
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
    let Loss { events, gaps, unreadable } = summary.loss;
    let mut lines = match (events, gaps) {
        (0, 0) => vec!["no event is known to be lost".to_owned()],
        (events, 0) => vec![format!(
            "at least {} events are lost, it is not known where: any block may be paired wrongly",
            count(events)
        )],
        (events, gaps) => vec![format!(
            "at least {} events are lost, in {} places: blocks are paired wrongly after each",
            count(events.max(gaps)),
            count(gaps)
        )],
    };
    if unreadable > 0 {
        lines.push(format!("{} records could not be understood", count(unreadable)));
    }
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
                nofrag_show::number(seconds(begin)),
                nofrag_show::number(seconds(end))
            ),
            Moment::After => "after the last event".to_owned(),
        };
        let names: Vec<&str> = taken.files.names().collect();
        format!("{when}: {}", names.join(", "))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { vec!["none".to_owned()] } else { lines }
}
