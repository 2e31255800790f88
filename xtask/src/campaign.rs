//! The campaign: tests that find faults by the number of their tries, in slices with fresh seeds.
//!
//! Each slice runs one part for a while and appends one line to `results/campaign/raw.jsonl`: its seed, what it
//! counted, the processor time that it took, the machine, the commit, and the outcome. Nothing is kept in memory
//! between two slices, so the campaign may be stopped at any time and goes on where it was. `summary.txt` beside the
//! lines has their sums; `tidy` compares the two. The next slice is always of the part that is farthest from its goals.

mod parts;
pub(crate) mod record;
mod refusals;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use crate::finding::Finding;
use crate::tree::Tree;
pub(crate) use parts::machine;
use parts::{PARTS, Part};
use record::{Sum, sums};

const FOLDER: &str = "results/campaign";

/// Parts of the campaign to run, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// Time to go on, in minutes; a slice that has begun is ended. With 0 the sums alone are written
    #[arg(long = "for", value_name = "MINUTES", default_value_t = 20)]
    minutes: u64,
    /// Length of a slice, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    slice: u64,
    /// Only these parts
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    only: Vec<String>,
}

/// Runs slices until the time is over; true if no slice failed.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let mut parts = chosen(&request.only)?;
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let end = Instant::now() + Duration::from_secs(request.minutes.saturating_mul(60));
    if request.minutes == 0 {
        parts.clear();
    }
    parts.retain(|part| match part.prepare(root) {
        Ok(()) => true,
        Err(why) => {
            println!("{}: skipped: {why:#}", part.name);
            false
        }
    });
    let mut passed = true;
    while Instant::now() < end && !parts.is_empty() {
        let slices = record::read(&folder)?;
        let sums = sums(&slices);
        let reached = |part: &Part| sums.get(part.name).map_or(0.0, |sum| part.reached(sum));
        let (at, part) = parts
            .iter()
            .enumerate()
            .min_by(|(_, a), (_, b)| reached(a).total_cmp(&reached(b)))
            .map(|(at, part)| (at, *part))
            .expect("a part is left");
        let left = end.saturating_duration_since(Instant::now()).as_secs().max(1);
        let slice = part.run(root, seed()?, request.slice.min(left))?;
        println!("{}", slice.line()?);
        record::append(&folder, &slice)?;
        if let Some(finding) = &slice.finding {
            // One report of a fault is enough; the other parts go on.
            eprintln!("{} FAILED: {finding}\nrepeat it with: {}", part.name, slice.repeat);
            parts.remove(at);
            passed = false;
        }
    }
    let slices = record::read(&folder)?;
    std::fs::write(folder.join("summary.txt"), summary(&slices))?;
    Ok(passed)
}

fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Part>> {
    if let Some(unknown) = only.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        bail!("there is no part `{unknown}`; parts are {}", names.join(", "));
    }
    let is_chosen = |part: &&Part| only.is_empty() || only.iter().any(|name| name == part.name);
    Ok(PARTS.iter().filter(is_chosen).collect())
}

/// Draws a seed that no slice has had before, but by chance.
fn seed() -> anyhow::Result<u64> {
    use std::io::Read;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    // JSON readers keep 53 bits, and each slice counts on from its seed.
    Ok(u64::from_le_bytes(bytes) >> 12)
}

/// Writes the sums of all slices beside the goals.
fn summary(slices: &[record::Slice]) -> String {
    let sums = sums(slices);
    let mut text = String::from(
        "part          counted          of goal            processor s  of goal  slices  failed  what is counted\n",
    );
    for part in PARTS {
        let Sum { count, seconds, slices, failed } =
            sums.get(part.name).copied().unwrap_or_default();
        let goal = part.goal.count.map_or("-".into(), |goal| goal.to_string());
        let wanted = part.goal.seconds.map_or("-".into(), |goal| goal.to_string());
        text += &format!(
            "{:<13} {count:<16} {goal:<18} {seconds:<12.0} {wanted:<8} {slices:<7} {failed:<7} {}\n",
            part.name, part.counts
        );
    }
    let covered = record::covered(slices);
    if !covered.is_empty() {
        text += "\nhost: calls that were refused once, of those that the program makes\n";
    }
    for ((program, error), (seen, total)) in covered {
        text += &format!("{program:<13} {error:<7} {seen} of {total}\n");
    }
    text
}

/// Checks that the sums are those of the slices that are kept.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let lines = tree.text(&format!("{FOLDER}/raw.jsonl")).unwrap_or_default();
    let path = format!("{FOLDER}/summary.txt");
    let remedy = "run `cargo xtask campaign --for 0`, which writes the sums";
    match record::parse::<record::Slice>(lines) {
        Err(why) => {
            let raw = format!("{FOLDER}/raw.jsonl");
            vec![Finding::new("campaign", &raw, 1, format!("{why:#}"), "take the line out")]
        }
        Ok(slices) if slices.is_empty() => Vec::new(),
        Ok(slices) if tree.text(&path) == Some(summary(&slices).as_str()) => Vec::new(),
        Ok(_) => {
            let wrong = "the sums are not those of raw.jsonl";
            vec![Finding::new("campaign", &path, 1, wrong, remedy)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count: u64, seconds: f64, outcome: &str) -> String {
        let line = serde_json::json!({
            "part": "ranges", "seed": 7, "count": count, "seconds": seconds, "machine": "m",
            "commit": "c", "outcome": outcome, "finding": null, "repeat": "r"
        });
        format!("{line}\n")
    }

    fn lines() -> String {
        line(100, 2.5, "held") + &line(11, 1.0, "failed")
    }

    #[test]
    fn sums_are_added_up_and_nothing_else() {
        let slices: Vec<record::Slice> = record::parse(&lines()).unwrap();
        let sum = sums(&slices)["ranges"];
        assert_eq!((sum.count, sum.seconds, sum.slices, sum.failed), (111, 3.5, 2, 1));
        let text = summary(&slices);
        let ranges = text.lines().find(|line| line.starts_with("ranges")).unwrap();
        assert!(ranges.starts_with("ranges        111 "), "{ranges}");
    }

    #[test]
    fn refused_calls_are_covered_once() {
        let of = |error: &str, first: u64, count: u64| {
            let refused = serde_json::json!({ "program": "host", "error": error, "first": first, "total": 10 });
            let mut slice: serde_json::Value =
                serde_json::from_str(&line(count, 1.0, "held")).unwrap();
            slice["refused"] = refused;
            format!("{slice}\n")
        };
        let lines = [of("EIO", 8, 4), of("EIO", 1, 3), of("EINTR", 0, 10)].concat();
        let text = summary(&record::parse(&lines).unwrap());
        assert!(
            text.ends_with("host          EINTR   10 of 10\nhost          EIO     6 of 10\n"),
            "{text}"
        );
    }

    #[test]
    fn a_summary_that_is_not_the_sum_is_found() {
        let sums = summary(&record::parse(&lines()).unwrap());
        let of = |sums: &str| {
            let lines = lines();
            let raw = ("results/campaign/raw.jsonl", lines.as_str());
            check(&Tree::of(&[raw, ("results/campaign/summary.txt", sums)])).len()
        };
        assert_eq!(of(&sums), 0);
        assert_eq!(of(&sums.replace("111", "1000000000")), 1);
        assert_eq!(check(&Tree::of(&[("results/campaign/raw.jsonl", "{}\n")])).len(), 1);
    }

    #[test]
    fn the_part_that_is_farthest_from_a_goal_comes_first() {
        let part = PARTS.iter().find(|part| part.name == "ranges").unwrap();
        let of = |count, seconds| part.reached(&Sum { count, seconds, slices: 1, failed: 0 });
        assert!(of(100_000_000, 1.0) < of(100_000_000, 900.0));
        assert!(of(1, 1800.0) < of(100_000_000, 1800.0));
        assert_eq!(of(200_000_000, 3600.0), 2.0);
        assert!(chosen(&["no-such-part".to_owned()]).is_err());
    }
}
