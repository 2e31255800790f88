//! Many recordings under many policies, by as many processes as there are.
//!
//! A *plan* is a file; it expands to *tasks*, each as small as a result can be: one recording under one policy with one
//! size of memory and one seed. A task's *id* is the hash of everything that decides on its result, the recording's
//! bytes among them. Its result is a file of that name. From this follows the rest, without anybody who coordinates:
//!
//! 1. A result is written whole or not at all: beside its place, then renamed.
//! 2. A task whose result is there is not carried out again, whoever made it. Two processes that carry out the same
//!    task at once write the same bytes.
//! 3. A *shard* is a stretch of the tasks in the plan's order, so that a recording is read by few shards.
//! 4. [`merge`] writes the results in the plan's order, or says which are missing. Shards of any number, killed and
//!    begun again as often as may be, come to the same bytes as one process.
//!
//! Costs: a task reads its recording anew, since what several policies share by reading it once is less than what they
//! would lose together when a process is killed. Files, bottom up: `task`, `plan`.

mod plan;
mod task;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;

use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;

use crate::jobs::{self, About};
use crate::saved::replace;
use crate::scenario::Progress;
use task::{NotNow, Task};

pub use plan::Plan;

/// The reason why a sweep ended.
#[derive(Debug, Error)]
pub enum SweepError {
    /// The plan cannot be understood.
    #[error("{0}: {1}")]
    Plan(PathBuf, String),
    /// A file cannot be read or written.
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    /// Results are not there yet.
    #[error(
        "{missing} of {of} results are missing, the first of {first}; nothing was written: run the sweep again with \
         the same folder, which does what is missing, or name the folders of all shards"
    )]
    Missing {
        missing: usize,
        of: usize,
        /// The recording or scenario of the first one.
        first: String,
    },
    /// A file is not the result that its name says.
    #[error("{0}: this is not the result of its task: remove it, and run the sweep again")]
    Strange(PathBuf),
    /// The tasks of a recording cannot be told apart from others without its bytes.
    #[error("{0}")]
    Unread(String),
}

impl SweepError {
    fn file(path: &Path) -> impl FnOnce(io::Error) -> SweepError + '_ {
        move |cause| SweepError::File { path: path.to_owned(), cause }
    }
}

/// A part of a plan, counted from one: `3/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// The whole plan.
    pub const WHOLE: Shard = Shard { number: 1, of: 1 };

    /// Returns the shard's part of `tasks`. The parts of all shards are the whole, and differ by one task at most.
    fn part<T>(self, tasks: &[T]) -> &[T] {
        let bound = |shard: usize| (tasks.len() as u128 * shard as u128 / self.of as u128) as usize;
        &tasks[bound(self.number - 1)..bound(self.number)]
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| {
            Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        let is_one = |shard: &Shard| (1..=shard.of).contains(&shard.number);
        numbers.filter(is_one).ok_or_else(|| {
            format!(
                "a shard is its number and how many there are, such as 1/8 to 8/8, not {text:?}"
            )
        })
    }
}

/// The ends of the tasks of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Swept {
    /// Tasks of the shard.
    pub tasks: u64,
    /// Results that were there already.
    pub kept: u64,
    /// Results that were made.
    pub made: u64,
    /// Reasons why tasks have no result, as sentences: a recording that cannot be read, or too little memory for it.
    pub not_done: Vec<String>,
}

impl Swept {
    /// Returns the number of tasks without a result.
    #[must_use]
    pub fn lacking(&self) -> u64 {
        self.tasks - self.kept - self.made
    }
}

enum Ended {
    Kept,
    Made,
    NotDone(String),
}

/// Carries out the tasks of a shard whose results are not in the folder `out`, `threads` at a time (0: one per CPU).
///
/// # Errors
/// [`SweepError::File`] where a result cannot be written.
pub fn sweep(
    plan: &Plan,
    shard: Shard,
    out: &Path,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Swept, SweepError> {
    let threads = match threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    fs::create_dir_all(out).map_err(SweepError::file(out))?;
    let tasks = shard.part(&plan.tasks);
    let about = |task: &Task| About { length: 1, steps: 1, what: task.name(plan).to_owned() };
    let ended = jobs::run_all(threads, tasks, about, |task| done(plan, task, out), progress)?;
    let mut swept = Swept { tasks: tasks.len() as u64, ..Swept::default() };
    for ended in ended {
        match ended {
            Ended::Kept => swept.kept += 1,
            Ended::Made => swept.made += 1,
            Ended::NotDone(why) => swept.not_done.push(why),
        }
    }
    swept.not_done.dedup();
    Ok(swept)
}

fn done(plan: &Plan, task: &Task, out: &Path) -> Result<Ended, SweepError> {
    let path = match task.keyed(plan) {
        Ok((id, _)) => place(out, &id),
        Err(NotNow(why)) => return Ok(Ended::NotDone(why)),
    };
    if path.exists() {
        return Ok(Ended::Kept);
    }
    let line = match task.line(plan) {
        Ok(line) => line,
        Err(NotNow(why)) => return Ok(Ended::NotDone(why)),
    };
    let folder = path.parent().expect("a result lies in a folder");
    fs::create_dir_all(folder).map_err(SweepError::file(folder))?;
    replace(&path, line.as_bytes(), None).map_err(SweepError::file(&path))?;
    Ok(Ended::Made)
}

/// Returns the place of a result.
fn place(out: &Path, id: &str) -> PathBuf {
    out.join(&id[..2]).join(id).with_extension("json")
}

/// Returns a result's line with the name of its recording or scenario in front; `None` if it is no object.
fn named(name: &str, line: &str) -> Option<String> {
    let fields = line.strip_prefix('{')?;
    Some(format!("{{\"name\":{},{fields}", json!(name)))
}

/// The results of a plan in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Merged {
    /// Lines, one for each task of the plan.
    pub lines: u64,
    pub bytes: u64,
    /// Tasks that ended with a fault of their recording or design.
    pub failed: u64,
    /// SHA-256 of the file.
    pub sha256: String,
}

/// Writes the results of all tasks to `to`, a line each, in the order of the plan, with the name of its recording or
/// scenario. They may lie in several folders. Nothing is written while one is missing.
///
/// # Errors
/// [`SweepError`], which says what is missing.
pub fn merge(plan: &Plan, folders: &[PathBuf], to: &Path) -> Result<Merged, SweepError> {
    #[derive(Deserialize)]
    struct Head {
        id: String,
        failed: Option<String>,
    }
    let mut places = Vec::with_capacity(plan.len());
    let mut missing = Vec::new();
    for task in &plan.tasks {
        let (id, _) = task.keyed(plan).map_err(|NotNow(why)| SweepError::Unread(why))?;
        let found = folders.iter().map(|folder| place(folder, &id)).find(|path| path.is_file());
        match found {
            Some(path) => places.push((task, id, path)),
            None => missing.push(task.name(plan)),
        }
    }
    if let [first, ..] = missing[..] {
        let (missing, of, first) = (missing.len(), plan.len(), first.to_owned());
        return Err(SweepError::Missing { missing, of, first });
    }
    let mut merged = Merged { lines: 0, bytes: 0, failed: 0, sha256: String::new() };
    let mut all = Vec::new();
    for (task, id, path) in places {
        let text = fs::read_to_string(&path).map_err(SweepError::file(&path))?;
        let head: Option<Head> = serde_json::from_str(&text).ok();
        let head = head.filter(|head| head.id == id && text.ends_with("}\n"));
        let head = head.ok_or_else(|| SweepError::Strange(path.clone()))?;
        merged.failed += u64::from(head.failed.is_some());
        let named = named(task.name(plan), &text).ok_or(SweepError::Strange(path))?;
        all.extend_from_slice(named.as_bytes());
        merged.lines += 1;
    }
    merged.bytes = all.len() as u64;
    merged.sha256 = crate::sha256::sha256(&all);
    replace(to, &all, None).map_err(SweepError::file(to))?;
    Ok(merged)
}
