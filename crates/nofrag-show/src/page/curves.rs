//! Quantities in their course, drawn by uPlot in the reader's browser.

use askama::Template;
use serde::Serialize;

use super::table::html;
use crate::{Table, cells, plain};

/// Curves over one quantity, mostly time.
#[derive(Clone, Debug, Template)]
#[template(path = "curves.html", whitespace = "minimize")]
pub struct Curves {
    title: String,
    /// The quantity on the horizontal axis, with its unit.
    across: String,
    /// The quantity on the vertical axis, with its unit.
    up: String,
    line: Line,
    curves: Vec<Curve>,
}

/// The lines that join points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Straight,
    /// By steps: a value holds until the next one.
    Steps,
}

/// One curve: its name and its points, from left to right.
#[derive(Clone, Debug)]
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// The most points of a curve that a screen shows.
const MOST_POINTS: usize = 400;

/// The data for the script.
#[derive(Serialize)]
struct Data<'a> {
    across: &'a str,
    up: &'a str,
    steps: bool,
    x: Vec<f64>,
    curves: Vec<DataCurve<'a>>,
}

#[derive(Serialize)]
struct DataCurve<'a> {
    name: &'a str,
    y: Vec<Option<f64>>,
}

impl Curves {
    /// Returns curves under a title, with the names of the axes.
    pub fn new(title: &str, axes: [&str; 2], line: Line, curves: Vec<Curve>) -> Curves {
        let [across, up] = axes.map(str::to_owned);
        let thin = |curve: Curve| Curve { points: thinned(curve.points), ..curve };
        let curves = curves.into_iter().map(thin).collect();
        Curves { title: title.to_owned(), across, up, line, curves }
    }

    /// Returns the data as JSON that is safe in a `script` element. All curves share their places across; a curve
    /// without a point at one has `null` there.
    fn data(&self) -> String {
        let mut x: Vec<f64> =
            self.curves.iter().flat_map(|curve| &curve.points).map(|p| p.0).collect();
        x.sort_by(f64::total_cmp);
        x.dedup();
        let curve = |curve: &'_ Curve| -> Vec<Option<f64>> {
            let mut points = curve.points.iter().peekable();
            let value = |at: &f64| {
                let mut found = None;
                while let Some((_, y)) = points.next_if(|(x, _)| x <= at) {
                    found = Some(rounded(*y));
                }
                found
            };
            x.iter().map(value).collect()
        };
        let curves =
            self.curves.iter().map(|it| DataCurve { name: &it.name, y: curve(it) }).collect();
        let data = Data {
            across: &self.across,
            up: &self.up,
            steps: self.line == Line::Steps,
            x: x.iter().copied().map(rounded).collect(),
            curves,
        };
        let text = serde_json::to_string(&data).expect("names and finite numbers are JSON");
        // A text that looks like the end of the element would end it.
        text.replace('<', "\\u003c")
    }

    /// Describes the chart for readers who do not see it.
    fn in_words(&self) -> String {
        let names: Vec<&str> = self.curves.iter().map(|curve| curve.name.as_str()).collect();
        format!(
            "{}: {} over {}; curves: {}. Arrow keys read values, Home and End go to the ends.",
            self.title,
            self.up,
            self.across,
            names.join(", ")
        )
    }

    /// Returns the first, least, middle, most and last value of each curve.
    fn numbers(&self) -> String {
        let row = |curve: &Curve| {
            let values = || curve.points.iter().map(|(_, y)| *y);
            let mut sorted: Vec<f64> = values().collect();
            sorted.sort_by(f64::total_cmp);
            let cells = [
                values().next(),
                sorted.first().copied(),
                sorted.get(sorted.len() / 2).copied(),
                sorted.last().copied(),
                values().next_back(),
            ];
            let cells = cells.map(|value| value.map(plain).into());
            [cells![&curve.name], cells.to_vec()].concat()
        };
        let header = ["curve", "first", "least", "middle", "most", "last"];
        let rows = self.curves.iter().map(row).collect();
        Table::of(&self.title, "", 1, header, rows).map_or_else(String::new, |it| html(&it))
    }
}

/// Returns at most [`MOST_POINTS`] points: of each group of neighbours the lowest and the highest, so that no peak is
/// lost.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let sound: Vec<(f64, f64)> =
        points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    if sound.len() <= MOST_POINTS {
        return sound;
    }
    let group = sound.len().div_ceil(MOST_POINTS / 2);
    let extremes = |group: &[(f64, f64)]| {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut pair: Vec<(f64, f64)> =
            [group.iter().min_by(by_height), group.iter().max_by(by_height)]
                .into_iter()
                .flatten()
                .copied()
                .collect();
        pair.sort_by(|a, b| a.0.total_cmp(&b.0));
        pair.dedup();
        pair
    };
    sound.chunks(group).flat_map(extremes).collect()
}

/// Rounds to five significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().expect("a number in this notation is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, points: &[(f64, f64)]) -> Curve {
        Curve { name: name.to_owned(), points: points.to_vec() }
    }

    fn data(curves: Vec<Curve>) -> serde_json::Value {
        let curves = Curves::new("free", ["seconds", "MiB"], Line::Straight, curves);
        serde_json::from_str(&curves.data()).unwrap()
    }

    #[test]
    fn curves_share_their_places() {
        let data = data(vec![curve("a", &[(0.0, 1.0), (2.0, 3.0)]), curve("b", &[(1.0, 5.0)])]);
        assert_eq!(data["x"], serde_json::json!([0.0, 1.0, 2.0]));
        assert_eq!(data["curves"][0]["y"], serde_json::json!([1.0, null, 3.0]));
        assert_eq!(data["curves"][1]["y"], serde_json::json!([null, 5.0, null]));
    }

    #[test]
    fn a_peak_survives_thinning() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), 1.0)).collect();
        points[7_777].1 = 50.0;
        points[3_333].1 = -4.0;
        let thin = thinned(points);
        assert!(thin.len() <= MOST_POINTS + 2, "{}", thin.len());
        assert!(thin.contains(&(7_777.0, 50.0)) && thin.contains(&(3_333.0, -4.0)));
        assert!(thin.is_sorted_by(|a, b| a.0 < b.0), "places ascend");
    }

    #[test]
    fn a_name_cannot_end_the_element() {
        let curves = vec![curve("</script><script>alert(1)", &[(0.0, 1.0)])];
        let curves = Curves::new("t", ["x", "y"], Line::Straight, curves);
        assert!(!curves.data().contains('<'), "{}", curves.data());
        assert!(!curves.to_string().contains("<script>alert"));
    }
}
