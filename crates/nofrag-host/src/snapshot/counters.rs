//! Files of a name and a value per line: `/proc/vmstat`, `/proc/meminfo` and the settings of `vm`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lines::{Malformed, numbered};

/// `/proc/vmstat`: counters by name, such as `compact_success`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Returns the counter of this name; `None` where the kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Returns the counter of this name, or the sum of those that have a zone's name behind it, which `_*` may stand
    /// for; `None` if there are none.
    #[must_use]
    pub fn total(&self, name: &str) -> Option<u64> {
        let name = name.strip_suffix("_*").unwrap_or(name);
        let of_zone =
            |full: &str| full.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
        let of_zones = self.iter().filter(|(full, _)| of_zone(full)).map(|(_, value)| value);
        self.get(name).or_else(|| of_zones.reduce(u64::saturating_add))
    }

    /// Returns all counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, &value)| (name.as_str(), value))
    }
}

/// Parses the text of `/proc/vmstat`; returns its counters, and the lines that could not be read.
#[must_use]
pub fn vmstat(text: &str) -> (Counters, Vec<Malformed>) {
    let mut counters = Counters::default();
    let mut malformed = Vec::new();
    for (line, text) in numbered(text) {
        let read = text
            .trim()
            .split_once(' ')
            .and_then(|(name, value)| Some((name, value.trim().parse().ok()?)));
        match read {
            Some((name, value)) => _ = counters.0.insert(name.to_owned(), value),
            None => malformed.push(Malformed { line, expected: "a name and a number" }),
        }
    }
    (counters, malformed)
}

/// The settings of `vm`, by their names below `/proc/sys/vm`.
///
/// The file of a snapshot has a line `NAME VALUE..` for each; the form of `sysctl -a`, `vm.NAME = VALUE..`, is read
/// too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Returns a setting as it is printed.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a setting that is one number; `None` where it is missing or not a number.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Returns a setting that is several numbers, such as `lowmem_reserve_ratio`; `None` where it is missing or has
    /// another word.
    #[must_use]
    pub fn list(&self, name: &str) -> Option<Vec<u64>> {
        self.text(name)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    }
}

/// Parses the settings of a snapshot; returns them, and the lines that could not be read.
#[must_use]
pub fn settings(text: &str) -> (Settings, Vec<Malformed>) {
    let mut settings = Settings::default();
    let mut malformed = Vec::new();
    for (line, text) in numbered(text) {
        let read = text.trim().split_once(|c: char| c.is_ascii_whitespace() || c == '=');
        match read {
            Some((name, value)) if !name.is_empty() => {
                let name = name.strip_prefix("vm.").unwrap_or(name);
                let value = value.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '=');
                settings.0.insert(name.to_owned(), value.trim().to_owned());
            }
            _ => malformed.push(Malformed { line, expected: "a name and a value" }),
        }
    }
    (settings, malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_by_name() {
        let (counters, malformed) = vmstat("nr_free_pages 39703\ncompact_stall 1\nx\ny -1\n");
        assert_eq!((counters.get("nr_free_pages"), counters.get("none")), (Some(39_703), None));
        assert_eq!(malformed.iter().map(|bad| bad.line).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(counters.iter().count(), 2);
    }

    #[test]
    fn settings_in_both_forms() {
        let text = "min_free_kbytes 34276\nlowmem_reserve_ratio 256\t256\t32\t0\t0\nvm.swappiness = 60\n=\n";
        let (settings, malformed) = settings(text);
        assert_eq!(
            (settings.get("min_free_kbytes"), settings.get("swappiness")),
            (Some(34_276), Some(60))
        );
        assert_eq!(settings.list("lowmem_reserve_ratio"), Some(vec![256, 256, 32, 0, 0]));
        assert_eq!((settings.get("lowmem_reserve_ratio"), malformed.len()), (None, 1));
    }
}
