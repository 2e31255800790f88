//! Tables of the comparison of blocks.

use super::catalogue::{
    BY_HANDLE, GLOBAL, KERNEL_TEST, MODEL, MODELS, NODES, OURS, PER_CPU, SPECS, Spec, THREADS,
};
use super::claims::lock_of;
use super::locks::{LockKind, Site};
use super::model::Costs;
use super::names::{self, Column};
use super::turns::{BlocksPlan, geometry};
use crate::figures::{self, Document, Figure, FigureUnit, LockFigure, LockTable, PublishedTable};
use crate::key::{Amount, Key};
use crate::report::{Comparison, Measurement, Report};
use crate::scenario::ProgramInfo;
use crate::tables::{ByDesign, Show, bars, comparisons, programs_by_design, row_of};
use nofrag_show::{Cell, Section, cells, count, number, ratio, table_of};

/// Pairs of the document's first run: 64 threads, ten million loops each.
const PUBLISHED_PAIRS: f64 = 640e6;

/// Sets the published figures beside the measured ones.
pub(super) fn compare_published(report: &mut Report) {
    let document = figures::rezki_2023();
    let mut comparisons = Vec::new();
    for figure in &document.figures {
        // The document's second run, by real threads and in the model.
        let also = if figure.program == KERNEL_TEST { "model_5p" } else { "" };
        for program in [figure.program.as_str(), also] {
            let rows = [GLOBAL, PER_CPU].map(|design| report.measurement(program, design));
            let [Some(old), Some(new)] = rows else { continue };
            let mut comparison = Comparison::of(figure, old, new);
            if figure.unit == FigureUnit::Contentions {
                let contended = |row| lock_of(row, LockKind::BlockIndex, Column::Contentions);
                comparison.measured = contended(old) / contended(new).max(1.0);
            }
            comparisons.push(comparison);
        }
    }
    report.comparisons = comparisons;
}

/// Notes facts that weaken or explain the result.
pub(super) fn take_notes(plan: &BlocksPlan, report: &mut Report) {
    let cpus = nofrag_show::cpus();
    report.notes.push(format!(
        "real threads had {cpus} CPUs: on so few, times say little about the index; the counts of conflicts do, and \
         the model shows what 64 CPUs would meet"
    ));
    report.notes.push(
        "addresses only: nothing is mapped, so a loop is short and its locks meet more often than in \
         a kernel"
            .to_owned(),
    );
    if MODELS.iter().any(|program| report.measurement(program, GLOBAL).is_some()) {
        report.notes.push(model_parameters(plan));
        report.notes.push(size_of_blocks());
    }
    report.notes.extend(nodes_of_blocks(report));
    report.notes.extend(losses(report));
    report.notes.extend(report.weaknesses());
}

/// Names the programs in which Linux is faster than ours, called in the same way.
fn losses(report: &Report) -> Option<String> {
    let mut alike = report.clone();
    alike.measurements.retain(|row| row.design != BY_HANDLE);
    alike.losses(OURS)
}

/// Explains the small size of the model's blocks.
fn size_of_blocks() -> String {
    let taken = |slots: f64| count(2.0 * PUBLISHED_PAIRS / slots);
    format!(
        "the model's blocks have {} pages, as in a kernel built for 8192 CPUs. The document does not say how large its \
         own were, but its loops used up blocks that take the area lock twice each: {} times with blocks of 1024 pages \
         and {} times with 512, fewer than it was contended",
        geometry().slots(),
        taken(1024.0),
        taken(512.0)
    )
}

/// Tells the effect of the nodes of 6.9 and later on blocks.
fn nodes_of_blocks(report: &Report) -> Option<String> {
    let nodes =
        report.count(MODEL, NODES, names::of_lock(LockKind::AreaBusy, Column::Instances))?;
    let slots = geometry().slots();
    Some(format!(
        "{NODES} divides its busy areas by address, 16 pages to a node; blocks begin at multiples of their size, so \
         that those of {slots} pages all fall on {nodes} of the nodes, and fewer the larger a block is"
    ))
}

fn model_parameters(plan: &BlocksPlan) -> String {
    let Costs { map_ns, unmap_ns, page_ns, between_ns, line_ns, lines, .. } = Costs::STATED;
    let lines: Vec<String> = LockKind::ALL
        .into_iter()
        .filter(|kind| !kind.is_private())
        .map(|kind| format!("{} {}", kind.into_str(), lines.of(kind)))
        .collect();
    format!(
        "the model: {} CPUs with a clock each; a map works {map_ns} ns and an unmap {unmap_ns}, {page_ns} more for \
         each further page, a quarter more or less by chance; a lock serves who comes first and is held {line_ns} ns \
         for each cache line that its structure fetches ({}), by chance anything from nothing to twice that; then \
         come up to {between_ns} ns until the next lock; those who wait do not slow the holder down, so a saturated \
         lock hides what another one costs; block, queue and CPU locks are a CPU's own here; the time of a line and \
         of a pair were chosen so that the area lock is contended about as often as published, the rest follows",
        plan.threads,
        lines.join(", ")
    )
}

/// Returns all sections of a report.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let document = figures::rezki_2023();
    let mut sections = Vec::new();
    sections.extend(picture(report));
    sections.extend(lock_stats(report, &document));
    sections.extend(by_lock(report, &document));
    sections.extend(assumptions(report));
    sections.extend(times(report));
    sections.extend(real_locks(report));
    sections.extend(turnover(report, &document));
    sections.extend(published(report));
    sections.extend(beginnings(&document));
    sections
}

fn contended(row: &Measurement) -> f64 {
    LockKind::ALL.iter().map(|kind| lock_of(row, *kind, Column::Contentions)).sum()
}

fn per_million(row: &Measurement, events: f64) -> f64 {
    1e6 * events / row.count(names::PAIRS).unwrap_or(1.0)
}

fn picture(report: &Report) -> Option<Section> {
    let of_model = SPECS.iter().filter(|spec| MODELS.contains(&spec.info.name));
    let group = |spec: &Spec| {
        let ProgramInfo { name, body, .. } = spec.info;
        let rows = report.of_program(name);
        let bar = |row: &Measurement| (row.design.clone(), per_million(row, contended(row)));
        (format!("{name}: {body}"), rows.map(bar).filter(|(_, met)| *met > 0.0).collect())
    };
    let title = "Contended acquisitions per million pairs in the model, all locks, logarithmic (no bar: none)";
    bars(title, of_model.map(group))
}

/// A row of a table as `lock_stat` prints it; a value that is not known is `None`.
struct LockRow {
    name: String,
    con_bounces: Option<f64>,
    contentions: f64,
    wait_max_us: Option<f64>,
    wait_avg_us: Option<f64>,
    acquisitions: Option<f64>,
    waiting: Vec<(String, f64)>,
    holding: Vec<(String, f64)>,
}

impl LockRow {
    fn published(lock: &LockFigure) -> LockRow {
        let places = |places: &[figures::Place]| {
            places.iter().map(|place| (place.at.clone(), place.count as f64)).collect()
        };
        LockRow {
            name: format!("{} ({})", lock.name, lock.here),
            con_bounces: lock.con_bounces.map(|count| count as f64),
            contentions: lock.contentions as f64,
            wait_max_us: lock.wait_max_us,
            wait_avg_us: lock.wait_avg_us,
            acquisitions: None,
            waiting: places(&lock.waiting),
            holding: places(&lock.holding),
        }
    }

    fn modelled(row: &Measurement, kind: LockKind) -> Option<LockRow> {
        let of = |column| row.count(names::of_lock(kind, column));
        let acquisitions = of(Column::Acquisitions)?;
        let contentions = of(Column::Contentions).unwrap_or(0.0);
        let sites = |name: fn(LockKind, Site) -> Key| {
            let site =
                |site: Site| Some((site.into_str().to_owned(), row.count(name(kind, site))?));
            Site::ALL.into_iter().filter_map(site).collect()
        };
        let waits = |column| of(column).filter(|_| contentions > 0.0);
        let name = match of(Column::Instances) {
            Some(many) if many > 1.0 => format!("{} ({many} locks)", kind.into_str()),
            _ => kind.into_str().to_owned(),
        };
        Some(LockRow {
            name,
            con_bounces: Some(of(Column::ConBounces).unwrap_or(0.0)),
            contentions,
            wait_max_us: waits(Column::WaitMaxUs),
            wait_avg_us: waits(Column::WaitAvgUs),
            acquisitions: Some(acquisitions),
            waiting: sites(names::waiting),
            holding: sites(names::holding),
        })
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let mut rows = vec![cells![
            &self.name,
            self.con_bounces.map(count),
            count(self.contentions),
            self.wait_max_us.map(number),
            self.wait_avg_us.map(number),
            self.acquisitions.map(count),
        ]];
        for (role, sites) in [("waits at", &self.waiting), ("held by", &self.holding)] {
            for (site, times) in sites.iter() {
                rows.push(cells![format!("· {role} {site}"), "", count(*times), "", "", ""]);
            }
        }
        rows
    }
}

fn lock_stat(title: String, caption: &str, mut locks: Vec<LockRow>) -> Option<Section> {
    locks.sort_by(|a, b| {
        let by = |row: &LockRow| (row.contentions, row.acquisitions.unwrap_or(0.0));
        by(b).partial_cmp(&by(a)).expect("counts are numbers")
    });
    let header = ["lock", "con-bounces", "contentions", "max us", "avg us", "acquisitions"];
    table_of(&title, caption, 1, &header, locks.iter().flat_map(LockRow::rows).collect())
}

/// Shows the published tables and the model's, ranked by contentions.
fn lock_stats(report: &Report, document: &Document) -> Vec<Section> {
    let published = |table: LockTable, title: &str, caption: &str| {
        let locks = document.locks.iter().filter(|lock| lock.table == table);
        lock_stat(title.to_owned(), caption, locks.map(LockRow::published).collect())
    };
    let modelled = |row: &Measurement| {
        let locks = LockKind::ALL.into_iter().filter_map(|kind| LockRow::modelled(row, kind));
        let pairs = row.shown(names::PAIRS)?;
        let title = format!("lock_stat in the model: {}, {pairs} pairs of one page", row.design);
        lock_stat(title, MODELLED, locks.collect())
    };
    if report.of_program(MODEL).next().is_none() {
        return Vec::new();
    }
    let before =
        published(LockTable::Before, "lock_stat as published: before, a global index", BEFORE);
    let after =
        published(LockTable::After, "lock_stat as published: after, an index for each CPU", AFTER);
    let models = report.of_program(MODEL).filter_map(modelled);
    before.into_iter().chain(after).chain(models).collect()
}

const BEFORE: &str = "A row is one lock, ranked by contentions, with those that waited and those that held it; \
                      waits in microseconds. 64 threads on 64 CPUs, 640,000,000 pairs; in brackets, what the tables \
                      below call it.";
const AFTER: &str = "The other locks are not touched by the change.";
const MODELLED: &str = "A row is one kind of lock. Contention: it was held by another; bounce: another CPU had it \
                        last. map: vm_map_ram, alloc_vmap_area; unmap: xa_erase, free_vmap_block.";

/// Shows contentions of each lock, published and modelled.
fn by_lock(report: &Report, document: &Document) -> Option<Section> {
    let models: Vec<&Measurement> = report.of_program(MODEL).collect();
    let there = |kind: LockKind, table| {
        let of = |lock: &&LockFigure| lock.here == kind.key() && lock.table == table;
        let lock = document.locks.iter().find(of)?;
        Some(number(1e6 * lock.contentions as f64 / PUBLISHED_PAIRS))
    };
    let row = |kind: LockKind| {
        let contended =
            |row: &&Measurement| per_million(row, lock_of(row, kind, Column::Contentions));
        let here: Vec<f64> = models.iter().map(contended).collect();
        let row =
            cells![kind.into_str(), there(kind, LockTable::Before), there(kind, LockTable::After),];
        let is_contended = here.iter().any(|contended| *contended > 0.0);
        is_contended.then(|| row.into_iter().chain(here.into_iter().map(|it| number(it).into())))
    };
    let designs = models.iter().map(|row| &*row.design);
    table_of(
        "Contentions per million pairs of one page on 64 CPUs, there and in the model",
        "A row is one kind of lock that was contended. What to compare is the order of a column and what changes \
         between two, not one number with another.",
        1,
        ["lock", "there before", "there after"].into_iter().chain(designs),
        LockKind::ALL.into_iter().filter_map(row).map(Iterator::collect).collect(),
    )
}

/// Shows the model's results under other assumptions.
fn assumptions(report: &Report) -> Option<Section> {
    let row = |spec: &Spec| {
        let contended = |design, kind| {
            let row = report.measurement(spec.info.name, design)?;
            Some(per_million(row, lock_of(row, kind, Column::Contentions)))
        };
        let before = LockKind::ALL.map(|kind| (contended(GLOBAL, kind), kind));
        let mut ranked: Vec<_> = before.into_iter().filter(|(n, _)| *n > Some(0.0)).collect();
        ranked.sort_by(|a, b| b.partial_cmp(a).expect("counts are numbers"));
        let order: Vec<&str> = ranked.iter().take(3).map(|(_, kind)| kind.into_str()).collect();
        let index = [GLOBAL, PER_CPU].map(|design| contended(design, LockKind::BlockIndex));
        let area = [GLOBAL, PER_CPU].map(|design| contended(design, LockKind::AreaBusy));
        let fewer = |[before, after]: [Option<f64>; 2]| {
            let (before, after) = before.zip(after)?;
            Some(if after > 0.0 { ratio(before / after).into() } else { Cell::from("all") })
        };
        let name = if spec.is_assumption() { spec.info.name } else { "as stated" };
        Some(cells![name, order.join(", "), fewer(index)?, fewer(area)?])
    };
    let tried = SPECS.iter().filter(|spec| spec.is_assumption() || spec.info.name == MODEL);
    let rows: Vec<_> = tried.filter_map(row).collect();
    if rows.len() < 2 {
        return None;
    }
    table_of(
        "What in the model depends on its assumptions: contentions, global index over index per CPU",
        "A row is one set of assumptions: those that the notes state, and others, one change each. All locks held \
         equally long; each hold of a lock equally long; nothing done between two locks; a cache line in half the \
         time. Published: area busy, block index, area free; 83x; no change.",
        2,
        &["assumption", "most contended, global index", "index lock", "area busy"],
        rows,
    )
}

static REAL: ByDesign = ByDesign {
    title: "Real threads: nanoseconds of a processor per pair",
    caption: "A row is one program; a pair is a map and its unmap. Median of the repetitions, ± half their range: the \
              wall time of all threads, times the processors that took part, over all pairs.",
    show: Show::Time,
};

static MODELLED_TIMES: ByDesign = ByDesign {
    title: "Model: simulated nanoseconds per pair",
    caption: "A row is one program. What a pair takes on a simulated CPU, its waits included.",
    show: Show::By(|row| Some(number(row.time.median).into())),
};

static REAL_LOCKS: ByDesign = ByDesign {
    title: "Real threads: locked operations per pair / lock conflicts per million pairs",
    caption: "A row is one program. Two locked operations for each lock taken, and the atomic updates.",
    show: Show::By(|row| {
        let conflicts = 1e6 * row.count(names::CONFLICTS_PER_PAIR)?;
        let locked = row.shown(names::LOCKED_PER_PAIR)?;
        Some(Cell::about(locked, format!("{locked} / {}", number(conflicts))))
    }),
};

fn times(report: &Report) -> Vec<Section> {
    let throughput = programs_by_design(
        report,
        "Pairs in the same time, as multiples of those under the global index",
        "A row is one program: throughput. Of the real ones, medians.",
        &[&MODELS[..], &THREADS[..]].concat(),
        |row| {
            let global = report.measurement(&row.program, GLOBAL);
            global.map(|global| ratio(global.time.median / row.time.median)).into()
        },
    );
    let times = [REAL.of(report, &THREADS), MODELLED_TIMES.of(report, &MODELS), throughput];
    times.into_iter().flatten().collect()
}

/// Shows the locks and conflicts of real threads.
fn real_locks(report: &Report) -> Vec<Section> {
    let locked = REAL_LOCKS.of(report, &THREADS);
    locked.into_iter().chain(THREADS.into_iter().filter_map(|it| conflicts(report, it))).collect()
}

/// Shows the locks of one program that saw a conflict.
fn conflicts(report: &Report, program: &str) -> Option<Section> {
    let ran: Vec<&Measurement> = report.of_program(program).collect();
    let met = |row: &Measurement, kind| lock_of(row, kind, Column::Contentions);
    let row = |kind: LockKind| {
        let cell = |row: &&Measurement| {
            let taken = row.count(names::of_lock(kind, Column::Acquisitions))?;
            let [taken, met] = [taken, met(row, kind)].map(|n| per_million(row, n));
            Some(Cell::About(taken, format!("{} / {}", short(taken), short(met))))
        };
        let any = ran.iter().any(|row| met(row, kind) > 0.0);
        any.then(|| row_of(kind.into_str(), ran.iter().map(|it| cell(it).into()).collect()))?
    };
    let designs = ran.iter().map(|row| &*row.design);
    table_of(
        &format!("{program}: each lock per million pairs, acquisitions / conflicts"),
        "A row is one kind of lock; those without any conflict are left out. All repetitions together.",
        1,
        ["lock"].into_iter().chain(designs),
        LockKind::ALL.into_iter().filter_map(row).collect(),
    )
}

/// Formats a count for a narrow column: thousands from ten thousand on.
fn short(value: f64) -> String {
    match value {
        _ if value < 10_000.0 => number(value).to_string(),
        _ => format!("{}k", number(value / 1000.0)),
    }
}

/// Shows contentions of the block index's lock where blocks turn over, beside the counts of Linux's own algorithm.
fn turnover(report: &Report, document: &Document) -> Option<Section> {
    let row = |figure: &Figure| {
        let here = |design| {
            let row = report.measurement(&figure.program, design)?;
            Some(count(lock_of(row, LockKind::BlockIndex, Column::Contentions)))
        };
        let there = cells![count(figure.before[0]), count(figure.after[0])];
        let here = row_of(
            &figure.program,
            [GLOBAL, PER_CPU, OURS, BY_HANDLE].map(here).map(Cell::from).to_vec(),
        )?;
        Some([&here[..1], &there[..], &here[1..]].concat())
    };
    let of_threads = |figure: &&Figure| {
        figure.unit == FigureUnit::Contentions && THREADS.contains(&figure.program.as_str())
    };
    let figures = document.figures.iter().filter(of_threads);
    table_of(
        "Contended acquisitions of the index lock where blocks turn over, two threads",
        "A row is one program. There: Linux's own algorithm in user space, on a machine of this kind; its number of \
         loops is not known, so the ratio of its two counts is what to compare. Ours has no such lock.",
        1,
        &["program", "there: global", "per CPU", "here: global", "linux-6.4", OURS, BY_HANDLE],
        figures.filter_map(row).collect(),
    )
}

fn published(report: &Report) -> Option<Section> {
    let title = "Published beside measured: the global index over the index per CPU";
    let caption = "A row is one published figure and one program that was run here. Times of real threads on few CPUs \
                   are near 1x whatever the index; in the model the area lock is saturated at 5 pages, and who no \
                   longer waits for the index waits for that.";
    comparisons(report, (title, caption), &["figure", "run here"], |it| {
        Some(cells![&it.what, &it.program])
    })
}

/// Shows what blocks gained when they were new, as published in 2008.
fn beginnings(document: &Document) -> Vec<Section> {
    let row = |(threads, figures): (&String, &Vec<Amount>)| {
        let [before, after] = [figures[0].get(), figures[1].get()];
        cells![threads, count(before), count(after), ratio(before / after)]
    };
    let table = |table: &PublishedTable| {
        table_of(
            "As published: what blocks for each CPU once gained (Piggin 2008, Linux 2.6.28)",
            "A row is one number of threads; nanoseconds to map, touch and unmap four pages, on two sockets of four \
             cores. For context: what was before has no design here.",
            1,
            ["threads"].into_iter().chain(table.columns.iter().map(Key::name)).chain(["gain"]),
            table.rows.iter().map(row).collect(),
        )
    };
    document.tables.iter().filter_map(table).collect()
}
