//! Cells of tables: numbers stay numbers until they are read.

use std::fmt;

use crate::{Quantity, Spread, Tone, count, percent};

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// There is no such figure: shown as a dash.
    #[default]
    Missing,
    Text(String),
    /// Words that judge, in their colour.
    Judged(Tone, String),
    Number(Quantity),
    /// A median with half its range in percent.
    Median(Quantity, Option<f64>),
    /// Words about a number; tables are sorted by the number.
    About(f64, String),
}

impl Cell {
    /// Returns a cell with the words `text` about `quantity`, by which tables are sorted.
    #[must_use]
    pub fn about(quantity: Quantity, text: String) -> Cell {
        Cell::About(quantity.value, text)
    }

    /// Returns a cell with words that judge.
    #[must_use]
    pub fn judged(tone: Tone, words: impl Into<String>) -> Cell {
        Cell::Judged(tone, words.into())
    }

    /// Returns a part of a whole in percent; missing if the whole is zero.
    #[must_use]
    pub fn share(part: u64, whole: u64) -> Cell {
        (whole > 0).then(|| percent(part as f64 * 100.0 / whole as f64, 1)).into()
    }

    /// Returns the median of repetitions with half their range, if there are several.
    #[must_use]
    pub fn median(time: &Spread) -> Cell {
        let half = (time.samples.len() > 1).then(|| 50.0 * time.relative_width());
        Cell::Median(crate::number(time.median), half)
    }

    /// Returns the number by which tables are sorted, in the base of its unit; `None` for a cell without a number.
    #[must_use]
    pub fn key(&self) -> Option<f64> {
        match self {
            Cell::Missing | Cell::Text(_) | Cell::Judged(..) => None,
            Cell::Number(quantity) | Cell::Median(quantity, _) => Some(quantity.value),
            Cell::About(key, _) => Some(*key),
        }
    }

    /// Returns true if the text of the cell is its number and nothing else, but for commas between thousands.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Cell::Number(quantity) | Cell::Median(quantity, None) => quantity.unit.is_plain(),
            _ => false,
        }
    }

    /// Returns the colour of the cell: plain, unless its words judge.
    #[must_use]
    pub fn tone(&self) -> Tone {
        match self {
            Cell::Judged(tone, _) => *tone,
            _ => Tone::Plain,
        }
    }

    /// Returns true if the cell has a figure or a word.
    #[must_use]
    pub fn is_there(&self) -> bool {
        *self != Cell::Missing
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Missing => f.write_str("-"),
            Cell::Text(text) | Cell::Judged(_, text) | Cell::About(_, text) => f.write_str(text),
            Cell::Number(quantity) | Cell::Median(quantity, None) => quantity.fmt(f),
            Cell::Median(quantity, Some(half)) if *half < 99.5 => {
                write!(f, "{quantity} ±{half:.0}%")
            }
            Cell::Median(quantity, Some(_)) => write!(f, "{quantity} ±>99%"),
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Cell {
        Cell::Text(text.clone())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<Quantity> for Cell {
    fn from(quantity: Quantity) -> Cell {
        Cell::Number(quantity)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Number(count(value as f64))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Cell {
        Cell::Number(count(value as f64))
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(there: Option<T>) -> Cell {
        there.map_or(Cell::Missing, T::into)
    }
}

/// Makes a row of [`Cell`]s: each from words, a [`Quantity`], a count, or an `Option` of one of these.
#[macro_export]
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$($crate::Cell::from($cell)),*] };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bytes, duration, ratio};

    #[test]
    fn cells_sort_by_what_they_stand_for() {
        let spread = Spread::of(vec![1_000.0, 1_234.0, 1_300.0]).unwrap();
        let cells = cells![
            "order 9",
            ratio(3.2),
            duration(0.002),
            bytes(1_572_864),
            Cell::median(&spread),
            Cell::about(ratio(3.2), "3.20..3.90x".to_owned()),
            None::<String>,
        ];
        let shown: Vec<String> = cells.iter().map(ToString::to_string).collect();
        let words = ["order 9", "3.20x", "2.00 ms", "1.50 MiB", "1,234 ±12%", "3.20..3.90x", "-"];
        assert_eq!(shown, words);
        let keys: Vec<Option<f64>> = cells.iter().map(Cell::key).collect();
        let values = [3.2, 0.002, 1_572_864.0, 1_234.0, 3.2].map(Some);
        assert_eq!(keys, [&[None], &values[..], &[None]].concat());
    }
}
