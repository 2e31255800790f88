//! The page of `nofrag compare`.

use super::replay;
use crate::compare::{self, ComparedRow, Comparison, Group, RowVerdict};
use crate::replay::ReplayReport;
use nofrag_show::Origin;
use nofrag_show::page::strips::{Mark, Panel, PanelScale, StripRow, Strips};
use nofrag_show::page::{Drawing, Figure, Headline, Item, Page, Part, Tile, sections};
use nofrag_show::{Cell, Tone};
use nofrag_show::{plain, ratio};

/// Returns the page of `comparison`; for two replays also their courses.
#[must_use]
pub fn compare(
    comparison: &Comparison,
    replays: Option<[&ReplayReport; 2]>,
    origin: &Origin,
) -> Page {
    let mut page = Page::new("Two sides compared", origin);
    page.lead = vec![format!("old: {}", comparison.old), format!("new: {}", comparison.new)];
    page.headline = Some(headline(comparison));
    page.tiles = tiles(comparison);
    let mut items: Vec<Item> = changes(comparison).into_iter().collect();
    items.extend(replays.into_iter().flat_map(|[old, new]| replay::side_by_side(old, new)));
    items.extend(sections::items(compare::sections(comparison)));
    page.parts = vec![Part {
        id: "compared".to_owned(),
        title: "What differs".to_owned(),
        lead: Vec::new(),
        command: origin.command.clone(),
        headline: None,
        items,
    }];
    page
}

fn headline(comparison: &Comparison) -> Headline {
    let count = |verdict| comparison.with_verdict(verdict).count();
    let (better, worse) = (count(RowVerdict::Better), count(RowVerdict::Worse));
    let names = |verdict| {
        let names: Vec<&str> =
            comparison.with_verdict(verdict).map(|(_, row)| row.name.as_str()).take(5).collect();
        names.join("; ")
    };
    let says = format!("{better} figures got better and {worse} worse.");
    let (tone, advice) = match (better, worse) {
        (0, 0) => (
            Tone::Plain,
            "Nothing that has a better and a worse changed by more than the tolerance.".to_owned(),
        ),
        (_, 0) => (Tone::Good, format!("Better: {}.", names(RowVerdict::Better))),
        (_, _) => (
            Tone::Bad,
            format!(
                "Look first at what got worse: {}. What is only noise, --tolerance passes over.",
                names(RowVerdict::Worse)
            ),
        ),
    };
    Headline { tone, says, advice }
}

fn tiles(comparison: &Comparison) -> Vec<Tile> {
    let tile = |tone, verdict, what: &str| {
        let value = comparison.with_verdict(verdict).count();
        let tone = if value == 0 { Tone::Plain } else { tone };
        Tile { tone, value: value.to_string(), what: what.to_owned() }
    };
    vec![
        tile(Tone::Good, RowVerdict::Better, "better"),
        tile(Tone::Bad, RowVerdict::Worse, "worse"),
        tile(Tone::Plain, RowVerdict::Within, "within the tolerance"),
        tile(Tone::Plain, RowVerdict::Changed, "changed, neither better nor worse"),
        tile(Tone::Plain, RowVerdict::NotComparable, "not comparable"),
    ]
}

/// Groups with more rows than this are shown in the table alone.
const MOST_ROWS: usize = 24;

/// Shows changes as ratios of new to old, the largest first.
fn changes(comparison: &Comparison) -> Option<Item> {
    let panel = |group: &Group| {
        let mut changed: Vec<(&ComparedRow, f64)> = group.rows.iter().filter_map(change).collect();
        changed.sort_by(|a, b| b.1.ln().abs().total_cmp(&a.1.ln().abs()));
        changed.truncate(MOST_ROWS);
        let rows: Vec<StripRow> = changed.into_iter().map(strip).collect();
        (!rows.is_empty()).then(|| Panel { name: group.title.clone(), rows })
    };
    let panels: Vec<Panel> = comparison.groups.iter().filter_map(panel).collect();
    (!panels.is_empty()).then(|| {
        Item::Figure(Figure {
            title: "What changed, new over old".to_owned(),
            says: "A row is one figure whose sides both are above zero: the line goes from 1, the old value, to the \
                   new one; left of 1 it shrank. Colours say whether that is better or worse, where the figure has a \
                   direction. The largest changes come first."
                .to_owned(),
            drawing: Drawing::Strips(Strips {
                unit: "times".to_owned(),
                scale: PanelScale::Ratio,
                panels,
            }),
        })
    })
}

/// Returns the row with its ratio of new to old; `None` if it has not changed, or has no such ratio.
fn change(row: &ComparedRow) -> Option<(&ComparedRow, f64)> {
    let judged = !matches!(
        row.verdict,
        RowVerdict::Equal | RowVerdict::OneSided | RowVerdict::NotComparable
    );
    let (old, new) = (row.old?, row.new?);
    (judged && old > 0.0 && new > 0.0).then_some((row, new / old))
}

fn strip((row, times): (&ComparedRow, f64)) -> StripRow {
    let tone = match row.verdict {
        RowVerdict::Better => Tone::Good,
        RowVerdict::Worse => Tone::Bad,
        _ => Tone::Plain,
    };
    let [old, new] = [row.old, row.new].map(|side| Cell::from(side.map(plain)));
    StripRow {
        name: row.name.clone(),
        text: format!("{old} to {new} ({})", ratio(times)),
        marks: vec![Mark::Change(1.0, times, tone)],
    }
}
