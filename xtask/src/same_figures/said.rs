//! The output of command lines, as figures.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, ensure};
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use super::Figures;
use super::plan::{Form, Group, Plan};

/// The unit of a text, which is no figure.
pub(super) const TEXT: &str = "text";

/// Folder for the files that the lines write; the same everywhere, since the lines may say its name.
const FOLDER: &str = "target/same-figures";

/// Returns the figures of all lines of the plan.
pub(super) fn all(root: &Path, program: &Path, plan: &Plan) -> anyhow::Result<Figures> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let clock = folder.join("clock.so");
    let source = root.join("xtask/src/same_figures/clock.c");
    let built =
        Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&clock, &source]).status();
    ensure!(built.context("cc")?.success(), "the clock cannot be built");
    let teller = Teller { root, program, clock: &clock, plan };
    let mut figures = Figures::new();
    let mut lines =
        plan.group.iter().flat_map(|group| group.lines.iter().map(move |line| (group, line)));
    let told = lines.try_for_each(|(group, line)| {
        let begin = Instant::now();
        teller.tell(group, line, &mut figures).with_context(|| line.clone())?;
        eprintln!("{:6.1} s  {line}", begin.elapsed().as_secs_f64());
        Ok(())
    });
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    told.map(|()| figures)
}

struct Teller<'a> {
    root: &'a Path,
    program: &'a Path,
    clock: &'a Path,
    plan: &'a Plan,
}

impl Teller<'_> {
    fn tell(&self, group: &Group, line: &str, out: &mut Figures) -> anyhow::Result<()> {
        let has = |form| group.forms.contains(&form);
        let page = format!("{FOLDER}/page.html");
        let report = ["--report".to_owned(), page.clone()];
        let mut report = if has(Form::Report) { &report[..] } else { &[] };
        if has(Form::Json) {
            let output = self.run(line, &[&["--json".to_owned()], report].concat())?;
            report = &[];
            if let Some(name) = &group.keep {
                fs::write(self.root.join(FOLDER).join(name), &output.stdout)?;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            let value =
                serde_json::from_slice(&output.stdout).with_context(|| said.into_owned())?;
            out.insert(format!("{line}: exit"), (String::new(), json!(output.status.code())));
            Flattening { plan: self.plan, out }.add(&format!("{line}: "), &value);
        }
        if has(Form::Text) || has(Form::Digest) {
            let output = self.run(line, report)?;
            let text = String::from_utf8(output.stdout)?;
            out.insert(format!("{line}: exit"), (String::new(), json!(output.status.code())));
            if has(Form::Digest) {
                out.extend(digest(line, &text));
            } else {
                out.insert(format!("{line}: text"), (TEXT.to_owned(), json!(text)));
            }
        }
        if has(Form::Report) {
            let words = words(&fs::read_to_string(self.root.join(page))?);
            out.insert(format!("{line}: report"), (TEXT.to_owned(), json!(words)));
        }
        Ok(())
    }

    /// Runs a line on one processor, where threads take turns, and by a clock that says the same each time.
    fn run(&self, line: &str, more: &[String]) -> anyhow::Result<Output> {
        let line = line.replace("RECORDING", &self.plan.recording);
        let mut words = line.split(' ');
        let program = match words.next() {
            Some("nofrag") => self.program.to_owned(),
            name => self.program.with_file_name(name.unwrap_or_default()),
        };
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "0"]).arg(program).args(words).args(more);
        command.current_dir(self.root).env_remove("COLUMNS").env("LD_PRELOAD", self.clock);
        let output = command.output().context("taskset")?;
        let said = String::from_utf8_lossy(&output.stderr);
        // 0 and 1 are answers.
        ensure!(matches!(output.status.code(), Some(0 | 1)), "{}: {said}", output.status);
        Ok(output)
    }
}

/// Returns length and sum (FNV-1a) of a text.
fn digest(line: &str, text: &str) -> Figures {
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let figures = [("lines", json!(text.lines().count())), ("fnv1a", json!(format!("{sum:016x}")))];
    figures.map(|(name, value)| (format!("{line}: {name}"), (String::new(), value))).into()
}

/// Returns the text of a page, a line for each piece, and the places of what is drawn, which are percentages in tags.
fn words(html: &str) -> String {
    let [code, tag, place] = ["(?s)<(script|style)>.*?</(script|style)>", "<[^>]*>", "[0-9.]+%"]
        .map(|pattern| Regex::new(pattern).expect("a valid pattern"));
    let text = code.replace_all(html, "");
    let text = tag.replace_all(&text, |tag: &Captures| {
        let places: Vec<&str> = place.find_iter(&tag[0]).map(|place| place.as_str()).collect();
        format!("\n{}\n", places.join(" "))
    });
    let pieces = text.lines().map(str::trim).filter(|piece| !piece.is_empty());
    pieces.map(|piece| format!("{piece}\n")).collect()
}

/// Takes a value of JSON apart.
struct Flattening<'a> {
    plan: &'a Plan,
    out: &'a mut Figures,
}

impl Flattening<'_> {
    /// Adds every number, truth value, word and `null` below `at`: a figure each, as are an array of nothing else and
    /// what has a `value` and a `unit`.
    fn add(&mut self, at: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                let unit = fields.get("unit").and_then(Value::as_str);
                let quantity = unit.zip(fields.get("value"));
                if let Some((unit, value)) = quantity {
                    self.put(at, unit.to_owned(), value);
                }
                let is_said = |name: &str| quantity.is_some() && ["value", "unit"].contains(&name);
                for (name, value) in fields.iter().filter(|(name, _)| !is_said(name)) {
                    let dot = if at.ends_with(' ') { "" } else { "." };
                    self.add(&format!("{at}{dot}{name}"), value);
                }
            }
            Value::Array(values) if values.iter().any(|it| it.is_object() || it.is_array()) => {
                self.add_elements(at, values);
            }
            Value::Array(values) => {
                let words = values.iter().filter(|it| !self.is_sentence(it));
                self.put(at, self.plan.unit_of(at), &words.cloned().collect());
            }
            value if self.is_sentence(value) => {}
            value => self.put(at, self.plan.unit_of(at), value),
        }
    }

    fn is_sentence(&self, value: &Value) -> bool {
        value.as_str().is_some_and(|text| text.chars().count() > self.plan.longest_word)
    }

    fn put(&mut self, at: &str, unit: String, value: &Value) {
        let twice = self.out.insert(at.to_owned(), (unit, value.clone()));
        assert!(twice.is_none(), "the key {at} is given once");
    }

    /// Adds elements by the fields that tell them apart; without such, what stands at the same place in all of them is
    /// one figure.
    fn add_elements(&mut self, at: &str, values: &[Value]) {
        let names =
            self.plan.identity.iter().find_map(|fields| Some((fields, names(values, fields)?)));
        if let Some((fields, names)) = names {
            for (value, name) in values.iter().zip(names) {
                let mut rest = value.clone();
                if let Some(rest) = rest.as_object_mut() {
                    rest.retain(|field, _| !fields.contains(field));
                }
                self.add(&format!("{at}[{name}]"), &rest);
            }
            return;
        }
        let mut columns: BTreeMap<String, (String, Vec<Value>)> = BTreeMap::new();
        for value in values {
            let mut element = Figures::new();
            Flattening { plan: self.plan, out: &mut element }.add(&format!("{at}[]"), value);
            for (key, (unit, value)) in element {
                columns.entry(key).or_insert((unit, Vec::new())).1.push(value);
            }
        }
        columns.into_iter().for_each(|(key, (unit, values))| self.put(&key, unit, &values.into()));
    }
}

/// Returns the text of the fields for each of the values, if all have them and no two are the same.
fn names(values: &[Value], fields: &[String]) -> Option<Vec<String>> {
    let name = |value: &Value| {
        let words = fields.iter().map(|field| word(value.as_object()?, field));
        words.collect::<Option<Vec<String>>>().map(|words| words.join(", "))
    };
    let names = values.iter().map(name).collect::<Option<Vec<String>>>()?;
    let distinct: BTreeSet<&String> = names.iter().collect();
    (distinct.len() == names.len()).then_some(names)
}

/// Returns a field as a part of a name.
fn word(object: &Map<String, Value>, field: &str) -> Option<String> {
    match object.get(field)? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Number(_) | Value::Object(_)) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_figures(value: &Value, expected: &[(&str, &str, Value)]) {
        let mut out = Figures::new();
        Flattening { plan: &Plan::read().unwrap(), out: &mut out }.add("run: ", value);
        let found: Vec<_> = out
            .iter()
            .map(|(key, (unit, value))| (key.as_str(), unit.as_str(), value.clone()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn figures_have_paths_and_units() {
        let value = json!({ "host": { "free_bytes": 7, "known": true, "release": null }, "why": "x".repeat(100) });
        check_figures(
            &value,
            &[
                ("run: host.free_bytes", "bytes", json!(7)),
                ("run: host.known", "", json!(true)),
                ("run: host.release", "", json!(null)),
            ],
        );
        let value =
            json!({ "host": { "free": { "value": 7, "unit": "bytes", "samples": [8, 9] } } });
        check_figures(
            &value,
            &[("run: host.free", "bytes", json!(7)), ("run: host.free.samples", "", json!([8, 9]))],
        );
    }

    #[test]
    fn objects_of_arrays_go_by_what_tells_them_apart() {
        let zones = json!([{ "name": "DMA", "node": 0, "free": 1 }, { "name": "DMA", "node": 1, "free": 2 }]);
        let mut out = Figures::new();
        Flattening { plan: &Plan::read().unwrap(), out: &mut out }.add("host: zones", &zones);
        assert_eq!(out["host: zones[1, DMA].free"].1, json!(2));
        let twins = json!([{ "name": "a", "free": 1 }, { "name": "a", "free": 2 }]);
        Flattening { plan: &Plan::read().unwrap(), out: &mut out }.add("host: twins", &twins);
        assert_eq!(out["host: twins[].free"].1, json!([1, 2]));
    }

    #[test]
    fn of_a_page_words_and_places_are_left() {
        let page =
            "<p class='a'>one <b style='left:9.5%;top:1%'>two</b></p>\n<script>three<b></script>";
        assert_eq!(words(page), "one\n9.5% 1%\ntwo\n");
    }
}
