//! Huge pages under an area.

use nofrag::check::Check;
use nofrag_backing::frames::Fill;
use nofrag_backing::mapped::{Grain, VmallocRequest};

use super::{owner, pages, scatter, seen, space, stamp};
use crate::frames::MIB;

/// Returns the KiB of the pages `start..end` that are mapped by huge pages; `None` where the kernel does not tell.
fn huge_kib(start: u64, end: u64) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut inside = false;
    let mut sum = None;
    for line in text.lines() {
        let first = line.split(' ').next()?;
        if let Some((from, _)) = first.split_once('-') {
            let from = u64::from_str_radix(from, 16).ok()?;
            inside = (start..end).contains(&(from >> 12));
        } else if inside && matches!(first, "ShmemPmdMapped:" | "FilePmdMapped:") {
            let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            sum = Some(sum.unwrap_or(0) + kib);
        }
    }
    sum
}

#[test]
fn whole_blocks_become_huge_pages() {
    let mapped = space(16, 64);
    let here = owner(&mapped, 0);
    let hoard = scatter(&mapped, 100);
    let request = VmallocRequest::new(5 * MIB).grain(Grain::Huge).fill(Fill::Anything);
    let area = mapped.vmalloc(here, &request).unwrap();
    assert_eq!(area.start().0 % 512, 0);
    let orders: Vec<u8> =
        mapped.blocks(area.start()).iter().map(|block| block.order.get()).collect();
    assert_eq!((&orders[..2], orders.len()), (&[9, 9][..], 2 + 256));
    pages(&area).for_each(|vpn| stamp(&mapped, vpn, 7));
    let collapsed = mapped.collapse(&area);
    assert_eq!(collapsed.whole, 2);
    if collapsed.huge < 2 {
        println!("skipped: no huge pages for files in memory here: {:?}", collapsed.error);
    } else if let Some(kib) = huge_kib(area.start().0, area.start().0 + area.pages().0) {
        assert_eq!(kib, 4096);
    } else {
        println!("not verified: /proc/self/smaps does not say which pages are huge");
    }
    pages(&area).for_each(|vpn| assert_eq!(seen(&mapped, vpn), (7, vpn.0)));
    mapped.vfree(here, area).unwrap();
    mapped.settle();
    mapped.frames().free_bulk(here, &hoard).unwrap();
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn without_whole_blocks_single_frames_serve() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    let hoard = scatter(&mapped, 1000);
    let request = VmallocRequest::new(2 * MIB).grain(Grain::Huge);
    let area = mapped.vmalloc(here, &request).unwrap();
    assert_eq!(area.start().0 % 512, 0);
    let collapsed = mapped.collapse(&area);
    assert!(collapsed.whole <= 1 && collapsed.huge <= collapsed.whole);
    mapped.vfree(here, area).unwrap();
    mapped.frames().free_bulk(here, &hoard).unwrap();
    assert_eq!(mapped.check(), Ok(()));
}
