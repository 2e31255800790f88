//! `/proc/zoneinfo`: size, watermarks, boost, counters and per-CPU sets of every zone.
//!
//! ```text
//! Node 0, zone    DMA32
//!   per-node stats
//!       nr_inactive_anon 13278
//!   pages free     38876
//!         boost    0
//!         min      8378
//!         protection: (0, 0, 0, 0, 0)
//!       nr_free_pages 38876
//!   pagesets
//!     cpu: 0
//!               count: 295
//!   start_pfn:           4096
//! ```
//!
//! The printed watermarks are those in force: they include the boost, see [`ZoneInfo::marks`].
//!
//! Kernels differ in their lines: `boost`, `promo`, `cma` and `nr_free_pages_blocks` came one by one. An unknown line
//! is kept as a counter if it is a name and a number.

use std::collections::BTreeMap;

use nofrag::page::Watermarks;
use serde::Serialize;

use super::lines::{Malformed, ZoneName, numbered, zone};

/// One zone, from its lines in `/proc/zoneinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZoneInfo {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Free pages, those on per-CPU lists not included.
    pub free: u64,
    /// Pages by which the watermarks are raised; `None` where the kernel does not tell.
    pub boost: Option<u64>,
    /// The watermark below which only callers with rights take pages, boost included.
    pub min: u64,
    /// The watermark at which kswapd is woken, boost included.
    pub low: u64,
    /// The watermark at which kswapd sleeps again, boost included.
    pub high: u64,
    /// Number of frames from the zone's first to its last.
    pub spanned: u64,
    pub present: u64,
    /// Frames that the allocator hands out.
    pub managed: u64,
    /// Frames set aside for CMA; `None` where the kernel does not tell.
    pub cma: Option<u64>,
    /// The zone's first frame; `None` for a zone without memory.
    pub start_pfn: Option<u64>,
    /// Pages kept from requests that could have used a higher zone, indexed by the highest zone that the request could
    /// use (`lowmem_reserve`).
    pub protection: Vec<u64>,
    /// The lists of the CPUs.
    pub per_cpu: Vec<PerCpuSet>,
    /// All other lines with a name and a number, such as `nr_free_cma`.
    pub counters: BTreeMap<String, u64>,
}

/// A CPU's lists in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PerCpuSet {
    pub cpu: u32,
    /// Number of pages on the lists.
    pub count: u64,
    /// Number of pages above which the lists are drained.
    pub high: u64,
    /// Number of pages that are moved at a time.
    pub batch: u64,
}

impl ZoneInfo {
    /// Returns the free pages in blocks of a pageblock or more (`nr_free_pages_blocks`); `None` where the kernel does
    /// not tell.
    #[must_use]
    pub fn free_in_pageblocks(&self) -> Option<u64> {
        self.counters.get("nr_free_pages_blocks").copied()
    }

    /// Returns the free pages that belong to CMA blocks; `None` where the kernel does not tell.
    #[must_use]
    pub fn free_cma(&self) -> Option<u64> {
        self.counters.get("nr_free_cma").copied()
    }

    /// Returns the watermarks without the boost.
    #[must_use]
    pub fn marks(&self) -> Watermarks {
        let plain = |mark: u64| mark.saturating_sub(self.boost.unwrap_or(0));
        let promo = self.counters.get("promo").copied().unwrap_or(self.high);
        Watermarks {
            min: plain(self.min),
            low: plain(self.low),
            high: plain(self.high),
            promo: plain(promo),
        }
    }

    /// Returns the number of pages on the lists of all CPUs.
    #[must_use]
    pub fn on_per_cpu_lists(&self) -> u64 {
        self.per_cpu.iter().fold(0, |sum, set| sum.saturating_add(set.count))
    }

    /// Returns the frame behind the zone's last; `None` for a zone without memory.
    #[must_use]
    pub fn end_pfn(&self) -> Option<u64> {
        Some(self.start_pfn?.saturating_add(self.spanned))
    }
}

/// The part of the file to which lines belong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Node,
    Zone,
    PerCpu,
}

/// The counters of each node.
type Nodes = BTreeMap<u32, BTreeMap<String, u64>>;

/// Parses the text of `/proc/zoneinfo`; returns its zones, in the order of the file (by node, lowest first), and the
/// counters of each node, and the lines that could not be read.
#[must_use]
pub fn zoneinfo(text: &str) -> ((Vec<ZoneInfo>, Nodes), Vec<Malformed>) {
    let (mut zones, mut nodes) = (Vec::new(), Nodes::new());
    let mut malformed = Vec::new();
    let mut part = Part::Zone;
    for (line, text) in numbered(text) {
        if let Some((zone, rest)) = zone(text)
            && rest.trim().is_empty()
        {
            zones.push(ZoneInfo { zone, ..ZoneInfo::default() });
            part = Part::Zone;
            continue;
        }
        let known = zones.last_mut().is_some_and(|zone: &mut ZoneInfo| match text.trim() {
            "per-node stats" => {
                part = Part::Node;
                true
            }
            "pagesets" => {
                part = Part::PerCpu;
                true
            }
            text => {
                if text.starts_with("pages free") || text.starts_with("start_pfn") {
                    part = Part::Zone;
                }
                let node = nodes.entry(zone.zone.node);
                match part {
                    Part::Node => name_and_number(text).map(|(name, number)| {
                        _ = node.or_default().insert(name.to_owned(), number)
                    }),
                    Part::Zone => zone.line(text),
                    Part::PerCpu => zone.per_cpu_line(text),
                }
                .is_some()
            }
        });
        if !known {
            malformed
                .push(Malformed { line, expected: "a zone's heading, or a name with its number" });
        }
    }
    ((zones, nodes), malformed)
}

/// Splits lines such as `nr_free_pages 889` and `count: 21`.
fn name_and_number(text: &str) -> Option<(&str, u64)> {
    let at = text.rfind(|c: char| c.is_ascii_whitespace() || c == ':')?;
    let name = text[..at].trim_end_matches(|c: char| c.is_ascii_whitespace() || c == ':');
    let number = text[at + 1..].parse().ok()?;
    (!name.is_empty()).then_some((name, number))
}

impl ZoneInfo {
    fn line(&mut self, text: &str) -> Option<()> {
        if let Some(list) = text.strip_prefix("protection:") {
            let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
            let values: Option<Vec<u64>> =
                list.split(',').map(|word| word.trim().parse().ok()).collect();
            self.protection = values?;
            return Some(());
        }
        let (name, number) = name_and_number(text)?;
        match name {
            "pages free" => self.free = number,
            "boost" => self.boost = Some(number),
            "min" => self.min = number,
            "low" => self.low = number,
            "high" => self.high = number,
            "spanned" => self.spanned = number,
            "present" => self.present = number,
            "managed" => self.managed = number,
            "cma" => self.cma = Some(number),
            "start_pfn" => self.start_pfn = Some(number),
            name => _ = self.counters.insert(name.to_owned(), number),
        }
        Some(())
    }

    fn per_cpu_line(&mut self, text: &str) -> Option<()> {
        let (name, number) = name_and_number(text)?;
        if name == "cpu" {
            let cpu = u32::try_from(number).ok()?;
            self.per_cpu.push(PerCpuSet { cpu, ..PerCpuSet::default() });
            return Some(());
        }
        let Some(set) = self.per_cpu.last_mut() else { return self.line(text) };
        match name {
            "count" => set.count = number,
            "high" => set.high = number,
            "batch" => set.batch = number,
            // `vm stats threshold`, `high_min`, and the lines behind the last CPU.
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Node 0, zone   Normal
  per-node stats
      nr_inactive_anon 13278
      nr_mapped    432
  pages free     889
        boost    7
        min      190
        low      237
        high     284
        promo    331
        spanned  4095
        present  3998
        managed  3840
        cma      512
        protection: (0, 659, 700)
      nr_free_pages 889
      nr_free_pages_blocks 512
      nr_free_cma  3
  pagesets
    cpu: 0
              count:    21
              high:     118
              batch:    1
              high_min: 6
  vm stats threshold: 4
    cpu: 3
              count: 14
              high:  118
              batch: 1
  vm stats threshold: 4
  node_unreclaimable:  0
  start_pfn:           1
Node 1, zone  HighMem
  pages free     0
        min      32
        low      32
        high     32
        spanned  0
        present  0
        managed  0
        protection: (0, 0, 0)
";

    #[test]
    fn zones_of_two_nodes() {
        let ((zones, nodes), malformed) = zoneinfo(TEXT);
        assert_eq!(malformed, []);
        let [normal, high] = &zones[..] else { panic!("{zones:?}") };
        assert_eq!((normal.free, normal.boost, normal.min, normal.high), (889, Some(7), 190, 284));
        assert_eq!(
            (normal.spanned, normal.present, normal.managed, normal.cma),
            (4095, 3998, 3840, Some(512))
        );
        assert_eq!((normal.start_pfn, normal.end_pfn()), (Some(1), Some(4096)));
        assert_eq!((normal.free_in_pageblocks(), normal.free_cma()), (Some(512), Some(3)));
        assert_eq!(normal.protection, [0, 659, 700]);
        assert_eq!(normal.marks(), Watermarks { min: 183, low: 230, high: 277, promo: 324 });
        let sets =
            [(0, 21), (3, 14)].map(|(cpu, count)| PerCpuSet { cpu, count, high: 118, batch: 1 });
        assert_eq!((&normal.per_cpu[..], normal.on_per_cpu_lists()), (&sets[..], 35));
        assert_eq!(nodes[&0]["nr_mapped"], 432);
        assert_eq!((high.zone.node, high.boost, high.start_pfn, high.min), (1, None, None, 32));
        assert_eq!(high.zone.kind(), Some(nofrag::page::ZoneKind::HighMem));
    }

    #[test]
    fn a_cut_file_keeps_what_stands_before_the_cut() {
        for cut in 0..TEXT.len() {
            let (_, malformed) = zoneinfo(&TEXT[..cut]);
            assert!(malformed.len() <= 1, "{cut}: {malformed:?}");
        }
        assert_eq!(zoneinfo("min 3\n").1.len(), 1, "no zone yet");
    }
}
