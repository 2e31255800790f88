//! Bars: one number each, in panels.

use askama::Template;

use super::axis::Scale;

/// A drawing of bars on one scale, in panels.
#[derive(Clone, Debug, Template)]
#[template(path = "bars.html", whitespace = "minimize")]
pub struct Bars {
    pub lengths: Scale,
    /// The panels, one for each group.
    pub panels: Vec<BarPanel>,
}

/// A group of bars with a common subject.
#[derive(Clone, Debug)]
pub struct BarPanel {
    /// The common subject of the bars; may be empty.
    pub name: String,
    pub bars: Vec<Bar>,
}

/// One bar of a panel, with its value.
#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    pub value: f64,
    /// The value as people read it.
    pub text: String,
}

impl Bars {
    /// Returns the length of `bar` in percent of the longest.
    fn share(&self, bar: &Bar) -> f64 {
        let value = bar.value;
        let values = || self.panels.iter().flat_map(|panel| &panel.bars).map(|bar| bar.value);
        let longest = values().fold(f64::MIN_POSITIVE, f64::max);
        let share = match self.lengths {
            Scale::Linear => value / longest,
            Scale::Logarithmic => {
                let positive = values().filter(|value| *value > 0.0);
                let origin = positive.fold(longest, f64::min) / 2.0;
                (value.max(origin) / origin).ln() / (longest / origin).ln()
            }
        };
        (1000.0 * share.clamp(0.0, 1.0)).round() / 10.0
    }
}
