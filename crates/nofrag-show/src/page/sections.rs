//! Sections of the terminal for the browser: every kind of section has its item.

use super::axis::Scale;
use super::bars::{Bar, BarPanel, Bars};
use super::cells::{self, CellRow, Cells, Map, Piece};
use super::curves::{Curve, Curves, Line};
use super::{Drawing, Figure, Item};
use crate::{BarGroup, OccupancyMap, Section, plain};

/// Returns the items of sections, in their order; lists without lines are left out.
pub fn items(sections: Vec<Section>) -> Vec<Item> {
    sections.into_iter().filter_map(item).collect()
}

fn item(section: Section) -> Option<Item> {
    let item = match section {
        Section::Lines { lines, .. } if lines.is_empty() => return None,
        Section::Lines { title, lines } => Item::Lines { title, lines },
        Section::Table(table) => Item::Table(table),
        Section::Bars { title, groups } => {
            let says = "A bar is the number at its end; the scale is logarithmic, from half of the shortest on.";
            figure(title, says.to_owned(), Drawing::Bars(bars(groups)))
        }
        Section::Chart { title, caption, ends, layers } => {
            let drawing = Drawing::Curves(chart(&title, &ends, layers));
            figure(title, caption, drawing)
        }
        Section::Occupancy { title, caption, ends, paint, maps } => {
            let legend = cells::legend_of(paint);
            let maps = maps.into_iter().map(map).collect();
            figure(title, caption, Drawing::Cells(Cells { maps, ends, legend }))
        }
    };
    Some(item)
}

fn figure(title: String, says: String, drawing: Drawing) -> Item {
    Item::Figure(Figure { title, says, drawing })
}

fn bars(groups: Vec<BarGroup>) -> Bars {
    let bar = |(name, value): (String, f64)| Bar { name, value, text: plain(value).to_string() };
    let panel = |group: BarGroup| BarPanel {
        name: group.name,
        bars: group.bars.into_iter().map(bar).collect(),
    };
    Bars { lengths: Scale::Logarithmic, panels: groups.into_iter().map(panel).collect() }
}

/// Returns a chart of values at equal distances, with their share of the way as the horizontal axis.
fn chart(title: &str, ends: &[String; 2], layers: Vec<(String, Vec<f64>)>) -> Curves {
    let curve = |(name, values): (String, Vec<f64>)| {
        let last = values.len().saturating_sub(1).max(1) as f64;
        let points = values.into_iter().enumerate();
        Curve { name, points: points.map(|(i, y)| (100.0 * i as f64 / last, y)).collect() }
    };
    let across = format!("percent of the way from {} to {}", ends[0], ends[1]);
    let curves = layers.into_iter().map(curve).collect();
    Curves::new(title, [&across, title], Line::Straight, curves)
}

fn map(map: OccupancyMap) -> Map {
    let row = |(name, shares): (String, Vec<f64>)| {
        let shades = shares.into_iter().map(cells::shade_of_share).collect();
        CellRow { name, pieces: vec![Piece::Cells(shades)] }
    };
    Map { name: map.name, rows: map.rows.into_iter().map(row).collect() }
}
