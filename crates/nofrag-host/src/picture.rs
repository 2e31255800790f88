//! A region as one line of cells.
//!
//! A space of 32 TiB with 70 MiB in use, drawn to scale, is a blank line. So a hole that would fill more than half of
//! the line is cut out and stands there as one gap with its size, again and again; what remains is drawn to one scale.

use nofrag::ranges::Span;

use crate::region::{Region, State};

/// A part of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Cells, each standing for about the same number of bytes.
    Cells(Vec<Cell>),
    /// A hole that is not drawn to scale.
    Gap {
        /// Its size.
        bytes: u64,
    },
}

/// What the bytes of one cell are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// In use.
    pub live_bytes: u64,
    /// Freed, not yet purged.
    pub lazy_bytes: u64,
    /// Free.
    pub free_bytes: u64,
}

/// More gaps than this make the line harder to read than a long one.
const MAX_GAPS: usize = 3;

/// Draws `region` with `cells` cells in all, at least one for each piece between gaps. O(areas + cells).
#[must_use]
pub fn draw(region: &Region, cells: usize) -> Vec<Piece> {
    let holes = holes(region);
    let gaps = gaps(&holes, region.span.len());
    let islands = islands(region.span, &gaps);
    let drawn: u64 = islands.iter().flatten().map(|island| island.len()).sum();
    let mut pieces = Vec::new();
    for (index, island) in islands.iter().enumerate() {
        if let Some(gap) = index.checked_sub(1).and_then(|before| gaps.get(before)) {
            pieces.push(Piece::Gap { bytes: gap.len() });
        }
        if let Some(island) = island {
            let share = cells as u128 * u128::from(island.len()) / u128::from(drawn);
            let share = (share as usize).max(1);
            pieces.push(Piece::Cells(fill(*island, share, region)));
        }
    }
    pieces
}

/// The holes of the region by address.
fn holes(region: &Region) -> Vec<Span> {
    let mut holes = Vec::new();
    let mut free_from = region.span.start();
    for area in &region.areas {
        holes.extend(Span::new(free_from, area.span.start()));
        free_from = free_from.max(area.span.end());
    }
    holes.extend(Span::new(free_from, region.span.end()));
    holes
}

/// The holes to cut out, by address.
fn gaps(holes: &[Span], region_bytes: u64) -> Vec<Span> {
    let mut by_size = holes.to_vec();
    by_size.sort_unstable_by_key(|hole| std::cmp::Reverse(hole.len()));
    let mut drawn = region_bytes;
    let too_long = by_size.into_iter().take(MAX_GAPS).take_while(|hole| {
        let cut = hole.len() > drawn / 2;
        drawn -= if cut { hole.len() } else { 0 };
        cut
    });
    let mut gaps: Vec<Span> = too_long.collect();
    gaps.sort_unstable();
    gaps
}

/// What lies before, between and behind the gaps; `None` where that is nothing.
fn islands(region: Span, gaps: &[Span]) -> Vec<Option<Span>> {
    let starts = std::iter::once(region.start()).chain(gaps.iter().map(|gap| gap.end()));
    let ends = gaps.iter().map(|gap| gap.start()).chain(std::iter::once(region.end()));
    starts.zip(ends).map(|(start, end)| Span::new(start, end).ok()).collect()
}

/// Divides `island` into `count` cells and counts what is in each.
fn fill(island: Span, count: usize, region: &Region) -> Vec<Cell> {
    let count = count.min(usize::try_from(island.len()).unwrap_or(count));
    let edge = |index: usize| {
        let offset = u128::from(island.len()) * index as u128 / count as u128;
        island.start() + offset as u64
    };
    let mut next = region.areas.partition_point(|area| area.span.end() <= island.start());
    let mut counted_to = island.start();
    let mut cells = Vec::with_capacity(count);
    for index in 0..count {
        let (start, end) = (edge(index), edge(index + 1));
        let mut cell = Cell::default();
        while let Some(area) = region.areas.get(next).filter(|area| area.span.start() < end) {
            count_area(&mut cell, area.span, area.state, counted_to.max(start), end);
            counted_to = counted_to.max(area.span.end().min(end));
            if area.span.end() > end {
                break; // the rest of it belongs to the cells that follow
            }
            next += 1;
        }
        counted_to = counted_to.max(end);
        cell.free_bytes = end - start - cell.live_bytes - cell.lazy_bytes;
        cells.push(cell);
    }
    cells
}

fn count_area(cell: &mut Cell, area: Span, state: State, from: u64, to: u64) {
    let Ok(part) = Span::new(area.start().max(from), area.end().min(to)) else { return };
    match state {
        State::Live => cell.live_bytes += part.len(),
        State::Lazy => cell.lazy_bytes += part.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Bounds, Name, Placed};

    fn region(end: u64, areas: &[(u64, u64, State)]) -> Region {
        let placed = |&(start, end, state): &(u64, u64, State)| Placed {
            span: Span::new(start, end).unwrap(),
            state,
            line: 0,
        };
        Region {
            name: Name::Vmalloc,
            span: Span::new(0, end).unwrap(),
            bounds: Bounds::Exact { why: String::new() },
            areas: areas.iter().map(placed).collect(),
        }
    }

    /// `#` mostly live, `~` mostly lazy, `.` mostly free; a gap is its size in brackets.
    fn check_picture(region: &Region, cells: usize, expected: &str) {
        let mut picture = String::new();
        for piece in draw(region, cells) {
            match piece {
                Piece::Gap { bytes } => picture += &format!("[{bytes}]"),
                Piece::Cells(cells) => picture.extend(cells.iter().map(|cell| {
                    let most = cell.live_bytes.max(cell.lazy_bytes).max(cell.free_bytes);
                    if most == cell.free_bytes {
                        '.'
                    } else if most == cell.live_bytes {
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
        let areas = [(0, 10, State::Live), (20, 30, State::Lazy), (30, 40, State::Live)];
        check_picture(&region(40, &areas), 4, "#.~#");
        check_picture(&region(40, &areas), 8, "##..~~##");
    }

    #[test]
    fn a_long_hole_becomes_a_gap() {
        let areas = [(0, 10, State::Live), (1010, 1020, State::Live)];
        check_picture(&region(1020, &areas), 4, "##[1000]##");
        check_picture(&region(1020, &areas[..1]), 4, "####[1010]");
        check_picture(&region(1020, &areas[1..]), 4, "[1010]####");
        check_picture(&region(1020, &[]), 4, "[1020]");
    }

    #[test]
    fn an_area_over_many_cells_fills_them() {
        check_picture(&region(100, &[(10, 96, State::Live)]), 10, ".#########");
        check_picture(&region(3, &[(0, 3, State::Live)]), 10, "###");
    }

    /// Lines that claim the same range are counted once, so a cell never holds more than its bytes.
    #[test]
    fn overlaps_do_not_overflow() {
        let areas = [(0, 30, State::Live), (10, 20, State::Lazy), (10, 40, State::Live)];
        check_picture(&region(40, &areas), 4, "####");
        check_picture(&region(40, &[(0, 40, State::Lazy), (0, 40, State::Live)]), 4, "~~~~");
    }
}
