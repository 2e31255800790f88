//! A trace in figures: rates, orders, types, lifetimes, unpaired blocks, losses.
//!
//! One pass over the events. A block is followed from its allocation to its free; memory is bounded by the blocks that
//! are in use at a time, not by the events, and by the remaining budget of the trace.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::event::{Event, View};
use super::kinds::{EventKind, KINDS};
use super::meta::TraceMeta;
use super::source::{EventSource, Loss, TraceError};
use super::unseen::{Unseen, UnseenTracker};
use crate::budget::Room;
use crate::snapshot::PageFlags;

/// Orders that are counted apart; larger ones, which no kernel has, count with the last.
pub const ORDERS: usize = 16;
/// Types that are counted apart; higher ones, which no kernel has, count with the last.
pub const TYPES: usize = 8;
/// The order of a pageblock on x86-64.
const PAGEBLOCK_ORDER: i32 = 9;
/// A free block below this order makes a fragmenting event serious.
const SERIOUS_ORDER: i32 = 4;
/// Sets of flags that are counted apart. A kernel has some dozens; a damaged file may have any number.
const FLAG_SETS: usize = 4096;
/// Most equal parts of a trace's time in which [`Rate`] counts events; once parts have been joined there are at least
/// half as many.
const SLOTS: usize = 144;

/// Returns the kernel's name of a migratetype.
#[must_use]
pub fn type_name(migratetype: usize) -> &'static str {
    const NAMES: [&str; TYPES] =
        ["unmovable", "movable", "reclaimable", "highatomic", "cma", "isolate", "6", "other"];
    NAMES[migratetype.min(TYPES - 1)]
}

/// The figures of a trace.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Events, without those that stand for lost ones.
    pub events: u64,
    /// Time of the first event, in nanoseconds of the trace's clock; `None` without an event.
    pub first: Option<u64>,
    /// Time from the first event to the last, in nanoseconds.
    pub nanos: u64,
    /// Number of events of each CPU.
    pub cpus: BTreeMap<u16, u64>,
    /// The kinds that occur, in the order of [`KINDS`].
    pub kinds: Vec<KindCount>,
    /// Number of allocated blocks, by order.
    pub allocs: [u64; ORDERS],
    /// Number of freed blocks, by order.
    pub frees: [u64; ORDERS],
    /// Number of allocated blocks, by migratetype.
    pub types: [u64; TYPES],
    pub failed: u64,
    /// The commonest sets of `gfp_flags`, the commonest first.
    pub flags: Vec<FlagCount>,
    /// The pairs of allocations and frees.
    pub pairing: Pairing,
    /// Lifetimes of blocks by order; only blocks that were allocated and freed in the trace.
    pub lifetimes_by_order: Vec<Lifetimes>,
    /// Lifetimes of blocks by migratetype; only blocks that were allocated and freed in the trace.
    pub lifetimes_by_type: Vec<Lifetimes>,
    /// External fragmentation, by the requested type and the type whose block was taken.
    pub extfrag: Vec<ExtFragCount>,
    /// Requests that have no event of their own.
    pub unseen: Unseen,
    pub loss: Loss,
    /// Events in equal parts of the time.
    pub rate: Rate,
}

/// The number of events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KindCount {
    pub group: &'static str,
    pub name: &'static str,
    pub count: u64,
    /// Events per second; `None` where no time passes.
    pub per_second: Option<f64>,
}

/// The number of requests with one set of flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlagCount {
    pub bits: u64,
    pub names: String,
    /// Number of requests with these flags.
    pub count: u64,
}

/// The pairs of allocations and frees. `matched + older` is the number of frees.
/// Source: docs/sources/trace.md#t10, #t12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pairing {
    /// Frees of blocks whose allocation is in the trace.
    pub matched: u64,
    /// Frees of blocks whose allocation is not in the trace.
    pub older: u64,
    /// Older frees of frames that were in use in the snapshot at the start; 0 without one.
    pub in_use_at_start: u64,
    /// Older frees of a page inside a block that is followed.
    pub inside: u64,
    /// Matched frees of another order than the allocation.
    pub order_mismatches: u64,
    /// Allocations of a block that was in use by earlier events.
    pub double_allocs: u64,
    /// Blocks still in use at the end.
    pub live: u64,
}

/// Lifetimes of blocks, in nanoseconds, to two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lifetimes {
    /// The order, or the migratetype.
    pub of: usize,
    pub count: u64,
    /// Half of the blocks lived no longer than this.
    pub median: u64,
    /// Nine tenths of the blocks lived no longer than this.
    pub p90: u64,
    /// All blocks but one in a hundred lived no longer than this.
    pub p99: u64,
    pub longest: u64,
}

/// External fragmentation by types, from the events of it. At most [`TYPES`] squared pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtFragCounts(BTreeMap<(usize, usize), ExtFragCount>);

impl ExtFragCounts {
    /// Counts the event, if it is one of external fragmentation.
    pub(crate) fn count(&mut self, event: &Event) {
        let View::ExtFrag {
            alloc_order,
            fallback_order,
            alloc_migratetype,
            fallback_migratetype,
            change_ownership,
            ..
        } = event.view()
        else {
            return;
        };
        let count = self.pair(type_of(alloc_migratetype), type_of(fallback_migratetype));
        count.events += 1;
        count.fragmenting += u64::from(fallback_order < PAGEBLOCK_ORDER);
        count.serious += u64::from(fallback_order < SERIOUS_ORDER);
        if !change_ownership {
            count.mistyped_pages += 1 << alloc_order.clamp(0, ORDERS as i32);
        }
    }

    /// Adds the counts of another reader.
    pub(crate) fn add(&mut self, other: &ExtFragCounts) {
        for more in other.0.values() {
            let count = self.pair(more.wanted, more.taken);
            count.events += more.events;
            count.fragmenting += more.fragmenting;
            count.serious += more.serious;
            count.mistyped_pages += more.mistyped_pages;
        }
    }

    /// Returns the pairs that occurred, by the requested type, then by the type taken from.
    pub(crate) fn into_counts(self) -> Vec<ExtFragCount> {
        self.0.into_values().collect()
    }

    fn pair(&mut self, wanted: usize, taken: usize) -> &mut ExtFragCount {
        let none = ExtFragCount { wanted, taken, ..ExtFragCount::default() };
        self.0.entry((wanted, taken)).or_insert(none)
    }
}

/// External fragmentation between two types.
/// Source: docs/sources/trace.md#t13.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtFragCount {
    /// The type asked for. Types are numbers of the kernel.
    pub wanted: usize,
    /// The type whose block was taken.
    pub taken: usize,
    /// Requests served from such blocks.
    pub events: u64,
    /// Requests that took a block below a pageblock, which mixes the types.
    pub fragmenting: u64,
    /// Requests that took a block below order 4.
    pub serious: u64,
    /// Pages handed out from pageblocks that kept the other type.
    pub mistyped_pages: u64,
}

/// Events in equal parts of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rate {
    /// Length of a part, in nanoseconds.
    pub slot_nanos: u64,
    /// Number of events in each part, from the first event on.
    pub events: Vec<u64>,
}

impl Rate {
    /// Counts an event `since` nanoseconds after the first; parts are joined when there are too many.
    fn add(&mut self, since: u64) {
        while since / self.slot_nanos >= SLOTS as u64 {
            self.slot_nanos *= 2;
            let joined = self.events.chunks(2).map(|pair| pair.iter().sum());
            self.events = joined.collect();
        }
        let slot = (since / self.slot_nanos) as usize;
        if self.events.len() <= slot {
            #[expect(clippy::disallowed_methods, reason = "at most `SLOTS`")]
            self.events.resize(slot + 1, 0);
        }
        self.events[slot] += 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Live {
    at: u64,
    order: u8,
    migratetype: u8,
}

/// The frames that were in use at the start and have not been seen since.
struct Start {
    untouched: Vec<u64>,
}

impl Start {
    /// Reads the flags of frames in the snapshot at the start; without them the set is empty.
    fn new(meta: &TraceMeta) -> Start {
        let in_use =
            |flags: PageFlags| !flags.has(PageFlags::BUDDY) && !flags.has(PageFlags::NOPAGE);
        Start { untouched: meta.frames_at_start(in_use) }
    }

    /// Removes a frame; returns true if the set had it.
    fn take(&mut self, pfn: u64) -> bool {
        let word = usize::try_from(pfn / 64).ok().and_then(|word| self.untouched.get_mut(word));
        let Some(word) = word else { return false };
        let bit = 1 << (pfn % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

struct Counting {
    summary: Summary,
    by_kind: [u64; EventKind::COUNT],
    flags: HashMap<u64, u64>,
    live: HashMap<u64, Live>,
    start: Start,
    by_order: Vec<Histogram<u64>>,
    by_type: Vec<Histogram<u64>>,
    extfrag: ExtFragCounts,
    unseen: UnseenTracker,
    last: u64,
}

/// Reads all events of a trace; `progress` receives the number of events that are done. The memory for blocks in use is
/// taken from `room`.
///
/// # Errors
/// Those of [`TraceError`].
pub fn summarise(
    meta: &TraceMeta,
    events: &mut dyn EventSource,
    room: &mut Room,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, TraceError> {
    let mut counting = Counting::new(meta, room);
    let (mut batch, mut done) = (Vec::new(), 0);
    while events.read(&mut batch)? {
        batch.iter().try_for_each(|event| counting.count(event, room))?;
        done += batch.len() as u64;
        progress(done);
        batch.clear();
    }
    Ok(counting.finish(meta, events.loss()))
}

fn type_of(migratetype: i32) -> usize {
    usize::try_from(migratetype).map_or(TYPES - 1, |migratetype| migratetype.min(TYPES - 1))
}

fn order_of(order: u32) -> usize {
    (order as usize).min(ORDERS - 1)
}

/// Makes a histogram of lifetimes in nanoseconds, of any length and to two digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 62, 2).expect("bounds and digits are allowed ones")
}

impl Counting {
    fn new(meta: &TraceMeta, room: &mut Room) -> Counting {
        let rate = Rate { slot_nanos: 1 << 10, events: Vec::new() };
        Counting {
            summary: Summary { rate, ..Summary::default() },
            by_kind: [0; EventKind::COUNT],
            flags: HashMap::new(),
            live: HashMap::new(),
            start: Start::new(meta),
            by_order: (0..ORDERS).map(|_| histogram()).collect(),
            by_type: (0..TYPES).map(|_| histogram()).collect(),
            extfrag: ExtFragCounts::default(),
            unseen: UnseenTracker::new(meta, room),
            last: 0,
        }
    }

    fn count(&mut self, event: &Event, room: &mut Room) -> Result<(), TraceError> {
        self.by_kind[event.kind as usize] += 1;
        let plain = self.unseen.plain(event);
        if event.kind == EventKind::Lost {
            return Ok(());
        }
        let first = *self.summary.first.get_or_insert(event.at);
        self.last = self.last.max(event.at);
        self.summary.events += 1;
        self.summary.rate.add(event.at.saturating_sub(first));
        *self.summary.cpus.entry(event.cpu).or_default() += 1;
        let Some(event) = &plain else { return Ok(()) };
        match event.view() {
            View::PageAlloc { pfn, order, gfp, migratetype } => {
                if self.flags.len() < FLAG_SETS || self.flags.contains_key(&gfp) {
                    *self.flags.entry(gfp).or_default() += 1;
                }
                match pfn {
                    Some(pfn) => {
                        room.grow(&mut self.live)?;
                        self.alloc(event.at, pfn, order_of(order), type_of(migratetype));
                    }
                    None => self.summary.failed += 1,
                }
            }
            View::PageFree { pfn, order } => self.free(event.at, pfn, order_of(order)),
            View::ExtFrag { .. } => self.extfrag.count(event),
            _ => {}
        }
        Ok(())
    }

    fn alloc(&mut self, at: u64, pfn: u64, order: usize, migratetype: usize) {
        self.summary.allocs[order] += 1;
        self.summary.types[migratetype] += 1;
        self.start.take(pfn);
        let live = Live { at, order: order as u8, migratetype: migratetype as u8 };
        if self.live.insert(pfn, live).is_some() {
            self.summary.pairing.double_allocs += 1;
        }
    }

    fn free(&mut self, at: u64, pfn: u64, order: usize) {
        self.summary.frees[order] += 1;
        let pairing = &mut self.summary.pairing;
        let Some(live) = self.live.remove(&pfn) else {
            pairing.older += 1;
            pairing.in_use_at_start += u64::from(self.start.take(pfn));
            // No block begins at this frame; a block that begins at a rounder one may reach here.
            let inside = (1..ORDERS as u32).any(|order| {
                let head = self.live.get(&(pfn >> order << order));
                head.is_some_and(|live| u32::from(live.order) >= order)
            });
            pairing.inside += u64::from(inside);
            return;
        };
        pairing.matched += 1;
        pairing.order_mismatches += u64::from(usize::from(live.order) != order);
        let nanos = at.saturating_sub(live.at).max(1);
        self.by_order[usize::from(live.order)].saturating_record(nanos);
        self.by_type[usize::from(live.migratetype)].saturating_record(nanos);
    }

    fn finish(self, meta: &TraceMeta, loss: Loss) -> Summary {
        let mut summary = self.summary;
        summary.nanos = self.last.saturating_sub(summary.first.unwrap_or(0));
        let seconds = summary.nanos as f64 / 1e9;
        let counted = KINDS.iter().zip(self.by_kind);
        let counted = counted.filter(|&(row, count)| count > 0 && row.kind != EventKind::Lost);
        summary.kinds = counted
            .map(|(row, count)| KindCount {
                group: row.group,
                name: row.name,
                count,
                per_second: (summary.nanos > 0).then(|| count as f64 / seconds),
            })
            .collect();
        let mut flags: Vec<(u64, u64)> = self.flags.into_iter().collect();
        flags.sort_by_key(|&(bits, count)| (std::cmp::Reverse(count), bits));
        summary.flags = flags
            .into_iter()
            .map(|(bits, count)| FlagCount { bits, names: meta.gfp.render(bits), count })
            .collect();
        summary.pairing.live = self.live.len() as u64;
        summary.lifetimes_by_order = lifetimes(&self.by_order);
        summary.lifetimes_by_type = lifetimes(&self.by_type);
        summary.extfrag = self.extfrag.into_counts();
        summary.unseen = self.unseen.finish(loss.events.max(loss.gaps));
        summary.loss = loss;
        summary
    }
}

fn lifetimes(histograms: &[Histogram<u64>]) -> Vec<Lifetimes> {
    let filled = histograms.iter().enumerate().filter(|(_, histogram)| !histogram.is_empty());
    filled
        .map(|(of, histogram)| Lifetimes {
            of,
            count: histogram.len(),
            median: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            longest: histogram.max(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::MAX_FIELDS;

    /// Returns a fallback of these orders and types, after which the pageblock keeps its type.
    fn fallback(alloc_order: u64, fallback_order: u64, wanted: u64, taken: u64) -> Event {
        let mut values = [0; MAX_FIELDS];
        values[1..5].copy_from_slice(&[alloc_order, fallback_order, wanted, taken]);
        Event { at: 0, pid: 0, cpu: 0, kind: EventKind::ExtFrag, values }
    }

    #[test]
    fn readers_that_count_apart_count_as_one() {
        let events = [
            fallback(0, 3, 0, 1),
            fallback(2, 9, 0, 1),
            fallback(0, 5, 1, 2),
            fallback(u64::MAX, 0, u64::MAX, 0),
            Event { kind: EventKind::PageAlloc, ..fallback(0, 0, 0, 1) },
        ];
        let count = |events: &[Event]| {
            let mut counts = ExtFragCounts::default();
            events.iter().for_each(|event| counts.count(event));
            counts
        };
        let mut sum = count(&events[..2]);
        sum.add(&count(&events[2..]));
        assert_eq!(sum, count(&events));
        let first = ExtFragCount {
            wanted: 0,
            taken: 1,
            events: 2,
            fragmenting: 1,
            serious: 1,
            mistyped_pages: 5,
        };
        assert_eq!(sum.into_counts()[0], first);
    }
}
