//! The cost of an arena beside `mmap` and `munmap`: all ways in turn, several times, ratios of medians.
//!
//! ```sh
//! cargo run --release -p nofrag-backing --example arena_bench -- [WHAT]... [RUNS]
//! ```
//!
//! WHAT is `churn`, `steady`, `waves`, `latency`, `areas` or `fast`. The last makes only parked allocations and frees,
//! through a handle and through a shared arena: the program for callgrind. Without a word everything but `fast` is
//! measured.

use std::error::Error;

use nofrag_backing::arena::measure::{
    Beside, Latency, Measured, Touch, Way, Work, areas, churn, latency, steady, waves,
};
use nofrag_backing::arena::{Arena, Config, OwnerHandle, OwnerId, Owners, Run};
use nofrag_backing::backend::Anonymous;

const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runs = arguments.last().and_then(|last| last.parse().ok()).unwrap_or(100_000);
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| word.parse::<u64>().is_err()).collect();
    let words =
        if words.is_empty() { vec!["churn", "steady", "waves", "latency", "areas"] } else { words };
    for word in words {
        match word {
            "churn" => show_churn(runs)?,
            "steady" => show_steady(runs)?,
            "waves" => show_waves(runs)?,
            "latency" => show_latency(runs)?,
            "areas" => show_areas(runs)?,
            "fast" => fast(runs)?,
            other => return Err(format!("there is nothing named {other}").into()),
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

type Measurement<'a> = dyn Fn(Way) -> Result<Measured, Box<dyn Error>> + 'a;

/// Measures each way in turn, several times; prints a line for each with its factor over the system in the same round.
fn compare(title: &str, one: &Measurement<'_>) -> Result<(), Box<dyn Error>> {
    let ways = [Way::System, Way::Shared, Way::Held];
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push([one(ways[0])?, one(ways[1])?, one(ways[2])?]);
    }
    println!("{title}");
    for (at, way) in ways.into_iter().enumerate() {
        let ns = median(rounds.iter().map(|round| round[at].ns).collect());
        let factor = median(rounds.iter().map(|round| round[0].ns / round[at].ns).collect());
        let Measured { calls, purged, .. } = rounds[ROUNDS - 1][at];
        println!(
            "  {way:?}: {ns:.1} ns, {factor:.1}x; per run {calls:.3} calls, {purged:.2} pages purged"
        );
    }
    Ok(())
}

fn show_churn(runs: u64) -> Result<(), Box<dyn Error>> {
    for touch in [Touch::First, Touch::All] {
        let title = format!("64 live runs of 1 to 64 pages, {touch:?} page touched");
        compare(&title, &|way| {
            // The system is slow enough to be measured in fewer rounds.
            let runs = if way == Way::System { runs / 10 } else { runs };
            Ok(churn(way, Work::spec(runs.max(1), touch))?)
        })?;
    }
    Ok(())
}

fn show_steady(runs: u64) -> Result<(), Box<dyn Error>> {
    for threads in [1, 2] {
        let title =
            format!("16 to 64 live runs, purged by decay, first page touched, {threads} threads");
        compare(&title, &|way| {
            let runs = if way == Way::System { runs / 10 } else { runs };
            Ok(steady(way, threads, Work::spec(runs.max(64), Touch::First))?)
        })?;
    }
    Ok(())
}

fn show_waves(runs: u64) -> Result<(), Box<dyn Error>> {
    for threads in [1, 2] {
        let title =
            format!("waves of 64 runs, purged after each, first page touched, {threads} threads");
        let work = Work::spec((runs / 10).max(64), Touch::First);
        compare(&title, &|way| Ok(waves(way, threads, work)?))?;
    }
    Ok(())
}

fn show_latency(runs: u64) -> Result<(), Box<dyn Error>> {
    println!("single allocations beside a thread that makes waves");
    let (mut quiet, mut purging) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let work = Work::spec(runs.max(1000), Touch::First);
        quiet.push(latency(Beside::Waves, work)?);
        purging.push(latency(Beside::PurgedWaves, work)?);
    }
    let p999 = |found: &[Latency]| median(found.iter().map(|one| one.p999_ns as f64).collect());
    for (name, found) in [("without purges", &quiet), ("with purges", &purging)] {
        let Latency { median_ns, most_ns, purged, .. } = found[ROUNDS - 1];
        let p999 = p999(found);
        println!(
            "  {name}: median {median_ns} ns, p99.9 {p999} ns, most {most_ns} ns, {purged} pages purged"
        );
    }
    println!("  p99.9 with over without: {:.2}", p999(&purging) / p999(&quiet));
    Ok(())
}

fn show_areas(runs: u64) -> Result<(), Box<dyn Error>> {
    let found = areas(runs, 64, 1)?;
    println!("{found:?}");
    Ok(())
}

/// Makes parked allocations and frees, through a handle and then shared; nothing is touched.
fn fast(runs: u64) -> Result<(), Box<dyn Error>> {
    let arena = Arena::reserve(1 << 30, Config { owners: Owners::Count(1), ..Config::default() })?;
    for pages in 1..=64 {
        arena.free(arena.alloc(OwnerId(0), pages, 1)?)?;
    }
    fast_held(&mut arena.owner(OwnerId(0))?, runs)?;
    fast_shared(&arena, runs)
}

#[inline(never)]
fn fast_held(owner: &mut OwnerHandle<'_, Anonymous>, runs: u64) -> Result<(), Box<dyn Error>> {
    for at in 0..runs {
        let run: Run = owner.alloc(at % 64 + 1, 1)?;
        owner.free(run)?;
    }
    Ok(())
}

#[inline(never)]
fn fast_shared(arena: &Arena, runs: u64) -> Result<(), Box<dyn Error>> {
    for at in 0..runs {
        let run: Run = arena.alloc(OwnerId(0), at % 64 + 1, 1)?;
        arena.free(run)?;
    }
    Ok(())
}
