//! `nofrag schema`: the JSON Schema of each output in JSON.
//!
//! The schemas are files in `schemas`, made of the types that are written (their feature `schema` of the libraries) and
//! kept, so that no release has to make them. A test of this module says when a type and its file differ.

#[cfg(test)]
mod types;

use anyhow::{Result, bail};
use nofrag_show::Schema;

use crate::output;
use crate::{
    Status, compare, explain, export, host, preflight, record, replay, run, sweep, top, trace,
    workload,
};

const AFTER_HELP: &str = "\
Without NAME it lists all: name, version, and the command that prints such an object with --json.
Schemas are open: a new field does not raise the version, so ignore what you do not know.

Examples:
  nofrag schema
  nofrag schema nofrag.host > nofrag.host.json
  nofrag schema nofrag.host | jq '.properties | keys'

Exit status:
  0  printed
  2  bad use: there is no such schema";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The name of a schema, such as nofrag.host: what `schema` says in the object
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// A schema that a command's output has.
struct Published {
    schema: Schema,
    command: &'static str,
    /// The file.
    text: &'static str,
}

/// Returns the schema whose file has this name.
macro_rules! published {
    ($file:literal, $schema:expr, $command:literal) => {
        Published {
            schema: $schema,
            command: $command,
            text: include_str!(concat!("../schemas/", $file, ".json")),
        }
    };
}

/// All schemas, in the order of the help text.
const ALL: &[Published] = &[
    published!("nofrag.run", run::SCHEMA, "nofrag run"),
    published!("nofrag.host", host::machine::SCHEMA, "nofrag host"),
    published!("nofrag.host.pages", host::pages::SCHEMA, "nofrag host pages"),
    published!("nofrag.host.capture", host::capture::SCHEMA, "nofrag host capture"),
    published!("nofrag.host.vmalloc", host::vmalloc::SCHEMA, "nofrag host vmalloc"),
    published!("nofrag.host.maps", host::maps::SCHEMA, "nofrag host maps"),
    published!("nofrag.host.maps-ranking", host::maps::RANKING, "nofrag host maps --all"),
    published!("nofrag.preflight", preflight::SCHEMA, "nofrag preflight"),
    published!("nofrag.record", record::SCHEMA, "nofrag record"),
    published!("nofrag.explain", explain::SCHEMA, "nofrag explain"),
    published!("nofrag.replay", replay::SCHEMA, "nofrag replay"),
    published!("nofrag.sweep", sweep::SCHEMA, "nofrag sweep"),
    published!("nofrag.sweep.merge", sweep::MERGE_SCHEMA, "nofrag sweep merge"),
    published!("nofrag.compare", compare::SCHEMA, "nofrag compare"),
    published!("nofrag.top", top::SCHEMA, "nofrag top --once"),
    published!("nofrag.export", export::SCHEMA, "nofrag export --once"),
    published!("nofrag.workload.thpfioscale", workload::SCHEMA, "nofrag workload thpfioscale"),
    published!(
        "nofrag.workload.thpfioscale-plan",
        workload::PLAN_SCHEMA,
        "nofrag workload thpfioscale --dry-run"
    ),
    published!("nofrag.trace.info", trace::info::SCHEMA, "nofrag trace info"),
    published!("nofrag.trace.convert", trace::convert::SCHEMA, "nofrag trace convert"),
];

/// Prints the schema that `args` names, or the list.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    match &args.name {
        None => output::print(&listing())?,
        Some(name) => output::print(find(name)?.text)?,
    }
    Ok(Status::Done)
}

/// Returns a line for each schema.
fn listing() -> String {
    let line = |Published { schema: Schema { name, version }, command, .. }: &Published| {
        format!("{name:<33} {version}  {command} --json\n")
    };
    ALL.iter().map(line).collect()
}

fn find(name: &str) -> Result<&'static Published> {
    if let Some(found) = ALL.iter().find(|published| published.schema.name == name) {
        return Ok(found);
    }
    let known: Vec<&str> = ALL.iter().map(|published| published.schema.name).collect();
    bail!("there is no schema {name:?}; there are {}", known.join(", "))
}
