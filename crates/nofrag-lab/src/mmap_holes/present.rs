//! Tables and pictures of this scenario. A row is a design, so that the table fits into a hundred columns.

use super::catalogue::{
    CACHED, End, FIRST_FIT, FIRST_FIT_DOWN, HUGE_ALIGNED, MERGED, OURS, Program, named,
};
use super::claims::survival_ratio;
use super::names;
use super::turns::{HolesPlan, PARTS};
use crate::figures::{self, PublishedTable, RatioRange, Wander2005};
use crate::report::{Comparison, Measurement, Report};
use crate::scenario::Extent;
use crate::tables::{Columns, Show, comparisons};
use nofrag_show::{
    Cell, OccupancyMap, Paint, Section, cells, count, duration, fixed, number, table_of,
};

/// Lines of a map that are not leakme's: the program's text, data, heap and stack, and the kernel's page.
const OWN_LINES: f64 = 5.0;

/// Threads of the published run.
const THREADS: f64 = 20_000.0;

/// Sets the published times of test_str02 beside the measured ones; all other published figures are counts.
pub(super) fn compare_published(report: &mut Report) {
    let figures = figures::wander_2005();
    let compared = [
        (FIRST_FIT, CACHED, "first fit over the cache"),
        (MERGED, CACHED, "the size of the largest hole over the cache alone"),
    ];
    let program = Program::Stacks.into_str();
    let there = figures::published(&figures.tables);
    let comparisons = compared.into_iter().filter_map(|(old, new, what)| {
        let seconds = |design| there.count(program, design, names::SECONDS);
        let given_up = there.count(program, old, names::SECONDS_AT_LEAST);
        let low = seconds(old).or(given_up)? / seconds(new)?;
        let [row_old, row_new] = [old, new].map(|design| report.measurement(program, design));
        let of_old =
            |table: &&PublishedTable| table.program == program && table.rows.contains_key(old);
        Some(Comparison {
            figure: format!("test_str02-{old}"),
            what: format!("test_str02, 20,000 threads: {what}"),
            place: figures.tables.iter().find(of_old)?.place.clone(),
            program: program.to_owned(),
            designs: [old, new].map(str::to_owned),
            published: RatioRange { low, high: seconds(old).map(|_| low) },
            measured: row_old?.time.median / row_new?.time.median,
        })
    });
    report.comparisons = comparisons.collect();
}

/// Notes facts that weaken or explain the result.
pub(super) fn take_notes(plan: &HolesPlan, report: &mut Report) {
    report.notes.push(
        "addresses only, over our index of areas: what Linux spends on everything else in mmap is not here, and \
         published times are compared as ratios"
            .to_owned(),
    );
    report.notes.push(format!(
        "counts come from runs of which {} went at a time; times of leakme_libs and leakme_64 from shorter ones, \
         {} of each, one after the other; times of other programs are of one run beside others",
        plan.threads, plan.repeats
    ));
    if plan.extent == Extent::Subset {
        report.notes.push(
            "survival: a window that was published is confirmed by the window itself, in which leakme must survive, \
             and the one below, in which it must not; windows that were not are looked for from below; --full looks \
             for all of them so"
                .to_owned(),
        );
        report.notes.push(
            "with --full only: linux-6.1 and linux-6.3, which place as linux-3.8 does in all programs; chen-2005 and \
             wander-2005 downwards; most designs in mix0, mix1 and mix2; designs that look at every area, repeat \
             others or walk downwards in unmergeable_10k; fewest-lost-units in leakme_64, alignment in 32 bits; ten \
             times as many iterations of leakme_3g, touched and touched_64"
                .to_owned(),
        );
    }
    report.notes.push(
        "five_regions: the document says that the kernel with the cache replaces old 3 and first fit old 2. Frees of \
         4, 2 and 3 give that if each unmapping sets the cache to the start of what it unmaps: last-unmapped. The rule \
         as it was coded moves the cache towards the base only: to 4, then to 2, and at 3 not at all, so that \
         linux-2.5.44 takes old 2 as first fit does; it is the coded rule that gives leakme4's published map. The \
         fault that the document means needs a larger request in between: with 2 unmapped, two units mapped beyond 5, \
         and 3 unmapped, the cache stands at 3, and 2 stays a hole"
            .to_owned(),
    );
    report.notes.extend(report.losses(OURS));
    report.notes.extend(report.weaknesses());
}

/// Returns all sections of a report.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let figures = figures::wander_2005();
    let mut sections = Vec::new();
    sections.extend(pictures(report));
    sections.extend(map_lines(report, &figures));
    let there = figures::published(&figures.tables);
    let row = |of: &Of, row: &str| {
        let here = |program| measured(report, program, row);
        match *of {
            Here(program) => here(program),
            There(program) => here(program).and_then(|_| measured(&there, program, row)),
            Beside(program, run) => here(run).and_then(|_| here(program)),
        }
    };
    let designs = &report.settings.designs;
    sections.extend(TABLES.iter().filter_map(|table| table.by_design(designs, row)));
    sections.extend(published(report));
    sections
}

fn measured<'a>(report: &'a Report, program: Program, row: &str) -> Option<&'a Measurement> {
    report.measurement(program.into_str(), row)
}

/// Shows the address space over time.
fn pictures(report: &Report) -> Vec<Section> {
    let down = |design| named(design, End::Down);
    let in_32_bits = [FIRST_FIT, CACHED, "wander-2005", MERGED, OURS].map(str::to_owned);
    let in_64_bits = [down(FIRST_FIT_DOWN), down(HUGE_ALIGNED), OURS.to_owned()];
    // A user who names a few designs wants to see those; of many designs, those that tell the story are shown.
    let chosen = &report.settings.designs;
    let few = chosen.len() <= in_32_bits.len();
    let of = |usual: &[String]| if few { chosen.clone() } else { usual.to_vec() };
    let compat = picture(
        report,
        Program::Leakme,
        &of(&in_32_bits),
        "The address space while leakme runs: 32 bits, upwards",
        "A line is the window after so many iterations, a column 36 MiB of it. Live are 2,502 of 2,731 MiB; what \
         decides is whether the rest is one hole or many.",
        ["0x55555000", "0xffffe000"],
    );
    let long = picture(
        report,
        Program::Window,
        &of(&in_64_bits),
        "The same in 3 GiB of a 64-bit space, where 2 MiB matter",
        "A column is 40 MiB. linux-6.12 and nofrag align every multiple of 2 MiB, linux-3.8 none.",
        ["bottom", "top"],
    );
    compat.into_iter().chain(long).collect()
}

fn picture(
    report: &Report,
    program: Program,
    rows: &[String],
    title: &str,
    caption: &str,
    ends: [&str; 2],
) -> Option<Section> {
    let map = |row: &String| {
        let measured = measured(report, program, row)?;
        let [at, shares] =
            [names::OCCUPANCY_AT, names::OCCUPANCY].map(|key| measured.series.get(&key));
        let looks = at?.iter().zip(shares?.chunks(PARTS));
        let areas = measured.count(names::AREAS)?;
        let end = match measured.count(names::FAILS_AT) {
            Some(failed) if failed > 0.0 => format!("no place at iteration {}", count(failed)),
            _ => format!("{} MiB of holes", measured.shown(names::HOLES_MIB)?),
        };
        Some(OccupancyMap {
            name: format!("{row}: {} areas, {end}", count(areas)),
            rows: looks.map(|(at, shares)| (count(*at).to_string(), shares.to_vec())).collect(),
        })
    };
    let maps: Vec<OccupancyMap> = rows.iter().filter_map(map).collect();
    let (title, caption, ends) = (title.to_owned(), caption.to_owned(), ends.map(str::to_owned));
    (!maps.is_empty()).then_some(Section::Occupancy {
        title,
        caption,
        ends,
        paint: Paint::InUse,
        maps,
    })
}

/// Shows the number of lines in the map of leakme, published and here.
fn map_lines(report: &Report, figures: &Wander2005) -> Option<Section> {
    let row = |published: &figures::MapLines| {
        let measured = measured(report, Program::Leakme, &published.design)?;
        let areas = measured.count(names::AREAS)?;
        let fails = |at: f64| if at > 0.0 { count(at).into() } else { Cell::from("never") };
        let fails_there = published.fails_after.map_or("never".into(), |after| {
            let after = count(after as f64);
            Cell::about(after, format!("after {after}+"))
        });
        Some(cells![
            &published.design,
            &published.kernel,
            fixed(published.lines as f64, 0),
            count(areas + OWN_LINES),
            fails_there,
            fails(measured.count(names::FAILS_AT)?),
        ])
    };
    let header = ["design", "kernel there", "lines there", "here", "fails there", "here"];
    table_of(
        "leakme as published: lines of /proc/self/maps",
        "A row is one published run. Here: areas and the five lines that are not leakme's own mappings; one line of \
         the 96 has never been explained.",
        2,
        &header,
        figures.map_lines.iter().filter_map(row).collect(),
    )
}

/// Shows the number of areas as "end/peak", and the iteration that found no place.
fn ends_and_peak(measured: &Measurement) -> Option<Cell> {
    let [end, peak] = [names::AREAS, names::PEAK_AREAS].map(|name| measured.count(name));
    let failed = measured.count(names::FAILS_AT).filter(|at| *at > 0.0);
    let failed = failed.map_or_else(String::new, |at| format!(" ({})", count(at)));
    let end = count(end?);
    Some(Cell::about(end, format!("{end}/{}{failed}", count(peak?))))
}

/// Shows the time of all maps of a program that maps alone.
fn whole_time(measured: &Measurement) -> Option<Cell> {
    let maps = measured.count(names::MAPS).unwrap_or(THREADS);
    Some(duration(measured.time.median * maps * 1e-9).into())
}

/// Shows the published visits of a map, by whichever rule the simulation had.
fn published_visits(published: &Measurement) -> Option<Cell> {
    let visits = published.shown(names::VISITS);
    visits.or_else(|| published.shown(names::VISITS_OF_A_WALK)).map(Cell::from)
}

/// Shows visits of areas, or steps in the index for designs that walk over none.
fn effort(measured: &Measurement) -> Option<Cell> {
    let [visits, steps] = [names::VISITS, names::STEPS].map(|name| measured.count(name));
    match (visits?, steps?) {
        (visits, _) if visits > 0.0 => Some(number(visits).into()),
        (_, steps) => Some(Cell::About(steps, format!("{} s", number(steps)))),
    }
}

/// Shows the region that a map takes.
fn region(taken: f64) -> Cell {
    match taken {
        0.0 => "beyond 5".into(),
        region => format!("old {region}").into(),
    }
}

/// Shows the lowest and the highest address of the areas.
fn from_to(measured: &Measurement) -> Option<String> {
    let [starts, ends] = [names::STARTS, names::ENDS].map(|key| measured.series.get(&key));
    let [first, last] = [*starts?.first()? as u64, *ends?.last()? as u64];
    Some(format!("{first:x}-{last:x}"))
}

/// Shows the published time of 20,000 stacks.
fn seconds(published: &Measurement) -> Option<Cell> {
    let shown =
        |seconds: f64, over: &str| Cell::About(seconds, format!("{over}{} s", number(seconds)));
    let exactly = published.count(names::SECONDS).map(|seconds| shown(seconds, ""));
    exactly.or_else(|| published.count(names::SECONDS_AT_LEAST).map(|it| shown(it, "over ")))
}

/// Shows the mean and the most effort of a map.
fn mean_and_most(measured: &Measurement) -> Option<Cell> {
    let mean = effort(measured)?;
    let [visits, steps] = [names::MOST_VISITS, names::MOST_STEPS].map(|key| measured.count(key));
    let most = count(visits? + steps?);
    Some(Cell::About(mean.key().unwrap_or(0.0), format!("{mean}/{most}")))
}

/// Shows the largest hole in MiB and the areas, with the requests that found no place.
fn hole_and_areas(measured: &Measurement) -> Option<Cell> {
    let [largest, areas] = [names::LARGEST_MIB, names::AREAS].map(|key| measured.shown(key));
    let failures = measured.count(names::FAILURES).filter(|failures| *failures > 0.0);
    let failures = failures.map_or_else(String::new, |failures| format!(" ({})", count(failures)));
    Some(Cell::about(largest?, format!("{}/{}{failures}", largest?, areas?)))
}

/// Shows the ratio of a window to the memory that lives in it.
fn over_live(window_mib: f64) -> Cell {
    fixed(survival_ratio(window_mib), 3).into()
}

fn aligned_percent(measured: &Measurement) -> Option<Cell> {
    let [multiples, aligned] = [names::MULTIPLES, names::ALIGNED].map(|name| measured.count(name));
    let percent = number(100.0 * aligned? / multiples?.max(1.0));
    Some(Cell::about(percent, format!("{percent} %")))
}

/// The row that a column is about, with the design of the table's row.
enum Of {
    Here(Program),
    /// The published one, where the same program was run.
    There(Program),
    /// The first program's, where the second was run.
    Beside(Program, Program),
}

use Of::{Beside, Here, There};
use Program::{
    FiveRegions, Leakme, Leakme4, Leakme64, LeakmeLibs, Mix0, Mix1, Mix2, Stacks, Survival,
    Touched, Touched64, Unmergeable1k, Unmergeable10k, Window,
};
use Show::{As, By, Figure, Pair, Time};

/// Published ends and peaks: the iteration that found no place is left out, for want of room; a claim judges it.
const END_AND_PEAK: Show = Pair(names::AREAS, "/", names::PEAK_AREAS);
const MEAN_AND_MOST: Show = Pair(names::VISITS, "/", names::MOST_VISITS);
const HOLE_AND_AREAS: Show = Pair(names::LARGEST_MIB, "/", names::AREAS);

/// Tables of designs, in the order in which they are shown.
static TABLES: [Columns<Of>; 10] = [
    Columns {
        title: "leakme, 32 bits: areas at the end/at the peak (the iteration that found no place)",
        caption: "A row is one design. With libraries, 1.3 MiB lie at the end from which searches begin; largest hole \
                  in MiB and effort are of that run. Effort of a map: visits of areas; with an s: steps in the index, \
                  for designs that walk over no areas here. There: simulations of the rules, one that looks at every \
                  area where ours descends.",
        columns: &[
            ("there", There(Leakme), END_AND_PEAK),
            ("here", Here(Leakme), By(ends_and_peak)),
            ("libs there", There(LeakmeLibs), END_AND_PEAK),
            ("here", Here(LeakmeLibs), By(ends_and_peak)),
            ("hole there", There(LeakmeLibs), Figure(names::LARGEST_MIB)),
            ("here", Here(LeakmeLibs), Figure(names::LARGEST_MIB)),
            ("effort there", There(LeakmeLibs), By(published_visits)),
            ("here", Here(LeakmeLibs), By(effort)),
        ],
    },
    Columns {
        title: "leakme4: areas between the program and the stack",
        caption: "A row is one design. Half of 128 maps of 1 MiB are unmapped; of their places, half are wanted again, \
                  and as many single pages: a page in a hole of 1 MiB is an area that stays. The five published maps \
                  agree address for address (--check).",
        columns: &[
            ("areas there", There(Leakme4), Figure(names::COUNTED)),
            ("here", Here(Leakme4), Figure(names::COUNTED)),
            ("holes MiB", Here(Leakme4), Figure(names::HOLES_MIB)),
            ("from-to", Here(Leakme4), By(|row| from_to(row).map(Cell::from))),
        ],
    },
    Columns {
        title: "Five regions: whose place does the last map of one unit take?",
        caption: "A row is one design; 5 is the farthest from where searches begin. First: 4, 2 and 3 are unmapped. \
                  Second: 2 is unmapped, two units are mapped, 3 is unmapped. The document's kernel with the cache is \
                  last-unmapped; the cache as it was coded is linux-2.5.44, and differs: see the notes. There: \
                  last-unmapped by the document, the others by simulation of the rules.",
        columns: &[
            ("there", There(FiveRegions), As(names::AFTER_4_2_3, region)),
            ("after 4, 2, 3", Here(FiveRegions), As(names::AFTER_4_2_3, region)),
            ("simulated", There(FiveRegions), As(names::LARGER_BETWEEN, region)),
            ("with a larger one", Here(FiveRegions), As(names::LARGER_BETWEEN, region)),
        ],
    },
    Columns {
        title: "test_str02: 20,000 thread stacks of 8 MiB, each with a guard page",
        caption: "A row is one design, upwards where it can. Times there are system times of a whole kernel on a \
                  machine of 2002. First fit visits the two areas of each thread before: as many visits as the square \
                  of the threads.",
        columns: &[
            ("time there", There(Stacks), By(seconds)),
            ("here", Here(Stacks), By(whole_time)),
            ("visits", Here(Stacks), Figure(names::VISITS_IN_ALL)),
            ("effort of a map", Here(Stacks), By(effort)),
        ],
    },
    Columns {
        title: "Areas that never merge: effort of a map, mean/most",
        caption: "A row is one design; of 1,000 and of 10,000 areas of 1 to 4 pages, one at random is replaced. Visits \
                  of areas, or with an s steps in the index. Holes: MiB between 10,000 areas, which hold 98 MiB.",
        columns: &[
            ("1,000 there", There(Unmergeable1k), MEAN_AND_MOST),
            ("here", Here(Unmergeable1k), By(mean_and_most)),
            ("10,000 there", There(Unmergeable10k), MEAN_AND_MOST),
            ("here", Here(Unmergeable10k), By(mean_and_most)),
            ("holes", Here(Unmergeable10k), Figure(names::HOLES_MIB)),
        ],
    },
    Columns {
        title: "Random mixes at 70 % of 2,603 MiB: largest hole in MiB/areas (requests that found no place)",
        caption: "A row is one design. mix0: mostly up to 256 KiB, some MiB, few of 16; mix1: powers of two up to \
                  8 MiB; mix2: up to 2 MiB. Free are 784, 781 and 792 MiB: the larger the hole and the fewer the \
                  areas, the better.",
        columns: &[
            ("mix0 there", There(Mix0), HOLE_AND_AREAS),
            ("here", Here(Mix0), By(hole_and_areas)),
            ("mix1 there", There(Mix1), HOLE_AND_AREAS),
            ("here", Here(Mix1), By(hole_and_areas)),
            ("mix2 there", There(Mix2), HOLE_AND_AREAS),
            ("here", Here(Mix2), By(hole_and_areas)),
        ],
    },
    Columns {
        title: "leakme in 64 bits: 37.5 % of the requests are multiples of 2 MiB",
        caption: "A row is one design. Areas at the end/at the peak; holes: MiB between the areas (without the room \
                  between two ends that grow towards each other); aligned: of the multiples of 2 MiB. Last, leakme in \
                  a window of 3 GiB, with its largest hole in MiB.",
        columns: &[
            ("areas there", There(Leakme64), END_AND_PEAK),
            ("here", Here(Leakme64), By(ends_and_peak)),
            ("holes there", There(Leakme64), Figure(names::HOLES_MIB)),
            ("here", Here(Leakme64), Figure(names::HOLES_MIB)),
            ("aligned", Here(Leakme64), By(aligned_percent)),
            ("effort", Here(Leakme64), By(effort)),
            ("3 GiB", Here(Window), By(ends_and_peak)),
            ("hole", Here(Window), Figure(names::LARGEST_MIB)),
        ],
    },
    Columns {
        title: "leakme, every mapping written to: areas at the end/at the peak",
        caption: "A row is one design. Memory that was written to belongs to the area it was written in: a map joins \
                  the area below or above, but two such areas never become one. Untouched beside touched, and MiB of \
                  holes between touched areas.",
        columns: &[
            ("32 bits", Beside(Leakme, Touched), By(ends_and_peak)),
            ("touched", Here(Touched), By(ends_and_peak)),
            ("holes", Here(Touched), Figure(names::HOLES_MIB)),
            ("64 bits", Beside(Leakme64, Touched64), By(ends_and_peak)),
            ("touched", Here(Touched64), By(ends_and_peak)),
            ("holes", Here(Touched64), Figure(names::HOLES_MIB)),
        ],
    },
    Columns {
        title: "The smallest window in MiB in which leakme survives, and its ratio to what lives (2,501.7 MiB)",
        caption: "A row is one design. Survives 100,000 iterations, and 200,000 on a grid of its own. No figure: no \
                  window up to 3,100 MiB.",
        columns: &[
            ("there", There(Survival), Figure(names::WINDOW_MIB)),
            ("here", Here(Survival), Figure(names::WINDOW_MIB)),
            ("ratio", Here(Survival), As(names::WINDOW_MIB, over_live)),
            ("200,000 there", There(Survival), Figure(names::LONG_WINDOW_MIB)),
            ("here", Here(Survival), Figure(names::LONG_WINDOW_MIB)),
            ("ratio", Here(Survival), As(names::LONG_WINDOW_MIB, over_live)),
        ],
    },
    // Programs whose times say something about a rule; of those that are not timed in turn, a run beside others.
    Columns {
        title: "Nanoseconds of a map and its unmap",
        caption: "A row is one design; median of the repetitions, ± half their range; without a range one run beside \
                  others. All designs stand on the same index of areas; first fit and the cached ones walk over it.",
        columns: &[
            ("leakme_libs", Here(LeakmeLibs), Time),
            ("leakme_64", Here(Leakme64), Time),
            ("unmergeable_1k", Here(Unmergeable1k), Time),
            ("unmergeable_10k", Here(Unmergeable10k), Time),
            ("mix0", Here(Mix0), Time),
        ],
    },
];

fn published(report: &Report) -> Option<Section> {
    let about =
        ("Published beside measured: times", "A row is one quotient of two published times.");
    comparisons(report, about, &["quotient"], |it| Some(cells![&it.what]))
}
