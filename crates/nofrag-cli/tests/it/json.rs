//! The commands' output in JSON against the schemas that `nofrag schema` prints.
//!
//! [`check_documented`] is called on every output in JSON that a test looks at.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{check, commands, nofrag, repository};

/// Closes a schema: a field that it does not list becomes an error. Readers have to ignore such a field; here it is one
/// that nobody can look up.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.get("properties").is_some_and(Value::is_object) {
                fields.insert("unevaluatedProperties".to_owned(), json!(false));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}

/// Returns the schema of this name, as the command prints it.
fn schema(name: &str) -> Value {
    let printed = nofrag(&["schema", name]);
    check(&printed, 0, &[]);
    serde_json::from_slice(&printed.stdout).unwrap()
}

/// Returns the faults of `value` by the schema that it names: fields that are missing, not listed, or of another form.
fn objections(value: &Value) -> Vec<String> {
    let mut schema = schema(value["schema"].as_str().expect("it says what it is"));
    close(&mut schema);
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Returns the object on standard output, which is alone there and has the form of its schema.
pub(crate) fn check_documented(output: &Output) -> Value {
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| {
        let err = String::from_utf8_lossy(&output.stderr);
        panic!("no JSON alone on standard output: {why}: {err}")
    });
    let begins = output.stdout.starts_with(b"{\n  \"schema\": ");
    assert!(begins, "what it is stands first: {}", String::from_utf8_lossy(&output.stdout));
    let objections = objections(&value);
    assert!(objections.is_empty(), "{}: {objections:#?}", value["schema"]);
    value
}

/// Returns a path in the repository, as an argument.
fn at(path: &str) -> String {
    repository().join(path).display().to_string()
}

const RECORDING: &str = "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag";

/// Returns the cells of each row of the table in docs/json.md that has this header.
fn table(page: &str, header: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| !line.starts_with(header)).skip(2);
    let cells =
        |row: &str| row.split(" | ").map(|cell| cell.trim_matches('`').to_owned()).collect();
    rows.map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |")).map(cells).collect()
}

#[test]
fn the_listed_schemas_are_those_of_the_commands() {
    let page = fs::read_to_string(repository().join("docs/json.md")).unwrap();
    let listed = table(&page, "| command | schema |");
    let printed = nofrag(&["schema"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let printed: Vec<Vec<String>> = printed.lines().map(words).collect();
    assert_eq!(printed.len(), listed.len(), "docs/json.md and nofrag schema differ");
    for (line, row) in printed.iter().zip(&listed) {
        assert_eq!(line[..2], row[1..], "docs/json.md and nofrag schema differ");
        assert!(line[2..].join(" ").starts_with(&row[0]), "{} prints {}", row[0], line[0]);
        assert_eq!(schema(&line[0])["properties"]["version"]["const"].to_string(), line[1]);
    }
    for (command, help) in commands().iter().filter(|(command, _)| command != "nofrag schema") {
        let here: Vec<&str> =
            listed.iter().filter(|row| row[0] == *command).map(|row| row[1].as_str()).collect();
        let has_json = help.contains("--json");
        assert_eq!(has_json, !here.is_empty(), "docs/json.md and {command} --help differ");
        let named = |schema: &&str| help.contains(*schema) || schema.ends_with("-plan");
        assert!(here.iter().all(named), "{command} --help names {here:?}");
    }
}

#[test]
fn an_unknown_schema_names_the_known_ones() {
    check(
        &nofrag(&["schema", "nofrag.hosts"]),
        2,
        &["no schema \"nofrag.hosts\"", "nofrag.host, "],
    );
}

/// Whoever leaves a field out, adds one or gives it another form is told so.
#[test]
fn a_field_that_no_schema_lists_is_seen() {
    let vm = at("data/hosts/vm-6.18-x86_64");
    let report = check_documented(&nofrag(&["host", "vmalloc", "--root", &vm, "--json"]));
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut report = report.clone();
        change(&mut report);
        objections(&report).join("\n")
    };
    let added = changed(&|report| report["totals"]["more"] = json!(1));
    assert!(added.contains("'more'"), "{added}");
    let nested = changed(&|report| report["regions"][0]["bounds"]["more"] = json!(1));
    assert!(nested.contains("more") || nested.contains("bounds"), "{nested}");
    let missing = changed(&|report| {
        report["regions"][0].as_object_mut().unwrap().remove("start");
    });
    assert!(missing.contains("\"start\""), "{missing}");
    let other = changed(&|report| report["regions"][0]["start"] = json!(1));
    assert!(other.contains("/regions/0/start"), "{other}");
    let version = changed(&|report| report["version"] = json!(2));
    assert!(version.contains("/version"), "{version}");
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

/// Damaged and missing files have fields of their own.
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
