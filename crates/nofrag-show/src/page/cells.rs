//! Maps of memory: rows of cells, lowest address first, shaded by what is in them.
//!
//! A run of equal cells is one rectangle, so that a map of thousands of cells stays small.

use askama::Template;
use nofrag_host::picture::{Cell, Piece as Drawn};

use crate::{Paint, bytes_text};

/// A drawing of maps with one legend.
#[derive(Clone, Debug, Template)]
#[template(path = "cells.html", whitespace = "minimize")]
pub struct Cells {
    /// The maps, one for each space.
    pub maps: Vec<Map>,
    /// The texts below the left and the right end.
    pub ends: [String; 2],
    /// Shades in use, with their meaning.
    pub legend: Vec<(Shade, String)>,
}

/// The rows of one space.
#[derive(Clone, Debug)]
pub struct Map {
    /// Name of the space; may be empty.
    pub name: String,
    /// Rows, one for each moment or zone.
    pub rows: Vec<CellRow>,
}

/// One line of a map.
#[derive(Clone, Debug)]
pub struct CellRow {
    /// Name of the moment or zone; may be empty.
    pub name: String,
    /// Pieces from the lowest address on.
    pub pieces: Vec<Piece>,
}

/// A part of a line.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Cells that are drawn to scale.
    Cells(Vec<Shade>),
    /// A hole that is not drawn to scale, with its size.
    Gap(String),
}

/// The colour of a cell: the name of a class of the style sheet.
pub type Shade = &'static str;

/// Shades from zero to all.
const STEPS: [Shade; 10] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"];
const SOLID: [Shade; 4] = ["s3", "s5", "s7", "s9"];
const FAINT: [Shade; 4] = ["f1", "f2", "f3", "f4"];
const FREE: Shade = "s0";

/// Returns the shade of a share from 0 to 1. Only zero looks like zero, and only all looks like all, to a thousandth.
pub fn shade_of_share(share: f64) -> Shade {
    match share {
        _ if share < 0.001 => STEPS[0],
        _ if share < 0.999 => STEPS[1 + (share * 8.0) as usize],
        _ => STEPS[9],
    }
}

/// Returns the meaning of the shades of shares.
pub fn legend_of(paint: Paint) -> Vec<(Shade, String)> {
    let (shades, texts) = match paint {
        Paint::InUse => ([0.0, 0.5, 1.0], ["nothing in use", "half", "all in use"]),
        Paint::FreeOrder => (
            [0.0, 0.5, 1.0],
            ["nothing free", "the largest free block has some pages", "a whole pageblock is free"],
        ),
        Paint::Ranges => {
            ([Paint::KERNELS, Paint::OURS, 1.0], ["the kernel's range", "our range", "both"])
        }
    };
    shades.map(shade_of_share).into_iter().zip(texts.map(str::to_owned)).collect()
}

/// Draws a space with its holes from the pieces of the host crate; `faint` is the meaning of faint ink.
pub fn hole_map(pieces: &[Drawn], faint: &str, ends: [String; 2]) -> Cells {
    let piece = |piece: &Drawn| match piece {
        Drawn::Cells(cells) => Piece::Cells(cells.iter().map(shade_of_cell).collect()),
        Drawn::Gap { bytes } => Piece::Gap(format!("{} free", bytes_text(*bytes))),
    };
    let row = CellRow { name: String::new(), pieces: pieces.iter().map(piece).collect() };
    let legend = [
        (FREE, "free".to_owned()),
        (SOLID[0], "a little in use".to_owned()),
        (SOLID[3], "all in use".to_owned()),
        (FAINT[0], format!("a little {faint}")),
        (FAINT[3], format!("all {faint}")),
    ];
    Cells { maps: vec![Map { name: String::new(), rows: vec![row] }], ends, legend: legend.into() }
}

/// Returns the shade of a cell, which shows as free only if nothing is in it: small contents must not vanish.
fn shade_of_cell(cell: &Cell) -> Shade {
    let taken = u128::from(cell.solid_bytes) + u128::from(cell.faint_bytes);
    if taken == 0 {
        return FREE;
    }
    let inks = if cell.solid_bytes >= cell.faint_bytes { SOLID } else { FAINT };
    let level = (taken * inks.len() as u128).div_ceil(taken + u128::from(cell.free_bytes)) - 1;
    inks[level as usize]
}

impl Cells {
    /// Draws equal neighbours as one rectangle each.
    fn strip(&self, cells: &[Shade]) -> String {
        let mut out = format!(
            "<svg viewBox=\"0 0 {0} 1\" preserveAspectRatio=\"none\" style=\"flex-grow:{0}\">",
            cells.len()
        );
        let mut from = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            let (shade, width) = (run[0], run.len());
            out += &format!("<path class={shade} d=\"M{from} 0h{width}v1h-{width}z\"/>");
            from += width;
        }
        out + "</svg>"
    }

    /// Describes a row for readers who do not see it: the share of each shade of the legend, and of shades between two.
    fn in_words(&self, row: &CellRow) -> String {
        let cells = || {
            row.pieces.iter().flat_map(|piece| match piece {
                Piece::Cells(cells) => cells.as_slice(),
                Piece::Gap(_) => &[],
            })
        };
        let count = cells().count().max(1);
        let mut parts: Vec<String> = self
            .legend
            .iter()
            .filter_map(|(shade, text)| {
                let share = 100 * cells().filter(|cell| *cell == shade).count() / count;
                (share > 0).then(|| format!("{share} % {text}"))
            })
            .collect();
        let gaps = row.pieces.iter().filter_map(|piece| match piece {
            Piece::Gap(text) => Some(text.clone()),
            Piece::Cells(_) => None,
        });
        parts.extend(gaps);
        parts.join(", ")
    }

    /// Returns true if the rows of `map` have no names.
    fn bare(&self, map: &Map) -> bool {
        map.rows.iter().all(|row| row.name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nothing_and_all_look_like_nothing_and_all() {
        let shades = [0.0, 0.01, 0.5, 0.998, 1.0].map(shade_of_share);
        assert_eq!(shades, ["s0", "s1", "s5", "s8", "s9"]);
        let cell = |solid_bytes, faint_bytes, free_bytes| {
            shade_of_cell(&Cell { solid_bytes, faint_bytes, free_bytes })
        };
        assert_eq!([cell(0, 0, 9), cell(1, 0, 99), cell(9, 0, 0)], ["s0", "s3", "s9"]);
        assert_eq!([cell(0, 1, 99), cell(1, 2, 0)], ["f1", "f4"]);
    }

    #[test]
    fn in_words_a_shade_has_its_share_of_the_cells() {
        let legend = [("s0", "free"), ("s5", "half"), ("s9", "all in use")];
        let legend = legend.map(|(shade, text)| (shade, text.to_owned())).into();
        let cells = Cells { maps: Vec::new(), ends: ["", ""].map(str::to_owned), legend };
        let gap = Piece::Gap("1 GiB free".to_owned());
        let pieces = vec![Piece::Cells(vec!["s0", "s9"]), gap, Piece::Cells(vec!["s9", "s9"])];
        let row = CellRow { name: String::new(), pieces };
        assert_eq!(cells.in_words(&row), "25 % free, 75 % all in use, 1 GiB free");
    }

    #[test]
    fn a_run_of_equal_cells_is_one_rectangle() {
        let cells =
            Cells { maps: Vec::new(), ends: ["", ""].map(str::to_owned), legend: Vec::new() };
        let strip = cells.strip(&["s0", "s0", "s9"]);
        assert_eq!(strip.matches("<path").count(), 2, "{strip}");
        assert!(strip.contains("M0 0h2v1h-2z") && strip.contains("M2 0h1v1h-1z"), "{strip}");
    }
}
