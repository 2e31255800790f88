//! Two processes share a store of objects that stays usable to the last bytes.
//!
//! ```sh
//! cargo run --profile quick -p nofrag-backing --example object_store
//! cargo run --profile quick -p nofrag-backing --example object_store -- --mib 256 --seed 7 --json
//! ```
//!
//! This process owns the store. It fills it, deletes at random, and puts in larger objects, so that free space lies in
//! pieces. Another process (this program, started once more, with a socket for its standard input) has the descriptors
//! and reads every object by its handle while objects move, and checks that it is whole.
//!
//! Then the same requests go to the store and, beside it, to two allocators that cannot move what they have handed out,
//! each in one mapping of the same size: `contest`. Exit code 1 if an object is damaged, or the store refuses something
//! below 99 % live, or another one gets further than it.

mod contents;
mod contest;
mod reader;

use std::error::Error;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser;
use nofrag::check::Check as _;
use nofrag_backing::shared::Handle;
use nofrag_backing::store::{Config, ObjectStore, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use serde_json::json;

use contest::Outcome;
use reader::Reader;

/// Two processes share a store of objects that stays usable to the last bytes.
#[derive(Parser)]
struct Arguments {
    /// Size of the store in MiB.
    #[arg(long, default_value_t = 16)]
    mib: u64,
    /// The requests follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print figures as JSON.
    #[arg(long)]
    json: bool,
    /// Read what another process owns; it stands at the other end of the standard input.
    #[arg(long, hide = true)]
    reader: bool,
}

/// How the store stands after some requests.
struct Phase {
    name: &'static str,
    objects: u64,
    live_percent: f64,
    holes: u64,
    largest_kib: u64,
    moved_mib: f64,
    least_mib: f64,
    read: u64,
    picture: String,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    if arguments.reader {
        return reader::run();
    }
    let Arguments { mib, seed, json, .. } = arguments;
    let phases = share(mib << 20, seed)?;
    let outcomes = contest::run(mib << 20, seed)?;
    let [ours, others @ ..] = outcomes.as_slice() else { unreachable!("there are contestants") };
    let best_of_others = others.iter().map(|other| other.live_percent).fold(0.0, f64::max);
    let holds = ours.live_percent >= 99.0 && best_of_others < ours.live_percent;
    if json {
        println!("{}", report(&phases, &outcomes, holds));
    } else {
        print_table(mib, &phases, &outcomes);
        println!(
            "{}",
            if holds { "held" } else { "FAILED: refused below 99 %, or another one got further" }
        );
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Fills the store, deletes, and puts in larger objects, while another process reads.
fn share(bytes: u64, seed: u64) -> Result<Vec<Phase>, Box<dyn Error>> {
    let store = ObjectStore::create(Config::new(bytes))?;
    let mut reader = Reader::start(&store)?;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut live = Vec::new();
    let mut phases = Vec::new();

    while store.stats().live < bytes / 10 * 9 {
        live.push(put(&store, rng.next_u64(), rng.random_range(64..16 << 10))?);
    }
    phases.push(phase("filled", &store, &mut reader, &live)?);

    for _ in 0..live.len() / 2 {
        store.delete(live.swap_remove(rng.random_range(0..live.len())))?;
    }
    phases.push(phase("every other one deleted", &store, &mut reader, &live)?);

    // The reader goes over what stays, again and again, while all this moves it.
    reader.begin(&live)?;
    let mut larger = Vec::new();
    while store.stats().free > bytes / 50 {
        let size = rng.random_range(64 << 10..256 << 10).min(store.stats().free);
        larger.push(put(&store, rng.next_u64(), size)?);
    }
    reader.end()?;
    live.append(&mut larger);
    phases.push(phase("larger ones put in", &store, &mut reader, &live)?);

    for _ in 0..live.len() / 4 {
        store.delete(live.swap_remove(rng.random_range(0..live.len())))?;
    }
    phases.push(phase("a quarter deleted", &store, &mut reader, &live)?);
    store.compact(u64::MAX);
    phases.push(phase("compacted", &store, &mut reader, &live)?);
    reader.stop()?;
    Ok(phases)
}

fn put(store: &ObjectStore, seed: u64, bytes: u64) -> Result<Handle, StoreError> {
    let mut writer = store.create_object(bytes)?;
    contents::fill(&mut writer, seed);
    Ok(writer.seal())
}

/// How the store stands; every object is checked here and in the other process.
fn phase(
    name: &'static str,
    store: &ObjectStore,
    reader: &mut Reader,
    live: &[Handle],
) -> Result<Phase, Box<dyn Error>> {
    store.check()?;
    for &handle in live {
        if !contents::is_whole(&store.get(handle)?) {
            return Err(format!("{name}: {handle:?} is damaged").into());
        }
    }
    reader.begin(live)?;
    let read = reader.end()?;
    let stats = store.stats();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let shades = [
        ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
        '\u{2588}',
    ];
    Ok(Phase {
        name,
        objects: stats.objects,
        live_percent: stats.live as f64 * 100.0 / (stats.live + stats.free) as f64,
        holes: stats.holes,
        largest_kib: stats.largest >> 10,
        moved_mib: mib(stats.moved),
        least_mib: mib(stats.least),
        read,
        picture: store
            .picture(72)
            .into_iter()
            .map(|eighths| shades[usize::from(eighths)])
            .collect(),
    })
}

fn report(phases: &[Phase], outcomes: &[Outcome], holds: bool) -> serde_json::Value {
    let phases: Vec<_> = phases
        .iter()
        .map(|phase| {
            json!({ "name": phase.name, "objects": phase.objects, "live_percent": phase.live_percent,
                    "holes": phase.holes, "largest_kib": phase.largest_kib, "moved_mib": phase.moved_mib,
                    "least_mib": phase.least_mib, "read_by_the_other_process": phase.read })
        })
        .collect();
    let outcomes: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            json!({ "name": outcome.name, "live_percent_at_first_refusal": outcome.live_percent,
                    "requests": outcome.requests, "refused_bytes": outcome.refused_bytes,
                    "moved_mib": outcome.moved_mib })
        })
        .collect();
    json!({ "phases": phases, "contest": outcomes, "holds": holds })
}

fn print_table(mib: u64, phases: &[Phase], outcomes: &[Outcome]) {
    println!("a store of {mib} MiB, shared by two processes\n");
    println!(
        "{:<26}{:>8}{:>8}{:>7}{:>13}{:>12}{:>12}{:>12}",
        "", "objects", "live, %", "holes", "largest, KiB", "moved, MiB", "least, MiB", "read there"
    );
    for phase in phases {
        let Phase { name, objects, live_percent, holes, largest_kib, .. } = phase;
        print!("{name:<26}{objects:>8}{live_percent:>8.1}{holes:>7}{largest_kib:>13}");
        let Phase { moved_mib, least_mib, read, .. } = phase;
        println!("{moved_mib:>12.1}{least_mib:>12.1}{read:>12}");
    }
    let bold = std::io::stdout().is_terminal();
    println!("\nfrom the first byte to the last, how full each part is:");
    for phase in phases {
        let edge = if bold { "\u{1b}[2m|\u{1b}[0m" } else { "|" };
        println!("{edge}{}{edge} {}", phase.picture, phase.name);
    }
    println!(
        "\nthe same requests, in {mib} MiB each: 90 % live, then growing objects and less and less room"
    );
    println!(
        "{:<34}{:>24}{:>10}{:>14}{:>12}",
        "", "first refusal at live, %", "request", "of KiB", "moved, MiB"
    );
    for outcome in outcomes {
        let Outcome { name, live_percent, requests, refused_bytes, moved_mib } = outcome;
        let (kib, moved) =
            (refused_bytes >> 10, moved_mib.map_or("cannot".to_owned(), |mib| format!("{mib:.1}")));
        println!("{name:<34}{live_percent:>24.2}{requests:>10}{kib:>14}{moved:>12}");
    }
}
