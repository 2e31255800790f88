//! Requests that a recording by tracepoints cannot contain, as far as the recording itself shows them.
//!
//! From Linux 5.13 on the bulk interface hands out pages with no event, 0.5 to 1.3 % of requests. Frees of such pages
//! do have an event. So a *free of an unknown page* is, by definition, a free of a block all of whose pages were free
//! by the recording: freed before and not allocated since, or without an event before and free in the snapshot at the
//! start. Such frees by a process during its own run of compaction are counted apart: they are free pages that
//! compaction had set aside as targets and gives back, or pages that it had moved before.
//!
//! The count is exact, and the number of missing requests at least as large: a page that was handed out and kept has no
//! free; a page on a CPU's list looks in use in a snapshot, so its first free proves nothing. Two other causes stay in
//! the count: lost events, and pages that compaction moved to a frame without an event; [`Unseen`] has the number of
//! each.
//!
//! With `record --bulk` the pages are in the recording. An entry of a call's array that was filled before the call, and
//! a page that an event named during the call, are listed although they are not new ([`UnseenTracker::plain`]).

use std::hash::Hash;

use foldhash::{HashMap, HashMapExt};
use serde::{Deserialize, Serialize};

use super::event::{BulkMoment, Event, View};
use super::kinds::{EventKind, MAX_FIELDS};
use super::meta::{Moment, TraceMeta};
use crate::budget::{Room, table_bytes};
use crate::fields;
use crate::finding::grouped;
use crate::gfp::GfpBits;
use crate::snapshot::PageFlags;

/// The requests that a recording lacks, and its events of the bulk interface. A free of an unknown page is a free of a
/// block all of whose pages were free by the recording: freed before and not allocated since, or without an event
/// before and free in the snapshot at the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unseen {
    /// Blocks handed out: those with an event, and pages of the bulk interface.
    pub requests: u64,
    /// Frees of unknown pages, in blocks; without `given_back`.
    pub unknown_frees: u64,
    /// Such frees during runs of compaction: of free pages that were set aside and given back, or of pages that were
    /// moved before and moved again.
    pub given_back: u64,
    /// Pages that compaction moved, to frames that no event names: up to as many unknown frees are theirs.
    pub moved: u64,
    pub bulk: BulkEvents,
    /// Conclusions, as sentences.
    pub sentences: Vec<String>,
}

/// The events of the bulk interface in a recording (`record --bulk`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BulkEvents {
    /// True if the bulk interface was recorded.
    pub recorded: bool,
    /// Calls that returned.
    pub calls: u64,
    /// Pages that these calls handed out.
    pub pages: u64,
    /// Entries of the calls' arrays that were not new pages: filled before, or announced by an event of their own.
    pub repeated: u64,
    /// Entries that could not be read: the upper bound of missing pages.
    pub unread: u64,
}

/// Follows each frame through the events.
#[derive(Clone, Debug)]
pub struct UnseenTracker {
    gfp: GfpBits,
    release: Option<String>,
    /// The last event of each frame, in words of 64 frames, by the number of the word.
    words: Followed<u64, Word>,
    /// Frames that were free in the snapshot at the start, a word for 64; empty without one.
    free_at_start: Vec<u64>,
    /// Time at which the snapshot was complete; until then frames without an event were as it shows them.
    window_end: Option<u64>,
    /// Frames that stood in the array of a call of the bulk interface when the call began.
    held: Followed<u64, ()>,
    compacting: Followed<i32, ()>,
    /// Entries that calls filled, less the entries that were read.
    unread: i64,
    unseen: Unseen,
}

/// The last events of 64 frames, a bit for each: those freed, and those allocated. A frame in neither set has had no
/// event.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    free: u64,
    used: u64,
}

/// Most words that are followed: 224 GiB of frames with events. A damaged file may name more, which are ignored.
const MOST_WORDS: usize = 7 << 17;
/// Most frames in arrays, and processes that compact, at a time.
const MOST_AT_A_TIME: usize = 7 << 14;

/// A map that takes no more entries than it was given room for.
#[derive(Clone, Debug)]
struct Followed<K, V> {
    entries: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V: Default> Followed<K, V> {
    /// Makes a map with room for `most` entries, or for as many as fit in `bytes`.
    fn new(most: usize, bytes: u64) -> Followed<K, V> {
        // While it grows, the old table is there too.
        let fits = |entries: &usize| table_bytes::<(K, V)>(*entries) * 3 / 2 <= bytes;
        let halves = std::iter::successors(Some(most), |most| Some(most / 2));
        let most = halves.take_while(|most| *most > 0).find(fits).unwrap_or(0);
        Followed { entries: HashMap::new(), most }
    }

    /// Returns the value of a key, which is added if there is room; `None` if there is none.
    fn of(&mut self, key: K) -> Option<&mut V> {
        let full = self.entries.len() >= self.most
            || self.entries.len() == self.entries.capacity()
                && self.entries.try_reserve(1).is_err();
        match full {
            true => self.entries.get_mut(&key),
            false => Some(self.entries.entry(key).or_default()),
        }
    }
}

/// The reason of a migration that compaction asked for.
const COMPACTION: i32 = 0;

impl UnseenTracker {
    /// Makes a tracker for a trace with these facts. It takes a quarter of the remaining room, at most 40 MiB, for the
    /// frames that it follows.
    #[must_use]
    pub fn new(meta: &TraceMeta, room: &mut Room) -> UnseenTracker {
        let share = room.take_part(4, 40 << 20);
        let window_end = match meta.start().map(|taken| taken.moment) {
            Some(Moment::During { end, .. }) => Some(end),
            // Events between such a snapshot and the first event of the trace are not known.
            Some(Moment::Before | Moment::After) | None => None,
        };
        let free_at_start = window_end
            .map_or(Vec::new(), |_| meta.frames_at_start(|flags| flags.has(PageFlags::BUDDY)));
        let recorded = meta.formats.iter().any(|(name, _)| name == super::bulk::PAGES);
        let bulk = BulkEvents { recorded, ..BulkEvents::default() };
        UnseenTracker {
            gfp: GfpBits::new(&meta.gfp),
            release: meta.release.clone(),
            words: Followed::new(MOST_WORDS, share / 16 * 15),
            free_at_start,
            window_end,
            held: Followed::new(MOST_AT_A_TIME, share / 20),
            compacting: Followed::new(MOST_AT_A_TIME, share / 40),
            unread: 0,
            unseen: Unseen { bulk, ..Unseen::default() },
        }
    }

    /// Notes an event. Returns it in terms of tracepoints: a page that the bulk interface handed out is a request of
    /// order 0; `None` if the event announces nothing new. O(pages of the block / 64).
    pub fn plain(&mut self, event: &Event) -> Option<Event> {
        match event.view() {
            View::PageAlloc { pfn: Some(pfn), order, .. } => self.alloc(pfn, order),
            View::PageFree { pfn, order } => self.free(event, pfn, order),
            View::BulkPage { pfn, gfp, when } => return self.bulk_page(event, pfn, gfp, when),
            View::BulkCall { filled } => {
                self.unseen.bulk.recorded = true;
                self.unseen.bulk.calls += 1;
                self.unread = self.unread.wrapping_add(filled as i64);
                return None;
            }
            View::CompactionBegin(_) => drop(self.compacting.of(event.pid)),
            View::CompactionEnd { .. } => drop(self.compacting.entries.remove(&event.pid)),
            View::MigratePages { succeeded, reason: COMPACTION, .. } => {
                self.unseen.moved = self.unseen.moved.saturating_add(succeeded);
            }
            View::Lost(_) => self.compacting.entries.clear(),
            _ => {}
        }
        Some(*event)
    }

    fn alloc(&mut self, pfn: u64, order: u32) {
        self.unseen.requests += 1;
        for (number, mask) in words_of(pfn, order) {
            let Some(word) = self.words.of(number) else { continue };
            word.used |= mask;
            word.free &= !mask;
        }
    }

    fn free(&mut self, event: &Event, pfn: u64, order: u32) {
        let after_start = self.window_end.is_some_and(|end| event.at > end);
        let mut was_free = true;
        for (number, mask) in words_of(pfn, order) {
            let start = match usize::try_from(number) {
                Ok(number) if after_start => self.free_at_start.get(number).copied().unwrap_or(0),
                _ => 0,
            };
            let Some(word) = self.words.of(number) else { continue };
            was_free &= (word.free | start & !word.used) & mask == mask;
            word.free |= mask;
            word.used &= !mask;
        }
        self.held.entries.remove(&pfn);
        if was_free && self.compacting.entries.contains_key(&event.pid) {
            self.unseen.given_back += 1;
        } else if was_free {
            self.unseen.unknown_frees += 1;
        }
    }

    fn bulk_page(&mut self, event: &Event, pfn: u64, gfp: u64, when: BulkMoment) -> Option<Event> {
        self.unseen.bulk.recorded = true;
        if when == BulkMoment::Before {
            self.held.of(pfn);
            return None;
        }
        self.unread = self.unread.wrapping_sub(1);
        let used = self
            .words
            .entries
            .get(&(pfn / 64))
            .is_some_and(|word| word.used & 1 << (pfn % 64) != 0);
        if self.held.entries.remove(&pfn).is_some() || used {
            self.unseen.bulk.repeated += 1;
            return None;
        }
        self.unseen.bulk.pages += 1;
        self.alloc(pfn, 0);
        let mut values = [0; MAX_FIELDS];
        let migratetype = self.gfp.flags(gfp).migratetype().index() as u64;
        values[..4].copy_from_slice(&[pfn, 0, gfp, migratetype]);
        Some(Event { kind: EventKind::PageAlloc, values, ..*event })
    }

    /// Returns the result, with the sentences; at least `lost` events are missing.
    #[must_use]
    pub fn finish(self, lost: u64) -> Unseen {
        let mut unseen = self.unseen;
        // Lost events may have left more pages than calls.
        unseen.bulk.unread = u64::try_from(self.unread).unwrap_or(0);
        unseen.sentences = sentences(&unseen, self.release.as_deref(), lost);
        unseen
    }
}

/// The first version whose kernel has the bulk interface.
const BULK_SINCE: (u32, u32) = (5, 13);

/// Returns true if the kernel has the bulk interface; an unknown kernel may have it.
fn has_bulk(release: Option<&str>) -> bool {
    let version = release.and_then(|text| fields::release_version(text).ok());
    version.is_none_or(|version| version >= BULK_SINCE)
}

/// Returns a share in percent of a whole.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn sentences(unseen: &Unseen, release: Option<&str>, lost: u64) -> Vec<String> {
    let &Unseen { requests, unknown_frees, given_back, moved, bulk, .. } = unseen;
    let mut all = vec![format!(
        "{} frees of unknown pages, {:.2} % of {} requests: of blocks that were free by the recording, that is freed \
         before and not allocated since, or free in the snapshot at the start.",
        grouped(unknown_frees),
        percent(unknown_frees, requests),
        grouped(requests)
    )];
    if given_back > 0 {
        all.push(format!(
            "{} more such frees were made by runs of compaction: of free pages that they had set aside and gave back, \
             or of pages that they had moved before and moved again.",
            grouped(given_back)
        ));
    }
    if moved > 0 {
        all.push(format!(
            "Compaction moved {} pages to frames that no event names: up to as many of these frees are theirs.",
            grouped(moved)
        ));
    }
    if lost > 0 {
        all.push(format!(
            "{} events are lost: some of these frees may be of what they told.",
            grouped(lost)
        ));
    }
    all.push(match (bulk.recorded, has_bulk(release)) {
        (true, _) => of_bulk(&bulk, requests),
        (false, true) => {
            "From Linux 5.13 on the kernel's bulk interface (vmalloc, XFS, networking) hands out pages without any \
             event, typically 0.5 to 1.3 % of requests: a recording by tracepoints cannot contain them, but for their \
             frees. `nofrag record --bulk` records them, too."
                .to_owned()
        }
        (false, false) => {
            "This kernel is older than Linux 5.13 and has no bulk interface that hands out pages without an event."
                .to_owned()
        }
    });
    all
}

fn of_bulk(bulk: &BulkEvents, requests: u64) -> String {
    let &BulkEvents { calls, pages, repeated, unread, .. } = bulk;
    let missing = match unread {
        0 => "none is missing".to_owned(),
        unread => format!("up to {} more could not be read and are missing", grouped(unread)),
    };
    format!(
        "What the bulk interface handed out was recorded (--bulk): {} pages in {} calls, {:.2} % of requests; \
         {missing}; {} entries of its arrays were known from other events or from before the call.",
        grouped(pages),
        grouped(calls),
        percent(pages, requests),
        grouped(repeated)
    )
}

/// Returns the words of a block's frames, each with a mask of the block's frames in it.
fn words_of(pfn: u64, order: u32) -> impl Iterator<Item = (u64, u64)> {
    /// The largest order of any kernel; a larger one in a damaged file costs no more.
    const LARGEST: u32 = 11;
    let end = pfn.saturating_add(1 << order.min(LARGEST));
    (pfn / 64..end.div_ceil(64)).map(move |number| {
        let first = (number * 64).max(pfn);
        let count = end.min((number + 1).saturating_mul(64)) - first;
        // There are none at the very end of the numbers.
        let mask = u64::MAX.checked_shr((64 - count) as u32).unwrap_or(0);
        (number, mask << (first % 64))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::budget::Budget;
    use crate::snapshot::Files;
    use crate::trace::TakenSnapshot;

    fn event(at: u64, pid: i32, kind: EventKind, fields: &[u64]) -> Event {
        let mut values = [0; MAX_FIELDS];
        values[..fields.len()].copy_from_slice(fields);
        Event { at, pid, cpu: 0, kind, values }
    }

    fn alloc(pfn: u64, order: u64) -> Event {
        event(100, 1, EventKind::PageAlloc, &[pfn, order, 0xcc0, 0])
    }

    fn free(pfn: u64, order: u64) -> Event {
        event(100, 1, EventKind::PageFree, &[pfn, order])
    }

    fn bulk(pfn: u64, before: u64) -> Event {
        event(100, 1, EventKind::BulkPage, &[pfn, 0xcc0, before])
    }

    fn call(filled: u64) -> Event {
        event(100, 1, EventKind::BulkCall, &[filled])
    }

    /// Returns the facts of a trace with a snapshot that is complete at time 50, and in which these of 128 frames are
    /// free.
    fn meta(free: &[usize]) -> TraceMeta {
        let mut flags = vec![0; 8 * 128];
        free.iter().for_each(|pfn| flags[8 * pfn + 1] = 4);
        let mut files = Files::default();
        files.insert("kpageflags", flags);
        let moment = Moment::During { begin: 10, end: 50 };
        TraceMeta { snapshots: vec![TakenSnapshot { moment, files }], ..TraceMeta::default() }
    }

    fn tracker(meta: &TraceMeta) -> UnseenTracker {
        let mut room = Room::new(Path::new("test"), Budget::of_length(0));
        UnseenTracker::new(meta, &mut room)
    }

    fn seen(meta: &TraceMeta, events: &[Event]) -> Unseen {
        let mut tracker = tracker(meta);
        events.iter().for_each(|event| {
            tracker.plain(event);
        });
        tracker.finish(0)
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    fn check_unknown(meta: &TraceMeta, events: &[Event], expected: u64) {
        assert_eq!(seen(meta, events).unknown_frees, expected, "{events:?}");
    }

    #[test]
    fn a_free_is_of_an_unknown_page_if_all_of_it_was_free() {
        let none = TraceMeta::default();
        check_unknown(&none, &[alloc(64, 2), free(64, 2), free(64, 2)], 1);
        check_unknown(&none, &[alloc(64, 2), free(64, 2), alloc(65, 0), free(64, 2)], 0);
        // The state of a page before its first event is unknown.
        check_unknown(&none, &[free(9, 0), free(10, 3)], 0);
        check_unknown(&none, &[free(9, 0), alloc(9, 0), free(9, 0)], 0);
        // A block over more than one word of frames.
        check_unknown(&none, &[free(512, 9), free(512, 9), free(600, 0)], 2);
    }

    #[test]
    fn the_snapshot_counts_from_when_it_was_complete_and_until_an_event() {
        let meta = meta(&[9, 12, 13]);
        check_unknown(&meta, &[free(9, 0), free(8, 0), free(12, 1), free(8, 1)], 2 + 1);
        check_unknown(&meta, &[alloc(9, 0), free(9, 0)], 0);
        // While the snapshot was being taken, the free may have come first.
        check_unknown(&meta, &[event(49, 1, EventKind::PageFree, &[9, 0])], 0);
    }

    #[test]
    fn frees_of_a_run_of_compaction_are_counted_apart() {
        let run = |kind| event(100, 5, kind, &[]);
        let give_back = event(100, 5, EventKind::PageFree, &[9, 0]);
        let events = [
            run(EventKind::CompactionBegin),
            give_back,
            free(9, 0),
            run(EventKind::CompactionEnd),
            give_back,
        ];
        let unseen = seen(&meta(&[9]), &events);
        assert_eq!((unseen.given_back, unseen.unknown_frees), (1, 2));
        assert!(unseen.sentences[1].contains("1 more such frees"), "{:?}", unseen.sentences);
    }

    #[test]
    fn a_page_of_the_bulk_interface_is_a_request_and_its_free_is_known() {
        let without = [free(9, 0), free(9, 0)];
        check_unknown(&TraceMeta::default(), &without, 1);
        let with = [free(9, 0), bulk(9, 0), call(1), free(9, 0)];
        let unseen = seen(&TraceMeta::default(), &with);
        assert_eq!((unseen.unknown_frees, unseen.requests), (0, 1));
        let expected = BulkEvents { recorded: true, calls: 1, pages: 1, repeated: 0, unread: 0 };
        assert_eq!(unseen.bulk, expected);
        let mut tracker = tracker(&TraceMeta::default());
        let plain = tracker.plain(&bulk(9, 0)).unwrap();
        assert_eq!(plain.view(), alloc(9, 0).view());
    }

    #[test]
    fn entries_that_are_no_new_pages_are_no_requests() {
        // Frame 8 was there before the call, 9 has an event of its own, 10 is new, and two could not be read.
        let events = [bulk(8, 1), alloc(9, 0), bulk(8, 0), bulk(9, 0), bulk(10, 0), call(5)];
        let unseen = seen(&TraceMeta::default(), &events);
        let expected = BulkEvents { recorded: true, calls: 1, pages: 1, repeated: 2, unread: 2 };
        assert_eq!((unseen.requests, unseen.bulk), (2, expected));
        assert!(unseen.sentences[1].contains("up to 2 more could not be read"));
        // A frame that was freed since may come again.
        let again = [bulk(8, 1), free(8, 0), bulk(8, 0), call(1)];
        assert_eq!(seen(&TraceMeta::default(), &again).bulk.pages, 1);
    }

    #[test]
    fn what_is_said_depends_on_the_kernel_and_on_what_was_recorded() {
        let last = |release: &str, events: &[Event]| {
            let meta = TraceMeta { release: Some(release.to_owned()), ..TraceMeta::default() };
            seen(&meta, events).sentences.pop().unwrap()
        };
        assert!(last("6.1.0-53-cloud-amd64", &[]).contains("record --bulk"));
        assert!(last("5.13", &[]).contains("0.5 to 1.3 %"));
        assert!(last("5.10.223", &[]).contains("older than Linux 5.13"));
        assert!(last("4.20", &[]).contains("older than Linux 5.13"));
        assert!(last("6.1", &[call(0)]).contains("was recorded (--bulk): 0 pages in 1 calls"));
    }

    #[test]
    fn no_frame_is_too_large_for_its_words() {
        for (pfn, order) in [(u64::MAX, 0), (u64::MAX - 1, 40), (63, 1), (0, 11)] {
            let frames: u32 = words_of(pfn, order).map(|(_, mask)| mask.count_ones()).sum();
            let expected = u64::min(1 << order.min(11), u64::MAX - pfn);
            assert_eq!(u64::from(frames), expected, "{pfn} {order}");
        }
    }
}
