//! The plan of `plan.toml`: command lines, keys that are left out, and keys that have another name now.

use anyhow::{Context, ensure};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::Figures;
use super::said::TEXT;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The file that `RECORDING` stands for in command lines.
    pub(super) recording: String,
    /// A text of JSON with more characters is a sentence: it is compared where people see it.
    pub(super) longest_word: usize,
    /// Ends of names that are units.
    pub(super) units: Vec<String>,
    /// Fields that tell the objects of an array apart: the first of these sets that does names them in keys.
    pub(super) identity: Vec<Vec<String>>,
    /// Pattern of the keys of verdicts.
    #[serde(with = "pattern")]
    verdicts: Regex,
    pub(super) group: Vec<Group>,
    #[serde(default)]
    leave_out: Vec<LeftOut>,
    #[serde(default)]
    mask: Vec<Mask>,
    #[serde(default)]
    renamed: Vec<Renamed>,
}

/// Command lines of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) forms: Vec<Form>,
    pub(super) lines: Vec<String>,
    /// Keep the JSON under this name in target/same-figures as well, for lines that read it.
    pub(super) keep: Option<String>,
}

/// Part that is taken of a line's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Form {
    /// The figures of its JSON.
    Json,
    /// The text that people see.
    Text,
    /// The words of its page for browsers.
    Report,
    /// Length and sum of an output that is too long to keep.
    Digest,
}

/// Keys that say nothing of the program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    #[serde(with = "pattern")]
    keys: Regex,
    #[expect(dead_code, reason = "for readers")]
    why: String,
}

/// Parts of texts that say nothing of the program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mask {
    /// Pattern of the keys of texts.
    #[serde(with = "pattern")]
    of: Regex,
    #[serde(with = "pattern")]
    what: Regex,
    /// Text that stands there instead.
    with: String,
    #[expect(dead_code, reason = "for readers")]
    why: String,
}

/// A key of the old side and its name on the new one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Renamed {
    #[serde(with = "pattern")]
    old: Regex,
    new: String,
}

mod pattern {
    use regex::Regex;
    use serde::{Deserialize, Deserializer, de::Error};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Regex, D::Error> {
        Regex::new(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Plan {
    pub(super) fn read() -> anyhow::Result<Plan> {
        toml::from_str(include_str!("plan.toml")).context("plan.toml")
    }

    /// Returns the unit that a name ends in, or none.
    pub(super) fn unit_of(&self, name: &str) -> String {
        let last = name.rsplit(['_', '.', ' ']).next().unwrap_or(name);
        self.units.iter().find(|unit| *unit == last).cloned().unwrap_or_default()
    }

    pub(super) fn is_verdict(&self, key: &str) -> bool {
        self.verdicts.is_match(key)
    }

    /// Returns the figures without those that two runs of one program need not agree in.
    pub(super) fn without_chance(&self, mut figures: Figures) -> Figures {
        figures.retain(|key, _| !self.leave_out.iter().any(|rule| rule.keys.is_match(key)));
        for (key, (_, value)) in figures.iter_mut().filter(|(_, (unit, _))| unit == TEXT) {
            for mask in self.mask.iter().filter(|mask| mask.of.is_match(key)) {
                let text = value.as_str().unwrap_or_default();
                *value = Value::from(mask.what.replace_all(text, &mask.with));
            }
        }
        figures
    }

    /// Returns the figures under the names of today.
    pub(super) fn renamed(&self, figures: Figures) -> anyhow::Result<Figures> {
        let mut out = Figures::new();
        for (mut key, figure) in figures {
            for Renamed { old, new } in &self.renamed {
                key = old.replace_all(&key, new).into_owned();
            }
            ensure!(!out.contains_key(&key), "two keys are {key} now");
            out.insert(key, figure);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAN: &str = r#"
        recording = "a"
        longest_word = 9
        units = ["bytes"]
        identity = []
        verdicts = 'holds$'
        group = []
        leave_out = [{ keys = 'time', why = "chance" }]
        mask = [{ of = 'run: text', what = '\d+ s', with = "~", why = "chance" }]
        renamed = [{ old = '_bytes$', new = "" }, { old = '^host: ', new = "machine: " }]
    "#;

    fn check(figures: &[(&str, &str, Value)], expected: &[(&str, Value)]) {
        let plan: Plan = toml::from_str(PLAN).unwrap();
        let figure = |(key, unit, value): &(&str, &str, Value)| {
            ((*key).to_owned(), ((*unit).to_owned(), value.clone()))
        };
        let found = plan.renamed(plan.without_chance(figures.iter().map(figure).collect()));
        let found = found.unwrap().into_iter().map(|(key, (_, value))| (key, value));
        let expected = expected.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
        assert!(found.eq(expected));
    }

    #[test]
    fn chance_is_left_out() {
        let texts = ["2 s", "~"].map(|text| json!(format!("{text} for 3 rounds")));
        let [before, after] = texts;
        check(
            &[("run: text", TEXT, before.clone()), ("run: time", "s", json!(2))],
            &[("run: text", after)],
        );
        check(&[("host: text", TEXT, before.clone())], &[("machine: text", before)]);
    }

    #[test]
    fn keys_have_the_names_of_today_and_none_is_lost() {
        let figure = ("host: free_bytes", "bytes", json!(1));
        check(std::slice::from_ref(&figure), &[("machine: free", json!(1))]);
        let plan: Plan = toml::from_str(PLAN).unwrap();
        let both = ["host: free_bytes", "machine: free"]
            .map(|key| (key.to_owned(), (String::new(), json!(1))));
        assert!(plan.renamed(both.into()).is_err());
    }

    #[test]
    fn the_file_is_sound() {
        let plan = Plan::read().unwrap();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(root.join(&plan.recording).is_file());
        assert_eq!(plan.unit_of("nofrag host: free_bytes"), "bytes");
        assert!(plan.is_verdict("nofrag run: oracles[a].holds"));
        for line in plan.group.iter().flat_map(|group| &group.lines) {
            let files = line.split(' ').filter(|word| word.starts_with("data/"));
            files.for_each(|file| assert!(root.join(file).exists(), "{file}"));
        }
    }
}
