//! Tables and pictures of this scenario. A row is a design, so that the table fits into a hundred columns.

use super::catalogue::{
    CACHED, FIRST_FIT, FIRST_FIT_DOWN, HUGE_ALIGNED, MERGED, MIXES, OURS, Program,
};
use super::claims::{row_name, survival_ratio};
use super::names;
use super::survival::Grid;
use super::turns::{HolesPlan, PARTS, TIMED};
use crate::figures::{self, EndAndPeak, Ends, RatioRange, Wander2005};
use crate::key::Key;
use crate::report::{Comparison, Measurement, Report};
use crate::scenario::Extent;
use crate::summary::{self, ratio_range};
use nofrag_show::{
    Cell, OccupancyMap, Paint, Section, cells, count, duration, fixed, number, ratio, table_of,
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
    let of = |design: &str| figures.stacks.iter().find(|row| row.design == design);
    let comparisons = compared.into_iter().filter_map(|(old, new, what)| {
        let (published_old, published_new) = (of(old)?, of(new)?);
        let low = published_old.seconds / published_new.seconds;
        let rows = [old, new].map(|design| report.measurement(Program::Stacks.name(), design));
        let [Some(row_old), Some(row_new)] = rows else { return None };
        let high = published_old.seconds_are.bound(low);
        Some(Comparison {
            figure: format!("test_str02-{old}"),
            what: format!("test_str02, 20,000 threads: {what}"),
            place: published_old.place.clone(),
            program: Program::Stacks.name().to_owned(),
            designs: [old, new].map(str::to_owned),
            published: RatioRange { low, high },
            measured: row_old.time.median / row_new.time.median,
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
    sections.extend(leakme(report, &figures));
    sections.extend(leakme4(report, &figures));
    sections.extend(five_regions(report, &figures));
    sections.extend(stacks(report, &figures));
    sections.extend(unmergeable(report, &figures));
    sections.extend(mixes(report, &figures));
    sections.extend(leakme_64(report, &figures));
    sections.extend(touched(report));
    sections.extend(survival(report, &figures));
    sections.extend(times(report));
    sections.extend(published(report));
    sections
}

fn measured<'a>(report: &'a Report, program: Program, row: &str) -> Option<&'a Measurement> {
    report.measurement(program.name(), row)
}

/// Builds a table with a row for each design that has any cell, ours last.
fn designs_table(
    report: &Report,
    title: &str,
    caption: &str,
    columns: &[&str],
    cells: impl Fn(&str) -> Vec<Cell>,
) -> Option<Section> {
    let designs = &report.settings.designs;
    summary::designs_table(designs, str::to_owned, (title, caption), columns, cells)
}

/// Returns the published row for the row named `row` here; `key` reads designs and end of a published row.
fn published_row<'a, T>(
    all: &'a [T],
    row: &str,
    key: impl Fn(&T) -> (&[String], Ends),
) -> Option<&'a T> {
    all.iter().find(|published| {
        let (designs, ends) = key(published);
        designs.iter().any(|design| row_name(design, ends) == row)
    })
}

/// Shows the address space over time.
fn pictures(report: &Report) -> Vec<Section> {
    let down = |design| row_name(design, Ends::Down);
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

/// Shows the published number of areas as "end/peak". The iteration that found no place is left out, for want of room:
/// a claim judges it.
fn published_ends(published: &EndAndPeak) -> Cell {
    let [end, peak] = published.areas;
    Cell::About(end as f64, format!("{end}/{peak}"))
}

/// Shows visits of areas, or steps in the index for designs that walk over none.
fn effort(measured: &Measurement) -> Option<Cell> {
    let [visits, steps] = [names::VISITS, names::STEPS].map(|name| measured.count(name));
    match (visits?, steps?) {
        (visits, _) if visits > 0.0 => Some(number(visits).into()),
        (_, steps) => Some(Cell::About(steps, format!("{} s", number(steps)))),
    }
}

fn leakme(report: &Report, figures: &Wander2005) -> Option<Section> {
    let cells = |row: &str| {
        let there = published_row(&figures.leakme, row, |it| (&it.designs, it.direction));
        let alone = measured(report, Program::Leakme, row);
        let libs = measured(report, Program::LeakmeLibs, row);
        if alone.or(libs).is_none() {
            return Vec::new();
        }
        let visits = |it: &figures::LeakmeOutcome| it.visits.or(it.visits_of_a_walk);
        cells![
            there.map(|it| published_ends(&it.alone)),
            alone.and_then(ends_and_peak),
            there.map(|it| published_ends(&it.libs)),
            libs.and_then(ends_and_peak),
            there.map(|it| number(it.largest_mib)),
            libs.and_then(|it| it.shown(names::LARGEST_MIB)),
            there.and_then(visits).map(number),
            libs.and_then(effort),
        ]
    };
    designs_table(
        report,
        "leakme, 32 bits: areas at the end/at the peak (the iteration that found no place)",
        "A row is one design. With libraries, 1.3 MiB lie at the end from which searches begin; largest hole in MiB \
         and effort are of that run. Effort of a map: visits of areas; with an s: steps in the index, for designs that \
         walk over no areas here. There: simulations of the rules, one that looks at every area where ours descends.",
        &["there", "here", "libs there", "here", "hole there", "here", "effort there", "here"],
        cells,
    )
}

fn leakme4(report: &Report, figures: &Wander2005) -> Option<Section> {
    let cells = |row: &str| {
        let Some(measured) = measured(report, Program::Leakme4, row) else { return Vec::new() };
        let there = published_row(&figures.leakme4, row, |it| (&it.designs, it.direction));
        let bounds = |key: Key| measured.series.get(&key);
        let ends = bounds(names::STARTS).zip(bounds(names::ENDS)).and_then(|(starts, ends)| {
            let [first, last] = [*starts.first()? as u64, *ends.last()? as u64];
            Some(format!("{first:x}-{last:x}"))
        });
        cells![
            there.map(|it| fixed(it.count as f64, 0)),
            measured.shown(names::COUNTED),
            measured.shown(names::HOLES_MIB),
            ends,
        ]
    };
    designs_table(
        report,
        "leakme4: areas between the program and the stack",
        "A row is one design. Half of 128 maps of 1 MiB are unmapped; of their places, half are wanted again, and as \
         many single pages: a page in a hole of 1 MiB is an area that stays. The five published maps agree address for \
         address (--check).",
        &["areas there", "here", "holes MiB", "from-to"],
        cells,
    )
}

fn five_regions(report: &Report, figures: &Wander2005) -> Option<Section> {
    let taken = |region: f64| match region {
        0.0 => "beyond 5".to_owned(),
        region => format!("old {region}"),
    };
    let cells = |row: &str| {
        let Some(measured) = measured(report, Program::FiveRegions, row) else { return Vec::new() };
        let document = match row {
            "last-unmapped" => Some("old 3 (cached)".to_owned()),
            FIRST_FIT => Some("old 2".to_owned()),
            _ => None,
        };
        let simulated = figures.five_regions.iter().find(|it| {
            it.larger_between.is_some()
                && it.designs.iter().any(|design| {
                    [Ends::Up, Ends::Down]
                        .map(|ends| row_name(design, ends))
                        .contains(&row.to_owned())
                })
        });
        cells![
            document,
            measured.count(names::AFTER_4_2_3).map(taken),
            simulated.and_then(|it| it.larger_between).map(|region| taken(region as f64)),
            measured.count(names::LARGER_BETWEEN).map(taken),
        ]
    };
    designs_table(
        report,
        "Five regions: whose place does the last map of one unit take?",
        "A row is one design; 5 is the farthest from where searches begin. First: 4, 2 and 3 are unmapped. Second: 2 \
         is unmapped, two units are mapped, 3 is unmapped. The document's kernel with the cache is last-unmapped; the \
         cache as it was coded is linux-2.5.44, and differs: see the notes.",
        &["document", "after 4, 2, 3", "simulated", "with a larger one"],
        cells,
    )
}

fn stacks(report: &Report, figures: &Wander2005) -> Option<Section> {
    let cells = |row: &str| {
        let Some(measured) = measured(report, Program::Stacks, row) else { return Vec::new() };
        let there = figures.stacks.iter().find(|it| it.design == row);
        let threads = measured.count(names::MAPS).unwrap_or(THREADS);
        let over = match there.map(|it| it.seconds_are) {
            Some(figures::Completeness::AtLeast) => "over ",
            _ => "",
        };
        cells![
            there.map(|it| Cell::About(it.seconds, format!("{over}{} s", number(it.seconds)))),
            Some(duration(measured.time.median * threads * 1e-9)),
            measured.shown(names::VISITS_IN_ALL),
            effort(measured),
        ]
    };
    designs_table(
        report,
        "test_str02: 20,000 thread stacks of 8 MiB, each with a guard page",
        "A row is one design, upwards where it can. Times there are system times of a whole kernel on a machine of \
         2002. First fit visits the two areas of each thread before: as many visits as the square of the threads.",
        &["time there", "here", "visits", "effort of a map"],
        cells,
    )
}

fn unmergeable(report: &Report, figures: &Wander2005) -> Option<Section> {
    let programs = [Program::Unmergeable1k, Program::Unmergeable10k];
    let cells = |row: &str| {
        let there = published_row(&figures.unmergeable, row, |it| (&it.designs, it.direction));
        let there = there.map(|it| [it.of_1k, it.of_10k]);
        let cells = programs.iter().enumerate().flat_map(|(i, program)| {
            let measured = measured(report, *program, row);
            let mean = measured.and_then(effort);
            let most = measured.and_then(|it| {
                let [visits, steps] = [names::MOST_VISITS, names::MOST_STEPS].map(|n| it.count(n));
                Some(visits? + steps?)
            });
            let there = there.filter(|_| measured.is_some());
            let there = there.map(|it| {
                let [mean, most] = it[i].map(|visits| count(visits as f64));
                Cell::about(mean, format!("{mean}/{most}"))
            });
            let here = mean.zip(most).map(|(mean, most)| {
                Cell::About(mean.key().unwrap_or(0.0), format!("{mean}/{}", count(most)))
            });
            [there, here].map(Cell::from)
        });
        let holes = measured(report, Program::Unmergeable10k, row);
        let holes = holes.and_then(|it| it.shown(names::HOLES_MIB));
        cells.chain([holes.into()]).collect()
    };
    designs_table(
        report,
        "Areas that never merge: effort of a map, mean/most",
        "A row is one design; of 1,000 and of 10,000 areas of 1 to 4 pages, one at random is replaced. Visits of \
         areas, or with an s steps in the index. Holes: MiB between 10,000 areas, which hold 98 MiB.",
        &["1,000 there", "here", "10,000 there", "here", "holes"],
        cells,
    )
}

fn mixes(report: &Report, figures: &Wander2005) -> Option<Section> {
    let cells = |row: &str| {
        let there = published_row(&figures.mixes, row, |it| (&it.designs, it.direction));
        let cells = MIXES.iter().enumerate().flat_map(|(i, program)| {
            let measured = measured(report, *program, row);
            let there = there.filter(|_| measured.is_some());
            let there = there.map(|it| {
                let largest = number(it.largest_mib[i]);
                Cell::about(largest, format!("{largest}/{}", count(it.areas[i] as f64)))
            });
            let here = measured.and_then(|it| {
                let [largest, areas] = [names::LARGEST_MIB, names::AREAS].map(|n| it.count(n));
                let failures = it.count(names::FAILURES).filter(|failures| *failures > 0.0);
                let failures =
                    failures.map_or_else(String::new, |failures| format!(" ({})", count(failures)));
                let largest = number(largest?);
                Some(Cell::about(largest, format!("{largest}/{}{failures}", count(areas?))))
            });
            [there, here].map(Cell::from)
        });
        cells.collect()
    };
    designs_table(
        report,
        "Random mixes at 70 % of 2,603 MiB: largest hole in MiB/areas (requests that found no place)",
        "A row is one design. mix0: mostly up to 256 KiB, some MiB, few of 16; mix1: powers of two up to 8 MiB; mix2: \
         up to 2 MiB. Free are 784, 781 and 792 MiB: the larger the hole and the fewer the areas, the better.",
        &["mix0 there", "here", "mix1 there", "here", "mix2 there", "here"],
        cells,
    )
}

fn aligned_percent(measured: &Measurement) -> Option<Cell> {
    let [multiples, aligned] = [names::MULTIPLES, names::ALIGNED].map(|name| measured.count(name));
    let percent = number(100.0 * aligned? / multiples?.max(1.0));
    Some(Cell::about(percent, format!("{percent} %")))
}

fn leakme_64(report: &Report, figures: &Wander2005) -> Option<Section> {
    let cells = |row: &str| {
        let measured_64 = measured(report, Program::Leakme64, row);
        let window = measured(report, Program::Window, row);
        if measured_64.or(window).is_none() {
            return Vec::new();
        }
        let both_ends = |design: &String| design.starts_with("two-ended");
        let there = figures.leakme_64.iter().find(|it| {
            it.designs.iter().any(|design| {
                let end = if both_ends(design) { Ends::Both } else { Ends::Down };
                row_name(design, end) == row
            })
        });
        let there_ends = there.map(|it| {
            let [end, peak] = it.areas;
            Cell::About(end as f64, format!("{end}/{peak}"))
        });
        cells![
            there_ends,
            measured_64.and_then(ends_and_peak),
            there.map(|it| number(it.holes_mib)),
            measured_64.and_then(|it| it.shown(names::HOLES_MIB)),
            measured_64.and_then(aligned_percent),
            measured_64.and_then(effort),
            window.and_then(ends_and_peak),
            window.and_then(|it| it.shown(names::LARGEST_MIB)),
        ]
    };
    designs_table(
        report,
        "leakme in 64 bits: 37.5 % of the requests are multiples of 2 MiB",
        "A row is one design. Areas at the end/at the peak; holes: MiB between the areas (without the room between two \
         ends that grow towards each other); aligned: of the multiples of 2 MiB. Last, leakme in a window of 3 GiB, \
         with its largest hole in MiB.",
        &["areas there", "here", "holes there", "here", "aligned", "effort", "3 GiB", "hole"],
        cells,
    )
}

fn touched(report: &Report) -> Option<Section> {
    let programs = [(Program::Leakme, Program::Touched), (Program::Leakme64, Program::Touched64)];
    let cells = |row: &str| {
        let cells = programs.iter().flat_map(|(untouched, touched)| {
            let touched = measured(report, *touched, row);
            let before = touched.and(measured(report, *untouched, row));
            let largest = touched.and_then(|it| it.shown(names::HOLES_MIB));
            cells![before.and_then(ends_and_peak), touched.and_then(ends_and_peak), largest]
        });
        cells.collect()
    };
    designs_table(
        report,
        "leakme, every mapping written to: areas at the end/at the peak",
        "A row is one design. Memory that was written to belongs to the area it was written in: a map joins the area \
         below or above, but two such areas never become one. Untouched beside touched, and MiB of holes between \
         touched areas.",
        &["32 bits", "touched", "holes", "64 bits", "touched", "holes"],
        cells,
    )
}

fn survival(report: &Report, figures: &Wander2005) -> Option<Section> {
    let cells = |row: &str| {
        let Some(measured) = measured(report, Program::Survival, row) else { return Vec::new() };
        let there = |grid: Grid| {
            let mut rows = figures.survival.iter().filter(|it| it.iterations == grid.iterations);
            rows.find(|it| it.designs.iter().any(|design| row_name(design, it.direction) == row))
        };
        let columns = [(Grid::USUAL, names::WINDOW_MIB), (Grid::LONG, names::LONG_WINDOW_MIB)];
        let cells = columns.into_iter().flat_map(|(grid, name)| {
            let here = measured.count(name);
            cells![
                there(grid).filter(|_| here.is_some()).map(|it| fixed(it.window_mib as f64, 0)),
                here.map(|mib| Cell::About(mib, mib.to_string())),
                here.map(|mib| fixed(survival_ratio(mib), 3)),
            ]
        });
        cells.collect()
    };
    designs_table(
        report,
        "The smallest window in MiB in which leakme survives, and its ratio to what lives (2,501.7 MiB)",
        "A row is one design. Survives 100,000 iterations, and 200,000 on a grid of its own. No figure: no window up \
         to 3,100 MiB.",
        &["there", "here", "ratio", "200,000 there", "here", "ratio"],
        cells,
    )
}

/// Programs whose times say something about a rule; of those that are not timed in turn, a single run beside others.
const TIMES: [Program; 5] =
    [TIMED[0], TIMED[1], Program::Unmergeable1k, Program::Unmergeable10k, Program::Mix0];

fn times(report: &Report) -> Option<Section> {
    let cells = |row: &str| {
        let time = |program: &Program| measured(report, *program, row).map(|it| &it.time);
        TIMES.iter().map(|program| time(program).map(Cell::median).into()).collect()
    };
    designs_table(
        report,
        "Nanoseconds of a map and its unmap",
        "A row is one design; median of the repetitions, ± half their range; without a range one run beside others. \
         All designs stand on the same index of areas; first fit and the cached ones walk over it.",
        &TIMES.map(Program::name),
        cells,
    )
}

fn published(report: &Report) -> Option<Section> {
    let row = |comparison: &Comparison| {
        let Comparison { what, published, measured, .. } = comparison;
        cells![what, ratio_range(*published), ratio(*measured)]
    };
    table_of(
        "Published beside measured: times",
        "A row is one quotient of two published times.",
        1,
        &["quotient", "there", "here"],
        report.comparisons.iter().map(row).collect(),
    )
}
