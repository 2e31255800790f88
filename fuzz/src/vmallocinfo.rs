//! The parser of `/proc/vmallocinfo` and everything that is computed from what it read, on arbitrary bytes.

use nofrag_host::source::Sources;
use nofrag_host::vmalloc::survey;
use nofrag_host::vmallocinfo::parse;

/// Reads `data` as the file; its first byte says what else is known of the host. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((&known, text)) = data.split_first() else { return };
    check_lines(text);
    let sources = Sources {
        vmallocinfo: text.to_vec(),
        kptr_restrict: (known & 1 != 0).then_some(known >> 6),
        cpus_online: (known & 2 != 0).then_some(u32::from(known >> 4)),
        vmalloc_total: (known & 4 != 0).then_some(1 << (known >> 2)),
        arch: (known & 8 != 0).then(|| "x86_64".to_owned()),
        ..Sources::default()
    };
    if let Ok(report) = survey(&sources) {
        for region in &report.regions {
            assert!(region.start < region.end, "the region is empty");
            assert!(region.now.free_bytes <= region.after_purge.free_bytes, "a purge takes space");
            assert!(region.after_purge.free_bytes <= region.end - region.start, "too much is free");
            let cells = region.draw(usize::from(known));
            assert!(known == 0 || !cells.is_empty(), "a region has a picture");
        }
    }
}

/// Checks that every line that is not blank is listed once, by its number, as an area or as malformed, and that reading
/// twice gives the same.
fn check_lines(text: &[u8]) {
    let parsed = parse(text);
    let mut numbers: Vec<u32> = parsed.areas.iter().map(|area| area.line).collect();
    numbers.extend(parsed.malformed.iter().map(|malformed| malformed.line));
    numbers.sort_unstable();
    let described = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    assert_eq!(numbers.len(), described.count(), "a line is lost or read twice");
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "a line is listed twice");
    assert!(numbers.iter().all(|&line| 1 <= line && line <= parsed.lines), "no such line");
    for area in &parsed.areas {
        let _ = (area.kind(), area.is_lazy(), area.caller_symbol(), area.nodes().count());
    }
    assert_eq!(parse(text), parsed, "reading depends on more than the text");
}
