//! The checkout in which files are broken: what is built there, and what its tests say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::{fs, thread};

use anyhow::{Context, bail, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};

use super::record::{Outcome, name_of_code};
use super::switches::{self, Blame, Written};
use super::{Genre, Mutant, Part};
use crate::deb::{git, said};

/// A checkout of the commit.
pub(super) struct Bench {
    pub(super) tree: PathBuf,
    target: PathBuf,
    pub(super) commit: String,
    /// Tests that run at a time.
    jobs: usize,
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

impl<'a> Due<'a> {
    /// Returns some of the file's breaks.
    pub(super) fn some(&self, breaks: Vec<&'a Mutant>) -> Due<'a> {
        let ways = vec![Way::Switch(0); breaks.len()];
        Due { breaks, ways, text: self.text.clone(), ..*self }
    }
}

/// Tests of a package, and by the number of each switch of the last build those that reach it and have their turn.
#[derive(Default)]
pub(super) struct Tests {
    pub(super) all: Vec<Test>,
    reaching: Vec<Vec<usize>>,
}

/// Breaks are tried three times: all of them by the tests that stand beside the code, which are built in a fraction of
/// the time; those that are left by the quick ones of the others; and what is left then by the slow ones, in builds
/// with no other switches, which are about as fast as unbroken code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Unit,
    Quick,
    Slow,
}

impl Turn {
    /// Seconds that a test may take, a tenth of what ends it, before it is known how many it does take.
    fn patience(self) -> f64 {
        match self {
            Turn::Unit | Turn::Quick => 0.0,
            Turn::Slow => 3.0,
        }
    }
}

impl Tests {
    /// Returns the tests that reach a switch.
    pub(super) fn reaching(&self, number: usize) -> impl Iterator<Item = &Test> {
        self.reaching.get(number).into_iter().flatten().map(|&at| &self.all[at])
    }
}

/// A test, with the seconds of the processor that it takes in unbroken code.
pub(super) struct Test {
    program: PathBuf,
    pub(super) name: String,
    seconds: f64,
    /// A test that was slow in one build is so in the next ones, too; one that is left out has no turn.
    turn: Option<Turn>,
    /// Number of breaks that it was run for, and of those that it noticed.
    runs: AtomicU32,
    catches: AtomicU32,
}

impl Test {
    /// Returns the seconds for which it notices a break, as far as is known: by this price, lowest first, tests find
    /// soonest the one that fails.
    fn price(&self) -> f64 {
        self.seconds * f64::from(self.runs.load(Relaxed) + 2)
            / f64::from(self.catches.load(Relaxed) + 1)
    }
}

impl Bench {
    pub(super) fn prepare(root: &Path, jobs: usize) -> anyhow::Result<Bench> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        let home = target.join("mutants");
        let bench = Bench {
            tree: home.join("tree"),
            target: home.join("build"),
            commit: git(root, &["rev-parse", "--short=12", "HEAD"])?,
            jobs: jobs.max(1),
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
    pub(super) fn list(&self, part: &Part) -> anyhow::Result<Vec<Mutant>> {
        let mut list = Command::new("cargo");
        list.args(["mutants", "--list", "--json", "--package", part.package]);
        for file in part.files {
            let path = format!("crates/{}/src/{file}", part.package);
            let glob = if file.ends_with(".rs") { path } else { format!("{path}/**/*.rs") };
            list.args(["--file", &glob]);
        }
        let listed = said(list.current_dir(&self.tree))?;
        Ok(serde_json::from_slice(&listed)?)
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.tree.join(file)).with_context(|| file.to_owned())
    }

    /// Returns Git's name of a file's code.
    pub(super) fn code(&self, file: &str) -> anyhow::Result<String> {
        name_of_code(&self.read(file)?)
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
                written.refused.iter().for_each(|&at| it.ways[at] = Way::Refused);
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

    /// Builds the tests of a package that judge at a turn, and those before it; returns the programs, or why there are
    /// none.
    fn build(&self, part: &Part, turn: Turn) -> anyhow::Result<Result<Vec<PathBuf>, Outcome>> {
        let all = ["test", "--no-run", "--lib", "--test", "it"];
        let built = self.cargo(part, if turn == Turn::Unit { &all[..3] } else { &all })?;
        Ok(match built {
            None => Err(Outcome::Hung),
            Some((errors, programs)) if errors.is_empty() => Ok(programs),
            Some(_) => Err(Outcome::Unviable),
        })
    }

    /// Lists the tests of programs from whom none is known yet.
    fn list_tests(programs: Vec<PathBuf>, turn: Turn, tests: &mut Vec<Test>) -> anyhow::Result<()> {
        for program in programs {
            if tests.iter().any(|test| test.program == program) {
                continue;
            }
            let listed = said(Command::new(&program).args(["--list", "--format", "terse"]))?;
            let listed = String::from_utf8(listed)?;
            let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
            tests.extend(names.map(|name| Test {
                program: program.clone(),
                name: name.to_owned(),
                seconds: 0.0,
                turn: Some(turn),
                runs: AtomicU32::new(0),
                catches: AtomicU32::new(0),
            }));
        }
        Ok(())
    }

    /// Builds the tests, runs each whose turn it is with no break on, and notes what it reaches. One that fails or
    /// takes too long is a slow one; a slow one is left out.
    pub(super) fn reach(&self, part: &Part, turn: Turn, tests: &mut Tests) -> anyhow::Result<()> {
        /// Seconds of a quick test.
        const QUICK: f64 = 1.0;
        let built = self.build(part, turn)?;
        let Ok(programs) = built else { bail!("what `check` accepts does not build") };
        Bench::list_tests(programs, turn, &mut tests.all)?;
        tests.reaching.clear();
        let is_due = |at: &usize| tests.all[*at].turn == Some(turn);
        let due: Vec<usize> = (0..tests.all.len()).filter(is_due).collect();
        due.iter().for_each(|&at| tests.all[at].seconds = turn.patience());
        let (mut found, all) = (Vec::new(), &tests.all);
        let work = |place: usize| self.reached(part, &all[due[place]], due[place]);
        self.in_parallel(due.len(), work, |place, ran| {
            found.push((due[place], ran));
            Ok(())
        })?;
        for (at, ran) in found {
            let test = &mut tests.all[at];
            match (turn, ran) {
                (Turn::Unit | Turn::Quick, None) => test.turn = Some(Turn::Slow),
                (Turn::Unit | Turn::Quick, Some((seconds, _))) if seconds > QUICK => {
                    test.turn = Some(Turn::Slow);
                }
                (Turn::Slow, None) => {
                    println!(
                        "left out, as it fails or takes too long with no break: {}",
                        test.name
                    );
                    test.turn = None;
                }
                (_, Some((seconds, numbers))) => {
                    test.seconds = seconds;
                    for number in numbers {
                        let count = tests.reaching.len().max(number + 1);
                        tests.reaching.resize_with(count, Vec::new);
                        tests.reaching[number].push(at);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a test with no break on; returns the seconds that it takes and the switches that it reaches, or nothing if
    /// it fails or takes too long.
    fn reached(
        &self,
        part: &Part,
        test: &Test,
        at: usize,
    ) -> anyhow::Result<Option<(f64, Vec<usize>)>> {
        /// Seconds below which it does not matter that to note what is reached takes time.
        const SHORT: f64 = 0.1;
        let path = self.target.join(format!("reached-{at}"));
        let mut ran = self.run(part, test, &[("REACHED", &path.to_string_lossy())])?;
        let numbers = fs::read_to_string(&path).unwrap_or_default();
        if path.exists() {
            fs::remove_file(&path)?;
        }
        if ran.outcome != Outcome::Survived {
            return Ok(None);
        }
        if !numbers.is_empty() && ran.seconds > SHORT {
            ran = self.run(part, test, &[("BREAK", "4000000000")])?;
        }
        let numbers = numbers.lines().map(str::parse).collect::<Result<_, _>>()?;
        // A program that does nothing has to be started, too.
        Ok(Some((0.005 + ran.seconds, numbers)))
    }

    /// Does `work` for the numbers below `count`, several at a time, and `done` with each outcome.
    pub(super) fn in_parallel<T: Send>(
        &self,
        count: usize,
        work: impl Fn(usize) -> anyhow::Result<T> + Sync,
        mut done: impl FnMut(usize, T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let next = AtomicUsize::new(0);
        let (say, said) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                let (say, work, next) = (say.clone(), &work, &next);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Relaxed);
                        // Nobody listens any more if an earlier outcome was an error.
                        if at >= count || say.send((at, work(at))).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(say);
            said.iter().try_for_each(|(at, outcome)| done(at, outcome?))
        })
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
            let ran = self.run(part, test, on.as_slice())?;
            test.runs.fetch_add(1, Relaxed);
            if ran.outcome != Outcome::Survived {
                test.catches.fetch_add(1, Relaxed);
                return Ok(ran.outcome);
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
        let (mut outcome, mut judged) = (Outcome::Survived, Vec::new());
        for turn in [Turn::Unit, Turn::Quick] {
            let programs = match self.build(part, turn)? {
                Ok(programs) => programs,
                Err(why) => {
                    outcome = why;
                    break;
                }
            };
            let has_turn = |test: &&Test| test.turn.is_some() && !judged.contains(&test.program);
            let built = |test: &&Test| programs.contains(&test.program);
            outcome = self.judge(part, None, tests.iter().filter(has_turn).filter(built))?;
            if outcome != Outcome::Survived {
                break;
            }
            judged = programs;
        }
        self.restore()?;
        Ok(outcome)
    }

    fn run(&self, part: &Part, test: &Test, with: &[(&str, &str)]) -> anyhow::Result<Ran> {
        /// Says at the end how much of the processor was used.
        const TIMED: &str = r#""$@" > /dev/null 2>&1; code=$?; times; exit $code"#;
        let folder = self.tree.join("crates").join(part.package);
        let mut run = Command::new("sh");
        run.args(["-c", TIMED, "sh", "timeout"]);
        // The processor may be shared: a test that stands still gets more time than one that computes.
        run.arg("--kill-after=1").arg(format!("{:.0}", 600.0 + 60.0 * test.seconds));
        run.args(["prlimit", "--core=0"]).arg(format!("--cpu={:.0}", 4.0 + 10.0 * test.seconds));
        run.arg(format!("--data={}", part.memory)).arg(&test.program);
        run.args(["--exact", &test.name]).current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
        // What is random is so in the same way each time; a failure need not be made small, nor kept.
        run.env("PROPTEST_RNG_SEED", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0");
        run.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1").env("RUST_BACKTRACE", "0");
        let output = run.envs(with.iter().copied()).stdin(Stdio::null()).output();
        let output = output.context("sh can be started")?;
        let outcome = match output.status.code() {
            Some(0) => Outcome::Survived,
            // Not ended by itself, or by the signal SIGXCPU for its time on the processor.
            Some(124 | 137 | 152) => Outcome::Hung,
            _ => Outcome::Caught,
        };
        let times = String::from_utf8_lossy(&output.stdout);
        let seconds = times.lines().last().and_then(seconds_of).context("sh says times")?;
        Ok(Ran { outcome, seconds })
    }
}

/// The outcome of a run, and the seconds of the processor that it took.
struct Ran {
    outcome: Outcome,
    seconds: f64,
}

/// Returns the sum of a line of `times`, `1m2.30s 0m0.40s`.
fn seconds_of(line: &str) -> Option<f64> {
    let seconds = line.split_whitespace().map(|time| {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    });
    seconds.sum()
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
