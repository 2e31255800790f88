//! `/proc/PID/maps` and `/proc/PID/smaps`: the areas of a process, by address.
//!
//! ```text
//! 7f02579ce000-7f02579d2000 r--p 00000000 00:00 0                          [vvar]
//! 7f02579d7000-7f02579fd000 r-xp 00001000 fe:00 325835                     /usr/lib/ld-linux-x86-64.so.2
//! Rss:                 152 kB
//! VmFlags: rd ex mr mw me
//! ```
//!
//! A line of `maps` is a range of addresses, the access that is allowed, the offset in the file, the file's device and
//! inode, and a name: a path (with ` (deleted)` behind it, and line feeds as `\012`), a word in brackets, or nothing.
//! In `smaps` such a line is followed by fields, a word with a colon each; older Android kernels have the name of
//! anonymous memory in such a field, `Name:`.
//!
//! The reader goes line by line, so that the file, which a busy process makes 50 MB long, never lies in memory. It is
//! strict: areas ascend and do not overlap, as the kernel promises; a line that breaks the form is reported with its
//! number.

use std::fmt;
use std::io::{self, BufRead, Read as _};

use thiserror::Error;

/// The areas that a `maps` or `smaps` lists, and the lines that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    pub areas: Vec<Area>,
    /// The lines that could not be read, in the order of the file.
    pub malformed: Vec<Malformed>,
    /// Number of lines, empty ones included.
    pub lines: u32,
    pub bytes: u64,
    /// True if the file ends inside a line: the copy was cut off.
    pub cut_off: bool,
}

/// An area of a process, from one line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Number of the area's line in the file, from 1.
    pub line: u32,
    pub start: u64,
    /// One above the last address; above `start`.
    pub end: u64,
    pub access: Access,
    pub sharing: Sharing,
    /// Offset of the area's first byte in the file that the area maps.
    pub offset: u64,
    /// Major and minor number of the device on which the mapped file lies.
    pub device: (u32, u32),
    /// The inode of the mapped file; 0 for memory without a file.
    pub inode: u64,
    /// Name of the area, as printed; empty for plain anonymous memory. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// The fields that `smaps` adds; `None` for an area of `maps`.
    pub details: Option<Details>,
}

/// Access to the memory of an area: the sum of 1 for reading, 2 for writing and 4 for executing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u8);

impl Access {
    pub const NONE: Access = Access(0);
    pub const READ: Access = Access(1);
    pub const WRITE: Access = Access(2);
    pub const EXECUTE: Access = Access(4);

    /// Returns true if everything in `other` is allowed.
    #[must_use]
    pub const fn has(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Visibility of writes to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Writes stay in this process.
    Private,
    /// Every process that maps the same object sees the writes.
    Shared,
}

/// The fields that `smaps` adds to an area. Sizes are bytes, from the kB of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Bytes of the page in which the kernel keeps the area: larger than the base page for hugetlbfs.
    pub kernel_page_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    /// Bytes of `rss_bytes` that do not belong to a file. Above zero, the area has a reverse map of its own
    /// (`anon_vma`).
    pub anonymous_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// The memory protection key of the area (`pkey_mprotect`).
    pub protection_key: Option<u32>,
    pub flags: Option<VmFlags>,
}

/// The two-letter words of `VmFlags:`, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmFlags(Vec<[u8; 2]>);

impl VmFlags {
    /// Returns true if the word `flag`, such as `gd`, is among the flags.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        flag.as_bytes().try_into().is_ok_and(|flag: [u8; 2]| self.0.binary_search(&flag).is_ok())
    }

    /// Returns the words of two letters, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|flag| std::str::from_utf8(flag).expect("only ASCII is let in"))
    }
}

/// Kind of memory of an area, decided from its name, file and access.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[non_exhaustive]
pub enum MapKind {
    /// Private memory without a file.
    Anonymous,
    /// Private memory without a file and without any access: a guard or a reservation.
    NoAccess,
    /// The heap that `brk` grows.
    Heap,
    /// The stack of the first thread.
    Stack,
    /// A file, or shared memory, which the kernel keeps as a file.
    File,
    /// Areas of the kernel's own: `[vdso]`, `[vvar]`, `[vsyscall]` and so on.
    Special,
}

impl Area {
    /// Returns the bytes of address space in the area.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Returns true if the area shows a file, or an object that the kernel keeps as a file.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.inode != 0 || self.device != (0, 0) || self.name.starts_with('/')
    }

    /// Returns the kind of memory of the area.
    #[must_use]
    pub fn kind(&self) -> MapKind {
        match self.name.as_str() {
            _ if self.has_file() => MapKind::File,
            "[heap]" => MapKind::Heap,
            name if name.starts_with("[stack") => MapKind::Stack,
            name if name.starts_with('[') && self.anonymous_name().is_none() => MapKind::Special,
            _ if self.access == Access::NONE => MapKind::NoAccess,
            _ => MapKind::Anonymous,
        }
    }

    /// Returns the name that the program gave to anonymous memory (`PR_SET_VMA_ANON_NAME`).
    #[must_use]
    pub fn anonymous_name(&self) -> Option<&str> {
        let name = self.name.strip_suffix(']')?;
        name.strip_prefix("[anon:").or_else(|| name.strip_prefix("[anon_shmem:"))
    }

    /// Returns true if the area's file has been removed or replaced since.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.has_file() && self.name.ends_with(" (deleted)")
    }

    /// Returns true if the area grows down when the page below it is touched: a stack, with its guard gap.
    #[must_use]
    pub fn grows_down(&self) -> bool {
        let flags = self.details.as_ref().and_then(|details| details.flags.as_ref());
        flags.map_or(self.name == "[stack]", |flags| flags.has("gd"))
    }

    /// Returns true if the kernel counts the area in `vm.max_map_count`: all but the one page that x86-64 lists for
    /// every process.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.name != GATE
    }
}

/// Writes the line of `maps` as the kernel prints it, without the line feed.
impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Area { start, end, access, offset, device: (major, minor), inode, name, .. } = self;
        let letter = |bit: Access, letter| if access.has(bit) { letter } else { '-' };
        let (read, write) = (letter(Access::READ, 'r'), letter(Access::WRITE, 'w'));
        let execute = letter(Access::EXECUTE, 'x');
        let sharing = if self.sharing == Sharing::Shared { 's' } else { 'p' };
        let line = format!(
            "{start:08x}-{end:08x} {read}{write}{execute}{sharing} {offset:08x} {major:02x}:{minor:02x} {inode} "
        );
        match name.as_str() {
            "" => f.write_str(&line),
            name => write!(f, "{line:72} {name}"),
        }
    }
}

/// Name of the page that x86-64 lists for every process although it is not an area of the process.
const GATE: &str = "[vsyscall]";

/// A line that could not be read, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}; {}", problem.help())]
pub struct Malformed {
    /// Number of the line, from 1.
    pub line: u32,
    pub problem: Problem,
}

/// The reason why a line could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The line is longer than any that the kernel writes.
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// The line begins neither with a range of addresses nor with a field's name.
    #[error("neither an address range nor a field at the start")]
    NoRange,
    /// The range ends where it starts, or below.
    #[error("a range that is empty or runs backwards")]
    EmptyRange,
    /// An address is not a multiple of the smallest page.
    #[error("an address that is no multiple of 4096")]
    Unaligned,
    /// The area starts below the end of the one before it.
    #[error("an area that starts below the end of the one before")]
    OutOfOrder,
    /// The line has no letters such as `rw-p` behind the range.
    #[error("no access letters such as rw-p behind the range")]
    NoAccess,
    /// The line has no offset, or one that is not a hexadecimal number.
    #[error("no hexadecimal offset")]
    NoOffset,
    /// The line has no device, or not two hexadecimal numbers joined by a colon.
    #[error("no device such as fe:00")]
    NoDevice,
    /// The line has no inode, or one that is not a number.
    #[error("no inode number")]
    NoInode,
    /// The line is a field before the first area.
    #[error("a field before the first area")]
    NoArea,
    /// The line is a field whose value is not a number of the expected form.
    #[error("a field without a number of the expected form")]
    NotANumber,
    /// The line has a flag that does not have two letters.
    #[error("a flag that has not two letters")]
    BadFlag,
}

impl Problem {
    /// Returns advice to the user who has such a line.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Problem::OutOfOrder => {
                "the file was put together from several reads: copy it with one `cat`"
            }
            Problem::NoArea => "the beginning of the file is missing: copy it with one `cat`",
            Problem::TooLong | Problem::NoRange => {
                "this is no maps file, or a damaged one: copy it with one `cat`"
            }
            _ => {
                "copy the file again with one `cat`; if a live kernel prints this, report the line to nofrag"
            }
        }
    }
}

/// Longest line in bytes. The kernel's are shorter: a path has up to 4,096 bytes, each of which may be escaped by four.
pub const MAX_LINE: usize = 32 << 10;

/// Reads a whole `maps` or `smaps`, line by line. Lines that cannot be read are in [`Parsed::malformed`].
///
/// # Errors
/// The error of `input` when it cannot be read.
///
/// ```
/// use nofrag_host::proc_maps::{MapKind, parse};
///
/// let text = "7f02579ce000-7f02579d2000 r--p 00000000 00:00 0                          [vvar]\nnonsense\n";
/// let parsed = parse(text.as_bytes())?;
/// assert_eq!((parsed.areas[0].bytes(), parsed.areas[0].kind()), (0x4000, MapKind::Special));
/// assert!(parsed.malformed[0].to_string().starts_with("line 2: neither an address range nor a field"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn parse(mut input: impl BufRead) -> io::Result<Parsed> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than allowed, so that a line of exactly that length differs from a longer one.
        let read = input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(reader.parsed);
        }
        reader.parsed.bytes += read as u64;
        reader.parsed.cut_off = false;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read > MAX_LINE {
            reader.parsed.bytes += input.skip_until(b'\n')? as u64;
        } else {
            reader.parsed.cut_off = true;
        }
        reader.line(&line);
    }
}

/// Counts the areas of a `maps` that the kernel counts, without reading their fields. O(1) memory.
///
/// # Errors
/// The error of `input` when it cannot be read.
pub fn count(mut input: impl BufRead) -> io::Result<u64> {
    let mut areas = 0;
    let mut line = Vec::new();
    while input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)? > 0 {
        if !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
        }
        areas += u64::from(!line.trim_ascii_end().ends_with(GATE.as_bytes()));
        line.clear();
    }
    Ok(areas)
}

/// The areas so far, and the area to which the next field belongs.
#[derive(Debug, Default)]
struct Reader {
    parsed: Parsed,
    fields: FieldsOf,
    last_end: u64,
}

/// The area to which the field lines that follow belong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FieldsOf {
    /// The initial state: no area yet.
    #[default]
    Nothing,
    Area,
    /// An area that could not be read: its fields are dropped with it.
    Malformed,
}

impl Reader {
    fn line(&mut self, line: &[u8]) {
        self.parsed.lines = self.parsed.lines.saturating_add(1);
        if line.trim_ascii().is_empty() {
            return;
        }
        if let Err(problem) = self.area_or_field(line) {
            self.parsed.malformed.push(Malformed { line: self.parsed.lines, problem });
        }
    }

    fn area_or_field(&mut self, line: &[u8]) -> Result<(), Problem> {
        if line.len() > MAX_LINE {
            return Err(Problem::TooLong);
        }
        let mut words = Words { rest: line };
        let first = words.next().ok_or(Problem::NoRange)?;
        if let Some(field) = first.strip_suffix(b":") {
            return match (self.fields, self.parsed.areas.last_mut()) {
                (FieldsOf::Malformed, _) => Ok(()),
                (FieldsOf::Area, Some(area)) => read_field(area, field, words.rest()),
                _ => Err(Problem::NoArea),
            };
        }
        self.fields = FieldsOf::Malformed;
        let area = parse_area(first, words)?;
        if area.start < self.last_end {
            return Err(Problem::OutOfOrder);
        }
        self.last_end = area.end;
        self.fields = FieldsOf::Area;
        self.parsed.areas.push(Area { line: self.parsed.lines, ..area });
        Ok(())
    }
}

fn parse_area(range: &[u8], mut words: Words<'_>) -> Result<Area, Problem> {
    let (start, end) = split_once(range, b'-').ok_or(Problem::NoRange)?;
    let start = hexadecimal(start).ok_or(Problem::NoRange)?;
    let end = hexadecimal(end).ok_or(Problem::NoRange)?;
    if end <= start {
        return Err(Problem::EmptyRange);
    }
    if !(start | end).is_multiple_of(4096) {
        return Err(Problem::Unaligned);
    }
    let (access, sharing) = words.next().and_then(letters).ok_or(Problem::NoAccess)?;
    let offset = words.next().and_then(hexadecimal).ok_or(Problem::NoOffset)?;
    let device = words.next().and_then(device).ok_or(Problem::NoDevice)?;
    let inode = words.next().and_then(decimal).ok_or(Problem::NoInode)?;
    let name = String::from_utf8_lossy(words.rest()).into_owned();
    Ok(Area { line: 0, start, end, access, sharing, offset, device, inode, name, details: None })
}

/// Stores the value of a field in [`Area::details`]; unknown fields are ignored, since the kernel adds new ones now and
/// then.
fn read_field(area: &mut Area, field: &[u8], value: &[u8]) -> Result<(), Problem> {
    let details = area.details.get_or_insert_default();
    match field {
        b"KernelPageSize" => details.kernel_page_bytes = Some(bytes(value)?),
        b"Rss" => details.rss_bytes = Some(bytes(value)?),
        b"Anonymous" => details.anonymous_bytes = Some(bytes(value)?),
        b"Swap" => details.swap_bytes = Some(bytes(value)?),
        b"ProtectionKey" => {
            let key = decimal(value.trim_ascii()).and_then(|key| u32::try_from(key).ok());
            details.protection_key = Some(key.ok_or(Problem::NotANumber)?);
        }
        b"VmFlags" => details.flags = Some(flags(value)?),
        b"Name" if area.name.is_empty() => {
            area.name = String::from_utf8_lossy(value.trim_ascii()).into_owned();
        }
        _ => {}
    }
    Ok(())
}

fn flags(value: &[u8]) -> Result<VmFlags, Problem> {
    let mut words = Words { rest: value };
    let mut flags = Vec::new();
    while let Some(word) = words.next() {
        let flag: [u8; 2] = word.try_into().map_err(|_| Problem::BadFlag)?;
        if !flag.iter().all(u8::is_ascii_graphic) {
            return Err(Problem::BadFlag);
        }
        flags.push(flag);
    }
    flags.sort_unstable();
    flags.dedup();
    Ok(VmFlags(flags))
}

/// Reads a value such as `152 kB`; returns it in bytes.
fn bytes(value: &[u8]) -> Result<u64, Problem> {
    let mut words = Words { rest: value };
    let number = words.next().and_then(decimal).ok_or(Problem::NotANumber)?;
    let unit = words.next();
    if unit != Some(b"kB") || words.next().is_some() {
        return Err(Problem::NotANumber);
    }
    number.checked_mul(1024).ok_or(Problem::NotANumber)
}

/// The words of a line, each a slice of it.
struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Returns the rest of the line, without the spaces before it. A path may end with spaces, so those stay.
    fn rest(&self) -> &'a [u8] {
        self.rest.trim_ascii_start()
    }
}

fn letters(word: &[u8]) -> Option<(Access, Sharing)> {
    let &[read, write, execute, sharing] = word else { return None };
    let access = |letter: u8, expected: u8, bit: Access| match letter {
        b'-' => Some(0),
        _ if letter == expected => Some(bit.0),
        _ => None,
    };
    let bits = access(read, b'r', Access::READ)?
        | access(write, b'w', Access::WRITE)?
        | access(execute, b'x', Access::EXECUTE)?;
    let sharing = match sharing {
        b'p' => Sharing::Private,
        b's' => Sharing::Shared,
        _ => return None,
    };
    Some((Access(bits), sharing))
}

fn device(word: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = split_once(word, b':')?;
    let number = |part| hexadecimal(part).and_then(|number| u32::try_from(number).ok());
    Some((number(major)?, number(minor)?))
}

fn split_once(word: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let middle = word.iter().position(|&byte| byte == at)?;
    Some((&word[..middle], &word[middle + 1..]))
}

/// Reads a hexadecimal number of up to 16 digits.
pub(crate) fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let all_digits =
        (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    all_digits.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Reads a number that is digits alone.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}
