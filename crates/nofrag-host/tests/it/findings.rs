//! Each finding: on a layout that deserves the finding, and on one that does not.

use std::fmt::Write as _;

use nofrag_host::source::Sources;
use nofrag_host::vmalloc::survey;

const PAGE: u64 = 4096;
const BASE: u64 = 0xf000_0000;

/// Returns a small 32-bit space drawn one character per 64 KiB: `.` free, `#` live, `~` lazy; its length is
/// `VmallocTotal`.
fn small_space(picture: &str) -> Sources {
    const CELL: u64 = 64 << 10;
    let mut text = String::new();
    for (index, cell) in picture.bytes().enumerate() {
        let start = BASE + index as u64 * CELL;
        let what = match cell {
            b'#' => "f+0x1/0x2 vmalloc",
            b'~' => "unpurged vm_area",
            _ => continue,
        };
        writeln!(text, "0x{start:08x}-0x{:08x} {CELL:7} {what}", start + CELL).unwrap();
    }
    Sources {
        vmallocinfo: text.into_bytes(),
        vmalloc_total: Some(picture.len() as u64 * CELL),
        cpus_online: Some(2),
        arch: Some("armv7l".to_owned()),
        ..Sources::default()
    }
}

fn check_findings(sources: &Sources, expected: &[&str]) {
    let report = survey(sources).unwrap();
    let found: Vec<_> = report.findings.iter().map(|finding| finding.id).collect();
    assert_eq!(found, expected, "{:#?}", report.findings);
}

#[test]
fn a_roomy_space_has_none() {
    check_findings(&small_space(&format!("#{}#", ".".repeat(62))), &[]);
}

#[test]
fn a_tight_space_is_a_warning() {
    let fragmented = "#.".repeat(31) + "##";
    let full = "#".repeat(61) + "..#";
    for (picture, reason) in
        [(fragmented, "fragmented rather than full"), (full, "full rather than fragmented")]
    {
        let sources = small_space(&picture);
        check_findings(&sources, &["space-tight"]);
        let help = &survey(&sources).unwrap().findings[0].help;
        assert!(help.contains(reason), "{help}");
    }
}

/// Takes `VmallocTotal` away: a space without known bounds is never called tight.
#[test]
fn an_observed_hull_is_never_tight() {
    let sources = Sources { vmalloc_total: None, ..small_space("##########") };
    check_findings(&sources, &[]);
}

#[test]
fn a_purge_that_doubles_the_room_is_noted() {
    check_findings(&small_space("#....~....#....~..#####################"), &["purge-matters"]);
    check_findings(&small_space("#....~.............#####################"), &[]);
}

#[test]
fn a_torn_read_is_noted() {
    let mut sources = small_space("#......#");
    let again = format!("0x{BASE:08x}-0x{:08x} {PAGE:7} g+0x1/0x2 vmap\n", BASE + PAGE);
    sources.vmallocinfo.extend(again.into_bytes());
    check_findings(&sources, &["read-while-changing"]);
}

#[test]
fn one_caller_with_most_areas_is_noted() {
    let mut picture = "#".repeat(1000);
    picture += &".".repeat(1000);
    check_findings(&small_space(&picture), &["caller-dominates"]);
}

#[test]
fn damage_comes_first() {
    let mut sources = small_space("#~......");
    sources.vmallocinfo.extend(b"garbage");
    check_findings(&sources, &["file-damaged", "lazy-dominates"]);
    let mixed = "0xf0000000-0xf0010000 65536 vmap\n0xf0020000-0xf0021000 65536 vmap\n";
    check_findings(&Sources { vmallocinfo: mixed.into(), ..Sources::default() }, &["file-damaged"]);
}

/// Checks that the remedy depends on the setting that hides the addresses.
#[test]
fn the_advice_fits_the_setting() {
    let help = |range: &str, kptr_restrict| {
        let vmallocinfo = format!("{range} 20480 vmap\n").into_bytes();
        let sources = Sources { vmallocinfo, kptr_restrict, ..Sources::default() };
        survey(&sources).unwrap().findings[0].help.clone()
    };
    let zeros = "0x0000000000000000-0x0000000000000000";
    assert!(help(zeros, Some(2)).contains("set it back: `sysctl kernel.kptr_restrict=2`"));
    assert!(help(zeros, Some(1)).contains("CAP_SYSLOG"));
    assert!(help("0x(____ptrval____)-0x(____ptrval____)", Some(0)).contains("booted"));
}
