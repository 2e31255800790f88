//! A state over time: a bounded number of samples, for a recording of any length.

use nofrag::page::{Migratetype, PageAllocator, ZoneInfo};
use nofrag::units::Order;

use super::outcome::{Contiguity, Sample};

/// Samples at even distances, which double when there are too many: the length is not known beforehand.
#[derive(Debug)]
pub(super) struct Timeline<S> {
    most: usize,
    /// Samples with their times since the first.
    samples: Vec<(u64, S)>,
    began: Option<u64>,
    every: u64,
    next: u64,
}

/// The first distance between samples, in nanoseconds.
const FIRST_DISTANCE: u64 = 1_000_000;

impl<S: Clone> Timeline<S> {
    /// Creates a timeline of at most `most` samples, and one at the end.
    pub(super) fn new(most: usize) -> Timeline<S> {
        Timeline { most, samples: Vec::new(), began: None, every: FIRST_DISTANCE, next: 0 }
    }

    /// Returns true if it is time for a sample.
    pub(super) fn is_due(&self, at: u64) -> bool {
        self.next <= at && self.most > 0
    }

    /// Takes a sample; `sample` gets the time since the first one.
    pub(super) fn take(&mut self, at: u64, sample: impl FnOnce(u64) -> S) {
        let began = *self.began.get_or_insert(at);
        if self.samples.len() >= self.most.max(2) {
            self.thin_out();
        }
        let since = at.saturating_sub(began);
        let next = (since / self.every + 1).saturating_mul(self.every);
        self.next = began.saturating_add(next);
        if self.samples.last().is_none_or(|(last, _)| last / self.every < since / self.every) {
            self.samples.push((since, sample(since)));
        }
    }

    /// Doubles the distances: of each two samples in the same new distance the first stays.
    fn thin_out(&mut self) {
        self.every *= 2;
        let every = self.every;
        self.samples.dedup_by_key(|(at, _)| *at / every);
    }

    /// Takes the last sample, at the end.
    pub(super) fn finish(&mut self, at: u64, sample: impl FnOnce(u64) -> S) {
        let began = *self.began.get_or_insert(at);
        let since = at.saturating_sub(began);
        self.samples.pop_if(|(last, _)| *last == since);
        self.samples.push((since, sample(since)));
    }

    pub(super) fn samples(&self) -> Vec<S> {
        self.samples.iter().map(|(_, sample)| sample.clone()).collect()
    }
}

/// Returns a sample of an allocator's state.
pub(super) fn sample(at: u64, pages: &PageAllocator) -> Sample {
    let largest = pages.zones().filter_map(|zone| pages.largest_free(zone.id)).max();
    let whole = pages.zones().flat_map(|zone| {
        Order::PAGEBLOCK.and_larger().flat_map(move |order| {
            let blocks = |of| pages.free_blocks(zone.id, order, of);
            Migratetype::ALL.map(|of| blocks(of) * order.pages())
        })
    });
    let pageblocks = pages.pageblock_counts().expect("a count for each pageblock has room");
    Sample {
        at,
        free: pages.zones().map(|zone| zone.free.get()).sum(),
        idle: pages.zones().map(|zone| idle(pages, &zone)).collect(),
        largest: largest.map(|order| u32::from(order.get())),
        free_in_pageblocks: whole.sum(),
        extfrag: pages.counters().events(),
        pageblocks: Contiguity {
            free: pageblocks.free,
            movable: pageblocks.movable,
            pinned: pageblocks.pinned,
        },
    }
}

/// Returns the number of pages of a zone that nobody uses: free, or on the lists of CPUs.
pub(super) fn idle(pages: &PageAllocator, zone: &ZoneInfo) -> u64 {
    zone.free.get() + pages.per_cpu_pages(zone.id).get()
}
