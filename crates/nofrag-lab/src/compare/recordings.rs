//! Recordings: rates, events by kind, order and type, and the snapshots at their ends.

use nofrag::page::Migratetype;
use nofrag::units::Order;
use nofrag_host::snapshot::{Files, Snapshot};
use nofrag_host::trace::{Event, EventKind, Loss, Progressed, Trace, TraceMeta, View};

use nofrag_show::host::trace::not_whole;

use super::{
    Better, CompareError, ComparedRow, Each, Found, Group, Machines, Scale, percent, snapshots,
};

use Better::{Less, Neither};
use Scale::{Count, Share};

pub(super) fn compare(
    traces: Vec<(String, Trace)>,
    progress: &dyn Fn(Progressed),
) -> Result<(Found, Vec<String>), CompareError> {
    let (mut sides, mut read) = (Vec::new(), 0);
    let of = traces.iter().map(|(_, trace)| trace.events.stated()).sum::<Option<u64>>();
    let progress = |events| progress(Progressed { events, of });
    for (name, trace) in traces {
        let (meta, tally) = tally(trace, read, &progress)?;
        read += tally.events;
        sides.push(Side { name, meta, tally });
    }
    let machines = machines(&sides);
    let tallies = &sides.each(|side| &side.tally)[..];
    let mut groups = vec![
        Group { title: "Recording".to_owned(), rows: whole(tallies) },
        Group {
            title: "Events per second of each recording's clock".to_owned(),
            rows: rates(tallies),
        },
        Group { title: "Requests".to_owned(), rows: requests(tallies) },
        Group { title: "Trouble per million requests".to_owned(), rows: trouble(&sides) },
    ];
    let mut cautions = cautions(&sides);
    let ends: Option<Vec<&Files>> =
        sides.iter().map(|side| Some(&side.meta.end()?.files)).collect();
    match ends {
        Some(ends) => {
            let ends = snapshots::compare(&ends);
            groups.extend(
                ends.groups
                    .into_iter()
                    .map(|group| Group { title: format!("At the end: {}", group.title), ..group }),
            );
        }
        None => cautions
            .push("no snapshots at the ends are compared: not all sides have one".to_owned()),
    }
    let damage = sides
        .iter()
        .filter_map(|Side { name, tally, .. }| Some(format!("{}: {name}", not_whole(tally.loss)?)));
    let damage = damage.collect();
    Ok((Found { machines, groups, damage }, cautions))
}

/// A recording that has been read.
struct Side {
    name: String,
    meta: TraceMeta,
    tally: Tally,
}

/// Tells whether the recordings come from one machine: kernel and zones agree; without snapshots, kernel and CPUs do.
fn machines(sides: &[Side]) -> Machines {
    let files = sides.iter().map(|side| Some(&side.meta.end().or(side.meta.start())?.files));
    if let Some(files) = files.collect::<Option<Vec<_>>>() {
        let parsed = files.each(|files| Snapshot::parse(files));
        return snapshots::machines(&parsed.iter().collect::<Vec<_>>());
    }
    let of = |side: &Side| (side.meta.release.clone(), side.meta.cpus.clone());
    let is_one =
        sides.windows(2).all(|pair| of(&pair[0]).0.is_some() && of(&pair[0]) == of(&pair[1]));
    if is_one { Machines::Same } else { Machines::Different }
}

/// Counts of the events of one recording.
struct Tally {
    events: u64,
    first: Option<u64>,
    last: u64,
    by_kind: [u64; EventKind::COUNT],
    by_order: [u64; Order::COUNT],
    by_type: [u64; Migratetype::COUNT],
    failed: u64,
    extfrag: [u64; Migratetype::COUNT],
    serious: u64,
    migrated: u64,
    reclaimed: u64,
    loss: Loss,
}

impl Tally {
    fn add(&mut self, event: &Event) {
        self.events += 1;
        self.first.get_or_insert(event.at);
        self.last = self.last.max(event.at);
        self.by_kind[event.kind as usize] += 1;
        match event.view() {
            View::PageAlloc { pfn, order, migratetype, .. } => {
                bump(&mut self.by_order, usize::try_from(order).ok());
                bump(&mut self.by_type, usize::try_from(migratetype).ok());
                self.failed += u64::from(pfn.is_none());
            }
            View::ExtFrag { fallback_order, alloc_migratetype, .. } => {
                /// The order of a pageblock: fallbacks of whole pageblocks mix nothing.
                const PAGEBLOCK: i32 = Order::PAGEBLOCK.get() as i32;
                const SERIOUS: i32 = 4;
                if fallback_order < PAGEBLOCK {
                    bump(&mut self.extfrag, usize::try_from(alloc_migratetype).ok());
                    self.serious += u64::from(fallback_order < SERIOUS);
                }
            }
            View::MigratePages { succeeded, .. } => {
                self.migrated = self.migrated.saturating_add(succeeded);
            }
            View::DirectReclaimEnd { reclaimed } => {
                self.reclaimed = self.reclaimed.saturating_add(reclaimed);
            }
            _ => {}
        }
    }

    fn seconds(&self) -> f64 {
        self.last.saturating_sub(self.first.unwrap_or(0)) as f64 / 1e9
    }

    fn of(&self, kind: EventKind) -> u64 {
        self.by_kind[kind as usize]
    }

    fn requests(&self) -> u64 {
        self.of(EventKind::PageAlloc)
    }
}

fn bump(counts: &mut [u64], place: Option<usize>) {
    if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
        *count += 1;
    }
}

fn tally(
    mut trace: Trace,
    before: u64,
    progress: &dyn Fn(u64),
) -> Result<(TraceMeta, Tally), CompareError> {
    let mut tally = Tally {
        events: 0,
        first: None,
        last: 0,
        by_kind: [0; EventKind::COUNT],
        by_order: [0; Order::COUNT],
        by_type: [0; Migratetype::COUNT],
        failed: 0,
        extfrag: [0; Migratetype::COUNT],
        serious: 0,
        migrated: 0,
        reclaimed: 0,
        loss: Loss::default(),
    };
    let mut events = Vec::new();
    while trace.events.read(&mut events)? {
        events.iter().for_each(|event| tally.add(event));
        events.clear();
        progress(before + tally.events);
    }
    tally.loss = trace.events.loss();
    Ok((trace.meta, tally))
}

fn row(
    name: impl Into<String>,
    scale: Scale,
    better: Better,
    sides: &[&Tally],
    of: impl Fn(&Tally) -> Option<f64>,
) -> ComparedRow {
    ComparedRow::new(name, scale, better, sides.iter().map(|tally| of(tally)))
}

fn whole(sides: &[&Tally]) -> Vec<ComparedRow> {
    vec![
        row("seconds of the clock", Count, Neither, sides, |tally| Some(tally.seconds())),
        row("events", Count, Neither, sides, |tally| Some(tally.events as f64)),
        row("events lost, where they were counted", Count, Less, sides, |tally| {
            Some(tally.loss.events as f64)
        }),
        row("places where events are lost", Count, Less, sides, |tally| {
            Some(tally.loss.gaps as f64)
        }),
        row("records that cannot be read", Count, Less, sides, |tally| {
            Some(tally.loss.unreadable as f64)
        }),
    ]
}

/// Returns the rates of events. They depend on the speed of the machine, so their scale is that of counts.
fn rates(sides: &[&Tally]) -> Vec<ComparedRow> {
    let kinds = (0..EventKind::COUNT).filter_map(EventKind::from_number);
    let seen = kinds.filter(|&kind| sides.iter().any(|tally| tally.of(kind) > 0));
    let rate = |count: u64, seconds: f64| (seconds > 0.0).then(|| count as f64 / seconds);
    let rows = seen.map(|kind| {
        row(kind.name(), Count, Neither, sides, |tally| rate(tally.of(kind), tally.seconds()))
    });
    rows.collect()
}

fn requests(sides: &[&Tally]) -> Vec<ComparedRow> {
    let mut rows = Vec::new();
    for order in 0..Order::COUNT {
        if sides.iter().any(|tally| tally.by_order[order] > 0) {
            rows.push(row(format!("of order {order}, %"), Share, Neither, sides, |tally| {
                percent(tally.by_order[order], tally.requests())
            }));
        }
    }
    for migratetype in Migratetype::ALL {
        let index = migratetype.index();
        if sides.iter().any(|tally| tally.by_type[index] > 0) {
            let name = format!("of type {}, %", migratetype.name());
            rows.push(row(name, Share, Neither, sides, |tally| {
                percent(tally.by_type[index], tally.requests())
            }));
        }
    }
    rows
}

/// Returns true if a side traced `kind`: its formats say so, or, where it has none, it has an event of that kind.
fn traced(meta: &TraceMeta, tally: &Tally, kind: EventKind) -> bool {
    tally.of(kind) > 0 || meta.formats.iter().any(|(name, _)| name == kind.name())
}

/// Returns events per million requests, so that the length of a recording does not matter. A kind that a side did not
/// trace is absent, not zero.
fn trouble(sides: &[Side]) -> Vec<ComparedRow> {
    let per_million =
        |part: u64, tally: &Tally| percent(part, tally.requests()).map(|share| share * 1e4);
    let extfrag = |tally: &Tally| tally.extfrag.iter().sum::<u64>();
    type Figure<'a> = (&'static str, EventKind, &'a dyn Fn(&Tally) -> u64);
    let figures: [Figure<'_>; 8] = [
        ("requests not served", EventKind::PageAlloc, &|tally| tally.failed),
        ("external fragmentation events", EventKind::ExtFrag, &extfrag),
        ("of these below order 4", EventKind::ExtFrag, &|tally| tally.serious),
        ("runs of compaction", EventKind::CompactionBegin, &|tally| {
            tally.of(EventKind::CompactionBegin)
        }),
        ("pages moved", EventKind::MigratePages, &|tally| tally.migrated),
        ("entries into direct reclaim", EventKind::DirectReclaimBegin, &|tally| {
            tally.of(EventKind::DirectReclaimBegin)
        }),
        ("pages reclaimed by callers", EventKind::DirectReclaimEnd, &|tally| tally.reclaimed),
        ("wakes of kswapd", EventKind::KswapdWake, &|tally| tally.of(EventKind::KswapdWake)),
    ];
    let rows = figures.into_iter().map(|(name, kind, figure)| {
        let value = |Side { meta, tally, .. }: &Side| {
            let known = traced(meta, tally, kind);
            known.then(|| per_million(figure(tally), tally)).flatten()
        };
        ComparedRow::new(name, Share, Less, sides.iter().map(value))
    });
    rows.collect()
}

fn cautions(sides: &[Side]) -> Vec<String> {
    let mut cautions = Vec::new();
    let mut releases = sides.each(|side| side.meta.release.as_deref().unwrap_or("an unknown one"));
    releases.dedup();
    if releases.len() > 1 {
        releases.sort_unstable();
        releases.dedup();
        cautions.push(format!("the kernels differ: {}", releases.join(" and ")));
    }
    let seen = |side: &Side| side.tally.by_kind.map(|count| count > 0);
    if sides.iter().any(|side| seen(side) != seen(&sides[0])) {
        cautions.push(
            "a kind of event that one side does not have at all may not have been recorded there"
                .to_owned(),
        );
    }
    for Side { name, meta, .. } in sides {
        cautions.extend(meta.missing.iter().map(|what| format!("{name}: {what}")));
    }
    cautions
}
