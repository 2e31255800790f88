//! The start of a replay beside what the kernel said of itself.

use std::path::Path;

use nofrag::check::Check;
use nofrag::page::FragmentationPolicy;
use nofrag_host::snapshot::{Files, Snapshot};

use super::*;

const LINUX_6_1: FragmentationPolicy = FragmentationPolicy::LINUX_6_1;
const STRICT: FragmentationPolicy = FragmentationPolicy::LINUX_6_12;

/// The files of one moment of the shared recording; `None`, and a printed reason, where it is missing.
fn files(moment: &str) -> Option<Files> {
    // The folder lies beside the repository, or beside the folder of its working trees.
    let name = "shared/data/linux-6.1-guest-768m";
    let mut places =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|place| place.join(name));
    let Some(folder) = places.find(|folder| folder.is_dir()) else {
        println!("skipped: there is no {name} beside the repository");
        return None;
    };
    Some(Files::read_folder(&folder.join(moment)).expect("it can be read"))
}

/// What buddyinfo shows of an allocator's zones.
fn buddyinfo<E: EventSink>(pages: &PageAllocator<E>) -> Vec<Vec<u64>> {
    let blocks = |zone, order| {
        Migratetype::ALL.map(|kind| pages.free_blocks(zone, order, kind)).iter().sum()
    };
    pages.zones().map(|zone| Order::all().map(|order| blocks(zone.id, order)).collect()).collect()
}

fn check_like_the_kernel(moment: &str) {
    let Some(files) = files(moment) else { return };
    let snapshot = Snapshot::parse(&files);
    let host = Host::of(&snapshot, 1).expect("a host");
    println!("{moment}: {:#?}", host.quality());
    for policy in [LINUX_6_1, STRICT, FragmentationPolicy::NOFRAG] {
        let start = host.start(policy, 100, ()).expect("it fits");
        start.pages.check().expect("the laws hold");
        let said: Vec<Vec<u64>> = snapshot.buddy.iter().map(|zone| zone.blocks.clone()).collect();
        assert_eq!(buddyinfo(&start.pages), said, "{moment}");
    }
}

#[test]
fn free_blocks_are_those_that_the_kernel_counted() {
    check_like_the_kernel("start");
    check_like_the_kernel("end");
}
