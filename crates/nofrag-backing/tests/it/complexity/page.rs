//! Operations of `page`, each on its worst input.

use nofrag::cpu::CpuId;
use nofrag::page::{
    FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig, PageRequest,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};

use super::Cost::Constant;
use super::steps::instructions;
use super::{Chapter, operation};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "page",
    counted: "the number of pageblocks of 512 frames (orders, types, zones and CPUs are few, and bounded)",
    operations: &[
        operation("alloc", "order 0, every other frame in use", Constant, |n| {
            let (mut pages, cpu, _) = crumbs(n);
            instructions(|| pages.alloc(Nanos(0), cpu, movable(Order::ZERO)).unwrap())
        }),
        operation("alloc", "order 9, no block of it is free", Constant, |n| {
            let (mut pages, cpu, _) = crumbs(n);
            instructions(|| pages.alloc(Nanos(0), cpu, movable(Order::PAGEBLOCK)).is_err())
        }),
        operation("free", "order 0, between two free frames", Constant, |n| {
            let (mut pages, cpu, own) = crumbs(n);
            instructions(|| pages.free(cpu, own).unwrap())
        }),
        operation("set_movable", "any", Constant, |n| {
            let (mut pages, _, own) = crumbs(n);
            instructions(|| pages.set_movable(own, true).unwrap())
        }),
        operation("frame", "any", Constant, |n| {
            let (pages, _, own) = crumbs(n);
            instructions(|| pages.frame(own))
        }),
        operation("block_type", "any", Constant, |n| {
            let (pages, _, own) = crumbs(n);
            instructions(|| pages.block_type(own))
        }),
        operation("largest_free", "any", Constant, |n| {
            let (pages, ..) = crumbs(n);
            let zone = pages.zones().last().unwrap().id;
            instructions(|| pages.largest_free(zone))
        }),
        operation("per_cpu_pages", "any", Constant, |n| {
            let (pages, ..) = crumbs(n);
            let zone = pages.zones().last().unwrap().id;
            instructions(|| pages.per_cpu_pages(zone))
        }),
        operation("metadata_bytes", "any", Constant, |n| {
            let (pages, ..) = crumbs(n);
            instructions(|| pages.metadata_bytes())
        }),
    ],
};

fn movable(order: Order) -> PageRequest {
    PageRequest::new(order, Migratetype::Movable)
}

/// Returns an allocator of a twentieth of `count` pageblocks, of which every other frame is free, and one in use.
fn crumbs(count: u64) -> (PageAllocator, CpuId, Pfn) {
    // 1 GiB and more, where lists and batches of a CPU have their full length.
    let map = MemoryMap::pc(PageCount(count / 20 * 512), 1).unwrap();
    let cpu = map.cpus().by_rank(0).unwrap();
    let policy = FragmentationPolicy::preset("nofrag").unwrap().policy;
    let mut pages = PageAllocator::new(&PageConfig::new(map, policy)).unwrap();
    let mut own = Vec::new();
    while let Ok(page) = pages.alloc(Nanos(0), cpu, movable(Order::ZERO)) {
        own.push(page);
    }
    own.sort_unstable();
    for page in own.iter().skip(1).step_by(2) {
        pages.free(cpu, *page).unwrap();
    }
    let middle = own[own.len() / 4 * 2];
    (pages, cpu, middle)
}
