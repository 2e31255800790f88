//! Numbers as people read them.

use std::fmt;

use nofrag_host::finding::grouped;
pub use nofrag_host::finding::{bytes_text, duration_text};

/// A number with its unit, which becomes text only when it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// The amount, in the base of the unit.
    pub value: f64,
    pub unit: Unit,
}

/// The unit of a number, which decides its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Any amount: three significant digits, thousands apart.
    Number,
    /// Whole things, with their thousands apart.
    Count,
    /// A whole number as such, another one with three significant digits.
    Plain,
    /// A ratio, with a times sign.
    Times,
    /// Time, in the unit that suits it.
    Seconds,
    /// Memory, in the unit that suits it.
    Bytes,
    /// A number with this many digits behind the point.
    Digits(usize),
    /// Hundredths, with this many digits behind the point and a percent sign.
    Percent(usize),
}

impl Unit {
    /// Returns true if a number of this unit is shown without the unit and in its base.
    pub(crate) const fn is_plain(self) -> bool {
        match self {
            Unit::Number | Unit::Count | Unit::Plain | Unit::Digits(_) => true,
            Unit::Times | Unit::Seconds | Unit::Bytes | Unit::Percent(_) => false,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quantity { value, unit } = *self;
        let text = match unit {
            Unit::Number => digits(value),
            Unit::Count => thousands(value.round() as i64),
            Unit::Plain if value.fract() == 0.0 => thousands(value.round() as i64),
            Unit::Plain => digits(value),
            Unit::Times => digits(value) + "x",
            Unit::Seconds => seconds(value),
            Unit::Bytes => bytes_text(value as u64),
            Unit::Digits(digits) => format!("{value:.digits$}"),
            Unit::Percent(digits) => format!("{value:.digits$} %"),
        };
        f.pad(&text)
    }
}

/// Returns a number as people read it: three significant digits, thousands apart.
#[must_use]
pub const fn number(value: f64) -> Quantity {
    Quantity { value, unit: Unit::Number }
}

/// Returns a whole number with its thousands apart.
#[must_use]
pub const fn count(value: f64) -> Quantity {
    Quantity { value, unit: Unit::Count }
}

/// Returns a whole number as such, another one with three significant digits.
#[must_use]
pub const fn plain(value: f64) -> Quantity {
    Quantity { value, unit: Unit::Plain }
}

/// Returns a ratio with its times sign: three significant digits.
#[must_use]
pub const fn ratio(value: f64) -> Quantity {
    Quantity { value, unit: Unit::Times }
}

/// Returns a duration of `seconds` seconds in the unit that suits it.
#[must_use]
pub const fn duration(seconds: f64) -> Quantity {
    Quantity { value: seconds, unit: Unit::Seconds }
}

/// Returns `bytes` bytes in the unit that suits them.
#[must_use]
pub const fn bytes(bytes: u64) -> Quantity {
    Quantity { value: bytes as f64, unit: Unit::Bytes }
}

/// Returns a number with `digits` digits behind its point.
#[must_use]
pub const fn fixed(value: f64, digits: usize) -> Quantity {
    Quantity { value, unit: Unit::Digits(digits) }
}

/// Returns a percentage with `digits` digits behind its point, and its sign.
#[must_use]
pub const fn percent(value: f64, digits: usize) -> Quantity {
    Quantity { value, unit: Unit::Percent(digits) }
}

/// Returns a count with its noun.
#[must_use]
pub fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn digits(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if magnitude < 0.01 {
        format!("{value:.4}")
    } else if magnitude < 10.0 {
        format!("{value:.2}")
    } else if magnitude < 100.0 {
        format!("{value:.1}")
    } else {
        thousands(value.round() as i64)
    }
}

fn thousands(value: i64) -> String {
    let digits = grouped(value.unsigned_abs());
    if value < 0 { format!("-{digits}") } else { digits }
}

fn seconds(value: f64) -> String {
    if value < 1e-6 {
        format!("{} ns", digits(value * 1e9))
    } else if value < 1e-3 {
        format!("{} us", digits(value * 1e6))
    } else if value < 1.0 {
        format!("{} ms", digits(value * 1e3))
    } else {
        format!("{} s", digits(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_part_thousands() {
        let shown = [0.0, 0.123, 1.0, 45.67, 132.4, 137_644.0, -1_234.0]
            .map(|value| number(value).to_string());
        assert_eq!(shown, ["0", "0.12", "1.00", "45.7", "132", "137,644", "-1,234"]);
    }

    #[test]
    fn durations_take_the_unit_that_suits() {
        let shown = [132e-9, 16.6e-6, 1.5e-3, 56.8].map(|seconds| duration(seconds).to_string());
        assert_eq!(shown, ["132 ns", "16.6 us", "1.50 ms", "56.8 s"]);
    }
}
