//! The checkout in which files are broken: what is built there, and what its tests say.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};

use super::record::Outcome;
use super::switches::{self, Blame, Written};
use super::{Genre, Mutant, Part};
use crate::deb::{git, said};

/// A checkout of the commit.
pub(super) struct Bench {
    pub(super) tree: PathBuf,
    target: PathBuf,
    pub(super) commit: String,
}

/// The breaks of a file that are to be tried, and how.
pub(super) struct Due<'a> {
    pub(super) file: &'a str,
    /// Number of breaks that the file has.
    pub(super) of: usize,
    /// Git's name of the file's code.
    pub(super) text: String,
    pub(super) breaks: Vec<&'a Mutant>,
    pub(super) ways: Vec<Way>,
}

/// The way in which a break is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a switch of this number.
    Switch(usize),
    /// By a switch of this number, which constants pass by: who survives so is made alone.
    InPart(usize),
    /// In a build of its own.
    Alone,
    /// Not at all: the compiler has refused what the break writes.
    Refused,
}

/// The tests of a package, and by the number of each switch those that reach it.
pub(super) struct Tests {
    pub(super) all: Vec<Test>,
    reaching: Vec<Vec<usize>>,
}

/// Breaks are tried twice: all of them by quick tests, then those that are left by the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Quick,
    Slow,
}

impl Tests {
    /// Returns the tests that reach a switch and have their turn.
    pub(super) fn reaching(&self, number: usize, turn: Turn) -> Vec<&Test> {
        let reaching = self.reaching.get(number).into_iter().flatten();
        reaching.map(|&at| &self.all[at]).filter(|test| test.turn() == turn).collect()
    }
}

/// A test, with the seconds of the processor that it takes in unbroken code.
pub(super) struct Test {
    program: PathBuf,
    name: String,
    seconds: f64,
    /// Number of breaks that it was run for, and of those that it noticed.
    runs: Cell<u32>,
    catches: Cell<u32>,
}

impl Test {
    fn turn(&self) -> Turn {
        /// Seconds of a quick test.
        const QUICK: f64 = 1.0;
        if self.seconds < QUICK { Turn::Quick } else { Turn::Slow }
    }

    /// Returns the seconds for which it notices a break, as far as is known: by this price, lowest first, tests find
    /// soonest the one that fails.
    fn price(&self) -> f64 {
        self.seconds * f64::from(self.runs.get() + 2) / f64::from(self.catches.get() + 1)
    }
}

impl Bench {
    pub(super) fn prepare(root: &Path) -> anyhow::Result<Bench> {
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
        bench.restore()?;
        Ok(bench)
    }

    /// Takes all breaks out.
    pub(super) fn restore(&self) -> anyhow::Result<()> {
        git(&self.tree, &["checkout", "--quiet", "--force", "--detach", &self.commit])?;
        git(&self.tree, &["clean", "--quiet", "--force", "crates"])?;
        Ok(())
    }

    /// Lists the breaks of a part.
    pub(super) fn list(&self, part: &Part, only: &[String]) -> anyhow::Result<Vec<Mutant>> {
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

    fn read(&self, file: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.tree.join(file)).with_context(|| file.to_owned())
    }

    /// Returns Git's name of a file's code, which is what stands before its tests: they may change and leave all breaks
    /// as they are.
    pub(super) fn code(&self, file: &str) -> anyhow::Result<String> {
        let text = self.read(file)?;
        let (code, _) = text.split_once("\n#[cfg(test)]\nmod tests").unwrap_or((&text, ""));
        let path = self.tree.with_file_name("code");
        std::fs::write(&path, code)?;
        git(&self.tree, &["hash-object", &path.to_string_lossy()])
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.tree.join(file), text).with_context(|| file.to_owned())
    }

    /// Writes the switches of all breaks that can have one, and notes how each break is made.
    pub(super) fn switch(&self, part: &Part, due: &mut [Due]) -> anyhow::Result<()> {
        self.restore()?;
        let mut old = Vec::new();
        for it in &*due {
            old.push(self.read(it.file)?);
        }
        let source = format!("crates/{}/src", part.package);
        let root = format!("{source}/lib.rs");
        self.write(&root, &switches::with_module(&self.read(&root)?))?;
        loop {
            let mut texts = BTreeMap::new();
            let mut count = 0;
            for (place, (it, old)) in due.iter_mut().zip(&old).enumerate() {
                let may = |at: usize| it.ways[at] != Way::Refused && it.ways[at] != Way::Alone;
                let written = switches::write(old, &it.breaks, may, count)?;
                it.ways
                    .iter_mut()
                    .filter(|way| **way != Way::Refused)
                    .for_each(|way| *way = Way::Alone);
                for (number, &at) in (count..).zip(&written.held) {
                    let is_in_part = written.constant.contains(&at);
                    it.ways[at] =
                        if is_in_part { Way::InPart(number) } else { Way::Switch(number) };
                }
                count += written.held.len();
                self.write(it.file, &written.text)?;
                texts.insert(it.file.to_owned(), (place, written));
            }
            self.write(&format!("{source}/mutants.rs"), &switches::module(count))?;
            let checked = self.cargo(part, &["check", "--lib"])?;
            let (messages, _) = checked.context("the check of the switches does not end")?;
            if messages.is_empty() {
                return Ok(());
            }
            println!("{}: {count} switches, {} errors of them", part.package, messages.len());
            let mut is_blamed = false;
            for message in &messages {
                is_blamed |= blame(message, &texts, due);
            }
            let first = messages.iter().find_map(|it| it.rendered.as_deref()).unwrap_or_default();
            ensure!(is_blamed, "no break is to blame for this, and others:\n{first}");
        }
    }

    /// Runs cargo; returns its errors and the programs that it made, or nothing if it does not end in time.
    fn cargo(
        &self,
        part: &Part,
        arguments: &[&str],
    ) -> anyhow::Result<Option<(Vec<Diagnostic>, Vec<PathBuf>)>> {
        /// Seconds that a build may take: some constants never end.
        const PATIENCE: &str = "2400";
        let mut cargo = Command::new("timeout");
        cargo.args([PATIENCE, "cargo"]).args(arguments).args(["--package", part.package]);
        cargo.args(["--features", part.features]);
        cargo.arg("--message-format=json").arg("--target-dir").arg(&self.target);
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("RUSTFLAGS", "--cap-lints=allow");
        // The switches need features of the compiler that are not stable.
        cargo.env("RUSTC_BOOTSTRAP", part.package.replace('-', "_")).current_dir(&self.tree);
        let output = cargo.stdin(Stdio::null()).output().context("timeout can be started")?;
        let (mut errors, mut programs) = (Vec::new(), Vec::new());
        for message in Message::parse_stream(&*output.stdout) {
            match message? {
                Message::CompilerMessage(it) if it.message.level == DiagnosticLevel::Error => {
                    errors.push(it.message);
                }
                Message::CompilerArtifact(it) => {
                    programs.extend(it.executable.map(PathBuf::from));
                }
                _ => {}
            }
        }
        if output.status.code() == Some(124) {
            return Ok(None);
        }
        let failed = !output.status.success() && errors.is_empty();
        ensure!(!failed, "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Some((errors, programs)))
    }

    /// Builds the tests of a package; returns the programs, or why there are none.
    fn build(&self, part: &Part) -> anyhow::Result<Result<Vec<PathBuf>, Outcome>> {
        let built = self.cargo(part, &["test", "--no-run", "--lib", "--test", "it"])?;
        Ok(match built {
            None => Err(Outcome::Hung),
            Some((errors, programs)) if errors.is_empty() => Ok(programs),
            Some(_) => Err(Outcome::Unviable),
        })
    }

    /// Runs each test alone with no break on, and notes what it reaches.
    pub(super) fn reach(&self, part: &Part) -> anyhow::Result<Tests> {
        /// Seconds that a test may take, a tenth of what ends it: with switches in all that it does some would take
        /// minutes, and an hour for the breaks that they are left with.
        const PATIENCE: f64 = 3.0;
        let Ok(programs) = self.build(part)? else { bail!("what `check` accepts does not build") };
        let path = self.target.join("reached");
        let mut tests = Vec::new();
        for program in programs {
            let listed = said(Command::new(&program).args(["--list", "--format", "terse"]))?;
            let listed = String::from_utf8(listed)?;
            for name in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
                let mut test = Test {
                    program: program.clone(),
                    name: name.to_owned(),
                    seconds: PATIENCE,
                    runs: Cell::new(0),
                    catches: Cell::new(0),
                };
                if path.exists() {
                    std::fs::remove_file(&path)?;
                }
                let mut begin = seconds_of_programs()?;
                let outcome = self.run(part, &test, &[("REACHED", &path.to_string_lossy())])?;
                if outcome != Outcome::Survived {
                    println!("left out, {outcome:?} alone and without a break: {name}");
                    continue;
                }
                let reached = std::fs::read_to_string(&path).unwrap_or_default();
                if !reached.is_empty() {
                    // To note what is reached takes time.
                    begin = seconds_of_programs()?;
                    self.run(part, &test, &[("BREAK", "4000000000")])?;
                }
                // A program that does nothing has to be started, too.
                test.seconds = 0.005 + seconds_of_programs()? - begin;
                tests.push((test, reached));
            }
        }
        let mut reaching = Vec::new();
        for (at, (_, numbers)) in tests.iter().enumerate() {
            for number in numbers.lines() {
                let number: usize = number.parse()?;
                reaching.resize_with(reaching.len().max(number + 1), Vec::new);
                reaching[number].push(at);
            }
        }
        Ok(Tests { all: tests.into_iter().map(|(test, _)| test).collect(), reaching })
    }

    /// Runs tests until one of them notices the break of a number.
    pub(super) fn judge<'a>(
        &self,
        part: &Part,
        number: Option<usize>,
        tests: impl IntoIterator<Item = &'a Test>,
    ) -> anyhow::Result<Outcome> {
        let number = number.map(|number| number.to_string());
        let on = number.as_deref().map(|number| ("BREAK", number));
        let mut tests: Vec<&Test> = tests.into_iter().collect();
        tests.sort_by(|a, b| a.price().total_cmp(&b.price()));
        for test in tests {
            let outcome = self.run(part, test, on.as_slice())?;
            test.runs.update(|runs| runs + 1);
            if outcome != Outcome::Survived {
                test.catches.update(|catches| catches + 1);
                return Ok(outcome);
            }
        }
        Ok(Outcome::Survived)
    }

    /// Makes a break alone, and runs the tests.
    pub(super) fn judge_alone(
        &self,
        part: &Part,
        mutant: &Mutant,
        tests: &[Test],
    ) -> anyhow::Result<Outcome> {
        self.restore()?;
        let text = self.read(&mutant.file)?;
        self.write(&mutant.file, &switches::broken(&text, mutant))?;
        let outcome = match self.build(part)? {
            Err(outcome) => outcome,
            Ok(_) => self.judge(part, None, tests)?,
        };
        self.restore()?;
        Ok(outcome)
    }

    fn run(&self, part: &Part, test: &Test, with: &[(&str, &str)]) -> anyhow::Result<Outcome> {
        let folder = self.tree.join("crates").join(part.package);
        let mut run = Command::new("timeout");
        // The processor may be shared: a test that stands still gets more time than one that computes.
        run.arg("--kill-after=1").arg(format!("{:.0}", 30.0 + 60.0 * test.seconds));
        run.args(["prlimit", "--core=0"]).arg(format!("--cpu={:.0}", 4.0 + 10.0 * test.seconds));
        run.arg(format!("--data={}", part.memory)).arg(&test.program);
        run.args(["--exact", &test.name]).current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
        // What is random is so in the same way each time; a failure need not be made small, nor kept.
        run.env("PROPTEST_RNG_SEED", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0");
        run.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1").env("RUST_BACKTRACE", "0");
        run.envs(with.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let status = run.stderr(Stdio::null()).status().context("timeout can be started")?;
        /// Ends a program that has used up its time on the processor.
        const SIGXCPU: i32 = 24;
        Ok(match (status.code(), status.signal()) {
            (Some(0), _) => Outcome::Survived,
            (Some(124 | 137), _) | (_, Some(SIGXCPU)) => Outcome::Hung,
            _ => Outcome::Caught,
        })
    }
}

/// Returns the seconds of the processor that the programs which this one has run took, in ticks of the system.
fn seconds_of_programs() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) =
        text.rsplit_once(')').context("the name of the program stands in parentheses")?;
    // In the program and in the kernel (`cutime`, `cstime`); the name is the second field.
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u32>);
    Ok(f64::from(ticks.sum::<Result<u32, _>>()?) / 100.0)
}

/// Takes from the breaks that a message is about their switches; returns whether there are any.
fn blame(
    message: &Diagnostic,
    texts: &BTreeMap<String, (usize, Written)>,
    due: &mut [Due],
) -> bool {
    let mut is_blamed = false;
    for span in message.spans.iter().filter(|span| span.is_primary) {
        let Some((place, written)) = texts.get(&span.file_name) else { continue };
        let Some(blame) = written.blame(span.byte_start as usize) else { continue };
        is_blamed = true;
        let it = &mut due[*place];
        match blame {
            Blame::Some(all) => all.iter().for_each(|&at| it.ways[at] = Way::Alone),
            Blame::One(at) => {
                // The type of a body, and what types an operator takes, are what they would be without a switch.
                let code = message.code.as_ref().map(|code| code.code.as_str());
                let is_certain = it.breaks[at].genre == Genre::FnValue
                    || matches!(code, Some("E0277" | "E0369"));
                it.ways[at] = if is_certain { Way::Refused } else { Way::Alone };
            }
        }
    }
    is_blamed
}
