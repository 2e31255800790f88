//! The page of `nofrag run`.

use crate::key::Key;
use crate::oracle::Oracle;
use crate::report::{Comparison, Measurement, Report};
use crate::scenario::Scenario;
use crate::stats::Spread;
use crate::summary::{Judged, Tally, ratio_range};
use nofrag_show::Origin;
use nofrag_show::Tone;
use nofrag_show::page::strips::{Mark, Panel, PanelScale, StripRow, Strips};
use nofrag_show::page::{Drawing, Figure, Headline, Item, Page, Part, Tile, sections};
use nofrag_show::{Section, duration, ratio};

/// A scenario that was run, with the command that makes its result again.
#[derive(Clone, Copy)]
pub struct ScenarioResult<'a> {
    pub scenario: &'a Scenario,
    pub report: &'a Report,
    /// The command for this scenario alone.
    pub command: &'a str,
}

/// Returns the page of all `results`: a part for each.
#[must_use]
pub fn run(results: &[ScenarioResult<'_>], origin: &Origin) -> Page {
    let title = match results {
        [only] => format!("{}: {}", only.report.scenario, only.scenario.about),
        _ => "Published comparisons, run again".to_owned(),
    };
    let mut page = Page::new(title, origin);
    let oracles = || results.iter().flat_map(|result| &result.report.oracles);
    page.headline = Some(headline(oracles()));
    page.tiles = tiles(results);
    page.parts = results.iter().map(part).collect();
    page
}

/// Returns the number of these claims that hold, as a headline.
fn headline<'a>(oracles: impl Iterator<Item = &'a Oracle>) -> Headline {
    let Tally { exact, others, withdrawn } = Tally::of(oracles);
    let broken = exact.all - exact.held;
    let apart = match withdrawn {
        0 => String::new(),
        some => format!(" {some} are withdrawn and not judged."),
    };
    let depends = format!("{} of {} that depend on the machine", others.held, others.all);
    let exact = exact.all;
    match (broken, others.all - others.held) {
        (1.., _) => Headline {
            tone: Tone::Bad,
            says: format!("{broken} of {exact} exact claims are BROKEN; {depends} hold.{apart}"),
            advice: "Exact claims hold on every machine. Run the command again: if it breaks again, the code or the \
                     claim is wrong, so report it with this file."
                .to_owned(),
        },
        (0, 1..) => Headline {
            tone: Tone::Warning,
            says: format!("All {exact} exact claims hold, and {depends}.{apart}"),
            advice: "Counts can be relied on, but for what is withdrawn. What does not hold here is marked \"no\" \
                     among the claims: a busy or small machine is the usual cause, so run again on a quiet one before \
                     citing times."
                .to_owned(),
        },
        (0, 0) => Headline {
            tone: if withdrawn > 0 { Tone::Warning } else { Tone::Good },
            says: format!("All {exact} exact claims hold, and {depends}.{apart}"),
            advice: "Counts and ratios can be relied on, within the notes of each part.".to_owned(),
        },
    }
}

fn tiles(results: &[ScenarioResult<'_>]) -> Vec<Tile> {
    let reports = || results.iter().map(|result| result.report);
    let Tally { exact, others, withdrawn } =
        Tally::of(reports().flat_map(|report| &report.oracles));
    let tone = if exact.held < exact.all { Tone::Bad } else { Tone::Good };
    let tile = |tone, value: String, what: &str| Tile { tone, value, what: what.to_owned() };
    let measured: usize = reports().map(|report| report.measurements.len()).sum();
    let seconds: f64 = reports().map(|report| report.elapsed_s).sum();
    let of = |judged: Judged| format!("{} of {}", judged.held, judged.all);
    let mut tiles = vec![
        tile(tone, of(exact), "exact claims hold"),
        tile(Tone::Plain, of(others), "claims on this machine hold"),
    ];
    tiles.extend(
        (withdrawn > 0).then(|| tile(Tone::Warning, withdrawn.to_string(), "claims are withdrawn")),
    );
    tiles.push(tile(Tone::Plain, measured.to_string(), "programs times designs measured"));
    tiles.push(tile(Tone::Plain, duration(seconds).to_string(), "in all"));
    tiles
}

fn part(result: &ScenarioResult<'_>) -> Part {
    let ScenarioResult { scenario, report, command } = *result;
    let mut items: Vec<Item> = published(&report.comparisons).into_iter().collect();
    items.extend(match &report.replay {
        Some(replay) => super::replay::items(replay),
        None => sections::items((scenario.present)(report)),
    });
    items.extend(times(report));
    items.extend(tails(report));
    items.extend(scenario.special.distributions.iter().filter_map(|count| counts(report, count)));
    items.extend(sections::items(vec![Section::Lines {
        title: "Notes".to_owned(),
        lines: report.notes.clone(),
    }]));
    items.push(claims(&report.oracles));
    Part {
        id: report.scenario.clone(),
        title: format!("{}: {}", report.scenario, scenario.about),
        lead: vec![report.document.clone(), crate::summary::conditions(report)],
        command: command.to_owned(),
        headline: Some(headline(report.oracles.iter())),
        items,
    }
}

/// Shows all claims, whatever the terminal lists.
fn claims(oracles: &[Oracle]) -> Item {
    Item::Table(crate::summary::oracles(oracles))
}

/// Shows published beside measured speedups of the new design.
fn published(comparisons: &[Comparison]) -> Option<Item> {
    let row = |comparison: &Comparison| {
        let Comparison { what, place, program, designs, published, measured, .. } = comparison;
        let [old, new] = designs;
        let mut marks = vec![Mark::Middle(*measured)];
        // An open range ends at the measured ratio, or at ten times its beginning.
        let high = published.high.unwrap_or_else(|| measured.max(10.0 * published.low));
        marks.insert(0, Mark::Band(published.low, high));
        StripRow {
            name: format!("{what} ({place}); here {program}, {old} over {new}"),
            text: format!("{} | {}", ratio_range(*published), ratio(*measured)),
            marks,
        }
    };
    let rows: Vec<StripRow> = comparisons.iter().map(row).collect();
    let same_winner = |c: &&Comparison| match c.measured > 1.0 {
        true => c.published.high.is_none_or(|high| high > 1.0),
        false => c.published.low <= 1.0,
    };
    let agree = comparisons.iter().filter(same_winner).count();
    (!rows.is_empty()).then(|| {
        Item::Figure(Figure {
            title: "Claim beside measurement: how many times faster the new design is".to_owned(),
            says: format!(
                "A row is one published figure: the band is what its author measured, the upright line what the same \
                 program gave here; left of 1 the new design is slower. In {agree} of {} rows the same design wins \
                 there and here. Another machine gives other ratios: compare who wins and the order of magnitude.",
                comparisons.len()
            ),
            drawing: Drawing::Strips(Strips {
                unit: "times faster".to_owned(),
                scale: PanelScale::Ratio,
                panels: vec![Panel { name: String::new(), rows }],
            }),
        })
    })
}

/// Returns a panel for each program, with a row for each of its measurements for which `row` makes one.
fn panels(report: &Report, row: impl Fn(&Measurement) -> Option<StripRow>) -> Vec<Panel> {
    let panel = |program: &str| {
        let of_program = report.measurements.iter().filter(|m| m.program == program);
        let rows: Vec<StripRow> = of_program.filter_map(&row).collect();
        (!rows.is_empty()).then(|| Panel { name: program.to_owned(), rows })
    };
    report.programs().into_iter().filter_map(panel).collect()
}

/// Shows the repetitions of each program under each design, a figure for each unit.
fn times(report: &Report) -> Vec<Item> {
    let mut units: Vec<&str> = Vec::new();
    for measurement in &report.measurements {
        if !units.contains(&measurement.unit.as_str()) {
            units.push(&measurement.unit);
        }
    }
    let of_unit = |unit: &&str| {
        let row =
            |m: &Measurement| (m.unit == *unit).then(|| StripRow::of_spread(&m.design, &m.time));
        let says = "A dot is one repetition, the upright line their median. Where the dots of two designs mix, neither \
                    can be called better; a single dot far to the right is the host's doing more often than the \
                    design's.";
        distribution(
            format!("Distribution: {unit}"),
            says,
            unit,
            panels(report, |m| row(m).flatten()),
        )
    };
    units.iter().filter_map(of_unit).collect()
}

/// Shows a count over the repetitions, which draw other chances; `None` where it is the same in all of them.
fn counts(report: &Report, count: &Key) -> Option<Item> {
    let varies =
        |m: &Measurement| m.spreads.get(count).is_some_and(|spread| spread.min < spread.max);
    if !report.measurements.iter().any(varies) {
        return None;
    }
    let row = |m: &Measurement| {
        let spread: &Spread = m.spreads.get(count)?;
        StripRow::of_spread(&m.design, spread)
    };
    let says = "A dot is one seed, the upright line the median of all seeds.";
    distribution(format!("Distribution: {count}"), says, count.name(), panels(report, row))
}

/// Shows single operations, where each was timed.
fn tails(report: &Report) -> Option<Item> {
    let row = |m: &Measurement| Some(StripRow::of_tail(&m.design, m.tail.as_ref()?));
    let says = "A row is one design: the upright line is the median of single operations, the dots are what 99 % and \
                99.9 % of them do not exceed, and the line ends at the longest. The numbers are these three. On a \
                shared host the longest is as often an interruption as the code's own doing.";
    distribution("Single operations, nanoseconds".to_owned(), says, "ns", panels(report, row))
}

fn distribution(title: String, says: &str, unit: &str, panels: Vec<Panel>) -> Option<Item> {
    let drawing = |panels| {
        Drawing::Strips(Strips { unit: unit.to_owned(), scale: PanelScale::Fitting, panels })
    };
    (!panels.is_empty())
        .then(|| Item::Figure(Figure { title, says: says.to_owned(), drawing: drawing(panels) }))
}
