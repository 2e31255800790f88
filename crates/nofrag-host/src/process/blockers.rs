//! The reasons why neighbours are two areas and not one.
//!
//! The rules are those of [`nofrag::mmap`] (docs/sources/mmap.md#merge-rule); the attributes are put together from the
//! files of the process. From `maps` come access, sharing, file, offset and name; `smaps` adds the flags and whether
//! private pages exist, from which follows that the area has a reverse map (`anon_vma`). No file shows: whether two
//! touched areas share one reverse map (they do not, or the areas would be one too, unless another attribute keeps them
//! apart), whether a reverse map lives on although its pages are gone, the offset of anonymous memory after `mremap`,
//! memory policies, userfaultfd contexts and close hooks of drivers. A pair that no shown attribute keeps apart is
//! counted as [`Blocker::NotShown`].

use std::collections::HashMap;
use std::hash::Hash;

use nofrag::mmap::{
    AnonChain, AreaFlags, Attributes, Backing, MergeBlocker, Placement, Protection,
};
use serde::Serialize;

use super::room::{self, empty_space};
use super::window::Window;
use crate::layout::LayoutError;
use crate::proc_maps::{Area, MapKind, Sharing};
use crate::vmalloc::as_hex;

/// The attribute that keeps two neighbours apart, as far as the files show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Blocker {
    Rule(MergeBlocker),
    /// No attribute that the files show.
    NotShown,
}

impl Blocker {
    /// Returns the name of the blocker in tables and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Blocker::Rule(MergeBlocker::Special) => "special",
            Blocker::Rule(MergeBlocker::Protection) => "access",
            Blocker::Rule(MergeBlocker::Flags) => "flags",
            Blocker::Rule(MergeBlocker::Backing) => "file",
            Blocker::Rule(MergeBlocker::Offset) => "offset",
            Blocker::Rule(MergeBlocker::MemoryPolicy) => "memory-policy",
            Blocker::Rule(MergeBlocker::Userfault) => "userfaultfd",
            Blocker::Rule(MergeBlocker::Name) => "name",
            Blocker::Rule(MergeBlocker::Chain) => "reverse-map",
            Blocker::Rule(MergeBlocker::CloseHook) => "close-hook",
            Blocker::Rule(_) => "another-rule",
            Blocker::NotShown => "not-shown",
        }
    }
}

impl Serialize for Blocker {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The pairs of neighbours of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Neighbours {
    /// Number of pairs of areas without a hole between them.
    pub pairs: u64,
    /// The pairs by blocker, most frequent first.
    pub groups: Vec<BlockerGroup>,
}

/// Pairs with the same blocker and the same detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockerGroup {
    /// The attribute: `special`, `access`, `flags`, `file`, `offset`, `memory-policy`, `userfaultfd`, `name`,
    /// `reverse-map`, `close-hook` or `not-shown`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub blocker: Blocker,
    /// The exact difference: access, flags or kind of file.
    pub detail: String,
    pub pairs: u64,
    /// The first pairs of the group.
    pub examples: Vec<Example>,
}

/// A pair of areas without a hole between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Example {
    /// Address where the lower area ends and the upper one starts.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::vmalloc::Hex"))]
    pub at: u64,
    /// Access and name of the lower area.
    pub below: String,
    /// Access and name of the upper area.
    pub above: String,
}

/// Most pairs of a group that are listed as examples.
const EXAMPLES: usize = 3;

/// Groups the pairs of neighbours by blocker. O(n).
///
/// # Errors
/// [`LayoutError::OutOfMemory`] when the layout is too large for this machine.
pub fn neighbours(areas: &[Area], window: &Window) -> Result<Neighbours, LayoutError> {
    let mut space = empty_space(window, window.span.end(), Placement::FirstFit);
    for (area, attributes) in areas.iter().zip(attributes(areas, window)) {
        room::load(&mut space, area, attributes)?;
    }
    let mut found: HashMap<(Blocker, String), BlockerGroup> = HashMap::new();
    let mut pairs = 0;
    for (below, above) in areas.iter().zip(areas.iter().skip(1)) {
        if below.end != above.start {
            continue;
        }
        pairs += 1;
        let rule = space.blocker_above(window.page.page_of(below.start));
        let blocker = rule.map_or(Blocker::NotShown, Blocker::Rule);
        let detail = detail(blocker, below, above);
        let group = found.entry((blocker, detail.clone())).or_insert_with(|| BlockerGroup {
            blocker,
            detail,
            pairs: 0,
            examples: Vec::new(),
        });
        group.pairs += 1;
        if group.examples.len() < EXAMPLES {
            let (below, at) = (describe(below), above.start);
            group.examples.push(Example { at, below, above: describe(above) });
        }
    }
    let mut groups: Vec<BlockerGroup> = found.into_values().collect();
    groups.sort_by(|a, b| {
        let key = |group: &BlockerGroup| (std::cmp::Reverse(group.pairs), group.blocker);
        key(a).cmp(&key(b)).then_with(|| a.detail.cmp(&b.detail))
    });
    Ok(Neighbours { pairs, groups })
}

/// Returns the attributes of each area, as far as the files show them.
pub(super) fn attributes(areas: &[Area], window: &Window) -> Vec<Attributes> {
    let mut numbers = Numbers::default();
    areas.iter().enumerate().map(|(index, area)| numbers.attributes(index, area, window)).collect()
}

/// Numbers for files, names and sets of flags, by which the core compares attributes.
#[derive(Debug, Default)]
struct Numbers<'a> {
    files: Interner<((u32, u32), u64, &'a str)>,
    names: Interner<&'a str>,
    flags: Interner<(Vec<&'a str>, Option<u32>)>,
}

impl<'a> Numbers<'a> {
    fn attributes(&mut self, index: usize, area: &'a Area, window: &Window) -> Attributes {
        let backing = match area.has_file() {
            true => Backing::File(self.files.number(file_identity(area))),
            false => Backing::Anonymous,
        };
        let offset = match backing {
            Backing::File(_) => area.offset / window.page.bytes(),
            Backing::Anonymous => window.page.page_of(area.start).get(),
        };
        let name = area.anonymous_name().map_or(0, |name| self.names.number(name) as u32 + 1);
        // Neighbours that are alike in everything shown and were both touched have reverse maps that differ, or they
        // would be one area. So two numbers in turn state all that is known.
        let chain = match is_touched(area) {
            true => AnonChain::Own(index as u64 % 2),
            false => AnonChain::Untouched,
        };
        Attributes {
            protection: Protection(area.access.0),
            flags: self.flags(area),
            backing,
            offset,
            chain,
            name,
            ..Attributes::default()
        }
    }

    /// Returns the flags that the core knows, with a number for the set of all others in the bits above them.
    fn flags(&mut self, area: &'a Area) -> AreaFlags {
        let mut flags = AreaFlags::NONE;
        if area.sharing == Sharing::Shared {
            flags = flags.with(AreaFlags::SHARED);
        }
        if area.kind() == MapKind::Special {
            flags = flags.with(AreaFlags::DONT_EXPAND); // also where there is no `smaps` to say so
        }
        let Some(details) = &area.details else { return flags };
        let mut others = Vec::new();
        for word in details.flags.iter().flat_map(|flags| flags.iter()) {
            match KNOWN_FLAGS.iter().find(|(known, _)| *known == word) {
                Some((_, flag)) => flags = flags.with(*flag),
                None if AS_ACCESS.contains(&word) => {}
                None => others.push(word),
            }
        }
        let key = details.protection_key.filter(|&key| key != 0);
        let number = self.flags.number((others, key));
        // More sets of flags than numbers would need more flags than exist.
        let number = u32::try_from(number).unwrap_or(u32::MAX).min(u32::MAX >> OTHER_FLAGS_SHIFT);
        flags.with(AreaFlags(number << OTHER_FLAGS_SHIFT))
    }
}

/// Position of the lowest bit above the flags to which the core gives a meaning.
const OTHER_FLAGS_SHIFT: u32 = 16;

/// Words of `VmFlags` with their names in the core.
const KNOWN_FLAGS: [(&str, AreaFlags); 8] = [
    ("io", AreaFlags::IO),
    ("de", AreaFlags::DONT_EXPAND),
    ("pf", AreaFlags::PFN_MAP),
    ("mm", AreaFlags::MIXED_MAP),
    ("gd", AreaFlags::GROWS_DOWN),
    ("lo", AreaFlags::LOCKED),
    ("nr", AreaFlags::NO_RESERVE),
    ("sd", AreaFlags::SOFT_DIRTY),
];

/// Words of `VmFlags` that repeat the access in the line of the area.
const AS_ACCESS: [&str; 4] = ["rd", "wr", "ex", "sh"];

/// Returns true if the area has private pages, and with them a reverse map.
fn is_touched(area: &Area) -> bool {
    let above_zero = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes > 0);
    let details = area.details.as_ref();
    let private = area.sharing == Sharing::Private;
    private && details.is_some_and(|d| above_zero(d.anonymous_bytes) || above_zero(d.swap_bytes))
}

/// Returns device, inode and path, which together tell one file from another. The path is empty where there is an
/// inode, since the path may change while the file is mapped.
pub(super) fn file_identity(area: &Area) -> ((u32, u32), u64, &str) {
    let path = if area.inode == 0 { area.name.as_str() } else { "" };
    (area.device, area.inode, path)
}

/// Gives equal values equal numbers, from 0 on.
#[derive(Debug)]
struct Interner<T> {
    numbers: HashMap<T, u64>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Interner { numbers: HashMap::new() }
    }
}

impl<T: Hash + Eq> Interner<T> {
    fn number(&mut self, thing: T) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(thing).or_insert(next)
    }
}

/// The detail of a pair of which only `maps` was read.
pub(super) const NO_SMAPS: &str = "no smaps";

/// Returns the exact difference between two areas, for grouping.
fn detail(blocker: Blocker, below: &Area, above: &Area) -> String {
    let unordered = |one: String, other: String| match one <= other {
        true => format!("{one} and {other}"),
        false => format!("{other} and {one}"),
    };
    match blocker {
        Blocker::Rule(MergeBlocker::Protection) => unordered(access(below), access(above)),
        Blocker::Rule(MergeBlocker::Flags) => flag_difference(below, above),
        Blocker::Rule(MergeBlocker::Backing) => match (below.has_file(), above.has_file()) {
            (true, true) => "two files".to_owned(),
            _ => "a file and memory".to_owned(),
        },
        Blocker::Rule(MergeBlocker::Offset) => "the same file, other pages".to_owned(),
        Blocker::Rule(MergeBlocker::Name) => unordered(short_name(below), short_name(above)),
        Blocker::Rule(MergeBlocker::Special) => "memory of the kernel or of a device".to_owned(),
        Blocker::Rule(MergeBlocker::Chain) => "both touched before they met".to_owned(),
        Blocker::NotShown if below.details.is_none() => NO_SMAPS.to_owned(),
        _ => String::new(),
    }
}

/// Returns the flags that only one of the two areas has.
fn flag_difference(below: &Area, above: &Area) -> String {
    let flags = |area: &Area| area.details.as_ref().and_then(|details| details.flags.clone());
    let (below_flags, above_flags) =
        (flags(below).unwrap_or_default(), flags(above).unwrap_or_default());
    let only = |these: &crate::proc_maps::VmFlags, those: &crate::proc_maps::VmFlags| {
        these.iter().filter(|word| !those.has(word) && *word != "sd").map(str::to_owned).collect()
    };
    let mut words: Vec<String> = only(&below_flags, &above_flags);
    let other: Vec<String> = only(&above_flags, &below_flags);
    words.extend(other);
    words.sort();
    if below.sharing != above.sharing {
        words.insert(0, "shared".to_owned());
    }
    let key = |area: &Area| area.details.as_ref().and_then(|details| details.protection_key);
    if key(below) != key(above) {
        words.push("protection key".to_owned());
    }
    words.join(" ")
}

fn access(area: &Area) -> String {
    let letter = |bit: u8, letter: char| if area.access.0 & bit != 0 { letter } else { '-' };
    [letter(1, 'r'), letter(2, 'w'), letter(4, 'x')].into_iter().collect()
}

fn describe(area: &Area) -> String {
    format!("{} {}", access(area), short_name(area))
}

/// Returns the name of the area for tables: of a path the last part.
pub(super) fn short_name(area: &Area) -> String {
    match area.name.as_str() {
        "" if area.has_file() => "(a file without a name)".to_owned(),
        "" => "(anonymous)".to_owned(),
        path if path.starts_with('/') => super::printable(path.rsplit('/').next().unwrap_or(path)),
        name => super::printable(name),
    }
}
