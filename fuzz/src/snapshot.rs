//! The parsers of a snapshot's files and what is computed from them, on arbitrary bytes.
//!
//! The input is a row of files: a line `=== NAME` begins each. `kpageflags` is taken as it is, eight bytes for each
//! frame.

use nofrag_host::machine::{self, Sources};
use nofrag_host::snapshot::{Files, FrameUse, PageMap, Snapshot};

/// Reads `data` as the files of a snapshot; its first byte is left out. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((_, data)) = data.split_first() else { return };
    let files = files(data);
    let snapshot = Snapshot::parse(&files);
    assert_eq!(Snapshot::parse(&files), snapshot, "reading depends on more than the files");
    for zone in &snapshot.buddy {
        let largest = zone.largest();
        assert_eq!(largest.is_none(), zone.pages() == 0, "free pages are in no block");
        for order in 0..12 {
            let indices = zone.indices(order);
            assert!(indices.unusable <= 1000 && indices.extfrag <= 100, "a share above the whole");
            assert_eq!(
                zone.blocks_of(order) > 0,
                largest.is_some_and(|largest| largest >= order),
                "the order is there, or it is not"
            );
        }
    }
    let _ = (snapshot.free_gap(), snapshot.page_bytes(), snapshot.pageblock_order());
    for zone in &snapshot.zones {
        let marks = zone.marks();
        assert!(marks.min <= zone.min && marks.high <= zone.high, "a boost lowers a mark");
        let _ = (zone.zone.kind(), zone.end_pfn(), zone.on_per_cpu_lists());
    }
    if let Some(pages) = snapshot.pages {
        check_frames(&pages);
    }
    check_machine(files);
}

/// Checks the report on a machine with these files: bounds are in order, and what is said of an order agrees with what
/// is said of the largest.
fn check_machine(files: Files) {
    let sources = Sources::of_files(files);
    // Only the areas of the vmalloc space may be too many.
    let Ok(machine) = machine::survey(&sources) else { return };
    for huge in machine.huge_pages.iter().flat_map(|huge| &huge.zones) {
        let blocks = &huge.blocks;
        assert!(blocks.now <= huge.listed, "more huge pages can be had than are free");
        assert!(blocks.now <= blocks.after_compaction, "compaction costs huge pages");
        assert!(blocks.after_compaction <= blocks.after_reclaim, "reclaim costs huge pages");
        let bounds = blocks.now..=blocks.after_compaction;
        assert!(blocks.compacted().is_none_or(|forecast| bounds.contains(&forecast)));
    }
    for request in &machine.requests {
        let served = request.orders.iter().rfind(|each| each.outcome.is_served());
        assert_eq!(
            served.map(|each| each.order),
            request.largest_order,
            "two answers to a request"
        );
        assert!(request.largest_unmixed_order <= request.largest_order, "unmixed is not served");
    }
    for zone in machine::pages::survey(&sources).zones {
        let Some(blocks) = zone.pageblocks else { continue };
        assert_eq!(
            blocks.free + blocks.movable + blocks.pinned,
            blocks.pageblocks,
            "a pageblock is lost"
        );
        assert!(blocks.perhaps_free <= blocks.pinned, "more are perhaps free than are pinned");
        let pinned: u64 = blocks.pinned_classes.iter().map(|class| class.pageblocks).sum();
        assert_eq!(pinned, blocks.pinned, "a pinned pageblock is in no class");
        let drawn: u64 = blocks.map.iter().map(|cell| cell.free + cell.movable + cell.pinned).sum();
        assert_eq!(drawn, blocks.pageblocks, "a pageblock is not on the map");
    }
}

/// Checks that free blocks are aligned, apart, and cover exactly the free frames.
fn check_frames(pages: &PageMap<'_>) {
    let all = 0..pages.frames();
    let free = pages.count_uses(all.clone())[FrameUse::Free.index()];
    let (mut covered, mut behind) = (0, 0);
    for (start, order) in pages.free_blocks(all, 10) {
        assert!(start >= behind && start % (1 << order) == 0, "blocks overlap or are not aligned");
        behind = start + (1 << order);
        covered += 1_u64 << order;
    }
    assert_eq!(covered, free, "the blocks are not the free frames");
}

/// Returns the files in the input.
fn files(data: &[u8]) -> Files {
    let mut files = Files::default();
    let mut name: Option<String> = None;
    let mut bytes: Vec<u8> = Vec::new();
    for line in data.split_inclusive(|&byte| byte == b'\n') {
        match line.strip_prefix(b"=== ") {
            Some(next) => {
                if let Some(name) = name.take() {
                    files.insert(name, std::mem::take(&mut bytes));
                }
                name = Some(String::from_utf8_lossy(next).trim().to_owned());
            }
            None => bytes.extend_from_slice(line),
        }
    }
    if let Some(name) = name {
        files.insert(name, bytes);
    }
    files
}
