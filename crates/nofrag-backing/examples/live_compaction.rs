//! Fills memory, gives random pages back until 80 % are in use, and moves those together while a thread uses them.
//!
//! ```text
//! cargo run --release -p nofrag-backing --example live_compaction [MIB]
//! ```

use std::error::Error;

use nofrag_backing::moving::measure::{self, ChurnPlan};

fn main() -> Result<(), Box<dyn Error>> {
    let mib: u64 = std::env::args().nth(1).map_or(Ok(256), |text| text.parse())?;
    let found = measure::churn(&ChurnPlan::new(mib << 20))?;
    println!("{} of {} pages in use", found.live, found.pages);
    println!("2 MiB blocks: {} without compaction", found.before);
    println!(
        "              {} of {} possible with it, {} of them huge pages",
        found.obtained, found.possible, found.collapsed
    );
    let each = found.compaction_ns.checked_div(found.moved).unwrap_or_default();
    println!("{} pages moved, {each} ns each; {} stayed", found.moved, found.stayed);
    println!("{} pages hold what they should not", found.corrupted);
    for (when, times) in [("alone", found.access_alone), ("meanwhile", found.access_compacting)] {
        println!(
            "an access {when:9}: median {} ns, 99.9 % within {} ns, at most {} ns",
            times.median_ns, times.p999_ns, times.max_ns
        );
    }
    Ok(())
}
