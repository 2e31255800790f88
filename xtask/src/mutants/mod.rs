//! Mutation testing: the files that decide are broken, one operator or body at a time, and their tests must notice.
//!
//! cargo-mutants lists the breaks. In a checkout of the commit under `target/mutants` one build holds a few hundred of
//! them, each behind a [switch](switches); more would slow down every test. A run of every test with no break on says
//! which tests reach which breaks. Then each break is on in turn, for the tests that reach it, until one of them fails;
//! the quickest go first, and those that have noticed most of the breaks before. The tests beside the code judge first,
//! whose build is short; then the quick ones of the others, in builds that have the switches alone of what is left; and
//! likewise the slow ones. A break that no test reaches survives without a run. What can have no switch is built alone.
//!
//! Lines in `results/mutants/raw.jsonl` say what came of the breaks and of which code of the file they were, so slices
//! go on where the last one ended, and a file whose code has changed begins anew. `summary.txt` beside the lines has
//! their sums and the survivors, of the code as it stands; `tidy` compares the two.

mod bench;
mod record;
mod switches;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use serde::Deserialize;

use self::bench::{Bench, Due, Test, Tests, Turn, Way};
pub(crate) use self::record::check;
use self::record::{Line, Outcome};
use crate::campaign::{self, machine};

const FOLDER: &str = "results/mutants";

/// Time after which what was found out is recorded in the middle of a file.
const A_WHILE: Duration = Duration::from_secs(120);

/// Number of breaks that one build has switches for. With 2,443 of `ranges/wide` in one the tests that reach them took
/// more than an hour before the first break was tried.
const A_BUILD: usize = 400;

/// Breaks to try, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// Time to go on, in minutes; a break that has begun is ended. With 0 the sums alone are written
    #[arg(long = "for", value_name = "MINUTES", default_value_t = 20)]
    minutes: u64,
    /// Only files with one of these in their paths
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    only: Vec<String>,
    /// Try those again that survived, and no others
    #[arg(long)]
    survivors: bool,
    /// Then build so many of the breaks that have a switch alone, and fail if one ends otherwise
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    compare: usize,
    /// Tests that run at a time
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    jobs: usize,
    /// Say how many breaks each file has, and try none
    #[arg(long)]
    list: bool,
}

/// Files that decide, in the order in which they are tried. The tests of their package judge them.
struct Part {
    package: &'static str,
    /// Those without which a part of the files would not be compiled, and its breaks not noticed.
    features: &'static str,
    /// Below the package's folder `src`; a folder stands for the files in it.
    files: &'static [&'static str],
    /// Bytes that a test may have mapped to write to: some breaks ask for memory without end.
    memory: u64,
}

const PARTS: &[Part] = &[
    Part {
        package: "nofrag",
        features: "",
        files: &[
            "page/boost.rs",
            "page/steal.rs",
            "page/fallback.rs",
            "page/walk.rs",
            "page/watermark.rs",
            "page/slow_path.rs",
            "page/per_cpu.rs",
            "page/compaction",
            "vmap/blocks/queues",
            "vmap/blocks/slots",
            "mmap/placement",
            "ranges/augmented_tree.rs",
            "ranges/cached_scan.rs",
            "ranges/red_black.rs",
            "ranges/heap",
            "ranges/wide",
        ],
        memory: 4 << 30,
    },
    Part {
        package: "nofrag-backing",
        features: "allocator-api2",
        files: &["arena/ground.rs", "arena/bins.rs"],
        memory: 256 << 30,
    },
];

/// A break, as cargo-mutants lists it.
#[derive(Clone, Debug, Deserialize)]
struct Mutant {
    name: String,
    file: String,
    genre: Genre,
    span: Span,
    replacement: String,
    /// None in a constant.
    function: Option<Function>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Clone, Debug, Deserialize)]
struct Function {
    return_type: String,
}

/// Lines and columns, from 1 on, of what a break replaces.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

impl Span {
    fn bytes(self, text: &str) -> Range<usize> {
        let byte = |place: Place| {
            let before = text.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
            let column = text[before..].char_indices().nth(place.column - 1);
            before + column.map_or(text.len() - before, |(at, _)| at)
        };
        byte(self.start)..byte(self.end)
    }
}

impl Mutant {
    /// The name without that of the file.
    fn short(&self) -> &str {
        self.name.strip_prefix(&self.file).map_or(&self.name, |rest| rest.trim_start_matches(':'))
    }
}

/// Tries breaks until the time is over; true unless they cannot be tried.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let folder = root.join(FOLDER);
    if request.minutes > 0 || request.list {
        let bench = Bench::prepare(root, request.jobs)?;
        let end = Instant::now() + Duration::from_secs(request.minutes.saturating_mul(60));
        for part in PARTS {
            let mutants = bench.list(part)?;
            let mut files = BTreeMap::<&str, Vec<&Mutant>>::new();
            for mutant in &mutants {
                files.entry(&mutant.file).or_default().push(mutant);
            }
            let is_wanted = |file: &str| request.only.iter().any(|part| file.contains(part));
            if request.list {
                files.iter().for_each(|(file, breaks)| println!("{:>5} {file}", breaks.len()));
                continue;
            }
            let now = Instant::now();
            let third = end.saturating_duration_since(now) / 3;
            let ends = [now + third, now + 2 * third, end];
            let slice = Slice { bench: &bench, part, folder: &folder, ends };
            slice.note_new_code(&files)?;
            files.retain(|file, _| request.only.is_empty() || is_wanted(file));
            slice.judge(&files, request)?;
        }
    }
    if request.list {
        return Ok(true);
    }
    let lines: Vec<Line> = campaign::record::read(&folder)?;
    let reasons = std::fs::read_to_string(folder.join("reasons.toml")).unwrap_or_default();
    let files = record::standing(&lines, |file| std::fs::read_to_string(root.join(file)).ok())?;
    std::fs::write(
        folder.join("summary.txt"),
        record::summary(&files, &toml::from_str(&reasons)?),
    )?;
    Ok(true)
}

/// A slice of the breaks of a part.
struct Slice<'a> {
    bench: &'a Bench,
    part: &'a Part,
    folder: &'a Path,
    /// Of the turns, each of which has a third of the time.
    ends: [Instant; 3],
}

/// Breaks with what came of them.
#[derive(Default)]
struct Tried<'a> {
    done: Vec<(&'a Mutant, Outcome)>,
    /// Those that need a build of their own, with their files.
    alone: Vec<(Due<'a>, &'a Mutant)>,
}

/// Returns the breaks of one build after the other.
fn builds(due: Vec<Due>) -> Vec<Vec<Due>> {
    let (mut builds, mut room) = (vec![Vec::new()], A_BUILD);
    for it in due {
        let mut rest = it.breaks.as_slice();
        while !rest.is_empty() {
            if room == 0 {
                builds.push(Vec::new());
                room = A_BUILD;
            }
            let (some, others) = rest.split_at(rest.len().min(room));
            builds.last_mut().expect("there is one").push(it.some(some.to_vec()));
            room -= some.len();
            rest = others;
        }
    }
    builds
}

impl Slice<'_> {
    /// Records how many breaks those files have of whose code nothing is known yet.
    fn note_new_code(&self, files: &BTreeMap<&str, Vec<&Mutant>>) -> anyhow::Result<()> {
        let lines: Vec<Line> = campaign::record::read(self.folder)?;
        let known = record::latest(&lines);
        for (file, breaks) in files {
            let text = self.bench.code(file)?;
            if known.get(file).is_none_or(|known| known.text != text) {
                let due =
                    Due { file, of: breaks.len(), text, breaks: Vec::new(), ways: Vec::new() };
                self.append(&due, 0, BTreeMap::new())?;
            }
        }
        Ok(())
    }

    /// Tries what no earlier slice has tried of the same code, part by part, files with few breaks first.
    fn judge(&self, files: &BTreeMap<&str, Vec<&Mutant>>, request: &Request) -> anyhow::Result<()> {
        let lines: Vec<Line> = campaign::record::read(self.folder)?;
        let known = record::latest(&lines);
        let mut due = Vec::new();
        for (file, breaks) in files {
            let text = self.bench.code(file)?;
            let before = known.get(file).filter(|known| known.text == text);
            let is_due =
                |mutant: &&Mutant| match before.and_then(|it| it.breaks.get(mutant.short())) {
                    None => !request.survivors,
                    Some(outcome) => request.survivors && *outcome == Outcome::Survived,
                };
            let breaks: Vec<&Mutant> = breaks.iter().copied().filter(is_due).collect();
            if !breaks.is_empty() {
                let ways = vec![Way::Switch(0); breaks.len()];
                due.push(Due { file, of: files[file].len(), text, breaks, ways });
            }
        }
        let place = |it: &Due| self.part.files.iter().position(|part| it.file.contains(part));
        due.sort_by_key(|it| (place(it), it.breaks.len()));
        let (mut tests, mut tried) = (Tests::default(), Tried::default());
        for turn in [Turn::Unit, Turn::Quick, Turn::Slow] {
            let is_done = due.is_empty() && tried.alone.is_empty() && request.compare == 0;
            if is_done || self.is_over(turn) {
                return Ok(());
            }
            let mut left = Vec::new();
            for build in builds(due) {
                left.extend(self.judge_build(build, turn, &mut tests, &mut tried)?);
            }
            left.retain(|it| !it.breaks.is_empty());
            due = left;
        }
        for (it, mutant) in &tried.alone {
            if self.is_over(Turn::Slow) {
                return Ok(());
            }
            let begin = Instant::now();
            let outcome = self.bench.judge_alone(self.part, mutant, &tests.all)?;
            self.record(it, &[(mutant, outcome)], begin)?;
        }
        self.compare(&tried.done, request.compare, &tests.all)
    }

    /// Returns true if the time for a turn is over, so that what it leaves comes to the next one in the same slice.
    fn is_over(&self, turn: Turn) -> bool {
        Instant::now() >= self.ends[turn as usize]
    }

    /// Builds breaks with their switches and tries them; returns those that slow tests have yet to judge.
    fn judge_build<'a>(
        &self,
        mut build: Vec<Due<'a>>,
        turn: Turn,
        tests: &mut Tests,
        tried: &mut Tried<'a>,
    ) -> anyhow::Result<Vec<Due<'a>>> {
        if self.is_over(turn) {
            return Ok(Vec::new());
        }
        self.bench.switch(self.part, &mut build)?;
        self.bench.reach(self.part, turn, tests)?;
        build.iter().map(|it| self.judge_switched(it, (turn, tests), tried)).collect()
    }

    /// Tries breaks of a file that have switches; notes the others as those to be built alone, and returns those that
    /// slow tests have yet to judge.
    fn judge_switched<'a>(
        &self,
        due: &Due<'a>,
        (turn, tests): (Turn, &Tests),
        tried: &mut Tried<'a>,
    ) -> anyhow::Result<Due<'a>> {
        let (mut begin, mut before) = (Instant::now(), tried.done.len());
        let mut left = Vec::new();
        let judge = |at: usize| match due.ways[at] {
            _ if self.is_over(turn) => Ok(None),
            Way::Alone => Ok(Some(Outcome::Survived)),
            Way::Refused => Ok(Some(Outcome::Unviable)),
            Way::Switch(number) | Way::InPart(number) => {
                self.bench.judge(self.part, Some(number), tests.reaching(number)).map(Some)
            }
        };
        self.bench.in_parallel(due.breaks.len(), judge, |at, outcome| {
            let (Some(outcome), mutant) = (outcome, due.breaks[at]) else { return Ok(()) };
            match (due.ways[at], turn) {
                _ if outcome != Outcome::Survived => tried.done.push((mutant, outcome)),
                (Way::Alone, _) | (Way::InPart(_), Turn::Slow) => {
                    tried.alone.push((due.some(Vec::new()), mutant));
                }
                (_, Turn::Slow) => tried.done.push((mutant, outcome)),
                (_, Turn::Unit) => left.push(mutant),
                (_, Turn::Quick) => {
                    println!("left to slow tests: {}", mutant.name);
                    left.push(mutant);
                }
            }
            if begin.elapsed() > A_WHILE {
                self.record(due, &tried.done[before..], begin)?;
                (begin, before) = (Instant::now(), tried.done.len());
            }
            Ok(())
        })?;
        self.record(due, &tried.done[before..], begin)?;
        Ok(due.some(left))
    }

    fn record(
        &self,
        due: &Due,
        tried: &[(&Mutant, Outcome)],
        begin: Instant,
    ) -> anyhow::Result<()> {
        if tried.is_empty() {
            return Ok(());
        }
        let mut breaks = BTreeMap::<Outcome, Vec<String>>::new();
        for (mutant, outcome) in tried {
            breaks.entry(*outcome).or_default().push(mutant.short().to_owned());
            if *outcome == Outcome::Survived {
                println!("survived: {}", mutant.name);
            }
        }
        let seconds = begin.elapsed().as_secs();
        let counts: Vec<String> =
            breaks.iter().map(|(outcome, all)| format!("{outcome:?} {}", all.len())).collect();
        println!("{} in {seconds} s: {}", due.file, counts.join(", "));
        self.append(due, seconds, breaks)
    }

    fn append(
        &self,
        due: &Due,
        seconds: u64,
        breaks: BTreeMap<Outcome, Vec<String>>,
    ) -> anyhow::Result<()> {
        let line = Line {
            file: due.file.to_owned(),
            of: due.of,
            text: due.text.clone(),
            commit: self.bench.commit.clone(),
            machine: machine()?,
            seconds,
            breaks,
        };
        campaign::record::append(self.folder, &line)
    }

    /// Builds `count` of the breaks that were tried alone, and fails if one ends otherwise.
    fn compare(
        &self,
        tried: &[(&Mutant, Outcome)],
        count: usize,
        tests: &[Test],
    ) -> anyhow::Result<()> {
        let step = tried.len().div_ceil(count.max(1)).max(1);
        let mut differing = 0;
        for (mutant, outcome) in tried.iter().step_by(step).take(count) {
            let alone = self.bench.judge_alone(self.part, mutant, tests)?;
            println!("{outcome:?}, alone {alone:?}: {}", mutant.name);
            differing += usize::from(alone != *outcome);
        }
        ensure!(differing == 0, "{differing} breaks end otherwise alone");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_has_a_bounded_number_of_switches() {
        let place = Place { line: 1, column: 1 };
        let mutant = Mutant {
            name: "a.rs:1:1: replace a with b".to_owned(),
            file: "a.rs".to_owned(),
            genre: Genre::FnValue,
            span: Span { start: place, end: place },
            replacement: "b".to_owned(),
            function: None,
        };
        let of = |file, count| {
            Due { file, of: count, text: "t".to_owned(), breaks: Vec::new(), ways: Vec::new() }
                .some(vec![&mutant; count])
        };
        let all = builds(vec![of("a.rs", A_BUILD - 100), of("b.rs", A_BUILD + 250)]);
        let counts: Vec<Vec<(&str, usize)>> = all
            .iter()
            .map(|build| build.iter().map(|it| (it.file, it.breaks.len())).collect())
            .collect();
        let (first, third) = (vec![("a.rs", A_BUILD - 100), ("b.rs", 100)], vec![("b.rs", 150)]);
        assert_eq!(counts, [first, vec![("b.rs", A_BUILD)], third]);
        assert_eq!(builds(Vec::new()).len(), 1, "slow tests are run also when nothing is left");
    }
}
