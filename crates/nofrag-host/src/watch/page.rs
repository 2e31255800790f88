//! The contents of a live view of a host at one moment: the schema of `nofrag top --json`. A value that could not be
//! had is `null`.

use std::cmp::{Ordering, Reverse};

use serde::Serialize;

use super::history::{Forecast, History, Rate};
use super::{Look, Source};
use crate::machine::verdict::Verdict;
use crate::process::ranking::Ranked;
use crate::record::Tally;
use crate::snapshot::{FreeGap, Snapshot, ZoneInfo, ZoneName};
use crate::source::Missing;
use crate::trace::{ExtFragCount, type_name};

/// The contents of a live view: the host at the last of its looks, with the changes since the one before. `--once`
/// takes two; a captured host is looked at once.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Page {
    pub release: Option<String>,
    /// Seconds for which the host has been watched.
    pub seconds: f64,
    /// Seconds between the last two looks; `null` before the second.
    pub interval_seconds: Option<f64>,
    /// The share of a core that watching has taken over the looks that are kept; `null` before the second look.
    pub cost_share: Option<f64>,
    /// The verdict on the host; `null` without zones.
    pub verdict: Option<Verdict>,
    /// The zones with memory, by node and lowest first.
    pub zones: Vec<ZoneRow>,
    /// The blocks of buddyinfo beside `MemFree`.
    pub free_gap: Option<FreeGap>,
    pub page_bytes: u64,
    /// The order that the view follows.
    pub order: u32,
    /// Blocks of that order that a process could have in all zones, one after the other, before the watermarks stop it.
    pub obtainable: u64,
    /// The future course of these blocks; `null` while too little time has passed to say.
    pub forecast: Option<Forecast>,
    /// Counters of `vmstat` that this kernel has, with their growth.
    pub rates: Vec<Rate>,
    /// Pageblocks by type; empty where `pagetypeinfo` was not read (`--types`).
    pub pageblocks: Vec<TypeCount>,
    /// Seconds by which the pageblocks are older than the rest; `null` where `pagetypeinfo` was not read.
    pub pageblocks_age_seconds: Option<f64>,
    /// The counted events; `null` where tracing was not asked for (`--events`).
    pub events: Option<Events>,
    pub vmalloc: Option<VmallocRow>,
    pub maps: Option<MapsRows>,
    /// Files that could not be had, with the facts that are missing for want of them.
    pub missing: Vec<Missing>,
}

/// Least seconds of history behind a forecast.
pub const LEAST_SECONDS: u64 = 30;

/// The memory of one zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneRow {
    #[serde(flatten)]
    pub zone: ZoneName,
    pub free_bytes: u64,
    /// Bytes of memory that the allocator hands out.
    pub managed_bytes: u64,
    /// Position of the free memory among the watermarks.
    pub level: Level,
    /// Bytes by which the watermarks are raised; `null` where the kernel does not tell.
    pub boost_bytes: Option<u64>,
    pub blocks: Vec<u64>,
    /// The largest order with a free block.
    pub largest_order: Option<u32>,
    /// Share of the free memory, in thousandths, that cannot serve the followed order; `null` where the blocks are not
    /// known.
    pub unusable: Option<u64>,
    /// The fragmentation index of that order in thousandths; `null` where a block is free.
    pub fragmentation: Option<i64>,
}

/// Position of free memory among the watermarks in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(const_into_str)]
pub enum Level {
    /// Callers reclaim memory themselves.
    #[strum(serialize = "below min")]
    BelowMin,
    /// The daemon kswapd runs.
    #[strum(serialize = "below low")]
    BelowLow,
    /// The daemon kswapd goes on if it runs.
    #[strum(serialize = "below high")]
    BelowHigh,
    /// No reclaim is under way.
    #[strum(serialize = "above high")]
    AboveHigh,
}

impl Level {
    fn of(zone: &ZoneInfo) -> Level {
        match zone.free {
            free if free < zone.min => Level::BelowMin,
            free if free < zone.low => Level::BelowLow,
            free if free < zone.high => Level::BelowHigh,
            _ => Level::AboveHigh,
        }
    }
}

/// The number of pageblocks with one type, in all zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TypeCount {
    pub migratetype: String,
    /// Pageblocks of the type in all zones.
    pub pageblocks: u64,
}

/// The events that a tally has counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Events {
    /// The kinds that are counted.
    pub kinds: Vec<EventRate>,
    /// External fragmentation by types, since the watch began.
    pub extfrag: Vec<ExtFragCount>,
    /// Events that the kernel lost.
    pub lost: u64,
    /// Sentences on the events that were asked for and are not counted, and on what that costs.
    pub missing: Vec<String>,
}

/// A kind of event with its frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventRate {
    pub group: &'static str,
    pub name: &'static str,
    /// Number of events since the watch began.
    pub total: u64,
    /// Events per second, between the last two looks; `null` before the second look.
    pub per_second: Option<f64>,
}

/// The vmalloc space of the kernel, in short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmallocRow {
    pub used_bytes: u64,
    pub used_areas: u64,
    /// Bytes that are freed and wait for a purge.
    pub lazy_bytes: u64,
    /// Number of bytes at which the purge comes.
    pub lazy_limit_bytes: Option<u64>,
    /// Seconds by which these figures are older than the rest.
    pub age_seconds: f64,
}

/// The processes with most areas, and their limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MapsRows {
    pub limit: Option<u64>,
    /// The processes with most areas.
    pub processes: Vec<Ranked>,
    /// Processes that could be counted.
    pub counted: usize,
    /// Seconds by which these figures are older than the rest.
    pub age_seconds: f64,
}

/// The order of the rows of a page, in each of its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum Sorting {
    /// Zones by node, counters and events by subject, processes by their areas.
    #[default]
    #[strum(serialize = "as listed")]
    AsListed,
    /// Zones with least of their free memory in the followed order first, then by what grows fastest.
    #[strum(serialize = "worst first")]
    WorstFirst,
    #[strum(serialize = "by name")]
    ByName,
}

impl Sorting {
    /// Returns the sorting behind this one; the first one is behind the last.
    #[must_use]
    pub const fn next(self) -> Sorting {
        match self {
            Sorting::AsListed => Sorting::WorstFirst,
            Sorting::WorstFirst => Sorting::ByName,
            Sorting::ByName => Sorting::AsListed,
        }
    }
}

impl Page {
    /// Sorts the rows of each table; rows that are alike stay in their order. [`Page::of`] has them as listed.
    pub fn sort(&mut self, by: Sorting) {
        let processes = self.maps.as_mut().map_or(&mut [][..], |maps| &mut maps.processes[..]);
        let (kinds, extfrag) = match &mut self.events {
            Some(events) => (&mut events.kinds[..], &mut events.extfrag[..]),
            None => (&mut [][..], &mut [][..]),
        };
        match by {
            Sorting::AsListed => {}
            Sorting::WorstFirst => {
                self.zones.sort_by_key(|zone| Reverse(zone.unusable));
                self.rates.sort_by(|one, other| fastest(one.per_second, other.per_second));
                kinds.sort_by(|one, other| fastest(one.per_second, other.per_second));
                extfrag.sort_by_key(|count| Reverse((count.serious, count.events)));
                processes.sort_by_key(|process| Reverse(process.areas));
            }
            Sorting::ByName => {
                self.zones.sort_by(|one, other| one.zone.name.cmp(&other.zone.name));
                self.rates.sort_by_key(|rate| rate.counts);
                kinds.sort_by_key(|kind| (kind.group, kind.name));
                extfrag.sort_by_key(|count| (type_name(count.wanted), type_name(count.taken)));
                processes.sort_by(|one, other| one.name.cmp(&other.name));
            }
        }
    }

    /// Makes the page of the last look, with up to `processes` processes, for one followed order.
    #[must_use]
    pub fn of(
        look: &Look,
        history: &History,
        events: Option<Events>,
        order: u32,
        processes: usize,
    ) -> Page {
        let snapshot = look.snapshot();
        let obtainable = history.obtainable(order).last().map_or(0, |(_, blocks)| blocks);
        let read = |source: Source| {
            let reading = look.readings.iter().find(|reading| reading.source == source)?;
            Some(look.at.saturating_sub(reading.at).as_secs_f64())
        };
        let age = |source: Source| read(source).unwrap_or(0.0);
        Page {
            release: snapshot.release.clone(),
            seconds: look.at.as_secs_f64(),
            interval_seconds: history.interval().map(|time| time.as_secs_f64()),
            cost_share: history.cost_share(),
            verdict: look.verdict.clone(),
            zones: zones(&snapshot, order),
            free_gap: snapshot.free_gap(),
            page_bytes: snapshot.page_bytes(),
            order,
            obtainable,
            forecast: history.forecast(order, std::time::Duration::from_secs(LEAST_SECONDS)),
            rates: history.rates(),
            pageblocks: pageblocks(&snapshot),
            pageblocks_age_seconds: read(Source::Types).filter(|_| snapshot.types.is_some()),
            events,
            vmalloc: look.vmalloc.as_ref().map(|report| VmallocRow {
                used_bytes: report.totals.live_bytes,
                used_areas: report.totals.live_areas,
                lazy_bytes: report.lazy.bytes,
                lazy_limit_bytes: report.lazy.limit_bytes,
                age_seconds: age(Source::Vmalloc),
            }),
            maps: look.maps.as_ref().map(|ranking| MapsRows {
                limit: ranking.limit,
                processes: ranking.processes.iter().take(processes).cloned().collect(),
                counted: ranking.processes.len(),
                age_seconds: age(Source::Maps),
            }),
            missing: look.missing().cloned().collect(),
        }
    }

    /// Returns the largest order of which this kernel keeps blocks; `None` where the lists are not known.
    #[must_use]
    pub fn most_order(&self) -> Option<u32> {
        let orders = self.zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
        u32::try_from(orders).ok()?.checked_sub(1)
    }
}

/// Orders two rates, the larger first, those that are not known last.
fn fastest(one: Option<f64>, other: Option<f64>) -> Ordering {
    let rate = |rate: Option<f64>| rate.unwrap_or(-1.0);
    rate(other).total_cmp(&rate(one))
}

fn zones(snapshot: &Snapshot<'_>, order: u32) -> Vec<ZoneRow> {
    let page = snapshot.page_bytes();
    let size = |pages: u64| pages.saturating_mul(page);
    let row = |zone: &ZoneInfo| {
        let blocks = snapshot.blocks(&zone.zone);
        let indices = blocks.map(|blocks| blocks.indices(order));
        ZoneRow {
            zone: zone.zone.clone(),
            free_bytes: size(zone.free),
            managed_bytes: size(zone.managed),
            level: Level::of(zone),
            boost_bytes: zone.boost.map(size),
            blocks: blocks.map(|blocks| blocks.blocks.clone()).unwrap_or_default(),
            largest_order: blocks.and_then(|blocks| blocks.largest()),
            unusable: indices.map(|indices| indices.unusable),
            fragmentation: indices.and_then(|indices| indices.fragmentation),
        }
    };
    snapshot.populated().map(row).collect()
}

fn pageblocks(snapshot: &Snapshot<'_>) -> Vec<TypeCount> {
    let Some(types) = &snapshot.types else { return Vec::new() };
    let of = |(number, name): (usize, &String)| {
        let each = types.pageblocks.iter().filter_map(|row| row.pageblocks.get(number));
        let pageblocks = each.fold(0, |sum: u64, &blocks| sum.saturating_add(blocks));
        TypeCount { migratetype: name.clone(), pageblocks }
    };
    types.names.iter().enumerate().map(of).collect()
}

/// The counts of a tally, from look to look.
#[derive(Clone, Debug, Default)]
pub struct EventHistory {
    before: Vec<u64>,
    before_at: Option<std::time::Duration>,
    last: Option<Events>,
}

impl EventHistory {
    /// Adds the counts until `at`, a time of the watch; a time that is not later changes nothing.
    pub fn push(&mut self, at: std::time::Duration, tally: &Tally) {
        if self.before_at.is_some_and(|before| before >= at) {
            return;
        }
        let kinds = tally.kinds();
        let past = self.before_at.map(|before| (at - before).as_secs_f64());
        let rate = |(index, kind): (usize, &crate::record::KindCount)| EventRate {
            group: kind.group,
            name: kind.name,
            total: kind.events,
            per_second: past
                .zip(self.before.get(index))
                .map(|(seconds, before)| kind.events.saturating_sub(*before) as f64 / seconds),
        };
        self.last = Some(Events {
            kinds: kinds.iter().enumerate().map(rate).collect(),
            extfrag: tally.extfrag(),
            lost: tally.lost(),
            missing: tally.missing().to_vec(),
        });
        self.before = kinds.iter().map(|kind| kind.events).collect();
        self.before_at = Some(at);
    }

    /// Returns the counts at the last look.
    #[must_use]
    pub fn last(&self) -> Option<&Events> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::Files;

    /// Makes the page of a host with these zones and counters.
    fn page(counters: &str) -> Page {
        let mut files = Files::default();
        let zones = ["DMA 1 0 9", "Normal 9 0 0", "Movable 4 1 0"];
        let buddy = zones.map(|zone| format!("Node 0, zone {zone}\n")).concat();
        files.insert("buddyinfo", buddy.into_bytes());
        let zone = |name: &str| {
            format!(
                "Node 0, zone {name}\n  pages free 9\n    min 1\n    managed 99\n  start_pfn: 0\n"
            )
        };
        let zoneinfo = ["DMA", "Normal", "Movable"].map(zone).concat();
        files.insert("zoneinfo", zoneinfo.into_bytes());
        files.insert("vmstat", b"compact_stall 0\npgmigrate_success 0\n".to_vec());
        let mut look = Look { files, ..Look::default() };
        let mut history = History::new(10);
        history.push(Duration::from_secs(1), Duration::ZERO, &look.snapshot());
        look.files.insert("vmstat", counters.as_bytes().to_vec());
        history.push(Duration::from_secs(2), Duration::ZERO, &look.snapshot());
        Page::of(&look, &history, None, 1, 8)
    }

    #[test]
    fn every_sorting_is_reached_and_moves_zones_and_counters() {
        let mut sorting = Sorting::AsListed;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let mut page = page("compact_stall 1\npgmigrate_success 70\n");
            page.sort(sorting);
            let zones: Vec<&str> = page.zones.iter().map(|row| row.zone.name.as_str()).collect();
            let rates: Vec<&str> = page.rates.iter().map(|rate| rate.name).collect();
            seen.push((sorting.into_str(), zones.join(" "), rates.join(" ")));
            sorting = sorting.next();
        }
        assert_eq!(sorting, Sorting::AsListed);
        let listed = "compact_stall pgmigrate_success".to_owned();
        let expected = [
            ("as listed", "DMA Normal Movable".to_owned(), listed.clone()),
            (
                "worst first",
                "Normal Movable DMA".to_owned(),
                "pgmigrate_success compact_stall".to_owned(),
            ),
            ("by name", "DMA Movable Normal".to_owned(), listed),
        ];
        assert_eq!(seen, expected);
    }
}
