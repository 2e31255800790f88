//! Samples as dots and ranges as lines: distributions, and published figures beside measured ones.

use std::fmt::Write as _;

use askama::Template;

use super::axis::Axis;
use crate::Tone;
use crate::{Spread, Tail};
use crate::{number, plain};

/// Panels, each with a scale of its own.
#[derive(Clone, Debug, Template)]
#[template(path = "strips.html", whitespace = "minimize")]
pub struct Strips {
    pub unit: String,
    pub scale: PanelScale,
    /// Panels from top to bottom.
    pub panels: Vec<Panel>,
}

/// The scale of each panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelScale {
    /// The scale that suits the values.
    Fitting,
    /// Logarithmic with a mark at 1.
    Ratio,
}

/// A group of rows with one scale.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The common subject of the rows; may be empty.
    pub name: String,
    /// Rows, one for each thing measured.
    pub rows: Vec<StripRow>,
}

/// One row of a panel, with its marks.
#[derive(Clone, Debug)]
pub struct StripRow {
    pub name: String,
    /// The row in words, shown at its end.
    pub text: String,
    pub marks: Vec<Mark>,
}

/// A mark on a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// A line over the range of samples.
    Range(f64, f64),
    Band(f64, f64),
    Dot(f64),
    /// A quantile of many samples.
    Quantile(f64),
    /// The middle sample, or a measured value.
    Middle(f64),
    /// A line and the dot at its end: a change for the better or the worse.
    Change(f64, f64, Tone),
}

/// The most dots of a row: more of them lie on each other.
const MOST_DOTS: usize = 60;

impl StripRow {
    /// Returns a row of all samples with their median; `None` for a single sample, which is not a distribution.
    pub fn of_spread(name: &str, spread: &Spread) -> Option<StripRow> {
        if spread.samples.len() < 2 {
            return None;
        }
        let every = spread.samples.len().div_ceil(MOST_DOTS);
        let mut sorted = spread.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let mut marks = vec![Mark::Range(spread.min, spread.max)];
        marks.extend(sorted.iter().step_by(every).map(|sample| Mark::Dot(*sample)));
        marks.push(Mark::Middle(spread.median));
        let [median, min, max] = [spread.median, spread.min, spread.max].map(number);
        let text = match min == max {
            true => format!("{median}, all {}", spread.samples.len()),
            false => format!("{median} ({min} to {max})"),
        };
        Some(StripRow { name: name.to_owned(), text, marks })
    }

    /// Returns a row of the upper half of single operations: the median, 99 % and 99.9 % as dots, the longest at the
    /// end of the line.
    pub fn of_tail(name: &str, tail: &Tail) -> StripRow {
        let Tail { p50_ns, p99_ns, p999_ns, max_ns, .. } = *tail;
        let [p50, p99, p999, max] = [p50_ns, p99_ns, p999_ns, max_ns].map(|ns| ns.max(1) as f64);
        StripRow {
            name: name.to_owned(),
            text: format!("{} / {} / {}", plain(p50), plain(p99), plain(p999)),
            marks: vec![
                Mark::Range(p50, max),
                Mark::Middle(p50),
                Mark::Quantile(p99),
                Mark::Quantile(p999),
            ],
        }
    }
}

impl Strips {
    /// Returns the meaning of the marks in use: classes and texts.
    fn legend(&self) -> Vec<(&'static str, &'static str)> {
        let marks = || self.panels.iter().flat_map(|panel| &panel.rows).flat_map(|row| &row.marks);
        let mut legend = Vec::new();
        let mut entry = |any: bool, class, text| {
            if any {
                legend.push((class, text));
            }
        };
        let bands = marks().any(|mark| matches!(mark, Mark::Band(..)));
        entry(bands, "band", "published");
        entry(bands, "mid", "measured here");
        entry(marks().any(|mark| matches!(mark, Mark::Range(..))), "range", "from least to most");
        let dots = marks().any(|mark| matches!(mark, Mark::Dot(_)));
        entry(dots, "dot", "one sample");
        let quantiles = marks().any(|mark| matches!(mark, Mark::Quantile(_)));
        entry(quantiles, "dot", "99 %, 99.9 %");
        entry(!bands && marks().any(|mark| matches!(mark, Mark::Middle(_))), "mid", "median");
        let change = |tone| marks().any(|mark| matches!(mark, Mark::Change(_, _, t) if *t == tone));
        entry(change(Tone::Good), "good", "better");
        entry(change(Tone::Bad), "bad", "worse");
        entry(change(Tone::Plain), "range", "neither");
        legend
    }

    /// Draws a mark of the legend.
    fn key(&self, class: &str) -> String {
        match class {
            "mid" => "<line class=\"mid\" x1=\"11\" x2=\"11\" y1=\"1\" y2=\"15\"/>".to_owned(),
            "band" => "<line class=\"band\" x1=\"7\" x2=\"15\" y1=\"8\" y2=\"8\"/>".to_owned(),
            "range" => "<line class=\"range\" x1=\"2\" x2=\"20\" y1=\"8\" y2=\"8\"/>".to_owned(),
            dot => format!("<circle class=\"{dot}\" cx=\"11\" cy=\"8\" r=\"4\"/>"),
        }
    }

    /// Returns true if names stand above their rows, since one is too long for a column.
    fn stacked(&self) -> bool {
        let names = self.panels.iter().flat_map(|panel| &panel.rows).map(|row| &row.name);
        names.map(|name| name.chars().count()).max().unwrap_or(0) > 26
    }

    fn axis(&self, panel: &Panel) -> Axis {
        let values = panel.rows.iter().flat_map(|row| &row.marks).flat_map(|mark| match *mark {
            Mark::Range(a, b) | Mark::Band(a, b) | Mark::Change(a, b, _) => [a, b],
            Mark::Dot(a) | Mark::Quantile(a) | Mark::Middle(a) => [a, a],
        });
        match self.scale {
            PanelScale::Fitting => Axis::around(values),
            PanelScale::Ratio => Axis::of_ratios(values),
        }
    }

    /// Draws the marks of a row as SVG.
    fn marks(&self, axis: &Axis, row: &StripRow) -> String {
        let mut out = String::new();
        let line = |class: &str, from: f64, to: f64| {
            let (from, to) = (axis.at(from), axis.at(to));
            format!("<line class=\"{class}\" x1=\"{from}%\" x2=\"{to}%\" y1=\"50%\" y2=\"50%\"/>")
        };
        let upright = |class: &str, at: f64, y: [u32; 2]| {
            let at = axis.at(at);
            let [top, bottom] = y;
            format!(
                "<line class=\"{class}\" x1=\"{at}%\" x2=\"{at}%\" y1=\"{top}%\" y2=\"{bottom}%\"/>"
            )
        };
        let dot = |class: &str, at: f64| {
            format!("<circle class=\"{class}\" cx=\"{}%\" cy=\"50%\" r=\"3.5\"/>", axis.at(at))
        };
        if self.scale == PanelScale::Ratio {
            out += &upright("ref", 1.0, [0, 100]);
        }
        for mark in &row.marks {
            let drawn = match *mark {
                Mark::Range(from, to) => line("range", from, to),
                Mark::Band(from, to) => line("band", from, to),
                Mark::Dot(at) | Mark::Quantile(at) => dot("dot", at),
                Mark::Middle(at) => upright("mid", at, [12, 88]),
                Mark::Change(from, to, tone) => {
                    let (lines, dots) = match tone {
                        Tone::Good => ("range good", "good"),
                        Tone::Bad => ("range bad", "bad"),
                        Tone::Warning | Tone::Plain | Tone::Note => ("range", "dot"),
                    };
                    line(lines, from, to) + &dot(dots, to)
                }
            };
            write!(out, "{drawn}").expect("writing to a string does not fail");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_a_dot() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        let row = StripRow::of_spread("<a>", &spread).unwrap();
        assert_eq!(row.text, "2.00 (1.00 to 3.00)");
        let panel = Panel { name: "walk".to_owned(), rows: vec![row] };
        let (unit, scale) = ("ns".to_owned(), PanelScale::Fitting);
        let html = Strips { unit, scale, panels: vec![panel] }.to_string();
        assert_eq!(html.matches("r=\"3.5\"").count(), 3, "{html}");
        assert!(!html.contains("<a>"), "{html}");
        assert!(StripRow::of_spread("one", &Spread::of(vec![1.0]).unwrap()).is_none());
    }
}
