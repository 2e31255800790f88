//! Pages handed out by the kernel's bulk interface, from the records of probes that `record --bulk` makes.
//!
//! From Linux 5.13 on the bulk interface takes pages from a CPU's lists without any trace event
//! (docs/sources/pages.md#bulk-interface). Its callers give it an array; it fills the empty entries from the front and
//! returns the number of filled entries, those filled before included. So a record of the array before the call
//! ([`ENTER`]) and one after it ([`PAGES`]) show which pages are new. Where the return of a call cannot be paired with
//! its array, a record of the returned number ([`LEAVE`]) still counts the pages.
//!
//! An entry points at the kernel's description of a page; the descriptions of all pages stand in one table, so the
//! place in the table is the frame's number. Each record has the table's address and the length of a description.
//!
//! One record becomes many events: a [`BulkPage`](EventKind::BulkPage) for each entry that is a page, and one
//! [`BulkCall`](EventKind::BulkCall) for each return. If the calls returned more pages than there are events of pages
//! after calls, the difference could not be read.

use super::event::Event;
use super::format::{Format, FormatField};
use super::kinds::{EventKind, MAX_FIELDS};

/// Name of the probe on the call of the bulk interface.
pub(crate) const ENTER: &str = "nofrag_bulk_enter";
/// Name of the probe that reads the array when the call returns.
pub(crate) const PAGES: &str = "nofrag_bulk_pages";
/// Name of the probe that reads the number that the call returns, where [`PAGES`] does not see every return.
pub(crate) const LEAVE: &str = "nofrag_bulk_leave";

/// Entries of one field: a kernel's probes take no longer arrays.
pub(crate) const ENTRIES: usize = 64;
/// Fields with parts of the array. vmalloc asks for up to 100 pages at a time, network drivers for 64.
pub(crate) const PARTS: [&str; 2] = ["pages0", "pages1"];

/// A field that the kernel adds to records of return probes.
const RETURNS_TO: &str = "__probe_ret_ip";

/// The probe of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Enter,
    Pages,
    Leave,
}

/// The layout of one probe's records, by its `format` file.
#[derive(Clone, Debug)]
pub(super) struct BulkLayout {
    record: Record,
    /// True if the record also stands for the return: a return probe made it, and it has the address to which the call
    /// returns. Otherwise a [`LEAVE`] record stands for the return.
    is_return: bool,
    pid: Option<Place>,
    gfp: Option<Place>,
    asked: Option<Place>,
    filled: Option<Place>,
    array: Option<Place>,
    /// Place in a record of the address of the table of page descriptions.
    base: Option<Place>,
    page_bytes: Option<Place>,
    /// Offsets in a record of the parts of the array, [`PARTS`].
    parts: [Option<usize>; PARTS.len()],
}

/// Place of a number of four or eight bytes in a record.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: usize,
    size: usize,
}

impl Place {
    fn of(field: &FormatField) -> Option<Place> {
        let FormatField { offset, size, .. } = *field;
        matches!(size, 4 | 8).then_some(Place { offset, size })
    }

    fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..)?.get(..self.size)?;
        let mut word = [0; 8];
        word[..self.size].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }
}

impl BulkLayout {
    /// Returns the layout of the records of this format; `None` if no probe makes them.
    pub(super) fn of(format: &Format) -> Option<BulkLayout> {
        let record = match format.name.as_str() {
            ENTER => Record::Enter,
            PAGES => Record::Pages,
            LEAVE => Record::Leave,
            _ => return None,
        };
        let place = |name: &str| format.field(name).and_then(Place::of);
        let part = |name: &str| {
            let field = format.field(name).filter(|field| field.size == 8 * ENTRIES)?;
            Some(field.offset)
        };
        Some(BulkLayout {
            record,
            is_return: record == Record::Pages && format.field(RETURNS_TO).is_some(),
            pid: place("common_pid"),
            gfp: place("gfp"),
            asked: place("nr"),
            filled: place("filled"),
            array: place("array"),
            base: place("base"),
            page_bytes: place("page_bytes"),
            parts: PARTS.map(part),
        })
    }

    /// Appends the events of a record; returns `None`, and appends nothing, if the record is too short for its fields.
    pub(super) fn read(
        &self,
        record: &[u8],
        at: u64,
        cpu: u16,
        into: &mut Vec<Event>,
    ) -> Option<()> {
        let number = |place: Option<Place>| place?.read(record);
        let pid = number(self.pid)? as i32;
        let mut push = |kind, fields: &[u64]| {
            let mut values = [0; MAX_FIELDS];
            values[..fields.len()].copy_from_slice(fields);
            into.push(Event { at, pid, cpu, kind, values });
        };
        if self.record == Record::Leave {
            push(EventKind::BulkCall, &[number(self.filled)?]);
            return Some(());
        }
        let (gfp, asked) = (number(self.gfp)?, number(self.asked)? as i32);
        let (array, base) = (number(self.array)?, number(self.base)?);
        let page_bytes = number(self.page_bytes)?;
        // The words behind the requested entries are arbitrary, and without an array the fields hold earlier contents
        // of the buffer.
        let asked = if array == 0 { 0 } else { u64::try_from(asked).unwrap_or(0) };
        let (count, before) = match self.record {
            Record::Enter => (asked, 1),
            _ => (asked.min(number(self.filled)?), 0),
        };
        for entry in self.entries(record)?.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            if let Some(pfn) = frame_of(entry, base, page_bytes) {
                push(EventKind::BulkPage, &[pfn, gfp, before]);
            }
        }
        if self.is_return {
            push(EventKind::BulkCall, &[number(self.filled)?]);
        }
        Some(())
    }

    fn entries<'a>(&self, record: &'a [u8]) -> Option<impl Iterator<Item = u64> + use<'a>> {
        let mut parts = [&[][..]; PARTS.len()];
        for (part, offset) in parts.iter_mut().zip(self.parts) {
            *part = record.get(offset?..)?.get(..8 * ENTRIES)?;
        }
        let words = parts.into_iter().flat_map(|part| part.as_chunks::<8>().0);
        Some(words.map(|word| u64::from_le_bytes(*word)))
    }
}

/// Returns the frame whose description begins at an address; `None` if none does.
fn frame_of(entry: u64, base: u64, page_bytes: u64) -> Option<u64> {
    /// Bound of frame numbers, from the 52 bits of a physical address.
    const MOST_FRAMES: u64 = 1 << 40;
    let offset = entry.checked_sub(base)?;
    let pfn = offset.checked_div(page_bytes)?;
    (offset % page_bytes == 0 && pfn < MOST_FRAMES).then_some(pfn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{BulkMoment, Decoder, View};

    const BASE: u64 = 0xffff_ea00_0000_0000;
    const PID: u64 = 42;

    /// Returns a format with these fields one behind the other: name and bytes. The number is that of the record.
    fn format(name: &str, fields: &[(&str, usize)]) -> Format {
        let mut text = format!("name: {name}\nID: 7\nformat:\n");
        let mut offset = 0;
        for (field, size) in fields {
            text += &format!("\tfield:u64 {field};\toffset:{offset};\tsize:{size};\tsigned:0;\n");
            offset += size;
        }
        Format::parse(&(text + "\nprint fmt: \"\"\n")).unwrap()
    }

    const COMMON: [(&str, usize); 2] = [("common_type", 4), ("common_pid", 4)];
    const ARRAY: [(&str, usize); 7] = [
        ("gfp", 4),
        ("nr", 4),
        ("array", 8),
        ("base", 8),
        ("page_bytes", 4),
        ("pages0[]", 8 * ENTRIES),
        ("pages1[]", 8 * ENTRIES),
    ];

    /// Returns the fields of a record with this array.
    fn array(asked: i32, address: u64, entries: &[u64]) -> Vec<u8> {
        let mut all = [0x5555_5555_5555_5555; 2 * ENTRIES];
        all[..entries.len()].copy_from_slice(entries);
        let words = all.iter().flat_map(|word| word.to_le_bytes());
        let fixed = [
            0xcc0_u32.to_le_bytes().to_vec(),
            asked.to_le_bytes().to_vec(),
            address.to_le_bytes().to_vec(),
            BASE.to_le_bytes().to_vec(),
            64_u32.to_le_bytes().to_vec(),
        ];
        fixed.concat().into_iter().chain(words).collect()
    }

    fn common() -> Vec<u8> {
        [7_u32.to_le_bytes(), (PID as u32).to_le_bytes()].concat()
    }

    fn page(pfn: u64) -> u64 {
        BASE + 64 * pfn
    }

    fn events(format: &Format, record: &[u8]) -> Vec<View> {
        let mut events = Vec::new();
        Decoder::new([format]).decode_into(record, 5, 1, &mut events).unwrap();
        assert!(events.iter().all(|event| (event.at, event.pid, event.cpu) == (5, 42, 1)));
        events.iter().map(Event::view).collect()
    }

    fn seen(pfn: u64, when: BulkMoment) -> View {
        View::BulkPage { pfn, gfp: 0xcc0, when }
    }

    #[test]
    fn an_array_is_read_as_far_as_it_was_asked_for_and_filled() {
        let enter = format(ENTER, &[&COMMON[..], &ARRAY].concat());
        let before = [common(), array(3, 9, &[0, page(77), 0, page(78)])].concat();
        assert_eq!(events(&enter, &before), [seen(77, BulkMoment::Before)]);

        let returns = [&COMMON[..], &[("__probe_ret_ip", 8), ("filled", 8)], &ARRAY].concat();
        let pages = format(PAGES, &returns);
        let record = |filled: u64, array: Vec<u8>| {
            [common(), vec![0; 8], filled.to_le_bytes().to_vec(), array].concat()
        };
        let three = [page(10), page(77), page(12), page(13)];
        let new = |pfn| seen(pfn, BulkMoment::After);
        assert_eq!(
            events(&pages, &record(3, array(3, 9, &three))),
            [new(10), new(77), new(12), View::BulkCall { filled: 3 }]
        );
        // The call filled only the first entry.
        assert_eq!(
            events(&pages, &record(1, array(3, 9, &three))),
            [new(10), View::BulkCall { filled: 1 }]
        );
        // A list in place of an array: the contents of the fields do not come from this call.
        assert_eq!(events(&pages, &record(2, array(2, 0, &three))), [View::BulkCall { filled: 2 }]);
        // An address that is not in a row of the table, and one before it.
        assert_eq!(
            events(&pages, &record(3, array(3, 9, &[page(1) + 8, BASE - 64, page(2)]))),
            [new(2), View::BulkCall { filled: 3 }]
        );
    }

    #[test]
    fn more_entries_than_a_record_holds_are_left_to_the_count() {
        let returns = [&COMMON[..], &[("__probe_ret_ip", 8), ("filled", 8)], &ARRAY].concat();
        let entries: Vec<u64> = (0..128).map(page).collect();
        let record =
            [common(), vec![0; 8], 200_u64.to_le_bytes().to_vec(), array(200, 9, &entries)];
        let events = events(&format(PAGES, &returns), &record.concat());
        assert_eq!(events.len(), 128 + 1);
        assert_eq!(events[127], seen(127, BulkMoment::After));
        assert_eq!(events[128], View::BulkCall { filled: 200 });
    }

    #[test]
    fn a_return_of_its_own_counts_and_the_array_behind_it_does_not_count_again() {
        let leave = format(LEAVE, &[&COMMON[..], &[("filled", 8)]].concat());
        let record = [common(), 4_u64.to_le_bytes().to_vec()].concat();
        assert_eq!(events(&leave, &record), [View::BulkCall { filled: 4 }]);
        let pages = format(PAGES, &[&COMMON[..], &[("filled", 8)], &ARRAY].concat());
        let record = [record, array(4, 9, &[page(1), page(2), page(3), page(4)])].concat();
        assert_eq!(events(&pages, &record), [1, 2, 3, 4].map(|pfn| seen(pfn, BulkMoment::After)));
    }

    #[test]
    fn a_record_that_is_too_short_gives_no_event() {
        let enter = format(ENTER, &[&COMMON[..], &ARRAY].concat());
        let record = [common(), array(3, 9, &[page(1), page(2), page(3)])].concat();
        for length in [0, 4, 9, 40, record.len() - 1] {
            let mut events = Vec::new();
            let decoder = Decoder::new([&enter]);
            assert!(decoder.decode_into(&record[..length], 5, 1, &mut events).is_err());
            assert_eq!(events, []);
        }
    }
}
