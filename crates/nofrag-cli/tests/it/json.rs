//! `docs/json.md` against the commands' output: each schema has its section, each field its row and its type.
//!
//! [`check_documented`] is called on every output in JSON that a test looks at.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Map, Value};

use crate::support::{commands, nofrag};

/// The form of a value, as its row in a table of docs/json.md gives it.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Null,
    Number,
    Boolean,
    Text,
    OneOf(Vec<String>),
    Object,
    Array(Box<Shape>),
    Map(Box<Shape>),
    /// The form that another section has.
    As(String),
    /// Any form, described in words.
    Anything,
}

impl Shape {
    fn parse(text: &str) -> Shape {
        let text = text.trim();
        let inner = |lead: &str| text.strip_prefix(lead).map(|rest| Box::new(Shape::parse(rest)));
        if let Some(inner) = inner("array of ").or_else(|| inner("arrays of ")) {
            return Shape::Array(inner);
        }
        if let Some(inner) = inner("map of ") {
            return Shape::Map(inner);
        }
        if let Some(words) = text.strip_prefix("string: ") {
            let word = |word: &str| word.trim().trim_matches('`').to_owned();
            return Shape::OneOf(words.split(',').map(word).collect());
        }
        if let Some((_, anchor)) = text.split_once("](#") {
            return Shape::As(anchor.trim_end_matches(')').to_owned());
        }
        match text.trim_end_matches('s') {
            "null" => Shape::Null,
            "number" => Shape::Number,
            "boolean" => Shape::Boolean,
            "string" => Shape::Text,
            "object" => Shape::Object,
            "array" => Shape::Array(Box::new(Shape::Anything)),
            _ => panic!("docs/json.md has the type {text:?}, which nobody understands"),
        }
    }
}

/// A row of a table.
struct Field {
    shapes: Vec<Shape>,
    may_be_absent: bool,
}

impl Field {
    fn parse(text: &str) -> Field {
        let (text, may_be_absent) = match text.strip_suffix(", or absent") {
            Some(text) => (text, true),
            None => (text, false),
        };
        Field { shapes: text.split(" or ").map(Shape::parse).collect(), may_be_absent }
    }
}

/// The fields of a section by their paths.
type Section = BTreeMap<String, Field>;

struct Documentation {
    text: String,
    /// Sections by the names that links use.
    sections: BTreeMap<String, Section>,
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "- ".contains(*c));
    kept.collect::<String>().replace(' ', "-").to_lowercase()
}

/// Splits a row of a table into its cells.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(row.split(" | ").map(str::trim).collect())
}

impl Documentation {
    fn read() -> Documentation {
        let text = fs::read_to_string(page()).unwrap();
        let mut sections: BTreeMap<String, Section> = BTreeMap::new();
        let mut current = String::new();
        let mut in_fields = false;
        for line in text.lines() {
            if line.starts_with('#') {
                current = anchor(line.trim_start_matches('#').trim());
            } else if let Some(cells) = cells(line) {
                match cells[..] {
                    ["field", ..] => in_fields = true,
                    [field, shapes, _] if in_fields => {
                        let path = field.trim_matches('`').to_owned();
                        let section = sections.entry(current.clone()).or_default();
                        let twice = section.insert(path, Field::parse(shapes));
                        assert!(twice.is_none(), "{current} has {field} twice");
                    }
                    _ => {}
                }
            } else if !line.starts_with('|') {
                in_fields = false;
            }
        }
        Documentation { text, sections }
    }

    /// Iterates over the rows of the table that has this header.
    fn table<'a>(&'a self, header: &str) -> impl Iterator<Item = Vec<&'a str>> {
        let lines = self.text.lines().skip_while(move |line| !line.starts_with(header)).skip(2);
        lines.map_while(cells)
    }

    /// Returns commands with their schemas and versions.
    fn schemas(&self) -> Vec<(&str, &str, u64)> {
        self.table("| command | schema |")
            .map(|cells| {
                let schema = cells[1].split(']').next().unwrap().trim_start_matches('[');
                (cells[0].trim_matches('`'), schema, cells[2].parse().unwrap())
            })
            .collect()
    }

    fn check_object(&self, object: &Map<String, Value>, section: &str, prefix: &str) {
        let fields = self.sections.get(section).unwrap_or_else(|| panic!("no section {section}"));
        for (name, value) in object {
            let path = format!("{prefix}{name}");
            let Some(field) = fields.get(&path) else {
                panic!("docs/json.md, {section}: `{path}` has no row; it was {value}");
            };
            let fits = field.shapes.iter().any(|shape| fits(shape, value));
            assert!(fits, "docs/json.md, {section}: `{path}` is {:?}, not {value}", field.shapes);
            field.shapes.iter().for_each(|shape| self.descend(shape, value, section, &path));
        }
        for (path, field) in fields.iter().filter(|(_, field)| !field.may_be_absent) {
            let Some(name) = path.strip_prefix(prefix) else { continue };
            let is_here = !name.contains(['.', '[']);
            assert!(
                !is_here || object.contains_key(name),
                "docs/json.md, {section}: `{path}`, {:?}, did not come",
                field.shapes
            );
        }
    }

    /// Checks the contents of a value.
    fn descend(&self, shape: &Shape, value: &Value, section: &str, path: &str) {
        match (shape, value) {
            (Shape::Object, Value::Object(object)) => {
                self.check_object(object, section, &format!("{path}."));
            }
            (Shape::As(other), Value::Object(object)) => self.check_object(object, other, ""),
            (Shape::Array(inner), Value::Array(values)) => {
                let path = format!("{path}[]");
                values.iter().for_each(|value| self.descend(inner, value, section, &path));
            }
            (Shape::Map(inner), Value::Object(values)) => {
                let path = format!("{path}.*");
                values.values().for_each(|value| self.descend(inner, value, section, &path));
            }
            _ => {}
        }
    }
}

/// Returns true if the value, and each member if it is a list, has this shape.
fn fits(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Null, Value::Null)
        | (Shape::Number, Value::Number(_))
        | (Shape::Boolean, Value::Bool(_))
        | (Shape::Text, Value::String(_))
        | (Shape::Object | Shape::As(_), Value::Object(_))
        | (Shape::Anything, _) => true,
        (Shape::OneOf(words), Value::String(word)) => words.contains(word),
        (Shape::Array(inner), Value::Array(values)) => {
            values.iter().all(|value| fits(inner, value))
        }
        (Shape::Map(inner), Value::Object(values)) => {
            values.values().all(|value| fits(inner, value))
        }
        _ => false,
    }
}

/// Returns the object on standard output, which is alone there and has the form of its section.
pub(crate) fn check_documented(output: &Output) -> Value {
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| {
        let err = String::from_utf8_lossy(&output.stderr);
        panic!("no JSON alone on standard output: {why}: {err}")
    });
    let begins = output.stdout.starts_with(b"{\n  \"schema\": ");
    assert!(begins, "what it is stands first: {}", String::from_utf8_lossy(&output.stdout));
    let documentation = Documentation::read();
    let Value::Object(mut object) = value.clone() else { panic!("{value} is no object") };
    let schema = object.remove("schema").unwrap();
    let version = object.remove("version").unwrap();
    let known = documentation.schemas().into_iter().find(|(_, name, _)| schema == *name);
    let Some((_, name, documented)) = known else { panic!("docs/json.md does not list {schema}") };
    assert_eq!(version, documented, "the version of {name}");
    documentation.check_object(&object, &anchor(name), "");
    value
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a path in the repository, as an argument.
fn at(path: &str) -> String {
    repository().join(path).display().to_string()
}

const RECORDING: &str = "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag";

#[test]
fn the_listed_schemas_are_those_of_the_commands() {
    let documentation = Documentation::read();
    let listed = documentation.schemas();
    for (command, help) in commands() {
        let printed = help.contains("--json");
        let here: Vec<&str> = listed
            .iter()
            .filter(|(name, ..)| *name == command)
            .map(|(_, schema, _)| *schema)
            .collect();
        assert_eq!(printed, !here.is_empty(), "docs/json.md and {command} --help differ");
        let named = |schema: &&&str| help.contains(**schema) || schema.ends_with("-plan");
        assert_eq!(
            here.iter().filter(named).count(),
            here.len(),
            "{command} --help names {here:?}"
        );
    }
    for (_, schema, _) in listed {
        assert!(documentation.sections.contains_key(&anchor(schema)), "no section {schema}");
    }
}

#[test]
fn every_link_leads_to_a_section() {
    let documentation = Documentation::read();
    let shapes = documentation.sections.values().flat_map(BTreeMap::values);
    for shape in shapes.flat_map(|field| &field.shapes) {
        let mut shape = shape;
        while let Shape::Array(inner) | Shape::Map(inner) = shape {
            shape = inner;
        }
        if let Shape::As(anchor) = shape {
            assert!(documentation.sections.contains_key(anchor), "no section {anchor}");
        }
    }
}

#[test]
fn scenarios() {
    let few = ["--loops", "20", "--repeat", "2", "--design", "nofrag", "--json"];
    for (scenario, mask) in [("vmap-areas-2019", "long_busy_hole"), ("vm-map-ram-2015", "w1,w2")] {
        check_documented(&nofrag(&[&["run", scenario, "--mask", mask], &few[..]].concat()));
    }
}

#[test]
fn hosts() {
    let vm = at("data/hosts/vm-6.18-x86_64");
    let rustc = at("data/hosts/rustc-6.18-x86_64");
    let end = at(&format!("{RECORDING}@end"));
    check_documented(&nofrag(&["host", "--root", &end, "--json"]));
    check_documented(&nofrag(&["host", "pages", "--root", &end, "--json"]));
    check_documented(&nofrag(&["host", "--json"]));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("captured").display().to_string();
    check_documented(&nofrag(&["host", "capture", &folder, "--json"]));
    check_documented(&nofrag(&["host", "vmalloc", "--root", &vm, "--json"]));
    check_documented(&nofrag(&["host", "maps", "--root", &rustc, "--json"]));
    check_documented(&nofrag(&["host", "maps", "self", "--every", "0.01", "--json"]));
    check_documented(&nofrag(&["host", "maps", "--all", "--json"]));
}

/// Checks the output about damaged and missing files, which has fields of its own.
#[test]
fn hosts_that_say_little() {
    let folder = tempfile::tempdir().unwrap();
    let proc = folder.path().join("proc");
    fs::create_dir_all(proc.join("7")).unwrap();
    let line = "0xffffb0ec40000000-0xffffb0ec40003000    8192 f+0x1/0x2 vmalloc";
    for text in [format!("{line}\nno area\n"), "0-0 8192 f+0x1/0x2 vmalloc\n".to_owned()] {
        fs::write(proc.join("vmallocinfo"), text).unwrap();
        let root = folder.path().to_str().unwrap();
        check_documented(&nofrag(&["host", "vmalloc", "--root", root, "--json"]));
    }
    fs::write(proc.join("7/maps"), "400000-401000 r-xp 00000000 00:00 0 /a\nno area\n").unwrap();
    let root = folder.path().to_str().unwrap();
    check_documented(&nofrag(&["host", "maps", "--root", root, "--json"]));
}

#[test]
fn explanations() {
    for name in ["order-4-kernel", "cgroup-limit", "vmap-arm32", "out-of-memory"] {
        check_documented(&nofrag(&["explain", &at(&format!("data/reports/{name}.txt")), "--json"]));
    }
    let end = at(&format!("{RECORDING}@end"));
    check_documented(&nofrag(&["explain", &end, "--json"]));
    check_documented(&nofrag(&["explain", &at(RECORDING), "--no-replay", "--json"]));
}

#[test]
fn replays() {
    let few = ["--policy", "linux-6.1", "--samples", "2", "--repeats", "1", "--json"];
    check_documented(&nofrag(&[&["replay"], &few[..]].concat()));
}

#[test]
fn comparisons() {
    let [start, end] = ["start", "end"].map(|moment| at(&format!("{RECORDING}@{moment}")));
    check_documented(&nofrag(&["compare", &start, &end, "--json"]));
}

#[test]
fn traces() {
    check_documented(&nofrag(&["trace", "info", &at(RECORDING), "--json"]));
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.nofrag");
    let copy = copy.to_str().unwrap();
    check_documented(&nofrag(&["trace", "convert", &at(RECORDING), copy, "--json"]));
}

#[test]
fn workloads_that_are_only_planned() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let output = nofrag(&["workload", "thpfioscale", "--dir", dir, "--dry-run", "--json"]);
    if String::from_utf8_lossy(&output.stderr).contains("kept in memory") {
        eprintln!("skipped: {dir} is kept in memory");
        return;
    }
    check_documented(&output);
}

#[test]
fn lines_of_events() {
    let output = nofrag(&["trace", "export", &at(RECORDING), "--to", "json-lines", "-"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines().take(1000) {
        let event: Value = serde_json::from_str(line).unwrap();
        for field in ["at", "cpu", "pid", "event"] {
            assert!(!event[field].is_null(), "no {field} in {line}");
        }
    }
}
