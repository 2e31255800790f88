//! Guests that QEMU emulates, for the tasks that let kernels of Debian run (`guests`, `recordings`, `states`).
//!
//! Each run of a task's plan is a guest: a kernel as Debian ships it (`debian`), an initramfs and a disk (`image`),
//! emulated to its end (`machine`). Its first process (`boot.sh`, then the task's own script) prints what the kernel
//! counted; that text (`console`) becomes rows in a file of the run. A run whose file is there is not made again, so
//! the queue can be stopped and continued at any time.

pub(crate) mod console;
mod debian;
pub(crate) mod image;
pub(crate) mod machine;
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

use self::debian::Packages;
use self::image::{Boot, Contents, Images};
use self::machine::Place;
pub(crate) use self::shell::succeed;

/// Programs that this machine must have; all else comes from Debian's packages.
const PROGRAMS: [&str; 8] =
    ["apt-get", "dpkg-deb", "sha256sum", "cc", "find", "cp", "tar", machine::QEMU];

/// Words of the command line that halve what emulation has to clear, and spare it the instruction that clears byte by
/// byte (`rep stosb`, advertised by ERMS, bit 297).
pub(crate) const FASTER: &str = "init_on_alloc=0 clearcpuid=297";

/// Request to the queue of a task.
#[derive(clap::Args)]
pub(crate) struct Queue {
    /// Make this cell or this run alone, by its name in --list; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print the names of all, with what is there and what is missing, and make nothing
    #[arg(long)]
    list: bool,
    /// Make the runs that --only names anew, also where they are there
    #[arg(long, requires = "only")]
    again: bool,
    /// Number of guests that run at a time, each of up to 2 CPUs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Where the rows are [default: the task's folder in data]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Minutes that a guest of 1 GiB may take; larger ones have more in proportion
    #[arg(long, value_name = "MINUTES", default_value_t = 20)]
    limit: u64,
}

impl Queue {
    /// Returns true if guests are to run.
    pub(crate) fn makes(&self) -> bool {
        !self.list
    }
}

/// A guest to run.
pub(crate) trait Run: Clone + Send + Sync {
    /// Returns the name of the runs that repeat this one.
    fn cell(&self) -> String;

    /// Returns the cell's name and what tells the repeats apart.
    fn name(&self) -> String;

    fn kernel(&self) -> &'static str;

    /// Returns the path of the file that is there when the run is made, in the folder of its task.
    fn file(&self) -> PathBuf;

    /// Makes the run, its file last; returns its result in one line.
    fn make(&self, boot: &Boot, place: &Place) -> anyhow::Result<String>;
}

/// A task: its runs in the order of their worth, and what they need.
pub(crate) struct Task<R> {
    pub(crate) name: &'static str,
    pub(crate) runs: Vec<R>,
    pub(crate) contents: Contents,
    /// Folder of the rows, unless the request names another.
    pub(crate) out: &'static str,
}

impl<R: Run> Task<R> {
    /// Makes the runs that are missing, or lists them; true when none is missing at the end.
    pub(crate) fn run(&self, root: &Path, queue: &Queue) -> anyhow::Result<bool> {
        let out = root.join(queue.out.as_deref().unwrap_or(Path::new(self.out)));
        let runs = chosen(self.name, &self.runs, &queue.only)?;
        let missing = || runs.iter().filter(|run| !out.join(run.file()).exists());
        if queue.list {
            list(&runs, &out);
            return Ok(true);
        }
        if queue.again {
            for run in &runs {
                forget(&out.join(run.file()))?;
            }
        }
        if missing().next().is_some() {
            self.make(root, queue, &out, missing().cloned().collect())?;
        }
        let left: Vec<String> = missing().map(Run::name).collect();
        println!("{}: {} of {} runs are there", self.name, runs.len() - left.len(), runs.len());
        if !left.is_empty() {
            println!("{}: missing: {}", self.name, left.join(", "));
        }
        Ok(left.is_empty())
    }

    /// Makes these runs in their order, several at a time.
    fn make(&self, root: &Path, queue: &Queue, out: &Path, missing: Vec<R>) -> anyhow::Result<()> {
        for program in PROGRAMS {
            if !super::ci::succeeds(Command::new(program).arg("--version")) {
                bail!("{program} is not installed; needed: {}", PROGRAMS.join(", "));
            }
        }
        let work = root.join("target/guests");
        fs::create_dir_all(&work)?;
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let lock = File::create(work.join("lock"))?;
        ensure!(lock.try_lock().is_ok(), "another task runs guests here");
        let kernels: BTreeSet<&str> = missing.iter().map(Run::kernel).collect();
        let packages = Packages::fetch(&work.join("packages"), &kernels)?;
        record(&packages, out)?;
        let images = Images::new(&packages, &work.join("images"))?;
        let disk = images.disk()?;
        let boot = |kernel| Ok((kernel, images.boot(kernel, &self.contents)?));
        let boots: BTreeMap<&str, Boot> =
            kernels.into_iter().map(boot).collect::<anyhow::Result<_>>()?;
        let place = Place {
            disk: &disk,
            folder: &work.join("runs"),
            limit: Duration::from_secs(queue.limit * 60),
            out,
            root,
        };
        let left = Mutex::new(missing.into_iter());
        let next = || left.lock().expect("no thread panics with the lock").next();
        thread::scope(|scope| {
            for _ in 0..queue.jobs {
                scope.spawn(|| {
                    while let Some(run) = next() {
                        let begun = Instant::now();
                        let made = run.make(&boots[run.kernel()], &place);
                        let said = made.unwrap_or_else(|error| format!("failed: {error:#}"));
                        let seconds = begun.elapsed().as_secs();
                        println!("{}: {} in {seconds} s: {said}", self.name, run.name());
                    }
                });
            }
        });
        Ok(())
    }
}

/// Returns the runs that bear one of these names, of a cell or of a run; all of them if there is no name.
pub(crate) fn chosen<R: Run>(task: &str, runs: &[R], names: &[String]) -> anyhow::Result<Vec<R>> {
    let bears = |run: &R, name: &String| run.cell() == *name || run.name() == *name;
    for name in names {
        if !runs.iter().any(|run| bears(run, name)) {
            bail!("there is no cell and no run {name}; `cargo xtask {task} --list` names them");
        }
    }
    let is_meant = |run: &&R| names.is_empty() || names.iter().any(|name| bears(run, name));
    Ok(runs.iter().filter(is_meant).cloned().collect())
}

fn forget(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn list<R: Run>(runs: &[R], out: &Path) {
    let mut cells: Vec<(String, Vec<String>, Vec<String>)> = Vec::new();
    for run in runs {
        let at = cells.iter().position(|(cell, ..)| *cell == run.cell()).unwrap_or(cells.len());
        if at == cells.len() {
            cells.push((run.cell(), Vec::new(), Vec::new()));
        }
        let (cell, there, missing) = &mut cells[at];
        let name = run.name();
        let repeat = name.strip_prefix(&format!("{cell}-")).unwrap_or("yes");
        let is_there = out.join(run.file()).exists();
        if is_there { there } else { missing }.push(repeat.to_owned());
    }
    for (cell, there, missing) in cells {
        println!("{cell:<20} there: {:<30} missing: {}", there.join(" "), missing.join(" "));
    }
}

/// Writes the packages of the guests beside the rows, or adds them to those written there: rows of one folder have the
/// same packages.
fn record(packages: &Packages, out: &Path) -> anyhow::Result<()> {
    let path = out.join("packages.json");
    let mut all = match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => serde_json::Map::new(),
    };
    for (name, package) in packages.list()? {
        let written = all.entry(&name).or_insert_with(|| package.clone());
        ensure!(
            *written == package,
            "{name} is not the package of {}; write to another folder with --out",
            path.display()
        );
    }
    Ok(fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")?)
}

/// Writes rows to a file, a line each, whole or not at all.
pub(crate) fn write_rows(rows: &[Value], file: &Path) -> anyhow::Result<()> {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    let part = file.with_extension("part");
    fs::write(&part, format!("[\n{}\n]\n", lines.join(",\n")))?;
    Ok(fs::rename(&part, file)?)
}
