//! `counts`: how many instructions the hottest operations take, against limits.
//!
//! A count by callgrind repeats to a few in ten thousand on a busy machine, where nanoseconds do not; it depends on the
//! compiler, whose name stands beside the limits, and on the profile, which is that of what is handed out. Rows and
//! limits are in `counts.toml`; the program is the example `pairs` of nofrag-bench.

use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Deserialize;

use crate::deb::{BUILT, PROFILE};

const FILE: &str = "xtask/src/counts.toml";
/// Share by which a limit stands above the count; a count that has fallen by as much lowers its limit.
const SLACK: f64 = 0.03;

/// Request to count instructions.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// Set the limits anew, 3 % above what is counted now
    #[arg(long)]
    accept: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    compiler: String,
    row: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// Arguments of the program, in which `PAIRS` stands for the number of pairs.
    arguments: Vec<String>,
    few: u64,
    many: u64,
    limit: f64,
}

/// Relation of a count to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    Above,
    /// So far below that the limit guards nothing.
    Fell,
}

fn verdict(count: f64, limit: f64) -> Verdict {
    if count > limit {
        Verdict::Above
    } else if count < limit / (1.0 + SLACK) * (1.0 - SLACK) {
        Verdict::Fell
    } else {
        Verdict::Holds
    }
}

/// Counts each row and prints the table; true if no row is above its limit.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let path = root.join(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| FILE.to_owned())?;
    let known: Counts = toml::from_str(&text).with_context(|| FILE.to_owned())?;
    build(root)?;
    let compiler = compiler()?;
    if compiler != known.compiler {
        println!("limits are for {}, this is {compiler}", known.compiler);
    }
    println!("{:<40} {:>9} {:>9} {:>8}", "instructions of a pair", "today", "limit", "change");
    let counts = count_all(root, &known.row)?;
    let (mut above, mut fell) = (false, false);
    for (row, &count) in known.row.iter().zip(&counts) {
        let note = match verdict(count, row.limit) {
            Verdict::Holds => "",
            Verdict::Above => "  ABOVE its limit",
            Verdict::Fell => "  fell",
        };
        above |= note.contains("ABOVE");
        fell |= note.contains("fell");
        let change = 100.0 * (count * (1.0 + SLACK) / row.limit - 1.0);
        println!("{:<40} {count:>9.1} {:>9.1} {change:>+7.1}%{note}", row.name, row.limit);
    }
    if request.accept {
        std::fs::write(&path, with_limits(&text, &compiler, &counts))?;
        println!("wrote {FILE}; say in the commit why a limit rose");
        return Ok(true);
    }
    if above {
        println!(
            "a count is above its limit: make it cheaper, or `cargo xtask counts --accept` and say why"
        );
    }
    if fell {
        println!(
            "a count fell by more than 3 %: `cargo xtask counts --accept` lets its limit follow"
        );
    }
    Ok(!above)
}

/// Returns `text`, the file of limits, with this compiler and with limits a little above `counts`, in the order of
/// rows.
fn with_limits(text: &str, compiler: &str, counts: &[f64]) -> String {
    let mut counts = counts.iter();
    let lines = text.lines().map(|line| {
        if line.starts_with("compiler = ") {
            return format!("compiler = {compiler:?}\n");
        }
        match line.strip_prefix("limit = ").and_then(|_| counts.next()) {
            Some(count) => format!("limit = {:.1}\n", count * (1.0 + SLACK)),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
}

fn build(root: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["build", "-p", "nofrag-bench", "--example", "pairs"]).args(PROFILE);
    // Incremental builds divide a crate into more parts, which inline less of each other.
    command.env("CARGO_INCREMENTAL", "0");
    let built = command.current_dir(root).status().context("cargo")?.success();
    ensure!(built, "the program could not be built");
    Ok(())
}

fn compiler() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("rustc")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Counts each row, several at a time: other work on the machine does not change the counts.
fn count_all(root: &Path, rows: &[Row]) -> anyhow::Result<Vec<f64>> {
    let next = Mutex::new(rows.iter().enumerate());
    let counts = Mutex::new(vec![0.0; rows.len()]);
    let work = || -> anyhow::Result<()> {
        loop {
            let Some((at, row)) = next.lock().expect("no thread has panicked").next() else {
                return Ok(());
            };
            let count = count(root, row)?;
            counts.lock().expect("no thread has panicked")[at] = count;
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|it| it.join().expect("a count does not panic"))
    })?;
    Ok(counts.into_inner().expect("no thread has panicked"))
}

/// Counts the instructions of one pair of operations: the program's with many pairs less those with few.
fn count(root: &Path, row: &Row) -> anyhow::Result<f64> {
    ensure!(row.few < row.many, "{}: `few` must be less than `many`", row.name);
    let [few, many] = [row.few, row.many].map(|pairs| total(root, row, pairs));
    Ok((many? as f64 - few? as f64) / (row.many - row.few) as f64)
}

/// Counts the instructions of the whole program.
fn total(root: &Path, row: &Row, pairs: u64) -> anyhow::Result<u64> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let pairs = pairs.to_string();
    let arguments =
        row.arguments.iter().map(|word| if word == "PAIRS" { pairs.as_str() } else { word });
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(target.join(BUILT).join("examples/pairs"))
        .args(arguments)
        .output()
        .context("valgrind is not there; the package is called valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", row.name);
    collected(&said)
        .with_context(|| format!("{}: no count in what valgrind says: {said}", row.name))
}

/// Returns the number of `==7== Collected : 1234567`.
fn collected(said: &str) -> Option<u64> {
    let (_, rest) = said.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_leave_3_percent() {
        assert_eq!(verdict(103.0, 103.0), Verdict::Holds);
        assert_eq!(verdict(103.1, 103.0), Verdict::Above);
        assert_eq!(verdict(97.1, 103.0), Verdict::Holds);
        assert_eq!(verdict(96.9, 103.0), Verdict::Fell);
    }

    #[test]
    fn new_limits_stand_in_place_of_the_old() {
        let text = "# why\ncompiler = \"\"\n\n[[row]]\nlimit = 9.0\n\n[[row]]\nlimit = 1.5\n";
        let new = with_limits(text, "rustc 1", &[100.0, 7.0]);
        let wanted =
            "# why\ncompiler = \"rustc 1\"\n\n[[row]]\nlimit = 103.0\n\n[[row]]\nlimit = 7.2\n";
        assert_eq!(new, wanted);
    }

    #[test]
    fn the_count_is_read() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 1234\n"), Some(1234));
        assert_eq!(collected("valgrind: no"), None);
    }

    #[test]
    fn the_file_is_sound() {
        let counts: Counts = toml::from_str(include_str!("counts.toml")).unwrap();
        for row in &counts.row {
            assert!(row.few < row.many && row.limit > 0.0, "{}", row.name);
            assert_eq!(row.arguments.iter().filter(|word| *word == "PAIRS").count(), 1);
        }
    }
}
