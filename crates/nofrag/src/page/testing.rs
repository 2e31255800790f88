//! Helpers that the tests of several files share: small zones, and pictures of what is free in them.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::allocator::{MinFree, PageAllocator, PageConfig};
use super::fallback::Grouping;
use super::frames::{FrameIndex, Kind};
use super::map::{MemoryMap, NodeMap, PfnRange, ZoneKind, ZoneMap};
use super::migratetype::Migratetype;
use super::policy::FragmentationPolicy;
use super::request::PageRequest;
use super::walk::{AllocFlags, Walk};
use crate::cpu::{CpuId, CpuSet};
use crate::event::EventSink;
use crate::units::{Order, PageCount, Pfn};

pub(super) fn cpu() -> CpuId {
    CpuSet::first(1).expect("there is memory").by_rank(0).expect("it has one CPU")
}

pub(super) fn order(number: u8) -> Order {
    Order::new(number).expect("a test names orders")
}

/// Configures two zones that share a pageblock, with a hole and a reservation: 4697 and 7900 pages, on CPUs 0 and 3.
pub(super) fn two_zones(policy: FragmentationPolicy) -> PageConfig {
    let range = |start, pages| PfnRange { start: Pfn(start), pages: PageCount(pages) };
    let low = ZoneMap {
        holes: vec![range(700, 3)],
        ..ZoneMap::new(ZoneKind::Dma32, Pfn(5), PageCount(4700))
    };
    let high = ZoneMap {
        reserved: vec![range(6000, 100)],
        ..ZoneMap::new(ZoneKind::Normal, Pfn(4705), PageCount(8000))
    };
    let nodes = vec![NodeMap { cpus: vec![0, 3], zones: vec![low, high] }];
    let map = MemoryMap::new(nodes, &[]).expect("two zones are a machine");
    PageConfig { min_free: MinFree::Pages(300), ..PageConfig::new(map, policy) }
}

/// Makes one zone of `blocks` pageblocks, all free, that groups pages by type however small it is.
pub(super) fn zone_with<E: EventSink>(
    blocks: u64,
    policy: FragmentationPolicy,
    events: E,
) -> PageAllocator<E> {
    let zones = vec![ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(blocks * 512))];
    let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]);
    let map = map.expect("one zone is a machine");
    let config = PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) };
    let pages = PageAllocator::with_events(&config, events);
    let mut pages = pages.unwrap_or_else(|error| panic!("{error}"));
    pages.zones[0].grouping = Grouping::ByType;
    pages
}

pub(super) fn zone(blocks: u64, policy: FragmentationPolicy) -> PageAllocator {
    zone_with(blocks, policy, ())
}

/// Makes a zone of `blocks` pageblocks with all memory in use as single pages.
pub(super) fn full_zone(blocks: u64, policy: FragmentationPolicy) -> PageAllocator {
    let mut pages = zone(blocks, policy);
    for frame in 0..blocks * 512 {
        pages.alloc_at(Pfn(frame), Order::ZERO).expect("all is free");
    }
    pages
}

/// Takes a block of order `number` whatever the watermarks say, in a pass with the flags `bits`.
pub(super) fn take_under<E: EventSink>(
    pages: &mut PageAllocator<E>,
    number: u8,
    migratetype: Migratetype,
    bits: u16,
) -> Option<Pfn> {
    let request = PageRequest::new(order(number), migratetype);
    match pages.walk(cpu(), &request, AllocFlags::NO_WATERMARKS.with(bits)) {
        Walk::Block(frame) => Some(pages.handed_out(frame, &request)),
        _ => None,
    }
}

/// Takes a block of order `number` whatever the watermarks say, without further rights.
pub(super) fn take<E: EventSink>(
    pages: &mut PageAllocator<E>,
    number: u8,
    migratetype: Migratetype,
) -> Option<Pfn> {
    take_under(pages, number, migratetype, 0)
}

/// Gives single pages back, past the per-CPU lists, in this order.
pub(super) fn free_pages(pages: &mut PageAllocator, frames: impl IntoIterator<Item = u64>) {
    for frame in frames {
        pages.free(cpu(), Pfn(frame)).expect("it is in use");
        pages.drain_all();
    }
}

/// Draws the free blocks of the first zone in ascending order: first frame, type of the list, order. `"8M3"` are frames
/// 8 to 15, for movable requests.
pub(super) fn free_blocks<E: EventSink>(pages: &PageAllocator<E>) -> String {
    let frames = 0..pages.frames.len() as FrameIndex;
    let free = frames.filter(|&frame| pages.frames.tag(frame).kind() == Kind::Free);
    let drawn = free.map(|frame| {
        let letter = &pages.frames.listed(frame).name()[..1];
        format!("{frame}{letter}{}", pages.frames.tag(frame).order())
    });
    drawn.collect::<Vec<_>>().join(" ")
}
