//! A machine of 4 GiB writes files for a while, then wants huge pages: under Linux 4.20, under the first four patches
//! of Gorman 2018, and under `vm.defrag_mode` of 7.2.
//!
//! The program owns the pages, so it implements [`Reclaim`] and [`Migrate`]: its page cache can be freed, oldest first,
//! and moved. Beside the cache it keeps memory that stays in place: inodes, which go some time after the file, and
//! buffers that are freed in the order in which they came. kswapd and kcompactd are stepped in between.
//!
//! ```text
//! cargo run -p nofrag --release --example pages
//! ```
//!
//! This is how to drive the allocator, not a measurement; `nofrag run extfrag-2018` is one.

#![allow(clippy::disallowed_types)] // an example has the standard library

use nofrag::cpu::CpuId;
use nofrag::page::{
    FragmentationPolicy, Kcompactd, Kswapd, MemoryMap, Migrate, Migratetype, NodeId, PageAllocator,
    PageBudget, PageConfig, PageCounters, PageRequest, Reclaim, ReclaimRequest, Reclaimed,
    RequestFlags,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use std::collections::VecDeque;

/// Memory of the machine: 4 GiB.
const PAGES: u64 = 1 << 20;
/// Number of pages in a file.
const FILE: u64 = 16;
/// Buffers in use at a time.
const BUFFERS: usize = 20_000;
/// Huge pages that are asked for in the end: a gigabyte.
const HUGE: u32 = 512;

/// Everything that was allocated and is still in use.
struct Machine {
    cpu: CpuId,
    /// The page cache, oldest first. Pages have numbers that never change; the first in the queue has number `oldest`.
    cache: VecDeque<Pfn>,
    oldest: u64,
    /// The number of the cache page in each frame.
    numbers: Vec<u64>,
    /// Inodes, each with the number of the cache page after which it can go.
    inodes: VecDeque<(Pfn, u64)>,
    buffers: VecDeque<Pfn>,
    chance: u64,
}

impl Machine {
    fn new(cpu: CpuId) -> Machine {
        Machine {
            cpu,
            cache: VecDeque::new(),
            oldest: 0,
            numbers: vec![0; PAGES as usize],
            inodes: VecDeque::new(),
            buffers: VecDeque::new(),
            chance: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Returns a random number below `bound` (xorshift).
    fn below(&mut self, bound: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % bound
    }

    /// Writes a page of a file; the first one brings an inode with it, and some need a buffer.
    fn write(&mut self, pages: &mut PageAllocator, now: Nanos, page: u64) {
        if page.is_multiple_of(FILE) {
            let inode = PageRequest::new(Order::ZERO, Migratetype::Reclaimable);
            let stays = page + self.below(PAGES);
            if let Ok(pfn) = pages.serve(now, self.cpu, inode, self) {
                self.inodes.push_back((pfn, stays));
            }
        }
        let user = PageRequest::user(Order::ZERO);
        if let Ok(pfn) = pages.serve(now, self.cpu, user, self) {
            self.numbers[pfn.0 as usize] = self.oldest + self.cache.len() as u64;
            self.cache.push_back(pfn);
            // From here on the cache knows the page, so it may be moved.
            pages.set_movable(pfn, true).expect("it was just handed out");
        }
        if self.below(4) == 0 {
            let order = Order::new(self.below(4) as u8).expect("below 4");
            let buffer = PageRequest::new(order, Migratetype::Unmovable);
            let served = pages.serve(now, self.cpu, buffer, self);
            self.buffers.extend(served);
        }
        if self.buffers.len() > BUFFERS {
            let oldest = self.buffers.pop_front().expect("there are many");
            pages.free(self.cpu, oldest).expect("it is in use");
        }
    }
}

impl Reclaim for Machine {
    fn reclaim(&mut self, pages: &mut PageAllocator, wanted: ReclaimRequest) -> Reclaimed {
        let mut freed = 0;
        while freed < wanted.pages {
            let Some(pfn) = self.cache.pop_front() else { break };
            pages.free(self.cpu, pfn).expect("it is in the cache");
            self.oldest += 1;
            freed += 1;
        }
        while let Some(&(pfn, age)) = self.inodes.front() {
            if !wanted.may.slab || age >= self.oldest {
                break;
            }
            self.inodes.pop_front();
            pages.free(self.cpu, pfn).expect("it is in use");
            freed += 1;
        }
        Reclaimed { pages: freed, scanned: freed, left: self.cache.len() as u64 }
    }
}

impl Migrate for Machine {
    fn migrate(&mut self, from: Pfn, to: Pfn, _order: Order) -> bool {
        // Only pages of the cache are movable. A real owner copies the page here.
        let number = self.numbers[from.0 as usize];
        self.numbers[to.0 as usize] = number;
        self.cache[(number - self.oldest) as usize] = to;
        true
    }
}

/// Writes one and a half times the memory, then asks for huge pages; prints the outcome.
fn run(name: &str, policy: FragmentationPolicy) {
    let map = MemoryMap::uma(PageCount(PAGES), 375, 1).expect("4 GiB can be numbered");
    let cpu = map.cpus().by_rank(0).expect("there is one CPU");
    let mut pages = PageAllocator::new(&PageConfig::new(map, policy)).expect("there is memory");
    let mut machine = Machine::new(cpu);
    let mut kswapd = Kswapd::new(NodeId(0));
    let mut kcompactd = Kcompactd::new(NodeId(0));
    let mut background = |pages: &mut PageAllocator, machine: &mut Machine, now| {
        kswapd.step(now, pages, machine, PageBudget { pages: 64 });
        kcompactd.step(now, pages, machine, PageBudget { pages: 2048 });
    };
    for page in 0..PAGES * 3 / 2 {
        let now = Nanos(page * 10_000);
        machine.write(&mut pages, now, page);
        if page.is_multiple_of(16) {
            background(&mut pages, &mut machine, now);
        }
    }
    let largest = largest(&pages);
    // As page faults do by default: take what is at hand, and wake kswapd.
    let fault = PageRequest::user(Order::PAGEBLOCK).flags(RequestFlags::KSWAPD_RECLAIM);
    let mut huge = 0;
    for step in 0..HUGE {
        let now = Nanos(PAGES * 15_000 + u64::from(step) * 1_000_000);
        huge += u32::from(pages.serve(now, cpu, fault, &mut machine).is_ok());
        background(&mut pages, &mut machine, now);
    }
    print_row(name, pages.counters(), &largest, huge);
}

/// Describes the largest free blocks.
fn largest(pages: &PageAllocator) -> String {
    let free = |order| {
        let of = |kind| pages.zones().map(move |zone| pages.free_blocks(zone.id, order, kind));
        Migratetype::ALL.into_iter().flat_map(of).sum::<u64>()
    };
    let order = Order::all().rev().find(|&order| free(order) > 0);
    order.map_or("none".into(), |order| format!("{} of order {order}", free(order)))
}

fn print_row(name: &str, counted: &PageCounters, largest: &str, huge: u32) {
    let mistyped: u64 = counted.mistyped.iter().sum();
    let (events, moved) = (counted.events(), counted.moved);
    println!("{name:<20} {events:>8} {mistyped:>9} {moved:>9}  {largest:<18} {huge:>5}");
}

fn main() {
    println!("policy                 events  mistyped     moved  largest free        huge");
    for name in ["linux-4.20", "+patch1", "+patch4", "linux-7.2", "linux-7.2-defrag"] {
        let preset = FragmentationPolicy::preset(name).expect("they are all there");
        run(preset.name, preset.policy);
    }
}
