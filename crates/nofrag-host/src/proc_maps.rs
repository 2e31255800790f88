//! `/proc/PID/maps` and `/proc/PID/smaps`: the areas of a process, by address.
//!
//! ```text
//! 7f02579ce000-7f02579d2000 r--p 00000000 00:00 0                          [vvar]
//! 7f02579d7000-7f02579fd000 r-xp 00001000 fe:00 325835                     /usr/lib/ld-linux-x86-64.so.2
//! Rss:                 152 kB
//! VmFlags: rd ex mr mw me
//! ```
//!
//! A line of `maps` is a range of addresses, what may be done there, the offset in the file, the file's device and
//! inode, and a name: a path (with ` (deleted)` behind it, and line feeds as `\012`), a word in brackets, or nothing.
//! In `smaps` such a line is followed by fields, a word with a colon each; older Android kernels have the name of
//! anonymous memory there, as `Name:`.
//!
//! The reader goes line by line, so that the file, which a busy process makes 50 MB long, never lies in memory. It is
//! strict: areas ascend and do not overlap, as the kernel promises; what breaks the form is counted, with its line.

use std::fmt;
use std::io::{self, BufRead, Read as _};

use thiserror::Error;

/// The areas that the file lists and the lines that are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The areas, ascending.
    pub areas: Vec<Area>,
    /// The lines that could not be read, in the order of the file.
    pub malformed: Vec<Malformed>,
    /// Number of lines, empty ones included.
    pub lines: u32,
    /// Bytes that were read.
    pub bytes: u64,
    /// Whether the last line ends.
    pub ending: Ending,
}

/// Whether the file ends where a line does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// With the end of a line, or with nothing at all.
    #[default]
    Whole,
    /// Inside of a line: the copy was cut off.
    Cut,
}

/// One area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Number of its line, from 1.
    pub line: u32,
    /// First address.
    pub start: u64,
    /// One above the last address; above `start`.
    pub end: u64,
    /// What may be done there.
    pub access: Access,
    /// Whether writes are seen by others.
    pub sharing: Sharing,
    /// Byte of the file that the first byte of the area shows.
    pub offset: u64,
    /// The device of the file, major and minor number.
    pub device: (u32, u32),
    /// The inode of the file; 0 for memory without one.
    pub inode: u64,
    /// The name, as printed; empty for plain anonymous memory. What is no UTF-8 in it is replaced.
    pub name: String,
    /// What `smaps` adds.
    pub details: Option<Details>,
}

/// What may be done with the memory of an area: the sum of 1 for reading, 2 for writing and 4 for executing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u8);

impl Access {
    /// Nothing.
    pub const NONE: Access = Access(0);
    /// Reading.
    pub const READ: Access = Access(1);
    /// Writing.
    pub const WRITE: Access = Access(2);
    /// Executing.
    pub const EXECUTE: Access = Access(4);

    /// Whether everything in `other` is allowed.
    #[must_use]
    pub const fn has(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Whether writes are seen by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// They stay in this process.
    Private,
    /// Everyone who maps the same object sees them.
    Shared,
}

/// What `smaps` says of an area beside what `maps` says. Bytes, as the file gives them in kB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The page in which the kernel keeps the area: larger than the base page for hugetlbfs.
    pub kernel_page_bytes: Option<u64>,
    /// Memory in use.
    pub rss_bytes: Option<u64>,
    /// Of it what is no page of a file. Above zero, the area has a reverse map of its own (`anon_vma`).
    pub anonymous_bytes: Option<u64>,
    /// What was swapped out.
    pub swap_bytes: Option<u64>,
    /// The key of the hardware's memory protection.
    pub protection_key: Option<u32>,
    /// The flags of the area.
    pub flags: Option<VmFlags>,
}

/// The two-letter words of `VmFlags:`, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmFlags(Vec<[u8; 2]>);

impl VmFlags {
    /// Whether the flag is set.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        flag.as_bytes().try_into().is_ok_and(|flag: [u8; 2]| self.0.binary_search(&flag).is_ok())
    }

    /// The words, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|flag| std::str::from_utf8(flag).expect("only ASCII is let in"))
    }
}

/// What kind of memory an area is, decided from its name, file and access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// Private memory without a file.
    Anonymous,
    /// Private memory without a file that nobody may touch: a guard or a reservation.
    NoAccess,
    /// The heap that `brk` grows.
    Heap,
    /// The stack of the first thread.
    Stack,
    /// A file, or shared memory, which the kernel keeps as one.
    File,
    /// The kernel's own: `[vdso]`, `[vvar]`, `[vsyscall]` and so on.
    Special,
}

impl Kind {
    /// The name in tables and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Anonymous => "anonymous",
            Kind::NoAccess => "no-access",
            Kind::Heap => "heap",
            Kind::Stack => "stack",
            Kind::File => "file",
            Kind::Special => "special",
        }
    }
}

impl Area {
    /// Bytes of address space.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether a file, or an object that the kernel keeps as one, stands behind it.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.inode != 0 || self.device != (0, 0) || self.name.starts_with('/')
    }

    /// What kind of memory it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.name.as_str() {
            _ if self.has_file() => Kind::File,
            "[heap]" => Kind::Heap,
            name if name.starts_with("[stack") => Kind::Stack,
            name if name.starts_with('[') && self.anonymous_name().is_none() => Kind::Special,
            _ if self.access == Access::NONE => Kind::NoAccess,
            _ => Kind::Anonymous,
        }
    }

    /// The name that the program gave to anonymous memory (`PR_SET_VMA_ANON_NAME`).
    #[must_use]
    pub fn anonymous_name(&self) -> Option<&str> {
        let name = self.name.strip_suffix(']')?;
        name.strip_prefix("[anon:").or_else(|| name.strip_prefix("[anon_shmem:"))
    }

    /// Whether the file has been removed or replaced since.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.has_file() && self.name.ends_with(" (deleted)")
    }

    /// Whether it grows down when the page below it is touched: a stack, with its guard gap.
    #[must_use]
    pub fn grows_down(&self) -> bool {
        let flags = self.details.as_ref().and_then(|details| details.flags.as_ref());
        flags.map_or(self.name == "[stack]", |flags| flags.has("gd"))
    }

    /// Whether the kernel counts it in `vm.max_map_count`: all but the one page that x86-64 lists for every process.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.name != GATE
    }
}

/// The line of `maps`, as the kernel prints it, without its end.
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

/// The name of the page that is listed although it is no area of the process.
const GATE: &str = "[vsyscall]";

/// A line that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}; {}", problem.help())]
pub struct Malformed {
    /// Its number, from 1.
    pub line: u32,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is longer than any that the kernel writes.
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// It begins neither with a range of addresses nor with a field's name.
    #[error("neither an address range nor a field at the start")]
    NoRange,
    /// The range ends where it starts, or below.
    #[error("a range that is empty or runs backwards")]
    EmptyRange,
    /// An address is no multiple of the smallest page.
    #[error("an address that is no multiple of 4096")]
    Unaligned,
    /// The area starts below the end of the one before it.
    #[error("an area that starts below the end of the one before")]
    OutOfOrder,
    /// No letters such as `rw-p` behind the range.
    #[error("no access letters such as rw-p behind the range")]
    NoAccess,
    /// No offset, or one that is no hexadecimal number.
    #[error("no hexadecimal offset")]
    NoOffset,
    /// No device, or not two hexadecimal numbers joined by a colon.
    #[error("no device such as fe:00")]
    NoDevice,
    /// No inode, or one that is no number.
    #[error("no inode number")]
    NoInode,
    /// A field before the first area.
    #[error("a field before the first area")]
    NoArea,
    /// A field whose value is no number of the expected form.
    #[error("a field without a number of the expected form")]
    NotANumber,
    /// A flag that has not two letters.
    #[error("a flag that has not two letters")]
    BadFlag,
}

impl Problem {
    /// What to do about it.
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

/// No line of the kernel's is longer: a path has up to 4,096 bytes, each of which may be escaped by four.
pub const MAX_LINE: usize = 32 << 10;

/// Reads a whole `maps` or `smaps`, line by line. What cannot be read is in [`Parsed::malformed`].
///
/// # Errors
/// What `input` says when it cannot be read.
///
/// ```
/// use nofrag_host::proc_maps::{Kind, parse};
///
/// let text = "7f02579ce000-7f02579d2000 r--p 00000000 00:00 0                          [vvar]\nnonsense\n";
/// let parsed = parse(text.as_bytes())?;
/// assert_eq!((parsed.areas[0].bytes(), parsed.areas[0].kind()), (0x4000, Kind::Special));
/// assert!(parsed.malformed[0].to_string().starts_with("line 2: neither an address range nor a field"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn parse(mut input: impl BufRead) -> io::Result<Parsed> {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        // One more than allowed, so that a line of exactly that length is told from a longer one.
        let read = input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(reader.parsed);
        }
        reader.parsed.bytes += read as u64;
        reader.parsed.ending = Ending::Whole;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read > MAX_LINE {
            reader.parsed.bytes += input.skip_until(b'\n')? as u64;
        } else {
            reader.parsed.ending = Ending::Cut;
        }
        reader.line(&line);
    }
}

/// The number of areas that a `maps` lists and the kernel counts, without a look at what they are. O(1) memory.
///
/// # Errors
/// What `input` says when it cannot be read.
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

/// What has been read, and to which area the next field belongs.
#[derive(Debug, Default)]
struct Reader {
    parsed: Parsed,
    fields: FieldsOf,
    last_end: u64,
}

/// To what a field belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FieldsOf {
    /// No area came yet.
    #[default]
    Nothing,
    /// The last area.
    Area,
    /// An area that could not be read: its fields go with it.
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

/// Takes the fields that are used; the kernel adds new ones now and then, so others are let through.
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

/// A number of kB in bytes.
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

    /// What is left, without the spaces before it. A path may end with spaces, so those stay.
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

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let all_digits =
        (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    all_digits.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}
