//! A scale from values to percent of a width.

use crate::plain;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

/// The relation of distances on paper to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios. Bars begin at half of the smallest value.
    Logarithmic,
}

/// The ratio of the largest to the smallest value from which on a linear scale presses the small ones together.
const WIDE: f64 = 12.0;

impl Axis {
    /// Returns the scale that suits these values; values that are not finite do not count.
    pub(crate) fn around(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let low = values.clone().filter(|value| value.is_finite()).fold(f64::INFINITY, f64::min);
        let high = values.filter(|value| value.is_finite()).fold(f64::NEG_INFINITY, f64::max);
        match low > 0.0 && high / low >= WIDE {
            true => Axis { scale: Scale::Logarithmic, low: low / 1.2, high: high * 1.2 },
            false => Axis::linear(low, high),
        }
    }

    /// Returns a logarithmic scale for ratios, with 1 on it.
    pub(crate) fn of_ratios(values: impl Iterator<Item = f64>) -> Axis {
        let sound = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = sound.fold((0.8, 1.25), |(low, high): (f64, f64), value| {
            (low.min(value / 1.1), high.max(value * 1.1))
        });
        Axis { scale: Scale::Logarithmic, low, high }
    }

    /// Returns a linear scale from zero on where that shows the differences, else from a little below the lowest value.
    fn linear(low: f64, high: f64) -> Axis {
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let width = match high - low {
            0.0 => high.abs().max(1.0),
            width => width,
        };
        let begins_at_zero = low >= 0.0 && low < 2.0 * width;
        let low = if begins_at_zero { 0.0 } else { low - 0.08 * width };
        Axis { scale: Scale::Linear, low, high: high + 0.08 * width }
    }

    /// Returns the place of `value` in percent of the width; a value outside is placed at the end.
    pub(crate) fn at(self, value: f64) -> f64 {
        let Axis { scale, low, high } = self;
        let share = match scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Logarithmic if value > 0.0 => (value / low).ln() / (high / low).ln(),
            Scale::Logarithmic => 0.0,
        };
        hundredth(100.0 * share.clamp(0.0, 1.0))
    }

    /// Returns two to six round values on the scale: the place of each in percent of the width, and its text.
    pub(crate) fn ticks(self) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Logarithmic => self.logarithmic_ticks(),
        };
        values.into_iter().map(|value| (self.at(value), short(value))).collect()
    }

    fn linear_ticks(self) -> Vec<f64> {
        const ABOUT: f64 = 4.0;
        let rough = (self.high - self.low) / ABOUT;
        let decade = 10_f64.powf(rough.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * decade >= rough);
        let step = round.unwrap_or(10.0) * decade;
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        (first..=last).map(|index| index as f64 * step).collect()
    }

    fn logarithmic_ticks(self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let heads: &[f64] = match decades {
            d if d < 1.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            d if d < 3.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let every = (decades / 5.0).ceil().max(1.0) as i32;
        let exponents = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let mut ticks = Vec::new();
        for exponent in exponents.filter(|exponent| exponent.rem_euclid(every) == 0) {
            let values = heads.iter().map(|head| head * 10_f64.powi(exponent));
            ticks.extend(values.filter(|value| (self.low..=self.high).contains(value)));
        }
        ticks
    }
}

/// Rounds to two decimals, more than a screen shows.
fn hundredth(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

/// Writes a round value: thousands and millions by their letters, so that ticks do not run into each other.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match value.abs() {
        size if size >= 10.0 || value.fract() == 0.0 => plain(value.round()).to_string(),
        _ => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    };
    text + unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_ticks(values: &[f64], expected: &[&str]) {
        let ticks = Axis::around(values.iter().copied()).ticks();
        let texts: Vec<&str> = ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, expected);
        assert!(ticks.iter().all(|(at, _)| (0.0..=100.0).contains(at)), "{ticks:?}");
    }

    #[test]
    fn ticks_are_round() {
        check_ticks(&[0.0, 100.0], &["0", "50", "100"]);
        check_ticks(&[1000.0, 1004.0], &["1,000", "1,002", "1,004"]);
        check_ticks(&[1.0, 5e6], &["1", "100", "10k", "1M"]);
        check_ticks(&[3.0], &["0", "1", "2", "3"]);
        check_ticks(&[], &["0", "0.5", "1"]);
    }

    #[test]
    fn values_stand_between_the_ends() {
        let axis = Axis::around([10.0, 1000.0].into_iter());
        assert!(axis.at(10.0) > 0.0 && axis.at(100.0) == 50.0 && axis.at(1000.0) < 100.0);
        assert_eq!((axis.at(0.0), axis.at(1e9)), (0.0, 100.0));
    }

    #[test]
    fn one_is_on_a_scale_of_ratios() {
        let axis = Axis::of_ratios([3.0, 300.0].into_iter());
        assert!(axis.at(1.0) > 0.0 && axis.at(1.0) < axis.at(3.0));
        assert!(axis.ticks().iter().any(|(_, text)| text == "1"), "{:?}", axis.ticks());
    }
}
