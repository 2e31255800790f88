//! The Mem-Info block of a report: the free memory at that moment, zone by zone.
//!
//! ```text
//! Node 0 DMA32 free:12904kB boost:0kB min:2976kB low:3720kB high:4464kB ... present:1032192kB managed:1015808kB ...
//! lowmem_reserve[]: 0 2784 15890 15890 15890
//! Node 0 DMA32: 12*4kB (UME) 4*8kB (M) 0*16kB ... = 12904kB
//! ```
//!
//! A line that mail or a terminal has broken is joined again; of a line that is cut off the values before the cut are
//! kept.

use std::collections::BTreeMap;

use nofrag::page::{FreeCounts, Migratetype, NodeId, Watermarks, ZoneKind, ZoneState};
use nofrag::units::Order;
use serde::Serialize;

use crate::snapshot::{MOST_ORDERS, ZoneName};

/// The set of letters behind a number of free blocks: the types that some of these blocks have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TypeSet(u8);

impl TypeSet {
    /// The letter that the kernel prints for each migratetype.
    const LETTERS: [(char, Migratetype); 6] = [
        ('U', Migratetype::Unmovable),
        ('M', Migratetype::Movable),
        ('E', Migratetype::Reclaimable),
        ('H', Migratetype::HighAtomic),
        ('C', Migratetype::Cma),
        ('I', Migratetype::Isolate),
    ];

    /// Returns the types of letters such as `UME`. Unknown letters are ignored: kernels until 4.3 had `R` for a
    /// reserve.
    #[must_use]
    pub fn parse(letters: &str) -> TypeSet {
        let known = TypeSet::LETTERS.iter().filter(|(letter, _)| letters.contains(*letter));
        TypeSet(known.fold(0, |set, (_, each)| set | 1 << each.index()))
    }

    /// Returns true if some of the blocks are of this type.
    #[must_use]
    pub fn has(self, migratetype: Migratetype) -> bool {
        self.0 >> migratetype.index() & 1 == 1
    }

    /// Returns true if the set names no type.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Writes the letters in the kernel's order.
impl std::fmt::Display for TypeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = TypeSet::LETTERS.iter().filter(|(_, each)| self.has(*each));
        named.into_iter().try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

/// A zone as a report shows it, in KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReportedZone {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Every `name:NkB` of the zone's line, such as `free` and `min`.
    pub kib: BTreeMap<String, u64>,
    /// Pages kept from requests that could have used a higher zone, indexed by the highest zone that the request could
    /// use.
    pub lowmem_reserve: Vec<u64>,
    pub blocks: Vec<u64>,
    /// The types among the free blocks, by order.
    pub types: Vec<TypeSet>,
}

/// Memory at the time of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The zones with memory, in the order of the report.
    pub zones: Vec<ReportedZone>,
    /// Counters of the whole machine in pages, such as `free`, `inactive_file` and `slab_unreclaimable`.
    pub totals: BTreeMap<String, u64>,
    /// Value of `Free swap` in KiB.
    pub free_swap_kib: Option<u64>,
    /// Value of `Total swap` in KiB.
    pub total_swap_kib: Option<u64>,
    /// Pages of memory, by the line `pages RAM`.
    pub ram_pages: Option<u64>,
    /// KiB in a page: the size of blocks of order 0; 4 where no block is listed.
    pub page_kib: u64,
    last: Last,
}

/// The line that a broken line continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum Last {
    #[default]
    Nothing,
    Totals,
    Zone,
    Reserve,
    Blocks(usize),
}

const USUAL_PAGE_KIB: u64 = 4;
/// Most zones that are read: more than any report has.
const MOST_ZONES: usize = 1024;

impl ReportedZone {
    /// Returns the figure `name` of the zone's line, such as `free`, in KiB; `None` if the line lacks it.
    #[must_use]
    pub fn kib(&self, name: &str) -> Option<u64> {
        self.kib.get(name).copied()
    }

    /// Returns the number of free pages; some may be in blocks that only some requests can use.
    #[must_use]
    pub fn free_pages(&self, page_kib: u64) -> u64 {
        let listed = || {
            self.blocks
                .iter()
                .zip(0..)
                .fold(0, |sum: u64, (&n, order)| sum.saturating_add(n << order))
        };
        self.kib("free").map_or_else(listed, |kib| kib / page_kib.max(1))
    }

    /// Returns the zone in the core's terms; `None` for a zone that the page allocator does not serve.
    ///
    /// Blocks above the core's largest order count as blocks of that order. Where no types are printed, every block
    /// counts as a block of each ordinary type, so that no request is refused for its type.
    #[must_use]
    pub fn state(&self, page_kib: u64) -> Option<ZoneState> {
        let pages = |name: &str| self.kib(name).map(|kib| kib / page_kib.max(1));
        let kind = self.zone.kind()?;
        let boost = pages("boost").unwrap_or(0);
        // The printed marks are the ones in force: they include the boost.
        let mark = |name| pages(name).unwrap_or(0).saturating_sub(boost);
        let marks = Watermarks {
            min: mark("min"),
            low: mark("low"),
            high: mark("high"),
            promo: mark("high"),
        };
        let free = self.free_pages(page_kib);
        let reserved = pages("free_highatomic").or_else(|| pages("reserved_highatomic"));
        let mut counts = FreeCounts {
            pages: free,
            high_atomic: reserved.unwrap_or(0).min(free),
            cma: pages("free_cma").unwrap_or(0).min(free),
            orders: [0; Migratetype::COUNT],
        };
        let are_typed = self.types.iter().any(|types| !types.is_empty());
        for (order, &blocks) in self.blocks.iter().enumerate().filter(|(_, blocks)| **blocks > 0) {
            let bit = 1 << order.min(Order::MAX.index());
            let types = self.types.get(order).copied().unwrap_or_default();
            for each in Migratetype::ALL {
                let is_there = if are_typed { types.has(each) } else { each.is_mobility() };
                counts.orders[each.index()] |= if is_there && blocks > 0 { bit } else { 0 };
            }
        }
        let node = NodeId(u8::try_from(self.zone.node).ok()?);
        Some(ZoneState { node, kind, marks, boost, reserve: [0; ZoneKind::COUNT], free: counts })
    }
}

impl Memory {
    pub(super) fn new() -> Memory {
        Memory { page_kib: USUAL_PAGE_KIB, ..Memory::default() }
    }

    /// Returns true if nothing of a Mem-Info block has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty() && self.totals.is_empty()
    }

    /// Returns the zones that the page allocator serves, each with its state in the core's terms, `lowmem_reserve` by
    /// kind of zone included. The columns of `lowmem_reserve` are the zones that the kernel was built with, lowest
    /// first: those with memory and those without.
    #[must_use]
    pub fn states(&self) -> Vec<(&ReportedZone, ZoneState)> {
        let columns = self.columns();
        let with_reserve = |zone: &ReportedZone, state: ZoneState| {
            let mut state = state;
            for kind in ZoneKind::ALL {
                // A kind that the kernel does not have counts as the next lower one that it has.
                let column = columns.iter().rposition(|&each| each <= kind);
                let value = column.and_then(|column| zone.lowmem_reserve.get(column));
                state.reserve[kind.index()] = value.copied().unwrap_or(0);
            }
            state
        };
        let states = self.zones.iter().filter_map(|zone| Some((zone, zone.state(self.page_kib)?)));
        states.map(|(zone, state)| (zone, with_reserve(zone, state))).collect()
    }

    /// Returns the kinds of zone for which the columns of `lowmem_reserve` stand. The number of columns tells kernels
    /// apart where the zones with memory do not.
    fn columns(&self) -> Vec<ZoneKind> {
        let count = self.zones.iter().map(|zone| zone.lowmem_reserve.len()).max().unwrap_or(0);
        let has = |kind| self.zones.iter().any(|zone| zone.zone.kind() == Some(kind));
        let mut kinds: Vec<ZoneKind> =
            ZoneKind::ALL.into_iter().filter(|&kind| has(kind)).collect();
        // Normal and Movable always exist; after them come the kinds of x86-64. `Device` is a last column without a
        // kind.
        let likely = [ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Dma32, ZoneKind::Dma];
        for kind in likely {
            if kinds.len() < count
                && !kinds.contains(&kind)
                && (kind != ZoneKind::Dma32 || !has(ZoneKind::HighMem))
            {
                kinds.push(kind);
            }
        }
        kinds.sort();
        kinds
    }

    /// Reads a line without its prefix; returns true if the line belongs to the Mem-Info block.
    pub(super) fn line(&mut self, text: &str) -> bool {
        if let Some((before, rest)) = split_at_word(text, "free:")
            && let Some(zone) = zone_before(before)
        {
            return self.zone_line(zone, rest);
        }
        if let Some((_, values)) = text.split_once("lowmem_reserve[]:") {
            self.last = Last::Reserve;
            self.read_reserve(values);
            return true;
        }
        self.block_line(text) || self.continued(text) || self.totals_line(text)
    }

    fn read_reserve(&mut self, values: &str) {
        let Some(zone) = self.zones.last_mut() else { return };
        let values = values.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
        let values = values.map(|value| value.min(MOST));
        let room = MOST_ORDERS.saturating_sub(zone.lowmem_reserve.len());
        zone.lowmem_reserve.extend(values.take(room));
    }

    fn zone_line(&mut self, zone: ZoneName, rest: &str) -> bool {
        if self.zones.len() >= MOST_ZONES {
            return false;
        }
        let mut read = ReportedZone { zone, ..ReportedZone::default() };
        read.kib.extend(kib_figures(rest));
        self.zones.push(read);
        self.last = Last::Zone;
        true
    }

    /// Reads `Node 0 DMA32: 12*4kB (UME) ..`, and the continuation of a broken line.
    fn block_line(&mut self, text: &str) -> bool {
        if let Last::Blocks(place) = self.last
            && (text.starts_with(['(', '=']) || text.split(' ').next().and_then(block).is_some())
        {
            self.read_blocks(place, text);
            return true;
        }
        let words = || text.split_ascii_whitespace();
        let Some(first) = words().find(|word| block(word).is_some()) else { return false };
        let at = first.as_ptr() as usize - text.as_ptr() as usize;
        let Some(zone) = text[..at].trim_end().strip_suffix(':').and_then(zone_before) else {
            return false;
        };
        let place = match self.zones.iter().rposition(|each| each.zone == zone) {
            Some(place) => place,
            None if self.zones.len() < MOST_ZONES => {
                self.zones.push(ReportedZone { zone, ..ReportedZone::default() });
                self.zones.len() - 1
            }
            None => return false,
        };
        self.last = Last::Blocks(place);
        self.read_blocks(place, &text[at..]);
        true
    }

    fn read_blocks(&mut self, place: usize, text: &str) {
        for word in text.split_ascii_whitespace() {
            let zone = &mut self.zones[place];
            let (word, letters) = word.split_once('(').unwrap_or((word, ""));
            if let Some((count, kib)) = block(word) {
                if zone.blocks.is_empty() {
                    self.page_kib = kib.clamp(1, 1 << 10);
                }
                if zone.blocks.len() == MOST_ORDERS {
                    return;
                }
                // A bound above the blocks of any machine: sums over orders stay within 64 bits.
                zone.blocks.push(count.min(1 << 31));
                zone.types.push(TypeSet::default());
            }
            let letters = letters.trim_end_matches(')');
            if let Some(types) = zone.types.last_mut()
                && !letters.is_empty()
            {
                *types = TypeSet::parse(letters);
            }
        }
    }

    /// Reads the continuation of a broken line of a zone or of the counters.
    fn continued(&mut self, text: &str) -> bool {
        let all = |is_one: fn(&str) -> bool| {
            !text.is_empty() && text.split_ascii_whitespace().all(is_one)
        };
        match self.last {
            Last::Zone if all(|word| figure(word, "kB").is_some()) => {
                let zone = self.zones.last_mut().expect("its line came before");
                zone.kib.extend(kib_figures(text));
            }
            Last::Reserve if all(|word| word.parse::<u64>().is_ok()) => self.read_reserve(text),
            Last::Totals if all(|word| figure(word, "").is_some()) => {
                self.totals.extend(figures(text, ""));
            }
            _ => return false,
        }
        true
    }

    fn totals_line(&mut self, text: &str) -> bool {
        if text.starts_with("active_anon:") {
            self.totals.extend(figures(text, ""));
            self.last = Last::Totals;
            return true;
        }
        let swap = |name: &str| {
            let value = text.split_once(name)?.1.trim_start().strip_prefix('=')?;
            value.trim().strip_suffix("kB")?.parse().ok()
        };
        if let Some(kib) = swap("Free swap") {
            self.free_swap_kib = Some(kib);
            return true;
        }
        if let Some(kib) = swap("Total swap") {
            self.total_swap_kib = Some(kib);
            return true;
        }
        let ram = text.strip_suffix(" pages RAM").and_then(|pages| pages.trim().parse().ok());
        self.ram_pages = ram.or(self.ram_pages);
        ram.is_some()
    }
}

/// Splits a text at a word that stands at the beginning or behind a blank; the word goes to the second part.
fn split_at_word<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let at = text.match_indices(word).map(|(at, _)| at);
    let mut at = at.filter(|&at| at == 0 || text[..at].ends_with(' '));
    at.next().map(|at| text.split_at(at))
}

/// Returns the zone at the end of a text: `Node 0 DMA32`, or `Normal` alone on a kernel without nodes.
fn zone_before(text: &str) -> Option<ZoneName> {
    const NAMES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];
    let mut words = text.split_ascii_whitespace().rev();
    let name = words.next().filter(|name| NAMES.contains(name))?;
    let number = words.next().and_then(|word| word.trim_end_matches(',').parse().ok());
    let node = number.filter(|_| words.next() == Some("Node")).unwrap_or(0);
    Some(ZoneName { node, name: name.to_owned() })
}

/// Returns the number of blocks and the KiB of one block, from a word such as `12*4kB`.
fn block(word: &str) -> Option<(u64, u64)> {
    let (count, size) = word.split('(').next()?.split_once('*')?;
    Some((count.parse().ok()?, size.strip_suffix("kB")?.parse().ok()?))
}

/// A bound above the memory of any machine, in KiB and in pages: sums over all zones stay within 64 bits.
const MOST: u64 = 1 << 48;

/// Returns the name and the number in a word such as `min:28kB`, where `unit` is `kB`.
fn figure<'a>(word: &'a str, unit: &str) -> Option<(&'a str, u64)> {
    let (name, value) = word.split_once(':')?;
    let value = match unit {
        "" => value,
        // One figure has another spelling: `reserved_highatomic:0KB`.
        unit => value.strip_suffix(unit).or_else(|| value.strip_suffix("KB"))?,
    };
    let value: u64 = value.parse().ok()?;
    Some((name, value.min(MOST)))
}

fn figures<'a>(text: &'a str, unit: &'a str) -> impl Iterator<Item = (String, u64)> + 'a {
    let words = text.split_ascii_whitespace().filter_map(move |word| figure(word, unit));
    words.map(|(name, value)| (name.to_owned(), value))
}

fn kib_figures(text: &str) -> impl Iterator<Item = (String, u64)> {
    figures(text, "kB")
}
