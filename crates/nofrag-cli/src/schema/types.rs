//! The schemas as the types have them, held against the files.
//!
//! After a wanted change: `NOFRAG_SCHEMAS=write cargo test -p nofrag-cli schema`, and read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use nofrag_host::machine::Machine;
use nofrag_host::machine::capture::Captured;
use nofrag_host::machine::pages::Pages;
use nofrag_host::machine::preflight::Preflight;
use nofrag_host::process::ProcessReport;
use nofrag_host::process::ranking::Ranking;
use nofrag_host::record::Recorded;
use nofrag_host::vmalloc::VmallocReport;
use nofrag_host::watch::page::Page;
use nofrag_lab::compare::Comparison;
use nofrag_lab::explain::Explanation;
use nofrag_lab::replay::ReplayReport;
use nofrag_lab::sweep::{Merged, Swept};
use nofrag_lab::workload::{ThpFioOutcome, WorkloadPlan};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use serde_json::{Value, json};

use super::{ALL, Published};
use crate::{export, run, trace};

/// Returns the schema of what is written of `T` under this name.
fn schema_of<T: JsonSchema>(nofrag_show::Schema { name, version }: nofrag_show::Schema) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(plain_description).transform(&mut schema);
    RecursiveTransform(absent_is_not_null).transform(&mut schema);
    let mut schema = Value::from(schema);
    schema["$id"] = json!(format!("urn:nofrag:{name}:{version}"));
    schema["title"] = json!(name);
    let properties = &mut schema["properties"];
    properties["schema"] = json!({ "const": name, "description": "What this object is." });
    let says = "Raised when a field is removed or changes its meaning, not when one is added.";
    properties["version"] = json!({ "const": version, "description": says });
    let Value::Array(required) = &mut schema["required"] else { panic!("{name} has no fields") };
    for always in ["version", "schema"] {
        required.retain(|field| field != always);
        required.insert(0, json!(always));
    }
    schema
}

/// Makes a description of a doc comment: without rustdoc's links and the sources of rules, and with JSON's word for
/// `None`.
fn plain_description(schema: &mut schemars::Schema) {
    let Some(Value::String(text)) = schema.get_mut("description") else { return };
    let told = text.split("Source: docs/sources").next().unwrap().trim();
    let mut plain = told.replace('\n', " ").replace("`None`", "`null`").replace("[`", "`");
    while let Some((before, target)) = plain.split_once("`](") {
        let (_, after) = target.split_once(')').expect("a link ends");
        plain = format!("{before}`{after}");
    }
    *text = plain.replace("`]", "`");
}

/// Takes `null` from fields that are absent instead, and the values that readers of old files take for absent ones.
fn absent_is_not_null(schema: &mut schemars::Schema) {
    let required = schema.get("required").cloned().unwrap_or_else(|| json!([]));
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for (name, field) in properties {
        let Value::Object(field) = field else { continue };
        field.remove("default");
        if required.as_array().is_some_and(|required| required.contains(&json!(name))) {
            continue;
        }
        match (field.remove("type"), field.remove("anyOf")) {
            (Some(Value::Array(types)), None) => {
                let kept = types.into_iter().find(|each| each != "null");
                field.insert("type".to_owned(), kept.expect("a type beside null"));
            }
            (None, Some(Value::Array(forms))) => {
                let kept = forms.into_iter().find(|each| each["type"] != "null");
                let Some(Value::Object(kept)) = kept else { panic!("{name} is always null") };
                field.extend(kept);
            }
            (one, None) => field.extend(one.map(|one| ("type".to_owned(), one))),
            forms => panic!("{name} has {forms:?}"),
        }
    }
}

/// Returns the schema of an output by its name.
fn made(published: &Published) -> Value {
    let schema = published.schema;
    match schema.name {
        "nofrag.run" => schema_of::<run::Document<'_>>(schema),
        "nofrag.host" => schema_of::<Machine>(schema),
        "nofrag.host.pages" => schema_of::<Pages>(schema),
        "nofrag.host.capture" => schema_of::<Captured>(schema),
        "nofrag.host.vmalloc" => schema_of::<VmallocReport>(schema),
        "nofrag.host.maps" => schema_of::<ProcessReport>(schema),
        "nofrag.host.maps-ranking" => schema_of::<Ranking>(schema),
        "nofrag.preflight" => schema_of::<Preflight>(schema),
        "nofrag.record" => schema_of::<Recorded>(schema),
        "nofrag.explain" => schema_of::<Explanation>(schema),
        "nofrag.replay" => schema_of::<ReplayReport>(schema),
        "nofrag.sweep" => schema_of::<Swept>(schema),
        "nofrag.sweep.merge" => schema_of::<Merged>(schema),
        "nofrag.compare" => schema_of::<Comparison>(schema),
        "nofrag.top" => schema_of::<Page>(schema),
        "nofrag.export" => schema_of::<export::Document<'_>>(schema),
        "nofrag.workload.thpfioscale" => schema_of::<ThpFioOutcome>(schema),
        "nofrag.workload.thpfioscale-plan" => schema_of::<WorkloadPlan>(schema),
        "nofrag.trace.info" => schema_of::<trace::info::Document<'_>>(schema),
        "nofrag.trace.convert" => schema_of::<trace::convert::Document>(schema),
        name => panic!("nobody makes the schema {name}"),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas")
}

#[test]
fn schema_files_are_those_of_the_types() {
    let write = std::env::var_os("NOFRAG_SCHEMAS").is_some_and(|word| word == "write");
    for published in ALL {
        let name = published.schema.name;
        let made = serde_json::to_string_pretty(&made(published)).unwrap() + "\n";
        let path = folder().join(format!("{name}.json"));
        if write {
            fs::write(&path, &made).unwrap();
        } else {
            let kept = fs::read_to_string(&path).unwrap();
            let differs = "NOFRAG_SCHEMAS=write cargo test -p nofrag-cli schema writes it anew";
            assert!(made == kept, "{name}.json is not what its type is: {differs}");
            assert_eq!(published.text, kept, "{name} has the file of another");
        }
    }
    let files = fs::read_dir(folder()).unwrap().count();
    assert_eq!(files, ALL.len(), "files of schemas that nobody prints");
}
