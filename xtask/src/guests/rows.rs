//! The output of a guest as rows of the dataset: one for each phase.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

use super::EXTFRAG;
use super::cells::Run;
use super::names::Names;
use crate::emulator::Run as _;
use crate::emulator::console::{Console, Snapshot};

/// The phases with a row; each begins where the one before ends, the first at `start`.
const PHASES: [&str; 3] = ["write", "warm", "thp"];
/// Counters of which a row has the state at its end.
const GAUGES: [&str; 7] = [
    "nr_free_pages",
    "nr_free_pages_blocks",
    "nr_slab_reclaimable",
    "nr_slab_unreclaimable",
    "nr_active_file",
    "nr_inactive_file",
    "nr_anon_transparent_hugepages",
];

/// The order of a huge page, and the one above which the kernel itself calls a request costly.
const HUGE_ORDER: u64 = 9;
const COSTLY_ORDER: u64 = 4;

/// Returns the rows of a run, in the order of its phases.
pub(super) fn rows(run: &Run, console: &str) -> anyhow::Result<Vec<Value>> {
    let console = Console::read(console)?;
    let names = Names::of(&console)?;
    let common = common(run, &console)?;
    let mut rows = Vec::new();
    let mut before = console.phase("start")?;
    for phase in PHASES {
        let after = console.phase(phase)?;
        let mut row = common.clone();
        row.insert("phase".into(), phase.into());
        row.append(&mut counted(before, after, &names)?);
        if phase == "thp" {
            row.append(&mut units(after.section("units")?)?);
        }
        rows.push(Value::Object(row));
        before = after;
    }
    Ok(rows)
}

/// Returns the part that all rows of a run share: its machine and settings.
fn common(run: &Run, console: &Console) -> anyhow::Result<Map<String, Value>> {
    let settings = &run.settings;
    let number = |name: &str| console.setting(name).and_then(|text| text.parse::<u64>().ok());
    let zones = zones(console.phase("start")?)?;
    let managed: u64 = zones.values().map(|zone| zone["managed"]).sum();
    let boost = number("watermark_boost_factor");
    ensure!(boost == Some(settings.boost.into()), "the guest has boost {boost:?}");
    ensure!(number("nodes") == Some(settings.nodes), "the guest has {:?} nodes", number("nodes"));
    let lru_gen = console.setting("lru_gen").unwrap_or_default();
    let lru_gen = u64::from_str_radix(lru_gen.trim_start_matches("0x"), 16).ok();
    let row = json!({
        "tag": run.name(),
        "kernel": console.setting("kernel"),
        "fio": console.setting("fio"),
        "boost": boost,
        "defrag_mode": number("defrag_mode").unwrap_or(0),
        "thp_defrag": settings.thp_defrag,
        "madvise": u8::from(settings.madvise),
        "lru_gen": lru_gen,
        "min_free_kib": number("min_free_kbytes"),
        "proactiveness": number("compaction_proactiveness"),
        "memory_mib": settings.memory_mib,
        "nodes": settings.nodes,
        "managed_kib": managed * 4,
        "cpus": number("cpus"),
        "write_order": "fio",
        "zones": zones,
    });
    let Value::Object(row) = row else { bail!("a row is an object") };
    Ok(row)
}

/// Returns the counts of the kernel in a phase, and its state at the end.
fn counted(
    before: &Snapshot,
    after: &Snapshot,
    names: &Names,
) -> anyhow::Result<Map<String, Value>> {
    let seconds = after.uptime()? - before.uptime()?;
    let vmstat = after.vmstat()?;
    let gauges: BTreeMap<&str, u64> =
        GAUGES.iter().filter_map(|name| Some((*name, *vmstat.get(name)?))).collect();
    let row = json!({
        "seconds": (seconds * 10.0).round() / 10.0,
        "vmstat": after.counted_since(before)?,
        "gauges": gauges,
        "extfrag": extfrag(before, after, names)?,
        "free_by_order": free_by_order(after)?,
        "pageblocks": pageblocks(after, names)?,
        "tracepoints": tracepoints(before, after, names),
        "boosted_zones_at_end": boosted(after)?,
    });
    let Value::Object(row) = row else { bail!("a row is an object") };
    Ok(row)
}

/// Returns the min, low and high watermark and the managed pages of each zone with memory.
fn zones(snapshot: &Snapshot) -> anyhow::Result<BTreeMap<String, BTreeMap<&'static str, u64>>> {
    let mut zones = BTreeMap::new();
    for (zone, fields) in snapshot.zoneinfo()? {
        let taken = ["min", "low", "high", "managed"]
            .map(|name| (name, fields.get(name).copied().unwrap_or(0)));
        zones.insert(zone, BTreeMap::from(taken));
    }
    Ok(zones)
}

fn boosted(snapshot: &Snapshot) -> anyhow::Result<BTreeMap<String, u64>> {
    let boost = |(zone, fields): (String, BTreeMap<&str, u64>)| Some((zone, *fields.get("boost")?));
    Ok(snapshot.zoneinfo()?.into_iter().filter_map(boost).filter(|(_, boost)| *boost > 0).collect())
}

/// Returns the free blocks of each order by zone.
fn free_by_order(snapshot: &Snapshot) -> anyhow::Result<BTreeMap<String, Vec<u64>>> {
    snapshot.zone_lines("buddyinfo").collect()
}

/// Counts the pageblocks of each type by zone: the lines of pagetypeinfo that are not of one type alone.
fn pageblocks(snapshot: &Snapshot, names: &Names) -> anyhow::Result<Value> {
    let text = snapshot.section("pagetypeinfo")?;
    let blocks = text.lines().filter(|line| !line.contains(", type")).flat_map(Snapshot::lines_of);
    let blocks = blocks.map(|line| {
        let (zone, counts) = line?;
        let by_type: BTreeMap<&str, u64> = names.types().zip(counts).collect();
        Ok((zone, json!(by_type)))
    });
    Ok(Value::Object(blocks.collect::<anyhow::Result<_>>()?))
}

/// Returns the differences of every histogram but that of extfrag, by event and then by its fields.
fn tracepoints(before: &Snapshot, after: &Snapshot, names: &Names) -> Value {
    let mut events = Map::new();
    for (event, _) in after.histograms() {
        let mut counts = BTreeMap::new();
        for (fields, count) in growth(before.hits(event), after.hits(event)) {
            *counts.entry(names.fields(&fields)).or_insert(0) += count;
        }
        if event != EXTFRAG && !counts.is_empty() {
            events.insert(event.to_owned(), json!(counts));
        }
    }
    Value::Object(events)
}

/// Returns the growth of each count that grew.
fn growth<K: Ord>(before: BTreeMap<K, u64>, after: BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let grown = after.into_iter().map(|(key, count)| {
        let earlier = before.get(&key).copied().unwrap_or(0);
        (key, count.saturating_sub(earlier))
    });
    grown.filter(|(_, count)| *count > 0).collect()
}

/// Counts the fallbacks between types: in all, of those below a huge page and below a costly order, by type and zone.
fn extfrag(before: &Snapshot, after: &Snapshot, names: &Names) -> anyhow::Result<Value> {
    let mut sums = [0; 3];
    let [mut types, mut zones_below, mut zones, mut each] = [(); 4].map(|()| BTreeMap::new());
    for (event, count) in growth(before.fallbacks()?, after.fallbacks()?) {
        let kind = names.of_type(event.wanted);
        let zone = event.zone.rsplit('.').next().unwrap_or(&event.zone).to_owned();
        let below = [u64::MAX, HUGE_ORDER, COSTLY_ORDER].map(|order| event.order < order);
        for (sum, is_below) in sums.iter_mut().zip(below) {
            *sum += if is_below { count } else { 0 };
        }
        if event.order < HUGE_ORDER {
            *types.entry(kind.to_owned()).or_insert(0) += count;
            *zones_below.entry(zone.clone()).or_insert(0) += count;
        }
        *zones.entry(zone).or_insert(0) += count;
        let from = names.of_type(event.taken);
        let name = format!("zone={} order={} type={kind} from={from}", event.zone, event.order);
        *each.entry(name).or_insert(0) += count;
    }
    Ok(json!({
        "all": sums[0],
        "below_9": sums[1],
        "below_4": sums[2],
        "by_type_below_9": types,
        "by_zone_below_9": zones_below,
        "by_zone_all": zones,
        "each": each,
    }))
}

/// Parses the output of the huge page program, a line for each unit: the share of huge units, their times, and a bitmap
/// of them.
fn units(lines: &str) -> anyhow::Result<Map<String, Value>> {
    let mut units = Vec::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let (huge, micros) = line.trim().split_once(' ').with_context(|| format!("unit {line}"))?;
        units.push((huge == "1", micros.parse::<u64>()?));
    }
    ensure!(!units.is_empty(), "the huge page program printed no unit");
    let of = |is_huge: bool| -> Vec<u64> {
        units.iter().filter(|(huge, _)| *huge == is_huge).map(|(_, micros)| *micros).collect()
    };
    let (base, huge) = (of(false), of(true));
    let mean = |micros: &[u64]| micros.iter().sum::<u64>() / (micros.len() as u64).max(1);
    let half = units.iter().take(units.len() / 2).filter(|(huge, _)| *huge).count();
    let tenths = |part: f64| (part * 10.0).round() / 10.0;
    let micros: u64 = units.iter().map(|(_, micros)| micros).sum();
    let digits = units.chunks(4).map(|four| {
        let bits = four.iter().enumerate().map(|(bit, (huge, _))| u32::from(*huge) << bit);
        char::from_digit(bits.sum(), 16).expect("4 bits are a digit")
    });
    let mut row = Map::new();
    row.insert("bitmap".into(), digits.collect::<String>().into());
    let percent = 100.0 * huge.len() as f64 / units.len() as f64;
    let thp = json!({
        "units": units.len(),
        "huge": huge.len(),
        "huge_first_half": half,
        "huge_percent": tenths(percent),
        "base_mean_us": mean(&base),
        "huge_mean_us": mean(&huge),
        "base_max_us": base.iter().max().copied().unwrap_or(0),
        "huge_max_us": huge.iter().max().copied().unwrap_or(0),
        "seconds": tenths(micros as f64 / 1e6),
    });
    row.insert("thp".into(), thp);
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::cells;

    const ZONES: &str = "\
Node 0, zone    DMA32
  pages free     70
        boost    0
        min      3
        low      4
        high     5
        spanned  1044480
        managed  90
  start_pfn:           4096
Node 0, zone   Normal
        boost    7
        min      6
        low      7
        high     8
        spanned  1000
        managed  160
  start_pfn:           1048576
Node 0, zone  Movable
        managed  0
";

    /// Returns the console's text at the end of a phase by which `count` of everything has come.
    fn phase(name: &str, count: u64, fallbacks: &str) -> String {
        let uptime = 10.0 + count as f64;
        format!(
            "@@phase {name}\n@@section uptime\n{uptime} 1.0\n\
             @@section vmstat\nnr_free_pages {count}\npgsteal_direct {count}\nthp_split_page 0\n\
             @@section buddyinfo\nNode 0, zone   Normal 1 2 3 \n\
             @@section pagetypeinfo\nNode 0, zone Normal, type Movable 1 2 \n\
             Number of blocks type Unmovable Movable \nNode 0, zone Normal 4 {count} \n\
             Node 1, zone Normal, type Movable 1 2 \n\
             Number of blocks type Unmovable Movable \nNode 1, zone Normal 5 6 \n\
             @@section zoneinfo\n{ZONES}{fallbacks}"
        )
    }

    /// Returns the text of fallbacks as a histogram for each zone.
    fn histograms(dma32: u64, normal: u64) -> String {
        let hist = |first: u64, order: u64, count: u64| {
            format!(
                "# trigger info: hist:keys=fallback_order if pfn >= {first} && pfn <= 1 [active]\n\
                 {{ fallback_order: {order}, alloc_migratetype: 1, fallback_migratetype: 0 }} hitcount: {count}\n"
            )
        };
        let zones = hist(4096, 10, dma32) + &hist(1_048_576, 3, normal);
        let deferred = format!("{{ idx: 2, order: 9 }} hitcount: {normal}\n");
        format!(
            "@@section hist kmem/mm_page_alloc_extfrag\n{zones}\
             @@section hist compaction/mm_compaction_deferred\n{deferred}"
        )
    }

    fn console(phases: &[String]) -> String {
        let flag = |(bit, name): (u32, &&str)| format!("{{ (0x{:x}u), \"{name}\"}}", 1 << bit);
        let names = [
            "__GFP_NOMEMALLOC",
            "__GFP_COMP",
            "__GFP_NOWARN",
            "__GFP_MOVABLE",
            "__GFP_DIRECT_RECLAIM",
            "__GFP_KSWAPD_RECLAIM",
            "__GFP_THISNODE",
            "__GFP_NORETRY",
        ];
        let flags: Vec<String> = (0..).zip(&names).map(flag).collect();
        format!(
            "SeaBIOS\n@@run\nwatermark_boost_factor=15000\nnodes=1\nkernel=6.1.0\nlru_gen=0x0007\n\
             @@section format mm_page_alloc\n{}\n@@section format mm_compaction_suitable\n\
             print fmt: __print_symbolic(REC->idx, {{2, \"Normal\"}}), \
             __print_symbolic(REC->ret, {{4, \"continue\"}})\n{}\
             @@section units\n1 10\n0 30\n0 50\n0 20\n1 30\n@@done\n",
            flags.join(", "),
            phases.concat()
        )
    }

    fn rows_of(console: &str) -> anyhow::Result<Vec<Value>> {
        rows(&cells::plan()[0], console)
    }

    #[test]
    fn a_row_has_what_came_in_its_phase() {
        let names = ["start", "write", "warm", "thp"];
        let counts = [(0, 0), (5, 2), (5, 9), (6, 9)];
        let phases: Vec<String> = (0..)
            .zip(names.into_iter().zip(counts))
            .map(|(at, (name, (dma32, normal)))| phase(name, at, &histograms(dma32, normal)))
            .collect();
        let rows = rows_of(&console(&phases)).unwrap();
        let write = &rows[0];
        assert_eq!(write["seconds"], 1.0);
        assert_eq!(write["vmstat"], json!({ "pgsteal_direct": 1 }));
        assert_eq!(write["gauges"], json!({ "nr_free_pages": 1 }));
        assert_eq!(write["extfrag"]["by_zone_all"], json!({ "dma32": 5, "normal": 2 }));
        assert_eq!(write["extfrag"]["by_zone_below_9"], json!({ "normal": 2 }));
        assert_eq!([&write["extfrag"]["all"], &write["extfrag"]["below_4"]], [7, 2]);
        let blocks = |unmovable, movable| json!({ "unmovable": unmovable, "movable": movable });
        let both = json!({ "node0.normal": blocks(4, 1), "node1.normal": blocks(5, 6) });
        assert_eq!(write["pageblocks"], both);
        assert_eq!(write["free_by_order"], json!({ "node0.normal": [1, 2, 3] }));
        assert_eq!(write["boosted_zones_at_end"], json!({ "node0.normal": 7 }));
        assert_eq!([&write["managed_kib"], &write["lru_gen"]], [1000, 7]);
        let deferred = json!({ "mm_compaction_deferred": { "zone=normal order=9": 7 } });
        assert_eq!(rows[1]["tracepoints"], deferred);
        assert_eq!(rows[2]["extfrag"]["by_zone_all"], json!({ "dma32": 1 }));
        assert_eq!(rows[2]["bitmap"], "11");
        assert_eq!(rows[2]["thp"]["huge_first_half"], 1);
        assert_eq!([&rows[2]["thp"]["huge"], &rows[2]["thp"]["base_mean_us"]], [2, 33]);
    }

    #[test]
    fn a_kernel_without_histograms_tells_its_fallbacks_in_its_trace() {
        let line = "x-1 [0] ... 1.0: mm_page_alloc_extfrag: page=1 pfn=0x100001 alloc_order=0 \
                    fallback_order=9 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1\n";
        let trace = |lines: &str, lost: u64| {
            format!("@@section trace\n{lines}@@section trace_lost\noverrun: {lost}\n")
        };
        let of = |last: &str| {
            let first = ["start", "write", "warm"].map(|name| phase(name, 0, &trace("", 0)));
            console(&[first.as_slice(), &[phase("thp", 1, last)]].concat())
        };
        let rows = rows_of(&of(&trace(line, 0))).unwrap();
        let each = json!({ "zone=node0.normal order=9 type=unmovable from=movable": 1 });
        assert_eq!(rows[2]["extfrag"]["each"], each);
        assert_eq!(rows[2]["tracepoints"], json!({}));
        assert!(rows_of(&of(&trace(line, 3))).is_err(), "lost events");
    }

    #[test]
    fn a_guest_that_failed_has_no_rows() {
        let names = ["start", "write", "warm", "thp"];
        let whole = console(&names.map(|name| phase(name, 0, &histograms(0, 0))));
        assert!(rows_of(&whole).is_ok());
        let one_zone = whole.replace("if pfn >= 4096 ", "if pfn >= 1048576 ");
        let failed = whole.replace("SeaBIOS", "@@failed fio");
        for console in [whole.replace("@@done", ""), failed, one_zone] {
            assert!(rows_of(&console).is_err());
        }
    }
}
