//! The lines of the campaign: one per slice, and their sums.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Held,
    Failed,
}

/// One slice, as its line says it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Slice {
    pub(super) part: String,
    pub(super) seed: u64,
    /// Number of things that the part counts, as its program counted them.
    pub(super) count: u64,
    /// Seconds of a processor, in user and kernel.
    pub(super) seconds: f64,
    pub(super) machine: String,
    pub(super) commit: String,
    pub(super) outcome: Outcome,
    /// The last that the program said, if it failed.
    pub(super) finding: Option<String>,
    /// Calls that the slice refused, if it refuses any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<Refused>,
    /// The command that runs this slice again.
    pub(super) repeat: String,
}

/// The calls of a program that a slice refused: as many as it counted, from one of them on, and then from the first on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refused {
    pub(super) program: String,
    pub(super) error: String,
    pub(super) first: u64,
    /// Number of calls that the program makes: the first eight of each name.
    pub(super) total: u64,
}

impl Slice {
    pub(super) fn line(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}

/// The slices of a part, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) seconds: f64,
    pub(super) slices: u64,
    pub(super) failed: u64,
}

pub(super) fn sums(slices: &[Slice]) -> BTreeMap<&str, Sum> {
    let mut sums = BTreeMap::<&str, Sum>::new();
    for slice in slices {
        let sum = sums.entry(&slice.part).or_default();
        sum.count += slice.count;
        sum.seconds += slice.seconds;
        sum.slices += 1;
        sum.failed += u64::from(slice.outcome == Outcome::Failed);
    }
    sums
}

/// Returns the number of calls of each program that were refused at least once with each error, and the number that the
/// program makes.
pub(super) fn covered(slices: &[Slice]) -> BTreeMap<(&str, &str), (u64, u64)> {
    let mut calls = BTreeMap::<(&str, &str), (BTreeSet<u64>, u64)>::new();
    for slice in slices {
        let Some(Refused { program, error, first, total }) = &slice.refused else { continue };
        let (seen, last) = calls.entry((program, error)).or_default();
        seen.extend((0..slice.count).map(|at| (first + at) % total.max(&1)));
        // A program makes some calls more or fewer from run to run.
        *last = *total;
    }
    let counted = calls.into_iter().map(|(of, (seen, total))| {
        let covered = seen.range(..total).count() as u64;
        (of, (covered, total))
    });
    counted.collect()
}

/// Reads lines of which each is a value.
pub(crate) fn parse<T: DeserializeOwned>(lines: &str) -> anyhow::Result<Vec<T>> {
    let numbered = lines.lines().enumerate();
    numbered
        .map(|(at, line)| {
            serde_json::from_str(line).with_context(|| format!("line {} cannot be read", at + 1))
        })
        .collect()
}

/// Reads `raw.jsonl` of a folder; nothing if there is none.
pub(crate) fn read<T: DeserializeOwned>(folder: &Path) -> anyhow::Result<Vec<T>> {
    let path = folder.join("raw.jsonl");
    match std::fs::read_to_string(&path) {
        Ok(lines) => parse(&lines).with_context(|| path.display().to_string()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(why).with_context(|| path.display().to_string()),
    }
}

/// Appends a line in one write, so that what is stopped leaves whole lines.
pub(crate) fn append<T: Serialize>(folder: &Path, value: &T) -> anyhow::Result<()> {
    let path = folder.join("raw.jsonl");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
    file.write_all(format!("{}\n", serde_json::to_string(value)?).as_bytes())?;
    Ok(())
}
