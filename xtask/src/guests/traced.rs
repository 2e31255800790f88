//! Events that the guests of this task trace, in the snapshots of their consoles: histograms, or the trace itself.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};

use super::EXTFRAG;
use crate::emulator::console::{Snapshot, garbled};

/// A fallback between types, as the kernel told it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fallback {
    /// Node and zone, as in `node0.normal`.
    pub(super) zone: String,
    /// The order of the block that was found.
    pub(super) order: u64,
    /// The type that was asked for, by number.
    pub(super) wanted: usize,
    /// The type that was taken from.
    pub(super) taken: usize,
}

/// Values of an event's fields, in the order of the histogram's keys.
pub(super) type Fields = Vec<(String, String)>;

impl<'a> Snapshot<'a> {
    /// Returns the sections that hold histograms, with the names of their events.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.sections().filter_map(|(name, text)| {
            let (_, event) = name.strip_prefix("hist ")?.split_once('/')?;
            Some((event, text))
        })
    }

    /// Counts the hits of an event, by its fields.
    pub(super) fn hits(&self, event: &str) -> BTreeMap<Fields, u64> {
        let text = self.histograms().find(|(name, _)| *name == event).map_or("", |(_, text)| text);
        text.lines().filter_map(hit).collect()
    }

    /// Counts the fallbacks between types, from histograms of zones or from the trace itself.
    pub(super) fn fallbacks(&self) -> anyhow::Result<BTreeMap<Fallback, u64>> {
        let zones = self.zoneinfo()?;
        let zone_at = |frame: u64| {
            let holds = |fields: &BTreeMap<&str, u64>| {
                let (first, spanned) = (fields["start_pfn"], fields["spanned"]);
                (first..first + spanned).contains(&frame)
            };
            // Zones of two nodes may span one another; guests have none that do.
            let zone = zones.iter().find(|(_, fields)| holds(fields));
            zone.map(|(name, _)| name.clone()).with_context(|| format!("frame {frame} has no zone"))
        };
        if let Some((_, text)) = self.histograms().find(|(event, _)| *event == EXTFRAG) {
            let counts = from_histograms(text, zone_at)?;
            let without = zones.iter().find(|(zone, _)| !counts.contains_key(zone));
            let without = without.map(|(zone, _)| zone);
            ensure!(without.is_none(), "no histogram of fallbacks in {without:?}");
            return Ok(counts.into_values().flatten().collect());
        }
        let lost = self.section("trace_lost")?.lines().filter(|line| line.contains("overrun"));
        let is_lost = |line: &str| line.rsplit(' ').next().is_some_and(|count| count != "0");
        ensure!(!lost.map(str::trim).any(is_lost), "the guest lost events of its trace");
        let mut counts = BTreeMap::new();
        for line in self.section("trace")?.lines().filter(|line| line.contains(EXTFRAG)) {
            let number = |name: &str| number_in(line, name);
            let found = fallback(zone_at(number("pfn")?)?, number)?;
            *counts.entry(found).or_insert(0) += 1;
        }
        Ok(counts)
    }
}

/// Reads histograms that follow one another, each after a line with the frames of its zone; returns those of each zone.
fn from_histograms(
    text: &str,
    zone_at: impl Fn(u64) -> anyhow::Result<String>,
) -> anyhow::Result<BTreeMap<String, BTreeMap<Fallback, u64>>> {
    let mut zones = BTreeMap::new();
    let mut zone = String::new();
    for line in text.lines() {
        if let Some((_, filter)) = line.split_once("pfn >= ") {
            let first = filter.split_whitespace().next().unwrap_or_default();
            zone = zone_at(first.parse().with_context(|| garbled(line))?)?;
            zones.insert(zone.clone(), BTreeMap::new());
        } else if let Some((fields, count)) = hit(line) {
            let value = |name: &str| {
                let field = fields.iter().find(|(key, _)| key == name);
                let (_, value) = field.with_context(|| garbled(line))?;
                value.parse().with_context(|| garbled(line))
            };
            let counts = zones.get_mut(&zone).with_context(|| garbled(line))?;
            counts.insert(fallback(zone.clone(), value)?, count);
        }
    }
    Ok(zones)
}

fn fallback(
    zone: String,
    number: impl Fn(&str) -> anyhow::Result<u64>,
) -> anyhow::Result<Fallback> {
    Ok(Fallback {
        zone,
        order: number("fallback_order")?,
        wanted: usize::try_from(number("alloc_migratetype")?)?,
        taken: usize::try_from(number("fallback_migratetype")?)?,
    })
}

/// Returns the number that follows `name=` in a line of the trace.
fn number_in(line: &str, name: &str) -> anyhow::Result<u64> {
    let mark = format!(" {name}=");
    let (_, rest) = line.split_once(&mark).with_context(|| garbled(line))?;
    let value = rest.split_whitespace().next().unwrap_or_default();
    let number = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    number.with_context(|| garbled(line))
}

/// Parses a line of a histogram: `{ order: 9, ret: 4 } hitcount: 7`.
fn hit(line: &str) -> Option<(Fields, u64)> {
    let (fields, count) = line.trim().strip_prefix('{')?.split_once("} hitcount:")?;
    let fields = fields.split(',').filter_map(|field| {
        let (name, value) = field.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    });
    Some((fields.collect(), count.trim().parse().ok()?))
}
