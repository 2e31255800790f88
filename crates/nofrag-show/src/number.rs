//! Numbers as people read them.

use crate::Spread;

/// A median with half its range in percent.
#[must_use]
pub fn median_and_range(time: &Spread) -> String {
    if time.samples.len() < 2 {
        return number(time.median);
    }
    match 50.0 * time.relative_width() {
        percent if percent < 99.5 => format!("{} ±{percent:.0}%", number(time.median)),
        _ => format!("{} ±>99%", number(time.median)),
    }
}

/// A number as people read it: three digits that matter, thousands apart.
#[must_use]
pub fn number(value: f64) -> String {
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

/// A whole number as such, another one by its three digits that matter.
#[must_use]
pub fn plain(value: f64) -> String {
    if value.fract() == 0.0 { count(value) } else { number(value) }
}

/// A whole number with its thousands apart.
#[must_use]
pub fn count(value: f64) -> String {
    thousands(value.round() as i64)
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0 { format!("-{out}") } else { out }
}

/// A ratio with its times sign: three digits that matter.
#[must_use]
pub fn ratio(value: f64) -> String {
    format!("{}x", number(value))
}

/// A duration of so many seconds in the unit that suits it.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if seconds < 1e-6 {
        format!("{} ns", number(seconds * 1e9))
    } else if seconds < 1e-3 {
        format!("{} us", number(seconds * 1e6))
    } else if seconds < 1.0 {
        format!("{} ms", number(seconds * 1e3))
    } else {
        format!("{} s", number(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_part_thousands() {
        let shown = [0.0, 0.123, 1.0, 45.67, 132.4, 137_644.0, -1_234.0].map(number);
        assert_eq!(shown, ["0", "0.12", "1.00", "45.7", "132", "137,644", "-1,234"]);
    }

    #[test]
    fn durations_take_the_unit_that_suits() {
        let shown = [132e-9, 16.6e-6, 1.5e-3, 56.8].map(duration);
        assert_eq!(shown, ["132 ns", "16.6 us", "1.50 ms", "56.8 s"]);
    }
}
