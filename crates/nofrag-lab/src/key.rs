//! Keys of figures: a quantity with its name in JSON and the unit in which it is shown.
//!
//! A figure is put into a row by its key and found by it again, for claims, tables and pictures alike. Keys are
//! constants of their scenario, in its `names.rs` or beside the one use that they have; from JSON comes a key with the
//! name alone, which is equal to the constant.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use nofrag_show::{Quantity, Unit};
use serde::{Deserialize, Serialize};

/// The quantity of a figure. Keys of the same name are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Key {
    name: Cow<'static, str>,
    unit: Unit,
    /// The base of the unit over that of the figure.
    scale: f64,
}

/// Figures of a row by key.
pub type Counts = BTreeMap<Key, Amount>;

/// A figure as it was measured: what is counted stays whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Whole(u64),
    Real(f64),
}

impl Key {
    /// A number of whole things.
    pub(crate) const fn count(name: &'static str) -> Key {
        Key { name: Cow::Borrowed(name), unit: Unit::Count, scale: 1.0 }
    }

    /// Any amount: a mean, a share, or one in the unit that the name says.
    pub(crate) const fn number(name: &'static str) -> Key {
        Key { name: Cow::Borrowed(name), unit: Unit::Number, scale: 1.0 }
    }

    /// An amount of memory in bytes.
    pub(crate) const fn bytes(name: &'static str) -> Key {
        Key { name: Cow::Borrowed(name), unit: Unit::Bytes, scale: 1.0 }
    }

    /// A time in a unit of so many seconds.
    pub(crate) const fn time(name: &'static str, seconds: f64) -> Key {
        Key { name: Cow::Borrowed(name), unit: Unit::Seconds, scale: seconds }
    }

    /// Returns the key whose name goes on with `more`.
    pub(crate) fn with(&self, more: impl fmt::Display) -> Key {
        Key { name: format!("{}{more}", self.name).into(), ..*self }
    }

    /// Returns the name, which JSON has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the key counts whole things, so that no figure of it is rounded.
    pub(crate) fn is_count(&self) -> bool {
        self.unit == Unit::Count
    }

    /// Returns an amount of this key as it is shown.
    pub(crate) fn shown(&self, value: f64) -> Quantity {
        Quantity { value: value * self.scale, unit: self.unit }
    }
}

impl From<String> for Key {
    fn from(name: String) -> Key {
        Key { name: name.into(), unit: Unit::Number, scale: 1.0 }
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.name.into_owned()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.name == other.name
    }
}

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.name.cmp(&other.name)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the figures of a row.
pub(crate) fn counts<A: Into<Amount>>(figures: impl IntoIterator<Item = (Key, A)>) -> Counts {
    figures.into_iter().map(|(key, amount)| (key, amount.into())).collect()
}

impl Amount {
    /// Returns the amount as a number that claims and tables take.
    #[must_use]
    pub const fn get(self) -> f64 {
        match self {
            Amount::Whole(count) => count as f64,
            Amount::Real(amount) => amount,
        }
    }
}

impl From<u64> for Amount {
    fn from(count: u64) -> Amount {
        Amount::Whole(count)
    }
}

impl From<usize> for Amount {
    fn from(count: usize) -> Amount {
        Amount::Whole(count as u64)
    }
}

impl From<f64> for Amount {
    fn from(amount: f64) -> Amount {
        Amount::Real(amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREAS: Key = Key::count("areas");
    const STALLED_MS: Key = Key::time("ms stalled", 1e-3);

    #[test]
    fn what_is_counted_stays_whole_and_is_found_by_its_key_again() {
        let counts = Counts::from([(AREAS, 4040_u64.into()), (STALLED_MS, 1.5.into())]);
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, r#"{"areas":4040,"ms stalled":1.5}"#);
        let read: Counts = serde_json::from_str(&text).unwrap();
        assert_eq!(read, counts);
        assert_eq!(read[&AREAS], Amount::Whole(4040));
        assert_eq!(read.get(&AREAS.with(" at end")), None);
    }

    #[test]
    fn a_figure_is_shown_in_the_unit_of_its_key() {
        let shown = [AREAS.shown(4040.0), STALLED_MS.shown(1.5), Key::bytes("held").shown(4096.0)];
        assert_eq!(shown.map(|it| it.to_string()), ["4,040", "1.50 ms", "4 KiB"]);
    }
}
