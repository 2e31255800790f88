//! Tables and pictures of this scenario, in the document's order. Events leave it as reductions only: the counts of the
//! document belong to machines whose memory and disks were never published.

use super::catalogue::{
    ALL_FIVE, BOOST_FACTORS, CURVE_SEEDS, Case, DEFRAG_MODE, FIRST_STRICT, LAST_LOOSE, MERGED,
    MIX_DESIGNS, NEWEST, OURS, PATCH_1, Program, SHIPPED, STALL_BOUNDS_MS, STALL_ORDERS, VANILLA,
    boost_name, is_strict, silent_beside, stall_name,
};
use super::names;
use super::turns::{ExtfragPlan, PARTS};
use super::view::{Beside, OtherRules, View};
use super::withdrawn::{self, Caption};
use crate::figures::{self, Gorman2018};
use crate::key::Key;
use crate::report::{Measurement, Report};
use crate::scenario::Extent;
use crate::stats::Spread;
use crate::tables::Show::{As, Figure, Time};
use crate::tables::{self, Column, cells_of, heads_of, row_of};
use crate::world::setup::Moment;
use nofrag_show::{
    Cell, OccupancyMap, Paint, Quantity as Shown, Section, cells, count, duration, fixed, number,
    table_of,
};

/// Returns all sections of a report.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let (view, figures) = (View { report }, figures::gorman_2018());
    let mut sections: Vec<Section> = withdrawn::by_marks(view).into_iter().collect();
    sections.extend(withdrawn::why_in_vain(view));
    sections.extend(withdrawn::who_wipes(view));
    for program in [Program::SDefault, Program::SDefrag, Program::SMadvise] {
        for case in view.cases(program) {
            sections.extend(events(view, &figures, &case));
        }
    }
    for program in [Program::HDefault, Program::HDefrag, Program::HMadvise] {
        sections.extend(two_nodes(view, &figures, program));
    }
    sections.extend(requesters(view, &figures));
    for program in [Program::MixesDefault, Program::MixesMadvise] {
        sections.extend(mixes(view, program));
        sections.extend(mixes_under_strict_lists(view, program));
    }
    sections.extend(huge_pages(view, &figures));
    sections.extend(work(view, &figures));
    sections.extend(price(view));
    sections.extend(shipped(view));
    sections.extend(stalls(view, &figures));
    sections.extend(boost_curve(view));
    sections.extend(stall_curve(view));
    sections.extend(boost(view));
    sections.extend(contiguity(view));
    sections.extend(later(view, &figures));
    sections.extend(worse(view, &figures));
    sections
}

/// Returns a design's name in a table: without the prefix that all have in common, and marked where an event means
/// something else.
fn short(design: &str) -> String {
    let name = bare(design);
    if is_strict(design) { format!("{name} †") } else { name }
}

/// Returns a design's name without the prefix that all have in common.
pub(super) fn bare(design: &str) -> String {
    let name = design.strip_prefix("linux-").unwrap_or(design);
    name.strip_prefix("4.20+").map_or_else(|| name.to_owned(), |patch| format!("+{patch}"))
}

/// Returns the short name with a second mark for withdrawn designs.
fn marked(design: &str) -> String {
    match (short(design), withdrawn::is_withdrawn(design)) {
        (name, false) => name,
        // Both marks stand together.
        (name, true) if name.ends_with('†') => format!("{name}{}", withdrawn::MARK),
        (name, true) => format!("{name} {}", withdrawn::MARK),
    }
}

/// Returns the designs of tables: those that change nothing have a table of their own.
fn tabled(view: View<'_>) -> impl Iterator<Item = &String> {
    view.designs().iter().filter(|design| silent_beside(design).is_none())
}

/// Legend of the mark on designs.
const MARK: &str = "† lists agree with their blocks, as from 6.10: each stolen page is an event, so that events \
                    compare with the others only beside mistyped allocations.";

/// Builds a table with a row for each design that has any cell.
fn designs_table(
    view: View<'_>,
    title: &str,
    caption: Caption<'_>,
    columns: impl IntoIterator<Item: AsRef<str>>,
    cells: impl Fn(&str) -> Vec<Cell>,
) -> Option<Section> {
    let (name, caption): (fn(&str) -> String, String) = match caption {
        Caption::Rows(text) => (marked, format!("{text} {}", withdrawn::mark())),
        Caption::Whole(text) => (short, withdrawn::caption(text)),
    };
    tables::designs_table(tabled(view), name, (title, &caption), columns, cells)
}

/// Shows a percentage with one digit.
fn percent(value: f64) -> Shown {
    match value.abs() {
        // A negative zero shows as zero.
        magnitude if magnitude < 0.05 => fixed(0.0, 1),
        magnitude if magnitude > 100.0 => count(value),
        _ => fixed(value, 1),
    }
}

fn one_digit(value: f64) -> Cell {
    percent(value).into()
}

/// Shows median and range of percentages.
fn percents(spread: &Spread) -> Cell {
    let [median, low, high] = [spread.median, spread.min, spread.max].map(percent);
    if spread.samples.len() < 2 || low.to_string() == high.to_string() {
        return median.into();
    }
    Cell::about(median, format!("{median} ({low}..{high})"))
}

/// Shows a median, and the least of all seeds.
fn median_and_least(spread: &Spread) -> Cell {
    let [median, least] = [spread.median, spread.min].map(percent);
    if spread.samples.len() < 2 {
        median.into()
    } else {
        Cell::about(median, format!("{median}/{least}"))
    }
}

/// Shows a count with two significant digits.
fn compact(value: f64) -> Cell {
    let text = match value.abs() {
        magnitude if magnitude < 1e3 => return count(value).into(),
        magnitude if magnitude < 9.95e3 => format!("{:.1}k", value / 1e3),
        magnitude if magnitude < 999.5e3 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    };
    Cell::About(value, text)
}

/// Shows events and mistyped allocations, if both were counted.
fn events_and_mistyped(row: &Measurement) -> Option<Cell> {
    let (events, mistyped) = (row.count(names::EVENTS)?, row.count(names::MISTYPED)?);
    Some(Cell::About(events, format!("{}/{}", compact(events), compact(mistyped))))
}

/// Returns the document's reduction of events in percent; `None` if it has no such figure.
fn published(figures: &Gorman2018, configuration: &str, design: &str) -> Option<Shown> {
    figures.reduction(configuration, design, names::EVENTS).map(percent)
}

/// Shows the events of one case as the document's first table does, and the figures that must be read beside them.
fn events(view: View<'_>, figures: &Gorman2018, case: &Case) -> Option<Section> {
    let cells = |design: &str| {
        let Some(row) = view.row(case, design) else { return Vec::new() };
        let fewer = view.fewer_events(case, design, Beside::Mistyped).ok().flatten();
        let mistyped = view.fewer(case, (VANILLA, design), &names::MISTYPED);
        let mistyped = mistyped.filter(|_| design != VANILLA);
        cells![
            Cell::median(&row.time),
            fewer.as_ref().map(percents),
            published(figures, case.configuration(), design),
            row.count(names::SERIOUS).map(compact),
            row.count(names::MISTYPED).map(compact),
            mistyped.map(|it| percent(it.median)),
        ]
    };
    designs_table(
        view,
        &format!("External fragmentation events: {case}"),
        Caption::Rows(&format!(
            "A row is one design: medians over seeds, ± half the range. Events: free blocks below order 9 that served \
             another type; fewer than linux-4.20 in percent, seed by seed: median (least..most); there: the same from \
             the document's counts. Serious: below order 4. Mistyped: allocations from blocks of another type, fewer \
             in percent. {MARK}"
        )),
        &["events", "fewer", "there", "serious", "mistyped", "fewer"],
        cells,
    )
}

/// Shows the machine with two nodes: where its threads start, and whether they may leave.
fn two_nodes(view: View<'_>, figures: &Gorman2018, program: Program) -> Option<Section> {
    let cases = view.cases(program);
    let cells = |design: &str| {
        let counts = |case: &Case| events_and_mistyped(view.row(case, design)?);
        let fewer = |case: &Case| {
            let fewer = view.fewer_events(case, design, Beside::Mistyped).ok().flatten()?;
            Some(percent(fewer.median))
        };
        let pairs = cases.iter().flat_map(|case| cells![counts(case), fewer(case)]);
        let cells: Vec<Cell> = pairs.collect();
        if !cells.iter().any(Cell::is_there) {
            return Vec::new();
        }
        [cells, cells![published(figures, program.into_str(), design)]].concat()
    };
    let nodes = cases.iter().filter_map(Case::nodes);
    let columns = nodes.flat_map(|nodes| [nodes, "%".to_owned()]).chain(["there".to_owned()]);
    designs_table(
        view,
        &format!(
            "Two nodes, five huge-page threads, {}: events/mistyped, fewer events",
            program.into_str()
        ),
        Caption::Rows(&format!(
            "A row is one design: medians over seeds; fewer events than linux-4.20 in percent. Huge-page requests stay \
             on their node (local: THISNODE) or not (any), and their threads start on node 0 or 1: the document names \
             both as causes of its small reduction by patch 1. {MARK}"
        )),
        columns,
        cells,
    )
}

/// Shows events by the type that was asked for.
fn requesters(view: View<'_>, figures: &Gorman2018) -> Option<Section> {
    let case = view.cases(Program::SDefault).into_iter().next()?;
    let types = [names::UNMOVABLE, names::MOVABLE, names::RECLAIMABLE];
    let cells = |design: &str| {
        let Some(row) = view.row(&case, design) else { return Vec::new() };
        let here = types.each_ref().map(|key| row.count(key).unwrap_or(0.0));
        let there = types
            .each_ref()
            .map(|key| figures.figure(case.configuration(), design, key).unwrap_or(0.0));
        let share = |at: usize, counts: [f64; 3]| {
            let all: f64 = counts.iter().sum();
            (all > 0.0).then(|| percent(100.0 * counts[at] / all))
        };
        let of_type = |at| cells![count(here[at]), share(at, here), share(at, there)];
        (0..types.len()).flat_map(of_type).collect()
    };
    designs_table(
        view,
        &format!("Events by the type that was asked for: {case}"),
        Caption::Rows(&format!(
            "A row is one design: medians over seeds; shares in percent, here and in the document. {MARK}"
        )),
        &["unmovable", "%", "there", "movable", "%", "there", "reclaimable", "%", "there"],
        cells,
    )
}

/// Returns the designs of the older rules, whose events compare with those of vanilla.
fn loose_designs(view: View<'_>) -> Vec<&'static str> {
    let compared = |design: &&str| !is_strict(design) && *design != VANILLA;
    MIX_DESIGNS.into_iter().filter(|design| view.has(design)).filter(compared).collect()
}

/// Shows the other mixes under the older rules.
fn mixes(view: View<'_>, program: Program) -> Option<Section> {
    let designs = loose_designs(view);
    let cases = with_calibrated(view, program);
    let row = |case: &Case| {
        let vanilla = view.row(case, VANILLA)?;
        let fewer = |design: &&str| match view.fewer_events(case, design, Beside::Nothing) {
            Ok(spread) => spread.as_ref().map(median_and_least).into(),
            Err(OtherRules) => Cell::from("other rules"),
        };
        let mut cells = cells![case_name(case), compact(vanilla.time.median)];
        cells.extend(designs.iter().map(fewer));
        Some(cells)
    };
    let names = designs.iter().map(|design| marked(design));
    let header = ["mix, GiB", "events"].map(str::to_owned).into_iter().chain(names);
    table_of(
        &format!("Other mixes, {}: fewer events than linux-4.20, in percent", program.into_str()),
        &format!(
            "A row is one mix of files and slab with its size of memory: events of linux-4.20, and by how many percent \
             each design has fewer: median/least over seeds. Nobody has published other mixes. {}",
            withdrawn::mark()
        ),
        1,
        header,
        if cases.len() > 1 { cases.iter().filter_map(row).collect() } else { Vec::new() },
    )
}

/// Returns the mixes of a program, after the calibrated ones of the same mode.
fn with_calibrated(view: View<'_>, program: Program) -> Vec<Case> {
    let calibrated = match program {
        Program::MixesMadvise => Program::SMadvise,
        _ => Program::SDefault,
    };
    let others = view.cases(program);
    if others.is_empty() { others } else { [view.cases(calibrated), others].concat() }
}

fn case_name(case: &Case) -> String {
    format!("{}, {}", case.mix.name, case.memory_gib)
}

/// Shows the other mixes under both rules: events are read beside mistyped allocations.
fn mixes_under_strict_lists(view: View<'_>, program: Program) -> Option<Section> {
    let wanted = |design: &&str| {
        view.has(design) && (is_strict(design) || [VANILLA, MERGED, LAST_LOOSE].contains(design))
    };
    let designs: Vec<&str> = MIX_DESIGNS.into_iter().filter(wanted).collect();
    let row = |case: &Case| {
        let of_design = |design: &&str| view.row(case, design).and_then(events_and_mistyped).into();
        row_of(&case_name(case), designs.iter().map(of_design).collect())
    };
    let names = designs.iter().map(|design| marked(design).replace("7.2-", ""));
    table_of(
        &format!("Other mixes, {}: events/mistyped allocations", program.into_str()),
        &format!(
            "A row is one mix with its size of memory: medians over seeds; defrag is 7.2-defrag. {MARK} {}",
            withdrawn::mark()
        ),
        1,
        ["mix, GiB".to_owned()].into_iter().chain(names),
        with_calibrated(view, program).iter().filter_map(row).collect(),
    )
}

/// Returns the calibrated cases of the document's configurations with the first size of memory, each once.
fn configurations(view: View<'_>, machine: char) -> Vec<Case> {
    let Some(first) = view.report.settings.memory_gib.first() else { return Vec::new() };
    let cases = view.all_cases().into_iter().map(|(_, case)| case);
    let wanted = |case: &Case| {
        let of_machine = case.configuration().starts_with(machine);
        of_machine && case.is_calibrated() && case.memory_gib == *first
    };
    cases.filter(wanted).collect()
}

/// Shows units that got a huge page.
fn huge_pages(view: View<'_>, figures: &Gorman2018) -> Vec<Section> {
    let one = huge_pages_of(view, figures, &configurations(view, 's'), "one node");
    let programs = [Program::HDefault, Program::HDefrag, Program::HMadvise];
    let two = programs.into_iter().filter_map(|program| {
        let cases = view.cases(program);
        huge_pages_of(view, figures, &cases, &format!("two nodes, {}", program.into_str()))
    });
    one.into_iter().chain(two).collect()
}

fn huge_pages_of(
    view: View<'_>,
    figures: &Gorman2018,
    cases: &[Case],
    machine: &str,
) -> Option<Section> {
    let has_figures = |at: usize| {
        let last_of_its_kind =
            cases.get(at + 1).is_none_or(|next| next.configuration() != cases[at].configuration());
        let there = figures.figure(cases[at].configuration(), VANILLA, names::HUGE_PERCENT);
        last_of_its_kind && there.is_some()
    };
    let cells = |design: &str| {
        let mut cells = Vec::new();
        for (at, case) in cases.iter().enumerate() {
            let here = view.row(case, design).and_then(|row| row.spreads.get(&names::HUGE_PERCENT));
            cells.push(here.map(percents).into());
            if has_figures(at) {
                let there = figures.figure(case.configuration(), design, names::HUGE_PERCENT);
                let there = there.filter(|_| here.is_some());
                cells.push(there.map(|percent| fixed(percent, 2)).into());
            }
        }
        cells
    };
    let mut columns = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        columns.push(case.nodes().unwrap_or_else(|| case.configuration().to_owned()));
        columns.extend(has_figures(at).then(|| "there".to_owned()));
    }
    designs_table(
        view,
        &format!("Units that got a huge page, in percent: {machine}"),
        Caption::Whole(
            "A row is one design: median (least..most) over seeds, calibrated mix, and the document's, which has none \
             for defrag = always.",
        ),
        columns,
        cells,
    )
}

/// Shows a time, or says that there was none.
fn or_no_sample(value: Option<f64>) -> Cell {
    value.map_or_else(|| "no sample".into(), |us| duration(us * 1e-6).into())
}

/// Shows allocator work of faults: of one node, and of the first variant of two.
fn work(view: View<'_>, figures: &Gorman2018) -> Vec<Section> {
    let mut shown: Vec<&str> = Vec::new();
    let cases = [configurations(view, 's'), configurations(view, 'h')].concat();
    let mut sections = Vec::new();
    for case in &cases {
        if !shown.contains(&case.configuration()) {
            shown.push(case.configuration());
            sections.extend(work_of(view, figures, case));
        }
    }
    sections
}

fn work_of(view: View<'_>, figures: &Gorman2018, case: &Case) -> Option<Section> {
    let change_there = |key: Key, design: &str| {
        figures.reduction(case.configuration(), design, key).map(|fewer| signed(-fewer))
    };
    let cells = |design: &str| {
        let Some(row) = view.row(case, design) else { return Vec::new() };
        let change = |key: Key| {
            let fewer = view.fewer(case, (VANILLA, design), &key).filter(|_| design != VANILLA);
            fewer.map(|fewer| signed(-fewer.median))
        };
        let there = [names::HUGE_LATENCY, names::BASE_LATENCY]
            .map(|key| figures.figure(case.configuration(), design, key));
        let ratio_there = match there {
            [Some(huge), Some(base)] => Some(fixed(huge / base, 2)),
            _ => None,
        };
        cells![
            or_no_sample(row.count(names::BASE_WORK_US)),
            change(names::BASE_WORK_US),
            change_there(names::BASE_LATENCY, design),
            or_no_sample(row.count(names::HUGE_WORK_US)),
            change(names::HUGE_WORK_US),
            change_there(names::HUGE_LATENCY, design),
            row.shown(names::WORK_RATIO),
            ratio_there,
        ]
    };
    designs_table(
        view,
        &format!("Allocator work of a unit, 512 base faults or one huge one: {case}"),
        Caption::Whole(
            "A row is one design: means in virtual time, medians over seeds: allocation, reclaim, compaction and \
             waiting, by a table of costs; change against linux-4.20 in percent; huge over base. No sample: no such \
             fault. There: changes and quotients of the document's latencies, wall times that hold zeroing and a \
             memset besides.",
        ),
        &["base", "change", "there", "huge", "change", "there", "huge/base", "there"],
        cells,
    )
}

/// Shows the price of the avoided events.
fn price(view: View<'_>) -> Vec<Section> {
    of_each_mode(view, price_of)
}

/// Shows the first case on one node without and with requests for huge pages.
fn of_each_mode(view: View<'_>, show: fn(View<'_>, &Case) -> Option<Section>) -> Vec<Section> {
    let programs = [Program::SDefault, Program::SMadvise];
    let cases = programs.into_iter().filter_map(|it| view.cases(it).into_iter().next());
    cases.filter_map(|case| show(view, &case)).collect()
}

/// Columns of the price of the avoided events.
static PRICE: [Column<()>; 10] = [
    ("reclaimed", (), As(names::RECLAIMED, compact)),
    ("calls", (), As(names::DIRECT_RECLAIMS, compact)),
    ("moved", (), As(names::MOVED, compact)),
    ("calls", (), As(names::COMPACT_STALLS, compact)),
    ("kswapd", (), As(names::KSWAPD_WAKES, compact)),
    ("boosts", (), As(names::BOOSTS, compact)),
    ("claims", (), As(names::CLAIMS, compact)),
    ("whole", (), As(names::CONVERSIONS, compact)),
    ("free", (), As(names::FREE_BLOCKS, compact)),
    ("time", (), Figure(names::ELAPSED_S)),
];

fn price_of(view: View<'_>, case: &Case) -> Option<Section> {
    designs_table(
        view,
        &format!("What it costs: {case}"),
        Caption::Whole(
            "A row is one design: medians over seeds. Pages reclaimed, by whomever, and calls that reclaimed \
             themselves; pages moved, and calls that compacted; wakes of kswapd; boosts; blocks claimed because most \
             of their pages fitted; events with whole blocks, which mix nothing; blocks that could serve as a huge \
             page at the end; virtual time.",
        ),
        heads_of(&PRICE),
        |design| cells_of(&PRICE, |()| view.row(case, design)),
    )
}

/// Shows Linux 5.0 as shipped beside the series as designed.
fn shipped(view: View<'_>) -> Option<Section> {
    let row = |(_, case): &(Program, Case)| {
        let [as_shipped, designed] = [view.row(case, SHIPPED)?, view.row(case, MERGED)?];
        let fewer = view.fewer(case, (SHIPPED, MERGED), &names::EVENTS);
        let both = |key: Key, shown: fn(f64) -> Cell| {
            let [one, other] =
                [as_shipped, designed].map(|row| Cell::from(row.count(&key).map(shown)));
            let text = format!("{one}/{other}");
            match one.key() {
                Some(key) => Cell::About(key, text),
                None => text.into(),
            }
        };
        Some(cells![
            case.to_string(),
            both(names::EVENTS, compact),
            fewer.as_ref().map(percents),
            both(names::SERIOUS, compact),
            both(names::MISTYPED, compact),
            both(names::HUGE_PERCENT, one_digit),
        ])
    };
    table_of(
        "linux-5.0 as shipped, where patch 3 had switched patch 1 off, over patches 1 to 4 as designed",
        &withdrawn::caption(
            "A row is one case: shipped/designed, medians over seeds; fewer: events as designed against as shipped in \
             percent, seed by seed, median (least..most). If the measured tree was the posted one, the published \
             figures for patches 1 to 4 lack patch 1.",
        ),
        1,
        &["case", "events", "fewer", "serious", "mistyped", "huge %"],
        view.all_cases().iter().filter_map(row).collect(),
    )
}

/// Shows the waits of patch 5.
fn stalls(view: View<'_>, figures: &Gorman2018) -> Option<Section> {
    let row = |(_, case): &(Program, Case)| {
        let row = view.row(case, ALL_FIVE)?;
        let there = || {
            let of = |key| figures.figure(case.configuration(), ALL_FIVE, key);
            let about = |us| format!("~{}", names::STALLED_ABOUT_US.shown(us));
            let total = of(names::STALLED_US).map(|us| names::STALLED_US.shown(us).to_string());
            let total = total.or_else(|| of(names::STALLED_ABOUT_US).map(about))?;
            let stalls = of(names::STALLS)?;
            Some(Cell::About(stalls, format!("{stalls}, {total}")))
        };
        Some(cells![
            case.to_string(),
            row.shown(names::STALLS)?,
            row.shown(names::STALLED_MS)?,
            row.shown(names::LONGEST_STALL_MS)?,
            row.count(names::SPARED).map(compact)?,
            row.shown(names::ELAPSED_S)?,
            there().filter(|_| case.is_calibrated()),
        ])
    };
    table_of(
        "Waits of patch 5",
        "A row is one case under linux-4.20+patch5: medians over seeds. Spared: free blocks below the stall order that \
         were left alone; a wait is at most 20 ms; of: virtual time of the run. \
         There: the document's, in 16 minutes of s and 68 of h.",
        1,
        &["case", "stalls", "in all", "longest", "spared", "of", "there"],
        view.all_cases().iter().filter_map(row).collect(),
    )
}

/// Columns of a point of both curves: events, serious ones, huge pages, allocator work, stall time; and the price of
/// one of them.
static CURVE: [Column<()>; 5] = [
    ("events", (), Time),
    ("serious", (), Figure(names::SERIOUS)),
    ("huge %", (), As(names::HUGE_PERCENT, one_digit)),
    ("work", (), Figure(names::ALL_WORK_MS)),
    ("stalled", (), Figure(names::STALLED_MS)),
];
static BOOST_PRICE: [Column<()>; 2] =
    [("reclaimed", (), Figure(names::RECLAIMED)), ("peak pages", (), Figure(names::PEAK_BOOST))];
static STALL_PRICE: [Column<()>; 2] =
    [("stalls", (), Figure(names::STALLS)), ("spared", (), Figure(names::SPARED))];

/// Returns the cells of a point of a curve.
fn point(lead: [Cell; 2], row: &Measurement, price: &[Column<()>]) -> Vec<Cell> {
    let of = |columns: &[Column<()>]| cells_of(columns, |()| Some(row));
    [lead.to_vec(), of(&CURVE), of(price)].concat()
}

fn boost_curve(view: View<'_>) -> Option<Section> {
    let program = Program::BoostCurve;
    let rows = view.cases(program).into_iter().flat_map(|case| {
        BOOST_FACTORS.into_iter().filter_map(move |factor| {
            let row = view.point(program, &case, &boost_name(factor))?;
            let lead = [case.configuration().into(), fixed(f64::from(factor), 0).into()];
            Some(point(lead, row, &BOOST_PRICE))
        })
    });
    table_of(
        "Tuning: watermark_boost_factor, with patches 1 to 4",
        &format!(
            "A row is one factor in 1/10000 of the high watermark, on the calibrated mix: medians over seeds, ± half \
             the range. Work: allocator time of all faults. Huge pages, work and reclaim are {}.",
            withdrawn::WHY.label()
        ),
        1,
        ["", "factor"].into_iter().chain(heads_of(&CURVE)).chain(heads_of(&BOOST_PRICE)),
        rows.collect(),
    )
}

fn stall_curve(view: View<'_>) -> Vec<Section> {
    let program = Program::StallCurve;
    let of_case = |case: Case| {
        let rows = STALL_BOUNDS_MS.into_iter().flat_map(move |bound| {
            STALL_ORDERS.filter_map(move |order| {
                let row = view.point(program, &case, &stall_name(order, bound))?;
                let lead = [bound as f64, f64::from(order)].map(|it| count(it).into());
                Some(point(lead, row, &STALL_PRICE))
            })
        });
        table_of(
            &format!(
                "Tuning: fragment_stall_order and its bound, with patches 1 to 5, {}",
                case.configuration()
            ),
            &format!(
                "A row is one bound in ms and one order below which free blocks of another type are spared until a \
                 wait, on the calibrated mix: medians over seeds, ± half the range. Huge pages and work are {}.",
                withdrawn::WHY.label()
            ),
            0,
            ["bound", "order"].into_iter().chain(heads_of(&CURVE)).chain(heads_of(&STALL_PRICE)),
            rows.collect(),
        )
    };
    view.cases(program).into_iter().filter_map(of_case).collect()
}

/// Shows the boost of watermarks over a run.
fn boost(view: View<'_>) -> Option<Section> {
    let case = view.cases(Program::SDefault).into_iter().next()?;
    let layer = |design: &&str| {
        let values = view.row(&case, design)?.series.get(&names::BOOST)?;
        Some((short(design), values.clone()))
    };
    let layers: Vec<_> = [SHIPPED, FIRST_STRICT, MERGED].iter().filter_map(layer).collect();
    (!layers.is_empty()).then(|| Section::Chart {
        title: format!("Boost of all watermarks in pages: {case}"),
        caption: "From the first write to the last huge page, in virtual time, first seed; a column shows its highest \
                  value. kswapd takes back what was boosted, and events boost again."
            .to_owned(),
        ends: ["start".to_owned(), "end".to_owned()],
        layers,
    })
}

/// Shows the contiguity of free memory over memory and time.
fn contiguity(view: View<'_>) -> Vec<Section> {
    of_each_mode(view, contiguity_of)
}

fn contiguity_of(view: View<'_>, case: &Case) -> Option<Section> {
    let map = |design: &&str| {
        let row = view.row(case, design)?;
        let moment = |moment: &Moment| {
            let parts = row.series.get(&names::contiguity(*moment))?;
            Some((moment.into_str().to_owned(), parts.clone()))
        };
        let rows: Vec<(String, Vec<f64>)> = Moment::ALL.iter().filter_map(moment).collect();
        let [free, blocks] = [names::FREE_BLOCKS, names::BLOCKS].map(|key| row.count(key));
        let name =
            format!("{design}: {} of {} blocks whole at the end", count(free?), count(blocks?));
        (!rows.is_empty()).then_some(OccupancyMap { name, rows })
    };
    let shown = [VANILLA, MERGED, DEFRAG_MODE, OURS];
    let maps: Vec<OccupancyMap> = shown.iter().filter_map(map).collect();
    let blocks = view.count(case, view.designs().first()?, &names::BLOCKS).unwrap_or(0.0);
    let blocks = blocks / PARTS as f64;
    (!maps.is_empty()).then(|| Section::Occupancy {
        title: format!("Contiguity of free memory: {case}"),
        caption: format!(
            "A line is one moment of a run, the first seed's; a column is about {} pageblocks, lowest address first: \
             the order of the largest free block among them. Who holds the rest is not shown. {}",
            count(blocks),
            withdrawn::caption("").trim_start()
        ),
        ends: ["lowest".to_owned(), "highest".to_owned()],
        paint: Paint::FreeOrder,
        maps,
    })
}

/// Shows the changes of a later series, there and here, in percent.
fn later(view: View<'_>, figures: &Gorman2018) -> Option<Section> {
    let toggles = [("hygiene", LAST_LOOSE, FIRST_STRICT), ("defrag_mode", NEWEST, DEFRAG_MODE)];
    let measures = [
        ("huge-page allocation time", names::HUGE_WORK_US),
        ("huge-page faults", names::HUGE),
        ("huge-page fallbacks", names::BASE),
        ("fallback events", names::MISTYPED),
        ("direct-compaction stalls", names::COMPACT_STALLS),
        ("direct-compaction failures", names::COMPACT_FAILURES),
        ("migrate scanning", names::MIGRATE_SCANNED),
        ("free scanning", names::FREE_SCANNED),
        ("allocation stalls", names::DIRECT_RECLAIMS),
    ];
    let cases = configurations(view, 's');
    let mut rows = Vec::new();
    for (series, old, new) in toggles {
        for (what, key) in &measures {
            let change = figures.figure(series, "change", Key::number(what));
            let Some(change) = change else { continue };
            let of_case = |case: &Case| {
                let fewer = view.fewer(case, (old, new), key)?;
                Some(signed(-fewer.median))
            };
            let cells: Vec<Cell> = cases.iter().map(|case| of_case(case).into()).collect();
            if cells.iter().any(Cell::is_there) {
                let toggled = format!("{old} to {new}");
                let is_mistyped = *key == names::MISTYPED;
                let what = if is_mistyped { "events there, mistyped here" } else { what };
                rows.push([cells![toggled, what, signed(change)], cells].concat());
            }
        }
    }
    let configurations = cases.iter().map(Case::configuration);
    table_of(
        "What came later: change in percent, there and here",
        &withdrawn::caption(
            "A row is one measure of a later series on its own load (kernel builds) beside the same toggle here, on \
             the calibrated mix: medians over seeds. The first strict lists, those of 6.10, took single pages from the \
             largest block.",
        ),
        2,
        ["toggle", "measure", "there"].into_iter().chain(configurations),
        rows,
    )
}

fn signed(change: f64) -> Cell {
    match change.abs() {
        // A negative zero shows as zero.
        magnitude if magnitude < 0.05 => fixed(0.0, 1).into(),
        _ => Cell::About(change, format!("{change:+.1}")),
    }
}

/// Lists the figures that a patch or a design of ours made worse.
fn worse(view: View<'_>, figures: &Gorman2018) -> Option<Section> {
    let against = [
        (PATCH_1, VANILLA),
        (MERGED, VANILLA),
        (ALL_FIVE, MERGED),
        (FIRST_STRICT, LAST_LOOSE),
        (DEFRAG_MODE, NEWEST),
        (OURS, VANILLA),
        (OURS, DEFRAG_MODE),
    ];
    let mut lines: Vec<String> =
        against.into_iter().flat_map(|(new, old)| worse_than(view, new, old)).collect();
    if !lines.is_empty() {
        lines.push(published_worse(figures));
        lines.push(format!(
            "what is said here of huge pages, of work, and of designs that are not the document's is {}",
            withdrawn::WHY.label()
        ));
    }
    (!lines.is_empty()).then(|| Section::Lines {
        title: "Negative results: where the later design is worse, beyond the ranges over seeds"
            .to_owned(),
        lines,
    })
}

/// Counts that are worse if there are more; below, those that are worse if there are fewer.
const WORSE_IF_MORE: [Key; 5] =
    [names::EVENTS, names::SERIOUS, names::MISTYPED, names::BASE_WORK_US, names::HUGE_WORK_US];
const WORSE_IF_LESS: [Key; 1] = [names::HUGE_PERCENT];

fn worse_than(view: View<'_>, new: &str, old: &str) -> Vec<String> {
    let same_rules = is_strict(new) == is_strict(old);
    let comparable = |key: &&Key| same_rules || ![names::EVENTS, names::SERIOUS].contains(key);
    let measures = [&WORSE_IF_MORE[..], &WORSE_IF_LESS].concat();
    let measures = measures.iter().filter(comparable);
    let lines = measures.filter_map(|key| {
        let found = view.all_cases().into_iter().filter_map(|(_, case)| {
            let [old, new] = [old, new].map(|design| view.row(&case, design)?.spreads.get(key));
            let (old, new) = (old?, new?);
            let is_worse =
                if WORSE_IF_LESS.contains(key) { new.max < old.min } else { new.min > old.max };
            let values = format!("{} -> {}", number(old.median), number(new.median));
            is_worse.then(|| format!("{case} ({values})"))
        });
        let found: Vec<String> = found.collect();
        (!found.is_empty()).then(|| format!("{new} against {old}: {key}: {}", found.join("; ")))
    });
    lines.collect()
}

/// Lists the figures that the document itself has worse.
fn published_worse(figures: &Gorman2018) -> String {
    let quantities = [
        (names::EVENTS, "events"),
        (names::BASE_LATENCY, "base latency"),
        (names::HUGE_LATENCY, "huge latency"),
        (names::HUGE_PERCENT, "percentage huge"),
    ];
    let mut found = Vec::new();
    for (key, what) in &quantities {
        for configuration in Gorman2018::CONFIGURATIONS {
            for (old, new) in [(VANILLA, MERGED), (MERGED, ALL_FIVE)] {
                let sides = [old, new].map(|it| figures.figure(configuration, it, key));
                let [Some(before), Some(after)] = sides else { continue };
                let is_worse =
                    if WORSE_IF_LESS.contains(key) { after < before } else { after > before };
                if is_worse {
                    let change = signed(100.0 * (after - before) / before);
                    let new = short(new);
                    found.push(format!("{configuration} {what} {change} % with {new}"));
                }
            }
        }
    }
    format!(
        "the document's own, +patch4 against vanilla and +patch5 against +patch4: {}",
        found.join("; ")
    )
}

/// Notes facts that weaken or explain the result.
pub(super) fn take_notes(plan: &ExtfragPlan, extent: Extent, report: &mut Report) {
    let notes = &mut report.notes;
    notes.push(withdrawn::WHY.reason().to_owned());
    notes.push(
        "simulated in virtual time: the allocator is the engine, and files, slab, reclaim, threads and costs around it \
         are a model. Counts of events follow from memory, disks and mix, which the document does not give: published \
         counts stand beside ours as reductions only"
            .to_owned(),
    );
    notes.push(
        "events before and after Linux 6.10 count different things: before, one may re-list all free pages of a block; \
         after, each stolen page is one. Counts of both stand in one table only beside mistyped allocations, which \
         mean the same"
            .to_owned(),
    );
    notes.push(
        "tables leave out the beginning of names: +patch1 is linux-4.20+patch1, which is patch 1 alone, +patch4 is \
         patches 1 to 4, 7.2-defrag is linux-7.2 with vm.defrag_mode"
            .to_owned(),
    );
    notes.push(match (plan.extent, extent) {
        (Extent::Subset, _) => {
            "a default run: one size of memory, the calibrated mix on one node, one seed of MADV_HUGEPAGE and of two \
             mixes under three designs. --full runs two sizes, all mixes, both machines, five seeds and the curves; a \
             program that --mask names runs whole"
                .to_owned()
        }
        (Extent::Full, _) => format!(
            "crossed: every design with the calibrated mix on one node; ten designs on two nodes, and with every \
             other mix on one; two nodes, defrag = always, curves and mixes-madv with the first size of memory; \
             curves with {CURVE_SEEDS} seeds at most"
        ),
    });
    if plan.repeats < 5 {
        let seeds = plan.repeats;
        notes.push(format!(
            "few seeds: {seeds} a row at most; a median of fewer than 5 says little"
        ));
    }
    if plan.threads > 1 {
        notes.push(format!(
            "{} runs at a time; results do not depend on that, since each run is simulated alone",
            plan.threads
        ));
    }
}
