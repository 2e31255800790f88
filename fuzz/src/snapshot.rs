//! The parsers of a snapshot's files and what is computed from them, on arbitrary bytes.
//!
//! The input is a row of files: a line `=== NAME` begins each. `kpageflags` is taken as it is, eight bytes for each
//! frame.

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
}

/// Free blocks are aligned, apart, and cover exactly the free frames.
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

/// The files in the input.
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
