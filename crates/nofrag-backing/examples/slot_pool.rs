//! Twenty thousand sandboxes, each with a guarded memory of its own, in one area of the process.
//!
//! ```sh
//! cargo run --release -p nofrag-backing --example slot_pool
//! cargo run --release -p nofrag-backing --example slot_pool -- --slots 30000 --json
//! ```
//!
//! A pool and, beside it, one mapping with a guard for each sandbox: two areas each, of which Linux allows a process
//! some 65,000 (`vm.max_map_count`). Each sandbox finds its memory zero, writes to it, and goes; the next one gets the
//! same memory. Exit code 1 if contents reached another sandbox, or the pool took more areas than expected.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use nofrag::mmap::Protection;
use nofrag::ranges::Span;
use nofrag_backing::faults;
use nofrag_backing::reservation::Reservation;
use nofrag_backing::shapes::{Guards, PoolSizes, Slot, SlotPool};
use serde_json::json;

/// Many sandboxes with guarded memories in one area.
#[derive(Parser)]
struct Arguments {
    /// Sandboxes that live at once.
    #[arg(long, default_value_t = 20_000)]
    slots: u32,
    /// KiB of each memory.
    #[arg(long, default_value_t = 256)]
    kib: usize,
    /// KiB of the guard behind each memory.
    #[arg(long, default_value_t = 64)]
    guard_kib: usize,
    /// Pages that each sandbox touches.
    #[arg(long, default_value_t = 2)]
    touch: usize,
    /// Purge once this many memories have been given back.
    #[arg(long, default_value_t = 64)]
    batch: u32,
    /// Print figures as JSON.
    #[arg(long)]
    json: bool,
}

/// Costs of one way to give sandboxes their memories: a pool, or a mapping for each.
#[derive(Default)]
struct Taken {
    sandboxes: u64,
    seconds: f64,
    areas: usize,
    calls: u64,
    leaks: u64,
}

/// Acts as a sandbox: looks whether its memory is zero, and writes to it. Returns true if it was zero.
fn use_memory(memory: &mut [u8], pages: usize) -> bool {
    let touched = memory.chunks_mut(4096).take(pages);
    touched.fold(true, |was_zero, page| {
        let was_zero = was_zero && page[0] == 0 && page[page.len() - 1] == 0;
        page[0] = 0xa5;
        page[page.len() - 1] = 0x5a;
        was_zero
    })
}

fn with_pool(
    pool: &SlotPool,
    arguments: &Arguments,
    areas_before: usize,
) -> Result<Taken, Box<dyn Error>> {
    let mut taken = Taken::default();
    let before = faults::made();
    let begin = Instant::now();
    // Two generations; between them every third sandbox goes and another one comes, a hundred at a time.
    let mut live: Vec<Slot<'_>> = Vec::new();
    for _ in 0..arguments.slots {
        live.push(pool.take()?);
    }
    taken.sandboxes = live.len() as u64;
    for slot in &mut live {
        taken.leaks += u64::from(!use_memory(slot, arguments.touch));
    }
    for round in 0..live.len() / 300 {
        let gone = live.len() / 3;
        let first = round * 100 % gone;
        live.drain(first..(first + 100).min(live.len()));
        while live.len() < arguments.slots as usize {
            let mut slot = pool.take()?;
            taken.leaks += u64::from(!use_memory(&mut slot, arguments.touch));
            taken.sandboxes += 1;
            live.push(slot);
        }
    }
    taken.areas = own_areas()?.saturating_sub(areas_before);
    drop(live);
    taken.seconds = begin.elapsed().as_secs_f64();
    taken.calls = faults::made().since(&before).total();
    Ok(taken)
}

/// Makes a mapping with a guard for each sandbox, until the system refuses; returns the costs, and the message of the
/// refusal if there was one.
fn with_mappings(
    arguments: &Arguments,
    areas_before: usize,
) -> Result<(Taken, Option<String>), Box<dyn Error>> {
    let mut taken = Taken::default();
    let memory_pages = (arguments.kib << 10).div_ceil(4096) as u64;
    let guard_pages = (arguments.guard_kib << 10).div_ceil(4096).max(1) as u64;
    let bytes = ((memory_pages + guard_pages) as usize) << 12;
    let wanted = arguments.slots.max(40_000);
    // At the limit this process cannot get memory for itself either: it allocates all of it before.
    let mut live: Vec<Reservation> = Vec::with_capacity(wanted as usize);
    let begin = Instant::now();
    let mut refusal = None;
    // As many as fit, and some more than that: the measurement is about where the end is.
    for _ in 0..wanted {
        let made = Reservation::new(bytes, Protection::READ_WRITE).and_then(|mut mapping| {
            let guard = Span::sized(mapping.pages().start() + memory_pages, guard_pages)
                .expect("not empty");
            mapping.protect(guard, Protection::NONE)?;
            Ok(mapping)
        });
        match made {
            Ok(mapping) => live.push(mapping),
            Err(why) => {
                refusal = Some(why.to_string());
                break;
            }
        }
    }
    taken.sandboxes = live.len() as u64;
    // Reading the list of areas needs memory: some room is made, and counted.
    let room = live.split_off(live.len().saturating_sub(64)).len();
    taken.areas = own_areas()?.saturating_sub(areas_before) + room * 2;
    taken.calls = taken.sandboxes * 2;
    drop(live);
    taken.seconds = begin.elapsed().as_secs_f64();
    Ok((taken, refusal))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let Arguments { slots, kib, guard_kib, batch, json, .. } = arguments;
    let areas_before = own_areas()?;
    let (before, begin) = (faults::made(), Instant::now());
    let sizes = PoolSizes { slots, memory: kib << 10, guard: guard_kib << 10, batch };
    let pool = SlotPool::new(sizes)?;
    let made_s = begin.elapsed().as_secs_f64();
    let made_calls = faults::made().since(&before).total();
    let guards = pool.guards();
    let pooled = with_pool(&pool, &arguments, areas_before)?;
    let counts = pool.counts();
    drop(pool);
    let (mapped, refusal) = with_mappings(&arguments, areas_before)?;

    // A few areas come with the allocator's own memory.
    let most = match guards {
        Guards::PageTables => 16,
        Guards::Areas => slots as usize * 2 + 16,
    };
    let holds = pooled.leaks == 0 && pooled.areas <= most;
    if json {
        let of = |taken: &Taken| {
            let Taken { sandboxes, seconds, areas, calls, .. } = taken;
            json!({ "sandboxes": sandboxes, "seconds": seconds, "areas": areas, "calls": calls })
        };
        let report = json!({ "slots": slots, "guards_in_page_tables": guards == Guards::PageTables,
            "making": { "seconds": made_s, "calls": made_calls }, "pool": of(&pooled), "leaks": pooled.leaks,
            "purged": counts.purged, "purges": counts.purges, "mappings": of(&mapped), "refusal": refusal,
            "holds": holds });
        println!("{report}");
    } else {
        println!("{slots} memories of {kib} KiB, {guard_kib} KiB of guard each");
        if guards == Guards::Areas {
            println!(
                "this kernel keeps no guards in page tables (Linux 6.13 does): each is an area"
            );
        }
        println!("made in {made_s:.2} s with {made_calls} system calls\n");
        println!(
            "{:<22}{:>11}{:>9}{:>9}{:>14}",
            "", "sandboxes", "areas", "seconds", "system calls"
        );
        for (name, taken) in [("pool", &pooled), ("a mapping for each", &mapped)] {
            let Taken { sandboxes, seconds, areas, calls, .. } = taken;
            println!("{name:<22}{sandboxes:>11}{areas:>9}{seconds:>9.2}{calls:>14}");
        }
        println!(
            "\nthe pool purged {} memories in {} batches; contents that reached another sandbox: {}",
            counts.purged, counts.purges, pooled.leaks
        );
        match &refusal {
            Some(why) => println!("mappings ended at sandbox {}: {why}", mapped.sandboxes),
            None => println!(
                "mappings were not refused: this system allows more areas than Linux does by default"
            ),
        }
        println!(
            "{}",
            if holds { "held" } else { "FAILED: contents leaked, or the pool took too many areas" }
        );
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the number of areas of this process.
fn own_areas() -> std::io::Result<usize> {
    Ok(std::fs::read_to_string("/proc/self/maps")?.lines().count())
}
