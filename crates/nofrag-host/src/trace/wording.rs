//! The kernel's text of events, as a table beside [`KINDS`](super::KINDS): readers of text and its writer walk the same
//! rows.
//!
//! A row has the text of Linux 6.18. Readers take the parts by their keys, in any order, and also by the names of the
//! fields, so that they understand other kernels and other tools. A field that a kernel's text leaves out of its record
//! is added by the writer at the end.

use super::event::NO_FRAME;
use super::flags::{FlagTable, NamedValues, symbols};
use super::format::Format;
use super::kinds::{EventKind, MAX_FIELDS};
use super::meta::TraceMeta;

/// The form in which a value is written.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// The pointer to the description of a frame; [`NO_FRAME`] has no such pointer.
    Page,
    /// The number of a frame; 0 for [`NO_FRAME`].
    Frame,
    Hex,
    /// An argument of a system call: a single digit alone, any other number in hexadecimal with `0x`.
    Argument,
    Unsigned,
    Signed,
    Gfp,
    /// The value's name among these, filled up to a width.
    Name(&'static [(u64, &'static str)], usize),
    /// The power of two of this order.
    Power,
    /// An address, or 0 if it is an error.
    Address,
    /// An error, or 0 if it is an address.
    Error,
    /// A fixed text, which is not a value of the event.
    Fixed(&'static str),
    /// 1 if the third value, the order of the block that was taken, is below that of a pageblock, else 0.
    Fragmenting,
}

/// A key and a value of a line.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The text before the key; the first part of a line is printed without it.
    lead: &'static str,
    key: &'static str,
    /// The text between key and value.
    sign: &'static str,
    form: Form,
    /// Index of the event's value.
    field: usize,
    /// True if lines of some kernels lack the part.
    optional: bool,
}

/// The text of events of one kind.
#[derive(Clone, Copy, Debug)]
struct TextRow {
    /// The text before the first key.
    head: &'static str,
    parts: &'static [Part],
    tail: &'static str,
}

const fn part(key: &'static str, form: Form, field: usize) -> Part {
    let sign = match form {
        Form::Frame | Form::Hex | Form::Address => "=0x",
        Form::Argument => ": ",
        _ => "=",
    };
    Part { lead: " ", key, sign, form, field, optional: false }
}

impl Part {
    const fn after(self, lead: &'static str) -> Part {
        Part { lead, ..self }
    }

    const fn sign(self, sign: &'static str) -> Part {
        Part { sign, ..self }
    }

    const fn optional(self) -> Part {
        Part { optional: true, ..self }
    }
}

/// Order of a pageblock on x86-64 with huge pages.
const PAGEBLOCK_ORDER: &str = "9";

const ZONES: &[(u64, &str)] = &[(0, "DMA"), (1, "DMA32"), (2, "Normal"), (3, "Movable")];
const SYNC: &[(u64, &str)] = &[(0, "async"), (1, "sync")];
const STATUS: &[(u64, &str)] = &[
    (0, "not_suitable_zone"),
    (1, "skipped"),
    (2, "deferred"),
    (3, "no_suitable_page"),
    (4, "continue"),
    (5, "complete"),
    (6, "partial_skipped"),
    (7, "contended"),
    (8, "success"),
];
const MODE: &[(u64, &str)] =
    &[(0, "MIGRATE_ASYNC"), (1, "MIGRATE_SYNC_LIGHT"), (2, "MIGRATE_SYNC")];
const REASON: &[(u64, &str)] = &[
    (0, "compaction"),
    (1, "memory_failure"),
    (2, "memory_hotplug"),
    (3, "syscall_or_cpuset"),
    (4, "mempolicy_mbind"),
    (5, "numa_misplaced"),
    (6, "contig_range"),
    (7, "longterm_pin"),
    (8, "demotion"),
    (9, "damon"),
];

use Form::{
    Address, Argument, Error, Fixed, Fragmenting, Frame, Gfp, Hex, Name, Page, Power, Signed,
    Unsigned,
};

const PAGE: Part = part("page", Page, 0).optional();
const PFN: Part = part("pfn", Frame, 0);
/// A field that some kernels have in their records and none prints.
const ZID: Part = part("zid", Signed, 1).optional();

/// Declares the text of each kind: what stands before the first key, the parts, and what stands behind the last one.
macro_rules! rows {
    ($($($kind:ident)|+ => $head:literal [$($part:expr),*] $tail:literal;)*) => {
        /// Returns the text of a kind. `Lost` has no row: its line has another form.
        fn row(kind: EventKind) -> TextRow {
            match kind {
                $($(EventKind::$kind)|+ => {
                    const PARTS: &[Part] = &[$($part),*];
                    TextRow { head: $head, parts: PARTS, tail: $tail }
                })*
            }
        }
    };
}

// The pointer of exit_mmap is to a part of the process's address space, which tells address spaces apart as well as any
// other; ranges of isolated pages are written as `range=(0x1000 ~ 0x1200) nr_scanned=512 nr_taken=32`.
rows! {
    PageAlloc => "" [
        PAGE, PFN, part("order", Unsigned, 1), part("migratetype", Signed, 3), part("gfp_flags", Gfp, 2)
    ] "";
    PageFree => "" [PAGE, PFN, part("order", Unsigned, 1)] "";
    PageFreeBatched => "" [PAGE, PFN, part("order", Fixed("0"), 0)] "";
    ExtFrag => "" [
        PAGE, PFN, part("alloc_order", Signed, 1), part("fallback_order", Signed, 2),
        part("pageblock_order", Fixed(PAGEBLOCK_ORDER), 0), part("alloc_migratetype", Signed, 3),
        part("fallback_migratetype", Signed, 4), part("fragmenting", Fragmenting, 2),
        part("change_ownership", Signed, 5)
    ] "";
    ZoneLocked => "" [
        PAGE, PFN, part("order", Unsigned, 1), part("migratetype", Signed, 2),
        part("percpu_refill", Signed, 3).optional()
    ] "";
    PcpuDrain => "" [PAGE, PFN, part("order", Unsigned, 1), part("migratetype", Signed, 2)] "";
    CompactionBegin => "" [
        part("zone_start", Hex, 0), part("migrate_pfn", Hex, 1), part("free_pfn", Hex, 2), part("zone_end", Hex, 3),
        part("mode", Name(SYNC, 0), 4).after(", ")
    ] "";
    CompactionEnd => "" [
        part("zone_start", Hex, 0), part("migrate_pfn", Hex, 1), part("free_pfn", Hex, 2), part("zone_end", Hex, 3),
        part("mode", Name(SYNC, 0), 4).after(", "), part("status", Name(STATUS, 0), 5)
    ] "";
    TryToCompact => "" [part("order", Signed, 0), part("gfp_mask", Gfp, 1), part("priority", Signed, 2)] "";
    CompactionFinished | CompactionSuitable => "" [
        part("node", Signed, 0), part("zone", Name(ZONES, 8), 1), part("order", Signed, 2),
        part("ret", Name(STATUS, 0), 3)
    ] "";
    CompactionDeferred => "" [
        part("node", Signed, 0), part("zone", Name(ZONES, 8), 1), part("order", Signed, 2),
        part("order_failed", Signed, 5), part("consider", Unsigned, 3), part("limit", Power, 4)
    ] "";
    CompactionIsolateMigratepages | CompactionIsolateFreepages | CompactionFastIsolateFreepages => "" [
        part("range", Hex, 0).sign("=(0x"), part("~", Hex, 1).sign(" 0x"),
        part("nr_scanned", Unsigned, 2).after(") "), part("nr_taken", Unsigned, 3)
    ] "";
    KcompactdWake => "" [
        part("nid", Signed, 0), part("order", Signed, 1), part("classzone_idx", Name(ZONES, 8), 2)
    ] "";
    KcompactdSleep | KswapdSleep => "" [part("nid", Signed, 0)] "";
    MigratePages => "" [
        part("nr_succeeded", Unsigned, 0), part("nr_failed", Unsigned, 1),
        part("nr_thp_succeeded", Unsigned, 2).optional(), part("nr_thp_failed", Unsigned, 3).optional(),
        part("nr_thp_split", Unsigned, 4).optional(), part("nr_split", Unsigned, 5).optional(),
        part("mode", Name(MODE, 0), 6), part("reason", Name(REASON, 0), 7)
    ] "";
    WakeupKswapd => "" [
        part("nid", Signed, 0), part("order", Signed, 2), part("gfp_flags", Gfp, 3).optional(), ZID
    ] "";
    KswapdWake => "" [part("nid", Signed, 0), part("order", Signed, 2), ZID] "";
    DirectReclaimBegin => "" [part("order", Signed, 0), part("gfp_flags", Gfp, 1)] "";
    DirectReclaimEnd => "" [part("nr_reclaimed", Unsigned, 0)] "";
    VmapAlloc => "" [
        part("va_start", Unsigned, 0).sign(": "), part("size", Unsigned, 1), part("align", Unsigned, 2),
        part("vstart", Hex, 3), part("vend", Hex, 4), part("failed", Signed, 5)
    ] "";
    VmapFree => "" [part("va_start", Hex, 0), part("nr_lazy", Unsigned, 1), part("nr_lazy_max", Unsigned, 2)] "";
    VmapPurge => "" [part("start", Hex, 0), part("end", Hex, 1), part("num_purged", Unsigned, 2)] "";
    UnmappedArea => "" [
        part("addr", Address, 0), part("err", Error, 0), part("total_vm", Hex, 1), part("flags", Hex, 2),
        part("len", Hex, 3), part("lo", Hex, 4), part("hi", Hex, 5), part("mask", Hex, 6), part("ofs", Hex, 7)
    ] "";
    ExitMmap => "exit_mmap: " [part("mt_mod", Hex, 0).sign(" 0x")] ", DESTROY";
    Munmap => "sys_munmap(" [part("addr", Hex, 0).sign(": 0x"), part("len", Hex, 1).after(", ").sign(": 0x")] ")";
    Mmap => "sys_mmap(" [
        part("addr", Argument, 0), part("len", Argument, 1).after(", "), part("prot", Argument, 2).after(", "),
        part("flags", Argument, 3).after(", "), part("fd", Argument, 4).after(", "),
        part("off", Argument, 5).after(", ")
    ] ")";
    BulkPage => "" [PAGE, PFN, part("before", Unsigned, 2), part("gfp_flags", Gfp, 1)] "";
    BulkCall => "" [part("filled", Unsigned, 0)] "";
    Lost => "" [] "";
}

/// One kernel's names for values that its text does not give as numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wording {
    gfp: FlagTable,
    /// The lists of names in this kernel's `format` files, by kind and value.
    names: Vec<(EventKind, usize, NamedValues)>,
}

/// The error for a line that gives no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// The values of an event from its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worded {
    /// Values in the order of [`EventKind::fields`].
    pub(crate) values: [u64; MAX_FIELDS],
    /// True if a flag had an unknown name, and is missing in its value.
    pub(crate) lacks_flags: bool,
}

impl Wording {
    /// Returns the wording of the kernel of this trace.
    pub(crate) fn of(meta: &TraceMeta) -> Wording {
        let mut names = Vec::new();
        let formats = meta.formats.iter().filter_map(|(_, text)| Format::parse(text).ok());
        for format in formats {
            let Some(kind) = EventKind::from_name(&format.name) else { continue };
            for (place, field) in kind.fields().iter().enumerate() {
                if let Some(list) = symbols(&format.print, field.name) {
                    names.push((kind, place, list));
                }
            }
        }
        Wording { gfp: meta.gfp.clone(), names }
    }

    fn list(&self, kind: EventKind, field: usize) -> Option<&[(u64, String)]> {
        let found = self.names.iter().find(|(of, place, _)| (*of, *place) == (kind, field));
        found.map(|(_, _, list)| list.as_slice())
    }

    /// Adds the event's name and fields as the kernel prints them. `Lost` has none.
    pub(crate) fn print(&self, kind: EventKind, values: &[u64; MAX_FIELDS], into: &mut String) {
        let row = row(kind);
        if row.head.is_empty() {
            into.push_str(kind.name());
            into.push_str(": ");
        }
        into.push_str(row.head);
        for (at, part) in row.parts.iter().enumerate() {
            into.push_str(if at == 0 { "" } else { part.lead });
            into.push_str(part.key);
            into.push_str(part.sign);
            self.print_value(kind, part, values, into);
        }
        into.push_str(row.tail);
    }

    fn print_value(
        &self,
        kind: EventKind,
        part: &Part,
        values: &[u64; MAX_FIELDS],
        into: &mut String,
    ) {
        let value = values[part.field];
        let is_error = value >= FIRST_ERROR;
        let text = match part.form {
            Form::Page if value == NO_FRAME => format!("{:016x}", 0),
            Form::Page => format!("{:016x}", FRAME_TABLE.wrapping_add(value.wrapping_mul(64))),
            Form::Frame if value == NO_FRAME => "0".to_owned(),
            Form::Frame | Form::Hex => format!("{value:x}"),
            Form::Argument if value >= 10 => format!("0x{value:x}"),
            Form::Argument | Form::Unsigned => value.to_string(),
            Form::Signed => (value as i64).to_string(),
            Form::Gfp => self.gfp.render(value),
            Form::Name(list, width) => {
                let own = self.list(kind, part.field);
                let name = match own {
                    Some(own) => own.iter().find(|(of, _)| *of == value).map(|(_, name)| &**name),
                    None => list.iter().find(|(of, _)| *of == value).map(|(_, name)| *name),
                };
                format!("{:width$}", name.map_or_else(|| format!("0x{value:x}"), str::to_owned))
            }
            Form::Power => 1_u64.checked_shl(value as u32).unwrap_or(0).to_string(),
            Form::Address => format!("{:x}", if is_error { 0 } else { value }),
            Form::Error => (if is_error { value as i64 } else { 0 }).to_string(),
            Form::Fixed(text) => text.to_owned(),
            Form::Fragmenting => {
                let pageblock = PAGEBLOCK_ORDER.parse().expect("an order is a number");
                u8::from((value as i64) < pageblock).to_string()
            }
        };
        into.push_str(&text);
    }

    /// Reads the values in the text behind an event's name. O(length).
    pub(crate) fn read(&self, kind: EventKind, text: &str) -> Result<Worded, Unreadable> {
        let parts = row(kind).parts;
        let mut values = [0; MAX_FIELDS];
        let (mut found, mut has_page, mut lacks_flags) = (0_u32, true, false);
        for (key, value) in Pairs(text) {
            let by_key = parts.iter().position(|part| part.key == key);
            // Tools that print raw fields use the names of the fields.
            let by_name = || {
                let field = kind.fields().iter().position(|field| field.name == key)?;
                parts.iter().position(|part| part.field == field && !part.is_aside())
            };
            let Some(at) = by_key.or_else(by_name) else { continue };
            found |= 1 << at;
            let field = parts[at].field;
            match parts[at].form {
                Form::Page => has_page = !is_null(value),
                Form::Fixed(_) | Form::Fragmenting => {}
                Form::Address | Form::Error => values[field] |= number(value)?,
                Form::Gfp => {
                    let (flags, unknown) = self.gfp.known_value(value);
                    values[field] = flags;
                    lacks_flags |= unknown > 0;
                }
                Form::Name(list, _) => values[field] = self.named(kind, field, list, value)?,
                // The number that opens a range has the range's bracket before it.
                Form::Hex => values[field] = number(value.trim_start_matches('('))?,
                Form::Power => values[field] = u64::from(number(value)?.trailing_zeros()),
                _ => values[field] = number(value)?,
            }
        }
        let missing =
            |(at, part): (usize, &Part)| found & 1 << at == 0 && !part.optional && !part.is_aside();
        if parts.iter().enumerate().any(missing) {
            return Err(Unreadable);
        }
        if !has_page && values[0] == 0 {
            values[0] = NO_FRAME;
        }
        Ok(Worded { values, lacks_flags })
    }

    fn named(
        &self,
        kind: EventKind,
        field: usize,
        list: &[(u64, &str)],
        name: &str,
    ) -> Result<u64, Unreadable> {
        let own = self.list(kind, field).into_iter().flatten();
        let own = own.map(|(value, known)| (*value, known.as_str()));
        let known = own.chain(list.iter().copied()).find(|(_, known)| *known == name);
        known.map_or_else(|| number(name), |(value, _)| Ok(value))
    }
}

impl Part {
    /// Returns true if a line can lack the part: another part has its value, or no value needs it.
    fn is_aside(&self) -> bool {
        matches!(self.form, Form::Page | Form::Fixed(_) | Form::Fragmenting | Form::Error)
    }
}

/// Address of the table of frame descriptions in Linux on x86-64 when it is not randomised, 64 bytes each.
const FRAME_TABLE: u64 = 0xffff_ea00_0000_0000;

/// The lowest address that stands for an error, as the kernel returns it.
const FIRST_ERROR: u64 = -4095_i64 as u64;

fn is_null(pointer: &str) -> bool {
    matches!(pointer, "(null)" | "(nil)")
        || pointer.trim_start_matches("0x").bytes().all(|b| b == b'0')
}

/// Parses a number as C prints it. Pointers are those of `%p`: 16 digits without `0x`, the first half 0 if they are
/// hashed.
fn number(text: &str) -> Result<u64, Unreadable> {
    let is_pointer =
        || text.starts_with("00000000") || text.bytes().any(|b| b.is_ascii_alphabetic());
    let value = if let Some(digits) = text.strip_prefix("0x") {
        u64::from_str_radix(digits, 16).ok()
    } else if text.starts_with('-') {
        text.parse::<i64>().ok().map(|value| value as u64)
    } else if text.len() == 16 && is_pointer() {
        u64::from_str_radix(text, 16).ok()
    } else {
        text.parse().ok()
    };
    value.ok_or(Unreadable)
}

/// Keys and values of a line: `key=value`, `key: value` and `key value`, separated by blanks, commas and brackets.
struct Pairs<'a>(&'a str);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.trim_start_matches([' ', ',', ')', '\t']);
        let end = text.find(['=', ':', ' '])?;
        let (key, rest) = text.split_at(end);
        let rest = rest.trim_start_matches([':', ' ']);
        let rest = rest.strip_prefix('=').unwrap_or(rest);
        // A pointer may be `(null)`.
        let from = usize::from(rest.starts_with('('));
        let end = rest[from..].find([' ', ',', ')']).map_or(rest.len(), |end| end + from);
        let end = if from == 1 && rest[end..].starts_with(')') { end + 1 } else { end };
        let (value, rest) = rest.split_at(end);
        self.0 = rest;
        Some((key, value))
    }
}
