//! The parser of `/proc/PID/maps` and `smaps` and everything that is computed from what it read, on arbitrary bytes.

use std::time::Duration;

use nofrag_host::fields::Limit;
use nofrag_host::proc_maps::{Parsed, count, parse};
use nofrag_host::process::growth::Earlier;
use nofrag_host::process::replay::Which;
use nofrag_host::process::{ProcessReport, survey};
use nofrag_host::source::process::Sources;

/// Reads `data` as the file; its first byte says what else is known of the process. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((&known, text)) = data.split_first() else { return };
    let parsed = read(text);
    check_lines(text, &parsed);
    let arch = ["x86_64", "aarch64", "i686"].get(usize::from(known >> 6));
    let sources = Sources {
        parsed: parsed.clone(),
        max_map_count: (known & 1 != 0).then_some(u64::from(known)),
        stack_limit: (known & 2 != 0).then_some(Limit::Unlimited),
        address_space_limit: (known & 4 != 0).then_some(Limit::Bytes(1 << (known >> 2))),
        mmap_min_addr: (known & 8 != 0).then_some(u64::MAX),
        personality: (known & 16 != 0).then_some(u64::MAX),
        arch: arch.map(|arch| (*arch).to_owned()),
        ..Sources::default()
    };
    let half = read(&text[..text.len() / 2]);
    let earlier = Earlier { parsed: half, before: Duration::from_millis(u64::from(known)) };
    let earlier = (known & 32 != 0).then_some(&earlier);
    if let Ok(report) = survey(&sources, earlier, Which::Quick) {
        check_report(&report, usize::from(known));
    }
}

fn read(text: &[u8]) -> Parsed {
    parse(text).expect("reading from memory does not fail")
}

/// Checks that areas ascend, each line is at most one of them or one that is malformed, and reading twice gives the
/// same.
fn check_lines(text: &[u8], parsed: &Parsed) {
    assert_eq!(parsed.bytes, text.len() as u64, "bytes are lost or read twice");
    assert!(parsed.areas.iter().all(|area| area.start < area.end), "an area is empty");
    let in_order = parsed.areas.windows(2).all(|pair| pair[0].end <= pair[1].start);
    assert!(in_order, "areas overlap or fall");
    let mut numbers: Vec<u32> = parsed.areas.iter().map(|area| area.line).collect();
    numbers.extend(parsed.malformed.iter().map(|malformed| malformed.line));
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "a line is listed twice");
    assert!(numbers.iter().all(|&line| 1 <= line && line <= parsed.lines), "no such line");
    for area in &parsed.areas {
        let _ = (area.kind(), area.is_deleted(), area.grows_down(), area.to_string());
    }
    let counted = count(text).expect("reading from memory does not fail");
    assert!(counted <= u64::from(parsed.lines), "more areas than lines");
    assert_eq!(&read(text), parsed, "reading depends on more than the text");
}

/// Checks that every byte is mapped or free, and no placement loses or invents a mapping.
fn check_report(report: &ProcessReport, cells: usize) {
    let space = &report.space;
    assert!(space.start < space.end, "the space is empty");
    let size = space.end - space.start;
    assert_eq!(space.room.free_bytes + report.mapped_bytes, size, "bytes are lost");
    assert!(space.headroom.largest_mapping_bytes <= size, "too much is free");
    assert!(cells == 0 || !space.draw(cells).is_empty(), "a space has a picture");
    let pairs: u64 = report.neighbours.groups.iter().map(|group| group.pairs).sum();
    assert_eq!(pairs, report.neighbours.pairs, "a pair is lost");
    for placed in &report.replay.placements {
        assert!(placed.failures <= report.replay.pieces, "more failures than mappings");
        assert!(placed.outcome.huge_share.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
