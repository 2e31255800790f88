//! A guest's console as its first process wrote it: settings, then snapshots of sections (boot.sh).

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};

/// Output of a guest, taken apart.
pub(crate) struct Console<'a> {
    settings: BTreeMap<&'a str, &'a str>,
    formats: Snapshot<'a>,
    phases: BTreeMap<&'a str, Snapshot<'a>>,
}

/// The files that a guest showed at one moment, by name.
#[derive(Default)]
pub(crate) struct Snapshot<'a> {
    sections: BTreeMap<&'a str, &'a str>,
}

impl<'a> Console<'a> {
    /// Takes the text apart; fails if the guest did not come to its end or says that something failed.
    pub(crate) fn read(text: &'a str) -> anyhow::Result<Console<'a>> {
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

    pub(crate) fn setting(&self, name: &str) -> Option<&'a str> {
        self.settings.get(name).copied()
    }

    /// Returns the format in which the kernel prints an event.
    pub(crate) fn format(&self, event: &str) -> anyhow::Result<&'a str> {
        self.formats.section(&format!("format {event}"))
    }

    pub(crate) fn phase(&self, name: &str) -> anyhow::Result<&Snapshot<'a>> {
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

    pub(crate) fn section(&self, name: &str) -> anyhow::Result<&'a str> {
        self.sections.get(name).copied().with_context(|| format!("the guest shows no {name}"))
    }

    /// Returns all sections with their names.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.sections.iter().map(|(name, text)| (*name, *text))
    }

    /// Returns the seconds since the guest began.
    pub(crate) fn uptime(&self) -> anyhow::Result<f64> {
        let first = self.section("uptime")?.split_whitespace().next();
        Ok(first.context("uptime is empty")?.parse()?)
    }

    pub(crate) fn vmstat(&self) -> anyhow::Result<BTreeMap<&'a str, u64>> {
        let mut counters = BTreeMap::new();
        for line in self.section("vmstat")?.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.trim().split_once(' ').with_context(|| garbled(line))?;
            counters.insert(name, value.parse().with_context(|| garbled(line))?);
        }
        Ok(counters)
    }

    /// Returns the counters of /proc/vmstat that have grown since `before`.
    pub(crate) fn counted_since(
        &self,
        before: &Snapshot<'_>,
    ) -> anyhow::Result<BTreeMap<&'a str, u64>> {
        let is_counter = |name: &str| !name.starts_with("nr_") && name != "workingset_nodes";
        let (before, after) = (before.vmstat()?, self.vmstat()?);
        let mut counters = BTreeMap::new();
        for (name, count) in after.into_iter().filter(|(name, _)| is_counter(name)) {
            let since = count.checked_sub(before.get(name).copied().unwrap_or(0));
            let since = since.with_context(|| format!("{name} of vmstat went back"))?;
            if since > 0 {
                counters.insert(name, since);
            }
        }
        Ok(counters)
    }

    /// Returns the fields of each zone that manages memory.
    pub(crate) fn zoneinfo(&self) -> anyhow::Result<Vec<(String, BTreeMap<&'a str, u64>)>> {
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
    pub(crate) fn zone_lines(
        &self,
        name: &str,
    ) -> impl Iterator<Item = anyhow::Result<(String, Vec<u64>)>> {
        Snapshot::lines_of(self.sections.get(name).copied().unwrap_or_default())
    }

    /// Returns zone and numbers of each line of `text` that reads like `Node 0, zone Normal 1 2 3`.
    pub(crate) fn lines_of(text: &str) -> impl Iterator<Item = anyhow::Result<(String, Vec<u64>)>> {
        text.lines().filter_map(zone_of).map(|(zone, rest)| {
            let numbers = rest.split_whitespace().map(str::parse).collect::<Result<_, _>>();
            Ok((zone, numbers.with_context(|| garbled(rest))?))
        })
    }
}

/// Returns `node0.normal` and the rest of a line that begins with `Node 0, zone Normal`.
fn zone_of(line: &str) -> Option<(String, &str)> {
    let (node, rest) = line.trim().strip_prefix("Node ")?.split_once(", zone")?;
    let rest = rest.trim_start();
    let (zone, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Some((format!("node{}.{}", node.trim(), zone.to_lowercase()), rest))
}

pub(crate) fn garbled(line: &str) -> String {
    format!("garbled line `{}`", line.trim())
}
