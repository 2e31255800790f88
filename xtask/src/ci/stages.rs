//! The list of checks, and what each needs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use super::succeeds;
use crate::fuzz;

/// Browsers that the tests of reports look for.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

const STAGES: &str = include_str!("stages.toml");

/// Returns all checks, in their order.
pub(super) fn stages() -> anyhow::Result<Vec<Stage>> {
    #[derive(Deserialize)]
    struct List {
        stage: Vec<Stage>,
    }
    let list: List = toml::from_str(STAGES).context("ci/stages.toml")?;
    Ok(list.stage)
}

/// One check: a command line, and what it needs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stage {
    pub(super) name: String,
    pub(super) when: When,
    pub(super) lane: Lane,
    /// Words between spaces; no shell reads them.
    pub(super) run: String,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) needs: Vec<Need>,
    pub(super) minutes: u64,
    /// Folders and files that decide the outcome, beside the dependencies; everything by default.
    #[serde(default = "everything")]
    pub(super) reads: Vec<String>,
    /// True if tests below them decide, too.
    #[serde(default = "yes")]
    pub(super) tests: bool,
}

fn yes() -> bool {
    true
}

fn everything() -> Vec<String> {
    vec![".".to_owned()]
}

impl Stage {
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.minutes * 60)
    }

    /// Returns the reason why the check cannot be run here, if there is one.
    pub(super) fn missing(&self) -> Option<String> {
        self.needs.iter().find_map(Need::missing)
    }
}

/// Time at which a check is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum When {
    /// Before a change lands.
    Merge,
    /// In a lane that has hours.
    Night,
}

/// Checks of one lane run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Lane {
    /// Checks that build into `target` for this machine.
    Host,
    /// Checks that build for other targets.
    Others,
    /// Checks that build in folders of their own.
    Any,
}

/// A tool without which a check cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Need {
    /// A program on the search path.
    Program(String),
    /// The standard library of a target.
    Target(String),
    /// A component of the nightly toolchain.
    Component(String),
    /// A C compiler that links 32-bit programs.
    Link32,
    /// A toolchain of rustup's, `nightly` or a version.
    Toolchain(String),
    /// The nightly toolchain and cargo-fuzz.
    Fuzzer,
    /// A browser that opens HTML reports.
    Browser,
}

impl TryFrom<String> for Need {
    type Error = String;

    fn try_from(text: String) -> Result<Need, String> {
        Ok(match text.split_once(' ') {
            Some(("program", name)) => Need::Program(name.to_owned()),
            Some(("target", name)) => Need::Target(name.to_owned()),
            Some(("toolchain", name)) => Need::Toolchain(name.to_owned()),
            Some(("component", name)) => Need::Component(name.to_owned()),
            None if text == "link32" => Need::Link32,
            None if text == "fuzzer" => Need::Fuzzer,
            None if text == "browser" => Need::Browser,
            _ => return Err(format!("{text:?} is nothing that a check can need")),
        })
    }
}

impl Need {
    fn missing(&self) -> Option<String> {
        match self {
            Need::Program(name) => (!has_program(name)).then(|| format!("{name} is not installed")),
            Need::Target(name) => {
                (!has_target(name)).then(|| format!("`rustup target add {name}` was not done"))
            }
            Need::Component(name) => (!has_component(name))
                .then(|| format!("`rustup +nightly component add {name}` was not done")),
            Need::Link32 => (!links_32_bit())
                .then(|| "the C compiler links no 32-bit programs (gcc-multilib)".to_owned()),
            Need::Toolchain(name) => (!has_toolchain(name))
                .then(|| format!("`rustup toolchain install {name}` was not done")),
            Need::Fuzzer => fuzz::missing(),
            Need::Browser => (!BROWSERS.iter().any(|name| has_program(name)))
                .then(|| format!("none of {} is installed", BROWSERS.join(", "))),
        }
    }
}

pub(super) fn has_program(name: &str) -> bool {
    succeeds(Command::new(name).arg("--version"))
}

fn has_toolchain(name: &str) -> bool {
    let mut cargo = Command::new("cargo");
    // The question must not install the toolchain.
    succeeds(cargo.args([&format!("+{name}"), "--version"]).env("RUSTUP_AUTO_INSTALL", "0"))
}

fn has_component(name: &str) -> bool {
    let listed = Command::new("rustup")
        .args(["+nightly", "component", "list", "--installed"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    listed.is_ok_and(|text| text.lines().any(|line| line.starts_with(name)))
}

fn has_target(name: &str) -> bool {
    // A target's standard library lies where the compiler looks for it, also without rustup.
    let found = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", name])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    found.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).is_dir())
}

fn links_32_bit() -> bool {
    let program = std::env::temp_dir().join(format!("nofrag-link32-{}", std::process::id()));
    let linked = Command::new("cc")
        .args(["-m32", "-x", "c", "-", "-o"])
        .arg(&program)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .and_then(|mut compiler| {
            let mut source = compiler.stdin.take().expect("the input was asked for");
            std::io::Write::write_all(&mut source, b"int main(void) { return 0; }")?;
            drop(source);
            compiler.wait()
        })
        .is_ok_and(|status| status.success());
    // It may never have been made.
    let _ = std::fs::remove_file(program);
    linked
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_can_be_read_and_names_each_check_once() {
        let stages = stages().unwrap();
        let names: BTreeSet<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names.len(), stages.len());
        assert!(
            stages.iter().any(|stage| stage.run == "cargo test --workspace"),
            "README's command"
        );
        for when in [When::Merge, When::Night] {
            assert!(stages.iter().any(|stage| stage.when == when));
        }
    }

    #[test]
    fn a_need_that_is_not_met_has_a_reason() {
        let missing = |text: &str| Need::try_from(text.to_owned()).unwrap().missing();
        assert!(missing("program no-such-program-here").is_some());
        assert!(missing("program sh").is_none() || missing("program cargo").is_none());
        assert!(missing("target no-such-target").is_some());
        assert!(missing("component no-such-component").is_some());
        assert!(missing("toolchain 1.0.0-none").is_some());
        assert!(Need::try_from("a pony".to_owned()).is_err());
    }
}
