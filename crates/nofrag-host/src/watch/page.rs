//! What a live view shows of a host at a moment: the schema of `nofrag top --json`.
//!
//! The schema is named in [`Page::schema`] and counted in [`Page::version`], as that of [`crate::vmalloc`]. What could
//! not be had is `null`.

use serde::Serialize;

use super::history::{Forecast, History, Rate};
use super::{Look, Source};
use crate::process::ranking::Ranked;
use crate::record::Tally;
use crate::snapshot::{FreeGap, Snapshot, ZoneInfo, ZoneName};
use crate::source::Missing;
use crate::trace::ExtFragCount;

/// Name of the schema.
pub const SCHEMA: &str = "nofrag.top";
/// Its version.
pub const SCHEMA_VERSION: u32 = 1;

/// What is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// [`SCHEMA_VERSION`].
    pub version: u32,
    /// The kernel's release.
    pub release: Option<String>,
    /// How long the host has been watched.
    pub seconds: f64,
    /// Between the last two looks; `null` before the second.
    pub interval_seconds: Option<f64>,
    /// The share of a core that watching has taken over the looks that are kept; `null` before the second look.
    pub cost_share: Option<f64>,
    /// The zones with memory, by node and lowest first.
    pub zones: Vec<ZoneRow>,
    /// The blocks of buddyinfo beside `MemFree`.
    pub free_gap: Option<FreeGap>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The order that is followed.
    pub order: u32,
    /// Blocks of that order that a process could have of all zones, one after the other, before the watermarks stop it.
    pub obtainable: u64,
    /// Where they go if it goes on like this; `null` before [`LEAST_SECONDS`].
    pub forecast: Option<Forecast>,
    /// Counters of the kernel, and how fast they grow.
    pub rates: Vec<Rate>,
    /// Pageblocks by type, where `pagetypeinfo` was read.
    pub pageblocks: Vec<TypeCount>,
    /// How much older than the rest they are; `null` where it was not read.
    pub pageblocks_age_seconds: Option<f64>,
    /// Events that are counted; `null` where tracing was not asked for.
    pub events: Option<Events>,
    /// The vmalloc space.
    pub vmalloc: Option<VmallocRow>,
    /// The areas of processes.
    pub maps: Option<MapsRows>,
    /// What could not be had, and what it costs.
    pub missing: Vec<Missing>,
}

/// No forecast rests on less.
pub const LEAST_SECONDS: u64 = 30;

/// A zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ZoneRow {
    /// Which.
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Free memory.
    pub free_bytes: u64,
    /// Memory that the allocator hands out.
    pub managed_bytes: u64,
    /// Where the free memory stands among the watermarks.
    pub level: Level,
    /// By how much they are raised; `null` where the kernel does not say.
    pub boost_bytes: Option<u64>,
    /// Free blocks by order.
    pub blocks: Vec<u64>,
    /// The largest order with a free block.
    pub largest_order: Option<u32>,
    /// Share of the free memory, in thousandths, that the order that is followed cannot use; `null` where the blocks
    /// are not known.
    pub unusable: Option<u64>,
    /// The fragmentation index of that order in thousandths; `null` where a block is there.
    pub fragmentation: Option<i64>,
}

/// Where free memory stands among the watermarks in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Callers reclaim themselves.
    BelowMin,
    /// kswapd runs.
    BelowLow,
    /// kswapd, if it runs, goes on.
    BelowHigh,
    /// Nobody reclaims.
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

    /// The level in few words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Level::BelowMin => "below min",
            Level::BelowLow => "below low",
            Level::BelowHigh => "below high",
            Level::AboveHigh => "above high",
        }
    }
}

/// How many pageblocks have a type, in all zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeCount {
    /// The type, as the kernel names it.
    pub migratetype: String,
    /// Pageblocks.
    pub pageblocks: u64,
}

/// Events that are counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Events {
    /// Each kind that is counted.
    pub kinds: Vec<EventRate>,
    /// External fragmentation by types, since the watch began.
    pub extfrag: Vec<ExtFragCount>,
    /// Events that the kernel could not keep.
    pub lost: u64,
    /// What is not counted although it was asked for, and what that costs.
    pub missing: Vec<String>,
}

/// A kind of event, and how often it happens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EventRate {
    /// The trace group.
    pub group: &'static str,
    /// The tracepoint.
    pub name: &'static str,
    /// Since the watch began.
    pub total: u64,
    /// In a second, between the last two looks; `null` before the second look.
    pub per_second: Option<f64>,
}

/// The vmalloc space.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VmallocRow {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Areas in use.
    pub used_areas: u64,
    /// Bytes that are freed and wait for a purge.
    pub lazy_bytes: u64,
    /// The purge comes at so many.
    pub lazy_limit_bytes: Option<u64>,
    /// How much older than the rest this is.
    pub age_seconds: f64,
}

/// The areas of processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapsRows {
    /// `vm.max_map_count`.
    pub limit: Option<u64>,
    /// The processes with most areas.
    pub processes: Vec<Ranked>,
    /// Processes that could be counted.
    pub counted: usize,
    /// How much older than the rest this is.
    pub age_seconds: f64,
}

impl Page {
    /// What is shown of the last look; so many processes, and what concerns one order.
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
            schema: SCHEMA,
            version: SCHEMA_VERSION,
            release: snapshot.release.clone(),
            seconds: look.at.as_secs_f64(),
            interval_seconds: history.interval().map(|time| time.as_secs_f64()),
            cost_share: history.cost_share(),
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

    /// The largest order that this kernel keeps blocks of; `None` where the lists are not known.
    #[must_use]
    pub fn most_order(&self) -> Option<u32> {
        let orders = self.zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
        u32::try_from(orders).ok()?.checked_sub(1)
    }
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

/// Follows a tally from look to look.
#[derive(Clone, Debug, Default)]
pub struct EventHistory {
    before: Vec<u64>,
    before_at: Option<std::time::Duration>,
    last: Option<Events>,
}

impl EventHistory {
    /// Takes in what was counted until `at`, a time of the watch; a time that is not later changes nothing.
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

    /// What was counted at the last look.
    #[must_use]
    pub fn last(&self) -> Option<&Events> {
        self.last.as_ref()
    }
}
