//! First touches, huge and small.

use crate::apparatus::huge_units::{HugeAdvice, HugeUnits, Touch};

const UNIT: usize = 2 << 20;

fn touched(units: usize, advice: HugeAdvice) -> Vec<Touch> {
    let mut region = HugeUnits::map(units, UNIT, advice).unwrap();
    std::iter::from_fn(|| region.touch_next()).map(Result::unwrap).collect()
}

#[test]
fn each_unit_is_touched_once() {
    let touches = touched(3, HugeAdvice::Host);
    assert_eq!(touches.len(), 3);
    for touch in touches {
        assert!(touch.pages_at_once >= 1 && touch.pages_at_once <= touch.pages, "{touch:?}");
        assert_eq!(touch.whole(), touch.first + touch.rest);
    }
}

#[test]
fn without_huge_pages_a_fault_brings_in_a_part() {
    if std::fs::metadata("/sys/kernel/mm/transparent_hugepage").is_err() {
        eprintln!("skipped: this kernel has no transparent huge pages");
        return;
    }
    for touch in touched(2, HugeAdvice::Small) {
        assert!(!touch.is_huge() && touch.pages_at_once < touch.pages, "{touch:?}");
    }
}

#[test]
fn with_advice_a_fault_brings_in_all_where_the_host_has_huge_pages() {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !setting.is_ok_and(|setting| !setting.contains("[never]")) {
        eprintln!("skipped: this host gives no transparent huge pages");
        return;
    }
    // The last two columns are blocks of a huge page and twice that, by the page and pageblock sizes of x86-64.
    let buddyinfo = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    let large = buddyinfo.lines().flat_map(|line| line.split_whitespace().rev().take(2));
    let large: u64 = large.filter_map(|blocks| blocks.parse::<u64>().ok()).sum();
    let huge = touched(8, HugeAdvice::Huge).iter().filter(|touch| touch.is_huge()).count();
    if large < 64 {
        eprintln!("not judged: {huge} of 8 units huge with {large} large blocks free");
        return;
    }
    assert!(huge > 0, "no huge page with {large} large blocks free");
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    for (units, bytes) in [(0, UNIT), (1, 3 << 12), (1, 1), (usize::MAX, UNIT)] {
        let refused = HugeUnits::map(units, bytes, HugeAdvice::Host).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{units} of {bytes}");
    }
}
