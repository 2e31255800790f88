//! A space as one line of cells.
//!
//! A space of 32 TiB with 70 MiB in use, drawn to scale, is a blank line. So a hole that would fill more than half of
//! the line is cut out and shown as one gap with its size; this repeats for the remainder, and the rest is drawn to one
//! scale.

use nofrag::ranges::Span;

/// An area, as input of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stroke {
    pub span: Span,
    pub ink: Ink,
}

/// The look of an area in a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Solid,
    /// Taken, but not in use: freed and not yet purged, or without access.
    Faint,
}

/// A part of the line that [`draw`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Cells, each standing for about the same number of bytes.
    Cells(Vec<Cell>),
    /// A hole that is not drawn to scale.
    Gap { bytes: u64 },
}

/// The bytes of one cell by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Bytes of areas with [`Ink::Solid`].
    pub solid_bytes: u64,
    /// Bytes of areas with [`Ink::Faint`].
    pub faint_bytes: u64,
    pub free_bytes: u64,
}

/// Most gaps in a line: more make it harder to read than a long line.
const MAX_GAPS: usize = 3;

/// Draws `space` and the areas in it, which ascend, with `cells` cells in all, at least one for each piece between
/// gaps. O(areas + cells).
#[must_use]
pub fn draw(space: Span, areas: &[Stroke], cells: usize) -> Vec<Piece> {
    let holes = holes(space, areas);
    let gaps = gaps(&holes, space.len());
    let islands = islands(space, &gaps);
    let drawn: u64 = islands.iter().flatten().map(|island| island.len()).sum();
    let mut pieces = Vec::new();
    for (index, island) in islands.iter().enumerate() {
        if let Some(gap) = index.checked_sub(1).and_then(|before| gaps.get(before)) {
            pieces.push(Piece::Gap { bytes: gap.len() });
        }
        if let Some(island) = island {
            let share = cells as u128 * u128::from(island.len()) / u128::from(drawn);
            let share = (share as usize).max(1);
            pieces.push(Piece::Cells(fill(*island, share, areas)));
        }
    }
    pieces
}

/// Returns the holes of the space by address.
fn holes(space: Span, areas: &[Stroke]) -> Vec<Span> {
    let mut holes = Vec::new();
    let mut free_from = space.start();
    for area in areas {
        holes.extend(Span::new(free_from, area.span.start()));
        free_from = free_from.max(area.span.end());
    }
    holes.extend(Span::new(free_from, space.end()));
    holes
}

/// Returns the holes to cut out, by address.
fn gaps(holes: &[Span], space_bytes: u64) -> Vec<Span> {
    let mut by_size = holes.to_vec();
    by_size.sort_unstable_by_key(|hole| std::cmp::Reverse(hole.len()));
    let mut drawn = space_bytes;
    let too_long = by_size.into_iter().take(MAX_GAPS).take_while(|hole| {
        let cut = hole.len() > drawn / 2;
        drawn -= if cut { hole.len() } else { 0 };
        cut
    });
    let mut gaps: Vec<Span> = too_long.collect();
    gaps.sort_unstable();
    gaps
}

/// Returns the spans before, between and behind the gaps; `None` for an empty one.
fn islands(space: Span, gaps: &[Span]) -> Vec<Option<Span>> {
    let starts = std::iter::once(space.start()).chain(gaps.iter().map(|gap| gap.end()));
    let ends = gaps.iter().map(|gap| gap.start()).chain(std::iter::once(space.end()));
    starts.zip(ends).map(|(start, end)| Span::new(start, end).ok()).collect()
}

/// Divides `island` into `count` cells and counts what is in each.
fn fill(island: Span, count: usize, areas: &[Stroke]) -> Vec<Cell> {
    let count = count.min(usize::try_from(island.len()).unwrap_or(count));
    let edge = |index: usize| {
        let offset = u128::from(island.len()) * index as u128 / count as u128;
        island.start() + offset as u64
    };
    let mut next = areas.partition_point(|area| area.span.end() <= island.start());
    let mut counted_to = island.start();
    let mut cells = Vec::new();
    for index in 0..count {
        let (start, end) = (edge(index), edge(index + 1));
        let mut cell = Cell::default();
        while let Some(area) = areas.get(next).filter(|area| area.span.start() < end) {
            count_area(&mut cell, *area, counted_to.max(start), end);
            counted_to = counted_to.max(area.span.end().min(end));
            if area.span.end() > end {
                break; // the rest of it belongs to the cells that follow
            }
            next += 1;
        }
        counted_to = counted_to.max(end);
        cell.free_bytes = end - start - cell.solid_bytes - cell.faint_bytes;
        cells.push(cell);
    }
    cells
}

fn count_area(cell: &mut Cell, area: Stroke, from: u64, to: u64) {
    let (start, end) = (area.span.start().max(from), area.span.end().min(to));
    let Ok(part) = Span::new(start, end) else { return };
    match area.ink {
        Ink::Solid => cell.solid_bytes += part.len(),
        Ink::Faint => cell.faint_bytes += part.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a picture: `#` mostly solid, `~` mostly faint, `.` mostly free; a gap is its size in brackets.
    fn check_picture(end: u64, areas: &[(u64, u64, Ink)], cells: usize, expected: &str) {
        let stroke = |&(start, end, ink): &(u64, u64, Ink)| Stroke {
            span: Span::new(start, end).unwrap(),
            ink,
        };
        let areas: Vec<Stroke> = areas.iter().map(stroke).collect();
        let mut picture = String::new();
        for piece in draw(Span::new(0, end).unwrap(), &areas, cells) {
            match piece {
                Piece::Gap { bytes } => picture += &format!("[{bytes}]"),
                Piece::Cells(cells) => picture.extend(cells.iter().map(|cell| {
                    let most = cell.solid_bytes.max(cell.faint_bytes).max(cell.free_bytes);
                    if most == cell.free_bytes {
                        '.'
                    } else if most == cell.solid_bytes {
                        '#'
                    } else {
                        '~'
                    }
                })),
            }
        }
        assert_eq!(picture, expected);
    }

    #[test]
    fn to_scale_when_nothing_dominates() {
        let areas = [(0, 10, Ink::Solid), (20, 30, Ink::Faint), (30, 40, Ink::Solid)];
        check_picture(40, &areas, 4, "#.~#");
        check_picture(40, &areas, 8, "##..~~##");
    }

    #[test]
    fn a_long_hole_becomes_a_gap() {
        let areas = [(0, 10, Ink::Solid), (1010, 1020, Ink::Solid)];
        check_picture(1020, &areas, 4, "##[1000]##");
        check_picture(1020, &areas[..1], 4, "####[1010]");
        check_picture(1020, &areas[1..], 4, "[1010]####");
        check_picture(1020, &[], 4, "[1020]");
    }

    #[test]
    fn an_area_over_many_cells_fills_them() {
        check_picture(100, &[(10, 96, Ink::Solid)], 10, ".#########");
        check_picture(3, &[(0, 3, Ink::Solid)], 10, "###");
    }

    /// Draws areas that overlap, since two lines of a file may claim one range: each byte is counted once, so no cell
    /// holds more bytes than it stands for.
    #[test]
    fn overlaps_do_not_overflow() {
        let areas = [(0, 30, Ink::Solid), (10, 20, Ink::Faint), (10, 40, Ink::Solid)];
        check_picture(40, &areas, 4, "####");
        check_picture(40, &[(0, 40, Ink::Faint), (0, 40, Ink::Solid)], 4, "~~~~");
    }
}
