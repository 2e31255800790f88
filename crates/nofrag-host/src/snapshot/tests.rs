//! The parsers on real files: those of the recorded guest and those of this host.

use std::fs;
use std::path::PathBuf;

use super::*;

/// Returns the snapshots of the raw recording; without it prints the reason.
fn recorded() -> Option<[Files; 2]> {
    let Some(folder) = std::env::var_os("NOFRAG_RAW_RECORDING").map(PathBuf::from) else {
        println!("skipped: NOFRAG_RAW_RECORDING names no folder of a raw recording");
        return None;
    };
    let read = |name| Files::read_folder(&folder.join(name)).expect("its files can be read");
    Some(["start", "end"].map(read))
}

/// Returns the files of this host that this process may read.
fn live() -> Files {
    let mut files = Files::default();
    let mut add = |name: &str, path: &str| {
        if let Ok(bytes) = fs::read(path) {
            files.insert(name, bytes);
        }
    };
    for name in ["version", "zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat", "meminfo", "iomem"] {
        add(name, &format!("/proc/{name}"));
    }
    for name in ["extfrag_index", "unusable_index"] {
        add(name, &format!("/sys/kernel/debug/extfrag/{name}"));
    }
    files
}

/// Checks that the indices from buddyinfo are those of debugfs, to within `off` thousandths. Returns the number
/// compared.
/// Source: docs/sources/trace.md#oracle-2.
fn check_indices(snapshot: &Snapshot<'_>, off: impl Fn(&ZoneName) -> u64) -> usize {
    let mut compared = 0;
    for (kernel, which) in [(&snapshot.extfrag, "extfrag"), (&snapshot.unusable, "unusable")] {
        for zone in kernel {
            let blocks = snapshot.blocks(&zone.zone).expect("both list the zones with memory");
            for (order, &said) in zone.thousandths.iter().enumerate() {
                let ours = blocks.indices(order as u32);
                let ours = match which {
                    "extfrag" => ours.fragmentation.unwrap_or(-1000),
                    _ => ours.unusable as i64,
                };
                let is_near = ours.abs_diff(said) <= off(&zone.zone);
                assert!(is_near, "{which} of {}, order {order}: {ours} {said}", zone.zone);
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn the_recorded_guest_is_read_whole() {
    let Some(recorded) = recorded() else { return };
    for files in &recorded {
        let snapshot = Snapshot::parse(files);
        assert_eq!(snapshot.missing, []);
        assert_eq!(snapshot.release.as_deref(), Some("6.1.0-53-cloud-amd64"));
        assert_eq!((snapshot.zones.len(), snapshot.populated().count()), (5, 2));
        assert_eq!((snapshot.pageblock_order(), snapshot.page_bytes()), (9, 4096));
        assert_eq!(snapshot.sysctl.get("watermark_boost_factor"), Some(15_000));
        assert_eq!(snapshot.sysctl.list("lowmem_reserve_ratio").map(|list| list.len()), Some(5));
        let types = snapshot.types.as_ref().expect("it is there");
        assert_eq!(types.names, ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate"]);
        let gap = snapshot.free_gap().expect("both are there");
        assert!(!gap.matters(), "{gap:?}");
        assert_eq!(snapshot.zone_of(4095).map(|zone| zone.zone.name.as_str()), Some("DMA"));
        assert_eq!(snapshot.zone_of(4096).map(|zone| zone.zone.name.as_str()), Some("DMA32"));
        assert_eq!(snapshot.zone_of(0), None);
        // Eleven orders in two zones, twice. Between the reads some hundred single pages of DMA32 were taken and given
        // back, none of DMA.
        let off = |zone: &ZoneName| if zone.name == "DMA" { 0 } else { 25 };
        assert_eq!(check_indices(&snapshot, off), 44);
    }
}

/// Adds up the free blocks of all types in pagetypeinfo: they are those of buddyinfo, except for changes between the
/// two reads.
#[test]
fn types_add_up_to_the_free_blocks() {
    let Some(recorded) = recorded() else { return };
    for files in &recorded {
        let snapshot = Snapshot::parse(files);
        let types = snapshot.types.as_ref().expect("it is there");
        for zone in &snapshot.buddy {
            for (order, &blocks) in zone.blocks.iter().enumerate() {
                let rows = types.free.iter().filter(|row| row.zone == zone.zone);
                let sum: u64 = rows.map(|row| row.blocks[order].least()).sum();
                assert!(sum.abs_diff(blocks) <= 32, "{} order {order}: {sum} {blocks}", zone.zone);
            }
        }
    }
}

/// Compares the orders inferred from page flags with buddyinfo: they agree but for a few blocks that went between the
/// two reads (docs/sources/trace.md#t6).
#[test]
fn the_orders_of_free_blocks_are_those_of_buddyinfo() {
    let Some(recorded) = recorded() else { return };
    for files in &recorded {
        let snapshot = Snapshot::parse(files);
        let pages = snapshot.pages.expect("they are there");
        assert_eq!(pages.frames(), 196_608);
        for zone in snapshot.populated() {
            let range =
                zone.start_pfn.expect("it has memory")..zone.end_pfn().expect("it has memory");
            let mut blocks = vec![0; 11];
            pages
                .free_blocks(range.clone(), 10)
                .for_each(|(_, order)| blocks[order as usize] += 1_u64);
            let listed = &snapshot.blocks(&zone.zone).expect("it has memory").blocks;
            // The files were read one after the other; single pages went meanwhile, whole blocks did not.
            let off: Vec<u64> = blocks.iter().zip(listed).map(|(a, &b)| a.abs_diff(b)).collect();
            assert!(off[1..].iter().sum::<u64>() <= 16, "{}: {blocks:?} {listed:?}", zone.zone);
            assert_eq!(blocks[8..], listed[8..], "{}", zone.zone);
            let uses = pages.count_uses(range);
            assert_eq!(uses.iter().sum::<u64>(), zone.spanned, "{}", zone.zone);
        }
    }
}

/// Takes away each file in turn, and then all: a missing file is named, and costs nothing else.
/// Source: docs/sources/trace.md#oracle-13.
#[test]
fn each_missing_file_is_named() {
    let Some([files, _]) = recorded() else { return };
    let whole = Snapshot::parse(&files);
    for (name, _) in files.iter() {
        let mut rest = Files::default();
        files
            .iter()
            .filter(|(other, _)| *other != name)
            .for_each(|(name, bytes)| rest.insert(name, bytes.to_vec()));
        let snapshot = Snapshot::parse(&rest);
        let named: Vec<_> = snapshot.missing.iter().map(|missing| missing.path.as_str()).collect();
        let optional = ["extfrag_index", "unusable_index", "iomem", "kpagecount"].contains(&name);
        assert_eq!(named, if optional { vec![] } else { vec![name] });
        assert!(name == "zoneinfo" || snapshot.zones == whole.zones);
        assert!(name == "buddyinfo" || snapshot.buddy == whole.buddy);
    }
    let nothing = Files::default();
    assert_eq!(Snapshot::parse(&nothing).missing.len(), 8);
}

/// Checks that the gap between the blocks of buddyinfo and `MemFree` is seen, and matters above a tenth
/// (docs/sources/trace.md#t1).
#[test]
fn free_memory_that_no_list_shows_is_counted() {
    let mut files = Files::default();
    files.insert("meminfo", b"MemTotal: 8000 kB\nMemFree: 4000 kB\n".to_vec());
    files.insert("buddyinfo", b"Node 0, zone Normal 100 0 25\n".to_vec());
    files.insert("vmstat", b"nr_free_pages 1000\n".to_vec());
    let gap = Snapshot::parse(&files).free_gap().expect("both are there");
    assert_eq!(gap, FreeGap { listed: 200, said: 1000 });
    assert!(gap.matters());
}

#[test]
fn page_sizes_other_than_4_kib_are_seen() {
    for (kib, pages, bytes) in
        [(64_000, 1000, 65_536), (63_000, 1100, 65_536), (4_100, 1000, 4096), (16, 1, 16_384)]
    {
        let mut files = Files::default();
        files.insert("meminfo", format!("MemFree: {kib} kB\n").into_bytes());
        files.insert("vmstat", format!("nr_free_pages {pages}\n").into_bytes());
        assert_eq!(Snapshot::parse(&files).page_bytes(), bytes, "{kib} {pages}");
    }
}

/// Reads the running kernel's files, of whatever version: every line is understood.
#[test]
fn this_host_is_read_whole() {
    let files = live();
    let snapshot = Snapshot::parse(&files);
    let damaged = snapshot.missing.iter().filter(|missing| files.bytes(&missing.path).is_some());
    assert_eq!(damaged.collect::<Vec<_>>(), Vec::<&Missing>::new());
    if snapshot.zones.is_empty() {
        println!("skipped: no /proc/zoneinfo");
        return;
    }
    assert!(snapshot.populated().count() > 0);
    assert_eq!(snapshot.populated().count(), snapshot.buddy.len());
    check_indices_if_still(&snapshot);
}

fn check_indices_if_still(snapshot: &Snapshot<'_>) {
    if snapshot.extfrag.is_empty() {
        println!("skipped: no debugfs/extfrag on this host");
        return;
    }
    // The lists change between the reads; unless buddyinfo is the same afterwards, the indices are of another moment.
    let again = fs::read_to_string("/proc/buddyinfo").map(|text| buddyinfo(&text).0);
    if again.is_ok_and(|again| again == snapshot.buddy) {
        check_indices(snapshot, |_| 0);
    }
}

/// Compares the free pages in blocks of a pageblock or more, by buddyinfo, with the kernel's `nr_free_pages_blocks`:
/// they are equal, except for changes between the two reads.
/// Source: docs/sources/trace.md#oracle-3, #free-pageblocks.
#[test]
fn free_pages_in_pageblocks_are_those_that_the_kernel_counts() {
    for attempt in 0.. {
        let files = live();
        let snapshot = Snapshot::parse(&files);
        let order = snapshot.pageblock_order();
        let known =
            snapshot.populated().filter_map(|zone| Some((zone, zone.free_in_pageblocks()?)));
        let off: Vec<(u64, u64)> = known
            .map(|(zone, said)| {
                let blocks = snapshot.blocks(&zone.zone).expect("it has memory");
                (blocks.blocks_of(order) << order, said)
            })
            .collect();
        if off.is_empty() {
            println!("skipped: this kernel has no nr_free_pages_blocks");
            return;
        }
        // Other processes take and free blocks meanwhile: a sixteenth of them, and a few.
        let is_near = |&(ours, said): &(u64, u64)| ours.abs_diff(said) <= said / 16 + (8 << order);
        if off.iter().all(is_near) {
            return;
        }
        assert!(attempt < 20, "{off:?}");
    }
}
