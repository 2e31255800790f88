//! The parser of the kernel's reports, and the watermark test on what it read, on arbitrary text.

use nofrag::page::{Migratetype, PageRequest, Refusal};
use nofrag::units::Order;
use nofrag_host::failure::{LogReport, parse};

/// Reads `data` as a log; its first byte is left out. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((_, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let reports = parse(&text);
    assert_eq!(parse(&text), reports, "reading depends on more than the text");
    assert!(
        reports.windows(2).all(|pair| pair[0].line < pair[1].line),
        "a line begins two reports"
    );
    for report in &reports {
        let _ = report.caller();
        check_zones(report);
    }
    // What follows a report takes nothing from it but the end of its own block.
    let twice = parse(&format!("{text}\n{text}"));
    assert!(twice.len() >= reports.len(), "a report is lost behind another text");
}

/// Checks that no zone serves what it would refuse, and none has more free than it says.
fn check_zones(report: &LogReport) {
    let order = report.asked().map_or(0, |asked| asked.order.min(10) as u8);
    let order = Order::new(order).expect("at most the largest");
    for (zone, state) in report.memory.states() {
        assert!(state.free.high_atomic <= state.free.pages, "more is kept than free");
        assert!(state.free.cma <= state.free.pages, "more is lent than free");
        assert_eq!(zone.blocks.len(), zone.types.len(), "a block without types");
        for request in [
            PageRequest::user(order),
            PageRequest::atomic(order),
            PageRequest::new(order, Migratetype::Reclaimable),
        ] {
            if let Some(largest) = state.largest(&request) {
                let request = PageRequest { order: largest, ..request };
                assert_eq!(state.refusal(&request), Refusal::Limit, "it would not serve it");
            }
        }
    }
}
