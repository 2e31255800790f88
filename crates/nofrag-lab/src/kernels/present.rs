//! Tables of the comparison, and a picture of the huge share.

use nofrag::page::ZoneKind;

use super::fitted::{FITTED_ON, TRIED};
use super::judge::{Ratio, free_in};
use super::outcome::{
    Agreement, CellReport, Compared, Fitted, KernelsReport, Measure, Outcome, Role,
};
use super::phase::PhaseName;
use super::{CENTRE, SCENARIO};
use crate::key::Key;
use crate::oracle::Relation;
use crate::report::first_few;
use crate::stats::Spread;
use nofrag_show::{
    Cell, OccupancyMap, Paint, Section, Tone, cells, count, number, plain, table_of,
};

pub(super) fn sections(report: &KernelsReport) -> Vec<Section> {
    let mut sections = vec![verdict(report)];
    sections.extend(summary(report));
    sections.push(not_reproduced(report));
    sections.extend(shares(report));
    sections.extend(picture(report));
    let centres = || report.cells.iter().filter(|cell| cell.factor == CENTRE);
    sections.extend(centres().filter_map(counts));
    sections.extend(free(report));
    sections.extend(cells(report));
    sections.push(parameters(report));
    sections.extend(missing(report));
    sections.push(undecided());
    sections
}

/// Returns the number of counts of a cell that agree, and of those that are judged.
fn tally(cell: &CellReport) -> [usize; 2] {
    let all = || cell.counts.iter().chain(&cell.free);
    let of = |meant| all().filter(|it| it.agreement == meant).count();
    let agree = of(Agreement::Agrees);
    [agree, agree + of(Agreement::Differs)]
}

fn verdict(report: &KernelsReport) -> Section {
    let measured = |meant| report.measures.iter().filter(|it| it.outcome == meant).count();
    let held = measured(Outcome::Reproduced);
    let judged = held + measured(Outcome::NotReproduced);
    let [agree, of] = report
        .cells
        .iter()
        .map(tally)
        .fold([0, 0], |[agree, of], cell| [agree + cell[0], of + cell[1]]);
    let shares = || report.cells.iter().filter_map(huge).map(|it| it.agreement);
    let right = shares().filter(|it| *it == Agreement::Agrees).count();
    let word = match held {
        held if held == judged && judged > 0 => "The simulation reproduces the kernels",
        _ => "The simulation does not reproduce the kernels",
    };
    Section::Lines {
        title: "Verdict".to_owned(),
        lines: vec![format!(
            "{word}: {held} of {judged} measures come out. The huge share agrees in {right} of {} cells, and {agree} \
             of {of} counts that can be judged do.",
            report.cells.len()
        )],
    }
}

fn range(spread: Option<&Spread>) -> Cell {
    spread.map(|it| ends([it.min, it.max])).into()
}

fn ends(ends: [f64; 2]) -> Cell {
    let [least, most] = ends.map(plain);
    match [least, most].map(|end| end.to_string()) {
        [low, high] if low == high => least.into(),
        [low, high] => Cell::about(least, format!("{low}..{high}")),
    }
}

fn agreement(it: &Compared) -> Cell {
    let tone = match it.agreement {
        Agreement::NotCounted => return Cell::Missing,
        Agreement::Agrees => Tone::Good,
        Agreement::Differs | Agreement::TooFew => Tone::Warning,
        Agreement::FewSeeds | Agreement::Given => Tone::Plain,
    };
    Cell::judged(tone, it.agreement.into_str())
}

fn outcome(it: &Measure) -> Cell {
    let tone = match it.outcome {
        Outcome::Reproduced => Tone::Good,
        Outcome::NotReproduced => Tone::Warning,
        Outcome::NotJudged => Tone::Plain,
    };
    Cell::judged(tone, it.outcome.into_str())
}

/// Shows a bound, rounded for people: the relation's own text rounds to a millionth.
fn must(relation: Relation) -> Cell {
    let text = match relation {
        Relation::Equals(value) => return plain(value).into(),
        Relation::AtMost(bound) => format!("<= {}", plain(bound)),
        Relation::AtLeast(bound) => format!(">= {}", plain(bound)),
        Relation::Between(least, most) => format!("{}..{}", number(least), number(most)),
    };
    Cell::About(relation.bound(), text)
}

fn summary(report: &KernelsReport) -> Option<Section> {
    let row = |it: &Measure| {
        let what = match it.of {
            Some(of) => format!("{} ({of})", it.what),
            None => it.what.clone(),
        };
        cells![what, outcome(it), it.ours.map(plain), it.kernels.map(ends), it.must.map(must)]
    };
    table_of(
        "What is to come out",
        "A row is one measure, all seeds together. Ratios are those of the cells in which huge pages are advised, in \
         the phase of huge pages, kernels' from run to run; asked for is a factor of 2 around all runs of the kernel \
         together, or for compactions their range. Orders are judged where the kernels' own ranges do not overlap. \
         Log-odds: (huge + 0.5) / (units - huge + 0.5). In parentheses: of how many pairs or cells.",
        2,
        &["measure", "", "ours", "kernels", "asked for"],
        report.measures.iter().map(row).collect(),
    )
}

/// Shows the measures that do not come out, with the attempts at them.
fn not_reproduced(report: &KernelsReport) -> Section {
    let missed = report.measures.iter().filter(|it| it.outcome == Outcome::NotReproduced);
    let tried = |it: &Measure| {
        let tried = TRIED.iter().filter(|(id, _)| it.id == *id).map(|(_, what)| *what);
        match tried.collect::<Vec<_>>() {
            tried if tried.is_empty() => format!("{}; nothing was tried", it.what),
            tried => format!("{}; tried: {}", it.what, tried.join("; ")),
        }
    };
    let signs = report.signs.iter().filter(|sign| !sign.right);
    let wrong = signs.map(|sign| {
        format!("{} has more huge pages than {} in the kernels, not here", sign.more, sign.fewer)
    });
    Section::Lines {
        title: "Not reproduced".to_owned(),
        lines: missed.map(tried).chain(wrong).collect(),
    }
}

fn label(cell: &CellReport) -> String {
    format!("{} {}", cell.kernel, cell.factor)
}

/// Returns a count of the last phase.
fn find<'a>(counts: &'a [Compared], what: &Key) -> Option<&'a Compared> {
    counts.iter().find(|it| it.phase == PhaseName::Thp.into_str() && it.what == *what)
}

fn huge(cell: &CellReport) -> Option<&Compared> {
    find(&cell.counts, &Ratio::HugePercent.key())
}

fn shares(report: &KernelsReport) -> Option<Section> {
    let row = |cell: &CellReport| {
        let it = huge(cell)?;
        let role = match cell.role {
            Role::Fitted => "fitted on",
            Role::Judge => "judges",
            Role::Spoilt => "looked at",
        };
        Some(cells![
            label(cell),
            role,
            agreement(it),
            count(cell.repeats as f64),
            range(it.kernel.as_ref()),
            range(it.ours.as_ref()),
        ])
    };
    table_of(
        "Huge pages by cell, % of the units touched",
        &format!(
            "A row is one cell: the kernel's repeats from the least to the most, and our {} seeds. It agrees if our \
             range overlaps that from half their least to twice their most and is no wider.",
            report.seeds
        ),
        3,
        &["cell", "", "", "repeats", "kernel", "ours"],
        report.cells.iter().filter_map(row).collect(),
    )
}

const PARTS: usize = 60;

fn picture(report: &KernelsReport) -> Option<Section> {
    let sides = |cell: &CellReport| {
        let it = huge(cell)?;
        Some((label(cell), [it.kernel.clone()?, it.ours.clone()?]))
    };
    let cells: Vec<(String, [Spread; 2])> = report.cells.iter().filter_map(sides).collect();
    let most = cells.iter().flat_map(|(_, sides)| sides).map(|it| it.max).fold(0.0, f64::max);
    if most == 0.0 {
        return None;
    }
    // The scale ends at a whole ten.
    let most = 10.0 * (most / 10.0).ceil();
    let row = |(name, [kernel, ours]): (String, [Spread; 2])| {
        let part = |at: usize| {
            let covers =
                |it: &Spread| (part_of(it.min, most)..=part_of(it.max, most)).contains(&at);
            match (covers(&kernel), covers(&ours)) {
                (true, true) => 1.0,
                (true, false) => Paint::KERNELS,
                (false, true) => Paint::OURS,
                (false, false) => 0.0,
            }
        };
        (name, (0..PARTS).map(part).collect())
    };
    let rows = cells.into_iter().map(row).collect();
    Some(Section::Occupancy {
        title: "Huge pages by cell, % of the units touched".to_owned(),
        caption: "A line is one cell.".to_owned(),
        ends: ["0".to_owned(), plain(most).to_string()],
        paint: Paint::Ranges,
        maps: vec![OccupancyMap { name: "all runs and seeds".to_owned(), rows }],
    })
}

/// Returns the part of the scale from 0 to `most` that holds a value.
fn part_of(value: f64, most: f64) -> usize {
    ((value / most * PARTS as f64) as usize).min(PARTS - 1)
}

/// Shows a cell's counts, phase by phase.
fn counts(cell: &CellReport) -> Option<Section> {
    let mut phase = "";
    let mut rows = Vec::new();
    for it in &cell.counts {
        let first = if it.phase == phase { "" } else { &it.phase };
        phase = &it.phase;
        let [kernel, ours] = [&it.kernel, &it.ours].map(|side| range(side.as_ref()));
        rows.push(cells![first, it.what.name(), kernel, ours, agreement(it)]);
    }
    table_of(
        &format!("{}, phase by phase", label(cell)),
        "A row is one count from the beginning of the phase to its end: the kernel's repeats and our seeds, from the \
         least to the most. Too few: all below 50. Fallbacks: by the order of the free block, its zone and the \
         type of the request; below order 9 types mix. What is zero on both sides is left out.",
        2,
        &["phase", "count", "kernel", "ours", ""],
        rows,
    )
}

/// Shows free blocks by order at the end, of each kernel's centre.
fn free(report: &KernelsReport) -> Option<Section> {
    let mut rows = Vec::new();
    for cell in report.cells.iter().filter(|cell| cell.factor == CENTRE) {
        for zone in ZoneKind::ALL {
            let of = |order| find(&cell.free, &free_in(zone, order));
            if (0..=10).all(|order| of(order).is_none()) {
                continue;
            }
            let median = |it: Option<&Spread>| count(it.map_or(0.0, |it| it.median));
            let kernel =
                (0..=10).map(|order| median(of(order).and_then(|it| it.kernel.as_ref())).into());
            let ours = (0..=10).map(|order| {
                let median = median(of(order).and_then(|it| it.ours.as_ref()));
                let differs = of(order).is_some_and(|it| it.agreement == Agreement::Differs);
                if differs { Cell::about(median, format!("{median}*")) } else { median.into() }
            });
            let lead = |zone: &str, who: &str| cells![format!("{} {zone}", cell.kernel), who];
            rows.push(lead(zone.name(), "kernel").into_iter().chain(kernel).collect());
            rows.push(lead(zone.name(), "ours").into_iter().chain(ours).collect());
        }
    }
    let orders = (0..=10).map(|order: usize| order.to_string());
    table_of(
        "Free blocks by order at the end of thp, centres",
        "A row is a zone of a kernel's centre, medians of the repeats and of our seeds; * what differs.",
        2,
        ["zone", "order"].map(str::to_owned).into_iter().chain(orders),
        rows,
    )
}

/// Shows every cell in one line.
fn cells(report: &KernelsReport) -> Option<Section> {
    const SHOWN: usize = 4;
    let row = |cell: &CellReport| {
        let [agree, of] = tally(cell);
        let differs = cell.counts.iter().filter(|it| it.agreement == Agreement::Differs);
        let names: Vec<String> = differs
            .filter(|it| it.phase == PhaseName::Thp.into_str())
            .map(|it| it.what.to_string())
            .collect();
        let (shown, more) = first_few(&names, SHOWN);
        let names = shown.iter().cloned().chain(more).collect::<Vec<_>>().join("; ");
        cells![label(cell), names, count(agree as f64), count(of as f64)]
    };
    table_of(
        "Counts that agree, by cell",
        "A row is one cell: which counts of the phase of huge pages differ, free blocks aside, and how many counts of \
         all phases agree, of those that can be judged. --json has all of them.",
        2,
        &["cell", "differ in thp", "agree", "of"],
        report.cells.iter().map(row).collect(),
    )
}

fn parameters(report: &KernelsReport) -> Section {
    let KernelsReport { fitted, fits_tried, spoilt, .. } = report;
    let kernels = SCENARIO.programs();
    let judges: Vec<&str> =
        kernels.iter().map(|it| it.name).filter(|name| !FITTED_ON.contains(name)).collect();
    let spoilt = if spoilt.is_empty() { "none".to_owned() } else { spoilt.join(", ") };
    let line =
        |it: &Fitted| format!("{} = {}: {}; fitted on {}", it.name, it.value, it.what, it.on);
    let mut lines: Vec<String> = fitted.iter().map(line).collect();
    lines.push(format!(
        "fitted on {} and on spoilt cells, {fits_tried} fits tried; {} judge; cells spoilt by looking: {spoilt}",
        FITTED_ON.join(" and "),
        judges.join(" and "),
    ));
    lines.push(
        "rules were sought with the tables of all cells in view, so that no cell judges blindly; what the world's \
         table (costs.toml) calls measured was read off guests and is not counted as fitted"
            .to_owned(),
    );
    Section::Lines { title: format!("Fitted parameters: {}", fitted.len()), lines }
}

fn missing(report: &KernelsReport) -> Option<Section> {
    let KernelsReport { folder, missing, .. } = report;
    (!missing.is_empty()).then(|| Section::Lines {
        title: format!("Cells that {folder} lacks"),
        lines: vec![missing.join(", ")],
    })
}

fn undecided() -> Section {
    let lines = [
        "vanilla: every stock kernel carries patches 1 to 4, so vanilla beside patched is judged against the document \
         alone; vanilla was never judged by a kernel",
        "times: the guests were emulated, so counts and ratios mean something and times do not",
        "small effects: a few repeats do not tell them from chance (data/guests-2018/README.md)",
    ];
    Section::Lines {
        title: "What guests cannot decide".to_owned(),
        lines: lines.map(str::to_owned).to_vec(),
    }
}
