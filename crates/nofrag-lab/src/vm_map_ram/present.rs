//! Tables and pictures of this scenario. A row is a design, so that eight columns of figures fit into a hundred
//! characters.

use nofrag::vmap::{BlockGeometry, Wait};

use super::bench::clock_ns;
use super::catalogue::Program;
use super::counts::{OTHER_BITS, OURS_WHOLE, ends_of, made_and_freed};
use super::exhaustion::{self, LARGEST, LARGEST_SIZES, TO_45_BITS, creators_program, made_by};
use super::rounding::{CLASSES, design_with};
use super::{AFTER, BEFORE, OURS, RamPlan, aliases, lifetimes, names};
use crate::figures::{self, Pen2015};
use crate::key::Key;
use crate::report::{Measurement, Report};
use crate::stats::Calls;
use crate::tables::{by_design, row_of};
use nofrag_show::{
    BarGroup, Cell, Quantity, Section, cells, count, duration, fixed, number, percent, ratio,
    table_of as table,
};

const WORKLOADS: [&str; 3] = ["w1", "w2", "w3"];

/// The sides of Pen's first change, as simulations have them.
const SIDES: [&str; 2] = ["before", "after"];

/// Rows that hold published or simulated figures.
const PUBLISHED: [&str; 2] = ["Pen, before", "Pen, after"];

/// Notes facts that weaken or explain the result.
pub(super) fn take_notes(plan: &RamPlan, report: &mut Report) {
    let timed = |m: &Measurement| !m.functions.is_empty();
    if report.measurements.iter().any(timed) {
        report.notes.push(format!(
            "the functions' times come from a pass of its own that reads the clock around every call, which alone \
             shows {} ns; alloc_vmap_area and free_vmap_block are timed where the engine announces them, and are in \
             the time of the calls that reach them, as in Pen's profiler",
            number(clock_ns())
        ));
        report.notes.push(
            "addresses only, over a mapper that counts: Pen's times include page tables and the profiler itself, and \
             are compared as ratios"
                .to_owned(),
        );
    }
    if plan.programs.contains(&Program::W2) {
        report.notes.push(
            "the state of Pen's generator is not known: his counts of w2 are one draw, ours those of a key of the \
             Mersenne twister, and w2_keys shows how far keys differ"
                .to_owned(),
        );
    }
    report.notes.extend(report.losses(OURS));
    report.notes.extend(report.weaknesses());
}

/// Returns all sections of a report.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let figures = figures::pen_2015();
    let there = figures.simulated();
    let mut sections = Vec::new();
    sections.extend(WORKLOADS.iter().filter_map(|workload| course(report, workload)));
    sections.extend(blocks(report, &figures));
    sections.extend(searches(report, &there));
    sections.extend(times(report));
    sections.extend(WORKLOADS.iter().filter_map(|w| functions(report, &figures, w)));
    sections.extend(keys(report, &there));
    sections.extend(other_bits(report, &there));
    sections.extend(used_up(report));
    sections.extend(creators(report));
    sections.extend(pinned(report, &there));
    sections.extend(rounding(report, &there));
    sections.extend(alias_flushes(report));
    sections
}

/// Returns the workloads that were run.
fn present(report: &Report) -> Vec<&'static str> {
    let programs = report.programs();
    WORKLOADS.into_iter().filter(|workload| programs.contains(workload)).collect()
}

/// Puts the two published rows, of the author `whose`, above the designs that they belong to: the row before the
/// change, and the row after it.
fn with_published(
    rows: Vec<(String, Vec<Cell>)>,
    whose: &str,
    published: [Vec<Cell>; 2],
) -> Vec<Vec<Cell>> {
    let joined = |(name, cells): (String, Vec<Cell>)| [cells![name], cells].concat();
    let (old, new): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(name, _)| name == BEFORE);
    let mut table = Vec::new();
    for ((when, cells), rows) in SIDES.into_iter().zip(published).zip([old, new]) {
        if !rows.is_empty() {
            table.push(joined((format!("{whose}, {when}"), cells)));
            table.extend(rows.into_iter().map(joined));
        }
    }
    table
}

/// Draws the blocks held over the run of a workload, before and after.
fn course(report: &Report, workload: &str) -> Option<Section> {
    let wanted = [BEFORE, AFTER, OURS];
    let layers: Vec<(String, Vec<f64>)> = wanted
        .iter()
        .filter_map(|design| {
            let course = report.measurement(workload, design)?.series.get(&names::HELD)?;
            Some(((*design).to_owned(), course.clone()))
        })
        .collect();
    let loops = report.settings.loops;
    let slots = f64::from(BlockGeometry::LINUX_64.slots());
    let most = layers.iter().flat_map(|(_, course)| course).copied().fold(0.0, f64::max);
    (!layers.is_empty()).then(|| Section::Chart {
        title: format!("Blocks held while {workload} runs"),
        caption: format!(
            "No more than one mapping is live at any time; {} blocks are {} MiB of address space.",
            count(most),
            count(most * slots * 4096.0 / f64::from(1 << 20))
        ),
        ends: ["first loop".to_owned(), format!("loop {}", count(loops as f64))],
        layers,
    })
}

fn blocks(report: &Report, figures: &Pen2015) -> Option<Section> {
    let workloads = present(report);
    let pair = |new, freed| Cell::About(new, format!("{} / {}", count(new), count(freed)));
    let rows = by_design(&report.settings.designs, |design| {
        let cell = |workload: &&str| {
            let row = report.measurement(workload, design)?;
            Some(pair(row.count(names::CREATED)?, row.count(names::RETURNED)?))
        };
        let flushes = |workload: &&str| {
            Some(count(report.measurement(workload, design)?.count(names::FLUSHES_PER_MILLION)?))
        };
        let flushes = joined(workloads.iter().map(flushes));
        workloads.iter().map(|it| cell(it).into()).chain([flushes]).collect()
    });
    let published = [0, 1].map(|side| {
        let cell = |workload: &&str| {
            let row = figures.profile(workload)?;
            let functions = if side == 0 { &row.before } else { &row.after };
            let hits =
                |function| functions.get(&function).map_or(0.0, |calls: &Calls| calls.hits as f64);
            Some(pair(hits(names::ALLOC_AREA), hits(names::FREE_BLOCK)))
        };
        workloads.iter().map(|it| cell(it).into()).chain([Cell::Missing]).collect()
    });
    table(
        "Blocks made / given back",
        "A row is one design. Before: a new block joins the head of the list; after: the tail. Pen's rows are the \
         hits of his profiler for alloc_vmap_area and free_vmap_block. flushes: for a million mappings, by workload; \
         nofrag needs few blocks since it hands a slot out again after a flush. Depends on the seed alone.",
        1,
        &[&["design"], &workloads[..], &["flushes"]].concat(),
        with_published(rows, "Pen", published),
    )
}

/// Joins the figures of three workloads in one cell.
fn joined<T: Into<Cell>>(figures: impl Iterator<Item = Option<T>>) -> Cell {
    let cells: Option<Vec<Cell>> = figures.map(|figure| figure.map(T::into)).collect();
    let key = cells.as_ref().and_then(|cells| cells.first()?.key());
    key.zip(cells).map_or(Cell::Missing, |(key, cells)| {
        let texts: Vec<String> = cells.iter().map(Cell::to_string).collect();
        Cell::About(key, texts.join("/"))
    })
}

fn searches(report: &Report, there: &Report) -> Option<Section> {
    let workloads = present(report);
    let decimals = |value: f64| if value == 0.0 { "0".to_owned() } else { format!("{value:.3}") };
    let rows = by_design(&report.settings.designs, |design| {
        let value = |workload: &str, name| report.measurement(workload, design)?.count(name);
        let cell = |workload: &&str| {
            let list = value(workload, names::LONGEST_LIST)?;
            let [steps, second] = [names::STEPS, names::SECOND_STEPS].map(|n| value(workload, n));
            let text = format!("{}/{}/{}", count(list), decimals(steps?), decimals(second?));
            Some(Cell::About(list, text))
        };
        let dirty = |w: &&str| Some(number(value(w, names::DIRTY_WORDS)?));
        let dirty = joined(workloads.iter().map(dirty));
        workloads.iter().map(|it| cell(it).into()).chain([dirty]).collect()
    });
    let simulated = SIDES.map(|side| {
        let cell = |workload: &&str| {
            let row = there.measurement(workload, side)?;
            let [low, high] = ends_of(row, &names::LONGEST_LIST)?;
            let list = match low == high {
                true => count(low).to_string(),
                false => format!("{low}..{high}"),
            };
            Some(Cell::About(low, format!("{list}/{:.3}/-", row.count(names::STEPS)?)))
        };
        workloads.iter().map(|it| cell(it).into()).chain([Cell::Missing]).collect()
    });
    let rows = with_published(rows, "simulated", simulated);
    let header = [&["design"], &workloads[..], &["dirty words"]].concat();
    table(
        "The longest list / steps per call / steps of second searches per call",
        "A row is one design; a step is one listed block that a mapping inspects. A second search looks for the block \
         that was made for it (gone with patch 2). dirty words: words of the dirty bitmap that an unmapping touches, \
         by workload; with patch 3 two comparisons take their place, whatever the size. The simulated w2 is 20 keys.",
        1,
        &header,
        rows,
    )
}

fn times(report: &Report) -> Option<Section> {
    let workloads = present(report);
    let oldest = report.settings.designs.first()?;
    let cells = |design: &str, way: &str| -> Vec<Cell> {
        let of = |workload: &str| report.measurement(&format!("{workload}{way}"), design);
        let ns = workloads.iter().map(|w| of(w).map(|row| Cell::median(&row.time)).into());
        let gain = joined(workloads.iter().map(|w| {
            let old = &report.measurement(w, oldest)?.time;
            Some(ratio(old.median / of(w)?.time.median))
        }));
        let locked = joined(workloads.iter().map(|w| of(w)?.shown(names::LOCKED)));
        ns.chain([gain, locked]).collect()
    };
    let mut rows = by_design(&report.settings.designs, |design| cells(design, ""));
    rows.push((format!("{OURS}{}", names::BY_HANDLE), cells(OURS, names::BY_HANDLE)));
    let rows = rows.into_iter().filter_map(|(name, cells)| row_of(&name, cells)).collect();
    table(
        "One mapping and its unmapping: nanoseconds, and locked operations of the processor",
        "A row is one design. Median of the repetitions, ± half their range. gain: the first design's time over this \
         one's, by workload. locked: two for each lock taken, and the atomic updates, by workload. By handle: the \
         CPU's lock is held throughout.",
        1,
        &[&["design"], &workloads[..], &["gain", "locked"]].concat(),
        rows,
    )
}

fn functions(report: &Report, figures: &Pen2015, workload: &str) -> Option<Section> {
    let mut rows = Vec::new();
    for function in names::FUNCTIONS {
        let of =
            |design: &str| report.measurement(workload, design)?.functions.get(&function).copied();
        let published = figures.profile(workload);
        let profiled = |design: &String| Some((design.clone(), of(design)?));
        let ours: Vec<(String, Calls)> =
            report.settings.designs.iter().filter_map(profiled).collect();
        if ours.is_empty() {
            continue;
        }
        let his_before = published.and_then(|row| row.before.get(&function)).copied();
        let his = [his_before, published.and_then(|row| row.after.get(&function)).copied()];
        let mut named: Vec<(String, Option<Calls>, Option<Calls>)> = Vec::new();
        for (name, calls) in PUBLISHED.iter().zip(his) {
            named.push(((*name).to_owned(), calls, his_before));
        }
        named.extend(ours.into_iter().map(|(name, calls)| (name, Some(calls), of(BEFORE))));
        for (at, (name, calls, before)) in named.into_iter().enumerate() {
            let shown = if at == 0 { function.name() } else { "" };
            rows.push(function_row(shown, name, calls, before));
        }
    }
    table(
        &format!("{workload}: functions as the kernel's profiler prints them, in microseconds"),
        "Pen's rows were measured on his machine, with page tables. gain: the average before over that of the row, his \
         beside his, ours beside ours.",
        2,
        &["function", "whose", "hits", "total", "average", "s^2", "gain"],
        rows,
    )
}

fn function_row(
    function: &str,
    whose: String,
    calls: Option<Calls>,
    before: Option<Calls>,
) -> Vec<Cell> {
    let Some(Calls { hits, total_us, average_us, variance_us2 }) = calls else {
        let none = [const { Cell::Missing }; 4];
        return [cells![function, whose, count(0.0)], none.to_vec()].concat();
    };
    let gain = before.map(|old| ratio(old.average_us / average_us));
    let variance = if variance_us2 < 100.0 { fixed(variance_us2, 3) } else { count(variance_us2) };
    let average = fixed(average_us, 3);
    cells![function, whose, count(hits as f64), count(total_us), average, variance, gain]
}

/// Returns the range of a count over keys.
fn range(row: &Measurement, key: &Key) -> Option<Cell> {
    let [low, high] = ends_of(row, key)?;
    Some(Cell::About(low, format!("{low}..{high}")))
}

fn keys(report: &Report, there: &Report) -> Option<Section> {
    let cells = |row: Option<&Measurement>| -> Vec<Cell> {
        let Some(row) = row else { return Vec::new() };
        let ranges = [names::CREATED, names::RETURNED, names::LONGEST_LIST];
        let steps = row.count(names::STEPS).map(|steps| fixed(steps, 2).into());
        let ranges = ranges.iter().map(|key| range(row, key).into());
        ranges.chain([steps.unwrap_or_default()]).collect()
    };
    let whole = OURS_WHOLE.to_owned();
    let of_design = |design: &str| cells(report.measurement(Program::Keys.into_str(), design));
    let rows = by_design(report.settings.designs.iter().chain([&whole]), of_design);
    let simulated = SIDES.map(|side| cells(there.measurement("w2", side)));
    let rows = with_published(rows, "simulated", simulated);
    table(
        "w2 with 20 keys of its generator",
        "A row is one design: least and most of what the keys give, and the mean number of steps per call.",
        1,
        &["design", "blocks made", "given back", "longest list", "steps"],
        rows,
    )
}

fn other_bits(report: &Report, there: &Report) -> Option<Section> {
    let of_program: Vec<_> = report.of_program(Program::OtherBits.into_str()).collect();
    let mut rows = Vec::new();
    for bits in OTHER_BITS {
        let mut add = |name: &str, report: &Report, design: &str| {
            let cell = |workload| {
                let [new, freed] = made_and_freed(report, design, bits, workload)?.map(count);
                Some(Cell::about(new, format!("{new} / {freed}")))
            };
            let cells = WORKLOADS.map(|workload| Cell::from(cell(workload)));
            rows.push([&cells![bits.to_string(), name][..], &cells].concat());
        };
        of_program.iter().for_each(|row| add(&row.design, report, &row.design));
        if !of_program.is_empty() {
            add("simulated, after", there, "after");
        }
    }
    table(
        "Blocks of other sizes: made / given back",
        "A row is one size of a block in pages, which Linux chooses by the number of CPUs that it is built for, and \
         one design.",
        2,
        &["block", "design", "w1", "w2, key 0", "w3"],
        rows,
    )
}

fn used_up(report: &Report) -> Option<Section> {
    let mut rows = Vec::new();
    for arena in exhaustion::arenas() {
        for design in &report.settings.designs {
            for patience in [Wait::MayReclaim, Wait::Never] {
                let name = exhaustion::named(design, patience);
                let row = report.measurement(&exhaustion::program_in(arena), &name);
                rows.extend(row.and_then(|row| used_up_row(row, arena, 1.0)));
            }
        }
    }
    let largest = report.measurement(&exhaustion::program_in(LARGEST), BEFORE);
    let whole = largest.and_then(|row| used_up_row(row, "64-bit 45 bits", TO_45_BITS));
    rows.extend(whole);
    table(
        "w1 until no place is left",
        "A row is one space and one design; three times the space is mapped, of which one mapping at a time is live. \
         1st failed: the call of vm_map_ram that finds no place and has to purge everything. held, records, list: \
         address space and records of the blocks just before it (or at the end), and how many are listed; search: how \
         long the next mapping, of 16 pages, searches then. try: by callers that must not wait (try_map_ram), which \
         purge only when they get nothing. 45 bits: extrapolated from 16 GiB.",
        2,
        &["space", "design", "1st failed", "purges", "held", "records", "list", "search"],
        rows,
    )
}

fn used_up_row(row: &Measurement, arena: &str, times: f64) -> Option<Vec<Cell>> {
    let failed = row.count(names::FIRST_FAILED)?;
    // Lists and walks grow only where blocks are lost.
    let first = if failed == 0.0 { "never".into() } else { Cell::from(count(failed * times)) };
    let shown = |key: Key| Some(key.shown(row.count(&key)? * times));
    Some(cells![
        arena,
        &row.design,
        first,
        row.shown(names::FORCED_PURGES)?,
        shown(names::HELD_BYTES)?,
        shown(names::RECORD_BYTES)?,
        shown(names::LISTED)?,
        shown(names::SEARCH_NS)?,
    ])
}

fn creators(report: &Report) -> Option<Section> {
    let mut groups = Vec::new();
    for largest in LARGEST_SIZES {
        for design in [BEFORE, AFTER, OURS] {
            let Some(row) = report.measurement(&creators_program(largest), design) else {
                continue;
            };
            let made = row.count(names::CREATED).unwrap_or(0.0);
            let bar = |order: u32| {
                let class = 1_u32 << order;
                let least = if order == 0 { 1 } else { (class >> 1) + 1 };
                let value = row.count(made_by(class)).filter(|made| *made > 0.0)?;
                let name =
                    if least == class { class.to_string() } else { format!("{least}..{class}") };
                Some((name, value))
            };
            let bars = (0..=largest.ilog2()).filter_map(bar).collect();
            let name = format!("1..{largest} pages, {design}: {} blocks made", count(made));
            groups.push(BarGroup { name, bars });
        }
    }
    (!groups.is_empty()).then(|| Section::Bars {
        title: "Which sizes of w2 make a block (blocks by pages of the request, logarithmic)"
            .to_owned(),
        groups,
    })
}

/// Joins two figures of which one may be missing.
fn beside([one, other]: [Option<Quantity>; 2]) -> Cell {
    let text = format!("{}/{}", Cell::from(one), Cell::from(other));
    one.or(other).map_or(Cell::Text(text.clone()), |quantity| Cell::about(quantity, text))
}

fn pinned(report: &Report, there: &Report) -> Option<Section> {
    let mut rows = Vec::new();
    for one_in in lifetimes::ONE_IN {
        let of = |design: &str| report.measurement(&lifetimes::program_of(one_in), design);
        if of(AFTER).or_else(|| of(OURS)).is_none() {
            continue;
        }
        let count = |design, key: Key| of(design).and_then(|row| row.shown(key));
        let there = lifetimes::simulated(there, one_in);
        let flushes = [AFTER, OURS].map(|design| count(design, names::FLUSHES_PER_MILLION));
        let times = [AFTER, OURS].map(|design| of(design).map(|row| number(row.time.median)));
        rows.push(cells![
            format!("1 in {one_in}"),
            there.and_then(|row| row.shown(names::PINNED_BY_FORMULA)),
            there.and_then(|row| row.shown(names::PINNED)),
            count(AFTER, names::PINNED),
            count(OURS, names::PINNED),
            beside(flushes),
            beside(times),
        ]);
    }
    table(
        "Mixed lifetimes: pages of address space that one live page pins",
        &format!(
            "A row is how many one-page mappings live to the end, until 5,000 do; all others are unmapped at once, and \
             nothing is purged by hand. flushes: for a million mappings, {AFTER}/{OURS}. ns: one mapping, with its \
             unmapping if it has one, in a single run."
        ),
        1,
        &["live on", "formula", "simulated", AFTER, OURS, "flushes", "ns"],
        rows,
    )
}

fn rounding(report: &Report, there: &Report) -> Option<Section> {
    let program = Program::Rounding.into_str();
    let waste = |slots: f64| percent(100.0 * (slots / 2080.0 - 1.0), 1);
    let row_of = |name: String, row: &Measurement| {
        let slots = row.count(names::SLOTS)?;
        Some(cells![
            name,
            count(slots),
            waste(slots),
            range(row, &names::CREATED)?,
            range(row, &names::LONGEST_LIST)?,
            fixed(row.count(names::STEPS)?, 2),
        ])
    };
    let mut rows = Vec::new();
    for (classes, _) in CLASSES {
        let design = design_with(classes);
        let Some(row) = report.measurement(program, &design) else { continue };
        let simulated = there.measurement(program, &design)?;
        let list = simulated.count(names::LONGEST_LIST.with(names::MOST));
        rows.push(cells![
            format!("simulated, {classes}"),
            simulated.shown(names::SLOTS),
            simulated.count(names::SLOTS).map(waste),
            range(simulated, &names::CREATED),
            list.map(|list| Cell::About(list, format!("up to {list}"))),
            simulated.count(names::STEPS).map(|steps| fixed(steps, 1)),
        ]);
        rows.extend(row_of(design, row));
    }
    let ours = report.measurement(program, OURS);
    rows.extend(ours.and_then(|row| row_of(OURS.to_owned(), row)));
    table(
        "What rounding to size classes costs",
        "A row is one set of classes. slots: what one request of each size from 1 to 64 takes, whose pages are 2,080; \
         the others: w2 over 20 keys.",
        1,
        &["classes", "slots", "waste", "blocks made", "longest list", "steps"],
        rows,
    )
}

fn alias_flushes(report: &Report) -> Option<Section> {
    let mut rows = Vec::new();
    for dirty in aliases::DIRTY {
        for design in &report.settings.designs {
            let Some(row) = report.measurement(&aliases::program_of(dirty), design) else {
                continue;
            };
            rows.push(cells![
                count(dirty as f64),
                design,
                row.shown(names::VISITED),
                row.shown(names::LOCKS),
                row.shown(names::MOST_PER_HOLD),
                duration(row.time.median * 1e-6),
            ]);
        }
    }
    table(
        "unmap_aliases over 100,000 blocks",
        "A row is how many of them have slots to flush, and one design.",
        2,
        &["dirty", "design", "blocks visited", "locks taken", "most per hold", "time"],
        rows,
    )
}
