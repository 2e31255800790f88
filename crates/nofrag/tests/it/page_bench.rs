//! A page allocator whose free memory a test lays out block by block.

use nofrag::cpu::CpuId;
use nofrag::event::EventSink;
use nofrag::page::{
    Attempt, FragmentationPolicy, MemoryMap, Migratetype, MinFree, PageAllocator, PageConfig,
    PageRequest, ZoneInfo,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};

/// Pages in a GiB, and in a block of the largest order.
pub(crate) const GIB: u64 = 1 << 18;
pub(crate) const LARGEST: u64 = 1 << 10;

pub(crate) fn order(number: u8) -> Order {
    Order::new(number).expect("a test names orders")
}

/// A machine and its first CPU.
pub(crate) struct Bench<E: EventSink = ()> {
    pub(crate) pages: PageAllocator<E>,
    pub(crate) cpu: CpuId,
}

impl Bench {
    /// Makes the allocator of `map` with hardly anything kept free, so that the test decides what is.
    pub(crate) fn new(map: MemoryMap, policy: FragmentationPolicy) -> Bench {
        let config = PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) };
        Bench::of(&PageConfig { watermark_scale_factor: 1, ..config })
    }

    pub(crate) fn of(config: &PageConfig) -> Bench {
        Bench::with_events(config, ())
    }

    /// Makes one zone, Normal, of `pages` pages.
    pub(crate) fn normal(pages: u64, policy: FragmentationPolicy) -> Bench {
        Bench::new(MemoryMap::uma(PageCount(pages), 0, 1).unwrap(), policy)
    }
}

impl<E: EventSink> Bench<E> {
    pub(crate) fn with_events(config: &PageConfig, events: E) -> Bench<E> {
        let cpu = config.map.cpus().by_rank(0).expect("the machine has a CPU");
        Bench { pages: PageAllocator::with_events(config, events).unwrap(), cpu }
    }

    /// Takes every page from `from` to before `to`, in blocks of the largest order.
    pub(crate) fn take_all(&mut self, from: u64, to: u64) {
        for start in (from..to).step_by(LARGEST as usize) {
            self.pages.alloc_at(Pfn(start), Order::MAX).unwrap();
        }
    }

    /// Cuts the largest blocks in use from `from` on and gives `count` blocks of `size` back, none of which merges with
    /// another: every second one. The pageblocks become `migratetype`.
    pub(crate) fn free_holes(&mut self, from: u64, size: u8, count: u64, migratetype: Migratetype) {
        let (order, mut left, mut start) = (order(size), count, from);
        while left > 0 {
            self.pages.free(self.cpu, Pfn(start)).unwrap();
            for block in [start, start + 512] {
                self.pages.set_block_type(Pfn(block), migratetype).unwrap();
            }
            let blocks = (start..start + LARGEST).step_by(order.pages() as usize).map(Pfn);
            for pfn in blocks.clone() {
                self.pages.alloc_at(pfn, order).unwrap();
            }
            let holes = blocks.step_by(2).take(left as usize);
            for pfn in holes {
                self.pages.free(self.cpu, pfn).unwrap();
                left -= 1;
            }
            start += LARGEST;
        }
        self.pages.drain_all();
    }

    #[expect(clippy::result_large_err, reason = "as the function that it calls")]
    pub(crate) fn alloc(&mut self, request: PageRequest) -> Result<Pfn, Attempt> {
        self.pages.alloc(Nanos(0), self.cpu, request)
    }

    /// Takes a block on the fast path.
    #[track_caller]
    pub(crate) fn take(&mut self, size: u8, migratetype: Migratetype) -> Pfn {
        self.alloc(PageRequest::new(order(size), migratetype)).expect("there is enough")
    }

    /// Returns the external fragmentation events, as the document of 2018 counts them.
    pub(crate) fn events(&self) -> u64 {
        self.pages.counters().events()
    }

    /// Returns the zone at this place, by node and then lowest first.
    pub(crate) fn zone(&self, place: usize) -> ZoneInfo {
        self.pages.zones().nth(place).expect("a test names zones")
    }
}
