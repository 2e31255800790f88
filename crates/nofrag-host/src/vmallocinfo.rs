//! `/proc/vmallocinfo`: one line per area of the kernel's vmalloc space.
//!
//! ```text
//! 0xffffc9000000c000-0xffffc90000011000   20480 kernel_clone+0x94/0x3e0 pages=4 vmalloc N0=4
//! 0xffffc90000005000-0xffffc90000007000    8192 acpi_os_map_iomem+0x1bc/0x1e0 phys=0x00000000000a0000 ioremap
//! 0xffffc9000005c000-0xffffc90000061000   20480 unpurged vm_area
//! ```
//!
//! A line is a range of addresses, its size in bytes (the guard page included), then in this order, as far as they
//! apply: the caller (with its `[module]`), `pages=` (backing pages), `phys=`, marks of the kind, and `Nn=` (backing
//! pages per NUMA node). Instead of a caller stands `unpurged vm_area` for an area that is freed but not yet purged,
//! and `vm_map_ram` for an area of that allocator. From 6.9 on the lines come node by node, not by address
//! (docs/sources/vmap.md#vmallocinfo).
//!
//! The addresses may be hashed, zeroed or withheld, see [`crate::addresses`]; the parser passes on the printed numbers.

use std::fmt;

use thiserror::Error;

use crate::proc_maps;

/// The areas that a `vmallocinfo` lists, and the lines that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The areas, in the order of the file.
    pub areas: Vec<Area<'a>>,
    /// The lines that could not be read, in the order of the file.
    pub malformed: Vec<Malformed>,
    /// Number of lines, empty ones included.
    pub lines: u32,
    /// True if the file ends inside a line: the copy was cut off.
    pub cut_off: bool,
}

/// An area of the vmalloc space, from one line of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Area<'a> {
    /// Number of the area's line in the file, from 1.
    pub line: u32,
    /// The two printed addresses; `None` when the kernel withholds them (`(____ptrval____)`).
    pub printed: Option<Printed>,
    /// Bytes of address space, the guard page included.
    pub size: u64,
    /// The caller that asked for the area: a symbol with offset and length, and its `[module]`.
    pub caller: Option<&'a str>,
    /// Number of pages of memory behind the area.
    pub pages: Option<u64>,
    /// Physical address that the area maps.
    pub phys: Option<u64>,
    pub marks: Marks,
    /// The first word that this parser does not know.
    pub unknown: Option<&'a str>,
    nodes: &'a str,
}

/// The two numbers of a range as printed; on hosts that hash or zero addresses they are no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Printed {
    pub start: u64,
    pub end: u64,
    /// Hexadecimal digits of the first number: 8 on a 32-bit kernel, 16 on a 64-bit one.
    pub digits: u8,
}

/// A word that names the kind of area that a line describes, in the order in which the kernel prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[non_exhaustive]
pub enum Mark {
    #[strum(serialize = "unpurged vm_area")]
    Unpurged,
    /// An area of `vm_map_ram`: one large mapping, or a block whose inside the file does not show.
    #[strum(serialize = "vm_map_ram")]
    VmMapRam,
    /// Mapped memory of a device.
    Ioremap,
    /// Address space that its owner fills in page by page.
    Sparse,
    /// Memory from `vmalloc` and its relatives.
    Vmalloc,
    /// Pages of the caller, mapped in a row.
    Vmap,
    /// Memory that may be mapped into a process.
    User,
    /// Memory that devices can access.
    DmaCoherent,
    /// The array of the area's pages is so long that the array lies in vmalloc space itself.
    Vpages,
}

impl Mark {
    pub const ALL: &[Mark] = <Mark as strum::VariantArray>::VARIANTS;

    fn from_word(word: &str) -> Option<Mark> {
        Mark::ALL.iter().copied().find(|mark| mark.into_str().split(' ').next() == Some(word))
    }
}

/// The set of the [`Mark`]s on one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u16);

impl Marks {
    /// Returns the set with `mark` added.
    #[must_use]
    pub const fn with(self, mark: Mark) -> Marks {
        Marks(self.0 | 1 << mark as u16)
    }

    /// Returns true if `mark` is in the set.
    #[must_use]
    pub const fn has(self, mark: Mark) -> bool {
        self.0 & (1 << mark as u16) != 0
    }
}

/// Purpose of an area, decided from its marks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[non_exhaustive]
pub enum VmallocKind {
    Vmalloc,
    Vmap,
    Ioremap,
    /// Marked `user`, whatever its other marks.
    User,
    DmaCoherent,
    Sparse,
    VmMapRam,
    Unmarked,
    Unpurged,
}

impl<'a> Area<'a> {
    /// Returns the purpose of the area.
    #[must_use]
    pub fn kind(&self) -> VmallocKind {
        const BY_PRECEDENCE: [(Mark, VmallocKind); 8] = [
            (Mark::Unpurged, VmallocKind::Unpurged),
            (Mark::VmMapRam, VmallocKind::VmMapRam),
            (Mark::User, VmallocKind::User),
            (Mark::Ioremap, VmallocKind::Ioremap),
            (Mark::DmaCoherent, VmallocKind::DmaCoherent),
            (Mark::Sparse, VmallocKind::Sparse),
            (Mark::Vmap, VmallocKind::Vmap),
            (Mark::Vmalloc, VmallocKind::Vmalloc),
        ];
        let found = BY_PRECEDENCE.into_iter().find(|(mark, _)| self.marks.has(*mark));
        found.map_or(VmallocKind::Unmarked, |(_, kind)| kind)
    }

    /// Returns true if the area is freed but not yet purged.
    #[must_use]
    pub fn is_lazy(&self) -> bool {
        self.marks.has(Mark::Unpurged)
    }

    /// Returns the caller's symbol without offset and length, its module behind it: `nf_tables_init [nf_tables]`.
    #[must_use]
    pub fn caller_symbol(&self) -> Option<CallerSymbol<'a>> {
        let (place, module) = match self.caller?.split_once(' ') {
            Some((place, module)) => (place, Some(module)),
            None => (self.caller?, None),
        };
        let symbol = place.split_once('+').map_or(place, |(symbol, _)| symbol);
        Some(CallerSymbol { symbol, module })
    }

    /// Returns the NUMA nodes that back the area, each with its number of pages.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        self.nodes.split(' ').filter_map(node_pages)
    }
}

/// A caller without offset and length, from [`Area::caller_symbol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerSymbol<'a> {
    pub symbol: &'a str,
    /// The module with its brackets.
    pub module: Option<&'a str>,
}

impl fmt::Display for CallerSymbol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol)?;
        self.module.map_or(Ok(()), |module| write!(f, " {module}"))
    }
}

/// A line that does not describe an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct Malformed {
    /// Number of the line, from 1.
    pub line: u32,
    pub problem: Problem,
}

/// The reason why a line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The line holds bytes that are not text.
    #[error("not UTF-8")]
    NotUtf8,
    /// The line does not begin with two numbers joined by a dash.
    #[error("no address range at the start")]
    NoRange,
    /// The range is not followed by a number of bytes.
    #[error("no size after the address range")]
    NoSize,
    /// The line has `pages=`, `phys=` or `Nn=` without a number.
    #[error("a value that is no number")]
    NotANumber,
}

/// Reads a whole `/proc/vmallocinfo`. Never fails: lines that cannot be read are in [`Parsed::malformed`]. Borrows from
/// `text`.
///
/// ```
/// use nofrag_host::vmallocinfo::{VmallocKind, parse};
///
/// let parsed = parse(b"0xffffc90000000000-0xffffc90000005000   20480 unpurged vm_area\nnonsense\n");
/// assert_eq!((parsed.areas[0].size, parsed.areas[0].kind()), (20480, VmallocKind::Unpurged));
/// assert_eq!(parsed.malformed[0].to_string(), "line 2: no address range at the start");
/// ```
#[must_use]
pub fn parse(text: &[u8]) -> Parsed<'_> {
    let mut parsed = Parsed::default();
    if text.last().is_some_and(|&last| last != b'\n') {
        parsed.cut_off = true;
    }
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let number = parsed.lines.saturating_add(1);
        parsed.lines = number;
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let area = std::str::from_utf8(line).map_err(|_| Problem::NotUtf8).and_then(parse_line);
        match area {
            Ok(area) => parsed.areas.push(Area { line: number, ..area }),
            Err(problem) => parsed.malformed.push(Malformed { line: number, problem }),
        }
    }
    parsed
}

fn parse_line(line: &str) -> Result<Area<'_>, Problem> {
    let mut words = line.split_ascii_whitespace().peekable();
    let printed = parse_range(words.next().ok_or(Problem::NoRange)?)?;
    let size = words.next().and_then(decimal).ok_or(Problem::NoSize)?;
    let mut area = Area { printed, size, ..Area::default() };
    let mut may_be_caller = true;
    while let Some(word) = words.next() {
        if let Some(mark) = Mark::from_word(word) {
            area.marks = area.marks.with(mark);
            if mark == Mark::Unpurged {
                words.next_if_eq(&"vm_area");
            }
        } else if let Some(pages) = word.strip_prefix("pages=") {
            area.pages = Some(decimal(pages).ok_or(Problem::NotANumber)?);
        } else if let Some(phys) = word.strip_prefix("phys=") {
            area.phys = Some(hexadecimal(phys).ok_or(Problem::NotANumber)?.0);
        } else if is_node(word) {
            let first = area.nodes.is_empty();
            node_pages(word).ok_or(Problem::NotANumber)?;
            area.nodes = if first { word } else { joined(line, area.nodes, word) };
        } else if may_be_caller {
            let module = words.next_if(|word| word.starts_with('[') && word.ends_with(']'));
            area.caller = Some(module.map_or(word, |module| joined(line, word, module)));
        } else {
            area.unknown = area.unknown.or(Some(word));
        }
        may_be_caller = false;
    }
    Ok(area)
}

/// Returns the part of `line` from the start of `first` to the end of `last`, both slices of it.
fn joined<'a>(line: &'a str, first: &'a str, last: &'a str) -> &'a str {
    let start = first.as_ptr() as usize - line.as_ptr() as usize;
    let end = last.as_ptr() as usize + last.len() - line.as_ptr() as usize;
    &line[start..end]
}

fn parse_range(word: &str) -> Result<Option<Printed>, Problem> {
    let (start, end) = word.split_once('-').ok_or(Problem::NoRange)?;
    if is_withheld(start) && is_withheld(end) {
        return Ok(None);
    }
    let (start, digits) = hexadecimal(start).ok_or(Problem::NoRange)?;
    let (end, _) = hexadecimal(end).ok_or(Problem::NoRange)?;
    Ok(Some(Printed { start, end, digits }))
}

/// The text that the kernel prints until it has the random numbers for hashing.
const WITHHELD: &str = "(____ptrval____)";

fn is_withheld(word: &str) -> bool {
    word.strip_prefix("0x").unwrap_or(word) == WITHHELD
}

/// Reads a hexadecimal number with or without `0x`; returns it with the number of its digits.
fn hexadecimal(word: &str) -> Option<(u64, u8)> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    Some((proc_maps::hexadecimal(digits.as_bytes())?, digits.len() as u8))
}

fn decimal(word: &str) -> Option<u64> {
    proc_maps::decimal(word.as_bytes())
}

fn is_node(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    name.strip_prefix('N').is_some_and(|id| !id.is_empty() && decimal(id).is_some())
}

fn node_pages(word: &str) -> Option<(u32, u64)> {
    let (name, pages) = word.split_once('=')?;
    Some((name.strip_prefix('N')?.parse().ok()?, decimal(pages)?))
}

/// Writes the line as the kernel prints it.
impl fmt::Display for Area<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.printed {
            Some(Printed { start, end, digits }) => {
                let width = usize::from(digits);
                write!(f, "0x{start:0width$x}-0x{end:0width$x}")?;
            }
            None => write!(f, "0x{WITHHELD}-0x{WITHHELD}")?,
        }
        write!(f, " {:7}", self.size)?;
        if let Some(caller) = self.caller {
            write!(f, " {caller}")?;
        }
        if let Some(pages) = self.pages {
            write!(f, " pages={pages}")?;
        }
        if let Some(phys) = self.phys {
            write!(f, " phys=0x{phys:016x}")?;
        }
        for mark in Mark::ALL.iter().filter(|&&mark| self.marks.has(mark)) {
            write!(f, " {}", mark.into_str())?;
        }
        if !self.nodes.is_empty() {
            write!(f, " {}", self.nodes)?;
        }
        Ok(())
    }
}
