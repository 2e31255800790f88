//! Named regressions: the mistakes of a naive inspector.

use std::fmt::Write as _;
use std::path::Path;

use nofrag_host::addresses::Addresses;
use nofrag_host::source::{self, Root, Sources};
use nofrag_host::vmalloc::survey;

/// Surveys hashed addresses, from which a naive inspector draws a hole map: the map is refused with the reason, and
/// everything else is shown.
/// Source: docs/sources/trace.md#t4.
#[test]
fn hashed_addresses_give_no_map_of_holes() {
    let text = "0x00000000f80307aa-0x00000000b34c984c   20480 irq_init_percpu_irqstack+0xca/0x100 vmap\n\
                0x00000000b34c984c-0x00000000b566ce7e    8192 acpi_os_map_iomem+0x1bc/0x1e0 phys=0xa0000 ioremap\n\
                0x00000000c8b758ed-0x0000000028cf3306   20480 unpurged vm_area\n";
    let sources = Sources {
        vmallocinfo: text.into(),
        kptr_restrict: Some(0),
        cpus_online: Some(2),
        ..Sources::default()
    };
    let report = survey(&sources).unwrap();
    assert_eq!(report.addresses, Addresses::Hashed);
    assert!(report.regions.is_empty(), "nothing may be computed from hashes");
    assert!(report.no_regions_because.as_deref().is_some_and(|why| why.contains("hashed")));
    let finding = report.findings.iter().find(|finding| finding.id == "addresses-hidden").unwrap();
    for command in ["sysctl kernel.kptr_restrict=1", "set it back: `sysctl kernel.kptr_restrict=0`"]
    {
        assert!(finding.help.contains(command), "{}", finding.help);
    }
    assert_eq!((report.totals.live_bytes, report.lazy.bytes), (28_672, 20_480));
    assert_eq!(report.callers.len(), 2);
}

/// Surveys 87.4 MB of areas, all of which a naive inspector calls used: 20.4 MB are, and 67.0 MB are lazy, just under
/// the limit of 2 CPUs.
/// Source: docs/sources/trace.md#t5.
#[test]
fn areas_that_wait_for_a_purge_are_not_in_use() {
    let mut text = String::new();
    let mut at = 0xffff_c900_0000_0000_u64;
    let mut area = |pages: u64, what: &str| {
        let end = at + pages * 4096;
        writeln!(text, "0x{at:016x}-0x{end:016x} {:7} {what}", pages * 4096).unwrap();
        at = end + 3 * 4096;
    };
    for _ in 0..3272 {
        area(5, "unpurged vm_area");
    }
    for _ in 0..310 {
        area(16, "f+0x1/0x2 pages=15 vmalloc N0=15");
    }
    area(26, "f+0x1/0x2 pages=25 vmalloc N0=25");
    let sources =
        Sources { vmallocinfo: text.into_bytes(), cpus_online: Some(2), ..Sources::default() };
    let report = survey(&sources).unwrap();
    assert_eq!((report.totals.areas, report.totals.bytes), (3583, 87_433_216));
    assert_eq!((report.lazy.areas, report.lazy.bytes), (3272, 67_010_560));
    assert_eq!((report.totals.live_areas, report.totals.live_bytes), (311, 20_422_656));
    assert_eq!(report.lazy.limit_bytes, Some(67_108_864));
    assert!(!report.lazy.is_over_limit(2));
    let finding = report.findings.iter().find(|finding| finding.id == "lazy-dominates").unwrap();
    assert!(finding.consequence.contains("4.3 times"), "{}", finding.consequence);
}

/// Checks that the warning allows one free in flight per CPU above the lazy limit, and no more.
#[test]
fn lazy_over_limit() {
    let lazy_of = |mib: u64| {
        let line = "0x00000000f80307aa-0x00000000b34c984c 1048576 unpurged vm_area\n";
        let sources = Sources {
            vmallocinfo: line.repeat(mib as usize).into_bytes(),
            cpus_online: Some(2),
            ..Sources::default()
        };
        survey(&sources).unwrap()
    };
    let warns = |mib| lazy_of(mib).findings.iter().any(|finding| finding.id == "lazy-over-limit");
    assert_eq!([64, 66, 67].map(warns), [false, false, true]);
}

/// Reads a captured host with the one file that it needs: the other files are listed with the facts that depend on
/// them.
#[test]
fn a_bare_capture_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::Captured(folder.path().to_owned());
    let absent = source::read_vmallocinfo(&root).unwrap_err().to_string();
    assert!(absent.contains("proc/vmallocinfo") && absent.contains("captured"), "{absent}");
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    std::fs::write(folder.path().join("proc/vmallocinfo"), "").unwrap();
    let sources = source::read_rest(&root, source::read_vmallocinfo(&root).unwrap());
    let report = survey(&sources).unwrap();
    assert_eq!(report.addresses, Addresses::NoAreas);
    assert_eq!(report.missing.len(), 5, "{:?}", report.missing);
}

/// The figures of the captured host that the repository carries.
#[test]
fn the_captured_host() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/hosts/vm-6.18-x86_64");
    let root = Root::Captured(folder);
    let sources = source::read_rest(&root, source::read_vmallocinfo(&root).unwrap());
    let report = survey(&sources).unwrap();
    assert_eq!(report.addresses, Addresses::Real);
    assert_eq!((report.totals.areas, report.totals.bytes), (1967, 54_337_536));
    assert_eq!((report.lazy.areas, report.lazy.bytes), (1694, 34_693_120));
    let bounds: Vec<_> = report
        .regions
        .iter()
        .map(|region| (region.name.into_str(), region.start, region.end))
        .collect();
    let expected = [
        ("vmalloc", 0xffff_c900_0000_0000, 0xffff_e900_0000_0000),
        ("modules", 0xffff_ffff_c000_0000, 0xffff_ffff_ff00_0000),
    ];
    assert_eq!(bounds, expected);
    assert_eq!(
        report.regions.iter().map(|region| region.bounds.into_str()).collect::<Vec<_>>(),
        ["exact", "assumed"]
    );
    assert!(report.missing.is_empty() && report.malformed.is_empty());
    let backed = report.totals.backed_pages * report.page_bytes.unwrap();
    assert_eq!(Some(backed), report.host.vmalloc_used_bytes, "the kernel counts the same pages");
}
