//! A guest's console as its first process wrote it (init.sh): settings, then snapshots of sections.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};

/// Output of a guest, taken apart.
pub(super) struct Console<'a> {
    settings: BTreeMap<&'a str, &'a str>,
    formats: Snapshot<'a>,
    phases: BTreeMap<&'a str, Snapshot<'a>>,
}

/// The files that a guest showed at one moment, by name.
#[derive(Default)]
pub(super) struct Snapshot<'a> {
    sections: BTreeMap<&'a str, &'a str>,
}

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

impl<'a> Console<'a> {
    /// Takes the text apart; fails if the guest did not come to its end or says that something failed.
    pub(super) fn read(text: &'a str) -> anyhow::Result<Console<'a>> {
        if let Some(line) = text.lines().find(|line| line.contains("@@failed")) {
            bail!("the guest says: {}", line.trim());
        }
        ensure!(text.contains("@@done"), "the guest did not come to its end");
        let (_, text) = text.split_once("@@run").context("the guest names no settings")?;
        let mut parts = text.split("@@phase ");
        let head = parts.next().unwrap_or_default();
        let settings = head.split("@@").next().unwrap_or_default();
        let pairs = settings.lines().filter_map(|line| line.trim().split_once('='));
        let phases = parts.map(|part| {
            let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
            (name.trim(), Snapshot::read(rest))
        });
        let formats = Snapshot::read(head);
        Ok(Console { settings: pairs.collect(), formats, phases: phases.collect() })
    }

    pub(super) fn setting(&self, name: &str) -> Option<&'a str> {
        self.settings.get(name).copied()
    }

    /// Returns the format in which the kernel prints an event.
    pub(super) fn format(&self, event: &str) -> anyhow::Result<&'a str> {
        self.formats.section(&format!("format {event}"))
    }

    pub(super) fn phase(&self, name: &str) -> anyhow::Result<&Snapshot<'a>> {
        self.phases.get(name).with_context(|| format!("the guest has no snapshot {name}"))
    }
}

impl<'a> Snapshot<'a> {
    fn read(text: &'a str) -> Snapshot<'a> {
        let sections = text.split("@@section ").skip(1).map(|part| {
            let part = part.split("@@").next().unwrap_or(part);
            let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
            (name.trim(), rest)
        });
        Snapshot { sections: sections.collect() }
    }

    pub(super) fn section(&self, name: &str) -> anyhow::Result<&'a str> {
        self.sections.get(name).copied().with_context(|| format!("the guest shows no {name}"))
    }

    /// Returns the seconds since the guest began.
    pub(super) fn uptime(&self) -> anyhow::Result<f64> {
        let first = self.section("uptime")?.split_whitespace().next();
        Ok(first.context("uptime is empty")?.parse()?)
    }

    pub(super) fn vmstat(&self) -> anyhow::Result<BTreeMap<&'a str, u64>> {
        let mut counters = BTreeMap::new();
        for line in self.section("vmstat")?.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.trim().split_once(' ').with_context(|| garbled(line))?;
            counters.insert(name, value.parse().with_context(|| garbled(line))?);
        }
        Ok(counters)
    }

    /// Returns the fields of each zone that manages memory.
    pub(super) fn zoneinfo(&self) -> anyhow::Result<Vec<(String, BTreeMap<&'a str, u64>)>> {
        let mut zones: Vec<(String, BTreeMap<&str, u64>)> = Vec::new();
        for line in self.section("zoneinfo")?.lines() {
            if let Some((zone, _)) = zone_of(line) {
                zones.push((zone, BTreeMap::new()));
            } else if let (Some((_, fields)), [name, value]) =
                (zones.last_mut(), &line.split_whitespace().collect::<Vec<_>>()[..])
                && let Ok(value) = value.parse()
            {
                // The first of a name is the zone's; those of its lists follow.
                fields.entry(name.trim_end_matches(':')).or_insert(value);
            }
        }
        zones.retain(|(_, fields)| fields.get("managed").is_some_and(|managed| *managed > 0));
        ensure!(!zones.is_empty(), "zoneinfo has no zone");
        Ok(zones)
    }

    /// Returns zones and numbers of a section whose lines are `Node 0, zone Normal 1 2 3`.
    pub(super) fn zone_lines(
        &self,
        name: &str,
    ) -> impl Iterator<Item = anyhow::Result<(String, Vec<u64>)>> {
        Snapshot::lines_of(self.sections.get(name).copied().unwrap_or_default())
    }

    /// Returns zone and numbers of each line of `text` that reads like `Node 0, zone Normal 1 2 3`.
    pub(super) fn lines_of(text: &str) -> impl Iterator<Item = anyhow::Result<(String, Vec<u64>)>> {
        text.lines().filter_map(zone_of).map(|(zone, rest)| {
            let numbers = rest.split_whitespace().map(str::parse).collect::<Result<_, _>>();
            Ok((zone, numbers.with_context(|| garbled(rest))?))
        })
    }

    /// Returns the sections that hold histograms, with the names of their events.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.sections.iter().filter_map(|(name, text)| {
            let (_, event) = name.strip_prefix("hist ")?.split_once('/')?;
            Some((event, *text))
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
        if let Some((_, text)) = self.histograms().find(|(event, _)| *event == super::EXTFRAG) {
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
        for line in self.section("trace")?.lines().filter(|line| line.contains(super::EXTFRAG)) {
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

/// Returns `node0.normal` and the rest of a line that begins with `Node 0, zone Normal`.
fn zone_of(line: &str) -> Option<(String, &str)> {
    let (node, rest) = line.trim().strip_prefix("Node ")?.split_once(", zone")?;
    let rest = rest.trim_start();
    let (zone, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Some((format!("node{}.{}", node.trim(), zone.to_lowercase()), rest))
}

fn garbled(line: &str) -> String {
    format!("garbled line `{}`", line.trim())
}
