//! The state of a run over time: so many samples at most, however long the recording.

use nofrag::page::{Migratetype, PageAllocator};
use nofrag::units::Order;

use super::outcome::{Contiguity, Sample};

/// Samples at even distances, which double when there are too many: nobody knows beforehand how long it takes.
#[derive(Debug)]
pub(super) struct Timeline {
    most: usize,
    samples: Vec<Sample>,
    began: Option<u64>,
    every: u64,
    next: u64,
}

/// The first distance between samples, in nanoseconds.
const FIRST_DISTANCE: u64 = 1_000_000;

impl Timeline {
    /// At most so many samples, and one at the end.
    pub(super) fn new(most: usize) -> Timeline {
        Timeline { most, samples: Vec::new(), began: None, every: FIRST_DISTANCE, next: 0 }
    }

    /// Whether it is time for a sample.
    pub(super) fn is_due(&self, at: u64) -> bool {
        self.next <= at && self.most > 0
    }

    /// Takes a sample.
    pub(super) fn take(&mut self, at: u64, pages: &PageAllocator) {
        let began = *self.began.get_or_insert(at);
        if self.samples.len() >= self.most.max(2) {
            self.thin_out();
        }
        let since = at.saturating_sub(began);
        self.next = began + (since / self.every + 1) * self.every;
        if self.samples.last().is_none_or(|last| last.at / self.every < since / self.every) {
            self.samples.push(sample(since, pages));
        }
    }

    /// The distances double: of each two samples in the same new distance the first stays.
    fn thin_out(&mut self) {
        self.every *= 2;
        let every = self.every;
        self.samples.dedup_by_key(|sample| sample.at / every);
    }

    /// Takes the last sample.
    pub(super) fn finish(&mut self, at: u64, pages: &PageAllocator) {
        let began = *self.began.get_or_insert(at);
        let since = at.saturating_sub(began);
        self.samples.pop_if(|last| last.at == since);
        self.samples.push(sample(since, pages));
    }

    /// All samples, in order.
    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

fn sample(at: u64, pages: &PageAllocator) -> Sample {
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
