//! Shared by the parsers of this module: lines that begin with a node and a zone, numbers, and malformed lines.

use nofrag::page::ZoneKind;
use serde::Serialize;

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Malformed {
    /// Number of the line, from 1.
    pub line: u32,
    /// The expected form of the line.
    pub expected: &'static str,
}

/// A zone as the kernel's files name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneName {
    pub node: u32,
    /// One of `DMA`, `DMA32`, `Normal`, `HighMem`, `Movable` and `Device`.
    pub name: String,
}

impl ZoneName {
    /// Returns the kind of the zone; `None` for a name that the page allocator does not serve (`Device`) or does not
    /// know.
    #[must_use]
    pub fn kind(&self) -> Option<ZoneKind> {
        ZoneKind::ALL.into_iter().find(|kind| kind.name() == self.name)
    }
}

/// Writes `node 0 DMA32`, for sentences.
impl std::fmt::Display for ZoneName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} {}", self.node, self.name)
    }
}

/// Returns the zone with which a line begins, `Node 0, zone DMA`, and the rest behind its name.
pub(super) fn zone(line: &str) -> Option<(ZoneName, &str)> {
    let (node, rest) = line.trim_start().strip_prefix("Node")?.split_once(',')?;
    let node = node.trim().parse().ok()?;
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let end = rest.find(|c: char| c.is_ascii_whitespace() || c == ',').unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    is_name(name).then(|| (ZoneName { node, name: name.to_owned() }, rest))
}

/// Returns true if a word can be a name of the kernel's. Names are printed elsewhere unchanged, so they have no control
/// characters.
pub(super) fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic())
}

/// Returns all words of a text as numbers; `None` if a word is not a number, or if there are more than `limit`.
pub(super) fn numbers(text: &str, limit: usize) -> Option<Vec<u64>> {
    let mut words = text.split_ascii_whitespace();
    let numbers: Option<Vec<u64>> =
        words.by_ref().take(limit).map(|word| word.parse().ok()).collect();
    if words.next().is_some() { None } else { numbers }
}

/// Returns the lines of a text with their numbers, from 1; lines without a word are left out.
pub(super) fn numbered(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| (u32::try_from(index + 1).unwrap_or(u32::MAX), line))
}
