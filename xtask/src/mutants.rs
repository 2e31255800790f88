//! Mutation testing: the files that decide are broken, one operator or body at a time, and their tests must notice.
//!
//! cargo-mutants lists the breaks. Each is made in a checkout of the commit under `target/mutants`, built, and tested
//! with the tests that judge its file. A line in `results/mutants/raw.jsonl` says what came of it and of which text of
//! the file it was, so slices go on where the last one ended, and a changed file begins anew. `summary.txt` beside the
//! lines has their sums and the survivors; `tidy` compares the two.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::campaign::{machine, record};
use crate::deb::{git, said};
use crate::finding::Finding;
use crate::tree::Tree;

const FOLDER: &str = "results/mutants";

/// Breaks to try, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// Time to go on, in minutes; a break that has begun is ended. With 0 the sums alone are written
    #[arg(long = "for", value_name = "MINUTES", default_value_t = 20)]
    minutes: u64,
    /// Only files with one of these in their paths
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    only: Vec<String>,
    /// Try those again that survived, before any others
    #[arg(long)]
    survivors: bool,
    /// Say how many breaks each file has, and try none
    #[arg(long)]
    list: bool,
}

/// Files that decide, with the tests that judge them.
struct Part {
    package: &'static str,
    /// Below the package's folder `src`; a folder stands for the files in it.
    files: &'static [&'static str],
    /// Parts of the names of its tests.
    tests: &'static [&'static str],
}

const PARTS: &[Part] = &[
    Part {
        package: "nofrag",
        files: &[
            "page/boost.rs",
            "page/steal.rs",
            "page/fallback.rs",
            "page/walk.rs",
            "page/watermark.rs",
            "page/slow_path.rs",
            "page/per_cpu.rs",
            "page/compaction",
        ],
        tests: &["page", "doc_2018"],
    },
    Part {
        package: "nofrag",
        files: &[
            "ranges/augmented_tree.rs",
            "ranges/cached_scan.rs",
            "ranges/red_black.rs",
            "ranges/wide",
        ],
        tests: &["ranges", "model", "bounded_fits", "doc_2019", "regressions", "vmap_oracles"],
    },
    Part {
        package: "nofrag",
        files: &["vmap/blocks/queues", "vmap/blocks/slots"],
        tests: &["vmap", "block", "doc_2015", "doc_2023"],
    },
    Part {
        package: "nofrag",
        files: &["mmap/placement"],
        tests: &["mmap", "placement", "doc_2005"],
    },
    Part {
        package: "nofrag-backing",
        files: &["arena/ground.rs", "arena/bins.rs"],
        tests: &["arena"],
    },
];

/// A break, as cargo-mutants lists it.
#[derive(Clone, Debug, Deserialize)]
struct Mutant {
    name: String,
    file: String,
    diff: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// A test failed.
    Caught,
    /// The tests did not end in time.
    Hung,
    /// The break does not compile.
    Unviable,
    Survived,
}

/// A break that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Tried {
    mutant: String,
    file: String,
    /// Number of breaks that the file has.
    of: usize,
    /// Git's name of the file's text.
    text: String,
    outcome: Outcome,
    seconds: u64,
    commit: String,
    machine: String,
}

/// Survivors that people have looked at, with the reason why each is no gap.
#[derive(Debug, Default, Deserialize)]
struct Reasons {
    #[serde(default)]
    reason: BTreeMap<String, String>,
}

/// Tries breaks until the time is over; true unless they cannot be tried.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let folder = root.join(FOLDER);
    let end = Instant::now() + Duration::from_secs(request.minutes.saturating_mul(60));
    if request.minutes > 0 || request.list {
        let bench = Bench::prepare(root)?;
        for part in PARTS {
            let mutants = bench.list(part, &request.only)?;
            let mut files = BTreeMap::<&str, usize>::new();
            for mutant in &mutants {
                *files.entry(&mutant.file).or_default() += 1;
            }
            if request.list {
                files.iter().for_each(|(file, count)| println!("{count:>5} {file}"));
                continue;
            }
            bench.judge(part, &mutants, &files, request, end, &folder)?;
        }
    }
    if request.list {
        return Ok(true);
    }
    let tried = record::read(&folder)?;
    let reasons = std::fs::read_to_string(folder.join("reasons.toml")).unwrap_or_default();
    std::fs::write(folder.join("summary.txt"), summary(&tried, &toml::from_str(&reasons)?))?;
    Ok(true)
}

/// A checkout of the commit in which files are broken.
struct Bench {
    tree: PathBuf,
    target: PathBuf,
    commit: String,
}

impl Bench {
    fn prepare(root: &Path) -> anyhow::Result<Bench> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        let home = target.join("mutants");
        let bench = Bench {
            tree: home.join("tree"),
            target: home.join("build"),
            commit: git(root, &["rev-parse", "--short=12", "HEAD"])?,
        };
        if !bench.tree.is_dir() {
            std::fs::create_dir_all(&home)?;
            let [from, to] = [root, &bench.tree].map(Path::to_string_lossy);
            git(root, &["clone", "--quiet", "--no-checkout", "--shared", &from, &to])?;
        }
        git(&bench.tree, &["checkout", "--quiet", "--force", "--detach", &bench.commit])?;
        Ok(bench)
    }

    fn list(&self, part: &Part, only: &[String]) -> anyhow::Result<Vec<Mutant>> {
        let mut list = Command::new("cargo");
        list.args(["mutants", "--list", "--json", "--package", part.package]);
        for file in part.files {
            let path = format!("crates/{}/src/{file}", part.package);
            let glob = if file.ends_with(".rs") { path } else { format!("{path}/**/*.rs") };
            list.args(["--file", &glob]);
        }
        let listed = said(list.current_dir(&self.tree))?;
        let mut mutants: Vec<Mutant> = serde_json::from_slice(&listed)?;
        mutants.retain(|mutant| {
            only.is_empty() || only.iter().any(|wanted| mutant.file.contains(wanted.as_str()))
        });
        Ok(mutants)
    }

    /// Tries what no earlier slice has tried of the same text.
    fn judge(
        &self,
        part: &Part,
        mutants: &[Mutant],
        files: &BTreeMap<&str, usize>,
        request: &Request,
        end: Instant,
        folder: &Path,
    ) -> anyhow::Result<()> {
        let known: Vec<Tried> = record::read(folder)?;
        let mut texts = BTreeMap::new();
        for file in files.keys() {
            texts.insert(*file, git(&self.tree, &["rev-parse", &format!("HEAD:{file}")])?);
        }
        let before = |mutant: &Mutant| {
            let same =
                |it: &&Tried| it.mutant == mutant.name && it.text == texts[mutant.file.as_str()];
            known.iter().rev().find(same).map(|it| it.outcome)
        };
        let due = mutants.iter().filter(|mutant| match before(mutant) {
            None => !request.survivors,
            Some(outcome) => request.survivors && outcome == Outcome::Survived,
        });
        let mut is_sound = false;
        for mutant in due {
            if Instant::now() >= end {
                break;
            }
            if !is_sound {
                let unbroken = self.outcome(part)?;
                ensure!(unbroken == Outcome::Survived, "unbroken, its tests end as {unbroken:?}");
                is_sound = true;
            }
            let begin = Instant::now();
            self.apply(mutant)?;
            let outcome = self.outcome(part);
            git(&self.tree, &["checkout", "--quiet", "--force", "--", &mutant.file])?;
            let tried = Tried {
                mutant: mutant.name.clone(),
                file: mutant.file.clone(),
                of: files[mutant.file.as_str()],
                text: texts[mutant.file.as_str()].clone(),
                outcome: outcome?,
                seconds: begin.elapsed().as_secs(),
                commit: self.commit.clone(),
                machine: machine()?,
            };
            println!("{:?} {} s {}", tried.outcome, tried.seconds, tried.mutant);
            record::append(folder, &tried)?;
        }
        Ok(())
    }

    /// Makes a break; its difference names the file in a way of its own.
    fn apply(&self, mutant: &Mutant) -> anyhow::Result<()> {
        let hunks = mutant.diff.find("@@").context("a difference has a part")?;
        let file = &mutant.file;
        let diff = format!("--- a/{file}\n+++ b/{file}\n{}", &mutant.diff[hunks..]);
        let mut apply = Command::new("git");
        apply.args(["apply", "-"]).current_dir(&self.tree).stdin(Stdio::piped());
        let mut apply = apply.spawn()?;
        apply.stdin.take().context("it has a pipe")?.write_all(diff.as_bytes())?;
        ensure!(apply.wait()?.success(), "{} cannot be made", mutant.name);
        Ok(())
    }

    /// Builds and runs the tests of a part.
    fn outcome(&self, part: &Part) -> anyhow::Result<Outcome> {
        /// Seconds that a build and a run of tests may take: some breaks never end.
        const PATIENCE: [&str; 2] = ["900", "180"];
        let status = |patience: &str, last: &[&str]| {
            let mut test = Command::new("timeout");
            test.args(["--kill-after=5", patience, "cargo", "test", "--quiet"]);
            test.args(["--package", part.package, "--lib", "--test", "it", "--target-dir"]);
            test.arg(&self.target).args(["--config", "profile.dev.package.nofrag.opt-level=1"]);
            test.args(last).current_dir(&self.tree).env("CARGO_PROFILE_DEV_DEBUG", "false");
            test.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            test.status().context("timeout can be started")
        };
        let [build, run] = PATIENCE;
        if !status(build, &["--no-run"])?.success() {
            return Ok(Outcome::Unviable);
        }
        let status = status(run, &[&["--"], part.tests].concat())?;
        Ok(match status.code() {
            Some(0) => Outcome::Survived,
            Some(124 | 137) => Outcome::Hung,
            _ => Outcome::Caught,
        })
    }
}

/// Returns the last outcome of each break of the latest text of each file that was tried.
fn latest(tried: &[Tried]) -> BTreeMap<&str, BTreeMap<&str, &Tried>> {
    let mut files = BTreeMap::<&str, BTreeMap<&str, &Tried>>::new();
    for it in tried {
        let file = files.entry(&it.file).or_default();
        file.retain(|_, other| other.text == it.text);
        file.insert(&it.mutant, it);
    }
    files
}

/// Writes the sums of each file, then the survivors with their reasons.
fn summary(tried: &[Tried], reasons: &Reasons) -> String {
    let files = latest(tried);
    let mut text = String::from("   of tried caught hung unviable survived file\n");
    for (file, mutants) in &files {
        let count = |outcome| mutants.values().filter(|it| it.outcome == outcome).count();
        let of = mutants.values().next().map_or(0, |it| it.of);
        text += &format!(
            "{of:>5} {:>5} {:>6} {:>4} {:>8} {:>8} {file}\n",
            mutants.len(),
            count(Outcome::Caught),
            count(Outcome::Hung),
            count(Outcome::Unviable),
            count(Outcome::Survived)
        );
    }
    text += "\nsurvivors\n";
    let all = files.values().flat_map(BTreeMap::values);
    for it in all.filter(|it| it.outcome == Outcome::Survived) {
        let why = reasons.reason.get(&it.mutant).map_or("no reason", String::as_str);
        text += &format!("{}: {why}\n", it.mutant);
    }
    text
}

/// Checks that the sums are those of the lines, and that each reason is one of a survivor.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let file = |name: &str| tree.text(&format!("{FOLDER}/{name}")).unwrap_or_default();
    let of = |name: &str, wrong: String, remedy: &str| {
        vec![Finding::new("mutants", &format!("{FOLDER}/{name}"), 1, wrong, remedy)]
    };
    let tried: Vec<Tried> = match record::parse(file("raw.jsonl")) {
        Ok(tried) => tried,
        Err(why) => return of("raw.jsonl", format!("{why:#}"), "take the line out"),
    };
    let reasons: Reasons = match toml::from_str(file("reasons.toml")) {
        Ok(reasons) => reasons,
        Err(why) => return of("reasons.toml", why.to_string(), "write NAME = \"reason\""),
    };
    let files = latest(&tried);
    let survivors: BTreeSet<&str> = files
        .values()
        .flat_map(BTreeMap::values)
        .filter(|it| it.outcome == Outcome::Survived)
        .map(|it| it.mutant.as_str())
        .collect();
    if let Some(name) = reasons.reason.keys().find(|name| !survivors.contains(name.as_str())) {
        return of("reasons.toml", format!("`{name}` is no survivor"), "take the reason out");
    }
    if tried.is_empty() || file("summary.txt") == summary(&tried, &reasons) {
        return Vec::new();
    }
    let remedy = "run `cargo xtask mutants --for 0`, which writes the sums";
    of("summary.txt", "the sums are not those of raw.jsonl".to_owned(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mutant: &str, text: &str, outcome: &str) -> String {
        let line = serde_json::json!({
            "mutant": mutant, "file": "a.rs", "of": 9, "text": text, "outcome": outcome,
            "seconds": 1, "commit": "c", "machine": "m"
        });
        format!("{line}\n")
    }

    #[test]
    fn the_last_word_on_the_latest_text_counts() {
        let lines = [
            line("a.rs:1", "old", "survived"),
            line("a.rs:2", "new", "survived"),
            line("a.rs:3", "new", "survived"),
            line("a.rs:3", "new", "caught"),
        ];
        let tried: Vec<Tried> = record::parse(&lines.concat()).unwrap();
        let text = summary(&tried, &Reasons::default());
        assert!(text.contains("    9     2      1    0        0        1 a.rs\n"), "{text}");
        assert!(text.ends_with("survivors\na.rs:2: no reason\n"), "{text}");
    }

    #[test]
    fn sums_and_reasons_are_held() {
        let raw = line("a.rs:2", "new", "survived");
        let tried: Vec<Tried> = record::parse(&raw).unwrap();
        let of = |reasons: &str, sums: &str| {
            let file = |name: &str| format!("{FOLDER}/{name}");
            let [a, b, c] = ["raw.jsonl", "reasons.toml", "summary.txt"].map(file);
            check(&Tree::of(&[(&a, &raw), (&b, reasons), (&c, sums)])).len()
        };
        let reasons = "[reason]\n\"a.rs:2\" = \"the same\"\n";
        let sums = summary(&tried, &toml::from_str(reasons).unwrap());
        assert!(sums.ends_with("a.rs:2: the same\n"), "{sums}");
        assert_eq!(of(reasons, &sums), 0);
        assert_eq!(of("", &sums), 1);
        assert_eq!(of("[reason]\n\"a.rs:7\" = \"gone\"\n", &sums), 1);
        assert_eq!(of(reasons, &sums.replace('9', "8")), 1);
    }
}
