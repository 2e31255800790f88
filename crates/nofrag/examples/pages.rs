//! A program that owns its pages: the allocator says what to free and what to move, and the program does it.
//!
//! A cache of file pages fills a machine of 64 MiB beside buffers that must stay in place. Half of the cache is
//! dropped, page by page, so that plenty is free and no huge page is. Requests for huge pages then go through the slow
//! path, which calls the owner: [`Migrate`] moves pages together, [`Reclaim`] frees some where that is not enough.
//!
//! ```text
//! cargo run -p nofrag --example pages
//! ```

use nofrag::cpu::CpuId;
use nofrag::page::{
    FragmentationPolicy, MemoryMap, Migrate, Migratetype, PageAllocator, PageConfig, PageRequest,
    Reclaim, ReclaimRequest, Reclaimed,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use std::collections::BTreeMap;
use std::error::Error;

/// The cache: for each frame the number of the file page that it holds.
struct Cache {
    cpu: CpuId,
    pages: BTreeMap<Pfn, u64>,
    freed: u64,
}

impl Reclaim for Cache {
    fn reclaim(&mut self, pages: &mut PageAllocator, wanted: ReclaimRequest) -> Reclaimed {
        let mut freed = 0;
        while freed < wanted.pages {
            let Some((frame, _)) = self.pages.pop_first() else { break };
            pages.free(self.cpu, frame).expect("it is in the cache");
            freed += 1;
        }
        self.freed += freed;
        Reclaimed { pages: freed, scanned: freed, left: self.pages.len() as u64 }
    }
}

impl Migrate for Cache {
    fn migrate(&mut self, from: Pfn, to: Pfn, _order: Order) -> bool {
        // A real owner copies the contents here.
        let Some(number) = self.pages.remove(&from) else { return false };
        self.pages.insert(to, number);
        true
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let map = MemoryMap::pc(PageCount(1 << 14), 1)?;
    let cpu = map.cpus().by_rank(0).ok_or("no CPU")?;
    let policy = FragmentationPolicy::preset("nofrag")?.policy;
    let mut pages = PageAllocator::new(&PageConfig::new(map, policy))?;
    let mut cache = Cache { cpu, pages: BTreeMap::new(), freed: 0 };

    let buffer = PageRequest::new(Order::ZERO, Migratetype::Unmovable);
    while let Ok(frame) = pages.alloc(Nanos(0), cpu, PageRequest::user(Order::ZERO)) {
        cache.pages.insert(frame, cache.pages.len() as u64);
        pages.set_movable(frame, true)?; // from here on the cache answers for it
        if cache.pages.len().is_multiple_of(64) && pages.alloc(Nanos(0), cpu, buffer).is_err() {
            break;
        }
    }
    println!("{} pages cached", cache.pages.len());
    for (&frame, _) in cache.pages.iter().filter(|(_, number)| *number % 2 == 1) {
        pages.free(cpu, frame)?;
    }
    cache.pages.retain(|_, number| *number % 2 == 0);

    println!("half of them dropped\n\nhuge page no.  at frame  moved  freed");
    for request in 1..=16 {
        let now = Nanos(request * 1_000_000);
        let served = pages.serve(now, cpu, PageRequest::user(Order::PAGEBLOCK), &mut cache);
        let frame = served.map_or("none".to_owned(), |frame| frame.0.to_string());
        let moved = pages.counters().moved;
        println!("{request:12}  {frame:>8}  {moved:5}  {:5}", cache.freed);
    }
    Ok(())
}
