//! The rules. Each is a function from a [`Tree`] to findings, with a test that shows it can fail.

mod decisions;
mod dependencies;
mod docs;
mod extremes;
mod folders;
mod functions;
mod links;
mod machine_paths;
mod maps;
mod modules;
mod prose_figures;
mod sources;
mod text;
mod unpublished;
mod unsafety;

use std::path::Path;

pub(crate) use self::links::without_code;
pub(crate) use self::sources::uncited;
pub(crate) use self::text::WIDEST;

use crate::finding::Finding;
use crate::tree::Tree;

/// The rules that need nothing but the files.
const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    crate::campaign::check,
    crate::mutants::check,
    crate::results::check,
    decisions::check,
    docs::check,
    extremes::check,
    folders::check,
    functions::check,
    links::check,
    machine_paths::check,
    maps::check,
    modules::check,
    prose_figures::check,
    sources::check,
    text::check,
    unpublished::check,
    unsafety::check,
];

/// Returns the findings of every rule, by file and line.
pub(crate) fn check_all(root: &Path, tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let mut findings = dependencies::check(tree, &dependencies::packages(root)?);
    findings.extend(RULES.iter().flat_map(|rule| rule(tree)));
    findings.sort();
    Ok(findings)
}
