//! Detach, flush, only then reuse: seen on memory.

use nofrag::check::Check;
use nofrag::page::Migratetype;
use nofrag::units::{Order, Vpn};
use nofrag::vmap::VmapPolicy;
use nofrag_backing::frames::{Effort, Fill, FrameRequest};
use nofrag_backing::mapped::{MappedConfig, VmallocRequest};

use super::{Read, owner, pages, read_in_child, seen, space_with, stamp};
use crate::frames::MIB;

#[test]
fn a_freed_area_shows_nothing_of_others_and_after_a_flush_nothing_at_all() {
    for preset in VmapPolicy::presets() {
        let config = MappedConfig { policy: preset.policy, ..MappedConfig::new(64 * MIB) };
        let mapped = space_with(4, &config);
        let here = owner(&mapped, 0);
        let request = VmallocRequest::new(16 * 4096);
        let area = mapped.vmalloc(here, &request).unwrap();
        pages(&area).for_each(|vpn| stamp(&mapped, vpn, 0x11));
        let old = area.start();
        mapped.vfree(here, area).unwrap();
        // Other users take all the memory that they can get, and write to it.
        let page = FrameRequest::new(Order::ZERO, Migratetype::Movable);
        let page = page.fill(Fill::Anything).effort(Effort::AtHand);
        let others: Vec<_> =
            std::iter::from_fn(|| mapped.frames().alloc(here, page).ok()).collect();
        assert_eq!(others.len(), 1024 - 16, "{}", preset.name);
        others.iter().for_each(|&block| crate::frames::stamp(mapped.frames(), block, 0x22));
        assert_eq!(read_in_child(&mapped, old), Read::Byte(0x11), "{}", preset.name);
        mapped.settle();
        let gone = read_in_child(&mapped, Vpn(old.0 + 7));
        assert_eq!(gone, Read::Signal(libc::SIGSEGV), "{}", preset.name);
        let next = mapped.vmalloc(here, &request).unwrap();
        pages(&next).for_each(|vpn| assert_eq!(seen(&mapped, vpn), (0, 0), "{}", preset.name));
        mapped.vfree(here, next).unwrap();
        assert_eq!(mapped.check(), Ok(()));
    }
}

#[test]
fn frames_that_a_caller_gives_back_too_early_wait_for_the_flush() {
    for preset in VmapPolicy::presets() {
        let config = MappedConfig { policy: preset.policy, ..MappedConfig::new(64 * MIB) };
        let mapped = space_with(4, &config);
        let here = owner(&mapped, 0);
        let page = FrameRequest::new(Order::ZERO, Migratetype::Movable).effort(Effort::AtHand);
        let block = mapped.frames().alloc(here, page).unwrap();
        let area = mapped.map_ram(here, &[block]).unwrap();
        let start = area.start();
        stamp(&mapped, start, 0x33);
        mapped.frames().free(here, block.pfn).unwrap();
        mapped.unmap_ram(here, area).unwrap();
        assert!(mapped.frames().block(block.pfn).is_some(), "{}", preset.name);
        assert_eq!(read_in_child(&mapped, start), Read::Byte(0x33), "{}", preset.name);
        mapped.settle();
        assert!(mapped.frames().block(block.pfn).is_none(), "{}", preset.name);
        let gone = read_in_child(&mapped, start);
        assert_eq!(gone, Read::Signal(libc::SIGSEGV), "{}", preset.name);
    }
}

#[test]
fn a_space_that_ends_gives_its_frames_back() {
    let config = MappedConfig::new(64 * MIB);
    let mapped = space_with(4, &config);
    let frames = std::sync::Arc::clone(mapped.frames());
    let here = owner(&mapped, 0);
    let request = VmallocRequest::new(100 * 4096);
    let [one, other] = [(), ()].map(|()| mapped.vmalloc(here, &request).unwrap());
    mapped.vfree(here, one).unwrap();
    drop(mapped);
    drop(other);
    assert_eq!((frames.check(), frames.stats().free), (Ok(()), frames.len()));
}
