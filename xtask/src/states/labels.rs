//! The labels of a state, by the console of its guest: a row that says what it is, then one for each step.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

use super::frames::Frames;
use super::plan::Run;
use crate::emulator::console::{Console, Snapshot, garbled};

/// The steps in their order, each with the order of the blocks that it asks for, if it does.
const STEPS: [(&str, Option<u32>); 8] = [
    ("9-now", Some(9)),
    ("4-now", Some(4)),
    ("compact", None),
    ("9-compacted", Some(9)),
    ("4-compacted", Some(4)),
    ("drop", None),
    ("compact-again", None),
    ("9-dropped", Some(9)),
];
/// Order of a huge page, which every kernel can be asked for.
const HUGE_ORDER: u32 = 9;
const HUGE_KIB: u64 = 2048;
const PAGE_KIB: u64 = 4;
/// Beginnings of the names of counters that a step may change and a row shows.
const COUNTERS: [&str; 8] =
    ["allocstall", "compact_", "drop_", "kswapd_", "pgmigrate_", "pgscan_", "pgsteal_", "thp_"];

/// Returns the rows of a run; fails where a count of requests and the kernel's own disagree.
pub(super) fn rows(run: &Run, console: &str, frames: &Frames) -> anyhow::Result<Vec<Value>> {
    let console = Console::read(console)?;
    let number = |name: &str| console.setting(name).and_then(|text| text.parse::<u64>().ok());
    let state = run.state;
    let [cpus, nodes] = ["cpus", "nodes"].map(number);
    ensure!(
        nodes == Some(state.nodes) && cpus == Some(state.cpus),
        "{nodes:?} nodes, {cpus:?} CPUs"
    );
    let mut last = console.phase("start")?;
    let mut rows = vec![json!({
        "state": state.name,
        "kernel": console.setting("kernel"),
        "memory_mib": state.memory_mib,
        "nodes": nodes,
        "cpus": cpus,
        "free_kib": free_kib(last)?,
        "frames": frames,
    })];
    for (name, order) in STEPS {
        let Ok(phase) = console.phase(name) else {
            ensure!(order.is_some_and(|order| order < HUGE_ORDER), "the guest has no step {name}");
            continue;
        };
        rows.push(Value::Object(step(name, order, last, phase).context(name)?));
        last = phase;
    }
    Ok(rows)
}

fn step(
    name: &str,
    order: Option<u32>,
    before: &Snapshot,
    after: &Snapshot,
) -> anyhow::Result<Map<String, Value>> {
    let counted = after.counted_since(before)?;
    let mut row = Map::new();
    row.insert("step".into(), name.into());
    if let Some(order) = order {
        let taken = after.section("taken")?;
        row.append(&mut requests(order, taken, &counted)?);
    }
    row.insert("free_kib".into(), free_kib(after)?.into());
    let is_shown = |name: &str| COUNTERS.iter().any(|beginning| name.starts_with(beginning));
    let shown: BTreeMap<&str, u64> =
        counted.into_iter().filter(|(name, _)| is_shown(name)).collect();
    row.insert("vmstat".into(), json!(shown));
    Ok(row)
}

/// Parses what the requests of a step came to, and holds the three counts of blocks against one another.
fn requests(
    order: u32,
    taken: &str,
    vmstat: &BTreeMap<&str, u64>,
) -> anyhow::Result<Map<String, Value>> {
    let mut values = BTreeMap::new();
    let mut nodes = [Vec::new(), Vec::new()];
    for line in taken.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.trim().rsplit_once(' ').with_context(|| garbled(line))?;
        let value: u64 = value.parse().with_context(|| garbled(line))?;
        match name.split_once(' ') {
            Some((_, "given")) => nodes[0].push(value),
            Some((_, "refused")) => nodes[1].push(value),
            _ => drop(values.insert(name, value)),
        }
    }
    let value = |name: &str| values.get(name).copied().with_context(|| format!("no {name}"));
    let [given, refused] = nodes;
    let sum: u64 = given.iter().sum();
    let counted = value("counted")?;
    ensure!(counted == sum, "{sum} blocks were given, the kernel has counted {counted}");
    if order == HUGE_ORDER {
        let huge = value("anon_huge_kib")? / HUGE_KIB;
        let since = vmstat.get("thp_fault_alloc").copied().unwrap_or(0);
        ensure!(huge == sum && since == sum, "{sum} given, {huge} in smaps, {since} in vmstat");
    }
    let mut row = Map::new();
    row.insert("order".into(), order.into());
    row.insert("given".into(), sum.into());
    row.insert("given_by_node".into(), given.into());
    row.insert("refused_by_node".into(), refused.into());
    for name in ["free_kib_before", "free_kib_held", "min_kib"] {
        row.insert(name.into(), value(name)?.into());
    }
    Ok(row)
}

fn free_kib(snapshot: &Snapshot) -> anyhow::Result<u64> {
    let pages = snapshot.vmstat()?.get("nr_free_pages").copied();
    Ok(pages.context("vmstat has no nr_free_pages")? * PAGE_KIB)
}

/// Returns what was given at each step in one line.
pub(super) fn said(rows: &[Value]) -> String {
    let given = rows.iter().filter_map(|row| Some((row["step"].as_str()?, row["given"].as_u64()?)));
    let words: Vec<String> = given.map(|(step, given)| format!("{step} {given}")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::states::plan;

    fn phase(name: &str, faults: u64, taken: &str) -> String {
        let free = 1000 - faults;
        format!(
            "@@phase {name}\n@@section vmstat\nnr_free_pages {free}\n\
             thp_fault_alloc {faults}\npgfault {faults}\n{taken}"
        )
    }

    fn taken(given: u64, counted: u64, huge: u64) -> String {
        format!(
            "@@section taken\nnode0 given {given}\nnode0 refused 24\ncounted {counted}\nanon_huge_kib {}\n\
             free_kib_before 4000\nfree_kib_held 2000\nmin_kib 900\nhigh_kib 990\nfree_kib_after 4000\n",
            huge * HUGE_KIB
        )
    }

    /// Returns a console by which 3, 5 and 6 huge pages were given; of 7, `huge` in smaps and `counted` by the kernel.
    fn console(counted: u64, huge: u64) -> String {
        let steps = [
            phase("start", 0, ""),
            phase("9-now", 3, &taken(3, 3, 3)),
            phase("compact", 3, ""),
            phase("9-compacted", 8, &taken(5, counted, huge)),
            phase("drop", 8, ""),
            phase("compact-again", 8, ""),
            phase("9-dropped", 14, &taken(6, 6, 6)),
        ];
        format!("SeaBIOS\n@@run\nkernel=6.1.0\ncpus=1\nnodes=1\n{}@@done\n", steps.concat())
    }

    fn rows_of(console: &str) -> anyhow::Result<Vec<Value>> {
        rows(&plan::plan()[0], console, &Frames::default())
    }

    #[test]
    fn a_row_has_what_its_step_was_given() {
        let rows = rows_of(&console(5, 5)).unwrap();
        assert_eq!([&rows[0]["state"], &rows[0]["kernel"]], ["fresh", "6.1.0"]);
        assert_eq!([&rows[1]["given"], &rows[3]["given"]], [3, 5]);
        assert_eq!(rows[3]["given_by_node"], json!([5]));
        assert_eq!(rows[3]["vmstat"], json!({ "thp_fault_alloc": 5 }));
        assert_eq!([&rows[0]["free_kib"], &rows[1]["free_kib"]], [4000, 3988]);
        assert_eq!(said(&rows), "9-now 3, 9-compacted 5, 9-dropped 6");
    }

    #[test]
    fn counts_that_disagree_are_no_labels() {
        assert!(rows_of(&console(4, 5)).is_err(), "the kernel's own count");
        assert!(rows_of(&console(5, 4)).is_err(), "smaps");
        let console = console(5, 5);
        assert!(rows_of(&console.replace("@@phase 9-dropped", "@@phase other")).is_err());
        assert!(rows_of(&console.replace("cpus=1", "cpus=2")).is_err());
    }
}
