//! Pictures made of characters: bars, a course over time, occupancy of the parts of a space, holes, a divided line.
//!
//! Every picture takes its characters from one table, [`Brushes`], which has a column for terminals without block
//! elements. Contents must not vanish: a part that is not empty gets at least the lightest of its characters.

use nofrag_host::picture::{Cell, Ink, Piece};

use crate::look::{Glyphs, Look};
use crate::{BarGroup, OccupancyMap, Paint, bytes_text, plain};

/// The characters of all pictures.
struct Brushes {
    /// Memory in use, from a little to all of a cell.
    solid: [char; 4],
    /// Memory that is taken but not in use, from a little to all of a cell.
    faint: [char; 3],
    /// A free cell, in a picture without borders.
    free: char,
    /// A share, from little to most.
    shares: [char; 3],
    /// A full cell of any ink.
    full: char,
    /// Bars from the bottom, below the full cell.
    up: [char; 7],
    /// Bars from the left, below the full cell, by eighths; none where only whole cells can be drawn.
    across: [&'static str; 8],
    vertical: char,
    horizontal: &'static str,
    corner: char,
}

static UNICODE: Brushes = Brushes {
    solid: ['▂', '▄', '▆', '█'],
    faint: ['░', '▒', '▓'],
    free: '·',
    shares: ['░', '▒', '▓'],
    full: '█',
    up: ['▁', '▂', '▃', '▄', '▅', '▆', '▇'],
    across: ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"],
    vertical: '│',
    horizontal: "─",
    corner: '└',
};

static ASCII: Brushes = Brushes {
    solid: ['-', '+', '*', '#'],
    faint: [',', ';', '%'],
    free: '.',
    shares: ['.', ':', '%'],
    full: '#',
    up: ['_', '_', '-', '-', '=', '=', '+'],
    across: ["", "", "", "", "", "", "", ""],
    vertical: '|',
    horizontal: "-",
    corner: '+',
};

fn brushes(look: Look) -> &'static Brushes {
    match look.glyphs {
        Glyphs::Unicode => &UNICODE,
        Glyphs::Ascii => &ASCII,
    }
}

/// Draws bars on a logarithmic scale, in groups.
pub(crate) fn bars(groups: &[BarGroup], look: Look) -> String {
    /// Columns of the longest bar.
    const LONGEST: usize = 50;
    /// Columns beside a name and its bar: blanks and the value.
    const BESIDE: usize = 16;
    let values = || groups.iter().flat_map(|group| &group.bars).map(|(_, value)| *value);
    let longest = values().fold(f64::MIN_POSITIVE, f64::max);
    // The scale starts a little below the shortest bar, so that it is still a bar.
    let origin = values().fold(longest, f64::min) / 2.0;
    let names = groups.iter().flat_map(|group| &group.bars).map(|(name, _)| name.chars().count());
    let name_width = names.max().unwrap_or(0);
    let columns = look.width.saturating_sub(name_width + BESIDE).clamp(10, LONGEST) as f64;
    let mut out = String::new();
    for group in groups {
        out += &format!("  {}\n", group.name);
        for (name, value) in &group.bars {
            let share = (value / origin).ln() / (longest / origin).ln();
            let bar = bar_of(share * columns, brushes(look));
            out += &format!("    {name:name_width$}  {bar} {}\n", plain(*value));
        }
    }
    out
}

/// Draws a bar of `columns` columns, to an eighth of one.
fn bar_of(columns: f64, brushes: &Brushes) -> String {
    let eighths = (columns.max(0.125) * 8.0).round() as usize;
    let bar = brushes.full.to_string().repeat(eighths / 8) + brushes.across[eighths % 8];
    if bar.is_empty() { brushes.full.to_string() } else { bar }
}

const CHART_ROWS: usize = 8;
const CHART_COLUMNS: usize = 72;

/// Draws the course of a quantity under several designs, one over the other, the first at the back.
pub(crate) fn chart(ends: &[String; 2], layers: &[(String, Vec<f64>)], look: Look) -> String {
    let brushes = brushes(look);
    let values = || layers.iter().flat_map(|(_, values)| values);
    let highest = values().copied().fold(f64::MIN_POSITIVE, f64::max);
    let labels = [highest, highest / 2.0, 0.0].map(|value| plain(value).to_string());
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let columns = CHART_COLUMNS.min(look.width.saturating_sub(width + 4));
    // The last layer is the front one, for any number of layers.
    let all = [brushes.shares[0], brushes.shares[1], brushes.full];
    let paints = &all[all.len().saturating_sub(layers.len())..];
    let mut out = String::new();
    for row in (0..CHART_ROWS).rev() {
        let label = match row {
            _ if row == CHART_ROWS - 1 => &labels[0],
            _ if row == CHART_ROWS / 2 - 1 => &labels[1],
            0 => &labels[2],
            _ => "",
        };
        let mut line = format!("  {label:>width$} {}", brushes.vertical);
        for column in 0..columns {
            let painted = layers.iter().zip(paints).rev().find_map(|((_, values), paint)| {
                let at = column * values.len() / columns;
                let height = values.get(at)? / highest * CHART_ROWS as f64;
                chart_cell(height, row, *paint, brushes)
            });
            line.push(painted.unwrap_or(' '));
        }
        out += line.trim_end();
        out += "\n";
    }
    let [left, right] = ends;
    let gap = columns.saturating_sub(left.chars().count());
    let floor = brushes.horizontal.repeat(columns);
    out += &format!("  {:width$} {}{floor}\n", "", brushes.corner);
    out += &format!("  {:width$}  {left}{right:>gap$}\n", "");
    for ((name, values), paint) in layers.iter().zip(paints) {
        let peak = values.iter().copied().fold(0.0, f64::max);
        let last = values.last().copied().unwrap_or(0.0);
        let (peak, last) = (plain(peak), plain(last));
        out += &format!("  {paint} {name}: at most {peak}, at the end {last}\n");
    }
    out
}

/// Draws a cell that one layer fills: its top row to an eighth if it is the front one.
fn chart_cell(height: f64, row: usize, paint: char, brushes: &Brushes) -> Option<char> {
    let eighths = 8.0 * (height - row as f64);
    match eighths.ceil() {
        filled if filled <= 0.0 => None,
        filled if filled < 8.0 && paint == brushes.full => Some(brushes.up[filled as usize - 1]),
        _ => Some(paint),
    }
}

/// Returns the character of a part by the share of it that is in use. A part that is painted empty or full is so to a
/// thousandth.
fn shade(share: f64, brushes: &Brushes) -> char {
    match share {
        _ if share < 0.001 => ' ',
        _ if share < 1.0 / 3.0 => brushes.shares[0],
        _ if share < 2.0 / 3.0 => brushes.shares[1],
        _ if share < 0.999 => brushes.shares[2],
        _ => brushes.full,
    }
}

/// Returns the character of a bar for this share. A full bar is so to a thousandth.
fn bar_of_share(share: f64, brushes: &Brushes) -> char {
    match share {
        _ if share < 0.001 => ' ',
        _ if share < 0.999 => brushes.up[((8.0 * share).ceil() as usize).clamp(1, 7) - 1],
        _ => brushes.full,
    }
}

impl Paint {
    /// Returns the shares for at most `columns` columns: of parts that share one the mean of what is in use, or else
    /// the most.
    fn merged(self, shares: &[f64], columns: usize) -> Vec<f64> {
        if shares.len() <= columns {
            return shares.to_vec();
        }
        let parts = |column| column * shares.len() / columns..(column + 1) * shares.len() / columns;
        let one = |parts: &[f64]| match self {
            Paint::InUse => parts.iter().sum::<f64>() / parts.len() as f64,
            Paint::FreeOrder | Paint::Ranges => parts.iter().copied().fold(0.0, f64::max),
        };
        (0..columns).map(|column| one(&shares[parts(column)])).collect()
    }

    fn of(self, share: f64, brushes: &Brushes) -> char {
        match self {
            Paint::InUse | Paint::Ranges => shade(share, brushes),
            Paint::FreeOrder => bar_of_share(share, brushes),
        }
    }

    fn legend(self, brushes: &Brushes) -> String {
        let Brushes { full, shares: [little, half, most], up, .. } = brushes;
        match self {
            Paint::InUse => {
                format!(
                    "in use: {full} all, {most} most, {half} half, {little} little, blank nothing"
                )
            }
            Paint::Ranges => {
                format!("from the least to the most: {little} kernel's, {half} ours, {full} both")
            }
            Paint::FreeOrder => format!(
                "largest free block: {full} a whole pageblock, {} some pages of it, {} a single page, blank none",
                up[3], up[0]
            ),
        }
    }
}

/// Draws how full the parts of a space are at several times, a line each.
pub(crate) fn occupancy(
    ends: &[String; 2],
    paint: Paint,
    maps: &[OccupancyMap],
    look: Look,
) -> String {
    let brushes = brushes(look);
    let rows = || maps.iter().flat_map(|map| &map.rows);
    let width = rows().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let parts = rows().map(|(_, shares)| shares.len()).max().unwrap_or(0);
    let parts = parts.min(look.width.saturating_sub(width + 5));
    let wall = brushes.vertical;
    let mut out = String::new();
    for map in maps {
        out += &format!("  {}\n", map.name);
        for (label, shares) in &map.rows {
            let shares = paint.merged(shares, parts);
            let painted: String = shares.iter().map(|share| paint.of(*share, brushes)).collect();
            out += &format!("  {label:>width$} {wall}{painted}{wall}\n");
        }
    }
    let [left, right] = ends;
    let gap = parts.saturating_sub(left.chars().count());
    out += &format!("  {:width$}  {left}{right:>gap$}\n", "");
    out + &look.hanging("  ", 2, &paint.legend(brushes))
}

/// Draws a space as a line, with `draw` in a given number of cells; `faint` is the meaning of faint ink.
pub(crate) fn hole_map(draw: impl Fn(usize) -> Vec<Piece>, faint: &str, look: Look) -> String {
    const GAP_COLUMNS: usize = 20;
    let gaps = |piece: &Piece| matches!(piece, Piece::Gap { .. });
    let count = draw(1).iter().filter(|piece| gaps(piece)).count();
    let cells = look.width.saturating_sub(4 + count * GAP_COLUMNS).max(8);
    let mut map = String::from("  ");
    for piece in draw(cells) {
        match piece {
            Piece::Cells(cells) => map.extend(cells.iter().map(|cell| hole_cell(cell, look))),
            Piece::Gap { bytes } => map += &format!("<{} free>", bytes_text(bytes)),
        }
    }
    let [solid_row, faint_row, free] = inks(look);
    let legend = format!(
        "in use {solid_row}, mostly {faint} {faint_row} (from a little to all of a cell), free {free}"
    );
    map + "\n" + &look.hanging("  ", 2, &legend)
}

/// Returns the characters of solid and faint ink, from a little to all of a cell, and the one of a cell with neither.
pub(crate) fn inks(look: Look) -> [String; 3] {
    let Brushes { solid, faint, free, .. } = brushes(look);
    [String::from_iter(solid), String::from_iter(faint), free.to_string()]
}

/// Returns the character of a cell of `all` parts of which `part` are drawn in this ink; that of a free cell if `part`
/// is zero.
pub(crate) fn inked(ink: Ink, part: u64, all: u64, look: Look) -> char {
    let brushes = brushes(look);
    let row: &[char] = match ink {
        Ink::Solid => &brushes.solid,
        Ink::Faint => &brushes.faint,
    };
    let level = (u128::from(part) * row.len() as u128).div_ceil(u128::from(all.max(1)));
    match level.checked_sub(1) {
        None => brushes.free,
        Some(level) => row[(level as usize).min(row.len() - 1)],
    }
}

/// Returns the character of a cell, which shows as free only if nothing is in it.
fn hole_cell(cell: &Cell, look: Look) -> char {
    let ink = if cell.solid_bytes >= cell.faint_bytes { Ink::Solid } else { Ink::Faint };
    let taken = cell.solid_bytes + cell.faint_bytes;
    inked(ink, taken, taken + cell.free_bytes, look)
}

/// Draws a line of `cells` in two parts, in the ratio of the two amounts; `None` if both are zero.
#[must_use]
pub fn divided(left: u64, right: u64, cells: usize, look: Look) -> Option<String> {
    let filled = match (right, left) {
        (0, 0) => return None,
        (0, _) => 0,
        (_, 0) => cells,
        _ => {
            let all = u128::from(left) + u128::from(right);
            ((u128::from(right) * cells as u128 / all) as usize).clamp(1, cells - 1)
        }
    };
    let [small, large] = divided_by(look);
    Some(small.to_string().repeat(cells - filled) + &large.to_string().repeat(filled))
}

/// Returns the characters of the left and the right part of a [`divided`] line.
#[must_use]
pub fn divided_by(look: Look) -> [char; 2] {
    let brushes = brushes(look);
    [brushes.shares[0], brushes.full]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_for_a_whole_block_only() {
        let painted =
            [0.0, 0.1, 0.5, 0.9, 0.99, 1.0].map(|share| Paint::FreeOrder.of(share, &UNICODE));
        assert_eq!(painted, [' ', '▁', '▄', '▇', '▇', '█']);
    }

    const NARROW: Look = Look { glyphs: Glyphs::Ascii, width: 20, ..Look::FILE };

    #[test]
    fn small_things_do_not_vanish_from_the_map() {
        let cell =
            |solid_bytes, faint_bytes, free_bytes| Cell { solid_bytes, faint_bytes, free_bytes };
        let shown = [
            (0, 0, 9),
            (1, 0, 99),
            (2, 0, 2),
            (5, 0, 2),
            (9, 0, 0),
            (0, 1, 99),
            (0, 5, 4),
            (1, 2, 0),
            (0, 0, 0),
        ]
        .map(|(live, lazy, free)| hole_cell(&cell(live, lazy, free), NARROW));
        assert_eq!(shown.iter().collect::<String>(), ".-+*#,;%.");
    }

    #[test]
    fn a_small_part_of_a_line_does_not_vanish() {
        let line = |left, right| divided(left, right, 8, Look::FILE);
        assert_eq!(line(0, 0), None);
        assert_eq!(line(1, 0).unwrap(), "░░░░░░░░");
        assert_eq!(line(0, 1).unwrap(), "████████");
        assert_eq!(line(1, u64::MAX).unwrap(), "░███████");
        assert_eq!(line(u64::MAX, 1).unwrap(), "░░░░░░░█");
        assert_eq!(line(2, 2).unwrap(), "░░░░████");
    }

    #[test]
    fn ascii_pictures_are_ascii() {
        let ends = ["a", "b"].map(str::to_owned);
        let values: Vec<f64> = (0..80).map(|i| f64::from(i) / 79.0).collect();
        let layers = ["x", "y", "z"].map(|name| (name.to_owned(), values.clone()));
        let rows = vec![("1".to_owned(), values.clone())];
        let maps = vec![OccupancyMap { name: "map".to_owned(), rows }];
        let names = values.iter().map(|value| (value.to_string(), value + 0.01));
        let groups = vec![BarGroup { name: "group".to_owned(), bars: names.collect() }];
        let pictures = [
            chart(&ends, &layers, NARROW),
            occupancy(&ends, Paint::InUse, &maps, NARROW),
            occupancy(&ends, Paint::FreeOrder, &maps, NARROW),
            bars(&groups, NARROW),
        ];
        assert!(pictures.iter().all(|picture| picture.is_ascii()), "{}", pictures.concat());
    }
}
