//! `cargo xtask guests`: mmtests' thpfioscale on kernels of Debian, in guests that QEMU emulates.
//!
//! Each run of the plan (`cells`) is a guest: a kernel as Debian ships it (`debian`), an initramfs and a disk with
//! Debian's fio (`image`), emulated to its end (`guest`). Its first process (`init.sh`) runs the load and prints what
//! the kernel counted; that text (`console`, `names`) becomes rows (`rows`) in a file of its own. A run whose file is
//! there is not made again, so the queue can be stopped and continued at any time.

mod cells;
mod console;
mod debian;
mod guest;
mod image;
mod names;
mod rows;
mod shell;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use self::cells::Run;
use self::debian::Packages;
use self::image::{Boot, Images};

/// Event by which fallbacks between types are traced.
const EXTFRAG: &str = "mm_page_alloc_extfrag";
/// Programs that this machine must have; all else comes from Debian's packages.
const PROGRAMS: [&str; 7] = ["apt-get", "dpkg-deb", "sha256sum", "cc", "find", "cp", guest::QEMU];

const EXAMPLES: &str = "\
Examples:
  cargo xtask guests --list                     what is there and what is missing
  cargo xtask guests --only 6.1-centre          the three repeats of one cell
  cargo xtask guests --only 7.2-defrag-mode-r1  one run
  cargo xtask guests --jobs 2                   all that is missing, two guests at a time
  setsid nohup nice -n 10 cargo xtask guests > guests.log 2>&1 &
                                                the same beside other work; `kill -- -PID` ends it and its guests,
                                                the next call continues";

/// Request to the queue of guests.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Request {
    /// Make this cell (6.1-centre) or this run (6.1-centre-r2) alone; may be given more than once
    #[arg(long, value_name = "CELL")]
    only: Vec<String>,
    /// Print each cell with the repeats that are there and those that are missing, and make nothing
    #[arg(long)]
    list: bool,
    /// Make the runs that --only names anew, also where they are there
    #[arg(long, requires = "only")]
    again: bool,
    /// Number of guests that run at a time; each emulates 2 CPUs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Where the rows are, one file for each run
    #[arg(long, value_name = "DIR", default_value = "data/guests-2018")]
    out: PathBuf,
    /// Minutes that a guest of 1 GiB may take; larger ones have more in proportion
    #[arg(long, value_name = "MINUTES", default_value_t = 20)]
    limit: u64,
}

/// Makes the runs that are missing, or lists them; true when none is missing at the end.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let out = root.join(&request.out);
    let runs = cells::chosen(&request.only)?;
    if request.list {
        list(&runs, &out);
        return Ok(true);
    }
    if request.again {
        for run in &runs {
            forget(&file_of(&out, run))?;
        }
    }
    let missing: Vec<Run> =
        runs.iter().filter(|run| !file_of(&out, run).exists()).cloned().collect();
    if !missing.is_empty() {
        make(root, request, &out, missing)?;
    }
    let left: Vec<String> =
        runs.iter().filter(|run| !file_of(&out, run).exists()).map(Run::name).collect();
    println!("guests: {} of {} runs are there", runs.len() - left.len(), runs.len());
    if !left.is_empty() {
        println!("guests: missing: {}", left.join(", "));
    }
    Ok(left.is_empty())
}

fn file_of(out: &Path, run: &Run) -> PathBuf {
    out.join(format!("{}.json", run.name()))
}

fn forget(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn list(runs: &[Run], out: &Path) {
    let mut cells: Vec<(String, Vec<String>, Vec<String>)> = Vec::new();
    for run in runs {
        let at = cells.iter().position(|(cell, ..)| *cell == run.cell()).unwrap_or(cells.len());
        if at == cells.len() {
            cells.push((run.cell(), Vec::new(), Vec::new()));
        }
        let (_, there, missing) = &mut cells[at];
        let is_there = file_of(out, run).exists();
        if is_there { there } else { missing }.push(format!("r{}", run.repeat));
    }
    for (cell, there, missing) in cells {
        println!("{cell:<20} there: {:<30} missing: {}", there.join(" "), missing.join(" "));
    }
}

/// Makes these runs in their order, several at a time.
fn make(root: &Path, request: &Request, out: &Path, missing: Vec<Run>) -> anyhow::Result<()> {
    for program in PROGRAMS {
        if !super::ci::succeeds(Command::new(program).arg("--version")) {
            bail!("{program} is not installed; needed: {}", PROGRAMS.join(", "));
        }
    }
    let work = root.join("target/guests");
    fs::create_dir_all(&work)?;
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let lock = File::create(work.join("lock"))?;
    ensure!(lock.try_lock().is_ok(), "another `cargo xtask guests` is running here");
    let packages = Packages::fetch(&work.join("packages"))?;
    record(&packages, out)?;
    let images = Images::new(&packages, &work.join("images"))?;
    let disk = images.disk()?;
    let kernels: BTreeSet<&str> = missing.iter().map(|run| run.kernel).collect();
    let boots = kernels.into_iter().map(|kernel| Ok((kernel, images.boot(kernel)?)));
    let boots: BTreeMap<&str, Boot> = boots.collect::<anyhow::Result<_>>()?;
    let place = guest::Place {
        disk: &disk,
        folder: &work.join("runs"),
        limit: Duration::from_secs(request.limit * 60),
    };
    let queue = Mutex::new(missing.into_iter());
    let next = || queue.lock().expect("no thread panics with the lock").next();
    thread::scope(|scope| {
        for _ in 0..request.jobs {
            scope.spawn(|| {
                while let Some(run) = next() {
                    let begun = Instant::now();
                    let made = one(&run, &boots[run.kernel], &place, out);
                    let said = made.unwrap_or_else(|error| format!("failed: {error:#}"));
                    println!("guests: {} in {} s: {said}", run.name(), begun.elapsed().as_secs());
                }
            });
        }
    });
    Ok(())
}

/// Writes the packages of the guests beside the rows, or compares them with those written there: rows of one folder
/// have the same packages.
fn record(packages: &Packages, out: &Path) -> anyhow::Result<()> {
    let path = out.join("packages.json");
    let list = packages.list()?;
    if path.exists() {
        let written: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        ensure!(
            written == list,
            "the packages fetched are not those of {}; write to another folder with --out",
            path.display()
        );
        return Ok(());
    }
    Ok(fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")?)
}

/// Makes one run and writes its file, whole or not at all; returns its result in one line.
fn one(run: &Run, boot: &Boot, place: &guest::Place, out: &Path) -> anyhow::Result<String> {
    let console = guest::console_of(run, boot, place)?;
    let rows = rows::rows(run, &console)?;
    let rows = rows.as_array().context("rows are a list")?;
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    let file = file_of(out, run);
    let part = file.with_extension("part");
    fs::write(&part, format!("[\n{}\n]\n", lines.join(",\n")))?;
    fs::rename(&part, &file)?;
    let thp = &rows.last().context("a run has phases")?["thp"];
    Ok(format!("{} of {} units are huge", thp["huge"], thp["units"]))
}
