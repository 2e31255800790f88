//! The runs of real kernels in guests: a folder with a file a run (`data/guests-2018/README.md`).
//!
//! A file `KERNEL-FACTOR-rREPEAT.json` is a run; files with other names are ignored. The folder alone decides which
//! runs there are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nofrag::page::{HugeDefrag, Migratetype, ZoneKind};
use nofrag::units::Order;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use super::guest::{Cell, CellZone};
use super::phase::{Count, Phase, PhaseName, Piece};

/// Path of the folder in the repository.
pub(super) const SHIPPED: &str = "data/guests-2018";

/// The reason why the runs could not be read.
#[derive(Debug, Error)]
pub(super) enum DatasetError {
    #[error("{0} holds no run of a kernel: that is a file KERNEL-FACTOR-rREPEAT.json")]
    NoRun(PathBuf),
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    #[error("{0} is no array of rows: {1}")]
    Json(PathBuf, serde_json::Error),
    #[error("{file}, row {row}: {field}: {why}")]
    Field { file: PathBuf, row: usize, field: &'static str, why: String },
    #[error("{0}: its rows are not the phases write, warm and thp, in this order")]
    Phases(PathBuf),
    #[error("{0}: its settings are not those of the cell's other rows")]
    Settings(PathBuf),
}

/// Runs of a real kernel in a cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Guests {
    pub(super) cell: Cell,
    /// The phases of each repeat.
    pub(super) runs: Vec<Vec<Phase>>,
}

/// Reads all runs of a folder by cell; kernels by age, the centre before other factors, and repeats in their order.
pub(super) fn read(folder: &Path) -> Result<Vec<Guests>, DatasetError> {
    let io = |error| DatasetError::Io(folder.to_owned(), error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        files.extend(Named::of(&path).map(|named| (named, path)));
    }
    files.sort_unstable();
    let mut all: Vec<Guests> = Vec::new();
    for (named, path) in files {
        let (cell, phases) = run(&named, &path)?;
        let is_same =
            |it: &&mut Guests| (&it.cell.kernel, &it.cell.factor) == (&cell.kernel, &cell.factor);
        match all.last_mut().filter(is_same) {
            Some(guests) if is_set_alike(&guests.cell, &cell) => guests.runs.push(phases),
            Some(_) => return Err(DatasetError::Settings(path)),
            None => all.push(Guests { cell, runs: vec![phases] }),
        }
    }
    if all.is_empty() { Err(DatasetError::NoRun(folder.to_owned())) } else { Ok(all) }
}

/// Returns true if two runs had the same settings. The kernel's own memory is taken from another zone at each boot, so
/// the managed pages of zones may differ: the simulation has them from the first run.
fn is_set_alike(a: &Cell, b: &Cell) -> bool {
    Cell { zones: b.zones.clone(), ..a.clone() } == *b
}

/// The parts of a file's name, in the order in which runs are read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    version: (u32, u32),
    is_no_centre: bool,
    factor: String,
    repeat: u32,
}

impl Named {
    fn of(path: &Path) -> Option<Named> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".json")?;
        let (cell, repeat) = stem.rsplit_once("-r")?;
        let (kernel, factor) = cell.split_once('-')?;
        let (major, minor) = kernel.split_once('.')?;
        Some(Named {
            version: (major.parse().ok()?, minor.parse().ok()?),
            is_no_centre: factor != "centre",
            factor: factor.to_owned(),
            repeat: repeat.parse().ok()?,
        })
    }

    fn kernel(&self) -> String {
        let (major, minor) = self.version;
        format!("{major}.{minor}")
    }

    fn tag(&self) -> String {
        format!("{}-{}-r{}", self.kernel(), self.factor, self.repeat)
    }
}

/// Reads a run: its settings and phases.
fn run(named: &Named, path: &Path) -> Result<(Cell, Vec<Phase>), DatasetError> {
    let text =
        fs::read_to_string(path).map_err(|error| DatasetError::Io(path.to_owned(), error))?;
    let rows: Vec<Map<String, Value>> =
        serde_json::from_str(&text).map_err(|error| DatasetError::Json(path.to_owned(), error))?;
    let rows: Vec<RunRow<'_>> =
        rows.iter().enumerate().map(|(at, fields)| RunRow { path, at, fields }).collect();
    let [first, ..] = &rows[..] else { return Err(DatasetError::Phases(path.to_owned())) };
    let cell = first.cell(named)?;
    for row in &rows {
        if !is_set_alike(&row.cell(named)?, &cell) {
            return Err(DatasetError::Settings(path.to_owned()));
        }
    }
    // 5.10 has no histograms of events: counts that need them were not taken there.
    let traces = rows.iter().map(RunRow::traces).collect::<Result<Vec<_>, _>>()?;
    let traces: Option<&[Trace]> =
        traces.iter().any(|trace| !trace.is_empty()).then_some(&traces[..]);
    let phase = |(at, row): (usize, &RunRow<'_>)| row.phase(traces.map(|traces| &traces[at]));
    let phases = rows.iter().enumerate().map(phase).collect::<Result<Vec<_>, _>>()?;
    match phases.iter().map(|phase| phase.name).eq(PhaseName::ALL) {
        true => Ok((cell, phases)),
        false => Err(DatasetError::Phases(path.to_owned())),
    }
}

/// Events by name, then by their fields.
type Trace = BTreeMap<String, BTreeMap<String, u64>>;

/// A row of a file.
struct RunRow<'a> {
    path: &'a Path,
    at: usize,
    fields: &'a Map<String, Value>,
}

#[derive(Deserialize)]
struct Extfrag {
    each: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Managed {
    managed: u64,
}

#[derive(Deserialize)]
struct Thp {
    units: u64,
    huge: u64,
}

impl RunRow<'_> {
    fn error(&self, field: &'static str, why: impl ToString) -> DatasetError {
        let (file, row) = (self.path.to_owned(), self.at + 1);
        DatasetError::Field { file, row, field, why: why.to_string() }
    }

    fn field<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, DatasetError> {
        let value = self.fields.get(name).ok_or_else(|| self.error(name, "missing"))?;
        T::deserialize(value).map_err(|error| self.error(name, error))
    }

    fn cell(&self, named: &Named) -> Result<Cell, DatasetError> {
        let tag: String = self.field("tag")?;
        if tag != named.tag() {
            return Err(self.error("tag", format!("{tag:?} is not the file's name")));
        }
        Ok(Cell {
            kernel: named.kernel(),
            factor: named.factor.clone(),
            memory_mib: self.field("memory_mib")?,
            nodes: self.field("nodes")?,
            madvise: self.field::<u64>("madvise")? != 0,
            thp_defrag: self.defrag()?,
            boost: self.field("boost")?,
            defrag_mode: self.field::<u64>("defrag_mode")? != 0,
            lru_gen: self.field::<Option<u64>>("lru_gen")?.is_some_and(|features| features != 0),
            min_free_kib: self.field("min_free_kib")?,
            zones: self.zones()?,
        })
    }

    fn defrag(&self) -> Result<HugeDefrag, DatasetError> {
        const FIELD: &str = "thp_defrag";
        match self.field::<String>(FIELD)?.as_str() {
            "always" => Ok(HugeDefrag::Always),
            "defer" => Ok(HugeDefrag::Defer),
            "defer+madvise" => Ok(HugeDefrag::DeferMadvise),
            "madvise" => Ok(HugeDefrag::Madvise),
            "never" => Ok(HugeDefrag::Never),
            other => Err(self.error(FIELD, format!("{other:?} is no setting of it"))),
        }
    }

    fn zones(&self) -> Result<Vec<CellZone>, DatasetError> {
        const FIELD: &str = "zones";
        let managed: BTreeMap<String, Managed> = self.field(FIELD)?;
        let blocks: BTreeMap<String, BTreeMap<String, u64>> = self.field("pageblocks")?;
        let zone = |(name, of): (&String, &Managed)| {
            let (node, kind) = zone_of(name)?;
            let blocks = blocks.get(name)?.values().sum();
            Some(CellZone { node, kind, blocks, managed: of.managed })
        };
        let all = managed.iter().map(|it| {
            zone(it).ok_or_else(|| self.error(FIELD, format!("no zone with pageblocks: {}", it.0)))
        });
        let mut zones = all.collect::<Result<Vec<_>, _>>()?;
        zones.sort_by_key(|zone| (zone.node, zone.kind));
        Ok(zones)
    }

    fn traces(&self) -> Result<Trace, DatasetError> {
        self.field("tracepoints")
    }

    fn phase(&self, trace: Option<&Trace>) -> Result<Phase, DatasetError> {
        let name: String = self.field("phase")?;
        let known = name.parse().ok();
        let name = known.ok_or_else(|| self.error("phase", format!("there is no {name:?}")))?;
        let vmstat: BTreeMap<String, u64> = self.field("vmstat")?;
        // The rows leave zeros out.
        let of = |name: &str| vmstat.get(name).copied().unwrap_or(0);
        let all = |event: &str| trace.map(|it| it.get(event).map_or(0, |by| by.values().sum()));
        let stalls = vmstat.iter().filter(|(name, _)| name.starts_with("allocstall_"));
        let mut counts = BTreeMap::from([
            (Count::Moved, of("pgmigrate_success")),
            (Count::CompactionsGave, of("compact_success")),
            (Count::CompactionsFailed, of("compact_fail")),
            (Count::DirectCalls, stalls.map(|(_, calls)| calls).sum()),
            (Count::DirectPages, of("pgsteal_direct")),
            (Count::KswapdPages, of("pgsteal_kswapd")),
            (Count::KcompactdWakes, of("compact_daemon_wake")),
            // In KiB. workingset_refault_file misses pages whose shadow entries were reclaimed: in 7.2 about a quarter
            // of all.
            (Count::Read, of("pgpgin") / 4),
            // Runs of kswapd are counted instead where wakes have no event; where they have one, the two differ by at
            // most 2 in any phase of the runs of 6.1 to 7.2.
            (Count::KswapdWakes, all("mm_vmscan_kswapd_wake").unwrap_or_else(|| of("pageoutrun"))),
        ]);
        counts.extend(all("mm_compaction_deferred").map(|visits| (Count::Deferred, visits)));
        if name == PhaseName::Thp {
            let Thp { units, huge } = self.field("thp")?;
            counts.extend([(Count::Units, units), (Count::Huge, huge)]);
        }
        let extfrag: Extfrag = self.field("extfrag")?;
        for (fields, times) in &extfrag.each {
            let count = fallbacks(fields)
                .ok_or_else(|| self.error("extfrag", format!("no fallback: {fields}")))?;
            *counts.entry(count).or_default() += times;
        }
        Ok(Phase { name, counts, free: self.free()? })
    }

    fn free(&self) -> Result<BTreeMap<ZoneKind, [u64; Order::COUNT]>, DatasetError> {
        const FIELD: &str = "free_by_order";
        let zones: BTreeMap<String, [u64; Order::COUNT]> = self.field(FIELD)?;
        let mut free: BTreeMap<ZoneKind, [u64; Order::COUNT]> = BTreeMap::new();
        for (name, blocks) in zones {
            let kind = zone(&name).ok_or_else(|| self.error(FIELD, format!("no zone: {name}")))?;
            let of_kind = free.entry(kind).or_default();
            of_kind.iter_mut().zip(blocks).for_each(|(sum, blocks)| *sum += blocks);
        }
        Ok(free)
    }
}

/// Parses the zone `nodeN.KIND` into node and kind.
fn zone_of(name: &str) -> Option<(usize, ZoneKind)> {
    let (node, kind) = name.strip_prefix("node")?.split_once('.')?;
    let kind = ZoneKind::ALL.into_iter().find(|zone| zone.name().eq_ignore_ascii_case(kind))?;
    Some((node.parse().ok()?, kind))
}

fn zone(name: &str) -> Option<ZoneKind> {
    zone_of(name).map(|(_, kind)| kind)
}

/// Returns the count that `zone=node0.normal order=8 type=movable from=unmovable` belongs to.
fn fallbacks(fields: &str) -> Option<Count> {
    let fields: BTreeMap<&str, &str> =
        fields.split(' ').filter_map(|field| field.split_once('=')).collect();
    let name = fields.get("type")?;
    let is_named = |it: &Migratetype| it.name().eq_ignore_ascii_case(name);
    let migratetype = Migratetype::ALL.into_iter().find(is_named)?;
    let order = Order::new(fields.get("order")?.parse().ok()?)?;
    Some(Count::Fallbacks(zone(fields.get("zone")?)?, migratetype, Piece::of(order)))
}
