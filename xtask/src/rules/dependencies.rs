//! The table of the crates that each crate may depend on; it stands nowhere else.

use std::path::Path;

use anyhow::Context;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

use crate::finding::Finding;
use crate::tree::{Tree, numbered};

const RULE: &str = "dependencies";

/// Dependencies that one of our crates may have.
struct Row {
    krate: &'static str,
    /// Our crates that it may use.
    ours: &'static [&'static str],
    /// Crates of others that it may use outside its tests.
    others: Others,
}

enum Others {
    Any,
    /// Only these, and only as an optional or a conditional dependency.
    Conditional(&'static [&'static str]),
}

const TABLE: &[Row] = &[
    Row { krate: "nofrag", ours: &[], others: Others::Conditional(&["loom", "serde", "spin"]) },
    Row { krate: "nofrag-backing", ours: &["nofrag"], others: Others::Any },
    Row { krate: "nofrag-host", ours: &["nofrag"], others: Others::Any },
    Row { krate: "nofrag-show", ours: &["nofrag-host"], others: Others::Any },
    Row {
        krate: "nofrag-lab",
        ours: &["nofrag", "nofrag-backing", "nofrag-host", "nofrag-show"],
        others: Others::Any,
    },
    Row {
        krate: "nofrag-cli",
        ours: &["nofrag", "nofrag-backing", "nofrag-host", "nofrag-lab", "nofrag-show"],
        others: Others::Any,
    },
    Row {
        krate: "nofrag-bench",
        ours: &["nofrag", "nofrag-backing", "nofrag-lab", "nofrag-show"],
        others: Others::Any,
    },
    Row { krate: "nofrag-capi", ours: &["nofrag", "nofrag-backing"], others: Others::Any },
    Row {
        krate: "nofrag-python",
        ours: &["nofrag", "nofrag-host", "nofrag-lab", "nofrag-show"],
        others: Others::Any,
    },
    Row {
        krate: "nofrag-fuzz",
        ours: &["nofrag", "nofrag-backing", "nofrag-host"],
        others: Others::Any,
    },
    Row { krate: "xtask", ours: &[], others: Others::Any },
];

/// One of our crates, as cargo sees it.
#[derive(Debug)]
pub(crate) struct Package {
    name: String,
    /// Manifest, relative to the repository root.
    manifest: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    for_tests: bool,
    conditional: bool,
}

/// Returns the crates of the workspace, and those of the fuzz targets and of Python in workspaces of their own.
pub(crate) fn packages(root: &Path) -> anyhow::Result<Vec<Package>> {
    let mut packages = Vec::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml", "crates/nofrag-python/Cargo.toml"] {
        if root.join(manifest).exists() {
            let metadata = MetadataCommand::new()
                .manifest_path(root.join(manifest))
                .no_deps()
                .exec()
                .with_context(|| format!("cargo metadata of {manifest}"))?;
            packages.extend(packages_in(root, &metadata));
        }
    }
    Ok(packages)
}

fn packages_in(root: &Path, metadata: &Metadata) -> Vec<Package> {
    let relative = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let from_cargo = |package: &cargo_metadata::Package| Package {
        name: package.name.to_string(),
        manifest: relative(package.manifest_path.as_std_path()),
        dependencies: package
            .dependencies
            .iter()
            .map(|dependency| Dependency {
                name: dependency.name.clone(),
                for_tests: dependency.kind == DependencyKind::Development,
                conditional: dependency.optional || dependency.target.is_some(),
            })
            .collect(),
    };
    metadata.packages.iter().map(from_cargo).collect()
}

pub(crate) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let Some(row) = TABLE.iter().find(|row| row.krate == package.name) else {
            findings.push(Finding::new(
                RULE,
                &package.manifest,
                1,
                format!("the crate {} is not in the dependency table", package.name),
                "add it to the table in xtask/src/rules/dependencies.rs and to ARCHITECTURE.md",
            ));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some((wrong, remedy)) = objection(row, dependency) {
                let line = line_of(tree, &package.manifest, &dependency.name);
                findings.push(Finding::new(RULE, &package.manifest, line, wrong, remedy));
            }
        }
    }
    findings
}

/// Returns the objection to the dependency, and the remedy.
fn objection(row: &Row, dependency: &Dependency) -> Option<(String, &'static str)> {
    let Dependency { name, for_tests, conditional } = dependency;
    let is_ours = TABLE.iter().any(|row| row.krate == name);
    if is_ours {
        let allowed = row.ours.contains(&name.as_str()) || row.krate == name;
        return (!allowed).then(|| {
            (
                format!("{} may not depend on {name}", row.krate),
                "move what is needed to a crate that both may use",
            )
        });
    }
    match row.others {
        Others::Any => None,
        Others::Conditional(_) if *for_tests => None,
        Others::Conditional(allowed) => {
            let fine = *conditional && allowed.contains(&name.as_str());
            (!fine).then(|| {
                (
                    format!("{} may not depend on {name}, or only conditionally", row.krate),
                    "the core stands alone: write it, or put it into another crate",
                )
            })
        }
    }
}

/// Returns the line where the manifest names the dependency.
fn line_of(tree: &Tree, manifest: &str, dependency: &str) -> usize {
    let text = tree.text(manifest).unwrap_or("");
    let names = |line: &str| {
        let rest = line.trim_start().strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with([' ', '=', '.']))
    };
    numbered(text).find(|(_, line)| names(line)).map_or(1, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(name: &str, dependency: Dependency, expected: usize) {
        let package = Package {
            name: name.into(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: vec![dependency],
        };
        let findings = check(&Tree::default(), &[package]);
        assert_eq!(findings.len(), expected, "{findings:?}");
    }

    fn plain(name: &str) -> Dependency {
        Dependency { name: name.into(), for_tests: false, conditional: false }
    }

    #[test]
    fn our_crates_use_each_other_downwards_only() {
        check_count("nofrag-cli", plain("nofrag-lab"), 0);
        check_count("nofrag-lab", plain("nofrag-cli"), 1);
        check_count("nofrag", plain("nofrag-host"), 1);
        check_count("nofrag-bench", plain("nofrag-lab"), 0);
        check_count("nofrag-lab", plain("nofrag-bench"), 1);
        check_count("nofrag", Dependency { for_tests: true, ..plain("nofrag-lab") }, 1);
        check_count("unknown", plain("nofrag"), 1);
    }

    #[test]
    fn the_core_stands_alone() {
        check_count("nofrag", plain("libc"), 1);
        check_count("nofrag", plain("spin"), 1);
        check_count("nofrag", Dependency { conditional: true, ..plain("spin") }, 0);
        check_count("nofrag", Dependency { conditional: true, ..plain("libc") }, 1);
        check_count("nofrag", Dependency { for_tests: true, ..plain("proptest") }, 0);
        check_count("nofrag-host", plain("rustix"), 0);
    }

    #[test]
    fn the_line_of_a_dependency_is_found() {
        let text = "[dependencies]\nspinning = \"1\"\nspin = \"1\"\n";
        assert_eq!(line_of(&Tree::of(&[("Cargo.toml", text)]), "Cargo.toml", "spin"), 3);
    }
}
