//! A first page allocator: the example of the chapter on page frames.

use nofrag::page::{
    FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig, PageRequest,
};
use nofrag::units::{Nanos, Order, PageCount};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let map = MemoryMap::pc(PageCount(1 << 18), 2)?; // a PC with 1 GiB and two CPUs
    let cpu = map.cpus().get(0).expect("it was just named");
    let policy = FragmentationPolicy::preset("nofrag")?.policy;
    let mut pages = PageAllocator::new(&PageConfig::new(map, policy))?;
    let request = PageRequest::new(Order::ZERO, Migratetype::Unmovable);
    let page = pages.alloc(Nanos(0), cpu, request).expect("all memory is free");
    pages.free(cpu, page)?;
    assert_eq!(pages.counters().events(), 0);
    Ok(())
}

#[test]
fn holds() {
    main().expect("what a page shows works");
}
