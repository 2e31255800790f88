//! `/proc/pagetypeinfo`: free blocks by order and migratetype, and pageblocks by type.
//!
//! ```text
//! Page block order: 9
//! Pages per block:  512
//!
//! Free pages count per migrate type at order       0      1      2
//! Node    0, zone    DMA32, type    Unmovable     45     56     41
//!
//! Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate
//! Node 0, zone    DMA32          109          247           20            0            0
//! ```
//!
//! The rows name the types in the kernel's numbering, which depends on its configuration: with CMA `Isolate` is 5,
//! without it 4. Trace events carry the bare number; [`PageTypes::migratetype`] translates it.
//!
//! The kernel's walk over a list ends at 100,000 blocks, printed as `>100000`: a lower bound
//! (docs/sources/pages.md#b-27).
//!
//! Source: docs/sources/trace.md#t2, #t14.

use nofrag::page::Migratetype;
use serde::Serialize;

use super::buddyinfo::MOST_ORDERS;
use super::lines::{Malformed, ZoneName, is_name, numbered, zone};

/// A number of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BlockCount {
    Exactly(u64),
    /// More blocks than this number: the kernel stopped counting.
    MoreThan(u64),
}

impl BlockCount {
    /// Returns the number, or the lower bound of a list that the kernel did not count to its end.
    #[must_use]
    pub const fn least(self) -> u64 {
        match self {
            BlockCount::Exactly(count) => count,
            BlockCount::MoreThan(count) => count.saturating_add(1),
        }
    }

    /// Returns the exact number; `None` if only a lower bound is known.
    #[must_use]
    pub const fn exact(self) -> Option<u64> {
        match self {
            BlockCount::Exactly(count) => Some(count),
            BlockCount::MoreThan(_) => None,
        }
    }

    fn parse(word: &str) -> Option<BlockCount> {
        match word.strip_prefix('>') {
            Some(bound) => bound.parse().ok().map(BlockCount::MoreThan),
            None => word.parse().ok().map(BlockCount::Exactly),
        }
    }
}

/// The free blocks of one type in one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeBlocks {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// The type's number in the kernel's numbering.
    pub number: usize,
    /// Free blocks of each order.
    pub blocks: Vec<BlockCount>,
}

/// The pageblocks of a zone by type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZonePageblocks {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Pageblocks of each type, in the kernel's numbering.
    pub pageblocks: Vec<u64>,
}

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageTypes {
    /// Order of a pageblock, where the file states it.
    pub pageblock_order: Option<u32>,
    /// The types' names in the kernel's numbering.
    pub names: Vec<String>,
    /// Free blocks, by zone and type, in the order of the file.
    pub free: Vec<TypeBlocks>,
    /// Pageblocks by zone and type.
    pub pageblocks: Vec<ZonePageblocks>,
    /// Pageblocks with pages of more than one type; only kernels with `page_owner` count them.
    pub mixed: Vec<ZonePageblocks>,
}

impl PageTypes {
    /// Returns the type of this number in the kernel's numbering; `None` for one that the kernel or this crate does not
    /// have.
    #[must_use]
    pub fn migratetype(&self, number: usize) -> Option<Migratetype> {
        let name = self.names.get(number)?;
        Migratetype::ALL.into_iter().find(|each| each.name() == name)
    }

    /// Returns the number of a type in the kernel's numbering; `None` if the kernel has no such type.
    #[must_use]
    pub fn number(&self, migratetype: Migratetype) -> Option<usize> {
        self.names.iter().position(|name| name == migratetype.name())
    }

    /// Returns the free blocks of a type in a zone, by order; `None` if the file does not list them.
    #[must_use]
    pub fn free_of(&self, zone: &ZoneName, migratetype: Migratetype) -> Option<&[BlockCount]> {
        let number = self.number(migratetype)?;
        let found = self.free.iter().find(|row| row.zone == *zone && row.number == number);
        found.map(|row| row.blocks.as_slice())
    }

    /// Returns the number of pageblocks of a type in a zone; `None` if the file does not list it.
    #[must_use]
    pub fn pageblocks_of(&self, zone: &ZoneName, migratetype: Migratetype) -> Option<u64> {
        let number = self.number(migratetype)?;
        let found = self.pageblocks.iter().find(|row| row.zone == *zone);
        found.and_then(|row| row.pageblocks.get(number).copied())
    }
}

/// The table to which a line belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Free,
    Pageblocks,
    Mixed,
}

/// Most types in the file: more than any kernel has.
const MOST_TYPES: usize = 32;

/// Parses the text of `/proc/pagetypeinfo`; returns its contents, and the lines that could not be read.
#[must_use]
pub fn pagetypeinfo(text: &str) -> (PageTypes, Vec<Malformed>) {
    let mut types = PageTypes::default();
    let mut malformed = Vec::new();
    let mut table = Table::Free;
    for (line, text) in numbered(text) {
        let text = text.trim();
        let known = if let Some(order) = text.strip_prefix("Page block order:") {
            types.pageblock_order = order.trim().parse().ok().filter(|&o| o < MOST_ORDERS as u32);
            types.pageblock_order.is_some()
        } else if text.starts_with("Pages per block:") || text.starts_with("Free pages count") {
            true
        } else if let Some(names) = text.strip_prefix("Number of blocks type") {
            table = Table::Pageblocks;
            types.name_all(names)
        } else if text.starts_with("Number of mixed blocks") {
            table = Table::Mixed;
            true
        } else {
            types.row(text, table).is_some()
        };
        if !known {
            malformed.push(Malformed { line, expected: "a heading, or a zone with its counts" });
        }
    }
    (types, malformed)
}

impl PageTypes {
    /// Takes the names from the heading of the second table, unless the first table has given them. Returns false if
    /// there are none, or if the two tables disagree.
    fn name_all(&mut self, names: &str) -> bool {
        let names = names.split_ascii_whitespace().take(MOST_TYPES).filter(|name| is_name(name));
        if self.names.is_empty() {
            self.names = names.map(str::to_owned).collect();
            return !self.names.is_empty();
        }
        names.eq(self.names.iter().map(String::as_str))
    }

    /// Returns the number of the type with this name; a new one while the file still names types.
    fn named(&mut self, name: &str) -> Option<usize> {
        if let Some(number) = self.names.iter().position(|known| known == name) {
            return Some(number);
        }
        let is_open = self.pageblocks.is_empty() && self.names.len() < MOST_TYPES;
        is_open.then(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }

    fn row(&mut self, line: &str, table: Table) -> Option<()> {
        let (zone, rest) = zone(line)?;
        if let Some(rest) = rest.trim_start().strip_prefix(", type") {
            let rest = rest.trim_start();
            let (name, counts) = rest.split_once(|c: char| c.is_ascii_whitespace())?;
            if !is_name(name) {
                return None;
            }
            let blocks: Option<Vec<_>> =
                counts.split_ascii_whitespace().map(BlockCount::parse).collect();
            let blocks = blocks.filter(|b| !b.is_empty() && b.len() <= MOST_ORDERS)?;
            let number = self.named(name)?;
            self.free.push(TypeBlocks { zone, number, blocks });
            return Some(());
        }
        let pageblocks = super::lines::numbers(rest, MOST_TYPES).filter(|n| !n.is_empty())?;
        let row = ZonePageblocks { zone, pageblocks };
        match table {
            Table::Free => return None,
            Table::Pageblocks => self.pageblocks.push(row),
            Table::Mixed => self.mixed.push(row),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITH_CMA: &str = "\
Page block order: 10
Pages per block:  1024

Free pages count per migrate type at order       0      1      2
Node    0, zone   Normal, type    Unmovable     45 >100000      0
Node    0, zone   Normal, type      Movable      7      0      1
Node    0, zone   Normal, type  Reclaimable      0      0      0
Node    0, zone   Normal, type   HighAtomic      0      0      0
Node    0, zone   Normal, type          CMA      3      0      0
Node    0, zone   Normal, type      Isolate      0      0      0

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate
Node 0, zone   Normal           10           20            1            0            4            0
";

    fn normal() -> ZoneName {
        ZoneName { node: 0, name: "Normal".to_owned() }
    }

    /// Checks that a count of `>100000` is a lower bound, and nowhere taken for exact (docs/sources/trace.md#t2).
    #[test]
    fn a_list_that_was_not_counted_to_its_end_is_a_lower_bound() {
        let (types, malformed) = pagetypeinfo(WITH_CMA);
        assert_eq!(malformed, []);
        let unmovable = types.free_of(&normal(), Migratetype::Unmovable).expect("it is there");
        assert_eq!(unmovable[1], BlockCount::MoreThan(100_000));
        assert_eq!((unmovable[1].least(), unmovable[1].exact()), (100_001, None));
        assert_eq!((unmovable[0].least(), unmovable[0].exact()), (45, Some(45)));
    }

    /// Parses files with and without CMA: a number means another type there, so types are known by name.
    /// Source: docs/sources/trace.md#t14.
    #[test]
    fn numbers_of_types_depend_on_the_kernel() {
        let (with, _) = pagetypeinfo(WITH_CMA);
        assert_eq!(with.migratetype(4), Some(Migratetype::Cma));
        assert_eq!(with.number(Migratetype::Isolate), Some(5));
        assert_eq!(with.pageblocks_of(&normal(), Migratetype::Cma), Some(4));
        let without: String = WITH_CMA
            .lines()
            .filter(|line| !line.contains("CMA"))
            .map(|line| format!("{line}\n"))
            .collect();
        let (without, _) = pagetypeinfo(&without);
        assert_eq!(without.migratetype(4), Some(Migratetype::Isolate));
        assert_eq!((without.migratetype(5), without.number(Migratetype::Cma)), (None, None));
        assert_eq!(
            (with.pageblock_order, without.migratetype(2)),
            (Some(10), Some(Migratetype::Reclaimable))
        );
    }

    #[test]
    fn older_kernels_number_otherwise() {
        let text = "Node 0, zone DMA, type Unmovable 1\nNode 0, zone DMA, type Reclaimable 1\n\
                    Node 0, zone DMA, type Movable 1\nNode 0, zone DMA, type Reserve 1\n";
        let (types, malformed) = pagetypeinfo(text);
        assert_eq!(malformed, []);
        assert_eq!(types.number(Migratetype::Movable), Some(2));
        assert_eq!((types.names[3].as_str(), types.migratetype(3)), ("Reserve", None));
    }

    #[test]
    fn a_cut_file_keeps_what_stands_before_the_cut() {
        for cut in 0..WITH_CMA.len() {
            let (types, malformed) = pagetypeinfo(&WITH_CMA[..cut]);
            assert!(malformed.len() <= 1, "{cut}: {malformed:?}");
            assert!(types.names.len() <= 7, "{cut}");
        }
        let (types, malformed) =
            pagetypeinfo("Node 0, zone DMA 1 2\nnonsense\nPage block order: 99\n");
        assert_eq!((types, malformed.len()), (PageTypes::default(), 3));
    }
}
